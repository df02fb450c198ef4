"""The cheapest deployment that keeps the promise: an exhaustive search, its Pareto front, and how sure it is.

    answer = plan("llama-3.1-70b", isl=4096, osl=1024, rate=20, ttft="p95:2s", tpot="40ms")
    answer.best.title, answer.best.usd_per_month, answer.best.p_slo

Every deployment of `batchline.space` is decided, none is sampled. For each, `batchline.goodput` finds the widest limit
on the batch and the most load that keep the promises; both follow from laws that hold by construction (more batch never
makes a step shorter, more load never makes a wait shorter), so each of the engine's batches is decided without trying
it. Memory is first counted without activations, which flatters; whatever then leads, by cost or on the front, is
counted again as its engine does (`batchline.engine`), until nothing that leads is flattered. So the winner is the
winner of all.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import cost, goodput, prior, units
from batchline import price as prices_module
from batchline import space as space_module
from batchline.accelerator import Accelerator, resolve
from batchline.architecture import Architecture
from batchline.deployment import Deployment
from batchline.engine import Request, account
from batchline.errors import BatchlineError, ConfigError, InputError, MissingFactError, UnknownNameError
from batchline.fleet import Pool
from batchline.goodput import Promise, Server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from batchline.price import Price
    from batchline.prior import Prior
    from batchline.roofline import Floats
    from batchline.space import Space
    from batchline.workload import Traffic

__all__ = ["BASES", "Candidate", "Nearest", "Plan", "Question", "cheapest", "load_question", "plan", "pools"]

BASES = ("rental", "contract", "neocloud", "hyperscaler")
"""What a device costs: rented on demand, by contract of years, or owned by a small or a large cloud."""

FORMATS = ("bf16", "fp8", "int8", "int4", "nvfp4")
BUDGETS = (2048, 4096, 8192, 16384)
ENGINES = ("vllm", "sglang", "trtllm")
_MORE = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)  # replicas over the fewest: dearer and faster
_SHOWN = 3
_TABLES = ("available", "prices", "slower")
_ROUNDS = 40
_ALIKE = 0.02  # times that differ by less are not worth a place on the front: predictions miss by more


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be served, to whom, and what may be used for it.

    Parameters
    ----------
    model : str
        Catalogue name or path.
    isl, osl : float
        Mean input and output length [token].
    rate : float or None
        Requests that arrive [1/s].
    users : float or None
        People who wait for an answer and then think; instead of `rate` [-].
    think_s : float
        Time that a person takes before the next request [s].
    ttft, tpot, itl, e2e : str or None
        Promises: time to first token, per output token, longest gap, whole request; like "2s" or "p95:2s".
    headroom : float
        Share of what the deployment could carry that is kept free [-].
    confidence : float or None
        Choose so that all promises hold with this chance, given how far predictions miss; None takes predictions as
        they are [-].
    prefix_hit_rate : float
        Share of prompt tokens found in the prefix cache [-].
    arrival_scv, length_scv : float
        Squared coefficients of variation of the gaps between arrivals (1: random) and of output lengths [-].
    max_model_len : int or None
        Longest request; by default the mean one [token].
    mean_context : float or None
        Mean tokens of a sequence while it decodes, where lengths vary; by default isl + osl / 2 [token].
    accelerators : tuple of str
        Names; empty for all that have a price.
    available : mapping of str to int
        Devices that there are of an accelerator; those not named have no limit [device].
    prices : mapping of str to float
        Prices of one's own, by name [USD/h].
    slower : mapping of str to float
        Times over the predicted ones on an accelerator, by name, as one has measured them oneself [-].
    basis : str
        Which catalogue price counts where none is given: one of `BASES`.
    weights, kv, engines : tuple of str
        Formats and engines to consider; empty for the usual ones. The weights "checkpoint" are its own format.
    max_devices : int
        Most devices of one replica [device].
    max_batch : int
        Most sequences of one data-parallel rank [sequence].
    budgets : tuple of int
        Chunked-prefill token budgets to consider [token].
    pue : float
        Power of the building over power of the machines [-].
    """

    model: str
    isl: float
    osl: float
    rate: float | None = None
    users: float | None = None
    think_s: float = 0.0
    ttft: str | None = None
    tpot: str | None = None
    itl: str | None = None
    e2e: str | None = None
    headroom: float = 0.1
    confidence: float | None = None
    prefix_hit_rate: float = 0.0
    arrival_scv: float = 1.0
    length_scv: float = 0.0
    max_model_len: int | None = None
    mean_context: float | None = None
    accelerators: tuple[str, ...] = ()
    available: Mapping[str, int] = field(default_factory=dict, hash=False)
    prices: Mapping[str, float] = field(default_factory=dict, hash=False)
    slower: Mapping[str, float] = field(default_factory=dict, hash=False)
    basis: str = "rental"
    weights: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    max_devices: int = 64
    max_batch: int = 1024
    budgets: tuple[int, ...] = BUDGETS
    pue: float = 1.0

    def __post_init__(self) -> None:
        for name in ("isl", "osl"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 1):
                raise InputError(
                    f"{name} = {getattr(self, name)}: a request has 1 token or more.", "", f"Give --{name}."
                )
        if self.rate is not None and self.users is not None:
            raise InputError("Both a rate and users are given.", "", "Give --rate or --users, not both.")
        for name in ("rate", "users"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} = {value}: it is more than 0.")
        for name, low, high in (("headroom", 0.0, 1.0), ("prefix_hit_rate", 0.0, 1.0)):
            if not low <= getattr(self, name) < high:
                raise InputError(f"{name} = {getattr(self, name)}: it lies from 0 to below 1.")
        if self.basis not in BASES:
            raise UnknownNameError("price basis", self.basis, BASES)
        if self.confidence is not None and not 0.5 <= self.confidence < 1:
            raise InputError(
                f"A confidence lies from 0.5 to 1, got {self.confidence:g}.", "", "Write --confidence 0.9."
            )
        for name, factor in self.slower.items():
            if not factor > 0:
                raise InputError(f"slower {name} = {factor}: a ratio of times is more than 0.")
        if not self.budgets or min(self.budgets) < 1 or self.max_batch < 1 or self.max_devices < 1:
            raise InputError("Budgets, the largest batch and the most devices are 1 or more.")
        _ = self.promises  # refuses what cannot be read

    @property
    def promises(self) -> dict[str, Promise]:
        """What is promised, by name."""
        given = {name: getattr(self, name) for name in goodput.PROMISES}
        return {name: Promise.parse(text) for name, text in given.items() if text is not None}

    @property
    def context(self) -> float:
        """Mean tokens of context of a sequence while it decodes [token]."""
        return self.isl + self.osl / 2 if self.mean_context is None else self.mean_context

    @property
    def longest(self) -> int:
        """Longest request [token]."""
        return self.max_model_len or math.ceil(self.isl + self.osl)

    @classmethod
    def of_traffic(cls, model: str, traffic: Traffic, **options: Any) -> Question:
        """Ask for a model under the traffic of a trace: its lengths, their spread, and its rate.

        Parameters
        ----------
        model : str
            Catalogue name or path.
        traffic : Traffic
            Requests with their arrivals, as `batchline.workload.trace` reads them.
        **options
            The rest of the question; what is given here wins.

        Returns
        -------
        Question
            With the mean context that a decoding sequence has (long answers stay longer), and with the spread of
            prompts counted as spread of arrivals, which lengthens the same queue (Kingman).

        Raises
        ------
        InputError
            Fewer than two requests, or all at once.
        """
        count, sums, last, gaps = 0, np.zeros(5), 0.0, np.zeros(2)
        longest = 0
        for chunk in traffic.chunks():
            isl, osl = chunk.isl.astype(float), np.maximum(chunk.osl.astype(float), 1.0)
            steps = np.diff(chunk.arrival_s, prepend=last)[0 if count else 1 :]
            gaps += (steps.sum(), (steps * steps).sum())
            sums += (isl.sum(), (isl * isl).sum(), osl.sum(), (osl * osl).sum(), (osl * (isl + osl / 2)).sum())
            count, last = count + len(chunk), float(chunk.arrival_s[-1])
            longest = max(longest, int((chunk.isl + chunk.osl).max()))
        if count < 2 or gaps[0] <= 0:
            raise InputError(f"{traffic.name or 'The traffic'} has no rate.", "It needs two requests at two times.")
        isl, isl2, osl, osl2 = sums[:4] / count
        gap, gap2 = gaps / (count - 1)
        found = {
            "isl": max(1.0, float(isl)),
            "osl": float(osl),
            "rate": float(1.0 / gap),
            "mean_context": float(sums[4] / sums[2]),
            "length_scv": max(0.0, float(osl2 / osl**2 - 1.0)),
            "arrival_scv": max(0.0, float(gap2 / gap**2 - 1.0)) + max(0.0, float(isl2 / max(isl, 1e-9) ** 2 - 1.0)),
            "max_model_len": longest,
        }
        if options.get("users") is not None:
            found.pop("rate")
        return cls(model=model, **(found | options))

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, for a file.

        Returns
        -------
        dict
            Names of this class and their values.
        """
        found = {}
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            default = entry.default if entry.default is not dataclasses.MISSING else None
            if entry.name in _TABLES:
                default = {}
            if value != default:
                found[entry.name] = dict(value) if isinstance(value, dict) else value
        return found

    def to_toml(self) -> str:
        """Write the question as a TOML file that `from_toml` reads.

        Returns
        -------
        str
            TOML.

        Examples
        --------
        >>> q = Question(model="llama-3.1-8b", isl=1024, osl=256, rate=2.0, tpot="p99:40ms")
        >>> Question.from_toml(q.to_toml()) == q
        True
        """
        lines = ["# A question for `batchline plan`."]
        tables = []
        for name, value in self.to_dict().items():
            if isinstance(value, dict):
                tables += ["", f"[{name}]", *(f"{_toml(key)} = {_toml(item)}" for key, item in value.items())]
            else:
                lines.append(f"{name} = {_toml(value)}")
        return "\n".join([*lines, *tables]) + "\n"

    @classmethod
    def from_toml(cls, text: str, source: str = "the file") -> Question:
        """Read a question.

        Parameters
        ----------
        text : str
            TOML.
        source : str
            What to call it in errors.

        Returns
        -------
        Question
            As it was saved.

        Raises
        ------
        ConfigError
            It is no TOML, or has keys that a question does not have.
        """
        import tomllib  # noqa: PLC0415  (files only)

        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{source} is no TOML: {error}.", "", "batchline plan --save writes one.") from None
        known = {entry.name for entry in dataclasses.fields(cls)}
        for name in data:
            if name not in known:
                raise UnknownNameError(f"key of {source}", name, known, "batchline plan --save writes one.")
        for name in ("accelerators", "weights", "kv", "engines", "budgets"):
            if name in data:
                data[name] = tuple(data[name]) if isinstance(data[name], list) else (data[name],)
        try:
            return cls(**data)
        except TypeError as error:
            raise ConfigError(f"{source} is no question: {error}.", "It needs model, isl and osl.") from None


def _toml(value: Any) -> str:
    import json  # noqa: PLC0415

    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


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

    @property
    def devices(self) -> int:
        """Devices of all replicas [device]."""
        return self.count * self.replicas

    def deployment(self, model: str | Architecture) -> Deployment:
        """One replica as a `Deployment`, for the curve and all that takes one.

        Parameters
        ----------
        model : str or Architecture
            The model of the plan.

        Returns
        -------
        Deployment
            With the price that the plan counted.
        """
        arch = model if isinstance(model, Architecture) else Architecture.load(model)
        return Deployment.of(
            arch,
            Accelerator.load(self.accelerator),
            usd_per_device_hour=self.usd_per_hour / self.devices,
            count=self.count,
            weights=self.weights if self.changes_weights else None,
            kv=self.kv,
            tp=self.tp,
            pp=self.pp,
            dp=self.dp,
            ep=self.ep,
            engine=self.engine,
        )

    @property
    def layout(self) -> str:
        """Parallel degrees above 1, like "TP4 PP2"."""
        degrees = [
            f"{name.upper()}{getattr(self, name)}" for name in ("tp", "pp", "dp", "ep") if getattr(self, name) > 1
        ]
        return " ".join(degrees) or "TP1"

    @property
    def title(self) -> str:
        """Devices, layout, formats and engine in a line."""
        times = f"{self.replicas} x " if self.replicas > 1 else ""
        formats = f"{self.weights} weights, {self.kv} KV"
        return f"{times}{self.count} x {self.accelerator}, {self.layout}, {formats}, {self.engine}"

    def to_dict(self) -> dict[str, Any]:
        """Give everything, with the names of the JSON output.

        Returns
        -------
        dict
            Plain values.
        """
        return {**vars(self), "promised": dict(self.promised), "devices": self.devices}


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

    def __str__(self) -> str:
        return (
            f"No deployment keeps {self.promise} of {units.format_time(self.promised_s)}. Nearest: {self.title}, with "
            f"{units.format_time(self.attainable_s)} for a single request; {self.binds} takes most of it."
        )


@dataclass(frozen=True, kw_only=True)
class Plan:
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
        Configurations decided: deployments x batches x budgets.
    deployments : int
        Deployments looked at.
    seconds : float
        Time of the search [s].
    nearest : Nearest or None
        What comes closest when no deployment keeps the promises.
    warnings : tuple of str
        Old prices, lengths beyond the model's, and the like.
    best_of : mapping of str to Candidate
        Cheapest candidate by what it uses: "weights fp8", "accelerator h100-sxm", "engine vllm", "kv fp8", "tp 4".
    """

    question: Question
    candidates: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    refused: Mapping[str, int]
    searched: int
    deployments: int
    seconds: float
    nearest: Nearest | None = None
    warnings: tuple[str, ...] = ()
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
            reason = str(self.nearest) if self.nearest else "Nothing can be started: " + _counted(self.refused)
            raise InputError(reason, "", "Loosen the promise, allow other accelerators, or shorten the requests.")
        return self.candidates[0]

    def gives_up(self, other: Candidate) -> list[str]:
        """Say what a candidate gives up against the cheapest, and what it gains.

        Parameters
        ----------
        other : Candidate
            One of the others.

        Returns
        -------
        list of str
            Short sentences.
        """
        return _differences(self.best, other)

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


