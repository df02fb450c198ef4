"""A batch that starts together and runs to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from batchline.serving.load import Load
from batchline.serving.steady import steady
from batchline.step import prefill

if TYPE_CHECKING:
    from batchline.roofline import Floats
    from batchline.serving.speculation import Speculation
    from batchline.serving.steady import Steady
    from batchline.step import Coefficients, Ideal

__all__ = ["static_batch"]


def static_batch(
    ideal: Ideal,
    coefficients: Coefficients,
    batch: Floats,
    isl: Floats,
    osl: Floats,
    capacity_batch: Floats = np.inf,
    *,
    speculation: Speculation | None = None,
) -> Steady:
    """State of a batch that starts together and runs to its end, as offline benchmarks do: nobody waits or interferes.

    Parameters
    ----------
    ideal, coefficients, isl, osl, capacity_batch, speculation
        As in `closed_loop`.
    batch : float or array
        Sequences in the batch [sequence].

    Returns
    -------
    Steady
        `ttft_s` is the prefill of the whole batch, without a network; `tpot_s` the decode step at the mean context.

    Examples
    --------
    >>> from batchline.step import Coefficients, ideal
    >>> one = ideal(weight_bytes=15e9, kv_read_bytes=1536 * 131072, active_params=7.5e9, layers=32, bandwidth=3.35e12,
    ...             flops=989e12, flops_bf16=989e12)
    >>> state = static_batch(one, Coefficients(), 64, 1024, 1024)
    >>> round(float(state.ttft_s), 3), round(float(state.tpot_s) * 1e3, 2)
    (0.994, 9.29)
    """
    load = Load(ideal, coefficients, isl, osl, speculation=speculation, interferes=False)
    rank = np.maximum(batch / ideal.dp, 1.0)
    attention = ideal.prompt_attention_s * rank
    ttft = prefill(ideal, coefficients, isl * rank, attention_s=attention, prompts=rank).total
    tpot = load.tpot_s(batch)
    requests = batch / (ttft + np.maximum(osl - 1.0, 0.0) * tpot)
    return steady(load, batch, (batch, tpot), (ttft, 0.0), requests, False, capacity_batch, np.inf)
