"""Engines that were measured as batches alone: what is theirs, on top of what the fit of served points knows.

llama.cpp has no public closed-loop points, but decode steps of fixed batches on two devices. A level of the engine that
is learned on one of them makes the other worse (TPOT error from 27% to 37 or 42%, the more the freer it is), so there
is a level for the engine on each device, and clusters inside of it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import prior, published, step, validate
from validation import hierarchy
from validation import rows as measured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from validation.hierarchy import Hierarchy
    from validation.rows import Rows

FILES = ("decode_llamacpp.csv",)
# As parts of the spread between clusters; layouts and versions were not varied.
NESTED: Mapping[str, float] = {"engine_accelerator": 1.0, "cluster": 1.0}
SPLITS = ("cluster", "model", "accelerator")


def load() -> Rows:
    """Read the batches."""
    return measured.load(FILES)[0]


def extend(fitted: Hierarchy, rows: Rows) -> Hierarchy:
    """Add the levels of batches to a fit of served points."""
    own = hierarchy.solve_all_nested(rows, NESTED, fitted.logs(rows), fitted.recipe.weight)
    together = {kind: found.joined(own.pop(kind)) if kind in own else found for kind, found in fitted.nested.items()}
    return dataclasses.replace(fitted, nested=together | own)


def held_out(fitted: Hierarchy, rows: Rows, split: str) -> NDArray[np.float64]:
    """Steps of batches by levels that no row of their cluster, model or accelerator has touched [s]."""
    names, found = np.array(rows.group(split)), np.empty(len(rows))
    for name in sorted(set(names)):
        inside = np.flatnonzero(names == name)
        found[inside], _ = extend(fitted, rows.take(np.flatnonzero(names != name))).predict(rows.take(inside))
    return found


def table(fitted: Hierarchy, rows: Rows) -> dict[str, Any]:
    """How far predictions of batches miss, for docs/validation.md."""
    known = {"nothing": extend(fitted, rows).predict(rows)[0]} | {name: held_out(fitted, rows, name) for name in SPLITS}
    bound, factor = np.asarray(step.bound(rows.ideal, rows.concurrency)), prior.load().intervals["tpot"]["engine"][-1]
    names = [f"{point.case.model}, {point.case.accelerator}" for point in rows.points]
    every = np.ones(len(rows), dtype=bool)
    groups = {"all": every} | {name: np.array(names) == name for name in sorted(set(names))}

    def line(name: str, inside: NDArray[np.bool_]) -> list[str]:
        ratios = {left_out: (found / rows.tpot)[inside] for left_out, found in known.items()}
        held = np.abs(np.log(ratios["cluster"])) <= np.log(factor)
        return [
            name,
            f"{inside.sum():,}",
            *(published.three(validate.errors_of(ratio - 1)) for ratio in ratios.values()),
            f"{held.mean():.0%}",
            f"{np.median((bound / rows.tpot)[inside]):.2f}",
        ]

    return {
        "columns": [
            "model, accelerator",
            "rows",
            *(f"TPOT error, {left_out} left out" for left_out in known),
            "in 90% interval, cluster left out",
            "bound / measured, median",
        ],
        "rows": [line(name, inside) for name, inside in groups.items()],
    }
