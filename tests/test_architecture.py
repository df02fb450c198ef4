"""Architectures: exact counts from outside, laws of bytes and FLOPs, and no traceback whatever a config holds."""

import copy
import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchline import architecture, precision
from batchline.architecture import Architecture, _catalogue
from batchline.architecture._families import family, family_names
from batchline.errors import BatchlineError, ConfigError, InputError, UnknownNameError, UnsupportedArchitectureError

from .strategies import examples

HERE = Path(__file__).parent
SHARED = HERE.resolve().parents[1] / "shared" / "catalog"


def table(file):
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


GOLDEN = table(HERE / "data" / "golden_counts.csv")
NAMES = architecture.names()


def expected_rows():
    file = SHARED / "expected.csv"
    if not file.is_file():
        reason = "the folder of public measurements (shared/ beside the project) is not here"
        return [pytest.param(None, marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(row, id=row["model"]) for row in table(file)]


def shared_config(model):
    stem = SHARED / "configs" / model.replace("/", "--")
    quant = Path(f"{stem}.hf_quant_config.json")
    config = json.loads(Path(f"{stem}.json").read_text(encoding="utf-8"))
    return config, json.loads(quant.read_text(encoding="utf-8")) if quant.is_file() else None


# The row was made by a formula that gives each of the 80 layers two norms; the class gives a layer without attention
# none before it. 31 such layers x 8,192 = 253,952 parameters too many (config: block_configs[].attention.no_op).
FORMULA_ROWS = {"nvidia/Llama-3_3-Nemotron-Super-49B-v1": 31 * 8192}


@pytest.mark.parametrize("row", expected_rows())
def test_expected_counts(row):
    arch = Architecture.from_config(*shared_config(row["model"]))
    off = FORMULA_ROWS.get(row["model"], 0)
    windows = [cache for cache in arch.caches if cache.window is not None and cache.stored]
    bf16 = precision.load_kv("bf16")
    assert arch.total_params + off == int(row["total_params"])
    assert arch.active_params_with_embedding + off == int(row["active_params"])
    assert arch.active_params + off == int(row["active_params_excl_input_embedding"])
    assert arch.kv_bytes_per_token() == int(row["kv_bytes_per_token_bf16"])
    capped = sum(cache.layers * cache.window * cache.entry_bytes(bf16) for cache in windows)
    assert capped == int(row["window_capped_bytes_bf16"])
    assert sum(cache.layers * cache.state_bytes for cache in arch.caches) == int(row["fixed_state_bytes"])
    assert arch.stored_bytes(32768) == int(row["state_bytes_at_32k_bf16"])
    assert arch.read_bytes(32768) == int(row["state_bytes_read_per_step_at_32k_bf16"])


@pytest.mark.parametrize("row", expected_rows())
def test_the_catalogue_says_what_the_config_says(row):
    name = row["model"].removesuffix("(text)")
    ours, theirs = Architecture.load(name), Architecture.from_config(*shared_config(row["model"]))
    for field in ("weights", "caches", "max_context", "kv_heads", "tied_embeddings", "plain", "checkpoint_kv"):
        assert getattr(ours, field) == getattr(theirs, field), field


@pytest.mark.parametrize("row", GOLDEN, ids=[row["name"] for row in GOLDEN])
def test_transformers_counts_the_same(row):
    arch = Architecture.load(row["name"])
    assert arch.total_params == int(row["total_params"])
    assert arch.embedding_params == int(row["embedding_params"])


FAMILIES = [json.loads(line) for line in (HERE / "data" / "golden_families.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("row", FAMILIES, ids=[row["family"] for row in FAMILIES])
def test_transformers_counts_the_same_of_each_family(row):
    """Default config of the family's class, with all keys that the class writes."""
    arch = Architecture.from_config(row["config"])
    assert arch.total_params == row["total_params"]
    assert arch.embedding_params == row["embedding_params"]


def test_kvfit_stores_the_same():
    """A second opinion on the KV cache, from the package kvfit; it refuses families that it does not know."""
    kvfit = pytest.importorskip("kvfit", reason="kvfit, of the dev dependencies, is not installed")
    # kvfit gives Falcon-7B its 71 query heads as KV heads; multi_query says that it has one.
    different = {"falcon-7b": 71}
    agreed = 0
    for row in _catalogue.rows():
        config = {key: value for key, value in row.config.items() if key != "quantization_config"}
        try:
            theirs = kvfit.estimate_cache(config, context_tokens=32768)
        except kvfit.UnsupportedArchitecture:
            continue
        ours = Architecture.load(row.name).stored_bytes(32768) * different.get(row.name, 1)
        assert theirs.total_bytes == ours, row.name
        agreed += 1
    assert agreed >= 90


# Weights as engines and model cards print them [GiB]: vLLM start-up logs (cases U003, U004, U006, U013: per device) and
# the gpt-oss model card (checkpoint 60.8 GiB and 12.8 GiB, arXiv 2508.10925 table 1).
PRINTED = [
    ("llama-3.3-70b", "fp8-channel", 2, 33.88), ("llama-3.1-8b", None, 1, 14.99), ("qwen3-32b", None, 1, 61.03),
    ("llama-3.1-70b", "int8", 1, 67.7229), ("gpt-oss-120b", None, 1, 60.8), ("gpt-oss-20b", None, 1, 12.8),
]  # fmt: skip


@pytest.mark.parametrize(("name", "weights", "devices", "gib"), PRINTED)
def test_weights_as_printed(name, weights, devices, gib):
    assert Architecture.load(name).weight_bytes(weights) / devices / 2**30 == pytest.approx(gib, rel=0.003)


def test_published_kv_sizes():
    # DeepSeek-V3: 70 KB per token (arXiv 2412.19437); Llama 3.1 405B 516 KB, Qwen2.5-style MHA of GPT-2: 36 KB
    assert Architecture.load("deepseek-v3").kv_bytes_per_token() == 61 * 576 * 2
    assert Architecture.load("llama-3.1-405b").kv_bytes_per_token() == 126 * 2 * 8 * 128 * 2
    assert Architecture.load("deepseek-v3.2").kv_bytes_per_token("fp8_ds_mla") == 61 * (656 + 132)
    with pytest.raises(InputError, match="latent attention"):
        Architecture.load("llama-3.1-8b").stored_bytes(10, "fp8_ds_mla")


@pytest.mark.parametrize("name", NAMES)
def test_laws_of_every_model(name):
    arch = Architecture.load(name)
    assert sum(arch.parts().values()) == arch.total_params
    assert 0 < arch.active_params <= arch.active_params_with_embedding <= arch.total_params
    n = np.array([1, 7, 100, 4096, 32768, 131072, 1_000_000])
    for kv in ("bf16", "fp8"):
        stored, read = arch.stored_bytes(n, kv), arch.read_bytes(n, kv)
        state = sum(cache.layers * cache.state_bytes for cache in arch.caches)
        assert (np.diff(stored) >= 0).all()
        assert (np.diff(read) >= 0).all()
        if all(cache.stored for cache in arch.caches):
            assert (read <= stored + state).all()
        assert stored.tolist() == [arch.stored_bytes(int(one), kv) for one in n]
        assert read.tolist() == [arch.read_bytes(int(one), kv) for one in n]
        growth = arch.stored_bytes(2**21, kv) - arch.stored_bytes(2**20, kv)
        assert growth == pytest.approx(arch.kv_bytes_per_token(kv) * 2**20)
    assert arch.stored_bytes(4096, "fp8") <= arch.stored_bytes(4096)
    assert arch.weight_bytes() <= arch.weight_bytes("bf16") <= arch.weight_bytes("fp32")
    assert arch.weight_bytes("bf16") == 2 * arch.total_params
    shared, routed = arch.step_weight_bytes()
    assert shared > 0
    assert shared + routed <= arch.weight_bytes()
    assert bool(routed) == bool(arch.experts) == bool(arch.moe_layers)
    assert arch.math_format() in {"bf16", "fp8", "fp4", "int8"}
    assert arch.math_format("awq") == "bf16"


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b", "deepseek-v4-flash", "glm-5.2", "qwen3.5-27b"])
def test_prefill_adds_up_token_by_token(name):
    arch = Architecture.load(name)
    s = 3000
    token = np.arange(1, s + 1)
    for cache in arch.caches:
        assert cache.prefill_entries(s) == cache.entries_read(token).sum()
    if not arch.is_mla:
        assert arch.prefill_attention_flops(s) == pytest.approx(arch.attention_flops(token).sum())


def test_flops_of_latent_attention():
    arch = Architecture.load("deepseek-v3")
    assert arch.attention_flops(1000) == 61 * 2 * 128 * (576 + 512) * 1000  # in the latent space
    assert arch.prefill_attention_flops(1) == 61 * 2 * 128 * (192 + 128)  # widened into heads


def test_formats_of_a_checkpoint():
    assert Architecture.load("gpt-oss-120b").math_format() == "bf16"
    assert Architecture.load("deepseek-v3").math_format() == "fp8"
    assert Architecture.load("deepseek-v3.1-nvfp4").math_format() == "fp4"
    assert Architecture.load("deepseek-v3.1-nvfp4").checkpoint_kv == "fp8"
    kinds = {weight.role: weight.number_format for weight in Architecture.load("gpt-oss-120b").weights if weight.linear}
    assert kinds == {"embedding": "bf16", "head": "bf16", "attention": "bf16", "expert": "mxfp4"}


def formats(name):
    return {weight.module: weight.number_format for weight in Architecture.load(name).weights if weight.linear}


def test_exclude_lists_leave_modules_in_bf16():
    found = formats("qwen3.5-397b-a17b-nvfp4")
    assert found["layers.{}.mlp.experts.0.up_proj"] == "nvfp4"
    assert found["layers.{}.mlp.shared_expert.up_proj"] == "bf16"
    assert found["layers.{}.linear_attn.out_proj"] == "bf16"
    assert found["lm_head"] == "bf16"
    mixed = formats("qwen3.6-27b-nvfp4")
    assert mixed["layers.{}.self_attn.q_proj"] == "fp8-static"
    assert mixed["layers.{}.mlp.up_proj"] == "nvfp4-w4a16"
    assert mixed["lm_head"] == "nvfp4-w4a16"
    kimi = formats("kimi-k2.5")
    assert kimi["layers.{}.mlp.experts.0.up_proj"] == "int4-g32"
    assert kimi["layers.{}.mlp.shared_experts.up_proj"] == "bf16"
    assert kimi["layers.{}.mlp.up_proj"] == "bf16"  # the dense first layer
    v4 = formats("deepseek-v4-flash")
    assert v4["layers.{}.ffn.experts.0.w1"] == "mxfp4-fp8"
    assert v4["layers.{}.attn.wq_a"] == "fp8-block"


def small(**changes):
    config = {
        "model_type": "qwen3", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 96, "num_hidden_layers": 12, "vocab_size": 100,
    }  # fmt: skip
    return {**config, **changes}


@pytest.mark.parametrize(
    ("patterns", "layers"),
    [
        (["model.layers.1*"], {1, 10, 11}),
        (["model.layers.1.*"], {1}),
        (["model.layers.1.mlp"], {1}),
        (["layers.1.mlp.up_proj"], {1}),
        (["mlp.up_proj"], set(range(12))),
        (["up_proj"], set(range(12))),
        (["up"], set()),
        (["*.mlp.*"], set(range(12))),
        ([r"re:.*layers\.(2|11)\.mlp.*"], {2, 11}),
        ([r"re:.*mlp\.(gate|up)_proj.*"], set(range(12))),
        (["model.layers.[0-2].mlp*"], {0, 1, 2}),
        (["model.layers.?.mlp*"], set(range(10))),
        (["*.3.mlp.*"], {3}),
        (["*layers.*.mlp.up_proj"], set(range(12))),
        ([r"re:.*layers\.\d\.mlp.*"], set(range(10))),
        ([r"re:.*(?:up|down)_proj"], set(range(12))),
        (["language_model.model.layers.3.mlp*", "model.language_model.layers.4.mlp.up_proj"], {3, 4}),
    ],
)
def test_exclude_patterns(patterns, layers):
    quant = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": patterns}
    arch = Architecture.from_config(small(quantization_config=quant))
    kept = sum(
        weight.layers
        for weight in arch.weights
        if weight.module == "layers.{}.mlp.up_proj" and weight.number_format == "bf16"
    )
    assert kept == len(layers)


RECIPES = [
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq"),
    ({"quant_method": "gptq", "bits": 4, "group_size": 64}, "gptq-g64"),
    ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq8"),
    ({"quant_method": "fp8"}, "fp8"),
    ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8-static"),
    ({"quant_method": "fp8", "weight_block_size": [64, 64]}, "fp8-block-64x64"),
    ({"quant_method": "fbgemm_fp8"}, "fp8-channel"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8-static"),
    ({"quant_algo": "NVFP4", "group_size": 16}, "nvfp4"),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 64}, "int4-g64"),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "a": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
                    "input_activations": {"num_bits": 8},
                }
            },
        },
        "int8",
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "a": {
                    "targets": ["Linear"],
                    "weights": {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": False},
                }
            },
        },
        "awq-g128",
    ),
]


