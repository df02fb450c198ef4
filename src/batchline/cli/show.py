"""`batchline show`: one model or accelerator, with its sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchline.cli import _options, _output
from batchline.errors import BatchlineError, UnknownNameError
from batchline.units import format_bytes, format_count, format_tokens

if TYPE_CHECKING:
    from batchline.accelerator import Accelerator
    from batchline.architecture import Architecture


@click.command("show")
@click.argument("name")
@click.option(
    "--context",
    type=_options.TOKENS,
    default="32k",
    show_default=True,
    metavar="TOKENS",
    help="Context at which a sequence is sized.",
)
@click.option("--weights", metavar="FORMAT", help="Number format of the weights.  [default: the checkpoint's own]")
@click.option("--kv", default="bf16", show_default=True, metavar="FORMAT", help="Number format of the KV cache.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str, context: int, weights: str | None, kv: str, as_json: bool) -> None:
    """Show one model, config.json, folder or accelerator: its figures and where they are from.

    \b
    batchline show deepseek-v3
    batchline show ./my-model/config.json --context 32k --json
    batchline show h100
    """
    record, source = _record(name, context, weights, kv)
    if as_json:
        _output.print_json({**record, **source})
        return
    console = _output.console()
    console.print(f"\n{record['name']}\n", style="bold")
    rows = [(label, text) for label, text in _readable(record)]
    console.print(
        _output.table([("", "left"), ("", "left")], [*rows, *((key, str(value)) for key, value in source.items())])
    )


def _record(name: str, context: int, weights: str | None, kv: str) -> tuple[dict[str, Any], dict[str, Any]]:
    from batchline import accelerator, architecture

    on_disk = Path(name).exists()
    if not on_disk:
        try:
            return _accelerator_record(accelerator.Accelerator.load(name))
        except UnknownNameError:
            pass
    try:
        return _model_record(architecture.Architecture.load(name), context, weights, kv)
    except UnknownNameError as error:
        known = [*architecture.names(), *accelerator.names()]
        raise UnknownNameError("model or accelerator", name, known, error.hint) from None


def _model_record(
    model: Architecture, context: int, weights: str | None, kv: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    shared, routed = model.step_weight_bytes(weights)
    record = {
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
    }
    return record, {"source": model.source, "date": model.date}


def _accelerator_record(device: Accelerator) -> tuple[dict[str, Any], dict[str, Any]]:
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
    return record, {"source": device.source, "date": device.date}


def _readable(record: dict[str, Any]) -> list[tuple[str, str]]:
    lines = []
    for key, value in record.items():
        if key in ("name", "kind") or value in (None, 0, {}):
            continue
        if key.endswith("_bytes") or key == "kv_bytes_per_token":
            text = format_bytes(value) + (" a token" if key == "kv_bytes_per_token" else "")
        elif key.endswith("bandwidth"):
            text = f"{format_bytes(value)}/s"
        elif "params" in key:
            text = f"{format_count(value)}  ({value:,})"
        elif key == "flops":
            text = ", ".join(f"{fmt} {rate / 1e12:,.0f} TFLOPS" for fmt, rate in value.items())
        elif key == "usd_per_device_hour":
            text = (
                f"${value['median']:.2f} (from ${value['low']:.2f} to ${value['high']:.2f}, {value['prices']} prices)"
            )
        elif isinstance(value, int):
            text = format_tokens(value)
        else:
            text = str(value)
        lines.append((key.removesuffix("_w").replace("_", " "), text + (" W" if key == "tdp_w" else "")))
    return lines
