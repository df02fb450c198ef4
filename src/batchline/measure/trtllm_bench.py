"""`trtllm-bench throughput --report_json FILE`, with or without --streaming.

Fields after NVIDIA/TensorRT-LLM tensorrt_llm/bench/dataclasses/reporting.py (commit 0249976). `avg_tpot_ms` is
(latency - TTFT) / (output tokens - 1), mean over requests. Without --streaming there is no TPOT: only whole requests.
"""

from __future__ import annotations

from pydantic import Field, PositiveFloat

from batchline.measure.document import Document, Foreign, agree, check
from batchline.measure.point import LITTLE, MeasuredPoint, decoding

__all__ = ["NAME", "matches", "read"]

NAME = "trtllm-bench"


class _Engine(Foreign):
    model: str = ""
    version: str = ""
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    quantization: str | None = None


class _Machine(Foreign):
    name: str = ""


class _World(Foreign):
    tp_size: int
    pp_size: int
    ep_size: int | None = None
    world_size: int
    max_batch_size: int


class _Requests(Foreign):
    num_requests: int
    avg_num_concurrent_requests: PositiveFloat
    avg_input_length: PositiveFloat
    avg_output_length: PositiveFloat


class _Performance(Foreign):
    total_latency_ms: PositiveFloat
    avg_request_latency_ms: PositiveFloat
    request_throughput_req_s: PositiveFloat
    system_output_throughput_tok_s: PositiveFloat


class _Percentiles(Foreign):
    p50: float


class _Streaming(Foreign):
    avg_ttft_ms: PositiveFloat
    avg_tpot_ms: PositiveFloat
    ttft_percentiles: _Percentiles
    tpot_percentiles: _Percentiles


class _Decoding(Foreign):
    mode: str | None = None


class _Report(Foreign):
    engine: _Engine
    machine: _Machine | None = None
    world_info: _World
    request_info: _Requests
    performance: _Performance
    streaming_metrics: _Streaming | None = None
    decoding_stats: _Decoding | None = Field(default=None)


def matches(document: Document) -> bool:
    """Whether the report has the engine, world and request blocks."""
    return document.has("engine", "world_info", "request_info", "performance")


def read(document: Document) -> list[MeasuredPoint]:
    """Read one point for each report."""
    records = document.records
    return [
        _point(check(_Report, record, document.file, f"[{number}]" if len(records) > 1 else ""), document.file)
        for number, record in enumerate(records)
    ]


def _consistent(report: _Report, file: str) -> None:
    speed, requests = report.performance, report.request_info
    agree(
        file,
        "performance.request_throughput_req_s",
        speed.request_throughput_req_s,
        requests.num_requests / speed.total_latency_ms * 1e3,
        "num_requests / total_latency_ms",
    )
    tokens = requests.num_requests * requests.avg_output_length
    agree(
        file,
        "performance.system_output_throughput_tok_s",
        speed.system_output_throughput_tok_s,
        tokens / speed.total_latency_ms * 1e3,
        "num_requests x avg_output_length / total_latency_ms",
    )
    if report.streaming_metrics:
        longest = speed.avg_request_latency_ms * 1.02
        agree(
            file,
            "streaming_metrics.avg_ttft_ms",
            report.streaming_metrics.avg_ttft_ms,
            longest,
            "avg_request_latency_ms",
            at_most=True,
        )
        decode = speed.avg_request_latency_ms - report.streaming_metrics.avg_ttft_ms
        expected = max(decode, 1e-9) / max(requests.avg_output_length - 1, 1)
        if not 0.02 < report.streaming_metrics.avg_tpot_ms / expected < 50:
            agree(
                file,
                "streaming_metrics.avg_tpot_ms",
                report.streaming_metrics.avg_tpot_ms,
                expected,
                "(latency - TTFT) / (tokens - 1)",
            )


def _point(report: _Report, file: str) -> MeasuredPoint:
    _consistent(report, file)
    speed, requests, world = report.performance, report.request_info, report.world_info
    live = report.streaming_metrics
    isl, osl = requests.avg_input_length, requests.avg_output_length
    converted = ["context = isl + osl / 2", "milliseconds to seconds"]
    batch = None
    if live:
        batch = decoding(speed.request_throughput_req_s, osl, live.avg_tpot_ms / 1e3)
        converted.append(LITTLE)
    else:
        converted.append("no --streaming: tpot = mean request latency / osl holds queue and prefill")
    whole = speed.avg_request_latency_ms / 1e3 / osl
    return MeasuredPoint(
        regime="serving" if live else "end_to_end",
        batch=batch,
        context=isl + osl / 2,
        tpot_s=live.tpot_percentiles.p50 / 1e3 if live else whole,
        tpot_mean_s=live.avg_tpot_ms / 1e3 if live else whole,
        ttft_s=live.ttft_percentiles.p50 / 1e3 if live else None,
        ttft_mean_s=live.avg_ttft_ms / 1e3 if live else None,
        concurrency=requests.avg_num_concurrent_requests,
        isl=isl,
        osl=osl,
        requests_per_s=speed.request_throughput_req_s,
        output_tokens_per_s=speed.system_output_throughput_tok_s,
        duration_s=speed.total_latency_ms / 1e3,
        completed=requests.num_requests,
        mean_concurrency=requests.avg_num_concurrent_requests,
        statistic="median" if live else "mean",
        arrival="closed_loop",
        speculative=(report.decoding_stats.mode or "unknown kind") if report.decoding_stats else "none",
        engine="tensorrt-llm",
        engine_version=report.engine.version,
        model=report.engine.model,
        accelerator=report.machine.name if report.machine else "",
        weights=(report.engine.quantization or report.engine.dtype or "").casefold(),
        kv=(report.engine.kv_cache_dtype or "").casefold(),
        count=world.world_size,
        tp=world.tp_size,
        pp=world.pp_size,
        ep=world.ep_size,
        tool=NAME,
        file=file,
        label=f"concurrency {requests.avg_num_concurrent_requests:.4g}",
        converted=tuple(converted),
    )
