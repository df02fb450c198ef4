"""Published arithmetic on what tokens cost, by the ids of the worked numbers."""

import csv
import doctest
import json
import re
from pathlib import Path

import pytest

from batchline import cost, price_sheet, roofline
from batchline.cost import TokenCosts, token_costs
from batchline.market import Offer, compare

H800_NODE = 16.0  # 8 devices at 2 USD/h, as DeepSeek counts


@pytest.fixture(scope="module")
def worked(shared):
    with (shared / "worked_numbers.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}

    def expected(name):
        row = rows[name]
        value = json.loads(row["expected"]) if row["expected"].startswith("[") else float(row["expected"])
        tolerance = float(row["tolerance"]) if re.fullmatch(r"[\d.e-]+", row["tolerance"]) else 0.0
        return pytest.approx(value, rel=max(tolerance, 1e-6))

    return expected


# -- DeepSeek, day 6 ---------------------------------------------------------------------------------------------------


def test_d01_cost_of_a_day(worked):
    assert worked("D01") == 226.75 * 24 * H800_NODE


def test_d02_d03_revenue_and_margin(worked):
    # 342e9 hits at $0.14, 266e9 misses at $0.55, 168e9 output tokens at $2.19 per million.
    revenue = (342e9 * 0.14 + 266e9 * 0.55 + 168e9 * 2.19) / 1e6
    assert revenue == worked("D02")
    assert worked("D03") == (562_027 - 87_072) / 87_072


def test_d04_nodes_balance(worked):
    # Seconds of a node that the day's tokens take, by the same split of time that prices tokens.
    prefill, decode = 608e9 / 73.7e3, 168e9 / 14.8e3
    assert (prefill + decode) / 86_400 == worked("D04")


def test_d05_cost_of_input_and_output(worked):
    day = token_costs(H800_NODE, 1 / 73.7e3, 1 / 14.8e3, 1, 1)
    assert [day.usd_per_mtok_input, day.usd_per_mtok_output] == worked("D05")
    assert day.usd_per_mtok_output / day.usd_per_mtok_input == pytest.approx(4.98, abs=0.005)
    # The whole day: its tokens at these costs are what its nodes cost.
    whole = (608e9 * day.usd_per_mtok_input + 168e9 * day.usd_per_mtok_output) / 1e6
    assert whole == pytest.approx(226.86 * 24 * H800_NODE, rel=1e-3)


def test_d06_concurrency(worked):
    assert worked("D06") == 14.8e3 / 21


def test_d07_kv_of_a_step(worked):
    read = 88.1 * 4989 * 70_272
    assert [read / 1e9, float(roofline.t_kv(88.1, 4989, 70_272, 3.35e12)) * 1e3] == worked("D07")


def test_d08_cache_hits(worked):
    assert worked("D08") == 342 / 608


# -- the lecture -------------------------------------------------------------------------------------------------------


def test_l15_cached_prices(worked):
    base, short, hour, hit = 5.0, 6.25, 10.0, 0.5
    assert [short / base, hour / base, hit / base] == worked("L15")
    # Physics can charge less: holding and fetching cost a few percent of computing, on a dated price of memory.
    kv = 70_272  # DeepSeek-V3, bytes per token
    computed = token_costs(H800_NODE, 1 / 73.7e3, 0.0, 1, 1).usd_per_mtok_input
    for hold in (300.0, 3600.0):
        tier = price_sheet.cheapest_tier(kv, hold, price_sheet.cache_tiers())
        assert price_sheet.cache_usd_per_mtok(kv, hold, tier) / computed < 0.1


def test_l16_l17_fast_mode(worked):
    assert worked("L16") == [30 / 5, 10 / 5]
    got = []
    for ratio in (6.0, 2.0):
        batch_ratio = price_sheet.fast_mode_batch_ratio(ratio, 2.5)
        got += [batch_ratio, price_sheet.fast_mode_slope(batch_ratio, 2.5)]
    assert got == worked("L17")
    # It is a point of the article's curve: w + k B at B and at B / 15, cost t / B.
    w, k, batch = 1.0, 1.8 / 150, 150
    slow, fast = w + k * batch, w + k * batch / 15
    assert slow / fast == pytest.approx(2.5)
    price = [roofline.usd_per_mtok(t, b, 1.0) for t, b in ((slow, batch), (fast, batch / 15))]
    assert price[1] / price[0] == pytest.approx(6.0)


def test_l18_slow_mode(worked):
    assert price_sheet.slow_mode_saving(1.8) == worked("L18")
    assert price_sheet.slow_mode_saving(3.0) == pytest.approx(0.25)


def test_lecture_cost_of_batch_1():
    # $2/h and 64 steps a second: a token of batch 1 costs 2,000 times one of batch 2,000 when weights decide.
    one, full = (roofline.usd_per_mtok(1 / 64, batch, 2.0) for batch in (1, 2000))
    assert one / full == pytest.approx(2000)


# -- Erdil -------------------------------------------------------------------------------------------------------------


def test_e09_reading_100k_of_context(worked):
    seconds = roofline.t_kv(1, 100_000, 360_448, 3.3e12)  # 88 layers x 8 heads x 2 x 128 x 2 bytes
    assert roofline.usd_per_mtok(36e9 / 3.3e12, 1, 2.0) == worked("E09")
    assert roofline.usd_per_mtok(seconds, 1, 2.0) == pytest.approx(6.06, rel=0.003)


def test_e13_compute_floor_of_a_70b(worked):
    full = roofline.usd_per_mtok(roofline.t_compute(1, 70.55e9, 1e15), 1, 2.0)
    assert [full, full / 0.7] == worked("E13")
    # The 70% cap is a utilisation: the same machine, busy for 70% of its time.
    costs = token_costs(2.0, 0.0, 2 * 70.55e9 / 1e15, 1, 1)
    assert costs.at(0.7).usd_per_mtok_output == pytest.approx(full / 0.7)


# -- an API ------------------------------------------------------------------------------------------------------------


def test_break_even_against_deepseeks_own_prices():
    # A node of DeepSeek's day against its API prices of then: busy 14% of the time it has paid for itself.
    own: TokenCosts = token_costs(H800_NODE, 0.4375 * 3619 / 73.7e3, 1000 / 14.8e3, 3619, 1000)
    api = Offer("deepseek", "r1", 0.55, 2.19, 0.14)
    (row,) = compare(own, H800_NODE, [api], 3619, 1000, 0.5625)
    assert row.api_usd_per_request == pytest.approx((3619 * (0.4375 * 0.55 + 0.5625 * 0.14) + 1000 * 2.19) / 1e6)
    assert row.break_even_utilisation == pytest.approx(own.usd_per_request / row.api_usd_per_request)
    assert 0.05 < row.break_even_utilisation < 0.2
    assert row.break_even_requests_per_month * row.api_usd_per_request == pytest.approx(cost.usd_per_month(H800_NODE))


@pytest.mark.parametrize("page", ["pricing.md", "plan.md"])
def test_examples_of_the_docs(page):
    path = Path(__file__).parents[1] / "docs" / page
    found = doctest.testfile(str(path), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0
    assert found.failed == 0
