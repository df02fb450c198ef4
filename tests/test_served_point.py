"""Rows of a table of measurements: read whatever they are called, or refused with what they lack, one by one."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchline import served_point, step, validate
from batchline.errors import MeasurementError

from .strategies import examples

ROW = {
    "model": "meta-llama/Llama-3.1-8B-Instruct", "hw": "H100-SXM5-80GB", "engine": "vLLM", "isl": "1024",
    "osl": "256", "batch_or_concurrency": "16", "n_gpus": "1", "decode_step_ms": "9.0", "ttft_ms": "60",
}  # fmt: skip


def table(path, *rows, columns=None):
    names = columns or sorted({name for row in rows for name in row})
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore", restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def outcome(tmp_path, **changes):
    (one,) = validate.predict(served_point.read(table(tmp_path / "t.csv", ROW | changes)))
    return one


def test_a_file_that_is_no_table_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("name,value\nllama-3.1-8b,h100\n")
    with pytest.raises(MeasurementError, match="no column model, hw"):
        served_point.read(path)
    path.write_text("model,hw,engine,isl,osl,batch_or_concurrency\n")
    with pytest.raises(MeasurementError, match="no rows"):
        served_point.read(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MeasurementError, match="cannot be read"):
        served_point.read(path)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("model", "gpt-9", "no model"),
        ("model", "", "model is missing"),
        ("hw", "V100", "no accelerator"),
        ("isl", "", "isl is missing"),
        ("osl", "many", "osl is 'many'"),
        ("batch_or_concurrency", "-3", "batch_or_concurrency is"),
        ("n_gpus", "2.5", "whole number"),
        ("precision_w", "fp6", "no number format"),
        ("precision_kv", "fp5", "fp5"),
        ("decode_step_ms", "n.a.", "decode_step_ms"),
        ("spec", "eagle3", "acceptance"),
        ("disagg", "True", "how many"),
        ("prefix_hit_rate", "40", "share"),
        ("model", "deepseek-ai/DeepSeek-R1", "does not fit"),
        ("pp", "3", "stages"),
        ("isl", "0", "isl is 0"),
        ("isl", "1e9", "from 0 to 100,000,000"),
        ("tp", "2", "tp 2 x pp 1 x dp 1 is not 1 devices"),
        ("decode_step_ms", "9,5", "decode_step_ms is '9,5'"),
    ],
)
def test_a_row_that_says_too_little_is_refused_with_the_reason(tmp_path, column, value, reason):
    assert reason in outcome(tmp_path, **{column: value}).refused


@pytest.mark.parametrize("between", [",", ";", "\t"])
def test_cells_may_be_parted_otherwise(tmp_path, between):
    path = tmp_path / "t.csv"
    path.write_text(f"\ufeff{between.join(ROW)}\n{between.join(ROW.values())}\n", encoding="utf-8")
    (one,) = served_point.read(path)
    assert one.concurrency == 16


@pytest.mark.parametrize("value", ["9,5", "9,500", "1.009,5"])
def test_a_decimal_comma_is_not_taken_for_thousands(tmp_path, value):
    """Spreadsheets of half of Europe write 9,5 between semicolons; 95 was read."""
    path = tmp_path / "t.csv"
    path.write_text(";".join(ROW) + "\n" + ";".join((ROW | {"decode_step_ms": value}).values()) + "\n")
    ((line, reason),) = served_point.read(path)
    assert line == 2
    assert "may be a decimal point" in reason


def test_thousands_are_read(tmp_path):
    assert outcome(tmp_path, isl="2,048").point.isl == 2048


def test_a_row_is_known_by_its_line_in_the_file(tmp_path):
    path = tmp_path / "t.csv"
    row = ",".join(ROW.values())
    path.write_text(",".join(ROW) + f"\n{row}\n\n{row}\n")
    assert [one.row for one in served_point.read(path)] == [2, 4]


def test_a_column_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("model,hw,isl,osl,concurrency,TPOT_ms,decode_step_ms\nllama-3.1-8b,h100,1k,1k,8,9,10\n")
    with pytest.raises(MeasurementError, match="more than one column says decode_step_ms"):
        served_point.read(path)


def test_one_token_has_no_time_after_the_first(tmp_path):
    one = outcome(tmp_path, osl="1")
    assert np.isnan(one.tpot_s)
    assert one.to_dict()["tpot_s"] is None
    assert one.ttft_s > 0
    said = validate.summary([one])
    assert said["tpot"] is None
    assert said["ttft"]["n"] == 1


def test_what_is_faster_than_the_bound_is_said(tmp_path):
    seconds = outcome(tmp_path, decode_step_ms="0.009")
    assert seconds.below_bound
    assert validate.summary([seconds, outcome(tmp_path)])["below_bound"] == 1


def test_one_bad_row_does_not_end_the_others(tmp_path):
    path = table(tmp_path / "t.csv", ROW, ROW | {"model": "x"}, ROW | {"isl": "nan"}, ROW)
    outcomes = validate.predict(served_point.read(path))
    assert [bool(one.refused) for one in outcomes] == [False, True, True, False]
    said = validate.summary(outcomes)
    assert said["predicted"] + sum(said["refused"].values()) == said["n"] == 4


def test_only_model_and_accelerator_need_a_column_of_their_own(tmp_path):
    path = table(
        tmp_path / "t.csv", {"Model": "llama-3.1-8b", "GPU": "2xH100", "concurrency": "8", "isl": "1k", "osl": "1k"}
    )
    (one,) = validate.predict(served_point.read(path))
    assert one.point.deployment.count == 2
    assert one.point.engine == "unknown"
    assert one.novelty == "engine"
    assert one.tpot_low_s < one.tpot_s < one.tpot_high_s


def test_columns_that_nothing_is_made_of_are_named(tmp_path):
    """A misspelt column was left out in silence, and its rows were predicted without it."""
    path = tmp_path / "t.csv"
    path.write_text("Model;GPU;concurrency;precison_w;max_num_batched_tokens;weather;url_or_repo_path\n")
    assert served_point.unread_columns(path) == {"precison_w": "precision_w", "weather": ""}


def test_no_column_of_the_public_tables_is_unknown(shared):
    files = sorted((shared / "measured").glob("s*.csv"))
    assert files
    assert [served_point.unread_columns(file) for file in files] == [{}] * len(files)


def test_devices_are_counted_from_the_layout_where_their_number_is_missing(tmp_path):
    one = outcome(tmp_path, model="llama-3.1-70b", n_gpus="", tp="4")
    assert one.point.deployment.tp == 4


def test_a_format_without_a_rate_is_widened(tmp_path):
    fp8 = outcome(tmp_path, hw="A100-SXM4-80GB", precision_w="fp8")
    bf16 = outcome(tmp_path, hw="A100-SXM4-80GB", precision_w="bf16")
    assert not fp8.refused
    assert fp8.bound_s < bf16.bound_s  # half the bytes
    assert fp8.point.deployment.flops == bf16.point.deployment.flops


def test_a_batch_from_start_to_end_holds_its_prefill(tmp_path):
    steps = outcome(tmp_path, regime="decode_static")
    whole = outcome(tmp_path, regime="static_e2e")
    assert whole.tpot_s == pytest.approx((steps.ttft_s + 255 * steps.tpot_s) / 256)


def test_pools_are_read_from_columns_and_from_notes(tmp_path):
    columns = {"prefill_gpus": "8", "prefill_workers": "2", "decode_gpus": "8", "decode_workers": "1"}
    shape = {"model": "llama-3.1-70b", "n_gpus": "16", "disagg": "True", "batch_or_concurrency": "64"}
    told = outcome(tmp_path, **shape, **columns)
    noted = outcome(tmp_path, **shape, notes="disagg: prefill 8 GPU x2 workers tp4 / decode 8 GPU x1 workers tp8")
    assert told.tpot_s == noted.tpot_s
    assert (told.point.deployment.tp, told.point.pools.prefill.tp, told.point.pools.prefill_instances) == (8, 4, 2)
    assert told.novelty == "engine"  # no such run is in the fit
    beside = outcome(tmp_path, **shape | {"n_gpus": "8", "disagg": ""})
    assert told.tpot_s < beside.tpot_s  # no prompts beside the decoding


def test_a_starved_decode_pool_waits_for_prefill(tmp_path):
    shape = {
        "model": "llama-3.1-70b",
        "disagg": "True",
        "batch_or_concurrency": "256",
        "isl": "8192",
        "decode_gpus": "8",
    }
    few, many = (outcome(tmp_path, **shape, prefill_gpus=str(n * 4), prefill_workers=str(n)) for n in (1, 16))
    assert few.ttft_s > 3 * many.ttft_s
    assert few.tpot_s < many.tpot_s


def test_speculation_with_its_acceptance_is_predicted(tmp_path):
    plain, drafted = outcome(tmp_path), outcome(tmp_path, spec="eagle3", acceptance="0.8", draft_tokens="4")
    assert plain.tpot_s / 3.3616 < drafted.tpot_s < plain.tpot_s  # 3.36 tokens a step (Leviathan), each step longer
    assert drafted.bound_s < plain.bound_s


def test_the_bound_of_a_batch_is_at_that_batch(tmp_path):
    """llama.cpp's four slots of 256 tokens more than asked for hold less than the batch that ran."""
    one = outcome(tmp_path, engine="llama.cpp", regime="decode_static", batch_or_concurrency="512")
    assert one.bound_s == pytest.approx(float(step.bound(one.point.ideal, 512.0)))


