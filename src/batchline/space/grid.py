"""The axes of a space, and where on them each deployment stands."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from batchline.accelerator import Accelerator
    from batchline.architecture import Architecture
    from batchline.space.layout import Layout

__all__ = ["Grid"]


@dataclass(frozen=True)
class Grid:
    """Deployments of a model; arrays have one entry for each.

    Parameters
    ----------
    architecture : Architecture
        The model.
    accelerators, layouts, weights, kvs, engines : sequence
        What the index arrays point into; a weight format of None is the checkpoint's own.
    accelerator, layout, weight, kv, engine : array of int
        Index of each deployment's accelerator, layout, formats and engine.
    """

    architecture: Architecture
    accelerators: Sequence[Accelerator]
    layouts: Sequence[Layout]
    weights: Sequence[str | None]
    kvs: Sequence[str]
    engines: Sequence[str]
    accelerator: NDArray[np.intp]
    layout: NDArray[np.intp]
    weight: NDArray[np.intp]
    kv: NDArray[np.intp]
    engine: NDArray[np.intp]

    @classmethod
    def of(
        cls,
        architecture: Architecture,
        accelerators: Sequence[Accelerator],
        layouts: Sequence[Layout],
        weights: Sequence[str | None],
        kvs: Sequence[str],
        engines: Sequence[str],
    ) -> Grid:
        """Take every combination.

        Parameters
        ----------
        architecture : Architecture
            The model.
        accelerators, layouts, weights, kvs, engines : sequence
            The axes.

        Returns
        -------
        Grid
            With an entry for each combination, the last axis fastest.
        """
        shape = tuple(map(len, (accelerators, layouts, weights, kvs, engines)))
        places = np.indices(shape).reshape(len(shape), -1) if all(shape) else np.zeros((len(shape), 0), dtype=np.intp)
        return cls(architecture, accelerators, layouts, weights, kvs, engines, *places)

    @property
    def size(self) -> int:
        """Deployments [-]."""
        return len(self.accelerator)

    def degree(self, name: str) -> NDArray[np.float64]:
        """Give a parallel degree of each deployment.

        Parameters
        ----------
        name : str
            "tp", "pp", "dp" or "ep".

        Returns
        -------
        array
            Degree [-].
        """
        return np.array([getattr(one, name) for one in self.layouts], dtype=float)[self.layout]

    def those(self, index: NDArray[np.intp]) -> Grid:
        """Leave some of them.

        Parameters
        ----------
        index : array of int
            Which.

        Returns
        -------
        Grid
            With these entries, in this order.
        """
        places = ("accelerator", "layout", "weight", "kv", "engine")
        return dataclasses.replace(self, **{name: getattr(self, name)[index] for name in places})
