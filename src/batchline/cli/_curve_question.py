"""The question of one deployment's curve, as `curve` and `report` ask it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchline.cli import _options
from batchline.errors import InputError
from batchline.strings import Sentence

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
    return curve, None if lengths is None else _served(curve, *lengths, options)


def _lengths_of(options: dict[str, Any]) -> tuple[int, int] | None:
    isl, osl = options["isl"], options["osl"]
    if (isl is None) != (osl is None):
        raise InputError(Sentence("error.lengths_together"), "", Sentence("error.give_lengths"))
    if isl is None:
        return None
    if isl < 1 or osl < 1:
        raise InputError(Sentence("error.lengths_from_1", isl=f"{isl}", osl=f"{osl}"))
    return isl, osl


def _context_of(options: dict[str, Any], lengths: tuple[int, int] | None) -> float:
    if options["context"] is not None:
        return float(options["context"])
    return 4096.0 if lengths is None else lengths[0] + lengths[1] / 2


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
            type=_ARRIVALS,
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


def _pattern(text: str) -> tuple[str, float]:
    """How requests come: "rate" with the squared variation of gaps, "clients" with their clumping, or "batch"."""
    known = {
        "poisson": ("rate", 1.0),
        "even": ("rate", 0.0),
        "one-by-one": ("clients", 0.0),
        "together": ("clients", 1.0),
        "batch": ("batch", 0.0),
    }
    folded = text.strip().casefold()
    if folded in known:
        return known[folded]
    try:
        variation = float(folded.removeprefix("cv:"))
    except ValueError:
        variation = -1.0
    if not (folded.startswith("cv:") and 0 <= variation < 1e3):
        raise InputError(f"{text!r} is no pattern of arrivals.", f"Known: {', '.join(known)} and cv:2.")
    return "rate", variation**2


_ARRIVALS = _options.Quantity("pattern", _pattern)


def _served(curve: Curve, isl: int, osl: int, options: dict[str, Any]) -> dict[str, Any]:
    from batchline import prior, readings, serving

    kind, amount = options.get("arrivals") or (None, 0.0)
    rate, clients = options.get("rate"), options.get("concurrency")
    if rate is not None and clients is not None:
        raise InputError("Requests come from clients or at a rate.", "", "Give one of --concurrency and --rate.")
    if kind is not None and (kind == "rate") != (rate is not None):
        raise InputError("The pattern of arrivals is not one of this load.", "--rate: poisson, even, cv:2.",
                         "Without a rate: one-by-one, together, batch.")  # fmt: skip
    most = clients or curve.optimum.batch
    load: dict[str, Any] = {"concurrency": most}
    if rate is not None:
        load = {"rate": rate, "arrival_scv": amount if kind else 1.0}
    elif kind == "batch":
        load = {"batch": most}
    elif kind == "clients":
        load["arrival_clumping"] = amount
    draft = options.get("speculation")
    state = readings.steady(
        curve.deployment,
        isl,
        osl,
        **load,
        max_num_seqs=options.get("max_batch") or math.inf,
        max_num_batched_tokens=options.get("max_num_batched_tokens"),
        prefix_hit_rate=options.get("prefix_hit_rate") or 0.0,
        speculation=draft,
        priors=curve.priors,
    )
    found = {
        "isl": isl,
        "osl": osl,
        **({"rate": rate} if rate is not None else {"concurrency": most}),
        **state.to_dict(),
    }
    if draft is not None:
        ideal = readings.ideal_of(curve.deployment, isl + osl / 2, isl)
        known = (curve.priors or prior.load()).coefficients(readings.case_of(curve.deployment))
        found["tokens_per_step"] = float(serving.tokens_per_step(draft))
        found["break_even_batch"] = serving.break_even_batch(ideal, known, draft)
    return found


def _step_limit_of(options: dict[str, Any]) -> float | None:
    limits = [options["step_limit"], 1 / options["tokens_per_user"] if options["tokens_per_user"] else None]
    return min((limit for limit in limits if limit is not None), default=None)
