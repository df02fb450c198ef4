"""Headers of GGUF files: metadata and tensors."""

from __future__ import annotations

import csv
import functools
import math
import re
import struct
from pathlib import Path
from typing import IO, Any

from batchline.checkpoint.tensors import Checkpoint, Tensor, take
from batchline.errors import ConfigError
from batchline.strings import Sentence

__all__ = ["load_gguf", "read_gguf"]

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONG_ARRAY = 4096
"""Longer arrays (the tokens) are walked over; only their length is kept [-]."""


def load_gguf(path: Path) -> Checkpoint:
    """Read all parts of a GGUF file.

    Parameters
    ----------
    path : Path
        Any part.

    Returns
    -------
    Checkpoint
        Tensors of all parts, metadata of the first.

    Raises
    ------
    ConfigError
        As of `read_gguf`.
    """
    parts = [path]
    if match := _PART.search(path.name):
        stem, count = path.name[: match.start()], int(match[2])
        parts = [path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    read = [read_gguf(part) for part in parts]
    return Checkpoint(str(path), tuple(tensor for _, tensors in read for tensor in tensors), read[0][0])


def read_gguf(file: str | Path) -> tuple[dict[str, Any], list[Tensor]]:
    """Read metadata and tensor table of one GGUF file, version 2 or 3.

    Parameters
    ----------
    file : str or path
        The file.

    Returns
    -------
    metadata : dict
        Keys and values; a long array is given as `range` of its length.
    tensors : list of Tensor
        Its tensors.

    Raises
    ------
    ConfigError
        If it cannot be read, is damaged, or has a type that is not known.
    """
    path = Path(file)
    try:
        with path.open("rb") as stream:
            reader = _Gguf(stream, path.stat().st_size)
            return reader.read()
    except OSError as error:
        raise ConfigError(Sentence("error.unreadable", path=f"{path}", reason=f"{error.strerror or error}")) from None
    except (ValueError, KeyError, struct.error, OverflowError, RecursionError, MemoryError) as error:
        raise ConfigError(
            Sentence("error.no_gguf", path=f"{path}", reason=f"{error}"), hint=Sentence("error.download_again")
        ) from None


class _Gguf:
    """Walks over the header of a GGUF file."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self.stream = stream
        self.size = size

    def read(self) -> tuple[dict[str, Any], list[Tensor]]:
        if take(self.stream, 4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version, tensors, pairs = self.number("I"), self.number("Q"), self.number("Q")
        if version not in {2, 3}:
            raise ValueError(f"version {version}; known are 2 and 3, little-endian")
        if tensors * 24 > self.size or pairs * 12 > self.size:
            raise ValueError(f"{tensors:,} tensors and {pairs:,} keys in {self.size:,} bytes")
        metadata = {}
        for _ in range(pairs):
            key = self.text()
            metadata[key] = self.value(self.number("I"))
        return metadata, [self.tensor() for _ in range(tensors)]

    def number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", take(self.stream, struct.calcsize(f"<{kind}")))[0]

    def text(self) -> str:
        length = self.number("Q")
        if length > self.size:
            raise ValueError(f"a text of {length:,} bytes in {self.size:,}")
        return take(self.stream, length).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array()
        return self.number(_SCALARS[kind])

    def array(self) -> Any:
        kind, count = self.number("I"), self.number("Q")
        if count > self.size:
            raise ValueError(f"an array of {count:,} in {self.size:,} bytes")
        if count <= _LONG_ARRAY:
            return [self.value(kind) for _ in range(count)]
        if kind in _SCALARS:
            take(self.stream, count * struct.calcsize(f"<{_SCALARS[kind]}"))
        else:
            for _ in range(count):
                self.value(kind)
        return range(count)

    def tensor(self) -> Tensor:
        name, directions = self.text(), self.number("I")
        if directions > 8:
            raise ValueError(f"{name} has {directions} directions")
        shape = tuple(self.number("Q") for _ in range(directions))
        kind = self.number("I")
        self.number("Q")  # where the data begins
        if kind not in _ggml_types():
            raise ValueError(f"{name} has the unknown type {kind}; known: data/ggml_types.csv")
        type_name, block, size = _ggml_types()[kind]
        elements = math.prod(shape)
        if elements % block or elements // block * size > self.size:
            raise ValueError(f"{name} of {elements:,} weights does not fit blocks of {block} or the file")
        return Tensor(name, type_name, shape, elements // block * size)


@functools.cache
def _ggml_types() -> dict[int, tuple[str, int, int]]:
    text = (Path(__file__).parents[1] / "data" / "ggml_types.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))[1:]  # the first row holds the units
    return {int(row["id"]): (row["name"], int(row["block"]), int(row["bytes"])) for row in rows}
