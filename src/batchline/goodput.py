r"""Goodput: the most load that a deployment carries while it keeps its promises, and what it shows at a load.

Requests arrive one by one, whatever the engine does: the open loop of `batchline.serving`, whose load X grows with the
batch b of a rank, so b answers all. What is promised at a percentile p:

    TPOT + z_p sqrt(d1^2 + d2^2)    d1: the batch swings by sqrt(g b / (1 - e)) about its mean (Poisson arrivals)
                                    d2 = f t_pf sqrt(b + n + n^2) / o: so do the prompts
    TTFT, each of its two waits at percentile p (`batchline.queueing`)

    e = 1 - TPOT(alone) / TPOT(b)   share of TPOT that grows with the batch: a slower token keeps more requests present,
                                    so their number is negative binomial with variance b / (1 - e), as in processor
                                    sharing; g = 2 (x - 1 + exp(-x)) / x^2, x = 1 - e: what averages out in a stay

A tail is the sum of the tails of its two waits, which is on the safe side. Every argument is one number or an array;
arrays broadcast.

References
----------
[1] DistServe, arXiv 2401.09670: goodput, the rate at which the promises hold.
[2] L. Kleinrock, Queueing Systems, 1975 and 1976: processor sharing, state-dependent service.
[3] T. Chandrupatla, Advances in Engineering Software 28, 1997: a root between two points.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.errors import InputError, UnknownNameError
from batchline.queueing import normal
from batchline.serving import Load
from batchline.strings import Sentence
from batchline.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from batchline.roofline import Floats
    from batchline.serving import Pace, Speculation
    from batchline.step import Coefficients, Ideal

__all__ = [
    "PROMISES",
    "Limit",
    "Point",
    "Promise",
    "Server",
    "at_load",
    "batch_for",
    "ceiling",
    "chance",
    "factor_at",
    "goodput",
    "keeps_alone",
    "point",
]

PROMISES = ("ttft", "tpot", "itl", "e2e")
"""What can be promised: time to first token, time per output token, longest gap, whole request."""

_HALVINGS = 30  # to a hundred-thousandth of a sequence
_AT_ONCE = 16_384  # numbers for which numpy's work outweighs the call
_COARSE = 7
_TURNS = 13  # to ten digits where a step grows evenly
_CHANCES = (0.5, 0.8, 0.9)  # what the factors of prior.Prior.intervals are said to hold


@dataclass(frozen=True, slots=True)
class Promise:
    """A time that a share of the requests must not exceed.

    Parameters
    ----------
    seconds : float
        The time [s].
    percentile : float or None
        Share of the requests that keep it, in percent; None for the mean of all.
    """

    seconds: float
    percentile: float | None = None

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise InputError(
                Sentence("error.promise_above_0", given=f"{self.seconds:g}"), "", Sentence("error.write_promise")
            )
        if self.percentile is not None and not 0 < self.percentile < 100:
            raise InputError(
                Sentence("error.no_percentile", given=f"{self.percentile:g}"),
                Sentence("error.percentile_between"),
                Sentence("error.write_promise"),
            )

    @classmethod
    def parse(cls, text: str) -> Promise:
        """Read a promise.

        Parameters
        ----------
        text : str
            Like "2s" (the mean), "p95:2s" or "p99:40ms".

        Returns
        -------
        Promise
            What is promised.

        Raises
        ------
        UnitError
            The time cannot be read.
        InputError
            There is no such percentile.

        Examples
        --------
        >>> Promise.parse("p95:2s"), Promise.parse("40ms").percentile
        (Promise(seconds=2.0, percentile=95.0), None)
        """
        match = re.fullmatch(r"\s*p(\d+(?:\.\d+)?)\s*:\s*(.+)", str(text), flags=re.IGNORECASE)
        if match:
            return cls(parse_duration(match[2]), float(match[1]))
        return cls(parse_duration(str(text)))

    def __str__(self) -> str:
        time = f"{self.seconds:g}s" if self.seconds >= 1 else f"{self.seconds * 1e3:g}ms"
        return time if self.percentile is None else f"p{self.percentile:g}:{time}"

    @property
    def z(self) -> float:
        """Standard deviations above the mean; 0 for the mean [-]."""
        return 0.0 if self.percentile is None else _normal_quantile(self.percentile / 100.0)


def _normal_quantile(share: float) -> float:
    from statistics import NormalDist  # noqa: PLC0415  (slow to import)

    return NormalDist().inv_cdf(share)


@dataclass(frozen=True, slots=True)
class Server:
    """One replica, or an array of them, under a kind of request.

    Parameters
    ----------
    ideal : Ideal
        Ideal times at the mean context, with the attention of a prompt.
    coefficients : Coefficients
        What the engine makes of them.
    isl, osl : float or array
        Input and output length [token].
    capacity_batch : float or array
        Sequences that the KV cache of the whole replica holds [sequence].
    max_batch : float or array
        Most sequences of one data-parallel rank [sequence].
    budget : float or array or None
        Chunked-prefill token budget of a step [token].
    prefix_hit_rate : float or array
        Share of prompt tokens found in the prefix cache [-].
    arrival_scv, length_scv : float or array
        Squared coefficients of variation of the gaps between arrivals and of the output lengths [-].
    speculation : Speculation, optional
        Speculative decoding.
    slower, slower_ttft : float or array
        Times over the predicted ones, to plan for an engine that misses its prediction [-].
    elsewhere : callable, optional
        Of a replica that only decodes: the time that a prompt takes on others, as a function of the rate at this one
        [1/s] and of a percentile, None for the mean [s].
    """

    ideal: Ideal
    coefficients: Coefficients
    isl: Floats
    osl: Floats
    capacity_batch: Floats
    max_batch: Floats = 1024
    budget: Floats | None = None
    prefix_hit_rate: Floats = 0.0
    arrival_scv: Floats = 1.0
    length_scv: Floats = 0.0
    speculation: Speculation | None = None
    slower: Floats = 1.0
    slower_ttft: Floats = 1.0
    elsewhere: Callable[[Floats, float | None], Floats] | None = None

    @property
    def load(self) -> Load:
        """Formulas of `batchline.serving` for this replica."""
        return Load(
            self.ideal,
            self.coefficients,
            self.isl,
            self.osl,
            self.prefix_hit_rate,
            self.speculation,
            interferes=self.elsewhere is None,
            prompt_elsewhere_s=None if self.elsewhere is None else 0.0,
            slower=self.slower,
            arrival_scv=self.arrival_scv,
            length_scv=self.length_scv,
        )

    @property
    def slots(self) -> Floats:
        """Sequences that fit: KV cache and `max_batch` [sequence]."""
        return np.minimum(self.capacity_batch, np.asarray(self.max_batch, dtype=float) * self.ideal.dp)[()]

    def tpot_s(self, seen: Floats) -> Floats:
        """Time per output token in a batch, the request itself included [s].

        Parameters
        ----------
        seen : float or array
            Sequences decoded together in the whole replica [sequence].

        Returns
        -------
        float or array
            Seconds [s].
        """
        return self.load.tpot_s(seen)

    def longest_gap_s(self, slots: Floats) -> Floats:
        """Longest step: all slots decode and a chunk of a prompt is computed beside them [s].

        Parameters
        ----------
        slots : float or array
            Sequences decoded together [sequence].

        Returns
        -------
        float or array
            Seconds [s].
        """
        load = self.load
        fresh = np.asarray(self.isl * (1.0 - np.asarray(self.prefix_hit_rate)))
        share = 1.0 if self.budget is None else np.minimum(1.0, self.budget / np.maximum(fresh, 1.0))
        return load.step_s(slots) + share * load.prompt_s(slots) / self.ideal.pp


@dataclass(frozen=True, slots=True)
class Point:
    """What a replica shows at a load.

    Parameters
    ----------
    batch : float or array
        Sequences decoded together on average in the replica [sequence].
    slots : float or array
        Sequences that may be [sequence].
    requests_per_s : float or array
        Load [1/s].
    tpot_s, ttft_s, e2e_s : float or array
        Means [s].
    kept : mapping of str to float or array
        Each promised time at its own percentile [s].
    prefill_s : float or array
        Time of the whole replica that one prompt takes [s].
    cached_s : float or array
        Part of it that is attention over cached tokens [s].
    prompt_wait_s, slot_wait_s : float or array
        The two waits before the first token, at the percentile of TTFT; a prompt that is computed elsewhere is waited
        for [s].
    """

    batch: Floats
    slots: Floats
    requests_per_s: Floats
    tpot_s: Floats
    ttft_s: Floats
    e2e_s: Floats
    kept: Mapping[str, Floats]
    prefill_s: Floats
    cached_s: Floats
    prompt_wait_s: Floats
    slot_wait_s: Floats


def _tail_tpot(server: Server, batch: Floats, pace: Pace, z: float) -> Floats:
    """Time per output token z standard deviations of requests above the mean."""
    if z == 0.0:
        return pace.tpot_s
    rank, left = batch / server.ideal.dp, 1.0 - pace.grows
    averaged = 2.0 * (left - 1.0 + np.exp(-left)) / (left * left)
    swing = pace.grows * pace.tpot_s / np.maximum(rank, 1e-12) * np.sqrt(averaged * rank * pace.peakedness)
    came = rank * pace.peakedness * left  # variance of the prompts that arrive in a stay
    prompts = pace.busy_s * np.sqrt(came + pace.behind * (1.0 + pace.behind)) / server.osl
    return np.maximum(pace.tpot_s + z * np.sqrt(swing * swing + prompts * prompts), 0.0)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a search has already: the pace at this batch, and the time per output token of a full table [s]."""

    pace: Pace
    full: Floats


