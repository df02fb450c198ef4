"""What the page is answered: the command line's figures as columns, and the sentences around them in two languages."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import accelerator as accelerators
from batchline import architecture, chart, precision, readings, sweep
from batchline import price as prices
from batchline.cli.show import _accelerator_record, _model_record
from batchline.strings import text
from batchline.units import format_bytes, format_count, format_rate, format_time, format_tokens, format_usd
from batchline.web import live
from batchline.web.question import curve_of, model_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from batchline.architecture import Architecture
    from batchline.sweep import Curve
    from batchline.web.question import CurveQuery

__all__ = [
    "accelerator_record",
    "accelerator_records",
    "choices",
    "curve_reply",
    "drawn",
    "explored",
    "model_record",
    "model_records",
    "price_records",
    "served",
]

_POINTS = 140
_PLOTS = ("1.1", "1.2", "1.3", "2.1", "2.2", "2.3")


# -- the catalogue -------------------------------------------------------------------------------------------------


def model_records() -> list[dict[str, Any]]:
    """Models of the catalogue, with what a picker shows."""
    records = []
    for row in architecture.catalogue():
        model = model_of(row["name"])
        records.append(
            {
                **row,
                "total_params": model.total_params,
                "active_params": model.active_params,
                "max_context": model.max_context,
                "weights": model.weight_format,
            }
        )
    return records


def accelerator_records() -> list[dict[str, Any]]:
    """Accelerators of the catalogue, with the keys of `batchline list accelerators --json` and a few more."""
    quoted = set(prices.names())
    return [
        {
            "name": device.name,
            "label": device.label,
            "vendor": device.vendor,
            "generation": device.generation,
            "memory_bytes": device.memory,
            "bandwidth": device.bandwidth,
            **{f"{fmt}_flops": device.flops.get(fmt) for fmt in ("bf16", "fp8", "int8", "fp4")},
            "link_bandwidth": device.link_bandwidth,
            "scale_up_domain": device.scale_up_domain,
            "tdp_w": device.tdp,
            "aliases": list(device.aliases),
            "usd_per_device_hour": prices.load(device.name).median if device.name in quoted else None,
            "source": device.source,
            "date": device.date,
        }
        for device in accelerators.catalogue()
    ]


def price_records() -> list[dict[str, Any]]:
    """Rental prices with dates and sources, as `batchline list prices --json` has them."""
    return [dataclasses.asdict(quote) for quote in prices.quotes()]


def choices() -> dict[str, list[str]]:
    """What may be written in a question: number formats, engines, readings."""
    return {
        "weights": precision.names(),
        "kv": precision.kv_names(),
        "engine": sorted(name for kind, name in _levels() if kind == "engine"),
        "reading": list(readings.READINGS),
    }


def _levels() -> set[tuple[str, str]]:
    from batchline import prior  # noqa: PLC0415

    return {(kind, name) for _, kind, name in prior.load().levels}


# -- one curve -----------------------------------------------------------------------------------------------------


def served(curve: Curve, isl: float, osl: float) -> dict[str, Any]:
    """Steady state at the batch to run, with the keys of `batchline curve --json`."""
    state = readings.steady(curve.deployment, isl, osl, curve.optimum.batch)
    numbers = ("running_batch", "tpot_s", "ttft_s", "e2e_s", "requests_per_s", "output_tokens_per_s")
    return {
        "isl": isl,
        "osl": osl,
        "concurrency": curve.optimum.batch,
        **{name: float(getattr(state, name)) for name in numbers},
        "saturated_by": state.saturated_by,
    }


def curve_reply(question: CurveQuery) -> dict[str, Any]:
    """Give what `batchline curve --json` prints."""
    curve = curve_of(question)
    reply = curve.to_dict()
    if question.isl is not None and question.osl is not None:
        reply["serving"] = served(curve, question.isl, question.osl)
    return reply


def drawn(curve: Curve) -> Curve:
    """Put a curve on whole batches that suit a plot and a readout; the optimum and the limits stay."""
    wide = sweep.plot_batches(curve)
    last = float(wide[-1])
    marks = [curve.optimum.batch, curve.capacity_batch, curve.capacity_batch + 1]
    doubled = 2.0 ** np.arange(np.floor(np.log2(last)) + 1)
    spread = np.concatenate(
        [np.geomspace(1.0, last, _POINTS), doubled, [mark for mark in marks if np.isfinite(mark)], [last]]
    )
    whole = np.unique(np.round(spread))
    found = readings.steps(curve.deployment, curve.context, whole[whole >= 1], curve.reading)
    return dataclasses.replace(curve, **{field.name: getattr(found, field.name) for field in dataclasses.fields(found)})


def _columns(curve: Curve) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "batch": [int(batch) for batch in curve.batch],
        "t_step_s": live.six_digits(curve.t_step),
        "t_compute_s": live.six_digits(curve.t_compute),
        "t_weights_s": live.six_digits(curve.t_weights),
        "t_kv_s": live.six_digits(curve.t_kv),
        "output_tokens_per_s": live.six_digits(curve.batch / curve.t_step),
        "usd_per_mtok": None if curve.usd_per_mtok is None else live.six_digits(curve.usd_per_mtok),
        "mfu": live.six_digits(curve.mfu),
        "mbu": live.six_digits(curve.mbu),
        "bound_by": curve.bound_by,
        "terms": {name: live.six_digits(part) for name, part in _terms(curve).items()},
    }
    if curve.prediction is not None:
        columns |= {"low_s": live.six_digits(curve.prediction.low), "high_s": live.six_digits(curve.prediction.high)}
    return columns


def _terms(curve: Curve) -> Mapping[str, NDArray[np.float64]]:
    """Parts that add up to the step; in the floors what overlaps is counted once."""
    if curve.prediction is not None:
        return curve.prediction.terms
    hidden = curve.t_weights if curve.reading == "serial" else curve.t_memory
    return {
        "weights": curve.t_weights,
        "kv": curve.t_kv,
        "compute_beyond": np.maximum(0.0, curve.t_compute - hidden),
    }


class _Told:
    """Sentences of one curve in one language."""

    def __init__(self, curve: Curve, language: str) -> None:
        self.curve = curve
        self.language = language
        self.at = int(np.flatnonzero(curve.batch == curve.optimum.batch)[0])

    def say(self, key: str, **fields: str) -> str:
        return text(key if "." in key else f"page.{key}", self.language, **fields)

    def interval(self) -> tuple[float, float] | None:
        """Cost at both ends of the interval at the batch to run [USD/Mtoken]; without a price the step [s]."""
        found, best = self.curve.prediction, self.curve.optimum
        if found is None:
            return None
        unit = 1.0 if best.usd_per_mtok is None else best.usd_per_mtok / best.t_step
        return float(found.low[self.at]) * unit, float(found.high[self.at]) * unit

    def headline(self) -> str:
        best = self.curve.optimum
        fields = {"batch": f"{best.batch:,}", "time": format_time(best.t_step)}
        if best.usd_per_mtok is None:
            return self.say("headline_time", **fields)
        return self.say("headline_cost", **fields, cost=format_usd(best.usd_per_mtok))

    def split(self) -> str:
        terms = _terms(self.curve)
        total = sum(float(part[self.at]) for part in terms.values())
        shares = sorted(((float(part[self.at]) / total, name) for name, part in terms.items()), reverse=True)
        parts = [
            self.say("share", name=self.say(f"chart.name_{name}"), percent=f"{share:.0%}")
            for share, name in shares
            if share >= 0.005
        ]
        return self.say("split", parts=", ".join(parts))

    def why(self) -> str:
        curve, best = self.curve, self.curve.optimum
        limit = "" if curve.step_limit is None else format_time(curve.step_limit)
        sentence = self.say(f"chart.binds_{best.binds}", limit=limit)
        if best.binds != "kv" and math.isfinite(curve.capacity_batch):
            sentence += " " + self.say("chart.room", batch=f"{curve.capacity_batch:,.0f}")
        return sentence

    def facts(self) -> list[dict[str, str]]:
        """Floors, knee and capacity: name, value and what it means."""
        curve = self.curve
        rows = [("latency_floor", format_time(curve.latency_floor))]
        if curve.cost_floor_usd_per_mtok is not None:
            rows.append(("cost_floor", format_usd(curve.cost_floor_usd_per_mtok)))
        knee = self.say("none") if curve.knee_batch is None else f"{math.ceil(curve.knee_batch - 1e-9):,}"
        rows.append(("knee", knee))
        if curve.balance_context is not None:
            rows.append(("balance", format_tokens(curve.balance_context)))
        capacity = f"{curve.capacity_batch:,.0f}" if math.isfinite(curve.capacity_batch) else self.say("none")
        rows.append(("capacity", capacity))
        return [
            {"key": key, "name": self.say(f"fact_{key}"), "value": value, "means": self.say(f"means_{key}")}
            for key, value in rows
        ]

    def tiles(self) -> list[dict[str, str]]:
        """The five numbers: name, value, and what stands below it."""
        curve, best = self.curve, self.curve.optimum
        capacity = curve.capacity_batch
        count = curve.deployment.count
        total = best.batch / best.t_step
        fits = self.say("of_fit", capacity=f"{capacity:,.0f}") if math.isfinite(capacity) else ""
        ends = self.interval()
        low, high = ("", "") if ends is None else (format_usd(ends[0]), format_usd(ends[1]))
        if best.usd_per_mtok is None:
            cost, below = "–", self.say("no_price")
        else:
            cost = format_usd(best.usd_per_mtok)
            below = self.say("floor_is", floor=format_usd(curve.cost_floor_usd_per_mtok or 0.0))
            if ends is not None:
                below = self.say("interval", low=low, high=high)
        rows = [
            ("batch", f"{best.batch:,}", fits),
            ("cost", cost, below),
            ("time", format_time(best.t_step), self.say("per_user", rate=format_rate(1 / best.t_step))),
            ("rate", format_rate(total / count), self.say("in_all", rate=format_rate(total))),
            ("binds", self.say(f"binds_{best.binds}"), self.say("bound_by", name=self._longest())),
        ]
        return [{"key": key, "name": self.say(f"tile_{key}"), "value": v, "below": b} for key, v, b in rows]

    def _longest(self) -> str:
        return self.say(f"chart.name_{self.curve.bound_by[self.at]}")

    def basis(self) -> str:
        """What kind of number this is, and what of it is new."""
        curve = self.curve
        if curve.prediction is None:
            return self.say(f"basis_{curve.reading}")
        known = curve.prediction.provenance
        d = curve.deployment
        return self.say(
            "basis_predict",
            engine=d.engine,
            generation=d.accelerator.generation or d.accelerator.name,
            weights=d.weights_name,
            source=known.source,
            points=f"{known.points:,}",
            novelty=self.say(f"new_{known.novelty}"),
        )

    def sources(self) -> list[dict[str, str]]:
        """Where each input is from."""
        d = self.curve.deployment
        arch, device = d.architecture, d.accelerator
        rate = f"{device.flops_for(d.math) / 1e12:,.0f} TFLOPS ({d.math})"
        size = f"{format_count(arch.total_params)} ({format_count(arch.active_params)})"
        rows = [
            {"what": arch.name, "figures": size, "source": arch.source, "date": arch.date},
            {
                "what": device.label or device.name,
                "figures": f"{format_bytes(device.usable_memory())}, {format_bytes(device.bandwidth)}/s, {rate}",
                "source": device.source,
                "date": device.date,
            },
        ]
        if d.price is not None:
            shown = f"${d.price.median:,.2f}/h, {d.price.describe()}"
            newest = "" if d.price.newest is None else str(d.price.newest)
            rows.append(
                {"what": self.say("price"), "figures": shown, "source": "; ".join(d.price.sources), "date": newest}
            )
        return rows

    def warnings(self) -> list[str]:
        """What to be careful with."""
        d = self.curve.deployment
        found = []
        longest = d.architecture.max_context
        if longest and self.curve.context > longest:
            found.append(self.say("beyond_context", context=f"{self.curve.context:,.0f}", longest=f"{longest:,}"))
        if d.price is None:
            found.append(self.say("warn_no_price", accelerator=d.accelerator.name))
        elif (age := d.price.age_days()) and d.price.stale_warning():
            found.append(self.say("warn_stale", accelerator=d.accelerator.name, days=f"{age:,}"))
        return found


def _spec(spec: dict[str, Any], name: str, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Give a specification only the points that it needs."""
    key = f"p{name.replace('.', '')}"
    return {**spec, "datasets": {**spec["datasets"], "hover": [], **live.rows_of(shown["columns"][key], key)}}


