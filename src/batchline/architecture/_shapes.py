"""What every family reads alike: sizes of attention, patterns of layers, embedding and head. Builders share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from batchline.architecture._layers import norms, vector
from batchline.architecture._records import Layer, Weight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchline.architecture._config import Config

    Options = Mapping[str, Any]

__all__ = [
    "Attention",
    "Model",
    "assemble",
    "attention",
    "layer_types",
    "pre_norms",
    "sparse_after",
    "window_of_each",
    "window_types",
]


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
    expert_format : str or None
        Number format of the routed experts, where the family says so by a key of its own.
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
    expert_format: str | None = None


class Attention(NamedTuple):
    """Sizes of attention: hidden width, query heads, KV heads, elements of a head."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int


def attention(c: Config) -> Attention:
    """Read the four sizes; KV heads default to the heads, and a head to its share of the hidden width."""
    hidden, heads = c.integer("hidden_size"), c.integer("num_attention_heads")
    kv_heads = c.nullable("num_key_value_heads", low=1)  # null: multi-head attention
    if kv_heads is None:
        kv_heads = heads
    if heads % kv_heads:
        raise c.wrong("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads {heads}")
    head_dim = c.nullable("head_dim")
    if not head_dim:
        if hidden % heads:
            raise c.wrong(
                "num_attention_heads", heads, f"a divisor of hidden_size {hidden:,}, and there is no head_dim"
            )
        head_dim = hidden // heads
    return Attention(hidden, heads, kv_heads, head_dim)


def assemble(
    c: Config,
    layers: list[Layer],
    sizes: Attention,
    *,
    experts: tuple[int, int] = (0, 0),
    norm_bias: bool = False,
    head_bias: bool = False,
    final_norm: str = "norm",
    embedding: str = "embed_tokens",
    head: str = "lm_head",
    extra: Layer | None = None,
    expert_format: str | None = None,
) -> Model:
    """Put embedding, final norm and head around the layers."""
    hidden = sizes.hidden
    vocab, tied = c.integer("vocab_size"), c.flag("tie_word_embeddings")
    weights = [
        Weight(embedding, "embedding", vocab, hidden, active=1 if tied else 0, shard="vocab"),
        vector(final_norm, "norm", hidden * (2 if norm_bias else 1)),
    ]
    if not tied:
        weights.append(Weight(head, "head", vocab, hidden, shard="vocab"))
    if head_bias:
        weights.append(vector(f"{head}.bias", "head", vocab, shard="vocab"))
    outside = Layer(tuple(weights)) + (extra or Layer())
    return Model(
        hidden,
        vocab,
        layers,
        outside,
        tied,
        sizes.heads,
        sizes.kv_heads,
        sizes.head_dim,
        *experts,
        c.hint("max_position_embeddings"),
        expert_format,
    )


def pre_norms(hidden: int, *, bias: bool = False) -> Layer:
    """Two norms: before attention and before the feed-forward block."""
    return norms(hidden, "layers.{}.input_layernorm", "layers.{}.post_attention_layernorm", bias=bias)


def layer_types(c: Config, layers: int, allowed: Sequence[str], *, key: str = "layer_types") -> list[str]:
    """One of the allowed names for each layer."""
    types = c.texts(key)
    if len(types) < layers:
        raise c.wrong(key, types, f"a list of {layers} layers")
    for kind in types:
        if kind not in allowed:
            raise c.wrong(key, kind, f"one of {', '.join(allowed)}")
    return types[:layers]


def window_types(c: Config, layers: int) -> list[bool]:
    """Whether each layer has a window: by `layer_types`, or all but every `sliding_window_pattern`-th."""
    if c.has("layer_types"):
        c.ignore("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
        return [kind == "sliding_attention" for kind in layer_types(c, layers, ("sliding_attention", "full_attention"))]
    pattern = c.value("sliding_window_pattern")
    if pattern is None:  # null: no layer has a window
        return [False] * layers
    if isinstance(pattern, str):  # "LLLG": local layers, then a global one
        if not pattern or set(pattern) - {"L", "G"}:
            raise c.wrong("sliding_window_pattern", pattern, "a number or letters L and G")
        return [pattern[index % len(pattern)] == "L" for index in range(layers)]
    period = c.integer("sliding_window_pattern")
    return [(index + 1) % period != 0 for index in range(layers)]


def window_of_each(c: Config, layers: int) -> list[int | None]:
    """Window of each layer, or None: by a pattern, or one for all (from `max_window_layers` on, where known)."""
    c.ignore("use_sliding_window", "max_window_layers")
    if c.has("layer_types") or c.expects("sliding_window_pattern"):
        mixed = window_types(c, layers)
        c.ignore("sliding_window")
        return [c.integer("sliding_window") if windowed else None for windowed in mixed]
    if not c.expects("sliding_window"):
        return [None] * layers
    window = c.nullable("sliding_window") or None
    if c.expects("use_sliding_window") and not c.flag("use_sliding_window"):
        window = None
    first = c.integer("max_window_layers", low=0) if window and c.expects("max_window_layers") else 0
    return [window if index >= first else None for index in range(layers)]


def sparse_after(c: Config, layers: int) -> list[bool]:
    """Whether each layer is a mixture: all but the first few, every `moe_layer_freq`-th, or as a list says."""
    if c.has("mlp_layer_types"):
        c.ignore("first_k_dense_replace", "moe_layer_freq")
        return [kind == "sparse" for kind in layer_types(c, layers, ("dense", "sparse"), key="mlp_layer_types")]
    if isinstance(c.value("moe_layer_freq"), list):
        c.ignore("first_k_dense_replace")
        flags = c.integers("moe_layer_freq", high=1)
        if len(flags) < layers:
            raise c.wrong("moe_layer_freq", flags, f"a list of {layers} layers")
        return [bool(flag) for flag in flags[:layers]]
    first, every = c.integer("first_k_dense_replace", low=0), c.integer("moe_layer_freq")
    return [index >= first and index % every == 0 for index in range(layers)]
