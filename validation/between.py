"""How the coefficients of deployments scatter around what their levels say: one covariance for all of them.

    logs of the free parts of a deployment = what its levels say + N(0, C)

Before any deployment is looked at C is tau^2 + X S X' (physics.md, update): tau as engines differ, S the covariance of
the fitted levels, X the levels of a deployment. The deployments then move it by expectation and maximisation, with one
step of Gauss-Newton for each turn; the start counts as much as ten of them (an inverse Wishart prior), and each cluster
counts once. A deployment is one version of an engine and one way of sending.

References
----------
[1] Gelman et al., Bayesian Data Analysis, chapters 13 and 15: EM for the variance of a hierarchy.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from validation import hierarchy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.hierarchy import Fitted, Hierarchy
    from validation.rows import Rows

    Floats = NDArray[np.float64]

__all__ = ["correlations", "covariance"]

_STRENGTH = 10.0  # deployments that the start counts as
_SIGMA = (0.10, 0.40)  # of TPOT and TTFT: twice what an update takes, as rows of one deployment err together
_TURNS = 12
_LONGEST = 0.5  # step of a log


def covariance(fitted: Hierarchy, rows: Rows) -> Floats:
    """Covariance of the logs of the free parts around their levels, (coefficients, coefficients).

    Parameters
    ----------
    fitted : Hierarchy
        Its levels alone are used, not what is nested in them.
    rows : Rows
        What it was fitted on.

    Returns
    -------
    array
        In the order of `hierarchy.NAMES` [-].
    """
    levels = hierarchy.row_levels(rows)
    base = hierarchy.spread_out(fitted.levels.design.groups(levels), fitted.levels.b, len(rows))
    names, at = np.unique(rows.group("server"), return_inverse=True)
    cluster = dict(zip(at.tolist(), rows.group("cluster"), strict=True))
    servers = Counter(cluster.values())
    weight = np.array([1 / servers[cluster[i]] for i in range(len(names))])
    tau = np.array([hierarchy.CLUSTER_SPREADS[name] for name in hierarchy.NAMES])
    start = np.diag(tau**2) + _of_levels(fitted.levels, levels)
    found, b = start, np.zeros((len(names), len(tau)))
    for _ in range(_TURNS):
        b, around = _expect(rows, at, base, b, found)
        second = np.einsum("u,ui,uj->ij", weight, b, b) + np.einsum("u,uij->ij", weight, around)
        found = (_STRENGTH * start + second) / (_STRENGTH + weight.sum())
    return found


def correlations(covariance: Floats) -> dict[tuple[str, str], float]:
    """Correlations by the names of two coefficients, each pair once [-]."""
    spread = np.sqrt(np.diag(covariance))
    rows, columns = np.tril_indices(len(spread), -1)
    found = (covariance / np.outer(spread, spread))[rows, columns]
    names = hierarchy.NAMES
    return {(names[i], names[j]): float(one) for i, j, one in zip(rows, columns, found, strict=True)}


def _of_levels(fitted: Fitted, levels: list[dict[str, str]]) -> Floats:
    """X S X', mean over the sets of levels that rows have."""
    s, groups = linalg.inv(fitted.precision), fitted.design.groups(levels)
    found = np.zeros((len(hierarchy.NAMES),) * 2)
    for _, columns, which in groups:
        np.add.at(found, np.ix_(which, which), s[np.ix_(columns, columns)] / len(groups))
    return found


def _expect(rows: Rows, at: NDArray[np.intp], base: Floats, b: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Move each deployment towards its maximum of the posterior; its covariance there."""
    log_tpot, log_ttft, *slopes = hierarchy.Served(rows).with_derivatives(base + b[at].T)
    off = np.log(rows.tpot) - log_tpot, np.log(rows.ttft) - log_ttft
    precision = np.asarray(linalg.inv(prior))
    normal, gradient = np.tile(precision, (len(b), 1, 1)), -b @ precision
    for r, slope, sigma in zip(off, slopes, _SIGMA, strict=True):
        weight = np.minimum(1, hierarchy.HUBER * sigma / np.maximum(np.abs(r), 1e-9)) / sigma**2
        np.add.at(normal, at, (slope * weight).T[:, :, None] * slope.T[:, None, :])
        np.add.at(gradient, at, (slope * weight * r).T)
    step = np.linalg.solve(normal, gradient[..., None])[..., 0]
    return b + np.clip(step, -_LONGEST, _LONGEST), np.asarray(np.linalg.inv(normal))
