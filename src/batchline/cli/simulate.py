"""`batchline simulate`: traffic through a deployment's scheduler, event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output, _simulate_answer, _simulate_question
from batchline.cli._language import current, say
from batchline.cli._spoken import Spoken
from batchline.errors import InputError, UnknownNameError
from batchline.strings import Sentence, text

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from batchline.simulate import Pool, Result
    from batchline.simulate.question import Question
    from batchline.simulate.sweep import Case

_SWEPT = ("rate", "replicas", "max_num_seqs", "max_num_batched_tokens")


@click.command("simulate", cls=Spoken)
@click.argument("model")
@_options.deployment_options
@_simulate_question.traffic_options
@_simulate_question.scheduler_options
@_options.profile_option
@_simulate_question.promise_options
@click.option(
    "--find",
    type=click.Choice(["replicas", "max-num-seqs", "max-num-batched-tokens"]),
    help=text("help.find"),
)
@click.option("--sweep", metavar="NAME=V,V,..", help=text("help.sweep"))
@click.option("--workers", type=click.IntRange(min=1), help=text("help.simulate_workers"))
@click.option("--cluster", "address", metavar="tcp://..", help=text("help.address"))
@click.option("--save", type=_options.FILE, help=text("help.save"))
@click.option("--plot", type=_options.FILE, help=text("help.simulate_plot"))
@click.option("--plot-times", type=_options.FILE, help=text("help.plot_times"))
@_options.theme_option
@_options.output_options
def command(model: str, **options: Any) -> None:
    """Serve traffic event by event: percentiles under load, preemption, prefix reuse, and what saturates.

    \b
    batchline simulate llama-3.1-8b --on h100 --trace azure.csv
    batchline simulate llama-3.1-70b --on 4xh100 --rate 8/s --isl 2k --osl 500 --ttft p95:2s --find replicas
    batchline simulate qwen3-32b --on 2xh100 --rate 4/s --isl 1k --osl 1k --sweep rate=1,2,4,8 --workers 4
    """
    asked = _simulate_question.question_of(model, options)
    if options["sweep"]:
        _swept(asked, options)
    elif options["find"]:
        _found(asked, options)
    elif options["workers"] or options["address"]:
        raise InputError(Sentence("error.many_simulations"), "", Sentence("error.add_find"))
    else:
        _single(asked, options)


def _single(asked: Question, options: dict[str, Any]) -> None:
    result = asked.answer()
    _simulate_answer.warn(asked, result)
    if options["as_json"]:
        _output.print_json({**asked.to_dict(), **result.to_dict()})
    elif options["as_csv"]:
        _output.print_csv(_simulate_answer.rows(result))
    else:
        _simulate_answer.show(asked, result)
    _simulate_answer.write(result, options)


def _source(options: dict[str, Any]) -> AbstractContextManager[Callable[[], Executor] | None]:
    """Where many simulations run."""
    from contextlib import nullcontext

    from batchline.simulate import sweep

    if options["address"]:
        return sweep.cluster(options["address"])
    if options["workers"] and options["workers"] > 1:
        return sweep.processes(options["workers"])
    return nullcontext()


def _found(asked: Question, options: dict[str, Any]) -> None:
    from batchline.simulate import search

    pool = asked.pool()
    traffic = asked.served(pool)
    name = options["find"].replace("-", "_")
    with _source(options) as source:
        if name == "replicas":
            found = search.smallest_replicas(pool, traffic, asked.promises, source=source, **asked.options())
        else:
            found = search.best_knob(
                lambda value: asked.pool(**{name: value}),
                traffic,
                asked.promises,
                **_bounds(asked, pool, name),
                source=source,
                **asked.options(),
            )
    _simulate_answer.warn(asked, found.result)
    if options["as_json"]:
        tried = {value: _simulate_answer.brief(result) for value, result in found.tried.items()}
        _output.print_json({**asked.to_dict(), name: found.value, "tried": tried, **found.result.to_dict()})
    elif options["as_csv"]:
        _output.print_csv([{name: value, **_simulate_answer.brief(result)} for value, result in found.tried.items()])
    else:
        console = _output.console()
        _simulate_answer.show(asked, found.result)
        console.print(_simulate_answer.compared(name, found.tried, found.value))
        console.print()
        key = "simulate.fewest_replicas" if name == "replicas" else "simulate.best_knob"
        console.print(f"  {say(key, name=name, value=f'{found.value:,}')}", style="bold green")
        console.print()
    _simulate_answer.write(found.result, options)


def _bounds(asked: Question, pool: Pool, name: str) -> dict[str, int]:
    """Between which values a knob is sought."""
    seats = pool.scheduler.max_num_seqs
    if name == "max_num_seqs":
        return {"low": 1, "high": seats}
    if asked.scheduler == "static":
        raise InputError(Sentence("error.static_no_budget"), "", Sentence("error.find_seqs"))
    most = asked.max_num_batched_tokens or 4 * asked.deployment.account.max_num_batched_tokens
    return {"low": seats, "high": max(most, seats)}


def _swept(asked: Question, options: dict[str, Any]) -> None:
    from batchline.simulate.sweep import sweep

    for option in ("save", "plot", "plot_times"):
        if options[option]:
            name = option.replace("_", "-")
            raise InputError(Sentence("error.of_one_simulation", name=name), "", Sentence("error.csv_of_sweep"))
    name, values = _values(options["sweep"])
    shown = options["as_json"] or options["as_csv"]
    cases = [_case(asked, name, value) for value in values]
    tried: dict[float, Result] = {}
    with _source(options) as source:
        for place, result in sweep(cases, source, progress=None if shown else _progress):
            tried[values[place]] = result
    tried = dict(sorted(tried.items()))
    if options["as_json"]:
        swept = [{name: value, **result.to_dict()} for value, result in tried.items()]
        _output.print_json({**asked.to_dict(), "sweep": swept})
    elif options["as_csv"]:
        _output.print_csv([{name: value, **_simulate_answer.brief(result)} for value, result in tried.items()])
    else:
        console = _output.console()
        console.print()
        console.print(asked.deployment.titled(current()), style="bold")
        console.print()
        console.print(_simulate_answer.compared(name, tried))
        console.print()


def _case(asked: Question, name: str, value: float) -> Case:
    from batchline import workload
    from batchline.simulate.sweep import Case

    pool = asked.pool(**({} if name == "rate" else {name: int(value)}))
    traffic = asked.served(pool)
    if name == "rate":
        if not asked.load.rate:
            raise InputError(Sentence("error.sweep_scales"), "", Sentence("error.give_rate_too"))
        traffic = workload.rescaled(traffic, rate=value / asked.load.rate)
    return Case(pool=pool, traffic=traffic, options={**asked.options(), "promises": asked.promises})


def _progress(done: int, of: int) -> None:
    click.echo(say("simulate.done", done=done, of=of), err=True)


def _values(text: str) -> tuple[str, list[float]]:
    name, equals, listed = text.partition("=")
    name = name.strip().replace("-", "_")
    if name not in _SWEPT:
        raise UnknownNameError("thing to sweep", name, _SWEPT)
    try:
        values = [float(value) for value in listed.split(",")]
    except ValueError:
        values = []
    if not equals or not values or min(values) <= 0 or (name != "rate" and any(value % 1 for value in values)):
        raise InputError(Sentence("error.write_sweep", given=f"{text}"))
    return name, values
