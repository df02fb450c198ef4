"""What the sequences of a model take of one device: as tables of blocks, and in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from batchline import precision
from batchline.errors import InputError
from batchline.memory.blocks import KvGroup, KvLayout
from batchline.memory.division import kv_shards, pipeline_layers
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from batchline.architecture import Architecture, Cache

    Floats: TypeAlias = float | NDArray[np.float64]

__all__ = ["Windows", "kv_bytes_per_device", "kv_layout", "kv_read_bytes_per_device"]

Windows: TypeAlias = Literal["kept", "full"]
"""What an engine does with a layer that sees a window only: keep the window, or reserve the whole context."""

STATE_BLOCK_ALIGNMENT = 16
"""A block that attention layers share with state layers is a multiple of so many tokens [token]."""


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


def kv_read_bytes_per_device(architecture: Architecture, n: Floats, kv: str = "bf16", *, tp: int = 1) -> Floats:
    """Bytes that the fullest device of a tensor-parallel group moves to decode one token of one sequence.

    Each cache divides by its own heads: beside two KV heads, which four devices hold twice, a state of 64 heads divides
    by four.

    Parameters
    ----------
    architecture : Architecture
        The model.
    n : float or array
        Tokens of context [token].
    kv : str
        Number format of the cache.
    tp : int
        Tensor-parallel degree [device].

    Returns
    -------
    float or array
        Bytes of all layers [B].

    Examples
    --------
    >>> from batchline.architecture import Architecture
    >>> model = Architecture.load("llama-3.1-70b")
    >>> kv_read_bytes_per_device(model, 1000, tp=16) == model.read_bytes(1000) / 8
    True
    """
    kv_format = precision.load_kv(kv)
    total = np.zeros(np.shape(n))
    for cache in architecture.caches:
        total = total + cache.layers * cache.bytes_read(n, kv_format) / kv_shards(tp, cache.heads)
    return float(total) if np.ndim(n) == 0 else total
