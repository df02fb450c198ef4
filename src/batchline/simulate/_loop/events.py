"""The loop over events: whichever of an arrival and the end of a run of steps comes first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline.simulate._compile import entry, inlined, jit

from .codes import DONE, DUE, MORE_ENTRIES, MORE_REQUESTS, MORE_ROWS, MORE_SLOTS, NONE, SGLANG, STUCK, VLLM
from .completion import complete
from .departure import release_late
from .routing import arrive, hand_over
from .sglang import plan_sglang
from .static import plan_static
from .transit import drop_first, send_next
from .vllm import plan_vllm

if TYPE_CHECKING:
    from batchline.simulate._records import (
        Books,
        Cache,
        Clock,
        Clocks,
        Doors,
        Engine,
        Engines,
        Pending,
        Requests,
        Rulebook,
        Rules,
        Stats,
        World,
    )


@inlined
def plan_step(
    world: World, engine: Engine, rules: Rules, clock: Clock, requests: Requests, cache: Cache, books: Books
) -> None:
    """Plan the next step of an engine that stands at a boundary."""
    planned = False
    while not planned:
        visible = engine.now
        if rules.lag:
            if engine.decoding > 0 or engine.partial != NONE:
                visible = engine.before
            else:
                release_late(world, engine, rules, requests, cache)
        if rules.policy == VLLM:
            planned = plan_vllm(world, engine, rules, clock, requests, cache, books, visible)
        elif rules.policy == SGLANG:
            planned = plan_sglang(world, engine, rules, clock, requests, cache, books, visible)
        else:
            plan_static(world, engine, rules, clock, requests, cache, books)
            planned = True


@jit
def earliest(engines: Engines, count: int) -> int:
    best = 0
    for index in range(1, count):
        if engines[index].end < engines[best].end:
            best = index
    return best


@jit
def receive(
    world: World, engines: Engines, rulebook: Rulebook, requests: Requests, cache: Cache, stats: Stats, pending: Pending
) -> None:
    """Take in what was on its way: a request of a closed loop, or a KV cache."""
    one = pending[0]
    slot = one.slot
    time = one.time
    row = one.row
    sent = one.sent
    prompt = one.prompt
    output = one.output
    leaf = one.leaf
    drop_first(pending, world)  # overwrites `one`
    if slot != NONE:
        hand_over(world, engines, rulebook, requests, cache, stats, slot, time)
    else:
        arrive(world, engines, rulebook, requests, cache, stats, row, sent, time, prompt, output, leaf)


@entry
def run(
    world: World,
    rulebook: Rulebook,
    clocks: Clocks,
    engines: Engines,
    requests: Requests,
    cache: Cache,
    books: Books,
    doors: Doors,
) -> int:
    """Run until something is needed from outside, or all is done; return which.

    Everything lives in the arguments, so a call continues where the last one stopped.
    """
    count = len(engines)
    while True:
        left = world.available - world.next
        if not world.last and left <= (world.margin if world.closed else 0):
            return MORE_REQUESTS
        if world.spare_slots == 0:
            return MORE_SLOTS
        if world.spare_entries < world.entry_margin:
            return MORE_ENTRIES
        if world.row_capacity > 0 and world.rows + world.margin > world.row_capacity:
            return MORE_ROWS
        world.events += 1
        index = earliest(engines, count) if count > 1 else 0
        engine = engines[index]
        time = math.inf
        if left > 0 and not world.closed:
            time = doors.stream[world.next].sent + world.delay_s
        if world.pending > 0 and doors.pending[0].time < time:
            if doors.pending[0].time <= engine.end:
                receive(world, engines, rulebook, requests, cache, books.stats, doors.pending)
                continue
        elif time < math.inf and time <= engine.end:
            one = doors.stream[world.next]
            row = world.first_row + world.next
            world.next += 1
            arrive(
                world,
                engines,
                rulebook,
                requests,
                cache,
                books.stats,
                row,
                one.sent,
                time,
                one.prompt,
                one.output,
                one.leaf,
            )
            continue
        if engine.end == math.inf:
            for index in range(count):
                if engines[index].queued > 0:
                    return STUCK
            return DONE
        rules = rulebook[engine.rules]
        clock = clocks[engine.clock]
        if engine.kind == DUE:
            engine.now = engine.end
            plan_step(world, engine, rules, clock, requests, cache, books)
        else:
            complete(world, engine, rules, clock, requests, cache, books, doors)
            if time > engine.now and (world.pending == 0 or doors.pending[0].time > engine.now):
                plan_step(world, engine, rules, clock, requests, cache, books)


@entry
def start_users(world: World, doors: Doors, users: int) -> None:
    """Let the users of a closed loop send their first requests."""
    for _ in range(min(users, world.available - world.next)):
        send_next(world, doors, 0.0)
