"""When requests are sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from batchline.errors import InputError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Arrivals", "Bursts", "Diurnal", "GammaGaps", "Metronome", "Poisson"]


class Arrivals(Protocol):
    """A pattern of arrivals from time 0 on, without end."""

    @property
    def rate(self) -> float:
        """Requests per second, mean [1/s]."""

    def blocks(self, rng: np.random.Generator, size: int) -> Iterator[NDArray[np.float64]]:
        """Times of the next `size` requests, again and again [s]."""


def _check(rate: float) -> None:
    if not 0 < rate < np.inf:
        raise InputError(Sentence("error.arrival_rate", given=f"{rate:g}"))


def _sums(gaps: Iterator[NDArray[np.float64]]) -> Iterator[NDArray[np.float64]]:
    now = 0.0
    for gap in gaps:
        times = now + np.cumsum(gap)
        now = float(times[-1])
        yield times


@dataclass(frozen=True, slots=True)
class Metronome:
    """One request after another, always as far apart.

    Parameters
    ----------
    rate : float
        Requests per second [1/s].
    """

    rate: float

    def __post_init__(self) -> None:
        _check(self.rate)

    def blocks(self, rng: np.random.Generator, size: int) -> Iterator[NDArray[np.float64]]:  # noqa: ARG002
        """Times of the next `size` requests, again and again [s]."""
        first = 1
        while True:
            yield np.arange(first, first + size) / self.rate
            first += size


@dataclass(frozen=True, slots=True)
class Poisson:
    """Requests know nothing of each other: gaps are exponential.

    Parameters
    ----------
    rate : float
        Requests per second [1/s].

    Examples
    --------
    >>> times = next(Poisson(20).blocks(np.random.default_rng(1), 4000))
    >>> round(4000 / float(times[-1]), 1)
    20.2
    """

    rate: float

    def __post_init__(self) -> None:
        _check(self.rate)

    def blocks(self, rng: np.random.Generator, size: int) -> Iterator[NDArray[np.float64]]:
        """Times of the next `size` requests, again and again [s]."""
        return _sums(rng.exponential(1 / self.rate, size) for _ in iter(int, 1))


@dataclass(frozen=True, slots=True)
class GammaGaps:
    """Gaps are gamma-distributed: burstier than Poisson for a variation above 1, more even below.

    Parameters
    ----------
    rate : float
        Requests per second [1/s].
    cv : float
        Coefficient of variation of the gaps [-]; 1 is Poisson.
    """

    rate: float
    cv: float

    def __post_init__(self) -> None:
        _check(self.rate)
        if not 0 < self.cv < np.inf:
            raise InputError(Sentence("error.arrival_cv", given=f"{self.cv:g}"))

    def blocks(self, rng: np.random.Generator, size: int) -> Iterator[NDArray[np.float64]]:
        """Times of the next `size` requests, again and again [s]."""
        shape = self.cv**-2
        return _sums(rng.gamma(shape, 1 / (self.rate * shape), size) for _ in iter(int, 1))


@dataclass(frozen=True, slots=True)
class Bursts:
    """Groups of requests come together, the groups as a Poisson process.

    Parameters
    ----------
    rate : float
        Requests per second [1/s].
    size : int
        Requests of a group [request].
    """

    rate: float
    size: int

    def __post_init__(self) -> None:
        _check(self.rate)
        if self.size < 1:
            raise InputError(Sentence("error.arrival_burst", given=f"{self.size}"))

    def blocks(self, rng: np.random.Generator, size: int) -> Iterator[NDArray[np.float64]]:
        """Times of the next `size` requests, again and again [s]."""

        def gaps() -> Iterator[NDArray[np.float64]]:
            sent = 0
            while True:
                leads = (np.arange(sent, sent + size) % self.size) == 0
                gap = np.zeros(size)
                gap[leads] = rng.exponential(self.size / self.rate, int(leads.sum()))
                sent += size
                yield gap

        return _sums(gaps())


@dataclass(frozen=True, slots=True)
class Diurnal:
    """A Poisson process whose rate swings like a day: lowest at time 0, highest half a period later.

    Parameters
    ----------
    rate : float
        Requests per second, mean [1/s].
    peak : float
        Highest rate over the mean, 1 to 2 [-].
    period_s : float
        Length of the day [s].

    Examples
    --------
    >>> times = next(Diurnal(10, 1.8, 3600).blocks(np.random.default_rng(1), 36000))
    >>> first = np.sum(times < 600)
    >>> middle = np.sum((times >= 1500) & (times < 2100))
    >>> bool(middle > 4 * first)
    True
    """

    rate: float
    peak: float = 1.8
    period_s: float = 86400.0

    def __post_init__(self) -> None:
        _check(self.rate)
        if not 1 <= self.peak <= 2:
            raise InputError(Sentence("error.arrival_peak", given=f"{self.peak:g}"))
        if not 0 < self.period_s < np.inf:
            raise InputError(Sentence("error.arrival_day", given=f"{self.period_s:g}"))

    def blocks(self, rng: np.random.Generator, size: int) -> Iterator[NDArray[np.float64]]:
        """Times of the next `size` requests, again and again [s]."""
        # Requests counted by the mean number expected until then are a Poisson process of rate 1; invert that number.
        swing = (self.peak - 1) * self.period_s / (2 * np.pi)
        turn = np.linspace(0, self.period_s, 4097)
        expected = self.rate * (turn - swing * np.sin(2 * np.pi * turn / self.period_s))
        daily = self.rate * self.period_s
        for count in _sums(rng.exponential(1.0, size) for _ in iter(int, 1)):
            days = np.floor(count / daily)
            yield days * self.period_s + np.interp(count - days * daily, expected, turn)
