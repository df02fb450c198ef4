r"""Bayesian update of the coefficients: maximum of the posterior, and its covariance.

    coefficient_j = unit_j max(offset_j, e^s (offset_j + e^(z_j)))    z ~ N(logs of the prior's free parts, C)
    log measured  = log predicted(coefficients) + noise               s ~ N(0, 0.12^2), and one of TTFT ~ N(0, 0.25^2)

C is how deployments differ from what their levels say (validation/between.py): spreads, and correlations.

The scales s stand for what the equations do not know: kernels, versions. They are folded into the coefficients and
stop at the offset, so that no calibrated engine is faster than the bound and every law of `batchline.step` holds.
Levenberg's method on the logs, Huber's weights beyond two standard deviations; many updates run side by side, which
makes leaving points out cheap.

References
----------
[1] Gelman et al., Bayesian Data Analysis, chapter 4: normal approximation of a posterior.
[2] P. Huber, 1964: robust location.
[3] K. Levenberg, 1944; D. Marquardt, 1963: damped least squares.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from batchline.prior import GENERAL
from batchline.step import Coefficients

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline.calibrate.observation import Stack
    from batchline.prior import Case, Prior

__all__ = ["Belief", "Fit", "believe", "jacobian", "update"]

SCALES: Final = {"tpot": 0.12, "ttft": 0.25}
"""Prior standard deviation of the log of the overall scales (physics.md) [-]."""

_HUBER = 2.0  # standard deviations from which a residual counts linearly
_NUDGE = 1e-4  # of z, for the slope
_TURNS = 25
_SAME = 1e-8  # relative change of the objective at which it has converged
_UNSEEN = 0.25  # log spread of a level that the fit of the priors has not seen

_OF_STEP = (1.0, 0.0)
_OF_PROMPT = (0.0, 1.0)
_POWERS: Final = {
    # TPOT scales with e^s, TTFT beyond its steps with e^t; what a prefill adds to a TPOT is prefill_share x prefill.
    "prefill_linear": _OF_PROMPT,
    "prefill_attention": _OF_PROMPT,
    "prompt_overhead": _OF_PROMPT,
    "ttft_constant": _OF_PROMPT,
    "ttft_steps": _OF_PROMPT,
    "prefill_share": (1.0, -1.0),
    "admission_wait": (0.0, 0.0),
    "arrival_clumping": (0.0, 0.0),
}


@dataclass(frozen=True, kw_only=True)
class Belief:
    """What is believed of the coefficients of one deployment: a normal distribution of their logs.

    Parameters
    ----------
    names : tuple of str
        Coefficients that may move, then the scales "tpot" and "ttft".
    mean : array
        Of log free part, and of log scale [-].
    covariance : array, shape (names, names)
        Before any measurement [-].
    offset, unit : array
        As in data/priors.toml, for the coefficients alone.
    fixed : mapping
        Coefficients that do not move: their free part is 0.
    """

    names: tuple[str, ...]
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    offset: NDArray[np.float64]
    unit: NDArray[np.float64]
    fixed: dict[str, float]

    @property
    def coefficient_names(self) -> tuple[str, ...]:
        """Names without the scales."""
        return self.names[: -len(SCALES)]

    @property
    def spread(self) -> NDArray[np.float64]:
        """Standard deviation of each before any measurement [-]."""
        return np.sqrt(np.diag(self.covariance))

    @cached_property
    def precision(self) -> NDArray[np.float64]:
        """Inverse of the covariance [-]."""
        return np.asarray(np.linalg.inv(self.covariance))

    def values(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coefficients at a place, scales folded in.

        Parameters
        ----------
        z : array, shape (..., names)
            Logs of free parts and scales [-].

        Returns
        -------
        array, shape (..., coefficients)
            In the units of `step.Coefficients`.
        """
        powers = np.array([_POWERS.get(name, _OF_STEP) for name in self.coefficient_names])
        count = len(self.coefficient_names)
        scale = np.exp(z[..., count:] @ powers.T)
        return np.asarray(self.unit * np.maximum(self.offset, scale * (self.offset + np.exp(z[..., :count]))))

    def coefficients(self, z: NDArray[np.float64]) -> Coefficients:
        """Coefficients for the equations, as columns if there are many places.

        Parameters
        ----------
        z : array, shape (names,) or (sets, names)
            Logs of free parts and scales [-].

        Returns
        -------
        Coefficients
            Numbers, or columns of shape (sets, 1).
        """
        values = self.values(z)
        columns = values.tolist() if z.ndim == 1 else list(values.T[..., None])
        moving: dict[str, Any] = dict(zip(self.coefficient_names, columns, strict=True))
        return Coefficients(**moving, **self.fixed)


def believe(priors: Prior, case: Case) -> Belief:
    """Take what the priors say of a case as a distribution.

    Parameters
    ----------
    priors : Prior
        Coefficients with their spread between deployments.
    case : Case
        Engine, accelerator, formats, layout.

    Returns
    -------
    Belief
        Normal in the log of the free parts.
    """
    centre = priors.coefficients(case)
    rows, fixed = [], {}
    for field in dataclasses.fields(Coefficients):
        name, value = field.name, float(getattr(centre, field.name))
        facts = priors.centres.get(name)
        free = 0.0 if facts is None else value / facts["unit"] - facts["offset"]
        if facts is None or free <= 0.0:
            fixed[name] = value
        else:
            rows.append((name, np.log(free), _spread(priors, case, name), facts["offset"], facts["unit"]))
    names = [row[0] for row in rows]
    spread = np.array([*(row[2] for row in rows), *SCALES.values()])
    return Belief(
        names=(*names, *SCALES),
        mean=np.array([*(row[1] for row in rows), *(0.0 for _ in SCALES)]),
        covariance=np.outer(spread, spread) * _correlation(priors, (*names, *SCALES)),
        offset=np.array([row[3] for row in rows]),
        unit=np.array([row[4] for row in rows]),
        fixed=fixed,
    )


