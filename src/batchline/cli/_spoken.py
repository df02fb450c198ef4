"""Commands whose help speaks the language of the run, from the catalogue of texts."""

from __future__ import annotations

import copy
import inspect
import itertools
from typing import TYPE_CHECKING

import click

from batchline.cli._language import current, keep, say
from batchline.strings import LANGUAGES, group

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Spoken", "SpokenGroup"]

_WIDE = 0.75
"""Share of a terminal's width at which Korean text is wrapped: click counts letters, and Hangul takes two columns."""


class _Help(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note the language first, so that help speaks it wherever on the line it is asked for."""
        for option, value in itertools.pairwise(args):
            if option == "--language" and value in LANGUAGES:
                keep(ctx, value)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if current() == "ko":
            formatter.width = int(formatter.width * _WIDE)
        super().format_help(ctx, formatter)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)), prefix=say("help.usage"))

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does, and the examples of its docstring."""
        _, mark, examples = inspect.cleandoc(self.help or "").partition("\b")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{say(f'help.command_{self._key(ctx)}')}{mark and chr(10) * 2}{mark}{examples}")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if records := list(self._records(ctx)):
            with formatter.section(say("help.options")):
                formatter.write_dl(records)

    def _records(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        # click keeps only the letters of a help text, so the key is found by the English that `text` gave it.
        keys = {said: name for name, said in group("help", "en").items()}
        for parameter in self.get_params(ctx):
            if not isinstance(parameter, click.Option):
                continue
            spoken = copy.copy(parameter)
            own = {"help": "show_help", "version": "show_version"}.get(str(spoken.name))
            if (key := own or keys.get(spoken.help or "")) is not None:
                spoken.help = say(f"help.{key}")
            if (record := spoken.get_help_record(ctx)) is not None:
                name, words = record
                for word in ("default", "required"):
                    words = words.replace(f"[{word}", f"[{say(f'help.{word}')}")
                yield name, words

    def _key(self, ctx: click.Context) -> str:
        names: list[str] = []
        at: click.Context | None = ctx
        while at is not None and at.parent is not None:
            names.insert(0, str(at.command.name))
            at = at.parent
        return "_".join(names) or {"cli": "batchline"}.get(str(self.name), str(self.name))


class Spoken(_Help):
    """A command whose help speaks the language of the run."""


class SpokenGroup(_Help, click.Group):
    """A group of them."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the commands."""
        _Help.format_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command."""
        with formatter.section(say("help.commands")):
            formatter.write_dl([(name, say(self.line_of(name))) for name in self.list_commands(ctx)])

    def line_of(self, name: str) -> str:
        """Key of the line of a command."""
        return f"help.command_{self.name}_{name}"
