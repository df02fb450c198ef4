"""The report that one would mail: a question, its answer and everything behind it, in one file.

    from batchline.report import report

    report(curve).save("answer.html")       # one page that needs nothing else; .md writes Markdown with pictures beside

The sentences (`Told`) and the changes (`what_if`) are the page's too.
"""

from __future__ import annotations

import datetime as dt
import math
import tempfile
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import __version__, chart, sweep
from batchline.errors import InputError, UnknownNameError
from batchline.report._told import Told, terms
from batchline.report._what_if import Change, what_if
from batchline.report.blocks import Document, Figure, Items, Section, Table, Text, to_fragment, to_html, to_markdown
from batchline.strings import LANGUAGES, text
from batchline.units import format_rate, format_time, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchline.planner import Plan
    from batchline.price_sheet import PriceSheet
    from batchline.sweep import Curve

__all__ = ["Change", "Report", "Told", "as_html", "on_whole_batches", "report", "terms", "what_if"]

_POINTS = 140
_THEMES = ("light", "dark")


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
            block.name: block.svg
            for section in self.document.sections
            for block in section.blocks
            if isinstance(block, Figure)
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
            raise InputError(f"{target.name!r} names no kind of report.", "It ends in .html or .md.")
        try:
            if target.suffix.casefold() == ".html":
                target.write_text(self.html, encoding="utf-8")
                return [target]
            target.write_text(to_markdown(self.document, target.stem), encoding="utf-8")
            beside = [target.with_name(f"{target.stem}-{name}.svg") for name in self.figures]
            for file, svg in zip(beside, self.figures.values(), strict=True):
                file.write_text(svg, encoding="utf-8")
        except OSError as error:
            raise InputError(f"{str(target)!r} cannot be written: {error.strerror}.") from error
        return [target, *beside]


