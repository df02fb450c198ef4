"""The metadata of a GGUF file as the config.json of its family."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchline.errors import ConfigError, UnsupportedArchitectureError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchline.checkpoint.tensors import Checkpoint

__all__ = ["gguf_config"]


def gguf_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """Write the metadata of a GGUF file as the config.json of its family.

    Parameters
    ----------
    checkpoint : Checkpoint
        Of a GGUF file.

    Returns
    -------
    dict
        Keys as config.json has them; `data/gguf_families.toml` is the dictionary.

    Raises
    ------
    UnsupportedArchitectureError
        If the architecture is not in the dictionary.
    ConfigError
        If a size is missing.
    """
    metadata, families = checkpoint.metadata, _gguf_families()
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in families or name == "common":
        known = ", ".join(key for key in families if key != "common")
        raise UnsupportedArchitectureError(
            Sentence("error.gguf_architecture", name=repr(name)), Sentence("error.known", names=known)
        )
    table = families[name]
    keys = {**families["common"], **table["keys"]}
    config = {key: metadata.get(f"{name}.{gguf_key}") for key, gguf_key in keys.items()}
    for key, value in config.items():
        if isinstance(value, list) and len(set(value)) == 1:
            config[key] = value[0]  # one value for each layer, all alike
    config = {key: value for key, value in config.items() if value is not None}
    moe = "moe_family" in table and config.get("num_local_experts")
    config["model_type"] = table["moe_family"] if moe else table["family"]
    if "moe_family" in table and not moe:
        config = {key: value for key, value in config.items() if "expert" not in key}
    shapes = {tensor.name: tensor.shape for tensor in checkpoint.tensors}
    if len(embedding := shapes.get("token_embd.weight", ())) != 2:
        raise ConfigError(Sentence("error.gguf_embedding", source=checkpoint.source))
    config["vocab_size"] = embedding[1]
    config["tie_word_embeddings"] = "output.weight" not in shapes
    return _finished(config, table, name)


def _finished(config: dict[str, Any], table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Keys that no single metadata key holds."""
    config |= table.get("constants", {})
    layers = config.get("num_hidden_layers")
    if name == "gpt-oss" and isinstance(layers, int) and 0 < layers < 4096:
        config["layer_types"] = (["sliding_attention", "full_attention"] * layers)[:layers]
        del config["sliding_window_pattern"]
    if name == "deepseek2":
        length, rope = config.pop("key_length", None), config.get("qk_rope_head_dim")
        config.pop("num_key_value_heads", None)
        config.setdefault("q_lora_rank", None)
        if not isinstance(length, int) or not isinstance(rope, int):
            raise ConfigError(Sentence("error.gguf_mla"), hint=Sentence("error.convert_anew"))
        config["qk_nope_head_dim"] = length - rope
    return config


@functools.cache
def _gguf_families() -> dict[str, Any]:
    text = (Path(__file__).parents[1] / "data" / "gguf_families.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
