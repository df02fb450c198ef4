"""The simulator against the step model, against schedulers written a second time, and against simpy."""

import dataclasses
import math
import shutil

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batchline import simulate, step, workload
from batchline.errors import InputError, UnknownNameError
from batchline.goodput import Promise
from batchline.simulate import Pool, Sglang, Static, Train, Vllm, _compile, replay
from batchline.step import Coefficients, Ideal
from tests import reference_simulator as reference

from .strategies import examples

needs_numba = pytest.mark.skipif(not _compile.has_numba(), reason="numba (extra fast) is not installed")


def dense(n):
    """Ideal times of an 8B model on one accelerator at a context of n tokens."""
    return step.ideal(
        weight_bytes=15e9,
        kv_read_bytes=131072 * n,
        active_params=7.5e9,
        layers=32,
        bandwidth=3.35e12,
        flops=989e12,
        flops_bf16=989e12,
        attention_flops=524288.0 * n,
        prompt_attention_flops=262144.0 * n * (n + 1.0),
    )


ENGINE = Coefficients(layer_overhead=30e-6, prompt_overhead=1e-3, step_overhead=1e-3, kv_read=1.4, prefill_linear=1.6)
CLOCK = simulate.tabulate(dense, ENGINE, max_batch=256, max_context=20000)


def served(requests, scheduler, *, replicas=1, **options):
    """Serve (sent, prompt, output[, chain]) with the simulator."""
    sent, isl, osl = (np.array([r[i] for r in requests]) for i in range(3))
    tree = leaves = None
    if len(requests[0]) > 3:
        tree = workload.PrefixTree()
        size = scheduler.block_size
        leaves = np.array([tree.add(r[3], size, r[1]) for r in requests])
    traffic = workload.of_requests(sent, isl, osl, prefix=leaves, tree=tree)
    pool = Pool(clock=CLOCK, scheduler=scheduler, replicas=replicas)
    return simulate.simulate(pool, traffic, compiled=False, **options)


def as_reference(requests):
    return [reference.Request(row, *r[:3], tuple(r[3]) if len(r) > 3 else ()) for row, r in enumerate(requests)]


def assert_alike(result, expected):
    table = result.table
    for ours, theirs in (("first_token_s", "first"), ("finished_s", "finished"), ("admitted_s", "admitted")):
        wanted = [getattr(r, theirs) for r in expected]
        np.testing.assert_allclose(getattr(table, ours), wanted, rtol=1e-9, atol=1e-12, err_msg=ours)
    assert table.preemptions.tolist() == [r.preemptions for r in expected]
    assert table.cached.tolist() == [r.cached for r in expected]


@st.composite
def arrivals(draw, most=40):
    """Some requests, close together or far apart, some at once."""
    count = draw(st.integers(1, most))
    gap = draw(st.sampled_from([0.0, 0.001, 0.02, 0.3]))
    gaps = draw(st.lists(st.floats(0, 2 * gap), min_size=count, max_size=count))
    lengths = st.integers(1, 300), st.integers(1, 120)
    return [(float(sent), draw(lengths[0]), draw(lengths[1])) for sent in np.cumsum(gaps)]


# -- the clock --------------------------------------------------------------------------------------------------------


