"""One decode step of a deployment in the reading that was asked for, with cost, utilisation and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchline import roofline
from batchline.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from batchline.deployment import Deployment
    from batchline.roofline import Floats

__all__ = ["READINGS", "Steps", "steps"]

_STEP: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "bound": roofline.t_step_bound,
    "serial": roofline.t_step_serial,
}

READINGS = tuple(_STEP)
"""The readings of one step, by name."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Times of one decode step, with an entry for each batch (or context).

    Parameters
    ----------
    batch : array
        Sequences decoded together [sequence].
    t_compute, t_weights, t_kv, t_memory, t_step : array
        The parts at datasheet rates, and the step in the reading [s].
    usd_per_mtok : array or None
        Cost of a million output tokens [USD/Mtoken]; None without a price.
    mfu, mbu : array
        Model FLOPs and memory-bandwidth utilisation [-].
    bound_by : list of str
        The part that decides: "compute", "weights" or "kv".
    reading : str
        "bound", "serial" or "predict".
    """

    batch: NDArray[np.float64]
    t_compute: NDArray[np.float64]
    t_weights: NDArray[np.float64]
    t_kv: NDArray[np.float64]
    t_memory: NDArray[np.float64]
    t_step: NDArray[np.float64]
    usd_per_mtok: NDArray[np.float64] | None
    mfu: NDArray[np.float64]
    mbu: NDArray[np.float64]
    bound_by: list[str]
    reading: str


def _bound_by(compute: Floats, weights: Floats, kv: Floats, reading: str) -> list[str]:
    # In the bound all memory stands against compute; in the serial reading each part stands for itself.
    memory_decides = (weights + kv >= compute) if reading == "bound" else (np.maximum(weights, kv) >= compute)
    names = np.where(memory_decides, np.where(np.asarray(kv) > weights, "kv", "weights"), "compute")
    return [str(name) for name in np.atleast_1d(names)]


def steps(deployment: Deployment, context: Floats, batch: Floats, reading: str) -> Steps:
    """One decode step for each batch and context.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    context : float or array
        Mean tokens of context of a sequence [token].
    batch : float or array
        Sequences decoded together in the whole deployment [sequence].
    reading : str
        "bound" or "serial".

    Returns
    -------
    Steps
        Arrays over the batch.

    Raises
    ------
    UnknownNameError
        No such reading.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> s = steps(Deployment.of("llama-3.1-8b", "h100"), 2048, 128, "serial")
    >>> s.bound_by, f"{s.t_step[0] * 1e3:.2f} ms"
    (['kv'], '14.74 ms')
    """
    if reading not in _STEP:
        raise UnknownNameError("reading", reading, _STEP)
    batch = np.atleast_1d(np.asarray(batch, dtype=float))
    compute = roofline.t_compute(batch, deployment.architecture.active_params, deployment.flops)
    weights = roofline.t_weights(deployment.step_weight_bytes(batch), deployment.bandwidth)
    # Windows, top-k attention and states read something else than L x kv, so what a sequence reads stands for the product.
    kv = roofline.t_kv(batch, 1.0, deployment.kv_read_bytes(context), deployment.bandwidth)
    step = np.asarray(_STEP[reading](compute, weights, kv))
    price = deployment.usd_per_hour
    return Steps(
        batch=batch,
        t_compute=np.asarray(compute),
        t_weights=np.asarray(weights),
        t_kv=np.asarray(kv),
        t_memory=np.asarray(roofline.t_memory(weights, kv)),
        t_step=step,
        usd_per_mtok=None if price is None else np.asarray(roofline.usd_per_mtok(step, batch, price)),
        mfu=np.asarray(roofline.mfu(step, batch, deployment.architecture.active_params, deployment.flops)),
        mbu=np.asarray(roofline.mbu(step, weights, kv)),
        bound_by=_bound_by(compute, weights, kv, reading),
        reading=reading,
    )
