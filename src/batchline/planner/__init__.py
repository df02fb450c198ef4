"""The cheapest deployment that keeps the promise: an exhaustive search, its Pareto front, and how sure it is.

    answer = plan("llama-3.1-70b", isl=4096, osl=1024, rate=20, ttft="p95:2s", tpot="40ms")
    answer.best.title, answer.best.usd_per_month, answer.best.p_slo

Every deployment of `batchline.space` is decided, none is sampled. For each, `batchline.goodput` finds the widest limit
on the batch and the most load that keep the promises; both follow from laws that hold by construction (more batch never
makes a step shorter, more load never makes a wait shorter), so each of the engine's batches is decided without trying
it. Memory is first counted without activations, which flatters; whatever then leads, by cost or on the front, is
counted again as its engine does (`batchline.engine`), until nothing that leads is flattered. So the winner is the
winner of all.

    question    what is asked
    considered  what is considered where the question leaves it open
    search      the load that each carries, and which of them lead
    disaggregation  pools for prompts and for decoding
    told        what is told of those
    answer      the answer
    replicas    deployments for a fleet
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import prior
from batchline.errors import InputError
from batchline.planner.answer import Candidate, Nearest, Plan, Prefill
from batchline.planner.considered import space_of
from batchline.planner.question import BASES, Question, load_question
from batchline.planner.replicas import replicas
from batchline.planner.search import Search
from batchline.planner.told import candidates, nearest
from batchline.strings import Sentence

if TYPE_CHECKING:
    from batchline.fleet import Pool
    from batchline.prior import Prior
    from batchline.space import Space

__all__ = [
    "BASES",
    "Candidate",
    "Nearest",
    "Plan",
    "Prefill",
    "Question",
    "cheapest",
    "load_question",
    "plan",
    "pools",
    "space_of",
]


def plan(model: str | Question, priors: Prior | None = None, **options: Any) -> Plan:
    """Find the cheapest deployment that keeps the promises at a load.

    Parameters
    ----------
    model : str or Question
        A model, with the rest of the question as options; or a whole question.
    priors : Prior, optional
        Coefficients and intervals; by default those that the package ships.
    **options
        As of `Question`.

    Returns
    -------
    Plan
        Cheapest deployments, Pareto front, what was refused and why.

    Raises
    ------
    InputError
        A question that cannot be.
    MissingFactError
        An accelerator was named whose price nobody knows.

    Examples
    --------
    >>> answer = plan("llama-3.1-8b", isl=1024, osl=256, rate=5, tpot="p95:30ms", ttft="p95:1s", accelerators=("l40s",))
    >>> answer.best.accelerator, answer.best.promised["tpot"] <= 0.030
    ('l40s', True)
    """
    question = model if isinstance(model, Question) else Question(model=model, **options)
    started = time.perf_counter()
    search = Search(question, space_of(question, priors or prior.load()))
    leading = search.settle()
    front, best_of = (search.front(), search.best_of()) if leading else ([], {})
    known = candidates(search, list(dict.fromkeys([*leading, *front, *best_of.values()]))) if leading else {}
    told = [known[pair] for pair in leading]
    used = {one.accelerator for one in told}
    return Plan(
        question=question,
        candidates=tuple(told),
        front=tuple(known[pair] for pair in front),
        refused=dict(sorted(search.refused.items(), key=lambda row: -row[1])),
        searched=(search.space.considered * len(question.budgets) + (search.pools.pairs if search.pools else 0))
        * question.max_batch,
        deployments=search.space.considered,
        seconds=time.perf_counter() - started,
        nearest=None if leading else nearest(search, np.arange(len(search.budget))),
        prices=tuple(price for price in search.space.prices if price.accelerator in used),
        max_context=search.architecture.max_context,
        best_of={name: known[pair] for name, pair in best_of.items()},
    )


def cheapest(question: Question, priors: Prior | None = None, space: Space | None = None) -> Candidate | None:
    """Find the winner alone: what `plan` finds, in a fraction of the time.

    Parameters
    ----------
    question : Question
        What is asked.
    priors : Prior, optional
        Coefficients and intervals; by default those that the package ships.
    space : Space, optional
        What `space_of` gave for a question that differs in load, promises or `slower` only.

    Returns
    -------
    Candidate or None
        The cheapest deployment; None when none keeps the promises.

    Examples
    --------
    >>> asked = Question(model="llama-3.1-8b", isl=1024, osl=256, rate=5, tpot="p95:30ms", accelerators=("l40s",))
    >>> cheapest(asked) == plan(asked).best
    True
    """
    search = Search(question, space_of(question, priors or prior.load()) if space is None else space)
    first = search.settle(brief=True)
    return candidates(search, first)[first[0]] if first else None


def pools(question: Question, workload: str, priors: Prior | None = None) -> list[Pool]:
    """Deployments for a fleet, with the load of a workload that one replica of each carries.

    Parameters
    ----------
    question : Question
        The workload and its promises; its load does not matter here.
    workload : str
        What to call it.
    priors : Prior, optional
        Coefficients and intervals; by default those that the package ships.

    Returns
    -------
    list of fleet.Pool
        Of each accelerator and size the one that carries most, unless copies of smaller ones carry as much.

    Raises
    ------
    InputError
        The question is in users, whose rate depends on the deployment.

    Examples
    --------
    >>> asked = Question(model="llama-3.1-8b", isl=1024, osl=256, tpot="30ms", accelerators=("l40s",), max_devices=1)
    >>> [(pool.accelerator, pool.devices) for pool in pools(asked, "chat")]
    [('l40s', 1)]
    """
    if question.users is not None:
        raise InputError(Sentence("error.fleet_in_rates"), "", Sentence("error.rate_for_users"))
    asked = dataclasses.replace(question, rate=None)
    search = Search(asked, space_of(asked, priors or prior.load()))
    return replicas(search, workload)
