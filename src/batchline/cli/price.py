"""`batchline price`: what to charge, and whether an API is cheaper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output, _question
from batchline.cli._language import current, say, told
from batchline.cli._spoken import Spoken
from batchline.strings import text
from batchline.units import format_time, format_usd, parse_tokens

if TYPE_CHECKING:
    from batchline.deployment import Deployment
    from batchline.market import Comparison
    from batchline.price_sheet import PriceSheet


@click.command("price", cls=Spoken)
@click.argument("model")
@_options.deployment_options
@_options.profile_option
@click.option(
    "--isl", type=_options.TOKENS, default="4k", show_default=True, metavar="TOKENS", help=text("help.price_isl")
)
@click.option(
    "--osl", type=_options.TOKENS, default="1k", show_default=True, metavar="TOKENS", help=text("help.price_osl")
)
@click.option("--batch", type=float, help=text("help.price_batch"))
@click.option("--tpot", "tpot_s", type=_options.DURATION, metavar="40ms", help=text("help.tpot_s"))
@click.option("--utilisation", type=float, default=1.0, show_default=True, help=text("help.utilisation"))
@click.option("--margin", type=float, default=0.0, show_default=True, help=text("help.margin"))
@click.option("--fast", type=float, default=2.5, show_default=True, help=text("help.fast"))
@click.option(
    "--contexts",
    type=_question.NAMES,
    default="32k,128k",
    show_default=True,
    metavar="TOKENS,...",
    help=text("help.price_contexts"),
)
@click.option("--prefix-hit-rate", type=float, default=0.9, show_default=True, help=text("help.price_prefix_hit_rate"))
@click.option(
    "--reading",
    type=click.Choice(["predict", "bound", "serial"]),
    default="predict",
    show_default=True,
    help=text("help.price_reading"),
)
@click.option("--market", "market_name", is_flag=False, flag_value="", metavar="[NAME]", help=text("help.market_name"))
@click.option("--plot", type=_options.FILE, help=text("help.price_plot"))
@_options.theme_option
@_options.output_options
def command(model: str, **options: Any) -> None:
    """Derive a price sheet from what tokens cost: input, cached, output, long context, fast and batch mode.

    \b
    batchline price llama-3.1-70b --on 4xh100 --weights fp8 --tpot 40ms --utilisation 0.6 --margin 0.3
    batchline price deepseek-v3 --on 16xh200 --tp 1 --dp 16 --ep 16 --market deepseek-v3 --plot prices.png
    """
    from batchline import market, price_sheet

    deployment = _options.deployment_of(model, options)
    sheet = price_sheet.price_sheet(
        deployment,
        options["isl"],
        options["osl"],
        batch=options["batch"],
        tpot_s=options["tpot_s"],
        utilisation=options["utilisation"],
        margin=options["margin"],
        fast=options["fast"],
        contexts=[parse_tokens(text) for text in options["contexts"]],
        prefix_hit_rate=options["prefix_hit_rate"],
        reading=options["reading"],
        priors=_options.priors_of(options["profile"], deployment),
    )
    if deployment.price is not None and (warning := deployment.price.stale_warning(language=current())):
        _output.warn(warning)
    rows = None
    if options["market_name"] is not None:
        rows = sheet.beside(market.offers(options["market_name"] or deployment.architecture.name))
    if options["as_json"]:
        beside = {} if rows is None else {"market": [row.to_dict() for row in rows]}
        _output.print_json(sheet.to_dict() | beside)
    elif options["as_csv"]:
        _output.print_csv([vars(row) for row in sheet.rows])
    else:
        _print(deployment, sheet, rows)
    if options["plot"]:
        from batchline import chart, chart_price

        drawn = chart_price.bars(sheet, rows or (), theme=options["theme"], language=current())
        chart.save(drawn, options["plot"])
        click.echo(say("price_sheet.plotted", file=options["plot"]), err=True)


def _print(deployment: Deployment, sheet: PriceSheet, market: list[Comparison] | None) -> None:
    console = _output.console()
    console.print()
    source = "" if deployment.price is None else f" ({deployment.price.describe(language=current())})"
    price = format_usd(sheet.usd_per_hour)
    console.print(say("price_sheet.hour", title=told(sheet.title), price=price, source=source), style="bold")
    about = {"batch": f"{sheet.batch:,.0f}", "time": format_time(sheet.tpot_s)}
    line = say("price_sheet.about", **about, busy=f"{sheet.utilisation:.0%}", margin=f"{sheet.margin:.0%}")
    console.print(f"  {line}")
    console.print()
    sides = {"cost": "right", "price": "right", "times": "right", "from": "left"}
    columns = [("", "left"), *((say(f"price_sheet.col_{name}"), side) for name, side in sides.items())]
    rows = [
        (
            told(row.name),
            f"{row.usd_per_mtok_cost:,.4g}",
            f"{row.usd_per_mtok_price:,.4g}",
            f"{row.times_base:.3g}",
            told(row.why),
        )
        for row in sheet.rows
    ]
    console.print(_output.table(columns, rows))
    console.print()
    if sheet.balance_context:
        console.print(f"  {say('price_sheet.balance', context=f'{sheet.balance_context:,.0f}')}")
    for note in sheet.notes:
        console.print(f"  {told(note)}")
    if market is not None:
        _print_market(market)


def _print_market(rows: list[Comparison]) -> None:
    from batchline import market

    console = _output.console()
    console.print()
    console.print(f"  {say('price_sheet.market', release=market.release())}", style="bold")
    names = ("api", "in", "out", "request", "busy", "requests")
    columns = [(say(f"price_sheet.col_{name}"), "left" if name == "api" else "right") for name in names]
    cells = [
        (
            f"{row.offer.provider}: {row.offer.model}",
            f"{row.offer.usd_per_mtok_input:,.3g}",
            f"{row.offer.usd_per_mtok_output:,.3g}",
            f"{row.api_usd_per_request:.3g}",
            f"{row.break_even_utilisation:.0%}" if row.break_even_requests_per_month else say("price_sheet.never"),
            f"{row.break_even_requests_per_month:,.0f}" if row.break_even_requests_per_month else "-",
        )
        for row in rows
    ]
    console.print(_output.table(columns, cells))
