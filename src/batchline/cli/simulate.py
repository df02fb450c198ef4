"""`batchline simulate`: traffic through a deployment's scheduler, event by event."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output
from batchline.errors import InputError, UnknownNameError
from batchline.units import format_rate, format_time, format_usd

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager

    from batchline.deployment import Deployment
    from batchline.goodput import Promise
    from batchline.simulate import Pool, Result, Scheduler
    from batchline.step import Coefficients
    from batchline.workload import Arrivals, Lengths, Traffic

_PROMISES = ("ttft", "tpot", "itl", "e2e")
_KNOBS = ("max_num_seqs", "max_num_batched_tokens", "kv_blocks", "block_size", "prefix_caching")
_SWEPT = ("rate", "replicas", "max_num_seqs", "max_num_batched_tokens")
_ENOUGH = 2000  # requests, unless asked otherwise


class _Pairs(click.ParamType[Any]):
    """NAME=VALUE with commas between them."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Split the text; refuse a part without a name."""
        if not isinstance(value, str):
            return value
        parts = [part.partition("=") for part in value.split(",")]
        if not all(name.strip() and equals and text.strip() for name, equals, text in parts):
            raise InputError(f"{value!r} is no list like arrival=when,isl=in,osl=out.")
        return {name.strip(): text.strip() for name, _, text in parts}


def _traffic_options(command: Any) -> Any:
    options = [
        click.option(
            "--trace",
            type=click.Path(dir_okay=False),
            metavar="FILE",
            help="Requests of a .csv, .jsonl or .parquet file.",
        ),
        click.option(
            "--columns",
            type=_Pairs(),
            metavar="arrival=..,isl=..",
            help="Names of its columns, where they are not known.",
        ),
        click.option("--time-unit", metavar="s|ms|us|ns|datetime", help="Unit of its arrivals."),
        click.option(
            "--repair", is_flag=True, help="Leave rows out that cannot be, and sort, instead of refusing the trace."
        ),
        click.option(
            "--rate",
            type=_options.RATE,
            metavar="20/s",
            help="Requests that arrive; with --trace its rate is scaled to this.",
        ),
        click.option(
            "--arrivals",
            default="poisson",
            show_default=True,
            metavar="PATTERN",
            help="poisson, metronome, gamma:CV, burst:SIZE or diurnal:PEAK.",
        ),
        click.option(
            "--users",
            type=click.IntRange(min=1),
            help="People who wait for an answer and then think, instead of a rate.",
        ),
        click.option(
            "--think", "think_s", type=_options.DURATION, default=0.0, metavar="30s", help="How long they think, mean."
        ),
        click.option("--isl", type=_options.TOKENS, metavar="TOKENS", help="Tokens of a prompt, mean."),
        click.option("--osl", type=_options.TOKENS, metavar="TOKENS", help="Tokens of an answer, mean."),
        click.option(
            "--spread",
            type=click.FloatRange(min=0),
            default=0.0,
            metavar="SIGMA",
            help="Log-normal spread of both lengths; 0: all alike.",
        ),
        click.option(
            "--lengths",
            type=click.Path(dir_okay=False),
            metavar="TRACE",
            help="Draw lengths from this trace instead of --isl and --osl.",
        ),
        click.option(
            "--scale-lengths",
            type=click.FloatRange(min=0, min_open=True),
            default=1.0,
            metavar="2",
            help="Make prompts and answers longer or shorter.",
        ),
        click.option(
            "--shared-prefix",
            metavar="N:TOKENS",
            help="Every prompt begins with one of N system prompts of so many tokens.",
        ),
        click.option(
            "--requests", "count", type=click.IntRange(min=1), help=f"How many.  [default: the trace, or {_ENOUGH:,}]"
        ),
        click.option(
            "--duration", "duration_s", type=_options.DURATION, metavar="24h", help="For how long they arrive, instead."
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="The same seed makes the same requests.",
        ),
    ]
    return _with(command, options)


