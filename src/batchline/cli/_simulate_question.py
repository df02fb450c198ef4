"""The question of a simulation, as `simulate` asks it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options

if TYPE_CHECKING:
    from batchline.simulate.question import Question

_PROMISES = ("ttft", "tpot", "itl", "e2e")


def _columns(text: str) -> dict[str, str]:
    from batchline.simulate.load import parse_columns

    return parse_columns(text)


def traffic_options(command: Any) -> Any:
    options = [
        click.option(
            "--trace",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            help="Requests of a .csv, .jsonl or .parquet file.",
        ),
        click.option(
            "--columns",
            type=_options.Quantity("name=value", _columns),
            metavar="arrival=..,isl=..",
            help="Names of its columns, where they are not known.",
        ),
        click.option("--time-unit", metavar="s|ms|us|ns|datetime", help="Unit of its arrivals."),
        click.option(
            "--repair", is_flag=True, help="Leave rows out that cannot be, and sort, instead of refusing the trace."
        ),
        click.option(
            "--rate",
            type=_options.RATE,
            metavar="20/s",
            help="Requests that arrive; with --trace its rate is scaled to this.",
        ),
        click.option(
            "--arrivals",
            default="poisson",
            show_default=True,
            metavar="PATTERN",
            help="poisson, metronome, gamma:CV, burst:SIZE or diurnal:PEAK.",
        ),
        click.option(
            "--users",
            type=click.IntRange(min=1),
            help="People who wait for an answer and then think, instead of a rate.",
        ),
        click.option(
            "--think", "think_s", type=_options.DURATION, default=0.0, metavar="30s", help="How long they think, mean."
        ),
        click.option("--isl", type=_options.TOKENS, metavar="TOKENS", help="Tokens of a prompt, mean."),
        click.option("--osl", type=_options.TOKENS, metavar="TOKENS", help="Tokens of an answer, mean."),
        click.option(
            "--spread",
            type=click.FloatRange(min=0),
            default=0.0,
            metavar="SIGMA",
            help="Log-normal spread of both lengths; 0: all alike.",
        ),
        click.option(
            "--lengths",
            type=click.Path(dir_okay=False),
            metavar="TRACE",
            help="Draw lengths from this trace instead of --isl and --osl.",
        ),
        click.option(
            "--scale-lengths",
            type=click.FloatRange(min=0, min_open=True),
            default=1.0,
            metavar="2",
            help="Make prompts and answers longer or shorter.",
        ),
        click.option(
            "--shared-prefix",
            metavar="N:TOKENS",
            help="Every prompt begins with one of N system prompts of so many tokens.",
        ),
        click.option(
            "--requests", "count", type=click.IntRange(min=1), help="How many.  [default: the trace, or 2,000]"
        ),
        click.option(
            "--duration", "duration_s", type=_options.DURATION, metavar="24h", help="For how long they arrive, instead."
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="The same seed makes the same requests.",
        ),
    ]
    return _with(command, options)


def scheduler_options(command: Any) -> Any:
    options = [
        click.option(
            "--scheduler",
            type=click.Choice(["engine", "static", "train"]),
            default="engine",
            show_default=True,
            help="That of --engine, static batches of --max-num-seqs, or the lecture's train.",
        ),
        click.option(
            "--max-num-seqs",
            type=click.IntRange(min=1),
            help="Most requests that run together.  [default: the engine's]",
        ),
        click.option(
            "--max-num-batched-tokens",
            type=click.IntRange(min=1),
            help="Token budget of a step.  [default: the engine's]",
        ),
        click.option(
            "--kv-blocks",
            type=click.IntRange(min=1),
            help="Blocks of the KV cache, as its log says.  [default: computed]",
        ),
        click.option("--block-size", type=click.IntRange(min=1), help="Tokens of a block.  [default: 16]"),
        click.option(
            "--prefix-caching/--no-prefix-caching",
            default=True,
            show_default=True,
            help="Keep blocks findable that were freed.",
        ),
        click.option(
            "--period",
            "period_s",
            type=_options.DURATION,
            default="20ms",
            show_default=True,
            metavar="20ms",
            help="With --scheduler train: time between departures.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=_options.DURATION,
            default=1.0,
            metavar="1s",
            help="With --scheduler static: longest wait for a full batch.  [default: 1s]",
        ),
        click.option(
            "--max-model-len", type=_options.TOKENS, metavar="TOKENS", help="Longest request.  [default: the engine's]"
        ),
        click.option(
            "--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="Copies of the deployment."
        ),
        click.option(
            "--router", default="round_robin", show_default=True, help="round_robin, least_loaded or prefix_aware."
        ),
        click.option(
            "--prefill-replicas",
            type=click.IntRange(min=1),
            help="Compute prompts on so many copies apart; --replicas then only decode.",
        ),
        click.option(
            "--transfer",
            type=_options.BANDWIDTH,
            default="50GB/s",
            show_default=True,
            metavar="GB/s",
            help="Link over which each of them sends KV caches.",
        ),
    ]
    return _with(command, options)


def _with(command: Any, options: list[Any]) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


def promise_options(command: Any) -> Any:
    """Add what is promised."""
    options = [
        click.option("--ttft", metavar="p95:2s", help="Promise on the first token; without pNN the mean."),
        click.option("--tpot", metavar="p95:40ms", help="Promise on the time per output token."),
        click.option("--itl", metavar="p99:100ms", help="Promise on the gap between tokens."),
        click.option("--e2e", metavar="p95:30s", help="Promise on the whole request."),
    ]
    return _with(command, options)


def question_of(model: str, options: dict[str, Any]) -> Question:
    """Read the question."""
    from batchline.goodput import Promise
    from batchline.simulate.load import Load
    from batchline.simulate.question import Question

    deployment = _options.deployment_of(model, options)
    if options["max_model_len"]:
        deployment = replace(deployment, request=replace(deployment.request, max_model_len=options["max_model_len"]))
    knobs = {field.name for field in fields(Question)} & set(options)
    return Question(
        deployment=deployment,
        load=Load(**{field.name: options[field.name] for field in fields(Load)}),
        promises={name: Promise.parse(options[name]) for name in _PROMISES if options[name]},
        priors=_options.priors_of(options["profile"], deployment),
        **{name: options[name] for name in knobs},
    )
