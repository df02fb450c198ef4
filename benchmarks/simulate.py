"""Requests per second of the simulator, its memory, its growth, and how near it comes to two logged vLLM runs.

    python benchmarks/simulate.py [TRACE]        default: the Azure conversation trace of 2023, where it is at hand
    python benchmarks/simulate.py --processes    one part alone: the speed-up of two processes

The trace is repeated to a million and ten million requests and served by Llama-3.1-8B on one H100 (vLLM's scheduler).
Every figure is of one core and a process of its own: processor seconds, and wall seconds beside them, as the machine
may be shared. The yardstick is the least that a loop over events does: push and pop of a heap, by numba, likewise.
The logged runs lie in shared/traces/vllm_runs beside the project; without them that part is left out.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import prior, readings, simulate, workload
from batchline.deployment import Deployment
from batchline.simulate.fit import FITTED, fit_coefficients
from batchline.simulate.sweep import Case, processes, sweep

if TYPE_CHECKING:
    from concurrent.futures import Executor

SHARED = Path(__file__).resolve().parents[2] / "shared" / "traces"
TRACE = SHARED / "azure2023_conv.csv"
RUNS = {
    "RTX4090__Llama-3.1-8B": ("llama-3.1-8b", "rtx-4090"),
    "RTXPRO6000__Qwen3-32B": ("qwen3-32b", "2xrtx-pro-6000"),
}
PERCENTILES = (10, 25, 50, 75, 90, 95, 99)


def served() -> simulate.Pool:
    return simulate.pool_of(Deployment.of("llama-3.1-8b", "h100"), context=1300)


def traffic(trace: str, count: int) -> workload.Traffic:
    """The trace, in memory once, repeated to so many requests."""
    requests = workload.whole(workload.trace(trace))
    once = workload.of_requests(requests.arrival_s, requests.isl, requests.osl)
    return workload.limited(workload.repeated(once, -(-count // len(requests))), count)


def one(trace: str, count: int, *, compiled: bool = True) -> dict[str, Any]:
    """Serve so many requests once; warmed up, so that compiling is not in it."""
    pool = served()
    load = traffic(trace, count)
    simulate.simulate(pool, workload.limited(load, 2000), compiled=compiled, keep_requests=False)
    wall, busy = time.perf_counter(), time.process_time()
    result = simulate.simulate(pool, load, compiled=compiled, keep_requests=False)
    return {
        "wall": time.perf_counter() - wall,
        "busy": time.process_time() - busy,
        "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "events": result.events,
        "tokens": result.output_tokens,
    }


def yardstick() -> float:
    """Nanoseconds of pushing and popping one event of a heap of 32, compiled."""
    import numba  # noqa: PLC0415

    @numba.njit
    def turn(heap: Any, times: Any) -> float:
        size = len(heap)
        total = 0.0
        for time_s in times:
            total += heap[0]
            place = 0
            while 2 * place + 1 < size:
                child = 2 * place + 1
                if child + 1 < size and heap[child + 1] < heap[child]:
                    child += 1
                if heap[child] >= time_s:
                    break
                heap[place] = heap[child]
                place = child
            heap[place] = time_s
        return total

    times = np.cumsum(np.random.default_rng(0).exponential(1.0, 5_000_000))
    turn(np.zeros(32), times[:100])
    start = time.process_time()
    turn(np.zeros(32), times)
    return (time.process_time() - start) / len(times) * 1e9


def apart(*arguments: object) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, __file__, "--one", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def speed(trace: str) -> None:
    print(f"One event of a heap, the least that any such loop does: {yardstick():.0f} ns\n")
    print(f"{'requests':>12}{'busy s':>9}{'wall s':>9}{'requests/s':>13}{'ns/event':>10}{'events':>13}{'RSS MiB':>9}")
    found: dict[int, float] = {}
    for count in (250_000, 500_000, 1_000_000, 2_000_000, 10_000_000):
        tries = [apart(trace, count) for _ in range(5 if count < 10_000_000 else 2)]
        best = min(tries, key=lambda run: run["busy"])
        found[count] = best["busy"]
        print(
            f"{count:12,}{best['busy']:9.2f}{best['wall']:9.2f}{count / best['busy']:13,.0f}"
            f"{best['busy'] / best['events'] * 1e9:10.0f}{best['events']:13,}{best['rss']:9.0f}"
        )
    for count in (250_000, 500_000, 1_000_000):
        print(f"  twice {count:,}: x {found[2 * count] / found[count]:.2f}")
    plain = apart(trace, 20_000, "plain")
    print(f"\nWithout numba, 20,000 requests: {20_000 / plain['busy']:,.0f} requests/s, the same answer.")
    start = time.process_time()
    rows = len(workload.whole(workload.trace(trace)))
    print(f"Reading and checking a CSV trace: {rows / (time.process_time() - start):,.0f} rows/s.")


def many(trace: str) -> None:
    """Sixteen simulations of a quarter million requests on one and on two processes.

    Wall time says how busy the machine is besides. What the division itself costs are processor seconds: those of the
    busier process, and of the parent who hands out and collects. With a core for each, that is how long it takes.
    """
    pool = served()
    load = traffic(trace, 250_000)
    cases = [
        Case(pool=pool, traffic=workload.rescaled(load, rate=rate), options={"keep_requests": False, "compiled": True})
        for rate in np.linspace(0.6, 1.4, 16)
    ]
    tries = {1: [], 2: []}  # type: dict[int, list[dict[str, float]]]
    for _ in range(3):
        for workers, seen in tries.items():  # in turn, so that a busy moment of a shared machine hits both
            seen.append(_swept(cases, workers))
    best = {workers: min(seen, key=lambda run: run["worker"] + run["parent"]) for workers, seen in tries.items()}
    print(f"\n{'Sixteen simulations, busy seconds of':36}{'all':>8}{'the busier':>12}{'the parent':>12}{'wall s':>9}")
    for workers, run in best.items():
        row = "".join(
            f"{run[what]:{width}.2f}" for what, width in (("all", 8), ("worker", 12), ("parent", 12), ("wall", 9))
        )
        print(f"  {workers} process{'es' if workers > 1 else '':25}{row}")
    with_core = best[1]["worker"] / (best[2]["worker"] + best[2]["parent"])
    print(f"  Speed-up with a core for each: x {with_core:.2f}; on this machine as it was: ", end="")
    print(f"x {min(run['wall'] for run in tries[1]) / min(run['wall'] for run in tries[2]):.2f}")


def _swept(cases: list[Case], workers: int) -> dict[str, float]:
    with processes(workers) as source:
        executor = source()
        before = _busy(executor, workers)
        wall, busy = time.perf_counter(), time.process_time()
        list(sweep(cases, lambda: executor))
        parent, wall = time.process_time() - busy, time.perf_counter() - wall
        after = _busy(executor, workers)
    spent = [after[pid] - before[pid] for pid in before]
    return {"all": sum(spent), "worker": max(spent), "parent": parent, "wall": wall}


def _busy(executor: Executor, workers: int) -> dict[int, float]:
    """Processor seconds of each worker so far, once all are warm."""
    seen: dict[int, float] = {}
    while len(seen) < workers:
        seen |= dict(executor.map(_warm, range(2 * workers)))
    return seen


def _warm(_: int) -> tuple[int, float]:
    simulate.simulate(served(), workload.of_requests(np.arange(50.0), 100, 20), compiled=True)
    time.sleep(0.3)  # so that every process gets one
    return os.getpid(), time.process_time()


def logged(name: str) -> tuple[workload.Traffic, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Requests of a run, and when each had its first and last token after it was sent."""
    rows = [json.loads(line) for line in (SHARED / "vllm_runs" / name / "requests.jsonl").read_text().splitlines()]
    sent = np.array([row["arrival_time"] for row in rows])
    # The two clocks of the log differ by a constant: the first request was queued as soon as it came.
    shift = rows[0]["queued_ts"] - sent[0]
    first, last = (np.array([row[key] for row in rows]) - shift - sent for key in ("first_token_ts", "last_token_ts"))
    lengths = ([row[key] for row in rows] for key in ("input_toks", "output_toks"))
    return workload.of_requests(sent - sent[0], *lengths), first, last


