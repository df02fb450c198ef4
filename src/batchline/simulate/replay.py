"""Traffic through pools of engines: requests in, a `Result` out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.errors import InputError, UnknownNameError
from batchline.simulate import _compile, _records, _state
from batchline.simulate._loop import codes
from batchline.simulate.result import METRICS, Result, Series, Table, exact_times, summarise
from batchline.simulate.scheduler import UNLIMITED, Static
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from batchline.goodput import Promise
    from batchline.simulate.pool import Pool
    from batchline.workload import PrefixTree, Requests, Traffic

__all__ = ["ROUTERS", "fitting", "simulate"]

ROUTERS = ("round_robin", "least_loaded", "prefix_aware")
"""How requests are spread: in turn; to the fewest requests; to the engine that has their beginning in its cache."""

_COMPILING_PAYS = 20_000  # requests that take as long uncompiled as loading the compiled loop does
_KEPT = 2_000_000  # requests that are kept one by one unless asked otherwise


def simulate(
    pool: Pool,
    traffic: Traffic,
    *,
    prefill: Pool | None = None,
    transfer_s: float = 0.0,
    transfer_token_s: float = 0.0,
    router: str = "round_robin",
    promises: Mapping[str, Promise] | None = None,
    keep_requests: bool | None = None,
    compiled: bool | None = None,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Serve requests event by event.

    Parameters
    ----------
    pool : Pool
        Engines that serve; with `prefill` they only decode.
    traffic : Traffic
        Requests, see `batchline.workload`.
    prefill : Pool, optional
        Engines that compute the prompts. Each sends one KV cache at a time to the decoding engine with the fewest
        requests, and holds it until it has arrived. The first token counts as seen then.
    transfer_s, transfer_token_s : float
        Time to set up the transfer of a KV cache [s] and for each of its tokens [s/token].
    router : str
        "round_robin", "least_loaded" or "prefix_aware".
    promises : mapping of str to Promise, optional
        Limits of "ttft", "tpot", "itl" and "e2e"; `goodput` counts requests within those of "ttft", "tpot", "e2e".
    keep_requests : bool, optional
        Whether to keep every request (`Result.table`); by default up to two million.
    compiled : bool, optional
        Whether numba compiles the loop; by default if it is installed and there are many requests. Results are equal.
    progress : callable, optional
        Told how many requests are served, now and then.

    Returns
    -------
    Result
        Times, rates, what was full.

    Raises
    ------
    InputError
        A request that fits no engine; a negative transfer time; static batches with `prefill`; numba is asked for and
        not installed.
    UnknownNameError
        No such router or promise.

    Examples
    --------
    >>> from batchline.simulate import Pool, tabulate
    >>> from batchline.step import Coefficients, ideal
    >>> from batchline.workload import Fixed, Poisson, synthetic
    >>> clock = tabulate(
    ...     lambda n: ideal(weight_bytes=15e9, kv_read_bytes=131072 * n, active_params=7.5e9, layers=32,
    ...                     bandwidth=3.35e12, flops=989e12, flops_bf16=989e12),
    ...     Coefficients(layer_overhead=40e-6), max_batch=256, max_context=4096)
    >>> found = simulate(Pool(clock=clock), synthetic(Poisson(4), Fixed(1024), Fixed(1024), count=400))
    >>> found.requests, round(found.times["tpot"].p50 * 1e3, 1), found.saturated_by
    (400, 8.7, None)
    """
    compiled = _choose(compiled, traffic.count)
    promises = promises or {}
    for metric in promises:
        if metric not in METRICS:
            raise UnknownNameError("promise", metric, METRICS)
    if router not in ROUTERS:
        raise UnknownNameError("router", router, ROUTERS)
    if not (transfer_s >= 0 and transfer_token_s >= 0):
        raise InputError(Sentence("error.transfer_from_0"))
    if prefill is not None and any(isinstance(one.scheduler, Static) for one in (pool, prefill)):
        raise InputError(
            Sentence("error.static_one_engine"),
            hint=Sentence("error.no_prefill_replicas"),
        )
    most = {None: _KEPT, True: np.inf, False: 0}[keep_requests]
    kinds = [pool.kind("BOTH")] if prefill is None else [prefill.kind("PREFILL"), pool.kind("DECODE")]
    state = _state.make(
        kinds,
        compiled=compiled,
        router=router,
        limits=_limits(promises),
        transfer=(transfer_s, transfer_token_s),
        keep_rows=most > 0 and (traffic.count is None or traffic.count <= most),
    )
    pools = [pool] if prefill is None else [prefill, pool]
    rows = _run(state, traffic, pools, most, progress)
    return _result(state, pools, promises, rows, traffic)


