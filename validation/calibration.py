"""Error after k points of one's own deployment: all coefficients updated, against a mere rescaling; advised points too.

    python -m validation.calibration                     every server: ten minutes
    python -m validation.calibration --servers 10        ten of them: a look
    python -m validation.calibration --write             also put the table into docs/calibrate.md

A server is a deployment of one version whose clients send in one way. k of its rows are taken at random, three times,
and once as `batchline calibrate` advises; the other rows are predicted. The prior never saw the cluster (model x
accelerator x engine x format; validation/without.py), nor did the spread between deployments. Rows that cannot be what
they say are left out by the rule of the fit (`rows.plausible`).
Deterministic: the same measurements and the same seed give the same table.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchline.calibrate.advice import gain
from batchline.calibrate.calibration import QUANTILES
from batchline.calibrate.observation import NOISE, SCATTER, Observation, Stack
from batchline.calibrate.update import SCALES, Belief, Fit, believe, jacobian, update
from validation import rows as measured
from validation.without import prior_without_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from batchline.validate import Point

    Errors = dict[tuple[str, int], list[NDArray[np.float64]]]

DOCS = Path(__file__).resolve().parents[1] / "docs" / "calibrate.md"
COUNTS = (0, 1, 2, 3, 5)
REPEATS = 3
FEWEST = 8  # rows of a server, so that something is left to predict
MOST = 30  # of one server, so that none decides the figures
HEADINGS = (
    "k",
    "all coefficients",
    "one factor",
    "advised points",
    "TTFT median",
    "advised",
    "80% interval holds",
    "90%",
)


def groups() -> dict[str, list[Point]]:
    """Rows that can be trusted, by server; a mixed table of lengths and concurrencies each."""
    rows, _ = measured.load()
    found: dict[str, list[Point]] = {}
    for point in rows.take(np.flatnonzero(measured.plausible(rows))).points:
        found.setdefault(measured.group_of(point, "server"), []).append(point)
    return {name: points for name, points in found.items() if len(points) >= FEWEST}


def sample(found: dict[str, list[Point]], count: int, random: np.random.Generator) -> list[list[Point]]:
    """Some servers, 0 for all, and not too many rows of one."""
    chosen = [found[name] for name in random.permutation(sorted(found))[: count or None]]
    return [[points[i] for i in random.permutation(len(points))[:MOST]] for points in chosen]


def observations(points: Sequence[Point]) -> list[Observation]:
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
            capacity_batch=point.limit,
            admission_interval=point.admission_interval,
            opening_share=point.opening_share,
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
    place, covariance = belief.mean, belief.covariance
    chosen: list[int] = []
    while len(chosen) < count:
        _, slopes = jacobian(belief, stack, place[None])
        gains = gain(covariance, slopes[0][tpot], stack.noise[tpot], slopes[0][tpot])
        gains[np.isin(owner[tpot], chosen)] = -1.0
        chosen.append(int(owner[tpot][int(np.argmax(gains))]))
        fit = update(belief, stack, np.isin(owner, chosen)[None])
        place, covariance = fit.z[0], fit.covariance[0]
    return chosen


def rescaled(before: NDArray[np.float64], stack: Stack, used: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Prior's predictions, TPOT and TTFT each times one factor: shrunk towards 1 as the scales of the update are."""
    found = before.copy()
    for of, spread in SCALES.items():
        which = kind(stack, of)
        logs = (stack.log_seconds - np.log(before))[which & used]
        weight = logs.size / (logs.size + NOISE[of] ** 2 / (2 * spread) ** 2)
        found[which] *= np.exp(weight * logs.mean()) if logs.size else 1.0
    return found


def kind(stack: Stack, of: str) -> NDArray[np.bool_]:
    """Which observations are TPOTs, or TTFTs."""
    return np.array([one.of == of for one in stack.observations])


def off(predicted: NDArray[np.float64], stack: Stack, which: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Absolute relative errors."""
    return np.abs(predicted[which] / np.exp(stack.log_seconds[which]) - 1.0)


def far(belief: Belief, stack: Stack, fit: Fit, way: int, which: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Standard deviations, of posterior and scatter together, between measured and predicted."""
    _, slopes = jacobian(belief, stack, fit.z[way][None])
    variance = np.einsum("oi,ij,oj->o", slopes[0], fit.covariance[way], slopes[0])
    scatter = np.array([SCATTER[one.of] for one in stack.observations])
    spread = np.sqrt(variance + scatter**2)
    return np.asarray(np.abs(stack.log_seconds - np.log(fit.predicted[way])) / spread)[which]


def evaluate(chosen: Sequence[Sequence[Point]], random: np.random.Generator) -> Errors:
    """Errors of the rows that were not used, by kind and k."""
    found: Errors = {}

    def keep(name: str, k: int, values: NDArray[np.float64]) -> None:
        found.setdefault((name, k), []).append(values)

    for points in chosen:
        case = points[0].case
        belief = believe(prior_without_cluster(case.cluster), case)
        stack = Stack(observations(points))
        owner = np.array([one.point for one in stack.observations])
        order = np.array(advised(belief, stack, max(COUNTS), owner))
        picks = [*(random.permutation(len(points)) for _ in range(REPEATS)), order]
        before = np.exp(jacobian(belief, stack, belief.mean[None])[0][0])
        for k in COUNTS:
            used = np.array([np.isin(owner, pick[:k]) for pick in picks])
            fit = update(belief, stack, used)
            for way, seen in enumerate(used):
                name = "random" if way < REPEATS else "advised"
                for of in ("tpot", "ttft"):
                    keep(f"{name} {of}", k, off(fit.predicted[way], stack, ~seen & kind(stack, of)))
                if way < REPEATS:
                    rest = ~seen & kind(stack, "tpot")
                    keep("rescaled tpot", k, off(rescaled(before, stack, seen), stack, rest))
                    keep("far", k, far(belief, stack, fit, way, rest))
    return found


def lines_of(found: Errors) -> list[str]:
    """Rows of the table in Markdown, errors pooled over the rows."""
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    for k in COUNTS:

        def pooled(name: str, k: int = k) -> NDArray[np.float64]:
            return np.concatenate(found[name, k])

        cells = [
            f"{pooled(name).mean() * 100:.1f} / {np.median(pooled(name)):.1%}"
            for name in ("random tpot", "rescaled tpot", "advised tpot")
        ]
        cells += [f"{np.median(pooled(name)):.0%}" for name in ("random ttft", "advised ttft")]
        cells += [f"{(pooled('far') < QUANTILES[confidence]).mean():.0%}" for confidence in (0.8, 0.9)]
        lines.append(f"| {k} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=0, help="how many are drawn; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put the table into docs/calibrate.md")
    options = parser.parse_args()
    measured.shared_or_exit()
    random = np.random.default_rng(options.seed)
    chosen = sample(groups(), options.servers, random)
    said = f"Mean / median error of TPOT over {len(chosen)} servers of public results "
    said += f"({sum(map(len, chosen))} rows; seed {options.seed}):"
    text = "\n".join([said, "", *lines_of(evaluate(chosen, random))])
    print(text)
    if options.write:
        page = DOCS.read_text(encoding="utf-8")
        mark = re.compile(r"(<!-- by validation/calibration.py -->\n).*?(<!-- end -->)", re.DOTALL)
        page, count = mark.subn(lambda found: f"{found[1]}{text}\n{found[2]}", page)
        if count != 1:
            sys.exit(f"{DOCS.name} has no place for the table.")
        DOCS.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
