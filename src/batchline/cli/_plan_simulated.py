"""The best candidates of a plan, simulated, in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.cli import _output
from batchline.cli._language import say
from batchline.cost import HOURS_PER_MONTH
from batchline.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.simulate.refine import Refined


def show(refined: Sequence[Refined]) -> None:
    """Print what each candidate did, and how many replicas it takes."""
    columns = [(say("simulate.refined_deployment"), "left")]
    columns += [(say(f"simulate.refined_{name}"), "right") for name in ("planned", "needed", "cost")]
    columns += [(f"{metric} {point}", "right") for metric in ("TTFT", "TPOT") for point in ("p50", "p95")]
    columns += [("", "left")]
    rows = []
    for one in refined:
        cost = "-" if one.usd_per_hour is None else f"{one.usd_per_hour * HOURS_PER_MONTH:,.0f}"
        times = [one.result.times[metric] for metric in ("ttft", "tpot")]
        broken = [metric for metric, kept in one.result.keeps().items() if not kept]
        rows.append(
            (
                one.candidate.title,
                f"{one.candidate.replicas:,}",
                "-" if one.replicas is None else f"{one.replicas:,}",
                cost,
                *(format_time(value) for time in times for value in (time.p50, time.p95)),
                say("simulate.refined_broken", metrics=", ".join(broken)) if broken else "",
            )
        )
    console = _output.console()
    console.print()
    console.print(say("simulate.refined", requests=f"{refined[0].result.requests:,}"), style="bold")
    console.print()
    console.print(_output.table(columns, rows))
