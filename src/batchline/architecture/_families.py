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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from batchline.architecture._config import Config
    from batchline.architecture._shapes import Model

__all__ = ["BUILDERS", "Family", "family", "family_names"]

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
