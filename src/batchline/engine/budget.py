"""How an engine divides a device between weights, workspace and cache: what its start-up log will say."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from batchline import memory
from batchline.engine.defaults import Engine
from batchline.engine.workspace import (
    expert_workspace_bytes,
    forward_bytes,
    graph_batches,
    sampler_bytes,
    static_fraction,
)
from batchline.errors import InputError
from batchline.strings import Sentence
from batchline.units import GIBI, MEBI

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchline.accelerator import Accelerator
    from batchline.architecture import Architecture, Weight
    from batchline.memory import KvPool, Windows

__all__ = ["Account", "Request", "account"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """Knobs of an engine, by vLLM's names; None takes the engine's default.

    Parameters
    ----------
    max_model_len : int or None
        Longest request; None is the model's own maximum [token].
    max_num_seqs : int or None
        Most sequences of a step [sequence].
    max_num_batched_tokens : int or None
        Most tokens of a step [token].
    gpu_memory_utilization : float or None
        Fraction that the engine takes: of all memory (vLLM), for weights and cache (SGLang, mem_fraction_static), of
        what is free after loading (TensorRT-LLM) [-].
    block : int or None
        Tokens of a block [token].
    enforce_eager : bool
        No CUDA graphs.
    windows : {"kept", "full"} or None
        What layers with a window reserve.
    """

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    block: int | None = None
    enforce_eager: bool = False
    windows: Windows | None = None

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(
                    Sentence("error.engine_value", name=name, given=f"{value}"),
                    Sentence("error.one_or_more"),
                    Sentence("error.leave_out_default"),
                )
        fraction = self.gpu_memory_utilization
        if fraction is not None and not 0 < fraction <= 1:
            raise InputError(
                Sentence("error.gpu_share", given=f"{fraction}"),
                Sentence("error.above_0_to_1"),
                Sentence("error.write_share"),
            )


@dataclass(frozen=True, kw_only=True)
class Account:
    """Where the memory of one device goes, on the stage that has least left for the cache.

    Parameters
    ----------
    engine : Engine
        Engine and version.
    memory_bytes, budget_bytes : float
        Memory of the device, and what the engine may use of it [B].
    weight_bytes : float
        Weights as the engine's log prints them, tables of positions included [B].
    activation_bytes, non_torch_bytes, graph_bytes : float
        Workspace; outside the allocator, with buffers of the sampler; CUDA graphs as far as they count [B].
    pool : KvPool
        Cache.
    kv_bytes : float
        Memory that is left for the cache; below 0 where the weights do not fit [B].
    max_model_len, max_num_seqs, max_num_batched_tokens : int
        Knobs as they are [token, sequence, token].
    gpu_memory_utilization : float
        Fraction as it is [-].
    dp : int
        Ranks of attention data parallelism: each has a pool [-].
    limits : str
        "forward" or "sampler": what decides the workspace.
    strided : bool
        Whether some layer keeps an entry for several tokens: of its block tables only the bytes are known.
    provenance : mapping of str to str
        Where each term comes from.
    """

    engine: Engine
    memory_bytes: float
    budget_bytes: float
    weight_bytes: float
    activation_bytes: float
    non_torch_bytes: float
    graph_bytes: float
    pool: KvPool
    kv_bytes: float
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    dp: int
    limits: str
    strided: bool
    provenance: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def layout_known(self) -> bool:
        """Whether the engine's block tables are modelled: not where entries stand for several tokens."""
        return self.strided is False

    @property
    def kv_tokens(self) -> int:
        """Tokens that the engine says its cache holds, of one rank of attention data parallelism [token]."""
        by_concurrency = bool(self.engine.value("tokens_by_concurrency"))
        return self.pool.tokens(self.max_model_len, self.max_num_batched_tokens, by_concurrency=by_concurrency)

    @property
    def max_concurrency(self) -> float:
        """Requests of the longest length that fit at once, of one rank [request]."""
        return self.pool.max_concurrency(self.max_model_len, self.max_num_batched_tokens)

    @property
    def largest_context(self) -> int:
        """Longest request that fits, no longer than the longest allowed [token]."""
        return self.pool.largest_context(self.max_model_len, self.max_num_batched_tokens)

    @property
    def missing_bytes(self) -> float:
        """Bytes that one longest request lacks on each device; 0 when it fits [B]."""
        ahead = min(self.max_num_batched_tokens, self.max_model_len)
        needed = float(self.pool.layout.sequence_bytes(self.max_model_len, ahead))
        return max(0.0, needed - self.kv_bytes)

    @property
    def fits(self) -> bool:
        """Whether the engine starts: one longest request fits."""
        return self.missing_bytes == 0

    def capacity_batch(self, context: float) -> int:
        """Sequences of a mean length that fit in all ranks, whatever `max_num_seqs` allows.

        Parameters
        ----------
        context : float
            Mean tokens of a sequence [token].

        Returns
        -------
        int
            Sequences [sequence].
        """
        return self.dp * int(self.pool.capacity_batch(context))

    def running_batch(self, context: float) -> int:
        """Sequences of a mean length that run together: what fits, at most `max_num_seqs` a rank.

        Parameters
        ----------
        context : float
            Mean tokens of a sequence [token].

        Returns
        -------
        int
            Sequences [sequence].
        """
        return min(self.capacity_batch(context), self.dp * self.max_num_seqs)


