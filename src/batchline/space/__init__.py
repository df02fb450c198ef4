"""Every deployment of a model that could be started, as arrays: accelerators x layouts x formats x engines.

What cannot be started is counted by its reason and left out; what is left has its ideal times, coefficients and memory
as arrays with one entry for each deployment, for `batchline.goodput`.

    layout     parallel degrees, and those that divide a model
    grid       the axes, and where on them each deployment stands
    startable  what cannot be started, and why
    numbers    memory, ideal times, coefficients and novelty of the rest
"""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import precision
from batchline.deployment import Deployment
from batchline.space import numbers
from batchline.space.grid import Grid
from batchline.space.layout import Layout, layouts
from batchline.space.startable import refusal, refusals, refusals_by_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from batchline import step
    from batchline.accelerator import Accelerator
    from batchline.architecture import Architecture
    from batchline.price import Price
    from batchline.prior import Prior

__all__ = ["Grid", "Layout", "Space", "default_weights", "enumerate_space", "layouts"]


@dataclass(frozen=True, kw_only=True)
class Space(Grid):
    """Deployments that could be started, with their numbers; what a `Grid` has comes first.

    Parameters
    ----------
    prices : sequence of Price
        Price of each accelerator.
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

    prices: Sequence[Price]
    ideal: step.Ideal
    coefficients: step.Coefficients
    factors: Mapping[str, NDArray[np.float64]]
    widest: Mapping[str, NDArray[np.float64]]
    novelties: NDArray[np.str_]
    capacity_batch: NDArray[np.float64]
    usd_per_hour: NDArray[np.float64]
    refused: dict[str, int]
    considered: int

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
    per_device = len(shapes) * len(weights) * len(kvs) * len(engines)
    refused: Counter[str] = Counter()
    usable, quoted = [], []
    for device, price in zip(accelerators, prices, strict=True):
        if (reason := refusal(device, price)) or price is None:
            refused[reason] += per_device
        else:
            usable.append(device)
            quoted.append(price)
    grid = Grid.of(architecture, usable, shapes, weights, kvs, engines)
    grid = grid.those(_left(grid.size, refusals(grid), refused))
    room = numbers.capacity(grid, context, memory_utilization)
    rows = _left(grid.size, refusals_by_memory(grid, room), refused)
    grid = grid.those(rows)
    count = np.array([one.count for one in shapes])[grid.layout]
    kinds, new = numbers.novelties(grid, priors)
    return Space(
        **vars(grid),
        prices=quoted,
        ideal=numbers.ideal(grid, context, isl),
        coefficients=numbers.coefficients(grid, priors),
        factors={of: np.array([by[kind] for kind in kinds], dtype=float)[new] for of, by in priors.intervals.items()},
        widest={of: np.max([by[kind] for kind in kinds], axis=0) for of, by in priors.intervals.items()},
        novelties=np.array(kinds)[new],
        capacity_batch=room[rows],
        usd_per_hour=np.array([price.median for price in quoted])[grid.accelerator] * count,
        refused=dict(refused),
        considered=len(accelerators) * per_device,
    )


def _left(size: int, reasons: Iterable[tuple[str, NDArray[np.bool_]]], refused: Counter[str]) -> NDArray[np.intp]:
    """Places of what no reason speaks against; the others are counted by their first."""
    keep = np.ones(size, dtype=bool)
    for reason, against in reasons:
        if gone := int((keep & against).sum()):
            refused[reason] += gone
            keep &= ~against
    return np.flatnonzero(keep)


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
