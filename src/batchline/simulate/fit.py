"""Coefficients of the clock from a run that was logged: when each request came, had its first and its last token.

A log of requests does not show steps, but a simulation of it does: the coefficients are those with which simulated
times come nearest to logged ones. A few coefficients move, the others stay what the priors say, and a pull towards the
prior keeps those that the log does not show (a run that never filled its batch says nothing about large ones).

    minimise   1/10 sum over requests of      rho(log(ttft' / ttft) / 0.3) + rho(log(e2e' / e2e) / 0.1)
                  + sum over coefficients of  (log(c / c_prior) / s)^2 / 2      s = 0.3 of a ratio, 0.7 of an overhead

rho is the square, cut off at 3: one request that waited for a compilation must not decide. 0.3 and 0.1 are what TTFT
and E2E of single requests scatter by when a run is repeated; requests of one run share their step times, so together
they count as a tenth of so many. The search is Nelder and Mead's: simulated times jump where a request misses a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.errors import InputError, UnknownNameError
from batchline.simulate.replay import simulate
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from batchline.simulate.pool import Pool
    from batchline.simulate.result import Result
    from batchline.step import Coefficients
    from batchline.workload import Traffic

__all__ = ["FITTED", "Fit", "fit_coefficients"]

FITTED = ("weight_read", "kv_read", "compute", "layer_overhead", "sequence_overhead", "prefill_linear")
"""Coefficients that a log of requests can show: constant, per sequence, per prompt."""

_RATIOS = {"weight_read", "expert_read", "kv_read", "compute", "tp_volume", "prefill_linear", "prefill_attention"}
_SCATTER = {"ttft": 0.3, "e2e": 0.1}
_SPREAD = {True: 0.3, False: 0.7}  # of the logarithm of a ratio and of an overhead: standard deviation of the prior [-]
_SHARED = 10.0  # requests that count as one


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """What a fit found.

    Parameters
    ----------
    coefficients : Coefficients
        The fitted and the others.
    before, after : float
        Value of what is minimised, with the coefficients of the start and with these [-].
    result : Result
        Simulation with these.
    evaluations : int
        Simulations that it took [-].
    """

    coefficients: Coefficients
    before: float
    after: float
    result: Result
    evaluations: int


def _of_log(name: str, log: float) -> float:
    # A ratio below 1 would beat the datasheet: the search is reflected there.
    return float(np.exp(abs(log) if name in _RATIOS else log))


def fit_coefficients(
    pool_at: Callable[[Coefficients], Pool],
    start: Coefficients,
    traffic: Traffic,
    *,
    ttft_s: ArrayLike,
    e2e_s: ArrayLike,
    names: Sequence[str] = FITTED,
    options: Mapping[str, Any] | None = None,
    evaluations: int = 400,
) -> Fit:
    """Fit coefficients to the times of a logged run.

    Parameters
    ----------
    pool_at : callable
        Engines with some coefficients.
    start : Coefficients
        What is believed before, also the centre of the prior.
    traffic : Traffic
        Requests of the run, all of them: those that come later also slow down earlier ones.
    ttft_s, e2e_s : array
        Logged times of the first requests, as many as are to be used [s].
    names : sequence of str
        Coefficients that move.
    options : mapping, optional
        Further arguments of `simulate`.
    evaluations : int
        Most simulations [-].

    Returns
    -------
    Fit
        Coefficients, ratios at least 1 among them, and a simulation with them.

    Raises
    ------
    InputError
        No logged times, times that are not above 0, or as many TTFT as E2E are not given.
    UnknownNameError
        No such coefficient.
    """
    from scipy.optimize import minimize  # noqa: PLC0415  (half a second, and only fits need it)

    logged = {"ttft": np.asarray(ttft_s, dtype=float), "e2e": np.asarray(e2e_s, dtype=float)}
    _check(logged, start, names)
    centre = np.array([np.log(float(getattr(start, name))) for name in names])
    spread = np.array([_SPREAD[name in _RATIOS] for name in names])

    def coefficients(logs: NDArray[np.float64]) -> Coefficients:
        return replace(start, **{name: _of_log(name, log) for name, log in zip(names, logs, strict=True)})

    def run(logs: NDArray[np.float64]) -> Result:
        return simulate(pool_at(coefficients(logs)), traffic, keep_requests=True, **(options or {}))

    def loss(logs: NDArray[np.float64]) -> float:
        return _misfit(run(logs), logged) + float(np.sum(((logs - centre) / spread) ** 2) / 2)

    simplex = np.vstack([centre, centre - spread * np.eye(len(names))])
    found = minimize(
        loss,
        centre,
        method="Nelder-Mead",
        options={"maxfev": evaluations, "xatol": 1e-2, "fatol": 1e-3, "initial_simplex": simplex},
    )
    return Fit(
        coefficients=coefficients(found.x),
        before=loss(centre),
        after=float(found.fun),
        result=run(found.x),
        evaluations=int(found.nfev),
    )


def _check(logged: Mapping[str, NDArray[np.float64]], start: Coefficients, names: Sequence[str]) -> None:
    for name in names:
        if not hasattr(start, name):
            raise UnknownNameError("coefficient", name, FITTED)
        if name not in _RATIOS and not getattr(start, name) > 0:
            raise InputError(Sentence("error.not_scalable", name=name), hint=Sentence("error.start_from_priors"))
    sizes = {len(times) for times in logged.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise InputError(Sentence("error.fit_logs"))
    for metric, times in logged.items():
        wrong = np.flatnonzero(~(times > 0))
        if len(wrong):
            raise InputError(
                Sentence("error.logged_above_0", metric=metric, row=f"{wrong[0]}", given=f"{times[wrong[0]]:g}")
            )


def _misfit(result: Result, logged: Mapping[str, NDArray[np.float64]]) -> float:
    if result.table is None:
        raise InputError(Sentence("error.fit_every"))
    total = 0.0
    for metric, simulated in (("ttft", result.table.ttft_s), ("e2e", result.table.e2e_s)):
        times = logged[metric]
        residual = np.log(simulated[: len(times)] / times) / _SCATTER[metric]
        total += float(np.sum(np.minimum(np.abs(residual), 3.0) ** 2)) / 2 / _SHARED
    return total
