"""Gains: what must hold of formats, speculation and pools, whatever the coefficients."""

import itertools
import math

import numpy as np
import pytest

from batchline import prior, readings
from batchline.deployment import Deployment
from batchline.errors import InputError
from batchline.goodput import Promise
from batchline.serving import Speculation
from batchline.step import decode_step
from batchline.worth import disaggregation, format_gain, speculation_gain

PROMISES = {"tpot": Promise.parse("p95:40ms"), "ttft": Promise.parse("p95:2s")}


def test_smaller_weights_help_small_batches_most():
    found = format_gain(Deployment.of("llama-3.1-70b", "4xh100"), weights="fp8", contexts=[1024, 65536])
    assert np.all(np.diff(found.gain, axis=1) < 0)  # the share of the weights shrinks with the batch
    assert np.all(found.gain[1] < found.gain[0])  # and with the context
    assert np.all(found.capacity_after > found.capacity_before)
    assert found.crossover_batch == (None, None)  # fp8 computes faster too


def test_smaller_kv_helps_large_batches_and_long_contexts_most():
    found = format_gain(Deployment.of("llama-3.1-70b", "4xh100"), kv="fp8", contexts=[1024, 65536])
    assert np.all(np.diff(found.gain, axis=1) > -1e-9)
    assert np.all(found.gain[1] >= found.gain[0])
    assert found.capacity_after == pytest.approx(2 * found.capacity_before, rel=0.15)


def test_weight_only_formats_lose_to_fp8_from_a_batch_on_that_is_named():
    before = Deployment.of("llama-3.1-70b", "4xh100", weights="fp8")
    found = format_gain(before, weights="int4", contexts=[4096])
    (crossing,) = found.crossover_batch
    assert 8 < crossing < 2000  # int4 is multiplied in bf16, half as fast
    after = Deployment.of("llama-3.1-70b", "4xh100", weights="int4")

    def step(one, batch):
        coefficients = prior.load().coefficients(readings.case_of(one))
        return float(decode_step(readings.ideal_of(one, 4096), coefficients, batch).total)

    assert step(after, crossing * 0.9) < step(before, crossing * 0.9)
    assert step(after, crossing * 1.1) > step(before, crossing * 1.1)
    assert f"no faster from batch {crossing:,.0f} on" in found.sentences()[0]


def test_no_format_is_no_question():
    with pytest.raises(InputError, match="No other format"):
        format_gain(Deployment.of("llama-3.1-8b", "h100"))


def test_speculation_pays_below_its_break_even():
    one = Deployment.of("llama-3.1-70b", "4xh100")
    good = speculation_gain(one, Speculation(0.8, 3, 0.5e-3), 512, 512, 1.0, PROMISES)
    assert good.tokens_per_step == pytest.approx((1 - 0.8**4) / 0.2)
    assert good.batch_without < good.break_even_batch
    assert good.tpot_with_s < good.tpot_without_s
    assert good.pays
    bad = speculation_gain(one, Speculation(0.0, 8, 5e-3), 512, 512, 1.0, PROMISES)
    assert bad.break_even_batch == 0
    assert not bad.pays
    assert "at no batch" in str(bad)
    over = speculation_gain(one, Speculation(0.8, 3, 0.5e-3), 512, 512, 1e4, PROMISES)
    assert math.isinf(over.tpot_without_s)


def test_pools_are_sized_to_the_load():
    one = Deployment.of("llama-3.1-70b", "4xh100")
    sizes = [disaggregation(one, 4096, 256, rate, PROMISES) for rate in (5.0, 20.0, 80.0)]
    assert all(a.prefill <= b.prefill and a.decode <= b.decode for a, b in itertools.pairwise(sizes))
    longer = disaggregation(one, 16384, 256, 20.0, PROMISES)
    assert longer.prefill > sizes[1].prefill
    assert longer.transfer_s == pytest.approx(4 * sizes[1].transfer_s)
    more = disaggregation(one, 4096, 1024, 20.0, PROMISES)
    assert more.decode > sizes[1].decode
    # Longer answers leave less of TTFT to the prompts, if anything.
    assert sizes[1].prefill <= more.prefill <= sizes[1].prefill + 1
    # Work is only moved: both pools together need at least the machine time that decoding and prompts take.
    assert sizes[2].apart >= 2


def test_pools_that_cannot_keep_the_promise_say_why():
    one = Deployment.of("llama-3.1-70b", "4xh100")
    late = disaggregation(one, 65536, 256, 1.0, PROMISES | {"ttft": Promise(0.2)})
    assert late.apart is None
    assert "transfer" in str(late)
    slow = disaggregation(one, 1024, 256, 1.0, {"tpot": Promise(0.001)})
    assert "tokens take too long" in str(slow)
    far = disaggregation(one, 16384, 256, 1.0, PROMISES, network_bandwidth=0.1e9)  # 5.4 GB take 54 s
    assert far.apart is None
