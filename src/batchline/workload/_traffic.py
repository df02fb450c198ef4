"""Requests in chunks: made from distributions, taken from arrays, stretched, repeated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from batchline.errors import InputError
from batchline.strings import Sentence
from batchline.workload._prefix import PrefixTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike, NDArray

    from batchline.workload._arrivals import Arrivals
    from batchline.workload._lengths import Lengths

__all__ = [
    "Requests",
    "Traffic",
    "closed_loop",
    "limited",
    "of_requests",
    "repeated",
    "rescaled",
    "synthetic",
    "whole",
]

CHUNK = 1 << 16
"""Requests of a chunk [request]."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Requests:
    """A chunk of requests, in the order in which they are sent.

    Parameters
    ----------
    arrival_s : array
        When each is sent, from the start of the traffic on; in a closed loop, how long its user thinks before [s].
    isl, osl : array
        Tokens of prompt and answer [token].
    prefix : array or None
        Deepest node of each prompt in `tree`, -1 for none.
    tree : PrefixTree or None
        Beginnings that prompts share; it may still grow.
    """

    arrival_s: NDArray[np.float64]
    isl: NDArray[np.int64]
    osl: NDArray[np.int64]
    prefix: NDArray[np.int64] | None = None
    tree: PrefixTree | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    def take(self, where: slice | NDArray[np.intp]) -> Requests:
        """Some of the requests.

        Parameters
        ----------
        where : slice or array of int
            Which.

        Returns
        -------
        Requests
            In that order.
        """
        prefix = None if self.prefix is None else self.prefix[where]
        return Requests(
            arrival_s=self.arrival_s[where], isl=self.isl[where], osl=self.osl[where], prefix=prefix, tree=self.tree
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Traffic:
    """Requests that can be read again and again, a chunk at a time.

    Parameters
    ----------
    chunks : callable
        Starts from the first request and yields `Requests`.
    name : str
        What it is, for people.
    count : int or None
        Requests, if known [request].
    concurrency : int or None
        Requests in flight of a closed loop [request]; None for arrivals of their own.
    repairs : dict of str to int
        What was mended while reading, with how often; filled as chunks are read.
    """

    chunks: Callable[[], Iterator[Requests]]
    name: str = ""
    count: int | None = None
    concurrency: int | None = None
    repairs: dict[str, int] = field(default_factory=dict)


def of_requests(
    arrival_s: ArrayLike,
    isl: ArrayLike,
    osl: ArrayLike,
    *,
    prefix: NDArray[np.int64] | None = None,
    tree: PrefixTree | None = None,
    name: str = "",
) -> Traffic:
    """Make traffic of arrays.

    Parameters
    ----------
    arrival_s : array
        When each request is sent, rising [s].
    isl, osl : array or int
        Tokens of prompts and answers, 1 or more [token].
    prefix, tree : array, PrefixTree
        As in `Requests`.
    name : str
        What it is, for people.

    Returns
    -------
    Traffic
        The requests.

    Raises
    ------
    InputError
        No request, times that do not rise or are no numbers, lengths below 1.

    Examples
    --------
    >>> [len(chunk) for chunk in of_requests([0.0, 0.5], 100, [20, 30]).chunks()]
    [2]
    """
    times = np.asarray(arrival_s, dtype=float)
    prompts = np.broadcast_to(np.asarray(isl, dtype=np.int64), times.shape)
    answers = np.broadcast_to(np.asarray(osl, dtype=np.int64), times.shape)
    if not len(times):
        raise InputError(Sentence("error.no_requests"))
    wrong = np.flatnonzero(~(np.isfinite(times) & (times >= 0)))
    if len(wrong):
        raise InputError(
            Sentence("error.sent_at", row=f"{wrong[0]}", given=f"{times[wrong[0]]}"), Sentence("error.time_from_0")
        )
    back = np.flatnonzero(np.diff(times) < 0)
    if len(back):
        raise InputError(Sentence("error.sent_before_last", row=f"{back[0] + 1}"), hint=Sentence("error.sort_by_time"))
    for key, lengths in (("error.prompt_of", prompts), ("error.answer_of", answers)):
        short = np.flatnonzero(lengths < 1)
        if len(short):
            raise InputError(
                Sentence(key, row=f"{short[0]}", given=f"{lengths[short[0]]}"), Sentence("error.has_one_or_more")
            )
    requests = Requests(arrival_s=times, isl=prompts, osl=answers, prefix=prefix, tree=tree)
    return Traffic(
        chunks=partial(_parts, requests),
        name=name or Sentence("simulate.requests_named", count=f"{len(times):,}"),
        count=len(times),
    )


def _parts(requests: Requests) -> Iterator[Requests]:
    for start in range(0, len(requests), CHUNK):
        yield requests.take(slice(start, start + CHUNK))


def synthetic(
    arrivals: Arrivals,
    isl: Lengths,
    osl: Lengths,
    *,
    count: int | None = None,
    duration_s: float | None = None,
    seed: int = 0,
    shared_prefix: tuple[int, int] = (0, 0),
) -> Traffic:
    """Make traffic from patterns.

    Parameters
    ----------
    arrivals : Arrivals
        When requests are sent.
    isl, osl : Lengths
        Tokens of prompts and answers, drawn apart.
    count : int, optional
        How many requests [request].
    duration_s : float, optional
        Until when they are sent [s].
    seed : int
        The same seed makes the same requests.
    shared_prefix : tuple of int
        How many system prompts there are, and their tokens [token]: a prompt begins with one of them, all as likely.
        The tokens of `isl` come after it.

    Returns
    -------
    Traffic
        The requests.

    Raises
    ------
    InputError
        Neither count nor duration, or one that is not above 0.

    Examples
    --------
    >>> from batchline.workload import Fixed, Poisson
    >>> sum(len(chunk) for chunk in synthetic(Poisson(5), Fixed(100), Fixed(10), duration_s=100).chunks())
    454
    """
    if count is None and duration_s is None:
        raise InputError(Sentence("error.how_many"), hint=Sentence("error.give_count"))
    if (count is not None and count < 1) or (duration_s is not None and not 0 < duration_s < np.inf):
        raise InputError(Sentence("error.traffic_from_1"))
    name = f"{type(arrivals).__name__} {arrivals.rate:g}/s"
    expected = None if duration_s is None else int(arrivals.rate * duration_s)
    chunks = partial(_synthetic, arrivals, isl, osl, count, duration_s, seed, shared_prefix)
    return Traffic(chunks=chunks, name=name, count=count if count is not None else expected)


def _synthetic(
    arrivals: Arrivals,
    isl: Lengths,
    osl: Lengths,
    count: int | None,
    duration_s: float | None,
    seed: int,
    shared_prefix: tuple[int, int],
) -> Iterator[Requests]:
    groups, tokens = shared_prefix
    times, prompts, answers, prefixes = (np.random.default_rng([seed, part]) for part in range(4))
    tree = PrefixTree() if groups else None
    if tree is not None:
        for group in range(groups):
            tree.add([group], tokens, tokens)
    left = np.inf if count is None else count
    for arrival_s in arrivals.blocks(times, CHUNK):
        keep = int(min(left, CHUNK))
        if duration_s is not None:
            keep = min(keep, int(np.searchsorted(arrival_s, duration_s, side="right")))
        made = Requests(
            arrival_s=arrival_s,
            isl=isl.sample(prompts, CHUNK) + (tokens if groups else 0),
            osl=osl.sample(answers, CHUNK),
            prefix=prefixes.integers(0, groups, CHUNK) if groups else None,
            tree=tree,
        )
        if keep:
            yield made.take(slice(keep))
        left -= keep
        if keep < CHUNK or left <= 0:
            return


def closed_loop(
    concurrency: int, isl: Lengths, osl: Lengths, *, count: int, think_s: float = 0.0, seed: int = 0
) -> Traffic:
    """Make the traffic of users who send a request when the one before is answered.

    Parameters
    ----------
    concurrency : int
        Requests in flight [request].
    isl, osl : Lengths
        Tokens of prompts and answers, drawn apart.
    count : int
        How many requests [request].
    think_s : float
        Mean time that a user thinks before sending, exponentially distributed [s].
    seed : int
        The same seed makes the same requests.

    Returns
    -------
    Traffic
        The requests.

    Raises
    ------
    InputError
        A concurrency or count below 1, a negative time.

    Examples
    --------
    >>> from batchline.workload import Fixed
    >>> closed_loop(64, Fixed(1024), Fixed(256), count=1000).concurrency
    64
    """
    if concurrency < 1 or count < 1 or not 0 <= think_s < np.inf:
        raise InputError(Sentence("error.closed_loop"))

    chunks = partial(_thinking, isl, osl, count, think_s, seed)
    return Traffic(
        chunks=chunks,
        name=Sentence("simulate.closed_loop", users=f"{concurrency:,}"),
        count=count,
        concurrency=concurrency,
    )


def _thinking(isl: Lengths, osl: Lengths, count: int, think_s: float, seed: int) -> Iterator[Requests]:
    times, prompts, answers = (np.random.default_rng([seed, part]) for part in range(3))
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        thinks = times.exponential(think_s, CHUNK) if think_s > 0 else np.zeros(CHUNK)
        yield Requests(
            arrival_s=thinks[:size], isl=isl.sample(prompts, CHUNK)[:size], osl=osl.sample(answers, CHUNK)[:size]
        )


def whole(traffic: Traffic) -> Requests:
    """Read all of the traffic at once.

    Parameters
    ----------
    traffic : Traffic
        What to read.

    Returns
    -------
    Requests
        All requests.

    Raises
    ------
    InputError
        There is none.
    """
    chunks = list(traffic.chunks())
    if not chunks:
        raise InputError(Sentence("error.no_request", name=traffic.name or Sentence("error.the_traffic")))
    prefixes = [chunk.prefix for chunk in chunks if chunk.prefix is not None]
    return Requests(
        arrival_s=np.concatenate([chunk.arrival_s for chunk in chunks]),
        isl=np.concatenate([chunk.isl for chunk in chunks]),
        osl=np.concatenate([chunk.osl for chunk in chunks]),
        prefix=np.concatenate(prefixes) if prefixes else None,
        tree=chunks[0].tree,
    )


def rescaled(traffic: Traffic, *, rate: float = 1.0, isl: float = 1.0, osl: float = 1.0) -> Traffic:
    """Make traffic denser and its requests longer.

    Parameters
    ----------
    traffic : Traffic
        What there is.
    rate : float
        Factor on the request rate [-].
    isl, osl : float
        Factors on the lengths of prompts and answers; at least one token remains [-].

    Returns
    -------
    Traffic
        The same requests at other times and lengths. Prompts that become longer or shorter share no beginnings.

    Raises
    ------
    InputError
        A factor that is not above 0.

    Examples
    --------
    >>> twice = rescaled(of_requests([0, 4], 100, 20), rate=2, osl=0.5)
    >>> [(list(chunk.arrival_s), list(chunk.osl)) for chunk in twice.chunks()] == [([0.0, 2.0], [10, 10])]
    True
    """
    for name, factor in (("rate", rate), ("isl", isl), ("osl", osl)):
        if not 0 < factor < np.inf:
            raise InputError(
                Sentence("error.scaled_by", name=name, factor=f"{factor:g}"), Sentence("error.factor_above_0")
            )

    return replace(traffic, chunks=partial(_rescaled, traffic, rate, isl, osl))


def _rescaled(traffic: Traffic, rate: float, isl: float, osl: float) -> Iterator[Requests]:
    for chunk in traffic.chunks():
        yield Requests(
            arrival_s=chunk.arrival_s / rate,
            isl=_scaled(chunk.isl, isl),
            osl=_scaled(chunk.osl, osl),
            prefix=chunk.prefix if isl == 1 else None,
            tree=chunk.tree if isl == 1 else None,
        )


def _scaled(lengths: NDArray[np.int64], factor: float) -> NDArray[np.int64]:
    return lengths if factor == 1 else np.maximum(np.rint(lengths * factor), 1).astype(np.int64)


def repeated(traffic: Traffic, times: int) -> Traffic:
    """Send the same requests again when they are through, a mean gap after the last.

    Parameters
    ----------
    traffic : Traffic
        What there is; with arrivals of its own.
    times : int
        How often [-].

    Returns
    -------
    Traffic
        So many times as many requests.

    Raises
    ------
    InputError
        Fewer than one time.

    Examples
    --------
    >>> twice = repeated(of_requests([0, 1, 2], 100, 20), 2)
    >>> [time for chunk in twice.chunks() for time in chunk.arrival_s.tolist()]
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """
    if times < 1:
        raise InputError(Sentence("error.not_repeated", times=f"{times}"))

    count = None if traffic.count is None else traffic.count * times
    return replace(traffic, chunks=partial(_repeated, traffic, times), count=count)


def _repeated(traffic: Traffic, times: int) -> Iterator[Requests]:
    start = 0.0
    for _ in range(times):
        seen = 0
        first = last = 0.0
        for chunk in traffic.chunks():
            if not seen:
                first = float(chunk.arrival_s[0])
            seen += len(chunk)
            last = float(chunk.arrival_s[-1])
            yield replace(chunk, arrival_s=chunk.arrival_s + start)
        start += last + ((last - first) / (seen - 1) if seen > 1 else 0.0)


def limited(traffic: Traffic, count: int) -> Traffic:
    """Take the first requests.

    Parameters
    ----------
    traffic : Traffic
        What there is.
    count : int
        How many, at the most [request].

    Returns
    -------
    Traffic
        They.

    Raises
    ------
    InputError
        None at all.

    Examples
    --------
    >>> limited(of_requests([0, 1, 2], 100, 20), 2).count
    2
    """
    if count < 1:
        raise InputError(Sentence("error.no_traffic", count=f"{count}"))

    known = None if traffic.count is None else min(traffic.count, count)
    return replace(traffic, chunks=partial(_limited, traffic, count), count=known)


def _limited(traffic: Traffic, count: int) -> Iterator[Requests]:
    left = count
    for chunk in traffic.chunks():
        yield chunk.take(slice(left))
        left -= len(chunk)
        if left <= 0:
            return
