"""docs/validation.md: every figure of it comes from here."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchline import step
from validation.rows import SHARED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.hierarchy import Hierarchy
    from validation.rows import Rows
    from validation.splits import Held

PAGE = Path(__file__).resolve().parents[1] / "docs" / "validation.md"

HEAD = """\
# Validation

Predicted against measured, on public measurements of served models: TPOT (median time per output token after the
first) and TTFT (time to the first token) at a client's concurrency. Written by `python -m validation.fit --held-out`;
nothing here is typed by hand.

`batchline validate FILE.csv` does the same for a table of yours. Its columns: `model, hw, engine, isl, osl,
batch_or_concurrency` (needed), `n_gpus, pp, ep, dp_attention, precision_w, precision_kv, engine_version, date,
decode_step_ms, ttft_ms, disagg, spec, regime, series_id, qc` (used when there). `decode_step_ms` is TPOT.

A row of a held-out group never touches the fit that predicts it. The spreads of the levels are those that were
published before this fit; the list of levels and the rule of plausibility were settled in some forty trials on the same
splits, so the tables are slightly optimistic.
"""


def _percent(value: float) -> str:
    return f"{100 * value:.1f}" if value < 0.1 else f"{100 * value:.0f}"


def _cells(predicted: NDArray[np.float64], measured: NDArray[np.float64], mask: NDArray[np.bool_]) -> str:
    miss = np.abs(predicted / measured - 1)[mask]
    return f"{100 * miss.mean():.1f} / {100 * np.median(miss):.1f} / {100 * np.quantile(miss, 0.9):.0f}"


def _split_table(rows: Rows, usable: NDArray[np.bool_], fitted: Hierarchy, held: dict[str, Held]) -> list[str]:
    everything = np.ones(len(rows), dtype=bool)
    tpot, ttft = fitted.predict(rows)
    lines = [
        "| left out | TPOT | TTFT | TPOT, all rows | TTFT, all rows |",
        "|---|---|---|---|---|",
    ]
    named = {"nothing (in sample)": (tpot, ttft)} | {name: (found.tpot, found.ttft) for name, found in held.items()}
    for name, (first, second) in named.items():
        cells = [
            _cells(p, m, mask) for mask in (usable, everything) for p, m in ((first, rows.tpot), (second, rows.ttft))
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _rival_table(rows: Rows, held: dict[str, Held]) -> list[str]:
    path = SHARED / "aiconfigurator_predictions.csv"
    with path.open(encoding="utf-8", newline="") as file:
        theirs = {row["id"]: row for row in csv.DictReader(file)}
    index = [i for i, point in enumerate(rows.points) if point.key in theirs]
    mask = np.zeros(len(rows), dtype=bool)
    mask[index] = True
    other = {of: np.full(len(rows), np.nan) for of in ("tpot_ms", "ttft_ms", "tpot_roofline_ms")}
    for i in index:
        for name, values in other.items():
            values[i] = float(theirs[rows.points[i].key][name] or "nan") / 1e3
    running = rows.concurrency * rows.osl * rows.tpot / (rows.osl * rows.tpot + rows.ttft)
    article = np.asarray(step.bound(rows.ideal, np.minimum(running, rows.capacity)))
    lines = [
        f"On the {len(index):,} rows that aiconfigurator 0.12 predicts too (mean / median / 90th percentile, %):",
        "",
    ]
    lines += ["| | TPOT | TTFT |", "|---|---|---|"]
    finite = mask & np.isfinite(other["tpot_ms"]) & np.isfinite(other["ttft_ms"])
    lines.append(
        f"| aiconfigurator, measured operator tables | {_cells(other['tpot_ms'], rows.tpot, finite)} "
        f"| {_cells(other['ttft_ms'], rows.ttft, finite)} |"
    )
    lines.append(f"| its roofline mode | {_cells(other['tpot_roofline_ms'], rows.tpot, finite)} | |")
    lines.append(f"| the article's bound, at the measured running batch | {_cells(article, rows.tpot, finite)} | |")
    for name in ("deployment", "cluster", "model", "accelerator", "engine"):
        found = held[name]
        lines.append(
            f"| Batchline, {name} left out | {_cells(found.tpot, rows.tpot, finite)} "
            f"| {_cells(found.ttft, rows.ttft, finite)} |"
        )
    return lines


def _coverage_table(rows: Rows, held: dict[str, Held]) -> list[str]:
    """Factors from one half of the clusters, coverage on the other, both ways."""
    names = sorted(set(rows.group("cluster")))
    half = np.array([names.index(name) % 2 for name in rows.group("cluster")])
    lines = [
        "| new | TPOT: factor 80 / 90% | holds 80 / 90% | TTFT: factor 80 / 90% | holds 80 / 90% |",
        "|---|---|---|---|---|",
    ]
    for split, found in held.items():
        cells = []
        for of in ("tpot", "ttft"):
            miss = np.abs(np.log(getattr(found, of) / getattr(rows, of)))
            width = [float(np.exp(np.quantile(miss, c))) for c in (0.8, 0.9)]
            kept = []
            for c in (0.8, 0.9):
                inside = [miss[half == side] <= np.quantile(miss[half != side], c) for side in (0, 1)]
                kept.append(float(np.concatenate(inside).mean()))
            cells += [f"{width[0]:.2f} / {width[1]:.2f}", f"{_percent(kept[0])} / {_percent(kept[1])}"]
        lines.append(f"| {'lengths' if split == 'series' else split} | {' | '.join(cells)} |")
    return lines


def _worst_table(rows: Rows, usable: NDArray[np.bool_], held: Held, kind: str, least: int) -> list[str]:
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
            (
                float(np.abs(tpot - 1).mean()),
                name,
                len(members),
                float(np.median(tpot)),
                float(np.abs(ttft - 1).mean()),
                usable[chosen].mean(),
            )
        )
    lines = [
        f"| {kind} | rows | plausible | TPOT error | predicted / measured, median | TTFT error |",
        "|---|---|---|---|---|---|",
    ]
    for error, name, count, ratio, ttft_error, share in sorted(found, reverse=True):
        cells = f"{count} | {100 * share:.0f}% | {100 * error:.1f}% | {ratio:.2f} | {100 * ttft_error:.0f}%"
        lines.append(f"| {name.replace(' | ', ', ')} | {cells} |")
    return lines


def write(
    rows: Rows, usable: NDArray[np.bool_], refused: dict[str, int], fitted: Hierarchy, held: dict[str, Held]
) -> None:
    """Write the page."""
    worst = _worst_table(rows, usable, held["cluster"], "cluster", 5)
    out = [
        HEAD,
        "## Errors by what the fit had not seen",
        "",
        f"{len(rows):,} distinct points of {len(set(rows.group('cluster')))} clusters (a model on an accelerator under "
        "an engine in a format); mean / median / 90th percentile of |predicted / measured - 1|, %. "
        f"{int(usable.sum()):,} are plausible: not faster than the bound, not over 60% of the peak sustained, ... "
        "(`validation/rows.py`). The others are never fitted; the last two columns count them too.",
        "",
        *_split_table(rows, usable, fitted, held),
        "",
        "## Beside others, on the same rows",
        "",
        *_rival_table(rows, held),
        "",
        "## Do the intervals hold?",
        "",
        "Factors come from held-out errors of one half of the clusters and are tested on the other half, both ways; "
        "all rows count, implausible ones too. The package ships the factors of both halves together.",
        "",
        *_coverage_table(rows, held),
        "",
        "## By group, each predicted by a fit that had not seen its cluster",
        "",
    ]
    for kind in ("engine", "accelerator", "model"):
        out += [*_worst_table(rows, usable, held["cluster"], kind, 1), ""]
    out += ["Clusters, the worst first (five rows or more):", "", *worst[:22], "", "## Rows that are not predicted", ""]
    out += ["| rows | reason |", "|---|---|"]
    out += [f"| {count} | {reason} |" for reason, count in sorted(refused.items(), key=lambda item: -item[1])]
    out += [
        "",
        "## What it does not know",
        "",
        "No row is from a TPU, Gaudi, Trainium, CPU or a consumer card under a current engine, and none from Ampere: "
        "there the centre stands, with the interval of a new accelerator. Speculative decoding is not in the fit. TTFT "
        "depends on how clients send: lengths of one size keep clients of a closed loop in step, random ones do not.",
        "",
    ]
    PAGE.write_text("\n".join(out), encoding="utf-8")
    print(f"{PAGE.name} written")
