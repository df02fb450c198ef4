"""Shell scripts: a flag a line with its reason, exported variables for secrets."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.launch.command import Launch
    from batchline.launch.flags import Flag

__all__ = ["script", "script_of"]


def script_of(made: Launch) -> str:
    """Write the script of one command.

    Parameters
    ----------
    made : Launch
        The command.

    Returns
    -------
    str
        Shell script with a comment for every flag.
    """
    lines = ["#!/usr/bin/env bash", f"# {made.head}"]
    lines += [f"# {made.comment(note)}" for note in made.notes]
    for name, why in made.secrets.items():
        lines.append(f"# {made.comment(Sentence('launch.reads_secret', name=name, why=why))}")
    lines.append("set -euo pipefail")
    if made.file:
        lines += [f"cat > {made.file} <<'YAML'", made.config.rstrip("\n"), "YAML"]
    width = max((len(_words(flag)) for flag in made.flags), default=0)
    lines.append("flags=(")
    lines += [f"  {_words(flag):<{width}}  # {made.comment(flag.reason)}" for flag in made.flags]
    if made.key_argument:
        lines.append(f"  {made.key_argument:<{width}}  # {made.comment(Sentence('launch.only_if_set'))}")
    lines += [")", f'exec {shlex.join(made.program)} "${{flags[@]}}"']
    return "\n".join(lines) + "\n"


def script(made: Sequence[Launch]) -> str:
    """Write one script for all commands of a deployment: with two, `start.sh prefill` and `start.sh decode`.

    Parameters
    ----------
    made : sequence of Launch
        What `starts` gave.

    Returns
    -------
    str
        Shell script.

    Examples
    --------
    >>> from batchline.launch import Settings, launch
    >>> made = [launch("sglang", Settings(model="org/model", role=role)) for role in ("prefill", "decode")]
    >>> script(made).splitlines()[1]
    '# start.sh prefill: computes prompts and sends their KV cache on'
    """
    if len(made) == 1:
        return script_of(made[0])
    lines = ["#!/usr/bin/env bash"]
    lines += [f"# start.sh {one.settings.role}: {one.comment(one.settings.task)}" for one in made]
    lines.append('case "${1:-}" in')
    for one in made:
        lines += [f"{one.settings.role})", *script_of(one).splitlines()[1:], ";;"]
    lines += ['*) echo "usage: $0 prefill | decode" >&2; exit 2 ;;', "esac"]
    return "\n".join(lines) + "\n"


def _words(flag: Flag) -> str:
    return flag.name if flag.value is None else f"{flag.name} {shlex.quote(str(flag.value))}"