def _engine_options(command: Any) -> Any:
    options = [
        click.option(
            "--scheduler",
            type=click.Choice(["engine", "static", "train"]),
            default="engine",
            show_default=True,
            help="That of --engine, static batches of --max-num-seqs, or the lecture's train.",
        ),
        click.option(
            "--max-num-seqs",
            type=click.IntRange(min=1),
            help="Most requests that run together.  [default: the engine's]",
        ),
        click.option(
            "--max-num-batched-tokens",
            type=click.IntRange(min=1),
            help="Token budget of a step.  [default: the engine's]",
        ),
        click.option(
            "--kv-blocks",
            type=click.IntRange(min=1),
            help="Blocks of the KV cache, as its log says.  [default: computed]",
        ),
        click.option("--block-size", type=click.IntRange(min=1), help="Tokens of a block.  [default: 16]"),
        click.option(
            "--prefix-caching/--no-prefix-caching",
            default=True,
            show_default=True,
            help="Keep blocks findable that were freed.",
        ),
        click.option(
            "--period",
            "period_s",
            type=_options.DURATION,
            default="20ms",
            show_default=True,
            metavar="20ms",
            help="With --scheduler train: time between departures.",
        ),
        click.option(
            "--timeout",
            "timeout_s",
            type=_options.DURATION,
            default=1.0,
            metavar="1s",
            help="With --scheduler static: longest wait for a full batch.  [default: 1s]",
        ),
        click.option(
            "--max-model-len", type=_options.TOKENS, metavar="TOKENS", help="Longest request.  [default: the engine's]"
        ),
        click.option(
            "--replicas", type=click.IntRange(min=1), default=1, show_default=True, help="Copies of the deployment."
        ),
        click.option(
            "--router", default="round_robin", show_default=True, help="round_robin, least_loaded or prefix_aware."
        ),
        click.option(
            "--prefill-replicas",
            type=click.IntRange(min=1),
            help="Compute prompts on so many copies apart; --replicas then only decode.",
        ),
        click.option(
            "--transfer",
            type=_options.BANDWIDTH,
            default="50GB/s",
            show_default=True,
            metavar="GB/s",
            help="Link over which each of them sends KV caches.",
        ),
    ]
    return _with(command, options)


def _with(command: Any, options: list[Any]) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


@click.command("simulate")
@click.argument("model")
@_options.deployment_options
@_traffic_options
@_engine_options
@click.option(
    "--profile", type=click.Path(dir_okay=False), metavar="FILE", help="Profile of `batchline calibrate` for the clock."
)
@click.option("--ttft", metavar="p95:2s", help="Promise on the first token; without pNN the mean.")
@click.option("--tpot", metavar="p95:40ms", help="Promise on the time per output token.")
@click.option("--itl", metavar="p99:100ms", help="Promise on the gap between tokens.")
@click.option("--e2e", metavar="p95:30s", help="Promise on the whole request.")
@click.option(
    "--find", type=click.Choice(["replicas", "max-num-seqs"]), help="Find the fewest replicas, or the best knob."
)
@click.option(
    "--sweep",
    metavar="NAME=V,V,..",
    help=f"Simulate several values of {', '.join(n.replace('_', '-') for n in _SWEPT)}.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes for --find and --sweep.  [default: 1]")
@click.option(
    "--cluster", "address", metavar="tcp://..", help="Dask scheduler for --find and --sweep (extra `cluster`)."
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write every request to a .csv or .parquet file.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Draw what ran, waited and filled the cache over time.",
)
@click.option(
    "--plot-times", type=click.Path(dir_okay=False, writable=True), metavar="FILE", help="Draw how long requests took."
)
@click.option(
    "--theme", type=click.Choice(["light", "dark"]), default="light", show_default=True, help="Colours of the pictures."
)
@_options.output_options
def command(model: str, **options: Any) -> None:
    """Serve traffic event by event: percentiles under load, preemption, prefix reuse, and what saturates.

    MODEL is a name of the catalogue, a config.json, or a folder that holds one. Traffic is a trace or a pattern.

    \b
    batchline simulate llama-3.1-8b --on h100 --trace azure.csv
    batchline simulate llama-3.1-70b --on 4xh100 --rate 8/s --isl 2k --osl 500 --ttft p95:2s --find replicas
    batchline simulate qwen3-32b --on 2xh100 --rate 4/s --isl 1k --osl 1k --sweep rate=1,2,4,8 --workers 4
    """
    deployment = _options.deployment_of(model, options)
    if options["max_model_len"]:
        from dataclasses import replace

        request = replace(deployment.request, max_model_len=options["max_model_len"])
        deployment = replace(deployment, request=request)
    traffic = _traffic(options)
    context = _mean_context(traffic)
    promises = _promises(options)
    run = _Run(deployment, traffic, context, promises, options)
    if options["sweep"]:
        _swept(run)
    elif options["find"]:
        _found(run)
    else:
        _single(run)


