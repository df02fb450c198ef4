"""A real llama.cpp server on loopback with a random-weights model: speed does not depend on what the weights are.

As a script it serves until it is killed: python llamacpp_server.py MODEL.gguf PORT SLOTS CONTEXT. As a module it writes
the model (`write_model`) and runs the script (`serving`). Needs the wheels `xllamacpp` and `gguf`.

One thread, because two on a shared machine differ by more than what is measured; no prompt cache, because the second
burst would find the first one's prompts in it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPECIAL, _BYTES = 3, 256  # the first tokens of the vocabulary
_SYLLABLES = ("ba", "ko", "ri", "mu", "te", "lo", "sa", "ni", "pe", "du")


@dataclass(frozen=True)
class Size:
    """Shape of the model; about 30 MB of bf16 weights, so that a step is a few milliseconds and not lost in noise."""

    layers: int = 4
    width: int = 512
    heads: int = 8
    kv_heads: int = 4
    hidden: int = 1408
    vocabulary: int = 2048


def write_model(path: Path, size: Size = Size()) -> Path:
    """Write a Llama-style GGUF in bf16 with a tokenizer that needs no download: letters, bytes and made-up words."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("random")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_context_length(32768)
    writer.add_embedding_length(size.width)
    writer.add_block_count(size.layers)
    writer.add_feed_forward_length(size.hidden)
    writer.add_head_count(size.heads)
    writer.add_head_count_kv(size.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(size.width // size.heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(size.vocabulary)
    _tokenizer(writer, size.vocabulary)

    noise = np.random.default_rng(1).standard_normal(1 << 20, dtype=np.float32)

    def matrix(name: str, rows: int, columns: int, silent: int = 0) -> None:
        values = np.resize(noise, rows * columns).reshape(rows, columns) / np.sqrt(columns, dtype=np.float32)
        values[:silent] = 0
        packed = gguf.quants.quantize(values.astype(np.float32), gguf.GGMLQuantizationType.BF16)
        writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.BF16)

    def norm(name: str) -> None:
        writer.add_tensor(name, np.ones(size.width, np.float32))

    matrix("token_embd.weight", size.vocabulary, size.width)
    norm("output_norm.weight")
    # A byte may be part of a character, which the server holds back: how many tokens a chunk has would be chance.
    # With a logit of zero none is among the forty likeliest that llama.cpp samples from.
    matrix("output.weight", size.vocabulary, size.width, silent=_SPECIAL + _BYTES)
    kv_width = size.width // size.heads * size.kv_heads
    for layer in range(size.layers):
        norm(f"blk.{layer}.attn_norm.weight")
        norm(f"blk.{layer}.ffn_norm.weight")
        for name, rows, columns in (
            ("attn_q", size.width, size.width),
            ("attn_k", kv_width, size.width),
            ("attn_v", kv_width, size.width),
            ("attn_output", size.width, size.width),
            ("ffn_gate", size.hidden, size.width),
            ("ffn_up", size.hidden, size.width),
            ("ffn_down", size.width, size.hidden),
        ):
            matrix(f"blk.{layer}.{name}.weight", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tokenizer(writer, vocabulary: int) -> None:
    import gguf

    space = "\u2581"
    kinds = gguf.TokenType
    tokens = [("<unk>", kinds.UNKNOWN, 0.0), ("<s>", kinds.CONTROL, 0.0), ("</s>", kinds.CONTROL, 0.0)]
    tokens += [(f"<0x{byte:02X}>", kinds.BYTE, -1000.0) for byte in range(_BYTES)]
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    tokens += [(text, kinds.NORMAL, -10.0) for text in (space, *letters)]
    tokens += [(space + letter, kinds.NORMAL, -5.0) for letter in letters]
    words = (space + "".join(parts) for parts in itertools.product(_SYLLABLES, repeat=4))
    tokens += [(word, kinds.NORMAL, -1.0) for word in itertools.islice(words, vocabulary - len(tokens))]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text.encode() for text, _, _ in tokens])
    writer.add_token_types([kind for _, kind, _ in tokens])
    writer.add_token_scores([score for _, _, score in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


@dataclass(frozen=True)
class Served:
    """A server that runs: its address and its process."""

    url: str
    pid: int

    def cpu_s(self) -> float:
        """Processor time that the server has used [s]: on a busy machine it repeats where wall-clock time does not."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def held_up(self) -> tuple[float, float]:
        """Seconds that the thread which computes ran, and that it could have but others had the processors [s].

        It is the thread that ran longest. Those that write answers wait for the prober by nature, which no step sees.
        """
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        ran, waited = max(tuple(map(int, file.read_text(encoding="ascii").split()[:2])) for file in threads)
        return ran / 1e9, waited / 1e9


@contextlib.contextmanager
def serving(model: Path, slots: int, context: int = 2048, timeout_s: float = 60.0) -> Iterator[Served]:
    """Serve a model on a free port of loopback, and stop the server at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, str(model), str(port), str(slots), str(context)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(address, process, timeout_s)
        yield Served(address, process.pid)
    finally:
        process.kill()
        process.wait(timeout=10)


def _wait(address: str, process: subprocess.Popen[bytes], timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the llama.cpp server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"the llama.cpp server did not answer within {timeout_s:g} s")


def _serve(model: str, port: int, slots: int, context: int) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = context * slots
    params.n_batch = 512
    params.n_ubatch = 512
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.endpoint_metrics = True
    params.kv_unified = False
    params.cache_ram_mib = 0
    params.use_jinja = False
    server = xllamacpp.Server(params)
    while server is not None:
        time.sleep(3600)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
