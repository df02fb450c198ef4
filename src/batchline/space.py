"""Every deployment of a model that could be started, as arrays: accelerators x layouts x formats x engines.

What cannot be started is counted by its reason and left out; what is left has its ideal times, coefficients and memory
as arrays with one entry for each deployment, for `batchline.goodput`.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import precision, readings, step
from batchline.deployment import Deployment, capacity_batch
from batchline.engine import Engine, has_kv_format, runs_on
from batchline.errors import BatchlineError, MissingFactError
from batchline.memory import kv_bytes_per_device, kv_read_bytes_per_device
from batchline.prior import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from batchline.accelerator import Accelerator
    from batchline.architecture import Architecture
    from batchline.price import Price
    from batchline.prior import Prior
    from batchline.roofline import Floats

__all__ = ["Layout", "Space", "default_weights", "enumerate_space", "layouts"]

_PIPELINES = (1, 2, 4, 8, 16)
_LAYERS_OF_A_STAGE = 8  # handing over from stage to stage is not counted, so very short stages would look too good
_RANKS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, order=True)
class Layout:
    """Parallel degrees of one replica.

    Parameters
    ----------
    tp, pp, dp, ep : int
        Tensor, pipeline, attention-data and expert parallel degrees [-].
    """

    tp: int
    pp: int = 1
    dp: int = 1
    ep: int = 1

    @property
    def count(self) -> int:
        """Devices [device]."""
        return self.tp * self.pp * self.dp


@functools.cache
def layouts(architecture: Architecture, max_devices: int) -> tuple[Layout, ...]:
    """Layouts that divide a model.

    Parameters
    ----------
    architecture : Architecture
        The model.
    max_devices : int
        Most devices of one replica [device].

    Returns
    -------
    tuple of Layout
        Tensor parallelism over divisors of the heads; pipelines of a power of two stages with 8 layers or more each;
        attention data parallelism with whole experts spread over all its devices, for models with routed experts. (For
        others a data-parallel rank is a replica.)

    Examples
    --------
    >>> from batchline.architecture import Architecture
    >>> [(one.tp, one.pp) for one in layouts(Architecture.load("llama-3.1-8b"), 4)]
    [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)]
    """
    heads, deepest = architecture.q_heads or 1, architecture.layers // _LAYERS_OF_A_STAGE
    found = []
    for tp in (n for n in range(1, min(heads, max_devices) + 1) if heads % n == 0):
        for pp in (n for n in _PIPELINES if n <= max(1, deepest) and tp * n <= max_devices):
            found.append(Layout(tp, pp))
            if architecture.experts:
                ranks = (n for n in _RANKS[1:] if tp * pp * n <= max_devices and tp * n <= architecture.experts)
                found += [Layout(tp, pp, dp, tp * dp) for dp in ranks]
    return tuple(sorted(found))


@dataclass(frozen=True)
class Space:
    """Deployments that could be started; arrays have one entry for each.

    Parameters
    ----------
    architecture : Architecture
        The model.
    accelerators, layouts, weights, kvs, engines : sequence
        What the index arrays point into.
    accelerator, layout, weight, kv, engine : array of int
        Index of each deployment's accelerator, layout, formats and engine.
    ideal : step.Ideal
        Ideal times.
    coefficients : step.Coefficients
        What the engines make of them.
    factors : mapping of str to array
        Of "tpot" and "ttft": the factors that hold 50, 80 and 90%, for each deployment.
    widest : mapping of str to array
        The factors of what is new in all: no point of the fit has prompts on replicas of their own.
    novelties : array of str
        What of each no measured point has: see `batchline.prior`.
    capacity_batch : array
        Sequences whose KV cache fits before activations are taken off: never less than fit in truth [sequence].
    usd_per_hour : array
        Median price of one replica [USD/h].
    refused : dict
        Deployments that cannot be started, by reason.
    considered : int
        Deployments looked at [-].
    """

    architecture: Architecture
    accelerators: Sequence[Accelerator]
    prices: Sequence[Price]
    layouts: Sequence[Layout]
    weights: Sequence[str | None]
    kvs: Sequence[str]
    engines: Sequence[str]
    accelerator: NDArray[np.intp]
    layout: NDArray[np.intp]
    weight: NDArray[np.intp]
    kv: NDArray[np.intp]
    engine: NDArray[np.intp]
    ideal: step.Ideal
    coefficients: step.Coefficients
    factors: Mapping[str, NDArray[np.float64]]
    widest: Mapping[str, NDArray[np.float64]]
    novelties: NDArray[np.str_]
    capacity_batch: NDArray[np.float64]
    usd_per_hour: NDArray[np.float64]
    refused: dict[str, int]
    considered: int

    @property
    def size(self) -> int:
        """Deployments left [-]."""
        return len(self.accelerator)

    @functools.cached_property
    def count(self) -> NDArray[np.int64]:
        """Devices of one replica of each [device]."""
        return np.array([one.count for one in self.layouts], dtype=np.int64)[self.layout]

    def deployment(self, index: int) -> Deployment:
        """One of them as a `Deployment`.

        Parameters
        ----------
        index : int
            Which.

        Returns
        -------
        Deployment
            Without activations taken off its memory.
        """
        layout = self.layouts[self.layout[index]]
        return Deployment(
            architecture=self.architecture,
            accelerator=self.accelerators[self.accelerator[index]],
            count=layout.count,
            weights=self.weights[self.weight[index]],
            kv=self.kvs[self.kv[index]],
            tp=layout.tp,
            pp=layout.pp,
            dp=layout.dp,
            ep=layout.ep,
            engine=self.engines[self.engine[index]],
            price=self.prices[self.accelerator[index]],
        )

    def take(self, index: NDArray[np.intp]) -> Space:
        """Some of them.

        Parameters
        ----------
        index : array of int
            Which.

        Returns
        -------
        Space
            With these entries, in this order.
        """
        names = ("accelerator", "layout", "weight", "kv", "engine", "novelties", "capacity_batch", "usd_per_hour")
        return dataclasses.replace(
            self,
            **{name: getattr(self, name)[index] for name in names},
            ideal=_taken(self.ideal, index),
            coefficients=_taken(self.coefficients, index),
            factors={name: values[index] for name, values in self.factors.items()},
        )


def _taken(record: Any, index: NDArray[np.intp]) -> Any:
    """Entries of every array field of a frozen record."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return type(record)(
        **{
            name: value[index] if isinstance(value, np.ndarray) and value.ndim else value
            for name, value in values.items()
        }
    )


