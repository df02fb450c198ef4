"""Search with the simulator: the fewest replicas, the best knob, by bracketing.

More replicas never make a promise harder to keep, so the fewest are found by doubling and halving. A knob such as
`max_num_seqs` has a best value somewhere in between: too few seats leave the machine empty, too many make tokens slow
or the cache thrash. It is found on a grid of doublings, then between the neighbours of the best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from batchline.errors import InputError
from batchline.simulate.sweep import Case, sweep
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor

    from batchline.goodput import Promise
    from batchline.simulate.pool import Pool
    from batchline.simulate.result import Result
    from batchline.workload import Traffic

__all__ = ["Found", "best_knob", "smallest_replicas"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What a search found.

    Parameters
    ----------
    value : int
        Replicas or knob.
    result : Result
        Simulation of it.
    tried : mapping of int to Result
        All values that were simulated.
    """

    value: int
    result: Result
    tried: Mapping[int, Result]


def _keeps(result: Result) -> bool:
    return all(result.keeps().values())


def smallest_replicas(
    pool: Pool,
    traffic: Traffic,
    promises: Mapping[str, Promise],
    *,
    most: int = 1024,
    source: Callable[[], Executor] | None = None,
    **options: Any,
) -> Found:
    """Find the fewest replicas that keep all promises.

    Parameters
    ----------
    pool : Pool
        Engines; its number of replicas does not matter.
    traffic : Traffic
        Requests, with arrivals of their own.
    promises : mapping of str to Promise
        What must hold, by metric.
    most : int
        Give up beyond this [-].
    source : callable, optional
        As in `sweep`: several numbers are then tried at once.
    **options
        Of `simulate`.

    Returns
    -------
    Found
        The fewest.

    Raises
    ------
    InputError
        No promise was given, or not even `most` replicas keep them.
    """
    if not promises:
        raise InputError(Sentence("error.fewest_for_what"), hint=Sentence("error.promise_something"))

    tried: dict[int, Result] = {}

    def keeps(counts: list[int]) -> list[bool]:
        cases = [
            Case(pool=replace(pool, replicas=count), traffic=traffic, options={**options, "promises": promises})
            for count in counts
        ]
        for place, result in sweep(cases, source):
            tried[counts[place]] = result
        return [_keeps(tried[count]) for count in counts]

    width = 1 if source is None else 4
    low, high = 0, 0
    while not high:
        first = 2 * low or 1
        counts = [first * 2**step for step in range(width) if first * 2**step <= most] or [most]
        for count, good in zip(counts, keeps(counts), strict=True):
            if good:
                high = count
                break
            low = count
        if not high and low >= most:
            kept = tried[most].keeps()
            broken = ", ".join(metric for metric, good in kept.items() if not good)
            raise InputError(
                Sentence("error.not_even", most=f"{most:,}", names=broken), hint=Sentence("error.promise_less")
            )
    while high - low > 1:
        inner = sorted({low + math.ceil((high - low) * part / (width + 1)) for part in range(1, width + 1)} - {high})
        for count, good in zip(inner, keeps(inner), strict=True):
            if good:
                high = count
                break
            low = count
    return Found(value=high, result=tried[high], tried=dict(sorted(tried.items())))


def best_knob(
    pool_at: Callable[[int], Pool],
    traffic: Traffic,
    promises: Mapping[str, Promise],
    *,
    low: int,
    high: int,
    source: Callable[[], Executor] | None = None,
    **options: Any,
) -> Found:
    """Find the value of a knob that serves best.

    Parameters
    ----------
    pool_at : callable
        Engines with a value of the knob.
    traffic : Traffic
        Requests.
    promises : mapping of str to Promise
        What should hold; values that keep all promises come before those that do not.
    low, high : int
        Smallest and largest value [-].
    source : callable, optional
        As in `sweep`.
    **options
        Of `simulate`.

    Returns
    -------
    Found
        Value with the most goodput; among equals, that with the shortest mean E2E.

    Raises
    ------
    InputError
        No such range.
    """
    if not 1 <= low <= high:
        raise InputError(Sentence("error.empty_knob", low=f"{low}", high=f"{high}"))
    tried: dict[int, Result] = {}

    def look(values: set[int]) -> int:
        new = sorted(values - set(tried))
        cases = [Case(pool=pool_at(value), traffic=traffic, options={**options, "promises": promises}) for value in new]
        for place, result in sweep(cases, source):
            tried[new[place]] = result
        return max(tried, key=lambda value: _rank(tried[value]))

    grid = {low, high}
    value = low
    while value < high:
        grid.add(value)
        value *= 2
    best = look(grid)
    step = best
    while step > max(1, best // 16):
        step = max(step // 2, 1)
        best = look({value for value in (best - step // 2, best + step) if low <= value <= high} | {best})
    return Found(value=best, result=tried[best], tried=dict(sorted(tried.items())))


def _rank(result: Result) -> tuple[bool, float, float]:
    return _keeps(result), round(result.goodput, 6), -result.times["e2e"].mean
