"""`--explain`: every formula with its numbers, and where each number is from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchline import explanation
from batchline.cli import _output
from batchline.cli._language import current, say

if TYPE_CHECKING:
    from batchline.curve_question import Question
    from batchline.sweep import Curve


def explain(curve: Curve, asked: Question) -> None:
    """Print the formulas of the optimal batch and of the load, then the inputs with their sources."""
    found = explanation.equations(curve, current())
    at, *parts = found["parts"]
    reading, *step = found["step"]
    served = explanation.load(asked, curve, current())
    sections = {
        at: [*parts, *found["bound"]],
        reading: [*step, *found["cost"], *found["rate"], *found["reason"], *found["next"]],
        **({served[0]: served[1:]} if served else {}),
        say("explain.floors"): [
            line for name in ("capacity", "latency_floor", "cost_floor", "knee", "balance") for line in found[name]
        ],
        say("explain.sources"): explanation.inputs(curve, current()),
    }
    console = _output.console()
    console.print(f"\n{curve.titled(current())}\n", style="bold")
    for heading, lines in sections.items():
        for line in (heading, *(f"  {line}" for line in lines)):
            console.print(line, soft_wrap=True, markup=False)
        console.print()