def knobs(name: str) -> simulate.Vllm:
    """Scheduler of a run, as its log states it."""
    meta = json.loads((SHARED / "vllm_runs" / name / "meta.json").read_text())
    engine = meta["engine_kwargs"]
    return simulate.Vllm(
        max_num_seqs=engine["max_num_seqs"],
        max_num_batched_tokens=engine["max_num_batched_tokens"],
        kv_blocks=meta.get("kv_cache", {}).get("num_gpu_blocks"),
        async_scheduling=True,
    )


def reality(pictures: Path | None = None) -> None:
    print("\nTwo logged runs (vLLM 0.19). Error of simulated percentiles, in %; calibrated on the first 100 requests.")
    for name, (model, device) in RUNS.items():
        load, ttft, e2e = logged(name)
        deployment = Deployment.of(model, device, engine="vllm", engine_version="0.19.0")
        believed = prior.load().coefficients(readings.case_of(deployment))
        rules = knobs(name)

        def pool_at(coefficients: Any, deployment: Any = deployment, rules: Any = rules) -> simulate.Pool:
            return simulate.pool_of(
                deployment, context=1200, scheduler=rules, coefficients=coefficients, max_context=8192
            )

        before = simulate.simulate(pool_at(believed), load)
        fit = fit_coefficients(pool_at, believed, load, ttft_s=ttft[:100], e2e_s=e2e[:100], options={"compiled": True})
        print(f"\n{name}: " + ", ".join(f"{key} {getattr(fit.coefficients, key):.4g}" for key in FITTED))
        print(f"{'':44}" + "".join(f"{f'p{point}':>8}" for point in PERCENTILES))
        for label, result in (("as predicted", before), ("calibrated", fit.result)):
            for part, rows in (("the other 200", slice(100, None)), ("all 300", slice(None))):
                for metric, real in (("ttft", ttft), ("e2e", e2e)):
                    times = getattr(result.table, f"{metric}_s")[rows]
                    errors = np.percentile(times, PERCENTILES) / np.percentile(real[rows], PERCENTILES) - 1
                    print(f"  {label:14}{part:16}{metric:12}" + "".join(f"{100 * error:8.1f}" for error in errors))
        if pictures is not None:
            _draw(name, fit.result, ttft, e2e, pictures)


