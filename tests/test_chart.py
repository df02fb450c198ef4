"""Charts: the right numbers in the right places, nothing over anything else, readable by everybody, offline."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
import zlib
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchline import chart, roofline, strings
from batchline.chart import six
from batchline.chart import theme as looks
from batchline.chart._text import text_width, wrapped
from batchline.chart.axis import batch_ticks, linear_ticks, log_ticks
from batchline.errors import InputError, MissingFactError, UnknownNameError

from .strategies import examples

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, HEIGHT = 330.0, 240.0
STEP = {"bound": roofline.t_step_bound, "serial": roofline.t_step_serial}


# --- A curve from the article's equations alone -----------------------------------------------------------------------


@dataclass(frozen=True)
class Best:
    batch: int
    t_step: float
    usd_per_mtok: float | None
    binds: str


@dataclass(frozen=True)
class Predicted:
    low: Any
    high: Any
    bound: Any
    terms: dict[str, Any]


@dataclass(frozen=True)
class Curve:
    batch: Any
    t_compute: Any
    t_weights: Any
    t_kv: Any
    t_step: Any
    bound_by: list[str]
    reading: str
    title: str
    context: float
    usd_per_hour: float | None
    latency_floor: float
    cost_floor_usd_per_mtok: float | None
    knee_batch: float | None
    capacity_batch: float
    step_limit: float | None
    optimum: Best
    prediction: Predicted | None = None


def weights_time(weights: float, batch: Any, experts: tuple[int, int] | None) -> Any:
    if experts is None:
        return np.full_like(batch, weights)
    return weights * (0.1 + 0.9 * roofline.expert_coverage(batch, *experts))


def curve(
    weights: float,
    compute: float,
    kv: float,
    capacity: float,
    *,
    limit: float | None = None,
    price: float | None = 8.4,
    reading: str = "bound",
    experts: tuple[int, int] | None = None,
    batches: Any = None,
) -> Curve:
    """Seconds of the weights, and of compute and KV for each sequence; the smallest of the cheapest batches is run."""
    batch = np.unique(np.geomspace(1, 4 * max(capacity, 64), 240)) if batches is None else np.asarray(batches, float)
    every = np.arange(1, min(capacity, 200_000) + 1, dtype=float)
    taken = STEP[reading](every * compute, weights_time(weights, every, experts), every * kv)
    allowed = np.ones_like(taken, dtype=bool) if limit is None else taken <= limit
    allowed[0] = True
    cost = np.where(allowed, taken / every, np.inf)
    at = int(np.argmax(cost <= cost.min() * (1 + 1e-9)))
    last = int(np.flatnonzero(allowed)[-1])
    binds = "floor" if at < last else "kv" if at == every.size - 1 else "step_limit"
    floor = max(compute, kv) if reading == "bound" else compute + kv

    def dollars(seconds: float) -> float | None:
        return None if price is None else float(roofline.usd_per_mtok(seconds, 1.0, price))

    parts = (batch * compute, weights_time(weights, batch, experts), batch * kv)
    return Curve(
        batch=batch,
        t_compute=parts[0],
        t_weights=parts[1],
        t_kv=parts[2],
        t_step=STEP[reading](*parts),
        bound_by=["kv"] * batch.size,
        reading=reading,
        title="Stand-in 70B fp8 on 2 x H200, context 4,096, $8.40/h",
        context=4096.0,
        usd_per_hour=price,
        latency_floor=float(weights_time(weights, np.ones(1), experts)[0]),
        cost_floor_usd_per_mtok=dollars(floor),
        knee_batch=weights / (compute - kv) if compute > kv else None,
        capacity_batch=float(capacity),
        step_limit=limit,
        optimum=Best(int(every[at]), float(taken[at]), dollars(float(taken[at] / every[at])), binds),
    )


def predicted(of: Curve) -> Curve:
    terms = {
        "weights": 1.3 * of.t_weights,
        "kv": 1.4 * of.t_kv,
        "compute": 0.4 * of.t_compute,
        "communication": 1e-3 + 6e-6 * of.batch,
        "overhead": 4e-3 + 1.2e-5 * of.batch,
    }
    step = sum(terms.values())
    best = float(np.interp(of.optimum.batch, of.batch, step))
    cost = float(roofline.usd_per_mtok(best, of.optimum.batch, of.usd_per_hour or 1.0))
    return replace(
        of,
        reading="predict",
        t_step=step,
        t_weights=terms["weights"],
        t_kv=terms["kv"],
        t_compute=terms["compute"],
        step_limit=None,
        optimum=replace(of.optimum, t_step=best, usd_per_mtok=cost),
        prediction=Predicted(0.8 * step, 1.25 * step, of.t_step, terms),
    )


# Seconds of: weights, compute per sequence, KV per sequence; capacity.
CASES = {
    "70B fp8, 2 x H200, 4k, limit": curve(7.35e-3, 3.53e-5, 7.0e-5, 294, limit=0.020),
    "8B bf16, H100, 256: knee": curve(4.48e-3, 1.52e-5, 1.0e-5, 1801),
    "knee beyond the capacity": curve(4.48e-3, 1.52e-5, 1.4e-5, 900),
    "1B on a 4090": curve(2.45e-3, 1.5e-5, 3.3e-5, 607, price=0.54),
    "huge context": curve(5.27e-3, 1.76e-5, 2.94e-3, 5, price=15.55),
    "mixture of experts": curve(1.74e-2, 4.6e-6, 6.0e-5, 177, experts=(256, 8), price=36.7),
    "mixture, small": curve(1.9e-2, 1.0e-5, 4.6e-5, 72, experts=(128, 4)),
    "capacity 1": curve(2.0e-2, 3.0e-5, 9.0e-3, 1),
    "capacity beyond 100,000": curve(1.0e-3, 2.0e-7, 1.3e-7, 180_000),
    "KV and compute alike": curve(5.0e-3, 2.0e-5, 2.0e-5, 500),
    "no KV": curve(5.0e-3, 2.0e-5, 0.0, 4000),
    "limit below the floor": curve(7.35e-3, 3.53e-5, 7.0e-5, 294, limit=0.005),
    "limit far above": curve(7.35e-3, 3.53e-5, 7.0e-5, 294, limit=2.0),
    "serial": curve(4.48e-3, 1.52e-5, 1.0e-5, 1801, reading="serial"),
    "no price": curve(4.48e-3, 1.52e-5, 3.0e-5, 400, price=None),
    "few batches": curve(7.35e-3, 3.53e-5, 7.0e-5, 294, batches=[1, 2, 4, 8, 16, 32, 64, 128, 256]),
    "one batch": curve(7.35e-3, 3.53e-5, 7.0e-5, 294, batches=[64]),
    "prediction": predicted(curve(7.35e-3, 3.53e-5, 7.0e-5, 294)),
    "prediction, mixture": predicted(curve(1.74e-2, 4.6e-6, 6.0e-5, 177, experts=(256, 8))),
}
LIMITED = CASES["70B fp8, 2 x H200, 4k, limit"]
KNEE = CASES["8B bf16, H100, 256: knee"]


# --- Geometry, worked out here again from what the specification holds ------------------------------------------------


def to_pixels(signals: dict[str, Any], key: str, rows: list[dict[str, Any]], axis: str, field: str) -> Any:
    low, high = signals[f"{key}_{axis}_low"], signals[f"{key}_{axis}_high"]
    values = np.array([row[field] for row in rows], dtype=float)
    log = low > 0 if axis == "x" else (axis == "y" and low > 0)
    share = np.log(values / low) / np.log(high / low) if log else (values - low) / (high - low)
    return share * WIDTH if axis == "x" else (1 - share) * HEIGHT


def boxes(rows: list[dict[str, Any]]) -> list[tuple[float, float, float, float, str]]:
    found = []
    for row in rows:
        width = text_width(row["text"], row["size"], bold=row["weight"] == "bold")
        left = row["x"] - {"left": 0, "center": width / 2, "right": width}[row["align"]]
        half = row["size"] / 2
        found.append((left, row["y"] - half, left + width, row["y"] + half, row["text"]))
    return found


def crosses(box: tuple[float, ...], x0: float, y0: float, x1: float, y1: float) -> bool:
    """Whether a segment enters a box (Liang and Barsky)."""
    enter, leave = 0.0, 1.0
    for delta, low, high, start in ((x1 - x0, box[0], box[2], x0), (y1 - y0, box[1], box[3], y0)):
        if delta == 0:
            if not low <= start <= high:
                return False
            continue
        first, second = sorted(((low - start) / delta, (high - start) / delta))
        enter, leave = max(enter, first), min(leave, second)
    return enter <= leave


def segments(data: dict[str, Any], key: str) -> list[tuple[str, float, float, float, float]]:
    signals, sets = data["signals"], data["datasets"]
    found = []
    lines = sets[f"{key}_lines"]
    for role in {row["role"] for row in lines}:
        rows = [row for row in lines if row["role"] == role]
        x, y = to_pixels(signals, key, rows, "x", "batch"), to_pixels(signals, key, rows, "y", "value")
        found += [(role, x[i], y[i], x[i + 1], y[i + 1]) for i in range(len(rows) - 1)]
    for row in sets[f"{key}_levels"]:
        (y,) = to_pixels(signals, key, [row], "y", "value")
        found.append((row["role"], 0.0, y, WIDTH, y))
    for row in sets[f"{key}_edges"]:
        if row["role"] != "run":  # the light dotted line may pass behind a label
            (x,) = to_pixels(signals, key, [row], "x", "batch")
            found.append((row["role"], x, 0.0, x, HEIGHT))
    found += [("leader", row["x"], row["y"], row["x2"], row["y2"]) for row in sets[f"{key}_leaders"]]
    return found


def collisions(data: dict[str, Any], key: str) -> list[str]:
    signals, sets = data["signals"], data["datasets"]
    labels = boxes(sets[f"{key}_labels"])
    found = [f"{a[4]!r} over {b[4]!r}" for a, b in combinations(labels, 2) if overlap(a, b)]
    found += [f"{box[4]!r} leaves the frame" for box in labels if min(box[:2]) < 0 or box[2] > WIDTH or box[3] > HEIGHT]
    marks = [row for row in sets[f"{key}_marks"] if row["look"] != "measured"]
    centres = zip(
        to_pixels(signals, key, marks, "x", "batch"), to_pixels(signals, key, marks, "y", "value"), marks, strict=True
    )
    for x, y, row in centres:
        reach = (row["size"] / np.pi) ** 0.5 - 1
        found += [
            f"{box[4]!r} over {row['look']}"
            for box in labels
            if overlap(box, (x - reach, y - reach, x + reach, y + reach))
        ]
    for role, *segment in segments(data, key):
        found += [f"{box[4]!r} over {role}" for box in labels if crosses(box, *segment)]
    return found


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def texts(data: dict[str, Any], key: str) -> list[str]:
    return [row["text"] for row in data["datasets"][f"{key}_labels"]]


# --- Nothing over anything else ---------------------------------------------------------------------------------------


@cache
def drawn(case: str, batch_axis: str = "log", language: str = "en") -> dict[str, Any]:
    return chart.data(CASES[case], batch_axis=batch_axis, language=language)


OTHERS = [(case, "linear", "en") for case in CASES] + [
    (case, axis, "ko") for case in CASES for axis in chart.BATCH_AXES
]


@pytest.mark.parametrize(
    ("case", "batch_axis", "language"),
    [(case, "log", "en") for case in CASES] + [pytest.param(*other, marks=pytest.mark.slow) for other in OTHERS],
)
def test_no_label_covers_anything(case, batch_axis, language):
    data = drawn(case, batch_axis, language)
    for name in chart.PLOTS:
        assert collisions(data, "p" + name.replace(".", "")) == [], name


@pytest.mark.parametrize("case", CASES)
def test_every_line_that_is_drawn_has_its_name(case):
    sets = drawn(case)["datasets"]
    for key in ("p11", "p12", "p21", "p22"):
        lines = {row["role"] for row in sets[f"{key}_lines"]}
        assert lines <= {row["role"] for row in sets[f"{key}_labels"]}, key


@pytest.mark.parametrize("case", CASES)
def test_the_batch_to_run_and_the_capacity_are_named(case):
    data = drawn(case)
    run = f"run {CASES[case].optimum.batch:,}"
    for key in ("p13", "p23"):
        assert any(text.startswith(run) for text in texts(data, key)), texts(data, key)
    full = f"full at {CASES[case].capacity_batch:,.0f}"
    for name in chart.PLOTS:
        key = "p" + name.replace(".", "")
        assert any(full in text for text in texts(data, key)), (key, texts(data, key))


ANY = {
    "weights": st.floats(1e-4, 1e-1),
    "compute": st.floats(-7, -3.5).map(lambda power: 10**power),
    "kv": st.floats(-7, -2).map(lambda power: 10**power),
    "capacity": st.floats(0, 5).map(lambda power: int(10**power)),
    "share": st.one_of(st.none(), st.floats(1.05, 10)),
    "reading": st.sampled_from(["bound", "serial"]),
    "experts": st.one_of(st.none(), st.just((256, 8))),
    "batch_axis": st.sampled_from(["log", "linear"]),
}


def check_any(weights, compute, kv, capacity, share, reading, experts, batch_axis):
    limit = None if share is None else share * weights
    made = curve(weights, compute, kv, capacity, limit=limit, reading=reading, experts=experts)
    data = chart.data(made, batch_axis=batch_axis)
    for name in chart.PLOTS:
        assert collisions(data, "p" + name.replace(".", "")) == []


@given(**ANY)
@settings(max_examples=examples(8))
def test_no_label_covers_anything_whatever_the_curve(**drawn_at_random):
    check_any(**drawn_at_random)


@pytest.mark.slow
@given(**ANY)
@settings(max_examples=examples(300))
def test_no_label_covers_anything_in_hundreds_of_curves(**drawn_at_random):
    check_any(**drawn_at_random)


def test_the_same_curve_is_always_drawn_alike():
    assert chart.data(LIMITED) == chart.data(LIMITED)


@pytest.mark.parametrize("language", strings.LANGUAGES)
@pytest.mark.parametrize("case", CASES)
def test_titles_and_subtitles_fit_above_their_plots(case, language):
    story = six.story_of(CASES[case], batch_axis="log", language=language, batches=None, measured=())
    for scene in six.scenes(story):
        assert text_width(scene.title, 15, bold=True) < 410, scene.title
        assert text_width(scene.subtitle, 13) < 400, scene.subtitle


# --- The right numbers ------------------------------------------------------------------------------------------------


def rows_of(data: dict[str, Any], key: str, role: str) -> tuple[Any, Any]:
    rows = [row for row in data["datasets"][f"{key}_lines"] if row["role"] == role]
    return np.array([row["batch"] for row in rows]), np.array([row["value"] for row in rows])


def test_lines_are_the_article():
    data = chart.data(LIMITED)
    for key, role, of in (
        ("p11", "weights", lambda b: np.full_like(b, 7.35)),
        ("p11", "kv", lambda b: 0.070 * b),
        ("p11", "compute", lambda b: 0.0353 * b),
        ("p12", "memory", lambda b: 7.35 + 0.070 * b),
        ("p13", "step", lambda b: np.maximum(7.35 + 0.070 * b, 0.0353 * b)),
    ):
        batch, value = rows_of(data, key, role)
        assert value == pytest.approx(of(batch), rel=1e-5), (key, role)
        per_token = of(batch) / batch * 8.4 / 3.6  # ms per token -> USD per million tokens
        if role in {"step", "kv", "compute", "weights", "memory"}:
            cost = rows_of(data, key.replace("p1", "p2"), role)[1]
            assert cost == pytest.approx(per_token, rel=1e-5), (key, role)


def test_few_batches_still_bend_where_the_article_bends():
    few = curve(4.48e-3, 1.52e-5, 1.0e-5, 1801, batches=[1, 2048, 4096])
    batch, value = rows_of(chart.data(few), "p13", "step")
    assert value == pytest.approx(1e3 * np.maximum(4.48e-3 + 1.0e-5 * batch, 1.52e-5 * batch), rel=1e-5)
    assert np.min(np.abs(batch - few.knee_batch)) < 1e-6 * few.knee_batch


def test_both_cost_axes_are_the_same_line():
    for made, hourly in ((LIMITED, 8.4), (CASES["1B on a 4090"], 0.54)):
        for batch_axis in chart.BATCH_AXES:
            signals = chart.data(made, ["2.3"], batch_axis=batch_axis)["signals"]
            for end in ("low", "high"):
                # USD/Mtoken = ms per token x USD/h / 3.6
                assert signals[f"p23_y_{end}"] == pytest.approx(signals[f"p23_right_{end}"] * hourly / 3.6, rel=1e-4)


def test_without_a_price_cost_is_time():
    data = chart.data(CASES["no price"], ["2.3"])
    batch, value = rows_of(data, "p23", "step")
    assert value == pytest.approx((4.48 + 0.030 * batch) / batch, rel=1e-5)
    assert "p23_right_low" not in data["signals"]
    assert "$" not in json.dumps(data["datasets"]) + data["signals"]["p23_title"]


def test_marks_floors_limit_and_capacity_stand_where_they_should():
    sets = chart.data(LIMITED)["datasets"]
    marks = {row["look"]: row for row in sets["p13_marks"]}
    assert marks["run"]["batch"] == LIMITED.optimum.batch == 180
    assert marks["run"]["value"] == pytest.approx(7.35 + 0.070 * 180)
    levels = {row["role"]: row["value"] for row in sets["p13_levels"]}
    assert levels == {"floor": 7.35, "limit": 20.0}
    assert {row["role"]: row["batch"] for row in sets["p13_edges"]} == {"capacity": 294, "run": 180}
    assert sets["p13_shade"][0]["batch"] == 294
    assert sets["p23_levels"][0]["value"] == pytest.approx(0.070 * 8.4 / 3.6, rel=1e-5)


def test_knee_is_marked_where_compute_crosses_memory():
    sets = chart.data(KNEE)["datasets"]
    knee = next(row for row in sets["p12_marks"] if row["look"] == "knee")
    assert knee["batch"] == pytest.approx(4.48e-3 / 0.52e-5, rel=1e-5)
    assert knee["value"] == pytest.approx(1.52e-2 * knee["batch"], rel=1e-5)
    assert "knee 862" in texts(drawn("8B bf16, H100, 256: knee"), "p12")
    # The batch to run is the knee itself: one mark, named once.
    assert any(
        "(knee)" in text or text.startswith("run 862") for text in texts(drawn("8B bf16, H100, 256: knee"), "p13")
    )


@pytest.mark.parametrize(
    ("case", "name", "title"),
    [
        ("70B fp8, 2 x H200, 4k, limit", "1.1", "1.1 KV 12.6 ms, weights 7.35 ms, compute 6.35 ms"),
        ("70B fp8, 2 x H200, 4k, limit", "1.2", "1.2 Memory decides at every batch"),
        ("70B fp8, 2 x H200, 4k, limit", "1.3", "1.3 19.9 ms a step, never below 7.35 ms"),
        ("70B fp8, 2 x H200, 4k, limit", "2.2", "2.2 KV fetch is the floor; compute lies below"),
        ("8B bf16, H100, 256: knee", "1.2", "1.2 Compute overtakes memory at batch 862"),
        ("8B bf16, H100, 256: knee", "2.2", "2.2 Compute is the floor; KV fetch lies below"),
        ("knee beyond the capacity", "1.2", "1.2 Memory decides at every batch that fits"),
        ("serial", "1.2", "1.2 Compute takes longer from batch 862 on"),
        ("serial", "2.2", "2.2 KV fetch and compute add up to the floor"),
    ],
)
def test_titles_say_the_answer(case, name, title):
    signals = chart.data(CASES[case], [name])["signals"]
    assert signals[f"p{name.replace('.', '')}_title"] == title


def test_headline_says_what_to_run_and_why():
    spec = chart.six_plots(LIMITED)
    signals = {param["name"]: param["value"] for param in spec["params"]}
    assert signals["figure_title"].endswith("$8.40/h: run a batch of 180")
    said = " ".join(spec["title"]["subtitle"])
    assert "$0.26 per million tokens (1.58x the floor)" in said
    assert "pass your limit of 20 ms" in said
    assert "full at 294" in said


def test_axis_ends_leave_out_what_nobody_chooses():
    signals = chart.data(curve(7.35e-3, 3.53e-5, 7.0e-5, 5, batches=np.geomspace(1, 1e6, 300)))["signals"]
    assert signals["p13_x_high"] == pytest.approx(20)
    assert chart.data(LIMITED, batches=(1, 64))["signals"]["p13_x_high"] == 64


def test_predictions_bring_their_layers():
    made = CASES["prediction"]
    points = [{"batch": b, "t_step_s": 1.1 * float(np.interp(b, made.batch, made.t_step))} for b in (1, 16, 64)]
    sets = chart.data(made, measured=points)["datasets"]
    band = sets["p13_band"]
    assert len(band) > 50
    assert all(row["high"] == pytest.approx(1.25 / 0.8 * row["low"], rel=1e-4) for row in band)
    assert {row["role"] for row in sets["p13_lines"]} == {"step", "bound"}
    assert {"overhead", "communication"} <= {row["role"] for row in sets["p11_lines"]}
    measured = [row for row in sets["p23_marks"] if row["look"] == "measured"]
    assert [row["value"] for row in measured] == pytest.approx(
        [p["t_step_s"] / p["batch"] * 8.4 / 3600e-6 for p in points], rel=1e-4
    )
    assert "measured" in texts({"datasets": sets}, "p13")
    assert chart.data(LIMITED)["datasets"]["p13_band"] == []


@pytest.mark.parametrize("case", CASES)
def test_breakdown_adds_up_to_the_whole_step(case):
    spec = chart.breakdown(CASES[case])
    total: dict[float, float] = {}
    for row in spec["datasets"]["breakdown_parts"]:
        total[row["batch"]] = total.get(row["batch"], 0.0) + row["share"]
    assert list(total.values()) == pytest.approx([100.0] * len(total), abs=1e-2)
    names = spec["datasets"]["breakdown_names"]
    assert len(names) == len({row["role"] for row in spec["datasets"]["breakdown_parts"]})
    assert not any(overlap(a, b) for a, b in combinations(boxes(names), 2))
    above = [
        (x0, 0, x1, 10, t)
        for x0, _, x1, _, t in boxes([{**r, "y": 0} for r in spec["datasets"]["breakdown_edge_names"]])
    ]
    assert not any(overlap(a, b) for a, b in combinations(above, 2))


def test_breakdown_is_named_after_its_parts():
    titles = [
        row["value"] for row in chart.breakdown(CASES["prediction"])["params"] if row["name"] == "breakdown_title"
    ]
    assert titles[0].startswith("Batch ")


def test_breakdown_of_the_bound_shows_compute_beyond_memory():
    spec = chart.breakdown(KNEE)
    beyond = [row for row in spec["datasets"]["breakdown_parts"] if row["role"] == "compute_beyond"]
    at = {row["batch"]: row["share"] for row in beyond}
    assert max(share for batch, share in at.items() if batch <= 861) == 0
    batch = max(at)
    assert at[batch] == pytest.approx(100 * (1.52e-5 * batch - 4.48e-3 - 1e-5 * batch) / (1.52e-5 * batch), rel=1e-3)
    named = {row["text"] for row in chart.breakdown(CASES["prediction"])["datasets"]["breakdown_names"]}
    assert named == {"weights", "KV", "compute", "communication", "overhead"}


@pytest.mark.parametrize(
    ("made", "ticks"),
    [
        (batch_ticks(1, 1024), [1, 4, 16, 64, 256, 1024]),
        (batch_ticks(1, 8), [1, 2, 4, 8]),
        (batch_ticks(1, 2**20), [1, 16, 256, 4096, 65536, 1048576]),
        (linear_ticks(0, 47), [0, 10, 20, 30, 40]),
        (linear_ticks(0, 0.0125), [0, 0.0025, 0.005, 0.0075, 0.01, 0.0125]),
        (log_ticks(0.05, 20), [0.1, 0.3, 1, 3, 10]),
        (log_ticks(1e-6, 10), [1e-6, 1e-4, 1e-2, 1]),
        (log_ticks(2, 11), [2, 3, 5, 7, 10]),
    ],
)
def test_ticks_are_round(made, ticks):
    assert made == pytest.approx(ticks)


# --- Readable by everybody --------------------------------------------------------------------------------------------


def linear_rgb(colour: str) -> Any:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """Ratio of WCAG 2.2."""
    light, dark = sorted((float(linear_rgb(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", looks.THEMES)
def test_text_reads_at_aa(theme):
    palette = looks.palette(theme)
    for role in (
        "text",
        "muted",
        "weights",
        "kv",
        "compute",
        "memory",
        "step",
        "limit",
        "bound",
        "overhead",
        "communication",
    ):
        for ground in ("background", "shade"):
            assert contrast(palette[role], palette[ground]) >= 4.5, (role, ground)
    assert contrast(palette["frame"], palette["background"]) >= 3


# Severe dichromacy, Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def lab(rgb: Any) -> Any:
    """CIE L*a*b* of a linear RGB colour under D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", BLINDNESS)
