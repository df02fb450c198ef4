"""A row becomes a point, or is refused with what it lacks."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from batchline import precision, prior, served_names, serving
from batchline.accelerator import FORMATS, Accelerator
from batchline.deployment import Deployment
from batchline.engine import Request
from batchline.engine import names as engine_names
from batchline.errors import BatchlineError, MeasurementError
from batchline.served_point.cells import Cells, column
from batchline.served_point.collection import (
    INFERENCEX_LENGTH,
    client_of,
    collection_of,
    launched,
    opening_share,
    usual_kv,
)
from batchline.served_point.layout import layout_of, pools_of
from batchline.served_point.point import STATIC, Point
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["point_of"]

_ID = re.compile(r"id=(\S+)")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?((rc|\.post)\d+)*")
_ENDLESS = 1e21  # FLOP/s; stands for a rate that does not matter


def point_of(row: Mapping[str, str], line: int = 0) -> Point:
    """Turn a row of a table of measurements into a point.

    Parameters
    ----------
    row : mapping
        Text by column.
    line : int
        Its line, for messages.

    Returns
    -------
    Point
        What was served and measured.

    Raises
    ------
    BatchlineError
        A model, an accelerator or a format that is not known, a number that is missing, weights that do not fit.

    Examples
    --------
    >>> point = point_of({"model": "Llama 3.1 70B", "hw": "4 x NVIDIA H100", "engine": "vLLM 0.9.1", "isl": "1k",
    ...                   "osl": "512", "batch_or_concurrency": "32", "precision_w": "FP8"})
    >>> point.deployment.title, point.version
    ('llama-3.1-70b fp8 on 4 x h100-sxm', '0.9.1')
    """
    cells = {column(name): value.strip() for name, value in row.items() if name and isinstance(value, str)}
    cell = Cells(cells)
    engine, version = served_names.engine_of(cell.text("engine"))
    name, count = served_names.accelerator_of(cell.needed_text("hw"))
    architecture, weights = served_names.model_of(cell.needed_text("model"), cell.text("precision_w"))
    served = prior.Case(
        model=architecture.name, weights=weights or architecture.weight_format, engine=engine, accelerator=name
    )
    collection = collection_of(cell, served.base_model)
    if collection.startswith("InferenceX"):
        cell = launched(cell, served)
    regime = cell.text("regime").casefold() or "serving_conc"
    accelerator = _able(name, memory_alone=regime.startswith("decode_"))
    scale = INFERENCEX_LENGTH if collection == "InferenceX" else 1.0
    isl, osl = _lengths(cell, scale)
    kv = _kv(cell) or usual_kv(engine, accelerator, weights or architecture.weight_format)
    version = _version(cell.text("engine_version")) or version

    def deployed(layout: tuple[int, int, int, int]) -> Deployment:
        tp, pp, dp, ep = layout
        return Deployment(
            architecture=architecture,
            accelerator=accelerator,
            count=tp * pp * dp,
            weights=weights,
            kv=kv,
            tp=tp,
            pp=pp,
            dp=dp,
            ep=ep,
            engine=engine if engine in engine_names() else "generic",
            request=Request(
                max_model_len=int((isl + osl) / scale) + 256,
                gpu_memory_utilization=cell.number("gpu_memory_utilization"),
            ),
        )

    concurrency = cell.needed("batch_or_concurrency")
    pools = None
    if cell.yes("disagg"):
        layout, pools = pools_of(cell, deployed, isl)
        concurrency /= pools.decode_instances
    else:
        layout = layout_of(cell, count)
    return Point(
        deployment=deployed(layout),
        engine=engine,
        isl=isl,
        osl=osl,
        concurrency=concurrency,
        client=client_of(cell, collection),
        regime=regime,
        tpot_s=_seconds(cell, "decode_step_ms"),
        ttft_s=_seconds(cell, "ttft_ms"),
        date=cell.text("date"),
        version=version,
        series=cell.text("series_id"),
        qc=cell.text("qc") or "ok",
        row=line,
        key=_key(cell.text("url_or_repo_path")),
        pools=pools,
        speculation=_speculation(cell),
        prefix_hit_rate=cell.share("prefix_hit_rate"),
        max_num_seqs=cell.number("max_num_seqs") or math.inf,
        max_num_batched_tokens=cell.number("max_num_batched_tokens") or math.inf,
        admission_interval=cell.number("admission_interval") or 0.0,
        opening_share=opening_share(cell, collection),
        repeated_prompts=cell.yes("repeated_prompts"),
        memory_alone="bf16" not in Accelerator.load(name).flops,
    )


@functools.cache
def _able(name: str, *, memory_alone: bool) -> Accelerator:
    """An accelerator that also multiplies formats it has no rate for.

    The server ran, so kernels widened the weights before they multiplied, as Marlin's do (arXiv 2408.11743). Where no
    rate at all is known, `memory_alone` takes steps of decoding to be bound by memory.
    """
    device = Accelerator.load(name)
    if "bf16" not in device.flops:
        return replace(device, flops=dict.fromkeys(FORMATS, _ENDLESS)) if memory_alone else device
    return replace(device, flops={**dict.fromkeys(FORMATS, device.flops["bf16"]), **device.flops})


def _lengths(cell: Cells, scale: float) -> tuple[float, float]:
    """Input and output length; rows of single steps may give a context alone."""
    context = cell.number("context")
    if context and not cell.number("isl") and cell.text("regime").casefold() in STATIC:
        return context, 1.0
    return cell.needed("isl") * scale, cell.needed("osl") * scale


def _speculation(cell: Cells) -> serving.Speculation | None:
    """Speculative decoding, where the row says how far drafts are accepted."""
    how = cell.text("spec").casefold()
    acceptance = cell.share("acceptance")
    if acceptance:
        return serving.Speculation(acceptance, cell.number("draft_tokens") or 1.0)
    if how and not how.startswith(("none", "false", "off", "no", "0", "unknown")):
        raise MeasurementError(
            Sentence("error.no_acceptance"),
            "",
            Sentence("error.give_acceptance"),
        )
    return None


def _kv(cell: Cells) -> str:
    text = cell.text("precision_kv")
    if not text:
        return ""
    try:
        return precision.load_kv(text).name
    except BatchlineError:
        return precision.load_kv(served_names.format_of(text)).name


def _seconds(cell: Cells, name: str) -> float | None:
    value = cell.number(name)
    return None if not value else value / 1e3


def _version(text: str) -> str:
    found = _VERSION.search(text)
    return found.group() if found else ""


def _key(address: str) -> str:
    found = _ID.search(address)
    return found.group(1) if found else ""
