"""Every sentence and name that people read in charts and reports, in English and Korean, from one catalogue.

`data/strings.toml` holds a table per group and a key per text; each key has every language, with the same fields.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Final

from batchline.errors import UnknownNameError

__all__ = ["LANGUAGES", "keys", "text"]

LANGUAGES: Final = ("en", "ko")
"""Languages of the catalogue: English and Korean."""


@cache
def _catalogue() -> dict[str, dict[str, str]]:
    groups = tomllib.loads(resources.files("batchline").joinpath("data/strings.toml").read_text(encoding="utf-8"))
    return {f"{group}.{name}": entry for group, entries in groups.items() for name, entry in entries.items()}


def keys() -> list[str]:
    """Names of all texts.

    Returns
    -------
    list of str
        Like "chart.batch_axis", in the order of the file.

    Examples
    --------
    >>> "chart.batch_axis" in keys()
    True
    """
    return list(_catalogue())


def text(key: str, language: str = "en", **fields: str | float) -> str:
    """Look up a text and fill its fields.

    Parameters
    ----------
    key : str
        Group and name.
    language : str
        "en" or "ko".
    **fields : str or float
        What stands in the braces of the text.

    Returns
    -------
    str
        The text in that language.

    Raises
    ------
    UnknownNameError
        No such key, or no such language.

    Examples
    --------
    >>> text("chart.full_at", batch="267")
    'KV cache full at 267'
    >>> text("chart.full_at", "ko", batch="267")
    'KV 캐시 한도 267'
    """
    entry = _catalogue().get(key)
    if entry is None:
        raise UnknownNameError("text", key, _catalogue())
    if language not in LANGUAGES:
        raise UnknownNameError("language", language, LANGUAGES)
    return entry[language].format(**fields)
