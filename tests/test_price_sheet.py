"""Price sheets: one physics with the curve, published ratios, and laws."""

import math

import pytest

from batchline import cost, price_sheet, readings, sweep
from batchline.deployment import Deployment
from batchline.errors import InputError, MissingFactError
from batchline.price_sheet import CacheTier, cache_tiers, cache_usd_per_mtok, cheapest_tier


@pytest.fixture(scope="module")
def dense():
    return Deployment.of("llama-3.1-70b", "4xh100", weights="fp8")


@pytest.mark.parametrize("reading", ["predict", "bound", "serial"])
def test_output_and_fast_mode_are_points_of_the_curve(dense, reading):
    sheet = price_sheet.price_sheet(dense, 4096, 1024, reading=reading, batch=64, fast=1.5)
    fast = sheet.row("output, fast")
    batch = float(fast.why.split("batch ")[1].split(",")[0])
    curve = sweep.curve(dense, 4096 + 512, [batch, 64], reading=reading)
    assert sheet.row("output").usd_per_mtok_cost == pytest.approx(curve.usd_per_mtok[1])
    assert fast.usd_per_mtok_cost == pytest.approx(curve.usd_per_mtok[0], rel=0.01)
    assert curve.t_step[1] / curve.t_step[0] == pytest.approx(1.5, rel=0.01)
    # The lecture's arithmetic: price ratio = batch ratio / speed.
    assert price_sheet.fast_mode_batch_ratio(fast.times_base, 1.5) == pytest.approx(64 / batch, rel=0.01)


def test_context_tier_is_a_point_of_the_curve_at_that_context(dense):
    sheet = price_sheet.price_sheet(dense, 4096, 1024, reading="predict", contexts=[65536])
    row = sheet.row("output, 65,536 context")
    batch = float(row.why.split("batch ")[1].split(",")[0])
    curve = sweep.curve(dense, 65536 - 1024 + 512, [batch], reading="predict")
    assert row.usd_per_mtok_cost == pytest.approx(curve.usd_per_mtok[0])
    assert row.times_base > 1
    assert sheet.balance_context == sweep.balance_context(dense)


def test_margin_and_utilisation_scale_what_they_should(dense):
    plain = price_sheet.price_sheet(dense, 4096, 1024, batch=64, fast=1.5)
    half = price_sheet.price_sheet(dense, 4096, 1024, batch=64, utilisation=0.5, margin=0.5, fast=1.5)
    for name in ("input", "output", "output, fast"):
        assert half.row(name).usd_per_mtok_cost == pytest.approx(2 * plain.row(name).usd_per_mtok_cost)
        assert half.row(name).usd_per_mtok_price == pytest.approx(2 * half.row(name).usd_per_mtok_cost)
        assert half.row(name).times_base == pytest.approx(plain.row(name).times_base)
    # Batch mode fills the hours that would be idle: it is not charged for them.
    assert half.row("output, batch").usd_per_mtok_cost == pytest.approx(plain.row("output, batch").usd_per_mtok_cost)
    assert half.row("input, batch").times_base == pytest.approx(0.5)


def test_lines_of_output_have_the_interval_of_their_step(dense):
    sheet = price_sheet.price_sheet(dense, 4096, 1024, batch=64, utilisation=0.5)
    step = readings.steps(dense, 4096 + 512, 64, "predict").prediction
    got = sheet.row("output")
    # Cost = price of the machine x step / batch, over the share of the time that it is busy.
    for end, usd in ((step.low, got.usd_per_mtok_cost_low), (step.high, got.usd_per_mtok_cost_high)):
        assert usd == pytest.approx(dense.usd_per_hour / 3600 * end[0] / 64 * 1e6 / 0.5)
    for row in sheet.rows:
        if row.name.startswith("output"):
            assert row.usd_per_mtok_cost_low < row.usd_per_mtok_cost < row.usd_per_mtok_cost_high
        else:
            assert row.usd_per_mtok_cost_low is None
            assert row.usd_per_mtok_cost_high is None
    bound = price_sheet.price_sheet(dense, 4096, 1024, reading="bound").row("output")
    assert bound.usd_per_mtok_cost_low is None


