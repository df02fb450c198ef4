"""The open loop in closed form against the same engine simulated event by event."""

import dataclasses

import numpy as np
import pytest

from batchline import prior, readings, serving
from batchline.deployment import Deployment
from batchline.simulate import pool_of, simulate
from batchline.workload import Fixed, GammaGaps, Poisson, synthetic

# What the simulator does: half a step until the next, the prompt's own, one more as it schedules ahead;
# a prompt delays the others by what it takes.
SCHEDULER = {"ttft_steps": 2.5, "prefill_share": 1.0}


def served(model, on, count, isl, osl, share, cv, requests=3000):
    """State in closed form and by events, at a share of the largest rate."""
    deployment = Deployment.of(model, on, count=count)
    context = isl + osl / 2
    ideal = readings.ideal_of(deployment, context, isl)
    known = dataclasses.replace(prior.load().coefficients(readings.case_of(deployment)), **SCHEDULER)
    pool = pool_of(deployment, context=context, coefficients=known, max_context=isl + osl)
    knobs = {
        "max_num_seqs": pool.scheduler.max_num_seqs,
        "max_num_batched_tokens": pool.scheduler.max_num_batched_tokens,
        "arrival_scv": cv**2,
    }

    def state(rate):
        return serving.open_loop(ideal, known, rate, isl, osl, deployment.capacity_batch(context), **knobs)

    rates = np.geomspace(0.1, 100, 400)
    rate = share * rates[np.isfinite(state(rates).ttft_s)].max()
    arrivals = Poisson(rate) if cv == 1 else GammaGaps(rate, cv)
    table = simulate(pool, synthetic(arrivals, Fixed(isl), Fixed(osl), count=requests, seed=3)).table
    kept = slice(requests // 5, requests * 9 // 10)
    return state(rate), table.tpot_s[kept].mean(), table.ttft_s[kept].mean()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize(
    "case", [("llama-3.1-8b", "h100", 1, 1024, 256), ("llama-3.1-70b", "h100", 4, 2048, 512)], ids=["8b", "70b"]
)
def test_poisson_arrivals(case, share):
    state, tpot, ttft = served(*case, share, 1)
    assert state.tpot_s == pytest.approx(tpot, rel=0.06)
    assert state.ttft_s == pytest.approx(ttft, rel=0.12)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_long_prompts_and_short_answers(share):
    state, tpot, ttft = served("llama-3.1-8b", "h100", 1, 8192, 64, share, 1)
    assert state.tpot_s == pytest.approx(tpot, rel=0.2)
    assert state.ttft_s == pytest.approx(ttft, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_bursts(share):
    state, tpot, ttft = served("llama-3.1-8b", "h100", 1, 1024, 256, share, 2)
    assert state.tpot_s == pytest.approx(tpot, rel=0.12)
    assert 0.6 * ttft < state.ttft_s < 1.1 * ttft
