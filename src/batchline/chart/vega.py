"""Scenes as Vega-Lite, through Altair. What differs between two curves is only in named datasets and signals.

Altair takes a third of a second to import, so this module is loaded when something is drawn.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import altair as alt
from altair.utils import schemapi

from batchline.chart import theme as looks
from batchline.chart._text import wrapped
from batchline.strings import text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchline.chart._breakdown import Breakdown
    from batchline.chart.axis import Axis
    from batchline.chart.scene import Scene

__all__ = ["drawing", "figure", "finished", "fitted", "heading", "stack"]

_PARTS = ("weights", "kv", "compute", "memory", "overhead", "communication")
_COLOURED = {
    **{name: name for name in (*_PARTS, "step", "bound", "text", "muted")},
    "capacity": "frame",
    "floor": "muted",
    "limit": "limit",
    "run": "step",
}
_DASHED = {"bound": [5, 4], "floor": [5, 4], "run": [2, 3]}


@dataclass(frozen=True)
class _Frame:
    """What the structure of a plot depends on; all else is data."""

    key: str
    subtitle: str
    width: float
    height: float
    log_x: bool
    log_y: bool
    y_title: str
    money: bool
    right_title: str
    theme: str
    language: str


def _signal(name: str) -> alt.ExprRef:
    return alt.ExprRef(expr=name)


def _named(name: str) -> alt.NamedData:
    return alt.NamedData(name=name)


def _x(scene: _Frame, field: str = "batch") -> alt.X:
    key = scene.key
    scale = alt.Scale(
        type="log" if scene.log_x else "linear",
        domainMin=_signal(f"{key}_x_low"),
        domainMax=_signal(f"{key}_x_high"),
        nice=False,
        zero=False,
    )
    axis = alt.Axis(
        values=_signal(f"{key}_x_ticks"),
        title=text("chart.batch_axis", scene.language),
        labelExpr="format(datum.value, ',')",
        labelFlush=True,
        grid=False,
    )
    return alt.X(f"{field}:Q", scale=scale, axis=axis)


def _above(title: str, *, left: bool, raised: int = 7) -> dict[str, Any]:
    """The unit stands above its axis, horizontally, where it is read first."""
    return {
        "title": title,
        "titleAngle": 0,
        "titleAlign": "left" if left else "right",
        "titleAnchor": "end",
        "titleBaseline": "bottom",
        "titleX": -34 if left else 34,
        "titleY": -raised,
    }


def _y(scene: _Frame, field: str, side: str = "y") -> alt.Y:
    key = f"{scene.key}_{side}"
    scale = alt.Scale(
        type="log" if scene.log_y else "linear",
        domainMin=_signal(f"{key}_low"),
        domainMax=_signal(f"{key}_high"),
        nice=False,
        zero=False,
    )
    left = side == "y"
    money = "'$' + " if scene.money and left else ""
    axis = alt.Axis(
        values=_signal(f"{key}_ticks"),
        orient="left" if left else "right",
        labelExpr=f"{money}format(datum.value, ',.3~r')",
        grid=left,
        **_above(scene.y_title if left else scene.right_title, left=left),
    )
    return alt.Y(f"{field}:Q", scale=scale, axis=axis)


def _colour(palette: Mapping[str, str]) -> alt.Color:
    """One scale for everything in a plot: layers of one plot share theirs."""
    scale = alt.Scale(domain=list(_COLOURED), range=[palette[role] for role in _COLOURED.values()])
    return alt.Color("role:N", scale=scale, legend=None)


def _dash() -> alt.StrokeDash:
    # Solid is no pattern at all: with dashes of a pixel and gaps of none a browser cuts each line into its pixels.
    patterns = [_DASHED.get(name, []) for name in _COLOURED]
    return alt.StrokeDash("role:N", scale=alt.Scale(domain=list(_COLOURED), range=patterns), legend=None)


def _lines(scene: _Frame, x: alt.X, y: alt.Y, palette: Mapping[str, str]) -> list[alt.Chart]:
    key, colour, dash = scene.key, _colour(palette), _dash()
    low, high = _y(scene, "low"), alt.Y2("high")
    return [
        alt.Chart(_named(f"{key}_shade")).mark_rect(color=palette["shade"], clip=True).encode(x=x, x2="end"),
        alt.Chart(_named(f"{key}_band")).mark_area(color=palette["step"], opacity=0.18, clip=True).encode(x, low, high),
        alt.Chart(_named(f"{key}_levels")).mark_rule(strokeWidth=1.3).encode(y, colour, dash),
        alt.Chart(_named(f"{key}_edges")).mark_rule(strokeWidth=1.3, clip=True).encode(x, low, high, colour, dash),
        alt.Chart(_named(f"{key}_lines"))
        .mark_line(strokeWidth=2.6, clip=True, strokeJoin="round")
        .encode(x, y, colour, dash),
    ]


def _marks(scene: _Frame, x: alt.X, y: alt.Y, palette: Mapping[str, str]) -> list[alt.Chart]:
    looks = {
        "measured": (palette["background"], palette["measured"], "circle"),
        "knee": (palette["background"], palette["text"], "diamond"),
        "run": (palette["step"], palette["background"], "circle"),
        **{role: (palette[role], palette["background"], "circle") for role in _PARTS},
    }
    fill, stroke, shape = ([look[i] for look in looks.values()] for i in range(3))

    def by_look(channel: Any, values: list[str]) -> Any:
        return channel("look:N", scale=alt.Scale(domain=list(looks), range=values), legend=None)

    size = alt.Size("size:Q", scale=None)
    return [
        alt.Chart(_named(f"{scene.key}_marks"))
        .mark_point(strokeWidth=1.8, opacity=1)
        .encode(x, y, by_look(alt.Fill, fill), by_look(alt.Stroke, stroke), by_look(alt.Shape, shape), size)
    ]


def _pixels(field: str) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", "scale": None}


def _labels(scene: _Frame, palette: Mapping[str, str]) -> list[alt.Chart]:
    data = _named(f"{scene.key}_labels")
    x, y = alt.X(**_pixels("x")), alt.Y(**_pixels("y"))
    colour = _colour(palette)
    leaders = (
        alt.Chart(_named(f"{scene.key}_leaders"))
        .mark_rule(strokeWidth=1)
        .encode(x=x, y=y, x2="x2", y2="y2", color=colour)
    )
    words = alt.Chart(data).mark_text(**_DATUM).encode(x=x, y=y, text="text:N", color=colour)
    return [leaders, words]


def _hover(scene: _Frame) -> alt.Chart:
    fields = [
        ("batch", "tip_batch", ",.0f"),
        ("step_ms", "tip_step", ",.3~r"),
        ("tokens_per_s_per_user", "tip_user", ",.3~r"),
    ]
    if scene.money:
        fields.append(("usd_per_mtok", "tip_cost", ",.3~r"))
    tips = [
        alt.Tooltip(f"{name}:Q", title=text(f"chart.{key}", scene.language), format=form) for name, key, form in fields
    ]
    tips.append(alt.Tooltip("bound_by:N", title=text("chart.tip_bound", scene.language)))
    start = _x(scene, "start")
    strips: alt.Chart = alt.Chart(_named("hover"), name=f"{scene.key}_hover")
    found: alt.Chart = strips.mark_rect(opacity=0, clip=True).encode(x=start, x2="end", tooltip=tips)
    return found


_DATUM: dict[str, Any] = {
    "align": _signal("datum.align"),
    "fontSize": _signal("datum.size"),
    "fontWeight": _signal("datum.weight"),
    "baseline": "middle",
}


@cache
def _drawing(scene: _Frame) -> dict[str, Any]:
    palette = looks.palette(scene.theme)
    x, y = _x(scene), _y(scene, "value")
    with schemapi.debug_mode(arg=False):  # the tests check the schema; each check here would cost seconds
        layers = [*_lines(scene, x, y, palette), *_marks(scene, x, y, palette), *_labels(scene, palette), _hover(scene)]
        plot = alt.layer(*layers)
        if scene.right_title:
            # The right axis has nothing to draw: it is the left one in another unit.
            other = alt.Chart(_named(f"{scene.key}_shade")).mark_point(opacity=0, clip=True)
            plot = alt.layer(plot, other.encode(_y(scene, "right", "right"))).resolve_scale(y="independent")
        title = alt.TitleParams(
            text=_signal(f"{scene.key}_title"),
            subtitle=scene.subtitle,  # by the schema only text, not a signal: the same for every curve of a reading
            anchor="start",
            frame="group",
            offset=10,
        )
        found: dict[str, Any] = plot.properties(width=scene.width, height=scene.height, title=title).to_dict(
            validate=False
        )
    return {key: value for key, value in found.items() if key not in ("$schema", "config", "datasets")}


def drawing(scene: Scene, *, theme: str, language: str) -> dict[str, Any]:
    """One plot without its data, which is the same for all curves of a kind and so made only once."""
    frame = _Frame(
        key=scene.key,
        subtitle=scene.subtitle,
        width=scene.x.length,
        height=scene.y.length,
        log_x=scene.x.log,
        log_y=scene.y.log,
        y_title=scene.y_title,
        money=scene.money,
        right_title=scene.right_title,
        theme=theme,
        language=language,
    )
    return copy.deepcopy(_drawing(frame))


def stack(found: Breakdown, x_axis: Axis, *, theme: str, language: str) -> dict[str, Any]:
    """The breakdown, without its data."""
    palette = looks.palette(theme)
    frame = _Frame(
        key="breakdown",
        subtitle="",
        width=x_axis.length,
        height=found.height,
        log_x=x_axis.log,
        log_y=False,
        y_title=text("chart.share_axis", language),
        money=False,
        right_title="",
        theme=theme,
        language=language,
    )
    x, px, py = _x(frame), alt.X(**_pixels("x")), alt.Y(**_pixels("y"))
    axis = alt.Axis(values=[0, 25, 50, 75, 100], grid=False, **_above(frame.y_title, left=True, raised=22))
    share = alt.Y("share:Q", stack="zero", scale=alt.Scale(domain=[0, 100], nice=False), axis=axis)
    fill = alt.Color("fill:N", scale=None, legend=None)
    with schemapi.debug_mode(arg=False):
        edges = alt.Chart(_named("breakdown_edges")).encode(x, y=alt.value(0), y2=alt.value(found.height))
        names = alt.Chart(_named("breakdown_names")).encode(px, py, text="text:N", color=fill)
        above = alt.Chart(_named("breakdown_edge_names")).encode(px, y=alt.value(-10), text="text:N", color=fill)
        plot = alt.layer(
            alt.Chart(_named("breakdown_parts"))
            .mark_area(clip=True, opacity=1, stroke=palette["background"], strokeWidth=0.8)
            .encode(x, share, fill, alt.Detail("role:N"), alt.Order("order:Q")),
            edges.mark_rule(color=palette["background"], strokeWidth=4, clip=True),
            edges.mark_rule(color=palette["text"], strokeWidth=1.5, clip=True),
            alt.Chart(_named("breakdown_leaders"))
            .mark_rule(strokeWidth=1)
            .encode(px, py, x2="x2", y2="y2", color=fill),
            names.mark_text(**_DATUM),
            above.mark_text(**_DATUM),
        )
        title = alt.TitleParams(
            text=_signal("breakdown_title"), subtitle=found.subtitle, anchor="start", frame="group", offset=14
        )
        made: dict[str, Any] = plot.properties(width=frame.width, height=frame.height, title=title).to_dict(
            validate=False
        )
    return {key: value for key, value in made.items() if key not in ("$schema", "config", "datasets")}


NARROW: Final = 300.0
"""Width of a plot on a phone [px]: with its axis it fills the 380 px that a small one has."""
_NARROW_TITLE, _NARROW_SUBTITLE = 16.0, 13.0


def fitted(title: str, *, narrow: bool) -> str | list[str]:
    """Break a title that stands over a narrow plot."""
    return wrapped(title, _NARROW_TITLE, NARROW, bold=True) if narrow else title


def heading(subtitle: Sequence[str], sizes: tuple[float, float], *, narrow: bool, **look: Any) -> Any:
    """Title and the lines below it; over a narrow plot smaller, and broken where they would be cut."""
    lines = list(subtitle)
    if narrow:
        sizes = (_NARROW_TITLE, _NARROW_SUBTITLE)
        lines = [part for line in subtitle for part in wrapped(line, _NARROW_SUBTITLE, NARROW)]
    return alt.TitleParams(
        text=_signal("figure_title"),
        subtitle=lines,
        anchor="start",
        fontSize=sizes[0],
        subtitleFontSize=sizes[1],
        **look,
    )


def figure(
    plots: Sequence[dict[str, Any]], columns: int, subtitle: Sequence[str], *, narrow: bool = False
) -> dict[str, Any]:
    """Plots in rows of so many columns, under a title."""
    title = heading(
        subtitle,
        (22, 15),
        narrow=narrow,
        subtitlePadding=7,
        offset=22,
    )
    return {"title": title.to_dict(), "concat": list(plots), "columns": columns, "spacing": {"row": 26, "column": 22}}


def finished(
    drawn: dict[str, Any],
    *,
    datasets: Mapping[str, list[dict[str, Any]]],
    signals: Mapping[str, Any],
    theme: str,
    language: str,
) -> dict[str, Any]:
    """Give a drawing its data, its signals and its look."""
    palette = looks.palette(theme)
    look = alt.Config(
        background=palette["background"],
        font=looks.font(language),
        padding=18,
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            labelColor=palette["muted"],
            titleColor=palette["muted"],
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
            tickColor=palette["frame"],
            domainColor=palette["frame"],
            gridColor=palette["grid"],
            labelPadding=4,
        ),
        title=alt.TitleConfig(
            color=palette["text"],
            subtitleColor=palette["muted"],
            fontSize=15,
            subtitleFontSize=13,
            fontWeight="bold",
            subtitlePadding=4,
        ),
    )
    return {
        "$schema": alt.SCHEMA_URL,
        "usermeta": {"language": language, "theme": theme},
        "params": [{"name": name, "value": value} for name, value in signals.items()],
        "datasets": dict(datasets),
        **drawn,
        "config": look.to_dict(),
    }
