"""What a report says of a plan and of a price sheet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batchline.report._picture import drawn_in, svg
from batchline.report.blocks import Block, Figure, Items, Section, Table, Text
from batchline.strings import text, told
from batchline.units import format_time, format_usd

if TYPE_CHECKING:
    from batchline.planner import Plan
    from batchline.price_sheet import PriceSheet

__all__ = ["plan_sections", "sheet_blocks"]

_COLUMNS = ("deployment", "devices", "month", "input", "output", "page.tile_time", "first", "sure")


def plan_sections(answer: Plan, language: str, theme: str, *, flips: bool) -> list[Section]:
    """Tell a plan: its candidates, the front, and, if asked, what would flip it."""
    from batchline import chart_plan, sensitivity  # noqa: PLC0415

    def say(key: str, **fields: str) -> str:
        return text(key if "." in key else f"report.{key}", language, **fields)

    def drawn(*, narrow: bool) -> str:
        spec = chart_plan.pareto(answer, theme=drawn_in(theme), language=language, narrow=narrow)
        return svg(spec, theme)

    if not answer.candidates:
        return [Section(say("plan"), (Text(answer.why_none.told(language)),))]
    best = answer.best
    rows = tuple(
        (
            one.titled(language),
            f"{one.devices:,}",
            format_usd(one.usd_per_month),
            format_usd(one.usd_per_mtok_input),
            format_usd(one.usd_per_mtok_output),
            format_time(one.tpot_s),
            format_time(one.ttft_s),
            f"{one.p_slo:.0%}",
        )
        for one in answer.candidates
    )
    headline = say("plan_best", title=best.titled(language), cost=format_usd(best.usd_per_month))
    blocks: list[Any] = [
        Text(headline, strong=True),
        Table(tuple(say(name) for name in _COLUMNS), rows, strong=0),
        Figure("plan", drawn(narrow=False), headline, drawn(narrow=True)),
        *(Text(caution) for caution in answer.cautions(language)),
    ]
    found = [Section(say("plan"), tuple(blocks))]
    if flips:
        sentences = tuple(flip.told(language) for flip in sensitivity.flips(answer))
        found.append(Section(say("flips"), (Items(sentences),)))
    return found


def sheet_blocks(sheet: PriceSheet, language: str, theme: str) -> list[Block]:
    """Tell a price sheet, and draw it."""
    from batchline import chart_price  # noqa: PLC0415

    columns = tuple(text(f"page.ui_prices_{name}", language) for name in ("cost", "price", "times", "why"))
    rows = tuple(
        (
            told(row.name, language),
            format_usd(row.usd_per_mtok_cost),
            format_usd(row.usd_per_mtok_price),
            f"{row.times_base:.3g}",
            told(row.why, language),
        )
        for row in sheet.rows
    )
    table = Table(("", *columns), rows, left=frozenset({0, 4}))
    return [
        Text(told(sheet.title, language), strong=True),
        Figure("prices", svg(chart_price.bars(sheet, theme=theme, language=language)), told(sheet.title, language)),
        table,
        *(Text(told(note, language)) for note in sheet.notes),
    ]
