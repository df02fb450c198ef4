"""What a simulation found: times, rates, what was full, and what bounds it."""

from __future__ import annotations

import csv
import importlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import cost
from batchline.errors import InputError, UnknownNameError
from batchline.notebook import Shown
from batchline.strings import Sentence, keys, text
from batchline.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from batchline.goodput import Promise

__all__ = ["METRICS", "Result", "Series", "Summary", "Table", "exact_times", "quantile", "save_table", "summarise"]

METRICS = ("ttft", "tpot", "itl", "e2e", "wait")
"""Times of a request: to the first token, per token after it, between two tokens, to the last token; in the queue."""

_PERCENTILES = (50, 90, 95, 99)
_HELD_UP = 0.05  # share of the time that a queue must wait for something to call it what saturates [-]


@dataclass(frozen=True, slots=True)
class Summary:
    """How a time is distributed.

    Parameters
    ----------
    count : int
        How many were noted [-].
    mean, max : float
        Mean and longest [s].
    p50, p90, p95, p99 : float
        Percentiles [s].
    """

    count: int
    mean: float
    max: float
    p50: float
    p90: float
    p95: float
    p99: float

    def to_dict(self) -> dict[str, float]:
        """Give percentiles and mean, by name.

        Returns
        -------
        dict
            In the unit of the metric.
        """
        return {"p50": self.p50, "p90": self.p90, "p95": self.p95, "p99": self.p99, "mean": self.mean, "max": self.max}


@dataclass(frozen=True, eq=False, slots=True)
class Series:
    """What happened when, in cells of equal width.

    Parameters
    ----------
    cell_s : float
        Width of a cell [s].
    running, batch : array
        Requests that ran and sequences that decoded, mean over the cell [sequence].
    waiting : array
        Requests in the queues at the end of the cell [request].
    kv_use : array
        Share of the KV cache in use, mean [-]; NaN where it has no end.
    busy : array
        Share of the time that engines ran a step [-].
    prompt_tokens_per_s, output_tokens_per_s : array
        Tokens computed and generated [token/s].
    arrived, admitted, finished, preempted : array
        Events of the cell [-].
    """

    cell_s: float
    running: NDArray[np.float64]
    batch: NDArray[np.float64]
    waiting: NDArray[np.float64]
    kv_use: NDArray[np.float64]
    busy: NDArray[np.float64]
    prompt_tokens_per_s: NDArray[np.float64]
    output_tokens_per_s: NDArray[np.float64]
    arrived: NDArray[np.float64]
    admitted: NDArray[np.float64]
    finished: NDArray[np.float64]
    preempted: NDArray[np.float64]

    @property
    def time_s(self) -> NDArray[np.float64]:
        """Middle of each cell [s]."""
        return np.asarray((np.arange(len(self.running)) + 0.5) * self.cell_s)

    def to_records(self) -> list[dict[str, float]]:
        """Give one record for each cell.

        Returns
        -------
        list of dict
            `time_s` [s] and the columns of this series, by name.
        """
        names = [name for name in self.__slots__ if name != "cell_s"]
        columns = {"time_s": self.time_s, **{name: getattr(self, name) for name in names}}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """Every request, in the order of the traffic.

    Parameters
    ----------
    row : array
        Number of the request, from 0 on [-].
    sent_s, admitted_s, first_token_s, finished_s : array
        When it was sent, admitted first, had its first and its last token [s].
    isl, osl, cached : array
        Tokens of prompt and answer, and prompt tokens found in the cache at the first admission [token].
    preemptions : array
        How often it was preempted [-].
    engine : array
        Which engine finished it [-].
    """

    row: NDArray[np.int64]
    sent_s: NDArray[np.float64]
    admitted_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    finished_s: NDArray[np.float64]
    isl: NDArray[np.int64]
    osl: NDArray[np.int64]
    cached: NDArray[np.int64]
    preemptions: NDArray[np.int64]
    engine: NDArray[np.int64]

    @property
    def ttft_s(self) -> NDArray[np.float64]:
        """Time to first token of each [s]."""
        return self.first_token_s - self.sent_s

    @property
    def e2e_s(self) -> NDArray[np.float64]:
        """Time to last token of each [s]."""
        return self.finished_s - self.sent_s

    @property
    def tpot_s(self) -> NDArray[np.float64]:
        """Time per output token after the first [s]; NaN for an answer of one token."""
        gaps = np.where(self.osl > 1, self.osl - 1.0, np.nan)
        return (self.finished_s - self.first_token_s) / gaps

    def columns(self) -> dict[str, NDArray[Any]]:
        """Give all columns by name, for a file or a frame.

        Returns
        -------
        dict
            Arrays with one entry for each request; times in [s], lengths in [token].
        """
        names = {name: getattr(self, name) for name in self.__slots__}
        return {**names, "ttft_s": self.ttft_s, "tpot_s": self.tpot_s, "e2e_s": self.e2e_s}


