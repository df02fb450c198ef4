"""The command line as a person types it."""

import ast
import csv
import io
import json
import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from batchline.cli import cli
from batchline.errors import BatchlineError


def run(*args, expect=0):
    """Run in this process; errors of ours count as exit code 2, as `main` makes them."""
    result = CliRunner().invoke(cli, list(args), catch_exceptions=True)
    if isinstance(result.exception, BatchlineError):
        assert expect == 2, str(result.exception)
        return str(result.exception)
    assert result.exit_code == expect, result.output
    return result.stdout


def process(*args, **env):
    command = [sys.executable, "-m", "batchline", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})


def test_the_first_answer():
    said = run("curve", "llama-3.1-70b", "--on", "4xh100", "--context", "8k")
    assert "Run a batch of" in said
    assert "$/Mtok" in said
    assert "Never below" in said


def test_json_carries_every_promised_key():
    said = json.loads(run("curve", "llama-3.1-70b", "--on", "4xh100", "--context", "8k", "--json"))
    assert said["points"][0]["batch"] == 1
    assert said["latency_floor_s"] > 0
    assert said["optimum"]["batch"] <= said["capacity_batch"]


def test_csv_reads_back():
    said = run("curve", "llama-3.1-8b", "--on", "h100", "--batch", "1,2,4..64", "--csv")
    rows = list(csv.DictReader(io.StringIO(said)))
    assert [int(row["batch"]) for row in rows] == [1, 2, 4, 8, 16, 32, 64]


def test_limits_are_kept_and_named():
    said = run("curve", "llama-3.1-70b", "--on", "2xh200", "--weights", "fp8", "--step-limit", "20ms", "--json")
    best = json.loads(said)["optimum"]
    assert best["t_step_s"] <= 0.02
    assert best["binds"] == "step_limit"
    user = json.loads(
        run("curve", "llama-3.1-70b", "--on", "2xh200", "--weights", "fp8", "--tokens-per-user", "50", "--json")
    )
    assert user["optimum"] == best


def test_explain_prints_formulas_and_sources():
    said = run("curve", "llama-3.1-70b", "--on", "4xh100", "--explain")
    for part in ("t_compute = 2 B N_a / F", "t_weights = W / BW", "t_kv", "cost", "knee B*", "where they are from"):
        assert part in said


_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def _last_time(line):
    number, unit = re.findall(r"= ([\d.,]+) (us|ms|s)(?: |$)", line)[-1]
    return float(number.replace(",", "")) * _SECONDS[unit]


@pytest.mark.parametrize(
    "asked",
    [
        "deepseek-v3 --on 8xh200 --isl 4k --osl 1k --speculation 0.8,2,1ms --concurrency 64",
        "deepseek-v3 --on 16xh200 --tp 1 --dp 8 --pp 2 --ep 8 --isl 1k --osl 1k",
        "llama-3.1-70b --on 4xh100 --isl 2k --osl 512 --arrivals batch",
        "llama-3.1-70b --on 4xh100 --isl 2k --osl 512 --rate 1/s",
    ],
)
def test_what_is_explained_adds_up(asked):
    lines = run("curve", *asked.split(), "--explain").splitlines()
    (whole,) = (line for line in lines if line.startswith("  t_step "))
    terms = [line for line in lines if line.startswith("    ") and "sequences on its rank" not in line]
    assert sum(_last_time(line) for line in terms) == pytest.approx(_last_time(whole), rel=0.01)
    for name in ("TPOT", "TTFT"):
        (line,) = (line for line in lines if line.startswith(f"  {name} "))
        parts = line.split("  = ")[-2]
        parts = re.sub(r"([\d.]+) (us|ms|s) / ([\d.]+)", lambda m: f"{float(m[1]) / float(m[3])} {m[2]}", parts)
        made = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(r"([\d.]+) (us|ms|s)", parts))
        assert made == pytest.approx(_last_time(line), rel=0.01)


def test_the_batch_to_run_has_its_interval_whatever_batches_are_shown():
    assert "90% interval" in run("curve", "llama-3.1-8b", "--on", "h100", "--batch", "8")


