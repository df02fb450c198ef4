"""Costs: what must add up, what must scale, and hand arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import cost, price, roofline

positive = st.floats(1e-3, 1e3)
share = st.floats(0.0, 0.95)


@given(usd=positive, prompt=positive, decode=positive, isl=st.integers(1, 10**6), osl=st.integers(1, 10**5), hit=share)
def test_the_parts_of_a_request_add_up(usd, prompt, decode, isl, osl, hit):
    cached = prompt * hit / 2
    got = cost.token_costs(usd, prompt, decode, isl, osl, prefix_hit_rate=hit, cached_s=cached)
    parts = (
        got.usd_per_mtok_input * isl * (1 - hit) + got.usd_per_mtok_cached * isl * hit + got.usd_per_mtok_output * osl
    )
    assert parts / 1e6 == pytest.approx(got.usd_per_request, rel=1e-9)
    assert got.usd_per_request == pytest.approx(usd / 3600 * (prompt + decode))
    assert got.usd_per_mtok * osl / 1e6 == pytest.approx(got.usd_per_request)


@given(usd=positive, prompt=positive, decode=positive, use=st.floats(0.01, 1.0))
def test_an_idle_machine_is_paid_for_like_a_busy_one(usd, prompt, decode, use):
    # Whatever the utilisation, dollars per hour = dollars per request x requests per hour.
    got = cost.token_costs(usd, prompt, decode, 1000, 100, utilisation=use)
    requests_per_hour = use * 3600 / (prompt + decode)
    assert got.usd_per_request * requests_per_hour == pytest.approx(usd)
    full = cost.token_costs(usd, prompt, decode, 1000, 100)
    assert full.at(use).usd_per_mtok_input == pytest.approx(got.usd_per_mtok_input)
    assert full.at(use).at(1.0).usd_per_request == pytest.approx(full.usd_per_request)


def test_arrays_give_what_numbers_give():
    usd, prompt, decode = np.array([1.0, 5.0]), np.array([0.1, 0.2]), np.array([0.3, 0.1])
    many = cost.token_costs(usd, prompt, decode, 2000, 300, prefix_hit_rate=0.5, cached_s=prompt / 10)
    for i in range(2):
        one = cost.token_costs(usd[i], prompt[i], decode[i], 2000, 300, prefix_hit_rate=0.5, cached_s=prompt[i] / 10)
        assert one.usd_per_mtok_cached == pytest.approx(many.usd_per_mtok_cached[i])
        assert one.prefill_share == pytest.approx(many.prefill_share[i])


def test_a_request_without_cached_tokens_has_no_cost_of_cached_tokens():
    got = cost.token_costs(1.0, 0.1, 0.1, 100, 100)
    assert got.usd_per_mtok_cached == 0.0


def test_the_triangle_of_causal_attention_divides_into_three():
    for hit in (0.0, 0.25, 0.9, 1.0):
        own, corner = (1 - hit) ** 2, hit**2
        assert own + corner + cost.cached_prompt_s(1.0, hit) == pytest.approx(1.0)


def test_decode_cost_is_the_roofline_formula():
    step, batch, usd = 0.0198, 142, 8.4
    seconds = cost.decode_s(step, batch, 500)
    got = cost.token_costs(usd, 0.0, seconds, 1, 500)
    assert got.usd_per_mtok_output == pytest.approx(roofline.usd_per_mtok(step, batch, usd))
    assert got.usd_per_mtok == pytest.approx(got.usd_per_mtok_output)


def test_annuity_against_the_textbook():
    # 100,000 over 5 years at 6%: 23,739.64 a year (any annuity table).
    assert 100_000 * cost.annuity(5, 0.06) == pytest.approx(23_739.64, abs=0.01)
    assert cost.annuity(np.array([4.0, 5.0])).tolist() == [0.25, 0.2]
    assert cost.annuity(4, 1e-9) == pytest.approx(0.25, rel=1e-6)


@given(capex=st.floats(1e3, 1e6), years=st.floats(1, 10), interest=st.floats(0.0, 0.3))
def test_paying_the_annuity_pays_the_debt_off(capex, years, interest):
    years = round(years)
    paid = sum(capex * cost.annuity(years, interest) / (1 + interest) ** year for year in range(1, years + 1))
    assert paid == pytest.approx(capex, rel=1e-9)


def test_owner_hour_by_hand():
    # 35,040 over 4 years = 1 USD/h; 1 kW x 1.5 x 0.1 = 0.15 USD/h; 876 a year = 0.1 USD/h.
    hour = cost.owner_usd_per_hour(35_040, 4, 1000, 0.1, 1.5, usd_per_year=876)
    assert hour == pytest.approx(1.25)
    # Sold for the whole sum in the end, without interest, only running cost stays.
    assert cost.owner_usd_per_hour(35_040, 4, 1000, 0.1, 1.5, residual_usd=35_040) == pytest.approx(0.15)


def test_dated_prices_spread_a_cost_in_proportion():
    h100 = price.load("h100")
    spread = cost.usd_range(0.5, h100)
    assert spread["median"] == 0.5
    assert spread["low"] / spread["high"] == pytest.approx(h100.low / h100.high)


def test_joules():
    # 8 x 700 W over 14,800 tokens/s at PUE 1.3
    assert cost.joules_per_token(5600, 14_800, 1.3) == pytest.approx(0.4919, abs=1e-4)


def test_break_even_with_an_api():
    assert cost.break_even_requests(2.0, 0.001) == pytest.approx(1_460_000)
    assert cost.break_even_requests(2.0, 0.001, usd_per_request=0.002) == np.inf
    many = cost.break_even_requests(np.array([2.0, 4.0]), 0.002, usd_per_request=0.001)
    assert many.tolist() == pytest.approx([1_460_000, 2_920_000])


@given(usd=positive, prompt=st.floats(0.01, 1), decode=st.floats(0.01, 1), api=st.floats(1e-5, 1.0))
def test_break_even_volume_and_utilisation_are_the_same_point(usd, prompt, decode, api):
    full = cost.token_costs(usd, prompt, decode, 1, 1)
    use = cost.break_even_utilisation(full.usd_per_request, api)
    month = cost.HOURS_PER_MONTH * 3600 / (prompt + decode)
    assert use * month == pytest.approx(cost.break_even_requests(usd, api))
