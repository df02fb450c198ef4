"""What cannot be started, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from batchline.engine import has_kv_format, runs_on
from batchline.errors import MissingFactError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from batchline.accelerator import Accelerator
    from batchline.architecture import Architecture
    from batchline.price import Price
    from batchline.space.grid import Grid

__all__ = ["refusal", "refusals", "refusals_by_memory"]


def refusal(device: Accelerator, price: Price | None) -> str:
    """Say what is missing of a device.

    Parameters
    ----------
    device : Accelerator
        The device.
    price : Price or None
        Its price.

    Returns
    -------
    str
        The reason to refuse it; empty where there is none.
    """
    reason = ""
    if price is None:
        reason = "no price is known"
    elif "bf16" not in device.flops:
        reason = "no dense 16-bit rate is known"
    return reason


def refusals(grid: Grid) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Say what engines, formats and links do not allow.

    Parameters
    ----------
    grid : Grid
        Deployments.

    Yields
    ------
    str, array of bool
        A reason, and whether it speaks against each.
    """
    arch, devices = grid.architecture, grid.accelerators
    a, s, w, k, e = grid.accelerator, grid.layout, grid.weight, grid.kv, grid.engine
    can_run = _table([[runs_on(engine, device.vendor) for engine in grid.engines] for device in devices])
    yield "the engine does not run on this accelerator", ~can_run[a, e]
    has_kv = _table([[has_kv_format(engine, kv) for engine in grid.engines] for kv in grid.kvs])
    yield "the engine has no such KV cache format", ~has_kv[k, e]
    multiplies = _table([[_multiplies(device, arch, weight) for weight in grid.weights] for device in devices])
    yield "no dense rate is known in this format", ~multiplies[a, w]
    smaller = np.array([_is_own_or_smaller(arch, weight) for weight in grid.weights])
    yield "the checkpoint has no more bits than this format", ~smaller[w]
    joined = np.array([one.tp * one.dp for one in grid.layouts])[s]
    deals = np.array([engine == "llama.cpp" for engine in grid.engines])
    yield "the engine deals out whole layers only", deals[e] & (joined > 1)
    linked = [one.link_bandwidth is not None and one.scale_up_domain is not None for one in devices]
    yield "the links between devices are not known", (joined > 1) & ~np.array(linked, dtype=bool)[a]
    domain = np.array([device.scale_up_domain or 1 for device in devices])
    yield "more devices than the scale-up links join", joined > domain[a]


def refusals_by_memory(grid: Grid, room: NDArray[np.float64]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Say what the memory does not allow.

    Parameters
    ----------
    grid : Grid
        Deployments.
    room : array
        Sequences that fit; below 0 where the weights do not [sequence].

    Yields
    ------
    str, array of bool
        A reason, and whether it speaks against each.
    """
    yield "the weights do not fit", room < 0
    yield "not one sequence fits beside the weights", room < grid.degree("dp")


def _table(rows: list[list[bool]]) -> NDArray[np.bool_]:
    """Two axes, also where there is no row."""
    return np.array(rows, dtype=bool).reshape(len(rows), -1 if rows else 0)


def _multiplies(device: Accelerator, architecture: Architecture, weight: str | None) -> bool:
    try:
        device.flops_for(architecture.math_format(weight))
    except MissingFactError:
        return False
    return True


def _is_own_or_smaller(architecture: Architecture, weight: str | None) -> bool:
    return weight is None or architecture.weight_bytes(weight) < 0.97 * architecture.weight_bytes(None)
