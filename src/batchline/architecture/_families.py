"""The table of families: `data/families.toml` maps a `model_type` to a builder, with its defaults and their source."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from batchline.architecture import _decoders as decoders
from batchline.architecture import _gemma as gemma
from batchline.architecture import _hybrids as hybrids
from batchline.architecture import _latent as latent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from batchline.architecture._config import Config
    from batchline.architecture._shapes import Model

__all__ = ["BUILDERS", "Family", "families"]

BUILDERS: Mapping[str, Callable[[Config, Mapping[str, Any]], Model]] = {
    builder.__name__: builder
    for builder in (
        decoders.bloom,
        decoders.cohere,
        decoders.dense,
        decoders.falcon,
        decoders.gemma,
        decoders.glm4_moe,
        decoders.gpt2,
        decoders.gpt_oss,
        decoders.llama4,
        decoders.minimax_m2,
        decoders.mixtral,
        decoders.nemotron_nas,
        decoders.olmo,
        decoders.qwen_moe,
        decoders.step,
        gemma.gemma3n,
        gemma.gemma4,
        hybrids.jamba,
        hybrids.kimi_linear,
        hybrids.minimax_m1,
        hybrids.nemotron_h,
        hybrids.qwen_delta,
        latent.deepseek,
        latent.deepseek_v4,
        latent.minimax_m3,
    )
}
"""Builders by name. A new shape of layer gets a builder here; a new family of a known shape, a table in the file."""


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


@functools.cache
def families() -> dict[str, Family]:
    """All families, by `model_type`."""
    text = resources.files("batchline").joinpath("data", "families.toml").read_text(encoding="utf-8")
    return {name: Family(**table) for name, table in tomllib.loads(text).items()}
