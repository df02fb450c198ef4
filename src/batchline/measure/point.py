"""One measured point, whatever measured it, and the names under which it is written down.

A decode step is `t_step_s`: no prompt is prefilled in it. What a client sees is `tpot_s`: (E2E - TTFT) / (output
tokens - 1) of a request, in which the prefill of other prompts lengthens some steps. They are two numbers and are
never taken for each other.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from batchline.errors import MeasurementError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from batchline.deployment import Deployment

__all__ = ["LITTLE", "REGIMES", "MeasuredPoint", "PointError", "decoding", "unlike"]

REGIMES: Final = {
    "decode": "decode steps alone: a fixed batch, no prompt prefilled meanwhile",
    "serving": "a closed loop or an arrival rate: prompts are prefilled while others decode",
    "end_to_end": "whole requests over their output tokens: prefill included",
    "throughput": "all requests at once, the batch left to the engine",
    "prefill": "prompts alone, no output",
}

# Beyond these a time is in another unit than seconds: no step takes a microsecond or a quarter of an hour.
LITTLE: Final = "batch = requests/s x (osl - 1) x mean TPOT (Little's law)"
"""How `decoding` is told among what was converted."""
_SHORTEST_S: Final = 1e-6
_LONGEST_S: Final = 1000.0

_TIMES: Final = ("t_step_s", "tpot_s", "tpot_mean_s", "itl_s")
_NOT_NEGATIVE: Final = ("cached_share", "spread", "failed", "mean_concurrency", "full_share", "ttft_s", "ttft_mean_s")


class PointError(MeasurementError):
    """A value that no point has.

    Parameters
    ----------
    file : str
        Where it stands; empty if nowhere.
    what : str
        What is wrong.
    allowed : str
        What would be accepted.
    """

    def __init__(self, file: str, what: str, allowed: str) -> None:
        self.what = what
        super().__init__(Sentence("result.at", where=file, problem=what) if file else what, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPoint:
    """One measured point. What is not known is None; nothing is filled in.

    Parameters
    ----------
    regime : str
        `decode`, `serving`, `end_to_end`, `throughput` or `prefill`.
    batch : float or None
        Sequences decoded together, mean [sequence].
    context : float or None
        Mean tokens of context of a sequence while it was measured [token].
    t_step_s : float or None
        Time of a decode step without prefill [s].
    tpot_s : float or None
        (E2E - TTFT) / (output tokens - 1), over requests; `statistic` says whether median or mean [s].
    tpot_mean_s : float or None
        Mean of it over requests, which Little's law needs [s].
    itl_s : float or None
        Gap between two stream events, median [s].
    ttft_s, ttft_mean_s : float or None
        Request sent to first token, `statistic` and mean [s].
    concurrency : float or None
        Requests in flight that the client asked for [request].
    isl, osl : float or None
        Mean input and output length of a request [token].
    requests_per_s, output_tokens_per_s : float or None
        Of the whole deployment, over the whole run [1/s].
    duration_s : float or None
        Length of the run [s].
    completed, failed : int or None
        Requests [request].
    samples : int or None
        Steps or repeats behind `t_step_s` [-].
    spread : float or None
        Relative standard deviation of them, or of the requests' TPOT [-].
    tokens_per_chunk : float or None
        Output tokens in one stream event [token].
    client_output_tokens, server_output_tokens : float or None
        Output tokens of a request by the client's tokenizer and by the server's `usage`, mean [token].
    cached_share : float or None
        Share of the prompt tokens that came from a prefix cache [-].
    mean_concurrency : float or None
        Requests in flight over the whole run, mean [request].
    full_share : float or None
        Share of the run with at least 0.9 of `concurrency` in flight [-].
    statistic : str
        `median` or `mean`: what `tpot_s` and `ttft_s` are.
    arrival : str
        `burst`, `closed_loop`, `rate` or empty.
    speculative : str
        Kind of speculative decoding, `none`, or empty when the source does not say.
    disaggregated : bool or None
        Whether prefill ran on other devices.
    engine, engine_version, model, accelerator, weights, kv : str
        As the source names them; empty when it does not.
    count, tp, pp, dp, ep : int or None
        Devices of the deployment and parallel degrees.
    tool, file, label, date : str
        What measured it, where it was read from, which row, when.
    converted : tuple of str
        What was computed on reading, one sentence each.

    Raises
    ------
    MeasurementError
        A value that cannot be measured: negative, not finite, or a time in another unit.

    Examples
    --------
    >>> MeasuredPoint(regime="decode", batch=8, context=1024, t_step_s=0.0387).step_s
    0.0387
    """

    regime: str
    batch: float | None = None
    context: float | None = None
    t_step_s: float | None = None
    tpot_s: float | None = None
    tpot_mean_s: float | None = None
    itl_s: float | None = None
    ttft_s: float | None = None
    ttft_mean_s: float | None = None
    concurrency: float | None = None
    isl: float | None = None
    osl: float | None = None
    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    duration_s: float | None = None
    completed: int | None = None
    failed: int | None = None
    samples: int | None = None
    spread: float | None = None
    tokens_per_chunk: float | None = None
    client_output_tokens: float | None = None
    server_output_tokens: float | None = None
    cached_share: float | None = None
    mean_concurrency: float | None = None
    full_share: float | None = None
    statistic: str = ""
    arrival: str = ""
    speculative: str = ""
    disaggregated: bool | None = None
    engine: str = ""
    engine_version: str = ""
    model: str = ""
    accelerator: str = ""
    weights: str = ""
    kv: str = ""
    count: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    tool: str = ""
    file: str = ""
    label: str = ""
    date: str = ""
    converted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.regime not in REGIMES:
            unknown = Sentence("result.regime", given=repr(self.regime))
            raise PointError(self.file, unknown, Sentence("result.regimes", names=", ".join(REGIMES)))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self._check(field.name, float(value))

    def _check(self, name: str, value: float) -> None:
        least = 0.0 if name in _NOT_NEGATIVE else math.nextafter(0.0, 1.0)
        if not math.isfinite(value) or value < least:
            allowed = Sentence("result.not_negative" if least == 0 else "result.more_than_0")
            raise PointError(self.file, Sentence("result.is", name=name, given=f"{value:g}"), allowed)
        if name in _TIMES and not _SHORTEST_S <= value <= _LONGEST_S:
            allowed = Sentence("result.a_step_takes", shortest=f"{_SHORTEST_S:g}", longest=f"{_LONGEST_S:g}")
            raise PointError(self.file, Sentence("result.is_seconds", name=name, given=f"{value:g}"), allowed)

    @property
    def step_s(self) -> float | None:
        """Time per token of a user: of a clean decode step when there is one, otherwise TPOT [s]."""
        return self.t_step_s if self.t_step_s is not None else self.tpot_s

    @property
    def name(self) -> str:
        """Where the point comes from, for people."""
        return ": ".join(part for part in (self.file or self.tool, self.label) if part)

    def to_dict(self) -> dict[str, Any]:
        """Values that are known, by the names of docs/nomenclature.md.

        Returns
        -------
        dict
            Ready for JSON.

        Examples
        --------
        >>> MeasuredPoint(regime="decode", batch=8, t_step_s=0.03).to_dict()
        {'regime': 'decode', 'batch': 8, 't_step_s': 0.03}
        """
        values = dataclasses.asdict(self)
        values["converted"] = list(self.converted)
        return {name: value for name, value in values.items() if value not in (None, "", [])}


def decoding(requests_per_s: float, osl: float, tpot_mean_s: float | None) -> float | None:
    """Sequences decoded together on average in a served run, by Little's law.

    Parameters
    ----------
    requests_per_s : float
        Requests served [1/s].
    osl : float
        Mean output length [token]; the first token comes out of the prefill.
    tpot_mean_s : float or None
        Mean time per output token [s].

    Returns
    -------
    float or None
        Sequences [sequence]; None where nothing was decoded, or it is not known for how long.

    Examples
    --------
    >>> decoding(2.0, 101, 0.04)
    8.0
    """
    return requests_per_s * max(osl - 1, 0) * (tpot_mean_s or 0.0) or None


def unlike(point: MeasuredPoint, deployment: Deployment) -> str:
    """Say in what a point cannot be of a deployment.

    Parameters
    ----------
    point : MeasuredPoint
        What was measured.
    deployment : Deployment
        What it is said to be of.

    Returns
    -------
    str
        The reason: prefill in its steps, or another layout; empty if there is none.
    """
    if point.regime not in ("decode", "serving"):
        return Sentence("calibrate.regime", regime=point.regime)
    for name in ("count", "tp", "pp", "dp"):
        own = getattr(point, name)
        if own is not None and own != getattr(deployment, name):
            return Sentence("calibrate.layout", name=name, own=f"{own}", stated=f"{getattr(deployment, name)}")
    return ""
