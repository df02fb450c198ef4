"""Readers of result files: real files where they are at hand, files in the documented shape, and files that are broken.

Shapes without a real file: sgl-project/sglang python/sglang/benchmark/metrics.py (6e48df3), NVIDIA/TensorRT-LLM
tensorrt_llm/bench/dataclasses/reporting.py (0249976), ggml-org/llama.cpp tools/llama-bench/README.md (08d0baa) and
tools/batched-bench/batched-bench.cpp (0a1f017), SemiAnalysisAI/InferenceX utils/process_result.py (77f3e68).
"""

import contextlib
import copy
import csv
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline.architecture import Architecture
from batchline.errors import MeasurementError
from batchline.measure import MeasuredPoint, formats, own_csv, read, read_all, streams

# --- an engine in twenty lines: what it did is known exactly ---------------------------------------------------------


def step_law(batch):
    return 0.010 + 0.001 * batch


def closed_loop(concurrency, requests, prompt=100, output=20, prefill=0.05, start=1000.0):
    """Requests of a closed loop on an engine that prefills one prompt at a time and decodes all others together."""
    now, sent = start, 0
    waiting, running, done = [], [], []
    while len(done) < requests:
        while sent < requests and len(waiting) + len(running) < concurrency:
            waiting.append({"start": now, "times": [], "prompt": prompt, "output": output})
            sent += 1
        if waiting:
            request = waiting.pop(0)
            now += prefill
            request["times"].append(now)
            running.append(request)
        else:
            now += step_law(len(running))
            for request in running:
                request["times"].append(now)
        done += [request for request in running if len(request["times"]) == request["output"]]
        running = [request for request in running if len(request["times"]) < request["output"]]
    return done


def as_streams(requests):
    return [streams.Stream(r["start"], np.array(r["times"]), r["prompt"], r["output"]) for r in requests]


# --- files in the shape of each tool ---------------------------------------------------------------------------------


def vllm_file(concurrency=4, requests=40, **more):
    done = closed_loop(concurrency, requests, **more)
    ttfts = [r["times"][0] - r["start"] for r in done]
    itls = [np.diff(r["times"]).tolist() for r in done]
    tpots = [(r["times"][-1] - r["times"][0]) / (r["output"] - 1) for r in done]
    duration = max(r["times"][-1] for r in done) - min(r["start"] for r in done)
    pooled = [gap for gaps in itls for gap in gaps]
    output = sum(r["output"] for r in done)
    return {
        "date": "20261130-044225",
        "backend": "openai",
        "model_id": "a-model",
        "num_prompts": requests,
        "request_rate": "inf",
        "max_concurrency": concurrency,
        "duration": duration,
        "completed": requests,
        "failed": 0,
        "total_input_tokens": sum(r["prompt"] for r in done),
        "total_output_tokens": output,
        "request_throughput": requests / duration,
        "output_throughput": output / duration,
        "input_lens": [r["prompt"] for r in done],
        "output_lens": [r["output"] for r in done],
        "ttfts": ttfts,
        "itls": itls,
        "start_times": [r["start"] for r in done],
        "mean_ttft_ms": 1e3 * statistics.mean(ttfts),
        "median_ttft_ms": 1e3 * statistics.median(ttfts),
        "mean_tpot_ms": 1e3 * statistics.mean(tpots),
        "median_tpot_ms": 1e3 * statistics.median(tpots),
        "std_tpot_ms": 1e3 * statistics.pstdev(tpots),
        "mean_itl_ms": 1e3 * statistics.mean(pooled),
        "median_itl_ms": 1e3 * statistics.median(pooled),
    }


def plain(result):
    return {key: value for key, value in result.items() if not isinstance(value, list)}


def sglang_file():
    return {
        "tag": None,
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": math.inf,
        "max_concurrency": 16,
        "random_input_len": 1024,
        "random_output_len": 128,
        "duration": 50.0,
        "completed": 160,
        "total_input_tokens": 163840,
        "total_output_tokens": 20480,
        "total_output_tokens_retokenized": 20470,
        "request_throughput": 3.2,
        "input_throughput": 3276.8,
        "output_throughput": 409.6,
        "mean_e2e_latency_ms": 4960.0,
        "median_e2e_latency_ms": 4950.0,
        "mean_ttft_ms": 388.0,
        "median_ttft_ms": 350.0,
        "mean_tpot_ms": 36.0,
        "median_tpot_ms": 35.5,
        "std_tpot_ms": 1.5,
        "mean_itl_ms": 36.0,
        "median_itl_ms": 33.0,
        "concurrency": 15.872,
        "accept_length": None,
    }


