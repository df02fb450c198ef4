"""The JSON API: the command line's answers and errors over HTTP, within bounds, and never the server's own files."""

import asyncio
import io
import json
import re
import string
import tempfile
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from batchline import architecture, chart, strings
from batchline.chart.theme import THEMES
from batchline.cli import curve as curve_command
from batchline.cli import plan as plan_command
from batchline.cli import price as price_command
from batchline.cli import show as show_command
from batchline.cli import simulate as simulate_command
from batchline.planner import search
from batchline.report import on_whole_batches
from batchline.space import startable
from batchline.units import format_usd
from batchline.web import app, compare, downloads, files, guard, look, model, planning, reply
from batchline.web.guard import HEADERS, Guard, Limits
from batchline.web.question import CurveQuestion, curve_of
from batchline.web.remember import Remembered

from .strategies import examples

BASE = "http://127.0.0.1:8765"
QUESTION = {"model": "llama-3.1-70b", "on": "4xh100", "context": "8k"}


@pytest.fixture(scope="module")
def client():
    # Without the start-up, which draws a chart: the tests that draw do it themselves.
    return TestClient(app.create(app.Settings(access_log=False)), base_url=BASE, raise_server_exceptions=False)


def command_line(command, *words):
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# -- the same answers as the command line --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "query"),
    [
        (["llama-3.1-70b", "--on", "4xh100", "--context", "8k"], "model=llama-3.1-70b&on=4xh100&context=8k"),
        (
            ["qwen3-32b", "--on", "h200", "--weights", "fp8", "--step-limit", "20ms", "--reading", "bound"],
            "model=qwen3-32b&on=h200&weights=fp8&step_limit=20ms&reading=bound",
        ),
        (
            ["deepseek-v3", "--on", "8xh200", "--isl", "4k", "--osl", "1k", "--batch", "1,2,4..64"],
            "model=deepseek-v3&on=8xh200&isl=4k&osl=1k&batch=1,2,4..64",
        ),
        (
            ["llama-3.1-8b", "--on", "custom", "--bandwidth", "3TB/s", "--flops", "1PFLOPS", "--memory", "100GB"],
            "model=llama-3.1-8b&on=custom&bandwidth=3TB/s&flops=1PFLOPS&memory=100GB",
        ),
    ],
)
def test_a_curve_is_what_the_command_line_prints(client, words, query):
    answer = client.get(f"/api/v1/curve?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.json() == command_line(curve_command.command, *words, "--json")
    model.CurveReply.model_validate(answer.json())


def test_numbers_are_in_base_units(client):
    texts = {**QUESTION, "step_limit": "40ms", "price": "$2/h"}
    numbers = {**QUESTION, "context": 8192, "step_limit": 0.04, "price": 2.0}
    assert client.post("/api/v1/curve", json=texts).json() == client.post("/api/v1/curve", json=numbers).json()


def test_a_config_answers_like_its_model(client):
    row = next(row for row in architecture._catalogue.rows() if row.name == "llama-3.1-70b")
    by_name = client.post("/api/v1/curve", json=QUESTION).json()
    question = {key: value for key, value in QUESTION.items() if key != "model"}
    by_config = client.post("/api/v1/curve", json={**question, "config": row.config})
    assert by_config.status_code == 200, by_config.text
    assert [p["t_compute_s"] for p in by_config.json()["points"]] == [p["t_compute_s"] for p in by_name["points"]]
    assert client.post("/api/v1/config", json=row.config).json()["total_params"] == 70553706496


@pytest.mark.parametrize(
    ("kind", "name"), [("models", "llama-3.1-70b"), ("models", "deepseek-ai/DeepSeek-V3"), ("accelerators", "h100")]
)
def test_one_entry_is_what_show_prints(client, kind, name):
    assert client.get(f"/api/v1/{kind}/{name}").json() == command_line(show_command.command, name, "--json")


def test_lists_are_as_described(client):
    for path, row in (("models", model.ModelRow), ("accelerators", model.AcceleratorRow), ("prices", model.PriceRow)):
        rows = client.get(f"/api/v1/{path}").json()
        assert len(rows) > 20
        for one in rows:
            row.model_validate(one)
    model.Choices.model_validate(client.get("/api/v1/choices").json())
    model.Health.model_validate(client.get("/health").json())


# -- errors --------------------------------------------------------------------------------------------------------


REFUSED = pytest.mark.parametrize(
    ("change", "field", "kind", "said"),
    [
        ({"model": "lama-3.1-70b"}, "model", "UnknownNameError", "llama-3.1-70b"),
        ({"model": None}, "model", "InputError", "No model"),
        ({"config": {"model_type": "llama"}}, "model", "InputError", "One of the two"),
        ({"model": None, "config": {"model_type": "nonsense"}}, "config", "UnsupportedArchitectureError", "not known"),
        ({"on": "4xh10"}, "on", "UnknownNameError", "h100"),
        ({"on": "4xcustom"}, "bandwidth", "InputError", "three figures"),
        ({"on": "99999xh100"}, "on", "InputError", "16,384"),
        ({"context": "8 kilometres"}, "context", "UnitError", "kilometres"),
        ({"context": -1}, "context", "InputError", "From 0 on"),
        ({"step_limit": "20"}, "step_limit", "UnitError", "no unit"),
        ({"step_limit": "1us"}, None, "InputError", "one sequence alone"),
        ({"isl": "1k"}, "osl", "InputError", "goes together"),
        ({"batch": "1..1000000"}, "batch", "InputError", "1,000,000 batches"),
        ({"batch": []}, "batch", "InputError", "From 1 on"),
        ({"weights": "fp9"}, "weights", "UnknownNameError", "fp8"),
        ({"kv": "fp9"}, "kv", "UnknownNameError", "fp8"),
        ({"reading": "guess"}, "reading", "InputError", "predict"),
        ({"colour": "red"}, "colour", "InputError", "no field"),
        ({"tp": 3}, None, "InputError", "4 devices"),
        ({"price": "1e400"}, "price", "UnitError", "finite"),
        ({"rate": 2}, "rate", "InputError", "lengths"),
        ({"isl": "1k", "osl": 9, "rate": "2/s", "concurrency": 3}, "concurrency", "InputError", "not both"),
        ({"isl": "1k", "osl": 9, "arrivals": "cv:2"}, "arrivals", "InputError", "not one of this load"),
        ({"isl": "1k", "osl": 9, "arrivals": "sometimes"}, "arrivals", "InputError", "poisson"),
        ({"isl": "1k", "osl": 9, "speculation": "2,4"}, "speculation", "InputError", "0 to 1"),
    ],
)


@REFUSED
def test_an_error_says_what_is_wrong_and_where(client, change, field, kind, said):
    question = {key: value for key, value in {**QUESTION, **change}.items() if value is not None}
    answer = client.post("/api/v1/curve", json=question)
    assert answer.status_code == 422
    problem = model.Problem.model_validate(answer.json())
    assert (problem.field, problem.kind) == (field, kind)
    told = f"{problem.problem} {problem.allowed} {problem.hint}"
    assert said in told
    assert "--" not in told  # options are the command line's


@REFUSED
def test_an_error_speaks_the_language_that_was_asked_for(client, change, field, kind, said):
    del said  # in English
    question = {key: value for key, value in {**QUESTION, **change}.items() if value is not None}
    answer = client.post("/api/v1/curve", json=question, headers={"accept-language": "ko-KR,ko;q=0.9,en;q=0.8"})
    problem = model.Problem.model_validate(answer.json())
    assert (answer.status_code, problem.field, problem.kind) == (422, field, kind)
    for part in (problem.problem, problem.allowed, problem.hint):
        assert not part or re.search("[가-힣]", part), part
        assert "--" not in part


LOADS = st.fixed_dictionaries(
    {"isl": st.integers(1, 10**7), "osl": st.integers(1, 10**6)},
    optional={
        "rate": st.floats(1e-9, 1e9),
        "concurrency": st.integers(1, 10**7),
        "arrivals": st.sampled_from(["poisson", "even", "cv:0", "cv:999", "one-by-one", "together", "batch"]),
        "prefix_hit_rate": st.floats(0, 1),
        "max_num_batched_tokens": st.integers(1, 10**7),
        "speculation": st.sampled_from(["0,1", "1,50,0s", "0.7,3,1ms", "1,1,100000s"]),
        "max_batch": st.integers(1, 10**7),
        "tokens_per_user": st.floats(1e-6, 1e9),
        "within": st.floats(0, 1e6),
        "reading": st.sampled_from(["predict", "bound", "serial"]),
    },
)


@given(load=LOADS)
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_load_is_answered_or_refused(client, load):
    answer = client.post("/api/v1/curve", json={**QUESTION, **load})
    assert answer.status_code in (200, 422), answer.text
    if answer.status_code == 200:
        assert answer.json()["serving"]["running_batch"] >= 0


def test_the_language_of_an_error_is_that_of_the_address_or_of_the_header(client):
    def said(address, **headers):
        return client.get(address, headers=headers).json()["problem"]

    korean = said("/api/v1/nothing", **{"accept-language": "ko"})
    assert re.search("[가-힣]", korean)
    assert said("/api/v1/nothing?language=ko") == korean
    assert said("/api/v1/nothing") == said("/api/v1/nothing?language=en", **{"accept-language": "ko"})
    assert said("/api/v1/nothing", **{"accept-language": "de, en;q=0.9, ko;q=0.1"}) == said("/api/v1/nothing")
    long = said("/api/v1/curve?model=" + "x" * 20_000, **{"accept-language": "ko"})
    assert re.search("[가-힣]", long)


def test_what_does_not_fit_says_what_would(client):
    problem = client.get("/api/v1/curve?model=llama-3.1-70b&on=h100").json()
    assert problem["kind"] == "DoesNotFitError"
    assert problem["smallest_count"] == 2
    assert problem["missing_bytes"] > 50e9
    assert problem["layout"] == {"tp": 2, "pp": 1}


def test_the_layout_that_is_proposed_fits(client):
    question = {"model": "deepseek-v3", "on": "4xh100"}
    problem = client.post("/api/v1/curve", json=question).json()
    found = client.post(
        "/api/v1/curve", json={**question, "on": f"{problem['smallest_count']}xh100", **problem["layout"]}
    )
    assert found.status_code == 200, found.text
    fewer = client.post(
        "/api/v1/curve",
        json={**question, "on": f"{problem['smallest_count'] - 1}xh100", "tp": 1, "pp": problem["smallest_count"] - 1},
    )
    assert fewer.status_code == 422


@pytest.mark.parametrize(
    "path", ["nope", "api/v1/nope", "api/v1/models/nope", "api/v1/accelerators/nope", "api/v1/models/a%0Ab", "a%0Ab"]
)
def test_an_address_that_is_not_there_says_so(client, path):
    answer = client.get(f"/{path}")
    assert answer.status_code == 404
    model.Problem.model_validate(answer.json())


def test_a_method_that_is_not_taken_is_told_from_an_address_that_is_not_there(client):
    for path, described in client.get("/api/v1/openapi.json").json()["paths"].items():
        for method in {"get", "post", "put", "delete", "options"} - described.keys():
            answer = client.request(method, path.format(name="h100", kind="png"))
            assert answer.status_code == 405, (method, path)
            assert set(answer.headers["allow"].split(", ")) == {taken.upper() for taken in described}
            assert "method" in answer.json()["problem"]


# -- nobody reads the server's files, and nothing foreign is loaded ---------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "~/.ssh/id_rsa", ".", "x.gguf", "config.json", "\0"]
)
def test_a_path_is_no_model(client, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    answer = client.post("/api/v1/curve", json={**QUESTION, "model": name})
    assert answer.status_code == 422
    assert answer.json()["kind"] == "UnknownNameError"


@pytest.mark.parametrize("name", ["4x/tmp/mine.toml", "mine.toml", "../mine.toml"])
def test_a_path_is_no_accelerator(client, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("memory = '80GB'")
    assert client.post("/api/v1/curve", json={**QUESTION, "on": name}).json()["kind"] == "UnknownNameError"
    assert client.get(f"/api/v1/accelerators/{name}").status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/../app.py", "/..%2fapp.py", "/%2e%2e/app.py", "/vendor/../../app.py", "/js/", "//etc/passwd", "/page.css%00"],
)
def test_only_the_page_is_served(client, path):
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("path", ["/", "/nope", "/health", "/api/v1/curve", "/js/main.js", "/api"])
def test_every_answer_forbids_foreign_scripts(client, path):
    headers = client.get(path).headers
    for name, value in HEADERS.items():
        assert headers[name] == value
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "http" not in policy


def test_an_error_is_never_markup(client):
    answer = client.get("/api/v1/curve", params={"model": "<script>alert(1)</script>", "on": "h100"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


# -- bounds --------------------------------------------------------------------------------------------------------


async def echo(_scope, receive, send):
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"read"})


def guarded(**limits):
    return TestClient(Guard(echo, Limits(**limits)), base_url=BASE)


def test_a_large_body_is_refused_by_its_length_or_while_it_arrives():
    client = guarded(body_bytes=1000)
    assert client.post("/", content=b"x" * 1000).text == "read"
    assert client.post("/", content=b"x" * 1001).status_code == 413
    assert client.post("/", content=(b"x" * 600 for _ in range(2))).status_code == 413
    assert "1001" not in client.post("/", content=b"x" * 1001).text


def test_a_long_address_and_a_wrong_length_are_refused():
    client = guarded(address_bytes=100)
    assert client.get("/" + "x" * 200).status_code == 414
    assert client.get("/?" + "x" * 200).status_code == 414
    assert client.get("/", headers={"content-length": "many"}).status_code == 400


def test_another_name_is_refused():
    client = guarded(hosts=frozenset({"127.0.0.1", "[::1]"}))
    assert client.get("/").text == "read"
    assert client.get("/", headers={"host": "[::1]:8765"}).text == "read"
    answer = client.get("/", headers={"host": "evil.example:8765"})
    assert answer.status_code == 421
    assert "evil.example" in answer.json()["problem"]


def test_an_answer_has_its_time():
    async def slow(_scope, _receive, _send):
        await asyncio.sleep(5)

    answer = TestClient(Guard(slow, Limits(seconds=0.05)), base_url=BASE).get("/")
    assert answer.status_code == 503
    assert "0.05 s" in answer.json()["allowed"]


def test_the_log_has_a_line_of_json_for_each_request():
    log = io.StringIO()
    client = TestClient(Guard(echo, Limits(), log), base_url=BASE)
    client.get('/a%0a"b?c=1%0a2')
    client.get("/later")
    first, second = map(json.loads, log.getvalue().splitlines())
    assert first["path"] == '/a\n"b'
    assert first["status"] == 200
    assert first["bytes"] == 4
    assert second["path"] == "/later"
    assert set(first) == {"time", "client", "method", "path", "query", "status", "bytes", "ms"}


def test_a_fault_of_ours_is_told_without_its_inside(client, monkeypatch):
    def broken(_):
        raise RuntimeError("secret")

    monkeypatch.setattr(reply, "curve_reply", broken)
    answer = client.post("/api/v1/curve", json={**QUESTION, "context": 12345})
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_a_question_is_worked_out_once(client, monkeypatch):
    asked = []
    made = reply.curve_reply
    monkeypatch.setattr(reply, "curve_reply", lambda question: asked.append(question) or made(question))
    first, second = (client.post("/api/v1/curve", json={**QUESTION, "context": 4321}) for _ in range(2))
    assert first.content == second.content
    assert len(asked) == 1


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=60))
def test_what_is_remembered_stays_within_its_bytes(entries):
    kept = Remembered(most_bytes=100)
    last = {}
    for name, size in entries:
        answer = b"x" * size
        kept.put(b"%d" % name, answer)
        last[name] = answer
    held = {name: kept.get(b"%d" % name) for name in last}
    assert sum(len(answer) for answer in held.values() if answer is not None) <= 100
    assert all(answer in (None, last[name]) for name, answer in held.items())
    if entries:
        assert held[entries[-1][0]] is not None


def texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


# -- the page's own questions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", strings.LANGUAGES)
@pytest.mark.parametrize("reading", ["predict", "bound", "serial"])
def test_the_page_is_told_in_words(client, language, reading):
    question = {**QUESTION, "reading": reading, "step_limit": "35ms", "isl": "2k", "osl": "2k"}
    answer = client.post("/api/v1/explore", json={"question": question, "language": language})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert not [said for said in texts(found["answer"]) if re.search(r"[{}]|chart\.|page\.", said)]
    assert len(found["answer"]["tiles"]) == 5
    assert (re.search(r"[가-힣]", found["answer"]["headline"]) is not None) == (language == "ko")
    assert found["curve"]["optimum"]["batch"] in found["points"]["batch"]
    assert {"p11_labels", "p23_marks"} <= set(found["charts"]["datasets"])
    assert set(found["charts"]["columns"]) == {"p11", "p12", "p13", "p21", "p22", "p23"}


def test_points_are_the_curve_at_whole_batches(client):
    found = client.post("/api/v1/explore", json={"question": QUESTION}).json()
    batches = found["points"]["batch"]
    assert batches == sorted(set(batches))
    assert {1, 2, 4, 8, 16, 32} <= set(batches)
    capacity = found["curve"]["capacity_batch"]
    assert {capacity, capacity + 1} <= set(batches)
    exact = client.post("/api/v1/curve", json={**QUESTION, "batch": batches}).json()["points"]
    for name in ("t_step_s", "usd_per_mtok", "mfu", "mbu", "output_tokens_per_s"):
        assert found["points"][name] == pytest.approx([point[name] for point in exact], rel=1e-5)
    terms = [sum(values) for values in zip(*found["points"]["terms"].values(), strict=True)]
    assert terms == pytest.approx(found["points"]["t_step_s"], rel=1e-5)


