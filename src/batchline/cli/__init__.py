"""The command line: thin faces over the library's functions. A command is imported when it runs, not before."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from batchline import __version__
from batchline.cli import _language, _usage
from batchline.cli._spoken import SpokenGroup
from batchline.errors import BatchlineError
from batchline.strings import Sentence, said, text

__all__ = ["cli", "main"]

# command: module; `batchline --help` shows its line of the catalogue, so that help needs no other import
_COMMANDS = {
    "curve": "batchline.cli.curve",
    "memory": "batchline.cli.memory",
    "plan": "batchline.cli.plan",
    "price": "batchline.cli.price",
    "launch": "batchline.cli.launch",
    "simulate": "batchline.cli.simulate",
    "measure": "batchline.cli.measure",
    "calibrate": "batchline.cli.calibrate",
    "validate": "batchline.cli.validate",
    "report": "batchline.cli.report",
    "serve": "batchline.cli.serve",
    "list": "batchline.cli.listing",
    "show": "batchline.cli.show",
}


class _Commands(SpokenGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = importlib.import_module(_COMMANDS[name]).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{_COMMANDS[name]}.command is no command")
        return _language.spoken_by(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            from batchline.errors import UnknownNameError

            raise UnknownNameError("command", args[0], _COMMANDS, Sentence("error.see_commands"))
        return super().resolve_command(ctx, args)

    def line_of(self, name: str) -> str:
        return f"cli.about_{name}"


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    params=[_language.option(envvar="BATCHLINE_LANGUAGE")],
)
@click.version_option(__version__, "-V", "--version", prog_name="batchline", message="%(prog)s %(version)s")
def cli() -> None:
    """The roofline of batch size.

    \b
    batchline curve llama-3.1-70b --on 4xh100 --context 8k
    """


def main() -> NoReturn:
    """Run the command line; an error is one paragraph on stderr and exit code 2."""
    run: dict[str, str] = {}
    try:
        cli.main(standalone_mode=False, obj=run)
        sys.stdout.flush()
    except BatchlineError as error:
        label = click.style(text("cli.error", _language.of(run)), fg="red", bold=True)
        click.echo(f"{label} {said(error, _language.of(run))}", err=True, color=_colour())
        sys.exit(2)
    except click.ClickException as error:
        _usage.show(error, _language.of(run))
        sys.exit(2)
    except click.exceptions.Exit as request:
        sys.exit(request.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo(text("cli.stopped", _language.of(run)), err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of the pipe (head, less) has gone; nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(0)


def _colour() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")
