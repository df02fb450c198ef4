"""`batchline memory`: what the engine's start-up log will say, and what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output
from batchline.cli._language import current, say
from batchline.cli._spoken import Spoken
from batchline.strings import text
from batchline.units import GIBI, format_tokens

if TYPE_CHECKING:
    from batchline.deployment import Deployment
    from batchline.engine import Account, Change, Engine, Request


@click.command("memory", cls=Spoken)
@click.argument("model")
@_options.deployment_options
@click.option("--max-model-len", type=_options.TOKENS, metavar="TOKENS", help=text("help.memory_max_model_len"))
@click.option("--max-num-seqs", type=click.IntRange(min=1), help=text("help.memory_max_num_seqs"))
@click.option(
    "--max-num-batched-tokens",
    type=_options.TOKENS,
    metavar="TOKENS",
    help=text("help.memory_max_num_batched_tokens"),
)
@click.option(
    "--gpu-memory-utilization",
    "--mem-fraction-static",
    "utilization",
    type=click.FloatRange(min=0, max=1, min_open=True),
    metavar="0.9",
    help=text("help.utilization"),
)
@click.option("--block-size", type=click.IntRange(min=1), help=text("help.memory_block_size"))
@click.option("--enforce-eager", is_flag=True, help=text("help.enforce_eager"))
@click.option("--windows", type=click.Choice(["kept", "full"]), help=text("help.windows"))
@click.option(
    "--context",
    type=_options.TOKENS,
    default="4k",
    show_default=True,
    metavar="TOKENS",
    help=text("help.memory_context"),
)
@click.option("--json", "as_json", is_flag=True, help=text("help.as_json"))
def command(model: str, **options: Any) -> None:
    """Say what the engine will print about memory when it starts, and what that means.

    \b
    batchline memory qwen3-32b --on h200 --engine vllm
    batchline memory llama-3.1-70b --on 2xh100 --weights fp8 --max-model-len 32k --context 6k
    """
    from batchline import engine

    deployment = _options.deployment_of(model, options)
    chosen = engine.Engine.load(deployment.engine, deployment.engine_version or None)
    request = engine.Request(
        max_model_len=options["max_model_len"],
        max_num_seqs=options["max_num_seqs"],
        max_num_batched_tokens=options["max_num_batched_tokens"],
        gpu_memory_utilization=options["utilization"],
        block=options["block_size"],
        enforce_eager=options["enforce_eager"],
        windows=options["windows"],
    )
    layout = {name: getattr(deployment, name) for name in ("weights", "kv", "tp", "pp", "dp", "ep")}
    account = engine.account(deployment.architecture, deployment.accelerator, chosen, request=request, **layout)
    changes = engine.changes(deployment.architecture, deployment.accelerator, chosen, request=request, **layout)
    context = options["context"]
    _warn(account, deployment, context)
    if options["as_json"]:
        _output.print_json(_record(account, changes, deployment, chosen, request, context))
    else:
        _print(account, changes, deployment, chosen, request, context)


def _warn(account: Account, deployment: Deployment, context: int) -> None:
    if not account.layout_known:
        _output.warn(say("memory.compressed", model=deployment.architecture.name))
    if context > account.max_model_len:
        _output.warn(say("memory.beyond_longest", context=f"{context:,}", longest=f"{account.max_model_len:,}"))


def _smallest(deployment: Deployment, chosen: Engine, request: Request) -> tuple[int, int, int] | None:
    from batchline import engine

    return engine.smallest_count(
        deployment.architecture,
        deployment.accelerator,
        chosen,
        weights=deployment.weights,
        kv=deployment.kv,
        request=request,
    )


def _record(
    account: Account,
    changes: list[Change],
    deployment: Deployment,
    chosen: Engine,
    request: Request,
    context: int,
) -> dict[str, Any]:
    smallest = None if account.fits else _smallest(deployment, chosen, request)
    return {
        "model": deployment.architecture.name,
        "accelerator": deployment.accelerator.name,
        "count": deployment.count,
        "tp": deployment.tp,
        "pp": deployment.pp,
        "dp": deployment.dp,
        "ep": deployment.ep,
        "weights": deployment.weights_name,
        "kv": deployment.kv,
        "engine": chosen.name,
        "engine_version": chosen.version,
        "gpu_memory_utilization": account.gpu_memory_utilization,
        "max_model_len": account.max_model_len,
        "max_num_seqs": account.max_num_seqs,
        "max_num_batched_tokens": account.max_num_batched_tokens,
        "block_size": account.pool.layout.block,
        "memory_gib_per_device": account.memory_bytes / GIBI,
        "budget_gib_per_device": account.budget_bytes / GIBI,
        "weights_gib_per_device": account.weight_bytes / GIBI,
        "activation_gib_per_device": account.activation_bytes / GIBI,
        "non_torch_gib_per_device": account.non_torch_bytes / GIBI,
        "cuda_graph_gib_per_device": account.graph_bytes / GIBI,
        "kv_gib_per_device": account.kv_bytes / GIBI,
        "kv_tokens": account.kv_tokens,
        "max_concurrency": account.max_concurrency,
        "context": context,
        "capacity_batch": account.capacity_batch(context),
        "running_batch": account.running_batch(context),
        "largest_context": account.largest_context,
        "fits": account.fits,
        "missing_gib_per_device": account.missing_bytes / GIBI,
        "smallest_count": smallest[0] if smallest else (deployment.count if account.fits else None),
        "changes": [
            {
                "knob": change.knob,
                "kv_gib_per_device": change.account.kv_bytes / GIBI,
                "kv_tokens": change.account.kv_tokens,
                "capacity_batch": change.account.capacity_batch(context),
                "running_batch": change.account.running_batch(context),
                "fits": change.account.fits,
            }
            for change in changes
        ],
        "provenance": dict(account.provenance),
    }


def _print(
    account: Account,
    changes: list[Change],
    deployment: Deployment,
    chosen: Engine,
    request: Request,
    context: int,
) -> None:
    console = _output.console()
    console.print()
    named = {"deployment": deployment.titled(current()), "engine": chosen.title, "version": chosen.version}
    console.print(say("memory.title", **named, kv=deployment.kv), style="bold")
    console.print()
    for line in _log(account, chosen):
        console.print(f"  {line}", style="bold green" if account.fits else "bold")
    console.print()
    for line in _meaning(account, chosen, context):
        console.print(f"  {line}")
    if not account.fits:
        for line in _remedies(account, changes, deployment, chosen, request):
            console.print(f"  {line}", style="bold")
    console.print()
    console.print(_knobs(account, changes, context))
    console.print()
    for line in _provenance(account):
        console.print(f"  {line}", style="dim")


def _gib(size: float) -> str:
    return f"{size / GIBI:,.2f} GiB"


def _log(account: Account, chosen: Engine) -> list[str]:
    """The lines of the log, in the engine's own words where they are known."""
    tokens = account.kv_tokens
    if chosen.name == "sglang":
        fraction = f"{account.gpu_memory_utilization:g}"
        return [
            say("memory.log_sglang_weights", size=f"{account.weight_bytes / GIBI:.2f}"),
            say("memory.log_sglang_kv", tokens=tokens, size=f"{account.pool.kv_bytes / GIBI:.2f}"),
            say("memory.log_sglang_tokens", fraction=fraction, tokens=tokens),
        ]
    if chosen.name == "llama-cpp":
        return [
            say("memory.log_llama_weights", size=f"{account.weight_bytes / 2**20:,.2f}"),
            say("memory.log_llama_kv", size=f"{account.pool.kv_bytes / 2**20:,.2f}"),
            say("memory.log_llama_compute", size=f"{account.activation_bytes / 2**20:,.2f}"),
        ]
    requests = f"{account.max_concurrency:.2f}"
    return [
        say("memory.log_vllm_weights", size=_gib(account.weight_bytes)),
        say("memory.log_vllm_kv", size=_gib(account.kv_bytes)),
        say("memory.log_vllm_tokens", tokens=f"{tokens:,}"),
        say("memory.log_vllm_concurrency", longest=f"{account.max_model_len:,}", requests=requests),
    ]


