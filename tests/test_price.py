"""Prices: the quotes that count, their age, and what is not known."""

import csv
import datetime as dt
import statistics

import pytest

from batchline import accelerator, price
from batchline.errors import InputError, MissingFactError
from batchline.price import Quote

TODAY = dt.date(2026, 11, 30)


def quote(usd, date, provider="A", offer="", kind="quote"):
    return Quote("h100-sxm", provider, offer, kind, usd, date, "test", "")


def counted(*quotes):
    return sorted(found.usd_per_hour for found in price._counting(quotes))


def test_all_quotes_are_of_known_accelerators_dated_and_sourced():
    assert len(price.quotes()) >= 95
    for found in price.quotes():
        assert found.accelerator in accelerator.names()
        assert found.kind in {"quote", "average"}
        assert 0.1 < found.usd_per_hour < 20
        assert dt.date(2025, 1, 1) <= found.day <= TODAY
        assert len(found.source) > 10


def test_every_public_on_demand_quote_is_here(shared):
    with (shared / "catalog" / "gpu_prices.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rentals = [
        row
        for row in rows
        if not row["provider"].startswith(("owner TCO", "contract")) and not row["date"].startswith("older")
    ]
    theirs = sorted(float(row["on_demand_usd_per_gpu_hour"]) for row in rentals)
    ours = sorted(found.usd_per_hour for found in price.quotes())
    ours.remove(2.40)  # a note there: the same marketplace, twelve days later
    assert ours == theirs


@pytest.mark.parametrize(
    ("name", "rates"),  # the spread that the catalogue's notes state for September to November 2026
    [
        ("h100", [2.69, 3.49, 3.99, 6.88, 12.29]),
        ("h200", [6.305]),
        ("b200", [5.00, 7.15]),
        ("b300", [6.00, 7.89]),
        ("a100", [1.39, 3.4309]),
        ("l40s", [0.79, 1.55]),
        ("4090", [0.34, 0.74]),
        ("mi300x", [1.50, 6.00]),
    ],
)
def test_the_known_spread_is_inside(name, rates):
    found = price.load(name)
    assert found.low <= min(rates)
    assert found.high >= max(rates)
    assert set(rates) <= {quote.usd_per_hour for quote in price.quotes(name)}


@pytest.mark.parametrize("name", price.names())
def test_low_median_high_are_those_of_the_quotes_that_count(name):
    found = price.load(name)
    rates = [quote.usd_per_hour for quote in price._counting(price.quotes(name))]
    assert (found.low, found.median, found.high) == (min(rates), statistics.median(rates), max(rates))
    assert found.n == len(rates)
    assert found.dates == (found.oldest, found.newest)
    assert found.providers
    assert found.sources


def test_a_newer_quote_of_the_same_offer_replaces_the_older():
    assert counted(quote(3.0, "2026-09-25"), quote(4.0, "2026-11-09")) == [4.0]
    assert counted(quote(3.0, "2026-09-25", offer="secure"), quote(4.0, "2026-11-09")) == [3.0, 4.0]


def test_quotes_much_older_than_the_newest_do_not_count():
    assert counted(quote(3.0, "2026-08-11", "A"), quote(4.0, "2026-11-09", "B")) == [3.0, 4.0]
    assert counted(quote(3.0, "2026-08-10", "A"), quote(4.0, "2026-11-09", "B")) == [4.0]
    assert counted(quote(3.0, "2026", "A"), quote(4.0, "2026-11-09", "B")) == [4.0]
    assert counted(quote(3.0, "2026", "A")) == [3.0]


def test_an_average_over_variants_counts_only_without_a_quote_of_the_provider():
    assert counted(quote(3.0, "2026-09-25"), quote(4.0, "2026-10-24", offer="average", kind="average")) == [3.0]
    assert counted(quote(3.0, "2026-09-25", "B"), quote(4.0, "2026-10-24", offer="average", kind="average")) == [
        3.0,
        4.0,
    ]


def test_a_coarse_date_counts_as_its_first_day():
    assert quote(1, "2026").day == dt.date(2026, 1, 1)
    assert quote(1, "2026-10").day == dt.date(2026, 10, 1)
    assert quote(1, "2026-10-24").day == dt.date(2026, 10, 24)


def test_h200_without_a_variant_is_the_sxm_part_and_h100_of_all_variants_too():
    assert any(found.note == "listed as H200" for found in price.quotes("h200-sxm"))
    assert any(found.note == "listed as H100 (all variants)" for found in price.quotes("h100-sxm"))
    assert not any(found.kind == "average" for found in price.quotes("h100-pcie"))


def test_age_and_the_warning_from_ninety_days_on():
    found = price.load("h100")
    assert found.newest == dt.date(2026, 11, 9)
    assert found.age_days(TODAY) == 21
    assert found.age_days(dt.date(2026, 11, 1)) == 0
    assert found.stale_warning(dt.date(2027, 2, 7)) is None  # 90 days
    warning = found.stale_warning(dt.date(2027, 2, 8))
    assert "91 days old" in warning
    assert "--price" in warning
    assert price.load("mi300x").stale_warning(TODAY)
    assert price.load("h100").age_days() >= 0


def test_a_price_that_is_given():
    found = price.given(2.5)
    assert (found.low, found.median, found.high, found.n, found.dates) == (2.5, 2.5, 2.5, 0, None)
    assert found.age_days(TODAY) == 0
    assert found.stale_warning(TODAY) is None
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="more than 0"):
            price.given(wrong)


@pytest.mark.parametrize("name", ["m3-ultra", "gaudi3", "my-own-chip"])
def test_an_unknown_price_is_an_error_with_a_way_out(name):
    with pytest.raises(MissingFactError) as caught:
        price.load(name)
    assert "--price" in caught.value.hint
    with pytest.raises(MissingFactError, match="owner's cost"):
        price.owner_cost(name)


@pytest.mark.parametrize(
    ("name", "hyperscaler", "neocloud", "contract", "kilowatts"),
    [
        ("h100", 1.17, 1.55, 1.78, 1.37),
        ("b200", 1.73, 2.07, 2.60, 1.71),
        ("gb300", 2.31, 2.79, 3.30, 2.12),
        ("mi355x", 1.50, 2.09, 2.10, 2.09),
        ("h200", 1.22, 1.59, 2.05, None),
    ],
)
def test_owners_cost(name, hyperscaler, neocloud, contract, kilowatts):
    cost = price.owner_cost(name)
    assert (cost.hyperscaler, cost.neocloud, cost.contract) == (hyperscaler, neocloud, contract)
    assert cost.all_in_power == (None if kilowatts is None else pytest.approx(kilowatts * 1e3))
    assert cost.date == "2026-08-15"
    assert cost.source


def test_owners_cost_is_never_among_the_rental_prices():
    for name in ("h100", "h200", "b200", "b300", "mi300x", "mi325x"):
        assert price.owner_cost(name).hyperscaler < price.load(name).low
