"""What is believed of an engine before anybody measures it: coefficients, where they come from, how far they miss.

    coefficient = unit (offset + centre x product of the multipliers of its levels)

A level is an engine, an accelerator, a number format, a kernel path, an attention kind, then a cluster (model x
accelerator x engine x format), a version of the engine in it, a layout of it; each multiplier was fitted to public
measurements by `validation/fit.py` and lies in data/prior_levels.csv with its spread and the points behind it. A level
that the fit has not seen has multiplier 1 and a wide spread, and `Provenance` says so. The interval of a
prediction depends on what of it is new: lengths, layout, cluster, model, accelerator or engine.
"""

from __future__ import annotations

import csv
import functools
import re
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from batchline.errors import InputError
from batchline.step import Coefficients
from batchline.strings import Sentence, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["GENERAL", "NESTED", "NOVELTIES", "Case", "Prior", "Provenance", "load"]

NOVELTIES = ("lengths", "deployment", "cluster", "model", "accelerator", "engine")
"""What of a prediction can be new, from little to much."""

_CONFIDENCES = (0.5, 0.8, 0.9)

GENERAL = frozenset({"engine", "generation", "accelerator", "weights", "engine_kv", "attention"})
"""Kinds of level that stand for themselves; the others name something inside of these."""

NESTED = ("cluster", "version", "deployment")
"""Kinds of level that name servers: a cluster, a version of its engine, a layout."""

_OF_DEVICE = "engine_accelerator"  # of engines that were measured as batches alone: validation/batches.py

_QUANTISED = re.compile(r"-(fp8|nvfp4|mxfp4|int4|awq|gptq|fp8-static)$")
_WIDTH = re.compile(r"fp8|fp4|int8|int4")
_GGUF = re.compile(r"gguf|i?q\d")
_SAME_SHAPE = {"deepseek-r1": "deepseek-v3", "deepseek-v3.1": "deepseek-v3"}  # the same layers, trained anew


