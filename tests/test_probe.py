"""The prober against a server whose engine and faults are known; only loopback is ever contacted."""

import asyncio
import csv
import os
import re
import time

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from batchline.cli.measure import command
from batchline.errors import InputError, MeasurementError, UnknownNameError
from batchline.measure import endpoint, hazards, prompts, read
from batchline.measure.endpoint import EndpointError
from batchline.measure.probe import probe
from tests.fake_server import FakeServer


def quick(server, **changes):
    settings = {"batches": (1, 2), "contexts": (64,), "max_seconds": 20, "repeats": 1}
    return probe(server.url, **{**settings, **changes})


# --- what it measures -----------------------------------------------------------------------------------------------


def test_steps_prompts_and_counts_are_those_of_the_server(tmp_path):
    out = tmp_path / "out.csv"
    seen = []
    with FakeServer(prefill_s=0.01, step_s=0.004, per_sequence_s=0.002) as server:
        outcome = quick(server, batches=(1, 4), contexts=(64, 200), repeats=2, out=out, on_progress=seen.append)
        assert len(set(server.prompts)) == len(server.prompts)  # nothing for a prefix cache
        assert len({prompt[:16] for prompt in server.prompts}) == len(server.prompts)
    assert outcome.stopped is None
    assert sorted(point.label for point in outcome.points) == sorted(
        f"batch {b}, context {c}" for b in (1, 4) for c in (64, 200)
    )
    for point in outcome.points:
        # A sleep is never early; how late it is depends on how busy the machine is, which is not tested.
        assert 0.004 + 0.002 * point.batch <= point.t_step_s
        assert point.isl == int(point.label.split()[-1])  # exact prompt lengths
        assert point.isl < point.context < point.isl + point.osl
        assert point.ttft_s >= 0.01
        assert (point.tokens_per_chunk, point.engine, point.arrival) == (1.0, "vllm", "burst")
    assert read(out) != []
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert all(one.left_s <= 20 for one in seen)


def test_a_batch_is_never_measured_while_prompts_are_prefilled():
    # Prefill of 400 ms a prompt: the first stream of 6 has seen gaps of 400 ms, the step is 5 ms.
    with FakeServer(prefill_s=0.4, step_s=0.004, per_sequence_s=0.0002) as server:
        (point,) = quick(server, batches=(6,)).points
    assert point.t_step_s < 0.2
    assert point.tpot_mean_s > point.t_step_s


def test_chat_where_there_are_no_completions():
    with FakeServer(chat_only=True) as server:
        (point,) = quick(server, batches=(2,)).points
        assert server.paths[-1] == "/v1/chat/completions"
    assert (point.isl, point.osl, point.tokens_per_chunk) == (64, 40, 1.0)


@pytest.mark.parametrize("suffix", ["", "/v1/", "/v1/chat/completions"])
def test_any_form_of_the_address(suffix):
    with FakeServer() as server:
        outcome = probe(server.url + suffix, batches=(1,), contexts=(32,), repeats=1, max_seconds=20)
    assert len(outcome.points) == 1


@pytest.mark.slow
def test_answers_that_are_too_short_at_first_are_asked_for_longer():
    # 30 prompts of 10 ms: the first stream would be through its 40 tokens before the last one starts.
    with FakeServer(prefill_s=0.01, step_s=0.002, per_sequence_s=0.0) as server:
        (point,) = quick(server, batches=(30,)).points
    assert point.batch == 30
    assert point.samples >= 16


def test_more_than_the_server_runs_together_is_said_and_not_measured():
    with FakeServer(slots=3, prefill_s=0.002) as server:
        outcome = quick(server, batches=(1, 2, 8, 16))
    assert [point.batch for point in outcome.points] == [1, 2]
    assert outcome.notes == ["context 64: the server decodes at most 3 together, the others wait"]


@pytest.mark.slow
def test_repeats_give_a_spread():
    with FakeServer() as server:
        (point,) = quick(server, batches=(2,), repeats=3).points
    assert point.spread >= 0
    assert point.completed >= 3 * 2


