"""The question of one deployment's curve, as `curve` and `report` ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchline.cli import _options

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
        click.option(
            "--context",
            type=_options.TOKENS,
            metavar="TOKENS",
            help="Mean context of a sequence.  [default: isl + osl / 2 if given, else 4k]",
        ),
        click.option(
            "--isl", type=_options.TOKENS, metavar="TOKENS", help="Input length: adds prefill, TTFT and throughput."
        ),
        click.option("--osl", type=_options.TOKENS, metavar="TOKENS", help="Output length; goes with --isl."),
        click.option(
            "--max-batch", type=click.IntRange(min=1), help="Largest batch allowed (an engine's max_num_seqs)."
        ),
        click.option("--step-limit", type=_options.DURATION, metavar="40ms", help="Longest time per token allowed."),
        click.option(
            "--tokens-per-user",
            type=click.FloatRange(min=0, min_open=True),
            metavar="TOK/S",
            help="Least speed of a user allowed.",
        ),
        click.option(
            "--within",
            type=click.FloatRange(min=0),
            metavar="0.1",
            help="Take the smallest batch whose cost is this near to its floor.",
        ),
        click.option(
            "--reading",
            type=click.Choice(["predict", "bound", "serial"]),
            default="predict",
            show_default=True,
            help="predict: what a real engine shows; bound: the article's floor; serial: attention and FFN in turn.",
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
        click.option(
            "--concurrency",
            type=click.IntRange(min=1),
            help="Requests that clients keep in flight.  [default: the batch]",
        ),
        click.option("--rate", type=_options.RATE, metavar="4/s", help="Requests that arrive, instead of clients."),
        click.option(
            "--arrivals",
            type=_options.Quantity("pattern", _arrivals),
            metavar="PATTERN",
            help="poisson, even or cv:2 for a rate; one-by-one, together or batch for clients.",
        ),
        click.option(
            "--prefix-hit-rate", type=click.FloatRange(0, 1), default=0.0, help="Share of a prompt in the cache."
        ),
        click.option(
            "--max-num-batched-tokens", type=_options.TOKENS, metavar="TOKENS", help="Chunked-prefill budget of a step."
        ),
        click.option(
            "--speculation",
            type=_options.DRAFT,
            metavar="0.7,3,1ms",
            help="Acceptance, drafted tokens, time to draft one.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command