@pytest.mark.parametrize("reading", ["bound", "serial"])
def test_the_parts_of_a_floor_add_up_too(client, reading):
    found = client.post("/api/v1/explore", json={"question": {**QUESTION, "reading": reading}}).json()["points"]
    terms = [sum(values) for values in zip(*found["terms"].values(), strict=True)]
    assert terms == pytest.approx(found["t_step_s"], rel=1e-5)


def pixels(values, signals, key, which, length):
    low, high = signals[f"{key}_{which}_low"], signals[f"{key}_{which}_high"]
    values = np.array(values)
    if which == "x" or key.startswith("p2"):
        return np.log(values / low) / np.log(high / low) * length
    return (values - low) / (high - low) * length


@pytest.mark.parametrize("charts", ["data", "moving"])
def test_the_plots_are_the_librarys_to_a_quarter_of_a_pixel(client, charts):
    asked = {"question": QUESTION, "charts": charts}
    told = client.post("/api/v1/explore", json=asked).json()["charts"]
    library = chart.data(on_whole_batches(curve_of(CurveQuestion(**QUESTION))))
    assert told["signals"] == library["signals"]
    for key, columns in told["columns"].items():
        parts = ["shade", "levels", "edges", "marks"] + (["labels", "leaders"] if charts == "data" else [])
        assert [told["datasets"][f"{key}_{part}"] for part in parts] == [
            library["datasets"][f"{key}_{part}"] for part in parts
        ]
        rows = library["datasets"][f"{key}_lines"]
        assert {line["role"] for line in columns["lines"]} == {row["role"] for row in rows}
        for line in columns["lines"]:
            full = [row for row in rows if row["role"] == line["role"]]
            assert len(line["batch"]) <= 40 < len(full)
            at = pixels([row["batch"] for row in full], told["signals"], key, "x", 330)
            there = pixels([row["value"] for row in full], told["signals"], key, "y", 240)
            x = pixels(line["batch"], told["signals"], key, "x", 330)
            drawn = np.interp(at, x, pixels(line["value"], told["signals"], key, "y", 240))
            assert np.all(np.abs(drawn - there)[(there > 0) & (there < 240)] < 0.27)
        band = library["datasets"][f"{key}_band"]
        assert bool(band) == ("band" in columns)


