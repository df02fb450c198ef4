"""The search against brute force, laws of the answer, and what it says when nothing can be done."""

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchline import goodput, price, prior, queueing, readings
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.deployment import Deployment
from batchline.engine import Request, account
from batchline.errors import ConfigError, InputError, MissingFactError, UnknownNameError
from batchline.goodput import Server
from batchline.planner import Plan, Question, load_question, plan
from batchline.space import Layout, enumerate_space, layouts
from batchline.units import format_time

from .strategies import examples

CHAT = {"isl": 1024, "osl": 256, "rate": 12.0, "tpot": "p95:30ms", "ttft": "p95:1s"}


# -- brute force -------------------------------------------------------------------------------------------------------


def slow_batch(server, load, slots):
    """Batch that carries a load, by halving one number."""
    low, high = 0.0, float(slots)
    for _ in range(30):
        middle = (low + high) / 2
        carried = float(server.load.pace(middle).requests_per_s)
        low, high = (middle, high) if carried <= load else (low, middle)
    return low


def keeps(server, load, slots, promises):
    if float(server.load.pace(float(slots)).requests_per_s) < load:
        return False  # not even with all slots taken
    if "tpot" in promises and float(server.tpot_s(server.ideal.dp)) > promises["tpot"].seconds:
        return False  # not even alone
    batch = slow_batch(server, load, slots)
    shown = goodput.point(server, batch, float(slots), promises)
    carried = float(shown.requests_per_s) >= load * (1 - 1e-6)
    times = all(float(shown.kept[name]) <= promise.seconds * (1 + 1e-6) for name, promise in promises.items())
    return carried and batch < slots and math.isfinite(float(shown.ttft_s)) and times


def brute_force(question, most_replicas=64):
    """Cheapest price, trying each layout, format, budget, limit on the batch and number of replicas in turn."""
    arch, priors = Architecture.load(question.model), prior.load()
    best = (math.inf, None)
    for name, layout, weights, kv, engine, budget in itertools.product(
        question.accelerators,
        layouts(arch, question.max_devices),
        question.weights,
        question.kv,
        question.engines,
        question.budgets,
    ):
        device = Accelerator.load(name)
        if layout.tp * layout.dp > (device.scale_up_domain or 1):
            continue
        one = Deployment(
            architecture=arch, accelerator=device, count=layout.count, kv=kv,
            weights=None if weights == "checkpoint" else weights,
            tp=layout.tp, pp=layout.pp, dp=layout.dp, ep=layout.ep, engine=engine,
            price=price.load(name),
        )  # fmt: skip
        try:
            ideal = readings.ideal_of(one, question.context, question.isl)
        except MissingFactError:
            continue
        coefficients = priors.coefficients(readings.case_of(one))
        for limit in range(1, question.max_batch + 1):
            made = account(
                arch, device, engine, weights=one.weights, kv=kv, tp=layout.tp, pp=layout.pp,
                dp=layout.dp, ep=layout.ep,
                request=Request(
                    max_model_len=question.longest, max_num_seqs=limit, max_num_batched_tokens=budget
                ),
            )  # fmt: skip
            capacity = made.capacity_batch(question.context)
            if not made.fits or capacity < layout.dp:
                continue
            slots = min(limit * layout.dp, int(capacity))
            server = Server(ideal, coefficients, question.isl, question.osl, float(capacity), limit, budget)
            for replicas in range(1, most_replicas + 1):
                if replicas * one.usd_per_hour >= best[0] - 1e-9:
                    break
                load = question.rate / replicas / (1 - question.headroom)
                if keeps(server, load, slots, question.promises):
                    best = (replicas * one.usd_per_hour, (name, layout, weights, kv, limit, replicas))
                    break
    return best


