"""How many tokens a prompt or an answer has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Protocol

import numpy as np

from batchline.errors import InputError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Empirical",
    "Fixed",
    "Geometric",
    "Histogram",
    "Lengths",
    "LogNormal",
    "Uniform",
    "fit_histogram",
    "fit_log_normal",
]

_NORMAL = NormalDist()
_LONGEST = 1 << 30
"""No request is longer [token]."""


class Lengths(Protocol):
    """A distribution of lengths: whole numbers of tokens, 1 or more."""

    @property
    def mean(self) -> float:
        """Mean [token]."""

    def quantile(self, share: float) -> float:
        """Length that a share of the requests does not exceed [token]."""

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths [token]."""


def _check_range(low: float, high: float) -> None:
    if not 1 <= low <= high <= _LONGEST:
        raise InputError(
            Sentence("error.no_length_range", low=f"{low:g}", high=f"{high:g}"), Sentence("error.rising_lengths")
        )


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every request is as long.

    Parameters
    ----------
    tokens : int
        The length [token].

    Examples
    --------
    >>> Fixed(1024).quantile(0.99)
    1024.0
    """

    tokens: int

    def __post_init__(self) -> None:
        _check_range(self.tokens, self.tokens)

    @property
    def mean(self) -> float:
        """Mean [token]."""
        return float(self.tokens)

    def quantile(self, share: float) -> float:  # noqa: ARG002  (all are alike)
        """Length that a share of the requests does not exceed [token]."""
        return float(self.tokens)

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:  # noqa: ARG002
        """Draw lengths [token]."""
        return np.full(count, self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every whole number in a range is as likely.

    Parameters
    ----------
    low, high : int
        Ends of the range, both included [token].

    Examples
    --------
    >>> Uniform(10, 1600).mean
    805.0
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)

    @property
    def mean(self) -> float:
        """Mean [token]."""
        return (self.low + self.high) / 2

    def quantile(self, share: float) -> float:
        """Length that a share of the requests does not exceed [token]."""
        return float(min(self.low + math.ceil(share * (self.high - self.low + 1)) - 1, self.high))

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths [token]."""
        return rng.integers(self.low, self.high + 1, count)


@dataclass(frozen=True, slots=True)
class Geometric:
    """Each token ends the answer with the same chance: the whole-number form of exponential service.

    Parameters
    ----------
    mean : float
        Mean [token].

    Examples
    --------
    >>> Geometric(200.0).quantile(0.5)
    139.0
    """

    mean: float

    def __post_init__(self) -> None:
        _check_range(self.mean, self.mean)

    def quantile(self, share: float) -> float:
        """Length that a share of the requests does not exceed [token]."""
        if self.mean == 1:
            return 1.0
        return float(max(math.ceil(math.log1p(-share) / math.log1p(-1 / self.mean)), 1)) if share < 1 else math.inf

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths [token]."""
        return rng.geometric(1 / self.mean, count)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """The logarithm is normal, cut off below `low` and above `high`: what lengths in traces look like at first sight.

    Parameters
    ----------
    median : float
        Median before the cut [token].
    sigma : float
        Standard deviation of the logarithm [-].
    low, high : int
        Shortest and longest [token].

    Examples
    --------
    >>> round(LogNormal(500, 1.0).mean), round(LogNormal(500, 1.0).quantile(0.9))
    (824, 1801)
    """

    median: float
    sigma: float
    low: int = 1
    high: int = 1 << 24

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        if not self.median > 0 or not self.sigma >= 0:
            raise InputError(Sentence("error.no_log_normal", median=f"{self.median:g}", sigma=f"{self.sigma:g}"))

    def _shares(self) -> tuple[float, float]:
        """Shares of the uncut distribution below its two ends; a length of n tokens stands for n - 1/2 to n + 1/2."""
        if self.sigma == 0:
            return 0.0, 1.0
        ends = ((math.log(end / self.median)) / self.sigma for end in (max(self.low - 0.5, 1e-9), self.high + 0.5))
        low, high = (_NORMAL.cdf(end) for end in ends)
        return low, high

    @property
    def mean(self) -> float:
        """Mean [token]."""
        if self.sigma == 0:
            return self.median
        low, high = self._shares()
        ends = (math.log(end / self.median) / self.sigma for end in (max(self.low - 0.5, 1e-9), self.high + 0.5))
        below, above = (_NORMAL.cdf(end - self.sigma) for end in ends)
        return self.median * math.exp(self.sigma**2 / 2) * (above - below) / (high - low)

    def quantile(self, share: float) -> float:
        """Length that a share of the requests does not exceed [token]."""
        if self.sigma == 0:
            return self.median
        low, high = self._shares()
        inside = min(max(low + share * (high - low), 1e-15), 1 - 1e-15)
        return self.median * math.exp(self.sigma * _NORMAL.inv_cdf(inside))

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths [token]."""
        made = np.empty(0, dtype=np.int64)
        while len(made) < count:
            drawn = np.rint(self.median * np.exp(self.sigma * rng.standard_normal(count)))
            inside = drawn[(drawn >= self.low) & (drawn <= self.high)].astype(np.int64)
            if not len(inside) and sum(self._shares()) in {0.0, 2.0}:
                raise InputError(Sentence("error.no_length_between", low=f"{self.low}", high=f"{self.high}"))
            made = np.concatenate([made, inside])
        return made[:count]


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Bins of lengths with their shares; inside a bin every length is as likely.

    Parameters
    ----------
    edges : array
        Where bins begin, and where the last ends; rising [token].
    weights : array
        How many requests fall into each bin, in any unit [-].

    Examples
    --------
    >>> Histogram(np.array([1, 101, 1001]), np.array([3, 1])).mean
    175.5
    """

    edges: NDArray[np.int64]
    weights: NDArray[np.float64]

    def __post_init__(self) -> None:
        edges, weights = np.asarray(self.edges), np.asarray(self.weights, dtype=float)
        if len(edges) != len(weights) + 1 or np.any(np.diff(edges) < 1) or edges[0] < 1:
            raise InputError(Sentence("error.histogram_edges"))
        if not np.all(weights >= 0) or not 0 < weights.sum() < np.inf:
            raise InputError(Sentence("error.histogram_weights"))
        object.__setattr__(self, "edges", edges.astype(np.int64))
        object.__setattr__(self, "weights", weights / weights.sum())

    @property
    def mean(self) -> float:
        """Mean [token]."""
        return float(np.sum(self.weights * (self.edges[:-1] + self.edges[1:] - 1) / 2))

    def quantile(self, share: float) -> float:
        """Length that a share of the requests does not exceed [token]."""
        reached = np.concatenate([[0.0], np.cumsum(self.weights)])
        return float(np.interp(share, reached, self.edges))

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths [token]."""
        bins = rng.choice(len(self.weights), count, p=self.weights)
        return rng.integers(self.edges[bins], self.edges[bins + 1])


