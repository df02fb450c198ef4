"""Traces of real traffic: CSV, JSON lines or Parquet, checked row by row, a chunk at a time."""

from __future__ import annotations

import csv
import functools
import gzip
import importlib
import io
import itertools
import json
import tomllib
from collections import defaultdict
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.errors import ConfigError, InputError, UnknownNameError
from batchline.strings import Sentence
from batchline.workload._prefix import PrefixTree
from batchline.workload._traffic import CHUNK, Requests, Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

__all__ = ["read_lengths", "schemas", "trace"]

MOST_TOKENS = 10_000_000
"""No model reads or writes a longer text: such a length is a wrong column or unit [token]."""

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Units of arrival times, in seconds."""

_EPOCH = 1e11  # seconds since 1970 stay below this for three thousand years; milliseconds are above it since 1973
_SLOWEST_S = 60.0  # a trace of whole numbers with a longer mean gap is more likely in milliseconds
_FASTEST = 1e5  # more requests a second in one trace: more likely read as milliseconds though seconds were meant
_ENOUGH = 20  # rows that make a mean gap worth believing


@dataclass(frozen=True, slots=True)
class Schema:
    """Names of the columns of a trace."""

    name: str
    arrival: str
    unit: str
    isl: str
    osl: str
    blocks: str = ""
    block_tokens: int = 0
    prefix: str = ""
    prefix_tokens: str = ""
    source: str = ""
    date: str = ""

    @property
    def required(self) -> tuple[str, str, str]:
        """Columns that a trace must have."""
        return self.arrival, self.isl, self.osl


@functools.cache
def schemas() -> dict[str, Schema]:
    """Kinds of traces that are recognised by their columns.

    Returns
    -------
    dict of str to Schema
        By name.

    Examples
    --------
    >>> schemas()["mooncake"].required
    ('timestamp', 'input_length', 'output_length')
    """
    data = tomllib.loads(resources.files("batchline").joinpath("data/trace_schemas.toml").read_text(encoding="utf-8"))
    return {name: Schema(name=name, **entry) for name, entry in data.items()}


def trace(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    time_unit: str | None = None,
    repair: bool = False,
    max_tokens: int = MOST_TOKENS,
) -> Traffic:
    """Read a trace of requests.

    Parameters
    ----------
    path : str or Path
        A .csv, .tsv, .jsonl or .parquet file; the first three may be gzipped.
    columns : mapping, optional
        Which column is "arrival", "isl", "osl", "blocks", "prefix" or "prefix_tokens", where the names are not those
        of a known trace.
    time_unit : str, optional
        Unit of the arrivals: "s", "ms", "us", "ns" or "datetime"; default that of the known trace.
    repair : bool
        Leave out rows that cannot be, and sort by time, instead of refusing the trace. `Traffic.repairs` counts them.
    max_tokens : int
        Longest prompt or answer believed [token].

    Returns
    -------
    Traffic
        The requests; the first is sent at 0.

    Raises
    ------
    ConfigError
        The file is missing, empty, or not a trace.
    InputError
        Raised while reading: a row that cannot be, with its number.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(Sentence("error.no_trace", path=f"{path}"))
    if time_unit is not None and time_unit not in {*UNITS, "datetime"}:
        raise UnknownNameError("unit of time", time_unit, [*UNITS, "datetime"])
    schema = _recognise(path, columns or {}, time_unit)
    repairs: dict[str, int] = defaultdict(int)
    reader = _Reader(path, schema, repairs, repair, max_tokens, unit_given=time_unit is not None)
    chunks = reader.sorted_chunks if repair else reader.chunks
    return Traffic(chunks=chunks, name=path.name, repairs=repairs)


