"""Engines: what each makes of a device's memory by default, by version, and what its start-up log will therefore say.

Four ways to divide a device of C bytes between weights W, workspace A and the cache:

    fraction_of_total    cache = u C - W - A                    vLLM: the fraction u bounds all three
    static_fraction      cache = u (C - O) - W                  SGLang: u covers weights and cache, the rest is for A
    fraction_of_free     cache = u (C - O - W - A)              TensorRT-LLM: u of what is free after loading
    slots                cache = slots x context, if it fits    llama.cpp: asked for in tokens, not in bytes

O is what lives outside the framework's allocator (CUDA context, NCCL). The workspace is what an engine sees when it
runs itself once at full load. Two things compete for it and the larger decides: the forward pass of the largest prefill
step, and the sampler on the largest batch. The experts' buffers come on top, as they stay allocated.

    forward = tokens x (bytes of the feed-forward block + hidden copies)     sampler = sequences x vocabulary x bytes

The default of each knob and each coefficient stand in data/engines.toml, with version and source.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from batchline import memory, precision
from batchline.errors import InputError, UnknownNameError
from batchline.units import GIBI, MEBI

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchline.accelerator import Accelerator
    from batchline.architecture import Architecture, Weight
    from batchline.memory import KvPool, Windows

__all__ = [
    "Account",
    "Change",
    "Engine",
    "Fact",
    "Request",
    "account",
    "changes",
    "expert_workspace_bytes",
    "forward_bytes",
    "graph_batches",
    "names",
    "sampler_bytes",
    "smallest_count",
    "static_fraction",
]

ALIASES: Final = {
    "trtllm": "tensorrt-llm",
    "trt-llm": "tensorrt-llm",
    "llama.cpp": "llama-cpp",
    "llamacpp": "llama-cpp",
}
NODE: Final = 8
"""Devices that servers put into one node where no larger scale-up domain is known [device]."""
MAX_DEVICES: Final = 256
"""Where the search for the fewest devices ends [device]."""
_CONDITIONS = ("memory_gib", "not_device", "generation", "dense", "tp", "pp")


@dataclass(frozen=True)
class Fact:
    """One default or coefficient.

    Parameters
    ----------
    key : str
        What it is.
    value : float, bool or str
        In the unit that the key names.
    since : str
        First version that has it.
    kind : str
        "specification", "fitted" or "guess"; "given" where the user said so.
    source : str
        Where it stands.
    points : int
        Start-up logs behind a fitted one.
    when : mapping
        Conditions.
    """

    key: str
    value: float | bool | str
    since: str
    kind: str
    source: str
    points: int = 0
    when: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def holds(self, context: Mapping[str, Any]) -> bool:
        """Whether it applies to a device and a layout."""
        return all(_meets(name, wanted, context) for name, wanted in self.when.items())

    @property
    def provenance(self) -> str:
        """One line: kind, points, source."""
        points = f" on {self.points} start-up log{'s' if self.points > 1 else ''}" if self.kind == "fitted" else ""
        return f"{self.kind}{points}: {self.source}"


def _meets(condition: str, wanted: Any, context: Mapping[str, Any]) -> bool:
    if condition == "not_device":
        return wanted not in context["device"].casefold()
    if condition == "generation":
        return any(context["generation"].startswith(word) for word in wanted.split())
    if condition == "dense":
        return bool(context["dense"] == wanted)
    return bool(context[condition] >= wanted)


@dataclass(frozen=True)
class Engine:
    """An engine at a version.

    Parameters
    ----------
    name, title : str
        Short name and the name for people.
    version : str
        Of the defaults used.
    accounting : str
        How it divides memory; see the module.
    facts : tuple of Fact
        All rows of the catalogue, in order.

    Examples
    --------
    >>> Engine.load("vllm", "0.19.0").value("gpu_memory_utilization"), Engine.load("vllm").value("block")
    (0.9, 16)
    """

    name: str
    title: str
    version: str
    accounting: str
    facts: tuple[Fact, ...]

    @classmethod
    def load(cls, name: str, version: str | None = None) -> Engine:
        """Take an engine from the catalogue.

        Parameters
        ----------
        name : str
            Like "vllm" or "tensorrt-llm".
        version : str or None
            Like "0.19.0"; None is the latest that the catalogue knows.

        Returns
        -------
        Engine
            With the facts of all versions.

        Raises
        ------
        UnknownNameError
            There is no such engine.
        InputError
            The version is no version.

        Examples
        --------
        >>> Engine.load("vllm").title
        'vLLM'
        """
        key = name.casefold().replace("_", "-")
        key = ALIASES.get(key, key)
        known = _catalogue()
        if key not in known:
            raise UnknownNameError("engine", name, known, "--engine generic makes no assumption about versions.")
        entry = known[key]
        chosen = entry["latest"] if version is None else version.removeprefix("v")
        _version(chosen)
        return cls(key, entry["title"], chosen, entry["accounting"], _facts(key))

    def fact(self, key: str, **context: Any) -> Fact | None:
        """Row that applies.

        Parameters
        ----------
        key : str
            Like "max_num_seqs".
        **context
            `memory_gib`, `device`, `generation`, `dense`, `tp`, `pp` of the deployment; what is left out is one small
            device of no known name.

        Returns
        -------
        Fact or None
            The last row that holds; None when the engine has none.
        """
        full = {"memory_gib": 0.0, "device": "", "generation": "", "dense": True, "tp": 1, "pp": 1, **context}
        holding = [(since, row) for since, row in self._rows.get(key, []) if row.holds(full)]
        # Rows are in order of version; a later version replaces an earlier one whatever its conditions were.
        newest = max((since for since, _ in holding), default=None)
        return next((row for since, row in reversed(holding) if since == newest), None)

    @functools.cached_property
    def _rows(self) -> dict[str, list[tuple[tuple[int, ...], Fact]]]:
        """Rows that this version has, by key, each with the version that it is since."""
        found: dict[str, list[tuple[tuple[int, ...], Fact]]] = {}
        for row in self.facts:
            if (since := _version(row.since)) <= _version(self.version):
                found.setdefault(row.key, []).append((since, row))
        return found

    def value(self, key: str, **context: Any) -> Any:
        """Value of the row that applies, or None.

        Parameters
        ----------
        key : str
            Like "max_num_seqs".
        **context
            As of `fact`.

        Returns
        -------
        float, bool, str or None
            In the unit that the key names.
        """
        row = self.fact(key, **context)
        return None if row is None else row.value


@functools.cache
def _catalogue() -> dict[str, Any]:
    return tomllib.loads(resources.files("batchline").joinpath("data", "engines.toml").read_text(encoding="utf-8"))


@functools.cache
def _facts(name: str) -> tuple[Fact, ...]:
    found = []
    for key, rows in _catalogue()[name]["facts"].items():
        for row in rows:
            when = {condition: row[condition] for condition in _CONDITIONS if condition in row}
            found.append(Fact(key, row["value"], row["since"], row["kind"], row["source"], row.get("points", 0), when))
    return tuple(found)


def names() -> list[str]:
    """Names of the catalogue.

    Returns
    -------
    list of str
        Sorted.

    Examples
    --------
    >>> names()
    ['generic', 'llama-cpp', 'sglang', 'tensorrt-llm', 'vllm']
    """
    return sorted(_catalogue())


@functools.cache
def _version(text: str) -> tuple[int, ...]:
    match = re.fullmatch(r"[vb]?(\d+(?:\.\d+)*).*", text)
    if not match:
        raise InputError(f"{text!r} is no version.", "A version starts with numbers.", "Write it like 0.19.0.")
    return tuple(int(part) for part in match[1].split("."))


# -- workspace -------------------------------------------------------------------------------------------------------


def forward_bytes(
    tokens: float,
    ffn_bytes: float,
    hidden_size: int,
    attention_size: float,
    *,
    hidden_copies: float = 2,
    attention_copies: float = 1,
    element_bytes: float = 2,
) -> float:
    r"""Largest memory of a forward pass: the feed-forward block of one layer, with what waits beside it.

    .. math:: A = T (f + e (c_h d + c_a q))

    Parameters
    ----------
    tokens : float
        Tokens of the largest step, T [token].
    ffn_bytes : float
        Bytes that the feed-forward block keeps for a token: gate and up, and their product, f [B/token].
    hidden_size : int
        Width of the residual stream, d [-].
    attention_size : float
        Width of the attention output on this device, q [-].
    hidden_copies, attention_copies : float
        How many of each are alive, c [-].
    element_bytes : float
        Bytes of an element of them [B].

    Returns
    -------
    float
        Bytes [B].

    Notes
    -----
    CodeLlama-7b under vLLM 0.19 with 8,192 tokens a step: 0.77 GiB measured, of which 15 MiB is constant.

    Examples
    --------
    >>> round(forward_bytes(8192, 6 * 11008, 4096, 4096, hidden_copies=3) / 2**30, 2)
    0.75
    """
    return tokens * (ffn_bytes + element_bytes * (hidden_copies * hidden_size + attention_copies * attention_size))


def sampler_bytes(
    max_num_seqs: float,
    vocab_size: int,
    tokens: float,
    hidden_size: int,
    *,
    logit_bytes: float,
    scratch_rows: float = 0,
) -> float:
    r"""Memory of sampling for the largest batch, while the hidden states of the largest step are still alive.

    .. math:: A = N V b + 4 r V + 2 d (T + N)

    Parameters
    ----------
    max_num_seqs : float
        Sequences that are sampled together, N [sequence].
    vocab_size : int
        Tokens of the vocabulary, V [token].
    tokens : float
        Tokens of the step before, T [token].
    hidden_size : int
        Width of the hidden states, d [-].
    logit_bytes : float
        Bytes for each logit, b: 38 with a sort, 14 without, 6 for logits and an fp32 copy [B].
    scratch_rows : float
        Rows of fp32 logits that a kernel keeps for itself, r [-].

    Returns
    -------
    float
        Bytes [B].

    Notes
    -----
    Gemma-2-27b under vLLM 0.19, 1,024 sequences, 8,192 tokens: 3.66 GiB measured, of which 40 MiB is constant.

    Examples
    --------
    >>> round(sampler_bytes(1024, 256000, 8192, 4608, logit_bytes=14, scratch_rows=132) / 2**30, 2)
    3.62
    """
    rows = max_num_seqs * vocab_size * logit_bytes + 4 * scratch_rows * vocab_size
    return rows + 2 * hidden_size * (tokens + max_num_seqs)


def expert_workspace_bytes(
    tokens: float,
    experts_per_token: int,
    expert_width: float,
    hidden_size: int,
    *,
    buffers: int = 2,
    element_bytes: float = 2,
) -> float:
    r"""Buffers of routed experts, each for every token and each of its experts; they stay allocated.

    .. math:: A = e T k (\max(2 i, d) + \max(i, d))

    Parameters
    ----------
    tokens : float
        Tokens of the largest step, T [token].
    experts_per_token : int
        Experts of a token, k [expert].
    expert_width : float
        Width of an expert on this device, i [-].
    hidden_size : int
        Width of the residual stream, d [-].
    buffers : int
        2 keeps gate and up apart from what the experts give back; 1 reuses it [-].
    element_bytes : float
        Bytes of an element, e [B].

    Returns
    -------
    float
        Bytes [B].

    Notes
    -----
    Qwen3-30B-A3B under vLLM 0.19: 2.68 GiB of activations measured where Qwen3-8B, of the same vocabulary, has 2.21.

    Examples
    --------
    >>> expert_workspace_bytes(8192, 8, 768, 2048) / 2**30
    0.5
    """
    widths = max(2 * expert_width, hidden_size) + (max(expert_width, hidden_size) if buffers > 1 else 0)
    return element_bytes * tokens * experts_per_token * widths


def graph_batches(max_num_seqs: int, limit: int = 512) -> tuple[int, int]:
    """Batch sizes for which vLLM captures CUDA graphs: in pieces for any batch, and whole for decoding.

    Sizes are 1, 2, 4, then steps of 8 to 256 and of 16 above, up to twice the sequences
    [vllm/config/vllm.py, cudagraph_capture_sizes].

    Parameters
    ----------
    max_num_seqs : int
        Sequences of a step [sequence].
    limit : int
        Largest size [sequence].

    Returns
    -------
    pieces, whole : int
        Graphs [-].

    Examples
    --------
    Start-up logs say PIECEWISE=51 (largest=512), FULL=35 (largest=256) for 256 sequences.

    >>> graph_batches(256), graph_batches(1024), graph_batches(8)
    ((51, 35), (51, 51), (5, 4))
    """
    top = min(2 * max_num_seqs, limit)
    sizes = [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, limit + 1, 16)) if size <= top]
    return len(sizes), sum(size <= max_num_seqs for size in sizes)


def static_fraction(memory_bytes: float, reserve_bytes: float) -> float:
    """Fraction that SGLang takes for weights and cache when it is not told: what the reserve leaves, to three digits.

    Parameters
    ----------
    memory_bytes : float
        Memory of a device [B].
    reserve_bytes : float
        What is left for activations, graphs and parallel ranks [B].

    Returns
    -------
    float
        Fraction [-].

    Examples
    --------
    >>> static_fraction(80 * 2**30, 10 * 2**30)
    0.875
    """
    return round((memory_bytes - reserve_bytes) / memory_bytes, 3)


# -- the account -----------------------------------------------------------------------------------------------------


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
                raise InputError(f"{name} is {value}.", "It is 1 or more.", "Leave it out for the engine's default.")
        fraction = self.gpu_memory_utilization
        if fraction is not None and not 0 < fraction <= 1:
            raise InputError(
                f"gpu_memory_utilization is {fraction}.", "It lies above 0 and at most at 1.", "Write 0.9 for 90%."
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
            f"{architecture.name} states no longest context.", "", "Give --max-model-len, like --max-model-len 32k."
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
        width = _expert_width(arch) / (1 if case.ep > 1 else case.tp)
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


def _expert_width(arch: Architecture) -> float:
    widths = [weight.rows for weight in arch.weights if weight.role == "expert" and weight.columns == arch.hidden_size]
    return max(widths, default=0)


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
    width = _expert_width(arch) / (1 if case.ep > 1 else case.tp)
    grown = _round_up(arch.hidden_size, hidden_multiple) / arch.hidden_size * _round_up(width, width_multiple) / width
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


@dataclass(frozen=True)
class Change:
    """One knob turned.

    Parameters
    ----------
    knob : str
        As on the command line: "--kv fp8".
    account : Account
        What it makes of the memory.
    devices : float
        Devices in place of one [-].
    """

    knob: str
    account: Account
    devices: float = 1.0


def changes(
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
) -> list[Change]:
    """Turn each knob of a deployment by itself.

    Parameters
    ----------
    architecture, accelerator, engine, weights, kv, tp, pp, dp, ep, request
        As of `account`.

    Returns
    -------
    list of Change
        More of the device, a smaller cache format, fewer sequences, a smaller step, a shorter longest request, smaller
        weights, twice the devices; without those that change nothing by definition.

    Examples
    --------
    >>> from batchline.accelerator import Accelerator
    >>> from batchline.architecture import Architecture
    >>> made = changes(Architecture.load("llama-3.1-8b"), Accelerator.load("h100"))
    >>> [change.knob for change in made][:3]
    ['--gpu-memory-utilization 0.97', '--kv fp8', '--max-num-seqs 256']
    """
    engine = Engine.load(engine) if isinstance(engine, str) else engine
    wanted = request or Request()
    layout = {"weights": weights, "kv": kv, "tp": tp, "pp": pp, "dp": dp, "ep": ep}

    def turned(knob: str, turn: Request, devices: float = 1.0, **other: Any) -> Change:
        same = {**layout, **other}
        return Change(knob, account(architecture, accelerator, engine, request=turn, **same), devices)

    now = account(architecture, accelerator, engine, request=wanted, **layout)  # type: ignore[arg-type]
    found = []
    if engine.accounting != "slots":
        more = min(0.98, round(now.gpu_memory_utilization + 0.05, 3))
        if more > now.gpu_memory_utilization:
            found.append(turned(f"--gpu-memory-utilization {more:g}", replace(wanted, gpu_memory_utilization=more)))
    smaller = "q8_0" if engine.accounting == "slots" else "fp8"
    if precision.load_kv(kv).bits > 8:
        found.append(turned(f"--kv {smaller}", wanted, kv=smaller))
    for sequences in (256, 64):
        if now.max_num_seqs > sequences:
            found.append(turned(f"--max-num-seqs {sequences}", replace(wanted, max_num_seqs=sequences)))
            break
    if now.max_num_batched_tokens > 2048:
        found.append(turned("--max-num-batched-tokens 2048", replace(wanted, max_num_batched_tokens=2048)))
    if now.max_model_len > 8192:
        shorter = 32768 if now.max_model_len > 32768 else 8192
        found.append(turned(f"--max-model-len {shorter}", replace(wanted, max_model_len=shorter)))
    if weights is None and precision.load(architecture.weight_format).bits > 8:
        found.append(turned("--weights fp8", wanted, weights="fp8"))
    if not architecture.q_heads or architecture.q_heads % (2 * tp) == 0:
        found.append(turned(f"--tp {2 * tp}", wanted, 2.0, tp=2 * tp))
    return found


def smallest_count(
    architecture: Architecture,
    accelerator: Accelerator,
    engine: Engine | str = "vllm",
    *,
    weights: str | None = None,
    kv: str = "bf16",
    request: Request | None = None,
) -> tuple[int, int, int] | None:
    """Fewest devices on which the engine starts: by tensor parallelism in a node, then by stages of whole nodes.

    Parameters
    ----------
    architecture, accelerator, engine, weights, kv, request
        As of `account`.

    Returns
    -------
    tuple of int or None
        Devices, tensor- and pipeline-parallel degree; None when 256 devices are not enough.

    Examples
    --------
    >>> from batchline.accelerator import Accelerator
    >>> from batchline.architecture import Architecture
    >>> smallest_count(Architecture.load("llama-3.1-405b"), Accelerator.load("h100"), weights="fp8")
    (8, 8, 1)
    """
    engine = Engine.load(engine) if isinstance(engine, str) else engine
    heads = architecture.q_heads or 1
    node = min(MAX_DEVICES, max(NODE, accelerator.scale_up_domain or 0))
    degrees = [tp for tp in range(1, node + 1) if heads % tp == 0]
    layouts = [(tp, 1) for tp in degrees]
    layouts += [(degrees[-1], pp) for pp in range(2, min(architecture.layers, MAX_DEVICES // degrees[-1]) + 1)]
    for tp, pp in layouts:
        made = account(architecture, accelerator, engine, weights=weights, kv=kv, tp=tp, pp=pp, request=request)
        if made.fits:
            return tp * pp, tp, pp
    return None
