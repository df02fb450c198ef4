"""The question of one deployment's curve, as `curve` and `report` ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchline.cli import _options
from batchline.strings import text

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchline.curve_question import Arrivals, Question

_F = TypeVar("_F", bound="Callable[..., Any]")

_NAMES = (
    "context", "isl", "osl", "reading", "step_limit", "tokens_per_user", "within", "max_batch", "concurrency", "rate",
    "arrivals", "prefix_hit_rate", "max_num_batched_tokens", "speculation",
)  # fmt: skip


def _arrivals(text: str) -> Arrivals:
    from batchline.curve_question import parse_arrivals

    return parse_arrivals(text)


def curve_options(command: _F) -> _F:
    """Add the options that ask for a curve."""
    options = [
        click.option("--context", type=_options.TOKENS, metavar="TOKENS", help=text("help.curve_context")),
        click.option("--isl", type=_options.TOKENS, metavar="TOKENS", help=text("help.curve_isl")),
        click.option("--osl", type=_options.TOKENS, metavar="TOKENS", help=text("help.curve_osl")),
        click.option("--max-batch", type=click.IntRange(min=1), help=text("help.curve_max_batch")),
        click.option("--step-limit", type=_options.DURATION, metavar="40ms", help=text("help.step_limit")),
        click.option(
            "--tokens-per-user",
            type=click.FloatRange(min=0, min_open=True),
            metavar="TOK/S",
            help=text("help.tokens_per_user"),
        ),
        click.option("--within", type=click.FloatRange(min=0), metavar="0.1", help=text("help.within")),
        click.option(
            "--reading",
            type=click.Choice(["predict", "bound", "serial"]),
            default="predict",
            show_default=True,
            help=text("help.curve_reading"),
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return _options.deployment_options(_options.profile_option(command))


def question_of(model: str, options: dict[str, Any]) -> Question:
    """Put the question that the options ask."""
    from batchline.curve_question import Question

    deployment = _options.deployment_of(model, options)
    named = {name: options[name] for name in _NAMES}
    return Question(deployment=deployment, priors=_options.priors_of(options["profile"], deployment), **named)


def serving_options(command: _F) -> _F:
    """Add the options that say how the lengths are asked for; they go with --isl and --osl."""
    options = [
        click.option("--concurrency", type=click.IntRange(min=1), help=text("help.concurrency")),
        click.option("--rate", type=_options.RATE, metavar="4/s", help=text("help.curve_rate")),
        click.option(
            "--arrivals",
            type=_options.Quantity("pattern", _arrivals),
            metavar="PATTERN",
            help=text("help.curve_arrivals"),
        ),
        click.option(
            "--prefix-hit-rate", type=click.FloatRange(0, 1), default=0.0, help=text("help.curve_prefix_hit_rate")
        ),
        click.option(
            "--max-num-batched-tokens",
            type=_options.TOKENS,
            metavar="TOKENS",
            help=text("help.curve_max_num_batched_tokens"),
        ),
        click.option("--speculation", type=_options.DRAFT, metavar="0.7,3,1ms", help=text("help.curve_speculation")),
    ]
    for option in reversed(options):
        command = option(command)
    return command
