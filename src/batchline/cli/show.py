"""`batchline show`: one model or accelerator, with its sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output
from batchline.cli._language import say
from batchline.cli._spoken import Spoken
from batchline.errors import BatchlineError, UnknownNameError
from batchline.strings import text
from batchline.units import format_bytes, format_count, format_tokens

if TYPE_CHECKING:
    from batchline.accelerator import Accelerator
    from batchline.architecture import Architecture


@click.command("show", cls=Spoken)
@click.argument("name")
@click.option(
    "--context",
    type=_options.TOKENS,
    default="32k",
    show_default=True,
    metavar="TOKENS",
    help=text("help.show_context"),
)
@click.option("--weights", metavar="FORMAT", help=text("help.show_weights"))
@click.option("--kv", default="bf16", show_default=True, metavar="FORMAT", help=text("help.kv"))
@click.option("--json", "as_json", is_flag=True, help=text("help.as_json"))
def command(name: str, context: int, weights: str | None, kv: str, as_json: bool) -> None:
    """Show one model, config.json, folder or accelerator: its figures and where they are from.

    \b
    batchline show deepseek-v3
    batchline show ./my-model/config.json --context 32k --json
    batchline show h100
    """
    record = _record(name, context, weights, kv)
    if as_json:
        _output.print_json(record)
        return
    console = _output.console()
    console.print(f"\n{record['name']}\n", style="bold")
    console.print(_output.table([("", "left"), ("", "left")], _readable(record)))


def _record(name: str, context: int, weights: str | None, kv: str) -> dict[str, Any]:
    from batchline import accelerator, architecture

    on_disk = Path(name).exists()
    if not on_disk:
        try:
            return accelerator_record(accelerator.Accelerator.load(name))
        except UnknownNameError:
            pass
    try:
        return model_record(architecture.Architecture.load(name), context, weights, kv)
    except UnknownNameError as error:
        known = [*architecture.names(), *accelerator.names()]
        raise UnknownNameError("model or accelerator", name, known, error.hint) from None


def model_record(model: Architecture, context: int, weights: str | None, kv: str) -> dict[str, Any]:
    """Figures of a model, sequences sized at a context [token], and where they are from."""
    shared, routed = model.step_weight_bytes(weights)
    return {
        "name": model.name,
        "kind": "model",
        "model_type": model.model_type,
        "layers": model.layers,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "max_context": model.max_context,
        "total_params": model.total_params,
        "active_params": model.active_params,
        "active_params_with_embedding": model.active_params_with_embedding,
        "experts": model.experts,
        "experts_per_token": model.experts_per_token,
        "weights": weights or model.weight_format,
        "weight_bytes": model.weight_bytes(weights),
        "step_weight_bytes": shared + routed,
        "kv": kv,
        "kv_bytes_per_token": model.kv_bytes_per_token(kv),
        "context": context,
        "stored_bytes": float(model.stored_bytes(context, kv)),
        "read_bytes": float(model.read_bytes(context, kv)),
        "source": model.source,
        "date": model.date,
    }


def accelerator_record(device: Accelerator) -> dict[str, Any]:
    """Figures of an accelerator, and where they are from."""
    from batchline import price

    record: dict[str, Any] = {
        "name": device.name,
        "kind": "accelerator",
        "vendor": device.vendor,
        "generation": device.generation,
        "memory_bytes": device.memory,
        "memory_visible_bytes": device.memory_visible,
        "bandwidth": device.bandwidth,
        "flops": dict(device.flops),
        "link_bandwidth": device.link_bandwidth,
        "peer_bandwidth": device.peer_bandwidth,
        "scale_up_domain": device.scale_up_domain,
        "tdp_w": device.tdp,
    }
    try:
        quoted = price.load(device.name)
    except BatchlineError:
        quoted = None
    if quoted is not None:
        record["usd_per_device_hour"] = {
            "low": quoted.low,
            "median": quoted.median,
            "high": quoted.high,
            "prices": quoted.n,
        }
    return {**record, "source": device.source, "date": device.date}


def _readable(record: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (say(f"show.{key}"), _figure(key, value))
        for key, value in record.items()
        if key not in ("name", "kind") and value not in (None, 0, {})
    ]


def _figure(key: str, value: Any) -> str:
    if key.endswith("_bytes") or key == "kv_bytes_per_token":
        return format_bytes(value)
    if key.endswith("bandwidth"):
        return f"{format_bytes(value)}/s"
    if "params" in key:
        return f"{format_count(value)}  ({value:,})"
    if key == "flops":
        return ", ".join(f"{fmt} {rate / 1e12:,.0f} TFLOPS" for fmt, rate in value.items())
    if key == "usd_per_device_hour":
        prices = {name: f"${value[name]:.2f}" for name in ("low", "median", "high")}
        return say("show.prices", **prices, count=f"{value['prices']:,}")
    if key == "tdp_w":
        return f"{value:,.0f} W"
    return format_tokens(value) if isinstance(value, int) else str(value)
