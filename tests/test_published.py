"""The published errors: one writer for page and command, figures that agree, and a command that shows them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchline import published
from batchline.cli import cli
from batchline.prior import NOVELTIES

ROOT = Path(__file__).parents[1]
TABLE = """model,hw,engine,isl,osl,batch_or_concurrency,decode_step_ms,ttft_ms
Llama-3.1-8B,H100,vLLM 0.9.1,1024,256,16,9.0,60
Llama-3.1-8B,H100,vLLM 0.9.1,1024,256,64,14.0,150
gpt-9,H100,vllm,1024,256,16,9.0,60
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "served.csv"
    path.write_text(TABLE)
    return path


def test_the_page_is_what_the_package_ships():
    assert (ROOT / "docs" / "validation.md").read_text(encoding="utf-8") == published.page()


def test_every_novelty_is_published_with_its_coverage():
    data = published.load()
    assert [line["new"] for line in data["coverage"]] == list(NOVELTIES)
    for line in data["coverage"]:
        assert 0.85 <= line["tpot"]["held"][1] <= 0.95
    assert data["plausible"] <= data["rows"]
    errors = [line["tpot"]["mape"] for line in data["splits"]]
    assert errors[0] == min(errors)  # what the fit has seen is predicted best


def test_without_a_file_the_published_errors_are_shown():
    shown = CliRunner().invoke(cli, ["validate"]).output
    for line in published.load()["splits"]:
        assert published.three(line["tpot"]) in shown
    assert json.loads(CliRunner().invoke(cli, ["validate", "--json"]).stdout) == published.load()


def test_the_report_of_the_command_is_the_page(tmp_path):
    path = tmp_path / "page.md"
    assert CliRunner().invoke(cli, ["validate", "--report", str(path)]).exit_code == 0
    assert path.read_text(encoding="utf-8") == published.page()


def test_a_table_of_ones_own(table, tmp_path):
    report, plot = tmp_path / "own.md", tmp_path / "own.json"
    ran = CliRunner().invoke(cli, ["validate", str(table), "--report", str(report), "--plot", str(plot)])
    assert ran.exit_code == 0, ran.output
    assert "2 of 3 rows predicted" in ran.output
    assert "gpt-9" in report.read_text(encoding="utf-8")
    assert len(json.loads(plot.read_text())["datasets"]["tpot_rows"]) == 2


def test_json_has_each_row_and_a_summary(table):
    said = json.loads(CliRunner().invoke(cli, ["validate", str(table), "--json"]).stdout)
    first, _, last = said["rows"]
    names = {"tpot_s", "tpot_low_s", "tpot_high_s", "ttft_s", "ttft_low_s", "ttft_high_s", "bound_s", "novelty"}
    assert names <= set(first)
    assert first["bound_s"] <= first["tpot_low_s"] <= first["tpot_s"] <= first["tpot_high_s"]
    assert "gpt-9" in last["refused"]
    summary = said["summary"]
    assert summary["n"] == 3
    assert sum(summary["refused"].values()) == 1
    for of in ("tpot", "ttft"):
        assert {"n", "mape", "median", "p90", "bias", "coverage"} == set(summary[of])
    assert {"engine", "model", "accelerator", "regime", "novelty", "qc"} == set(summary["by"])
    assert [line["who"] for line in summary["beside"]] == ["Batchline", "the article's bound"]


def test_rows_of_several_tables_name_theirs(table, tmp_path):
    other = tmp_path / "other.csv"
    fast = "model,hw,engine,isl,osl,batch_or_concurrency,decode_step_ms\nllama-3.1-8b,H100,vllm,1024,256,8,0.1\n"
    other.write_text(fast, encoding="utf-8")
    ran = CliRunner().invoke(cli, ["validate", str(table), str(other), "--json"])
    assert [row["file"] for row in json.loads(ran.stdout)["rows"]] == [table.name] * 3 + ["other.csv"]
    assert "other.csv 2" in ran.stderr


def test_korean(table):
    shown = CliRunner().invoke(cli, ["validate", str(table), "--language", "ko"]).output
    assert "3행 가운데 2행을 예측했습니다" in shown


def test_a_folder_without_tables_is_named(tmp_path):
    ran = CliRunner().invoke(cli, ["validate", str(tmp_path)])
    assert ran.exit_code != 0
    assert "no CSV file" in str(ran.exception)
