"""Promises: times that a share of the requests must not exceed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from batchline.errors import InputError
from batchline.queueing import normal_quantile
from batchline.strings import Sentence
from batchline.units import parse_duration

__all__ = ["PROMISES", "Promise"]

PROMISES = ("ttft", "tpot", "itl", "e2e")
"""What can be promised: time to first token, time per output token, longest gap, whole request."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A time that a share of the requests must not exceed.

    Parameters
    ----------
    seconds : float
        The time [s].
    percentile : float or None
        Share of the requests that keep it, in percent; None for the mean of all.
    """

    seconds: float
    percentile: float | None = None

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise InputError(
                Sentence("error.promise_above_0", given=f"{self.seconds:g}"), "", Sentence("error.write_promise")
            )
        if self.percentile is not None and not 0 < self.percentile < 100:
            raise InputError(
                Sentence("error.no_percentile", given=f"{self.percentile:g}"),
                Sentence("error.percentile_between"),
                Sentence("error.write_promise"),
            )

    @classmethod
    def parse(cls, text: str) -> Promise:
        """Read a promise.

        Parameters
        ----------
        text : str
            Like "2s" (the mean), "p95:2s" or "p99:40ms".

        Returns
        -------
        Promise
            What is promised.

        Raises
        ------
        UnitError
            The time cannot be read.
        InputError
            There is no such percentile.

        Examples
        --------
        >>> Promise.parse("p95:2s"), Promise.parse("40ms").percentile
        (Promise(seconds=2.0, percentile=95.0), None)
        """
        match = re.fullmatch(r"\s*p(\d+(?:\.\d+)?)\s*:\s*(.+)", str(text), flags=re.IGNORECASE)
        if match:
            return cls(parse_duration(match[2]), float(match[1]))
        return cls(parse_duration(str(text)))

    def __str__(self) -> str:
        time = f"{self.seconds:g}s" if self.seconds >= 1 else f"{self.seconds * 1e3:g}ms"
        return time if self.percentile is None else f"p{self.percentile:g}:{time}"

    @property
    def z(self) -> float:
        """Standard deviations above the mean; 0 for the mean [-]."""
        return 0.0 if self.percentile is None else normal_quantile(self.percentile / 100.0)
