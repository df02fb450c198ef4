"""Layers of every kind: attention, feed-forward blocks, states. Each builder returns the weights and caches of one.

Names of modules are those of Hugging Face checkpoints, so that exclude lists of quantised ones find them.
"""

from __future__ import annotations

from batchline.architecture._records import Cache, Layer, Weight

__all__ = [
    "delta_attention",
    "dense_ffn",
    "gated_delta_net",
    "gqa",
    "indexer",
    "lightning",
    "mamba1",
    "mamba2",
    "mla",
    "moe_ffn",
    "norms",
    "vector",
]


def vector(module: str, role: str, size: int, *, shard: str = "all", copies: int = 1, active: float = 1) -> Weight:
    """Bias, norm or other vector that no quantiser touches."""
    return Weight(module, role, size, 1, copies, active, shard, linear=False)


def norms(hidden: int, *modules: str, bias: bool = False) -> Layer:
    """Norms over the hidden width, each a gain (and a bias)."""
    size = 2 * hidden if bias else hidden
    return Layer(tuple(vector(module, "norm", size) for module in modules))


def gqa(
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    value_dim: int | None = None,
    bias: bool = False,
    out_bias: bool = False,
    qk_norm: str | None = None,
    window: int | None = None,
    read_limit: int | None = None,
    output_gate: bool = False,
    has_value: bool = True,
    stem: str = "layers.{}.self_attn",
) -> Layer:
    """Grouped-query attention: H query heads share K key and value heads; K = H is multi-head, K = 1 multi-query.

    `qk_norm` is "head" (one gain per element of a head) or "full" (one per element of all heads). `has_value` false:
    values are the keys before their norm, so there is no value projection, yet both are cached.
    """
    value_dim = head_dim if value_dim is None else value_dim
    q_rows = heads * head_dim * (2 if output_gate else 1)
    k_rows, v_rows, o_columns = kv_heads * head_dim, kv_heads * value_dim, heads * value_dim
    weights = [
        Weight(f"{stem}.q_proj", "attention", q_rows, hidden),
        Weight(f"{stem}.k_proj", "attention", k_rows, hidden, shard="kv"),
        *([Weight(f"{stem}.v_proj", "attention", v_rows, hidden, shard="kv")] if has_value else []),
        Weight(f"{stem}.o_proj", "attention", hidden, o_columns),
    ]
    if bias:
        weights.append(vector(f"{stem}.q_proj.bias", "attention", q_rows, shard="tp"))
        weights.append(vector(f"{stem}.k_proj.bias", "attention", k_rows, shard="kv"))
        weights.append(vector(f"{stem}.v_proj.bias", "attention", v_rows, shard="kv"))
    if out_bias:
        weights.append(vector(f"{stem}.o_proj.bias", "attention", hidden))
    if qk_norm == "head":
        weights += [vector(f"{stem}.q_norm", "norm", head_dim), vector(f"{stem}.k_norm", "norm", head_dim)]
    elif qk_norm == "full":
        weights.append(vector(f"{stem}.q_norm", "norm", heads * head_dim, shard="tp"))
        weights.append(vector(f"{stem}.k_norm", "norm", k_rows, shard="kv"))
    flops = 2 * heads * (head_dim + value_dim)  # scores, then values: a multiply and an add each
    cache = Cache(
        "kv",
        kv_heads * (head_dim + value_dim),
        window=window,
        read_limit=read_limit,
        decode_flops=flops,
        prefill_flops=flops,
        heads=kv_heads,
    )
    return Layer(tuple(weights), (cache,))


