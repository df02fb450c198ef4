"""Fit the priors that the package ships to the public measurements, and measure how far they miss.

    python -m validation.fit                 levels, and what is nested in them (seconds); intervals stay as they are
    python -m validation.fit --held-out      also every split, the intervals from it, and docs/validation.md (minutes)

Deterministic: the same measurements give the same files.
"""

from __future__ import annotations

import argparse
import csv
import io
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from validation import batches, between, hierarchy, report, splits
from validation import rows as measured

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.hierarchy import Hierarchy
    from validation.rows import Rows

DATA = Path(__file__).resolve().parents[1] / "src" / "batchline" / "data"
PRIORS, LEVELS, CORRELATIONS = DATA / "priors.toml", DATA / "prior_levels.csv", DATA / "prior_correlations.csv"
CONFIDENCES = (0.5, 0.8, 0.9)
_LEAST = 0.01  # a nested level that moves a coefficient by less than this (in its log) is not written
DATE = "2026-11-30"

HEAD = """\
# What engines make of the ideal times: coefficients, their levels, and how far predictions miss.
# Written by validation/fit.py; do not edit by hand.
#
# coefficient = unit * (offset + centre x product of the multipliers of its levels, in prior_levels.csv)
# centre: free part above the offset; spread: standard deviation of its log between a deployment and its levels, which
# prior_correlations.csv goes with.
"""


def table(fitted: Hierarchy, given: list[dict[str, str]]) -> str:
    """A line for each level: kind, name, points, and for each coefficient "multiplier~spread of its log"."""
    points = Counter((kind, level) for row in given for kind, level in row.items())
    cells: dict[tuple[str, str], dict[str, str]] = {}
    sd = np.sqrt(np.diag(linalg.inv(fitted.levels.precision)))
    for (name, kind, level), column in fitted.levels.design.columns.items():
        if kind != "all":
            b = float(fitted.levels.b[column])
            cells.setdefault((kind, level), {})[name] = f"{np.exp(b):.4g}~{sd[column]:.2g}"
    for kind, nested in fitted.nested.items():
        caches = sorted({(row[kind], row.get(f"{kind}_kv", "")) for row in given if row.get(kind)})
        for level, b_of, sd_of in zip(nested.names, nested.b, nested.sd, strict=True):
            kept = {
                name: f"{np.exp(b):.3g}~{one:.2g}"
                for name, b, one in zip(hierarchy.NAMES, b_of, sd_of, strict=True)
                if abs(b) >= _LEAST
            }
            read = kept.pop("kv_read", None)
            if level and kept:
                cells[kind, level] = kept
            if read:  # under the name of each cache that the server was measured with
                cells |= {(f"{kind}_kv", own): {"kv_read": read} for of, own in caches if of == level and own}
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["kind", "name", "points", *hierarchy.NAMES])
    for (kind, level), by in cells.items():
        lines.writerow([kind, level, points[kind, level], *(by.get(name, "") for name in hierarchy.NAMES)])
    return out.getvalue()


