"""Families: from a config.json to the layers of a model. One builder for each shape of layer.

`data/families.toml` maps a `model_type` to a builder here, with the defaults of the family's own configuration class.
A builder reads keys through `Config`, which types and checks them, and returns a `Model`.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from batchline.architecture._layers import Layer, Weight, dense_ffn, gqa, mla, moe_ffn, norms, vector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from batchline.architecture._config import Config

    Options = Mapping[str, Any]

__all__ = ["BUILDERS", "Family", "Model", "families"]


@dataclass(frozen=True)
class Family:
    """How a `model_type` is read.

    Parameters
    ----------
    builder : str
        Name in `BUILDERS`.
    defaults : mapping
        What its own configuration class assumes for an absent key.
    names : mapping
        Other spellings of a key.
    options : mapping
        What the builder needs to know and no key says.
    source : str
        Where the defaults and the shape are written down.
    """

    builder: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, list[str]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True)
class Model:
    """What a builder returns: all layers, what stands outside them, and the sizes that others ask for.

    Parameters
    ----------
    hidden_size, vocab_size : int
        Widths [-].
    layers : list of Layer
        In order, one for each layer of the config.
    outside : Layer
        Embedding, final norm, head.
    tied_embeddings : bool
        Whether the head is the embedding.
    heads, kv_heads, head_dim : int
        Of attention [-].
    experts, experts_per_token : int
        Routed experts of a layer, and those that a token uses; 0 without [expert].
    max_context : int or None
        Longest context [token].
    """

    hidden_size: int
    vocab_size: int
    layers: list[Layer]
    outside: Layer
    tied_embeddings: bool
    heads: int
    kv_heads: int
    head_dim: int
    experts: int = 0
    experts_per_token: int = 0
    max_context: int | None = None


@functools.cache
def families() -> dict[str, Family]:
    """All families, by `model_type`."""
    text = resources.files("batchline").joinpath("data", "families.toml").read_text(encoding="utf-8")
    return {name: Family(**table) for name, table in tomllib.loads(text).items()}


def _max_context(c: Config) -> int | None:
    return c.optional("max_position_embeddings", low=1)


def _outside(c: Config, hidden: int, *, norm_bias: bool = False, head_bias: bool = False) -> tuple[int, bool, Layer]:
    vocab = c.integer("vocab_size")
    tied = c.flag("tie_word_embeddings")
    weights = [
        Weight("embed_tokens", "embedding", vocab, hidden, active=1 if tied else 0, shard="vocab"),
        vector("norm", "norm", hidden * (2 if norm_bias else 1)),
    ]
    if not tied:
        weights.append(Weight("lm_head", "head", vocab, hidden, shard="vocab"))
    if head_bias:
        weights.append(vector("lm_head.bias", "head", vocab, shard="vocab"))
    return vocab, tied, Layer(tuple(weights))


def _head_dim(c: Config, hidden: int, heads: int) -> int:
    given = c.optional("head_dim")  # null or absent: every family that has the key then takes hidden / heads
    if given:
        return given
    if hidden % heads:
        raise c.wrong("num_attention_heads", heads, f"a divisor of hidden_size {hidden:,}, and there is no head_dim")
    return hidden // heads


def _kv_heads(c: Config, heads: int) -> int:
    kv_heads = c.optional("num_key_value_heads", low=1)  # null or absent: multi-head attention
    if kv_heads is None:
        return heads
    if heads % kv_heads:
        raise c.wrong("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads {heads}")
    return kv_heads


def _pre_norms(hidden: int) -> Layer:
    return norms(hidden, "layers.{}.input_layernorm", "layers.{}.post_attention_layernorm")


def _window(c: Config) -> int | None:
    """Window of every layer, for families without `layer_types`."""
    window = c.optional("sliding_window")
    if "use_sliding_window" in c.data and not c.flag("use_sliding_window"):
        return None
    return window or None


def _layer_types(c: Config, layers: int, *allowed: str) -> list[str]:
    types = c.texts("layer_types")
    if len(types) != layers:
        raise c.wrong("layer_types", types, f"a list of {layers} layers")
    for kind in types:
        if kind not in allowed:
            raise c.wrong("layer_types", kind, f"one of {', '.join(allowed)}")
    return types


def _attention_shape(c: Config) -> tuple[int, int, int, int]:
    hidden, heads = c.integer("hidden_size"), c.integer("num_attention_heads")
    return hidden, heads, _kv_heads(c, heads), _head_dim(c, hidden, heads)


def _flag_or(c: Config, key: str, options: Options, option: str) -> bool:
    return bool(options[option]) if option in options else c.value(key) is not None and c.flag(key)


def dense(c: Config, options: Options) -> Model:
    """Llama's shape: attention and a gated feed-forward block, two norms."""
    hidden, heads, kv_heads, head_dim = _attention_shape(c)
    bias = _flag_or(c, "attention_bias", options, "bias")
    attention = gqa(
        hidden,
        heads,
        kv_heads,
        head_dim,
        bias=bias,
        out_bias=bias and not options.get("bias"),
        qk_norm=options.get("qk_norm"),
        window=_window(c),
    )
    ffn = dense_ffn(hidden, c.integer("intermediate_size"), bias=_flag_or(c, "mlp_bias", options, "mlp_bias"))
    layer = _pre_norms(hidden) + attention + ffn
    vocab, tied, outside = _outside(c, hidden)
    return Model(
        hidden, vocab, [layer] * c.layers(), outside, tied, heads, kv_heads, head_dim, max_context=_max_context(c)
    )


