"""`batchline curve`: the first answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import numpy as np

from batchline.cli import _options, _output
from batchline.errors import InputError
from batchline.units import format_rate, format_time, format_usd

if TYPE_CHECKING:
    from batchline.deployment import Deployment
    from batchline.sweep import Curve


@click.command("curve")
@click.argument("model")
@_options.deployment_options
@_options.profile_option
@click.option(
    "--context",
    type=_options.TOKENS,
    metavar="TOKENS",
    help="Mean context of a sequence.  [default: isl + osl / 2 if given, else 4k]",
)
@click.option("--isl", type=_options.TOKENS, metavar="TOKENS", help="Input length: adds prefill, TTFT and throughput.")
@click.option("--osl", type=_options.TOKENS, metavar="TOKENS", help="Output length; goes with --isl.")
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
    type=click.Choice(["predict", "bound", "serial"]),
    default="predict",
    show_default=True,
    help="predict: what a real engine shows; bound: the article's floor; serial: attention and FFN in turn.",
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

    lengths = _lengths(options)
    deployment = _options.deployment_of(model, options)
    curve = sweep.curve(
        deployment,
        _context(options, lengths),
        options["batch"],
        reading=options["reading"],
        step_limit=_step_limit(options),
        within=options["within"],
        max_batch=options["max_batch"],
        priors=_options.priors_of(options["profile"], deployment),
    )
    _warn(deployment, curve)
    served = None if lengths is None else _served(curve, *lengths)
    if options["as_json"]:
        _output.print_json(curve.to_dict() | ({} if served is None else {"serving": served}))
    elif options["as_csv"]:
        _output.print_csv(curve.to_records())
    elif options["explain"]:
        from batchline.cli import _explain

        _explain.explain(curve)
    else:
        _print(curve, served)
    _plot(curve, options)


def _lengths(options: dict[str, Any]) -> tuple[int, int] | None:
    isl, osl = options["isl"], options["osl"]
    if (isl is None) != (osl is None):
        raise InputError("--isl and --osl go together.", "", "Give both, like --isl 1k --osl 1k.")
    if isl is None:
        return None
    if isl < 1 or osl < 1:
        raise InputError(f"A request has 1 or more tokens in and out, got {isl} and {osl}.")
    return isl, osl


def _context(options: dict[str, Any], lengths: tuple[int, int] | None) -> float:
    if options["context"] is not None:
        return float(options["context"])
    return 4096.0 if lengths is None else lengths[0] + lengths[1] / 2


def _served(curve: Curve, isl: int, osl: int) -> dict[str, Any]:
    from batchline import readings

    state = readings.steady(curve.deployment, isl, osl, curve.optimum.batch, priors=curve.priors)
    return {
        "isl": isl,
        "osl": osl,
        "concurrency": curve.optimum.batch,
        "running_batch": float(state.running_batch),
        "tpot_s": float(state.tpot_s),
        "ttft_s": float(state.ttft_s),
        "e2e_s": float(state.e2e_s),
        "requests_per_s": float(state.requests_per_s),
        "output_tokens_per_s": float(state.output_tokens_per_s),
        "saturated_by": state.saturated_by,
    }


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

    drawn = curve.over(sweep.plot_batches(curve))
    spec = chart.six_plots(drawn, batch_axis=options["axis"], theme=options["theme"])
    for path in options["plots"]:
        chart.save(spec, path)
        click.echo(f"Six plots: {path}", err=True)


def _print(curve: Curve, served: dict[str, Any] | None) -> None:
    console = _output.console()
    console.print()
    console.print(_title(curve), style="bold")
    console.print()
    for line, style in _answer(curve):
        console.print(f"  {line}", style=style)
    if served is not None:
        console.print(f"  {_served_line(served)}")
    console.print()
    console.print(_rows(curve))
    console.print()
    for line in _floors(curve):
        console.print(f"  {line}")


def _title(curve: Curve) -> str:
    price = curve.deployment.price
    return curve.title if price is None or price.newest is None else f"{curve.title} ({price.describe()})"


def _answer(curve: Curve) -> list[tuple[str, str]]:
    best = curve.optimum
    where = int(np.flatnonzero(curve.batch == best.batch)[0]) if best.batch in curve.batch else None
    line = f"Run a batch of {best.batch:,}: {format_time(best.t_step)} a step"
    if best.usd_per_mtok is not None:
        line += f", {format_usd(best.usd_per_mtok)} per million tokens"
        if curve.prediction is not None and where is not None:
            scale = best.usd_per_mtok / best.t_step
            low, high = (float(edge[where]) * scale for edge in (curve.prediction.low, curve.prediction.high))
            line += f" (90% interval {format_usd(low)} to {format_usd(high)})"
    lines = [(f"{line}.", "bold green")]
    if curve.prediction is not None and where is not None:
        lines.append((_split(curve, where), ""))
    lines.append((f"{best.reason[0].upper()}{best.reason[1:]}", ""))
    return lines


def _split(curve: Curve, where: int) -> str:
    names = {
        "kv": "KV fetch",
        "weights": "weights",
        "compute": "compute",
        "communication": "communication",
        "overhead": "overhead",
    }
    terms = {} if curve.prediction is None else curve.prediction.terms
    shares = sorted(
        ((float(part[where]) / float(curve.t_step[where]), names[name]) for name, part in terms.items()), reverse=True
    )
    first, *rest = [f"{name} {share:.0%}" for share, name in shares if share >= 0.005]
    head, _, percent = first.rpartition(" ")
    return (
        f"{head[0].upper()}{head[1:]} takes {percent} of the step, {', '.join(rest)}."
        if rest
        else f"{first} of the step."
    )


def _served_line(served: dict[str, Any]) -> str:
    stop = {"kv": "the KV cache", "prefill": "prefill", "max_num_seqs": "max_num_seqs", "step_limit": "the step limit"}
    saturated = f"; {stop[served['saturated_by']]} stops more load" if served["saturated_by"] else ""
    return (
        f"Served {served['isl']:,} in / {served['osl']:,} out at {served['concurrency']:,} requests in flight: "
        f"TPOT {format_time(served['tpot_s'])}, TTFT {format_time(served['ttft_s'])}, "
        f"{format_rate(served['output_tokens_per_s'])} out{saturated}."
    )


def _rows(curve: Curve) -> Any:
    columns = [(name, "right") for name in ("  batch", "step", "per user", "total", "$/Mtok", "MFU", "MBU")]
    columns.append(("bound by", "left"))
    rows, styles = [], []
    for record in curve.to_records():
        beyond = record["batch"] > curve.capacity_batch
        cost = record["usd_per_mtok"]
        decides = {"kv": "KV cache"}.get(record["bound_by"], record["bound_by"])
        rows.append(
            (
                f"{record['batch']:,}",
                format_time(record["t_step_s"]),
                format_rate(record["tokens_per_s_per_user"]),
                format_rate(record["output_tokens_per_s"]),
                "-" if cost is None else f"{cost:,.2f}" if cost >= 0.1 else f"{cost:.3g}",
                f"{record['mfu']:.0%}",
                f"{record['mbu']:.0%}",
                "does not fit: KV cache full" if beyond else decides,
            )
        )
        best = record["batch"] == curve.optimum.batch
        styles.append("bold green" if best else "dim" if beyond else "")
    return _output.table(columns, rows, styles)


def _floors(curve: Curve) -> list[str]:
    lines = [f"Never below {format_time(curve.latency_floor)} a step: the time to fetch the weights once."]
    if curve.cost_floor_usd_per_mtok is not None:
        floor = format_usd(curve.cost_floor_usd_per_mtok)
        lines.append(f"Never below {floor} per million tokens at this context, whatever the batch.")
    if curve.knee_batch is not None:
        lines.append(f"Knee at batch {curve.knee_batch:,.0f}: from there on compute outweighs memory.")
    elif curve.balance_context is not None:
        since = f"{curve.balance_context:,.0f}"
        lines.append(f"No knee: from {since} tokens of context on memory outweighs compute at every batch.")
    else:
        lines.append("No knee: memory outweighs compute at every batch.")
    lines.append(_basis(curve))
    lines.append("--explain shows every formula, --plot six.html the six plots, --reading bound the article's floor.")
    return lines


def _basis(curve: Curve) -> str:
    if curve.prediction is None:
        name = "article's floor" if curve.reading == "bound" else "serial floor"
        return f"This is the {name}, not a prediction: datasheet rates, no overhead."
    known = curve.prediction.provenance
    new = {
        "lengths": "this deployment was measured",
        "deployment": "new to us: this layout",
        "cluster": "new to us: this combination of model, accelerator, engine and format",
        "model": "new to us: this model",
        "accelerator": "new to us: this accelerator",
        "engine": "new to us: this engine",
    }[known.novelty]
    d = curve.deployment
    what = f"{d.engine} on {d.accelerator.generation}, {d.weights_name}"
    return f"Predicted for {what}: {known.source}; {known.points:,} points; {new}."
