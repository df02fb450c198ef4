"""The tensors of a checkpoint, and what each is used for, by its name."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Checkpoint", "Tensor", "take"]

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blk|block)\.(\d+)\.")
_TOWERS = re.compile(
    r"(?:^|\.)(?:v|vision\w*|visual|audio\w*|mm|mm_projector|multi_modal\w*|vpm|aligner|mtp|embed_vision|embed_audio)\."
)
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|token_embd|wte|word_embeddings|embeddings|embed)\.weight")
_LOOK_UP = re.compile(r"(?:^|\.)(?:wpe|position_embd|embed_tokens_per_layer|per_layer_token_embd)\.")
_EXPERT = re.compile(r"(?:^|\.)experts\.|_exps\.")


@dataclass(frozen=True)
class Tensor:
    """A tensor of a checkpoint.

    Parameters
    ----------
    name : str
        As the file has it.
    kind : str
        Type of its elements: "BF16", "F8_E4M3", "q4_k".
    shape : tuple of int
        Elements in each direction [-].
    size : int
        Bytes in the file [B].
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    size: int

    @property
    def elements(self) -> int:
        """Elements [-]; packed formats hold several weights in one."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Checkpoint:
    """All tensors of a checkpoint.

    Parameters
    ----------
    source : str
        The file or folder.
    tensors : tuple of Tensor
        In the order of the files.
    metadata : mapping
        Of a GGUF file; empty for safetensors.

    Examples
    --------
    >>> table = Tensor("model.embed_tokens.weight", "BF16", (8, 4), 64)
    >>> Checkpoint("here", (table, Tensor("lm_head.weight", "BF16", (8, 4), 64))).split(layers=1)
    {'embedding': 64, 'look_up': 0, 'routed': 0, 'shared': 64, 'left_out': 0}
    """

    source: str
    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors [B]."""
        return sum(tensor.size for tensor in self.tensors)

    def bytes_by_type(self) -> dict[str, int]:
        """Bytes by type of element.

        Returns
        -------
        dict
            Type to bytes [B], the largest first.

        Examples
        --------
        >>> Checkpoint("here", (Tensor("a", "F32", (2,), 8), Tensor("b", "BF16", (9,), 18))).bytes_by_type()
        {'BF16': 18, 'F32': 8}
        """
        sizes: dict[str, int] = {}
        for tensor in self.tensors:
            sizes[tensor.kind] = sizes.get(tensor.kind, 0) + tensor.size
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))

    def split(self, layers: int) -> dict[str, int]:
        """Bytes by use.

        Parameters
        ----------
        layers : int
            Layers of the model; later ones predict several tokens and are left out [layer].

        Returns
        -------
        dict
            Bytes of "embedding", "look_up" (other tables), "routed" experts, "shared" (all that every token reads),
            and "left_out" (towers of other modalities, multi-token prediction) [B].
        """
        sizes = dict.fromkeys(("embedding", "look_up", "routed", "shared", "left_out"), 0)
        for tensor in self.tensors:
            sizes[_use(tensor.name, layers)] += tensor.size
        return sizes


def take(stream: IO[bytes], count: int) -> bytes:
    """Read just so many bytes.

    Parameters
    ----------
    stream : file
        Open for reading.
    count : int
        How many [B].

    Returns
    -------
    bytes
        Of that length.

    Raises
    ------
    ValueError
        The file ends before.
    """
    data = stream.read(count)
    if len(data) != count:
        raise ValueError("it ends too early")
    return data


def _use(name: str, layers: int) -> str:
    match = _LAYER.search(name)
    if _TOWERS.search(name) or (match and int(match[1]) >= layers):
        return "left_out"
    if _LOOK_UP.search(name):
        return "look_up"
    if _EMBEDDING.search(name) and not match:
        return "embedding"
    if _EXPERT.search(name) and "shared_expert" not in name:
        return "routed"
    return "shared"
