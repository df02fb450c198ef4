"""Batchline: the roofline of batch size.

Give it a model and an accelerator; it says which batch size to run, what a token then costs, how long it takes,
what bounds it, and which deployment is cheapest.

    import batchline as bl

    deployment = bl.Deployment.of("llama-3.1-70b", "4xh100", weights="fp8")
    answer = bl.curve(deployment, context=8192)
    answer.optimum.batch, answer.optimum.reason
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchline.accelerator import Accelerator
    from batchline.architecture import Architecture
    from batchline.choice import Optimum, optimum
    from batchline.deployment import Deployment
    from batchline.errors import BatchlineError
    from batchline.planner import Plan, plan
    from batchline.price import Price
    from batchline.readings import Steps, steady, steps
    from batchline.sweep import Curve, context_sweep, curve

__version__ = "0.1.0"

__all__ = [
    "Accelerator",
    "Architecture",
    "BatchlineError",
    "Curve",
    "Deployment",
    "Optimum",
    "Plan",
    "Price",
    "Steps",
    "context_sweep",
    "curve",
    "optimum",
    "plan",
    "steady",
    "steps",
]

# Where each public name lives. It is imported when it is first used, so that `import batchline` costs nothing.
_HOMES = {
    "Accelerator": "accelerator",
    "Architecture": "architecture",
    "BatchlineError": "errors",
    "Curve": "sweep",
    "Deployment": "deployment",
    "Optimum": "choice",
    "Plan": "planner",
    "Price": "price",
    "Steps": "readings",
    "context_sweep": "sweep",
    "curve": "sweep",
    "optimum": "choice",
    "plan": "planner",
    "steady": "readings",
    "steps": "readings",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'batchline' has no attribute {name!r}")
    return getattr(importlib.import_module(f"batchline.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