@pytest.mark.parametrize(("quant", "wanted"), RECIPES)
def test_recipes(quant, wanted):
    arch = Architecture.from_config(small(quantization_config={**quant, "ignore": ["lm_head"]}))
    found = {weight.module: weight.number_format for weight in arch.weights}
    assert precision.load(found["layers.{}.mlp.up_proj"]).name == precision.load(wanted).name
    assert found["lm_head"] == found["embed_tokens"] == found["norm"] == "bf16"


@pytest.mark.parametrize(
    "quant",
    [
        {"quant_method": "magic"},
        {"quant_method": "awq", "bits": 3, "group_size": 128},
        {"quant_method": "awq", "bits": 4, "group_size": "x"},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "fp8", "weight_block_size": "128"},
        {"quant_method": "fp8", "modules_to_not_convert": "lm_head"},
        {"quant_method": "modelopt", "quant_algo": "FP3"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": 3}},
        {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP3"},
        {"quant_method": "compressed-tensors", "config_groups": {}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 3}}}},
        {"quant_method": "fp8", "modules_to_not_convert": ["re:("]},
        ["fp8"],
    ],
)
def test_recipes_that_are_not_known_are_refused(quant):
    with pytest.raises(BatchlineError):
        Architecture.from_config(small(quantization_config=quant))


