"""Measured points: a row of a table becomes what was served, how it was loaded, and what came out.

The columns are those of docs/validation.md. Names are read generously (`batchline.served_names`); a row that does not
say enough is refused with what it lacks, and never ends the others.
"""

from __future__ import annotations

import csv
import functools
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from batchline import precision, prior, readings, served_launch, served_names, serving, step
from batchline.accelerator import FORMATS, Accelerator
from batchline.deployment import Deployment
from batchline.engine import Request
from batchline.engine import names as engine_names
from batchline.errors import BatchlineError, MeasurementError, closest
from batchline.strings import Sentence
from batchline.units import parse_number, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

__all__ = ["NEEDED", "STATIC", "USED", "Point", "Pools", "point_of", "read", "unread_columns"]

STATIC = ("decode_static", "decode_steady", "decode_derived", "static_e2e", "production_mean")
"""Regimes of a batch of fixed size, without a client."""

NEEDED = ("model", "hw", "engine", "isl", "osl", "batch_or_concurrency")
"""Columns that a row needs."""

USED = (
    "n_gpus", "tp", "pp", "ep", "dp", "dp_attention", "precision_w", "precision_kv", "engine_version", "date",
    "decode_step_ms", "ttft_ms", "regime", "context", "spec", "acceptance", "draft_tokens", "disagg", "prefill_gpus",
    "prefill_workers", "decode_gpus", "decode_workers", "prefix_hit_rate", "max_num_seqs", "max_num_batched_tokens",
    "gpu_memory_utilization", "admission_interval", "client", "num_prompts", "ttft_stat", "series_id", "qc", "notes",
)  # fmt: skip
"""Columns that are used when they are there."""

# What public tables say besides: where a row comes from, and figures that follow from the others.
_CARRIED = (
    "source", "url_or_repo_path", "licence", "stat", "tput_tok_s_total", "total_tok_s_per_gpu", "output_tok_s_per_gpu",
    "e2e_ms", "p99_tpot_ms", "power_w_per_gpu", "energy_j_per_output_tok",
)  # fmt: skip

_ID = re.compile(r"id=(\S+)")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?((rc|\.post)\d+)*")
_COMMA = re.compile(r"[\d.]*\d,\d[\d.,]*")
_YES = frozenset({"true", "1", "1.0", "yes", "y", "on"})
_COLUMNS = ("model", "hw")
_SAME_COLUMN = {
    "accelerator": "hw",
    "gpu": "hw",
    "hardware": "hw",
    "concurrency": "batch_or_concurrency",
    "batch": "batch_or_concurrency",
    "batch_size": "batch_or_concurrency",
    "num_gpus": "n_gpus",
    "gpus": "n_gpus",
    "input_len": "isl",
    "output_len": "osl",
    "tpot_ms": "decode_step_ms",
    "precision": "precision_w",
    "weights": "precision_w",
    "kv": "precision_kv",
    "version": "engine_version",
}
"""What other tables call our columns."""

_POOLS = (
    re.compile(
        r"prefill (?P<pg>\d+) gpu x(?P<pw>\d+) workers tp\d+ / decode (?P<dg>\d+) gpu x(?P<dw>\d+) workers tp\d+"
    ),
    re.compile(r"p(?P<pw>\d+):d(?P<dw>\d+) workers, each tp(?P<tp>\d+)"),
)
"""How notes of public collections tell the devices and instances of the two pools (InferenceMAX, dstack)."""

_MOST_MEMORY = 0.97
_INFERENCEX_LENGTH = 0.9  # lengths are uniform in 0.8-1.0 of nominal: InferenceX, --random-range-ratio 0.8
_INFERENCEX_OPENING = 0.1  # ten prompts for each request in flight: InferenceX, benchmarks/benchmark_lib.sh
_NETWORK = 50e9  # B/s of a device between machines: 400 Gbit/s, one ConnectX-7 for each GPU of a DGX H100 (datasheet)
_ENDLESS = 1e21  # FLOP/s; stands for a rate that does not matter
_MOST = 1e8  # no length, batch or count of devices is larger


