"""What is considered where a question leaves it open: accelerators with their prices, formats, prefill budgets."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from batchline import price as prices_module
from batchline import space as space_module
from batchline.accelerator import Accelerator, resolve
from batchline.architecture import Architecture
from batchline.errors import MissingFactError, UnknownNameError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from batchline.planner.question import Question
    from batchline.price import Price
    from batchline.prior import Prior
    from batchline.space import Space

__all__ = ["ENGINES", "KVS", "formats", "priced", "space_of", "telling_budgets"]

ENGINES = ("vllm", "sglang", "trtllm")
KVS = ("bf16", "fp8")
_FORMATS = ("bf16", "fp8", "int8", "int4", "nvfp4")


def priced(question: Question) -> tuple[list[Accelerator], list[Price | None]]:
    """Devices to consider and their prices; one that was named must have a price."""
    own = {resolve(name): usd for name, usd in question.prices.items()}
    named = [Accelerator.load(name) for name in question.accelerators]
    devices = named or [Accelerator.load(name) for name in dict.fromkeys([*own, *prices_module.names()])]
    found: list[Price | None] = []
    for device in devices:
        if device.name in own:
            found.append(dataclasses.replace(prices_module.given(own[device.name]), accelerator=device.name))
            continue
        try:
            found.append(_catalogue_price(device.name, question.basis))
        except (MissingFactError, UnknownNameError):
            if named:
                raise MissingFactError(
                    Sentence("error.no_plan_price", basis=question.basis, accelerator=device.name),
                    "",
                    Sentence("error.give_plan_price", accelerator=device.name),
                ) from None
            found.append(None)
    return devices, found


def _catalogue_price(name: str, basis: str) -> Price:
    if basis == "rental":
        return prices_module.load(name)
    usd = float(getattr(prices_module.owner_cost(name), basis))
    return dataclasses.replace(prices_module.given(usd), accelerator=name)


def formats(question: Question, architecture: Architecture) -> tuple[str | None, ...]:
    """Weight formats to consider; None is the checkpoint's own."""
    if not question.weights:
        return space_module.default_weights(architecture, _FORMATS)
    given = [None if name in ("checkpoint", architecture.weight_format) else name for name in question.weights]
    return tuple(dict.fromkeys(given))


def space_of(question: Question, priors: Prior) -> Space:
    """All deployments that a question leaves open.

    Parameters
    ----------
    question : Question
        What is asked; its load and promises do not matter here.
    priors : Prior
        Coefficients and intervals.

    Returns
    -------
    Space
        What can be started, and why the rest cannot.

    Raises
    ------
    MissingFactError
        An accelerator was named whose price nobody knows.
    """
    architecture = Architecture.load(question.model)
    devices, prices = priced(question)
    return space_module.enumerate_space(
        architecture,
        devices,
        prices,
        weights=formats(question, architecture),
        kvs=question.kv or KVS,
        engines=question.engines or ENGINES,
        context=question.context,
        isl=question.isl,
        max_devices=question.max_devices,
        priors=priors,
    )


def telling_budgets(question: Question, space: Space) -> list[int]:
    """Budgets that can differ: of those that compute a prompt in equally many steps the smallest is best.

    A larger budget lengthens the longest gap and takes memory, and shortens nothing more.
    """
    fresh = question.isl * (1.0 - question.prefix_hit_rate)
    waited = float(np.min(space.coefficients.ttft_steps)) if space.size else 0.0
    found: dict[float, int] = {}
    for budget in sorted(set(question.budgets)):
        found.setdefault(max(math.ceil(fresh / budget), waited), budget)
    return list(found.values())