def trtllm_file():
    return {
        "engine": {
            "model": "meta-llama/Llama-3.1-8B",
            "model_path": None,
            "engine_dir": None,
            "version": "1.2.0",
            "backend": "Pytorch",
            "dtype": "bfloat16",
            "kv_cache_dtype": "FP8",
            "quantization": "FP8",
        },
        "machine": {"name": "NVIDIA H100 80GB HBM3", "memory.total": 79.1, "clocks.mem": 2.6},
        "world_info": {
            "tp_size": 2,
            "pp_size": 1,
            "ep_size": 1,
            "world_size": 2,
            "max_batch_size": 256,
            "max_num_tokens": 8192,
        },
        "request_info": {
            "num_requests": 512,
            "avg_num_concurrent_requests": 63.0,
            "avg_input_length": 128.0,
            "avg_output_length": 128.0,
        },
        "performance": {
            "total_latency_ms": 8000.0,
            "avg_request_latency_ms": 984.375,
            "request_throughput_req_s": 64.0,
            "system_output_throughput_tok_s": 8192.0,
            "system_total_throughput_tok_s": 16384.0,
        },
        "streaming_metrics": {
            "token_output_speed_tok_s": 133.0,
            "avg_ttft_ms": 31.875,
            "avg_tpot_ms": 7.5,
            "tpot_percentiles": {"p50": 7.4, "p90": 8.0, "average": 7.5},
            "ttft_percentiles": {"p50": 30.0, "p90": 60.0, "average": 31.875},
        },
        "dataset": {"isl": 128, "osl": 128},
    }


def inferencex_file():
    return {
        "hw": "h200",
        "conc": 64,
        "image": "vllm/vllm-openai:v0.13.0",
        "model": "openai/gpt-oss-120b",
        "infmax_model_prefix": "gptoss",
        "framework": "vllm",
        "precision": "fp4",
        "spec_decoding": "none",
        "disagg": False,
        "isl": 1024,
        "osl": 1024,
        "is_multinode": False,
        "tp": 8,
        "ep": 1,
        "dp_attention": "false",
        "tput_per_gpu": 2000.0,
        "output_tput_per_gpu": 1000.0,
        "input_tput_per_gpu": 1000.0,
        "mean_ttft": 0.06,
        "median_ttft": 0.05,
        "mean_tpot": 0.0078,
        "median_tpot": 0.0077,
        "median_intvty": 1 / 0.0077,
        "mean_itl": 0.0078,
        "median_itl": 0.0076,
    }


def llama_rows():
    common = {
        "build_commit": "8cf427ff",
        "build_number": 5163,
        "cpu_info": "a processor",
        "gpu_info": "NVIDIA GeForce RTX 4080",
        "backends": "CUDA",
        "model_type": "qwen2 7B Q4_K - Medium",
        "model_size": 4677120000,
        "n_batch": 2048,
        "type_k": "f16",
        "type_v": "f16",
        "n_depth": 0,
        "test_time": "2025-04-24T11:58:51Z",
    }
    return [
        {**common, "n_prompt": 512, "n_gen": 0, "avg_ns": 72135640, "stddev_ns": 1453752, "avg_ts": 7100.002165},
        {**common, "n_prompt": 0, "n_gen": 128, "avg_ns": 1076767880, "stddev_ns": 9449585, "avg_ts": 118.881588},
    ]


def batched_row(pl=4, shared=0):
    return {
        "n_kv_max": 8192,
        "n_batch": 2048,
        "is_pp_shared": shared,
        "pp": 512,
        "tg": 32,
        "pl": pl,
        "n_kv": pl * 544,
        "t_pp": 0.4,
        "speed_pp": pl * 512 / 0.4,
        "t_tg": 0.64,
        "speed_tg": pl * 32 / 0.64,
        "t": 1.04,
        "speed": 2092.3,
    }


def aiperf_record(number, start_ns=1_796_012_936_000_000_000, usage=True):
    gap, ttft = 25.0, 120.0
    metrics = {
        "input_sequence_length": {"value": 64, "unit": "tokens"},
        "output_sequence_length": {"value": 288, "unit": "tokens"},
        "time_to_first_token": {"value": ttft, "unit": "ms"},
        "request_latency": {"value": ttft + 31 * gap, "unit": "ms"},
        "inter_chunk_latency": {"value": [gap] * 31, "unit": "ms"},
    }
    if usage:
        metrics |= {
            "usage_completion_tokens": {"value": 32, "unit": "tokens"},
            "usage_prompt_tokens": {"value": 95, "unit": "tokens"},
        }
    meta = {"request_start_ns": start_ns + 10**9 * number, "benchmark_phase": "profiling", "was_cancelled": False}
    return {"metadata": meta, "metrics": metrics, "error": None}


def aiperf_summary():
    def of(avg, unit):
        return {"avg": avg, "p50": avg, "unit": unit}

    return {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "request_throughput": {"avg": 4.0, "unit": "requests/sec"},
        "request_count": {"avg": 40.0, "unit": "requests"},
        "request_latency": of(950.0, "ms"),
        "time_to_first_token": of(175.0, "ms"),
        "output_sequence_length": of(288.0, "tokens"),
        "usage_completion_tokens": of(32.0, "tokens"),
        "input_sequence_length": of(64.0, "tokens"),
        "usage_prompt_tokens": of(92.0, "tokens"),
        "benchmark_duration": {"avg": 10.0, "unit": "sec"},
        "input_config": {
            "phases": [{"kind": "profiling", "concurrency": 4}],
            "models": {"items": [{"name": "a-model"}]},
        },
    }