@dataclass(frozen=True, kw_only=True, eq=False)
class Result(Shown):
    """What a simulation found.

    Parameters
    ----------
    requests : int
        Requests served [request].
    duration_s : float
        From time 0 to the last token [s].
    times : mapping of str to Summary
        "ttft", "tpot", "itl", "e2e" and "wait" (in the queue).
    input_tokens, output_tokens : int
        Tokens of the prompts and answers served [token].
    cached_tokens, recomputed_tokens : int
        Prompt tokens found in the cache, and tokens computed again after a preemption [token].
    preemptions : int
        How often a running request was sent back [-].
    met : int
        Requests that kept all promises [request].
    kv_peak : float or None
        Largest share of one engine's KV cache in use [-]; None where it has no end.
    busy : float
        Share of the time that engines ran a step [-].
    prompt_busy : float
        Share of that time that prompts took [-].
    waits : mapping of str to float
        Share of the time that a queue waited for "max_num_seqs", "kv" or "prefill" [-].
    engines : int
        Engines [-].
    series : Series
        What happened when.
    sketches : mapping of str to (edges, counts)
        How often each time was seen, in buckets 0.1% to 0.2% wide [s].
    table : Table or None
        Every request, if they were kept.
    promises : mapping of str to Promise
        What was promised.
    usd_per_hour, power_w : float or None
        Price and design power of all engines [USD/h], [W].
    compiled : bool
        Whether numba compiled the loop.
    events, decode_steps, mixed_steps : int
        What the loop did [-].
    repairs : mapping of str to int
        What was mended in the trace.
    """

    requests: int
    duration_s: float
    times: Mapping[str, Summary]
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    recomputed_tokens: int
    preemptions: int
    met: int
    kv_peak: float | None
    busy: float
    prompt_busy: float
    waits: Mapping[str, float]
    engines: int
    series: Series
    sketches: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]
    table: Table | None = None
    promises: Mapping[str, Promise] = field(default_factory=dict)
    usd_per_hour: float | None = None
    power_w: float | None = None
    compiled: bool = False
    events: int = 0
    decode_steps: int = 0
    mixed_steps: int = 0
    repairs: Mapping[str, int] = field(default_factory=dict)

    @property
    def requests_per_s(self) -> float:
        """Requests served per second [1/s]."""
        return self.requests / self.duration_s

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens generated per second [token/s]."""
        return self.output_tokens / self.duration_s

    @property
    def input_tokens_per_s(self) -> float:
        """Prompt tokens served per second, found in the cache or not [token/s]."""
        return self.input_tokens / self.duration_s

    @property
    def goodput(self) -> float:
        """Requests per second that kept all promises [1/s]."""
        return self.met / self.duration_s

    @property
    def prefix_hit_rate(self) -> float:
        """Share of prompt tokens found in the cache [-]."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0

    @property
    def running(self) -> float:
        """Requests that ran, mean over the duration [request]."""
        return float(self.series.running.sum()) * self.series.cell_s / self.duration_s

    @property
    def running_batch(self) -> float:
        """Sequences that decoded together, mean over the duration [sequence]."""
        return float(self.series.batch.sum()) * self.series.cell_s / self.duration_s

    @property
    def usd_per_mtok(self) -> float | None:
        """Cost of a million output tokens at the given price of the engines [USD/Mtoken]."""
        if self.usd_per_hour is None or not self.output_tokens:
            return None
        return float(cost.usd_per_mtok(self.usd_per_hour, self.output_tokens_per_s))

    @property
    def joules_per_token(self) -> float | None:
        """Energy of an output token at design power, idle time included: the most it can be [J/token]."""
        if self.power_w is None or not self.output_tokens:
            return None
        return float(cost.joules_per_token(self.power_w, self.output_tokens_per_s))

    def percentile(self, metric: str, percentile: float) -> float:
        """Time that a share of the requests (for "itl" of the gaps) does not exceed.

        Parameters
        ----------
        metric : str
            One of `METRICS`.
        percentile : float
            The share, 0 to 100 [%].

        Returns
        -------
        float
            Seconds [s]: exact where requests were kept, else from buckets 0.1% to 0.2% wide.

        Raises
        ------
        UnknownNameError
            No such metric.
        InputError
            No such percentile.
        """
        if metric not in METRICS:
            raise UnknownNameError("metric", metric, METRICS)
        if not 0 <= percentile <= 100:
            raise InputError(
                Sentence("error.no_percentile", given=f"{percentile:g}"), Sentence("error.percentile_between")
            )
        return quantile(self.sketches[metric], self._exact(metric), percentile)

    def _exact(self, metric: str) -> NDArray[np.float64] | None:
        return exact_times(self.table, metric)

    def keeps(self) -> dict[str, bool]:
        """Whether each promise was kept.

        Returns
        -------
        dict of str to bool
            By metric; the mean for a promise without a percentile.
        """
        kept = {}
        for metric, promise in self.promises.items():
            shown = (
                self.times[metric].mean if promise.percentile is None else self.percentile(metric, promise.percentile)
            )
            kept[metric] = shown <= promise.seconds
        return kept

    @property
    def saturated_by(self) -> str | None:
        """What stopped more load: "kv", "max_num_seqs" or "prefill"; None if no queue waited for long."""
        name, share = max(self.waits.items(), key=lambda item: item[1])
        return name if share >= _HELD_UP else None

    @property
    def prefill_limit(self) -> float:
        """Requests per second at which their prompts alone would keep the engines busy [1/s]."""
        spent = self.busy * self.prompt_busy * self.duration_s * self.engines
        return self.requests * self.engines / spent if spent > 0 else math.inf

    def sentence(self, language: str = "en") -> str:
        """Say in one sentence what bounds this deployment under this traffic.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            Such as "The KV cache saturates: ...".
        """
        limit = format_rate(self.prefill_limit, "req/s")
        kv = ""
        if self.kv_peak is not None:
            full = round(self.kv_peak, 2) == 1.0
            key = "simulate.kv_full" if full else "simulate.kv_never_above"
            kv = text(key, language, peak=f"{self.kv_peak:.0%}")
        return text(
            f"simulate.sentence_{self.saturated_by or 'none'}",
            language,
            share=f"{max(self.waits.values()):.0%}",
            preemptions=f"{self.preemptions:,}",
            busy=f"{self.busy:.0%}",
            limit=limit,
            kv=kv,
            prompts=text("simulate.prompts", language, share=f"{self.prompt_busy:.0%}", limit=limit),
        )

    def mended(self, language: str = "en") -> list[str]:
        """Say what was mended in the trace.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        list of str
            Such as "rows without an answer left out: 3".
        """
        told = []
        for what, count in self.repairs.items():
            key = f"simulate.{what.casefold().replace(' ', '_')}"
            kind = text(key, language) if key in keys() else what  # traffic of one's own may count anything
            told.append(text("simulate.mended", language, what=kind, count=f"{count:,}"))
        return told

    def to_dict(self) -> dict[str, Any]:
        """Everything but the single requests, with the names that the command line prints as JSON.

        Returns
        -------
        dict
            Keys of docs/nomenclature.md.
        """
        limit = self.prefill_limit
        return {
            **{f"{metric}_s": self.times[metric].to_dict() for metric in METRICS},
            "requests": self.requests,
            "duration_s": self.duration_s,
            "requests_per_s": self.requests_per_s,
            "output_tokens_per_s": self.output_tokens_per_s,
            "input_tokens_per_s": self.input_tokens_per_s,
            "goodput": self.goodput,
            "promises": {metric: str(promise) for metric, promise in self.promises.items()},
            "promises_kept": self.keeps(),
            "running_batch": self.running_batch,
            "preemptions": self.preemptions,
            "recomputed_tokens": self.recomputed_tokens,
            "prefix_hit_rate": self.prefix_hit_rate,
            "kv_peak": self.kv_peak,
            "busy": self.busy,
            "prompt_busy": self.prompt_busy,
            "prefill_limit_requests_per_s": limit if math.isfinite(limit) else None,
            "waits": dict(self.waits),
            "saturated_by": self.saturated_by,
            "sentence": self.sentence(),
            "engines": self.engines,
            "usd_per_hour": self.usd_per_hour,
            "usd_per_mtok": self.usd_per_mtok,
            "joules_per_token": self.joules_per_token,
            "repairs": dict(self.repairs),
        }


