"""A foreign file, opened: what kind of text it is, and the checks that name the field when something is wrong."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from batchline.errors import MeasurementError
from batchline.strings import Sentence

__all__ = ["Document", "Foreign", "agree", "check", "load"]

_LARGEST = 2**30  # a result file of more than a gibibyte is a log

# Units that are taken for one another, by the factor between them.
_FACTORS = {1e3: "1,000", 1e6: "1,000,000", 1e9: "1,000,000,000"}


class Foreign(BaseModel):
    """Base of the models of foreign files: undeclared fields are ignored, declared numbers must be finite."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, protected_namespaces=())


_Model = TypeVar("_Model", bound=Foreign)


@dataclass(frozen=True)
class Document:
    """A file that was opened.

    Parameters
    ----------
    file : str
        Name for messages.
    kind : str
        `json` (one value), `lines` (one JSON object per line), `table` (CSV or a Markdown table) or `text`.
    data : object
        The JSON value, a list of objects, a list of rows (dict of str), or the text.
    header : tuple of str
        Column names of a table.
    """

    file: str
    kind: str
    data: Any
    header: tuple[str, ...] = field(default=())

    @property
    def records(self) -> list[Any]:
        """JSON objects of the file: of a list, of lines, or the one value [-]."""
        if self.kind == "json":
            return self.data if isinstance(self.data, list) else [self.data]
        return self.data if self.kind == "lines" else []

    def has(self, *keys: str) -> bool:
        """Whether the first JSON object has these keys."""
        first = self.records[0] if self.records else None
        return isinstance(first, dict) and all(key in first for key in keys)


def load(path: str | Path) -> Document:
    """Open a result file and tell JSON, JSON lines, CSV, a Markdown table and plain text apart by content.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    Document
        What it holds.

    Raises
    ------
    MeasurementError
        It cannot be read, is empty, is no text, or its JSON breaks off; the message names the last field before that.
    """
    path = Path(path)
    text = _text(path).lstrip("\ufeff")
    start = text.lstrip()
    if not start:
        raise MeasurementError(Sentence("result.empty", file=str(path)), "", Sentence("result.run_again_empty"))
    if start[0] in "{[":
        return _json(path.name, text)
    table = _markdown(start) or _csv(start)
    if table:
        header, rows = table
        return Document(path.name, "table", rows, tuple(header))
    return Document(path.name, "text", text)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise MeasurementError(Sentence("result.too_large", file=str(path)), Sentence("result.smaller"))
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise MeasurementError(Sentence("result.unreadable", file=str(path), reason=str(error.strerror))) from None
    except UnicodeDecodeError:
        raise MeasurementError(
            Sentence("result.no_text", file=str(path)), Sentence("result.are_text"), Sentence("result.unpack")
        ) from None


def _json(file: str, text: str) -> Document:
    try:
        return Document(file, "json", json.loads(text))
    except json.JSONDecodeError as whole:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not _parses(lines[0][1]):
            raise _broken(file, text, whole) from None
        return Document(file, "lines", [_line(file, number, line) for number, line in lines])


def _parses(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


def _line(file: str, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise _broken(Sentence("result.at_line", file=file, line=f"{number}"), line, error) from None


def _broken(file: str, text: str, error: json.JSONDecodeError) -> MeasurementError:
    keys = re.findall(r'"((?:[^"\\]|\\.)*)"\s*:', text[: error.pos])
    last = Sentence("result.after_field", field=repr(keys[-1])) if keys else ""
    cut = error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg
    at = f"{error.pos:,}"
    broken = (
        Sentence("result.breaks_off", file=file, last=last, at=at)
        if cut
        else Sentence("result.no_json", file=file, reason=error.msg, last=last, at=at)
    )
    return MeasurementError(broken, "", Sentence("result.was_stopped"))


def _csv(text: str) -> tuple[list[str], list[dict[str, str]]] | None:
    first = text.splitlines()[0]
    if first.startswith("#") or "," not in first or "{" in first:
        return None
    rows = list(csv.reader(io.StringIO(text)))
    header = [name.strip() for name in rows[0]]
    return header, [dict(zip(header, row, strict=False)) for row in rows[1:] if row]


def _markdown(text: str) -> tuple[list[str], list[dict[str, str]]] | None:
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.strip().startswith("|")]
    cells = [[cell.strip() for cell in line] for line in lines]
    if len(cells) < 2 or not all(re.fullmatch(r":?-+:?", cell) for cell in cells[1]):
        return None
    header = cells[0]
    return header, [dict(zip(header, row, strict=False)) for row in cells[2:] if len(row) == len(header)]


def check(model: type[_Model], data: Any, file: str, where: str = "") -> _Model:
    """Read foreign data into its model, or name the field that is wrong.

    Parameters
    ----------
    model : type
        Model of the format.
    data : object
        JSON value.
    file : str
        Name for messages.
    where : str
        Path of `data` inside the file.

    Returns
    -------
    Foreign
        The model, filled.

    Raises
    ------
    MeasurementError
        A field is missing or is not of its type; the message has its path.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in ([where] if where else []) + list(first["loc"]))
        field = path or Sentence("result.whole_file")
        if first["type"] == "missing":
            missing = Sentence("result.field_missing", file=file, field=field)
            raise MeasurementError(missing, "", Sentence("result.other_version")) from None
        reason = f"{first['msg'][0].lower()}{first['msg'][1:]}, found {str(first['input'])[:60]!r}"
        raise MeasurementError(Sentence("result.field_unusable", file=file, field=field, reason=reason)) from None


def agree(
    file: str, name: str, value: float, expected: float, because: str, *, tolerance: float = 0.02, at_most: bool = False
) -> None:
    """Check a field against the others of the same file, which say the same thing twice.

    Parameters
    ----------
    file, name : str
        File and field, for the message.
    value : float
        What the field says.
    expected : float
        What the other fields say.
    because : str
        How that was computed.
    tolerance : float
        Relative difference allowed [-].
    at_most : bool
        Only more than expected is wrong.

    Raises
    ------
    MeasurementError
        They differ; the message says so, and names a factor of a thousand as another unit.

    Examples
    --------
    >>> agree("r.json", "mean_tpot_ms", 30.1, 30.0, "the gaps")
    """
    if abs(value - expected) <= tolerance * abs(expected) or (at_most and value <= expected):
        return
    unit = ""
    for factor, text in _FACTORS.items():
        ratio = value / expected if expected else 0.0
        if 0.5 < ratio / factor < 2 or 0.5 < ratio * factor < 2:
            unit = Sentence(f"result.unit_{'large' if ratio > 1 else 'small'}", times=text)
    raise MeasurementError(
        Sentence(
            "result.disagrees_most" if at_most else "result.disagrees",
            file=file,
            field=name,
            value=f"{value:.6g}",
            because=because,
            expected=f"{expected:.6g}",
            unit=unit,
        )
    )