def test_one_token_out_has_no_tpot():
    asked = ("curve", "llama-3.1-8b", "--on", "h100", "--isl", "1k", "--osl", "1")
    assert "TPOT -, TTFT" in run(*asked)
    served = json.loads(run(*asked, "--json"))["serving"]
    assert served["tpot_s"] is None
    assert served["ttft_low_s"] < served["ttft_s"] < served["ttft_high_s"]


def test_an_accelerator_of_ones_own():
    given = (
        "--bandwidth",
        "3.35TB/s",
        "--flops",
        "989TFLOPS",
        "--memory",
        "80GB",
        "--price",
        "$2/h",
        "--link",
        "450GB/s",
    )
    said = json.loads(run("curve", "llama-3.1-8b", "--on", "2xcustom", *given, "--json"))
    assert said["usd_per_hour"] == 4.0
    assert "three figures" in run("curve", "llama-3.1-8b", "--on", "custom", "--memory", "80GB", expect=2)


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("curve", "lama-3.1-70b", "--on", "h100"), ("lama-3.1-70b", "llama-3.1-70b")),
        (("curve", "llama-3.1-8b", "--on", "h1000"), ("h1000", "h100")),
        (("curve", "llama-3.1-405b", "--on", "h100"), ("does not fit", "missing", "would hold it (--tp 4 --pp 3)")),
        (("curve", "llama-3.1-8b", "--on", "h100", "--batch", "0"), ("--batch", "1 or more")),
        (("curve", "llama-3.1-8b", "--on", "h100", "--batch", "-4"), ("--batch", "1 or more")),
        (("curve", "llama-3.1-8b", "--on", "h100", "--context", "8 apples"), ("--context", "apples")),
        (("curve", "llama-3.1-8b", "--on", "h100", "--price", "free"), ("--price", "free")),
        (("curve", "llama-3.1-8b", "--on", "h100", "--weights", "fp7"), ("fp7",)),
        (("curve", "llama-3.1-8b", "--on", "h100", "--step-limit", "1us"), ("one sequence alone takes",)),
        (("curve", "llama-3.1-8b", "--on", "3xh100"), ("does not divide",)),
        (("curve", "./no/such/config.json", "--on", "h100"), ("no/such/config.json",)),
        (("show", "h10"), ("h10", "h100")),
        (("cruve", "llama-3.1-8b"), ("cruve", "curve")),
    ],
)
def test_bad_input_is_one_paragraph(args, parts):
    said = run(*args, expect=2)
    assert "\n" not in said.strip()
    for part in parts:
        assert part in said


def test_files_that_are_no_config(tmp_path):
    text = tmp_path / "config.json"
    for content, part in (
        ("not json", "JSON"),
        ("[1, 2]", "config"),
        ("{}", "model_type"),
        ('{"model_type": "zzz"}', "zzz"),
    ):
        text.write_text(content)
        assert part in run("curve", str(text), "--on", "h100", expect=2)
    text.write_bytes(b"\xff\xfe\x00binary")
    assert "config.json" in run("curve", str(text), "--on", "h100", expect=2)


def test_beyond_the_models_context_is_warned_not_refused():
    result = CliRunner().invoke(cli, ["curve", "llama-3.1-8b", "--on", "8xh200", "--context", "1M"])
    assert result.exit_code == 0
    assert "beyond the model's maximum" in result.stderr
    assert "Warning" not in result.stdout


def test_a_real_process_exits_with_2_and_no_traceback():
    done = process("curve", "lama", "--on", "h100")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("Error:")
    assert not done.stdout
    assert process("--version").stdout.startswith("batchline ")


def test_no_colour_in_pipes_nor_when_unwanted():
    done = process("curve", "llama-3.1-8b", "--on", "h100", NO_COLOR="1")
    assert done.returncode == 0
    assert "\x1b[" not in done.stdout


