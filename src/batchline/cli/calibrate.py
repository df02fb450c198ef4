"""`batchline calibrate`: what your own points say, before and after, and what to measure next."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, NoReturn

import click

from batchline import units
from batchline.cli import _options, _output
from batchline.cli._language import current, say, told
from batchline.cli._spoken import Spoken
from batchline.cli.measure import explained
from batchline.errors import InputError, MeasurementError
from batchline.strings import Sentence, text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from batchline.calibrate import Advice, Calibration, Profile, Rates
    from batchline.deployment import Deployment
    from batchline.measure import MeasuredPoint
    from batchline.measure.hazards import Hazard
    from batchline.prior import Prior
    from batchline.sweep import Curve


@click.command("calibrate", cls=Spoken)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False), metavar="FILES...")
@click.option("--model", required=True, metavar="NAME", help=text("help.calibrate_model"))
@_options.deployment_options
@click.option(
    "--context",
    type=_options.TOKENS,
    metavar="TOKENS",
    help=text("help.calibrate_context"),
)
@click.option("--step-limit", type=_options.DURATION, metavar="40ms", help=text("help.step_limit"))
@click.option("--overrule", multiple=True, metavar="HAZARD", help=text("help.calibrate_overrule"))
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help=text("help.calibrate_out"))
@click.option("--report", type=click.Path(dir_okay=False), metavar="FILE", help=text("help.calibrate_report"))
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
    found = Found(
        files=files,
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
        _output.print_json(to_dict(found))
    else:
        _print(found)
    if own["out"]:
        profile.save(own["out"])
        click.echo(say("calibrate.profile", file=own["out"]), err=True)
    if own["report"]:
        _reported(found, own["report"])


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


def rows_of(found: Found) -> list[tuple[str, ...]]:
    """One row per observation: what, where, measured, before, after, left out."""
    calibration = found.calibration
    rows: list[tuple[str, ...]] = []
    for i, one in enumerate(calibration.observations):
        left = "-" if calibration.left_out is None else _off(calibration.left_out[i], one.seconds)
        rows.append(
            (
                {"step": say("calibrate.col_step"), "tpot": "TPOT", "ttft": "TTFT"}[one.of],
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


def columns() -> tuple[str, ...]:
    """Headings of those rows."""
    where = (say("curve.batch"), say("measure.col_context"), say("measure.col_measured"))
    when = (say(f"calibrate.col_{name}") for name in ("before", "after", "others"))
    return (say("calibrate.col_value"), *where, *when, say("measure.col_from"))


def _print(found: Found) -> None:
    calibration = found.calibration
    console = _output.console()
    console.print()
    console.print(f"{calibration.deployment.titled(current())}, {calibration.deployment.engine}", style="bold")
    console.print()
    headings = columns()
    sides = ["left", *("right" for _ in headings[2:]), "left"]
    console.print(_output.table(zip(headings, sides, strict=True), rows_of(found)))
    console.print()
    for line, style in answer(found):
        console.print(f"  {line}", style=style, soft_wrap=True)
    for line in found.notes:
        console.print(f"  {line}", soft_wrap=True)
    for line in calibration.refused:
        console.print(f"  {say('calibrate.not_fitted', point=told(line))}", soft_wrap=True)


def answer(found: Found) -> list[tuple[str, str]]:
    """Sentences of the answer, with a style each."""
    calibration = found.calibration
    lines = [(error_line(found, of), "bold green") for of in ("tpot", "ttft") if calibration.errors(of).count]
    low, high = calibration.interval()
    lines.append((say("calibrate.interval", low=f"{low:.2f}", high=f"{high:.2f}"), ""))
    if found.advice.worthwhile and (unknown := found.unidentified):
        parts = [say("calibrate.moves", name=name, share=f"{share:.0%}") for name, share in list(unknown.items())[:4]]
        lines.append((say("calibrate.little", names=", ".join(parts)), ""))
    lines.append((found.advice.told(current()), ""))
    lines.append((optimum_line(found), ""))
    return lines


def error_line(found: Found, of: str) -> str:
    """Errors of one kind, before and after."""
    calibration = found.calibration
    before, after, left = (calibration.errors(of, when) for when in ("before", "after", "left_out"))
    fields = {"of": of.upper(), "before": f"{before.median:.1%}", "after": f"{after.median:.1%}"}
    fields |= {"count": f"{after.count}", "points": f"{calibration.points}"}
    if not left.count:
        return say("calibrate.errors", **fields)
    return say("calibrate.errors_left", **fields, left=f"{left.median:.1%}", mean=f"{left.mean:.1%}")


def optimum_line(found: Found) -> str:
    """Batch to run before and after."""

    def run(curve: Curve) -> str:
        best = curve.optimum
        batch, time = f"{best.batch:,}", units.format_time(best.t_step)
        if best.usd_per_mtok is None:
            return say("calibrate.run", batch=batch, time=time)
        return say("calibrate.run_cost", batch=batch, time=time, cost=units.format_usd(best.usd_per_mtok))

    context = f"{found.after.context:,.0f}"
    return say("calibrate.best", context=context, before=run(found.before), after=run(found.after))


def _reported(found: Found, path: str | Path) -> None:
    from batchline.cli import _calibration_report

    for file in _calibration_report.report(found).save(path):
        click.echo(say("report.written", file=str(file)), err=True)


def _rates(points: Sequence[MeasuredPoint], files: tuple[str, ...], options: dict[str, Any]) -> None:
    """Fit hardware of which nothing is known."""
    from batchline.architecture import Architecture
    from batchline.calibrate import three_rates
    from batchline.measure import hazards

    kept = hazards.usable(points, overrule=options["overrule"])
    if units.parse_devices(options["on"])[0] > 1:
        raise InputError(Sentence("error.rates_of_one"), "", Sentence("error.use_custom"))
    if options["out"] and options["memory"] is None:
        raise InputError(Sentence("error.own_memory"), "", Sentence("error.give_memory"))
    if options["report"]:
        raise InputError(Sentence("error.report_needs_device"), "", Sentence("error.give_on"))
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
    options = {
        "on": "custom",
        "bandwidth": f"{figures['bandwidth'] / 1e9:.4g}GB/s",
        "flops": f"{figures['flops'] / 1e12:.4g}TFLOPS",
        "memory": "SIZE" if memory is None else f"{memory / 1e9:g}GB",
    }
    return " ".join(f"--{name} {value}" for name, value in options.items())


def _print_rates(rates: Rates, flags: str, points: Sequence[MeasuredPoint], kept: Sequence[MeasuredPoint]) -> None:
    from batchline.measure import hazards

    def rate(value: float, unit: str) -> str:
        # "4.3 GB" to "4.3 GB/s" and "4.3 GFLOP/s"
        return say("calibrate.too_fast") if value > 1e17 else re.sub(r"B$", unit, units.format_bytes(value))

    console = _output.console()
    console.print()
    weights, kv = (rate(value, "B/s") for value in (rates.bandwidth, rates.kv_bandwidth))
    fields = {"weights": weights, "kv": kv, "flops": rate(rates.flops, "FLOP/s")}
    line = say("calibrate.rates", **fields)
    if rates.constant_s:
        line = say("calibrate.rates_constant", **fields, constant=units.format_time(rates.constant_s))
    errors = say(
        "calibrate.rates_errors",
        after=f"{rates.after.median:.1%}",
        count=rates.after.count,
        left=f"{rates.left_out.median:.1%}",
        mean=f"{rates.left_out.mean:.1%}",
    )
    lines = [errors, told(rates.unidentified), say("calibrate.rates_use", flags=flags)]
    console.print(f"  {line}", style="bold green", soft_wrap=True)
    for line in filter(None, lines):
        console.print(f"  {line}", soft_wrap=True)
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
    click.echo(say("calibrate.profile", file=options["out"]), err=True)
