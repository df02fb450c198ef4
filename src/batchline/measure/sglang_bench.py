"""`python -m sglang.bench_serving`: one JSON object per run, appended to a .jsonl file.

Fields after sgl-project/sglang python/sglang/benchmark/metrics.py (commit 6e48df3) and the older bench_serving.py: TPOT
is (latency - TTFT) / (output tokens - 1) of a request, ours; ITL is the gap between chunks. Newer versions write
`total_input` for `total_input_tokens`. `concurrency` is the mean number of requests in flight. There are no start
times, so steps cannot be rebuilt.
"""

from __future__ import annotations

from pydantic import AliasChoices, Field, NonNegativeFloat

from batchline.errors import MeasurementError
from batchline.measure.bench_serving import BY_MEANS, CONVERTED, MILLISECONDS, Run
from batchline.measure.document import Document, agree, check
from batchline.measure.point import MeasuredPoint
from batchline.strings import Sentence

__all__ = ["NAME", "matches", "read"]

NAME = "SGLang bench_serving"


class _Result(Run):
    tag: str | None = None
    total_retokenized: float | None = Field(
        default=None, validation_alias=AliasChoices("total_output_tokens_retokenized", "total_output_retokenized")
    )
    concurrency: NonNegativeFloat
    mean_e2e_latency_ms: NonNegativeFloat
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
    speculative = (
        ""
        if result.accept_length is None
        else f"accepts {result.accept_length:.3g} tokens a step"
        if result.accept_length > 1
        else "none"
    )
    return MeasuredPoint(
        **result.facts(),
        tokens_per_chunk=result.tokens_per_chunk,
        client_output_tokens=None
        if result.total_retokenized is None
        else result.total_retokenized / result.completed or None,
        server_output_tokens=result.osl,
        mean_concurrency=result.concurrency,
        speculative=speculative,
        engine=result.backend.split("-")[0] if result.backend else "",
        tool=NAME,
        file=file,
        label=result.tag or (f"concurrency {result.max_concurrency:g}" if result.max_concurrency else f"run {number}"),
        converted=(*CONVERTED, BY_MEANS, MILLISECONDS),
    )


def _consistent(result: _Result, file: str) -> None:
    result.check_rates(file)
    agree(
        file,
        "concurrency",
        result.concurrency,
        result.request_throughput * result.mean_e2e_latency_ms / 1e3,
        "request_throughput x mean_e2e_latency_ms",
        tolerance=0.05,
    )
    agree(file, "mean_ttft_ms", result.mean_ttft_ms, result.mean_e2e_latency_ms, "mean_e2e_latency_ms", at_most=True)
    if result.mean_tpot_ms and result.osl > 2:
        # Requests of unlike length weigh differently in TPOT and in latency: only another unit is an error here.
        decode = (result.mean_e2e_latency_ms - result.mean_ttft_ms) / (result.osl - 1)
        if decode > 0 and not 0.02 < result.mean_tpot_ms / decode < 50:
            agree(file, "mean_tpot_ms", result.mean_tpot_ms, decode, "(latency - TTFT) / (tokens - 1)")
