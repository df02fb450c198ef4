"""Points per second of the curve's step time on a grid of 2,000 deployments x 512 batches, one core.

    python benchmarks/curve.py

Prints a table: each reading, and the machine's own limit (one multiply-add over an array of the same size, in the same
run) as the yardstick; then twice the grid, to see that the cost grows with the points.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import time
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


def rate(run: Callable[[], Any], points: int) -> tuple[float, float]:
    """Best and median points per second of seven runs."""
    times = []
    for _ in range(7):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return points / min(times), points / sorted(times)[3]


def main() -> None:
    for deployments, batches in ((2000, 512), (4000, 512)):
        ideal, engine = stacked(deployments)
        batch = np.arange(1, batches + 1, dtype=float)[None, :]
        points = deployments * batches
        grid = np.random.default_rng(0).random((deployments, batches))
        rows = {
            "one multiply-add (the machine)": lambda: grid * 2.0 + 1.0,  # noqa: B023
            "bound": lambda: step.bound(ideal, batch),  # noqa: B023
            "serial": lambda: step.serial(ideal, batch),  # noqa: B023
            "predict, all terms": lambda: step.decode_step(ideal, engine, batch).total,  # noqa: B023
        }
        print(f"\n{deployments:,} deployments x {batches} batches = {points:,} points")
        print(f"{'':32}{'best':>14}{'median':>14}  points/s")
        for name, run in rows.items():
            best, median = rate(run, points)
            print(f"{name:32}{best:14.3g}{median:14.3g}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
