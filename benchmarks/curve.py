"""Points per second of the step time on a grid of 2,000 deployments x 512 batches, one core.

    python benchmarks/curve.py

Prints a table: each reading, and the machine's own limit (one multiply-add over an array of the same size, in the same
run) as the yardstick; the whole of `readings.steps` (interval, terms, cost, utilisation) for one deployment; then
twice the grid, to see that the cost grows with the points. Time is that of the processor, so a busy machine does not
count; memory is what an evaluation holds at its peak.
"""

from __future__ import annotations

import dataclasses
import os
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from batchline import prior, readings, step
from batchline.deployment import Deployment

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "deepseek-v3", "gpt-oss-120b")
DEVICES = ("h100", "h200", "b200", "mi300x")


def stacked(count: int) -> tuple[step.Ideal, step.Coefficients]:
    """`count` deployments as columns: models x devices x contexts."""
    contexts = np.geomspace(128, 131072, -(-count // (len(MODELS) * len(DEVICES))))
    ideals, coefficients = [], []
    for model in MODELS:
        for device in DEVICES:
            deployment = Deployment.of(model, device, count=8)
            one = readings.ideal_of(deployment, contexts)
            engine = prior.load().coefficients(readings.case_of(deployment))
            ideals.append(dataclasses.asdict(one))
            coefficients.append(dataclasses.asdict(engine))

    def column(rows: list[dict[str, Any]], name: str) -> Any:
        wide = [np.broadcast_to(np.asarray(row[name], dtype=float), contexts.shape) for row in rows]
        return np.concatenate(wide)[:count, None]

    return (
        step.Ideal(**{name: column(ideals, name) for name in ideals[0]}),
        step.Coefficients(**{name: column(coefficients, name) for name in coefficients[0]}),
    )


def rate(run: Callable[[], Any], points: int) -> float:
    """Points per second of processor time, best of nine runs."""
    times = []
    for _ in range(9):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return points / min(times)


def held(run: Callable[[], Any], points: int) -> float:
    """Bytes per point that a run holds at its peak, its result included."""
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / points


def main() -> None:
    """Print the table."""
    found: dict[str, list[float]] = {}
    for deployments, batches in ((2000, 512), (4000, 512)):
        ideal, engine = stacked(deployments)
        batch = np.arange(1, batches + 1, dtype=float)[None, :]
        points = deployments * batches
        grid = np.random.default_rng(0).random((deployments, batches))
        one, many = Deployment.of("deepseek-v3", "h200", count=8), np.linspace(1, 4096, points)
        rows: dict[str, Callable[[], Any]] = {
            "one multiply-add (the machine)": lambda: grid * 2.0 + 1.0,  # noqa: B023
            "bound": lambda: step.bound(ideal, batch),  # noqa: B023
            "serial": lambda: step.serial(ideal, batch),  # noqa: B023
            "predict, all terms": lambda: step.decode_step(ideal, engine, batch).total,  # noqa: B023
            "readings.steps, all it gives": lambda: readings.steps(one, 4096, many, "predict"),  # noqa: B023
        }
        print(f"\n{deployments:,} deployments x {batches} batches = {points:,} points")
        print(f"{'':32}{'points/s':>12}{'bytes/point':>14}")
        for name, run in rows.items():
            speed = rate(run, points)
            found.setdefault(name, []).append(points / speed)
            print(f"{name:32}{speed:12.3g}{held(run, points):14.0f}")
    print("\ntwice the grid costs")
    for name, (once, twice) in found.items():
        print(f"{name:32}{twice / once:12.2f} times")


if __name__ == "__main__":
    main()
