"""plan, price and launch on the command line: what they print, as tables, JSON, CSV and files."""

import csv
import io
import json
import tomllib

import pytest
from click.testing import CliRunner

from batchline.cli.launch import command as launch
from batchline.cli.plan import command as plan
from batchline.cli.price import command as price
from batchline.errors import BatchlineError, InputError

ASKED = [
    "llama-3.1-8b", "--isl", "1k", "--osl", "256", "--rate", "12/s", "--tpot", "p95:30ms", "--ttft", "p95:1s",
    "--on", "l40s,h100", "--engine", "vllm", "--max-devices", "1",
]  # fmt: skip


def run(command, *args):
    done = CliRunner().invoke(command, list(args))
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done


def test_a_plan_for_people():
    out = run(plan, *ASKED).stdout
    assert "llama-3.1-8b: 1,024 tokens in, 256 out, 12 requests/s, ttft p95:1s, tpot p95:30ms" in out
    for words in ("a month", "per million input", "sure to keep", "Pareto front of", "Refused", "configurations of"):
        assert words in out
    assert "By weights:" in out


def test_a_plan_for_programs():
    got = json.loads(run(plan, *ASKED, "--json").stdout)
    assert {"candidates", "front", "refused", "searched", "seconds", "question", "best_of", "nearest"} <= set(got)
    rows = list(csv.DictReader(io.StringIO(run(plan, *ASKED, "--csv").stdout)))
    assert float(rows[0]["usd_per_month"]) == pytest.approx(got["candidates"][0]["usd_per_month"])
    assert float(rows[0]["tpot_promised_s"]) <= 0.030 * 1.001


def test_a_question_is_saved_and_asked_again(tmp_path):
    path = tmp_path / "chat.toml"
    first = json.loads(run(plan, *ASKED, "--price", "h100=2.5", "--json", "--save", str(path)).stdout)
    saved = tomllib.loads(path.read_text())
    assert saved["prices"] == {"h100": 2.5}
    again = json.loads(run(plan, str(path), "--json").stdout)
    assert again["candidates"] == first["candidates"]
    more = json.loads(run(plan, str(path), "--rate", "200/s", "--json").stdout)
    assert more["candidates"][0]["usd_per_month"] > first["candidates"][0]["usd_per_month"]
    people = json.loads(run(plan, str(path), "--users", "100", "--think", "20s", "--json").stdout)
    assert people["question"]["users"] == 100


def test_pictures(tmp_path):
    front, bars = tmp_path / "front.svg", tmp_path / "bars.svg"
    run(plan, *ASKED, "--plot", str(front), "--tornado", str(bars), "--json")
    assert "<svg" in front.read_text()
    assert "what moves the cost" in bars.read_text()


def test_several_questions_make_a_fleet(tmp_path):
    for name, extra in (("chat", {"rate": 20, "isl": 512}), ("code", {"rate": 2, "isl": 8192})):
        keys = {"model": "llama-3.1-8b", "osl": 256, "tpot": "50ms", "accelerators": ["l40s", "h100"]} | extra
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        (tmp_path / f"{name}.toml").write_text("\n".join(lines) + "\nmax_devices = 2\nengines = ['vllm']\n")
    files = [str(tmp_path / "chat.toml"), str(tmp_path / "code.toml")]
    out = run(plan, *files, "--available", "h100=8").stdout
    assert "Fleet for chat at 20 requests/s, code at 2 requests/s" in out
    assert "no fleet is cheaper" in out
    got = json.loads(run(plan, *files, "--json").stdout)
    assert got["proven"]
    assert {row["workload"] for row in got["assignments"]} == {"chat", "code"}


def test_what_is_missing_is_asked_for():
    for args, message in [
        (["llama-3.1-8b", "--rate", "1/s"], "--isl is missing"),
        ([*ASKED, "--price", "2.5"], "of which accelerator"),
        ([*ASKED, "--available", "h100=many"], "no number of devices"),
        ([*ASKED, "--tpot", "0.1ms"], "No deployment keeps tpot"),
    ]:
        with pytest.raises(InputError, match=message):
            run(plan, *args)
    one = [arg if arg != "l40s,h100" else "l40s" for arg in ASKED]
    got = json.loads(run(plan, *one, "--price", "$0.5/h", "--json").stdout)
    assert got["candidates"][0]["usd_per_hour"] == pytest.approx(0.5 * got["candidates"][0]["devices"])