@dataclass(frozen=True, kw_only=True)
class Pools:
    """Prefill and decode on devices of their own.

    Parameters
    ----------
    prefill : Deployment
        One prefill instance.
    prefill_instances, decode_instances : int
        How many there are [-].
    transfer_s : float
        Time to move the KV cache of a prompt [s].
    """

    prefill: Deployment
    prefill_instances: int
    decode_instances: int
    transfer_s: float


@dataclass(frozen=True, kw_only=True)
class Point:
    """A measured point: what was served, how it was loaded, what came out.

    Parameters
    ----------
    deployment : Deployment
        Model, devices, formats, layout; the engine's memory accounting.
    engine : str
        Engine by the priors' name; one whose memory accounting is not known counts memory as "generic".
    isl, osl : float
        Mean input and output length [token].
    concurrency : float
        Requests in flight at the client; sequences of a batch in a static regime [request].
    client : str
        How the client sends: "random" or "fixed" lengths (which keep clients in step), "sweep", or "" when not known;
        "random, median" where TTFT is the median, which a burst at the start of a run leaves alone.
    regime : str
        What was measured: "serving_conc" (a closed loop), "decode_static" (steps of a fixed batch), "static_e2e" (a
        batch from start to end, divided by the output length), "production_mean".
    tpot_s, ttft_s : float or None
        Measured [s].
    date : str
        Day of the measurement or of the engine's release, ISO; "" when not known.
    version : str
        The engine's version.
    series : str
        Points of one series differ in the concurrency alone.
    qc : str
        "ok", or what is doubtful.
    row : int
        Line in the file, the header being 1.
    key : str
        The row's own id, if it has one.
    pools : Pools or None
        Where prompts were computed, if not beside the decoding; `deployment` is then one decode instance.
    speculation : serving.Speculation or None
        Speculative decoding.
    prefix_hit_rate : float
        Share of prompt tokens found in the prefix cache [-].
    max_num_seqs : float
        The engine's own limit, per data-parallel rank; infinite when not known [sequence].
    max_num_batched_tokens : float
        Chunked-prefill token budget of a step; infinite when not known [token].
    admission_interval : float
        The engine looks for new requests every so many steps; 0 where before each, or not known [step].
    opening_share : float
        Share of the requests behind `ttft_s` that were sent all at once at the start of the run; 0 for a median, or
        where it is not known [-].
    repeated_prompts : bool
        Whether the server found prompts in its prefix cache, and how many is not known.
    memory_alone : bool
        Whether no compute rate is known, so that decoding is taken to be bound by memory and prompts are not predicted.
    """

    deployment: Deployment
    engine: str
    isl: float
    osl: float
    concurrency: float
    client: str
    regime: str
    tpot_s: float | None
    ttft_s: float | None
    date: str
    version: str
    series: str
    qc: str
    row: int
    key: str
    pools: Pools | None = None
    speculation: serving.Speculation | None = None
    prefix_hit_rate: float = 0.0
    max_num_seqs: float = math.inf
    max_num_batched_tokens: float = math.inf
    admission_interval: float = 0.0
    opening_share: float = 0.0
    repeated_prompts: bool = False
    memory_alone: bool = False

    @property
    def context(self) -> float:
        """Mean tokens of context while decoding [token]."""
        return self.isl + self.osl / 2

    @functools.cached_property
    def ideal(self) -> step.Ideal:
        """Ideal times of one device at this point."""
        return readings.ideal_of(self.deployment, self.context, self.isl)

    @functools.cached_property
    def prompt_ideal(self) -> step.Ideal:
        """Ideal times of one device where prompts are computed."""
        where = self.deployment if self.pools is None else self.pools.prefill
        return readings.ideal_of(where, self.context, self.isl)

    @functools.cached_property
    def case(self) -> prior.Case:
        """Names by which the priors know it."""
        case = readings.case_of(self.deployment)
        return replace(case, engine=self.engine, engine_version=self.version, client=self.client, date=self.date)

    @functools.cached_property
    def capacity(self) -> float:
        """Sequences that the KV cache holds [sequence].

        Where the engine's default leaves no room, as much of the memory as engines ever take is tried: the server did
        run.

        Raises
        ------
        DoesNotFitError
            The weights and one sequence do not fit even so.
        """
        held = float(self.deployment.capacity_batch(self.context))
        if held < 1:
            request = replace(self.deployment.request, gpu_memory_utilization=_MOST_MEMORY)
            generous = replace(self.deployment, request=request)
            generous.check_fits(self.context)
            held = float(generous.capacity_batch(self.context))
        return held

    @property
    def limit(self) -> float:
        """Sequences that cache and engine admit together [sequence]."""
        return min(self.capacity, self.max_num_seqs * self.deployment.dp)


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
    columns = [_column(name) for name in table.fieldnames or () if name.strip()]
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
    known = {*NEEDED, *USED, *_CARRIED}
    allowed = [*NEEDED, *USED, *_SAME_COLUMN]
    unread = [name.strip() for name in names if name.strip() and _column(name) not in known]
    return {name: next(iter(closest(name, allowed, 1)), "") for name in unread}


