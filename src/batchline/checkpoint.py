"""Checkpoints on disk: exact bytes by tensor, from the headers of safetensors and GGUF files. No weight is read.

    checkpoint = load("path/to/folder")        # *.safetensors beside a config.json
    checkpoint = load("model-q4_k_m.gguf")     # all parts of a split file
    checkpoint.bytes_by_type()

`fetch` does the same for a Hugging Face id over the network: the config files, and only the headers of the weights.
It needs `pip install batchline[hub]` and is never called unless asked for.
"""

from __future__ import annotations

import csv
import functools
import json
import math
import os
import re
import struct
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from batchline.errors import ConfigError, MissingFactError, UnsupportedArchitectureError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Checkpoint", "Fetched", "Tensor", "fetch", "gguf_config", "load", "read_gguf", "read_safetensors"]

_HEADER_LIMIT = 100_000_000
"""The safetensors format caps its header at 100 MB [B]."""

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blk|block)\.(\d+)\.")
_TOWERS = re.compile(
    r"(?:^|\.)(?:v|vision\w*|visual|audio\w*|mm|mm_projector|multi_modal\w*|vpm|aligner|mtp|embed_vision|embed_audio)\."
)
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|token_embd|wte|word_embeddings|embeddings|embed)\.weight")
_LOOK_UP = re.compile(r"(?:^|\.)(?:wpe|position_embd|embed_tokens_per_layer|per_layer_token_embd)\.")
_EXPERT = re.compile(r"(?:^|\.)experts\.|_exps\.")


@dataclass(frozen=True)
class Tensor:
    """A tensor of a checkpoint.

    Parameters
    ----------
    name : str
        As the file has it.
    kind : str
        Type of its elements: "BF16", "F8_E4M3", "q4_k".
    shape : tuple of int
        Elements in each direction [-].
    size : int
        Bytes in the file [B].
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    size: int

    @property
    def elements(self) -> int:
        """Elements [-]; packed formats hold several weights in one."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Checkpoint:
    """All tensors of a checkpoint.

    Parameters
    ----------
    source : str
        The file or folder.
    tensors : tuple of Tensor
        In the order of the files.
    metadata : mapping
        Of a GGUF file; empty for safetensors.

    Examples
    --------
    >>> table = Tensor("model.embed_tokens.weight", "BF16", (8, 4), 64)
    >>> Checkpoint("here", (table, Tensor("lm_head.weight", "BF16", (8, 4), 64))).split(layers=1)
    {'embedding': 64, 'look_up': 0, 'routed': 0, 'shared': 64, 'left_out': 0}
    """

    source: str
    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors [B]."""
        return sum(tensor.size for tensor in self.tensors)

    def bytes_by_type(self) -> dict[str, int]:
        """Bytes by type of element.

        Returns
        -------
        dict
            Type to bytes [B], the largest first.

        Examples
        --------
        >>> Checkpoint("here", (Tensor("a", "F32", (2,), 8), Tensor("b", "BF16", (9,), 18))).bytes_by_type()
        {'BF16': 18, 'F32': 8}
        """
        sizes: dict[str, int] = {}
        for tensor in self.tensors:
            sizes[tensor.kind] = sizes.get(tensor.kind, 0) + tensor.size
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))

    def split(self, layers: int) -> dict[str, int]:
        """Bytes by use.

        Parameters
        ----------
        layers : int
            Layers of the model; later ones predict several tokens and are left out [layer].

        Returns
        -------
        dict
            Bytes of "embedding", "look_up" (other tables), "routed" experts, "shared" (all that every token reads),
            and "left_out" (towers of other modalities, multi-token prediction) [B].
        """
        sizes = dict.fromkeys(("embedding", "look_up", "routed", "shared", "left_out"), 0)
        for tensor in self.tensors:
            sizes[_use(tensor.name, layers)] += tensor.size
        return sizes


@dataclass(frozen=True)
class Fetched:
    """What was fetched for a Hugging Face id.

    Parameters
    ----------
    config : mapping
        The parsed config.json.
    hf_quant_config : mapping or None
        The parsed hf_quant_config.json, if the repository has one.
    checkpoint : Checkpoint or None
        Headers of its safetensors files, if it has any.
    """

    config: Mapping[str, Any]
    hf_quant_config: Mapping[str, Any] | None
    checkpoint: Checkpoint | None


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
        files = _safetensors_files(path)
        if not files:
            raise ConfigError(Sentence("error.no_safetensors", path=f"{path}"), hint=Sentence("error.give_weights"))
        return Checkpoint(str(path), tuple(tensor for file in files for tensor in read_safetensors(file)))
    if path.suffix == ".gguf":
        return _load_gguf(path)
    return Checkpoint(str(path), tuple(read_safetensors(path)))


def _safetensors_files(folder: Path) -> list[Path]:
    """Files of weights of a folder: those that the index names, or all; a copy in one file is not counted twice."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = sorted({str(name) for name in table.values()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(Sentence("error.no_index", index=f"{index}", reason=f"{error}")) from None
        return [folder / Path(name).name for name in names]
    found = sorted(folder.glob("*.safetensors"))
    return [path for path in found if path.name != "consolidated.safetensors" or len(found) == 1]