def test_tokens_whose_bytes_are_no_whole_character_yet_count():
    with FakeServer(fault="empty") as server:
        (point,) = quick(server, batches=(1,)).points
    assert point.tokens_per_chunk == pytest.approx(40 / 39)  # the last event is an end, whatever it holds


def test_a_cache_and_chunks_are_seen_and_become_hazards():
    with FakeServer(cached=32) as server:
        (cached,) = quick(server, batches=(1,)).points
    assert cached.cached_share == pytest.approx(0.5)
    with FakeServer(fault="chunks", step_s=0.002) as server:
        (chunked,) = quick(server, batches=(1,)).points
    assert chunked.tokens_per_chunk == pytest.approx(4.0)
    # On a busy machine a row may be noisy besides.
    found = [{hazard.name for hazard in row} - {"noisy"} for row in hazards.inspect([cached, chunked])]
    assert found == [{"prefix_cache"}, {"chunks"}]


# --- prompts of an exact length --------------------------------------------------------------------------------------


@given(
    target=st.integers(1, 20000),
    per_letter=st.integers(1, 5),
    overhead=st.integers(0, 60),
    digits_merge=st.sampled_from([1, 3]),
)
def test_prompts_are_exact_or_as_near_as_the_tokenizer_allows(target, per_letter, overhead, digits_merge):
    asked = []

    async def count(shape):
        asked.append(shape)
        return overhead + per_letter * shape.letters + -(-shape.digits // digits_merge)

    shape = asyncio.run(prompts.fit(target, count))
    least = overhead + per_letter
    reached = max(target, least)
    assert abs(shape.tokens - reached) <= (0 if digits_merge == 1 or per_letter == 1 else per_letter)
    assert len(asked) <= 8


def test_the_text_of_a_prompt_is_of_its_shape():
    text = prompts.Shape(5, 3).text(np.random.default_rng(0))
    assert re.fullmatch(r"[a-z]( [a-z]){4}777", text)


def test_a_known_shape_shortens_the_search():
    asked = []

    async def count(shape):
        asked.append(shape)
        return 11 + 2 * shape.letters + shape.digits

    first = asyncio.run(prompts.fit(500, count))
    asked.clear()
    second = asyncio.run(prompts.fit(4000, count, first))
    assert (first.tokens, second.tokens) == (500, 4000)
    assert len(asked) <= 4


def test_a_tokenizer_with_several_tokens_a_letter_still_gives_exact_prompts():
    with FakeServer(tokens_per_letter=4, overhead=7) as server:
        (point,) = quick(server, batches=(1,), contexts=(130,)).points
    assert point.isl == 130


# --- faults: a clear error, in bounded time, with what there is -----------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("404 model", "model", "The model 'a-model' is not served"),
        ("404 path", "path", "no such path"),
        ("redirect", "path", "elsewhere.example"),
        ("no stream", "stream", "does not stream: it answered application/json"),
        ("no usage", "usage", "The stream has no usage"),
        ("no stream_options", "usage", "does not report usage in a stream"),
        ("429", "rate", "limits the rate"),
        ("500", "server", "failed with 500: CUDA out of memory"),
        ("503", "server", "failed with 503: Loading model"),
        ("malformed", "server", "Event 5 of the stream is no JSON"),
        ("not an object", "server", "Event 5 of the stream is no object"),
        ("error in stream", "server", "failed in the stream: engine died"),
        ("never ends", "server", "does not end"),
        ("hangs", "server", "did not answer one request within 1 s"),
        ("silent", "server", "did not answer one request within 1 s"),
    ],
)
def test_a_server_that_cannot_be_measured_gives_a_clear_error(fault, kind, said):
    began = time.monotonic()
    with FakeServer(fault=fault) as server, pytest.raises(EndpointError, match=re.escape(said)) as caught:
        quick(server, model="a-model", max_seconds=1)
    assert caught.value.kind == kind
    assert time.monotonic() - began < 60


def test_nobody_answers():
    with FakeServer() as server:
        url = server.url
    with pytest.raises(EndpointError, match=r"Nobody answers at http://127.0.0.1:\d+/v1"):
        probe(url, batches=(1,), contexts=(32,), max_seconds=5)