@dataclass(frozen=True)
class _Case:
    """What the terms of an account need."""

    architecture: Architecture
    accelerator: Accelerator
    engine: Engine
    weights: str | None
    kv: str
    tp: int
    pp: int
    dp: int
    ep: int
    request: Request

    @property
    def context(self) -> dict[str, Any]:
        return {
            "memory_gib": self.accelerator.usable_memory() / GIBI,
            "device": self.accelerator.name,
            "generation": self.accelerator.generation,
            "dense": not self.architecture.experts,
            "tp": self.tp,
            "pp": self.pp,
        }

    def value(self, key: str, default: Any = 0) -> Any:
        found = self.engine.value(key, **self.context)
        return default if found is None else found

    def knob(self, key: str) -> Any:
        given = getattr(self.request, key)
        return self.value(key) if given is None else given


def account(
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
) -> Account:
    """Predict what an engine says about memory when it starts.

    Parameters
    ----------
    architecture : Architecture
        The model.
    accelerator : Accelerator
        One device.
    engine : Engine or str
        Engine and version.
    weights : str or None
        Number format of the weights; None is the checkpoint's own.
    kv : str
        Number format of the cache.
    tp, pp, dp, ep : int
        Tensor, pipeline, attention-data and expert parallel degrees [device].
    request : Request or None
        Knobs; None takes all defaults.

    Returns
    -------
    Account
        Of the pipeline stage that has least left for the cache.

    Raises
    ------
    InputError
        No longest request is known, or a degree does not divide what it should.

    Examples
    --------
    Measured on an H100 under vLLM 0.11: weights 14.99 GiB, activations 4.76, KV 51.38.

    >>> from batchline.accelerator import Accelerator
    >>> from batchline.architecture import Architecture
    >>> made = account(Architecture.load("llama-3.1-8b"), Accelerator.load("h100"), Engine.load("vllm", "0.11.0"))
    >>> [round(size / 2**30, 2) for size in (made.weight_bytes, made.activation_bytes, made.kv_bytes)]
    [14.99, 4.76, 51.39]
    """
    engine = Engine.load(engine) if isinstance(engine, str) else engine
    case = _Case(architecture, accelerator, engine, weights, kv, tp, pp, dp, ep, request or Request())
    longest = case.request.max_model_len or architecture.max_context
    if not longest:
        raise InputError(
            Sentence("error.no_longest_context", name=architecture.name), "", Sentence("error.give_max_model_len")
        )
    stages = memory.stage_weight_bytes(
        architecture,
        weights,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        vocabulary_padding=int(case.value("vocabulary_padding", 1)),
    )
    # Stages that hold the same are the same.
    distinct = {(size, index == pp - 1) for index, size in enumerate(stages)}
    made = [_stage(case, size, longest, last=last) for size, last in distinct]
    return min(made, key=lambda one: one.kv_bytes)


def _stage(case: _Case, weight_bytes: float, longest: int, *, last: bool) -> Account:
    extra = _tables_bytes(case) + _expert_padding_bytes(case)
    weight_bytes += extra
    tokens = _profiled_tokens(case, longest)
    activation, limits = _activation(case, tokens, last=last)
    if case.engine.accounting == "slots":
        activation *= 2 if limits == "forward" else 1  # llama.cpp computes in fp32
    seqs = int(case.knob("max_num_seqs"))
    non_torch = case.value("non_torch_gib", 0.0) * GIBI
    if last:
        non_torch += case.value("penalty_bytes") * seqs * case.architecture.vocab_size
    graphs = 0.0 if case.request.enforce_eager else _graph_bytes(case, seqs)
    layout = memory.kv_layout(
        case.architecture,
        case.kv,
        tp=case.tp,
        pp=case.pp,
        block=int(case.knob("block")),
        windows=case.request.windows or case.value("windows", "kept"),
        shared_pool=case.engine.name == "vllm",
        state_blocks=int(case.value("state_blocks", 1)),
    )
    total = case.accelerator.usable_memory()
    used = (weight_bytes, activation + non_torch + graphs, non_torch)
    fraction, budget, kv_bytes = _divide(case, total, *used, asked=_slot_bytes(case, layout, longest))
    return Account(
        engine=case.engine,
        memory_bytes=total,
        budget_bytes=budget,
        weight_bytes=weight_bytes,
        activation_bytes=activation,
        non_torch_bytes=non_torch,
        graph_bytes=graphs,
        pool=memory.KvPool.of(kv_bytes, layout),
        kv_bytes=kv_bytes,
        max_model_len=longest,
        max_num_seqs=seqs,
        max_num_batched_tokens=int(case.knob("max_num_batched_tokens")),
        gpu_memory_utilization=fraction,
        dp=case.dp,
        limits=limits,
        strided=any(cache.stride > 1 for cache in case.architecture.caches),
        provenance=_provenance(case),
    )


