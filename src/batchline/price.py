"""What an hour of an accelerator costs: dated rental prices, and what it costs its owner.

`data/gpu_prices.csv` holds on-demand prices as providers listed them, each with its date; the same chip differs by four
times between providers and prices moved by half within 2026, so a price here is always low, median and high, with its
dates, and a price of one's own (`--price`) is better than any of them.

Which quotes count for an accelerator, in this order:

1. those at most 90 days older than its newest (a date that names only a month or a year counts as its first day);
2. of each offer of a provider, the newest;
3. a provider's average over variants ("H100 (all variants)", or "H200" without SXM or NVL) only where that provider has
   no quote of its own. Such averages stand for the SXM part, which most of what is rented is.

Each quote has one vote in the median. `data/owner_costs.csv` holds what an hour costs a hyperscaler, a neocloud, and a
renter by contract of several years: another number than an on-demand price, never mixed with it.
"""

from __future__ import annotations

import csv
import datetime as dt
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchline import accelerator
from batchline.errors import InputError, MissingFactError, UnknownNameError, closest
from batchline.strings import Sentence, text

__all__ = ["OwnerCost", "Price", "Quote", "given", "load", "names", "owner_cost", "quotes"]

STALE_DAYS: Final = 90
"""From this age on a price comes with a warning [day]."""

_DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Quote:
    """One listed price of one device.

    Parameters
    ----------
    accelerator : str
        Name in the catalogue.
    provider, offer : str
        Who rents it, and as what ("secure", "8 GPUs"); the offer may be empty.
    kind : str
        "quote", or "average" over what a provider has under that name.
    usd_per_hour : float
        Price of one device [USD/h].
    date : str
        Day, month or year of the quote, ISO.
    source, note : str
        Where it was read, and what is special.
    """

    accelerator: str
    provider: str
    offer: str
    kind: str
    usd_per_hour: float
    date: str
    source: str
    note: str

    @property
    def day(self) -> dt.date:
        """First day that the date can mean."""
        return dt.date.fromisoformat(self.date + "-01-01"[len(self.date) - 4 :])


@dataclass(frozen=True)
class Price:
    """What one device costs for an hour.

    Parameters
    ----------
    accelerator : str
        Name in the catalogue; empty for a price that was given.
    low, median, high : float
        Cheapest, middle and dearest quote that counts [USD/h].
    n : int
        Quotes that count [-]; 0 for a price that was given.
    oldest, newest : datetime.date or None
        Dates of these quotes; None for a price that was given.
    providers, sources : tuple of str
        Who quotes, and where it was read.

    Examples
    --------
    >>> price = load("h100")
    >>> price.low < price.median < price.high, price.n > 10
    (True, True)
    """

    accelerator: str
    low: float
    median: float
    high: float
    n: int
    oldest: dt.date | None = None
    newest: dt.date | None = None
    providers: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def dates(self) -> tuple[dt.date, dt.date] | None:
        """Oldest and newest quote that counts; None for a price that was given."""
        return None if self.oldest is None or self.newest is None else (self.oldest, self.newest)

    def age_days(self, today: dt.date | None = None) -> int:
        """Age of the newest quote.

        Parameters
        ----------
        today : datetime.date or None
            The day to count from; None is today.

        Returns
        -------
        int
            Days [day]; 0 for a price that was given, and for quotes from after that day.

        Examples
        --------
        >>> load("h100").age_days(dt.date(2026, 11, 30))
        21
        """
        if self.newest is None:
            return 0
        return max(0, ((today or dt.datetime.now(tz=dt.UTC).date()) - self.newest).days)

    def stale_warning(self, today: dt.date | None = None, limit: int = STALE_DAYS, language: str = "en") -> str | None:
        """Sentence to show when the newest quote is old.

        Parameters
        ----------
        today : datetime.date or None
            The day to count from; None is today.
        limit : int
            Age up to which a price is fresh [day].
        language : str
            "en" or "ko".

        Returns
        -------
        str or None
            The warning; None if the price is fresh.

        Examples
        --------
        >>> load("v5e").stale_warning(dt.date(2026, 11, 30))
        'The newest price of tpu-v5e is 667 days old (2025-02-01); give your own with --price.'
        >>> load("h100").stale_warning(dt.date(2026, 11, 30))
        """
        age = self.age_days(today)
        if age <= limit:
            return None
        return text("price.stale", language, accelerator=self.accelerator, age=f"{age:,}", newest=str(self.newest))

    def describe(self, language: str = "en") -> str:
        """Where the median comes from, in a few words.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            Like "median of 22 prices, 2026-08-26 to 2026-11-09".

        Examples
        --------
        >>> load("4090").describe(), given(2.5).describe()
        ('median of 2 prices, 2026-09-25', 'your price')
        """
        if self.oldest is None or self.newest is None:
            return text("price.yours", language)
        days = str(self.newest)
        if self.oldest != self.newest:
            days = text("price.span", language, oldest=str(self.oldest), newest=days)
        return text("price.median" if self.n > 1 else "price.one", language, count=f"{self.n:,}", days=days)


@dataclass(frozen=True)
class OwnerCost:
    """What an hour of one device costs the one who owns it, or rents it for years.

    Parameters
    ----------
    accelerator : str
        Name in the catalogue.
    hyperscaler, neocloud : float
        Total cost of ownership of a large and of a small cloud [USD/h].
    contract : float
        Rent by a contract of several years [USD/h].
    all_in_power : float or None
        Power of one device with its share of host, network and cooling [W].
    date, source : str
        When and where it was read.
    """

    accelerator: str
    hyperscaler: float
    neocloud: float
    contract: float
    all_in_power: float | None
    date: str
    source: str