def replica(question, name, layout, weights, kv, engine, limit):
    """A deployment and its server, one limit on the batch, memory as its engine counts it."""
    arch, device = Architecture.load(question.model), Accelerator.load(name)
    one = Deployment(
        architecture=arch, accelerator=device, count=layout.count, kv=kv,
        weights=None if weights == "checkpoint" else weights,
        tp=layout.tp, pp=layout.pp, dp=layout.dp, ep=layout.ep, engine=engine, price=price.load(name),
    )  # fmt: skip
    made = account(
        arch, device, engine, weights=one.weights, kv=kv, tp=layout.tp, pp=layout.pp, dp=layout.dp, ep=layout.ep,
        request=Request(
            max_model_len=question.longest, max_num_seqs=limit, max_num_batched_tokens=question.budgets[0]
        ),
    )  # fmt: skip
    capacity = float(made.capacity_batch(question.context)) if made.fits else 0.0
    ideal = readings.ideal_of(one, question.context, question.isl)
    coefficients = prior.load().coefficients(readings.case_of(one))
    return one, Server(ideal, coefficients, question.isl, question.osl, capacity, limit)


def brute_force_apart(question, most_replicas=40):
    """Cheapest price of pools: each pair of layouts, limit on the batch and number of replicas of either in turn."""
    shapes, best = layouts(Architecture.load(question.model), question.max_devices), (math.inf, None)
    load = question.rate / (1 - question.headroom)
    for name, source, target, *how in itertools.product(
        question.accelerators, shapes, shapes, question.weights, question.kv, question.engines
    ):
        one, prompts = replica(question, name, source, *how, 1)
        if prompts.capacity_batch < source.dp:
            continue
        alone = float(prompts.load.prompt_s(0.0))
        together = max(1.0, question.budgets[-1] / question.isl)
        busy = float(prompts.load.prompt_s(0.0, together)) / together / source.pp
        moved = one.architecture.stored_bytes(question.isl, one.kv) / question.transfer

        def elsewhere(replicas, rate, percentile, alone=alone, busy=busy, moved=moved, source=source):
            each = load / replicas / source.dp
            waits = (
                queueing.prompt_wait(each, busy, 1.0 / source.dp, percentile),
                queueing.company_wait(each, busy, 1.0 / source.dp),
            )
            return alone + float(sum(waits)) + moved + 0.0 * rate

        for limit in range(1, question.max_batch + 1):
            other, decoding = replica(question, name, target, *how, limit)
            if decoding.capacity_batch < target.dp:
                continue
            slots = min(limit * target.dp, int(decoding.capacity_batch))
            for replicas in range(1, most_replicas + 1):
                for sources in range(1, most_replicas + 1):
                    cost = replicas * other.usd_per_hour + sources * one.usd_per_hour
                    if cost >= best[0] - 1e-9:
                        break
                    if not math.isfinite(elsewhere(sources, 0.0, None)):
                        continue
                    there = dataclasses.replace(
                        decoding, elsewhere=lambda rate, percentile, n=sources: elsewhere(n, rate, percentile)
                    )
                    if keeps(there, load / replicas, slots, question.promises):
                        best = (cost, (name, source, sources, target, replicas, limit))
                        break
    return best


