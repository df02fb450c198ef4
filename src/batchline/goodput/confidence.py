"""How sure a promise is, from the interval of the prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from batchline.errors import InputError
from batchline.queueing import normal, normal_quantile
from batchline.strings import Sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline.roofline import Floats

__all__ = ["chance", "factor_at"]

_CHANCES = (0.5, 0.8, 0.9)  # what the factors of prior.Prior.intervals are said to hold


def _knots(factors: tuple[float, ...] | NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard deviations at which the factors are given, and the logs of the factors there; both begin at 0."""
    z = np.array([0.0, *(normal_quantile((1.0 + share) / 2.0) for share in _CHANCES)])
    logs = np.log(np.asarray(factors, dtype=float))
    return z, np.concatenate([np.zeros((*logs.shape[:-1], 1)), logs], axis=-1)


def chance(times: Floats, factors: tuple[float, ...] | NDArray[np.float64]) -> Floats:
    """Chance that a prediction is missed by less than a factor, from the factors that hold 50, 80 and 90%.

    Parameters
    ----------
    times : float or array
        How many times the prediction may be exceeded [-].
    factors : tuple or array
        Factors that hold 50, 80 and 90% of measured values, along the last axis [-].

    Returns
    -------
    float or array
        Chance [-]. The logarithm is normal between the factors given, and hits them exactly.

    Examples
    --------
    Half of the values lie within 1.17 times, so a quarter lies above:

    >>> round(float(chance(1.17, (1.17, 1.38, 1.55))), 4), float(chance(1.0, (1.17, 1.38, 1.55)))
    (0.75, 0.5)
    """
    knots, logs = _knots(factors)
    with np.errstate(divide="ignore"):
        wanted = np.log(np.maximum(np.asarray(times, dtype=float), 1e-300))
    size = np.minimum(np.abs(wanted), 700.0)
    z = np.zeros(np.broadcast_shapes(size.shape, logs.shape[:-1]))
    for i in range(3):
        low, high = logs[..., i], logs[..., i + 1]
        part = knots[i] + (knots[i + 1] - knots[i]) * (size - low) / np.maximum(high - low, 1e-12)
        z = np.where((size >= low) if i else True, part, z)  # the last part goes on beyond its end
    return normal(np.sign(wanted) * z)


def factor_at(confidence: float, factors: NDArray[np.float64] | tuple[float, ...]) -> Floats:
    """Factor below which a prediction is exceeded with a chance: the inverse of `chance`.

    Parameters
    ----------
    confidence : float
        Chance, from 0.5 on [-].
    factors : array
        Factors that hold 50, 80 and 90%, along the last axis [-].

    Returns
    -------
    float or array
        Factor, 1 or more [-].

    Raises
    ------
    InputError
        A chance below a half, or certainty.

    Examples
    --------
    >>> round(float(factor_at(0.75, (1.17, 1.38, 1.55))), 4)
    1.17
    """
    if not 0.5 <= confidence < 1:
        raise InputError(
            Sentence("error.confidence_range", given=f"{confidence:g}"), "", Sentence("error.write_confidence")
        )
    knots, logs = _knots(factors)
    z = normal_quantile(confidence) if confidence > 0.5 else 0.0
    i = min(int(np.searchsorted(knots, z, side="right")) - 1, 2)
    part = (z - knots[i]) / (knots[i + 1] - knots[i])
    factors_at: Floats = np.exp(logs[..., i] + part * (logs[..., i + 1] - logs[..., i]))
    return factors_at