@given(
    experts=st.sampled_from([(1, 1, 0.0), (64, 4, 30e9), (256, 8, 600e9)]),
    window=st.sampled_from([None, 512, 4096]),
    tp=st.sampled_from([1, 2, 8]),
    coefficients=st.builds(
        Coefficients,
        weight_read=st.floats(1, 2),
        kv_read=st.floats(1, 2),
        compute=st.floats(1, 2),
        tp_latency=st.floats(0, 1e-5),
        tp_volume=st.floats(1, 3),
        step_overhead=st.floats(0, 1e-3),
        sequence_overhead=st.floats(0, 1e-4),
        layer_overhead=st.floats(0, 1e-4),
        prefill_linear=st.floats(1, 2),
        prefill_attention=st.floats(1, 4),
        prompt_overhead=st.floats(0, 1e-2),
    ),
    contexts=st.lists(st.integers(1, 8000), max_size=40),
    chunk=st.one_of(st.none(), st.tuples(st.integers(0, 4000), st.integers(1, 4000))),
)
@settings(max_examples=examples(40))
def test_clock_is_step(experts, window, tp, coefficients, contexts, chunk):
    """The time of any step is that of step.mixed_step, to a billionth."""
    count, used, expert_bytes = experts

    def ideal_at(n):
        seen = n if window is None else np.minimum(n, window) + 0.2 * n
        return step.ideal(
            weight_bytes=40e9,
            expert_bytes=expert_bytes,
            kv_read_bytes=200000.0 * seen / tp,
            active_params=30e9,
            attention_flops=4e6 * n,
            prompt_attention_flops=2e6 * n * (n + 1.0),
            layers=60,
            moe_layers=58 if count > 1 else 0,
            experts=count,
            experts_per_token=used,
            hidden_size=7168,
            bandwidth=3.35e12,
            flops=989e12,
            flops_bf16=989e12,
            link_bandwidth=450e9,
            tp=tp,
        )

    clock = simulate.tabulate(ideal_at, coefficients, max_batch=64, max_context=8001)
    each = [ideal_at(float(n)) for n in contexts]
    attended = np.mean([max(one.kv_s, one.attention_s) for one in each]) if each else 0.0
    mean = dataclasses.replace(ideal_at(1.0), kv_s=attended, attention_s=0.0)
    terms = step.decode_step(mean, coefficients, len(contexts))
    if chunk is not None:
        start, size = chunk
        ends = [float(ideal_at(float(n)).prompt_attention_s) for n in (start, start + size)]
        attention = ends[1] - ends[0]
        terms = step.mixed_step(mean, coefficients, len(contexts), size, attention_s=attention)
    ours = clock.step(contexts, [chunk] if chunk else [], 1 if chunk else 0)
    assert ours == pytest.approx(float(terms.total), rel=1e-9)


def test_clock_of_a_rank_counts_the_experts_of_all():
    """With attention data parallelism a rank's batch stands for all ranks'."""
    ideal = step.ideal(
        weight_bytes=20e9, expert_bytes=600e9, kv_read_bytes=70272 * 1000, active_params=37e9, layers=61,
        moe_layers=58, experts=256, experts_per_token=8, bandwidth=3.35e12, flops=1979e12, flops_bf16=989e12,
        link_bandwidth=450e9, hidden_size=7168, dp=8, ep=8,
    )  # fmt: skip
    clock = simulate.tabulate(lambda _: ideal, Coefficients(), max_batch=64, max_context=2000)
    expected = step.decode_step(ideal, Coefficients(), 8 * 16).total
    assert clock.step([1000] * 16) == pytest.approx(float(expected), rel=1e-12)


