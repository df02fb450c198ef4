"""Predictions against measurements: read a table of served points, predict each row, and count how far off it is.

A table has the columns of docs/validation.md; `read` turns each row into a `Point` or refuses it with a reason,
`predict` gives a prediction with its interval for each point, `summary` the errors and the coverage. The same functions
serve `batchline validate`, the fit of the priors and the published tables.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import precision, prior, readings, serving, step
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.deployment import Deployment
from batchline.engine import Request
from batchline.engine import names as engine_names
from batchline.errors import BatchlineError, MeasurementError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Outcome", "Point", "point_of", "predict", "read", "summary"]

_ID = re.compile(r"id=(\S+)")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?((rc|\.post)\d+)*")
_FORMATS = {"fp4": "nvfp4", "fp16": "bf16", "f16": "bf16"}
"""What people write for a format, by the catalogue's name."""
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?")
_COLUMNS = {"model", "hw", "engine", "isl", "osl", "batch_or_concurrency"}
_MOST_MEMORY = 0.97
_INFERENCEX_LENGTH = 0.9  # lengths are uniform in 0.8-1.0 of nominal: InferenceX, --random-range-ratio 0.8


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
        How the client sends: "random" or "fixed" lengths (which keep clients in step), "sweep", or "" when not known.
    regime : str
        "serving_conc", "decode_static", "static_e2e", ...
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

    @property
    def context(self) -> float:
        """Mean tokens of context while decoding [token]."""
        return self.isl + self.osl / 2

    @functools.cached_property
    def ideal(self) -> step.Ideal:
        """Ideal times of one device at this point."""
        return readings.ideal_of(self.deployment, self.context, self.isl)

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


@functools.cache
def _names() -> dict[str, list[tuple[str, str, str]]]:
    text = resources.files("batchline").joinpath("data/measured_names.csv").read_text(encoding="utf-8")
    table: dict[str, list[tuple[str, str, str]]] = {}
    for row in csv.DictReader(text.splitlines()):
        table.setdefault(row["kind"], []).append((row["given"], row["name"], row["weights"]))
    return table


def _named(kind: str, given: str) -> tuple[str, str]:
    """Catalogue name and number format behind a name of a result file; the name itself if it stands in no table."""
    folded = given.casefold().strip()
    for pattern, name, weights in _names().get(kind, ()):
        if folded == pattern or (pattern.startswith("*") and folded.endswith(pattern[1:])):
            return name, weights
    return given, ""


def _number(row: Mapping[str, str], name: str) -> float | None:
    text = (row.get(name) or "").strip()
    if not text:
        return None
    if not _NUMBER.fullmatch(text):
        raise MeasurementError(f"{name} is {text!r}.", "It is a number from 0 on.", "Mend the row or leave it out.")
    return float(text)


def _needed(row: Mapping[str, str], name: str) -> float:
    value = _number(row, name)
    if value is None or value <= 0:
        raise MeasurementError(f"{name} is missing.", "", f"Fill the column {name}.")
    return value


def _count(row: Mapping[str, str], name: str) -> int:
    return int(_number(row, name) or 1)


@functools.cache
def _accelerator(name: str) -> Accelerator:
    return Accelerator.load(name)


@functools.cache
def _architecture(name: str) -> Architecture:
    return Architecture.load(name)


def _refuse_unlike(row: Mapping[str, str]) -> None:
    """Refuse rows that measure something else than one engine decoding one token a step."""
    if (row.get("disagg") or "").casefold() == "true":
        raise MeasurementError("Prefill and decode ran on separate devices.", "", "How many each is not in the table.")
    if (row.get("spec") or "").startswith("mtp"):
        raise MeasurementError("Speculative decoding was on.", "", "Its acceptance is not in the table.")


def _model(row: Mapping[str, str]) -> tuple[Architecture, str | None]:
    """Architecture and number format: the checkpoint of that format where the catalogue has one."""
    name, weights = _named("model", row["model"])
    stated = (row.get("precision_w") or "").strip().casefold()
    architecture = _architecture(name)
    if weights:
        return architecture, weights
    if stated in ("", "fp16/bf16", "gguf default"):
        return architecture, None
    checkpoint, _ = _named("checkpoint", f"{architecture.name} {stated}")
    if checkpoint != f"{architecture.name} {stated}":
        return _architecture(checkpoint), None
    if precision.load(architecture.weight_format).name == precision.load(_FORMATS.get(stated, stated)).name:
        return architecture, None
    return architecture, _FORMATS.get(stated, stated)


def _layout(row: Mapping[str, str]) -> tuple[int, int, int, int]:
    """Tensor, pipeline, data and expert parallel degrees; data-parallel attention spans all devices of a stage."""
    count, pp = _count(row, "n_gpus"), _count(row, "pp")
    if (row.get("dp_attention") or "").casefold() == "true":
        return 1, pp, count // pp, min(_count(row, "ep"), count)
    return count // pp, pp, 1, min(_count(row, "ep"), count)