@dataclass(frozen=True, slots=True, eq=False)
class Empirical:
    """Lengths that were seen, drawn again with replacement.

    Parameters
    ----------
    values : array
        The lengths [token].

    Examples
    --------
    >>> Empirical(np.array([10, 20, 60])).mean
    30.0
    """

    values: NDArray[np.int64]

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.int64)
        if not len(values):
            raise InputError(Sentence("error.no_lengths_to_draw"))
        _check_range(values.min(), values.max())
        object.__setattr__(self, "values", values)

    @property
    def mean(self) -> float:
        """Mean [token]."""
        return float(self.values.mean())

    def quantile(self, share: float) -> float:
        """Length that a share of the requests does not exceed [token]."""
        return float(np.quantile(self.values, share, method="inverted_cdf"))

    def sample(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Draw lengths [token]."""
        return self.values[rng.integers(0, len(self.values), count)]


def fit_log_normal(values: ArrayLike) -> LogNormal:
    """Fit a log-normal distribution to lengths, by mean and spread of their logarithms.

    Parameters
    ----------
    values : array
        Lengths, 1 or more [token].

    Returns
    -------
    LogNormal
        Cut off at the shortest and longest seen.

    Raises
    ------
    InputError
        There are no lengths.

    Examples
    --------
    >>> fitted = fit_log_normal([100, 1000])
    >>> round(fitted.median, 1), round(fitted.sigma, 3), fitted.high
    (316.2, 1.151, 1000)
    """
    lengths = np.asarray(values, dtype=float)
    if not len(lengths):
        raise InputError(Sentence("error.no_lengths_to_fit"))
    _check_range(lengths.min(), lengths.max())
    logs = np.log(lengths)
    return LogNormal(float(np.exp(logs.mean())), float(logs.std()), int(lengths.min()), int(lengths.max()))


def fit_histogram(values: ArrayLike, bins: int = 40) -> Histogram:
    """Count lengths in bins that grow with the length.

    Parameters
    ----------
    values : array
        Lengths, 1 or more [token].
    bins : int
        Bins, at the most [-].

    Returns
    -------
    Histogram
        From the shortest to the longest seen.

    Raises
    ------
    InputError
        There are no lengths.

    Examples
    --------
    >>> fit_histogram([8, 9, 9, 512], bins=4).quantile(0.5)
    18.0
    """
    lengths = np.asarray(values, dtype=np.int64)
    if not len(lengths):
        raise InputError(Sentence("error.no_lengths_to_fit"))
    _check_range(lengths.min(), lengths.max())
    edges = np.unique(np.rint(np.geomspace(lengths.min(), lengths.max() + 1, bins + 1)).astype(np.int64))
    weights, _ = np.histogram(lengths, bins=edges)
    return Histogram(edges, weights.astype(float))