def test_experts_in_two_formats_are_refused():
    layers = {
        "model.layers.0.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
        "model.layers.0.mlp.experts.1.up_proj": {"quant_algo": "FP8"},
    }
    quant = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    with pytest.raises(ConfigError, match="more than one format"):
        Architecture.from_config(small(quantization_config=quant))


def test_served_in_another_format():
    arch = Architecture.load("deepseek-v3")
    assert arch.weight_bytes("fp8") == arch.weight_bytes()  # it is fp8 already and keeps its blocks
    assert arch.weight_bytes("bf16") == 2 * arch.total_params
    llama = Architecture.load("llama-3.1-8b")
    outside = 2 * 2 * 128256 * 4096 + 2 * 65 * 4096  # embedding, head and norms stay in bf16
    linear = llama.total_params - outside // 2
    assert llama.weight_bytes("fp8") == linear + outside + 4 * 32 * 7
    assert llama.weight_bytes("q8_0") == (linear + 2 * 128256 * 4096) * 34 / 32 + 2 * 65 * 4096
    with pytest.raises(UnknownNameError):
        llama.weight_bytes("fp7")


# File sizes of Llama-3.1-8B in the table of llama.cpp's tools/quantize/README.md [GiB], 2025.
GGUF_GIB = {"q4_k_s": 4.36, "q4_k_m": 4.58, "q5_k_s": 5.21, "q5_k_m": 5.33, "q6_k": 6.14, "q8_0": 7.95}


