"""`--explain`: every formula with its numbers, and where each number is from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline import prior, readings
from batchline.cli import _output
from batchline.units import format_bytes, format_count, format_time, format_usd

if TYPE_CHECKING:
    from batchline.sweep import Curve


def explain(curve: Curve) -> None:
    """Print the formulas of the optimal batch, then the inputs with their sources."""
    console = _output.console()
    console.print(f"\n{curve.title}\n", style="bold")
    sections = [_parts(curve), _step(curve), _floors(curve), _sources(curve)]
    for lines in sections:
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)
        console.print()


def _parts(curve: Curve) -> list[str]:
    d, arch, batch = curve.deployment, curve.deployment.architecture, curve.optimum.batch
    at = readings.steps(d, curve.context, float(batch), "bound")
    compute, weights, kv, memory = (float(part[0]) for part in (at.t_compute, at.t_weights, at.t_kv, at.t_memory))
    read = float(d.kv_read_bytes(curve.context))
    copies = read / float(arch.read_bytes(curve.context, d.kv)) if read else 1.0
    bw, rate = f"{format_bytes(d.bandwidth)}/s", f"{d.flops / 1e12:,.0f} TFLOPS"
    per_token = format_bytes(read / curve.context) if curve.context else format_bytes(read)
    held = f" ({copies:g} copies: tensor parallelism cannot divide it further)" if copies > 1 else ""
    active = format_count(arch.active_params)
    weight_bytes = format_bytes(float(d.step_weight_bytes(float(batch))))
    return [
        f"At the batch to run, B = {batch:,}, and a context of L = {curve.context:,.0f}, at datasheet rates:",
        f"  t_compute = 2 B N_a / F  = 2 x {batch:,} x {active} / {rate}  = {format_time(compute)}",
        f"  t_weights = W / BW       = {weight_bytes} / {bw}  = {format_time(weights)}",
        f"  t_kv      = B L kv / BW  = {batch:,} x {curve.context:,.0f} x {per_token} / {bw}  = {format_time(kv)}"
        + held,
        f"  t_memory  = t_weights + t_kv  = {format_time(memory)}",
        f"  bound     = max(t_compute, t_memory)  = {format_time(float(at.t_step[0]))}",
    ]


def _step(curve: Curve) -> list[str]:
    best, reading = curve.optimum, curve.reading
    if reading == "bound":
        lines = [f"  t_step    = the bound  = {format_time(best.t_step)}"]
    elif reading == "serial":
        lines = [f"  t_step    = t_kv + max(t_compute, t_weights)  = {format_time(best.t_step)}"]
    else:
        lines = _predicted(curve)
    if curve.usd_per_hour is not None and best.usd_per_mtok is not None:
        price, cost = f"${curve.usd_per_hour:,.2f}/h", format_usd(best.usd_per_mtok)
        lines.append(
            f"  cost      = t_step / B x price  = {format_time(best.t_step)} / {best.batch:,} x {price}  = {cost}/Mtok"
        )
    return [f"In the reading {reading}:", *lines, f"  {best.reason[0].upper()}{best.reason[1:]}"]


def _predicted(curve: Curve) -> list[str]:
    at = curve.over(curve.optimum.batch)
    if at.prediction is None:
        return []
    terms = "  +  ".join(f"{name} {format_time(float(part[0]))}" for name, part in at.prediction.terms.items())
    used = (curve.priors or prior.load()).coefficients(readings.case_of(curve.deployment))
    ratios = ", ".join(
        f"{name.replace('_', ' ')} {float(getattr(used, name)):.2f}"
        for name in ("weight_read", "expert_read", "kv_read", "compute", "tp_volume")
    )
    low, high = float(at.prediction.low[0]), float(at.prediction.high[0])
    return [
        f"  t_step    = {terms}  = {format_time(curve.optimum.t_step)}",
        f"  90% interval {format_time(low)} to {format_time(high)}, never below the bound",
        f"  time over ideal time: {ratios}",
        f"  {at.prediction.provenance.source}; {at.prediction.provenance.points:,} points",
    ]


def _floors(curve: Curve) -> list[str]:
    d = curve.deployment
    account = d.account
    weights = format_bytes(account.weight_bytes)
    room = f"{format_bytes(account.budget_bytes)} that {account.engine.title} uses - weights {weights}"
    workspace = format_bytes(account.activation_bytes + account.non_torch_bytes + account.graph_bytes)
    kept = format_bytes(float(d.stored_bytes_per_device(curve.context)))
    ranks = f" x dp {d.dp}" if d.dp > 1 else ""
    lines = [
        "Floors and limits:",
        f"  capacity      = ({room} - workspace {workspace}) / {kept} a device and sequence{ranks}"
        f"  = {curve.capacity_batch:,.0f} sequences, in whole blocks",
        f"  latency floor = W(1) / BW  = {format_time(curve.latency_floor)}",
    ]
    if curve.cost_floor_usd_per_mtok is not None:
        joined = "2 N_a / F + L kv / BW" if curve.reading == "serial" else "max(2 N_a / F, L kv / BW)"
        lines.append(f"  cost floor    = {joined} x price  = {format_usd(curve.cost_floor_usd_per_mtok)}/Mtok")
    knee = "none: L is beyond the balance context" if curve.knee_batch is None else f"{curve.knee_batch:,.1f} sequences"
    balance = "none" if curve.balance_context is None else f"{curve.balance_context:,.0f} tokens"
    return [
        *lines,
        f"  knee B*       = t_weights / (2 N_a / F - L kv / BW)  = {knee}",
        f"  balance L*    = (2 N_a / F) (BW / kv)  = {balance}",
    ]


def _sources(curve: Curve) -> list[str]:
    d = curve.deployment
    arch, device = d.architecture, d.accelerator
    total, active = format_count(arch.total_params), format_count(arch.active_params)
    rate = f"{device.flops_for(d.math) / 1e12:,.0f} dense TFLOPS in {d.math}"
    lines = [
        "Inputs and where they are from:",
        f"  {arch.name}: {total} parameters, {active} active without the input embedding. {arch.source} ({arch.date})",
        f"  {device.name}: {format_bytes(device.usable_memory())}, {format_bytes(device.bandwidth)}/s, {rate}. "
        f"{device.source} ({device.date})",
    ]
    if d.price is not None:
        sources = "; ".join(d.price.sources)
        lines.append(f"  price: ${d.price.median:,.2f} per device and hour, {d.price.describe()}. {sources}")
    return [
        *lines,
        f"  memory: defaults of {d.account.engine.title} {d.account.engine.version}, docs/engines.md",
        "  bound: the article and Pope's lecture; serial: jax-ml/scaling-book, inference chapter; see docs/article.md",
    ]