def fitting(traffic: Traffic, *pools: Pool) -> Traffic:
    """Leave out requests that some pool could never serve; `Traffic.repairs` counts them.

    Parameters
    ----------
    traffic : Traffic
        What there is.
    *pools : Pool
        Those that a request passes.

    Returns
    -------
    Traffic
        The rest.

    Examples
    --------
    >>> from batchline.simulate import Pool, Vllm, fitting
    >>> from batchline.simulate.clock import Clock
    >>> from batchline.workload import of_requests, whole
    >>> flat = Clock(decode_s=np.full(9, 0.02), expert_s=np.zeros(9), knots=np.array([0]), kv_s=np.zeros(1),
    ...              kv_slope_s=np.zeros(1), attention_s=np.zeros(1001))
    >>> rest = fitting(of_requests([0, 1], [100, 2000], 10), Pool(clock=flat, scheduler=Vllm(max_num_seqs=8)))
    >>> len(whole(rest)), rest.repairs
    (1, {'requests too long for the engines left out': 1})
    """
    return replace(traffic, chunks=partial(_fitting, traffic, pools))


def _fitting(traffic: Traffic, pools: tuple[Pool, ...]) -> Iterator[Requests]:
    name = "requests too long for the engines left out"
    traffic.repairs.pop(name, None)
    for chunk in traffic.chunks():
        good = np.logical_and.reduce([pool.fits(chunk) for pool in pools])
        left_out = int(np.sum(~good))
        if left_out:
            traffic.repairs[name] = traffic.repairs.get(name, 0) + left_out
        if good.any():
            yield chunk.take(np.flatnonzero(good)) if left_out else chunk


def _choose(compiled: bool | None, count: int | None) -> bool:
    installed = _compile.has_numba()
    if compiled and not installed:
        raise InputError(Sentence("error.no_numba"), hint=Sentence("error.install_fast"))
    if compiled is not None:
        return compiled
    return installed and (count is None or count > _COMPILING_PAYS)


def _limits(promises: Mapping[str, Promise]) -> tuple[float, float, float]:
    ttft, tpot, e2e = (promises[metric].seconds if metric in promises else np.inf for metric in ("ttft", "tpot", "e2e"))
    return ttft, tpot, e2e


class _Leaves:
    """Nodes of prefix trees as the event loop numbers them: those that hold at least one whole block."""

    def __init__(self, state: _state.State, block_size: int) -> None:
        self._state = state
        self._size = block_size
        self._tree: PrefixTree | None = None
        self._known: list[int] = []  # node of the tree at hand -> node of the loop
        self._ends: list[int] = []  # node of the loop -> blocks from the beginning of the prompt
        self._depths: list[int] = []

    def of(self, requests: Requests) -> NDArray[np.int64]:
        if requests.prefix is None or requests.tree is None:
            return np.full(len(requests), -1, dtype=np.int64)
        if requests.tree is not self._tree:
            self._tree = requests.tree
            self._known = []
        self._learn(requests.tree)
        known = np.array([*self._known, -1], dtype=np.int64)  # the last stands for no node
        return known[requests.prefix]

    def _learn(self, tree: PrefixTree) -> None:
        parents: list[int] = []
        start = len(self._ends)
        for node in range(len(self._known), len(tree)):
            above = tree.parents[node]
            parent = -1 if above < 0 else self._known[above]
            end = tree.tokens[node] // self._size
            if end <= (0 if parent < 0 else self._ends[parent]):
                self._known.append(parent)
                continue
            self._known.append(len(self._ends))
            self._ends.append(end)
            self._depths.append(1 if parent < 0 else self._depths[parent] + 1)
            parents.append(parent)
        if parents:
            self._state.grow_tree(parents, self._ends[start:], max(self._depths))


