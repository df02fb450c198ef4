"""Predictions against measurements: predict each row of a table of served points, and count how far off it is.

`batchline.served_point` reads a table; `predict` gives a prediction with its interval for each point, `summary` the
errors and the coverage. The same functions serve `batchline validate`, the fit of the priors and the published tables.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import prior, readings, serving, step
from batchline.errors import BatchlineError
from batchline.served_point import STATIC, Point

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["Outcome", "beside", "errors_of", "kinds_of_reasons", "predict", "summary"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Prediction of one row, beside what was measured.

    Parameters
    ----------
    row : int
        Line in the file.
    point : Point or None
        What was served; None for a refused row.
    refused : str
        Why there is no prediction; "" if there is one.
    tpot_s, tpot_low_s, tpot_high_s, ttft_s, ttft_low_s, ttft_high_s : float
        Prediction and its 90% interval [s].
    bound_s : float
        The article's floor of a step at the predicted running batch [s].
    novelty : str
        What of the row the priors had not seen.
    """

    row: int
    point: Point | None = None
    refused: str = ""
    tpot_s: float = np.nan
    tpot_low_s: float = np.nan
    tpot_high_s: float = np.nan
    ttft_s: float = np.nan
    ttft_low_s: float = np.nan
    ttft_high_s: float = np.nan
    bound_s: float = np.nan
    novelty: str = ""

    @property
    def below_bound(self) -> bool:
        """Whether it was measured faster than the bound allows: another unit, model or number of devices."""
        return bool(self.point and self.point.tpot_s and self.point.tpot_s < self.bound_s)

    def to_dict(self) -> dict[str, Any]:
        """Give it with the names of the JSON output.

        Returns
        -------
        dict
            Prediction and measurement, or `refused`.
        """
        if self.point is None or self.refused:
            return {"row": self.row, "refused": self.refused}
        names = [f.name for f in dataclasses.fields(self) if f.name not in {"point", "refused"}]
        measured = {"measured_tpot_s": self.point.tpot_s, "measured_ttft_s": self.point.ttft_s}
        who = {
            "model": self.point.case.base_model,
            "accelerator": self.point.case.accelerator,
            "engine": self.point.engine,
            "regime": f"{self.point.regime}, disaggregated" if self.point.pools else self.point.regime,
        }
        shown = {name: getattr(self, name) for name in names}
        shown = {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in shown.items()}
        return shown | measured | who | {"qc": self.point.qc, "below_bound": self.below_bound}


def predict(found: Sequence[Point | tuple[int, str]], priors: prior.Prior | None = None) -> list[Outcome]:
    """Predict TPOT and TTFT of each row as a client that keeps its requests in flight would see them.

    Parameters
    ----------
    found : sequence
        As `read` gives them.
    priors : prior.Prior, optional
        Coefficients and intervals; by default those that the package ships.

    Returns
    -------
    list of Outcome
        In the order of the rows.
    """
    priors = priors or prior.load()
    outcomes: dict[int, Outcome] = {}
    ways: dict[str, list[tuple[int, Point]]] = defaultdict(list)
    for index, one in enumerate(found):
        if not isinstance(one, Point):
            outcomes[index] = Outcome(row=one[0], refused=one[1])
            continue
        try:
            _ = one.ideal, one.capacity, one.pools and one.prompt_ideal
        except BatchlineError as error:
            outcomes[index] = Outcome(row=one.row, refused=str(error))
            continue
        ways[_way(one)].append((index, one))
    for way, numbered in ways.items():
        points = [point for _, point in numbered]
        for (index, _), outcome in zip(numbered, _served(points, _STATES[way](points, priors), priors), strict=True):
            outcomes[index] = outcome
    return [outcomes[index] for index in range(len(found))]


def _way(point: Point) -> str:
    if point.pools is not None:
        return "pools"
    return "static" if point.regime in STATIC else "closed"


def _stacked(kind: Any, parts: Sequence[Any]) -> Any:
    return kind(**{f.name: np.array([float(getattr(p, f.name)) for p in parts]) for f in dataclasses.fields(kind)})


def _column(points: Sequence[Point], name: str) -> NDArray[np.float64]:
    return np.array([getattr(point, name) for point in points], dtype=float)


def _speculation(points: Sequence[Point]) -> serving.Speculation:
    """Drafts of each point; none accepted of none drafted is decoding token by token."""
    drafts = [point.speculation or serving.Speculation(0.0, 0.0) for point in points]
    return serving.Speculation(*(np.array([getattr(d, n) for d in drafts]) for n in ("acceptance", "draft_tokens")))


