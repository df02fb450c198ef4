"""Measure decode steps of a Llama-style model with random weights in plain PyTorch, on whatever device is at hand.

    python examples/measure_torch.py --out torch.csv                       # the default grid
    python examples/measure_torch.py --layers 16 --width 2048 --batch 1,4,16,64 --context 512,4096 --weights fp8
    batchline measure torch.csv
    batchline calibrate torch.csv --model torch.json --on h200 --engine vllm    # or --on custom: three rates alone

It checks the physics on any accelerator: how a step grows with the batch and the context. Speed does not depend on
what the weights are. A step is one token for each sequence: attention over a KV cache that is filled to the context,
feed-forward (dense, or a mixture of experts with --experts), and the output head.

On a GPU the step is captured into a CUDA graph, so that what is measured is the device and not the host, and timed
with events. On a CPU it runs on one thread and is timed by processor time: with two threads on a shared machine wall
clock was seen to be wrong by a factor of 2 to 20, processor time of one thread repeats to about 1%.

Needs PyTorch only; nothing of Batchline. The CSV is the table that `batchline measure` reads (docs/measure.md); beside
it lies the model's config, as `transformers` writes it, for `--model`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Shape:
    """Shape of the model."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    experts: int
    used: int

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.width // self.heads

    @property
    def block_params(self) -> int:
        """Parameters of a layer that all tokens use."""
        attention = self.width * (2 * self.width + 2 * self.kv_heads * self.head)
        return attention + (self.width * self.experts if self.experts else self.expert_params)

    @property
    def expert_params(self) -> int:
        """Parameters of a dense feed-forward, or of one expert."""
        return 3 * self.width * self.hidden

    @property
    def read_params(self) -> int:
        """Parameters a step reads when the batch touches every expert: all but the input embedding."""
        return self.layers * (self.block_params + self.experts * self.expert_params) + self.vocabulary * self.width

    @property
    def active_params(self) -> int:
        """Parameters that multiply for one token, without the input embedding."""
        used = self.used if self.experts else 0
        return self.layers * (self.block_params + used * self.expert_params) + self.vocabulary * self.width

    def config(self, weights: str) -> dict[str, object]:
        """Describe the model as a Llama or a Mixtral, in the names of `transformers`."""
        kind = "Mixtral" if self.experts else "Llama"
        experts = {"num_local_experts": self.experts, "num_experts_per_tok": self.used, "sliding_window": None}
        return {
            "architectures": [f"{kind}ForCausalLM"],
            "model_type": kind.lower(),
            "hidden_size": self.width,
            "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": False,
            "hidden_act": "silu",
            "torch_dtype": "float32" if weights == "fp32" else "bfloat16",
            **(experts if self.experts else {}),
            **({"quantization_config": {"quant_method": "fp8"}} if weights == "fp8" else {}),
        }

    def kv_bytes_per_token(self, weights: str) -> int:
        """Bytes of the KV cache for one token: fp32 with fp32 weights, bf16 otherwise."""
        return 2 * self.layers * self.kv_heads * self.head * (4 if weights == "fp32" else 2)