def test_cached_input_is_far_cheaper_and_a_write_a_little_dearer(dense):
    sheet = price_sheet.price_sheet(dense, 8192, 1024)
    for hold in ("5 min", "1 h"):
        assert 0.005 < sheet.row(f"cached input, {hold}").times_base < 0.15
        assert 1.0 < sheet.row(f"cache write, {hold}").times_base < 2.0
    assert sheet.row("cache write, 1 h").times_base > sheet.row("cache write, 5 min").times_base


def test_a_shorter_promise_costs_more(dense):
    costs = [
        price_sheet.price_sheet(dense, 4096, 1024, tpot_s=limit).row("output").usd_per_mtok_cost
        for limit in (0.015, 0.02, 0.03)
    ]
    assert costs == sorted(costs, reverse=True)
    sheet = price_sheet.price_sheet(dense, 4096, 1024, tpot_s=0.02)
    assert sheet.tpot_s <= 0.02
    assert sweep.curve(dense, 4608, [sheet.batch + 1], reading="predict").t_step[0] > 0.02


# -- cache tiers -------------------------------------------------------------------------------------------------------


def test_capacity_and_bandwidth_cost_the_same_at_the_drain_time():
    for tier in cache_tiers():
        both = cache_usd_per_mtok(70_272, tier.drain_s, tier)
        assert both == pytest.approx(2 * cache_usd_per_mtok(70_272, 0.0, tier))
    disk = cache_tiers()[-1]
    assert disk.drain_s == pytest.approx(70_175, rel=1e-3)  # worked number C11: 19.5 h, not the hour of the lecture


def test_the_tier_follows_the_time_to_hold():
    tiers = [CacheTier("hbm", 4 * 80e9, 4 * 3.35e12, 8.0), *cache_tiers()]
    names = [cheapest_tier(327_680, 10.0**power, tiers).name for power in range(-3, 7)]
    order = [tier.name for tier in tiers]
    assert [order.index(name) for name in names] == sorted(order.index(name) for name in names)
    assert names[0] == "hbm"
    assert names[-1] in ("flash", "disk")


def test_reading_often_favours_bandwidth():
    slow, fast = CacheTier("slow", 1e15, 1e9, 1.0), CacheTier("fast", 1e12, 1e12, 1.0)
    assert cheapest_tier(1e5, 3600.0, [slow, fast], reads=0.01).name == "slow"
    assert cheapest_tier(1e5, 3600.0, [slow, fast], reads=1e4).name == "fast"


# -- what cannot be ----------------------------------------------------------------------------------------------------


def test_what_cannot_be_had_is_noted(dense):
    sheet = price_sheet.price_sheet(dense, 4096, 1024, batch=2, contexts=[2**20], fast=100.0)
    assert any("100 times as fast" in note for note in sheet.notes)
    assert any("beyond the model's" in note for note in sheet.notes)
    with pytest.raises(InputError, match="no line 'output, fast'"):
        sheet.row("output, fast")


def test_bad_input(dense):
    for options, message in [
        ({"utilisation": 0.0}, "Utilisation"),
        ({"margin": 1.0}, "margin"),
        ({"fast": 1.0}, "fast mode"),
        ({"batch": 1e6}, "does not fit"),
        ({"tpot_s": 1e-4}, "No step is as short"),
    ]:
        with pytest.raises(InputError, match=message):
            price_sheet.price_sheet(dense, 4096, 1024, **options)
    free = Deployment.of("llama-3.1-8b", "m3-ultra")
    with pytest.raises(MissingFactError, match="--price"):
        price_sheet.price_sheet(free, 1024, 256)


def test_json(dense):
    got = price_sheet.price_sheet(dense, 4096, 1024, margin=0.2).to_dict()
    assert {row["name"] for row in got["rows"]} >= {"input", "output", "output, batch", "cached input, 5 min"}
    assert math.isfinite(got["tpot_s"])


def test_owners_hour_of_the_catalogue_prices_the_sheet_in_proportion():
    own = Deployment.of("llama-3.1-70b", "4xh100", weights="fp8", usd_per_device_hour=1.17)
    rented = Deployment.of("llama-3.1-70b", "4xh100", weights="fp8", usd_per_device_hour=2.34)
    ratio = (
        price_sheet.price_sheet(own, 4096, 1024, batch=32).row("output").usd_per_mtok_cost
        / price_sheet.price_sheet(rented, 4096, 1024, batch=32).row("output").usd_per_mtok_cost
    )
    assert ratio == pytest.approx(0.5)
    assert cost.usd_per_month(4 * 1.17) == pytest.approx(3416.4)
