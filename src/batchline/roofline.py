"""The article's model, all of it: how long one decode step takes and what a token then costs, against the batch.

    t_compute = 2 B N_a / F        t_weights = W / BW        t_kv = B L kv / BW        t_memory = t_weights + t_kv

    bound     t_step = max(t_compute, t_memory)              nothing may be faster: perfect overlap, datasheet rates
    serial    t_step = t_kv + max(t_compute, t_weights)      attention and feed-forward kernels one after the other

Lay it beside docs/article.md. Every argument is one number or an array; arrays broadcast. All of it is about a whole
deployment: `bandwidth` and `flops` are sums over its devices, `weight_bytes` and `kv_bytes_per_token` what they read.

References
----------
[1] R. Pope and D. Patel, lecture on the economics of inference (transcript, dwarkeshsp/flashcards, 2026): bound.
[2] Scaling book, jax-ml/scaling-book, inference chapter (2025): serial, in which the KV fetch stands outside the max.
[3] E. Erdil, Inference economics of language models, arXiv 2506.04645: the share of experts that a batch touches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = float | NDArray[np.float64]

__all__ = [
    "balance_context",
    "batch_within",
    "cost_floor",
    "drain_time",
    "expert_coverage",
    "knee_batch",
    "mbu",
    "mfu",
    "ridge_batch",
    "t_compute",
    "t_kv",
    "t_memory",
    "t_step_bound",
    "t_step_serial",
    "t_weights",
    "usd_per_mtok",
]

FLOP_PER_PARAM = 2
"""A multiply and an add per parameter and token [FLOP]; datasheets count both, the lecture counts multiplies."""


def t_compute(batch: Floats, active_params: Floats, flops: Floats) -> Floats:
    r"""Time to multiply a batch by the weights, :math:`2 B N_a / F`.

    Parameters
    ----------
    batch : float or array
        Sequences decoded together [sequence].
    active_params : float or array
        Parameters that multiply for one token, without the input embedding [parameter].
    flops : float or array
        Dense rate of the whole deployment in the number format used [FLOP/s].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> round(t_compute(64, 70e9, 4 * 989e12) * 1e3, 2)
    2.26
    """
    return FLOP_PER_PARAM * batch * active_params / flops


def t_weights(weight_bytes: Floats, bandwidth: Floats) -> Floats:
    r"""Time to fetch the weights once, :math:`W / BW`: the latency floor.

    Parameters
    ----------
    weight_bytes : float or array
        Bytes of weights read in a step: all but the input embedding, which is a look-up [B].
    bandwidth : float or array
        Memory bandwidth of the whole deployment [B/s].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> round(t_weights(139e9, 4 * 3.35e12) * 1e3, 2)
    10.37
    """
    return weight_bytes / bandwidth


def t_kv(batch: Floats, context: Floats, kv_bytes_per_token: Floats, bandwidth: Floats) -> Floats:
    r"""Time to fetch the KV cache of a batch, :math:`B L\,kv / BW`.

    Parameters
    ----------
    batch : float or array
        Sequences decoded together [sequence].
    context : float or array
        Mean tokens of context of a sequence [token].
    kv_bytes_per_token : float or array
        KV-cache bytes read for each token of context [B/token].
    bandwidth : float or array
        Memory bandwidth of the whole deployment [B/s].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> round(t_kv(64, 4096, 327680, 4 * 3.35e12) * 1e3, 2)
    6.41
    """
    return batch * context * kv_bytes_per_token / bandwidth


def t_memory(weights: Floats, kv: Floats) -> Floats:
    """Time of all memory traffic: the weights and the KV cache, one after the other through the same pins.

    Parameters
    ----------
    weights : float or array
        Weight fetch [s].
    kv : float or array
        KV fetch [s].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> t_memory(0.010, 0.006)
    0.016
    """
    return weights + kv


def t_step_bound(compute: Floats, weights: Floats, kv: Floats) -> Floats:
    """Article's step: compute and memory overlap perfectly, so the longer decides. Nothing may be faster.

    Parameters
    ----------
    compute, weights, kv : float or array
        The three parts [s].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> float(t_step_bound(0.002, 0.010, 0.006))
    0.016
    """
    return np.maximum(compute, t_memory(weights, kv))


def t_step_serial(compute: Floats, weights: Floats, kv: Floats) -> Floats:
    """Step of an engine that runs attention and feed-forward kernels in turn: KV + max(weights, compute) [2].

    Parameters
    ----------
    compute, weights, kv : float or array
        The three parts [s].

    Returns
    -------
    float or array
        Seconds [s]; never less than `t_step_bound`, never more than twice it.

    Examples
    --------
    >>> round(float(t_step_serial(0.012, 0.010, 0.006)), 6)
    0.018
    """
    return kv + np.maximum(compute, weights)


def usd_per_mtok(t_step: Floats, batch: Floats, usd_per_hour: Floats) -> Floats:
    r"""Cost of a million output tokens, :math:`t_{step} / B \times price`.

    Parameters
    ----------
    t_step : float or array
        Time of one step, which yields one token for each sequence [s].
    batch : float or array
        Sequences decoded together [sequence].
    usd_per_hour : float or array
        Price of the whole deployment [USD/h].

    Returns
    -------
    float or array
        Dollars per million tokens [USD/Mtoken].

    Examples
    --------
    >>> round(usd_per_mtok(0.02, 64, 10.0), 3)
    0.868
    """
    return t_step / batch * usd_per_hour / 3600.0 * 1e6


def cost_floor(
    active_params: Floats,
    flops: Floats,
    context: Floats,
    kv_bytes_per_token: Floats,
    bandwidth: Floats,
    *,
    serial: bool = False,
) -> Floats:
    r"""Seconds per token that no batch gets below, :math:`\max(2 N_a / F, L\,kv / BW)` (serial: their sum).

    Parameters
    ----------
    active_params, flops, context, kv_bytes_per_token, bandwidth : float or array
        As in `t_compute` and `t_kv`.
    serial : bool
        Of the serial reading instead of the bound.

    Returns
    -------
    float or array
        Seconds per token [s/token].

    Examples
    --------
    >>> round(float(cost_floor(70e9, 4e15, 4096, 327680, 13.4e12)) * 1e6, 1)
    100.2
    """
    compute = t_compute(1, active_params, flops)
    kv = t_kv(1, context, kv_bytes_per_token, bandwidth)
    return kv + compute if serial else np.maximum(compute, kv)


def ridge_batch(weight_bytes: Floats, active_params: Floats, flops: Floats, bandwidth: Floats) -> Floats:
    r"""Batch at which compute takes as long as the weights alone, :math:`W F / (2 N_a BW)`.

    Parameters
    ----------
    weight_bytes, active_params, flops, bandwidth : float or array
        As in `t_weights` and `t_compute`.

    Returns
    -------
    float or array
        Sequences [sequence]; 295 for bf16 on an H100.

    Examples
    --------
    >>> round(ridge_batch(2 * 70e9, 70e9, 989e12, 3.35e12), 1)
    295.2
    """
    return t_weights(weight_bytes, bandwidth) / t_compute(1, active_params, flops)


def knee_batch(
    weight_bytes: Floats,
    active_params: Floats,
    flops: Floats,
    context: Floats,
    kv_bytes_per_token: Floats,
    bandwidth: Floats,
) -> Floats:
    r"""Batch at which compute overtakes memory, :math:`B^* = t_{weights} / (2 N_a / F - L\,kv / BW)`.

    Parameters
    ----------
    weight_bytes, active_params, flops, context, kv_bytes_per_token, bandwidth : float or array
        As in `t_compute`, `t_weights` and `t_kv`.

    Returns
    -------
    float or array
        Sequences [sequence]; infinite from the balance context on, where memory decides at every batch.

    Examples
    --------
    >>> round(float(knee_batch(140e9, 70e9, 989e12, 500, 327680, 3.35e12)))
    451
    >>> float(knee_batch(140e9, 70e9, 989e12, 4096, 327680, 3.35e12))
    inf
    """
    slope = np.asarray(
        t_compute(1, active_params, flops) - t_kv(1, context, kv_bytes_per_token, bandwidth), dtype=float
    )
    weights = np.broadcast_to(np.asarray(t_weights(weight_bytes, bandwidth), dtype=float), slope.shape)
    knee = np.divide(weights, slope, out=np.full_like(slope, np.inf), where=slope > 0)
    return float(knee) if knee.ndim == 0 else knee


def balance_context(active_params: Floats, flops: Floats, kv_bytes_per_token: Floats, bandwidth: Floats) -> Floats:
    r"""Context at which KV fetch and compute grow alike, :math:`L^* = (2 N_a / F)(BW / kv)`; batch does not enter.

    Parameters
    ----------
    active_params, flops, kv_bytes_per_token, bandwidth : float or array
        As in `t_compute` and `t_kv`.

    Returns
    -------
    float or array
        Tokens [token].

    Examples
    --------
    >>> round(balance_context(70.55e9, 989e12, 327680, 3.35e12))
    1459
    """
    return t_compute(1, active_params, flops) * bandwidth / kv_bytes_per_token


def batch_within(epsilon: Floats, fixed: Floats, per_sequence: Floats) -> Floats:
    r"""Batch from which the cost is within `epsilon` of its floor, :math:`B = t_{fixed} / (\epsilon\,t_{seq})`.

    Parameters
    ----------
    epsilon : float or array
        Allowed excess over the floor [-].
    fixed : float or array
        Time of a step that does not depend on the batch: the weights [s].
    per_sequence : float or array
        Time that each sequence adds: KV above the balance context [s].

    Returns
    -------
    float or array
        Sequences [sequence].

    Examples
    --------
    >>> round(batch_within(0.1, 141.1e9, 327680 * 8192), 1)
    525.6
    """
    return fixed / (epsilon * per_sequence)


def mfu(t_step: Floats, batch: Floats, active_params: Floats, flops: Floats) -> Floats:
    """Model FLOPs utilisation: arithmetic done for the weights, over what the deployment could do in the step.

    Parameters
    ----------
    t_step : float or array
        Time of one step [s].
    batch, active_params, flops : float or array
        As in `t_compute`.

    Returns
    -------
    float or array
        Share of the dense peak [-].

    Examples
    --------
    >>> round(mfu(0.02, 64, 70e9, 989e12), 3)
    0.453
    """
    return t_compute(batch, active_params, flops) / t_step


def mbu(t_step: Floats, weights: Floats, kv: Floats) -> Floats:
    """Memory bandwidth utilisation: bytes read (not bytes resident), over what could be read in the step.

    Parameters
    ----------
    t_step, weights, kv : float or array
        Time of one step, and of its two fetches at full bandwidth [s].

    Returns
    -------
    float or array
        Share of the peak bandwidth [-].

    Examples
    --------
    >>> mbu(0.02, 0.010, 0.006)
    0.8
    """
    return t_memory(weights, kv) / t_step


def drain_time(memory: Floats, bandwidth: Floats) -> Floats:
    """Time to read the whole memory once: the step at which a full KV cache runs, whatever the context.

    Parameters
    ----------
    memory : float or array
        Bytes [B].
    bandwidth : float or array
        Bytes per second [B/s].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> drain_time(288e9, 20e12)
    0.0144
    """
    return memory / bandwidth


def expert_coverage(tokens: Floats, experts: Floats, experts_per_token: Floats) -> Floats:
    r"""Share of a layer's routed experts that a step touches, :math:`1 - (1 - k/E)^n` [3].

    Parameters
    ----------
    tokens : float or array
        Tokens in the step [token].
    experts : float or array
        Routed experts of a layer, E [expert].
    experts_per_token : float or array
        Routed experts that one token uses, k [expert].

    Returns
    -------
    float or array
        Share of the experts [-], if tokens choose evenly and apart; related tokens touch up to 31% fewer.

    Examples
    --------
    >>> round(256 * expert_coverage(32, 256, 8), 2)
    163.31
    """
    return 1.0 - (1.0 - experts_per_token / experts) ** tokens