def read_safetensors(file: str | Path) -> list[Tensor]:
    """Read the header of one safetensors file.

    Parameters
    ----------
    file : str or path
        The file.

    Returns
    -------
    list of Tensor
        Its tensors.

    Raises
    ------
    ConfigError
        If it cannot be read or is damaged.
    """
    path = Path(file)
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(_take(stream, 8), "little")
            header = json.loads(_take(stream, min(length, _HEADER_LIMIT)))
        size = path.stat().st_size - 8 - length
        return [_safetensor(name, entry, size) for name, entry in header.items() if name != "__metadata__"]
    except OSError as error:
        raise ConfigError(Sentence("error.unreadable", path=f"{path}", reason=f"{error.strerror or error}")) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            Sentence("error.no_safetensors_file", path=f"{path}", reason=f"{error}"),
            hint=Sentence("error.download_again"),
        ) from None


def _safetensor(name: str, entry: Mapping[str, Any], limit: int) -> Tensor:
    start, end = (_whole(offset) for offset in entry["data_offsets"])
    if not 0 <= start <= end <= limit:
        raise ValueError(f"{name} lies at {start:,} to {end:,} of {limit:,} bytes")
    return Tensor(name, str(entry["dtype"]), tuple(_whole(size) for size in entry["shape"]), end - start)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} where a whole number belongs")
    return value


