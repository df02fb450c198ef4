"""The time of a decode step, out of gaps between tokens in which prompts of others were prefilled too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np

from batchline.errors import MeasurementError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline.measure.window import Window

__all__ = ["Batches", "Step", "batches_of", "step_of"]

_ENOUGH_INTERVALS: Final = 8
_COLLINEAR: Final = 50.0
_FLAT_BATCH: Final = 0.1  # a batch that varies less than this has no slope to be seen


@dataclass(frozen=True)
class Batches:
    """Batch over the window, and for each interval."""

    mean: float
    each: NDArray[np.float64] | None  # of an interval; nan where nothing ran
    steps: NDArray[np.float64] | None
    tokens: float
    engines: int


def batches_of(window: Window, engine: str) -> Batches:
    """Find the running batch: output tokens over engine steps where both are counted, otherwise a gauge.

    Parameters
    ----------
    window : Window
        Metrics over a stretch of time.
    engine : str
        Which engine.

    Returns
    -------
    Batches
        Its mean, and the batch of each interval.

    Raises
    ------
    MeasurementError
        Nothing ran.
    """
    tokens, steps = window.rises("output_tokens"), window.rises("steps")
    running = window.each("running")
    name = window.chosen("running")
    count = (
        1
        if name is None
        else max(len(shot.values(name.metric, name.label, name.value, window.model)) for shot in window.snapshots)
    )
    made = window.rise("output_length", "_sum") if tokens is None else float(tokens.sum())
    if engine == "llama.cpp":
        return _busy_slots(window, made or 0.0)
    if tokens is not None and steps is not None and steps.sum() > 0 and tokens.sum() > 0:
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(steps > 0, tokens / np.maximum(steps, 1), np.nan)
        return Batches(float(tokens.sum() / steps.sum()), each, steps, float(tokens.sum()), count)
    if running is None or not np.nansum(running):
        raise MeasurementError(Sentence("error.ran_nothing"), "", Sentence("error.under_load"))
    # A gauge of all engines together: the batch of one step is its share.
    each = (running[:-1] + running[1:]) / 2 / count
    return Batches(
        float(np.nanmean(running[running > 0])) / count, np.where(each > 0, each, np.nan), None, made or 0.0, count
    )


def _busy_slots(window: Window, tokens: float) -> Batches:
    steps, mean = window.each("steps"), window.each("busy_per_step")
    if steps is None or mean is None or steps[-1] <= steps[0]:
        raise MeasurementError(Sentence("error.ran_nothing"), "", Sentence("error.under_load"))
    # The server gives the mean since its start; times the calls it is a counter.
    busy, calls = np.diff(np.nan_to_num(steps * mean)), np.diff(steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(calls > 0, busy / np.maximum(calls, 1), np.nan)
    return Batches(float(busy.sum() / calls.sum()), each, calls, tokens, 1)


@dataclass(frozen=True)
class Step:
    """Time of a decode step, the range it lies in, how it was found, and what adds to it.

    Parameters
    ----------
    t, low, high : float or None
        The step and its range [s].
    method : str
        How it was found.
    mean : float or None
        Mean gap between tokens, prefill included [s].
    slope : float or None
        What one more sequence adds [s/sequence].
    per_token : float or None
        What one more prefilled token adds [s/token].
    prefill_share : float or None
        Share of the mean gap that goes to prefill [-].
    """

    t: float | None = None
    low: float | None = None
    high: float | None = None
    method: str = ""
    mean: float | None = None
    slope: float | None = None
    per_token: float | None = None
    prefill_share: float | None = None


def step_of(window: Window, batches: Batches) -> Step:
    """Find the time of a decode step without prefill, by the best way that the metrics allow.

    Parameters
    ----------
    window : Window
        Metrics over a stretch of time.
    batches : Batches
        Running batch in it.

    Returns
    -------
    Step
        Its `t` is None when the metrics cannot tell it from prefill.
    """
    apart = window.ratio("step")
    if apart is not None:
        return Step(
            apart,
            apart,
            apart,
            "t_step = mean duration of a decode step; the engine counts prefill apart",
            window.ratio("itl") or apart,
            prefill_share=_share_apart(window),
        )
    now = _step_now(window)
    if now is not None:
        return now
    mean = window.ratio("itl")
    spent, made = window.rise("decode_s"), window.rise("output_tokens")
    if mean is None and spent and made:
        mean = spent / made
    if mean is None:
        return Step()
    return _regressed(window, batches, mean) or _trimmed(window, mean) or _bounded(window, batches, mean)


def _share_apart(window: Window) -> float | None:
    decode, prefill = window.rise("step", "_sum"), window.rise("prefill_step", "_sum")
    return prefill / (prefill + decode) if prefill is not None and decode else None


def _step_now(window: Window) -> Step | None:
    """Take the latest iteration of every scrape in which no prompt was prefilled."""
    latest, prefilling = window.each("step_now", total=False), window.each("prefilling")
    if latest is None:
        return None
    chosen = latest > 0 if prefilling is None else (latest > 0) & (np.nan_to_num(prefilling) == 0)
    if not chosen.any():
        return Step(mean=window.ratio("itl"))
    found = latest[chosen]
    low, high = np.quantile(found, [0.1, 0.9])
    return Step(
        float(median(found)),
        float(low),
        float(high),
        f"t_step = median of the latest iteration in {len(found)} scrapes without prefill",
        window.ratio("itl"),
    )


def _intervals(window: Window, batches: Batches) -> tuple[NDArray[np.float64], ...] | None:
    """Mean gap, batch, prefilled tokens of a step and weight of each interval."""
    count, added = window.rises("itl", "_count"), window.rises("itl", "_sum")
    if count is None or added is None:
        count, added = window.rises("output_tokens"), window.rises("decode_s")
    prompts = window.rises("prompt_tokens")
    if count is None or added is None or prompts is None or batches.each is None:
        return None
    steps = batches.steps if batches.steps is not None else count / np.where(batches.each > 0, batches.each, np.nan)
    good = (count > 0) & np.isfinite(batches.each) & (batches.each > 0) & np.isfinite(steps) & (steps > 0)
    if good.sum() < _ENOUGH_INTERVALS:
        return None
    return added[good] / count[good], batches.each[good], prompts[good] / steps[good], count[good]


def _regressed(window: Window, batches: Batches, mean: float) -> Step | None:
    """Regress the gap on the batch and the prefilled tokens; all coefficients are at least 0."""
    rows = _intervals(window, batches)
    if rows is None:
        return None
    from scipy.optimize import nnls  # noqa: PLC0415 - only here

    gap, batch, prefill, count = rows
    weight = np.sqrt(count / count.sum())
    sloped = float(np.std(batch)) > _FLAT_BATCH * float(np.mean(batch))
    columns = [np.ones_like(gap), batch] if sloped else [np.ones_like(gap)]
    if prefill.any():
        columns.append(prefill)
    matrix = np.column_stack(columns)
    scale = matrix.max(axis=0)
    scaled = matrix / scale * weight[:, None]
    if np.linalg.cond(scaled) > _COLLINEAR:
        return None  # a steady share of prefill looks like a longer step
    found = nnls(scaled, gap * weight)[0] / scale
    slope = float(found[1]) if sloped else None
    t = float(found[0] + (slope or 0.0) * batches.mean)
    residual = math.sqrt(float(np.average((gap - matrix @ found) ** 2, weights=count)))
    error = residual / math.sqrt(max(1, len(gap) - matrix.shape[1]))
    if t <= 0 or not math.isfinite(t):
        return None
    per_token = float(found[-1]) if prefill.any() else None
    share = (per_token or 0.0) * float(np.average(prefill, weights=count)) / mean
    method = f"t_step = mean gap regressed on batch and prefilled tokens over {len(gap)} intervals, without prefill"
    return Step(t, max(0.0, t - 2 * error), t + 2 * error, method, mean, slope, per_token, share)


def _trimmed(window: Window, mean: float) -> Step | None:
    """Cut the gaps beyond twice the median off: those held a prefill."""
    found, added, count = window.buckets("itl"), window.rise("itl", "_sum"), window.rise("itl", "_count")
    if found is None or not added or not count:
        return None
    edges, inside = found
    if inside.sum() < count / 2:
        return None
    lower = np.concatenate([[0.0], edges[:-1]])
    place = int(np.searchsorted(np.cumsum(inside), count / 2))
    tail = lower >= 2 * edges[min(place, len(edges) - 1)]
    kept = count - float(inside[tail].sum())
    if kept <= 0:
        return None
    upper = np.where(np.isfinite(edges), edges, 2 * lower)
    low = (added - float((inside * upper)[tail].sum())) / kept
    high = (added - float((inside * lower)[tail].sum())) / kept
    if high <= 0:
        return None
    low = min(high, max(low, float(lower[place])))
    cut = float(inside[tail].sum()) / count
    method = f"t_step = mean gap without the {cut:.1%} beyond twice the median, which held a prefill"
    t = (low + high) / 2
    return Step(t, low, high, method, mean, prefill_share=max(0.0, 1 - t / mean))


def _bounded(window: Window, batches: Batches, mean: float) -> Step:
    """Only means are known: the prefill that others waited for is between none and all of it."""
    prefill, tokens = window.rise("prefill_s"), window.rise("output_tokens")
    if prefill is None or not tokens:
        return Step(mean=mean)
    low = mean - prefill * max(0.0, batches.mean - 1) / tokens
    if low < 0.8 * mean:
        return Step(
            None, max(low, 0.0), mean, "the metrics hold means only, and prefill is in them: watch for longer", mean
        )
    return Step(
        (low + mean) / 2, low, mean, "t_step = mean time of a token, less half of what prefill can have added", mean
    )