def mla(
    hidden: int,
    heads: int,
    *,
    q_lora: int | None,
    kv_lora: int,
    nope: int,
    rope: int,
    value: int,
    bias: bool = False,
    read_limit: int | None = None,
    output_gate: bool = False,
    stem: str = "layers.{}.self_attn",
) -> Layer:
    """Multi-head latent attention: all heads share one latent and one rotary key per token [DeepSeek-V2, 2405.04434].

    Decoding multiplies in the latent space (`kv_lora` + `rope` for scores, `kv_lora` for values); prefill widens
    the latents into heads first, unless each token reads its own choice of them (`read_limit`).
    """
    q_rows = heads * (nope + rope)
    if q_lora is None:
        weights = [Weight(f"{stem}.q_proj", "attention", q_rows, hidden)]
    else:
        weights = [
            Weight(f"{stem}.q_a_proj", "attention", q_lora, hidden, shard="all"),
            vector(f"{stem}.q_a_layernorm", "norm", q_lora),
            Weight(f"{stem}.q_b_proj", "attention", q_rows, q_lora),
        ]
    weights += [
        Weight(f"{stem}.kv_a_proj_with_mqa", "attention", kv_lora + rope, hidden, shard="all"),
        vector(f"{stem}.kv_a_layernorm", "norm", kv_lora),
        Weight(f"{stem}.kv_b_proj", "attention", heads * (nope + value), kv_lora),
        Weight(f"{stem}.o_proj", "attention", hidden, heads * value),
    ]
    if bias:
        weights.append(vector(f"{stem}.q_a_proj.bias", "attention", q_lora or 0))
        weights.append(vector(f"{stem}.kv_a_proj_with_mqa.bias", "attention", kv_lora + rope))
        weights.append(vector(f"{stem}.o_proj.bias", "attention", hidden))
    if output_gate:
        weights.append(Weight(f"{stem}.g_proj", "attention", heads * value, hidden))
    decode = 2 * heads * (kv_lora + rope + kv_lora)
    prefill = 2 * heads * (nope + rope + value) if read_limit is None else decode
    cache = Cache(
        "latent", kv_lora + rope, rope, read_limit=read_limit, decode_flops=decode, prefill_flops=prefill, heads=1
    )
    return Layer(tuple(weights), (cache,))