def guidellm_file():
    def request(number):
        start, first, last = 100.0 + number, 100.2 + number, 100.975 + number
        return {
            "request_start_time": start,
            "request_end_time": last + 0.001,
            "prompt_tokens": 91,
            "cached_tokens": 3,
            "output_tokens": 32,
            "time_to_first_token_ms": 200.0,
            "inter_token_latency_ms": 25.0,
            "time_per_output_token_ms": 975.0 / 32,
            "info": {"timings": {"first_token_iteration": first, "last_token_iteration": last, "token_iterations": 32}},
        }

    benchmark = {
        "type_": "generative_benchmark",
        "config": {
            "strategy": {"type_": "concurrent", "streams": 1, "max_concurrency": 1},
            "backend": {"model": "a-model"},
        },
        "requests": {"successful": [request(number) for number in range(12)], "errored": [], "incomplete": []},
        "duration": 12.0,
    }
    return {"metadata": {"version": 2, "guidellm_version": "0.8.1"}, "benchmarks": [benchmark]}


FILES = {
    "vllm": vllm_file,
    "sglang": sglang_file,
    "trtllm": trtllm_file,
    "inferencex": inferencex_file,
    "aiperf summary": aiperf_summary,
    "guidellm": guidellm_file,
    "llama-bench": llama_rows,
    "llama-batched-bench": batched_row,
    "aiperf": lambda: aiperf_record(0),
}


def written(folder, content, name="result"):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


# --- steps out of streams ---------------------------------------------------------------------------------------------


@given(
    concurrency=st.integers(1, 12),
    rounds=st.integers(1, 4),
    output=st.integers(12, 40),
    prefill=st.floats(0.001, 0.5),
)
def test_steps_rebuilt_from_a_closed_loop_are_those_of_the_engine(concurrency, rounds, output, prefill):
    done = closed_loop(concurrency, concurrency * rounds, output=output, prefill=prefill)
    for steps in streams.clean_steps(as_streams(done)):
        assert steps.t_step_s == pytest.approx(step_law(steps.batch), rel=1e-6)
        assert 1 <= steps.batch <= concurrency
        assert 100 < steps.context <= 100 + output


def test_staggered_requests_show_every_batch_on_the_way():
    # Four streams that start together and end one after the other: 4, 3, 2 and 1 decode together.
    times = {}
    now, alive, sent = 0.5, [40, 30, 20, 10], {n: [0.5] for n in range(4)}
    while any(len(sent[n]) < length for n, length in enumerate(alive)):
        running = [n for n, length in enumerate(alive) if len(sent[n]) < length]
        now += step_law(len(running))
        for n in running:
            sent[n].append(now)
        times[now] = len(running)
    found = streams.clean_steps([streams.Stream(0.0, np.array(sent[n]), 100, alive[n]) for n in range(4)])
    assert [(steps.batch, steps.count) for steps in found] == [(1, 10), (2, 10), (3, 10), (4, 9)]
    assert [steps.t_step_s for steps in found] == pytest.approx([step_law(steps.batch) for steps in found])


@given(late=st.floats(0.0, 1.0), seed=st.integers(0, 99))
def test_a_client_that_reads_late_does_not_make_steps_short(late, seed):
    # Every second token is read up to a whole step late, together with the next one: single gaps are as short as 0.
    random = np.random.default_rng(seed)
    true = 0.5 + 0.02 * np.arange(1, 65)
    read = true + np.where(random.random(64) < 0.5, late * 0.02 * random.random(64), 0.0)
    read = np.maximum.accumulate(read) + 1e-9 * np.arange(64)
    (found,) = streams.clean_steps([streams.Stream(0.0, read, 100, 64)], 0.1)
    # What is left is at most one delay over 8 gaps.
    assert 0.02 * (1 - late / 8) - 1e-6 <= found.t_step_s <= 0.02 * (1 + late / 8) + 1e-6


def test_a_prompt_in_the_way_makes_no_clean_step():
    slow = streams.Stream(0.0, np.arange(1, 41) * 0.02, 100, 40)
    late = streams.Stream(0.0, np.array([0.79, 0.81]), 100, 2)  # waits for its first token all the time
    assert streams.clean_steps([slow, late]) == []
    assert streams.clean_steps([]) == []
    assert streams.tokens_per_chunk([]) is None
    assert streams.mean_in_flight([]) is None
    assert streams.full_share([], 1) is None


def test_contexts_far_apart_are_not_mixed():
    short = streams.Stream(0.0, np.arange(1, 41) * 0.01, 100, 40)
    long = streams.Stream(10.0, 10 + np.arange(1, 41) * 0.03, 8000, 40)
    found = streams.clean_steps([short, long])
    assert [(steps.batch, round(steps.t_step_s, 6)) for steps in found] == [(1, 0.01), (1, 0.03)]
    assert found[0].context < 200
    assert found[1].context > 8000


def test_ramp_and_drain_are_seen():
    # Two requests of 10 s, the second one starts when the first ends: never both.
    first = streams.Stream(0.0, np.array([1.0, 10.0]), 1, 2)
    second = streams.Stream(10.0, np.array([11.0, 20.0]), 1, 2)
    assert streams.full_share([first, second], 2) == 0.0
    assert streams.full_share([first, second], 1) == pytest.approx(1.0)
    assert streams.mean_in_flight([first, second]) == pytest.approx(1.0)


# --- vllm bench serve ------------------------------------------------------------------------------------------------