@pytest.mark.parametrize(
    "fault",
    [
        "drop",
        pytest.param("500 once", marks=pytest.mark.slow),
        "drop once",
        pytest.param("429 once", marks=pytest.mark.slow),
    ],
)
def test_a_fault_that_passes_costs_a_repeat_and_one_that_stays_ends_the_run(fault, tmp_path):
    began = time.monotonic()
    with FakeServer(fault=fault) as server:
        if fault == "drop":
            outcome = quick(server, batches=(1, 2, 4, 8), out=tmp_path / "out.csv")
            assert outcome.stopped.kind == "server"
            assert "broke the answer off" in str(outcome.stopped)
            assert outcome.points == []
        else:
            server.faulted = 3  # one more, in the first burst
            server.fault = "none"
            outcome = quick(server, batches=(2,), on_progress=lambda _: setattr(server, "fault", fault))
            assert len(outcome.points) == 1
            assert outcome.stopped is None
    assert time.monotonic() - began < 60


def test_a_server_that_dies_leaves_what_was_measured(tmp_path):
    out = tmp_path / "out.csv"
    server = FakeServer()

    def kill(progress):
        if progress.done == 2:
            server.die()

    with server:
        outcome = quick(server, batches=(1, 2, 4, 8), out=out, on_progress=kill)
    assert outcome.stopped.kind == "refused"
    assert [point.batch for point in outcome.points] == [1, 2]
    assert [point.batch for point in read(out)] == [1, 2]


def test_a_slow_server_ends_in_time_with_what_it_has():
    began = time.monotonic()
    with FakeServer(fault="slow", step_s=0.01) as server:
        outcome = quick(server, batches=(1, 2, 4, 8, 16), repeats=50, max_seconds=5)
    assert time.monotonic() - began < 60
    assert [point.batch for point in outcome.points] == [1]  # the bursts that were through
    assert any("time was over in batch 1" in note for note in outcome.notes)


def test_contexts_beyond_the_server_are_left_out():
    with FakeServer(max_context=256) as server:
        told = quick(server, batches=(1, 2), contexts=(64, 1024))
    assert {point.label for point in told.points} == {"batch 1, context 64", "batch 2, context 64"}
    assert told.notes == ["context 1,024 is beyond the server's 256"]
    with FakeServer(max_context=256, says_context=False) as server:
        found = quick(server, batches=(1, 2), contexts=(64, 1024))
    assert len(found.points) == 2
    assert "maximum context length is 256 tokens" in found.notes[0]


def test_answers_that_end_by_themselves_are_said():
    with FakeServer(fault="eos") as server:
        outcome = quick(server, batches=(2,))
    assert outcome.points == []
    assert "too short" in outcome.notes[0]


@pytest.mark.parametrize("fault", ["no ignore_eos", "max_completion_tokens"])
def test_what_a_server_does_not_know_is_left_out(fault):
    with FakeServer(fault=fault) as server:
        outcome = quick(server, batches=(1,))
    assert len(outcome.points) == 1


def test_the_model_may_be_left_out_when_there_is_one():
    with FakeServer(model="only") as server:
        (point,) = quick(server, batches=(1,)).points
    assert point.model == "only"
    with (
        FakeServer(models=("a-model", "another")) as server,
        pytest.raises(EndpointError, match="Served: a-model, another"),
    ):
        quick(server)


def test_input_is_checked():
    with pytest.raises(InputError):
        probe("http://localhost:1", batches=())
    with pytest.raises(InputError):
        probe("http://localhost:1", batches=(0,))
    with pytest.raises(InputError):
        probe("http://localhost:1", max_seconds=0)
    with pytest.raises(MeasurementError, match="no address"):
        probe("ftp://localhost", max_seconds=1)
    with pytest.raises(UnknownNameError):
        probe("http://localhost:1", api="chats", max_seconds=1)


# --- the result file -------------------------------------------------------------------------------------------------


