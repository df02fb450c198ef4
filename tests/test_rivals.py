"""Defects seen in other tools (shared/peers.md, 30 Nov 2026), each with the value that is right.

The expected values are arithmetic on published shapes and datasheets; where a tool is named, its wrong value stands
beside ours.
"""

import numpy as np
import pytest

from batchline import readings, roofline, step
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.deployment import Deployment
from batchline.errors import DoesNotFitError
from batchline.planner import Question, plan
from batchline.simulate import pool_of

H100 = {"bandwidth": 3.35e12, "bf16": 989e12}  # NVIDIA H100 datasheet, SXM, dense


def test_llm_viewer_reads_the_cache_of_all_query_heads():
    # "GQA ignored in a flash-attention path (KV 3-4x too slow)": 8 KV heads of 128, 32 layers, K and V, bf16.
    model = Architecture.load("llama-3.1-8b")
    assert model.kv_bytes_per_token() == 2 * 8 * 128 * 32 * 2
    assert model.read_bytes(2048) == 2048 * 131072


def test_kv_traffic_is_counted_once():
    # "KV traffic counted twice": with nothing else to do a step takes the bytes over the bandwidth, in all readings.
    bare = step.ideal(weight_bytes=0, kv_read_bytes=1e9, active_params=0, layers=1, bandwidth=1e12, flops=1e15,
                      flops_bf16=1e15)  # fmt: skip
    for reading in (step.bound(bare, 8), step.serial(bare, 8), step.decode_step(bare, step.Coefficients(), 8).total):
        assert reading == pytest.approx(8e-3)


def test_genz_is_below_the_floor():
    # "GB/s taken as GiB/s (7% below the floor)": GenZ says 4.25 ms for Llama-3.1-8B on an H100; weights without the
    # input embedding, 8.03e9 - 128,256 x 4,096 parameters of 2 bytes, take 4.48 ms, and the cache of 2k tokens 0.08 ms.
    floor = (8_030_261_248 - 128_256 * 4_096) * 2 / H100["bandwidth"] + 2048 * 131072 / H100["bandwidth"]
    found = readings.steps(Deployment.of("llama-3.1-8b", "h100"), 2048, 1, "bound").t_step[0]
    assert found == pytest.approx(floor, rel=1e-6)
    assert round(found * 1e3, 2) == 4.56


def test_the_input_embedding_is_looked_up_not_read():
    # "The article column counts the input embedding as read: 16.06 GB"; the real floor of the 8B is 4.56 ms.
    model = Architecture.load("llama-3.1-8b")
    assert model.weight_bytes() - sum(model.step_weight_bytes()) == 128_256 * 4_096 * 2


def test_tera_is_ten_to_the_twelfth():
    # "2^40 for tera"
    device = Accelerator.load("h100")
    assert device.flops_for("bf16") == H100["bf16"]
    assert device.bandwidth == H100["bandwidth"]


@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-v3", "gpt-oss-120b", "qwen3-235b-a22b"])
def test_nothing_is_flat_or_falls_in_batch_or_context(model):
    # "Nearest-neighbour efficiency tables giving division by zero and non-monotone curves"; "tables that are flat or
    # falling in batch because the harness was launch-bound".
    one = Deployment.of(model, "h200", count=8)
    for reading in readings.READINGS:
        over_batch = readings.steps(one, 3000, np.arange(1, 4097), reading).t_step
        assert np.all(np.isfinite(over_batch))
        assert np.all(np.diff(over_batch) > 0)
        over_context = [float(readings.steps(one, n, 64, reading).t_step[0]) for n in (0, 1, 100, 4096, 65536)]
        assert np.all(np.diff(over_context) >= 0)


def test_the_cache_is_divided_by_tensor_parallelism():
    # "KV not divided by TP (4x too small capacity)": four devices hold more than four times the sequences of one.
    alone, four = (Deployment.of("llama-3.1-8b", "h100", count=n).capacity_batch(2048) for n in (1, 4))
    assert four > 4 * alone


def test_experts_are_neither_all_read_nor_only_one_token_s():
    # "MoE weights 'active only' at every batch (2.5-3.9x too fast at B=16-64) or 'all experts' at B=1 (3.9x too slow)".
    # DeepSeek-V3, 8 of 256 experts: 1 - (1 - 8/256)^B, which is 3.1% of them alone and 63.8% for 32 (theory.md C01).
    one = Deployment.of("deepseek-v3", "h200", count=8)
    shared, routed = one.architecture.step_weight_bytes()
    assert one.step_weight_bytes(1) == pytest.approx(shared + routed * 8 / 256)
    assert one.step_weight_bytes(32) == pytest.approx(shared + routed * (1 - (1 - 8 / 256) ** 32))
    assert roofline.expert_coverage(32, 256, 8) == pytest.approx(0.638, abs=5e-4)


