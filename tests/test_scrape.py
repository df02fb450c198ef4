"""The metrics reader: saved scrapes, a live /metrics, a Prometheus server's API, on engines whose behaviour is known.

Shapes: vLLM 0.32 and llama.cpp as scraped (names in data/engine_metrics.csv); SGLang, TensorRT-LLM and TGI after the
documents named there.
"""

import http.server
import json
import threading

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from batchline.cli.measure import command
from batchline.errors import InputError, MeasurementError
from batchline.measure import hazards, prometheus, scrape

from .strategies import examples

EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)


class VllmEngine:
    """vLLM's metrics while it decodes `batch` sequences at a time and prefills now and then; the step is known."""

    def __init__(self, base=0.010, per_sequence=0.0005, per_prompt_token=0.0002):
        self.law = base, per_sequence, per_prompt_token
        self.now = self.steps = self.tokens = self.prompts = self.sum = self.count = self.preempted = 0.0
        self.buckets = dict.fromkeys([*EDGES, float("inf")], 0)
        self.running, self.waiting, self.kv = 0, 0, 0.0

    def step(self, batch, prompt=0):
        base, per_sequence, per_prompt = self.law
        took = base + per_sequence * batch + per_prompt * prompt
        self.now += took
        self.steps += 1
        self.tokens += batch
        self.prompts += prompt
        self.sum += batch * took
        self.count += batch
        self.running = batch
        for edge in self.buckets:
            self.buckets[edge] += batch * (took <= edge)

    def run(self, seconds, batch, prompt_every=0, prompt=512):
        end, number = self.now + seconds, 0
        while self.now < end:
            number += 1
            self.step(batch, prompt if prompt_every and number % prompt_every == 0 else 0)

    def text(self, engine="0", model="a-model"):
        labels = f'engine="{engine}",model_name="{model}"'
        lines = ["# HELP vllm:num_requests_running Number of requests", "# TYPE vllm:num_requests_running gauge"]
        for name, value in {
            "vllm:num_requests_running": self.running,
            "vllm:num_requests_waiting": self.waiting,
            "vllm:kv_cache_usage_perc": self.kv,
            "vllm:generation_tokens_total": self.tokens,
            "vllm:prompt_tokens_total": self.prompts,
            "vllm:prompt_tokens_cached_total": 0,
            "vllm:num_preemptions_total": self.preempted,
            "vllm:iteration_tokens_total_count": self.steps,
            "vllm:inter_token_latency_seconds_sum": self.sum,
            "vllm:inter_token_latency_seconds_count": self.count,
        }.items():
            lines.append(f"{name}{{{labels}}} {value}")
        for edge, number in self.buckets.items():
            le = "+Inf" if edge == float("inf") else edge
            lines.append(f'vllm:inter_token_latency_seconds_bucket{{{labels},le="{le}"}} {number}')
        lines.append(
            f'vllm:cache_config_info{{{labels},block_size="16",num_gpu_blocks="1000",note="a \\"b\\", c"}} 1.0'
        )
        return "\n".join(lines) + "\n"

    def shot(self, **changes):
        return prometheus.parse(self.text(**changes), self.now)


def watched(engine, plan, **changes):
    shots = [engine.shot(**changes)]
    for seconds, batch, every in plan:
        engine.run(seconds, batch, every)
        shots.append(engine.shot(**changes))
    return shots


# --- vLLM -------------------------------------------------------------------------------------------------------------


def test_batch_from_counters_is_exact():
    engine = VllmEngine()
    engine.run(3, 5, 7)
    first = engine.shot()
    engine.run(4, 16, 11)
    state = scrape.read([first, engine.shot()])
    assert state.running_batch == pytest.approx(16.0)
    assert (state.engine, state.model, state.engines) == ("vllm", "a-model", 1)


