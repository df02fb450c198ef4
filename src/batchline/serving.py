"""Steady state of a serving engine: from a client's concurrency or a request rate to running batch, TPOT and TTFT.

    TPOT = step(B) / v + f (B_r - 1)+ / o  t_pf          while I decode, others' prompts are computed
    TTFT = t_0 + max(t_s, chunks) step(B) + t_pf [1 + 4 k (sqrt(B_r) - 1)] + wait        prompts ahead of mine
    closed loop   B = C o TPOT / (o TPOT + TTFT)         Little: a request decodes for this share of its life
    open loop     B = X o TPOT                           X requests/s arrive, whatever the engine does
    B_max  = what the KV cache or max_num_seqs holds; the others wait (C / B_max - 1) o TPOT

In the open loop a request meets B - 1 + a others, a the squared variation of the gaps between arrivals: bursts keep it
company, and one of a Poisson stream (a = 1) finds what is there all the time. The n prompts that its own leaves behind
in the queue are computed before it goes on. Data-parallel ranks take requests in turn, which evens them out to a/DP:

    TPOT = step(B + a) / v + f (B_r + n) / o  t_pf
    TTFT = t_0 + max(t_s, chunks) v TPOT + t_pf + those that end with it + wait for the prompts before + for a free slot

B_r is the running batch of one attention-data-parallel rank, t_pf the time that one prompt adds, o the output length,
v the tokens that a step yields (1 without speculative decoding). One formula of a step serves all: batchline.step.

Every argument is one number or an array; arrays broadcast. Nothing here checks its input: callers at the edge do.

References
----------
[1] J. Little, 1961: mean number in a system = rate x mean time in it.
[2] DistServe, arXiv 2401.09670, equation 1: queueing for prefill as M/D/1; `batchline.queueing` has the waits.
[3] Leviathan et al., arXiv 2211.17192: tokens per step of speculative decoding, with the bonus token.
[4] Splitwise, arXiv 2311.18677: prefill and decode on separate pools, KV cache moved between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.queueing import company_wait, left_behind, prompt_wait, slot_wait
from batchline.step import decode_step, prefill

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchline.roofline import Floats
    from batchline.step import Coefficients, Ideal, Terms

__all__ = [
    "NETWORK_BANDWIDTH",
    "Load",
    "Pace",
    "Speculation",
    "Steady",
    "break_even_batch",
    "closed_loop",
    "disaggregated",
    "kv_transfer_s",
    "open_loop",
    "pool_ratio",
    "static_batch",
    "tokens_per_step",
]

NETWORK_BANDWIDTH = 50e9
"""Link over which a replica sends KV caches to others [B/s]: one 400 Gb/s port, as each GPU of a DGX H100 has (NVIDIA,
DGX H100/H200 User Guide, network connections)."""

_HALVINGS = 40  # 2^-40 of the interval: far below a request
_NO_LIMIT = 1e7  # sequences; stands for infinity where an interval needs an end


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: a draft proposes tokens, one step of the model verifies them all.

    Parameters
    ----------
    acceptance : float or array
        Chance that a drafted token is accepted [-].
    draft_tokens : float or array
        Tokens drafted per step, gamma [token].
    draft_s : float or array
        Time to draft one token for the whole batch [s].
    """

    acceptance: Floats
    draft_tokens: Floats
    draft_s: Floats = 0.0


