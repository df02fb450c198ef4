"""The question of a curve as it is asked: command line, page, API and report put it here and get the same answer.

A deployment, the context or the lengths of requests, limits, and the load under which lengths are served: clients that
keep requests in flight, requests that arrive at a rate, or a batch that starts together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from batchline import prior, readings, serving, step, sweep
from batchline.errors import InputError
from batchline.strings import Sentence, text
from batchline.units import format_rate, format_time, parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchline.deployment import Deployment
    from batchline.prior import Prior
    from batchline.serving import Speculation
    from batchline.sweep import Curve

__all__ = ["ARRIVALS", "DEFAULT_CONTEXT", "Arrivals", "Question", "parse_arrivals", "parse_draft", "served_sentence"]

DEFAULT_CONTEXT: Final = 4096.0
"""Context of a question that names neither a context nor lengths [token]."""

_MOST_VARIATION = 1e3
"""Largest coefficient of variation of the gaps between arrivals that is read [-]; traces show up to about ten."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests come.

    Parameters
    ----------
    of : str
        The load that it is a pattern of: "rate", "clients" or "batch".
    amount : float
        Squared coefficient of variation of the gaps of a rate, or how far clients send together, 0 to 1 [-].
    """

    of: str
    amount: float


ARRIVALS: Final = {
    "poisson": Arrivals("rate", 1.0),
    "even": Arrivals("rate", 0.0),
    "one-by-one": Arrivals("clients", 0.0),
    "together": Arrivals("clients", 1.0),
    "batch": Arrivals("batch", 0.0),
}
"""Patterns by name; cv:2 is one of a rate too."""


def parse_arrivals(words: str) -> Arrivals:
    """Read a pattern of arrivals.

    Parameters
    ----------
    words : str
        A name of `ARRIVALS`, or "cv:2": gaps of that coefficient of variation.

    Returns
    -------
    Arrivals
        The pattern.

    Raises
    ------
    InputError
        It is none.

    Examples
    --------
    >>> parse_arrivals("together"), parse_arrivals("cv:2")
    (Arrivals(of='clients', amount=1.0), Arrivals(of='rate', amount=4.0))
    """
    folded = words.strip().casefold()
    if folded in ARRIVALS:
        return ARRIVALS[folded]
    try:
        variation = float(folded.removeprefix("cv:"))
    except ValueError:
        variation = -1.0
    if not (folded.startswith("cv:") and 0 <= variation < _MOST_VARIATION):
        known = Sentence("error.known", names=", ".join([*ARRIVALS, "cv:2"]))
        raise InputError(Sentence("error.no_pattern", given=repr(words)), known)
    return Arrivals("rate", variation**2)


def parse_draft(words: str) -> Speculation:
    """Read what a draft model does.

    Parameters
    ----------
    words : str
        Acceptance [-], drafted tokens [token] and, if it takes any, the time to draft one: "0.7,3,1ms".

    Returns
    -------
    Speculation
        The same as numbers.

    Raises
    ------
    InputError
        It is none.
    UnitError
        The time cannot be read.

    Examples
    --------
    >>> parse_draft("0.7,3,1ms")
    Speculation(acceptance=0.7, draft_tokens=3, draft_s=0.001)
    """
    parts = [part.strip() for part in words.split(",")]
    problem = Sentence("error.no_draft", given=repr(words))
    try:
        acceptance, tokens = float(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        raise InputError(problem, "", Sentence("error.write_draft")) from None
    if not 0 <= acceptance <= 1 or tokens < 1 or len(parts) > 3:
        raise InputError(problem, Sentence("error.draft_range"), Sentence("error.write_draft"))
    return serving.Speculation(acceptance, tokens, parse_duration(parts[2]) if len(parts) > 2 else 0.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """Everything that a curve takes.

    Parameters
    ----------
    deployment : Deployment
        Model, accelerators, layout, formats, engine.
    context : float, optional
        Mean context of a sequence [token]; by default isl + osl / 2, without lengths `DEFAULT_CONTEXT`.
    isl, osl : float, optional
        Input and output length of a request [token]; both or neither.
    reading : str
        "predict", "bound" or "serial".
    step_limit : float, optional
        Longest step allowed [s].
    tokens_per_user : float, optional
        Least speed of a user allowed [1/s]; the shorter of the two limits counts.
    within : float, optional
        Take the smallest batch whose cost is this near to its floor [-].
    max_batch : int, optional
        Largest batch allowed, in the whole deployment [sequence].
    priors : Prior, optional
        Coefficients; default those of the package.
    concurrency : int, optional
        Requests that clients keep in flight [request]; by default, without a rate, the batch to run.
    rate : float, optional
        Requests that arrive [1/s], instead of clients.
    arrivals : Arrivals, optional
        How they come; by default Poisson for a rate, as seen with the engine for clients.
    prefix_hit_rate : float
        Share of a prompt found in the cache [-].
    max_num_batched_tokens : float, optional
        Chunked-prefill budget of a step [token]; default the engine's.
    speculation : Speculation, optional
        Speculative decoding.

    Raises
    ------
    InputError
        One length without the other, a load without lengths, clients and a rate, or a pattern that is not of the load.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> asked = Question(deployment=Deployment.of("llama-3.1-8b", "h100"), isl=1024, osl=128, rate=2.0)
    >>> asked.mean_context, round(asked.served(asked.curve())["requests_per_s"], 3)
    (1088.0, 2.0)
    """

    deployment: Deployment
    context: float | None = None
    isl: float | None = None
    osl: float | None = None
    reading: str = "predict"
    step_limit: float | None = None
    tokens_per_user: float | None = None
    within: float | None = None
    max_batch: int | None = None
    priors: Prior | None = None
    concurrency: int | None = None
    rate: float | None = None
    arrivals: Arrivals | None = None
    prefix_hit_rate: float = 0.0
    max_num_batched_tokens: float | None = None
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        isl, osl = self.isl, self.osl
        if isl is None or osl is None:
            if isl is not None or osl is not None:
                given, missing = ("--isl", "--osl") if osl is None else ("--osl", "--isl")
                problem = Sentence("error.lengths_together", missing=missing, given=given)
                raise InputError(problem, "", Sentence("error.give_lengths"))
            self._refuse_load_alone()
        elif isl < 1 or osl < 1:
            raise InputError(Sentence("error.lengths_from_1", isl=f"{isl:g}", osl=f"{osl:g}"))
        if self.rate is not None and self.concurrency is not None:
            raise InputError(Sentence("error.rate_or_clients"), "", Sentence("error.give_rate_or_clients"))
        if self.arrivals is not None and (self.arrivals.of == "rate") != (self.rate is not None):
            raise InputError(Sentence("error.other_pattern"), Sentence("error.patterns_of_loads"))

    def _refuse_load_alone(self) -> None:
        for name in ("concurrency", "rate", "arrivals", "prefix_hit_rate", "max_num_batched_tokens", "speculation"):
            if getattr(self, name):
                option = f"--{name.replace('_', '-')}"
                raise InputError(Sentence("error.load_alone", option=option), "", Sentence("error.give_lengths"))

    @property
    def mean_context(self) -> float:
        """Mean context of a sequence [token]."""
        if self.context is not None:
            return float(self.context)
        return DEFAULT_CONTEXT if self.isl is None or self.osl is None else self.isl + self.osl / 2

    @property
    def limit(self) -> float | None:
        """Longest step allowed by both limits [s]."""
        limits = [self.step_limit, None if self.tokens_per_user is None else 1 / self.tokens_per_user]
        return min((limit for limit in limits if limit is not None), default=None)

    def curve(self, batch: Any = None) -> Curve:
        """Answer it.

        Parameters
        ----------
        batch : array-like, optional
            Batches to evaluate [sequence]; default those of `batchline.sweep.curve`.

        Returns
        -------
        Curve
            As of `batchline.sweep.curve`, with its errors.
        """
        return sweep.curve(
            self.deployment,
            self.mean_context,
            batch,
            reading=self.reading,
            step_limit=self.limit,
            within=self.within,
            max_batch=self.max_batch,
            priors=self.priors,
        )

    def served(self, curve: Curve) -> dict[str, Any] | None:
        """Steady state under the load.

        Parameters
        ----------
        curve : Curve
            What `curve` gave: without clients and rate, as many requests as its batch to run are in flight.

        Returns
        -------
        dict or None
            What `batchline curve --json` has under `serving`; None without lengths.

        Raises
        ------
        DoesNotFitError
            Not one request of these lengths fits.
        """
        state = self.steady(curve)
        if state is None or self.isl is None or self.osl is None:
            return None
        many = {"concurrency": self._clients(curve)} if self.rate is None else {"rate": self.rate}
        said = {"isl": self.isl, "osl": self.osl, **many, **state.to_dict()}
        said |= self._intervals(state, self.isl, self.osl)
        if self.osl == 1:  # one token has no time after the first
            said |= dict.fromkeys(("tpot_s", "itl_s", "tpot_low_s", "tpot_high_s"))
        return said | self._drafted(self.isl, self.osl)

    def steady(self, curve: Curve) -> serving.Steady | None:
        """Steady state under the load, with what it is made of.

        Parameters
        ----------
        curve : Curve
            As of `served`.

        Returns
        -------
        serving.Steady or None
            None without lengths.

        Raises
        ------
        DoesNotFitError
            Not one request of these lengths fits.
        InputError
            A batch that starts together is larger than the cache holds.
        """
        if self.isl is None or self.osl is None:
            return None
        self.deployment.check_fits(self.isl + self.osl / 2)  # the curve's context may be a shorter one
        self._check_batch(self._clients(curve), self.isl + self.osl / 2)
        return readings.steady(
            self.deployment,
            self.isl,
            self.osl,
            **self._load(self._clients(curve)),
            max_num_seqs=(self.max_batch or math.inf) / self.deployment.dp,  # an engine's limit is that of a rank
            max_num_batched_tokens=self.max_num_batched_tokens,
            prefix_hit_rate=self.prefix_hit_rate,
            speculation=self.speculation,
            priors=self.priors,
        )

    def _check_batch(self, clients: int, context: float) -> None:
        """Refuse a batch that starts together where the cache does not hold it: others wait, its sequences cannot."""
        most = float(self.deployment.capacity_batch(context))
        if self.arrivals is not None and self.arrivals.of == "batch" and clients > most:
            raise InputError(
                Sentence("error.batch_beyond_cache", batch=f"{clients:,}", most=f"{most:,.0f}"),
                "",
                Sentence("error.give_fewer", most=f"{most:.0f}"),
            )

    def _clients(self, curve: Curve) -> int:
        return self.concurrency or curve.optimum.batch

    def _intervals(self, state: serving.Steady, isl: float, osl: float) -> dict[str, float]:
        """90% intervals of TPOT and TTFT [s]: by such factors predictions of clients in a closed loop were off."""
        known, case = self.priors or prior.load(), readings.case_of(self.deployment)
        found: dict[str, float] = {}
        for of, seconds in (("tpot", float(state.tpot_s)), ("ttft", float(state.ttft_s))):
            low, high = known.interval(case, of, readings.CONFIDENCE)
            found |= {f"{of}_low_s": low * seconds, f"{of}_high_s": high * seconds}
        tokens = 1.0 if self.speculation is None else float(serving.tokens_per_step(self.speculation))
        floor = step.bound(readings.ideal_of(self.deployment, isl + osl / 2, isl), state.running_batch)
        return found | {"tpot_low_s": max(found["tpot_low_s"], float(floor) / tokens)}

    def _load(self, clients: int) -> dict[str, Any]:
        """Arguments of `readings.steady` that say how requests come."""
        if self.rate is not None:
            return {"rate": self.rate, "arrival_scv": 1.0 if self.arrivals is None else self.arrivals.amount}
        if self.arrivals is None:
            return {"concurrency": clients}
        if self.arrivals.of == "batch":
            return {"batch": clients}
        return {"concurrency": clients, "arrival_clumping": self.arrivals.amount}

    def _drafted(self, isl: float, osl: float) -> dict[str, float]:
        if self.speculation is None:
            return {}
        ideal = readings.ideal_of(self.deployment, isl + osl / 2, isl)
        known = (self.priors or prior.load()).coefficients(readings.case_of(self.deployment))
        return {
            "tokens_per_step": float(serving.tokens_per_step(self.speculation)),
            "break_even_batch": float(serving.break_even_batch(ideal, known, self.speculation)),
        }


def served_sentence(served: Mapping[str, Any], language: str) -> str:
    """Say what is served under a load, in the words of every face.

    Parameters
    ----------
    served : mapping
        As `Question.served` gives it.
    language : str
        "en" or "ko".

    Returns
    -------
    str
        Times, throughput, whether a draft pays, and what stops more load.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> asked = Question(deployment=Deployment.of("llama-3.1-8b", "h100"), isl=1024, osl=128, rate=500.0)
    >>> served_sentence(asked.served(asked.curve()), "en")[:31]
    'That rate is not sustained: 1,0'
    """
    endless = not math.isfinite(served["ttft_s"])

    def time(of: str) -> str:
        if served[f"{of}_s"] is None or not math.isfinite(served[f"{of}_s"]):
            return "-"
        told = {end: format_time(served[f"{of}{end}_s"]) for end in ("", "_low", "_high")}
        return text("curve.time_between", language, time=told[""], low=told["_low"], high=told["_high"])

    fields = {
        "isl": f"{served['isl']:,.0f}",
        "osl": f"{served['osl']:,.0f}",
        "tpot": time("tpot"),
        "ttft": time("ttft"),
        "rate": format_rate(served["output_tokens_per_s"]),
    }
    if "rate" not in served:
        said = [text("curve.served", language, concurrency=f"{served['concurrency']:,}", **fields)]
    elif endless:
        said = [text("curve.beyond_rate", language, **fields)]
    else:
        said = [text("curve.served_rate", language, arrive=format_rate(served["rate"], "req/s"), **fields)]
    if "break_even_batch" in served:
        most = served["break_even_batch"]
        key = "draft_never" if not most else "draft_always" if math.isinf(most) else "draft_pays"
        said.append(text(f"curve.{key}", language, tokens=f"{served['tokens_per_step']:.2f}", batch=f"{most:,.0f}"))
    if served["saturated_by"]:
        said.append(text(f"curve.stops_{served['saturated_by']}", language))
    return " ".join(said)
