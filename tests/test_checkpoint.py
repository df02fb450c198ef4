"""Headers of checkpoints: exact bytes of files made here, and damage of all kinds."""

import json
import struct
import sys
import types
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchline import checkpoint
from batchline.architecture import Architecture
from batchline.errors import BatchlineError, ConfigError, MissingFactError, UnsupportedArchitectureError

from .strategies import examples


def config(**changes):
    return {
        "model_type": "qwen3", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 100, "torch_dtype": "bfloat16", **changes,
    }  # fmt: skip


def safetensors(tensors):
    """Bytes of a safetensors file: name to (dtype, shape, bytes)."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * offset


TENSORS = {
    "model.embed_tokens.weight": ("BF16", [100, 64], 12800),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", [64, 64], 8192),
    "model.layers.1.mlp.experts.0.up_proj.weight": ("F8_E4M3", [96, 64], 6144),
    "model.layers.1.mlp.shared_experts.up_proj.weight": ("BF16", [96, 64], 12288),
    "model.layers.2.eh_proj.weight": ("BF16", [64, 128], 16384),  # predicts several tokens: beyond the last layer
    "visual.blocks.0.attn.weight": ("BF16", [8, 8], 128),
    "lm_head.weight": ("BF16", [100, 64], 12800),
}


def test_folder_of_safetensors(tmp_path):
    names = list(TENSORS)
    for part, chosen in enumerate((names[:3], names[3:])):
        file = tmp_path / f"model-{part}.safetensors"
        file.write_bytes(safetensors({name: TENSORS[name] for name in chosen}))
    read = checkpoint.load(tmp_path)
    assert read.total_bytes == sum(size for _, _, size in TENSORS.values())
    assert read.bytes_by_type() == {"BF16": read.total_bytes - 6144, "F8_E4M3": 6144}
    assert read.split(layers=2) == {
        "embedding": 12800, "look_up": 0, "routed": 6144, "shared": 8192 + 12288 + 12800, "left_out": 16384 + 128,
    }  # fmt: skip


def test_only_the_files_of_the_index_are_read(tmp_path):
    (tmp_path / "model-1.safetensors").write_bytes(safetensors(TENSORS))
    (tmp_path / "old.safetensors").write_bytes(safetensors(TENSORS))
    index = {"weight_map": dict.fromkeys(TENSORS, "model-1.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert len(checkpoint.load(tmp_path).tensors) == len(TENSORS)
    (tmp_path / "model.safetensors.index.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="no index"):
        checkpoint.load(tmp_path)


def test_a_folder_gives_an_architecture_its_exact_bytes(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config()), encoding="utf-8")
    from_config = Architecture.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(safetensors(TENSORS))
    arch = Architecture.load(tmp_path)
    assert from_config.header_bytes is None
    assert arch.header_bytes.routed == 6144
    assert arch.weight_bytes() == 12800 + 6144 + 8192 + 12288 + 12800
    assert arch.step_weight_bytes() == (8192 + 12288 + 12800, 6144)
    assert arch.weight_bytes("bf16") == arch.weight_bytes()  # it is bf16 by its config
    assert arch.weight_bytes("int4") == from_config.weight_bytes("int4")


def test_an_unquantised_folder_has_the_bytes_that_the_config_says(tmp_path):
    """Every tensor of a small Qwen3 written out: headers and formula agree to the byte."""
    arch = Architecture.from_config(config())
    tensors = {}
    for weight in arch.weights:
        for layer in range(weight.layers if "{}" in weight.module else 1):
            name = f"model.{weight.module.format(layer)}.weight"
            shape = [weight.rows, weight.columns] if weight.linear else [weight.rows]
            tensors[name] = ("BF16", shape, 2 * weight.rows * weight.columns)
    (tmp_path / "config.json").write_text(json.dumps(config()), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(safetensors(tensors))
    read = Architecture.load(tmp_path)
    assert read.weight_bytes() == arch.weight_bytes() == 2 * arch.total_params
    assert read.step_weight_bytes() == arch.step_weight_bytes()


# --- GGUF ----------------------------------------------------------------------------------------------------------


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        kind, body = (
            (8, b"".join(map(text, value)))
            if isinstance(value[0], str)
            else (4, struct.pack(f"<{len(value)}I", *value))
        )
        return text(key) + struct.pack("<IIQ", 9, kind, len(value)) + body
    return text(key) + struct.pack("<I", 4) + struct.pack("<I", value)


def gguf(metadata, tensors, version=3):
    """Bytes of a GGUF file: tensors are name to (type id, shape, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    body = b"".join(pair(key, value) for key, value in metadata.items())
    offset = 0
    for name, (kind, shape, size) in tensors.items():
        body += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        offset += size
    return head + body + b"\0" * offset


METADATA = {
    "general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 256,
    "llama.feed_forward_length": 512, "llama.attention.head_count": 8, "llama.attention.head_count_kv": [2, 2],
    "llama.attention.key_length": 32, "llama.context_length": 4096, "tokenizer.ggml.tokens": ["a"] * 5000,
    "tokenizer.ggml.scores": [1] * 5000, "general.tags": ["x", "y"],
}  # fmt: skip


def llama_gguf(tied=False):
    q4, q6, f32 = 12, 14, 0

    def size(kind, shape):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        return {q4: count // 256 * 144, q6: count // 256 * 210, f32: count * 4}[kind]

    shapes = {"token_embd.weight": (q4, (256, 1000)), "output_norm.weight": (f32, (256,))}
    if not tied:
        shapes["output.weight"] = (q6, (256, 1000))
    for layer in range(2):
        blk = f"blk.{layer}"
        shapes |= {
            f"{blk}.attn_norm.weight": (f32, (256,)), f"{blk}.ffn_norm.weight": (f32, (256,)),
            f"{blk}.attn_q.weight": (q4, (256, 256)), f"{blk}.attn_k.weight": (q4, (256, 64)),
            f"{blk}.attn_v.weight": (q6, (256, 64)), f"{blk}.attn_output.weight": (q4, (256, 256)),
            f"{blk}.ffn_gate.weight": (q4, (256, 512)), f"{blk}.ffn_up.weight": (q4, (256, 512)),
            f"{blk}.ffn_down.weight": (q6, (512, 256)),
        }  # fmt: skip
    return {name: (kind, shape, size(kind, shape)) for name, (kind, shape) in shapes.items()}


@pytest.mark.parametrize("tied", [False, True])
def test_gguf_file(tmp_path, tied):
    tensors = llama_gguf(tied)
    (tmp_path / "m.gguf").write_bytes(gguf(METADATA, tensors))
    arch = Architecture.load(tmp_path / "m.gguf")
    total = sum(size for _, _, size in tensors.values())
    assert arch.model_type == "llama"
    assert arch.weight_bytes() == total
    assert arch.weight_format == "q4_k"
    assert arch.math_format() == "bf16"
    assert arch.kv_bytes_per_token() == 2 * 2 * 2 * 32 * 2
    assert arch.tied_embeddings is tied
    assert arch.total_params == sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for _, shape, _ in tensors.values())
    embedding = 256 * 1000 // 256 * 144
    assert arch.step_weight_bytes() == (total - (0 if tied else embedding), 0)


def test_split_gguf(tmp_path):
    tensors = llama_gguf()
    names = list(tensors)
    for part, chosen in ((1, names[:4]), (2, names[4:])):
        data = gguf(METADATA if part == 1 else {"split.no": 1}, {name: tensors[name] for name in chosen})
        (tmp_path / f"m-{part:05d}-of-00002.gguf").write_bytes(data)
    assert Architecture.load(tmp_path / "m-00002-of-00002.gguf").weight_bytes() == sum(
        size for _, _, size in tensors.values()
    )
    (tmp_path / "m-00001-of-00002.gguf").unlink()
    with pytest.raises(ConfigError, match="00001-of-00002"):
        Architecture.load(tmp_path / "m-00002-of-00002.gguf")


def test_gguf_mixture_and_latent_attention():
    tensors = (checkpoint.Tensor("token_embd.weight", "q8_0", (128, 50), 6800),)
    moe = {**METADATA, "llama.expert_count": 8, "llama.expert_used_count": 2, "llama.attention.head_count_kv": 2}
    made = Architecture.from_config(checkpoint.gguf_config(checkpoint.Checkpoint("x", tensors, moe)))
    assert (made.model_type, made.experts, made.experts_per_token) == ("mixtral", 8, 2)
    latent = {
        "general.architecture": "deepseek2", "deepseek2.block_count": 3, "deepseek2.embedding_length": 128,
        "deepseek2.attention.head_count": 4, "deepseek2.attention.head_count_kv": 1, "deepseek2.context_length": 4096,
        "deepseek2.attention.q_lora_rank": 32, "deepseek2.attention.kv_lora_rank": 64,
        "deepseek2.rope.dimension_count": 16, "deepseek2.attention.key_length_mla": 48,
        "deepseek2.attention.value_length_mla": 32, "deepseek2.feed_forward_length": 256,
        "deepseek2.expert_feed_forward_length": 64, "deepseek2.expert_count": 8, "deepseek2.expert_used_count": 2,
        "deepseek2.expert_shared_count": 1, "deepseek2.leading_dense_block_count": 1,
    }  # fmt: skip
    made = Architecture.from_config(checkpoint.gguf_config(checkpoint.Checkpoint("x", tensors, latent)))
    assert made.kv_bytes_per_token() == 3 * (64 + 16) * 2
    oss = {
        "general.architecture": "gpt-oss", "gpt-oss.block_count": 4, "gpt-oss.embedding_length": 128,
        "gpt-oss.attention.head_count": 4, "gpt-oss.attention.head_count_kv": 2, "gpt-oss.attention.key_length": 32,
        "gpt-oss.expert_feed_forward_length": 64, "gpt-oss.expert_count": 8, "gpt-oss.expert_used_count": 2,
        "gpt-oss.attention.sliding_window": 128,
    }  # fmt: skip
    made = Architecture.from_config(checkpoint.gguf_config(checkpoint.Checkpoint("x", tensors, oss)))
    assert {cache.window: cache.layers for cache in made.caches} == {128: 2, None: 2}


def test_gguf_of_an_unknown_family_or_without_an_embedding():
    with pytest.raises(UnsupportedArchitectureError, match="'wavenet'"):
        checkpoint.gguf_config(checkpoint.Checkpoint("x", (), {"general.architecture": "wavenet"}))
    with pytest.raises(ConfigError, match="token_embd"):
        checkpoint.gguf_config(checkpoint.Checkpoint("x", (), METADATA))
    tensors = (checkpoint.Tensor("token_embd.weight", "f16", (8, 8), 128),)
    with pytest.raises(ConfigError, match="key_length_mla"):
        checkpoint.gguf_config(checkpoint.Checkpoint("x", tensors, {"general.architecture": "deepseek2"}))


# --- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"GGUF", b"GGML" + b"\0" * 100, gguf(METADATA, llama_gguf(), version=9)])
def test_files_that_are_no_gguf(tmp_path, data):
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(ConfigError, match="no GGUF file"):
        Architecture.load(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0" * 8, b"\xff" * 64, (5).to_bytes(8, "little") + b"[1,2]",
        safetensors(TENSORS)[:-1], safetensors({"a": ("BF16", [-1], 0)}), safetensors({"a": ("BF16", "x", 2)}),
    ],
)  # fmt: skip
def test_files_that_are_no_safetensors(tmp_path, data):
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(ConfigError, match="no safetensors file"):
        checkpoint.load(tmp_path / "m.safetensors")