# -- what is asked ----------------------------------------------------------------------------------------------------


def _arrivals(pattern: str, rate: float, duration_s: float | None) -> Arrivals:
    from batchline import workload

    name, _, text = pattern.partition(":")
    try:
        value = float(text) if text else None
    except ValueError:
        raise InputError(f"--arrivals {pattern}: {text!r} is no number.") from None
    made: dict[str, Callable[[], Arrivals]] = {
        "poisson": lambda: workload.Poisson(rate),
        "metronome": lambda: workload.Metronome(rate),
        "gamma": lambda: workload.GammaGaps(rate, 2.0 if value is None else value),
        "burst": lambda: workload.Bursts(rate, 8 if value is None else int(value)),
        "diurnal": lambda: workload.Diurnal(rate, 1.8 if value is None else value, min(duration_s or 86400.0, 86400.0)),
    }
    if name not in made:
        raise UnknownNameError("pattern of arrivals", name, made)
    return made[name]()


def _lengths(options: dict[str, Any]) -> tuple[Lengths, Lengths]:
    import math

    from batchline import workload

    if options["lengths"]:
        isl, osl = workload.read_lengths(workload.trace(options["lengths"], repair=options["repair"]))
        return workload.Empirical(isl), workload.Empirical(osl)
    if not options["isl"] or not options["osl"]:
        raise InputError("How long are the requests?", "", "Give --isl and --osl, --lengths FILE, or --trace FILE.")
    sigma = options["spread"]
    if sigma == 0:
        return workload.Fixed(options["isl"]), workload.Fixed(options["osl"])
    shift = math.exp(sigma**2 / 2)  # a log-normal's mean over its median
    return workload.LogNormal(options["isl"] / shift, sigma), workload.LogNormal(options["osl"] / shift, sigma)


def _shared_prefix(text: str | None) -> tuple[int, int]:
    if not text:
        return 0, 0
    from batchline.units import parse_tokens

    groups, _, tokens = text.partition(":")
    if not groups.isdigit() or not tokens:
        raise InputError(f"--shared-prefix {text} is not like 20:1k.")
    return int(groups), parse_tokens(tokens)


def _traffic(options: dict[str, Any]) -> Traffic:
    from batchline import workload

    if options["trace"]:
        return _traced(options)
    if options["users"]:
        isl, osl = _lengths(options)
        traffic = workload.closed_loop(
            options["users"],
            isl,
            osl,
            count=options["count"] or max(_ENOUGH, 20 * options["users"]),
            think_s=options["think_s"],
            seed=options["seed"],
        )
    elif options["rate"]:
        isl, osl = _lengths(options)
        count = options["count"] or (None if options["duration_s"] else _ENOUGH)
        traffic = workload.synthetic(
            _arrivals(options["arrivals"], options["rate"], options["duration_s"]),
            isl,
            osl,
            count=count,
            duration_s=options["duration_s"],
            seed=options["seed"],
            shared_prefix=_shared_prefix(options["shared_prefix"]),
        )
    else:
        raise InputError("Which traffic?", "", "Give --trace FILE, --rate 20/s or --users 100.")
    factor = options["scale_lengths"]
    return workload.rescaled(traffic, isl=factor, osl=factor)


def _traced(options: dict[str, Any]) -> Traffic:
    from batchline import workload

    traffic = workload.trace(
        options["trace"], columns=options["columns"], time_unit=options["time_unit"], repair=options["repair"]
    )
    factor = options["scale_lengths"]
    rate = 1.0
    if options["rate"]:
        requests = workload.whole(traffic)
        spans = float(requests.arrival_s[-1] - requests.arrival_s[0])
        if spans <= 0:
            raise InputError("All requests of the trace come at once: its rate cannot be scaled.")
        rate = options["rate"] / ((len(requests) - 1) / spans)
    traffic = workload.rescaled(traffic, rate=rate, isl=factor, osl=factor)
    return workload.limited(traffic, options["count"]) if options["count"] else traffic