def _asked(points: Sequence[Point], priors: prior.Prior) -> tuple[Any, ...]:
    coefficients = _stacked(step.Coefficients, [priors.coefficients(point.case) for point in points])
    return _stacked(step.Ideal, [point.ideal for point in points]), coefficients


def _closed(points: Sequence[Point], priors: prior.Prior) -> serving.Steady:
    return serving.closed_loop(
        *_asked(points, priors),
        *(_column(points, name) for name in ("concurrency", "isl", "osl", "capacity")),
        max_num_seqs=_column(points, "max_num_seqs"),
        max_num_batched_tokens=_column(points, "max_num_batched_tokens"),
        admission_interval=_column(points, "admission_interval"),
        opening_share=_column(points, "opening_share"),
        prefix_hit_rate=_column(points, "prefix_hit_rate"),
        speculation=_speculation(points),
    )


def _static(points: Sequence[Point], priors: prior.Prior) -> serving.Steady:
    ideal, coefficients = _asked(points, priors)
    batch, isl, osl = (_column(points, name) for name in ("concurrency", "isl", "osl"))
    state = serving.static_batch(ideal, coefficients, batch, isl, osl, speculation=_speculation(points))
    whole = np.array([point.regime == "static_e2e" for point in points])
    # What such a table calls time per token is the whole run over the output length, prefill included.
    return dataclasses.replace(state, tpot_s=np.where(whole, np.asarray(state.e2e_s) / osl, state.tpot_s))


def _pools(points: Sequence[Point], priors: prior.Prior) -> serving.Steady:
    pools = [point.pools for point in points if point.pools is not None]
    return serving.disaggregated(
        _stacked(step.Ideal, [point.prompt_ideal for point in points]),
        *_asked(points, priors),
        *(_column(points, name) for name in ("concurrency", "isl", "osl", "capacity")),
        transfer_s=np.array([pool.transfer_s for pool in pools]),
        max_num_seqs=_column(points, "max_num_seqs"),
        prefix_hit_rate=_column(points, "prefix_hit_rate"),
        prefill_instances=np.array([pool.prefill_instances / pool.decode_instances for pool in pools]),
        speculation=_speculation(points),
    )


_STATES = {"closed": _closed, "static": _static, "pools": _pools}


def _served(points: Sequence[Point], state: serving.Steady, priors: prior.Prior) -> list[Outcome]:
    ideal = _stacked(step.Ideal, [point.ideal for point in points])
    gain = np.asarray(serving.tokens_per_step(_speculation(points)))
    # A batch of fixed size was in memory, whatever an engine's own accounting makes of it.
    most = np.where([point.regime in STATIC for point in points], np.inf, _column(points, "capacity"))
    floor = np.asarray(step.bound(ideal, np.minimum(state.running_batch, most))) / gain
    tpots, ttfts = np.asarray(state.tpot_s), np.asarray(state.ttft_s)
    outcomes = []
    for i, point in enumerate(points):
        # One token has no time after the first; in a static regime the length may be a context's, of a single step.
        tpot = float(tpots[i]) if point.osl > 1 or point.regime in STATIC else np.nan
        ttft = np.nan if point.memory_alone else float(ttfts[i])
        case = point.case
        if point.pools:  # no such run is in the fit: as new as another engine
            case = dataclasses.replace(case, engine=f"{case.engine}, disaggregated")
        (tpot_low, tpot_high), (ttft_low, ttft_high) = (
            priors.interval(case, of, readings.CONFIDENCE) for of in ("tpot", "ttft")
        )
        outcomes.append(
            Outcome(
                row=point.row,
                point=point,
                tpot_s=tpot,
                tpot_low_s=float(np.maximum(tpot * tpot_low, floor[i])),
                tpot_high_s=tpot * tpot_high,
                ttft_s=ttft,
                ttft_low_s=ttft * ttft_low,
                ttft_high_s=ttft * ttft_high,
                bound_s=float(floor[i]),
                novelty=priors.novelty(case),
            )
        )
    return outcomes


def _errors(outcomes: Sequence[Outcome], of: str) -> dict[str, float] | None:
    """Errors and coverage of the predictions of TPOT or TTFT; None without a measured row."""
    pairs = []
    for outcome in outcomes:
        measured = getattr(outcome.point, f"{of}_s") if outcome.point else None
        if measured and not outcome.refused and not np.isnan(getattr(outcome, f"{of}_s")):
            held = getattr(outcome, f"{of}_low_s") <= measured <= getattr(outcome, f"{of}_high_s")
            pairs.append((getattr(outcome, f"{of}_s") / measured - 1.0, held))
    if not pairs:
        return None
    return errors_of([pair[0] for pair in pairs]) | {"coverage": float(np.mean([pair[1] for pair in pairs]))}


