"""What is asked of the planner: the requests, the promises, and what may be used for it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import goodput
from batchline.errors import ConfigError, InputError, UnknownNameError
from batchline.goodput import Promise
from batchline.serving import NETWORK_BANDWIDTH
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchline.workload import Traffic

__all__ = ["BASES", "BUDGETS", "Question", "load_question"]

BASES = ("rental", "contract", "neocloud", "hyperscaler")
"""What a device costs: rented on demand, by contract of years, or owned by a small or a large cloud."""

BUDGETS = (2048, 4096, 8192, 16384)
"""Token budgets of a step that are considered [token]."""

_TABLES = ("available", "prices", "slower")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be served, to whom, and what may be used for it.

    Parameters
    ----------
    model : str
        Catalogue name or path.
    isl, osl : float
        Mean input and output length [token].
    rate : float or None
        Requests that arrive [1/s].
    users : float or None
        People who wait for an answer and then think; instead of `rate` [-].
    think_s : float
        Time that a person takes before the next request [s].
    ttft, tpot, itl, e2e : str or None
        Promises: time to first token, per output token, longest gap, whole request; like "2s" or "p95:2s".
    headroom : float
        Share of what the deployment could carry that is kept free [-].
    confidence : float or None
        Choose so that all promises hold with this chance, given how far predictions miss; None takes predictions as
        they are [-].
    prefix_hit_rate : float
        Share of prompt tokens found in the prefix cache [-].
    arrival_scv, length_scv : float
        Squared coefficients of variation of the gaps between arrivals (1: random) and of output lengths [-].
    max_model_len : int or None
        Longest request; by default the mean one [token].
    mean_context : float or None
        Mean tokens of a sequence while it decodes, where lengths vary; by default isl + osl / 2 [token].
    accelerators : tuple of str
        Names; empty for all that have a price.
    available : mapping of str to int
        Devices that there are of an accelerator; those not named have no limit [device].
    prices : mapping of str to float
        Prices of one's own, by name [USD/h].
    slower : mapping of str to float
        Times over the predicted ones on an accelerator, by name, as one has measured them oneself [-].
    basis : str
        Which catalogue price counts where none is given: one of `BASES`.
    weights, kv, engines : tuple of str
        Formats and engines to consider; empty for the usual ones. The weights "checkpoint" are its own format.
    max_devices : int
        Most devices of one replica [device].
    max_batch : int
        Most sequences of one data-parallel rank [sequence].
    budgets : tuple of int
        Chunked-prefill token budgets to consider [token].
    disaggregation : bool
        Whether prompts and decoding may have machines of their own.
    transfer : float
        Link over which a prefill replica sends KV caches [B/s].
    pue : float
        Power of the building over power of the machines [-].
    """

    model: str
    isl: float
    osl: float
    rate: float | None = None
    users: float | None = None
    think_s: float = 0.0
    ttft: str | None = None
    tpot: str | None = None
    itl: str | None = None
    e2e: str | None = None
    headroom: float = 0.1
    confidence: float | None = None
    prefix_hit_rate: float = 0.0
    arrival_scv: float = 1.0
    length_scv: float = 0.0
    max_model_len: int | None = None
    mean_context: float | None = None
    accelerators: tuple[str, ...] = ()
    available: Mapping[str, int] = field(default_factory=dict, hash=False)
    prices: Mapping[str, float] = field(default_factory=dict, hash=False)
    slower: Mapping[str, float] = field(default_factory=dict, hash=False)
    basis: str = "rental"
    weights: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    max_devices: int = 64
    max_batch: int = 1024
    budgets: tuple[int, ...] = BUDGETS
    disaggregation: bool = True
    transfer: float = NETWORK_BANDWIDTH
    pue: float = 1.0

    def __post_init__(self) -> None:
        for name in ("isl", "osl"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 1):
                raise InputError(
                    Sentence("error.request_from_1", name=name, given=f"{getattr(self, name)}"),
                    "",
                    Sentence("error.give_option", option=f"--{name}"),
                )
        if self.rate is not None and self.users is not None:
            raise InputError(Sentence("error.rate_and_users"), "", Sentence("error.give_rate_or_clients"))
        for name in ("rate", "users"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InputError(Sentence("error.more_than_0", name=name, given=f"{value}"))
        for name, low, high in (("headroom", 0.0, 1.0), ("prefix_hit_rate", 0.0, 1.0)):
            if not low <= getattr(self, name) < high:
                raise InputError(Sentence("error.share_below_1", name=name, given=f"{getattr(self, name)}"))
        if self.basis not in BASES:
            raise UnknownNameError("price basis", self.basis, BASES)
        if self.confidence is not None and not 0.5 <= self.confidence < 1:
            raise InputError(
                Sentence("error.confidence_range", given=f"{self.confidence:g}"), "", Sentence("error.write_confidence")
            )
        for name, factor in self.slower.items():
            if not factor > 0:
                raise InputError(Sentence("error.slower_ratio", name=name, given=f"{factor}"))
        if not self.transfer > 0:
            raise InputError(
                Sentence("error.transfer_above_0", given=f"{self.transfer}"), "", Sentence("error.write_transfer")
            )
        if not self.budgets or min(self.budgets) < 1 or self.max_batch < 1 or self.max_devices < 1:
            raise InputError(Sentence("error.plan_limits"))
        _ = self.promises  # refuses what cannot be read

    @property
    def promises(self) -> dict[str, Promise]:
        """What is promised, by name."""
        given = {name: getattr(self, name) for name in goodput.PROMISES}
        return {name: Promise.parse(text) for name, text in given.items() if text is not None}

    @property
    def context(self) -> float:
        """Mean tokens of context of a sequence while it decodes [token]."""
        return self.isl + self.osl / 2 if self.mean_context is None else self.mean_context

    @property
    def longest(self) -> int:
        """Longest request [token]."""
        return self.max_model_len or math.ceil(self.isl + self.osl)

    @classmethod
    def of_traffic(cls, model: str, traffic: Traffic, **options: Any) -> Question:
        """Ask for a model under the traffic of a trace: its lengths, their spread, and its rate.

        Parameters
        ----------
        model : str
            Catalogue name or path.
        traffic : Traffic
            Requests with their arrivals, as `batchline.workload.trace` reads them.
        **options
            The rest of the question; what is given here wins.

        Returns
        -------
        Question
            With the mean context that a decoding sequence has (long answers stay longer), and with the spread of
            prompts counted as spread of arrivals, which lengthens the same queue (Kingman).

        Raises
        ------
        InputError
            Fewer than two requests, or all at once.
        """
        count, sums, last, gaps = 0, np.zeros(5), 0.0, np.zeros(2)
        longest = 0
        for chunk in traffic.chunks():
            isl, osl = chunk.isl.astype(float), np.maximum(chunk.osl.astype(float), 1.0)
            steps = np.diff(chunk.arrival_s, prepend=last)[0 if count else 1 :]
            gaps += (steps.sum(), (steps * steps).sum())
            sums += (isl.sum(), (isl * isl).sum(), osl.sum(), (osl * osl).sum(), (osl * (isl + osl / 2)).sum())
            count, last = count + len(chunk), float(chunk.arrival_s[-1])
            longest = max(longest, int((chunk.isl + chunk.osl).max()))
        if count < 2 or gaps[0] <= 0:
            raise InputError(
                Sentence("error.no_rate_of", name=traffic.name or Sentence("error.the_traffic")),
                Sentence("error.two_requests"),
            )
        isl, isl2, osl, osl2 = sums[:4] / count
        gap, gap2 = gaps / (count - 1)
        found = {
            "isl": max(1.0, float(isl)),
            "osl": float(osl),
            "rate": float(1.0 / gap),
            "mean_context": float(sums[4] / sums[2]),
            "length_scv": max(0.0, float(osl2 / osl**2 - 1.0)),
            "arrival_scv": max(0.0, float(gap2 / gap**2 - 1.0)) + max(0.0, float(isl2 / max(isl, 1e-9) ** 2 - 1.0)),
            "max_model_len": longest,
        }
        if options.get("users") is not None:
            found.pop("rate")
        return cls(model=model, **(found | options))

    def to_dict(self) -> dict[str, Any]:
        """What differs from the defaults, for a file.

        Returns
        -------
        dict
            Names of this class and their values.
        """
        found = {}
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            default = entry.default if entry.default is not dataclasses.MISSING else None
            if entry.name in _TABLES:
                default = {}
            if value != default:
                found[entry.name] = dict(value) if isinstance(value, dict) else value
        return found

    def to_toml(self) -> str:
        """Write the question as a TOML file that `from_toml` reads.

        Returns
        -------
        str
            TOML.

        Examples
        --------
        >>> q = Question(model="llama-3.1-8b", isl=1024, osl=256, rate=2.0, tpot="p99:40ms")
        >>> Question.from_toml(q.to_toml()) == q
        True
        """
        lines = ["# A question for `batchline plan`."]
        tables = []
        for name, value in self.to_dict().items():
            if isinstance(value, dict):
                tables += ["", f"[{name}]", *(f"{_toml(key)} = {_toml(item)}" for key, item in value.items())]
            else:
                lines.append(f"{name} = {_toml(value)}")
        return "\n".join([*lines, *tables]) + "\n"

    @classmethod
    def from_toml(cls, text: str, source: str = "the file") -> Question:
        """Read a question.

        Parameters
        ----------
        text : str
            TOML.
        source : str
            What to call it in errors.

        Returns
        -------
        Question
            As it was saved.

        Raises
        ------
        ConfigError
            It is no TOML, or has keys that a question does not have.
        """
        import tomllib  # noqa: PLC0415  (files only)

        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                Sentence("error.plan_no_toml", source=source, reason=f"{error}"), "", Sentence("error.plan_saves")
            ) from None
        known = {entry.name for entry in dataclasses.fields(cls)}
        for name in data:
            if name not in known:
                raise UnknownNameError(
                    Sentence("error.kind_key_of", source=source), name, known, Sentence("error.plan_saves")
                )
        for name in ("accelerators", "weights", "kv", "engines", "budgets"):
            if name in data:
                data[name] = tuple(data[name]) if isinstance(data[name], list) else (data[name],)
        try:
            return cls(**data)
        except TypeError as error:
            raise ConfigError(
                Sentence("error.no_question", source=source, reason=f"{error}"), Sentence("error.question_needs")
            ) from None


def _toml(value: Any) -> str:
    import json  # noqa: PLC0415

    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def load_question(path: str | Path) -> Question:
    """Read a question from a TOML file.

    Parameters
    ----------
    path : str or Path
        File that `Question.to_toml` wrote.

    Returns
    -------
    Question
        As it was saved.

    Raises
    ------
    ConfigError
        There is no such file, or it is no question.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or f"{error}"
        raise ConfigError(
            Sentence("error.unreadable", path=f"{path}", reason=reason), "", Sentence("error.plan_saves_such")
        ) from None
    return Question.from_toml(text, str(path))