def enumerate_space(
    architecture: Architecture,
    accelerators: Sequence[Accelerator],
    prices: Sequence[Price | None],
    *,
    weights: Sequence[str | None],
    kvs: Sequence[str],
    engines: Sequence[str],
    context: float,
    isl: float,
    max_devices: int,
    priors: Prior,
    memory_utilization: float | None = None,
    only: Sequence[Layout] | None = None,
) -> Space:
    """List every deployment, refuse what cannot start, and lay out the numbers of the rest.

    Parameters
    ----------
    architecture : Architecture
        The model.
    accelerators : sequence of Accelerator
        Devices to consider.
    prices : sequence of Price or None
        Price of each; a device without one is refused.
    weights : sequence of str or None
        Number formats of the weights; None is the checkpoint's own.
    kvs : sequence of str
        Number formats of the KV cache.
    engines : sequence of str
        Serving engines, by the names of the priors.
    context : float
        Mean tokens of context of a sequence [token].
    isl : float
        Tokens of a prompt [token].
    max_devices : int
        Most devices of one replica [device].
    priors : Prior
        Coefficients and intervals.
    memory_utilization : float, optional
        Share of a device's memory that the server takes; by default the engine's own [-].
    only : sequence of Layout, optional
        Layouts to consider, instead of all.

    Returns
    -------
    Space
        What can be started, and why the rest cannot.
    """
    shapes = tuple(only) if only is not None else layouts(architecture, max_devices)
    refused: dict[str, int] = {}
    per_device = len(shapes) * len(weights) * len(kvs) * len(engines)
    usable, names = _usable(accelerators, prices, weights, architecture, refused, per_device)
    axes = (len(usable), len(shapes), len(weights), len(kvs), len(engines))
    a, s, w, k, e = (index.ravel() for index in np.indices(axes)) if all(axes) else (np.zeros(0, dtype=np.intp),) * 5
    keep = np.ones(len(a), dtype=bool)

    def refuse(reason: str, where: NDArray[np.bool_]) -> None:
        gone = keep & where
        if gone.any():
            refused[reason] = refused.get(reason, 0) + int(gone.sum())
            keep[gone] = False

    devices = [accelerators[i] for i in usable]
    can_run = np.array([[runs_on(engine, device.vendor) for engine in engines] for device in devices], dtype=bool)
    refuse("the engine does not run on this accelerator", ~can_run.reshape(len(devices), len(engines))[a, e])
    has_kv = np.array([[has_kv_format(engine, kv) for engine in engines] for kv in kvs])
    refuse("the engine has no such KV cache format", ~has_kv[k, e])
    multiplies = np.array([[names[i][j] == "" for j in range(len(weights))] for i in range(len(devices))], dtype=bool)
    refuse("no dense rate is known in this format", ~multiplies.reshape(len(devices), len(weights))[a, w])
    smaller = np.array([_is_own_or_smaller(architecture, weight) for weight in weights])
    refuse("the checkpoint has no more bits than this format", ~smaller[w])
    own_layers = np.array([one.tp * one.dp == 1 for one in shapes])
    deals = np.array([engine == "llama.cpp" for engine in engines])
    refuse("the engine deals out whole layers only", deals[e] & ~own_layers[s])
    joined = np.array([one.tp * one.dp for one in shapes])
    domain = np.array([device.scale_up_domain or 1 for device in devices])
    known = np.array(
        [device.link_bandwidth is not None and device.scale_up_domain is not None for device in devices], dtype=bool
    )
    refuse("the links between devices are not known", (joined[s] > 1) & ~known[a])
    refuse("more devices than the scale-up links join", joined[s] > domain[a])
    rows = np.flatnonzero(keep)
    a, s, w, k, e = a[rows], s[rows], w[rows], k[rows], e[rows]
    keep = np.ones(len(a), dtype=bool)
    room = _capacity(architecture, devices, shapes, weights, kvs, engines, context, memory_utilization, a, s, w, k, e)
    refuse("the weights do not fit", room < 0)
    refuse("not one sequence fits beside the weights", room < np.array([one.dp for one in shapes])[s])
    rows = np.flatnonzero(keep)
    a, s, w, k, e = a[rows], s[rows], w[rows], k[rows], e[rows]
    quoted = [price for i in usable if (price := prices[i]) is not None]
    kinds, new = _novelties(architecture, devices, shapes, weights, engines, priors, a, s, w, e)
    return Space(
        architecture=architecture,
        accelerators=devices,
        prices=quoted,
        layouts=shapes,
        weights=weights,
        kvs=kvs,
        engines=engines,
        accelerator=a,
        layout=s,
        weight=w,
        kv=k,
        engine=e,
        ideal=_ideal(architecture, devices, shapes, weights, kvs, context, isl, a, s, w, k),
        coefficients=_coefficients(architecture, devices, weights, kvs, engines, priors, a, w, k, e),
        factors={of: np.array([by[kind] for kind in kinds], dtype=float)[new] for of, by in priors.intervals.items()},
        widest={of: np.max([by[kind] for kind in kinds], axis=0) for of, by in priors.intervals.items()},
        novelties=np.array(kinds)[new],
        capacity_batch=room[rows],
        usd_per_hour=np.array([price.median for price in quoted])[a] * np.array([one.count for one in shapes])[s],
        refused=refused,
        considered=len(accelerators) * per_device,
    )