def _spread(priors: Prior, case: Case, name: str) -> float:
    """Spread of a deployment around its levels, which holds how well these are known, and of levels not in the fit."""
    variance = float(priors.centres[name]["spread"]) ** 2
    kinds = {kind for coefficient, kind, _ in priors.levels if coefficient == name} & GENERAL
    levels = {kind: level for kind, level in case.levels().items() if kind in kinds}
    unseen = sum((name, kind, level) not in priors.levels for kind, level in levels.items())
    return float(np.sqrt(variance + unseen * _UNSEEN**2))


def _correlation(priors: Prior, names: tuple[str, ...]) -> NDArray[np.float64]:
    found, place = np.eye(len(names)), {name: i for i, name in enumerate(names)}
    for (one, other), correlation in priors.correlations.items():
        if one in place and other in place:  # a coefficient that does not move has none
            i, j = place[one], place[other]
            found[i, j] = found[j, i] = correlation
    return found


@dataclass(frozen=True, slots=True)
class Fit:
    """Maximum of the posterior of several updates side by side.

    Parameters
    ----------
    z : array, shape (updates, names)
        Where it is [-].
    covariance : array, shape (updates, names, names)
        Around it, normal approximation [-].
    predicted : array, shape (updates, observations)
        Of every observation, also those left out [s].
    """

    z: NDArray[np.float64]
    covariance: NDArray[np.float64]
    predicted: NDArray[np.float64]


def jacobian(belief: Belief, stack: Stack, z: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Logs of the predictions and their slopes.

    Parameters
    ----------
    belief : Belief
        Names and units.
    stack : Stack
        Observations.
    z : array, shape (updates, names)
        Where.

    Returns
    -------
    array, shape (updates, observations)
        Log of the prediction [-].
    array, shape (updates, observations, names)
        Slope [-].
    """
    updates, names = z.shape
    nudged = z[:, None, :] + _NUDGE * np.vstack([np.zeros(names), np.eye(names)])
    rows = np.log(stack.predict(belief.coefficients(nudged.reshape(-1, names)))).reshape(updates, names + 1, -1)
    return rows[:, 0], np.swapaxes((rows[:, 1:] - rows[:, :1]) / _NUDGE, 1, 2)


def update(belief: Belief, stack: Stack, used: NDArray[np.bool_] | None = None) -> Fit:
    """Update a belief by observations; several subsets of them at once.

    Parameters
    ----------
    belief : Belief
        Before.
    stack : Stack
        Observations.
    used : array of bool, shape (updates, observations), optional
        Which observations each update sees; by default one update sees all.

    Returns
    -------
    Fit
        After.
    """
    mask = np.ones((1, len(stack.observations)), dtype=bool) if used is None else np.atleast_2d(used)
    z = np.tile(belief.mean, (len(mask), 1))
    logs, slope = jacobian(belief, stack, z)
    cost = _objective(belief, stack, mask, z, logs)
    damping = np.full(len(mask), 1e-3)
    for _ in range(_TURNS):
        normal, gradient = _normal(belief, stack, mask, z, logs, slope)
        damped = normal + damping[:, None, None] * belief.precision
        trial = z + np.clip(np.linalg.solve(damped, gradient[..., None])[..., 0], -1.0, 1.0)
        trial_logs, trial_slope = jacobian(belief, stack, trial)
        trial_cost = _objective(belief, stack, mask, trial, trial_logs)
        better = trial_cost < cost
        settled = np.abs(cost - trial_cost) <= _SAME * (1.0 + cost)
        z[better], logs[better], slope[better] = trial[better], trial_logs[better], trial_slope[better]
        cost = np.where(better, trial_cost, cost)
        damping = np.where(better, damping / 5.0, np.minimum(damping * 5.0, 1e6))
        if np.all(settled):
            break
    normal, _ = _normal(belief, stack, mask, z, logs, slope)
    return Fit(z=z, covariance=np.asarray(np.linalg.inv(normal), dtype=float), predicted=np.exp(logs))


def _objective(
    belief: Belief, stack: Stack, mask: NDArray[np.bool_], z: NDArray[np.float64], logs: NDArray[np.float64]
) -> NDArray[np.float64]:
    size = np.abs(_residual(stack, mask, logs))
    huber = np.where(size <= _HUBER, size**2, _HUBER * (2 * size - _HUBER))
    moved = z - belief.mean
    return np.asarray(huber.sum(axis=1) + np.einsum("ui,ij,uj->u", moved, belief.precision, moved))


def _residual(stack: Stack, mask: NDArray[np.bool_], logs: NDArray[np.float64]) -> NDArray[np.float64]:
    # What is not used may be NaN, a measurement yet to be made.
    return np.where(mask, (stack.log_seconds - logs) / stack.noise, 0.0)


def _normal(
    belief: Belief,
    stack: Stack,
    mask: NDArray[np.bool_],
    z: NDArray[np.float64],
    logs: NDArray[np.float64],
    slope: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Normal matrix and gradient, with Huber's weights and the prior."""
    residual = _residual(stack, mask, logs)
    weight = mask * np.minimum(1.0, _HUBER / np.maximum(np.abs(residual), _HUBER))
    scaled = slope / stack.noise[:, None]
    normal = np.einsum("uoi,uo,uoj->uij", scaled, weight, scaled) + belief.precision
    gradient = np.einsum("uoi,uo->ui", scaled, weight * residual) - (z - belief.mean) @ belief.precision
    return normal, gradient
