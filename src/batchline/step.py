"""Time of one engine step, term by term: decode, prefill, or both mixed.

Three readings share one set of ideal times (`Ideal`): `bound` and `serial` are the article's (batchline.roofline), and
`decode_step` is what a real engine shows:

    step(B) = a_w w + a_x w_x cov(n) + a_kv B_r max(kv, ca) + a_c B_r c          bytes and FLOPs, never below ideal
            + l_tp L log2(TP) + a_tp B_r com + a_tp B_r a2a + (PP - 1) h + B_r hop  links
            + c_0 + c_1 B_r + d L + d_m L_m                                      host and kernel launches

    prefill(s) = p_0 + a_pl pl(s) + a_pa pa(s) + a_tp s (com + a2a) + a_x w_x [cov(s) - cov(n)]+   added to its step

B_r sequences run on one attention-data-parallel rank and pipeline stage, n tokens meet one layer of experts, cov(n) is
the share of experts that they touch, and L, L_m count layers and mixture-of-experts layers. The coefficients a are at
least 1, so no prediction is below the bound; every term is non-negative and grows with the batch, so no step is
shorter for a larger batch. Under pipeline parallelism a batch runs as microbatches of B / PP, and a step passes through
all stages, with a hop of h between two of them.

Every argument is one number or an array; arrays broadcast. Nothing here checks its input: callers at the edge do.

References
----------
[1] DistServe, arXiv 2401.09670: prefill and decode time as affine functions of tokens and context.
[2] E. Erdil, arXiv 2506.04645: network time is added to the kernels', not overlapped.
[3] Vidur, arXiv 2405.05465, and theory.md V01-V04: matrix products run in tiles of 128 or 256 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from batchline import roofline

if TYPE_CHECKING:
    from batchline.roofline import Floats

__all__ = [
    "Coefficients",
    "Ideal",
    "Terms",
    "bound",
    "decode_step",
    "ideal",
    "mixed_step",
    "prefill",
    "serial",
    "shares",
]

ACTIVATION_BYTES = 2
"""Activations travel between devices as 16-bit numbers [B]."""


@dataclass(frozen=True, slots=True)
class Ideal:
    """Times at datasheet rates that one device needs for its share, and the counts that overheads scale with.

    Parameters
    ----------
    weights_s : float or array
        Read the non-expert weights on the device once [s].
    experts_s : float or array
        Read all routed experts on the device once [s]; 0 for a dense model.
    kv_s : float or array
        Read the KV cache and state of one sequence [s].
    attention_s : float or array
        Attention FLOPs of one decoded token at the 16-bit rate [s].
    compute_s : float or array
        Weight FLOPs of one token at the rate of the number format [s].
    tp_volume_s : float or array
        Move the all-reduced activations of one token over the link [s].
    hop_s : float or array
        Move the activations of one token over the link between all stages of the pipeline [s].
    alltoall_s : float or array
        Move one token to its experts and back over the link [s].
    prompt_token_s : float or array
        Weight FLOPs of one prompt token (no output head) [s].
    prompt_attention_s : float or array
        Causal attention FLOPs of one whole prompt at the 16-bit rate [s].
    layers, moe_layers : float or array
        Layers, and those of them with routed experts [layer].
    experts, experts_per_token : float or array
        Routed experts of a layer and how many a token uses [expert]; 1 and 1 for a dense model.
    tp, pp, dp : float or array
        Tensor, pipeline and attention-data parallel degrees [-].
    """

    weights_s: Floats
    experts_s: Floats
    kv_s: Floats
    attention_s: Floats
    compute_s: Floats
    tp_volume_s: Floats
    alltoall_s: Floats
    prompt_token_s: Floats
    prompt_attention_s: Floats
    layers: Floats
    moe_layers: Floats
    experts: Floats
    experts_per_token: Floats
    tp: Floats = 1
    pp: Floats = 1
    dp: Floats = 1
    hop_s: Floats = 0.0


@dataclass(frozen=True, slots=True)
class Coefficients:
    """How a real engine differs from the ideal times. The defaults are an ideal engine: no overhead, full rates.

    Parameters
    ----------
    weight_read, expert_read, kv_read, compute : float or array
        Time over ideal time of weights, routed experts, KV cache with attention, and decode FLOPs; at least 1 [-].
    tp_latency : float or array
        Per layer and doubling of the tensor-parallel degree [s].
    tp_volume : float or array
        Time over ideal time of traffic between devices; at least 1 [-].
    step_overhead : float or array
        Host time of a step [s].
    sequence_overhead : float or array
        Host and sampling time of a sequence in a step [s].
    layer_overhead, moe_layer_overhead : float or array
        Kernel launches and gaps of a layer, and what a layer with routed experts adds [s].
    prefill_linear, prefill_attention : float or array
        Time over ideal time of a prompt's weight FLOPs and attention FLOPs; at least 1 [-].
    prompt_overhead : float or array
        Host time of a prompt [s].
    prefill_share : float or array
        Share of a prefill that delays the sequences decoding beside it [-].
    ttft_constant : float or array
        Network, tokeniser and HTTP before the first token [s].
    ttft_steps : float or array
        Decode steps that a new request waits [step].
    admission_wait : float or array
        Share of the steps between two looks for new requests that a new one waits, where an engine looks less often
        than before each step [-].
    arrival_clumping : float or array
        How far requests arrive together: 0 one by one, 1 all at once [-].
    pipeline_hop : float or array
        From one stage of a pipeline to the next, beside the traffic [s].
    """

    weight_read: Floats = 1.0
    expert_read: Floats = 1.0
    kv_read: Floats = 1.0
    compute: Floats = 1.0
    tp_latency: Floats = 0.0
    tp_volume: Floats = 1.0
    step_overhead: Floats = 0.0
    sequence_overhead: Floats = 0.0
    layer_overhead: Floats = 0.0
    moe_layer_overhead: Floats = 0.0
    prefill_linear: Floats = 1.0
    prefill_attention: Floats = 1.0
    prompt_overhead: Floats = 0.0
    prefill_share: Floats = 1.0
    ttft_constant: Floats = 0.0
    ttft_steps: Floats = 0.0
    admission_wait: Floats = 0.5
    arrival_clumping: Floats = 0.0
    pipeline_hop: Floats = 0.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Where the time of a step goes, each part in seconds.

    Parameters
    ----------
    weights, experts, kv, compute : float or array
        Non-expert weights, routed experts touched, KV cache with attention, weight FLOPs [s].
    tp_latency, tp_volume, ep_alltoall, pp_hops : float or array
        Latency and volume of tensor parallelism, traffic to and from experts, hops between pipeline stages [s].
    per_step, per_sequence, per_layer : float or array
        Overheads [s].
    prefill_linear, prefill_attention, per_prompt : float or array
        Of a prompt chunk in the step, if there is one [s].
    """

    weights: Floats = 0.0
    experts: Floats = 0.0
    kv: Floats = 0.0
    compute: Floats = 0.0
    tp_latency: Floats = 0.0
    tp_volume: Floats = 0.0
    ep_alltoall: Floats = 0.0
    pp_hops: Floats = 0.0
    per_step: Floats = 0.0
    per_sequence: Floats = 0.0
    per_layer: Floats = 0.0
    prefill_linear: Floats = 0.0
    prefill_attention: Floats = 0.0
    per_prompt: Floats = 0.0

    @property
    def total(self) -> Floats:
        """Time of the whole step [s]: the terms run one after the other."""
        return sum(self.as_dict().values(), start=0.0)

    def as_dict(self) -> dict[str, Floats]:
        """Terms by name [s]."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __add__(self, other: Terms) -> Terms:
        """Join two sets of terms that run one after the other."""
        return Terms(**{name: value + getattr(other, name) for name, value in self.as_dict().items()})


def ideal(
    *,
    weight_bytes: Floats,
    kv_read_bytes: Floats,
    active_params: Floats,
    layers: Floats,
    bandwidth: Floats,
    flops: Floats,
    flops_bf16: Floats,
    hidden_size: Floats = 0,
    expert_bytes: Floats = 0,
    attention_flops: Floats = 0,
    prompt_params: Floats | None = None,
    prompt_attention_flops: Floats = 0,
    moe_layers: Floats = 0,
    experts: Floats = 1,
    experts_per_token: Floats = 1,
    link_bandwidth: Floats = np.inf,
    tp: Floats = 1,
    pp: Floats = 1,
    dp: Floats = 1,
    ep: Floats = 1,
) -> Ideal:
    """Ideal times of one device from named numbers of the whole model and one device.

    Parameters
    ----------
    weight_bytes : float or array
        Non-expert weights read in a step: attention, dense and shared feed-forward, head [B].
    kv_read_bytes : float or array
        KV cache and state that one device of a tensor-parallel group reads for one sequence at its context [B].
    active_params : float or array
        Parameters that multiply for one token, without the input embedding [parameter].
    layers : float or array
        Layers [layer].
    bandwidth, flops, flops_bf16 : float or array
        Of one device: memory [B/s], dense rate of the number format, dense 16-bit rate [FLOP/s].
    hidden_size : float or array
        Width of the residual stream [-].
    expert_bytes : float or array
        All routed experts [B].
    attention_flops : float or array
        Attention FLOPs of one decoded token at its context [FLOP].
    prompt_params : float or array, optional
        Parameters that multiply for one prompt token, without the output head; default `active_params` [parameter].
    prompt_attention_flops : float or array
        Causal attention FLOPs of one whole prompt [FLOP].
    moe_layers, experts, experts_per_token : float or array
        Layers with routed experts [layer], routed experts of one and those that a token uses [expert].
    link_bandwidth : float or array
        Scale-up link of one device, one direction [B/s].
    tp, pp, dp, ep : float or array
        Tensor, pipeline, attention-data and expert parallel degrees [-].

    Returns
    -------
    Ideal
        Times of one device's share [s].

    Examples
    --------
    >>> one = ideal(weight_bytes=139e9, kv_read_bytes=8192 * 327680 / 4, active_params=69.5e9, layers=80,
    ...             bandwidth=3.35e12, flops=989e12, flops_bf16=989e12, tp=4, link_bandwidth=450e9)
    >>> round(float(one.weights_s) * 1e3, 2), round(float(one.kv_s) * 1e6, 1)
    (10.37, 200.3)
    """
    tp = np.asarray(tp, dtype=float)[()]
    prompt = active_params if prompt_params is None else prompt_params
    allreduce = 2 * ACTIVATION_BYTES * hidden_size * layers * 2 * (tp - 1) / tp  # two a layer, ring: 2 (n - 1)/n
    reach = np.minimum(experts_per_token, ep)  # a token travels once to a device, however many experts it uses there
    spread = np.where(np.asarray(dp) > 1, (np.asarray(ep, dtype=float) - 1) / ep, 0.0)[()]
    alltoall = 2 * ACTIVATION_BYTES * hidden_size * moe_layers * reach * spread  # to the experts and back
    return Ideal(
        weights_s=roofline.t_weights(weight_bytes, tp * bandwidth),
        experts_s=roofline.t_weights(expert_bytes, tp * dp * bandwidth),
        kv_s=roofline.t_kv(1, 1, kv_read_bytes, bandwidth),
        attention_s=attention_flops / (tp * flops_bf16),
        compute_s=roofline.t_compute(1, active_params, tp * flops),
        tp_volume_s=allreduce / link_bandwidth,
        alltoall_s=alltoall / link_bandwidth,
        prompt_token_s=roofline.t_compute(1, prompt, tp * flops),
        prompt_attention_s=prompt_attention_flops / (tp * flops_bf16),
        layers=layers,
        moe_layers=moe_layers,
        experts=experts,
        experts_per_token=experts_per_token,
        tp=tp,
        pp=pp,
        dp=dp,
        hop_s=ACTIVATION_BYTES * hidden_size * (np.asarray(pp, dtype=float)[()] - 1) / link_bandwidth,
    )


def shares(ideal: Ideal, batch: Floats) -> tuple[Floats, Floats]:
    """Sequences on one data-parallel rank and stage, and those that meet one layer of experts.

    A sequence does not divide: the fullest microbatch and the fullest rank hold one as soon as there is one.

    Parameters
    ----------
    ideal : Ideal
        Ideal times of one device.
    batch : float or array
        Sequences decoded together by the whole deployment [sequence].

    Returns
    -------
    tuple of float or array
        Of a rank, and of a stage [sequence].

    Examples
    --------
    >>> one = ideal(weight_bytes=1e9, kv_read_bytes=0, active_params=1e9, layers=1, bandwidth=1e12, flops=1e15,
    ...             flops_bf16=1e15, dp=8, pp=2)
    >>> [float(share) for share in shares(one, 64)]
    [4.0, 32.0]
    """
    one = np.minimum(batch, 1)
    per_stage = np.maximum(batch / ideal.pp, one)
    return np.maximum(per_stage / ideal.dp, one), per_stage


def _coverage(ideal: Ideal, tokens: Floats) -> Floats:
    return roofline.expert_coverage(tokens, ideal.experts, ideal.experts_per_token)


def _parts(ideal: Ideal, batch: Floats) -> tuple[Floats, Floats, Floats]:
    """Compute, weights and KV of a step at datasheet rates, sequences divided as if they could be [s]."""
    tokens = batch / ideal.pp
    rank = tokens / ideal.dp
    weights = ideal.weights_s + ideal.experts_s * _coverage(ideal, tokens)
    return rank * ideal.compute_s, weights, rank * ideal.kv_s


def bound(ideal: Ideal, batch: Floats) -> Floats:
    """Article's step on this layout: perfect overlap at datasheet rates. No prediction is below it.

    Parameters
    ----------
    ideal : Ideal
        Ideal times of one device.
    batch : float or array
        Sequences decoded together by the whole deployment [sequence].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> one = ideal(weight_bytes=139e9, kv_read_bytes=0, active_params=69.5e9, layers=80, bandwidth=13.4e12,
    ...             flops=3956e12, flops_bf16=3956e12)
    >>> round(float(bound(one, 1)) * 1e3, 2)
    10.37
    """
    return roofline.t_step_bound(*_parts(ideal, batch))


def serial(ideal: Ideal, batch: Floats) -> Floats:
    """Step of an engine that runs attention and feed-forward kernels in turn, at datasheet rates.

    Parameters
    ----------
    ideal : Ideal
        Ideal times of one device.
    batch : float or array
        Sequences decoded together by the whole deployment [sequence].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> one = ideal(weight_bytes=100e9, kv_read_bytes=1e9, active_params=50e9, layers=80, bandwidth=10e12,
    ...             flops=1000e12, flops_bf16=1000e12)
    >>> round(float(serial(one, 10)) * 1e3, 2)
    11.0
    """
    return roofline.t_step_serial(*_parts(ideal, batch))


def decode_step(
    ideal: Ideal,
    coefficients: Coefficients,
    batch: Floats,
    *,
    tokens_per_sequence: Floats = 1,
    tile: int | None = None,
) -> Terms:
    """Predicted time of one decode step, term by term.

    Parameters
    ----------
    ideal : Ideal
        Ideal times of one device.
    coefficients : Coefficients
        What the engine makes of them.
    batch : float or array
        Sequences decoded together by the whole deployment [sequence].
    tokens_per_sequence : float or array
        Tokens verified per sequence: 1, or draft length + 1 under speculative decoding [token].
    tile : int, optional
        Round the tokens of the matrix products up to this many [token]. Kernels do step so (at 256 tokens the linear
        layers of a 70B on H100 take 42% more time for 264 than for 256 tokens [3]), but served points do not
        show it: a running batch fluctuates over the edge. Off by default.

    Returns
    -------
    Terms
        Parts of the step [s].

    Examples
    --------
    >>> one = ideal(weight_bytes=139e9, kv_read_bytes=1e9, active_params=69.5e9, layers=80, bandwidth=13.4e12,
    ...             flops=3956e12, flops_bf16=3956e12)
    >>> terms = decode_step(one, Coefficients(weight_read=1.2, layer_overhead=40e-6), 16)
    >>> [round(float(part) * 1e3, 2) for part in (terms.weights, terms.per_layer, terms.total)]
    [12.45, 3.2, 17.4]
    """
    c = coefficients
    rank, tokens = shares(ideal, batch)
    rank_tokens = rank * tokens_per_sequence
    computed = rank_tokens if tile is None else np.ceil(rank_tokens / tile) * tile
    attended = np.maximum(ideal.kv_s, ideal.attention_s * tokens_per_sequence)
    return Terms(
        weights=c.weight_read * ideal.weights_s,
        experts=c.expert_read * ideal.experts_s * _coverage(ideal, tokens * tokens_per_sequence),
        kv=(c.kv_read * attended) * rank,
        compute=(c.compute * ideal.compute_s) * computed,
        tp_latency=c.tp_latency * ideal.layers * np.log2(ideal.tp),
        tp_volume=(c.tp_volume * ideal.tp_volume_s) * rank_tokens,
        ep_alltoall=(c.tp_volume * ideal.alltoall_s) * rank_tokens,
        pp_hops=c.pipeline_hop * (ideal.pp - 1) + (c.tp_volume * ideal.hop_s) * rank_tokens,
        per_step=c.step_overhead,
        per_sequence=c.sequence_overhead * rank,
        per_layer=c.layer_overhead * ideal.layers + c.moe_layer_overhead * ideal.moe_layers,
    )


def prefill(
    ideal: Ideal,
    coefficients: Coefficients,
    tokens: Floats,
    *,
    attention_s: Floats | None = None,
    batch: Floats = 0,
    prompts: Floats = 1,
) -> Terms:
    """Predicted time that prompt tokens add to the step they ride in, on one data-parallel rank.

    Parameters
    ----------
    ideal : Ideal
        Ideal times of one device.
    coefficients : Coefficients
        What the engine makes of them.
    tokens : float or array
        Prompt tokens computed: a whole prompt or a chunk, without those found in the prefix cache [token].
    attention_s : float or array, optional
        Ideal time of their attention FLOPs; default that of the whole prompt, `ideal.prompt_attention_s` [s].
    batch : float or array
        Sequences that decode in the same step, whose experts are read already [sequence].
    prompts : float or array
        Prompts, or the part of one, whose host work falls here [request].

    Returns
    -------
    Terms
        Parts of the time added [s].

    Examples
    --------
    >>> one = ideal(weight_bytes=139e9, kv_read_bytes=1e9, active_params=69.5e9, layers=80, bandwidth=13.4e12,
    ...             flops=3956e12, flops_bf16=3956e12)
    >>> round(float(prefill(one, Coefficients(prefill_linear=1.6), 2048).total) * 1e3, 1)
    115.1
    """
    c = coefficients
    attention = ideal.prompt_attention_s if attention_s is None else attention_s
    fresh = np.maximum(_coverage(ideal, np.maximum(tokens, 0)) - _coverage(ideal, shares(ideal, batch)[1]), 0.0)
    return Terms(
        experts=c.expert_read * ideal.experts_s * fresh,
        tp_volume=c.tp_volume * tokens * ideal.tp_volume_s,
        ep_alltoall=c.tp_volume * tokens * ideal.alltoall_s,
        pp_hops=c.tp_volume * tokens * ideal.hop_s,
        prefill_linear=c.prefill_linear * tokens * ideal.prompt_token_s,
        prefill_attention=c.prefill_attention * attention,
        per_prompt=c.prompt_overhead * prompts,
    )


def mixed_step(
    ideal: Ideal,
    coefficients: Coefficients,
    batch: Floats,
    tokens: Floats,
    *,
    attention_s: Floats | None = None,
    prompts: Floats = 1,
) -> Terms:
    """Predicted time of a step that decodes a batch and computes prompt tokens beside it.

    Parameters
    ----------
    ideal : Ideal
        Ideal times of one device.
    coefficients : Coefficients
        What the engine makes of them.
    batch : float or array
        Sequences decoded together [sequence]; 0 for a step of prompt tokens alone.
    tokens : float or array
        Prompt tokens in the step [token].
    attention_s, prompts : float or array
        As in `prefill`.

    Returns
    -------
    Terms
        Parts of the step [s].

    Examples
    --------
    >>> one = ideal(weight_bytes=139e9, kv_read_bytes=1e9, active_params=69.5e9, layers=80, bandwidth=13.4e12,
    ...             flops=3956e12, flops_bf16=3956e12)
    >>> round(float(mixed_step(one, Coefficients(), 16, 512).total) * 1e3, 1)
    30.1
    """
    return decode_step(ideal, coefficients, batch) + prefill(
        ideal, coefficients, tokens, attention_s=attention_s, batch=batch, prompts=prompts
    )
