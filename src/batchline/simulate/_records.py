"""What the event loop keeps: records of engines, requests and cache, as NumPy structures or as plain objects.

Every field is a 64-bit integer (`i8`) or float (`f8`). `_loop` reads and writes them by name.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, TypeAlias

import numpy as np

# Records and sequences of them: numba and Python each bring a type of their own.
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
Ledger: TypeAlias = Any
Tables: TypeAlias = Any
Stats: TypeAlias = Any
Pending: TypeAlias = Any
Stream: TypeAlias = Any

WORLD = np.dtype(
    [
        ("available", "i8"),  # requests of the stream at hand
        ("next", "i8"),  # of these, the next to arrive
        ("first_row", "i8"),  # row of the trace that stands first in the stream at hand
        ("last", "i8"),  # whether no further requests follow
        ("closed", "i8"),  # whether a request is sent when another finishes
        ("router", "i8"),
        ("turn", "i8"),  # requests routed, for round robin
        ("front", "i8"),  # engines that requests arrive at: the first `front` ones
        ("back", "i8"),  # engines that only decode, after these
        ("free_slot", "i8"),
        ("spare_slots", "i8"),
        ("free_entry", "i8"),
        ("spare_entries", "i8"),
        ("margin", "i8"),  # most requests that one event can finish
        ("entry_margin", "i8"),  # most cache entries that one event can make
        ("rows", "i8"),  # finished requests not fetched yet
        ("row_capacity", "i8"),
        ("pending", "i8"),  # requests and transfers on their way
        ("order", "i8"),  # counts what went on its way, so that ties have an order
        ("sums", "i8"),  # where these begin among the statistics
        ("sketches", "i8"),
        ("series", "i8"),
        ("cells", "i8"),  # of the time series
        ("finished", "i8"),
        ("met", "i8"),  # of the finished, those within all limits
        ("preemptions", "i8"),
        ("cached_tokens", "i8"),
        ("prompt_tokens", "i8"),
        ("output_tokens", "i8"),
        ("recomputed_tokens", "i8"),
        ("decode_steps", "i8"),
        ("mixed_steps", "i8"),
        ("events", "i8"),
        ("now", "f8"),  # when the last request finished
        ("cell_s", "f8"),  # width of a cell of the time series
        ("delay_s", "f8"),  # from the client to the engine
        ("transfer_s", "f8"),  # of a KV cache: set-up
        ("transfer_token_s", "f8"),  # and for each token
        ("ttft_limit", "f8"),
        ("tpot_limit", "f8"),
        ("e2e_limit", "f8"),
    ],
    align=True,
)

RULES = np.dtype(
    [
        ("policy", "i8"),
        ("max_num_seqs", "i8"),
        ("budget", "i8"),  # tokens of a step
        ("prompt_budget", "i8"),  # prompt tokens of a step of prompts alone (SGLang)
        ("block_size", "i8"),
        ("blocks", "i8"),
        ("caching", "i8"),  # whether what a request leaves behind can be found again
        ("lag", "i8"),  # whether a step is scheduled while the one before runs
        ("reserve", "i8"),  # whether a prompt must fit whole to be admitted
        ("period_s", "f8"),  # steps start at multiples of this; 0 at once
        ("timeout_s", "f8"),  # longest that a static batch waits to be full
        ("ratio", "f8"),  # share of the output reserved at admission: at first, at least, and less per step (SGLang)
        ("least_ratio", "f8"),
        ("ratio_decay", "f8"),
    ],
    align=True,
)

CLOCK = np.dtype(
    [
        ("batches", "i8"),  # largest batch of the table
        ("decode", "i8"),  # where these begin among the tables
        ("experts", "i8"),
        ("prompt_experts", "i8"),
        ("prompt_experts_size", "i8"),
        ("knots", "i8"),
        ("values", "i8"),
        ("slopes", "i8"),
        ("pieces", "i8"),
        ("attention", "i8"),
        ("prompt_token_s", "f8"),
        ("prompt_s", "f8"),
        ("prompt_share", "f8"),
    ],
    align=True,
)

ENGINE = np.dtype(
    [
        ("index", "i8"),  # its place among the engines
        ("kind", "i8"),
        ("role", "i8"),
        ("rules", "i8"),
        ("clock", "i8"),
        ("span", "i8"),  # decode steps in progress
        ("steps", "i8"),  # decode steps done
        ("decoding", "i8"),  # sequences that decode
        ("seated", "i8"),  # sequences that run: these and a prompt in chunks
        ("left", "i8"),  # tokens that the decoding ones have yet to make
        ("partial", "i8"),  # prompt in chunks
        ("fresh", "i8"),  # first of the requests whose prompts are in the step
        ("head", "i8"),  # running requests, in order of admission
        ("tail", "i8"),
        ("queue_head", "i8"),
        ("queue_tail", "i8"),
        ("queued", "i8"),
        ("late_head", "i8"),  # finished, but the scheduler does not know yet
        ("late_tail", "i8"),
        ("late", "i8"),
        ("melts", "i8"),  # whether the share of outputs that is reserved shrinks with the steps (SGLang)
        ("blocked", "i8"),  # why the queue waits
        ("prompts", "i8"),  # prompt tokens of the step
        ("free", "i8"),  # blocks
        ("used_peak", "i8"),
        ("lru_head", "i8"),
        ("lru_tail", "i8"),
        ("heaped", "i8"),
        ("phase", "i8"),  # which of the bins needs blocks in the next step
        ("bins", "i8"),  # where these begin in the ledger
        ("pieces", "i8"),
        ("heap", "i8"),
        ("served", "i8"),
        ("now", "f8"),  # last boundary between steps
        ("end", "f8"),  # next event
        ("before", "f8"),  # start of the last step done
        ("first_s", "f8"),  # time of the first decode step in progress
        ("slope_s", "f8"),  # by how much each further one is longer
        ("stall_s", "f8"),  # time of steps without the decoding sequences since their last token
        ("ratio", "f8"),
        ("link_free", "f8"),
        ("busy_s", "f8"),
        ("prompt_busy_s", "f8"),  # of this, what prompts add
        ("seats_wait_s", "f8"),  # time in which the queue waits for a seat,
        ("blocks_wait_s", "f8"),  # for blocks of the KV cache,
        ("tokens_wait_s", "f8"),  # for room in the token budget
    ],
    align=True,
)

REQUEST = np.dtype(
    [
        ("row", "i8"),
        ("prompt", "i8"),
        ("output", "i8"),
        ("made", "i8"),  # tokens generated when it joined
        ("have", "i8"),  # tokens in the cache when it joined
        ("chunk", "i8"),  # tokens computed in this step
        ("todo", "i8"),  # tokens to compute after it
        ("joined", "i8"),  # steps of the engine when it joined
        ("bin", "i8"),  # by when it needs a block
        ("piece", "i8"),  # of the KV time
        ("leaf", "i8"),  # of the prefix tree
        ("held", "i8"),  # deepest node that it holds
        ("entry", "i8"),  # what is left of its cache after preemption
        ("moved", "i8"),  # whether its cache comes from another engine
        ("engine", "i8"),
        ("next", "i8"),
        ("prev", "i8"),
        ("cached", "i8"),
        ("preemptions", "i8"),
        ("sent", "f8"),
        ("ready", "f8"),  # at the engine
        ("admitted", "f8"),
        ("first", "f8"),
        ("paused", "f8"),  # its last token before preemption
    ],
    align=True,
)

ENTRY = np.dtype(
    [("kind", "i8"), ("owner", "i8"), ("blocks", "i8"), ("next", "i8"), ("prev", "i8")],
    align=True,
)

NODE = np.dtype([("refs", "i8"), ("entry", "i8")], align=True)

TREE = np.dtype([("parent", "i8"), ("blocks", "i8")], align=True)  # blocks from the root to the end of the node

PENDING = np.dtype(
    [
        ("time", "f8"),
        ("order", "i8"),
        ("slot", "i8"),
        ("sent", "f8"),
        ("row", "i8"),
        ("prompt", "i8"),
        ("output", "i8"),
        ("leaf", "i8"),
    ],
    align=True,
)

STREAM = np.dtype([("sent", "f8"), ("prompt", "i8"), ("output", "i8"), ("leaf", "i8")], align=True)

ROW = np.dtype(
    [
        ("row", "i8"),
        ("sent", "f8"),
        ("admitted", "f8"),
        ("first", "f8"),
        ("finished", "f8"),
        ("prompt", "i8"),
        ("output", "i8"),
        ("cached", "i8"),
        ("preemptions", "i8"),
        ("engine", "i8"),
    ],
    align=True,
)


class Cache(NamedTuple):
    """Free blocks, the prefix tree, and what of it each engine has (place: node x engines + index)."""

    entries: Any
    nodes: Any
    tree: Any
    engines: int


class Books(NamedTuple):
    """What has a length: integers of engines, tables of clocks, statistics; records say where each begins."""

    ledger: Any
    tables: Any
    stats: Any


class Doors(NamedTuple):
    """Finished requests, requests and transfers on their way, requests to come."""

    rows: Any
    pending: Any
    stream: Any


@functools.cache
def _plain_class(names: tuple[str, ...]) -> type:
    def __init__(self: Any, values: tuple[Any, ...]) -> None:  # noqa: N807
        for name, value in zip(names, values, strict=True):
            setattr(self, name, value)

    return type("Record", (), {"__slots__": names, "__init__": __init__})


def plain(array: np.ndarray[Any, Any]) -> list[Any]:
    """Copy an array into a list of numbers, or of objects with the same fields."""
    values: list[Any] = array.tolist()
    if array.dtype.names is None:
        return values
    record = _plain_class(array.dtype.names)
    return [record(value) for value in values]


def packed(records: list[Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Copy a list of objects back into an array."""
    names = dtype.names or ()
    return np.array([tuple(getattr(record, name) for name in names) for record in records], dtype=dtype)
