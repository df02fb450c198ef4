"""Hazards: each is found where it was put, and nowhere else. Effects and sizes from complaints and runs named here."""

import csv
import dataclasses
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from batchline.cli.measure import command
from batchline.deployment import Deployment
from batchline.errors import UnknownNameError
from batchline.measure import MeasuredPoint, hazards, read


def served(**changes):
    """A clean closed loop: 16 in flight, 0.7 s before the first token, 128 tokens of 30 ms (Little: 16 / 4.51 s)."""
    tpot, ttft, osl = 0.030, 0.70, 128
    per_s = 16 / (ttft + (osl - 1) * tpot)
    values = {
        "regime": "serving",
        "batch": per_s * (osl - 1) * tpot,
        "context": 1088,
        "tpot_s": tpot,
        "tpot_mean_s": tpot,
        "itl_s": 0.029,
        "ttft_s": ttft,
        "ttft_mean_s": ttft,
        "concurrency": 16,
        "isl": 1024,
        "osl": osl,
        "requests_per_s": per_s,
        "output_tokens_per_s": per_s * osl,
        "completed": 160,
        "failed": 0,
        "tokens_per_chunk": 1.0,
        "mean_concurrency": 15.8,
        "full_share": 0.96,
    }
    return MeasuredPoint(**{**values, **changes})


def step(batch=8, t=0.02, context=1024, **changes):
    return MeasuredPoint(regime="decode", batch=batch, context=context, t_step_s=t, **changes)


def names(point, bound=None):
    return [hazard.name for hazard in hazards.inspect([point], [bound])[0]]


def test_a_clean_run_has_none():
    assert names(served()) == []
    assert names(step(samples=64, spread=0.01, tokens_per_chunk=1.016)) == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        # vllm-project/vllm #52884: a fixed seed and a prefix cache
        ({"cached_share": 0.86}, "prefix_cache"),
        # engines/README: a tokenizer that is not the server's counts up to 9 times as many tokens
        ({"client_output_tokens": 278, "server_output_tokens": 32}, "tokenizer"),
        # SemiAnalysisAI/InferenceX #870: ITL 127.4 ms at TPOT 12.8 ms
        ({"tokens_per_chunk": 127.4 / 12.8}, "chunks"),
        ({"speculative": "mtp"}, "speculative"),
        ({"disaggregated": True}, "disaggregated"),
        ({"full_share": 0.4}, "ramp_up"),
        ({"full_share": None, "completed": 32, "mean_concurrency": None}, "ramp_up"),
        ({"completed": 4, "concurrency": 1, "requests_per_s": 0.2, "mean_concurrency": 0.9}, "too_few"),
        ({"mean_concurrency": 8.0, "requests_per_s": 8 / 4.51}, "concurrency_not_reached"),
        ({"isl": 8192, "osl": 128}, "prefill_dominated"),
        ({"itl_s": 0.011}, "prefill_dominated"),
        ({"ttft_s": 5.0, "ttft_mean_s": 5.0, "requests_per_s": 16 / 8.81}, "prefill_dominated"),
        ({"spread": 0.69}, "noisy"),
        ({"failed": 20}, "failed"),
        # throughput of twice the requests that the latency allows
        ({"requests_per_s": 7.2, "output_tokens_per_s": 922}, "little"),
        # TPOT 3.3 ms where 30 ms would fit throughput and concurrency
        ({"tpot_s": 0.0033, "tpot_mean_s": 0.0033, "itl_s": 0.0033, "ttft_s": 0.1, "ttft_mean_s": 0.1}, "little"),
    ],
)
def test_each_hazard_is_found_where_it_was_put(changes, name):
    assert names(served(**changes)) == [name]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"samples": 5}, "too_few"),
        ({"spread": 0.88}, "noisy"),
        ({"tokens_per_chunk": 2.4}, "chunks"),
        ({"output_tokens_per_s": 4000}, "little"),
    ],
)
def test_each_hazard_of_a_step_is_found(changes, name):
    assert names(step(**changes)) == [name]


def test_faster_than_the_bound():
    # Llama-3.1-70B in bf16 on 4 H100: 10.4 ms to fetch the weights once (roofline.t_weights of its docstring)
    point = step(t=0.0102)
    assert names(point, 0.01037) == ["faster_than_bound"]
    assert names(point, 0.0101) == []
    assert names(point, None) == []
    (hazard,) = hazards.inspect([point], [0.01037])[0]
    assert hazard.evidence == "a step of 10.2 ms, and 10.4 ms is the least"
    assert str(hazard).startswith("faster_than_bound: a step of 10.2 ms")
    assert names(MeasuredPoint(regime="prefill", ttft_s=0.1), 1.0) == []