@pytest.mark.parametrize("every", [0, 3, 20])
def test_step_by_regression_is_free_of_prefill(every):
    # A prompt of 512 tokens adds 102 ms: with one every 3 steps the mean gap is 3 times the step.
    engine = VllmEngine()
    plan = [(1.0, batch, every and every + number % 3) for number, batch in enumerate([4, 8, 12, 16, 24, 32] * 3)]
    state = scrape.read(watched(engine, plan))
    truth = 0.010 + 0.0005 * state.running_batch
    assert state.t_step_s == pytest.approx(truth, rel=0.05)
    assert state.t_step_low_s <= state.t_step_s <= state.t_step_high_s
    if every == 3:
        assert state.itl_mean_s > 2 * truth
        assert state.prefill_s_per_token == pytest.approx(0.0002, rel=0.1)
        assert state.prefill_share > 0.5
        assert state.saturated_by == "prefill"
    assert state.slope_s == pytest.approx(0.0005, rel=0.15)
    assert "regressed" in state.method


@given(
    base=st.floats(0.02, 0.05),
    per_sequence=st.floats(1e-5, 2e-3),
    batches=st.lists(st.integers(1, 64), min_size=10, max_size=12),
)
@settings(max_examples=examples(30))
def test_without_prefill_regression_is_exact(base, per_sequence, batches):
    engine = VllmEngine(base, per_sequence)
    state = scrape.read(watched(engine, [(0.3, batch, 0) for batch in batches]))
    assert state.t_step_s == pytest.approx(base + per_sequence * state.running_batch, rel=0.02)
    assert state.prefill_share == 0


def test_two_scrapes_cut_the_prefill_tail_off():
    engine = VllmEngine(base=0.012)
    first = engine.shot()
    engine.run(10, 16, 10)  # every tenth step holds a prompt: 122 ms instead of 20 ms
    state = scrape.read([first, engine.shot()])
    assert state.itl_mean_s > 1.4 * 0.020
    assert state.t_step_low_s <= 0.0201
    assert state.t_step_high_s >= 0.0199
    assert state.t_step_s == pytest.approx(0.020, rel=0.15)
    assert "beyond twice the median" in state.method


def test_a_steady_share_of_prefill_is_not_taken_for_a_longer_step():
    engine = VllmEngine(base=0.012)
    shots = [engine.shot()]
    for _ in range(12):
        for number in range(50):
            engine.step(16, 512 if number % 10 == 0 else 0)
        shots.append(engine.shot())
    state = scrape.read(shots)
    assert "beyond twice the median" in state.method
    assert state.t_step_s == pytest.approx(0.020, rel=0.15)


def test_one_scrape_is_since_the_start():
    engine = VllmEngine()
    engine.run(2, 8)
    state = scrape.read([engine.shot()])
    assert state.running_batch == pytest.approx(8)
    assert state.t_step_s == pytest.approx(0.014, rel=0.01)
    assert (state.waiting, state.kv_use, state.output_tokens_per_s) == (None, None, None)
    assert "two scrapes" in state.reason


def test_context_and_kv_from_gauges():
    engine = VllmEngine()
    engine.kv = 0.25
    shots = watched(engine, [(1.0, 8, 0)] * 3)
    state = scrape.read(shots[1:])
    assert state.kv_use == 0.25
    assert state.context == pytest.approx(0.25 * 16000 / 8)
    assert any("full at about 32 sequences" in line for line in state.advice())


@pytest.mark.parametrize(
    ("waiting", "kv", "preempted", "bound"),
    [(0, 0.4, 0, "none"), (12, 0.4, 0, "max_num_seqs"), (12, 0.99, 0, "kv"), (0, 0.9, 3, "kv")],
)
def test_what_binds(waiting, kv, preempted, bound):
    engine = VllmEngine()
    engine.waiting, engine.kv = waiting, kv
    engine.run(1, 8)
    first = engine.shot()
    engine.run(1, 8)
    engine.preempted = preempted
    state = scrape.read([first, engine.shot()])
    assert state.saturated_by == bound
    assert state.reason