@pytest.mark.parametrize(("name", "gib"), GGUF_GIB.items())
def test_gguf_file_sizes(name, gib):
    # the files hold 7 MB of tokens and norms in float32 besides
    assert Architecture.load("llama-3.1-8b").weight_bytes(name) / 2**30 == pytest.approx(gib, abs=0.012)


# Sizes that llama-bench prints for ggml-org's files "gpt-oss 20B MXFP4 MoE" and "gpt-oss 120B MXFP4 MoE" [GiB], 2026.
@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-20b", 11.27), ("gpt-oss-120b", 59.02)])
def test_gguf_files_keep_mxfp4_for_the_experts(name, gib):
    # the files hold tokens, norms, biases and sinks in float32 besides
    assert Architecture.load(name).weight_bytes("mxfp4_moe") / 2**30 == pytest.approx(gib, rel=0.002)


# --- names and files -----------------------------------------------------------------------------------------------


def test_catalogue_rows_have_names_sources_and_dates():
    rows = architecture.catalogue()
    assert len(rows) >= 100
    taken = {}
    for row in rows:
        assert row["source"]
        assert row["date"]
        assert row["family"] in family_names()
        for name in (row["name"], row["hf_id"], *row["aliases"]):
            assert taken.setdefault(name.casefold(), row["name"]) == row["name"], name
    assert [row["name"] for row in rows] == architecture.names()


@pytest.mark.parametrize("name", ["llama-3.1-70b", "LLAMA-3.1-70B", "meta-llama/Llama-3.3-70B-Instruct", " llama-70b "])
def test_aliases(name):
    assert Architecture.load(name).name == "llama-3.1-70b"


