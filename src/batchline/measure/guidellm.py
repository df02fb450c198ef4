"""GuideLLM result files (`benchmarks.json`, metadata version 2: GuideLLM 0.5 to 0.8).

Its `time_per_output_token_ms` is (last token - request start) / output tokens and holds TTFT, so it is not our TPOT;
its `inter_token_latency_ms` is (last - first) / (output tokens - 1) of a request and is.
"""

from __future__ import annotations

from statistics import median

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat

from batchline.errors import MeasurementError
from batchline.measure import streams
from batchline.measure.document import Document, Foreign, agree, check
from batchline.measure.point import LITTLE, MeasuredPoint, decoding
from batchline.strings import Sentence

__all__ = ["NAME", "matches", "read"]

NAME = "GuideLLM"
_VERSION = 2


class _Metadata(Foreign):
    version: int
    guidellm_version: str = ""


class _Backend(Foreign):
    model: str | None = None


class _Strategy(Foreign):
    type_: str
    max_concurrency: float | None = None
    streams: float | None = None


class _Config(Foreign):
    strategy: _Strategy
    backend: _Backend = Field(default_factory=_Backend)


class _Timings(Foreign):
    first_token_iteration: float | None = None
    last_token_iteration: float | None = None
    token_iterations: float | None = None


class _Info(Foreign):
    timings: _Timings


class _Request(Foreign):
    request_start_time: float
    request_end_time: float
    prompt_tokens: float | None
    output_tokens: float | None
    cached_tokens: float | None = None
    time_to_first_token_ms: NonNegativeFloat | None
    inter_token_latency_ms: NonNegativeFloat | None
    info: _Info


class _Requests(Foreign):
    successful: list[_Request]
    errored: list[dict[str, object]] = Field(default_factory=list)
    incomplete: list[dict[str, object]] = Field(default_factory=list)


class _Benchmark(Foreign):
    config: _Config
    requests: _Requests
    duration: PositiveFloat


class _Report(Foreign):
    metadata: _Metadata
    benchmarks: list[_Benchmark]


class _Head(Foreign):
    metadata: _Metadata


def matches(document: Document) -> bool:
    """Whether the file has benchmarks and names GuideLLM's version."""
    return document.has("benchmarks", "metadata")


def read(document: Document) -> list[MeasuredPoint]:
    """Read one point for each benchmark of the report."""
    version = check(_Head, document.data, document.file).metadata.version
    if version != _VERSION:
        raise MeasurementError(
            Sentence("result.field_value", file=document.file, field="metadata.version", given=f"{version}"),
            Sentence("result.guidellm_version", version=f"{_VERSION}"),
            Sentence("result.run_guidellm"),
        )
    report = check(_Report, document.data, document.file)
    engine = report.metadata.guidellm_version
    return [_point(benchmark, document.file, number, engine) for number, benchmark in enumerate(report.benchmarks)]


def _point(benchmark: _Benchmark, file: str, number: int, version: str) -> MeasuredPoint:
    where = f"{file}: benchmarks.{number}"
    requests = [request for request in benchmark.requests.successful if request.output_tokens]
    if not requests:
        raise MeasurementError(Sentence("result.no_successful", where=where), "", Sentence("result.sample_size"))
    for place, request in enumerate(requests):
        _consistent(request, f"{where}.requests.successful.{place}")
    seen = [_stream(request) for request in requests]
    tpots = [request.inter_token_latency_ms / 1e3 for request in requests if request.inter_token_latency_ms]
    ttfts = [request.time_to_first_token_ms / 1e3 for request in requests if request.time_to_first_token_ms is not None]
    isl, osl = (
        float(np.mean([stream.prompt_tokens for stream in seen])),
        float(np.mean([stream.output_tokens for stream in seen])),
    )
    per_s = len(requests) / benchmark.duration
    asked = benchmark.config.strategy.streams or benchmark.config.strategy.max_concurrency
    cached = sum(request.cached_tokens or 0.0 for request in requests)
    return MeasuredPoint(
        regime="serving",
        batch=decoding(per_s, osl, float(np.mean(tpots)) if tpots else None),
        context=isl + osl / 2,
        tpot_s=median(tpots) if tpots else None,
        tpot_mean_s=float(np.mean(tpots)) if tpots else None,
        ttft_s=median(ttfts) if ttfts else None,
        ttft_mean_s=float(np.mean(ttfts)) if ttfts else None,
        concurrency=asked,
        isl=isl or None,
        osl=osl,
        requests_per_s=per_s,
        output_tokens_per_s=per_s * osl,
        duration_s=benchmark.duration,
        completed=len(requests),
        failed=len(benchmark.requests.errored),
        spread=float(np.std(tpots) / np.mean(tpots)) if tpots else None,
        tokens_per_chunk=_chunk(requests),
        cached_share=cached / (isl * len(requests)) if isl else None,
        mean_concurrency=streams.mean_in_flight(seen),
        full_share=streams.full_share(seen, asked) if asked else None,
        statistic="median",
        arrival="closed_loop"
        if benchmark.config.strategy.type_ in ("concurrent", "synchronous", "throughput")
        else "rate",
        model=benchmark.config.backend.model or "",
        tool=f"{NAME} {version}".strip(),
        file=file,
        label=f"{benchmark.config.strategy.type_} {asked:g}" if asked else benchmark.config.strategy.type_,
        converted=(
            "tpot = inter_token_latency_ms; GuideLLM's time_per_output_token_ms holds TTFT and is not used",
            LITTLE,
            "context = isl + osl / 2",
            "requests/s = successful requests / duration",
        ),
    )


def _consistent(request: _Request, where: str) -> None:
    timings = request.info.timings
    if timings.first_token_iteration is not None and request.time_to_first_token_ms is not None:
        first = timings.first_token_iteration - request.request_start_time
        agree(
            where,
            "time_to_first_token_ms",
            request.time_to_first_token_ms,
            1e3 * first,
            "first token - start",
            tolerance=0.05,
        )
    if (
        None in (timings.last_token_iteration, timings.first_token_iteration, request.inter_token_latency_ms)
        or (request.output_tokens or 0) < 2
    ):
        return
    decode = (
        1e3
        * ((timings.last_token_iteration or 0) - (timings.first_token_iteration or 0))
        / ((request.output_tokens or 0) - 1)
    )
    agree(
        where,
        "inter_token_latency_ms",
        request.inter_token_latency_ms or 0,
        decode,
        "(last - first) / (tokens - 1)",
        tolerance=0.05,
    )


def _stream(request: _Request) -> streams.Stream:
    timings = request.info.timings
    first = timings.first_token_iteration or request.request_end_time
    last = timings.last_token_iteration or request.request_end_time
    return streams.Stream(
        request.request_start_time, np.array([first, last]), request.prompt_tokens or 0.0, request.output_tokens or 0.0
    )


def _chunk(requests: list[_Request]) -> float | None:
    events = sum(request.info.timings.token_iterations or 0 for request in requests)
    return sum(request.output_tokens or 0 for request in requests) / events if events else None
