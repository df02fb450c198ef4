"""How public benchmarks started their servers: what their tables of results leave out and their launch scripts say."""

from __future__ import annotations

import csv
import functools
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["launch_of", "launches"]

_SERVED = ("model", "accelerator", "engine", "weights")
_TOLD = (
    "precision_kv", "gpu_memory_utilization", "max_num_batched_tokens", "max_num_seqs", "admission_interval",
    "dp_attention", "expert_parallel", "spec", "repeated_prompts",
)  # fmt: skip


@functools.cache
def launches() -> tuple[Mapping[str, str], ...]:
    """Read what is known of the launch scripts of InferenceX, as of the day in each row.

    Returns
    -------
    tuple of mapping
        Rows of data/served_launches.csv: what was served, the conditions under which a setting was used (words in the
        version of the engine or the name of its image, months, nominal lengths, tensor-parallel degree, requests in
        flight; empty: any), the settings (empty:
        left to the engine), where that stands and what is doubtful.

    Examples
    --------
    >>> sorted({row["source"].split(":")[0] for row in launches()})[-1]
    'whn09/InferenceX'
    """
    text = resources.files("batchline").joinpath("data/served_launches.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def launch_of(
    *,
    model: str,
    accelerator: str,
    engine: str,
    weights: str,
    version: str = "",
    date: str = "",
    isl: float,
    osl: float,
    tp: int,
    concurrency: float,
) -> dict[str, str]:
    """Find how the server of a row of InferenceX was started.

    Parameters
    ----------
    model, accelerator, engine, weights : str
        By our names: "gpt-oss-120b", "h200-sxm", "vllm", "fp4".
    version, date : str
        Of the engine as the row has it, image included, and of the measurement, as far as known.
    isl, osl : float
        Nominal lengths [token].
    tp : int
        Tensor-parallel degree [-].
    concurrency : float
        Requests in flight [request].

    Returns
    -------
    dict
        Settings by the columns of `served_point`; `expert_parallel`, "on" or "off"; `repeated_prompts`, "yes" where the
        server kept a prefix cache and was sent prompts that it had seen. Those of the most specific script that
        applies, empty where nothing is known.

    Examples
    --------
    >>> launch_of(model="llama-3.1-70b", accelerator="h200-sxm", engine="vllm", weights="fp8", date="2025-10-29",
    ...           isl=1024, osl=1024, tp=1, concurrency=4)["precision_kv"]
    'fp8'
    """
    served = (model, accelerator, engine, weights)
    exact = {"isl": isl, "osl": osl, "tp": tp}
    month = date[:7]

    def applies(row: Mapping[str, str]) -> bool:
        return (
            tuple(row[name] for name in _SERVED) == served
            and (row["version"] in version)
            and (not month or row["from_date"] <= month <= (row["to_date"] or "9999"))
            and all(not row[name] or float(row[name]) == value for name, value in exact.items())
            and float(row["conc_from"] or 0) <= concurrency <= float(row["conc_to"] or "inf")
        )

    def specific(row: Mapping[str, str]) -> tuple[int, int]:
        conditions = ("from_date", "to_date", "isl", "osl", "tp", "conc_from", "conc_to")
        return len(row["version"]), sum(1 for name in conditions if row[name])

    known = [row for row in launches() if applies(row)]
    return {name: row[name] for row in [max(known, key=specific)] for name in _TOLD if row[name]} if known else {}
