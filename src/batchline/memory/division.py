"""Into how many parts a layout divides a model: heads, vocabulary, layers, experts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias, overload

import numpy as np

from batchline.errors import InputError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = float | NDArray[np.float64]

__all__ = ["VOCABULARY_PADDING", "expert_copies", "kv_shards", "pad_vocabulary", "pipeline_layers"]

VOCABULARY_PADDING = 64
"""vLLM and SGLang round the rows of embedding and head up to a multiple of this before they divide them
[vllm/model_executor/layers/vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE]."""


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