def test_unknown_names_are_refused_with_the_closest():
    with pytest.raises(UnknownNameError, match=r"llama-3\.1-70b") as error:
        Architecture.load("lama-3.1-70b")
    assert "config.json" in str(error.value)


def test_files_and_folders(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(small()), encoding="utf-8")
    folder, file = Architecture.load(tmp_path), Architecture.load(str(tmp_path / "config.json"))
    assert folder.weights == file.weights
    assert folder.name == tmp_path.name
    assert folder.source == str(tmp_path)
    quant = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(quant), encoding="utf-8")
    assert Architecture.load(tmp_path).weight_bytes() < folder.weight_bytes()


def test_a_file_is_named_after_its_folder_wherever_one_stands(tmp_path, monkeypatch):
    (tmp_path / "small-7b").mkdir()
    (tmp_path / "small-7b" / "config.json").write_text(json.dumps(small()), encoding="utf-8")
    monkeypatch.chdir(tmp_path / "small-7b")
    given = (".", "config.json", "./config.json", "../small-7b", tmp_path / "small-7b")
    assert {Architecture.load(one).name for one in given} == {"small-7b"}


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"llama"', "null", "\0", "[" * 100_000])
def test_files_that_are_no_config(tmp_path, text):
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError):
        Architecture.load(file)


@pytest.mark.parametrize("given", ["nowhere.json", "./nowhere", "/nowhere/config.json", Path("nowhere")])
def test_files_that_are_not_there(given):
    with pytest.raises(ConfigError, match="cannot be read"):
        Architecture.load(given)


# --- refusals ------------------------------------------------------------------------------------------------------


def test_unknown_families_are_refused_by_name():
    with pytest.raises(UnsupportedArchitectureError, match=r"'qwen9'.*Closest: qwen"):
        Architecture.from_config({"model_type": "qwen9", "hidden_size": 64})
    with pytest.raises(ConfigError, match="no model_type"):
        Architecture.from_config({"hidden_size": 64})
    with pytest.raises(ConfigError, match="model_type is 3"):
        Architecture.from_config({"model_type": 3})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_memory_tokens", 64),
        ("extra_head_dim", 8),
        ("use_super_norm", True),
        ("layer_pattern", "LLG"),
        ("sizes", {"x": 3}),
    ],
)
def test_unknown_keys_that_may_change_a_size_are_refused_by_name(key, value):
    with pytest.raises(UnsupportedArchitectureError, match=key):
        Architecture.from_config(small(**{key: value}))


@pytest.mark.parametrize(
    ("key", "value"), [("new_token_name", "x"), ("flash_mode", True), ("rope_theta", 5e6), ("x", None)]
)
def test_unknown_keys_that_change_no_size_are_passed_over(key, value):
    assert Architecture.from_config(small(**{key: value})).weights == Architecture.from_config(small()).weights


@pytest.mark.parametrize("value", [None, "64", 1.5, True, [], {}, 0, -1, 10**12, math.nan, math.inf])
@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "vocab_size", "num_hidden_layers"])
def test_sizes_of_the_wrong_kind_are_refused_by_name(key, value):
    with pytest.raises(ConfigError, match=key):
        Architecture.from_config(small(**{key: value}))


def test_a_missing_size_is_refused_unless_its_family_has_a_default():
    """Without any one key of any real config: an error, or a default that data/families.toml gives with its source."""
    free = {"max_position_embeddings", "torch_dtype", "dtype", "quantization_config"}
    other_ways = {"layer_types", "mlp_layer_types", "indexer_types", "moe_layer_freq", "no_rope_layers", "expert_dtype"}
    for row in _catalogue.rows():
        config, kind = row.config, family(row.family)
        for key in config.keys() - free - other_ways - {"model_type"}:
            rest = {name: value for name, value in config.items() if name != key}
            canonical = [name for name, others in kind.names.items() if key in others]
            if {key, *canonical} & kind.defaults.keys():
                continue
            made, message = attempt(rest)
            if made is None:
                assert any(name in message for name in (key, *canonical)), (row.name, key, message)
            else:
                whole = Architecture.from_config(config)
                assert (made.weights, made.caches) == (whole.weights, whole.caches), (row.name, key)


def attempt(config):
    """The architecture, or None and the message."""
    try:
        return Architecture.from_config(config), ""
    except BatchlineError as error:
        return None, str(error)


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8), st.just([]), st.just({}),
    st.lists(st.integers(-5, 200), max_size=6), st.lists(st.text(max_size=4), max_size=4),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3), st.just(10**400), st.just("9" * 5000),
)  # fmt: skip