def save_table(table: Table, path: str | Path) -> None:
    """Write every request to a file.

    Parameters
    ----------
    table : Table
        The requests.
    path : str or Path
        Ends in .csv, or in .parquet if pyarrow or polars is installed.

    Raises
    ------
    InputError
        The name ends in something else, or nothing that writes Parquet is installed.
    """
    path = Path(path)
    columns = table.columns()
    suffix = path.suffix.casefold()
    if suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    elif suffix == ".parquet":
        _save_parquet(columns, path)
    else:
        raise InputError(Sentence("error.no_result_table", name=repr(path.name)), Sentence("error.table_ends"))


def _save_parquet(columns: dict[str, NDArray[Any]], path: Path) -> None:
    try:
        arrow, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
        parquet.write_table(arrow.table(columns), path)
    except ImportError:
        pass
    else:
        return
    try:
        importlib.import_module("polars").DataFrame(columns).write_parquet(path)
    except ImportError:
        raise InputError(
            Sentence("error.no_parquet_writer", name=path.name),
            Sentence("error.pyarrow_or_polars"),
            Sentence("error.install_pyarrow_or_csv"),
        ) from None


def exact_times(table: Table | None, metric: str) -> NDArray[np.float64] | None:
    """Give the times of single requests, where they were kept and the metric is one of requests.

    Parameters
    ----------
    table : Table or None
        The requests.
    metric : str
        "ttft", "tpot", "itl" or "e2e".

    Returns
    -------
    array or None
        Seconds, of the requests that have such a time [s].
    """
    if table is None or metric == "itl":
        return None
    times = {"ttft": table.ttft_s, "tpot": table.tpot_s, "e2e": table.e2e_s}.get(metric)
    if times is None:
        return None
    return times[np.isfinite(times)]