def _usable(
    accelerators: Sequence[Accelerator],
    prices: Sequence[Price | None],
    weights: Sequence[str | None],
    architecture: Architecture,
    refused: dict[str, int],
    per_device: int,
) -> tuple[list[int], list[list[str]]]:
    """Devices with a price and a 16-bit rate, and for each format why it cannot be multiplied ("" if it can)."""
    usable, names = [], []
    for i, device in enumerate(accelerators):
        if prices[i] is None:
            reason = "no price is known"
        elif "bf16" not in device.flops:
            reason = "no dense 16-bit rate is known"
        else:
            usable.append(i)
            names.append([_missing(device, architecture, weight) for weight in weights])
            continue
        refused[reason] = refused.get(reason, 0) + per_device
    return usable, names


def _missing(device: Accelerator, architecture: Architecture, weight: str | None) -> str:
    try:
        device.flops_for(architecture.math_format(weight))
    except MissingFactError as error:
        return error.problem
    return ""


def _is_own_or_smaller(architecture: Architecture, weight: str | None) -> bool:
    return weight is None or architecture.weight_bytes(weight) < 0.97 * architecture.weight_bytes(None)


def _capacity(
    architecture: Architecture,
    devices: Sequence[Accelerator],
    shapes: Sequence[Layout],
    weights: Sequence[str | None],
    kvs: Sequence[str],
    engines: Sequence[str],
    context: float,
    utilization: float | None,
    a: NDArray[np.intp],
    s: NDArray[np.intp],
    w: NDArray[np.intp],
    k: NDArray[np.intp],
    e: NDArray[np.intp],
) -> NDArray[np.float64]:
    """Sequences that fit when nothing but weights and cache takes memory; below 0 where the weights do not fit."""
    # Padding, tables and the fullest stage only add to an even division: what is counted here is never too much.
    tp, pp, ranks = (np.array([getattr(one, name) for one in shapes], dtype=float) for name in ("tp", "pp", "dp"))
    whole = np.array([architecture.weight_bytes(weight) for weight in weights])
    routed = np.array([architecture.step_weight_bytes(weight)[1] for weight in weights])
    held = (whole - routed)[None, :] / (tp * pp)[:, None] + routed[None, :] / (tp * pp * ranks)[:, None]
    stored = _of_layouts(kv_bytes_per_device, architecture, context, shapes, kvs) / pp[:, None]
    memory = np.array([device.usable_memory() for device in devices])[a]
    budget = np.empty((len(devices), len(engines)))
    of_free = np.zeros(len(engines), dtype=bool)
    for j, name in enumerate(engines):
        accounting, shares = _shares(name, devices, architecture, utilization)
        budget[:, j] = shares
        of_free[j] = accounting == "fraction_of_free"
    share, weight_bytes = budget[a, e], held[s, w]
    # A share of what is free after loading leaves share x (memory - weights): as if the memory were smaller.
    total = np.where(of_free[e], weight_bytes + share * (memory - weight_bytes), share * memory)
    room = np.asarray(capacity_batch(total, 1.0, weight_bytes, stored[s, k]), dtype=float)
    return np.where(total <= weight_bytes, -1.0, ranks[s] * room)


