"""Calibrate a deployment: update by its points, leave them out in turn, say what the data does not tell or denies."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from batchline import prior, readings, step
from batchline.calibrate.observation import NOISE, SCATTER, Observation, Stack, describe, observe
from batchline.calibrate.update import Belief, believe, jacobian, update
from batchline.errors import InputError, MeasurementError
from batchline.notebook import Shown
from batchline.strings import Sentence, together
from batchline.units import format_bytes, format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from batchline.deployment import Deployment
    from batchline.measure import MeasuredPoint
    from batchline.prior import Prior
    from batchline.step import Coefficients

__all__ = ["QUANTILES", "Calibration", "Errors", "below_bound", "calibrate", "grid"]

QUANTILES: Final = {0.5: 0.674, 0.8: 1.282, 0.9: 1.645}
"""Standard deviations of a normal distribution on either side that hold this share [-]."""

_FOLDS = 40  # more points than this are left out several at a time
_TOLD = 0.9  # a coefficient whose spread stays above this share of the prior's was not told anything
_MATTERS = 0.01  # and nobody minds if it moves no step by a percent
_BEYOND = 3.0  # standard deviations of a surprise
_TOO_FAR = 4.0  # standard deviations of the prior that no coefficient moves by


@dataclass(frozen=True, slots=True)
class Errors:
    """How far predictions are off: |predicted / measured - 1|.

    Parameters
    ----------
    median, mean, worst : float
        Over the observations [-].
    count : int
        How many [-].
    """

    median: float
    mean: float
    worst: float
    count: int

    @classmethod
    def of(cls, predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> Errors:
        """Count.

        Parameters
        ----------
        predicted, measured : array
            Seconds [s].

        Returns
        -------
        Errors
            NaN and 0 if there is none.
        """
        if not measured.size:
            return cls(np.nan, np.nan, np.nan, 0)
        off = np.abs(predicted / measured - 1.0)
        return cls(float(np.median(off)), float(off.mean()), float(off.max()), int(off.size))


@dataclass(frozen=True, kw_only=True)
class Calibration(Shown):
    """What is known of a deployment after its own points.

    Parameters
    ----------
    deployment : Deployment
        What was measured.
    observations : tuple of Observation
        What was fitted.
    refused : tuple of str
        Points that the equations have no use for, with the reason.
    belief : Belief
        Before the points.
    z : array
        Logs of free parts and scales at the maximum of the posterior [-].
    covariance : array
        Around it [-].
    before, after : array
        Predictions of the observations by the prior and by the posterior [s].
    left_out : array or None
        Predictions of each by the other points [s]; None with fewer than two points.
    warnings : tuple of str
        Where the data contradicts the stated hardware.
    prior_source : str
        Where the prior comes from.
    """

    deployment: Deployment
    observations: tuple[Observation, ...]
    refused: tuple[str, ...]
    belief: Belief
    z: NDArray[np.float64]
    covariance: NDArray[np.float64]
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    left_out: NDArray[np.float64] | None
    warnings: tuple[str, ...]
    prior_source: str

    @property
    def coefficients(self) -> Coefficients:
        """Calibrated coefficients, for `batchline.step` and `batchline.serving`."""
        return self.belief.coefficients(self.z)

    @property
    def points(self) -> int:
        """Measured points that were fitted [-]."""
        return len({one.point for one in self.observations})

    @property
    def identified(self) -> dict[str, float]:
        """For each coefficient its spread after the points over that before: 1 if they tell nothing of it [-]."""
        after = np.sqrt(np.diag(self.covariance))
        count = len(self.belief.coefficient_names)
        return {
            name: float(after[j] / self.belief.spread[j])
            for j, name in enumerate(self.belief.coefficient_names[:count])
        }

    def sd(self) -> dict[str, float]:
        """Standard deviations of the calibrated coefficients, scales included.

        Returns
        -------
        dict
            In the units of `step.Coefficients`, by the normal approximation.
        """
        nudge = 1e-4
        moved = self.belief.values(self.z + nudge * np.eye(self.z.size)) - self.belief.values(self.z)
        slope = moved / nudge
        variance = np.einsum("ij,ik,kj->j", slope, self.covariance, slope)
        return dict(zip(self.belief.coefficient_names, np.sqrt(variance).tolist(), strict=True))

    def errors(self, of: str = "tpot", when: str = "after") -> Errors:
        """Errors of one kind of observation.

        Parameters
        ----------
        of : str
            "tpot" (with clean decode steps) or "ttft".
        when : str
            "before" by the prior, "after" by the fit on the same points, "left_out" by the other points.

        Returns
        -------
        Errors
            Median, mean and worst.
        """
        predicted = {"before": self.before, "after": self.after, "left_out": self.left_out}[when]
        which = np.array([(one.of == "ttft") == (of == "ttft") for one in self.observations])
        measured = np.array([one.seconds for one in self.observations])[which]
        if predicted is None:
            return Errors.of(measured[:0], measured[:0])
        return Errors.of(predicted[which], measured)

    def spread(self, targets: Sequence[Observation], covariance: NDArray[np.float64] | None = None) -> float:
        """How well predictions are known, without the noise of a measurement.

        Parameters
        ----------
        targets : sequence of Observation
            What is predicted; `seconds` may be NaN.
        covariance : array, optional
            By default that after the points [-].

        Returns
        -------
        float
            Standard deviation of the log, root mean square over the targets [-].
        """
        _, slope = jacobian(self.belief, Stack(targets), self.z[None])
        covariance = self.covariance if covariance is None else covariance
        return float(np.sqrt(np.mean(np.einsum("oi,ij,oj->o", slope[0], covariance, slope[0]))))

    def noise(self, of: str = "tpot") -> float:
        """How far single measurements lie from the calibrated predictions, at least what physics leaves.

        Parameters
        ----------
        of : str
            "tpot" or "ttft".

        Returns
        -------
        float
            Standard deviation of the log [-].
        """
        best = self.after if self.left_out is None else self.left_out
        which = np.array([(one.of == "ttft") == (of == "ttft") for one in self.observations])
        seconds = np.array([one.seconds for one in self.observations])
        off = np.abs(np.log(best[which] / seconds[which]))
        return max(SCATTER[of], 1.4826 * float(np.median(off))) if off.size >= 4 else SCATTER[of]

    def interval(self, of: str = "tpot", confidence: float = 0.9) -> tuple[float, float]:
        """Factors around a prediction between which a measurement of this deployment should lie.

        Parameters
        ----------
        of : str
            "tpot" or "ttft".
        confidence : float
            0.5, 0.8 or 0.9 [-].

        Returns
        -------
        tuple of float
            Low and high factor [-]: posterior over the usual batches and contexts, and the noise of a measurement.

        Raises
        ------
        InputError
            For another confidence.
        """
        if confidence not in QUANTILES:
            raise InputError(Sentence("error.no_interval", given=f"{confidence:g}"), Sentence("error.confidences"))
        factor = float(np.exp(QUANTILES[confidence] * self.total_spread(of)))
        return 1.0 / factor, factor

    def total_spread(self, of: str = "tpot") -> float:
        """Posterior and noise together.

        Parameters
        ----------
        of : str
            "tpot" or "ttft".

        Returns
        -------
        float
            Standard deviation of the log [-].
        """
        return float(np.hypot(self.spread(grid(self.deployment, self.observations, of)), self.noise(of)))

    def unidentified(self, targets: Sequence[Observation] | None = None) -> dict[str, float]:
        """Coefficients that the points tell nothing of, and how far each moves a step.

        Parameters
        ----------
        targets : sequence of Observation, optional
            What is predicted; by default decode steps over the usual batches and contexts.

        Returns
        -------
        dict
            Relative change of the step that goes with one standard deviation, others moving along as the posterior has
            them, root mean square [-]; the largest first.
        """
        _, slope = jacobian(self.belief, Stack(targets or grid(self.deployment, self.observations)), self.z[None])
        moved = np.sqrt(np.mean((slope[0] @ self.covariance) ** 2, axis=0) / np.diag(self.covariance))
        rows = {name: float(moved[j]) for j, name in enumerate(self.belief.coefficient_names)}
        told = self.identified
        kept = {name: by for name, by in rows.items() if told[name] > _TOLD and by > _MATTERS}
        return dict(sorted(kept.items(), key=lambda item: -item[1]))


def grid(
    deployment: Deployment, observations: Sequence[Observation], of: str = "tpot", *, context: float | None = None
) -> list[Observation]:
    """Measurements that could be made of a deployment: batches and contexts around those that were.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    observations : sequence of Observation
        What was measured; may be empty.
    of : str
        "tpot" for decode steps, "ttft" for served points.
    context : float, optional
        Another context that matters [token].

    Returns
    -------
    list of Observation
        Without seconds.
    """
    known = [one.context for one in observations if one.context > 0] or [1024.0, 8192.0]
    longest = deployment.architecture.max_context or np.inf
    contexts = sorted({_round(c) for c in (min(known) / 2, *known, 2 * max(known)) if 1 <= c <= longest})
    contexts = contexts[:: max(1, len(contexts) // 6)] or [known[0]]
    if context is not None and _round(context) not in contexts:
        contexts.append(_round(context))
    found = []
    for length in contexts:
        ideal = readings.ideal_of(deployment, length, length / 2)
        capacity = float(deployment.capacity_batch(length))
        last = min(max(capacity, 1.0), max([256.0, *(2 * one.batch for one in observations)]))
        one = Observation(of="step", seconds=np.nan, ideal=ideal, batch=1.0, context=length)
        if of == "ttft":
            held = max(capacity, 1.0)
            one = dataclasses.replace(
                one, of="ttft", noise=NOISE["ttft"], isl=length / 2, osl=length, capacity_batch=held
            )
        found += [dataclasses.replace(one, batch=float(batch)) for batch in 2.0 ** np.arange(np.log2(last) + 1e-9)]
    return found


def _round(context: float) -> float:
    """Two digits are enough for a length that somebody is to try."""
    digits = int(np.floor(np.log10(max(context, 1.0)))) - 1
    return float(round(context, -digits))


def calibrate(
    points: Sequence[MeasuredPoint] | Sequence[Observation], deployment: Deployment, *, priors: Prior | None = None
) -> Calibration:
    """Update the coefficients of a deployment by measured points.

    Parameters
    ----------
    points : sequence of MeasuredPoint or Observation
        Points that can be trusted (`measure.hazards.usable`).
    deployment : Deployment
        What was measured.
    priors : Prior, optional
        What is believed before; by default the priors that the package ships.

    Returns
    -------
    Calibration
        Coefficients with covariance, errors before and after, warnings.

    Raises
    ------
    MeasurementError
        No point can be used; says why.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> from batchline.measure import MeasuredPoint
    >>> deployment = Deployment.of("llama-3.1-8b", "h100")
    >>> seen = {8: 16e-3, 64: 28e-3}
    >>> points = [MeasuredPoint(regime="decode", batch=b, context=2048, t_step_s=t) for b, t in seen.items()]
    >>> found = calibrate(points, deployment)
    >>> found.errors(when="after").worst < 0.15 < found.errors(when="before").worst
    True
    """
    observations, refused = _observed(points, deployment)
    if not observations:
        raise MeasurementError(
            Sentence("error.nothing_to_calibrate"),
            together(refused[:3] or [Sentence("error.no_point")], "; "),
            Sentence("error.measure_steps"),
        )
    priors = priors or prior.load()
    case = readings.case_of(deployment)
    belief = believe(priors, case)
    stack = Stack(observations)
    fit = update(belief, stack)
    before, slope = jacobian(belief, stack, belief.mean[None])
    expected = np.sqrt(np.einsum("oi,ij,oj->o", slope[0], belief.covariance, slope[0]) + stack.noise**2)
    surprise = (stack.log_seconds - before[0]) / expected
    return Calibration(
        deployment=deployment,
        observations=tuple(observations),
        refused=tuple(refused),
        belief=belief,
        z=fit.z[0],
        covariance=fit.covariance[0],
        before=np.exp(before[0]),
        after=fit.predicted[0],
        left_out=_left_out(belief, stack),
        warnings=(
            *below_bound(observations, deployment),
            *_one_sided(observations, deployment, surprise, before[0]),
            *_far_off(belief, fit.z[0]),
        ),
        prior_source=priors.source,
    )


def _observed(
    points: Sequence[MeasuredPoint] | Sequence[Observation], deployment: Deployment
) -> tuple[list[Observation], list[str]]:
    ready = [one for one in points if isinstance(one, Observation)]
    measured = [one for one in points if not isinstance(one, Observation)]
    observations, refused = observe(measured, deployment)
    return [*ready, *observations], refused


def _left_out(belief: Belief, stack: Stack) -> NDArray[np.float64] | None:
    """Predict each point by the others, all at once."""
    owner = np.unique([one.point for one in stack.observations], return_inverse=True)[1]
    points = int(owner.max()) + 1
    if points < 2:
        return None
    folds = min(points, _FOLDS)
    held = (owner % folds)[None, :] == np.arange(folds)[:, None]
    fit = update(belief, stack, ~held)
    return np.asarray(fit.predicted[owner % folds, np.arange(owner.size)])


def below_bound(observations: Sequence[Observation], deployment: Deployment) -> list[str]:
    """Say which values the stated hardware does not allow.

    Parameters
    ----------
    observations : sequence of Observation
        What was measured.
    deployment : Deployment
        What was stated.

    Returns
    -------
    list of str
        One sentence, with the bandwidth that the worst of them implies; empty if all are possible.
    """
    below = [one for one in observations if one.seconds < one.bound_s]
    if not below:
        return []
    stated = deployment.accelerator.bandwidth
    worst = max(below, key=lambda one: one.bound_s / one.seconds)
    moved = _memory_s(worst) / worst.seconds * stated
    implied = Sentence("calibrate.implied", moved=format_bytes(moved), stated=format_bytes(stated))
    return [
        Sentence(
            "calibrate.below",
            count=f"{len(below)}",
            all=f"{len(observations)}",
            devices=f"{deployment.count} x {deployment.accelerator.name}",
            worst=describe(worst),
            bound=format_time(worst.bound_s),
            implied=implied if moved > stated else "",
        )
    ]


def _one_sided(
    observations: Sequence[Observation],
    deployment: Deployment,
    surprise: NDArray[np.float64],
    before: NDArray[np.float64],
) -> list[str]:
    """Say so if every step is far off on one side."""
    steps = np.array([one.of != "ttft" for one in observations])
    off = surprise[steps]
    if not off.size or not (np.all(off > _BEYOND) or np.all(off < -_BEYOND)):
        return []
    times = float(np.exp(np.median(np.log([one.seconds for one in observations])[steps] - before[steps])))
    return [
        Sentence(
            "calibrate.slower" if times > 1 else "calibrate.faster",
            count=f"{off.size}",
            times=f"{max(times, 1 / times):.2g}",
            accelerator=deployment.accelerator.name,
            sd=f"{_BEYOND:.0f}",
        )
    ]


def _far_off(belief: Belief, z: NDArray[np.float64]) -> list[str]:
    """Say so if a coefficient had to go where no engine is."""
    moved = np.abs(z - belief.mean) / belief.spread
    worst = int(np.argmax(moved))
    if moved[worst] <= _TOO_FAR:
        return []
    return [Sentence("calibrate.contradict", name=belief.names[worst], sd=f"{moved[worst]:.1f}")]


def _memory_s(one: Observation) -> float:
    """Time at datasheet bandwidth for what a step must read."""
    ideal = dataclasses.replace(one.ideal, compute_s=0.0)
    return float(step.bound(ideal, one.batch if one.of == "step" else 1.0))
