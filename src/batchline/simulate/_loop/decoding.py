"""Sequences that decode: when each has its next event, and which blocks their contexts grow into.

The heap orders sequences by the step of their next event, a last token or a kink of the KV time. The bins count
sequences by the place of their last token in its block, so the blocks that k steps need are a sum over bins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined, jit

from .codes import HEAP_SHIFT

if TYPE_CHECKING:
    from batchline.simulate._records import Books, Clock, Engine, Ledger, Request, Rules


@inlined
def push_due(engine: Engine, ledger: Ledger, key: int) -> None:
    place = engine.heaped
    engine.heaped += 1
    while place > 0:
        parent = (place - 1) // 2
        if ledger[engine.heap + parent] <= key:
            break
        ledger[engine.heap + place] = ledger[engine.heap + parent]
        place = parent
    ledger[engine.heap + place] = key


@inlined
def drop_due(engine: Engine, ledger: Ledger, place: int) -> None:
    """Take the key at a place out of the heap."""
    engine.heaped -= 1
    size = engine.heaped
    key = ledger[engine.heap + size]
    while place > 0 and ledger[engine.heap + (place - 1) // 2] > key:
        ledger[engine.heap + place] = ledger[engine.heap + (place - 1) // 2]
        place = (place - 1) // 2
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and ledger[engine.heap + child + 1] < ledger[engine.heap + child]:
            child += 1
        if ledger[engine.heap + child] >= key:
            break
        ledger[engine.heap + place] = ledger[engine.heap + child]
        place = child
    ledger[engine.heap + place] = key


@inlined
def schedule_due(engine: Engine, request: Request, slot: int, books: Books, clock: Clock) -> None:
    """Put the next step that concerns a sequence into the heap: its last token, or a kink of its KV time."""
    passed = engine.steps - request.joined
    due = request.joined + request.output - request.made
    if request.piece + 1 < clock.pieces:
        kink = int(books.tables[clock.knots + request.piece + 1]) - (request.have + passed + 1)
        due = min(due, engine.steps + kink)
    push_due(engine, books.ledger, due * HEAP_SHIFT + slot)


@inlined
def join(engine: Engine, rules: Rules, request: Request, slot: int, books: Books, clock: Clock) -> None:
    """Let a request decode from the next step on; that step reads one token more than it has."""
    request.joined = engine.steps
    context = request.have + 1
    piece = 0
    while piece + 1 < clock.pieces and context >= books.tables[clock.knots + piece + 1]:
        piece += 1
    request.piece = piece
    books.ledger[engine.pieces + 2 * piece] += 1
    books.ledger[engine.pieces + 2 * piece + 1] += context
    request.bin = engine.bins + (request.have + engine.phase) % rules.block_size
    books.ledger[request.bin] += 1
    engine.decoding += 1
    engine.left += request.output - request.made
    schedule_due(engine, request, slot, books, clock)


@inlined
def leave(engine: Engine, request: Request, ledger: Ledger) -> None:
    passed = engine.steps - request.joined
    ledger[request.bin] -= 1
    request.have += passed
    request.made += passed
    request.joined = engine.steps
    ledger[engine.pieces + 2 * request.piece] -= 1
    ledger[engine.pieces + 2 * request.piece + 1] -= request.have + 1
    engine.decoding -= 1
    engine.left -= request.output - request.made


@jit
def pass_kink(engine: Engine, request: Request, slot: int, books: Books, clock: Clock) -> None:
    context = request.have + engine.steps - request.joined + 1
    place = engine.pieces + 2 * request.piece
    books.ledger[place] -= 1
    books.ledger[place + 1] -= context
    books.ledger[place + 2] += 1
    books.ledger[place + 3] += context
    request.piece += 1
    schedule_due(engine, request, slot, books, clock)


@jit
def blocks_due(engine: Engine, ledger: Ledger) -> int:
    """Blocks that the next decode step needs."""
    return int(ledger[engine.bins + engine.phase])


@jit
def blocks_later(engine: Engine, rules: Rules, ledger: Ledger, span: int) -> int:
    """Blocks that `span` decode steps need after the first of them."""
    size = rules.block_size
    rounds = (span - 1) // size
    needed: int = rounds * engine.decoding
    place = engine.phase
    for _ in range(span - 1 - rounds * size):
        place = place - 1 if place > 0 else size - 1
        needed += ledger[engine.bins + place]
    return needed


@jit
def steps_that_fit(engine: Engine, rules: Rules, ledger: Ledger, span: int) -> int:
    """How many of `span` steps the free blocks last for, when those of the first are taken already."""
    size = rules.block_size
    free = engine.free
    if free * size >= (span + size) * engine.decoding:
        return span
    rounds = free // engine.decoding
    free -= rounds * engine.decoding
    steps: int = 1 + rounds * size
    place = engine.phase
    while steps < span:
        place = place - 1 if place > 0 else size - 1
        free -= ledger[engine.bins + place]
        if free < 0:
            return steps
        steps += 1
    return span