def read_lengths(traffic: Traffic) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths of all prompts and answers, to fit a distribution to.

    Parameters
    ----------
    traffic : Traffic
        Any.

    Returns
    -------
    isl, osl : array
        Tokens of each request [token].
    """
    chunks = [(chunk.isl, chunk.osl) for chunk in traffic.chunks()]
    return np.concatenate([isl for isl, _ in chunks]), np.concatenate([osl for _, osl in chunks])


def _recognise(path: Path, columns: Mapping[str, str], time_unit: str | None) -> Schema:
    names = _column_names(path)
    known = {field.name for field in fields(Schema)} - {"name", "unit", "source", "date", "block_tokens"}
    for role, column in columns.items():
        if role not in known:
            raise UnknownNameError("column", role, sorted(known))
        if column not in names:
            raise UnknownNameError("column", column, names, Sentence("error.what_it_has", name=path.name))
    for schema in schemas().values():
        changes: dict[str, Any] = dict(columns)
        mapped = replace(schema, **changes)
        if set(mapped.required) <= set(names):
            unit = time_unit or (schema.unit if mapped.arrival == schema.arrival else _unit_of(mapped.arrival))
            return replace(mapped, unit=unit)
    raise ConfigError(
        Sentence("error.no_trace_columns", name=path.name, columns=", ".join(names[:12])),
        Sentence(
            "error.known",
            names="; ".join(f"{name} ({', '.join(schema.required)})" for name, schema in schemas().items()),
        ),
        Sentence("error.name_columns"),
    )


def _unit_of(column: str) -> str:
    for unit in UNITS:
        if column.endswith((f"_{unit}", f"({unit})", f"[{unit}]")):
            return unit
    raise InputError(
        Sentence("error.no_unit_of_column", column=repr(column)),
        Sentence("error.units", names=", ".join([*UNITS, "datetime"])),
        Sentence("error.give_time_unit"),
    )


# -- files ------------------------------------------------------------------------------------------------------------


def _kind(path: Path) -> str:
    suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    kinds = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
    kind = {**kinds, ".parquet": "parquet", ".pq": "parquet"}.get(suffix.casefold())
    if kind is None:
        raise ConfigError(Sentence("error.trace_suffix", name=path.name))
    return kind


def _open(path: Path) -> io.TextIOBase:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _column_names(path: Path) -> list[str]:
    kind = _kind(path)
    if kind == "parquet":
        return list(_parquet(path)[0])
    try:
        with _open(path) as file:
            line = next((line for line in file if line.strip()), "")
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise ConfigError(Sentence("error.no_text_file", name=path.name, reason=str(error))) from None
    if not line:
        raise ConfigError(Sentence("error.empty_file", name=path.name))
    if kind == "csv":
        return next(csv.reader([line], delimiter=_delimiter(line)))
    return list(_object(path, 1, line))


def _delimiter(header: str) -> str:
    return max(",;\t", key=header.count)


def _is(name: str, given: str, what: str, **fields: str) -> Sentence:
    """What stands in a column, and by the name of that sentence what it is not."""
    return Sentence("error.row_value", name=name, given=given, what=Sentence(f"error.{what}", **fields))


def _object(path: Path, row: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(
            Sentence("error.row_no_json", name=path.name, row=f"{row}", reason=error.msg),
            Sentence("error.line_is_object"),
        ) from None
    if not isinstance(value, dict):
        raise InputError(
            Sentence("error.row_no_object", name=path.name, row=f"{row}", given=line.strip()[:40]),
            Sentence("error.line_is_object"),
        )
    return value


def _parquet(path: Path) -> tuple[list[str], Iterator[dict[str, list[Any]]]]:
    """Columns, and batches of them, by whichever library is there."""
    try:
        file = importlib.import_module("pyarrow.parquet").ParquetFile(path)
        return list(file.schema_arrow.names), (batch.to_pydict() for batch in file.iter_batches(batch_size=CHUNK))
    except ImportError:
        pass
    try:
        frame = importlib.import_module("polars").read_parquet(path)
    except ImportError:
        raise ConfigError(
            Sentence("error.no_parquet_reader", name=path.name),
            Sentence("error.pyarrow_or_polars"),
            Sentence("error.install_pyarrow_or_save"),
        ) from None
    return list(frame.columns), (part.to_dict(as_series=False) for part in frame.iter_slices(CHUNK))


# -- rows -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reader:
    path: Path
    schema: Schema
    repairs: dict[str, int]
    repair: bool
    max_tokens: int
    unit_given: bool

    def chunks(self) -> Iterator[Requests]:
        """Read the file from its beginning."""
        self.repairs.clear()
        tree = PrefixTree() if self.schema.blocks or self.schema.prefix else None
        first = last = None
        last_row = 0
        for read, values in self._batches():
            rows, times, isl, osl, columns = self._checked(read, values)
            if not len(times):
                continue
            if first is None:
                first = float(times.min() if self.repair else times[0])
                self._check_unit(times)
            times = times - first
            if not self.repair:
                self._check_order(rows, times, last_row, last)
            last, last_row = float(times[-1]), int(rows[-1])
            prefix = None if tree is None else self._prefixes(tree, rows, isl, columns)
            yield Requests(arrival_s=times, isl=isl, osl=osl, prefix=prefix, tree=tree if prefix is not None else None)
        if first is None:
            raise ConfigError(Sentence("error.no_usable_request", name=self.path.name))

    def sorted_chunks(self) -> Iterator[Requests]:
        """Read all of the file, and sort it if it is not."""
        chunks = list(self.chunks())
        times = np.concatenate([chunk.arrival_s for chunk in chunks])
        back = int(np.sum(np.diff(times) < 0))
        if not back:
            yield from chunks
            return
        self.repairs["rows sorted by time"] = back
        prefixes = [chunk.prefix for chunk in chunks if chunk.prefix is not None]
        everything = Requests(
            arrival_s=times,
            isl=np.concatenate([chunk.isl for chunk in chunks]),
            osl=np.concatenate([chunk.osl for chunk in chunks]),
            prefix=np.concatenate(prefixes) if prefixes else None,
            tree=chunks[0].tree,
        ).take(np.argsort(times, kind="stable"))
        for start in range(0, len(times), CHUNK):
            yield everything.take(slice(start, start + CHUNK))

    def _wanted(self) -> list[str]:
        schema = self.schema
        return [name for name in (*schema.required, schema.blocks, schema.prefix, schema.prefix_tokens) if name]

    def _batches(self) -> Iterator[tuple[NDArray[np.int64], dict[str, list[Any]]]]:
        kind = _kind(self.path)
        if kind == "parquet":
            start = 1
            for batch in _parquet(self.path)[1]:
                columns = {name: values for name, values in batch.items() if name in self._wanted()}
                size = len(columns[self.schema.arrival])
                yield np.arange(start, start + size), columns
                start += size
            return
        try:
            with _open(self.path) as file:
                yield from self._csv(file) if kind == "csv" else self._json(file)
        except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, csv.Error) as error:
            raise ConfigError(Sentence("error.not_to_its_end", name=self.path.name, reason=str(error))) from None

    def _csv(self, file: io.TextIOBase) -> Iterator[tuple[NDArray[np.int64], dict[str, list[Any]]]]:
        header = next(line for line in file if line.strip())
        delimiter = _delimiter(header)
        names = next(csv.reader([header], delimiter=delimiter))
        places = {name: names.index(name) for name in self._wanted() if name in names}
        reader = csv.reader(file, delimiter=delimiter)
        start = 2
        while lines := list(itertools.islice(reader, CHUNK)):
            rows = np.arange(start, start + len(lines))
            start += len(lines)
            widths = [len(line) for line in lines]
            if min(widths) < len(names) or max(widths) > len(names):
                whole = [width == len(names) for width in widths]
                for row, line, good in zip(rows, lines, whole, strict=True):
                    if not good and line:  # an empty line is no row
                        self._refuse(
                            int(row),
                            Sentence("error.columns_not", given=f"{len(line)}", columns=f"{len(names)}"),
                            "rows of another width",
                        )
                lines = list(itertools.compress(lines, whole))
                rows = rows[np.array(whole)]
                if not lines:
                    continue
            turned = list(zip(*lines, strict=True))
            yield rows, {name: list(turned[place]) for name, place in places.items()}

    def _json(self, file: io.TextIOBase) -> Iterator[tuple[NDArray[np.int64], dict[str, list[Any]]]]:
        numbered = ((row, line) for row, line in enumerate(file, start=1) if line.strip())
        while lines := list(itertools.islice(numbered, CHUNK)):
            rows: list[int] = []
            columns: dict[str, list[Any]] = {name: [] for name in self._wanted()}
            for row, line in lines:
                try:
                    entry = _object(self.path, row, line)
                except InputError as error:
                    if not self.repair:
                        raise InputError(error.problem, error.allowed, Sentence("error.mend_trace")) from None
                    self._left_out("rows that are no JSON object")
                    continue
                rows.append(row)
                for name, values in columns.items():
                    values.append(entry.get(name))
            yield np.array(rows, dtype=np.int64), columns

    def _refuse(self, row: int, what: str, kind: str) -> None:
        """Raise for a row that cannot be, or count it as left out."""
        if not self.repair:
            raise InputError(
                Sentence("error.trace_row", name=self.path.name, row=f"{row}", what=what),
                hint=Sentence("error.mend_trace"),
            )
        self._left_out(kind)

    def _left_out(self, kind: str) -> None:
        self.repairs[f"{kind} left out"] += 1

    def _numbers(self, rows: NDArray[np.int64], name: str, values: list[Any]) -> NDArray[np.float64]:
        """Numbers of a column; what is none becomes NaN under repair."""
        try:
            return np.array(values, dtype=float)
        except (ValueError, TypeError):
            pass
        made = np.full(len(values), np.nan)
        for place, value in enumerate(values):
            try:
                made[place] = float(value)
            except (ValueError, TypeError):
                if not self.repair:
                    self._refuse(
                        int(rows[place]),
                        _is(name, repr(value), "no_number_here"),
                        "rows without a number",
                    )
        return made

    def _times(self, rows: NDArray[np.int64], values: list[Any]) -> NDArray[np.float64]:
        if self.schema.unit != "datetime":
            return self._numbers(rows, self.schema.arrival, values) * UNITS[self.schema.unit]
        made = np.full(len(values), np.nan)
        try:
            moments = np.array([str(value).removesuffix("Z") for value in values], dtype="datetime64[ns]")
            made = moments.astype(np.int64) / 1e9
            made[np.isnat(moments)] = np.nan
        except ValueError:
            for place, value in enumerate(values):
                try:
                    made[place] = np.datetime64(str(value).removesuffix("Z"), "ns").astype(np.int64) / 1e9
                except ValueError:
                    if not self.repair:
                        what = _is(self.schema.arrival, repr(value), "no_date_here")
                        self._refuse(int(rows[place]), what, "rows without a time")
        return made

    def _checked(
        self, rows: NDArray[np.int64], columns: dict[str, list[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], dict[str, list[Any]]]:
        schema = self.schema
        times = self._times(rows, columns[schema.arrival])
        isl = self._numbers(rows, schema.isl, columns[schema.isl])
        osl = self._numbers(rows, schema.osl, columns[schema.osl])
        good = np.ones(len(rows), dtype=bool)
        for wrong, name, values, what, kind in (
            (~np.isfinite(times), schema.arrival, times, "no_time_here", "rows without a time"),
            (times < 0, schema.arrival, times, "before_0_here", "rows before time 0"),
            (~np.isfinite(isl), schema.isl, isl, "no_number_here", "rows without a prompt length"),
            (~np.isfinite(osl), schema.osl, osl, "no_number_here", "rows without an answer length"),
            (isl < 1, schema.isl, isl, "no_token_here", "rows without a prompt"),
            (osl < 1, schema.osl, osl, "no_token_here", "rows without an answer"),
            (isl > self.max_tokens, schema.isl, isl, "above_here", "rows of absurd length"),
            (osl > self.max_tokens, schema.osl, osl, "above_here", "rows of absurd length"),
            (isl % 1 != 0, schema.isl, isl, "no_whole_here", "rows with broken lengths"),
            (osl % 1 != 0, schema.osl, osl, "no_whole_here", "rows with broken lengths"),
        ):
            for place in np.flatnonzero(wrong & good):
                self._refuse(int(rows[place]), _is(name, f"{values[place]:g}", what, most=f"{self.max_tokens:,}"), kind)
            good &= ~wrong
        if not good.all():
            columns = {name: list(itertools.compress(values, good)) for name, values in columns.items()}
        return rows[good], times[good], isl[good].astype(np.int64), osl[good].astype(np.int64), columns

    def _check_order(
        self, rows: NDArray[np.int64], times: NDArray[np.float64], last_row: int, last: float | None
    ) -> None:
        back = np.flatnonzero(np.diff(times) < 0)
        if last is not None and times[0] < last:
            raise self._unsorted(int(rows[0]), last_row)
        if len(back):
            raise self._unsorted(int(rows[back[0] + 1]), int(rows[back[0]]))

    def _unsorted(self, row: int, before: int) -> InputError:
        return InputError(
            Sentence("error.sent_before", name=self.path.name, row=f"{row}", before=f"{before}"),
            Sentence("error.sorted_by_time"),
            Sentence("error.sort_or_repair"),
        )

    def _check_unit(self, times: NDArray[np.float64]) -> None:
        """Doubt the unit of the arrivals where it would make an unlikely trace."""
        given = self.schema.unit
        if given == "datetime":
            return
        raw = times / UNITS[given]
        gap = float(times[-1] - times[0]) / max(len(times) - 1, 1)
        enough = len(times) >= _ENOUGH and not self.unit_given
        read = {"name": self.path.name, "column": self.schema.arrival, "unit": given}
        doubt = ""
        if times[0] > _EPOCH:
            doubt = Sentence("error.unit_far_ahead", **read, given=f"{raw[0]:.0f}")
        elif enough and gap > _SLOWEST_S and given == "s" and np.all(raw % 1 == 0):
            doubt = Sentence("error.unit_too_slow", **read, gap=f"{gap:,.0f}")
        elif enough and 0 < gap < 1 / _FASTEST:
            doubt = Sentence("error.unit_too_fast", **read, rate=f"{1 / gap:,.0f}")
        if doubt:
            units = Sentence("error.units", names=", ".join([*UNITS, "datetime"]))
            raise InputError(doubt, units, Sentence("error.say_time_unit"))

    def _prefixes(
        self, tree: PrefixTree, rows: NDArray[np.int64], isl: NDArray[np.int64], columns: dict[str, list[Any]]
    ) -> NDArray[np.int64] | None:
        schema = self.schema
        made = np.full(len(isl), -1, dtype=np.int64)
        if schema.blocks in columns and any(names is not None for names in columns[schema.blocks]):
            for place, (names, prompt) in enumerate(zip(columns[schema.blocks], isl.tolist(), strict=True)):
                made[place] = tree.add(self._block_names(int(rows[place]), names), schema.block_tokens or 512, prompt)
            return made
        if schema.prefix not in columns or schema.prefix_tokens not in columns:
            return None
        filled = [value if value not in {None, ""} else 0 for value in columns[schema.prefix_tokens]]
        sizes = self._numbers(rows, schema.prefix_tokens, filled)
        for place, (name, size, prompt) in enumerate(zip(columns[schema.prefix], sizes, isl.tolist(), strict=True)):
            if name in {None, ""} or not size >= 1:
                continue
            if size > prompt:
                longer = Sentence("error.beginning_too_long", shared=f"{size:.0f}", prompt=f"{prompt}")
                self._refuse(int(rows[place]), longer, "shared beginnings longer than their prompt")
                continue
            made[place] = tree.add([name], int(size), int(size))
        return made

    def _block_names(self, row: int, names: Any) -> list[Any]:
        if names is None:
            return []
        if isinstance(names, str):  # a CSV keeps a list as text
            names = names.strip("[]() ").replace(",", " ").split()
        if not isinstance(names, (list, tuple)):
            self._refuse(row, _is(self.schema.blocks, repr(names), "no_blocks_here"), "lists of blocks")
            return []
        return list(names)
