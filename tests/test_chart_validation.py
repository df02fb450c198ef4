"""Pictures of predicted against measured: every row once, guides where they say, both themes and languages."""

import json

import pytest

from batchline import chart, chart_validation, served_point, validate
from batchline.errors import InputError

ROW = {
    "model": "llama-3.1-8b", "hw": "h100", "engine": "vllm", "isl": "1024", "osl": "256",
    "batch_or_concurrency": "16", "decode_step_ms": "9.0", "ttft_ms": "60",
}  # fmt: skip


def outcomes(*changes):
    return validate.predict([served_point.point_of(ROW | change, i) for i, change in enumerate(changes, 2)])


def test_every_measured_row_is_a_dot_and_the_guides_are_a_quarter_off():
    spec = chart_validation.against_measured(outcomes({}, {"batch_or_concurrency": "64"}, {"ttft_ms": ""}))
    assert len(spec["datasets"]["tpot_rows"]) == 3
    assert len(spec["datasets"]["ttft_rows"]) == 2
    ratios = {round(row["predicted"] / row["measured"], 3) for row in spec["datasets"]["tpot_lines"]}
    assert ratios == {1.0, 1.25, 0.8}
    assert {row["model"] for row in spec["datasets"]["error_rows"]} == {"llama-3.1-8b"}
    assert all(0 <= row["value"] <= 1 for row in spec["datasets"]["coverage_rows"])


@pytest.mark.parametrize(
    ("slowest", "ticks"),
    [
        ("30.0", [5e-3, 1e-2, 2e-2, 5e-2]),
        ("3000", [1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0]),
        ("900000", [1e-2, 0.1, 1.0, 10.0, 100.0]),
    ],
)
def test_axes_name_round_numbers(slowest, ticks):
    spec = chart_validation.against_measured(outcomes({}, {"decode_step_ms": slowest}))
    assert spec["datasets"]["tpot_rows"]
    found = json.dumps(spec)
    assert json.dumps(ticks)[1:-1] in found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "ko"])
def test_it_can_be_drawn(theme, language, tmp_path):
    spec = chart_validation.against_measured(outcomes({}), theme=theme, language=language)
    path = chart.save(spec, tmp_path / "v.svg")
    assert path.read_text().startswith("<svg")


def test_nothing_to_draw_is_said():
    with pytest.raises(InputError, match="No row"):
        chart_validation.against_measured(outcomes({"decode_step_ms": ""}))
