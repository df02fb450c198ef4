"""Deployments for a fleet: of each accelerator and size the one that carries most of a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from batchline.fleet import Pool
from batchline.planner.search import ROUNDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline.planner.search import Search

__all__ = ["replicas"]


def replicas(search: Search, workload: str) -> list[Pool]:
    """Rows that a fleet could want, their memory counted exactly."""
    rows = np.arange(len(search.budget))
    if len(rows) == 0:
        return []
    search.carry(rows)
    chosen: list[int] = []
    for _ in range(ROUNDS):
        chosen = _unbeaten(search, rows[search.keeps])
        fresh = np.array([row for row in chosen if not search.exact[row]], dtype=np.intp)
        if len(fresh) == 0:
            break
        search.capacity[fresh] = [
            search.engine_capacity(int(row), float(search.slots[row]), float(search.capacity[row])) for row in fresh
        ]
        search.exact[fresh] = True
        search.carry(fresh)
    return [_pool(search, row, workload) for row in chosen]


def _unbeaten(search: Search, rows: NDArray[np.intp]) -> list[int]:
    """Of each accelerator and size the row that carries most, unless copies of smaller ones carry as much."""
    best: dict[tuple[int, int], int] = {}
    for row in rows[np.lexsort((search.budget[rows], -search.allowed[rows]))]:
        best.setdefault((int(search.rows.accelerator[row]), int(search.rows.count[row])), int(row))
    kept: dict[tuple[int, int], int] = {}
    for (device, size), row in sorted(best.items()):
        smaller = [(n, other) for (d, n), other in kept.items() if d == device]
        if all(search.allowed[other] * (size // n) < search.allowed[row] for n, other in smaller):
            kept[device, size] = row
    return list(kept.values())


def _pool(search: Search, row: int, workload: str) -> Pool:
    space = search.rows
    device, layout = space.accelerators[space.accelerator[row]], space.layouts[space.layout[row]]
    weights = space.weights[space.weight[row]] or search.architecture.weight_format
    degrees = " ".join(f"{name}{getattr(layout, name)}" for name in ("tp", "pp", "dp") if getattr(layout, name) > 1)
    name = f"{search.architecture.name} on {layout.count} x {device.name}"
    extra = f"{degrees or 'tp1'} {weights} kv {space.kvs[space.kv[row]]} {space.engines[space.engine[row]]}"
    return Pool(
        name=f"{name}, {extra}",
        accelerator=device.name,
        devices=layout.count,
        usd_per_hour=float(space.usd_per_hour[row]),
        capacity={workload: float(search.allowed[row])},
    )
