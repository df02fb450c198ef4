"""How each number of a curve's answer comes about: its equation with the numbers in it, and where the inputs are from.

`batchline curve --explain` prints all of it; the page unfolds it number by number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from batchline import prior, readings, roofline, step
from batchline.curve_question import served_sentence
from batchline.strings import text
from batchline.units import format_bytes, format_count, format_rate, format_time, format_usd

if TYPE_CHECKING:
    from batchline.curve_question import Question
    from batchline.roofline import Floats
    from batchline.step import Coefficients
    from batchline.sweep import Curve

__all__ = ["equations", "inputs", "load", "of_each_number"]


def equations(curve: Curve, language: str = "en") -> dict[str, list[str]]:
    """Give every equation of the batch to run, with its numbers.

    Parameters
    ----------
    curve : Curve
        What was answered.
    language : str
        "en" or "ko".

    Returns
    -------
    dict of str to list of str
        `parts` (times at datasheet rates), `bound`, `step` (in the curve's reading), `cost`, `rate`, `reason`,
        `next` (why not one sequence more, under a limit of the step), `capacity`, `latency_floor`, `cost_floor`,
        `knee`, `balance`. What has no equation here, like the cost without a price, has no line.

    Examples
    --------
    >>> from batchline import Deployment, curve
    >>> found = equations(curve(Deployment.of("llama-3.1-70b", "h100-sxm", count=4), context=8192, reading="bound"))
    >>> print(found["bound"][0])
    bound     = max(t_compute, t_memory)  = 21.6 ms
    """
    found = _Explained(curve, language)
    return {
        "parts": found.parts(),
        "bound": found.bound(),
        "step": found.step(),
        "cost": found.cost(),
        "rate": found.rate(),
        "reason": found.reason(),
        "next": found.one_more(),
        "capacity": found.capacity(),
        "latency_floor": [f"latency floor = W(1) / BW  = {format_time(curve.latency_floor)}"],
        "cost_floor": found.cost_floor(),
        "knee": found.knee(),
        "balance": found.balance(),
    }


_NUMBERS = {
    "batch": ("reason", "next", "capacity"),
    "cost": ("cost", "cost_floor"),
    "time": ("parts", "bound", "step", "latency_floor"),
    "rate": ("rate",),
    "binds": ("reason", "next", "capacity", "knee", "balance"),
}
"""Equations behind the five numbers of an answer."""


def of_each_number(curve: Curve, language: str = "en") -> dict[str, list[str]]:
    """Give the equations behind each of the five numbers of an answer.

    Parameters
    ----------
    curve : Curve
        What was answered.
    language : str
        "en" or "ko".

    Returns
    -------
    dict of str to list of str
        Lines of `equations` by number: `batch`, `cost`, `time`, `rate`, `binds`.
    """
    found = equations(curve, language)
    return {number: [line for name in names for line in found[name]] for number, names in _NUMBERS.items()}


def inputs(curve: Curve, language: str = "en") -> list[str]:
    """Say what went in, and where each of it is from.

    Parameters
    ----------
    curve : Curve
        What was answered.
    language : str
        "en" or "ko".

    Returns
    -------
    list of str
        A line for the model, the accelerator, the price if there is one, the memory and the formulas.
    """
    d = curve.deployment
    arch, device = d.architecture, d.accelerator
    lines = [
        text(
            "explain.model",
            language,
            name=arch.name,
            total=format_count(arch.total_params),
            active=format_count(arch.active_params),
            source=arch.source,
            date=arch.date,
        ),
        text(
            "explain.device",
            language,
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
        lines.append(
            text("explain.hourly", language, price=hour, described=d.price.describe(language), sources=sources)
        )
    lines.append(text("explain.memory", language, engine=d.account.engine.title, version=d.account.engine.version))
    lines.append(text("explain.formulas", language))
    return lines


def load(asked: Question, curve: Curve, language: str = "en") -> list[str]:
    """Say what TPOT and TTFT under a load are made of: the formulas of `batchline.serving` with their numbers.

    Parameters
    ----------
    asked : batchline.curve_question.Question
        The load.
    curve : Curve
        What it gave.
    language : str
        "en" or "ko".

    Returns
    -------
    list of str
        What is served, and its equations; none where nobody asked for a load.

    Examples
    --------
    >>> from batchline import Deployment
    >>> from batchline.curve_question import Question
    >>> asked = Question(deployment=Deployment.of("llama-3.1-8b", "h100"), isl=1024, osl=128, concurrency=8)
    >>> load(asked, asked.curve())[3][:43]
    'TPOT      = step + f (B_r - 1) / o t_pf  = '
    """
    state, served = asked.steady(curve), asked.served(curve)
    if state is None or served is None:
        return []
    used, draft = _coefficients(curve), asked.speculation
    step_s, others, ttft = (float(part) for part in (state.step_s, state.interference_s, state.ttft_s))
    running = text("explain.running", language, batch=f"{float(state.running_batch):,.1f}")
    lines = [
        served_sentence(served, language),
        f"step      = {format_time(step_s)}  ({running})",
        f"t_pf      = {format_time(float(state.prefill_s))}  ({text('explain.prompt', language)})",
    ]
    if served["tpot_s"] is not None:
        name, drafted = ("step / v", f" / {served['tokens_per_step']:.2f}") if draft else ("step", "")
        parts = f"{format_time(step_s)}{drafted} + {format_time(others)}"
        lines.append(f"TPOT      = {name} + f (B_r - 1) / o t_pf  = {parts}  = {format_time(served['tpot_s'])}")
    if math.isfinite(ttft):
        at_once = asked.arrivals is not None and asked.arrivals.of == "batch"
        constant, waited = 0.0 if at_once else float(used.ttft_constant), float(state.first_steps_s)
        parts = " + ".join(format_time(part) for part in (constant, waited, ttft - constant - waited))
        prompts = text("explain.prompts", language)
        lines.append(f"TTFT      = t_0 + max(t_s, chunks) step + {prompts}  = {parts}  = {format_time(ttft)}")
    return lines


def _coefficients(curve: Curve) -> Coefficients:
    return (curve.priors or prior.load()).coefficients(readings.case_of(curve.deployment))


class _Explained:
    """The equations of a curve, in a language."""

    def __init__(self, curve: Curve, language: str) -> None:
        self._curve = curve
        self._language = language
        self._bound = readings.steps(curve.deployment, curve.context, float(curve.optimum.batch), "bound")

    def _say(self, key: str, **fields: str) -> str:
        return text(key if "." in key else f"explain.{key}", self._language, **fields)

    def parts(self) -> list[str]:
        curve, at = self._curve, self._bound
        d, arch, batch = curve.deployment, curve.deployment.architecture, curve.optimum.batch
        compute, weights, kv, memory = (float(part[0]) for part in (at.t_compute, at.t_weights, at.t_kv, at.t_memory))
        read = float(d.kv_read_bytes(curve.context))
        copies = read / float(arch.read_bytes(curve.context, d.kv)) if read else 1.0
        bw, rate = f"{format_bytes(d.bandwidth)}/s", f"{d.flops / 1e12:,.0f} TFLOPS"
        per_token = format_bytes(read / curve.context) if curve.context else format_bytes(read)
        held = self._say("copies", count=f"{copies:.3g}") if copies > 1 else ""
        active = format_count(arch.active_params)
        weight_bytes = format_bytes(float(d.step_weight_bytes(float(batch))))
        return [
            self._say("at", batch=f"{batch:,}", context=f"{curve.context:,.0f}"),
            f"t_compute = 2 B N_a / F  = 2 x {batch:,} x {active} / {rate}  = {format_time(compute)}",
            f"t_weights = W / BW       = {weight_bytes} / {bw}  = {format_time(weights)}",
            f"t_kv      = B L kv / BW  = {batch:,} x {curve.context:,.0f} x {per_token} / {bw}  = {format_time(kv)}"
            + held,
            f"t_memory  = t_weights + t_kv  = {format_time(memory)}",
        ]

    def bound(self) -> list[str]:
        return [f"bound     = max(t_compute, t_memory)  = {format_time(float(self._bound.t_step[0]))}"]

    def step(self) -> list[str]:
        best, reading = self._curve.optimum, self._curve.reading
        if reading == "bound":
            lines = [f"t_step    = bound  = {format_time(best.t_step)}"]
        elif reading == "serial":
            lines = [f"t_step    = t_kv + max(t_compute, t_weights)  = {format_time(best.t_step)}"]
        else:
            lines = self._predicted()
        return [self._say("reading", reading=self._say(f"reading_{reading}")), *lines]

    def _predicted(self) -> list[str]:
        curve = self._curve
        at = curve.over(curve.optimum.batch)
        if at.prediction is None:
            return []
        terms = "  +  ".join(
            f"{self._say(f'curve.part_{name}')} {format_time(float(part[0]))}"
            for name, part in at.prediction.terms.items()
        )
        low, high = float(at.prediction.low[0]), float(at.prediction.high[0])
        known = at.prediction.provenance
        return [
            f"t_step    = {terms}  = {format_time(curve.optimum.t_step)}",
            *self._terms(),
            self._say("interval", low=format_time(low), high=format_time(high)),
            self._say("basis", source=known.told(self._language), points=f"{known.points:,}"),
        ]

    def _terms(self) -> list[str]:
        """Each term of the step that takes time: its formula in `batchline.step`, the numbers, the time."""
        curve, used = self._curve, _coefficients(self._curve)
        batch, one = float(curve.optimum.batch), readings.ideal_of(curve.deployment, curve.context)
        terms = step.decode_step(one, used, batch)
        rank, stage = (float(share) for share in step.shares(one, batch))
        touched = float(roofline.expert_coverage(stage, float(one.experts), float(one.experts_per_token)))

        def each(seconds: Floats, count: Floats) -> str:
            return f"{format_time(float(seconds))} x {float(count):,.4g}"

        def read(ratio: Floats, seconds: Floats) -> str:
            return f"{float(ratio):.2f} x {format_time(float(seconds))}"

        volume = f"{float(used.tp_volume):.2f}"
        dense, moe = each(used.layer_overhead, one.layers), each(used.moe_layer_overhead, one.moe_layers)
        rows = {
            "weights": f"a_w w                     = {read(used.weight_read, one.weights_s)}",
            "experts": f"a_x w_x cov(n)            = {read(used.expert_read, one.experts_s)} x {touched:.1%}",
            "kv": f"a_kv B_r max(kv, ca)      = {read(used.kv_read, max(one.kv_s, one.attention_s))} x {rank:,.4g}",
            "compute": f"a_c B_r c                 = {read(used.compute, one.compute_s)} x {rank:,.4g}",
            "tp_latency": f"l_tp L log2(TP)           = {each(used.tp_latency, one.layers)} x {np.log2(one.tp):.4g}",
            "tp_volume": f"a_tp B_r com              = {volume} x {each(one.tp_volume_s, rank)}",
            "ep_alltoall": f"a_tp B_r a2a              = {volume} x {each(one.alltoall_s, rank)}",
            "pp_hops": f"(PP - 1) h + a_tp B_r hop = {each(used.pipeline_hop, one.pp - 1)}"
            f" + {volume} x {each(one.hop_s, rank)}",
            "per_step": "c_0                     ",
            "per_sequence": f"c_1 B_r                   = {each(used.sequence_overhead, rank)}",
            "per_layer": f"d L + d_m L_m             = {dense} + {moe}",
        }
        times = {name: float(getattr(terms, name)) for name in rows}
        return [
            self._say("of_one_device", rank=f"{rank:,.4g}", stage=f"{stage:,.4g}"),
            *(
                f"  {told}  = {format_time(times[name])}  ({self._say(f'term_{name}')})"
                for name, told in rows.items()
                if times[name]
            ),
        ]

    def cost(self) -> list[str]:
        best, price = self._curve.optimum, self._curve.usd_per_hour
        if price is None or best.usd_per_mtok is None:
            return []
        numbers = f"{format_time(best.t_step)} / {best.batch:,} x ${price:,.2f}/h"
        return [f"cost      = t_step / B x price  = {numbers}  = {format_usd(best.usd_per_mtok)}/Mtok"]

    def rate(self) -> list[str]:
        best, count = self._curve.optimum, self._curve.deployment.count
        each = best.batch / best.t_step / count
        numbers = f"{best.batch:,} / {format_time(best.t_step)} / {count:,}"
        return [f"rate      = B / t_step / N  = {numbers}  = {format_rate(each)}"]

    def reason(self) -> list[str]:
        reason = self._curve.optimum.told(self._language)
        return [f"{reason[0].upper()}{reason[1:]}"]

    def one_more(self) -> list[str]:
        curve = self._curve
        if curve.optimum.binds != "step_limit" or curve.step_limit is None:
            return []
        more = curve.optimum.batch + 1
        past = float(curve.over(more).t_step[0]) - curve.step_limit
        return [f"t_step({more:,}) = {format_time(curve.step_limit)} + {format_time(past)}"]

    def capacity(self) -> list[str]:
        curve, d = self._curve, self._curve.deployment
        account = d.account
        room = self._say(
            "room",
            budget=format_bytes(account.budget_bytes),
            engine=account.engine.title,
            weights=format_bytes(account.weight_bytes),
            workspace=format_bytes(account.activation_bytes + account.non_torch_bytes + account.graph_bytes),
            kept=format_bytes(float(d.stored_bytes_per_device(curve.context))),
            ranks=f" x dp {d.dp}" if d.dp > 1 else "",
            batch=f"{curve.capacity_batch:,.0f}",
        )
        return [f"capacity      = {room if math.isfinite(curve.capacity_batch) else self._say('no_cache')}"]

    def cost_floor(self) -> list[str]:
        floor = self._curve.cost_floor_usd_per_mtok
        if floor is None:
            return []
        joined = "2 N_a / F + L kv / BW" if self._curve.reading == "serial" else "max(2 N_a / F, L kv / BW)"
        return [f"cost floor    = {joined} x price  = {format_usd(floor)}/Mtok"]

    def knee(self) -> list[str]:
        found = self._curve.knee_batch
        told = self._say("none_beyond") if found is None else self._say("sequences", count=f"{found:,.1f}")
        return [f"knee B*       = t_weights / (2 N_a / F - L kv / BW)  = {told}"]

    def balance(self) -> list[str]:
        found = self._curve.balance_context
        told = self._say("none") if found is None else self._say("tokens", count=f"{found:,.0f}")
        return [f"balance L*    = (2 N_a / F) (BW / kv)  = {told}"]
