"""Results show themselves in a notebook, which need not be there for that."""

import re

import pytest

from batchline import notebook, planner, sweep
from batchline.calibrate import Calibration, calibrate
from batchline.deployment import Deployment
from batchline.measure import read
from batchline.price_sheet import PriceSheet, price_sheet
from batchline.report import as_html
from batchline.simulate import Result, pool_of, simulate
from batchline.workload import Fixed, Poisson, synthetic

DEPLOYMENT = Deployment.of("llama-3.1-8b", "h100")


def curve(_):
    return sweep.curve(DEPLOYMENT, 4096, reading="predict")


def plan(_):
    return planner.plan(planner.Question(model="llama-3.1-8b", isl=1024, osl=256, rate=2.0, accelerators=("h100",)))


def sheet(_):
    return price_sheet(DEPLOYMENT, 1024, 256)


def simulation(_):
    return simulate(pool_of(DEPLOYMENT, context=1152), synthetic(Poisson(4), Fixed(1024), Fixed(256), count=50))


def calibration(folder):
    file = folder / "mine.csv"
    file.write_text("batch,context,t_step_s\n1,2304,0.0080\n8,2304,0.0091\n32,2304,0.0123\n64,2304,0.0168\n")
    return calibrate(read(file), DEPLOYMENT)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (curve, "권장 배치"),
        (plan, "계획|월 "),
        (sheet, "원가"),
        (simulation, "토큰당 시간"),
        (calibration, "측정점 4개로 보정"),
    ],
)
def test_a_result_shows_itself_in_both_languages(made, says, tmp_path, monkeypatch):
    thing = made(tmp_path)
    shown = thing._repr_html_()
    assert shown.startswith('<div class="batchline">')
    assert not re.search("<script|http:|https:|[가-힣]", shown)
    assert re.search(says, as_html(thing, "ko"))
    assert ("data:image/svg+xml" in shown) == (made is not calibration)
    monkeypatch.setenv("BATCHLINE_LANGUAGE", "ko")
    assert thing._repr_html_() == as_html(thing, "ko")


def test_all_results_show_themselves():
    for kind in (sweep.Curve, planner.Plan, PriceSheet, Calibration, Result):
        assert issubclass(kind, notebook.Shown)
