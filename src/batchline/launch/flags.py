"""The flags that carry settings, each with its reason and source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from batchline.errors import UnknownNameError
from batchline.strings import Sentence, group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from batchline.launch.settings import Settings

__all__ = ["Flag", "flags_of", "values_of"]

_UBATCH: Final = 512
"""llama.cpp's own size of a matrix product [token]; see its tools/server/README.md."""


@dataclass(frozen=True)
class Flag:
    """One flag of a command line, or one key of a configuration file.

    Parameters
    ----------
    name : str
        As the engine documents it.
    value : str, int, float, bool or None
        Its value; None for a switch.
    reason : str
        Why it has that value.
    source : str
        Where the engine documents it.
    """

    name: str
    value: str | int | float | bool | None
    reason: str
    source: str


def values_of(engine: str, entry: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Give the settings and what follows from them, by the names that launch_flags.toml uses.

    Parameters
    ----------
    engine : str
        Name of the engine.
    entry : mapping
        Its part of the table.
    settings : Settings
        What it is started with.

    Returns
    -------
    dict
        Name -> value; None leaves the engine's default.

    Raises
    ------
    UnknownNameError
        The engine has no such format of the KV cache.
    InputError
        The weights leave no memory for the KV cache.
    """
    kv_names = entry["kv"]
    if settings.kv not in kv_names:
        raise UnknownNameError(
            Sentence("error.kind_kv_format_of", engine=engine), settings.kv, kv_names, Sentence("error.other_kv")
        )
    longest, slots, budget = settings.longest, settings.max_num_seqs_per_rank, settings.max_num_batched_tokens
    return dict(vars(settings)) | {
        "max_model_len": longest,
        "max_num_seqs_per_rank": slots,
        "context_of_all_slots": None if longest is None or slots is None else slots * longest,
        "tp_times_dp": settings.tp * settings.dp,
        "expert_parallel": settings.ep > 1,
        "attention_dp": settings.dp > 1,
        "stages": settings.pp > 1,
        "online_quantization": entry["online"].get(settings.weights) if settings.rounded else None,
        "kv_name": kv_names[settings.kv],
        "prefix_caching": settings.prefix_hit_rate > 0,
        "no_prefix_caching": settings.prefix_hit_rate == 0,
        "prefix_share": f"{settings.prefix_hit_rate:.0%}",
        "chunked": budget is not None,
        "ubatch": None if budget is None else min(_UBATCH, budget),
        "free_memory_fraction": settings.free_memory_fraction,
        "prefill_only": settings.role == "prefill",
        "task": settings.task,
        "file": entry["file"],
    }


def flags_of(rows: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> tuple[Flag, ...]:
    """Write the flags of a table that these values ask for.

    Parameters
    ----------
    rows : sequence of mapping
        `flags` or `keys` of an engine in launch_flags.toml.
    values : mapping
        What `values_of` gave.

    Returns
    -------
    tuple of Flag
        In the order of the table.
    """
    made = []
    for row in rows:
        value = values[row["setting"]] if "setting" in row else row.get("value")
        default = "setting" in row and (value is None or value == row.get("omit"))
        asked = "when" not in row or values[row["when"]]
        if asked and not default:
            made.append(Flag(row["name"], value, _reason(row["reason"], values), row["source"]))
    return tuple(made)


def _reason(name: str, values: Mapping[str, Any]) -> Sentence:
    """Why a flag has its value, with the settings that the sentence names."""
    named = re.findall(r"\{(\w+)\}", group("launch", "en")[f"why_{name}"])
    shown = {one: values[one] for one in named}
    return Sentence(f"launch.why_{name}", **{one: v if isinstance(v, Sentence) else f"{v}" for one, v in shown.items()})