def test_a_device_without_a_rate_decodes_by_memory_alone(tmp_path):
    one = outcome(tmp_path, hw="Apple M3 Ultra", engine="llama.cpp", regime="decode_static")
    assert one.tpot_s >= one.bound_s > 0
    assert np.isnan(one.ttft_s)
    assert one.to_dict()["ttft_s"] is None
    assert outcome(tmp_path, hw="Apple M3 Ultra", engine="llama.cpp").refused


TEXT = st.one_of(
    st.sampled_from(
        ["", "nan", "0", "-1", "1e300", "inf", "8", "1,024", "2k", "True", "x" * 300, "../..", "\N{SNOWMAN}", "7.5"]
    ),
    st.text(max_size=12),
)


@settings(max_examples=examples(300))
@given(
    st.dictionaries(
        st.sampled_from(
            [*ROW, "tp", "pp", "ep", "dp", "dp_attention", "precision_w", "precision_kv", "disagg", "spec", "regime",
             "context", "notes", "acceptance", "draft_tokens", "prefix_hit_rate", "max_num_seqs", "decode_gpus",
             "prefill_gpus", "engine_version", "date", "source", "qc", "prefill_workers", "decode_workers"]
        ),
        TEXT,
    )
)  # fmt: skip
def test_no_row_ends_the_command(cells):
    from batchline.errors import BatchlineError

    try:
        found = [served_point.point_of(ROW | cells, 2)]
    except BatchlineError as error:
        found = [(2, str(error))]
    (one,) = validate.predict(found)
    said = one.to_dict()
    assert one.refused or (said["tpot_low_s"] <= said["tpot_s"] <= said["tpot_high_s"] and np.isfinite(one.tpot_s))
    validate.summary([one])


