"""Many simulations at once: on processes, on threads, on a Dask cluster, or one after the other; the same answers.

Everything goes through `concurrent.futures`, so any executor does. A simulation draws nothing at random but what its
traffic's seed says, so where it runs does not matter. Results are handed out as they come; what a lost worker was
doing is done again.
"""

from __future__ import annotations

import importlib
import re
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from batchline.errors import ConfigError, InputError
from batchline.simulate.replay import simulate
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from batchline.simulate.pool import Pool
    from batchline.simulate.result import Result
    from batchline.workload import Traffic

__all__ = ["Case", "cluster", "processes", "sweep"]

_TRIES = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One simulation of many.

    Parameters
    ----------
    pool : Pool
        Engines.
    traffic : Traffic
        Requests. It travels to the worker: patterns and traces as their description, arrays whole.
    options : mapping
        Further arguments of `simulate`.
    name : str
        What it is, for people.
    """

    pool: Pool
    traffic: Traffic
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def run(self) -> Result:
        """Simulate it.

        Returns
        -------
        Result
            What was found.
        """
        return simulate(self.pool, self.traffic, **self.options)


def _run(case: Case) -> Result:
    return case.run()


@contextmanager
def processes(workers: int | None = None) -> Iterator[Callable[[], Executor]]:
    """Give a source of process pools: a fresh one when the last broke.

    Parameters
    ----------
    workers : int, optional
        Processes; default one for each core.

    Yields
    ------
    callable
        For `sweep`.
    """
    made: list[Executor] = []

    def fresh() -> Executor:
        made.append(ProcessPoolExecutor(workers))
        return made[-1]

    try:
        yield fresh
    finally:
        for executor in made:
            executor.shutdown(wait=False, cancel_futures=True)


@contextmanager
def cluster(address: str) -> Iterator[Callable[[], Executor]]:
    """Give a Dask cluster as a source of executors. Its scheduler gives the tasks of a lost worker to another.

    Parameters
    ----------
    address : str
        Of the scheduler, like "tcp://10.0.0.1:8786".

    Yields
    ------
    callable
        For `sweep`.

    Raises
    ------
    InputError
        That is no address, or dask.distributed is not installed.
    ConfigError
        Nobody answers at the address.
    """
    if not re.fullmatch(r"(tcp|tls|ws|wss)://[^\s/]+:\d+", address):
        raise InputError(Sentence("error.no_dask_address", address=repr(address)), Sentence("error.dask_looks_like"))
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise InputError(Sentence("error.no_distributed"), hint=Sentence("error.install_cluster")) from None
    try:
        client = distributed.Client(address, timeout="10s")
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(
            Sentence("error.no_dask", address=f"{address}", reason=f"{error}"), hint=Sentence("error.start_dask")
        ) from None
    try:
        yield client.get_executor
    finally:
        client.close()


def sweep(
    cases: Sequence[Case],
    source: Callable[[], Executor] | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[int, Result]]:
    """Simulate many cases and hand out each as it is done.

    Parameters
    ----------
    cases : sequence of Case
        What to simulate.
    source : callable, optional
        Makes an executor, and another when that one breaks (`processes`, `cluster`); default none: one after the other.
    progress : callable, optional
        Told how many are done, and of how many.

    Yields
    ------
    int, Result
        Place among the cases, and what was found.

    Raises
    ------
    InputError
        A worker was lost again and again.

    Examples
    --------
    >>> from batchline.simulate import Pool, Vllm
    >>> from batchline.simulate.clock import Clock
    >>> from batchline.workload import of_requests
    >>> import numpy as np
    >>> flat = Clock(decode_s=np.full(9, 0.02), expert_s=np.zeros(9), knots=np.array([0]), kv_s=np.zeros(1),
    ...              kv_slope_s=np.zeros(1), attention_s=np.zeros(1001))
    >>> pool = Pool(clock=flat, scheduler=Vllm(max_num_seqs=8))
    >>> cases = [Case(pool=pool, traffic=of_requests([0.0], 100, n)) for n in (1, 2)]
    >>> [(place, round(found.times["e2e"].mean, 3)) for place, found in sweep(cases)]
    [(0, 0.02), (1, 0.04)]
    """
    for done, (place, result) in enumerate(_each(cases, source), start=1):
        if progress is not None:
            progress(done, len(cases))
        yield place, result


def _each(cases: Sequence[Case], source: Callable[[], Executor] | None) -> Iterator[tuple[int, Result]]:
    if source is None:
        for place, case in enumerate(cases):
            yield place, case.run()
        return
    left = set(range(len(cases)))
    for _ in range(_TRIES):
        executor = source()
        futures: dict[Future[Result], int] = {executor.submit(_run, cases[place]): place for place in sorted(left)}
        try:
            for future in as_completed(futures):
                place = futures[future]
                result = future.result()
                left.discard(place)
                yield place, result
        except BrokenExecutor:
            continue  # a worker died: what is left starts again on a fresh executor
        return
    raise InputError(
        Sentence("error.worker_lost", tries=f"{_TRIES}", count=f"{len(left)}"),
        hint=Sentence("error.more_worker_memory"),
    )
