"""`batchline list`: what the catalogue holds."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from batchline.cli import _output
from batchline.cli._language import say
from batchline.cli._spoken import Spoken, SpokenGroup
from batchline.strings import text
from batchline.units import format_bytes, format_count


@click.group("list", cls=SpokenGroup)
def command() -> None:
    """Show the catalogue: models, accelerators, prices."""


@command.command("models", cls=Spoken)
@click.argument("search", required=False)
@click.option("--json", "as_json", is_flag=True, help=text("help.as_json"))
@click.option("--csv", "as_csv", is_flag=True, help=text("help.as_csv"))
def models(search: str | None, as_json: bool, as_csv: bool) -> None:
    """Models that are known by name. Any other is read from its config.json."""
    from batchline import architecture

    rows = [row for row in architecture.catalogue() if _matches(search, row["name"], row["hf_id"], row["family"])]
    records = [{**row, "aliases": " ".join(row["aliases"])} if as_csv else row for row in rows]
    if as_json or as_csv:
        (_output.print_json if as_json else _output.print_csv)(records)
        return
    columns = [(say("list.name"), "left"), (say("list.total"), "right"), (say("list.active"), "right")]
    columns += [(say("list.family"), "left"), (say("list.hf_id"), "left")]
    cells = []
    for row in rows:
        model = architecture.Architecture.load(row["name"])
        sizes = (format_count(model.total_params), format_count(model.active_params))
        cells.append((row["name"], *sizes, row["family"], row["hf_id"]))
    _output.console().print(_output.table(columns, cells))


@command.command("accelerators", cls=Spoken)
@click.argument("search", required=False)
@click.option("--json", "as_json", is_flag=True, help=text("help.as_json"))
@click.option("--csv", "as_csv", is_flag=True, help=text("help.as_csv"))
def accelerators(search: str | None, as_json: bool, as_csv: bool) -> None:
    """Accelerators: memory, bandwidth, dense rates, price."""
    from batchline import accelerator, price

    quoted = set(price.names())
    records: list[dict[str, Any]] = []
    for device in accelerator.catalogue():
        name = device.name
        if not _matches(search, name, device.vendor, device.generation or ""):
            continue
        rates = {f"{fmt}_flops": device.flops.get(fmt) for fmt in ("bf16", "fp8", "int8", "fp4")}
        records.append(
            {
                "name": name,
                "vendor": device.vendor,
                "memory_bytes": device.memory,
                "bandwidth": device.bandwidth,
                **rates,
                "usd_per_device_hour": price.load(name).median if name in quoted else None,
                "source": device.source,
                "date": device.date,
            }
        )
    if as_json or as_csv:
        (_output.print_json if as_json else _output.print_csv)(records)
        return
    columns = [(say("list.name"), "left"), (say("list.vendor"), "left")]
    columns += [(say("list.memory"), "right"), (say("list.bandwidth"), "right")]
    columns += [(say("list.rate", format=fmt), "right") for fmt in ("bf16", "fp8", "fp4")]
    columns.append((say("list.price"), "right"))
    cells = [
        (
            row["name"],
            row["vendor"],
            "-" if not row["memory_bytes"] else format_bytes(row["memory_bytes"]),
            f"{format_bytes(row['bandwidth'])}/s",
            *(
                "-" if not row[f"{fmt}_flops"] else f"{row[f'{fmt}_flops'] / 1e12:,.0f}"
                for fmt in ("bf16", "fp8", "fp4")
            ),
            "-" if row["usd_per_device_hour"] is None else f"{row['usd_per_device_hour']:.2f}",
        )
        for row in records
    ]
    _output.console().print(_output.table(columns, cells))


@command.command("prices", cls=Spoken)
@click.argument("search", required=False)
@click.option("--json", "as_json", is_flag=True, help=text("help.as_json"))
@click.option("--csv", "as_csv", is_flag=True, help=text("help.as_csv"))
def prices(search: str | None, as_json: bool, as_csv: bool) -> None:
    """Rental prices with their dates and sources."""
    from batchline import price

    found = [quote for quote in price.quotes() if _matches(search, quote.accelerator, quote.provider)]
    if as_json or as_csv:
        (_output.print_json if as_json else _output.print_csv)([dataclasses.asdict(quote) for quote in found])
        return
    columns = [(say("list.accelerator"), "left"), (say("list.provider"), "left"), (say("list.device_price"), "right")]
    columns += [(say("list.date"), "left"), (say("list.source"), "left")]
    cells = [(q.accelerator, f"{q.provider} {q.offer}", f"{q.usd_per_hour:.2f}", q.date, q.source) for q in found]
    _output.console().print(_output.table(columns, cells))


def _matches(search: str | None, *texts: str) -> bool:
    return not search or any(search.casefold() in text.casefold() for text in texts)