def _load_gguf(path: Path) -> Checkpoint:
    parts = [path]
    if match := _PART.search(path.name):
        stem, count = path.name[: match.start()], int(match[2])
        parts = [path.with_name(f"{stem}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    read = [read_gguf(part) for part in parts]
    return Checkpoint(str(path), tuple(tensor for _, tensors in read for tensor in tensors), read[0][0])


_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONG_ARRAY = 4096
"""Longer arrays (the tokens) are walked over; only their length is kept [-]."""


def read_gguf(file: str | Path) -> tuple[dict[str, Any], list[Tensor]]:
    """Read metadata and tensor table of one GGUF file, version 2 or 3.

    Parameters
    ----------
    file : str or path
        The file.

    Returns
    -------
    metadata : dict
        Keys and values; a long array is given as `range` of its length.
    tensors : list of Tensor
        Its tensors.

    Raises
    ------
    ConfigError
        If it cannot be read, is damaged, or has a type that is not known.
    """
    path = Path(file)
    try:
        with path.open("rb") as stream:
            reader = _Gguf(stream, path.stat().st_size)
            return reader.read()
    except OSError as error:
        raise ConfigError(Sentence("error.unreadable", path=f"{path}", reason=f"{error.strerror or error}")) from None
    except (ValueError, KeyError, struct.error, OverflowError, RecursionError, MemoryError) as error:
        raise ConfigError(
            Sentence("error.no_gguf", path=f"{path}", reason=f"{error}"), hint=Sentence("error.download_again")
        ) from None


class _Gguf:
    """Walks over the header of a GGUF file."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self.stream = stream
        self.size = size

    def read(self) -> tuple[dict[str, Any], list[Tensor]]:
        if _take(self.stream, 4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version, tensors, pairs = self.number("I"), self.number("Q"), self.number("Q")
        if version not in {2, 3}:
            raise ValueError(f"version {version}; known are 2 and 3, little-endian")
        if tensors * 24 > self.size or pairs * 12 > self.size:
            raise ValueError(f"{tensors:,} tensors and {pairs:,} keys in {self.size:,} bytes")
        metadata = {}
        for _ in range(pairs):
            key = self.text()
            metadata[key] = self.value(self.number("I"))
        return metadata, [self.tensor() for _ in range(tensors)]

    def number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", _take(self.stream, struct.calcsize(f"<{kind}")))[0]

    def text(self) -> str:
        length = self.number("Q")
        if length > self.size:
            raise ValueError(f"a text of {length:,} bytes in {self.size:,}")
        return _take(self.stream, length).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array()
        return self.number(_SCALARS[kind])

    def array(self) -> Any:
        kind, count = self.number("I"), self.number("Q")
        if count > self.size:
            raise ValueError(f"an array of {count:,} in {self.size:,} bytes")
        if count <= _LONG_ARRAY:
            return [self.value(kind) for _ in range(count)]
        if kind in _SCALARS:
            _take(self.stream, count * struct.calcsize(f"<{_SCALARS[kind]}"))
        else:
            for _ in range(count):
                self.value(kind)
        return range(count)

    def tensor(self) -> Tensor:
        name, directions = self.text(), self.number("I")
        if directions > 8:
            raise ValueError(f"{name} has {directions} directions")
        shape = tuple(self.number("Q") for _ in range(directions))
        kind = self.number("I")
        self.number("Q")  # where the data begins
        if kind not in _ggml_types():
            raise ValueError(f"{name} has the unknown type {kind}; known: data/ggml_types.csv")
        type_name, block, size = _ggml_types()[kind]
        elements = math.prod(shape)
        if elements % block or elements // block * size > self.size:
            raise ValueError(f"{name} of {elements:,} weights does not fit blocks of {block} or the file")
        return Tensor(name, type_name, shape, elements // block * size)


def _take(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise ValueError("it ends too early")
    return data


@functools.cache
def _ggml_types() -> dict[int, tuple[str, int, int]]:
    text = (Path(__file__).parent / "data" / "ggml_types.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))[1:]  # the first row holds the units
    return {int(row["id"]): (row["name"], int(row["block"]), int(row["bytes"])) for row in rows}


def gguf_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """Write the metadata of a GGUF file as the config.json of its family.

    Parameters
    ----------
    checkpoint : Checkpoint
        Of a GGUF file.

    Returns
    -------
    dict
        Keys as config.json has them; `data/gguf_families.toml` is the dictionary.

    Raises
    ------
    UnsupportedArchitectureError
        If the architecture is not in the dictionary.
    ConfigError
        If a size is missing.
    """
    metadata, families = checkpoint.metadata, _gguf_families()
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or name not in families or name == "common":
        known = ", ".join(key for key in families if key != "common")
        raise UnsupportedArchitectureError(
            Sentence("error.gguf_architecture", name=repr(name)), Sentence("error.known", names=known)
        )
    table = families[name]
    keys = {**families["common"], **table["keys"]}
    config = {key: metadata.get(f"{name}.{gguf_key}") for key, gguf_key in keys.items()}
    for key, value in config.items():
        if isinstance(value, list) and len(set(value)) == 1:
            config[key] = value[0]  # one value for each layer, all alike
    config = {key: value for key, value in config.items() if value is not None}
    moe = "moe_family" in table and config.get("num_local_experts")
    config["model_type"] = table["moe_family"] if moe else table["family"]
    if "moe_family" in table and not moe:
        config = {key: value for key, value in config.items() if "expert" not in key}
    shapes = {tensor.name: tensor.shape for tensor in checkpoint.tensors}
    if len(embedding := shapes.get("token_embd.weight", ())) != 2:
        raise ConfigError(Sentence("error.gguf_embedding", source=checkpoint.source))
    config["vocab_size"] = embedding[1]
    config["tie_word_embeddings"] = "output.weight" not in shapes
    return _finished(config, table, name)


def _finished(config: dict[str, Any], table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Keys that no single metadata key holds."""
    config |= table.get("constants", {})
    layers = config.get("num_hidden_layers")
    if name == "gpt-oss" and isinstance(layers, int) and 0 < layers < 4096:
        config["layer_types"] = (["sliding_attention", "full_attention"] * layers)[:layers]
        del config["sliding_window_pattern"]
    if name == "deepseek2":
        length, rope = config.pop("key_length", None), config.get("qk_rope_head_dim")
        config.pop("num_key_value_heads", None)
        config.setdefault("q_lora_rank", None)
        if not isinstance(length, int) or not isinstance(rope, int):
            raise ConfigError(Sentence("error.gguf_mla"), hint=Sentence("error.convert_anew"))
        config["qk_nope_head_dim"] = length - rope
    return config


@functools.cache
def _gguf_families() -> dict[str, Any]:
    text = (Path(__file__).parent / "data" / "gguf_families.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _use(name: str, layers: int) -> str:
    match = _LAYER.search(name)
    if _TOWERS.search(name) or (match and int(match[1]) >= layers):
        return "left_out"
    if _LOOK_UP.search(name):
        return "look_up"
    if _EMBEDDING.search(name) and not match:
        return "embedding"
    if _EXPERT.search(name) and "shared_expert" not in name:
        return "routed"
    return "shared"


def fetch(hf_id: str) -> Fetched:
    """Fetch the config files of a Hugging Face id and the headers of its safetensors files.

    Parameters
    ----------
    hf_id : str
        Like "Qwen/Qwen3-32B".

    Returns
    -------
    Fetched
        Config files and tensors.

    Raises
    ------
    MissingFactError
        If batchline[hub] is not installed.
    ConfigError
        If the repository cannot be reached or has no config.json.
    """
    try:
        import huggingface_hub  # noqa: PLC0415  # an extra, and 0.3 s
    except ImportError:
        raise MissingFactError(
            Sentence("error.needs_hub", hf_id=hf_id),
            hint=Sentence("error.install_hub"),
        ) from None
    config = _fetch_json(huggingface_hub, hf_id, "config.json")
    if config is None:
        raise ConfigError(Sentence("error.hub_no_config", hf_id=hf_id), hint=Sentence("error.give_config"))
    quant = _fetch_json(huggingface_hub, hf_id, "hf_quant_config.json")
    return Fetched(config, quant, _fetch_headers(huggingface_hub, hf_id))


def _fetch_json(hub: Any, hf_id: str, name: str) -> Mapping[str, Any] | None:
    import httpx  # noqa: PLC0415  # only a fetch needs it

    try:
        data = json.loads(Path(hub.hf_hub_download(hf_id, name)).read_text(encoding="utf-8"))
    except (hub.errors.HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        missing = isinstance(error, hub.errors.EntryNotFoundError)
        if missing and not isinstance(error, hub.errors.LocalEntryNotFoundError):
            return None
        raise ConfigError(
            Sentence("error.hub_not_fetched", hf_id=hf_id, name=name, reason=_first_line(error)),
            hint=Sentence("error.check_hub"),
        ) from None
    if not isinstance(data, dict):
        raise ConfigError(Sentence("error.hub_no_object", hf_id=hf_id, name=name))
    return data


def _fetch_headers(hub: Any, hf_id: str) -> Checkpoint | None:
    import httpx  # noqa: PLC0415  # only a fetch needs it

    try:
        files: Iterable[Any] = hub.get_safetensors_metadata(hf_id).files_metadata.values()
    except hub.errors.NotASafetensorsRepoError:
        return None
    except (hub.errors.HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        raise ConfigError(Sentence("error.hub_no_headers", hf_id=hf_id, reason=_first_line(error))) from None
    tensors = [
        Tensor(name, entry.dtype, tuple(entry.shape), entry.data_offsets[1] - entry.data_offsets[0])
        for file in files
        for name, entry in file.tensors.items()
    ]
    return Checkpoint(hf_id, tuple(tensors))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