def _divide(
    case: _Case, total: float, weight_bytes: float, workspace: float, outside: float, *, asked: float
) -> tuple[float, float, float]:
    """Fraction, budget and what is left for the cache."""
    if case.engine.accounting == "static_fraction":
        fraction = case.request.gpu_memory_utilization or static_fraction(total, _reserve_bytes(case))
        budget = fraction * (total - outside)
        return fraction, budget, budget - weight_bytes
    if case.engine.accounting == "fraction_of_free":
        fraction = case.knob("gpu_memory_utilization")
        return fraction, total, fraction * (total - weight_bytes - workspace)
    if case.engine.accounting == "slots":
        return 1.0, total, min(total - weight_bytes - workspace, asked)
    fraction = case.knob("gpu_memory_utilization")
    return fraction, fraction * total, fraction * total - weight_bytes - workspace


def _slot_bytes(case: _Case, layout: memory.KvLayout, longest: int) -> float:
    """What llama.cpp reserves: the context of each slot, or one context that the default slots share."""
    slots = case.request.max_num_seqs or 1
    return slots * float(layout.sequence_bytes(longest, min(longest, case.knob("max_num_batched_tokens"))))


def _reserve_bytes(case: _Case) -> float:
    """What SGLang leaves outside its static fraction [server_args.py]."""
    mib = (
        case.value("reserve_constant_mib")
        + case.value("reserve_mib_per_token") * max(case.knob("max_num_batched_tokens"), 2048)
        + case.value("reserve_mib_per_graph_batch") * case.value("graph_batch")
        + case.value("reserve_mib_per_rank") * case.tp * case.pp
    )
    return float(max(mib, case.value("reserve_least_mib")) * MEBI)


def _profiled_tokens(case: _Case, longest: int) -> float:
    tokens = float(case.knob("max_num_batched_tokens"))
    if longest <= case.value("whole_prompt_below"):
        return max(tokens, longest)
    return tokens


def _activation(case: _Case, tokens: float, *, last: bool) -> tuple[float, str]:
    arch = case.architecture
    # llama.cpp makes room for the logits of a whole micro-batch.
    seqs = tokens if case.engine.accounting == "slots" else min(case.knob("max_num_seqs"), tokens)
    forward = forward_bytes(
        tokens,
        _ffn_bytes(case),
        arch.hidden_size,
        arch.q_heads * _value_dim(arch) / case.tp,
        hidden_copies=case.value("hidden_copies", 2) + (case.value("stage_copies") if case.pp > 1 else 0),
        attention_copies=case.value("attention_copies", 1),
    )
    forward += case.value("forward_constant_mib") * MEBI
    sampler = 0.0
    if last:
        sampler = sampler_bytes(
            seqs / (case.tp if case.value("sampler_sharded", default=False) else 1),
            arch.vocab_size,
            tokens,
            arch.hidden_size,
            logit_bytes=case.value("logit_bytes", 6.0),
            scratch_rows=case.value("logit_scratch_rows"),
        )
        sampler += case.value("sampler_constant_mib") * MEBI
    workspace = 0.0
    buffers = int(case.value("expert_buffers"))
    if buffers and arch.experts and not _is_mxfp4(case):
        width = _expert_shape(arch)[0] / (1 if case.ep > 1 else case.tp)
        workspace = expert_workspace_bytes(tokens, arch.experts_per_token, width, arch.hidden_size, buffers=buffers)
    if forward > sampler:
        return forward + workspace, "forward"
    return sampler + workspace, "sampler"


def _ffn_bytes(case: _Case) -> float:
    """Bytes of gate, up and their product for a token, in the widest dense feed-forward block of a device."""
    arch = case.architecture
    rows = {
        role: sum(weight.rows for weight in _members(arch, role) if weight.columns == arch.hidden_size)
        for role in ("ffn", "shared_expert")
    }
    inner = {
        role: max((weight.columns for weight in _members(arch, role) if weight.rows == arch.hidden_size), default=0)
        for role in ("ffn", "shared_expert")
    }
    role = max(rows, key=rows.__getitem__)
    # fp8 and int8 layers quantise the product as they make it: one byte instead of two.
    product = 1 if _multiplies_in_bytes(case, role) else 2
    return (2 * rows[role] + product * inner[role]) / case.tp


