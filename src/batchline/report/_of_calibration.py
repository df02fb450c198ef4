"""What a notebook says of a calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.report.blocks import Block, Table, Text
from batchline.strings import text
from batchline.units import format_time

if TYPE_CHECKING:
    from batchline.calibrate import Calibration

__all__ = ["calibration_blocks"]

_WHEN = ("before", "after", "left_out")


def calibration_blocks(calibration: Calibration, language: str) -> list[Block]:
    """Tell a calibration: errors before and after, what lies where, and what the points told of each coefficient."""

    def say(key: str, **fields: str) -> str:
        return text(f"report.calibration_{key}", language, **fields)

    low, high = calibration.interval()
    return [
        Text(
            say("title", deployment=calibration.deployment.titled(language), points=f"{calibration.points:,}"),
            strong=True,
        ),
        Text(say("interval", low=f"{low:.2f}", high=f"{high:.2f}")),
        *(Text(warning) for warning in calibration.warnings),
        Table((say("median_error"), *map(say, _WHEN)), tuple(_errors(calibration))),
        Table(tuple(map(say, ("point", "batch", "context", "measured", *_WHEN))), tuple(_observations(calibration))),
        Table(tuple(map(say, ("coefficient", "before", "after", "sd", "told"))), tuple(_coefficients(calibration))),
    ]


def _errors(calibration: Calibration) -> list[tuple[str, ...]]:
    return [
        (of.upper(), *("–" if not one.count else f"{one.median:.1%}" for one in found))
        for of in ("tpot", "ttft")
        if (found := [calibration.errors(of, when) for when in _WHEN])[1].count
    ]


def _observations(calibration: Calibration) -> list[tuple[str, ...]]:
    def off(predicted: float, measured: float) -> str:
        return f"{predicted / measured - 1:+.1%}"

    left = calibration.left_out
    return [
        (
            {"step": "step", "tpot": "TPOT", "ttft": "TTFT"}[one.of],
            f"{one.batch:,.4g}",
            f"{one.context:,.0f}",
            format_time(one.seconds),
            off(float(calibration.before[i]), one.seconds),
            off(float(calibration.after[i]), one.seconds),
            "–" if left is None else off(float(left[i]), one.seconds),
        )
        for i, one in enumerate(calibration.observations)
    ]


def _coefficients(calibration: Calibration) -> list[tuple[str, ...]]:
    names, sd = calibration.belief.coefficient_names, calibration.sd()
    before = calibration.belief.values(calibration.belief.mean)
    prior = dict(zip(names, before, strict=True))
    return [
        (
            name.replace("_", " "),
            f"{float(prior[name]):.4g}",
            f"{float(getattr(calibration.coefficients, name)):.4g}",
            f"{sd[name]:.2g}",
            f"{1 - left:.0%}",
        )
        for name, left in calibration.identified.items()
    ]
