"""Measured rows for the fit: read by batchline.validate, cleaned by stated rules, repeats averaged."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchline import step
from batchline.errors import BatchlineError
from batchline.served_point import STATIC, Point, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

SHARED = Path(__file__).resolve().parents[2] / "shared" / "measured"
SERVED = ("serving_nvidia.csv", "serving_inferencemax.csv", "serving_context_sweep_h200.csv")
"""Closed-loop points of current engines."""


@dataclass(frozen=True)
class Rows:
    """Points with their ideal times, as arrays of equal length; TTFT is NaN where a batch was measured alone.

    `capacity` is what cache and engine admit [sequence], `chunks` the steps that a prompt takes at least [step].
    """

    points: tuple[Point, ...]
    ideal: step.Ideal
    capacity: NDArray[np.float64]
    chunks: NDArray[np.float64]
    admission_interval: NDArray[np.float64]
    opening_share: NDArray[np.float64]
    concurrency: NDArray[np.float64]
    isl: NDArray[np.float64]
    osl: NDArray[np.float64]
    tpot: NDArray[np.float64]
    ttft: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.points)

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Rows of a batch of fixed size that decodes without prompts beside it."""
        return np.isnan(self.ttft)

    def take(self, index: Sequence[int] | NDArray[np.intp]) -> Rows:
        """Some of the rows."""
        chosen = np.asarray(index, dtype=int)
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields["points"] = tuple(self.points[i] for i in chosen)
        fields["ideal"] = step.Ideal(
            **{f.name: getattr(self.ideal, f.name)[chosen] for f in dataclasses.fields(step.Ideal)}
        )
        return Rows(
            **{name: value[chosen] if isinstance(value, np.ndarray) else value for name, value in fields.items()}
        )

    def group(self, kind: str) -> list[str]:
        """Name of the group that each row belongs to."""
        return [group_of(point, kind) for point in self.points]


def group_of(point: Point, kind: str) -> str:
    """Name of the series, server, deployment, cluster, model, accelerator or engine of a point.

    A server is a deployment of one version whose clients send in one way: what a user has before him.
    """
    case = point.case
    if kind == "server":
        return f"{case.deployment} | {point.version or point.date} | {point.client}"
    if kind == "series":
        return f"{case.deployment} | {point.version} | {point.date} | {point.isl:.0f}/{point.osl:.0f} | {point.client}"
    if kind == "model":
        return case.base_model
    return str(getattr(case, kind))


def load(files: Iterable[str] = SERVED) -> tuple[Rows, dict[str, int]]:
    """Read the served points that are fit to be used, and count those that are not, by reason."""
    refused: dict[str, int] = defaultdict(int)
    repeats: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for name in files:
        for found in read(SHARED / name):
            if not isinstance(found, Point):
                refused[found[1]] += 1
                continue
            if found.qc != "ok" or not found.tpot_s or not (found.ttft_s or found.regime in STATIC):
                refused["marked doubtful in the table" if found.qc != "ok" else "no TPOT or TTFT"] += 1
                continue
            if found.pools or found.speculation:
                refused["disaggregated or speculative: a table of its own"] += 1
                continue
            try:
                _ = found.ideal, found.capacity
            except BatchlineError as error:
                refused[str(error)] += 1
                continue
            key = (found.case.deployment, found.version, found.date if not found.version else "", found.isl, found.osl)
            repeats[(*key, found.concurrency, found.client)].append(found)
    points = tuple(_mean(same) for same in repeats.values())
    names = [f.name for f in dataclasses.fields(step.Ideal)]
    columns = {n: np.array([float(getattr(p.ideal, n)) for p in points]) for n in names}
    rows = Rows(
        points=points,
        ideal=step.Ideal(**columns),
        capacity=np.array([p.limit for p in points]),
        chunks=np.array([math.ceil(p.isl / p.max_num_batched_tokens) for p in points], dtype=float),
        admission_interval=np.array([p.admission_interval for p in points]),
        opening_share=np.array([p.opening_share for p in points]),
        concurrency=np.array([p.concurrency for p in points]),
        isl=np.array([p.isl for p in points]),
        osl=np.array([p.osl for p in points]),
        tpot=np.array([p.tpot_s for p in points], dtype=float),
        ttft=np.array([math.nan if p.regime in STATIC else p.ttft_s for p in points], dtype=float),
    )
    return rows, dict(refused)


def _mean(same: list[Point]) -> Point:
    if len(same) == 1:
        return same[0]
    tpot = float(np.exp(np.mean([np.log(p.tpot_s or 1.0) for p in same])))
    ttft = float(np.exp(np.mean([np.log(p.ttft_s or 1.0) for p in same])))
    return dataclasses.replace(same[0], tpot_s=tpot, ttft_s=ttft)


def plausible(rows: Rows) -> NDArray[np.bool_]:
    """Rows that can be what they say: the fit leaves the others out, the error tables show both.

    A row is left out when it is faster than the bound, when it implies more than 60% of the peak FLOP/s sustained
    (a prefix cache, or another concurrency than stated), when far fewer or far more requests ran than it says, or when
    a smaller concurrency of its series is over 25% slower; and a cluster of which a quarter is so, as a whole. So are
    rows whose server is known to have found prompts of earlier runs in its prefix cache.
    """
    ideal = rows.ideal
    throughput = rows.concurrency / (rows.ttft + (rows.osl - 1) * rows.tpot)
    work = rows.isl * ideal.prompt_token_s + ideal.prompt_attention_s + rows.osl * ideal.compute_s
    running = rows.concurrency * rows.osl * rows.tpot / (rows.osl * rows.tpot + rows.ttft)
    bad = throughput / ideal.dp * work > 0.6
    bad |= np.asarray(step.bound(ideal, np.minimum(running, rows.capacity))) > rows.tpot
    bad |= (rows.ttft > 1.5 * rows.osl * rows.tpot) & (rows.concurrency < 0.6 * rows.capacity)
    bad |= running > 1.6 * rows.capacity
    bad |= _not_monotone(rows)
    clusters = np.array(rows.group("cluster"))
    for name in set(clusters):
        inside = clusters == name
        if bad[inside].mean() >= 0.25:
            bad |= inside
    return ~(bad | np.array([point.repeated_prompts for point in rows.points]))


def _not_monotone(rows: Rows) -> NDArray[np.bool_]:
    bad = np.zeros(len(rows), dtype=bool)
    series: dict[str, list[int]] = defaultdict(list)
    for i, name in enumerate(rows.group("series")):
        series[name].append(i)
    for members in series.values():
        for a in members:
            for b in members:
                slower = rows.tpot[a] > 1.25 * rows.tpot[b] and rows.concurrency[b] < rows.capacity[b]
                if rows.concurrency[a] < rows.concurrency[b] and slower:
                    bad[[a, b]] = True
    return bad


def shared_or_exit() -> None:
    """End with a reason where the public measurements are not at hand."""
    if not SHARED.is_dir():
        sys.exit("The public measurements (shared/measured beside the project) are not here; priors stay as they are.")
