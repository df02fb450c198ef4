"""Out-of-fold predictions: each group is predicted by a fit that no row of it has touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from validation import hierarchy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.rows import Rows

SPLITS = ("series", "deployment", "cluster", "model", "accelerator", "engine")
"""What is left out, from little to much: the novelties of batchline.prior, with series for lengths."""

_FOLDS = 10


@dataclass(frozen=True)
class Held:
    """Predictions for rows that their fit had not seen [s]."""

    tpot: NDArray[np.float64]
    ttft: NDArray[np.float64]


def folds(names: list[str], *, each: bool) -> NDArray[np.intp]:
    """Number the groups: one fold each where there are few, else dealt into ten by a fixed shuffle."""
    known = sorted(set(names))
    if each:
        number = {name: i for i, name in enumerate(known)}
    else:
        deal = np.random.default_rng(0).permutation(len(known))
        number = {name: int(deal[i]) % _FOLDS for i, name in enumerate(known)}
    return np.array([number[name] for name in names])


def held_out(rows: Rows, usable: NDArray[np.bool_], split: str) -> Held:
    """Predict every row by a fit on the usable rows of the other groups."""
    tpot, ttft = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    fold = folds(rows.group(split), each=split in {"model", "accelerator", "engine"})
    for one in np.unique(fold):
        inside = np.flatnonzero(fold == one)
        fitted = hierarchy.fit(rows.take(np.flatnonzero((fold != one) & usable)))
        tpot[inside], ttft[inside] = fitted.predict(rows.take(inside))
    return Held(tpot, ttft)
