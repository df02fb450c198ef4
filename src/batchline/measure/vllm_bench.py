"""`vllm bench serve --save-result`, plain and `--save-detailed`; also the older `benchmark_serving.py` with these keys.

Its TPOT is (E2E - TTFT) / (output tokens - 1) of a request, which is ours. Its ITL is the gap between two stream
chunks, pooled over all of them. The detailed file holds start times and gaps: from them the clean decode steps are
rebuilt, batch by batch.
"""

from __future__ import annotations

from statistics import median

import numpy as np

from batchline.errors import MeasurementError
from batchline.measure import streams
from batchline.measure.bench_serving import BY_MEANS, CONVERTED, MILLISECONDS, Run
from batchline.measure.document import Document, agree, check
from batchline.measure.point import MeasuredPoint
from batchline.strings import Sentence

__all__ = ["NAME", "matches", "read"]

NAME = "vllm bench serve"


class _Result(Run):
    model_id: str = ""
    date: str = ""
    failed: int | None = None
    input_lens: list[float] | None = None
    output_lens: list[float] | None = None
    ttfts: list[float] | None = None
    itls: list[list[float]] | None = None
    start_times: list[float] | None = None
    errors: list[str] | None = None


def matches(document: Document) -> bool:
    """Whether the first object has the keys that this tool alone writes together."""
    return document.has("mean_ttft_ms", "total_input_tokens") and not document.has("mean_e2e_latency_ms")


def read(document: Document) -> list[MeasuredPoint]:
    """Read one object, or several that were appended to one file."""
    points: list[MeasuredPoint] = []
    records = document.records
    for number, record in enumerate(records):
        where = "" if len(records) == 1 else f"[{number}]"
        points += _points(check(_Result, record, document.file, where), document.file, where)
    return points


def _points(result: _Result, file: str, where: str) -> list[MeasuredPoint]:
    if not result.completed:
        raise MeasurementError(Sentence("result.none_succeeded", file=file), "", Sentence("result.look_at_errors"))
    _consistent(result, file)
    requests = _streams(result, file)
    serving = _serving(result, requests, file, where)
    return [serving, *streams.decode_points(requests, serving)]


def _consistent(result: _Result, file: str) -> None:
    result.check_rates(file)
    longest = 1.05e3 * result.duration
    agree(file, "mean_ttft_ms", result.mean_ttft_ms, longest, "the duration of the run", at_most=True)
    agree(
        file,
        "mean_tpot_ms",
        result.mean_tpot_ms * max(result.osl - 1, 0),
        longest,
        "the duration of the run, for all tokens of a request,",
        at_most=True,
    )
    if result.mean_itl_ms > 0 and result.mean_tpot_ms > 0:
        # k tokens a chunk make ITL k times TPOT; nobody sends hundreds.
        chunk = result.mean_itl_ms / result.mean_tpot_ms
        if not 0.3 <= chunk <= 200:
            field, value, other = (
                ("mean_tpot_ms", result.mean_tpot_ms, result.mean_itl_ms)
                if chunk > 200
                else ("mean_itl_ms", result.mean_itl_ms, result.mean_tpot_ms)
            )
            agree(file, field, value, other, "the other latency of the same run")
    if result.ttfts and any(value > 0 for value in result.ttfts):
        found = [value for value in result.ttfts if value > 0]
        agree(
            file, "median_ttft_ms", result.median_ttft_ms, 1e3 * median(found), "the median of ttfts [s]", tolerance=0.1
        )
    if result.itls and result.output_lens:
        gaps = [gap for request in result.itls for gap in request]
        if gaps:
            agree(
                file, "median_itl_ms", result.median_itl_ms, 1e3 * median(gaps), "the median of itls [s]", tolerance=0.1
            )


def _streams(result: _Result, file: str) -> list[streams.Stream]:
    lists = (result.start_times, result.ttfts, result.itls, result.input_lens, result.output_lens)
    if any(item is None for item in lists):
        return []
    lengths = {
        name: len(item)
        for name, item in zip(("start_times", "ttfts", "itls", "input_lens", "output_lens"), lists, strict=True)
        if item is not None
    }
    shortest = min(lengths, key=lambda name: lengths[name])
    if len(set(lengths.values())) > 1:
        raise MeasurementError(
            Sentence(
                "result.other_counts",
                file=file,
                field=shortest,
                count=f"{lengths[shortest]}",
                most=f"{max(lengths.values())}",
            ),
            "",
            Sentence("result.is_cut"),
        )
    made = []
    rows = zip(*(item for item in lists if item is not None), strict=True)
    for start, ttft, gaps, prompt, output in rows:
        if ttft > 0 and output > 0:
            arrivals = start + ttft + np.concatenate([[0.0], np.cumsum(gaps)])
            made.append(streams.Stream(start, arrivals, prompt, output))
    return made


def _serving(result: _Result, requests: list[streams.Stream], file: str, where: str) -> MeasuredPoint:
    full = streams.full_share(requests, result.max_concurrency) if requests and result.max_concurrency else None
    return MeasuredPoint(
        **result.facts(),
        failed=result.failed,
        tokens_per_chunk=streams.tokens_per_chunk(requests) if requests else result.tokens_per_chunk,
        mean_concurrency=streams.mean_in_flight(requests),
        full_share=full,
        model=result.model_id,
        tool=NAME,
        file=file,
        label=where or (f"concurrency {result.max_concurrency:g}" if result.max_concurrency else ""),
        date=result.date,
        converted=(*CONVERTED, MILLISECONDS, *(() if requests else (BY_MEANS,))),
    )