class Linear:
    """A matrix in fp32, bf16, or fp8 with one scale where the device multiplies fp8."""

    def __init__(self, rows: int, columns: int, weights: str, device: torch.device) -> None:
        matrix = torch.randn(rows, columns, device=device, dtype=torch.float32) / math.sqrt(columns)
        self.scale = torch.ones((), device=device, dtype=torch.float32)
        self.matrix = matrix.to({"fp8": FP8, "bf16": torch.bfloat16, "fp32": torch.float32}[weights])

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply a batch of rows."""
        if self.matrix.dtype != FP8:
            return functional.linear(x, self.matrix)
        # fp8 matrices are multiplied in multiples of 16 rows.
        rows = x.shape[0]
        padded = functional.pad(x, (0, 0, 0, -rows % 16)).to(FP8)
        made = torch._scaled_mm(  # noqa: SLF001 - PyTorch has no public name for it
            padded, self.matrix.t(), scale_a=self.scale, scale_b=self.scale, out_dtype=torch.bfloat16
        )
        return made[:rows]


class Layer:
    """Attention with a KV cache, and a dense or mixed feed-forward."""

    def __init__(self, shape: Shape, weights: str, device: torch.device) -> None:
        self.shape = shape
        kv_width = shape.kv_heads * shape.head
        self.query = Linear(shape.width, shape.width, weights, device)
        self.key_value = Linear(2 * kv_width, shape.width, weights, device)
        self.out = Linear(shape.width, shape.width, weights, device)
        count = max(1, shape.experts)
        self.up = [Linear(2 * shape.hidden, shape.width, weights, device) for _ in range(count)]
        self.down = [Linear(shape.width, shape.hidden, weights, device) for _ in range(count)]
        self.router = Linear(shape.experts, shape.width, _activations(weights), device) if shape.experts else None

    def attend(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Write the new token's key and value at the end of the cache, and attend over all of it."""
        shape, batch = self.shape, x.shape[0]
        query = self.query(x).view(batch, shape.heads, 1, shape.head)
        key, value = self.key_value(x).view(batch, 2, shape.kv_heads, shape.head).unbind(1)
        keys[:, :, -1] = key
        values[:, :, -1] = value
        grouped = shape.heads != shape.kv_heads
        seen = functional.scaled_dot_product_attention(query, keys, values, enable_gqa=grouped)
        return self.out(seen.reshape(batch, shape.width))

    def feed(self, x: Tensor) -> Tensor:
        """Run the feed-forward, or the experts that the router chose."""
        if self.router is None:
            return self._expert(0, x)
        # Fixed shapes, so that it fits into a CUDA graph: every expert sees all rows and unused ones weigh nothing.
        # On a CPU only the rows that chose an expert are multiplied, as engines do.
        gate, chosen = self.router(x).topk(self.shape.used, dim=-1)
        gate = gate.softmax(-1)
        made = torch.zeros_like(x)
        for expert in range(self.shape.experts):
            picked = chosen == expert
            weight = (gate * picked).sum(-1, keepdim=True)
            if x.is_cuda:
                made += weight * self._expert(expert, x)
                continue
            rows = picked.any(-1).nonzero().squeeze(-1)
            if len(rows):
                made[rows] += weight[rows] * self._expert(expert, x[rows])
        return made

    def _expert(self, expert: int, x: Tensor) -> Tensor:
        gate, up = self.up[expert](x).chunk(2, -1)
        return self.down[expert](functional.silu(gate) * up)