@pytest.mark.parametrize("theme", looks.THEMES)
def test_lines_of_one_plot_differ_for_every_sight(theme, sight):
    palette = looks.palette(theme)
    # A difference of 2.3 is just seen; the five lines of a prediction have names that touch them as well.
    article, prediction = ("weights", "kv", "compute"), ("weights", "kv", "compute", "overhead", "communication")
    for together, apart in ((article, 18), (("memory", "compute"), 18), (prediction, 11)):
        for a, b in combinations(together, 2):
            seen = [lab(BLINDNESS[sight] @ linear_rgb(palette[role])) for role in (a, b)]
            assert float(np.linalg.norm(seen[0] - seen[1])) > apart, (a, b)


def ink_width(text: str, size: float, weight: str) -> float:
    """Width of the ink of a text as drawn, from the pixels of a PNG."""
    import vl_convert

    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="600" height="40"><rect width="600" height="40" fill="white"/>'
        f'<text x="20" y="28" font-size="{size}" font-weight="{weight}" font-family="sans-serif">{text}</text></svg>'
    )
    png = vl_convert.svg_to_png(svg)
    width, height = struct.unpack(">II", png[16:24])
    chunks, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            chunks += png[at + 8 : at + 8 + length]
        at += 12 + length
    raw = np.frombuffer(zlib.decompress(chunks), dtype=np.uint8).reshape(height, width * 4 + 1)
    pixels = np.zeros((height, width * 4), dtype=np.int64)
    for y in range(height):
        pixels[y] = unfiltered(
            raw[y, 0], raw[y, 1:].astype(np.int64), pixels[y - 1] if y else np.zeros(width * 4, np.int64)
        )
    dark = np.flatnonzero((pixels.reshape(height, width, 4)[..., 0] < 128).any(axis=0))
    return float(dark[-1] - dark[0] + 1)


