"""A request comes to an engine: which one, and whether that changes what the engine is doing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined, jit

from .codes import ARRIVED, DECODING, DUE, FREE, IDLE, LEAST_LOADED, NONE, ROUND_ROBIN, STATIC
from .departure import give_back
from .jump import end_after, steps_until
from .prefix import blocks_to, deepest
from .queues import enqueue
from .statistics import count_event

if TYPE_CHECKING:
    from batchline.simulate._records import Cache, Engine, Engines, Requests, Rulebook, Rules, Stats, World


@jit
def least_loaded(engines: Engines, first: int, last: int) -> int:
    best = first
    for index in range(first + 1, last):
        if engines[index].seated + engines[index].queued < engines[best].seated + engines[best].queued:
            best = index
    return best


@inlined
def route(world: World, engines: Engines, cache: Cache, leaf: int) -> int:
    """Choose the engine for a request."""
    front = world.front
    if front == 1:
        return 0
    if world.router == ROUND_ROBIN:
        index = world.turn % front
        world.turn += 1
        return int(index)
    shortest = least_loaded(engines, 0, front)
    if world.router == LEAST_LOADED or leaf == NONE:
        return shortest
    # Follow the cache while loads are even and at least half of the prompt's blocks are there.
    least = engines[shortest].seated + engines[shortest].queued
    best = NONE
    most = 0
    for index in range(front):
        load = engines[index].seated + engines[index].queued
        found = blocks_to(cache.tree, deepest(cache, index, leaf))
        if load - least <= 32 + least // 2 and found > most:
            most = found
            best = index
    return best if best != NONE and 2 * most >= cache.tree[leaf].blocks else shortest


@inlined
def wake(engine: Engine, rules: Rules, time: float) -> None:
    """Tell an engine that something came: at once when it is idle, else at the next boundary that can use it."""
    if engine.kind == IDLE:
        start = time
        if rules.period_s > 0.0:
            start = math.ceil(time / rules.period_s) * rules.period_s
            if start < time:  # by rounding
                start += rules.period_s
        engine.now = max(engine.now, start)
        engine.end = engine.now
        engine.kind = DUE
    elif engine.kind == DUE and rules.policy == STATIC and engine.queued >= rules.max_num_seqs:
        engine.now = max(engine.now, time)
        engine.end = min(engine.end, engine.now)
    elif engine.kind == DECODING and engine.span > 1 and engine.blocked == FREE and rules.policy != STATIC:
        span = steps_until(engine, time - engine.now)
        if span < engine.span:
            engine.span = span
            engine.end = end_after(engine, rules, span)


@inlined
def arrive(
    world: World,
    engines: Engines,
    rulebook: Rulebook,
    requests: Requests,
    cache: Cache,
    stats: Stats,
    row: int,
    sent: float,
    ready: float,
    prompt: int,
    output: int,
    leaf: int,
) -> None:
    slot = world.free_slot
    request = requests[slot]
    world.free_slot = request.next
    world.spare_slots -= 1
    request.row = row
    request.prompt = prompt
    request.output = output
    request.made = 0
    request.have = 0
    request.chunk = 0
    request.leaf = leaf
    request.held = NONE
    request.entry = NONE
    request.moved = 0
    request.cached = 0
    request.preemptions = 0
    request.sent = sent
    request.ready = ready
    request.admitted = math.nan
    request.first = math.nan
    request.paused = 0.0
    index = route(world, engines, cache, leaf)
    request.engine = index
    engine = engines[index]
    count_event(world, stats, ready, ARRIVED)
    enqueue(engine, requests, slot)
    wake(engine, rulebook[engine.rules], ready)


@jit
def hand_over(
    world: World,
    engines: Engines,
    rulebook: Rulebook,
    requests: Requests,
    cache: Cache,
    stats: Stats,
    slot: int,
    time: float,
) -> None:
    """Hand a request whose KV cache has arrived to the engine that decodes it."""
    request = requests[slot]
    source = engines[request.engine]
    give_back(world, source, rulebook[source.rules], cache, request)
    if source.queued > 0:
        wake(source, rulebook[source.rules], time)
    index = least_loaded(engines, world.front, world.front + world.back)
    engine = engines[index]
    request.engine = index
    request.first = time
    request.ready = time
    request.moved = 1
    request.held = NONE
    request.leaf = NONE
    count_event(world, stats, time, ARRIVED)
    enqueue(engine, requests, slot)
    wake(engine, rulebook[engine.rules], time)