def point(
    server: Server, batch: Floats, slots: Floats, promises: Mapping[str, Promise], known: _Known | None = None
) -> Point:
    """What a replica shows when so many sequences decode on average.

    Parameters
    ----------
    server : Server
        The replica.
    batch : float or array
        Sequences decoded together on average [sequence].
    slots : float or array
        Sequences that may be decoded together [sequence].
    promises : mapping of str to Promise
        Times to give at their percentile.
    known : optional
        For a search, which has computed some of it before.

    Returns
    -------
    Point
        Load, means, and the promised times.
    """
    load, dp = server.load, server.ideal.dp
    rank = batch / dp
    full = np.maximum(slots, dp)
    if known is None:
        known = _Known(load.pace(batch), server.tpot_s(full))
    pace = known.pace
    full_tpot = np.maximum(known.full, pace.tpot_s)
    first = load.first_s(batch, pace, server.budget)

    def waits(percentile: float | None) -> tuple[Floats, Floats]:
        before, slot = load.waits_s(batch, pace, slots, full_tpot, percentile)
        return (before if server.elsewhere is None else server.elsewhere(pace.requests_per_s, percentile)), slot

    mean_waits = waits(None)
    ttft = server.slower_ttft * (first + mean_waits[0] + mean_waits[1])
    kept: dict[str, Floats] = {}
    ttft_waits = mean_waits
    for name, promise in promises.items():
        found = waits(promise.percentile) if promise.percentile is not None and name in ("ttft", "e2e") else mean_waits
        start = server.slower_ttft * (first + found[0] + found[1])
        if name == "ttft":
            kept[name], ttft_waits = start, found
        elif name == "itl":
            kept[name] = server.longest_gap_s(np.minimum(full, dp * (rank + 1.0 + 3.0 * np.sqrt(rank))))
        else:
            tail = _tail_tpot(server, batch, pace, promise.z)
            tail = np.minimum(tail, full_tpot)  # a full table is as slow as it gets
            kept[name] = tail if name == "tpot" else start + np.maximum(server.osl - 1.0, 0.0) * tail
    hit = np.asarray(server.prefix_hit_rate)
    over_cached = 2.0 * server.ideal.prompt_attention_s * hit * (1.0 - hit)
    share = server.coefficients.prefill_share / (dp * server.ideal.pp)
    return Point(
        batch=batch,
        slots=slots,
        requests_per_s=pace.requests_per_s,
        tpot_s=pace.tpot_s,
        ttft_s=ttft,
        e2e_s=ttft + np.maximum(server.osl - 1.0, 0.0) * pace.tpot_s,
        kept=kept,
        prefill_s=share * pace.prompt_s,
        cached_s=share * server.slower * server.coefficients.prefill_attention * over_cached,
        prompt_wait_s=ttft_waits[0],
        slot_wait_s=ttft_waits[1],
    )


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
        return point(server, batch, slots.full, promises, _Known(pace, slots.at_full))
    tail = _tail_tpot(server, batch, pace, promised.z)
    wide = np.minimum(tail, np.maximum(slots.at_full, pace.tpot_s)) <= promised.seconds
    known = _Known(pace, np.where(wide, slots.at_full, slots.at_narrow))
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
    dp = np.asarray(server.ideal.dp, dtype=float)
    slots = _slots_of(server, promises)
    full, shape = slots.full, np.shape(slots.full)
    keeps = slots.narrow >= dp

    def show(batch: Floats) -> Point:
        return _shown(server, batch, promises, slots)

    def keeps_at(batch: Floats) -> NDArray[np.bool_]:
        return _kept(show(batch), promises)

    high = np.maximum(np.where(keeps, full, 1.0), 1e-9)
    batch = largest(keeps_at, high)
    keeps = keeps & keeps_at(np.minimum(batch, 1e-6 * high))
    best = show(batch)
    # A hair beyond, which promise breaks says what stops more.
    beyond = np.minimum(batch * 1.02 + 1e-9, high)
    after = show(beyond)
    slow_token = np.zeros(shape, dtype=bool)
    for name in ("tpot", "itl", "e2e"):
        if name in promises:
            slow_token |= np.asarray(after.kept[name] > promises[name].seconds)
    held = np.where(np.asarray(server.capacity_batch) <= np.asarray(server.max_batch) * dp, "kv", "max_num_seqs")
    full_table = np.asarray((after.slot_wait_s > after.prompt_wait_s) | (beyond >= after.slots))
    held = np.where(np.asarray(after.slots) < full, "step_limit", held)
    why = np.where(slow_token, "step_limit", np.where(full_table, held, "prefill"))
    return Limit(point=best, keeps=keeps, saturated_by=why, slots=best.slots)


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
    """Largest batch that keeps the promises, between 0 and `high`, by halving: few rows take several halves at once."""
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