SILICON = "NVIDIA aiconfigurator silicon_sample (InferenceX DB)"
LLAMA_70B = {
    "source": SILICON, "model": "meta-llama/Llama-3.1-70B", "hw": "H200-SXM-141GB", "engine": "vllm",
    "n_gpus": "2", "tp": "2", "precision_w": "fp8", "isl": "1024", "osl": "8192",
    "batch_or_concurrency": "64", "date": "2025-10-29",
}  # fmt: skip


def test_what_a_public_row_leaves_out_is_filled_in_from_the_script_of_its_server():
    """InferenceX's benchmarks/70b_fp8_h200_slurm.sh: kv-cache-dtype fp8, 8192 tokens a step, 0.9 of the memory."""
    point = served_point.point_of(LLAMA_70B)
    assert point.deployment.kv == "fp8"
    assert point.max_num_batched_tokens == 8192
    assert point.deployment.request.gpu_memory_utilization == 0.9
    said = served_point.point_of(LLAMA_70B | {"precision_kv": "bf16", "max_num_batched_tokens": "4096"})
    assert (said.deployment.kv, said.max_num_batched_tokens) == ("bf16", 4096)
    mine = served_point.point_of(LLAMA_70B | {"source": "my own server"})
    assert (mine.deployment.kv, mine.max_num_batched_tokens) == ("bf16", np.inf)


