"""Error after k points of one's own deployment: all coefficients updated, against a mere rescaling; advised points too.

    python validation/calibration.py [FOLDER] [--deployments 30] [--seed 1]

FOLDER holds the tables of served points (docs/validation.md). For a sample of deployments (one of a cluster: model x
accelerator x engine x format), k of its rows are taken at random, three times, and as `batchline calibrate` advises;
the other rows are predicted. The prior is one that never saw the cluster where validation/fit.py offers it, otherwise
that which the package ships, which has: the table says which. Rows that break the order of their sweep are left out,
as `batchline calibrate` leaves them out (hazard non_monotone), and one cluster whose rows are known to be wrong; all
else that calibrate would refuse stays in.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchline import prior, validate
from batchline.calibrate.advice import gain
from batchline.calibrate.observation import NOISE, Observation, Stack
from batchline.calibrate.update import Belief, believe, jacobian, update
from batchline.errors import BatchlineError
from batchline.measure import MeasuredPoint, hazards

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

TABLES = ("serving_nvidia", "serving_inferencemax", "serving_dstack", "serving_context_sweep_h200")
COUNTS = (0, 1, 2, 3, 5)
REPEATS = 3
DOUBTED = ("qwen3-32b | gb200 | tensorrt-llm | bf16",)  # half of its rows are slower at 16 than at 128 in flight
FEWEST = 8  # rows of a deployment, so that something is left to predict
MOST = 40  # of one deployment, so that none decides the figures


def groups(folder: Path) -> dict[str, list[validate.Point]]:
    """Rows that can be trusted, by deployment; a mixed table of lengths and concurrencies each."""
    found: dict[str, list[validate.Point]] = {}
    for table in TABLES:
        for point in validate.read(folder / f"{table}.csv"):
            if isinstance(point, tuple) or point.qc != "ok" or point.regime != "serving_conc" or not point.tpot_s:
                continue
            if point.case.cluster in DOUBTED:
                continue
            try:
                held = point.capacity
            except BatchlineError:
                continue
            if held >= 1:
                found.setdefault(point.case.deployment, []).append(point)
    kept = {name: in_order(points) for name, points in found.items()}
    return {name: points for name, points in kept.items() if len(points) >= FEWEST}


def in_order(points: list[validate.Point]) -> list[validate.Point]:
    """Rows without those that break the order of their sweep."""
    rows = [
        MeasuredPoint(
            regime="serving",
            concurrency=point.concurrency,
            context=point.context,
            isl=point.isl,
            osl=point.osl,
            tpot_s=point.tpot_s,
            file=f"{point.series} {point.isl:g} {point.osl:g}",
        )
        for point in points
    ]
    found = hazards.inspect(rows)
    return [
        point
        for point, some in zip(points, found, strict=True)
        if not any(hazard.name == "non_monotone" for hazard in some)
    ]


def sample(
    found: dict[str, list[validate.Point]], count: int, random: np.random.Generator
) -> list[list[validate.Point]]:
    """One deployment of a cluster, `count` clusters."""
    clusters: dict[str, list[str]] = {}
    for name, points in found.items():
        clusters.setdefault(points[0].case.cluster, []).append(name)
    chosen = random.permutation(sorted(clusters))[:count]
    kept = [found[clusters[name][int(random.integers(len(clusters[name])))]] for name in chosen]
    return [
        points if len(points) <= MOST else [points[i] for i in random.permutation(len(points))[:MOST]]
        for points in kept
    ]


def observations(points: Sequence[validate.Point]) -> list[Observation]:
    """TPOT and TTFT of each row."""
    return [
        Observation(
            of=of,
            seconds=seconds,
            ideal=point.ideal,
            batch=point.concurrency,
            isl=point.isl,
            osl=point.osl,
            context=point.context,
            capacity_batch=point.capacity,
            noise=NOISE[of],
            point=i,
        )
        for i, point in enumerate(points)
        for of, seconds in (("tpot", point.tpot_s), ("ttft", point.ttft_s))
        if seconds
    ]


def advised(belief: Belief, stack: Stack, count: int, owner: NDArray[np.intp]) -> list[int]:
    """Points in the order in which the tool would ask for them: each after an update by those before."""
    tpot = np.array([one.of == "tpot" for one in stack.observations])
    place, covariance = belief.mean, np.diag(belief.spread**2)
    chosen: list[int] = []
    while len(chosen) < count:
        _, slopes = jacobian(belief, stack, place[None])
        gains = gain(covariance, slopes[0][tpot], stack.noise[tpot], slopes[0][tpot])
        gains[np.isin(owner[tpot], chosen)] = -1.0
        chosen.append(int(owner[tpot][int(np.argmax(gains))]))
        fit = update(belief, stack, np.isin(owner, chosen)[None])
        place, covariance = fit.z[0], fit.covariance[0]
    return chosen


def leave_cluster_out() -> tuple[Callable[[str], prior.Prior] | None, str]:
    """Prior that never saw a cluster, if validation/fit.py offers it."""
    sys.path.insert(0, str(Path(__file__).parent))
    try:
        made = importlib.import_module("fit").prior_without_cluster
    except (ImportError, AttributeError):
        return None, "the shipped prior, which may have seen these rows"
    return made, "priors fitted without the cluster"


def off(predicted: NDArray[np.float64], stack: Stack, rest: NDArray[np.bool_], of: str) -> NDArray[np.float64]:
    """Absolute relative errors of one kind on the rows that were not used."""
    which = rest & np.array([one.of == of for one in stack.observations])
    return np.abs(predicted[which] / np.exp(stack.log_seconds[which]) - 1.0)


def rescaled(before: NDArray[np.float64], stack: Stack, used: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Prior's predictions, TPOT and TTFT each times one factor: shrunk towards 1 as the scales of the update are."""
    found = before.copy()
    for of, spread in (("tpot", 0.25), ("ttft", 0.4)):
        which = np.array([one.of == of for one in stack.observations])
        logs = (stack.log_seconds - np.log(before))[which & used]
        weight = logs.size / (logs.size + NOISE[of] ** 2 / spread**2)
        found[which] *= np.exp(weight * logs.mean()) if logs.size else 1.0
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[2] / "shared" / "measured")
    parser.add_argument("--deployments", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    made, said = leave_cluster_out()
    chosen = sample(groups(options.folder), options.deployments, random)
    print(f"{len(chosen)} deployments, {sum(map(len, chosen))} rows; prior: {said}\n")
    errors: dict[tuple[str, int], list[NDArray[np.float64]]] = {}
    covered: dict[int, list[NDArray[np.bool_]]] = {}
    for points in chosen:
        case = points[0].case
        belief = believe(made(case.cluster) if made else prior.load(), case)
        stack = Stack(observations(points))
        owner = np.array([one.point for one in stack.observations])
        order = advised(belief, stack, max(COUNTS), owner)
        picks = [random.permutation(len(points)) for _ in range(REPEATS)]
        before = np.exp(jacobian(belief, stack, belief.mean[None])[0][0])
        for k in COUNTS:
            used = np.array([np.isin(owner, pick[:k]) for pick in (*picks, np.array(order))])
            fit = update(belief, stack, used)
            for way in range(REPEATS + 1):
                kind = "advised" if way == REPEATS else "random"
                rest = ~used[way]
                for of in ("tpot", "ttft"):
                    errors.setdefault((f"{kind} {of}", k), []).append(off(fit.predicted[way], stack, rest, of))
                if kind == "random":
                    again = rescaled(before, stack, used[way])
                    errors.setdefault(("rescaled tpot", k), []).append(off(again, stack, rest, "tpot"))
                    covered.setdefault(k, []).append(inside(belief, stack, fit, way, rest))
    show(errors, covered)


def inside(belief: Belief, stack: Stack, fit: object, way: int, rest: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether held-out TPOTs lie in the 80% interval of the posterior and the noise."""
    which = rest & np.array([one.of == "tpot" for one in stack.observations])
    _, slopes = jacobian(belief, stack, fit.z[way][None])  # type: ignore[attr-defined]
    variance = np.einsum("oi,ij,oj->o", slopes[0], fit.covariance[way], slopes[0])  # type: ignore[attr-defined]
    spread = np.sqrt(variance + stack.noise**2)
    far = np.abs(stack.log_seconds - np.log(fit.predicted[way])) / spread  # type: ignore[attr-defined]
    return np.asarray(far[which] < 1.282)


def show(errors: dict[tuple[str, int], list[NDArray[np.float64]]], covered: dict[int, list[NDArray[np.bool_]]]) -> None:
    """Print mean and median errors, pooled over the rows and over the deployments."""
    print(
        "k | TPOT mean / median | rescaled | advised | TTFT median | advised | worst deployment | in the 80% interval"
    )
    for k in COUNTS:

        def pooled(name: str, k: int = k) -> NDArray[np.float64]:
            return np.concatenate(errors[name, k])

        tpot, scaled, better = (pooled(name) for name in ("random tpot", "rescaled tpot", "advised tpot"))
        worst = max(float(np.mean(one)) for one in errors["random tpot", k] if one.size)
        print(
            f"{k} | {tpot.mean():.1%} / {np.median(tpot):.1%} | {scaled.mean():.1%} / {np.median(scaled):.1%}"
            f" | {better.mean():.1%} / {np.median(better):.1%} | {np.median(pooled('random ttft')):.0%}"
            f" | {np.median(pooled('advised ttft')):.0%} | {worst:.0%} | {np.concatenate(covered[k]).mean():.0%}"
        )


if __name__ == "__main__":
    main()
