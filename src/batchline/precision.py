"""Number formats: bytes of a weight matrix with its scales, bytes of a KV-cache element, and the rate that computes.

A format has `bits` for each weight and shares a scale (and a zero point) among the weights of a block. The bytes of a
matrix follow exactly: a block that sticks out of the matrix still has its scale. Weight-only formats (int4, mxfp4,
every GGUF type) are widened before they multiply, so they compute at the bf16 rate; `math` says so.

Facts: data/number_formats.csv and data/kv_formats.csv, each row with its source.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import re
from dataclasses import dataclass
from pathlib import Path

from batchline.errors import InputError, UnknownNameError
from batchline.strings import Sentence

__all__ = [
    "GgufRecipe",
    "KvFormat",
    "NumberFormat",
    "gguf_recipe",
    "kv_bytes_per_element",
    "kv_names",
    "load",
    "load_kv",
    "names",
]

_GROUPED = re.compile(r"(?P<base>[a-z0-9_]+)-g(?P<group>\d+)")
_BLOCKED = re.compile(r"fp8-block-(?P<rows>\d+)x(?P<columns>\d+)")
_MAX_GROUP = 2**20


@dataclass(frozen=True)
class NumberFormat:
    """How a weight is stored.

    Parameters
    ----------
    name : str
        As the catalogue has it: "fp8-block".
    bits : float
        Of one weight, without scales [bit].
    block_rows, block_columns : int
        Weights that share a scale; 0 stands for all rows or columns of the matrix [weight].
    scale_bits, zero_bits : int
        Of the scale and the zero point of a block [bit].
    tensor_bits : int
        Stored once per matrix [bit].
    math : str
        The rate that multiplies: "bf16", "fp8", "int8", "fp4" or "fp32".
    scope : str
        What a quantiser converts: "linear" leaves embedding, head, router and norms in bf16; "all" leaves only norms,
        biases and routers.
    source, date : str
        Where the layout is written down.

    Examples
    --------
    >>> load("nvfp4").bits_per_weight
    4.5
    """

    name: str
    bits: float
    block_rows: int = 1
    block_columns: int = 1
    scale_bits: int = 0
    zero_bits: int = 0
    tensor_bits: int = 0
    math: str = "bf16"
    scope: str = "linear"
    source: str = ""
    date: str = ""

    @property
    def bits_per_weight(self) -> float:
        """Bits per weight of a large matrix, scales and zero points included [bit]."""
        if not self.block_rows or not self.block_columns:
            return self.bits
        return self.bits + (self.scale_bits + self.zero_bits) / (self.block_rows * self.block_columns)

    def matrix_bytes(self, rows: int, columns: int) -> float:
        """Bytes of one matrix with its scales.

        Parameters
        ----------
        rows, columns : int
            Outputs and inputs of the matrix [weight].

        Returns
        -------
        float
            Bytes [B].

        Examples
        --------
        >>> load("fp8-block").matrix_bytes(7168, 2048) - 7168 * 2048
        3584.0
        """
        blocks = _blocks(rows, self.block_rows) * _blocks(columns, self.block_columns)
        return (rows * columns * self.bits + blocks * (self.scale_bits + self.zero_bits) + self.tensor_bits) / 8


@dataclass(frozen=True)
class KvFormat:
    """How an element of the KV cache is stored.

    Parameters
    ----------
    name : str
        As the catalogue has it: "fp8".
    bits : float
        Of one element, without scales [bit].
    group : int
        Elements that share a scale; 0 means that scales are kept per layer and cost nothing [element].
    scale_bits : int
        Of a scale and its zero point [bit].
    latent_only : bool
        Only for multi-head latent attention, whose rotary part then stays in bf16.
    index_bits : float
        Of an element of the index keys of sparse attention, with its scale [bit].
    source, date : str
        Where the layout is written down.

    Examples
    --------
    >>> load_kv("fp8_ds_mla").latent_bytes(512, 64)
    656.0
    """

    name: str
    bits: float
    group: int = 0
    scale_bits: int = 0
    latent_only: bool = False
    index_bits: float = 16.0
    source: str = ""
    date: str = ""

    @property
    def bytes_per_element(self) -> float:
        """Bytes per element, scales included [B]."""
        return (self.bits + (self.scale_bits / self.group if self.group else 0.0)) / 8

    def latent_bytes(self, latent: int, rotary: int) -> float:
        """Bytes of one token of multi-head latent attention in one layer.

        Parameters
        ----------
        latent, rotary : int
            Elements of the compressed latent and of the shared rotary key [element].

        Returns
        -------
        float
            Bytes [B].

        Examples
        --------
        >>> load_kv("bf16").latent_bytes(512, 64)
        1152.0
        """
        if self.latent_only:
            return latent * self.bytes_per_element + rotary * 2
        return (latent + rotary) * self.bytes_per_element


@dataclass(frozen=True)
class GgufRecipe:
    """A GGUF file type that mixes formats, like "q4_k_m": most in one, some matrices of some layers in a wider one.

    Parameters
    ----------
    name : str
        As file names have it.
    default, experts, head : str
        Formats of most matrices, of routed experts, and of the head (of a tied embedding).
    value, down : str
        Wider formats of the value projection and of the last matrix of the feed-forward block.
    value_layers, down_layers : str
        Which layers have them: "all", "first4", "eighth" (the first eighth) or "more" (the first and last eighth, and
        every third between).
    source, date : str
        Where the rule is written down.

    Examples
    --------
    >>> recipe = gguf_recipe("q4_k_m")
    >>> recipe.mixed(recipe.value, recipe.value_layers, 32).bits_per_weight
    5.53125
    """

    name: str
    default: str
    experts: str
    head: str
    value: str
    value_layers: str
    down: str
    down_layers: str
    source: str = ""
    date: str = ""

    def mixed(self, wide: str, rule: str, layers: int) -> NumberFormat:
        """Mean format of a matrix that some layers keep wider.

        Parameters
        ----------
        wide : str
            Format in the layers that the rule chooses.
        rule : str
            "all", "first4", "eighth" or "more".
        layers : int
            Layers of the model [layer].

        Returns
        -------
        NumberFormat
            With the mean bits per weight.
        """
        eighth = layers // 8
        chosen = {
            "all": layers,
            "first4": min(4, layers),
            "eighth": eighth,
            "more": sum(
                index < eighth or index >= 7 * layers // 8 or (index - eighth) % 3 == 2 for index in range(layers)
            ),
        }[rule]
        share = chosen / layers
        bits = share * load(wide).bits_per_weight + (1 - share) * load(self.default).bits_per_weight
        return NumberFormat(self.name, bits, scope="all", source=self.source, date=self.date)


def load(name: str) -> NumberFormat:
    """Find a number format.

    Parameters
    ----------
    name : str
        Name or alias; a group size may follow ("int4-g32", "awq-g64", "fp8-block-64x64").

    Returns
    -------
    NumberFormat
        The format.

    Raises
    ------
    UnknownNameError
        If there is no such format.

    Examples
    --------
    >>> load("AWQ").bits_per_weight, load("int4-g32").bits_per_weight, load("q4_k").math
    (4.15625, 4.5, 'bf16')
    """
    key = str(name).strip().casefold()
    table = _formats()
    if key in table:
        return table[key]
    if (match := _GROUPED.fullmatch(key)) and match["base"] in table:
        base = table[match["base"]]
        group = int(match["group"])
        if group == base.block_columns:
            return base
        if base.block_rows == 1 and base.block_columns > 1 and 0 < group <= _MAX_GROUP:
            return dataclasses.replace(base, name=key, block_columns=group)
    if match := _BLOCKED.fullmatch(key):
        rows, columns = int(match["rows"]), int(match["columns"])
        if 0 < rows <= _MAX_GROUP and 0 < columns <= _MAX_GROUP:
            return dataclasses.replace(table["fp8-block"], name=key, block_rows=rows, block_columns=columns)
    raise UnknownNameError("number format", str(name), names(), Sentence("error.group_size"))


def names() -> list[str]:
    """Names of all number formats of weights.

    Returns
    -------
    list of str
        Without aliases.

    Examples
    --------
    >>> {"bf16", "fp8", "nvfp4", "q4_k"} <= set(names())
    True
    """
    return list(dict.fromkeys(number_format.name for number_format in _formats().values()))


def load_kv(name: str) -> KvFormat:
    """Find a KV-cache format.

    Parameters
    ----------
    name : str
        Name or alias, as engines call it.

    Returns
    -------
    KvFormat
        The format.

    Raises
    ------
    UnknownNameError
        If there is no such format.

    Examples
    --------
    >>> load_kv("fp8_e4m3").name, load_kv("nvfp4").bytes_per_element
    ('fp8', 0.5625)
    """
    key = str(name).strip().casefold()
    try:
        return _kv_formats()[key]
    except KeyError:
        raise UnknownNameError("KV-cache format", str(name), kv_names()) from None


def kv_names() -> list[str]:
    """Names of all KV-cache formats.

    Returns
    -------
    list of str
        Without aliases.

    Examples
    --------
    >>> kv_names()[:3]
    ['bf16', 'fp32', 'fp8']
    """
    return list(dict.fromkeys(kv_format.name for kv_format in _kv_formats().values()))


def kv_bytes_per_element(name: str) -> float:
    """Bytes of one element of the KV cache, scales included.

    Parameters
    ----------
    name : str
        KV-cache format.

    Returns
    -------
    float
        Bytes [B].

    Raises
    ------
    InputError
        If the format is a layout of latent attention, which has no bytes per element.

    Examples
    --------
    >>> kv_bytes_per_element("bf16"), kv_bytes_per_element("q8_0")
    (2.0, 1.0625)
    """
    kv_format = load_kv(name)
    if kv_format.latent_only:
        raise InputError(
            Sentence("error.mla_layout", name=name),
            Sentence("error.mla_layout_bytes"),
        )
    return kv_format.bytes_per_element


def gguf_recipe(name: str) -> GgufRecipe | None:
    """Find a GGUF file type that mixes formats.

    Parameters
    ----------
    name : str
        Like "Q4_K_M".

    Returns
    -------
    GgufRecipe or None
        None for a format that does not mix.

    Examples
    --------
    >>> gguf_recipe("Q5_K_M").default, gguf_recipe("q8_0")
    ('q5_k', None)
    """
    return _gguf_recipes().get(str(name).strip().casefold())


@functools.cache
def _gguf_recipes() -> dict[str, GgufRecipe]:
    return {row["name"]: GgufRecipe(**row) for row in _rows("gguf_recipes.csv")}


def _blocks(weights: int, block: int) -> int:
    return -(-weights // block) if block else 1


def _rows(file: str) -> list[dict[str, str]]:
    text = (Path(__file__).parent / "data" / file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))[1:]  # the first row holds the units


def _names_of(row: dict[str, str]) -> list[str]:
    return [row["name"], *(alias for alias in row["aliases"].split() if alias != "-")]


@functools.cache
def _formats() -> dict[str, NumberFormat]:
    table = {}
    for row in _rows("number_formats.csv"):
        number_format = NumberFormat(
            name=row["name"],
            bits=float(row["bits"]),
            block_rows=int(row["block_rows"]),
            block_columns=int(row["block_columns"]),
            scale_bits=int(row["scale_bits"]),
            zero_bits=int(row["zero_bits"]),
            tensor_bits=int(row["tensor_bits"]),
            math=row["math"],
            scope=row["scope"],
            source=row["source"],
            date=row["date"],
        )
        table.update(dict.fromkeys(_names_of(row), number_format))
    return table


@functools.cache
def _kv_formats() -> dict[str, KvFormat]:
    table = {}
    for row in _rows("kv_formats.csv"):
        kv_format = KvFormat(
            name=row["name"],
            bits=float(row["bits"]),
            group=int(row["group"]),
            scale_bits=int(row["scale_bits"]),
            latent_only=row["latent_only"] == "yes",
            index_bits=float(row["index_bits"]),
            source=row["source"],
            date=row["date"],
        )
        table.update(dict.fromkeys(_names_of(row), kv_format))
    return table
