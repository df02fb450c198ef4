"""Defaults of each engine by version: data/engines.toml, a fact with version and source per row."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from batchline.errors import InputError, UnknownNameError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Engine", "Fact", "names", "version_key"]

ALIASES: Final = {
    "trtllm": "tensorrt-llm",
    "trt-llm": "tensorrt-llm",
    "llama.cpp": "llama-cpp",
    "llamacpp": "llama-cpp",
}
_CONDITIONS = ("memory_gib", "not_device", "generation", "dense", "tp", "pp")


@dataclass(frozen=True)
class Fact:
    """One default or coefficient.

    Parameters
    ----------
    key : str
        What it is.
    value : float, bool or str
        In the unit that the key names.
    since : str
        First version that has it.
    kind : str
        "specification", "fitted" or "guess"; "given" where the user said so.
    source : str
        Where it stands.
    points : int
        Start-up logs behind a fitted one.
    when : mapping
        Conditions.
    """

    key: str
    value: float | bool | str
    since: str
    kind: str
    source: str
    points: int = 0
    when: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def holds(self, context: Mapping[str, Any]) -> bool:
        """Say whether it applies to a device and a layout.

        Parameters
        ----------
        context : mapping
            Properties of device and layout, by the names of the conditions.

        Returns
        -------
        bool
            Whether every condition is met.
        """
        return all(_meets(name, wanted, context) for name, wanted in self.when.items())

    @property
    def provenance(self) -> str:
        """One line: kind, points, source."""
        points = f" on {self.points} start-up log{'s' if self.points > 1 else ''}" if self.kind == "fitted" else ""
        return f"{self.kind}{points}: {self.source}"


def _meets(condition: str, wanted: Any, context: Mapping[str, Any]) -> bool:
    if condition == "not_device":
        return wanted not in context["device"].casefold()
    if condition == "generation":
        return any(context["generation"].startswith(word) for word in wanted.split())
    if condition == "dense":
        return bool(context["dense"] == wanted)
    return bool(context[condition] >= wanted)


@dataclass(frozen=True)
class Engine:
    """An engine at a version.

    Parameters
    ----------
    name, title : str
        Short name and the name for people.
    version : str
        Of the defaults used.
    accounting : str
        How it divides memory; see the module.
    facts : tuple of Fact
        All rows of the catalogue, in order.

    Examples
    --------
    >>> Engine.load("vllm", "0.19.0").value("gpu_memory_utilization"), Engine.load("vllm").value("block")
    (0.9, 16)
    """

    name: str
    title: str
    version: str
    accounting: str
    facts: tuple[Fact, ...]

    @classmethod
    def load(cls, name: str, version: str | None = None) -> Engine:
        """Take an engine from the catalogue.

        Parameters
        ----------
        name : str
            Like "vllm" or "tensorrt-llm".
        version : str or None
            Like "0.19.0"; None is the latest that the catalogue knows.

        Returns
        -------
        Engine
            With the facts of all versions.

        Raises
        ------
        UnknownNameError
            There is no such engine.
        InputError
            The version is no version.

        Examples
        --------
        >>> Engine.load("vllm").title
        'vLLM'
        """
        key = name.casefold().replace("_", "-")
        key = ALIASES.get(key, key)
        known = _catalogue()
        if key not in known:
            raise UnknownNameError("engine", name, known, Sentence("error.engine_generic"))
        entry = known[key]
        chosen = entry["latest"] if version is None else version.removeprefix("v")
        version_key(chosen)
        return cls(key, entry["title"], chosen, entry["accounting"], _facts(key))

    def fact(self, key: str, **context: Any) -> Fact | None:
        """Row that applies.

        Parameters
        ----------
        key : str
            Like "max_num_seqs".
        **context
            `memory_gib`, `device`, `generation`, `dense`, `tp`, `pp` of the deployment; what is left out is one small
            device of no known name.

        Returns
        -------
        Fact or None
            The last row that holds; None when the engine has none.
        """
        full = {"memory_gib": 0.0, "device": "", "generation": "", "dense": True, "tp": 1, "pp": 1, **context}
        holding = [(since, row) for since, row in self._rows.get(key, []) if row.holds(full)]
        # Rows are in order of version; a later version replaces an earlier one whatever its conditions were.
        newest = max((since for since, _ in holding), default=None)
        return next((row for since, row in reversed(holding) if since == newest), None)

    @functools.cached_property
    def _rows(self) -> dict[str, list[tuple[tuple[int, ...], Fact]]]:
        """Rows that this version has, by key, each with the version that it is since."""
        found: dict[str, list[tuple[tuple[int, ...], Fact]]] = {}
        for row in self.facts:
            if (since := version_key(row.since)) <= version_key(self.version):
                found.setdefault(row.key, []).append((since, row))
        return found

    def value(self, key: str, **context: Any) -> Any:
        """Value of the row that applies, or None.

        Parameters
        ----------
        key : str
            Like "max_num_seqs".
        **context
            As of `fact`.

        Returns
        -------
        float, bool, str or None
            In the unit that the key names.
        """
        row = self.fact(key, **context)
        return None if row is None else row.value


@functools.cache
def _catalogue() -> dict[str, Any]:
    return tomllib.loads(resources.files("batchline").joinpath("data", "engines.toml").read_text(encoding="utf-8"))


@functools.cache
def _facts(name: str) -> tuple[Fact, ...]:
    found = []
    for key, rows in _catalogue()[name]["facts"].items():
        for row in rows:
            when = {condition: row[condition] for condition in _CONDITIONS if condition in row}
            found.append(Fact(key, row["value"], row["since"], row["kind"], row["source"], row.get("points", 0), when))
    return tuple(found)


def names() -> list[str]:
    """Names of the catalogue.

    Returns
    -------
    list of str
        Sorted.

    Examples
    --------
    >>> names()
    ['atom', 'generic', 'llama-cpp', 'sglang', 'tensorrt-llm', 'vllm']
    """
    return sorted(_catalogue())


@functools.cache
def version_key(text: str) -> tuple[int, ...]:
    """Numbers by which versions are ordered.

    Parameters
    ----------
    text : str
        Like "0.19.0", "v0.5.3.post1" or "b1234".

    Returns
    -------
    tuple of int
        Its leading numbers.

    Raises
    ------
    InputError
        It does not start with numbers.

    Examples
    --------
    >>> version_key("v0.19.0rc1") > version_key("0.9.1")
    True
    """
    match = re.fullmatch(r"[vb]?(\d+(?:\.\d+)*).*", text)
    if not match:
        raise InputError(
            Sentence("error.no_version", given=repr(text)),
            Sentence("error.version_numbers"),
            Sentence("error.write_version"),
        )
    return tuple(int(part) for part in match[1].split("."))


# -- workspace -------------------------------------------------------------------------------------------------------
