"""Decode steps, rebuilt from when each token of each stream arrived.

Between two tokens of a stream lies one step of the engine. It is a clean decode step when every other request in
flight was decoding too: nobody was waiting for its first token, so no prompt was prefilled in it. How many streams
were decoding is its batch. This gives batch against step time out of a closed loop whose own TPOT mixes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchline.measure.point import MeasuredPoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Steps", "Stream", "clean_steps", "decode_points", "full_share", "mean_in_flight", "tokens_per_chunk"]

_LEAST_STEPS = 8
"""Fewer steps at a batch make no point."""

_TOGETHER = 8
"""Gaps whose mean counts as one when the shortest are wanted."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One request, as its client saw it.

    Parameters
    ----------
    start_s : float
        When it was sent [s].
    arrivals_s : array
        When each stream event with text arrived, first to last [s].
    prompt_tokens : float
        Tokens of the prompt [token].
    output_tokens : float
        Tokens of the answer, by the server's count where there is one [token].
    """

    start_s: float
    arrivals_s: NDArray[np.float64]
    prompt_tokens: float
    output_tokens: float

    @property
    def end_s(self) -> float:
        """When the last token arrived [s]."""
        return float(self.arrivals_s[-1]) if len(self.arrivals_s) else self.start_s


@dataclass(frozen=True, slots=True)
class Steps:
    """Clean decode steps at one batch.

    Parameters
    ----------
    batch : int
        Sequences decoded together [sequence].
    context : float
        Mean context of them [token].
    t_step_s : float
        The step, median or another quantile [s].
    spread : float
        Relative spread of single steps: 1.4826 times the median absolute deviation over the median [-].
    count : int
        Steps [-].
    """

    batch: int
    context: float
    t_step_s: float
    spread: float
    count: int


def tokens_per_chunk(streams: Sequence[Stream]) -> float | None:
    """Output tokens in one stream event, over all streams.

    Parameters
    ----------
    streams : sequence of Stream
        Requests that gave output.

    Returns
    -------
    float or None
        Tokens in an event [token]; None without events.
    """
    events = sum(len(stream.arrivals_s) for stream in streams)
    return sum(stream.output_tokens for stream in streams) / events if events else None


def mean_in_flight(streams: Sequence[Stream]) -> float | None:
    """Requests in flight, mean over the run: the sum of their times over its length.

    Parameters
    ----------
    streams : sequence of Stream
        All requests of the run.

    Returns
    -------
    float or None
        Requests [request]; None when the run has no length.
    """
    if not streams:
        return None
    length = max(stream.end_s for stream in streams) - min(stream.start_s for stream in streams)
    return sum(stream.end_s - stream.start_s for stream in streams) / length if length > 0 else None


def full_share(streams: Sequence[Stream], concurrency: float) -> float | None:
    """Share of the run with at least 0.9 of the concurrency in flight: the rest is ramp and drain.

    Parameters
    ----------
    streams : sequence of Stream
        All requests of the run.
    concurrency : float
        Requests that should be in flight [request].

    Returns
    -------
    float or None
        Share of the time [-]; None when the run has no length.
    """
    if not streams:
        return None
    times = np.array([stream.start_s for stream in streams] + [stream.end_s for stream in streams])
    change = np.array([1.0] * len(streams) + [-1.0] * len(streams))
    order = np.lexsort((-change, times))
    times, flying = times[order], np.cumsum(change[order])
    length = times[-1] - times[0]
    if length <= 0:
        return None
    # A closed loop sends the next request when one ends: a gap of a millisecond is no ramp.
    return float(np.sum(np.diff(times)[flying[:-1] >= 0.9 * concurrency]) / length)


def clean_steps(streams: Sequence[Stream], quantile: float = 0.5) -> list[Steps]:
    """Find the decode steps without prefill and group them by batch.

    Parameters
    ----------
    streams : sequence of Stream
        Requests of one run, times on one clock.
    quantile : float
        Which of the gaps is the step: 0.5 is the median; a small one leaves out what other programs took away, and is
        taken of the means of 8 gaps, since a token that this client read late makes the next gap short [-].

    Returns
    -------
    list of Steps
        By rising batch; a batch with fewer than 8 steps is left out, and one whose contexts span more than a factor of
        2 is split.
    """
    streams = [stream for stream in streams if len(stream.arrivals_s) > 1]
    if not streams:
        return []
    owner = np.repeat(np.arange(len(streams)), [len(stream.arrivals_s) - 1 for stream in streams])
    begin = np.concatenate([stream.arrivals_s[:-1] for stream in streams])
    end = np.concatenate([stream.arrivals_s[1:] for stream in streams])
    # Tokens of one step reach the client a little apart; in the middle of a gap all of them have arrived.
    middle = (begin + end) / 2
    first = np.array([stream.arrivals_s[0] for stream in streams])
    sent = np.array([stream.start_s for stream in streams])
    last = np.array([stream.arrivals_s[-1] for stream in streams])
    decoding = _below(first, middle) - _below(last, middle)
    waiting = _below(sent, end) - _below(first, middle)
    clean = (waiting <= 0) & (decoding >= 1) & (end > begin)
    context = _context_held(streams, middle) / np.maximum(decoding, 1)
    found: list[Steps] = []
    for batch in np.unique(decoding[clean]):
        chosen = np.flatnonzero(clean & (decoding == batch))
        for band in _bands(context[chosen]):
            kept = chosen[band]
            count = round(len(kept) / batch)  # each step is seen once by every stream of the batch
            if count >= _LEAST_STEPS:
                gaps = (end - begin)[kept]
                taken = _smoothed(gaps, kept, owner[kept]) if quantile < 0.5 else gaps
                middle = float(np.median(gaps))
                spread = 1.4826 * float(np.median(np.abs(gaps - middle))) / middle
                step = float(np.quantile(taken, quantile))
                found.append(Steps(int(batch), float(context[kept].mean()), step, spread, count))
    return found


def _smoothed(gaps: NDArray[np.float64], place: NDArray[np.intp], owner: NDArray[np.intp]) -> NDArray[np.float64]:
    """Means over gaps that follow each other in one stream; the gaps themselves where there are not enough."""
    last = _TOGETHER - 1
    if len(gaps) <= last:
        return gaps
    together = (place[last:] - place[:-last] == last) & (owner[last:] == owner[:-last])
    means = np.convolve(gaps, np.full(_TOGETHER, 1 / _TOGETHER), "valid")[together]
    return means if means.size else gaps


def _context_held(streams: Sequence[Stream], when: NDArray[np.float64]) -> NDArray[np.float64]:
    """Tokens of context of all decoding streams together at these times."""
    times, change = [], []
    for stream in streams:
        each = stream.output_tokens / len(stream.arrivals_s)
        steps = np.full(len(stream.arrivals_s) + 1, each)
        steps[0] += stream.prompt_tokens
        steps[-1] = -(stream.prompt_tokens + stream.output_tokens)
        times.append(np.append(stream.arrivals_s, stream.arrivals_s[-1]))
        change.append(steps)
    at, held = np.concatenate(times), np.concatenate(change)
    order = np.argsort(at, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(held[order])])
    return total[np.searchsorted(at[order], when, side="right")]


def _below(values: NDArray[np.float64], limits: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.searchsorted(np.sort(values), limits, side="right")


def _bands(context: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Parts in which the context does not span more than a factor of 2."""
    bands = np.zeros(len(context), dtype=np.int64)
    least = float(context.min())
    while context.max() > 2 * max(1.0, least):
        beyond = context > 2 * max(1.0, least)
        bands[beyond] += 1
        least = float(context[beyond].min())
    return [bands == band for band in np.unique(bands)]


def decode_points(streams: Sequence[Stream], serving: MeasuredPoint) -> list[MeasuredPoint]:
    """Make a point of the clean decode steps at each batch of a served run.

    Parameters
    ----------
    streams : sequence of Stream
        Requests of the run.
    serving : MeasuredPoint
        The run as a whole, for where it comes from.

    Returns
    -------
    list of MeasuredPoint
        Points of regime `decode`.
    """
    return [
        MeasuredPoint(
            regime="decode",
            batch=steps.batch,
            context=steps.context,
            t_step_s=steps.t_step_s,
            samples=steps.count,
            spread=steps.spread,
            tokens_per_chunk=serving.tokens_per_chunk,
            completed=serving.completed,
            statistic="median",
            arrival=serving.arrival,
            engine=serving.engine,
            model=serving.model,
            tool=serving.tool,
            file=serving.file,
            label=f"steps at batch {steps.batch}",
            date=serving.date,
            converted=("t_step = median gap between events while every request in flight was decoding",),
        )
        for steps in clean_steps(streams)
    ]