def test_vllm_detailed_gives_the_run_and_its_steps(tmp_path):
    serving, *decode = read(written(tmp_path, vllm_file(concurrency=4, requests=40)))
    assert (serving.regime, serving.concurrency, serving.osl, serving.isl) == ("serving", 4, 20, 100)
    assert serving.tokens_per_chunk == pytest.approx(1.0)
    assert {point.batch for point in decode} >= {4}
    assert [point.t_step_s for point in decode] == pytest.approx([step_law(point.batch) for point in decode], rel=1e-6)
    # TPOT holds the prefill of others, the clean step does not.
    assert serving.tpot_mean_s > next(point.t_step_s for point in decode if point.batch == 4)


def test_vllm_plain_gives_the_run_alone(tmp_path):
    detailed, short = vllm_file(), plain(vllm_file())
    (serving,) = read(written(tmp_path, short))
    assert serving.tpot_s == pytest.approx(detailed["median_tpot_ms"] / 1e3)
    assert serving.mean_concurrency is None
    assert "tokens per chunk = mean ITL / mean TPOT" in serving.converted
    # Running batch by Little's law: tokens of all requests, each for the time of a token.
    expected = detailed["output_throughput"] * (19 / 20) * detailed["mean_tpot_ms"] / 1e3
    assert serving.batch == pytest.approx(expected)


def test_vllm_appended_results_are_several_runs(tmp_path):
    lines = "\n".join(json.dumps(plain(vllm_file(concurrency=c))) for c in (1, 2, 4))
    points = read(written(tmp_path, lines))
    assert [point.concurrency for point in points] == [1, 2, 4]


def test_vllm_real_file(shared):
    path = shared / "engines" / "example_vllm_bench.json"
    data = json.loads(path.read_text())
    serving, *decode = read(path)
    own = [(e - t) / (n - 1) for e, t, n in zip(data["latencies"], data["ttfts"], data["output_lens"], strict=True)]
    assert serving.tpot_s == pytest.approx(statistics.median(own), rel=1e-3)
    assert serving.tpot_mean_s == pytest.approx(statistics.mean(own), rel=1e-3)
    assert serving.mean_concurrency == pytest.approx(sum(data["latencies"]) / data["duration"], rel=0.01)
    assert [point.batch for point in decode] == [8]
    # The same server under the prober of engines/probe_vllm.csv: another run of a noisy machine.
    rows = list(csv.DictReader((shared / "engines" / "probe_vllm.csv").read_text().splitlines()))
    probed = next(float(row["step_ms_med"]) for row in rows if row["B"] == "8") / 1e3
    assert decode[0].t_step_s == pytest.approx(probed, rel=0.10)
    assert 100 < decode[0].context < 148


# --- AIPerf ----------------------------------------------------------------------------------------------------------


def test_aiperf_counts_tokens_by_usage(tmp_path):
    lines = "\n".join(json.dumps(aiperf_record(number)) for number in range(12))
    serving, decode = read(written(tmp_path, lines))
    assert serving.tpot_s == pytest.approx(0.025)
    assert (serving.client_output_tokens, serving.server_output_tokens, serving.osl) == (288, 32, 32)
    assert (decode.batch, decode.t_step_s) == (1, pytest.approx(0.025, rel=1e-5))  # the clock counts from 1970
    assert any("usage" in note for note in serving.converted)


def test_aiperf_without_usage_takes_the_clients_count(tmp_path):
    lines = "\n".join(json.dumps(aiperf_record(number, usage=False)) for number in range(12))
    serving, *_ = read(written(tmp_path, lines))
    assert serving.server_output_tokens is None
    assert serving.tpot_s == pytest.approx(31 * 0.025 / 287)
    assert serving.tokens_per_chunk == pytest.approx(9.0)


def test_aiperf_skips_warm_up_and_counts_failures(tmp_path):
    rows = [aiperf_record(number) for number in range(10)]
    rows[0]["metadata"]["benchmark_phase"] = "warmup"
    rows[1]["error"] = {"message": "timeout"}
    serving, *_ = read(written(tmp_path, "\n".join(map(json.dumps, rows))))
    assert (serving.completed, serving.failed) == (8, 1)


def test_aiperf_summary(tmp_path):
    (point,) = read(written(tmp_path, aiperf_summary()))
    assert point.tpot_s == pytest.approx((0.950 - 0.175) / 31)
    assert point.mean_concurrency == pytest.approx(3.8)
    assert (point.concurrency, point.model, point.completed) == (4, "a-model", 40)


def test_aiperf_real_files(shared):
    serving, *_ = read(shared / "engines" / "example_aiperf.jsonl")
    (summary,) = read(shared / "engines" / "example_aiperf_summary.json")
    # The two files are of one run, and the tool's own TPOT (8.7 ms) is 9 times too small.
    assert serving.tpot_mean_s == pytest.approx(summary.tpot_mean_s, rel=0.001)
    assert summary.tpot_mean_s == pytest.approx(0.0772507, rel=1e-4)
    assert serving.mean_concurrency == pytest.approx(3.99297, rel=1e-3)  # effective_concurrency of the summary
    assert (serving.completed, summary.completed) == (12, 12)
    assert serving.client_output_tokens / serving.server_output_tokens == pytest.approx(8.69, rel=0.01)


# --- GuideLLM --------------------------------------------------------------------------------------------------------