def test_an_interrupted_run_keeps_its_points_and_goes_on(tmp_path):
    out = tmp_path / "out.csv"

    def interrupt(progress):
        if progress.done == 2:
            raise KeyboardInterrupt

    with FakeServer() as server:
        with pytest.raises(KeyboardInterrupt):
            quick(server, batches=(1, 2, 4), out=out, on_progress=interrupt)
        first = read(out)
        assert [point.batch for point in first] == [1, 2]
        sent = len(server.prompts)
        outcome = quick(server, batches=(1, 2, 4), out=out)
        assert [point.batch for point in outcome.points] == [1, 2, 4]
        assert outcome.points[:2] == first
        again = len(server.prompts)
        assert again - sent < 20  # only batch 4 was measured
        assert quick(server, batches=(1, 2, 4), out=out).points == read(out)
        assert len(server.prompts) == again + 1  # the first request alone


@pytest.mark.slow
def test_half_a_line_from_a_killed_run_is_dropped(tmp_path):
    out = tmp_path / "out.csv"
    with FakeServer() as server:
        quick(server, batches=(1, 2), out=out)
        text = out.read_text()
        out.write_text(text[: len(text) - 40])
        outcome = quick(server, batches=(1, 2), out=out)
    assert [point.batch for point in outcome.points] == [1, 2]
    assert len(read(out)) == 2


def test_a_file_of_another_run_is_not_touched(tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("batch,t_step_s\n8,0.03\n")
    with FakeServer() as server, pytest.raises(MeasurementError, match="Give another file with --out"):
        quick(server, out=out)
    assert out.read_text() == "batch,t_step_s\n8,0.03\n"


# --- keys ------------------------------------------------------------------------------------------------------------

SECRET = "sk-very-secret-1234567890"  # noqa: S105 - made up


def test_a_key_comes_from_the_environment_and_goes_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    out = tmp_path / "out.csv"
    with FakeServer(key=SECRET) as server:
        result = CliRunner().invoke(
            command, [server.url, "--batch", "1", "--context", "64", "--repeats", "1", "--out", str(out), "--json"]
        )
        assert result.exit_code == 0, result.output
        assert all(SECRET in head for head in server.headers)
    assert SECRET not in out.read_text() + result.output + result.stderr
    assert "127.0.0.1" not in out.read_text()


def test_a_refused_key_is_not_repeated(monkeypatch):
    monkeypatch.setenv("BATCHLINE_API_KEY", "sk-wrong-one-42")
    key = endpoint.key_from_environment()
    with FakeServer(key=SECRET) as server:
        with pytest.raises(EndpointError, match="The key was refused") as caught:
            quick(server, key=key)
        assert "sk-wrong" not in str(caught.value)
        assert "BATCHLINE_API_KEY or OPENAI_API_KEY" in str(caught.value)
        with pytest.raises(EndpointError, match="A key is needed"):
            quick(server)
    assert "sk-wrong" not in repr(endpoint.Endpoint(server.url, key=key))


def test_no_key_in_the_environment(monkeypatch):
    for name in endpoint.KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert endpoint.key_from_environment() is None
    assert os.environ.get("OPENAI_API_KEY") is None


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_a_file(tmp_path):
    out = tmp_path / "out.csv"
    with FakeServer() as server:
        result = CliRunner().invoke(
            command, [server.url, "--batch", "1,2", "--context", "64", "--repeats", "1", "--out", str(out)]
        )
    assert result.exit_code == 0, result.output
    assert "decode" in result.stdout
    assert f"Points in {out}: 2" in result.stderr
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["batch"] for row in rows] == ["1", "2"]


def test_the_command_raises_after_printing_what_it_has(tmp_path):
    with FakeServer(fault="drop") as server:
        result = CliRunner().invoke(
            command, [server.url, "--batch", "1", "--context", "64", "--out", str(tmp_path / "o.csv")]
        )
    assert isinstance(result.exception, EndpointError)


def test_one_address_or_files():
    result = CliRunner().invoke(command, ["http://localhost:1", "a.json"])
    assert isinstance(result.exception, InputError)
