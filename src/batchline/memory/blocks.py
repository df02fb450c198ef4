"""Blocks of the KV cache on one device: the tables of a sequence, and the pool that they draw from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = float | NDArray[np.float64]

__all__ = ["KvGroup", "KvLayout", "KvPool"]


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
    >>> from batchline.memory import kv_layout
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
        >>> from batchline.memory import kv_layout
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
        >>> from batchline.memory import kv_layout
        >>> layout = kv_layout(Architecture.load("gpt-oss-20b"), tp=2, block=16)
        >>> round(KvPool.of(323972 * layout.block_bytes, layout).max_concurrency(8192, ahead=8192), 2)
        316.07
        """
        return self.kv_bytes / float(self.layout.sequence_bytes(max_model_len, min(ahead, max_model_len)))

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
            if float(self.layout.sequence_bytes(middle, min(ahead, middle))) <= self.kv_bytes:
                low = middle
            else:
                high = middle - 1
        return low
