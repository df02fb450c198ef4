"""A plan as pictures: the Pareto front of cost and speed, and what moves the cost.

Vega-Lite through Altair, in the look of `batchline.chart`, whose `save` writes them as PNG, SVG or an offline page.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.chart.axis import Axis, log_ticks
from batchline.chart.placement import Label, Obstacle, beside, place, polyline
from batchline.errors import InputError
from batchline.strings import Sentence, text, told
from batchline.units import format_time, format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from batchline.planner import Candidate, Plan
    from batchline.sensitivity import Bar

__all__ = ["pareto", "tornado"]

_ROLES = ("compute", "kv", "weights", "communication", "step", "prefill")
"""Colours for accelerators, those that lead first; the rest share one."""
_BAR = 26
_WIDTH, _HEIGHT, _FONT = 680.0, 420.0, 13.0
_TIPS = {
    "title:N": "deployment",
    "usd:N": "month",
    "token:N": "token",
    "first:N": "first",
    "devices:Q": "devices",
    "sure:N": "sure",
}
"""What is told of a dot: field, and the name of its text."""
_AREAS = [40, 420]
"""Areas of the dots with the fewest and the most devices [px2]."""


def pareto(answer: Plan, *, theme: str = "light", language: str = "en", narrow: bool = False) -> dict[str, Any]:
    """Draw the front: cost a month against time per token.

    Parameters
    ----------
    answer : Plan
        What `batchline.planner.plan` gave.
    theme : str
        "light" or "dark".
    language : str
        "en" or "ko".
    narrow : bool
        For a phone.

    Returns
    -------
    dict
        Vega-Lite specification.

    Raises
    ------
    InputError
        The plan has no candidate.
    """
    import altair as alt  # noqa: PLC0415  (a third of a second)

    from batchline.chart import theme as looks  # noqa: PLC0415
    from batchline.chart import vega  # noqa: PLC0415

    best, palette, say = answer.best, looks.palette(theme), partial(text, language=language)
    groups = _groups(answer.front, palette, say("planner.others"))
    points = [_point(one, groups, say("planner.others")) for one in answer.front]
    marked = _marked(answer, say)
    # The best may stand beside the front: of equal price it has more bits or fewer devices, and a slower token.
    shown_at = [*points, *marked]
    width = vega.NARROW if narrow else _WIDTH
    across = _log_axis([one["tpot_ms"] for one in shown_at], width, down=False)
    up = _log_axis([one["usd_per_month"] for one in shown_at], _HEIGHT, down=True)
    x, y = _axes(alt, across, up, say, narrow=narrow)
    size = alt.Size("devices:Q", scale=alt.Scale(domain=_span(answer.front), range=_AREAS), legend=None)
    drawn = _layers(alt, x, y, size, groups, palette, say).properties(width=width, height=_HEIGHT)
    promises = ", ".join(f"{name} {value}" for name, value in answer.question.promises.items())
    about = {"count": f"{len(answer.front):,}", "promise": promises or say("planner.no_promise")}
    title = say("planner.front_title", model=answer.question.model, cost=format_usd(best.usd_per_month))
    lines = [best.titled(language), say("planner.front_about", **about)]
    heading = vega.heading(lines, (18, 14), narrow=narrow, offset=18)
    return vega.finished(
        _bare(drawn, heading.to_dict()),
        datasets={
            "front": points,
            "marked": marked,
            "words": _words(answer.front, points, marked, across, up),
            "stairs": _stairs(answer.front),
        },
        signals={"figure_title": vega.fitted(title, narrow=narrow)},
        theme=theme,
        language=language,
    )


def _groups(front: Sequence[Candidate], palette: Mapping[str, str], others: str) -> dict[str, str]:
    """Colour of each accelerator, those that lead first, and of the others together."""
    names = list(dict.fromkeys(one.accelerator for one in sorted(front, key=lambda one: one.usd_per_month)))
    groups = {name: palette[role] for name, role in zip(names, _ROLES, strict=False)}
    return groups | ({others: palette["muted"]} if len(names) > len(groups) else {})


def _axes(alt: Any, across: Axis, up: Axis, say: Callable[..., str], *, narrow: bool) -> tuple[Any, Any]:
    x = alt.X(
        "tpot_ms:Q",
        scale=alt.Scale(type="log", nice=False, domain=[across.low, across.high]),
        axis=_below(alt, say("planner.token_axis"), narrow=narrow),
    )
    y = alt.Y(
        "usd_per_month:Q",
        scale=alt.Scale(type="log", nice=False, domain=[up.low, up.high]),
        axis=alt.Axis(
            title=say("planner.month_axis"),
            titleAngle=0,
            titleAlign="left",
            titleAnchor="end",
            titleBaseline="bottom",
            titleX=-34,
            titleY=-7,
            labelExpr="'$' + format(datum.value, ',.0f')",
            values=up.ticks,
        ),
    )
    return x, y


def _layers(
    alt: Any, x: Any, y: Any, size: Any, groups: Mapping[str, str], palette: Mapping[str, str], say: Callable[..., str]
) -> Any:
    """The stairs of the front, its dots, rings around those that have a name, and the words."""
    colour = alt.Color("group:N", scale=alt.Scale(domain=list(groups), range=list(groups.values())), legend=None)
    tips = [alt.Tooltip(field, title=say(f"planner.tip_{name}")) for field, name in _TIPS.items()]
    dots = alt.Chart(_data(alt, "front")).mark_circle(opacity=0.85).encode(x, y, colour, size, tooltip=tips)
    stairs = alt.Chart(_data(alt, "stairs")).mark_line(interpolate="step-after", color=palette["frame"]).encode(x, y)
    rings = alt.Chart(_data(alt, "marked")).mark_point(size=260, color=palette["text"], strokeWidth=1.6).encode(x, y)
    look: dict[str, Any] = {"fontSize": _FONT, "baseline": "middle", "align": alt.ExprRef("datum.align")}
    words = alt.Chart(_data(alt, "words")).encode(alt.X("x:Q", scale=None), alt.Y("y:Q", scale=None), text="words:N")
    rim = words.mark_text(stroke=palette["background"], strokeWidth=4, strokeJoin="round", **look)
    names = words.transform_filter("datum.group != ''").mark_text(fontWeight="bold", **look).encode(color=colour)
    ends = words.transform_filter("datum.group == ''").mark_text(color=palette["text"], **look)
    return alt.layer(stairs, dots, rings, rim, names, ends)


def tornado(
    answer: Plan, bars: Sequence[Bar], *, theme: str = "light", language: str = "en", narrow: bool = False
) -> dict[str, Any]:
    """Draw what moves the cost of the best deployment, widest first.

    Parameters
    ----------
    answer : Plan
        What `batchline.planner.plan` gave.
    bars : sequence of Bar
        What `batchline.sensitivity.tornado` gave for it.
    theme : str
        "light" or "dark".
    language : str
        "en" or "ko".
    narrow : bool
        For a phone.

    Returns
    -------
    dict
        Vega-Lite specification.

    Raises
    ------
    InputError
        There are no bars.
    """
    import altair as alt  # noqa: PLC0415  (a third of a second)

    from batchline.chart import theme as looks  # noqa: PLC0415
    from batchline.chart import vega  # noqa: PLC0415

    if not bars:
        raise InputError(Sentence("error.no_bars"))
    palette, now, say = looks.palette(theme), answer.best.usd_per_month, partial(text, language=language)
    rows = [row for bar in bars for row in _halves(bar, answer.best, say, language)]
    order = [_called(bar.variable, say) for bar in bars]
    y = alt.Y(
        "variable:N",
        sort=order,
        axis=alt.Axis(title=None, ticks=False, domain=False, labelFontSize=13, labelLimit=240 if not narrow else 130),
    )
    x = alt.X(
        "usd:Q",
        scale=alt.Scale(zero=False, padding=56),
        axis=_below(alt, say("planner.month_axis"), money=True, narrow=narrow),
    )
    colour = alt.Color(
        "kind:N",
        scale=alt.Scale(
            domain=[say("planner.same_kind"), say("planner.other_kind")], range=[palette["compute"], palette["step"]]
        ),
        legend=alt.Legend(title=None, orient="top", labelColor=palette["text"], symbolType="square"),
    )
    tips = [
        alt.Tooltip("value:N", title=say("planner.tip_value")),
        alt.Tooltip("money:N", title=say("planner.tip_month")),
        alt.Tooltip("winner:N", title=say("planner.tip_winner")),
    ]
    base = alt.Chart(_data(alt, "bars"))
    drawn = alt.layer(
        base.transform_filter("isValid(datum.usd)")
        .mark_bar(height=_BAR - 10)
        .encode(y, x, x2="now:Q", color=colour, tooltip=tips),
        base.transform_filter("datum.side == 'low'")
        .mark_text(align="right", dx=-6, fontSize=12, color=palette["muted"])
        .encode(y, alt.X("text_at:Q"), text="value:N"),
        base.transform_filter("datum.side == 'high'")
        .mark_text(align="left", dx=6, fontSize=12, color=palette["muted"])
        .encode(y, alt.X("text_at:Q"), text="value:N"),
        alt.Chart(_data(alt, "now")).mark_rule(color=palette["text"], strokeWidth=1.4).encode(x="usd:Q"),
    ).properties(width=190 if narrow else 640, height=_BAR * len(bars))
    title = say("planner.tornado_title", model=answer.question.model)
    share = bars[0].high / ((bars[0].high + bars[0].low) / 2) - 1
    return vega.finished(
        _bare(
            drawn,
            vega.heading(
                [say("planner.tornado_about", share=f"{share:.0%}", now=format_usd(now))],
                (18, 14),
                narrow=narrow,
                offset=18,
            ).to_dict(),
        ),
        datasets={"bars": rows, "now": [{"usd": now}]},
        signals={"figure_title": vega.fitted(title, narrow=narrow)},
        theme=theme,
        language=language,
    )


def _data(alt: Any, name: str) -> Any:
    return alt.NamedData(name=name)


def _below(alt: Any, title: str, *, money: bool = False, narrow: bool = False) -> Any:
    return alt.Axis(
        title=title,
        grid=False,
        tickCount=3 if narrow else 5 if money else 7,
        labelExpr=("'$' + " if money else "") + "format(datum.value, ',.3~r')",
    )


def _bare(drawn: Any, title: dict[str, Any]) -> dict[str, Any]:
    found = drawn.to_dict()
    return {
        "title": title,
        **{key: value for key, value in found.items() if key not in ("$schema", "config", "datasets")},
    }


def _point(one: Candidate, groups: Mapping[str, str], others: str) -> dict[str, Any]:
    return {
        "tpot_ms": one.tpot_s * 1e3,
        "usd_per_month": one.usd_per_month,
        "group": one.accelerator if one.accelerator in groups else others,
        "devices": one.devices,
        "title": one.title,
        "usd": format_usd(one.usd_per_month),
        "token": format_time(one.tpot_s),
        "first": format_time(one.ttft_s),
        "sure": f"{one.p_slo:.0%}",
    }


def _marked(answer: Plan, say: Callable[..., str]) -> list[dict[str, Any]]:
    """The cheapest and the fastest, with what is written at them."""
    fastest = min(answer.front, key=lambda one: one.tpot_s)
    named = {id(answer.best): (answer.best, "cheapest"), id(fastest): (fastest, "fastest")}
    return [
        {
            "tpot_ms": one.tpot_s * 1e3,
            "usd_per_month": one.usd_per_month,
            "words": say(f"planner.{word}", what=f"{one.devices} x {one.accelerator}, {one.weights}"),
        }
        for one, word in named.values()
    ]


def _log_axis(values: Sequence[float], length: float, *, down: bool) -> Axis:
    """Axis with room beside its first and last value."""
    margin = (max(values) / min(values)) ** (24 / (length - 48)) if max(values) > 1.001 * min(values) else 1.5
    low, high = min(values) / margin, max(values) * margin
    return Axis(log=True, low=low, high=high, length=length, ticks=log_ticks(low, high, most=9), down=down)


def _span(front: Sequence[Candidate]) -> list[int]:
    devices = [one.devices for one in front]
    return [min(devices), max(*devices, min(devices) + 1)]


def _words(
    front: Sequence[Candidate],
    points: Sequence[dict[str, Any]],
    marked: Sequence[dict[str, Any]],
    across: Axis,
    up: Axis,
) -> list[dict[str, Any]]:
    """Names of the accelerators in their colours and of the two ends, each where it covers nothing."""

    def pixels(rows: Sequence[Mapping[str, Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        at = (np.array([row[name] for row in rows]) for name in ("tpot_ms", "usd_per_month"))
        return across.pixel(next(at)), up.pixel(next(at))

    low, high = _span(front)
    x, y = pixels(points)
    areas = np.interp([row["devices"] for row in points], [low, high], _AREAS)
    reach = np.sqrt(areas / np.pi)
    dots = np.column_stack([x - reach, y - reach, x + reach, y + reach])
    stairs = pixels(_stairs(front))
    corners = np.repeat(stairs[0], 2)[1:], np.repeat(stairs[1], 2)[:-1]
    labels = [
        Label("end", row["words"], "", beside(float(px), float(py), _FONT, 11.0), _FONT, rank=0)
        for row, px, py in zip(marked, *pixels(marked), strict=True)
    ]
    for group in dict.fromkeys(row["group"] for row in points):
        own = [i for i, row in enumerate(points) if row["group"] == group]
        # Right beside a dot of its own: further away it could be another's.
        places = np.concatenate([beside(x[i], y[i], _FONT, reach[i])[:16] for i in own])
        labels.append(Label(group, group, group, places, _FONT, bold=True, rank=0))
    obstacles = [
        Obstacle("dots", dots, clearance=8.0, near=2.0),
        Obstacle("stairs", polyline(*corners, across.length, _HEIGHT), hit=40.0, clearance=6.0, near=1.0),
    ]
    return [
        {"words": one.text, "group": one.label.role, "x": round(one.x, 1), "y": round(one.y, 1), "align": one.align}
        for one in place(labels, obstacles, across, up)
    ]


def _stairs(front: Sequence[Candidate]) -> list[dict[str, float]]:
    """Least cost for each time per token: the lower edge of the dots."""
    steps: list[dict[str, float]] = []
    for one in sorted(front, key=lambda one: (one.tpot_s, one.usd_per_month)):
        if not steps or one.usd_per_month < steps[-1]["usd_per_month"]:
            steps.append({"tpot_ms": one.tpot_s * 1e3, "usd_per_month": one.usd_per_month})
    return steps


def _called(variable: str, say: Callable[..., str]) -> str:
    kind, _, name = variable.partition(" ")
    return say(f"planner.name_{kind}", **({"name": name} if name else {}))


def _valued(variable: str, value: float) -> str:
    if variable in ("ttft", "tpot", "itl", "e2e"):
        return format_time(value)
    if variable.startswith("price "):
        return format_usd(value)
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _halves(bar: Bar, best: Candidate, say: Callable[..., str], language: str) -> list[dict[str, Any]]:
    ends = (
        (bar.low, bar.usd_low, bar.winner_low, bar.same_low),
        (bar.high, bar.usd_high, bar.winner_high, bar.same_high),
    )
    dollars = [usd for _, usd, *_ in ends if usd is not None]
    rows: list[dict[str, Any]] = []
    for value, usd, winner, same in ends:
        left = usd is not None and usd <= best.usd_per_month and usd == min(dollars)
        shown = _valued(bar.variable, value)
        rows.append(
            {
                "variable": _called(bar.variable, say),
                "usd": usd,
                "now": best.usd_per_month,
                "text_at": best.usd_per_month if usd is None else usd,
                "side": "low" if left else "high",
                "value": shown if usd is not None else say("planner.impossible", value=shown),
                "money": say("planner.none") if usd is None else format_usd(usd),
                "winner": told(winner, language) or say("planner.nothing"),
                "kind": say("planner.same_kind" if same else "planner.other_kind"),
            }
        )
    if rows[0]["side"] == rows[1]["side"]:  # both on one side: the texts must not lie on each other
        near, far = sorted(rows, key=lambda row: abs(row["text_at"] - best.usd_per_month))
        near["side"] = "high" if far["side"] == "low" else "low"
        near["text_at"] = best.usd_per_month
    return rows
