"""Is it worth it: a smaller number format, speculative decoding, prompts on machines of their own.

Each answer is a gain against batch and context, or against a load, with the point named where it stops paying. A gain
is the cost of a token before over the cost after: 1.5 is a third cheaper, below 1 it is dearer.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import goodput, prior, queueing, readings, serving
from batchline.errors import InputError
from batchline.goodput import Server
from batchline.step import decode_step
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from batchline.deployment import Deployment
    from batchline.goodput import Promise
    from batchline.prior import Prior

__all__ = ["Apart", "FormatGain", "SpeculationGain", "disaggregation", "format_gain", "speculation_gain"]

_HALVINGS = 50


@dataclass(frozen=True, kw_only=True)
class FormatGain:
    """What another number format brings, speed and capacity apart.

    Parameters
    ----------
    batches, contexts : array
        Where it was looked at [sequence, token].
    gain : array
        Step before over step after at the same batch: contexts x batches [-].
    capacity_before, capacity_after : array
        Sequences that fit, for each context [sequence].
    full_gain : array
        Cost per token before over after when each runs as many sequences as fit, for each context [-].
    crossover_batch : tuple of (float or None)
        For each context the batch from which on the format no longer makes a step shorter; None if it always does,
        0 if it never does [sequence].
    """

    batches: NDArray[np.float64]
    contexts: NDArray[np.float64]
    gain: NDArray[np.float64]
    capacity_before: NDArray[np.float64]
    capacity_after: NDArray[np.float64]
    full_gain: NDArray[np.float64]
    crossover_batch: tuple[float | None, ...]

    def sentences(self) -> list[str]:
        """Say the answer in words.

        Returns
        -------
        list of str
            One sentence for each context.
        """
        return [self._sentence(i) for i in range(len(self.contexts))]

    def _sentence(self, i: int) -> str:
        crossing, first, last = self.crossover_batch[i], self.gain[i, 0], self.gain[i, -1]
        least, most = f"{self.batches[0]:,.0f}", f"{self.batches[-1]:,.0f}"
        if crossing is None:
            speed = Sentence("worth.faster", first=f"{first:.2f}", batch=least, last=f"{last:.2f}", most=most)
        elif crossing == 0:
            speed = Sentence("worth.no_faster")
        else:
            speed = Sentence("worth.faster_until", first=f"{first:.2f}", batch=least, crossing=f"{crossing:,.0f}")
        room = {"after": f"{self.capacity_after[i]:,.0f}", "before": f"{self.capacity_before[i]:,.0f}"}
        told = {"context": f"{self.contexts[i]:,.0f}", "speed": speed, "room": Sentence("worth.room", **room)}
        full = self.full_gain[i]
        if not np.isfinite(full):
            return Sentence("worth.at", **told)
        times = f"{full if full >= 1 else 1 / full:.2f}"
        kind = "same" if times == "1.00" else "cheaper" if full > 1 else "dearer"
        words = Sentence("worth.same") if kind == "same" else Sentence(f"worth.{kind}", times=times)
        return Sentence("worth.at_full", **told, result=words)


def format_gain(
    before: Deployment,
    *,
    weights: str | None = None,
    kv: str | None = None,
    batches: Sequence[float] = (1, 4, 16, 64, 256, 1024),
    contexts: Sequence[float] = (1024, 8192, 65536),
    priors: Prior | None = None,
) -> FormatGain:
    """Compare a deployment with the same one in other formats.

    Parameters
    ----------
    before : Deployment
        What is served now.
    weights, kv : str, optional
        Number formats to try; what is not named stays.
    batches : sequence of float
        Sequences decoded together [sequence].
    contexts : sequence of float
        Mean tokens of a sequence [token].
    priors : Prior, optional
        Coefficients; by default those that the package ships.

    Returns
    -------
    FormatGain
        Gain over batch and context, and where it crosses 1.

    Raises
    ------
    InputError
        No format is named.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> found = format_gain(Deployment.of("llama-3.1-70b", "4xh100"), weights="fp8", contexts=[4096])
    >>> bool(found.gain[0, 0] > 1.2), bool(found.capacity_after[0] > found.capacity_before[0])
    (True, True)
    """
    if weights is None and kv is None:
        raise InputError(Sentence("error.no_other_format"), "", Sentence("error.give_formats"))
    after = dataclasses.replace(before, weights=weights or before.weights, kv=kv or before.kv)
    coefficients = [(priors or prior.load()).coefficients(readings.case_of(one)) for one in (before, after)]
    grid = np.asarray(batches, dtype=float)
    lengths = np.asarray(contexts, dtype=float)

    def steps(which: int, context: float, batch: Any) -> Any:
        one = (before, after)[which]
        return decode_step(readings.ideal_of(one, context), coefficients[which], batch).total

    gain = np.array([steps(0, context, grid) / steps(1, context, grid) for context in lengths])
    room = np.array([[float(one.capacity_batch(context)) for context in lengths] for one in (before, after)])
    with np.errstate(divide="ignore", invalid="ignore"):
        full = np.array(
            [
                (steps(0, context, room[0, i]) / room[0, i]) / (steps(1, context, room[1, i]) / room[1, i])
                if min(room[:, i]) >= 1
                else np.nan
                for i, context in enumerate(lengths)
            ]
        )
    crossings = tuple(
        _crossing(lambda batch, c=context: steps(0, c, batch) / steps(1, c, batch)) for context in lengths
    )
    return FormatGain(
        batches=grid,
        contexts=lengths,
        gain=gain,
        capacity_before=room[0],
        capacity_after=room[1],
        full_gain=full,
        crossover_batch=crossings,
    )


def _crossing(gain: Any, limit: float = 65536.0) -> float | None:
    """Batch at which a gain that starts above 1 falls to it; None if it never does, 0 if it starts below."""
    if gain(1.0) <= 1.0 + 1e-9:
        return 0.0
    if gain(limit) > 1.0 + 1e-9:
        return None
    low, high = 1.0, limit
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gain(middle) > 1.0 + 1e-9 else (low, middle)
    return high


@dataclass(frozen=True, kw_only=True)
class SpeculationGain:
    """What speculative decoding brings at a load.

    Parameters
    ----------
    tokens_per_step : float
        Tokens that a step yields [token].
    break_even_batch : float
        Batch up to which a token gets cheaper; infinite if it always does [sequence].
    batch_without, batch_with : float
        Sequences decoded together at the load [sequence].
    tpot_without_s, tpot_with_s : float
        Time per output token at the load [s]; infinite where the load cannot be carried.
    most_without, most_with : float
        Most requests that keep the promises [1/s].
    """

    tokens_per_step: float
    break_even_batch: float
    batch_without: float
    batch_with: float
    tpot_without_s: float
    tpot_with_s: float
    most_without: float
    most_with: float

    @property
    def pays(self) -> bool:
        """Whether more load keeps the promises with it."""
        return self.most_with > self.most_without

    @property
    def sentence(self) -> Sentence:
        """All this in words."""
        limit = Sentence("worth.up_to", batch=f"{self.break_even_batch:,.0f}")
        if math.isinf(self.break_even_batch):
            limit = Sentence("worth.always")
        if self.break_even_batch == 0:
            limit = Sentence("worth.never")
        return Sentence(
            "worth.draft",
            limit=limit,
            batch=f"{self.batch_without:,.0f}",
            speed=f"{self.tpot_without_s / self.tpot_with_s:.2f}",
            with_it=f"{self.most_with:.3g}",
            without=f"{self.most_without:.3g}",
        )

    def __str__(self) -> str:
        return str(self.sentence)


def _server(one: Deployment, isl: float, osl: float, priors: Prior | None, **options: Any) -> Server:
    context = isl + osl / 2
    return Server(
        ideal=readings.ideal_of(one, context, isl),
        coefficients=(priors or prior.load()).coefficients(readings.case_of(one)),
        isl=isl,
        osl=osl,
        capacity_batch=float(one.capacity_batch(context)),
        **options,
    )


def speculation_gain(
    one: Deployment,
    speculation: serving.Speculation,
    isl: float,
    osl: float,
    rate: float,
    promises: Mapping[str, Promise],
    priors: Prior | None = None,
) -> SpeculationGain:
    """Say whether speculative decoding pays at a load.

    Parameters
    ----------
    one : Deployment
        One replica.
    speculation : Speculation
        Acceptance, draft length and draft time.
    isl, osl : float
        Input and output length [token].
    rate : float
        Requests that arrive at it [1/s].
    promises : mapping of str to Promise
        What is promised.
    priors : Prior, optional
        Coefficients; by default those that the package ships.

    Returns
    -------
    SpeculationGain
        Break-even batch, and both sides at the load.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> from batchline.goodput import Promise
    >>> spec = serving.Speculation(acceptance=0.8, draft_tokens=3, draft_s=0.2e-3)
    >>> found = speculation_gain(Deployment.of("llama-3.1-8b", "h100"), spec, 512, 512, 1.0, {"tpot": Promise(0.03)})
    >>> found.tpot_with_s < found.tpot_without_s
    True
    """
    plain, drafted = _server(one, isl, osl, priors), _server(one, isl, osl, priors, speculation=speculation)
    shown = []
    for server in (plain, drafted):
        batch = goodput.batch_for(server, rate, np.asarray(server.slots, dtype=float))
        there = goodput.point(server, batch, server.slots, {})
        full = float(np.asarray(there.requests_per_s)) < rate * 0.999
        shown.append((float(batch), math.inf if full else float(np.asarray(there.tpot_s))))
    most = [goodput.goodput(server, promises) for server in (plain, drafted)]
    carried = [float(np.asarray(found.point.requests_per_s)) if bool(found.keeps) else 0.0 for found in most]
    return SpeculationGain(
        tokens_per_step=float(serving.tokens_per_step(speculation)),
        break_even_batch=serving.break_even_batch(plain.ideal, plain.coefficients, speculation),
        batch_without=shown[0][0],
        batch_with=shown[1][0],
        tpot_without_s=shown[0][1],
        tpot_with_s=shown[1][1],
        most_without=carried[0],
        most_with=carried[1],
    )


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Prompts and decoding on machines of their own, against both on the same.

    Parameters
    ----------
    together : int or None
        Replicas that carry the load when each does both; None when none keeps the promises.
    prefill, decode : int or None
        Replicas of each pool; None when the promises cannot be kept.
    transfer_s : float
        Time to move a prompt's KV cache [s].
    why_not : str
        What stops the pools, if they are stopped.
    """

    together: int | None
    prefill: int | None
    decode: int | None
    transfer_s: float
    why_not: str = ""

    @property
    def apart(self) -> int | None:
        """Replicas of both pools [-]; None where no pools can serve."""
        return None if self.prefill is None or self.decode is None else self.prefill + self.decode

    @property
    def pays(self) -> bool:
        """Whether the pools need fewer replicas."""
        if self.apart is None:
            return False
        return self.together is None or self.apart < self.together

    def __str__(self) -> str:
        if self.apart is None:
            return f"Apart it cannot be done: {self.why_not}."
        pools = f"{self.prefill} replicas for prompts and {self.decode} for decoding"
        if self.together is None:
            return f"Together it cannot be done; apart {pools} do it."
        verdict = "it pays" if self.pays else "it does not pay"
        return f"Apart {pools}, together {self.together}: {verdict} at this load."


