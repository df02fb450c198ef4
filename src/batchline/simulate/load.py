"""Which requests are sent: a trace, a pattern of arrivals, or people who wait for an answer; in the words of a user."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchline import units, workload
from batchline.errors import InputError, UnknownNameError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from batchline.workload import Arrivals, Lengths, Traffic

__all__ = ["ENOUGH", "Load", "parse_columns"]

ENOUGH = 2000
"""Requests of a pattern, unless asked otherwise [request]."""

_DAY_S = 86400.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """Requests, as they are asked for.

    Parameters
    ----------
    trace : str or Path, optional
        Requests of a .csv, .jsonl or .parquet file, instead of a pattern.
    columns : mapping, optional
        Names of its columns, where they are not known.
    time_unit : str, optional
        Unit of its arrivals.
    repair : bool
        Whether rows that cannot be are left out and the rest is sorted, instead of refusing the trace.
    rate : float, optional
        Requests that arrive [1/s]; a trace is scaled to it.
    arrivals : str
        "poisson", "metronome", "gamma:CV", "burst:SIZE" or "diurnal:PEAK".
    users : int, optional
        People who wait for an answer and then think, instead of a rate.
    think_s : float
        How long they think, mean [s].
    isl, osl : int, optional
        Tokens of prompts and answers, mean [token].
    spread : float
        Log-normal spread of both lengths [-]; 0: all alike.
    lengths : str or Path, optional
        Trace whose lengths are drawn, instead of `isl` and `osl`.
    scale_lengths : float
        Factor on all lengths [-].
    shared_prefix : str, optional
        "N:TOKENS": every prompt begins with one of N system prompts of so many tokens.
    count : int, optional
        How many [request]; default the trace, or 2,000.
    duration_s : float, optional
        For how long they arrive, instead of a number [s].
    seed : int
        The same seed makes the same requests.

    Examples
    --------
    >>> Load(rate=20, isl=1000, osl=200, arrivals="burst:8").traffic().name
    'Bursts 20/s'
    """

    trace: str | Path | None = None
    columns: Mapping[str, str] | None = None
    time_unit: str | None = None
    repair: bool = False
    rate: float | None = None
    arrivals: str = "poisson"
    users: int | None = None
    think_s: float = 0.0
    isl: int | None = None
    osl: int | None = None
    spread: float = 0.0
    lengths: str | Path | None = None
    scale_lengths: float = 1.0
    shared_prefix: str | None = None
    count: int | None = None
    duration_s: float | None = None
    seed: int = 0

    def traffic(self) -> Traffic:
        """Make the requests.

        Returns
        -------
        Traffic
            For `simulate`.

        Raises
        ------
        InputError
            Something is missing, or makes no sense.
        ConfigError
            The trace cannot be read.
        UnknownNameError
            No such pattern, column or unit.
        """
        if self.trace:
            return self._traced()
        if self.users:
            traffic = workload.closed_loop(
                self.users,
                *self._lengths(),
                count=self.count or max(ENOUGH, 20 * self.users),
                think_s=self.think_s,
                seed=self.seed,
            )
        elif self.rate:
            traffic = workload.synthetic(
                _pattern(self.arrivals, self.rate, self.duration_s),
                *self._lengths(),
                count=self.count or (None if self.duration_s else ENOUGH),
                duration_s=self.duration_s,
                seed=self.seed,
                shared_prefix=_system_prompts(self.shared_prefix),
            )
        else:
            raise InputError(Sentence("error.which_traffic"), "", Sentence("error.give_traffic"))
        return workload.rescaled(traffic, isl=self.scale_lengths, osl=self.scale_lengths)

    def _traced(self) -> Traffic:
        traffic = workload.trace(self.trace or "", columns=self.columns, time_unit=self.time_unit, repair=self.repair)
        factor = 1.0
        if self.rate:
            requests = workload.whole(traffic)
            spans = float(requests.arrival_s[-1] - requests.arrival_s[0])
            if spans <= 0:
                raise InputError(Sentence("error.all_at_once"))
            factor = self.rate / ((len(requests) - 1) / spans)
        traffic = workload.rescaled(traffic, rate=factor, isl=self.scale_lengths, osl=self.scale_lengths)
        return workload.limited(traffic, self.count) if self.count else traffic

    def _lengths(self) -> tuple[Lengths, Lengths]:
        if self.lengths:
            isl, osl = workload.read_lengths(workload.trace(self.lengths, repair=self.repair))
            return workload.Empirical(isl), workload.Empirical(osl)
        if not self.isl or not self.osl:
            raise InputError(Sentence("error.which_lengths"), "", Sentence("error.give_traffic_lengths"))
        if self.spread == 0:
            return workload.Fixed(self.isl), workload.Fixed(self.osl)
        shift = math.exp(self.spread**2 / 2)  # a log-normal's mean over its median
        return workload.LogNormal(self.isl / shift, self.spread), workload.LogNormal(self.osl / shift, self.spread)


def parse_columns(words: str) -> dict[str, str]:
    """Read how the columns of a trace are called.

    Parameters
    ----------
    words : str
        Like "arrival=when,isl=in,osl=out".

    Returns
    -------
    dict
        What a column holds -> its name.

    Raises
    ------
    InputError
        A part has no name.

    Examples
    --------
    >>> parse_columns("arrival=when, isl=in")
    {'arrival': 'when', 'isl': 'in'}
    """
    parts = [part.partition("=") for part in words.split(",")]
    if not all(name.strip() and equals and text.strip() for name, equals, text in parts):
        raise InputError(Sentence("error.no_columns", given=repr(words)))
    return {name.strip(): text.strip() for name, _, text in parts}


def _pattern(text: str, rate: float, duration_s: float | None) -> Arrivals:
    name, _, figure = text.partition(":")
    try:
        value = float(figure) if figure else None
    except ValueError:
        raise InputError(Sentence("error.pattern_figure", given=text, figure=repr(figure))) from None
    period = min(duration_s or _DAY_S, _DAY_S)
    made: dict[str, Callable[[], Arrivals]] = {
        "poisson": lambda: workload.Poisson(rate),
        "metronome": lambda: workload.Metronome(rate),
        "gamma": lambda: workload.GammaGaps(rate, 2.0 if value is None else value),
        "burst": lambda: workload.Bursts(rate, 8 if value is None else int(value)),
        "diurnal": lambda: workload.Diurnal(rate, 1.8 if value is None else value, period),
    }
    if name not in made:
        raise UnknownNameError("pattern of arrivals", name, made)
    return made[name]()


def _system_prompts(text: str | None) -> tuple[int, int]:
    if not text:
        return 0, 0
    groups, _, tokens = text.partition(":")
    if not groups.isdigit() or not tokens:
        raise InputError(Sentence("error.no_shared_prefix", given=text))
    return int(groups), units.parse_tokens(tokens)
