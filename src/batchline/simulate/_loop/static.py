"""Static batching: a batch is filled, served to its end, and replaced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined, jit

from .admission import admit
from .chunks import plan_mixed
from .codes import BY_BLOCKS, BY_SEATS, DUE, FREE, HEAP_SHIFT, IDLE, NONE
from .decoding import leave
from .departure import give_back
from .jump import plan_decodes
from .prefix import needed_blocks
from .queues import recycle, unseat

if TYPE_CHECKING:
    from batchline.simulate._records import Books, Cache, Clock, Engine, Ledger, Requests, Rules, World


@inlined
def plan_static(
    world: World, engine: Engine, rules: Rules, clock: Clock, requests: Requests, cache: Cache, books: Books
) -> None:
    """Plan a batch that starts when it is full, or when its first request waited long enough, and ends together."""
    engine.fresh = NONE
    engine.blocked = FREE
    if engine.decoding > 0:
        engine.blocked = BY_SEATS
        plan_decodes(engine, rules, books, clock, HEAP_SHIFT)
        return
    if engine.queued == 0:
        engine.kind = IDLE
        engine.end = math.inf
        return
    start = requests[engine.queue_head].ready + rules.timeout_s
    if engine.queued < rules.max_num_seqs and engine.now < start:
        engine.kind = DUE
        engine.end = start
        return
    while engine.queued > 0 and engine.seated < rules.max_num_seqs:
        slot = engine.queue_head
        request = requests[slot]
        blocks = needed_blocks(rules, cache.tree, NONE, 0, request.prompt + request.output - 1)
        if blocks > engine.free:
            engine.blocked = BY_BLOCKS
            break
        admit(world, engine, requests, cache, books.stats, NONE, 0, 0, request.prompt, blocks)
        if engine.fresh == NONE:
            engine.fresh = slot
    plan_mixed(engine, rules, requests, books, clock, False)


@jit
def clear_batch(world: World, engine: Engine, rules: Rules, requests: Requests, cache: Cache, ledger: Ledger) -> None:
    """Let a static batch go, all at once."""
    slot = engine.head
    while slot != NONE:
        request = requests[slot]
        following = request.next
        leave(engine, request, ledger)
        request.have = request.prompt + request.output - 1
        unseat(engine, requests, slot)
        give_back(world, engine, rules, cache, request)
        recycle(world, requests, slot)
        slot = following
    engine.left = 0
    engine.heaped = 0