def test_bounds_are_the_floor_of_the_hardware():
    # 4 H100 read 70.55e9 parameters less the input embedding (1.05e9) in bf16 at 4 x 3.35 TB/s: 10.4 ms at least.
    deployment = Deployment.of("llama-3.1-70b", "4xh100")
    served = MeasuredPoint(regime="serving", concurrency=64, isl=64, osl=64, tpot_s=8e-3)
    step = MeasuredPoint(regime="decode", batch=1, context=16, t_step_s=11e-3)
    unknown = MeasuredPoint(regime="serving", concurrency=64, tpot_s=8e-3)
    least = hazards.bounds([served, step, unknown], deployment)
    assert least[:2] == pytest.approx([10.4e-3, 10.4e-3], rel=0.01)
    assert least[2] is None
    found = hazards.inspect([served, step, unknown], least)
    assert [[one.name for one in some] for some in found] == [["faster_than_bound"], [], []]


def test_the_command_knows_the_bound_of_the_hardware(tmp_path):
    file = tmp_path / "m.csv"
    file.write_text("batch,context,t_step_ms\n1,128,8.0\n8,128,11.0\n")
    asked = [str(file), "--on", "4xh100", "--config", "llama-3.1-70b"]
    said = CliRunner().invoke(command, asked)
    assert said.exit_code == 0, said.exception
    assert "faster_than_bound: a step of 8.00 ms, and 10.4 ms is the least" in said.stdout
    assert "1 of 2 points are usable" in said.stdout
    assert "faster_than_bound" not in CliRunner().invoke(command, asked[:1]).stdout
    assert "--config" in str(CliRunner().invoke(command, asked[:3]).exception)


def test_served_tpot_against_clean_steps_of_the_same_file():
    clean = step(batch=16, t=0.018, file="a.json")
    mixed = served(file="a.json")
    other = served(file="b.json")
    found = hazards.inspect([mixed, other, clean])
    assert [[hazard.name for hazard in row] for row in found] == [["prefill_dominated"], [], []]


def test_a_cache_matters_to_serving_and_not_to_steps():
    (hazard,) = hazards.inspect([step(cached_share=0.5)])[0]
    assert (hazard.name, hazard.excludes) == ("prefix_cache", False)
    assert hazards.usable([step(cached_share=0.5)])
    assert not hazards.usable([served(cached_share=0.5)])


def test_a_sweep_that_falls_names_the_row_out_of_order():
    sweep = [step(batch, t) for batch, t in ((1, 0.010), (2, 0.011), (4, 0.031), (8, 0.014), (16, 0.018))]
    found = hazards.inspect(sweep)
    assert [len(row) for row in found] == [0, 0, 1, 0, 0]
    assert found[2][0].evidence == "31.0 ms at 4, 14.0 ms at 8"
    assert [point.batch for point in hazards.usable(sweep)] == [1, 2, 8, 16]


def test_of_two_rows_either_may_be_wrong():
    found = hazards.inspect([step(1, 0.02), step(8, 0.01)])
    assert [[hazard.name for hazard in row] for row in found] == [["non_monotone"], ["non_monotone"]]


def test_sweeps_at_other_contexts_models_and_files_are_apart():
    points = [step(1, 0.03, 8192), step(8, 0.02, 1024), step(16, 0.015, 1024, model="b"), step(32, 0.01, file="x")]
    assert [len(row) for row in hazards.inspect(points)] == [0, 0, 0, 0]


def test_a_few_percent_less_is_noise():
    assert [len(row) for row in hazards.inspect([step(1, 0.0200), step(2, 0.0195), step(4, 0.021)])] == [0, 0, 0]


def test_overruling():
    points = [served(), served(cached_share=0.5), served(isl=8192)]
    assert hazards.usable(points) == points[:1]
    assert hazards.usable(points, overrule=["prefix_cache"]) == points[:2]
    assert hazards.usable(points, overrule=["all"]) == points
    with pytest.raises(UnknownNameError, match="prefix_cache"):
        hazards.usable(points, overrule=["prefix_cash"])


def test_bounds_must_be_as_many_as_points():
    with pytest.raises(ValueError, match="1 points but 2 bounds"):
        hazards.inspect([step()], [None, None])


def test_every_hazard_has_a_consequence_and_a_rule_that_makes_it():
    made = {"faster_than_bound", "non_monotone"}
    made |= {name for case in test_each_hazard_is_found_where_it_was_put.pytestmark[0].args[1] for name in [case[1]]}
    assert made == set(hazards.NAMES)


_FLOATS = st.one_of(st.none(), st.floats(1e-4, 1e4))


