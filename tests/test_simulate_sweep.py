"""Sweeps on one core, on processes and on a Dask cluster; searches; pools from deployments; pictures."""

import itertools
import json
import os
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from click.testing import CliRunner

from batchline import chart, chart_simulation, simulate, workload
from batchline.cli.simulate import command
from batchline.deployment import Deployment
from batchline.errors import ConfigError, DoesNotFitError, InputError
from batchline.goodput import Promise
from batchline.simulate import Pool, Sglang, Static, Vllm
from batchline.simulate.search import best_knob, smallest_replicas
from batchline.simulate.sweep import Case, cluster, processes, sweep
from tests.test_simulate import CLOCK, busy_traffic


def cases():
    pool = Pool(clock=CLOCK, scheduler=Vllm(max_num_seqs=24, kv_blocks=300))
    return [
        Case(pool=pool, traffic=workload.rescaled(busy_traffic(60), rate=rate), options={"compiled": False})
        for rate in (0.5, 1.0, 2.0, 4.0)
    ]


def answers(found):
    return [result.to_dict() for _, result in sorted(found, key=lambda pair: pair[0])]


ALONE = answers(sweep(cases()))


def test_threads_give_the_same():
    with ThreadPoolExecutor(2) as executor:
        assert answers(sweep(cases(), lambda: executor)) == ALONE


@pytest.mark.slow
def test_four_processes_give_the_same():
    seen = []
    with processes(4) as source:
        assert answers(sweep(cases(), source, progress=lambda done, of: seen.append((done, of)))) == ALONE
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


class _DiesOnce(Case):
    """A case whose first worker dies."""

    def run(self):
        flag = self.options["flag"]
        if not flag.exists():
            flag.touch()
            os._exit(1)
        return Case(pool=self.pool, traffic=self.traffic, options={"compiled": False}).run()


@pytest.mark.slow
def test_what_a_lost_worker_did_is_done_again(tmp_path):
    first, *rest = cases()
    dying = _DiesOnce(pool=first.pool, traffic=first.traffic, options={"flag": tmp_path / "died"})
    with processes(2) as source:
        assert answers(sweep([dying, *rest], source)) == ALONE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_gives_the_same(tmp_path):
    """A scheduler and two workers on this machine; then one of them dies, and the command asks them."""
    distributed = pytest.importorskip("distributed")
    first, *rest = cases()
    dying = _DiesOnce(pool=first.pool, traffic=first.traffic, options={"flag": tmp_path / "died"})
    asked = [
        "llama-3.1-8b",
        "--on",
        "h100",
        "--rate",
        "4/s",
        "--isl",
        "1k",
        "--osl",
        "50",
        "--requests",
        "40",
        "--json",
    ]
    asked += ["--sweep", "rate=2,8"]
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        cluster(local.scheduler_address) as source,
    ):
        assert answers(sweep(cases(), source)) == ALONE
        assert answers(sweep([dying, *rest], source)) == ALONE
        assert (tmp_path / "died").exists()
        said = [
            CliRunner().invoke(command, [*asked, *where]).stdout
            for where in ([], ["--cluster", local.scheduler_address])
        ]
    assert len(json.loads(said[0])["sweep"]) == 2
    assert said[0] == said[1]


class _Dies(Case):
    def run(self):
        os._exit(1)


@pytest.mark.slow
def test_a_worker_lost_again_and_again_is_an_error():
    one = cases()[0]
    with processes(1) as source, pytest.raises(InputError, match="lost 3 times, 1 simulations"):
        list(sweep([_Dies(pool=one.pool, traffic=one.traffic)], source))


def test_errors_come_through():
    bad = Case(pool=cases()[0].pool, traffic=workload.of_requests([0], 19999, 100), options={"compiled": False})
    with ThreadPoolExecutor(1) as executor, pytest.raises(InputError, match="Request 0"):
        list(sweep([bad], lambda: executor))


def test_no_address_is_said():
    with pytest.raises(InputError, match="no address"), cluster("not an address"):
        pass


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_scheduler_is_said():
    pytest.importorskip("distributed")
    with pytest.raises(ConfigError, match="No Dask scheduler"), cluster("tcp://127.0.0.1:9"):
        pass


def test_traffic_travels(tmp_path):
    """Every kind of traffic can be sent to a worker, and is read there."""
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,isl,osl\n0,5,6\n1,7,8\n")
    made = workload.of_requests([0, 1], 5, 6)
    for traffic in (
        made,
        busy_traffic(5),
        workload.closed_loop(2, workload.Fixed(5), workload.Fixed(6), count=4),
        workload.trace(path, repair=True),
        workload.limited(workload.repeated(workload.rescaled(made, rate=2, isl=3), 3), 5),
    ):
        there = pickle.loads(pickle.dumps(traffic))  # noqa: S301  (our own)
        ours, theirs = workload.whole(traffic), workload.whole(there)
        np.testing.assert_array_equal(ours.arrival_s, theirs.arrival_s)
        np.testing.assert_array_equal(ours.osl, theirs.osl)


