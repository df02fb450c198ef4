"""Our own table: the fields of a measured point as CSV columns, for hand-made tables and for what the prober writes."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from batchline.errors import MeasurementError, closest
from batchline.measure.document import Document, agree
from batchline.measure.point import MeasuredPoint, PointError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["COLUMNS", "NAME", "matches", "more", "read", "row_of", "start", "write"]

NAME = "batchline CSV"
SCHEMA: Final = "batchline.measured/1"

_FIELDS: Final = {field.name: str(field.type) for field in dataclasses.fields(MeasuredPoint)}
_SKIPPED: Final = ("schema", "hazards", "fit", "note")
COLUMNS: Final = ("schema", *_FIELDS)


def matches(document: Document) -> bool:
    """Whether a table has a batch or a concurrency among its columns, by our name."""
    names = {_second(name)[0] for name in document.header}
    return document.kind == "table" and ("schema" in names or bool(names & {"batch", "concurrency"}))


def read(document: Document) -> list[MeasuredPoint]:
    """Read the rows; a column in milliseconds (`tpot_ms`) is converted and named."""
    for name in document.header:
        if name not in _SKIPPED and _second(name)[0] not in _FIELDS:
            near = closest(name, _FIELDS)
            raise MeasurementError(
                Sentence("result.column_unknown", file=document.file, column=repr(name)),
                Sentence("error.closest", names=", ".join(near)) if near else "",
                Sentence("result.see_columns"),
            )
    return [_point(row, document, number) for number, row in enumerate(document.data, 2)]


def _second(name: str) -> tuple[str, float]:
    """Name in seconds, and how many of the column's unit are one."""
    return (f"{name[:-3]}_s", 1e3) if name.endswith("_ms") else (name, 1.0)


def _point(row: dict[str, str], document: Document, number: int) -> MeasuredPoint:
    where = Sentence("result.at_line", file=document.file, line=f"{number}")
    missing = [name for name in document.header if name not in row]
    if missing:
        raise MeasurementError(
            Sentence("result.row_breaks_off", where=where, column=repr(missing[0])),
            "",
            Sentence("result.delete_or_run"),
        )
    if row.get("schema") not in (None, "", SCHEMA):
        raise MeasurementError(
            Sentence("result.column_value", where=where, column="schema", given=repr(row["schema"])),
            Sentence("result.reads_schema", schema=SCHEMA),
            Sentence("result.update"),
        )
    values: dict[str, Any] = {"file": document.file, "regime": "serving" if not _given(row, "t_step_s") else "decode"}
    converted = []
    for column, text in row.items():
        if column in _SKIPPED or not text.strip():
            continue
        name, factor = _second(column)
        values[name] = _value(where, column, text.strip(), _FIELDS[name], factor)
        if factor != 1.0:
            converted.append(f"{column}: milliseconds to seconds")
    values["converted"] = (*values.get("converted", ()), *converted)
    values["file"] = values["file"] or document.file
    try:
        point = MeasuredPoint(**values)
    except PointError as error:
        raise MeasurementError(
            Sentence("result.at", where=where, problem=error.what), error.allowed, error.hint
        ) from None
    if point.step_s is None:
        raise MeasurementError(Sentence("result.no_time", where=where), "", Sentence("result.delete_or_fill"))
    if point.regime == "decode" and point.t_step_s and point.batch and point.output_tokens_per_s:
        agree(
            where,
            "output_tokens_per_s",
            point.output_tokens_per_s,
            point.batch / point.t_step_s,
            "batch / t_step_s",
            tolerance=0.5,
            at_most=True,
        )
    return point


def _given(row: dict[str, str], name: str) -> bool:
    return any(_second(column)[0] == name and text.strip() for column, text in row.items())


def _value(where: str, column: str, text: str, kind: str, factor: float) -> Any:
    if kind.startswith("str"):
        return text
    if kind.startswith("tuple"):
        return tuple(part for part in text.split("; ") if part)
    if kind.startswith("bool"):
        if text.casefold() in ("true", "false"):
            return text.casefold() == "true"
        raise MeasurementError(
            Sentence("result.column_value", where=where, column=column, given=repr(text)),
            Sentence("result.true_or_false"),
        )
    try:
        number = float(text) / factor
    except ValueError:
        raise MeasurementError(
            Sentence("result.column_no_number", where=where, column=column, given=repr(text)),
            "",
            Sentence("result.no_unit"),
        ) from None
    if not kind.startswith("int"):
        return number
    if number != int(number):
        raise MeasurementError(Sentence("result.column_no_whole", where=where, column=column, given=repr(text)))
    return int(number)


def row_of(point: MeasuredPoint) -> dict[str, str]:
    """Write a point as a row of text.

    Parameters
    ----------
    point : MeasuredPoint
        The point.

    Returns
    -------
    dict of str
        Column to text; what is not known is empty.
    """
    row = {"schema": SCHEMA}
    for name in _FIELDS:
        value = getattr(point, name)
        if name == "converted":
            row[name] = "; ".join(value)
        elif isinstance(value, bool):
            row[name] = str(value).lower()
        elif isinstance(value, float):
            row[name] = f"{value:.9g}"
        else:
            row[name] = "" if value is None else str(value)
    return row


def write(points: Iterable[MeasuredPoint], path: str | Path) -> None:
    """Write points to a CSV file that `read` takes.

    Parameters
    ----------
    points : iterable of MeasuredPoint
        The points.
    path : str or Path
        The file; it is replaced.
    """
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = start(file)
        for point in points:
            writer.writerow(row_of(point))


def start(file: TextIO) -> csv.DictWriter[str]:
    """Begin a table on an open file.

    Parameters
    ----------
    file : text file
        Open for writing.

    Returns
    -------
    csv.DictWriter
        The header is written; `writerow(row_of(point))` adds a point.
    """
    writer = more(file)
    writer.writeheader()
    return writer


def more(file: TextIO) -> csv.DictWriter[str]:
    """Go on with a table whose header is written.

    Parameters
    ----------
    file : text file
        Open for appending.

    Returns
    -------
    csv.DictWriter
        `writerow(row_of(point))` adds a point.
    """
    return csv.DictWriter(file, fieldnames=COLUMNS, lineterminator="\n")
