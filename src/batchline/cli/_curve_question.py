"""The question of one deployment's curve, as `curve` and `report` ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchline.cli import _options
from batchline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchline.sweep import Curve

_F = TypeVar("_F", bound="Callable[..., Any]")


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


def curve_of(model: str, options: dict[str, Any]) -> tuple[Curve, dict[str, Any] | None]:
    """Answer the question: the curve, and what it serves if lengths were given."""
    from batchline import sweep

    lengths = _lengths_of(options)
    deployment = _options.deployment_of(model, options)
    curve = sweep.curve(
        deployment,
        _context_of(options, lengths),
        options.get("batch"),
        reading=options["reading"],
        step_limit=_step_limit_of(options),
        within=options["within"],
        max_batch=options["max_batch"],
        priors=_options.priors_of(options["profile"], deployment),
    )
    return curve, None if lengths is None else _served(curve, *lengths)


def _lengths_of(options: dict[str, Any]) -> tuple[int, int] | None:
    isl, osl = options["isl"], options["osl"]
    if (isl is None) != (osl is None):
        raise InputError("--isl and --osl go together.", "", "Give both, like --isl 1k --osl 1k.")
    if isl is None:
        return None
    if isl < 1 or osl < 1:
        raise InputError(f"A request has 1 or more tokens in and out, got {isl} and {osl}.")
    return isl, osl


def _context_of(options: dict[str, Any], lengths: tuple[int, int] | None) -> float:
    if options["context"] is not None:
        return float(options["context"])
    return 4096.0 if lengths is None else lengths[0] + lengths[1] / 2


def _served(curve: Curve, isl: int, osl: int) -> dict[str, Any]:
    from batchline import readings

    state = readings.steady(curve.deployment, isl, osl, curve.optimum.batch, priors=curve.priors)
    return {
        "isl": isl,
        "osl": osl,
        "concurrency": curve.optimum.batch,
        "running_batch": float(state.running_batch),
        "tpot_s": float(state.tpot_s),
        "ttft_s": float(state.ttft_s),
        "e2e_s": float(state.e2e_s),
        "requests_per_s": float(state.requests_per_s),
        "output_tokens_per_s": float(state.output_tokens_per_s),
        "saturated_by": state.saturated_by,
    }


def _step_limit_of(options: dict[str, Any]) -> float | None:
    limits = [options["step_limit"], 1 / options["tokens_per_user"] if options["tokens_per_user"] else None]
    return min((limit for limit in limits if limit is not None), default=None)
