"""Lengths and arrivals by their moments, traces by what they hold or why they cannot be."""

import gzip
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchline import workload
from batchline.errors import ConfigError, InputError, UnknownNameError

from .strategies import examples

LENGTHS = [
    workload.Fixed(100),
    workload.Uniform(10, 1600),
    workload.Geometric(200.0),
    workload.LogNormal(500.0, 1.0),
    workload.LogNormal(500.0, 1.5, 10, 4000),
    workload.Histogram(np.array([1, 100, 1000, 4000]), np.array([5.0, 3.0, 1.0])),
    workload.Empirical(np.array([3, 5, 8, 13, 300])),
]


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda one: type(one).__name__)
def test_lengths_have_their_mean_and_quantiles(lengths):
    sample = lengths.sample(np.random.default_rng(1), 100_000)
    assert sample.dtype == np.int64
    assert sample.min() >= 1
    assert sample.mean() == pytest.approx(lengths.mean, rel=0.02)
    for share in (0.1, 0.5, 0.9):
        reached = np.mean(sample <= lengths.quantile(share) + 0.5)
        assert reached >= share - 0.01


@pytest.mark.parametrize(
    "make",
    [
        lambda: workload.Fixed(0),
        lambda: workload.Uniform(5, 4),
        lambda: workload.Geometric(0.5),
        lambda: workload.LogNormal(0.0, 1.0),
        lambda: workload.LogNormal(10.0, -1.0),
        lambda: workload.Histogram(np.array([1, 1]), np.array([1.0])),
        lambda: workload.Histogram(np.array([1, 5]), np.array([0.0])),
        lambda: workload.Histogram(np.array([1, 5]), np.array([np.nan])),
        lambda: workload.Empirical(np.array([], dtype=np.int64)),
        lambda: workload.Empirical(np.array([0, 1])),
        lambda: workload.fit_log_normal([]),
        lambda: workload.fit_histogram([]),
        lambda: workload.LogNormal(5.0, 0.1, 1000, 2000).sample(np.random.default_rng(0), 3),
        lambda: workload.Poisson(0),
        lambda: workload.Poisson(np.nan),
        lambda: workload.GammaGaps(1, 0),
        lambda: workload.Bursts(1, 0),
        lambda: workload.Diurnal(1, 2.5),
        lambda: workload.Diurnal(1, 1.5, 0),
        lambda: workload.of_requests([], 1, 1),
        lambda: workload.of_requests([1, 0], 1, 1),
        lambda: workload.of_requests([np.nan], 1, 1),
        lambda: workload.of_requests([-1.0], 1, 1),
        lambda: workload.of_requests([0, 1], [1, 0], 1),
        lambda: workload.of_requests([0, 1], 1, [1, 0]),
        lambda: workload.synthetic(workload.Poisson(1), workload.Fixed(1), workload.Fixed(1)),
        lambda: workload.synthetic(workload.Poisson(1), workload.Fixed(1), workload.Fixed(1), count=0),
        lambda: workload.closed_loop(0, workload.Fixed(1), workload.Fixed(1), count=1),
        lambda: workload.rescaled(workload.of_requests([0], 1, 1), rate=0),
        lambda: workload.repeated(workload.of_requests([0], 1, 1), 0),
        lambda: workload.limited(workload.of_requests([0], 1, 1), 0),
    ],
)
def test_refused(make):
    with pytest.raises(InputError):
        make()


ARRIVALS = {
    "metronome": (workload.Metronome(7.0), 0.0),
    "poisson": (workload.Poisson(7.0), 1.0),
    "bursty": (workload.GammaGaps(7.0, 2.0), 4.0),
    "even": (workload.GammaGaps(7.0, 0.5), 0.25),
    # a burst of n: one gap of mean n/rate, n - 1 gaps of 0: squared variation 2 n - 1
    "bursts": (workload.Bursts(7.0, 4), 7.0),
}


