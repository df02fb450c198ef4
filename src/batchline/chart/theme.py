"""Colours and fonts of the charts, from data/chart_theme.toml."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Final

from batchline.errors import UnknownNameError

__all__ = ["THEMES", "font", "palette"]

THEMES: Final = ("light", "dark")
"""Themes of the charts."""


@cache
def _table() -> dict[str, dict[str, str]]:
    data = resources.files("batchline").joinpath("data/chart_theme.toml").read_text(encoding="utf-8")
    return {name: entry for name, entry in tomllib.loads(data).items() if isinstance(entry, dict)}


def palette(theme: str) -> dict[str, str]:
    """Colour of each role.

    Parameters
    ----------
    theme : str
        "light" or "dark".

    Returns
    -------
    dict
        Role -> "#rrggbb".

    Raises
    ------
    UnknownNameError
        No such theme.
    """
    if theme not in THEMES:
        raise UnknownNameError("theme", theme, THEMES)
    return _table()[theme]


def font(language: str) -> str:
    """Fonts for a language, the first that the reader has being used.

    Parameters
    ----------
    language : str
        "en" or "ko".

    Returns
    -------
    str
        A CSS font list.
    """
    return _table()["font"][language]
