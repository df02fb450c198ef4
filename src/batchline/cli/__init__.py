"""The command line: thin faces over the library's functions. A command is imported when it runs, not before."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from batchline import __version__
from batchline.errors import BatchlineError

__all__ = ["cli", "main"]

# command: module, the line that `batchline --help` shows, so that help needs no other import
_COMMANDS = {
    "curve": ("batchline.cli.curve", "Which batch to run, what a token costs, how long it takes, and why."),
    "memory": ("batchline.cli.memory", "What the engine's start-up log will say about memory, and what that means."),
    "plan": ("batchline.cli.plan", "The cheapest deployments that keep your promises."),
    "price": ("batchline.cli.price", "A price sheet from cost, beside the market."),
    "launch": ("batchline.cli.launch", "The command that starts the engine, each flag with its reason."),
    "simulate": ("batchline.cli.simulate", "Traffic through a continuous-batching scheduler, event by event."),
    "measure": ("batchline.cli.measure", "Measure a live server, or read the result files you have."),
    "calibrate": ("batchline.cli.calibrate", "Fit the prediction to your own measurements."),
    "validate": ("batchline.cli.validate", "Predicted against measured, on your table or the public ones."),
    "report": ("batchline.cli.report", "One page for a question: the answer and everything behind it."),
    "serve": ("batchline.cli.serve", "The page: six plots to drag, in your browser."),
    "list": ("batchline.cli.listing", "Show the catalogue: models, accelerators, prices."),
    "show": ("batchline.cli.show", "Show one model, config.json or accelerator, with its sources."),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = importlib.import_module(_COMMANDS[name][0]).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{_COMMANDS[name][0]}.command is no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            from batchline.errors import UnknownNameError

            raise UnknownNameError("command", args[0], _COMMANDS, "batchline --help shows all.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", prog_name="batchline", message="%(prog)s %(version)s")
def cli() -> None:
    """The roofline of batch size.

    Give it a model and an accelerator: it says which batch to run, what a million tokens then cost, how long a token
    takes, and what bounds it.

    \b
    batchline curve llama-3.1-70b --on 4xh100 --context 8k
    """


def main() -> NoReturn:
    """Run the command line; an error is one paragraph on stderr and exit code 2."""
    try:
        cli.main(standalone_mode=False)
        sys.stdout.flush()
    except BatchlineError as error:
        click.echo(f"{click.style('Error:', fg='red', bold=True)} {error}", err=True, color=_colour())
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.exceptions.Exit as request:
        sys.exit(request.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Stopped.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of the pipe (head, less) has gone; nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    sys.exit(0)


def _colour() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")