def disaggregation(
    one: Deployment,
    isl: float,
    osl: float,
    rate: float,
    promises: Mapping[str, Promise],
    *,
    network_bandwidth: float = serving.NETWORK_BANDWIDTH,
    headroom: float = 0.1,
    prefix_hit_rate: float = 0.0,
    priors: Prior | None = None,
) -> Apart:
    """Say whether prompts on machines of their own need fewer machines.

    Parameters
    ----------
    one : Deployment
        One replica, of either kind.
    isl, osl : float
        Input and output length [token].
    rate : float
        Requests that arrive [1/s].
    promises : mapping of str to Promise
        "tpot" binds the decoding pool, "ttft" the prompts' pool and the transfer between them.
    network_bandwidth : float
        Link over which a replica sends KV caches [B/s].
    headroom : float
        Share of what each pool could carry that is kept free [-].
    prefix_hit_rate : float
        Share of prompt tokens found in the prefix cache [-].
    priors : Prior, optional
        Coefficients; by default those that the package ships.

    Returns
    -------
    Apart
        Replicas apart and together.

    Notes
    -----
    Both kinds of replicas have the layout of this one. `batchline.planner` looks at all pairs of layouts.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> from batchline.goodput import Promise
    >>> asked = {"tpot": Promise.parse("p99:12ms"), "ttft": Promise.parse("p95:2s")}
    >>> print(disaggregation(Deployment.of("llama-3.1-8b", "h100"), 8192, 128, 20.0, asked))  # doctest: +ELLIPSIS
    Apart ...
    """
    transfer = float(serving.kv_transfer_s(one.architecture.stored_bytes(isl, one.kv), network_bandwidth))
    both = _server(one, isl, osl, priors, prefix_hit_rate=prefix_hit_rate)
    sure = rate / (1.0 - headroom)
    found = goodput.goodput(both, promises)
    together = _replicas(sure, found.point.requests_per_s) if bool(found.keeps) else None
    decoder = dataclasses.replace(both, elsewhere=lambda rate, _percentile: 0.0 * rate)
    decoding = goodput.goodput(decoder, promises)
    if not bool(decoding.keeps):
        return Apart(together=together, prefill=None, decode=None, transfer_s=transfer, why_not="tokens take too long")
    fewest = _replicas(sure, decoding.point.requests_per_s)
    best: tuple[int, int] | None = None
    for replicas in range(fewest, 8 * fewest + 1):  # more of them wait less, which may save replicas for prompts
        if best is not None and replicas + 1 >= sum(best):
            break
        shown, keeps = goodput.at_load(decoder, sure / replicas, promises)
        prompts = _prompt_replicas(both, sure, shown, promises, transfer) if bool(keeps) else None
        if prompts is not None and (best is None or prompts + replicas < sum(best)):
            best = (prompts, replicas)
    if best is None:
        why = "the prompt and its transfer take longer than promised"
        return Apart(together=together, prefill=None, decode=None, transfer_s=transfer, why_not=why)
    return Apart(together=together, prefill=best[0], decode=best[1], transfer_s=transfer)


def _replicas(rate: float, carried: Any) -> int:
    return max(1, math.ceil(rate / float(np.asarray(carried)) * (1 - 1e-12)))


def _prompt_replicas(
    server: Server, rate: float, decoding: goodput.Point, promises: Mapping[str, Promise], transfer: float
) -> int | None:
    """Fewest replicas that compute the prompts in what decoding leaves of the promises, each a queue."""
    prompt = float(np.asarray(server.load.prompt_s(0.0)))
    busy, ranks = float(np.asarray(server.load.busy_s(8192))), float(np.asarray(server.ideal.dp))
    use = 1.0 - 1e-9
    for name in ("ttft", "e2e"):
        if name in promises:
            wait = promises[name].seconds - float(np.asarray(decoding.kept[name])) - transfer - prompt
            use = min(use, float(queueing.use_at_wait(wait / busy, 1.0 / ranks, promises[name].percentile)))
    return None if use <= 0.0 else max(1, math.ceil(rate * busy / ranks / use))
