"""What would flip a plan: at which price, load, length, promise or efficiency another deployment wins.

Prices answer exactly: cost is proportional to price, and a plan knows the cheapest deployment of each accelerator. All
else is found by planning again among what was near, step by step and then by halving, and the answer at the threshold
is checked by a search of everything.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from batchline import prior
from batchline.errors import InputError
from batchline.planner import Candidate, Plan, Question, cheapest, space_of
from batchline.strings import Sentence, text, told
from batchline.units import format_time, format_usd

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchline.prior import Prior
    from batchline.space import Space

__all__ = ["Bar", "Flip", "flips", "tornado"]

_NEAR = 2.5  # accelerators whose best is at most so many times dearer take part
_STEPS = (1.4, 2.0, 4.0)  # how far a number is moved
_HALVINGS = 4  # a threshold is found to 4%


def _count(value: float) -> str:
    return f"{value:,.0f}"


_SHOWN: dict[str, Callable[[float], str]] = {
    "rate": lambda value: f"{value:,.3g}",
    **dict.fromkeys(("users", "isl", "osl"), _count),
    **dict.fromkeys(("ttft", "tpot", "itl", "e2e"), format_time),
    "price": format_usd,
}
"""How each number is written."""


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A threshold at which another deployment wins.

    Parameters
    ----------
    variable : str
        What is moved: "rate", "users", "isl", "osl", "ttft", "tpot", "price h100-sxm", "slower h100-sxm".
    now, threshold : float
        Its value, and the value from which on the other wins.
    above : bool
        Whether the other wins above the threshold or below it.
    winner : str
        The other deployment; empty when nothing keeps the promises there.
    sentence : str
        All this in words.
    """

    variable: str
    now: float
    threshold: float
    above: bool
    winner: str
    sentence: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sentence", self.told())

    def told(self, language: str = "en") -> str:
        """Say it in words.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            A sentence.
        """
        say = partial(text, language=language)
        result = say("planner.cheaper", winner=told(self.winner, language)) if self.winner else say("planner.nothing")
        kind, _, name = self.variable.partition(" ")
        if kind == "slower":
            times = f"{max(self.threshold, 1 / self.threshold):.2f}"
            return say(f"planner.flip_{'slower' if self.above else 'faster'}", name=name, times=times, result=result)
        show = _SHOWN[kind]
        way = say("planner.more" if self.above else "planner.less")
        values = {"threshold": show(self.threshold), "now": show(self.now), "way": way, "result": result}
        return say(f"planner.flip_{kind}", **values, **({"name": name} if name else {}))


@dataclass(frozen=True, kw_only=True)
class Bar:
    """How much the cost of the best deployment moves with a number.

    Parameters
    ----------
    variable : str
        As of `Flip`.
    low, high : float
        Values of the number.
    usd_low, usd_high : float or None
        Cost of the best deployment at each [USD/month]; None when nothing keeps the promises.
    winner_low, winner_high : str
        That deployment.
    same_low, same_high : bool
        Whether it has the devices and formats of the best one now.
    """

    variable: str
    low: float
    high: float
    usd_low: float | None
    usd_high: float | None
    winner_low: str
    winner_high: str
    same_low: bool
    same_high: bool

    @property
    def width(self) -> float:
        """Distance between the two costs [USD/month]; infinite where one does not exist."""
        if self.usd_low is None or self.usd_high is None:
            return math.inf
        return abs(self.usd_high - self.usd_low)


def flips(answer: Plan, priors: Prior | None = None) -> tuple[Flip, ...]:
    """Find what would make another deployment the cheapest.

    Parameters
    ----------
    answer : Plan
        A plan with a winner.
    priors : Prior, optional
        Coefficients, as of the plan.

    Returns
    -------
    tuple of Flip
        Nearest first: by how many times the number must change.
    """
    best = answer.best
    found = [*_price_flips(answer)]
    narrow, ask = _near(answer), _Asker(priors)
    for variable, now in _numbers(answer.question, best).items():
        for up in (True, False):
            flip = _flip(answer, narrow, variable, now, ask, up=up)
            if flip is not None:
                found.append(flip)
    return tuple(sorted(found, key=lambda flip: abs(math.log(flip.threshold / flip.now))))