def quantile(
    sketch: tuple[NDArray[np.float64], NDArray[np.float64]], exact: NDArray[np.float64] | None, percentile: float
) -> float:
    """Read a percentile off exact times if there are any, else off a sketch.

    Parameters
    ----------
    sketch : tuple of array
        Middles of the cells, and how many values lie in each.
    exact : array or None
        The values themselves.
    percentile : float
        From 0 to 100.

    Returns
    -------
    float
        In their unit; NaN for nothing at all.
    """
    if exact is not None:
        return float(np.percentile(exact, percentile)) if len(exact) else math.nan
    middles, counts = sketch
    if not len(counts):
        return math.nan
    reached = np.cumsum(counts)
    place = int(np.searchsorted(reached, percentile / 100 * reached[-1]))
    return float(middles[min(place, len(middles) - 1)])


def summarise(
    sums: NDArray[np.float64],
    sketch: tuple[NDArray[np.float64], NDArray[np.float64]],
    exact: NDArray[np.float64] | None,
) -> Summary:
    """Summarise a metric.

    Parameters
    ----------
    sums : array
        Its count, sum and maximum.
    sketch, exact : tuple of array, array or None
        Where percentiles are read, as of `quantile`.

    Returns
    -------
    Summary
        Count, mean, maximum and percentiles.
    """
    count, total, longest = sums.tolist()
    points = [quantile(sketch, exact, percentile) for percentile in _PERCENTILES]
    return Summary(int(count), total / count if count else math.nan, longest, *points)
