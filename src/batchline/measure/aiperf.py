"""AIPerf: `profile_export.jsonl` (one line per request) and `profile_export_aiperf.json` (the summary), schema 1.

Its inter_token_latency is (latency - TTFT) / (output tokens - 1), which is our TPOT, but with the client's tokenizer.
When the server reported `usage`, tokens are counted from that: with a tokenizer that is not the server's, the file was
seen to be wrong by a factor of 9.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import Field, PositiveFloat

from batchline.errors import MeasurementError
from batchline.measure import streams
from batchline.measure.document import Document, Foreign, agree, check
from batchline.measure.point import LITTLE, MeasuredPoint, decoding
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NAME", "matches", "read"]

NAME = "AIPerf"
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0, "s": 1.0, "seconds": 1.0}
_CONVERTED: Final = (LITTLE, "context = isl + osl / 2")


class _Value(Foreign):
    value: float | list[float]
    unit: str


class _Metadata(Foreign):
    request_start_ns: int
    benchmark_phase: str = "profiling"
    was_cancelled: bool = False


class _Record(Foreign):
    metadata: _Metadata
    metrics: dict[str, _Value] = Field(default_factory=dict)
    error: dict[str, object] | None = None


class _Statistic(Foreign):
    unit: str
    avg: float
    p50: float | None = None


class _Duration(_Statistic):
    avg: PositiveFloat


class _Phase(Foreign):
    kind: str = ""
    concurrency: float | None = None


class _Name(Foreign):
    name: str = ""


class _Models(Foreign):
    items: list[_Name] = Field(default_factory=list)


class _InputConfig(Foreign):
    phases: list[_Phase] = Field(default_factory=list)
    models: _Models = Field(default_factory=_Models)


def matches(document: Document) -> bool:
    """Whether it is a summary with AIPerf's version, or lines with its metadata and metrics."""
    return document.has("aiperf_version") or (document.has("metadata", "metrics") and not document.has("benchmarks"))


def read(document: Document) -> list[MeasuredPoint]:
    """Read a summary into one point, or records into one point and the decode steps rebuilt from them."""
    return _summary(document) if document.has("aiperf_version") else _records(document)


def _seconds(file: str, name: str, value: float, unit: str) -> float:
    if unit not in _SECONDS:
        raise MeasurementError(
            Sentence("result.field_unit", file=file, field=name, unit=repr(unit)),
            Sentence("result.units_of_time", names=", ".join(_SECONDS)),
        )
    return value * _SECONDS[unit]


def _number(file: str, metrics: Mapping[str, _Value], name: str) -> float | None:
    found = metrics.get(name)
    if found is None:
        return None
    if isinstance(found.value, list):
        raise MeasurementError(
            Sentence("result.field_list", file=file, field=f"metrics.{name}.value"), Sentence("result.one_number")
        )
    return (
        found.value
        if found.unit in ("tokens", "count", "ratio")
        else _seconds(file, f"metrics.{name}.unit", found.value, found.unit)
    )


def _needed(file: str, metrics: Mapping[str, _Value], name: str) -> float:
    found = _number(file, metrics, name)
    if found is None:
        raise MeasurementError(
            Sentence("result.field_missing", file=file, field=f"metrics.{name}"), "", Sentence("result.run_streaming")
        )
    return found


def _records(document: Document) -> list[MeasuredPoint]:
    made, failed = [], 0
    for number, record in enumerate(document.records, 1):
        checked = check(_Record, record, f"{document.file}, line {number}")
        if checked.metadata.benchmark_phase != "profiling":
            continue
        if checked.error is not None or checked.metadata.was_cancelled or not checked.metrics:
            failed += 1
        else:
            made.append(_request(checked, f"{document.file}, line {number}"))
    if not made:
        raise MeasurementError(Sentence("result.all_failed", file=document.file, failed=f"{failed}"))
    requests = [stream for stream, _ in made]
    serving = _serving(requests, [facts for _, facts in made], failed, document.file)
    return [serving, *streams.decode_points(requests, serving)]


