"""Requests through the schedulers of engines, event by event.

An engine runs step after step. At the boundary between two steps its scheduler plans the next one: which waiting
requests it admits, which prompt tokens it computes, which sequences it decodes, whom it preempts. A step with prompt
tokens is planned alone. A run of decode steps in which the batch does not change is one event however long it is: the
context grows by one token a sequence and step, so k steps take

    k first + slope k (k - 1) / 2        seconds, first and slope from the clock,

and the next event is the first of: a sequence ends; the KV blocks run out; a sequence passes a kink of the KV time; a
request arrives that could be admitted. So the cost grows with events and not with tokens.

The KV cache is a pool of blocks. Free blocks stand in a queue: blocks that nobody can find again, what is left of
preempted requests, and nodes of the prefix tree that no running request holds. New blocks are taken from its head, what
becomes free goes to its tail, the end of a sequence before its beginning.

This file is executed twice (see `_compile`): by numba over arrays of records, and by Python over lists of objects.
It therefore uses numbers, flat sequences and records alone, whose fields are in `_records`. Sequences travel in
bundles: `cache` (free blocks and prefix tree), `books` (ledger, tables and statistics, where records say what begins
where), `doors` (what comes in and goes out).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from batchline.simulate._compile import inlined, jit

if TYPE_CHECKING:
    # Records and sequences of them. Their fields are in `_records`; numba and Python each bring a type of their own.
    from typing import TypeAlias

    World: TypeAlias = Any
    Rules: TypeAlias = Any
    Clock: TypeAlias = Any
    Engine: TypeAlias = Any
    Engines: TypeAlias = Any
    Rulebook: TypeAlias = Any
    Clocks: TypeAlias = Any
    Request: TypeAlias = Any
    Requests: TypeAlias = Any
    Entries: TypeAlias = Any
    Tree: TypeAlias = Any
    Cache: TypeAlias = Any
    Ledger: TypeAlias = Any
    Tables: TypeAlias = Any
    Stats: TypeAlias = Any
    Books: TypeAlias = Any
    Pending: TypeAlias = Any
    Stream: TypeAlias = Any
    Doors: TypeAlias = Any


NONE = -1

# what an engine does: `Engine.kind`
IDLE = 0  # waits for a request
DUE = 1  # stands at the boundary `end`; its next step is to be planned
DECODING = 2  # `span` decode steps until `end`
MIXED = 3  # one step with prompt tokens until `end`

# `Rules.policy`
VLLM = 0  # running first, prompts in chunks beside decodes; also one step every `period_s`
SGLANG = 1  # prompts first, in steps of their own
STATIC = 2  # a batch is filled, served to its end, replaced

# `Engine.role`
BOTH = 0
PREFILL = 1
DECODE = 2

# `World.router`
ROUND_ROBIN = 0
LEAST_LOADED = 1
PREFIX_AWARE = 2

# kinds of free blocks
ANONYMOUS = 0
OWNED = 1  # of a preempted request
NODE = 2  # of the prefix tree

# `Node.entry` where there is no entry
HELD = -1  # running requests hold the node
GONE = -2  # not in the cache

# `Engine.blocked`
FREE = 0
BY_SEATS = 1
BY_BLOCKS = 2
BY_TOKENS = 3

# why `run` returned
DONE = 0
MORE_REQUESTS = 1
MORE_SLOTS = 2
MORE_ENTRIES = 3
MORE_ROWS = 4
STUCK = 5

# statistics: sums of each metric are count, sum, maximum; sketches are counts by size
TTFT = 0
TPOT = 1
ITL = 2
E2E = 3
WAIT = 4
METRICS = 5
PER_OCTAVE = 512
LOWEST = -20  # smallest octave: 2^-20 s, a microsecond
OCTAVES = 44  # to 2^24 s, half a year
BUCKETS = PER_OCTAVE * OCTAVES

# columns of the time series: integrals over the cell, then counts of what happened in it
SEATED = 0
BATCH = 1
BLOCKS = 2
BUSY = 3
PROMPT_TOKENS = 4
OUTPUT_TOKENS = 5
ARRIVED = 6
ADMITTED = 7
FINISHED = 8
PREEMPTED = 9
COLUMNS = 10

HEAP_SHIFT = 1 << 24  # a key of the heap is step x this + slot
RESERVED_OUTPUT = 4096  # SGLang reserves no more of an output than this at admission [token]
RETRACT_STEPS = 20  # steps that SGLang wants to have ahead after it retracted


# -- statistics -------------------------------------------------------------------------------------------------------


@jit
def bucket(seconds: float) -> int:
    """Bucket of a duration; its width is 0.1% to 0.2% of the duration."""
    if seconds <= 0.0:
        return 0
    mantissa, exponent = math.frexp(seconds)
    place = (exponent - LOWEST) * PER_OCTAVE + int((mantissa - 0.5) * (2 * PER_OCTAVE))
    return min(max(place, 0), BUCKETS - 1)


@jit
def bucket_edge(place: int) -> float:
    """Smallest duration of a bucket."""
    return math.ldexp(0.5 + 0.5 * (place % PER_OCTAVE) / PER_OCTAVE, place // PER_OCTAVE + LOWEST)


@jit
def _note(world: World, stats: Stats, metric: int, seconds: float, weight: int) -> None:
    sums = world.sums + 3 * metric
    stats[sums] += weight
    stats[sums + 1] += seconds * weight
    stats[sums + 2] = max(stats[sums + 2], seconds)
    stats[world.sketches + metric * BUCKETS + bucket(seconds)] += weight


@inlined
def _note_gaps(world: World, stats: Stats, first: float, slope: float, span: int, batch: int) -> None:
    """Note the gaps between tokens of a run of decode steps, a bucket at a time."""
    sums = world.sums + 3 * ITL
    longest = first + slope * (span - 1)
    stats[sums] += batch * span
    stats[sums + 1] += batch * (span * first + slope * (0.5 * span * (span - 1)))
    stats[sums + 2] = max(stats[sums + 2], longest)
    sketch = world.sketches + ITL * BUCKETS
    last = bucket(longest)
    done = 0
    while done < span:
        place = bucket(first + slope * done)
        if place >= last:
            inside = span - done
        else:
            inside = math.ceil((bucket_edge(place + 1) - (first + slope * done)) / slope)
            inside = min(max(inside, 1), span - done)
        stats[sketch + place] += batch * inside
        done += inside


@jit
def _fit_series(world: World, stats: Stats, time: float) -> None:
    """Double the width of the cells until the series reaches `time`."""
    while time >= world.cell_s * world.cells:
        half = world.cells // 2
        for cell in range(half):
            for column in range(COLUMNS):
                low = world.series + 2 * cell * COLUMNS + column
                stats[world.series + cell * COLUMNS + column] = stats[low] + stats[low + COLUMNS]
        for place in range(world.series + half * COLUMNS, world.series + world.cells * COLUMNS):
            stats[place] = 0.0
        world.cell_s *= 2.0


@jit
def _count(world: World, stats: Stats, time: float, column: int) -> None:
    _fit_series(world, stats, time)
    stats[world.series + int(time / world.cell_s) * COLUMNS + column] += 1.0


@inlined
def _tally(
    world: World, stats: Stats, engine: Engine, seated: int, batch: int, blocks: float, prompts: int, outputs: int
) -> None:
    """Spread what an engine did from `now` to `end` over the cells of the time series."""
    start = engine.now
    end = engine.end
    if end <= start:
        return
    _fit_series(world, stats, end)
    first = int(start / world.cell_s)
    last = int(end / world.cell_s)
    for cell in range(first, last + 1):
        inside = min(end, (cell + 1) * world.cell_s) - max(start, cell * world.cell_s)
        if inside <= 0.0:
            continue
        share = inside / (end - start)
        place = world.series + cell * COLUMNS
        stats[place + SEATED] += seated * inside
        stats[place + BATCH] += batch * inside
        stats[place + BLOCKS] += blocks * inside
        stats[place + BUSY] += inside
        stats[place + PROMPT_TOKENS] += prompts * share
        stats[place + OUTPUT_TOKENS] += outputs * share


# -- free blocks ------------------------------------------------------------------------------------------------------


@jit
def _unlink_entry(world: World, engine: Engine, entries: Entries, place: int) -> None:
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
def _push_entry(world: World, engine: Engine, entries: Entries, kind: int, owner: int, blocks: int) -> int:
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
def _reclaim(world: World, engine: Engine, entries: Entries, place: int) -> None:
    """Take an entry out of the free blocks: it was found again."""
    engine.free -= entries[place].blocks
    _unlink_entry(world, engine, entries, place)


@inlined
def _take(world: World, engine: Engine, requests: Requests, cache: Cache, count: int) -> None:
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
        _unlink_entry(world, engine, cache.entries, place)


# -- prefix tree ------------------------------------------------------------------------------------------------------


@jit
def _deepest(cache: Cache, index: int, leaf: int) -> int:
    """Deepest node of the way to `leaf` that an engine has in its cache. What is above such a node is there too."""
    node = leaf
    while node != NONE and cache.nodes[node * cache.engines + index].entry == GONE:
        node = cache.tree[node].parent
    return node


@jit
def _blocks_to(tree: Tree, node: int) -> int:
    return 0 if node == NONE else tree[node].blocks


@jit
def _unheld_blocks(cache: Cache, index: int, node: int) -> int:
    """Blocks on the way to `node` that stand among the free ones."""
    deep = _blocks_to(cache.tree, node)
    while node != NONE and cache.nodes[node * cache.engines + index].refs == 0:
        node = cache.tree[node].parent
    return deep - _blocks_to(cache.tree, node)


@jit
def _acquire(world: World, engine: Engine, cache: Cache, node: int) -> None:
    while node != NONE:
        held = cache.nodes[node * cache.engines + engine.index]
        if held.refs == 0:
            _reclaim(world, engine, cache.entries, held.entry)
            held.entry = HELD
        held.refs += 1
        node = cache.tree[node].parent


@jit
def _release(world: World, engine: Engine, cache: Cache, node: int) -> None:
    while node != NONE:
        place = node * cache.engines + engine.index
        held = cache.nodes[place]
        parent = cache.tree[node].parent
        held.refs -= 1
        if held.refs == 0:
            blocks = cache.tree[node].blocks - _blocks_to(cache.tree, parent)
            held.entry = _push_entry(world, engine, cache.entries, NODE, place, blocks)
        node = parent


@jit
def _register(cache: Cache, request: Request) -> None:
    """Make the prompt of a request findable, once all of it is scheduled; unless another was faster."""
    if request.leaf == NONE or _deepest(cache, request.engine, request.leaf) != request.held:
        return
    node = request.leaf
    while node != request.held:
        place = cache.nodes[node * cache.engines + request.engine]
        place.refs = 1
        place.entry = HELD
        node = cache.tree[node].parent
    request.held = request.leaf


# -- sequences that decode --------------------------------------------------------------------------------------------


@inlined
def _push_due(engine: Engine, ledger: Ledger, key: int) -> None:
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
def _drop_due(engine: Engine, ledger: Ledger, place: int) -> None:
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
def _schedule_due(engine: Engine, request: Request, slot: int, books: Books, clock: Clock) -> None:
    """Put the next step that concerns a sequence into the heap: its last token, or a kink of its KV time."""
    passed = engine.steps - request.joined
    due = request.joined + request.output - request.made
    if request.piece + 1 < clock.pieces:
        kink = int(books.tables[clock.knots + request.piece + 1]) - (request.have + passed + 1)
        due = min(due, engine.steps + kink)
    _push_due(engine, books.ledger, due * HEAP_SHIFT + slot)


@inlined
def _join(engine: Engine, rules: Rules, request: Request, slot: int, books: Books, clock: Clock) -> None:
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
    _schedule_due(engine, request, slot, books, clock)


@inlined
def _leave(engine: Engine, request: Request, ledger: Ledger) -> None:
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
def _pass_kink(engine: Engine, request: Request, slot: int, books: Books, clock: Clock) -> None:
    context = request.have + engine.steps - request.joined + 1
    place = engine.pieces + 2 * request.piece
    books.ledger[place] -= 1
    books.ledger[place + 1] -= context
    books.ledger[place + 2] += 1
    books.ledger[place + 3] += context
    request.piece += 1
    _schedule_due(engine, request, slot, books, clock)


@jit
def _blocks_due(engine: Engine, ledger: Ledger) -> int:
    """Blocks that the next decode step needs."""
    return int(ledger[engine.bins + engine.phase])


@jit
def _blocks_later(engine: Engine, rules: Rules, ledger: Ledger, span: int) -> int:
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
def _steps_that_fit(engine: Engine, rules: Rules, ledger: Ledger, span: int) -> int:
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


# -- lists of requests ------------------------------------------------------------------------------------------------


@jit
def _seat(engine: Engine, requests: Requests, slot: int) -> None:
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
def _unseat(engine: Engine, requests: Requests, slot: int) -> None:
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
def _enqueue(engine: Engine, requests: Requests, slot: int) -> None:
    requests[slot].next = NONE
    if engine.queue_tail == NONE:
        engine.queue_head = slot
    else:
        requests[engine.queue_tail].next = slot
    engine.queue_tail = slot
    engine.queued += 1


@jit
def _enqueue_first(engine: Engine, requests: Requests, slot: int) -> None:
    requests[slot].next = engine.queue_head
    engine.queue_head = slot
    if engine.queue_tail == NONE:
        engine.queue_tail = slot
    engine.queued += 1


@jit
def _dequeue(engine: Engine, requests: Requests) -> int:
    slot = engine.queue_head
    engine.queue_head = requests[slot].next
    if engine.queue_head == NONE:
        engine.queue_tail = NONE
    engine.queued -= 1
    return int(slot)


@jit
def _send(pending: Pending, world: World, time: float) -> int:
    """Make room on the way (a heap by time) for what arrives at `time`; return its place."""
    place = world.pending
    world.pending += 1
    world.order += 1
    while place > 0:
        parent = (place - 1) // 2
        if pending[parent].time <= time:
            break
        _move_pending(pending, parent, place)
        place = parent
    pending[place].time = time
    pending[place].order = world.order
    return int(place)


@jit
def _move_pending(pending: Pending, source: int, target: int) -> None:
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
def _before(first: Any, second: Any) -> bool:
    return bool(first.time < second.time or (first.time == second.time and first.order < second.order))


@jit
def _drop_pending(pending: Pending, world: World) -> None:
    """Take the earliest off the way."""
    world.pending -= 1
    size = world.pending
    last = pending[size]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _before(pending[child + 1], pending[child]):
            child += 1
        if not _before(pending[child], last):
            break
        _move_pending(pending, child, place)
        place = child
    if place != size:
        _move_pending(pending, size, place)


# -- how long a step takes --------------------------------------------------------------------------------------------


@jit
def _decode_time(engine: Engine, books: Books, clock: Clock) -> tuple[float, float]:
    """Time of the next decode step, and by how much each further one is longer."""
    time = books.tables[clock.decode + engine.decoding]
    slope = 0.0
    for piece in range(clock.pieces):
        count = books.ledger[engine.pieces + 2 * piece]
        if count > 0:
            steep = books.tables[clock.slopes + piece]
            beyond = books.ledger[engine.pieces + 2 * piece + 1] - books.tables[clock.knots + piece] * count
            time += books.tables[clock.values + piece] * count + steep * beyond
            slope += steep * count
    return time, slope


@jit
def _prompt_time(tables: Tables, clock: Clock, batch: int, tokens: int, attention_s: float, prompts: int) -> float:
    """Time that prompt tokens add to a step."""
    touched = tables[clock.prompt_experts + min(tokens, clock.prompt_experts_size - 1)]
    fresh = max(touched - tables[clock.experts + batch], 0.0)
    added: float = tokens * clock.prompt_token_s + attention_s + prompts * clock.prompt_s + fresh
    return float(clock.prompt_share * added)


@jit
def _span_time(engine: Engine, span: int) -> float:
    return float(span * engine.first_s + engine.slope_s * (0.5 * span * (span - 1)))


@jit
def _end_after(engine: Engine, rules: Rules, span: int) -> float:
    """When so many steps are over; on a departure where steps have departures."""
    end = engine.now + _span_time(engine, span)
    if rules.period_s > 0.0:
        end = math.floor(end / rules.period_s + 0.5) * rules.period_s
    return float(end)


@jit
def _steps_until(engine: Engine, elapsed: float) -> int:
    """Fewest steps that take `elapsed` or longer."""
    if elapsed <= engine.first_s:
        return 1
    level = engine.first_s - 0.5 * engine.slope_s
    steps = int(2.0 * elapsed / (level + math.sqrt(level * level + 2.0 * engine.slope_s * elapsed)))
    steps = max(steps, 1)
    while _span_time(engine, steps) < elapsed:
        steps += 1
    while steps > 1 and _span_time(engine, steps - 1) >= elapsed:
        steps -= 1
    return steps


# -- leaving an engine ------------------------------------------------------------------------------------------------


@jit
def _own_blocks(rules: Rules, tree: Tree, request: Request) -> int:
    """Blocks of a request that are not in the prefix tree."""
    return int((request.have + rules.block_size - 1) // rules.block_size - _blocks_to(tree, request.held))


@inlined
def _give_back(world: World, engine: Engine, rules: Rules, cache: Cache, request: Request) -> None:
    """Free the blocks of a request that needs them no more."""
    _push_entry(world, engine, cache.entries, ANONYMOUS, NONE, _own_blocks(rules, cache.tree, request))
    _release(world, engine, cache, request.held)


@inlined
def _finish(world: World, engine: Engine, request: Request, stats: Stats, doors: Doors) -> None:
    """Note a request whose last token was made, and let its user send another."""
    now = engine.now
    e2e = now - request.sent
    ttft = request.first - request.sent
    tpot = (now - request.first) / (request.output - 1) if request.output > 1 else 0.0
    _note(world, stats, TTFT, ttft, 1)
    _note(world, stats, E2E, e2e, 1)
    if request.output > 1:
        _note(world, stats, TPOT, tpot, 1)
    _count(world, stats, now, FINISHED)
    world.finished += 1
    world.now = max(world.now, now)
    world.output_tokens += request.output
    world.prompt_tokens += request.prompt
    engine.served += 1
    if ttft <= world.ttft_limit and tpot <= world.tpot_limit and e2e <= world.e2e_limit:
        world.met += 1
    if world.row_capacity > 0:
        row = doors.rows[world.rows]
        world.rows += 1
        row.row = request.row
        row.sent = request.sent
        row.admitted = request.admitted
        row.first = request.first
        row.finished = now
        row.prompt = request.prompt
        row.output = request.output
        row.cached = request.cached
        row.preemptions = request.preemptions
        row.engine = engine.index
    if world.closed and world.next < world.available:
        _send_next(world, doors, now)


@jit
def _send_next(world: World, doors: Doors, now: float) -> None:
    """Send the next request of the stream: in a closed loop `sent` is how long its user thinks."""
    source = doors.stream[world.next]
    sent = now + source.sent
    target = doors.pending[_send(doors.pending, world, sent + world.delay_s)]
    target.slot = NONE
    target.sent = sent
    target.row = world.first_row + world.next
    target.prompt = source.prompt
    target.output = source.output
    target.leaf = source.leaf
    world.next += 1


@jit
def _recycle(world: World, requests: Requests, slot: int) -> None:
    requests[slot].next = world.free_slot
    world.free_slot = slot
    world.spare_slots += 1


@jit
def _release_late(world: World, engine: Engine, rules: Rules, requests: Requests, cache: Cache) -> None:
    """Give back what requests held whose end the scheduler has now seen."""
    while engine.late_head != NONE:
        slot = engine.late_head
        engine.late_head = requests[slot].next
        _give_back(world, engine, rules, cache, requests[slot])
        _recycle(world, requests, slot)
    engine.late_tail = NONE
    engine.late = 0


@inlined
def _dismiss(world: World, engine: Engine, rules: Rules, requests: Requests, cache: Cache, slot: int) -> None:
    """Take a finished request out of the engine; a scheduler that runs ahead learns of it a step later."""
    _unseat(engine, requests, slot)
    if not rules.lag:
        _give_back(world, engine, rules, cache, requests[slot])
        _recycle(world, requests, slot)
        return
    requests[slot].next = NONE
    if engine.late_tail == NONE:
        engine.late_head = slot
    else:
        requests[engine.late_tail].next = slot
    engine.late_tail = slot
    engine.late += 1


@jit
def _preempt(
    world: World, engine: Engine, rules: Rules, requests: Requests, cache: Cache, books: Books, slot: int
) -> None:
    """Send a running request back to the head of the queue; its cache stays findable until its blocks are taken."""
    request = requests[slot]
    _unseat(engine, requests, slot)
    if slot == engine.partial:
        engine.partial = NONE
    else:
        for place in range(engine.heaped):
            if books.ledger[engine.heap + place] % HEAP_SHIFT == slot:
                _drop_due(engine, books.ledger, place)
                break
        _leave(engine, request, books.ledger)
        request.paused = engine.now - engine.stall_s
    own = _own_blocks(rules, cache.tree, request)
    if not rules.caching:
        _push_entry(world, engine, cache.entries, ANONYMOUS, NONE, own)
        request.have = 0
    else:
        if rules.policy == SGLANG and request.have > request.prompt:
            kept = min(own, max(0, request.prompt // rules.block_size - _blocks_to(cache.tree, request.held)))
            _push_entry(world, engine, cache.entries, ANONYMOUS, NONE, own - kept)
            own = kept
            request.have = request.prompt
        request.entry = _push_entry(world, engine, cache.entries, OWNED, slot, own)
    _release(world, engine, cache, request.held)
    request.preemptions += 1
    world.preemptions += 1
    _count(world, books.stats, engine.now, PREEMPTED)
    _enqueue_first(engine, requests, slot)


# -- planning a step --------------------------------------------------------------------------------------------------


@inlined
def _found(rules: Rules, requests: Requests, cache: Cache, slot: int) -> tuple[int, int, int]:
    """What the cache still has of a request: deepest node, blocks of its own, tokens that need no computing."""
    request = requests[slot]
    if request.moved:
        return NONE, 0, request.have
    if not rules.caching or (request.leaf == NONE and request.entry == NONE):
        return NONE, 0, 0
    node = _deepest(cache, request.engine, request.leaf)
    blocks = _blocks_to(cache.tree, node)
    size = rules.block_size
    if node != NONE and blocks * size >= request.prompt + request.made:
        above = cache.tree[node].parent
        if blocks - _blocks_to(cache.tree, above) == 1:  # all of this node would be computed again
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
def _admit(
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
    slot = _dequeue(engine, requests)
    request = requests[slot]
    if request.entry != NONE:
        if own > 0:
            _reclaim(world, engine, cache.entries, request.entry)
        else:
            cache.entries[request.entry].kind = ANONYMOUS
        request.entry = NONE
    _acquire(world, engine, cache, node)
    request.held = node
    _take(world, engine, requests, cache, blocks)
    _seat(engine, requests, slot)
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
        _note(world, stats, WAIT, engine.now - request.ready, 1)
    _count(world, stats, engine.now, ADMITTED)
    return slot


@inlined
def _plan_decodes(engine: Engine, rules: Rules, books: Books, clock: Clock, limit: int) -> None:
    """Plan as many decode steps as the batch stays what it is, `limit` at most."""
    first, slope = _decode_time(engine, books, clock)
    span = int(books.ledger[engine.heap] // HEAP_SHIFT - engine.steps)
    span = min(span, limit)
    if rules.period_s > 0.0:
        periods = max(math.ceil(first / rules.period_s), 1)
        if slope > 0.0:
            span = min(span, max(int((periods * rules.period_s - first) / slope) + 1, 1))
        first = periods * rules.period_s
        slope = 0.0
    engine.first_s = first
    engine.slope_s = slope
    engine.kind = DECODING
    engine.span = _steps_that_fit(engine, rules, books.ledger, span) if rules.policy != STATIC else span
    engine.prompts = 0
    engine.end = _end_after(engine, rules, engine.span)


@inlined
def _plan_mixed(engine: Engine, rules: Rules, requests: Requests, books: Books, clock: Clock, decodes: bool) -> None:
    """Plan one step with the prompt chunks of the requests from `fresh` on, and the decoding sequences if they ride."""
    tokens = 0
    prompts = 0
    attention = 0.0
    slot = engine.fresh
    while slot != NONE:
        request = requests[slot]
        if request.chunk > 0:
            tokens += request.chunk
            attention += (
                books.tables[clock.attention + request.have + request.chunk]
                - books.tables[clock.attention + request.have]
            )
            if request.todo == 0:
                prompts += 1
        slot = request.next
    if decodes:
        first, _ = _decode_time(engine, books, clock)
        batch = engine.decoding
    else:
        first = books.tables[clock.decode]
        batch = 0
    extra = _prompt_time(books.tables, clock, batch, tokens, attention, prompts)
    time = first + extra
    if rules.period_s > 0.0:
        time = max(math.ceil(time / rules.period_s), 1) * rules.period_s
    engine.prompt_busy_s += extra if batch > 0 else time
    engine.first_s = time
    engine.slope_s = 0.0
    engine.kind = MIXED
    engine.span = 1 if batch > 0 else 0
    engine.prompts = tokens
    engine.end = _end_after(engine, rules, 1)


@jit
def _needed_blocks(rules: Rules, tree: Tree, node: int, own: int, tokens: int) -> int:
    """New blocks for a request of so many tokens, beside what was found of it."""
    return int(max((tokens + rules.block_size - 1) // rules.block_size - _blocks_to(tree, node) - own, 0))


@inlined
def _plan_vllm(
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
    needed = _blocks_due(engine, books.ledger)
    while needed > engine.free:
        _preempt(world, engine, rules, requests, cache, books, engine.tail)
        preempted = True
        needed = _blocks_due(engine, books.ledger)
    _take(world, engine, requests, cache, needed)
    room = rules.budget - engine.decoding
    engine.fresh = NONE
    engine.blocked = FREE
    if engine.partial != NONE:
        slot = engine.partial
        request = requests[slot]
        chunk = min(request.todo, room)
        blocks = _needed_blocks(
            rules, cache.tree, request.held, _own_blocks(rules, cache.tree, request), request.have + chunk
        )
        if blocks > engine.free:
            _preempt(world, engine, rules, requests, cache, books, slot)
            preempted = True
        else:
            _take(world, engine, requests, cache, blocks)
            request.chunk = chunk
            request.todo -= chunk
            room -= chunk
            engine.fresh = slot
            if request.todo == 0:
                engine.partial = NONE
                _register(cache, request)
    while engine.queued > 0 and not preempted:
        slot = engine.queue_head
        request = requests[slot]
        if request.ready > visible:
            break
        if engine.seated + engine.late >= rules.max_num_seqs:
            engine.blocked = BY_SEATS
            break
        node, own, tokens = _found(rules, requests, cache, slot)
        chunk = min(request.prompt + request.made - tokens, room)
        if request.moved:
            chunk = 0
        elif room <= 0:
            engine.blocked = BY_TOKENS
            break
        target = tokens + 1 if request.moved else tokens + chunk
        blocks = _needed_blocks(rules, cache.tree, node, own, target)
        whole = blocks
        if rules.reserve and chunk < request.prompt + request.made - tokens and not request.moved:
            whole = _needed_blocks(rules, cache.tree, node, own, request.prompt + request.made)
        unheld = _unheld_blocks(cache, engine.index, node) + own
        if whole + unheld > engine.free:
            engine.blocked = BY_BLOCKS
            break
        transferred = request.moved
        _admit(world, engine, requests, cache, books.stats, node, own, tokens, chunk, blocks)
        if transferred:
            _join(engine, rules, request, slot, books, clock)
            continue
        room -= chunk
        if engine.fresh == NONE:
            engine.fresh = slot
        if request.todo > 0:
            engine.partial = slot
        elif rules.caching:
            _register(cache, request)
    if engine.fresh != NONE:
        _plan_mixed(engine, rules, requests, books, clock, True)
    elif engine.decoding > 0:
        waits = engine.queued > 0 and (preempted or engine.late > 0 or requests[engine.queue_head].ready > visible)
        _plan_decodes(engine, rules, books, clock, 1 if waits else HEAP_SHIFT)
    elif preempted:
        return False
    else:
        engine.kind = IDLE
        engine.end = math.inf
    return True


@jit
def _retract(world: World, engine: Engine, rules: Rules, requests: Requests, cache: Cache, books: Books) -> None:
    """Send sequences back until the next decode step fits, least output and longest prompt first (SGLang)."""
    while _blocks_due(engine, books.ledger) > engine.free:
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
        _preempt(world, engine, rules, requests, cache, books, least)
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
def _tokens_free(engine: Engine, rules: Rules, steps: int) -> float:
    """Tokens that SGLang thinks it can admit after so many more decode steps."""
    ratio = max(engine.ratio - rules.ratio_decay * steps, rules.least_ratio)
    used = steps * engine.decoding
    return float(engine.free * rules.block_size - used - ratio * (engine.left - used))


@inlined
def _plan_sglang(
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
    free = _tokens_free(engine, rules, 0)
    needed = math.inf
    engine.fresh = NONE
    engine.blocked = FREE
    if engine.partial != NONE:
        slot = engine.partial
        request = requests[slot]
        chunk = min(request.todo, room)
        blocks = _needed_blocks(
            rules, cache.tree, request.held, _own_blocks(rules, cache.tree, request), request.have + chunk
        )
        _take(world, engine, requests, cache, blocks)
        request.chunk = chunk
        request.todo -= chunk
        room -= chunk
        inputs -= chunk
        free -= chunk + (min(request.output - request.made, RESERVED_OUTPUT) if request.todo == 0 else 0)
        engine.fresh = slot
        if request.todo == 0:
            engine.partial = NONE
            _register(cache, request)
    while engine.queued > 0 and engine.partial == NONE:
        slot = engine.queue_head
        request = requests[slot]
        if request.ready > visible:
            break
        if engine.seated + engine.late >= rules.max_num_seqs:
            engine.blocked = BY_SEATS
            break
        node, own, tokens = _found(rules, requests, cache, slot)
        extend = request.prompt + request.made - tokens
        unheld = _unheld_blocks(cache, engine.index, node) + own
        needed = extend + min(request.output - request.made, RESERVED_OUTPUT) + unheld * rules.block_size
        alone = engine.seated == 0 and engine.late == 0
        if needed > free and not alone:
            engine.blocked = BY_BLOCKS
            break
        if room <= 0 or (extend >= inputs and engine.fresh != NONE):
            engine.blocked = BY_TOKENS
            break
        chunk = min(extend, room)
        blocks = _needed_blocks(rules, cache.tree, node, own, tokens + chunk)
        if blocks + unheld > engine.free:
            engine.blocked = BY_BLOCKS
            break
        _admit(world, engine, requests, cache, books.stats, node, own, tokens, chunk, blocks)
        room -= chunk
        inputs -= chunk
        free -= needed
        if engine.fresh == NONE:
            engine.fresh = slot
        if request.todo > 0:
            engine.partial = slot
        elif rules.caching:
            _register(cache, request)
    if engine.fresh != NONE:
        _plan_mixed(engine, rules, requests, books, clock, False)
        return True
    if engine.decoding == 0:
        engine.kind = IDLE
        engine.end = math.inf
        return True
    retracted = _blocks_due(engine, books.ledger) > engine.free
    if retracted:
        _retract(world, engine, rules, requests, cache, books)
        if engine.decoding == 0:
            return False
    _take(world, engine, requests, cache, _blocks_due(engine, books.ledger))
    limit = HEAP_SHIFT
    if engine.queued > 0 and (retracted or engine.late > 0 or requests[engine.queue_head].ready > visible):
        limit = 1
    elif engine.blocked == BY_BLOCKS:
        limit = _steps_to_room(engine, rules, needed)
    engine.melts = 0 if retracted else 1
    _plan_decodes(engine, rules, books, clock, limit)
    return True


@jit
def _steps_to_room(engine: Engine, rules: Rules, needed: float) -> int:
    """Decode steps after which SGLang may admit a request that needs so many tokens, as its reserve melts."""
    if rules.block_size > 1:
        return 1  # blocks come in jumps: look again at every step
    steps = 1
    # The reserve melts for this many steps; later each token made takes more room than it frees.
    melting = int((engine.ratio - rules.least_ratio) / rules.ratio_decay) + 1 if rules.ratio_decay > 0.0 else 0
    while steps <= melting and _tokens_free(engine, rules, steps) < needed:
        steps += 1
    return steps if steps <= melting else HEAP_SHIFT


@inlined
def _plan_static(
    world: World, engine: Engine, rules: Rules, clock: Clock, requests: Requests, cache: Cache, books: Books
) -> None:
    """Plan a batch that starts when it is full, or when its first request waited long enough, and ends together."""
    engine.fresh = NONE
    engine.blocked = FREE
    if engine.decoding > 0:
        engine.blocked = BY_SEATS
        _plan_decodes(engine, rules, books, clock, HEAP_SHIFT)
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
        blocks = _needed_blocks(rules, cache.tree, NONE, 0, request.prompt + request.output - 1)
        if blocks > engine.free:
            engine.blocked = BY_BLOCKS
            break
        _admit(world, engine, requests, cache, books.stats, NONE, 0, 0, request.prompt, blocks)
        if engine.fresh == NONE:
            engine.fresh = slot
    _plan_mixed(engine, rules, requests, books, clock, False)


@inlined
def _plan(
    world: World, engine: Engine, rules: Rules, clock: Clock, requests: Requests, cache: Cache, books: Books
) -> None:
    """Plan the next step of an engine that stands at a boundary."""
    planned = False
    while not planned:
        visible = engine.now
        if rules.lag:
            if engine.decoding > 0 or engine.partial != NONE:
                visible = engine.before
            else:
                _release_late(world, engine, rules, requests, cache)
        if rules.policy == VLLM:
            planned = _plan_vllm(world, engine, rules, clock, requests, cache, books, visible)
        elif rules.policy == SGLANG:
            planned = _plan_sglang(world, engine, rules, clock, requests, cache, books, visible)
        else:
            _plan_static(world, engine, rules, clock, requests, cache, books)
            planned = True


# -- a step is done ---------------------------------------------------------------------------------------------------


@inlined
def _first_tokens(
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
        request.have += request.chunk
        request.chunk = 0
        if request.todo == 0:
            if math.isnan(request.first):
                request.first = engine.now
            else:
                _note(world, books.stats, ITL, engine.now - request.paused, 1)
            request.made += 1
            _count(world, books.stats, engine.now, OUTPUT_TOKENS)
            if request.made == request.output:
                _finish(world, engine, request, books.stats, doors)
                if rules.policy != STATIC:
                    _dismiss(world, engine, rules, requests, cache, slot)
                else:
                    _join(engine, rules, request, slot, books, clock)
            elif engine.role == PREFILL:
                start = max(engine.now, engine.link_free)
                engine.link_free = start + world.transfer_s + world.transfer_token_s * request.have
                _unseat(engine, requests, slot)
                doors.pending[_send(doors.pending, world, engine.link_free)].slot = slot
            else:
                _join(engine, rules, request, slot, books, clock)
        slot = following
    engine.fresh = NONE


@jit
def _clear_batch(world: World, engine: Engine, rules: Rules, requests: Requests, cache: Cache, ledger: Ledger) -> None:
    """Let a static batch go, all at once."""
    slot = engine.head
    while slot != NONE:
        request = requests[slot]
        following = request.next
        _leave(engine, request, ledger)
        request.have = request.prompt + request.output - 1
        _unseat(engine, requests, slot)
        _give_back(world, engine, rules, cache, request)
        _recycle(world, requests, slot)
        slot = following
    engine.left = 0
    engine.heaped = 0


@inlined
def _complete(
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
        _release_late(world, engine, rules, requests, cache)
        _take(world, engine, requests, cache, _blocks_later(engine, rules, books.ledger, span))
    used_after = rules.blocks - engine.free
    engine.used_peak = max(engine.used_peak, used_after)
    seated = engine.seated
    if span > 0:
        if engine.stall_s > 0.0:
            _note_gaps(world, books.stats, engine.first_s + engine.stall_s, 0.0, 1, batch)
            if span > 1:
                _note_gaps(world, books.stats, engine.first_s + engine.slope_s, engine.slope_s, span - 1, batch)
        else:
            _note_gaps(world, books.stats, engine.first_s, engine.slope_s, span, batch)
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
    _tally(world, books.stats, engine, seated, batch, 0.5 * (used + used_after), engine.prompts, batch * span)
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
    _release_late(world, engine, rules, requests, cache)
    if engine.kind == MIXED:
        _first_tokens(world, engine, rules, clock, requests, cache, books, doors)
    while engine.heaped > 0 and books.ledger[engine.heap] < (engine.steps + 1) * HEAP_SHIFT:
        slot = books.ledger[engine.heap] % HEAP_SHIFT
        _drop_due(engine, books.ledger, 0)
        request = requests[slot]
        if request.made + engine.steps - request.joined < request.output:
            _pass_kink(engine, request, slot, books, clock)
        elif rules.policy == STATIC:
            if request.made < request.output:
                _finish(world, engine, request, books.stats, doors)
        else:
            _leave(engine, request, books.ledger)
            _finish(world, engine, request, books.stats, doors)
            _dismiss(world, engine, rules, requests, cache, slot)
    if rules.policy == STATIC and engine.heaped == 0:
        _clear_batch(world, engine, rules, requests, cache, books.ledger)
    engine.kind = DUE


# -- arrivals ---------------------------------------------------------------------------------------------------------


@jit
def _least_loaded(engines: Engines, first: int, last: int) -> int:
    best = first
    for index in range(first + 1, last):
        if engines[index].seated + engines[index].queued < engines[best].seated + engines[best].queued:
            best = index
    return best


@inlined
def _route(world: World, engines: Engines, cache: Cache, leaf: int) -> int:
    """Choose the engine for a request."""
    front = world.front
    if front == 1:
        return 0
    if world.router == ROUND_ROBIN:
        index = world.turn % front
        world.turn += 1
        return int(index)
    shortest = _least_loaded(engines, 0, front)
    if world.router == LEAST_LOADED or leaf == NONE:
        return shortest
    # Follow the cache while loads are even and at least half of the prompt's blocks are there.
    least = engines[shortest].seated + engines[shortest].queued
    best = NONE
    most = 0
    for index in range(front):
        load = engines[index].seated + engines[index].queued
        found = _blocks_to(cache.tree, _deepest(cache, index, leaf))
        if load - least <= 32 + least // 2 and found > most:
            most = found
            best = index
    return best if best != NONE and 2 * most >= cache.tree[leaf].blocks else shortest


@inlined
def _wake(engine: Engine, rules: Rules, time: float) -> None:
    """Tell an engine that something came: at once when it is idle, else at the next boundary that can use it."""
    if engine.kind == IDLE:
        start = time
        if rules.period_s > 0.0:
            start = math.ceil(time / rules.period_s) * rules.period_s
            if start < time:  # by rounding
                start += rules.period_s
        engine.now = max(engine.now, start)
        engine.end = engine.now
        engine.kind = DUE
    elif engine.kind == DUE and rules.policy == STATIC and engine.queued >= rules.max_num_seqs:
        engine.now = max(engine.now, time)
        engine.end = min(engine.end, engine.now)
    elif engine.kind == DECODING and engine.span > 1 and engine.blocked == FREE and rules.policy != STATIC:
        span = _steps_until(engine, time - engine.now)
        if span < engine.span:
            engine.span = span
            engine.end = _end_after(engine, rules, span)


@inlined
def _arrive(
    world: World,
    engines: Engines,
    rulebook: Rulebook,
    requests: Requests,
    cache: Cache,
    stats: Stats,
    row: int,
    sent: float,
    ready: float,
    prompt: int,
    output: int,
    leaf: int,
) -> None:
    slot = world.free_slot
    request = requests[slot]
    world.free_slot = request.next
    world.spare_slots -= 1
    request.row = row
    request.prompt = prompt
    request.output = output
    request.made = 0
    request.have = 0
    request.chunk = 0
    request.leaf = leaf
    request.held = NONE
    request.entry = NONE
    request.moved = 0
    request.cached = 0
    request.preemptions = 0
    request.sent = sent
    request.ready = ready
    request.admitted = math.nan
    request.first = math.nan
    request.paused = 0.0
    index = _route(world, engines, cache, leaf)
    request.engine = index
    engine = engines[index]
    _count(world, stats, ready, ARRIVED)
    _enqueue(engine, requests, slot)
    _wake(engine, rulebook[engine.rules], ready)


@jit
def _transfer(
    world: World,
    engines: Engines,
    rulebook: Rulebook,
    requests: Requests,
    cache: Cache,
    stats: Stats,
    slot: int,
    time: float,
) -> None:
    """Hand a request whose KV cache has arrived to the engine that decodes it."""
    request = requests[slot]
    source = engines[request.engine]
    _give_back(world, source, rulebook[source.rules], cache, request)
    if source.queued > 0:
        _wake(source, rulebook[source.rules], time)
    index = _least_loaded(engines, world.front, world.front + world.back)
    engine = engines[index]
    request.engine = index
    request.first = time
    request.ready = time
    request.moved = 1
    request.held = NONE
    request.leaf = NONE
    _count(world, stats, time, ARRIVED)
    _enqueue(engine, requests, slot)
    _wake(engine, rulebook[engine.rules], time)


# -- the loop ---------------------------------------------------------------------------------------------------------


@jit
def _earliest(engines: Engines, count: int) -> int:
    best = 0
    for index in range(1, count):
        if engines[index].end < engines[best].end:
            best = index
    return best


@jit
def _receive(
    world: World, engines: Engines, rulebook: Rulebook, requests: Requests, cache: Cache, stats: Stats, pending: Pending
) -> None:
    """Take in what was on its way: a request of a closed loop, or a KV cache."""
    one = pending[0]
    slot = one.slot
    time = one.time
    row = one.row
    sent = one.sent
    prompt = one.prompt
    output = one.output
    leaf = one.leaf
    _drop_pending(pending, world)  # overwrites `one`
    if slot != NONE:
        _transfer(world, engines, rulebook, requests, cache, stats, slot, time)
    else:
        _arrive(world, engines, rulebook, requests, cache, stats, row, sent, time, prompt, output, leaf)


@jit
def run(
    world: World,
    rulebook: Rulebook,
    clocks: Clocks,
    engines: Engines,
    requests: Requests,
    cache: Cache,
    books: Books,
    doors: Doors,
) -> int:
    """Run until something is needed from outside, or all is done; return which.

    Everything lives in the arguments, so a call continues where the last one stopped.
    """
    count = len(engines)
    while True:
        left = world.available - world.next
        if not world.last and left <= (world.margin if world.closed else 0):
            return MORE_REQUESTS
        if world.spare_slots == 0:
            return MORE_SLOTS
        if world.spare_entries < world.entry_margin:
            return MORE_ENTRIES
        if world.row_capacity > 0 and world.rows + world.margin > world.row_capacity:
            return MORE_ROWS
        world.events += 1
        index = _earliest(engines, count) if count > 1 else 0
        engine = engines[index]
        time = math.inf
        if left > 0 and not world.closed:
            time = doors.stream[world.next].sent + world.delay_s
        if world.pending > 0 and doors.pending[0].time < time:
            if doors.pending[0].time <= engine.end:
                _receive(world, engines, rulebook, requests, cache, books.stats, doors.pending)
                continue
        elif time < math.inf and time <= engine.end:
            one = doors.stream[world.next]
            row = world.first_row + world.next
            world.next += 1
            _arrive(
                world,
                engines,
                rulebook,
                requests,
                cache,
                books.stats,
                row,
                one.sent,
                time,
                one.prompt,
                one.output,
                one.leaf,
            )
            continue
        if engine.end == math.inf:
            for index in range(count):
                if engines[index].queued > 0:
                    return STUCK
            return DONE
        rules = rulebook[engine.rules]
        clock = clocks[engine.clock]
        if engine.kind == DUE:
            engine.now = engine.end
            _plan(world, engine, rules, clock, requests, cache, books)
        else:
            _complete(world, engine, rules, clock, requests, cache, books, doors)
            if time > engine.now and (world.pending == 0 or doors.pending[0].time > engine.now):
                _plan(world, engine, rules, clock, requests, cache, books)


@jit
def start_users(world: World, doors: Doors, users: int) -> None:
    """Let the users of a closed loop send their first requests."""
    for _ in range(min(users, world.available - world.next)):
        _send_next(world, doors, 0.0)
