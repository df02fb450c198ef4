"""Measured points beside a curve: at their own place, by the curve's own coefficients, nothing silently dropped."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from batchline import readings, sweep
from batchline.cli import cli
from batchline.deployment import Deployment
from batchline.measure import MeasuredPoint
from batchline.measure.beside import beside

DEPLOYMENT = Deployment.of("llama-3.1-8b", "h100")
CURVE = sweep.curve(DEPLOYMENT, 2048, reading="predict")


@given(batch=st.integers(1, 128), context=st.floats(128, 16384), times=st.floats(0.7, 3.0))
def test_a_step_is_laid_beside_the_prediction_at_its_own_context(batch, context, times):
    predicted = float(readings.steps(DEPLOYMENT, context, batch, "predict").t_step[0])
    point = MeasuredPoint(regime="decode", batch=batch, context=context, t_step_s=times * predicted)
    (one,), left = beside([point], CURVE)
    assert left == []
    assert one.predicted_s == predicted
    assert one.off == pytest.approx(1 / times - 1)
    assert one.near == (2048 / 1.25 <= context <= 2048 * 1.25)


def test_a_served_point_is_laid_beside_the_tpot_of_its_load():
    point = MeasuredPoint(regime="serving", concurrency=32, isl=1024, osl=1024, tpot_s=12e-3)
    (one,), _ = beside([point], CURVE)
    assert one.predicted_s == float(readings.steady(DEPLOYMENT, 1024, 1024, 32).tpot_s)
    assert (one.batch, one.context) == (32, 1536)


def test_what_cannot_be_laid_there_is_named_and_what_misleads_is_marked():
    points = [
        MeasuredPoint(regime="decode", batch=8, context=2048, t_step_s=1e-3, label="too fast"),
        MeasuredPoint(regime="decode", batch=8, t_step_s=9e-3, label="nowhere"),
        MeasuredPoint(regime="decode", batch=8, context=2048, t_step_s=9e-3, tp=2, label="other"),
        MeasuredPoint(regime="throughput", batch=8, context=2048, tpot_s=9e-3, label="mixed"),
    ]
    (one,), left = beside(points, CURVE)
    assert [hazard.name for hazard in one.hazards] == ["faster_than_bound"]
    assert not one.usable
    assert beside(points, CURVE, overrule=["all"])[0][0].usable
    assert left == [
        "nowhere: context not known",
        "other: tp is 2, of the deployment 1",
        "mixed: regime throughput holds prefill in its steps",
    ]


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("batch,context,t_step_ms\n1,2048,7.1\n16,2048,9.0\n64,2048,14\n64,8192,30\n2,2048,1\n")
    return file


def test_the_curve_draws_them(table, tmp_path):
    asked = ["curve", "llama-3.1-8b", "--on", "h100", "--context", "2k", "--measured", str(table)]
    said = CliRunner().invoke(cli, [*asked, "--language", "en", "--plot", str(tmp_path / "six.svg")])
    assert said.exit_code == 0, said.exception
    assert "of 4 points. 1 with a hazard are not counted" in said.stdout
    assert "faster_than_bound" in said.stdout
    assert "2 of 5 measured points are not drawn" in said.stderr
    assert (tmp_path / "six.svg").read_text().count("measured") >= 1
    found = json.loads(CliRunner().invoke(cli, [*asked, "--json"]).stdout)["measured"]
    assert [(row["batch"], row["near"], row["usable"]) for row in found] == [
        (1, True, True),
        (16, True, True),
        (64, True, True),
        (64, False, True),
        (2, True, False),
    ]


def test_the_report_lists_them_with_their_hazards(table, tmp_path):
    out = tmp_path / "r.md"
    asked = ["report", "llama-3.1-8b", "--on", "h100", "--context", "2k", "--measured", str(table), "--out", str(out)]
    said = CliRunner().invoke(cli, [*asked, "--language", "en"])
    assert said.exit_code == 0, said.exception
    text = out.read_text().replace("\\_", "_")
    assert "faster_than_bound" in text
    assert "8,192" in text
