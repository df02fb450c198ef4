"""Waits in queues against exact theory and simulated queues."""

import math
import random

import numpy as np
import pytest

from batchline.queueing import company_wait, left_behind, md1_wait, normal, prompt_wait, slot_wait


def erlang_c(servers, offered):
    """Chance to wait in M/M/c, by the recursion of Erlang B."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


def test_normal_distribution():
    for z in np.linspace(-6, 6, 49):
        assert normal(float(z)) == pytest.approx(0.5 * math.erfc(-z / math.sqrt(2)), abs=2e-7)


@pytest.mark.parametrize(("servers", "offered"), [(20, 15), (50, 40), (100, 90), (400, 380), (1000, 900)])
def test_slot_wait_against_erlang_c(servers, offered):
    # M/M/c: the wait is exponential with rate (c - a) / S given that one waits; service_scv 1 is exponential service.
    exact = erlang_c(servers, offered) * 10.0 / (servers - offered)
    assert slot_wait(offered, servers, 10.0, service_scv=1.0) == pytest.approx(exact, rel=0.35, abs=2e-3)


def test_slot_wait_is_endless_without_a_free_slot():
    assert slot_wait(100, 100, 10.0) == np.inf
    assert slot_wait(5, 100, 10.0, percentile=99) == 0.0


def simulated_md1(rate, service, n=200_000, seed=7):
    rng = random.Random(seed)  # noqa: S311
    clock = free = 0.0
    waits = []
    for _ in range(n):
        clock += rng.expovariate(rate)
        waits.append(max(0.0, free - clock))
        free = max(free, clock) + service
    return np.array(waits)


@pytest.mark.parametrize("use", [0.3, 0.6, 0.9])
def test_prompt_wait_against_a_simulated_queue(use):
    waits = simulated_md1(use / 0.1, 0.1)
    assert prompt_wait(use / 0.1, 0.1, 1.0, None) == pytest.approx(waits.mean(), rel=0.1)
    for percentile in (90, 95, 99):
        exact = np.percentile(waits, percentile)
        found = prompt_wait(use / 0.1, 0.1, 1.0, percentile)
        assert 0.9 * exact - 0.03 <= found <= 1.15 * exact + 0.06  # rather too long than too short


@pytest.mark.parametrize(("rate", "service", "expected"), [(8, 0.1, 0.3), (4, 0.1, 0.1 + 4 * 0.01 / (2 * 0.6))])
def test_wait_for_prefill_is_m_d_1(rate, service, expected):
    # DistServe equation 1 (theory.md Q01: 0.3 s).
    assert service + md1_wait(rate, service) == pytest.approx(expected)


def test_even_arrivals_do_not_wait():
    assert md1_wait(8, 0.1, arrival_scv=0) == 0.0


def test_prompts_left_behind_solve_their_equation():
    # rho (stay / busy + n) = rank with n = rho + rho^2 / 2 (1 - rho): put back in, by bisection.
    for rank, stay, busy in [(1.0, 1.0, 0.01), (8.0, 1.0, 0.05), (60.0, 2.0, 0.1), (20.0, 0.1, 0.5)]:
        low, high = 0.0, 1.0
        for _ in range(80):
            use = (low + high) / 2
            n = use + use * use / 2 / (1 - use)
            low, high = (use, high) if use * (stay / busy + n) < rank else (low, use)
        assert left_behind(rank, stay, busy) == pytest.approx(n, rel=0.02)


@pytest.mark.parametrize("use", [0.3, 0.6, 0.9])
def test_prompts_computed_together_against_a_simulated_engine(use):
    # Steps of 10 ms; all prompts that came during a step are computed in the next and are done at its end.
    step, prompt, rng = 0.01, 0.02, np.random.default_rng(3)
    rate = use / prompt
    arrivals = np.cumsum(rng.exponential(1 / rate, 200_000))
    clock, done, waits = 0.0, 0, []
    while done < len(arrivals):
        came = int(np.searchsorted(arrivals, clock, side="right"))
        end = clock + step + (came - done) * prompt
        waits.append(end - arrivals[done:came])
        clock, done = end, came
    found = 1.5 * step / (1 - use) + prompt + prompt_wait(rate, prompt) + company_wait(rate, prompt)
    assert found == pytest.approx(np.concatenate(waits).mean(), rel=0.05)