# -- searches ---------------------------------------------------------------------------------------------------------


def test_smallest_replicas_is_the_smallest():
    """All smaller numbers break the promise, whether tried one by one or several at once."""
    pool = Pool(clock=CLOCK, scheduler=Vllm(max_num_seqs=8))
    promises = {"ttft": Promise(0.25, 95)}
    traffic = workload.synthetic(workload.Poisson(60), workload.Fixed(500), workload.Fixed(100), count=400)
    found = smallest_replicas(pool, traffic, promises, router="least_loaded", compiled=False)
    assert found.value > 1
    assert all(found.result.keeps().values())
    assert not all(found.tried[found.value - 1].keeps().values())
    assert max(found.tried) < 4 * found.value
    with ThreadPoolExecutor(2) as executor:
        again = smallest_replicas(
            pool, traffic, promises, router="least_loaded", compiled=False, source=lambda: executor
        )
    assert again.value == found.value
    assert again.result.to_dict() == found.result.to_dict()


def test_smallest_replicas_gives_up():
    pool = Pool(clock=CLOCK, scheduler=Vllm())
    traffic = workload.of_requests([0.0, 0.1], 500, 100)
    with pytest.raises(InputError, match="Not even 4 replicas keep the promise of ttft"):
        smallest_replicas(pool, traffic, {"ttft": Promise(1e-4)}, most=4, compiled=False)
    with pytest.raises(InputError, match="for what"):
        smallest_replicas(pool, traffic, {}, compiled=False)


def test_best_knob_is_near_the_best():
    """Against every value: few seats make the queue long, many make tokens slow."""
    promises = {"ttft": Promise(1.0), "tpot": Promise(0.0075)}
    traffic = workload.synthetic(workload.Poisson(25), workload.Fixed(500), workload.Fixed(100), count=150)

    def pool_at(seats):
        return Pool(clock=CLOCK, scheduler=Vllm(max_num_seqs=seats))

    found = best_knob(pool_at, traffic, promises, low=1, high=64, compiled=False)
    goodput = {
        seats: simulate.simulate(pool_at(seats), traffic, promises=promises, compiled=False).goodput
        for seats in range(2, 65, 3)
    }
    assert found.result.goodput >= 0.95 * max(goodput.values())
    assert len(found.tried) < 25
    with pytest.raises(InputError, match="no values"):
        best_knob(pool_at, traffic, promises, low=5, high=4)


# -- pools of deployments ---------------------------------------------------------------------------------------------


def test_pool_of_a_deployment():
    """Its clock is step's; its cache is what the engine's account says; its knobs are the engine's."""
    deployment = Deployment.of("llama-3.1-8b", "h100")
    pool = simulate.pool_of(deployment, context=2000, knobs={"max_num_seqs": 64})
    assert pool.scheduler.max_num_seqs == 64
    assert pool.scheduler.kv_tokens == pytest.approx(deployment.account.kv_tokens, rel=1e-3)
    assert pool.scheduler.async_scheduling
    assert pool.usd_per_hour == deployment.usd_per_hour
    assert pool.power_w == deployment.accelerator.tdp
    old = simulate.pool_of(Deployment.of("llama-3.1-8b", "h100", engine_version="0.11.0"), context=2000)
    assert not old.scheduler.async_scheduling


def test_pool_of_other_engines_and_layouts():
    pool = simulate.pool_of(Deployment.of("llama-3.1-8b", "h100", engine="sglang"), context=2000)
    assert isinstance(pool.scheduler, Sglang)
    pool = simulate.pool_of(Deployment.of("llama-3.1-8b", "h100"), context=2000, scheduler=Static(batch=4))
    assert pool.scheduler == Static(batch=4)
    windows = simulate.pool_of(Deployment.of("gpt-oss-120b", "h100"), context=4000, max_context=16384)
    assert len(windows.clock.knots) > 1
    ranks = simulate.pool_of(Deployment.of("deepseek-v3", "8xh200", tp=1, dp=8, ep=8), context=4000, max_context=16384)
    assert ranks.engines == 8


def test_pool_refusals():
    with pytest.raises(DoesNotFitError):
        simulate.pool_of(Deployment.of("llama-3.1-70b", "l4"), context=2000)
    with pytest.raises(InputError, match="no such knob"):
        simulate.pool_of(Deployment.of("llama-3.1-8b", "h100"), context=2000, knobs={"max_seqs": 4})
    with pytest.raises(InputError, match="moves nothing"):
        simulate.transfer_of(Deployment.of("llama-3.1-8b", "h100"), 0)


