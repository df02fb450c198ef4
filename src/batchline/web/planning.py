"""Plans, launch commands and price sheets over HTTP: the questions of `batchline plan` and `batchline price`."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from batchline.errors import BatchlineError, InputError
from batchline.serving import NETWORK_BANDWIDTH
from batchline.strings import Sentence, text, told
from batchline.units import format_rate, format_time, format_usd
from batchline.web.problem import with_fields
from batchline.web.question import (
    Bandwidth,
    Brought,
    DeploymentQuestion,
    Duration,
    Length,
    Load,
    Name,
    RefusedFieldError,
    architecture_of,
    deployment_of,
    priors_of,
    reader,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batchline.market import Comparison
    from batchline.planner import Candidate, Plan, Prefill, Question
    from batchline.price_sheet import PriceSheet

__all__ = ["PlanQuestion", "PriceQuestion", "flipped", "planned", "priced"]

Share = Annotated[float, Field(ge=0, lt=1)]


def _promise(text: str) -> str:
    from batchline.goodput import Promise  # noqa: PLC0415

    Promise.parse(text)
    return text


Promised = Annotated[str, reader(_promise), Field(max_length=40, examples=["p95:40ms"])]
Names = Annotated[list[Name], Field(max_length=64)]


class PlanQuestion(Brought):
    """What `batchline plan` is asked, by the names of a saved question."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: Name | None = Field(default=None, description="Catalogue name, alias or Hugging Face id.")
    isl: Length = Field(description="Mean tokens of a prompt.")
    osl: Length = Field(description="Mean tokens of an answer.")
    rate: Load | None = Field(default=None, description="Requests that arrive [1/s].")
    users: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, description="People who wait for an answer and then think, instead of a rate."
    )
    think_s: Duration | None = Field(default=None, description="How long they think.")
    ttft: Promised | None = Field(default=None, description="Promise on the first token: 2s, p95:2s.")
    tpot: Promised | None = Field(default=None, description="Promise on the time per output token.")
    itl: Promised | None = Field(default=None, description="Promise on the longest gap between tokens.")
    e2e: Promised | None = Field(default=None, description="Promise on the whole request.")
    headroom: Share = Field(default=0.1, description="Share of the capacity kept free.")
    confidence: Annotated[float, Field(ge=0.5, lt=1)] | None = Field(
        default=None, description="Choose so that the promises hold with this chance."
    )
    prefix_hit_rate: Share = Field(default=0.0, description="Share of prompt tokens found in the cache.")
    max_model_len: Annotated[int, Field(ge=1, le=10**9)] | None = Field(default=None, description="Longest request.")
    accelerators: Names = Field(default_factory=list, description="Accelerators; all that have a price if empty.")
    available: dict[Name, Annotated[int, Field(ge=0, le=10**9)]] = Field(
        default_factory=dict, description="Devices that there are."
    )
    prices: dict[Name, Annotated[float, Field(gt=0, le=1e9)]] = Field(
        default_factory=dict, description="Prices of one device [USD/h], in place of the catalogue's."
    )
    basis: Literal["rental", "contract", "neocloud", "hyperscaler"] = Field(
        default="rental", description="Catalogue price that counts."
    )
    weights: Names = Field(default_factory=list, description="Weight formats; `checkpoint` is its own.")
    kv: Names = Field(default_factory=list, description="KV cache formats.")
    engines: Names = Field(default_factory=list, description="Engines.")
    disaggregation: bool = Field(default=True, description="Prompts and decoding may have replicas of their own.")
    transfer: Bandwidth = Field(
        default=NETWORK_BANDWIDTH, description="Link over which a prefill replica sends KV caches."
    )
    max_devices: Annotated[int, Field(ge=1, le=1024)] = Field(default=64, description="Most devices of a replica.")
    max_batch: Annotated[int, Field(ge=1, le=65536)] = Field(default=1024, description="Most sequences of a rank.")


class PriceQuestion(DeploymentQuestion, Brought):
    """What `batchline price` is asked."""

    isl: Length = Field(default=4096, description="Tokens of a prompt.")
    osl: Length = Field(default=1024, description="Tokens of an answer.")
    batch: Annotated[float, Field(ge=1, le=1e7)] | None = Field(
        default=None, description="Sequences decoded together at the plain price; as many as fit if absent."
    )
    tpot: Duration | None = Field(default=None, description="Longest time per token at the plain price.")
    utilisation: Annotated[float, Field(gt=0, le=1)] = Field(default=1.0, description="Share of the time it is busy.")
    margin: Share = Field(default=0.0, description="Share of the price that is profit.")
    fast: Annotated[float, Field(gt=1, le=100)] = Field(default=2.5, description="Times faster the fast mode is.")
    contexts: Annotated[list[Length], Field(max_length=8)] = Field(
        default_factory=lambda: [32768.0, 131072.0], description="Longer requests [token]."
    )
    prefix_hit_rate: Share = Field(default=0.9, description="Share of a prompt that a cache hit finds.")
    reading: Literal["predict", "bound", "serial"] = "predict"
    market: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="Name under which APIs sell the model, for their prices; empty: its own."
    )


