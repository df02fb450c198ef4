"""`batchline plan`: the cheapest deployment that keeps the promise."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output, _plan_simulated, _question
from batchline.cli._language import current, say, told
from batchline.cli._spoken import Spoken
from batchline.errors import BatchlineError, InputError
from batchline.strings import Sentence, text
from batchline.units import format_time, format_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.fleet import Fleet
    from batchline.planner import Candidate, Plan, Question
    from batchline.prior import Prior
    from batchline.sensitivity import Flip
    from batchline.simulate.refine import Refined


_PROMPTS = "prompts"  # what best_of calls it whether they have replicas of their own


@click.command("plan", cls=Spoken)
@click.argument("model", nargs=-1, required=True, metavar="MODEL | QUESTION.toml ...")
@_question.question_options
@_options.profile_option
@click.option("--save", "save_to", type=_options.FILE, metavar="FILE.toml", help=text("help.save_to"))
@click.option("--worth", is_flag=True, help=text("help.worth"))
@click.option("--speculation", metavar="0.7,3,1ms", help=text("help.plan_speculation"))
@click.option("--flips", is_flag=True, help=text("help.plan_flips"))
@click.option("--simulate", "simulated", is_flag=True, help=text("help.simulated"))
@click.option("--tornado", type=_options.FILE, help=text("help.tornado"))
@click.option("--plot", type=_options.FILE, help=text("help.plan_plot"))
@_options.theme_option
@click.option("--shared", is_flag=True, help=text("help.shared"))
@_options.output_options
def command(model: tuple[str, ...], **options: Any) -> None:
    """Find the cheapest deployment that keeps the promise.

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
        click.echo(say("plan.saved", file=options["save_to"]), err=True)
    priors = _options.priors_of(options["profile"])
    answer = planner.plan(question, priors)
    for warning in answer.cautions(current()):
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
    return [vars(flip) | {"sentence": flip.told()} for flip in _found_flips(answer, priors)]


def _found_flips(answer: Plan, priors: Prior | None) -> Sequence[Flip]:
    from batchline import sensitivity

    return sensitivity.flips(answer, priors) if answer.candidates else ()


def _row(one: Candidate) -> dict[str, Any]:
    from batchline.planner import Prefill

    found = one.to_dict()
    low, high = found.pop("usd_per_month_range")
    promised, prefill = found.pop("promised"), found.pop("prefill") or {}
    return (
        found
        | {"usd_per_month_low": low, "usd_per_month_high": high}
        | {f"{name}_promised_s": value for name, value in promised.items()}
        | {f"prefill_{field.name}": prefill.get(field.name) for field in dataclasses.fields(Prefill)}
    )


def _plot(answer: Plan, options: dict[str, Any], priors: Prior | None) -> None:
    if not options["plot"] and not options["tornado"]:
        return
    from batchline import chart, chart_plan, sensitivity

    look = {"theme": options["theme"], "language": current()}
    if options["plot"]:
        chart.save(chart_plan.pareto(answer, **look), options["plot"])
        click.echo(say("plan.plotted", file=options["plot"]), err=True)
    if options["tornado"]:
        bars = sensitivity.tornado(answer, priors=priors)
        chart.save(chart_plan.tornado(answer, bars, **look), options["tornado"])
        click.echo(say("plan.tornado", file=options["tornado"]), err=True)


def _asked(question: Question) -> str:
    load = ""
    if question.rate is not None:
        load = say("plan.asked_rate", rate=f"{question.rate:,.3g}")
    if question.users is not None:
        load = say("plan.asked_users", users=f"{question.users:,.0f}", time=format_time(question.think_s))
    promises = "".join(f", {name} {promise}" for name, promise in question.promises.items())
    lengths = {"isl": f"{question.isl:,.0f}", "osl": f"{question.osl:,.0f}"}
    return say("plan.asked", model=question.model, load=load, promises=promises, **lengths)


def _print(answer: Plan, priors: Prior | None, *, flips: bool) -> None:
    console = _output.console()
    console.print()
    console.print(_asked(answer.question), style="bold")
    console.print()
    best = answer.best  # says what is nearest when there is none
    low, high = best.usd_per_month_range
    fields = {"title": best.titled(current()), "cost": format_usd(best.usd_per_month)}
    spread = {"low": format_usd(low), "high": format_usd(high)}
    line = say("plan.month_range", **fields, **spread) if high > low else say("plan.month", **fields)
    console.print(f"  {line}", style="bold green")
    _lines(_told(best, answer.kept(best)))
    console.print()
    console.print(_table(answer))
    console.print()
    others = enumerate(answer.candidates[1:], start=2)
    _lines([f"{number}: {', '.join(answer.gives_up(other, current()))}." for number, other in others])
    console.print()
    _lines(_rest(answer))
    if flips:
        console.print()
        _lines([flip.told(current()) for flip in _found_flips(answer, priors)])


def _lines(lines: Sequence[str]) -> None:
    """Print sentences; a pipe gets each in a line of its own."""
    console = _output.console()
    for line in lines:
        console.print(f"  {line}", soft_wrap=not console.is_terminal)


def _print_worth(answer: Plan, speculation: str | None, priors: Prior | None) -> None:
    """Gains against the cheapest deployment, in words."""
    from batchline import worth

    console, question, best = _output.console(), answer.question, answer.best
    one = best.deployment(question.model)
    lines = []
    now = {"weights": one.weights_name, "kv": one.kv}
    for kind, name in (("weights", "fp8"), ("weights", "int4"), ("weights", "nvfp4"), ("kv", "fp8")):
        if name in now[kind]:
            continue
        fields = {"name": name, "kind": say(f"plan.kind_{kind}")}
        try:
            found = worth.format_gain(one, contexts=[question.context], priors=priors, **{kind: name})  # type: ignore[arg-type]
        except BatchlineError as error:
            lines.append(say("plan.format_not", problem=told(error.problem), **fields))
        else:
            lines.append(say("plan.format", now=now[kind], gain=told(found.sentences()[0]), **fields))
    if speculation:
        lines.append(_speculation(answer, speculation, priors))
    lines.append(_disaggregation(answer))
    console.print()
    _lines(lines)