def _column(name: str) -> str:
    folded = name.strip().casefold()
    return _SAME_COLUMN.get(folded, folded)


def point_of(row: Mapping[str, str], line: int = 0) -> Point:
    """Turn a row of a table of measurements into a point.

    Parameters
    ----------
    row : mapping
        Text by column.
    line : int
        Its line, for messages.

    Returns
    -------
    Point
        What was served and measured.

    Raises
    ------
    BatchlineError
        A model, an accelerator or a format that is not known, a number that is missing, weights that do not fit.

    Examples
    --------
    >>> point = point_of({"model": "Llama 3.1 70B", "hw": "4 x NVIDIA H100", "engine": "vLLM 0.9.1", "isl": "1k",
    ...                   "osl": "512", "batch_or_concurrency": "32", "precision_w": "FP8"})
    >>> point.deployment.title, point.version
    ('llama-3.1-70b fp8 on 4 x h100-sxm', '0.9.1')
    """
    cells = {_column(name): value.strip() for name, value in row.items() if name and isinstance(value, str)}
    cell = _Cells(cells)
    engine, version = served_names.engine_of(cell.text("engine"))
    name, count = served_names.accelerator_of(cell.needed_text("hw"))
    architecture, weights = served_names.model_of(cell.needed_text("model"), cell.text("precision_w"))
    served = prior.Case(
        model=architecture.name, weights=weights or architecture.weight_format, engine=engine, accelerator=name
    )
    collection = _collection(cell, served.base_model)
    if collection.startswith("InferenceX"):
        cell = _launched(cell, served)
    regime = cell.text("regime").casefold() or "serving_conc"
    accelerator = _able(name, memory_alone=regime.startswith("decode_"))
    scale = _INFERENCEX_LENGTH if collection == "InferenceX" else 1.0
    isl, osl = _lengths(cell, scale)
    kv = _kv(cell) or _kv_default(engine, accelerator, weights or architecture.weight_format)
    version = _version(cell.text("engine_version")) or version

    def deployed(layout: tuple[int, int, int, int]) -> Deployment:
        tp, pp, dp, ep = layout
        return Deployment(
            architecture=architecture,
            accelerator=accelerator,
            count=tp * pp * dp,
            weights=weights,
            kv=kv,
            tp=tp,
            pp=pp,
            dp=dp,
            ep=ep,
            engine=engine if engine in engine_names() else "generic",
            request=Request(
                max_model_len=int((isl + osl) / scale) + 256,
                gpu_memory_utilization=cell.number("gpu_memory_utilization"),
            ),
        )

    concurrency = cell.needed("batch_or_concurrency")
    pools = None
    if cell.yes("disagg"):
        layout, pools = _pools(cell, deployed, isl)
        concurrency /= pools.decode_instances
    else:
        layout = _layout(cell, count)
    return Point(
        deployment=deployed(layout),
        engine=engine,
        isl=isl,
        osl=osl,
        concurrency=concurrency,
        client=_client(cell, collection),
        regime=regime,
        tpot_s=_seconds(cell, "decode_step_ms"),
        ttft_s=_seconds(cell, "ttft_ms"),
        date=cell.text("date"),
        version=version,
        series=cell.text("series_id"),
        qc=cell.text("qc") or "ok",
        row=line,
        key=_key(cell.text("url_or_repo_path")),
        pools=pools,
        speculation=_speculation(cell),
        prefix_hit_rate=cell.share("prefix_hit_rate"),
        max_num_seqs=cell.number("max_num_seqs") or math.inf,
        max_num_batched_tokens=cell.number("max_num_batched_tokens") or math.inf,
        admission_interval=cell.number("admission_interval") or 0.0,
        opening_share=_opening_share(cell, collection),
        repeated_prompts=cell.yes("repeated_prompts"),
        memory_alone="bf16" not in Accelerator.load(name).flops,
    )


