"""Clients in a closed loop, and requests that arrive in an open one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from batchline.serving.load import Load
from batchline.serving.steady import NO_LIMIT, limit_of, steady

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchline.roofline import Floats
    from batchline.serving.speculation import Speculation
    from batchline.serving.steady import Steady
    from batchline.step import Coefficients, Ideal

__all__ = ["closed", "closed_loop", "open_loop"]

_HALVINGS = 40  # 2^-40 of the interval: far below a request


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
    admission_interval: Floats = 0.0,
    prefix_hit_rate: Floats = 0.0,
    arrival_clumping: Floats | None = None,
    opening_share: Floats = 0.0,
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
    admission_interval : float or array
        The engine looks for new requests every so many steps (SGLang's scheduler-recv-interval, TensorRT-LLM's
        batch_wait_timeout_iters); 0 where before each [step].
    prefix_hit_rate : float or array
        Share of prompt tokens found in the prefix cache [-].
    arrival_clumping : float or array, optional
        How the client sends: 0 one by one, 1 all at once; default what was seen with this engine [-].
    opening_share : float or array
        Share of the requests in a mean over a run that were sent all at once at its start: concurrency over number of
        prompts for a benchmark, 0 in the steady state and in a median [-].
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
    load = Load(ideal, coefficients, isl, osl, prefix_hit_rate, speculation, admission_interval)
    limits = capacity_batch, max_num_seqs, max_num_batched_tokens
    return closed(load, concurrency, *limits, arrival_clumping, opening_share=opening_share)


def closed(
    load: Load,
    concurrency: Floats,
    capacity_batch: Floats,
    max_num_seqs: Floats,
    budget: Floats | None,
    clumping: Floats | None,
    opening_share: Floats = 0.0,
    extra_ttft_s: Floats = 0.0,
    most: Floats = np.inf,
) -> Steady:
    """Closed loop; `most` requests/s come out of a prefill pool."""
    clumping = load.coefficients.arrival_clumping if clumping is None else clumping
    limit = limit_of(load, capacity_batch, max_num_seqs)
    held = np.minimum(concurrency, limit)
    each = held / load.ideal.dp
    # Of n prompts that come at once, (n - 1) / 2 are ahead of one on average.
    ahead = 4.0 * clumping * np.maximum(np.sqrt(each) - 1.0, 0.0) + opening_share * np.maximum(each - 1.0, 0.0) / 2.0

    def admitted_ttft(batch: Floats) -> Floats:
        queue = load.prompt_s(batch) * (1.0 + ahead)
        return load.coefficients.ttft_constant + load.first_steps(budget) * load.step_s(batch) + queue + extra_ttft_s

    def excess(batch: Floats) -> Floats:
        decoding = load.osl * load.tpot_s(batch)
        return held * decoding - batch * (decoding + admitted_ttft(batch))

    batch = np.where(concurrency > limit, limit, _root(excess, held))[()]
    starved = np.asarray(batch > most * load.osl * load.tpot_s(batch))
    if np.any(starved):
        fed = _root(lambda b: np.minimum(most, NO_LIMIT) * load.osl * load.tpot_s(b) - b, held)
        batch = np.where(starved, fed, batch)[()]
    tpot = load.tpot_s(batch)
    waiting = np.maximum(concurrency / limit - 1.0, 0.0) * load.osl * tpot
    ttft = admitted_ttft(batch) + waiting
    # Little: whoever does not decode waits for the prefill pool.
    ttft = np.where(starved, np.maximum(concurrency / most - load.osl * tpot, ttft), ttft)[()]
    requests = concurrency / (ttft + np.maximum(load.osl - 1.0, 0.0) * tpot)
    full = np.asarray(concurrency > limit)
    steps_s = load.first_steps(budget) * load.step_s(batch)
    state = steady(load, batch, (batch, tpot), (ttft, steps_s), requests, full, capacity_batch, max_num_seqs)
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
    admission_interval: Floats = 0.0,
    prefix_hit_rate: Floats = 0.0,
    arrival_scv: Floats = 1.0,
    length_scv: Floats = 0.0,
    speculation: Speculation | None = None,
) -> Steady:
    """Steady state when requests arrive at a rate, whatever the engine does.

    Parameters
    ----------
    ideal, coefficients, isl, osl, capacity_batch, max_num_seqs, max_num_batched_tokens, admission_interval
        As in `closed_loop`.
    prefix_hit_rate, speculation
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
        admission_interval,
        arrival_scv=arrival_scv,
        length_scv=length_scv,
    )
    limit = np.minimum(limit_of(load, capacity_batch, max_num_seqs), NO_LIMIT)
    alone = load.tpot_s(ideal.dp)

    def excess(batch: Floats) -> Floats:
        return rate * osl * load.pace(batch, alone).tpot_s - batch

    batch = _root(excess, limit)
    pace = load.pace(batch, alone)
    full_tpot = np.maximum(load.tpot_s(np.maximum(limit, ideal.dp)), pace.tpot_s)
    ttft = load.first_s(pace, max_num_batched_tokens) + sum(load.waits_s(batch, pace, limit, full_tpot))
    full = np.asarray(excess(limit) > 0.0) | ~np.isfinite(ttft)
    ttft = np.where(full, np.inf, ttft)[()]
    requests = np.where(full, np.minimum(pace.requests_per_s, rate), rate)[()]
    met = batch + arrival_scv, pace.tpot_s
    first = ttft, load.first_steps_s(pace, max_num_batched_tokens)
    return steady(load, batch, met, first, requests, full, capacity_batch, max_num_seqs)


def _root(excess: Callable[[Floats], Floats], high: Floats) -> Floats:
    """Where a function that starts positive at 0 crosses zero below `high`, by halving."""
    upper = np.asarray(high + 0.0 * excess(np.asarray(high, dtype=float)), dtype=float)
    lower = np.zeros_like(upper)
    for _ in range(_HALVINGS):
        middle = (lower + upper) / 2
        above = excess(middle) > 0.0
        lower, upper = np.where(above, middle, lower), np.where(above, upper, middle)
    return upper[()]
