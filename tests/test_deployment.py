"""What devices hold and read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import deployment as dep
from batchline import memory
from batchline.deployment import Deployment
from batchline.errors import BatchlineError, DoesNotFitError, InputError

from .strategies import deployments


def test_tensor_parallelism_takes_all_devices_unless_told():
    assert Deployment.of("llama-3.1-70b", "4xh100").tp == 4
    assert Deployment.of("llama-3.1-70b", "4xh100", pp=2).tp == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp": 3}, "not 4"),
        ({"tp": 4, "pp": 0}, "pp = 0"),
        ({"engine": "vlm"}, "vllm"),
        ({"kv": "fp7"}, "fp7"),
        ({"weights": "fp7"}, "fp7"),
    ],
)
def test_impossible_layouts_and_formats_are_refused(options, message):
    with pytest.raises(BatchlineError, match=message):
        Deployment.of("llama-3.1-70b", "4xh100", **options).check_fits(4096)


def test_tp_must_divide_the_heads():
    with pytest.raises(InputError, match=r"tp 3 does not divide the 64 attention heads.*1, 2, 4, 8"):
        Deployment.of("llama-3.1-70b", "3xh100")


def test_a_model_that_does_not_fit_says_how_much_is_missing_and_what_fits():
    with pytest.raises(DoesNotFitError, match="missing on each device") as caught:
        Deployment.of("llama-3.1-405b", "h100", weights="bf16").check_fits(4096)
    # 811.7 GB of bf16 weights (405,853,388,800 parameters) on devices with 0.9 x 85 GB: 11 by bytes, but
    # 126 layers on 11 stages put 12 of 6.37 GB on the fullest; 12 stages hold 11 at the most
    assert caught.value.smallest_count == 12
    assert caught.value.layout == {"tp": 4, "pp": 3}  # of 128 heads 12 devices cannot take a part each
    assert caught.value.missing_bytes == pytest.approx(811.7e9 - 0.9 * 85.0e9, rel=0.02)


def test_kv_heads_are_replicated_beyond_their_number_and_latents_always():
    assert memory.kv_shards(16, 8) == 8
    assert memory.kv_shards(6, 8) == 4  # two heads on the fullest device
    assert memory.kv_shards(8, 1) == 1


def test_kv_bytes_count_the_copies():
    one = Deployment.of("deepseek-v3", "h200", count=8, tp=1, dp=8)
    eight = Deployment.of("deepseek-v3", "h200", count=8, tp=8)
    assert eight.kv_read_bytes(4096) == pytest.approx(8 * one.kv_read_bytes(4096))
    assert one.capacity_batch(4096) > 5 * eight.capacity_batch(4096)


def test_a_hybrid_reads_its_state_once_and_its_heads_as_often_as_they_are_held():
    # config.json of Qwen3-Next-80B-A3B: 12 of 48 layers have 2 KV heads of 256, held twice by 4 devices; the others a
    # state of 32 heads x 128 x 128 in float32, and the last 3 inputs of 8,192 channels in bf16, read and written.
    four = Deployment.of("qwen3-next-80b-a3b", "h100", count=4, tp=4)
    heads, state = 12 * 2 * 2 * 256 * 2, 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)
    assert four.kv_read_bytes(32768) == pytest.approx(2 * 32768 * heads + 2 * state)
    assert four.stored_bytes_per_device(32768) == pytest.approx((2 * 32768 * heads + state) / 4)


@given(deployments(), st.integers(1, 100_000))
def test_more_devices_never_hold_more_bytes_each(d, context):
    if d.tp < 2:
        return
    fewer = Deployment.of(
        d.architecture, d.accelerator, count=d.count // 2, tp=d.tp // 2, pp=d.pp, dp=d.dp, weights=d.weights
    )
    assert d.weight_bytes_per_device <= fewer.weight_bytes_per_device * (1 + 1e-12)
    assert d.stored_bytes_per_device(context) <= fewer.stored_bytes_per_device(context) * (1 + 1e-12)


@given(deployments(), st.integers(0, 10**6), st.integers(0, 10**6))
def test_capacity_falls_with_the_context(d, a, b):
    low, high = sorted((a, b))
    assert d.capacity_batch(low) >= d.capacity_batch(high)


@given(deployments())
def test_weights_read_grow_with_the_batch_up_to_all_of_them(d):
    batch = np.array([1.0, 2.0, 8.0, 64.0, 1e9])
    read = d.step_weight_bytes(batch)
    assert np.all(np.diff(read) >= 0)
    shared, routed = d.architecture.step_weight_bytes(d.weights)
    assert read[-1] == pytest.approx(shared * d.dp * d.pp + routed * d.pp)


def test_the_scaling_book_capacity():
    # S07: (256e9 - 140e9) / (324e3 x 8192) = 43 caches on 16 TPU v5e
    assert dep.capacity_batch(256e9, 1.0, 140e9, 324e3 * 8192) == 43
