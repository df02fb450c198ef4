"""Weights and caches of all layers, equal ones counted instead of repeated."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from batchline.architecture._recipe import Recipe
    from batchline.architecture._records import Cache, Layer, Weight
    from batchline.architecture._shapes import Model

__all__ = ["counted_caches", "counted_weights"]


def counted_weights(model: Model, recipe: Recipe) -> tuple[Weight, ...]:
    """Weights with the format that the checkpoint keeps them in."""
    kinds: dict[int, tuple[Layer, list[int]]] = {}
    for index, layer in enumerate(model.layers):
        kinds.setdefault(id(layer), (layer, []))[1].append(index)
    counts: dict[tuple[Weight, str], int] = {}
    for layer, indices in [*kinds.values(), (model.outside, [0])]:
        for weight in layer.weights:
            for number_format, count in recipe.formats(weight, indices).items():
                replaced = model.expert_format if weight.role == "expert" and number_format[:3] == "fp8" else None
                key = weight, replaced or number_format
                counts[key] = counts.get(key, 0) + count
    return tuple(
        dataclasses.replace(weight, layers=count, number_format=number_format)
        for (weight, number_format), count in counts.items()
    )


def counted_caches(layers: Iterable[Layer]) -> tuple[Cache, ...]:
    """What the layers keep of a sequence."""
    kinds: dict[int, tuple[Layer, int]] = {}
    for layer in layers:
        kinds[id(layer)] = layer, kinds.get(id(layer), (layer, 0))[1] + 1
    counts: dict[Cache, int] = {}
    for layer, count in kinds.values():
        for cache in layer.caches:
            counts[cache] = counts.get(cache, 0) + count
    return tuple(dataclasses.replace(cache, layers=count) for cache, count in counts.items())
