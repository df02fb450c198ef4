"""`batchline curve`: the first answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _beside, _curve_question, _options, _output
from batchline.cli._language import current, say
from batchline.cli._spoken import Spoken
from batchline.strings import text
from batchline.units import format_rate, format_time, format_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.deployment import Deployment
    from batchline.measure.beside import Beside
    from batchline.readings import Prediction
    from batchline.sweep import Curve


@click.command("curve", cls=Spoken)
@click.argument("model")
@_curve_question.curve_options
@_curve_question.serving_options
@click.option("--batch", type=_options.BATCHES, metavar="1..512", help=text("help.curve_batch"))
@_beside.option
@click.option("--plot", "plots", multiple=True, type=_options.FILE, help=text("help.curve_plots"))
@click.option("--breakdown", "breakdowns", multiple=True, type=_options.FILE, help=text("help.curve_breakdown"))
@_options.theme_option
@click.option("--axis", type=click.Choice(["log", "linear"]), default="log", show_default=True, help=text("help.axis"))
@click.option("--explain", is_flag=True, help=text("help.explain"))
@_options.output_options
def command(model: str, **options: Any) -> None:
    """Say which batch to run, what a token then costs, how long it takes, and why.

    \b
    batchline curve llama-3.1-70b --on 4xh100 --context 8k
    batchline curve qwen3-32b --on h200 --weights fp8 --step-limit 20ms --plot six.html
    batchline curve qwen3-32b --on h200 --profile profile.toml --measured results.json --plot six.png
    """
    asked = _curve_question.question_of(model, options)
    curve = asked.curve(options["batch"])
    served = asked.served(curve)
    _warn(curve.deployment, curve)
    laid = _beside.points_of(curve, options["files"])
    if options["as_json"]:
        measured = {"measured": [one.to_dict() for one in laid]} if options["files"] else {}
        _output.print_json(curve.to_dict() | ({} if served is None else {"serving": served}) | measured)
    elif options["as_csv"]:
        _output.print_csv(curve.to_records())
    elif options["explain"]:
        from batchline.cli import _explain

        _explain.explain(curve, asked)
    else:
        _print(curve, served, laid)
    _plot(curve, laid, options)


def _warn(deployment: Deployment, curve: Curve) -> None:
    longest = deployment.architecture.max_context
    if longest and curve.context > longest:
        _output.warn(say("curve.beyond_context", context=f"{curve.context:,.0f}", longest=f"{longest:,}"))
    if deployment.price is None:
        _output.warn(say("curve.no_price", accelerator=deployment.accelerator.name))
    elif stale := deployment.price.stale_warning(language=current()):
        _output.warn(stale)


def _plot(curve: Curve, laid: Sequence[Beside], options: dict[str, Any]) -> None:
    if not options["plots"] and not options["breakdowns"]:
        return
    from batchline import chart, sweep

    drawn = curve.over(sweep.plot_batches(curve))
    look = {"batch_axis": options["axis"], "theme": options["theme"], "language": current()}
    for path in options["plots"]:
        chart.save(chart.six_plots(drawn, measured=_beside.drawn(laid), **look), path)
        click.echo(say("curve.plotted", file=path), err=True)
    for path in options["breakdowns"]:
        chart.save(chart.breakdown(drawn, **look), path)
        click.echo(say("curve.broken_down", file=path), err=True)


def _print(curve: Curve, served: dict[str, Any] | None, laid: Sequence[Beside]) -> None:
    from batchline.curve_question import served_sentence

    console = _output.console()
    console.print()
    console.print(_title(curve), style="bold")
    console.print()
    for line, style in _answer(curve):
        console.print(f"  {line}", style=style)
    if served is not None:
        console.print(f"  {served_sentence(served, current())}")
    console.print()
    console.print(_rows(curve))
    console.print()
    if laid:
        console.print(_beside.table(laid))
        console.print()
        console.print(f"  {_beside.sentence(laid)}")
    for line in _floors(curve):
        console.print(f"  {line}")


def _title(curve: Curve) -> str:
    title, price = curve.titled(current()), curve.deployment.price
    return title if price is None or price.newest is None else f"{title} ({price.describe(current())})"


def _answer(curve: Curve) -> list[tuple[str, str]]:
    at = curve.over(curve.optimum.batch)
    lines = [(_run(at), "bold green")]
    if at.prediction is not None:
        lines.append((_split(at, at.prediction), ""))
    reason = curve.optimum.told(current())
    lines.append((f"{reason[0].upper()}{reason[1:]}", ""))
    return lines


def _run(at: Curve) -> str:
    best = at.optimum
    fields = {"batch": f"{best.batch:,}", "time": format_time(best.t_step)}
    if best.usd_per_mtok is None:
        return say("curve.run", **fields)
    fields["cost"] = format_usd(best.usd_per_mtok)
    if at.prediction is None:
        return say("curve.run_cost", **fields)
    scale = best.usd_per_mtok / best.t_step
    low, high = (float(edge[0]) * scale for edge in (at.prediction.low, at.prediction.high))
    return say("curve.run_interval", **fields, low=format_usd(low), high=format_usd(high))


def _split(at: Curve, prediction: Prediction) -> str:
    shares = sorted(
        ((float(part[0]) / float(at.t_step[0]), name) for name, part in prediction.terms.items()), reverse=True
    )
    parts = [f"{say(f'curve.part_{name}')} {share:.0%}" for share, name in shares if share >= 0.005]
    return say("curve.split", parts=", ".join(parts))


def _rows(curve: Curve) -> Any:
    columns = [(f"  {say('curve.batch')}", "right")]
    columns += [(say(f"curve.{name}"), "right") for name in ("step", "per_user", "total", "cost")]
    columns += [("MFU", "right"), ("MBU", "right"), (say("curve.bound_by"), "left")]
    rows, styles = [], []
    for record in curve.to_records():
        beyond = record["batch"] > curve.capacity_batch
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
                say("curve.beyond" if beyond else f"curve.bound_{record['bound_by']}"),
            )
        )
        best = record["batch"] == curve.optimum.batch
        styles.append("bold green" if best else "dim" if beyond else "")
    return _output.table(columns, rows, styles)


def _floors(curve: Curve) -> list[str]:
    lines = [say("curve.latency_floor", time=format_time(curve.latency_floor))]
    if curve.cost_floor_usd_per_mtok is not None:
        lines.append(say("curve.cost_floor", cost=format_usd(curve.cost_floor_usd_per_mtok)))
    if curve.knee_batch is not None:
        lines.append(say("curve.knee", batch=f"{curve.knee_batch:,.0f}"))
    elif curve.balance_context is not None:
        lines.append(say("curve.no_knee_from", context=f"{curve.balance_context:,.0f}"))
    else:
        lines.append(say("curve.no_knee"))
    return [*lines, _basis(curve), say("curve.more")]


def _basis(curve: Curve) -> str:
    if curve.prediction is None:
        return say(f"curve.basis_{curve.reading}")
    d, known = curve.deployment, curve.prediction.provenance
    return say(
        "curve.basis_predict",
        engine=d.engine,
        generation=d.accelerator.generation or d.accelerator.name,
        weights=d.weights_name,
        source=known.told(current()),
        points=f"{known.points:,}",
        novelty=say(f"page.new_{known.novelty}"),
    )