def chance(times: Floats, factors: tuple[float, ...] | NDArray[np.float64]) -> Floats:
    """Chance that a prediction is missed by less than a factor, from the factors that hold 50, 80 and 90%.

    Parameters
    ----------
    times : float or array
        How many times the prediction may be exceeded [-].
    factors : tuple or array
        Factors that hold 50, 80 and 90% of measured values, along the last axis [-].

    Returns
    -------
    float or array
        Chance [-]. The logarithm is normal between the factors given, and hits them exactly.

    Examples
    --------
    Half of the values lie within 1.17 times, so a quarter lies above:

    >>> round(float(chance(1.17, (1.17, 1.38, 1.55))), 4), float(chance(1.0, (1.17, 1.38, 1.55)))
    (0.75, 0.5)
    """
    logs = np.log(np.asarray(factors, dtype=float))
    knots = np.array([0.0, *(_normal_quantile((1.0 + share) / 2.0) for share in _CHANCES)])
    logs = np.concatenate([np.zeros((*logs.shape[:-1], 1)), logs], axis=-1)
    with np.errstate(divide="ignore"):
        wanted = np.log(np.maximum(np.asarray(times, dtype=float), 1e-300))
    size = np.minimum(np.abs(wanted), 700.0)
    z = np.zeros(np.broadcast_shapes(size.shape, logs.shape[:-1]))
    for i in range(3):
        low, high = logs[..., i], logs[..., i + 1]
        part = knots[i] + (knots[i + 1] - knots[i]) * (size - low) / np.maximum(high - low, 1e-12)
        z = np.where((size >= low) if i else True, part, z)  # the last part goes on beyond its end
    return normal(np.sign(wanted) * z)


