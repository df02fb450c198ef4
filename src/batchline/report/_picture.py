"""A chart as a picture of a report."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from batchline import chart

__all__ = ["svg"]


def svg(spec: Any) -> str:
    """Draw a specification."""
    with tempfile.TemporaryDirectory(prefix="batchline-") as folder:
        return chart.save(spec, Path(folder) / "chart.svg").read_text(encoding="utf-8")
