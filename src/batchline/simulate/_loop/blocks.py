"""The paged KV cache of an engine: its free blocks, in the order in which they are taken.

Free blocks stand in a queue of entries: blocks that nobody can find again, what is left of preempted requests, and
nodes of the prefix tree that no running request holds. New blocks are taken from its head, what becomes free goes to
its tail, the end of a sequence before its beginning: least recently used first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined, jit

from .codes import ANONYMOUS, GONE, NODE, NONE, OWNED

if TYPE_CHECKING:
    from batchline.simulate._records import Cache, Engine, Entries, Requests, World


@jit
def unlink_free(world: World, engine: Engine, entries: Entries, place: int) -> None:
    entry = entries[place]
    if entry.prev == NONE:
        engine.lru_head = entry.next
    else:
        entries[entry.prev].next = entry.next
    if entry.next == NONE:
        engine.lru_tail = entry.prev
    else:
        entries[entry.next].prev = entry.prev
    entry.next = world.free_entry
    world.free_entry = place
    world.spare_entries += 1


@inlined
def push_free(world: World, engine: Engine, entries: Entries, kind: int, owner: int, blocks: int) -> int:
    """Put free blocks at the tail; return their entry, or NONE for no blocks."""
    if blocks <= 0:
        return NONE
    engine.free += blocks
    tail: int = engine.lru_tail
    if kind == ANONYMOUS and tail != NONE and entries[tail].kind == ANONYMOUS:
        entries[tail].blocks += blocks
        return tail
    place: int = world.free_entry
    entry = entries[place]
    world.free_entry = entry.next
    world.spare_entries -= 1
    entry.kind = kind
    entry.owner = owner
    entry.blocks = blocks
    entry.next = NONE
    entry.prev = tail
    if tail == NONE:
        engine.lru_head = place
    else:
        entries[tail].next = place
    engine.lru_tail = place
    return place


@jit
def reclaim(world: World, engine: Engine, entries: Entries, place: int) -> None:
    """Take an entry out of the free blocks: it was found again."""
    engine.free -= entries[place].blocks
    unlink_free(world, engine, entries, place)


@inlined
def take_blocks(world: World, engine: Engine, requests: Requests, cache: Cache, count: int) -> None:
    """Take free blocks from the head; what they held is forgotten. A node goes whole, a request from its end."""
    engine.free -= count
    while count > 0:
        place = engine.lru_head
        entry = cache.entries[place]
        if entry.kind != NODE and entry.blocks > count:
            entry.blocks -= count
            return
        if entry.kind == OWNED:
            requests[entry.owner].entry = NONE
        elif entry.kind == NODE:
            cache.nodes[entry.owner].entry = GONE
        if entry.blocks > count:
            entry.kind = ANONYMOUS
            entry.blocks -= count
            return
        count -= entry.blocks
        unlink_free(world, engine, cache.entries, place)