_NAMED = frozenset(PlanQuestion.model_fields) | {"price"}
"""Fields that stand in place of options in what is said of a plan."""


def _question(asked: PlanQuestion, model: str) -> Question:
    from batchline.planner import Question  # noqa: PLC0415

    given = asked.model_dump(exclude={"model", *Brought.model_fields}, exclude_none=True)
    for name in ("accelerators", "weights", "kv", "engines"):
        given[name] = tuple(given[name])
    for name in ("isl", "osl"):
        given[name] = float(given[name])
    return Question(model=model, **given)


@contextmanager
def _named(asked: PlanQuestion) -> Iterator[str]:
    """Name by which the planner finds the model: a config.json becomes a folder for as long as it is asked."""
    model = architecture_of(asked)
    if asked.config is None:
        yield model.name
        return
    with tempfile.TemporaryDirectory(prefix="batchline-") as folder:
        place = Path(folder) / (model.name if model.name.strip(".") else "model")
        place.mkdir()
        (place / "config.json").write_text(json.dumps(asked.config), encoding="utf-8")
        yield str(place)


def planned(asked: PlanQuestion, language: str, theme: str, *, narrow: bool = False) -> dict[str, Any]:
    """Plan, and tell it: `batchline plan --json` with sentences, the Pareto front as a chart, and launch commands.

    Parameters
    ----------
    asked : PlanQuestion
        What was asked.
    language, theme : str
        "en" or "ko"; "light" or "dark".
    narrow : bool
        Charts for a phone.

    Returns
    -------
    dict
        `plan`, `answer`, `chart`, `launch`.
    """
    from batchline import planner  # noqa: PLC0415

    with _named(asked) as name:
        return _told(planner.plan(_question(asked, name), priors_of(asked)), asked, language, theme, narrow=narrow)


def _shown(found: Plan) -> Plan:
    """Give the plan with the model's name, where it had a folder of ours."""
    return dataclasses.replace(
        found, question=dataclasses.replace(found.question, model=Path(found.question.model).name)
    )


def _told(found: Plan, asked: PlanQuestion, language: str, theme: str, *, narrow: bool) -> dict[str, Any]:
    from batchline import chart_plan  # noqa: PLC0415

    best = found.best  # raises what is nearest when nothing keeps the promises
    month = format_usd(best.usd_per_month)
    return {
        "plan": _shown(found).to_dict(),
        "answer": {
            "headline": text("page.plan_headline", language, title=best.titled(language), cost=month),
            "sentences": _sentences(best, found.kept(best), language),
            "tiles": _tiles(best, language),
            "gives_up": [", ".join(found.gives_up(other, language)) for other in found.candidates[1:]],
            "warnings": [with_fields(one, _NAMED) for one in found.cautions(language)],
            "refused": [{"why": why, "deployments": count} for why, count in found.refusals(language).items()],
            "searched": text(
                "page.plan_searched",
                language,
                configurations=f"{found.searched:,}",
                deployments=f"{found.deployments:,}",
                seconds=f"{found.seconds:.2f}",
            ),
        },
        "titles": [one.titled(language) for one in found.candidates],
        "chart": chart_plan.pareto(_shown(found), theme=theme, language=language, narrow=narrow),
        "launch": [_launch(one, found, language, own=asked.config is not None) for one in found.candidates],
        "toml": found.question.to_toml() if asked.config is None else "",
    }


def _sentences(best: Candidate, shown: str, language: str) -> list[str]:
    said = [] if best.prefill is None else [_apart(best.prefill, language)]
    said += [
        text(
            "page.plan_batch",
            language,
            batch=f"{best.batch:,.0f}",
            most=f"{best.max_num_seqs:,}",
            rate=f"{best.most_requests_per_s:,.3g}",
        )
    ]
    if shown:
        said.append(text("page.plan_promised", language, shown=shown, sure=f"{best.p_slo:.0%}"))
    if best.changes_weights:
        said.append(text("page.plan_rounded", language, weights=best.weights))
    return said


def _apart(prompts: Prefill, language: str) -> str:
    return text(
        "page.plan_apart",
        language,
        replicas=f"{prompts.replicas:,}",
        count=f"{prompts.count:,}",
        layout=prompts.layout,
        busy=f"{prompts.busy:.0%}",
        prompt=format_time(prompts.prompt_s),
        move=format_time(prompts.transfer_s),
    )


def _tiles(best: Candidate, language: str) -> list[dict[str, str]]:
    low, high = best.usd_per_month_range
    span = text("page.plan_range", language, low=format_usd(low), high=format_usd(high)) if high > low else ""
    rows = [
        ("month", format_usd(best.usd_per_month), span),
        (
            "out",
            format_usd(best.usd_per_mtok_output),
            text("page.plan_in", language, cost=format_usd(best.usd_per_mtok_input)),
        ),
        ("token", format_time(best.tpot_s), text("page.plan_first", language, time=format_time(best.ttft_s))),
        (
            "devices",
            f"{best.devices:,}",
            _replicas(best, language),
        ),
        ("sure", f"{best.p_slo:.0%}", text("page.plan_load", language, rate=f"{best.requests_per_s:,.3g}")),
    ]
    return [{"key": key, "name": text(f"page.plan_tile_{key}", language), "value": v, "below": b} for key, v, b in rows]


