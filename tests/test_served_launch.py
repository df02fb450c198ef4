"""Facts of launch scripts: where they come from, and which of them applies to a row."""

import re

import pytest

from batchline import accelerator, architecture, precision, served_launch

LLAMA = {"model": "llama-3.1-70b", "accelerator": "h200-sxm", "engine": "tensorrt-llm", "weights": "fp8"}
QWEN = {"model": "qwen3.5-397b-a17b", "accelerator": "b200", "engine": "sglang", "weights": "fp8"}


def asked(served, **load):
    return served_launch.launch_of(**served, **({"isl": 1024, "osl": 1024, "tp": 4, "concurrency": 64} | load))


def test_every_row_says_what_was_served_and_where_it_stands():
    models = {row["name"] for row in architecture.catalogue()}
    devices = {one.name for one in accelerator.catalogue()}
    for row in served_launch.launches():
        assert row["model"] in models, row
        assert row["accelerator"] in devices, row
        assert row["engine"] in {"vllm", "sglang", "tensorrt-llm", "atom"}, row
        assert row["weights"] in {"bf16", "fp8", "fp4", "int4"}, row
        assert not row["precision_kv"] or precision.load_kv(row["precision_kv"]).name == row["precision_kv"]
        assert {row["dp_attention"], row["expert_parallel"]} <= {"", "on", "off"}, row
        assert re.match(r"[\w.-]+/[\w.-]+[: ].*@[0-9a-f]{12}", row["source"]), row
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", row["date"])
        for month in (row["from_date"], row["to_date"]):
            assert re.fullmatch(r"(\d{4}-\d{2})?", month)
        for name in ("isl", "osl", "tp", "conc_from", "conc_to", "max_num_batched_tokens", "max_num_seqs"):
            assert re.fullmatch(r"\d*", row[name]), (name, row)
        assert not row["gpu_memory_utilization"] or 0.5 < float(row["gpu_memory_utilization"]) < 1


def test_tensorrt_llm_waits_for_a_batch_at_one_pair_of_lengths_below_tp_8():
    """benchmarks/70b_fp8_h200_trt_slurm.sh of InferenceX: batch_wait_timeout_iters 20 for 1k/1k and TP below 8."""
    assert asked(LLAMA, tp=4, date="2025-10-29")["admission_interval"] == "20"
    assert "admission_interval" not in asked(LLAMA, tp=8, date="2025-10-29")
    assert "admission_interval" not in asked(LLAMA, tp=4, osl=8192, date="2025-10-29")
    assert asked(LLAMA, tp=8, date="2025-10-29")["precision_kv"] == "fp8"


@pytest.mark.parametrize(("concurrency", "steps"), [(4, "10"), (15, "10"), (16, "30"), (256, "30")])
def test_sglang_looks_less_often_from_sixteen_requests_on(concurrency, steps):
    """benchmarks/single_node/qwen3.5_fp8_b200.sh of InferenceX: --scheduler-recv-interval 10, from 16 on 30."""
    version = "0.5.9 sglang:v0.5.9-cu129-amd64"
    assert asked(QWEN, concurrency=concurrency, version=version, date="2026-03-20")["admission_interval"] == steps


def test_the_most_specific_version_wins():
    assert asked(QWEN, version="0.5.9 sglang:v0.5.9-cu130", date="2026-03-20")["spec"] == "mtp3"
    assert "spec" not in asked(QWEN, version="0.5.9 sglang:v0.5.9-cu130-amd64", date="2026-03-20")


def test_of_what_is_not_known_nothing_is_said():
    assert asked(LLAMA | {"engine": "sglang"}) == {}
    assert asked(LLAMA, date="2026-04-01") == {}
    assert asked(QWEN, version="0.6.0") == {}
