"""Engines: what each makes of a device's memory by default, by version, and what its start-up log will therefore say.

Four ways to divide a device of C bytes between weights W, workspace A and the cache:

    fraction_of_total    cache = u C - W - A                    vLLM: the fraction u bounds all three
    static_fraction      cache = u (C - O) - W                  SGLang: u covers weights and cache, the rest is for A
    fraction_of_free     cache = u (C - O - W - A)              TensorRT-LLM: u of what is free after loading
    slots                cache = slots x context, if it fits    llama.cpp: asked for in tokens, not in bytes

O is what lives outside the framework's allocator (CUDA context, NCCL). The workspace is what an engine sees when it
runs itself once at full load. Two things compete for it and the larger decides: the forward pass of the largest prefill
step, and the sampler on the largest batch. The experts' buffers come on top, as they stay allocated.

    forward = tokens x (bytes of the feed-forward block + hidden copies)     sampler = sequences x vocabulary x bytes

The default of each knob and each coefficient stand in data/engines.toml, with version and source.

    defaults    facts by engine and version
    workspace   the equations of A
    budget      Account: a device divided
    knobs       what turning a knob would buy; the fewest devices
    starting    what its documentation says of starting it
"""

from batchline.engine.budget import Account, Request, account
from batchline.engine.defaults import Engine, Fact, names
from batchline.engine.knobs import Change, changes, smallest_count
from batchline.engine.starting import disaggregates, has_kv_format, launch_table, runs_on
from batchline.engine.workspace import (
    expert_workspace_bytes,
    forward_bytes,
    graph_batches,
    sampler_bytes,
    static_fraction,
)

__all__ = [
    "Account",
    "Change",
    "Engine",
    "Fact",
    "Request",
    "account",
    "changes",
    "disaggregates",
    "expert_workspace_bytes",
    "forward_bytes",
    "graph_batches",
    "has_kv_format",
    "launch_table",
    "names",
    "runs_on",
    "sampler_bytes",
    "smallest_count",
    "static_fraction",
]