def test_data_parallel_engines_give_the_batch_of_one():
    def both(engine, at):
        texts = engine.text(engine="0") + engine.text(engine="1")
        return prometheus.parse(texts, at)

    engine = VllmEngine()
    engine.run(1, 8)
    first = both(engine, 0.0)
    engine.run(2, 8)
    state = scrape.read([first, both(engine, 2.0)])
    assert state.running_batch == pytest.approx(8)
    assert state.engines == 2
    assert state.point().dp == 2
    assert state.output_tokens_per_s == pytest.approx(2 * 8 / 0.014, rel=0.02)


def test_a_state_is_a_point():
    engine = VllmEngine()
    shots = watched(engine, [(1.0, batch, 0) for batch in (4, 8, 16, 32) * 3])
    point = scrape.read(shots).point("here")
    assert (point.regime, point.tool, point.engine, point.file) == ("decode", "metrics", "vllm", "here")
    assert hazards.inspect([point]) == [()]


def test_several_models_must_be_told_apart():
    engine = VllmEngine()
    engine.run(1, 8)
    shot = prometheus.parse(engine.text(model="a") + engine.text(model="b"))
    with pytest.raises(MeasurementError, match=r"several models: a, b"):
        scrape.read([shot])
    assert scrape.read([shot], "a").model == "a"
    with pytest.raises(MeasurementError, match="Models: a, b"):
        scrape.read([shot], "c")


def test_a_restart_and_an_idle_server_are_said():
    engine = VllmEngine()
    engine.run(2, 8)
    with pytest.raises(MeasurementError, match="generation_tokens_total went down"):
        scrape.read([engine.shot(), VllmEngine().shot()])
    idle = VllmEngine()
    with pytest.raises(MeasurementError, match="ran nothing"):
        scrape.read([idle.shot(), idle.shot()])
    with pytest.raises(MeasurementError, match="no metrics to read"):
        scrape.read([])


def test_real_vllm_metrics(shared):
    state = scrape.read([prometheus.load(shared / "engines" / "example_vllm_metrics.txt")])
    assert state.running_batch == pytest.approx(1488 / 243)  # generation tokens / iterations
    assert state.itl_mean_s == pytest.approx(52.832154847000766 / 1457)
    assert state.isl == pytest.approx(3317 / 31)
    # The clean steps of the vllm bench file of the same server are 29.7 ms at batch 8, its prober says 27.9 to 31.4.
    assert 0.025 < state.t_step_low_s < state.t_step_s < state.itl_mean_s


# --- other engines ----------------------------------------------------------------------------------------------------


def test_llama_server_counts_busy_slots_since_its_start():
    def text(calls, mean, predicted, seconds, prompts, prompt_seconds):
        return (
            f"llamacpp:requests_processing 4\nllamacpp:requests_deferred 0\nllamacpp:n_decode_total {calls}\n"
            f"llamacpp:n_busy_slots_per_decode {mean}\nllamacpp:tokens_predicted_total {predicted}\n"
            f"llamacpp:tokens_predicted_seconds_total {seconds}\nllamacpp:prompt_tokens_total {prompts}\n"
            f"llamacpp:prompt_seconds_total {prompt_seconds}\nllamacpp:prompt_tokens_cached_total 0\n"
        )

    # 100 calls at 1 slot before; then 300 calls at 4 slots: the mean since the start is 3.25.
    before = prometheus.parse(text(100, 1.0, 100, 1.0, 50, 0.1), 0.0)
    after = prometheus.parse(text(400, 3.25, 1300, 1.0 + 1200 * 0.02, 90, 0.12), 10.0)
    state = scrape.read([before, after])
    assert state.engine == "llama.cpp"
    assert state.running_batch == pytest.approx(4.0)
    assert state.itl_mean_s == pytest.approx(0.02)
    # 0.02 s of prefill kept 3 others waiting: less than a percent of 24 s.
    assert state.t_step_s == pytest.approx(0.02, rel=0.01)
    assert state.output_tokens_per_s == pytest.approx(120)


