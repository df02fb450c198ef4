"""The best candidates of a plan, simulated: closed forms choose among millions, event by event decides among a few."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchline import readings, workload
from batchline.errors import InputError
from batchline.goodput import Promise
from batchline.simulate.pool import pool_of, transfer_of
from batchline.simulate.search import smallest_replicas
from batchline.simulate.sweep import Case, sweep
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor

    from batchline.deployment import Deployment
    from batchline.prior import Prior
    from batchline.simulate.pool import Pool
    from batchline.simulate.result import Result
    from batchline.step import Coefficients
    from batchline.workload import Lengths, Traffic

__all__ = ["Refined", "refine"]

_REQUESTS = 4000


@dataclass(frozen=True, kw_only=True, eq=False)
class Refined:
    """A candidate of a plan, and what it does when it is simulated.

    Parameters
    ----------
    candidate : Candidate
        Of the plan.
    result : Result
        With as many replicas as the plan says.
    replicas : int or None
        The fewest that keep the promises in the simulation [-]; None if none up to four times the plan's do, or if
        nothing was promised.
    """

    candidate: Any
    result: Result
    replicas: int | None

    @property
    def usd_per_hour(self) -> float | None:
        """Price of so many replicas [USD/h]."""
        if self.replicas is None:
            return None
        one = self.candidate.usd_per_hour / self.candidate.devices * self.candidate.count
        return float(self.candidate.usd_per_hour + one * (self.replicas - self.candidate.replicas))

    def to_dict(self) -> dict[str, Any]:
        """What was planned and what was found, by the names that the command line prints as JSON."""
        return {
            "deployment": self.candidate.title,
            "replicas_planned": self.candidate.replicas,
            "replicas": self.replicas,
            "usd_per_hour_planned": self.candidate.usd_per_hour,
            **self.result.to_dict(),
            "usd_per_hour": self.usd_per_hour,
        }


def refine(
    answer: Any,
    *,
    traffic: Traffic | None = None,
    priors: Prior | None = None,
    most: int = 3,
    seed: int = 0,
    source: Callable[[], Executor] | None = None,
) -> list[Refined]:
    """Simulate the first candidates of a plan, and order them by what they cost then.

    Parameters
    ----------
    answer : planner.Plan
        What `batchline.planner.plan` gave.
    traffic : Traffic, optional
        Requests; default 4,000 at the rate and with the lengths of the question.
    priors : Prior, optional
        Coefficients of the steps; default those of the package.
    most : int
        How many candidates [-].
    seed : int
        Of the requests.
    source : callable, optional
        As in `sweep`.

    Returns
    -------
    list of Refined
        Cheapest first; those that keep no promise last.

    Raises
    ------
    InputError
        The plan has no candidate, or the question neither a rate nor users.
    """
    if not answer.candidates:
        raise InputError(Sentence("error.no_candidate"))
    question = answer.question
    load = traffic or _traffic(question, seed)
    promises = {name: Promise.parse(str(promise)) for name, promise in question.promises.items()}
    candidates = list(answer.candidates[:most])
    pools = [_pool(question, candidate, priors) for candidate in candidates]
    apart = [_prefill(question, candidate, priors) for candidate in candidates]
    options = {"router": "least_loaded", "promises": promises}
    cases = [Case(pool=pool, traffic=load, options=options | more) for pool, more in zip(pools, apart, strict=True)]
    results = dict(sweep(cases, source))
    refined = [
        Refined(
            candidate=candidate,
            result=results[place],
            replicas=_fewest(pools[place], load, promises, 4 * candidate.replicas, source, apart[place]),
        )
        for place, candidate in enumerate(candidates)
    ]
    return sorted(refined, key=lambda one: math.inf if one.usd_per_hour is None else one.usd_per_hour)


def _fewest(
    pool: Pool,
    traffic: Traffic,
    promises: Mapping[str, Promise],
    most: int,
    source: Callable[[], Executor] | None,
    apart: Mapping[str, Any],
) -> int | None:
    if not promises or traffic.concurrency is not None:
        return None
    try:
        return smallest_replicas(
            pool, traffic, promises, most=most, source=source, router="least_loaded", **apart
        ).value
    except InputError:
        return None


def _pool(question: Any, candidate: Any, priors: Prior | None) -> Pool:
    context = question.mean_context or question.isl + question.osl / 2
    seats = max(math.ceil(candidate.max_num_seqs / candidate.dp), 1)
    deployment = candidate.deployment(question.model)
    return pool_of(
        deployment,
        context=context,
        coefficients=_coefficients(deployment, priors),
        knobs={"max_num_seqs": seats, "max_num_batched_tokens": max(candidate.max_num_batched_tokens, seats)},
        replicas=candidate.replicas,
    )


def _prefill(question: Any, candidate: Any, priors: Prior | None) -> dict[str, Any]:
    """Replicas that compute the prompts, where they have some of their own."""
    if candidate.prefill is None:
        return {}
    deployment = candidate.deployment(question.model, prefill=True)
    transfer, token = transfer_of(deployment, question.transfer)
    context = question.mean_context or question.isl + question.osl / 2
    known = _coefficients(deployment, priors)
    replicas, budget = candidate.prefill.replicas, candidate.prefill.max_num_batched_tokens
    knobs = {"max_num_batched_tokens": budget}
    pool = pool_of(deployment, context=context, coefficients=known, knobs=knobs, replicas=replicas)
    return {"prefill": pool, "transfer_s": transfer, "transfer_token_s": token}


def _coefficients(deployment: Deployment, priors: Prior | None) -> Coefficients | None:
    return None if priors is None else priors.coefficients(readings.case_of(deployment))


def _traffic(question: Any, seed: int) -> Traffic:
    isl, osl = workload.Fixed(round(question.isl)), _lengths(question.osl, question.length_scv)
    if question.users is not None:
        count = max(_REQUESTS, 10 * int(question.users))
        return workload.closed_loop(int(question.users), isl, osl, count=count, think_s=question.think_s, seed=seed)
    if question.rate is None:
        raise InputError(Sentence("error.no_load"), hint=Sentence("error.give_rate_or_users"))
    arrivals = (
        workload.Poisson(question.rate)
        if question.arrival_scv == 1
        else workload.GammaGaps(question.rate, math.sqrt(max(question.arrival_scv, 1e-6)))
    )
    return workload.synthetic(arrivals, isl, osl, count=_REQUESTS, seed=seed)


def _lengths(mean: float, scv: float) -> Lengths:
    if scv == 0:
        return workload.Fixed(round(mean))
    sigma = math.sqrt(math.log1p(scv))
    return workload.LogNormal(mean * math.exp(-(sigma**2) / 2), sigma)