def test_launch_writes_both_kinds_of_replicas():
    asked = [*ASKED, "--isl", "6k", "--osl", "64", "--tpot", "p95:20ms", "--ttft", "p95:2s"]  # long prompts: pools pay
    got = json.loads(run(launch, *asked, "--json").stdout)
    assert f"Replicas to start: {got['candidate']['prefill']['replicas']}." in got["prefill"]["script"]
    assert "--kv-transfer-config" in got["decode"]["argv"]
    both = run(launch, *asked).stdout
    assert both.count("exec vllm serve") == 2
    assert run(launch, *asked, "--role", "decode").stdout == got["decode"]["script"]


def test_launch_writes_the_best_of_the_plan():
    best = json.loads(run(plan, *ASKED, "--no-disaggregation", "--json").stdout)["candidates"][0]
    got = json.loads(run(launch, *ASKED, "--no-disaggregation", "--json").stdout)
    assert got["engine"] == "vllm"
    assert got["candidate"]["usd_per_month"] == best["usd_per_month"]
    assert f"{best['max_num_seqs']}" in got["argv"]
    script = run(launch, *ASKED, "--served-name", "chat", "--port", "9000").stdout
    assert script.startswith("#!/usr/bin/env bash")
    assert "--served-model-name chat" in script
    assert "--port 9000" in script
    manifest = run(launch, *ASKED, "--kubernetes").stdout
    assert "kind: Deployment" in manifest
    with pytest.raises(InputError, match="takes flags"):
        run(launch, *ASKED, "--config")
    with pytest.raises(InputError, match="candidates, not 9"):
        run(launch, *ASKED, "--pick", "9")


PRICED = ["llama-3.1-70b", "--on", "4xh100", "--weights", "fp8", "--tpot", "40ms"]


def test_a_price_sheet_for_people_and_programs():
    out = run(price, *PRICED, "--margin", "0.3", "--utilisation", "0.6").stdout
    for words in ("input", "cached input, 5 min", "cache write, 1 h", "output, fast", "output, batch", "margin 30%"):
        assert words in out
    got = json.loads(run(price, *PRICED, "--margin", "0.5", "--json").stdout)
    rows = {row["name"]: row for row in got["rows"]}
    assert rows["output"]["usd_per_mtok_price"] == pytest.approx(2 * rows["output"]["usd_per_mtok_cost"])
    table = list(csv.DictReader(io.StringIO(run(price, *PRICED, "--csv").stdout)))
    assert table[0]["name"] == "input"


def test_the_market_beside_the_sheet():
    pytest.importorskip("genai_prices", reason="the extra market (pip install genai-prices) is not installed")
    got = json.loads(run(price, *PRICED, "--market", "--json").stdout)
    for row in got["market"]:
        own, api = row["own_usd_per_request"], row["api_usd_per_request"]
        assert row["break_even_utilisation"] == pytest.approx(own / api)
        assert (row["break_even_requests_per_month"] is None) == (own > api)
    # What a request costs at full use is what the sheet says of its tokens, without the idle hours.
    rows = {row["name"]: row["usd_per_mtok_cost"] for row in got["rows"]}
    assert got["market"][0]["own_usd_per_request"] == pytest.approx(
        (rows["input"] * 4096 + rows["output"] * 1024) / 1e6
    )
    with pytest.raises(BatchlineError):
        run(price, *PRICED, "--market", "a-model-of-tomorrow")


@pytest.mark.parametrize("suffix", ["png", "svg", "html", "json"])
def test_the_sheet_as_a_picture(tmp_path, suffix):
    file = tmp_path / f"prices.{suffix}"
    assert str(file) in run(price, *PRICED, "--margin", "0.3", "--plot", str(file), "--theme", "dark").stderr
    assert file.stat().st_size > 5000


def test_worth_says_what_else_would_bring():
    out = run(plan, *ASKED, "--weights", "checkpoint", "--worth", "--speculation", "0.7,3,0.5ms").stdout
    for words in ("fp8 weights instead of bf16", "A draft (0.7,3,0.5ms)", "Prompts on replicas of their own"):
        assert words in out
    for text in ("0.7", "a,b", "2,3"):
        with pytest.raises(InputError, match="is no draft"):
            run(plan, *ASKED, "--worth", "--speculation", text)
