"""The predictive step: published arithmetic, and laws that hold for every model, device, layout and coefficient."""

import csv
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import prior, roofline, step

POSITIVE = st.floats(1e-3, 1e3)
DEGREE = st.sampled_from([1, 2, 4, 8, 16])


def _dense(**changes):
    numbers = {
        "weight_bytes": 139e9,
        "kv_read_bytes": 4096 * 327680 / 4,
        "active_params": 69.5e9,
        "layers": 80,
        "hidden_size": 8192,
        "bandwidth": 3.35e12,
        "flops": 989e12,
        "flops_bf16": 989e12,
        "tp": 4,
        "link_bandwidth": 450e9,
    }
    return step.ideal(**numbers | changes)


def _moe(**changes):
    return _dense(**{"expert_bytes": 600e9, "moe_layers": 58, "experts": 256, "experts_per_token": 8} | changes)


@st.composite
def ideals(draw):
    experts = draw(st.sampled_from([(1, 1), (8, 2), (128, 4), (256, 8)]))
    return step.ideal(
        weight_bytes=draw(POSITIVE) * 1e9,
        expert_bytes=0.0 if experts[0] == 1 else draw(POSITIVE) * 1e9,
        kv_read_bytes=draw(POSITIVE) * 1e6,
        attention_flops=draw(POSITIVE) * 1e6,
        active_params=draw(POSITIVE) * 1e9,
        prompt_attention_flops=draw(POSITIVE) * 1e12,
        layers=draw(st.integers(1, 200)),
        moe_layers=draw(st.integers(0, 200)),
        hidden_size=draw(st.integers(64, 20000)),
        bandwidth=draw(POSITIVE) * 1e11,
        flops=draw(POSITIVE) * 1e13,
        flops_bf16=draw(POSITIVE) * 1e13,
        link_bandwidth=draw(POSITIVE) * 1e9,
        experts=experts[0],
        experts_per_token=experts[1],
        tp=draw(DEGREE),
        pp=draw(DEGREE),
        dp=draw(DEGREE),
        ep=draw(DEGREE),
    )


@st.composite
def coefficient_sets(draw):
    at_least_one = {
        "weight_read",
        "expert_read",
        "kv_read",
        "compute",
        "tp_volume",
        "prefill_linear",
        "prefill_attention",
    }
    values = {}
    for field in dataclasses.fields(step.Coefficients):
        free = draw(st.floats(0, 3))
        values[field.name] = 1.0 + free if field.name in at_least_one else free * 1e-3
    return step.Coefficients(**values)


def test_ideal_engine_is_article_with_parts_in_series():
    one = _dense(hidden_size=0)
    weights, kv, compute = 139e9 / 13.4e12, 16 * 4096 * 327680 / 13.4e12, 16 * 2 * 69.5e9 / 3956e12
    assert step.decode_step(one, step.Coefficients(), 16).total == pytest.approx(weights + kv + compute)
    assert step.bound(one, 16) == pytest.approx(max(weights + kv, compute))
    assert step.serial(one, 16) == pytest.approx(kv + max(weights, compute))


def test_experts_touched_follow_coverage():
    # theory.md C01: DeepSeek-V3 touches 8, 57.42, 163.31, 251.6 of 256 experts at B = 1, 8, 32, 128.
    one = _moe()
    terms = step.decode_step(one, step.Coefficients(), np.array([1, 8, 32, 128]))
    assert terms.experts / one.experts_s * 256 == pytest.approx([8, 57.42, 163.31, 251.6], rel=1e-4)


def test_deepseek_attention_is_bound_by_compute_not_bytes():
    # theory.md C05: absorbed MLA needs 16,990,208 FLOP per token of context, 242 FLOP per byte of latents.
    one = _dense(kv_read_bytes=70272, attention_flops=16990208, tp=1)
    assert one.attention_s / one.kv_s == pytest.approx(241.8 * 3.35e12 / 989e12, rel=1e-3)


def test_ring_allreduce_volume():
    # Two all-reduces a layer of 2-byte activations; a ring of n sends 2 (n - 1) / n of them.
    assert _dense().tp_volume_s == pytest.approx(8192 * 80 * 2 * 2 * 1.5 / 450e9)
    assert _dense(tp=1).tp_volume_s == 0.0


def test_tokens_travel_to_experts_only_between_data_parallel_ranks():
    assert _moe(tp=8, ep=8).alltoall_s == 0.0
    apart = _moe(tp=1, dp=8, ep=8)
    assert apart.alltoall_s == pytest.approx(2 * 2 * 8192 * 58 * 8 * 7 / 8 / 450e9)


def test_pipeline_runs_microbatches_through_all_stages():
    one, staged = _dense(tp=4), _dense(tp=4, pp=2)
    found = step.decode_step(staged, step.Coefficients(pipeline_hop=1e-3), 32)
    assert found.total - found.pp_hops == pytest.approx(step.decode_step(one, step.Coefficients(), 16).total)
    assert found.pp_hops == pytest.approx(1e-3 + 2 * 8192 * 16 / 450e9)  # 16-bit activations of 16 tokens, one way


def test_a_sequence_does_not_divide_among_stages_and_ranks():
    engine = step.Coefficients()
    alone, piped, ranked = (step.decode_step(_moe(**layout), engine, 1) for layout in ({}, {"pp": 4}, {"dp": 4}))
    assert float(piped.kv) == float(alone.kv) == float(ranked.kv)
    assert float(piped.experts) == float(alone.experts)


