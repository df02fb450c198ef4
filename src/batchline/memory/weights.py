"""Weights that one device holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline.errors import InputError
from batchline.memory.division import VOCABULARY_PADDING, expert_copies, kv_shards, pad_vocabulary, pipeline_layers
from batchline.strings import Sentence

if TYPE_CHECKING:
    from batchline.architecture import Architecture, Weight

__all__ = ["stage_weight_bytes", "weight_bytes_per_device"]


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
