"""What the planner answers: deployments that keep the promises, the front, and what comes nearest when none does."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from batchline import units
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.deployment import Deployment
from batchline.errors import InputError
from batchline.notebook import Shown
from batchline.strings import Sentence, group, text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from batchline.planner.question import Question
    from batchline.price import Price

__all__ = ["Candidate", "Nearest", "Plan", "Prefill"]


@dataclass(frozen=True, kw_only=True)
class Prefill:
    """Replicas that compute prompts and send their KV cache on.

    Parameters
    ----------
    count, tp, pp, ep, dp, replicas : int
        Devices of one replica, its parallel degrees, and how many replicas.
    max_num_batched_tokens : int
        Token budget of a step [token].
    busy : float
        Share of its time that a replica computes prompts [-].
    prompt_s : float
        Time of one prompt without any wait [s].
    transfer_s : float
        Time to move its KV cache [s].
    """

    count: int
    tp: int
    pp: int
    ep: int
    dp: int
    replicas: int
    max_num_batched_tokens: int
    busy: float
    prompt_s: float
    transfer_s: float

    @property
    def layout(self) -> str:
        """Parallel degrees above 1, like "TP4 PP2"."""
        return _layout(self)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A deployment that keeps the promises, at the stated load.

    Parameters
    ----------
    accelerator : str
        Name in the catalogue.
    count, tp, pp, ep, dp, replicas : int
        Devices of one replica, its parallel degrees, and how many replicas.
    weights, kv, engine : str
        Number formats and the serving engine.
    batch : float
        Sequences that a replica decodes together, mean [sequence].
    max_num_seqs : int
        Sequences that a replica should be allowed [sequence].
    max_num_batched_tokens : int
        Token budget of a step [token].
    requests_per_s, most_requests_per_s : float
        Load of all replicas, and the most with which they would keep the promises [1/s].
    usd_per_hour, usd_per_month : float
        Median price of all replicas [USD/h, USD/month].
    usd_per_month_range : tuple of float
        At the lowest and the highest price [USD/month].
    usd_per_mtok_input, usd_per_mtok_cached, usd_per_mtok_output : float
        Cost of each kind of token at this load, split by the time it takes [USD/Mtoken].
    usd_per_mtok : float
        All cost over output tokens alone [USD/Mtoken].
    joules_per_token : float or None
        Energy of an output token, prompts included, at the devices' design power: the most it can be [J/token].
    tpot_s, ttft_s, e2e_s : float
        Means [s].
    promised : mapping of str to float
        Promised times at their own percentiles [s].
    itl_peak_s : float
        Longest gap: a step with a chunk of a prompt in it [s].
    p_slo : float
        Chance that all promises hold, given how far predictions miss [-].
    novelty : str
        What of this deployment no measured point has: see `batchline.prior`.
    saturated_by : str
        What stops more load.
    changes_weights : bool
        Whether the weights are rounded to fewer bits than the checkpoint has: check its quality.
    prefill : Prefill or None
        The replicas that compute prompts, where these only decode; same accelerator, formats and engine. `replicas`
        and the degrees are then those of decoding; prices, devices and energy are of both.
    """

    accelerator: str
    count: int
    tp: int
    pp: int
    ep: int
    dp: int
    replicas: int
    weights: str
    kv: str
    engine: str
    batch: float
    max_num_seqs: int
    max_num_batched_tokens: int
    requests_per_s: float
    most_requests_per_s: float
    usd_per_hour: float
    usd_per_month: float
    usd_per_month_range: tuple[float, float]
    usd_per_mtok_input: float
    usd_per_mtok_cached: float
    usd_per_mtok_output: float
    usd_per_mtok: float
    joules_per_token: float | None
    tpot_s: float
    ttft_s: float
    e2e_s: float
    promised: Mapping[str, float]
    itl_peak_s: float
    p_slo: float
    novelty: str
    saturated_by: str
    changes_weights: bool
    prefill: Prefill | None = None

    @property
    def devices(self) -> int:
        """Devices of all replicas [device]."""
        apart = 0 if self.prefill is None else self.prefill.count * self.prefill.replicas
        return self.count * self.replicas + apart

    def deployment(self, model: str | Architecture, *, prefill: bool = False) -> Deployment:
        """One replica as a `Deployment`, for the curve and all that takes one.

        Parameters
        ----------
        model : str or Architecture
            The model of the plan.
        prefill : bool
            Whether one that computes prompts is meant, where they have replicas of their own.

        Returns
        -------
        Deployment
            With the price that the plan counted.
        """
        arch = model if isinstance(model, Architecture) else Architecture.load(model)
        shape = self.prefill if prefill and self.prefill is not None else self
        return Deployment.of(
            arch,
            Accelerator.load(self.accelerator),
            usd_per_device_hour=self.usd_per_hour / self.devices,
            count=shape.count,
            weights=self.weights if self.changes_weights else None,
            kv=self.kv,
            tp=shape.tp,
            pp=shape.pp,
            dp=shape.dp,
            ep=shape.ep,
            engine=self.engine,
        )

    @property
    def layout(self) -> str:
        """Parallel degrees above 1, like "TP4 PP2"."""
        return _layout(self)

    @property
    def title(self) -> Sentence:
        """Devices, layout, formats and engine in a line, which can be told in Korean too."""
        fields: dict[str, str] = {name: getattr(self, name) for name in ("accelerator", "layout", "weights", "kv")}
        fields |= {"count": f"{self.count}", "replicas": f"{self.replicas}", "engine": self.engine}
        if self.prefill is None:
            return Sentence("planner.title" if self.replicas == 1 else "planner.title_replicas", **fields)
        pool = self.prefill
        fields |= {"prompt_count": f"{pool.count}", "prompt_replicas": f"{pool.replicas}", "prompt_layout": pool.layout}
        return Sentence("planner.title_pools", **fields)

    def titled(self, language: str = "en") -> str:
        """Name it in a line.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            Devices, layout, formats and engine.
        """
        return self.title.told(language)

    def to_dict(self) -> dict[str, Any]:
        """Give everything, with the names of the JSON output.

        Returns
        -------
        dict
            Plain values.
        """
        prefill = None if self.prefill is None else vars(self.prefill)
        return {**vars(self), "promised": dict(self.promised), "devices": self.devices, "prefill": prefill}


