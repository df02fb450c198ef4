"""A running request is sent back because the blocks ran out.

It is computed again later (recompute); what it had stays findable until its blocks are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.simulate._compile import jit

from .blocks import push_free
from .codes import ANONYMOUS, HEAP_SHIFT, NONE, OWNED, PREEMPTED, SGLANG
from .decoding import drop_due, leave
from .prefix import blocks_to, own_blocks, release
from .queues import enqueue_first, unseat
from .statistics import count_event

if TYPE_CHECKING:
    from batchline.simulate._records import Books, Cache, Engine, Requests, Rules, World


@jit
def preempt(
    world: World, engine: Engine, rules: Rules, requests: Requests, cache: Cache, books: Books, slot: int
) -> None:
    """Send a running request back to the head of the queue; its cache stays findable until its blocks are taken."""
    request = requests[slot]
    unseat(engine, requests, slot)
    if slot == engine.partial:
        engine.partial = NONE
    else:
        for place in range(engine.heaped):
            if books.ledger[engine.heap + place] % HEAP_SHIFT == slot:
                drop_due(engine, books.ledger, place)
                break
        leave(engine, request, books.ledger)
        request.paused = engine.now - engine.stall_s
    own = own_blocks(rules, cache.tree, request)
    if not rules.caching:
        push_free(world, engine, cache.entries, ANONYMOUS, NONE, own)
        request.have = 0
    else:
        if rules.policy == SGLANG and request.have > request.prompt:
            kept = min(own, max(0, request.prompt // rules.block_size - blocks_to(cache.tree, request.held)))
            push_free(world, engine, cache.entries, ANONYMOUS, NONE, own - kept)
            own = kept
            request.have = request.prompt
        request.entry = push_free(world, engine, cache.entries, OWNED, slot, own)
    release(world, engine, cache, request.held)
    request.preemptions += 1
    world.preemptions += 1
    count_event(world, books.stats, engine.now, PREEMPTED)
    enqueue_first(engine, requests, slot)