def _members(arch: Architecture, role: str) -> list[Weight]:
    """Matrices of one feed-forward block: equal modules in other formats are the same block."""
    seen: dict[tuple[str, int, int], Weight] = {}
    for weight in arch.weights:
        if weight.role == role and weight.columns > 1:
            seen.setdefault((weight.module, weight.rows, weight.columns), weight)
    return list(seen.values())


def _multiplies_in_bytes(case: _Case, role: str) -> bool:
    return any(
        case.architecture.format_of(weight, case.weights).math in {"fp8", "int8"}
        for weight in _members(case.architecture, role)
    )


def _value_dim(arch: Architecture) -> float:
    """Width of one head's output."""
    outputs = [weight for weight in arch.weights if weight.module.endswith("o_proj") and weight.role == "attention"]
    return outputs[0].columns / arch.q_heads if outputs and arch.q_heads else arch.head_dim


def _expert_shape(arch: Architecture) -> tuple[int, int]:
    """Widths of a routed expert: inside, and of what goes in: the residual stream or a latent of it."""
    down = ("down_proj", "w2")
    into = [w for w in arch.weights if w.role == "expert" and w.columns > 1 and not w.module.endswith(down)]
    return max((w.rows for w in into), default=0), max((w.columns for w in into), default=0)


def _is_mxfp4(case: _Case) -> bool:
    return any(
        case.architecture.format_of(weight, case.weights).name == "mxfp4"
        for weight in case.architecture.weights
        if weight.role == "expert" and weight.columns > 1
    )


def _tables_bytes(case: _Case) -> float:
    """What a loaded model holds beside its checkpoint: positions' cosines and sines, and latent projections twice."""
    arch, extra = case.architecture, 0.0
    if case.value("rotary_table", default=False) and arch.max_context:
        rotary = next((cache.rotary or arch.head_dim for cache in arch.caches if cache.kind != "state"), 0)
        extra += 2.0 * arch.max_context * rotary
    if case.value("latent_copies", default=False):
        absorbed = sum(weight.params for weight in arch.weights if weight.module.endswith("kv_b_proj"))
        extra += 2.0 * absorbed / case.tp / case.pp
    return extra


def _expert_padding_bytes(case: _Case) -> float:
    """Bytes that mxfp4 kernels add by rounding experts up to their tiles."""
    hidden_multiple, width_multiple = case.value("mxfp4_hidden_padding"), case.value("mxfp4_width_padding")
    if not hidden_multiple or not case.architecture.experts or not _is_mxfp4(case):
        return 0.0
    arch = case.architecture
    inside, hidden = _expert_shape(arch)
    width = inside / (1 if case.ep > 1 else case.tp)
    grown = _round_up(hidden, hidden_multiple) / hidden * _round_up(width, width_multiple) / width
    share = memory.expert_copies(arch.experts, case.ep, case.tp * case.dp)
    experts = sum(w.bytes_in(arch.format_of(w, case.weights)) for w in arch.weights if w.role == "expert")
    stage = max(memory.pipeline_layers(arch.layers, case.pp)) / arch.layers
    return experts * share * stage * (grown - 1)


def _round_up(value: float, multiple: float) -> float:
    return math.ceil(value / multiple) * multiple


def _graph_bytes(case: _Case, seqs: int) -> float:
    pieces, whole = graph_batches(seqs, int(case.value("max_graph_batch", 512)))
    layers = max(memory.pipeline_layers(case.architecture.layers, case.pp))
    return float(case.value("graph_mib_per_layer") * MEBI * layers * (pieces + whole))


def _provenance(case: _Case) -> dict[str, str]:
    """Where the terms come from, by the names that `batchline memory --json` uses."""
    keys = {
        "gpu_memory_utilization": "gpu_memory_utilization",
        "max_num_seqs": "max_num_seqs",
        "max_num_batched_tokens": "max_num_batched_tokens",
        "activation": "logit_bytes",
        "forward": "hidden_copies",
        "non_torch": "non_torch_gib",
        "cuda_graphs": "graph_mib_per_layer",
        "windows": "windows",
    }
    found = {"weights": f"specification: {case.architecture.source}"}
    for name, key in keys.items():
        if getattr(case.request, key, None) is not None:
            found[name] = "given"
            continue
        row = case.engine.fact(key, **case.context)
        if row is not None:
            found[name] = row.provenance
    return found


# -- what if ---------------------------------------------------------------------------------------------------------
