"""Count parameters with transformers on the meta device: tests/data/golden_counts.csv and golden_families.jsonl.

    uv venv /tmp/golden && uv pip install --python /tmp/golden/bin/python torch transformers==5.24.0 numpy
    PYTHONPATH=src /tmp/golden/bin/python scripts/golden_counts.py

A second opinion on every total: the classes that run the models count their own parameters, without memory for them.
The first file has the models of the catalogue, the second the default config of each family's class, with all its
keys. It needs torch, so it runs outside CI; the tests read what it wrote. Models and families without a class in
transformers, or with one of another shape, are named and left out.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

from batchline.architecture import _catalogue
from batchline.architecture._families import family_names

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "tests" / "data" / "golden_counts.csv"
FAMILIES = ROOT / "tests" / "data" / "golden_families.jsonl"
CLASSES = {
    "kimi_k2": "deepseek_v3",
    "deepseek_ref": "deepseek_v4",
    "minimax_m3": "minimax_m3_vl_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
}
OTHER_SHAPE = {
    "kimi_linear": "the class has no latent experts",
    "step3p7": "the class reads other keys",
    "mimo_v2_flash": "the class reads other keys",
}


def main() -> int:
    """Count and write."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers  # noqa: PLC0415

    done, left_out = [], []
    for row in sorted(_catalogue.rows(), key=lambda row: row.name):
        try:
            total, embedding = count(dict(row.config))
        except Exception as error:  # noqa: BLE001  # whatever a class raises, the model is named and left out
            left_out.append(f"{row.name} ({row.family}): {type(error).__name__}: {str(error).splitlines()[0][:150]}")
            continue
        done.append([row.name, total, embedding, f"transformers {transformers.__version__}"])
        print(row.name, f"{total:,}", flush=True)
    with OUTPUT.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "total_params", "embedding_params", "source"])
        writer.writerows(done)
    print(f"{len(done)} counted; left out:", *left_out, sep="\n  ")
    count_families()
    return 0


MADE_WHOLE = {
    "dots1": {"n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "gemma4_text": {"num_hidden_layers": 6},
    "phimoe": {"lm_head_bias": True, "attention_bias": True},
    "hunyuan_v1_dense": {"head_dim": 128},
    "nemotron": {"head_dim": 128},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "granite": {"attention_bias": True, "mlp_bias": True},
    "stablelm": {"use_qkv_bias": True},
    "ernie4_5": {"use_bias": True},
    "cohere": {"use_qk_norm": True},
}
"""What a default config leaves open, or what makes it say more."""

NATIVE = {"deepseek_v4", "gemma4_text", "glm4_moe", "kimi_linear", "mimo_v2_flash", "minimax_m3_vl"}
"""Families whose class writes other keys than the repositories of their models have; those are counted above."""

NOISE = {"id2label", "label2id", "transformers_version", "architectures", "problem_type", "_name_or_path"}


def count_families() -> None:
    """Write the default config of each family with its count."""
    import transformers  # noqa: PLC0415

    lines, left_out = [], []
    for family in sorted(set(family_names()) - NATIVE):
        try:
            config, total, embedding = default_of(family)
        except Exception as error:  # noqa: BLE001  # whatever a class raises, the family is named and left out
            left_out.append(f"{family}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}")
            continue
        source = f"transformers {transformers.__version__}"
        row = {"family": family, "total_params": total, "embedding_params": embedding, "source": source}
        lines.append(json.dumps({**row, "config": config}, separators=(",", ":")))
    FAMILIES.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} families counted; left out:", *left_out, sep="\n  ")


def default_of(family: str) -> tuple[dict[str, Any], int, int]:
    """Default config of a family's class, as it would be saved, and its counts."""
    from transformers import AutoConfig  # noqa: PLC0415

    made = AutoConfig.for_model(family, **MADE_WHOLE.get(family, {}))
    text = getattr(made, "text_config", made)
    config = {key: value for key, value in json.loads(json.dumps(text.to_dict())).items() if key not in NOISE}
    config.setdefault("tie_word_embeddings", False)
    config["model_type"] = family
    return config, *count_class(text, tied=config["tie_word_embeddings"])


def count(config: dict[str, Any]) -> tuple[int, int]:
    """Parameters of the language model, and of its input embedding."""
    from transformers import AutoConfig  # noqa: PLC0415

    config.pop("quantization_config", None)
    for key in ("torch_dtype", "dtype"):
        config.pop(key, None)
    family = config.pop("model_type")
    if family in OTHER_SHAPE:
        raise ValueError(OTHER_SHAPE[family])
    made = AutoConfig.for_model(CLASSES.get(family, family), **config)
    text = getattr(made, "text_config", made)
    return count_class(text, tied=bool(config.get("tie_word_embeddings", getattr(text, "tie_word_embeddings", False))))


def count_class(config: Any, *, tied: bool) -> tuple[int, int]:
    """Parameters of the class of a config; text models of wrappers have no head of their own, so it is added."""
    import torch  # noqa: PLC0415
    from transformers import AutoModel, AutoModelForCausalLM  # noqa: PLC0415

    headless = type(config) not in AutoModelForCausalLM._model_mapping  # noqa: SLF001  # there is no other way to ask
    with torch.device("meta"):
        model = (AutoModel if headless else AutoModelForCausalLM).from_config(config)
    total = sum(parameter.numel() for parameter in model.parameters())
    embedding = model.get_input_embeddings().weight.numel()
    return total + (embedding if headless and not tied else 0), embedding


if __name__ == "__main__":
    sys.exit(main())
