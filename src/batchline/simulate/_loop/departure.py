"""A request leaves: what it held becomes free, its times are noted, its user may send another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined, jit

from .blocks import push_free
from .codes import ANONYMOUS, E2E, FINISHED, NONE, TPOT, TTFT
from .prefix import own_blocks, release
from .queues import recycle, unseat
from .statistics import count_event, note_time
from .transit import send_next

if TYPE_CHECKING:
    from batchline.simulate._records import Cache, Doors, Engine, Request, Requests, Rules, Stats, World


@inlined
def give_back(world: World, engine: Engine, rules: Rules, cache: Cache, request: Request) -> None:
    """Free the blocks of a request that needs them no more."""
    push_free(world, engine, cache.entries, ANONYMOUS, NONE, own_blocks(rules, cache.tree, request))
    release(world, engine, cache, request.held)


@inlined
def finish(world: World, engine: Engine, request: Request, stats: Stats, doors: Doors) -> None:
    """Note a request whose last token was made, and let its user send another."""
    now = engine.now
    e2e = now - request.sent
    ttft = request.first - request.sent
    tpot = (now - request.first) / (request.output - 1) if request.output > 1 else 0.0
    note_time(world, stats, TTFT, ttft, 1)
    note_time(world, stats, E2E, e2e, 1)
    if request.output > 1:
        note_time(world, stats, TPOT, tpot, 1)
    count_event(world, stats, now, FINISHED)
    world.finished += 1
    world.now = max(world.now, now)
    world.output_tokens += request.output
    world.prompt_tokens += request.prompt
    engine.served += 1
    if ttft <= world.ttft_limit and tpot <= world.tpot_limit and e2e <= world.e2e_limit:
        world.met += 1
    if world.row_capacity > 0:
        row = doors.rows[world.rows]
        world.rows += 1
        row.row = request.row
        row.sent = request.sent
        row.admitted = request.admitted
        row.first = request.first
        row.finished = now
        row.prompt = request.prompt
        row.output = request.output
        row.cached = request.cached
        row.preemptions = request.preemptions
        row.engine = engine.index
    if world.closed and world.next < world.available:
        send_next(world, doors, now)


@jit
def release_late(world: World, engine: Engine, rules: Rules, requests: Requests, cache: Cache) -> None:
    """Give back what requests held whose end the scheduler has now seen."""
    while engine.late_head != NONE:
        slot = engine.late_head
        engine.late_head = requests[slot].next
        give_back(world, engine, rules, cache, requests[slot])
        recycle(world, requests, slot)
    engine.late_tail = NONE
    engine.late = 0


@inlined
def dismiss(world: World, engine: Engine, rules: Rules, requests: Requests, cache: Cache, slot: int) -> None:
    """Take a finished request out of the engine; a scheduler that runs ahead learns of it a step later."""
    unseat(engine, requests, slot)
    if not rules.lag:
        give_back(world, engine, rules, cache, requests[slot])
        recycle(world, requests, slot)
        return
    requests[slot].next = NONE
    if engine.late_tail == NONE:
        engine.late_head = slot
    else:
        requests[engine.late_tail].next = slot
    engine.late_tail = slot
    engine.late += 1
