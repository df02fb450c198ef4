"""Goodput: against a small simulation, and laws of the search."""

import heapq
import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchline import serving
from batchline.errors import InputError, UnknownNameError
from batchline.goodput import Promise, Server, batch_for, chance, factor_at, goodput, point
from batchline.step import Coefficients, ideal

from .strategies import examples

ENGINE = Coefficients(
    weight_read=1.3, kv_read=1.4, layer_overhead=40e-6, prefill_linear=1.6, prefill_share=1.1, ttft_constant=0.03,
    ttft_steps=2.9, sequence_overhead=12e-6,
)  # fmt: skip


def dense(**changes):
    numbers = {
        "weight_bytes": 15e9, "kv_read_bytes": 1536 * 131072, "active_params": 7.5e9, "layers": 32,
        "bandwidth": 3.35e12, "flops": 989e12, "flops_bf16": 989e12, "prompt_attention_flops": 1e12,
    }  # fmt: skip
    return ideal(**(numbers | changes))


def server(**changes):
    given = {"ideal": dense(), "coefficients": ENGINE, "isl": 1024, "osl": 512, "capacity_batch": 300.0}
    return Server(**(given | changes))


def simulated_server(one, rate, slots, n, seed=5):
    """Replica by events: all decode at the pace of the batch, a prompt stops them, a full table makes others wait."""
    rng = random.Random(seed)  # noqa: S311
    load = one.load
    arrivals = list(itertools.accumulate(rng.expovariate(rate) for _ in range(n)))
    prompt = float(load.prompt_s(0.0)) * one.coefficients.prefill_share
    steps = [float(load.step_s(b)) for b in range(1, slots + 2)]
    ends, starts, waits, tpots = [], {}, [], []  # ends: the step after which a request is done
    clock, step_index, i = 0.0, 0, 0
    while len(tpots) < n * 0.8:
        while i < n and arrivals[i] <= clock and len(ends) < slots:
            waits.append(clock - arrivals[i])
            clock += prompt
            heapq.heappush(ends, (step_index + one.osl, i))
            starts[i] = clock
            i += 1
        if not ends:
            clock = max(clock, arrivals[i])
            continue
        clock += steps[len(ends) - 1]
        step_index += 1
        while ends and ends[0][0] <= step_index:
            tpots.append((clock - starts[heapq.heappop(ends)[1]]) / one.osl)
    skip = len(tpots) // 10
    return np.array(tpots[skip:]), np.array(waits[skip:])


@pytest.mark.parametrize("rate", [4.0, 8.0, 12.0])
def test_tpot_and_its_tail_against_a_simulated_engine(rate):
    one = server(osl=128)
    batch = batch_for(one, rate, np.array(300.0))
    shown = point(one, batch, 300.0, {"tpot": Promise(1.0, 95)})
    tpots, _ = simulated_server(one, rate, 300, 12_000)
    assert float(shown.requests_per_s) == pytest.approx(rate, rel=1e-4)
    assert float(shown.tpot_s) == pytest.approx(tpots.mean(), rel=0.03)
    assert float(shown.kept["tpot"]) == pytest.approx(np.percentile(tpots, 95), rel=0.07)


@pytest.mark.parametrize("rate", [0.5, 1.5, 2.5])
def test_long_prompts_and_short_answers_against_a_simulated_engine(rate):
    # The prompts that queue behind mine are computed before I go on: six times the step at 2.5/s.
    one = server(isl=8192, osl=16)
    batch = batch_for(one, rate, np.array(300.0))
    shown = point(one, batch, 300.0, {})
    tpots, _ = simulated_server(one, rate, 300, 20_000)
    assert float(shown.requests_per_s) == pytest.approx(rate, rel=1e-3)
    assert float(shown.tpot_s) == pytest.approx(tpots.mean(), rel=0.05)


