"""Plans as pictures: valid Vega-Lite, every member of the front on it, files that can be written."""

import dataclasses
import json
import re

import pytest

from batchline import chart_plan
from batchline.chart import save
from batchline.errors import InputError
from batchline.planner import plan
from batchline.sensitivity import Bar, tornado
from batchline.strings import text
from tests.test_planner import SMALL, Question


@pytest.fixture(scope="module")
def answer():
    return plan(Question(**SMALL))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_member_of_the_front_is_drawn(answer, theme, tmp_path):
    spec = chart_plan.pareto(answer, theme=theme)
    points = spec["datasets"]["front"]
    assert [point["usd_per_month"] for point in points] == [one.usd_per_month for one in answer.front]
    words = spec["datasets"]["words"]
    assert "cheapest" in json.dumps(words)
    assert {row["group"] for row in spec["datasets"]["front"]} == {row["group"] for row in words} - {""}
    stairs = spec["datasets"]["stairs"]
    assert [s["usd_per_month"] for s in stairs] == sorted((s["usd_per_month"] for s in stairs), reverse=True)
    page = save(spec, tmp_path / "front.svg").read_text()
    assert answer.best.accelerator in page


def test_the_best_is_inside_the_axes_where_the_front_leaves_it_out(answer):
    slow = dataclasses.replace(answer.best, tpot_s=9 * max(one.tpot_s for one in answer.front))
    spec = chart_plan.pareto(dataclasses.replace(answer, candidates=(slow, *answer.candidates[1:])))
    domains = re.findall(
        r'"field": "tpot_ms", "scale": {"domain": \[([\d.e+]+), ([\d.e+]+)\]', json.dumps(spec, sort_keys=True)
    )
    assert domains
    assert all(float(low) < slow.tpot_s * 1e3 < float(high) for low, high in domains)


def test_the_tornado_says_what_cannot_be(answer, tmp_path):
    bars = [*tornado(answer, 0.3)[:2], Bar(
        variable="itl", low=0.01, high=0.03, usd_low=None, usd_high=1000.0, winner_low="", winner_high="x",
        same_low=False, same_high=True,
    )]  # fmt: skip
    spec = chart_plan.tornado(answer, bars)
    rows = spec["datasets"]["bars"]
    assert len(rows) == 6
    assert any("impossible" in row["value"] for row in rows)
    for bar in bars:
        sides = [row["side"] for row in rows if row["variable"] == chart_plan._called(bar.variable, text)]
        assert sorted(sides) == ["high", "low"]
    assert "what moves the cost" in save(spec, tmp_path / "tornado.html").read_text()
    with pytest.raises(InputError):
        chart_plan.tornado(answer, [])


def test_specifications_hold_to_the_schema(answer):
    import altair as alt

    alt.Chart.from_dict(chart_plan.pareto(answer), validate=True)
