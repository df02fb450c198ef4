"""What a request costs: dollars per million input, cached and output tokens, the owner's hour, joules, break-even.

    machine time of a request   = prefill + o step(B) / B        shares of the whole deployment's time [s]
    $ of its input tokens       = price x prefill / (1 - h) s    likewise output tokens: the parts add up
    $ at a utilisation u        = $ at full use / u              an idle machine is paid for like a busy one
    owner's hour                = [capex annuity + yearly cost] / 8760 h + power x PUE x $/kWh

Time decides: what prefill takes of the machine's time is what prompts cost, the rest is what output costs. Every
argument is one number or an array; arrays broadcast. Nothing here checks its input: callers at the edge do.

References
----------
[1] DeepSeek, Day 6 of open-source week: One more thing, DeepSeek-V3/R1 inference system overview (2025-03-01).
[2] R. Pope and D. Patel, lecture on the economics of inference (transcript, dwarkeshsp/flashcards, 2026).
[3] E. Erdil, Inference economics of language models, arXiv 2506.04645.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from batchline import roofline

if TYPE_CHECKING:
    from batchline.price import Price
    from batchline.roofline import Floats

__all__ = [
    "HOURS_PER_MONTH",
    "TokenCosts",
    "annuity",
    "break_even_requests",
    "break_even_utilisation",
    "cached_prompt_s",
    "decode_s",
    "joules_per_token",
    "owner_usd_per_hour",
    "prefill_s",
    "token_costs",
    "usd_per_month",
    "usd_per_mtok",
    "usd_range",
]

HOURS_PER_YEAR: Final = 8760.0
HOURS_PER_MONTH: Final = HOURS_PER_YEAR / 12
"""730 h: a twelfth of a year of 365 days [h]."""

_MILLION = 1e6
_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class TokenCosts:
    """What tokens of each kind cost, and the request that they make.

    Parameters
    ----------
    usd_per_mtok_input : float or array
        Prompt tokens that must be computed [USD/Mtoken].
    usd_per_mtok_cached : float or array
        Prompt tokens found in the prefix cache: the attention of the others over them [USD/Mtoken].
    usd_per_mtok_output : float or array
        Output tokens, decoding alone [USD/Mtoken].
    usd_per_mtok : float or array
        All cost over output tokens alone [USD/Mtoken].
    usd_per_request : float or array
        One request [USD].
    prefill_share : float or array
        Share of the machine's busy time that prompts take [-].
    utilisation : float or array
        Share of the time that the machine is busy [-].
    """

    usd_per_mtok_input: Floats
    usd_per_mtok_cached: Floats
    usd_per_mtok_output: Floats
    usd_per_mtok: Floats
    usd_per_request: Floats
    prefill_share: Floats
    utilisation: Floats = 1.0

    def at(self, utilisation: Floats) -> TokenCosts:
        """Give the same costs when the machine is busy for another share of the time.

        Parameters
        ----------
        utilisation : float or array
            Share of the time that the machine is busy [-].

        Returns
        -------
        TokenCosts
            All dollars divided by it.

        Examples
        --------
        >>> full = token_costs(36.0, 0.1, 0.4, isl=1000, osl=200)
        >>> full.usd_per_mtok_output, full.at(0.5).usd_per_mtok_output
        (20.0, 40.0)
        """
        scale = self.utilisation / utilisation
        dollars = {field.name: getattr(self, field.name) * scale for field in fields(self) if "usd" in field.name}
        return replace(self, **dollars, utilisation=utilisation)


def prefill_s(prompt_s: Floats, *, dp: Floats = 1, pp: Floats = 1, share: Floats = 1.0) -> Floats:
    """Time of the whole deployment that one prompt takes.

    Parameters
    ----------
    prompt_s : float or array
        Time that one prompt adds to the steps of its data-parallel rank [s].
    dp, pp : float or array
        Attention-data and pipeline parallel degrees: ranks and stages that work on other prompts meanwhile [-].
    share : float or array
        Share of a prefill that delays the sequences decoding beside it [-].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> prefill_s(0.2, dp=4)
    0.05
    """
    return share * prompt_s / (dp * pp)


def decode_s(step_s: Floats, batch: Floats, osl: Floats, *, tokens_per_step: Floats = 1.0) -> Floats:
    """Time of the whole deployment that the output of one request takes: its share of each step.

    Parameters
    ----------
    step_s : float or array
        One decode step [s].
    batch : float or array
        Sequences decoded together in the whole deployment [sequence].
    osl : float or array
        Output tokens [token].
    tokens_per_step : float or array
        Tokens that a step yields for each sequence; more than 1 under speculative decoding [token].

    Returns
    -------
    float or array
        Seconds [s].

    Examples
    --------
    >>> decode_s(0.020, 100, 500)
    0.1
    """
    return osl * step_s / (batch * tokens_per_step)


def cached_prompt_s(attention_s: Floats, prefix_hit_rate: Floats) -> Floats:
    r"""Part of a prompt's time that its cached tokens cause: the others attend to them, :math:`2 A h (1 - h)`.

    Parameters
    ----------
    attention_s : float or array
        Attention of the whole prompt, if nothing were cached [s].
    prefix_hit_rate : float or array
        Share of the prompt found in the prefix cache, h [-].

    Returns
    -------
    float or array
        Seconds [s]. The triangle of causal attention holds A; without its cached corner h^2 A and the triangle of the
        others (1 - h)^2 A, the rectangle between them stays.

    Examples
    --------
    >>> cached_prompt_s(1.0, 0.5)
    0.5
    """
    return 2.0 * attention_s * prefix_hit_rate * (1.0 - prefix_hit_rate)


def token_costs(
    usd_per_hour: Floats,
    prefill_s: Floats,
    decode_s: Floats,
    isl: Floats,
    osl: Floats,
    *,
    prefix_hit_rate: Floats = 0.0,
    cached_s: Floats = 0.0,
    utilisation: Floats = 1.0,
) -> TokenCosts:
    """Split what a request costs between its input, cached and output tokens, by the time each takes of the machine.

    Parameters
    ----------
    usd_per_hour : float or array
        Price of the whole deployment [USD/h].
    prefill_s, decode_s : float or array
        Time of the whole deployment that the prompt and the output of one request take, see the functions of these
        names [s].
    isl, osl : float or array
        Input and output length [token].
    prefix_hit_rate : float or array
        Share of the input found in the prefix cache [-].
    cached_s : float or array
        Part of `prefill_s` that cached tokens cause [s].
    utilisation : float or array
        Share of the time that the machine is busy [-].

    Returns
    -------
    TokenCosts
        Cost of each kind of token; infinite for a kind whose tokens cost but do not exist.

    Notes
    -----
    The parts add up: input x fresh tokens + cached x cached tokens + output x output tokens is the request's cost.

    Examples
    --------
    DeepSeek's nodes of $16/h compute 73,700 input or 14,800 output tokens a second [1]:

    >>> day = token_costs(16.0, 1 / 73.7e3, 1 / 14.8e3, isl=1, osl=1)
    >>> round(day.usd_per_mtok_input, 4), round(day.usd_per_mtok_output, 4)
    (0.0603, 0.3003)
    """
    second = usd_per_hour / 3600.0 / utilisation
    fresh = isl * (1.0 - prefix_hit_rate)
    request = second * (prefill_s + decode_s)
    return TokenCosts(
        usd_per_mtok_input=_per_million(second * (prefill_s - cached_s), fresh),
        usd_per_mtok_cached=_per_million(second * cached_s, isl * prefix_hit_rate),
        usd_per_mtok_output=_per_million(second * decode_s, osl),
        usd_per_mtok=_per_million(request, osl),
        usd_per_request=request,
        prefill_share=prefill_s / (prefill_s + decode_s),
        utilisation=utilisation,
    )


def _per_million(usd: Floats, tokens: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = np.where(np.asarray(usd) == 0.0, 0.0, _MILLION * np.asarray(usd) / tokens)
    return float(cost) if cost.ndim == 0 else cost


def usd_per_mtok(usd_per_hour: Floats, tokens_per_s: Floats, utilisation: Floats = 1.0) -> Floats:
    """Cost of a million tokens of a machine that makes so many a second when busy.

    Parameters
    ----------
    usd_per_hour : float or array
        Price of the whole deployment [USD/h].
    tokens_per_s : float or array
        Rate when busy [token/s].
    utilisation : float or array
        Share of the time that it is busy [-].

    Returns
    -------
    float or array
        Dollars per million tokens [USD/Mtoken].

    Examples
    --------
    >>> round(usd_per_mtok(16.0, 14.8e3), 4), round(usd_per_mtok(16.0, 14.8e3, 0.5), 4)
    (0.3003, 0.6006)
    """
    return roofline.usd_per_mtok(1.0, tokens_per_s * utilisation, usd_per_hour)


def usd_per_month(usd_per_hour: Floats) -> Floats:
    """Cost of a month of 730 hours, busy or idle.

    Parameters
    ----------
    usd_per_hour : float or array
        Price [USD/h].

    Returns
    -------
    float or array
        Dollars per month [USD/month].

    Examples
    --------
    >>> usd_per_month(2.0)
    1460.0
    """
    return HOURS_PER_MONTH * usd_per_hour


def usd_range(usd: Floats, price: Price) -> dict[str, Floats]:
    """Spread a cost that was computed with the median price over the dated prices behind it.

    Parameters
    ----------
    usd : float or array
        A cost at the median price, per token, request or month [USD].
    price : Price
        Prices of the device.

    Returns
    -------
    dict
        The cost at the "low", "median" and "high" price [USD]: cost is proportional to price.

    Examples
    --------
    >>> from batchline import price
    >>> usd_range(1.0, price.Price("x", 1.5, 2.0, 6.0, 3))
    {'low': 0.75, 'median': 1.0, 'high': 3.0}
    """
    return {name: usd * getattr(price, name) / price.median for name in ("low", "median", "high")}


def annuity(years: Floats, interest: Floats = 0.0) -> Floats:
    r"""Share of a sum that is paid each year to have paid it off, :math:`i / (1 - (1 + i)^{-n})`.

    Parameters
    ----------
    years : float or array
        Years n [a].
    interest : float or array
        Yearly interest i [-].

    Returns
    -------
    float or array
        Share [1/a]; 1/n without interest.

    Examples
    --------
    >>> annuity(4), round(annuity(4, 0.08), 4)
    (0.25, 0.3019)
    """
    rate = np.asarray(interest, dtype=float)
    safe = np.where(rate > 0.0, rate, 1.0)
    paid_off = -np.expm1(-np.asarray(years, dtype=float) * np.log1p(safe))  # 1 - (1 + i)^-n, exact for small i
    share = np.where(rate > 0.0, safe / paid_off, 1.0 / years)
    return float(share) if share.ndim == 0 else share


def owner_usd_per_hour(
    capex_usd: Floats,
    years: Floats,
    power_w: Floats,
    usd_per_kwh: Floats,
    pue: Floats,
    *,
    interest: Floats = 0.0,
    residual_usd: Floats = 0.0,
    usd_per_year: Floats = 0.0,
) -> Floats:
    """What an hour costs the owner of a device, busy or idle.

    Parameters
    ----------
    capex_usd : float or array
        What the device cost with its share of host, network and building [USD].
    years : float or array
        Years over which it is paid off [a].
    power_w : float or array
        What it draws with that share [W].
    usd_per_kwh : float or array
        Price of electricity [USD/kWh].
    pue : float or array
        Power of the building over power of the machines [-].
    interest : float or array
        Yearly cost of capital [-].
    residual_usd : float or array
        What the device is sold for in the end [USD].
    usd_per_year : float or array
        Space, people, maintenance [USD/a].

    Returns
    -------
    float or array
        Dollars per hour [USD/h].

    Examples
    --------
    >>> round(owner_usd_per_hour(35_000, 4, 1_370, 0.08, 1.25), 3)
    1.136
    """
    discounted = residual_usd / (1.0 + interest) ** years
    yearly = (capex_usd - discounted) * annuity(years, interest) + usd_per_year
    power = power_w / 1000.0 * pue * usd_per_kwh
    return yearly / HOURS_PER_YEAR + power


def joules_per_token(power_w: Floats, tokens_per_s: Floats, pue: Floats = 1.0) -> Floats:
    """Energy of one token.

    Parameters
    ----------
    power_w : float or array
        Power of the whole deployment; with the devices' design power this is the most it can be [W].
    tokens_per_s : float or array
        Tokens a second that share it [token/s].
    pue : float or array
        Power of the building over power of the machines [-].

    Returns
    -------
    float or array
        Joules [J/token].

    Examples
    --------
    >>> joules_per_token(8 * 700, 14.8e3) < 0.4
    True
    """
    return power_w * pue / tokens_per_s


def break_even_requests(usd_per_hour: Floats, api_usd_per_request: Floats, *, usd_per_request: Floats = 0.0) -> Floats:
    """Requests a month from which a machine of one's own is cheaper than an API.

    Parameters
    ----------
    usd_per_hour : float or array
        Price of the machine, which is paid for busy or idle [USD/h].
    api_usd_per_request : float or array
        What the API charges for one request [USD].
    usd_per_request : float or array
        What a request costs on one's own machine beyond the rent, such as a gateway [USD].

    Returns
    -------
    float or array
        Requests a month [1/month]; infinite when the API is cheaper than that alone.

    Examples
    --------
    >>> break_even_requests(2.0, 0.001)
    1460000.0
    """
    saved = np.asarray(api_usd_per_request - usd_per_request, dtype=float)
    with np.errstate(divide="ignore"):
        requests = np.where(saved > 0.0, usd_per_month(usd_per_hour) / np.where(saved > 0.0, saved, 1.0), np.inf)
    return float(requests) if requests.ndim == 0 else requests


def break_even_utilisation(usd_per_request: Floats, api_usd_per_request: Floats) -> Floats:
    """Share of the time that a machine must be busy to be as cheap as an API.

    Parameters
    ----------
    usd_per_request : float or array
        Cost of a request at full use of one's own machine [USD].
    api_usd_per_request : float or array
        What the API charges for it [USD].

    Returns
    -------
    float or array
        Share [-]; above 1 one's own machine is never cheaper.

    Examples
    --------
    >>> break_even_utilisation(0.0004, 0.001)
    0.4
    """
    return usd_per_request / api_usd_per_request
