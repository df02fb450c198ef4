"""What APIs charge for a model, and from which volume and utilisation one's own machine is cheaper.

Prices come from the package genai-prices (extra `market`), which carries them with it: nothing is fetched. Its release
is the date of the prices.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchline import cost
from batchline.errors import BatchlineError, UnknownNameError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.cost import TokenCosts

__all__ = ["Comparison", "Offer", "compare", "offers", "release"]


@dataclass(frozen=True)
class Offer:
    """Price of one model at one provider.

    Parameters
    ----------
    provider, model : str
        Names there.
    usd_per_mtok_input, usd_per_mtok_output : float
        Prices [USD/Mtoken].
    usd_per_mtok_cached : float or None
        Price of cached input, if it is another [USD/Mtoken].
    """

    provider: str
    model: str
    usd_per_mtok_input: float
    usd_per_mtok_output: float
    usd_per_mtok_cached: float | None = None

    def usd_per_request(self, isl: float, osl: float, prefix_hit_rate: float = 0.0) -> float:
        """What one request costs there.

        Parameters
        ----------
        isl, osl : float
            Input and output length [token].
        prefix_hit_rate : float
            Share of the input billed as cached, where that has a price [-].

        Returns
        -------
        float
            Dollars [USD].

        Examples
        --------
        >>> Offer("a", "b", 1.0, 4.0, 0.1).usd_per_request(1_000_000, 250_000, 0.5)
        1.55
        """
        cached = self.usd_per_mtok_input if self.usd_per_mtok_cached is None else self.usd_per_mtok_cached
        hit = isl * prefix_hit_rate
        return ((isl - hit) * self.usd_per_mtok_input + hit * cached + osl * self.usd_per_mtok_output) / 1e6


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One offer against a machine of one's own.

    Parameters
    ----------
    offer : Offer
        The API.
    api_usd_per_request, own_usd_per_request : float
        What a request costs, on one's own machine at full use [USD].
    break_even_utilisation : float
        Share of the time that the machine must be busy to be as cheap; above 1 it never is [-].
    break_even_requests_per_month : float or None
        Requests a month from which it is cheaper; None when not even a full machine is [1/month].
    """

    offer: Offer
    api_usd_per_request: float
    own_usd_per_request: float
    break_even_utilisation: float
    break_even_requests_per_month: float | None

    def to_dict(self) -> dict[str, Any]:
        """Give everything, with the names of the JSON output.

        Returns
        -------
        dict
            What the offer has, and what came of it.
        """
        found = dict(vars(self))
        return {**vars(found.pop("offer")), **found}

    def __str__(self) -> str:
        name = f"{self.offer.provider} {self.offer.model}"
        times = self.own_usd_per_request / self.api_usd_per_request
        if self.break_even_requests_per_month is None:
            return (
                f"{name} is cheaper at any volume: {1 / times:.2f} of a request's cost on a machine that is never idle."
            )
        requests = f"{self.break_even_requests_per_month:,.0f} requests a month"
        return (
            f"Against {name} your machine is cheaper from {requests} on, "
            f"when it is busy {self.break_even_utilisation:.0%} of the time."
        )


def release() -> str:
    """Release of the package that holds the prices.

    Returns
    -------
    str
        Like "genai-prices 0.2.3".

    Raises
    ------
    BatchlineError
        The package is not installed.
    """
    from importlib.metadata import version  # noqa: PLC0415

    _package()
    return f"genai-prices {version('genai-prices')}"


def offers(model: str, *, on: dt.datetime | None = None) -> list[Offer]:
    """What providers charge for a model, cheapest output first.

    Parameters
    ----------
    model : str
        Name, like "llama-3.1-70b" or "deepseek-v3"; "provider:model" names one offer exactly.
    on : datetime.datetime, optional
        Day of the prices; by default today.

    Returns
    -------
    list of Offer
        Those whose name at the provider holds this one; free trials are left out.

    Raises
    ------
    BatchlineError
        The package is not installed.
    UnknownNameError
        No provider has such a model.
    """
    when = on or dt.datetime.now(tz=dt.UTC)
    provider, colon, exact = model.partition(":")
    found, known = [], []
    for entry in _package().get_snapshot().providers:
        for one in entry.models:
            known.append(one.id)
            named = (entry.id == provider and one.id == exact) if colon else _holds(one.id, model)
            offer = _offer(entry.id, one, when) if named else None
            if offer is not None:
                found.append(offer)
    if not found:
        raise UnknownNameError("model on the market", model, known, Sentence("error.name_offer"))
    return sorted(found, key=lambda offer: (offer.usd_per_mtok_output, offer.usd_per_mtok_input, offer.provider))


def compare(
    own: TokenCosts,
    usd_per_hour: float,
    market: Sequence[Offer],
    isl: float,
    osl: float,
    prefix_hit_rate: float = 0.0,
) -> list[Comparison]:
    """Lay offers beside a machine of one's own.

    Parameters
    ----------
    own : TokenCosts
        Costs on the machine; taken at full use.
    usd_per_hour : float
        Its price, busy or idle [USD/h].
    market : sequence of Offer
        APIs.
    isl, osl : float
        Input and output length of a request [token].
    prefix_hit_rate : float
        Share of the input found in a cache, at both [-].

    Returns
    -------
    list of Comparison
        Cheapest API first.

    Examples
    --------
    >>> own = cost.token_costs(3.6, 0.1, 0.4, 1000, 200)
    >>> one, = compare(own, 3.6, [Offer("a", "b", 0.5, 2.5)], 1000, 200)
    >>> round(one.break_even_utilisation, 3), round(one.break_even_requests_per_month)
    (0.5, 2628000)
    """
    full = own.at(1.0)
    mine = float(full.usd_per_request)
    rows = []
    for offer in market:
        api = offer.usd_per_request(isl, osl, prefix_hit_rate)
        use = float(cost.break_even_utilisation(mine, api))
        rows.append(
            Comparison(
                offer=offer,
                api_usd_per_request=api,
                own_usd_per_request=mine,
                break_even_utilisation=use,
                break_even_requests_per_month=float(cost.break_even_requests(usd_per_hour, api)) if use <= 1 else None,
            )
        )
    return sorted(rows, key=lambda row: row.api_usd_per_request)


def _package() -> Any:
    try:
        from genai_prices import data_snapshot  # noqa: PLC0415  (an extra)
    except ImportError:
        raise BatchlineError(Sentence("error.needs_market"), "", Sentence("error.install_market")) from None
    return data_snapshot


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _holds(theirs: str, ours: str) -> bool:
    """Whether a provider's name means our model: it holds ours, and no digit goes on where ours ends."""
    wanted, given = _plain(ours), _plain(theirs)
    at = given.find(wanted) if wanted else -1
    while at >= 0:
        after = given[at + len(wanted) : at + len(wanted) + 1]
        if not (after.isdigit() and wanted[-1:].isdigit()):
            return True
        at = given.find(wanted, at + 1)
    return False


def _offer(provider: str, model: Any, when: dt.datetime) -> Offer | None:
    prices = model.get_prices(when)
    given, made = (_usd(getattr(prices, name)) for name in ("input_mtok", "output_mtok"))
    if not given or not made:
        return None
    return Offer(provider, model.id, given, made, _usd(getattr(prices, "cache_read_mtok", None)))


def _usd(value: Any) -> float | None:
    """A price, or the first tier of one that grows with the length."""
    return None if value is None else float(getattr(value, "base", value))
