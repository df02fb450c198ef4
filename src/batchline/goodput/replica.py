"""A replica under a kind of request, and what it shows at a load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchline.serving import Load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from batchline.goodput.promise import Promise
    from batchline.roofline import Floats
    from batchline.serving import Pace, Speculation
    from batchline.step import Coefficients, Ideal

__all__ = ["Known", "Point", "Server", "point", "tail_tpot_s"]


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


def tail_tpot_s(server: Server, batch: Floats, pace: Pace, z: float) -> Floats:
    """Time per output token z standard deviations of requests above the mean.

    Parameters
    ----------
    server : Server
        The replica.
    batch : float or array
        Sequences decoded together on average [sequence].
    pace : Pace
        What the load does there.
    z : float
        Standard deviations [-].

    Returns
    -------
    float or array
        Seconds [s].
    """
    if z == 0.0:
        return pace.tpot_s
    rank, left = batch / server.ideal.dp, 1.0 - pace.grows
    averaged = 2.0 * (left - 1.0 + np.exp(-left)) / (left * left)
    swing = pace.grows * pace.tpot_s / np.maximum(rank, 1e-12) * np.sqrt(averaged * rank * pace.peakedness)
    came = rank * pace.peakedness * left  # variance of the prompts that arrive in a stay
    prompts = pace.busy_s * np.sqrt(came + pace.behind * (1.0 + pace.behind)) / server.osl
    return np.maximum(pace.tpot_s + z * np.sqrt(swing * swing + prompts * prompts), 0.0)


@dataclass(frozen=True, slots=True)
class Known:
    """What a search has already: the pace at this batch, and the time per output token of a full table [s]."""

    pace: Pace
    full: Floats


def point(
    server: Server, batch: Floats, slots: Floats, promises: Mapping[str, Promise], known: Known | None = None
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
        known = Known(load.pace(batch), server.tpot_s(full))
    pace = known.pace
    full_tpot = np.maximum(known.full, pace.tpot_s)
    first = load.first_s(pace, server.budget)

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
            tail = tail_tpot_s(server, batch, pace, promise.z)
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