@pytest.mark.parametrize(
    ("isl", "osl", "rate", "low", "high"),
    # The extremes that docs/plan.md names: short near saturation, long where few answers meet a prompt.
    [(2048, 32, 11.0, -0.20, 0.0), (4096, 128, 4.5, -0.14, 0.0), (8192, 16, 0.5, 0.0, 0.42)],
)
def test_the_tail_where_prompts_dominate_is_as_far_off_as_the_docs_say(isl, osl, rate, low, high):
    one = server(isl=isl, osl=osl)
    shown = point(one, batch_for(one, rate, np.array(300.0)), 300.0, {"tpot": Promise(1.0, 95)})
    tpots, _ = simulated_server(one, rate, 300, 20_000)
    assert low <= float(shown.kept["tpot"]) / np.percentile(tpots, 95) - 1.0 <= high


@pytest.mark.parametrize(("rate", "least"), [(9.0, 0.5), (10.5, 0.85)])
def test_waits_for_a_slot_against_a_simulated_engine(rate, least):
    one = server(osl=128)
    slots = 20
    batch = batch_for(one, rate, np.array(float(slots)))
    _, waits = simulated_server(one, rate, slots, 40_000)
    shown = point(one, batch, float(slots), {"ttft": Promise(1.0, 95)})
    waited = float(shown.prompt_wait_s + shown.slot_wait_s)
    assert least * np.percentile(waits, 95) <= waited <= 1.2 * np.percentile(waits, 95)


positive = st.floats(0.05, 5.0)


@settings(max_examples=examples(40))
@given(tpot=st.floats(0.007, 0.08), ttft=st.floats(0.2, 5.0), isl=st.integers(32, 8192), osl=st.integers(16, 2048))
def test_the_load_found_keeps_the_promises_and_a_little_more_does_not(tpot, ttft, isl, osl):
    promises = {"tpot": Promise(tpot, 95), "ttft": Promise(ttft, 95)}
    one = server(isl=isl, osl=osl)
    found = goodput(one, promises)
    if not found.keeps:
        alone = point(one, 1e-6, 300.0, promises)
        assert alone.kept["tpot"] > tpot * 0.999 or alone.kept["ttft"] > ttft * 0.999
        return
    for name, promise in promises.items():
        assert found.point.kept[name] <= promise.seconds * (1 + 1e-6)
    assert found.point.batch <= found.slots <= 300
    more = np.asarray(found.point.batch) * 1.01 + 1e-3
    narrow = point(one, more, found.slots, promises)
    full = point(one, more, one.slots, promises)
    assert not (
        (narrow.kept["ttft"] <= ttft and narrow.kept["tpot"] <= tpot and np.isfinite(narrow.ttft_s))
        and (full.kept["ttft"] <= ttft and full.kept["tpot"] <= tpot and np.isfinite(full.ttft_s))
    )


@settings(max_examples=examples(30))
@given(isl=st.integers(32, 16384), osl=st.integers(4, 4096))
def test_load_grows_with_the_batch(isl, osl):
    one = server(isl=isl, osl=osl)
    batches = np.geomspace(0.01, 299, 60)
    rates = np.asarray(point(one, batches, 300.0, {}).requests_per_s)
    assert np.all(np.diff(rates) > 0)
    times = np.asarray(point(one, batches, 300.0, {}).tpot_s)
    assert np.all(np.diff(times) >= 0)


def test_looser_promises_and_more_memory_never_carry_less():
    loads = []
    for tpot, ttft, capacity in [(0.010, 0.5, 60), (0.012, 0.5, 60), (0.012, 1.0, 60), (0.012, 1.0, 300)]:
        promises = {"tpot": Promise(tpot, 99), "ttft": Promise(ttft, 95)}
        loads.append(float(goodput(server(capacity_batch=float(capacity)), promises).point.requests_per_s))
    assert np.all(np.diff(loads) >= -1e-6)


