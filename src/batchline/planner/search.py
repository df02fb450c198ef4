"""The search: the load that each deployment carries, its cost, and which lead once memory is counted exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import goodput
from batchline.accelerator import resolve
from batchline.engine import Request, account
from batchline.errors import BatchlineError, UnknownNameError
from batchline.goodput import Server
from batchline.planner import considered
from batchline.planner.disaggregation import Pools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from batchline.planner.question import Question
    from batchline.roofline import Floats
    from batchline.space import Space

__all__ = ["ROUNDS", "Search"]

ROUNDS = 40
_MORE = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)  # replicas over the fewest: dearer and faster
_DEAREST = 4.0  # the front ends at so many times the cheapest
_SEEDS = 12  # rows of each kind that are looked at first
_SHOWN = 3
_ALIKE = 0.02  # times that differ by less are not worth a place on the front: predictions miss by more


class Search:
    """One question, its space, and what each deployment of it carries, costs and shows.

    Parameters
    ----------
    question : Question
        What is asked.
    space : Space
        Deployments that it leaves open, as `considered.space_of` gives them.
    """

    def __init__(self, question: Question, space: Space) -> None:
        self.question = question
        self.architecture = architecture = space.architecture
        self.promises = question.promises
        self.refused = dict(space.refused)
        self.space = space
        self.budgets = considered.telling_budgets(question, space)
        n, width = space.size, len(self.budgets)
        rows = np.repeat(np.arange(n), width)
        self.rows = space.take(rows)
        self.budget = np.tile(np.array(self.budgets, dtype=float), n)
        self.capacity = self.rows.capacity_batch.copy()
        self.load = question.users if question.users is not None else question.rate
        have = {resolve(name): float(number) for name, number in question.available.items()}
        limits = np.array([have.get(device.name, np.inf) for device in space.accelerators])
        measured = {resolve(name): factor for name, factor in question.slower.items()}
        self.slower = np.array([measured.get(device.name, 1.0) for device in space.accelerators])
        held = np.array([architecture.weight_bytes(name) for name in space.weights])
        read = np.array([float(architecture.kv_bytes_per_token(name)) for name in space.kvs])
        kept = np.round(held / held.max(initial=1.0), 2)  # scales are not bits of a weight: int8 keeps no more than fp8
        self.kept_bits = kept[self.rows.weight] + 1e-3 * read[self.rows.kv] / read.max(initial=1.0)
        # A pair is a row and a column: how many replicas, and in the second half of the columns with prompts elsewhere.
        size, shape = len(rows), (len(rows), 2 * len(_MORE))
        self.there = limits[self.rows.accelerator] if size else np.zeros(0)
        self.exact, self.keeps, self.lacking = (np.zeros(size, dtype=bool) for _ in range(3))
        self.slots, self.most, self.allowed, self.replicas = (np.zeros(size) for _ in range(4))
        self.why = np.full(size, "", dtype="<U12")
        self.cost = np.full(shape, np.inf)
        self.tpot, self.ttft, self.devices, self.batch, self.copies = (np.zeros(shape) for _ in range(5))
        self.dearest = np.inf  # cost at which the front ends
        self.tp = np.array([one.tp for one in space.layouts], dtype=np.intp)[self.rows.layout]
        # What the cheapest is told of: each accelerator, format, engine and degree of tensor parallelism.
        self.leads = np.stack([self.rows.accelerator, self.rows.weight, self.rows.kv, self.rows.engine, self.tp])
        self.floor, self.decided = np.zeros(size), np.zeros(size, dtype=bool)
        apart = question.disaggregation and question.rate is not None and size > 0
        self.pools = Pools(self, question.rate, len(_MORE)) if apart and question.rate is not None else None

    # -- the load that each deployment carries -------------------------------------------------------------------------

    def server(self, index: NDArray[np.intp], *, sure: bool = True, apart: bool = False) -> Server:
        """Replicas of some rows; `sure` slows them as far as the asked confidence wants."""
        q, rows = self.question, self.rows.take(index)
        slower = self.slower[rows.accelerator] * (self._factor("tpot", rows.factors) if sure else 1.0)
        return Server(
            ideal=rows.ideal,
            coefficients=rows.coefficients,
            isl=q.isl,
            osl=q.osl,
            capacity_batch=self.capacity[index],
            max_batch=float(q.max_batch),
            budget=self.budget[index],
            prefix_hit_rate=q.prefix_hit_rate,
            arrival_scv=q.arrival_scv,
            length_scv=q.length_scv,
            slower=slower,
            slower_ttft=self._factor("ttft", rows.widest if apart else rows.factors) if sure else 1.0,
        )

    def _factor(self, of: str, factors: Mapping[str, NDArray[np.float64]]) -> Floats:
        """Each promise is kept with the n-th root of the confidence, so that all n hold with it."""
        if self.question.confidence is None or not self.promises:
            return 1.0
        measures = {"ttft": ("ttft", "e2e"), "tpot": ("tpot", "itl", "e2e")}
        promised = [name for name, promises in measures.items() if any(one in self.promises for one in promises)]
        if of not in promised:
            return 1.0
        return goodput.factor_at(self.question.confidence ** (1.0 / len(promised)), factors[of])

    def carry(self, index: NDArray[np.intp]) -> None:
        """Find for each row the most load of a replica, the load it is given at the most, and the fewest replicas."""
        q = self.question
        limit = goodput.goodput(self.server(index), self.promises)
        keeps, requests = np.asarray(limit.keeps), np.asarray(limit.point.requests_per_s, dtype=float)
        with np.errstate(invalid="ignore"):  # a replica that serves nobody keeps them waiting for ever: 0 x infinity
            most = requests if q.users is None else requests * (q.think_s + np.asarray(limit.point.e2e_s))
        allowed = np.where(keeps, most, 0.0) * (1.0 - q.headroom)
        with np.errstate(divide="ignore", invalid="ignore"):
            fewest = np.ones_like(most) if self.load is None else np.ceil(self.load / allowed * (1.0 - 1e-12))
        fewest = np.where(allowed > 0, np.maximum(fewest, 1.0), np.inf)
        self.slots[index], self.why[index], self.most[index] = limit.slots, limit.saturated_by, requests
        self.allowed[index], self.replicas[index] = allowed, np.where(np.isfinite(fewest), fewest, 1.0)
        self.keeps[index] = keeps & np.isfinite(fewest) & (self.capacity[index] > 0)
        self.lacking[index] = self.keeps[index] & (self.replicas[index] * self.rows.count[index] > self.there[index])
        self.keeps[index] &= ~self.lacking[index]

    # -- the search ----------------------------------------------------------------------------------------------------

    def settle(self, *, brief: bool = False) -> list[tuple[int, int]]:
        """Cheapest pairs, once nothing that leads by cost or on the front is flattered; `brief` looks at cost alone.

        No row costs less than its floor, so those whose floor is above all that they could lead need no closer look. An
        exact count of memory only takes away, so a pair that an exactly counted one beats stays beaten.
        """
        if len(self.budget) == 0:
            return []
        more = _MORE[:1] if brief or self.load is None else _MORE
        self.floor = self._floor()
        if self.pools is not None:
            self.pools.find_floor()
        self._look(_MORE[:1], brief=brief, seeds=True)
        self._look(_MORE[:1], brief=brief)
        self.dearest = _DEAREST * float(self.cost.min())
        if len(more) > 1:
            self._points(np.flatnonzero(self.decided), more)
            if self.pools is not None:
                self.pools.points(np.flatnonzero(self.pools.decided), more, len(_MORE))
        for _ in range(ROUNDS):
            if self._count_exactly(self._first() if brief else self._leaders(), more):
                continue
            if not self._look(more, brief=brief):
                break
        if not brief:
            self._refuse()
        return self._first() if brief else self._cheapest()

    def _floor(self) -> NDArray[np.float64]:
        """Cost that no row goes below; 0 where that is not known."""
        q = self.question
        if q.users is not None or q.available:
            return np.zeros(len(self.budget))  # the load depends on the answer, or those that lack devices are counted
        most = goodput.ceiling(self.server(np.arange(len(self.budget))), self.promises) * (1.0 - q.headroom)
        with np.errstate(divide="ignore"):
            if self.load is None:
                return np.asarray(self.rows.usd_per_hour / 3600.0 / most)
            return np.asarray(np.maximum(np.ceil(self.load / most * (1.0 - 1e-9)), 1.0) * self.rows.usd_per_hour)

    def _look(self, more: tuple[float, ...], *, brief: bool, seeds: bool = False) -> bool:
        """Look closely at the rows and pools whose floor is below what they could lead; False when there are none."""
        rows = self._worth(self.floor, self.decided, np.arange(len(self.budget)), 0, brief=brief, seeds=seeds)
        self.decided[rows] = True
        self.carry(rows)
        self._points(rows, more)
        if self.pools is None:
            return len(rows) > 0
        pools = self.pools
        at = self._worth(pools.floor, pools.decided, pools.rows, len(_MORE), brief=brief, seeds=seeds)
        pools.decided[at] = True
        pools.carry(at)
        pools.points(at, more, len(_MORE))
        return len(rows) > 0 or len(at) > 0

    def _worth(
        self,
        floor: NDArray[np.float64],
        decided: NDArray[np.bool_],
        rows: NDArray[np.intp],
        half: int,
        *,
        brief: bool,
        seeds: bool,
    ) -> NDArray[np.intp]:
        """Which of some rows may lead; to begin with, those of the lowest floors of each kind."""
        if seeds:
            order = np.argsort(floor, kind="stable")
            found = np.zeros(len(rows), dtype=bool)
            found[order[:_SEEDS]] = True
            for kind in () if brief else self.leads[:, rows[order]]:
                for value in range(int(kind.max(initial=-1)) + 1):
                    found[order[np.flatnonzero(kind == value)[:_SEEDS]]] = True
            return np.flatnonzero(found & np.isfinite(floor))
        best = self.cost[:, :: len(_MORE)]
        if brief:
            limit = np.full(len(rows), best.min())
        else:
            limit = np.full(len(rows), max(_DEAREST * best.min(), best[:, half // len(_MORE)].min()))
            cheapest = best.min(axis=1)
            for kind in self.leads:
                of_kind = np.full(1 + int(kind.max(initial=0)), np.inf)
                np.minimum.at(of_kind, kind, cheapest)
                limit = np.maximum(limit, of_kind[kind[rows]])
        return np.flatnonzero(~decided & np.isfinite(floor) & (floor <= limit * (1.0 + 1e-9)))

    def is_apart(self, column: int) -> bool:
        """Whether a column is of prompts and decoding on machines of their own."""
        return column >= len(_MORE)

    def apart(self, pairs: list[tuple[int, int]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Where pairs of that kind stand in the arrays of the pools."""
        rows, columns = (np.array(part, dtype=np.intp) for part in (zip(*pairs, strict=True) if pairs else ((), ())))
        return (rows if self.pools is None else self.pools.at[rows]), columns - len(_MORE)

    def _refuse(self) -> None:
        """Count deployments that no budget makes fit for the load, by the reason."""
        fit = np.isfinite(self.cost).any(axis=1)
        rest = np.flatnonzero(~self.decided & ~fit)
        fit[rest] = goodput.keeps_alone(self.server(rest), self.promises)
        if self.pools is not None:
            at = self.pools.at[~fit & (self.pools.at >= 0)]
            at = at[~self.pools.decided[at]]
            fit[self.pools.rows[at]] = self.pools.keeps_alone(at)
        kept, lacking = np.zeros(self.space.size, dtype=bool), np.zeros(self.space.size, dtype=bool)
        origin = np.arange(len(fit)) // len(self.budgets)
        np.logical_or.at(kept, origin, fit)
        np.logical_or.at(lacking, origin, self.lacking)
        counts = {
            "more devices than are available": int((lacking & ~kept).sum()),
            "the promises are missed even by a single request": int((~kept & ~lacking).sum()),
        }
        self.refused |= {reason: n for reason, n in counts.items() if n}

    def _points(self, rows: NDArray[np.intp], more: tuple[float, ...]) -> None:
        """Find what rows show at the stated load with the fewest replicas and with more."""
        q = self.question
        self.cost[rows, : len(more)] = np.inf
        rows = rows[self.keeps[rows]]
        copies = np.ceil(self.replicas[rows][:, None] * np.array(more))
        fresh = (np.diff(copies, axis=1, prepend=0.0) > 0.0) & (
            copies * self.rows.count[rows][:, None] <= self.there[rows][:, None]
        )
        fresh[:, 1:] &= copies[:, 1:] * self.rows.usd_per_hour[rows][:, None] <= self.dearest
        each, columns = np.nonzero(fresh)
        here, copies = rows[each], copies[each, columns]
        server, slots = self.server(here, sure=False), self.slots[here]
        load = self.allowed[here] if self.load is None else self.load / copies
        batch = goodput.batch_for(server, load, slots, think_s=q.think_s if q.users is not None else None)
        shown = goodput.point(server, batch, slots, {})
        usd = copies * self.rows.usd_per_hour[here]
        place = here, columns
        # Without a load a replica is judged by what a request costs when it carries the most.
        self.cost[place] = usd if self.load is not None else usd / 3600.0 / np.asarray(shown.requests_per_s)
        self.tpot[place], self.ttft[place] = shown.tpot_s, shown.ttft_s
        self.devices[place] = copies * self.rows.count[here]
        self.batch[place], self.copies[place] = batch, copies

    def _count_exactly(self, pairs: list[tuple[int, int]], more: tuple[float, ...]) -> bool:
        """Count the memory of pairs as their engines do, and find their load again; False when all were counted."""
        rows = np.unique(np.array([row for row, column in pairs if not self.is_apart(column)], dtype=np.intp))
        rows = rows[~self.exact[rows]]
        if len(rows):
            self.capacity[rows] = [
                self.engine_capacity(int(row), float(self.slots[row]), float(self.capacity[row])) for row in rows
            ]
            self.exact[rows] = True
            self.carry(rows)
            self._points(rows, more)
        if self.pools is None:
            return len(rows) > 0
        again = self.pools.count_exactly(*self.apart([pair for pair in pairs if self.is_apart(pair[1])]))
        if len(again):
            self.pools.carry(again)
            self.pools.points(again, more, len(_MORE))
        return len(rows) > 0 or len(again) > 0

    def engine_capacity(self, row: int, slots: float, most: float, budget: int | None = None) -> float:
        """Of `most` sequences those that a replica holds as its engine counts memory; 0 where it does not start."""
        space, q = self.rows, self.question
        layout = space.layouts[space.layout[row]]
        seqs = int(max(1, min(q.max_batch, slots // layout.dp)))
        try:
            made = account(
                self.architecture,
                space.accelerators[space.accelerator[row]],
                space.engines[space.engine[row]],
                weights=space.weights[space.weight[row]],
                kv=space.kvs[space.kv[row]],
                tp=layout.tp,
                pp=layout.pp,
                dp=layout.dp,
                ep=layout.ep,
                request=Request(
                    max_model_len=q.longest, max_num_seqs=seqs, max_num_batched_tokens=budget or int(self.budget[row])
                ),
            )
        except UnknownNameError:
            return most  # an engine without facts of its own is taken at the simple count
        except BatchlineError:
            return 0.0
        if not made.fits:
            return 0.0
        return float(min(most, made.capacity_batch(q.context)))

    def _leaders(self) -> list[tuple[int, int]]:
        return [*self._cheapest(), *self.best_of().values(), *self.front()]

    def _order(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs with the fewest replicas, cheapest first.

        At the same price fewer devices come first, then replicas that do both, more bits, a faster token, a smaller
        budget.
        """
        rows, columns = np.nonzero(np.isfinite(self.cost[:, :: len(_MORE)]))
        columns = columns * len(_MORE)
        keys = (
            rows,
            self.budget[rows],
            np.round(np.log(self.tpot[rows, columns]) / _ALIKE),
            -self.kept_bits[rows],
            columns,
            self.devices[rows, columns],
            self.cost[rows, columns].round(9),
        )
        order = np.lexsort(keys)
        return rows[order], columns[order]

    def _first(self) -> list[tuple[int, int]]:
        """The cheapest pair alone."""
        rows, columns = self._order()
        return [(int(row), int(column)) for row, column in zip(rows[:1], columns[:1], strict=True)]

    def _cheapest(self) -> list[tuple[int, int]]:
        """The cheapest pair and those of other accelerators, or failing them of other formats and sizes."""
        rows, columns = self._order()
        chosen: list[int] = []
        for kind in (("accelerator",), ("accelerator", "weight", "count")):
            values = [getattr(self.rows, name)[rows].tolist() for name in kind]
            kinds = list(zip(*values, strict=True))
            seen = {kinds[place] for place in chosen}
            for place, here in enumerate(kinds):
                if len(chosen) < _SHOWN and here not in seen:
                    seen.add(here)
                    chosen.append(place)
        own = np.array([name is None for name in self.rows.weights], dtype=bool)[self.rows.weight[rows]]
        both = columns == 0
        # Always shown: what the checkpoint itself costs, and what replicas that do both cost.
        for also in (np.flatnonzero(own)[:1].tolist(), np.flatnonzero(both)[:1].tolist()):
            chosen += [place for place in also if place not in chosen]
        return [(int(rows[place]), int(columns[place])) for place in chosen]

    def front(self) -> list[tuple[int, int]]:
        """Pareto front of cost, time per token, time to first token and devices; times within 2% count as equal."""
        rows, columns = np.nonzero(np.isfinite(self.cost) & (self.cost <= max(self.dearest, self.cost.min())))
        times = [np.log(table[rows, columns]) / _ALIKE for table in (self.tpot, self.ttft)]
        tpot, ttft = (np.floor(values - values.min(initial=0.0)).astype(np.int64) for values in times)
        devices = self.devices[rows, columns].astype(np.int64)
        order = np.lexsort((columns, rows, devices, ttft, tpot, self.cost[rows, columns]))
        # Of those alike in all but cost the first is the cheapest: the others cannot be on the front.
        alike = (tpot[order] * (ttft.max(initial=0) + 1) + ttft[order]) * (devices.max(initial=0) + 1) + devices[order]
        order = order[np.sort(np.unique(alike, return_index=True)[1])]
        rows, columns, values = rows[order], columns[order], np.stack([tpot[order], ttft[order], devices[order]])
        cheap = self.cost[rows, columns]
        front = []
        while len(rows):
            front.append((int(rows[0]), int(columns[0])))
            # The first is the cheapest of what is left: what is better in nothing else is beaten.
            left = (values[0] < values[0, 0]) | (values[1] < values[1, 0]) | (values[2] < values[2, 0])
            left |= cheap < cheap[0]
            rows, columns, values, cheap = rows[left], columns[left], values[:, left], cheap[left]
        return front

    def best_of(self) -> dict[str, tuple[int, int]]:
        """Cheapest pair for each accelerator, format, engine and degree of tensor parallelism, and for either way."""
        rows, columns = self._order()
        space = self.rows
        tp = self.tp[rows]
        named: list[tuple[str, NDArray[np.intp], Any]] = [
            ("accelerator", space.accelerator[rows], [device.name for device in space.accelerators]),
            ("weights", space.weight[rows], [name or self.architecture.weight_format for name in space.weights]),
            ("kv", space.kv[rows], space.kvs),
            ("engine", space.engine[rows], space.engines),
            ("tp", tp, range(int(tp.max(initial=0)) + 1)),
            ("prompts", columns // len(_MORE), ("together", "apart")),
        ]
        found: dict[str, tuple[int, int]] = {}
        for kind, index, names in named:
            values, first = np.unique(index, return_index=True)  # the first pair of a value is its cheapest
            found |= {
                f"{kind} {names[i]}": (int(rows[at]), int(columns[at])) for i, at in zip(values, first, strict=True)
            }
        return found