def _replicas(best: Candidate, language: str) -> str:
    numbers = {"replicas": f"{best.replicas:,}", "count": f"{best.count:,}"}
    if best.prefill is None:
        return text("page.plan_replicas", language, **numbers)
    prompts = {"prompts": f"{best.prefill.replicas:,}", "each": f"{best.prefill.count:,}"}
    return text("page.plan_pools", language, **numbers, **prompts)


def _launch(one: Candidate, found: Plan, language: str, *, own: bool) -> dict[str, Any]:
    """Command that starts a candidate, or why there is none."""
    from batchline import launch  # noqa: PLC0415

    try:
        made = launch.starts(one, found.question, language=language, **({"model": "YOUR-CHECKPOINT"} if own else {}))
        script = launch.script(made)
    except BatchlineError as error:
        problem = with_fields(told(error.problem, language), _NAMED)
        return {"engine": one.engine, "script": "", "kubernetes": "", "config": "", "problem": problem}
    try:
        manifest = launch.manifest(made)
    except BatchlineError:
        manifest = ""
    config = "\n".join(part.config for part in made)
    return {"engine": one.engine, "script": script, "kubernetes": manifest, "config": config, "problem": ""}


def flipped(asked: PlanQuestion, language: str, theme: str, *, narrow: bool = False) -> dict[str, Any]:
    """Say what would make another deployment the cheapest, and draw what moves the cost.

    Parameters
    ----------
    asked : PlanQuestion
        What was asked.
    language, theme : str
        "en" or "ko"; "light" or "dark".
    narrow : bool
        Charts for a phone.

    Returns
    -------
    dict
        `flips` as of `batchline plan --flips --json`, `sentences`, `chart`.
    """
    from batchline import chart_plan, planner, sensitivity  # noqa: PLC0415

    with _named(asked) as name:
        priors = priors_of(asked)
        found = planner.plan(_question(asked, name), priors)
        if not found.candidates:
            raise InputError(found.why_none, "", Sentence("error.loosen_promise"))
        bars = sensitivity.tornado(found, priors=priors)
        flips = sensitivity.flips(found, priors)
    look: dict[str, Any] = {"theme": theme, "language": language, "narrow": narrow}
    return {
        "flips": [vars(flip) for flip in flips],
        "sentences": [flip.told(language) for flip in flips],
        "chart": chart_plan.tornado(_shown(found), bars, **look) if bars else None,
    }


def priced(asked: PriceQuestion, language: str, theme: str, *, narrow: bool = False) -> dict[str, Any]:
    """Derive a price sheet, as `batchline price --json` prints it, and draw it.

    Parameters
    ----------
    asked : PriceQuestion
        What was asked.
    language, theme : str
        "en" or "ko", for what is `shown`; "light" or "dark".
    narrow : bool
        The chart for a phone.

    Returns
    -------
    dict
        Rows and scalars, the price of the deployment, `market` where it was asked for, and `chart`.
    """
    from batchline import chart_price, price_sheet  # noqa: PLC0415

    one = deployment_of(asked)
    try:
        sheet = price_sheet.price_sheet(
            one,
            asked.isl,
            asked.osl,
            batch=asked.batch,
            tpot_s=asked.tpot,
            utilisation=asked.utilisation,
            margin=asked.margin,
            fast=asked.fast,
            contexts=asked.contexts,
            prefix_hit_rate=asked.prefix_hit_rate,
            reading=asked.reading,
            priors=priors_of(asked),
        )
    except BatchlineError as error:
        raise RefusedFieldError("price", error) if one.price is None else error from None
    described = "" if one.price is None else one.price.describe(language)
    market = _market(asked.market or one.architecture.name, sheet) if asked.market is not None else []
    return sheet.to_dict() | {
        **({} if asked.market is None else {"market": [row.to_dict() for row in market]}),
        "price": described,
        "chart": chart_price.bars(sheet, market, theme=theme, language=language, narrow=narrow),
        "shown": {
            "title": one.titled(language),
            "tpot": format_time(sheet.tpot_s),
            "rate": format_rate(sheet.batch / sheet.tpot_s),
            "rows": [{"name": told(row.name, language), "why": told(row.why, language)} for row in sheet.rows],
            "notes": [told(note, language) for note in sheet.notes],
        },
    }


def _market(name: str, sheet: PriceSheet) -> list[Comparison]:
    from batchline import market  # noqa: PLC0415

    try:
        return sheet.beside(market.offers(name))
    except BatchlineError as error:
        raise RefusedFieldError("market", error) from None