def unfiltered(kind: int, line: Any, above: Any) -> Any:
    """One line of a PNG, 4 bytes a pixel."""
    found = line.copy()
    for i in range(len(line)):
        left = found[i - 4] if i >= 4 else 0
        corner = above[i - 4] if i >= 4 else 0
        guess = left + above[i] - corner
        nearest = min((left, above[i], corner), key=lambda value: abs(guess - value))
        found[i] = (line[i] + [0, left, above[i], (left + above[i]) // 2, nearest][kind]) % 256
    return found


@pytest.mark.parametrize("weight", ["normal", "bold"])
@pytest.mark.parametrize(
    "text", ["memory = weights + KV", "run 1,024: $0.26 a million tokens", "floor 7.35 ms: weights fetched once"]
)
def test_text_is_as_wide_as_thought(text, weight):
    drawn = ink_width(text, 20, weight)
    thought = text_width(text, 20, bold=weight == "bold")
    assert drawn - 2 <= thought <= 1.08 * drawn + 2


def test_wrapping():
    assert wrapped("a line of words", 10, 1e9) == ["a line of words"]
    assert wrapped("a line of words", 10, 1) == ["a", "line", "of", "words"]
    lines = wrapped("to be or not to be", 10, 40)
    assert " ".join(lines) == "to be or not to be"
    assert all(text_width(line, 10) <= 40 for line in lines)


# --- Vega-Lite --------------------------------------------------------------------------------------------------------


def named_data(spec: Any) -> set[str]:
    if isinstance(spec, list):
        return set().union(*(named_data(item) for item in spec))
    if not isinstance(spec, dict):
        return set()
    own = {spec["data"]["name"]} if isinstance(spec.get("data"), dict) and "name" in spec["data"] else set()
    return own.union(*(named_data(value) for key, value in spec.items() if key != "datasets"))


@pytest.mark.parametrize("case", ["70B fp8, 2 x H200, 4k, limit", "no price", "prediction"])
def test_every_dataset_is_drawn_and_every_drawn_one_is_there(case):
    spec = chart.six_plots(CASES[case])
    assert named_data(spec) == set(spec["datasets"])
    found = chart.data(CASES[case])
    assert found["datasets"] == spec["datasets"]
    assert found["signals"] == {param["name"]: param["value"] for param in spec["params"]}
    assert not any("values" in json.dumps(plot.get("data", {})) for plot in spec["concat"])


def test_structure_does_not_depend_on_the_curve():
    """A page may put another curve of the same kind into a drawn chart."""
    first, second = chart.six_plots(LIMITED), chart.six_plots(KNEE)
    assert first["concat"] == second["concat"]
    assert set(first["datasets"]) == set(second["datasets"])
    assert [p["name"] for p in first["params"]] == [p["name"] for p in second["params"]]


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_specification_keeps_the_schema(theme):
    import altair as alt
    from altair.utils import schemapi

    for spec in (
        chart.plot(LIMITED, "1.3", theme=theme),
        chart.plot(CASES["prediction"], "2.3", theme=theme, language="ko"),
        chart.breakdown(KNEE, theme=theme),
        {**chart.six_plots(LIMITED, theme=theme), "concat": [{"mark": "point"}]},  # each plot is checked above
    ):
        schemapi.validate_jsonschema(spec, alt.load_schema())


def test_a_solid_line_has_no_dashes(tmp_path: Path):
    """Dashes of a pixel without gaps look the same, and a browser draws them pixel by pixel."""
    drawn = chart.save(chart.six_plots(CASES["prediction"]), tmp_path / "six.svg").read_text()
    dashes = re.findall(r'stroke-dasharray="([^"]*)"', drawn)
    assert "5,4" in dashes
    assert not [dash for dash in dashes if dash and dash.endswith(",0")]


def test_a_compiled_plot_has_the_names_of_the_chart():
    spec = chart.plot(CASES["prediction"], "2.3")
    vega = chart.compiled(spec)
    assert vega["$schema"].endswith("vega/v6.json")
    assert set(spec["datasets"]) - {"hover"} <= {data["name"] for data in vega["data"]}
    assert {param["name"] for param in spec["params"]} <= {signal["name"] for signal in vega["signals"]}
    assert '"hover"' not in json.dumps(vega)
    assert "aria" not in json.dumps(vega["marks"])


def test_unknown_words_are_refused():
    with pytest.raises(UnknownNameError, match=r"no plot '1\.4'.*1\.1"):
        chart.plot(LIMITED, "1.4")
    with pytest.raises(UnknownNameError, match="no theme 'sepia'"):
        chart.six_plots(LIMITED, theme="sepia")
    with pytest.raises(UnknownNameError, match=r"no batch axis 'logarithmic'.*log"):
        chart.six_plots(LIMITED, batch_axis="logarithmic")
    with pytest.raises(UnknownNameError, match="no language 'fr'"):
        chart.data(LIMITED, language="fr")


# --- Files ------------------------------------------------------------------------------------------------------------


def test_png_svg_and_json(tmp_path: Path):
    spec = chart.plot(LIMITED, "1.3")
    png = chart.save(spec, tmp_path / "one.png").read_bytes()
    width, height = struct.unpack(">II", png[16:24])
    small = chart.save(spec, tmp_path / "small.PNG", scale=1).read_bytes()
    assert (width, height) == tuple(2 * n for n in struct.unpack(">II", small[16:24]))
    svg = chart.save(spec, tmp_path / "one.svg").read_text()
    assert "run 180: 19.9 ms a step" in svg
    assert 'opacity="0"' not in svg
    assert chart.save(spec, tmp_path / "again.svg").read_text() == svg
    clips = set(re.findall(r'id="(clip[^"]+)"', svg))
    assert clips == set(re.findall(r"url\(#(clip[^)]+)\)", svg))
    other = chart.save(chart.plot(LIMITED, "1.2"), tmp_path / "other.svg").read_text()
    assert clips.isdisjoint(re.findall(r'id="(clip[^"]+)"', other))
    assert json.loads(chart.save(spec, tmp_path / "one.json").read_text()) == spec


def test_page_needs_no_network(tmp_path: Path):
    title = "</script><script>alert(1)</script>"
    page = chart.save(chart.six_plots(replace(LIMITED, title=title), theme="dark"), tmp_path / "six.html").read_text()
    head, _, body = page.partition('<div id="chart"')
    assert "src=" not in head
    assert "<link" not in page
    assert "import(" not in body.replace("import(e)", "")
    assert "<script>alert(1)" not in page
    assert looks.palette("dark")["background"] in head


def test_bad_names_of_files(tmp_path: Path):
    with pytest.raises(InputError, match=r"'six\.gif' names no kind of picture.*\.png"):
        chart.save(chart.plot(LIMITED, "1.1"), tmp_path / "six.gif")
    with pytest.raises(InputError, match="cannot be written: No such file"):
        chart.save(chart.plot(LIMITED, "1.1"), tmp_path / "nowhere" / "six.json")


def test_korean_is_not_drawn_as_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import vl_convert

    monkeypatch.setattr(vl_convert, "svg_to_png", lambda _svg: b"box")
    spec = chart.plot(LIMITED, "1.1", language="ko")
    with pytest.raises(MissingFactError, match=r"no font with Korean letters.*fonts-nanum.*\.svg"):
        chart.save(spec, tmp_path / "one.png")
    assert "가중치" in chart.save(spec, tmp_path / "one.svg").read_text()


@pytest.mark.slow
@pytest.mark.browser
def test_page_draws_in_a_browser_without_a_network(tmp_path: Path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium")
    page = chart.save(chart.six_plots(LIMITED), tmp_path / "six.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000"]
    offline = "--host-resolver-rules=MAP * ~NOTFOUND"
    dom = subprocess.run(
        [chromium, *flags, offline, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    assert "run a batch of 180" in dom
    assert dom.count("mark-line") >= 6


def test_importing_charts_loads_neither_altair_nor_the_converter():
    code = "import batchline.chart, sys; print(sorted({'altair', 'vl_convert', 'pandas'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_charts_speak_of_a_real_deployment_in_both_languages():
    from batchline import sweep
    from batchline.deployment import Deployment

    made = sweep.curve(Deployment.of("llama-3.1-8b", "2xh100"), context=2048, reading="bound")
    titles = {lang: chart.data(made, ["1.3"], language=lang)["signals"]["figure_title"] for lang in strings.LANGUAGES}
    assert titles["en"].startswith(made.title)
    assert " 2대, 컨텍스트 2,048, 시간당 $" in titles["ko"]
    assert f"권장 배치 {made.optimum.batch:,}" in titles["ko"]
