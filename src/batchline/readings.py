"""One decode step of a deployment in the reading that was asked for, with cost, utilisation and what bounds it.

bound     the article's floor: datasheet rates, perfect overlap
serial    datasheet rates, attention and feed-forward in turn
predict   what a real engine shows: fitted coefficients, with an interval and where they come from
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from batchline import memory, prior, roofline, serving, step
from batchline.errors import InputError, MissingFactError, UnknownNameError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from batchline.architecture import Architecture
    from batchline.deployment import Deployment
    from batchline.prior import Prior
    from batchline.roofline import Floats

__all__ = [
    "CONFIDENCE",
    "READINGS",
    "Prediction",
    "Steps",
    "attention_of",
    "case_of",
    "ideal_of",
    "numbers_of",
    "steady",
    "steps",
]

READINGS = ("predict", "bound", "serial")
"""The readings of one step, by name."""

CONFIDENCE = 0.9
"""Share of measured values that an interval is made to hold [-]."""

_GROUPS = {
    "weights": ("weights", "experts"),
    "kv": ("kv",),
    "compute": ("compute",),
    "communication": ("tp_latency", "tp_volume", "ep_alltoall", "pp_hops"),
    "overhead": ("per_step", "per_sequence", "per_layer"),
}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What only the reading `predict` has.

    Parameters
    ----------
    low, high : array
        Interval of the step that should hold 90% of measured values [s]; never below the bound.
    terms : mapping of str to array
        Where the time of the step goes: "weights", "kv", "compute", "communication", "overhead" [s].
    bound : array
        The article's floor under it [s].
    provenance : prior.Provenance
        Where the coefficients come from, and what of this deployment no measured point has.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    terms: Mapping[str, NDArray[np.float64]]
    bound: NDArray[np.float64]
    provenance: prior.Provenance


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Times of one decode step, with an entry for each batch (or context).

    Parameters
    ----------
    batch : array
        Sequences decoded together [sequence].
    t_compute, t_weights, t_kv, t_memory, t_step : array
        The parts and the step in the reading [s]: at datasheet rates in "bound" and "serial", as an engine takes them
        in "predict".
    usd_per_mtok : array or None
        Cost of a million output tokens [USD/Mtoken]; None without a price.
    mfu, mbu : array
        Model FLOPs and memory-bandwidth utilisation [-].
    bound_by : list of str
        The part that decides: "compute", "weights" or "kv", in "predict" also "communication" or "overhead".
    reading : str
        "predict", "bound" or "serial".
    prediction : Prediction or None
        Interval, terms and provenance of "predict".
    """

    batch: NDArray[np.float64]
    t_compute: NDArray[np.float64]
    t_weights: NDArray[np.float64]
    t_kv: NDArray[np.float64]
    t_memory: NDArray[np.float64]
    t_step: NDArray[np.float64]
    usd_per_mtok: NDArray[np.float64] | None
    mfu: NDArray[np.float64]
    mbu: NDArray[np.float64]
    bound_by: list[str]
    reading: str
    prediction: Prediction | None = None


def ideal_of(deployment: Deployment, context: Floats, isl: Floats = 0) -> step.Ideal:
    """Ideal times of one device of a deployment.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    context : float or array
        Mean tokens of context of a sequence [token].
    isl : float or array
        Tokens of a prompt, for its attention [token].

    Returns
    -------
    step.Ideal
        For `batchline.step` and `batchline.serving`.

    Raises
    ------
    MissingFactError
        A rate or a link that is not known.
    """
    arch, device = deployment.architecture, deployment.accelerator
    shared, routed = deployment.step_bytes
    if device.link_bandwidth is None and deployment.count > deployment.pp:
        raise MissingFactError(
            Sentence("error.no_link", accelerator=device.name),
            "",
            Sentence("error.give_link"),
        )
    return step.ideal(
        weight_bytes=shared,
        expert_bytes=routed,
        kv_read_bytes=memory.kv_read_bytes_per_device(arch, context, deployment.kv, tp=deployment.tp),
        **numbers_of(arch, context, isl),
        bandwidth=device.bandwidth,
        flops=device.flops_for(deployment.math),
        flops_bf16=device.flops_for("bf16"),
        link_bandwidth=device.link_bandwidth or np.inf,
        tp=deployment.tp,
        pp=deployment.pp,
        dp=deployment.dp,
        ep=deployment.ep,
    )


