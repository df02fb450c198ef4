"""What a calibration gave, and its answer in sentences: for the screen, JSON and the report."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from batchline import units
from batchline.cli._language import current, say
from batchline.cli.measure import explained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.calibrate import Advice, Calibration, Profile
    from batchline.measure import MeasuredPoint
    from batchline.measure.hazards import Hazard
    from batchline.sweep import Curve

__all__ = ["Found", "answer", "to_dict"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """Everything that a calibration gave, for the screen, JSON and the report."""

    points: Sequence[MeasuredPoint]
    hazards: Sequence[Sequence[Hazard]]
    kept: Sequence[MeasuredPoint]
    calibration: Calibration
    profile: Profile
    before: Curve
    after: Curve
    advice: Advice
    warnings: tuple[str, ...]

    @property
    def unidentified(self) -> dict[str, float]:
        """Coefficients that the points tell nothing of, and how far each moves a step where it is asked for."""
        from batchline.calibrate import grid

        calibration = self.calibration
        return calibration.unidentified(
            grid(calibration.deployment, calibration.observations, context=self.after.context)
        )

    @property
    def notes(self) -> list[str]:
        """What was found wrong with the points."""
        return [line for line in explained(self.points, self.hazards, self.kept) if line]


def to_dict(found: Found) -> dict[str, Any]:
    """Everything, with the names of the JSON output."""
    calibration, profile = found.calibration, found.profile
    errors = {
        of: {when: dataclasses.asdict(calibration.errors(of, when)) for when in ("before", "after", "left_out")}
        for of in ("tpot", "ttft")
    }
    kept = set(map(id, found.kept))
    return {
        "model": profile.case.model,
        "accelerator": profile.case.accelerator,
        "count": profile.count,
        "points": [
            {
                **point.to_dict(),
                "hazards": [{"name": one.name, "evidence": one.evidence, "excludes": one.excludes} for one in some],
                "fitted": id(point) in kept,
            }
            for point, some in zip(found.points, found.hazards, strict=True)
        ],
        "refused": list(calibration.refused),
        "errors": errors,
        "interval": dict(zip(("low", "high"), calibration.interval(), strict=True)),
        "coefficients": {
            name: {"mean": profile.mean[name], "sd": profile.sd.get(name, 0.0), "spread_left": left}
            for name, left in calibration.identified.items()
        },
        "unidentified": found.unidentified,
        "advice": dataclasses.asdict(found.advice) | {"text": str(found.advice)},
        "optimum": {"before": found.before.optimum.to_dict(), "after": found.after.optimum.to_dict()},
        "context": found.after.context,
        "warnings": list(found.warnings),
    }


def answer(found: Found) -> list[tuple[str, str]]:
    """Sentences of the answer, with a style each."""
    calibration = found.calibration
    lines = [(_errors(found, of), "bold green") for of in ("tpot", "ttft") if calibration.errors(of).count]
    low, high = calibration.interval()
    lines.append((say("calibrate.interval", low=f"{low:.2f}", high=f"{high:.2f}"), ""))
    if found.advice.worthwhile and (unknown := found.unidentified):
        parts = [say("calibrate.moves", name=name, share=f"{share:.0%}") for name, share in list(unknown.items())[:4]]
        lines.append((say("calibrate.little", names=", ".join(parts)), ""))
    lines.append((found.advice.told(current()), ""))
    lines.append((_optimum(found), ""))
    return lines


def _errors(found: Found, of: str) -> str:
    """Errors of one kind, before and after."""
    calibration = found.calibration
    before, after, left = (calibration.errors(of, when) for when in ("before", "after", "left_out"))
    fields = {"of": of.upper(), "before": f"{before.median:.1%}", "after": f"{after.median:.1%}"}
    fields |= {"count": f"{after.count}", "points": f"{calibration.points}"}
    if not left.count:
        return say("calibrate.errors", **fields)
    return say("calibrate.errors_left", **fields, left=f"{left.median:.1%}", mean=f"{left.mean:.1%}")


def _optimum(found: Found) -> str:
    """Batch to run before and after."""

    def run(curve: Curve) -> str:
        best = curve.optimum
        batch, time = f"{best.batch:,}", units.format_time(best.t_step)
        if best.usd_per_mtok is None:
            return say("calibrate.run", batch=batch, time=time)
        return say("calibrate.run_cost", batch=batch, time=time, cost=units.format_usd(best.usd_per_mtok))

    context = f"{found.after.context:,.0f}"
    return say("calibrate.best", context=context, before=run(found.before), after=run(found.after))
