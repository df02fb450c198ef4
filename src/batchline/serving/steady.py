"""Steady state of an engine: batch, times, throughput, and what stops more load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from batchline.roofline import Floats
    from batchline.serving.load import Load
    from batchline.step import Terms

__all__ = ["NO_LIMIT", "Steady", "limit_of", "steady"]

NO_LIMIT = 1e7
"""Stands for infinity where an interval needs an end [sequence]."""


@dataclass(frozen=True, slots=True)
class Steady:
    """Steady state of one deployment.

    Parameters
    ----------
    running_batch : float or array
        Sequences that decode together, mean, in the whole deployment [sequence].
    tpot_s, itl_s, ttft_s, e2e_s : float or array
        Time per output token after the first, gap between stream events, time to first token, whole request [s].
    requests_per_s, output_tokens_per_s, input_tokens_per_s : float or array
        Throughput of the whole deployment [1/s].
    kv_use : float or array
        Share of the KV cache in use [-].
    saturated_by : str, array of str or None
        What stops more load: "kv", "max_num_seqs", "prefill", "step_limit"; None (in arrays "") if nothing does.
    step_s, prefill_s, interference_s : float or array
        Decode step, time that one prompt adds, and what others' prompts add to one step of mine [s].
    first_steps_s : float or array
        Of the TTFT, the decode steps that a request waits for before its first token [s].
    terms : Terms
        Where the time of the decode step goes [s].
    """

    running_batch: Floats
    tpot_s: Floats
    itl_s: Floats
    ttft_s: Floats
    e2e_s: Floats
    requests_per_s: Floats
    output_tokens_per_s: Floats
    input_tokens_per_s: Floats
    kv_use: Floats
    saturated_by: Any
    step_s: Floats
    prefill_s: Floats
    interference_s: Floats
    first_steps_s: Floats
    terms: Terms

    def to_dict(self) -> dict[str, Any]:
        """Give one state (numbers, no arrays) with the names of the JSON output.

        Returns
        -------
        dict
            Batch, times, throughput, use of the cache and what saturates.
        """
        names = ("running_batch", "tpot_s", "itl_s", "ttft_s", "e2e_s", "requests_per_s", "output_tokens_per_s",
                 "input_tokens_per_s", "kv_use")  # fmt: skip
        return {name: float(getattr(self, name)) for name in names} | {"saturated_by": self.saturated_by}


def limit_of(load: Load, capacity_batch: Floats, max_num_seqs: Floats) -> Floats:
    """Sequences that may decode together in the whole deployment [sequence]."""
    return np.minimum(capacity_batch, np.asarray(max_num_seqs, dtype=float) * load.ideal.dp)[()]


def steady(
    load: Load,
    batch: Floats,
    met: tuple[Floats, Floats],
    first: tuple[Floats, Floats],
    requests: Floats,
    full: Any,
    capacity_batch: Floats,
    max_num_seqs: Floats,
) -> Steady:
    """State with `batch` sequences on average, of which a request meets (batch, tpot); first: (ttft, its steps)."""
    (seen, tpot), (ttft, first_steps) = met, first
    step = load.step_s(seen)
    return Steady(
        running_batch=batch,
        tpot_s=tpot,
        itl_s=tpot * load.yield_per_step(),
        ttft_s=ttft,
        e2e_s=ttft + np.maximum(load.osl - 1.0, 0.0) * tpot,
        requests_per_s=requests,
        output_tokens_per_s=requests * load.osl,
        input_tokens_per_s=requests * load.isl,
        kv_use=np.minimum(batch / capacity_batch, 1.0),
        saturated_by=_saturated_by(load, batch, full, capacity_batch, max_num_seqs),
        step_s=step,
        prefill_s=load.prompt_s(batch),
        interference_s=tpot - step / load.yield_per_step(),
        first_steps_s=first_steps,
        terms=load.terms(seen),
    )


def _saturated_by(load: Load, batch: Floats, full: Any, capacity_batch: Floats, max_num_seqs: Floats) -> Any:
    """Name what stops more load: prompts that take all the time, a full cache or slot table, else what grows."""
    growing = load.terms(batch + 1.0).total - load.terms(batch).total
    prompts = load.interference_s(batch + 1.0) - load.interference_s(batch)
    # A sequence that adds over 90% of what each costs already buys no throughput.
    flat = (growing / load.yield_per_step() + prompts) * batch > 0.9 * load.tpot_s(batch)
    slots = np.asarray(max_num_seqs) * load.ideal.dp
    held = np.where(np.asarray(capacity_batch) <= slots, "kv", "max_num_seqs")
    slow = np.where(prompts > growing, "prefill", "step_limit")
    endless = np.minimum(capacity_batch, slots) >= NO_LIMIT
    room_helps = ~(flat & np.asarray(prompts > growing))
    name = np.where(full & ~np.asarray(endless) & room_helps, held, np.where(flat | np.asarray(full), slow, ""))
    return name if name.ndim else (str(name) or None)
