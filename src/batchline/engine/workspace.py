"""Workspace of an engine: what it needs beside weights and cache, as equations of named numbers."""

from __future__ import annotations

__all__ = ["expert_workspace_bytes", "forward_bytes", "graph_batches", "sampler_bytes", "static_fraction"]


def forward_bytes(
    tokens: float,
    ffn_bytes: float,
    hidden_size: int,
    attention_size: float,
    *,
    hidden_copies: float = 2,
    attention_copies: float = 1,
    element_bytes: float = 2,
) -> float:
    r"""Largest memory of a forward pass: the feed-forward block of one layer, with what waits beside it.

    .. math:: A = T (f + e (c_h d + c_a q))

    Parameters
    ----------
    tokens : float
        Tokens of the largest step, T [token].
    ffn_bytes : float
        Bytes that the feed-forward block keeps for a token: gate and up, and their product, f [B/token].
    hidden_size : int
        Width of the residual stream, d [-].
    attention_size : float
        Width of the attention output on this device, q [-].
    hidden_copies, attention_copies : float
        How many of each are alive, c [-].
    element_bytes : float
        Bytes of an element of them [B].

    Returns
    -------
    float
        Bytes [B].

    Notes
    -----
    CodeLlama-7b under vLLM 0.19 with 8,192 tokens a step: 0.77 GiB measured, of which 15 MiB is constant.

    Examples
    --------
    >>> round(forward_bytes(8192, 6 * 11008, 4096, 4096, hidden_copies=3) / 2**30, 2)
    0.75
    """
    return tokens * (ffn_bytes + element_bytes * (hidden_copies * hidden_size + attention_copies * attention_size))


def sampler_bytes(
    max_num_seqs: float,
    vocab_size: int,
    tokens: float,
    hidden_size: int,
    *,
    logit_bytes: float,
    scratch_rows: float = 0,
) -> float:
    r"""Memory of sampling for the largest batch, while the hidden states of the largest step are still alive.

    .. math:: A = N V b + 4 r V + 2 d (T + N)

    Parameters
    ----------
    max_num_seqs : float
        Sequences that are sampled together, N [sequence].
    vocab_size : int
        Tokens of the vocabulary, V [token].
    tokens : float
        Tokens of the step before, T [token].
    hidden_size : int
        Width of the hidden states, d [-].
    logit_bytes : float
        Bytes for each logit, b: 38 with a sort, 14 without, 6 for logits and an fp32 copy [B].
    scratch_rows : float
        Rows of fp32 logits that a kernel keeps for itself, r [-].

    Returns
    -------
    float
        Bytes [B].

    Notes
    -----
    Gemma-2-27b under vLLM 0.19, 1,024 sequences, 8,192 tokens: 3.66 GiB measured, of which 40 MiB is constant.

    Examples
    --------
    >>> round(sampler_bytes(1024, 256000, 8192, 4608, logit_bytes=14, scratch_rows=132) / 2**30, 2)
    3.62
    """
    rows = max_num_seqs * vocab_size * logit_bytes + 4 * scratch_rows * vocab_size
    return rows + 2 * hidden_size * (tokens + max_num_seqs)


def expert_workspace_bytes(
    tokens: float,
    experts_per_token: int,
    expert_width: float,
    hidden_size: int,
    *,
    buffers: int = 2,
    element_bytes: float = 2,
) -> float:
    r"""Buffers of routed experts, each for every token and each of its experts; they stay allocated.

    .. math:: A = e T k (\max(2 i, d) + \max(i, d))

    Parameters
    ----------
    tokens : float
        Tokens of the largest step, T [token].
    experts_per_token : int
        Experts of a token, k [expert].
    expert_width : float
        Width of an expert on this device, i [-].
    hidden_size : int
        Width of the residual stream, d [-].
    buffers : int
        2 keeps gate and up apart from what the experts give back; 1 reuses it [-].
    element_bytes : float
        Bytes of an element, e [B].

    Returns
    -------
    float
        Bytes [B].

    Notes
    -----
    Qwen3-30B-A3B under vLLM 0.19: 2.68 GiB of activations measured where Qwen3-8B, of the same vocabulary, has 2.21.

    Examples
    --------
    >>> expert_workspace_bytes(8192, 8, 768, 2048) / 2**30
    0.5
    """
    widths = max(2 * expert_width, hidden_size) + (max(expert_width, hidden_size) if buffers > 1 else 0)
    return element_bytes * tokens * experts_per_token * widths


def graph_batches(max_num_seqs: int, limit: int = 512) -> tuple[int, int]:
    """Batch sizes for which vLLM captures CUDA graphs: in pieces for any batch, and whole for decoding.

    Sizes are 1, 2, 4, then steps of 8 to 256 and of 16 above, up to twice the sequences
    [vllm/config/vllm.py, cudagraph_capture_sizes].

    Parameters
    ----------
    max_num_seqs : int
        Sequences of a step [sequence].
    limit : int
        Largest size [sequence].

    Returns
    -------
    pieces, whole : int
        Graphs [-].

    Examples
    --------
    Start-up logs say PIECEWISE=51 (largest=512), FULL=35 (largest=256) for 256 sequences.

    >>> graph_batches(256), graph_batches(1024), graph_batches(8)
    ((51, 35), (51, 51), (5, 4))
    """
    top = min(2 * max_num_seqs, limit)
    sizes = [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, limit + 1, 16)) if size <= top]
    return len(sizes), sum(size <= max_num_seqs for size in sizes)


def static_fraction(memory_bytes: float, reserve_bytes: float) -> float:
    """Fraction that SGLang takes for weights and cache when it is not told: what the reserve leaves, to three digits.

    Parameters
    ----------
    memory_bytes : float
        Memory of a device [B].
    reserve_bytes : float
        What is left for activations, graphs and parallel ranks [B].

    Returns
    -------
    float
        Fraction [-].

    Examples
    --------
    >>> static_fraction(80 * 2**30, 10 * 2**30)
    0.875
    """
    return round((memory_bytes - reserve_bytes) / memory_bytes, 3)


# -- the account -----------------------------------------------------------------------------------------------------
