"""The six plots for a page that moves: only the points that the eye needs, and the names only when it rests.

A browser spends most of a frame on points, and the best places for the names take longer to find than a frame lasts.
While something moves the page lets the names ride on their lines, and asks for the places as soon as it rests.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

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


def _thinned(x: NDArray[np.float64], heights: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which points draw the same lines to a quarter of a pixel: few on a straight line, more where it bends.

    `heights` has a row for each picture, in it a row for each line that shares its points, and a column for each of
    `x`; the answer has a row for each picture.
    """
    pictures, _, size = heights.shape
    at = np.broadcast_to(np.arange(size), (pictures, size))
    # A stretch of width w over which the slope changes by s is off by s w / 8, so equal shares of the root of s w keep
    # all stretches about equally near; what they miss by is looked at, and mended, below.
    width = np.diff(x)
    bent = np.abs(np.diff(np.diff(heights, axis=2) / width, axis=2)).max(axis=1)
    shares = np.cumsum(np.sqrt(bent * width[1:] / (8 * _SEEN)), axis=1)
    kept = np.ones((pictures, size), dtype=bool)
    kept[:, 1:-1] = np.diff(np.floor(shares), axis=1, prepend=0.0) > 0
    for _ in range(12):
        before = np.maximum.accumulate(np.where(kept, at, 0), axis=1)
        after = np.minimum.accumulate(np.where(kept, at, size - 1)[:, ::-1], axis=1)[:, ::-1]
        part = (x - x[before]) / np.where(after > before, x[after] - x[before], 1.0)
        first, last = (np.take_along_axis(heights, ends[:, None, :], axis=2) for ends in (before, after))
        away = np.abs(heights - first - part[:, None, :] * (last - first)).max(axis=1)
        if away.max() <= _SEEN:
            break
        # The farthest point of each stretch that is off; a stretch begins at each point that is kept.
        starts = np.flatnonzero(kept)
        peaks = np.maximum.reduceat(away.ravel(), starts)
        stretch = np.repeat(peaks, np.diff(starts, append=kept.size)).reshape(kept.shape)
        kept |= (away == stretch) & (stretch > _SEEN)
    return kept


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
    found = scenes(story)
    for scene in found:
        rows = _Bare(**{**vars(scene), "lines": [], "band": None}).datasets()
        wanted = ["shade", "levels", "edges", "marks"]
        if names:
            rows = {**rows, **{name: values for name, values in scene.datasets().items() if name.endswith(_NAMES)}}
            wanted += ["labels", "leaders"]
        datasets |= {f"{scene.key}_{name}": rows[f"{scene.key}_{name}"] for name in wanted}
        signals |= scene.signals()
    return {"datasets": datasets, "signals": signals, "columns": _columns(found)}


class _Strip(NamedTuple):
    """A line of a plot, or with two values the band between them."""

    scene: Scene
    role: str
    batch: NDArray[np.float64]
    values: tuple[NDArray[np.float64], ...]

    def shown(self) -> NDArray[np.bool_]:
        """Points that the axes can show."""
        value = self.values[0]
        return np.isfinite(value) & ((value > 0) | (not self.scene.y.log))


def _columns(found: Sequence[Scene]) -> dict[str, Any]:
    """What is drawn over the batch, as columns; all plots in one go, which takes hardly longer than one of them."""
    strips = [_Strip(scene, line.series, line.batch, (line.value,)) for scene in found for line in scene.lines]
    strips += [_Strip(scene, "", scene.band[0], scene.band[1:]) for scene in found if scene.band is not None]
    points = _points(strips)
    drawn = [(strip, some) for strip, some in zip(strips, points, strict=True) if some.size]
    rounded = iter(six_digits(*(part[some] for strip, some in drawn for part in (strip.batch, *strip.values))))
    columns: dict[str, Any] = {scene.key: {"lines": []} for scene in found}
    for strip, _ in drawn:
        batch, *values = (next(rounded) for _ in range(1 + len(strip.values)))
        if len(values) == 1:
            columns[strip.scene.key]["lines"].append({"role": strip.role, "batch": batch, "value": values[0]})
        else:
            columns[strip.scene.key]["band"] = {"batch": batch, "low": values[0], "high": values[1]}
    for scene in found:
        runs = [mark for mark in scene.marks if mark.kind == "run"]
        columns[scene.key]["run"] = (
            {"batch": runs[0].batch, "value": runs[0].value, "texts": [runs[0].text, runs[0].short]} if runs else None
        )
    return columns


def _points(strips: Sequence[_Strip]) -> list[NDArray[np.intp]]:
    """Points that each strip needs; those of the same batches are looked at together."""
    alike: dict[tuple[int, int, bytes], list[int]] = {}
    shown = [strip.shown() for strip in strips]
    for i, (strip, some) in enumerate(zip(strips, shown, strict=True)):
        if some.any():
            alike.setdefault((len(strip.values), id(strip.batch), some.tobytes()), []).append(i)
    points: list[NDArray[np.intp]] = [np.empty(0, dtype=np.intp)] * len(strips)
    for members in alike.values():
        one, visible = strips[members[0]], np.flatnonzero(shown[members[0]])
        plots = itertools.groupby((strips[i] for i in members), key=lambda strip: id(strip.scene))
        heights = [_heights([*of_one], visible) for _, of_one in plots]
        kept = _thinned(one.scene.x.pixel(one.batch[visible]), np.concatenate(heights))
        for i, needed in zip(members, kept, strict=True):
            points[i] = visible[needed]
    return points


def _heights(strips: Sequence[_Strip], visible: NDArray[np.intp]) -> NDArray[np.float64]:
    """Heights in one plot, those outside of the frame not far from it, for they need not be exact."""
    y = strips[0].scene.y
    values = np.array([strip.values for strip in strips])[:, :, visible]
    return np.minimum(np.maximum(y.pixel(values), -60), y.length + 60)


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
