"""--measured: result files beside a curve, for `curve` and `report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click
import numpy as np

from batchline.cli import _output
from batchline.cli._language import say, told
from batchline.strings import text
from batchline.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from batchline.measure.beside import Beside
    from batchline.sweep import Curve

_F = TypeVar("_F", bound="Callable[..., Any]")


def option(command: _F) -> _F:
    """Add --measured."""
    made = click.option(
        "--measured",
        "files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help=text("help.files"),
    )
    return made(command)


def points_of(curve: Curve, files: Sequence[str]) -> list[Beside]:
    """Points of result files beside the curve; warns of those that cannot be laid there."""
    if not files:
        return []
    from batchline.measure import read_all
    from batchline.measure.beside import beside

    laid, left = beside(read_all(files), curve)
    for line in left:
        _output.warn(say("measure.not_beside", point=told(line)))
    return laid


def drawn(laid: Sequence[Beside]) -> list[dict[str, Any]]:
    """Those that can be drawn on the curve; warns of the others."""
    shown = [one.to_dict() for one in laid if one.near and one.usable]
    if len(shown) < len(laid):
        _output.warn(say("measure.not_drawn", count=len(laid) - len(shown), all=len(laid)))
    return shown


def table(laid: Sequence[Beside]) -> Table:
    """One row per point; those with an excluding hazard are dim."""
    columns = [("  " + say("curve.batch"), "right")]
    columns += [(say(f"measure.col_{name}"), "right") for name in ("context", "measured", "predicted", "off")]
    columns += [(say(f"measure.col_{name}"), "left") for name in ("hazards", "from")]
    rows = [
        (
            f"{one.batch:,.4g}",
            f"{one.context:,.0f}",
            format_time(one.measured_s),
            format_time(one.predicted_s),
            f"{one.off:+.1%}",
            ", ".join(hazard.name for hazard in one.hazards) or say("measure.none"),
            one.point.name,
        )
        for one in laid
    ]
    return _output.table(columns, rows, ["" if one.usable else "dim" for one in laid])


def sentence(laid: Sequence[Beside]) -> str:
    """How far the prediction is off."""
    usable = [abs(one.off) for one in laid if one.usable]
    if not usable:
        return say("measure.beside_none")
    left = len(laid) - len(usable)
    return say(
        "measure.beside",
        median=f"{np.median(usable):.1%}",
        count=len(usable),
        left=say("measure.beside_left", count=left) if left else "",
    )
