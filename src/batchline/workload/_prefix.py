"""Prompts that begin alike, as a tree: the way from the root to a node is a run of tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

__all__ = ["PrefixTree"]


@dataclass(eq=False)
class PrefixTree:
    """Shared beginnings of prompts. It grows while requests are read.

    Parameters
    ----------
    parents : list of int
        Node above each node; -1 for the first of a prompt.
    tokens : list of int
        Tokens from the beginning of the prompt to the end of the node [token].

    Examples
    --------
    >>> tree = PrefixTree()
    >>> first = tree.add(["a", "b"], 512, 1000)
    >>> second = tree.add(["a", "c"], 512, 1024)
    >>> tree.parents, tree.tokens, first, second
    ([-1, 0, 0], [512, 1000, 1024], 1, 2)
    """

    parents: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    _index: dict[tuple[int, Hashable, int], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.parents)

    def add(self, names: Sequence[Hashable], size: int, prompt: int) -> int:
        """Find or make the nodes of a prompt.

        Parameters
        ----------
        names : sequence
            Names of its blocks; blocks with equal names after equal blocks hold equal tokens.
        size : int
            Tokens of a block; the last may be shorter [token].
        prompt : int
            Tokens of the prompt [token].

        Returns
        -------
        int
            The deepest node, or -1 without blocks.
        """
        node = -1
        for number, name in enumerate(names, start=1):
            end = min(number * size, prompt)
            if end <= (number - 1) * size:
                break
            key = (node, name, end)
            found = self._index.get(key)
            if found is None:
                found = len(self.parents)
                self._index[key] = found
                self.parents.append(node)
                self.tokens.append(end)
            node = found
        return node
