"""Layouts: the parallel degrees of one replica, and those that divide a model."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchline.architecture import Architecture

__all__ = ["Layout", "layouts"]

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
