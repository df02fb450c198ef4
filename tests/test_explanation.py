"""Equations with their numbers: those of the answer, checked by hand, and each equation is true as it stands."""

import re

import pytest

from batchline import Deployment, curve
from batchline.curve_question import Question
from batchline.explanation import equations, inputs, load, of_each_number
from batchline.strings import LANGUAGES
from batchline.units import format_time

READINGS = ["bound", "serial", "predict"]


def asked(reading="bound", **question):
    deployment = Deployment.of("llama-3.1-70b", "h100-sxm", count=4, usd_per_device_hour=3.6)
    return curve(deployment, context=8192, reading=reading, **question)


def milliseconds(line):
    return float(re.search(r"= ([\d.]+) ms", line)[1])


def test_the_numbers_are_the_articles():
    """Llama 3.1 70B: 8 KV heads of 128 in 80 layers, bf16; an H100 has 3.35 TB/s and 989 dense TFLOPS."""
    found = equations(asked())
    kv = 80 * 2 * 8 * 128 * 2
    assert f"56 x 8,192 x {kv / 1e3:.0f} kB / 13.4 TB/s" in found["parts"][3]
    assert milliseconds(found["parts"][3]) == pytest.approx(56 * 8192 * kv / 13.4e12 * 1e3, rel=3e-3)
    assert milliseconds(found["parts"][1]) == pytest.approx(2 * 56 * 69.5e9 / 3.956e15 * 1e3, rel=3e-3)
    balance = 2 * 69.5e9 / 3.956e15 * 13.4e12 / kv
    assert float(re.search(r"= ([\d,]+) tokens", found["balance"][0])[1].replace(",", "")) == pytest.approx(
        balance, 2e-3
    )


@pytest.mark.parametrize("reading", READINGS)
def test_what_an_equation_gives_is_the_answer(reading):
    answer = asked(reading)
    found, best = equations(answer), answer.optimum
    step = milliseconds(found["step"][1])
    assert step == pytest.approx(best.t_step * 1e3, rel=5e-3)
    numbers = re.search(r"= ([\d.]+) ms / ([\d,]+) x \$([\d.]+)/h  = \$([\d.]+)/Mtok", found["cost"][0])
    time, batch, price, cost = map(float, numbers.groups())
    assert cost == pytest.approx(time / 1e3 / batch * price / 3600 * 1e6, rel=5e-3)
    numbers = re.search(r"= ([\d,]+) / ([\d.]+) ms / (\d+)  = ([\d.]+)(k?) tok/s", found["rate"][0])
    each = float(numbers[4]) * (1000 if numbers[5] else 1)
    assert each == pytest.approx(float(numbers[1]) / float(numbers[2]) * 1e3 / int(numbers[3]), rel=5e-3)


def test_terms_of_a_prediction_add_up():
    line = equations(asked("predict"))["step"][1]
    *terms, total = map(float, re.findall(r"([\d.]+) ms", line))
    assert sum(terms) == pytest.approx(total, rel=1e-2)


def test_one_sequence_more_is_past_the_limit_that_binds():
    answer = asked("predict", step_limit=0.02)
    assert answer.optimum.binds == "step_limit"
    (line,) = equations(answer)["next"]
    assert line.startswith(f"t_step({answer.optimum.batch + 1}) = 20.0 ms + ")
    assert equations(asked())["next"] == []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("reading", READINGS)
def test_each_of_the_five_numbers_has_its_equation(reading, language):
    found = of_each_number(asked(reading), language)
    assert list(found) == ["batch", "cost", "time", "rate", "binds"]
    assert all(found.values())
    assert re.search("[가-힣]", " ".join(found["batch"])) or language == "en"
    assert len(inputs(asked(reading), language)) == 5


def test_what_has_no_price_and_no_cache_has_no_such_line():
    deployment = Deployment.of("llama-3.1-8b", "m2-ultra")
    answer = curve(deployment, context=0, reading="bound")
    found = equations(answer)
    assert answer.usd_per_hour is None
    assert found["cost"] == found["cost_floor"] == []
    assert found["capacity"] == ["capacity      = no limit: a sequence keeps no cache"]


def test_the_first_token_waits_for_as_many_steps_as_its_prompt_has_chunks():
    """Arithmetic: 8,192 tokens in chunks of 512 are 16 steps."""
    few, many = (
        Question(
            deployment=Deployment.of("llama-3.1-8b", "h100"),
            isl=8192,
            osl=128,
            concurrency=8,
            max_num_batched_tokens=budget,
        )
        for budget in (8192, 512)
    )
    state = many.steady(many.curve())
    assert state.first_steps_s == pytest.approx(16 * state.step_s)
    assert few.steady(few.curve()).first_steps_s < state.first_steps_s
    assert f" + {format_time(float(state.first_steps_s))} + " in load(many, many.curve())[-1]
