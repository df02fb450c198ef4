"""Where a model is read from: the catalogue, a config.json, a folder, a GGUF file, Hugging Face."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchline import precision
from batchline.architecture import _catalogue
from batchline.errors import ConfigError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchline.checkpoint import Checkpoint

__all__ = ["Found", "find"]


@dataclass(frozen=True, kw_only=True)
class Found:
    """What was read of a model.

    Parameters
    ----------
    config, hf_quant_config : mapping
        The parsed files; the second is None where there is none.
    name, source, date : str
        What it is called, where it was read and when it was seen.
    checkpoint : Checkpoint or None
        Headers of its weights, where they were there.
    linear_format : str or None
        Number format of most weights of a GGUF file, whose config does not tell it.
    """

    config: Mapping[str, Any]
    hf_quant_config: Mapping[str, Any] | None = None
    name: str
    source: str
    date: str = ""
    checkpoint: Checkpoint | None = None
    linear_format: str | None = None


def find(given: str | Path, *, fetch: bool) -> Found:
    """Read a model by name, id or path, as of `Architecture.load`."""
    if isinstance(given, Path) or _is_path(given):
        path = Path(os.path.expanduser(given))  # noqa: PTH111  (leaves the home of nobody as it is, where Path's raises)
        return _in_gguf(path) if path.suffix == ".gguf" else _at(path)
    if fetch and given.count("/") == 1 and not _catalogue.holds(given):
        return _fetched(given)
    row = _catalogue.find(given)
    return Found(config=row.config, name=row.name, source=row.source, date=row.date)


def _is_path(given: str) -> bool:
    if given.endswith((".json", ".gguf")) or given.startswith((".", "/", "~")):
        return True
    return os.path.isdir(given)  # noqa: PTH112  (False for what can be no path, where Path.is_dir raises)


def _at(path: Path) -> Found:
    """A config.json, or a folder with one."""
    folder, file = (path, path / "config.json") if path.is_dir() else (path.parent, path)
    config = _read_json(file)
    quant = folder / "hf_quant_config.json"
    # A config.json is named after its folder, also when that is given as "." or not at all.
    name = path.stem if path.is_file() and path.stem != "config" else folder.resolve().name or "config"
    read = None
    if path.is_dir() and any(path.glob("*.safetensors")):
        from batchline import checkpoint  # noqa: PLC0415  # only where there are weights

        read = checkpoint.load(path)
    return Found(
        config=config,
        hf_quant_config=_read_json(quant) if path.is_dir() and quant.is_file() else None,
        name=name,
        source=str(path),
        checkpoint=read,
    )


def _in_gguf(path: Path) -> Found:
    from batchline import checkpoint  # noqa: PLC0415  # only for such a file

    read = checkpoint.load(path)
    kinds = {kind: size for kind, size in read.bytes_by_type().items() if kind in precision.names()}
    return Found(
        config=checkpoint.gguf_config(read),
        name=path.stem,
        source=str(path),
        checkpoint=read,
        linear_format=max(kinds, key=kinds.__getitem__, default="bf16"),
    )


def _fetched(hf_id: str) -> Found:
    from batchline import checkpoint  # noqa: PLC0415  # only when asked to fetch

    got = checkpoint.fetch(hf_id)
    return Found(
        config=got.config,
        hf_quant_config=got.hf_quant_config,
        name=hf_id,
        source=f"huggingface.co/{hf_id}",
        checkpoint=got.checkpoint,
    )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            Sentence("config.unreadable", file=str(file), reason=str(error.strerror or error)),
            hint=Sentence("config.give_config"),
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            Sentence("config.no_json", file=str(file), reason=str(error)), hint=Sentence("config.give_config")
        ) from None
    if not isinstance(data, dict):
        raise ConfigError(Sentence("config.no_json_object", file=str(file)), hint=Sentence("config.give_config"))
    return data
