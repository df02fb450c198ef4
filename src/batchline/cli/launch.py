"""`batchline launch`: the command that starts a deployment."""

from __future__ import annotations

from typing import Any

import click

from batchline.cli import _options, _output, _question
from batchline.cli._language import current, say
from batchline.cli._spoken import Spoken
from batchline.errors import InputError
from batchline.strings import Sentence, text
from batchline.units import format_usd


@click.command("launch", cls=Spoken)
@click.argument("model", metavar="MODEL | QUESTION.toml")
@_question.question_options
@_options.profile_option
@click.option("--pick", type=click.IntRange(min=1), default=1, show_default=True, help=text("help.pick"))
@click.option("--role", type=click.Choice(["prefill", "decode"]), help=text("help.role"))
@click.option("--path", metavar="ID | FOLDER", help=text("help.path"))
@click.option("--served-name", help=text("help.served_name"))
@click.option("--port", type=click.IntRange(min=1, max=65535), help=text("help.launch_port"))
@click.option("--host", default="0.0.0.0", show_default=True, help=text("help.launch_host"))  # noqa: S104
@click.option("--trust-remote-code", is_flag=True, help=text("help.trust_remote_code"))
@click.option("--kubernetes", is_flag=True, help=text("help.kubernetes"))
@click.option("--config", "as_config", is_flag=True, help=text("help.as_config"))
@click.option("--json", "as_json", is_flag=True, help=text("help.as_json"))
def command(model: str, **options: Any) -> None:
    """Plan, and write the command that starts it: every flag with its reason.

    \b
    batchline launch llama-3.1-70b --isl 4k --osl 1k --rate 5/s --tpot p95:40ms --on h100 --engine vllm > start.sh
    batchline launch chat.toml --engine sglang
    batchline launch chat.toml --engine vllm --kubernetes | kubectl apply -f -
    """
    from batchline import launch, planner

    question = _question.question_of(model, options)
    answer = planner.plan(question, _options.priors_of(options["profile"]))
    for warning in answer.cautions(current()):
        _output.warn(warning)
    best = answer.best
    if options["pick"] > len(answer.candidates):
        count = f"{len(answer.candidates)}"
        raise InputError(Sentence("error.fewer_candidates", count=count, given=f"{options['pick']}"))
    if options["pick"] > 1:
        best = answer.candidates[options["pick"] - 1]
    given = {name: options[name] for name in ("served_name", "port", "host", "trust_remote_code")}
    given |= {"model": options["path"]} if options["path"] else {}
    # Programs read the same in every language.
    made = launch.starts(best, question, language="en" if options["as_json"] else current(), **given)
    if options["role"]:
        made = tuple(one for one in made if one.settings.role == options["role"])
        if not made:
            raise InputError(
                Sentence("error.replicas_do_both", title=best.title), "", Sentence("error.leave_out", option="--role")
            )
    if options["as_json"]:
        found = made[0].to_dict() if len(made) == 1 else {one.settings.role: one.to_dict() for one in made}
        _output.print_json(found | {"candidate": best.to_dict()})
        return
    click.echo(say("plan.month", title=best.titled(current()), cost=format_usd(best.usd_per_month)), err=True)
    if options["kubernetes"]:
        click.echo(launch.manifest(made), nl=False)
    elif options["as_config"]:
        if not made[0].config:
            raise InputError(
                Sentence("error.takes_flags", engine=made[0].engine), "", Sentence("error.leave_out", option="--config")
            )
        if len(made) > 1:
            raise InputError(Sentence("error.two_configurations"), "", Sentence("error.give_role"))
        click.echo(made[0].config, nl=False)
    else:
        click.echo(launch.script(made), nl=False)