def test_the_batch_where_compute_begins_depends_on_the_bytes_of_a_weight():
    # "Optimal batch without bytes per parameter (2x wrong at fp8, 4x at fp4)": F p / 2 BW, 295 for bf16 on an H100;
    # fp8 halves the bytes and doubles the rate; 4-bit weights multiply in bf16.
    bandwidth, bf16 = H100["bandwidth"], H100["bf16"]
    assert roofline.ridge_batch(2.0, 1.0, bf16, bandwidth) == pytest.approx(295.2, abs=0.1)
    assert roofline.ridge_batch(1.0, 1.0, 2 * bf16, bandwidth) == pytest.approx(295.2, abs=0.1)
    assert roofline.ridge_batch(0.5, 1.0, bf16, bandwidth) == pytest.approx(73.8, abs=0.1)
    assert Deployment.of("llama-3.1-70b", "h100", count=4, weights="int4").flops == 4 * bf16


def test_a_405b_does_not_fit_on_one_h100():
    # "No memory check (405B on one H100)"
    with pytest.raises(DoesNotFitError, match="does not fit on 1 x h100"):
        Deployment.of("llama-3.1-405b", "h100").check_fits(2048)


@pytest.mark.parametrize(
    ("name", "number_format", "dense"),
    [
        ("h100", "bf16", 989e12),
        ("h100", "fp8", 1979e12),
        ("mi300x", "bf16", 1307e12),
        ("b200", "fp8", 4500e12),
    ],
)
def test_rates_are_dense(name, number_format, dense):
    # "Sparse FLOPS taken as dense": the datasheets print twice as much with sparsity.
    assert Accelerator.load(name).flops_for(number_format) == pytest.approx(dense, rel=2e-3)


def test_a_nested_config_is_read_where_it_lies():
    # "Nested configs falling back to 7B defaults"
    flat = {
        "model_type": "llama", "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 131072,
    }  # fmt: skip
    nested = {"model_type": "mistral3", "text_config": flat | {"model_type": "mistral"}}
    assert Architecture.load(nested).total_params == Architecture.load(flat | {"model_type": "mistral"}).total_params


def test_latent_attention_keeps_a_latent():
    # "MLA cache as if GQA": DeepSeek-V3 keeps 512 + 64 numbers a layer, 61 layers, bf16 (arXiv 2412.19437).
    assert Architecture.load("deepseek-v3").kv_bytes_per_token() == (512 + 64) * 61 * 2


def test_a_window_bounds_what_is_read():
    # "Sliding windows ignored": Mistral-7B v0.1 has a window of 4,096 in all its layers (arXiv 2310.06825).
    model = Architecture.load("mistral-7b-v0.1")
    assert model.read_bytes(4096) == model.read_bytes(32768) == 4096 * 2 * 8 * 128 * 32 * 2


def test_a_search_does_not_miss_what_its_own_predictions_say_is_best():
    # aisimulate's quick start recommends 2 GPUs at 382.7 tok/s/GPU where it predicts 525.6 for 1: what is chosen among
    # up to eight devices is the cheapest of what is chosen among exactly as many as one, two, four and up to eight.
    asked = {"model": "llama-3.1-8b", "accelerators": ("h100-sxm",), "isl": 1024, "osl": 256, "rate": 4.0}
    best = [plan(Question(**asked, tpot="20ms", max_devices=most, disaggregation=False)).best for most in (1, 2, 4, 8)]
    assert best[-1].usd_per_mtok_output == min(one.usd_per_mtok_output for one in best)
    assert best[-1].usd_per_month == min(one.usd_per_month for one in best)
    assert best[-1].devices == 1  # one carries it: half of each of two would cost as much again


def test_one_formula_serves_the_step_the_deployment_and_the_simulator():
    # "Two copies of one formula drifting apart"
    one = Deployment.of("llama-3.1-70b", "h100", count=4)
    batch = np.array([1.0, 16.0, 128.0])
    by_step = step.bound(readings.ideal_of(one, 2048), batch)
    np.testing.assert_allclose(readings.steps(one, 2048, batch, "bound").t_step, by_step, rtol=1e-12)
    clock = pool_of(one, context=2048, max_context=4096).clock
    predicted = readings.steps(one, 2048, batch, "predict").t_step
    np.testing.assert_allclose([clock.step([2048] * int(b)) for b in batch], predicted, rtol=1e-9)
