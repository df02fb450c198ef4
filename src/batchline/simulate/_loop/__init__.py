"""Requests through the schedulers of engines, event by event.

An engine runs step after step. At the boundary between two steps its scheduler plans the next one: which waiting
requests it admits, which prompt tokens it computes, which sequences it decodes, whom it preempts. A step with prompt
tokens is planned alone (`chunks`). A run of decode steps in which the batch does not change is one event however long
it is (`jump`), and the next event is the first of: a sequence ends; the KV blocks run out; a sequence passes a kink of
the KV time; a request arrives that could be admitted. So the cost grows with events and not with tokens.

    events      the loop over events
    routing     a request comes to an engine              admission   it is seated, with what the prefix cache has of it
    vllm, sglang, static    how each scheduler plans      preemption  it is sent back, as the blocks ran out
    jump, chunks            how long a step takes         departure   it leaves
    decoding    sequences between their events            completion  a step is done
    blocks, prefix          the KV cache and what can be found in it
    queues, transit         who runs, waits, is on the way
    statistics              what is counted

This package is executed twice (see `_compile`): by numba over arrays of records, and by Python over lists of objects,
so its modules import each other by relative names. They use numbers, flat sequences and records alone, whose fields
are in `_records`. Sequences travel in bundles: `cache` (free blocks and prefix tree), `books` (ledger, tables and
statistics, where records say what begins where), `doors` (what comes in and goes out).
"""

from .events import run, start_users

__all__ = ["run", "start_users"]
