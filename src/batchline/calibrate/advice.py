"""Which measurement would tell most: how far it would narrow the intervals of what is to be predicted.

A measurement with slope j and noise s, made on top of a covariance S, takes (g' S j)^2 / (s^2 + j' S j) off the
variance of a prediction with slope g, whatever it turns out to be [1]. Of several predictions each counts by the share
that its interval narrows, so that the few of which nothing is known do not decide alone.

References
----------
[1] K. Chaloner, I. Verdinelli, 1995: Bayesian experimental design, c-optimality for a linear model.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchline import readings
from batchline.calibrate.calibration import QUANTILES, grid
from batchline.calibrate.observation import SCATTER, Observation, Stack
from batchline.calibrate.update import jacobian
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from batchline.calibrate.calibration import Calibration

__all__ = ["Advice", "advise", "gain", "taken"]

_WORTH = 0.1  # an interval that gets narrower by less than this share is not worth a measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The next measurement to make.

    Parameters
    ----------
    batch, context : float
        Of a decode step [sequence, token].
    now, then : float
        Half-width of the 90% interval of the prediction before and after it, without noise: a factor less 1 [-].
    at : str
        What is predicted.
    """

    batch: float
    context: float
    now: float
    then: float
    at: str

    @property
    def worthwhile(self) -> bool:
        """Whether it narrows the interval by a tenth or more."""
        return self.then <= (1.0 - _WORTH) * self.now

    def __str__(self) -> str:
        return self.told()

    def told(self, language: str = "en") -> str:
        """Say where to measure and what it would do, or that no point would do much.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            A sentence.
        """
        now, then = f"{self.now:.0%}", f"{self.then:.0%}"
        if not self.worthwhile:
            return Sentence("calibrate.advice_none", at=self.at, now=now).told(language)
        where = {"batch": f"{self.batch:,.0f}", "context": f"{self.context:,.0f}"}
        return Sentence("calibrate.advice", **where, at=self.at, now=now, then=then).told(language)


def taken(
    covariance: NDArray[np.float64],
    slopes: NDArray[np.float64],
    noise: NDArray[np.float64],
    targets: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Take the variance that each candidate takes off each target.

    Parameters
    ----------
    covariance : array, shape (names, names)
        Before the measurement [-].
    slopes : array, shape (candidates, names)
        Of the log of what would be measured [-].
    noise : array, shape (candidates,)
        Of its log [-].
    targets : array, shape (targets, names)
        Slopes of what is to be predicted [-].

    Returns
    -------
    array, shape (targets, candidates)
        Variance of the log [-].
    """
    carried = covariance @ slopes.T
    shared = targets @ carried
    own = noise**2 + np.einsum("ci,ic->c", slopes, carried)
    return np.asarray(shared**2 / own)


def gain(
    covariance: NDArray[np.float64],
    slopes: NDArray[np.float64],
    noise: NDArray[np.float64],
    targets: NDArray[np.float64],
) -> NDArray[np.float64]:
    """How far each candidate narrows the intervals of the targets, scatter of a further measurement included.

    Parameters
    ----------
    covariance, slopes, noise, targets
        As of `taken`.

    Returns
    -------
    array, shape (candidates,)
        Mean over the targets of the log of the interval before over that after [-].
    """
    before = np.einsum("ti,ij,tj->t", targets, covariance, targets) + SCATTER["tpot"] ** 2
    share = taken(covariance, slopes, noise, targets) / before[:, None]
    return np.asarray(-0.5 * np.log1p(-share).mean(axis=0))


def advise(
    calibration: Calibration,
    *,
    batch: float | None = None,
    context: float | None = None,
    candidates: Sequence[Observation] | None = None,
) -> Advice:
    """Find the measurement that narrows the prediction most.

    Parameters
    ----------
    calibration : Calibration
        What is known.
    batch, context : float, optional
        Where the prediction matters, for instance the batch to run [sequence, token]; by default all usual ones.
    candidates : sequence of Observation, optional
        What could be measured; by default decode steps over the usual batches and contexts.

    Returns
    -------
    Advice
        Where to measure, and what it would do.
    """
    usual = grid(calibration.deployment, calibration.observations, context=context)
    candidates = usual if candidates is None else candidates
    targets, at = usual, Sentence("calibrate.at_all")
    if batch is not None:
        context = usual[0].context if context is None else context
        ideal = readings.ideal_of(calibration.deployment, context)
        targets = [dataclasses.replace(usual[0], ideal=ideal, batch=batch, context=context)]
        at = Sentence("calibrate.at_batch", batch=f"{batch:,.0f}")
    place = calibration.z[None]
    _, tried = jacobian(calibration.belief, Stack(candidates), place)
    _, wanted = jacobian(calibration.belief, Stack(targets), place)
    noise = np.array([one.noise for one in candidates])
    best = int(np.argmax(gain(calibration.covariance, tried[0], noise, wanted[0])))
    now = float(np.mean(np.einsum("oi,ij,oj->o", wanted[0], calibration.covariance, wanted[0])))
    off = taken(calibration.covariance, tried[0][best : best + 1], noise[best : best + 1], wanted[0])
    left = max(now - float(off.mean()), 0.0)
    return Advice(
        batch=candidates[best].batch,
        context=candidates[best].context,
        now=float(np.expm1(QUANTILES[0.9] * np.sqrt(now))),
        then=float(np.expm1(QUANTILES[0.9] * np.sqrt(left))),
        at=at,
    )
