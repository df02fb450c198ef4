"""How a result shows itself at the end of a notebook's cell: as `batchline.report` draws it."""

from __future__ import annotations

import importlib

__all__ = ["Shown"]


class Shown:
    """A result that a notebook draws; needs no notebook and no package of its own.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> from batchline.sweep import curve
    >>> curve(Deployment.of("llama-3.1-8b", "h100"), 4096)._repr_html_().startswith('<div class="batchline">')
    True
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        # The report stands floors above every result: it is looked up when a notebook asks.
        return str(importlib.import_module("batchline.report").as_html(self))