def loaded_by(*args):
    """Heavy modules that a command has loaded, in a process of its own."""
    heavy = ("numpy", "rich", "altair", "pydantic", "scipy", "fastapi", "narwhals", "httpx")
    code = f"""
import sys, batchline.cli as c
try: c.cli.main({list(args)!r})
except SystemExit: pass
print([m for m in {heavy!r} if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ast.literal_eval(done.stdout.strip().splitlines()[-1])


def test_help_imports_nothing_heavy():
    assert loaded_by("--help") == []


def test_the_answer_imports_only_numpy_and_rich():
    assert loaded_by("curve", "llama-3.1-8b", "--on", "h100") == ["numpy", "rich"]


@pytest.mark.parametrize("what", ["models", "accelerators", "prices"])
def test_lists_in_every_form(what):
    rows = json.loads(run("list", what, "--json"))
    assert len(rows) >= 50
    assert len(list(csv.DictReader(io.StringIO(run("list", what, "--csv"))))) == len(rows)
    assert run("list", what)


def test_list_can_search():
    assert "llama-3.1-70b" in run("list", "models", "llama").lower()
    assert not json.loads(run("list", "models", "no such thing", "--json"))


def test_show_gives_sizes_and_sources():
    said = json.loads(run("show", "llama-3.1-70b", "--json"))
    assert said["total_params"] == 70_553_706_496  # catalog/expected.csv, exact by transformers on the meta device
    assert said["active_params"] == 69_503_033_344
    assert said["active_params_with_embedding"] == 70_553_706_496
    assert said["kv_bytes_per_token"] == 327_680
    assert said["stored_bytes"] == said["read_bytes"] == 10_737_418_240
    assert said["source"]
    device = json.loads(run("show", "h100", "--json"))
    assert device["bandwidth"] == 3.35e12
    assert device["flops"]["bf16"] == 989e12
    assert run("show", "mi300x")


def test_plots_are_written(tmp_path):
    for option, name in (("--plot", "six.svg"), ("--plot", "six.json"), ("--breakdown", "where.svg")):
        run("curve", "llama-3.1-8b", "--on", "h100", option, str(tmp_path / name))
        assert (tmp_path / name).stat().st_size > 1000


LOADED = ["curve", "llama-3.1-70b", "--on", "4xh100", "--isl", "2k", "--osl", "512", "--batch", "64", "--json"]


def serving_of(*options):
    ran = CliRunner().invoke(cli, [*LOADED, *options])
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)["serving"]


def test_the_load_of_a_curve_is_clients_a_rate_or_a_batch():
    clients, rate, batch = (
        serving_of(*options)
        for options in (["--concurrency", "32"], ["--rate", "2/s"], ["--concurrency", "32", "--arrivals", "batch"])
    )
    assert clients["concurrency"] == 32
    assert rate["rate"] == rate["requests_per_s"] == 2.0
    assert batch["running_batch"] == 32
    assert serving_of("--rate", "50/s")["ttft_s"] is None


def test_a_load_without_lengths_is_refused_not_forgotten():
    ran = CliRunner().invoke(cli, ["curve", "llama-3.1-8b", "--on", "h100", "--rate", "2/s"])
    assert "--rate needs the lengths" in str(ran.exception)


def test_bursts_caches_budgets_and_drafts_move_ttft_and_tpot():
    plain = serving_of("--rate", "2/s")
    assert serving_of("--rate", "2/s", "--arrivals", "cv:3")["ttft_s"] > plain["ttft_s"]
    assert serving_of("--rate", "2/s", "--arrivals", "even")["ttft_s"] < plain["ttft_s"]
    assert serving_of("--rate", "2/s", "--prefix-hit-rate", "0.5")["ttft_s"] < plain["ttft_s"]
    assert serving_of("--rate", "2/s", "--max-num-batched-tokens", "256")["ttft_s"] > plain["ttft_s"]
    drafted = serving_of("--rate", "2/s", "--speculation", "0.8,4")
    assert drafted["tpot_s"] < plain["tpot_s"]
    assert drafted["tokens_per_step"] == pytest.approx(3.3616)


@pytest.mark.parametrize(
    "options",
    [
        ["--rate", "2/s", "--concurrency", "3"],
        ["--arrivals", "even"],
        ["--rate", "2/s", "--arrivals", "together"],
        ["--arrivals", "sometimes"],
        ["--speculation", "2,4"],
        ["--speculation", "0.5,4,1ms,9"],
    ],
)
def test_a_load_that_contradicts_itself_is_refused(options):
    assert CliRunner().invoke(cli, [*LOADED, *options]).exit_code != 0
