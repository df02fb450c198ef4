"""`batchline measure`: a live endpoint, an engine's metrics, or the result files that are there already."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from batchline import units
from batchline.cli import _options, _output
from batchline.cli._language import current, say, told
from batchline.cli._spoken import Spoken
from batchline.errors import InputError, MeasurementError
from batchline.strings import Sentence, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.measure.hazards import Hazard
    from batchline.measure.point import MeasuredPoint
    from batchline.measure.probe import Outcome, Progress
    from batchline.measure.scrape import ServerState

_DEFAULT_OUT = "batchline-measured.csv"


def _contexts(text: str) -> list[int]:
    return [units.parse_tokens(part) for part in text.split(",")]


@click.command("measure", cls=Spoken)
@click.argument("targets", nargs=-1, required=True, metavar="URL | URL/metrics | FILES...")
@click.option("--model", metavar="NAME", help=text("help.measure_model"))
@click.option(
    "--batch",
    "batches",
    type=_options.BATCHES,
    default="1,2,4..64",
    show_default=True,
    help=text("help.batches"),
)
@click.option(
    "--context",
    "contexts",
    type=_options.Quantity("tokens", _contexts),
    default="128,1k,4k",
    show_default=True,
    help=text("help.measure_contexts"),
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    help=text("help.max_seconds"),
)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help=text("help.repeats"))
@click.option(
    "--quantile",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help=text("help.quantile"),
)
@click.option(
    "--api",
    type=click.Choice(["auto", "completions", "chat"]),
    default="auto",
    show_default=True,
    help=text("help.api"),
)
@click.option("--out", type=_options.FILE, help=text("help.measure_out"))
@click.option("--for", "duration", type=_options.DURATION, default="60s", show_default=True, help=text("help.duration"))
@click.option("--prometheus", is_flag=True, help=text("help.prometheus"))
@click.option("--on", metavar="N x NAME", help=text("help.measure_on"))
@click.option("--config", metavar="NAME", help=text("help.config"))
@click.option("--weights", metavar="FORMAT", help=text("help.measure_weights"))
@click.option("--kv", default="bf16", metavar="FORMAT", help=text("help.measure_kv"))
@click.option("--overrule", multiple=True, metavar="HAZARD", help=text("help.measure_overrule"))
@_options.output_options
def command(targets: tuple[str, ...], **options: Any) -> None:
    """Measure a live server, watch its metrics, or read result files, and say which points can be trusted.

    \b
    batchline measure http://localhost:8000/v1 --model llama --batch 1,2,4..64 --context 128,1k
    batchline measure http://localhost:8000/metrics --for 60s
    batchline measure results/*.json
    batchline measure results/*.json --on 4xh100 --config llama-3.1-70b --weights fp8
    """
    urls = [
        target for target in targets if re.match(r"https?://|[\w.-]+:\d+(/|$)", target) and not Path(target).exists()
    ]
    if urls and len(targets) > 1:
        raise InputError(
            Sentence("error.one_of_targets", given=f"{urls[0]}", count=f"{len(targets)}"), Sentence("error.one_address")
        )
    if not urls:
        _read(targets, options)
    elif options["prometheus"] or re.search(r"/metrics/?$|/api/v1(/query(_range)?)?/?$", urls[0]):
        _watch(urls[0], options)
    else:
        _probe(urls[0], options)


def _probe(url: str, options: dict[str, Any]) -> None:
    from batchline.measure import endpoint, probe

    out = Path(options["out"] or _DEFAULT_OUT)
    with _Bar("measure.measuring") as bar:

        def told(progress: Progress) -> None:
            bar.show(progress.done, progress.total, progress.left_s, progress.text)

        try:
            outcome = probe.probe(
                url,
                model=options["model"],
                batches=options["batches"],
                contexts=options["contexts"],
                max_seconds=options["max_seconds"],
                repeats=options["repeats"],
                quantile=options["quantile"],
                api=options["api"],
                key=endpoint.key_from_environment(),
                out=out,
                on_progress=told,
            )
        except KeyboardInterrupt:
            if out.exists():
                click.echo(say("measure.stopped", file=str(out)), err=True)
            raise
    _probed(outcome, out, options)


def _probed(outcome: Outcome, out: Path, options: dict[str, Any]) -> None:
    for note in outcome.notes:
        _output.warn(f"{note[0].upper()}{note[1:].rstrip('.')}.")
    if outcome.points:
        _show(outcome.points, options)
        click.echo(say("measure.written", count=len(outcome.points), file=str(out)), err=True)
    if outcome.stopped:
        raise outcome.stopped
    if not outcome.points:
        raise MeasurementError(
            Sentence("error.nothing_measured"),
            "",
            Sentence("error.warnings_say_why"),
        )


def _watch(url: str, options: dict[str, Any]) -> None:
    from batchline.measure import endpoint, prometheus, scrape

    key = endpoint.key_from_environment()
    if options["prometheus"] or not re.search(r"/metrics/?$", url):
        snapshots = prometheus.query(url, scrape.metric_names(), options["duration"], key=key)
    else:
        with _Bar("measure.watching") as bar:
            seconds = options["duration"]

            def told(count: int, left: float) -> None:
                bar.show(round(seconds - left), round(seconds), left, say("measure.scrapes", count=count))

            snapshots = prometheus.watch(url, seconds, key=key, on_snapshot=told)
    _state(scrape.read(snapshots, options["model"]), url, options)


def _state(state: ServerState, source: str, options: dict[str, Any]) -> None:
    import dataclasses

    from batchline.measure import scrape

    point = state.point(re.sub(r"//[^/@]*@", "//", source))
    if options["as_json"]:
        _output.print_json({"state": dataclasses.asdict(state), "points": [point.to_dict()]})
    elif options["as_csv"]:
        _csv([point])
    else:
        click.echo()
        click.echo(click.style(f"  {told(scrape.describe(state))}", bold=True))
        lines = [*_facts(state), told(state.reason), *map(told, state.advice())]
        if state.method:
            lines.append(say("measure.how", method=state.method))
        for line in lines:
            click.echo(f"  {line}")


def _facts(state: ServerState) -> list[str]:
    facts = []
    if state.t_step_low_s is not None and state.t_step_high_s is not None:
        low, high = units.format_time(state.t_step_low_s), units.format_time(state.t_step_high_s)
        facts.append(say("measure.step_range", low=low, high=high))
    if state.itl_mean_s is not None:
        facts.append(say("measure.mean_gap", time=units.format_time(state.itl_mean_s)))
    if state.kv_use is not None:
        facts.append(say("measure.kv_full", share=f"{state.kv_use:.0%}"))
    if state.waiting is not None:
        facts.append(say("measure.waiting", count=f"{state.waiting:.3g}"))
    if state.output_tokens_per_s is not None:
        facts.append(units.format_rate(state.output_tokens_per_s))
    if state.cached_share is not None:
        facts.append(say("measure.cached", share=f"{state.cached_share:.0%}"))
    line = ", ".join(facts)
    return [f"{line[0].upper()}{line[1:]}."] if line else []


def _read(paths: Sequence[str], options: dict[str, Any]) -> None:
    from batchline.measure import prometheus, read_all, scrape

    scrapes = [path for path in paths if _is_scrape(path)]
    if scrapes and len(scrapes) == len(paths) <= 2:
        shots = [prometheus.load(path) for path in paths]
        _state(scrape.read(shots, options["model"]), Path(paths[-1]).name, options)
        return
    if scrapes:
        raise InputError(Sentence("error.holds_metrics", given=f"{scrapes[0]}"), Sentence("error.one_scrape"))
    _show(read_all(paths), options)


def _is_scrape(path: str) -> bool:
    from batchline.measure import prometheus

    try:
        with Path(path).open(encoding="utf-8") as file:
            return prometheus.is_metrics(file.read(8192).rpartition("\n")[0])
    except (OSError, UnicodeDecodeError):
        return False


def _show(points: Sequence[MeasuredPoint], options: dict[str, Any]) -> None:
    from batchline.measure import hazards

    bounds = _bounds(points, options)
    found = hazards.inspect(points, bounds)
    kept = hazards.usable(points, bounds, overrule=options["overrule"])
    if options["as_json"]:
        _output.print_json(
            {"points": [_with_hazards(point, some, point in kept) for point, some in zip(points, found, strict=True)]}
        )
    elif options["as_csv"]:
        _csv(points)
    else:
        _print(points, found, kept)


def _bounds(points: Sequence[MeasuredPoint], options: dict[str, Any]) -> list[float | None] | None:
    """Least steps of the hardware that --on names; None without it."""
    if options["on"] is None:
        return None
    from batchline.accelerator import Accelerator
    from batchline.deployment import Deployment
    from batchline.measure import hazards

    model = options["config"] or options["model"] or next((point.model for point in points if point.model), None)
    if model is None:
        raise InputError(Sentence("error.no_model_named"), "", Sentence("error.say_model"))
    count, device = units.parse_devices(options["on"])
    deployment = Deployment.of(
        model, Accelerator.load(device), count=count, weights=options["weights"], kv=options["kv"]
    )
    return hazards.bounds(points, deployment)


def _with_hazards(point: MeasuredPoint, found: Sequence[Hazard], kept: bool) -> dict[str, Any]:
    rows = [
        {"name": one.name, "evidence": one.evidence, "consequence": one.consequence, "excludes": one.excludes}
        for one in found
    ]
    return {**point.to_dict(), "hazards": rows, "usable": kept}


def _csv(points: Sequence[MeasuredPoint]) -> None:
    from batchline.measure import own_csv

    writer = own_csv.start(sys.stdout)
    for point in points:
        writer.writerow(own_csv.row_of(point))


def _print(points: Sequence[MeasuredPoint], found: Sequence[Sequence[Hazard]], kept: Sequence[MeasuredPoint]) -> None:
    numbers = (say("curve.batch"), say("measure.col_context"), say("measure.col_step"), "TPOT", "TTFT")
    columns = [(name, "right") for name in (*numbers, say("measure.col_total"))]
    columns += [(say(f"measure.col_{name}"), "left") for name in ("regime", "from", "hazards")]
    rows = [
        (
            _number(point.batch, "{:,.3g}"),
            _number(point.context, "{:,.0f}"),
            "-" if point.t_step_s is None else units.format_time(point.t_step_s),
            "-" if point.tpot_s is None else units.format_time(point.tpot_s),
            "-" if point.ttft_s is None else units.format_time(point.ttft_s),
            "-" if point.output_tokens_per_s is None else units.format_rate(point.output_tokens_per_s),
            point.regime,
            point.name,
            ", ".join(hazard.name for hazard in some) or say("measure.none"),
        )
        for point, some in zip(points, found, strict=True)
    ]
    console = _output.console()
    console.print()
    console.print(_output.table(columns, rows, ["" if point in kept else "dim" for point in points]))
    console.print()
    for line in explained(points, found, kept):
        console.print(f"  {line}" if line else "", soft_wrap=True)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def explained(
    points: Sequence[MeasuredPoint], found: Sequence[Sequence[Hazard]], kept: Sequence[MeasuredPoint]
) -> list[str]:
    """Say what speaks against each point, how many are usable, and what was converted on reading."""
    lines = []
    for point, some in zip(points, found, strict=True):
        for hazard in some:
            key = "measure.left_out" if hazard.excludes and point not in kept else "measure.hazard"
            lines.append(say(key, point=point.name, hazard=hazard.told(current())))
    if len(kept) < len(points):
        names = sorted({hazard.name for some in found for hazard in some if hazard.excludes})
        lines.append(say("measure.usable", count=len(kept), all=len(points), names=", ".join(names)))
    notes = dict.fromkeys(f"{point.tool or point.file}: {note}" for point in points for note in point.converted)
    return [*lines, *([*([""] if lines else []), say("measure.converted"), *notes] if notes else [])]


class _Bar:
    """A bar on stderr when that is a terminal; otherwise nothing."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(say(self._title, text=""), total=None, left="")
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, done: int, total: int, left_s: float, text: str) -> None:
        if self._bar:
            left = say("measure.left", seconds=f"{left_s:,.0f}") if left_s else ""
            title = say(self._title, text=text)
            self._bar.update(self._task, completed=done, total=total, description=title, left=left)
