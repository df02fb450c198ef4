"""The clock of the simulator: `batchline.step` as numbers and tables.

The event loop asks for the time of a step millions of times a second, so it cannot call `step`. `tabulate` calls it
beforehand, once over arrays, and keeps what came back:

    step(batch, contexts, chunks) = decode_s[batch] + sum of kv_s(context) + share [tokens prompt_token_s
                                  + sum of attention_s[end] - attention_s[start] + prompts prompt_s
                                  + (prompt_expert_s[tokens] - expert_s[batch])+ ]

No formula of `step` is written a second time: tables are its answers, and a test holds the sum equal to
`step.mixed_step`. kv_s is piecewise linear in the context: one piece for plain attention, more where windows or top-k
choices flatten it. Where it is a staircase (compressed attention adds an entry every few tokens) the clock follows
it on straight lines, off by less than one entry.

A deployment with attention data parallelism is simulated as one engine for each rank; the batch of the others, who
share the experts, is taken to be as large as its own. With pipeline parallelism a prompt occupies a stage for 1/PP of
its time, and other micro-batches run meanwhile: share = 1/PP.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.errors import InputError
from batchline.step import decode_step, prefill
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from batchline.roofline import Floats
    from batchline.step import Coefficients, Ideal

__all__ = ["Clock", "tabulate"]

_MOST_PIECES = 32
_EXPERT_TOKENS = 65536  # tokens that touch all experts of any model


@dataclass(frozen=True, kw_only=True, eq=False)
class Clock:
    """Time of any step of an engine.

    Parameters
    ----------
    decode_s : array
        Step that decodes a batch of 0, 1, 2, ... sequences, without their KV cache [s].
    expert_s : array
        Of this, the routed experts [s].
    knots : array
        Contexts at which the KV time changes its slope, from 0 on [token].
    kv_s, kv_slope_s : array
        KV time of a sequence at each knot [s], and its slope from there on [s/token].
    prompt_token_s : float
        Time that a prompt token adds [s].
    prompt_s : float
        Time that a prompt adds, whatever its length [s].
    attention_s : array
        Causal attention of a prompt of 0, 1, 2, ... tokens [s].
    prompt_expert_s : array
        Routed experts that 0, 1, 2, ... prompt tokens touch [s]; the last value holds for more.
    prompt_share : float
        Part of a prompt's time that the step becomes longer by [-].
    ttft_constant_s : float
        From the client to the engine [s].
    """

    decode_s: NDArray[np.float64]
    expert_s: NDArray[np.float64]
    knots: NDArray[np.int64]
    kv_s: NDArray[np.float64]
    kv_slope_s: NDArray[np.float64]
    prompt_token_s: float = 0.0
    prompt_s: float = 0.0
    attention_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    prompt_expert_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    prompt_share: float = 1.0
    ttft_constant_s: float = 0.0

    @property
    def max_batch(self) -> int:
        """Largest batch that it knows [sequence]."""
        return len(self.decode_s) - 1

    @property
    def max_tokens(self) -> int:
        """Longest prompt that it knows [token]."""
        return len(self.attention_s) - 1

    def kv(self, context: Any) -> NDArray[np.float64]:
        """KV time of sequences.

        Parameters
        ----------
        context : int or array
            Tokens of context of each, its new one included [token].

        Returns
        -------
        array
            Seconds [s].
        """
        context = np.asarray(context)
        piece = np.searchsorted(self.knots, context, side="right") - 1
        return np.asarray(self.kv_s[piece] + self.kv_slope_s[piece] * (context - self.knots[piece]))

    def step(self, contexts: Any, chunks: Iterable[tuple[int, int]] = (), prompts: int = 0) -> float:
        """Time of one step, as the event loop computes it.

        Parameters
        ----------
        contexts : sequence of int
            Context of each sequence that decodes, its new token included [token].
        chunks : iterable of (int, int)
            Prompt chunks: tokens before, tokens in the chunk [token].
        prompts : int
            Prompts that the chunks complete [request].

        Returns
        -------
        float
            Seconds [s].

        Examples
        --------
        >>> flat = Clock(decode_s=np.full(9, 0.02), expert_s=np.zeros(9), knots=np.array([0]), kv_s=np.zeros(1),
        ...              kv_slope_s=np.array([1e-7]))
        >>> round(flat.step([1000, 2000]), 6)
        0.0203
        """
        contexts = np.asarray(contexts, dtype=np.int64)
        time = self.decode_s[len(contexts)] + self.kv(contexts).sum()
        chunks = list(chunks)
        if chunks:
            tokens = sum(size for _, size in chunks)
            attention = sum(self.attention_s[start + size] - self.attention_s[start] for start, size in chunks)
            touched = self.prompt_expert_s[min(tokens, len(self.prompt_expert_s) - 1)]
            fresh = max(touched - self.expert_s[len(contexts)], 0.0)
            time += self.prompt_share * (tokens * self.prompt_token_s + attention + prompts * self.prompt_s + fresh)
        return float(time)


def tabulate(
    ideal_at: Callable[[Floats], Ideal], coefficients: Coefficients, *, max_batch: int, max_context: int
) -> Clock:
    """Make the clock of an engine by calling `batchline.step`.

    Parameters
    ----------
    ideal_at : callable
        Ideal times at contexts of so many tokens, which are also the lengths of the prompts.
    coefficients : Coefficients
        What the engine makes of them.
    max_batch : int
        Largest batch, of one data-parallel rank [sequence].
    max_context : int
        Longest sequence [token].

    Returns
    -------
    Clock
        Time of any step up to there.

    Raises
    ------
    InputError
        A step would take no time, or an infinite time.

    Examples
    --------
    >>> from batchline.step import Coefficients, ideal
    >>> clock = tabulate(
    ...     lambda n: ideal(weight_bytes=15e9, kv_read_bytes=131072 * n, active_params=7.5e9, layers=32,
    ...                     bandwidth=3.35e12, flops=989e12, flops_bf16=989e12),
    ...     Coefficients(), max_batch=64, max_context=4096)
    >>> round(clock.step([1000] * 64) * 1e3, 2), round(clock.step([], [(0, 1024)], 1) * 1e3, 2)
    (7.95, 20.01)
    """
    contexts = np.arange(max_context + 1, dtype=float)
    at = ideal_at(contexts)
    here = ideal_at(np.float64(1.0))
    dp = float(np.asarray(here.dp))
    pp = float(np.asarray(here.pp))
    batches = np.arange(max_batch + 1, dtype=float)
    terms = decode_step(here, coefficients, batches * dp)
    decode = np.broadcast_to(np.asarray(terms.total - terms.kv, dtype=float), batches.shape).copy()
    if not np.all(np.isfinite(decode)) or not np.all(decode[1:] > 0.0):
        raise InputError(Sentence("error.no_time_or_forever"), hint=Sentence("error.look_at_coefficients"))
    kv = np.broadcast_to(np.asarray(decode_step(at, coefficients, dp).kv, dtype=float), contexts.shape)
    knots, values, slopes = _pieces(kv)
    one = prefill(here, coefficients, 1.0, attention_s=0.0, prompts=1)
    attention = prefill(at, coefficients, 0.0, prompts=0).prefill_attention
    touched = prefill(here, coefficients, np.arange(_EXPERT_TOKENS, dtype=float), attention_s=0.0).experts
    return Clock(
        decode_s=decode,
        expert_s=np.broadcast_to(np.asarray(terms.experts, dtype=float), batches.shape).copy(),
        knots=knots,
        kv_s=values,
        kv_slope_s=slopes,
        prompt_token_s=float(np.asarray(one.prefill_linear + one.tp_volume + one.ep_alltoall + one.pp_hops)),
        prompt_s=float(np.asarray(one.per_prompt)),
        attention_s=np.broadcast_to(np.asarray(attention, dtype=float), contexts.shape).copy(),
        prompt_expert_s=_until_flat(np.broadcast_to(np.asarray(touched, dtype=float), (_EXPERT_TOKENS,))),
        prompt_share=1.0 / pp,
        ttft_constant_s=float(np.asarray(coefficients.ttft_constant)),
    )


def _until_flat(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values[: int(np.argmax(values >= values[-1])) + 1].copy()


def _pieces(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Straight lines through values at 0, 1, 2, ...: where each begins, its value there, its slope."""
    last = len(values) - 1
    if last == 0:
        return np.zeros(1, np.int64), values.copy(), np.zeros(1)
    rises = np.diff(values)
    noise = 1e-8 * np.abs(rises).max() + 8 * np.finfo(float).eps * np.abs(values).max()
    kinks = np.flatnonzero(np.abs(np.diff(rises)) > noise) + 1
    if len(kinks) >= _MOST_PIECES:
        kinks = np.unique(np.geomspace(1, last, 2 * _MOST_PIECES).astype(np.int64))[:-1]
    knots = np.concatenate([[0], kinks]).astype(np.int64)
    ends = np.concatenate([knots[1:], [last]])
    slopes = (values[ends] - values[knots]) / np.maximum(ends - knots, 1)
    return knots, values[knots].copy(), slopes