@given(
    st.lists(
        st.builds(
            MeasuredPoint,
            regime=st.sampled_from(["decode", "serving", "end_to_end", "throughput", "prefill"]),
            batch=_FLOATS,
            context=_FLOATS,
            concurrency=_FLOATS,
            isl=_FLOATS,
            osl=_FLOATS,
            requests_per_s=_FLOATS,
            tpot_mean_s=st.one_of(st.none(), st.floats(1e-4, 1)),
            tpot_s=st.one_of(st.none(), st.floats(1e-4, 1)),
            t_step_s=st.one_of(st.none(), st.floats(1e-4, 1)),
            mean_concurrency=_FLOATS,
            completed=st.one_of(st.none(), st.integers(1, 10000)),
        ),
        max_size=12,
    )
)
def test_nothing_breaks_it_and_usable_agrees_with_inspect(points):
    found = hazards.inspect(points)
    kept = hazards.usable(points)
    assert len(found) == len(points)
    assert len(kept) == sum(not any(hazard.excludes for hazard in row) for row in found)
    assert all(hazard.consequence for row in found for hazard in row)


@given(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=20), st.randoms(use_true_random=False))
def test_a_rising_sweep_in_any_order_has_no_hazard(steps, random):
    points = [step(2**number, t) for number, t in enumerate(sorted(steps))]
    random.shuffle(points)
    assert all(not row for row in hazards.inspect(points))


def test_real_files(shared):
    folder = shared / "engines"
    points = read(folder / "example_vllm_bench.json")
    assert [row for row in hazards.inspect(points) if row] == []
    (aiperf, *_) = hazards.inspect(read(folder / "example_aiperf.jsonl"))
    assert {"tokenizer", "noisy", "prefill_dominated"} == {hazard.name for hazard in aiperf}
    guide = hazards.inspect(read(folder / "example_guidellm.json"))
    assert all("too_few" in {hazard.name for hazard in row} for row in guide)  # 4 requests each
    # Mean and median of the last one are 1.4 apart; nothing of these may be fitted.
    assert hazards.usable(read(folder / "example_guidellm.json")) == []


def public(shared, name, mark="ok"):
    """Served rows of a table of public measurements with a mark."""
    for row in csv.DictReader((shared / "measured" / name).read_text().splitlines()):
        known = all(row[name] for name in ("batch_or_concurrency", "decode_step_ms", "ttft_ms", "isl", "osl"))
        if row["regime"] != "serving_conc" or not row["qc"].startswith(mark) or not known:
            continue
        tokens = float(row["tput_tok_s_total"]) if row["tput_tok_s_total"] else None
        # InferenceX draws lengths from 0.8 to 1.0 of the nominal ones.
        osl = 0.9 * float(row["osl"])
        yield MeasuredPoint(
            regime="serving",
            concurrency=float(row["batch_or_concurrency"]),
            context=float(row["context"]),
            tpot_s=float(row["decode_step_ms"]) / 1e3,
            ttft_s=float(row["ttft_ms"]) / 1e3,
            isl=0.9 * float(row["isl"]),
            osl=osl,
            requests_per_s=tokens / osl if tokens else None,
            output_tokens_per_s=tokens,
            engine_version=row["engine_version"],
            count=round(float(row["n_gpus"])) if row["n_gpus"] else None,
            file=row["series_id"],
        )


def test_good_public_rows_have_hardly_a_hazard(shared):
    points = list(public(shared, "serving_inferencemax.csv"))
    assert len(points) > 700
    found = [hazard for row in hazards.inspect(points) for hazard in row]
    # What is left is true: rate times latency is about half of the concurrency stated in these rows.
    assert {hazard.name for hazard in found} <= {"concurrency_not_reached"}
    assert len(found) <= 4


def test_public_rows_marked_as_queue_dominated_are_found(shared):
    points = list(public(shared, "serving_inferencemax.csv", "prefill/queue dominated"))
    found = hazards.inspect(points)
    assert len(points) > 40
    # The others are disaggregated and between 0.53 and 0.57 by latency, below 0.5 by throughput.
    assert sum(not hazards.usable([point]) for point in points) >= 40
    assert sum(bool(row) for row in found) >= 40


def test_the_rows_of_gb200_that_are_known_to_fall_are_found(shared):
    # physics.md, traps in the data: GB200 bf16 rows are non-monotone
    points = [point for point in public(shared, "serving_nvidia.csv") if "|gb200|nan|trtllm" in point.file]
    names = [hazard.name for row in hazards.inspect(points) for hazard in row]
    assert names.count("non_monotone") >= 3


def test_every_hazard_is_documented():
    page = (Path(__file__).parents[1] / "docs" / "measure.md").read_text()
    for name in hazards.NAMES:
        assert f"| `{name}` |" in page


def test_a_point_is_not_changed():
    point = served()
    hazards.inspect([point])
    assert point == dataclasses.replace(served())
