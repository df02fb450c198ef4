"""Ways in which a measured point misleads, each with its evidence and what follows from it.

A hazard that excludes keeps its point out of a fit unless the user overrules it by name; the point is shown either way.
Limits are where the effect is larger than the 5% by which repeated runs differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from batchline import readings
from batchline.errors import UnknownNameError
from batchline.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from batchline.deployment import Deployment
    from batchline.measure.point import MeasuredPoint

__all__ = ["CONSEQUENCES", "Hazard", "bounds", "inspect", "usable"]

CONSEQUENCES: Final = {
    "faster_than_bound": "No engine can do that: another model, format or accelerator, skipped work, or a wrong unit.",
    "little": "Latency, throughput and concurrency cannot all be true (Little's law): one counts something else.",
    "tokenizer": "Rates and TPOT by the client's tokenizer are wrong; the server's count was taken.",
    "chunks": "A stream event is not a token: ITL is not TPOT, and with speculative decoding TPOT is no step.",
    "speculative": "Several tokens come out of one step: TPOT is not the time of a step.",
    "disaggregated": "Prefill ran on other devices: nothing delays decode steps; the devices are no one deployment.",
    "prefix_cache": "Prompts were not prefilled: TTFT and the delay by other prompts are too small.",
    "ramp_up": "Much of the run had fewer requests in flight: throughput and TPOT belong to a smaller batch.",
    "too_few": "The figure rests on too few requests or steps: it may be off by more than a fit would correct.",
    "concurrency_not_reached": "The batch was smaller than stated: the client or a rate was the limit, not the engine.",
    "prefill_dominated": "Tokens waited for the prompts of others: TPOT says more about prefill than about decoding.",
    "noisy": "Repeats differ too much for a fit: something else used the machine.",
    "failed": "Requests failed: those that were left had a smaller batch than stated.",
    "non_monotone": "A larger batch was faster, which a step cannot be: a row was disturbed or is labelled wrongly.",
}


@dataclass(frozen=True, slots=True)
class Hazard:
    """One way in which a point misleads.

    Parameters
    ----------
    name : str
        A key of `CONSEQUENCES`.
    evidence : str
        The numbers that show it.
    excludes : bool
        Whether the point stays out of a fit unless overruled.
    """

    name: str
    evidence: str
    excludes: bool = True

    @property
    def consequence(self) -> str:
        """What follows from it."""
        return CONSEQUENCES[self.name]

    def __str__(self) -> str:
        return f"{self.name}: {self.evidence}. {self.consequence}"


def bounds(points: Sequence[MeasuredPoint], deployment: Deployment) -> list[float | None]:
    """Shortest step that the hardware allows at each point: the article's floor.

    Parameters
    ----------
    points : sequence of MeasuredPoint
        Points, of one or several sources.
    deployment : Deployment
        What they are said to be measured on.

    Returns
    -------
    list of float or None
        For `inspect` and `usable` [s]; None where a point has no context. The batch of a served point is not known
        exactly: one sequence is the least that there can be.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> from batchline.measure import MeasuredPoint
    >>> point = MeasuredPoint(regime="decode", batch=128, context=2048, t_step_s=0.004)
    >>> (bound,) = bounds([point], Deployment.of("llama-3.1-8b", "h100"))
    >>> f"{bound * 1e3:.2f} ms"
    '14.74 ms'
    """
    found: list[float | None] = []
    for point in points:
        context = point.context
        if context is None and point.isl and point.osl:
            context = point.isl + point.osl / 2
        if context is None:
            found.append(None)
            continue
        batch = (point.batch or 1.0) if point.regime == "decode" else 1.0
        found.append(float(readings.steps(deployment, context, max(batch, 1.0), "bound").t_step[0]))
    return found


def inspect(
    points: Sequence[MeasuredPoint], bounds_s: Sequence[float | None] | None = None
) -> list[tuple[Hazard, ...]]:
    """Find what is wrong with each point.

    Parameters
    ----------
    points : sequence of MeasuredPoint
        Points, of one or several sources.
    bounds_s : sequence of float or None, optional
        As `bounds` gives them [s]; None where one is not known.

    Returns
    -------
    list of tuple of Hazard
        One tuple for each point, empty where nothing was found.

    Raises
    ------
    ValueError
        `bounds_s` has another length than `points`.

    Examples
    --------
    >>> from batchline.measure import MeasuredPoint
    >>> point = MeasuredPoint(regime="decode", batch=8, context=1024, t_step_s=0.004)
    >>> inspect([point], [0.0104])[0][0].evidence
    'a step of 4.00 ms, and 10.4 ms is the least'
    """
    least = [None] * len(points) if bounds_s is None else list(bounds_s)
    if len(least) != len(points):
        raise ValueError(f"{len(points)} points but {len(least)} bounds")
    clean = [point for point in points if point.regime == "decode" and point.t_step_s]
    falling = _falling(points)
    found: list[tuple[Hazard, ...]] = []
    for index, (point, bound) in enumerate(zip(points, least, strict=True)):
        hazards = [
            _faster(point, bound),
            *(rule(point) for rule in _RULES),
            _against_clean(point, clean),
            falling.get(index),
        ]
        found.append(tuple(hazard for hazard in hazards if hazard))
    return found


def usable(
    points: Sequence[MeasuredPoint],
    bounds_s: Sequence[float | None] | None = None,
    *,
    overrule: Iterable[str] = (),
) -> list[MeasuredPoint]:
    """Keep the points that a fit should see.

    Parameters
    ----------
    points : sequence of MeasuredPoint
        All points.
    bounds_s : sequence of float or None, optional
        As in `inspect` [s].
    overrule : iterable of str
        Names of hazards that shall not exclude; "all" for every one.

    Returns
    -------
    list of MeasuredPoint
        Points without an excluding hazard.

    Raises
    ------
    UnknownNameError
        A name in `overrule` is no hazard.
    """
    names = set(overrule)
    for name in names - {"all", *CONSEQUENCES}:
        raise UnknownNameError("hazard", name, ["all", *CONSEQUENCES])
    if "all" in names:
        return list(points)
    found = inspect(points, bounds_s)
    return [
        point
        for point, hazards in zip(points, found, strict=True)
        if not any(hazard.excludes and hazard.name not in names for hazard in hazards)
    ]


def _faster(point: MeasuredPoint, bound: float | None) -> Hazard | None:
    step = point.step_s
    if bound is None or step is None or step >= bound or point.regime == "prefill":
        return None
    return Hazard("faster_than_bound", f"a step of {format_time(step)}, and {format_time(bound)} is the least")


def _latency(point: MeasuredPoint) -> float | None:
    """Mean time of a request, of TTFT and TPOT."""
    tpot = point.tpot_mean_s or point.tpot_s
    if not tpot or not point.osl:
        return None
    return (point.ttft_mean_s or point.ttft_s or 0.0) + (point.osl - 1) * tpot


def _little(point: MeasuredPoint) -> Hazard | None:
    if point.regime == "decode" and point.t_step_s and point.batch and point.output_tokens_per_s:
        held = point.output_tokens_per_s * point.t_step_s
        if held > 1.1 * point.batch:
            return Hazard(
                "little",
                f"{point.output_tokens_per_s:,.0f} tok/s at {format_time(point.t_step_s)} need {held:.3g} sequences",
            )
        return None
    latency = _latency(point)
    if point.regime != "serving" or not latency or not point.requests_per_s:
        return None
    held = point.requests_per_s * latency
    text = f"{point.requests_per_s:.3g} requests/s of {format_time(latency)} are {held:.3g} in flight"
    if point.concurrency and held > 1.1 * point.concurrency:
        return Hazard("little", f"{text}, more than the {point.concurrency:g} stated")
    # Requests of unlike length: the mean of a product is not the product of the means. A third covers that.
    measured = point.mean_concurrency
    if measured and point.ttft_mean_s is not None and abs(held - measured) > measured / 3:
        return Hazard("little", f"{text}, and {measured:.3g} were")
    return None


def _tokenizer(point: MeasuredPoint) -> Hazard | None:
    client, server = point.client_output_tokens, point.server_output_tokens
    if not client or not server or abs(client / server - 1) <= 0.02:
        return None
    return Hazard(
        "tokenizer", f"the client counted {client:.4g} output tokens a request, the server {server:.4g}", excludes=False
    )


def _chunks(point: MeasuredPoint) -> Hazard | None:
    # 1.02 comes from a last token sent with the end of the stream; draft tokens and stream intervals give 1.5 and more.
    if point.tokens_per_chunk is None or 0.7 <= point.tokens_per_chunk <= 1.3:
        return None
    return Hazard("chunks", f"{point.tokens_per_chunk:.2f} tokens in a stream event")


def _speculative(point: MeasuredPoint) -> Hazard | None:
    if point.speculative.casefold() in ("", "none", "false", "off"):
        return None
    return Hazard("speculative", f"speculative decoding: {point.speculative}")


def _disaggregated(point: MeasuredPoint) -> Hazard | None:
    return Hazard("disaggregated", "prefill and decode on separate devices") if point.disaggregated else None


def _prefix_cache(point: MeasuredPoint) -> Hazard | None:
    if not point.cached_share or point.cached_share <= 0.1:
        return None
    return Hazard(
        "prefix_cache",
        f"{point.cached_share:.0%} of the prompt tokens came from a cache",
        excludes=point.regime != "decode",
    )


def _ramp_up(point: MeasuredPoint) -> Hazard | None:
    if point.regime != "serving" or not point.concurrency:
        return None
    if point.full_share is not None:
        short = point.full_share < 0.7
        return (
            Hazard("ramp_up", f"{point.concurrency:g} requests were in flight in {point.full_share:.0%} of the run")
            if short
            else None
        )
    if point.completed and point.completed < 3 * point.concurrency:
        return Hazard(
            "ramp_up",
            f"{point.completed:,} requests at concurrency {point.concurrency:g}: little but filling and draining",
        )
    return None


def _too_few(point: MeasuredPoint) -> Hazard | None:
    if point.regime == "decode":
        return Hazard("too_few", f"{point.samples} steps") if point.samples is not None and point.samples < 8 else None
    if point.completed is not None and point.completed < 10:
        return Hazard("too_few", f"{point.completed} requests")
    return None


def _not_reached(point: MeasuredPoint) -> Hazard | None:
    if point.regime != "serving" or not point.concurrency or _ramp_up(point):
        return None
    flying, least = point.mean_concurrency, 0.8
    if flying is None:
        # Requests times latency says the same, less exactly where only medians are known.
        latency = _latency(point)
        flying, least = (point.requests_per_s * latency, 0.6) if latency and point.requests_per_s else (None, 0.6)
    if flying is None or flying >= least * point.concurrency:
        return None
    return Hazard("concurrency_not_reached", f"{flying:.3g} in flight, {point.concurrency:g} stated")


def _prefill(point: MeasuredPoint) -> Hazard | None:
    if point.regime != "serving":
        return None
    if point.isl and point.osl and point.isl > 20 * point.osl:
        return Hazard("prefill_dominated", f"{point.isl:,.0f} tokens in for {point.osl:,.0f} out")
    ttft, tpot = point.ttft_mean_s or point.ttft_s, point.tpot_mean_s or point.tpot_s
    if ttft and tpot and point.osl:
        decoding = (point.osl - 1) * tpot / (ttft + (point.osl - 1) * tpot)
        if decoding < 0.5:
            return Hazard(
                "prefill_dominated", f"a request decodes for {decoding:.0%} of its time and waits for the rest"
            )
    plain = point.tokens_per_chunk is not None and not _chunks(point)
    if plain and point.itl_s and point.tpot_mean_s and point.tpot_mean_s > 1.5 * point.itl_s:
        return Hazard(
            "prefill_dominated", f"mean TPOT {format_time(point.tpot_mean_s)}, median gap {format_time(point.itl_s)}"
        )
    return None


def _noisy(point: MeasuredPoint) -> Hazard | None:
    # Requests of unlike length and place in the queue differ more than repeats of one burst.
    if point.spread is None or point.spread <= (0.5 if point.regime == "serving" else 0.3):
        return None
    return Hazard("noisy", f"a spread of {point.spread:.0%}")


def _failed(point: MeasuredPoint) -> Hazard | None:
    if not point.failed or not point.completed or point.failed <= 0.01 * (point.completed + point.failed):
        return None
    share = point.failed / (point.completed + point.failed)
    return Hazard(
        "failed", f"{point.failed:,} of {point.completed + point.failed:,} requests failed", excludes=share > 0.05
    )


_RULES: Final[tuple[Callable[[MeasuredPoint], Hazard | None], ...]] = (
    _little,
    _tokenizer,
    _chunks,
    _speculative,
    _disaggregated,
    _prefix_cache,
    _ramp_up,
    _too_few,
    _not_reached,
    _prefill,
    _noisy,
    _failed,
)


def _against_clean(point: MeasuredPoint, clean: Sequence[MeasuredPoint]) -> Hazard | None:
    """Compare served TPOT with clean decode steps of the same file at about the same number of requests."""
    if point.regime != "serving" or not point.tpot_mean_s or not point.concurrency or _prefill(point):
        return None
    for other in clean:
        near = other.batch is not None and abs(other.batch / point.concurrency - 1) < 0.2
        if near and other.file == point.file and other.t_step_s and point.tpot_mean_s > 1.5 * other.t_step_s:
            return Hazard(
                "prefill_dominated",
                f"mean TPOT {format_time(point.tpot_mean_s)}, a clean step {format_time(other.t_step_s)}",
            )
    return None


def _falling(points: Sequence[MeasuredPoint]) -> dict[int, Hazard]:
    """Rows of a sweep that break its order: those outside the longest run in which a step never gets shorter."""
    found: dict[int, Hazard] = {}
    for sweep in _sweeps(points):
        kept = _longest_rise(
            [_size(points[index]) for index in sweep], [points[index].step_s or 0.0 for index in sweep]
        )
        for place, index in enumerate(sweep):
            if place not in kept:
                found[index] = _out_of_order(points, sweep, place)
        if len(sweep) == 2 and len(kept) == 1:
            found[sweep[0]] = _out_of_order(points, sweep, 0)
            found[sweep[1]] = _out_of_order(points, sweep, 1)
    return found


def _size(point: MeasuredPoint) -> float:
    return (point.concurrency if point.regime == "serving" else None) or point.batch or 0.0


_SAME: Final = ("file", "tool", "regime", "model", "accelerator", "engine", "engine_version", "weights", "kv", "count",
                "tp", "dp", "speculative")  # fmt: skip


def _sweeps(points: Sequence[MeasuredPoint]) -> list[list[int]]:
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, point in enumerate(points):
        if point.step_s and _size(point) and point.regime in ("decode", "serving"):
            key = tuple(getattr(point, name) for name in _SAME)
            groups.setdefault(key, []).append(index)
    sweeps = []
    for indices in groups.values():
        indices.sort(key=lambda index: points[index].context or 0.0)
        start = 0
        for place in range(1, len(indices) + 1):
            # Contexts within a quarter of each other are one sweep: a step hardly changes over them.
            first = points[indices[start]].context or 0.0
            if place == len(indices) or (points[indices[place]].context or 0.0) > 1.25 * first:
                sweeps.append(sorted(indices[start:place], key=lambda index: _size(points[index])))
                start = place
    return [sweep for sweep in sweeps if len(sweep) > 1]


def _longest_rise(sizes: Sequence[float], steps: Sequence[float]) -> set[int]:
    best: list[list[int]] = []
    for place, step in enumerate(steps):
        before = [
            run for other, run in enumerate(best) if step >= 0.95 * steps[other] or sizes[place] < 1.05 * sizes[other]
        ]
        longest: list[int] = max(before, key=len, default=[])
        best.append([*longest, place])
    whole: list[int] = max(best, key=len)
    return set(whole)


def _out_of_order(points: Sequence[MeasuredPoint], sweep: Sequence[int], place: int) -> Hazard:
    own = points[sweep[place]]
    step = own.step_s or 0.0
    rivals = [points[other] for other in sweep[:place] if (points[other].step_s or 0.0) > step / 0.95]
    rivals += [points[other] for other in sweep[place + 1 :] if (points[other].step_s or 0.0) < 0.95 * step]
    text = f"{format_time(step)} at {_size(own):g}"
    if rivals:
        text += f", {format_time(rivals[0].step_s or 0.0)} at {_size(rivals[0]):g}"
    return Hazard("non_monotone", text)
