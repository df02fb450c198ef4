"""Config files and headers of a Hugging Face id, over the network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchline.checkpoint.tensors import Checkpoint, Tensor
from batchline.errors import ConfigError, MissingFactError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Fetched", "fetch"]


@dataclass(frozen=True)
class Fetched:
    """What was fetched for a Hugging Face id.

    Parameters
    ----------
    config : mapping
        The parsed config.json.
    hf_quant_config : mapping or None
        The parsed hf_quant_config.json, if the repository has one.
    checkpoint : Checkpoint or None
        Headers of its safetensors files, if it has any.
    """

    config: Mapping[str, Any]
    hf_quant_config: Mapping[str, Any] | None
    checkpoint: Checkpoint | None


def fetch(hf_id: str) -> Fetched:
    """Fetch the config files of a Hugging Face id and the headers of its safetensors files.

    Parameters
    ----------
    hf_id : str
        Like "Qwen/Qwen3-32B".

    Returns
    -------
    Fetched
        Config files and tensors.

    Raises
    ------
    MissingFactError
        If batchline[hub] is not installed.
    ConfigError
        If the repository cannot be reached or has no config.json.
    """
    try:
        import huggingface_hub  # noqa: PLC0415  # an extra, and 0.3 s
    except ImportError:
        raise MissingFactError(
            Sentence("error.needs_hub", hf_id=hf_id),
            hint=Sentence("error.install_hub"),
        ) from None
    config = _fetch_json(huggingface_hub, hf_id, "config.json")
    if config is None:
        raise ConfigError(Sentence("error.hub_no_config", hf_id=hf_id), hint=Sentence("error.give_config"))
    quant = _fetch_json(huggingface_hub, hf_id, "hf_quant_config.json")
    return Fetched(config, quant, _fetch_headers(huggingface_hub, hf_id))


def _fetch_json(hub: Any, hf_id: str, name: str) -> Mapping[str, Any] | None:
    import httpx  # noqa: PLC0415  # only a fetch needs it

    try:
        data = json.loads(Path(hub.hf_hub_download(hf_id, name)).read_text(encoding="utf-8"))
    except (hub.errors.HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        missing = isinstance(error, hub.errors.EntryNotFoundError)
        if missing and not isinstance(error, hub.errors.LocalEntryNotFoundError):
            return None
        raise ConfigError(
            Sentence("error.hub_not_fetched", hf_id=hf_id, name=name, reason=_first_line(error)),
            hint=Sentence("error.check_hub"),
        ) from None
    if not isinstance(data, dict):
        raise ConfigError(Sentence("error.hub_no_object", hf_id=hf_id, name=name))
    return data


def _fetch_headers(hub: Any, hf_id: str) -> Checkpoint | None:
    import httpx  # noqa: PLC0415  # only a fetch needs it

    try:
        files: Iterable[Any] = hub.get_safetensors_metadata(hf_id).files_metadata.values()
    except hub.errors.NotASafetensorsRepoError:
        return None
    except (hub.errors.HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        raise ConfigError(Sentence("error.hub_no_headers", hf_id=hf_id, reason=_first_line(error))) from None
    tensors = [
        Tensor(name, entry.dtype, tuple(entry.shape), entry.data_offsets[1] - entry.data_offsets[0])
        for file in files
        for name, entry in file.tensors.items()
    ]
    return Checkpoint(hf_id, tuple(tensors))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
