"""Count the parameters of the catalogue's models with transformers on the meta device, for tests/data/golden_counts.csv.

    uv venv /tmp/golden && uv pip install --python /tmp/golden/bin/python torch transformers==5.24.0 numpy
    PYTHONPATH=src /tmp/golden/bin/python scripts/golden_counts.py

A second opinion on every total: the classes that run the models count their own parameters, without memory for them.
It needs torch, so it runs outside CI; the test reads the file that it wrote. Models without a class in transformers
are named and left out, so are vision towers. Each row: name, parameters, input embedding, version.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

from batchline.architecture import _catalogue

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "tests" / "data" / "golden_counts.csv"
CLASSES = {
    "kimi_k2": "deepseek_v3",
    "deepseek_ref": "deepseek_v4",
    "minimax_m3": "minimax_m3_vl_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
}
OTHER_SHAPE = {"kimi_linear": "the class has no latent experts", "step3p7": "the class reads other keys"}


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
    return 0


def count(config: dict[str, Any]) -> tuple[int, int]:
    """Parameters of the language model, and of its input embedding."""
    import torch  # noqa: PLC0415
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM  # noqa: PLC0415

    config.pop("quantization_config", None)
    for key in ("torch_dtype", "dtype"):
        config.pop(key, None)
    family = config.pop("model_type")
    if family in OTHER_SHAPE:
        raise ValueError(OTHER_SHAPE[family])
    made = AutoConfig.for_model(CLASSES.get(family, family), **config)
    text = getattr(made, "text_config", made)
    headless = type(text) not in AutoModelForCausalLM._model_mapping  # noqa: SLF001  # text models of wrappers
    with torch.device("meta"):
        model = (AutoModel if headless else AutoModelForCausalLM).from_config(text)
    total = sum(parameter.numel() for parameter in model.parameters())
    embedding = model.get_input_embeddings().weight.numel()
    return total + (embedding if headless and not text.tie_word_embeddings else 0), embedding


if __name__ == "__main__":
    sys.exit(main())
