"""`batchline simulate`: what it prints, writes and refuses."""

import csv
import io
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from batchline import strings
from batchline.cli import plan
from batchline.cli.simulate import command
from batchline.errors import BatchlineError
from batchline.workload import _trace

BASE = ["llama-3.1-8b", "--on", "h100"]
LOAD = ["--rate", "4/s", "--isl", "1k", "--osl", "100", "--requests", "60"]


def run(*arguments):
    result = CliRunner().invoke(command, [*BASE, *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def answer(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


def test_json_has_the_promised_keys():
    found = answer(*LOAD, "--ttft", "p95:2s")
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        assert {"p50", "p90", "p99", "mean"} <= set(found[metric])
    for key in ("requests_per_s", "output_tokens_per_s", "goodput", "preemptions", "kv_peak", "saturated_by"):
        assert key in found
    assert found["requests"] == 60
    assert found["promises_kept"] == {"ttft": True}


def test_text_says_what_it_did():
    text = run(*LOAD, "--ttft", "p95:2s", "--tpot", "1ms").stdout
    for part in ("60 requests", "first token", "Nothing saturates", "ttft p95:2s: kept", "tpot 1ms: broken", "$"):
        assert part in text


def test_korean(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHLINE_LANGUAGE", "ko")
    text = run(*LOAD, "--ttft", "p95:2s", "--plot", tmp_path / "over.svg").stdout
    for part in ("요청 60개", "첫 토큰", "막히는 곳이 없습니다", "ttft p95:2s: 지킴", "굿풋"):
        assert part in text
    assert "대기 중" in (tmp_path / "over.svg").read_text()
    assert answer(*LOAD)["sentence"].startswith("Nothing saturates")  # JSON is for programs


def test_csv_is_every_request():
    rows = list(csv.DictReader(io.StringIO(run(*LOAD, "--csv").stdout)))
    assert len(rows) == 60
    assert float(rows[0]["e2e_s"]) > float(rows[0]["ttft_s"]) > 0


def test_traffic_can_be_a_trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("when,in,out\n0,100,5\n2000,200,0\n1000,100,5\n")
    named = ["--trace", path, "--columns", "arrival=when,isl=in,osl=out", "--time-unit", "ms"]
    with pytest.raises(BatchlineError, match="row 3: out is 0"):
        run(*named)
    result = run(*named, "--repair")
    assert "2 requests" in result.stdout
    assert "rows without an answer left out" in result.stderr
    whole = answer(*named, "--repair", "--rate", "10/s")
    assert whole["duration_s"] < 0.5


def test_every_repair_of_a_trace_is_told_in_both_languages():
    source = (Path(_trace.__file__)).read_text(encoding="utf-8")
    kinds = set(re.findall(r'"((?:rows|lists|shared beginnings) [a-zA-Z0 ]+)"', source)) - {"rows sorted by time"}
    assert len(kinds) == 13
    told = {f"{kind} left out" for kind in kinds} | {"rows sorted by time"}
    assert {f"simulate.{what.casefold().replace(' ', '_')}" for what in told} <= set(strings.keys())


@pytest.mark.parametrize("pattern", ["poisson", "metronome", "gamma:3", "burst:5", "diurnal:1.5"])
def test_patterns(pattern):
    assert answer(*LOAD, "--arrivals", pattern)["requests"] == 60


def test_other_ways_to_ask(tmp_path):
    assert answer("--users", 5, "--think", "1s", "--isl", 100, "--osl", 20, "--requests", 30)["requests"] == 30
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("arrival_s,isl,osl\n0,300,7\n1,300,7\n")
    drawn = answer("--rate", "4/s", "--lengths", lengths, "--duration", "5s")
    assert drawn["mean_context"] == pytest.approx(303.5)
    spread = answer(*LOAD, "--spread", 0.5, "--scale-lengths", 2)
    assert spread["output_tokens_per_s"] / spread["requests_per_s"] == pytest.approx(200, rel=0.3)
    assert answer(*LOAD, "--shared-prefix", "2:512")["prefix_hit_rate"] > 0.2


@pytest.mark.parametrize(
    "engine",
    [
        ["--engine", "sglang", "--max-num-seqs", "8"],
        ["--scheduler", "static", "--max-num-seqs", "4", "--timeout", "100ms"],
        ["--scheduler", "train", "--period", "30ms"],
        ["--kv-blocks", "200", "--no-prefix-caching", "--block-size", "16"],
        ["--replicas", "3", "--router", "least_loaded"],
        ["--prefill-replicas", "2", "--transfer", "25GB/s"],
        ["--max-model-len", "4k", "--max-num-batched-tokens", "512", "--max-num-seqs", "100"],
    ],
    ids=lambda part: part[1] if isinstance(part, list) else part,
)
def test_engines_and_layouts(engine):
    assert answer(*LOAD, *engine)["requests"] == 60


def test_find_and_sweep():
    found = answer(*LOAD, "--rate", "20/s", "--max-num-seqs", 4, "--ttft", "p90:1s", "--find", "replicas")
    assert found["replicas"] > 1
    assert str(found["replicas"]) in found["tried"]
    best = answer(*LOAD, "--tpot", "p90:10ms", "--find", "max-num-seqs", "--max-num-seqs", 16)
    assert 1 <= best["max_num_seqs"] <= 16
    budget = answer(*LOAD, "--find", "max-num-batched-tokens", "--max-num-batched-tokens", 2048, "--max-num-seqs", 64)
    assert 64 <= budget["max_num_batched_tokens"] <= 2048
    assert budget["goodput"] == pytest.approx(max(one["goodput"] for one in budget["tried"].values()), rel=1e-6)
    swept = answer(*LOAD, "--sweep", "rate=2,8")
    assert [one["rate"] for one in swept["sweep"]] == [2, 8]
    text = run(*LOAD, "--sweep", "max-num-seqs=2,8").stdout
    assert "max_num_seqs" in text
    assert "goodput" in text
    rows = list(csv.DictReader(io.StringIO(run(*LOAD, "--sweep", "replicas=1,2", "--csv").stdout)))
    assert [row["replicas"] for row in rows] == ["1.0", "2.0"]


def test_files(tmp_path):
    files = [tmp_path / name for name in ("requests.csv", "over.svg", "times.html")]
    run(*LOAD, "--save", files[0], "--plot", files[1], "--plot-times", files[2], "--theme", "dark")
    assert all(file.stat().st_size > 1000 for file in files)
    table = np.genfromtxt(files[0], delimiter=",", names=True)
    assert len(table) == 60
    with pytest.raises(BatchlineError, match=r"\.csv or \.parquet"):
        run(*LOAD, "--save", tmp_path / "requests.xlsx")


def test_parquet(tmp_path):
    polars = pytest.importorskip("polars")
    run(*LOAD, "--save", tmp_path / "requests.parquet")
    assert len(polars.read_parquet(tmp_path / "requests.parquet")) == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Which traffic"),
        (["--rate", "4/s"], "How long"),
        ([*LOAD, "--arrivals", "poison"], "Closest: poisson"),
        ([*LOAD, "--arrivals", "gamma:x"], "no number"),
        ([*LOAD, "--router", "random"], "round_robin"),
        ([*LOAD, "--sweep", "speed=1"], "thing to sweep"),
        ([*LOAD, "--sweep", "replicas=1.5"], "above 0"),
        ([*LOAD, "--sweep", "rate="], "above 0"),
        ([*LOAD, "--sweep", "rate=1,2", "--plot", "x.svg"], "--plot is of one simulation"),
        ([*LOAD, "--find", "replicas"], "for what"),
        ([*LOAD, "--workers", "2"], "Add --find or --sweep"),
        ([*LOAD, "--find", "max-num-batched-tokens", "--scheduler", "static"], "no token budget"),
        ([*LOAD, "--shared-prefix", "20"], "like 20:1k"),
        ([*LOAD, "--columns", "arrival"], "no list"),
        ([*LOAD, "--isl", "1M"], "does not fit"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(BatchlineError, match=message):
        run(*arguments)


@pytest.mark.slow
def test_a_plan_can_be_simulated():
    asked = ["llama-3.1-8b", "--isl", "2k", "--osl", "300", "--rate", "9/s", "--ttft", "p95:2s", "--tpot", "p95:40ms"]
    asked += ["--on", "l40s", "--engine", "vllm", "--simulate"]
    table = CliRunner().invoke(plan.command, asked).stdout
    assert "Simulated with 4,000 requests" in table
    said = json.loads(CliRunner().invoke(plan.command, [*asked, "--json"]).stdout)
    planned = sorted(one["usd_per_hour"] for one in said["candidates"][:3])
    assert sorted(one["usd_per_hour_planned"] for one in said["simulated"]) == planned
    assert all(one["requests"] == 4000 and one["promises_kept"] for one in said["simulated"])


PAGE = (Path(__file__).parents[1] / "docs" / "simulate.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^    batchline simulate (.*)$", PAGE, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("line", SHOWN)
def test_commands_of_the_document_run(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    rows += [f"2023-11-16 18:15:{second:02}.5,{500 + second},{20 + second}" for second in range(60)]
    Path("azure.csv").write_text("\n".join(rows) + "\n")
    result = CliRunner().invoke(command, shlex.split(line))
    assert result.exit_code == 0, result.output
