"""Tables of measurements: their rows as points, and the columns of which nothing is made."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING

from batchline.errors import BatchlineError, MeasurementError, closest
from batchline.served_point.cells import CARRIED, NEEDED, SAME_COLUMN, USED, column
from batchline.served_point.row import point_of
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from batchline.served_point.point import Point

__all__ = ["read", "unread_columns"]

_COMMA = re.compile(r"[\d.]*\d,\d[\d.,]*")
_COLUMNS = ("model", "hw")


def read(path: Path | str) -> list[Point | tuple[int, str]]:
    """Read a table of measured points.

    Parameters
    ----------
    path : Path or str
        CSV with the columns of docs/validation.md, between commas, semicolons or tabs.

    Returns
    -------
    list
        For each row a `Point`, or its line and the reason why it cannot be predicted.

    Raises
    ------
    MeasurementError
        The file is not such a table.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            delimiter = _delimiter(file)
            table = csv.DictReader(file, delimiter=delimiter)
            rows = [(table.line_num, row) for row in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or f"{error}"
        raise MeasurementError(
            Sentence("error.unreadable", path=f"{path}", reason=reason), "", Sentence("error.give_utf8")
        ) from error
    if not rows:
        raise MeasurementError(
            Sentence("error.no_table_rows", path=f"{path}"), Sentence("error.columns_listed"), Sentence("error.fill_it")
        )
    columns = [column(name) for name in table.fieldnames or () if name.strip()]
    if missing := [name for name in _COLUMNS if name not in columns]:
        raise MeasurementError(
            Sentence("error.no_column", path=f"{path}", names=", ".join(missing)),
            Sentence("error.columns_listed"),
            Sentence("error.rename_columns"),
        )
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise MeasurementError(
            Sentence("error.column_twice", path=f"{path}", names=", ".join(twice)), "", Sentence("error.leave_one")
        )
    found: list[Point | tuple[int, str]] = []
    for line, row in rows:
        try:
            if delimiter == ";":
                _refuse_commas(row)
            found.append(point_of(row, line))
        except BatchlineError as error:
            found.append((line, str(error)))
    return found


def _delimiter(file: TextIO) -> str:
    """What stands between the columns of a table; the file is at its start again."""
    header = file.readline()
    file.seek(0)
    return max(",;\t", key=header.count)


def _refuse_commas(row: Mapping[str, str]) -> None:
    """Where semicolons part the columns, a comma in a number may be a decimal point or part thousands."""
    for name, value in row.items():
        if isinstance(value, str) and _COMMA.fullmatch(value.strip()):
            raise MeasurementError(
                Sentence("error.engine_value", name=name, given=repr(value)),
                Sentence("error.comma_of_what"),
                Sentence("error.write_point"),
            )


def unread_columns(path: Path | str) -> dict[str, str]:
    """Name the columns of a table that nothing is made of: misspelt ones would be missed in silence.

    Parameters
    ----------
    path : Path or str
        CSV, as `read` takes it.

    Returns
    -------
    dict of str to str
        The column that each is closest to, by its name; "" where it is close to none.
    """
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file, delimiter=_delimiter(file)), [])
    known = {*NEEDED, *USED, *CARRIED}
    allowed = [*NEEDED, *USED, *SAME_COLUMN]
    unread = [name.strip() for name in names if name.strip() and column(name) not in known]
    return {name: next(iter(closest(name, allowed, 1)), "") for name in unread}
