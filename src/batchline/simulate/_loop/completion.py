"""A step is done: time passes, contexts grow, requests have tokens and end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined

from .blocks import take_blocks
from .codes import BY_BLOCKS, BY_SEATS, BY_TOKENS, DUE, HEAP_SHIFT, ITL, MIXED, NONE, OUTPUT_TOKENS, PREFILL, STATIC
from .decoding import blocks_later, drop_due, join, leave, pass_kink
from .departure import dismiss, finish, release_late
from .queues import unseat
from .static import clear_batch
from .statistics import count_event, note_gaps, note_time, tally
from .transit import send_at

if TYPE_CHECKING:
    from batchline.simulate._records import Books, Cache, Clock, Doors, Engine, Requests, Rules, World


@inlined
def first_tokens(
    world: World,
    engine: Engine,
    rules: Rules,
    clock: Clock,
    requests: Requests,
    cache: Cache,
    books: Books,
    doors: Doors,
) -> None:
    """Give a token to each request whose prompt is computed; it decodes from now on, here or elsewhere."""
    slot = engine.fresh
    while slot != NONE:
        request = requests[slot]
        following = request.next
        computed = request.chunk
        request.have += computed
        request.chunk = 0
        if computed > 0 and request.todo == 0:  # a request whose cache came from elsewhere decodes already
            if math.isnan(request.first):
                request.first = engine.now
            else:
                note_time(world, books.stats, ITL, engine.now - request.paused, 1)
            request.made += 1
            count_event(world, books.stats, engine.now, OUTPUT_TOKENS)
            if request.made == request.output:
                finish(world, engine, request, books.stats, doors)
                if rules.policy != STATIC:
                    dismiss(world, engine, rules, requests, cache, slot)
                else:
                    join(engine, rules, request, slot, books, clock)
            elif engine.role == PREFILL:
                start = max(engine.now, engine.link_free)
                engine.link_free = start + world.transfer_s + world.transfer_token_s * request.have
                unseat(engine, requests, slot)
                doors.pending[send_at(doors.pending, world, engine.link_free)].slot = slot
            else:
                join(engine, rules, request, slot, books, clock)
        slot = following
    engine.fresh = NONE


@inlined
def complete(
    world: World,
    engine: Engine,
    rules: Rules,
    clock: Clock,
    requests: Requests,
    cache: Cache,
    books: Books,
    doors: Doors,
) -> None:
    """Do what was planned: time passes, contexts grow, requests end."""
    span = engine.span
    batch = engine.heaped  # a static batch decodes on after some of its sequences have ended
    took = engine.end - engine.now
    used = rules.blocks - engine.free
    engine.used_peak = max(engine.used_peak, used)
    if span > 1 and rules.policy != STATIC:
        release_late(world, engine, rules, requests, cache)
        take_blocks(world, engine, requests, cache, blocks_later(engine, rules, books.ledger, span))
    used_after = rules.blocks - engine.free
    engine.used_peak = max(engine.used_peak, used_after)
    seated = engine.seated
    if span > 0:
        if engine.stall_s > 0.0:
            note_gaps(world, books.stats, engine.first_s + engine.stall_s, 0.0, 1, batch)
            if span > 1:
                note_gaps(world, books.stats, engine.first_s + engine.slope_s, engine.slope_s, span - 1, batch)
        else:
            note_gaps(world, books.stats, engine.first_s, engine.slope_s, span, batch)
        engine.stall_s = 0.0
        for piece in range(clock.pieces):
            place = engine.pieces + 2 * piece
            books.ledger[place + 1] += books.ledger[place] * span
        engine.steps += span
        engine.phase = (engine.phase - span) % rules.block_size
        engine.left -= batch * span
        if engine.melts:
            engine.ratio = max(engine.ratio - rules.ratio_decay * span, rules.least_ratio)
    elif batch > 0:
        engine.stall_s += took
    tally(world, books.stats, engine, seated, batch, 0.5 * (used + used_after), engine.prompts, batch * span)
    engine.busy_s += took
    if engine.queued > 0:
        if engine.blocked == BY_SEATS:
            engine.seats_wait_s += took
        elif engine.blocked == BY_BLOCKS:
            engine.blocks_wait_s += took
        elif engine.blocked == BY_TOKENS:
            engine.tokens_wait_s += took
    if engine.kind == MIXED:
        world.mixed_steps += 1
    world.decode_steps += span
    last = engine.first_s + engine.slope_s * max(span - 1, 0)
    engine.before = engine.now if span <= 1 else engine.end - last
    engine.now = engine.end
    release_late(world, engine, rules, requests, cache)
    if engine.kind == MIXED:
        first_tokens(world, engine, rules, clock, requests, cache, books, doors)
    while engine.heaped > 0 and books.ledger[engine.heap] < (engine.steps + 1) * HEAP_SHIFT:
        slot = books.ledger[engine.heap] % HEAP_SHIFT
        drop_due(engine, books.ledger, 0)
        request = requests[slot]
        if request.made + engine.steps - request.joined < request.output:
            pass_kink(engine, request, slot, books, clock)
        elif rules.policy == STATIC:
            if request.made < request.output:
                finish(world, engine, request, books.stats, doors)
        else:
            leave(engine, request, books.ledger)
            finish(world, engine, request, books.stats, doors)
            dismiss(world, engine, rules, requests, cache, slot)
    if rules.policy == STATIC and engine.heaped == 0:
        clear_batch(world, engine, rules, requests, cache, books.ledger)
    engine.kind = DUE
