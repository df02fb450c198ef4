"""What a server is started with, whatever its engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchline.errors import InputError, UnknownNameError
from batchline.strings import Sentence

__all__ = ["ROLES", "Settings"]

ROLES: Final = ("prefill", "decode")
"""Of replicas that only compute prompts, and of those that only decode."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a server is started with, by vLLM's names where it has one.

    Parameters
    ----------
    model : str
        Hugging Face id or path of the checkpoint (a GGUF file for llama.cpp).
    tp, pp, dp, ep : int
        Tensor, pipeline, attention-data and expert parallel degrees [-].
    weights : str
        Number format that the weights are served in.
    checkpoint_weights : str
        Number format of the checkpoint; if it differs, the engine has to round while loading.
    kv : str
        Number format of the KV cache.
    max_num_seqs : int or None
        Sequences decoded together in the whole deployment [sequence]; None leaves the engine's default.
    max_num_batched_tokens : int or None
        Token budget of a step [token]; None leaves the engine's default.
    isl, osl : int
        Longest input and output that were planned [token].
    max_model_len : int or None
        Longest request [token]; None takes isl + osl.
    gpu_memory_utilization : float
        Share of a device's memory for weights, activations and KV cache [-].
    prefix_hit_rate : float
        Share of prompt tokens expected in the prefix cache [-].
    why_max_num_seqs : str
        Why not more sequences: what the plan found.
    memory_bytes, weight_bytes_per_device : float or None
        Memory of a device and the weights on it; TensorRT-LLM's share of free memory is made of them [B].
    replicas : int
        Copies of the server [-].
    role : str
        "prefill" or "decode" where prompts have replicas of their own, else "".
    vendor : str
        Vendor of the accelerator.
    served_name : str or None
        What clients call the model; None leaves the engine's default.
    host : str
        Interface to listen on.
    port : int or None
        Port; None takes the engine's default.
    trust_remote_code : bool
        Whether the model's own code may run.
    """

    model: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    weights: str = "bf16"
    checkpoint_weights: str = "bf16"
    kv: str = "bf16"
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    isl: int = 0
    osl: int = 0
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.9
    prefix_hit_rate: float = 0.0
    why_max_num_seqs: str = Sentence("launch.most_together")
    memory_bytes: float | None = None
    weight_bytes_per_device: float | None = None
    replicas: int = 1
    role: str = ""
    vendor: str = "NVIDIA"
    served_name: str | None = None
    host: str = "0.0.0.0"  # noqa: S104  (a server for others listens for others)
    port: int | None = None
    trust_remote_code: bool = False

    @property
    def devices(self) -> int:
        """Accelerators of one replica [device]."""
        return self.tp * self.pp * self.dp

    @property
    def longest(self) -> int | None:
        """Longest request [token]; None leaves the engine's default."""
        return self.max_model_len or (self.isl + self.osl) or None

    @property
    def max_num_seqs_per_rank(self) -> int | None:
        """Sequences decoded together in one rank of attention-data parallelism [sequence]."""
        return None if self.max_num_seqs is None else max(1, self.max_num_seqs // self.dp)

    @property
    def rounded(self) -> bool:
        """Whether weights are served in another format than the checkpoint's."""
        return self.weights != self.checkpoint_weights

    @property
    def free_memory_fraction(self) -> float | None:
        """Share of what is free after loading that leaves the KV cache the plan counted on [-].

        Raises
        ------
        InputError
            The weights leave no memory.
        """
        memory, weights = self.memory_bytes, self.weight_bytes_per_device
        if memory is None or weights is None:
            return None
        kv = self.gpu_memory_utilization * memory - weights
        if kv <= 0:
            raise InputError(Sentence("error.no_kv_memory"), "", Sentence("error.smaller_or_more"))
        return round(kv / (memory - weights), 3)

    @property
    def task(self) -> Sentence:
        """What replicas of this role do."""
        return Sentence(f"launch.role_{self.role or 'none'}")

    def check(self) -> None:
        """Refuse what no engine can be started with.

        Raises
        ------
        InputError
            A degree below 1, a name that does not stay on its line, a share of memory that is none.
        UnknownNameError
            No such role.
        """
        for name in ("tp", "pp", "dp", "ep", "replicas"):
            if getattr(self, name) < 1:
                raise InputError(Sentence("error.launch_from_1", name=name, given=f"{getattr(self, name)}"))
        for name in ("model", "served_name", "host", "weights", "why_max_num_seqs"):
            if not str(getattr(self, name) or "").isprintable():  # a line break would end a comment
                raise InputError(Sentence("error.not_printable", name=name), "", Sentence("error.write_one_line"))
        if self.role not in ("", *ROLES):
            raise UnknownNameError("role", self.role, ROLES)
        if not 0 < self.gpu_memory_utilization <= 1:
            raise InputError(Sentence("error.memory_share", given=f"{self.gpu_memory_utilization}"))
