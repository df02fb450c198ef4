"""The question of a curve: every face asks it here."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchline import readings, sweep
from batchline.curve_question import ARRIVALS, Question, parse_arrivals, parse_draft, served_sentence
from batchline.deployment import Deployment
from batchline.errors import DoesNotFitError, InputError

ONE = Deployment.of("llama-3.1-8b", "h100", usd_per_device_hour=3.0)


def test_a_batch_that_starts_together_is_in_the_cache():
    one = Deployment.of("llama-3.1-70b", "h100", count=4)
    together = parse_arrivals("batch")
    asked = Question(deployment=one, isl=2048, osl=512, arrivals=together, concurrency=100)
    served = asked.served(asked.curve([1.0]))
    assert served["kv_use"] == pytest.approx(100 / one.capacity_batch(2304))
    with pytest.raises(InputError, match=r"A batch of 100,000 .* holds 200 sequences"):
        dataclasses.replace(asked, concurrency=100_000).served(asked.curve([1.0]))


def test_it_is_the_curve_of_the_library():
    asked = Question(deployment=ONE, isl=1024, osl=512, step_limit=0.05, tokens_per_user=40.0, max_batch=64)
    assert asked.mean_context == 1024 + 512 / 2
    assert asked.limit == 1 / 40
    ours = sweep.curve(ONE, 1280, reading="predict", step_limit=0.025, max_batch=64)
    assert asked.curve().to_dict() == ours.to_dict()
    assert Question(deployment=ONE).mean_context == 4096
    assert Question(deployment=ONE, context=8192.0, isl=1, osl=1).mean_context == 8192


def test_the_largest_batch_is_that_of_all_ranks_under_a_load_too():
    ranks = Deployment.of("llama-3.1-8b", "h100", count=4, tp=1, dp=4)
    asked = Question(deployment=ranks, isl=1024, osl=512, max_batch=16, concurrency=500)
    curve = asked.curve()
    assert curve.optimum.batch <= 16
    served = asked.served(curve)
    assert served["running_batch"] == 16
    assert served["saturated_by"] == "max_num_seqs"


@given(rate=st.floats(0.1, 20), variation=st.floats(0, 5))
def test_a_rate_is_served_as_the_steady_state_says(rate, variation):
    asked = Question(deployment=ONE, isl=1024, osl=64, rate=rate, arrivals=parse_arrivals(f"cv:{variation}"))
    served = asked.served(asked.curve([1.0]))
    state = readings.steady(ONE, 1024, 64, rate=rate, arrival_scv=variation**2)
    assert {name: served[name] for name in state.to_dict()} == pytest.approx(state.to_dict(), nan_ok=True)


def test_clients_and_batches():
    curve = Question(deployment=ONE, isl=1024, osl=64).curve([1.0])

    def batch_of(**load):
        return Question(deployment=ONE, isl=1024, osl=64, **load).served(curve)["running_batch"]

    assert batch_of(concurrency=8, arrivals=ARRIVALS["batch"]) == 8
    assert batch_of(concurrency=8) <= 8
    assert batch_of() == batch_of(concurrency=curve.optimum.batch)
    assert Question(deployment=ONE).served(curve) is None


def test_what_is_served_is_told_in_both_languages():
    calm, flood = (Question(deployment=ONE, isl=1024, osl=64, rate=rate) for rate in (1.0, 1e4))
    curve = calm.curve([1.0])
    assert served_sentence(calm.served(curve), "en").startswith("Served 1,024 in / 64 out at 1.00 req/s: TPOT")
    assert "감당할 수 없습니다" in served_sentence(flood.served(curve), "ko")
    assert math.isinf(flood.served(curve)["ttft_s"])
    drafted = Question(deployment=ONE, isl=1024, osl=64, concurrency=4, speculation=parse_draft("0.8,4"))
    # (1 - 0.8^5) / (1 - 0.8) tokens a step: Leviathan et al., equation 1
    assert "3.36 tokens a step" in served_sentence(drafted.served(curve), "en")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"isl": 9}, "--osl is missing"),
        ({"osl": 9}, "--isl is missing"),
        ({"isl": 0, "osl": 1}, "1 or more tokens"),
        ({"prefix_hit_rate": 0.5}, "--prefix-hit-rate needs the lengths"),
        ({"isl": 9, "osl": 9, "rate": 1.0, "concurrency": 2}, "not both"),
        ({"isl": 9, "osl": 9, "rate": 1.0, "arrivals": ARRIVALS["together"]}, "not one of this load"),
        ({"isl": 9, "osl": 9, "arrivals": ARRIVALS["poisson"]}, "not one of this load"),
    ],
)
def test_what_does_not_go_together_is_refused(given, said):
    with pytest.raises(InputError, match=said):
        Question(deployment=ONE, **given)


def test_requests_of_which_not_one_fits_are_refused():
    asked = Question(deployment=ONE, context=1024.0, isl=10**6, osl=1)
    with pytest.raises(DoesNotFitError, match="does not fit"):
        asked.served(asked.curve([1.0]))


@pytest.mark.parametrize("words", ["", "poison", "cv:-1", "cv:nan", "cv:1e9", "2"])
def test_no_pattern(words):
    with pytest.raises(InputError, match=r"no pattern.*poisson, even"):
        parse_arrivals(words)


@pytest.mark.parametrize("words", ["", "0.7", "1.1,3", "0.5,0", "0.5,2,3,4", "a,b"])
def test_no_draft(words):
    with pytest.raises(InputError, match="no draft"):
        parse_draft(words)
