"""What one device holds of a model and of its sequences under tensor, pipeline, expert and data parallelism.

Weights first: tensor parallelism divides what has heads or widths, copies norms, routers, latent projections and
the KV heads that it cannot divide any further, and pads the vocabulary; pipeline parallelism deals the layers out and
leaves the embedding to the first stage and the head to the last; experts are spread over all devices of a stage. The
fullest stage decides what fits.

Then sequences: the cache is kept in blocks, one table per kind of layer. `kv_layout` is that table and `KvPool` is how
many blocks of it a device has room for, which gives the tokens and the concurrency that engines print at start-up.
Engines differ in two habits, both switches here: what they do with layers that see a window only (`windows`), and
whether layers of different kinds share one pool of equal blocks (`shared_pool`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

import numpy as np

from batchline import precision
from batchline.errors import InputError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from batchline.architecture import Architecture, Cache, Weight

    Floats: TypeAlias = float | NDArray[np.float64]

__all__ = [
    "KvGroup",
    "KvLayout",
    "KvPool",
    "Windows",
    "expert_copies",
    "kv_bytes_per_device",
    "kv_layout",
    "kv_shards",
    "pad_vocabulary",
    "pipeline_layers",
    "stage_weight_bytes",
    "weight_bytes_per_device",
]

Windows: TypeAlias = Literal["kept", "full"]
"""What an engine does with a layer that sees a window only: keep the window, or reserve the whole context."""

VOCABULARY_PADDING = 64
"""vLLM and SGLang round the rows of embedding and head up to a multiple of this before they divide them
[vllm/model_executor/layers/vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE]."""

STATE_BLOCK_ALIGNMENT = 16
"""A block that attention layers share with state layers is a multiple of so many tokens [token]."""


# -- weights ---------------------------------------------------------------------------------------------------------


@overload
def kv_shards(tp: int, kv_heads: int) -> float: ...


@overload
def kv_shards(tp: Floats, kv_heads: Floats) -> Floats: ...


def kv_shards(tp: Floats, kv_heads: Floats) -> Floats:
    """Into how many parts tensor parallelism divides what belongs to KV heads.

    Parameters
    ----------
    tp : int or array
        Tensor-parallel degree [device].
    kv_heads : int or array
        KV heads of a layer; 1 for what every device holds whole, as latents; infinite for what divides evenly [head].

    Returns
    -------
    float or array
        Parts [-]; less than `tp` when heads are copied or unevenly spread.

    Examples
    --------
    >>> [float(kv_shards(*given)) for given in ((4, 8), (16, 8), (8, 1), (8, 10))]
    [4.0, 8.0, 1.0, 5.0]
    """
    if isinstance(kv_heads, int) and isinstance(tp, int):
        return kv_heads / math.ceil(kv_heads / tp)
    with np.errstate(invalid="ignore"):
        parts: Floats = np.where(np.isinf(kv_heads), tp, kv_heads / np.ceil(np.asarray(kv_heads) / tp))[()]
    return parts


def pad_vocabulary(vocab_size: int, multiple: int = VOCABULARY_PADDING) -> int:
    """Rows of embedding and head after padding.

    Parameters
    ----------
    vocab_size : int
        Rows of the checkpoint [token].
    multiple : int
        What the rows are rounded up to [token].

    Returns
    -------
    int
        Rows in memory [token].

    Examples
    --------
    >>> pad_vocabulary(32016), pad_vocabulary(128256)
    (32064, 128256)
    """
    return math.ceil(vocab_size / multiple) * multiple


def pipeline_layers(layers: int, pp: int) -> tuple[int, ...]:
    """Layers of each pipeline stage.

    What does not divide goes to the stages before the last one, from the back, since the last has the head too
    [vllm/distributed/utils.py, get_pp_indices].

    Parameters
    ----------
    layers : int
        Layers of the model [layer].
    pp : int
        Stages [-].

    Returns
    -------
    tuple of int
        Layers by stage [layer].

    Raises
    ------
    InputError
        More stages than layers.

    Examples
    --------
    >>> pipeline_layers(80, 4), pipeline_layers(61, 4)
    ((20, 20, 20, 20), (15, 15, 16, 15))
    """
    if not 1 <= pp <= layers:
        raise InputError(
            Sentence("error.stages_of_layers", pp=f"{pp}", layers=f"{layers}"),
            Sentence("error.from_1_to", most=f"{layers}"),
            Sentence("error.fewer_stages"),
        )
    dealt = [layers // pp] * pp
    for index in range(layers % pp):
        dealt[-2 - index] += 1
    return tuple(dealt)


def expert_copies(experts: int, ep: int, devices: int) -> float:
    """Share of the routed experts that one device of a stage holds: whole ones over `ep`, each cut over the rest.

    Parameters
    ----------
    experts : int
        Routed experts of a layer [expert].
    ep : int
        Expert-parallel degree; 1 cuts each expert over all devices [device].
    devices : int
        Devices of the stage: tp x dp [device].

    Returns
    -------
    float
        Share [-].

    Raises
    ------
    InputError
        The degree does not divide the devices.

    Examples
    --------
    >>> expert_copies(256, 8, 8), expert_copies(60, 8, 8)
    (0.125, 0.13333333333333333)
    """
    if ep < 1 or devices % ep:
        fitting = [n for n in range(1, devices + 1) if devices % n == 0]
        raise InputError(
            Sentence("error.experts_spread", ep=f"{ep}", devices=f"{devices}"),
            Sentence("error.can_be", values=", ".join(map(str, fitting))),
            Sentence("error.experts_over"),
        )
    return math.ceil(experts / ep) / experts / (devices // ep)


def stage_weight_bytes(
    architecture: Architecture,
    weights: str | None = None,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    vocabulary_padding: int = VOCABULARY_PADDING,
) -> tuple[float, ...]:
    """Weights that one device of each pipeline stage holds.

    Parameters
    ----------
    architecture : Architecture
        The model.
    weights : str or None
        Number format; None is the checkpoint's own.
    tp, pp, dp, ep : int
        Tensor, pipeline, attention-data and expert parallel degrees [device].
    vocabulary_padding : int
        What embedding and head rows are rounded up to; 1 for none [token].

    Returns
    -------
    tuple of float
        Bytes by stage [B]. Layers of a stage count as the mean layer, which is exact where all layers are alike.

    Raises
    ------
    InputError
        A degree does not divide what it should.

    Examples
    --------
    >>> from batchline.architecture import Architecture
    >>> model = Architecture.load("llama-3.1-8b")
    >>> [round(size / 2**30, 2) for size in stage_weight_bytes(model, pp=4)]
    [4.23, 3.25, 3.25, 4.23]
    """
    body = outside_first = outside_last = embedding = 0.0
    copies = expert_copies(architecture.experts, ep, tp * dp) if architecture.experts else 1.0
    for weight in architecture.weights:
        size = weight.bytes_in(architecture.format_of(weight, weights))
        held = size * _held(weight, tp, architecture.kv_heads, copies, vocabulary_padding)
        if "{}" in weight.module:
            body += held
        elif weight.role == "embedding":
            embedding += held
            outside_first += held
        elif weight.role == "position":
            outside_first += held
        else:
            outside_last += held
    if pp > 1 and architecture.tied_embeddings:
        outside_last += embedding
    dealt = pipeline_layers(architecture.layers, pp)
    stages = [body * layers / architecture.layers for layers in dealt]
    stages[0] += outside_first
    stages[-1] += outside_last
    return tuple(stages)


def _held(weight: Weight, tp: int, kv_heads: int, copies: float, padding: int) -> float:
    """Share of a weight that one device of its stage holds; above 1 where rows are padded."""
    if weight.shard == "all":
        return 1.0
    if weight.shard == "tp":
        return 1.0 / tp
    if weight.shard == "expert":
        return copies
    if weight.shard == "kv":
        return 1.0 / kv_shards(tp, kv_heads)
    if weight.shard == "vocab":
        return pad_vocabulary(weight.rows, padding) / weight.rows / tp
    raise InputError(Sentence("error.sharding_unknown", module=weight.module, given=repr(weight.shard)))


def weight_bytes_per_device(
    architecture: Architecture,
    weights: str | None = None,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    vocabulary_padding: int = VOCABULARY_PADDING,
) -> float:
    """Weights that a device of the fullest pipeline stage holds.

    Parameters
    ----------
    architecture : Architecture
        The model.
    weights : str or None
        Number format; None is the checkpoint's own.
    tp, pp, dp, ep : int
        Tensor, pipeline, attention-data and expert parallel degrees [device].
    vocabulary_padding : int
        What embedding and head rows are rounded up to; 1 for none [token].

    Returns
    -------
    float
        Bytes [B].

    Examples
    --------
    >>> from batchline.architecture import Architecture
    >>> model = Architecture.load("llama-3.1-70b")
    >>> round(weight_bytes_per_device(model, tp=4) / 2**30, 2)
    32.86
    """
    return max(
        stage_weight_bytes(architecture, weights, tp=tp, pp=pp, dp=dp, ep=ep, vocabulary_padding=vocabulary_padding)
    )


# -- sequences -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KvGroup:
    """Layers that share a block table.

    Parameters
    ----------
    kind : str
        "full" grows with the context, "window" up to a limit, "state" not at all.
    block : int
        Tokens of a block; for a state, blocks that a sequence needs [token].
    block_bytes : float
        Bytes of a block in all layers of a table, on one device [B].
    tables : int
        Block tables of this kind [-].
    window : int or None
        Tokens that a "window" layer sees [token].
    """

    kind: str
    block: int
    block_bytes: float
    tables: int = 1
    window: int | None = None

    def blocks(self, n: Floats, ahead: int = 0) -> Floats:
        """Blocks that a sequence of n tokens needs in all tables of this kind.

        Parameters
        ----------
        n : float or array
            Tokens of the sequence [token].
        ahead : int
            Tokens that one step may add, which a window keeps beside itself [token].

        Returns
        -------
        float or array
            Blocks [-].
        """
        tokens = np.asarray(n, dtype=float)
        if self.kind == "state":
            return np.full_like(tokens, self.tables * self.block)
        if self.kind == "window" and self.window is not None:
            # A window starts anywhere in its first block, hence one more.
            seen = np.minimum(tokens, self.window - 1 + ahead)
            return np.asarray(self.tables * (np.ceil(seen / self.block) + (self.block > 1)))
        return np.asarray(self.tables * np.ceil(tokens / self.block))


@dataclass(frozen=True)
class KvLayout:
    """How a device lays out the caches of its layers in blocks.

    Parameters
    ----------
    groups : tuple of KvGroup
        Block tables by kind.
    shared : bool
        Whether all kinds draw equal blocks from one pool.

    Examples
    --------
    >>> from batchline.architecture import Architecture
    >>> layout = kv_layout(Architecture.load("gpt-oss-20b"), tp=2, block=16)
    >>> [(group.kind, group.tables, group.block_bytes) for group in layout.groups]
    [('full', 1, 196608.0), ('window', 1, 196608.0)]
    """

    groups: tuple[KvGroup, ...]
    shared: bool = True

    @property
    def block(self) -> int:
        """Tokens of the smallest block; 1 where there are states only [token]."""
        return min((group.block for group in self.groups if group.kind != "state"), default=1)

    @property
    def tables(self) -> int:
        """Block tables of a sequence [-]."""
        return sum(group.tables for group in self.groups)

    @property
    def block_bytes(self) -> float:
        """Bytes of a block of the pool on one device; of the largest where kinds have pools of their own [B]."""
        return max(group.block_bytes for group in self.groups)

    @property
    def grows_alike(self) -> bool:
        """Whether all layers keep the whole context, so that tokens are blocks times their tokens."""
        return len(self.groups) == 1 and self.groups[0].kind == "full"

    def sequence_bytes(self, n: Floats, ahead: int = 0) -> Floats:
        """Bytes that a sequence of n tokens takes on one device.

        Parameters
        ----------
        n : float or array
            Tokens of the sequence [token].
        ahead : int
            Tokens that one step may add to it: the prefill budget when it starts, 0 while it decodes [token].

        Returns
        -------
        float or array
            Bytes [B].
        """
        total = sum(group.blocks(n, ahead) * group.block_bytes for group in self.groups)
        return float(total) if np.ndim(n) == 0 else np.asarray(total)


@dataclass(frozen=True)
class KvPool:
    """Memory for the caches of one device.

    Parameters
    ----------
    layout : KvLayout
        How sequences use it.
    kv_bytes : float
        Memory that blocks fill [B].
    """

    layout: KvLayout
    kv_bytes: float

    @classmethod
    def of(cls, kv_bytes: float, layout: KvLayout) -> KvPool:
        """Cut an amount of memory into blocks.

        Parameters
        ----------
        kv_bytes : float
            Memory for caches on one device; below 0 where the weights do not fit [B].
        layout : KvLayout
            How sequences use blocks.

        Returns
        -------
        KvPool
            Whole blocks.

        Examples
        --------
        >>> from batchline.architecture import Architecture
        >>> pool = KvPool.of(10e9, kv_layout(Architecture.load("llama-3.1-8b")))
        >>> pool.blocks, pool.tokens(8192)
        (4768, 76288)
        """
        room = max(0.0, kv_bytes)
        if layout.shared:
            room = room // layout.block_bytes * layout.block_bytes
        return cls(layout, room)

    @property
    def blocks(self) -> int:
        """Blocks that there are [-]."""
        return int(self.kv_bytes // self.layout.block_bytes)

    def max_concurrency(self, max_model_len: int, ahead: int = 0) -> float:
        """Requests of the longest length that fit at once.

        Parameters
        ----------
        max_model_len : int
            Longest request [token].
        ahead : int
            Tokens that one step may add [token].

        Returns
        -------
        float
            Requests [request].

        Examples
        --------
        Two H100s and gpt-oss-20b under vLLM 0.19: 316.07 at 8,192 tokens with 323,972 blocks.

        >>> from batchline.architecture import Architecture
        >>> layout = kv_layout(Architecture.load("gpt-oss-20b"), tp=2, block=16)
        >>> round(KvPool.of(323972 * layout.block_bytes, layout).max_concurrency(8192, ahead=8192), 2)
        316.07
        """
        return self.kv_bytes / float(self.layout.sequence_bytes(max_model_len, _ahead(max_model_len, ahead)))

    def tokens(self, max_model_len: int, ahead: int = 0, *, by_concurrency: bool = True) -> int:
        """Tokens that the engine says the pool holds.

        Parameters
        ----------
        max_model_len : int
            Longest request [token].
        ahead : int
            Tokens that one step may add [token].
        by_concurrency : bool
            Whether the engine multiplies its concurrency by the longest length, or its blocks by their tokens;
            the two agree where all layers are alike.

        Returns
        -------
        int
            Tokens [token].
        """
        if self.layout.grows_alike:
            return self.blocks * self.layout.block
        if by_concurrency or not self.layout.shared:
            return int(self.max_concurrency(max_model_len, ahead) * max_model_len)
        return self.blocks // self.layout.tables * self.layout.block

    def capacity_batch(self, context: Floats) -> Floats:
        """Sequences of a mean length that fit while they decode.

        Parameters
        ----------
        context : float or array
            Mean tokens of a sequence [token].

        Returns
        -------
        float or array
            Whole sequences [sequence].
        """
        room = np.floor(self.kv_bytes / np.asarray(self.layout.sequence_bytes(context)))
        return float(room) if room.ndim == 0 else room

    def largest_context(self, limit: int, ahead: int = 0) -> int:
        """Longest single request that fits, up to a limit.

        Parameters
        ----------
        limit : int
            Longest that is asked for [token].
        ahead : int
            Tokens that one step may add [token].

        Returns
        -------
        int
            Tokens [token]; 0 when none fits.
        """
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if float(self.layout.sequence_bytes(middle, _ahead(middle, ahead))) <= self.kv_bytes:
                low = middle
            else:
                high = middle - 1
        return low


def _ahead(n: int, ahead: int) -> int:
    return min(ahead, n)


def kv_layout(
    architecture: Architecture,
    kv: str = "bf16",
    *,
    tp: int = 1,
    pp: int = 1,
    block: int = 16,
    windows: Windows = "kept",
    shared_pool: bool = True,
    state_blocks: int = 1,
) -> KvLayout:
    """Block tables of a model on one device of its fullest stage.

    Parameters
    ----------
    architecture : Architecture
        The model.
    kv : str
        Number format of the cache.
    tp, pp : int
        Tensor and pipeline parallel degrees [device].
    block : int
        Tokens of a block [token]. Where layers keep a state, blocks grow until one holds it.
    windows : {"kept", "full"}
        Whether layers with a window keep the window only, or the whole context.
    shared_pool : bool
        Whether layers of all kinds draw equal blocks from one pool, as in vLLM: the kinds are cut into tables of as
        many layers as the rarest kind has [vllm/v1/core/kv_cache_utils.py, hybrid KV cache groups]. Else each kind
        has a pool of its own.
    state_blocks : int
        Copies of its state that a sequence keeps: 2 where the last block boundary is kept for prefix caching [-].

    Returns
    -------
    KvLayout
        The tables.

    Raises
    ------
    InputError
        The model keeps no cache.

    Examples
    --------
    >>> from batchline.architecture import Architecture
    >>> layout = kv_layout(Architecture.load("llama-3.1-8b"), block=16)
    >>> layout.block_bytes / 16
    131072.0
    """
    if not _kept(architecture):
        raise InputError(Sentence("error.no_cache", name=architecture.name))
    share = max(pipeline_layers(architecture.layers, pp)) / architecture.layers
    kinds = list(_kinds(architecture, kv, tp, windows))
    make = _shared if shared_pool else _apart
    return KvLayout(make(kinds, share, block, state_blocks), shared_pool)


@dataclass(frozen=True)
class _Kind:
    """Layers that keep the same of a sequence: bytes of a token (or of a state) in one layer on one device."""

    kind: str
    layers: int
    token_bytes: float
    window: int | None = None


def _kinds(architecture: Architecture, kv: str, tp: int, windows: Windows) -> Iterable[_Kind]:
    kv_format = precision.load_kv(kv)
    found: dict[tuple[str, int | None], list[tuple[int, float]]] = {}
    for cache in _kept(architecture):
        kind, window, size = _cache_kind(cache, kv_format, tp, windows)
        found.setdefault((kind, window), []).append((cache.layers, size))
    for (kind, window), members in sorted(found.items(), key=lambda item: item[0][0]):
        total = sum(count * size for count, size in members)
        layers = sum(count for count, _ in members)
        if layers > architecture.layers:
            # What a layer keeps beside its latents (index keys) belongs to the same layer.
            layers = max(count for count, _ in members)
        yield _Kind(kind, layers, total / layers, window)


def _kept(architecture: Architecture) -> list[Cache]:
    """Caches that take memory: a layer that reads another one's keeps none."""
    return [cache for cache in architecture.caches if cache.stored]


