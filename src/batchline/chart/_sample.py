"""A curve on the grid that a plot needs: close enough for the eye, with its marks hit exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from batchline import roofline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["CurveLike", "OptimumLike", "Sample", "batch_range", "sample"]

_POINTS = 110


class OptimumLike(Protocol):
    """The batch to run: what a chart reads of `batchline.choice.Optimum`."""

    @property
    def batch(self) -> int: ...
    @property
    def t_step(self) -> float: ...
    @property
    def usd_per_mtok(self) -> float | None: ...
    @property
    def binds(self) -> str: ...


class CurveLike(Protocol):
    """What a chart reads of `batchline.sweep.Curve`.

    `prediction`, where a curve has it and it is not None, brings the interval of the step (`low`, `high`), the `bound`
    below it, and `terms`, a mapping of names to what they take of the step, all arrays in [s].
    """

    @property
    def batch(self) -> NDArray[np.float64]: ...
    @property
    def t_compute(self) -> NDArray[np.float64]: ...
    @property
    def t_weights(self) -> NDArray[np.float64]: ...
    @property
    def t_kv(self) -> NDArray[np.float64]: ...
    @property
    def t_step(self) -> NDArray[np.float64]: ...
    @property
    def bound_by(self) -> list[str]: ...
    @property
    def reading(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def context(self) -> float: ...
    @property
    def usd_per_hour(self) -> float | None: ...
    @property
    def latency_floor(self) -> float: ...
    @property
    def cost_floor_usd_per_mtok(self) -> float | None: ...
    @property
    def knee_batch(self) -> float | None: ...
    @property
    def capacity_batch(self) -> float: ...
    @property
    def step_limit(self) -> float | None: ...
    @property
    def optimum(self) -> OptimumLike: ...


@dataclass(frozen=True)
class Sample:
    """Times over the batches of a plot.

    Parameters
    ----------
    batch : array
        In rising order [sequence].
    compute, weights, kv, step : array
        The parts and the step [s].
    low, high, bound : array or None
        Interval of the step and the bound below it, when the curve has them [s].
    terms : mapping
        What the step is made of, when the curve says so [s].
    """

    batch: NDArray[np.float64]
    compute: NDArray[np.float64]
    weights: NDArray[np.float64]
    kv: NDArray[np.float64]
    step: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    bound: NDArray[np.float64] | None
    terms: Mapping[str, NDArray[np.float64]]

    @property
    def memory(self) -> NDArray[np.float64]:
        """Weights and KV together [s]."""
        return self.weights + self.kv

    def part(self, name: str) -> NDArray[np.float64] | None:
        """Time of a part by name: of the article's parts, or of a prediction's terms [s]; None where there is none."""
        own = {"compute": self.compute, "weights": self.weights, "kv": self.kv, "memory": self.memory}
        return own.get(name, self.terms.get(name))

    def at(self, values: NDArray[np.float64], batch: float) -> float:
        """Value of one of the arrays at a batch between the grid's ends."""
        return float(np.interp(batch, self.batch, values))


def batch_range(curve: CurveLike, given: tuple[float, float] | None, beyond: float = 4.0) -> tuple[float, float]:
    """Ends of the batch axis: the curve's own, but not far beyond the last batch that matters.

    Past the capacity, the optimum and a knee that is within reach there is nothing to choose.
    """
    if given is not None:
        return given
    first, last = float(np.min(curve.batch)), float(np.max(curve.batch))
    capacity = curve.capacity_batch if np.isfinite(curve.capacity_batch) else last
    reach = max(capacity, float(curve.optimum.batch), 4.0)
    knee = curve.knee_batch
    if knee is not None and np.isfinite(knee) and knee <= 8 * reach:
        reach = max(reach, knee)
    last = min(last, beyond * reach)
    if capacity <= 4 * last:
        last = max(last, 1.4 * capacity)
    first = min(first, float(curve.optimum.batch))
    return first, max(last, 8 * first)


def sample(curve: CurveLike, low: float, high: float, marks: Sequence[float | None]) -> Sample:
    """Interpolate the curve between two batches.

    The parts grow in proportion to the batch or stay, so between two batches of the curve a straight line is exact for
    them (for a mixture of experts it is near); the step of the bound and serial readings is then made of the parts.

    Parameters
    ----------
    curve : CurveLike
        What was computed.
    low, high : float
        Ends of the batch axis [sequence].
    marks : sequence of float or None
        Batches that must be hit [sequence].

    Returns
    -------
    Sample
        About 150 batches.
    """
    order = np.argsort(curve.batch)
    known = np.asarray(curve.batch, dtype=float)[order]
    first, last = max(low, known[0], 1e-9), min(high, known[-1])
    grid = np.concatenate([np.geomspace(first, last, _POINTS), np.linspace(first, last, 40)])
    exact = [mark for mark in marks if mark is not None and first <= mark <= last]
    # Six digits are finer than a pixel and keep the files small.
    batch = np.unique([float(f"{value:.6g}") for value in (*grid, *exact, first, last)])

    def on_grid(values: Any) -> NDArray[np.float64]:
        return np.asarray(np.interp(batch, known, np.asarray(values, dtype=float)[order]))

    compute, weights, kv = on_grid(curve.t_compute), on_grid(curve.t_weights), on_grid(curve.t_kv)
    readings = {"bound": roofline.t_step_bound, "serial": roofline.t_step_serial}
    made = readings.get(curve.reading)
    step = np.asarray(made(compute, weights, kv)) if made else on_grid(curve.t_step)
    found = getattr(curve, "prediction", None)
    layers = {name: None if found is None else on_grid(getattr(found, name)) for name in ("low", "high", "bound")}
    terms = {} if found is None else found.terms
    return Sample(
        batch=batch,
        compute=compute,
        weights=weights,
        kv=kv,
        step=step,
        low=layers["low"],
        high=layers["high"],
        bound=layers["bound"],
        terms={name: on_grid(values) for name, values in terms.items()},
    )