def numbers_of(architecture: Architecture, context: Floats, isl: Floats) -> dict[str, Floats]:
    """What `step.ideal` takes of the model alone, whatever the devices, the formats and the layout.

    Parameters
    ----------
    architecture : Architecture
        The model.
    context, isl : float or array
        Mean tokens of context of a sequence, tokens of a prompt [token].

    Returns
    -------
    dict
        Arguments of `step.ideal` by name.
    """
    return {
        "active_params": architecture.active_params,
        "prompt_params": architecture.active_params - architecture.vocab_size * architecture.hidden_size,  # head: once
        "attention_flops": architecture.attention_flops(context),
        "prompt_attention_flops": architecture.prefill_attention_flops(isl),
        "layers": architecture.layers,
        "moe_layers": architecture.moe_layers,
        "experts": architecture.experts or 1,
        "experts_per_token": architecture.experts_per_token or 1,
        "hidden_size": architecture.hidden_size,
    }


def case_of(deployment: Deployment) -> prior.Case:
    """Names by which the priors know a deployment.

    Parameters
    ----------
    deployment : Deployment
        What serves.

    Returns
    -------
    prior.Case
        Engine, generation, formats, attention kind, layout.
    """
    d = deployment
    return prior.Case(
        engine=d.account.engine.name,
        engine_version=d.engine_version,
        model=d.architecture.name,
        accelerator=d.accelerator.name,
        generation=d.accelerator.generation,
        weights=d.weights_name,
        kv=d.kv,
        is_mla=d.architecture.is_mla,
        layout=f"tp{d.tp} pp{d.pp} dp{d.dp} ep{d.ep}",
        attention=attention_of(d.architecture),
    )


def attention_of(architecture: Architecture) -> str:
    """Kind of attention, as the priors have it.

    Parameters
    ----------
    architecture : Architecture
        The model.

    Returns
    -------
    str
        "gqa", "mla", "sparse" (latents chosen by an index) or "hybrid" (states beside attention).

    Examples
    --------
    >>> from batchline.architecture import Architecture
    >>> attention_of(Architecture.load("deepseek-v3")), attention_of(Architecture.load("qwen3-32b"))
    ('mla', 'gqa')
    """
    if architecture.is_mla:
        return "sparse" if any(cache.read_limit for cache in architecture.caches) else "mla"
    return "hybrid" if any(cache.state_bytes for cache in architecture.caches) else "gqa"


def _parts(deployment: Deployment, context: Floats, batch: NDArray[np.float64]) -> tuple[Floats, Floats, Floats]:
    """Compute, weights and KV at datasheet rates [s]."""
    compute = roofline.t_compute(batch, deployment.architecture.active_params, deployment.flops)
    weights = roofline.t_weights(deployment.step_weight_bytes(batch), deployment.bandwidth)
    # Windows, top-k attention and states read something else than L x kv: what a sequence reads stands for the product.
    kv = roofline.t_kv(batch, 1.0, deployment.kv_read_bytes(context), deployment.bandwidth)
    return compute, weights, kv


