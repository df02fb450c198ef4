"""Families that choose what they read: latent attention, sparse attention by an index, compressed attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.architecture._decoders import experts, mixture
from batchline.architecture._layers import dense_ffn, gqa, indexer, mla, moe_ffn, norms, vector
from batchline.architecture._records import Cache, Layer, Weight
from batchline.architecture._shapes import Attention, Model, assemble, attention, layer_types, pre_norms, sparse_after

if TYPE_CHECKING:
    from batchline.architecture._config import Config
    from batchline.architecture._shapes import Options

__all__ = ["deepseek", "deepseek_v4", "latent_attention", "minimax_m3"]


def latent_attention(c: Config, *, read_limit: int | None = None, output_gate: bool = False) -> tuple[Attention, Layer]:
    """Read the sizes of latent attention; one latent serves all heads, so it cannot be split: one KV head."""
    hidden, heads = c.integer("hidden_size"), c.integer("num_attention_heads")
    nope, rope = c.integer("qk_nope_head_dim"), c.integer("qk_rope_head_dim")
    layer = mla(
        hidden,
        heads,
        q_lora=c.nullable("q_lora_rank") or None,  # null: queries are not compressed
        kv_lora=c.integer("kv_lora_rank"),
        nope=nope,
        rope=rope,
        value=c.integer("v_head_dim"),
        bias=c.flag("attention_bias"),
        read_limit=read_limit,
        output_gate=output_gate,
    )
    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    return Attention(hidden, heads, 1, nope + rope), layer


def deepseek(c: Config, options: Options) -> Model:
    """DeepSeek-V2, V3, V3.2, R1, Kimi-K2 and GLM-5: latent attention, with an index in front of it from V3.2 on."""
    layers = c.layers()
    indexed = _indexed_layers(c, layers) if options.get("index") else []
    sizes, body = latent_attention(c, read_limit=c.integer("index_topk") if indexed else None)
    hidden, counts = sizes.hidden, experts(c)
    ffn = {True: mixture(c, hidden, counts, {"shared": "count"})}
    sparse = sparse_after(c, layers)
    if not all(sparse):
        ffn[False] = dense_ffn(hidden, c.integer("intermediate_size"))
    c.ignore("intermediate_size", "num_nextn_predict_layers")
    mixers = {False: pre_norms(hidden) + body}
    if indexed:
        c.ignore("index_share_for_mtp_iteration", "index_skip_topk_offset", "index_topk_freq")
        c.ignore("index_topk_pattern", "layer_types")
        mixers[True] = mixers[False] + indexer(
            hidden, c.integer("q_lora_rank"), c.integer("index_n_heads"), c.integer("index_head_dim")
        )
    kinds = {(index, mixture): mixers[index] + ffn[mixture] for index in mixers for mixture in ffn}
    stack = [kinds[kind] for kind in zip(indexed or [False] * layers, sparse, strict=True)]
    return assemble(c, stack, sizes, experts=counts)


def _indexed_layers(c: Config, layers: int) -> list[bool]:
    """Which layers compute an index of their own; "shared" ones use that of a layer before them."""
    if not c.has("indexer_types"):
        return [True] * layers
    return [kind == "full" for kind in layer_types(c, layers, ("full", "shared"), key="indexer_types")]


_RATIOS = {0: "window", 4: "sparse", 128: "heavy"}


def deepseek_v4(c: Config, _options: Options) -> Model:
    """DeepSeek-V4: a window of shared keys and values, and compressed entries behind it: one per 4 tokens, of which an
    index chooses, or one per 128, of which all are read. The residual stream is `hc_mult` wide.
    """  # noqa: D205
    hidden, heads, layers = c.integer("hidden_size"), c.integer("num_attention_heads"), c.layers()
    if c.integer("num_key_value_heads") != 1:
        raise c.wrong("num_key_value_heads", c.value("num_key_value_heads"), "1, the only one known of this family")
    sizes = Attention(hidden, heads, 1, c.integer("head_dim"))
    streams, counts = c.integer("hc_mult", high=64), experts(c)
    ratios = c.integers("compress_ratios")
    if len(ratios) < layers:
        raise c.wrong("compress_ratios", ratios, f"a list of {layers} layers")
    for ratio in ratios[:layers]:
        if ratio not in _RATIOS:
            raise c.wrong("compress_ratios", ratio, "0, 4 or 128")
    hyper = (2 + streams) * streams
    around = norms(hidden, "layers.{}.attn_norm", "layers.{}.ffn_norm") + Layer(
        tuple(
            vector(f"layers.{{}}.hc_{part}", "other", hyper * streams * hidden + hyper + 3) for part in ("attn", "ffn")
        )
    )
    width, shared = c.integer("moe_intermediate_size"), c.integer("num_shared_experts")
    stem = "layers.{}.ffn"
    ffn = moe_ffn(hidden, width, *counts, stem=stem, names=("w1", "w3", "w2"))
    ffn += dense_ffn(
        hidden, width * shared, role="shared_expert", stem=f"{stem}.shared_experts", names=("w1", "w3", "w2")
    )
    kinds = {ratio: around + _compressed(c, sizes, ratio) + ffn for ratio in set(ratios[:layers])}
    c.ignore("num_nextn_predict_layers", "num_hash_layers", "hc_sinkhorn_iters", "hc_eps", "compress_rope_theta")
    c.ignore("attention_bias")
    head = Layer((vector("hc_head", "other", streams * streams * hidden + streams + 1),))
    fp4 = c.value("expert_dtype")
    if fp4 not in (None, "fp4", "fp8"):  # anything may stand there, unhashable too
        raise c.wrong("expert_dtype", fp4, "fp4 or fp8")
    return assemble(
        c,
        [kinds[ratio] for ratio in ratios[:layers]],
        sizes,
        experts=counts,
        head="head",
        embedding="embed",
        extra=head,
        expert_format="mxfp4-fp8" if fp4 == "fp4" else None,
    )


def _compressed(c: Config, sizes: Attention, ratio: int) -> Layer:
    hidden, heads, _, dim = sizes
    q_lora, o_lora, groups = c.integer("q_lora_rank"), c.integer("o_lora_rank"), c.integer("o_groups")
    rope, stem = c.integer("qk_rope_head_dim"), "layers.{}.attn"
    if heads * dim % groups or rope > dim:
        raise c.wrong("o_groups", groups, f"a divisor of {heads} heads of {dim}")
    weights = [
        Weight(f"{stem}.wq_a", "attention", q_lora, hidden, shard="all"),
        vector(f"{stem}.q_norm", "norm", q_lora),
        Weight(f"{stem}.wq_b", "attention", heads * dim, q_lora),
        Weight(f"{stem}.wkv", "attention", dim, hidden, shard="all"),
        vector(f"{stem}.kv_norm", "norm", dim),
        Weight(f"{stem}.wo_a", "attention", groups * o_lora, heads * dim // groups),
        Weight(f"{stem}.wo_b", "attention", hidden, groups * o_lora),
        vector(f"{stem}.attn_sink", "attention", heads, shard="tp"),
    ]
    flops = 4 * heads * dim  # keys are values, both of the whole head
    window = Cache("latent", dim, rope, window=c.integer("sliding_window"), decode_flops=flops, prefill_flops=flops)
    if ratio == 0:
        return Layer(tuple(weights), (window,))
    overlap = 2 if ratio == 4 else 1  # entries of 4 tokens overlap, so each is made of two halves
    weights += _compressor(f"{stem}.compressor", "attention", hidden, overlap * dim, ratio, dim)
    limit = None
    caches = [window]
    if ratio == 4:
        index_heads, index_dim, limit = (c.integer(key) for key in ("index_n_heads", "index_head_dim", "index_topk"))
        weights += _compressor(f"{stem}.indexer.compressor", "index", hidden, 2 * index_dim, ratio, index_dim)
        weights.append(Weight(f"{stem}.indexer.wq_b", "index", index_heads * index_dim, q_lora, shard="all"))
        weights.append(Weight(f"{stem}.indexer.weights_proj", "index", index_heads, hidden, shard="all", linear=False))
        scores = 2 * index_heads * index_dim
        caches.append(Cache("index", index_dim, stride=ratio, decode_flops=scores, prefill_flops=scores))
    caches.append(Cache("latent", dim, rope, stride=ratio, read_limit=limit, decode_flops=flops, prefill_flops=flops))
    return Layer(tuple(weights), tuple(caches))


def _compressor(stem: str, role: str, hidden: int, width: int, ratio: int, dim: int) -> list[Weight]:
    """Weighted mean of the tokens of an entry: values, weights, a bias per place, a norm."""
    return [
        Weight(f"{stem}.wkv", role, width, hidden, shard="all", linear=False),
        Weight(f"{stem}.wgate", role, width, hidden, shard="all", linear=False),
        vector(f"{stem}.ape", role, ratio * width),
        vector(f"{stem}.norm", "norm", dim),
    ]


def minimax_m3(c: Config, options: Options) -> Model:
    """MiniMax-M3: grouped-query attention that reads 16 blocks of 128 tokens, chosen by an index of small keys."""
    sizes, layers = attention(c), c.layers()
    hidden, counts = sizes.hidden, experts(c)
    sparse = c.section("sparse_attention_config")
    heads, dim = sparse.integer("sparse_num_index_heads"), sparse.integer("sparse_index_dim")
    limit = sparse.integer("sparse_topk_blocks") * sparse.integer("sparse_block_size")
    indexed = sparse.integers("sparse_attention_freq", high=1)
    if len(indexed) < layers:
        raise sparse.wrong("sparse_attention_freq", indexed, f"a list of {layers} layers")
    sparse.ignore(
        "use_sparse_attention", "sparse_disable_index_value", "sparse_score_type", "sparse_init_block",
        "sparse_local_block",
    )  # fmt: skip
    sparse.refuse_unread()
    if c.flag("attention_output_gate"):
        raise c.wrong("attention_output_gate", True, "false, the only one known of this family")
    qk_norm = "head" if c.flag("use_qk_norm") else None
    stem = "layers.{}.self_attn"
    keys = heads if options.get("index_key_per_head") else 1
    index = Layer(
        (
            Weight(f"{stem}.index_q_proj", "index", heads * dim, hidden, shard="kv"),
            Weight(f"{stem}.index_k_proj", "index", dim, hidden, shard="all"),
            vector(f"{stem}.index_q_norm", "norm", dim),
            vector(f"{stem}.index_k_norm", "norm", dim),
        ),
        (Cache("index", keys * dim, decode_flops=2 * heads * dim, prefill_flops=2 * heads * dim, heads=keys),),
    )
    names, moe_stem = ("w1", "w3", "w2"), "layers.{}.block_sparse_moe"
    shared = c.integer("shared_intermediate_size") * c.integer("num_shared_experts")
    width = c.integer("moe_intermediate_size")
    ffn = {
        True: moe_ffn(hidden, width, *counts, stem=moe_stem, names=names)
        + dense_ffn(hidden, shared, role="shared_expert", stem=f"{moe_stem}.shared_experts"),
        False: dense_ffn(hidden, c.integer("dense_intermediate_size")),
    }
    mixers = {
        True: gqa(*sizes, qk_norm=qk_norm, read_limit=limit) + index,
        False: gqa(*sizes, qk_norm=qk_norm),
    }
    kinds = {
        (chosen, mixture): pre_norms(hidden) + mixers[chosen] + ffn[mixture]
        for chosen in (True, False)
        for mixture in (True, False)
    }
    mixtures = sparse_after(c, layers)
    c.ignore("num_mtp_modules", "num_nextn_predict_layers", "use_gemma_norm", "qk_norm_type", "use_routing_bias")
    stack = [kinds[bool(flag), mixture] for flag, mixture in zip(indexed[:layers], mixtures, strict=True)]
    return assemble(c, stack, sizes, experts=counts)