def _mean_context(traffic: Traffic) -> float:
    """Mean context of a sequence, by the first chunk of requests."""
    first = next(traffic.chunks())
    weights = first.osl.sum()
    return float((first.osl * (first.isl + first.osl / 2)).sum() / weights)


def _promises(options: dict[str, Any]) -> dict[str, Promise]:
    from batchline.goodput import Promise

    return {name: Promise.parse(options[name]) for name in _PROMISES if options[name]}


class _Run:
    """Everything that a simulation takes, so that single values of it can be changed."""

    def __init__(
        self,
        deployment: Deployment,
        traffic: Traffic,
        context: float,
        promises: dict[str, Promise],
        options: dict[str, Any],
    ) -> None:
        self.deployment = deployment
        self.traffic = traffic
        self.context = context
        self.promises = promises
        self.options = options

    def pool(self, **changes: Any) -> Pool:
        """Engines, with some knobs changed."""
        from batchline import simulate

        options = {**self.options, **changes}
        scheduler = self._scheduler(options)
        return simulate.pool_of(
            self.deployment,
            context=self.context,
            scheduler=scheduler,
            knobs=None if scheduler else self._knobs(options),
            coefficients=self._coefficients(),
            replicas=options["replicas"],
        )

    def _coefficients(self) -> Coefficients | None:
        if not self.options.get("profile"):
            return None
        from batchline import readings
        from batchline.calibrate import Profile

        priors = Profile.load(self.options["profile"]).prior()
        return priors.coefficients(readings.case_of(self.deployment))

    def _scheduler(self, options: dict[str, Any]) -> Scheduler | None:
        from batchline.simulate import Static, Train

        if options["scheduler"] == "engine":
            return None
        held = self.deployment.account
        blocks = options["kv_blocks"] or held.pool.blocks
        size = options["block_size"] or held.pool.layout.block
        if options["scheduler"] == "static":
            batch = options["max_num_seqs"] or 32
            return Static(batch=batch, timeout_s=options["timeout_s"], kv_tokens=blocks * size)
        return Train(
            period_s=options["period_s"],
            max_num_seqs=options["max_num_seqs"] or 2048,
            max_num_batched_tokens=options["max_num_batched_tokens"],
            kv_blocks=blocks,
            block_size=size,
        )

    def _knobs(self, options: dict[str, Any]) -> dict[str, Any]:
        return {name: options[name] for name in _KNOBS if options[name] is not None}

    def arguments(self) -> dict[str, Any]:
        """Arguments of `simulate` beside engines and traffic."""
        from batchline import simulate

        found: dict[str, Any] = {"router": self.options["router"]}
        if self.options["prefill_replicas"]:
            found["prefill"] = self.pool(replicas=self.options["prefill_replicas"])
            transfer = simulate.transfer_of(self.deployment, self.options["transfer"])
            found["transfer_s"], found["transfer_token_s"] = transfer
        return found

    def served(self, pool: Pool) -> Traffic:
        """Traffic without what fits nowhere, if repairs are allowed."""
        from batchline import simulate

        return simulate.fitting(self.traffic, pool) if self.options["repair"] else self.traffic

    def source(self) -> AbstractContextManager[Callable[[], Executor] | None]:
        """Where many simulations run."""
        from contextlib import nullcontext

        from batchline.simulate import sweep

        if self.options["address"]:
            return sweep.cluster(self.options["address"])
        if self.options["workers"] and self.options["workers"] > 1:
            return sweep.processes(self.options["workers"])
        return nullcontext()


# -- what is done -----------------------------------------------------------------------------------------------------


def _single(run: _Run) -> None:
    from batchline import simulate

    pool = run.pool()
    result = simulate.simulate(pool, run.served(pool), promises=run.promises, **run.arguments())
    _warn(run, result)
    if run.options["as_json"]:
        _output.print_json({**_head(run), **result.to_dict()})
    elif run.options["as_csv"]:
        _output.print_csv(_rows(result))
    else:
        _print(run, result)
    _write(run, result)