def _counted(refused: Mapping[str, int]) -> str:
    rows = sorted(refused.items(), key=lambda row: -row[1])
    return "; ".join(f"{reason} ({n:,})" for reason, n in rows) or "no accelerator was considered"


def _differences(best: Candidate, other: Candidate) -> list[str]:
    found = []
    dearer = other.usd_per_month / best.usd_per_month - 1.0
    found.append(f"{dearer:+.0%} cost" if abs(dearer) >= 0.005 else "the same cost")
    for name, what in (("tpot_s", "a token"), ("ttft_s", "the first token")):
        ratio = getattr(other, name) / getattr(best, name)
        times, speed = max(ratio, 1.0 / ratio), "faster" if ratio < 1.0 else "slower"
        if times >= 1.05:
            found.append(f"{what} {times - 1.0:.0%} {speed}" if times < 2.0 else f"{what} {times:.2g} times {speed}")
    if other.devices != best.devices:
        found.append(f"{other.devices} devices instead of {best.devices}")
    if abs(other.p_slo - best.p_slo) >= 0.01:
        found.append(f"{other.p_slo:.0%} instead of {best.p_slo:.0%} sure")
    if best.changes_weights and not other.changes_weights:
        found.append("keeps the checkpoint's own weights")
    if other.changes_weights and not best.changes_weights:
        found.append(f"rounds the weights to {other.weights}")
    return found


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
    return _Search.of(question, priors or prior.load()).run(started)


