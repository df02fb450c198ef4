"""`batchline curve`: the first answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output
from batchline.units import format_rate, format_time, format_usd

if TYPE_CHECKING:
    from batchline.deployment import Deployment
    from batchline.sweep import Curve


@click.command("curve")
@click.argument("model")
@_options.deployment_options
@click.option(
    "--context",
    type=_options.TOKENS,
    default="4k",
    show_default=True,
    metavar="TOKENS",
    help="Mean context of a sequence.",
)
@click.option("--batch", type=_options.BATCHES, metavar="1..512", help="Batches to show: 1..512, 1,2,4..64 or 8.")
@click.option("--max-batch", type=click.IntRange(min=1), help="Largest batch allowed (an engine's max_num_seqs).")
@click.option("--step-limit", type=_options.DURATION, metavar="40ms", help="Longest time per token allowed.")
@click.option(
    "--tokens-per-user",
    type=click.FloatRange(min=0, min_open=True),
    metavar="TOK/S",
    help="Least speed of a user allowed.",
)
@click.option(
    "--within",
    type=click.FloatRange(min=0),
    metavar="0.1",
    help="Take the smallest batch whose cost is this near to its floor.",
)
@click.option(
    "--reading",
    type=click.Choice(["bound", "serial"]),
    default="bound",
    show_default=True,
    help="bound: nothing is faster; serial: attention and FFN in turn.",
)
@click.option(
    "--plot",
    "plots",
    multiple=True,
    type=click.Path(dir_okay=False, writable=True),
    help="Draw the six plots into a .png, .svg, .html or .json file.",
)
@click.option("--theme", type=click.Choice(["light", "dark"]), default="light", show_default=True, help="Of the plots.")
@click.option(
    "--axis", type=click.Choice(["log", "linear"]), default="log", show_default=True, help="Batch axis of the plots."
)
@click.option("--explain", is_flag=True, help="Print every formula with its numbers, and the source of each input.")
@_options.output_options
def command(model: str, **options: Any) -> None:
    """Say which batch to run, what a token then costs, how long it takes, and why.

    MODEL is a name of the catalogue, a config.json, or a folder that holds one.

    \b
    batchline curve llama-3.1-70b --on 4xh100 --context 8k
    batchline curve qwen3-32b --on h200 --weights fp8 --step-limit 20ms --plot six.html
    """
    from batchline import sweep

    deployment = _options.deployment_of(model, options)
    curve = sweep.curve(
        deployment,
        options["context"],
        options["batch"],
        reading=options["reading"],
        step_limit=_step_limit(options),
        within=options["within"],
        max_batch=options["max_batch"],
    )
    _warn(deployment, curve)
    if options["as_json"]:
        _output.print_json(curve.to_dict())
    elif options["as_csv"]:
        _output.print_csv(curve.to_records())
    elif options["explain"]:
        from batchline.cli import _explain

        _explain.explain(curve)
    else:
        _print(curve)
    _plot(curve, options)


def _step_limit(options: dict[str, Any]) -> float | None:
    limits = [options["step_limit"], 1 / options["tokens_per_user"] if options["tokens_per_user"] else None]
    return min((limit for limit in limits if limit is not None), default=None)


def _warn(deployment: Deployment, curve: Curve) -> None:
    longest = deployment.architecture.max_context
    if longest and curve.context > longest:
        _output.warn(f"context {curve.context:,} is beyond the model's maximum of {longest:,} tokens.")
    if deployment.price is None:
        _output.warn(f"no price is known for {deployment.accelerator.name}: no costs. Give --price.")
    elif stale := deployment.price.stale_warning():
        _output.warn(stale)


def _plot(curve: Curve, options: dict[str, Any]) -> None:
    if not options["plots"]:
        return
    from batchline import chart, sweep

    drawn = sweep.curve(
        curve.deployment,
        curve.context,
        sweep.plot_batches(curve),
        reading=curve.reading,
        step_limit=curve.step_limit,
        within=options["within"],
        max_batch=options["max_batch"],
    )
    spec = chart.six_plots(drawn, batch_axis=options["axis"], theme=options["theme"])
    for path in options["plots"]:
        chart.save(spec, path)
        click.echo(f"Six plots: {path}", err=True)


def _print(curve: Curve) -> None:
    console = _output.console()
    console.print()
    console.print(curve.title, style="bold")
    console.print()
    best = curve.optimum
    cost = "" if best.usd_per_mtok is None else f", {format_usd(best.usd_per_mtok)} per million tokens"
    console.print(f"  Run a batch of {best.batch:,}: {format_time(best.t_step)} a step{cost}.", style="bold green")
    console.print(f"  {best.reason[0].upper()}{best.reason[1:]}")
    console.print()
    console.print(_rows(curve))
    console.print()
    for line in _floors(curve):
        console.print(f"  {line}")


def _rows(curve: Curve) -> Any:
    columns = [(name, "right") for name in ("  batch", "step", "per user", "total", "$/Mtok", "MFU", "MBU")]
    columns.append(("bound by", "left"))
    rows, styles = [], []
    for record in curve.to_records():
        cost = record["usd_per_mtok"]
        rows.append(
            (
                f"{record['batch']:,}",
                format_time(record["t_step_s"]),
                format_rate(record["tokens_per_s_per_user"]),
                format_rate(record["output_tokens_per_s"]),
                "-" if cost is None else f"{cost:,.2f}" if cost >= 0.1 else f"{cost:.3g}",
                f"{record['mfu']:.0%}",
                f"{record['mbu']:.0%}",
                {"kv": "KV cache"}.get(record["bound_by"], record["bound_by"]),
            )
        )
        beyond = record["batch"] > curve.capacity_batch
        styles.append("bold green" if record["batch"] == curve.optimum.batch else "dim" if beyond else "")
        if beyond:
            rows[-1] = (*rows[-1][:-1], "does not fit: KV cache full")
    return _output.table(columns, rows, styles)


def _floors(curve: Curve) -> list[str]:
    lines = [f"Never below {format_time(curve.latency_floor)} a step: the time to fetch the weights once."]
    if curve.cost_floor_usd_per_mtok is not None:
        lines.append(
            f"Never below {format_usd(curve.cost_floor_usd_per_mtok)} per million tokens at this context, whatever the batch."
        )
    if curve.knee_batch is None:
        balance = (
            "at every context"
            if curve.balance_context is None
            else f"from {curve.balance_context:,.0f} tokens of context on"
        )
        lines.append(f"No knee: memory decides at every batch ({balance}).")
    else:
        lines.append(f"Knee at batch {curve.knee_batch:,.0f}: beyond it compute decides.")
    lines.append(
        f"The {'article floor' if curve.reading == 'bound' else 'serial floor'}, not a prediction: datasheet rates, no overhead. --explain shows every formula, --plot six.html the six plots."
    )
    return lines