def test_clock_follows_staircases_within_an_entry():
    """Compressed attention adds an entry every 128 tokens: straight lines stay within one."""

    def ideal_at(n):
        return dataclasses.replace(dense(n), kv_s=1e-9 * np.floor_divide(n, 128), attention_s=0.0)

    clock = simulate.tabulate(ideal_at, Coefficients(), max_batch=8, max_context=50000)
    contexts = np.arange(1, 50000)
    assert np.abs(clock.kv(contexts) - 1e-9 * (contexts // 128)).max() <= 1e-9


def test_clock_refuses_free_steps():
    with pytest.raises(InputError, match="no time"):
        simulate.tabulate(lambda _: Ideal(*([0.0] * 9), 0, 0, 1, 1), Coefficients(), max_batch=4, max_context=10)


# -- against schedulers written a second time -------------------------------------------------------------------------


@st.composite
def vllm_knobs(draw):
    size = draw(st.sampled_from([1, 4, 16]))
    seats = draw(st.integers(1, 20))
    return Vllm(
        max_num_seqs=seats,
        max_num_batched_tokens=draw(st.integers(seats, 400)),
        block_size=size,
        kv_blocks=draw(st.integers(430, 1200)) // size + 1,
        prefix_caching=draw(st.booleans()),
        async_scheduling=draw(st.booleans()),
        reserve_full_isl=draw(st.booleans()),
    )


@given(requests=arrivals(), knobs=vllm_knobs())
@settings(max_examples=examples(60))
def test_vllm_token_by_token(requests, knobs):
    """Jumps give what a loop over tokens and single blocks gives, preemption and what survives it included."""
    expected = as_reference(requests)
    peak = reference.vllm(CLOCK, expected, knobs)
    result = served(requests, knobs)
    assert_alike(result, expected)
    assert result.kv_peak == peak / knobs.kv_blocks


def test_vllm_under_pressure():
    """One hard case: hundreds of preemptions in a cache that holds four requests."""
    rng = np.random.default_rng(5)
    requests = [(0.01 * i, int(rng.integers(1, 300)), int(rng.integers(1, 200))) for i in range(80)]
    for caching in (False, True):
        knobs = Vllm(max_num_seqs=40, max_num_batched_tokens=256, kv_blocks=64, prefix_caching=caching)
        expected = as_reference(requests)
        reference.vllm(CLOCK, expected, knobs)
        result = served(requests, knobs)
        assert_alike(result, expected)
        assert result.preemptions > 20


@given(
    requests=arrivals(),
    knobs=st.builds(
        Sglang,
        max_running_requests=st.integers(1, 20),
        chunked_prefill_size=st.integers(20, 400),
        max_prefill_tokens=st.integers(20, 600),
        kv_tokens=st.integers(430, 1500),
        radix_cache=st.booleans(),
        schedule_conservativeness=st.sampled_from([0.3, 1.0, 1.2]),
    ),
)
@example(  # the last request finds room in the sixth step, by a fiftieth of a token
    requests=[(0.0, 1, 94), (0.0, 284, 93), (0.0, 197, 120), *[(0.0, 1, 1)] * 6, (0.0, 34, 117)],
    knobs=Sglang(
        max_running_requests=2, chunked_prefill_size=20, max_prefill_tokens=20, kv_tokens=466, radix_cache=False
    ),
)
@settings(max_examples=examples(40))
def test_sglang_token_by_token(requests, knobs):
    expected = as_reference(requests)
    reference.sglang(CLOCK, expected, knobs)
    assert_alike(served(requests, knobs), expected)


@given(
    requests=arrivals(), knobs=st.builds(Static, batch=st.integers(1, 12), timeout_s=st.sampled_from([0.0, 0.05, 0.5]))
)
@settings(max_examples=examples(25))
def test_static_token_by_token(requests, knobs):
    expected = as_reference(requests)
    reference.static(CLOCK, expected, knobs)
    assert_alike(served(requests, knobs), expected)


@given(requests=arrivals(), period=st.sampled_from([0.0051, 0.0201, 0.1003]), seats=st.integers(1, 20))
@settings(max_examples=examples(25))
def test_train_token_by_token(requests, period, seats):
    """vLLM's order, departures at multiples of a period."""
    knobs = Train(period_s=period, max_num_seqs=seats, max_num_batched_tokens=200, kv_blocks=60)
    expected = as_reference(requests)
    same = Vllm(max_num_seqs=seats, max_num_batched_tokens=200, kv_blocks=60, prefix_caching=False)
    reference.vllm(CLOCK, expected, same, period=period)
    assert_alike(served(requests, knobs), expected)


@st.composite
def with_chains(draw, size):
    """Requests whose prompts share whole blocks, like conversations that fork."""
    requests = []
    for sent, prompt, output in draw(arrivals(most=30)):
        turns = draw(st.lists(st.integers(0, 1), max_size=5))
        names = [f"{turns[: depth + 1]}/{part}" for depth in range(len(turns)) for part in range(16 // size)]
        requests.append((sent, prompt, output, names[: prompt // size]))
    return requests


@given(data=st.data(), size=st.sampled_from([4, 16]), lag=st.booleans())
@settings(max_examples=examples(25))
def test_prefix_cache_block_by_block(data, size, lag):
    """With room enough, hits are those of a cache that keeps every block by name."""
    requests = data.draw(with_chains(size))
    knobs = Vllm(max_num_seqs=12, max_num_batched_tokens=200, kv_blocks=8000 // size, block_size=size,
                 async_scheduling=lag)  # fmt: skip
    expected = as_reference(requests)
    reference.vllm(CLOCK, expected, knobs)
    assert_alike(served(requests, knobs), expected)


def test_prefix_cache_under_pressure_is_near():
    """When blocks are short, a node goes whole and half-computed prompts are forgotten: near, not equal."""
    rng = np.random.default_rng(2)
    requests = []
    for i in range(150):
        turns = rng.integers(0, 2, rng.integers(0, 8)).tolist()
        prompt = int(rng.integers(20, 300))
        names = [str(turns[: d + 1]) for d in range(len(turns))][: prompt // 16]
        requests.append((0.02 * i, prompt, int(rng.integers(1, 120)), names))
    knobs = Vllm(max_num_seqs=20, max_num_batched_tokens=200, kv_blocks=90)
    expected = as_reference(requests)
    reference.vllm(CLOCK, expected, knobs)
    result = served(requests, knobs)
    assert result.preemptions > 10
    assert result.cached_tokens == pytest.approx(sum(r.cached for r in expected), rel=0.05)
    np.testing.assert_allclose(result.table.finished_s, [r.finished for r in expected], rtol=0.02)


def test_simpy_agrees():
    """Every request under vLLM's rules as a simpy process: the same times, request by request."""
    simpy = pytest.importorskip("simpy")
    rng = np.random.default_rng(3)
    count, seats, budget = 120, 8, 64
    sent = np.cumsum(rng.exponential(0.08, count))
    isl, osl = rng.integers(1, 300, count), rng.integers(1, 60, count)
    first, finished = np.zeros(count), np.zeros(count)
    env = simpy.Environment()
    arrived = simpy.Store(env)

    def client():
        for row in range(count):
            yield env.timeout(sent[row] - env.now)
            arrived.put(row)

    def server():
        running, computed, made = [], {}, {}
        while True:
            if not running and not arrived.items:
                running.append((yield arrived.get()))
                computed[running[-1]] = made[running[-1]] = 0
            room = budget - sum(made[row] > 0 for row in running)
            chunks, contexts = [], []
            for row in running:
                if made[row]:
                    contexts.append(computed[row] + 1)
                elif room:
                    chunks.append((row, min(isl[row] - computed[row], room)))
                    room -= chunks[-1][1]
            while arrived.items and room and len(running) < seats:
                row = yield arrived.get()
                running.append(row)
                computed[row] = made[row] = 0
                chunks.append((row, min(isl[row], room)))
                room -= chunks[-1][1]
            whole = sum(computed[row] + size == isl[row] for row, size in chunks)
            yield env.timeout(CLOCK.step(contexts, [(computed[row], size) for row, size in chunks], whole))
            chunked = dict(chunks)
            for row in list(running):
                computed[row] += chunked.get(row, 1 if made[row] else 0)
                if computed[row] >= isl[row]:
                    made[row] += 1
                    first[row] = first[row] or env.now
                    if made[row] == osl[row]:
                        finished[row] = env.now
                        running.remove(row)

    env.process(client())
    env.process(server())
    env.run(until=1000)
    knobs = Vllm(max_num_seqs=seats, max_num_batched_tokens=budget)
    table = served(list(zip(sent.tolist(), isl.tolist(), osl.tolist(), strict=True)), knobs).table
    np.testing.assert_allclose(table.first_token_s, first, rtol=1e-9)
    np.testing.assert_allclose(table.finished_s, finished, rtol=1e-9)


# -- one loop, compiled or not ----------------------------------------------------------------------------------------

SCHEDULERS = {
    "vllm": Vllm(max_num_seqs=24, max_num_batched_tokens=512, kv_blocks=300),
    "vllm ahead": Vllm(max_num_seqs=24, max_num_batched_tokens=512, kv_blocks=300, async_scheduling=True),
    "sglang": Sglang(max_running_requests=24, kv_tokens=5000, chunked_prefill_size=512),
    "static": Static(batch=8, timeout_s=0.3),
    "train": Train(period_s=0.02, max_num_seqs=24),
}


def busy_traffic(count=300, seed=0):
    lengths = workload.LogNormal(200, 0.9, high=2000), workload.LogNormal(60, 0.9, high=600)
    return workload.synthetic(workload.Poisson(20), *lengths, count=count, seed=seed, shared_prefix=(3, 64))


@needs_numba
@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("replicas", [1, 3])
def test_compiled_loop_gives_the_same_bits(name, replicas):
    pool = Pool(clock=CLOCK, scheduler=SCHEDULERS[name], replicas=replicas)
    both = [
        simulate.simulate(pool, busy_traffic(), compiled=compiled, router="prefix_aware") for compiled in (True, False)
    ]
    fast, slow = both
    assert fast.compiled
    assert not slow.compiled
    for column, values in fast.table.columns().items():
        np.testing.assert_array_equal(values, slow.table.columns()[column], err_msg=column)
    assert fast.to_dict() == slow.to_dict()
    for ours, theirs in zip(fast.sketches.values(), slow.sketches.values(), strict=True):
        np.testing.assert_array_equal(ours[1], theirs[1])


def test_compiled_code_is_filed_under_all_its_sources(tmp_path, monkeypatch):
    """numba looks at the file of a function only, but what it keeps holds functions of all files of the loop."""
    copy = tmp_path / "_loop"
    shutil.copytree(_compile._FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = _compile._digest()
    monkeypatch.setattr(_compile, "_FOLDER", copy)
    assert _compile._digest() == before
    with (copy / "blocks.py").open("a") as file:
        file.write("# changed\n")
    assert _compile._digest() != before


@pytest.mark.parametrize("name", SCHEDULERS)
def test_chunks_do_not_matter(name):
    """Requests read one by one or all at once are served alike."""
    requests = workload.whole(busy_traffic(150))
    singly = workload.Traffic(
        chunks=lambda: (requests.take(slice(i, i + 1)) for i in range(len(requests))), name="one by one"
    )
    pool = Pool(clock=CLOCK, scheduler=SCHEDULERS[name])
    one, all_ = (simulate.simulate(pool, traffic, compiled=False) for traffic in (singly, busy_traffic(150)))
    np.testing.assert_array_equal(one.table.finished_s, all_.table.finished_s)
    assert one.to_dict() == all_.to_dict()


def test_same_seed_same_answer():
    pool = Pool(clock=CLOCK, scheduler=SCHEDULERS["vllm"])
    answers = [simulate.simulate(pool, busy_traffic(100, seed), compiled=False).to_dict() for seed in (1, 1, 2)]
    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


# -- pools, replicas, closed loops ------------------------------------------------------------------------------------


def test_disaggregated_request_by_hand():
    """Prompt on one engine, transfer, decode on the other; the first token counts when the cache has arrived."""
    prompt, output = 1000, 5
    prefill = Pool(clock=CLOCK, scheduler=Vllm(max_num_batched_tokens=2048))
    pool = Pool(clock=CLOCK, scheduler=Vllm())
    traffic = workload.of_requests([1.0], prompt, output)
    result = simulate.simulate(pool, traffic, prefill=prefill, transfer_s=0.01, transfer_token_s=1e-5, compiled=False)
    first = 1.0 + CLOCK.step([], [(0, prompt)], 1) + 0.01 + 1e-5 * prompt
    decode = sum(CLOCK.step([prompt + made]) for made in range(1, output))
    assert result.table.first_token_s[0] == pytest.approx(first, rel=1e-12)
    assert result.table.finished_s[0] == pytest.approx(first + decode, rel=1e-12)
    assert result.engines == 2


def test_disaggregation_takes_prompts_out_of_the_decode():
    """Long prompts beside decodes make gaps; on engines of their own they do not."""
    traffic = workload.synthetic(workload.Poisson(4), workload.Fixed(8000), workload.Fixed(200), count=200)
    knobs = Vllm(max_num_batched_tokens=8192)
    pool = Pool(clock=CLOCK, scheduler=knobs, replicas=2)
    one = Pool(clock=CLOCK, scheduler=knobs)
    together = simulate.simulate(pool, traffic, compiled=False)
    apart = simulate.simulate(one, traffic, prefill=one, transfer_token_s=2e-6, compiled=False)
    assert apart.requests == together.requests == 200
    assert apart.percentile("itl", 99.5) < 0.3 * together.percentile("itl", 99.5)


def test_disaggregated_prefill_holds_the_cache_until_it_has_moved():
    """A prefill engine with room for one prompt computes the next one after the transfer."""
    prefill = Pool(clock=CLOCK, scheduler=Vllm(kv_blocks=70))
    result = simulate.simulate(
        Pool(clock=CLOCK), workload.of_requests([0.0, 0.0], 1000, 2), prefill=prefill, transfer_s=0.5, compiled=False
    )
    took = CLOCK.step([], [(0, 1000)], 1)
    np.testing.assert_allclose(result.table.first_token_s, [took + 0.5, 2 * took + 1.0])


def test_round_robin_is_a_split():
    """Two replicas in turn are two single engines with every other request each."""
    requests = workload.whole(workload.limited(busy_traffic(80), 80))
    pool = Pool(clock=CLOCK, scheduler=SCHEDULERS["vllm"], replicas=2)
    both = simulate.simulate(pool, busy_traffic(80), compiled=False)
    assert both.table.engine.tolist() == [0, 1] * 40
    for engine in range(2):
        mine = requests.take(slice(engine, None, 2))
        alone = simulate.simulate(
            Pool(clock=CLOCK, scheduler=SCHEDULERS["vllm"]),
            workload.of_requests(mine.arrival_s, mine.isl, mine.osl, prefix=mine.prefix, tree=mine.tree),
            compiled=False,
        )
        np.testing.assert_allclose(both.table.finished_s[engine::2], alone.table.finished_s, rtol=1e-12)


def test_least_loaded_beats_taking_turns_when_lengths_differ():
    lengths = workload.Fixed(100), workload.LogNormal(100, 1.5, high=3000)
    traffic = workload.synthetic(workload.Poisson(60), *lengths, count=600)
    pool = Pool(clock=CLOCK, scheduler=Vllm(max_num_seqs=8), replicas=4)
    turns, least = (
        simulate.simulate(pool, traffic, router=router, compiled=False) for router in ("round_robin", "least_loaded")
    )
    assert least.times["wait"].mean < turns.times["wait"].mean


def test_prefix_aware_router_finds_more():
    """Thirty conversations on four engines, each of whose caches holds a third of them."""
    tree = workload.PrefixTree()
    leaves = np.array([tree.add([group], 512, 512) for group in range(30)])
    rng = np.random.default_rng(0)
    group = rng.integers(0, 30, 400)
    traffic = workload.of_requests(np.cumsum(rng.exponential(0.1, 400)), 560, 20, prefix=leaves[group], tree=tree)
    pool = Pool(clock=CLOCK, scheduler=Vllm(kv_blocks=400), replicas=4)
    found = {
        router: simulate.simulate(pool, traffic, router=router, compiled=False).prefix_hit_rate
        for router in simulate.ROUTERS
    }
    assert found["prefix_aware"] > 1.5 * found["round_robin"]


def test_closed_loop_keeps_its_users_busy():
    """With no queue, requests in flight are the users; with thinking, Little's law splits them."""
    pool = Pool(clock=CLOCK, scheduler=Vllm())
    lengths = workload.Uniform(100, 300), workload.Uniform(50, 150)
    busy = simulate.simulate(pool, workload.closed_loop(16, *lengths, count=400), compiled=False)
    assert busy.running == pytest.approx(16, rel=0.05)
    assert busy.requests_per_s * busy.times["e2e"].mean == pytest.approx(16, rel=0.05)
    thinking = simulate.simulate(
        pool, workload.closed_loop(16, *lengths, count=800, think_s=1.0), compiled=False, promises={}
    )
    assert thinking.requests_per_s * (thinking.times["e2e"].mean + 1.0) == pytest.approx(16, rel=0.1)


def test_closed_loop_over_replicas():
    pool = Pool(clock=CLOCK, scheduler=Vllm(), replicas=3)
    traffic = workload.closed_loop(12, workload.Fixed(100), workload.Fixed(50), count=120)
    result = simulate.simulate(pool, traffic, router="least_loaded", compiled=False)
    assert result.requests == 120
    assert np.bincount(result.table.engine).tolist() == [40, 40, 40]


def test_time_to_the_engine_counts():
    slow = dataclasses.replace(CLOCK, ttft_constant_s=0.5)
    traffic = workload.of_requests([0.0], 100, 10)
    near, far = (simulate.simulate(Pool(clock=c), traffic, compiled=False) for c in (CLOCK, slow))
    assert far.times["ttft"].mean == pytest.approx(near.times["ttft"].mean + 0.5)
    assert far.times["tpot"].mean == pytest.approx(near.times["tpot"].mean)


# -- what a result says -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def busy():
    pool = Pool(clock=CLOCK, scheduler=SCHEDULERS["vllm"], usd_per_hour=3.0, power_w=700)
    promises = {"ttft": Promise(0.5, 90), "tpot": Promise(0.02)}
    return simulate.simulate(pool, busy_traffic(), promises=promises, compiled=False)


def test_result_keys(busy):
    """What issue 7 asks for, by name."""
    found = busy.to_dict()
    for metric in ("ttft_s", "tpot_s", "e2e_s"):
        assert {"p50", "p90", "p99", "mean"} <= set(found[metric])
    wanted = {"requests_per_s", "output_tokens_per_s", "goodput", "preemptions", "kv_peak", "saturated_by"}
    assert wanted <= set(found)
    assert found["promises_kept"] == {
        "ttft": bool(np.percentile(busy.table.ttft_s, 90) <= 0.5),
        "tpot": bool(np.nanmean(busy.table.tpot_s) <= 0.02),
    }
    assert found["usd_per_mtok"] == pytest.approx(3.0 / 3600 / found["output_tokens_per_s"] * 1e6)
    assert found["joules_per_token"] == pytest.approx(700 / found["output_tokens_per_s"])


def test_goodput_counts_requests_within_all_limits(busy):
    table = busy.table
    met = (table.ttft_s <= 0.5) & (np.nan_to_num(table.tpot_s) <= 0.02)
    assert busy.met == met.sum()
    assert busy.goodput == pytest.approx(met.sum() / table.finished_s.max())


def test_sketches_are_within_a_thousandth(busy):
    """Without the single requests, percentiles come from buckets 0.1% to 0.2% wide."""
    for metric, exact in (("ttft", busy.table.ttft_s), ("e2e", busy.table.e2e_s)):
        middles, counts = busy.sketches[metric]
        assert counts.sum() == len(exact)
        reached = np.repeat(middles, counts.astype(int))
        np.testing.assert_allclose(reached, np.sort(exact), rtol=1.1e-3)


def test_sums_are_those_of_the_requests(busy):
    table = busy.table
    assert busy.output_tokens == table.osl.sum()
    assert busy.times["ttft"].mean == pytest.approx(table.ttft_s.mean())
    assert busy.times["e2e"].max == table.e2e_s.max()
    assert busy.times["wait"].mean == pytest.approx((table.admitted_s - table.sent_s).mean(), abs=1e-12)
    gaps = (table.osl - 1).sum()
    assert busy.times["itl"].count == gaps
    assert busy.times["itl"].mean * gaps == pytest.approx((table.finished_s - table.first_token_s).sum())


def test_series_adds_up(busy):
    series = busy.series
    assert series.arrived.sum() == series.finished.sum() == busy.requests
    assert series.preempted.sum() == busy.preemptions > 0
    assert series.waiting[-1] == 0
    assert series.waiting.min() >= 0
    assert (series.output_tokens_per_s * series.cell_s).sum() == pytest.approx(busy.output_tokens)
    assert 0.0 <= series.busy.min() <= series.busy.max() <= 1.0 + 1e-9
    assert series.kv_use.max() <= busy.kv_peak <= 1.0
    assert len(series.to_records()) == len(series.time_s)


def test_what_saturates():
    """A cache, seats and the token budget, each made short."""
    lengths = workload.Fixed(500), workload.Fixed(200)
    traffic = workload.synthetic(workload.Poisson(30), *lengths, count=200)
    shortages = {
        "kv": Vllm(kv_blocks=200),
        "max_num_seqs": Vllm(max_num_seqs=4),
        "prefill": Vllm(max_num_seqs=64, max_num_batched_tokens=70),
        None: Vllm(),
    }
    for name, knobs in shortages.items():
        slow = workload.rescaled(traffic, rate=1 if name else 0.3)
        result = simulate.simulate(Pool(clock=CLOCK, scheduler=knobs), slow, compiled=False)
        assert result.saturated_by == name
        assert result.sentence().endswith(".")


def test_long_runs_fold_their_series():
    """However long it lasts, the series has no more than 1,024 cells."""
    traffic = workload.of_requests(np.linspace(0, 86400, 50), 100, 10)
    series = simulate.simulate(Pool(clock=CLOCK), traffic, compiled=False).series
    assert len(series.time_s) <= 1024
    assert series.finished.sum() == 50


def test_without_single_requests():
    result = simulate.simulate(Pool(clock=CLOCK), busy_traffic(100), keep_requests=False, compiled=False)
    kept = simulate.simulate(Pool(clock=CLOCK), busy_traffic(100), compiled=False)
    assert result.table is None
    assert result.times["ttft"].p99 == pytest.approx(kept.times["ttft"].p99, rel=0.2)
    assert result.times["ttft"].mean == kept.times["ttft"].mean


def test_a_trace_of_unknown_length_is_kept_until_it_is_too_long(monkeypatch):
    kept = simulate.simulate(Pool(clock=CLOCK), busy_traffic(600), compiled=False)
    unknown = dataclasses.replace(busy_traffic(600), count=None)
    assert simulate.simulate(Pool(clock=CLOCK), unknown, compiled=False).table is not None
    monkeypatch.setattr(replay, "_KEPT", 300)
    found = simulate.simulate(Pool(clock=CLOCK), unknown, compiled=False)
    assert found.table is None
    assert found.requests == 600
    assert found.times["e2e"].mean == kept.times["e2e"].mean
    assert simulate.simulate(Pool(clock=CLOCK), unknown, compiled=False, keep_requests=True).table is not None


# -- what is refused --------------------------------------------------------------------------------------------------


def test_refusals():
    pool = Pool(clock=CLOCK, scheduler=Vllm(kv_blocks=100))
    with pytest.raises(InputError, match=r"Request 1 needs 1,699 tokens of KV cache\. .* 1,600"):
        simulate.simulate(pool, workload.of_requests([0, 1], [10, 1500], [10, 200]), compiled=False)
    with pytest.raises(InputError, match="Request 0 has 20,001 tokens"):
        simulate.simulate(Pool(clock=CLOCK), workload.of_requests([0], 20000, 1), compiled=False)
    with pytest.raises(UnknownNameError, match="round_robin"):
        simulate.simulate(pool, workload.of_requests([0], 1, 1), router="round-robin", compiled=False)
    with pytest.raises(UnknownNameError, match="ttft"):
        simulate.simulate(pool, workload.of_requests([0], 1, 1), promises={"ttf": Promise(1)}, compiled=False)
    with pytest.raises(InputError, match="no request"):
        simulate.simulate(pool, workload.Traffic(chunks=lambda: iter(())), compiled=False)
    with pytest.raises(InputError, match="256"):
        Pool(clock=CLOCK, scheduler=Vllm(max_num_seqs=257))
    with pytest.raises(InputError, match="transfer"):
        simulate.simulate(pool, workload.of_requests([0], 1, 1), transfer_s=math.nan)
    batches = Pool(clock=CLOCK, scheduler=Static())
    with pytest.raises(InputError, match="Static batches"):
        simulate.simulate(batches, workload.of_requests([0], 1, 1), prefill=pool)
    for wrong in (
        lambda: Vllm(max_num_seqs=0),
        lambda: Vllm(max_num_seqs=100, max_num_batched_tokens=99),
        lambda: Sglang(chunked_prefill_size=0),
        lambda: Static(batch=0),
        lambda: Static(timeout_s=-1.0),
        lambda: Train(period_s=0.0),
        lambda: Pool(clock=CLOCK, replicas=0),
    ):
        with pytest.raises(InputError):
            wrong()


def test_numba_missing_is_said(monkeypatch):
    monkeypatch.setattr(_compile, "has_numba", lambda: False)
    with pytest.raises(InputError, match="numba is not installed"):
        simulate.simulate(Pool(clock=CLOCK), workload.of_requests([0], 1, 1), compiled=True)
    assert not simulate.simulate(Pool(clock=CLOCK), workload.of_requests([0], 1, 1)).compiled
