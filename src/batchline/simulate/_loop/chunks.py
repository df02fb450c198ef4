"""One step with prompt tokens: how long it takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined, jit

from .codes import MIXED, NONE
from .jump import decode_time, end_after

if TYPE_CHECKING:
    from batchline.simulate._records import Books, Clock, Engine, Requests, Rules, Tables


@jit
def prompt_time(tables: Tables, clock: Clock, batch: int, tokens: int, attention_s: float, prompts: int) -> float:
    """Time that prompt tokens add to a step."""
    touched = tables[clock.prompt_experts + min(tokens, clock.prompt_experts_size - 1)]
    fresh = max(touched - tables[clock.experts + batch], 0.0)
    added: float = tokens * clock.prompt_token_s + attention_s + prompts * clock.prompt_s + fresh
    return float(clock.prompt_share * added)


@inlined
def plan_mixed(engine: Engine, rules: Rules, requests: Requests, books: Books, clock: Clock, decodes: bool) -> None:
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
        first, _ = decode_time(engine, books, clock)
        batch = engine.decoding
    else:
        first = books.tables[clock.decode]
        batch = 0
    extra = prompt_time(books.tables, clock, batch, tokens, attention, prompts)
    time = first + extra
    if rules.period_s > 0.0:
        time = max(math.ceil(time / rules.period_s), 1) * rules.period_s
    engine.prompt_busy_s += extra if batch > 0 else time
    engine.first_s = time
    engine.slope_s = 0.0
    engine.kind = MIXED
    engine.span = 1 if batch > 0 else 0
    engine.prompts = tokens
    engine.end = end_after(engine, rules, 1)
