"""`batchline calibrate`: what your own points say, before and after, and what to measure next."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import click

from batchline import units
from batchline.cli import _options, _output
from batchline.cli.measure import explained
from batchline.errors import InputError, MeasurementError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from batchline.calibrate import Advice, Calibration, Profile, Rates
    from batchline.deployment import Deployment
    from batchline.measure import MeasuredPoint
    from batchline.measure.hazards import Hazard
    from batchline.prior import Prior
    from batchline.sweep import Curve


@click.command("calibrate")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False), metavar="FILES...")
@click.option("--model", required=True, metavar="NAME", help="Model that was measured: a name, config.json or folder.")
@_options.deployment_options
@click.option(
    "--context",
    type=_options.TOKENS,
    metavar="TOKENS",
    help="Context for which the best batch is wanted.  [default: that of the points]",
)
@click.option("--step-limit", type=_options.DURATION, metavar="40ms", help="Longest time per token allowed.")
@click.option("--overrule", multiple=True, metavar="HAZARD", help="Fit points with this hazard too; all for every one.")
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write the profile, for --profile.")
@click.option("--report", type=click.Path(dir_okay=False), metavar="FILE", help="Write a report: .html or .md.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(files: tuple[str, ...], **options: Any) -> None:
    """Calibrate a deployment by measured points: FILES of batchline measure or of any tool that it reads.

    Two or three points are enough: all coefficients are updated from what is known of such engines, points that
    mislead are named and left out, and the error is counted on each point as predicted by the others. Of hardware
    that nobody knows (--on custom without figures) three rates and a constant are fitted.

    \b
    batchline calibrate measured.csv --on 4xh100 --model llama-3.1-70b --out profile.toml
    batchline calibrate bench/*.json --on h200 --model qwen3-32b --weights fp8 --report calibration.html
    batchline calibrate measured.csv --on custom --model config.json --engine llama.cpp --memory 16GB
    """
    from batchline.measure import read_all

    points = read_all(files)
    _, device = units.parse_devices(options["on"])
    if device.casefold() == "custom" and options["bandwidth"] is None and options["flops"] is None:
        _rates(points, files, options)
    else:
        _updated(points, files, options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """Everything that a calibration gave, for the screen, JSON and the report."""

    files: tuple[str, ...]
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
    def notes(self) -> list[str]:
        """What was found wrong with the points."""
        return [line for line in explained(self.points, self.hazards, self.kept) if line]


def _updated(points: Sequence[MeasuredPoint], files: tuple[str, ...], options: dict[str, Any]) -> None:
    from batchline.calibrate import Profile, advise, below_bound, calibrate, observe
    from batchline.measure import hazards

    own = {key: options.pop(key) for key in ("context", "step_limit", "overrule", "out", "report", "as_json")}
    deployment = _options.deployment_of(options.pop("model"), options)
    bounds = hazards.bounds(points, deployment)
    kept = hazards.usable(points, bounds, overrule=own["overrule"])
    denied = below_bound(observe(points, deployment)[0], deployment)
    if not kept:
        raise _nothing(points, hazards.inspect(points, bounds), denied)
    calibration = calibrate(kept, deployment)
    profile = Profile.of(calibration, [point.file for point in kept if point.file] or files)
    context = float(own["context"] or _context(calibration))
    before, after = _curves(deployment, context, profile, own["step_limit"])
    found = Found(
        files=files,
        points=points,
        hazards=hazards.inspect(points, bounds),
        kept=kept,
        calibration=calibration,
        profile=profile,
        before=before,
        after=after,
        advice=advise(calibration, batch=after.optimum.batch, context=context),
        warnings=tuple(dict.fromkeys((*_other_engine(kept, deployment), *denied, *calibration.warnings))),
    )
    for warning in found.warnings:
        _output.warn(warning)
    if own["as_json"]:
        _output.print_json(to_dict(found))
    else:
        _print(found)
    if own["out"]:
        profile.save(own["out"])
        click.echo(f"Profile: {own['out']}", err=True)
    if own["report"]:
        _reported(found, own["report"])


def _other_engine(points: Sequence[MeasuredPoint], deployment: Deployment) -> list[str]:
    """Say so if the files name another engine than the deployment: its prior would be the wrong one."""

    def plain(name: str) -> str:
        return re.sub(r"[^a-z0-9]", "", name.casefold())

    named = {point.engine for point in points if point.engine and plain(point.engine) != plain(deployment.engine)}
    if not named:
        return []
    return [
        f"The files name the engine {', '.join(sorted(named))}, and it was taken for {deployment.engine}: --engine."
    ]


def _nothing(
    points: Sequence[MeasuredPoint], found: Sequence[Sequence[Hazard]], denied: Sequence[str]
) -> MeasurementError:
    names = sorted({hazard.name for some in found for hazard in some if hazard.excludes})
    return MeasurementError(
        f"None of the {len(points)} points can be trusted: {', '.join(names)}.",
        " ".join(denied),
        "batchline measure FILES tells of each; --overrule HAZARD fits them all the same.",
    )


def _context(calibration: Calibration) -> float:
    """Context of most observations; of several the middle one."""
    contexts = sorted(one.context for one in calibration.observations)
    return contexts[len(contexts) // 2]


def _curves(deployment: Deployment, context: float, profile: Profile, step_limit: float | None) -> tuple[Curve, Curve]:
    """Curve of the priors, and the same with the calibrated coefficients."""
    from batchline import sweep

    def curve(limit: float | None, priors: Prior | None = None) -> Curve:
        return sweep.curve(deployment, context, reading="predict", step_limit=limit, priors=priors)

    try:
        return curve(step_limit), curve(step_limit, profile.prior())
    except InputError as error:  # no batch keeps the limit: the calibration is worth having all the same
        _output.warn(f"{error.problem} The best batches are those without the limit.")
        return curve(None), curve(None, profile.prior())


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
        "unidentified": calibration.unidentified(),
        "advice": dataclasses.asdict(found.advice) | {"text": str(found.advice)},
        "optimum": {"before": found.before.optimum.to_dict(), "after": found.after.optimum.to_dict()},
        "context": found.after.context,
        "warnings": list(found.warnings),
    }


def rows_of(found: Found) -> list[tuple[str, ...]]:
    """One row per observation: what, where, measured, before, after, left out."""
    calibration = found.calibration
    rows: list[tuple[str, ...]] = []
    for i, one in enumerate(calibration.observations):
        left = "-" if calibration.left_out is None else _off(calibration.left_out[i], one.seconds)
        rows.append(
            (
                {"step": "step", "tpot": "TPOT", "ttft": "TTFT"}[one.of],
                f"{one.batch:,.4g}",
                f"{one.context:,.0f}",
                units.format_time(one.seconds),
                _off(calibration.before[i], one.seconds),
                _off(calibration.after[i], one.seconds),
                left,
                one.name,
            )
        )
    return rows


def _off(predicted: float, measured: float) -> str:
    return f"{predicted / measured - 1.0:+.1%}"


COLUMNS = ("value", "batch", "context", "measured", "before", "after", "by the others", "from")


def _print(found: Found) -> None:
    calibration = found.calibration
    console = _output.console()
    console.print()
    console.print(f"{calibration.deployment.title}, {calibration.deployment.engine}", style="bold")
    console.print()
    left = {"value", "from"}
    columns = [(name, "left" if name in left else "right") for name in COLUMNS]
    console.print(_output.table(columns, rows_of(found)))
    console.print()
    for line, style in answer(found):
        console.print(f"  {line}", style=style, soft_wrap=True)
    for line in found.notes:
        console.print(f"  {line}", soft_wrap=True)
    for line in calibration.refused:
        console.print(f"  Not fitted: {line}.", soft_wrap=True)


def answer(found: Found) -> list[tuple[str, str]]:
    """Sentences of the answer, with a style each."""
    calibration = found.calibration
    lines = [(error_line(found, of), "bold green") for of in ("tpot", "ttft") if calibration.errors(of).count]
    low, high = calibration.interval()
    lines.append((f"90% of steps should lie between {low:.2f} and {high:.2f} times the prediction.", ""))
    if found.advice.worthwhile and (unknown := calibration.unidentified()):
        parts = [f"{name} (moves a step by {share:.0%})" for name, share in list(unknown.items())[:4]]
        lines.append((f"The points say little of {', '.join(parts)}.", ""))
    lines.append((str(found.advice), ""))
    lines.append((optimum_line(found), ""))
    return lines


def error_line(found: Found, of: str) -> str:
    """Errors of one kind, before and after."""
    calibration = found.calibration
    before, after, left = (calibration.errors(of, when) for when in ("before", "after", "left_out"))
    text = f"{of.upper()}: median error {before.median:.1%} before, {after.median:.1%} after"
    if left.count:
        text += f", {left.median:.1%} (mean {left.mean:.1%}) when each point is predicted by the others"
    return f"{text}; {after.count} values of {calibration.points} points."


def optimum_line(found: Found) -> str:
    """Batch to run before and after."""

    def told(curve: Curve) -> str:
        best = curve.optimum
        cost = "" if best.usd_per_mtok is None else f", {units.format_usd(best.usd_per_mtok)} per million tokens"
        return f"{best.batch:,} ({units.format_time(best.t_step)} a step{cost})"

    return f"Best batch at context {found.after.context:,.0f}: before {told(found.before)}, after {told(found.after)}."


def _reported(found: Found, path: str | Path) -> None:
    from batchline.cli import _calibration_report

    for file in _calibration_report.report(found).save(path):
        click.echo(f"Report: {file}", err=True)


def _rates(points: Sequence[MeasuredPoint], files: tuple[str, ...], options: dict[str, Any]) -> None:
    """Fit hardware of which nothing is known."""
    from batchline.architecture import Architecture
    from batchline.calibrate import three_rates
    from batchline.measure import hazards

    kept = hazards.usable(points, overrule=options["overrule"])
    if units.parse_devices(options["on"])[0] > 1:
        raise InputError(
            "Three rates are those of one device.", "", "Use --on custom, or give --bandwidth, --flops and --memory."
        )
    if options["out"] and options["memory"] is None:
        raise InputError("A profile of your own hardware needs its memory.", "", "Give --memory, like --memory 16GB.")
    if options["report"]:
        raise InputError("A report needs an accelerator.", "", "Give --on NAME, or --bandwidth, --flops and --memory.")
    architecture = Architecture.load(options["model"])
    rates = three_rates(kept, architecture, weights=options["weights"], kv=options["kv"])
    flags = _flags(rates, options["memory"])
    if options["as_json"]:
        names = ("bandwidth", "kv_bandwidth", "flops", "constant_s", "unidentified")
        errors = {"after": dataclasses.asdict(rates.after), "left_out": dataclasses.asdict(rates.left_out)}
        _output.print_json({name: getattr(rates, name) for name in names} | {"errors": errors, "options": flags})
    else:
        _print_rates(rates, flags, points, kept)
    if options["out"]:
        _save_rates(rates, len(kept), files, options)


def _flags(rates: Rates, memory: float | None) -> str:
    figures = rates.figures
    bandwidth, flops = figures["bandwidth"] / 1e9, figures["flops"] / 1e12
    held = "SIZE" if memory is None else f"{memory / 1e9:g}GB"
    return f"--on custom --bandwidth {bandwidth:.4g}GB/s --flops {flops:.4g}TFLOPS --memory {held}"


def _print_rates(rates: Rates, flags: str, points: Sequence[MeasuredPoint], kept: Sequence[MeasuredPoint]) -> None:
    from batchline.measure import hazards

    def rate(value: float, unit: str) -> str:
        # "4.3 GB" to "4.3 GB/s" and "4.3 GFLOP/s"
        return "too fast to see" if value > 1e17 else re.sub(r"B$", unit, units.format_bytes(value))

    console = _output.console()
    console.print()
    weights, kv = (rate(value, "B/s") for value in (rates.bandwidth, rates.kv_bandwidth))
    line = f"  One device reads weights at {weights} and KV cache at {kv}, computes {rate(rates.flops, 'FLOP/s')}"
    line += f", and takes {units.format_time(rates.constant_s)} beside." if rates.constant_s else "."
    console.print(line, style="bold green", soft_wrap=True)
    console.print(
        f"  Median error {rates.after.median:.1%} on the {rates.after.count} steps, {rates.left_out.median:.1%}"
        f" (mean {rates.left_out.mean:.1%}) when each is predicted by the others.",
        soft_wrap=True,
    )
    if rates.unidentified:
        console.print(f"  {rates.unidentified}", soft_wrap=True)
    console.print(
        f"  Use it as {flags}, or write it with --out FILE and say --on custom --profile FILE.", soft_wrap=True
    )
    for line in explained(points, hazards.inspect(points), kept):
        console.print(f"  {line}" if line else "", soft_wrap=True)


def _save_rates(rates: Rates, count: int, files: tuple[str, ...], options: dict[str, Any]) -> None:
    from batchline.accelerator import Accelerator
    from batchline.calibrate import Profile
    from batchline.deployment import Deployment

    figures = rates.figures
    device = Accelerator.custom(bandwidth=figures["bandwidth"], flops=figures["flops"], memory=options["memory"])
    deployment = Deployment(
        architecture=rates.architecture,
        accelerator=device,
        weights=rates.weights,
        kv=rates.kv,
        engine=options["engine"],
        engine_version=options["engine_version"],
    )
    Profile.of_rates(rates, deployment, count, files).save(options["out"])
    click.echo(f"Profile: {options['out']}", err=True)
