"""Schedulers written a second time, token by token and block by block, as slow and plain as can be.

Nothing here is shared with `batchline.simulate` but the time of a step: no jumps, no heaps, every block an object.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass(eq=False)
class Request:
    row: int
    sent: float
    prompt: int
    output: int
    chain: tuple = ()  # names of the shared blocks that its prompt begins with
    made: int = 0
    computed: int = 0
    blocks: list = field(default_factory=list)
    first: float = math.nan
    finished: float = math.nan
    admitted: float = math.nan
    cached: int = 0
    preemptions: int = 0
    decoding: bool = False  # all it knows is computed; until then its tokens are those of a prompt

    def name(self, index):
        """Name of one of its blocks: equal names hold equal tokens."""
        return self.chain[: index + 1] if index < len(self.chain) else ("own", self.row, index)


class BlockPool:
    """Blocks with names; free ones are forgotten in the order in which they became free."""

    def __init__(self, count, size, findable):
        self.size = size
        self.findable = findable
        self.free = OrderedDict((block, None) for block in range(count))
        self.name_of = {}
        self.at = {}
        self.users = dict.fromkeys(range(count), 0)

    def find(self, request, tokens):
        """Blocks that hold the beginning of a request, all but its last token at most."""
        found = []
        if self.findable:
            for index in range((tokens - 1) // self.size):
                block = self.at.get(request.name(index))
                if block is None:
                    break
                found.append(block)
        return found

    def take(self, request, count):
        for _ in range(count):
            block, _ = self.free.popitem(last=False)
            old = self.name_of.pop(block, None)
            if old is not None and self.at.get(old) == block:
                del self.at[old]
            self.users[block] = 1
            request.blocks.append(block)

    def share(self, request, found):
        for block in found:
            if self.users[block] == 0:
                del self.free[block]
            self.users[block] += 1
            request.blocks.append(block)

    def publish(self, request, tokens):
        """Make the full blocks of so many tokens findable."""
        if not self.findable:
            return
        for index in range(tokens // self.size):
            name = request.name(index)
            if name not in self.at:
                self.at[name] = request.blocks[index]
                self.name_of[request.blocks[index]] = name

    def give_back(self, request):
        for block in reversed(request.blocks):
            self.users[block] -= 1
            if self.users[block] == 0:
                self.free[block] = None
        request.blocks = []


def blocks_for(tokens, size):
    return -(-tokens // size)


def vllm(clock, requests, knobs, period=0.0):
    """Serve requests (sorted by arrival) with vLLM's scheduler; knobs as in `simulate.Vllm`."""
    size = knobs.block_size
    count = knobs.kv_blocks or 10**5
    pool = BlockPool(count, size, knobs.prefix_caching)
    coming = list(requests)
    waiting, running, late = [], [], []
    now = before = 0.0
    peak = 0
    while coming or waiting or running:
        if not waiting and not running:
            now = max(now, coming[0].sent)
            if period:
                leaves = math.ceil(now / period) * period
                now = leaves if leaves >= now else leaves + period
        while coming and coming[0].sent <= now:
            waiting.append(coming.pop(0))
        visible = now
        if knobs.async_scheduling and running:
            visible = before
        if not running:
            for request in late:
                pool.give_back(request)
            late = []
        budget = knobs.max_num_batched_tokens
        scheduled = []
        preempted = False
        decoders = [r for r in running if r.decoding]
        for request in decoders:
            if request not in running:
                continue  # preempted while room for another was made
            while True:
                needed = blocks_for(request.computed + 1, size) - len(request.blocks)
                if needed <= len(pool.free):
                    pool.take(request, needed)
                    scheduled.append((request, 1))
                    budget -= 1
                    break
                victim = running.pop()
                if (victim, 1) in scheduled:
                    scheduled.remove((victim, 1))
                    budget += 1
                pool.give_back(victim)
                victim.computed = 0
                victim.decoding = False
                victim.preemptions += 1
                preempted = True
                waiting.insert(0, victim)
                if victim is request:
                    break
        for request in [r for r in running if not r.decoding]:
            chunk = min(request.prompt + request.made - request.computed, budget)
            needed = blocks_for(request.computed + chunk, size) - len(request.blocks)
            if needed > len(pool.free):
                victim = running.pop()
                assert victim is request
                pool.give_back(victim)
                victim.computed = 0
                victim.preemptions += 1
                preempted = True
                waiting.insert(0, victim)
            else:
                pool.take(request, needed)
                scheduled.append((request, chunk))
                budget -= chunk
                pool.publish(request, request.computed + chunk)
        while not preempted and waiting and budget > 0 and len(running) + len(late) < knobs.max_num_seqs:
            request = waiting[0]
            if request.sent > visible:
                break
            total = request.prompt + request.made
            found = pool.find(request, total)
            computed = len(found) * size
            chunk = min(total - computed, budget)
            room = len(pool.free) - sum(pool.users[b] == 0 for b in found)
            whole = total if knobs.reserve_full_isl else computed + chunk
            if blocks_for(whole, size) - len(found) > room:
                break
            waiting.pop(0)
            running.append(request)
            pool.share(request, found)
            pool.take(request, blocks_for(computed + chunk, size) - len(found))
            request.computed = computed
            if math.isnan(request.admitted):
                request.admitted = now
                request.cached = computed
            pool.publish(request, computed + chunk)
            scheduled.append((request, chunk))
            budget -= chunk
        if not scheduled:
            if preempted:
                continue
            assert not waiting
            assert not running
            continue
        used = count - len(pool.free)
        peak = max(peak, used)
        contexts = [r.computed + 1 for r, _ in scheduled if r.decoding]
        chunks = [(r.computed, n) for r, n in scheduled if not r.decoding]
        complete = sum(r.computed + n == r.prompt + r.made for r, n in scheduled if not r.decoding)
        took = clock.step(contexts, chunks, complete)
        if period:
            took = max(math.ceil(took / period), 1) * period
        before = now
        now += took
        if period:
            now = round(now / period) * period
        for request in late:
            pool.give_back(request)
        late = []
        for request, tokens in scheduled:
            request.computed += tokens
            pool.publish(request, min(request.computed, request.prompt + request.made))
            if request.computed == request.prompt + request.made:
                request.made += 1
                request.decoding = True
                if math.isnan(request.first):
                    request.first = now
                if request.made == request.output:
                    request.finished = now
                    running.remove(request)
                    if knobs.async_scheduling:
                        late.append(request)
                    else:
                        pool.give_back(request)
    return peak