def dense_ffn(
    hidden: int,
    width: int,
    *,
    gated: bool = True,
    bias: bool = False,
    role: str = "ffn",
    stem: str = "layers.{}.mlp",
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Layer:
    """Feed-forward block: two matrices, or three with a gate."""
    gate, up, down = names
    weights = [Weight(f"{stem}.{gate}", role, width, hidden)] if gated else []
    weights += [Weight(f"{stem}.{up}", role, width, hidden), Weight(f"{stem}.{down}", role, hidden, width)]
    if bias:
        weights += [vector(f"{stem}.{up}.bias", role, width * (2 if gated else 1), shard="tp")]
        weights += [vector(f"{stem}.{down}.bias", role, hidden)]
    return Layer(tuple(weights))


def moe_ffn(
    hidden: int,
    width: int,
    experts: int,
    per_token: int,
    *,
    gated: bool = True,
    bias: bool = False,
    router: str | None = "gate",
    router_bias: bool = False,
    stem: str = "layers.{}.mlp",
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Layer:
    """Mixture of experts: a router sends each token to `per_token` of `experts` feed-forward blocks."""
    gate, up, down = names
    experts_stem = f"{stem}.experts.0"
    shapes = [(gate, width, hidden)] if gated else []
    shapes += [(up, width, hidden), (down, hidden, width)]
    weights = [
        Weight(f"{experts_stem}.{name}", "expert", rows, columns, experts, per_token, "expert")
        for name, rows, columns in shapes
    ]
    if bias:
        weights += [
            vector(f"{experts_stem}.{name}.bias", "expert", rows, shard="expert", copies=experts, active=per_token)
            for name, rows, _ in shapes
        ]
    if router is not None:
        weights.append(Weight(f"{stem}.{router}", "router", experts, hidden, shard="all", linear=False))
    if router_bias:
        weights.append(vector(f"{stem}.{router}.bias", "router", experts))
    return Layer(tuple(weights))


def indexer(hidden: int, q_lora: int, heads: int, dim: int, *, stem: str = "layers.{}.self_attn.indexer") -> Layer:
    """Index of DeepSeek sparse attention: one small key per token chooses the latents that are read [DeepSeek-V3.2]."""
    weights = (
        Weight(f"{stem}.wq_b", "index", heads * dim, q_lora, shard="all"),
        Weight(f"{stem}.wk", "index", dim, hidden, shard="all"),
        vector(f"{stem}.k_norm", "norm", 2 * dim),
        Weight(f"{stem}.weights_proj", "index", heads, hidden, shard="all", linear=False),
    )
    flops = 2 * heads * dim
    return Layer(weights, (Cache("index", dim, decode_flops=flops, prefill_flops=flops),))


def gated_delta_net(
    hidden: int,
    key_heads: int,
    value_heads: int,
    key_dim: int,
    value_dim: int,
    conv: int,
    *,
    state_width: int = 4,
    fused: bool = False,
    stem: str = "layers.{}.linear_attn",
) -> Layer:
    """Gated delta net: a state of key x value elements per value head, and a short convolution [arXiv 2412.06464]."""
    keys, values = key_heads * key_dim, value_heads * value_dim
    channels = 2 * keys + values
    parts = (
        [("in_proj_qkvz", channels + values, True), ("in_proj_ba", 2 * value_heads, True)]
        if fused
        else [
            ("in_proj_qkv", channels, True),
            ("in_proj_z", values, True),
            ("in_proj_b", value_heads, False),
            ("in_proj_a", value_heads, False),
        ]
    )
    weights = (
        *(Weight(f"{stem}.{name}", "state", rows, hidden, linear=linear) for name, rows, linear in parts),
        vector(f"{stem}.conv1d", "state", channels * conv, shard="tp"),
        vector(f"{stem}.dt_bias", "state", value_heads, shard="tp"),
        vector(f"{stem}.A_log", "state", value_heads, shard="tp"),
        vector(f"{stem}.norm", "norm", value_dim),
        Weight(f"{stem}.out_proj", "state", hidden, values),
    )
    elements = value_heads * key_dim * value_dim
    return Layer(weights, (_state(elements, channels * (conv - 1), 7, value_heads, state_width),))


def delta_attention(
    hidden: int, heads: int, dim: int, conv: int, *, full_gate: bool = False, stem: str = "layers.{}.self_attn"
) -> Layer:
    """Kimi delta attention: a gated delta net whose decay is a vector per head [arXiv 2510.26692].

    The output gate has low rank (hidden -> dim -> heads x dim), or is a full matrix (`full_gate`).
    """
    width = heads * dim
    gate = (
        [Weight(f"{stem}.g_proj", "state", width, hidden)]
        if full_gate
        else [
            Weight(f"{stem}.g_a_proj", "state", dim, hidden, shard="all"),
            Weight(f"{stem}.g_b_proj", "state", width, dim),
        ]
    )
    weights = (
        *(Weight(f"{stem}.{name}_proj", "state", width, hidden) for name in ("q", "k", "v")),
        *(vector(f"{stem}.{name}_conv1d", "state", width * conv, shard="tp") for name in ("q", "k", "v")),
        Weight(f"{stem}.b_proj", "state", heads, hidden, linear=False),
        Weight(f"{stem}.f_a_proj", "state", dim, hidden, shard="all"),
        Weight(f"{stem}.f_b_proj", "state", width, dim),
        vector(f"{stem}.dt_bias", "state", width, shard="tp"),
        vector(f"{stem}.A_log", "state", heads, shard="tp"),
        *gate,
        vector(f"{stem}.o_norm", "norm", dim),
        Weight(f"{stem}.o_proj", "state", hidden, width),
    )
    return Layer(weights, (_state(heads * dim * dim, 3 * width * (conv - 1), 7, heads),))


def mamba2(
    hidden: int,
    heads: int,
    head_dim: int,
    state: int,
    groups: int,
    conv: int,
    *,
    bias: bool = False,
    conv_bias: bool = True,
    state_width: int = 4,
    stem: str = "layers.{}.mixer",
) -> Layer:
    """Mamba-2: a state of head_dim x state elements per head, and a short convolution [arXiv 2405.21060]."""
    inner, channels = heads * head_dim, heads * head_dim + 2 * groups * state
    rows = inner + channels + heads
    weights = [
        Weight(f"{stem}.in_proj", "state", rows, hidden),
        vector(f"{stem}.conv1d", "state", channels * (conv + (1 if conv_bias else 0)), shard="tp"),
        vector(f"{stem}.dt_bias", "state", heads, shard="tp"),
        vector(f"{stem}.A_log", "state", heads, shard="tp"),
        vector(f"{stem}.D", "state", heads, shard="tp"),
        vector(f"{stem}.norm", "norm", inner, shard="tp"),
        Weight(f"{stem}.out_proj", "state", hidden, inner),
    ]
    if bias:
        weights.append(vector(f"{stem}.in_proj.bias", "state", rows, shard="tp"))
        weights.append(vector(f"{stem}.out_proj.bias", "state", hidden))
    return Layer(tuple(weights), (_state(inner * state, channels * (conv - 1), 5, heads, state_width),))


def mamba1(
    hidden: int,
    inner: int,
    state: int,
    rank: int,
    conv: int,
    *,
    bias: bool = False,
    conv_bias: bool = True,
    inner_norms: bool = True,
    stem: str = "layers.{}.mamba",
) -> Layer:
    """Mamba: a state of `state` elements per channel, and a short convolution [arXiv 2312.00752].

    The convolution keeps all `conv` columns, as the reference cache does.
    """
    weights = [
        Weight(f"{stem}.in_proj", "state", 2 * inner, hidden),
        vector(f"{stem}.conv1d", "state", inner * (conv + (1 if conv_bias else 0)), shard="tp"),
        Weight(f"{stem}.x_proj", "state", rank + 2 * state, inner),
        Weight(f"{stem}.dt_proj", "state", inner, rank),
        vector(f"{stem}.dt_proj.bias", "state", inner, shard="tp"),
        vector(f"{stem}.A_log", "state", inner * state, shard="tp"),
        vector(f"{stem}.D", "state", inner, shard="tp"),
        Weight(f"{stem}.out_proj", "state", hidden, inner),
    ]
    if inner_norms:
        weights.append(vector(f"{stem}.dt_b_c_layernorm", "norm", rank + 2 * state))
    if bias:
        weights.append(vector(f"{stem}.in_proj.bias", "state", 2 * inner, shard="tp"))
        weights.append(vector(f"{stem}.out_proj.bias", "state", hidden))
    return Layer(tuple(weights), (_state(inner * state, inner * conv, 6, inner),))


def lightning(hidden: int, heads: int, head_dim: int, *, stem: str = "layers.{}.self_attn") -> Layer:
    """Lightning attention: linear attention with a fixed decay, head_dim x head_dim per head [arXiv 2401.04658]."""
    width = heads * head_dim
    weights = (
        Weight(f"{stem}.qkv_proj", "state", 3 * width, hidden),
        Weight(f"{stem}.output_gate", "state", width, hidden),
        Weight(f"{stem}.out_proj", "state", hidden, width),
        vector(f"{stem}.norm", "norm", width, shard="tp"),
    )
    return Layer(weights, (_state(width * head_dim, 0, 5, heads),))


def _state(elements: int, conv_elements: int, flops_per_element: int, heads: int, width: int = 4) -> Cache:
    """State of `elements` in float32 (or `width` bytes), with the last inputs of a convolution in bf16.

    FLOPs per element and token: decay 1, add an outer product 2 (Mamba 1 and 2 scale it first), read 2; the delta
    rule reads once more before it writes.
    """
    return Cache(
        "state",
        state_bytes=elements * width + conv_elements * 2,
        token_flops=elements * flops_per_element,
        heads=heads,
    )
