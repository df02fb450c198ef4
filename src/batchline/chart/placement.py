"""Where the labels of a plot go: the same labels always in the same places, and none over a line or another label.

Each label brings its possible places. Each place costs what it covers or comes near to, and how far it is from what it
names. The labels take their cheapest places in turn, and again, until no label gains by moving; one that still covers
something then yields, the least important first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from batchline.chart._text import text_width

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline.chart.axis import Axis

__all__ = ["Label", "Obstacle", "Placed", "along", "anywhere", "beside", "nearness", "place", "polyline"]

HIT = 1000.0
"""Cost of covering something that must stay visible; any sum below it is only a matter of taste."""

_ROUNDS = 6
_LINE_HEIGHT = 1.15
_APART = 4.0  # px between two labels
_EDGE = 2.0  # px between a label and the frame
_KEPT = 160  # cheapest places of a label that are looked at closely
_SHORTER = 3.5  # cost of the short text; of the next shorter one eight times that
_CROSSING = 12.0  # cost of a leader over another line
_ARRIVED = 14.0  # px around the end of a leader
_LEADER = 12.0  # px from which on a label is joined to what it names


@dataclass(frozen=True)
class Obstacle:
    """Something that a label should not cover, as boxes.

    Parameters
    ----------
    name : str
        What it is; a label does not mind coming near to what it names.
    boxes : array of shape (n, 4)
        Left, top, right and bottom [px]; a point has no width.
    hit : float
        Cost of covering it, or of coming nearer than `clear` px.
    clear : float
        That distance [px].
    clearance : float
        Distance within which it is felt [px].
    near : float
        Cost of touching it, falling to nothing at the clearance.
    """

    name: str
    boxes: NDArray[np.float64]
    hit: float = HIT
    clear: float = 2.5
    clearance: float = 2.0
    near: float = 0.0


@dataclass(frozen=True)
class Label:
    """A text and the places that it may take.

    Parameters
    ----------
    name : str
        What it names: a series, a rule, a mark.
    text : str
        What is written.
    role : str
        Its colour.
    places : array of shape (n, 6)
        x, y of the middle of the line of text [px], alignment (-1 left, 0 centre, 1 right), cost, and x, y of the point
        that it names there [px]; a thin line joins them when they are apart. NaN: no line.
    short : tuple of str
        What is written where the whole text finds no place, longer ones first.
    size : float
        Font size [px].
    bold : bool
        In bold.
    rank : int
        Importance; 0 is never left out.
    """

    name: str
    text: str
    role: str
    places: NDArray[np.float64]
    size: float = 12.0
    bold: bool = False
    rank: int = 1
    short: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placed:
    """A label in its place.

    Parameters
    ----------
    label : Label
        The label.
    text : str
        Its text, or its short one.
    x, y : float
        Where its text is anchored [px].
    align : str
        "left", "center" or "right" of that.
    box : array of 4
        Left, top, right and bottom [px].
    anchor : tuple of float
        The point that it names [px]; NaN when no line goes there.
    cost : float
        `HIT` or more when it covers something.
    """

    label: Label
    text: str
    x: float
    y: float
    align: str
    box: NDArray[np.float64] = field(repr=False)
    anchor: tuple[float, float]
    cost: float


def polyline(x: NDArray[np.float64], y: NDArray[np.float64], width: float, height: float) -> NDArray[np.float64]:
    """Points, 5 px or less apart, along the part of a line that lies in the frame."""
    ok = np.isfinite(x) & np.isfinite(y)
    x, y = x[ok], y[ok]
    if x.size == 0:
        return np.empty((0, 4))
    along_line = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.clip(np.diff(y), -2000, 2000)))])
    at = np.linspace(0, along_line[-1], max(2, int(along_line[-1] / 5)))
    px, py = np.interp(at, along_line, x), np.interp(at, along_line, y)
    inside = (px >= -1) & (px <= width + 1) & (py >= -1) & (py <= height + 1)
    return np.column_stack([px, py, px, py])[inside]


def along(boxes: NDArray[np.float64], size: float, *, prefer: float = 0.5) -> NDArray[np.float64]:
    """Places for the name of a line, above and below points spread over it, or further away with a line to it."""
    if len(boxes) == 0:
        return np.empty((0, 6))
    rise = size * 0.5 + 5
    near: list[tuple[float, float, int, float]] = [
        (0, -rise, 0, 0.0),
        (0, rise, 0, 0.5),
        (5, -rise, -1, 0.2),
        (-5, -rise, 1, 0.2),
        (5, rise, -1, 0.6),
        (-5, rise, 1, 0.6),
        (9, 0, -1, 0.4),
        (-9, 0, 1, 0.4),
    ]
    far: list[tuple[float, float, int, float]] = []
    for step, away in enumerate((9, 20, 34, 50)):
        cost = 6.0 + 3 * step
        far += [
            (0, -rise - away, 0, cost),
            (0, rise + away, 0, cost),
            (away, -rise - away / 2, -1, cost),
            (-away, -rise - away / 2, 1, cost),
            (away, rise + away / 2, -1, cost),
            (-away, rise + away / 2, 1, cost),
            (away + 9, 0, -1, cost),
            (-away - 9, 0, 1, cost),
        ]
    return np.concatenate([_spread(boxes, 44, near, prefer), _spread(boxes, 20, far, prefer)])


def _spread(
    boxes: NDArray[np.float64], points: int, offsets: list[tuple[float, float, int, float]], prefer: float
) -> NDArray[np.float64]:
    picked = np.unique(np.linspace(0, len(boxes) - 1, points).round().astype(int))
    x, y = boxes[picked, 0], boxes[picked, 1]
    taste = 3 * np.abs(picked / max(1, len(boxes) - 1) - prefer)
    columns = [
        np.column_stack([x + dx, y + dy, np.full_like(x, align), cost + taste, x, y]) for dx, dy, align, cost in offsets
    ]
    return np.concatenate(columns)


def beside(x: float, y: float, size: float, reach: float) -> NDArray[np.float64]:
    """Places for the name of a point: around it, nearest first, from `reach` px on."""
    places = []
    for step, away in enumerate((0, 8, 20, 36, 56, 80, 110)):
        rise = size * 0.5 + reach + away
        aside = reach + 2 + away
        cost = 4.0 * step
        places += [
            (x, y - rise, 0, cost + 0.6, x, y),
            (x - aside * 0.5, y - rise, 1, cost, x, y),
            (x + aside * 0.5, y - rise, -1, cost, x, y),
            (x - aside, y, 1, cost + 0.3, x, y),
            (x + aside, y, -1, cost + 0.3, x, y),
            (x, y + rise, 0, cost + 0.8, x, y),
            (x - aside * 0.5, y + rise, 1, cost + 0.5, x, y),
            (x + aside * 0.5, y + rise, -1, cost + 0.5, x, y),
        ]
    return np.array(places)


def _boxes(places: NDArray[np.float64], text: str, size: float, *, bold: bool) -> NDArray[np.float64]:
    width = text_width(text, size, bold=bold)
    x, y, align = places[:, 0], places[:, 1], places[:, 2]
    left = x - width * (align + 1) / 2
    half = size * _LINE_HEIGHT / 2
    return np.column_stack([left, y - half, left + width, y + half])


def _gap(boxes: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of each box to each other one; 0 where they overlap."""
    a, b = boxes.astype(np.float32).T[:, :, None], others.astype(np.float32).T[:, None, :]
    dx = np.maximum(b[0] - a[2], a[0] - b[2])
    dy = np.maximum(b[1] - a[3], a[1] - b[3])
    np.maximum(dx, 0, out=dx)
    np.maximum(dy, 0, out=dy)
    dx *= dx
    dy *= dy
    dx += dy
    return np.asarray(np.sqrt(dx, out=dx))


