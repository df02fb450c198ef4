"""A measured point: what was served, how it was loaded, what came out."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from batchline import prior, readings, serving, step

if TYPE_CHECKING:
    from batchline.deployment import Deployment

__all__ = ["STATIC", "Point", "Pools"]

STATIC = ("decode_static", "decode_steady", "decode_derived", "static_e2e", "production_mean")
"""Regimes of a batch of fixed size, without a client."""
_MOST_MEMORY = 0.97


@dataclass(frozen=True, kw_only=True)
class Pools:
    """Prefill and decode on devices of their own.

    Parameters
    ----------
    prefill : Deployment
        One prefill instance.
    prefill_instances, decode_instances : int
        How many there are [-].
    transfer_s : float
        Time to move the KV cache of a prompt [s].
    """

    prefill: Deployment
    prefill_instances: int
    decode_instances: int
    transfer_s: float


@dataclass(frozen=True, kw_only=True)
class Point:
    """A measured point: what was served, how it was loaded, what came out.

    Parameters
    ----------
    deployment : Deployment
        Model, devices, formats, layout; the engine's memory accounting.
    engine : str
        Engine by the priors' name; one whose memory accounting is not known counts memory as "generic".
    isl, osl : float
        Mean input and output length [token].
    concurrency : float
        Requests in flight at the client; sequences of a batch in a static regime [request].
    client : str
        How the client sends: "random" or "fixed" lengths (which keep clients in step), "sweep", or "" when not known;
        "random, median" where TTFT is the median, which a burst at the start of a run leaves alone.
    regime : str
        What was measured: "serving_conc" (a closed loop), "decode_static" (steps of a fixed batch), "static_e2e" (a
        batch from start to end, divided by the output length), "production_mean".
    tpot_s, ttft_s : float or None
        Measured [s].
    date : str
        Day of the measurement or of the engine's release, ISO; "" when not known.
    version : str
        The engine's version.
    series : str
        Points of one series differ in the concurrency alone.
    qc : str
        "ok", or what is doubtful.
    row : int
        Line in the file, the header being 1.
    key : str
        The row's own id, if it has one.
    pools : Pools or None
        Where prompts were computed, if not beside the decoding; `deployment` is then one decode instance.
    speculation : serving.Speculation or None
        Speculative decoding.
    prefix_hit_rate : float
        Share of prompt tokens found in the prefix cache [-].
    max_num_seqs : float
        The engine's own limit, per data-parallel rank; infinite when not known [sequence].
    max_num_batched_tokens : float
        Chunked-prefill token budget of a step; infinite when not known [token].
    admission_interval : float
        The engine looks for new requests every so many steps; 0 where before each, or not known [step].
    opening_share : float
        Share of the requests behind `ttft_s` that were sent all at once at the start of the run; 0 for a median, or
        where it is not known [-].
    repeated_prompts : bool
        Whether the server found prompts in its prefix cache, and how many is not known.
    memory_alone : bool
        Whether no compute rate is known, so that decoding is taken to be bound by memory and prompts are not predicted.
    """

    deployment: Deployment
    engine: str
    isl: float
    osl: float
    concurrency: float
    client: str
    regime: str
    tpot_s: float | None
    ttft_s: float | None
    date: str
    version: str
    series: str
    qc: str
    row: int
    key: str
    pools: Pools | None = None
    speculation: serving.Speculation | None = None
    prefix_hit_rate: float = 0.0
    max_num_seqs: float = math.inf
    max_num_batched_tokens: float = math.inf
    admission_interval: float = 0.0
    opening_share: float = 0.0
    repeated_prompts: bool = False
    memory_alone: bool = False

    @property
    def context(self) -> float:
        """Mean tokens of context while decoding [token]."""
        return self.isl + self.osl / 2

    @functools.cached_property
    def ideal(self) -> step.Ideal:
        """Ideal times of one device at this point."""
        return readings.ideal_of(self.deployment, self.context, self.isl)

    @functools.cached_property
    def prompt_ideal(self) -> step.Ideal:
        """Ideal times of one device where prompts are computed."""
        where = self.deployment if self.pools is None else self.pools.prefill
        return readings.ideal_of(where, self.context, self.isl)

    @functools.cached_property
    def case(self) -> prior.Case:
        """Names by which the priors know it."""
        case = readings.case_of(self.deployment)
        return replace(case, engine=self.engine, engine_version=self.version, client=self.client, date=self.date)

    @functools.cached_property
    def capacity(self) -> float:
        """Sequences that the KV cache holds [sequence].

        Where the engine's default leaves no room, as much of the memory as engines ever take is tried: the server did
        run.

        Raises
        ------
        DoesNotFitError
            The weights and one sequence do not fit even so.
        """
        held = float(self.deployment.capacity_batch(self.context))
        if held < 1:
            request = replace(self.deployment.request, gpu_memory_utilization=_MOST_MEMORY)
            generous = replace(self.deployment, request=request)
            generous.check_fits(self.context)
            held = float(generous.capacity_batch(self.context))
        return held

    @property
    def limit(self) -> float:
        """Sequences that cache and engine admit together [sequence]."""
        return min(self.capacity, self.max_num_seqs * self.deployment.dp)
