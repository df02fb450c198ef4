"""The numbers of every deployment of a grid, as arrays: memory, ideal times, coefficients, what is new."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from batchline import readings, step
from batchline.deployment import capacity_batch
from batchline.engine import Engine
from batchline.errors import BatchlineError
from batchline.memory import kv_bytes_per_device, kv_read_bytes_per_device
from batchline.prior import Case

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from batchline.prior import Prior
    from batchline.roofline import Floats
    from batchline.space.grid import Grid

__all__ = ["capacity", "coefficients", "ideal", "novelties"]


def capacity(grid: Grid, context: float, utilization: float | None) -> NDArray[np.float64]:
    """Sequences that fit when nothing but weights and cache takes memory.

    Parameters
    ----------
    grid : Grid
        Deployments.
    context : float
        Mean tokens of a sequence [token].
    utilization : float or None
        Share of a device's memory that the server takes; None for the engine's own [-].

    Returns
    -------
    array
        Sequences of a replica; below 0 where the weights do not fit [sequence].
    """
    # Padding, tables and the fullest stage only add to an even division: what is counted here is never too much.
    arch, a, s, w, k, e = grid.architecture, grid.accelerator, grid.layout, grid.weight, grid.kv, grid.engine
    tp, pp, ranks = (grid.degree(name) for name in ("tp", "pp", "dp"))
    whole = np.array([arch.weight_bytes(weight) for weight in grid.weights])
    routed = np.array([arch.step_weight_bytes(weight)[1] for weight in grid.weights])
    held = (whole - routed)[w] / (tp * pp) + routed[w] / (tp * pp * ranks)
    stored = _of_layouts(kv_bytes_per_device, grid, context)[s, k] / pp
    memory = np.array([device.usable_memory() for device in grid.accelerators])[a]
    found = [_shares(name, grid, utilization) for name in grid.engines]
    of_free = np.array([accounting == "fraction_of_free" for accounting, _ in found], dtype=bool)
    share = np.array([shares for _, shares in found], dtype=float).reshape(len(found), len(grid.accelerators))[e, a]
    # A share of what is free after loading leaves share x (memory - weights): as if the memory were smaller.
    total = np.where(of_free[e], held + share * (memory - held), share * memory)
    room = np.asarray(capacity_batch(total, 1.0, held, stored), dtype=float)
    return np.where(total <= held, -1.0, ranks * room)


def _of_layouts(bytes_of: Callable[..., Floats], grid: Grid, context: float) -> NDArray[np.float64]:
    """Bytes on one device for each layout and cache format [B]; only the tensor-parallel degree divides them."""
    degrees = {one.tp for one in grid.layouts}
    table = {(tp, kv): bytes_of(grid.architecture, context, kv, tp=tp) for tp in degrees for kv in grid.kvs}
    rows = [[table[one.tp, kv] for kv in grid.kvs] for one in grid.layouts]
    return np.array(rows, dtype=float).reshape(len(grid.layouts), len(grid.kvs))


def _shares(name: str, grid: Grid, utilization: float | None) -> tuple[str, list[float]]:
    """How an engine counts its share of memory, and the share, or all of it where that is not a plain number."""
    try:
        engine = Engine.load(name)
    except BatchlineError:
        return "fraction_of_total", [utilization or 1.0] * len(grid.accelerators)
    if engine.accounting not in ("fraction_of_total", "fraction_of_free"):
        return engine.accounting, [1.0] * len(grid.accelerators)
    shares = []
    for device in grid.accelerators:
        context = {
            "memory_gib": device.usable_memory() / 2**30,
            "device": device.name,
            "generation": device.generation,
            "dense": not grid.architecture.experts,
            "tp": 1,
            "pp": 1,
        }
        shares.append(utilization or float(engine.value("gpu_memory_utilization", **context)))
    return engine.accounting, shares


def ideal(grid: Grid, context: float, isl: float) -> step.Ideal:
    """Ideal times: the numbers that `readings.ideal_of` takes of one deployment, as arrays.

    Parameters
    ----------
    grid : Grid
        Deployments.
    context : float
        Mean tokens of context of a sequence [token].
    isl : float
        Tokens of a prompt [token].

    Returns
    -------
    step.Ideal
        Of all deployments.
    """
    arch, devices, a, w = grid.architecture, grid.accelerators, grid.accelerator, grid.weight
    split = np.array([arch.step_weight_bytes(weight) for weight in grid.weights]).reshape(len(grid.weights), 2)
    formats = [_rate_of(arch.math_format(weight)) for weight in grid.weights]
    rates = np.array([[device.flops.get(name, np.nan) for name in formats] for device in devices], dtype=float)
    return step.ideal(
        weight_bytes=split[w, 0],
        expert_bytes=split[w, 1],
        kv_read_bytes=_of_layouts(kv_read_bytes_per_device, grid, context)[grid.layout, grid.kv],
        **readings.numbers_of(arch, context, isl),
        bandwidth=np.array([device.bandwidth for device in devices])[a],
        flops=rates.reshape(len(devices), len(formats))[a, w],
        flops_bf16=np.array([device.flops["bf16"] for device in devices])[a],
        link_bandwidth=np.array([device.link_bandwidth or np.inf for device in devices])[a],
        **{name: grid.degree(name) for name in ("tp", "pp", "dp", "ep")},
    )


def _rate_of(number_format: str) -> str:
    return {"fp16": "bf16"}.get(number_format, number_format)


def coefficients(grid: Grid, priors: Prior) -> step.Coefficients:
    """Coefficients; they differ by accelerator, formats and engine only.

    Parameters
    ----------
    grid : Grid
        Deployments.
    priors : Prior
        Where they are from.

    Returns
    -------
    step.Coefficients
        Of all deployments.
    """
    attention = readings.attention_of(grid.architecture)
    names = [field.name for field in dataclasses.fields(step.Coefficients)]
    shape = (len(grid.accelerators), len(grid.weights), len(grid.kvs), len(grid.engines))
    table = np.zeros((*shape, len(names)))
    for i, j, k, n in np.ndindex(*shape):
        case = dataclasses.replace(_case(grid, i, j, n), kv=grid.kvs[k], attention=attention)
        found = priors.coefficients(case)
        table[i, j, k, n] = [getattr(found, name) for name in names]
    chosen = table[grid.accelerator, grid.weight, grid.kv, grid.engine]
    return step.Coefficients(**{name: chosen[:, i] for i, name in enumerate(names)})


def novelties(grid: Grid, priors: Prior) -> tuple[list[str], NDArray[np.intp]]:
    """Say what is new of each deployment.

    Parameters
    ----------
    grid : Grid
        Deployments.
    priors : Prior
        Who knows what was measured.

    Returns
    -------
    list of str
        Kinds of novelty.
    array of int
        Which of them each deployment has.
    """
    shape = (len(grid.accelerators), len(grid.layouts), len(grid.weights), len(grid.engines))
    kinds = list(next(iter(priors.intervals.values())))
    table = np.zeros(shape, dtype=np.intp)
    for i, j, n in np.ndindex(shape[0], shape[2], shape[3]):
        plain = _case(grid, i, j, n)
        novelty = priors.novelty(plain)
        table[i, :, j, n] = kinds.index(novelty)
        if novelty in ("deployment", "lengths"):  # the cluster is known: the layout decides
            for m, one in enumerate(grid.layouts):
                layout = f"tp{one.tp} pp{one.pp} dp{one.dp} ep{one.ep}"
                table[i, m, j, n] = kinds.index(priors.novelty(dataclasses.replace(plain, layout=layout)))
    return kinds, table[grid.accelerator, grid.layout, grid.weight, grid.engine]


def _case(grid: Grid, accelerator: int, weight: int, engine: int) -> Case:
    """What the priors are asked of, without layout, cache format and attention."""
    return Case(
        engine=grid.engines[engine],
        model=grid.architecture.name,
        accelerator=grid.accelerators[accelerator].name,
        generation=grid.accelerators[accelerator].generation,
        weights=grid.weights[weight] or grid.architecture.weight_format,
    )
