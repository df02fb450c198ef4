"""The most load that keeps the promises, and the batch that a load leads to: searches over the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.errors import UnknownNameError
from batchline.goodput.promise import PROMISES
from batchline.goodput.replica import Known, point, tail_tpot_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from batchline.goodput.promise import Promise
    from batchline.goodput.replica import Point, Server
    from batchline.roofline import Floats

__all__ = ["Limit", "at_load", "batch_for", "ceiling", "goodput", "keeps_alone", "largest"]

_HALVINGS = 30  # to a hundred-thousandth of a sequence
_AT_ONCE = 16_384  # numbers for which numpy's work outweighs the call
_COARSE = 7
_TURNS = 13  # to ten digits where a step grows evenly


@dataclass(frozen=True, slots=True)
class Limit:
    """Most load that keeps the promises.

    Parameters
    ----------
    point : Point
        What the replica shows there.
    keeps : array of bool
        Whether any load keeps them.
    saturated_by : array of str
        What stops more: "step_limit" (a token takes as long as promised), "kv", "max_num_seqs", "prefill".
    slots : float or array
        Sequences that the engine should be allowed [sequence].
    """

    point: Point
    keeps: Any
    saturated_by: Any
    slots: Floats


@dataclass(frozen=True, slots=True)
class _Slots:
    """Sequences that may be: as many as fit, and so many that a full table keeps the promise on TPOT by itself.

    alone, at_full, at_narrow: time per output token of one, of all that fit, and of that limit [s].
    """

    full: NDArray[np.float64]
    narrow: NDArray[np.float64]
    alone: Floats
    at_full: Floats
    at_narrow: Floats


def _slots_of(server: Server, promises: Mapping[str, Promise]) -> _Slots:
    dp = np.asarray(server.ideal.dp, dtype=float)
    full = np.asarray(server.slots, dtype=float)
    full = np.broadcast_to(full, np.shape(server.tpot_s(dp) + full))
    narrow = np.minimum(dp * _widest(server, promises.get("tpot"), full / dp), full)
    alone, at_full, at_narrow = (server.tpot_s(seen) for seen in (dp, np.maximum(full, dp), np.maximum(narrow, dp)))
    return _Slots(full, narrow, alone, at_full, at_narrow)


def _shown(server: Server, batch: Floats, promises: Mapping[str, Promise], slots: _Slots) -> Point:
    """What is shown with all slots while the tail of TPOT keeps the promise by itself, else with only so many."""
    pace, promised = server.load.pace(batch, slots.alone), promises.get("tpot")
    if promised is None:
        return point(server, batch, slots.full, promises, Known(pace, slots.at_full))
    tail = tail_tpot_s(server, batch, pace, promised.z)
    wide = np.minimum(tail, np.maximum(slots.at_full, pace.tpot_s)) <= promised.seconds
    known = Known(pace, np.where(wide, slots.at_full, slots.at_narrow))
    return point(server, batch, np.where(wide, slots.full, slots.narrow), promises, known)


def at_load(server: Server, load: Floats, promises: Mapping[str, Promise]) -> tuple[Point, NDArray[np.bool_]]:
    """What a replica shows at a load, with the limit on the batch that suits its promises there.

    Parameters
    ----------
    server : Server
        One replica, or arrays of them.
    load : float or array
        Requests that arrive [1/s].
    promises : mapping of str to Promise
        By name: "ttft", "tpot", "itl", "e2e".

    Returns
    -------
    Point
        Times and the limit on the batch.
    array of bool
        Whether the load is carried and the promises are kept.

    Examples
    --------
    >>> from batchline.goodput import Promise, Server
    >>> from batchline.step import Coefficients, ideal
    >>> one = ideal(weight_bytes=15e9, kv_read_bytes=1536 * 131072, active_params=7.5e9, layers=32, bandwidth=3.35e12,
    ...             flops=989e12, flops_bf16=989e12)
    >>> server = Server(one, Coefficients(layer_overhead=40e-6), isl=1024, osl=1024, capacity_batch=300)
    >>> asked = {"tpot": Promise.parse("p99:10ms"), "ttft": Promise.parse("p95:1s")}
    >>> [bool(at_load(server, load, asked)[1]) for load in (1.0, 3.9, 4.1)]
    [True, True, False]
    """
    slots = _slots_of(server, promises)
    batch = batch_for(server, load, slots.full)
    there = _shown(server, batch, promises, slots)
    kept = np.asarray((slots.narrow >= server.ideal.dp) & _kept(there, promises))
    return there, kept & np.asarray(there.requests_per_s >= load * (1.0 - 1e-4))


def keeps_alone(server: Server, promises: Mapping[str, Promise]) -> NDArray[np.bool_]:
    """Whether a replica keeps its promises for a single request.

    Parameters
    ----------
    server : Server
        One replica, or arrays of them.
    promises : mapping of str to Promise
        By name: "ttft", "tpot", "itl", "e2e".

    Returns
    -------
    array of bool
        Whether any load keeps them.
    """
    slots = _slots_of(server, promises)
    alone = _shown(server, 1e-6 * np.maximum(slots.full, 1.0), promises, slots)
    return np.asarray((slots.narrow >= server.ideal.dp) & _kept(alone, promises))


def ceiling(server: Server, promises: Mapping[str, Promise]) -> NDArray[np.float64]:
    """Load that a replica surely does not pass: it counts memory and the mean time per token, and no wait.

    Parameters
    ----------
    server : Server
        One replica, or arrays of them.
    promises : mapping of str to Promise
        By name; of them "tpot" counts, where it is of the mean or of a percentile above the middle.

    Returns
    -------
    array
        Requests [1/s]; `goodput` finds no more.

    Examples
    --------
    >>> from batchline.goodput import Promise, Server
    >>> from batchline.step import Coefficients, ideal
    >>> one = ideal(weight_bytes=15e9, kv_read_bytes=1536 * 131072, active_params=7.5e9, layers=32, bandwidth=3.35e12,
    ...             flops=989e12, flops_bf16=989e12)
    >>> server = Server(one, Coefficients(layer_overhead=40e-6), isl=1024, osl=1024, capacity_batch=300)
    >>> asked = {"tpot": Promise.parse("p99:10ms"), "ttft": Promise.parse("p95:1s")}
    >>> bool(ceiling(server, asked) >= goodput(server, asked).point.requests_per_s)
    True
    """
    high = np.maximum(np.asarray(server.slots, dtype=float), 0.0)
    low, promise = np.zeros_like(high), promises.get("tpot")
    if promise is not None and promise.z >= 0.0:
        for _ in range(_COARSE):  # whatever is between them, the upper end is never passed
            middle = (low + high) / 2.0
            keeps = np.asarray(server.load.pace(middle, 0.0).tpot_s <= promise.seconds)
            low, high = np.where(keeps, middle, low), np.where(keeps, high, middle)
    return np.asarray(server.load.pace(high, 0.0).requests_per_s)


def _kept(there: Point, promises: Mapping[str, Promise]) -> NDArray[np.bool_]:
    kept = np.asarray(np.isfinite(there.ttft_s) & (there.batch < there.slots))
    for name, promise in promises.items():
        kept = kept & np.asarray(there.kept[name] <= promise.seconds * (1.0 + 1e-9))
    return kept


def goodput(server: Server, promises: Mapping[str, Promise]) -> Limit:
    """Find the most load at which a replica keeps its promises.

    Parameters
    ----------
    server : Server
        One replica, or arrays of them.
    promises : mapping of str to Promise
        By name: "ttft", "tpot", "itl", "e2e".

    Returns
    -------
    Limit
        The load, what is shown there, and what stops more.

    Raises
    ------
    UnknownNameError
        There is no such promise.

    Notes
    -----
    A limit on the sequences protects TPOT: others wait, which TTFT pays. The widest limit that keeps the promise on
    TPOT is best for TTFT, so it is found first, as a whole number for each rank; then the load, by halving: all times
    grow with it.

    Examples
    --------
    >>> from batchline.goodput import Promise, Server
    >>> from batchline.step import Coefficients, ideal
    >>> one = ideal(weight_bytes=15e9, kv_read_bytes=1536 * 131072, active_params=7.5e9, layers=32, bandwidth=3.35e12,
    ...             flops=989e12, flops_bf16=989e12)
    >>> server = Server(one, Coefficients(layer_overhead=40e-6), isl=1024, osl=1024, capacity_batch=300)
    >>> found = goodput(server, {"tpot": Promise.parse("p99:10ms"), "ttft": Promise.parse("p95:1s")})
    >>> round(float(found.point.requests_per_s), 2), str(found.saturated_by), int(found.slots)
    (4.0, 'step_limit', 47)
    """
    for name in promises:
        if name not in PROMISES:
            raise UnknownNameError("promise", name, PROMISES)
    slots = _slots_of(server, promises)
    keeps = slots.narrow >= np.asarray(server.ideal.dp)

    def show(batch: Floats) -> Point:
        return _shown(server, batch, promises, slots)

    def keeps_at(batch: Floats) -> NDArray[np.bool_]:
        return _kept(show(batch), promises)

    high = np.maximum(np.where(keeps, slots.full, 1.0), 1e-9)
    batch = largest(keeps_at, high)
    keeps = keeps & keeps_at(np.minimum(batch, 1e-6 * high))
    best = show(batch)
    after = show(np.minimum(batch * 1.02 + 1e-9, high))  # a hair beyond: what breaks there stops more
    return Limit(point=best, keeps=keeps, saturated_by=_broken(server, after, promises, slots.full), slots=best.slots)


def _broken(
    server: Server, after: Point, promises: Mapping[str, Promise], full: NDArray[np.float64]
) -> NDArray[np.str_]:
    """What a replica lacks at a load beyond its limit."""
    slow_token = np.zeros(np.shape(full), dtype=bool)
    for name in promises.keys() & {"tpot", "itl", "e2e"}:
        slow_token |= np.asarray(after.kept[name] > promises[name].seconds)
    in_cache = np.asarray(server.capacity_batch) <= np.asarray(server.max_batch) * server.ideal.dp
    held = np.where(np.asarray(after.slots) < full, "step_limit", np.where(in_cache, "kv", "max_num_seqs"))
    full_table = np.asarray((after.slot_wait_s > after.prompt_wait_s) | (after.batch >= after.slots))
    return np.where(slow_token, "step_limit", np.where(full_table, held, "prefill"))


def _widest(server: Server, promise: Promise | None, most: NDArray[np.float64]) -> Floats:
    """Most sequences of a rank with which a token still takes no longer than promised, as whole numbers."""
    dp = np.asarray(server.ideal.dp, dtype=float)
    limit = np.floor(np.minimum(most, 2.0**31))
    if promise is None:
        return limit
    low, high = np.zeros_like(limit), limit + 1.0
    for _ in range(32):
        if np.all(high - low <= 1.0):
            break
        middle = np.floor((low + high) / 2.0)
        keeps = np.asarray(server.tpot_s(dp * middle) <= promise.seconds * (1.0 + 1e-9)) & (middle >= 1.0)
        low, high = np.where(keeps, middle, low), np.where(keeps, high, middle)
    return low


def largest(keeps: Callable[[Floats], NDArray[np.bool_]], high: Floats) -> NDArray[np.float64]:
    """Find the largest batch that keeps the promises, by halving; few rows take several halves at once.

    Parameters
    ----------
    keeps : callable
        Whether a batch, given as array or arrays of them along the first axis [sequence], keeps them; a batch that
        does is followed by none that does not.
    high : float or array
        More than the batch can be [sequence].

    Returns
    -------
    array
        Batch between 0 and `high`, to a thirtieth halving [sequence].

    Examples
    --------
    >>> round(float(largest(lambda batch: np.asarray(batch <= 3.0), 8.0)), 6)
    3.0
    """
    upper = np.array(high, dtype=float)
    lower = np.zeros_like(upper)
    bits = int(np.clip(np.log2(1.0 + _AT_ONCE / max(1, upper.size)), 1, 5))
    parts = 2**bits
    shares = (np.arange(1, parts) / parts).reshape(-1, *(1,) * upper.ndim)
    for _ in range(math.ceil(_HALVINGS / bits)):
        width = upper - lower
        good = keeps(lower + shares * width)
        first_bad = np.where(good.all(axis=0), parts - 1, np.argmin(good, axis=0))
        lower, upper = lower + width * first_bad / parts, lower + width * (first_bad + 1) / parts
    return lower


def batch_for(server: Server, load: Floats, high: Floats, *, think_s: float | None = None) -> NDArray[np.float64]:
    """Sequences decoded together on average at a load.

    Parameters
    ----------
    server : Server
        One replica, or arrays of them.
    load : float or array
        Requests a second [1/s], or people when `think_s` is given [-].
    high : float or array
        More than the batch can be [sequence].
    think_s : float, optional
        Time that a person takes between an answer and the next request [s].

    Returns
    -------
    array
        Sequences [sequence]; `high` where the load cannot be carried.
    """

    def excess(batch: Floats) -> NDArray[np.float64]:
        if think_s is None:
            return np.asarray(server.load.pace(batch, 0.0).requests_per_s - load)
        shown = point(server, batch, high, {})
        return np.asarray(shown.requests_per_s * (think_s + shown.e2e_s) - load)

    # Chandrupatla's inverse quadratic interpolation or halving: the root lies between `newest` and `other` [3].
    top = np.asarray(high, dtype=float)
    newest_f = excess(top)
    newest = np.array(np.broadcast_to(top, np.shape(newest_f)))
    newest_f = np.where(np.isfinite(newest_f), newest_f, 1e300)
    full = newest_f <= 0.0
    other, other_f = np.zeros_like(newest), np.broadcast_to(-np.asarray(load, dtype=float), newest.shape).copy()
    share: Floats = 0.5
    for _ in range(_TURNS):
        between = newest + share * (other - newest)
        there = excess(between)
        there = np.where(np.isfinite(there), there, 1e300)
        same = (there > 0.0) == (newest_f > 0.0)
        third, third_f = np.where(same, newest, other), np.where(same, newest_f, other_f)
        other, other_f = np.where(same, other, newest), np.where(same, other_f, newest_f)
        newest, newest_f = between, there
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            xi, phi = (newest - other) / (third - other), (newest_f - other_f) / (third_f - other_f)
            smooth = (phi * phi < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
            inverse = newest_f / (other_f - newest_f) * third_f / (other_f - third_f) + (third - newest) / (
                other - newest
            ) * newest_f / (third_f - newest_f) * other_f / (third_f - other_f)
            share = np.where(smooth & np.isfinite(inverse), np.clip(inverse, 1e-9, 1.0 - 1e-9), 0.5)
    near = np.where(np.abs(newest_f) <= np.abs(other_f), newest, other)
    return np.where(full, top, near)
