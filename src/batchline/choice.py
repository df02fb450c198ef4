"""The batch to run, and the sentence that says why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import roofline
from batchline.errors import InputError
from batchline.readings import Steps, steps
from batchline.strings import Sentence, text
from batchline.units import format_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline.deployment import Deployment
    from batchline.prior import Prior

__all__ = ["Optimum", "optimum"]

_EVERY = 65_536  # up to here every whole batch is tried, beyond it 4,096 a factor of two
_SAME = 1e-9  # costs closer than this are one cost, and the smaller batch is the better one


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The batch to run.

    Parameters
    ----------
    batch : int
        Sequences decoded together [sequence].
    t_step : float
        Time of a step there [s].
    usd_per_mtok : float or None
        Cost of a million output tokens there [USD/Mtoken].
    binds : str
        What stops a larger batch: "step_limit", "kv", "max_batch", "within", or "floor" (more saves nothing).
    because : tuple of tuple
        What the reason is made of: a key of the catalogue's group `choice`, and what stands in its braces.
    """

    batch: int
    t_step: float
    usd_per_mtok: float | None
    binds: str
    because: tuple[tuple[str, dict[str, str]], ...]

    @property
    def reason(self) -> str:
        """What binds, as a sentence."""
        return self.told()

    def told(self, language: str = "en") -> str:
        """Say the reason.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            A sentence.
        """
        reasons = "; ".join(text(f"choice.{key}", language, **fields) for key, fields in self.because)
        return text("choice.sentence", language, batch=f"{self.batch:,}", reasons=reasons)

    def to_dict(self) -> dict[str, Any]:
        """Give it with the names of the JSON output.

        Returns
        -------
        dict
            `batch, t_step_s, usd_per_mtok, binds, reason`.
        """
        return {
            "batch": self.batch,
            "t_step_s": self.t_step,
            "usd_per_mtok": self.usd_per_mtok,
            "binds": self.binds,
            "reason": self.reason,
        }


def _candidates(limit: float) -> NDArray[np.float64]:
    every = np.arange(1, min(limit, _EVERY) + 1, dtype=float)
    if limit <= _EVERY:
        return every
    above = np.unique(np.round(np.geomspace(_EVERY, limit, int(4096 * np.log2(limit / _EVERY)) + 2)))
    return np.concatenate([every, above[above > _EVERY]])


def optimum(
    deployment: Deployment,
    context: float,
    *,
    reading: str = "bound",
    step_limit: float | None = None,
    within: float | None = None,
    max_batch: float | None = None,
    priors: Prior | None = None,
) -> Optimum:
    """Find the cheapest batch that fits and keeps the limits; of equally cheap ones the smallest.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    context : float
        Mean tokens of context of a sequence [token].
    reading : str
        "bound", "serial" or "predict".
    step_limit : float, optional
        Longest step allowed [s]; 1 / (tokens per second of a user).
    within : float, optional
        Be content with the smallest batch whose cost is within this share of its floor [-]; when no batch that fits
        comes so near, the cheapest is taken and the reason says so.
    max_batch : float, optional
        Largest batch allowed, like an engine's max_num_seqs [sequence].
    priors : Prior, optional
        Coefficients for "predict"; by default those that the package ships.

    Returns
    -------
    Optimum
        The batch and the reason.

    Raises
    ------
    InputError
        No batch keeps the limit; says the shortest step there is.
    """
    capacity = float(deployment.capacity_batch(context))
    limit = min(capacity, max_batch or np.inf, 2.0**24)
    batches = _candidates(max(1.0, limit))
    found = steps(deployment, context, batches, reading, priors)
    allowed = np.ones(batches.shape, dtype=bool) if step_limit is None else found.t_step <= step_limit
    if not allowed.any():
        raise InputError(
            Sentence(
                "error.no_batch_keeps",
                limit=format_time(step_limit or 0),
                alone=format_time(float(found.t_step[0])),
            ),
            "",
            Sentence("error.loosen_limit"),
        )
    per_token = np.where(allowed, found.t_step / batches, np.inf)
    floor = _seconds_per_token_floor(deployment, context, reading)
    target = per_token.min() * (1.0 + _SAME)
    if within is not None:
        target = max(target, floor * (1.0 + within))
    index = int(np.argmax(per_token <= target))
    batch = int(batches[index])
    binds = _binds(index, allowed, batches, limit=limit, capacity=capacity, within=within, max_batch=max_batch)
    cost = None if found.usd_per_mtok is None else float(found.usd_per_mtok[index])
    because = _because(deployment, context, found, index, binds, floor, step_limit)
    if within is not None and per_token[index] > floor * (1.0 + within):
        because.append(("missed", {"within": f"{within:.0%}"}))
    return Optimum(
        batch=batch,
        t_step=float(found.t_step[index]),
        usd_per_mtok=cost,
        binds=binds,
        because=tuple(because),
    )


def _seconds_per_token_floor(deployment: Deployment, context: float, reading: str) -> float:
    kv = deployment.kv_read_bytes(context)
    active = deployment.architecture.active_params
    serial = reading == "serial"
    return float(roofline.cost_floor(active, deployment.flops, 1.0, kv, deployment.bandwidth, serial=serial))


def _binds(
    index: int,
    allowed: NDArray[np.bool_],
    batches: NDArray[np.float64],
    *,
    limit: float,
    capacity: float,
    within: float | None,
    max_batch: float | None,
) -> str:
    last_allowed = int(np.flatnonzero(allowed)[-1])
    if index < last_allowed:
        return "floor" if within is None else "within"
    if index < batches.size - 1:
        return "step_limit"
    if limit == capacity:
        return "kv"
    return "max_batch" if limit == max_batch else "floor"  # the largest that is tried: what more saves is no number


def _because(
    deployment: Deployment,
    context: float,
    found: Steps,
    index: int,
    binds: str,
    floor: float,
    step_limit: float | None,
) -> list[tuple[str, dict[str, str]]]:
    batch = int(found.batch[index])
    first = {
        "kv": {"batch": f"{batch:,}", "context": f"{context:,.0f}"},
        "step_limit": {"limit": format_time(step_limit or 0)},
    }
    because = [(binds, first.get(binds, {}))]
    excess = float(found.t_step[index]) / batch / floor
    # A prediction lies above the floor that the article's model has at the same price.
    whose = "_article" if found.reading == "predict" else ""
    because.append((f"at_floor{whose}", {}) if excess < 1.005 else (f"times_floor{whose}", {"times": f"{excess:.2f}"}))
    slope = float(found.t_kv[index]) / batch
    compute = float(found.t_compute[index]) / batch
    if found.reading != "predict" and excess > 1.1 and slope > 0 and slope >= compute:
        # Above the balance context only the weights can still be shared further.
        fixed = float(roofline.t_weights(deployment.step_weight_bytes(np.inf), deployment.bandwidth))
        enough = float(roofline.batch_within(0.1, fixed, slope))
        because.append(("weights_small", {"batch": f"{enough:,.0f}"}))
    return because