def _of_layouts(
    bytes_of: Callable[..., Floats],
    architecture: Architecture,
    context: float,
    shapes: Sequence[Layout],
    kvs: Sequence[str],
) -> NDArray[np.float64]:
    """Bytes on one device for each layout and cache format [B]; only the tensor-parallel degree divides them."""
    degrees = {one.tp for one in shapes}
    table = {(tp, kv): bytes_of(architecture, context, kv, tp=tp) for tp in degrees for kv in kvs}
    return np.array([[table[one.tp, kv] for kv in kvs] for one in shapes], dtype=float).reshape(len(shapes), len(kvs))


def _shares(
    name: str, devices: Sequence[Accelerator], architecture: Architecture, utilization: float | None
) -> tuple[str, list[float]]:
    """How an engine counts its share of memory, and the share, or all of it where that is not a plain number."""
    try:
        engine = Engine.load(name)
    except BatchlineError:
        return "fraction_of_total", [utilization or 1.0] * len(devices)
    if engine.accounting not in ("fraction_of_total", "fraction_of_free"):
        return engine.accounting, [1.0] * len(devices)
    shares = []
    for device in devices:
        context = {
            "memory_gib": device.usable_memory() / 2**30,
            "device": device.name,
            "generation": device.generation,
            "dense": not architecture.experts,
            "tp": 1,
            "pp": 1,
        }
        shares.append(utilization or float(engine.value("gpu_memory_utilization", **context)))
    return engine.accounting, shares