def tornado(answer: Plan, share: float = 0.25, priors: Prior | None = None) -> tuple[Bar, ...]:
    """Move each number of the question up and down and plan again.

    Parameters
    ----------
    answer : Plan
        A plan with a winner.
    share : float
        How far: 0.25 is a quarter down and up [-].
    priors : Prior, optional
        Coefficients, as of the plan.

    Returns
    -------
    tuple of Bar
        Widest first.

    Raises
    ------
    InputError
        The share is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise InputError(Sentence("error.share_between", given=f"{share:g}"))
    best, narrow, ask, bars = answer.best, _near(answer), _Asker(priors), []
    numbers = _numbers(answer.question, best)
    price = best.usd_per_hour / best.devices
    numbers = {f"price {best.accelerator}": price, **numbers}
    for variable, now in numbers.items():
        low, high = now * (1 - share), now * (1 + share)
        ends = [ask(_moved(narrow, variable, value)) for value in (low, high)]
        bars.append(
            Bar(
                variable=variable,
                low=low,
                high=high,
                usd_low=ends[0].usd_per_month if ends[0] else None,
                usd_high=ends[1].usd_per_month if ends[1] else None,
                winner_low=ends[0].title if ends[0] else "",
                winner_high=ends[1].title if ends[1] else "",
                same_low=_kind(ends[0]) == _kind(best),
                same_high=_kind(ends[1]) == _kind(best),
            )
        )
    return tuple(sorted(bars, key=lambda bar: -bar.width))


class _Asker:
    """Finds the cheapest for one question after the other; those that open the same space share it."""

    def __init__(self, priors: Prior | None) -> None:
        self._priors = prior.load() if priors is None else priors
        self._spaces: dict[Any, Space] = {}

    def __call__(self, question: Question) -> Candidate | None:
        q = question
        prices = tuple(sorted(q.prices.items()))
        key = (q.accelerators, q.weights, q.kv, q.engines, q.max_devices, q.basis, prices, q.isl, q.context)
        if key not in self._spaces:
            self._spaces[key] = space_of(q, self._priors)
        return cheapest(q, self._priors, self._spaces[key])


def _kind(one: Candidate | None) -> tuple[str, ...]:
    """What makes a deployment another: the devices and the formats, not how many replicas or which degrees."""
    return () if one is None else (one.accelerator, one.weights, one.kv)


def _price_flips(answer: Plan) -> list[Flip]:
    best = answer.best
    others = [one for one in answer.best_of.values() if one.accelerator != best.accelerator]
    if not others:
        return []
    second = min(others, key=lambda one: one.usd_per_month)
    price = best.usd_per_hour / best.devices
    found = [
        Flip(
            variable=f"price {best.accelerator}",
            now=price,
            threshold=price * second.usd_per_month / best.usd_per_month,
            above=True,
            winner=second.title,
        )
    ]
    for name in dict.fromkeys(one.accelerator for one in others):
        one = answer.best_of[f"accelerator {name}"]
        now = one.usd_per_hour / one.devices
        threshold = now * best.usd_per_month / one.usd_per_month
        if one.usd_per_month > _NEAR * best.usd_per_month:
            continue
        found.append(
            Flip(
                variable=f"price {name}",
                now=now,
                threshold=threshold,
                above=False,
                winner=one.title,
            )
        )
    return found


def _near(answer: Plan) -> Question:
    """The same question, among accelerators, formats and engines that came near."""
    best = answer.best

    def close(kind: str) -> tuple[str, ...]:
        rows = [
            (name.removeprefix(f"{kind} "), one) for name, one in answer.best_of.items() if name.startswith(f"{kind} ")
        ]
        return tuple(name for name, one in rows if one.usd_per_month <= _NEAR * best.usd_per_month)

    # Engines that tie with the winner's would only be computed thrice.
    engines = tuple(
        name
        for name in close("engine")
        if name == best.engine or answer.best_of[f"engine {name}"].usd_per_month != best.usd_per_month
    )
    return dataclasses.replace(
        answer.question, accelerators=close("accelerator"), weights=close("weights"), kv=close("kv"), engines=engines
    )


def _numbers(question: Question, best: Candidate) -> dict[str, float]:
    """Numbers that can be moved, and their values."""
    found: dict[str, float] = {}
    for name in ("rate", "users"):
        if getattr(question, name) is not None:
            found[name] = getattr(question, name)
    found |= {"isl": question.isl, "osl": question.osl}
    found |= {name: promise.seconds for name, promise in question.promises.items()}
    found[f"slower {best.accelerator}"] = question.slower.get(best.accelerator, 1.0)
    return found


def _moved(question: Question, variable: str, value: float) -> Question:
    changes: dict[str, Any]
    kind, _, name = variable.partition(" ")
    if variable in question.promises:
        percentile = question.promises[variable].percentile
        changes = {variable: f"{value!r}s" if percentile is None else f"p{percentile:g}:{value!r}s"}
    elif variable in ("isl", "osl"):
        changes = {variable: max(1.0, round(value)), "max_model_len": None}
    elif kind == "price":
        changes = {"prices": {**question.prices, name: value}}
    elif kind == "slower":
        changes = {"slower": {**question.slower, name: value}}
    else:
        changes = {variable: value}
    return dataclasses.replace(question, **changes)


def _flip(answer: Plan, narrow: Question, variable: str, now: float, ask: _Asker, *, up: bool) -> Flip | None:
    best = answer.best
    here = _kind(best)

    def at(times: float) -> Candidate | None:
        return ask(_moved(narrow, variable, now * times))

    inner, outer, other = 1.0, None, None
    for step in _STEPS:
        times = step if up else 1.0 / step
        other = at(times)
        if _kind(other) != here:
            outer = times
            break
        inner = times
    if outer is None:
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(inner * outer)
        there = at(middle)
        if _kind(there) == here:
            inner = middle
        else:
            outer, other = middle, there
    threshold = now * outer
    full = dataclasses.replace(
        _moved(narrow, variable, threshold),
        accelerators=answer.question.accelerators,
        weights=answer.question.weights,
        kv=answer.question.kv,
        engines=answer.question.engines,
    )
    confirmed = ask(full)
    if _kind(confirmed) == here:
        return None  # among everything the winner stays
    return Flip(
        variable=variable,
        now=now,
        threshold=threshold,
        above=up,
        winner="" if confirmed is None else confirmed.title,
    )
