"""Offers and break-even points; what needs genai-prices is skipped without it."""

import datetime as dt

import pytest

from batchline import cost, market
from batchline.errors import BatchlineError, UnknownNameError
from batchline.market import Offer, compare


def test_break_even_by_hand():
    # A machine of 3.6 USD/h that takes half a second for a request: 0.0005 USD each when it is never idle.
    own = cost.token_costs(3.6, 0.1, 0.4, 1000, 200, utilisation=0.3)
    cheap, dear = compare(own, 3.6, [Offer("dear", "m", 0.5, 2.5), Offer("cheap", "m", 0.1, 0.5)], 1000, 200)
    assert (cheap.offer.provider, dear.offer.provider) == ("cheap", "dear")
    assert dear.api_usd_per_request == pytest.approx(0.001)
    assert dear.break_even_utilisation == pytest.approx(0.5)
    # Half of a month of 2,628,000 s, two requests a second
    assert dear.break_even_requests_per_month == pytest.approx(0.5 * 2_628_000 * 2)
    assert cheap.break_even_requests_per_month is None
    assert "cheaper at any volume" in str(cheap)
    assert "busy 50% of the time" in str(dear)


def test_cached_input_has_its_own_price_where_there_is_one():
    assert Offer("a", "m", 1.0, 2.0).usd_per_request(1e6, 0, 0.5) == 1.0
    assert Offer("a", "m", 1.0, 2.0, 0.2).usd_per_request(1e6, 0, 0.5) == pytest.approx(0.6)


def test_names_are_matched_whole():
    assert market._holds("meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b")
    assert not market._holds("meta-llama/Llama-3.1-7", "llama-3.1-70b")
    assert not market._holds("deepseek-v32-exp", "deepseek-v3")
    assert market._holds("deepseek-v3-base", "deepseek-v3")


def test_the_market_of_the_package():
    pytest.importorskip("genai_prices", reason="the extra market (pip install genai-prices) is not installed")
    found = market.offers("llama-3.1-70b")
    assert len(found) >= 3
    assert all(0 < offer.usd_per_mtok_output < 100 for offer in found)
    assert [offer.usd_per_mtok_output for offer in found] == sorted(offer.usd_per_mtok_output for offer in found)
    one = market.offers(f"{found[0].provider}:{found[0].model}")
    assert one == found[:1]
    assert market.release().startswith("genai-prices ")
    with pytest.raises(UnknownNameError, match="model on the market"):
        market.offers("a-model-of-tomorrow")
    # Prices have their day: what changed in October 2026 is what holds in December.
    early, late = (
        {(o.provider, o.model): o for o in market.offers("deepseek-v3", on=dt.datetime(2026, month, 1, tzinfo=dt.UTC))}
        for month in (9, 12)
    )
    assert early.keys() & late.keys()


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "genai_prices", None)
    with pytest.raises(BatchlineError, match=r"batchline\[market\]"):
        market.offers("llama-3.1-70b")


@pytest.mark.parametrize("name", ["", "-", "모델"])
def test_a_name_without_letters_is_no_model(name):
    pytest.importorskip("genai_prices", reason="the extra market (pip install genai-prices) is not installed")
    with pytest.raises(UnknownNameError):
        market.offers(name)
