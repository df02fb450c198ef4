"""Speculative decoding: what a step yields, and up to which batch it pays.

References
----------
[1] Leviathan et al., arXiv 2211.17192: tokens per step, with the bonus token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchline.step import decode_step

if TYPE_CHECKING:
    from batchline.roofline import Floats
    from batchline.step import Coefficients, Ideal

__all__ = ["Speculation", "break_even_batch", "tokens_per_step"]

_HALVINGS = 40  # 2^-40 of the interval: far below a sequence


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: a draft proposes tokens, one step of the model verifies them all.

    Parameters
    ----------
    acceptance : float or array
        Chance that a drafted token is accepted [-].
    draft_tokens : float or array
        Tokens drafted per step, gamma [token].
    draft_s : float or array
        Time to draft one token for the whole batch [s].
    """

    acceptance: Floats
    draft_tokens: Floats
    draft_s: Floats = 0.0


def tokens_per_step(speculation: Speculation) -> Floats:
    r"""Tokens that one verification step yields, :math:`(1 - a^{\gamma+1}) / (1 - a)`, the bonus token included [1].

    Parameters
    ----------
    speculation : Speculation
        Acceptance and draft length.

    Returns
    -------
    float or array
        Tokens [token]; at least 1.

    Examples
    --------
    >>> round(float(tokens_per_step(Speculation(acceptance=0.8, draft_tokens=4))), 4)
    3.3616
    """
    a = np.asarray(speculation.acceptance, dtype=float)
    certain = a >= 1.0
    series = (1.0 - a ** (speculation.draft_tokens + 1)) / np.where(certain, 1.0, 1.0 - a)
    return np.where(certain, np.asarray(speculation.draft_tokens) + 1.0, series)[()]


def break_even_batch(
    ideal: Ideal, coefficients: Coefficients, speculation: Speculation, *, limit: float = 65536.0
) -> float:
    """Batch up to which speculative decoding makes a token cheaper; beyond, verifying costs more than it yields.

    Parameters
    ----------
    ideal : Ideal
        Ideal times of one device (numbers, no arrays).
    coefficients : Coefficients
        What the engine makes of them.
    speculation : Speculation
        Acceptance, draft length and draft time.
    limit : float
        Largest batch looked at [sequence].

    Returns
    -------
    float
        Sequences [sequence]; 0 if it never pays, infinity if it pays up to `limit`.

    Examples
    --------
    >>> from batchline.step import Coefficients, ideal
    >>> one = ideal(weight_bytes=139e9, kv_read_bytes=0, active_params=69.5e9, layers=80, bandwidth=13.4e12,
    ...             flops=3956e12, flops_bf16=3956e12)
    >>> round(break_even_batch(one, Coefficients(), Speculation(0.8, 4)))
    426
    """
    gain = tokens_per_step(speculation)

    def loss(batch: float) -> float:
        drafted = speculation.draft_s * speculation.draft_tokens
        tokens = speculation.draft_tokens + 1
        verified = decode_step(ideal, coefficients, batch, tokens_per_sequence=tokens).total + drafted
        return float(verified / gain - decode_step(ideal, coefficients, batch).total)

    batches = np.geomspace(1.0, limit, 400)
    pays = [loss(batch) < 0.0 for batch in batches]
    if not any(pays):
        return 0.0
    last = len(pays) - 1 - pays[::-1].index(True)  # a mixture of experts may lose at small batches and win later
    if last == len(pays) - 1:
        return float(np.inf)
    low, high = batches[last], batches[last + 1]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) < 0.0 else (low, middle)
    return float(low)
