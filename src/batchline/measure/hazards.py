"""Ways in which a measured point misleads, each with its evidence and what follows from it.

A hazard that excludes keeps its point out of a fit unless the user overrules it by name; the point is shown either way.
Limits are where the effect is larger than the 5% by which repeated runs differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from batchline import readings
from batchline.errors import UnknownNameError
from batchline.strings import Sentence
from batchline.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from batchline.deployment import Deployment
    from batchline.measure.point import MeasuredPoint

__all__ = ["NAMES", "Hazard", "bounds", "inspect", "usable"]

NAMES: Final = (
    "faster_than_bound",
    "little",
    "tokenizer",
    "chunks",
    "speculative",
    "disaggregated",
    "prefix_cache",
    "ramp_up",
    "too_few",
    "concurrency_not_reached",
    "prefill_dominated",
    "noisy",
    "failed",
    "non_monotone",
)
"""Every hazard; what follows from each is in data/strings/hazard.toml."""


@dataclass(frozen=True, slots=True)
class Hazard:
    """One way in which a point misleads.

    Parameters
    ----------
    name : str
        One of `NAMES`.
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
        return Sentence(f"hazard.{self.name}")

    def __str__(self) -> str:
        return self.told()

    def told(self, language: str = "en") -> str:
        """Say name, evidence and consequence.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            Two sentences.
        """
        fields = {"name": self.name, "evidence": self.evidence, "consequence": self.consequence}
        return Sentence("hazard.line", **fields).told(language)


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
    for name in names - {"all", *NAMES}:
        raise UnknownNameError("hazard", name, ["all", *NAMES])
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
    return _found("faster_than_bound", "faster", step=format_time(step), least=format_time(bound))


def _found(name: str, saw: str, **fields: str) -> Hazard:
    return Hazard(name, Sentence(f"hazard.saw_{saw}", **fields))


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
            rate, step = f"{point.output_tokens_per_s:,.0f}", format_time(point.t_step_s)
            return _found("little", "little_step", rate=rate, step=step, held=f"{held:.3g}")
        return None
    latency = _latency(point)
    if point.regime != "serving" or not latency or not point.requests_per_s:
        return None
    held = point.requests_per_s * latency
    flow = {"rate": f"{point.requests_per_s:.3g}", "latency": format_time(latency), "held": f"{held:.3g}"}
    if point.concurrency and held > 1.1 * point.concurrency:
        return _found("little", "little_stated", **flow, stated=f"{point.concurrency:g}")
    # Requests of unlike length: the mean of a product is not the product of the means. A third covers that.
    measured = point.mean_concurrency
    if measured and point.ttft_mean_s is not None and abs(held - measured) > measured / 3:
        return _found("little", "little_measured", **flow, measured=f"{measured:.3g}")
    return None


def _tokenizer(point: MeasuredPoint) -> Hazard | None:
    client, server = point.client_output_tokens, point.server_output_tokens
    if not client or not server or abs(client / server - 1) <= 0.02:
        return None
    evidence = Sentence("hazard.saw_tokenizer", client=f"{client:.4g}", server=f"{server:.4g}")
    return Hazard("tokenizer", evidence, excludes=False)


def _chunks(point: MeasuredPoint) -> Hazard | None:
    # 1.02 comes from a last token sent with the end of the stream; draft tokens and stream intervals give 1.5 and more.
    if point.tokens_per_chunk is None or 0.7 <= point.tokens_per_chunk <= 1.3:
        return None
    return _found("chunks", "chunks", count=f"{point.tokens_per_chunk:.2f}")


def _speculative(point: MeasuredPoint) -> Hazard | None:
    if point.speculative.casefold() in ("", "none", "false", "off"):
        return None
    return _found("speculative", "speculative", kind=point.speculative)


def _disaggregated(point: MeasuredPoint) -> Hazard | None:
    return _found("disaggregated", "disaggregated") if point.disaggregated else None


def _prefix_cache(point: MeasuredPoint) -> Hazard | None:
    if not point.cached_share or point.cached_share <= 0.1:
        return None
    evidence = Sentence("hazard.saw_prefix_cache", share=f"{point.cached_share:.0%}")
    return Hazard("prefix_cache", evidence, excludes=point.regime != "decode")


def _ramp_up(point: MeasuredPoint) -> Hazard | None:
    if point.regime != "serving" or not point.concurrency:
        return None
    if point.full_share is not None:
        if point.full_share >= 0.7:
            return None
        return _found("ramp_up", "ramp_up", concurrency=f"{point.concurrency:g}", share=f"{point.full_share:.0%}")
    if point.completed and point.completed < 3 * point.concurrency:
        count, concurrency = f"{point.completed:,}", f"{point.concurrency:g}"
        return _found("ramp_up", "ramp_up_few", count=count, concurrency=concurrency)
    return None


def _too_few(point: MeasuredPoint) -> Hazard | None:
    if point.regime == "decode":
        few = point.samples is not None and point.samples < 8
        return _found("too_few", "few_steps", count=f"{point.samples}") if few else None
    if point.completed is not None and point.completed < 10:
        return _found("too_few", "few_requests", count=f"{point.completed}")
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
    stated = f"{point.concurrency:g}"
    return _found("concurrency_not_reached", "not_reached", flying=f"{flying:.3g}", stated=stated)


def _prefill(point: MeasuredPoint) -> Hazard | None:
    if point.regime != "serving":
        return None
    if point.isl and point.osl and point.isl > 20 * point.osl:
        return _found("prefill_dominated", "prefill_lengths", isl=f"{point.isl:,.0f}", osl=f"{point.osl:,.0f}")
    ttft, tpot = point.ttft_mean_s or point.ttft_s, point.tpot_mean_s or point.tpot_s
    if ttft and tpot and point.osl:
        decoding = (point.osl - 1) * tpot / (ttft + (point.osl - 1) * tpot)
        if decoding < 0.5:
            return _found("prefill_dominated", "prefill_share", share=f"{decoding:.0%}")
    plain = point.tokens_per_chunk is not None and not _chunks(point)
    if plain and point.itl_s and point.tpot_mean_s and point.tpot_mean_s > 1.5 * point.itl_s:
        mean, gap = format_time(point.tpot_mean_s), format_time(point.itl_s)
        return _found("prefill_dominated", "prefill_gap", tpot=mean, gap=gap)
    return None


def _noisy(point: MeasuredPoint) -> Hazard | None:
    # Requests of unlike length and place in the queue differ more than repeats of one burst.
    if point.spread is None or point.spread <= (0.5 if point.regime == "serving" else 0.3):
        return None
    return _found("noisy", "noisy", share=f"{point.spread:.0%}")


def _failed(point: MeasuredPoint) -> Hazard | None:
    if not point.failed or not point.completed or point.failed <= 0.01 * (point.completed + point.failed):
        return None
    share = point.failed / (point.completed + point.failed)
    failed, sent = f"{point.failed:,}", f"{point.completed + point.failed:,}"
    return Hazard("failed", Sentence("hazard.saw_failed", failed=failed, all=sent), excludes=share > 0.05)


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
            mean, clean_step = format_time(point.tpot_mean_s), format_time(other.t_step_s)
            return _found("prefill_dominated", "prefill_step", tpot=mean, step=clean_step)
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
    at = {"step": format_time(step), "size": f"{_size(own):g}"}
    if not rivals:
        return _found("non_monotone", "order", **at)
    rival = {"other": format_time(rivals[0].step_s or 0.0), "rival": f"{_size(rivals[0]):g}"}
    return _found("non_monotone", "order_rival", **at, **rival)
