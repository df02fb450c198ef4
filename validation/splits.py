"""Out-of-fold predictions: each group is predicted by a fit that no row of it has touched."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from validation import hierarchy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.rows import Rows

SPLITS = ("series", "deployment", "cluster", "model", "accelerator", "engine")
"""What is left out, from little to much: the novelties of batchline.prior, with series for lengths."""

NEW_GROUPS = ("cluster", "model", "accelerator", "engine")
"""Those that leave out more than the nested levels can tell."""

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


def measured_again(rows: Rows) -> Held:
    """Predict every row by the other measurements of the same question: other days and versions; NaN without any."""
    same: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, point in enumerate(rows.points):
        same[point.case.deployment, point.isl, point.osl, point.concurrency, point.client].append(i)
    tpot, ttft = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for members in same.values():
        for one in members if len(members) > 1 else ():
            others = [other for other in members if other != one]
            tpot[one] = np.exp(np.log(rows.tpot[others]).mean())
            ttft[one] = np.exp(np.log(rows.ttft[others]).mean())
    return Held(tpot, ttft)


def held_out(rows: Rows, usable: NDArray[np.bool_], split: str, recipe: hierarchy.Recipe | None = None) -> Held:
    """Predict every row by a fit on the usable rows of the other groups."""
    tpot, ttft = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    fold = folds(rows.group(split), each=split in {"model", "accelerator", "engine"})
    for one in np.unique(fold):
        inside = np.flatnonzero(fold == one)
        fitted = hierarchy.fit(rows.take(np.flatnonzero((fold != one) & usable)), recipe)
        tpot[inside], ttft[inside] = fitted.predict(rows.take(inside))
    return Held(tpot, ttft)