def test_llama_server_means_with_much_prefill_give_a_range_and_no_step():
    def text(calls, mean, predicted, seconds, prompt_seconds):
        return (
            f"llamacpp:n_decode_total {calls}\nllamacpp:n_busy_slots_per_decode {mean}\n"
            f"llamacpp:tokens_predicted_total {predicted}\nllamacpp:tokens_predicted_seconds_total {seconds}\n"
            f"llamacpp:prompt_seconds_total {prompt_seconds}\nllamacpp:prompt_tokens_total 5\n"
        )

    state = scrape.read([prometheus.parse(text(100, 8, 0, 0, 0)), prometheus.parse(text(400, 8, 2400, 120, 10))])
    assert state.t_step_s is None
    assert state.t_step_low_s < 0.05 == state.t_step_high_s
    assert state.point().regime == "serving"
    assert state.method == "the metrics hold means only, and prefill is in them: watch for longer"


def test_sglang_ranks_are_one_engine():
    def text(at):
        rows = []
        for rank in (0, 1):
            labels = f'model_name="m",engine_type="unified",tp_rank="{rank}",pp_rank="0"'
            rows += [
                f"sglang:num_running_reqs{{{labels}}} 32.0",
                f"sglang:num_queue_reqs{{{labels}}} 0.0",
                f"sglang:token_usage{{{labels}}} 0.5",
                f"sglang:decode_sum_seq_lens{{{labels}}} 65536",
                f'sglang:realtime_tokens_total{{{labels},mode="decode"}} {32 * 50 * at}',
                f'sglang:realtime_tokens_total{{{labels},mode="prefill_compute"}} {1000 * at}',
                f'sglang:realtime_tokens_total{{{labels},mode="prefill_cache"}} {3000 * at}',
            ]
        rows += [
            f'sglang:inter_token_latency_seconds_sum{{model_name="m"}} {32 * at}',
            f'sglang:inter_token_latency_seconds_count{{model_name="m"}} {32 * 50 * at}',
        ]
        return prometheus.parse("\n".join(rows), float(at))

    state = scrape.read([text(at) for at in range(1, 14)])
    assert (state.engine, state.running_batch, state.context) == ("sglang", 32, 2048)
    assert state.cached_share == pytest.approx(0.75)
    assert state.output_tokens_per_s == pytest.approx(1600)
    assert state.itl_mean_s == pytest.approx(0.02)


def test_tensorrt_llm_takes_iterations_without_prompts():
    def text(step, prompts):
        labels = '{model_name="m",engine_type="trtllm"}'
        rows = {
            "trtllm_num_generation_requests": 64,
            "trtllm_num_context_requests": prompts,
            "trtllm_num_requests_waiting": 0,
            "trtllm_kv_cache_used_blocks": 2000,
            "trtllm_kv_cache_max_blocks": 8000,
            "trtllm_kv_cache_tokens_per_block": 32,
            "trtllm_iteration_latency_seconds": step,
        }
        return prometheus.parse("\n".join(f"{name}{labels} {value}" for name, value in rows.items()))

    shots = [text(0.080 if number % 3 == 0 else 0.012, 0 if number % 3 else 2) for number in range(12)]
    state = scrape.read(shots)
    assert (state.engine, state.running_batch, state.kv_use) == ("tensorrt-llm", 64, 0.25)
    assert state.t_step_s == pytest.approx(0.012)
    assert state.context == pytest.approx(2000 * 32 / 64)


