"""`batchline report`: the answer as a file to mail."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _beside, _curve_question, _options
from batchline.cli._language import current, say
from batchline.cli._spoken import Spoken
from batchline.strings import text

if TYPE_CHECKING:
    from batchline.planner import Plan
    from batchline.prior import Prior


_TYPED = "batchline.typed"


class _Remembering(Spoken):
    """A command that keeps its words as they were typed, for the report to repeat."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_TYPED] = list(args)
        return super().parse_args(ctx, args)


@click.command("report", cls=_Remembering)
@click.argument("model")
@_curve_question.curve_options
@_curve_question.serving_options
@_beside.option
@click.option("--plan", "question", type=click.Path(exists=True, dir_okay=False), help=text("help.question"))
@click.option("--flips", is_flag=True, help=text("help.report_flips"))
@click.option("--out", type=_options.FILE, default="report.html", show_default=True, help=text("help.report_out"))
@click.option(
    "--theme",
    type=click.Choice(["system", "light", "dark"]),
    default="system",
    show_default=True,
    help=text("help.report_theme"),
)
def command(model: str, **options: Any) -> None:
    """Write the answer and everything behind it into one file: inputs with sources, plots, what would change it.

    \b
    batchline report llama-3.1-70b --on 4xh100 --context 8k --step-limit 30ms
    batchline report qwen3-32b --on h200 --weights fp8 --measured results.json --out answer.md --language ko
    """
    from batchline import report

    again = shlex.join(["batchline", "report", *click.get_current_context().meta[_TYPED]])
    asked = _curve_question.question_of(model, options)
    curve = asked.curve()
    made = report.report(
        curve,
        language=current(),
        theme=options["theme"],
        command=again,
        served=asked.served(curve),
        measured=[one.to_dict() for one in _beside.points_of(curve, options["files"])],
        plan=None if options["question"] is None else _planned(options["question"], curve.priors),
        flips=options["flips"],
        within=options["within"],
        max_batch=options["max_batch"],
    )
    for file in made.save(options["out"]):
        click.echo(say("report.written", file=str(file)), err=True)


def _planned(path: str, priors: Prior | None) -> Plan:
    from batchline import planner

    return planner.plan(planner.load_question(path), priors)
