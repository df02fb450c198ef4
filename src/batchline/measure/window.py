"""Quantities of an engine over a stretch of its metrics: levels, increases, means and buckets, by one set of names."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from batchline.errors import MeasurementError
from batchline.measure.prometheus import Snapshot, series_names
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Window", "engine_of", "engines", "metric_names", "model_of"]


@dataclass(frozen=True, slots=True)
class _Name:
    metric: str
    label: str
    value: str


@cache
def _table() -> dict[str, dict[str, list[_Name]]]:
    text = (files("batchline") / "data" / "engine_metrics.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["engine"] != "-"]
    table: dict[str, dict[str, list[_Name]]] = {}
    for row in rows:
        name = _Name(row["metric"], row["label"], row["value"])
        table.setdefault(row["engine"], {}).setdefault(row["quantity"], []).append(name)
    return table


def engines() -> list[str]:
    """Engines whose metrics are known.

    Returns
    -------
    list of str
        Names.

    Examples
    --------
    >>> engines()
    ['vllm', 'sglang', 'llama.cpp', 'tensorrt-llm', 'tgi']
    """
    return list(_table())


def metric_names() -> list[str]:
    """All metrics that are read, for a query to a Prometheus server.

    Returns
    -------
    list of str
        Names.
    """
    return sorted({name.metric for table in _table().values() for names in table.values() for name in names})


class Window:
    """Values and differences of an engine's quantities over snapshots."""

    def __init__(self, snapshots: Sequence[Snapshot], engine: str, model: str | None) -> None:
        self.snapshots = snapshots
        self.model = model
        self._names = _table()[engine]

    def chosen(self, quantity: str, suffix: str = "") -> _Name | None:
        """First metric of a quantity that the server has."""
        for name in self._names.get(quantity, []):
            if any(shot.values(name.metric + suffix, name.label, name.value, self.model) for shot in self.snapshots):
                return name
        return None

    def each(self, quantity: str, suffix: str = "", *, total: bool = True) -> NDArray[np.float64] | None:
        """Value at every snapshot: the sum over engines, or their mean."""
        name = self.chosen(quantity, suffix)
        if name is None:
            return None
        rows = [shot.values(name.metric + suffix, name.label, name.value, self.model) for shot in self.snapshots]
        made = [(sum(row) if total else sum(row) / len(row)) if row else math.nan for row in rows]
        return np.array(made)

    def rises(self, quantity: str, suffix: str = "") -> NDArray[np.float64] | None:
        """Increase between snapshots of a counter."""
        values = self.each(quantity, suffix)
        if values is None:
            return None
        change = np.diff(np.nan_to_num(values, nan=0.0))
        if np.any(change < 0):
            name = self.chosen(quantity, suffix)
            raise MeasurementError(
                Sentence("error.counter_went_down", name=f"{name.metric if name else quantity}", suffix=suffix),
                "",
                Sentence("error.both_of_one_run"),
            )
        return change

    def rise(self, quantity: str, suffix: str = "") -> float | None:
        """Increase of a counter over the whole window."""
        change = self.rises(quantity, suffix)
        return None if change is None else float(change.sum())

    def level(self, quantity: str, *, total: bool = True) -> float | None:
        """Mean of a gauge over the snapshots."""
        values = self.each(quantity, total=total)
        return None if values is None or np.all(np.isnan(values)) else float(np.nanmean(values))

    def ratio(self, quantity: str) -> float | None:
        """Mean of a histogram over the window."""
        count, added = self.rise(quantity, "_count"), self.rise(quantity, "_sum")
        return added / count if count and added is not None else None

    def buckets(self, quantity: str) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Upper edges of a histogram and how many fell into each."""
        name = self.chosen(quantity, "_bucket")
        if name is None:
            return None
        edges = sorted(
            {edge for shot in self.snapshots for edge in shot.label(f"{name.metric}_bucket", "le")}, key=float
        )
        first, last = self.snapshots[0], self.snapshots[-1]

        def below(shot: Snapshot, edge: str) -> float:
            return sum(
                value
                for labels, value in shot.series.get(f"{name.metric}_bucket", ())
                if ("le", edge) in labels
                and (not name.label or (name.label, name.value) in labels)
                and (self.model is None or dict(labels).get("model_name", self.model) == self.model)
            )

        cumulative = np.array([below(last, edge) - below(first, edge) for edge in edges])
        return np.array([float(edge) for edge in edges]), np.diff(cumulative, prepend=0.0)


def engine_of(snapshots: Sequence[Snapshot]) -> str:
    """Tell the engine by its metrics.

    Parameters
    ----------
    snapshots : sequence of Snapshot
        What was scraped.

    Returns
    -------
    str
        Name of the engine.

    Raises
    ------
    MeasurementError
        No metric of an engine that is known.
    """
    seen = series_names(snapshots)
    for engine, table in _table().items():
        known = {name.metric for names in table.values() for name in names}
        if any(one in seen or f"{one}_count" in seen for one in known):
            return engine
    prefixes = sorted({name.split(":")[0].split("_")[0] for name in seen})[:8]
    raise MeasurementError(
        Sentence("error.no_known_engine", names=", ".join(prefixes) or "nothing"),
        Sentence("error.known", names=", ".join(engines())),
        Sentence("error.not_a_gateway"),
    )


def model_of(snapshots: Sequence[Snapshot], engine: str, model: str | None) -> str | None:
    """Tell the model, where the metrics name it.

    Parameters
    ----------
    snapshots : sequence of Snapshot
        What was scraped.
    engine : str
        Name of the engine.
    model : str or None
        The one that is wanted.

    Returns
    -------
    str or None
        Its name; None where the metrics name none.

    Raises
    ------
    MeasurementError
        The model is not there, or there are several and none is wanted.
    """
    known = {name.metric for names in _table()[engine].values() for name in names}
    found = sorted({value for name in known for shot in snapshots for value in shot.label(name, "model_name")})
    if model is not None and found and model not in found:
        raise MeasurementError(
            Sentence("error.metrics_no_model", model=repr(model)), Sentence("error.models_are", names=", ".join(found))
        )
    if model is None and len(found) > 1:
        raise MeasurementError(
            Sentence("error.several_models", names=", ".join(found)), "", Sentence("error.name_one_model")
        )
    return model or (found[0] if found else None)