def test_tgi_counts_prefill_apart():
    def text(scale):
        return prometheus.parse(
            "tgi_batch_current_size 10\ntgi_queue_size 3\n"
            f'tgi_batch_forward_duration_sum{{method="decode"}} {2.5 * scale}\n'
            f'tgi_batch_forward_duration_count{{method="decode"}} {100 * scale}\n'
            f'tgi_batch_forward_duration_sum{{method="prefill"}} {9 * scale}\n'
            f'tgi_batch_forward_duration_count{{method="prefill"}} {10 * scale}\n'
        )

    state = scrape.read([text(1), text(3)])
    assert (state.engine, state.running_batch, state.t_step_s) == ("tgi", 10, pytest.approx(0.025))
    assert state.prefill_share == pytest.approx(9 / 11.5)
    assert state.saturated_by == "prefill"


def test_names_with_an_underscore_for_the_colon():
    engine = VllmEngine()
    engine.run(1, 8)
    shot = prometheus.parse(engine.text().replace("vllm:", "vllm_"))
    assert scrape.read([shot]).running_batch == pytest.approx(8)


def test_every_engine_of_the_table_is_known():
    assert scrape.engines() == ["vllm", "sglang", "llama.cpp", "tensorrt-llm", "tgi"]
    assert "sglang:num_running_reqs" in scrape.metric_names()


# --- Prometheus text ------------------------------------------------------------------------------------------------


def test_text_that_is_no_metrics():
    with pytest.raises(MeasurementError, match="line 2 is no metric: 'hello there you'"):
        prometheus.parse("a 1\nhello there you\n")
    with pytest.raises(MeasurementError, match="line 1: labels"):
        prometheus.parse("a{b=1} 2")
    with pytest.raises(MeasurementError, match="line 1 is no metric"):
        prometheus.parse("a{} one")
    with pytest.raises(MeasurementError, match="No metric of an engine that is known; names begin with go, process"):
        scrape.read([prometheus.parse("go_gc 1\nprocess_cpu_seconds_total 2")])


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True),
        st.text(max_size=8),
        max_size=3,
    ),
    st.floats(allow_nan=False),
)
def test_any_label_is_read_back(labels, value):
    escaped = {
        name: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, text in labels.items()
    }
    line = "m{" + ",".join(f'{name}="{text}"' for name, text in escaped.items()) + f"}} {value!r}"
    (series,) = prometheus.parse(line).series["m"]
    assert series == (tuple(sorted(labels.items())), value)


def test_values_of_special_numbers_and_time_stamps():
    shot = prometheus.parse("a NaN\nb +Inf\nc 3 1700000000000\nd{} 4\n")
    assert np.isnan(shot.series["a"][0][1])
    assert (shot.values("b"), shot.values("c"), shot.values("d")) == ([float("inf")], [3.0], [4.0])


# --- over HTTP ------------------------------------------------------------------------------------------------------


