"""Prompts of an exact length without a tokenizer: ask, look at `usage`, correct.

A prompt is random letters with a space between. Almost every tokenizer gives each of them the same number of tokens,
so length is linear in their number; what is left over is filled with digits. No two prompts begin alike, and no run
repeats those of another, so a prefix cache has nothing to give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Shape", "fit"]

_LETTERS: Final = np.array(list("abcdefghijklmnopqrstuvwxyz"))
_TRIES: Final = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """How long a prompt is.

    Parameters
    ----------
    letters : int
        Random letters, each with a space [-].
    digits : int
        Digits at the end [-].
    tokens : int
        What the server counted [token].
    """

    letters: int
    digits: int = 0
    tokens: int = 0

    def text(self, random: np.random.Generator) -> str:
        """Make a prompt of this shape.

        Parameters
        ----------
        random : numpy.random.Generator
            Source of the letters.

        Returns
        -------
        str
            The prompt.
        """
        return " ".join(random.choice(_LETTERS, self.letters)) + "7" * self.digits


async def fit(target: int, count: Callable[[Shape], Awaitable[int]], start: Shape | None = None) -> Shape:
    """Find the shape whose prompt has a number of tokens.

    Parameters
    ----------
    target : int
        Tokens wanted [token].
    count : callable
        Sends a prompt of a shape and returns the tokens that the server counted.
    start : Shape, optional
        A shape whose tokens are known.

    Returns
    -------
    Shape
        The nearest that was found; exact wherever the tokenizer allows it.
    """
    seen: dict[tuple[int, int], int] = {} if start is None else {(start.letters, start.digits): start.tokens}
    trial = Shape(max(1, target // 2) if start is None else max(1, round(start.letters * target / start.tokens)))
    for _ in range(_TRIES):
        if (trial.letters, trial.digits) in seen:
            break
        seen[trial.letters, trial.digits] = await count(trial)
        if seen[trial.letters, trial.digits] == target:
            break
        trial = _next(target, seen)
    letters, digits = min(seen, key=lambda shape: (abs(seen[shape] - target), shape))
    return Shape(letters, digits, seen[letters, digits])


def _next(target: int, seen: dict[tuple[int, int], int]) -> Shape:
    plain = sorted((letters, tokens) for (letters, digits), tokens in seen.items() if not digits)
    below = [(letters, tokens) for letters, tokens in plain if tokens <= target]
    if len(plain) < 2:
        letters, tokens = plain[0]
        return Shape(max(1, round(letters * target / tokens)) if tokens != target else letters)
    slope = (plain[-1][1] - plain[0][1]) / (plain[-1][0] - plain[0][0])
    slope = slope if slope > 0 else 1.0
    letters, tokens = min(plain, key=lambda pair: abs(pair[1] - target))
    trial = max(1, letters + round((target - tokens) / slope))
    if (trial, 0) not in seen or not below:
        return Shape(trial)
    letters, tokens = below[-1]
    return Shape(letters, target - tokens)