@pytest.mark.parametrize(
    ("changes", "pays"),
    [
        ({"max_batch": 3, "rate": 4.0}, True),
        pytest.param({"max_batch": 5, "tpot": "p95:20ms"}, True, marks=pytest.mark.slow),
        pytest.param({"e2e": "p95:3s", "max_batch": 6, "max_devices": 4}, True, marks=pytest.mark.slow),
        pytest.param({"isl": 256, "osl": 512, "rate": 2.0, "max_batch": 12}, False, marks=pytest.mark.slow),
        ({"model": "qwen3-30b-a3b", "accelerators": ("h200-sxm",), "rate": 16.0, "max_batch": 6}, False),
        pytest.param(
            {"model": "qwen3-30b-a3b", "accelerators": ("h200-sxm",), "isl": 700, "rate": 60.0, "max_batch": 6},
            None,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_pools_are_those_of_a_slow_independent_loop(changes, pays):
    given_ = CHAT | {
        "model": "llama-3.1-8b", "accelerators": ("l40s",), "weights": ("checkpoint",), "kv": ("bf16",),
        "engines": ("vllm",), "max_devices": 2, "budgets": (2048,), "isl": 6000, "osl": 48, "rate": 6.0,
        "tpot": "p95:30ms", "ttft": "p95:2s",
    } | changes  # fmt: skip
    question = Question(**given_)
    wanted, how = brute_force_apart(question)
    answer = plan(question)
    apart = answer.best_of.get("prompts apart")
    assert (apart is None) == (how is None)
    assert apart.usd_per_hour == pytest.approx(wanted, rel=1e-9), (how, apart.title)
    together = answer.best_of.get("prompts together")
    cheaper = together is None or apart.usd_per_hour < together.usd_per_hour
    assert cheaper == (answer.best.prefill is not None)
    assert pays in (cheaper, None)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tpot": "p99:12ms", "rate": 6.0, "max_batch": 24},
        {"ttft": "p95:250ms", "tpot": "15ms", "max_batch": 24},
        {"isl": 6000, "osl": 64, "rate": 5.0, "ttft": "p90:1.5s", "tpot": "p90:60ms", "max_batch": 24},
        {"model": "qwen3-30b-a3b", "accelerators": ("h200-sxm",), "rate": 20.0, "tpot": "p95:12ms"},
    ],
)
def test_the_winner_is_that_of_a_slow_independent_loop(changes):
    given_ = CHAT | {
        "model": "llama-3.1-8b", "accelerators": ("l40s", "h100-sxm"), "weights": ("checkpoint", "fp8"),
        "kv": ("bf16",), "engines": ("vllm",), "max_devices": 2, "max_batch": 8, "budgets": (2048,),
    } | changes  # fmt: skip
    question = Question(**given_, disaggregation=False)
    wanted, how = brute_force(question)
    answer = plan(question)
    if how is None:
        assert not answer.candidates
        return
    best = answer.best
    assert best.usd_per_hour == pytest.approx(wanted, rel=1e-9), (how, best.title)


@pytest.mark.parametrize(
    "changes",
    [
        {"rate": 40.0},
        {"rate": None, "headroom": 0.0},
        {"tpot": "12ms", "itl": "80ms"},
        {"e2e": "p90:9s", "confidence": 0.8, "model": "qwen3-30b-a3b"},
    ],
)
def test_rows_that_are_not_looked_at_would_not_lead(changes, monkeypatch):
    from batchline.planner import disaggregation, search

    question = Question(**(SMALL | {"engines": ("vllm", "sglang")} | changes))
    quick = plan(question)
    monkeypatch.setattr(search.Search, "_floor", lambda self: np.zeros(len(self.budget)))
    monkeypatch.setattr(disaggregation.Pools, "find_floor", lambda _: None)
    slow = plan(question)
    assert [one.title for one in quick.candidates] == [one.title for one in slow.candidates]
    assert quick.best_of.keys() == slow.best_of.keys()
    for name, one in quick.best_of.items():
        assert one.usd_per_month == pytest.approx(slow.best_of[name].usd_per_month), name
    assert {one.title for one in quick.front} == {one.title for one in slow.front}
    assert quick.refused == slow.refused


@settings(max_examples=examples(25))
@given(isl=st.integers(32, 8192), osl=st.integers(16, 2048), tpot=st.floats(0.006, 0.08), percentile=st.floats(5, 99.5))
def test_no_replica_carries_more_than_its_ceiling(isl, osl, tpot, percentile):
    one = Deployment.of("llama-3.1-8b", "h100")
    server = Server(
        readings.ideal_of(one, isl + osl / 2, isl), prior.load().coefficients(readings.case_of(one)), isl, osl, 200.0
    )
    promises = {"tpot": goodput.Promise(tpot, percentile), "ttft": goodput.Promise(2.0, 95)}
    found = goodput.goodput(server, promises)
    if found.keeps:
        assert float(found.point.requests_per_s) <= float(goodput.ceiling(server, promises)) * (1 + 1e-9)
    assert bool(found.keeps) == bool(goodput.keeps_alone(server, promises))


# -- laws --------------------------------------------------------------------------------------------------------------

SMALL = CHAT | {
    "model": "llama-3.1-8b",
    "accelerators": ("l40s", "h100-sxm", "h200-sxm"),
    "max_devices": 4,
    "engines": ("vllm",),
}


def test_promised_times_are_told_where_they_were_promised():
    """A reader laid the p95 of the answer beside the mean of the table and took them for one."""
    answer = plan(Question(**SMALL | {"ttft": "p95:2s", "tpot": "40ms"}))
    best = answer.best
    expected = f"TTFT p95 {format_time(best.promised['ttft'])}, TPOT {format_time(best.promised['tpot'])}"
    assert answer.kept(best) == expected


def test_every_candidate_keeps_its_promises():
    answer = plan(Question(**SMALL))
    promises = answer.question.promises
    for one in (*answer.candidates, *answer.front, *answer.best_of.values()):
        for name, promise in promises.items():
            assert one.promised[name] <= promise.seconds * 1.001, one.title
        assert one.requests_per_s == pytest.approx(SMALL["rate"], rel=1e-3)
        assert one.most_requests_per_s * (1 - answer.question.headroom) >= SMALL["rate"] * 0.999
        assert 0 <= one.p_slo <= 1
        assert one.batch <= one.max_num_seqs
        low, high = one.usd_per_month_range
        assert low <= one.usd_per_month <= high


def test_costs_of_tokens_add_up_to_the_month():
    answer = plan(Question(**SMALL, prefix_hit_rate=0.4))
    for one in answer.candidates:
        month = 730 * 3600 * one.requests_per_s
        isl, osl = SMALL["isl"], SMALL["osl"]
        usd = (
            one.usd_per_mtok_input * isl * 0.6 + one.usd_per_mtok_cached * isl * 0.4 + one.usd_per_mtok_output * osl
        ) / 1e6
        assert usd * month == pytest.approx(one.usd_per_month, rel=1e-6)
        assert one.usd_per_mtok * osl / 1e6 * month == pytest.approx(one.usd_per_month, rel=1e-6)


def test_nothing_on_the_front_is_beaten():
    front = plan(Question(**SMALL)).front
    assert len(front) > 3
    for one, other in itertools.permutations(front, 2):
        assert not (
            other.usd_per_month <= one.usd_per_month * 0.999
            and other.tpot_s < one.tpot_s * 0.96
            and other.ttft_s < one.ttft_s * 0.96
            and other.devices <= one.devices
        ), (one.title, other.title)


@pytest.mark.slow
@settings(max_examples=examples(12))
@given(
    rate=st.floats(1, 60), tpot=st.floats(0.010, 0.060), ttft=st.floats(0.3, 3.0), isl=st.integers(64, 4096)
)  # fmt: skip
def test_asking_for_less_never_costs_more(rate, tpot, ttft, isl):
    def cheapest(**changes):
        numbers = {"rate": rate, "tpot": tpot, "ttft": ttft, "isl": isl} | changes
        answer = plan(
            Question(
                **(SMALL | {"rate": numbers["rate"], "isl": numbers["isl"]}
                | {"tpot": f"p95:{numbers['tpot']}s", "ttft": f"p95:{numbers['ttft']}s"})
            )
        )  # fmt: skip
        return answer.best.usd_per_month if answer.candidates else math.inf

    asked = cheapest()
    assert cheapest(rate=rate * 0.7) <= asked * (1 + 1e-9)
    assert cheapest(tpot=tpot * 1.3) <= asked * (1 + 1e-9)
    assert cheapest(ttft=ttft * 1.5) <= asked * (1 + 1e-9)
    assert cheapest(isl=max(1, isl // 2)) <= asked * (1 + 1e-9)


def test_asking_for_a_little_less_costs_no_more():
    asked = plan(Question(**SMALL)).best.usd_per_month
    for looser in ({"rate": 8.0}, {"tpot": "p95:40ms"}, {"ttft": "p90:1s"}, {"isl": 512}):
        assert plan(Question(**(SMALL | looser))).best.usd_per_month <= asked * (1 + 1e-9)


def test_confidence_is_kept_and_paid_for():
    plain, sure = plan(Question(**SMALL)), plan(Question(**SMALL, confidence=0.9))
    assert sure.best.p_slo >= 0.9 - 1e-6
    assert all(one.p_slo >= 0.9 - 1e-6 for one in sure.candidates)
    assert sure.best.usd_per_month >= plain.best.usd_per_month
    assert plain.best.p_slo < 0.9


def test_pools_are_less_sure_of_the_first_token():
    # No point of the fit has pools: their TTFT is as uncertain as that of an engine never seen.
    widest = prior.load().intervals["ttft"]["engine"]
    one = plan(Question(**SMALL)).best_of["prompts apart"]
    limit = goodput.chance(1.0 / one.promised["ttft"], widest)  # 1 s was promised
    assert one.p_slo <= float(limit) + 1e-9


def test_users_become_requests_by_littles_law():
    answer = plan(Question(**{**SMALL, "rate": None}, users=300, think_s=30.0))
    best = answer.best
    assert best.requests_per_s * (30.0 + best.e2e_s) == pytest.approx(300, rel=1e-3)
    more = plan(Question(**{**SMALL, "rate": None}, users=3000, think_s=30.0))
    assert more.best.usd_per_month > best.usd_per_month


def test_without_a_load_a_replica_is_judged_by_its_request():
    answer = plan(Question(**{**SMALL, "rate": None}, headroom=0.0))
    best = answer.best
    assert best.replicas == 1
    assert best.requests_per_s == pytest.approx(best.most_requests_per_s, rel=1e-3)
    per_request = [one.usd_per_hour / one.requests_per_s for one in answer.best_of.values()]
    assert best.usd_per_hour / best.requests_per_s <= min(per_request) * (1 + 1e-9)


def test_available_devices_limit_the_choice():
    free = plan(Question(**SMALL))
    name = free.best.accelerator
    tied = plan(Question(**SMALL, available={name: free.best.devices - 1}))
    assert all(one.devices < free.best.devices for one in tied.candidates if one.accelerator == name)
    assert tied.best.usd_per_month > free.best.usd_per_month


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "qwen3.5-35b-a3b"])
def test_arrays_of_the_space_are_those_of_single_deployments(model):
    arch = Architecture.load(model)
    devices = [Accelerator.load(name) for name in ("h100-sxm", "mi300x", "b200")]
    prices = [price.load(device.name) for device in devices]
    space = enumerate_space(
        arch, devices, prices, weights=(None, "fp8", "int4"), kvs=("bf16", "fp8"), engines=("vllm", "sglang"),
        context=5000, isl=4000, max_devices=16, priors=prior.load(),
    )  # fmt: skip
    rng = np.random.default_rng(1)
    for i in rng.choice(space.size, 60, replace=False):
        one = space.deployment(int(i))
        ideal = readings.ideal_of(one, 5000, 4000)
        row = space.take(np.array([i]))
        for field in ideal.__dataclass_fields__:
            wanted = float(getattr(ideal, field))
            assert np.ravel(getattr(row.ideal, field))[0] == pytest.approx(wanted), field
        coefficients = prior.load().coefficients(readings.case_of(one))
        for field in coefficients.__dataclass_fields__:
            assert np.ravel(getattr(row.coefficients, field))[0] == pytest.approx(float(getattr(coefficients, field)))
        assert row.factors["tpot"][0].tolist() == list(
            prior.load().intervals["tpot"][prior.load().novelty(readings.case_of(one))]
        )
        assert row.usd_per_hour[0] == pytest.approx(one.usd_per_hour)
        # Counted as the engine does, never more sequences fit than the space says.
        made = account(
            arch, one.accelerator, one.engine,
            weights=one.weights, kv=one.kv, tp=one.tp, pp=one.pp, dp=one.dp, ep=one.ep,
            request=Request(max_model_len=6000, max_num_seqs=256, max_num_batched_tokens=2048),
        )  # fmt: skip
        assert made.capacity_batch(5000) <= row.capacity_batch[0] + one.dp, one.title


def test_every_deployment_is_counted():
    arch = Architecture.load("llama-3.1-8b")
    devices = [Accelerator.load(name) for name in ("h100-sxm", "m3-ultra", "gb10", "a10")]
    prices = [price.load("h100-sxm"), None, price.load("h100-sxm"), price.load("a10")]
    space = enumerate_space(
        arch, devices, prices, weights=(None, "fp8"), kvs=("bf16",), engines=("vllm", "trtllm"), context=4000, isl=2000,
        max_devices=16, priors=prior.load(),
    )  # fmt: skip
    assert space.size + sum(space.refused.values()) == space.considered
    assert space.refused["no price is known"] == space.considered // 4
    assert space.refused["no dense 16-bit rate is known"] == space.considered // 4
    assert "no dense rate is known in this format" in space.refused  # fp8 on an A10


def test_no_device_left_is_an_answer_and_no_crash():
    own_price = plan(Question(**{**SMALL, "accelerators": ("m3-ultra",)}, prices={"m3-ultra": 1.0}))
    assert not own_price.candidates
    with pytest.raises(InputError, match="no dense 16-bit rate is known"):
        _ = own_price.best


def test_layouts_of_a_mixture_of_experts_spread_whole_experts():
    found = layouts(Architecture.load("deepseek-v3"), 16)
    assert Layout(1, 1, 8, 8) in found
    assert all(one.ep == one.tp * one.dp for one in found if one.dp > 1)
    assert all(one.dp == 1 for one in layouts(Architecture.load("llama-3.1-70b"), 16))


# -- what cannot be done -----------------------------------------------------------------------------------------------


def test_a_promise_that_cannot_be_kept_names_the_nearest_and_what_binds():
    answer = plan(Question(**{**SMALL, "tpot": "0.5ms"}))
    assert not answer.candidates
    assert answer.nearest.promise == "tpot"
    assert answer.nearest.attainable_s > 0.0005
    assert "reading the weights" in str(answer.nearest) or "starting kernels" in str(answer.nearest)
    with pytest.raises(InputError, match="No deployment keeps tpot of 500 us"):
        _ = answer.best
    # The nearest is really attainable: asked for a little more than that, somebody keeps it.
    loose = plan(Question(**{**SMALL, "tpot": f"{answer.nearest.attainable_s * 1.2}s", "rate": 0.01}))
    assert loose.candidates
    slow = plan(Question(**{**SMALL, "ttft": "1ms"}))
    assert slow.nearest.promise == "ttft"


def test_an_unknown_price_is_asked_for():
    with pytest.raises(MissingFactError, match=r"--price m3-ultra=2\.5"):
        plan(Question(**{**SMALL, "accelerators": ("m3-ultra",)}))
    with pytest.raises(MissingFactError, match="--price"):
        plan(Question(**{**SMALL, "accelerators": ("tpu-v5p",)}, basis="neocloud"))
    answer = plan(Question(**{**SMALL, "accelerators": ("h100-nvl", "h100-sxm")}, prices={"h100": 1.0}))
    assert answer.best.usd_per_hour == pytest.approx(answer.best.devices * 1.0)


def test_owners_cost_is_another_price():
    rented = plan(Question(**{**SMALL, "accelerators": ("h100-sxm",)}))
    owned = plan(Question(**{**SMALL, "accelerators": ("h100-sxm",)}, basis="hyperscaler"))
    ratio = price.owner_cost("h100-sxm").hyperscaler / price.load("h100-sxm").median
    assert owned.best.usd_per_month == pytest.approx(rented.best.usd_per_month * ratio)


def test_a_model_that_fits_nowhere():
    answer = plan(Question(**{**SMALL, "model": "deepseek-v3", "accelerators": ("l40s",), "max_devices": 4}))
    assert not answer.candidates
    assert answer.refused["the weights do not fit"] > 0
    with pytest.raises(InputError, match="the weights do not fit"):
        _ = answer.best


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"isl": 0}, InputError),
        ({"rate": -1.0}, InputError),
        ({"users": 5.0}, InputError),
        ({"confidence": 0.2}, InputError),
        ({"headroom": 1.0}, InputError),
        ({"basis": "stolen"}, UnknownNameError),
        ({"budgets": ()}, InputError),
        ({"ttft": "p200:1s"}, InputError),
        ({"accelerators": ("h10",)}, UnknownNameError),
        ({"model": "lama"}, UnknownNameError),
        ({"weights": ("fp3",)}, UnknownNameError),
    ],
)
def test_bad_questions_are_refused(changes, error):
    with pytest.raises(error):
        plan(Question(**(SMALL | changes)))


