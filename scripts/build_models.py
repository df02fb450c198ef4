"""Build the catalogue of models, src/batchline/data/models.jsonl, from a folder of config.json files.

    python scripts/build_models.py ../shared/catalog/configs

Each config is read by the package's own parser, which notes the keys that decide sizes; only these are kept, long
lists written short. A line is written only if the parser makes the very same model of it. `scripts/model_names.csv`
holds names and aliases; a config without a name there, or of a family that is not known, is reported and left out.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

from batchline.architecture import Architecture, _catalogue
from batchline.architecture._config import Config
from batchline.errors import BatchlineError

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "src" / "batchline" / "data" / "models.jsonl"
SEEN = "2026-11-30"
WRAPPERS = ("text_config", "language_config", "llm_config")
KEPT = ("model_type", "torch_dtype", "dtype")


def main() -> int:
    """Write the catalogue and say what was left out."""
    folder = Path(sys.argv[1])
    provenance = json.loads((folder / "PROVENANCE.json").read_text(encoding="utf-8"))
    with (ROOT / "scripts" / "model_names.csv").open(encoding="utf-8") as file:
        names = list(csv.DictReader(file))
    lines = []
    for row in names:
        stem = row["hf_id"].replace("/", "--")
        config = json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))
        quant_file = folder / f"{stem}.hf_quant_config.json"
        quant = json.loads(quant_file.read_text(encoding="utf-8")) if quant_file.is_file() else None
        try:
            short = shorten(config, quant)
        except BatchlineError as error:
            print(f"left out {row['hf_id']}: {error}")
            continue
        line = {
            "name": row["name"],
            "hf_id": row["hf_id"].removesuffix("(text)"),
            "aliases": row["aliases"].split(),
            "source": source(provenance[f"{stem}.json"]),
            "date": SEEN,
            "config": short,
        }
        lines.append(json.dumps(line, separators=(",", ":"), ensure_ascii=False))
    OUTPUT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} models, {OUTPUT.stat().st_size:,} bytes")
    return 0


def source(text: str) -> str:
    """Where the config was seen, without what concerns only the folder."""
    text = re.sub(r", copied byte for byte.*", ": config.json of this id", text)
    return re.sub(r"find_string id \d+ \((.*)\)", r"public repository: \1", text)


def shorten(config: dict[str, Any], quant: dict[str, Any] | None) -> dict[str, Any]:
    """Keys that decide sizes, and the same model made of them."""
    wanted = Architecture.from_config(config, quant)
    reads: list[Config] = []
    original = Config.refuse_unread

    def noting(self: Config) -> None:
        reads.append(self)
        original(self)

    Config.refuse_unread = noting  # type: ignore[method-assign]
    try:
        Architecture.from_config(config, quant)
    finally:
        Config.refuse_unread = original  # type: ignore[method-assign]
    inner = next((config[wrapper] for wrapper in WRAPPERS if isinstance(config.get(wrapper), dict)), config)
    short = {"model_type": wanted.model_type}
    short |= {key: value for key, value in reads[-1].read.items() if value is not None}
    for key in KEPT[1:]:
        if value := inner.get(key) or config.get(key):
            short[key] = value
    recipe = quant.get("quantization", quant) if quant else None
    recipe = recipe or inner.get("quantization_config") or config.get("quantization_config")
    if recipe:
        if quant:
            recipe = {"quant_method": "modelopt", **recipe}
        short["quantization_config"] = shorter_recipe(recipe, short, wanted)
    compact = {key: compress(value) for key, value in short.items()}
    check(compact, wanted)
    return compact


def check(short: dict[str, Any], wanted: Architecture) -> None:
    """Stop if the short form makes another model."""
    if not same(short, wanted):
        raise SystemExit(f"the short form of {wanted.model_type} differs: {short}")


def same(short: dict[str, Any], wanted: Architecture) -> bool:
    """Whether the short form makes the same model."""
    try:
        made = Architecture.from_config(_catalogue.expand(short))
    except BatchlineError:
        return False
    return dataclasses.replace(made, name=wanted.name, source=wanted.source) == wanted


def shorter_recipe(recipe: dict[str, Any], short: dict[str, Any], wanted: Architecture) -> dict[str, Any]:
    """The recipe with long module lists written as globs, if that changes nothing."""
    kept = {key: value for key, value in recipe.items() if key not in {"producer", "quantization_status", "format"}}
    for key, value in recipe.items():
        for shorter in candidates(value):
            trial = {**kept, key: shorter}
            if same({**short, "quantization_config": trial}, wanted):
                kept = trial
                break
    return kept


def candidates(value: Any) -> list[Any]:
    """Shorter forms of a list or table of modules, shortest first."""
    if isinstance(value, list) and len(value) > 8 and all(isinstance(item, str) for item in value):
        starred = list(dict.fromkeys(re.sub(r"(?<=layers\.)\d+", "*", item) for item in value))
        inside = [item for item in starred if not re.search(r"norm|vision|visual|bias|mtp|multi_modal", item)]
        return [inside, starred]
    if isinstance(value, dict) and len(value) > 8:
        starred = {}
        for module, entry in value.items():
            starred.setdefault(re.sub(r"(?<=layers\.)\d+", "*", re.sub(r"(?<=experts\.)\d+", "0", module)), entry)
        one = {}
        for module, entry in value.items():
            one.setdefault(re.sub(r"(?<=experts\.)\d+", "0", module), entry)
        return [starred, one]
    return []


def compress(value: Any) -> Any:
    """Long lists of a few values as a cycle or as runs."""
    if not isinstance(value, list) or len(value) < 8:
        return {key: compress(content) for key, content in value.items()} if isinstance(value, dict) else value
    length = len(value)
    for period in range(1, min(13, length // 2)):
        if value == (value[:period] * (length // period + 1))[:length]:
            return {"cycle": value[:period], "length": length}
    runs: list[list[Any]] = []
    for item in value:
        if runs and runs[-1][0] == item:
            runs[-1][1] += 1
        else:
            runs.append([item, 1])
    return {"runs": runs} if len(runs) * 2 < length else value


if __name__ == "__main__":
    sys.exit(main())