def load(name: str) -> Price:
    """Rental price of an accelerator.

    Parameters
    ----------
    name : str
        A name or alias of the catalogue.

    Returns
    -------
    Price
        Of one device; the quotes that count are those of the module's rule.

    Raises
    ------
    MissingFactError
        Nobody quoted one.

    Examples
    --------
    >>> price = load("mi300x")
    >>> price.low, round(price.median, 2), price.high, price.n
    (1.5, 1.92, 6.0, 4)
    """
    found = _counting(quotes(name))
    if not found:
        raise _missing(name, Sentence("error.rental_price"), names())
    rates = sorted(quote.usd_per_hour for quote in found)
    return Price(
        accelerator=found[0].accelerator,
        low=rates[0],
        median=_median(rates),
        high=rates[-1],
        n=len(rates),
        oldest=min(quote.day for quote in found),
        newest=max(quote.day for quote in found),
        providers=tuple(dict.fromkeys(quote.provider for quote in found)),
        sources=tuple(dict.fromkeys(quote.source for quote in found)),
    )


def given(usd_per_hour: float) -> Price:
    """Price of one's own.

    Parameters
    ----------
    usd_per_hour : float
        Price of one device [USD/h].

    Returns
    -------
    Price
        With the same low, median and high, and no date.

    Raises
    ------
    InputError
        It is not more than 0.

    Examples
    --------
    >>> given(2.5).median
    2.5
    """
    if not 0 < usd_per_hour < float("inf"):
        raise InputError(Sentence("error.price_from_0", given=f"{usd_per_hour}"), Sentence("error.price_unit"))
    return Price("", usd_per_hour, usd_per_hour, usd_per_hour, 0)


def owner_cost(name: str) -> OwnerCost:
    """Owner's cost of an accelerator, which is not a rental price.

    Parameters
    ----------
    name : str
        A name or alias of the catalogue.

    Returns
    -------
    OwnerCost
        Of one device.

    Raises
    ------
    MissingFactError
        The catalogue has none.

    Examples
    --------
    >>> cost = owner_cost("h100")
    >>> cost.hyperscaler, cost.neocloud, cost.contract, cost.all_in_power
    (1.17, 1.55, 1.78, 1370.0)
    """
    entry = _owner_costs().get(_resolved(name))
    if entry is None:
        raise _missing(name, Sentence("error.owners_cost"), _owner_costs())
    return entry


def quotes(name: str | None = None) -> tuple[Quote, ...]:
    """All quotes, whether they count or not.

    Parameters
    ----------
    name : str or None
        A name or alias of the catalogue; None for all accelerators.

    Returns
    -------
    tuple of Quote
        In the order of the file; empty if nobody quoted a price.

    Examples
    --------
    >>> [(quote.provider, quote.offer, quote.usd_per_hour) for quote in quotes("4090")]
    [('RunPod', 'community', 0.34), ('RunPod', 'secure', 0.74)]
    """
    if name is None:
        return _quotes()
    wanted = _resolved(name)
    return tuple(quote for quote in _quotes() if quote.accelerator == wanted)


def names() -> list[str]:
    """Accelerators that have a rental price.

    Returns
    -------
    list of str
        Names of the catalogue.

    Examples
    --------
    >>> "h200-sxm" in names(), "m3-ultra" in names()
    (True, False)
    """
    return list(dict.fromkeys(quote.accelerator for quote in _quotes()))


def _counting(found: tuple[Quote, ...]) -> list[Quote]:
    """Quotes that count, by the module's rule."""
    if not found:
        return []
    newest = max(quote.day for quote in found)
    latest: dict[tuple[str, str], Quote] = {}
    for quote in sorted(found, key=lambda quote: quote.day):
        if (newest - quote.day).days <= STALE_DAYS:
            latest[quote.provider, quote.offer] = quote
    own = {quote.provider for quote in latest.values() if quote.kind == "quote"}
    return [quote for quote in latest.values() if quote.kind == "quote" or quote.provider not in own]


def _median(rates: list[float]) -> float:
    """Middle of a sorted list; the module `statistics` takes longer to import than all the rest here."""
    half = len(rates) // 2
    return rates[half] if len(rates) % 2 else (rates[half - 1] + rates[half]) / 2


def _resolved(name: str) -> str:
    try:
        return accelerator.resolve(name)
    except UnknownNameError:
        return name  # an accelerator of one's own has no price here, but is no mistake


def _missing(name: str, what: str, known: list[str] | dict[str, OwnerCost]) -> MissingFactError:
    near = closest(name, known)
    allowed = Sentence("error.closest_with_one", names=", ".join(near)) if near else ""
    return MissingFactError(
        Sentence("error.no_catalogue_price", what=what, name=repr(name)),
        allowed,
        Sentence("error.give_own_price"),
    )


@functools.cache
def _quotes() -> tuple[Quote, ...]:
    with (_DATA / "gpu_prices.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Quote(**{**row, "usd_per_hour": float(row["usd_per_hour"])})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        )


@functools.cache
def _owner_costs() -> dict[str, OwnerCost]:
    with (_DATA / "owner_costs.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["accelerator"]: OwnerCost(
                accelerator=row["accelerator"],
                hyperscaler=float(row["hyperscaler_usd_per_hour"]),
                neocloud=float(row["neocloud_usd_per_hour"]),
                contract=float(row["contract_usd_per_hour"]),
                all_in_power=float(row["all_in_kw"]) * 1e3 if row["all_in_kw"] else None,
                date=row["date"],
                source=row["source"],
            )
            for row in csv.DictReader(file)
        }
