"""InferenceX (earlier InferenceMAX) aggregates: `agg_*.json`, one object, or a list of them.

Fields after SemiAnalysisAI/InferenceX utils/process_result.py (commits 77f3e68 and 00e51cc): the keys of `vllm bench
serve` without `_ms`, in seconds; `tput_per_gpu` is input and output together, divided by `tp`; `*_intvty` is
1 / TPOT. Prompt and output lengths are drawn from 0.8 to 1.0 of `isl` and `osl`, 0.9 on the average.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field, PositiveFloat

from batchline.measure.document import Document, Foreign, agree, check
from batchline.measure.point import MeasuredPoint, decoding

__all__ = ["NAME", "matches", "read"]

NAME = "InferenceX"
_LENGTH_SHARE: Final = 0.9  # mean of a uniform draw from 0.8 to 1.0 of the nominal length (random_range_ratio 0.8)


class _Result(Foreign):
    hw: str = ""
    conc: PositiveFloat
    image: str = ""
    model: str = ""
    framework: str = ""
    precision: str = ""
    spec_decoding: str | None = None
    mtp: str | None = None
    disagg: bool = False
    is_multinode: bool = False
    isl: PositiveFloat | None = None
    osl: PositiveFloat | None = None
    tp: int | None = Field(default=None, gt=0)
    ep: int | None = Field(default=None, gt=0)
    dp_attention: bool | str | None = None
    num_prefill_gpu: int | None = None
    num_decode_gpu: int | None = None
    tput_per_gpu: PositiveFloat
    output_tput_per_gpu: PositiveFloat | None = None
    mean_ttft: PositiveFloat
    median_ttft: PositiveFloat
    mean_tpot: PositiveFloat
    median_tpot: PositiveFloat
    median_itl: PositiveFloat | None = None
    mean_itl: PositiveFloat | None = None
    median_intvty: PositiveFloat | None = None


def matches(document: Document) -> bool:
    """Whether the first object has throughput per GPU and a concurrency."""
    return document.has("tput_per_gpu", "conc")


def read(document: Document) -> list[MeasuredPoint]:
    """Read one point for each object."""
    records = document.records
    return [
        _point(check(_Result, record, document.file, f"[{number}]" if len(records) > 1 else ""), document.file)
        for number, record in enumerate(records)
    ]


def _point(result: _Result, file: str) -> MeasuredPoint:
    if result.median_intvty:
        agree(file, "median_tpot", result.median_tpot, 1 / result.median_intvty, "1 / median_intvty")
    isl = None if result.isl is None else _LENGTH_SHARE * result.isl
    osl = None if result.osl is None else _LENGTH_SHARE * result.osl
    several = result.is_multinode or result.disagg
    count = (result.num_prefill_gpu or 0) + (result.num_decode_gpu or 0) if several else result.tp
    # Per-GPU output of several nodes was once per decode GPU and later per GPU of all: it is not taken.
    output = (
        None if several or not result.output_tput_per_gpu or not result.tp else result.output_tput_per_gpu * result.tp
    )
    converted = [
        f"isl and osl = {_LENGTH_SHARE} x nominal (lengths are drawn from 0.8 to 1.0)",
        "context = isl + osl / 2",
    ]
    batch = None
    if output and osl:
        batch = decoding(output / osl, osl, result.mean_tpot)
        converted.append("batch = output tokens/s x (osl - 1) / osl x mean TPOT (Little's law)")
    attention = str(result.dp_attention).casefold() == "true"
    return MeasuredPoint(
        regime="serving",
        batch=batch,
        context=None if isl is None or osl is None else isl + osl / 2,
        tpot_s=result.median_tpot,
        tpot_mean_s=result.mean_tpot,
        itl_s=result.median_itl,
        ttft_s=result.median_ttft,
        ttft_mean_s=result.mean_ttft,
        concurrency=result.conc,
        isl=isl,
        osl=osl,
        requests_per_s=output / osl if output and osl else None,
        output_tokens_per_s=output,
        tokens_per_chunk=result.mean_itl / result.mean_tpot if result.mean_itl else None,
        statistic="median",
        arrival="closed_loop",
        speculative=result.spec_decoding or result.mtp or "",
        disaggregated=result.disagg,
        engine=result.framework,
        engine_version=result.image,
        model=result.model,
        accelerator=result.hw,
        weights=result.precision,
        count=count or None,
        tp=None if several else 1 if attention else result.tp,
        dp=None if several else result.tp if attention else 1,
        ep=None if several else result.ep,
        tool=NAME,
        file=file,
        label=f"concurrency {result.conc:g}",
        converted=tuple(converted),
    )