def test_a_hop_is_what_three_stages_took(shared):
    """FasterTransformer's 530B on A100, batch 1: over the line through tp 32 and tp 16 in 1/tp, two hops."""
    with (shared / "measured" / "static_fastertransformer.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if "530B" in row["model"] and row["batch_or_concurrency"] == "1"]
    took = {(r["isl"], r["osl"], int(r["tp"]), int(r["pp"])): float(r["decode_step_ms"]) for r in rows}
    hops = []
    for isl, osl in {key[:2] for key in took}:
        narrow, wide = took[isl, osl, 16, 1], took[isl, osl, 32, 1]
        hops.append((took[isl, osl, 8, 3] - (narrow + 2 * (narrow - wide))) / 2)
    centre = prior.load().centres["pipeline_hop"]
    assert min(hops) - 0.01 <= centre["centre"] <= max(hops)  # ms
    assert centre["unit"] == 1e-3


def test_tile_rounding_raises_the_step_beyond_an_edge():
    one = _dense()
    edge, beyond = (step.decode_step(one, step.Coefficients(), b, tile=256).compute for b in (256, 264))
    assert beyond == pytest.approx(2 * edge)
    smooth = step.decode_step(one, step.Coefficients(), 264).compute
    assert smooth < beyond


def test_speculation_verifies_more_tokens_but_reads_the_cache_once():
    one = _moe()
    plain = step.decode_step(one, step.Coefficients(), 8)
    drafted = step.decode_step(one, step.Coefficients(), 8, tokens_per_sequence=4)
    assert drafted.kv == plain.kv
    assert drafted.compute == pytest.approx(4 * plain.compute)
    assert drafted.experts == pytest.approx(step.decode_step(one, step.Coefficients(), 32).experts)


def test_mixed_step_is_decode_and_prefill():
    one, engine = _moe(prompt_attention_flops=1e15), step.Coefficients(prefill_linear=1.6, prompt_overhead=2e-3)
    mixed = step.mixed_step(one, engine, 16, 2048)
    parts = step.decode_step(one, engine, 16).total + step.prefill(one, engine, 2048, batch=16).total
    assert mixed.total == pytest.approx(parts)
    assert mixed.per_prompt == 2e-3


def test_prefill_reads_only_experts_that_decoding_left():
    one = _moe()
    alone = step.prefill(one, step.Coefficients(), 2048).experts
    beside = step.prefill(one, step.Coefficients(), 2048, batch=512).experts
    assert alone == pytest.approx(one.experts_s)
    assert beside < 1e-3 * alone


def test_whole_grid_in_one_call():
    batch = np.arange(1, 1001, dtype=float)
    one = step.ideal(
        weight_bytes=np.array([[15e9], [139e9]]),
        kv_read_bytes=1e8,
        active_params=np.array([[7.5e9], [69.5e9]]),
        layers=np.array([[32], [80]]),
        bandwidth=3.35e12,
        flops=989e12,
        flops_bf16=989e12,
    )
    assert step.decode_step(one, step.Coefficients(), batch).total.shape == (2, 1000)


@given(ideals(), coefficient_sets(), st.floats(1, 1e5))
def test_no_prediction_is_below_the_bound(one, engine, batch):
    total = step.decode_step(one, engine, batch).total
    assert np.isfinite(total)
    assert total >= step.bound(one, batch) * (1 - 1e-12)
    assert step.serial(one, batch) >= step.bound(one, batch)
    assert total >= step.serial(one, batch) * (1 - 1e-12)


@given(ideals(), coefficient_sets(), st.floats(1, 1e5), st.floats(1, 100))
def test_more_batch_never_makes_a_step_shorter(one, engine, batch, factor):
    small, large = (step.decode_step(one, engine, b).total for b in (batch, batch * factor))
    assert large >= small * (1 - 1e-12)


@given(coefficient_sets(), st.floats(1, 1e4), st.floats(1, 100))
def test_less_bandwidth_and_more_context_never_make_a_step_shorter(engine, batch, factor):
    base = step.decode_step(_moe(), engine, batch).total
    assert step.decode_step(_moe(bandwidth=3.35e12 / factor), engine, batch).total >= base * (1 - 1e-12)
    assert step.decode_step(_moe(kv_read_bytes=4096 * 327680 * factor), engine, batch).total >= base * (1 - 1e-12)


@given(coefficient_sets(), st.floats(1, 1e4), DEGREE)
def test_more_devices_never_read_more_bytes_each(engine, batch, tp):
    one, more = (step.decode_step(_moe(tp=t), engine, batch) for t in (tp, 2 * tp))
    assert more.weights + more.experts + more.kv <= (one.weights + one.experts + one.kv) * (1 + 1e-12)


@given(ideals(), coefficient_sets(), st.floats(1, 1e5), st.floats(0, 1e4))
def test_prompt_tokens_cost_at_least_their_flops(one, engine, tokens, batch):
    added = step.prefill(one, engine, tokens, batch=batch).total
    assert np.isfinite(added)
    assert added >= (tokens * one.prompt_token_s + one.prompt_attention_s) * (1 - 1e-12)


def test_readings_use_the_article_functions():
    one = _dense(tp=1)
    assert step.bound(one, 64) == roofline.t_step_bound(64 * one.compute_s, one.weights_s, 64 * one.kv_s)