def mixtral(c: Config, _options: Options) -> Model:
    """Mixtral: every layer a mixture of experts."""
    hidden, heads, kv_heads, head_dim = _attention_shape(c)
    experts, per_token = c.integer("num_local_experts"), c.integer("num_experts_per_tok")
    moe = moe_ffn(
        hidden,
        c.integer("intermediate_size"),
        experts,
        per_token,
        stem="layers.{}.block_sparse_moe",
        names=("w1", "w3", "w2"),
    )
    layer = _pre_norms(hidden) + gqa(hidden, heads, kv_heads, head_dim, window=_window(c)) + moe
    vocab, tied, outside = _outside(c, hidden)
    return Model(
        hidden,
        vocab,
        [layer] * c.layers(),
        outside,
        tied,
        heads,
        kv_heads,
        head_dim,
        experts,
        per_token,
        _max_context(c),
    )


def qwen_moe(c: Config, options: Options) -> Model:
    """Qwen's mixtures: sparse every `decoder_sparse_step` layers but for `mlp_only_layers`."""
    hidden, heads, kv_heads, head_dim = _attention_shape(c)
    layers = c.layers()
    bias = _flag_or(c, "attention_bias", options, "bias")
    attention = gqa(hidden, heads, kv_heads, head_dim, bias=bias, out_bias=bias, qk_norm=options.get("qk_norm"))
    experts, per_token = c.integer("num_experts"), c.integer("num_experts_per_tok")
    step, dense_layers = c.integer("decoder_sparse_step"), set(c.integers("mlp_only_layers"))
    sparse = [index not in dense_layers and (index + 1) % step == 0 for index in range(layers)]
    body = _pre_norms(hidden) + attention
    kinds = {True: body + moe_ffn(hidden, c.integer("moe_intermediate_size"), experts, per_token)}
    if not all(sparse):
        kinds[False] = body + dense_ffn(hidden, c.integer("intermediate_size"))
    c.ignore("intermediate_size", "use_sliding_window", "sliding_window")
    vocab, tied, outside = _outside(c, hidden)
    stack = [kinds[kind] for kind in sparse]
    return Model(hidden, vocab, stack, outside, tied, heads, kv_heads, head_dim, experts, per_token, _max_context(c))


def gpt_oss(c: Config, _options: Options) -> Model:
    """gpt-oss: attention with a sink per head, biases everywhere, every second layer a window of 128."""
    hidden, heads, kv_heads, head_dim = _attention_shape(c)
    layers = c.layers()
    types = _layer_types(c, layers, "sliding_attention", "full_attention")
    experts, per_token = c.integer("num_local_experts"), c.integer("num_experts_per_tok")
    moe = moe_ffn(
        hidden, c.integer("intermediate_size"), experts, per_token, bias=True, router="router", router_bias=True
    )
    c.flag("attention_bias")
    sinks = Layer((vector("layers.{}.self_attn.sinks", "attention", heads, shard="tp"),))
    window = c.integer("sliding_window")
    kinds = {
        kind: _pre_norms(hidden)
        + gqa(
            hidden,
            heads,
            kv_heads,
            head_dim,
            bias=True,
            out_bias=True,
            window=window if kind == "sliding_attention" else None,
        )
        + sinks
        + moe
        for kind in set(types)
    }
    vocab, tied, outside = _outside(c, hidden)
    stack = [kinds[kind] for kind in types]
    return Model(hidden, vocab, stack, outside, tied, heads, kv_heads, head_dim, experts, per_token, _max_context(c))


def deepseek(c: Config, _options: Options) -> Model:
    """DeepSeek-V2, V3, R1 and Kimi-K2: latent attention; routed and shared experts after a few dense layers."""
    hidden, heads, layers = c.integer("hidden_size"), c.integer("num_attention_heads"), c.layers()
    nope, rope, value = c.integer("qk_nope_head_dim"), c.integer("qk_rope_head_dim"), c.integer("v_head_dim")
    attention = mla(
        hidden,
        heads,
        q_lora=c.optional("q_lora_rank") or None,
        kv_lora=c.integer("kv_lora_rank"),
        nope=nope,
        rope=rope,
        value=value,
        bias=c.flag("attention_bias"),
    )
    experts, per_token = c.integer("n_routed_experts"), c.integer("num_experts_per_tok")
    width, shared = c.integer("moe_intermediate_size"), c.optional("n_shared_experts") or 0
    moe = moe_ffn(hidden, width, experts, per_token)
    if shared:
        moe += dense_ffn(hidden, width * shared, role="shared_expert", stem="layers.{}.mlp.shared_experts")
    body = _pre_norms(hidden) + attention
    first, every = c.integer("first_k_dense_replace", low=0), c.integer("moe_layer_freq")
    sparse = [index >= first and index % every == 0 for index in range(layers)]
    kinds = {True: body + moe}
    if not all(sparse):
        kinds[False] = body + dense_ffn(hidden, c.integer("intermediate_size"))
    c.ignore("intermediate_size", "num_key_value_heads", "num_nextn_predict_layers")
    vocab, tied, outside = _outside(c, hidden)
    stack = [kinds[kind] for kind in sparse]
    return Model(hidden, vocab, stack, outside, tied, heads, 1, nope + rope, experts, per_token, _max_context(c))


BUILDERS: Mapping[str, Callable[[Config, Options], Model]] = {
    builder.__name__: builder for builder in (deepseek, dense, gpt_oss, mixtral, qwen_moe)
}