@dataclass(frozen=True, slots=True)
class Case:
    """What decides the coefficients of one deployment, by name.

    Parameters
    ----------
    engine : str
        Engine: "vllm", "sglang", "trtllm", "atom", "llama.cpp" or another.
    model, accelerator, generation, weights, kv : str
        Names of the model, the accelerator, its generation, the number formats of weights and KV cache.
    is_mla : bool
        Whether the attention keeps a latent cache.
    layout : str
        Parallel degrees, such as "tp4 pp1 dp1 ep1".
    engine_version : str
        Version of the engine, if known.
    client : str
        How the client sends: "random" lengths, "fixed" lengths (which keep clients in step), "" when not known;
        "random, median" where a TTFT is the median of such requests, not their mean.
    date : str
        Day of the engine's release or of the measurement, ISO; "" for a current engine.
    attention : str
        "gqa", "mla", "sparse" (latents chosen by an index) or "hybrid" (states beside attention); "" goes by `is_mla`.
    """

    engine: str
    model: str = ""
    accelerator: str = ""
    generation: str = ""
    weights: str = "bf16"
    kv: str = "bf16"
    is_mla: bool = False
    layout: str = ""
    engine_version: str = ""
    client: str = ""
    date: str = ""
    attention: str = ""

    @property
    def base_model(self) -> str:
        """Model without the suffix of a quantised checkpoint: formats are a level of their own."""
        return _SAME_SHAPE.get(base := _QUANTISED.sub("", self.model), base)

    @property
    def width(self) -> str:
        """Weight format by width and kind: "fp8" for every fp8 recipe, "fp4" for nvfp4 and mxfp4, "gguf" for q8_0..."""
        if _GGUF.match(self.weights):
            return "gguf"
        found = _WIDTH.search(self.weights)
        return found.group() if found else "bf16"

    @property
    def cluster(self) -> str:
        """Model, accelerator, engine and weight format as one name."""
        return f"{self.base_model} | {self.accelerator} | {self.engine} | {self.width}"

    @property
    def deployment(self) -> str:
        """Cluster and layout as one name."""
        return f"{self.cluster} | {self.layout}"

    def levels(self) -> dict[str, str]:
        """Levels that multipliers are kept for, by kind; what is not known has none."""
        generation = next((name for name in ("blackwell", "cdna") if self.generation.startswith(name)), self.generation)
        # No int8 point was measured: 8-bit kernels read as much as fp8's at the same rate, so fp8 stands for them.
        width = "fp8" if self.width == "int8" else self.width
        found = {
            "engine": self.engine,
            "generation": generation,
            "accelerator": self.accelerator,
            "weights": width,
            "path": f"{generation} {'mxfp4' if self.weights == 'mxfp4' else width}",
            "model_weights": f"{self.base_model} {width}",
            "engine_kv": f"{self.engine} {self.kv}",
            "kv_path": f"{generation} {self.kv}",
            _OF_DEVICE: f"{self.engine} {self.accelerator}",
            "attention": self.attention or ("mla" if self.is_mla else "gqa"),
            "cluster": self.cluster,
            "deployment": self.deployment,
        }
        if self.engine_version:
            found["version"] = f"{self.cluster} | {self.engine_version}"
        # What a server makes of its cache says nothing of a cache in another format.
        found |= {f"{kind}_kv": f"{found[kind]} | kv {self.kv}" for kind in NESTED if kind in found}
        if self.client:  # how an unknown client sends is not a way of sending: the centre stands for it
            found |= {"client": self.client, "engine_client": f"{self.engine} {self.client}"}
        return found


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a prediction comes from.

    Parameters
    ----------
    said : tuple
        What the coefficients come from: a key of the catalogue's group `prior`, and what stands in its braces.
    points : int
        Measured points behind the coefficients of this engine, or all if the engine is new [-].
    novelty : str
        What of the prediction is new: one of `NOVELTIES`.
    unseen : tuple of str
        Levels that no point of the fit has.
    levels : mapping of str to int
        Measured points behind each level that the prediction stands on, such as "generation hopper" [-].
    """

    said: tuple[str, dict[str, str]]
    points: int
    novelty: str
    unseen: tuple[str, ...]
    levels: Mapping[str, int] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """In words: fitted, on what."""
        return self.told()

    def told(self, language: str = "en") -> str:
        """Say where the coefficients come from.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            Fitted or calibrated, on what.
        """
        key, fields = self.said
        return text(f"prior.{key}", language, **fields)

    def to_dict(self) -> dict[str, Any]:
        """Give it with the names of the JSON output.

        Returns
        -------
        dict
            `source, points, novelty, unseen`, and `levels` with the points behind each.
        """
        levels = [{"level": name, "points": points} for name, points in self.levels.items()]
        told = {"source": self.source, "points": self.points, "novelty": self.novelty}
        return told | {"unseen": list(self.unseen), "levels": levels}


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Coefficients, levels and intervals, as `load` reads them.

    Two are equal only if they are the same one, so that what was looked up in one can be kept.

    Parameters
    ----------
    centres : mapping
        For each coefficient its offset, centre, unit, spread and points.
    levels : mapping
        Multiplier, spread and points of (coefficient, kind of level, name).
    seen : mapping
        Names of models, accelerators, engines, clusters and deployments in the fit.
    intervals : mapping
        Factors at 50, 80 and 90% of "tpot" and "ttft" by novelty.
    source : str
        Where all this comes from.
    points : int
        Measured points in the fit [-].
    engine_points : mapping
        Measured points of each engine [-].
    correlations : mapping
        Of two coefficients, between deployments: one that reads weights faster than its levels say has longer gaps [-].
    """

    centres: Mapping[str, Mapping[str, float]]
    levels: Mapping[tuple[str, str, str], Mapping[str, float]]
    seen: Mapping[str, frozenset[str]]
    intervals: Mapping[str, Mapping[str, tuple[float, ...]]]
    source: str
    points: int
    engine_points: Mapping[str, int] = field(default_factory=dict)
    correlations: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def coefficients(self, case: Case) -> Coefficients:
        """Coefficients of a case: centre times the multipliers of the levels that the fit has seen.

        Parameters
        ----------
        case : Case
            Engine, accelerator generation, formats, attention kind.

        Returns
        -------
        Coefficients
            For `batchline.step` and `batchline.serving`.

        Examples
        --------
        >>> engine = load().coefficients(Case(engine="vllm", generation="hopper"))
        >>> 1.0 <= engine.weight_read < 3.0
        True
        """
        values, levels = {}, case.levels()
        for name, centre in self.centres.items():
            free = centre["centre"]
            for kind, level in levels.items():
                free *= self.levels.get((name, kind, level), {}).get("multiplier", 1.0)
            values[name] = centre["unit"] * (centre["offset"] + free)
        return Coefficients(**values)

    def provenance(self, case: Case) -> Provenance:
        """Say where the coefficients of a case come from and what of it is new.

        Parameters
        ----------
        case : Case
            Engine, accelerator generation, formats, attention kind.

        Returns
        -------
        Provenance
            Source, points, novelty, unseen levels.

        Examples
        --------
        >>> load().provenance(Case(engine="an engine of tomorrow")).novelty
        'engine'
        """
        levels = {kind: name for kind, name in case.levels().items() if kind in GENERAL}
        found = {f"{kind} {name}": self._points_of(kind, name) for kind, name in levels.items()}
        if points := self._points_of(_OF_DEVICE, own := case.levels()[_OF_DEVICE]):
            found[f"{_OF_DEVICE} {own}"] = points
        return Provenance(
            ("fitted", {"points": f"{self.points:,}"}),
            self.engine_points.get(case.engine, self.points),
            self.novelty(case),
            unseen=tuple(name for name, points in found.items() if points is None),
            levels={name: points for name, points in found.items() if points is not None},
        )

    def _points_of(self, kind: str, name: str) -> int | None:
        """Measured points behind a level; None if no coefficient has it."""
        known = [self.levels.get((coefficient, kind, name)) for coefficient in self.centres]
        return max((int(level.get("points", 0)) for level in known if level is not None), default=None)

    def novelty(self, case: Case) -> str:
        """Name what of a case the fit has not seen, the gravest first.

        Parameters
        ----------
        case : Case
            Engine, model, accelerator, formats, layout.

        Returns
        -------
        str
            One of `NOVELTIES`; "lengths" if all but the request lengths is known.
        """
        if case.cluster in self.seen["cluster"]:
            return "lengths" if case.deployment in self.seen["deployment"] else "deployment"
        for kind in ("engine", "accelerator", "model"):
            name = case.base_model if kind == "model" else getattr(case, kind)
            if name not in self.seen[kind]:
                return kind
        return "cluster"

    def interval(self, case: Case, of: str = "tpot", confidence: float = 0.9) -> tuple[float, float]:
        """Give the factors below and above a prediction between which the measured value should lie.

        Parameters
        ----------
        case : Case
            What is predicted.
        of : str
            "tpot" or "ttft".
        confidence : float
            0.5, 0.8 or 0.9 [-].

        Returns
        -------
        tuple of float
            Low and high factor [-].

        Raises
        ------
        InputError
            For another confidence.

        Examples
        --------
        >>> low, high = load().interval(Case(engine="vllm"))
        >>> low < 1 < high
        True
        """
        if confidence not in _CONFIDENCES:
            raise InputError(Sentence("error.no_interval", given=f"{confidence:g}"), Sentence("error.confidences"))
        factor = self.intervals[of][self.novelty(case)][_CONFIDENCES.index(confidence)]
        return 1.0 / factor, factor


