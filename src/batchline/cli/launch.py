"""`batchline launch`: the command that starts a deployment."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output, _question
from batchline.errors import InputError

if TYPE_CHECKING:
    from batchline.launch import Settings
    from batchline.planner import Candidate, Question


@click.command("launch")
@click.argument("model", metavar="MODEL | QUESTION.toml")
@_question.question_options
@_options.profile_option
@click.option(
    "--pick", type=click.IntRange(min=1), default=1, show_default=True, help="Which of the plan's candidates."
)
@click.option("--path", metavar="ID | FOLDER", help="Checkpoint to load.  [default: the Hugging Face id]")
@click.option("--served-name", help="What clients call the model.")
@click.option("--port", type=click.IntRange(min=1, max=65535), help="Port.  [default: the engine's]")
@click.option("--host", default="0.0.0.0", show_default=True, help="Interface to listen on.")  # noqa: S104
@click.option("--trust-remote-code", is_flag=True, help="Let the model's own code run.")
@click.option("--kubernetes", is_flag=True, help="Write a Kubernetes manifest (vllm).")
@click.option("--config", "as_config", is_flag=True, help="Write the configuration file alone (trtllm).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
    for warning in answer.warnings:
        _output.warn(warning)
    best = answer.best
    if options["pick"] > len(answer.candidates):
        raise InputError(f"The plan has {len(answer.candidates)} candidates, not {options['pick']}.")
    if options["pick"] > 1:
        best = answer.candidates[options["pick"] - 1]
    made = launch.launch(best.engine, _settings(best, question, options))
    if options["as_json"]:
        _output.print_json(made.to_dict() | {"candidate": best.to_dict()})
        return
    click.echo(f"{best.title}: ${best.usd_per_month:,.0f} a month", err=True)
    if options["kubernetes"]:
        click.echo(made.kubernetes, nl=False)
    elif options["as_config"]:
        if not made.config:
            raise InputError(f"{made.engine} takes flags, not a configuration file.", "", "Leave --config out.")
        click.echo(made.config, nl=False)
    else:
        click.echo(made.script, nl=False)


def _settings(best: Candidate, question: Question, options: dict[str, Any]) -> Settings:
    from batchline import launch

    given = {name: options[name] for name in ("served_name", "port", "host", "trust_remote_code")}
    if options["path"]:
        given["model"] = options["path"]
    return dataclasses.replace(launch.settings_of(best, question), **given)
