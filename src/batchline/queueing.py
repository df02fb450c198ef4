r"""Queues in closed form: waits before one server, or for one of many, in mean and tail.

    one server of fixed time D    M/D/1: mean R D^2 / 2 (1 - R D); beyond t with chance rho exp(-2 (1 - rho) t / rho D)
    one that serves in one go     a rho^2 D / 2 (1 - rho^2) more, for those who came after me and end with me
    one of c slots                chance to wait 1 / (1 + beta Phi(beta) / phi(beta)), beta = (c - b) / sqrt(p b), p the
                                  peakedness; then exponential, with mean (a + v) / 2 over the rate at which a full
                                  table gains on arrivals; a and v squared variations of gaps and service

Every argument is one number or an array; arrays broadcast.

References
----------
[1] S. Halfin and W. Whitt, Operations Research 29, 1981: the chance to wait for one of many servers.
[2] L. Kleinrock, Queueing Systems, 1975 and 1976: M/D/1, processor sharing, state-dependent service.
[3] DistServe, arXiv 2401.09670, equation 1: queueing for prefill as M/D/1.
[4] M. Abramowitz and I. Stegun, 1964, 7.1.26: the normal distribution to seven digits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline.roofline import Floats

__all__ = [
    "company_wait",
    "left_behind",
    "md1_wait",
    "normal",
    "normal_quantile",
    "prompt_wait",
    "slot_wait",
    "use_at_wait",
]


def _plain(values: NDArray[np.float64]) -> Floats:
    return float(values) if values.ndim == 0 else values


def normal(z: Floats) -> Floats:
    """Chance that a standard normal number is below z, to seven digits [4].

    Parameters
    ----------
    z : float or array
        Standard deviations [-].

    Returns
    -------
    float or array
        Chance [-].

    Examples
    --------
    >>> round(float(normal(1.6448536)), 6), float(normal(0.0))
    (0.95, 0.5)
    """
    x = np.abs(z) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * x)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * np.exp(-x * x)
    return _plain(np.where(np.asarray(z) == 0.0, 0.5, np.where(np.asarray(z) > 0, 1.0 - tail, tail)))


def normal_quantile(share: float) -> float:
    """Standard deviations below which a standard normal number lies with a chance: the inverse of `normal`.

    Parameters
    ----------
    share : float
        Chance, between 0 and 1 [-].

    Returns
    -------
    float
        Standard deviations [-], to sixteen digits (Wichura, Applied Statistics 37, 1988, as Python's library has it).

    Examples
    --------
    >>> round(normal_quantile(0.95), 7)
    1.6448536
    """
    from statistics import NormalDist  # noqa: PLC0415  (slow to import)

    return NormalDist().inv_cdf(share)


def slot_wait(
    batch: Floats,
    slots: Floats,
    service_s: Floats,
    full_service_s: Floats | None = None,
    *,
    peakedness: Floats = 1.0,
    arrival_scv: Floats = 1.0,
    service_scv: Floats = 0.0,
    percentile: float | None = None,
) -> Floats:
    """Wait for one of many slots when requests arrive one by one [1].

    Parameters
    ----------
    batch : float or array
        Slots that are taken on average [sequence].
    slots : float or array
        Slots that there are [sequence].
    service_s : float or array
        Time that a request keeps its slot [s].
    full_service_s : float or array, optional
        The same while all slots are taken, when each is slower; default the same [s].
    peakedness : float or array
        Variance of the slots taken over their mean [-].
    arrival_scv, service_scv : float or array
        Squared coefficients of variation of the gaps between arrivals and of the service time [-].
    percentile : float, optional
        Percentile of the wait; None for the mean.

    Returns
    -------
    float or array
        Seconds [s]; infinite when more slots would be taken than there are.

    Examples
    --------
    Of 100 slots 90 are taken for 10 s each; 1 in 20 waits longer than 0.7 s:

    >>> round(float(slot_wait(90, 100, 10.0, percentile=95)), 2)
    0.7
    """
    taken = np.maximum(np.asarray(batch, dtype=float), 1e-12)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        gain = slots / (service_s if full_service_s is None else full_service_s) - taken / service_s
        stable = np.asarray((gain > 0) & (taken < slots))
        beta = np.minimum(np.where(stable, slots - taken, 1.0) / np.sqrt(taken * peakedness), 30.0)
        density = np.exp(-beta * beta / 2.0) / math.sqrt(2.0 * math.pi)
        waits = 1.0 / (1.0 + beta * normal(beta) / np.maximum(density, 1e-300))
        mean = 0.5 * (arrival_scv + service_scv) / np.where(stable, gain, 1.0)
        if percentile is None:
            wait = waits * mean
        else:
            wait = mean * np.maximum(np.log(np.maximum(waits, 1e-300) / (1.0 - percentile / 100.0)), 0.0)
    return _plain(np.where(stable, wait, np.inf))


def prompt_wait(rate: Floats, service_s: Floats, arrival_scv: Floats = 1.0, percentile: float | None = None) -> Floats:
    """Wait for the prompts before mine: the mean of M/D/1, or a percentile of its exponential tail [2].

    Parameters
    ----------
    rate : float or array
        Prompts that arrive [1/s].
    service_s : float or array
        Time that one takes [s].
    arrival_scv : float or array
        Squared coefficient of variation of the gaps between arrivals [-].
    percentile : float, optional
        Percentile of the wait; None for the mean.

    Returns
    -------
    float or array
        Seconds [s]; infinite when arrivals outrun the server.

    Examples
    --------
    >>> round(float(prompt_wait(8, 0.1)), 3), round(float(prompt_wait(8, 0.1, percentile=95)), 3)
    (0.2, 0.693)
    """
    mean = md1_wait(rate, service_s, arrival_scv=arrival_scv)
    if percentile is None:
        return mean
    use = np.minimum(np.maximum(np.asarray(rate * service_s, dtype=float), 1e-12), 1.0)
    return _plain(np.asarray(mean / use * np.maximum(np.log(use / (1.0 - percentile / 100.0)), 0.0)))


def md1_wait(rate: Floats, service_s: Floats, *, arrival_scv: Floats = 1.0) -> Floats:
    r"""Mean wait before a server of fixed service time, :math:`R D^2 / 2(1 - R D)` for Poisson arrivals [3].

    Parameters
    ----------
    rate : float or array
        Arrivals [1/s].
    service_s : float or array
        Service time [s].
    arrival_scv : float or array
        Squared coefficient of variation of the gaps between arrivals: 1 Poisson, 0 a metronome, more for bursts [-].

    Returns
    -------
    float or array
        Seconds [s]; infinite when arrivals outrun the server.

    Examples
    --------
    >>> round(float(0.1 + md1_wait(8, 0.1)), 6)
    0.3
    >>> float(md1_wait(20, 0.1))
    inf
    """
    use = np.asarray(rate * service_s, dtype=float)
    stable = use < 1.0
    wait = arrival_scv * use * service_s / (2.0 * np.where(stable, 1.0 - use, 1.0))
    return np.where(stable, wait, np.inf)[()]


def company_wait(rate: Floats, service_s: Floats, arrival_scv: Floats = 1.0) -> Floats:
    r"""Time by which prompts that come after mine delay it, when all that wait are computed together.

    An engine computes in one step all prompts that came during the last, and hands out their first tokens at its end.
    With steps of mean :math:`S = s / (1 - \rho)`, half of one and a whole one lie between an arrival and its first
    token; steps vary by the Poisson number of prompts, of variance :math:`R S / (1 - \rho^2)`, and an arrival falls
    into long ones, which costs :math:`(1/2 + \rho)` times variance over mean. M/D/1 holds
    :math:`\rho D / 2(1 - \rho)` of this, and

    .. math:: a \rho^2 D / 2 (1 - \rho^2)

    is what remains (own algebra; a test simulates it).

    Parameters
    ----------
    rate : float or array
        Prompts that arrive [1/s].
    service_s : float or array
        Time that one takes [s].
    arrival_scv : float or array
        Squared coefficient of variation of the gaps between arrivals [-].

    Returns
    -------
    float or array
        Seconds [s]; infinite when arrivals outrun the server.

    Examples
    --------
    >>> round(float(company_wait(8, 0.1)), 3)
    0.089
    """
    use = np.asarray(rate * service_s, dtype=float)
    stable = use < 1.0
    wait = arrival_scv * use * use * service_s / (2.0 * np.where(stable, 1.0 - use * use, 1.0))
    return np.where(stable, wait, np.inf)[()]


_USES = np.concatenate([np.linspace(0.0, 0.9, 1800), 1.0 - np.geomspace(0.1, 1e-9, 3000)[1:]])


def use_at_wait(wait: Floats, arrival_scv: Floats = 1.0, percentile: float | None = None) -> Floats:
    """Share of its time that a server of prompts may be busy before `prompt_wait` and `company_wait` are so long.

    Parameters
    ----------
    wait : float or array
        Both waits over service time [-].
    arrival_scv : float or array
        Squared coefficient of variation of the gaps between arrivals [-].
    percentile : float, optional
        Percentile of the wait for the prompts before mine; None for the mean.

    Returns
    -------
    float or array
        Share, below 1; 0 where the wait is below 0 [-]. Read off a table, to 1e-5.

    Examples
    --------
    >>> round(float(prompt_wait(0.8, 1.0) + company_wait(0.8, 1.0)), 4), round(float(use_at_wait(2.8889)), 4)
    (2.8889, 0.8)
    """
    table = np.asarray(prompt_wait(_USES, 1.0, 1.0, percentile)) + np.asarray(company_wait(_USES, 1.0))
    scaled = np.asarray(wait, dtype=float) / np.maximum(arrival_scv, 1e-12)  # both are proportional to the variation
    return _plain(np.where(scaled < 0.0, 0.0, np.interp(scaled, table, _USES)))


def left_behind(rank: Floats, stay_s: Floats, busy_s: Floats, arrival_scv: Floats = 1.0) -> Floats:
    """Prompts that a request finds computed in between: those in the queue when its own is done.

    Parameters
    ----------
    rank : float or array
        Sequences that decode on average, on one server [sequence].
    stay_s : float or array
        Time that a request decodes, without them [s].
    busy_s : float or array
        Time of the server that a prompt takes [s].
    arrival_scv : float or array
        Squared coefficient of variation of the gaps between arrivals [-].

    Returns
    -------
    float or array
        Prompts n [request]: what M/D/1 holds, rho + a rho^2 / 2 (1 - rho), with rho (stay / busy + n) = rank.

    Notes
    -----
    Without the small rho^2, and rho^3 for rho^2, it is a quadratic; three of Newton's steps in 1 / (1 - rho) mend that.

    Examples
    --------
    Eight decode for 1 s each, a prompt takes 50 ms; rho is 0.38:

    >>> round(float(left_behind(8.0, 1.0, 0.05)), 3)
    0.515
    """
    if np.all(np.asarray(busy_s) == 0.0):
        return 0.0 * (rank + stay_s)
    stay, half = stay_s / np.maximum(busy_s, 1e-12), arrival_scv / 2.0
    both = stay + rank
    use = 2.0 * rank / (both + np.sqrt(np.maximum(both * both + 4.0 * rank * (half - stay), 0.0)))
    use = np.minimum(use, 1.0 - 1e-9)
    for _ in range(3):
        left = 1.0 - use
        tail = half * use * use / left
        excess = use * (stay + use + tail) - rank
        slope = (stay + 2.0 * use + tail * (3.0 + use / left)) * left * left  # by 1 / (1 - rho)
        use = 1.0 - 1.0 / np.maximum(1.0 / left - excess / slope, 1.0 + 1e-12)
    return use + half * use * use / (1.0 - use)
