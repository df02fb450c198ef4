"""A simulation as it is asked for: which deployment, which requests, which promises, and knobs of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from batchline import readings
from batchline.simulate.pool import pool_of, transfer_of
from batchline.simulate.replay import fitting, simulate
from batchline.simulate.scheduler import Static, Train

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchline.deployment import Deployment
    from batchline.goodput import Promise
    from batchline.prior import Prior
    from batchline.simulate.load import Load
    from batchline.simulate.pool import Pool
    from batchline.simulate.result import Result
    from batchline.simulate.scheduler import Scheduler
    from batchline.workload import Traffic

__all__ = ["Question"]

_KNOBS = ("max_num_seqs", "max_num_batched_tokens", "kv_blocks", "block_size", "prefix_caching")


@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """Everything that a simulation takes.

    Parameters
    ----------
    deployment : Deployment
        Model, accelerators, layout, formats, engine.
    load : Load
        Requests.
    promises : mapping of str to Promise
        Limits of "ttft", "tpot", "itl" and "e2e".
    priors : Prior, optional
        Coefficients of the steps; default those of the package.
    scheduler : str
        "engine", "static" or "train".
    max_num_seqs, max_num_batched_tokens, kv_blocks, block_size : int, optional
        Knobs of the scheduler; default the engine's.
    prefix_caching : bool
        Whether blocks that were freed can be found again.
    period_s : float
        Between the departures of a train [s].
    timeout_s : float
        Longest wait of a static batch to be full [s].
    replicas : int
        Copies of the deployment [-].
    router : str
        One of `ROUTERS`.
    prefill_replicas : int, optional
        Copies that compute the prompts apart [-].
    transfer : float
        Link over which each of them sends KV caches [B/s].

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> from batchline.simulate.load import Load
    >>> asked = Question(deployment=Deployment.of("llama-3.1-8b", "h100"), load=Load(rate=4, isl=1000, osl=9, count=50))
    >>> asked.answer().requests, asked.context
    (50, 1004.5)
    """

    deployment: Deployment
    load: Load
    promises: Mapping[str, Promise] = field(default_factory=dict)
    priors: Prior | None = None
    scheduler: str = "engine"
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_blocks: int | None = None
    block_size: int | None = None
    prefix_caching: bool = True
    period_s: float = 0.02
    timeout_s: float = 1.0
    replicas: int = 1
    router: str = "round_robin"
    prefill_replicas: int | None = None
    transfer: float = 50e9

    @cached_property
    def traffic(self) -> Traffic:
        """The requests."""
        return self.load.traffic()

    @cached_property
    def context(self) -> float:
        """Mean context of a sequence, by the first requests [token]."""
        first = next(self.traffic.chunks())
        return float((first.osl * (first.isl + first.osl / 2)).sum() / first.osl.sum())

    def pool(self, **changes: Any) -> Pool:
        """Make the engines.

        Parameters
        ----------
        **changes
            Knobs or replicas in place of those of the question.

        Returns
        -------
        Pool
            For `simulate`.
        """
        asked = replace(self, **changes)
        scheduler = _scheduler_of(asked)
        knobs = {name: getattr(asked, name) for name in _KNOBS if getattr(asked, name) is not None}
        return pool_of(
            self.deployment,
            context=self.context,
            scheduler=scheduler,
            knobs=None if scheduler else knobs,
            coefficients=None if self.priors is None else self.priors.coefficients(readings.case_of(self.deployment)),
            replicas=asked.replicas,
        )

    def options(self) -> dict[str, Any]:
        """Give the arguments of `simulate` beside engines and requests.

        Returns
        -------
        dict
            Router, and where there are replicas for prompts, those and the time to move a KV cache [s].
        """
        found: dict[str, Any] = {"router": self.router}
        if self.prefill_replicas:
            found["prefill"] = self.pool(replicas=self.prefill_replicas)
            found["transfer_s"], found["transfer_token_s"] = transfer_of(self.deployment, self.transfer)
        return found

    def served(self, pool: Pool) -> Traffic:
        """Give the requests, without those that fit nowhere if repairs are allowed.

        Parameters
        ----------
        pool : Pool
            Where they are to be served.

        Returns
        -------
        Traffic
            The requests.
        """
        return fitting(self.traffic, pool) if self.load.repair else self.traffic

    def answer(self, *, compiled: bool | None = None) -> Result:
        """Simulate.

        Parameters
        ----------
        compiled : bool, optional
            As in `simulate`.

        Returns
        -------
        Result
            What was found.
        """
        pool = self.pool()
        return simulate(pool, self.served(pool), promises=self.promises, compiled=compiled, **self.options())

    def to_dict(self) -> dict[str, Any]:
        """Say what was simulated, by the names that the command line prints as JSON.

        Returns
        -------
        dict
            Deployment, engine, traffic and mean context [token].
        """
        return {
            "deployment": self.deployment.title,
            "engine": self.deployment.engine,
            "traffic": self.traffic.name,
            "mean_context": self.context,
        }


def _scheduler_of(asked: Question) -> Scheduler | None:
    if asked.scheduler == "engine":
        return None
    held = asked.deployment.account.pool
    blocks = asked.kv_blocks or held.blocks
    size = asked.block_size or held.layout.block
    if asked.scheduler == "static":
        return Static(batch=asked.max_num_seqs or 32, timeout_s=asked.timeout_s, kv_tokens=blocks * size)
    return Train(
        period_s=asked.period_s,
        max_num_seqs=asked.max_num_seqs or 2048,
        max_num_batched_tokens=asked.max_num_batched_tokens,
        kv_blocks=blocks,
        block_size=size,
    )