def _layout(one: Candidate | Prefill) -> str:
    degrees = [f"{name.upper()}{getattr(one, name)}" for name in ("tp", "pp", "dp", "ep") if getattr(one, name) > 1]
    return " ".join(degrees) or "TP1"


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """What comes closest when no deployment keeps the promises.

    Parameters
    ----------
    title : str
        The deployment.
    promise : str
        The promise that is missed by the most: "ttft", "tpot", "itl" or "e2e".
    promised_s, attainable_s : float
        What was promised, and the best that this deployment does without any other load [s].
    binds : str
        What takes the most of that time.
    """

    title: str
    promise: str
    promised_s: float
    attainable_s: float
    binds: str

    @property
    def sentence(self) -> Sentence:
        """All this in words."""
        return Sentence(
            "planner.nearest",
            promise=self.promise,
            promised=units.format_time(self.promised_s),
            title=self.title,
            attainable=units.format_time(self.attainable_s),
            binds=self.binds,
        )

    def __str__(self) -> str:
        return str(self.sentence)


@dataclass(frozen=True, kw_only=True)
class Plan(Shown):
    """Answer of `plan`.

    Parameters
    ----------
    question : Question
        What was asked.
    candidates : tuple of Candidate
        The cheapest, then the next that differ from it, cheapest first.
    front : tuple of Candidate
        No other deployment is as cheap, as fast per token, as fast to the first token and as small.
    refused : mapping of str to int
        Deployments that cannot be used, by reason.
    searched : int
        Configurations decided: deployments x batches x budgets, and pairs of prefill and decode layouts x batches.
    deployments : int
        Deployments looked at.
    seconds : float
        Time of the search [s].
    nearest : Nearest or None
        What comes closest when no deployment keeps the promises.
    prices : tuple of Price
        Of the candidates' accelerators.
    max_context : int or None
        Longest request of the model [token].
    best_of : mapping of str to Candidate
        Cheapest candidate by what it uses: "weights fp8", "accelerator h100-sxm", "engine vllm", "kv fp8", "tp 4",
        "prompts together", "prompts apart".
    """

    question: Question
    candidates: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    refused: Mapping[str, int]
    searched: int
    deployments: int
    seconds: float
    nearest: Nearest | None = None
    prices: tuple[Price, ...] = ()
    max_context: int | None = None
    best_of: Mapping[str, Candidate] = field(default_factory=dict)

    @property
    def best(self) -> Candidate:
        """The cheapest deployment that keeps the promises.

        Raises
        ------
        InputError
            None does.
        """
        if not self.candidates:
            raise InputError(self.why_none, "", Sentence("error.loosen_promise"))
        return self.candidates[0]

    @property
    def why_none(self) -> Sentence:
        """Why there is no candidate: what comes nearest, or why nothing can be started."""
        if self.nearest is not None:
            return self.nearest.sentence
        names = {said: name for name, said in group("planner", "en").items() if name.startswith("refused_")}
        counted = Sentence("planner.none_considered")
        for place, (reason, count) in enumerate(sorted(self.refused.items(), key=lambda row: row[1])):
            one = Sentence("planner.counted", reason=Sentence(f"planner.{names[reason]}"), count=f"{count:,}")
            counted = one if place == 0 else Sentence("planner.and_reason", one=one, others=counted)
        return Sentence("planner.nothing_starts", reasons=counted)

    @property
    def warnings(self) -> tuple[str, ...]:
        """`cautions` in English."""
        return self.cautions()

    def kept(self, one: Candidate) -> str:
        """Promised times of a candidate, each where it was promised.

        Parameters
        ----------
        one : Candidate
            One of the plan's.

        Returns
        -------
        str
            Like "TTFT p95 825 ms, TPOT 36.6 ms"; a time without a percentile is a mean. Empty without promises.
        """
        at = {name: promise.percentile for name, promise in self.question.promises.items()}
        told = [
            f"{name.upper()}{'' if at[name] is None else f' p{at[name]:g}'} {units.format_time(seconds)}"
            for name, seconds in one.promised.items()
        ]
        return ", ".join(told)

    def cautions(self, language: str = "en") -> tuple[str, ...]:
        """Say what a reader should know: people who wait without end, lengths beyond the model's, old prices.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        tuple of str
            Sentences.
        """
        found = []
        if self.question.users is not None and not {"ttft", "e2e"} & set(self.question.promises):
            found.append(text("planner.no_patience", language))
        if self.max_context and self.question.longest > self.max_context:
            lengths = {"longest": f"{self.question.longest:,}", "most": f"{self.max_context:,}"}
            found.append(text("planner.too_long", language, **lengths))
        stale = [price.stale_warning(language=language) for price in self.prices]
        return (*found, *(warning for warning in stale if warning))

    def refusals(self, language: str = "en") -> dict[str, int]:
        """Say why deployments cannot be used.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        dict of str to int
            Deployments by reason, in that language.
        """
        names = {said: name for name, said in group("planner", "en").items() if name.startswith("refused_")}
        return {text(f"planner.{names[reason]}", language): count for reason, count in self.refused.items()}

    def gives_up(self, other: Candidate, language: str = "en") -> list[str]:
        """Say what a candidate gives up against the cheapest, and what it gains.

        Parameters
        ----------
        other : Candidate
            One of the others.
        language : str
            "en" or "ko".

        Returns
        -------
        list of str
            Short sentences.
        """
        return _differences(self.best, other, partial(text, language=language))

    def to_dict(self) -> dict[str, Any]:
        """Give everything, with the names of the JSON output.

        Returns
        -------
        dict
            `candidates`, `front`, `refused`, `searched`, `seconds`.
        """
        return {
            "question": self.question.to_dict(),
            "candidates": [one.to_dict() for one in self.candidates],
            "front": [one.to_dict() for one in self.front],
            "best_of": {name: one.to_dict() for name, one in self.best_of.items()},
            "refused": dict(self.refused),
            "nearest": None if self.nearest is None else vars(self.nearest),
            "warnings": list(self.warnings),
            "searched": self.searched,
            "deployments": self.deployments,
            "seconds": self.seconds,
        }


