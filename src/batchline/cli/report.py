"""`batchline report`: the answer as a file to mail."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output
from batchline.cli.curve import _context, _lengths, _served, _step_limit

if TYPE_CHECKING:
    from batchline.planner import Plan
    from batchline.prior import Prior


_TYPED = "batchline.typed"


class _Remembering(click.Command):
    """A command that keeps its words as they were typed, for the report to repeat."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_TYPED] = list(args)
        return super().parse_args(ctx, args)


@click.command("report", cls=_Remembering)
@click.argument("model")
@_options.deployment_options
@_options.profile_option
@click.option(
    "--context",
    type=_options.TOKENS,
    metavar="TOKENS",
    help="Mean context of a sequence.  [default: isl + osl / 2 if given, else 4k]",
)
@click.option("--isl", type=_options.TOKENS, metavar="TOKENS", help="Input length: adds prefill, TTFT and throughput.")
@click.option("--osl", type=_options.TOKENS, metavar="TOKENS", help="Output length; goes with --isl.")
@click.option("--max-batch", type=click.IntRange(min=1), help="Largest batch allowed (an engine's max_num_seqs).")
@click.option("--step-limit", type=_options.DURATION, metavar="40ms", help="Longest time per token allowed.")
@click.option(
    "--tokens-per-user",
    type=click.FloatRange(min=0, min_open=True),
    metavar="TOK/S",
    help="Least speed of a user allowed.",
)
@click.option(
    "--within",
    type=click.FloatRange(min=0),
    metavar="0.1",
    help="Take the smallest batch whose cost is this near to its floor.",
)
@click.option(
    "--reading",
    type=click.Choice(["predict", "bound", "serial"]),
    default="predict",
    show_default=True,
    help="As of the curve.",
)
@click.option(
    "--measured",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Result file to lay beside.",
)
@click.option(
    "--plan", "question", type=click.Path(exists=True, dir_okay=False), help="Question saved by batchline plan --save."
)
@click.option("--flips", is_flag=True, help="Say what would flip that plan (some seconds).")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, writable=True),
    default="report.html",
    show_default=True,
    help="File: .html, one page that needs nothing else, or .md with its pictures beside it.",
)
@click.option("--language", type=click.Choice(["en", "ko"]), default="en", show_default=True, help="English or Korean.")
@click.option("--theme", type=click.Choice(["light", "dark"]), default="light", show_default=True, help="Its colours.")
def command(model: str, **options: Any) -> None:
    """Write the answer and everything behind it into one file: inputs with sources, plots, what would change it.

    \b
    batchline report llama-3.1-70b --on 4xh100 --context 8k --step-limit 30ms
    batchline report qwen3-32b --on h200 --weights fp8 --measured results.json --out answer.md --language ko
    """
    from batchline import report, sweep

    again = shlex.join(["batchline", "report", *click.get_current_context().meta[_TYPED]])
    lengths = _lengths(options)
    deployment = _options.deployment_of(model, options)
    bounds = {"within": options["within"], "max_batch": options["max_batch"]}
    curve = sweep.curve(
        deployment,
        _context(options, lengths),
        reading=options["reading"],
        step_limit=_step_limit(options),
        priors=_options.priors_of(options["profile"], deployment),
        **bounds,
    )
    made = report.report(
        curve,
        language=options["language"],
        theme=options["theme"],
        command=again,
        served=None if lengths is None else _served(curve, *lengths),
        measured=_measured(options["files"]),
        plan=None if options["question"] is None else _planned(options["question"], curve.priors),
        flips=options["flips"],
        **bounds,
    )
    for file in made.save(options["out"]):
        click.echo(f"Report: {file}", err=True)


def _measured(files: tuple[str, ...]) -> list[dict[str, Any]]:
    """Points of result files that have a batch and a step, and that nothing speaks against."""
    if not files:
        return []
    from batchline.measure import hazards, read_all

    points = read_all(files)
    kept = hazards.usable(points)
    shown = [point for point in kept if point.batch and point.step_s]
    if len(shown) < len(points):
        _output.warn(
            f"{len(points) - len(shown)} of {len(points)} measured points are left out: without batch or step time, "
            "or contaminated; batchline measure FILE says which."
        )
    return [{"name": point.name, "batch": point.batch, "t_step_s": point.step_s} for point in shown]


def _planned(path: str, priors: Prior | None) -> Plan:
    from batchline import planner

    return planner.plan(planner.load_question(path), priors)
