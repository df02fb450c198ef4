"""The report that one would mail: a question, its answer and everything behind it, in one file.

    from batchline.report import report

    report(curve).save("answer.html")       # one page that needs nothing else; .md writes Markdown with pictures beside

The sentences (`Told`) and the changes (`what_if`) are the page's too.

    blocks                                                headings, sentences, tables, pictures; HTML and Markdown
    _of_curve, _of_plan, _of_simulation, _of_calibration  what is said of each
    _told                                                 the sentences of a curve
    _what_if                                              what would change the answer
    _picture                                              charts as pictures
"""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from batchline import __version__, chart, sweep
from batchline.chart import theme as looks
from batchline.errors import InputError, UnknownNameError
from batchline.report._of_calibration import calibration_blocks, coefficient_table, observation_table
from batchline.report._of_curve import OfCurve, on_the_curve
from batchline.report._of_plan import plan_sections, sheet_blocks
from batchline.report._of_simulation import simulation_blocks, simulation_tiles
from batchline.report._picture import SYSTEM, drawn_in, six_figures, svg
from batchline.report._told import Told, terms
from batchline.report._what_if import Change, what_if
from batchline.report.blocks import Block, Document, Figure, figures_of, to_fragment, to_html, to_markdown
from batchline.strings import LANGUAGES, Sentence, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchline.planner import Plan
    from batchline.sweep import Curve

__all__ = [
    "SYSTEM",
    "THEMES",
    "Change",
    "Report",
    "Told",
    "as_html",
    "coefficient_table",
    "observation_table",
    "on_whole_batches",
    "report",
    "simulation_tiles",
    "six_figures",
    "terms",
    "what_if",
]

THEMES: Final = (SYSTEM, *looks.THEMES)
"""Themes of a report."""

_POINTS = 140


def on_whole_batches(curve: Curve) -> Curve:
    """Put a curve on whole batches that suit a plot and a table; the optimum and the limits stay.

    Parameters
    ----------
    curve : Curve
        What was computed.

    Returns
    -------
    Curve
        The same answer over about a hundred batches: evenly spaced on a logarithmic axis, powers of two, the batch to
        run, the capacity and the batch after it.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> wide = on_whole_batches(sweep.curve(Deployment.of("llama-3.1-8b", "h100"), 4096))
    >>> {1, 2, 64, 128} <= set(wide.batch.astype(int).tolist())
    True
    """
    last = float(sweep.plot_batches(curve)[-1])
    marks = [curve.optimum.batch, curve.capacity_batch, curve.capacity_batch + 1]
    doubled = 2.0 ** np.arange(np.floor(np.log2(last)) + 1)
    spread = np.concatenate(
        [np.geomspace(1.0, last, _POINTS), doubled, [mark for mark in marks if np.isfinite(mark)], [last]]
    )
    whole = np.unique(np.round(spread))
    return curve.over(whole[whole >= 1])


@dataclass(frozen=True)
class Report:
    """A report, ready to be written.

    Parameters
    ----------
    document : Document
        Its sections.
    """

    document: Document

    @property
    def html(self) -> str:
        """The report as one HTML page that needs nothing else."""
        return to_html(self.document)

    @property
    def markdown(self) -> str:
        """The report as Markdown; its pictures are files whose names begin with "report"."""
        return to_markdown(self.document, "report")

    @property
    def figures(self) -> dict[str, str]:
        """Its pictures: name and SVG."""
        return {
            figure.name: figure.svg
            for section in self.document.sections
            for block in section.blocks
            for figure in figures_of(block)
        }

    def save(self, path: str | Path) -> list[Path]:
        """Write it.

        Parameters
        ----------
        path : str or Path
            Ends in .html, or in .md for Markdown with its pictures beside it.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        InputError
            The name ends in something else, or the file cannot be written.
        """
        target = Path(path)
        if target.suffix.casefold() not in (".html", ".md"):
            raise InputError(Sentence("error.no_report", given=repr(target.name)), Sentence("error.report_ends"))
        try:
            if target.suffix.casefold() == ".html":
                target.write_text(self.html, encoding="utf-8")
                return [target]
            target.write_text(to_markdown(self.document, target.stem), encoding="utf-8")
            beside = [target.with_name(f"{target.stem}-{name}.svg") for name in self.figures]
            for file, svg in zip(beside, self.figures.values(), strict=True):
                file.write_text(svg, encoding="utf-8")
        except OSError as error:
            raise InputError(
                Sentence("error.not_written", given=repr(str(target)), reason=str(error.strerror))
            ) from error
        return [target, *beside]


