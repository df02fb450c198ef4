"""Gemma 3n and 4: layers that share keys and values, inputs of their own for each layer, two kinds of heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.architecture._decoders import experts
from batchline.architecture._layers import dense_ffn, gqa, moe_ffn, norms, vector
from batchline.architecture._records import Layer, Weight
from batchline.architecture._shapes import Attention, Model, assemble, attention, window_types

if TYPE_CHECKING:
    from batchline.architecture._config import Config
    from batchline.architecture._shapes import Options

__all__ = ["gemma3n", "gemma4"]

_NORMS = tuple(
    f"layers.{{}}.{name}"
    for name in (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    )
)


def _attend(sizes: Attention, *, window: int | None, shares: bool, keys_are_values: bool = False) -> Layer:
    """Attention with a norm per head; a layer that shares reads the keys and values of an earlier one."""
    layer = gqa(*sizes, qk_norm="head", window=window, has_value=not keys_are_values)
    if not shares:
        return layer
    borrowed = ("k_proj", "v_proj", "k_norm")
    return Layer(tuple(weight for weight in layer.weights if not weight.module.endswith(borrowed)), layer.caches)


def _shared(layer: Layer) -> Layer:
    """The same layer with caches that are read but not stored again."""
    return Layer(layer.weights, tuple(cache.borrowed() for cache in layer.caches))


def _own_inputs(hidden: int, width: int) -> Layer:
    """Gate and projection of the input that each layer has of its own."""
    return Layer(
        (
            Weight("layers.{}.per_layer_input_gate", "ffn", width, hidden),
            Weight("layers.{}.per_layer_projection", "ffn", hidden, width),
        )
    ) + norms(hidden, "layers.{}.post_per_layer_input_norm")


def _own_input_tables(c: Config, hidden: int, layers: int, width: int) -> Layer:
    """Embedding table of the inputs of all layers, a look-up, and their projection from the hidden width."""
    vocab = c.integer("vocab_size_per_layer_input")
    return Layer(
        (
            Weight("embed_tokens_per_layer", "layer_embedding", vocab, layers * width, active=0, shard="vocab"),
            Weight("per_layer_model_projection", "ffn", layers * width, hidden),
            vector("per_layer_projection_norm", "norm", width),
        )
    )


def gemma4(c: Config, _options: Options) -> Model:
    """Gemma 4: windows in 5 of 6 layers; global layers have larger heads whose keys are also their values."""
    sizes, layers = attention(c), c.layers()
    hidden, windows = sizes.hidden, window_types(c, layers)
    if c.flag("attention_bias"):
        raise c.wrong("attention_bias", True, "false, the only one known of this family")
    keys_are_values = c.flag("attention_k_eq_v")
    global_heads = (c.nullable("num_global_key_value_heads") or sizes.kv_heads) if keys_are_values else sizes.kv_heads
    c.ignore("num_global_key_value_heads")
    wide = Attention(hidden, sizes.heads, global_heads, c.nullable("global_head_dim") or sizes.head_dim)
    window, own = c.integer("sliding_window"), c.nullable("hidden_size_per_layer_input") or 0
    shared = c.nullable("num_kv_shared_layers", high=layers) or 0
    double = c.flag("use_double_wide_mlp")
    body, counts = norms(hidden, *_NORMS), (0, 0)
    if c.flag("enable_moe_block"):
        counts = experts(c)
        body += _gemma4_mixture(c, hidden, counts)
    c.ignore("num_experts", "num_experts_per_tok", "moe_intermediate_size", "expert_intermediate_size")
    if own:
        body += _own_inputs(hidden, own)
    width = c.integer("intermediate_size")
    kinds = {}
    for windowed in (True, False):
        for shares in (True, False):
            mixer = _attend(
                sizes if windowed else wide,
                window=window if windowed else None,
                shares=shares,
                keys_are_values=keys_are_values and not windowed,
            )
            ffn = dense_ffn(hidden, width * (2 if double and shares else 1))
            kinds[windowed, shares] = body + (_shared(mixer) if shares else mixer) + ffn
    stack = [kinds[windowed, index >= layers - shared] for index, windowed in enumerate(windows)]
    extra = _own_input_tables(c, hidden, layers, own) if own else None
    c.ignore("vocab_size_per_layer_input", "use_bidirectional_attention")
    kv_heads = min(sizes.kv_heads, global_heads)
    return assemble(c, stack, sizes._replace(kv_heads=kv_heads), experts=counts, extra=extra)


def _gemma4_mixture(c: Config, hidden: int, counts: tuple[int, int]) -> Layer:
    """Mixture beside the dense block: three more norms, and a router with a scale per input and per expert."""
    names = ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
    more = norms(hidden, *(f"layers.{{}}.{name}" for name in names))
    scales = (
        vector("layers.{}.router.scale", "router", hidden),
        vector("layers.{}.router.per_expert_scale", "router", counts[0]),
    )
    moe = moe_ffn(hidden, c.integer("moe_intermediate_size"), *counts, router="router.proj", stem="layers.{}")
    return more + Layer(scales) + moe


def gemma3n(c: Config, _options: Options) -> Model:
    """Gemma 3n: four residual streams (AltUp), low-rank bypass (LAuReL), inputs per layer, shared keys and values."""
    sizes, layers = attention(c), c.layers()
    hidden, windows = sizes.hidden, window_types(c, layers)
    if c.flag("attention_bias"):
        raise c.wrong("attention_bias", True, "false, the only one known of this family")
    widths = c.value("intermediate_size")
    widths = c.integers("intermediate_size", low=1) if isinstance(widths, list) else [c.integer("intermediate_size")]
    widths = widths * layers if len(widths) == 1 else widths
    if len(widths) < layers:
        raise c.wrong("intermediate_size", widths, f"a number or a list of {layers} layers")
    streams, rank = c.integer("altup_num_inputs", high=64), c.integer("laurel_rank")
    own = c.integer("hidden_size_per_layer_input")
    shared = c.nullable("num_kv_shared_layers", high=layers) or 0
    window = c.integer("sliding_window")
    body = norms(hidden, *_NORMS) + _own_inputs(hidden, own) + _altup(hidden, streams) + _laurel(hidden, rank)
    stack = []
    kinds: dict[tuple[bool, bool, int], Layer] = {}
    for index, (windowed, width) in enumerate(zip(windows, widths, strict=False)):
        key = windowed, index >= layers - shared, width
        if key not in kinds:
            mixer = _attend(sizes, window=window if windowed else None, shares=key[1])
            kinds[key] = body + (_shared(mixer) if key[1] else mixer) + dense_ffn(hidden, width)
        stack.append(kinds[key])
    c.ignore("altup_active_idx", "altup_coef_clip", "altup_correct_scale", "activation_sparsity_pattern")
    streams_in_out = Layer(
        (
            Weight("altup_projections", "ffn", hidden, hidden, streams - 1, streams - 1),
            Weight("altup_unembed_projections", "ffn", hidden, hidden, streams - 1, streams - 1),
        )
    )
    extra = _own_input_tables(c, hidden, layers, own) + streams_in_out
    return assemble(c, stack, sizes, extra=extra)


def _altup(hidden: int, streams: int) -> Layer:
    stem = "layers.{}.altup"
    return Layer(
        (
            vector(f"{stem}.correct_output_scale", "other", hidden),
            Weight(f"{stem}.correction_coefs", "other", streams, streams, shard="all", linear=False),
            Weight(f"{stem}.prediction_coefs", "other", streams**2, streams, shard="all", linear=False),
            Weight(f"{stem}.modality_router", "other", streams, hidden, shard="all", linear=False),
            vector(f"{stem}.router_norm", "norm", hidden),
        )
    )


def _laurel(hidden: int, rank: int) -> Layer:
    stem = "layers.{}.laurel"
    return Layer(
        (
            Weight(f"{stem}.linear_left", "ffn", rank, hidden),
            Weight(f"{stem}.linear_right", "ffn", hidden, rank),
            vector(f"{stem}.post_laurel_norm", "norm", hidden),
        )
    )
