"""`--explain`: every formula with its numbers, and where each number is from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline import roofline
from batchline.cli import _output
from batchline.units import format_bytes, format_count, format_time, format_usd

if TYPE_CHECKING:
    from batchline.sweep import Curve


def explain(curve: Curve) -> None:
    """Print the formulas of the optimal batch, then the inputs with their sources."""
    console = _output.console()
    console.print(f"\n{curve.title}\n", style="bold")
    for line in (*_formulas(curve), "", *_sources(curve)):
        console.print(line, soft_wrap=True, markup=False)


def _formulas(curve: Curve) -> list[str]:
    d = curve.deployment
    batch = curve.optimum.batch
    arch = d.architecture
    weight_bytes = float(d.step_weight_bytes(float(batch)))
    kv_bytes = float(d.kv_read_bytes(curve.context))
    compute = float(roofline.t_compute(batch, arch.active_params, d.flops))
    weights = float(roofline.t_weights(weight_bytes, d.bandwidth))
    kv = float(roofline.t_kv(batch, 1.0, kv_bytes, d.bandwidth))
    memory = float(roofline.t_memory(weights, kv))
    mean = kv_bytes / curve.context if curve.context else kv_bytes
    bw, rate = f"{format_bytes(d.bandwidth)}/s", f"{d.flops / 1e12:,.0f} TFLOPS"
    step = (
        f"max(t_compute, t_memory)  = max({format_time(compute)}, {format_time(memory)})"
        if curve.reading == "bound"
        else f"t_kv + max(t_compute, t_weights)  = {format_time(kv)} + max({format_time(compute)}, {format_time(weights)})"
    )
    lines = [
        f"At the batch to run, B = {batch:,}, context L = {curve.context:,.0f}, reading {curve.reading}:",
        f"  t_compute = 2 B N_a / F  = 2 x {batch:,} x {format_count(arch.active_params)} / {rate}  = {format_time(compute)}",
        f"  t_weights = W / BW       = {format_bytes(weight_bytes)} / {bw}  = {format_time(weights)}",
        f"  t_kv      = B L kv / BW  = {batch:,} x {curve.context:,.0f} x {format_bytes(mean)} / {bw}  = {format_time(kv)}",
        f"  t_memory  = t_weights + t_kv  = {format_time(memory)}",
        f"  t_step    = {step}  = {format_time(curve.optimum.t_step)}",
    ]
    if curve.usd_per_hour is not None and curve.optimum.usd_per_mtok is not None:
        lines.append(
            f"  cost      = t_step / B x price  = {format_time(curve.optimum.t_step)} / {batch:,} x ${curve.usd_per_hour:,.2f}/h"
            f"  = {format_usd(curve.optimum.usd_per_mtok)} per million tokens"
        )
    lines += [
        f"  capacity  = (share of memory - weights) / KV of a sequence  = ({d.memory_utilization:.0%} x "
        f"{format_bytes(d.accelerator.usable_memory())} - {format_bytes(d.weight_bytes_per_device)}) / "
        f"{format_bytes(float(d.stored_bytes_per_device(curve.context)))} a device"
        f"{f' x dp {d.dp}' if d.dp > 1 else ''}  = {curve.capacity_batch:,.0f} sequences",
        f"  latency floor = W(1) / BW  = {format_time(curve.latency_floor)}",
    ]
    if curve.cost_floor_usd_per_mtok is not None:
        joined = "2 N_a / F + L kv / BW" if curve.reading == "serial" else "max(2 N_a / F, L kv / BW)"
        lines.append(
            f"  cost floor    = {joined} x price  = {format_usd(curve.cost_floor_usd_per_mtok)} per million tokens"
        )
    knee = "none: L is beyond the balance context" if curve.knee_batch is None else f"{curve.knee_batch:,.1f} sequences"
    lines.append(f"  knee B*       = t_weights / (2 N_a / F - L kv / BW)  = {knee}")
    balance = "none" if curve.balance_context is None else f"{curve.balance_context:,.0f} tokens"
    lines.append(f"  balance L*    = (2 N_a / F) (BW / kv)  = {balance}")
    lines.append(f"  The choice    : {curve.optimum.reason}")
    return lines


def _sources(curve: Curve) -> list[str]:
    d = curve.deployment
    arch, device = d.architecture, d.accelerator
    lines = [
        "Inputs and where they are from:",
        f"  {arch.name}: {format_count(arch.total_params)} parameters, {format_count(arch.active_params)} active without the input embedding; "
        f"{arch.source} ({arch.date})",
        f"  {device.name}: {format_bytes(device.usable_memory())} usable, {format_bytes(device.bandwidth)}/s, "
        f"{device.flops_for(d.math) / 1e12:,.0f} dense TFLOPS in {d.math}; {device.source} ({device.date})",
    ]
    if d.price is not None:
        lines.append(
            f"  price: ${d.price.median:,.2f} per device and hour, {d.price.describe()}; {'; '.join(d.price.sources)}"
        )
    lines += [
        f"  share of memory used: {d.memory_utilization:.0%}, the default of vLLM until 0.12",
        "  bound: the article and Pope's lecture; serial: jax-ml/scaling-book, inference chapter; docs/article.md takes them apart.",
    ]
    return lines
