"""A measured number in the terms of the equations, and which measured points become one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from batchline import readings, serving, step
from batchline.measure.point import unlike
from batchline.strings import Sentence
from batchline.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from batchline.deployment import Deployment
    from batchline.measure import MeasuredPoint
    from batchline.step import Coefficients, Ideal

__all__ = ["NOISE", "SCATTER", "Observation", "Stack", "describe", "observe"]

NOISE: Final = {"step": 0.05, "tpot": 0.05, "ttft": 0.20}
"""How far a measured number lies from the best the equations can do, standard deviation of its log [-].

Steps and TPOT: physics.md. TTFT: 1.48 times the median miss of public servers that are fitted to all their own rows.
"""

SCATTER: Final = {"tpot": 0.05, "ttft": 0.28}
"""How far a further measurement lies from a calibrated prediction, beside what the posterior says [-].

TTFT: more than `NOISE`, as other lengths and loads find faults of the equations that the points did not. Chosen so that
80% intervals hold about 80% of what public servers showed beside the points (validation/calibration.py).
"""

_LOAD: Final = ("batch", "isl", "osl", "capacity_batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured number, and what the equations need to predict it.

    Parameters
    ----------
    of : str
        "step" (a decode step without prefill), "tpot" or "ttft" (of a closed loop).
    seconds : float
        What was measured [s]; may be NaN for a measurement that has yet to be made.
    ideal : step.Ideal
        Ideal times at the context of the point.
    batch : float
        Sequences decoded together ("step") or requests in flight ("tpot", "ttft") [sequence].
    isl, osl : float
        Input and output length of a served point [token].
    context : float
        Mean tokens of context [token].
    capacity_batch : float
        Sequences that the KV cache holds [sequence].
    admission_interval : float
        The engine looks for new requests every so many steps; 0 where before each [step].
    opening_share : float
        Share of the requests behind a mean that were sent all at once at the start of the run [-].
    noise : float
        Standard deviation of its log [-].
    point : int
        Which point it belongs to: what is left out together.
    name : str
        Where it comes from.
    """

    of: str
    seconds: float
    ideal: Ideal
    batch: float
    isl: float = 1.0
    osl: float = 1.0
    context: float = 0.0
    capacity_batch: float = np.inf
    admission_interval: float = 0.0
    opening_share: float = 0.0
    noise: float = 0.05
    point: int = 0
    name: str = ""

    @property
    def bound_s(self) -> float:
        """Article's floor under a step [s]; under a TTFT there is none, so 0."""
        if self.of == "ttft":
            return 0.0
        # A served point decodes fewer sequences together than are in flight; one is the least.
        return float(step.bound(self.ideal, self.batch if self.of == "step" else 1.0))


def observe(points: Sequence[MeasuredPoint], deployment: Deployment) -> tuple[list[Observation], list[str]]:
    """Turn measured points into observations of a deployment.

    Parameters
    ----------
    points : sequence of MeasuredPoint
        Points that can be trusted.
    deployment : Deployment
        What was measured.

    Returns
    -------
    list of Observation
        A clean decode step gives one, a served point TPOT and TTFT.
    list of str
        Points that the equations have no use for, each with the reason.
    """
    found: list[Observation] = []
    refused: list[str] = []
    for index, point in enumerate(points):
        reason = unlike(point, deployment)
        made = [] if reason else _of(point, deployment, index)
        found += made
        if not made:
            name = point.name or Sentence("calibrate.nth", number=f"{index + 1}")
            refused.append(Sentence("calibrate.point", name=name, reason=reason or _lacks(point)))
    return found, refused


def _lacks(point: MeasuredPoint) -> str:
    needed = ("batch", "context", "t_step_s") if point.regime == "decode" else ("concurrency", "isl", "osl", "tpot_s")
    missing = [name for name in needed if getattr(point, name) is None]
    return Sentence("calibrate.not_known", names=", ".join(missing))


