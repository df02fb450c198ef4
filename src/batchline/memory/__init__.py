"""What one device holds of a model and of its sequences under tensor, pipeline, expert and data parallelism.

Weights first: tensor parallelism divides what has heads or widths, copies norms, routers, latent projections and
the KV heads that it cannot divide any further, and pads the vocabulary; pipeline parallelism deals the layers out and
leaves the embedding to the first stage and the head to the last; experts are spread over all devices of a stage. The
fullest stage decides what fits.

Then sequences: the cache is kept in blocks, one table per kind of layer. `kv_layout` is that table and `KvPool` is how
many blocks of it a device has room for, which gives the tokens and the concurrency that engines print at start-up.
Engines differ in two habits, both switches here: what they do with layers that see a window only (`windows`), and
whether layers of different kinds share one pool of equal blocks (`shared_pool`).

    division    into how many parts a layout divides heads, vocabulary, layers, experts
    weights     what a device holds of the weights
    blocks      tables of the cache, and the pool that they draw from
    sequences   those tables for a model; bytes of a sequence
"""

from batchline.memory.blocks import KvGroup, KvLayout, KvPool
from batchline.memory.division import expert_copies, kv_shards, pad_vocabulary, pipeline_layers
from batchline.memory.sequences import Windows, kv_bytes_per_device, kv_layout, kv_read_bytes_per_device
from batchline.memory.weights import stage_weight_bytes, weight_bytes_per_device

__all__ = [
    "KvGroup",
    "KvLayout",
    "KvPool",
    "Windows",
    "expert_copies",
    "kv_bytes_per_device",
    "kv_layout",
    "kv_read_bytes_per_device",
    "kv_shards",
    "pad_vocabulary",
    "pipeline_layers",
    "stage_weight_bytes",
    "weight_bytes_per_device",
]