# -- files and JSON ----------------------------------------------------------------------------------------------------


def test_a_question_survives_its_file(tmp_path):
    question = Question(**SMALL, prices={"h100 sxm": 2.0}, available={"l40s": 8}, confidence=0.9)
    path = tmp_path / "question.toml"
    path.write_text(question.to_toml())
    assert load_question(path) == question
    path.write_text("model = 'x'\nisl = 3\nosl = 4\ntps = 4\n")
    with pytest.raises(UnknownNameError, match="'tps'"):
        load_question(path)
    path.write_text("model = ")
    with pytest.raises(ConfigError, match="no TOML"):
        load_question(path)
    path.write_text("model = 'x'\n")
    with pytest.raises(ConfigError, match="no question"):
        load_question(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_question(tmp_path / "none.toml")


def test_json_has_the_promised_keys():
    answer = plan(Question(**SMALL))
    assert isinstance(answer, Plan)
    got = json.loads(json.dumps(answer.to_dict()))
    wanted = {
        "accelerator", "count", "tp", "pp", "ep", "dp", "replicas", "weights", "kv", "engine", "batch",
        "usd_per_mtok_output", "usd_per_month", "tpot_s", "ttft_s", "p_slo", "saturated_by",
    }  # fmt: skip
    assert wanted <= set(got["candidates"][0])
    assert wanted <= set(got["front"][0])
    assert got["searched"] > 10_000
    assert got["seconds"] > 0
    assert sum(got["refused"].values()) <= got["deployments"]


def test_what_the_others_give_up_is_said():
    answer = plan(Question(**SMALL))
    others = [answer.gives_up(one) for one in answer.candidates[1:]]
    assert all(others)
    assert any("cost" in sentence for sentence in others[0])


# -- a trace -----------------------------------------------------------------------------------------------------------


def test_a_trace_gives_lengths_spread_and_rate():
    from batchline.workload import of_requests

    arrivals = np.array([0.0, 1.0, 4.0, 5.0])
    isl, osl = np.array([100, 300, 100, 300]), np.array([10, 30, 10, 30])
    asked = Question.of_traffic("llama-3.1-8b", of_requests(arrivals, isl, osl), tpot="40ms")
    assert (asked.isl, asked.osl) == (200.0, 20.0)
    assert asked.rate == pytest.approx(3 / 5)
    # Weighted by how long each decodes: (10 x 105 x 2 + 30 x 315 x 2) / 80
    assert asked.mean_context == pytest.approx((10 * 105 * 2 + 30 * 315 * 2) / 80)
    assert asked.length_scv == pytest.approx(0.25)
    gaps = np.array([1.0, 3.0, 1.0])
    assert asked.arrival_scv == pytest.approx(gaps.var() / gaps.mean() ** 2 + 0.25)
    assert asked.max_model_len == 330
    assert Question.of_traffic("x", of_requests(arrivals, isl, osl), rate=9.0, osl=5).rate == 9.0
    with pytest.raises(InputError, match="no rate"):
        Question.of_traffic("x", of_requests(arrivals[:1], isl[:1], osl[:1]))


def test_spread_costs_waiting():
    plain = plan(Question(**SMALL)).best
    spread = plan(Question(**SMALL, arrival_scv=4.0, length_scv=2.0)).best
    assert spread.usd_per_month >= plain.usd_per_month
    assert spread.promised["ttft"] >= plain.promised["ttft"] or spread.replicas > plain.replicas


def test_a_public_trace(shared):
    from batchline.workload import trace

    path = shared / "traces" / "azure2023_conv.csv"
    if not path.exists():
        pytest.skip("the trace is not here")
    asked = Question.of_traffic(
        "llama-3.1-8b", trace(path), tpot="p95:50ms", ttft="p95:2s", accelerators=("l40s", "h100"), max_devices=2
    )
    assert 500 < asked.isl < 2000  # Azure's conversation trace of 2023: about 1,150 tokens in, 210 out, 5.5/s
    assert 100 < asked.osl < 400
    assert 3 < asked.rate < 8
    assert asked.mean_context > asked.isl / 2
    assert plan(asked).candidates


def test_people_without_a_promise_on_the_first_token_are_warned_of():
    asked = {"model": "llama-3.1-8b", "isl": 1024, "osl": 256, "users": 500, "think_s": 30.0, "accelerators": ("h100",)}
    assert any("--ttft" in w for w in plan(Question(**asked)).warnings)
    assert not any("--ttft" in w for w in plan(Question(**asked, ttft="p95:2s")).warnings)
