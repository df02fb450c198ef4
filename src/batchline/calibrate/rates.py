"""Three rates and a constant, for hardware of which nothing is known: plain least squares on decode steps.

    step(B) = W(B) / bandwidth + 2 N_a B / flops + B kv / kv_bandwidth + constant

Each is at least 0, found by relative least squares over all ways to leave terms out: with four terms that is fifteen
small problems and always the best fit. The weights of a dense model take the same time at every batch, as the constant
does: no measurement tells the two apart, and all of it is counted as weights.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchline import roofline
from batchline.calibrate.calibration import Errors
from batchline.errors import MeasurementError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from batchline.architecture import Architecture
    from batchline.measure import MeasuredPoint
    from batchline.roofline import Floats

__all__ = ["Rates", "three_rates"]

_LEAST = 4  # points: one for each term
_UNSEEN = 1e18  # B/s or FLOP/s; stands for a term that no point shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What one device delivers in decode steps.

    Parameters
    ----------
    bandwidth, kv_bandwidth : float
        At which weights and KV cache are read [B/s]; infinite where the points show no such time.
    flops : float
        Rate of the weights' FLOPs [FLOP/s]; infinite likewise.
    constant_s : float
        Rest of a step [s]; 0 for a dense model.
    after, left_out : Errors
        On the points that were fitted, and on each by the others.
    architecture : Architecture
        The model.
    weights, kv : str or None
        Number formats.
    unidentified : str
        What the points cannot tell apart, as a sentence; empty if nothing.
    """

    bandwidth: float
    kv_bandwidth: float
    flops: float
    constant_s: float
    after: Errors
    left_out: Errors
    architecture: Architecture
    weights: str | None = None
    kv: str = "bf16"
    unidentified: str = ""

    @property
    def figures(self) -> dict[str, float]:
        """Bandwidth and FLOP/s that stand for the device's data sheet: the fastest that was seen [B/s, FLOP/s]."""
        seen = [rate for rate in (self.bandwidth, self.kv_bandwidth) if np.isfinite(rate)]
        return {"bandwidth": max(seen, default=_UNSEEN), "flops": self.flops if np.isfinite(self.flops) else _UNSEEN}

    def step_s(self, batch: Floats, context: Floats) -> Floats:
        """Predict decode steps.

        Parameters
        ----------
        batch : float or array
            Sequences decoded together [sequence].
        context : float or array
            Mean tokens of context [token].

        Returns
        -------
        float or array
            Seconds [s].
        """
        terms = _terms(self.architecture, self.weights, self.kv, np.asarray(batch, float), np.asarray(context, float))
        rates = np.array([self.bandwidth, self.flops, self.kv_bandwidth, np.inf])
        constant = np.array([0.0, 0.0, 0.0, self.constant_s])
        return np.asarray(terms @ (1.0 / rates + constant))[()]


def three_rates(
    points: Sequence[MeasuredPoint], architecture: Architecture, *, weights: str | None = None, kv: str = "bf16"
) -> Rates:
    """Fit what one device delivers, from decode steps alone.

    Parameters
    ----------
    points : sequence of MeasuredPoint
        Clean decode steps on one device.
    architecture : Architecture
        The model.
    weights, kv : str, optional
        Number formats; by default the checkpoint's own and bf16.

    Returns
    -------
    Rates
        Bandwidths, FLOP rate and constant.

    Raises
    ------
    MeasurementError
        Fewer than four decode steps.
    """
    steps = [point for point in points if point.t_step_s and point.batch and point.context is not None]
    if len(steps) < _LEAST:
        raise MeasurementError(
            Sentence("error.few_steps", count=f"{len(steps)}"),
            Sentence("error.least_steps", least=f"{_LEAST}"),
            Sentence("error.measure_more"),
        )
    batch, context, seconds = (
        np.array([getattr(point, name) for point in steps], dtype=float) for name in ("batch", "context", "t_step_s")
    )
    terms = _terms(architecture, weights, kv, batch, context)
    found = _least_squares(terms, seconds)
    others = np.array(
        [terms[i] @ _least_squares(np.delete(terms, i, 0), np.delete(seconds, i)) for i in range(len(steps))]
    )
    rates = [1.0 / one if one > 1.0 / _UNSEEN else np.inf for one in found[:3]]
    return Rates(
        bandwidth=rates[0],
        flops=rates[1],
        kv_bandwidth=rates[2],
        constant_s=float(found[3]),
        after=Errors.of(terms @ found, seconds),
        left_out=Errors.of(others, seconds),
        architecture=architecture,
        weights=weights,
        kv=kv,
        unidentified=_unidentified(batch, context),
    )


def _unidentified(batch: NDArray[np.float64], context: NDArray[np.float64]) -> str:
    if batch.max() < 2 * batch.min():
        return Sentence("calibrate.one_batch")
    if context.max() < 2 * context.min():
        return Sentence("calibrate.one_context")
    return ""


def _terms(
    architecture: Architecture,
    weights: str | None,
    kv: str,
    batch: NDArray[np.float64],
    context: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Bytes of weights, FLOPs, bytes of KV cache, and 1, for each step."""
    shared, routed = architecture.step_weight_bytes(weights)
    touched: Floats = 0.0
    if routed:
        touched = roofline.expert_coverage(batch, architecture.experts or 1, architecture.experts_per_token or 1)
    batch, context = np.broadcast_arrays(batch, context)
    read = np.asarray(architecture.read_bytes(context, kv), dtype=float)
    rows = [shared + routed * touched + 0.0 * batch, 2.0 * architecture.active_params * batch, batch * read]
    return np.stack([*rows, np.full(batch.shape, 1.0 if routed else 0.0)], axis=-1)


def _least_squares(terms: NDArray[np.float64], seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Relative least squares with no term below 0: the best of all subsets of terms that has none."""
    scaled = terms / seconds[:, None]
    size = np.linalg.norm(scaled, axis=0)
    there = np.flatnonzero(size)
    best, least = np.zeros(terms.shape[1]), np.inf
    for count in range(1, there.size + 1):
        for chosen in itertools.combinations(there, count):
            columns = list(chosen)
            part = np.linalg.lstsq(scaled[:, columns] / size[columns], np.ones(seconds.size), rcond=None)[0]
            off = float(((scaled[:, columns] / size[columns] @ part - 1.0) ** 2).sum())
            if np.all(part >= 0.0) and off < least:
                best, least = np.zeros(terms.shape[1]), off
                best[columns] = part / size[columns]
    return best
