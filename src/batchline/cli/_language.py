"""The language in which a run speaks: `--language`, else BATCHLINE_LANGUAGE, else that of the terminal, else English.

It is kept in the root context, so a run has one, and two runs in one process do not share it. JSON and CSV are for
programs: neither their keys nor their values change with it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from batchline import strings
from batchline.strings import LANGUAGES, text

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = "language"


def _of_terminal() -> str:
    """Language that the environment asks for, if it is one of ours."""
    names = ("BATCHLINE_LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((value for name in names if (value := os.environ.get(name))), "")
    language = locale.partition("_")[0].partition(".")[0].casefold()
    return language if language in LANGUAGES else LANGUAGES[0]


def keep(context: click.Context, language: str) -> None:
    """Let a run speak a language."""
    context.find_root().ensure_object(dict)[_KEY] = language


def _kept(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        keep(context, value)


def option(**settings: Any) -> click.Option:
    """Make the option; it is read before the others, so that their errors speak the language too."""
    return click.Option(
        ["--language"],
        type=click.Choice(LANGUAGES),
        callback=_kept,
        expose_value=False,
        is_eager=True,
        help=text("help.language"),
        **settings,
    )


def spoken_by(command: click.Command) -> click.Command:
    """Let a command take the option too, as people write it at the end of a line."""
    if not any(parameter.name == _KEY for parameter in command.params):
        command.params.append(option())
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            spoken_by(inner)
    return command


def of(run: Mapping[str, str] | None) -> str:
    """Language of a run, given its root object."""
    return (run or {}).get(_KEY) or _of_terminal()


def current() -> str:
    """Language of the run at hand."""
    context = click.get_current_context(silent=True)
    return of(None if context is None else context.find_root().obj)


def say(key: str, **fields: str | float) -> str:
    """Text of the catalogue in the language of the run."""
    return text(key, current(), **fields)


def told(words: str) -> str:
    """Say a sentence of the library in the language of the run."""
    return strings.told(words, current())