def _differences(best: Candidate, other: Candidate, say: Callable[..., str]) -> list[str]:
    dearer = other.usd_per_month / best.usd_per_month - 1.0
    found = [say("planner.cost_differs", change=f"{dearer:+.0%}") if abs(dearer) >= 0.005 else say("planner.cost_same")]
    for name, what in (("tpot_s", "token"), ("ttft_s", "first_token")):
        ratio = getattr(other, name) / getattr(best, name)
        times, way = max(ratio, 1.0 / ratio), "faster" if ratio < 1.0 else "slower"
        told = {"what": say(f"planner.{what}"), "share": f"{times - 1.0:.0%}", "times": f"{times:.2g}"}
        if times >= 1.05:
            found.append(say(f"planner.{way}" if times < 2.0 else f"planner.times_{way}", **told))
    if other.devices != best.devices:
        found.append(say("planner.devices_differ", other=other.devices, best=best.devices))
    if abs(other.p_slo - best.p_slo) >= 0.01:
        found.append(say("planner.sure_differs", other=f"{other.p_slo:.0%}", best=f"{best.p_slo:.0%}"))
    if best.prefill is not None and other.prefill is None:
        found.append(say("planner.together"))
    if best.prefill is None and other.prefill is not None:
        found.append(say("planner.apart"))
    if best.changes_weights and not other.changes_weights:
        found.append(say("planner.keeps_weights"))
    if other.changes_weights and not best.changes_weights:
        found.append(say("planner.rounds_weights", weights=other.weights))
    return found
