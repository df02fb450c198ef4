"""What is on its way to an engine, a heap by time: requests of a closed loop, and KV caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batchline.simulate._compile import jit

from .codes import NONE

if TYPE_CHECKING:
    from batchline.simulate._records import Doors, Pending, World


@jit
def is_before(first: Any, second: Any) -> bool:
    return bool(first.time < second.time or (first.time == second.time and first.order < second.order))


@jit
def move_entry(pending: Pending, source: int, target: int) -> None:
    there = pending[source]
    here = pending[target]
    here.time = there.time
    here.order = there.order
    here.slot = there.slot
    here.sent = there.sent
    here.row = there.row
    here.prompt = there.prompt
    here.output = there.output
    here.leaf = there.leaf


@jit
def send_at(pending: Pending, world: World, time: float) -> int:
    """Make room on the way (a heap by time) for what arrives at `time`; return its place."""
    place = world.pending
    world.pending += 1
    world.order += 1
    while place > 0:
        parent = (place - 1) // 2
        if pending[parent].time <= time:
            break
        move_entry(pending, parent, place)
        place = parent
    pending[place].time = time
    pending[place].order = world.order
    return int(place)


@jit
def drop_first(pending: Pending, world: World) -> None:
    """Take the earliest off the way."""
    world.pending -= 1
    size = world.pending
    last = pending[size]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and is_before(pending[child + 1], pending[child]):
            child += 1
        if not is_before(pending[child], last):
            break
        move_entry(pending, child, place)
        place = child
    if place != size:
        move_entry(pending, size, place)


@jit
def send_next(world: World, doors: Doors, now: float) -> None:
    """Send the next request of the stream: in a closed loop `sent` is how long its user thinks."""
    source = doors.stream[world.next]
    sent = now + source.sent
    target = doors.pending[send_at(doors.pending, world, sent + world.delay_s)]
    target.slot = NONE
    target.sent = sent
    target.row = world.first_row + world.next
    target.prompt = source.prompt
    target.output = source.output
    target.leaf = source.leaf
    world.next += 1
