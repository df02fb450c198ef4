"""`python -m sglang.bench_serving`: one JSON object per run, appended to a .jsonl file.

Fields after sgl-project/sglang python/sglang/benchmark/metrics.py (commit 6e48df3) and the older bench_serving.py: TPOT
is (latency - TTFT) / (output tokens - 1) of a request, ours; ITL is the gap between chunks. Newer versions write
`total_input` for `total_input_tokens`. `concurrency` is the mean number of requests in flight. There are no start
times, so steps cannot be rebuilt.
"""

from __future__ import annotations

from pydantic import AliasChoices, Field, NonNegativeFloat, PositiveFloat

from batchline.errors import MeasurementError
from batchline.measure.document import Document, Foreign, agree, check
from batchline.measure.point import MeasuredPoint
from batchline.strings import Sentence

NAME = "SGLang bench_serving"


class _Result(Foreign):
    backend: str = ""
    tag: str | None = None
    max_concurrency: float | None = None
    duration: PositiveFloat
    completed: int = Field(ge=0)
    total_input: float = Field(validation_alias=AliasChoices("total_input_tokens", "total_input"))
    total_output: float = Field(validation_alias=AliasChoices("total_output_tokens", "total_output"))
    total_retokenized: float | None = Field(
        default=None, validation_alias=AliasChoices("total_output_tokens_retokenized", "total_output_retokenized")
    )
    request_throughput: NonNegativeFloat
    output_throughput: NonNegativeFloat
    concurrency: NonNegativeFloat
    mean_e2e_latency_ms: NonNegativeFloat
    mean_ttft_ms: NonNegativeFloat
    median_ttft_ms: NonNegativeFloat
    mean_tpot_ms: NonNegativeFloat
    median_tpot_ms: NonNegativeFloat
    std_tpot_ms: NonNegativeFloat | None = None
    mean_itl_ms: NonNegativeFloat
    median_itl_ms: NonNegativeFloat
    accept_length: float | None = None


def matches(document: Document) -> bool:
    """Whether the first object has the end-to-end latency and concurrency that only this tool writes together."""
    return document.has("mean_e2e_latency_ms", "concurrency", "duration")


def read(document: Document) -> list[MeasuredPoint]:
    """Read one point for each run in the file."""
    records = document.records
    return [
        _point(check(_Result, record, document.file, _place(records, number)), document.file, number)
        for number, record in enumerate(records, 1)
    ]


def _place(records: list[object], number: int) -> str:
    return f"line {number}" if len(records) > 1 else ""


def _point(result: _Result, file: str, number: int) -> MeasuredPoint:
    if not result.completed:
        raise MeasurementError(Sentence("result.none_succeeded", file=file))
    _consistent(result, file)
    isl, osl = result.total_input / result.completed, result.total_output / result.completed
    chunk = result.mean_itl_ms / result.mean_tpot_ms if result.mean_tpot_ms and result.mean_itl_ms else None
    speculative = (
        ""
        if result.accept_length is None
        else f"accepts {result.accept_length:.3g} tokens a step"
        if result.accept_length > 1
        else "none"
    )
    batch = result.request_throughput * max(osl - 1, 0) * result.mean_tpot_ms / 1e3
    return MeasuredPoint(
        regime="serving",
        batch=batch or None,
        context=isl + osl / 2,
        tpot_s=result.median_tpot_ms / 1e3 or None,
        tpot_mean_s=result.mean_tpot_ms / 1e3 or None,
        itl_s=result.median_itl_ms / 1e3 or None,
        ttft_s=result.median_ttft_ms / 1e3,
        ttft_mean_s=result.mean_ttft_ms / 1e3,
        concurrency=result.max_concurrency,
        isl=isl,
        osl=osl,
        requests_per_s=result.request_throughput,
        output_tokens_per_s=result.output_throughput or None,
        duration_s=result.duration,
        completed=result.completed,
        spread=result.std_tpot_ms / result.mean_tpot_ms if result.std_tpot_ms and result.mean_tpot_ms else None,
        tokens_per_chunk=chunk,
        client_output_tokens=None
        if result.total_retokenized is None
        else result.total_retokenized / result.completed or None,
        server_output_tokens=osl,
        mean_concurrency=result.concurrency,
        statistic="median",
        arrival="closed_loop" if result.max_concurrency else "rate",
        speculative=speculative,
        engine=result.backend.split("-")[0] if result.backend else "",
        tool=NAME,
        file=file,
        label=result.tag or (f"concurrency {result.max_concurrency:g}" if result.max_concurrency else f"run {number}"),
        converted=(
            "batch = requests/s x (osl - 1) x mean TPOT (Little's law)",
            "context = isl + osl / 2",
            "tokens per chunk = mean ITL / mean TPOT",
            "milliseconds to seconds",
        ),
    )


def _consistent(result: _Result, file: str) -> None:
    agree(
        file,
        "output_throughput",
        result.output_throughput,
        result.total_output / result.duration,
        "total output tokens / duration",
    )
    agree(
        file,
        "request_throughput",
        result.request_throughput,
        result.completed / result.duration,
        "completed / duration",
    )
    agree(
        file,
        "concurrency",
        result.concurrency,
        result.request_throughput * result.mean_e2e_latency_ms / 1e3,
        "request_throughput x mean_e2e_latency_ms",
        tolerance=0.05,
    )
    agree(file, "mean_ttft_ms", result.mean_ttft_ms, result.mean_e2e_latency_ms, "mean_e2e_latency_ms", at_most=True)
    osl = result.total_output / result.completed
    if result.mean_tpot_ms and osl > 2:
        # Requests of unlike length weigh differently in TPOT and in latency: only another unit is an error here.
        decode = (result.mean_e2e_latency_ms - result.mean_ttft_ms) / (osl - 1)
        if decode > 0 and not 0.02 < result.mean_tpot_ms / decode < 50:
            agree(file, "mean_tpot_ms", result.mean_tpot_ms, decode, "(latency - TTFT) / (tokens - 1)")