class Model:
    """A stack of layers and an output head."""

    def __init__(self, shape: Shape, weights: str, device: torch.device) -> None:
        self.shape, self.device = shape, device
        self.kind = torch.float32 if weights == "fp32" else torch.bfloat16
        self.embedding = torch.randn(shape.vocabulary, shape.width, device=device, dtype=self.kind)
        self.layers = [Layer(shape, weights, device) for _ in range(shape.layers)]
        self.head = Linear(shape.vocabulary, shape.width, weights, device)

    def cache(self, batch: int, context: int) -> list[tuple[Tensor, Tensor]]:
        """Make a KV cache that is filled to a context."""
        size = (batch, self.shape.kv_heads, context, self.shape.head)
        return [
            (
                torch.randn(size, device=self.device, dtype=self.kind),
                torch.randn(size, device=self.device, dtype=self.kind),
            )
            for _ in self.layers
        ]

    def step(self, tokens: Tensor, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Decode one token of each sequence."""
        x = self.embedding[tokens]
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            x = x + layer.attend(_norm(x), keys, values)
            x = x + layer.feed(_norm(x))
        return self.head(_norm(x)).argmax(-1)


def _activations(weights: str) -> str:
    return "fp32" if weights == "fp32" else "bf16"


def _norm(x: Tensor) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],))


def steps_on_gpu(model: Model, batch: int, context: int, steps: int) -> list[float]:
    """Time steps of a CUDA graph with events [s]."""
    tokens = torch.randint(model.shape.vocabulary, (batch,), device=model.device)
    cache = model.cache(batch, context)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model.step(tokens, cache)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens.copy_(model.step(tokens, cache))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    for _ in range(5):
        graph.replay()
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) / 1e3 for before, after in itertools.pairwise(marks)]


def steps_on_cpu(model: Model, batch: int, context: int, steps: int) -> list[float]:
    """Time steps of one thread by its processor time [s]."""
    tokens = torch.randint(model.shape.vocabulary, (batch,))
    cache = model.cache(batch, context)
    found = []
    for number in range(steps + 2):
        began = time.process_time()
        tokens = model.step(tokens, cache)
        if number >= 2:
            found.append(time.process_time() - began)
    return found


def measure(model: Model, batch: int, context: int, steps: int) -> dict[str, object]:
    """Measure one point; a row of Batchline's table."""
    on_gpu = model.device.type == "cuda"
    found = (steps_on_gpu if on_gpu else steps_on_cpu)(model, batch, context, steps)
    step = statistics.median(found)
    spread = statistics.median(abs(one - step) for one in found) * 1.4826 / step
    clock = "CUDA graph, device time" if on_gpu else "one thread, processor time"
    return {
        "regime": "decode",
        "batch": batch,
        "context": context,
        "t_step_s": f"{step:.9g}",
        "samples": len(found),
        "spread": f"{spread:.4g}",
        "statistic": "median",
        "arrival": "burst",
        "engine": "pytorch",
        "engine_version": torch.__version__,
        "accelerator": torch.cuda.get_device_name() if on_gpu else "CPU, 1 thread",
        "count": 1,
        "tool": "examples/measure_torch.py",
        "label": f"batch {batch}, context {context}",
        "converted": f"t_step = median of {len(found)} steps ({clock})",
    }


def numbers(text: str) -> list[int]:
    """Read 1,2,4 as numbers; k is 1,024."""
    return [
        int(float(part.lower().removesuffix("k")) * (1024 if part.lower().endswith("k") else 1))
        for part in text.split(",")
    ]


def fits(shape: Shape, weights: str, batch: int, context: int, device: torch.device) -> bool:
    """Whether the KV cache of a point takes less than half of the device's free memory, or 2 GB of the host's."""
    free = torch.cuda.mem_get_info()[0] if device.type == "cuda" else 4e9
    return batch * context * shape.kv_bytes_per_token(weights) < free / 2


def main() -> int:
    """Measure the grid and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=2816, help="width of the feed-forward, or of one expert")
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--experts", type=int, default=0, help="experts of a mixture; 0 is a dense model")
    parser.add_argument("--used", type=int, default=2, help="experts that a token uses")
    parser.add_argument("--weights", choices=["bf16", "fp8", "fp32"], help="default: bf16 on a GPU, fp32 on a CPU")
    parser.add_argument("--batch", type=numbers, default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--context", type=numbers, default=[128, 1024, 4096])
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each point")
    parser.add_argument("--max-seconds", type=float, default=120.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default="torch.csv")
    options = parser.parse_args()
    device = torch.device(options.device)
    # A CPU without bf16 instructions multiplies bf16 so slowly that nothing but compute is seen.
    options.weights = options.weights or ("fp32" if device.type == "cpu" else "bf16")
    shape = Shape(
        options.layers,
        options.width,
        options.heads,
        options.kv_heads,
        options.hidden,
        options.vocabulary,
        options.experts,
        options.used,
    )
    if options.weights == "fp8" and (device.type != "cuda" or torch.cuda.get_device_capability() < (8, 9)):
        sys.exit("fp8 is multiplied by CUDA devices of compute capability 8.9 and later; use --weights bf16.")
    described = Path(options.out).with_suffix(".json")
    described.write_text(json.dumps(shape.config(options.weights), indent=1) + "\n", encoding="utf-8")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.inference_mode():
        count = run(shape, options, device)
    print(f"Points in {options.out}: {count}; the model: {described}", file=sys.stderr)
    return 0 if count else 1


def run(shape: Shape, options: argparse.Namespace, device: torch.device) -> int:
    """Measure point after point, cheapest first, until the time is over; gives how many."""
    model = Model(shape, options.weights, device)
    family = "MoE" if shape.experts else "dense"
    kind = f"{family} {shape.active_params / 1e6:.0f}M active of {shape.read_params / 1e6:.0f}M"
    held = shape.kv_bytes_per_token(options.weights)
    print(f"{kind}, {held:,} B of KV a token, {options.weights}, {device}", file=sys.stderr)
    grid = sorted(((b, c) for b in options.batch for c in options.context), key=lambda pair: pair[0] * (pair[1] + 512))
    end, count, writer = time.monotonic() + options.max_seconds, 0, None
    with open(options.out, "w", newline="", encoding="utf-8") as file:  # noqa: PTH123
        for batch, context in grid:
            if time.monotonic() > end:
                print(f"time was over before batch {batch}, context {context}", file=sys.stderr)
                break
            if not fits(shape, options.weights, batch, context, device):
                print(f"batch {batch}, context {context}: the KV cache is too large for this device", file=sys.stderr)
                continue
            row = {
                **measure(model, batch, context, options.steps),
                "model": kind,
                "weights": options.weights,
                "kv": _activations(options.weights),
            }
            if writer is None:
                writer = csv.DictWriter(file, fieldnames=list(row), lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            count += 1
            print(
                f"batch {batch:4d}  context {context:6d}  {float(str(row['t_step_s'])) * 1e3:9.3f} ms", file=sys.stderr
            )
    return count


if __name__ == "__main__":
    sys.exit(main())
