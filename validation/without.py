"""Priors that never saw a cluster: what a user of a new model, accelerator, engine or format starts from.

The clusters are dealt into ten folds (validation/splits.py), and each fold is left out of a fit of its own, so that
ten fits serve all clusters.
"""

from __future__ import annotations

import functools
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from batchline import prior
from validation import between, hierarchy, splits
from validation import rows as measured

if TYPE_CHECKING:
    from validation.hierarchy import Hierarchy
    from validation.rows import Rows

__all__ = ["prior_of", "prior_without_cluster"]


def prior_of(fitted: Hierarchy, rows: Rows, intervals: prior.Prior) -> prior.Prior:
    """Put a fit in the form in which the package knows its priors.

    Parameters
    ----------
    fitted : Hierarchy
        Levels, and what is nested in them.
    rows : Rows
        What it was fitted on.
    intervals : Prior
        Whose intervals to take: those of the fit need held-out predictions.

    Returns
    -------
    Prior
        As `batchline.prior.load` gives it.
    """
    given = hierarchy.row_levels(rows)
    points = Counter((kind, level) for row in given for kind, level in row.items())
    around = between.covariance(fitted, rows)
    spreads = dict(zip(hierarchy.NAMES, np.sqrt(np.diag(around)).tolist(), strict=True))
    centres, levels = {}, {}
    sd = np.sqrt(np.diag(linalg.inv(fitted.levels.precision)))
    for (name, kind, level), column in fitted.levels.design.columns.items():
        multiplier = float(np.exp(fitted.levels.b[column]))
        if kind == "all":
            offset, centre, unit, _ = hierarchy.CENTRES[name]
            centres[name] = {"offset": offset, "centre": centre * multiplier, "unit": unit, "spread": spreads[name]}
        else:
            row = {"multiplier": multiplier, "spread": float(sd[column]), "points": points[kind, level]}
            levels[name, kind, level] = row
    for kind, nested in fitted.nested.items():
        for level, moves, sd_of in zip(nested.names, np.exp(nested.b), nested.sd, strict=True):
            for name, multiplier, one in zip(hierarchy.NAMES, moves.tolist(), sd_of.tolist(), strict=True):
                levels[name, kind, level] = {"multiplier": multiplier, "spread": one, "points": points[kind, level]}
    kinds = ("model", "accelerator", "engine", "cluster", "deployment")
    return prior.Prior(
        centres=MappingProxyType(centres),
        levels=MappingProxyType(levels),
        seen=MappingProxyType({kind: frozenset(rows.group(kind)) for kind in kinds}),
        intervals=intervals.intervals,
        source=f"fitted on {len(rows):,} public served points, the cluster left out",
        points=len(rows),
        engine_points=MappingProxyType(Counter(row["engine"] for row in given)),
        correlations=MappingProxyType(between.correlations(around)),
    )


@functools.cache
def _measured() -> tuple[Rows, dict[str, int]]:
    """Plausible rows, and the fold of each cluster."""
    rows, _ = measured.load()
    rows = rows.take(np.flatnonzero(measured.plausible(rows)))
    clusters = rows.group("cluster")
    return rows, dict(zip(clusters, splits.folds(clusters, each=False).tolist(), strict=True))


@functools.cache
def _without(fold: int) -> prior.Prior:
    rows, of = _measured()
    kept = rows.take([i for i, name in enumerate(rows.group("cluster")) if of[name] != fold])
    return prior_of(hierarchy.fit(kept), kept, prior.load())


def prior_without_cluster(cluster: str) -> prior.Prior:
    """Fit the public measurements of other clusters.

    Parameters
    ----------
    cluster : str
        Model, accelerator, engine and weight format, as `batchline.prior.Case.cluster` writes them.

    Returns
    -------
    Prior
        Deterministic; for a cluster that no row has, fitted on all of them.
    """
    return _without(_measured()[1].get(cluster, -1))
