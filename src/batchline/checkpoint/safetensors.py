"""Headers of safetensors files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchline.checkpoint.tensors import Tensor, take
from batchline.errors import ConfigError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_safetensors", "safetensors_files"]

_HEADER_LIMIT = 100_000_000
"""The safetensors format caps its header at 100 MB [B]."""


def safetensors_files(folder: Path) -> list[Path]:
    """Files of weights of a folder: those that the index names, or all; a copy in one file is not counted twice.

    Parameters
    ----------
    folder : Path
        The folder.

    Returns
    -------
    list of Path
        In order; none where there is none.

    Raises
    ------
    ConfigError
        The index cannot be read.
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = sorted({str(name) for name in table.values()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(Sentence("error.no_index", index=f"{index}", reason=f"{error}")) from None
        return [folder / Path(name).name for name in names]
    found = sorted(folder.glob("*.safetensors"))
    return [path for path in found if path.name != "consolidated.safetensors" or len(found) == 1]


def read_safetensors(file: str | Path) -> list[Tensor]:
    """Read the header of one safetensors file.

    Parameters
    ----------
    file : str or path
        The file.

    Returns
    -------
    list of Tensor
        Its tensors.

    Raises
    ------
    ConfigError
        If it cannot be read or is damaged.
    """
    path = Path(file)
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(take(stream, 8), "little")
            header = json.loads(take(stream, min(length, _HEADER_LIMIT)))
        size = path.stat().st_size - 8 - length
        return [_safetensor(name, entry, size) for name, entry in header.items() if name != "__metadata__"]
    except OSError as error:
        raise ConfigError(Sentence("error.unreadable", path=f"{path}", reason=f"{error.strerror or error}")) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            Sentence("error.no_safetensors_file", path=f"{path}", reason=f"{error}"),
            hint=Sentence("error.download_again"),
        ) from None


def _safetensor(name: str, entry: Mapping[str, Any], limit: int) -> Tensor:
    start, end = (_whole(offset) for offset in entry["data_offsets"])
    if not 0 <= start <= end <= limit:
        raise ValueError(f"{name} lies at {start:,} to {end:,} of {limit:,} bytes")
    return Tensor(name, str(entry["dtype"]), tuple(_whole(size) for size in entry["shape"]), end - start)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} where a whole number belongs")
    return value