def report(
    curve: Curve,
    *,
    language: str = "en",
    theme: str = SYSTEM,
    command: str = "",
    served: Mapping[str, Any] | None = None,
    within: float | None = None,
    max_batch: float | None = None,
    measured: Sequence[Mapping[str, Any]] = (),
    plan: Plan | None = None,
    flips: bool = False,
    today: dt.date | None = None,
) -> Report:
    """Put a question, its answer and everything behind it into a report.

    Parameters
    ----------
    curve : Curve
        What `batchline.sweep.curve` gave.
    language : str
        "en" or "ko".
    theme : str
        "light", "dark" or "system": as that of who reads it.
    command : str
        The command that asks the same question again.
    served : mapping, optional
        What `batchline curve --json` has under `serving`.
    within : float, optional
        As of the question [-].
    max_batch : float, optional
        As of the question [sequence].
    measured : sequence of mapping
        Measured points, as `measure.beside.Beside.to_dict` gives them: `batch` [sequence], `t_step_s` [s], and if known
        `name`, `context` [token], `predicted_s` [s], `hazards`, `usable` and `near`.
    plan : Plan, optional
        What `batchline.planner.plan` gave for the same model.
    flips : bool
        Say what would make another deployment of the plan the cheapest: some seconds.
    today : datetime.date, optional
        The day to write; by default today.

    Returns
    -------
    Report
        For `Report.save`, `Report.html` or `Report.markdown`.

    Raises
    ------
    UnknownNameError
        No such language or theme.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> made = report(sweep.curve(Deployment.of("llama-3.1-8b", "h100"), 4096), language="ko")
    >>> sorted(made.figures)
    ['breakdown', 'plot-1-1', 'plot-1-2', 'plot-1-3', 'plot-2-1', 'plot-2-2', 'plot-2-3']
    """
    for kind, name, known in (("language", language, LANGUAGES), ("theme", theme, THEMES)):
        if name not in known:
            raise UnknownNameError(kind, name, known)
    writer = OfCurve(on_whole_batches(curve), language, theme)
    sections = [
        writer.answer(served),
        writer.plots([one for one in measured if on_the_curve(one)]),
        writer.breakdown(),
        writer.batches(),
        writer.floors(),
        writer.changes(what_if(curve, within=within, max_batch=max_batch)),
        *([writer.measured(measured)] if measured else []),
        *(plan_sections(plan, language, theme, flips=flips) if plan is not None else []),
        writer.inputs(served),
        writer.unsure(),
        writer.again(command),
    ]
    day = (today or dt.datetime.now(tz=dt.UTC).date()).isoformat()
    document = Document(
        title=curve.titled(language),
        byline=text("report.byline", language, version=__version__, day=day),
        language=language,
        colours=looks.palette(drawn_in(theme)),
        dark=looks.palette("dark") if theme == SYSTEM else {},
        font=looks.font(language),
        sections=tuple(sections),
    )
    return Report(document)


def as_html(thing: Any, language: str = "", theme: str = "light") -> str:
    """Show a result as a notebook does, which asks by itself: a curve at the end of a cell is drawn.

    Parameters
    ----------
    thing : Curve, Plan, PriceSheet, Calibration or Result
        What was computed; the last is a simulation's.
    language : str
        "en" or "ko"; by default that of the environment variable BATCHLINE_LANGUAGE, else English.
    theme : str
        "light" or "dark".

    Returns
    -------
    str
        HTML that needs nothing else.

    Raises
    ------
    InputError
        Nothing is known of how to show it.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> from batchline.price_sheet import price_sheet
    >>> sheet = price_sheet(Deployment.of("llama-3.1-8b", "h100"), 1024, 256)
    >>> "cached input" in as_html(sheet)
    True
    """
    language = language or os.environ.get("BATCHLINE_LANGUAGE") or LANGUAGES[0]
    kind = type(thing).__name__ if type(thing).__module__.startswith("batchline.") else ""
    made: list[Block]
    if kind == "Curve":
        writer = OfCurve(on_whole_batches(thing), language)
        spec = chart.six_plots(writer.curve, language=language, theme=theme)
        made = [*writer.answer(None).blocks, Figure("six-plots", svg(spec), writer.told.headline())]
    elif kind == "Plan":
        made = [block for part in plan_sections(thing, language, theme, flips=False) for block in part.blocks]
    elif kind == "PriceSheet":
        made = sheet_blocks(thing, language, theme)
    elif kind == "Calibration":
        made = calibration_blocks(thing, language)
    elif kind == "Result":
        made = simulation_blocks(thing, language, theme)
    else:
        raise InputError(
            Sentence("error.not_shown", kind=f"{type(thing).__name__}"),
            Sentence("error.shown_are"),
        )
    return to_fragment(*made)
