"""What a simulation found, in words, tables and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _output
from batchline.cli._language import current, say, told
from batchline.errors import InputError
from batchline.strings import Sentence
from batchline.units import format_rate, format_time, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchline.simulate import Result
    from batchline.simulate.question import Question

_KEPT_UNCOMPILED = 20_000  # requests from which on the loop is compiled where numba is installed


def warn(asked: Question, result: Result) -> None:
    """Say what was left out, and what is missing."""
    for mended in result.mended(current()):
        _output.warn(mended)
    if asked.deployment.price is None:
        _output.warn(say("simulate.no_price", accelerator=asked.deployment.accelerator.name))
    if not result.compiled and result.requests > _KEPT_UNCOMPILED:
        _output.warn(say("simulate.no_numba"))


def brief(result: Result) -> dict[str, Any]:
    """One line of a comparison, for programs."""
    return {
        "requests_per_s": result.requests_per_s,
        "output_tokens_per_s": result.output_tokens_per_s,
        **{
            f"{name}_{point}_s": getattr(result.times[name], point)
            for name in ("ttft", "tpot", "e2e")
            for point in ("p50", "p99")
        },
        "goodput": result.goodput,
        "preemptions": result.preemptions,
        "kv_peak": result.kv_peak,
        "usd_per_mtok": result.usd_per_mtok,
        "promises_kept": all(result.keeps().values()),
        "saturated_by": result.saturated_by,
    }


def rows(result: Result) -> list[dict[str, Any]]:
    """Every request, for programs."""
    if result.table is None:
        raise InputError(Sentence("error.many_to_print"), "", Sentence("error.limit_or_json"))
    columns = {name: values.tolist() for name, values in result.table.columns().items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def show(asked: Question, result: Result) -> None:
    """Print what was found."""
    console = _output.console()
    console.print()
    named = {"deployment": asked.deployment.titled(current()), "traffic": told(asked.traffic.name)}
    counted = {"requests": f"{result.requests:,}"}
    if asked.replicas == 1:
        console.print(say("simulate.title", **named, **counted), style="bold")
    else:
        console.print(say("simulate.title_replicas", **named, **counted, replicas=asked.replicas), style="bold")
    console.print()
    console.print(f"  {result.sentence(current())}", style="bold green")
    console.print()
    headings = ("p50", "p90", "p95", "p99", say("page.ui_sim_mean"), say("page.ui_sim_max"))
    columns = [("", "left"), *((name, "right") for name in headings)]
    times = []
    for metric, one in result.times.items():
        if one.count:
            points = (one.p50, one.p90, one.p95, one.p99, one.mean, one.max)
            times.append((f"  {say(f'page.ui_sim_{metric}')}", *(format_time(value) for value in points)))
    console.print(_output.table(columns, times))
    console.print()
    for line in _lines(result):
        console.print(f"  {line}")
    console.print()


def _lines(result: Result) -> list[str]:
    rate = format_rate(result.requests_per_s, "req/s")
    tokens = format_rate(result.output_tokens_per_s)
    lines = [say("simulate.rates", requests=rate, tokens=tokens, batch=f"{result.running_batch:,.1f}")]
    if result.kv_peak is not None:
        peak, hits = f"{result.kv_peak:.0%}", f"{result.prefix_hit_rate:.0%}"
        lines.append(say("simulate.kv", peak=peak, preemptions=f"{result.preemptions:,}", hits=hits))
    for metric, kept in result.keeps().items():
        key = "simulate.kept" if kept else "simulate.broken"
        lines.append(say(key, metric=metric, promise=str(result.promises[metric])))
    if result.promises:
        share = f"{result.goodput / result.requests_per_s:.1%}"
        lines.append(say("simulate.goodput", rate=format_rate(result.goodput, "req/s"), share=share))
    if result.usd_per_mtok is not None:
        cost = format_usd(result.usd_per_mtok)
        if result.joules_per_token is None:
            lines.append(say("simulate.cost_alone", cost=cost))
        else:
            lines.append(say("simulate.cost", cost=cost, energy=f"{result.joules_per_token:,.2g} J"))
    return lines


def compared(name: str, tried: Mapping[Any, Result], best: int | None = None) -> Any:
    """Make the table of a search or sweep; what keeps no promise is dim, the best is bold."""
    headings = (name, "req/s", "tok/s", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "goodput", "KV", "$/Mtok")
    columns = [*((heading, "right") for heading in headings), ("", "left")]
    lines, styles = [], []
    for value, result in tried.items():
        ttft, tpot = result.times["ttft"], result.times["tpot"]
        kept = all(result.keeps().values())
        lines.append(
            (
                f"{value:,.6g}",
                f"{result.requests_per_s:,.3g}",
                f"{result.output_tokens_per_s:,.0f}",
                format_time(ttft.p50),
                format_time(ttft.p99),
                format_time(tpot.p50),
                format_time(tpot.p99),
                f"{result.goodput:,.3g}/s",
                "-" if result.kv_peak is None else f"{result.kv_peak:.0%}",
                "-" if result.usd_per_mtok is None else f"{result.usd_per_mtok:,.3g}",
                result.saturated_by or ("" if kept else say("simulate.promise_broken")),
            )
        )
        styles.append("bold green" if value == best else "" if kept else "dim")
    return _output.table(columns, lines, styles)


def write(result: Result, options: dict[str, Any]) -> None:
    """Write the files that were asked for."""
    if options["save"]:
        _save(result, Path(options["save"]))
    if not options["plot"] and not options["plot_times"]:
        return
    from batchline import chart, chart_simulation

    for option, draw in (("plot", chart_simulation.over_time), ("plot_times", chart_simulation.times)):
        if options[option]:
            chart.save(draw(result, theme=options["theme"], language=current()), options[option])
            click.echo(say("simulate.picture", file=options[option]), err=True)


def _save(result: Result, path: Path) -> None:
    from batchline.simulate.result import save_table

    if result.table is None:
        raise InputError(Sentence("error.kept_requests"), "", Sentence("error.limit_requests"))
    save_table(result.table, path)
    click.echo(say("simulate.saved", file=str(path)), err=True)
