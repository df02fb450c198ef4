"""`batchline calibrate`: what your own points say, before and after, and what to measure next."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, NoReturn

import click

from batchline import units
from batchline.cli import _calibrate_rates, _calibration, _options, _output
from batchline.cli._language import current, say, told
from batchline.cli._spoken import Spoken
from batchline.errors import InputError, MeasurementError
from batchline.strings import Sentence, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.calibrate import Calibration, Profile
    from batchline.deployment import Deployment
    from batchline.measure import MeasuredPoint
    from batchline.measure.hazards import Hazard
    from batchline.prior import Prior
    from batchline.sweep import Curve


@click.command("calibrate", cls=Spoken)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False), metavar="FILES...")
@click.option("--model", required=True, metavar="NAME", help=text("help.calibrate_model"))
@_options.deployment_options
@click.option("--context", type=_options.TOKENS, metavar="TOKENS", help=text("help.calibrate_context"))
@click.option("--step-limit", type=_options.DURATION, metavar="40ms", help=text("help.step_limit"))
@click.option("--overrule", multiple=True, metavar="HAZARD", help=text("help.calibrate_overrule"))
@click.option("--out", type=_options.FILE, help=text("help.calibrate_out"))
@click.option("--report", type=_options.FILE, help=text("help.calibrate_report"))
@click.option("--json", "as_json", is_flag=True, help=text("help.as_json"))
def command(files: tuple[str, ...], **options: Any) -> None:
    """Calibrate a deployment by measured points: FILES of batchline measure or of any tool that it reads.

    \b
    batchline calibrate measured.csv --on 4xh100 --model llama-3.1-70b --out profile.toml
    batchline calibrate bench/*.json --on h200 --model qwen3-32b --weights fp8 --report calibration.html
    batchline calibrate measured.csv --on custom --model config.json --engine llama.cpp --memory 16GB
    """
    from batchline.measure import read_all

    points = read_all(files)
    _, device = units.parse_devices(options["on"])
    if device.casefold() == "custom" and options["bandwidth"] is None and options["flops"] is None:
        _calibrate_rates.fit(points, files, options)
    else:
        _updated(points, files, options)


def _updated(points: Sequence[MeasuredPoint], files: tuple[str, ...], options: dict[str, Any]) -> None:
    from batchline.calibrate import Profile, advise, below_bound, calibrate, grid, observe
    from batchline.measure import hazards

    own = {key: options.pop(key) for key in ("context", "step_limit", "overrule", "out", "report", "as_json")}
    deployment = _options.deployment_of(options.pop("model"), options)
    bounds = hazards.bounds(points, deployment)
    kept = hazards.usable(points, bounds, overrule=own["overrule"])
    denied = below_bound(observe(points, deployment)[0], deployment)
    if not kept:
        _refuse(points, hazards.inspect(points, bounds), denied)
    calibration = calibrate(kept, deployment)
    context = float(own["context"] or _context(calibration))
    targets = grid(deployment, calibration.observations, context=context)
    sources = [point.file for point in kept if point.file] or files
    profile = Profile.of(calibration, sources, targets=targets)
    before, after = _curves(deployment, context, profile, own["step_limit"])
    advice = advise(calibration, batch=after.optimum.batch, context=context)
    profile = dataclasses.replace(profile, advice=str(advice))
    found = _calibration.Found(
        points=points,
        hazards=hazards.inspect(points, bounds),
        kept=kept,
        calibration=calibration,
        profile=profile,
        before=before,
        after=after,
        advice=advice,
        warnings=tuple(dict.fromkeys((*_other_engine(kept, deployment), *denied, *calibration.warnings))),
    )
    for warning in found.warnings:
        _output.warn(told(warning))
    if own["as_json"]:
        _output.print_json(_calibration.to_dict(found))
    else:
        _print(found)
    if own["out"]:
        profile.save(own["out"])
        click.echo(say("calibrate.profile", file=own["out"]), err=True)
    if own["report"]:
        from batchline.cli import _calibration_report

        for file in _calibration_report.report(found).save(own["report"]):
            click.echo(say("report.written", file=str(file)), err=True)


def _other_engine(points: Sequence[MeasuredPoint], deployment: Deployment) -> list[str]:
    """Say so if the files name another engine than the deployment: its prior would be the wrong one."""

    def plain(name: str) -> str:
        return re.sub(r"[^a-z0-9]", "", name.casefold())

    named = {point.engine for point in points if point.engine and plain(point.engine) != plain(deployment.engine)}
    if not named:
        return []
    return [Sentence("calibrate.other_engine", names=", ".join(sorted(named)), engine=deployment.engine)]


def _refuse(points: Sequence[MeasuredPoint], found: Sequence[Sequence[Hazard]], denied: Sequence[str]) -> NoReturn:
    names = sorted({hazard.name for some in found for hazard in some if hazard.excludes})
    raise MeasurementError(
        Sentence("error.none_trusted", count=f"{len(points)}", names=", ".join(names)),
        " ".join(denied),
        Sentence("error.overrule"),
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
        _output.warn(say("calibrate.no_limit", problem=error.problem))
        return curve(None), curve(None, profile.prior())


def _print(found: _calibration.Found) -> None:
    from batchline.report import observation_table

    calibration = found.calibration
    console = _output.console()
    console.print()
    console.print(f"{calibration.deployment.titled(current())}, {calibration.deployment.engine}", style="bold")
    console.print()
    points = observation_table(calibration, current())
    sides = ("left" if i in points.left else "right" for i in range(len(points.columns)))
    console.print(_output.table(zip(points.columns, sides, strict=True), points.rows))
    console.print()
    for line, style in _calibration.answer(found):
        console.print(f"  {line}", style=style, soft_wrap=True)
    for line in found.notes:
        console.print(f"  {line}", soft_wrap=True)
    for line in calibration.refused:
        console.print(f"  {say('calibrate.not_fitted', point=told(line))}", soft_wrap=True)
