"""Charts as pictures of a report."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batchline import chart
from batchline.chart import theme as looks
from batchline.report.blocks import Figure, Gallery

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchline.sweep import Curve

__all__ = ["SYSTEM", "drawn_in", "six_figures", "svg"]

SYSTEM: Final = "system"
"""The theme that is light or dark as the reader's system is."""

_PADDING = {"left": 42, "right": 42, "top": 72, "bottom": 40}
"""Room around a plot, the same for all six, as on the page: axes lie in line, and letters have one size [px]."""


def drawn_in(theme: str) -> str:
    """Theme in which pictures are drawn; those of the system's are light, and turn dark by themselves."""
    return "light" if theme == SYSTEM else theme


def svg(spec: Any, theme: str = "light") -> str:
    """Draw a specification."""
    with tempfile.TemporaryDirectory(prefix="batchline-") as folder:
        drawn = chart.save(spec, Path(folder) / "chart.svg").read_text(encoding="utf-8")
    return _turning(drawn) if theme == SYSTEM else drawn


def _turning(drawn: str) -> str:
    """Give a light picture the dark colours of the same roles where the system is dark."""
    light, dark = looks.palette("light"), looks.palette("dark")
    turned = {light[role]: dark[role] for role in light}
    rules = "".join(f'[{on}="{old}"]{{{on}:{new}}}' for old, new in turned.items() for on in ("fill", "stroke"))
    head, end, rest = drawn.partition(">")
    return f"{head}{end}<style>@media(prefers-color-scheme:dark){{{rules}}}</style>{rest}"


def six_figures(curve: Curve, *, language: str, theme: str, measured: Sequence[Mapping[str, Any]] = ()) -> Gallery:
    """Draw the article's six plots, each a picture of its own, so that a phone has one below the other.

    Parameters
    ----------
    curve : Curve
        On batches that suit a plot.
    language, theme : str
        "en" or "ko"; "system", "light" or "dark".
    measured : sequence of mapping
        As of `batchline.chart.six_plots`.

    Returns
    -------
    Gallery
        Six pictures.
    """
    figures = []
    for name in chart.PLOTS:
        spec = chart.plot(curve, name, theme=drawn_in(theme), language=language, measured=measured)
        title = next(one["value"] for one in spec["params"] if one["name"] == f"p{name.replace('.', '')}_title")
        fixed = {**spec, "autosize": {"type": "none"}, "padding": _PADDING}
        figures.append(Figure(f"plot-{name.replace('.', '-')}", svg(fixed, theme), title))
    return Gallery(tuple(figures))
