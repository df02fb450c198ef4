"""A row of a table by our names of its columns, and what its cells may hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchline import served_names
from batchline.errors import BatchlineError, MeasurementError
from batchline.strings import Sentence
from batchline.units import parse_number, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CARRIED", "NEEDED", "SAME_COLUMN", "USED", "Cells", "column"]

NEEDED = ("model", "hw", "engine", "isl", "osl", "batch_or_concurrency")
"""Columns that a row needs."""

USED = (
    "n_gpus", "tp", "pp", "ep", "dp", "dp_attention", "precision_w", "precision_kv", "engine_version", "date",
    "decode_step_ms", "ttft_ms", "regime", "context", "spec", "acceptance", "draft_tokens", "disagg", "prefill_gpus",
    "prefill_workers", "decode_gpus", "decode_workers", "prefix_hit_rate", "max_num_seqs", "max_num_batched_tokens",
    "gpu_memory_utilization", "admission_interval", "client", "num_prompts", "ttft_stat", "series_id", "qc", "notes",
)  # fmt: skip
"""Columns that are used when they are there."""

# What public tables say besides: where a row comes from, and figures that follow from the others.
CARRIED = (
    "source", "url_or_repo_path", "licence", "stat", "tput_tok_s_total", "total_tok_s_per_gpu", "output_tok_s_per_gpu",
    "e2e_ms", "p99_tpot_ms", "power_w_per_gpu", "energy_j_per_output_tok",
)  # fmt: skip

SAME_COLUMN = {
    "accelerator": "hw",
    "gpu": "hw",
    "hardware": "hw",
    "concurrency": "batch_or_concurrency",
    "batch": "batch_or_concurrency",
    "batch_size": "batch_or_concurrency",
    "num_gpus": "n_gpus",
    "gpus": "n_gpus",
    "input_len": "isl",
    "output_len": "osl",
    "tpot_ms": "decode_step_ms",
    "precision": "precision_w",
    "weights": "precision_w",
    "kv": "precision_kv",
    "version": "engine_version",
}
"""What other tables call our columns."""

_YES = frozenset({"true", "1", "1.0", "yes", "y", "on"})

_MOST = 1e8  # no length, batch or count of devices is larger


def column(name: str) -> str:
    """Our name of a column."""
    folded = name.strip().casefold()
    return SAME_COLUMN.get(folded, folded)


@dataclass(frozen=True)
class Cells:
    """A row, by our names of its columns."""

    cells: Mapping[str, str]

    def text(self, name: str) -> str:
        """What is written; "" where nothing is, or a word for nothing."""
        value = self.cells.get(name, "")
        return "" if served_names.is_blank(value) else value

    def needed_text(self, name: str) -> str:
        """What has to be written."""
        if not (value := self.text(name)):
            raise MeasurementError(
                Sentence("error.key_missing", name=name), "", Sentence("error.fill_column", name=name)
            )
        return value

    def number(self, name: str) -> float | None:
        """A number from 0 on; None where nothing is said."""
        text = self.text(name)
        if not text:
            return None
        value = parse_number(text)
        if value is None:
            try:
                value = float(parse_tokens(text))
            except BatchlineError:
                value = math.nan
        if not 0 <= value <= _MOST:
            raise MeasurementError(
                Sentence("error.engine_value", name=name, given=repr(text)),
                Sentence("error.number_from_0", most=f"{_MOST:,.0f}"),
                Sentence("error.mend_row"),
            )
        return value

    def needed(self, name: str) -> float:
        """A number above 0 that has to be there."""
        if not (value := self.number(name)):
            said = Sentence("error.key_missing" if value is None else "error.is_0", name=name)
            raise MeasurementError(said, "", Sentence("error.fill_column", name=name))
        return value

    def count(self, name: str) -> int | None:
        """A whole number from 1 on; None where nothing or 0 is said."""
        value = self.number(name)
        if value and value != round(value):
            raise MeasurementError(
                Sentence("error.engine_value", name=name, given=f"{value:g}"),
                Sentence("error.whole_number"),
                Sentence("error.mend_row"),
            )
        return round(value) if value else None

    def share(self, name: str) -> float:
        """A share from 0 to 1; 0 where nothing is said."""
        value = self.number(name) or 0.0
        if value > 1:
            raise MeasurementError(
                Sentence("error.engine_value", name=name, given=f"{value:g}"),
                Sentence("error.share_from_0_to_1"),
                Sentence("error.write_half"),
            )
        return value

    def yes(self, name: str) -> bool:
        """Whether it is said to be so."""
        return self.text(name).casefold() in _YES