def _run(
    state: _state.State, traffic: Traffic, pools: list[Pool], most: float, progress: Callable[[int], None] | None
) -> list[NDArray[Any]] | None:
    """Feed the loop until all is done; return finished requests, unless there are more than `most`."""
    loop = state.loop
    world = state.world[0]
    chunks = traffic.chunks()
    leaves = _Leaves(state, pools[0].scheduler.block_size)
    rows: list[NDArray[Any]] | None = [] if world.row_capacity else None
    closed = traffic.concurrency is not None
    world.closed = int(closed)
    if closed:
        state.grow_slots(state.slots + int(traffic.concurrency or 0) + int(world.margin))
    _feed(state, chunks, leaves, pools)
    if not world.available:
        raise InputError(Sentence("error.no_request", name=traffic.name or Sentence("error.the_traffic")))
    if closed:
        loop.start_users(world, state.doors(), int(traffic.concurrency or 0))
    while True:
        wanted = state.run()
        if rows is not None:
            rows.append(_fetch(state))
            world.rows = 0
            if world.finished > most:  # a trace does not say how long it is
                rows = None
                world.row_capacity = 0
        if wanted == codes.DONE:
            return rows
        if wanted == codes.STUCK:
            raise InputError(
                Sentence("error.standstill"),
                hint=Sentence("error.more_kv"),
            )
        if wanted == codes.MORE_REQUESTS:
            _feed(state, chunks, leaves, pools)
        elif wanted == codes.MORE_SLOTS:
            state.grow_slots(2 * state.slots)
        elif wanted == codes.MORE_ENTRIES:
            state.grow_entries(2 * len(state.entries))
        if progress is not None:
            progress(int(world.finished))


def _fetch(state: _state.State) -> NDArray[Any]:
    count = int(state.world[0].rows)
    if state.compiled:
        return np.array(state.rows[:count])
    return _records.packed(state.rows[:count], _records.ROW)


def _feed(state: _state.State, chunks: Iterator[Requests], leaves: _Leaves, pools: list[Pool]) -> None:
    """Put the next chunk of requests behind those that have not arrived yet."""
    world = state.world[0]
    start = int(world.first_row + world.available)
    chunk = next(chunks, None)
    if chunk is None:
        world.last = 1
        return
    for pool in pools:
        wrong = pool.unfit(chunk, start)
        if wrong is not None:
            raise InputError(*wrong, Sentence("error.leave_request_out"))
    made = np.zeros(len(chunk), _records.STREAM)
    made["sent"] = chunk.arrival_s
    made["prompt"] = chunk.isl
    made["output"] = chunk.osl
    made["leaf"] = leaves.of(chunk)
    done = int(world.next)
    if state.compiled:
        state.stream = np.concatenate([state.stream[done:], made]).view(np.recarray)
    else:
        state.stream = state.stream[done:] + _records.plain(made)
    world.first_row += done
    world.available = len(state.stream)
    world.next = 0


def _table(rows: list[NDArray[Any]]) -> Table:
    joined = np.concatenate(rows)
    joined = joined[np.argsort(joined["row"], kind="stable")]
    names = ("row", "sent", "admitted", "first", "finished", "prompt", "output", "cached", "preemptions", "engine")
    return Table(*(np.ascontiguousarray(joined[name]) for name in names))


