"""The three rates of hardware of which nothing is known."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import click

from batchline import units
from batchline.cli import _output
from batchline.cli._language import say, told
from batchline.cli.measure import explained
from batchline.errors import InputError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.calibrate import Rates
    from batchline.measure import MeasuredPoint

__all__ = ["fit"]


def fit(points: Sequence[MeasuredPoint], files: tuple[str, ...], options: dict[str, Any]) -> None:
    """Fit them, print them and write what was asked for."""
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
        _print(rates, flags, points, kept)
    if options["out"]:
        _save(rates, len(kept), files, options)


def _flags(rates: Rates, memory: float | None) -> str:
    figures = rates.figures
    options = {
        "on": "custom",
        "bandwidth": f"{figures['bandwidth'] / 1e9:.4g}GB/s",
        "flops": f"{figures['flops'] / 1e12:.4g}TFLOPS",
        "memory": "SIZE" if memory is None else f"{memory / 1e9:g}GB",
    }
    return " ".join(f"--{name} {value}" for name, value in options.items())


def _print(rates: Rates, flags: str, points: Sequence[MeasuredPoint], kept: Sequence[MeasuredPoint]) -> None:
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


def _save(rates: Rates, count: int, files: tuple[str, ...], options: dict[str, Any]) -> None:
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