def _ideal(
    architecture: Architecture,
    devices: Sequence[Accelerator],
    shapes: Sequence[Layout],
    weights: Sequence[str | None],
    kvs: Sequence[str],
    context: float,
    isl: float,
    a: NDArray[np.intp],
    s: NDArray[np.intp],
    w: NDArray[np.intp],
    k: NDArray[np.intp],
) -> step.Ideal:
    """Ideal times of all deployments: the numbers that `readings.ideal_of` takes of one, as arrays."""
    arch = architecture
    split = np.array([arch.step_weight_bytes(weight) for weight in weights]).reshape(len(weights), 2)
    read = _of_layouts(kv_read_bytes_per_device, arch, context, shapes, kvs)
    rates = np.array(
        [
            [device.flops.get(_key(arch.math_format(weight)), np.nan) for weight in weights] or [np.nan]
            for device in devices
        ]
    ).reshape(len(devices), len(weights))
    return step.ideal(
        weight_bytes=split[w, 0],
        expert_bytes=split[w, 1],
        kv_read_bytes=read[s, k],
        **readings.numbers_of(arch, context, isl),
        bandwidth=np.array([device.bandwidth for device in devices])[a],
        flops=rates[a, w],
        flops_bf16=np.array([device.flops["bf16"] for device in devices])[a],
        link_bandwidth=np.array([device.link_bandwidth or np.inf for device in devices])[a],
        tp=np.array([one.tp for one in shapes], dtype=float)[s],
        pp=np.array([one.pp for one in shapes], dtype=float)[s],
        dp=np.array([one.dp for one in shapes], dtype=float)[s],
        ep=np.array([one.ep for one in shapes], dtype=float)[s],
    )


def _key(number_format: str) -> str:
    return {"fp16": "bf16"}.get(number_format, number_format)


def _coefficients(
    architecture: Architecture,
    devices: Sequence[Accelerator],
    weights: Sequence[str | None],
    kvs: Sequence[str],
    engines: Sequence[str],
    priors: Prior,
    a: NDArray[np.intp],
    w: NDArray[np.intp],
    k: NDArray[np.intp],
    e: NDArray[np.intp],
) -> step.Coefficients:
    """Coefficients of all deployments; they differ by accelerator, formats and engine only."""
    attention = readings.attention_of(architecture)
    names = [field.name for field in dataclasses.fields(step.Coefficients)]
    shape = (len(devices), len(weights), len(kvs), len(engines))
    table = np.zeros((*shape, len(names)))
    for index in np.ndindex(*shape):
        case = Case(
            engine=engines[index[3]],
            model=architecture.name,
            accelerator=devices[index[0]].name,
            generation=devices[index[0]].generation,
            weights=weights[index[1]] or architecture.weight_format,
            kv=kvs[index[2]],
            attention=attention,
        )
        found = priors.coefficients(case)
        table[index] = [getattr(found, name) for name in names]
    chosen = table[a, w, k, e]
    return step.Coefficients(**{name: chosen[:, i] for i, name in enumerate(names)})


def _novelties(
    architecture: Architecture,
    devices: Sequence[Accelerator],
    shapes: Sequence[Layout],
    weights: Sequence[str | None],
    engines: Sequence[str],
    priors: Prior,
    a: NDArray[np.intp],
    s: NDArray[np.intp],
    w: NDArray[np.intp],
    e: NDArray[np.intp],
) -> tuple[list[str], NDArray[np.intp]]:
    """Kinds of novelty, and which of them each deployment has."""
    shape = (len(devices), len(shapes), len(weights), len(engines))
    kinds = list(next(iter(priors.intervals.values())))
    table = np.zeros(shape, dtype=np.intp)
    for i, j, n in np.ndindex(len(devices), len(weights), len(engines)):
        plain = Case(
            engine=engines[n],
            model=architecture.name,
            accelerator=devices[i].name,
            generation=devices[i].generation,
            weights=weights[j] or architecture.weight_format,
        )
        novelty = priors.novelty(plain)
        table[i, :, j, n] = kinds.index(novelty)
        if novelty in ("deployment", "lengths"):  # the cluster is known: the layout decides
            for m, one in enumerate(shapes):
                layout = f"tp{one.tp} pp{one.pp} dp{one.dp} ep{one.ep}"
                table[i, m, j, n] = kinds.index(priors.novelty(dataclasses.replace(plain, layout=layout)))
    return kinds, table[a, s, w, e]


def default_weights(architecture: Architecture, formats: Sequence[str]) -> tuple[str | None, ...]:
    """Formats to try for a model: the checkpoint's own, and those that have fewer bits.

    Parameters
    ----------
    architecture : Architecture
        The model.
    formats : sequence of str
        Names of formats.

    Returns
    -------
    tuple of str or None
        None (the checkpoint's own) first.
    """
    own = precision.load(architecture.weight_format).name if architecture.weight_format else ""
    return (None, *(name for name in formats if precision.load(name).name != own))
