"""What a report says of a curve, section by section."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from batchline import __version__, chart
from batchline.curve_question import served_sentence
from batchline.report._picture import drawn_in, six_figures, svg
from batchline.report._told import Told, terms
from batchline.report.blocks import Figure, Items, Section, Table, Text
from batchline.strings import text
from batchline.units import format_rate, format_time, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchline.report._what_if import Change
    from batchline.sweep import Curve

__all__ = ["OfCurve", "on_the_curve"]


def _dollars(value: float | None) -> str:
    return "–" if value is None else format_usd(value)


def on_the_curve(point: Mapping[str, Any]) -> bool:
    """Whether a measured point can be drawn on it: of the curve's context, and with nothing against it."""
    return bool(point.get("near", True) and point.get("usable", True))


class OfCurve:
    """Sections of the report on one curve."""

    def __init__(self, curve: Curve, language: str, theme: str = "light") -> None:
        self.curve = curve
        self.language = language
        self.theme = theme
        self.told = Told(curve, language)

    def say(self, key: str, **fields: str) -> str:
        return text(key if "." in key else f"report.{key}", self.language, **fields)

    def answer(self, served: Mapping[str, Any] | None) -> Section:
        told = self.told
        rows = tuple((tile["name"], tile["value"], tile["below"]) for tile in told.tiles())
        blocks: list[Any] = [Text(told.headline(), strong=True), Text(f"{told.split()} {told.why()}")]
        blocks.append(Table(("", "", ""), rows, left=frozenset({0, 2}), strong=0))
        if served is not None:
            blocks.append(Text(served_sentence(served, self.language)))
        blocks += [Text(warning) for warning in told.warnings()]
        return Section(self.say("answer"), tuple(blocks))

    def plots(self, measured: Sequence[Mapping[str, Any]]) -> Section:
        drawn = six_figures(self.curve, language=self.language, theme=self.theme, measured=measured)
        return Section(self.say("page.ui_plots"), (drawn,))

    def breakdown(self) -> Section:
        at = self.told.at
        taken = {name: float(part[at]) for name, part in terms(self.curve).items()}
        total = sum(taken.values())
        rows = tuple(
            (self.say(f"chart.name_{name}"), format_time(seconds), f"{seconds / total:.0%}")
            for name, seconds in sorted(taken.items(), key=lambda row: -row[1])
        )
        columns = (self.say("part"), self.say("page.ui_step"), self.say("share"))
        look: dict[str, Any] = {"language": self.language, "theme": drawn_in(self.theme)}
        wide, narrow = (svg(chart.breakdown(self.curve, **look, narrow=one), self.theme) for one in (False, True))
        figure = Figure("breakdown", wide, self.told.split(), narrow)
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
        here = self.curve.over([float(point["batch"]) for point in points]).t_step
        rows = []
        for point, step in zip(points, here, strict=True):
            predicted = float(point.get("predicted_s", step))
            rows.append(
                (
                    str(point.get("name", "")),
                    f"{point['batch']:,.4g}",
                    f"{point.get('context', self.curve.context):,.0f}",
                    format_time(point["t_step_s"]),
                    format_time(predicted),
                    f"{predicted / point['t_step_s'] - 1:+.0%}",
                    ", ".join(point.get("hazards", ())),
                )
            )
        names = ("page.ui_batch", "page.ui_context", "chart.measured", "ours", "off", "measure.col_hazards")
        table = Table(("", *map(self.say, names)), tuple(rows), left=frozenset({0, 6}))
        return Section(self.say("page.ui_results"), (table,))

    def inputs(self, served: Mapping[str, Any] | None) -> Section:
        rows = tuple((row["what"], row["figures"], row["source"], row["date"]) for row in self.told.sources())
        d = self.curve.deployment
        asked = [("page.ui_context", f"{self.curve.context:,.0f}")]
        if served is not None:
            asked += [("page.ui_isl", f"{served['isl']:,.0f}"), ("page.ui_osl", f"{served['osl']:,.0f}")]
            many = "concurrency" if "concurrency" in served else "rate"
            asked.append((f"page.ui_{many}", f"{served[many]:,.4g}"))
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
