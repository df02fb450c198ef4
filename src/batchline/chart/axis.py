"""One axis: its ends, its ticks and where a value lies on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Axis", "batch_ticks", "linear_ticks", "log_ticks"]


@dataclass(frozen=True)
class Axis:
    """Ends and ticks of an axis of a length in pixels.

    Parameters
    ----------
    log : bool
        Logarithmic instead of linear.
    low, high : float
        Values at its ends.
    length : float
        Its length [px].
    ticks : list of float
        Values that are marked.
    down : bool
        Pixels grow downwards from the high end, as on a screen's vertical axis.
    """

    log: bool
    low: float
    high: float
    length: float
    ticks: list[float]
    down: bool = False

    def pixel(self, values: float | NDArray[np.float64]) -> NDArray[np.float64]:
        """Place of values [px]; beyond the ends where the values are."""
        given = np.asarray(values, dtype=float)
        if self.log:
            with np.errstate(divide="ignore"):
                share = np.log(given / self.low) / np.log(self.high / self.low)
        else:
            share = (given - self.low) / (self.high - self.low)
        share = np.minimum(np.maximum(share, -1e3), 1e3)  # np.clip, in a fifth of the time
        return np.asarray((1.0 - share if self.down else share) * self.length)

    def inside(self, value: float) -> bool:
        """Whether a value lies between the ends."""
        return self.low <= value <= self.high


def linear_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round values from `low` to `high`, `most` at the most."""
    size = 10.0 ** np.floor(np.log10((high - low) / most))
    step = next(size * times for times in (1, 2, 2.5, 5, 10) if (high - low) / (size * times) <= most)
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [round(float(step * i), 12) for i in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Values like 0.1, 0.3, 1, 3 from `low` to `high`; denser over a short range, sparser over a long one."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    for parts in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3)):
        ticks = [round(part * 10.0**decade, 12 - decade) for decade in decades for part in parts]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(ticks) <= most:
            return ticks
    stride = 1
    while len(decades[::stride]) > most:
        stride += 1
    chosen = [10.0**decade for decade in decades if decade % stride == 0]
    return [float(tick) for tick in chosen if low * 0.999 <= tick <= high * 1.001]


def batch_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Powers of two from `low` to `high`, every second or third or further one, `most` at the most."""
    first, last = int(np.ceil(np.log2(low) - 1e-9)), int(np.floor(np.log2(high) + 1e-9))
    stride = 1
    while (last - first) // stride + 1 > most:
        stride += 1
    return [2.0**power for power in range(first, last + 1, stride)]