def _of(point: MeasuredPoint, deployment: Deployment, index: int) -> list[Observation]:
    if point.t_step_s and point.batch and point.context is not None:
        noise = float(np.hypot(NOISE["step"], point.spread or 0.0)) if point.regime == "decode" else NOISE["step"]
        return [
            Observation(
                of="step",
                seconds=point.t_step_s,
                ideal=readings.ideal_of(deployment, point.context),
                batch=point.batch,
                context=point.context,
                noise=noise,
                point=index,
                name=point.name,
            )
        ]
    flying = point.concurrency or point.mean_concurrency
    if point.regime != "serving" or not (flying and point.isl and point.osl):
        return []
    context = point.isl + point.osl / 2
    served = Observation(
        of="tpot",
        seconds=np.nan,
        ideal=readings.ideal_of(deployment, context, point.isl),
        batch=flying,
        isl=point.isl,
        osl=point.osl,
        context=context,
        capacity_batch=float(deployment.capacity_batch(context)),
        opening_share=_opening_share(point, flying),
        point=index,
        name=point.name,
    )
    measured = {"tpot": point.tpot_s, "ttft": point.ttft_s}
    return [
        dataclasses.replace(served, of=of, seconds=value, noise=NOISE[of]) for of, value in measured.items() if value
    ]


def _opening_share(point: MeasuredPoint, flying: float) -> float:
    """Of the requests of a run; a median does not see its start, and a rate has none."""
    if point.statistic != "mean" or point.arrival == "rate" or not point.completed:
        return 0.0
    return min(flying / point.completed, 1.0)


class Stack:
    """Observations side by side, so that one call predicts all of them for many sets of coefficients.

    Parameters
    ----------
    observations : sequence of Observation
        What is predicted.
    """

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.observations = list(observations)
        self.log_seconds = np.log([one.seconds for one in observations])
        self.noise = np.array([one.noise for one in observations])
        kinds = np.array([one.of for one in observations])
        self._steps = np.flatnonzero(kinds == "step")
        self._served = np.flatnonzero(kinds != "step")
        # TPOT and TTFT of one point come out of one steady state.
        told = (*_LOAD, "admission_interval", "opening_share")
        keys = [(id(one.ideal), *(getattr(one, name) for name in told)) for one in self.observations]
        first = {keys[i]: i for i in reversed(self._served.tolist())}
        self._states = np.array(sorted(first.values()), dtype=np.intp)
        self._state = np.searchsorted(self._states, [first[keys[i]] for i in self._served])
        self._ttft = kinds[self._served] == "ttft"
        self._step_ideal = self._ideal(self._steps)
        self._served_ideal = self._ideal(self._states)

    def _ideal(self, which: NDArray[np.intp]) -> Ideal:
        rows = [self.observations[i].ideal for i in which]
        names = [field.name for field in dataclasses.fields(step.Ideal)]
        return step.Ideal(**{name: np.array([float(getattr(row, name)) for row in rows]) for name in names})

    def _column(self, name: str, which: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.array([getattr(self.observations[i], name) for i in which], dtype=float)

    def predict(self, coefficients: Coefficients) -> NDArray[np.float64]:
        """Predict every observation.

        Parameters
        ----------
        coefficients : Coefficients
            Columns of shape (sets, 1).

        Returns
        -------
        array, shape (sets, observations)
            Seconds [s].
        """
        sets = np.shape(coefficients.weight_read)[0]
        found = np.empty((sets, len(self.observations)))
        if self._steps.size:
            batch = self._column("batch", self._steps)
            found[:, self._steps] = step.decode_step(self._step_ideal, coefficients, batch).total
        if self._served.size:
            state = serving.closed_loop(
                self._served_ideal,
                coefficients,
                *(self._column(name, self._states) for name in _LOAD),
                admission_interval=self._column("admission_interval", self._states),
                opening_share=self._column("opening_share", self._states),
            )
            ttft, tpot = np.asarray(state.ttft_s), np.asarray(state.tpot_s)
            found[:, self._served] = np.where(self._ttft, ttft[:, self._state], tpot[:, self._state])
        return found


def describe(one: Observation) -> Sentence:
    """Name an observation for people.

    Parameters
    ----------
    one : Observation
        What was measured, or could be.

    Returns
    -------
    Sentence
        Like "step at batch 64 and context 8,192: 31.2 ms".
    """
    if one.of == "step":
        where = Sentence("calibrate.step_at", batch=f"{one.batch:,.4g}", context=f"{one.context:,.0f}")
    else:
        lengths = {"isl": f"{one.isl:,.0f}", "osl": f"{one.osl:,.0f}"}
        where = Sentence("calibrate.served_at", of=one.of.upper(), flying=f"{one.batch:,.4g}", **lengths)
    return where if np.isnan(one.seconds) else Sentence("calibrate.timed", where=where, time=format_time(one.seconds))