def test_specifications_are_the_librarys_whatever_was_drawn_before(client):
    for change in ({}, {"context": 30_000, "step_limit": "45ms"}):
        question = {**QUESTION, **change}
        told = client.post("/api/v1/explore", json={"question": question, "charts": "specs"}).json()["charts"]
        curve = on_whole_batches(curve_of(CurveQuestion(**question)))
        for name in ("1.3", "2.3"):
            library = json.loads(json.dumps(chart.plot(curve, name)))
            key = f"p{name.replace('.', '')}"
            assert {part: told[name][part] for part in library if part != "datasets"} == {
                part: library[part] for part in library if part != "datasets"
            }
            for part in ("marks", "labels", "edges"):
                assert told[name]["datasets"][f"{key}_{part}"] == library["datasets"][f"{key}_{part}"]


def test_measured_points_are_drawn(client):
    measured = [{"batch": 16, "t_step_s": 0.025}]
    found = client.post("/api/v1/explore", json={"question": QUESTION, "measured": measured}).json()
    marks = [mark for mark in found["charts"]["datasets"]["p13_marks"] if mark["look"] == "measured"]
    assert [(mark["batch"], mark["value"]) for mark in marks] == [(16, 25)]


def test_comparing_charts_are_vega_lite():
    import altair as alt

    specs = compare.specs("ko", "dark", "log")
    assert set(specs) == {"latency", "cost", "trade"}
    alt.Chart.from_dict(specs["trade"])


def test_downloads(client):
    asked = {"question": {**QUESTION, "batch": [1, 2, 58]}}
    table = client.post("/api/v1/download/csv", json=asked)
    assert table.headers["content-disposition"] == 'attachment; filename="batchline.csv"'
    header, *rows = table.text.splitlines()
    assert len(rows) == 3
    assert {"batch", "t_step_s", "low_s", "high_s", "term_kv_s"} <= set(header.split(","))
    import tomllib

    toml = tomllib.loads(client.post("/api/v1/download/toml", json=asked).text)
    assert toml == {"model": "llama-3.1-70b", "on": "4xh100", "context": 8192.0, "batch": [1, 2, 58]}
    assert client.post("/api/v1/download/exe", json=asked).status_code == 422


def test_a_question_with_a_config_survives_its_toml():
    import tomllib

    config = {"model_type": "llama", "name": 'a "b" \\ \n é'}
    made = downloads.question_toml(CurveQuestion(config=config, on="h100"))
    assert json.loads(tomllib.loads(made)["config_json"]) == config


