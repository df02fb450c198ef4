"""What a simulation counts: sketches of times, and a time series whose cells double in width as it grows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline.simulate._compile import inlined, jit

from .codes import BATCH, BLOCKS, BUCKETS, BUSY, COLUMNS, ITL, LOWEST, OUTPUT_TOKENS, PER_OCTAVE, PROMPT_TOKENS, SEATED

if TYPE_CHECKING:
    from batchline.simulate._records import Engine, Stats, World


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
def note_time(world: World, stats: Stats, metric: int, seconds: float, weight: int) -> None:
    sums = world.sums + 3 * metric
    stats[sums] += weight
    stats[sums + 1] += seconds * weight
    stats[sums + 2] = max(stats[sums + 2], seconds)
    stats[world.sketches + metric * BUCKETS + bucket(seconds)] += weight


@inlined
def note_gaps(world: World, stats: Stats, first: float, slope: float, span: int, batch: int) -> None:
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
def fit_series(world: World, stats: Stats, time: float) -> None:
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
def count_event(world: World, stats: Stats, time: float, column: int) -> None:
    fit_series(world, stats, time)
    stats[world.series + int(time / world.cell_s) * COLUMNS + column] += 1.0


@inlined
def tally(
    world: World, stats: Stats, engine: Engine, seated: int, batch: int, blocks: float, prompts: int, outputs: int
) -> None:
    """Spread what an engine did from `now` to `end` over the cells of the time series."""
    start = engine.now
    end = engine.end
    if end <= start:
        return
    fit_series(world, stats, end)
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
