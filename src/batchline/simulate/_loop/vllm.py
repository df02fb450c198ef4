"""How vLLM V1 plans a step: running sequences first, then waiting ones, prompts in chunks under one token budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined

from .admission import admit, continue_prompt, look_up, start_prompt
from .blocks import take_blocks
from .chunks import plan_mixed
from .codes import BY_BLOCKS, BY_SEATS, BY_TOKENS, FREE, HEAP_SHIFT, IDLE, NONE
from .decoding import blocks_due, join
from .jump import plan_decodes
from .preemption import preempt
from .prefix import needed_blocks, own_blocks, unheld_blocks

if TYPE_CHECKING:
    from batchline.simulate._records import Books, Cache, Clock, Engine, Requests, Rules, World


@inlined
def plan_vllm(
    world: World,
    engine: Engine,
    rules: Rules,
    clock: Clock,
    requests: Requests,
    cache: Cache,
    books: Books,
    visible: float,
) -> bool:
    """Plan as vLLM does: running sequences first, then waiting ones, prompts in chunks. False: preempted, plan anew."""
    preempted = False
    needed = blocks_due(engine, books.ledger)
    while needed > engine.free:
        preempt(world, engine, rules, requests, cache, books, engine.tail)
        preempted = True
        needed = blocks_due(engine, books.ledger)
    take_blocks(world, engine, requests, cache, needed)
    room = rules.budget - engine.decoding
    engine.fresh = NONE
    engine.blocked = FREE
    if engine.partial != NONE:
        slot = engine.partial
        request = requests[slot]
        chunk = min(request.todo, room)
        blocks = needed_blocks(
            rules, cache.tree, request.held, own_blocks(rules, cache.tree, request), request.have + chunk
        )
        if blocks > engine.free:
            preempt(world, engine, rules, requests, cache, books, slot)
            preempted = True
        else:
            continue_prompt(world, engine, requests, cache, slot, chunk, blocks)
            room -= chunk
    while engine.queued > 0 and not preempted:
        slot = engine.queue_head
        request = requests[slot]
        if request.ready > visible:
            break
        if engine.seated + engine.late >= rules.max_num_seqs:
            engine.blocked = BY_SEATS
            break
        node, own, tokens = look_up(rules, requests, cache, slot)
        moved = request.moved
        if not moved and room <= 0:
            engine.blocked = BY_TOKENS
            break
        chunk = 0 if moved else min(request.prompt + request.made - tokens, room)
        blocks = needed_blocks(rules, cache.tree, node, own, tokens + 1 if moved else tokens + chunk)
        whole = blocks
        if rules.reserve and not moved and chunk < request.prompt + request.made - tokens:
            whole = needed_blocks(rules, cache.tree, node, own, request.prompt + request.made)
        unheld = unheld_blocks(cache, engine.index, node) + own
        if whole + unheld > engine.free:
            engine.blocked = BY_BLOCKS
            break
        admit(world, engine, requests, cache, books.stats, node, own, tokens, chunk, blocks)
        if moved:
            join(engine, rules, request, slot, books, clock)
            continue
        room -= chunk
        start_prompt(engine, rules, cache, request, slot)
    if engine.fresh != NONE:
        plan_mixed(engine, rules, requests, books, clock, True)
    elif engine.decoding > 0:
        waits = engine.queued > 0 and (preempted or engine.late > 0 or requests[engine.queue_head].ready > visible)
        plan_decodes(engine, rules, books, clock, 1 if waits else HEAP_SHIFT)
    elif preempted:
        return False
    else:
        engine.kind = IDLE
        engine.end = math.inf
    return True