@pytest.mark.parametrize("name", ARRIVALS)
def test_arrivals_have_their_rate_and_variation(name):
    arrivals, scv = ARRIVALS[name]
    blocks = arrivals.blocks(np.random.default_rng(2), 60_000)
    times = np.concatenate([next(blocks), next(blocks)])
    gaps = np.diff(times, prepend=0.0)
    assert gaps.min() >= 0
    assert len(times) / times[-1] == pytest.approx(arrivals.rate, rel=0.03)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(scv, rel=0.05, abs=1e-9)


def test_diurnal_swings():
    """Twelve days: a sixth of the day around midnight and around noon, against the integral of the rate."""
    arrivals = workload.Diurnal(5.0, 1.8, 3600.0)
    times = next(arrivals.blocks(np.random.default_rng(3), 13 * 18_000))
    times = times[times < 12 * 3600.0]
    hour = times % 3600.0
    for start in (0.0, 1500.0):
        inside = np.mean((hour >= start) & (hour < start + 600.0))
        phase = 2 * np.pi * np.array([start, start + 600.0]) / 3600.0
        expected = 1 / 6 - 0.8 / (2 * np.pi) * np.diff(np.sin(phase))[0]
        assert inside == pytest.approx(expected, rel=0.03)


@given(count=st.integers(1, 200_000), seed=st.integers(0, 9))
@settings(max_examples=examples(10))
def test_synthetic_traffic_is_repeatable(count, seed):
    traffic = workload.synthetic(
        workload.Poisson(3), workload.LogNormal(100, 1.0), workload.Uniform(1, 50), count=count, seed=seed
    )
    first, second = workload.whole(traffic), workload.whole(traffic)
    assert len(first) == count == traffic.count
    np.testing.assert_array_equal(first.arrival_s, second.arrival_s)
    np.testing.assert_array_equal(first.isl, second.isl)
    assert np.all(np.diff(first.arrival_s) >= 0)


def test_more_requests_begin_with_fewer():
    def traffic(count):
        lengths = workload.LogNormal(100, 1.0), workload.Uniform(1, 50)
        return workload.whole(workload.synthetic(workload.Poisson(3), *lengths, count=count))

    few, many = traffic(1000), traffic(70_000)
    np.testing.assert_array_equal(few.arrival_s, many.arrival_s[:1000])
    np.testing.assert_array_equal(few.osl, many.osl[:1000])


def test_shared_prefixes_come_on_top():
    traffic = workload.synthetic(
        workload.Poisson(3), workload.Fixed(10), workload.Fixed(5), count=300, shared_prefix=(4, 128)
    )
    requests = workload.whole(traffic)
    assert set(requests.prefix) == {0, 1, 2, 3}
    assert requests.tree.tokens == [128] * 4
    assert set(requests.isl) == {138}


def test_repeated_and_rescaled():
    traffic = workload.of_requests([0.0, 1.0, 3.0], [10, 20, 30], [1, 2, 3])
    thrice = workload.whole(workload.repeated(traffic, 3))
    assert thrice.arrival_s.tolist() == [0, 1, 3, 4.5, 5.5, 7.5, 9, 10, 12]
    longer = workload.whole(workload.rescaled(traffic, rate=0.5, isl=2.0, osl=0.1))
    assert longer.arrival_s.tolist() == [0, 2, 6]
    assert longer.isl.tolist() == [20, 40, 60]
    assert longer.osl.tolist() == [1, 1, 1]
    assert len(workload.whole(workload.limited(workload.repeated(traffic, 3), 4))) == 4


def test_prefix_tree_tells_blocks_by_what_comes_before():
    tree = workload.PrefixTree()
    assert tree.add([1, 2, 3], 16, 48) == 2
    assert tree.add([1, 2, 3], 16, 48) == 2
    assert tree.add([2, 3], 16, 32) != 1
    assert tree.add([1, 2, 3], 16, 40) == len(tree) - 1  # a shorter last block is another
    assert tree.add([], 16, 40) == -1
    assert tree.tokens == [16, 32, 48, 16, 32, 40]