@pytest.fixture
def page():
    """A page on loopback whose content, status and kind a test can set."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.seen.append((self.path, dict(self.headers)))
            status, text = self.server.answer(self)
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self):
            self.server.asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.do_GET()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.seen = []
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_watching_a_live_server(page):
    engine = VllmEngine()
    engine.run(1, 8)

    def answer(_):
        engine.run(0.2, 8 if len(page.seen) % 2 else 16)
        return 200, engine.text()

    page.answer = answer
    seen = []
    shots = prometheus.watch(f"{page.url}/metrics", 0.4, every_s=0.02, on_snapshot=lambda *told: seen.append(told))
    assert len(shots) >= 5
    assert [count for count, _ in seen] == list(range(1, len(shots) + 1))
    assert 8 < scrape.read(shots).running_batch < 16


def test_a_server_that_goes_away_leaves_what_was_seen(page):
    engine = VllmEngine()

    def answer(_):
        engine.run(0.2, 8)
        return (200, engine.text()) if len(page.seen) <= 3 else (500, "gone")

    page.answer = answer
    assert len(prometheus.watch(f"{page.url}/metrics", 30, every_s=0.01)) == 3


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (404, "nothing", "answered 404.*--metrics"),
        (401, "no", "answered 401"),
        (200, "<html>", "no metrics in Prometheus text"),
    ],
)
def test_a_page_without_metrics(page, status, text, said):
    page.answer = lambda _: (status, text)
    with pytest.raises(MeasurementError, match=said):
        prometheus.watch(f"{page.url}/metrics", 0.1, every_s=0.01)


def test_nobody_answers(page):
    url = page.url
    page.shutdown()
    page.server_close()
    with pytest.raises(MeasurementError, match="Nobody answers"):
        prometheus.watch(f"{url}/metrics", 0.1)
    with pytest.raises(MeasurementError, match="Nobody answers"):
        prometheus.query(url, ["a"], 10)


def matrix(shots):
    series = {}
    for shot in shots:
        for name, rows in shot.series.items():
            for labels, value in rows:
                series.setdefault((name, labels), []).append([shot.at_s, str(value)])
    result = [
        {"metric": {"__name__": name, **dict(labels)}, "values": values} for (name, labels), values in series.items()
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def test_a_prometheus_server_gives_the_same_as_the_scrapes(page):
    engine = VllmEngine()
    shots = watched(engine, [(1.0, batch, 5) for batch in (4, 8, 16, 24) * 4])
    page.answer = lambda _: (200, matrix(shots))
    found = prometheus.query(f"{page.url}/prometheus/", scrape.metric_names(), 60, key="sk-1")
    assert scrape.read(found) == scrape.read(shots)
    assert page.seen[0][0] == "/prometheus/api/v1/query_range"
    assert page.seen[0][1]["Authorization"] == "Bearer sk-1"
    assert "vllm%5B%3A_%5D" in page.asked  # vllm[:_]


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (200, "hello", "answered no JSON"),
        (400, '{"status":"error","error":"parse error"}', "parse error"),
        (200, "[]", r"answered 200: \?"),
        (200, '{"status":"success","data":{"result":[]}}', "has no metrics of an engine"),
        (200, '{"status":"success","data":{"result":[{"metric":{}}]}}', "cannot be read"),
    ],
)
def test_a_prometheus_server_that_answers_otherwise(page, status, text, said):
    page.answer = lambda _: (status, text)
    with pytest.raises(MeasurementError, match=said):
        prometheus.query(page.url, ["a"], 60)


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_reads_a_pair_of_saved_scrapes(tmp_path):
    engine = VllmEngine()
    engine.run(1, 4)
    (tmp_path / "a.txt").write_text(engine.text())
    engine.run(3, 16, 20)
    engine.waiting, engine.kv = 3, 0.99
    (tmp_path / "b.txt").write_text(engine.text())
    paths = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    result = CliRunner().invoke(command, paths)
    assert result.exit_code == 0, result.output
    assert "vllm decodes 16 sequences together" in result.stdout
    printed = json.loads(CliRunner().invoke(command, [*paths, "--json"]).stdout)
    assert printed["state"]["running_batch"] == pytest.approx(16)
    assert printed["points"][0]["engine"] == "vllm"
    (tmp_path / "c.csv").write_text("batch,t_step_s\n8,0.03\n")
    mixed = CliRunner().invoke(command, [*paths, str(tmp_path / "c.csv")])
    assert isinstance(mixed.exception, InputError)


def test_the_command_watches_and_asks(page):
    engine = VllmEngine()
    engine.run(1, 8)

    def answer(handler):
        engine.run(0.2, 8)
        return 200, matrix(watched(engine, [(1.0, 8, 0)] * 3)) if handler.command == "POST" else engine.text()

    page.answer = answer
    watched_page = CliRunner().invoke(command, [f"{page.url}/metrics", "--for", "200ms"])
    assert "vllm decodes 8 sequences together" in watched_page.stdout, watched_page.exception
    asked = CliRunner().invoke(command, [page.url, "--prometheus", "--for", "5min", "--csv"])
    assert asked.exit_code == 0, asked.exception
    assert asked.stdout.splitlines()[0].startswith("schema,regime,batch")
