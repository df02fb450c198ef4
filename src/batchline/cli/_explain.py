"""`--explain`: every formula with its numbers, and where each number is from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline import prior, readings
from batchline.cli import _output
from batchline.cli._language import current, say
from batchline.units import format_bytes, format_count, format_time, format_usd

if TYPE_CHECKING:
    from batchline.sweep import Curve


def explain(curve: Curve) -> None:
    """Print the formulas of the optimal batch, then the inputs with their sources."""
    console = _output.console()
    console.print(f"\n{curve.titled(current())}\n", style="bold")
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
    held = say("explain.copies", count=f"{copies:g}") if copies > 1 else ""
    active = format_count(arch.active_params)
    weight_bytes = format_bytes(float(d.step_weight_bytes(float(batch))))
    return [
        say("explain.at", batch=f"{batch:,}", context=f"{curve.context:,.0f}"),
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
        lines = [f"  t_step    = bound  = {format_time(best.t_step)}"]
    elif reading == "serial":
        lines = [f"  t_step    = t_kv + max(t_compute, t_weights)  = {format_time(best.t_step)}"]
    else:
        lines = _predicted(curve)
    if curve.usd_per_hour is not None and best.usd_per_mtok is not None:
        price, cost = f"${curve.usd_per_hour:,.2f}/h", format_usd(best.usd_per_mtok)
        lines.append(
            f"  cost      = t_step / B x price  = {format_time(best.t_step)} / {best.batch:,} x {price}  = {cost}/Mtok"
        )
    reason = best.told(current())
    named = say("explain.reading", reading=say(f"explain.reading_{reading}"))
    return [named, *lines, f"  {reason[0].upper()}{reason[1:]}"]


def _predicted(curve: Curve) -> list[str]:
    at = curve.over(curve.optimum.batch)
    if at.prediction is None:
        return []
    terms = "  +  ".join(
        f"{say(f'curve.part_{name}')} {format_time(float(part[0]))}" for name, part in at.prediction.terms.items()
    )
    used = (curve.priors or prior.load()).coefficients(readings.case_of(curve.deployment))
    ratios = ", ".join(
        f"{say(f'explain.ratio_{name}')} {float(getattr(used, name)):.2f}"
        for name in ("weight_read", "expert_read", "kv_read", "compute", "tp_volume")
    )
    low, high = float(at.prediction.low[0]), float(at.prediction.high[0])
    known = at.prediction.provenance
    return [
        f"  t_step    = {terms}  = {format_time(curve.optimum.t_step)}",
        f"  {say('explain.interval', low=format_time(low), high=format_time(high))}",
        f"  {say('explain.ratios', ratios=ratios)}",
        f"  {say('explain.basis', source=known.told(current()), points=f'{known.points:,}')}",
    ]


def _floors(curve: Curve) -> list[str]:
    d = curve.deployment
    account = d.account
    capacity = say(
        "explain.room",
        budget=format_bytes(account.budget_bytes),
        engine=account.engine.title,
        weights=format_bytes(account.weight_bytes),
        workspace=format_bytes(account.activation_bytes + account.non_torch_bytes + account.graph_bytes),
        kept=format_bytes(float(d.stored_bytes_per_device(curve.context))),
        ranks=f" x dp {d.dp}" if d.dp > 1 else "",
        batch=f"{curve.capacity_batch:,.0f}",
    )
    lines = [
        say("explain.floors"),
        f"  capacity      = {capacity}",
        f"  latency floor = W(1) / BW  = {format_time(curve.latency_floor)}",
    ]
    if curve.cost_floor_usd_per_mtok is not None:
        joined = "2 N_a / F + L kv / BW" if curve.reading == "serial" else "max(2 N_a / F, L kv / BW)"
        lines.append(f"  cost floor    = {joined} x price  = {format_usd(curve.cost_floor_usd_per_mtok)}/Mtok")
    knee, balance = say("explain.none_beyond"), say("explain.none")
    if curve.knee_batch is not None:
        knee = say("explain.sequences", count=f"{curve.knee_batch:,.1f}")
    if curve.balance_context is not None:
        balance = say("explain.tokens", count=f"{curve.balance_context:,.0f}")
    return [
        *lines,
        f"  knee B*       = t_weights / (2 N_a / F - L kv / BW)  = {knee}",
        f"  balance L*    = (2 N_a / F) (BW / kv)  = {balance}",
    ]


def _sources(curve: Curve) -> list[str]:
    d = curve.deployment
    arch, device = d.architecture, d.accelerator
    lines = [
        say(
            "explain.model",
            name=arch.name,
            total=format_count(arch.total_params),
            active=format_count(arch.active_params),
            source=arch.source,
            date=arch.date,
        ),
        say(
            "explain.device",
            name=device.name,
            memory=format_bytes(device.usable_memory()),
            bandwidth=format_bytes(device.bandwidth),
            rate=f"{device.flops_for(d.math) / 1e12:,.0f}",
            format=d.math,
            source=device.source,
            date=device.date,
        ),
    ]
    if d.price is not None:
        hour, sources = f"${d.price.median:,.2f}", "; ".join(d.price.sources)
        lines.append(say("explain.hourly", price=hour, described=d.price.describe(current()), sources=sources))
    lines.append(say("explain.memory", engine=d.account.engine.title, version=d.account.engine.version))
    lines.append(say("explain.formulas"))
    return [say("explain.sources"), *(f"  {line}" for line in lines)]