def _draw(name: str, result: simulate.Result, ttft: Any, e2e: Any, folder: Path) -> None:
    from batchline import chart, chart_simulation  # noqa: PLC0415

    rows = np.genfromtxt(SHARED / "vllm_runs" / name / "timeseries.csv", delimiter=",", names=True)
    log = {
        "time_s": rows["t"],
        "running": rows["running"],
        "waiting": rows["waiting"],
        "prompt_tokens_per_s": rows["prompt_throughput"],
        "output_tokens_per_s": rows["gen_throughput"],
    }
    if rows["kv_cache_pct"].any():
        log["kv_use"] = rows["kv_cache_pct"] / 100
    short = name.partition("__")[0].lower()
    chart.save(chart_simulation.over_time(result, log=log), folder / f"simulate-{short}.png")
    chart.save(chart_simulation.times(result, log={"ttft": ttft, "e2e": e2e}), folder / f"simulate-{short}-times.png")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--one"]:
        print(json.dumps(one(arguments[1], int(arguments[2]), compiled="plain" not in arguments)))
        return
    if arguments[:1] == ["--pictures"]:
        reality(Path(arguments[1]))
        return
    if arguments[:1] == ["--processes"]:
        many(arguments[1] if arguments[1:] else str(TRACE))
        return
    trace = arguments[0] if arguments else str(TRACE)
    speed(trace)
    many(trace)
    if (SHARED / "vllm_runs").is_dir():
        reality()


if __name__ == "__main__":
    main()