# -- traces -----------------------------------------------------------------------------------------------------------


def write(tmp_path, text, name="trace.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def read(path, **options):
    return workload.whole(workload.trace(path, **options))


HEAD = "arrival_s,isl,osl\n"


def test_public_traces(shared):
    """Requests and mean lengths that the sets' own papers and pages state, and what lies in shared/traces."""
    conversation = read(shared / "traces/azure2023_conv.csv")
    assert len(conversation) == 19366
    assert np.median(conversation.isl) == 1020  # Splitwise, section 3: 1,020 and 129 tokens
    assert np.median(conversation.osl) == 129
    code = read(shared / "traces/azure2023_code.csv")
    assert len(code) == 8819
    assert np.median(code.isl) == pytest.approx(1500, rel=0.03)  # 1,500 and 13 tokens
    assert np.median(code.osl) == 13
    mooncake = read(shared / "traces/mooncake_fast25_conversation.csv")
    assert len(mooncake) == 12031
    assert mooncake.isl.mean() == pytest.approx(12035, rel=1e-4)  # the release's table: 12,035 and 343
    assert mooncake.osl.mean() == pytest.approx(343, rel=2e-3)


def test_logged_runs(shared):
    requests = read(shared / "traces/vllm_runs/RTX4090__Llama-3.1-8B/requests.jsonl")
    assert len(requests) == 300
    assert requests.arrival_s[0] == 0.0
    assert requests.arrival_s[-1] == pytest.approx(29.1, abs=0.1)


def test_azure_as_published(tmp_path):
    path = write(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n",
    )
    requests = read(path)
    assert requests.arrival_s.tolist() == pytest.approx([0.0, 4.314579])
    assert requests.osl.tolist() == [44, 109]


def test_mooncake_as_published(tmp_path):
    lines = [
        {"timestamp": 27482, "input_length": 1500, "output_length": 52, "hash_ids": [46, 47, 48]},
        {"timestamp": 30535, "input_length": 1100, "output_length": 26, "hash_ids": [46, 47, 90]},
    ]
    requests = read(write(tmp_path, "\n".join(map(json.dumps, lines)), "conversation.jsonl"))
    assert requests.arrival_s.tolist() == pytest.approx([0.0, 3.053])
    assert requests.tree.parents == [-1, 0, 1, 1]
    assert requests.tree.tokens == [512, 1024, 1500, 1100]
    assert requests.prefix.tolist() == [2, 3]


def test_burstgpt_and_gzip(tmp_path):
    path = tmp_path / "BurstGPT_1.csv.gz"
    text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,API log\n45,GPT-4,1087,230,1317,API log\n"  # noqa: E501
    path.write_bytes(gzip.compress(text.encode()))
    assert read(path).arrival_s.tolist() == [0.0, 40.0]


def test_own_schema_with_prefixes(tmp_path):
    path = write(
        tmp_path, "arrival_s,isl,osl,prefix_id,prefix_tokens\n0,100,5,a,64\n1,100,5,b,32\n2,100,5,a,64\n3,9,5,,\n"
    )
    requests = read(path)
    assert requests.prefix.tolist() == [0, 1, 0, -1]
    assert requests.tree.tokens == [64, 32]


def test_columns_can_be_named(tmp_path):
    path = write(tmp_path, "when_ms;in;out\n0;5;6\n1500;7;8\n")
    columns = {"arrival": "when_ms", "isl": "in", "osl": "out"}
    assert read(path, columns=columns).arrival_s.tolist() == [0.0, 1.5]
    other = write(tmp_path, "when,in,out\n0,5,6\n1500,7,8\n", "other.csv")
    columns["arrival"] = "when"
    with pytest.raises(InputError, match="does not say its unit"):
        read(other, columns=columns)
    assert read(other, columns=columns, time_unit="ms").arrival_s.tolist() == [0.0, 1.5]
    with pytest.raises(UnknownNameError, match="column"):
        read(other, columns={"arrivals": "when"})
    with pytest.raises(UnknownNameError, match="whenn"):
        read(other, columns={"arrival": "whenn"})
    with pytest.raises(UnknownNameError, match="unit"):
        read(other, time_unit="minutes")


BAD = {
    "unsorted": ("0,10,10\n5,10,10\n4,10,10\n", r"row 4: sent before row 3", {"rows sorted by time": 1}),
    "negative time": (
        "0,10,10\n-1,10,10\n",
        r"row 3: arrival_s is -1, before time 0",
        {"rows before time 0 left out": 1},
    ),
    "no time": ("0,10,10\nnan,10,10\n", r"row 3: arrival_s is nan, no time", {"rows without a time left out": 1}),
    "infinite time": ("0,10,10\ninf,10,10\n", r"row 3", {"rows without a time left out": 1}),
    "no number": (
        "0,10,10\n1,ten,10\n",
        r"row 3: isl is 'ten', no number",
        {"rows without a prompt length left out": 1},
    ),
    "nothing": ("0,10,10\n1,,10\n", r"row 3: isl is ''", {"rows without a prompt length left out": 1}),
    "negative length": ("0,10,10\n1,-5,10\n", r"row 3: isl is -5, less than 1", {"rows without a prompt left out": 1}),
    "zero output": ("0,10,10\n1,10,0\n", r"row 3: osl is 0, less than 1 token", {"rows without an answer left out": 1}),
    "absurd": ("0,10,10\n1,10,1e9\n", r"row 3: osl is 1e\+09, above 10,000,000", {"rows of absurd length left out": 1}),
    "broken length": ("0,10,10\n1,10,2.5\n", r"row 3: osl is 2.5, no whole", {"rows with broken lengths left out": 1}),
    "short row": ("0,10,10\n1,10\n", r"row 3: 2 columns, not 3", {"rows of another width left out": 1}),
    "long row": ("0,10,10\n1,10,10,10\n", r"row 3: 4 columns, not 3", {"rows of another width left out": 1}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_traces_are_refused_or_mended(tmp_path, name):
    """Each is refused with its row; with repair the rest is read, and what was done is counted."""
    rows, message, repairs = BAD[name]
    path = write(tmp_path, HEAD + rows)
    with pytest.raises(InputError, match=message):
        read(path)
    traffic = workload.trace(path, repair=True)
    requests = workload.whole(traffic)
    assert len(requests) == rows.count("\n") - (name != "unsorted")
    assert np.all(np.diff(requests.arrival_s) >= 0)
    assert traffic.repairs == repairs


def test_bad_json_lines(tmp_path):
    good = json.dumps({"arrival_s": 0, "isl": 5, "osl": 5})
    for bad, message in (("{", "not JSON"), ("[1]", "no object"), ('{"arrival_s": 1, "isl": 5}', "no number")):
        path = write(tmp_path, f"{good}\n{bad}\n", "trace.jsonl")
        with pytest.raises(InputError, match=rf"row 2: .*{message}"):
            read(path)
        assert len(read(path, repair=True)) == 1


def test_files_that_are_no_traces(tmp_path):
    with pytest.raises(ConfigError, match="There is no trace"):
        workload.trace(tmp_path / "missing.csv")
    with pytest.raises(ConfigError, match="is empty"):
        workload.trace(write(tmp_path, "\n\n"))
    with pytest.raises(ConfigError, match="no request that can be used"):
        read(write(tmp_path, HEAD))
    with pytest.raises(ConfigError, match=r"columns a, b.*--columns"):
        workload.trace(write(tmp_path, "a,b\n1,2\n"))
    with pytest.raises(ConfigError, match=r"are \.csv"):
        workload.trace(write(tmp_path, "x", "trace.xlsx"))
    with pytest.raises(ConfigError, match="cannot be read as text"):
        workload.trace(_bytes(tmp_path, b"\xff\xfe\x00\x01"))
    cut = gzip.compress((HEAD + "".join(f"{i},{i * i % 97 + 1},1\n" for i in range(50_000))).encode())[:-9000]
    with pytest.raises(ConfigError, match="cannot be read"):
        read(_bytes(tmp_path, cut, "cut.csv.gz"))


def _bytes(tmp_path, content, name="trace.csv"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def test_wrong_units_are_noticed(tmp_path):
    epoch_ms = "".join(f"{1_700_000_000_000 + 250 * i},10,10\n" for i in range(30))
    with pytest.raises(InputError, match="thousands of years"):
        read(write(tmp_path, HEAD + epoch_ms))
    milliseconds = "".join(f"{250 * i},10,10\n" for i in range(30))
    with pytest.raises(InputError, match="look like milliseconds"):
        read(write(tmp_path, HEAD + milliseconds))
    assert read(write(tmp_path, HEAD + milliseconds), time_unit="ms").arrival_s[-1] == pytest.approx(7.25)
    assert read(write(tmp_path, HEAD + milliseconds), time_unit="s").arrival_s[-1] == pytest.approx(7250)
    lines = (json.dumps({"timestamp": i * 1e-3, "input_length": 5, "output_length": 5}) for i in range(30))
    with pytest.raises(InputError, match="hard to believe"):
        read(write(tmp_path, "\n".join(lines), "seconds.jsonl"))


def test_parquet_without_a_reader_says_what_to_install(tmp_path, monkeypatch):
    def missing(name, *_):
        raise ImportError(name)

    monkeypatch.setattr(workload._trace.importlib, "import_module", missing)
    with pytest.raises(ConfigError, match="pip install pyarrow"):
        workload.trace(_bytes(tmp_path, b"PAR1", "trace.parquet"))


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_parquet(tmp_path, monkeypatch, library):
    module = pytest.importorskip(library)
    path = tmp_path / "trace.parquet"
    columns = {"arrival_s": [0.0, 1.0], "isl": [5, 6], "osl": [7, 8]}
    if library == "pyarrow":
        pytest.importorskip("pyarrow.parquet").write_table(module.table(columns), path)
    else:
        module.DataFrame(columns).write_parquet(path)
        real = workload._trace.importlib.import_module
        monkeypatch.setattr(
            workload._trace.importlib, "import_module", lambda name: real(name) if name == "polars" else real("none")
        )
    assert read(path).osl.tolist() == [7, 8]


def test_long_traces_need_little_memory(tmp_path):
    """A file of 3 MB is read in chunks; nothing of its size stays in memory."""
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write(HEAD)
        for start in range(0, 150_000, 1000):
            file.write("".join(f"{0.1 * i:.1f},1000,100\n" for i in range(start, start + 1000)))
    traffic = workload.trace(path)
    next(traffic.chunks())
    tracemalloc.start()
    seen = sum(len(chunk) for chunk in traffic.chunks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen == 150_000
    assert peak < 50e6


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 10**6), st.integers(1, 10**5)), min_size=1, max_size=30))
@settings(max_examples=examples(30))
def test_what_is_written_is_read(tmp_path_factory, rows):
    rows.sort()
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    path.write_text("arrival_ms,isl,osl\n" + "".join(f"{t!r},{i},{o}\n" for t, i, o in rows))
    requests = read(path, columns={"arrival": "arrival_ms"}, time_unit="ms")
    expected = np.array([t for t, _, _ in rows]) * 1e-3
    np.testing.assert_allclose(requests.arrival_s, expected - expected[0], atol=1e-12)
    assert requests.isl.tolist() == [i for _, i, _ in rows]
