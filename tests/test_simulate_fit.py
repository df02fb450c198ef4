"""Two logged vLLM runs: calibrated on their first third, held to the rest; and a fit that finds what made its log."""

import json
from dataclasses import replace

import numpy as np
import pytest

from batchline import prior, readings, simulate, workload
from batchline.deployment import Deployment
from batchline.errors import InputError, UnknownNameError
from batchline.simulate import Pool, Vllm
from batchline.simulate.fit import FITTED, fit_coefficients
from tests.test_simulate import ENGINE, busy_traffic, dense

PERCENTILES = (10, 25, 50, 75, 90, 95, 99)


def pool_at(coefficients):
    clock = simulate.tabulate(dense, coefficients, max_batch=24, max_context=4000)
    return Pool(clock=clock, scheduler=Vllm(max_num_seqs=24, max_num_batched_tokens=512, kv_blocks=600))


def test_fit_finds_what_made_the_log():
    """A log made with known coefficients: from half the requests, all times come back."""
    truth = replace(ENGINE, weight_read=1.5, prefill_linear=2.2)
    start = replace(ENGINE, weight_read=1.25, prefill_linear=1.7)
    traffic = busy_traffic(60)
    log = simulate.simulate(pool_at(truth), traffic, compiled=False).table
    fit = fit_coefficients(
        pool_at,
        start,
        traffic,
        ttft_s=log.ttft_s[:30],
        e2e_s=log.e2e_s[:30],
        names=("weight_read", "prefill_linear"),
        options={"compiled": False},
        evaluations=40,
    )
    assert fit.after < 0.5 * fit.before
    error = fit.result.table.e2e_s[30:] / log.e2e_s[30:] - 1
    assert np.abs(np.median(error)) < 0.03
    assert fit.coefficients.kv_read == start.kv_read


def test_fit_refusals():
    traffic = workload.of_requests([0.0, 1.0], 100, 10)
    for times, match in (
        (([], []), "at least one"),
        (([0.1], [0.1, 0.2]), "as many"),
        (([0.0], [1.0]), "request 0 is 0 s"),
        (([0.1], [np.nan]), "request 0 is nan"),
    ):
        with pytest.raises(InputError, match=match):
            fit_coefficients(pool_at, ENGINE, traffic, ttft_s=times[0], e2e_s=times[1], names=("kv_read",))
    with pytest.raises(UnknownNameError, match="weight_reed"):
        fit_coefficients(pool_at, ENGINE, traffic, ttft_s=[1], e2e_s=[1], names=("weight_reed",))
    with pytest.raises(InputError, match="starts at 0"):
        fit_coefficients(pool_at, ENGINE, traffic, ttft_s=[1], e2e_s=[1], names=("tp_latency",))


def logged(folder):
    """Traffic of a run, and TTFT and E2E of its requests from sending on."""
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    sent = np.array([row["arrival_time"] for row in rows])
    shift = rows[0]["queued_ts"] - sent[0]  # two clocks; the first request was queued at once
    ttft, e2e = (np.array([row[key] for row in rows]) - shift - sent for key in ("first_token_ts", "last_token_ts"))
    return workload.trace(folder / "requests.jsonl"), ttft, e2e


def errors(result, ttft, e2e, rows):
    table = result.table
    return {
        metric: np.percentile(simulated[rows], PERCENTILES) / np.percentile(real[rows], PERCENTILES) - 1
        for metric, simulated, real in (("ttft", table.ttft_s, ttft), ("e2e", table.e2e_s, e2e))
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "device", "knobs"),
    [
        ("RTX4090__Llama-3.1-8B", "llama-3.1-8b", "rtx-4090", {"max_num_seqs": 256, "kv_blocks": 2588}),
        ("RTXPRO6000__Qwen3-32B", "qwen3-32b", "2xrtx-pro-6000", {"max_num_seqs": 128}),
    ],
)
def test_logged_runs(shared, name, model, device, knobs):
    """Percentiles of the 200 requests that the fit has not seen are within 10%; uncalibrated within 60%."""
    traffic, ttft, e2e = logged(shared / "traces/vllm_runs" / name)
    deployment = Deployment.of(model, device, engine="vllm", engine_version="0.19.0")
    rules = Vllm(max_num_batched_tokens=2048, async_scheduling=True, **knobs)

    def engines(coefficients):
        return simulate.pool_of(deployment, context=1200, scheduler=rules, coefficients=coefficients, max_context=8192)

    believed = prior.load().coefficients(readings.case_of(deployment))
    before = errors(simulate.simulate(engines(believed), traffic), ttft, e2e, slice(100, None))
    fit = fit_coefficients(engines, believed, traffic, ttft_s=ttft[:100], e2e_s=e2e[:100])
    after = errors(fit.result, ttft, e2e, slice(100, None))
    for metric in ("ttft", "e2e"):
        assert np.abs(before[metric]).max() < 0.6
        assert np.abs(after[metric]).max() < 0.1
    assert all(getattr(fit.coefficients, key) >= 1 for key in FITTED if "overhead" not in key)
    series = fit.result.series
    rows = np.genfromtxt(shared / "traces/vllm_runs" / name / "timeseries.csv", delimiter=",", names=True)
    for column in ("running", "waiting"):
        simulated = np.interp(rows["t"], series.time_s, getattr(series, column))
        assert np.mean(np.abs(simulated - rows[column])) < 0.1 * rows[column].max()
    if rows["kv_cache_pct"].any():
        simulated = np.interp(rows["t"], series.time_s, series.kv_use)
        assert np.mean(np.abs(simulated - rows["kv_cache_pct"] / 100)) < 0.05