def _kv_default(engine: str, accelerator: Accelerator, weights_name: str) -> str:
    """KV format where the row is silent: what the public recipes of the engine set for quantised weights.

    TensorRT-LLM's quantised checkpoints ask for an FP8 cache; InferenceX sets it for vLLM and SGLang on Blackwell.
    Where queues begin in the measured rows agrees with both.
    """
    quantised = precision.load(weights_name).bits < 16
    blackwell = accelerator.generation.startswith("blackwell")
    if quantised and (engine == "tensorrt-llm" or (engine in ("vllm", "sglang") and blackwell)):
        return "fp8"
    return "bf16"


def _seconds(row: Mapping[str, str], name: str) -> float | None:
    value = _number(row, name)
    return None if not value else value / 1e3


def _version(text: str) -> str:
    found = _VERSION.search(text)
    return found.group() if found else ""


def _key(row: Mapping[str, str]) -> str:
    found = _ID.search(row.get("url_or_repo_path") or "")
    return found.group(1) if found else ""


def _client(source: str) -> str:
    """How the client of a public collection sends; "" where that is not known."""
    if any(word in source for word in ("InferenceX DB", "InferenceMAX")):
        return "random"
    if "gap-analysis" in source:
        return "fixed"
    return "sweep" if "token_position_decode_slo" in source else ""


def read(path: Path | str) -> list[Point | tuple[int, str]]:
    """Read a table of measured points.

    Parameters
    ----------
    path : Path or str
        CSV with the columns of docs/validation.md.

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
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MeasurementError(f"{path} cannot be read: {error}.", "", "Give a CSV file.") from error
    if not rows:
        raise MeasurementError(f"{path} has no rows.", "docs/validation.md lists the columns.", "Fill it.")
    if missing := sorted(_COLUMNS - set(rows[0])):
        raise MeasurementError(
            f"{path} has no column {', '.join(missing)}.",
            "docs/validation.md lists the columns.",
            "Rename yours.",
        )
    found: list[Point | tuple[int, str]] = []
    for line, row in enumerate(rows, 2):
        try:
            found.append(point_of(row, line))
        except BatchlineError as error:
            found.append((line, str(error)))
    return found


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
    """
    _refuse_unlike(row)
    engine = _named("engine", row["engine"])[0]
    accelerator = _accelerator(_named("accelerator", row["hw"])[0])
    architecture, weights = _model(row)
    tp, pp, dp, ep = _layout(row)
    inferencex = any(word in (row.get("source") or "") for word in ("InferenceX DB", "InferenceMAX"))
    scale = _INFERENCEX_LENGTH if inferencex else 1.0
    isl, osl = _needed(row, "isl") * scale, _needed(row, "osl") * scale
    stated_kv = (row.get("precision_kv") or "").strip().casefold()
    kv = _FORMATS.get(stated_kv, stated_kv) or _kv_default(engine, accelerator, weights or architecture.weight_format)
    version = _version(row.get("engine_version") or "")
    deployment = Deployment(
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
        request=Request(max_model_len=int((isl + osl) / scale) + 256),
    )
    return Point(
        deployment=deployment,
        engine=engine,
        isl=isl,
        osl=osl,
        concurrency=_needed(row, "batch_or_concurrency"),
        client=_client(row.get("source") or ""),
        regime=row.get("regime") or "serving_conc",
        tpot_s=_seconds(row, "decode_step_ms"),
        ttft_s=_seconds(row, "ttft_ms"),
        date=(row.get("date") or "").strip(),
        version=version,
        series=row.get("series_id") or "",
        qc=row.get("qc") or "ok",
        row=line,
        key=_key(row),
    )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Prediction of one row, beside what was measured.

    Parameters
    ----------
    row : int
        Line in the file.
    point : Point or None
        What was served; None for a refused row.
    refused : str
        Why there is no prediction; "" if there is one.
    tpot_s, tpot_low_s, tpot_high_s, ttft_s, ttft_low_s, ttft_high_s : float
        Prediction and its 90% interval [s].
    bound_s : float
        The article's floor of a step at the predicted running batch [s].
    novelty : str
        What of the row the priors had not seen.
    """

    row: int
    point: Point | None = None
    refused: str = ""
    tpot_s: float = np.nan
    tpot_low_s: float = np.nan
    tpot_high_s: float = np.nan
    ttft_s: float = np.nan
    ttft_low_s: float = np.nan
    ttft_high_s: float = np.nan
    bound_s: float = np.nan
    novelty: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give it with the names of the JSON output.

        Returns
        -------
        dict
            Prediction and measurement, or `refused`.
        """
        if self.point is None or self.refused:
            return {"row": self.row, "refused": self.refused}
        names = [f.name for f in dataclasses.fields(self) if f.name not in {"point", "refused"}]
        measured = {"measured_tpot_s": self.point.tpot_s, "measured_ttft_s": self.point.ttft_s}
        who = {
            "model": self.point.case.base_model,
            "accelerator": self.point.case.accelerator,
            "engine": self.point.engine,
        }
        return {name: getattr(self, name) for name in names} | measured | who | {"qc": self.point.qc}


