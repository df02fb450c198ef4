"""What the event loop works on: made, grown, and read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.simulate import _compile, _records
from batchline.simulate._loop import codes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from numpy.typing import NDArray

    from batchline.simulate.clock import Clock

_CELLS = 1024  # of the time series; they double in width when it grows beyond them
_FIRST_CELL_S = 2.0**-10
_ROWS = {True: 1 << 16, False: 1 << 8}  # finished requests between two looks from outside; compiled or not
_SLOTS = {True: 1 << 12, False: 1 << 6}  # requests in the system at first


@dataclass(frozen=True, kw_only=True)
class EngineKind:
    """Engines that are alike: their clock, rules, role and number."""

    clock: Clock
    rules: Mapping[str, Any]
    role: str
    count: int


@dataclass
class State:
    """Sequences that `_loop.run` takes, arrays when it is compiled, lists when it is not.

    The sequences and their order are those of the arguments of `run`.
    """

    loop: ModuleType
    compiled: bool
    world: Any = None
    rulebook: Any = None
    clocks: Any = None
    engines: Any = None
    requests: Any = None
    entries: Any = None
    nodes: Any = None
    tree: Any = None
    ledger: Any = None
    tables: Any = None
    stats: Any = None
    rows: Any = None
    pending: Any = None
    stream: Any = None
    slots: int = 0
    tree_size: int = 0

    def run(self) -> int:
        """Run the loop until it needs something; say what."""
        return int(
            self.loop.run(
                self.world[0],
                self.rulebook,
                self.clocks,
                self.engines,
                self.requests,
                _records.Cache(self.entries, self.nodes, self.tree, len(self.engines)),
                _records.Books(self.ledger, self.tables, self.stats),
                self.doors(),
            )
        )

    def doors(self) -> _records.Doors:
        """What goes in and out of the loop."""
        return _records.Doors(self.rows, self.pending, self.stream)

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Keep an array under a name, in the form that the loop takes."""
        if not self.compiled:
            setattr(self, name, _records.plain(array))
        elif array.dtype.names is None:
            setattr(self, name, array)
        else:
            setattr(self, name, array.view(np.recarray))

    def array(self, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """Read a sequence as an array."""
        kept = getattr(self, name)
        if self.compiled:
            return np.asarray(kept)
        return _records.packed(kept, dtype) if dtype is not None else np.asarray(kept)

    def grow(self, name: str, dtype: np.dtype[Any], size: int) -> None:
        """Make a sequence of records longer."""
        kept = getattr(self, name)
        more = np.zeros(size - len(kept), dtype)
        if self.compiled:
            setattr(self, name, np.concatenate([kept, more]).view(np.recarray))
        else:
            kept.extend(_records.plain(more))

    def grow_slots(self, size: int) -> None:
        """Make room for more requests in the system."""
        world = self.world[0]
        old = self.slots
        if size >= codes.HEAP_SHIFT:
            raise MemoryError("more than 16 million requests wait at once")
        self.grow("requests", _records.REQUEST, size)
        self.grow("pending", _records.PENDING, size + 1)
        world.free_slot = _chain(self.requests, old, size, world.free_slot if world.spare_slots else codes.NONE)
        world.spare_slots += size - old
        self.slots = size

    def grow_entries(self, size: int) -> None:
        """Make room for more kinds of free blocks."""
        world = self.world[0]
        old = len(self.entries)
        self.grow("entries", _records.ENTRY, size)
        world.free_entry = _chain(self.entries, old, size, world.free_entry if world.spare_entries else codes.NONE)
        world.spare_entries += size - old

    def grow_tree(self, parents: Sequence[int], blocks: Sequence[int], depth: int) -> None:
        """Add nodes to the prefix tree; no engine has them in its cache yet."""
        engines = len(self.engines)
        old = self.tree_size
        new = old + len(parents)
        if new > len(self.tree):
            size = max(new, 2 * len(self.tree))
            before = len(self.nodes)
            self.grow("tree", _records.TREE, size)
            self.grow("nodes", _records.NODE, size * engines)
            _fill(self.nodes, "entry", before, np.full(size * engines - before, codes.GONE))
        _fill(self.tree, "parent", old, np.asarray(parents))
        _fill(self.tree, "blocks", old, np.asarray(blocks))
        self.tree_size = new
        world = self.world[0]
        world.entry_margin = max(world.entry_margin, (world.margin + 2) * (depth + 3))


def _fill(records: Any, name: str, start: int, values: NDArray[Any]) -> None:
    """Set one field of consecutive records."""
    if isinstance(records, np.ndarray):
        records[name][start : start + len(values)] = values
        return
    for place, value in enumerate(values.tolist(), start=start):
        setattr(records[place], name, value)


def _chain(records: Any, start: int, stop: int, following: int) -> int:
    """Link records into a list of free ones; return its head."""
    _fill(records, "next", start, np.append(np.arange(start + 1, stop), following))
    return start


def make(
    kinds: Sequence[EngineKind],
    *,
    compiled: bool,
    router: str,
    limits: tuple[float, float, float],
    transfer: tuple[float, float],
    keep_rows: bool,
) -> State:
    """Make the state of a simulation before its first request.

    Parameters
    ----------
    kinds : sequence of EngineKind
        Engines that requests arrive at, then those that only decode.
    compiled : bool
        Whether numba compiles the loop.
    router : str
        "round_robin", "least_loaded" or "prefix_aware".
    limits : tuple of float
        Of TTFT, TPOT and E2E that count as met [s].
    transfer : tuple of float
        Time to set up the transfer of a KV cache [s] and for each of its tokens [s/token].
    keep_rows : bool
        Whether finished requests are handed out one by one.

    Returns
    -------
    State
        Ready to run.
    """
    state = State(loop=_compile.load(compiled=compiled), compiled=compiled)
    count = sum(kind.count for kind in kinds)
    seats = max(int(kind.rules["max_num_seqs"]) for kind in kinds)
    state.put("rulebook", np.concatenate([_rules(kind) for kind in kinds]))
    clocks, tables = _clocks(kinds)
    state.put("clocks", clocks)
    state.put("tables", tables)
    engines, ledger = _engines(kinds)
    state.put("engines", engines)
    state.put("ledger", ledger)
    world = np.zeros(1, _records.WORLD)
    one = world[0]
    one["router"] = getattr(codes, router.upper())
    one["front"] = kinds[0].count
    one["back"] = count - kinds[0].count
    one["free_slot"] = one["free_entry"] = codes.NONE
    one["margin"] = seats
    one["entry_margin"] = 3 * (seats + 2)
    one["row_capacity"] = _ROWS[compiled] + seats if keep_rows else 0
    one["cell_s"] = _FIRST_CELL_S
    one["cells"] = _CELLS
    one["delay_s"] = kinds[0].clock.ttft_constant_s
    one["transfer_s"], one["transfer_token_s"] = transfer
    one["ttft_limit"], one["tpot_limit"], one["e2e_limit"] = limits
    one["sums"] = 0
    one["sketches"] = 3 * codes.METRICS
    one["series"] = one["sketches"] + codes.METRICS * codes.BUCKETS
    state.put("world", world)
    state.put("stats", np.zeros(int(one["series"]) + _CELLS * codes.COLUMNS))
    state.put("rows", np.zeros(max(int(one["row_capacity"]), 1), _records.ROW))
    for name, dtype in (("requests", _records.REQUEST), ("entries", _records.ENTRY), ("pending", _records.PENDING)):
        state.put(name, np.zeros(0, dtype))
    state.put("tree", np.zeros(1, _records.TREE))
    state.put("nodes", np.zeros(count, _records.NODE))
    _fill(state.nodes, "entry", 0, np.full(count, codes.GONE))
    state.put("stream", np.zeros(0, _records.STREAM))
    state.grow_slots(_SLOTS[compiled])
    state.grow_entries(int(one["entry_margin"]) + _SLOTS[compiled] + 2 * count)
    for engine in state.engines:
        _fill_cache(state, engine)
    return state


def _fill_cache(state: State, engine: Any) -> None:
    """Put all blocks of an engine into its queue of free blocks."""
    world = state.world[0]
    place = world.free_entry
    entry = state.entries[place]
    world.free_entry = entry.next
    world.spare_entries -= 1
    entry.kind = codes.ANONYMOUS
    entry.owner = entry.next = entry.prev = codes.NONE
    entry.blocks = engine.free = state.rulebook[engine.rules].blocks
    engine.lru_head = engine.lru_tail = place


def _rules(kind: EngineKind) -> NDArray[Any]:
    rules = np.zeros(1, _records.RULES)
    for name, value in kind.rules.items():
        rules[name] = getattr(codes, value) if name == "policy" else value
    if not rules["prompt_budget"][0]:
        rules["prompt_budget"] = rules["budget"]
    return rules


def _clocks(kinds: Sequence[EngineKind]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Lay the tables of all clocks end to end."""
    clocks = np.zeros(len(kinds), _records.CLOCK)
    tables: list[NDArray[np.float64]] = []
    place = 0
    for index, kind in enumerate(kinds):
        clock = kind.clock
        parts = {
            "decode": clock.decode_s,
            "experts": clock.expert_s,
            "prompt_experts": clock.prompt_expert_s,
            "knots": clock.knots.astype(float),
            "values": clock.kv_s,
            "slopes": clock.kv_slope_s,
            "attention": clock.attention_s,
        }
        for name, table in parts.items():
            clocks[index][name] = place
            tables.append(table)
            place += len(table)
        clocks[index]["batches"] = clock.max_batch
        clocks[index]["prompt_experts_size"] = len(clock.prompt_expert_s)
        clocks[index]["pieces"] = len(clock.knots)
        clocks[index]["prompt_token_s"] = clock.prompt_token_s
        clocks[index]["prompt_s"] = clock.prompt_s
        clocks[index]["prompt_share"] = clock.prompt_share
    return clocks, np.concatenate(tables)


def _engines(kinds: Sequence[EngineKind]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Engines with nothing to do, and the ledger with room for each of them."""
    engines = np.zeros(sum(kind.count for kind in kinds), _records.ENGINE)
    place = 0
    index = 0
    for number, kind in enumerate(kinds):
        for _ in range(kind.count):
            engine = engines[index]
            engine["index"] = index
            index += 1
            for name in (
                "partial", "fresh", "head", "tail", "queue_head", "queue_tail", "late_head", "late_tail", "lru_head",
                "lru_tail",
            ):  # fmt: skip
                engine[name] = codes.NONE
            engine["kind"] = codes.IDLE
            engine["end"] = np.inf
            engine["role"] = getattr(codes, kind.role)
            engine["rules"] = engine["clock"] = number
            engine["ratio"] = kind.rules.get("ratio", 0.0)
            engine["bins"] = place
            engine["pieces"] = place + int(kind.rules["block_size"])
            engine["heap"] = engine["pieces"] + 2 * len(kind.clock.knots)
            place = int(engine["heap"]) + int(kind.rules["max_num_seqs"]) + 1
    return engines, np.zeros(place, np.int64)