def _meaning(account: Account, chosen: Engine, context: int) -> list[str]:
    room, running = account.capacity_batch(context), account.running_batch(context)
    of_total = chosen.accounting == "fraction_of_total"
    taken = say(
        "memory.takes" if of_total else "memory.takes_all",
        memory=_gib(account.memory_bytes),
        budget=_gib(account.budget_bytes),
        weights=_gib(account.weight_bytes),
        activations=_gib(account.activation_bytes),
        workspace=_workspace(account),
        outside=_gib(account.non_torch_bytes),
        graphs=say("memory.graphs", size=_gib(account.graph_bytes)) if account.graph_bytes and of_total else "",
        kv=_gib(account.kv_bytes),
    )
    if not account.fits:
        return [taken]
    binds = say(
        "memory.knob_binds" if running < room else "memory.cache_binds",
        context=format_tokens(context),
        room=f"{room:,}",
        running=f"{running:,}",
        max_num_seqs=f"{account.max_num_seqs:,}",
    )
    alone = account.pool.largest_context(1 << 30, account.max_num_batched_tokens)
    return [taken, binds, say("memory.longest", longest=f"{account.max_model_len:,}", alone=f"{alone:,}")]


def _workspace(account: Account) -> str:
    if account.limits == "sampler":
        return say("memory.sampler", sequences=f"{account.max_num_seqs:,}")
    return say("memory.forward", tokens=f"{account.max_num_batched_tokens:,}")