# -- plans and prices ------------------------------------------------------------------------------------------------

PLAN = {
    "model": "llama-3.1-8b",
    "isl": "2k",
    "osl": 512,
    "rate": "5/s",
    "tpot": "p95:40ms",
    "accelerators": ["h100", "l40s"],
}
PLAN_WORDS = ["llama-3.1-8b", "--isl", "2k", "--osl", "512", "--rate", "5/s", "--tpot", "p95:40ms", "--on", "h100,l40s"]


@pytest.mark.parametrize("language", strings.LANGUAGES)
def test_a_plan_is_what_the_command_line_prints(client, language):
    answer = client.post("/api/v1/plan", json={"question": PLAN, "language": language})
    assert answer.status_code == 200, answer.text
    found, printed = answer.json(), command_line(plan_command.command, *PLAN_WORDS, "--json")
    for part in ("candidates", "front", "refused", "searched"):
        assert found["plan"][part] == printed[part]
    assert not [said for said in texts(found["answer"]) if re.search(r"[{}]|page\.", said)]
    assert len(found["launch"]) == len(found["titles"]) == len(printed["candidates"])
    assert found["launch"][0]["script"].startswith("#!/usr/bin/env bash")
    assert 'model = "llama-3.1-8b"' in found["toml"]


def test_every_reason_to_refuse_a_deployment_has_words():
    refusals = [Path(place).read_text() for place in (startable.__file__, search.__file__)]
    reasons = re.findall(
        r'(?:yield |reason = |^ {12})"([a-z][^"{]+ [^"{]+)"(?:,|$|:)', "\n".join(refusals), re.MULTILINE
    )
    assert len(reasons) == 13
    known = strings.group("planner", "en").items()
    assert set(reasons) == {said for name, said in known if name.startswith("refused_")}


def test_a_plan_speaks_korean(client):
    answer = client.post("/api/v1/plan", json={"question": PLAN, "language": "ko"}).json()
    said = [
        *answer["answer"]["gives_up"],
        *answer["answer"]["warnings"],
        *(row["why"] for row in answer["answer"]["refused"]),
    ]
    assert said
    assert not [one for one in said if not re.search("[가-힣]", one)]


def test_a_plan_of_a_config_names_no_folder_of_the_server(client):
    row = next(row for row in architecture._catalogue.rows() if row.name == "llama-3.1-8b")
    question = {name: value for name, value in PLAN.items() if name != "model"} | {"config": row.config}
    answer = client.post("/api/v1/plan", json={"question": question})
    assert answer.status_code == 200, answer.text
    by_name = client.post("/api/v1/plan", json={"question": PLAN}).json()
    months = [[one["usd_per_month"] for one in plan["plan"]["candidates"]] for plan in (answer.json(), by_name)]
    assert months[0] == months[1]
    assert tempfile.gettempdir() not in answer.text


@pytest.mark.slow
def test_what_flips_a_plan(client):
    answer = client.post("/api/v1/plan/flips", json={"question": {**PLAN, "accelerators": ["h100"]}})
    assert answer.status_code == 200, answer.text
    assert all(flip["sentence"] for flip in answer.json()["flips"])


def test_a_plan_in_korean_has_korean_winners_and_comments(client):
    question = {**PLAN, "accelerators": ["h100-sxm", "l40s"], "max_devices": 4}
    # Asked without the server, which gives up after a time.
    answer = planning.flipped(planning.PlanQuestion(**question), "ko", "light")
    won = [said for flip, said in zip(answer["flips"], answer["sentences"], strict=True) if flip["winner"]]
    assert won
    assert not [said for said in won if " weights" in said or not re.search("[가-힣]", said)]
    planned = client.post("/api/v1/plan", json={"question": question, "language": "ko"}).json()
    comments = [line.partition("# ")[2] for line in planned["launch"][0]["script"].splitlines() if "  # " in line]
    assert comments
    assert all(re.search("[가-힣]", said) for said in comments)
    assert not [said for said in planned["answer"]["warnings"] if "--" in said]


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"tpot": "p95:1us"}, None, "Nearest"),
        ({"tpot": "quick"}, "tpot", "quick"),
        ({"rate": "5 an hour"}, "rate", "an hour"),
        ({"users": 10}, None, "Give one of the two"),
        ({"isl": 0}, "isl", "From 1 on"),
        ({"accelerators": ["h10"]}, None, "h100"),
        ({"model": "/etc/passwd"}, "model", "no model"),
        ({"weights": ["fp9"]}, None, "fp8"),
    ],
)
def test_a_plan_that_cannot_be_made_says_why(client, change, field, said):
    answer = client.post("/api/v1/plan", json={"question": {**PLAN, **change}})
    assert answer.status_code == 422
    assert answer.json().get("field") == field
    assert said in " ".join(answer.json()[part] for part in ("problem", "allowed", "hint"))
    speaks_korean(client, "plan", {**PLAN, **change})


def speaks_korean(client, what, question):
    """The same error in Korean, in words of the API."""
    answer = client.post(f"/api/v1/{what}", json={"question": question}, headers={"accept-language": "ko"})
    for part in ("problem", "allowed", "hint"):
        assert not answer.json()[part] or re.search("[가-힣]", answer.json()[part]), answer.json()[part]
        assert "--" not in answer.json()[part]


