"""Families with ordinary attention: dense ones and mixtures of experts, with and without windows."""

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
    window_types,
)

if TYPE_CHECKING:
    from batchline.architecture._config import Config
    from batchline.architecture._shapes import Options

__all__ = [
    "bloom",
    "cohere",
    "dense",
    "experts",
    "falcon",
    "gemma",
    "glm4_moe",
    "gpt2",
    "gpt_oss",
    "llama4",
    "minimax_m2",
    "mixtral",
    "nemotron_nas",
    "olmo",
    "qwen_mixture",
    "qwen_moe",
    "qwen_sparse",
    "step",
]


def _flag_or(c: Config, key: str, options: Options, option: str) -> bool:
    """Flag of the config, unless the family has it always or never."""
    if option in options:
        c.ignore(key)
        return bool(options[option])
    return c.flag(key)


def dense(c: Config, options: Options) -> Model:
    """Llama's shape: attention and a gated feed-forward block, two norms."""
    sizes, layers = attention(c), c.layers()
    bias = _flag_or(c, "attention_bias", options, "bias")
    ffn = dense_ffn(sizes.hidden, c.integer("intermediate_size"), bias=_flag_or(c, "mlp_bias", options, "mlp_bias"))
    windows = window_of_each(c, layers)
    kinds = {
        window: pre_norms(sizes.hidden)
        + gqa(
            *sizes,
            bias=bias,
            out_bias=bias and not options.get("bias"),
            qk_norm=options.get("qk_norm"),
            window=window,
        )
        + ffn
        for window in set(windows)
    }
    return assemble(c, [kinds[window] for window in windows], sizes)


def olmo(c: Config, _options: Options) -> Model:
    """OLMo 2 and 3: norms after attention and feed-forward, and over all heads; OLMo 3 has windows in 3 of 4 layers."""
    sizes, layers = attention(c), c.layers()
    bias = c.flag("attention_bias")
    windowed = c.has("layer_types") or c.expects("sliding_window_pattern")
    mixed = window_types(c, layers) if windowed else [False] * layers
    post = norms(sizes.hidden, "layers.{}.post_attention_layernorm", "layers.{}.post_feedforward_layernorm")
    ffn = dense_ffn(sizes.hidden, c.integer("intermediate_size"))
    kinds = {
        windowed: post
        + gqa(
            *sizes, bias=bias, out_bias=bias, qk_norm="full", window=c.integer("sliding_window") if windowed else None
        )
        + ffn
        for windowed in set(mixed)
    }
    return assemble(c, [kinds[windowed] for windowed in mixed], sizes)


def gemma(c: Config, options: Options) -> Model:
    """Gemma 1, 2 and 3: four norms from 2 on, windows in 1 of 2 or 5 of 6 layers, norms of q and k in 3."""
    sizes, layers = attention(c), c.layers()
    names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    around = norms(sizes.hidden, *(f"layers.{{}}.{name}" for name in names[: options.get("norms", 4)]))
    bias = c.flag("attention_bias")
    mixed = window_types(c, layers) if options.get("windows", True) else [False] * layers
    ffn = dense_ffn(sizes.hidden, c.integer("intermediate_size"))
    kinds = {
        windowed: around
        + gqa(
            *sizes,
            bias=bias,
            out_bias=bias,
            qk_norm=options.get("qk_norm"),
            window=c.integer("sliding_window") if windowed else None,
        )
        + ffn
        for windowed in set(mixed)
    }
    return assemble(c, [kinds[windowed] for windowed in mixed], sizes)


def cohere(c: Config, options: Options) -> Model:
    """Command R: attention and feed-forward block side by side behind one norm; Command R7B has windows in 3 of 4."""
    sizes, layers = attention(c), c.layers()
    bias = c.flag("attention_bias")
    around = norms(sizes.hidden, "layers.{}.input_layernorm")
    if not options.get("windows") and c.flag("use_qk_norm"):
        stem = "layers.{}.self_attn"
        around += Layer(
            (
                vector(f"{stem}.q_norm", "norm", sizes.heads * sizes.head_dim, shard="tp"),
                vector(f"{stem}.k_norm", "norm", sizes.kv_heads * sizes.head_dim, shard="kv"),
            )
        )
    mixed = window_types(c, layers) if options.get("windows") else [False] * layers
    ffn = dense_ffn(sizes.hidden, c.integer("intermediate_size"))
    kinds = {
        windowed: around
        + gqa(*sizes, bias=bias, out_bias=bias, window=c.integer("sliding_window") if windowed else None)
        + ffn
        for windowed in set(mixed)
    }
    return assemble(c, [kinds[windowed] for windowed in mixed], sizes)