def _result(
    state: _state.State,
    pools: list[Pool],
    promises: Mapping[str, Promise],
    rows: list[NDArray[Any]] | None,
    traffic: Traffic,
) -> Result:
    world = state.world[0]
    stats = state.array("stats")
    engines = state.array("engines", _records.ENGINE)
    duration = float(world.now)
    table = _table(rows) if rows is not None else None
    sketches = {metric: _sketch(state, stats, number) for number, metric in enumerate(METRICS)}
    sums = stats[world.sums : world.sums + 3 * codes.METRICS].reshape(-1, 3)
    span = duration * len(engines)
    blocks = np.concatenate([np.full(pool.engines, pool.scheduler.kv_blocks or UNLIMITED) for pool in pools])
    peaks = engines["used_peak"] / blocks
    limited = blocks < UNLIMITED
    busy = float(engines["busy_s"].sum())
    prices = [None if pool.usd_per_hour is None else pool.usd_per_hour * pool.replicas for pool in pools]
    powers = [None if pool.power_w is None else pool.power_w * pool.replicas for pool in pools]
    return Result(
        requests=int(world.finished),
        duration_s=duration,
        times={
            metric: summarise(sums[number], sketches[metric], exact_times(table, metric))
            for number, metric in enumerate(METRICS)
        },
        input_tokens=int(world.prompt_tokens),
        output_tokens=int(world.output_tokens),
        cached_tokens=int(world.cached_tokens),
        recomputed_tokens=int(world.recomputed_tokens),
        preemptions=int(world.preemptions),
        met=int(world.met),
        kv_peak=float(peaks[limited].max()) if limited.any() else None,
        busy=busy / span,
        prompt_busy=float(engines["prompt_busy_s"].sum()) / busy,
        waits={
            "max_num_seqs": float(engines["seats_wait_s"].sum()) / span,
            "kv": float(engines["blocks_wait_s"].sum()) / span,
            "prefill": float(engines["tokens_wait_s"].sum()) / span,
        },
        engines=len(engines),
        series=_series(state, stats, float(blocks[limited].sum()) if limited.any() else np.nan, len(engines)),
        sketches=sketches,
        table=table,
        promises=promises,
        usd_per_hour=_total(prices),
        power_w=_total(powers),
        compiled=state.compiled,
        events=int(world.events),
        decode_steps=int(world.decode_steps),
        mixed_steps=int(world.mixed_steps),
        repairs=dict(traffic.repairs),
    )


def _total(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _sketch(
    state: _state.State, stats: NDArray[np.float64], number: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Middles and counts of the buckets in use."""
    start = int(state.world[0].sketches) + number * codes.BUCKETS
    counts = stats[start : start + codes.BUCKETS]
    used = np.flatnonzero(counts)
    # The numbers of _loop.statistics.bucket_edge, for arrays.
    edges = [
        np.ldexp(0.5 + 0.5 * (places % codes.PER_OCTAVE) / codes.PER_OCTAVE, places // codes.PER_OCTAVE + codes.LOWEST)
        for places in (used, used + 1)
    ]
    return (edges[0] + edges[1]) / 2, counts[used].copy()


def _series(state: _state.State, stats: NDArray[np.float64], blocks: float, engines: int) -> Series:
    world = state.world[0]
    cells = stats[world.series : world.series + world.cells * codes.COLUMNS].reshape(-1, codes.COLUMNS)
    width = float(world.cell_s)
    cells = cells[: int(world.now / width) + 1]
    waiting = np.cumsum(cells[:, codes.ARRIVED] + cells[:, codes.PREEMPTED] - cells[:, codes.ADMITTED])
    return Series(
        cell_s=width,
        running=cells[:, codes.SEATED] / width,
        batch=cells[:, codes.BATCH] / width,
        waiting=waiting,
        kv_use=cells[:, codes.BLOCKS] / (width * blocks),
        busy=cells[:, codes.BUSY] / (width * engines),
        prompt_tokens_per_s=cells[:, codes.PROMPT_TOKENS] / width,
        output_tokens_per_s=cells[:, codes.OUTPUT_TOKENS] / width,
        arrived=cells[:, codes.ARRIVED].copy(),
        admitted=cells[:, codes.ADMITTED].copy(),
        finished=cells[:, codes.FINISHED].copy(),
        preempted=cells[:, codes.PREEMPTED].copy(),
    )
