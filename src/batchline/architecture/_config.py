"""Reads a config.json by key: each size-bearing key has a type and a plausible range; none is passed over in silence.

A family reads the keys it needs through `Config`. Whatever is left is then looked at: a key known to be harmless is
ignored, a key that looks as if it changed a size is refused by name. Defaults come from data/families.toml only.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchline.errors import ConfigError, UnsupportedArchitectureError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_SIZE = 2**28
"""No width, vocabulary or count of a real model comes near; a larger one is a broken file [-]."""

MAX_LAYERS = 2048
"""Deepest stack that is believed; GPT-style research models reach 1,000 layers [-]."""

NULL = "null"
"""How data/families.toml writes a default of null, for which TOML has no word."""

_ABSENT: tuple[object, ...] = (None, False, 0, "", [], {})
_SIZE_WORDS = (
    "altup", "attn", "attention", "bias", "block", "channel", "conv", "depth", "dim", "embed", "expert", "group",
    "head", "hidden", "index", "inner", "kv", "latent", "layer", "lora", "mamba", "mlp", "moe", "norm", "pattern",
    "rank", "replace", "share", "size", "sparse", "ssm", "state", "tie", "vocab", "width", "window",
)  # fmt: skip


class Config:
    """A config.json that notes which keys were read.

    Parameters
    ----------
    data : mapping
        The parsed JSON object.
    family : str
        Its `model_type`, for messages.
    defaults : mapping
        What the family's own configuration class assumes when a key is absent.
    names : mapping
        Other spellings: canonical key to those that this family uses, in order of preference.
    path : str
        Where this section stands in the file, for messages.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        *,
        family: str,
        defaults: Mapping[str, Any] | None = None,
        names: Mapping[str, Iterable[str]] | None = None,
        path: str = "",
    ) -> None:
        self.data = data
        self.family = family
        self.path = path
        self.read: dict[str, Any] = {}
        self.known: set[str] = set()
        self._defaults = defaults or {}
        self._names = names or {}

    def spellings(self, key: str) -> list[str]:
        """Spellings under which this family may hold a key."""
        return [key, *self._names.get(key, ())]

    def has(self, key: str) -> bool:
        """Whether a key is there and not null."""
        return any(self.data.get(spelling) is not None for spelling in self.spellings(key))

    def value(self, key: str) -> Any:
        """Value of a key, of its default, or None; the key counts as read."""
        found = None
        for spelling in self.spellings(key):
            if spelling in self.data:
                given = self.read[spelling] = self.data[spelling]
                if found is None:
                    found = given
        if found is None and not self._given(key):
            default = self._defaults.get(key)
            found = None if default == NULL else default
        return found

    def _given(self, key: str) -> bool:
        return any(spelling in self.data for spelling in self.spellings(key))

    def integer(self, key: str, *, low: int = 1, high: int = MAX_SIZE) -> int:
        """Integer that must be there, or have a default of the family."""
        value = self.nullable(key, low=low, high=high)
        if value is None:
            raise self._missing(key)
        return value

    def nullable(self, key: str, *, low: int = 0, high: int = MAX_SIZE) -> int | None:
        """Integer, or null, which says that there is none; an absent key needs a default of the family."""
        value = self.value(key)
        if value is None:
            if not self._given(key) and key not in self._defaults:
                raise self._missing(key)
            return None
        return self._checked(key, value, low, high)

    def hint(self, key: str, *, low: int = 1, high: int = MAX_SIZE) -> int | None:
        """Integer that decides no size, so that it may be absent."""
        value = self.value(key)
        return None if value is None else self._checked(key, value, low, high)

    def expects(self, key: str) -> bool:
        """Whether the key is there, or the family has a default for it."""
        return self.has(key) or key in self._defaults

    def number(self, key: str, *, low: float = 0.0, high: float = 1e6) -> float:
        """Number that must be there."""
        value = self.value(key)
        if value is None:
            raise self._missing(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.wrong(key, value, Sentence("config.number", low=f"{low:g}", high=f"{high:g}"))
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false; must be there or have a default."""
        value = self.value(key)
        if value is None:
            raise self._missing(key)
        if not isinstance(value, bool):
            raise self.wrong(key, value, Sentence("config.true_or_false"))
        return value

    def text(self, key: str) -> str:
        """Text that must be there."""
        value = self.value(key)
        if value is None:
            raise self._missing(key)
        if not isinstance(value, str):
            raise self.wrong(key, value, Sentence("config.text"))
        return value

    def integers(self, key: str, *, low: int = 0, high: int = MAX_SIZE, most: int = MAX_LAYERS) -> list[int]:
        """List of integers that must be there."""
        return [self._checked(key, value, low, high) for value in self._list(key, most)]

    def texts(self, key: str, *, most: int = MAX_LAYERS) -> list[str]:
        """List of texts that must be there."""
        values = self._list(key, most)
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(key, value, Sentence("config.texts"))
        return values

    def layers(self, key: str = "num_hidden_layers") -> int:
        """Count of layers."""
        return self.integer(key, high=MAX_LAYERS)

    def section(self, key: str) -> Config:
        """Nested object that must be there."""
        value = self.value(key)
        if value is None:
            raise self._missing(key)
        if not isinstance(value, dict):
            raise self.wrong(key, value, Sentence("config.object"))
        defaults = self._defaults.get(key)
        defaults = defaults if isinstance(defaults, dict) else {}
        section = Config(value, family=self.family, defaults=defaults, path=f"{self.path}{key}.")
        self.read[key] = section.read
        return section

    def objects(self, key: str, *, most: int = MAX_LAYERS) -> list[Config]:
        """List of nested objects that must be there."""
        sections = []
        for index, value in enumerate(self._list(key, most)):
            if not isinstance(value, dict):
                raise self.wrong(key, value, Sentence("config.objects"))
            sections.append(Config(value, family=self.family, path=f"{self.path}{key}[{index}]."))
        self.read[key] = [section.read for section in sections]
        return sections

    def ignore(self, *keys: str) -> None:
        """Mark keys that this family is known not to use."""
        for key in keys:
            self.known.update(self.spellings(key))

    def wrong(self, key: str, value: object, wanted: str) -> ConfigError:
        """Error for a value that cannot be what the key means."""
        return ConfigError(
            Sentence("config.wrong", name=f"{self.path}{key}", given=_shown(value), wanted=wanted),
            hint=Sentence("config.correct", family=self.family),
        )

    def require(self, fixed: Mapping[str, Any]) -> None:
        """Refuse another value of a key (or in its list) that has one in this family."""
        for key, value in fixed.items():
            wanted = self.value(value[1:]) if isinstance(value, str) and value.startswith("=") else value
            given = self.value(key)
            values = given if isinstance(given, list) else [given]
            if self.has(key) and any(one != wanted for one in values):
                raise UnsupportedArchitectureError(
                    Sentence(
                        "config.only_known",
                        name=f"{self.path}{key}",
                        given=_shown(given),
                        family=self.family,
                        wanted=_shown(wanted),
                    ),
                    hint=Sentence("config.extend_family"),
                )
            self.ignore(key)

    def refuse_unread(self) -> None:
        """Refuse keys that were not read and look as if they changed a size."""
        for key, value in self.data.items():
            if key not in self.read and key not in self.known and _looks_size_bearing(str(key), value):
                raise UnsupportedArchitectureError(
                    Sentence("config.unknown_key", family=self.family, name=f"{self.path}{key}", given=_shown(value)),
                    Sentence("config.not_passed_over"),
                    Sentence("config.extend_family"),
                )

    def _checked(self, key: str, value: object, low: int, high: int) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(key, value, Sentence("config.whole_number", low=f"{low:,}", high=f"{high:,}"))
        return value

    def _list(self, key: str, most: int) -> list[Any]:
        value = self.value(key)
        if value is None:
            raise self._missing(key)
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(key, value, Sentence("config.list", most=f"{most:,}"))
        return value

    def _missing(self, key: str) -> ConfigError:
        said = "config.null" if self._given(key) else "config.missing"
        *others, last = (f"{self.path}{spelling}" for spelling in self.spellings(key))
        for other in reversed(others):
            last = Sentence("config.either", one=other, other=last)
        return ConfigError(
            Sentence(said, family=self.family, keys=last),
            Sentence("config.not_guessed"),
            Sentence("config.add_key"),
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _looks_size_bearing(key: str, value: object) -> bool:
    if key in _harmless() or key.startswith("_") or key.endswith(("_token_id", "_token_ids", "_token_index")):
        return False
    if any(value is absent or value == absent for absent in _ABSENT):
        return False
    if isinstance(value, bool):
        return any(word in key for word in _SIZE_WORDS)
    if isinstance(value, int | float):
        return True
    if isinstance(value, str):
        return any(word in key for word in ("pattern", "layer_type", "layers", "block_type"))
    if isinstance(value, dict):
        return any(_looks_size_bearing(str(inner), content) for inner, content in value.items())
    return isinstance(value, list) and any(word in key for word in _SIZE_WORDS)


@functools.cache
def _harmless() -> frozenset[str]:
    text = (Path(__file__).parents[1] / "data" / "harmless_keys.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() for word in line.partition("#")[0].split())