def write(fitted: Hierarchy, rows: Rows, alone: Rows, intervals: dict[str, dict[str, list[float]]]) -> None:
    """Write data/priors.toml and data/prior_*.csv: what was fitted on served points, and on batches alone."""
    around = between.covariance(fitted, rows)
    given, of_batches = hierarchy.row_levels(rows), hierarchy.row_levels(alone)
    first = fitted.levels
    engines = Counter(row["engine"] for row in given + of_batches)
    lines = [
        HEAD,
        "[fit]",
        f'recipe = "{fitted.recipe.levels}, rows count {fitted.recipe.weight:g}"',
        f'provenance = "fitted on {len(rows):,} public served points (docs/validation.md)"',
        f"points = {len(rows)}",
        f"clusters = {len({row['cluster'] for row in given})}",
        'sources = ["NVIDIA aiconfigurator silicon sample (Apache-2.0)", "InferenceMAX (Apache-2.0)", '
        '"InferenceX context sweep on H200 (Apache-2.0)", "llama-batched-bench on GB10 and M2 Ultra (MIT)"]',
        f'date = "{DATE}"',
        "",
        "[points]",
        *(f'"{name}" = {count}' for name, count in sorted(engines.items())),
        "",
        "[coefficients]",
    ]
    spreads = np.sqrt(np.diag(around)).tolist()
    for (name, (offset, centre, unit, _)), spread in zip(hierarchy.CENTRES.items(), spreads, strict=True):
        free = centre * np.exp(float(first.b[first.design.columns[name, "all", ""]]))
        lines.append(
            f"{name} = {{ offset = {float(offset)}, centre = {free:.4g}, unit = {float(unit)}, "
            f"spread = {spread:.2f}, points = {len(rows)} }}"
        )
    lines += ["", "[seen]"]
    for kind in ("model", "accelerator", "engine", "cluster", "deployment"):
        # A batch says nothing of its model under another engine, nor of its engine on another device.
        own = alone.group(kind) if kind in {"cluster", "deployment"} else []
        names = sorted({*rows.group(kind), *own})
        lines += [f"{kind} = [", *(f'    "{name}",' for name in names), "]"]
    lines += [
        "",
        "# Factors around a prediction that held 50, 80 and 90% of held-out points, by what the fit had not seen.",
    ]
    for of, by in intervals.items():
        lines += [
            f"[intervals.{of}]",
            *(f"{kind} = {[round(f, 3) for f in factors]}" for kind, factors in by.items()),
            "",
        ]
    PRIORS.write_text("\n".join(lines), encoding="utf-8")
    of_batches = [{kind: row[kind] for kind in batches.NESTED} for row in of_batches]
    LEVELS.write_text(table(fitted, given + of_batches), encoding="utf-8")
    CORRELATIONS.write_text(_triangle(between.correlations(around)), encoding="utf-8")


def _triangle(correlations: dict[tuple[str, str], float]) -> str:
    """Correlations of each coefficient with those before it."""
    lines = [",".join(["coefficient", *hierarchy.NAMES])]
    for i, row in enumerate(hierarchy.NAMES):
        lines.append(",".join([row, *(f"{correlations[row, name]:.2f}" for name in hierarchy.NAMES[:i])]))
    return "\n".join(lines) + "\n"


def factors(miss: NDArray[np.float64]) -> list[float]:
    """Factors that hold 50, 80 and 90% of absolute log errors."""
    return [float(np.exp(np.quantile(miss, confidence))) for confidence in CONFIDENCES]


def conformal(rows: Rows, held: dict[str, splits.Held]) -> dict[str, dict[str, list[float]]]:
    """Interval factors by novelty: quantiles of held-out errors, never narrower for the newer."""
    found: dict[str, dict[str, list[float]]] = {"tpot": {}, "ttft": {}}
    for of, by in found.items():
        last = [1.0, 1.0, 1.0]
        for split in splits.SPLITS:
            miss = np.abs(np.log(getattr(held[split], of) / getattr(rows, of)))
            last = [max(a, b) for a, b in zip(last, factors(miss), strict=True)]
            by["lengths" if split == "series" else split] = last
    return found


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="every split, the intervals, docs/validation.md")
    held_out = parser.parse_args().held_out
    measured.shared_or_exit()
    rows, refused = measured.load()
    usable = measured.plausible(rows)
    kept = rows.take(np.flatnonzero(usable))
    fitted = hierarchy.fit(kept)
    alone = batches.load()
    whole = batches.extend(fitted, alone)
    if held_out:
        held = {split: splits.held_out(rows, usable, split) for split in splits.SPLITS}
        intervals = conformal(rows, held)
    else:
        intervals = tomllib.loads(PRIORS.read_text(encoding="utf-8"))["intervals"]
    write(whole, kept, alone, intervals)
    print(f"{PRIORS.name}: {len(kept):,} points of {len(rows):,} and {len(alone):,} batches, {fitted.recipe}")
    if held_out:
        physics = hierarchy.Recipe("first", 0.1)
        first = {split: splits.held_out(rows, usable, split, physics) for split in splits.NEW_GROUPS}
        report.write(rows, usable, refused, fitted, held, first, alone, DATE)


if __name__ == "__main__":
    main()
