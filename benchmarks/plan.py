"""Seconds and configurations of the planner's whole default space, one model at a time, one core.

    python benchmarks/plan.py [MODEL ...]

The space: every accelerator with a price, every layout up to 64 devices, five weight formats, two KV formats, three
engines, four prefill budgets, every batch from 1 to 1,024, and every pair of a prefill and a decode layout. Each
configuration is decided; `decided` counts them, and a fixed piece of numpy work in the same run is the machine's own
yardstick: on a busy machine look at the ratio.
"""

from __future__ import annotations

import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from batchline.planner import plan

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3", "gpt-oss-120b")
RUNS = 5


def yardstick() -> float:
    """CPU seconds of 200 passes of exp and multiply-add over 100,000 numbers."""
    values = np.linspace(0.0, 1.0, 100_000)
    start = time.process_time()
    for _ in range(200):
        values = values * 0.5 + np.exp(-values) * 0.5
    return time.process_time() - start


def main(models: list[str]) -> None:
    print(f"{'model':<18}{'deployments':>12}{'decided':>14}{'CPU s':>8}{'wall s':>8}{'yardsticks':>11}  cheapest")
    for model in models:
        cpu, wall = [], []
        for _ in range(RUNS):
            start, begun = time.process_time(), time.perf_counter()
            answer = plan(model, isl=4096, osl=1024, rate=20, ttft="p95:2s", tpot="p95:40ms")
            cpu.append(time.process_time() - start)
            wall.append(time.perf_counter() - begun)
        best = answer.best.title if answer.candidates else "none"
        print(
            f"{model:<18}{answer.deployments:>12,}{answer.searched:>14,}{min(cpu):>8.2f}{min(wall):>8.2f}"
            f"{min(cpu) / yardstick():>11.1f}  {best}"
        )


if __name__ == "__main__":
    main(sys.argv[1:] or list(MODELS))
