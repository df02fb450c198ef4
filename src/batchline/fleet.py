r"""A fleet for several workloads: how many replicas of which deployment serve which load, for the least money.

An integer program over the capacities that `batchline.planner` finds, solved by HiGHS:

    minimise    sum of usd_d n_dw                            n_dw replicas of deployment d serve workload w
    such that   sum over d of cap_dw n_dw >= rate_w          every workload is served
                sum over d on a, w of G_d n_dw <= have_a     no more devices of an accelerator than there are

With `shared` a replica may divide its time between workloads: n_d replicas and the time y_dw that they give to each,
with the sum of y_dw at most n_d; the capacity of a mix is then taken as linear between those of the parts.

References
----------
[1] Q. Huangfu and J. Hall, Parallelizing the dual revised simplex method, 2018: HiGHS, by `scipy.optimize.milp`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.cost import usd_per_month
from batchline.errors import InputError, MissingFactError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Assignment", "Fleet", "Pool", "fleet"]

_SLACK = 1e-9  # a workload counts as served from this close to its rate on
_TIGHTER = 2e-6  # HiGHS lets a constraint slip by 1e-6


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A deployment that can be started any number of times.

    Parameters
    ----------
    name : str
        What to call it.
    accelerator : str
        Accelerator it runs on: availability is counted by this name.
    devices : int
        Accelerators of one replica [device].
    usd_per_hour : float or None
        Price of one replica [USD/h].
    capacity : mapping of str to float
        Requests that one replica serves of each workload while it keeps that workload's promise [1/s]. A workload that
        is missing cannot be served by this deployment.
    """

    name: str
    accelerator: str
    devices: int
    usd_per_hour: float | None
    capacity: Mapping[str, float] = field(hash=False)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Replicas of one pool.

    Parameters
    ----------
    pool : str
        The pool's name.
    accelerator : str
        Its accelerator.
    workload : str
        Workload that they serve; with `shared` the workloads, joined by " + ".
    replicas : int
        How many [-].
    devices : int
        Accelerators of all of them [device].
    usd_per_hour : float
        Price of all of them [USD/h].
    utilisation : float
        Share of their capacity that the load takes [-].
    """

    pool: str
    accelerator: str
    workload: str
    replicas: int
    devices: int
    usd_per_hour: float
    utilisation: float


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Answer of `fleet`.

    Parameters
    ----------
    assignments : tuple of Assignment
        What to start, dearest first.
    usd_per_hour : float
        Price of the fleet [USD/h].
    bound_usd_per_hour : float
        No fleet is cheaper than this [USD/h].
    """

    assignments: tuple[Assignment, ...]
    usd_per_hour: float
    bound_usd_per_hour: float

    @property
    def usd_per_month(self) -> float:
        """Price of 730 hours [USD/month]."""
        return float(usd_per_month(self.usd_per_hour))

    @property
    def gap(self) -> float:
        """How much cheaper a fleet could be at the most, as a share [-]; 0 when this is the optimum."""
        missing = self.usd_per_hour - self.bound_usd_per_hour
        return 0.0 if missing <= 1e-6 * self.usd_per_hour else missing / self.usd_per_hour

    @property
    def proven(self) -> bool:
        """Whether no cheaper fleet exists."""
        return self.gap == 0.0

    @property
    def devices(self) -> dict[str, int]:
        """Accelerators by name [device]."""
        found: dict[str, int] = {}
        for row in self.assignments:
            found[row.accelerator] = found.get(row.accelerator, 0) + row.devices
        return found

    def to_dict(self) -> dict[str, Any]:
        """Give everything, with the names of the JSON output.

        Returns
        -------
        dict
            `assignments` and the scalars.
        """
        return {
            "assignments": [vars(row) for row in self.assignments],
            "usd_per_hour": self.usd_per_hour,
            "usd_per_month": self.usd_per_month,
            "bound_usd_per_hour": self.bound_usd_per_hour,
            "gap": self.gap,
            "proven": self.proven,
            "devices": self.devices,
        }


