"""Families that keep a state: linear attention and state-space layers, alone or among attention layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.architecture._config import MAX_LAYERS
from batchline.architecture._decoders import experts, mixture, sparse_steps
from batchline.architecture._latent import latent_attention
from batchline.architecture._layers import (
    delta_attention,
    dense_ffn,
    gated_delta_net,
    gqa,
    lightning,
    mamba1,
    mamba2,
    moe_ffn,
    norms,
    vector,
)
from batchline.architecture._records import Layer, Weight
from batchline.architecture._shapes import Model, assemble, attention, layer_types, pre_norms, sparse_after

if TYPE_CHECKING:
    from batchline.architecture._config import Config
    from batchline.architecture._shapes import Options

__all__ = ["jamba", "kimi_linear", "minimax_m1", "nemotron_h", "qwen_delta"]

_STATE_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}


def _state_width(c: Config, key: str) -> int:
    given = c.value(key)
    if not isinstance(given, str) or given not in _STATE_WIDTHS:
        raise c.wrong(key, given, f"one of {', '.join(_STATE_WIDTHS)}")
    return _STATE_WIDTHS[given]


def qwen_delta(c: Config, options: Options) -> Model:
    """Qwen3-Next, 3.5 and 3.6: a gated delta net in 3 of 4 layers, gated attention in the fourth."""
    sizes, layers = attention(c), c.layers()
    if c.has("layer_types"):
        types = layer_types(c, layers, ("linear_attention", "full_attention"))
        linear = [kind == "linear_attention" for kind in types]
        c.ignore("full_attention_interval")
    else:
        interval = c.integer("full_attention_interval")
        linear = [(index + 1) % interval != 0 for index in range(layers)]
    bias, gate = c.flag("attention_bias"), c.flag("attn_output_gate")
    mixers = {
        True: gated_delta_net(
            sizes.hidden,
            c.integer("linear_num_key_heads"),
            c.integer("linear_num_value_heads"),
            c.integer("linear_key_head_dim"),
            c.integer("linear_value_head_dim"),
            c.integer("linear_conv_kernel_dim", high=64),
            state_width=_state_width(c, "mamba_ssm_dtype"),
            fused=bool(options.get("fused")),
        ),
        False: gqa(*sizes, bias=bias, out_bias=bias, qk_norm="head", output_gate=gate),
    }
    ffn, counts, sparse = {}, (0, 0), [False] * layers
    if options.get("moe"):
        counts, sparse = experts(c), sparse_steps(c, layers)
        ffn[True] = mixture(c, sizes.hidden, counts, options)
    if not all(sparse):
        ffn[False] = dense_ffn(sizes.hidden, c.integer("intermediate_size"))
    c.ignore("intermediate_size", "decoder_sparse_step", "mlp_only_layers", "sliding_window", "use_sliding_window")
    c.ignore("mtp_num_hidden_layers", "mtp_use_dedicated_embeddings")
    kinds = {(a, b): pre_norms(sizes.hidden) + mixers[a] + ffn[b] for a in mixers for b in ffn}
    return assemble(c, [kinds[kind] for kind in zip(linear, sparse, strict=True)], sizes, experts=counts)


def jamba(c: Config, _options: Options) -> Model:
    """Jamba: attention in 1 of 8 layers, Mamba in the others; a mixture of experts in every second."""
    sizes, layers = attention(c), c.layers()
    hidden, counts = sizes.hidden, experts(c)
    attends = _periodic(c, layers, "attn_layer_period", "attn_layer_offset")
    sparse = _periodic(c, layers, "expert_layer_period", "expert_layer_offset")
    rank = c.value("mamba_dt_rank")
    rank = -(-hidden // 16) if rank == "auto" else c.integer("mamba_dt_rank")
    mixers = {
        True: gqa(*sizes),
        False: mamba1(
            hidden,
            c.integer("mamba_expand", high=64) * hidden,
            c.integer("mamba_d_state"),
            rank,
            c.integer("mamba_d_conv", high=64),
            bias=c.flag("mamba_proj_bias"),
            conv_bias=c.flag("mamba_conv_bias"),
        ),
    }
    width, stem = c.integer("intermediate_size"), "layers.{}.feed_forward"
    ffn = {
        True: moe_ffn(hidden, width, *counts, router="router", stem=stem),
        False: dense_ffn(hidden, width, stem=stem),
    }
    c.ignore("use_mamba_kernels", "sliding_window")
    around = norms(hidden, "layers.{}.input_layernorm", "layers.{}.pre_ff_layernorm")
    kinds = {(a, b): around + mixers[a] + ffn[b] for a in mixers for b in ffn}
    stack = [kinds[kind] for kind in zip(attends, sparse, strict=True)]
    return assemble(c, stack, sizes, experts=counts, final_norm="final_layernorm")


def _periodic(c: Config, layers: int, period: str, offset: str) -> list[bool]:
    every, first = c.integer(period), c.integer(offset, low=0)
    return [index % every == first % every for index in range(layers)]


_LETTERS = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "moe": "E",
    "mlp": "-",
}


def _pattern(c: Config) -> str:
    """One letter for each layer: M a state-space layer, * attention, E a mixture, - a feed-forward block."""
    key = "hybrid_override_pattern"
    if isinstance(c.value(key), list):
        kinds = c.texts(key)
        for kind in kinds:
            if kind not in _LETTERS:
                raise c.wrong("layers_block_type", kind, f"one of {', '.join(_LETTERS)}")
        pattern = "".join(_LETTERS[kind] for kind in kinds)
    else:
        pattern = c.text(key)
        if set(pattern) - set(_LETTERS.values()):
            raise c.wrong(key, pattern, "made of the letters M, *, E and -")
    if not 0 < len(pattern) <= MAX_LAYERS:
        raise c.wrong(key, pattern, f"a pattern of 1 to {MAX_LAYERS:,} layers")
    if c.has("num_hidden_layers") and c.layers() != len(pattern):
        raise c.wrong("num_hidden_layers", c.value("num_hidden_layers"), f"the {len(pattern)} layers of the pattern")
    return pattern


def nemotron_h(c: Config, _options: Options) -> Model:
    """Nemotron-H and Nemotron 3: each layer is one of Mamba-2, attention, a mixture or a feed-forward block."""
    sizes, pattern = attention(c), _pattern(c)
    hidden, stem = sizes.hidden, "layers.{}.mixer"
    bias = c.flag("mlp_bias")
    kinds, counts = {}, (0, 0)
    if "*" in pattern:
        kinds["*"] = gqa(*sizes, bias=False, stem=stem)
        if c.flag("attention_bias"):
            raise c.wrong("attention_bias", True, "false, the only one known of this family")
    if "M" in pattern:
        kinds["M"] = mamba2(
            hidden,
            c.integer("mamba_num_heads"),
            c.integer("mamba_head_dim"),
            c.integer("ssm_state_size"),
            c.integer("n_groups"),
            c.integer("conv_kernel", high=64),
            bias=c.flag("use_bias"),
            conv_bias=c.flag("use_conv_bias"),
            state_width=_state_width(c, "mamba_ssm_cache_dtype"),
        )
    if "-" in pattern:
        kinds["-"] = dense_ffn(hidden, c.integer("intermediate_size"), gated=False, bias=bias, stem=stem)
    if "E" in pattern:
        counts = experts(c)
        kinds["E"] = _nemotron_mixture(c, hidden, counts, stem)
    c.ignore(
        "attention_bias", "chunk_size", "expand", "intermediate_size", "mamba_proj_bias", "mlp_bias",
        "moe_shared_expert_overlap", "mtp_hybrid_override_pattern", "mtp_layers_block_type",
        "num_nextn_predict_layers", "rescale_prenorm_residual", "residual_in_fp32", "sliding_window",
        "time_step_floor", "time_step_limit", "time_step_max", "time_step_min", "time_step_rank", "use_mamba_kernels",
        "use_bias", "use_conv_bias", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel",
        "mamba_ssm_cache_dtype",
    )  # fmt: skip
    around = norms(hidden, "layers.{}.norm")
    stack = {letter: around + kind for letter, kind in kinds.items()}
    return assemble(
        c, [stack[letter] for letter in pattern], sizes, experts=counts, final_norm="norm_f", embedding="embeddings"
    )


def _nemotron_mixture(c: Config, hidden: int, counts: tuple[int, int], stem: str) -> Layer:
    """Experts of two matrices, in a narrower latent where `moe_latent_size` says so; the shared one is wide."""
    width, latent = c.integer("moe_intermediate_size"), c.nullable("moe_latent_size") or 0
    if c.flag("mlp_bias"):
        raise c.wrong("mlp_bias", True, "false, the only one known of a Nemotron mixture")
    names = ("gate_proj", "up_proj", "down_proj")
    layer = moe_ffn(latent or hidden, width, *counts, gated=False, router=None, stem=stem, names=names)
    layer += Layer((Weight(f"{stem}.gate", "router", counts[0], hidden, shard="all", linear=False),))
    if latent:
        layer += Layer(
            (
                Weight(f"{stem}.fc1_latent_proj", "ffn", latent, hidden, shard="all"),
                Weight(f"{stem}.fc2_latent_proj", "ffn", hidden, latent, shard="all"),
            )
        )
    shared = c.integer("moe_shared_expert_intermediate_size") * c.integer("num_shared_experts")
    return layer + dense_ffn(hidden, shared, gated=False, role="shared_expert", stem=f"{stem}.shared_experts")


def minimax_m1(c: Config, _options: Options) -> Model:
    """MiniMax-M1 and Text-01: lightning attention in 7 of 8 layers, a mixture of experts in all."""
    sizes, layers = attention(c), c.layers()
    hidden, counts = sizes.hidden, experts(c)
    full = c.integers("attn_type_list", high=1)
    if len(full) != layers:
        raise c.wrong("attn_type_list", full, f"a list of {layers} layers")
    if c.nullable("shared_intermediate_size"):
        raise c.wrong("shared_intermediate_size", c.value("shared_intermediate_size"), "0; no shared expert is known")
    width = c.integer("intermediate_size")
    moe = moe_ffn(hidden, width, *counts, stem="layers.{}.block_sparse_moe", names=("w1", "w3", "w2"))
    kinds = {
        1: pre_norms(hidden) + gqa(*sizes) + moe,
        0: pre_norms(hidden) + lightning(hidden, sizes.heads, sizes.head_dim) + moe,
    }
    c.ignore("postnorm", "shared_moe_mode", "sliding_window")
    return assemble(c, [kinds[kind] for kind in full], sizes, experts=counts)


def kimi_linear(c: Config, _options: Options) -> Model:
    """Kimi Linear and Kimi-K3: delta attention in 3 of 4 layers, latent attention in the fourth, then experts.

    Kimi-K3 adds output gates, a latent for its routed experts and attention over the residuals of earlier blocks.
    """
    layers = c.layers()
    sizes, latent = latent_attention(c, output_gate=c.flag("mla_use_output_gate"))
    linear = c.section("linear_attn_config")
    delta = set(linear.integers("kda_layers", low=1, high=layers))
    full = set(linear.integers("full_attn_layers", low=1, high=layers))
    if delta & full or len(delta | full) != layers:
        raise linear.wrong("kda_layers", sorted(delta), f"the layers of 1..{layers} that full_attn_layers leaves")
    mixers = {
        True: delta_attention(
            sizes.hidden,
            linear.integer("num_heads"),
            linear.integer("head_dim"),
            linear.integer("short_conv_kernel_size", high=64),
            full_gate=linear.flag("use_full_rank_gate"),
        ),
        False: latent,
    }
    linear.ignore("gate_lower_bound", "use_full_rank_gate")
    linear.refuse_unread()
    hidden, counts = sizes.hidden, experts(c)
    ffn = {True: _kimi_mixture(c, hidden, counts), False: dense_ffn(hidden, c.integer("intermediate_size"))}
    c.ignore("num_nextn_predict_layers", "mla_use_nope", "moe_renormalize", "use_grouped_topk", "num_expert_group")
    c.ignore("activation_situ_beta", "activation_situ_linear_beta", "latent_moe_use_norm", "attn_res_block_size")
    kinds = {(a, b): pre_norms(hidden) + mixers[a] + ffn[b] for a in mixers for b in ffn}
    order = [index + 1 in delta for index in range(layers)]
    stack = [kinds[kind] for kind in zip(order, sparse_after(c, layers), strict=True)]
    return assemble(c, stack, sizes, experts=counts)


def _kimi_mixture(c: Config, hidden: int, counts: tuple[int, int]) -> Layer:
    width, latent = c.integer("moe_intermediate_size"), c.nullable("routed_expert_hidden_size") or 0
    stem = "layers.{}.mlp"
    layer = moe_ffn(latent or hidden, width, *counts, router=None, stem=stem)
    layer += Layer(
        (
            Weight(f"{stem}.gate", "router", counts[0], hidden, shard="all", linear=False),
            vector(f"{stem}.gate.e_score_correction_bias", "router", counts[0]),
        )
    )
    if latent:
        layer += Layer(
            (
                Weight(f"{stem}.latent_down_proj", "ffn", latent, hidden, shard="all"),
                Weight(f"{stem}.latent_up_proj", "ffn", hidden, latent, shard="all"),
            )
        )
    shared = width * c.integer("num_shared_experts")
    return layer + dense_ffn(hidden, shared, role="shared_expert", stem=f"{stem}.shared_experts")