def _request(record: _Record, file: str) -> tuple[streams.Stream, dict[str, float | None]]:
    metrics = record.metrics
    ttft, latency = (_needed(file, metrics, name) for name in ("time_to_first_token", "request_latency"))
    gaps = metrics.get("inter_chunk_latency")
    spans = (
        []
        if gaps is None
        else [_seconds(file, "metrics.inter_chunk_latency.unit", gap, gaps.unit) for gap in np.atleast_1d(gaps.value)]
    )
    if spans:
        agree(
            file,
            "metrics.inter_chunk_latency",
            sum(spans),
            latency - ttft,
            "request_latency - time_to_first_token",
            tolerance=0.05,
        )
    usage, counted = (_number(file, metrics, name) for name in ("usage_completion_tokens", "output_sequence_length"))
    prompt = _number(file, metrics, "usage_prompt_tokens") or _needed(file, metrics, "input_sequence_length")
    output = usage or counted
    if not output:
        raise MeasurementError(Sentence("result.field_missing", file=file, field="metrics.output_sequence_length"))
    start = record.metadata.request_start_ns * 1e-9
    arrivals = (
        start + ttft + np.concatenate([[0.0], np.cumsum(spans)]) if spans else np.array([start + ttft, start + latency])
    )
    cached = _number(file, metrics, "usage_prompt_cache_read_tokens")
    return streams.Stream(start, arrivals, prompt, output), {
        "ttft": ttft,
        "latency": latency,
        "usage": usage,
        "counted": counted,
        "cached": cached,
    }


def _mean(facts: list[dict[str, float | None]], name: str) -> float | None:
    values = [value for value in (row[name] for row in facts) if value is not None]
    return float(np.mean(values)) if values else None


def _serving(
    requests: list[streams.Stream], facts: list[dict[str, float | None]], failed: int, file: str
) -> MeasuredPoint:
    duration = max(stream.end_s for stream in requests) - min(stream.start_s for stream in requests)
    isl = float(np.mean([stream.prompt_tokens for stream in requests]))
    osl = float(np.mean([stream.output_tokens for stream in requests]))
    pairs = [
        ((row["latency"] or 0.0) - (row["ttft"] or 0.0), stream.output_tokens)
        for row, stream in zip(facts, requests, strict=True)
    ]
    tpots = [decode / (output - 1) for decode, output in pairs if output > 1]
    ttfts = [row["ttft"] or 0.0 for row in facts]
    per_s = len(requests) / duration
    concurrency = float(_most_in_flight(requests))
    cached = _mean(facts, "cached")
    return MeasuredPoint(
        regime="serving",
        batch=decoding(per_s, osl, float(np.mean(tpots)) if tpots else None),
        context=isl + osl / 2,
        tpot_s=median(tpots) if tpots else None,
        tpot_mean_s=float(np.mean(tpots)) if tpots else None,
        ttft_s=median(ttfts),
        ttft_mean_s=float(np.mean(ttfts)),
        concurrency=concurrency,
        isl=isl,
        osl=osl,
        requests_per_s=per_s,
        output_tokens_per_s=per_s * osl,
        duration_s=duration,
        completed=len(requests),
        failed=failed,
        spread=float(np.std(tpots) / np.mean(tpots)) if tpots else None,
        tokens_per_chunk=streams.tokens_per_chunk(requests),
        client_output_tokens=_mean(facts, "counted"),
        server_output_tokens=_mean(facts, "usage"),
        cached_share=None if cached is None else cached / isl,
        mean_concurrency=streams.mean_in_flight(requests),
        full_share=streams.full_share(requests, concurrency),
        statistic="median",
        arrival="closed_loop",
        tool=NAME,
        file=file,
        label=f"concurrency {concurrency:g}",
        converted=(*_CONVERTED, "concurrency = most requests in flight", *(_usage_note(facts))),
    )


