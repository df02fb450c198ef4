"""Records of a layer: `Weight`, its matrices, and `Cache`, what it keeps of a sequence of n tokens.

Equal ones are counted, not repeated, so that bytes and FLOPs are short sums whatever the depth of a model.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from batchline.errors import InputError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline import precision

    Floats: TypeAlias = float | NDArray[np.float64]

__all__ = ["Cache", "Layer", "Weight"]


@dataclass(frozen=True, slots=True)
class Weight:
    """Matrices of one shape and kind.

    Parameters
    ----------
    module : str
        Name in the checkpoint, without wrapper prefixes; `{}` stands for the layer: "layers.{}.self_attn.q_proj".
    role : str
        "embedding", "position", "head", "attention", "state", "index", "ffn", "expert", "shared_expert", "router",
        "norm" or "other".
    rows, columns : int
        Outputs and inputs; a vector has one column [weight].
    copies : int
        Matrices of this shape in one layer [-].
    active : float
        Of these copies, how many multiply for one token [-].
    shard : str
        How tensor parallelism splits it: "tp" evenly, "kv" by KV heads (copied beyond their number), "vocab",
        "expert" (whole experts, or each expert evenly) or "all" (each device has it whole).
    linear : bool
        Whether a quantiser converts it.
    layers : int
        Layers that hold it in this format [-].
    number_format : str
        Format that the checkpoint keeps it in.
    """

    module: str
    role: str
    rows: int
    columns: int = 1
    copies: int = 1
    active: float = 1
    shard: str = "tp"
    linear: bool = True
    layers: int = 1
    number_format: str = "bf16"

    @property
    def params(self) -> int:
        """All parameters of this kind in the model [parameter]."""
        return self.rows * self.columns * self.copies * self.layers

    @property
    def active_params(self) -> float:
        """Of these, those that multiply for one token [parameter]."""
        return self.rows * self.columns * self.active * self.layers

    def bytes_in(self, number_format: precision.NumberFormat) -> float:
        """Bytes of all of them in a number format, scales included [B]."""
        return number_format.matrix_bytes(self.rows, self.columns) * self.copies * self.layers


@dataclass(frozen=True, slots=True)
class Cache:
    """What a layer keeps of a sequence of n tokens.

    Entries stored: n // stride, at most `window`. Entries read for the next token: at most `read_limit` of these.

    Parameters
    ----------
    kind : str
        "kv", "latent", "index" (keys that only choose what is read) or "state" (does not grow).
    elements : int
        Of one entry [element].
    rotary : int
        Of these, the rotary part, which one layout keeps in bf16 [element].
    stride : int
        Tokens that share an entry [token].
    window, read_limit : int or None
        Most entries kept, most entries read in a step [entry].
    state_bytes : int
        Of a state, which is read and written in each step [B].
    decode_flops, prefill_flops : float
        For one token and one entry that it attends to [FLOP].
    token_flops : float
        For one token, whatever the context: updating and reading a state [FLOP].
    stored : bool
        False for a layer that reads what an earlier layer has stored.
    heads : int
        Heads by which tensor parallelism splits it; 1 means that each device has it whole [head].
    layers : int
        Layers that keep such a cache [-].
    """

    kind: str
    elements: int = 0
    rotary: int = 0
    stride: int = 1
    window: int | None = None
    read_limit: int | None = None
    state_bytes: int = 0
    decode_flops: float = 0
    prefill_flops: float = 0
    token_flops: float = 0
    stored: bool = True
    heads: int = 1
    layers: int = 1

    def borrowed(self) -> Cache:
        """The same cache, kept by an earlier layer: read again, not stored again."""
        return dataclasses.replace(self, stored=False)

    def entry_bytes(self, kv_format: precision.KvFormat) -> float:
        """Bytes of one entry in one layer [B]."""
        if self.kind == "latent":
            return kv_format.latent_bytes(self.elements - self.rotary, self.rotary)
        if self.kind == "index":
            return self.elements * kv_format.index_bits / 8
        if kv_format.latent_only and self.elements:
            raise InputError(
                Sentence("error.layout_needs_mla", name=kv_format.name),
                hint=Sentence("error.use_kv_fp8"),
            )
        return self.elements * kv_format.bytes_per_element

    def entries(self, n: Floats) -> Floats:
        """Entries stored after n tokens, in one layer [entry]."""
        count = n if self.stride == 1 else np.floor_divide(n, self.stride)
        return count if self.window is None else np.minimum(count, self.window)

    def entries_read(self, n: Floats) -> Floats:
        """Entries read to decode one token at context n, in one layer [entry]."""
        count = self.entries(n)
        return count if self.read_limit is None else np.minimum(count, self.read_limit)

    def bytes_read(self, n: Floats, kv_format: precision.KvFormat) -> Floats:
        """Bytes moved to decode one token at context n, in one layer: entries read, a state read and written [B]."""
        return self.entry_bytes(kv_format) * self.entries_read(n) + 2 * self.state_bytes

    def prefill_entries(self, s: Floats) -> Floats:
        """Entries that the tokens of a prompt of s tokens attend to, summed over its tokens, in one layer [entry]."""
        limits = [limit for limit in (self.window, self.read_limit) if limit is not None]
        growing = np.minimum(s, min(limits) * self.stride) if limits else s
        full = growing if self.stride == 1 else np.floor_divide(growing, self.stride)
        triangle = self.stride * full * (full - 1) / 2 + full * (growing - self.stride * full + 1)
        return triangle + (s - growing) * min(limits) if limits else triangle


@dataclass(frozen=True)
class Layer:
    """One layer: its weights and what it keeps of a sequence.

    Parameters
    ----------
    weights : tuple of Weight
        Its matrices and vectors.
    caches : tuple of Cache
        What it keeps.
    """

    weights: tuple[Weight, ...] = ()
    caches: tuple[Cache, ...] = ()

    @functools.cached_property
    def has_experts(self) -> bool:
        """Whether it is a mixture of experts."""
        return any(weight.role == "expert" for weight in self.weights)

    def __add__(self, other: Layer) -> Layer:
        return Layer(self.weights + other.weights, self.caches + other.caches)
