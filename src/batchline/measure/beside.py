"""Measured points beside a curve: each with what is predicted of the deployment at its own batch and context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from batchline import readings
from batchline.measure import hazards
from batchline.measure.point import unlike
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from batchline.measure.hazards import Hazard
    from batchline.measure.point import MeasuredPoint
    from batchline.sweep import Curve

__all__ = ["Beside", "beside"]

_NEAR: Final = 1.25  # contexts within a quarter of each other share a curve: a step hardly changes over them


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A measured point beside its prediction.

    Parameters
    ----------
    point : MeasuredPoint
        What was measured.
    batch, context : float
        Where [sequence, token].
    measured_s, predicted_s : float
        Decode step, or TPOT of a served point with the prefill of other requests in it [s].
    hazards : tuple of Hazard
        What speaks against the point.
    usable : bool
        Whether nothing does that excludes it.
    near : bool
        Whether its context is that of the curve, within a quarter: only then it can be drawn on it.
    """

    point: MeasuredPoint
    batch: float
    context: float
    measured_s: float
    predicted_s: float
    hazards: tuple[Hazard, ...]
    usable: bool
    near: bool

    @property
    def off(self) -> float:
        """Prediction over measurement, less 1 [-]."""
        return self.predicted_s / self.measured_s - 1.0

    def to_dict(self) -> dict[str, Any]:
        """Give it with the names of the JSON output.

        Returns
        -------
        dict
            For `chart.six_plots` too: `name, batch, t_step_s` and where, prediction, hazards.
        """
        return {
            "name": self.point.name,
            "regime": self.point.regime,
            "batch": self.batch,
            "context": self.context,
            "t_step_s": self.measured_s,
            "predicted_s": self.predicted_s,
            "hazards": [hazard.name for hazard in self.hazards],
            "usable": self.usable,
            "near": self.near,
        }


def beside(
    points: Sequence[MeasuredPoint], curve: Curve, *, overrule: Iterable[str] = ()
) -> tuple[list[Beside], list[str]]:
    """Lay measured points beside the curve of the deployment that they are of.

    Parameters
    ----------
    points : sequence of MeasuredPoint
        Points, of one or several sources.
    curve : Curve
        What was predicted.
    overrule : iterable of str
        Names of hazards that shall not exclude a point; "all" for every one.

    Returns
    -------
    list of Beside
        In the order of the points.
    list of str
        Points that cannot be laid beside it, each with the reason.

    Examples
    --------
    >>> from batchline import sweep
    >>> from batchline.deployment import Deployment
    >>> from batchline.measure import MeasuredPoint
    >>> curve = sweep.curve(Deployment.of("llama-3.1-8b", "h100"), 2048, reading="bound")
    >>> (one,), _ = beside([MeasuredPoint(regime="decode", batch=128, context=2048, t_step_s=0.02)], curve)
    >>> f"{one.predicted_s * 1e3:.2f} ms", f"{one.off:+.0%}", one.near
    ('14.74 ms', '-26%', True)
    """
    deployment = curve.deployment
    bounds = hazards.bounds(points, deployment)
    found = hazards.inspect(points, bounds)
    kept = {id(point) for point in hazards.usable(points, bounds, overrule=overrule)}
    laid: list[Beside] = []
    left: list[str] = []
    for index, (point, some) in enumerate(zip(points, found, strict=True)):
        context = point.context or (point.isl + point.osl / 2 if point.isl and point.osl else None)
        batch, seconds = point.batch or point.concurrency, point.step_s
        missing = [name for name, value in (("batch", batch), ("context", context), ("t_step_s", seconds)) if not value]
        reason = unlike(point, deployment) or (
            Sentence("calibrate.not_known", names=", ".join(missing)) if missing else ""
        )
        if reason or batch is None or context is None or seconds is None:
            name = point.name or Sentence("calibrate.nth", number=f"{index + 1}")
            left.append(Sentence("calibrate.point", name=name, reason=reason))
            continue
        laid.append(
            Beside(
                point=point,
                batch=batch,
                context=context,
                measured_s=seconds,
                predicted_s=_predicted(point, curve, batch, context),
                hazards=some,
                usable=id(point) in kept,
                near=1 / _NEAR <= context / max(curve.context, 1.0) <= _NEAR,
            )
        )
    return laid, left


def _predicted(point: MeasuredPoint, curve: Curve, batch: float, context: float) -> float:
    if curve.reading == "predict" and point.regime == "serving" and point.isl and point.osl and point.concurrency:
        state = readings.steady(curve.deployment, point.isl, point.osl, point.concurrency, priors=curve.priors)
        return float(state.tpot_s)
    return float(readings.steps(curve.deployment, context, max(batch, 1.0), curve.reading, curve.priors).t_step[0])