def _usage_note(facts: list[dict[str, float | None]]) -> tuple[str, ...]:
    return (
        ("tpot and tokens from the server's usage, not from the client's tokenizer",) if _mean(facts, "usage") else ()
    )


def _most_in_flight(requests: list[streams.Stream]) -> int:
    events = sorted([(stream.start_s, 1) for stream in requests] + [(stream.end_s, -1) for stream in requests])
    return int(np.cumsum([change for _, change in events]).max())


def _summary(document: Document) -> list[MeasuredPoint]:
    data: dict[str, Any] = document.data
    version = str(data.get("schema_version", ""))
    if not version.startswith("1."):
        raise MeasurementError(
            Sentence("result.field_value", file=document.file, field="schema_version", given=repr(version)),
            Sentence("result.aiperf_schema"),
        )

    def statistic(name: str, kind: type[_Statistic] = _Statistic) -> _Statistic:
        if name not in data:
            raise MeasurementError(
                Sentence("result.field_missing", file=document.file, field=name), "", Sentence("result.run_streaming")
            )
        return check(kind, data[name], document.file, name)

    def seconds(name: str, kind: type[_Statistic] = _Statistic) -> tuple[float, float]:
        found = statistic(name, kind)
        mean = _seconds(document.file, f"{name}.unit", found.avg, found.unit)
        return mean, mean if found.p50 is None else _seconds(document.file, f"{name}.unit", found.p50, found.unit)

    ttft, latency = seconds("time_to_first_token"), seconds("request_latency")
    duration = seconds("benchmark_duration", _Duration)[0]
    completed = round(statistic("request_count").avg)
    counted = statistic("output_sequence_length").avg
    usage = statistic("usage_completion_tokens").avg if "usage_completion_tokens" in data else None
    isl = (
        statistic("usage_prompt_tokens").avg
        if "usage_prompt_tokens" in data
        else statistic("input_sequence_length").avg
    )
    osl = usage or counted
    per_s = statistic("request_throughput").avg
    agree(
        document.file,
        "request_throughput",
        per_s,
        completed / duration,
        "request_count / benchmark_duration",
        tolerance=0.05,
    )
    agree(document.file, "time_to_first_token", ttft[0], latency[0], "request_latency", at_most=True)
    tpot = (latency[0] - ttft[0]) / (osl - 1) if osl > 1 else None
    cached = statistic("usage_prompt_cache_read_tokens").avg if "usage_prompt_cache_read_tokens" in data else None
    config = check(_InputConfig, data.get("input_config") or {}, document.file, "input_config")
    asked = next((phase.concurrency for phase in config.phases if phase.kind == "profiling"), None)
    return [
        MeasuredPoint(
            regime="serving",
            batch=decoding(per_s, osl, tpot),
            context=isl + osl / 2,
            tpot_s=tpot,
            tpot_mean_s=tpot,
            ttft_s=ttft[1],
            ttft_mean_s=ttft[0],
            concurrency=asked,
            isl=isl,
            osl=osl,
            requests_per_s=per_s,
            output_tokens_per_s=per_s * osl,
            duration_s=duration,
            completed=completed,
            client_output_tokens=counted,
            server_output_tokens=usage,
            cached_share=None if cached is None else cached / isl,
            mean_concurrency=per_s * latency[0],
            statistic="mean",
            arrival="closed_loop" if asked else "rate",
            model=config.models.items[0].name if config.models.items else "",
            tool=f"{NAME} {data['aiperf_version']}",
            file=document.file,
            label=f"concurrency {asked:g}" if asked else "",
            date=str(data.get("start_time", "")),
            converted=(
                *_CONVERTED,
                "tpot = (mean latency - mean TTFT) / (mean output tokens - 1)",
                *(("tokens from the server's usage, not from the client's tokenizer",) if usage else ()),
            ),
        )
    ]
