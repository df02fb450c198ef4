"""Sets apart from the fit: each predicted as it stands, never fitted, and told beside the bound."""

from __future__ import annotations

import csv
import dataclasses
import json
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import prior, published, readings, step, validate
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.deployment import Deployment
from batchline.errors import BatchlineError
from batchline.served_point import point_of
from validation.rows import SHARED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from batchline.validate import Outcome

CONFIGS = Path(__file__).with_name("configs.toml")
_TRTLLM_SEQS = 2048  # max_batch_size of trtllm-bench by default (its documentation)
_RENAMED = {
    "nvidia/Megatron-530B": "megatron-530b",
    "nvidia/GPT-350M": "gpt-350m",
    "nvidia/GPT-1.3B": "gpt-1-3b",
    "nvidia/GPT-6.7B": "gpt-6-7b",
    "nvidia/GPT-20B": "gpt-20b",
    "nvidia/GPT-89B": "gpt-89b",
    "nvidia/GPT-175B": "gpt-175b",
}
COLUMNS = [
    "model, accelerator, engine",
    "rows",
    "TPOT error, mean / median / p90, %",
    "predicted / measured, median",
    "in 90% interval",
    "bound / measured, median",
    "TTFT error, mean / median / p90, %",
]


def configs() -> dict[str, dict[str, Any]]:
    """Configs of models that the catalogue does not hold."""
    return tomllib.loads(CONFIGS.read_text(encoding="utf-8"))


