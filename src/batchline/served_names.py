"""Names as people and result files write them, by the names of the catalogues.

`meta-llama/Meta-Llama-3.1-70B-Instruct-AWQ-INT4`, `NVIDIA H100 80GB HBM3`, `TRT-LLM 0.17`, `FP8_block`: what a table of
measurements holds is no catalogue name, and means one thing nevertheless. A name is first looked up as it stands, then
in data/measured_names.csv, then without what does not change the shape: the owner, a date, "Instruct", the number
format. What remains unknown is refused with the closest names; nothing is guessed.
"""

from __future__ import annotations

import csv
import functools
import os
import re
from importlib import resources
from typing import TYPE_CHECKING

from batchline import accelerator, precision
from batchline.architecture import Architecture, catalogue
from batchline.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["accelerator_of", "engine_of", "format_of", "is_blank", "model_of"]

_BLANK = frozenset({"", "-", "nan", "none", "null", "n/a", "na", "unknown", "?", "auto", "default", "gguf default"})
_ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "sgl": "sglang",
    "tensorrt": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
    "trt": "tensorrt-llm",
    "llamacpp": "llama-cpp",
    "llamabatchedbench": "llama-cpp",
    "llamabench": "llama-cpp",
    "atom": "atom",
}
"""Letters that an engine's name holds, by the priors' name."""

_VERSION = re.compile(r"\d+\.\d+(\.\d+)?((rc|\.post)\d+)*")
_COUNT = re.compile(r"^(\d{1,3})\s*[x*]\s*(?=[a-z])|(?<=[\s\d])[x*]\s*(\d{1,3})$")
_MEMORY = re.compile(r"[-_ ]?\d+\s*gi?b\b|[-_ ]hbm\d\w*")
_MAKER = re.compile(r"\b(nvidia|amd|intel|instinct|tesla|geforce|hgx|dgx|apple|google)\b[-_ ]*")
_NOISE = re.compile(
    r"-(instruct|chat|hf|it|base|text|thinking|preview|latest|reasoning|turbo|kv|gguf|mlx|v[01](\.\d+)?|0\d{3}|2\d{3})"
    r"(?=-|$)"
)
_FAMILY = re.compile(
    r"^(llama|qwen|gemma|phi|mistral|mixtral|glm|deepseek|kimi|minimax|falcon|opt|bloom|yi|gptoss)(?=\d)"
)


def is_blank(text: str | None) -> bool:
    """Whether a cell says nothing.

    Parameters
    ----------
    text : str or None
        The cell.

    Returns
    -------
    bool
        True for an empty cell, "nan", "none", "unknown" and the like.

    Examples
    --------
    >>> is_blank(" NaN "), is_blank("fp8")
    (True, False)
    """
    return (text or "").strip().casefold() in _BLANK


@functools.cache
def _table() -> dict[str, list[tuple[str, str, str]]]:
    text = resources.files("batchline").joinpath("data/measured_names.csv").read_text(encoding="utf-8")
    table: dict[str, list[tuple[str, str, str]]] = {}
    for row in csv.DictReader(text.splitlines()):
        table.setdefault(row["kind"], []).append((row["given"], row["name"], row["weights"]))
    return table


def _listed(kind: str, given: str) -> tuple[str, str] | None:
    """Catalogue name and number format of a name that stands in the table; * stands for anything before."""
    folded = given.casefold().strip()
    for pattern, name, weights in _table().get(kind, ()):
        if folded == pattern or (pattern.startswith("*") and folded.endswith(pattern[1:])):
            return name, weights
    return None


def accelerator_of(text: str) -> tuple[str, int | None]:
    """Find the accelerator behind a name.

    Parameters
    ----------
    text : str
        As written: "H100-SXM5-80GB", "NVIDIA H200", "8xMI300X".

    Returns
    -------
    name, count : str, int or None
        Catalogue name, and the number of devices if the name begins or ends with it.

    Raises
    ------
    UnknownNameError
        There is no such accelerator.

    Examples
    --------
    >>> accelerator_of("8 x NVIDIA H100 80GB HBM3"), accelerator_of("AMD Instinct MI300X OAM")
    (('h100-sxm', 8), ('mi300x', None))
    """
    folded = text.casefold().strip()
    match = _COUNT.search(folded)
    count = int(match[1] or match[2]) if match else None
    bare = _COUNT.sub("", folded).strip()
    for name in _shorter(bare):
        listed = _listed("accelerator", name)
        try:
            return accelerator.resolve(listed[0] if listed else name), count
        except UnknownNameError:
            continue
    return accelerator.resolve(text), count


def _shorter(name: str) -> Iterator[str]:
    """A device's name, then with ever less of what sellers add."""
    yield name
    yield (name := re.sub(r"\s*\(.*?\)", "", name).strip())
    yield (name := _MAKER.sub("", name).strip(" -_"))
    yield re.sub(r"[-_ ](oam|sxm\d?)\b", "", name)
    yield (name := _MEMORY.sub("", name).strip(" -_"))
    yield re.sub(r"[-_ ](oam|sxm\d?)\b", "", name)