@dataclass(frozen=True)
class _Cells:
    """A row, by our names of its columns."""

    cells: Mapping[str, str]

    def text(self, name: str) -> str:
        value = self.cells.get(name, "")
        return "" if served_names.is_blank(value) else value

    def needed_text(self, name: str) -> str:
        if not (value := self.text(name)):
            raise MeasurementError(
                Sentence("error.key_missing", name=name), "", Sentence("error.fill_column", name=name)
            )
        return value

    def number(self, name: str) -> float | None:
        text = self.text(name)
        if not text:
            return None
        value = parse_number(text)
        if value is None:
            try:
                value = float(parse_tokens(text))
            except BatchlineError:
                value = math.nan
        if not 0 <= value <= _MOST:
            raise MeasurementError(
                Sentence("error.engine_value", name=name, given=repr(text)),
                Sentence("error.number_from_0", most=f"{_MOST:,.0f}"),
                Sentence("error.mend_row"),
            )
        return value

    def needed(self, name: str) -> float:
        if not (value := self.number(name)):
            said = Sentence("error.key_missing" if value is None else "error.is_0", name=name)
            raise MeasurementError(said, "", Sentence("error.fill_column", name=name))
        return value

    def count(self, name: str) -> int | None:
        """A whole number from 1 on; None where nothing or 0 is said."""
        value = self.number(name)
        if value and value != round(value):
            raise MeasurementError(
                Sentence("error.engine_value", name=name, given=f"{value:g}"),
                Sentence("error.whole_number"),
                Sentence("error.mend_row"),
            )
        return round(value) if value else None

    def share(self, name: str) -> float:
        value = self.number(name) or 0.0
        if value > 1:
            raise MeasurementError(
                Sentence("error.engine_value", name=name, given=f"{value:g}"),
                Sentence("error.share_from_0_to_1"),
                Sentence("error.write_half"),
            )
        return value

    def yes(self, name: str) -> bool:
        return self.text(name).casefold() in _YES


@functools.cache
def _able(name: str, *, memory_alone: bool) -> Accelerator:
    """An accelerator that also multiplies formats it has no rate for.

    The server ran, so kernels widened the weights before they multiplied, as Marlin's do (arXiv 2408.11743). Where no
    rate at all is known, `memory_alone` takes steps of decoding to be bound by memory.
    """
    device = Accelerator.load(name)
    if "bf16" not in device.flops:
        return replace(device, flops=dict.fromkeys(FORMATS, _ENDLESS)) if memory_alone else device
    return replace(device, flops={**dict.fromkeys(FORMATS, device.flops["bf16"]), **device.flops})


def _lengths(cell: _Cells, scale: float) -> tuple[float, float]:
    """Input and output length; rows of single steps may give a context alone."""
    context = cell.number("context")
    if context and not cell.number("isl") and cell.text("regime").casefold() in STATIC:
        return context, 1.0
    return cell.needed("isl") * scale, cell.needed("osl") * scale