def test_guidellm_tpot_is_its_inter_token_latency(tmp_path):
    (point,) = read(written(tmp_path, guidellm_file()))
    assert point.tpot_s == pytest.approx(0.025)
    assert point.ttft_s == pytest.approx(0.2)
    assert point.cached_share == pytest.approx(3 / 91)
    assert any("time_per_output_token_ms" in note for note in point.converted)


def test_guidellm_real_file(shared):
    path = shared / "engines" / "example_guidellm.json"
    points = read(path)
    data = json.loads(path.read_text())["benchmarks"]
    assert [point.concurrency for point in points] == [1, 2, 4]
    for point, benchmark in zip(points, data, strict=True):
        metrics = benchmark["metrics"]
        assert point.tpot_mean_s == pytest.approx(
            metrics["inter_token_latency_ms"]["successful"]["mean"] / 1e3, rel=1e-3
        )
        assert point.mean_concurrency == pytest.approx(metrics["request_concurrency"]["successful"]["mean"], rel=0.01)
        assert point.osl == metrics["output_token_count"]["successful"]["mean"]
        theirs = metrics["time_per_output_token_ms"]["successful"]["mean"] / 1e3
        assert point.tpot_s < 0.7 * theirs  # theirs holds TTFT


# --- SGLang, TensorRT-LLM, InferenceX ---------------------------------------------------------------------------------


def test_sglang(tmp_path):
    (point,) = read(written(tmp_path, sglang_file()))
    assert (point.tpot_s, point.ttft_s, point.concurrency) == (0.0355, 0.35, 16)
    assert point.mean_concurrency == 15.872
    assert (point.engine, point.tokens_per_chunk, point.speculative) == ("sglang", 1.0, "")


def test_sglang_newer_names_and_speculation(tmp_path):
    result = sglang_file()
    for old, new in (("total_input_tokens", "total_input"), ("total_output_tokens", "total_output")):
        result[new] = result.pop(old)
    result |= {"accept_length": 2.4, "mean_itl_ms": 86.4}
    (point,) = read(written(tmp_path, json.dumps(result) + "\n"))
    assert point.osl == 128
    assert point.tokens_per_chunk == pytest.approx(2.4)
    assert "2.4" in point.speculative


def test_trtllm(tmp_path):
    (point,) = read(written(tmp_path, trtllm_file()))
    assert (point.regime, point.tpot_s, point.tpot_mean_s, point.ttft_s) == ("serving", 0.0074, 0.0075, 0.03)
    assert point.batch == pytest.approx(64 * 127 * 0.0075)
    assert (point.count, point.tp, point.weights, point.kv) == (2, 2, "fp8", "fp8")
    assert point.accelerator == "NVIDIA H100 80GB HBM3"


def test_trtllm_without_streaming_is_whole_requests(tmp_path):
    report = trtllm_file()
    del report["streaming_metrics"]
    report["machine"] = None
    (point,) = read(written(tmp_path, report))
    assert (point.regime, point.batch, point.ttft_s) == ("end_to_end", None, None)
    assert point.tpot_s == pytest.approx(0.984375 / 128)


def test_inferencex_is_in_seconds_and_per_gpu(tmp_path):
    (point,) = read(written(tmp_path, inferencex_file()))
    assert (point.tpot_s, point.count, point.tp, point.concurrency) == (0.0077, 8, 8, 64)
    assert point.output_tokens_per_s == 8000
    assert point.osl == pytest.approx(0.9 * 1024)
    assert any("0.9" in note for note in point.converted)
    # 8,000 tok/s of 7.8 ms each keep 62 sequences busy: no more than the 64 in flight.
    assert 60 < point.batch < 64


def test_inferencex_lists_and_disaggregation(tmp_path):
    split = inferencex_file() | {"is_multinode": True, "disagg": True, "num_prefill_gpu": 8, "num_decode_gpu": 16}
    aggregated = inferencex_file() | {"dp_attention": "true"}
    first, second = read(written(tmp_path, [split, aggregated]))
    assert (first.disaggregated, first.count, first.output_tokens_per_s) == (True, 24, None)
    assert (second.tp, second.dp) == (1, 8)


# --- llama.cpp -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "lines", "csv", "markdown"])
def test_llama_bench(tmp_path, form):
    rows = llama_rows()
    text = {
        "json": json.dumps(rows, indent=2),
        "lines": "\n".join(map(json.dumps, rows)),
        "csv": ",".join(rows[0]) + "\n" + "\n".join(",".join(f'"{value}"' for value in row.values()) for row in rows),
        "markdown": "| model | size | params | backend | ngl | test | t/s |\n"
        "| --- | ---: | ---: | --- | --: | ---: | ---: |\n"
        "| qwen2 7B | 4.36 GiB | 7.62 B | CUDA | 99 | pp512 | 7100.00 ± 140.34 |\n"
        "| qwen2 7B | 4.36 GiB | 7.62 B | CUDA | 99 | tg128 | 118.88 ± 1.04 |\n\nbuild: 8cf427ff (5163)\n",
    }[form]
    prompt, decode = read(written(tmp_path, text))
    assert (prompt.regime, prompt.ttft_s) == ("prefill", pytest.approx(0.0721, rel=2e-3))
    assert (decode.regime, decode.batch, decode.context) == ("decode", 1, 64)
    assert decode.t_step_s == pytest.approx(1.07676788 / 128, rel=1e-3)
    assert decode.spread == pytest.approx(0.0088, rel=0.05)


