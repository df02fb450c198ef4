"""A waiting request is admitted: what the prefix cache still has of it, and blocks for the rest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined

from .blocks import reclaim, take_blocks
from .codes import ADMITTED, ANONYMOUS, NONE, WAIT
from .prefix import acquire, blocks_to, deepest, register
from .queues import dequeue, seat
from .statistics import count_event, note_time

if TYPE_CHECKING:
    from batchline.simulate._records import Cache, Engine, Request, Requests, Rules, Stats, World


@inlined
def look_up(rules: Rules, requests: Requests, cache: Cache, slot: int) -> tuple[int, int, int]:
    """What the cache still has of a request: deepest node, blocks of its own, tokens that need no computing."""
    request = requests[slot]
    if request.moved:
        return NONE, 0, request.have
    if not rules.caching or (request.leaf == NONE and request.entry == NONE):
        return NONE, 0, 0
    node = deepest(cache, request.engine, request.leaf)
    blocks = blocks_to(cache.tree, node)
    size = rules.block_size
    if node != NONE and blocks * size >= request.prompt + request.made:
        above = cache.tree[node].parent
        if blocks - blocks_to(cache.tree, above) == 1:  # all of this node would be computed again
            node = above
            blocks -= 1
    own = 0
    if request.entry != NONE and node == request.held:
        own = cache.entries[request.entry].blocks
    # The last token is always computed: without it there is nothing to sample from.
    tokens = min((blocks + own) * size, (request.prompt + request.made - 1) // size * size)
    if own > 0:
        tokens = min(tokens, request.have // size * size)
    return node, own, tokens


@inlined
def admit(
    world: World,
    engine: Engine,
    requests: Requests,
    cache: Cache,
    stats: Stats,
    node: int,
    own: int,
    tokens: int,
    chunk: int,
    blocks: int,
) -> int:
    """Seat the head of the queue, with what was found of it and new blocks for a chunk."""
    slot = dequeue(engine, requests)
    request = requests[slot]
    if request.entry != NONE:
        if own > 0:
            reclaim(world, engine, cache.entries, request.entry)
        else:
            cache.entries[request.entry].kind = ANONYMOUS
        request.entry = NONE
    acquire(world, engine, cache, node)
    request.held = node
    take_blocks(world, engine, requests, cache, blocks)
    seat(engine, requests, slot)
    request.have = tokens
    request.chunk = chunk
    request.todo = request.prompt + request.made - tokens - chunk
    if request.moved:
        request.todo = 0
        request.moved = 0
    elif request.preemptions == 0:
        request.cached = tokens
        world.cached_tokens += tokens
    else:
        world.recomputed_tokens += request.todo + chunk
    if math.isnan(request.admitted):
        request.admitted = engine.now
        note_time(world, stats, WAIT, engine.now - request.ready, 1)
    count_event(world, stats, engine.now, ADMITTED)
    return slot


@inlined
def start_prompt(engine: Engine, rules: Rules, cache: Cache, request: Request, slot: int) -> None:
    """Put the prompt of an admitted request into the step; what is left of it continues in the next."""
    if engine.fresh == NONE:
        engine.fresh = slot
    if request.todo > 0:
        engine.partial = slot
    elif rules.caching:
        register(cache, request)


@inlined
def continue_prompt(
    world: World, engine: Engine, requests: Requests, cache: Cache, slot: int, chunk: int, blocks: int
) -> None:
    """Put the next chunk of the prompt that is under way into the step."""
    request = requests[slot]
    take_blocks(world, engine, requests, cache, blocks)
    request.chunk = chunk
    request.todo -= chunk
    engine.fresh = slot
    if request.todo == 0:
        engine.partial = NONE
        register(cache, request)