def test_a_price_sheet_is_what_the_command_line_prints(client):
    words = ["llama-3.1-70b", "--on", "4xh100", "--weights", "fp8", "--tpot", "40ms", "--margin", "0.3"]
    printed = command_line(price_command.command, *words, "--json")
    question = {"model": "llama-3.1-70b", "on": "4xh100", "weights": "fp8", "tpot": "40ms", "margin": 0.3}
    found = client.post("/api/v1/price", json=question).json()
    assert {name: found[name] for name in printed} == printed
    assert client.post("/api/v1/price", json={**question, "margin": 1}).status_code == 422
    titles = []
    for address in ("", "?language=ko&theme=dark&narrow=true"):
        chart = client.post(f"/api/v1/price{address}", json=question).json()["chart"]
        titles.append(chart["params"][0]["value"])
        assert {row["price"] for row in chart["datasets"]["plain_names"]} <= {
            format_usd(row["usd_per_mtok_price"]) for row in printed["rows"]
        }
    assert titles[0] == found["chart"]["params"][0]["value"] != titles[1]


def test_the_market_lies_beside_the_sheet_where_it_is_asked_for(client):
    pytest.importorskip("genai_prices", reason="the extra market (pip install genai-prices) is not installed")
    words = ["llama-3.1-70b", "--on", "4xh100", "--weights", "fp8", "--market", "--json"]
    question = {"model": "llama-3.1-70b", "on": "4xh100", "weights": "fp8"}
    found = client.post("/api/v1/price", json={**question, "market": ""}).json()
    assert found["market"] == command_line(price_command.command, *words)["market"]
    asked = [row["usd"] for row in found["chart"]["datasets"]["plain_offers"]]
    assert {row["usd_per_mtok_output"] for row in found["market"]} <= set(asked)
    assert "market" not in client.post("/api/v1/price", json=question).json()
    refused = client.post("/api/v1/price", json={**question, "market": "a-model-of-tomorrow"})
    assert (refused.status_code, refused.json()["field"]) == (422, "market")


# -- a profile of `batchline calibrate` ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "command", "words", "question"),
    [
        ("curve", curve_command.command, ["--context", "2k"], {"context": "2k"}),
        ("curve", curve_command.command, ["--isl", "1k", "--osl", "1k"], {"isl": "1k", "osl": "1k"}),
        ("price", price_command.command, ["--isl", "1k", "--osl", "512"], {"isl": "1k", "osl": 512}),
    ],
)
def test_a_profile_answers_as_the_command_line_does(client, calibrated, tmp_path, address, command, words, question):
    (tmp_path / "p.toml").write_text(calibrated)
    words = ["llama-3.1-8b", "--on", "h100", *words, "--json"]
    question = {"model": "llama-3.1-8b", "on": "h100", **question}
    answer = client.post(f"/api/v1/{address}", json={**question, "profile": calibrated})
    printed = command_line(command, *words, "--profile", str(tmp_path / "p.toml"))
    assert {name: answer.json()[name] for name in printed} == printed
    assert command_line(command, *words) != printed


@pytest.mark.parametrize("address", ["plan", "simulate"])
def test_plans_and_simulations_take_a_profile(client, calibrated, address):
    question = {
        "plan": {**PLAN, "model": "llama-3.1-8b", "accelerators": ["h100-sxm"], "engines": ["vllm"]},
        "simulate": TRAFFIC,
    }[address]
    plain, with_it = (
        client.post(f"/api/v1/{address}", json={"question": {**question, **more}}).json()
        for more in ({}, {"profile": calibrated})
    )
    assert plain["answer"] != with_it["answer"]


def test_a_server_may_have_a_profile_of_its_own(client, calibrated, tmp_path, monkeypatch):
    question = {"model": "llama-3.1-8b", "on": "h100", "context": 2048, "batch": [16]}
    brought = client.post("/api/v1/curve", json={**question, "profile": calibrated}).json()
    (tmp_path / "own.toml").write_text(calibrated)
    monkeypatch.setenv("BATCHLINE_PROFILE", str(tmp_path / "own.toml"))
    own = client.post("/api/v1/curve", json={**question, "context": 2049}).json()
    assert own["provenance"] == brought["provenance"]
    assert own["points"][0]["t_step_s"] == pytest.approx(brought["points"][0]["t_step_s"], rel=1e-3)


def test_a_profile_of_another_deployment_is_told(client, calibrated):
    question = {"model": "llama-3.1-8b", "on": "2xh200", "profile": calibrated}
    found = client.post("/api/v1/explore", json={"question": question, "charts": "moving"}).json()
    assert any("says nothing" in said for said in found["answer"]["warnings"])
    assert found["profile"]["points"] == 3


@pytest.mark.parametrize("damage", ["", "schema = 1", "[", "x" * 2**18 + "x", 'schema = "batchline.profile/1"'])
@pytest.mark.parametrize("address", ["curve", "price", "plan", "simulate"])
def test_a_profile_that_cannot_be_read_is_named(client, address, damage):
    question = {"curve": QUESTION, "price": QUESTION, "plan": PLAN, "simulate": TRAFFIC}[address]
    question = {name: value for name, value in question.items() if name != "context"} | {"profile": damage}
    body = question if address in ("curve", "price") else {"question": question}
    answer = client.post(f"/api/v1/{address}", json=body)
    assert answer.status_code == 422
    assert answer.json()["field"] == "profile"


# -- simulations ---------------------------------------------------------------------------------------------------

TRAFFIC = {"model": "llama-3.1-8b", "on": "h100", "rate": 4, "isl": "1k", "osl": 200, "requests": 300}


@pytest.mark.parametrize("language", strings.LANGUAGES)
def test_a_simulation_is_what_the_command_line_prints(client, language):
    question = {**TRAFFIC, "spread": 0.5, "ttft": "p95:2s", "replicas": 2}
    answer = client.post("/api/v1/simulate", json={"question": question, "language": language})
    assert answer.status_code == 200, answer.text
    words = ["llama-3.1-8b", "--on", "h100", "--rate", "4/s", "--isl", "1k", "--osl", "200", "--requests", "300"]
    words += ["--spread", "0.5", "--ttft", "p95:2s", "--replicas", "2", "--json"]
    assert answer.json()["simulation"] == command_line(simulate_command.command, *words)
    assert not [said for said in texts(answer.json()["answer"]) if re.search(r"[{}]|page\.", said)]
    assert set(answer.json()["charts"]) == {"over_time", "times"}


