"""Families with ordinary attention, dense or mixtures of experts. Most are one builder, `decoder`, with options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.architecture._layers import dense_ffn, gqa, moe_ffn, norms, vector
from batchline.architecture._records import Layer, Weight
from batchline.architecture._shapes import (
    Attention,
    Model,
    assemble,
    attention,
    layer_types,
    pre_norms,
    sparse_after,
    window_of_each,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from batchline.architecture._config import Config
    from batchline.architecture._shapes import Options

__all__ = [
    "deci",
    "decoder",
    "experts",
    "falcon",
    "gpt_oss",
    "llama4",
    "mimo_v2",
    "mixture",
    "nemotron_nas",
    "sparse_steps",
]

_FFN_NAMES = ("gate_proj", "up_proj", "down_proj")


def decoder(c: Config, options: Options) -> Model:
    """Attention and a feed-forward block in each layer, as the options of the family say (docs/models.md)."""
    sizes, layers = attention(c), c.layers()
    hidden, stem = sizes.hidden, options.get("stem", "layers.{}.")
    windows = window_of_each(c, layers)
    names = options.get("norms", ("input_layernorm", "post_attention_layernorm"))
    around = norms(hidden, *(f"{stem}{name}" for name in names), bias=bool(options.get("norm_bias")))
    sparse, ffn, counts = _feed_forward(c, hidden, layers, stem, options)
    bias = _flag(c, options, "qkv_bias", "attention_bias")
    out_bias = _flag(c, options, "out_bias", options.get("out_bias_key", "attention_bias"))
    qk_norm = options.get("qk_norm")
    if "qk_norm_key" in options and not c.flag(options["qk_norm_key"]):
        qk_norm = None
    kinds = {
        (window, mixed): around
        + gqa(
            *sizes,
            bias=bias,
            out_bias=out_bias,
            qk_norm=qk_norm,
            window=window,
            stem=f"{stem}{options.get('attention', 'self_attn')}",
        )
        + ffn[mixed]
        for window in set(windows)
        for mixed in set(sparse)
    }
    stack = [kinds[kind] for kind in zip(windows, sparse, strict=True)]
    return assemble(
        c,
        stack,
        sizes,
        experts=counts,
        norm_bias=bool(options.get("norm_bias")),
        head_bias=bool(options.get("head_bias")) or (c.expects("lm_head_bias") and c.flag("lm_head_bias")),
        final_norm=options.get("final_norm", "norm"),
        embedding=options.get("embedding", "embed_tokens"),
        extra=_beside_the_embedding(c, hidden, options),
    )


def _flag(c: Config, options: Options, option: str, key: str) -> bool:
    """What the family has always or never, or else a key of the config."""
    if option not in options:
        return c.flag(key)
    c.ignore(key)
    return bool(options[option])


def _beside_the_embedding(c: Config, hidden: int, options: Options) -> Layer:
    """Learned positions (with an offset of rows that stand for padding), and a norm after the embedding."""
    layer = Layer()
    if "positions" in options:
        rows = c.integer("max_position_embeddings") + options["positions"]
        layer += Layer((Weight("position_embeddings", "position", rows, hidden, shard="all"),))
    if "embedding_norm" in options:
        layer += norms(hidden, options["embedding_norm"], bias=bool(options.get("norm_bias")))
    return layer


def _feed_forward(
    c: Config, hidden: int, layers: int, stem: str, options: Options
) -> tuple[list[bool], dict[bool, Layer], tuple[int, int]]:
    """Which layers are mixtures, the blocks of both kinds, and the counts of experts."""
    rule = options.get("experts", "never")
    sparse = _SPARSE[rule](c, layers)
    ffn, counts = {}, (0, 0)
    if rule != "never":
        counts = experts(c)
        ffn[True] = mixture(c, hidden, counts, options)
    if not all(sparse):
        width = c.nullable("intermediate_size") if options.get("width_factor") else c.integer("intermediate_size")
        ffn[False] = dense_ffn(
            hidden,
            width or options["width_factor"] * hidden,
            gated=options.get("gated", True),
            bias=_flag(c, options, "ffn_bias", options.get("ffn_bias_key", "mlp_bias")),
            stem=f"{stem}{options.get('ffn', 'mlp')}",
            names=tuple(options.get("ffn_names", _FFN_NAMES)),
        )
    c.ignore("intermediate_size", "mlp_bias", "num_nextn_predict_layers")
    return sparse, ffn, counts


def _never(_c: Config, layers: int) -> list[bool]:
    return [False] * layers


def _always(_c: Config, layers: int) -> list[bool]:
    return [True] * layers


def sparse_steps(c: Config, layers: int) -> list[bool]:
    """Mixtures of Qwen: every `decoder_sparse_step`-th layer but for `mlp_only_layers`."""
    step, dense_layers = c.integer("decoder_sparse_step"), set(c.integers("mlp_only_layers"))
    return [index not in dense_layers and (index + 1) % step == 0 for index in range(layers)]


def _sparse_between(c: Config, layers: int) -> list[bool]:
    """Mixtures of ERNIE: every so many layers from a first to a last one, -1 being the very last."""
    first, step = c.integer("moe_layer_start_index", low=0), c.integer("moe_layer_interval")
    last = c.integer("moe_layer_end_index", low=-1)
    last = layers - 1 if last == -1 else last
    return [first <= index <= last and (index + 1) % step == 0 for index in range(layers)]


_SPARSE: Mapping[str, Callable[[Config, int], list[bool]]] = {
    "never": _never,
    "all": _always,
    "step": sparse_steps,
    "after": sparse_after,
    "between": _sparse_between,
}


def mixture(c: Config, hidden: int, counts: tuple[int, int], options: Options) -> Layer:
    """Routed experts, and shared ones: as many of the same width (`count`), or one of a width of its own (`width`)."""
    stem = options.get("expert_stem", "layers.{}.mlp")
    names = tuple(options.get("expert_names", _FFN_NAMES))
    width = c.integer("moe_intermediate_size")
    layer = moe_ffn(hidden, width, *counts, router=options.get("router", "gate"), stem=stem, names=names)
    if options.get("router_correction"):
        layer += Layer((vector(f"{stem}.gate.e_score_correction_bias", "router", counts[0]),))
    shared = 0
    if options.get("shared") == "count":
        shared = width * (c.nullable("num_shared_experts") or 0)
    elif options.get("shared") == "width":
        shared = c.integer("shared_expert_intermediate_size") * (
            c.integer("num_shared_experts") if c.expects("num_shared_experts") else 1
        )
    if shared:
        shared_stem = options.get("shared_stem", f"{stem}.shared_experts")
        layer += dense_ffn(hidden, shared, role="shared_expert", stem=shared_stem)
    if shared and options.get("shared_gate"):
        layer += Layer((Weight(f"{stem}.shared_expert_gate", "router", 1, hidden, shard="all", linear=False),))
    return layer


def experts(c: Config) -> tuple[int, int]:
    """Count of routed experts, and of those that a token uses."""
    count, per_token = c.integer("num_experts", high=2**16), c.integer("num_experts_per_tok", high=2**16)
    if per_token > count:
        raise c.wrong("num_experts_per_tok", per_token, f"at most the {count} experts")
    return count, per_token


def falcon(c: Config, _options: Options) -> Model:
    """Falcon: one KV head (7B), or grouped ones with two norms (40B, 180B, Falcon 2)."""
    hidden, heads = c.integer("hidden_size"), c.integer("num_attention_heads")
    grouped, single = c.flag("new_decoder_architecture"), c.flag("multi_query")
    kv_heads = (c.nullable("num_kv_heads") or heads) if grouped else 1 if single else heads
    c.ignore("num_kv_heads", "alibi")
    if hidden % heads or heads % kv_heads:
        raise c.wrong("num_attention_heads", heads, f"a divisor of hidden_size {hidden} and a multiple of the KV heads")
    sizes = Attention(hidden, heads, kv_heads, hidden // heads)
    bias = c.flag("bias")
    width = c.nullable("ffn_hidden_size") or 4 * hidden
    two = (c.nullable("num_ln_in_parallel_attn") or 2) == 2 if grouped else not c.flag("parallel_attn")
    c.ignore("num_ln_in_parallel_attn", "parallel_attn")
    around = norms(hidden, *("h.{}.ln_attn", "h.{}.ln_mlp")[: 2 if two else 1], bias=True)
    layer = (
        around
        + gqa(*sizes, bias=bias, out_bias=bias, stem="h.{}.self_attention")
        + dense_ffn(
            hidden, width, gated=False, bias=bias, stem="h.{}.mlp", names=("", "dense_h_to_4h", "dense_4h_to_h")
        )
    )
    return assemble(c, [layer] * c.layers(), sizes, norm_bias=True, final_norm="ln_f", embedding="word_embeddings")


def gpt_oss(c: Config, _options: Options) -> Model:
    """gpt-oss: attention with a sink per head, biases everywhere, every second layer a window of 128."""
    sizes, layers = attention(c), c.layers()
    types = layer_types(c, layers, ("sliding_attention", "full_attention"))
    counts = experts(c)
    moe = moe_ffn(sizes.hidden, c.integer("intermediate_size"), *counts, bias=True, router="router", router_bias=True)
    c.ignore("attention_bias")  # true in every checkpoint; the class knows no other
    sinks = Layer((vector("layers.{}.self_attn.sinks", "attention", sizes.heads, shard="tp"),))
    window = c.integer("sliding_window")
    kinds = {
        kind: pre_norms(sizes.hidden)
        + gqa(*sizes, bias=True, out_bias=True, window=window if kind == "sliding_attention" else None)
        + sinks
        + moe
        for kind in set(types)
    }
    return assemble(c, [kinds[kind] for kind in types], sizes, experts=counts)


def llama4(c: Config, _options: Options) -> Model:
    """Llama 4: attention in chunks of 8,192 tokens but in every fourth layer; a shared expert beside routed ones."""
    sizes, layers = attention(c), c.layers()
    hidden, counts = sizes.hidden, experts(c)
    width, stem = c.integer("intermediate_size"), "layers.{}.feed_forward"
    step = c.integer("interleave_moe_layer_step")
    listed = c.integers("moe_layers") if c.has("moe_layers") else range(step - 1, layers, step)
    sparse = [index in set(listed) for index in range(layers)]
    ffn = {
        True: moe_ffn(hidden, width, *counts, router="router", stem=stem)
        + dense_ffn(hidden, width, role="shared_expert", stem=f"{stem}.shared_expert"),
        False: dense_ffn(hidden, c.integer("intermediate_size_mlp"), stem=stem),
    }
    bias, chunk = c.flag("attention_bias"), c.integer("attention_chunk_size")
    kinds = {
        (chunked, mixture): pre_norms(hidden)
        + gqa(*sizes, bias=bias, out_bias=bias, window=chunk if chunked else None)
        + ffn[mixture]
        for chunked in (True, False)
        for mixture in (True, False)
    }
    c.ignore("use_qk_norm", "no_rope_layer_interval", "attn_temperature_tuning", "floor_scale", "attn_scale")
    stack = [kinds[kind] for kind in zip(_rotary_layers(c, layers), sparse, strict=True)]
    return assemble(c, stack, sizes, experts=counts)


def _rotary_layers(c: Config, layers: int) -> list[bool]:
    """Which layers have rotary positions, and so attend in chunks: a list, or all but every fourth."""
    if c.has("layer_types"):
        types = layer_types(c, layers, ("chunked_attention", "full_attention"))
        c.ignore("no_rope_layers")
        return [kind == "chunked_attention" for kind in types]
    flags = c.integers("no_rope_layers", high=1) if c.has("no_rope_layers") else []
    if not flags:
        period = c.integer("no_rope_layer_interval")
        return [(index + 1) % period != 0 for index in range(layers)]
    if len(flags) < layers:
        raise c.wrong("no_rope_layers", flags, f"a list of {layers} layers")
    return [bool(flag) for flag in flags[:layers]]


def nemotron_nas(c: Config, _options: Options) -> Model:
    """Llama-Nemotron found by search: each block says its KV heads and feed-forward width, or has none."""
    hidden, heads, layers = c.integer("hidden_size"), c.integer("num_attention_heads"), c.layers()
    if hidden % heads:
        raise c.wrong("num_attention_heads", heads, f"a divisor of hidden_size {hidden:,}")
    sizes = Attention(hidden, heads, heads, hidden // heads)
    blocks = c.objects("block_configs")
    if len(blocks) != layers:
        raise c.wrong("block_configs", len(blocks), f"a list of {layers} blocks")
    shapes = [
        (_nas_kv_heads(block.section("attention"), heads), _nas_width(block.section("ffn"), hidden)) for block in blocks
    ]
    kinds = {}
    for kv_heads, width in set(shapes):
        layer = Layer()
        if kv_heads:
            layer += norms(hidden, "layers.{}.input_layernorm") + gqa(hidden, heads, kv_heads, sizes.head_dim)
        if width:
            layer += norms(hidden, "layers.{}.post_attention_layernorm") + dense_ffn(hidden, width)
        kinds[kv_heads, width] = layer
    c.ignore("intermediate_size", "num_key_value_heads", "attention_bias", "mlp_bias")
    fewest = min((kv_heads for kv_heads, _ in shapes if kv_heads), default=heads)
    return assemble(c, [kinds[shape] for shape in shapes], sizes._replace(kv_heads=fewest))


def _nas_kv_heads(block: Config, heads: int) -> int:
    """KV heads of a block; 0 without attention."""
    group = 0 if block.flag("no_op") else block.integer("n_heads_in_group")
    if group and heads % group:
        raise block.wrong("n_heads_in_group", group, f"a divisor of num_attention_heads {heads}")
    block.refuse_unread()
    return heads // group if group else 0


def _nas_width(block: Config, hidden: int) -> int:
    """Width of the feed-forward part of a block; 0 without."""
    multiple = 0.0 if block.flag("no_op") else block.number("ffn_mult", high=64)
    block.refuse_unread()
    return -(-int(2 * multiple * hidden / 3) // 256) * 256  # rounded up to a multiple of 256, as its class does


def deci(c: Config, _options: Options) -> Model:
    """DeciLM: Llama's shape with KV heads of its own in each layer."""
    hidden, heads, layers = c.integer("hidden_size"), c.integer("num_attention_heads"), c.layers()
    kv_heads = c.integers("num_key_value_heads_per_layer", low=1)
    if len(kv_heads) != layers or hidden % heads or any(heads % count for count in kv_heads):
        raise c.wrong("num_key_value_heads_per_layer", kv_heads, f"{layers} divisors of {heads} heads")
    ffn = dense_ffn(hidden, c.integer("intermediate_size"))
    kinds = {count: pre_norms(hidden) + gqa(hidden, heads, count, hidden // heads) + ffn for count in set(kv_heads)}
    c.ignore("num_key_value_heads")
    return assemble(c, [kinds[count] for count in kv_heads], Attention(hidden, heads, min(kv_heads), hidden // heads))


def mimo_v2(c: Config, _options: Options) -> Model:
    """MiMo-V2-Flash: narrow values; window layers have heads of their own and a sink for each."""
    hidden, layers = c.integer("hidden_size"), c.layers()
    bias = c.flag("attention_bias")
    sides = {}
    for windowed, front in ((False, ""), (True, "swa_")):
        heads, kv_heads = c.integer(f"{front}num_attention_heads"), c.integer(f"{front}num_key_value_heads")
        head_dim, value_dim = c.integer(f"{front}head_dim"), c.integer(f"{front}v_head_dim")
        if heads % kv_heads:
            raise c.wrong(f"{front}num_key_value_heads", kv_heads, f"a divisor of {heads} heads")
        window = c.integer("sliding_window") if windowed else None
        sides[windowed] = gqa(hidden, heads, kv_heads, head_dim, value_dim=value_dim, bias=bias, window=window)
        if c.flag("add_swa_attention_sink_bias" if windowed else "add_full_attention_sink_bias"):
            sinks = vector("layers.{}.self_attn.attention_sink_bias", "attention", heads, shard="tp")
            sides[windowed] += Layer((sinks,))
    pattern = c.integers("hybrid_layer_pattern", high=1)
    if len(pattern) != layers:
        raise c.wrong("hybrid_layer_pattern", pattern, f"a list of {layers} layers")
    counts = experts(c)
    ffn = {
        True: mixture(c, hidden, counts, {"shared": "count"}),
        False: dense_ffn(hidden, c.integer("intermediate_size")),
    }
    kinds = {(a, b): pre_norms(hidden) + sides[a] + ffn[b] for a in sides for b in ffn}
    c.ignore("sliding_window_size", "attention_chunk_size", "attention_value_scale", "swa_rope_theta")
    kv_heads = min(c.integer("num_key_value_heads"), c.integer("swa_num_key_value_heads"))
    sizes = Attention(hidden, c.integer("num_attention_heads"), kv_heads, c.integer("head_dim"))
    stack = [kinds[bool(flag), mixed] for flag, mixed in zip(pattern, sparse_after(c, layers), strict=True)]
    return assemble(c, stack, sizes, experts=counts)