def _found(run: _Run) -> None:
    from batchline.simulate import search

    pool = run.pool()
    traffic = run.served(pool)
    with run.source() as source:
        if run.options["find"] == "replicas":
            found = search.smallest_replicas(pool, traffic, run.promises, source=source, **run.arguments())
        else:
            most = run.options["max_num_seqs"] or pool.scheduler.max_num_seqs
            found = search.best_knob(
                lambda value: run.pool(max_num_seqs=value),
                traffic,
                run.promises,
                low=1,
                high=most,
                source=source,
                **run.arguments(),
            )
    _warn(run, found.result)
    name = run.options["find"].replace("-", "_")
    if run.options["as_json"]:
        tried = {value: _brief(result) for value, result in found.tried.items()}
        _output.print_json({**_head(run), name: found.value, "tried": tried, **found.result.to_dict()})
    elif run.options["as_csv"]:
        _output.print_csv([{name: value, **_brief(result)} for value, result in found.tried.items()])
    else:
        console = _output.console()
        _print(run, found.result)
        console.print(_compared(name, found.tried, found.value))
        console.print()
        what = "The fewest replicas" if name == "replicas" else f"The best {name}"
        console.print(f"  {what}: {found.value:,}.", style="bold green")
        console.print()
    _write(run, found.result)


def _swept(run: _Run) -> None:
    from batchline import workload
    from batchline.simulate.sweep import Case, sweep

    name, values = _values(run.options["sweep"])
    cases = []
    for value in values:
        traffic = run.traffic
        pool = run.pool(**({} if name == "rate" else {name: int(value)}))
        if name == "rate":
            if not run.options["rate"]:
                raise InputError("A sweep over the rate scales --rate.", "", "Give --rate as well.")
            traffic = workload.rescaled(traffic, rate=value / run.options["rate"])
        cases.append(Case(pool=pool, traffic=traffic, options={**run.arguments(), "promises": run.promises}))
    shown = run.options["as_json"] or run.options["as_csv"]
    tried: dict[float, Result] = {}
    with run.source() as source:
        for place, result in sweep(cases, source, progress=None if shown else _progress):
            tried[values[place]] = result
    tried = dict(sorted(tried.items()))
    if run.options["as_json"]:
        _output.print_json(
            {**_head(run), "sweep": [{name: value, **result.to_dict()} for value, result in tried.items()]}
        )
    elif run.options["as_csv"]:
        _output.print_csv([{name: value, **_brief(result)} for value, result in tried.items()])
    else:
        console = _output.console()
        console.print()
        console.print(run.deployment.title, style="bold")
        console.print()
        console.print(_compared(name, tried, None))
        console.print()


def _progress(done: int, of: int) -> None:
    click.echo(f"{done} of {of} simulations", err=True)


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
        raise InputError(f"--sweep {text}: values above 0 with commas between them, like rate=1,2,4.")
    return name, values


# -- what is shown ----------------------------------------------------------------------------------------------------


def _head(run: _Run) -> dict[str, Any]:
    return {
        "deployment": run.deployment.title,
        "engine": run.deployment.engine,
        "traffic": run.traffic.name,
        "mean_context": run.context,
    }


def _brief(result: Result) -> dict[str, Any]:
    return {
        "requests_per_s": result.requests_per_s,
        "output_tokens_per_s": result.output_tokens_per_s,
        **{
            f"{name}_{point}_s": getattr(result.times[name], point)
            for name in ("ttft", "tpot", "e2e")
            for point in ("p50", "p99")
        },
        "goodput": result.goodput,
        "preemptions": result.preemptions,
        "kv_peak": result.kv_peak,
        "usd_per_mtok": result.usd_per_mtok,
        "promises_kept": all(result.keeps().values()),
        "saturated_by": result.saturated_by,
    }