def test_llama_bench_at_a_depth(tmp_path):
    row = llama_rows()[1] | {"n_depth": 512}
    (point,) = read(written(tmp_path, [row]))
    assert point.context == 512 + 64
    assert point.label == "tg128 @ d512"


@pytest.mark.parametrize("form", ["lines", "markdown"])
def test_llama_batched_bench(tmp_path, form):
    table = "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |\n"
    table += "|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|\n"
    table += "|   512 |     32 |    4 |   2176 |    0.400 |  5120.00 |    0.640 |   200.00 |    1.040 |  2092.31 |\n"
    text = table if form == "markdown" else "\n".join(json.dumps(batched_row(pl)) for pl in (4,))
    (point,) = read(written(tmp_path, text))
    assert (point.regime, point.batch, point.context) == ("decode", 4, 528)
    assert point.t_step_s == pytest.approx(0.02)
    assert point.ttft_s == pytest.approx(0.4)


def test_llama_batched_bench_with_one_prompt_for_all_says_so(tmp_path):
    (point,) = read(written(tmp_path, [batched_row(pl=4, shared=1)]))
    assert point.cached_share == 0.75


# --- our own table ---------------------------------------------------------------------------------------------------


@given(
    st.builds(
        MeasuredPoint,
        regime=st.sampled_from(["decode", "serving"]),
        batch=st.floats(1, 4096),
        context=st.one_of(st.none(), st.floats(1, 1e6)),
        t_step_s=st.floats(1e-5, 10),
        tpot_s=st.one_of(st.none(), st.floats(1e-5, 10)),
        completed=st.one_of(st.none(), st.integers(1, 10**6)),
        disaggregated=st.one_of(st.none(), st.booleans()),
        model=st.text("abc /,'\"-", max_size=12).map(str.strip),
        converted=st.lists(st.text("abc =/", min_size=1, max_size=12).map(str.strip).filter(bool), max_size=3).map(
            tuple
        ),
        file=st.just("somewhere.csv"),
    )
)
def test_what_is_written_is_read_again(point):
    import io

    from batchline.measure.document import Document

    buffer = io.StringIO()
    own_csv.start(buffer).writerow(own_csv.row_of(point))
    buffer.seek(0)
    rows = list(csv.DictReader(buffer))
    (found,) = own_csv.read(Document("t.csv", "table", rows, own_csv.COLUMNS))
    for name in ("batch", "context", "t_step_s", "tpot_s"):
        value = getattr(point, name)
        assert getattr(found, name) == (None if value is None else pytest.approx(value, rel=1e-8))
    for name in ("regime", "completed", "disaggregated", "model", "converted", "file"):
        assert getattr(found, name) == getattr(point, name)


def test_a_table_by_hand_may_be_in_milliseconds(tmp_path):
    text = "concurrency,isl,osl,tpot_ms,note\n8,1024,128,31.2,mine\n16,1024,128,40.5,\n"
    points = read(written(tmp_path, text))
    assert [point.tpot_s for point in points] == pytest.approx([0.0312, 0.0405])
    assert points[0].regime == "serving"
    assert points[0].converted == ("tpot_ms: milliseconds to seconds",)


def test_write_and_read_a_file(tmp_path):
    point = MeasuredPoint(regime="decode", batch=8, context=1024, t_step_s=0.0387, model="a", label="x")
    own_csv.write([point], tmp_path / "out.csv")
    (found,) = read(tmp_path / "out.csv")
    assert (found.batch, found.t_step_s, found.label) == (8, 0.0387, "x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch,t_step_s\n8,fast\n", "column t_step_s is 'fast'"),
        ("batch,t_step_s\n8,-0.01\n", "t_step_s is -0.01"),
        ("batch,t_step_s\n8,31\n0,0.03\n", "batch is 0"),
        ("batch,t_step_s\n8,3e6\n", "t_step_s is 3e\\+06 s"),
        ("batch,t_stpe_s,tpot_s\n8,0.03,0.03\n", "column 't_stpe_s' is unknown.*t_step_s"),
        ("batch,t_step_s\n8\n", "breaks off before column 't_step_s'"),
        ("batch,t_step_s,output_tokens_per_s\n8,0.03,2670\n", "output_tokens_per_s is 2670"),
        ("batch,t_step_s,completed\n8,0.03,1.5\n", "column completed is '1.5'"),
        ("batch,t_step_s,disaggregated\n8,0.03,maybe\n", "column disaggregated is 'maybe'"),
        ("batch,t_step_s,regime\n8,0.03,odd\n", "regime 'odd'"),
        ("schema,batch,t_step_s\nbatchline.measured/9,8,0.03\n", "column schema is 'batchline.measured/9'"),
        ("batch,t_step_s,tpot_s\n8,,\n", "neither t_step_s nor tpot_s"),
    ],
)
def test_a_wrong_table_names_the_column(tmp_path, text, said):
    with pytest.raises(MeasurementError, match=said):
        read(written(tmp_path, text))