def engine_of(text: str) -> tuple[str, str]:
    """Find the engine behind a name.

    Parameters
    ----------
    text : str
        As written: "TRT-LLM", "vLLM 0.9.1", "dynamo-sglang".

    Returns
    -------
    name, version : str
        Name by the priors, and the version that stands with it or "". An engine that nobody knows keeps its name, and
        the priors answer with their centre; a blank one is "unknown".

    Examples
    --------
    >>> engine_of("vLLM v0.9.1"), engine_of("TensorRT-LLM (PyTorch)"), engine_of("LMDeploy")
    (('vllm', '0.9.1'), ('tensorrt-llm', ''), ('lmdeploy', ''))
    """
    folded = text.casefold().strip()
    if is_blank(folded):
        return "unknown", ""
    version = _VERSION.search(folded)
    letters = re.sub(r"[^a-z]", "", folded)
    for part, name in _ENGINES.items():
        if part in letters:
            return name, version.group() if version else ""
    return _VERSION.sub("", folded).strip(" -_:v") or folded, version.group() if version else ""


def format_of(text: str | None) -> str:
    """Find the number format behind a name.

    Parameters
    ----------
    text : str or None
        As written: "FP8_block", "w4a16", "int4-awq", "bfloat16".

    Returns
    -------
    str
        Catalogue name; "" if the cell says nothing.

    Raises
    ------
    UnknownNameError
        There is no such format.

    Examples
    --------
    >>> format_of("FP8_block"), format_of("int4-awq"), format_of("fp8 (w8a8)"), format_of("NaN")
    ('fp8-block', 'awq', 'fp8', '')
    """
    if is_blank(text):
        return ""
    folded = str(text).casefold().strip()
    for name in (folded, re.sub(r"\s*\(.*?\)", "", folded), re.sub(r"[_ ]", "-", folded)):
        listed = _listed("format", name)
        if listed:
            return listed[0]
        try:
            return precision.load(name).name
        except UnknownNameError:
            continue
    if precision.gguf_recipe(folded):  # q4_k_m and its like mix formats and keep their own name
        return folded
    return precision.load(folded).name


@functools.cache
def _words() -> re.Pattern[str]:
    """Number formats at any place of a model's name, the longest first."""
    names = sorted((given for given, _, _ in _table()["word"]), key=len, reverse=True)
    return re.compile(rf"-({'|'.join(map(re.escape, names))})(?=-|$)")


def _shape(text: str, *, plain: bool) -> tuple[str, str]:
    """A model's name without what does not change its shape, and the number format in it.

    `plain` leaves "Instruct", dates and the like out too.
    """
    name = re.sub(r"[\s_/]+", "-", text.casefold().strip().rsplit("/", 1)[-1])
    name = re.sub(r"(\.gguf|-gguf)$", "", name)
    found = [match[1] for match in _words().finditer(name)]
    name = re.sub(r"^(meta-|nvidia-|hf-)", "", _words().sub("", name))
    formats = {given: weights for given, weights, _ in _table()["word"]}
    letters = _FAMILY.sub(r"\1-", _NOISE.sub("", name) if plain else name).replace("-", "")
    return letters, formats[max(found, key=len)] if found else ""


@functools.cache
def _shapes(*, plain: bool) -> dict[tuple[str, str], str]:
    """Catalogue names by shape and number format: the shortest name of each wins."""
    table: dict[tuple[str, str], str] = {}
    for row in sorted(catalogue(), key=lambda row: len(row["name"])):
        for name in (row["name"], row["hf_id"], *row["aliases"]):
            table.setdefault(_shape(name, plain=plain), row["name"])
    return table


@functools.cache
def _load(name: str) -> Architecture:
    return Architecture.load(name)


def _width(weights: str) -> str:
    found = re.search(r"fp8|fp4|int4|int8|awq|gptq8?|[bf]+p?16", weights)
    same = {"awq": "int4", "gptq": "int4", "gptq8": "int8", "fp16": "bf16"}
    return same.get(found.group(), found.group()) if found else weights


def model_of(text: str, weights: str | None = None) -> tuple[Architecture, str | None]:
    """Find the model behind a name, in the checkpoint of the number format where the catalogue has one.

    Parameters
    ----------
    text : str
        As written: a catalogue name, a Hugging Face id, a folder's name.
    weights : str, optional
        Number format that stands beside it, as written.

    Returns
    -------
    architecture, weights : Architecture, str or None
        The model, and the format of its weights; None for the checkpoint's own.

    Raises
    ------
    UnknownNameError
        There is no such model or format; the closest names are shown.

    Examples
    --------
    >>> model_of("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")[0].name
    'llama-3.1-70b-fp8'
    >>> found, weights = model_of("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4")
    >>> found.name, weights
    ('llama-3.1-8b', 'awq')
    """
    listed = _listed("model", text)
    if listed and listed[1]:
        return _load(listed[0]), listed[1]
    architecture, own = (_load(listed[0]), "") if listed else _found(text)
    stated = "" if is_blank(weights) else str(weights).strip().casefold()
    wanted = format_of(stated) or own
    for name in (stated, _width(wanted) if wanted != "mxfp4" else wanted):
        if checkpoint := _listed("checkpoint", f"{architecture.name} {name}"):
            return _load(checkpoint[0]), None
    held = precision.load(architecture.weight_format).name
    if not wanted or _width(wanted) == _width(held):
        return architecture, None
    return architecture, wanted


def _found(text: str) -> tuple[Architecture, str]:
    """A model by its name as it stands, else by its shape; and the number format that the name adds to it."""
    name = text.strip()
    if name.startswith("/") and not os.path.exists(name):  # noqa: PTH110  (Path.exists raises for what can be no path)
        name = name.rsplit("/", 1)[-1]
    try:
        return _load(name), ""
    except UnknownNameError as error:
        unknown = error
    for plain in (False, True):
        shape, weights = _shape(text, plain=plain)
        shapes = _shapes(plain=plain)
        if found := shapes.get((shape, weights)):
            return _load(found), ""
        if found := shapes.get((shape, "")):
            return _load(found), weights
    raise unknown
