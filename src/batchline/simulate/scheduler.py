"""How an engine schedules: the knobs of vLLM, SGLang, a static batch and the lecture's train.

Each class holds what its scheduler needs to know; the scheduling itself is in `_loop`. `kv_blocks` is what the engine
prints at start-up (vLLM: "num_gpu_blocks") or what `batchline.deployment` computes; None means that the KV cache never
fills.

References
----------
[1] vLLM V1 scheduler, vllm/v1/core/sched/scheduler.py, 0.11 to 0.22: running requests first, then waiting ones, under
    one token budget; the request admitted last is preempted first and recomputed; blocks of what was freed stay
    findable until taken, longest free first. `scheduler_reserve_full_isl` and `async_scheduling` are its own names.
[2] SGLang, python/sglang/srt/managers/scheduler.py and schedule_policy.py, 0.4 to 0.5: prompts before decodes, a share
    of the outputs (`new_token_ratio`) reserved at admission that melts by the step, retraction of decoding requests.
[3] Pope's lecture (transcript, dwarkeshsp/flashcards, 2026): a train leaves every T; who misses it takes the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from batchline.errors import InputError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Scheduler", "Sglang", "Static", "Train", "Vllm"]

UNLIMITED = 1 << 40
"""Blocks of a KV cache that never fills [block]."""

NO_BUDGET = 1 << 40
"""Tokens of a step without a budget [token]."""


def _check(**knobs: float | None) -> None:
    for name, value in knobs.items():
        if value is not None and not value >= 1:
            raise InputError(Sentence("error.knob_from_1", name=name, given=f"{value}"))


@dataclass(frozen=True, kw_only=True)
class Vllm:
    """vLLM V1: running requests first, prompts in chunks beside decodes, preemption by recomputing [1].

    Parameters
    ----------
    max_num_seqs : int
        Most requests that run together [sequence].
    max_num_batched_tokens : int
        Tokens of one step, decoded and prompt tokens together [token].
    kv_blocks : int or None
        Blocks of the KV cache [block]; None: it never fills.
    block_size : int
        Tokens of a block [token].
    prefix_caching : bool
        Whether blocks that were freed can be found again.
    async_scheduling : bool
        Whether a step is scheduled while the one before it runs (default since 0.14): an arrival and the end of a
        request are seen one step later.
    reserve_full_isl : bool
        Whether a request is admitted only if its whole prompt fits (default since 0.18), not merely its first chunk.

    Raises
    ------
    InputError
        A knob below 1, or a budget that does not hold one token of each sequence.

    Examples
    --------
    >>> Vllm(max_num_seqs=128, kv_blocks=2588).kv_tokens
    41408
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    kv_blocks: int | None = None
    block_size: int = 16
    prefix_caching: bool = True
    async_scheduling: bool = False
    reserve_full_isl: bool = True

    def __post_init__(self) -> None:
        _check(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            kv_blocks=self.kv_blocks,
            block_size=self.block_size,
        )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise InputError(
                Sentence(
                    "error.budget_below_seqs", budget=f"{self.max_num_batched_tokens}", sequences=f"{self.max_num_seqs}"
                ),
                Sentence("error.vllm_refuses_budget"),
            )

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV cache holds [token]; None: any number."""
        return None if self.kv_blocks is None else self.kv_blocks * self.block_size

    def rules(self) -> Mapping[str, Any]:
        """Give the knobs by the names of the event loop.

        Returns
        -------
        mapping
            Of `simulate._records.Rules`.
        """
        return {
            "policy": "VLLM",
            "max_num_seqs": self.max_num_seqs,
            "budget": self.max_num_batched_tokens,
            "block_size": self.block_size,
            "blocks": UNLIMITED if self.kv_blocks is None else self.kv_blocks,
            "caching": self.prefix_caching,
            "lag": self.async_scheduling,
            "reserve": self.reserve_full_isl,
        }


@dataclass(frozen=True, kw_only=True)
class Sglang:
    """SGLang: prompts first, in steps of their own; a radix cache; decoding requests are retracted when it is full [2].

    Parameters
    ----------
    max_running_requests : int
        Most requests that run together [sequence].
    chunked_prefill_size : int
        Prompt tokens of one step, longer prompts continue in the next [token].
    max_prefill_tokens : int
        Prompt tokens of the requests admitted in one step [token].
    kv_tokens : int or None
        Tokens that the KV cache holds [token] (SGLang: "max_total_num_tokens"); None: it never fills.
    page_size : int
        Tokens of a page [token].
    radix_cache : bool
        Whether what was freed can be found again.
    overlap_schedule : bool
        Whether a step is scheduled while the one before it runs.
    schedule_conservativeness : float
        Scales the share of the outputs that is reserved at admission, 0.7 at first [-].

    Raises
    ------
    InputError
        A knob below 1.

    Examples
    --------
    >>> Sglang(kv_tokens=40000).kv_blocks
    40000
    """

    max_running_requests: int = 256
    chunked_prefill_size: int = 8192
    max_prefill_tokens: int = 16384
    kv_tokens: int | None = None
    page_size: int = 1
    radix_cache: bool = True
    overlap_schedule: bool = False
    schedule_conservativeness: float = 1.0

    def __post_init__(self) -> None:
        _check(
            max_running_requests=self.max_running_requests,
            chunked_prefill_size=self.chunked_prefill_size,
            max_prefill_tokens=self.max_prefill_tokens,
            kv_tokens=self.kv_tokens,
            page_size=self.page_size,
        )
        if not self.schedule_conservativeness > 0.0:
            raise InputError(
                Sentence(
                    "error.not_above_0", name="schedule_conservativeness", given=f"{self.schedule_conservativeness}"
                )
            )

    @property
    def max_num_seqs(self) -> int:
        """Most requests that run together [sequence]."""
        return self.max_running_requests

    @property
    def kv_blocks(self) -> int | None:
        """Pages of the KV cache [block]; None: any number."""
        return None if self.kv_tokens is None else self.kv_tokens // self.page_size

    @property
    def block_size(self) -> int:
        """Tokens of a page [token]."""
        return self.page_size

    def rules(self) -> Mapping[str, Any]:
        """Give the knobs by the names of the event loop.

        Returns
        -------
        mapping
            Of `simulate._records.Rules`.
        """
        # SGLang's own constants: 0.7 at first, down to 14% of that, over 600 decode steps.
        ratio = min(0.7 * self.schedule_conservativeness, 1.0)
        least = min(ratio * 0.14, 1.0)
        return {
            "policy": "SGLANG",
            "max_num_seqs": self.max_running_requests,
            "budget": self.chunked_prefill_size,
            "prompt_budget": self.max_prefill_tokens,
            "block_size": self.page_size,
            "blocks": UNLIMITED if self.kv_blocks is None else self.kv_blocks,
            "caching": self.radix_cache,
            "lag": self.overlap_schedule,
            "ratio": ratio,
            "least_ratio": least,
            "ratio_decay": (ratio - least) / 600,
        }


@dataclass(frozen=True, kw_only=True)
class Static:
    """Static batching: a batch starts when it is full or has waited long enough, and all of it ends together.

    Parameters
    ----------
    batch : int
        Sequences of a full batch [sequence].
    timeout_s : float
        Longest that the first request of a batch waits for others [s].
    kv_tokens : int or None
        Tokens that the KV cache holds [token]; a batch reserves its outputs whole. None: any number.

    Raises
    ------
    InputError
        A batch below 1 or a negative timeout.

    Examples
    --------
    >>> Static(batch=8).max_num_seqs
    8
    """

    batch: int = 32
    timeout_s: float = 0.0
    kv_tokens: int | None = None

    def __post_init__(self) -> None:
        _check(batch=self.batch, kv_tokens=self.kv_tokens)
        if not self.timeout_s >= 0.0:
            raise InputError(Sentence("error.not_from_0", name="timeout_s", given=f"{self.timeout_s}"))

    @property
    def max_num_seqs(self) -> int:
        """Most requests that run together [sequence]."""
        return self.batch

    @property
    def kv_blocks(self) -> int | None:
        """Blocks of one token [block]; None: any number."""
        return self.kv_tokens

    @property
    def block_size(self) -> int:
        """Tokens of a block [token]."""
        return 1

    def rules(self) -> Mapping[str, Any]:
        """Give the knobs by the names of the event loop.

        Returns
        -------
        mapping
            Of `simulate._records.Rules`.
        """
        return {
            "policy": "STATIC",
            "max_num_seqs": self.batch,
            "budget": NO_BUDGET,
            "block_size": 1,
            "blocks": UNLIMITED if self.kv_tokens is None else self.kv_tokens,
            "timeout_s": self.timeout_s,
        }


@dataclass(frozen=True, kw_only=True)
class Train:
    """The lecture's schedule: a step leaves every `period_s` with whoever is there; a longer one skips departures [3].

    Parameters
    ----------
    period_s : float
        Time between departures [s].
    max_num_seqs : int
        Most sequences aboard [sequence].
    max_num_batched_tokens : int or None
        Tokens of one step [token]; None: no limit.
    kv_blocks : int or None
        Blocks of the KV cache [block]; None: it never fills.
    block_size : int
        Tokens of a block [token].

    Raises
    ------
    InputError
        A knob below 1 or a period that is not above 0.

    Examples
    --------
    >>> Train(period_s=0.02).kv_tokens is None
    True
    """

    period_s: float = 0.02
    max_num_seqs: int = 2048
    max_num_batched_tokens: int | None = None
    kv_blocks: int | None = None
    block_size: int = 16

    def __post_init__(self) -> None:
        _check(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            kv_blocks=self.kv_blocks,
            block_size=self.block_size,
        )
        if not 0.0 < self.period_s < float("inf"):
            raise InputError(Sentence("error.not_above_0", name="period_s", given=f"{self.period_s}"))

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV cache holds [token]; None: any number."""
        return None if self.kv_blocks is None else self.kv_blocks * self.block_size

    def rules(self) -> Mapping[str, Any]:
        """Give the knobs by the names of the event loop.

        Returns
        -------
        mapping
            Of `simulate._records.Rules`.
        """
        return {
            "policy": "VLLM",
            "max_num_seqs": self.max_num_seqs,
            "budget": self.max_num_batched_tokens or NO_BUDGET,
            "block_size": self.block_size,
            "blocks": UNLIMITED if self.kv_blocks is None else self.kv_blocks,
            "reserve": True,
            "period_s": self.period_s,
        }


Scheduler: TypeAlias = Vllm | Sglang | Static | Train
"""Any of the schedulers."""