@st.composite
def broken_configs(draw):
    config = copy.deepcopy(draw(st.sampled_from(_catalogue.rows())).config)
    for _ in range(draw(st.integers(1, 4))):
        target = config
        nested = [key for key, value in config.items() if isinstance(value, dict)]
        if nested and draw(st.booleans()):
            target = config[draw(st.sampled_from(nested))]
        keys = sorted(target)
        if not keys:
            continue
        key = draw(st.sampled_from(keys))
        action = draw(st.sampled_from(["missing", "junk", "renamed", "list", "added", "huge"]))
        if action == "missing":
            del target[key]
        elif action == "junk":
            target[key] = draw(JUNK)
        elif action == "renamed":
            target[key + draw(st.sampled_from(["s", "_", "2"]))] = target.pop(key)
        elif action == "list":
            target[key] = [target[key]] * draw(st.integers(0, 3))
        elif action == "huge":
            target[key] = 10 ** draw(st.integers(3, 30))
        else:
            target[draw(st.text(max_size=10))] = draw(JUNK)
    wrapper = draw(st.sampled_from([None, None, "text_config", "language_config"]))
    return {"model_type": "wrapped", wrapper: config} if wrapper else config


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow])
@given(broken_configs())
def test_broken_configs_never_end_in_a_traceback(config):
    arch, message = attempt(config)
    if arch is None:
        assert message
        return
    for number in (arch.total_params, arch.active_params, arch.weight_bytes(), arch.weight_bytes("fp8")):
        assert math.isfinite(number)
        assert number > 0
    assert arch.stored_bytes(4096) >= 0
    assert arch.attention_flops(4096) >= 0


@settings(max_examples=examples(100))
@given(st.recursive(JUNK, lambda inner: st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=8))
def test_anything_at_all_is_a_config_or_refused(config):
    with pytest.raises(BatchlineError):
        Architecture.load(config if not isinstance(config, str) else {"model_type": config})


# --- a second opinion ----------------------------------------------------------------------------------------------


def test_wrappers_are_seen_through():
    inner = Architecture.from_config(small())
    for wrapper in ("text_config", "language_config", "llm_config"):
        wrapped = {"model_type": "someone_vl", "vision_config": {"hidden_size": 9}, wrapper: small()}
        assert Architecture.from_config(wrapped).weights == inner.weights
    outer = {"model_type": "x", "tie_word_embeddings": True, "text_config": small()}
    assert Architecture.from_config(outer).tied_embeddings


def test_old_key_names():
    new = {"model_type": "gpt2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
    old = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 99}
    with pytest.raises(ConfigError, match="max_position_embeddings or n_positions"):
        Architecture.from_config(old)
    assert (
        Architecture.from_config({**old, "n_positions": 8}).weights
        == Architecture.from_config({**new, "max_position_embeddings": 8}).weights
    )


def test_a_window_of_qwen_starts_at_max_window_layers():
    windowed = small(use_sliding_window=True, sliding_window=32, max_window_layers=9)
    arch = Architecture.from_config(windowed)
    assert {cache.window: cache.layers for cache in arch.caches} == {None: 9, 32: 3}
    assert {cache.window for cache in Architecture.from_config({**windowed, "use_sliding_window": False}).caches} == {
        None
    }


def test_layers_that_share_keys_read_but_do_not_store():
    arch = Architecture.load("gemma-3n-e4b")
    sharing = [cache for cache in arch.caches if not cache.stored]
    assert sum(cache.layers for cache in sharing) == 15
    assert arch.read_bytes(100) == 100 * 35 * 2 * 2 * 256 * 2
    assert arch.stored_bytes(100) == 100 * 20 * 2 * 2 * 256 * 2


def test_every_family_is_documented():
    text = (HERE.parent / "docs" / "models.md").read_text(encoding="utf-8")
    assert [name for name in family_names() if f"`{name}`" not in text] == []
    for name in family_names():
        assert family(name).source, name


def test_values_that_cannot_be_hashed_are_refused():
    for name, key in (("qwen3.5-27b", "mamba_ssm_dtype"), ("deepseek-v4-flash", "expert_dtype")):
        with pytest.raises(ConfigError, match=key):
            Architecture.from_config({**_catalogue.find(name).config, key: []})
    assert Architecture.from_config(small(extra={0: "LABEL_0"})).layers == 12


def test_exported_names_are_sorted():
    for module in (architecture, precision):
        assert sorted(module.__all__) == module.__all__
