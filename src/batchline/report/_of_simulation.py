"""What a report, a page and a notebook say of a simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.report._picture import svg
from batchline.report.blocks import Block, Figure, Table, Text
from batchline.strings import text
from batchline.units import format_rate, format_time, format_usd

if TYPE_CHECKING:
    from batchline.simulate import Result

__all__ = ["simulation_blocks", "simulation_tiles"]

_METRICS = ("ttft", "tpot", "itl", "e2e", "wait")


def simulation_tiles(result: Result, language: str) -> list[dict[str, str]]:
    """Give the five numbers: name, value, and what stands below it.

    Parameters
    ----------
    result : Result
        What `batchline.simulate.simulate` gave.
    language : str
        "en" or "ko".

    Returns
    -------
    list of dict
        `key`, `name`, `value`, `below`.
    """
    ttft, tpot = result.times["ttft"], result.times["tpot"]
    kv = "–" if result.kv_peak is None else f"{result.kv_peak:.0%}"
    cost = "–" if result.usd_per_mtok is None else format_usd(result.usd_per_mtok)
    rows = [
        ("ttft", format_time(ttft.p50), {"p99": format_time(ttft.p99)}),
        ("tpot", format_time(tpot.p50), {"p99": format_time(tpot.p99)}),
        ("rate", format_rate(result.output_tokens_per_s), {"rate": f"{result.requests_per_s:,.3g}"}),
        ("kv", kv, {"preemptions": f"{result.preemptions:,}"}),
        ("cost", cost, {"batch": f"{result.running_batch:,.1f}"}),
    ]
    return [
        {
            "key": key,
            "name": text(f"page.sim_tile_{key}", language),
            "value": value,
            "below": text(f"page.sim_below_{key}", language, **fields),
        }
        for key, value, fields in rows
    ]


def simulation_blocks(result: Result, language: str, theme: str) -> list[Block]:
    """Tell a simulation: what saturates, the five numbers, the percentiles, and both pictures."""
    from batchline import chart_simulation  # noqa: PLC0415

    def say(name: str) -> str:
        return text(f"page.ui_sim_{name}", language)

    tiles = tuple((tile["name"], tile["value"], tile["below"]) for tile in simulation_tiles(result, language))
    columns = (say("metric"), say("mean"), "p50", "p90", "p99", say("max"))
    rows = tuple(
        (say(name), *map(format_time, (one.mean, one.p50, one.p90, one.p99, one.max)))
        for name, one in ((name, result.times[name]) for name in _METRICS)
    )
    pictures = {
        "over_time": chart_simulation.over_time(result, theme=theme, language=language),
        "times": chart_simulation.times(result, theme=theme, language=language),
    }
    return [
        Text(result.sentence(language), strong=True),
        Table(("", "", ""), tiles, left=frozenset({0, 2})),
        Table(columns, rows),
        *(Figure(name.replace("_", "-"), svg(spec), say(name)) for name, spec in pictures.items()),
    ]