def errors_of(misses: ArrayLike) -> dict[str, float]:
    """Sum up how far predictions miss.

    Parameters
    ----------
    misses : array_like
        predicted / measured - 1 [-].

    Returns
    -------
    dict
        `n`; `mape`, `median` and `p90` of the absolute values, `bias` the median with its sign [-].

    Examples
    --------
    >>> errors_of([0.1, -0.2, 0.4])["median"]
    0.2
    """
    miss = np.asarray(misses, dtype=float)
    return {
        "n": len(miss),
        "mape": float(np.abs(miss).mean()),
        "median": float(np.median(np.abs(miss))),
        "p90": float(np.quantile(np.abs(miss), 0.9)),
        "bias": float(np.median(miss)),
    }


def kinds_of_reasons(refused: Mapping[str, int]) -> dict[str, int]:
    """Merge reasons that differ in their numbers alone.

    Parameters
    ----------
    refused : mapping
        Rows by reason.

    Returns
    -------
    dict
        Rows by the first sentence of the reason, numbers as "N", the most frequent first.

    Examples
    --------
    >>> kinds_of_reasons({"tp 12 does not divide 128. It can be 1, 2, 4.": 1, "tp 20 does not divide 128. Or 8.": 2})
    {'tp N does not divide N': 3}
    """
    found: Counter[str] = Counter()
    for reason, count in refused.items():
        first = re.split(r"[.:] ", reason)[0].rstrip(".")
        found[re.sub(r"(?<![\w.-])\d[\d,.]*(?![\w-])", "N", first)] += count
    return dict(found.most_common())


def beside(
    outcomes: Sequence[Outcome], others: Mapping[str, Mapping[str, tuple[float, float]]] | None = None
) -> list[dict[str, Any]]:
    """Errors of the article's floor, and of other predictors, each beside ours on the same rows.

    Parameters
    ----------
    outcomes : sequence of Outcome
        As `predict` gives them.
    others : mapping, optional
        For each predictor its TPOT and TTFT [s] by the key of a row, see `served_point.Point.key`.

    Returns
    -------
    list of dict
        `who`, `rows`, `tpot` and `ttft` (mape, median, p90 and bias, a share each; None where it says nothing).
    """
    known = [(one.point, one) for one in outcomes if one.point and not one.refused]
    said = [("Batchline", [(point, one.tpot_s, one.ttft_s) for point, one in known])]
    said.append(("the article's bound", [(point, one.bound_s, np.nan) for point, one in known]))
    for who, theirs in (others or {}).items():
        shared = [(point, one) for point, one in known if point.key in theirs]
        said.append((who, [(point, *theirs[point.key]) for point, _ in shared]))
        said.append((f"Batchline, rows of {who}", [(point, one.tpot_s, one.ttft_s) for point, one in shared]))
    return [_line(who, rows) for who, rows in said if rows]


def _line(who: str, rows: Sequence[tuple[Point, float, float]]) -> dict[str, Any]:
    tpot = [tpot / point.tpot_s - 1.0 for point, tpot, _ in rows if point.tpot_s and not np.isnan(tpot)]
    ttft = [ttft / point.ttft_s - 1.0 for point, _, ttft in rows if point.ttft_s and not np.isnan(ttft)]
    return {
        "who": who,
        "rows": len(rows),
        "tpot": errors_of(tpot) if tpot else None,
        "ttft": errors_of(ttft) if ttft else None,
    }


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Errors of predictions, in all and by group.

    Parameters
    ----------
    outcomes : sequence of Outcome
        As `predict` gives them.

    Returns
    -------
    dict
        `n`, `predicted`, `refused` by reason, `below_bound` (rows measured faster than the bound), `tpot` and `ttft`
        with mape, median, p90, bias (median signed error) and coverage of the 90% interval, each a share [-]; `by`
        engine, model, accelerator, regime, novelty, qc: the same.
    """
    predicted = [outcome for outcome in outcomes if not outcome.refused and outcome.point]
    by: dict[str, dict[str, Any]] = {}
    for kind in ("engine", "model", "accelerator", "regime", "novelty", "qc"):
        groups: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in predicted:
            groups[str(outcome.to_dict()[kind])].append(outcome)
        by[kind] = {
            name: {of: _errors(inside, of) for of in ("tpot", "ttft")} for name, inside in sorted(groups.items())
        }
    return {
        "n": len(outcomes),
        "predicted": len(predicted),
        "refused": dict(Counter(outcome.refused for outcome in outcomes if outcome.refused).most_common()),
        "below_bound": sum(outcome.below_bound for outcome in predicted),
        "tpot": _errors(outcomes, "tpot"),
        "ttft": _errors(outcomes, "ttft"),
        "by": by,
    }