def gpt2(c: Config, _options: Options) -> Model:
    """GPT-2: learned positions, biases everywhere, a plain feed-forward block of four widths."""
    sizes = attention(c)
    hidden = sizes.hidden
    width = c.nullable("intermediate_size") or 4 * hidden  # n_inner null: four widths, as its class says
    stem = "h.{}.attn"
    layer = (
        norms(hidden, "h.{}.ln_1", "h.{}.ln_2", bias=True)
        + gqa(*sizes, bias=True, out_bias=True, stem=stem)
        + dense_ffn(hidden, width, gated=False, bias=True, stem="h.{}.mlp", names=("", "c_fc", "c_proj"))
    )
    positions = c.integer("max_position_embeddings")
    extra = Layer((Weight("wpe", "position", positions, hidden, shard="all"),))
    return assemble(c, [layer] * c.layers(), sizes, norm_bias=True, final_norm="ln_f", embedding="wte", extra=extra)


def bloom(c: Config, _options: Options) -> Model:
    """BLOOM: positions by slopes, biases everywhere, a norm after the embedding."""
    sizes = attention(c)
    hidden = sizes.hidden
    layer = (
        norms(hidden, "h.{}.input_layernorm", "h.{}.post_attention_layernorm", bias=True)
        + gqa(*sizes, bias=True, out_bias=True, stem="h.{}.self_attention")
        + dense_ffn(
            hidden,
            4 * hidden,
            gated=False,
            bias=True,
            stem="h.{}.mlp",
            names=("", "dense_h_to_4h", "dense_4h_to_h"),
        )
    )
    extra = norms(hidden, "word_embeddings_layernorm", bias=True)
    return assemble(
        c, [layer] * c.layers(), sizes, norm_bias=True, final_norm="ln_f", embedding="word_embeddings", extra=extra
    )


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


def mixtral(c: Config, _options: Options) -> Model:
    """Mixtral: every layer a mixture of experts."""
    sizes = attention(c)
    counts = experts(c, "num_local_experts")
    width = c.integer("intermediate_size")
    moe = moe_ffn(sizes.hidden, width, *counts, stem="layers.{}.block_sparse_moe", names=("w1", "w3", "w2"))
    windows = window_of_each(c, c.layers())
    kinds = {window: pre_norms(sizes.hidden) + gqa(*sizes, window=window) + moe for window in set(windows)}
    return assemble(c, [kinds[window] for window in windows], sizes, experts=counts)


def minimax_m2(c: Config, _options: Options) -> Model:
    """MiniMax-M2: every layer a mixture of experts, norms over all query and all key heads."""
    sizes = attention(c)
    counts = experts(c, "num_local_experts")
    if c.nullable("shared_intermediate_size"):
        raise c.wrong("shared_intermediate_size", c.value("shared_intermediate_size"), "0; no shared expert is known")
    moe = moe_ffn(
        sizes.hidden,
        c.integer("intermediate_size"),
        *counts,
        stem="layers.{}.block_sparse_moe",
        names=("w1", "w3", "w2"),
    )
    qk_norm = "full" if c.flag("use_qk_norm") else None
    layer = pre_norms(sizes.hidden) + gqa(*sizes, qk_norm=qk_norm) + moe
    if c.has("attn_type_list") and set(c.integers("attn_type_list")) != {1}:
        raise c.wrong("attn_type_list", c.value("attn_type_list"), "all 1; only full attention is known of this family")
    c.ignore("num_mtp_modules", "mtp_transformer_layers", "use_mtp", "use_routing_bias", "qk_norm_type", "rotary_dim")
    return assemble(c, [layer] * c.layers(), sizes, experts=counts)


def qwen_moe(c: Config, options: Options) -> Model:
    """Qwen's mixtures: sparse every `decoder_sparse_step` layers but for `mlp_only_layers`."""
    sizes, layers = attention(c), c.layers()
    bias = _flag_or(c, "attention_bias", options, "bias")
    counts = experts(c, "num_experts")
    sparse, windows = qwen_sparse(c, layers), window_of_each(c, layers)
    ffn = {True: qwen_mixture(c, sizes.hidden, counts, shared=bool(options.get("shared")))}
    if not all(sparse):
        ffn[False] = dense_ffn(sizes.hidden, c.integer("intermediate_size"))
    c.ignore("intermediate_size")
    kinds = {
        (window, mixture): pre_norms(sizes.hidden)
        + gqa(
            *sizes,
            bias=bias,
            out_bias=bias and not options.get("bias"),
            qk_norm=options.get("qk_norm"),
            window=window,
        )
        + ffn[mixture]
        for window in set(windows)
        for mixture in ffn
    }
    return assemble(c, [kinds[kind] for kind in zip(windows, sparse, strict=True)], sizes, experts=counts)


