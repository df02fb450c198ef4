"""Prompts and decoding on instances of their own, and the KV cache moved between them.

References
----------
[1] Splitwise, arXiv 2311.18677: prefill and decode on separate pools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from batchline.serving.load import Load
from batchline.serving.loops import closed

if TYPE_CHECKING:
    from batchline.roofline import Floats
    from batchline.serving.speculation import Speculation
    from batchline.serving.steady import Steady
    from batchline.step import Coefficients, Ideal

__all__ = ["NETWORK_BANDWIDTH", "disaggregated", "kv_transfer_s", "pool_ratio"]

NETWORK_BANDWIDTH = 50e9
"""Link over which a replica sends KV caches to others [B/s]: one 400 Gb/s port, as each GPU of a DGX H100 has (NVIDIA,
DGX H100/H200 User Guide, network connections)."""


def kv_transfer_s(stored_bytes: Floats, link_bandwidth: Floats, latency_s: Floats = 0.0) -> Floats:
    """Time to move one prompt's KV cache from a prefill to a decode instance [1].

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
    >>> from batchline.serving import closed_loop
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
    return closed(
        load, concurrency, capacity_batch, max_num_seqs, None, arrival_clumping, extra_ttft_s=transfer_s, most=most
    )
