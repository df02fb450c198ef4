"""Calibration: truths drawn from the prior are found again, laws hold whatever was measured, the file says it all."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from batchline import choice, prior, readings, step, sweep
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.calibrate import Observation, Profile, advise, calibrate, observe, three_rates
from batchline.calibrate.advice import gain, taken
from batchline.calibrate.calibration import grid
from batchline.calibrate.observation import Stack
from batchline.calibrate.update import Belief, believe, jacobian, update
from batchline.cli import cli
from batchline.cli.calibrate import command
from batchline.deployment import Deployment
from batchline.errors import ConfigError, InputError, MeasurementError
from batchline.measure import MeasuredPoint

from .strategies import examples

DEPLOYMENT = Deployment.of("llama-3.1-8b", "h100")
CASE = readings.case_of(DEPLOYMENT)


@pytest.fixture(scope="module")
def belief():
    return believe(prior.load(), CASE)


def unmeasured():
    """Places to measure: decode steps over batch and context."""
    found = [
        Observation(of="step", seconds=np.nan, ideal=readings.ideal_of(DEPLOYMENT, c), batch=b, context=c, noise=0.05)
        for c in (512.0, 2048.0, 8192.0)
        for b in (1.0, 4.0, 16.0, 64.0)
    ]
    return [dataclasses.replace(one, point=i) for i, one in enumerate(found)]


def drawn(belief, random, *count):
    """Engines as the prior believes them to be."""
    return random.multivariate_normal(belief.mean, belief.covariance, count or None)


def made(belief, places, z, random, noise=0.03):
    """Measurements of an engine whose coefficients are known."""
    seconds = Stack(places).predict(belief.coefficients(z[None]))[0]
    seconds = seconds * np.exp(noise * random.standard_normal(len(places)))
    return [dataclasses.replace(one, seconds=float(s)) for one, s in zip(places, seconds, strict=True)]


def decode(batch, context, seconds, **more):
    return MeasuredPoint(regime="decode", batch=batch, context=context, t_step_s=seconds, **more)


# -- a truth that is known ---------------------------------------------------------------------------------------------


def test_error_falls_with_the_points_and_intervals_hold_what_they_say(belief):
    random = np.random.default_rng(20261130)
    errors = {k: [] for k in (0, 1, 3, 6)}
    inside = {k: [] for k in errors}
    for _ in range(60):
        data = made(belief, unmeasured(), drawn(belief, random), random)
        stack = Stack(data)
        order = random.permutation(len(data))
        used = np.array([np.isin(np.arange(len(data)), order[:k]) for k in errors])
        fit = update(belief, stack, used)
        held = order[6:]
        for row, k in enumerate(errors):
            errors[k] += np.abs(fit.predicted[row] / np.exp(stack.log_seconds) - 1)[held].tolist()
            slope = np.abs(np.log(fit.predicted[row]) - stack.log_seconds)[held]
            spread = calibration_spread(belief, stack, fit, row)[held]
            inside[k] += (slope < 1.282 * np.hypot(spread, 0.03)).tolist()
    medians = [float(np.median(errors[k])) for k in errors]
    assert medians == sorted(medians, reverse=True)
    assert medians[-1] < 0.05 < medians[0]
    for k in (1, 3, 6):
        assert 0.7 < np.mean(inside[k]) < 0.95, k


def test_the_spread_before_any_point_is_that_of_engines_drawn_from_the_prior(belief):
    stack = Stack(unmeasured())
    engines = drawn(belief, np.random.default_rng(0), 2000)
    centre, slope = jacobian(belief, stack, belief.mean[None])
    off = np.abs(np.log(stack.predict(belief.coefficients(engines))) - centre[0])
    spread = np.sqrt(np.einsum("oi,ij,oj->o", slope[0], belief.covariance, slope[0]))
    assert np.mean(off < 1.282 * spread) == pytest.approx(0.8, abs=0.1)  # steps are no straight lines over such spreads


def test_where_logs_are_linear_it_is_the_normal_update_in_closed_form():
    # Gelman et al., Bayesian Data Analysis, 14.8: precision and mean of a linear model with a normal prior.
    random = np.random.default_rng(11)
    names = ("step_overhead", "sequence_overhead", "layer_overhead")
    factor = random.standard_normal((5, 5))
    belief = Belief(
        names=(*names, "tpot", "ttft"),
        mean=random.standard_normal(5),
        covariance=factor @ factor.T + np.eye(5),
        offset=np.zeros(3),
        unit=np.ones(3),
        fixed={},
    )
    powers = random.standard_normal((4, 3))

    class Products:
        """Each measurement is a product of powers of the coefficients, so that its log is linear."""

        observations = range(4)
        noise = np.array([1.0, 2.0, 0.5, 1.0])
        log_seconds = powers @ belief.mean[:3] + 0.2 * random.standard_normal(4)

        def predict(self, coefficients):
            logs = np.stack([np.log(getattr(coefficients, name)[:, 0]) for name in names])
            return np.exp(powers @ logs).T

    found = update(belief, Products())
    # A scale of TPOT multiplies all three; one of TTFT none of them.
    slope = np.column_stack([powers, powers.sum(axis=1), np.zeros(4)])
    weighted = slope.T / Products.noise**2
    after = np.linalg.inv(np.linalg.inv(belief.covariance) + weighted @ slope)
    off = Products.log_seconds - slope @ np.array([*belief.mean[:3], belief.mean[3], 0])
    assert found.covariance[0] == pytest.approx(after, rel=1e-3, abs=1e-4)
    assert found.z[0] == pytest.approx(belief.mean + after @ weighted @ off, abs=1e-3)


def test_correlations_of_the_priors_are_those_of_a_distribution(belief):
    assert np.all(np.linalg.eigvalsh(belief.covariance) > 0)
    assert belief.spread[: len(belief.coefficient_names)] == pytest.approx(
        [prior.load().centres[name]["spread"] for name in belief.coefficient_names]
    )
    moved = belief.covariance / np.outer(belief.spread, belief.spread)
    place = belief.names.index
    assert moved[place("layer_overhead"), place("step_overhead")] == pytest.approx(
        prior.load().correlations["layer_overhead", "step_overhead"]
    )


def calibration_spread(belief, stack, fit, row):
    _, slope = jacobian(belief, stack, fit.z[row][None])
    return np.sqrt(np.einsum("oi,ij,oj->o", slope[0], fit.covariance[row], slope[0]))


def test_served_points_tell_of_prefill_too(belief):
    random = np.random.default_rng(3)
    truth = drawn(belief, random)
    places = []
    for i, (flying, isl, osl) in enumerate([(1, 512, 256), (8, 2048, 256), (32, 2048, 512), (64, 512, 512)]):
        context = isl + osl / 2
        ideal = readings.ideal_of(DEPLOYMENT, context, isl)
        for of, noise in (("tpot", 0.05), ("ttft", 0.1)):
            one = Observation(of=of, seconds=np.nan, ideal=ideal, batch=flying, isl=isl, osl=osl, context=context)
            places.append(dataclasses.replace(one, noise=noise, point=i, capacity_batch=200.0))
    found = calibrate(made(belief, places, truth, random, noise=0.01), DEPLOYMENT)
    assert found.errors("tpot").worst < 0.06
    assert found.errors("ttft").median < 0.1 < found.errors("ttft", "before").worst
    assert found.identified["prefill_linear"] < 0.97  # posterior over prior sd: four served points say something
    assert found.points == 4


def test_one_odd_point_among_many_is_not_followed(belief):
    random = np.random.default_rng(5)
    data = made(belief, unmeasured(), belief.mean, random, noise=0.01)
    spoiled = [dataclasses.replace(data[0], seconds=3 * data[0].seconds), *data[1:]]
    found = calibrate(spoiled, DEPLOYMENT)
    assert np.median(np.abs(found.after / [one.seconds for one in data] - 1)) < 0.03


def test_without_a_point_it_is_the_prior(belief):
    stack = Stack(unmeasured()[:1])
    fit = update(belief, stack, np.zeros((1, 1), dtype=bool))
    assert fit.z[0] == pytest.approx(belief.mean)
    assert np.sqrt(np.diag(fit.covariance[0])) == pytest.approx(belief.spread)
    started, expected = belief.coefficients(belief.mean), prior.load().coefficients(CASE)
    assert dataclasses.asdict(started) == pytest.approx(dataclasses.asdict(expected))


# -- laws --------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(15))
@given(
    times=st.lists(st.floats(0.3, 30), min_size=1, max_size=4),
    batches=st.lists(st.integers(1, 200), min_size=4, max_size=4, unique=True),
)
def test_whatever_was_measured_no_prediction_is_below_the_bound_and_more_takes_longer(times, batches):
    data = []
    for i, (factor, batch) in enumerate(zip(times, batches, strict=False)):
        ideal = readings.ideal_of(DEPLOYMENT, 2048)
        seconds = factor * float(step.bound(ideal, batch))
        data.append(Observation(of="step", seconds=seconds, ideal=ideal, batch=batch, context=2048, point=i))
    priors = Profile.of(calibrate(data, DEPLOYMENT)).prior()
    for context in (128, 8192):
        size = np.arange(1.0, 300.0, 7.0)
        found = readings.steps(DEPLOYMENT, context, size, "predict", priors)
        bound = readings.steps(DEPLOYMENT, context, size, "bound").t_step
        assert np.all(found.t_step >= bound * (1 - 1e-12))
        assert np.all(found.prediction.low >= bound * (1 - 1e-12))
        assert np.all(np.diff(found.t_step) >= 0)


# -- what to measure next ----------------------------------------------------------------------------------------------


def test_the_promised_gain_is_the_gain():
    random = np.random.default_rng(1)
    factor = random.standard_normal((4, 4))
    before = factor @ factor.T + np.eye(4)
    slopes, targets = random.standard_normal((3, 4)), random.standard_normal((5, 4))
    noise = np.array([0.1, 0.5, 1.0])
    promised, narrower = taken(before, slopes, noise, targets), gain(before, slopes, noise, targets)
    for j in range(3):
        after = np.linalg.inv(np.linalg.inv(before) + np.outer(slopes[j], slopes[j]) / noise[j] ** 2)
        left = np.array([[t @ before @ t, t @ after @ t] for t in targets])
        assert promised[:, j] == pytest.approx(left[:, 0] - left[:, 1])
        intervals = np.sqrt(left + 0.05**2)
        assert narrower[j] == pytest.approx(np.mean(np.log(intervals[:, 0] / intervals[:, 1])))


def test_advice_does_what_it_says(belief):
    data = made(belief, unmeasured()[:2], belief.mean + belief.spread, np.random.default_rng(2))
    first = calibrate(data, DEPLOYMENT)
    advice = advise(first, batch=64, context=8192)
    assert advice.worthwhile
    assert advice.batch > 4
    ideal = readings.ideal_of(DEPLOYMENT, advice.context)
    next_ = Observation(of="step", seconds=np.nan, ideal=ideal, batch=advice.batch, context=advice.context, point=2)
    as_predicted = float(Stack([next_]).predict(first.belief.coefficients(first.z[None]))[0, 0])
    second = calibrate([*data, dataclasses.replace(next_, seconds=as_predicted)], DEPLOYMENT)
    target = [dataclasses.replace(next_, ideal=readings.ideal_of(DEPLOYMENT, 8192), batch=64.0, context=8192.0)]
    assert np.expm1(1.645 * second.spread(target)) == pytest.approx(advice.then, rel=0.15)
    assert f"batch {advice.batch:,.0f} and context" in str(advice)


def test_after_many_points_no_other_is_advised(belief):
    data = made(belief, unmeasured(), belief.mean, np.random.default_rng(2))
    found = calibrate([dataclasses.replace(one, noise=0.005) for one in data], DEPLOYMENT)
    assert "No further point" in str(advise(found, batch=16, context=2048))


def test_small_batches_tell_nothing_of_the_cache(belief):
    data = [one for one in made(belief, unmeasured(), belief.mean, np.random.default_rng(0)) if one.batch == 1]
    found = calibrate(data, DEPLOYMENT)
    assert found.identified["tp_latency"] > 0.98  # one device has no links; only what goes with them says anything
    assert "kv_read" in found.unidentified()
    assert "tp_latency" not in found.unidentified()
    # Weights and layers cannot be told apart, but their sum was measured, and no step at a batch of 1 depends on which.
    assert found.identified["layer_overhead"] > 0.9
    assert not {"weight_read", "layer_overhead"} & set(found.unidentified(data))


# -- what goes in, and what does not -----------------------------------------------------------------------------------


def test_points_of_another_layout_and_with_prefill_inside_are_refused_by_name():
    points = [
        decode(8, 1024, 0.01),
        decode(8, 1024, 0.01, tp=2, file="two.csv"),
        MeasuredPoint(regime="end_to_end", batch=8, tpot_s=0.02, file="static.csv"),
        MeasuredPoint(regime="serving", concurrency=8, tpot_s=0.02, file="short.csv"),
    ]
    found, refused = observe(points, DEPLOYMENT)
    assert len(found) == 1
    assert refused == [
        "two.csv: tp is 2, of the deployment 1",
        "static.csv: regime end_to_end holds prefill in its steps",
        "short.csv: isl, osl not known",
    ]
    with pytest.raises(MeasurementError, match="tp is 2"):
        calibrate(points[1:], DEPLOYMENT)


def test_the_burst_that_opens_a_run_is_in_its_mean_and_in_no_median():
    run = MeasuredPoint(
        regime="serving", concurrency=16, isl=1024, osl=256, tpot_s=0.01, ttft_s=0.1, completed=64, statistic="mean"
    )
    shares = {
        (one.of, name): one.opening_share
        for name, point in (("mean", run), ("median", dataclasses.replace(run, statistic="median")))
        for one in observe([point], DEPLOYMENT)[0]
    }
    assert shares == {("tpot", "mean"): 0.25, ("ttft", "mean"): 0.25, ("tpot", "median"): 0.0, ("ttft", "median"): 0.0}


def test_faster_than_the_hardware_names_the_bandwidth_it_implies():
    found = calibrate([decode(1, 128, 0.002), decode(64, 128, 0.012)], DEPLOYMENT)
    # 15.0 GB of weights in 2 ms; the data sheet has 3.35 TB/s
    assert "it implies 7.51 TB/s a device" in found.warnings[0]
    assert "1 of 2 values" in found.warnings[0]


def test_an_engine_four_times_too_slow_is_another_machine():
    steps = readings.steps(DEPLOYMENT, 2048, [1, 16, 64], "predict").t_step
    points = [decode(b, 2048, 6 * float(t)) for b, t in zip((1, 16, 64), steps, strict=True)]
    found = calibrate(points, DEPLOYMENT)
    assert any("6 times as slow" in text for text in found.warnings)
    fine = calibrate([decode(b, 2048, 1.1 * float(t)) for b, t in zip((1, 16), steps, strict=False)], DEPLOYMENT)
    assert fine.warnings == ()


def test_points_that_no_engine_shows_are_told():
    # A step that grows by 4 ms for each sequence: no cache read and no sampler takes that long.
    points = [decode(b, 256, 8e-3 + 4e-3 * b) for b in (1, 4, 16, 64)]
    assert any("standard deviations: they contradict" in text for text in calibrate(points, DEPLOYMENT).warnings)


# -- the file ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profile():
    found = calibrate([decode(b, 2048, t) for b, t in ((1, 9.1e-3), (16, 11e-3), (64, 16e-3))], DEPLOYMENT)
    return Profile.of(found, ["runs/measured.csv", "measured.csv"], date="2026-11-30")


def test_a_profile_comes_back_from_its_file(profile, tmp_path):
    profile.save(tmp_path / "p.toml")
    again = Profile.load(tmp_path / "p.toml")
    assert again.case == profile.case
    assert again.files == ("measured.csv",)
    assert again.points == 3
    for name, mean in profile.mean.items():
        assert again.mean[name] == pytest.approx(mean, rel=1e-5)
    assert again.errors == pytest.approx(profile.errors, abs=1e-4)
    assert again.unidentified == profile.unidentified == tuple(profile.unidentified)


def test_a_profile_says_what_it_does_not_know_and_what_would_tell(tmp_path):
    # Steps at one short context say nothing of how fast the KV cache is read.
    table, out = tmp_path / "m.csv", tmp_path / "p.toml"
    table.write_text("batch,context,t_step_ms\n1,64,7.1\n2,64,7.2\n4,64,7.2\n")
    asked = [table, "--on", "h100", "--model", "llama-3.1-8b", "--context", "16k", "--out", out]
    assert run(*asked).exit_code == 0
    kept = Profile.load(out)
    assert "kv_read" in kept.unidentified
    assert "One more point at batch" in kept.advice
    assert len(out.read_text().splitlines()) < 60


def test_a_profile_speaks_for_its_cluster_and_leaves_the_rest_to_the_priors(profile):
    priors, base = profile.prior(), prior.load()
    assert priors.coefficients(CASE) == profile.coefficients()
    assert priors.provenance(CASE).source == "calibrated on 2026-11-30 from measured.csv"
    assert priors.novelty(CASE) == "lengths"
    assert priors.novelty(dataclasses.replace(CASE, layout="tp2 pp1 dp1 ep1")) == "deployment"
    other = dataclasses.replace(CASE, accelerator="b200", generation="blackwell")
    assert priors.coefficients(other) == base.coefficients(other)
    assert priors.interval(other) == base.interval(other)
    low, high = priors.interval(CASE)
    assert 1 / high == pytest.approx(low)
    assert high < base.interval(CASE)[1]


def test_calibrated_steps_go_through_the_points(profile):
    found = readings.steps(DEPLOYMENT, 2048, [1, 16, 64], "predict", profile.prior())
    assert found.t_step == pytest.approx([9.1e-3, 11e-3, 16e-3], rel=0.08)
    assert found.prediction.provenance.points == 3


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("batchline.profile/1", "batchline.profile/9", "schema"),
        ("weight_read = { mean = 1", "weight_read = { mean = 0", "weight_read"),
        ("kv_read = {", "kv_raed = {", "kv_raed"),
        ("layer_overhead = { mean = ", 'layer_overhead = { mean = "a"} #', "layer_overhead"),
        ("points = 3", "points = -3", "points"),
        ("spread_tpot = ", "spread_tpto = ", "spread_tpot"),
        ('engine = "vllm"', "engine = 3", "engine"),
        ("[coefficients]", "[coeff]", "coefficients"),
        ("count = 1", "count = inf", "count"),
    ],
)
def test_a_damaged_profile_names_what_is_wrong(profile, tmp_path, old, new, named):
    text = profile.to_toml()
    assert old in text
    file = tmp_path / "p.toml"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=named):
        Profile.load(file)


def test_a_file_that_is_no_profile_is_refused(tmp_path):
    (tmp_path / "p.toml").write_text("= 3")
    with pytest.raises(ConfigError, match="cannot be read as a profile"):
        Profile.load(tmp_path / "p.toml")
    with pytest.raises(ConfigError, match="cannot be read as a profile"):
        Profile.load(tmp_path / "none.toml")


def test_a_profile_is_read_from_bytes_within_bounds(profile):
    assert Profile.parse(profile.to_toml().encode()).case == profile.case
    for data, named in (
        (b"\xff", "upload cannot be read"),
        (b"a" * 2**19, "524,288 bytes"),
        (b"a=" + b"[" * 9999, "upload"),
    ):
        with pytest.raises(ConfigError, match=named):
            Profile.parse(data, "upload")


def test_curve_and_optimum_follow_the_profile(profile):
    # Steps that grow by 0.11 ms a sequence: a limit of 12 ms stops near batch 25, whatever the priors say.
    priors = profile.prior()
    best = choice.optimum(DEPLOYMENT, 2048, reading="predict", step_limit=12e-3, priors=priors)
    assert 16 < best.batch < 64
    found = sweep.curve(DEPLOYMENT, 2048, [1, 16, 64], reading="predict", step_limit=12e-3, priors=priors)
    assert found.optimum == best
    assert found.t_step == pytest.approx([9.1e-3, 11e-3, 16e-3], rel=0.08)
    assert found.over([16]).t_step[0] == found.t_step[1]
    over_context = sweep.context_sweep(DEPLOYMENT, 16, [2048], reading="predict", priors=priors)
    assert over_context.t_step[0] == found.t_step[1]
    assert sweep.curve(DEPLOYMENT, 2048, [16], reading="predict").t_step[0] != found.t_step[1]


_SERVED = ["--isl", "1k", "--osl", "512", "--rate", "5/s", "--tpot", "40ms", "--on", "h100", "--engine", "vllm"]
_SERVED += ["--weights", "checkpoint", "--kv", "bf16", "--max-devices", "1"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["curve", "llama-3.1-8b", "--on", "h100", "--context", "2k", "--isl", "1k", "--osl", "1k", "--json"],
        ["curve", "llama-3.1-8b", "--on", "h100", "--context", "2k", "--explain"],
        ["price", "llama-3.1-8b", "--on", "h100", "--isl", "1k", "--osl", "512", "--json"],
        ["plan", "llama-3.1-8b", *_SERVED, "--json"],
        ["launch", "llama-3.1-8b", *_SERVED, "--json"],
    ],
    ids=["curve", "explain", "price", "plan", "launch"],
)
def test_every_command_predicts_with_the_profile(profile, tmp_path, arguments):
    slow = dataclasses.replace(profile, mean=dict(profile.mean) | {"weight_read": 2.5 * profile.mean["weight_read"]})
    said = []
    for name, one in (("as.toml", profile), ("slow.toml", slow)):
        one.save(tmp_path / name)
        result = CliRunner().invoke(cli, [*arguments, "--profile", str(tmp_path / name)])
        assert result.exit_code == 0, result.output
        said.append(result.stdout)
    plain = CliRunner().invoke(cli, arguments)
    assert plain.exit_code == 0, plain.output
    assert len({plain.stdout, *said}) == 3


def test_a_profile_of_another_deployment_is_told(profile, tmp_path):
    profile.save(tmp_path / "p.toml")
    asked = ["curve", "llama-3.1-70b", "--on", "4xh100", "--json", "--profile", str(tmp_path / "p.toml")]
    result = CliRunner().invoke(cli, asked)
    assert "says nothing of llama-3.1-70b" in result.stderr
    assert json.loads(result.stdout) == json.loads(CliRunner().invoke(cli, asked[:-2]).stdout)
    missing = CliRunner().invoke(cli, [*asked[:-1], str(tmp_path / "none.toml")])
    assert "cannot be read as a profile" in str(missing.exception)


# -- hardware of which nothing is known --------------------------------------------------------------------------------

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
}
_MOE = {
    **_CONFIG,
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "hidden_size": 768,
    "intermediate_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_local_experts": 16,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}


def test_three_rates_are_found_again():
    mixture = Architecture.from_config(_MOE)
    shared, routed = mixture.step_weight_bytes()
    points = []
    for b in (1, 3, 8, 20):
        for c in (100, 3000):
            touched = shared + routed * (1 - (1 - 2 / 16) ** b)
            seconds = touched / 20e9 + 2 * mixture.active_params * b / 0.3e12 + b * mixture.read_bytes(c) / 5e9 + 3e-3
            points.append(decode(b, c, float(seconds)))
    found = three_rates(points, mixture)
    assert found.bandwidth == pytest.approx(20e9, rel=1e-6)
    assert found.flops == pytest.approx(0.3e12, rel=1e-6)
    assert found.kv_bandwidth == pytest.approx(5e9, rel=1e-6)
    assert found.constant_s == pytest.approx(3e-3, rel=1e-6)
    assert found.left_out.worst < 1e-9
    assert float(found.step_s(8, 3000)) == pytest.approx(points[5].t_step_s)
    with pytest.raises(MeasurementError, match="3 decode steps"):
        three_rates(points[:3], mixture)


def test_one_context_cannot_tell_cache_from_flops():
    dense = Architecture.from_config(_CONFIG)
    assert "one context" in three_rates([decode(b, 128, 1e-2 * b) for b in (1, 2, 4, 8)], dense).unidentified
    assert "one batch" in three_rates([decode(1, c, 1e-2 * c) for c in (1, 2, 4, 8)], dense).unidentified


def cpu_points(shared, series):
    with (shared / "engines" / "measured_cpu.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["series"] == series]
    return [decode(float(r["B"]), float(r["ctx_mean"]), float(r["step_ms_min"]) / 1e3) for r in rows]


@pytest.mark.parametrize(
    ("series", "config", "weights", "median", "mean"),
    [
        ("vLLM-CPU dense bf16", _CONFIG, None, 0.05, 0.0285),  # engines/README.md: 2.8% and 7.8%
        ("llama.cpp dense bf16", _CONFIG, None, 0.05, 0.078),
        ("llama.cpp dense q4_0", _CONFIG, "q4_0", 0.05, 0.085),
        ("llama.cpp MoE bf16", _MOE, None, 0.05, 0.05),
        ("vLLM-CPU MoE bf16", _MOE, None, 0.05, 0.055),
    ],
)
def test_real_engines_on_a_cpu_left_out_one_by_one(shared, series, config, weights, median, mean):
    points = cpu_points(shared, series)
    found = three_rates(points, Architecture.from_config(config), weights=weights)
    assert found.left_out.count == len(points) >= 8
    assert found.left_out.median < median
    assert found.left_out.mean < mean


def test_both_engines_see_the_same_memory(shared):
    # The same machine: what vLLM and llama.cpp read weights with differs by no more than their kernels do.
    dense = Architecture.from_config(_CONFIG)
    rates = [three_rates(cpu_points(shared, f"{name} dense bf16"), dense) for name in ("vLLM-CPU", "llama.cpp")]
    assert rates[0].bandwidth == pytest.approx(rates[1].bandwidth, rel=0.1)


def test_rates_make_a_profile_that_predicts_the_same(shared):
    points = cpu_points(shared, "vLLM-CPU dense bf16")
    dense = Architecture.from_config(_CONFIG)
    rates = three_rates(points, dense)
    device = Accelerator.custom(**rates.figures, memory=16e9)
    deployment = Deployment.of(dense, device)
    priors = Profile.of_rates(rates, deployment, len(points)).prior()
    for point in points:
        found = readings.steps(deployment, point.context, point.batch, "predict", priors)
        assert found.t_step[0] == pytest.approx(float(rates.step_s(point.batch, point.context)), rel=1e-6)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "measured.csv"
    file.write_text("batch,context,t_step_ms\n1,2048,9.1\n8,2048,10.2\n64,2048,16.0\n128,2048,22.4\n2,8192,3.0\n")
    return file


def run(*arguments):
    return CliRunner().invoke(command, [str(one) for one in arguments])


def test_the_command_shows_hazards_errors_advice_and_optimum(table, tmp_path):
    out = tmp_path / "p.toml"
    result = run(table, "--on", "h100", "--model", "llama-3.1-8b", "--out", out)
    assert result.exit_code == 0, result.exception
    assert "faster_than_bound" in result.stdout
    assert "4 of 5 points are usable" in result.stdout
    assert "median error" in result.stdout
    assert "when each point is predicted by the others" in result.stdout
    assert "Best batch at context 2,048: before" in result.stdout
    assert "it implies 5.72 TB/s" in result.stderr
    assert Profile.load(out).points == 4


def test_overruled_hazards_are_fitted(table):
    result = run(table, "--on", "h100", "--model", "llama-3.1-8b", "--overrule", "all", "--json")
    data = json.loads(result.stdout)
    assert all(point["fitted"] for point in data["points"])
    assert data["errors"]["tpot"]["after"]["count"] == 5
    assert data["warnings"]
    assert set(data["optimum"]) == {"before", "after"}
    assert data["coefficients"]["weight_read"]["mean"] >= 1


def test_nothing_to_trust_is_said(tmp_path):
    file = tmp_path / "m.csv"
    file.write_text("batch,context,t_step_ms\n1,2048,0.9\n")
    result = run(file, "--on", "h100", "--model", "llama-3.1-8b")
    assert isinstance(result.exception, MeasurementError)
    assert "faster_than_bound" in str(result.exception)


def test_a_step_limit_moves_the_optimum(table):
    result = run(table, "--on", "h100", "--model", "llama-3.1-8b", "--step-limit", "20ms", "--json")
    best = json.loads(result.stdout)["optimum"]["after"]
    assert best["binds"] == "step_limit"
    assert best["t_step_s"] <= 0.02


@pytest.mark.parametrize("name", ["r.md", pytest.param("r.html", marks=pytest.mark.slow)])  # the plots take seconds
def test_the_report_holds_everything(table, tmp_path, name):
    result = run(table, "--on", "h100", "--model", "llama-3.1-8b", "--report", tmp_path / name)
    assert result.exit_code == 0, result.exception
    text = (tmp_path / name).read_text()
    for part in ("Points and hazards", "Best batch", "Fit", "Inputs", "measured.csv", "median error", "Warning"):
        assert part in text


def test_unknown_hardware_gets_three_rates(shared, tmp_path):
    file, config, out = tmp_path / "cpu.csv", tmp_path / "tiny.json", tmp_path / "p.toml"
    rows = cpu_points(shared, "vLLM-CPU dense bf16")
    file.write_text("batch,context,t_step_s\n" + "".join(f"{p.batch},{p.context},{p.t_step_s}\n" for p in rows))
    config.write_text(json.dumps(_CONFIG))
    result = run(file, "--on", "custom", "--model", config, "--out", out, "--memory", "8GB")
    assert result.exit_code == 0, result.exception
    assert "reads weights at 25.7 GB/s and KV cache at 7.63 GB/s" in result.stdout
    assert "--bandwidth 25.68GB/s" in result.stdout
    assert Profile.load(out).figures["bandwidth"] == pytest.approx(25.68e9, rel=1e-3)
    # The profile is all that its device needs afterwards.
    one = rows[0]
    asked = f"curve {config} --on custom --profile {out} --context {one.context:g} --batch {one.batch:g} --json"
    said = CliRunner().invoke(cli, asked.split())
    assert said.exit_code == 0, said.exception
    (point,) = json.loads(said.stdout)["points"]
    assert point["t_step_s"] == pytest.approx(one.t_step_s, rel=0.1)
    assert isinstance(run(file, "--on", "custom", "--model", config, "--out", out).exception, InputError)


def test_another_engine_in_the_file_is_told(tmp_path):
    file = tmp_path / "m.csv"
    file.write_text("batch,context,t_step_ms,engine\n1,2048,9.1,sglang\n8,2048,10.2,sglang\n")
    result = run(file, "--on", "h100", "--model", "llama-3.1-8b")
    assert "name the engine sglang, and it was taken for vllm" in result.stderr
    assert "name the engine" not in run(file, "--on", "h100", "--model", "llama-3.1-8b", "--engine", "sglang").stderr


def test_three_rates_are_those_of_one_device(table):
    assert isinstance(run(table, "--on", "2xcustom", "--model", "llama-3.1-8b").exception, InputError)


def test_the_grid_stays_where_the_model_and_the_memory_end():
    for one in grid(DEPLOYMENT, []):
        assert one.batch <= max(1.0, DEPLOYMENT.capacity_batch(one.context))
        assert one.context <= DEPLOYMENT.architecture.max_context
