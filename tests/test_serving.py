"""Steady states: queueing theory, Little's law, published arithmetic, and laws."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import goodput, serving, step

ENGINE = step.Coefficients(
    weight_read=1.3, kv_read=1.4, layer_overhead=48e-6, prefill_linear=1.6, prompt_overhead=3e-3, ttft_constant=0.026,
    ttft_steps=2.9, arrival_clumping=0.07,
)  # fmt: skip


def _one(**changes):
    numbers = {
        "weight_bytes": 15e9,
        "kv_read_bytes": 1536 * 131072,
        "active_params": 7.5e9,
        "layers": 32,
        "bandwidth": 3.35e12,
        "flops": 989e12,
        "flops_bf16": 989e12,
        "prompt_attention_flops": 2 * 1024**2 * 32 * 4096,
    }
    return step.ideal(**numbers | changes)


def test_speculation_yields_the_bonus_token():
    # theory.md E15: 3.3616 tokens for acceptance .8 and 4 drafted (Leviathan), not the paper's 2.952.
    assert serving.tokens_per_step(serving.Speculation(0.8, 4)) == pytest.approx(3.3616)
    assert serving.tokens_per_step(serving.Speculation(1.0, 4)) == 5.0
    assert serving.tokens_per_step(serving.Speculation(0.0, 4)) == 1.0


def test_an_engine_that_looks_less_often_for_requests_lets_them_wait():
    """Arithmetic: half of 30 steps on average, for requests that come at any moment."""
    often, seldom = (
        serving.closed_loop(_one(), ENGINE, 16, 1024, 1e6, admission_interval=steps) for steps in (0.0, 30.0)
    )
    step_s = float(step.decode_step(_one(), ENGINE, seldom.running_batch).total)
    assert seldom.ttft_s - often.ttft_s == pytest.approx(15 * step_s, rel=1e-3)
    assert seldom.running_batch < often.running_batch
    open_often, open_seldom = (
        serving.open_loop(_one(), ENGINE, 2.0, 1024, 256, 500, admission_interval=steps) for steps in (0.0, 30.0)
    )
    assert open_seldom.ttft_s > open_often.ttft_s
    assert open_seldom.tpot_s == open_often.tpot_s


def test_a_mean_over_a_run_holds_its_opening_burst():
    """Arithmetic: the k-th of 64 prompts that come at once waits for k - 1 others; of 640 requests it is a tenth."""
    steady, burst, run = (
        serving.closed_loop(_one(), ENGINE, 64, 1024, 1e7, opening_share=share) for share in (0.0, 1.0, 0.1)
    )
    prompt_s = float(step.prefill(_one(), ENGINE, 1024, batch=64).total)
    assert burst.ttft_s - steady.ttft_s == pytest.approx(np.mean(np.arange(64)) * prompt_s, rel=1e-3)
    assert run.ttft_s - steady.ttft_s == pytest.approx(0.1 * np.mean(np.arange(64)) * prompt_s, rel=1e-3)
    alone = [serving.closed_loop(_one(), ENGINE, 1, 1024, 256, opening_share=share).ttft_s for share in (0.0, 1.0)]
    assert alone[0] == alone[1]


def test_little_holds_in_the_closed_loop():
    state = serving.closed_loop(_one(), ENGINE, 64, 1024, 1024, 500)
    assert state.requests_per_s * state.e2e_s == pytest.approx(64)
    assert state.running_batch == pytest.approx(64 * 1024 * state.tpot_s / (1024 * state.tpot_s + state.ttft_s))
    assert state.saturated_by is None
    assert state.output_tokens_per_s == pytest.approx(state.requests_per_s * 1024)


def test_little_holds_in_the_open_loop():
    state = serving.open_loop(_one(), ENGINE, 5.0, 1024, 1024, 500)
    assert state.requests_per_s == 5.0
    assert state.running_batch == pytest.approx(5.0 * 1024 * state.tpot_s)


def test_an_arrival_meets_one_more_than_a_client_of_a_closed_loop():
    # Arrival theorem: in the closed loop a request meets the others, in the open loop as many as there are on average.
    closed = serving.closed_loop(_one(), ENGINE, 64, 1024, 1024, 500)
    found = serving.open_loop(_one(), ENGINE, closed.running_batch / (1024 * closed.tpot_s), 1024, 1024, 500)
    assert closed.tpot_s < found.tpot_s < 1.04 * closed.tpot_s


def test_open_loop_is_the_point_of_goodput():
    server = goodput.Server(_one(dp=2), ENGINE, 1024, 512, 200.0, max_batch=80, arrival_scv=4.0, length_scv=0.5)
    rates = np.array([1.0, 5.0, 15.0])
    batch = goodput.batch_for(server, rates, np.array(server.slots))
    shown = goodput.point(server, batch, server.slots, {})
    found = serving.open_loop(
        _one(dp=2), ENGINE, rates, 1024, 512, 200.0, max_num_seqs=80, arrival_scv=4.0, length_scv=0.5
    )
    for name in ("tpot_s", "ttft_s", "e2e_s"):
        np.testing.assert_allclose(getattr(found, name), getattr(shown, name), rtol=1e-3)
    np.testing.assert_allclose(found.running_batch, shown.batch, rtol=1e-3)


def test_bursts_lengthen_ttft_and_a_metronome_shortens_it():
    even, poisson, bursts = (
        serving.open_loop(_one(), ENGINE, 12.0, 2048, 128, 500, arrival_scv=scv).ttft_s for scv in (0.0, 1.0, 9.0)
    )
    assert even < poisson < bursts


def test_full_cache_makes_clients_wait():
    state = serving.closed_loop(_one(), ENGINE, 400, 1024, 1024, 100)
    assert state.running_batch == 100
    assert state.saturated_by == "kv"
    assert state.kv_use == 1.0
    assert state.ttft_s > 3 * 1024 * state.tpot_s


def test_slots_limit_each_data_parallel_rank():
    state = serving.closed_loop(_one(dp=2), ENGINE, 400, 1024, 1024, 1000, max_num_seqs=64)
    assert state.running_batch == 128
    assert state.saturated_by == "max_num_seqs"


def test_rate_beyond_the_cache_is_not_sustained():
    state = serving.open_loop(_one(), ENGINE, 1000.0, 1024, 1024, 100)
    assert state.saturated_by == "kv"
    assert state.ttft_s == np.inf
    assert state.requests_per_s < 1000


def test_prompts_saturate_an_engine_of_long_inputs_and_short_outputs():
    state = serving.open_loop(_one(prompt_attention_flops=1e15), ENGINE, 1000.0, 32768, 8)
    assert state.saturated_by == "prefill"


def test_endless_decoding_saturates_the_step():
    assert serving.open_loop(_one(), ENGINE, 1000.0, 16, 4096).saturated_by == "step_limit"


def test_prefix_cache_spares_prefill():
    cold, warm = (serving.closed_loop(_one(), ENGINE, 64, 1024, 256, prefix_hit_rate=h) for h in (0.0, 0.9))
    assert warm.ttft_s < cold.ttft_s
    assert warm.tpot_s < cold.tpot_s
    assert warm.prefill_s > ENGINE.prompt_overhead


def test_small_token_budget_lengthens_ttft():
    wide, narrow = (serving.closed_loop(_one(), ENGINE, 8, 8192, 256, max_num_batched_tokens=n) for n in (8192, 512))
    assert narrow.ttft_s > wide.ttft_s


def test_synchronised_clients_wait_longer():
    random, together = (serving.closed_loop(_one(), ENGINE, 64, 1024, 256, arrival_clumping=k) for k in (0.07, 1.0))
    assert together.ttft_s > 2 * random.ttft_s


def test_speculation_pays_for_few_sequences_only():
    short, drafts = _one(kv_read_bytes=64 * 131072), serving.Speculation(acceptance=0.8, draft_tokens=4, draft_s=1e-4)
    batch = serving.break_even_batch(short, ENGINE, drafts)
    assert 10 < batch < 10000
    for factor, wins in ((0.5, True), (2.0, False)):
        plain = step.decode_step(short, ENGINE, batch * factor).total
        drafted = step.decode_step(short, ENGINE, batch * factor, tokens_per_sequence=5).total + 4e-4
        assert (drafted / 3.3616 < plain) == wins


def test_speculation_always_pays_where_the_cache_fetch_dominates():
    assert serving.break_even_batch(_one(), ENGINE, serving.Speculation(0.8, 4)) == np.inf


def test_useless_drafts_never_pay():
    assert serving.break_even_batch(_one(), ENGINE, serving.Speculation(0.0, 4, 1e-3)) == 0.0


def test_events_hold_several_tokens_under_speculation():
    state = serving.closed_loop(_one(), ENGINE, 8, 1024, 1024, speculation=serving.Speculation(0.8, 4))
    assert state.itl_s == pytest.approx(3.3616 * state.tpot_s)


def test_apart_prefill_does_not_disturb_decoding():
    together = serving.closed_loop(_one(), ENGINE, 64, 8192, 256)
    apart = serving.disaggregated(_one(), _one(), ENGINE, 64, 8192, 256, transfer_s=0.02)
    assert apart.tpot_s < together.tpot_s
    assert apart.interference_s == 0.0
    assert serving.pool_ratio(apart.prefill_s, apart.requests_per_s) > 0


def test_too_few_prefill_instances_hold_requests_back():
    many, few = (
        serving.disaggregated(_one(), _one(), ENGINE, 64, 8192, 64, prefill_instances=n) for n in (np.inf, 0.1)
    )
    assert few.saturated_by == "prefill"
    assert many.saturated_by is None
    # A tenth of an instance computes a tenth of the prompts that one does; Little's law gives the wait.
    assert few.requests_per_s == pytest.approx(0.1 / few.prefill_s, rel=0.02)
    assert few.requests_per_s * few.e2e_s == pytest.approx(64, rel=1e-6)


def test_prompts_of_a_busy_pool_read_the_experts_once():
    moe = _one(expert_bytes=60e9, moe_layers=32, experts=128, experts_per_token=4)
    wide, narrow = (
        serving.disaggregated(moe, moe, ENGINE, 512, 512, 64, prefill_instances=0.1, max_num_batched_tokens=n)
        for n in (8192, 512)
    )
    assert wide.requests_per_s > 1.5 * narrow.requests_per_s


def test_arrays_broadcast_and_name_each_state():
    state = serving.closed_loop(_one(), ENGINE, np.array([1, 64, 4096]), 1024, 1024, 500)
    assert state.tpot_s.shape == (3,)
    assert list(state.saturated_by) == ["", "", "kv"]


@given(st.floats(1, 4096), st.integers(1, 32768), st.integers(2, 8192), st.floats(1, 1e5))
def test_states_are_finite_and_never_below_the_bound(concurrency, isl, osl, capacity):
    state = serving.closed_loop(_one(), ENGINE, concurrency, isl, osl, capacity)
    for field in dataclasses.fields(state):
        if field.name not in {"saturated_by", "terms"}:
            assert np.isfinite(getattr(state, field.name)), field.name
    assert 0 < state.running_batch <= min(concurrency, capacity) * (1 + 1e-9)
    assert state.tpot_s >= step.bound(_one(), state.running_batch)


@given(st.floats(1, 2048), st.floats(1, 4), st.integers(1, 16384), st.integers(2, 4096))
def test_more_clients_never_shorten_a_token(concurrency, factor, isl, osl):
    few, many = (serving.closed_loop(_one(), ENGINE, c, isl, osl, 1000) for c in (concurrency, concurrency * factor))
    assert many.tpot_s >= few.tpot_s * (1 - 1e-6)
    assert many.running_batch >= few.running_batch * (1 - 1e-6)
