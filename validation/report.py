"""docs/validation.md: every figure of it comes from here.

python -m validation.report      batches and sets apart anew, by the priors as they are (seconds)
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import published, step, validate
from validation import batches, hierarchy, sets, splits
from validation import rows as measured
from validation.rows import SHARED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.hierarchy import Hierarchy
    from validation.rows import Rows
    from validation.splits import Held

    Floats = NDArray[np.float64]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "validation.md"
DATA = Path(published.__file__).parent / "data" / "validation.json"


def _errors(predicted: Floats, measured: Floats, mask: NDArray[np.bool_]) -> dict[str, float]:
    found = validate.errors_of((predicted / measured - 1)[mask])
    return {name: round(found[name], 4) for name in ("mape", "median", "p90")}


def _splits(rows: Rows, usable: NDArray[np.bool_], fitted: Hierarchy, held: dict[str, Held]) -> list[dict[str, Any]]:
    everything = np.ones(len(rows), dtype=bool)
    tpot, ttft = fitted.predict(rows)
    named = {"nothing": (tpot, ttft)} | {name: (found.tpot, found.ttft) for name, found in held.items()}
    return [
        {
            "left_out": name,
            "tpot": _errors(first, rows.tpot, usable),
            "ttft": _errors(second, rows.ttft, usable),
            "tpot_all": _errors(first, rows.tpot, everything),
            "ttft_all": _errors(second, rows.ttft, everything),
        }
        for name, (first, second) in named.items()
    ]


def _beside(rows: Rows, held: dict[str, Held]) -> dict[str, Any]:
    path = SHARED / "aiconfigurator_predictions.csv"
    with path.open(encoding="utf-8", newline="") as file:
        theirs = {row["id"]: row for row in csv.DictReader(file)}
    other = {of: np.full(len(rows), np.nan) for of in ("tpot_ms", "ttft_ms", "tpot_roofline_ms")}
    for i, point in enumerate(rows.points):
        for name, values in other.items():
            values[i] = float(theirs.get(point.key, {}).get(name) or "nan") / 1e3
    running = rows.concurrency * rows.osl * rows.tpot / (rows.osl * rows.tpot + rows.ttft)
    article = np.asarray(step.bound(rows.ideal, np.minimum(running, rows.capacity)))
    finite = np.isfinite(other["tpot_ms"]) & np.isfinite(other["ttft_ms"])

    def line(who: str, tpot: Floats, ttft: Floats | None = None) -> dict[str, Any]:
        second = None if ttft is None else _errors(ttft, rows.ttft, finite)
        return {"who": who, "tpot": _errors(tpot, rows.tpot, finite), "ttft": second}

    return {
        "name": "aiconfigurator 0.12",
        "rows": int(finite.sum()),
        "lines": [
            line("aiconfigurator, measured operator tables", other["tpot_ms"], other["ttft_ms"]),
            line("its roofline mode", other["tpot_roofline_ms"]),
            line("the article's bound, at the measured running batch", article),
            *(
                line(f"Batchline, {name} left out", held[name].tpot, held[name].ttft)
                for name in ("deployment", "cluster", "model", "accelerator", "engine")
            ),
        ],
    }


def _coverage(rows: Rows, held: dict[str, Held]) -> list[dict[str, Any]]:
    """Factors from one half of the clusters, coverage on the other, both ways."""
    names = sorted(set(rows.group("cluster")))
    half = np.array([names.index(name) % 2 for name in rows.group("cluster")])
    lines = []
    for split, found in held.items():
        line: dict[str, Any] = {"new": "lengths" if split == "series" else split}
        for of in ("tpot", "ttft"):
            miss = np.abs(np.log(getattr(found, of) / getattr(rows, of)))
            kept = []
            for c in (0.8, 0.9):
                inside = [miss[half == side] <= np.quantile(miss[half != side], c) for side in (0, 1)]
                kept.append(round(float(np.concatenate(inside).mean()), 4))
            line[of] = {"factor": [round(float(np.exp(np.quantile(miss, c))), 3) for c in (0.8, 0.9)], "held": kept}
        lines.append(line)
    return lines


def _group(rows: Rows, usable: NDArray[np.bool_], held: Held, kind: str, least: int) -> list[dict[str, Any]]:
    """Errors of each group, the worst first."""
    groups: dict[str, list[int]] = defaultdict(list)
    for i, name in enumerate(rows.group(kind)):
        groups[name].append(i)
    found = []
    for name, members in groups.items():
        chosen = np.array(members)
        if len(members) < least:
            continue
        tpot = held.tpot[chosen] / rows.tpot[chosen]
        ttft = held.ttft[chosen] / rows.ttft[chosen]
        found.append(
            {
                "name": name.replace(" | ", ", "),
                "rows": len(members),
                "plausible": round(float(usable[chosen].mean()), 4),
                "tpot": round(float(np.abs(tpot - 1).mean()), 4),
                "ratio": round(float(np.median(tpot)), 4),
                "ttft": round(float(np.abs(ttft - 1).mean()), 4),
            }
        )
    return sorted(found, key=lambda group: -group["tpot"])


def _again(rows: Rows, usable: NDArray[np.bool_]) -> dict[str, Any]:
    """How far measurements of the same question lie apart: no prediction that knows no better can be nearer."""
    kept = rows.take(np.flatnonzero(usable))
    found = splits.measured_again(kept)
    repeated = np.isfinite(found.tpot)
    return {
        "rows": int(repeated.sum()),
        "tpot": _errors(found.tpot, kept.tpot, repeated),
        "ttft": _errors(found.ttft, kept.ttft, repeated),
    }


def _other_layouts(rows: Rows, usable: NDArray[np.bool_], held: Held) -> dict[str, Any]:
    """Errors of layouts that a fit had not seen, of clusters that it had seen in another layout."""
    clusters, deployments = rows.group("cluster"), rows.group("deployment")
    layouts = defaultdict(set)
    for cluster, deployment in compress(zip(clusters, deployments, strict=True), usable):
        layouts[cluster].add(deployment)
    known = usable & np.array([len(layouts[cluster]) > 1 for cluster in clusters])
    return {
        "rows": int(known.sum()),
        "tpot": _errors(held.tpot, rows.tpot, known),
        "ttft": _errors(held.ttft, rows.ttft, known),
    }


def _first(
    rows: Rows, usable: NDArray[np.bool_], held: dict[str, Held], first: dict[str, Held]
) -> list[dict[str, Any]]:
    """The levels that this work began with, and ours, on the same rows."""
    return [
        {
            "left_out": split,
            "who": who,
            "tpot": _errors(one.tpot, rows.tpot, usable),
            "ttft": _errors(one.ttft, rows.ttft, usable),
        }
        for split, found in first.items()
        for who, one in (("first", found), ("ours", held[split]))
    ]


def write(
    rows: Rows,
    usable: NDArray[np.bool_],
    refused: dict[str, int],
    fitted: Hierarchy,
    held: dict[str, Held],
    first: dict[str, Held],
    alone: Rows,
    date: str,
) -> None:
    """Write what the package ships of it, and the page."""
    data = {
        "date": date,
        "rows": len(rows),
        "clusters": len(set(rows.group("cluster"))),
        "plausible": int(usable.sum()),
        "splits": _splits(rows, usable, fitted, held),
        "other_layouts": _other_layouts(rows, usable, held["deployment"]),
        "again": _again(rows, usable),
        "first": _first(rows, usable, held, first),
        "beside": _beside(rows, held),
        "coverage": _coverage(rows, held),
        "groups": {kind: _group(rows, usable, held["cluster"], kind, 1) for kind in ("engine", "accelerator", "model")}
        | {"cluster": _group(rows, usable, held["cluster"], "cluster", 5)[:20]},
        "batches": batches.table(fitted, alone),
        "sets": sets.all_sets(),
        "refused": validate.kinds_of_reasons(refused),
    }
    _save(data)


def _save(data: dict[str, Any]) -> None:
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(published.page(data), encoding="utf-8")
    print(f"{DATA.name} and {PAGE.name} written")


if __name__ == "__main__":  # what served points say of a fit that had not seen them stays
    everything, _ = measured.load()
    fitted_now = hierarchy.fit(everything.take(np.flatnonzero(measured.plausible(everything))))
    _save(published.load() | {"batches": batches.table(fitted_now, batches.load()), "sets": sets.all_sets()})