def test_a_trace_is_served(client):
    rows = "".join(f"{i * 0.5},{500 + i},{100}\n" for i in range(40))
    question = {"model": "llama-3.1-8b", "on": "h100", "trace": f"arrival_s,isl,osl\n{rows}"}
    answer = client.post("/api/v1/simulate", json={"question": question})
    assert answer.status_code == 200, answer.text
    assert answer.json()["simulation"]["requests"] == 40
    assert tempfile.gettempdir() not in answer.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate": None}, "Which traffic"),
        ({"arrivals": "sometimes"}, "poisson"),
        ({"isl": None}, "How long"),
        ({"trace": "nothing"}, ""),
        ({"trace": "a,b\n1,2\n"}, "`columns`"),
        ({"trace": "when,isl,osl\n1,2,3\n", "columns": "arrival"}, "no list"),
        ({"trace": "when,isl,osl\n1,2,3\n2,3,4\n", "columns": "arrival=when"}, "`time_unit`"),
        ({"shared_prefix": "many"}, "20:1k"),
        ({"ttft": "soon"}, "soon"),
        ({"requests": 10**6}, "20,000"),
        ({"on": "1xh100", "model": "llama-3.1-70b"}, "does not fit"),
    ],
)
def test_a_simulation_that_cannot_run_says_why(client, change, said):
    question = {name: value for name, value in {**TRAFFIC, **change}.items() if value is not None}
    answer = client.post("/api/v1/simulate", json={"question": question})
    assert answer.status_code == 422, answer.text
    told = " ".join(answer.json()[part] for part in ("problem", "allowed", "hint"))
    assert said in told
    assert tempfile.gettempdir() not in told
    speaks_korean(client, "simulate", question)


# -- uploads -------------------------------------------------------------------------------------------------------


def measured(client, content, name="r.csv"):
    return client.post(f"/api/v1/measured?name={name}", content=content, headers={"content-type": "text/plain"})


def test_a_result_file_becomes_points(client):
    answer = measured(client, "batch,context,t_step_s\n1,1024,0.010\n8,1024,0.012\n")
    assert answer.status_code == 200, answer.text
    found = model.MeasuredReply.model_validate(answer.json())
    assert [(point["batch"], point["t_step_s"]) for point in found.points] == [(1, 0.010), (8, 0.012)]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("", "empty.csv"),
        ("hello", "r.txt"),
        ("[" * 100_000, "deep.json"),
        ('{"a":' * 100_000, "deep.json"),
        (b"\xff\xfe\x00", "binary"),
        ("batch,context,t_step_s\n1,2", "cut.csv"),
        ('{"a": NaN}', "nan.json"),
        ("a,b\n" + "1,2\n" * 5, "../../../etc/x<b>.csv"),
    ],
)
def test_a_file_that_is_no_result_is_refused_by_its_name(client, content, name):
    answer = measured(client, content, name)
    assert answer.status_code == 422, answer.text
    problem = answer.json()["problem"]
    assert "/tmp" not in problem  # noqa: S108  (where the upload was put is nobody's business)
    assert "<b>" not in problem
    assert ".." not in problem
    korean = client.post(
        f"/api/v1/measured?name={name}",
        content=content,
        headers={"content-type": "text/plain", "accept-language": "ko"},
    ).json()
    for part in (korean["problem"], korean["allowed"], korean["hint"]):
        assert not part or re.search("[가-힣]", part), part
        assert "/tmp" not in part  # noqa: S108


@pytest.mark.parametrize(
    "content",
    [
        "batch,context,t_step_s\n1,1024,fast\n",
        "batch,context,t_step_s\n1,1024,-1\n",
        "batch,context,t_step_s\n1.5,1024,1e9\n",
        "batch,context,t_step_s,colour\n1,1024,0.01,red\n",
        "batch,context\n1,1024\n",
        '{"completed": 0}',
        '{"backend": "vllm", "completed": 3, "num_prompts": 3',
    ],
)
def test_what_is_wrong_with_a_result_file_is_said_in_korean(client, content):
    headers = {"content-type": "text/plain", "accept-language": "ko"}
    answer = client.post("/api/v1/measured?name=mine.csv", content=content, headers=headers)
    assert answer.status_code == 422, answer.text
    told = answer.json()
    assert "mine.csv" in told["problem"]
    for part in (told["problem"], told["allowed"], told["hint"]):
        assert not part or re.search("[가-힣]", part), part


@pytest.mark.parametrize(
    "config", [{}, {"model_type": ["llama"]}, {"text_config": {}}, {"model_type": "llama", "num_hidden_layers": 10**9}]
)
def test_a_config_that_cannot_be_read_is_refused(client, config):
    answer = client.post("/api/v1/config", json=config)
    assert answer.status_code == 422
    assert answer.json()["field"] == "config"


def test_a_body_that_is_no_json_is_refused(client):
    for path in ("curve", "explore", "config", "download/csv"):
        for content in (b"", b"{", b"[1]", b"null", b"\xff", b"[" * 50_000):
            answer = client.post(f"/api/v1/{path}", content=content, headers={"content-type": "application/json"})
            assert answer.status_code in (400, 422), (path, content[:10], answer.text)
            model.Problem.model_validate(answer.json())