def _cache_kind(
    cache: Cache, kv_format: precision.KvFormat, tp: int, windows: Windows
) -> tuple[str, int | None, float]:
    shards = kv_shards(tp, cache.heads)
    if cache.kind == "state":
        return "state", None, cache.state_bytes / shards
    size = cache.entry_bytes(kv_format) / shards / cache.stride
    if cache.window is None or windows == "full":
        return "full", None, size
    return "window", cache.window * cache.stride, size


def _shared(kinds: list[_Kind], share: float, block: int, state_blocks: int) -> tuple[KvGroup, ...]:
    """One pool of equal blocks: tables of as many layers as the rarest kind has, as many tokens as fill a block."""
    growing = [kind for kind in kinds if kind.kind != "state"]
    states = [kind for kind in kinds if kind.kind == "state"]
    if growing and states:
        needed = max(kind.token_bytes for kind in states) / max(kind.token_bytes for kind in growing)
        block = max(block, math.ceil(needed / STATE_BLOCK_ALIGNMENT) * STATE_BLOCK_ALIGNMENT)
    most, least = max(kind.layers for kind in kinds), min(kind.layers for kind in kinds)
    # Nearly equal counts share one table with a few layers of padding [kv_cache_utils.py, 1.25 times].
    together = most if most < 1.25 * least else least
    page = max(kind.token_bytes * (1 if kind.kind == "state" else block) for kind in kinds)
    return tuple(
        KvGroup(
            kind.kind,
            state_blocks if kind.kind == "state" else block * max(1, int(page // (kind.token_bytes * block))),
            page * together * share,
            math.ceil(kind.layers / together),
            kind.window,
        )
        for kind in kinds
    )


def _apart(kinds: list[_Kind], share: float, block: int, state_blocks: int) -> tuple[KvGroup, ...]:
    """A pool of its own for each kind."""
    return tuple(
        KvGroup(
            kind.kind,
            state_blocks if kind.kind == "state" else block,
            kind.token_bytes * (1 if kind.kind == "state" else block) * kind.layers * share,
            1,
            kind.window,
        )
        for kind in kinds
    )


def kv_bytes_per_device(
    architecture: Architecture,
    n: Floats,
    kv: str = "bf16",
    *,
    tp: int = 1,
    pp: int = 1,
    block: int = 1,
    windows: Windows = "kept",
) -> Floats:
    """Cache and state that one sequence keeps on one device of its fullest stage.

    Parameters
    ----------
    architecture : Architecture
        The model.
    n : float or array
        Tokens of the sequence [token].
    kv : str
        Number format of the cache.
    tp, pp : int
        Tensor and pipeline parallel degrees [device].
    block : int
        Tokens of a block; the last one is reserved whole [token].
    windows : {"kept", "full"}
        Whether layers with a window keep the window only, or the whole context.

    Returns
    -------
    float or array
        Bytes [B].

    Examples
    --------
    >>> from batchline.architecture import Architecture
    >>> model = Architecture.load("llama-3.1-70b")
    >>> kv_bytes_per_device(model, 1000, tp=8) == model.stored_bytes(1000) / 8
    True
    >>> kv_bytes_per_device(Architecture.load("deepseek-v3"), 1000, tp=8) == 1000 * 70272
    True
    """
    kv_format = precision.load_kv(kv)
    reserved = np.ceil(np.asarray(n, dtype=float) / block) * block
    share = max(pipeline_layers(architecture.layers, pp)) / architecture.layers
    total = np.zeros_like(reserved)
    for cache in _kept(architecture):
        if windows == "full" and cache.window is not None:
            entries: Floats = np.floor_divide(reserved, cache.stride)
        else:
            entries = cache.entries(reserved)
        held = cache.entry_bytes(kv_format) * entries + cache.state_bytes
        total = total + cache.layers * share * held / kv_shards(tp, cache.heads)
    return float(total) if np.ndim(n) == 0 else total