def steady(
    deployment: Deployment,
    isl: float,
    osl: float,
    concurrency: Floats | None = None,
    *,
    rate: Floats | None = None,
    batch: Floats | None = None,
    arrival_scv: Floats = 1.0,
    length_scv: Floats = 0.0,
    arrival_clumping: Floats | None = None,
    opening_share: Floats = 0.0,
    max_num_seqs: Floats = np.inf,
    max_num_batched_tokens: Floats | None = None,
    admission_interval: Floats = 0.0,
    prefix_hit_rate: Floats = 0.0,
    speculation: serving.Speculation | None = None,
    prefill: Deployment | None = None,
    prefill_instances: Floats = np.inf,
    pool_bandwidth: Floats = np.inf,
    priors: Prior | None = None,
) -> serving.Steady:
    """Steady state of a deployment under a load: clients, a rate, or a batch.

    Parameters
    ----------
    deployment : Deployment
        What serves; with `prefill` it only decodes.
    isl, osl : float
        Input and output length of a request [token].
    concurrency : float or array, optional
        Closed loop: requests that clients keep in flight [request].
    rate : float or array, optional
        Open loop: requests that arrive [1/s].
    batch : float or array, optional
        A batch that starts together and runs to its end [sequence].
    arrival_scv, length_scv : float or array
        Open loop: squared coefficients of variation of the gaps between arrivals and of the output lengths [-].
    arrival_clumping : float or array, optional
        Closed loop: 0 when clients send one by one, 1 all at once; default what was seen with the engine [-].
    opening_share : float or array
        Closed loop: share of the requests in a mean over a run that were sent all at once at its start [-].
    max_num_seqs : float or array
        The engine's own limit, per data-parallel rank [sequence].
    max_num_batched_tokens : float or array, optional
        Chunked-prefill token budget of a step [token].
    admission_interval : float or array
        The engine looks for new requests every so many steps; 0 where before each [step].
    prefix_hit_rate : float or array
        Share of prompt tokens found in the prefix cache [-].
    speculation : serving.Speculation, optional
        Speculative decoding.
    prefill : Deployment, optional
        Closed loop: one instance of a pool that computes the prompts.
    prefill_instances : float or array
        Of these, for each decoding instance [-].
    pool_bandwidth : float or array
        Between the pools, of one prefill instance [B/s].
    priors : prior.Prior, optional
        Coefficients; by default those that the package ships.

    Returns
    -------
    serving.Steady
        Running batch, TPOT, TTFT, throughput and what saturates.

    Raises
    ------
    InputError
        Not exactly one of the three loads is given, or a prefill pool with another load than clients.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> one = Deployment.of("llama-3.1-8b", "h100")
    >>> bool(30 < steady(one, 1024, 1024, 32).running_batch <= 32)
    True
    >>> poisson, bursts = (steady(one, 1024, 128, rate=8.0, arrival_scv=scv) for scv in (1.0, 9.0))
    >>> bool(poisson.ttft_s < bursts.ttft_s)
    True
    """
    context = isl + osl / 2  # a sequence grows from isl to isl + osl while it decodes
    if sum(load is not None for load in (concurrency, rate, batch)) != 1:
        raise InputError(Sentence("error.a_load_is"), "", Sentence("error.give_one_load"))
    known = priors or prior.load()
    ideal, engine = ideal_of(deployment, context, isl), _believed(known, case_of(deployment)).coefficients
    capacity = deployment.capacity_batch(context)
    if prefill is not None:
        if concurrency is None:
            raise InputError(Sentence("error.pool_for_clients"), "", Sentence("error.give_concurrency"))
        return serving.disaggregated(
            ideal_of(prefill, context, isl),
            ideal,
            engine,
            concurrency,
            isl,
            osl,
            capacity,
            transfer_s=serving.kv_transfer_s(prefill.architecture.stored_bytes(isl, prefill.kv), pool_bandwidth),
            max_num_seqs=max_num_seqs,
            **({} if max_num_batched_tokens is None else {"max_num_batched_tokens": max_num_batched_tokens}),
            prefix_hit_rate=prefix_hit_rate,
            arrival_clumping=arrival_clumping,
            prefill_coefficients=_believed(known, case_of(prefill)).coefficients,
            prefill_instances=prefill_instances,
            speculation=speculation,
        )
    if batch is not None:
        return serving.static_batch(ideal, engine, batch, isl, osl, capacity, speculation=speculation)
    if rate is not None:
        return serving.open_loop(
            ideal,
            engine,
            rate,
            isl,
            osl,
            capacity,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            admission_interval=admission_interval,
            prefix_hit_rate=prefix_hit_rate,
            arrival_scv=arrival_scv,
            length_scv=length_scv,
            speculation=speculation,
        )
    return serving.closed_loop(
        ideal,
        engine,
        np.asarray(concurrency, dtype=float)[()],
        isl,
        osl,
        capacity,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        admission_interval=admission_interval,
        prefix_hit_rate=prefix_hit_rate,
        arrival_clumping=arrival_clumping,
        opening_share=opening_share,
        speculation=speculation,
    )


def _bound_by(terms: Mapping[str, Floats]) -> list[str]:
    first, *rest = (np.atleast_1d(part) for part in terms.values())
    longest, which = first, np.zeros(first.shape, dtype=np.int8)
    for i, part in enumerate(rest, 1):  # argmax over the first axis, ten times as fast
        longer = part > longest
        longest, which = np.where(longer, part, longest), np.where(longer, np.int8(i), which)
    return _named(list(terms), which)


def _named(names: list[str], which: NDArray[Any]) -> list[str]:
    """A name for each entry; an array of objects copies pointers, a million of them in no time."""
    named: list[str] = np.array(names, dtype=object)[which].tolist()
    return named


