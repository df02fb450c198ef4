"""`batchline plan`: the cheapest deployment that keeps the promise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output, _plan_simulated, _question
from batchline.errors import BatchlineError, InputError
from batchline.units import format_time, format_usd

if TYPE_CHECKING:
    from batchline.fleet import Fleet
    from batchline.planner import Candidate, Plan, Question
    from batchline.prior import Prior
    from batchline.simulate.refine import Refined


@click.command("plan")
@click.argument("model", nargs=-1, required=True, metavar="MODEL | QUESTION.toml ...")
@_question.question_options
@_options.profile_option
@click.option(
    "--save", "save_to", type=click.Path(dir_okay=False), metavar="FILE.toml", help="Write the question down."
)
@click.option(
    "--worth", is_flag=True, help="Say what other formats, a draft and prompts on machines of their own would bring."
)
@click.option(
    "--speculation",
    metavar="0.7,3,1ms",
    help="With --worth: acceptance, drafted tokens, time to draft one.  [default: no draft is looked at]",
)
@click.option("--flips", is_flag=True, help="Say what would make another deployment the cheapest (some seconds).")
@click.option("--simulate", "simulated", is_flag=True, help="Simulate the three best, and how many they take.")
@click.option("--tornado", type=click.Path(dir_okay=False), metavar="FILE", help="Draw what moves the cost.")
@click.option(
    "--plot", type=click.Path(dir_okay=False), metavar="FILE", help="Draw the Pareto front (.png .svg .html)."
)
@click.option("--theme", type=click.Choice(["light", "dark"]), default="light", help="Colours of the pictures.")
@click.option("--shared", is_flag=True, help="Fleet of several questions: let a replica divide its time between them.")
@_options.output_options
def command(model: tuple[str, ...], **options: Any) -> None:
    """Find the cheapest deployment that keeps the promise.

    Every accelerator with a price, layout, format, engine and batch is decided. MODEL is a name of the catalogue, a
    config.json or a folder; a .toml file holds a whole question, and several of them make a fleet.

    \b
    batchline plan deepseek-v3 --isl 4k --osl 1k --rate 20/s --ttft p95:2s --tpot p95:40ms
    batchline plan llama-3.1-70b --isl 2k --osl 500 --users 3000 --think 30s --tpot 50ms --on h100,h200 --confidence 0.9
    batchline plan llama-3.1-70b --isl 2k --osl 500 --rate 5/s --save chat.toml ; batchline plan chat.toml --flips
    batchline plan chat.toml summaries.toml --available h100=64 --available l40s=32
    """
    if len(model) > 1:
        _fleet(model, options)
        return
    from batchline import planner

    question = _question.question_of(model[0], options)
    if options["save_to"]:
        Path(options["save_to"]).write_text(question.to_toml(), encoding="utf-8")
        click.echo(f"Question: {options['save_to']}", err=True)
    priors = _options.priors_of(options["profile"])
    answer = planner.plan(question, priors)
    for warning in answer.warnings:
        _output.warn(warning)
    refined = _refined(answer, priors) if options["simulated"] else []
    if options["as_json"]:
        more: dict[str, Any] = {"flips": _flips(answer, priors)} if options["flips"] else {}
        more |= {"simulated": [one.to_dict() for one in refined]} if options["simulated"] else {}
        _output.print_json(answer.to_dict() | more)
    elif options["as_csv"]:
        _output.print_csv([_row(one) for one in (*answer.candidates, *answer.front)])
    else:
        _print(answer, priors, flips=options["flips"])
        if options["worth"] and answer.candidates:
            _print_worth(answer, options["speculation"], priors)
        if refined:
            _plan_simulated.show(refined)
    if answer.candidates:
        _plot(answer, options, priors)


def _refined(answer: Plan, priors: Prior | None) -> list[Refined]:
    from batchline.simulate.refine import refine

    return refine(answer, priors=priors) if answer.candidates else []


def _flips(answer: Plan, priors: Prior | None) -> list[dict[str, Any]]:
    from batchline import sensitivity

    return [vars(flip) for flip in sensitivity.flips(answer, priors)] if answer.candidates else []


def _row(one: Candidate) -> dict[str, Any]:
    found = one.to_dict()
    low, high = found.pop("usd_per_month_range")
    promised = found.pop("promised")
    return (
        found
        | {"usd_per_month_low": low, "usd_per_month_high": high}
        | {f"{name}_promised_s": value for name, value in promised.items()}
    )


def _plot(answer: Plan, options: dict[str, Any], priors: Prior | None) -> None:
    if not options["plot"] and not options["tornado"]:
        return
    from batchline import chart, chart_plan, sensitivity

    if options["plot"]:
        chart.save(chart_plan.pareto(answer, theme=options["theme"]), options["plot"])
        click.echo(f"Pareto front: {options['plot']}", err=True)
    if options["tornado"]:
        bars = sensitivity.tornado(answer, priors=priors)
        chart.save(chart_plan.tornado(answer, bars, theme=options["theme"]), options["tornado"])
        click.echo(f"What moves the cost: {options['tornado']}", err=True)


def _asked(question: Question) -> str:
    load = ""
    if question.rate is not None:
        load = f", {question.rate:,.3g} requests/s"
    if question.users is not None:
        load = f", {question.users:,.0f} users who think {format_time(question.think_s)}"
    promises = "".join(f", {name} {promise}" for name, promise in question.promises.items())
    return f"{question.model}: {question.isl:,.0f} tokens in, {question.osl:,.0f} out{load}{promises}"


def _print(answer: Plan, priors: Prior | None, *, flips: bool) -> None:
    console = _output.console()
    console.print()
    console.print(_asked(answer.question), style="bold")
    console.print()
    best = answer.best  # says what is nearest when there is none
    low, high = best.usd_per_month_range
    spread = f" ({format_usd(low)} to {format_usd(high)} by price)" if high > low else ""
    console.print(f"  {best.title}: {format_usd(best.usd_per_month)} a month{spread}.", style="bold green")
    for line in _told(best):
        console.print(f"  {line}")
    console.print()
    console.print(_table(answer))
    console.print()
    for number, other in enumerate(answer.candidates[1:], start=2):
        console.print(f"  {number}: {', '.join(answer.gives_up(other))}.")
    console.print()
    for line in _rest(answer):
        console.print(f"  {line}")
    if flips:
        console.print()
        for flip in _flips(answer, priors):
            console.print(f"  {flip['sentence']}")


def _print_worth(answer: Plan, speculation: str | None, priors: Prior | None) -> None:
    """Gains against the cheapest deployment, in words."""
    from batchline import goodput, worth

    console, question, best = _output.console(), answer.question, answer.best
    one = best.deployment(question.model)
    contexts = [question.context]
    lines = []
    now = {"weights": one.weights_name, "kv": one.kv}
    for kind, name in (("weights", "fp8"), ("weights", "int4"), ("weights", "nvfp4"), ("kv", "fp8")):
        if name in now[kind]:
            continue
        try:
            found = worth.format_gain(one, contexts=contexts, priors=priors, **{kind: name})  # type: ignore[arg-type]
        except BatchlineError as error:
            lines.append(f"{name} {kind}: {error.problem}")
        else:
            lines.append(f"{name} {kind} instead of {now[kind]}: {found.sentences()[0]}")
    rate = best.requests_per_s / best.replicas
    promises = {name: promise for name, promise in question.promises.items() if name in goodput.PROMISES}
    if speculation:
        made = _options.DRAFT.convert(speculation, None, None)
        gain = worth.speculation_gain(one, made, question.isl, question.osl, rate, promises, priors=priors)
        lines.append(f"A draft ({speculation}): {gain}")
    apart = worth.disaggregation(
        one,
        question.isl,
        question.osl,
        best.requests_per_s,
        promises,
        headroom=question.headroom,
        prefix_hit_rate=question.prefix_hit_rate,
        priors=priors,
    )
    lines.append(f"Prompts on machines of their own: {apart}")
    console.print()
    for line in lines:
        console.print(f"  {line}")


def _devices(count: int) -> str:
    return f"{count:,} device" + ("" if count == 1 else "s")


def _told(best: Candidate) -> list[str]:
    lines = [
        f"{format_usd(best.usd_per_mtok_input)} per million input and {format_usd(best.usd_per_mtok_output)} per "
        f"million output tokens; {_devices(best.devices)}; a replica decodes {best.batch:,.0f} sequences together, "
        f"{best.max_num_seqs:,} at the most."
    ]
    shown = ", ".join(f"{name} {format_time(value)}" for name, value in best.promised.items())
    if shown:
        lines.append(f"It shows {shown}; {best.p_slo:.0%} sure to keep all promises, new to the fit: {best.novelty}.")
    stops = {
        "step_limit": "a token would take too long",
        "kv": "the KV cache would be full",
        "max_num_seqs": "the largest batch would be reached",
        "prefill": "prompts would queue",
    }
    beyond = stops.get(best.saturated_by, "it would be full")
    lines.append(f"It could carry {best.most_requests_per_s:,.3g} requests/s; beyond, {beyond}.")
    if best.joules_per_token is not None:
        lines.append(f"At most {best.joules_per_token:.3g} J an output token, at the devices' design power.")
    if best.changes_weights:
        lines.append(f"The weights are rounded to {best.weights}: check the answers on your own tasks.")
    return lines


def _table(answer: Plan) -> Any:
    columns = [("", "right"), ("deployment", "left")]
    columns += [
        (name, "right") for name in ("devices", "$/month", "$/M in", "$/M out", "token", "first", "batch", "sure")
    ]
    rows = [
        (
            str(number),
            one.title,
            f"{one.devices}",
            f"{one.usd_per_month:,.0f}",
            f"{one.usd_per_mtok_input:,.3f}",
            f"{one.usd_per_mtok_output:,.3f}",
            format_time(one.tpot_s),
            format_time(one.ttft_s),
            f"{one.batch:,.0f}",
            f"{one.p_slo:.0%}",
        )
        for number, one in enumerate(answer.candidates, start=1)
    ]
    return _output.table(columns, rows, ["bold green"])


def _rest(answer: Plan) -> list[str]:
    fastest = min(answer.front, key=lambda one: one.tpot_s)
    smallest = min(answer.front, key=lambda one: (one.devices, one.usd_per_month))
    lines = [
        f"Pareto front of {len(answer.front)}: the fastest token is {format_time(fastest.tpot_s)}, by {fastest.title} "
        f"for {format_usd(fastest.usd_per_month)}; the fewest devices are {smallest.devices}, by {smallest.title}."
    ]
    for kind in ("weights", "kv", "tp"):
        best = {name.split(" ", 1)[1]: one for name, one in answer.best_of.items() if name.startswith(f"{kind} ")}
        if len(best) > 1:
            rows = sorted(best.items(), key=lambda row: row[1].usd_per_month)
            what = {"weights": "weights", "kv": "KV cache", "tp": "tensor parallelism"}[kind]
            lines.append(
                f"By {what}: " + ", ".join(f"{name} {format_usd(one.usd_per_month)}" for name, one in rows) + "."
            )
    refused = "; ".join(f"{n:,} {reason}" for reason, n in answer.refused.items())
    lines.append(f"Refused: {refused}." if refused else "Nothing was refused.")
    lines.append(
        f"{answer.searched:,} configurations of {answer.deployments:,} deployments decided in {answer.seconds:.2f} s."
    )
    return lines


def _fleet(files: tuple[str, ...], options: dict[str, Any]) -> None:
    from batchline import accelerator, fleet, planner

    available = {accelerator.resolve(name): n for name, n in options.pop("available")}
    priors = _options.priors_of(options.pop("profile"))
    made: list[Any] = []
    demand = {}
    for path in files:
        question = _question.question_of(path, dict(options) | {"available": ()})
        workload = Path(path).stem
        if question.rate is None:
            raise InputError(f"{path} has no rate.", "", "A fleet needs one for each workload: rate = 5.")
        demand[workload] = question.rate
        made += planner.pools(question, workload, priors)
        for name, n in question.available.items():
            available.setdefault(accelerator.resolve(name), n)
    found = fleet.fleet(demand, made, available, shared=options["shared"])
    if options["as_json"]:
        _output.print_json(found.to_dict())
    elif options["as_csv"]:
        _output.print_csv([vars(row) for row in found.assignments])
    else:
        _print_fleet(found, demand)


def _print_fleet(found: Fleet, demand: dict[str, float]) -> None:
    console = _output.console()
    console.print()
    console.print(
        "Fleet for " + ", ".join(f"{name} at {rate:,.3g} requests/s" for name, rate in demand.items()), style="bold"
    )
    console.print()
    proof = "no fleet is cheaper" if found.proven else f"a fleet could be at most {found.gap:.1%} cheaper"
    devices = ", ".join(f"{n} {name}" for name, n in found.devices.items())
    console.print(f"  {format_usd(found.usd_per_month)} a month with {devices}: {proof}.", style="bold green")
    console.print()
    columns = [
        ("workload", "left"),
        ("replicas", "right"),
        ("of", "left"),
        ("devices", "right"),
        ("$/h", "right"),
        ("used", "right"),
    ]
    rows = [
        (
            row.workload,
            str(row.replicas),
            row.pool,
            str(row.devices),
            f"{row.usd_per_hour:,.2f}",
            f"{row.utilisation:.0%}",
        )
        for row in found.assignments
    ]
    console.print(_output.table(columns, rows))
