"""The API does what it says of itself: schemathesis makes requests out of its OpenAPI and holds every answer to it."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from batchline.web import app
from batchline.web.guard import Limits

from .strategies import examples

# No answer is refused because the machine is slow.
SERVED = app.create(app.Settings(Limits(seconds=3600.0), access_log=False))


async def without_start(scope, receive, send):
    """Pass requests only: the start-up draws charts, which the tests that need them do themselves."""
    assert scope["type"] == "http"
    await SERVED(scope, receive, send)


DESCRIBED = schemathesis.openapi.from_asgi("/api/v1/openapi.json", without_start)
DESCRIBED.config.analysis.constants.enabled = False  # else every line of our sources changes what is tried
DESCRIBED.config.checks.negative_data_rejection.expected_statuses = ["400", "404", "413", "414", "422"]
OPERATIONS = [found.ok() for found in DESCRIBED.get_all_operations()]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]

EXAMPLES = {"POST /api/v1/download/{kind}": 4, "POST /api/v1/plan/flips": 6, "POST /api/v1/explore": 8}
"""How many are tried of what takes long; of all else, 20."""

CURVE = {"model": "llama-3.1-8b", "on": "h100"}
LOAD = {"isl": 900, "osl": 60, "rate": 2}
PLAN = {"model": "llama-3.1-8b", "accelerators": ["h100"], "max_devices": 2, **LOAD}
SIMULATION = {**CURVE, **LOAD, "requests": 20}
ANSWERED = {"/api/v1/plan": PLAN, "/api/v1/plan/flips": PLAN, "/api/v1/simulate": SIMULATION}
"""Questions that have an answer; CURVE is one everywhere else."""
KNOWN = {"/api/v1/models/{name}": "llama-3.1-8b", "/api/v1/accelerators/{name}": "h100"}


def lay_over_what_has_an_answer(case, draw):
    """Keep a few of the values that were made: nearly all of what is made is refused at its first name."""
    path = case.operation.path
    if path in KNOWN:
        case.path_parameters["name"] = KNOWN[path]
    asked = case.body if isinstance(case.body, dict) else case.query
    question = asked.get("question", asked)
    if "on" in question or "isl" in question:
        kept = draw(st.lists(st.sampled_from(sorted(question)), max_size=3, unique=True))
        made = {name: question[name] for name in kept}
        question.clear()
        question.update(ANSWERED.get(path, CURVE) | made)


def hold(operation, mode, times):
    """Try an operation with requests that its description allows, or with such as it does not; give the statuses."""
    statuses = set()

    @settings(max_examples=examples(times * EXAMPLES.get(operation.label, 20)), suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def held(case, data):
        if mode is GenerationMode.POSITIVE and data.draw(st.sampled_from(["answered", "as made"])) == "answered":
            lay_over_what_has_an_answer(case, data.draw)
        statuses.add(case.call_and_validate(checks=CHECKS).status_code)

    held()
    return statuses


TIMES = pytest.mark.parametrize("times", [1, pytest.param(15, marks=pytest.mark.slow)])


@TIMES
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_what_the_description_allows_is_answered_as_described(operation, times):
    statuses = hold(operation, GenerationMode.POSITIVE, times)
    assert 200 in statuses or operation.path in ("/api/v1/config", "/api/v1/measured")  # files, not made by chance


@TIMES
@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.query or one.body], ids=lambda one: one.label)
def test_what_the_description_forbids_is_refused_as_described(operation, times):
    statuses = hold(operation, GenerationMode.NEGATIVE, times)
    assert 422 in statuses
