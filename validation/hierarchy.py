"""The hierarchical fit: log-linear levels over the coefficients of batchline.step, Gauss-Newton on log residuals.

    coefficient = unit (offset + centre exp(b_global + sum of the b of its levels))

Every b has a Gaussian prior of mean 0 whose spread depends on the kind of level; residuals of log TPOT and log TTFT
count by Huber's function, rows of a cluster of n count n^-0.7, so that a cluster that was measured a thousand times
does not drown the others. Then three kinds of level, each inside the one before, are fitted on what is left: the
cluster, a version of its engine, a layout of it. Which levels the first has is chosen by leaving clusters out of the
rows that the fit is given, and of no others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import linalg

from batchline import prior, step
from batchline.step import Coefficients

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from validation.rows import Rows

    Floats = NDArray[np.float64]

# Offset, centre before the fit, unit, and spread of the centre (sd of its log): physics.md, "typical centre".
CENTRES: dict[str, tuple[float, float, float, float]] = {
    "weight_read": (1, 0.3, 1, 0.7),
    "expert_read": (1, 0.25, 1, 0.7),
    "kv_read": (1, 0.4, 1, 0.7),
    "compute": (1, 0.3, 1, 0.7),
    "tp_latency": (0, 8, 1e-6, 0.7),
    "tp_volume": (1, 0.9, 1, 0.5),
    "step_overhead": (0, 0.2, 1e-3, 0.7),
    "sequence_overhead": (0, 12, 1e-6, 0.7),
    "layer_overhead": (0, 45, 1e-6, 0.7),
    "moe_layer_overhead": (0, 24, 1e-6, 0.7),
    "prefill_linear": (1, 0.6, 1, 0.7),
    "prefill_attention": (1, 2.3, 1, 0.7),
    "prompt_overhead": (0, 3, 1e-3, 0.7),
    # In a steady state every other request's prompt is computed once while one decodes: 1, whatever prompts take. Left
    # free it rises to 1.3 at the expense of prefill_linear, predicts no better, and disagrees with the simulator, whose
    # steps carry each prompt once. Clients that keep in step with an engine move it.
    "prefill_share": (0, 1.0, 1, 0.01),
    "ttft_constant": (0, 26, 1e-3, 0.7),
    "ttft_steps": (0, 2.9, 1, 0.5),
    # An arrival at any moment waits half of the interval; clients that are let in together finish together.
    "admission_wait": (0, 0.5, 1, 0.5),
    "arrival_clumping": (0, 0.1, 1, 1.0),
    # No current engine was measured with stages. FasterTransformer's 530B on A100 (static_fastertransformer.csv, batch
    # 1): what tp 8 pp 3 takes over the line through tp 32 and tp 16 in 1/tp is 1.1 ms for two hops.
    "pipeline_hop": (0, 0.56, 1e-3, 0.7),
}
NAMES = tuple(CENTRES)

# Which levels a coefficient varies with: physics.md; "attention" parts MLA by its index.
ENGINES: dict[str, tuple[str, ...]] = {
    "weight_read": ("engine", "generation", "weights"),
    "expert_read": ("engine", "weights"),
    "kv_read": ("engine_kv", "attention"),
    "compute": ("engine", "generation", "weights"),
    "tp_latency": ("engine", "generation"),
    "tp_volume": ("generation",),
    "step_overhead": ("engine",),
    "sequence_overhead": ("engine",),
    "layer_overhead": ("engine", "generation", "weights", "attention"),
    "moe_layer_overhead": ("engine", "weights"),
    "prefill_linear": ("engine", "generation", "weights"),
    "prefill_attention": ("engine", "attention"),
    "prompt_overhead": ("engine",),
    "prefill_share": ("engine_client",),
    "ttft_constant": ("engine", "client", "engine_client"),
    "ttft_steps": ("engine", "engine_client"),
    "admission_wait": ("engine",),
    "arrival_clumping": ("client", "engine", "engine_client"),
    "pipeline_hop": (),
}
# What kernels make of a model in a format: the kernels chosen for the format on a generation, their tuning for the
# model's shapes, the device.
_KERNELS = ("accelerator", "path", "model_weights")
_OF_KERNELS = ("weight_read", "expert_read", "kv_read", "compute", "layer_overhead", "moe_layer_overhead")
_OF_KERNELS += ("prefill_linear", "prefill_attention")
KERNELS = ENGINES | {name: (*ENGINES[name], *_KERNELS) for name in _OF_KERNELS}
KERNELS["kv_read"] = (*ENGINES["kv_read"], "accelerator", "kv_path")


# What this work began with, physics.md's levels to the letter: shown beside in docs/validation.md, chosen by no fit.
FIRST = ENGINES | {
    "compute": ("generation", "weights"),
    "prefill_share": ("engine",),
    "ttft_constant": ("engine",),
    "ttft_steps": ("engine",),
    "arrival_clumping": ("client", "engine"),
}

RECIPES = {"engines": ENGINES, "kernels": KERNELS, "first": FIRST}
"""Levels of the first pass, by name."""
WEIGHTS = (0.1, 0.2)
"""What a row may count beside what is known of its levels before: the neighbours of a load share their errors."""
# How far a level moves a coefficient (sd of the log): physics.md; kernels as engines and generations do.
SPREADS: dict[str | tuple[str, str], float] = {
    ("prefill_share", "engine_client"): 0.3,
    ("prefill_share", "engine"): 0.13,
    "engine": 0.26,
    "generation": 0.22,
    "weights": 0.22,
    "engine_kv": 0.26,
    "attention": 0.5,
    "client": 0.5,
    "engine_client": 0.5,
    "accelerator": 0.22,
    "path": 0.22,
    "kv_path": 0.22,
    "model_weights": 0.3,
}
# Between clusters of the same levels (physics.md, update: tau).
CLUSTER_SPREADS = dict.fromkeys(NAMES, 0.5) | {
    "layer_overhead": 0.35,
    "ttft_constant": 0.6,
    "arrival_clumping": 0.6,
    "ttft_steps": 0.4,
    "prefill_share": 0.3,
}
# Inside a cluster, as parts of the spread between clusters: versions of the engine, layouts.
NESTED = dict(zip(prior.NESTED, (1.0, 0.3, 0.5), strict=True))
# Of log TPOT and log TTFT: model and measurement together, then measurement alone. Where a question was measured again
# (splits.measured_again) the logs differ by 0.06 and 0.24, half of them by less than 0.013 and 0.045.
SIGMA = (0.12, 0.20)
CLUSTER_SIGMA = (0.05, 0.15)
HUBER = 2.0
_FOLDS = 4
_ROW_POWER = 0.7
_HALVINGS = 24


def coefficients(z: Floats) -> Coefficients:
    """Coefficients of rows from the logs of their free parts, an array of (coefficients, rows)."""
    values = {}
    for i, (name, (offset, centre, unit, _)) in enumerate(CENTRES.items()):
        values[name] = unit * (offset + centre * np.exp(np.clip(z[i], -8, 4)))
    return Coefficients(**values)


@dataclass
class Served:
    """Predictions of rows, in a closed loop or of a batch alone, with derivatives by the coefficients' logs."""

    rows: Rows

    @cached_property
    def full(self) -> NDArray[np.bool_]:
        """Rows whose running batch does not depend on times: clients fill the engine, or a batch was given."""
        return (self.rows.concurrency > self.rows.capacity) | self.rows.alone

    @cached_property
    def held(self) -> Floats:
        """Requests in the engine."""
        r = self.rows
        return np.where(r.alone, r.concurrency, np.minimum(r.concurrency, r.capacity))

    def _at(self, batch: Floats, z: Floats) -> tuple[Floats, Floats]:
        """TPOT and TTFT of admitted requests at a running batch: the equations of batchline.serving."""
        r, c, ideal = self.rows, coefficients(z), self.rows.ideal
        one = np.asarray(step.decode_step(ideal, c, batch).total)
        prompt = np.asarray(step.prefill(ideal, c, r.isl, batch=batch).total)
        between = np.where(r.alone, 0, np.maximum(batch / ideal.dp - 1, 0)) / r.osl * prompt / ideal.pp
        tpot = one + c.prefill_share * between
        each = self.held / ideal.dp
        ahead = 4 * c.arrival_clumping * np.maximum(np.sqrt(each) - 1, 0)
        ahead += r.opening_share * np.maximum(each - 1, 0) / 2
        steps = np.maximum(c.ttft_steps, r.chunks) + c.admission_wait * r.admission_interval
        return tpot, c.ttft_constant + steps * one + prompt * (1 + ahead)

    def _batch(self, z: Floats) -> Floats:
        r, held = self.rows, self.held
        low, high = np.zeros_like(held), held.copy()
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            tpot, ttft = self._at(middle, z)
            more = held * r.osl * tpot - middle * (r.osl * tpot + ttft) > 0
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return np.where(self.full, held, high)

    def _logs(self, batch: Floats, z: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        r = self.rows
        tpot, ttft = self._at(batch, z)
        wait = np.maximum(r.concurrency / r.capacity - 1, 0) * r.osl * tpot
        return np.log(tpot), np.log(ttft + wait), tpot, ttft

    def predict(self, z: Floats) -> tuple[Floats, Floats]:
        """Log TPOT and log TTFT [log s]."""
        log_tpot, log_ttft, _, _ = self._logs(self._batch(z), z)
        return log_tpot, log_ttft

    def with_derivatives(self, z: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Log TPOT, log TTFT, and their derivatives by z; the running batch moves along (implicit function)."""
        r, e = self.rows, 1e-4
        batch, held, full = self._batch(z), self.held, self.full

        def excess(tpot: Floats, ttft: Floats, at: Floats) -> Floats:
            return held * r.osl * tpot - at * (r.osl * tpot + ttft)

        log_tpot, log_ttft, tpot, ttft = self._logs(batch, z)
        here = excess(tpot, ttft, batch)
        more = batch * (1 + e)
        a, b, tpot_more, ttft_more = self._logs(more, z)
        slope = (excess(tpot_more, ttft_more, more) - here) / e
        by_batch = (a - log_tpot) / e, (b - log_ttft) / e
        first, second = [], []
        for k in range(len(z)):
            moved = z.copy()
            moved[k] = z[k] + e
            a, b, tpot_k, ttft_k = self._logs(batch, moved)
            follow = np.where(full, 0.0, -((excess(tpot_k, ttft_k, batch) - here) / e) / slope)
            first.append((a - log_tpot) / e + by_batch[0] * follow)
            second.append((b - log_ttft) / e + by_batch[1] * follow)
        return log_tpot, log_ttft, np.array(first), np.array(second)


class Design:
    """Columns of the fit: one for the centre of each coefficient, one for each of its levels."""

    def __init__(self, levels: list[dict[str, str]], kinds: Mapping[str, tuple[str, ...]], spreads: Any) -> None:
        self.kinds = kinds
        self.columns: dict[tuple[str, str, str], int] = {}
        sd: list[float] = []
        for name in NAMES:
            for kind in kinds[name]:
                for level in sorted({row[kind] for row in levels if kind in row}):
                    self.columns[name, kind, level] = len(sd)
                    sd.append(spreads(name, kind))
        self.sd = np.array(sd)

    def groups(self, levels: list[dict[str, str]]) -> list[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]]:
        """Rows with the same columns: (rows, columns, coefficient of each column)."""
        used = sorted({kind for kinds in self.kinds.values() for kind in kinds})
        same: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for i, row in enumerate(levels):
            same[tuple(row.get(kind, "") for kind in used)].append(i)
        found = []
        for members in same.values():
            row = levels[members[0]]
            pairs = [
                (self.columns[name, kind, row.get(kind, "")], i)
                for i, name in enumerate(NAMES)
                for kind in self.kinds[name]
                if (name, kind, row.get(kind, "")) in self.columns
            ]
            columns, which = zip(*pairs, strict=True) if pairs else ((), ())
            found.append((np.array(members), np.array(columns, dtype=int), np.array(which, dtype=int)))
        return found


def spread_out(groups: list[Any], b: Floats, n: int) -> Floats:
    """Logs of the free parts of n rows, (coefficients, n)."""
    z = np.zeros((len(NAMES), n))
    for members, columns, which in groups:
        one = np.zeros(len(NAMES))
        np.add.at(one, which, b[columns])
        z[:, members] = one[:, None]
    return z


@dataclass
class Fitted:
    """Result of one pass."""

    design: Design
    b: Floats
    precision: Floats


def _huber(r: Floats) -> Floats:
    return np.where(np.abs(r) < HUBER, r * r / 2, HUBER * np.abs(r) - HUBER**2 / 2)


def _robust(r: Floats) -> Floats:
    """Weight of a residual in a step of Gauss-Newton."""
    return np.minimum(1, HUBER / np.maximum(np.abs(r), 1e-9))


def _residual(measured: Floats, log_predicted: Floats, sigma: float) -> Floats:
    """Nothing where nothing was measured."""
    return np.nan_to_num((np.log(measured) - log_predicted) / sigma)


def solve(rows: Rows, design: Design, levels: list[dict[str, str]], weight: Floats) -> Fitted:
    """Minimise the robust log residuals and the penalty of the levels."""
    served, groups, n = Served(rows), design.groups(levels), len(rows)
    penalty = 1 / design.sd**2
    b, damping = np.zeros(len(design.sd)), 1e-3

    def cost(residuals: tuple[Floats, Floats], at: Floats) -> float:
        data = sum(float((weight * _huber(r)).sum()) for r in residuals)
        return data + 0.5 * float((at**2 * penalty).sum())

    def residuals(found: tuple[Floats, ...]) -> tuple[Floats, Floats]:
        return _residual(rows.tpot, found[0], SIGMA[0]), _residual(rows.ttft, found[1], SIGMA[1])

    normal = np.diag(penalty)
    for _ in range(12):
        found = served.with_derivatives(spread_out(groups, b, n))
        r = residuals(found)
        now = cost(r, b)
        normal, gradient = np.diag(penalty), -b * penalty
        for i in range(2):
            w = weight * _robust(r[i])
            slopes = found[2 + i] / SIGMA[i]
            for members, columns, which in groups:
                part = slopes[:, members]
                square = (part * w[members]) @ part.T
                np.add.at(normal, np.ix_(columns, columns), square[np.ix_(which, which)])
                np.add.at(gradient, columns, (part @ (w[members] * r[i][members]))[which])
        while damping < 1e6:
            factor = linalg.cho_factor(normal + damping * np.diag(penalty), check_finite=False)
            step_b = np.clip(linalg.cho_solve(factor, gradient), -1, 1)
            new = cost(residuals(served.predict(spread_out(groups, b + step_b, n))), b + step_b)
            if new < now:
                break
            damping = max(damping * 10, 1e-2)
        else:
            break
        b, damping = b + step_b, damping / 10
        if now - new < 3e-4 * now:
            break
    return Fitted(design, b, normal)


@dataclass
class Nested:
    """One kind of level inside another: a move of every coefficient for each name, (names, coefficients)."""

    names: list[str]
    b: Floats
    sd: Floats

    def joined(self, other: Nested) -> Nested:
        """Names of both."""
        return Nested(self.names + other.names, np.vstack([self.b, other.b]), np.vstack([self.sd, other.sd]))

    def moves(self, levels: list[dict[str, str]], kind: str) -> Floats:
        """Of rows, (coefficients, rows); 0 for a name that the fit has not seen."""
        number = {name: i for i, name in enumerate(self.names)}
        padded = np.vstack([self.b, np.zeros(self.b.shape[1])])
        return padded[[number.get(row.get(kind, ""), -1) for row in levels]].T


def solve_nested(rows: Rows, names: list[str], sd: Floats, base: Floats, weight: float) -> Nested:
    """Fit each name on what `base` leaves of its own rows: many small problems side by side, each damped by itself."""
    served, y = Served(rows), (rows.tpot, rows.ttft)
    known = sorted(set(names))
    number = {name: i for i, name in enumerate(known)}
    at = np.array([number[name] for name in names])
    weights = weight, np.where(rows.alone, 0, weight)
    penalty = np.diag(1 / sd**2)
    b, damping = np.zeros((len(known), len(sd))), np.full(len(known), 1e-3)

    def cost(found: tuple[Floats, ...], at_b: Floats) -> Floats:
        data = sum(weights[i] * _huber(_residual(y[i], found[i], CLUSTER_SIGMA[i])) for i in range(2))
        return np.bincount(at, data, len(known)) + 0.5 * (at_b**2 / sd**2).sum(axis=1)

    normal = np.tile(penalty, (len(known), 1, 1))
    for _ in range(15):
        found = served.with_derivatives(base + b[at].T)
        now = cost(found, b)
        normal, gradient = np.tile(penalty, (len(known), 1, 1)), -b / sd**2
        for i in range(2):
            r = _residual(y[i], found[i], CLUSTER_SIGMA[i])
            w, slopes = weights[i] * _robust(r), found[2 + i].T / CLUSTER_SIGMA[i]
            np.add.at(normal, at, (slopes * w[:, None])[:, :, None] * slopes[:, None, :])
            np.add.at(gradient, at, slopes * (w * r)[:, None])
        moved = np.linalg.solve(normal + damping[:, None, None] * penalty, gradient[..., None])[..., 0]
        moved = b + np.clip(moved, -1, 1)
        new = cost(served.predict(base + moved[at].T), moved)
        better = new < now
        b = np.where(better[:, None], moved, b)
        damping = np.where(better, damping / 10, np.maximum(damping * 10, 1e-2))
        if np.all(now - np.minimum(new, now) < 3e-4 * now):
            break
    return Nested(known, b, np.sqrt(np.diagonal(np.linalg.inv(normal), axis1=1, axis2=2)))


def _spread(name: str, kind: str) -> float:
    return CENTRES[name][3] if kind == "all" else SPREADS.get((name, kind), SPREADS[kind])


def row_levels(rows: Rows) -> list[dict[str, str]]:
    """Levels of each row, and "all" for the centre."""
    return [{**point.case.levels(), "all": ""} for point in rows.points]


class Recipe(NamedTuple):
    """Which levels the first pass has, by name, and what a row counts."""

    levels: str
    weight: float


@dataclass
class Hierarchy:
    """Levels, and what is nested in them."""

    recipe: Recipe
    levels: Fitted
    nested: dict[str, Nested]

    def logs(self, rows: Rows) -> Floats:
        """Logs of the free parts of rows; a level that the fit has not seen adds nothing."""
        given = row_levels(rows)
        found = spread_out(self.levels.design.groups(given), self.levels.b, len(rows))
        return found + sum(one.moves(given, kind) for kind, one in self.nested.items())

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Predicted TPOT and TTFT [s]."""
        log_tpot, log_ttft = Served(rows).predict(self.logs(rows))
        return np.exp(log_tpot), np.exp(log_ttft)


def _first(rows: Rows, recipe: Recipe) -> Fitted:
    given = row_levels(rows)
    sizes = Counter(row["cluster"] for row in given)
    weight = np.array([recipe.weight * sizes[row["cluster"]] ** -_ROW_POWER for row in given])
    design = Design(given, {name: ("all", *RECIPES[recipe.levels][name]) for name in NAMES}, _spread)
    return solve(rows, design, given, weight)


def choose(rows: Rows) -> Recipe:
    """Choose the recipe that misses least on clusters left out of these rows, in four folds."""
    clusters = rows.group("cluster")
    known = sorted(set(clusters))
    deal = np.random.default_rng(1).permutation(len(known)) % _FOLDS
    fold = deal[[known.index(name) for name in clusters]]
    miss = {Recipe(levels, weight): 0.0 for levels in ("engines", "kernels") for weight in WEIGHTS}
    for recipe in miss:
        for one in range(_FOLDS):
            inside = rows.take(np.flatnonzero(fold == one))
            found = Hierarchy(recipe, _first(rows.take(np.flatnonzero(fold != one)), recipe), {}).predict(inside)
            for sigma, predicted, seen in zip(SIGMA, found, (inside.tpot, inside.ttft), strict=True):
                miss[recipe] += float(np.abs(np.log(predicted / seen)).sum()) / sigma
    return min(miss, key=miss.__getitem__)


def fit(rows: Rows, recipe: Recipe | None = None) -> Hierarchy:
    """Fit rows: the recipe that they choose themselves unless one is given, then what is nested."""
    recipe = recipe or choose(rows)
    given = row_levels(rows)
    first = _first(rows, recipe)
    base = spread_out(first.design.groups(given), first.b, len(rows))
    return Hierarchy(recipe, first, solve_all_nested(rows, NESTED, base, recipe.weight))


def solve_all_nested(rows: Rows, parts: Mapping[str, float], base: Floats, weight: float) -> dict[str, Nested]:
    """Fit kinds of level one inside the other, each with its part of the spread between clusters."""
    given, nested = row_levels(rows), {}
    between = np.array([CLUSTER_SPREADS[name] for name in NAMES])
    for kind, part in parts.items():
        nested[kind] = solve_nested(rows, [row.get(kind, "") for row in given], between * part, base, weight)
        base = base + nested[kind].moves(given, kind)
    return nested
