"""A calibration as a report: inputs, points with their hazards, fit, before and after, optimum, plots."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np

from batchline import __version__, sweep
from batchline.chart import theme as looks
from batchline.cli._calibration import answer
from batchline.cli._language import current, say, told
from batchline.report import SYSTEM, Report, coefficient_table, observation_table, six_figures
from batchline.report.blocks import Document, Items, Section, Table, Text
from batchline.units import format_usd

if TYPE_CHECKING:
    from batchline.cli._calibration import Found
    from batchline.sweep import Curve


def report(found: Found) -> Report:
    """Put a calibration into a report.

    Parameters
    ----------
    found : Found
        What was computed.

    Returns
    -------
    Report
        For `save`.
    """
    day = dt.datetime.now(tz=dt.UTC).date().isoformat()
    sections = [_answer(found), _plots(found), _optimum(found), _points(found), _fit(found), _inputs(found)]
    return Report(
        Document(
            title=say("calibrate.title", deployment=found.calibration.deployment.titled(current())),
            byline=f"Batchline {__version__}, {day}",
            language=current(),
            colours=looks.palette("light"),
            dark=looks.palette("dark"),
            font=looks.font(current()),
            sections=tuple(sections),
        )
    )


def _answer(found: Found) -> Section:
    warnings = tuple(Text(say("calibrate.warning", text=told(text)), strong=True) for text in found.warnings)
    return Section(
        say("calibrate.answer"), (*warnings, *(Text(line, strong=bool(style)) for line, style in answer(found)))
    )


def _plots(found: Found) -> Section:
    curve = _wide(found)
    near = [
        {"batch": one.batch, "t_step_s": one.seconds, "name": one.name}
        for one in found.calibration.observations
        if one.of != "ttft" and 0.8 < one.context / curve.context < 1.25
    ]
    text = say("calibrate.plots_text", context=f"{curve.context:,.0f}", count=len(near))
    drawn = six_figures(curve, language=current(), theme=SYSTEM, measured=near)
    return Section(say("calibrate.plots"), (Text(text), drawn))


def _wide(found: Found) -> Curve:
    """Calibrated curve over the batches of a plot."""
    batches = np.unique(np.round(sweep.plot_batches(found.after)))
    return found.after.over(batches)


def _optimum(found: Found) -> Section:
    def row(name: str, curve: Curve) -> tuple[str, ...]:
        best = curve.optimum
        cost = "-" if best.usd_per_mtok is None else format_usd(best.usd_per_mtok)
        return (name, f"{best.batch:,}", f"{best.t_step * 1e3:.2f} ms", cost, best.told(current()))

    rows = (row(say("calibrate.col_before"), found.before), row(say("calibrate.col_after"), found.after))
    headings = ("", say("curve.batch"), say("calibrate.col_step"), say("calibrate.per_mtok"), say("calibrate.why"))
    table = Table(headings, rows, left=frozenset({0, 4}), strong=1)
    return Section(say("calibrate.best_title", context=f"{found.after.context:,.0f}"), (table,))


def _points(found: Found) -> Section:
    notes = (*found.notes, *(say("calibrate.not_fitted", point=told(line)) for line in found.calibration.refused))
    said = Items(notes) if notes else Text(say("calibrate.no_hazard"))
    table = observation_table(found.calibration, current())
    return Section(say("calibrate.points_title"), (table, Text(say("calibrate.points_text")), said))


def _fit(found: Found) -> Section:
    table = coefficient_table(found.calibration, current())
    return Section(say("calibrate.fit_title"), (table, Text(say("calibrate.fit_text"))))


def _inputs(found: Found) -> Section:
    d = found.calibration.deployment
    rows = (
        ("model", say("calibrate.model", name=d.architecture.name, weights=d.weights_name, kv=d.kv)),
        ("accelerators", f"{d.count} x {d.accelerator.name} (tp {d.tp}, pp {d.pp}, dp {d.dp}, ep {d.ep})"),
        ("engine", f"{d.engine} {d.engine_version}".strip()),
        ("files", ", ".join(found.profile.files)),
        ("prior", found.calibration.prior_source),
    )
    named = tuple((say(f"calibrate.in_{name}"), text) for name, text in rows)
    return Section(say("calibrate.inputs"), (Table(("", ""), named, left=frozenset({0, 1})),))