def _article(compute: Floats, weights: Floats, kv: Floats, reading: str) -> tuple[Floats, list[str]]:
    if reading == "serial":
        return roofline.t_step_serial(compute, weights, kv), _bound_by(
            {"kv": kv, "weights": weights, "compute": compute}
        )
    # In the bound all memory stands against compute, so compute decides only when it outlasts both fetches together.
    memory = roofline.t_memory(weights, kv)
    decides = np.where(memory >= compute, np.where(np.asarray(kv) > weights, 0, 1), 2)
    return roofline.t_step_bound(compute, weights, kv), _named(["kv", "weights", "compute"], np.atleast_1d(decides))


def steps(deployment: Deployment, context: Floats, batch: Floats, reading: str, priors: Prior | None = None) -> Steps:
    """One decode step for each batch and context.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    context : float or array
        Mean tokens of context of a sequence [token].
    batch : float or array
        Sequences decoded together in the whole deployment [sequence].
    reading : str
        "predict", "bound" or "serial".
    priors : prior.Prior, optional
        Coefficients for "predict"; by default those that the package ships.

    Returns
    -------
    Steps
        Arrays over the batch.

    Raises
    ------
    UnknownNameError
        No such reading.
    MissingFactError
        A rate or a link that the reading needs and nobody knows.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> s = steps(Deployment.of("llama-3.1-8b", "h100"), 2048, 128, "serial")
    >>> s.bound_by, f"{s.t_step[0] * 1e3:.2f} ms"
    (['kv'], '14.74 ms')
    """
    if reading not in READINGS:
        raise UnknownNameError("reading", reading, READINGS)
    batch = np.atleast_1d(np.asarray(batch, dtype=float))
    compute, weights, kv = _parts(deployment, context, batch)
    prediction = None
    if reading == "predict":
        bound = roofline.t_step_bound(compute, weights, kv)
        prediction, taken = _predict(deployment, context, batch, np.asarray(bound), priors or prior.load())
        bound_by = _bound_by(prediction.terms)
        shown: tuple[Floats, ...] = tuple(prediction.terms[name] for name in ("compute", "weights", "kv"))
    else:
        step_s, bound_by = _article(compute, weights, kv, reading)
        taken = np.asarray(step_s, dtype=float)
        shown = (compute, weights, kv)
    shape = np.broadcast_shapes(batch.shape, np.shape(taken))
    wide = [_wide(part, shape) for part in shown]
    price = deployment.usd_per_hour
    return Steps(
        batch=batch,
        t_compute=wide[0],
        t_weights=wide[1],
        t_kv=wide[2],
        t_memory=np.asarray(roofline.t_memory(wide[1], wide[2])),
        t_step=taken,
        usd_per_mtok=None if price is None else np.asarray(roofline.usd_per_mtok(taken, batch, price)),
        mfu=np.asarray(roofline.mfu(taken, batch, deployment.architecture.active_params, deployment.flops)),
        mbu=np.asarray(roofline.mbu(taken, weights, kv)),
        bound_by=bound_by,
        reading=reading,
        prediction=prediction,
    )


def _predict(
    deployment: Deployment, context: Floats, batch: NDArray[np.float64], bound: NDArray[np.float64], priors: Prior
) -> tuple[Prediction, NDArray[np.float64]]:
    known = _believed(priors, case_of(deployment))
    taken = step.decode_step(ideal_of(deployment, context), known.coefficients, batch)
    total = np.asarray(taken.total, dtype=float)
    terms = {
        name: _wide(functools.reduce(np.add, [getattr(taken, part) for part in parts]), total.shape)
        for name, parts in _GROUPS.items()
    }
    low, high = known.interval
    found = Prediction(
        low=np.maximum(low * total, bound),  # the floor is physics: no interval reaches below it
        high=high * total,
        terms=terms,
        bound=_wide(bound, total.shape),
        provenance=known.provenance,
    )
    return found, total


def _wide(values: Floats, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Give numbers a shape; numpy takes its time even where they have it."""
    given = np.asarray(values, dtype=float)
    return given if given.shape == shape else np.broadcast_to(given, shape)


class _Believed(NamedTuple):
    """What priors say of a case, whatever its batch and context."""

    coefficients: step.Coefficients
    interval: tuple[float, float]
    provenance: prior.Provenance


@functools.lru_cache(maxsize=256)
def _believed(priors: Prior, case: prior.Case) -> _Believed:
    """Look a case up once: a slider asks for the same one at every context, a curve twice."""
    interval = priors.interval(case, "tpot", CONFIDENCE)
    return _Believed(priors.coefficients(case), interval, priors.provenance(case))