def test_an_empty_folder(tmp_path):
    with pytest.raises(ConfigError, match=r"no \.safetensors file"):
        checkpoint.load(tmp_path)


WHOLE = {
    "gguf": gguf({**METADATA, "tokenizer.ggml.tokens": ["a"] * 9}, llama_gguf()),
    "safetensors": safetensors(TENSORS),
}


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(WHOLE)), st.integers(0, 2500), st.binary(max_size=12), st.booleans())
def test_damage_never_ends_in_a_traceback(tmp_path, kind, place, junk, cut):
    data = bytearray(WHOLE[kind])
    data[place : place + len(junk)] = junk
    file = Path(tmp_path) / f"m.{kind}"
    file.write_bytes(bytes(data[:place] if cut else data))
    try:
        read = checkpoint.load(file)
        if kind == "gguf":
            Architecture.load(file)
    except BatchlineError:
        return
    assert read.total_bytes >= 0


# --- the hub -------------------------------------------------------------------------------------------------------


class HubError(OSError):
    pass


class EntryMissingError(HubError):
    pass


class OfflineError(EntryMissingError):
    pass


class NoSafetensorsError(Exception):
    pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A huggingface_hub that serves the files of a folder; no network."""
    module = types.ModuleType("huggingface_hub")
    module.errors = types.SimpleNamespace(
        HfHubHTTPError=HubError,
        EntryNotFoundError=EntryMissingError,
        LocalEntryNotFoundError=OfflineError,
        NotASafetensorsRepoError=NoSafetensorsError,
    )

    def download(hf_id, name):
        if hf_id == "off/line":
            raise OfflineError("no network")
        if not (tmp_path / name).is_file():
            raise EntryMissingError(f"no {name}")
        return str(tmp_path / name)

    def headers(_hf_id):
        if not (tmp_path / "m.safetensors").is_file():
            raise NoSafetensorsError
        entries = {
            tensor.name: types.SimpleNamespace(
                dtype=tensor.kind, shape=list(tensor.shape), data_offsets=(0, tensor.size)
            )
            for tensor in checkpoint.read_safetensors(tmp_path / "m.safetensors")
        }
        return types.SimpleNamespace(files_metadata={"m": types.SimpleNamespace(tensors=entries)})

    module.hf_hub_download = download
    module.get_safetensors_metadata = headers
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return tmp_path


def test_fetch(hub):
    (hub / "config.json").write_text(json.dumps(config()), encoding="utf-8")
    (hub / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}), encoding="utf-8")
    without = Architecture.load("some/model", fetch=True)
    assert without.weight_format == "fp8-static"
    assert without.header_bytes is None
    (hub / "m.safetensors").write_bytes(safetensors(TENSORS))
    assert Architecture.load("some/model", fetch=True).header_bytes.routed == 6144


def test_fetch_that_fails(hub):
    with pytest.raises(ConfigError, match=r"has no config\.json"):
        Architecture.load("some/model", fetch=True)
    with pytest.raises(ConfigError, match="cannot be fetched"):
        Architecture.load("off/line", fetch=True)
    (hub / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match="no JSON object"):
        Architecture.load("some/model", fetch=True)


def test_fetch_is_not_tried_unasked_nor_for_a_model_of_the_catalogue(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingFactError, match="needs huggingface_hub"):
        Architecture.load("some/model", fetch=True)
    assert Architecture.load("Qwen/Qwen3-32B", fetch=True).name == "qwen3-32b"
    with pytest.raises(BatchlineError, match="no model"):
        Architecture.load("some/model")


@pytest.mark.parametrize("read", [checkpoint.load, Architecture.load])
@pytest.mark.parametrize("given", ["~0", "~of nobody/model.gguf"])
def test_the_home_of_nobody_is_no_file(read, given):
    with pytest.raises(ConfigError, match="cannot be read"):
        read(given)
