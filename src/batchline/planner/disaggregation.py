"""Pools for prompts and for decoding: two layouts of one accelerator, format and engine, and the replicas of each.

A decode replica keeps TPOT and the longest gap by itself. What its own waits leave of TTFT is left to the prompts: to
the fewest replicas of each layout that compute them, wait and move the KV cache in that time. Both sides together:

    load of a prefill replica   u dp / t,  t what a prompt takes of it: u so busy that the waits are what is left
    devices                     all decode replicas, plus the layout whose replicas for all prompts cost the least

More decode replicas than the fewest shorten their own waits and so may save prefill replicas. So each deployment takes
as many as make its pools the cheapest, up to eight times the fewest; it stops before where the prefill pool that eight
times as many would leave cannot make up for one more.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from batchline import goodput, queueing
from batchline.engine import disaggregates
from batchline.serving import kv_transfer_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline.goodput import Server
    from batchline.planner.search import Search
    from batchline.roofline import Floats

__all__ = ["Pools"]

_MOST = 8.0  # decode replicas over the fewest
_FASTER = 1e-9  # of two prefill pools at one price the faster one


class Pools:
    """Decode deployments of a search, each with its cheapest prefill pool.

    Arrays have a row for each deployment and a column for each number of decode replicas, as those of the search.

    Parameters
    ----------
    search : Search
        The question and its space.
    load : float
        Requests that arrive [1/s].
    columns : int
        Numbers of replicas that are looked at.
    """

    def __init__(self, search: Search, load: float, columns: int) -> None:
        space, self.search, self.load = search.rows, search, load
        rows = np.arange(0, len(search.budget), len(search.budgets))  # a decode replica needs the smallest budget only
        apart = np.array([disaggregates(name) for name in space.engines], dtype=bool)
        self.rows = rows[apart[space.engine[rows]]]
        self.at = np.full(len(search.budget), -1, dtype=np.intp)
        self.at[self.rows] = np.arange(len(self.rows))
        self.sure = load / (1.0 - search.question.headroom)
        self.capacity = space.capacity_batch[self.rows]
        self.usd, self.count = space.usd_per_hour[self.rows], space.count[self.rows]
        prefill, one = search.server(self.rows, apart=True), np.ones(len(self.rows))
        self.prompt = one * prefill.load.prompt_s(0.0)
        self.budget = max(search.question.budgets)  # a prefill replica fills its steps with prompts
        self.ranks, self.busy = one * prefill.ideal.dp, one * prefill.load.busy_s(self.budget)
        self.slower_ttft = one * prefill.slower_ttft
        moved = [
            kv_transfer_s(search.architecture.stored_bytes(search.question.isl, kv), search.question.transfer)
            for kv in space.kvs
        ]
        self.transfer = np.array(moved, dtype=float)[space.kv[self.rows]]
        self.mates, self.group = self._mates()
        shape = (len(self.rows), columns)
        self.exact, self.prompts_counted = (np.zeros(len(self.rows), dtype=bool) for _ in range(2))
        self.takes_prompts = np.ones(len(self.rows), dtype=bool)
        self.floor, self.decided = np.zeros(len(self.rows)), np.zeros(len(self.rows), dtype=bool)
        self.cost, self.copies = np.full(shape, np.inf), np.ones(shape)
        self.prefill, self.prefill_copies, self.slots = np.zeros(shape, dtype=np.intp), np.ones(shape), np.ones(shape)

    def _mates(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows of the prefill layouts that go with each group of one accelerator, formats and engine; -1 where none."""
        space, rows = self.search.rows, self.rows
        shape = tuple(len(axis) for axis in (space.accelerators, space.weights, space.kvs, space.engines))
        axes = (space.accelerator[rows], space.weight[rows], space.kv[rows], space.engine[rows])
        groups, group = np.unique(np.ravel_multi_index(axes, shape), return_inverse=True)
        mates = np.full((len(groups), len(space.layouts)), -1, dtype=np.intp)
        mates[group, space.layout[rows]] = np.arange(len(rows))
        return mates, group

    @property
    def pairs(self) -> int:
        """Decode deployments, each with every prefill layout that goes with it [-]."""
        return int((self.mates >= 0).sum(axis=1)[self.group].sum())

    # -- one side and the other ----------------------------------------------------------------------------------------

    def decoder(self, at: NDArray[np.intp], *, sure: bool = True) -> Server:
        """Replicas that only decode; prompts are there as soon as they arrive."""
        server = self.search.server(self.rows[at], sure=sure, apart=True)
        return dataclasses.replace(server, capacity_batch=self.capacity[at], budget=None, elsewhere=_at_once)

    def whole(self, at: NDArray[np.intp], column: NDArray[np.intp], *, sure: bool = False) -> Server:
        """Decode replicas with the time of a prompt, its waits and its move on the prefill pool."""
        source, moved = self.prefill[at, column], self.transfer[at]
        share = self.copies[at, column] / self.prefill_copies[at, column]
        server = self.search.server(self.rows[source], sure=sure, apart=True)

        def elsewhere(rate: Floats, percentile: float | None) -> Floats:
            return np.asarray(server.load.prompt_alone_s(rate * share, percentile, self.budget) + moved)

        return dataclasses.replace(self.decoder(at, sure=sure), elsewhere=elsewhere)

    def _shown(self, at: NDArray[np.intp], rate: Floats) -> tuple[goodput.Point, NDArray[np.bool_]]:
        return goodput.at_load(self.decoder(at), rate, self.search.promises)

    def _cheapest_prefill(
        self, at: NDArray[np.intp], shown: goodput.Point
    ) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
        """Layout, replicas and cost of the cheapest prefill pool for each deployment, by what its decoding leaves."""
        mates = self.mates[self.group[at]]
        there = (mates >= 0) & self.takes_prompts[mates]
        prompt, busy = self.prompt[mates], self.busy[mates]
        use = np.full(mates.shape, 1.0 - 1e-9)
        for name in ("ttft", "e2e"):
            if name in self.search.promises:
                promise = self.search.promises[name]
                left = (promise.seconds - shown.kept[name]) / self.slower_ttft[at] - self.transfer[at]
                wait = (left[:, None] - prompt) / busy
                uneven = self.search.question.arrival_scv / self.ranks[mates]  # ranks take requests in turn
                use = np.minimum(use, queueing.use_at_wait(wait, uneven, promise.percentile))
        with np.errstate(divide="ignore"):
            copies = np.where(there, np.ceil(self.sure * busy / (use * self.ranks[mates]) * (1.0 - 1e-12)), np.inf)
        cost = copies * self.usd[mates]
        choice = np.argmin(cost * (1.0 + _FASTER * prompt), axis=1)
        row = np.arange(len(at))
        return mates[row, choice], copies[row, choice], cost[row, choice]

    def find_floor(self) -> None:
        """Find the cost that the pools of no deployment go below; 0 where devices that lack are counted."""
        if self.search.question.available or len(self.rows) == 0:
            return
        most = goodput.ceiling(self.decoder(np.arange(len(self.rows))), self.search.promises)
        with np.errstate(divide="ignore"):
            decode = np.maximum(np.ceil(self.sure / most * (1.0 - 1e-9)), 1.0) * self.usd
        prompts = np.maximum(np.ceil(self.sure * self.busy / self.ranks * (1.0 - 1e-9)), 1.0) * self.usd
        self.floor = decode + np.where(self.mates >= 0, prompts[self.mates], np.inf).min(axis=1)[self.group]

    def keeps_alone(self, at: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether the promises hold for a single request, with any prefill layout."""
        if len(at) == 0:
            return np.zeros(0, dtype=bool)
        shown, keeps = self._shown(at, 1e-9)
        return keeps & np.isfinite(self._cheapest_prefill(at, shown)[2])

    # -- the cheapest pools of each deployment -------------------------------------------------------------------------

    def carry(self, at: NDArray[np.intp]) -> None:
        """Find for each decode deployment the replicas, and the prefill pool, that carry the load for the least."""
        if len(at) == 0:
            return
        limit = goodput.goodput(self.decoder(at), self.search.promises)
        most = np.where(limit.keeps & (self.capacity[at] > 0), np.asarray(limit.point.requests_per_s), 0.0)
        with np.errstate(divide="ignore"):
            fewest = np.maximum(np.ceil(self.sure / most * (1.0 - 1e-12)), 1.0)
        self.cost[at] = np.inf
        at, copies = at[np.isfinite(fewest)], fewest[np.isfinite(fewest)]
        end = _MOST * copies
        floor = self._cheapest_prefill(at, self._shown(at, self.sure / end)[0])[2]
        can = np.isfinite(floor)
        at, copies, end, floor = at[can], copies[can], end[can], floor[can]
        self._settle(at, copies)
        # All numbers of replicas that could still pay, at once: a place for each.
        last = np.minimum(end, np.ceil((self._limit(at) - floor) / self.usd[at]) - 1.0)
        more = np.maximum(last - copies, 0.0).astype(np.intp)
        each = np.repeat(np.arange(len(at)), more)
        further = np.arange(len(each)) - np.repeat(np.cumsum(more) - more, more) + 1.0
        self._settle(at[each], copies[each] + further)

    def _settle(self, at: NDArray[np.intp], copies: NDArray[np.float64], column: NDArray[np.intp] | int = 0) -> None:
        """Take so many decode replicas, with their cheapest prefill pool, where that is cheaper than what is there.

        A deployment may come with several numbers of replicas: the fewest of the cheapest is taken.
        """
        column = np.broadcast_to(column, len(at))
        shown, keeps = self._shown(at, self.sure / copies)
        source, sources, usd = self._cheapest_prefill(at, shown)
        cost = np.where(keeps, copies * self.usd[at] + usd, np.inf)
        finite = np.isfinite(cost)
        devices = copies * self.count[at] + np.where(finite, sources, 0.0) * self.count[source]
        cost[devices > self.search.there[self.rows[at]]] = np.inf
        order = np.lexsort((copies, cost.round(9), column, at))
        place = at * self.cost.shape[1] + column
        order = order[np.unique(place[order], return_index=True)[1]]
        order = order[cost[order] < self.cost[at[order], column[order]] * (1.0 - 1e-12)]
        won = at[order], column[order]
        for table, values in (
            (self.cost, cost),
            (self.copies, copies),
            (self.prefill, source),
            (self.prefill_copies, sources),
            (self.slots, np.asarray(shown.slots)),
        ):
            table[won] = values[order]

    def _limit(self, at: NDArray[np.intp]) -> NDArray[np.float64]:
        """Cost from which on pools lead nothing: their own so far, and the cheapest of all that they could lead."""
        names = self.search.leads[:, self.rows]
        best = np.full((len(names), 1 + int(names.max(initial=0))), np.inf)
        cheapest = np.minimum(self.cost[:, 0], self.search.cost[self.rows, 0])
        for axis, index in enumerate(names):
            np.minimum.at(best[axis], index, cheapest)
        lead: NDArray[np.float64] = best[np.arange(len(names))[:, None], names[:, at]].max(axis=0)
        return np.asarray(np.minimum(self.cost[at, 0], lead))

    def points(self, at: NDArray[np.intp], more: tuple[float, ...], first: int) -> None:
        """Give the search what pools show and cost, in its columns from `first` on: with the fewest, and with more."""
        search = self.search
        search.cost[self.rows[at], first : first + len(more)] = np.inf
        copies = np.ceil(self.copies[at, 0][:, None] * np.array(more))
        fresh = np.isfinite(self.cost[at, 0])[:, None] & (np.diff(copies, axis=1, prepend=0.0) > 0.0)
        fresh[:, 1:] &= copies[:, 1:] * self.usd[at][:, None] <= search.dearest
        if len(more) > 1:
            self.cost[at, 1:] = np.inf
            rows, columns = np.nonzero(fresh[:, 1:])
            self._settle(at[rows], copies[rows, columns + 1], columns + 1)
        rows, columns = np.nonzero(fresh)
        ready = at[rows]
        near = np.isfinite(self.cost[ready, columns]) & ((columns == 0) | (self.cost[ready, columns] <= search.dearest))
        ready, columns = ready[near], columns[near]
        taken, sources = self.copies[ready, columns], self.prefill_copies[ready, columns]
        server, slots = self.whole(ready, columns), self.slots[ready, columns]
        batch = goodput.batch_for(server, self.load / taken, slots)
        shown = goodput.point(server, batch, slots, {})
        place = self.rows[ready], first + columns
        search.cost[place], search.copies[place], search.batch[place] = self.cost[ready, columns], taken, batch
        search.tpot[place], search.ttft[place] = shown.tpot_s, shown.ttft_s
        search.devices[place] = taken * self.count[ready] + sources * self.count[self.prefill[ready, columns]]

    def count_exactly(self, at: NDArray[np.intp], column: NDArray[np.intp]) -> NDArray[np.intp]:
        """Count the memory of pools as their engines do; gives the deployments whose pools have to be found again."""
        search, again = self.search, np.zeros(len(self.rows), dtype=bool)
        for place, j in zip(at, column, strict=True):
            if not self.exact[place]:
                row, slots = int(self.rows[place]), float(self.slots[place, j])
                self.capacity[place] = search.engine_capacity(row, slots, float(self.capacity[place]))
                self.exact[place] = again[place] = True
            source = self.prefill[place, j]
            if not self.prompts_counted[source]:
                self.prompts_counted[source] = True
                ranks = float(self.ranks[source])
                row, most = int(self.rows[source]), float(self.capacity[source])
                if search.engine_capacity(row, ranks, most, self.budget) < ranks:
                    self.takes_prompts[source] = False
                    again |= (self.prefill == source).any(axis=1)
        return np.flatnonzero(again)


def _at_once(rate: Floats, _percentile: float | None) -> Floats:
    return 0.0 * rate
