"""Thresholds: on each side of them the answer must be what the sentence says."""

import dataclasses

import pytest

from batchline.errors import InputError
from batchline.planner import Question, cheapest, plan
from batchline.sensitivity import _moved, _price_flips, flips, tornado

ASKED = Question(
    model="llama-3.1-8b", isl=1024, osl=256, rate=12.0, tpot="p95:30ms", ttft="p95:1s",
    accelerators=("l40s", "h100-sxm"), engines=("vllm",), weights=("checkpoint", "fp8"), kv=("bf16",),
    max_devices=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def answer():
    return plan(ASKED)


@pytest.fixture(scope="module")
def found(answer):
    return flips(answer)


def kind(one):
    return None if one is None else (one.accelerator, one.weights, one.kv)


@pytest.mark.slow
def test_both_sides_of_every_threshold(answer, found):
    assert found
    for flip in found:
        beyond = 1.03 if flip.above else 1 / 1.03
        there = cheapest(_moved(ASKED, flip.variable, flip.threshold * beyond))
        assert kind(there) != kind(answer.best), flip.sentence
        inside = 1 / 1.07 if flip.above else 1.07
        before = cheapest(_moved(ASKED, flip.variable, flip.threshold * inside))
        if (flip.threshold * inside > flip.now) == flip.above:
            assert kind(before) == kind(answer.best), flip.sentence


def test_price_thresholds_are_exact(answer):
    name = answer.best.accelerator
    flip = next(one for one in _price_flips(answer) if one.variable == f"price {name}")
    just_below = cheapest(dataclasses.replace(ASKED, prices={name: flip.threshold * 0.9999}))
    just_above = cheapest(dataclasses.replace(ASKED, prices={name: flip.threshold * 1.0001}))
    assert just_below.accelerator == name
    assert just_above.accelerator != name


@pytest.mark.slow
def test_nearest_comes_first_and_sentences_name_the_numbers(found):
    far = [max(one.threshold / one.now, one.now / one.threshold) for one in found]
    assert far == sorted(far)
    for one in found:
        assert one.sentence.startswith("If ")
        assert "now" in one.sentence or "predicted" in one.sentence


def test_bars_are_the_costs_of_planning_again(answer):
    bars = tornado(answer, 0.5)
    assert [bar.width for bar in bars] == sorted((bar.width for bar in bars), reverse=True)
    rate = next(bar for bar in bars if bar.variable == "rate")
    assert rate.usd_low <= answer.best.usd_per_month <= rate.usd_high
    assert rate.usd_high == pytest.approx(cheapest(dataclasses.replace(ASKED, rate=18.0)).usd_per_month)
    other = cheapest(dataclasses.replace(ASKED, rate=18.0))
    best = answer.best
    same = (other.accelerator, other.weights, other.kv) == (best.accelerator, best.weights, best.kv)
    assert rate.same_high == same
    promise = next(bar for bar in bars if bar.variable == "tpot")
    assert promise.usd_low is None or promise.usd_low >= promise.usd_high
    with pytest.raises(InputError):
        tornado(answer, 1.5)