@dataclass(frozen=True, slots=True)
class Steady:
    """Steady state of one deployment.

    Parameters
    ----------
    running_batch : float or array
        Sequences that decode together, mean, in the whole deployment [sequence].
    tpot_s, itl_s, ttft_s, e2e_s : float or array
        Time per output token after the first, gap between stream events, time to first token, whole request [s].
    requests_per_s, output_tokens_per_s, input_tokens_per_s : float or array
        Throughput of the whole deployment [1/s].
    kv_use : float or array
        Share of the KV cache in use [-].
    saturated_by : str, array of str or None
        What stops more load: "kv", "max_num_seqs", "prefill", "step_limit"; None (in arrays "") if nothing does.
    step_s, prefill_s, interference_s : float or array
        Decode step, time that one prompt adds, and what others' prompts add to one step of mine [s].
    terms : Terms
        Where the time of the decode step goes [s].
    """

    running_batch: Floats
    tpot_s: Floats
    itl_s: Floats
    ttft_s: Floats
    e2e_s: Floats
    requests_per_s: Floats
    output_tokens_per_s: Floats
    input_tokens_per_s: Floats
    kv_use: Floats
    saturated_by: Any
    step_s: Floats
    prefill_s: Floats
    interference_s: Floats
    terms: Terms

    def to_dict(self) -> dict[str, Any]:
        """Give one state (numbers, no arrays) with the names of the JSON output.

        Returns
        -------
        dict
            Batch, times, throughput, use of the cache and what saturates.
        """
        names = ("running_batch", "tpot_s", "itl_s", "ttft_s", "e2e_s", "requests_per_s", "output_tokens_per_s",
                 "input_tokens_per_s", "kv_use")  # fmt: skip
        return {name: float(getattr(self, name)) for name in names} | {"saturated_by": self.saturated_by}


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast an engine goes in the open loop when so many sequences decode on average.

    Parameters
    ----------
    tpot_s : float or array
        Time per output token [s].
    busy_s : float or array
        Time of a rank that one prompt takes from those who decode [s].
    prompt_s : float or array
        Time that a prompt takes itself [s].
    behind : float or array
        Prompts that mine leaves in the queue, computed before I go on [request].
    requests_per_s : float or array
        Load of the whole deployment [1/s].
    grows : float or array
        Share of `tpot_s` that the batch causes [-].
    peakedness : float or array
        Variance over mean of the sequences of a rank [-]: more than 1 as a slower token keeps more requests present, as
        in processor sharing, and by a for bursts.
    """

    tpot_s: Floats
    busy_s: Floats
    prompt_s: Floats
    behind: Floats
    requests_per_s: Floats
    grows: Floats
    peakedness: Floats


@dataclass(frozen=True, slots=True)
class Load:
    """What every request asks of an engine, and the times that follow: the formulas of this module.

    Parameters
    ----------
    ideal : Ideal
        Ideal times at the mean context, with the attention of a prompt.
    coefficients : Coefficients
        What the engine makes of them.
    isl, osl : float or array
        Input and output length [token].
    prefix_hit_rate : float or array
        Share of prompt tokens found in the prefix cache [-].
    speculation : Speculation, optional
        Speculative decoding.
    interferes : bool
        Whether prompts are computed beside the decoding; not on a decode pool.
    prompt_elsewhere_s : float or array, optional
        Time of a prompt that another pool computes [s].
    slower : float or array
        Times over the predicted ones, for an engine that misses its prediction [-].
    arrival_scv, length_scv : float or array
        Squared coefficients of variation of the gaps between arrivals and of the output lengths, in the open loop [-].
    """

    ideal: Ideal
    coefficients: Coefficients
    isl: Floats
    osl: Floats
    prefix_hit_rate: Floats = 0.0
    speculation: Speculation | None = None
    interferes: bool = True
    prompt_elsewhere_s: Floats | None = None
    slower: Floats = 1.0
    arrival_scv: Floats = 1.0
    length_scv: Floats = 0.0

    @property
    def _rank_scv(self) -> Floats:
        """Of the gaps between arrivals at one rank: each takes one request in turn."""
        return self.arrival_scv / self.ideal.dp

    def terms(self, batch: Floats) -> Terms:
        """Parts of a decode step, as predicted [s]."""
        tokens = 1 if self.speculation is None else self.speculation.draft_tokens + 1
        return decode_step(self.ideal, self.coefficients, batch, tokens_per_sequence=tokens)

    def step_s(self, batch: Floats) -> Floats:
        """Decode step with its drafts [s]."""
        spec = self.speculation
        return self.slower * (self.terms(batch).total + (0.0 if spec is None else spec.draft_s * spec.draft_tokens))

    def prompt_s(self, batch: Floats, prompts: Floats = 1.0) -> Floats:
        """Time that one prompt, or several in one step, adds [s]."""
        if self.prompt_elsewhere_s is not None:
            return self.prompt_elsewhere_s + 0.0 * batch
        fresh = 1.0 - np.asarray(self.prefix_hit_rate)[()]
        # Tokens found in the cache need no work, but the others attend to them: 1 - h^2 of a causal triangle stays.
        attention = self.ideal.prompt_attention_s * fresh * (2.0 - fresh) * prompts
        tokens = self.isl * fresh * prompts
        added = prefill(self.ideal, self.coefficients, tokens, attention_s=attention, batch=batch, prompts=prompts)
        return self.slower * added.total

    def interference_s(self, batch: Floats) -> Floats:
        """What the prompts of the others in a batch add to a token [s]."""
        others = np.maximum(batch / self.ideal.dp - 1.0, 0.0) if self.interferes else 0.0
        return self.coefficients.prefill_share * others / self.osl * self.prompt_s(batch) / self.ideal.pp

    def tpot_s(self, batch: Floats) -> Floats:
        """Time per output token in a batch, the request itself included [s]."""
        return self.step_s(batch) / self.yield_per_step() + self.interference_s(batch)

    def yield_per_step(self) -> Floats:
        """Tokens that a step yields for a sequence [token]."""
        return 1.0 if self.speculation is None else tokens_per_step(self.speculation)

    def chunks_s(self, batch: Floats, budget: Floats | None) -> Floats:
        """Decode steps that a new request waits for its first token [s]."""
        chunks = 0.0 if budget is None else np.ceil(self.isl * (1.0 - self.prefix_hit_rate) / budget)
        return np.maximum(self.coefficients.ttft_steps, chunks) * self.step_s(batch)

    def pace(self, batch: Floats, alone_s: Floats | None = None) -> Pace:
        """How fast it goes in the open loop.

        Parameters
        ----------
        batch : float or array
            Sequences that decode on average [sequence].
        alone_s : float or array, optional
            Time per output token of a request alone, where a search has it already [s].

        Returns
        -------
        Pace
            TPOT, load, and what they are made of.
        """
        plain = self.tpot_s(batch + self.arrival_scv)
        prompt = self.prompt_s(batch)
        busy = self.coefficients.prefill_share * prompt / self.ideal.pp * (1.0 if self.interferes else 0.0)
        behind = left_behind(batch / self.ideal.dp, self.osl * plain, busy, self._rank_scv)
        tpot = plain + behind * busy / self.osl
        grows = np.clip(1.0 - (self.tpot_s(self.ideal.dp) if alone_s is None else alone_s) / tpot, 0.0, 1.0 - 1e-9)
        # Of many servers with service alike, arrivals of variation a keep a times as much variance; half of it more
        # when service is exponential (Whitt: heavy-traffic peakedness).
        uneven = 1.0 + (self._rank_scv - 1.0) / (1.0 + self.length_scv)
        return Pace(tpot, busy, prompt, behind, batch / (self.osl * tpot), grows, uneven / (1.0 - grows))

    def first_s(self, batch: Floats, pace: Pace, budget: Floats | None = None) -> Floats:
        """Time to the first token in the open loop, without the waits.

        Parameters
        ----------
        batch : float or array
            Sequences that decode on average [sequence].
        pace : Pace
            Of this batch.
        budget : float or array, optional
            Chunked-prefill token budget of a step [token].

        Returns
        -------
        float or array
            Seconds [s]: the steps that it waits, as long as those between tokens; its prompt; those that end with it.
        """
        seen = batch + self.arrival_scv
        longer = pace.tpot_s * self.yield_per_step() / self.step_s(seen)
        beside = company_wait(pace.requests_per_s / self.ideal.dp, pace.busy_s, self._rank_scv)
        return self.coefficients.ttft_constant + self.chunks_s(seen, budget) * longer + pace.prompt_s + beside

    def busy_s(self, max_num_batched_tokens: Floats) -> Floats:
        """Time of a rank that a prompt takes where nothing is decoded and steps are full of prompts [s].

        Prompts of one step read the experts once.
        """
        fresh = np.maximum(self.isl * (1.0 - np.asarray(self.prefix_hit_rate)), 1.0)
        together = np.maximum(max_num_batched_tokens / fresh, 1.0)
        return self.prompt_s(0.0, together) / together / self.ideal.pp

    def prompt_alone_s(
        self, rate: Floats, percentile: float | None = None, max_num_batched_tokens: Floats = 8192
    ) -> Floats:
        """Time of a prompt with its waits where nothing is decoded.

        Parameters
        ----------
        rate : float or array
            Requests that arrive [1/s].
        percentile : float, optional
            Percentile of the wait for the prompts before mine; None for the mean.
        max_num_batched_tokens : float or array
            Token budget of a step [token].

        Returns
        -------
        float or array
            Seconds [s]; infinite when prompts arrive faster than they are computed.
        """
        prompt, each = self.prompt_s(0.0), rate / self.ideal.dp
        busy = self.busy_s(max_num_batched_tokens)
        before = prompt_wait(each, busy, self._rank_scv, percentile)
        return prompt + before + company_wait(each, busy, self._rank_scv)

    def waits_s(
        self, batch: Floats, pace: Pace, slots: Floats, full_tpot_s: Floats, percentile: float | None = None
    ) -> tuple[Floats, Floats]:
        """Wait for the prompts before mine, and for a free slot.

        Parameters
        ----------
        batch : float or array
            Sequences that decode on average [sequence].
        pace : Pace
            Of this batch.
        slots : float or array
            Sequences that may decode together in the whole deployment [sequence].
        full_tpot_s : float or array
            Time per output token while all slots are taken [s].
        percentile : float, optional
            Percentile of each wait; None for the mean.

        Returns
        -------
        tuple of float or array
            Seconds [s].
        """
        dp = self.ideal.dp
        return (
            prompt_wait(pace.requests_per_s / dp, pace.busy_s, self._rank_scv, percentile),
            slot_wait(
                batch / dp,
                slots / dp,
                self.osl * pace.tpot_s,
                self.osl * full_tpot_s,
                peakedness=pace.peakedness,
                arrival_scv=self._rank_scv,
                service_scv=self.length_scv,
                percentile=percentile,
            ),
        )


def tokens_per_step(speculation: Speculation) -> Floats:
    r"""Tokens that one verification step yields, :math:`(1 - a^{\gamma+1}) / (1 - a)`, the bonus token included [3].

    Parameters
    ----------
    speculation : Speculation
        Acceptance and draft length.

    Returns
    -------
    float or array
        Tokens [token]; at least 1.

    Examples
    --------
    >>> round(float(tokens_per_step(Speculation(acceptance=0.8, draft_tokens=4))), 4)
    3.3616
    """
    a = np.asarray(speculation.acceptance, dtype=float)
    certain = a >= 1.0
    series = (1.0 - a ** (speculation.draft_tokens + 1)) / np.where(certain, 1.0, 1.0 - a)
    return np.where(certain, np.asarray(speculation.draft_tokens) + 1.0, series)[()]


def kv_transfer_s(stored_bytes: Floats, link_bandwidth: Floats, latency_s: Floats = 0.0) -> Floats:
    """Time to move one prompt's KV cache from a prefill to a decode instance [4].

    Parameters
    ----------
    stored_bytes : float or array
        KV cache and state of the prompt [B].
    link_bandwidth : float or array
        Between the instances, one direction [B/s].
    latency_s : float or array
        Set-up of the transfer [s].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> round(kv_transfer_s(4096 * 327680, 50e9) * 1e3, 1)
    26.8
    """
    return latency_s + stored_bytes / link_bandwidth


def pool_ratio(prefill_s: Floats, requests_per_s: Floats, *, utilisation: Floats = 1.0) -> Floats:
    """Prefill instances that keep one decode instance busy.

    Parameters
    ----------
    prefill_s : float or array
        Time that one prompt takes on a prefill instance [s].
    requests_per_s : float or array
        Requests that one decode instance finishes [1/s].
    utilisation : float or array
        Share of its time that a prefill instance should be busy [-].

    Returns
    -------
    float or array
        Prefill instances per decode instance [-].

    Examples
    --------
    >>> pool_ratio(0.25, 6.0, utilisation=0.75)
    2.0
    """
    return prefill_s * requests_per_s / utilisation


def break_even_batch(
    ideal: Ideal, coefficients: Coefficients, speculation: Speculation, *, limit: float = 65536.0
) -> float:
    """Batch up to which speculative decoding makes a token cheaper; beyond, verifying costs more than it yields.

    Parameters
    ----------
    ideal : Ideal
        Ideal times of one device (numbers, no arrays).
    coefficients : Coefficients
        What the engine makes of them.
    speculation : Speculation
        Acceptance, draft length and draft time.
    limit : float
        Largest batch looked at [sequence].

    Returns
    -------
    float
        Sequences [sequence]; 0 if it never pays, infinity if it pays up to `limit`.

    Examples
    --------
    >>> from batchline.step import Coefficients, ideal
    >>> one = ideal(weight_bytes=139e9, kv_read_bytes=0, active_params=69.5e9, layers=80, bandwidth=13.4e12,
    ...             flops=3956e12, flops_bf16=3956e12)
    >>> round(break_even_batch(one, Coefficients(), Speculation(0.8, 4)))
    426
    """
    gain = tokens_per_step(speculation)

    def loss(batch: float) -> float:
        drafted = speculation.draft_s * speculation.draft_tokens
        tokens = speculation.draft_tokens + 1
        verified = decode_step(ideal, coefficients, batch, tokens_per_sequence=tokens).total + drafted
        return float(verified / gain - decode_step(ideal, coefficients, batch).total)

    batches = np.geomspace(1.0, limit, 400)
    pays = [loss(batch) < 0.0 for batch in batches]
    if not any(pays):
        return 0.0
    last = len(pays) - 1 - pays[::-1].index(True)  # a mixture of experts may lose at small batches and win later
    if last == len(pays) - 1:
        return float(np.inf)
    low, high = batches[last], batches[last + 1]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) < 0.0 else (low, middle)
    return float(low)


def closed_loop(
    ideal: Ideal,
    coefficients: Coefficients,
    concurrency: Floats,
    isl: Floats,
    osl: Floats,
    capacity_batch: Floats = np.inf,
    *,
    max_num_seqs: Floats = np.inf,
    max_num_batched_tokens: Floats | None = None,
    prefix_hit_rate: Floats = 0.0,
    arrival_clumping: Floats | None = None,
    speculation: Speculation | None = None,
) -> Steady:
    """Steady state when a client keeps a fixed number of requests in flight.

    Parameters
    ----------
    ideal : Ideal
        Ideal times at the mean context, isl + osl / 2, with the attention of a prompt of `isl` tokens.
    coefficients : Coefficients
        What the engine makes of them.
    concurrency : float or array
        Requests in flight at the client [request].
    isl, osl : float or array
        Input and output length [token].
    capacity_batch : float or array
        Sequences that the KV cache holds [sequence].
    max_num_seqs : float or array
        The engine's own limit, per data-parallel rank [sequence].
    max_num_batched_tokens : float or array, optional
        Chunked-prefill token budget of a step; a prompt takes at least isl / budget steps [token].
    prefix_hit_rate : float or array
        Share of prompt tokens found in the prefix cache [-].
    arrival_clumping : float or array, optional
        How the client sends: 0 one by one, 1 all at once; default what was seen with this engine [-].
    speculation : Speculation, optional
        Speculative decoding.

    Returns
    -------
    Steady
        Running batch, TPOT, TTFT, throughput, and what saturates.

    Examples
    --------
    >>> from batchline.step import Coefficients, ideal
    >>> one = ideal(weight_bytes=15e9, kv_read_bytes=1536 * 131072, active_params=7.5e9, layers=32, bandwidth=3.35e12,
    ...             flops=989e12, flops_bf16=989e12)
    >>> state = closed_loop(one, Coefficients(layer_overhead=40e-6), 64, 1024, 1024)
    >>> round(float(state.running_batch), 1), round(float(state.tpot_s) * 1e3, 2), state.saturated_by
    (63.9, 11.52, None)
    """
    load = Load(ideal, coefficients, isl, osl, prefix_hit_rate, speculation)
    return _closed(load, concurrency, capacity_batch, max_num_seqs, max_num_batched_tokens, arrival_clumping)


def _closed(
    load: Load,
    concurrency: Floats,
    capacity_batch: Floats,
    max_num_seqs: Floats,
    budget: Floats | None,
    clumping: Floats | None,
    extra_ttft_s: Floats = 0.0,
    most: Floats = np.inf,
) -> Steady:
    """Closed loop; `most` requests/s come out of a prefill pool."""
    clumping = load.coefficients.arrival_clumping if clumping is None else clumping
    limit = _limit(load, capacity_batch, max_num_seqs)
    held = np.minimum(concurrency, limit)
    ahead = 4.0 * clumping * np.maximum(np.sqrt(held / load.ideal.dp) - 1.0, 0.0)

    def admitted_ttft(batch: Floats) -> Floats:
        queue = load.prompt_s(batch) * (1.0 + ahead)
        return load.coefficients.ttft_constant + load.chunks_s(batch, budget) + queue + extra_ttft_s

    def excess(batch: Floats) -> Floats:
        decoding = load.osl * load.tpot_s(batch)
        return held * decoding - batch * (decoding + admitted_ttft(batch))

    batch = np.where(concurrency > limit, limit, _root(excess, held))[()]
    starved = np.asarray(batch > most * load.osl * load.tpot_s(batch))
    if np.any(starved):
        fed = _root(lambda b: np.minimum(most, _NO_LIMIT) * load.osl * load.tpot_s(b) - b, held)
        batch = np.where(starved, fed, batch)[()]
    tpot = load.tpot_s(batch)
    waiting = np.maximum(concurrency / limit - 1.0, 0.0) * load.osl * tpot
    ttft = admitted_ttft(batch) + waiting
    # Little: whoever does not decode waits for the prefill pool.
    ttft = np.where(starved, np.maximum(concurrency / most - load.osl * tpot, ttft), ttft)[()]
    requests = concurrency / (ttft + np.maximum(load.osl - 1.0, 0.0) * tpot)
    full = np.asarray(concurrency > limit)
    state = _steady(load, batch, (batch, tpot), ttft, requests, full, capacity_batch, max_num_seqs)
    if not np.any(starved):
        return state
    why = np.where(starved, "prefill", "" if state.saturated_by is None else state.saturated_by)
    return replace(state, saturated_by=why if why.ndim else str(why))


def open_loop(
    ideal: Ideal,
    coefficients: Coefficients,
    rate: Floats,
    isl: Floats,
    osl: Floats,
    capacity_batch: Floats = np.inf,
    *,
    max_num_seqs: Floats = np.inf,
    max_num_batched_tokens: Floats | None = None,
    prefix_hit_rate: Floats = 0.0,
    arrival_scv: Floats = 1.0,
    length_scv: Floats = 0.0,
    speculation: Speculation | None = None,
) -> Steady:
    """Steady state when requests arrive at a rate, whatever the engine does.

    Parameters
    ----------
    ideal, coefficients, isl, osl, capacity_batch, max_num_seqs, max_num_batched_tokens, prefix_hit_rate, speculation
        As in `closed_loop`.
    rate : float or array
        Requests that arrive [1/s].
    arrival_scv, length_scv : float or array
        Squared coefficient of variation of the gaps between arrivals (1 Poisson, 0 a metronome, cv^2 of gamma gaps) and
        of the output lengths (0 all alike, 1 geometric) [-].

    Returns
    -------
    Steady
        Running batch, TPOT, TTFT, throughput; where the rate is beyond what the engine sustains, `ttft_s` and `e2e_s`
        are infinite and `saturated_by` says why.

    Notes
    -----
    Against the event-by-event simulator with the same coefficients (five deployments, TP 4 and attention DP 8 among
    them, at 30, 60 and 90% of capacity; tests/test_open_loop.py runs three), mean over mean: under Poisson arrivals
    TPOT within 5%, 16% where a prompt is a hundred times the answer; TTFT within 13%, 37% where a tenth more fills the
    cache. Under gamma gaps with cv 2: TPOT within 22%, 36% near saturation; TTFT up to 40% too short, and where the
    cache is nearly full anything from a fifth to twice: bursts are then a matter for `batchline.simulate`.

    Examples
    --------
    >>> from batchline.step import Coefficients, ideal
    >>> one = ideal(weight_bytes=15e9, kv_read_bytes=1536 * 131072, active_params=7.5e9, layers=32, bandwidth=3.35e12,
    ...             flops=989e12, flops_bf16=989e12)
    >>> state = open_loop(one, Coefficients(layer_overhead=40e-6), 4.0, 1024, 1024, 200)
    >>> round(float(state.running_batch), 1), round(float(state.tpot_s) * 1e3, 2), state.saturated_by
    (38.0, 9.27, None)
    """
    load = Load(
        ideal,
        coefficients,
        isl,
        osl,
        prefix_hit_rate,
        speculation,
        arrival_scv=arrival_scv,
        length_scv=length_scv,
    )
    limit = np.minimum(_limit(load, capacity_batch, max_num_seqs), _NO_LIMIT)
    alone = load.tpot_s(ideal.dp)

    def excess(batch: Floats) -> Floats:
        return rate * osl * load.pace(batch, alone).tpot_s - batch

    batch = _root(excess, limit)
    pace = load.pace(batch, alone)
    full_tpot = np.maximum(load.tpot_s(np.maximum(limit, ideal.dp)), pace.tpot_s)
    ttft = load.first_s(batch, pace, max_num_batched_tokens) + sum(load.waits_s(batch, pace, limit, full_tpot))
    full = np.asarray(excess(limit) > 0.0) | ~np.isfinite(ttft)
    ttft = np.where(full, np.inf, ttft)[()]
    requests = np.where(full, np.minimum(pace.requests_per_s, rate), rate)[()]
    met = batch + arrival_scv, pace.tpot_s
    return _steady(load, batch, met, ttft, requests, full, capacity_batch, max_num_seqs)


def disaggregated(
    prefill_ideal: Ideal,
    decode_ideal: Ideal,
    coefficients: Coefficients,
    concurrency: Floats,
    isl: Floats,
    osl: Floats,
    capacity_batch: Floats = np.inf,
    *,
    transfer_s: Floats = 0.0,
    max_num_seqs: Floats = np.inf,
    max_num_batched_tokens: Floats = 8192,
    prefix_hit_rate: Floats = 0.0,
    arrival_clumping: Floats | None = None,
    prefill_coefficients: Coefficients | None = None,
    prefill_instances: Floats = np.inf,
    speculation: Speculation | None = None,
) -> Steady:
    """Steady state of one decode instance whose prompts are computed elsewhere: no prefill interferes with decoding.

    Parameters
    ----------
    prefill_ideal, decode_ideal : Ideal
        Ideal times of a prefill and of a decode instance.
    coefficients, concurrency, isl, osl, capacity_batch, max_num_seqs, prefix_hit_rate, arrival_clumping, speculation
        As in `closed_loop`, of the decode instance.
    transfer_s : float or array
        Time to move a prompt's KV cache, see `kv_transfer_s` [s].
    max_num_batched_tokens : float or array
        Token budget of a step of the prefill instance; the default is that of vLLM, SGLang and TensorRT-LLM on large
        devices [token].
    prefill_coefficients : Coefficients, optional
        Of the prefill instance; default the same.
    prefill_instances : float or array
        Prefill instances for this decode instance; too few hold requests back [-].

    Returns
    -------
    Steady
        Of the decode instance; `saturated_by` is "prefill" where prompts hold requests back.
        `pool_ratio(state.prefill_s, state.requests_per_s)` prefill instances keep it busy.

    Examples
    --------
    >>> from batchline.step import Coefficients, ideal
    >>> one = ideal(weight_bytes=15e9, kv_read_bytes=8704 * 131072, active_params=7.5e9, layers=32, bandwidth=3.35e12,
    ...             flops=989e12, flops_bf16=989e12)
    >>> engine = Coefficients(prefill_linear=1.6, layer_overhead=40e-6)
    >>> apart = disaggregated(one, one, engine, 32, 8192, 1024, transfer_s=0.02)
    >>> together = closed_loop(one, engine, 32, 8192, 1024)
    >>> bool(apart.tpot_s < together.tpot_s), round(float(pool_ratio(apart.prefill_s, apart.requests_per_s)), 2)
    (True, 0.36)
    """
    there = coefficients if prefill_coefficients is None else prefill_coefficients
    source = Load(prefill_ideal, there, isl, osl, prefix_hit_rate, None, interferes=False)
    load = Load(
        decode_ideal,
        coefficients,
        isl,
        osl,
        prefix_hit_rate,
        speculation,
        interferes=False,
        prompt_elsewhere_s=source.prompt_s(0.0),
    )
    most = prefill_instances * prefill_ideal.dp / source.busy_s(max_num_batched_tokens)
    return _closed(
        load, concurrency, capacity_batch, max_num_seqs, None, arrival_clumping, extra_ttft_s=transfer_s, most=most
    )


def static_batch(
    ideal: Ideal,
    coefficients: Coefficients,
    batch: Floats,
    isl: Floats,
    osl: Floats,
    *,
    speculation: Speculation | None = None,
) -> Steady:
    """State of a batch that starts together and runs to its end, as offline benchmarks do: nobody waits or interferes.

    Parameters
    ----------
    ideal, coefficients, isl, osl, speculation
        As in `closed_loop`.
    batch : float or array
        Sequences in the batch [sequence].

    Returns
    -------
    Steady
        `ttft_s` is the prefill of the whole batch, without a network; `tpot_s` the decode step at the mean context.

    Examples
    --------
    >>> from batchline.step import Coefficients, ideal
    >>> one = ideal(weight_bytes=15e9, kv_read_bytes=1536 * 131072, active_params=7.5e9, layers=32, bandwidth=3.35e12,
    ...             flops=989e12, flops_bf16=989e12)
    >>> state = static_batch(one, Coefficients(), 64, 1024, 1024)
    >>> round(float(state.ttft_s), 3), round(float(state.tpot_s) * 1e3, 2)
    (0.994, 9.29)
    """
    load = Load(ideal, coefficients, isl, osl, speculation=speculation, interferes=False)
    rank = np.maximum(batch / ideal.dp, 1.0)
    attention = ideal.prompt_attention_s * rank
    ttft = prefill(ideal, coefficients, isl * rank, attention_s=attention, prompts=rank).total
    tpot = load.tpot_s(batch)
    requests = batch / (ttft + np.maximum(osl - 1.0, 0.0) * tpot)
    return _steady(load, batch, (batch, tpot), ttft, requests, False, np.inf, np.inf)


def _limit(load: Load, capacity_batch: Floats, max_num_seqs: Floats) -> Floats:
    return np.minimum(capacity_batch, np.asarray(max_num_seqs, dtype=float) * load.ideal.dp)[()]


def _root(excess: Callable[[Floats], Floats], high: Floats) -> Floats:
    """Where a function that starts positive at 0 crosses zero below `high`, by halving."""
    upper = np.asarray(high + 0.0 * excess(np.asarray(high, dtype=float)), dtype=float)
    lower = np.zeros_like(upper)
    for _ in range(_HALVINGS):
        middle = (lower + upper) / 2
        above = excess(middle) > 0.0
        lower, upper = np.where(above, middle, lower), np.where(above, upper, middle)
    return upper[()]


def _steady(
    load: Load,
    batch: Floats,
    met: tuple[Floats, Floats],
    ttft: Floats,
    requests: Floats,
    full: Any,
    capacity_batch: Floats,
    max_num_seqs: Floats,
) -> Steady:
    """State with `batch` sequences on average, of which a request meets (batch, tpot)."""
    seen, tpot = met
    step = load.step_s(seen)
    return Steady(
        running_batch=batch,
        tpot_s=tpot,
        itl_s=tpot * load.yield_per_step(),
        ttft_s=ttft,
        e2e_s=ttft + np.maximum(load.osl - 1.0, 0.0) * tpot,
        requests_per_s=requests,
        output_tokens_per_s=requests * load.osl,
        input_tokens_per_s=requests * load.isl,
        kv_use=np.minimum(batch / capacity_batch, 1.0),
        saturated_by=_saturated_by(load, batch, full, capacity_batch, max_num_seqs),
        step_s=step,
        prefill_s=load.prompt_s(batch),
        interference_s=tpot - step / load.yield_per_step(),
        terms=load.terms(seen),
    )


def _saturated_by(load: Load, batch: Floats, full: Any, capacity_batch: Floats, max_num_seqs: Floats) -> Any:
    """Name what stops more load: prompts that take all the time, a full cache or slot table, else what grows."""
    growing = load.terms(batch + 1.0).total - load.terms(batch).total
    prompts = load.interference_s(batch + 1.0) - load.interference_s(batch)
    # A sequence that adds over 90% of what each costs already buys no throughput.
    flat = (growing / load.yield_per_step() + prompts) * batch > 0.9 * load.tpot_s(batch)
    slots = np.asarray(max_num_seqs) * load.ideal.dp
    held = np.where(np.asarray(capacity_batch) <= slots, "kv", "max_num_seqs")
    slow = np.where(prompts > growing, "prefill", "step_limit")
    endless = np.minimum(capacity_batch, slots) >= _NO_LIMIT
    room_helps = ~(flat & np.asarray(prompts > growing))
    name = np.where(full & ~np.asarray(endless) & room_helps, held, np.where(flat | np.asarray(full), slow, ""))
    return name if name.ndim else (str(name) or None)