def _rows(result: Result) -> list[dict[str, Any]]:
    if result.table is None:
        raise InputError("There are too many requests to print.", "", "Take --requests to limit them, or --json.")
    columns = {name: values.tolist() for name, values in result.table.columns().items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _warn(run: _Run, result: Result) -> None:
    for what, count in result.repairs.items():
        _output.warn(f"{count:,} {what}.")
    if run.deployment.price is None:
        _output.warn(f"no price is known for {run.deployment.accelerator.name}: no costs. Give --price.")
    if not result.compiled and result.requests > 20_000:
        _output.warn("numba is not installed: the same answer, slower. pip install 'batchline\\[fast]'.")


def _print(run: _Run, result: Result) -> None:
    console = _output.console()
    console.print()
    console.print(f"{run.deployment.title}, {run.traffic.name}: {result.requests:,} requests", style="bold")
    console.print()
    console.print(f"  {result.sentence()}", style="bold green")
    console.print()
    columns = [("", "left"), *((name, "right") for name in ("p50", "p90", "p95", "p99", "mean", "longest"))]
    names = {
        "ttft": "first token",
        "tpot": "per token",
        "itl": "gap",
        "e2e": "whole request",
        "wait": "in the queue",
    }
    rows = []
    for metric, label in names.items():
        one = result.times[metric]
        if one.count:
            points = (one.p50, one.p90, one.p95, one.p99, one.mean, one.max)
            rows.append((f"  {label}", *(format_time(value) for value in points)))
    console.print(_output.table(columns, rows))
    console.print()
    for line in _lines(result):
        console.print(f"  {line}")
    console.print()


def _lines(result: Result) -> list[str]:
    lines = [
        f"{format_rate(result.requests_per_s, 'req/s')}, {format_rate(result.output_tokens_per_s)} out, "
        f"{result.running_batch:,.1f} sequences decode together on average."
    ]
    if result.kv_peak is not None:
        again = f"{result.preemptions:,} preemptions" if result.preemptions else "no preemption"
        hits = f", {result.prefix_hit_rate:.0%} of prompt tokens found in it" if result.cached_tokens else ""
        lines.append(f"KV cache at most {result.kv_peak:.0%} full, {again}{hits}.")
    for metric, kept in result.keeps().items():
        lines.append(f"{metric} {result.promises[metric]}: {'kept' if kept else 'broken'}.")
    if result.promises:
        share = result.goodput / result.requests_per_s
        lines.append(f"Goodput {format_rate(result.goodput, 'req/s')}: {share:.1%} of the requests met all limits.")
    if result.usd_per_mtok is not None:
        energy = "" if result.joules_per_token is None else f", at most {result.joules_per_token:,.2g} J/token"
        lines.append(f"{format_usd(result.usd_per_mtok)} per million output tokens{energy}.")
    return lines


def _compared(name: str, tried: Any, best: int | None) -> Any:
    headings = (name, "req/s", "tok/s", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "goodput", "KV", "$/Mtok")
    columns = [*((heading, "right") for heading in headings), ("", "left")]
    rows, styles = [], []
    for value, result in tried.items():
        ttft, tpot = result.times["ttft"], result.times["tpot"]
        kept = all(result.keeps().values())
        state = result.saturated_by or ("" if kept else "promise broken")
        rows.append(
            (
                f"{value:,.6g}",
                f"{result.requests_per_s:,.3g}",
                f"{result.output_tokens_per_s:,.0f}",
                format_time(ttft.p50),
                format_time(ttft.p99),
                format_time(tpot.p50),
                format_time(tpot.p99),
                f"{result.goodput:,.3g}/s",
                "-" if result.kv_peak is None else f"{result.kv_peak:.0%}",
                "-" if result.usd_per_mtok is None else f"{result.usd_per_mtok:,.3g}",
                state,
            )
        )
        styles.append("bold green" if value == best else "" if kept else "dim")
    return _output.table(columns, rows, styles)


def _write(run: _Run, result: Result) -> None:
    if run.options["save"]:
        _save(result, Path(run.options["save"]))
    if not run.options["plot"] and not run.options["plot_times"]:
        return
    from batchline import chart, chart_simulation

    for option, draw in (("plot", chart_simulation.over_time), ("plot_times", chart_simulation.times)):
        if run.options[option]:
            chart.save(draw(result, theme=run.options["theme"]), run.options[option])
            click.echo(f"Picture: {run.options[option]}", err=True)


def _save(result: Result, path: Path) -> None:
    from batchline.simulate.result import save_table

    if result.table is None:
        raise InputError("Requests are kept up to two million.", "", "Take --requests to limit them.")
    save_table(result.table, path)
    click.echo(f"Requests: {path}", err=True)