def predict(found: Sequence[Point | tuple[int, str]], priors: prior.Prior | None = None) -> list[Outcome]:
    """Predict TPOT and TTFT of each row as a client that keeps its requests in flight would see them.

    Parameters
    ----------
    found : sequence
        As `read` gives them.
    priors : prior.Prior, optional
        Coefficients and intervals; by default those that the package ships.

    Returns
    -------
    list of Outcome
        In the order of the rows.
    """
    priors = priors or prior.load()
    outcomes: dict[int, Outcome] = {}
    points: list[tuple[int, Point]] = []
    for index, one in enumerate(found):
        if not isinstance(one, Point):
            outcomes[index] = Outcome(row=one[0], refused=one[1])
            continue
        try:
            _ = one.ideal, one.capacity
        except BatchlineError as error:
            outcomes[index] = Outcome(row=one.row, refused=str(error))
            continue
        points.append((index, one))
    for (index, _), outcome in zip(points, _served([point for _, point in points], priors), strict=True):
        outcomes[index] = outcome
    return [outcomes[index] for index in range(len(found))]


def _stacked(kind: Any, parts: Sequence[Any]) -> Any:
    return kind(**{f.name: np.array([float(getattr(p, f.name)) for p in parts]) for f in dataclasses.fields(kind)})


def _served(points: Sequence[Point], priors: prior.Prior) -> list[Outcome]:
    if not points:
        return []
    ideal = _stacked(step.Ideal, [point.ideal for point in points])
    capacity = np.array([point.capacity for point in points])
    state = serving.closed_loop(
        ideal,
        _stacked(step.Coefficients, [priors.coefficients(point.case) for point in points]),
        np.array([point.concurrency for point in points]),
        np.array([point.isl for point in points]),
        np.array([point.osl for point in points]),
        capacity,
    )
    floor = np.asarray(step.bound(ideal, np.minimum(state.running_batch, capacity)))
    tpots, ttfts = np.asarray(state.tpot_s), np.asarray(state.ttft_s)
    outcomes = []
    for i, point in enumerate(points):
        tpot, ttft = float(tpots[i]), float(ttfts[i])
        (tpot_low, tpot_high), (ttft_low, ttft_high) = (
            priors.interval(point.case, of, readings.CONFIDENCE) for of in ("tpot", "ttft")
        )
        outcomes.append(
            Outcome(
                row=point.row,
                point=point,
                tpot_s=tpot,
                tpot_low_s=max(tpot * tpot_low, float(floor[i])),
                tpot_high_s=tpot * tpot_high,
                ttft_s=ttft,
                ttft_low_s=ttft * ttft_low,
                ttft_high_s=ttft * ttft_high,
                bound_s=float(floor[i]),
                novelty=priors.novelty(point.case),
            )
        )
    return outcomes


def _errors(outcomes: Sequence[Outcome], of: str) -> dict[str, float] | None:
    pairs = []
    for outcome in outcomes:
        measured = getattr(outcome.point, f"{of}_s") if outcome.point else None
        if measured and not outcome.refused:
            held = getattr(outcome, f"{of}_low_s") <= measured <= getattr(outcome, f"{of}_high_s")
            pairs.append((getattr(outcome, f"{of}_s") / measured - 1.0, held))
    if not pairs:
        return None
    miss = np.array([pair[0] for pair in pairs])
    return {
        "n": len(pairs),
        "mape": float(np.abs(miss).mean()),
        "median": float(np.median(np.abs(miss))),
        "p90": float(np.quantile(np.abs(miss), 0.9)),
        "bias": float(np.median(miss)),
        "coverage": float(np.mean([pair[1] for pair in pairs])),
    }


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Errors of predictions, in all and by group.

    Parameters
    ----------
    outcomes : sequence of Outcome
        As `predict` gives them.

    Returns
    -------
    dict
        `n`, `predicted`, `refused` by reason, `tpot` and `ttft` with mape, median, p90, bias (median signed error) and
        coverage of the 90% interval, each a share [-]; `by` engine, model, accelerator, novelty: the same.
    """
    predicted = [outcome for outcome in outcomes if not outcome.refused and outcome.point]
    by: dict[str, dict[str, Any]] = {}
    for kind in ("engine", "model", "accelerator", "novelty"):
        groups: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in predicted:
            groups[str(outcome.to_dict()[kind])].append(outcome)
        by[kind] = {
            name: {of: _errors(inside, of) for of in ("tpot", "ttft")} for name, inside in sorted(groups.items())
        }
    return {
        "n": len(outcomes),
        "predicted": len(predicted),
        "refused": dict(Counter(outcome.refused for outcome in outcomes if outcome.refused).most_common()),
        "tpot": _errors(outcomes, "tpot"),
        "ttft": _errors(outcomes, "ttft"),
        "by": by,
    }