@functools.cache
def load() -> Prior:
    """Read the priors that the package ships.

    Returns
    -------
    Prior
        Coefficients, levels and intervals.

    Examples
    --------
    >>> "weight_read" in load().centres
    True
    """
    data = resources.files("batchline").joinpath("data")
    return _from_data(
        tomllib.loads(data.joinpath("priors.toml").read_text(encoding="utf-8")),
        csv.reader(data.joinpath("prior_levels.csv").read_text(encoding="utf-8").splitlines()),
        csv.reader(data.joinpath("prior_correlations.csv").read_text(encoding="utf-8").splitlines()),
    )


def _from_data(data: dict[str, Any], table: Iterator[list[str]], triangle: Iterator[list[str]]) -> Prior:
    _, _, _, *names = next(table)
    levels = {}
    for kind, level, points, *cells in table:
        for name, cell in zip(names, cells, strict=True):
            if cell:
                multiplier, spread = cell.split("~")
                levels[name, kind, level] = {
                    "multiplier": float(multiplier),
                    "spread": float(spread),
                    "points": float(points),
                }
    return Prior(
        centres=MappingProxyType(data["coefficients"]),
        levels=MappingProxyType(levels),
        seen=MappingProxyType({kind: frozenset(names) for kind, names in data["seen"].items()}),
        intervals=MappingProxyType({of: {k: tuple(v) for k, v in by.items()} for of, by in data["intervals"].items()}),
        source=data["fit"]["provenance"],
        points=data["fit"]["points"],
        engine_points=MappingProxyType(data.get("points", {})),
        correlations=MappingProxyType(_correlations(triangle)),
    )


def _correlations(triangle: Iterator[list[str]]) -> dict[tuple[str, str], float]:
    _, *names = next(triangle)
    return {(row, name): float(cell) for row, *cells in triangle for name, cell in zip(names, cells, strict=False)}
