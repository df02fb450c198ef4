"""Public start-up logs against predictions: the tables of docs/memory.md are what the code says today."""

import importlib.util
import json
import statistics
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def validation():
    spec = importlib.util.spec_from_file_location("memory_cases", ROOT / "validation" / "memory_cases.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def compared(validation, shared):
    cases = json.loads((shared / "cases.json").read_text(encoding="utf-8"))["cases"]
    return validation.compare([case for case in cases if case["kind"] in {"kv_capacity", "does_not_fit"}])


def errors(found, what, *, known=True):
    return [abs(one.error) for one in found if one.what == what and one.known == known]


def test_every_case_of_the_two_kinds_is_predicted_or_refused_with_a_reason(validation, shared):
    cases = json.loads((shared / "cases.json").read_text(encoding="utf-8"))["cases"]
    wanted = {case["id"] for case in cases if case["kind"] in {"kv_capacity", "does_not_fit"}}
    rows = validation.rows("memory_cases.csv")
    assert {row["id"].rstrip("ab") for row in rows} == wanted
    assert all(row["note"] for row in rows if row["missing"])


def test_weights_within_a_percent(compared):
    found = errors(compared[0], "weights")
    assert len(found) >= 8
    assert statistics.median(found) <= 0.001
    assert max(found) <= 0.01


def test_cache_within_two_percent_where_no_input_is_missing(compared):
    assert statistics.median(errors(compared[0], "KV tokens")) <= 0.02
    assert statistics.median(errors(compared[0], "KV GiB")) <= 0.01


def test_activations_within_a_percent(compared):
    assert max(errors(compared[0], "activation")) <= 0.01


def test_misses_are_explained(compared):
    for one in compared[0]:
        if one.what in {"weights", "KV GiB", "KV tokens", "concurrency"} and abs(one.error) > 0.02:
            assert one.note, one.case


def test_what_did_not_start_does_not_fit(compared):
    assert compared[2] == ["U010, measured: did not start. Predicted for 32,000 tokens: 3.35 GiB are missing."]


def test_the_document_shows_todays_tables(validation, shared):
    cases = json.loads((shared / "cases.json").read_text(encoding="utf-8"))["cases"]
    assert "\n".join(validation.tables(cases)) in (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")


def test_the_document_of_engines_shows_the_facts(validation):
    assert "\n".join(validation.engine_tables()) in (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")


def test_logs_left_out_of_the_fit_are_predicted(validation):
    text = " ".join(validation.leave_one_out())
    assert "14.0 bytes a logit" in text or "13.98 bytes a logit" in text
    assert "KV tokens 0.03% median" in text
