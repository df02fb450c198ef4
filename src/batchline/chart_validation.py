"""Predictions against measurements as pictures: every row, the error of each model, and how often intervals hold.

Vega-Lite through Altair, in the look of `batchline.chart`, whose `save` writes them as PNG, SVG or an offline page.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import validate
from batchline.errors import InputError
from batchline.strings import Sentence, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.validate import Outcome

__all__ = ["against_measured"]

_SIZE = 380
_GROUPS = 12  # more bars would not be read
_FACTOR = 1.25
_COLOURS = ("compute", "weights", "kv", "step", "communication", "overhead", "limit", "memory")
_SECONDS = "datum.value >= 1 ? format(datum.value, '~r') + ' s' : format(datum.value * 1000, '~r') + ' ms'"


def against_measured(outcomes: Sequence[Outcome], *, theme: str = "light", language: str = "en") -> dict[str, Any]:
    """Draw predicted against measured TPOT and TTFT, the error of each model, and the coverage of the intervals.

    Parameters
    ----------
    outcomes : sequence of Outcome
        As `batchline.validate.predict` gives them.
    theme : str
        "light" or "dark".
    language : str
        "en" or "ko".

    Returns
    -------
    dict
        Vega-Lite specification.

    Raises
    ------
    InputError
        No row has both a prediction and a measurement.
    """
    from batchline.chart import theme as looks  # noqa: PLC0415
    from batchline.chart import vega  # noqa: PLC0415  (Altair takes a third of a second)

    kept = [one for one in outcomes if one.point and one.point.tpot_s and not math.isnan(one.tpot_s)]
    if not kept:
        raise InputError(Sentence("error.no_measured_tpot"), "", Sentence("error.fill_step"))
    summary = validate.summary(kept)
    palette = looks.palette(theme)
    engines = [name for name, _ in Counter(one.point.engine for one in kept if one.point).most_common(len(_COLOURS))]
    datasets: dict[str, list[dict[str, Any]]] = {}
    plots = []
    for of in ("tpot", "ttft"):
        rows = _rows(kept, of)
        if rows:
            datasets[f"{of}_rows"], datasets[f"{of}_lines"] = rows, _guides(rows)
            plots.append(_scatter(of, _ticks(rows), engines, palette, language))
    datasets["error_rows"] = _errors(summary)
    plots.append(_bars("error", text("validate.plot_error", language), "model", "kv", palette, rule=None))
    datasets["coverage_rows"] = _coverage(summary, language)
    plots.append(_bars("coverage", text("validate.plot_coverage", language), "new", "compute", palette, rule=0.9))
    figure = vega.figure(plots, 2, [text("validate.plot_lines", language)])
    figure = {**figure, "resolve": {"scale": {"color": "independent", "x": "independent", "y": "independent"}}}
    title = text(
        "validate.plot_title",
        language,
        rows=f"{len(kept):,}",
        tpot=f"{summary['tpot']['median']:.1%}",
        held=f"{summary['tpot']['coverage']:.0%}",
    )
    return vega.finished(figure, datasets=datasets, signals={"figure_title": title}, theme=theme, language=language)


def _rows(outcomes: Sequence[Outcome], of: str) -> list[dict[str, Any]]:
    rows = []
    for one in outcomes:
        measured, predicted = getattr(one.point, f"{of}_s"), getattr(one, f"{of}_s")
        if one.point is not None and measured and np.isfinite(predicted):
            case = one.point.case
            what = f"{case.model}, {case.accelerator}, {case.weights}, {case.layout}"
            load = f"{one.point.isl:,.0f} in, {one.point.osl:,.0f} out, {one.point.concurrency:,.0f} in flight"
            rows.append(
                {
                    "measured": float(measured),
                    "predicted": float(predicted),
                    "engine": one.point.engine,
                    "what": what,
                    "load": load,
                    "row": one.row,
                }
            )
    return rows


def _guides(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Where predicted is measured, and 1.25 times beside it."""
    values = [row[name] for row in rows for name in ("measured", "predicted")]
    low, high = min(values) / 1.3, max(values) * 1.3
    return [
        {"measured": at, "predicted": at * factor, "line": f"{factor:g}"}
        for factor in (1.0, _FACTOR, 1 / _FACTOR)
        for at in (low, high)
    ]


