"""The table of families: `data/families.toml` maps a `model_type` to a builder, with its defaults and their source."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchline.architecture import _decoders as decoders
from batchline.architecture import _gemma as gemma
from batchline.architecture import _hybrids as hybrids
from batchline.architecture import _latent as latent
from batchline.errors import ConfigError, UnsupportedArchitectureError, closest
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from batchline.architecture._config import Config
    from batchline.architecture._shapes import Model

__all__ = ["BUILDERS", "Family", "family", "family_names", "language_model"]

_WRAPPERS = ("text_config", "language_config", "llm_config")

BUILDERS: Mapping[str, Callable[[Config, Mapping[str, Any]], Model]] = {
    builder.__name__: builder
    for builder in (
        decoders.deci,
        decoders.decoder,
        decoders.falcon,
        decoders.gpt_oss,
        decoders.llama4,
        decoders.mimo_v2,
        decoders.nemotron_nas,
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
    fixed : mapping
        Keys that have one value in this family; another one is refused.
    source : str
        Where the defaults and the shape are written down.
    """

    builder: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, list[str]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""


_TABLE = re.compile(r"^\[([\w-]+)\]$", re.MULTILINE)


@functools.cache
def _tables() -> dict[str, str]:
    """Text of each family's table; TOML is slow to parse, and one run needs one family."""
    text = (Path(__file__).parents[1] / "data" / "families.toml").read_text(encoding="utf-8")
    pieces = _TABLE.split(text)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


@functools.cache
def family_names() -> tuple[str, ...]:
    """All families, by `model_type`."""
    return tuple(_tables())


@functools.cache
def family(model_type: str) -> Family:
    """The family of a `model_type` that is known."""
    return Family(**tomllib.loads(f"[{model_type}]\n{_tables()[model_type]}")[model_type])


def language_model(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Section of the language model and its family, of a config that may wrap it."""
    if not isinstance(config, dict):
        raise ConfigError(Sentence("config.no_object", kind=type(config).__name__))
    outer = config.get("model_type")
    for wrapper in _WRAPPERS:
        if isinstance(inner := config.get(wrapper), dict):
            model_type = inner.get("model_type") or outer
            kept = {key: config[key] for key in ("tie_word_embeddings", "dtype", "torch_dtype") if key in config}
            return {**kept, **inner}, _known(model_type)
    return config, _known(outer)


def _known(model_type: object) -> str:
    known = family_names()
    if not isinstance(model_type, str) or not model_type:
        raise ConfigError(
            Sentence("config.no_family")
            if model_type is None
            else Sentence("config.odd_family", given=repr(model_type)),
            Sentence("config.names_family"),
            Sentence("config.give_hf_config"),
        )
    if model_type in known:
        return model_type
    near = closest(model_type, known)
    raise UnsupportedArchitectureError(
        Sentence("config.unknown_family", given=repr(model_type)),
        Sentence("error.closest" if near else "error.known", names=", ".join(near or known)),
        Sentence("config.add_family"),
    )