def explored(
    question: CurveQuery,
    *,
    language: str = "en",
    theme: str = "light",
    batch_axis: str = "log",
    charts: str = "data",
    measured: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Answer the page: sentences, figures as columns, and the six plots as data or as whole specifications.

    Parameters
    ----------
    question : CurveQuery
        What was asked.
    language, theme, batch_axis : str
        As of `batchline.chart.six_plots`.
    charts : str
        "specs": whole specifications; "data": what changes in them; "moving": the same without the names' places.
    measured : sequence of mapping
        Points to show: `batch`, `t_step_s`.

    Returns
    -------
    dict
        `answer`, `points`, `charts` and scalars with the names of the JSON output.
    """
    first = curve_of(question, [1.0])
    curve = drawn(first)
    told = _Told(curve, language)
    look: dict[str, Any] = {"batch_axis": batch_axis, "language": language, "measured": measured}
    shown = live.told(curve, **look, names=charts != "moving")
    if charts == "specs":
        shown = {name: _spec(chart.plot(curve, name, theme=theme, **look), name, shown) for name in _PLOTS}
    scalars = {key: value for key, value in first.to_dict().items() if key != "points"}
    if question.isl is not None and question.osl is not None:
        scalars["serving"] = served(curve, question.isl, question.osl)
    return {
        "answer": {
            "title": curve.title,
            "headline": told.headline(),
            "sentences": [told.split(), told.why()],
            "tiles": told.tiles(),
            "facts": told.facts(),
            "basis": told.basis(),
            "sources": told.sources(),
            "warnings": told.warnings(),
        },
        "curve": scalars,
        "points": _columns(curve),
        "charts": shown,
    }


def model_record(model: Architecture, context: float, weights: str | None, kv: str) -> dict[str, Any]:
    """One model, with the keys of `batchline show --json`."""
    record, source = _model_record(model, int(context), weights, kv)
    return {**record, **source}


def accelerator_record(name: str) -> dict[str, Any]:
    """One accelerator of the catalogue, with the keys of `batchline show --json`."""
    record, source = _accelerator_record(accelerators.Accelerator.load(name))
    return {**record, **source}
