"""Printing: tables for people, JSON and CSV for programs. stdout carries the answer and nothing else."""

from __future__ import annotations

import csv
import json
import math
import sys
from typing import TYPE_CHECKING, Any

import click

from batchline.cli._language import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console
    from rich.table import Table


def print_json(value: Any) -> None:
    """Print JSON; what is not finite is null, as JSON has no infinity."""
    click.echo(json.dumps(_finite(value), indent=2, ensure_ascii=False, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def print_csv(records: Sequence[Mapping[str, Any]]) -> None:
    """Print records as CSV with a header."""
    if not records:
        return
    writer = csv.DictWriter(sys.stdout, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)


def console() -> Console:
    """Console for stdout; plain and wide when it is a pipe."""
    from rich.console import Console

    # A pipe has no width: a table must not be cut at 80 columns there.
    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 200)


def table(columns: Iterable[tuple[str, str]], rows: Iterable[Sequence[str]], styles: Iterable[str] = ()) -> Table:
    """Make a table; columns are (heading, "left" or "right")."""
    from rich.table import Table

    headings = list(columns)
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    made.show_header = any(heading.strip() for heading, _ in headings)
    for heading, justify in headings:
        made.add_column(heading, justify="left" if justify == "left" else "right", no_wrap=justify != "left")
    row_styles = list(styles)
    for index, row in enumerate(rows):
        made.add_row(*row, style=row_styles[index] if index < len(row_styles) else "")
    return made


def warn(text: str) -> None:
    """Print a warning on stderr."""
    click.echo(f"{click.style(say('cli.warning'), fg='yellow')} {text}", err=True)
