"""llama.cpp's `llama-bench` (JSON, JSON lines, CSV, Markdown) and `llama-batched-bench` (JSON lines, Markdown).

Fields after ggml-org/llama.cpp tools/llama-bench/README.md (commit 08d0baa) and tools/batched-bench/batched-bench.cpp
(commit 0a1f017). llama-bench times one sequence: `tg` rows are decode steps at batch 1 from depth `n_depth` on, `pp`
rows are prompts. llama-batched-bench decodes `pl` sequences together: a step is `t_tg / tg`. Neither samples nor sends
anything, so there is no server time in them.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from batchline.errors import MeasurementError
from batchline.measure.document import Document, Foreign, agree, check
from batchline.measure.point import MeasuredPoint
from batchline.strings import Sentence

__all__ = ["NAME", "matches", "read"]

NAME = "llama-bench"
_BATCHED: Final = "llama-batched-bench"
_BATCHED_COLUMNS: Final = {
    "PP": "pp",
    "TG": "tg",
    "B": "pl",
    "N_KV": "n_kv",
    "T_PP s": "t_pp",
    "T_TG s": "t_tg",
    "S_TG t/s": "speed_tg",
}


class _Single(Foreign):
    build_commit: str = ""
    model_type: str = ""
    gpu_info: str = ""
    cpu_info: str = ""
    backends: str = ""
    type_k: str = ""
    test_time: str = ""
    n_prompt: int = Field(ge=0)
    n_gen: int = Field(ge=0)
    n_depth: int = Field(default=0, ge=0)
    avg_ns: PositiveFloat
    stddev_ns: NonNegativeFloat = 0.0
    avg_ts: PositiveFloat


class _Batched(Foreign):
    pp: PositiveInt
    tg: int = Field(ge=0)
    pl: PositiveInt
    n_kv: int
    t_pp: NonNegativeFloat
    t_tg: NonNegativeFloat
    speed_tg: NonNegativeFloat
    is_pp_shared: int = 0


def matches(document: Document) -> bool:
    """Whether rows have the columns of either tool."""
    names = set(document.header)
    return (
        document.has("avg_ns", "n_gen")
        or document.has("pl", "t_tg")
        or {"avg_ns", "n_gen"} <= names
        or {"test", "t/s"} <= names
        or {"T_TG s", "B"} <= names
    )


def read(document: Document) -> list[MeasuredPoint]:
    """Read one point for each row."""
    rows = document.data if document.kind == "table" else document.records
    if document.has("pl", "t_tg"):
        return [
            _batched(check(_Batched, row, document.file, f"row {number}"), document.file)
            for number, row in enumerate(rows, 1)
        ]
    if "T_TG s" in document.header:
        named = [{name: row.get(column) for column, name in _BATCHED_COLUMNS.items()} for row in rows]
        return [
            _batched(check(_Batched, row, document.file, f"row {number}"), document.file)
            for number, row in enumerate(named, 1)
        ]
    if "t/s" in document.header:
        rows = [_from_markdown(row, document.file, number) for number, row in enumerate(rows, 1)]
    return [
        _single(check(_Single, row, document.file, f"row {number}"), document.file)
        for number, row in enumerate(rows, 1)
    ]


def _from_markdown(row: dict[str, str], file: str, number: int) -> dict[str, Any]:
    test = re.fullmatch(r"(?:pp\s?(\d+))?\+?(?:tg\s?(\d+))?(?:\s*@\s*d(\d+))?", row["test"])
    speed = re.fullmatch(r"([\d.]+)(?:\s*±\s*([\d.]+))?", row["t/s"])
    if not test or not speed:
        field, value = ("t/s", row["t/s"]) if test else ("test", row["test"])
        raise MeasurementError(
            Sentence(
                "result.column_value",
                where=Sentence("result.at_row", file=file, row=f"{number}"),
                column=field,
                given=repr(value),
            ),
            Sentence("result.llama_row"),
        )
    prompt, output, depth = (int(part or 0) for part in test.groups())
    rate = float(speed[1])
    spent = 1e9 * (prompt + output) / rate if rate else 0.0
    spread = float(speed[2] or 0) / rate if rate else 0.0
    return {
        "n_prompt": prompt,
        "n_gen": output,
        "n_depth": depth,
        "avg_ns": spent,
        "stddev_ns": spread * spent,
        "avg_ts": rate,
        "model_type": row.get("model", ""),
        "backends": row.get("backend", ""),
    }


def _single(row: _Single, file: str) -> MeasuredPoint:
    tokens = row.n_prompt + row.n_gen
    if not tokens:
        raise MeasurementError(Sentence("result.both_zero", file=file))
    agree(file, "avg_ns", row.avg_ns, 1e9 * tokens / row.avg_ts, "(n_prompt + n_gen) / avg_ts", tolerance=0.05)
    seconds = row.avg_ns * 1e-9
    regime = "prefill" if not row.n_gen else "end_to_end" if row.n_prompt else "decode"
    test = "+".join(
        part for part in (f"pp{row.n_prompt}" if row.n_prompt else "", f"tg{row.n_gen}" if row.n_gen else "") if part
    )
    return MeasuredPoint(
        regime=regime,
        batch=1,
        context=row.n_depth + row.n_prompt + row.n_gen / 2 if row.n_gen else (row.n_depth + row.n_prompt / 2 or None),
        t_step_s=seconds / row.n_gen if regime == "decode" else None,
        tpot_s=seconds / row.n_gen if regime == "end_to_end" else None,
        ttft_s=seconds if regime == "prefill" else None,
        isl=row.n_prompt or None,
        osl=row.n_gen or None,
        output_tokens_per_s=row.n_gen / seconds or None,
        samples=row.n_gen or None,
        spread=row.stddev_ns / row.avg_ns,
        statistic="mean",
        engine="llama.cpp",
        engine_version=row.build_commit,
        model=row.model_type,
        accelerator=row.gpu_info or row.cpu_info,
        kv=row.type_k,
        tool=NAME,
        file=file,
        label=test + (f" @ d{row.n_depth}" if row.n_depth else ""),
        date=row.test_time,
        converted=("t_step = avg_ns / n_gen at batch 1", "context = n_depth + n_prompt + n_gen / 2"),
    )


def _batched(row: _Batched, file: str) -> MeasuredPoint:
    if not row.tg or not row.t_tg:
        raise MeasurementError(
            Sentence("result.nothing_decoded", file=file, field="tg" if not row.tg else "t_tg"),
            "",
            Sentence("result.run_ntg"),
        )
    agree(
        file,
        "t_tg",
        row.t_tg,
        row.pl * row.tg / row.speed_tg if row.speed_tg else 0.0,
        "pl x tg / speed_tg",
        tolerance=0.03,
    )
    shared = bool(row.is_pp_shared) and row.pl > 1
    return MeasuredPoint(
        regime="decode",
        batch=row.pl,
        context=row.pp + row.tg / 2,
        t_step_s=row.t_tg / row.tg,
        ttft_s=row.t_pp,
        isl=row.pp,
        osl=row.tg,
        output_tokens_per_s=row.pl * row.tg / row.t_tg,
        samples=row.tg,
        cached_share=(row.pl - 1) / row.pl if shared else 0.0,
        statistic="mean",
        arrival="burst",
        engine="llama.cpp",
        tool=_BATCHED,
        file=file,
        label=f"pp{row.pp} tg{row.tg} x {row.pl}",
        converted=("t_step = t_tg / tg", "context = pp + tg / 2", "ttft = t_pp, the prompts of the whole batch"),
    )
