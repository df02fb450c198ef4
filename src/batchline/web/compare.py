"""Charts that lay deployments over each other: a colour and a letter for each, filled in by the page."""

from __future__ import annotations

from typing import Any

from batchline.chart.theme import font
from batchline.strings import text
from batchline.web.look import palette

__all__ = ["specs"]

_WIDTH, _HEIGHT = 330, 240
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.4.1.json"

_TICKS = {
    "batch": [2.0**power for power in range(0, 25, 2)],
    "cost": [part * 10.0**decade for decade in range(-4, 5) for part in (1, 3)],
    "user": [part * 10.0**decade for decade in range(-1, 5) for part in (1, 2, 3, 5, 7)],
}
"""Round values of the logarithmic axes."""


def specs(language: str, theme: str, batch_axis: str) -> dict[str, dict[str, Any]]:
    """Give latency over batch, cost over batch, and cost over the speed of a user.

    Parameters
    ----------
    language, theme, batch_axis : str
        As of `batchline.chart.six_plots`.

    Returns
    -------
    dict
        Vega-Lite specifications "latency", "cost" and "trade" over the datasets `lines` (who, batch, ms, cost, user)
        and `marks`, the batch that each runs.
    """
    batch = ("batch", text("chart.batch_axis", language), batch_axis)
    user = ("user", text("page.ui_user_axis", language), "log")
    ms = ("ms", text("chart.step_axis", language), "linear")
    cost = ("cost", text("chart.cost_axis", language), "log")
    made = {"latency": (batch, ms), "cost": (batch, cost), "trade": (user, cost)}
    return {
        name: _spec(text(f"page.ui_{name}_of", language), x, y, palette(theme), font(language))
        for name, (x, y) in made.items()
    }


def _axis(axis: tuple[str, str, str], *, left: bool) -> dict[str, Any]:
    field, title, kind = axis
    money = "'$' + " if field == "cost" else ""
    look: dict[str, Any] = {"title": title, "grid": left, "labelExpr": f"{money}format(datum.value, ',.3~r')"}
    look |= {"labelFlush": not left, "labelOverlap": "greedy"} | (
        {"values": _TICKS[field]} if kind == "log" else {"tickCount": 5}
    )
    if left:
        look |= {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end", "titleBaseline": "bottom"}
        look |= {"titleX": -34, "titleY": -7}
    scale = {"type": kind, "zero": kind == "linear", "nice": left}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": look}


def _spec(
    title: str, x: tuple[str, str, str], y: tuple[str, str, str], colours: dict[str, str], font: str
) -> dict[str, Any]:
    scale = {"domain": list("ABCD"), "range": [colours[f"deployment_{letter}"] for letter in "abcd"]}
    place = {"x": _axis(x, left=False), "y": _axis(y, left=True)}
    who = {"field": "who", "type": "nominal", "scale": scale, "legend": None}
    ink = colours["background"]
    return {
        "$schema": _SCHEMA,
        "width": _WIDTH,
        "height": _HEIGHT,
        "title": {"text": title, "anchor": "start", "frame": "group", "offset": 26},
        "datasets": {"lines": [], "marks": []},
        "layer": [
            {
                "data": {"name": "lines"},
                "mark": {"type": "line", "strokeWidth": 2.6, "clip": True},
                "encoding": {**place, "color": who, "order": {"field": "batch", "type": "quantitative"}},
            },
            {
                "data": {"name": "marks"},
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "stroke": ink, "strokeWidth": 1.5},
                "encoding": {**place, "color": who},
            },
            *(_letters(place, who, ink, halo=halo) for halo in (True, False)),
        ],
        "config": {
            "background": colours["background"],
            "font": font,
            "view": {"stroke": None},
            "axis": {
                "labelColor": colours["muted"],
                "titleColor": colours["muted"],
                "labelFontSize": 12,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "tickColor": colours["frame"],
                "domainColor": colours["frame"],
                "gridColor": colours["grid"],
            },
            "title": {"color": colours["text"], "fontSize": 15},
        },
    }


def _letters(place: dict[str, Any], who: dict[str, Any], ink: str, *, halo: bool) -> dict[str, Any]:
    """Give each mark its letter, each letter on a side of its own, so that marks may meet; first a rim around it."""
    mark: dict[str, Any] = {"type": "text", "fontSize": 14, "fontWeight": "bold", "baseline": "middle"}
    mark |= {"dx": {"expr": "datum.dx"}, "dy": {"expr": "datum.dy"}}
    mark |= {"stroke": ink, "strokeWidth": 4, "strokeJoin": "round"} if halo else {}
    letter = {"field": "who", "type": "nominal"}
    colour = {} if halo else {"color": who}
    return {"data": {"name": "marks"}, "mark": mark, "encoding": {**place, "text": letter, **colour}}