def fleet(
    demand: Mapping[str, float],
    pools: Sequence[Pool],
    available: Mapping[str, int] | None = None,
    *,
    headroom: float = 0.0,
    shared: bool = False,
    time_limit_s: float = 30.0,
) -> Fleet:
    """Choose the cheapest replicas that serve every workload.

    Parameters
    ----------
    demand : mapping of str to float
        Rate of each workload [1/s].
    pools : sequence of Pool
        Deployments to choose from, with what each can serve.
    available : mapping of str to int, optional
        Devices that there are of an accelerator; one that is not named has no limit [device].
    headroom : float
        Share of the rate to serve on top [-].
    shared : bool
        Let a replica divide its time between workloads.
    time_limit_s : float
        Stop the search after this time and state the gap that is left [s].

    Returns
    -------
    Fleet
        Replicas, price, and the bound that proves it.

    Raises
    ------
    InputError
        A workload that no pool serves, a rate that is not positive, or too few devices: then it says how many more of
        which accelerator would do.
    MissingFactError
        A pool without a price.

    Examples
    --------
    >>> pools = [
    ...     Pool(name="big", accelerator="h200", devices=2, usd_per_hour=7.0, capacity={"chat": 9.0, "long": 2.0}),
    ...     Pool(name="small", accelerator="l40s", devices=1, usd_per_hour=0.9, capacity={"chat": 1.0}),
    ... ]
    >>> found = fleet({"chat": 10.0, "long": 1.0}, pools)
    >>> [(row.pool, row.workload, row.replicas) for row in found.assignments], round(found.usd_per_hour, 2)
    ([('big', 'chat', 1), ('big', 'long', 1), ('small', 'chat', 1)], 14.9)
    >>> found.proven
    True
    """
    _check(demand, pools, headroom)
    limits = dict(available or {})
    problem = _Problem.of({name: rate * (1.0 + headroom) for name, rate in demand.items()}, pools, limits, shared)
    counts, bound = problem.cheapest(time_limit_s)
    if counts is None:
        raise _too_few(problem, time_limit_s)
    rows = _shared_rows(problem, counts) if shared else _rows(problem, counts)
    rows.sort(key=lambda row: -row.usd_per_hour)
    usd = sum(row.usd_per_hour for row in rows)
    return Fleet(assignments=tuple(rows), usd_per_hour=usd, bound_usd_per_hour=min(bound, usd))


def _check(demand: Mapping[str, float], pools: Sequence[Pool], headroom: float) -> None:
    if not demand:
        raise InputError(Sentence("error.no_workload"), "", Sentence("error.name_workloads"))
    if headroom < 0 or not math.isfinite(headroom):
        raise InputError(Sentence("error.headroom_from_0", given=f"{headroom:g}"))
    for name, rate in demand.items():
        if not (rate > 0 and math.isfinite(rate)):
            raise InputError(
                Sentence("error.fleet_rate", name=name, given=f"{rate:g}"), Sentence("error.above_0_per_s")
            )
        if not any(pool.capacity.get(name, 0.0) > 0 for pool in pools):
            raise InputError(
                Sentence("error.no_pool_serves", name=name),
                "",
                Sentence("error.add_pool"),
            )
    for pool in pools:
        if pool.usd_per_hour is None:
            raise MissingFactError(
                Sentence("error.no_pool_price", name=pool.name), "", Sentence("error.price_in_dollars")
            )
        if pool.devices < 1 or not pool.usd_per_hour > 0:
            raise InputError(Sentence("error.pool_needs", name=pool.name))


