"""Prompts of an exact length without a tokenizer: ask, look at `usage`, correct.

A prompt is random letters with a space between. Almost every tokenizer gives each of them the same number of tokens,
so length is linear in their number; what is left over is filled with digits. No two prompts begin alike, and no run
repeats those of another, so a prefix cache has nothing to give.
"""

from __future__ import annotations

import math
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
    seen: dict[tuple[int, int], int] = {}
    trial = (max(1, target // 2), 0)
    if start is not None and start.tokens:
        seen[start.letters, start.digits] = start.tokens
        trial = (max(1, start.letters * target // start.tokens), 0)
    for _ in range(_TRIES):
        if trial not in seen:
            seen[trial] = await count(Shape(*trial))
        if seen[trial] == target:
            break
        following = _next(target, seen)
        if following is None:
            break
        trial = following
    letters, digits = min(seen, key=lambda shape: (abs(seen[shape] - target), shape))
    return Shape(letters, digits, seen[letters, digits])


def _next(target: int, seen: dict[tuple[int, int], int]) -> tuple[int, int] | None:
    """Letters and digits to try after what was seen; None when nothing better can be had."""
    plain = sorted((abs(tokens - target), letters, tokens) for (letters, digits), tokens in seen.items() if not digits)
    if not plain:
        return (max(1, target // 2), 0)
    _, letters, tokens = plain[0]
    slope = tokens / letters
    if len(plain) > 1 and plain[1][1] != letters:
        slope = (tokens - plain[1][2]) / (letters - plain[1][1])
    guess = max(1, letters + math.floor((target - tokens) / slope)) if slope > 0 else letters
    if guess == letters and len(plain) == 1 and tokens != target:
        guess = letters + 1 if tokens < target or letters == 1 else letters - 1
    if (guess, 0) not in seen:
        return (guess, 0)
    return _filled(target, seen)


def _filled(target: int, seen: dict[tuple[int, int], int]) -> tuple[int, int] | None:
    """Fill what the letters leave with digits; several of them may be one token."""
    below = [(tokens, letters) for (letters, digits), tokens in seen.items() if not digits and tokens < target]
    if not below:
        return None if (1, 0) in seen else (1, 0)
    tokens, letters = max(below)
    tried = [(digits, count) for (own, digits), count in seen.items() if own == letters and digits and count <= target]
    digits = target - tokens
    if tried:
        most, reached = max(tried)
        digits = most + math.ceil((target - reached) * most / max(1, reached - tokens))
    return None if (letters, digits) in seen else (letters, digits)