# --- broken files name the field -------------------------------------------------------------------------------------


def change(data, path, value):
    data = copy.deepcopy(data)
    place = data
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value
    return data


def times(factor):
    return lambda value: value * factor


MUTATIONS = [
    ("vllm", ("mean_tpot_ms",), KeyError, "mean_tpot_ms is missing"),
    ("vllm", ("mean_tpot_ms",), "fast", "mean_tpot_ms cannot be used"),
    ("vllm", ("mean_tpot_ms",), math.nan, "mean_tpot_ms"),
    ("vllm", ("duration",), -1.0, "duration"),
    ("vllm", ("median_ttft_ms",), times(1e-3), "median_ttft_ms.*another unit"),
    ("vllm", ("mean_tpot_ms",), times(1e3), "mean_tpot_ms"),
    ("vllm", ("mean_tpot_ms",), times(1e-3), "mean_tpot_ms.*1,000 times too small"),
    ("vllm", ("median_itl_ms",), times(1e-3), "median_itl_ms.*another unit"),
    ("vllm", ("mean_ttft_ms",), times(1e3), "mean_ttft_ms"),
    ("vllm", ("output_throughput",), times(2), "output_throughput"),
    ("vllm", ("request_throughput",), times(60), "request_throughput"),
    ("vllm", ("start_times",), lambda v: v[:-3], "start_times has 37 requests"),
    ("vllm", ("itls", 3), "x", "itls.3"),
    ("vllm", ("completed",), 0, "completed is 0"),
    ("sglang", ("concurrency",), times(10), "concurrency"),
    ("sglang", ("mean_tpot_ms",), times(1e-3), "mean_tpot_ms.*another unit"),
    ("sglang", ("mean_ttft_ms",), times(1e3), "mean_ttft_ms"),
    ("sglang", ("output_throughput",), times(8), "output_throughput"),
    ("sglang", ("median_tpot_ms",), KeyError, "median_tpot_ms is missing"),
    ("sglang", ("completed",), 0, "completed is 0"),
    ("trtllm", ("performance", "request_throughput_req_s"), times(1e-3), "performance.request_throughput_req_s.*unit"),
    ("trtllm", ("performance", "system_output_throughput_tok_s"), times(2), "system_output_throughput_tok_s"),
    ("trtllm", ("streaming_metrics", "avg_tpot_ms"), times(1e-3), "avg_tpot_ms.*unit"),
    ("trtllm", ("streaming_metrics", "avg_ttft_ms"), times(1e6), "avg_ttft_ms"),
    ("trtllm", ("streaming_metrics", "tpot_percentiles", "p50"), KeyError, "streaming_metrics.tpot_percentiles.p50"),
    ("trtllm", ("request_info", "avg_input_length"), None, "request_info.avg_input_length"),
    ("inferencex", ("median_tpot",), times(1e3), "median_tpot.*1,000 times too large"),
    ("inferencex", ("mean_tpot",), KeyError, "mean_tpot is missing"),
    ("inferencex", ("tput_per_gpu",), "many", "tput_per_gpu"),
    ("aiperf summary", ("benchmark_duration", "avg"), 0, "benchmark_duration.avg"),
    ("aiperf summary", ("schema_version",), "2.0", "schema_version is '2.0'"),
    ("aiperf summary", ("request_latency", "unit"), "furlongs", "request_latency.unit"),
    ("aiperf summary", ("time_to_first_token", "unit"), "sec", "time_to_first_token"),
    ("aiperf summary", ("time_to_first_token",), KeyError, "time_to_first_token is missing"),
    ("aiperf summary", ("request_throughput", "avg"), times(60), "request_throughput"),
    ("aiperf", ("metrics", "request_latency"), KeyError, "metrics.request_latency is missing"),
    ("aiperf", ("metrics", "request_latency", "unit"), "min", "metrics.request_latency.unit"),
    ("aiperf", ("metrics", "inter_chunk_latency", "unit"), "us", "metrics.inter_chunk_latency"),
    ("aiperf", ("metadata", "request_start_ns"), KeyError, "metadata.request_start_ns is missing"),
    ("guidellm", ("metadata", "version"), 1, "metadata.version is 1"),
    ("guidellm", ("metadata", "version"), KeyError, "metadata.version is missing"),
    ("guidellm", ("benchmarks", 0, "requests", "successful"), [], "benchmarks.0.requests.successful is empty"),
    ("guidellm", ("benchmarks", 0, "duration"), KeyError, "benchmarks.0.duration is missing"),
    (
        "guidellm",
        ("benchmarks", 0, "requests", "successful", 2, "inter_token_latency_ms"),
        times(1e-3),
        "successful.2.*inter_token_latency_ms.*unit",
    ),
    (
        "guidellm",
        ("benchmarks", 0, "requests", "successful", 0, "time_to_first_token_ms"),
        times(1e3),
        "time_to_first_token_ms.*unit",
    ),
    ("llama-bench", (1, "avg_ns"), times(1e-6), "avg_ns.*1,000,000 times too small"),
    ("llama-bench", (1, "avg_ns"), KeyError, "row 2.avg_ns is missing"),
    ("llama-bench", (1, "n_gen"), 0, "n_prompt and n_gen"),
    ("llama-batched-bench", ("t_tg",), times(1e3), "t_tg.*1,000 times too large"),
    ("llama-batched-bench", ("tg",), 0, "tg is 0"),
]


