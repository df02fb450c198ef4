"""What the page lets one take home: pictures, tables, the question as a file."""

from __future__ import annotations

import csv
import io
import json
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batchline import __version__, chart
from batchline.report import on_whole_batches
from batchline.web import reply
from batchline.web.question import CurveQuestion, architecture_of, curve_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TYPES", "config_record", "made", "question_toml"]

TYPES: Final = {
    "png": "image/png",
    "svg": "image/svg+xml",
    "html": "text/html; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "toml": "application/toml",
    "json": "application/json",
}
"""Kinds of file, and what they are."""

_DRAWING = threading.Lock()
"""The drawer is one engine for the whole process and takes tens of megabytes: one picture at a time."""


def made(kind: str, question: CurveQuestion, look: Mapping[str, Any]) -> bytes:
    """Make a file for a question.

    Parameters
    ----------
    kind : str
        Of `TYPES`.
    question : CurveQuestion
        What was asked.
    look : mapping
        `language`, `theme`, `batch_axis` and `measured`, as of `batchline.chart.six_plots`.

    Returns
    -------
    bytes
        Its content.
    """
    if kind == "toml":
        return question_toml(question).encode()
    if kind == "csv":
        return _table(curve_of(question).to_records()).encode()
    spec = chart.six_plots(on_whole_batches(curve_of(question)), **look)
    with _DRAWING, tempfile.TemporaryDirectory(prefix="batchline-") as folder:
        return chart.save(spec, Path(folder) / f"six.{kind}").read_bytes()


def _table(records: list[dict[str, Any]]) -> str:
    """Write records as CSV, with what is inside `predict` as columns of their own."""
    rows = []
    for record in records:
        predicted = record.pop("predict", None)
        terms = {} if predicted is None else {f"{name}_s": value for name, value in predicted.pop("terms").items()}
        shown = {} if predicted is None else {name: predicted[name] for name in ("low_s", "high_s", "bound_s")}
        rows.append({**record, **shown, **{f"term_{name}": value for name, value in terms.items()}})
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def question_toml(question: CurveQuestion) -> str:
    """Write a question as TOML, with the command that asks it.

    Parameters
    ----------
    question : CurveQuestion
        What was asked.

    Returns
    -------
    str
        Keys as the command line names its options; numbers in base units.

    Examples
    --------
    >>> print(question_toml(CurveQuestion(model="llama-3.1-8b", on="h100", step_limit="20ms")), end="")
    # A question to Batchline 0.1.0; quantities in base units: tokens, seconds, B/s, FLOP/s, USD/h.
    model = "llama-3.1-8b"
    on = "h100"
    step_limit = 0.02
    """
    given = question.model_dump(exclude_unset=True, exclude_none=True)
    lines = [f"# A question to Batchline {__version__}; quantities in base units: tokens, seconds, B/s, FLOP/s, USD/h."]
    config = given.pop("config", None)
    # A TOML basic string and a list of numbers are written as in JSON.
    lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in given.items()]
    if config is not None:
        lines.append(f"config_json = {json.dumps(json.dumps(config, ensure_ascii=False), ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def config_record(content: dict[str, Any]) -> dict[str, Any]:
    """Record of a config.json, as of a model of the catalogue.

    Parameters
    ----------
    content : dict
        The parsed config.json.

    Returns
    -------
    dict
        As `batchline show --json` prints it.
    """
    model = architecture_of(CurveQuestion(config=content, on="h100"))
    return reply.model_record(model, 32768, None, "bf16")