def _layout(cell: _Cells, named: int | None) -> tuple[int, int, int, int]:
    """Tensor, pipeline, data and expert parallel degrees; data-parallel attention spans all devices of a stage."""
    tp, pp, dp = cell.count("tp") or 1, cell.count("pp") or 1, cell.count("dp") or 1
    count = cell.count("n_gpus") or named or tp * pp * dp
    if cell.count("tp") and not cell.yes("dp_attention") and tp * pp * dp != count:
        raise MeasurementError(
            Sentence("error.not_layout", layout=f"tp {tp} x pp {pp} x dp {dp}", count=f"{count}"),
            "",
            Sentence("error.mend_layout"),
        )
    ep = min(cell.count("ep") or 1, count)
    if count % pp:
        raise MeasurementError(
            Sentence("error.not_stages", count=f"{count}", pp=f"{pp}"), "", Sentence("error.mend_stages")
        )
    if cell.yes("dp_attention"):
        return 1, pp, count // pp, ep
    if dp > 1 and tp * pp * dp == count:
        return tp, pp, dp, ep
    return count // pp, pp, 1, ep


def _pools(
    cell: _Cells, deployed: Callable[[tuple[int, int, int, int]], Deployment], isl: float
) -> tuple[tuple[int, int, int, int], Pools]:
    """Layout of a decode instance, and the prefill pool before it."""
    told = _told(cell)
    if told is None:
        raise MeasurementError(
            Sentence("error.apart_unknown"),
            "",
            Sentence("error.give_apart"),
        )
    prefill_gpus, prefill_workers, decode_gpus, decode_workers = told

    def one(devices: int, instances: int) -> tuple[int, int, int, int]:
        if not devices or not instances or devices % instances:
            raise MeasurementError(
                Sentence("error.not_instances", devices=f"{devices}", instances=f"{instances}"),
                "",
                Sentence("error.mend_the_row"),
            )
        each = devices // instances
        return (1, 1, each, each) if cell.yes("dp_attention") else (each, 1, 1, min(cell.count("ep") or 1, each))

    source = deployed(one(prefill_gpus, prefill_workers))
    layout = one(decode_gpus, decode_workers)
    device = source.accelerator
    near = (device.scale_up_domain or 1) >= prefill_gpus + decode_gpus
    link = (device.link_bandwidth or _NETWORK) if near else _NETWORK
    transfer = serving.kv_transfer_s(float(source.architecture.stored_bytes(isl, source.kv)), link * source.tp)
    return layout, Pools(
        prefill=source,
        prefill_instances=prefill_workers,
        decode_instances=decode_workers,
        transfer_s=float(transfer),
    )


def _told(cell: _Cells) -> tuple[int, int, int, int] | None:
    """Devices and instances of prefill and decode, from columns or from the notes."""
    columns = [cell.count(name) for name in ("prefill_gpus", "prefill_workers", "decode_gpus", "decode_workers")]
    if columns[0] and columns[2]:
        return columns[0], columns[1] or 1, columns[2], columns[3] or 1
    for pattern in _POOLS:
        if match := pattern.search(cell.text("notes").casefold()):
            part = {name: int(value) for name, value in match.groupdict().items()}
            each = part.get("tp", 1)
            return part.get("pg", part["pw"] * each), part["pw"], part.get("dg", part["dw"] * each), part["dw"]
    return None


def _speculation(cell: _Cells) -> serving.Speculation | None:
    """Speculative decoding, where the row says how far drafts are accepted."""
    how = cell.text("spec").casefold()
    acceptance = cell.share("acceptance")
    if acceptance:
        return serving.Speculation(acceptance, cell.number("draft_tokens") or 1.0)
    if how and not how.startswith(("none", "false", "off", "no", "0", "unknown")):
        raise MeasurementError(
            Sentence("error.no_acceptance"),
            "",
            Sentence("error.give_acceptance"),
        )
    return None


def _kv(cell: _Cells) -> str:
    text = cell.text("precision_kv")
    if not text:
        return ""
    try:
        return precision.load_kv(text).name
    except BatchlineError:
        return precision.load_kv(served_names.format_of(text)).name


def _kv_default(engine: str, accelerator: Accelerator, weights_name: str) -> str:
    """KV format where the row is silent: what the public recipes of the engine set for quantised weights.

    TensorRT-LLM's quantised checkpoints ask for an FP8 cache; nearly all scripts of InferenceX set it on Blackwell, few
    on Hopper (data/served_launches.csv).
    """
    quantised = weights_name not in ("bf16", "fp16", "fp32")
    blackwell = accelerator.generation.startswith("blackwell")
    if quantised and (engine == "tensorrt-llm" or (engine in ("vllm", "sglang") and blackwell)):
        return "fp8"
    return "bf16"


