"""What turning a knob of the engine would buy, and the fewest devices that hold a model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from batchline import precision
from batchline.engine.budget import Account, Request, account
from batchline.engine.defaults import Engine

if TYPE_CHECKING:
    from batchline.accelerator import Accelerator
    from batchline.architecture import Architecture

__all__ = ["Change", "changes", "smallest_count"]

NODE: Final = 8
"""Devices that servers put into one node where no larger scale-up domain is known [device]."""
MAX_DEVICES: Final = 256
"""Where the search for the fewest devices ends [device]."""


@dataclass(frozen=True)
class Change:
    """One knob turned.

    Parameters
    ----------
    knob : str
        As on the command line: "--kv fp8".
    account : Account
        What it makes of the memory.
    devices : float
        Devices in place of one [-].
    """

    knob: str
    account: Account
    devices: float = 1.0


def changes(
    architecture: Architecture,
    accelerator: Accelerator,
    engine: Engine | str = "vllm",
    *,
    weights: str | None = None,
    kv: str = "bf16",
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    request: Request | None = None,
) -> list[Change]:
    """Turn each knob of a deployment by itself.

    Parameters
    ----------
    architecture, accelerator, engine, weights, kv, tp, pp, dp, ep, request
        As of `account`.

    Returns
    -------
    list of Change
        More of the device, a smaller cache format, fewer sequences, a smaller step, a shorter longest request, smaller
        weights, twice the devices; without those that change nothing by definition.

    Examples
    --------
    >>> from batchline.accelerator import Accelerator
    >>> from batchline.architecture import Architecture
    >>> made = changes(Architecture.load("llama-3.1-8b"), Accelerator.load("h100"))
    >>> [change.knob for change in made][:3]
    ['--gpu-memory-utilization 0.97', '--kv fp8', '--max-num-seqs 256']
    """
    engine = Engine.load(engine) if isinstance(engine, str) else engine
    wanted = request or Request()
    layout = {"weights": weights, "kv": kv, "tp": tp, "pp": pp, "dp": dp, "ep": ep}

    def turned(knob: str, turn: Request, devices: float = 1.0, **other: Any) -> Change:
        same = {**layout, **other}
        return Change(knob, account(architecture, accelerator, engine, request=turn, **same), devices)

    now = account(architecture, accelerator, engine, request=wanted, **layout)  # type: ignore[arg-type]
    found = []
    if engine.accounting != "slots":
        more = min(0.98, round(now.gpu_memory_utilization + 0.05, 3))
        if more > now.gpu_memory_utilization:
            found.append(turned(f"--gpu-memory-utilization {more:g}", replace(wanted, gpu_memory_utilization=more)))
    smaller = "q8_0" if engine.accounting == "slots" else "fp8"
    if precision.load_kv(kv).bits > 8:
        found.append(turned(f"--kv {smaller}", wanted, kv=smaller))
    for sequences in (256, 64):
        if now.max_num_seqs > sequences:
            found.append(turned(f"--max-num-seqs {sequences}", replace(wanted, max_num_seqs=sequences)))
            break
    if now.max_num_batched_tokens > 2048:
        found.append(turned("--max-num-batched-tokens 2048", replace(wanted, max_num_batched_tokens=2048)))
    if now.max_model_len > 8192:
        shorter = 32768 if now.max_model_len > 32768 else 8192
        found.append(turned(f"--max-model-len {shorter}", replace(wanted, max_model_len=shorter)))
    if weights is None and precision.load(architecture.weight_format).bits > 8:
        found.append(turned("--weights fp8", wanted, weights="fp8"))
    if not architecture.q_heads or architecture.q_heads % (2 * tp) == 0:
        found.append(turned(f"--tp {2 * tp}", wanted, 2.0, tp=2 * tp))
    return found


def smallest_count(
    architecture: Architecture,
    accelerator: Accelerator,
    engine: Engine | str = "vllm",
    *,
    weights: str | None = None,
    kv: str = "bf16",
    request: Request | None = None,
) -> tuple[int, int, int] | None:
    """Fewest devices on which the engine starts: by tensor parallelism in a node, then by stages of whole nodes.

    Parameters
    ----------
    architecture, accelerator, engine, weights, kv, request
        As of `account`.

    Returns
    -------
    tuple of int or None
        Devices, tensor- and pipeline-parallel degree; None when 256 devices are not enough.

    Examples
    --------
    >>> from batchline.accelerator import Accelerator
    >>> from batchline.architecture import Architecture
    >>> smallest_count(Architecture.load("llama-3.1-405b"), Accelerator.load("h100"), weights="fp8")
    (8, 8, 1)
    """
    engine = Engine.load(engine) if isinstance(engine, str) else engine
    heads = architecture.q_heads or 1
    node = min(MAX_DEVICES, max(NODE, accelerator.scale_up_domain or 0))
    degrees = [tp for tp in range(1, node + 1) if heads % tp == 0]
    layouts = [(tp, 1) for tp in degrees]
    layouts += [(degrees[-1], pp) for pp in range(2, min(architecture.layers, MAX_DEVICES // degrees[-1]) + 1)]
    for tp, pp in layouts:
        made = account(architecture, accelerator, engine, weights=weights, kv=kv, tp=tp, pp=pp, request=request)
        if made.fits:
            return tp * pp, tp, pp
    return None
