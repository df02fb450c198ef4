"""A calibration in tables, and what a notebook says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.report.blocks import Block, Table, Text
from batchline.strings import text
from batchline.units import format_time

if TYPE_CHECKING:
    from batchline.calibrate import Calibration

__all__ = ["calibration_blocks", "coefficient_table", "observation_table"]

_WHEN = ("before", "after", "left_out")


def calibration_blocks(calibration: Calibration, language: str) -> list[Block]:
    """Tell a calibration: errors before and after, what lies where, and what the points told of each coefficient."""

    def say(key: str, **fields: str) -> str:
        return text(f"report.calibration_{key}", language, **fields)

    low, high = calibration.interval()
    title = say("title", deployment=calibration.deployment.titled(language), points=f"{calibration.points:,}")
    return [
        Text(title, strong=True),
        Text(say("interval", low=f"{low:.2f}", high=f"{high:.2f}")),
        *(Text(warning) for warning in calibration.warnings),
        _error_table(calibration, language),
        observation_table(calibration, language),
        coefficient_table(calibration, language),
    ]


def _when(language: str) -> tuple[str, ...]:
    return tuple(text(f"calibrate.col_{name}", language) for name in _WHEN)


def _error_table(calibration: Calibration, language: str) -> Table:
    rows = tuple(
        (of.upper(), *("–" if not one.count else f"{one.median:.1%}" for one in found))
        for of in ("tpot", "ttft")
        if (found := [calibration.errors(of, when) for when in _WHEN])[1].count
    )
    return Table((text("report.calibration_median_error", language), *_when(language)), rows)


def observation_table(calibration: Calibration, language: str) -> Table:
    """Put each observation in a row: what, where, measured, before, after, by the others, from which file.

    Parameters
    ----------
    calibration : Calibration
        What was fitted.
    language : str
        "en" or "ko".

    Returns
    -------
    Table
        Times as text; predictions as the share by which they are off [-].
    """

    def off(predicted: float, measured: float) -> str:
        return f"{predicted / measured - 1.0:+.1%}"

    left = calibration.left_out
    named = {"step": text("calibrate.col_step", language), "tpot": "TPOT", "ttft": "TTFT"}
    rows = tuple(
        (
            named[one.of],
            f"{one.batch:,.4g}",
            f"{one.context:,.0f}",
            format_time(one.seconds),
            off(calibration.before[i], one.seconds),
            off(calibration.after[i], one.seconds),
            "-" if left is None else off(left[i], one.seconds),
            one.name,
        )
        for i, one in enumerate(calibration.observations)
    )
    where = ("calibrate.col_value", "curve.batch", "measure.col_context", "measure.col_measured")
    columns = (*(text(key, language) for key in where), *_when(language), text("measure.col_from", language))
    return Table(columns, rows, left=frozenset({0, len(columns) - 1}))


def coefficient_table(calibration: Calibration, language: str) -> Table:
    """Put each coefficient in a row: before, after, its standard deviation, and how much the points told of it.

    Parameters
    ----------
    calibration : Calibration
        What was fitted.
    language : str
        "en" or "ko".

    Returns
    -------
    Table
        In the units of `step.Coefficients`; the last column is a share [-].
    """
    belief, sd = calibration.belief, calibration.sd()
    prior = dict(zip(belief.coefficient_names, belief.values(belief.mean), strict=True))
    rows = tuple(
        (
            name,
            f"{prior[name]:.4g}",
            f"{getattr(calibration.coefficients, name):.4g}",
            f"{sd[name]:.2g}",
            f"{1.0 - left:.0%}",
        )
        for name, left in calibration.identified.items()
    )
    before, after, _ = _when(language)
    coefficient, deviation, told = (
        text(f"report.calibration_{name}", language) for name in ("coefficient", "sd", "told")
    )
    return Table((coefficient, before, after, deviation, told), rows)
