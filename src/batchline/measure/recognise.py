"""Which tool wrote a file: told by its content, never by its name.

Each reader is a module: `NAME` of its tool, `matches(document)`, whether the tool wrote it, and `read(document)`, its
points, which raises a `MeasurementError` where a field is missing, cut off or in another unit.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from batchline.errors import MeasurementError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import ModuleType

    from batchline.measure.point import MeasuredPoint

__all__ = ["formats", "read", "read_all"]

# The stricter the mark, the earlier.
_READERS: Final = (
    "own_csv",
    "guidellm",
    "aiperf",
    "trtllm_bench",
    "llama_bench",
    "inferencex",
    "sglang_bench",
    "vllm_bench",
)


def _readers() -> list[ModuleType]:
    return [importlib.import_module(f"batchline.measure.{name}") for name in _READERS]


def formats() -> list[str]:
    """Names of the tools whose files can be read.

    Returns
    -------
    list of str
        Names, in the order in which they are tried.

    Examples
    --------
    >>> "vllm bench serve" in formats()
    True
    """
    return [reader.NAME for reader in _readers()]


def read(path: str | Path) -> list[MeasuredPoint]:
    """Read a result file of a load generator, a benchmark or our own.

    Parameters
    ----------
    path : str or Path
        The file; which tool wrote it is told by its content.

    Returns
    -------
    list of MeasuredPoint
        One or more points, all in seconds and by one set of names; `converted` says what was computed.

    Raises
    ------
    MeasurementError
        The file cannot be read, no tool we know wrote it, or a field is missing, cut or in another unit.
    """
    from batchline.measure.document import load  # noqa: PLC0415 - pydantic waits until a file is read

    document = load(path)
    for reader in _readers():
        if reader.matches(document):
            points: list[MeasuredPoint] = reader.read(document)
            if not points:
                raise MeasurementError(
                    Sentence("result.no_row", file=str(path), tool=reader.NAME), "", Sentence("result.run_again")
                )
            return points
    raise MeasurementError(
        Sentence("result.unknown", file=str(path), seen=_seen(document)),
        Sentence("result.formats", names=", ".join(formats())),
        Sentence("result.own_table"),
    )


def _seen(document: object) -> str:
    header = getattr(document, "header", ())
    records = getattr(document, "records", [])
    names = list(header) or (list(records[0]) if records and isinstance(records[0], dict) else [])
    return Sentence("result.starts_with", names=", ".join(map(str, names[:6]))) if names else ""


def read_all(paths: Iterable[str | Path]) -> list[MeasuredPoint]:
    """Read several files, one after the other.

    Parameters
    ----------
    paths : iterable of str or Path
        The files.

    Returns
    -------
    list of MeasuredPoint
        Their points.

    Raises
    ------
    MeasurementError
        As `read`.
    """
    return [point for path in paths for point in read(path)]
