"""The catalogue of models: one line of data/models.jsonl each, read by the same parser as a config.json.

A line holds name, Hugging Face id, aliases, source, date and the keys that decide sizes. Long lists are written short:
`{"runs": [[[a, b], 3], [[c], 1]]}` is a, b, a, b, a, b, c.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchline.errors import UnknownNameError
from batchline.strings import Sentence

__all__ = ["Row", "expand", "find", "holds", "rows"]


@dataclass(frozen=True)
class Row:
    """One model of the catalogue.

    Parameters
    ----------
    name, hf_id : str
        Short name and Hugging Face id.
    aliases : tuple of str
        What else people type.
    family : str
        Its `model_type`.
    source, date : str
        Where the config was seen, and when.
    text : str
        Keys that decide sizes, long lists written short, as JSON; only parsed when asked for.
    """

    name: str
    hf_id: str
    aliases: tuple[str, ...]
    family: str
    source: str
    date: str
    text: str

    @property
    def config(self) -> dict[str, Any]:
        """The keys that decide sizes, as config.json has them."""
        expanded: dict[str, Any] = expand(json.loads(self.text))
        return expanded


@functools.cache
def rows() -> tuple[Row, ...]:
    """All models."""
    text = (Path(__file__).parents[1] / "data" / "models.jsonl").read_text(encoding="utf-8")
    return tuple(map(_row, text.splitlines()))


def _row(line: str) -> Row:
    head, _, config = line.partition(',"config":')
    facts = json.loads(f"{head}}}")
    facts["aliases"] = tuple(facts["aliases"])
    return Row(**facts, text=config[:-1])


@functools.cache
def _by_name() -> dict[str, Row]:
    table: dict[str, Row] = {}
    for row in rows():
        for name in (row.name, row.hf_id, *row.aliases):
            table.setdefault(name.casefold(), row)
    return table


def holds(name: str) -> bool:
    """Whether the catalogue knows a name, an alias or an id."""
    return name.strip().casefold() in _by_name()


def find(name: str) -> Row:
    """Model of a name, an alias or a Hugging Face id."""
    table = _by_name()
    row = table.get(name.strip().casefold())
    if row is None:
        raise UnknownNameError(
            "model",
            name,
            table,
            Sentence("error.see_models"),
        )
    return row


def expand(value: Any) -> Any:
    """Write long lists out."""
    if isinstance(value, dict):
        if value.keys() == {"runs"}:
            return [item for run, times in value["runs"] for item in run * times]
        return {key: expand(content) for key, content in value.items()}
    return value
