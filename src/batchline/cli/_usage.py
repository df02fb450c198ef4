"""What click says of a command line that it cannot read, in the language of the run.

Click's sentences are fixed; those that a line of ours can get stand in the catalogue as click writes them.
"""

from __future__ import annotations

import re
from functools import cache

import click

from batchline.strings import group, text

__all__ = ["show", "told"]


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """A pattern for each sentence, with its fields."""
    return {
        key: re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(sentence)), re.DOTALL)
        for key, sentence in group("usage", "en").items()
    }


def told(sentence: str, language: str) -> str:
    """Say a sentence of click's.

    Parameters
    ----------
    sentence : str
        As click writes it.
    language : str
        "en" or "ko".

    Returns
    -------
    str
        The same in that language; a sentence that the catalogue does not have stays English.

    Examples
    --------
    >>> told("Invalid value for '--batch': '2x' is not a valid integer.", "ko")
    "'--batch': '2x': 정수가 아닙니다."
    """
    for key, pattern in _patterns().items():
        if found := pattern.fullmatch(sentence):
            fields = {name: told(field, language) for name, field in found.groupdict().items()}
            return text(f"usage.{key}", language, **fields)
    return sentence


def show(error: click.ClickException, language: str) -> None:
    """Print usage, where to find help, and what is wrong."""
    if language == "en" or isinstance(error, click.exceptions.NoArgsIsHelpError):  # help speaks it by itself
        error.show()
        return
    context = getattr(error, "ctx", None)
    if context is not None:
        with context.scope(cleanup=False):
            click.echo(context.get_usage(), err=True)
        option = max(context.help_option_names, key=len)
        click.echo(f"{text('usage.try_help', language, command=context.command_path, option=option)}\n", err=True)
    click.echo(f"{text('cli.error', language)} {told(error.format_message(), language)}", err=True)
