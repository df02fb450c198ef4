"""The integer program against brute force, and what must hold of every fleet."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchline.errors import InputError, MissingFactError
from batchline.fleet import Pool, fleet

from .strategies import examples


def pool(name, accelerator, devices, usd, **capacity):
    return Pool(name=name, accelerator=accelerator, devices=devices, usd_per_hour=usd, capacity=capacity)


def brute_force(demand, pools, available, most):
    """Cheapest price by trying every number of replicas of every pool for every workload; None if none serves."""
    pairs = [(p, w) for p in pools for w in demand if p.capacity.get(w, 0) > 0]
    best = None
    for counts in itertools.product(range(most + 1), repeat=len(pairs)):
        chosen = list(zip(pairs, counts, strict=True))
        if any(sum(p.capacity[w] * n for (p, w), n in chosen if w == x) < rate for x, rate in demand.items()):
            continue
        if any(sum(p.devices * n for (p, _), n in chosen if p.accelerator == a) > n_a for a, n_a in available.items()):
            continue
        usd = sum(p.usd_per_hour * n for (p, _), n in chosen)
        best = usd if best is None else min(best, usd)
    return best


small = st.integers(1, 4)
cents = st.integers(20, 400).map(lambda n: n / 100)
tenths = st.integers(10, 60).map(lambda n: n / 10)


@st.composite
def problems(draw):
    demand = {"chat": draw(tenths), "long": draw(tenths)}
    pools = [
        pool(
            f"p{i}",
            draw(st.sampled_from(["h100", "l40s"])),
            draw(small),
            draw(cents),
            chat=draw(tenths),
            long=draw(tenths),
        )
        for i in range(2)
    ]
    available = {"h100": draw(st.integers(0, 12)), "l40s": draw(st.integers(0, 12))}
    return demand, pools, available


@settings(max_examples=examples(60))
@given(problems())
def test_highs_finds_what_brute_force_finds(problem):
    demand, pools, available = problem
    wanted = brute_force(demand, pools, available, most=6)  # 6 replicas of 1/s serve the largest rate
    if wanted is None:
        with pytest.raises(InputError, match="would do"):
            fleet(demand, pools, available)
        return
    found = fleet(demand, pools, available)
    assert found.usd_per_hour == pytest.approx(wanted, rel=1e-9)
    assert found.proven
    for workload, rate in demand.items():
        assert sum(
            p.capacity[workload] * row.replicas
            for row in found.assignments
            for p in pools
            if row.pool == p.name and row.workload == workload
        ) >= rate * (1 - 1e-9)
    assert all(found.devices.get(name, 0) <= n for name, n in available.items())


@settings(max_examples=examples(30))
@given(problems())
def test_sharing_never_costs_more(problem):
    demand, pools, _ = problem
    apart, together = fleet(demand, pools), fleet(demand, pools, shared=True)
    assert together.usd_per_hour <= apart.usd_per_hour * (1 + 1e-6)
    assert all(row.utilisation <= 1 + 1e-9 for row in together.assignments)


def test_a_shared_replica_divides_its_time():
    # Half an hour of chat and half an hour of long prompts fit on one replica.
    one = pool("one", "h100", 1, 2.0, chat=10.0, long=2.0)
    found = fleet({"chat": 5.0, "long": 1.0}, [one], shared=True)
    (row,) = found.assignments
    assert (row.replicas, row.workload, row.utilisation) == (1, "chat + long", pytest.approx(1.0))
    assert sum(row.replicas for row in fleet({"chat": 5.0, "long": 1.0}, [one]).assignments) == 2


def test_it_says_how_many_devices_are_missing():
    with pytest.raises(InputError, match=r"there are 6 h100\. 2 h100 more would do"):
        fleet({"chat": 4.0}, [pool("p", "h100", 4, 8.0, chat=2.0)], {"h100": 6})


def test_headroom_is_served_on_top():
    p = pool("p", "h100", 1, 2.0, chat=1.0)
    assert fleet({"chat": 4.0}, [p]).assignments[0].replicas == 4
    assert fleet({"chat": 4.0}, [p], headroom=0.25).assignments[0].replicas == 5
    assert fleet({"chat": 4.0}, [p]).assignments[0].utilisation == pytest.approx(1.0)


def test_bad_input():
    p = pool("p", "h100", 1, 2.0, chat=1.0)
    for demand, pools, message in [
        ({}, [p], "no workload"),
        ({"chat": 0.0}, [p], "rate of chat is 0"),
        ({"code": 1.0}, [p], "No pool can serve code"),
        ({"chat": 1.0}, [pool("q", "h100", 0, 2.0, chat=1.0)], "1 or more devices"),
    ]:
        with pytest.raises(InputError, match=message):
            fleet(demand, pools)
    with pytest.raises(MissingFactError, match="price of q is not known"):
        fleet({"chat": 1.0}, [pool("q", "h100", 1, None, chat=1.0)])


def test_json():
    got = fleet({"chat": 3.0}, [pool("p", "h100", 2, 4.0, chat=2.0)]).to_dict()
    assert got["devices"] == {"h100": 4}
    assert got["usd_per_month"] == pytest.approx(8.0 * 730)
    assert got["assignments"][0]["utilisation"] == pytest.approx(0.75)


def test_a_fleet_from_plans():
    from batchline.planner import Question, pools

    chat = Question(
        model="llama-3.1-8b", isl=1024, osl=256, rate=20.0, tpot="p95:40ms", ttft="p95:1s",
        accelerators=("l40s", "h100-sxm"), engines=("vllm",), max_devices=2,
    )  # fmt: skip
    long = Question(
        model="llama-3.1-8b", isl=16384, osl=512, rate=1.0, tpot="p95:60ms", ttft="p95:5s",
        accelerators=("l40s", "h100-sxm"), engines=("vllm",), max_devices=2,
    )  # fmt: skip
    made = [*pools(chat, "chat"), *pools(long, "long")]
    free = fleet({"chat": 20.0, "long": 1.0}, made)
    assert free.proven
    assert {row.workload for row in free.assignments} == {"chat", "long"}
    name = max(free.devices, key=free.devices.get)
    tied = fleet({"chat": 20.0, "long": 1.0}, made, {name: free.devices[name] - 1})
    assert tied.usd_per_hour >= free.usd_per_hour
    assert tied.devices.get(name, 0) < free.devices[name]
