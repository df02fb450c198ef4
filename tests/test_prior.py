"""Priors: multipliers compose, what is new is said, intervals widen with it, and nothing falls below the physics."""

import dataclasses
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import prior
from batchline.errors import InputError
from batchline.prior import NOVELTIES, Case

SEEN = Case(engine="vllm", model="llama-3.1-8b", accelerator="h100-sxm", generation="hopper", layout="tp1 pp1 dp1 ep1")
AT_LEAST_ONE = (
    "weight_read", "expert_read", "kv_read", "compute", "tp_volume", "prefill_linear", "prefill_attention",
)  # fmt: skip


def level_names(kind):
    return sorted({name for _, of, name in prior.load().levels if of == kind})


@st.composite
def cases(draw):
    kinds = {
        kind: st.sampled_from([*level_names(kind), "never seen"]) for kind in ("engine", "generation", "attention")
    }
    return Case(
        engine=draw(kinds["engine"]),
        generation=draw(kinds["generation"]),
        attention=draw(kinds["attention"]),
        weights=draw(st.sampled_from(["bf16", "fp8", "nvfp4", "awq", "q4_k"])),
        kv=draw(st.sampled_from(["bf16", "fp8"])),
        client=draw(st.sampled_from(["", "random", "fixed"])),
        model=draw(st.sampled_from(["llama-3.1-8b", "deepseek-v3", "a model of tomorrow"])),
        accelerator=draw(st.sampled_from(["h100-sxm", "b200", "another"])),
    )


@given(cases())
def test_no_coefficient_is_faster_than_the_datasheet(case):
    found = prior.load().coefficients(case)
    for name in AT_LEAST_ONE:
        assert getattr(found, name) >= 1.0, name
    for field in dataclasses.fields(found):
        assert 0.0 <= getattr(found, field.name) < math.inf, field.name


def test_a_level_that_nobody_saw_leaves_the_centre():
    known = prior.load()
    found = known.coefficients(Case(engine="x", generation="y", weights="z", kv="w", attention="v"))
    for name, centre in known.centres.items():
        expected = centre["unit"] * (centre["offset"] + centre["centre"])
        if not any((name, kind, level) in known.levels for kind, level in Case("x", weights="z").levels().items()):
            assert getattr(found, name) == pytest.approx(expected), name


def test_multipliers_of_levels_multiply_the_free_part():
    known = prior.load()
    name, kind, level = next(key for key in known.levels if key[1] == "engine" and key[2] == "vllm")
    plain, with_level = (known.coefficients(Case(engine=e, generation="none")) for e in ("nobody", level))
    offset = known.centres[name]["offset"] * known.centres[name]["unit"]
    factor = known.levels[name, kind, level]["multiplier"]
    others = [k for k in known.levels if k[0] == name and k[1] == "engine_kv" and k[2] == "vllm bf16"]
    assert not others
    assert getattr(with_level, name) - offset == pytest.approx((getattr(plain, name) - offset) * factor)


@pytest.mark.parametrize("of", ["tpot", "ttft"])
def test_intervals_widen_with_what_is_new(of):
    known = prior.load().intervals[of]
    for one, next_one in itertools.pairwise(NOVELTIES):
        assert all(a <= b for a, b in zip(known[one], known[next_one], strict=True)), next_one
    for factors in known.values():
        assert 1.0 < factors[0] < factors[1] < factors[2]


def test_what_is_new_is_named_the_gravest_first():
    known = prior.load()
    cluster = next(name for name in sorted(known.seen["cluster"]) if " vllm " in name)
    model, accelerator, engine, width = cluster.split(" | ")
    layout = next(name.split(" | ")[4] for name in known.seen["deployment"] if name.startswith(cluster))
    case = Case(engine=engine, model=model, accelerator=accelerator, weights=width, layout=layout)
    assert known.novelty(case) == "lengths"
    for change, novelty in [
        ({"layout": "tp3 pp1 dp1 ep1"}, "deployment"),
        ({"weights": "int8"}, "cluster"),
        ({"model": "new"}, "model"),
        ({"accelerator": "new"}, "accelerator"),
        ({"engine": "new"}, "engine"),
        ({"engine": "new", "model": "new", "layout": "new"}, "engine"),
    ]:
        assert known.novelty(dataclasses.replace(case, **change)) == novelty


def test_a_batch_tells_nothing_of_its_device_under_another_engine():
    """llama.cpp was measured as batches alone, on two devices: those clusters are known, the engine is not."""
    known = prior.load()
    case = Case(engine="llama-cpp", model="qwen2.5-7b", accelerator="gb10", weights="q8_0", layout="tp1 pp1 dp1 ep1")
    assert known.novelty(case) == "lengths"
    assert known.novelty(dataclasses.replace(case, model="llama-3.1-8b")) == "engine"
    assert known.novelty(dataclasses.replace(case, engine="vllm", weights="fp8")) == "accelerator"
    assert known.provenance(case).levels["engine_accelerator llama-cpp gb10"] == 108  # rows of decode_llamacpp.csv
    other = dataclasses.replace(case, model="llama-3.1-8b", engine="vllm")
    assert known.coefficients(other) == known.coefficients(dataclasses.replace(other, accelerator="a new one"))


def test_provenance_says_what_nobody_measured():
    found = prior.load().provenance(Case(engine="vllm", generation="tpu-v6", model="llama-3.1-8b"))
    assert "generation tpu-v6" in found.unseen
    assert found.points > 0
    assert found.levels["engine vllm"] > 0
    assert set(found.levels).isdisjoint(found.unseen)
    new = prior.load().provenance(Case(engine="an engine of tomorrow"))
    assert new.novelty == "engine"
    assert new.points == prior.load().points


def test_formats_and_retrained_models_are_one_family():
    assert Case("vllm", model="deepseek-r1").base_model == Case("vllm", model="deepseek-v3.1-nvfp4").base_model
    assert Case("vllm", weights="fp8-block").width == Case("vllm", weights="fp8").width == "fp8"
    assert Case("vllm", weights="mxfp4").width == Case("vllm", weights="nvfp4").width == "fp4"
    assert Case("llama-cpp", weights="q8_0").width == Case("llama-cpp", weights="iq4_xs").width == "gguf"


def test_there_is_no_other_confidence():
    with pytest.raises(InputError, match=r"0\.5, 0\.8 or 0\.9"):
        prior.load().interval(SEEN, confidence=0.99)
    low, high = prior.load().interval(SEEN, "ttft", 0.8)
    assert low * high == pytest.approx(1.0)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "another"])
def test_a_prompt_delays_others_by_what_it_takes(engine):
    assert prior.load().coefficients(Case(engine=engine)).prefill_share == pytest.approx(1.0, abs=0.02)


def test_int8_which_nobody_measured_is_not_faster_than_fp8():
    """A planner that took the centre for it preferred it to fp8 of the same bytes and rate."""
    fp8, int8 = (
        Case(engine="vllm", model="a model of tomorrow", generation="hopper", weights=w) for w in ("fp8", "int8")
    )
    assert prior.load().coefficients(fp8) == prior.load().coefficients(int8)
    assert prior.load().novelty(int8) != "lengths"