# -- whatever is asked, the server answers ---------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(string.printable, max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
near = {
    "model": st.sampled_from(["llama-3.1-8b", "deepseek-v3", "gpt-oss-120b", "mamba2-2.7b", ""]),
    "on": st.sampled_from(
        ["h100", "4xh100", "8xb200", "16xmi300x", "1x4090", "72xgb200", "0xh100", "4xcustom", "2xtpu-v5e"]
    ),
    "context": st.integers(0, 10**9) | st.sampled_from(["8k", "1M", "0"]),
    "reading": st.sampled_from(["predict", "bound", "serial"]),
    "weights": st.sampled_from(["bf16", "fp8", "int4", "mxfp4", "q4_k"]),
    "kv": st.sampled_from(["bf16", "fp8", "int8"]),
    "tp": st.integers(0, 16),
    "pp": st.integers(1, 100),
    "dp": st.integers(1, 16384),
    "ep": st.integers(1, 64),
    "engine": st.sampled_from(["vllm", "sglang", "llama.cpp", "tomorrow"]),
    "price": st.floats(0, 1e9),
    "step_limit": st.floats(1e-9, 1e6),
    "max_batch": st.integers(1, 10**7),
    "within": st.floats(0, 1e6),
    "tokens_per_user": st.floats(1e-9, 1e9),
    "bandwidth": st.floats(1, 1e18),
    "flops": st.floats(1, 1e18),
    "memory": st.floats(1, 1e18),
    "link": st.floats(1, 1e18),
    "isl": st.integers(1, 10**9),
    "osl": st.integers(1, 10**9),
}
needed = {name: near.pop(name) for name in ("model", "on")}
questions = st.fixed_dictionaries(needed, optional=near)
wild = st.fixed_dictionaries({}, optional=dict.fromkeys([*needed, *near, "config", "batch", "x"], anything))


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(question=questions | wild)
def test_no_question_breaks_the_server(client, question):
    body = json.dumps(question)
    answer = client.post("/api/v1/curve", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 422), (question, answer.text)
    if answer.status_code == 200:
        model.CurveReply.model_validate(answer.json())
    else:
        model.Problem.model_validate(answer.json())


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=200) | anything.map(json.dumps).map(str.encode) | st.text(max_size=200).map(str.encode)
)
def test_no_file_breaks_the_server(client, content):
    assert measured(client, content, "x").status_code in (200, 422)


# -- the page's files ------------------------------------------------------------------------------------------------


def test_the_page_brings_all_it_loads():
    found = files.static_files()
    for name, file in found.items():
        text = file.body.decode()
        if name.endswith(".html"):
            wanted = re.findall(r'(?:src|href)="([^"#]+)"', text)
            assert not re.search(r"<script[^>]*>[^<]", text), f"{name} has a script inside"
            assert not re.search(r"<style|\sstyle=|\son\w+=", text), f"{name} has styles or handlers inside"
        elif name.startswith("js/"):
            wanted = [f"js/{path}" for path in re.findall(r'from "(.+?)"', text)]
            assert "http:" not in text
            assert "https:" not in text
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name
        else:
            continue
        for path in wanted:
            plain = re.sub(r"/\./", "/", re.sub(r"[^/]+/\.\./", "", path))
            assert plain in found or plain in {"api", "./", "api/v1/openapi.json"}, f"{name} wants {path}"


def test_every_word_of_the_page_is_in_the_catalogue_and_used():
    known = set(look.words("en"))
    assert known == set(look.words("ko"))
    text = "\n".join(
        file.body.decode() for name, file in files.static_files().items() if not name.startswith("vendor/")
    )
    used = set(re.findall(r'"((?:ui|tile)_\w+)"', text))
    assert used <= known | {"ui_"}, used - known
    parts = tuple(re.findall(r"`((?:ui|tile)_\w*)\$\{", text))
    dead = {key for key in known if key.startswith("ui_") and key not in used and not key.startswith(parts)}
    assert not dead


ELSEWHERE = {"profile", "batch", "files", "plots", "breakdowns", "theme", "axis", "explain", "as_json", "as_csv"}
"""Options of `curve` that are no field of the question: files that are dropped, tables, downloads, how it looks."""


def test_the_page_and_the_api_take_every_option_of_a_curve():
    page = files.static_files()["index.html"].body.decode()
    options = {one.name for one in curve_command.command.params if isinstance(one, click.Option)} - {"language"}
    assert options >= ELSEWHERE
    asked = options - ELSEWHERE
    assert asked <= set(CurveQuestion.model_fields)
    assert {name for name in asked if f'data-field="{name}"' not in page} == set()


def test_theme_css_has_every_colour():
    text = look.theme_css()
    for theme in THEMES:
        for role, colour in look.palette(theme).items():
            assert f"--{role.replace('_', '-')}: {colour};" in text


def test_licences_of_what_is_brought_along_are_there():
    text = files.static_files()["vendor/LICENSES.txt"].body.decode()
    for name in ("vega 6", "vega-lite 6", "vega-interpreter 2"):
        assert name in text
    assert text.count("Redistribution and use in source and binary forms") == 3


def test_files_are_sent_packed_and_once(client):
    first = client.get("/vendor/vega.min.js")
    assert first.headers["content-encoding"] == "gzip"
    assert len(first.content) > 500_000
    assert client.get("/vendor/vega.min.js", headers={"if-none-match": first.headers["etag"]}).status_code == 304


def test_the_api_describes_itself(client):
    described = client.get("/api/v1/openapi.json").json()
    assert {"/api/v1/curve", "/api/v1/models", "/health", "/api/v1/measured"} <= set(described["paths"])
    for methods in described["paths"].values():
        for operation in methods.values():
            assert operation["description"]
            assert "422" in operation["responses"]
    assert "Guard" in guard.__all__