def _speculation(answer: Plan, text: str, priors: Prior | None) -> str:
    """What a draft brings to the cheapest deployment whose replicas do both."""
    from batchline import worth

    question, best = answer.question, answer.best_of.get(f"{_PROMPTS} together", answer.best)
    rate = best.requests_per_s / best.replicas
    gain = worth.speculation_gain(
        best.deployment(question.model),
        _options.DRAFT.convert(text, None, None),
        question.isl,
        question.osl,
        rate,
        question.promises,
        priors=priors,
    )
    return say("plan.draft", draft=text, title=best.titled(current()), gain=told(gain.sentence))


def _disaggregation(answer: Plan) -> str:
    """Whether prompts on replicas of their own are worth it at the load."""
    together, apart = (answer.best_of.get(f"{_PROMPTS} {name}") for name in ("together", "apart"))
    if not answer.question.disaggregation or answer.question.rate is None:
        return say("plan.disaggregation_not_asked")
    if apart is None:
        return say("plan.disaggregation_cannot")
    fields = {"apart": format_usd(apart.usd_per_month), "title": apart.titled(current())}
    if together is None:
        return say("plan.disaggregation_only", **fields)
    pays = apart.usd_per_month < together.usd_per_month
    key = "plan.disaggregation_pays" if pays else "plan.disaggregation_does_not"
    return say(key, together=format_usd(together.usd_per_month), **fields)


def _told(best: Candidate, shown: str) -> list[str]:
    lines = [
        say(
            "plan.costs",
            input=format_usd(best.usd_per_mtok_input),
            output=format_usd(best.usd_per_mtok_output),
            devices=f"{best.devices:,}",
            batch=f"{best.batch:,.0f}",
            most=f"{best.max_num_seqs:,}",
        )
    ]
    if best.prefill is not None:
        pool = best.prefill
        times = {"prompt": format_time(pool.prompt_s), "move": format_time(pool.transfer_s)}
        lines.append(say("plan.prompts", busy=f"{pool.busy:.0%}", **times))
    if shown:
        lines.append(say("plan.shown", shown=shown, sure=f"{best.p_slo:.0%}", novelty=say(f"page.new_{best.novelty}")))
    stop = say(f"plan.stop_{best.saturated_by}")
    lines.append(say("plan.carries", rate=f"{best.most_requests_per_s:,.3g}", stop=stop))
    if best.joules_per_token is not None:
        lines.append(say("plan.energy", energy=f"{best.joules_per_token:.3g}"))
    if best.changes_weights:
        lines.append(say("plan.rounded", weights=best.weights))
    return lines


def _table(answer: Plan) -> Any:
    names = ("devices", "month", "in", "out", "token", "first", "batch", "sure")
    columns = [("", "right"), (say("plan.col_deployment"), "left")]
    columns += [(say(f"plan.col_{name}"), "right") for name in names]
    rows = [
        (
            str(number),
            one.titled(current()),
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
        say(
            "plan.front",
            count=f"{len(answer.front)}",
            time=format_time(fastest.tpot_s),
            fastest=fastest.titled(current()),
            cost=format_usd(fastest.usd_per_month),
            devices=f"{smallest.devices}",
            smallest=smallest.titled(current()),
        )
    ]
    for kind in ("weights", "kv", "tp", _PROMPTS):
        best = {name.split(" ", 1)[1]: one for name, one in answer.best_of.items() if name.startswith(f"{kind} ")}
        if len(best) > 1:
            rows = sorted(best.items(), key=lambda row: row[1].usd_per_month)
            shown = ((say(f"plan.{name}") if kind == _PROMPTS else name, one) for name, one in rows)
            told_rows = ", ".join(f"{name} {format_usd(one.usd_per_month)}" for name, one in shown)
            lines.append(say("plan.by", what=say(f"plan.by_{kind}"), rows=told_rows))
    refused = "; ".join(f"{n:,} {reason}" for reason, n in answer.refusals(current()).items())
    lines.append(say("plan.refused", rows=refused) if refused else say("plan.refused_none"))
    counts = {"configurations": f"{answer.searched:,}", "deployments": f"{answer.deployments:,}"}
    lines.append(say("plan.searched", seconds=f"{answer.seconds:.2f}", **counts))
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
            raise InputError(Sentence("error.no_rate_of", name=f"{path}"), "", Sentence("error.fleet_needs_rate"))
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
    workloads = ", ".join(say("plan.demand", name=name, rate=f"{rate:,.3g}") for name, rate in demand.items())
    console.print(say("plan.fleet", demand=workloads), style="bold")
    console.print()
    proof = say("plan.proven") if found.proven else say("plan.gap", gap=f"{found.gap:.1%}")
    devices = ", ".join(f"{n} {name}" for name, n in found.devices.items())
    line = say("plan.fleet_cost", cost=format_usd(found.usd_per_month), devices=devices, proof=proof)
    console.print(f"  {line}", style="bold green")
    console.print()
    sides = {
        "workload": "left",
        "replicas": "right",
        "of": "left",
        "devices": "right",
        "hour": "right",
        "used": "right",
    }
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
    console.print(_output.table([(say(f"plan.col_{name}"), side) for name, side in sides.items()], rows))
