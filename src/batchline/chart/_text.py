"""How wide a text will be, without a browser: Helvetica's metrics, which the charts' fonts share."""

from __future__ import annotations

import tomllib
import unicodedata
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["text_width", "wrapped"]


@cache
def _metrics() -> tuple[dict[str, int], dict[str, Any]]:
    table = tomllib.loads(resources.files("batchline").joinpath("data/glyph_widths.toml").read_text(encoding="utf-8"))
    widths = {glyph: int(width) for width, glyphs in table.pop("widths").items() for glyph in glyphs}
    return widths, table


@cache
def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Width of a line of text.

    Parameters
    ----------
    text : str
        What is written.
    size : float
        Font size [px].
    bold : bool
        In bold.

    Returns
    -------
    float
        Width [px].
    """
    widths, other = _metrics()
    units = sum(
        widths.get(glyph) or (other["wide"] if unicodedata.east_asian_width(glyph) in "WF" else other["other"])
        for glyph in text
    )
    return float(units * size / 1000 * (other["bold"] if bold else 1.0))


def wrapped(text: str, size: float, width: float, *, bold: bool = False) -> list[str]:
    """Break a text into lines at its spaces.

    Parameters
    ----------
    text : str
        What is written.
    size : float
        Font size [px].
    width : float
        Longest line allowed [px]; a single longer word stands alone.
    bold : bool
        In bold.

    Returns
    -------
    list of str
        Lines.
    """
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold=bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