def _seconds(cell: _Cells, name: str) -> float | None:
    value = cell.number(name)
    return None if not value else value / 1e3


def _version(text: str) -> str:
    found = _VERSION.search(text)
    return found.group() if found else ""


def _key(address: str) -> str:
    found = _ID.search(address)
    return found.group(1) if found else ""


def _collection(cell: _Cells, model: str) -> str:
    """Name the public collection that a row comes from, where what is known of it says more than the row.

    The rows of Kimi-K2.5 and Qwen3.5 in NVIDIA's gap analysis are InferenceX's: 71 of 94 agree with one of those of the
    same load to the last digit given, and no other model has such a row.
    """
    source = cell.text("source")
    if any(word in source for word in ("InferenceX DB", "InferenceMAX")):
        return "InferenceX"
    if "gap-analysis" in source:
        return "InferenceX" if model in ("kimi-k2.5", "qwen3.5-397b-a17b") else "NVIDIA"
    return "InferenceX sweep" if "token_position_decode_slo" in source else ""


def _launched(cell: _Cells, served: prior.Case) -> _Cells:
    """Fill in what the row leaves out from the script that started its server.

    Where the script knows nothing of data-parallel attention or of expert parallelism, a row that has them is mistaken:
    NVIDIA's collection reads TP 4 with EP 4 as attention DP 4 with EP 16.
    """
    known = served_launch.launch_of(
        model=served.base_model,
        accelerator=served.accelerator,
        engine=served.engine,
        weights=served.width,
        version=cell.text("engine_version"),
        date=cell.text("date"),
        isl=cell.number("isl") or 0.0,
        osl=cell.number("osl") or 0.0,
        tp=cell.count("tp") or 1,
        concurrency=cell.number("batch_or_concurrency") or 0.0,
    )
    told = dict(cell.cells)
    # NVIDIA's collection has ranks times ranks where attention is data-parallel: an id "tp8_ep8" has 64 devices there,
    # and equal points with equal digits have 8.
    ranks = cell.count("ep") or 1
    if ranks > 1 and cell.yes("dp_attention") and cell.count("dp") == cell.count("n_gpus") == ranks**2:
        told |= {"dp": f"{ranks}", "n_gpus": f"{ranks}"}
    if known.get("dp_attention") == "off":
        told |= {"dp_attention": "", "dp": "1"}
    elif known.get("dp_attention") == "on":
        told["dp_attention"] = "true"
    if parallel := known.get("expert_parallel"):
        told["ep"] = "1" if parallel == "off" else cell.text("n_gpus")
    for name in known.keys() - {"dp_attention", "expert_parallel"}:
        if not cell.text(name) or cell.text(name).startswith("unknown"):
            told[name] = known[name]
    return _Cells(told)


def _client(cell: _Cells, collection: str) -> str:
    """How the client sends: what the row says, or what is known of a public collection; "" where that is not known."""
    said = cell.text("client").casefold()
    if said not in ("random", "fixed"):
        said = {"InferenceX": "random", "NVIDIA": "fixed", "InferenceX sweep": "sweep"}.get(collection, "")
    return f"{said}, median" if _tells_median(cell) and said else said


def _tells_median(cell: _Cells) -> bool:
    # InferenceMAX's runs tell the median, NVIDIA's collection of them the mean: of gpt-oss-120b on TensorRT-LLM
    # 1.2.0rc2 both have the same points, TPOT within a percent, and TTFT 31 and 51 ms, 43 and 85 ms, 175 and 639 ms.
    return cell.text("ttft_stat").casefold() == "median" or "InferenceMAX" in cell.text("source")


def _opening_share(cell: _Cells, collection: str) -> float:
    """Share of a run's requests that are sent at once at its start: no median shows them."""
    if _tells_median(cell):
        return 0.0
    if prompts := cell.number("num_prompts"):
        return min(cell.needed("batch_or_concurrency") / prompts, 1.0)
    return _INFERENCEX_OPENING if collection == "InferenceX" else 0.0
