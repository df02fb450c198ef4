"""A plot before it is drawn: its lines, rules, marks and labels, all in numbers.

Nothing here knows Vega-Lite. `Scene.datasets` and `Scene.signals` are what changes from one curve to another; the
drawing around them (`vega`) stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.chart import placement
from batchline.chart.placement import HIT, Label, Obstacle, Placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from batchline.chart.axis import Axis

__all__ = ["FONT_SIZE", "Line", "Mark", "Rule", "Scene", "batch_text", "rounded"]

FONT_SIZE = 13.0
_BOLD_SIZE = 14.0
_MARK_REACH = 8.0
_SIZES = {"run": 190, "knee": 70, "measured": 36, "at": 50}  # areas [px2]


def rounded(value: float) -> float:
    """Six digits: finer than a pixel."""
    return float(f"{value:.6g}")


def batch_text(batch: float) -> str:
    """Write a batch; a knee between two whole ones is the next one."""
    return f"{np.ceil(batch - 1e-9):,.0f}"


@dataclass(frozen=True)
class Line:
    """A line over the batch.

    Parameters
    ----------
    series : str
        Its role: colour and dash.
    batch, value : array
        Its points, in the units of the axes.
    text : str
        Its name as written; none for a line that has no label.
    prefer : float
        Where the name goes if it may choose: 0 at the left end, 1 at the right one.
    short : tuple of str
        Its name where the whole one finds no place, longer ones first.
    """

    series: str
    batch: NDArray[np.float64]
    value: NDArray[np.float64]
    text: str = ""
    prefer: float = 0.5
    short: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """A straight rule over the whole plot, at a batch or at a value.

    Parameters
    ----------
    kind : str
        "capacity", "floor", "limit" or "run".
    text : str
        What is written at it.
    batch, value : float or None
        Where it stands: one of the two.
    top : float or None
        Value at which a rule at a batch ends; by default it goes through.
    short : tuple of str
        What is written where the text finds no place, longer ones first.
    """

    kind: str
    text: str
    batch: float | None = None
    value: float | None = None
    top: float | None = None
    short: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mark:
    """A point that is named.

    Parameters
    ----------
    kind : str
        "run", "knee" or "measured"; "at" for a dot on a line at the batch to run.
    text : str
        What is written at it; none for an unnamed one.
    batch, value : float
        Where it lies.
    short : tuple of str
        What is written where the text finds no place, longer ones first.
    role : str
        Colour of a dot.
    """

    kind: str
    text: str
    batch: float
    value: float
    short: tuple[str, ...] = ()
    role: str = "step"


@dataclass(frozen=True)
class Scene:
    """A plot in numbers.

    Parameters
    ----------
    name : str
        "1.1" to "2.3".
    title, subtitle : str
        Above the plot.
    x, y : Axis
        Batch and time, or batch and cost.
    y_title : str
        Unit of the left axis.
    money : bool
        The left axis is in dollars.
    right_title : str
        Unit of the right axis; none when there is no right axis.
    right : Axis or None
        The right axis: the same curve in another unit.
    lines, rules, marks : list
        What is drawn.
    band : tuple of array or None
        Batch, low and high of an interval.
    shade_from : float or None
        The batch from which on nothing fits.
    """

    name: str
    title: str
    subtitle: str
    x: Axis
    y: Axis
    y_title: str
    money: bool = False
    right_title: str = ""
    right: Axis | None = None
    lines: list[Line] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    band: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None = None
    shade_from: float | None = None

    @property
    def key(self) -> str:
        """Prefix of its datasets and signals: "p11"."""
        return "p" + self.name.replace(".", "")

    def placed(self) -> list[Placed]:
        """Labels in their places."""
        boxes = {line.series: self._line_boxes(line) for line in self.lines}
        return placement.place(self._labels(boxes), self._obstacles(boxes), self.x, self.y)

    def _line_boxes(self, line: Line) -> NDArray[np.float64]:
        x, y = self.x.pixel(line.batch), self.y.pixel(line.value)
        return placement.polyline(x, y, self.x.length, self.y.length)

    def _labels(self, boxes: dict[str, NDArray[np.float64]]) -> list[Label]:
        named = [mark for mark in self.marks if mark.text]
        labels = [self._mark_label(mark) for mark in named if mark.kind == "run"]
        labels += [self._rule_label(rule) for rule in self.rules if rule.text and rule.value is not None]
        labels += [self._rule_label(rule) for rule in self.rules if rule.text and rule.batch is not None]
        labels += [self._mark_label(mark) for mark in named if mark.kind != "run"]
        labels += [
            Label(
                line.series,
                line.text,
                line.series,
                self._line_places(line, boxes),
                FONT_SIZE,
                bold=True,
                rank=0,
                short=line.short,
            )
            for line in self.lines
            if line.text
        ]
        return labels

    def _line_places(self, line: Line, boxes: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        own = boxes[line.series]
        near = placement.along(own, FONT_SIZE, prefer=line.prefer)
        places = np.concatenate([near, placement.anywhere(own, self.x.length, self.y.length)])
        others = [found[:, :2] for series, found in boxes.items() if series != line.series and len(found)]
        if others and len(places):
            # Where two lines run together, a name could be either's.
            places[:, 3] += 9 * np.clip(1 - placement.nearness(places, np.concatenate(others)) / 10, 0, 1)
        return places

    def _mark_label(self, mark: Mark) -> Label:
        x, y = float(self.x.pixel(mark.batch)), float(self.y.pixel(mark.value))
        bold = mark.kind == "run"
        size = _BOLD_SIZE if bold else FONT_SIZE
        near = placement.beside(x, y, size, _MARK_REACH)
        places = np.concatenate([near, placement.anywhere(np.array([[x, y]]), self.x.length, self.y.length)])
        role = "step" if bold else "text"
        return Label(f"mark {mark.kind}", mark.text, role, places, size, bold, rank=0 if bold else 1, short=mark.short)

    def _rule_label(self, rule: Rule) -> Label:
        places = self._at_level(rule.value) if rule.value is not None else self._at_edge(rule.batch or 0.0)
        role = "text" if rule.kind == "limit" else "muted"
        return Label(f"rule {rule.kind}", rule.text, role, np.array(places), FONT_SIZE, rank=1, short=rule.short)

    def _at_level(self, value: float) -> list[tuple[float, float, float, float, float, float]]:
        """Places along a horizontal rule: at its ends, between them, and on both sides of the upright rules."""
        y = float(np.clip(self.y.pixel(value), 0, self.y.length))
        rise = FONT_SIZE * 0.5 + 4
        spots: list[tuple[float, float, float]] = [(5.0, -1, 0.0), (self.x.length - 5, 1, 1.5)]
        spots += [(share * self.x.length, -1, 1.0 + share) for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)]
        for rule in self.rules:
            if rule.batch is not None:
                x = float(self.x.pixel(rule.batch))
                spots += [(x - 6, 1, 2.0), (x + 6, -1, 2.0)]
        places = [
            (x, y + side * rise, align, cost + (0.4 if side > 0 else 0.0), np.nan, np.nan)
            for side in (-1, 1)
            for x, align, cost in spots
        ]
        start = float(self.y.pixel(float(self.lines[0].value[0])))
        if abs(start - y) < 4:
            # The line begins on the rule and hides it there, so the name stands above both.
            others = [float(self.y.pixel(rule.value)) for rule in self.rules if rule.value not in (None, value)]
            places += [
                (5.0, y - rise - away, -1, 2.0 + away / 4, np.nan, np.nan)
                for away in (4, 8, 12)
                if not any(y - rise - away < other < y for other in others)
            ]
        places += [
            (share * self.x.length, y + side * (rise + away), align, 8 + away / 5, share * self.x.length, y)
            for share in np.arange(0.06, 1.0, 0.08)
            for away in (16, 30, 46, 64, 84, 106, 130)
            for side in (-1, 1)
            for align in (-1, 0, 1)
        ]
        return places

    def _at_edge(self, batch: float) -> list[tuple[float, float, float, float, float, float]]:
        """Places beside an upright rule, from the top down."""
        x = float(self.x.pixel(batch))
        lines = np.arange(0.5, self.y.length / (FONT_SIZE + 4)) * (FONT_SIZE + 4) + 2
        beside: list[tuple[float, float, float, float, float, float]] = [
            (x + side * 6, float(y), -side, 0.15 * index + (0.0 if side < 0 else 0.5), np.nan, np.nan)
            for side in (-1, 1)
            for index, y in enumerate(lines)
        ]
        away: list[tuple[float, float, float, float, float, float]] = [
            (x + side * far, float(y), -side, 8 + far / 8 + 0.15 * index, x, float(y))
            for side in (-1, 1)
            for far in (20, 40, 70, 110, 160)
            for index, y in enumerate(lines)
        ]
        return beside + away

    def _obstacles(self, boxes: dict[str, NDArray[np.float64]]) -> list[Obstacle]:
        found = [Obstacle(series, line, clearance=16.0, near=6.0) for series, line in boxes.items()]
        for rule in self.rules:
            if rule.value is not None and self.y.inside(rule.value):
                y = float(self.y.pixel(rule.value))
                found.append(
                    Obstacle(f"rule {rule.kind}", np.array([[0, y, self.x.length, y]]), clearance=8.0, near=1.0)
                )
            elif rule.batch is not None and self.x.inside(rule.batch):
                x = float(self.x.pixel(rule.batch))
                end = 0.0 if rule.top is None else max(0.0, float(self.y.pixel(rule.top)))
                hit = HIT if rule.kind in ("capacity", "limit") else 30.0
                found.append(Obstacle(f"rule {rule.kind}", np.array([[x, end, x, self.y.length]]), hit=hit, clear=5.0))
        for mark in self.marks:
            reach = 3.5 if mark.kind in ("measured", "at") else _MARK_REACH
            x, y = float(self.x.pixel(mark.batch)), float(self.y.pixel(mark.value))
            box = np.array([[x - reach, y - reach, x + reach, y + reach]])
            hit = 200.0 if mark.kind == "measured" else HIT
            found.append(Obstacle(f"mark {mark.kind}", box, hit=hit, clearance=6.0, near=2.0))
        return found

    def datasets(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of each of its datasets, by name."""
        key, labels = self.key, self.placed()
        band = zip(*self.band, strict=True) if self.band is not None else ()
        return {
            f"{key}_lines": [
                {"role": line.series, "batch": rounded(b), "value": rounded(v)}
                for line in self.lines
                for b, v in zip(line.batch, line.value, strict=True)
                if np.isfinite(v) and (v > 0 or not self.y.log)
            ],
            f"{key}_band": [{"batch": rounded(b), "low": rounded(lo), "high": rounded(hi)} for b, lo, hi in band],
            f"{key}_shade": []
            if self.shade_from is None
            else [{"batch": rounded(max(self.shade_from, self.x.low)), "end": rounded(self.x.high)}],
            f"{key}_levels": [
                {"role": rule.kind, "value": rounded(rule.value)}
                for rule in self.rules
                if rule.value is not None and self.y.inside(rule.value)
            ],
            f"{key}_edges": [
                {
                    "role": rule.kind,
                    "batch": rounded(rule.batch),
                    "low": rounded(self.y.low),
                    "high": rounded(self.y.high if rule.top is None else min(rule.top, self.y.high)),
                }
                for rule in self.rules
                if rule.batch is not None and self.x.inside(rule.batch)
            ],
            f"{key}_marks": [
                {
                    "look": mark.role if mark.kind == "at" else mark.kind,
                    "batch": rounded(mark.batch),
                    "value": rounded(mark.value),
                    "size": _SIZES[mark.kind],
                }
                for mark in self.marks
                if self.x.inside(mark.batch) and self.y.inside(mark.value)
            ],
            f"{key}_labels": [
                {
                    "text": item.text,
                    "role": item.label.role,
                    "x": round(item.x, 1),
                    "y": round(item.y, 1),
                    "align": item.align,
                    "size": item.label.size,
                    "weight": "bold" if item.label.bold else "normal",
                }
                for item in labels
            ],
            f"{key}_leaders": _leaders(labels),
        }

    def signals(self) -> dict[str, Any]:
        """Value of each of its signals, by name: ends and ticks of the axes, titles."""
        found: dict[str, Any] = {
            "title": self.title,
            "x_low": rounded(self.x.low),
            "x_high": rounded(self.x.high),
            "x_ticks": self.x.ticks,
            "y_low": rounded(self.y.low),
            "y_high": rounded(self.y.high),
            "y_ticks": self.y.ticks,
        }
        if self.right is not None:
            found |= {
                "right_low": rounded(self.right.low),
                "right_high": rounded(self.right.high),
                "right_ticks": self.right.ticks,
            }
        return {f"{self.key}_{name}": value for name, value in found.items()}


def _leaders(labels: Sequence[Placed]) -> list[dict[str, float | str]]:
    """Thin lines from labels that stand away to the points that they name."""
    found: list[dict[str, float | str]] = []
    for item in labels:
        x, y = item.anchor
        if not np.isfinite(x):
            continue
        left, top, right, bottom = item.box
        to_x, to_y = float(np.clip(x, left, right)), float(np.clip(y, top, bottom))
        away = float(np.hypot(to_x - x, to_y - y))
        reach = _MARK_REACH if item.label.name.startswith("mark") else 0.0
        if away < reach + 10:
            continue
        start = reach / away
        end = 1 - 2 / away
        found.append(
            {
                "role": item.label.role,
                "x": round(x + (to_x - x) * start, 1),
                "y": round(y + (to_y - y) * start, 1),
                "x2": round(x + (to_x - x) * end, 1),
                "y2": round(y + (to_y - y) * end, 1),
            }
        )
    return found