def qwen_sparse(c: Config, layers: int) -> list[bool]:
    """Whether each layer of a Qwen model is a mixture."""
    step, dense_layers = c.integer("decoder_sparse_step"), set(c.integers("mlp_only_layers"))
    return [index not in dense_layers and (index + 1) % step == 0 for index in range(layers)]


def qwen_mixture(c: Config, hidden: int, counts: tuple[int, int], *, shared: bool) -> Layer:
    """Mixture of a Qwen layer, with or without its gated shared expert."""
    moe = moe_ffn(hidden, c.integer("moe_intermediate_size"), *counts)
    if shared:
        width = c.integer("shared_expert_intermediate_size")
        moe += dense_ffn(hidden, width, role="shared_expert", stem="layers.{}.mlp.shared_expert")
        moe += Layer((Weight("layers.{}.mlp.shared_expert_gate", "router", 1, hidden, shard="all", linear=False),))
    return moe


def glm4_moe(c: Config, _options: Options) -> Model:
    """GLM-4.5 to 4.7: bias of q, k and v; one shared expert; a dense layer or more first."""
    sizes, layers = attention(c), c.layers()
    counts = experts(c, "n_routed_experts")
    width, shared = c.integer("moe_intermediate_size"), c.nullable("n_shared_experts") or 0
    moe = moe_ffn(sizes.hidden, width, *counts)
    if shared:
        moe += dense_ffn(sizes.hidden, width * shared, role="shared_expert", stem="layers.{}.mlp.shared_experts")
    qk_norm = "head" if c.flag("use_qk_norm") else None
    body = pre_norms(sizes.hidden) + gqa(*sizes, bias=c.flag("attention_bias"), qk_norm=qk_norm)
    sparse = sparse_after(c, layers)
    kinds = {True: body + moe, False: body + dense_ffn(sizes.hidden, c.integer("intermediate_size"))}
    c.ignore("num_nextn_predict_layers")
    return assemble(c, [kinds[kind] for kind in sparse], sizes, experts=counts)


def gpt_oss(c: Config, _options: Options) -> Model:
    """gpt-oss: attention with a sink per head, biases everywhere, every second layer a window of 128."""
    sizes, layers = attention(c), c.layers()
    types = layer_types(c, layers, ("sliding_attention", "full_attention"))
    counts = experts(c, "num_local_experts")
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
    hidden, counts = sizes.hidden, experts(c, "num_local_experts")
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


def step(c: Config, _options: Options) -> Model:
    """Step 3.5 and 3.7 Flash: windows in 3 of 4 layers, a shared expert, dense layers first."""
    sizes, layers = attention(c), c.layers()
    windows = window_types(c, layers)
    counts = experts(c, "num_experts")
    shared = c.integer("share_expert_dim") * c.integer("n_shared_experts")
    moe = moe_ffn(sizes.hidden, c.integer("moe_intermediate_size"), *counts, stem="layers.{}.moe")
    moe += dense_ffn(sizes.hidden, shared, role="shared_expert", stem="layers.{}.share_expert")
    ffn = {True: moe, False: dense_ffn(sizes.hidden, c.integer("intermediate_size"))}
    window = c.integer("sliding_window")
    kinds = {
        (windowed, mixture): pre_norms(sizes.hidden)
        + gqa(*sizes, qk_norm="head", window=window if windowed else None)
        + ffn[mixture]
        for windowed in (True, False)
        for mixture in (True, False)
    }
    c.ignore("num_nextn_predict_layers", "use_moe_router_bias", "moe_router_scaling_factor")
    stack = [kinds[kind] for kind in zip(windows, sparse_after(c, layers), strict=True)]
    return assemble(c, stack, sizes, experts=counts)


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


def experts(c: Config, key: str) -> tuple[int, int]:
    """Count of routed experts, and of those that a token uses."""
    count, per_token = c.integer(key, high=2**16), c.integer("num_experts_per_tok", high=2**16)
    if per_token > count:
        raise c.wrong("num_experts_per_tok", per_token, f"at most {key} {count}")
    return count, per_token