def cheapest(question: Question, priors: Prior | None = None) -> Candidate | None:
    """Find the winner alone: what `plan` finds, in a fraction of the time.

    Parameters
    ----------
    question : Question
        What is asked.
    priors : Prior, optional
        Coefficients and intervals; by default those that the package ships.

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
    search = _Search.of(question, priors or prior.load())
    first = search.settle(brief=True)
    return search.candidates(first)[first[0]] if first else None


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
        raise InputError("A fleet is planned in requests a second.", "", "Give --rate instead of --users.")
    search = _Search.of(dataclasses.replace(question, rate=None), priors or prior.load())
    return search.pools(workload)


class _Search:
    """One question, its space and its answer."""

    def __init__(self, question: Question, priors: Prior, architecture: Architecture, space: Space) -> None:
        self.question = question
        self.priors = priors
        self.architecture = architecture
        self.promises = question.promises
        self.refused = dict(space.refused)
        self.space = space
        self.budgets = _telling(question, space)
        n, width = space.size, len(self.budgets)
        rows = np.repeat(np.arange(n), width)
        self.rows = space.take(rows)
        self.budget = np.tile(np.array(self.budgets, dtype=float), n)
        self.capacity = self.rows.capacity_batch.copy()
        self.load = question.users if question.users is not None else question.rate
        have = {resolve(name): float(number) for name, number in question.available.items()}
        limits = np.array([have.get(device.name, np.inf) for device in space.accelerators])
        measured = {resolve(name): factor for name, factor in question.slower.items()}
        self.slower = np.array([measured.get(device.name, 1.0) for device in space.accelerators])
        held = np.array([architecture.weight_bytes(name) for name in space.weights])
        read = np.array([float(architecture.kv_bytes_per_token(name)) for name in space.kvs])
        self.kept_bits = held[self.rows.weight] / held.max(initial=1.0) + 1e-3 * read[self.rows.kv] / read.max(
            initial=1.0
        )
        size, shape = len(rows), (len(rows), len(_MORE))
        self.there = limits[self.rows.accelerator] if size else np.zeros(0)
        self.exact, self.keeps, self.lacking = (np.zeros(size, dtype=bool) for _ in range(3))
        self.slots, self.most, self.allowed, self.replicas = (np.zeros(size) for _ in range(4))
        self.why = np.full(size, "", dtype="<U12")
        self.cost = np.full(shape, np.inf)
        self.tpot, self.ttft, self.devices, self.batch, self.copies = (np.zeros(shape) for _ in range(5))

    @classmethod
    def of(cls, question: Question, priors: Prior) -> _Search:
        architecture = Architecture.load(question.model)
        devices, prices = _priced(question)
        weights = _formats(question, architecture)
        space = space_module.enumerate_space(
            architecture,
            devices,
            prices,
            weights=weights,
            kvs=question.kv or ("bf16", "fp8"),
            engines=question.engines or ENGINES,
            context=question.context,
            isl=question.isl,
            max_devices=question.max_devices,
            priors=priors,
        )
        return cls(question, priors, architecture, space)

    # -- the load that each deployment carries -------------------------------------------------------------------------

    def server(self, index: NDArray[np.intp], *, sure: bool = True) -> Server:
        """Replicas of some rows; `sure` slows them as far as the asked confidence wants."""
        q, rows = self.question, self.rows.take(index)
        slower = self.slower[rows.accelerator] * (self._factor("tpot", rows) if sure else 1.0)
        return Server(
            ideal=rows.ideal,
            coefficients=rows.coefficients,
            isl=q.isl,
            osl=q.osl,
            capacity_batch=self.capacity[index],
            max_batch=float(q.max_batch),
            budget=self.budget[index],
            prefix_hit_rate=q.prefix_hit_rate,
            arrival_scv=q.arrival_scv,
            length_scv=q.length_scv,
            slower=slower,
            slower_ttft=self._factor("ttft", rows) if sure else 1.0,
        )

    def _factor(self, of: str, rows: Space) -> Floats:
        """Each promise is kept with the n-th root of the confidence, so that all n hold with it."""
        if self.question.confidence is None or not self.promises:
            return 1.0
        kinds = {"ttft": ("ttft", "e2e"), "tpot": ("tpot", "itl", "e2e")}[of]
        if not any(name in self.promises for name in kinds):
            return 1.0
        both = sum(any(name in self.promises for name in group) for group in (("ttft", "e2e"), ("tpot", "itl", "e2e")))
        return goodput.factor_at(self.question.confidence ** (1.0 / both), rows.factors[of])

    def carry(self, index: NDArray[np.intp]) -> None:
        """Find for each row the most load of a replica, the load it is given at the most, and the fewest replicas."""
        q = self.question
        limit = goodput.goodput(self.server(index), self.promises)
        keeps, requests = np.asarray(limit.keeps), np.asarray(limit.point.requests_per_s, dtype=float)
        most = requests if q.users is None else requests * (q.think_s + np.asarray(limit.point.e2e_s))
        allowed = np.where(keeps, most, 0.0) * (1.0 - q.headroom)
        with np.errstate(divide="ignore", invalid="ignore"):
            fewest = np.ones_like(most) if self.load is None else np.ceil(self.load / allowed * (1.0 - 1e-12))
        fewest = np.where(allowed > 0, np.maximum(fewest, 1.0), np.inf)
        self.slots[index], self.why[index], self.most[index] = limit.slots, limit.saturated_by, requests
        self.allowed[index], self.replicas[index] = allowed, np.where(np.isfinite(fewest), fewest, 1.0)
        self.keeps[index] = keeps & np.isfinite(fewest) & (self.capacity[index] > 0)
        self.lacking[index] = self.keeps[index] & (self.replicas[index] * self.rows.count[index] > self.there[index])
        self.keeps[index] &= ~self.lacking[index]

    # -- the search ----------------------------------------------------------------------------------------------------

    def settle(self, *, brief: bool = False) -> list[tuple[int, int]]:
        """Cheapest rows, once nothing that leads by cost or on the front is flattered; `brief` looks at cost alone.

        An exact count of memory only takes away, so a row that an exactly counted one beats stays beaten.
        """
        everything = np.arange(len(self.budget))
        if len(everything) == 0:
            return []
        self.carry(everything)
        self._refuse(everything)
        if not self.keeps.any():
            return []
        more = _MORE[:1] if brief or self.load is None else _MORE
        self._points(np.flatnonzero(self.keeps), more)
        for lead in (self._first,) if brief else (self._leaders, self._front):
            for _ in range(_ROUNDS):
                if not self._count_exactly(np.unique([row for row, _ in lead()]), more):
                    break
        return self._first() if brief else self._cheapest()

    def run(self, started: float) -> Plan:
        cheapest = self.settle()
        if not cheapest:
            return self._plan([], [], {}, self._nearest(np.arange(len(self.budget))), started)
        front, best_of = self._front(), self._best_of()
        told = self.candidates(list(dict.fromkeys([*cheapest, *front, *best_of.values()])))
        return self._plan(
            [told[pair] for pair in cheapest],
            [told[pair] for pair in front],
            {name: told[pair] for name, pair in best_of.items()},
            None,
            started,
        )

    def _origin(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        return rows // len(self.budgets)

    def _refuse(self, rows: NDArray[np.intp]) -> None:
        """Count deployments that no budget makes fit for the load, by the reason."""
        kept, lacking = np.zeros(self.space.size, dtype=bool), np.zeros(self.space.size, dtype=bool)
        np.logical_or.at(kept, self._origin(rows), self.keeps[rows])
        np.logical_or.at(lacking, self._origin(rows), self.lacking[rows])
        counts = {
            "more devices than are available": int((lacking & ~kept).sum()),
            "the promises are missed even by a single request": int((~kept & ~lacking).sum()),
        }
        self.refused |= {reason: n for reason, n in counts.items() if n}

    def _points(self, rows: NDArray[np.intp], more: tuple[float, ...]) -> None:
        """Find what rows show at the stated load with the fewest replicas and with more."""
        q = self.question
        server = self.server(rows, sure=False)
        base, slots = self.replicas[rows], self.slots[rows]
        self.cost[rows] = np.inf
        before = np.zeros(len(rows))
        for j, times in enumerate(more):
            copies = np.ceil(base * times)
            fresh = self.keeps[rows] & (copies > before) & (copies * self.rows.count[rows] <= self.there[rows])
            before = copies
            load = self.allowed[rows] if self.load is None else self.load / copies
            batch = goodput.batch_for(server, load, slots, think_s=q.think_s if q.users is not None else None)
            shown = goodput.point(server, batch, slots, {})
            usd = copies * self.rows.usd_per_hour[rows]
            # Without a load a replica is judged by what a request costs when it carries the most.
            worth = usd if self.load is not None else usd / 3600.0 / np.asarray(shown.requests_per_s)
            self.cost[rows, j] = np.where(fresh, worth, np.inf)
            self.tpot[rows, j], self.ttft[rows, j] = shown.tpot_s, shown.ttft_s
            self.devices[rows, j] = copies * self.rows.count[rows]
            self.batch[rows, j], self.copies[rows, j] = batch, copies

    def _count_exactly(self, rows: NDArray[np.intp], more: tuple[float, ...]) -> bool:
        """Count the memory of rows as their engines do, and find their load again; False when all were counted."""
        rows = rows[~self.exact[rows]]
        if len(rows) == 0:
            return False
        self.capacity[rows] = [self._engine_capacity(int(row)) for row in rows]
        self.exact[rows] = True
        self.carry(rows)
        self._points(rows, more)
        return True

    def _engine_capacity(self, row: int) -> float:
        space, q = self.rows, self.question
        layout = space.layouts[space.layout[row]]
        seqs = int(max(1, min(q.max_batch, self.slots[row] // layout.dp)))
        try:
            made = account(
                self.architecture,
                space.accelerators[space.accelerator[row]],
                space.engines[space.engine[row]],
                weights=space.weights[space.weight[row]],
                kv=space.kvs[space.kv[row]],
                tp=layout.tp,
                pp=layout.pp,
                dp=layout.dp,
                ep=layout.ep,
                request=Request(
                    max_model_len=q.longest, max_num_seqs=seqs, max_num_batched_tokens=int(self.budget[row])
                ),
            )
        except UnknownNameError:
            return float(self.capacity[row])  # an engine without facts of its own is taken at the simple count
        except BatchlineError:
            return 0.0
        if not made.fits:
            return 0.0
        return float(min(self.capacity[row], made.capacity_batch(q.context)))

    def _leaders(self) -> list[tuple[int, int]]:
        return [*self._cheapest(), *self._best_of().values()]

    def _order(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Cheapest first; at the same price fewer devices, then more bits, a faster token, a smaller budget."""
        keys = (
            rows,
            self.budget[rows],
            np.round(np.log(self.tpot[rows, 0]) / _ALIKE),
            -self.kept_bits[rows],
            self.devices[rows, 0],
            self.cost[rows, 0].round(9),
        )
        return rows[np.lexsort(keys)]

    def _first(self) -> list[tuple[int, int]]:
        """The cheapest row alone."""
        return [(int(row), 0) for row in self._order(np.flatnonzero(np.isfinite(self.cost[:, 0])))[:1]]

    def _cheapest(self) -> list[tuple[int, int]]:
        """The cheapest row and those of other accelerators, or failing them of other formats and sizes of a replica."""
        rows = self._order(np.flatnonzero(np.isfinite(self.cost[:, 0])))
        chosen: list[int] = []
        for kind in (("accelerator",), ("accelerator", "weight", "count")):
            seen = {tuple(int(getattr(self.rows, name)[row]) for name in kind) for row in chosen}
            for row in rows:
                here = tuple(int(getattr(self.rows, name)[row]) for name in kind)
                if len(chosen) < _SHOWN and here not in seen:
                    seen.add(here)
                    chosen.append(int(row))
        own = [int(row) for row in rows if self.rows.weights[self.rows.weight[row]] is None][:1]
        chosen += [row for row in own if row not in chosen]  # always show what the checkpoint itself costs
        return [(row, 0) for row in chosen]

    def _front(self) -> list[tuple[int, int]]:
        """Pareto front of cost, time per token, time to first token and devices; times within 2% count as equal."""
        rows, columns = np.nonzero(np.isfinite(self.cost))
        times = [np.log(table[rows, columns]) / _ALIKE for table in (self.tpot, self.ttft)]
        tpot, ttft = (np.floor(values - values.min(initial=0.0)).astype(np.int64) for values in times)
        devices = self.devices[rows, columns].astype(np.int64)
        order = np.lexsort((columns, rows, devices, ttft, tpot, self.cost[rows, columns]))
        # Of those alike in all but cost the first is the cheapest: the others cannot be on the front.
        alike = (tpot[order] * (ttft.max(initial=0) + 1) + ttft[order]) * (devices.max(initial=0) + 1) + devices[order]
        order = order[np.sort(np.unique(alike, return_index=True)[1])]
        rows, columns, values = rows[order], columns[order], np.stack([tpot[order], ttft[order], devices[order]])
        cheap = self.cost[rows, columns]
        front = []
        while len(rows):
            front.append((int(rows[0]), int(columns[0])))
            # The first is the cheapest of what is left: what is better in nothing else is beaten.
            left = (values[0] < values[0, 0]) | (values[1] < values[1, 0]) | (values[2] < values[2, 0])
            left |= cheap < cheap[0]
            rows, columns, values, cheap = rows[left], columns[left], values[:, left], cheap[left]
        return front

    def _best_of(self) -> dict[str, tuple[int, int]]:
        """Cheapest row for each accelerator, format, engine and degree of tensor parallelism."""
        rows = self._order(np.flatnonzero(np.isfinite(self.cost[:, 0])))
        space = self.rows
        tp = np.array([one.tp for one in space.layouts])[space.layout[rows]]
        named: list[tuple[str, NDArray[np.intp], Any]] = [
            ("accelerator", space.accelerator[rows], [device.name for device in space.accelerators]),
            ("weights", space.weight[rows], [name or self.architecture.weight_format for name in space.weights]),
            ("kv", space.kv[rows], space.kvs),
            ("engine", space.engine[rows], space.engines),
            ("tp", tp, range(int(tp.max(initial=0)) + 1)),
        ]
        found: dict[str, tuple[int, int]] = {}
        for kind, index, names in named:
            values, first = np.unique(index, return_index=True)  # the first row of a value is its cheapest
            found |= {f"{kind} {names[i]}": (int(rows[at]), 0) for i, at in zip(values, first, strict=True)}
        return found

    def pools(self, workload: str) -> list[Pool]:
        """Rows that a fleet could want, their memory counted exactly."""
        rows = np.arange(len(self.budget))
        if len(rows) == 0:
            return []
        self.carry(rows)
        chosen: list[int] = []
        for _ in range(_ROUNDS):
            chosen = self._unbeaten(rows[self.keeps])
            fresh = np.array([row for row in chosen if not self.exact[row]], dtype=np.intp)
            if len(fresh) == 0:
                break
            self.capacity[fresh] = [self._engine_capacity(int(row)) for row in fresh]
            self.exact[fresh] = True
            self.carry(fresh)
        return [self._pool(row, workload) for row in chosen]

    def _unbeaten(self, rows: NDArray[np.intp]) -> list[int]:
        """Of each accelerator and size the row that carries most, unless copies of smaller ones carry as much."""
        best: dict[tuple[int, int], int] = {}
        for row in rows[np.lexsort((self.budget[rows], -self.allowed[rows]))]:
            best.setdefault((int(self.rows.accelerator[row]), int(self.rows.count[row])), int(row))
        kept: dict[tuple[int, int], int] = {}
        for (device, size), row in sorted(best.items()):
            smaller = [(n, other) for (d, n), other in kept.items() if d == device]
            if all(self.allowed[other] * (size // n) < self.allowed[row] for n, other in smaller):
                kept[device, size] = row
        return list(kept.values())

    def _pool(self, row: int, workload: str) -> Pool:
        space = self.rows
        device, layout = space.accelerators[space.accelerator[row]], space.layouts[space.layout[row]]
        weights = space.weights[space.weight[row]] or self.architecture.weight_format
        degrees = " ".join(f"{name}{getattr(layout, name)}" for name in ("tp", "pp", "dp") if getattr(layout, name) > 1)
        name = f"{self.architecture.name} on {layout.count} x {device.name}"
        extra = f"{degrees or 'tp1'} {weights} kv {space.kvs[space.kv[row]]} {space.engines[space.engine[row]]}"
        return Pool(
            name=f"{name}, {extra}",
            accelerator=device.name,
            devices=layout.count,
            usd_per_hour=float(space.usd_per_hour[row]),
            capacity={workload: float(self.allowed[row])},
        )

    # -- what is told --------------------------------------------------------------------------------------------------

    def candidates(self, pairs: list[tuple[int, int]]) -> dict[tuple[int, int], Candidate]:
        """Everything that is told of rows, each with one of its numbers of replicas."""
        rows, columns = (np.array(part, dtype=np.intp) for part in zip(*pairs, strict=True))
        q, space = self.question, self.rows
        server = self.server(rows, sure=False)
        batch, slots, copies = self.batch[rows, columns], self.slots[rows], self.copies[rows, columns]
        shown = goodput.point(server, batch, slots, self.promises)
        rate = np.asarray(shown.requests_per_s, dtype=float)
        second = 1.0 / rate  # of a replica's time for each request
        prefill = np.minimum(shown.prefill_s, second)
        costs = cost.token_costs(
            space.usd_per_hour[rows],
            prefill,
            second - prefill,
            q.isl,
            q.osl,
            prefix_hit_rate=q.prefix_hit_rate,
            cached_s=np.minimum(shown.cached_s, prefill),
        )
        gap, sure = np.asarray(server.longest_gap_s(slots)), self._sure(rows, server, rate, slots, shown)
        found = {}
        for i, (row, column) in enumerate(pairs):
            device, price = (sequence[space.accelerator[row]] for sequence in (space.accelerators, space.prices))
            layout, weights = space.layouts[space.layout[row]], space.weights[space.weight[row]]
            usd = float(copies[i] * space.usd_per_hour[row])
            month = float(cost.usd_per_month(usd))
            spread = cost.usd_range(month, price)
            joules = (
                None
                if device.tdp is None
                else float(cost.joules_per_token(device.tdp * layout.count, rate[i] * q.osl, q.pue))
            )
            found[row, column] = Candidate(
                accelerator=device.name,
                count=layout.count,
                tp=layout.tp,
                pp=layout.pp,
                ep=layout.ep,
                dp=layout.dp,
                replicas=int(copies[i]),
                weights=weights or self.architecture.weight_format,
                kv=space.kvs[space.kv[row]],
                engine=space.engines[space.engine[row]],
                batch=float(batch[i]),
                max_num_seqs=int(slots[i]),
                max_num_batched_tokens=int(self.budget[row]),
                requests_per_s=float(rate[i] * copies[i]),
                most_requests_per_s=float(self.most[row] * copies[i]),
                usd_per_hour=usd,
                usd_per_month=month,
                usd_per_month_range=(float(spread["low"]), float(spread["high"])),
                usd_per_mtok_input=_at(costs.usd_per_mtok_input, i),
                usd_per_mtok_cached=_at(costs.usd_per_mtok_cached, i),
                usd_per_mtok_output=_at(costs.usd_per_mtok_output, i),
                usd_per_mtok=_at(costs.usd_per_mtok, i),
                joules_per_token=joules,
                tpot_s=_at(shown.tpot_s, i),
                ttft_s=_at(shown.ttft_s, i),
                e2e_s=_at(shown.e2e_s, i),
                promised={name: _at(value, i) for name, value in shown.kept.items()},
                itl_peak_s=_at(gap, i),
                p_slo=_at(sure, i),
                novelty=self._novelty(row),
                saturated_by=str(self.why[row]),
                changes_weights=weights is not None,
            )
        return found

    def _sure(
        self, rows: NDArray[np.intp], server: Server, rate: Floats, slots: Floats, shown: goodput.Point
    ) -> NDArray[np.float64]:
        """Chance that all promises hold when the engine is slower than predicted by a random factor.

        All times scale with the factor f, so at a batch B the load is that of the predicted engine over f: B is what is
        searched, and f = X(B) / X follows.
        """
        slow_kinds = {name: promise for name, promise in self.promises.items() if name in ("tpot", "itl", "e2e")}

        def holds(batch: Floats) -> NDArray[np.bool_]:
            there = goodput.point(server, batch, slots, slow_kinds)
            slower, kept = there.requests_per_s / rate, np.asarray(batch < slots)
            for name, promise in slow_kinds.items():
                kept = kept & (np.asarray(there.kept[name]) * slower <= promise.seconds * (1 + 1e-9))
            return kept

        batch = goodput.largest(holds, slots)
        times = goodput.point(server, batch, slots, {}).requests_per_s / rate
        factors = self.rows.take(rows).factors
        sure = np.asarray(goodput.chance(times, factors["tpot"]))
        first = next((name for name in ("ttft", "e2e") if name in self.promises), None)
        if first is not None:
            sure = sure * goodput.chance(self.promises[first].seconds / np.asarray(shown.kept[first]), factors["ttft"])
        return np.asarray(sure)

    def _novelty(self, row: int) -> str:
        from batchline.readings import case_of  # noqa: PLC0415

        return self.priors.novelty(case_of(self.rows.deployment(row)))

    def _nearest(self, rows: NDArray[np.intp]) -> Nearest | None:
        """Deployment that a single request finds closest to the promises."""
        if not self.promises or len(rows) == 0:
            return None
        server = self.server(rows)
        alone = goodput.point(
            server, np.full(len(rows), 1e-6), np.maximum(self.slots[rows], server.ideal.dp), self.promises
        )
        over = np.stack([np.asarray(alone.kept[name]) / promise.seconds for name, promise in self.promises.items()])
        worst = over.max(axis=0)
        row = int(np.argmin(np.where(np.isfinite(worst), worst, np.inf)))
        name = list(self.promises)[int(np.argmax(over[:, row]))]
        one = np.array([rows[row]])
        single = self.server(one)
        parts = single.load.terms(single.ideal.dp).as_dict()
        if name in ("ttft", "e2e"):
            parts = {"the prompt": single.load.prompt_s(0.0), "the network": single.coefficients.ttft_constant} | (
                {"decoding": self.question.osl * single.tpot_s(single.ideal.dp)} if name == "e2e" else {}
            )
        binds = max(parts, key=lambda part: float(np.max(parts[part])))
        layout = self.rows.layouts[self.rows.layout[one[0]]]
        title = (
            f"{layout.count} x {self.rows.accelerators[self.rows.accelerator[one[0]]].name}, "
            f"{self.rows.weights[self.rows.weight[one[0]]] or self.architecture.weight_format} weights"
        )
        return Nearest(
            title=title,
            promise=name,
            promised_s=self.promises[name].seconds,
            attainable_s=float(np.asarray(alone.kept[name])[row]),
            binds=_IN_WORDS.get(binds, binds),
        )

    def _plan(
        self,
        candidates: list[Candidate],
        front: list[Candidate],
        best_of: dict[str, Candidate],
        nearest: Nearest | None,
        started: float,
    ) -> Plan:
        q = self.question
        return Plan(
            question=q,
            candidates=tuple(candidates),
            front=tuple(front),
            refused=dict(sorted(self.refused.items(), key=lambda row: -row[1])),
            searched=self.space.considered * q.max_batch * len(q.budgets),
            deployments=self.space.considered,
            seconds=time.perf_counter() - started,
            nearest=nearest,
            warnings=tuple(self._warnings(candidates)),
            best_of=best_of,
        )

    def _warnings(self, candidates: list[Candidate]) -> list[str]:
        found = []
        longest = self.architecture.max_context
        if longest and self.question.longest > longest:
            found.append(f"requests of {self.question.longest:,} tokens are beyond the model's {longest:,}.")
        used = {one.accelerator for one in candidates}
        for device, price in zip(self.space.accelerators, self.space.prices, strict=True):
            if device.name in used and (warning := price.stale_warning()):
                found.append(warning)
        return found


_IN_WORDS = {
    "weights": "reading the weights",
    "experts": "reading the experts",
    "kv": "reading the KV cache",
    "compute": "computing",
    "tp_latency": "latency between the devices",
    "tp_volume": "traffic between the devices",
    "ep_alltoall": "traffic to the experts",
    "per_step": "the engine's work on a step",
    "per_sequence": "the engine's work on a sequence",
    "per_layer": "starting kernels",
}


def _at(values: Floats, index: int) -> float:
    """One entry of an array, or the number that stands for all."""
    return float(np.asarray(values).reshape(-1)[index if np.ndim(values) else 0])


def _priced(question: Question) -> tuple[list[Accelerator], list[Price | None]]:
    """Devices to consider and their prices; one that was named must have a price."""
    own = {resolve(name): usd for name, usd in question.prices.items()}
    named = [Accelerator.load(name) for name in question.accelerators]
    devices = named or [Accelerator.load(name) for name in dict.fromkeys([*own, *prices_module.names()])]
    found: list[Price | None] = []
    for device in devices:
        if device.name in own:
            found.append(dataclasses.replace(prices_module.given(own[device.name]), accelerator=device.name))
            continue
        try:
            found.append(_catalogue_price(device.name, question.basis))
        except (MissingFactError, UnknownNameError):
            if named:
                raise MissingFactError(
                    f"No {question.basis} price of {device.name} is known, and none is assumed.",
                    "",
                    f"Give yours: --price {device.name}=2.5 (dollars per device and hour).",
                ) from None
            found.append(None)
    return devices, found


def _catalogue_price(name: str, basis: str) -> Price:
    if basis == "rental":
        return prices_module.load(name)
    usd = float(getattr(prices_module.owner_cost(name), basis))
    return dataclasses.replace(prices_module.given(usd), accelerator=name)


def _formats(question: Question, architecture: Architecture) -> tuple[str | None, ...]:
    if not question.weights:
        return space_module.default_weights(architecture, FORMATS)
    given = [None if name in ("checkpoint", architecture.weight_format) else name for name in question.weights]
    return tuple(dict.fromkeys(given))


def _telling(question: Question, space: Space) -> list[int]:
    """Budgets that can differ: of those that compute a prompt in equally many steps the smallest is best.

    A larger budget lengthens the longest gap and takes memory, and shortens nothing more.
    """
    fresh = question.isl * (1.0 - question.prefix_hit_rate)
    waited = float(np.min(space.coefficients.ttft_steps)) if space.size else 0.0
    found: dict[float, int] = {}
    for budget in sorted(set(question.budgets)):
        found.setdefault(max(math.ceil(fresh / budget), waited), budget)
    return list(found.values())


def load_question(path: str | Path) -> Question:
    """Read a question from a TOML file.

    Parameters
    ----------
    path : str or Path
        File that `Question.to_toml` wrote.

    Returns
    -------
    Question
        As it was saved.

    Raises
    ------
    ConfigError
        There is no such file, or it is no question.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", "", "batchline plan --save writes such a file.") from None
    return Question.from_toml(text, str(path))
