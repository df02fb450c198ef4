r"""Goodput: the most load that a deployment carries while it keeps its promises, and what it shows at a load.

Requests arrive one by one, whatever the engine does (Poisson). A request that decodes meets, on its data-parallel rank,
b others on average (Slivnyak: what an arrival finds is what is there all the time) and itself; its prompt leaves n more
prompts behind in the queue, which are computed before it goes on:

    TPOT(b) = step(b + 1) + f (b + n) / o  t_pf              rate X = b dp / (o TPOT): it grows with b, so b answers all
    n = rho + a rho^2 / 2 (1 - rho)                          what an M/D/1 queue holds, rho = X f t_pf / dp
    TPOT at percentile p = TPOT + z_p sqrt(d1^2 + d2^2)      d1: the batch swings by sqrt(g b / (1 - e)) about its mean
                                                             d2 = f t_pf sqrt(b + n + n^2) / o: so do the prompts
    TTFT = t_0 + max(t_s, chunks) step + t_pf + wait for the prompts before mine + wait for a free slot

    e = 1 - TPOT(alone) / TPOT(b)   share of TPOT that grows with the batch: a slower token keeps more requests present,
                                    so their number is negative binomial with variance b / (1 - e), as in processor
                                    sharing; g = 2 (x - 1 + exp(-x)) / x^2, x = 1 - e: what averages out in a stay
    prompts before mine    M/D/1: mean rho t_pf / 2 (1 - rho); beyond t with chance rho exp(-2 (1 - rho) t / rho t_pf)
    a free slot of c       chance P = 1 / (1 + beta Phi(beta) / phi(beta)), beta = (c - b) / sqrt(b / (1 - e)); then
                           exponential, with mean (1 + v) / 2 over the rate at which a full table gains on arrivals,
                           v the squared variation of output lengths

The step and the prompt are those of `batchline.serving`. A tail is the sum of the tails of its two waits, which is on
the safe side. Every argument is one number or an array; arrays broadcast.

References
----------
[1] DistServe, arXiv 2401.09670: goodput, the rate at which the promises hold.
[2] S. Halfin and W. Whitt, Operations Research 29, 1981: the chance to wait for one of many servers.
[3] L. Kleinrock, Queueing Systems, 1975 and 1976: M/D/1, processor sharing, state-dependent service.
[4] M. Abramowitz and I. Stegun, 1964, 7.1.26: the normal distribution to seven digits.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.errors import InputError, UnknownNameError
from batchline.serving import _Load, md1_wait
from batchline.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from batchline.roofline import Floats
    from batchline.serving import Speculation
    from batchline.step import Coefficients, Ideal

__all__ = [
    "PROMISES",
    "Limit",
    "Point",
    "Promise",
    "Server",
    "batch_for",
    "chance",
    "factor_at",
    "goodput",
    "normal",
    "point",
    "prompt_wait",
    "slot_wait",
]

PROMISES = ("ttft", "tpot", "itl", "e2e")
"""What can be promised: time to first token, time per output token, longest gap, whole request."""

_HALVINGS = 30  # to a hundred-thousandth of a sequence
_TURNS = 18
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
            raise InputError(f"A promise is a time above 0, got {self.seconds:g} s.", "", "Write it like p95:2s.")
        if self.percentile is not None and not 0 < self.percentile < 100:
            raise InputError(
                f"p{self.percentile:g} is no percentile.", "It lies between 0 and 100.", "Write it like p95:2s."
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


def _plain(values: NDArray[np.float64]) -> Floats:
    return float(values) if values.ndim == 0 else values


def _normal_quantile(share: float) -> float:
    from statistics import NormalDist  # noqa: PLC0415  (slow to import)

    return NormalDist().inv_cdf(share)


def normal(z: Floats) -> Floats:
    """Chance that a standard normal number is below z, to seven digits [4].

    Parameters
    ----------
    z : float or array
        Standard deviations [-].

    Returns
    -------
    float or array
        Chance [-].

    Examples
    --------
    >>> round(float(normal(1.6448536)), 6), float(normal(0.0))
    (0.95, 0.5)
    """
    x = np.abs(z) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * x)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * np.exp(-x * x)
    return _plain(np.where(np.asarray(z) == 0.0, 0.5, np.where(np.asarray(z) > 0, 1.0 - tail, tail)))


def slot_wait(
    batch: Floats,
    slots: Floats,
    service_s: Floats,
    full_service_s: Floats | None = None,
    *,
    peakedness: Floats = 1.0,
    service_scv: Floats = 0.0,
    percentile: float | None = None,
) -> Floats:
    """Wait for one of many slots when requests arrive one by one [2].

    Parameters
    ----------
    batch : float or array
        Slots that are taken on average [sequence].
    slots : float or array
        Slots that there are [sequence].
    service_s : float or array
        Time that a request keeps its slot [s].
    full_service_s : float or array, optional
        The same while all slots are taken, when each is slower; default the same [s].
    peakedness : float or array
        Variance of the slots taken over their mean [-].
    service_scv : float or array
        Squared coefficient of variation of the service time [-].
    percentile : float, optional
        Percentile of the wait; None for the mean.

    Returns
    -------
    float or array
        Seconds [s]; infinite when more slots would be taken than there are.

    Examples
    --------
    Of 100 slots 90 are taken for 10 s each; 1 in 20 waits longer than 0.7 s:

    >>> round(float(slot_wait(90, 100, 10.0, percentile=95)), 2)
    0.7
    """
    taken = np.maximum(np.asarray(batch, dtype=float), 1e-12)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        gain = slots / (service_s if full_service_s is None else full_service_s) - taken / service_s
        stable = np.asarray((gain > 0) & (taken < slots))
        beta = np.minimum(np.where(stable, slots - taken, 1.0) / np.sqrt(taken * peakedness), 30.0)
        density = np.exp(-beta * beta / 2.0) / math.sqrt(2.0 * math.pi)
        waits = 1.0 / (1.0 + beta * normal(beta) / np.maximum(density, 1e-300))
        mean = 0.5 * (1.0 + service_scv) / np.where(stable, gain, 1.0)
        if percentile is None:
            wait = waits * mean
        else:
            wait = mean * np.maximum(np.log(np.maximum(waits, 1e-300) / (1.0 - percentile / 100.0)), 0.0)
    return _plain(np.where(stable, wait, np.inf))


def prompt_wait(rate: Floats, service_s: Floats, arrival_scv: Floats = 1.0, percentile: float | None = None) -> Floats:
    """Wait for the prompts before mine: the mean of M/D/1, or a percentile of its exponential tail [3].

    Parameters
    ----------
    rate : float or array
        Prompts that arrive [1/s].
    service_s : float or array
        Time that one takes [s].
    arrival_scv : float or array
        Squared coefficient of variation of the gaps between arrivals [-].
    percentile : float, optional
        Percentile of the wait; None for the mean.

    Returns
    -------
    float or array
        Seconds [s]; infinite when arrivals outrun the server.

    Examples
    --------
    >>> round(float(prompt_wait(8, 0.1)), 3), round(float(prompt_wait(8, 0.1, percentile=95)), 3)
    (0.2, 0.693)
    """
    mean = md1_wait(rate, service_s, arrival_scv=arrival_scv)
    if percentile is None:
        return mean
    use = np.minimum(np.maximum(np.asarray(rate * service_s, dtype=float), 1e-12), 1.0)
    return _plain(np.asarray(mean / use * np.maximum(np.log(use / (1.0 - percentile / 100.0)), 0.0)))


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
    interferes : bool
        Whether prompts are computed beside the decoding; not on a decode pool.
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
    interferes: bool = True

    @property
    def load(self) -> _Load:
        """Formulas of `batchline.serving` for this replica."""
        return _Load(
            self.ideal,
            self.coefficients,
            self.isl,
            self.osl,
            self.prefix_hit_rate,
            self.speculation,
            interferes=self.interferes,
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
        return self.slower * self.load.tpot_s(seen)

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
        return self.slower * (load.step_s(slots) + share * load.prompt_s(slots) / self.ideal.pp)


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
        The two waits before the first token, at the percentile of TTFT [s].
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


@dataclass(frozen=True, slots=True)
class _Pace:
    """How fast a replica goes when b sequences decode on a rank.

    tpot: time per output token [s]; busy: time of a rank that a prompt takes [s]; prompt: that it takes itself [s];
    behind: prompts that mine leaves in the queue [request]; rate: of the whole replica [1/s]; grows: share of tpot that
    the batch causes [-].
    """

    tpot: Floats
    busy: Floats
    prompt: Floats
    behind: Floats
    rate: Floats
    grows: Floats


def _pace(server: Server, batch: Floats, alone: Floats | None = None) -> _Pace:
    load, dp = server.load, server.ideal.dp
    rank = batch / dp
    plain = server.tpot_s(batch + dp)
    prompt = server.slower * load.prompt_s(batch)
    busy = server.coefficients.prefill_share * prompt / server.ideal.pp * (1.0 if server.interferes else 0.0)
    behind = _left_behind(rank, server.osl * plain, busy, server.arrival_scv)
    tpot = plain + behind * busy / server.osl
    grows = np.clip(1.0 - (server.tpot_s(dp) if alone is None else alone) / tpot, 0.0, 1.0 - 1e-9)
    return _Pace(tpot, busy, prompt, behind, batch / (server.osl * tpot), grows)


def _left_behind(rank: Floats, stay_s: Floats, busy: Floats, arrival_scv: Floats) -> Floats:
    """Prompts in the queue behind mine: n(rho) with rho (stay / t + n) = b, t what a prompt takes.

    Without the small rho^2, and rho^3 for rho^2, it is a quadratic; three of Newton's steps in 1 / (1 - rho) mend that.
    """
    if np.all(np.asarray(busy) == 0.0):
        return 0.0 * (rank + stay_s)
    stay, half = stay_s / np.maximum(busy, 1e-12), arrival_scv / 2.0
    both = stay + rank
    use = 2.0 * rank / (both + np.sqrt(np.maximum(both * both + 4.0 * rank * (half - stay), 0.0)))
    use = np.minimum(use, 1.0 - 1e-9)
    for _ in range(3):
        left = 1.0 - use
        tail = half * use * use / left
        excess = use * (stay + use + tail) - rank
        slope = (stay + 2.0 * use + tail * (3.0 + use / left)) * left * left  # by 1 / (1 - rho)
        use = 1.0 - 1.0 / np.maximum(1.0 / left - excess / slope, 1.0 + 1e-12)
    return use + half * use * use / (1.0 - use)


def _tail_tpot(server: Server, batch: Floats, pace: _Pace, z: float) -> Floats:
    """Time per output token z standard deviations of requests above the mean."""
    if z == 0.0:
        return pace.tpot
    rank, left = batch / server.ideal.dp, 1.0 - pace.grows
    averaged = 2.0 * (left - 1.0 + np.exp(-left)) / (left * left)
    swing = pace.grows * pace.tpot / np.maximum(rank, 1e-12) * np.sqrt(averaged * rank / left)
    prompts = pace.busy * np.sqrt(rank + pace.behind * (1.0 + pace.behind)) / server.osl
    return np.maximum(pace.tpot + z * np.sqrt(swing * swing + prompts * prompts), 0.0)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a search has already: the pace at this batch, and the time per output token of a full table [s]."""

    pace: _Pace
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
        known = _Known(_pace(server, batch), server.tpot_s(full))
    pace = known.pace
    tpot, rate, prompt, busy = pace.tpot, pace.rate, pace.prompt, pace.busy
    full_tpot = np.maximum(known.full, tpot)
    first = server.coefficients.ttft_constant + server.slower * load.chunks_s(batch + dp, server.budget) + prompt

    def waits(percentile: float | None) -> tuple[Floats, Floats]:
        return (
            prompt_wait(rate / dp, busy, server.arrival_scv, percentile),
            slot_wait(
                rank,
                slots / dp,
                server.osl * tpot,
                server.osl * full_tpot,
                peakedness=1.0 / (1.0 - pace.grows),
                service_scv=server.length_scv,
                percentile=percentile,
            ),
        )

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
        requests_per_s=rate,
        tpot_s=tpot,
        ttft_s=ttft,
        e2e_s=ttft + np.maximum(server.osl - 1.0, 0.0) * tpot,
        kept=kept,
        prefill_s=share * prompt,
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
    full = np.asarray(server.slots, dtype=float)
    shape = np.shape(server.tpot_s(dp) + full)
    full = np.broadcast_to(full, shape)
    narrow = np.minimum(dp * _widest(server, promises.get("tpot"), full / dp), full)
    keeps = narrow >= dp

    alone, at_full, at_narrow = (server.tpot_s(seen) for seen in (dp, np.maximum(full, dp), np.maximum(narrow, dp)))
    promised = promises.get("tpot")

    def show(batch: Floats) -> Point:
        """All slots while the tail of TPOT keeps the promise by itself, else only so many that it must."""
        pace = _pace(server, batch, alone)
        if promised is None:
            return point(server, batch, full, promises, _Known(pace, at_full))
        tail = _tail_tpot(server, batch, pace, promised.z)
        wide = np.minimum(tail, np.maximum(at_full, pace.tpot)) <= promised.seconds
        known = _Known(pace, np.where(wide, at_full, at_narrow))
        return point(server, batch, np.where(wide, full, narrow), promises, known)

    def keeps_at(batch: Floats) -> NDArray[np.bool_]:
        shown = show(batch)
        kept = np.isfinite(shown.ttft_s) & (batch < shown.slots)
        for name, promise in promises.items():
            kept = kept & (shown.kept[name] <= promise.seconds * (1.0 + 1e-9))
        return kept

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
    """Largest batch that keeps the promises, between 0 and `high`, by halving."""
    upper = np.array(high, dtype=float)
    lower = np.zeros_like(upper)
    for _ in range(_HALVINGS):
        middle = (lower + upper) / 2.0
        good = keeps(middle)
        lower, upper = np.where(good, middle, lower), np.where(good, upper, middle)
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
            return np.asarray(_pace(server, batch, 0.0).rate - load)
        shown = point(server, batch, high, {})
        return np.asarray(shown.requests_per_s * (think_s + shown.e2e_s) - load)

    # The load grows with the batch, concave where a step grows evenly: false position with Illinois' halving.
    upper = np.array(np.broadcast_to(np.asarray(high, dtype=float), np.shape(excess(np.asarray(high, dtype=float)))))
    lower, over = np.zeros_like(upper), excess(upper)
    over = np.where(np.isfinite(over), over, 1e300)
    under = np.broadcast_to(-np.asarray(load, dtype=float), upper.shape).copy()
    full = over <= 0.0
    for turn in range(_TURNS):
        share = np.clip(under / np.minimum(under - over, -1e-300), 1e-3, 1.0 - 1e-3)
        between = lower + (upper - lower) * (share if turn % 4 < 3 else 0.5)
        there = excess(between)
        below = there <= 0.0
        over = np.where(below, over * 0.5, there)
        under = np.where(below, there, under * 0.5)
        lower, upper = np.where(below, between, lower), np.where(below, upper, between)
    return np.where(full, np.asarray(high, dtype=float), lower)


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
        raise InputError(f"A confidence lies from 0.5 to 1, got {confidence:g}.", "", "Write --confidence 0.9.")
    logs = np.log(np.asarray(factors, dtype=float))
    logs = np.concatenate([np.zeros((*logs.shape[:-1], 1)), logs], axis=-1)
    knots = np.array([0.0, *(_normal_quantile((1.0 + share) / 2.0) for share in _CHANCES)])
    z = _normal_quantile(confidence) if confidence > 0.5 else 0.0
    i = min(int(np.searchsorted(knots, z, side="right")) - 1, 2)
    part = (z - knots[i]) / (knots[i + 1] - knots[i])
    return _plain(np.exp(logs[..., i] + part * (logs[..., i + 1] - logs[..., i])))