def test_tensor_parallel_experts_are_not_taken_for_parallel_attention():
    """NVIDIA's collection has TP 4 EP 4 of MiniMax-M2.5 as attention DP 4 with EP 16; its script has no such branch."""
    row = LLAMA_70B | {
        "model": "MiniMaxAI/MiniMax-M2.5", "hw": "H100-SXM5-80GB", "n_gpus": "4.0", "tp": "4", "ep": "16", "dp": "4.0",
        "dp_attention": "True", "engine_version": "0.18.0 vllm-openai:v0.18.0", "date": "2026-03-28",
    }  # fmt: skip
    assert served_point.point_of(row).case.layout == "tp4 pp1 dp1 ep4"
    kimi = row | {
        "model": "moonshotai/Kimi-K2.5", "hw": "B200-SXM-180GB", "precision_w": "fp4",
        "engine_version": "0.17.0 vllm-openai:v0.17.0", "date": "2026-03-24",
    }  # fmt: skip
    assert served_point.point_of(kimi).case.layout == "tp4 pp1 dp1 ep1"


def test_ranks_of_parallel_attention_are_not_squared():
    """gpt-oss-120b on B200, 64 clients: "tp4_ep4" is there with 16 devices and with 4, each time at 6.42381 ms."""
    row = LLAMA_70B | {
        "model": "openai/gpt-oss-120b", "hw": "B200-SXM-180GB", "engine": "trtllm", "precision_w": "fp4",
        "engine_version": "1.2.0rc2.post2", "date": "2026-02-05", "osl": "1024", "n_gpus": "16.0", "tp": "1",
        "ep": "4", "dp": "16.0", "dp_attention": "True", "spec": "none",
    }  # fmt: skip
    squared, plain = (served_point.point_of(row | more) for more in ({}, {"n_gpus": "4.0", "dp": "4.0"}))
    assert squared.deployment == plain.deployment
    assert squared.case.layout == "tp1 pp1 dp4 ep4"
    mine = row | {"source": ""}
    assert served_point.point_of(mine).case.layout == "tp1 pp1 dp16 ep4"


def test_speculation_that_only_the_script_tells_is_known():
    """The context sweep's GLM-5 ran with MTP, one token (serve_glm5_sbatch.sh), though its rows say none."""
    row = LLAMA_70B | {
        "source": "InferenceX experimental token_position_decode_slo", "model": "zai-org/GLM-5-FP8", "n_gpus": "8",
        "tp": "8", "engine_version": "nightly 2026-02", "date": "2026-02-13", "spec": "",
    }  # fmt: skip
    with pytest.raises(MeasurementError, match="acceptance"):
        served_point.point_of(row)


def test_a_median_is_not_a_mean():
    mean, median = (served_point.point_of(LLAMA_70B | {"source": name}) for name in (SILICON, "InferenceMAX CI run"))
    assert (mean.client, median.client) == ("random", "random, median")
    mine = LLAMA_70B | {"source": "", "client": "random", "ttft_stat": "median"}
    assert served_point.point_of(mine).client == "random, median"


def test_a_benchmark_starts_with_a_burst_that_its_mean_holds():
    """InferenceX sends ten prompts for each request in flight (benchmark_lib.sh); a median does not see the first."""
    mean, median = (served_point.point_of(LLAMA_70B | {"source": name}) for name in (SILICON, "InferenceMAX CI run"))
    assert (mean.opening_share, median.opening_share) == (0.1, 0.0)
    mine = LLAMA_70B | {"source": "", "batch_or_concurrency": "32"}
    assert served_point.point_of(mine).opening_share == 0.0
    assert served_point.point_of(mine | {"num_prompts": "64"}).opening_share == 0.5
    assert served_point.point_of(mine | {"num_prompts": "16"}).opening_share == 1.0
    assert served_point.point_of(mine | {"num_prompts": "64", "ttft_stat": "median"}).opening_share == 0.0


def test_rows_copied_from_another_collection_are_known_as_that():
    row = LLAMA_70B | {"source": "NVIDIA aiconfigurator silicon_sample (NVIDIA AIC gap-analysis run)", "date": ""}
    kimi = row | {
        "model": "moonshotai/Kimi-K2.5",
        "engine_version": "0.16.0",
        "precision_w": "int4",
        "n_gpus": "8",
        "tp": "8",
    }
    assert (served_point.point_of(kimi).client, served_point.point_of(kimi).isl) == ("random", 0.9 * 1024)
    assert (served_point.point_of(row).client, served_point.point_of(row).isl) == ("fixed", 1024)
