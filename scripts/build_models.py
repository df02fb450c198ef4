"""Build the catalogue of models, src/batchline/data/models.jsonl, from a folder of config.json files.

    python scripts/build_models.py ../shared/catalog/configs SITE-PACKAGES/aiconfigurator_core/model_configs

The second folder is that of the Python package aiconfigurator-core 0.12.0 (Apache-2.0). `scripts/more_models.jsonl`
holds models of other sources by their sizes. Each config is read by the package's own parser, which notes the keys that
decide sizes; only these are kept, long lists written short. A line is written only if the parser makes the very same
model of it. `scripts/model_names.csv` holds names and aliases; a config without a name there is left out, and one of a
family that is not known is reported.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import sys
from collections import Counter
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
    folders = [Path(argument) for argument in sys.argv[1:]]
    with (ROOT / "scripts" / "model_names.csv").open(encoding="utf-8") as file:
        names = list(csv.DictReader(file))
    lines = []
    for row in names:
        found = find(row["hf_id"], folders)
        if found is None:
            print(f"left out {row['hf_id']}: no config in {', '.join(map(str, folders))}")
            continue
        config, quant, where = found
        try:
            short = shorten(config, quant)
        except BatchlineError as error:
            print(f"left out {row['hf_id']}: {error}")
            continue
        lines.append(line(row["name"], row["hf_id"].removesuffix("(text)"), row["aliases"].split(), where, short))
    for text in (ROOT / "scripts" / "more_models.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        config = _catalogue.expand(row["config"])
        lines.append(line(row["name"], row["hf_id"], row["aliases"], row["source"], shorten(config, None)))
    OUTPUT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} models, {OUTPUT.stat().st_size:,} bytes")
    return 0


PACKAGE = (
    "Python package aiconfigurator-core 0.12.0 (Apache-2.0), aiconfigurator_core/model_configs/: config.json of this id"
)


def find(hf_id: str, folders: list[Path]) -> tuple[dict[str, Any], dict[str, Any] | None, str] | None:
    """Config, hf_quant_config and source of an id in the first folder that has it."""
    stem = hf_id.replace("/", "--")
    for folder in folders:
        provenance = folder / "PROVENANCE.json"
        sources = json.loads(provenance.read_text(encoding="utf-8")) if provenance.is_file() else {}
        for name, quant_name in (
            (f"{stem}.json", f"{stem}.hf_quant_config.json"),
            (f"{stem}_config.json", f"{stem}_hf_quant_config.json"),
        ):
            if (folder / name).is_file():
                quant = folder / quant_name
                recipe = json.loads(quant.read_text(encoding="utf-8")) if quant.is_file() else None
                config = json.loads((folder / name).read_text(encoding="utf-8"))
                return config, recipe, source(sources[name]) if sources else PACKAGE
    return None


def line(name: str, hf_id: str, aliases: list[str], where: str, short: dict[str, Any]) -> str:
    """One line of the catalogue."""
    row = {
        "name": name,
        "hf_id": hf_id,
        "aliases": aliases,
        "family": short["model_type"],
        "source": where,
        "date": SEEN,
    }
    row["config"] = short  # last: the reader splits a line here
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False)


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
    short |= {key: plain(value) for key, value in reads[-1].read.items()}
    for key in KEPT[1:]:
        if value := inner.get(key) or config.get(key):
            short[key] = value
    recipe = inner.get("quantization_config") or config.get("quantization_config")
    if quant and not recipe:
        recipe = {"quant_method": "modelopt", **quant.get("quantization", quant)}
    if recipe:
        short["quantization_config"] = shorter_recipe(recipe, short, wanted)
    compact = {key: compress(value) for key, value in short.items()}
    check(compact, wanted)
    return compact


def plain(value: Any) -> Any:
    """What was read of a nested object, without nulls."""
    if isinstance(value, dict):
        return {key: plain(content) for key, content in value.items() if content is not None}
    return [plain(item) for item in value] if isinstance(value, list) else value


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
        for candidate in candidates(value):
            trial = {**kept, key: candidate}
            if same({**short, "quantization_config": trial}, wanted):
                kept = trial
                break
    return kept


def candidates(value: Any) -> list[Any]:
    """Shorter forms of a list or table of modules, shortest first."""
    if isinstance(value, list) and len(value) > 3 and all(isinstance(item, str) for item in value):
        inside = [item for item in value if not re.search(r"norm|vision|visual|bias|mtp|multi_modal|mm_proj", item)]
        often = Counter(map(starred, inside))
        frequent = [starred(item) if often[starred(item)] > 4 else item for item in inside]
        forms = (map(starred, inside), frequent, inside, map(starred, value))
        return [list(dict.fromkeys(form)) for form in forms]
    if isinstance(value, dict) and len(value) > 3:
        one = {re.sub(r"(?<=experts\.)\d+", "0", module): entry for module, entry in reversed(value.items())}
        forms = [{starred(module): entry for module, entry in one.items()}, one]
        groups = {
            name: {**group, "targets": candidates(group["targets"])[0]}
            for name, group in value.items()
            if isinstance(group, dict) and len(group.get("targets", ())) > 3
        }
        return [groups, *forms] if groups else forms
    if isinstance(value, dict) and all(isinstance(group, dict) for group in value.values()):
        short = {
            name: {key: shorter(key, content) for key, content in group.items() if key != "output_activations"}
            for name, group in value.items()
        }
        return [short]
    return []


def starred(module: str) -> str:
    """Module with a star for the layer, so that one entry stands for all layers."""
    return re.sub(r"(?<=layers\.)\d+(?=\.)", "*", module)


def shorter(key: str, value: Any) -> Any:
    """Part of a config group of compressed-tensors without what changes no byte."""
    if key == "targets" and len(value) > 3:
        return candidates(value)[0]
    if key == "weights" and isinstance(value, dict):
        kept = ("num_bits", "type", "strategy", "group_size", "symmetric")
        return {part: value[part] for part in kept if value.get(part) is not None}
    if key == "input_activations" and isinstance(value, dict):
        return {"num_bits": value.get("num_bits")}
    return value


def compress(value: Any) -> Any:
    """Long lists of a few values as runs of repeated pieces."""
    if isinstance(value, dict):
        return {key: compress(content) for key, content in value.items()}
    if not isinstance(value, list) or len(value) < 8:
        return value
    runs: list[tuple[list[Any], int]] = []
    start = 0
    while start < len(value):
        piece, times = best_run(value, start)
        runs.append((piece, times))
        start += len(piece) * times
    short = {"runs": runs}
    return short if len(json.dumps(short)) < len(json.dumps(value)) else value


def best_run(value: list[Any], start: int) -> tuple[list[Any], int]:
    """The piece at `start` whose repetitions reach farthest, the shortest of these."""
    best, farthest = (value[start : start + 1], 1), start + 1
    for period in range(1, 13):
        piece, times = value[start : start + period], 1
        while value[start + period * times : start + period * (times + 1)] == piece:
            times += 1
        if times > 1 and start + period * times > farthest:
            best, farthest = (piece, times), start + period * times
    return best


if __name__ == "__main__":
    sys.exit(main())
