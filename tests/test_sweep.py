"""The curves, their floors, knee and capacity."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from batchline import readings, sweep
from batchline.deployment import Deployment
from batchline.engine import Request
from batchline.errors import DoesNotFitError, InputError, UnknownNameError

from .strategies import deployments

READINGS = ("bound", "serial")


def fits(d, context):
    return d.capacity_batch(context) >= 1


@given(deployments(), st.integers(0, 100_000), st.sampled_from(READINGS))
def test_cost_never_rises_and_steps_never_shorten_with_the_batch(d, context, reading):
    s = readings.steps(d, context, np.arange(1, 300), reading)
    assert np.all(np.diff(s.t_step) >= -1e-12 * s.t_step[:-1])
    per_token = s.t_step / s.batch
    assert np.all(np.diff(per_token) <= 1e-9 * per_token[:-1])


@given(deployments(), st.integers(0, 100_000), st.floats(1, 1e4))
def test_serial_is_between_the_bound_and_twice_the_bound(d, context, batch):
    bound, serial = (readings.steps(d, context, batch, reading).t_step[0] for reading in READINGS)
    assert bound * (1 - 1e-12) <= serial <= 2 * bound * (1 + 1e-12)


@given(deployments(), st.integers(0, 100_000))
def test_compute_and_memory_cross_at_the_knee_also_for_mixtures(d, context):
    knee = sweep.knee_batch(d, context)
    if knee is None:
        return
    s = readings.steps(d, context, knee, "bound")
    slope = s.t_compute[0] / (s.t_compute[0] - s.t_kv[0])
    assert s.t_compute[0] == pytest.approx(s.t_memory[0], rel=1e-9 * max(1.0, 1e-3 * slope))


@given(deployments())
def test_at_the_balance_context_kv_and_compute_grow_alike(d):
    balance = sweep.balance_context(d)
    if not balance:
        return
    s = readings.steps(d, balance, 1000.0, "bound")
    assert s.t_kv[0] == pytest.approx(s.t_compute[0], rel=1e-6)


@given(deployments(), st.integers(1, 30_000), st.sampled_from(READINGS))
def test_the_optimum_is_the_cheapest_batch_that_fits(d, context, reading):
    assume(fits(d, context))
    c = sweep.curve(d, context, reading=reading)
    others = readings.steps(d, context, np.unique(np.geomspace(1, c.capacity_batch, 50).round()), reading)
    best = c.optimum.t_step / c.optimum.batch
    assert c.optimum.batch <= c.capacity_batch
    assert np.all(best <= others.t_step / others.batch * (1 + 1e-8))
    assert c.optimum.t_step >= c.latency_floor


@given(deployments(), st.integers(1, 30_000), st.floats(1e-3, 0.2), st.sampled_from(READINGS))
def test_the_optimum_keeps_the_step_limit(d, context, limit, reading):
    assume(fits(d, context))
    shortest = readings.steps(d, context, 1.0, reading).t_step[0]
    if shortest > limit:
        with pytest.raises(InputError, match="one sequence alone takes"):
            sweep.curve(d, context, reading=reading, step_limit=limit)
        return
    c = sweep.curve(d, context, reading=reading, step_limit=limit)
    assert c.optimum.t_step <= limit
    if c.optimum.binds == "step_limit":
        assert readings.steps(d, context, c.optimum.batch + 1.0, reading).t_step[0] > limit


def test_within_takes_the_smallest_batch_near_the_floor():
    d = Deployment.of("llama-3.1-8b", "h100")
    loose, tight = (sweep.curve(d, 300, within=e).optimum for e in (0.5, 0.1))
    assert loose.batch < tight.batch
    floor = sweep.cost_floor_usd_per_mtok(d, 300, "bound")
    assert loose.usd_per_mtok <= 1.5 * floor
    assert readings.steps(d, 300, loose.batch - 1, "bound").usd_per_mtok[0] > 1.5 * floor


def test_when_nothing_comes_within_the_reason_says_so():
    d = Deployment.of("llama-3.1-70b", "2xh100", weights="bf16", request=Request(gpu_memory_utilization=0.97))
    assert "no batch that fits comes within" in sweep.curve(d, 2000, within=0.01).optimum.reason


def test_the_reason_of_the_issue():
    c = sweep.curve(Deployment.of("llama-3.1-70b", "4xh100"), 2335)
    assert c.optimum.binds == "kv"
    assert (
        f"batch {c.capacity_batch:.0f}: the KV cache is full ({c.capacity_batch:.0f} x 2,335 tokens)"
        in c.optimum.reason
    )
    assert "x its floor" in c.optimum.reason


def test_past_the_knee_a_larger_batch_saves_nothing():
    c = sweep.curve(Deployment.of("llama-3.1-8b", "h100"), 200)
    assert c.optimum.binds == "floor"
    assert c.optimum.batch == math.ceil(c.knee_batch)


def test_nothing_is_cheaper_than_its_floor_and_the_knee_is_absent_beyond_the_balance_context():
    d = Deployment.of("llama-3.1-8b", "h100")
    assert sweep.balance_context(d) == pytest.approx(388, rel=0.01)  # 2 x 7.5e9 / 989e12 x 3.35e12 / 131072
    assert sweep.curve(d, 4096).knee_batch is None
    assert sweep.curve(d, 100).knee_batch is not None
    assert sweep.curve(d, 0).cost_floor_usd_per_mtok > 0


def test_context_zero_leaves_the_weights():
    d = Deployment.of("llama-3.1-8b", "h100")
    c = sweep.curve(d, 0, [1, 10])
    assert np.all(c.t_kv == 0)
    assert c.capacity_batch == math.inf
    assert c.to_dict()["capacity_batch"] is None


def test_default_batches_hold_capacity_and_optimum():
    c = sweep.curve(Deployment.of("llama-3.1-70b", "4xh100"), 8192)
    assert {c.optimum.batch, int(c.capacity_batch)} <= set(c.batch.astype(int))
    assert np.all(np.diff(c.batch) > 0)


@pytest.mark.parametrize("batch", [0, -1, [], [4, 0], float("nan"), [1, float("inf")]])
def test_no_batch_is_refused(batch):
    with pytest.raises(InputError, match="1 or more sequences"):
        sweep.curve(Deployment.of("llama-3.1-8b", "h100"), 4096, batch)


def test_unknown_reading_negative_context_and_too_small_a_device():
    d = Deployment.of("llama-3.1-8b", "h100")
    with pytest.raises(UnknownNameError, match="bound"):
        sweep.curve(d, 4096, reading="guess")
    with pytest.raises(InputError, match="0 or more tokens"):
        sweep.curve(d, -1)
    with pytest.raises(DoesNotFitError):
        sweep.curve(Deployment.of("llama-3.1-405b", "h100"), 4096)


@given(deployments(), st.integers(0, 100_000))
def test_json_has_the_promised_keys_and_no_infinities(d, context):
    assume(fits(d, context))
    c = sweep.curve(d, context)
    said = json.loads(json.dumps(c.to_dict(), allow_nan=False))
    point = [
        "batch",
        "t_compute_s",
        "t_weights_s",
        "t_kv_s",
        "t_memory_s",
        "t_step_s",
        "usd_per_mtok",
        "mfu",
        "mbu",
        "bound_by",
    ]
    assert set(point) <= set(said["points"][0])
    top = [
        "latency_floor_s",
        "cost_floor_usd_per_mtok",
        "knee_batch",
        "balance_context",
        "capacity_batch",
        "optimum",
        "points",
    ]
    assert set(top) <= set(said)
    assert set(said["optimum"]) >= {"batch", "t_step_s", "usd_per_mtok", "reason"}


def test_a_sweep_over_context_is_the_same_formula():
    d = Deployment.of("qwen3-32b", "2xh200")
    over = sweep.context_sweep(d, 16, [0, 1000, 8000], reading="serial")
    for i, context in enumerate([0, 1000, 8000]):
        assert over.t_step[i] == readings.steps(d, context, 16.0, "serial").t_step[0]


class TestFrames:
    """A column of any frame goes in, a frame of any library comes out (through narwhals)."""

    def test_polars(self):
        polars = pytest.importorskip("polars")
        d = Deployment.of("llama-3.1-8b", "h100")
        c = sweep.curve(d, 4096, polars.DataFrame({"batch": [1, 2, 4]})["batch"])
        frame = c.to_frame("polars")
        assert frame["batch"].to_list() == [1, 2, 4]
        assert frame["t_step_s"].to_list() == list(c.t_step)

    def test_records(self):
        c = sweep.curve(Deployment.of("llama-3.1-8b", "h100"), 4096, (1, 2))
        assert [row["batch"] for row in c.to_records()] == [1, 2]
