"""What would change the answer: the same question with one thing changed at a time."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchline import sweep
from batchline.errors import BatchlineError
from batchline.price import given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from batchline.accelerator import Accelerator
    from batchline.deployment import Deployment
    from batchline.sweep import Curve

__all__ = ["Change", "what_if"]

_FASTER = 1.25
_SMALLER = {"bf16": "fp8", "fp16": "fp8", "fp8": "int4"}


@dataclass(frozen=True, kw_only=True)
class Change:
    """The answer with one thing changed.

    Parameters
    ----------
    what : str
        Key of what was changed: "context_twice", "kv_format", "bandwidth_more", ...
    fields : dict
        What stands in the braces of its name.
    batch : int or None
        The batch to run then [sequence]; None when there is no answer.
    t_step : float or None
        Time of a step there [s].
    usd_per_mtok : float or None
        Cost of a million output tokens there [USD/Mtoken].
    binds : str
        What stops a larger batch then.
    times : float or None
        Cost then over cost now; without a price, time per token then over now [-].
    refused : str
        Why there is no answer; empty if there is one.
    """

    what: str
    fields: dict[str, str]
    batch: int | None
    t_step: float | None
    usd_per_mtok: float | None
    binds: str
    times: float | None
    refused: str = ""


def what_if(curve: Curve, *, within: float | None = None, max_batch: float | None = None) -> list[Change]:
    """Ask the same question with one thing changed at a time.

    Parameters
    ----------
    curve : Curve
        What was computed.
    within : float, optional
        As of the question [-].
    max_batch : float, optional
        As of the question [sequence].

    Returns
    -------
    list of Change
        What changes the cost most comes first; what has no answer comes last.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> found = what_if(sweep.curve(Deployment.of("llama-3.1-70b", "4xh100", weights="fp8"), 8192))
    >>> next(one for one in found if one.what == "context_half").times < 1
    True
    """
    now = _per_token(curve)
    found = []
    for what, fields, deployment, context, limit in _variants(curve):
        try:
            then = sweep.curve(
                deployment,
                context,
                [1.0],
                reading=curve.reading,
                step_limit=limit,
                within=within,
                max_batch=max_batch,
                priors=curve.priors,
            )
        except BatchlineError as error:
            found.append(
                Change(
                    what=what,
                    fields=fields,
                    batch=None,
                    t_step=None,
                    usd_per_mtok=None,
                    binds="",
                    times=None,
                    refused=error.problem,
                )
            )
            continue
        best = then.optimum
        found.append(
            Change(
                what=what,
                fields=fields,
                batch=best.batch,
                t_step=best.t_step,
                usd_per_mtok=best.usd_per_mtok,
                binds=best.binds,
                times=_per_token(then) / now,
            )
        )
    return sorted(found, key=lambda one: -abs(math.log(one.times)) if one.times else math.inf)


def _per_token(curve: Curve) -> float:
    best = curve.optimum
    return best.t_step / best.batch if best.usd_per_mtok is None else best.usd_per_mtok


def _variants(curve: Curve) -> Iterator[tuple[str, dict[str, str], Deployment, float, float | None]]:
    """What is changed, and the question that follows."""
    d, context, limit = curve.deployment, curve.context, curve.step_limit
    device = d.accelerator

    def of(**changes: Any) -> Deployment:
        return dataclasses.replace(d, **changes)

    def on(**changes: Any) -> Deployment:
        return of(accelerator=dataclasses.replace(device, **changes))

    more = {"percent": f"{_FASTER - 1:.0%}"}
    yield "context_twice", {"context": f"{2 * context:,.0f}"}, d, 2 * context, limit
    yield "context_half", {"context": f"{context / 2:,.0f}"}, d, context / 2, limit
    if limit is not None:
        yield "limit_more", more, d, context, limit * _FASTER
        yield "limit_less", {"percent": f"{1 - 1 / _FASTER:.0%}"}, d, context, limit / _FASTER
    if d.kv != "fp8":
        yield "kv_format", {"format": "fp8"}, of(kv="fp8"), context, limit
    smaller = _SMALLER.get(d.weights_name)
    if smaller is not None:
        yield "weights_format", {"format": smaller}, of(weights=smaller), context, limit
    heads = d.architecture.q_heads
    if not heads or heads % (2 * d.tp) == 0:
        twice = of(count=2 * d.count, tp=2 * d.tp)
        yield "devices_twice", {"count": str(2 * d.count), "tp": str(2 * d.tp)}, twice, context, limit
    yield "bandwidth_more", more, on(bandwidth=device.bandwidth * _FASTER), context, limit
    faster = {name: rate * _FASTER for name, rate in device.flops.items()}
    yield "flops_more", more, on(flops=faster), context, limit
    yield "memory_more", more, on(**_larger(device)), context, limit
    if d.price is not None and d.price.n > 1:
        yield "price_low", {"price": f"${d.price.low:,.2f}"}, of(price=given(d.price.low)), context, limit
        yield "price_high", {"price": f"${d.price.high:,.2f}"}, of(price=given(d.price.high)), context, limit


def _larger(device: Accelerator) -> dict[str, float | None]:
    seen = device.memory_visible
    return {"memory": device.memory * _FASTER, "memory_visible": None if seen is None else seen * _FASTER}