def test_what_stops_more_load():
    def why(**changes):
        promises = {name: Promise.parse(changes.pop(name)) for name in ("tpot", "ttft") if name in changes}
        return str(goodput(server(**changes), promises).saturated_by)

    assert why(tpot="p95:9ms") == "step_limit"
    assert why(ttft="1s", capacity_batch=16.0) == "kv"
    assert why(ttft="1s", capacity_batch=500.0, max_batch=16) == "max_num_seqs"
    assert why(ttft="0.5s", isl=8192, osl=8, capacity_batch=5000.0) == "prefill"


def test_arrays_give_what_numbers_give():
    capacities = np.array([20.0, 80.0, 300.0])
    many = goodput(server(capacity_batch=capacities), {"tpot": Promise.parse("p95:12ms"), "ttft": Promise.parse("1s")})
    for i, capacity in enumerate(capacities):
        one = goodput(server(capacity_batch=capacity), {"tpot": Promise.parse("p95:12ms"), "ttft": Promise.parse("1s")})
        assert float(one.point.requests_per_s) == pytest.approx(many.point.requests_per_s[i])
        assert float(one.slots) == many.slots[i]
        assert str(one.saturated_by) == many.saturated_by[i]


def test_the_step_is_that_of_serving():
    one = server()
    steady = serving.closed_loop(one.ideal, one.coefficients, 40, one.isl, one.osl, one.capacity_batch)
    assert float(one.tpot_s(steady.running_batch)) == pytest.approx(float(steady.tpot_s))
    # With many requests in flight the closed and the open loop meet.
    batch = batch_for(one, float(steady.requests_per_s), np.array(300.0))
    assert float(batch) == pytest.approx(float(steady.running_batch), rel=0.05)


def test_people_who_think():
    one = server()
    batch = batch_for(one, 100.0, np.array(300.0), think_s=20.0)
    shown = point(one, batch, 300.0, {})
    # Little: people = rate x (think + whole request)
    assert float(shown.requests_per_s * (20.0 + shown.e2e_s)) == pytest.approx(100.0, rel=1e-4)


def test_longest_gap_grows_with_the_budget():
    gaps = [float(server(budget=budget, isl=8192).longest_gap_s(64)) for budget in (512, 2048, 8192, 32768)]
    assert gaps == sorted(gaps)
    assert gaps[0] < gaps[2] == gaps[3]


FACTORS = (1.17, 1.38, 1.55)


def test_chance_hits_the_factors_it_is_made_of():
    for factor, held in zip(FACTORS, (0.5, 0.8, 0.9), strict=True):
        assert chance(factor, FACTORS) == pytest.approx((1 + held) / 2, abs=1e-6)
        assert chance(1 / factor, FACTORS) == pytest.approx((1 - held) / 2, abs=1e-6)
    assert chance(0.0, FACTORS) == pytest.approx(0.0, abs=1e-12)
    assert chance(1e9, FACTORS) == pytest.approx(1.0)


@given(confidence=st.floats(0.5, 0.99))
def test_factor_is_the_inverse_of_chance(confidence):
    factor = factor_at(confidence, FACTORS)
    assert factor >= 1.0
    assert chance(factor, FACTORS) == pytest.approx(confidence, abs=1e-4)


def test_promises_are_read_or_refused():
    assert Promise.parse("P99.9: 40ms") == Promise(0.04, 99.9)
    assert str(Promise.parse("p95:2s")) == "p95:2s"
    assert str(Promise.parse("40ms")) == "40ms"
    for text in ("p0:2s", "p100:2s"):
        with pytest.raises(InputError):
            Promise.parse(text)
    with pytest.raises(InputError):
        Promise(0.0)
    with pytest.raises(UnknownNameError, match="promise 'latency'"):
        goodput(server(), {"latency": Promise(1.0)})
    with pytest.raises(InputError, match="confidence"):
        factor_at(0.3, FACTORS)
