"""What the article's six plots show of a curve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from batchline.chart._sample import CurveLike, batch_range, sample
from batchline.chart.axis import Axis, batch_ticks, linear_ticks
from batchline.chart.scene import Line, Mark, Rule, Scene, batch_text
from batchline.chart.story import PARTS, Story, milliseconds, round_time
from batchline.strings import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Band = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

__all__ = ["PLOTS", "WIDTH", "hover", "scenes", "story_of"]

PLOTS: Final = ("1.1", "1.2", "1.3", "2.1", "2.2", "2.3")
"""The six plots, by the article's numbers."""

WIDTH = 330.0

_BESIDE_CAPACITY = {"log": 4.0, "linear": 1.5}  # how far the batch axis goes beyond the last batch that matters


def story_of(
    curve: CurveLike,
    *,
    batch_axis: str,
    language: str,
    batches: tuple[float, float] | None,
    measured: Sequence[Mapping[str, Any]],
    width: float = WIDTH,
) -> Story:
    """Sample a curve for a batch axis.

    Parameters
    ----------
    curve : CurveLike
        What was computed.
    batch_axis : str
        "log" or "linear".
    language : str
        "en" or "ko".
    batches : tuple of float or None
        Ends of the batch axis [sequence].
    measured : sequence of mapping
        Records with `batch` and `t_step_s`.
    width : float
        Length of the batch axis [px].

    Returns
    -------
    Story
        For `scenes`.
    """
    linear = batch_axis == "linear"
    low, high = batch_range(curve, batches, _BESIDE_CAPACITY[batch_axis])
    taken = sample(curve, low, high, (curve.optimum.batch, curve.knee_batch, curve.capacity_batch))
    ticks = linear_ticks(0, high, 6) if linear else batch_ticks(low, high)
    x = Axis(not linear, 0.0 if linear else low, high, width, ticks)
    points = [(float(row["batch"]), float(row["t_step_s"])) for row in measured]
    return Story(curve, taken, x, linear, language, tuple(point for point in points if x.inside(point[0])))


def scenes(story: Story, names: Iterable[str] = PLOTS) -> list[Scene]:
    """Make the plots in numbers.

    Parameters
    ----------
    story : Story
        The curve and how it is told.
    names : iterable of str
        Of `PLOTS`.

    Returns
    -------
    list of Scene
        One for each name.
    """
    makers = {"1": _latency, "2": _cost}
    return [makers[name[0]](story, name) for name in names]


def hover(story: Story) -> list[dict[str, Any]]:
    """Rows for the figures shown under the pointer, about sixty strips that cover the batch axis."""
    curve = story.curve
    order = np.argsort(curve.batch)
    known = np.asarray(curve.batch, dtype=float)[order]
    inside = np.flatnonzero((known >= story.x.low) & (known <= story.x.high))
    picked = inside[np.unique(np.linspace(0, len(inside) - 1, min(64, len(inside))).round().astype(int))]
    batch = known[picked]
    edges = np.concatenate([batch[:1], np.sqrt(batch[1:] * batch[:-1]), batch[-1:]])
    return [
        {
            "start": float(f"{edges[i]:.6g}"),
            "end": float(f"{edges[i + 1]:.6g}"),
            "batch": float(f"{batch[i]:.6g}"),
            "step_ms": float(f"{curve.t_step[at] * 1e3:.4g}"),
            "tokens_per_s_per_user": float(f"{1 / curve.t_step[at]:.4g}"),
            "usd_per_mtok": None if story.price is None else float(f"{curve.t_step[at] / batch[i] * story.price:.4g}"),
            "bound_by": text(f"chart.name_{curve.bound_by[at]}", story.language),
        }
        for i, at in enumerate(order[picked])
    ]


def _subtitle(story: Story, name: str) -> str:
    key = f"subtitle_{name.replace('.', '_')}"
    if name[2] != "3":
        return story.say(f"{key}_predict" if story.curve.reading == "predict" and name[2] == "1" else key)
    return story.say(f"{key}_{story.curve.reading}")


# Plots 1.1, 1.2, 1.3: the time of a step.


def _latency(story: Story, name: str) -> Scene:
    taken, scale = story.sample, np.full_like(story.sample.batch, 1e3)
    band: Band | None = None
    if name == "1.1":
        lines = story.parts(PARTS, scale)
        rules, marks = story.edges(lines), story.dots(lines)
    elif name == "1.2":
        lines = story.parts(("memory", "compute"), scale)
        rules = story.edges(lines)
        marks = [*story.dots(lines), *story.crossing(taken.memory * scale, taken.compute * scale)]
    else:
        lines = [Line("step", taken.batch, taken.step * scale)]
        rules = [*story.edges(lines), _latency_floor(story), *_limit_level(story)]
        t_step = story.curve.optimum.t_step
        marks = [story.run_mark("run_time", t_step * 1e3, milliseconds(t_step)), *story.knee_on(taken.step * scale)]
        lines, marks, band = _with_prediction(story, lines, marks, scale)
    return Scene(
        name=name,
        title=_latency_title(story, name),
        subtitle=_subtitle(story, name),
        x=story.x,
        y=story.latency_axis,
        y_title=story.say("step_axis"),
        lines=lines,
        rules=rules,
        marks=marks,
        band=band,
        shade_from=story.capacity,
    )


def _latency_floor(story: Story) -> Rule:
    floor = milliseconds(story.curve.latency_floor)
    words, short = story.say("latency_floor", time=floor), story.say("floor_short", value=floor)
    return Rule("floor", words, value=story.curve.latency_floor * 1e3, short=(short,))