def factor_at(confidence: float, factors: NDArray[np.float64] | tuple[float, ...]) -> Floats:
    """Factor below which a prediction is exceeded with a chance: the inverse of `chance`.

    Parameters
    ----------
    confidence : float
        Chance, from 0.5 on [-].
    factors : array
        Factors that hold 50, 80 and 90%, along the last axis [-].

    Returns
    -------
    float or array
        Factor, 1 or more [-].

    Examples
    --------
    >>> round(float(factor_at(0.75, (1.17, 1.38, 1.55))), 4)
    1.17
    """
    if not 0.5 <= confidence < 1:
        raise InputError(
            Sentence("error.confidence_range", given=f"{confidence:g}"), "", Sentence("error.write_confidence")
        )
    logs = np.log(np.asarray(factors, dtype=float))
    logs = np.concatenate([np.zeros((*logs.shape[:-1], 1)), logs], axis=-1)
    knots = np.array([0.0, *(_normal_quantile((1.0 + share) / 2.0) for share in _CHANCES)])
    z = _normal_quantile(confidence) if confidence > 0.5 else 0.0
    i = min(int(np.searchsorted(knots, z, side="right")) - 1, 2)
    part = (z - knots[i]) / (knots[i + 1] - knots[i])
    factors_at: Floats = np.exp(logs[..., i] + part * (logs[..., i + 1] - logs[..., i]))
    return factors_at
