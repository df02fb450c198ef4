"""Steady state of a serving engine: from a client's concurrency or a request rate to running batch, TPOT and TTFT.

    TPOT = step(B) / v + f (B_r - 1)+ / o  t_pf          while I decode, others' prompts are computed
    TTFT = t_0 + max(t_s, chunks) step(B) + t_pf [1 + 4 k (sqrt(B_r) - 1) + s (B_r - 1) / 2] + wait
    closed loop   B = C o TPOT / (o TPOT + TTFT)         Little: a request decodes for this share of its life
    open loop     B = X o TPOT                           X requests/s arrive, whatever the engine does
    B_max  = what the KV cache or max_num_seqs holds; the others wait (C / B_max - 1) o TPOT

Ahead of a prompt are others: k of them in the steady state of the clients, and all for the share s of requests with
which a benchmark's run begins.

In the open loop a request meets B - 1 + a others, a the squared variation of the gaps between arrivals: bursts keep it
company, and one of a Poisson stream (a = 1) finds what is there all the time. The n prompts that its own leaves behind
in the queue are computed before it goes on. Data-parallel ranks take requests in turn, which evens them out to a/DP:

    TPOT = step(B + a) / v + f (B_r + n) / o  t_pf
    TTFT = t_0 + max(t_s, chunks) v TPOT + t_pf + those that end with it + wait for the prompts before + for a free slot

B_r is the running batch of one attention-data-parallel rank, t_pf the time that one prompt adds, o the output length,
v the tokens that a step yields (1 without speculative decoding). One formula of a step serves all: batchline.step.

Every argument is one number or an array; arrays broadcast. Nothing here checks its input: callers at the edge do.

    load         what a request asks of an engine, and the times that follow at a batch
    loops        clients in a closed loop, requests in an open one
    steady       what is shown at a batch, and what stops more load
    static       a batch that starts together and runs to its end
    pools        prompts and decoding on instances of their own
    speculation  speculative decoding

References
----------
[1] J. Little, 1961: mean number in a system = rate x mean time in it.
[2] DistServe, arXiv 2401.09670, equation 1: queueing for prefill as M/D/1; `batchline.queueing` has the waits.
[3] Leviathan et al., arXiv 2211.17192: tokens per step of speculative decoding, with the bonus token.
[4] Splitwise, arXiv 2311.18677: prefill and decode on separate pools, KV cache moved between them.
"""

from batchline.serving.load import Load, Pace
from batchline.serving.loops import closed_loop, open_loop
from batchline.serving.pools import NETWORK_BANDWIDTH, disaggregated, kv_transfer_s, pool_ratio
from batchline.serving.speculation import Speculation, break_even_batch, tokens_per_step
from batchline.serving.static import static_batch
from batchline.serving.steady import Steady

__all__ = [
    "NETWORK_BANDWIDTH",
    "Load",
    "Pace",
    "Speculation",
    "Steady",
    "break_even_batch",
    "closed_loop",
    "disaggregated",
    "kv_transfer_s",
    "open_loop",
    "pool_ratio",
    "static_batch",
    "tokens_per_step",
]