def _limit_level(story: Story) -> list[Rule]:
    limit = story.curve.step_limit
    if limit is None:
        return []
    axis = story.latency_axis
    key = "limit" if axis.inside(limit * 1e3) else "limit_above"
    if limit < story.curve.latency_floor:
        key = "limit_below"
    words, short = story.say(key, time=round_time(limit)), story.say("limit_short", time=round_time(limit))
    return [Rule("limit", words, value=min(limit * 1e3, axis.high * 1.1), short=(short,))]


def _latency_title(story: Story, name: str) -> str:
    if name == "1.1":
        return story.say("title_1_1", parts=story.listed(PARTS))
    if name == "1.2":
        return _knee_title(story)
    floor = milliseconds(story.curve.latency_floor)
    return story.say("title_1_3", time=milliseconds(story.curve.optimum.t_step), floor=floor)


def _knee_title(story: Story) -> str:
    knee = story.curve.knee_batch
    if story.curve.reading != "bound":
        return _longer_title(story)
    if knee is None or not np.isfinite(knee):
        return story.say("title_1_2_memory")
    if knee <= 1:
        return story.say("title_1_2_compute")
    if knee > story.curve.capacity_batch:
        return story.say("title_1_2_fits")
    return story.say("title_1_2_knee", knee=batch_text(knee))


def _longer_title(story: Story) -> str:
    """Where times add up, neither decides; one is longer."""
    taken = story.sample
    excess = taken.compute - taken.memory
    if excess[-1] <= 0:
        return story.say("title_1_2_longer_memory")
    if excess[0] > 0:
        return story.say("title_1_2_longer_compute")
    at = int(np.argmax(excess > 0))
    crossing = np.interp(0.0, excess[at - 1 : at + 1], taken.batch[at - 1 : at + 1])
    return story.say("title_1_2_longer_from", knee=batch_text(float(crossing)))


# Plots 2.1, 2.2, 2.3: what a token costs, in dollars and in time; the two are in proportion.


def _cost(story: Story, name: str) -> Scene:
    taken, price = story.sample, story.price
    unit = story.unit
    scale = unit / taken.batch
    band: Band | None = None
    if name == "2.1":
        lines = story.parts(PARTS, scale)
        rules, marks = story.edges(lines), story.dots(lines)
    elif name == "2.2":
        lines = story.parts(("memory", "compute"), scale)
        rules = story.edges(lines)
        marks = [*story.dots(lines), *story.crossing(taken.memory * scale, taken.compute * scale)]
    else:
        lines = [Line("step", taken.batch, taken.step * scale)]
        rules = [*story.edges(lines), _cost_floor(story, unit), *_limit_edge(story)]
        key = "run_token" if price is None else "run_cost"
        run = story.run_mark(key, story.per_token * unit, story.cost(story.per_token))
        lines, marks, band = _with_prediction(story, lines, [run, *story.knee_on(taken.step * scale)], scale)
    return Scene(
        name=name,
        title=_cost_title(story, name),
        subtitle=_subtitle(story, name),
        x=story.x,
        y=story.cost_axis,
        y_title=story.say("token_axis" if price is None else "cost_axis"),
        money=price is not None,
        right_title="" if price is None else story.say("token_axis"),
        right=story.time_axis,
        lines=lines,
        rules=rules,
        marks=marks,
        band=band,
        shade_from=story.capacity,
    )


def _cost_floor(story: Story, unit: float) -> Rule:
    cause = "both" if story.curve.reading == "serial" else "kv" if story.kv_is_floor else "compute"
    floor = story.cost(story.cost_floor)
    words, short = story.say(f"cost_floor_{cause}", cost=floor), story.say("floor_short", value=floor)
    return Rule("floor", words, value=story.cost_floor * unit, short=(short,))


def _limit_edge(story: Story) -> list[Rule]:
    """The largest batch within the step limit, unless the mark of the batch to run already stands there."""
    limit, taken = story.curve.step_limit, story.sample
    if limit is None or not taken.step[0] < limit < taken.step[-1]:
        return []
    batch = float(np.interp(limit, taken.step, taken.batch))
    if story.apart(batch, story.batch) < 6:
        return []
    words, short = story.say("limit", time=round_time(limit)), story.say("limit_short", time=round_time(limit))
    return [Rule("limit", words, batch=batch, short=(short,))]


def _cost_title(story: Story, name: str) -> str:
    if name == "2.1":
        return story.say("title_2_1_predict" if story.curve.reading == "predict" else "title_2_1")
    if name == "2.2":
        longer = "kv" if story.kv_is_floor else "compute"
        return story.say(
            {"bound": f"title_2_2_{longer}", "serial": "title_2_2_both"}.get(
                story.curve.reading, f"title_2_2_more_{longer}"
            )
        )
    key = "title_2_3_time" if story.price is None else "title_2_3_cost"
    return story.say(key, cost=story.cost(story.per_token), floor=story.cost(story.cost_floor))


def _with_prediction(
    story: Story, lines: list[Line], marks: list[Mark], scale: NDArray[np.float64]
) -> tuple[list[Line], list[Mark], Band | None]:
    """Add what only some curves have: the bound below a prediction, its interval, measured points."""
    taken = story.sample
    if taken.bound is not None:
        words, short = story.say("name_bound"), story.say("name_bound_short")
        lines = [*lines, Line("bound", taken.batch, taken.bound * scale, words, 0.8, (short,))]
    named = len(story.measured) // 2
    marks = marks + [
        Mark("measured", story.say("measured") if i == named else "", batch, seconds * story.scale_at(scale, batch))
        for i, (batch, seconds) in enumerate(story.measured)
    ]
    band = None
    if taken.low is not None and taken.high is not None:
        band = (taken.batch, taken.low * scale, taken.high * scale)
    return lines, marks, band