def _ticks(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Round numbers of an axis in decades: of its own choice Vega names 7, 8 and 9, and no room is left for 10."""
    values = [row[name] for row in rows for name in ("measured", "predicted")]
    low, high = min(values), max(values)
    between = (1, 2, 5) if high < 100 * low else (1, 3) if high < 10_000 * low else (1,)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    return [float(f"{digit}e{decade}") for decade in decades for digit in between]


def _errors(summary: dict[str, Any]) -> list[dict[str, Any]]:
    found = [(group["tpot"]["mape"], name, group["tpot"]["n"]) for name, group in summary["by"]["model"].items()]
    return [{"model": name, "value": value, "n": n} for value, name, n in sorted(found, reverse=True)[:_GROUPS]]


def _coverage(summary: dict[str, Any], language: str) -> list[dict[str, Any]]:
    rows = []
    for name, group in summary["by"]["novelty"].items():
        for of in ("tpot", "ttft"):
            if group[of]:
                label = f"{text(f'validate.split_{name}', language)}, {of.upper()}"
                rows.append({"new": label, "value": group[of]["coverage"], "n": group[of]["n"]})
    return rows


def _plain(chart: Any, width: int, height: int) -> dict[str, Any]:
    found = chart.properties(width=width, height=height).to_dict()
    return {key: value for key, value in found.items() if key not in ("$schema", "config", "datasets")}


def _scatter(
    of: str, ticks: Sequence[float], engines: Sequence[str], palette: dict[str, str], language: str
) -> dict[str, Any]:
    import altair as alt  # noqa: PLC0415

    scale = alt.Scale(type="log", nice=False)
    title = text("validate.plot_predicted", language, what=of.upper())
    axis = alt.Axis(
        title=title,
        titleAngle=0,
        titleAlign="left",
        titleAnchor="end",
        titleBaseline="bottom",
        titleX=-34,
        titleY=-7,
        labelExpr=_SECONDS,
        values=ticks,
    )
    x = alt.X(
        "measured:Q",
        scale=scale,
        axis=alt.Axis(title=text("validate.plot_measured", language), labelExpr=_SECONDS, values=ticks, grid=False),
    )
    y = alt.Y("predicted:Q", scale=scale, axis=axis)
    colours = alt.Scale(domain=list(engines), range=[palette[role] for role in _COLOURS[: len(engines)]])
    legend = alt.Legend(title=None, orient="bottom-right", labelColor=palette["text"], symbolType="circle")
    tips = [alt.Tooltip(name) for name in ("what:N", "load:N", "engine:N", "row:Q")]
    times = [alt.Tooltip(name, format=".3~s") for name in ("measured:Q", "predicted:Q")]
    dots = alt.Chart(alt.NamedData(name=f"{of}_rows")).mark_circle(size=18, opacity=0.5)
    dots = dots.encode(x, y, alt.Color("engine:N", scale=colours, legend=legend), tooltip=[*tips, *times])
    lines = alt.Chart(alt.NamedData(name=f"{of}_lines")).mark_line(color=palette["muted"], clip=True)
    dash = alt.StrokeDash(
        "line:N", scale=alt.Scale(domain=["1", "1.25", "0.8"], range=[[], [4, 4], [4, 4]]), legend=None
    )
    return _plain(alt.layer(lines.encode(x, y, dash), dots), _SIZE, _SIZE)


def _bars(
    key: str, title: str, field: str, role: str, palette: dict[str, str], *, rule: float | None
) -> dict[str, Any]:
    import altair as alt  # noqa: PLC0415

    data = alt.NamedData(name=f"{key}_rows")
    x = alt.X(
        "value:Q",
        scale=alt.Scale(domainMin=0, domainMax=1 if rule else alt.Undefined, nice=True),
        axis=alt.Axis(title=title, format="%", tickCount=5),
    )
    y = alt.Y(f"{field}:N", sort=None, axis=alt.Axis(title=None, labelLimit=150, ticks=False))
    bars = alt.Chart(data).mark_bar(color=palette[role], height={"band": 0.7})
    value, count = alt.Tooltip("value:Q", format=".1%"), alt.Tooltip("n:Q", title="rows", format=",")
    shown = "format(datum.value, '.0%') + ' (' + format(datum.n, ',') + ')'"
    counts = alt.Chart(data).mark_text(align="left", dx=4, color=palette["muted"], fontSize=10)
    layers = [
        bars.encode(x, y, tooltip=[alt.Tooltip(f"{field}:N"), value, count]),
        counts.transform_calculate(shown=shown).encode(x, y, alt.Text("shown:N")),
    ]
    if rule:
        line = alt.Chart(data).mark_rule(color=palette["muted"], strokeDash=[4, 4])
        layers.append(line.encode(alt.XDatum(rule)))
    return _plain(alt.layer(*layers), _SIZE, _SIZE)
