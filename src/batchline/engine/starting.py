"""What the documentation of each engine says of starting it: flags, accelerators, KV formats, replicas for prompts."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any

__all__ = ["disaggregates", "has_kv_format", "launch_table", "runs_on"]


@functools.cache
def launch_table() -> dict[str, dict[str, Any]]:
    """Read `data/launch_flags.toml`, whose head says what each key means.

    Returns
    -------
    dict
        Engine -> what its documentation says.

    Examples
    --------
    >>> launch_table()["vllm"]["program"]
    ['vllm', 'serve', '{model}']
    """
    return tomllib.loads(resources.files("batchline").joinpath("data/launch_flags.toml").read_text(encoding="utf-8"))


def disaggregates(engine: str) -> bool:
    """Whether an engine can compute prompts on some replicas and decode on others.

    Parameters
    ----------
    engine : str
        Name of the engine.

    Returns
    -------
    bool
        Not of an engine that the table does not have.

    Examples
    --------
    >>> disaggregates("vllm"), disaggregates("llama.cpp")
    (True, False)
    """
    return "disaggregation" in launch_table().get(engine, {})


def runs_on(engine: str, vendor: str) -> bool:
    """Whether an engine runs on the accelerators of a vendor.

    Parameters
    ----------
    engine : str
        Name of the engine.
    vendor : str
        As `Accelerator.vendor` has it.

    Returns
    -------
    bool
        True for an engine that the table does not have: nothing speaks against it.

    Examples
    --------
    >>> runs_on("vllm", "AMD"), runs_on("trtllm", "AMD")
    (True, False)
    """
    return engine not in launch_table() or vendor in launch_table()[engine]["vendors"]


def has_kv_format(engine: str, kv: str) -> bool:
    """Whether an engine can keep its KV cache in a format.

    Parameters
    ----------
    engine : str
        Name of the engine.
    kv : str
        Number format.

    Returns
    -------
    bool
        True for an engine that the table does not have: nothing speaks against it.

    Examples
    --------
    >>> has_kv_format("vllm", "fp8"), has_kv_format("vllm", "q8_0")
    (True, False)
    """
    return engine not in launch_table() or kv in launch_table()[engine]["kv"]