def report(
    curve: Curve,
    *,
    language: str = "en",
    theme: str = "light",
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
        "light" or "dark".
    command : str
        The command that asks the same question again.
    served : mapping, optional
        What `batchline curve --json` has under `serving`.
    within : float, optional
        As of the question [-].
    max_batch : float, optional
        As of the question [sequence].
    measured : sequence of mapping
        Measured points: `batch` [sequence], `t_step_s` [s], and if known `name`.
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
    ['breakdown', 'six-plots']
    """
    for kind, name, known in (("language", language, LANGUAGES), ("theme", theme, _THEMES)):
        if name not in known:
            raise UnknownNameError(kind, name, known)
    look: dict[str, Any] = {"language": language, "theme": theme}
    wide = on_whole_batches(curve)
    writer = _Writer(wide, language)
    sections = [
        writer.answer(served),
        writer.plots(chart.six_plots(wide, **look, measured=measured)),
        writer.breakdown(chart.breakdown(wide, **look)),
        writer.batches(),
        writer.floors(),
        writer.changes(what_if(curve, within=within, max_batch=max_batch)),
        *([writer.measured(measured)] if measured else []),
        *(_Planned(language).sections(plan, theme, flips=flips) if plan is not None else []),
        writer.inputs(served),
        writer.unsure(),
        writer.again(command),
    ]
    table = tomllib.loads(resources.files("batchline").joinpath("data/chart_theme.toml").read_text(encoding="utf-8"))
    day = (today or dt.datetime.now(tz=dt.UTC).date()).isoformat()
    document = Document(
        title=curve.titled(language),
        byline=text("report.byline", language, version=__version__, day=day),
        language=language,
        theme=theme,
        colours=table[theme],
        font=table["font"][language],
        sections=tuple(sections),
    )
    return Report(document)


def _svg(spec: Any) -> str:
    with tempfile.TemporaryDirectory(prefix="batchline-") as folder:
        return chart.save(spec, Path(folder) / "chart.svg").read_text(encoding="utf-8")


def _dollars(value: float | None) -> str:
    return "–" if value is None else format_usd(value)


def as_html(thing: Any, language: str = "en", theme: str = "light") -> str:
    """Show a curve, a plan or a price sheet in a notebook.

    Parameters
    ----------
    thing : Curve, Plan or PriceSheet
        What was computed.
    language : str
        "en" or "ko".
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
    from batchline.planner import Plan  # noqa: PLC0415
    from batchline.price_sheet import PriceSheet  # noqa: PLC0415

    if isinstance(thing, sweep.Curve):
        wide = on_whole_batches(thing)
        writer = _Writer(wide, language)
        figure = Figure(
            "six-plots", _svg(chart.six_plots(wide, language=language, theme=theme)), writer.told.headline()
        )
        parts = [*writer.answer(None).blocks, figure]
    elif isinstance(thing, Plan):
        parts = [
            block for section in _Planned(language).sections(thing, theme, flips=False) for block in section.blocks
        ]
    elif isinstance(thing, PriceSheet):
        parts = [Text(thing.title, strong=True), _sheet(thing, language), *map(Text, thing.notes)]
    else:
        raise InputError(f"A {type(thing).__name__} is not shown here.", "A curve, a plan or a price sheet is.")
    return to_fragment(*parts)


def _sheet(sheet: PriceSheet, language: str) -> Table:
    columns = tuple(text(f"page.ui_prices_{name}", language) for name in ("cost", "price", "times", "why"))
    rows = tuple(
        (
            row.name,
            format_usd(row.usd_per_mtok_cost),
            format_usd(row.usd_per_mtok_price),
            f"{row.times_base:.3g}",
            row.why,
        )
        for row in sheet.rows
    )
    return Table(("", *columns), rows, left=frozenset({0, 4}))


class _Planned:
    """Sections on a plan."""

    def __init__(self, language: str) -> None:
        self.language = language

    def say(self, key: str, **fields: str) -> str:
        return text(key if "." in key else f"report.{key}", self.language, **fields)

    def sections(self, answer: Plan, theme: str, *, flips: bool) -> list[Section]:
        from batchline import chart_plan, sensitivity  # noqa: PLC0415

        if not answer.candidates:
            return [Section(self.say("plan"), (Text(str(answer.nearest or self.say("page.none"))),))]
        best = answer.best
        columns = ("deployment", "devices", "month", "input", "output", "page.tile_time", "first", "sure")
        rows = tuple(
            (
                one.title,
                f"{one.devices:,}",
                format_usd(one.usd_per_month),
                format_usd(one.usd_per_mtok_input),
                format_usd(one.usd_per_mtok_output),
                format_time(one.tpot_s),
                format_time(one.ttft_s),
                f"{one.p_slo:.0%}",
            )
            for one in answer.candidates
        )
        headline = self.say("plan_best", title=best.title, cost=format_usd(best.usd_per_month))
        blocks: list[Any] = [
            Text(headline, strong=True),
            Table(tuple(self.say(name) for name in columns), rows, strong=0),
            Figure("plan", _svg(chart_plan.pareto(answer, theme=theme)), headline),
            *(Text(warning) for warning in answer.warnings),
        ]
        found = [Section(self.say("plan"), tuple(blocks))]
        if flips:
            sentences = tuple(flip.sentence for flip in sensitivity.flips(answer))
            found.append(Section(self.say("flips"), (Items(sentences),)))
        return found


class _Writer:
    """Sections of the report on one curve."""

    def __init__(self, curve: Curve, language: str) -> None:
        self.curve = curve
        self.language = language
        self.told = Told(curve, language)

    def say(self, key: str, **fields: str) -> str:
        return text(key if "." in key else f"report.{key}", self.language, **fields)

    def answer(self, served: Mapping[str, Any] | None) -> Section:
        told = self.told
        rows = tuple((tile["name"], tile["value"], tile["below"]) for tile in told.tiles())
        blocks: list[Any] = [Text(told.headline(), strong=True), Text(f"{told.split()} {told.why()}")]
        blocks.append(Table(("", "", ""), rows, left=frozenset({0, 2}), strong=0))
        if served is not None:
            blocks.append(
                Text(
                    self.say(
                        "page.ui_served",
                        isl=f"{served['isl']:,.0f}",
                        osl=f"{served['osl']:,.0f}",
                        tpot=format_time(served["tpot_s"]),
                        ttft=format_time(served["ttft_s"]),
                        rate=format_rate(served["output_tokens_per_s"]),
                    )
                )
            )
        blocks += [Text(warning) for warning in told.warnings()]
        return Section(self.say("answer"), tuple(blocks))

    def plots(self, spec: Any) -> Section:
        alt = f"{self.say('page.ui_plots')}: {self.told.headline()}"
        return Section(self.say("page.ui_plots"), (Figure("six-plots", _svg(spec), alt),))

    def breakdown(self, spec: Any) -> Section:
        at = self.told.at
        taken = {name: float(part[at]) for name, part in terms(self.curve).items()}
        total = sum(taken.values())
        rows = tuple(
            (self.say(f"chart.name_{name}"), format_time(seconds), f"{seconds / total:.0%}")
            for name, seconds in sorted(taken.items(), key=lambda row: -row[1])
        )
        columns = (self.say("part"), self.say("page.ui_step"), self.say("share"))
        figure = Figure("breakdown", _svg(spec), self.told.split())
        return Section(self.say("page.ui_breakdown"), (figure, Table(columns, rows)))

    def batches(self) -> Section:
        curve, best, capacity = self.curve, self.curve.optimum.batch, self.curve.capacity_batch
        shown = [i for i, batch in enumerate(curve.batch) if math.log2(batch).is_integer() or batch in (best, capacity)]
        columns = [self.say(f"page.ui_{name}") for name in ("batch", "step")]
        if curve.prediction is not None:
            columns.append("90%")
        columns += [self.say(f"page.ui_{name}") for name in ("user", "total", "cost")]
        columns += ["MFU", "MBU", self.say("page.ui_bound_by")]
        rows = tuple(self._row(i) for i in shown)
        strong = next(k for k, i in enumerate(shown) if curve.batch[i] == best)
        table = Table(tuple(columns), rows, left=frozenset({len(columns) - 1}), strong=strong)
        return Section(self.say("by_batch"), (table,))

    def _row(self, i: int) -> tuple[str, ...]:
        curve = self.curve
        batch, step = float(curve.batch[i]), float(curve.t_step[i])
        cells = [f"{batch:,.0f}", format_time(step)]
        if curve.prediction is not None:
            low, high = float(curve.prediction.low[i]), float(curve.prediction.high[i])
            cells.append(f"{format_time(low)} – {format_time(high)}")
        cost = None if curve.usd_per_mtok is None else float(curve.usd_per_mtok[i])
        cells += [format_rate(1 / step), format_rate(batch / step), _dollars(cost)]
        cells += [f"{float(curve.mfu[i]):.0%}", f"{float(curve.mbu[i]):.0%}"]
        beyond = batch > curve.capacity_batch
        cells.append(self.say("page.ui_does_not_fit") if beyond else self.say(f"chart.name_{curve.bound_by[i]}"))
        return tuple(cells)

    def floors(self) -> Section:
        rows = tuple((fact["name"], fact["value"], fact["means"]) for fact in self.told.facts())
        return Section(self.say("page.ui_facts"), (Table(("", "", ""), rows, left=frozenset({0, 2})),))

    def changes(self, found: Sequence[Change]) -> Section:
        names = ("change", "page.ui_batch", "page.ui_step", "page.ui_cost", "times", "page.tile_binds")
        columns = tuple(self.say(name) for name in names)
        rows = tuple(
            (
                self.say(f"if_{one.what}", **one.fields),
                "–" if one.batch is None else f"{one.batch:,}",
                "–" if one.t_step is None else format_time(one.t_step),
                _dollars(one.usd_per_mtok),
                "–" if one.times is None else f"{one.times:.2f}x",
                self.say(f"page.binds_{one.binds}") if one.binds else one.refused,
            )
            for one in found
        )
        table = Table(columns, rows, left=frozenset({0, 5}))
        return Section(self.say("changes"), (Text(self.say("changes_means")), table))

    def measured(self, points: Sequence[Mapping[str, Any]]) -> Section:
        predicted = self.curve.over([float(point["batch"]) for point in points]).t_step
        rows = tuple(
            (
                str(point.get("name", "")),
                f"{point['batch']:,.4g}",
                format_time(point["t_step_s"]),
                format_time(float(step)),
                f"{float(step) / point['t_step_s'] - 1:+.0%}",
            )
            for point, step in zip(points, predicted, strict=True)
        )
        columns = ("", self.say("page.ui_batch"), self.say("chart.measured"), self.say("ours"), self.say("off"))
        return Section(self.say("page.ui_results"), (Table(columns, rows),))

    def inputs(self, served: Mapping[str, Any] | None) -> Section:
        rows = tuple((row["what"], row["figures"], row["source"], row["date"]) for row in self.told.sources())
        d = self.curve.deployment
        asked = [("page.ui_context", f"{self.curve.context:,.0f}")]
        if served is not None:
            asked += [("page.ui_isl", f"{served['isl']:,}"), ("page.ui_osl", f"{served['osl']:,}")]
        if self.curve.step_limit is not None:
            asked.append(("step_limit", format_time(self.curve.step_limit)))
        asked.append(("page.ui_layout", f"TP {d.tp}, PP {d.pp}, DP {d.dp}, EP {d.ep}"))
        asked.append(("page.ui_kv", d.kv))
        asked.append(("page.ui_reading", self.say(f"page.ui_reading_{self.curve.reading}")))
        weights = self.say("asked" if d.weights else "checkpoint")
        ours = (
            *((self.say(name), figure, self.say("asked"), "") for name, figure in asked),
            (self.say("page.ui_weights"), d.weights_name, weights, ""),
        )
        columns = tuple(self.say(f"page.ui_{name}") for name in ("what", "figures", "source", "date"))
        return Section(self.say("page.ui_sources"), (Table(columns, (*ours, *rows), left=frozenset(range(4))),))

    def unsure(self) -> Section:
        """What the numbers rest on and what could be wrong with them."""
        curve, d = self.curve, self.curve.deployment
        items = [self.told.basis()]
        ends = self.told.interval()
        if ends is not None:
            show = format_usd if curve.optimum.usd_per_mtok is not None else format_time
            items.append(self.say("unsure_interval", low=show(ends[0]), high=show(ends[1])))
        if curve.prediction is not None:
            unseen = curve.prediction.provenance.unseen
            if unseen:
                levels = (level.split(" ", 1) for level in unseen)
                names = ", ".join(self.say(f"prior.level_{kind}", name=name) for kind, name in levels)
                items.append(self.say("unsure_unseen", names=names))
            items.append(self.say("unsure_bound", time=format_time(float(curve.prediction.bound[self.told.at]))))
        if d.price is not None and d.price.n > 1:
            items.append(self.say("unsure_price", low=f"${d.price.low:,.2f}", high=f"${d.price.high:,.2f}"))
        items.append(self.say("unsure_context"))
        items.append(self.say("unsure_quality"))
        items += self.told.warnings()
        return Section(self.say("unsure"), (Items(tuple(items)),))

    def again(self, command: str) -> Section:
        blocks: list[Any] = [Text(command, code=True)] if command else []
        blocks.append(Text(self.say("made_with", version=__version__)))
        return Section(self.say("again"), tuple(blocks))
