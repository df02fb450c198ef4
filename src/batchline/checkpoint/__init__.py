"""Checkpoints on disk: exact bytes by tensor, from the headers of safetensors and GGUF files. No weight is read.

    checkpoint = load("path/to/folder")        # *.safetensors beside a config.json
    checkpoint = load("model-q4_k_m.gguf")     # all parts of a split file
    checkpoint.bytes_by_type()

`fetch` does the same for a Hugging Face id over the network: the config files, and only the headers of the weights.
It needs `pip install batchline[hub]` and is never called unless asked for.

    tensors        Checkpoint: its tensors, and what each is used for
    safetensors    headers of safetensors files
    gguf           headers of GGUF files
    gguf_families  their metadata as a config.json
    hub            config files and headers over the network
"""

from __future__ import annotations

import os
from pathlib import Path

from batchline.checkpoint.gguf import load_gguf, read_gguf
from batchline.checkpoint.gguf_families import gguf_config
from batchline.checkpoint.hub import Fetched, fetch
from batchline.checkpoint.safetensors import read_safetensors, safetensors_files
from batchline.checkpoint.tensors import Checkpoint, Tensor
from batchline.errors import ConfigError
from batchline.strings import Sentence

__all__ = ["Checkpoint", "Fetched", "Tensor", "fetch", "gguf_config", "load", "read_gguf", "read_safetensors"]


def load(path: str | Path) -> Checkpoint:
    """Read the headers of a checkpoint.

    Parameters
    ----------
    path : str or path
        A .safetensors or .gguf file (of a split GGUF any part), or a folder of .safetensors files.

    Returns
    -------
    Checkpoint
        Its tensors.

    Raises
    ------
    ConfigError
        If there is no such file, or it is damaged.

    Examples
    --------
    >>> load("nowhere.gguf")
    Traceback (most recent call last):
        ...
    batchline.errors.ConfigError: nowhere.gguf cannot be read: No such file or directory.
    """
    path = Path(os.path.expanduser(path))  # noqa: PTH111  (leaves the home of nobody as it is, where Path's raises)
    if path.is_dir():
        files = safetensors_files(path)
        if not files:
            raise ConfigError(Sentence("error.no_safetensors", path=f"{path}"), hint=Sentence("error.give_weights"))
        return Checkpoint(str(path), tuple(tensor for file in files for tensor in read_safetensors(file)))
    if path.suffix == ".gguf":
        return load_gguf(path)
    return Checkpoint(str(path), tuple(read_safetensors(path)))
