"""What is known of public collections of measurements where their rows say less, or something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline import prior, served_launch
from batchline.served_point.cells import Cells

if TYPE_CHECKING:
    from batchline.accelerator import Accelerator

__all__ = ["INFERENCEX_LENGTH", "client_of", "collection_of", "launched", "opening_share", "usual_kv"]

INFERENCEX_LENGTH = 0.9  # lengths are uniform in 0.8-1.0 of nominal: InferenceX, --random-range-ratio 0.8
_INFERENCEX_OPENING = 0.1  # ten prompts for each request in flight: InferenceX, benchmarks/benchmark_lib.sh


def collection_of(cell: Cells, model: str) -> str:
    """Name the public collection that a row comes from, where what is known of it says more than the row.

    The rows of Kimi-K2.5 and Qwen3.5 in NVIDIA's gap analysis are InferenceX's: 71 of 94 agree with one of those of the
    same load to the last digit given, and no other model has such a row.
    """
    source = cell.text("source")
    if any(word in source for word in ("InferenceX DB", "InferenceMAX")):
        return "InferenceX"
    if "gap-analysis" in source:
        return "InferenceX" if model in ("kimi-k2.5", "qwen3.5-397b-a17b") else "NVIDIA"
    return "InferenceX sweep" if "token_position_decode_slo" in source else ""


def launched(cell: Cells, served: prior.Case) -> Cells:
    """Fill in what the row leaves out from the script that started its server.

    Where the script knows nothing of data-parallel attention or of expert parallelism, a row that has them is mistaken:
    NVIDIA's collection reads TP 4 with EP 4 as attention DP 4 with EP 16.
    """
    known = served_launch.launch_of(
        model=served.base_model,
        accelerator=served.accelerator,
        engine=served.engine,
        weights=served.width,
        version=cell.text("engine_version"),
        date=cell.text("date"),
        isl=cell.number("isl") or 0.0,
        osl=cell.number("osl") or 0.0,
        tp=cell.count("tp") or 1,
        concurrency=cell.number("batch_or_concurrency") or 0.0,
    )
    told = dict(cell.cells)
    # NVIDIA's collection has ranks times ranks where attention is data-parallel: an id "tp8_ep8" has 64 devices there,
    # and equal points with equal digits have 8.
    ranks = cell.count("ep") or 1
    if ranks > 1 and cell.yes("dp_attention") and cell.count("dp") == cell.count("n_gpus") == ranks**2:
        told |= {"dp": f"{ranks}", "n_gpus": f"{ranks}"}
    if known.get("dp_attention") == "off":
        told |= {"dp_attention": "", "dp": "1"}
    elif known.get("dp_attention") == "on":
        told["dp_attention"] = "true"
    if parallel := known.get("expert_parallel"):
        told["ep"] = "1" if parallel == "off" else cell.text("n_gpus")
    for name in known.keys() - {"dp_attention", "expert_parallel"}:
        if not cell.text(name) or cell.text(name).startswith("unknown"):
            told[name] = known[name]
    return Cells(told)


def client_of(cell: Cells, collection: str) -> str:
    """How the client sends: what the row says, or what is known of a public collection; "" where that is not known."""
    said = cell.text("client").casefold()
    if said not in ("random", "fixed"):
        said = {"InferenceX": "random", "NVIDIA": "fixed", "InferenceX sweep": "sweep"}.get(collection, "")
    return f"{said}, median" if _tells_median(cell) and said else said


def _tells_median(cell: Cells) -> bool:
    # InferenceMAX's runs tell the median, NVIDIA's collection of them the mean: of gpt-oss-120b on TensorRT-LLM
    # 1.2.0rc2 both have the same points, TPOT within a percent, and TTFT 31 and 51 ms, 43 and 85 ms, 175 and 639 ms.
    return cell.text("ttft_stat").casefold() == "median" or "InferenceMAX" in cell.text("source")


def opening_share(cell: Cells, collection: str) -> float:
    """Share of a run's requests that are sent at once at its start: no median shows them."""
    if _tells_median(cell):
        return 0.0
    if prompts := cell.number("num_prompts"):
        return min(cell.needed("batch_or_concurrency") / prompts, 1.0)
    return _INFERENCEX_OPENING if collection == "InferenceX" else 0.0


def usual_kv(engine: str, accelerator: Accelerator, weights_name: str) -> str:
    """KV format where the row is silent: what the public recipes of the engine set for quantised weights.

    TensorRT-LLM's quantised checkpoints ask for an FP8 cache; nearly all scripts of InferenceX set it on Blackwell, few
    on Hopper (data/served_launches.csv).
    """
    quantised = weights_name not in ("bf16", "fp16", "fp32")
    blackwell = accelerator.generation.startswith("blackwell")
    if quantised and (engine == "tensorrt-llm" or (engine in ("vllm", "sglang") and blackwell)):
        return "fp8"
    return "bf16"