def sglang(clock, requests, knobs):
    """Serve requests with SGLang's scheduler, one token a page, no overlap; knobs as in `simulate.Sglang`."""
    assert knobs.page_size == 1
    count = knobs.kv_tokens
    pool = BlockPool(count, 1, knobs.radix_cache)
    coming = list(requests)
    waiting, running = [], []
    ratio = first_ratio = 0.7 * knobs.schedule_conservativeness
    least = 0.14 * first_ratio
    now = 0.0
    while coming or waiting or running:
        if not waiting and not running:
            now = max(now, coming[0].sent)
        while coming and coming[0].sent <= now:
            waiting.append(coming.pop(0))
        chunks = []
        room = knobs.chunked_prefill_size
        inputs = knobs.max_prefill_tokens
        reserved = sum(r.output - r.made for r in running if r.decoding)
        free = len(pool.free) - ratio * reserved
        partial = [r for r in running if not r.decoding]
        for request in partial:
            total = request.prompt + request.made
            chunk = min(total - request.computed, room)
            pool.take(request, chunk)
            chunks.append((request, chunk))
            room -= chunk
            inputs -= chunk
            done = request.computed + chunk == total
            free -= chunk + (min(request.output - request.made, 4096) if done else 0)
            if done:
                pool.publish(request, request.prompt)
        blocked = any(r.computed + n < r.prompt + r.made for r, n in chunks)
        while waiting and not blocked and len(running) < knobs.max_num_seqs:
            request = waiting[0]
            total = request.prompt + request.made
            found = pool.find(request, total)
            extend = total - len(found)
            unheld = sum(pool.users[b] == 0 for b in found)
            needed = extend + min(request.output - request.made, 4096) + unheld
            if (needed > free and running) or room <= 0 or (extend >= inputs and chunks):
                break
            chunk = min(extend, room)
            if chunk + unheld > len(pool.free):
                break
            waiting.pop(0)
            running.append(request)
            pool.share(request, found)
            pool.take(request, chunk)
            request.computed = len(found)
            if math.isnan(request.admitted):
                request.admitted = now
                request.cached = len(found)
            chunks.append((request, chunk))
            room -= chunk
            inputs -= chunk
            free -= needed
            blocked = chunk < extend
            if not blocked:
                pool.publish(request, request.prompt)
        if chunks:
            complete = sum(r.computed + n == r.prompt + r.made for r, n in chunks)
            now += clock.step([], [(r.computed, n) for r, n in chunks], complete)
            for request, tokens in chunks:
                request.computed += tokens
                if request.computed == request.prompt + request.made:
                    request.decoding = True
                    _token(request, now, running, pool)
            continue
        if not running:
            continue
        if len(running) > len(pool.free):
            while len(running) > len(pool.free):
                victim = min(running, key=lambda r: (r.made, -r.prompt))
                running.remove(victim)
                pool.give_back(victim)
                victim.computed = 0
                victim.decoding = False
                victim.preemptions += 1
                waiting.insert(0, victim)
            total = sum(r.output for r in running)
            if not running:
                continue
            ratio = min((sum(r.made for r in running) + 20 * len(running)) / total, 1.0)
        else:
            ratio = max(ratio - (first_ratio - least) / 600, least)
        for request in running:
            pool.take(request, 1)
        now += clock.step([r.computed + 1 for r in running])
        for request in running.copy():
            request.computed += 1
            _token(request, now, running, pool)


def _token(request, now, running, pool):
    request.made += 1
    if math.isnan(request.first):
        request.first = now
    if request.made == request.output:
        request.finished = now
        running.remove(request)
        pool.give_back(request)


def static(clock, requests, knobs):
    """Serve requests in static batches; knobs as in `simulate.Static`, its cache without end."""
    coming = list(requests)
    now = 0.0
    while coming:
        now = max(now, coming[0].sent)
        full = coming[knobs.batch - 1].sent if len(coming) >= knobs.batch else math.inf
        now = max(now, min(full, coming[0].sent + knobs.timeout_s))
        batch = [r for r in coming[: knobs.batch] if r.sent <= now]
        coming = coming[len(batch) :]
        for request in batch:
            request.admitted = now
        now += clock.step([], [(0, r.prompt) for r in batch], len(batch))
        for request in batch:
            request.first = now
            if request.output == 1:
                request.finished = now
        for made in range(2, max(r.output for r in batch) + 1):
            now += clock.step([r.prompt + made - 1 for r in batch])
            for request in batch:
                if request.output == made:
                    request.finished = now
