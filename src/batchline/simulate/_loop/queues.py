"""Requests of an engine: those that run, in order of admission, and those that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.simulate._compile import jit

from .codes import NONE

if TYPE_CHECKING:
    from batchline.simulate._records import Engine, Requests, World


@jit
def seat(engine: Engine, requests: Requests, slot: int) -> None:
    request = requests[slot]
    request.prev = engine.tail
    request.next = NONE
    if engine.tail == NONE:
        engine.head = slot
    else:
        requests[engine.tail].next = slot
    engine.tail = slot
    engine.seated += 1


@jit
def unseat(engine: Engine, requests: Requests, slot: int) -> None:
    request = requests[slot]
    if request.prev == NONE:
        engine.head = request.next
    else:
        requests[request.prev].next = request.next
    if request.next == NONE:
        engine.tail = request.prev
    else:
        requests[request.next].prev = request.prev
    engine.seated -= 1


@jit
def enqueue(engine: Engine, requests: Requests, slot: int) -> None:
    requests[slot].next = NONE
    if engine.queue_tail == NONE:
        engine.queue_head = slot
    else:
        requests[engine.queue_tail].next = slot
    engine.queue_tail = slot
    engine.queued += 1


@jit
def enqueue_first(engine: Engine, requests: Requests, slot: int) -> None:
    requests[slot].next = engine.queue_head
    engine.queue_head = slot
    if engine.queue_tail == NONE:
        engine.queue_tail = slot
    engine.queued += 1


@jit
def dequeue(engine: Engine, requests: Requests) -> int:
    slot = engine.queue_head
    engine.queue_head = requests[slot].next
    if engine.queue_head == NONE:
        engine.queue_tail = NONE
    engine.queued -= 1
    return int(slot)


@jit
def recycle(world: World, requests: Requests, slot: int) -> None:
    requests[slot].next = world.free_slot
    world.free_slot = slot
    world.spare_slots += 1
