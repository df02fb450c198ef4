"""Laws of the reading `predict`, over the whole catalogue of models and accelerators."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchline import accelerator, architecture, prior, readings, step, sweep
from batchline.architecture import Architecture
from batchline.deployment import Deployment
from batchline.errors import BatchlineError, InputError

from .strategies import deployments

MODELS = architecture.names()
DEVICES = accelerator.names()


def anything(model, device, count):
    """A deployment that can be predicted, or an assumption that fails."""
    try:
        d = Deployment.of(Architecture.load(model), device, count=count, engine="generic")
        readings.steps(d, 1024, 1, "predict")
    except BatchlineError:
        assume(False)
    return d


@given(st.sampled_from(MODELS), st.sampled_from(DEVICES), st.sampled_from((1, 2, 8)), st.integers(0, 200_000))
def test_predict_is_never_below_the_bound_and_grows_with_batch_and_context(model, device, count, context):
    d = anything(model, device, count)
    batch = np.array([1, 2, 3, 7, 64, 65, 500, 4000], dtype=float)
    s = readings.steps(d, context, batch, "predict")
    assert np.all(np.isfinite(s.t_step))
    assert np.all(s.t_step >= s.prediction.bound)
    assert np.all(s.prediction.low >= s.prediction.bound)
    assert np.all(np.diff(s.t_step) >= 0)
    longer = readings.steps(d, context + 1000, batch, "predict")
    assert np.all(longer.t_step >= s.t_step * (1 - 1e-12))
    np.testing.assert_allclose(sum(s.prediction.terms.values()), s.t_step, rtol=1e-9)


@given(deployments(), st.integers(0, 100_000), st.floats(1, 4))
def test_more_bandwidth_never_makes_a_step_longer(d, context, k):
    faster = Deployment.of(
        d.architecture,
        d.accelerator.override(bandwidth=d.accelerator.bandwidth * k),
        count=d.count,
        tp=d.tp,
        pp=d.pp,
        dp=d.dp,
        weights=d.weights,
        kv=d.kv,
    )
    slow, fast = (readings.steps(one, context, [1.0, 100.0], "predict").t_step for one in (d, faster))
    assert np.all(fast <= slow * (1 + 1e-12))


@given(deployments(), st.integers(0, 100_000), st.floats(1, 5000))
def test_bytes_of_the_whole_and_of_one_device_give_the_same_bound(d, context, batch):
    whole = readings.steps(d, context, batch, "bound").t_step[0]
    assert step.bound(readings.ideal_of(d, context), batch) == pytest.approx(whole, rel=1e-12)
    serial = readings.steps(d, context, batch, "serial").t_step[0]
    assert step.serial(readings.ideal_of(d, context), batch) == pytest.approx(serial, rel=1e-12)


def test_what_nobody_measured_is_said_and_has_a_wider_interval():
    known = readings.case_of(Deployment.of("llama-3.1-70b", "4xh200", weights="fp8"))
    new = readings.case_of(Deployment.of("yi-34b", "mi300x"))
    priors = prior.load()
    assert priors.novelty(new) == "accelerator"
    assert priors.interval(new)[1] > priors.interval(known)[1]
    assert "generation" not in " ".join(priors.provenance(known).unseen)


def test_served_points_that_the_fit_never_saw():
    """Llama-3.3-70B bf16, 4 x H100, vLLM, 138 in, 900 out: tokens/s of a user (worked number V13)."""
    d = Deployment.of("llama-3.1-70b", "4xh100")
    measured = np.array([56.15, 55.78, 54.46, 53.35, 51.14, 45.98])
    found = sweep.curve(d, 138 + 450, [1, 2, 4, 8, 16, 32], reading="predict")
    low, high = 1 / found.prediction.high, 1 / found.prediction.low
    assert np.all((low < measured) & (measured < high))
    assert np.median(np.abs(1 / found.t_step / measured - 1)) < 0.1


def test_the_optimum_of_predict_is_the_cheapest_that_fits():
    c = sweep.curve(Deployment.of("qwen3-32b", "h200"), 4096, reading="predict")
    others = readings.steps(c.deployment, 4096, np.arange(1, c.capacity_batch + 1), "predict")
    assert c.optimum.t_step / c.optimum.batch == pytest.approx((others.t_step / others.batch).min())
    said = c.to_dict()
    assert said["points"][0]["predict"]["low_s"] < said["points"][0]["predict"]["t_step_s"]
    assert said["provenance"]["points"] > 0


def test_an_unknown_client_is_no_way_of_sending():
    """The centre stands for it; a level named "" once gave every prediction the ways of one collection."""
    priors = prior.load()
    assert all(name.strip() == name != "" for _, _, name in priors.levels)
    shares = {
        client: priors.coefficients(prior.Case(engine="sglang", client=client)).prefill_share
        for client in ("", "random", "fixed")
    }
    assert shares[""] == pytest.approx(1.0, abs=0.02)
    assert shares["random"] > 1.05
    assert shares["fixed"] < 0.95


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_median_first_token_waits_for_fewer_others_than_a_mean_one(engine):
    mean, median = (
        prior.load().coefficients(prior.Case(engine=engine, client=client)) for client in ("random", "random, median")
    )
    assert median.arrival_clumping < mean.arrival_clumping


def test_one_load_is_asked_for():
    one = Deployment.of("llama-3.1-8b", "h100")
    for loads in ({}, {"concurrency": 8, "rate": 1.0}, {"rate": 1.0, "prefill": one}):
        with pytest.raises(InputError):
            readings.steady(one, 1024, 128, **loads)


def test_a_prefill_pool_spares_the_decoding_and_may_hold_it_back():
    one = Deployment.of("llama-3.1-8b", "h100")
    beside = readings.steady(one, 8192, 128, 32)
    apart, starved = (
        readings.steady(one, 8192, 128, 32, prefill=one, prefill_instances=n, pool_bandwidth=50e9) for n in (8, 0.2)
    )
    assert apart.tpot_s < beside.tpot_s
    assert starved.saturated_by == "prefill"
    assert starved.ttft_s > apart.ttft_s
    assert starved.requests_per_s < apart.requests_per_s
