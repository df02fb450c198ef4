"""A run of decode steps as one event: k steps take k first + slope k (k - 1) / 2."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined, jit

from .codes import DECODING, HEAP_SHIFT, STATIC
from .decoding import steps_that_fit

if TYPE_CHECKING:
    from batchline.simulate._records import Books, Clock, Engine, Rules


@jit
def decode_time(engine: Engine, books: Books, clock: Clock) -> tuple[float, float]:
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
def span_time(engine: Engine, span: int) -> float:
    return float(span * engine.first_s + engine.slope_s * (0.5 * span * (span - 1)))


@jit
def end_after(engine: Engine, rules: Rules, span: int) -> float:
    """When so many steps are over; on a departure where steps have departures."""
    end = engine.now + span_time(engine, span)
    if rules.period_s > 0.0:
        end = math.floor(end / rules.period_s + 0.5) * rules.period_s
    return float(end)


@jit
def steps_until(engine: Engine, elapsed: float) -> int:
    """Fewest steps that take `elapsed` or longer."""
    if elapsed <= engine.first_s:
        return 1
    level = engine.first_s - 0.5 * engine.slope_s
    steps = int(2.0 * elapsed / (level + math.sqrt(level * level + 2.0 * engine.slope_s * elapsed)))
    steps = max(steps, 1)
    while span_time(engine, steps) < elapsed:
        steps += 1
    while steps > 1 and span_time(engine, steps - 1) >= elapsed:
        steps -= 1
    return steps


@inlined
def plan_decodes(engine: Engine, rules: Rules, books: Books, clock: Clock, limit: int) -> None:
    """Plan as many decode steps as the batch stays what it is, `limit` at most."""
    first, slope = decode_time(engine, books, clock)
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
    engine.span = steps_that_fit(engine, rules, books.ledger, span) if rules.policy != STATIC else span
    engine.prompts = 0
    engine.end = end_after(engine, rules, engine.span)
