"""Engines that are alike, and what a deployment makes of itself as such."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import prior, readings
from batchline.errors import InputError
from batchline.simulate import _state
from batchline.simulate.clock import Clock, tabulate
from batchline.simulate.scheduler import Scheduler, Sglang, Vllm
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchline.deployment import Deployment
    from batchline.step import Coefficients
    from batchline.workload import Requests

__all__ = ["Pool", "pool_of", "transfer_of"]

_LONGEST = 1 << 18  # tokens up to which a clock is tabulated unless asked for more
_SGLANG = {
    "max_num_seqs": "max_running_requests",
    "max_num_batched_tokens": "chunked_prefill_size",
    "block_size": "page_size",
    "prefix_caching": "radix_cache",
    "async_scheduling": "overlap_schedule",
}
_ASYNC_SINCE = (0, 14)  # vLLM versions that schedule ahead by default; the log of 0.19 says that it does


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """Engines that are alike.

    Parameters
    ----------
    clock : Clock
        Time of their steps.
    scheduler : Vllm, Sglang, Static or Train
        How they schedule.
    replicas : int
        How many there are [-].
    ranks : int
        Engines of one replica: its attention-data-parallel degree [-].
    usd_per_hour : float or None
        Price of one replica [USD/h].
    power_w : float or None
        Design power of one replica [W].
    title : str
        What it is, for people.
    """

    clock: Clock
    scheduler: Scheduler = field(default_factory=Vllm)
    replicas: int = 1
    ranks: int = 1
    usd_per_hour: float | None = None
    power_w: float | None = None
    title: str = ""

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.ranks < 1:
            raise InputError(Sentence("error.pool_from_1", replicas=f"{self.replicas}", ranks=f"{self.ranks}"))
        if self.clock.max_batch < self.scheduler.max_num_seqs:
            raise InputError(
                Sentence(
                    "error.clock_batches", known=f"{self.clock.max_batch}", allowed=f"{self.scheduler.max_num_seqs}"
                ),
                hint=Sentence("error.tabulate"),
            )

    @property
    def engines(self) -> int:
        """Engines of all replicas [-]."""
        return self.replicas * self.ranks

    def kind(self, role: str) -> _state.EngineKind:
        """Tell the event loop what it needs to know of these engines.

        Parameters
        ----------
        role : str
            "BOTH", "PREFILL" or "DECODE", as in `_loop.codes`.

        Returns
        -------
        EngineKind
            Clock, rules and count.
        """
        return _state.EngineKind(clock=self.clock, rules=self.scheduler.rules(), role=role, count=self.engines)

    def unfit(self, requests: Requests, first: int = 0) -> tuple[str, str] | None:
        """Find a request that no engine of the pool could ever serve.

        Parameters
        ----------
        requests : Requests
            A chunk of them.
        first : int
            Number of the chunk's first request.

        Returns
        -------
        tuple of str or None
            What the request has, and what is allowed; None if all fit.
        """
        place = np.flatnonzero(~self.fits(requests))
        if not len(place):
            return None
        row = int(place[0])
        total = int(requests.isl[row] + requests.osl[row])
        if total > self.clock.max_tokens:
            allowed = Sentence("error.engines_serve", most=f"{self.clock.max_tokens:,}")
            return Sentence("error.request_tokens", row=f"{first + row}", tokens=f"{total:,}"), allowed
        held = (self.scheduler.kv_blocks or 0) * self.scheduler.block_size
        needed = Sentence("error.request_cache", row=f"{first + row}", tokens=f"{total - 1:,}")
        return needed, Sentence("error.cache_holds", held=f"{held:,}")

    def fits(self, requests: Requests) -> Any:
        """Whether an engine could serve each request.

        Parameters
        ----------
        requests : Requests
            A chunk of them.

        Returns
        -------
        array of bool
            One for each.
        """
        total = requests.isl + requests.osl
        good = total <= self.clock.max_tokens
        blocks = self.scheduler.kv_blocks
        if blocks is None:
            return good
        size = self.scheduler.block_size
        return good & ((total + size - 2) // size <= blocks)


def pool_of(
    deployment: Deployment,
    *,
    context: float,
    scheduler: Scheduler | None = None,
    knobs: Mapping[str, Any] | None = None,
    coefficients: Coefficients | None = None,
    max_context: int | None = None,
    replicas: int = 1,
) -> Pool:
    """Engines that a deployment runs: its step times, its memory, its engine's scheduler with default knobs.

    Parameters
    ----------
    deployment : Deployment
        Model, accelerators, layout, formats, engine.
    context : float
        Mean context of a sequence [token]: where windows or states make room for more sequences than tokens, the cache
        is taken to hold as many tokens as it holds sequences of this length.
    scheduler : Scheduler, optional
        A scheduler of its own; default that of the deployment's engine.
    knobs : mapping of str to number, optional
        Knobs that differ from the engine's defaults, by the names of `Vllm`; for SGLang those that it has as well.
    coefficients : Coefficients, optional
        Of its steps; default those that the priors know.
    max_context : int, optional
        Longest request; default the engine's max_model_len, at most 262,144 [token].
    replicas : int
        How many [-].

    Returns
    -------
    Pool
        One engine for each rank of attention data parallelism.

    Raises
    ------
    InputError
        A knob that the scheduler does not have.
    DoesNotFitError
        The weights and one sequence do not fit.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> pool = pool_of(Deployment.of("llama-3.1-8b", "h100"), context=2000)
    >>> pool.scheduler.block_size, pool.clock.max_tokens
    (16, 131072)
    """
    deployment.check_fits(context)
    rules = scheduler or _scheduler(deployment, context, dict(knobs or {}))
    longest = max_context or min(deployment.account.max_model_len, _LONGEST)
    known = coefficients or prior.load().coefficients(readings.case_of(deployment))

    def ideal_at(n: Any) -> Any:
        return readings.ideal_of(deployment, n, n)

    return Pool(
        clock=tabulate(ideal_at, known, max_batch=rules.max_num_seqs, max_context=longest),
        scheduler=rules,
        replicas=replicas,
        ranks=deployment.dp,
        usd_per_hour=deployment.usd_per_hour,
        power_w=None if deployment.accelerator.tdp is None else deployment.accelerator.tdp * deployment.count,
        title=deployment.title,
    )


def _kv_tokens(deployment: Deployment, context: float) -> int | None:
    """Tokens that the cache of one rank holds."""
    account = deployment.account
    if account.pool.layout.grows_alike:
        return int(account.pool.blocks * account.pool.layout.block)
    sequences = float(account.pool.capacity_batch(context))
    return int(sequences * context) if np.isfinite(sequences) else None


def _scheduler(deployment: Deployment, context: float, knobs: dict[str, Any]) -> Vllm | Sglang:
    account = deployment.account
    tokens = _kv_tokens(deployment, context)
    if deployment.engine == "sglang":
        knobs = _sglang(knobs)
    try:
        if deployment.engine == "sglang":
            defaults = Sglang(
                max_running_requests=account.max_num_seqs,
                chunked_prefill_size=account.max_num_batched_tokens,
                kv_tokens=tokens,
            )
            return replace(defaults, **knobs)
        block = int(knobs.get("block_size", account.pool.layout.block if account.pool.layout.grows_alike else 16))
        version = tuple(int(part) for part in deployment.engine_version.split(".")[:2] if part.isdigit())
        ahead = deployment.engine == "vllm" and (not version or version >= _ASYNC_SINCE)
        seats = int(knobs.get("max_num_seqs", account.max_num_seqs))
        return replace(
            Vllm(
                max_num_seqs=seats,
                max_num_batched_tokens=max(account.max_num_batched_tokens, seats),
                kv_blocks=None if tokens is None else tokens // block,
                block_size=block,
                async_scheduling=ahead,
            ),
            **knobs,
        )
    except TypeError as error:
        raise InputError(Sentence("error.no_knob", engine=deployment.engine, reason=str(error))) from None


def _sglang(knobs: dict[str, Any]) -> dict[str, Any]:
    """Knobs of vLLM by the names of SGLang."""
    renamed = {_SGLANG[name]: value for name, value in knobs.items() if name in _SGLANG}
    if "kv_blocks" in knobs:
        renamed["kv_tokens"] = knobs["kv_blocks"] * knobs.get("block_size", 1)
    known = {*_SGLANG, "kv_blocks", "reserve_full_isl"}
    return renamed | {name: value for name, value in knobs.items() if name not in known}


def transfer_of(deployment: Deployment, bandwidth: float, latency_s: float = 0.0) -> tuple[float, float]:
    """Time to move the KV cache of a prompt between two pools.

    Parameters
    ----------
    deployment : Deployment
        Whose cache it is.
    bandwidth : float
        Of the link between the pools, of one replica [B/s].
    latency_s : float
        To set up a transfer [s].

    Returns
    -------
    transfer_s, transfer_token_s : float
        Time whatever the length [s], and for each token [s/token], by the bytes at 1,024 and 2,048 tokens.

    Raises
    ------
    InputError
        A bandwidth that is not above 0.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> transfer_of(Deployment.of("llama-3.1-8b", "h100"), 50e9)
    (0.0, 2.62144e-06)
    """
    if not bandwidth > 0:
        raise InputError(Sentence("error.link_moves_nothing", given=f"{bandwidth:g}"))
    short, long = (float(deployment.architecture.stored_bytes(n, deployment.kv)) for n in (1024, 2048))
    token = (long - short) / 1024
    return latency_s + max(short - 1024 * token, 0.0) / bandwidth, token / bandwidth
