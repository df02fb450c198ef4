"""What the page is answered: the command line's figures as columns, and the sentences around them in two languages."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from batchline import accelerator as accelerators
from batchline import architecture, chart, explanation, precision, prior, readings
from batchline import price as prices
from batchline.calibrate.profile import CalibratedPrior
from batchline.cli import show
from batchline.curve_question import served_sentence
from batchline.report import Change, Told, on_whole_batches, terms, what_if
from batchline.strings import text
from batchline.web import live
from batchline.web.question import model_of, question_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchline.architecture import Architecture
    from batchline.sweep import Curve
    from batchline.web.question import CurveQuery

__all__ = [
    "accelerator_record",
    "accelerator_records",
    "choices",
    "curve_reply",
    "explored",
    "model_record",
    "model_records",
    "price_records",
]

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
        "engine": sorted(prior.load().seen["engine"]),
        "reading": list(readings.READINGS),
    }


# -- one curve -----------------------------------------------------------------------------------------------------


def curve_reply(question: CurveQuery) -> dict[str, Any]:
    """Give what `batchline curve --json` prints."""
    asked = question_of(question)
    curve = asked.curve(question.batch)
    load = asked.served(curve)
    return curve.to_dict() | ({} if load is None else {"serving": load})


def _columns(curve: Curve) -> dict[str, Any]:
    taken = terms(curve)
    numbers = {
        "t_step_s": curve.t_step,
        "t_compute_s": curve.t_compute,
        "t_weights_s": curve.t_weights,
        "t_kv_s": curve.t_kv,
        "output_tokens_per_s": curve.batch / curve.t_step,
        "mfu": curve.mfu,
        "mbu": curve.mbu,
    }
    if curve.usd_per_mtok is not None:
        numbers["usd_per_mtok"] = curve.usd_per_mtok
    if curve.prediction is not None:
        numbers |= {"low_s": curve.prediction.low, "high_s": curve.prediction.high}
    rounded = live.six_digits(*numbers.values(), *taken.values())
    return {
        "batch": [int(batch) for batch in curve.batch],
        "usd_per_mtok": None,
        **dict(zip(numbers, rounded, strict=False)),
        "bound_by": curve.bound_by,
        "terms": dict(zip(taken, rounded[len(numbers) :], strict=True)),
    }


def _change(one: Change, now: Curve, told: Told) -> dict[str, Any]:
    return {
        "what": one.what,
        "name": told.say(f"report.if_{one.what}", **one.fields),
        "batch": one.batch,
        "t_step_s": one.t_step,
        "usd_per_mtok": one.usd_per_mtok,
        "times": one.times,
        "binds": told.say(f"binds_{one.binds}") if one.binds else "",
        "refused": one.refused,
        "flips": bool(one.binds) and one.binds != now.optimum.binds,
    }


def _profile(curve: Curve, language: str) -> tuple[dict[str, Any] | None, list[str]]:
    """What a profile was made of, and a warning if it says nothing of this deployment."""
    if not isinstance(curve.priors, CalibratedPrior):
        return None, []
    profile, case = curve.priors.profile, readings.case_of(curve.deployment)
    record = {"measured": profile.case.cluster, "points": profile.points, "date": profile.date}
    if curve.priors.knows(case):
        return record, []
    names = {"file": text("page.profile", language), "measured": profile.case.cluster, "asked": case.cluster}
    return record, [text("cli.other_profile", language, **names)]


_Look = tuple[str, bool, str, str, str]

_DRAWN: dict[_Look, dict[str, dict[str, Any]]] = {}
"""The six plots without data, by what they depend on besides it, as Vega-Lite: drawn once."""

_COMPILED: dict[_Look, dict[str, dict[str, Any]]] = {}
"""The same as Vega."""


def _drawn(curve: Curve, theme: str, language: str, batch_axis: str) -> tuple[_Look, dict[str, dict[str, Any]]]:
    look = (curve.reading, curve.usd_per_hour is None, theme, language, batch_axis)
    if look not in _DRAWN:
        plots = {
            name: chart.plot(curve, name, theme=theme, language=language, batch_axis=batch_axis) for name in _PLOTS
        }
        _DRAWN[look] = {
            name: {**plot, "datasets": {dataset: [] for dataset in plot["datasets"]}} for name, plot in plots.items()
        }
    return look, _DRAWN[look]


def _compiled(curve: Curve, theme: str, language: str, batch_axis: str) -> dict[str, dict[str, Any]]:
    """Vega for what the page puts its data into."""
    look, plots = _drawn(curve, theme, language, batch_axis)
    if look not in _COMPILED:
        _COMPILED[look] = {name: chart.compiled(plot) for name, plot in plots.items()}
    return _COMPILED[look]


def _specs(curve: Curve, told: Mapping[str, Any], theme: str, language: str, batch_axis: str) -> dict[str, Any]:
    """Whole specifications of the six plots, with only the points that they need."""
    _, plots = _drawn(curve, theme, language, batch_axis)
    return {name: _filled(spec, f"p{name.replace('.', '')}", told) for name, spec in plots.items()}


def _filled(spec: dict[str, Any], key: str, told: Mapping[str, Any]) -> dict[str, Any]:
    rows = live.rows_of(told["columns"][key], key)
    datasets = {name: rows.get(name, told["datasets"].get(name, [])) for name in spec["datasets"]}
    params = [{**param, "value": told["signals"][param["name"]]} for param in spec["params"]]
    return {**spec, "datasets": datasets, "params": params}


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
        "specs": whole Vega-Lite specifications; "data": what changes in them; "moving": the same without names;
        "vega": that together with the plots as Vega, into which it is to be put.
    measured : sequence of mapping
        Points to show: `batch`, `t_step_s`.

    Returns
    -------
    dict
        `answer`, `points`, `charts`, `changes`, `equations` behind the five numbers, what the `profile` is, and scalars
        with the names of the JSON output. Where something moves, `changes` and `equations` are null.
    """
    asked = question_of(question)
    first = asked.curve([1.0])
    curve = on_whole_batches(first)
    told = Told(curve, language)
    rests = charts in ("specs", "data")  # nothing moves: there is time for more than what moves
    shown = live.told(curve, batch_axis=batch_axis, language=language, measured=measured, names=rests)
    if charts == "specs":
        shown = _specs(curve, shown, theme, language, batch_axis)
    elif charts == "vega":
        shown = {"vega": _compiled(curve, theme, language, batch_axis), **shown}
    scalars = {key: value for key, value in first.to_dict().items() if key != "points"}
    load = asked.served(first)
    if load is not None:
        scalars["serving"] = load
    changes = equations = None
    if rests:
        found = what_if(first, within=question.within, max_batch=question.max_batch)
        changes = [_change(one, first, told) for one in found]
        equations = explanation.of_each_number(first, language)
    profile, foreign = _profile(first, language)
    return {
        "changes": changes,
        "equations": equations,
        "profile": profile,
        "answer": {
            "title": curve.titled(language),
            "headline": told.headline(),
            "sentences": [told.split(), told.why()],
            "served": "" if load is None else served_sentence(load, language),
            "tiles": told.tiles(),
            "facts": told.facts(),
            "basis": told.basis(),
            "sources": told.sources(),
            "warnings": [*told.warnings(), *foreign],
        },
        "curve": scalars,
        "points": _columns(curve),
        "charts": shown,
    }


def model_record(model: Architecture, context: float, weights: str | None, kv: str) -> dict[str, Any]:
    """One model, with the keys of `batchline show --json`."""
    return show.model_record(model, int(context), weights, kv)


def accelerator_record(name: str) -> dict[str, Any]:
    """One accelerator of the catalogue, with the keys of `batchline show --json`."""
    return show.accelerator_record(accelerators.Accelerator.load(name))