def test_transfer_is_that_of_serving():
    from batchline import serving

    deployment = Deployment.of("llama-3.1-70b", "4xh100")
    fixed, token = simulate.transfer_of(deployment, 50e9, 0.001)
    expected = serving.kv_transfer_s(deployment.architecture.stored_bytes(4096), 50e9, 0.001)
    assert fixed + 4096 * token == pytest.approx(expected)


def test_requests_that_fit_nowhere_can_be_left_out():
    pool = Pool(clock=CLOCK, scheduler=Vllm(kv_blocks=10))
    rest = simulate.fitting(workload.of_requests([0, 1, 2], [100, 1000, 150], 10), pool)
    result = simulate.simulate(pool, rest, compiled=False)
    assert result.requests == 2
    assert result.repairs == {"requests too long for the engines left out": 1}


# -- pictures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def busy():
    pool = Pool(clock=CLOCK, scheduler=Vllm(max_num_seqs=24, kv_blocks=300))
    return simulate.simulate(pool, busy_traffic(), compiled=False)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_are_drawn(busy, tmp_path, theme):
    log = {"time_s": [1.0, 2.0], "running": [3, 4], "kv_use": [0.5, 0.6]}
    spec = chart_simulation.over_time(busy, log=log, theme=theme)
    assert spec["datasets"]["requests_dots"][0] == {"time_s": 1.0, "value": 3.0, "line": "running"}
    assert len(spec["datasets"]["kv_use_dots"]) == 2
    assert len(spec["datasets"]["busy_lines"]) <= 300
    chart.save(spec, tmp_path / "over.svg")
    other = chart_simulation.times(busy, log={"ttft": [0.1, 0.2]}, theme=theme)
    shares = [row["value"] for row in other["datasets"]["times_lines"] if row["line"] == "last token"]
    assert shares == sorted(shares)
    chart.save(other, tmp_path / "times.svg")
    assert (tmp_path / "times.svg").stat().st_size > 1000
    for name in ("requests", "tokens"):
        assert {row["line"] for row in spec["datasets"][f"{name}_labels"]} == {
            row["line"] for row in spec["datasets"][f"{name}_lines"]
        }, "each line has its name beside it"
    assert "legend" not in json.dumps(spec["concat"]).replace('"legend": null', "")


def test_ticks_are_written_as_they_are(busy, tmp_path):
    """An axis rounded 2.5, 5, 7.5 to 3, 5, 8 although it was given a format."""
    drawn = chart_simulation.times(busy, log={"e2e": [15.0]})
    chart.save(drawn, tmp_path / "times.svg")
    groups = (tmp_path / "times.svg").read_text().split("role-axis-label")[1:]
    labels = [re.findall(r">([\d.,]+)</text>", group.split("</g>")[0]) for group in groups]
    (across,) = [[float(label) for label in axis] for axis in labels if axis]
    assert across[0] == 2.5
    assert {after - before for before, after in itertools.pairwise(across)} == {2.5}


def test_a_log_needs_its_time(busy):
    with pytest.raises(InputError, match="time_s"):
        chart_simulation.over_time(busy, log={"running": [1, 2]})
    with pytest.raises(InputError, match="time_s"):
        chart_simulation.over_time(busy, log={"time_s": [1], "running": [1, 2]})


# -- a plan, simulated ------------------------------------------------------------------------------------------------


def test_candidates_of_a_plan_are_simulated():
    from batchline import planner
    from batchline.simulate.refine import refine

    asked = {"isl": 1000, "osl": 200, "ttft": "p95:2s", "tpot": "p95:40ms"}
    answer = planner.plan("llama-3.1-8b", rate=3.0, accelerators=("h100", "l40s"), **asked)
    lengths = workload.Fixed(1000), workload.Fixed(200)
    traffic = workload.synthetic(workload.Poisson(3.0), *lengths, count=150)
    found = refine(answer, traffic=traffic, most=2)
    assert {id(one.candidate) for one in found} == {id(one) for one in answer.candidates[:2]}
    assert all(one.result.requests == 150 for one in found)
    for one in found:
        assert one.replicas is not None
        assert one.usd_per_hour == pytest.approx(one.candidate.usd_per_hour * one.replicas / one.candidate.replicas)
    assert found[0].usd_per_hour <= found[1].usd_per_hour
    without = planner.plan("llama-3.1-8b", isl=1000, osl=200, accelerators=("h100",))
    with pytest.raises(InputError, match="no load"):
        refine(without)
