"""The question of a simulation, as `simulate` asks it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options
from batchline.strings import text

if TYPE_CHECKING:
    from batchline.simulate.question import Question

_PROMISES = ("ttft", "tpot", "itl", "e2e")


def _columns(text: str) -> dict[str, str]:
    from batchline.simulate.load import parse_columns

    return parse_columns(text)


def traffic_options(command: Any) -> Any:
    options = [
        click.option("--trace", type=click.Path(dir_okay=False), metavar="FILE", help=text("help.simulate_trace")),
        click.option(
            "--columns",
            type=_options.Quantity("name=value", _columns),
            metavar="arrival=..,isl=..",
            help=text("help.columns"),
        ),
        click.option("--time-unit", metavar="s|ms|us|ns|datetime", help=text("help.time_unit")),
        click.option("--repair", is_flag=True, help=text("help.repair")),
        click.option("--rate", type=_options.RATE, metavar="20/s", help=text("help.simulate_rate")),
        click.option(
            "--arrivals",
            default="poisson",
            show_default=True,
            metavar="PATTERN",
            help=text("help.simulate_arrivals"),
        ),
        click.option("--users", type=click.IntRange(min=1), help=text("help.users")),
        click.option(
            "--think",
            "think_s",
            type=_options.DURATION,
            default=0.0,
            metavar="30s",
            help=text("help.simulate_think_s"),
        ),
        click.option("--isl", type=_options.TOKENS, metavar="TOKENS", help=text("help.simulate_isl")),
        click.option("--osl", type=_options.TOKENS, metavar="TOKENS", help=text("help.simulate_osl")),
        click.option("--spread", type=click.FloatRange(min=0), default=0.0, metavar="SIGMA", help=text("help.spread")),
        click.option("--lengths", type=click.Path(dir_okay=False), metavar="TRACE", help=text("help.lengths")),
        click.option(
            "--scale-lengths",
            type=click.FloatRange(min=0, min_open=True),
            default=1.0,
            metavar="2",
            help=text("help.scale_lengths"),
        ),
        click.option("--shared-prefix", metavar="N:TOKENS", help=text("help.shared_prefix")),
        click.option("--requests", "count", type=click.IntRange(min=1), help=text("help.count")),
        click.option("--duration", "duration_s", type=_options.DURATION, metavar="24h", help=text("help.duration_s")),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help=text("help.seed")),
    ]
    return _with(command, options)


def scheduler_options(command: Any) -> Any:
    options = [
        click.option(
            "--scheduler",
            type=click.Choice(["engine", "static", "train"]),
            default="engine",
            show_default=True,
            help=text("help.scheduler"),
        ),
        click.option("--max-num-seqs", type=click.IntRange(min=1), help=text("help.simulate_max_num_seqs")),
        click.option(
            "--max-num-batched-tokens",
            type=click.IntRange(min=1),
            help=text("help.simulate_max_num_batched_tokens"),
        ),
        click.option("--kv-blocks", type=click.IntRange(min=1), help=text("help.kv_blocks")),
        click.option("--block-size", type=click.IntRange(min=1), help=text("help.simulate_block_size")),
        click.option(
            "--prefix-caching/--no-prefix-caching",
            default=True,
            show_default=True,
            help=text("help.prefix_caching"),
        ),
        click.option(
            "--period",
            "period_s",
            type=_options.DURATION,
            default="20ms",
            show_default=True,
            metavar="20ms",
            help=text("help.period_s"),
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=_options.DURATION,
            default=1.0,
            metavar="1s",
            help=text("help.timeout_s"),
        ),
        click.option(
            "--max-model-len", type=_options.TOKENS, metavar="TOKENS", help=text("help.simulate_max_model_len")
        ),
        click.option(
            "--replicas", type=click.IntRange(min=1), default=1, show_default=True, help=text("help.replicas")
        ),
        click.option("--router", default="round_robin", show_default=True, help=text("help.router")),
        click.option("--prefill-replicas", type=click.IntRange(min=1), help=text("help.prefill_replicas")),
        click.option(
            "--transfer",
            type=_options.BANDWIDTH,
            default="50GB/s",
            show_default=True,
            metavar="GB/s",
            help=text("help.simulate_transfer"),
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
        click.option("--ttft", metavar="p95:2s", help=text("help.ttft")),
        click.option("--tpot", metavar="p95:40ms", help=text("help.tpot")),
        click.option("--itl", metavar="p99:100ms", help=text("help.simulate_itl")),
        click.option("--e2e", metavar="p95:30s", help=text("help.e2e")),
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