def _outcomes(file: str, keep: Callable[[dict[str, str]], bool] = lambda _: True) -> list[Outcome]:
    """Predict the rows of a file."""
    with tempfile.TemporaryDirectory() as folder:
        for name, config in configs().items():
            (Path(folder) / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")
        with (SHARED / file).open(encoding="utf-8", newline="") as lines:
            rows = [row for row in csv.DictReader(lines) if row["qc"] == "ok" and keep(row)]
        found = []
        for line, row in enumerate(rows, 2):
            if row["model"] in _RENAMED:
                row["model"] = str(Path(folder) / f"{_RENAMED[row['model']]}.json")
            try:
                found.append(point_of(row, line))
            except BatchlineError as error:
                found.append((line, str(error)))
        return validate.predict(found)


def _line(name: str, outcomes: Iterable[Outcome]) -> list[str]:
    kept = list(outcomes)
    said = validate.summary(kept)
    pairs = [(o.tpot_s, o.bound_s, o.point.tpot_s) for o in kept if not o.refused and o.point and o.point.tpot_s]
    if not pairs:
        return [name, "0", "-", "-", "-", "-", "-"]
    tpot, bound, measured = (np.array(column) for column in zip(*pairs, strict=True))
    return [
        name,
        f"{len(pairs):,}",
        published.three(said["tpot"]),
        f"{np.median(tpot / measured):.2f}",
        f"{said['tpot']['coverage']:.0%}",
        f"{np.median(bound / measured):.2f}",
        published.three(said["ttft"]),
    ]


def _grouped(outcomes: list[Outcome]) -> list[list[str]]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    predicted = [outcome for outcome in outcomes if outcome.point and not outcome.refused]
    for outcome in predicted:
        case = outcome.point.case  # type: ignore[union-attr]
        groups[f"{case.model}, {case.accelerator}, {case.engine}"].append(outcome)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [_line("all", predicted), *(_line(name, members) for name, members in ordered[:16])]


def _set(name: str, what: str, outcomes: list[Outcome]) -> dict[str, Any]:
    refused = sum(bool(outcome.refused) for outcome in outcomes)
    left = f" {refused:,} rows are not predicted." if refused else ""
    return {"name": name, "what": what + left, "columns": COLUMNS, "rows": _grouped(outcomes)}


def splitwise() -> dict[str, Any]:
    """Steps and prompts timed apart, 2023."""
    what = (
        "Steps and prompts of a modified vLLM of 2023, timed apart, batch 1 to 64 (Splitwise, ISCA 2024, MIT). Two "
        "years of kernels lie between this engine and those of the fit."
    )
    return _set("Splitwise", what, _outcomes("decode_splitwise.csv"))


def fastertransformer() -> dict[str, Any]:
    """A batch from start to end on A100."""
    what = (
        "End to end over output length, batch 1 to 256 on A100 (NVIDIA FasterTransformer, gpt_guide.md, 2022-23; "
        "Apache-2.0). GPT models with full multi-head caches and an engine that the priors do not know."
    )
    return _set("FasterTransformer", what, _outcomes("static_fastertransformer.csv"))


def argonne() -> dict[str, Any]:
    """LLM-Inference-Bench."""
    what = (
        "Argonne LLM-Inference-Bench, SC24 workshop (BSD-3): end to end over output length with prompts as long as "
        "answers, batch 1 to 64, engines of 2024."
    )
    return _set("Argonne", what, _outcomes("static_argonne.csv"))


def dstack() -> dict[str, Any]:
    """Llama-405B end to end."""
    what = "dstack, H100 and MI300X, vLLM 0.6.3 of 2024 (Apache-2.0): a batch from start to end over its output length."
    return _set("dstack", what, _outcomes("serving_dstack.csv", lambda row: row["regime"] == "static_e2e"))


def disaggregated() -> dict[str, Any]:
    """Runs with pools of prefill and decode."""
    kept: list[Outcome] = []
    for file in ("serving_inferencemax.csv", "serving_dstack.csv"):
        kept += _outcomes(file, lambda row: row["disagg"] == "True" and not row["spec"].startswith("mtp"))
    what = (
        "InferenceMAX on GB200 and MI355X and dstack on H200, prefill and decode on devices of their own, whose "
        "numbers the notes tell. Nothing of this kind is in the fit. Where too few prefill instances hold requests "
        "back, TTFT is what Little's law leaves: its errors are large. The token budget of the prefill pools "
        "(8,192) and the kind of interval were settled after these rows had been seen."
    )
    return _set("Disaggregated pools", what, kept)


def max_throughput() -> dict[str, Any]:
    """Peak throughput of TensorRT-LLM's performance overview."""
    ratios: dict[str, list[float]] = defaultdict(list)
    with (SHARED / "maxthroughput_trtllm.csv").open(encoding="utf-8", newline="") as lines:
        for line, row in enumerate(csv.DictReader(lines), 2):
            point = point_of(row | {"batch_or_concurrency": "1"}, line)
            most = min(point.capacity, _TRTLLM_SEQS * point.deployment.dp)
            state = readings.steady(point.deployment, point.isl, point.osl, 4 * most, max_num_seqs=_TRTLLM_SEQS)
            ratio = float(state.output_tokens_per_s) / float(row["tput_tok_s_total"])
            for name in ("all", f"{point.case.model}, {point.case.accelerator}"):
                ratios[name].append(ratio)
    rows = []
    for name, found in sorted(ratios.items(), key=lambda item: -len(item[1])):
        errors = validate.errors_of(np.array(found) - 1)
        rows.append([name, f"{len(found):,}", published.three(errors), f"{1 + errors['bias']:.2f}"])
    what = (
        "Output tokens/s with all requests queued (TensorRT-LLM performance overview, 1.0 and main of 2026, "
        "Apache-2.0): no batch is told, so the cache and 2,048 sequences of a rank bound it. No such row is in the fit."
    )
    columns = ["model, accelerator", "rows", "error, mean / median / p90, %", "predicted / measured, median"]
    return {"name": "Peak throughput", "what": what, "columns": columns, "rows": rows}


def deepseek_day() -> dict[str, Any]:
    """DeepSeek's production day: open-infra-index, day 6; theory.md D03-D07."""
    node = dataclasses.replace(Accelerator.load("h800-sxm"), link_bandwidth=50e9)
    model = Architecture.load("deepseek-v3")
    priors = prior.load()
    columns = ["", "published", "predicted", "90% interval", "bound"]
    decode = Deployment(architecture=model, accelerator=node, count=144, tp=1, dp=144, ep=144, engine="generic")
    batch = 88.0 * 144
    case, here = readings.case_of(decode), readings.ideal_of(decode, 4989.0)
    taken = step.decode_step(here, priors.coefficients(case), batch)
    step_s, exchange_s = float(np.asarray(taken.total)), float(np.asarray(taken.ep_alltoall))
    hidden_s = max(step_s - exchange_s, exchange_s)
    low, high = priors.interval(case)
    floor = float(np.asarray(step.bound(here, batch)))

    def rate(seconds: float) -> str:
        return f"{8 * 88.0 / seconds / 1e3:.1f}k"

    prompt = Deployment(architecture=model, accelerator=node, count=32, tp=1, dp=32, ep=32, engine="generic")
    length = 4096.0
    ideal = readings.ideal_of(prompt, length, length)
    known = priors.coefficients(readings.case_of(prompt))
    prefill_s = float(np.asarray(step.prefill(ideal, known, length).total))
    ideal_s = length * float(np.asarray(ideal.prompt_token_s)) + float(np.asarray(ideal.prompt_attention_s))
    fresh = 1.0 - 0.563  # 56.3% of prompt tokens were found in the cache on disk
    rows = [
        ["time of a decode step, ms", "45-50 (20-22 tokens/s each)", f"{step_s * 1e3:.1f}",
         f"{step_s * low * 1e3:.1f} - {step_s * high * 1e3:.1f}", f"{floor * 1e3:.1f}"],
        ["... with the exchange hidden behind computing", "45-50", f"{hidden_s * 1e3:.1f}",
         f"{hidden_s * low * 1e3:.1f} - {hidden_s * high * 1e3:.1f}", f"{floor * 1e3:.1f}"],
        ["output tokens/s of a node of 8", "14.8k", rate(step_s), f"{rate(step_s * high)} - {rate(step_s * low)}",
         rate(floor)],
        ["prompt tokens/s of a node, cached ones included", "73.7k", f"{8 * length / prefill_s / fresh / 1e3:.1f}k", "",
         f"{8 * length / ideal_s / fresh / 1e3:.1f}k"],
    ]  # fmt: skip
    what = (
        "DeepSeek-V3 on H800, 24 hours of February 2025 (open-infra-index, day 6): decode on 144 devices with expert "
        "parallelism over InfiniBand (50 GB/s each), 88 sequences on each (14.8k tokens/s a node at 21 each) at 4,989 "
        "tokens; prefill on 32 with 56.3% of prompt tokens cached, prompts taken as 4,096 long. Its engine computes a "
        "batch while another is exchanged between experts (profile-data of the same week), so the longer of the two "
        "counts: the second row; our steps take one after the other. Whether it predicts several tokens is not told."
    )
    return {"name": "DeepSeek's production day", "what": what, "columns": columns, "rows": rows}


def palm() -> dict[str, Any]:
    """PaLM 540B on 64 TPU v4: arXiv 2211.05102, tables 2 and D.3 (theory.md P01-P10)."""
    model = Architecture.from_config(configs()["palm-540b"], name="palm-540b")
    device = Accelerator.load("tpu-v4")
    priors = prior.load()

    def steps(weights: str, batch: float, context: float) -> tuple[float, float]:
        served = Deployment(architecture=model, accelerator=device, count=64, tp=64, weights=weights, engine="generic")
        whole = readings.ideal_of(served, context)
        # The paper spreads the one KV head over the batch (section 3.3), so each device reads a 64th of the cache.
        ideal = dataclasses.replace(whole, kv_s=whole.kv_s / served.count)
        taken = step.decode_step(ideal, priors.coefficients(readings.case_of(served)), batch)
        return float(np.asarray(taken.total)), float(np.asarray(step.bound(ideal, batch)))

    rows = []
    published = [("int8", 64.0, 2048.0, 1.82 / 64, "64"), ("bf16", 512.0, 2048.0, 6.0 / 64, "512")]
    # Table D.3: 20 steps after 60 tokens, bf16.
    curve = {4: 640, 8: 574, 16: 602, 32: 626, 64: 717, 128: 829, 256: 1114}
    published += [("bf16", float(batch), 70.0, ms / 20e3, str(batch)) for batch, ms in curve.items()]
    for weights, batch, context, measured, shown in published:
        predicted, bound = steps(weights, batch, context)
        rows.append(
            [
                f"{weights}, batch {shown}, {context:,.0f} tokens",
                f"{measured * 1e3:.1f} ms",
                f"{predicted * 1e3:.1f} ms",
                f"{predicted / measured:.2f}",
                f"{bound * 1e3:.1f} ms",
            ]
        )
    what = (
        "PaLM 540B on 64 TPU v4 under JAX, decode steps (arXiv 2211.05102, tables 2 and D.3). No row of the fit is "
        "from a TPU or from 64 devices that share every layer."
    )
    columns = ["", "published", "predicted", "predicted / published", "bound"]
    return {"name": "PaLM", "what": what, "columns": columns, "rows": rows}


def all_sets() -> list[dict[str, Any]]:
    """Every set, in the order of the page, by the priors as they lie there now."""
    prior.load.cache_clear()
    ways = (deepseek_day, palm, disaggregated, max_throughput, splitwise, dstack, argonne, fastertransformer)
    return [way() for way in ways]
