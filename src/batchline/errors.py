"""Every error that Batchline raises on purpose.

    BatchlineError                      anything below; the command line prints it and exits with 2
    ├── UnknownNameError                no such model, accelerator, engine, format, key
    ├── UnitError                       a quantity that cannot be read: "3.3 TB/x"
    ├── InputError                      a value outside what is allowed: batch 0, a negative price
    ├── ConfigError                     a file that is not what it should be: not JSON, not a config
    │   └── UnsupportedArchitectureError   a config of a family, or with a key, that the parser does not know
    ├── DoesNotFitError                 the weights do not fit; says how many bytes are missing and what would fit
    ├── MissingFactError                a price or a rate that the catalogue does not have and nobody gave
    └── MeasurementError                a result file, an endpoint or a metric that cannot be used
        └── EndpointError                  (in measure.endpoint) a live server that does not answer as it should

A message has three parts: what was given, what is allowed, what to do next. They are joined here and nowhere else.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BatchlineError",
    "ConfigError",
    "DoesNotFitError",
    "InputError",
    "MeasurementError",
    "MissingFactError",
    "UnitError",
    "UnknownNameError",
    "UnsupportedArchitectureError",
    "closest",
]


class BatchlineError(Exception):
    """What was given, what is allowed, and what to do next.

    Parameters
    ----------
    problem : str
        What was given and why it cannot be used.
    allowed : str
        What would be accepted.
    hint : str
        What to do next.

    Examples
    --------
    >>> print(BatchlineError("Batch 0 is no batch.", "A batch has 1 or more sequences.", "Try --batch 1..512."))
    Batch 0 is no batch. A batch has 1 or more sequences. Try --batch 1..512.
    """

    def __init__(self, problem: str, allowed: str = "", hint: str = "") -> None:
        self.problem = problem
        self.allowed = allowed
        self.hint = hint
        super().__init__(" ".join(part for part in (problem, allowed, hint) if part))


class UnknownNameError(BatchlineError):
    """A name that the catalogue does not hold.

    Parameters
    ----------
    kind : str
        What the name should have been: "model", "accelerator", "engine".
    given : str
        The name as it was typed.
    names : iterable of str
        All names of that kind; the closest ones are shown.
    hint : str
        What to do next.

    Examples
    --------
    >>> print(UnknownNameError("accelerator", "h10", ["h100", "h100-pcie", "l4"], "See batchline list."))
    There is no accelerator 'h10'. Closest: h100, h100-pcie. See batchline list.
    """

    def __init__(self, kind: str, given: str, names: Iterable[str], hint: str = "") -> None:
        names = list(names)
        near = closest(given, names)
        self.kind = kind
        self.given = given
        self.closest = near
        self.known = names if len(names) <= 12 else []
        if near:
            allowed = f"Closest: {', '.join(near)}."
        elif self.known:
            allowed = f"Known: {', '.join(names)}."
        else:
            allowed = ""
        super().__init__(f"There is no {kind} {given!r}.", allowed, hint)


class UnitError(BatchlineError):
    """A quantity whose number or unit cannot be read."""


class InputError(BatchlineError):
    """A value outside what is allowed."""


class ConfigError(BatchlineError):
    """A file that cannot be read as what it should be."""


class UnsupportedArchitectureError(ConfigError):
    """A model family, or a key of one, that the parser does not know. It is refused, never guessed."""


class DoesNotFitError(BatchlineError):
    """A model that does not fit.

    Parameters
    ----------
    problem, allowed, hint : str
        As in `BatchlineError`.
    missing_bytes : float
        Bytes missing on each device [B].
    layout : dict or None
        Tensor and pipeline degrees (`tp`, `pp`) of the fewest such devices that hold the weights and one sequence;
        None if none was found.
    """

    def __init__(
        self,
        problem: str,
        allowed: str = "",
        hint: str = "",
        *,
        missing_bytes: float,
        layout: dict[str, int] | None = None,
    ) -> None:
        self.missing_bytes = missing_bytes
        self.layout = layout
        super().__init__(problem, allowed, hint)

    @property
    def smallest_count(self) -> int | None:
        """Devices of that layout [device]."""
        return None if self.layout is None else self.layout["tp"] * self.layout["pp"]


class MissingFactError(BatchlineError):
    """A price or a rate that the catalogue does not have and that was not given."""


class MeasurementError(BatchlineError):
    """A measurement that cannot be read, or an endpoint that does not answer as it should."""


def closest(given: str, names: Iterable[str], limit: int = 5) -> list[str]:
    """Names that look like the one given, best first.

    Parameters
    ----------
    given : str
        What was typed.
    names : iterable of str
        What there is.
    limit : int
        How many at the most [-].

    Returns
    -------
    list of str
        Names that contain what was given come first, then those that are spelled alike.

    Examples
    --------
    >>> closest("lama-3.1-70b", ["llama-3.1-70b", "llama-3.1-8b", "gpt2"])
    ['llama-3.1-70b', 'llama-3.1-8b']
    """
    names = list(dict.fromkeys(names))
    typed = given.casefold()
    inside = [name for name in names if typed and typed in name.casefold()]
    folded = {name.casefold(): name for name in names}
    alike = [folded[key] for key in difflib.get_close_matches(typed, folded, n=limit, cutoff=0.6)]
    return list(dict.fromkeys([*inside, *alike]))[:limit]
