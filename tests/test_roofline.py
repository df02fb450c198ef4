"""The article's model: laws, degenerate cases, and figures from the literature."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import roofline as r

BATCH = st.floats(1, 1e6)
PARAMS = st.floats(1e6, 3e12)
BYTES = st.floats(1e6, 3e12)
FLOPS = st.floats(1e12, 1e18)
BANDWIDTH = st.floats(1e11, 1e15)
CONTEXT = st.floats(0, 2e6)
KV = st.floats(0, 1e7)


@given(BATCH, PARAMS, BYTES, FLOPS, BANDWIDTH, CONTEXT, KV)
def test_a_step_is_never_shorter_than_any_part(batch, active, weight_bytes, flops, bandwidth, context, kv):
    parts = (
        r.t_compute(batch, active, flops),
        r.t_weights(weight_bytes, bandwidth),
        r.t_kv(batch, context, kv, bandwidth),
    )
    for reading in (r.t_step_bound, r.t_step_serial):
        assert all(reading(*parts) >= part for part in parts)


@given(BATCH, PARAMS, BYTES, FLOPS, BANDWIDTH, CONTEXT, KV)
def test_serial_lies_between_the_bound_and_twice_the_bound(batch, active, weight_bytes, flops, bandwidth, context, kv):
    parts = (
        r.t_compute(batch, active, flops),
        r.t_weights(weight_bytes, bandwidth),
        r.t_kv(batch, context, kv, bandwidth),
    )
    bound, serial = r.t_step_bound(*parts), r.t_step_serial(*parts)
    assert bound * (1 - 1e-12) <= serial <= 2 * bound * (1 + 1e-12)


@given(PARAMS, BYTES, FLOPS, BANDWIDTH, CONTEXT, KV)
def test_cost_never_rises_and_steps_never_shorten_with_the_batch(active, weight_bytes, flops, bandwidth, context, kv):
    batch = np.arange(1, 400, dtype=float)
    parts = (
        r.t_compute(batch, active, flops),
        r.t_weights(weight_bytes, bandwidth),
        r.t_kv(batch, context, kv, bandwidth),
    )
    for reading in (r.t_step_bound, r.t_step_serial):
        step = reading(*parts)
        cost = r.usd_per_mtok(step, batch, 10.0)
        assert np.all(np.diff(cost) <= 1e-12 * cost[:-1])
        assert np.all(np.diff(step) >= -1e-12 * step[:-1])


@given(PARAMS, BYTES, FLOPS, BANDWIDTH, CONTEXT, KV)
def test_compute_and_memory_cross_at_the_knee(active, weight_bytes, flops, bandwidth, context, kv):
    knee = r.knee_batch(weight_bytes, active, flops, context, kv, bandwidth)
    slope_compute, slope_kv = r.t_compute(1, active, flops), r.t_kv(1, context, kv, bandwidth)
    if slope_compute <= slope_kv:
        assert knee == np.inf
        return
    compute = r.t_compute(knee, active, flops)
    memory = r.t_memory(r.t_weights(weight_bytes, bandwidth), r.t_kv(knee, context, kv, bandwidth))
    # Where the slopes nearly agree, the crossing lies as far out as the rounding of their difference allows.
    rounding = 4e-16 * slope_compute / (slope_compute - slope_kv)
    assert compute == pytest.approx(memory, rel=1e-9 + rounding)


@given(PARAMS, BYTES, FLOPS, BANDWIDTH, CONTEXT, KV, BATCH)
def test_no_batch_gets_below_the_cost_floor(active, weight_bytes, flops, bandwidth, context, kv, batch):
    parts = (
        r.t_compute(batch, active, flops),
        r.t_weights(weight_bytes, bandwidth),
        r.t_kv(batch, context, kv, bandwidth),
    )
    for serial, reading in ((False, r.t_step_bound), (True, r.t_step_serial)):
        floor = r.cost_floor(active, flops, context, kv, bandwidth, serial=serial)
        assert reading(*parts) / batch >= floor * (1 - 1e-12)
        assert reading(*parts) >= r.t_weights(weight_bytes, bandwidth)


@given(BATCH, PARAMS, BYTES, FLOPS, BANDWIDTH, CONTEXT, KV, st.floats(1e-3, 1e3))
def test_a_machine_k_times_as_fast_takes_a_kth_of_the_time(
    batch, active, weight_bytes, flops, bandwidth, context, kv, k
):
    def step(scale):
        return r.t_step_bound(
            r.t_compute(batch, active, scale * flops),
            r.t_weights(weight_bytes, scale * bandwidth),
            r.t_kv(batch, context, kv, scale * bandwidth),
        )

    assert step(k) * k == pytest.approx(step(1), rel=1e-12)


@given(st.integers(1, 1000), st.integers(1, 16))
def test_coverage_counts_distinct_experts(experts, tokens):
    per_token = max(1, experts // 8)
    share = r.expert_coverage(tokens, experts, per_token)
    assert per_token / experts - 1e-12 <= share <= min(1.0, tokens * per_token / experts) + 1e-12


def test_no_knee_from_the_balance_context_on():
    active, flops, kv, bandwidth = 70e9, 989e12, 327680, 3.35e12
    balance = r.balance_context(active, flops, kv, bandwidth)
    assert np.isfinite(r.knee_batch(140e9, active, flops, balance * 0.999, kv, bandwidth))
    assert r.knee_batch(140e9, active, flops, balance * 1.001, kv, bandwidth) == np.inf


def test_without_context_the_knee_is_the_ridge():
    assert r.knee_batch(140e9, 70e9, 989e12, 0, 327680, 3.35e12) == pytest.approx(
        r.ridge_batch(140e9, 70e9, 989e12, 3.35e12), rel=1e-12
    )


def test_arrays_give_what_numbers_give():
    batch = np.array([1.0, 7.0, 300.0])
    kv = r.t_kv(batch, 4096, 327680, 3.35e12)
    step = r.t_step_serial(r.t_compute(batch, 70e9, 989e12), r.t_weights(140e9, 3.35e12), kv)
    for i, b in enumerate(batch):
        one = r.t_step_serial(
            r.t_compute(b, 70e9, 989e12), r.t_weights(140e9, 3.35e12), r.t_kv(b, 4096, 327680, 3.35e12)
        )
        assert step[i] == one


def test_utilisation_is_one_at_the_binding_resource():
    compute, weights, kv = 0.02, 0.010, 0.006
    step = r.t_step_bound(compute, weights, kv)
    assert r.mbu(step, weights, kv) == pytest.approx(0.8)
    assert r.mfu(0.02, 64, 70e9, 64 * 2 * 70e9 / 0.02) == pytest.approx(1.0)
