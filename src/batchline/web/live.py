"""The six plots for a page that moves: only the points that the eye needs, and the names only when it rests.

A browser spends most of a frame on points, and the best places for the names take longer to find than a frame lasts.
While something moves the page lets the names ride on their lines, and asks for the places as soon as it rests.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.chart.scene import Scene
from batchline.chart.six import scenes, story_of
from batchline.chart.story import answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from batchline.chart.placement import Placed
    from batchline.sweep import Curve

__all__ = ["rows_of", "six_digits", "told"]

_SEEN = 0.25  # px
_COARSE = 14  # every so many points to begin with: a few too many on a straight line save most of the search
_NAMES = ("_labels", "_leaders")


def six_digits(*columns: NDArray[np.float64]) -> list[list[float]]:
    """Round to six digits: finer than a pixel, and short to write.

    Parameters
    ----------
    *columns : array
        Numbers.

    Returns
    -------
    list of list of float
        The same columns, rounded.

    Examples
    --------
    >>> six_digits(np.array([0.0123456789, 0.0]), np.array([123456789.0]))
    [[0.0123457, 0.0], [123457000.0]]
    """
    given = np.concatenate(columns) if columns else np.empty(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = 5 - np.floor(np.log10(np.abs(given)))
    places = np.where(np.isfinite(places), places, 0.0)
    up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
    rounded = (np.round(given * up / down) / up * down).tolist()
    ends = np.cumsum([0, *(column.size for column in columns)])
    return [rounded[first:last] for first, last in itertools.pairwise(ends)]


def _thinned(x: NDArray[np.float64], *heights: NDArray[np.float64]) -> NDArray[np.intp]:
    """Points that draw the same lines to a quarter of a pixel: few on a straight line, more where it bends."""
    kept = np.zeros(x.size, dtype=bool)
    kept[::_COARSE] = kept[-1] = True
    for _ in range(12):
        chosen = kept.nonzero()[0]
        away = np.abs(heights[0] - np.interp(x, x[chosen], heights[0][chosen]))
        for y in heights[1:]:
            away = np.maximum(away, np.abs(y - np.interp(x, x[chosen], y[chosen])))
        if away.max() <= _SEEN:
            break
        # The farthest point of each stretch that is off.
        peaks = np.maximum.reduceat(away, chosen[:-1])
        stretch = np.repeat(peaks, np.diff(chosen))
        kept[:-1] |= (away[:-1] == stretch) & (stretch > _SEEN)
    return np.flatnonzero(kept)


class _Bare(Scene):
    """A plot without names and lines: what is left is small."""

    def placed(self) -> list[Placed]:
        """Leave the names where the page has them."""
        return []


def told(
    curve: Curve, *, batch_axis: str, language: str, measured: Sequence[Mapping[str, Any]], names: bool
) -> dict[str, dict[str, Any]]:
    """Give what changes in the six plots.

    Parameters
    ----------
    curve : Curve
        What was computed.
    batch_axis, language, measured
        As of `batchline.chart.data`.
    names : bool
        With the names in their best places.

    Returns
    -------
    dict
        `datasets` and `signals` as of `batchline.chart.data`, but of the lines only the points that are needed, as
        arrays in `columns`, together with what is written at the batch to run.
    """
    story = story_of(curve, batch_axis=batch_axis, language=language, batches=None, measured=measured)
    datasets: dict[str, Any] = {}
    signals: dict[str, Any] = {"figure_title": answer(curve, language)[0]}
    columns: dict[str, Any] = {}
    for scene in scenes(story):
        rows = _Bare(**{**vars(scene), "lines": [], "band": None}).datasets()
        wanted = ["shade", "levels", "edges", "marks"]
        if names:
            rows = {**rows, **{name: values for name, values in scene.datasets().items() if name.endswith(_NAMES)}}
            wanted += ["labels", "leaders"]
        datasets |= {f"{scene.key}_{name}": rows[f"{scene.key}_{name}"] for name in wanted}
        signals |= scene.signals()
        columns[scene.key] = _columns(scene)
    return {"datasets": datasets, "signals": signals, "columns": columns}


def _columns(scene: Scene) -> dict[str, Any]:
    roles, columns = [], []
    for line in scene.lines:
        shown = np.flatnonzero(np.isfinite(line.value) & ((line.value > 0) | (not scene.y.log)))
        if shown.size == 0:
            continue
        shown = shown[_thinned(scene.x.pixel(line.batch[shown]), _inside(scene, line.value[shown]))]
        roles.append(line.series)
        columns += [line.batch[shown], line.value[shown]]
    if scene.band is not None:
        batch, low, high = scene.band
        some = _thinned(scene.x.pixel(batch), _inside(scene, low), _inside(scene, high))
        columns += [batch[some], low[some], high[some]]
    rounded = six_digits(*columns)
    lines = [{"role": role, "batch": rounded[2 * i], "value": rounded[2 * i + 1]} for i, role in enumerate(roles)]
    found: dict[str, Any] = {"lines": lines}
    if scene.band is not None:
        found["band"] = dict(zip(("batch", "low", "high"), rounded[-3:], strict=True))
    runs = [mark for mark in scene.marks if mark.kind == "run"]
    found["run"] = (
        {"batch": runs[0].batch, "value": runs[0].value, "texts": [runs[0].text, runs[0].short]} if runs else None
    )
    return found


def _inside(scene: Scene, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Heights in the frame and a little around it: what lies far outside need not be exact."""
    return np.clip(scene.y.pixel(values), -60, scene.y.length + 60)


def rows_of(columns: Mapping[str, Any], key: str) -> dict[str, list[dict[str, Any]]]:
    """Write columns as the rows that a specification holds.

    Parameters
    ----------
    columns : mapping
        Of one plot, as `told` gives them.
    key : str
        Prefix of the plot's datasets: "p11".

    Returns
    -------
    dict
        Rows of its lines and its band.
    """
    lines = [
        {"role": line["role"], "batch": batch, "value": value}
        for line in columns["lines"]
        for batch, value in zip(line["batch"], line["value"], strict=True)
    ]
    band = columns.get("band", {"batch": [], "low": [], "high": []})
    strips = [
        {"batch": batch, "low": low, "high": high}
        for batch, low, high in zip(band["batch"], band["low"], band["high"], strict=True)
    ]
    return {f"{key}_lines": lines, f"{key}_band": strips}