@dataclass(frozen=True)
class _Problem:
    """Columns of the integer program: one for each pool and workload that it can serve."""

    demand: Mapping[str, float]
    pools: Sequence[Pool]
    limits: Mapping[str, int]
    pairs: list[tuple[int, str]]  # pool, workload
    served: NDArray[np.float64]  # share of each workload's rate by one replica: workloads x pairs
    shared: bool

    @classmethod
    def of(
        cls, demand: Mapping[str, float], pools: Sequence[Pool], limits: Mapping[str, int], shared: bool
    ) -> _Problem:
        pairs = [(i, name) for i, pool in enumerate(pools) for name in demand if pool.capacity.get(name, 0.0) > 0]
        served = np.array(
            [
                [pools[i].capacity[name] / rate if name == row else 0.0 for i, name in pairs]
                for row, rate in demand.items()
            ]
        )
        return cls(demand, pools, limits, pairs, served, shared)

    def cheapest(self, time_limit_s: float) -> tuple[NDArray[np.float64] | None, float]:
        """Replicas (or with sharing their time) for each pair, and a bound below every fleet's price."""
        counts, bound = self._solve(1.0, time_limit_s)
        if counts is not None and not self._serves(counts):
            counts, _ = self._solve(1.0 + _TIGHTER, time_limit_s)
        return counts, bound

    def _serves(self, counts: NDArray[np.float64]) -> bool:
        return bool(np.all(self.served @ counts[: len(self.pairs)] >= 1.0 - _SLACK))

    def _solve(
        self, needed: float, time_limit_s: float, *, extra: bool = False
    ) -> tuple[NDArray[np.float64] | None, float]:
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415  (half a second, fleets only)

        cost, integral, rows = self._columns(extra=extra)
        served = np.hstack([self.served, np.zeros((len(self.demand), len(cost) - len(self.pairs)))])
        constraints = [LinearConstraint(served, lb=needed), *(LinearConstraint(row, ub=high) for row, high in rows)]
        found = milp(
            cost,
            constraints=constraints,
            integrality=integral,
            bounds=Bounds(lb=0.0),
            options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
        )
        if found.x is None:
            return None, math.inf
        counts = np.where(integral == 1, np.round(found.x), found.x)
        bound = float(found.mip_dual_bound) if found.mip_dual_bound is not None else 0.0
        return counts, bound

    def _columns(self, *, extra: bool) -> tuple[NDArray[np.float64], NDArray[np.int64], list[tuple[Any, float]]]:
        """Cost and integrality of the columns, and the rows that are at most something.

        Columns: the pairs; with sharing, the replicas of each pool; with `extra`, further devices of each limited
        accelerator, which are then all that costs.
        """
        pairs, pools, limited = len(self.pairs), len(self.pools), list(self.limits)
        width = pairs + (pools if self.shared else 0)
        owner = np.array([i for i, _ in self.pairs] + (list(range(pools)) if self.shared else []))
        bought = np.arange(width) >= pairs if self.shared else np.ones(width, dtype=bool)
        usd = np.array([float(pool.usd_per_hour or 0.0) for pool in self.pools])
        cost = np.concatenate([np.where(bought, usd[owner], 0.0), np.zeros(len(limited) if extra else 0)])
        rows: list[tuple[Any, float]] = []
        for i in range(pools if self.shared else 0):  # the time given away is at most that of the replicas
            row = np.zeros(len(cost))
            row[:pairs] = owner[:pairs] == i
            row[pairs + i] = -1.0
            rows.append((row, 0.0))
        for j, name in enumerate(limited):
            row = np.zeros(len(cost))
            on = np.array([self.pools[i].devices if self.pools[i].accelerator == name else 0 for i in owner])
            row[:width] = np.where(bought, on, 0)
            if extra:
                row[width + j] = -1.0
            rows.append((row, float(self.limits[name])))
        if extra:
            cost = np.concatenate([np.zeros(width), np.ones(len(limited))])
        integral = np.concatenate([bought, np.ones(len(cost) - width)]).astype(np.int64)
        return cost, integral, rows

    def missing_devices(self, time_limit_s: float) -> dict[str, int]:
        """Fewest further devices with which the demand can be met."""
        counts, _ = self._solve(1.0, time_limit_s, extra=True)
        if counts is None:
            return {}
        more = counts[len(counts) - len(self.limits) :]
        return {name: round(float(n)) for name, n in zip(self.limits, more, strict=True) if n > 0.5}


def _too_few(problem: _Problem, time_limit_s: float) -> InputError:
    missing = problem.missing_devices(time_limit_s)
    if not missing:
        return InputError(Sentence("error.no_fleet_in_time"), "", Sentence("error.more_time"))
    more = ", ".join(f"{n} {name}" for name, n in missing.items())
    have = ", ".join(f"{n} {name}" for name, n in problem.limits.items())
    return InputError(
        Sentence("error.devices_short", have=have), Sentence("error.would_do", more=more), Sentence("error.lower_rates")
    )


def _rows(problem: _Problem, counts: NDArray[np.float64]) -> list[Assignment]:
    load = 1.0 / (problem.served @ counts)  # the replicas of a workload share its load by their capacity
    names = list(problem.demand)
    return [
        _assignment(problem.pools[i], name, round(float(n)), float(load[names.index(name)]))
        for (i, name), n in zip(problem.pairs, counts, strict=True)
        if n > 0.5
    ]


def _shared_rows(problem: _Problem, counts: NDArray[np.float64]) -> list[Assignment]:
    pairs = len(problem.pairs)
    rows = []
    for i, pool in enumerate(problem.pools):
        replicas = round(float(counts[pairs + i]))
        if replicas == 0:
            continue
        times = {
            name: float(y) for (j, name), y in zip(problem.pairs, counts[:pairs], strict=True) if j == i and y > 1e-9
        }
        rows.append(_assignment(pool, " + ".join(times), replicas, min(1.0, sum(times.values()) / replicas)))
    return rows


def _assignment(pool: Pool, workload: str, replicas: int, utilisation: float) -> Assignment:
    return Assignment(
        pool=pool.name,
        accelerator=pool.accelerator,
        workload=workload,
        replicas=replicas,
        devices=replicas * pool.devices,
        usd_per_hour=replicas * float(pool.usd_per_hour or 0.0),
        utilisation=utilisation,
    )