@dataclass(frozen=True)
class _Choice:
    """All places of a label, with the whole text and with the short one: what each covers and what it costs."""

    label: Label
    texts: list[str]
    places: NDArray[np.float64]
    boxes: NDArray[np.float64]
    cost: NDArray[np.float64]
    leaders: NDArray[np.float64]


def _choice(label: Label, obstacles: list[Obstacle], x: Axis, y: Axis) -> _Choice:
    texts = [label.text, *label.short]
    boxes = np.concatenate([_boxes(label.places, text, label.size, bold=label.bold) for text in texts])
    cost = np.concatenate([label.places[:, 3] + _SHORTER * i**3 for i in range(len(texts))])
    outside = (boxes[:, 0] < _EDGE) | (boxes[:, 2] > x.length - _EDGE)
    outside |= (boxes[:, 1] < _EDGE) | (boxes[:, 3] > y.length - _EDGE)
    within = np.flatnonzero(~outside)
    if within.size == 0:
        within, cost = np.arange(len(boxes)), cost + 2 * HIT
    boxes, cost = boxes[within], cost[within]
    for obstacle in obstacles:
        if len(obstacle.boxes) == 0:
            continue
        gap = _gap(boxes, obstacle.boxes).min(axis=1)
        cost += obstacle.hit * (gap < obstacle.clear)
        if obstacle.name != label.name and obstacle.near:
            cost += obstacle.near * np.clip(1 - gap / obstacle.clearance, 0, 1)
    best = np.argsort(cost, kind="stable")[:_KEPT]
    kept, boxes, cost = within[best], boxes[best], cost[best]
    places = label.places[kept % len(label.places)]
    leaders = _leaders(boxes, places)
    for obstacle in obstacles:
        if obstacle.name != label.name and obstacle.hit >= HIT and len(obstacle.boxes):
            cost += _CROSSING * _touched(leaders, obstacle.boxes)
    return _Choice(label, [texts[at // len(label.places)] for at in kept], places, boxes, cost, leaders)


def anywhere(points: NDArray[np.float64], width: float, height: float) -> NDArray[np.float64]:
    """Places over the whole frame, the nearer the cheaper, for a name that has no room beside what it names."""
    if len(points) == 0:
        return np.empty((0, 6))
    spots = [(5.0, -1), (width - 5, 1)]
    spots += [(x, align) for x in np.arange(0.05, 1.0, 0.1) * width for align in (-1, 0, 1)]
    heights = np.arange(0.05, 1.0, 0.08) * height
    x, align = np.tile(np.array(spots), (len(heights), 1)).T
    y = np.repeat(heights, len(spots))
    away = (points[None, :, 0] - x[:, None]) ** 2 + (points[None, :, 1] - y[:, None]) ** 2
    nearest = np.argmin(away, axis=1)
    cost = 16 + np.sqrt(away[np.arange(len(x)), nearest]) / 6
    return np.column_stack([x, y, align, cost, points[nearest, :2]])


def nearness(places: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance from what each place names to the nearest of other points."""
    # A hundred points of a line are named from more than a thousand places.
    named, which = np.unique(places[:, 4:6], axis=0, return_inverse=True)
    away = (named[:, None, 0] - others[None, :, 0]) ** 2 + (named[:, None, 1] - others[None, :, 1]) ** 2
    return np.asarray(np.sqrt(away.min(axis=1))[which.ravel()])


def _leaders(boxes: NDArray[np.float64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ends of the thin line from each box to what it names: x, y, x, y; NaN where there is no line."""
    anchor = places[:, 4:6]
    start = np.column_stack([np.clip(anchor[:, i], boxes[:, i], boxes[:, i + 2]) for i in (0, 1)])
    ends = np.concatenate([start, anchor], axis=1)
    ends[~(np.hypot(*(start - anchor).T) > _LEADER)] = np.nan
    return ends


def _touched(leaders: NDArray[np.float64], boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whether each leader comes within 3 px of any of the boxes, before it arrives where lines may well meet."""
    found = np.zeros(len(leaders))
    there = np.isfinite(leaders[:, 0])
    if there.any():
        start, anchor = leaders[there, None, :2], leaders[there, None, 2:]
        points = start + np.linspace(0.0, 1.0, 9)[None, :, None] * (anchor - start)
        points[np.hypot(*(points - anchor).transpose(2, 0, 1)) < _ARRIVED] = -1e6
        gap = _gap(np.concatenate([points, points], axis=2).reshape(-1, 4), boxes).min(axis=1)
        found[there] = (gap.reshape(-1, points.shape[1]) < 3).any(axis=1)
    return found


def _crossed(leaders: NDArray[np.float64], boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each leader passes through each box or within 2 px of it; no line passes through anything."""
    start, step = leaders[:, None, :2], (leaders[:, 2:] - leaders[:, :2])[:, None, :]
    step = np.where(np.abs(step) < 1e-9, 1e-9, step)
    one, other = (boxes[None, :, :2] - 2 - start) / step, (boxes[None, :, 2:] + 2 - start) / step
    enter = np.maximum(np.minimum(one, other).max(axis=2), 0.0)
    leave = np.minimum(np.maximum(one, other).min(axis=2), 1.0)
    return np.asarray(enter <= leave)  # comparisons with NaN are false


def place(labels: list[Label], obstacles: list[Obstacle], x: Axis, y: Axis) -> list[Placed]:
    """Choose a place for each label.

    Parameters
    ----------
    labels : list of Label
        The more important ones first.
    obstacles : list of Obstacle
        What they must keep clear of.
    x, y : Axis
        The frame.

    Returns
    -------
    list of Placed
        In the order of the labels; one without a clear place is left out unless its rank is 0.
    """
    choices = [_choice(label, obstacles, x, y) for label in labels if len(label.places)]
    while choices:
        chosen, total = _settle(choices)
        covering = [i for i, choice in enumerate(choices) if total[i] >= HIT and choice.label.rank]
        if not covering:
            return [_placed(*item) for item in zip(choices, chosen, total, strict=True)]
        del choices[max(covering, key=lambda i: (choices[i].label.rank, i))]
    return []


def _placed(choice: _Choice, at: int, cost: float) -> Placed:
    x, y, align, _, anchor_x, anchor_y = (float(value) for value in choice.places[at])
    side = {-1: "left", 0: "center", 1: "right"}[int(align)]
    return Placed(choice.label, choice.texts[at], x, y, side, choice.boxes[at], (anchor_x, anchor_y), cost)


def _settle(choices: list[_Choice]) -> tuple[list[int], list[float]]:
    """Let each label in turn take its cheapest place, until none moves; with the cost of each place."""
    chosen: list[int | None] = [None] * len(choices)

    def costs(i: int) -> NDArray[np.float64]:
        taken = [choices[j].boxes[at] for j, at in enumerate(chosen) if at is not None and j != i]
        if not taken:
            return choices[i].cost
        gap = _gap(choices[i].boxes, np.array(taken))
        crowded = HIT * (gap < _APART).sum(axis=1) + 4 * np.clip(1 - gap / 18, 0, 1).sum(axis=1)
        theirs = [choices[j].leaders[at] for j, at in enumerate(chosen) if at is not None and j != i]
        crossing = _crossed(choices[i].leaders, np.array(taken)).sum(axis=1)
        crossing = crossing + _crossed(np.array(theirs), choices[i].boxes).sum(axis=0)
        return np.asarray(choices[i].cost + crowded + HIT * crossing)

    for _ in range(_ROUNDS):
        before = list(chosen)
        for i in range(len(choices)):
            chosen[i] = int(np.argmin(costs(i)))
        if chosen == before:
            break
    settled = [at if at is not None else 0 for at in chosen]
    return settled, [float(costs(i)[at]) for i, at in enumerate(settled)]