def _remedies(
    account: Account, changes: list[Change], deployment: Deployment, chosen: Engine, request: Request
) -> list[str]:
    lines = [say("memory.lacks", longest=f"{account.max_model_len:,}", missing=_gib(account.missing_bytes))]
    fitting = []
    if account.largest_context:
        fitting.append(f"--max-model-len {account.largest_context}")
    needed = account.gpu_memory_utilization + account.missing_bytes / account.memory_bytes
    if chosen.accounting != "slots" and needed <= 0.98:
        fitting.append(f"--gpu-memory-utilization {needed + 0.0005:.3f}")
    knobs = [change.knob for change in changes if change.account.fits]
    fitting += [knob for knob in knobs if not knob.startswith(("--gpu", "--max-model-len"))]
    if fitting:
        lines.append(say("memory.would_fit", knobs=say("memory.or").join(fitting)))
    name = deployment.accelerator.name
    smallest = _smallest(deployment, chosen, request)
    if smallest is None:
        return [*lines, say("memory.none_hold", device=name)]
    count, tp, pp = smallest
    layout = " x ".join([f"tp {tp}", *([f"pp {pp}"] if pp > 1 else [])])
    return [*lines, say("memory.fewest", count=count, device=name, layout=layout)]


def _knobs(account: Account, changes: list[Change], context: int) -> Any:
    columns = [(f"  {say('memory.knob')}", "left")]
    columns += [(say(f"memory.{name}"), "right") for name in ("kv_cache", "kv_tokens", "fit", "run_together")]
    columns.append(("", "left"))
    rows = [_knob(say("memory.as_it_is"), account, account, context)]
    rows += [_knob(change.knob, change.account, account, context, change.devices) for change in changes]
    return _output.table(columns, rows, ["bold"])


def _knob(label: str, turned: Account, now: Account, context: int, devices: float = 1.0) -> tuple[str, ...]:
    fit, run = turned.capacity_batch(context), turned.running_batch(context)
    before = now.running_batch(context)
    ratio = run / before / devices if before else 1.0
    gain = "" if abs(ratio - 1) < 0.005 else say("memory.gain", percent=f"{ratio - 1:+.0%}")
    return (
        f"  {label}",
        _gib(turned.kv_bytes),
        f"{turned.kv_tokens:,}",
        f"{fit:,}",
        f"{run:,}",
        gain if turned.fits else say("memory.does_not_fit"),
    )


def _provenance(account: Account) -> list[str]:
    workspace = "activation" if account.limits == "sampler" else "forward"
    shown = ("gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", workspace, "non_torch")
    return [f"{key}: {account.provenance[key]}" for key in shown if key in account.provenance]
