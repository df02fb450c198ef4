"""How SGLang plans a step: prompts first, in steps of their own; a share of outputs reserved; retraction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined, jit

from .admission import admit, continue_prompt, look_up, start_prompt
from .blocks import take_blocks
from .chunks import plan_mixed
from .codes import BY_BLOCKS, BY_SEATS, BY_TOKENS, FREE, HEAP_SHIFT, IDLE, NONE, RESERVED_OUTPUT, RETRACT_STEPS
from .decoding import blocks_due, join
from .jump import plan_decodes
from .preemption import preempt
from .prefix import needed_blocks, own_blocks, unheld_blocks

if TYPE_CHECKING:
    from batchline.simulate._records import Books, Cache, Clock, Engine, Requests, Rules, World


@jit
def retract(world: World, engine: Engine, rules: Rules, requests: Requests, cache: Cache, books: Books) -> None:
    """Send sequences back until the next decode step fits, least output and longest prompt first (SGLang)."""
    while blocks_due(engine, books.ledger) > engine.free:
        least = NONE
        slot = engine.head
        while slot != NONE:
            request = requests[slot]
            if least == NONE:
                least = slot
            else:
                made = request.made + engine.steps - request.joined
                fewest = requests[least].made + engine.steps - requests[least].joined
                if made < fewest or (made == fewest and request.prompt > requests[least].prompt):
                    least = slot
            slot = request.next
        preempt(world, engine, rules, requests, cache, books, least)
    made = 0
    outputs = 0
    slot = engine.head
    while slot != NONE:
        made += requests[slot].made + engine.steps - requests[slot].joined
        outputs += requests[slot].output
        slot = requests[slot].next
    if outputs > 0:
        engine.ratio = min((made + RETRACT_STEPS * engine.decoding) / outputs, 1.0)


@jit
def tokens_free(engine: Engine, rules: Rules, steps: int) -> float:
    """Tokens that SGLang thinks it can admit after so many more decode steps."""
    ratio = max(engine.ratio - rules.ratio_decay * steps, rules.least_ratio)
    used = steps * engine.decoding
    return float(engine.free * rules.block_size - used - ratio * (engine.left - used))


@inlined
def plan_sglang(
    world: World,
    engine: Engine,
    rules: Rules,
    clock: Clock,
    requests: Requests,
    cache: Cache,
    books: Books,
    visible: float,
) -> bool:
    """Plan as SGLang does: a step of prompts whenever one fits, else decode."""
    room = rules.budget
    inputs = rules.prompt_budget
    free = tokens_free(engine, rules, 0)
    needed = math.inf
    engine.fresh = NONE
    engine.blocked = FREE
    if engine.partial != NONE:
        slot = engine.partial
        request = requests[slot]
        chunk = min(request.todo, room)
        blocks = needed_blocks(
            rules, cache.tree, request.held, own_blocks(rules, cache.tree, request), request.have + chunk
        )
        continue_prompt(world, engine, requests, cache, slot, chunk, blocks)
        room -= chunk
        inputs -= chunk
        free -= chunk + (min(request.output - request.made, RESERVED_OUTPUT) if request.todo == 0 else 0)
    while engine.queued > 0 and engine.partial == NONE:
        slot = engine.queue_head
        request = requests[slot]
        if request.ready > visible:
            break
        if engine.seated + engine.late >= rules.max_num_seqs:
            engine.blocked = BY_SEATS
            break
        node, own, tokens = look_up(rules, requests, cache, slot)
        moved = request.moved
        extend = tokens if moved else request.prompt + request.made - tokens
        unheld = unheld_blocks(cache, engine.index, node) + own
        needed = extend + min(request.output - request.made, RESERVED_OUTPUT) + unheld * rules.block_size
        alone = engine.free == rules.blocks  # nothing runs, ends or is on its way to another engine
        if needed > free and not alone:
            engine.blocked = BY_BLOCKS
            break
        if not moved and (room <= 0 or (extend >= inputs and engine.fresh != NONE)):
            engine.blocked = BY_TOKENS
            break
        chunk = 0 if moved else min(extend, room)
        blocks = needed_blocks(rules, cache.tree, node, own, tokens + chunk)
        if blocks + unheld > engine.free:
            engine.blocked = BY_BLOCKS
            break
        admit(world, engine, requests, cache, books.stats, node, own, tokens, chunk, blocks)
        free -= needed
        if moved:
            join(engine, rules, request, slot, books, clock)
            continue
        room -= chunk
        inputs -= chunk
        start_prompt(engine, rules, cache, request, slot)
    if engine.fresh != NONE:
        plan_mixed(engine, rules, requests, books, clock, False)
        return True
    if engine.decoding == 0:
        engine.kind = IDLE
        engine.end = math.inf
        return True
    retracted = blocks_due(engine, books.ledger) > engine.free
    if retracted:
        retract(world, engine, rules, requests, cache, books)
        if engine.decoding == 0:
            return False
    limit = HEAP_SHIFT
    if engine.queued > 0 and (retracted or engine.late > 0 or requests[engine.queue_head].ready > visible):
        limit = 1
    elif engine.blocked == BY_BLOCKS:
        limit = steps_to_room(engine, rules, needed)  # it counts this step's blocks itself: none are taken yet
    take_blocks(world, engine, requests, cache, blocks_due(engine, books.ledger))
    engine.melts = 0 if retracted else 1
    plan_decodes(engine, rules, books, clock, limit)
    return True


@jit
def steps_to_room(engine: Engine, rules: Rules, needed: float) -> int:
    """Decode steps after which SGLang may admit a request that needs so many tokens, as its reserve melts."""
    if rules.block_size > 1:
        return 1  # blocks come in jumps: look again at every step
    steps = 1
    # The reserve melts for this many steps; later each token made takes more room than it frees.
    melting = int((engine.ratio - rules.least_ratio) / rules.ratio_decay) + 1 if rules.ratio_decay > 0.0 else 0
    while steps <= melting and tokens_free(engine, rules, steps) < needed:
        steps += 1
    return steps if steps <= melting else HEAP_SHIFT