@pytest.mark.parametrize(("kind", "path", "value", "said"), MUTATIONS)
def test_a_mutated_file_names_the_field(tmp_path, kind, path, value, said):
    with pytest.raises(MeasurementError, match=said):
        read(written(tmp_path, change(FILES[kind](), path, value)))


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_truncated_file_names_the_last_field(tmp_path, kind, share):
    text = json.dumps(FILES[kind](), indent=1)
    path = written(tmp_path, text[: int(share * len(text))])
    with pytest.raises(MeasurementError, match=r"breaks off after the field|is no JSON"):
        read(path)


@pytest.mark.parametrize(
    "name", ["example_vllm_bench.json", "example_aiperf.jsonl", "example_aiperf_summary.json", "example_guidellm.json"]
)
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_truncated_real_file_is_refused(shared, tmp_path, name, share):
    text = (shared / "engines" / name).read_text()
    cut = text[: int(share * len(text))]
    if cut.endswith("\n"):
        cut = cut[:-40]
    with pytest.raises(MeasurementError, match=r"breaks off|is no JSON|field"):
        read(written(tmp_path, cut))


@given(data=st.data(), kind=st.sampled_from(sorted(FILES)))
def test_any_field_may_be_missing_or_odd_and_nothing_but_our_error_comes(tmp_path_factory, data, kind):
    found = FILES[kind]()
    paths = []

    def walk(value, path):
        children = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
        for key, child in children:
            paths.append((*path, key))
            walk(child, (*path, key))

    walk(found, ())
    path = data.draw(st.sampled_from(paths))
    value = data.draw(st.sampled_from([KeyError, None, "x", -1, 0, 1e300, math.inf, [], {}, True]))
    broken = change(found, path, value)
    file = tmp_path_factory.getbasetemp() / "odd.json"
    file.write_text(json.dumps(broken))
    with contextlib.suppress(MeasurementError):
        assert all(isinstance(point, MeasuredPoint) for point in read(file))


# --- what is no result file ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("   \n", "is empty"),
        ('{"hello": 1}', "is no result file we know: it starts with hello"),
        ("a,b\n1,2\n", "is no result file we know: it starts with a, b"),
        ("once upon a time", "is no result file we know"),
        ("[]", "is no result file we know"),
        ("42", "is no result file we know"),
    ],
)
def test_other_files_are_refused(tmp_path, content, said):
    with pytest.raises(MeasurementError, match=said):
        read(written(tmp_path, content))


def test_binary_and_missing_files_are_refused(tmp_path):
    binary = tmp_path / "x.bin"
    binary.write_bytes(b"\x1f\x8b\x08\xff\xfe\x00")
    with pytest.raises(MeasurementError, match="no text file"):
        read(binary)
    with pytest.raises(MeasurementError, match="cannot be read"):
        read(tmp_path / "nothing.json")
    with pytest.raises(MeasurementError, match="cannot be read"):
        read(tmp_path)


def test_formats_are_told_by_content_not_by_name(tmp_path):
    for number, make in enumerate(FILES.values()):
        assert read(written(tmp_path, make(), f"{number}.dat"))
    assert len(formats()) == 8


def test_read_all(tmp_path):
    paths = [written(tmp_path, make(), f"{number}.json") for number, make in enumerate((sglang_file, trtllm_file))]
    assert [point.file for point in read_all(paths)] == ["0.json", "1.json"]


def test_a_point_refuses_what_cannot_be_measured():
    with pytest.raises(MeasurementError, match="batch is 0"):
        MeasuredPoint(regime="decode", batch=0)
    with pytest.raises(MeasurementError, match="another unit"):
        MeasuredPoint(regime="decode", t_step_s=5000)
    with pytest.raises(MeasurementError, match="regime"):
        MeasuredPoint(regime="fast")
    with pytest.raises(MeasurementError, match="tpot_s is nan"):
        MeasuredPoint(regime="serving", tpot_s=math.nan)


@pytest.mark.slow
def test_the_pytorch_example_writes_our_table(tmp_path):
    pytest.importorskip("torch", reason="the example measures PyTorch")
    example = Path(__file__).parents[1] / "examples" / "measure_torch.py"
    out = tmp_path / "torch.csv"
    small = [
        "--layers",
        "2",
        "--width",
        "128",
        "--heads",
        "4",
        "--kv-heads",
        "2",
        "--hidden",
        "256",
        "--vocabulary",
        "16384",
    ]
    grid = ["--batch", "1,8", "--context", "32,256", "--steps", "8", "--max-seconds", "30", "--device", "cpu"]
    for more in ([], ["--experts", "4", "--used", "2"]):
        subprocess.run([sys.executable, str(example), *small, *grid, *more, "--out", str(out)], check=True)
        points = read(out)
        assert {(point.batch, point.context) for point in points} == {(b, c) for b in (1, 8) for c in (32, 256)}
        assert all(point.regime == "decode" and point.samples == 8 for point in points)
        model = Architecture.from_config(json.loads(out.with_suffix(".json").read_text()))
        assert all(f" {model.active_params / 1e6:.0f}M active" in point.model for point in points)
