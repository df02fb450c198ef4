"""A simulation as pictures: what ran, waited and filled the cache over time, and how long requests took.

Vega-Lite through Altair, in the look of `batchline.chart`, whose `save` writes them as PNG, SVG or an offline page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.chart.axis import Axis, linear_ticks
from batchline.chart.scene import FONT_SIZE, Line, Scene
from batchline.errors import InputError
from batchline.strings import Sentence, text
from batchline.units import format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from batchline.simulate import Result

__all__ = ["over_time", "times"]

_WIDTH, _HEIGHT = 520, 190
_CELLS = 300  # more would be less than a pixel each

_PANELS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("requests", (("running", "compute"), ("waiting", "weights"))),
    ("kv_use", (("kv_use", "kv"),)),
    ("tokens", (("prompt_tokens_per_s", "prefill"), ("output_tokens_per_s", "step"))),
    ("busy", (("busy", "communication"),)),
)
"""Panels: name, and the lines in each: column of the series, colour."""

_SHARES = {"kv_use", "busy", "times"}
"""Panels whose axis is a share."""
_AS_IT_IS = "format(datum.value, ',~f')"
"""A tick in full: an axis that is given a format without digits rounds to those of ticks that it would have chosen."""

_LINES: tuple[tuple[str, str], ...] = (("ttft", "compute"), ("e2e", "step"))


def over_time(
    result: Result,
    *,
    log: Mapping[str, Sequence[float]] | None = None,
    theme: str = "light",
    language: str = "en",
    narrow: bool = False,
) -> dict[str, Any]:
    """Draw requests, KV cache, tokens and busy engines over time.

    Parameters
    ----------
    result : Result
        What `batchline.simulate.simulate` gave.
    log : mapping, optional
        What was logged in reality, drawn as dots: "time_s" [s], and columns of `Result.series` by name.
    theme, language : str
        "light" or "dark"; "en" or "ko".
    narrow : bool
        For a phone: one panel below the other.

    Returns
    -------
    dict
        Vega-Lite specification.

    Raises
    ------
    InputError
        The log has no time, or columns of other lengths.
    """
    from batchline.chart import vega  # noqa: PLC0415  (Altair takes a third of a second)

    seen = {name: np.asarray(values, dtype=float) for name, values in (log or {}).items()}
    if seen and ("time_s" not in seen or len({len(values) for values in seen.values()}) != 1):
        raise InputError(Sentence("error.log_to_draw"))
    shown = [panel for panel in _PANELS if panel[0] != "kv_use" or result.kv_peak is not None or "kv_use" in seen]
    datasets: dict[str, list[dict[str, Any]]] = {}
    plots = []
    for name, lines in shown:
        datasets[f"{name}_lines"] = _line_rows(result, lines, language)
        datasets[f"{name}_dots"] = [
            {"time_s": float(t), "value": float(v), "line": _label(column, language)}
            for column, _ in lines
            if column in seen
            for t, v in zip(seen["time_s"], seen[column], strict=True)
        ]
        frame = _frame(datasets[f"{name}_lines"] + datasets[f"{name}_dots"], vega.NARROW if narrow else _WIDTH)
        datasets |= _names(name, datasets[f"{name}_lines"] if len(lines) > 1 else [], *frame)
        plots.append(_panel(name, lines, theme, language, frame, dots=bool(datasets[f"{name}_dots"])))
    dots = [text("simulate.logged", language)] if seen else []
    drawn = _apart(vega.figure(plots, 1 if narrow else 2, [result.sentence(language), *dots], narrow=narrow))
    title = text(
        "simulate.over_time_title",
        language,
        requests=f"{result.requests:,}",
        duration=format_time(result.duration_s),
        speed=format_rate(result.requests_per_s, "req/s"),
        tokens=format_rate(result.output_tokens_per_s),
    )
    return vega.finished(
        drawn,
        datasets=datasets,
        signals={"figure_title": vega.fitted(title, narrow=narrow)},
        theme=theme,
        language=language,
    )


def _label(column: str, language: str) -> str:
    return text(f"simulate.line_{column}", language)


def _apart(figure: dict[str, Any]) -> dict[str, Any]:
    """Let every panel have colours of its own."""
    return {**figure, "resolve": {"scale": {"color": "independent"}}}


def _line_rows(result: Result, lines: Sequence[tuple[str, str]], language: str) -> list[dict[str, Any]]:
    series = result.series
    time = series.time_s
    group = int(np.ceil(len(time) / _CELLS))
    rows = []
    for column, _ in lines:
        label = _label(column, language)
        for t, value in zip(_coarse(time, group), _coarse(getattr(series, column), group), strict=True):
            if np.isfinite(value):
                rows.append({"time_s": float(t), "value": float(value), "line": label})
    return rows


def _coarse(values: NDArray[np.float64], group: int) -> NDArray[np.float64]:
    starts = np.arange(0, len(values), group)
    return np.add.reduceat(values, starts) / np.diff(np.append(starts, len(values)))


def _frame(rows: Sequence[Mapping[str, Any]], width: float) -> tuple[Axis, Axis]:
    """Axes of a panel: over its times, and from 0 to a round value above what it shows."""
    time, value = (np.array([row[name] for row in rows] or [0.0]) for name in ("time_s", "value"))
    low, high = float(time.min()), max(float(time.max()), float(time.min()) + 1e-9)
    step = linear_ticks(0.0, max(float(value.max()), 1e-9))
    top = step[-1] if step[-1] >= value.max() * 0.999 else 2 * step[-1] - step[-2]
    across = Axis(
        log=False, low=low, high=high, length=width, ticks=linear_ticks(low, high, 7 if width >= _WIDTH else 4)
    )
    return across, Axis(log=False, low=0.0, high=top, length=_HEIGHT, ticks=linear_ticks(0.0, top), down=True)


def _names(panel: str, rows: Sequence[Mapping[str, Any]], x: Axis, y: Axis) -> dict[str, list[dict[str, Any]]]:
    """Names of the lines, each where it covers nothing, and thin lines to them from where they found no room beside."""
    lines = []
    for name in dict.fromkeys(row["line"] for row in rows):
        own = [row for row in rows if row["line"] == name]
        time, value = (np.array([row[field] for row in own]) for field in ("time_s", "value"))
        lines.append(Line(name, time, value, text=name))
    found = Scene(name="", title="", subtitle="", x=x, y=y, y_title="", lines=lines).datasets()
    kinds = ("labels", "leaders")
    return {f"{panel}_{kind}": [{"line": row["role"], **row} for row in found[f"p_{kind}"]] for kind in kinds}


def _panel(
    name: str,
    lines: Sequence[tuple[str, str]],
    theme: str,
    language: str,
    frame: tuple[Axis, Axis],
    *,
    dots: bool,
    x_title: str = "seconds",
) -> dict[str, Any]:
    import altair as alt  # noqa: PLC0415

    from batchline.chart import theme as looks  # noqa: PLC0415

    palette, (across, up) = looks.palette(theme), frame
    x = alt.X(
        "time_s:Q",
        axis=alt.Axis(
            title=text(f"simulate.axis_{x_title}", language), grid=False, labelExpr=_AS_IT_IS, values=across.ticks
        ),
        scale=alt.Scale(domain=[across.low, across.high], nice=False),
    )
    y = alt.Y(
        "value:Q",
        axis=alt.Axis(
            title=text(f"simulate.axis_{name}", language),
            titleAngle=0,
            titleAlign="left",
            titleAnchor="end",
            titleBaseline="bottom",
            titleX=-34,
            titleY=-7,
            labelExpr="format(datum.value, '.1~%')" if name in _SHARES else _AS_IT_IS,
            values=up.ticks,
        ),
        scale=alt.Scale(domain=[up.low, up.high], nice=False),
    )
    domain = [_label(column, language) for column, _ in lines]
    scale = alt.Scale(domain=domain, range=[palette[role] for _, role in lines])
    colour = alt.Color("line:N", scale=scale, legend=None)
    tips = [
        alt.Tooltip("line:N"),
        alt.Tooltip("time_s:Q", title=text("simulate.axis_seconds", language), format=",.1f"),
        alt.Tooltip("value:Q", format=",.4~r"),
    ]
    line = alt.Chart(alt.NamedData(name=f"{name}_lines")).mark_line(strokeWidth=2, clip=True)
    layers = [line.encode(x, y, colour, tooltip=tips)]
    if dots:
        points = alt.Chart(alt.NamedData(name=f"{name}_dots")).mark_circle(size=16, opacity=0.55, clip=True)
        layers.insert(0, points.encode(x, y, colour))
    px, py = alt.X("x:Q", scale=None), alt.Y("y:Q", scale=None)
    words = alt.Chart(alt.NamedData(name=f"{name}_labels")).encode(px, py, text="line:N")
    leaders = alt.Chart(alt.NamedData(name=f"{name}_leaders")).mark_rule(strokeWidth=1)
    look: dict[str, Any] = {
        "fontSize": FONT_SIZE,
        "fontWeight": "bold",
        "baseline": "middle",
        "align": alt.ExprRef("datum.align"),
    }
    rim: dict[str, Any] = {"stroke": palette["background"], "strokeWidth": 4, "strokeJoin": "round"}
    layers.append(leaders.encode(px, py, x2="x2", y2="y2", color=colour))
    layers += [words.mark_text(**look, **rim), words.mark_text(**look).encode(color=colour)]
    found = alt.layer(*layers).properties(width=across.length, height=_HEIGHT).to_dict()
    return {key: value for key, value in found.items() if key not in ("$schema", "config", "datasets")}


def times(
    result: Result,
    *,
    log: Mapping[str, Sequence[float]] | None = None,
    theme: str = "light",
    language: str = "en",
    narrow: bool = False,
) -> dict[str, Any]:
    """Draw how many requests were through with the queue, the first and the last token after which time.

    Parameters
    ----------
    result : Result
        What `batchline.simulate.simulate` gave.
    log : mapping, optional
        Logged times by metric ("ttft", "e2e"), drawn as dots [s].
    theme, language : str
        "light" or "dark"; "en" or "ko".
    narrow : bool
        For a phone: one panel below the other.

    Returns
    -------
    dict
        Vega-Lite specification.
    """
    from batchline.chart import vega  # noqa: PLC0415

    shares = np.concatenate([np.linspace(0.1, 99.0, 200), np.linspace(99.1, 100.0, 10)])
    rows = [
        {
            "time_s": max(result.percentile(metric, float(share)), 0.0),
            "value": float(share) / 100,
            "line": _label(metric, language),
        }
        for metric, _ in _LINES
        for share in shares
    ]
    dots = [
        {"time_s": float(value), "value": float(place), "line": _label(metric, language)}
        for metric, _ in _LINES
        if log and metric in log
        for value, place in _places(log[metric])
    ]
    frame = _frame(rows + dots, vega.NARROW if narrow else _WIDTH)
    panel = _panel("times", _LINES, theme, language, frame, dots=bool(dots), x_title="after")
    ttft, e2e = (
        {"p50": format_time(result.times[metric].p50), "p99": format_time(result.times[metric].p99)}
        for metric in ("ttft", "e2e")
    )
    title = text("simulate.times_title", language, **ttft)
    below = [text("simulate.times_below", language, **e2e), *([text("simulate.logged", language)] if dots else [])]
    drawn = _apart(vega.figure([panel], 1, below, narrow=narrow))
    return vega.finished(
        drawn,
        datasets={"times_lines": rows, "times_dots": dots, **_names("times", rows, *frame)},
        signals={"figure_title": vega.fitted(title, narrow=narrow)},
        theme=theme,
        language=language,
    )


def _places(values: Sequence[float]) -> list[tuple[float, float]]:
    ordered = np.sort(np.asarray(values, dtype=float))
    places = (np.arange(len(ordered)) + 0.5) / max(len(ordered), 1)
    step = max(len(ordered) // _CELLS, 1)
    return list(zip(ordered[::step].tolist(), places[::step].tolist(), strict=True))
