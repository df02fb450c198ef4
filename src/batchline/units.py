"""Quantities at the edge: text to SI base units and back. Inside, everything is bytes, seconds, FLOP/s and dollars.

GB is 1e9 bytes, GiB is 2**30; one is never taken for the other. Token counts follow the field's habit that an "8k"
context has 8,192 tokens (InferenceX, TensorRT-LLM tables: "1k/8k" is 1024/8192).
"""

from __future__ import annotations

import math
import re
from typing import Final

from batchline.errors import InputError, UnitError, closest
from batchline.strings import Sentence

__all__ = [
    "GIBI",
    "GIGA",
    "KIBI",
    "KILO",
    "MEBI",
    "MEGA",
    "TEBI",
    "TERA",
    "format_bytes",
    "format_count",
    "format_rate",
    "format_time",
    "format_tokens",
    "format_usd",
    "parse_bandwidth",
    "parse_batches",
    "parse_bytes",
    "parse_devices",
    "parse_duration",
    "parse_flops",
    "parse_number",
    "parse_price",
    "parse_rate",
    "parse_tokens",
]

KILO: Final = 1e3
MEGA: Final = 1e6
GIGA: Final = 1e9
TERA: Final = 1e12
PETA: Final = 1e15
KIBI: Final = 2**10
MEBI: Final = 2**20
GIBI: Final = 2**30
TEBI: Final = 2**40

_PREFIX = {"": 1.0, "k": KILO, "K": KILO, "M": MEGA, "G": GIGA, "T": TERA, "P": PETA}
_BYTES = {f"{prefix}B": scale for prefix, scale in _PREFIX.items()} | {
    "KiB": KIBI,
    "MiB": MEBI,
    "GiB": GIBI,
    "TiB": TEBI,
}
_FLOPS = {
    f"{prefix}{name}": _PREFIX[prefix] for prefix in ("", "M", "G", "T", "P") for name in ("FLOPS", "FLOP/s", "OPS")
}
_TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PER = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TOKENS = {"": 1.0, "k": KIBI, "K": KIBI, "M": MEBI}
# A comma stands between groups of three digits only: "12,5" is 12.5 to some and 125 to nobody.
_NUMBER = r"[+-]?(?:(?:\d{1,3}(?:[,_]\d{3})+|\d+)\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*((?![\d.,_]).*?|)\s*")


def _said(key: str, **fields: str) -> Sentence:
    return Sentence(f"error.{key}", **fields)


def _what(quantity: str) -> Sentence:
    return _said(f"what_{quantity}")


def _quantity(text: str, units: dict[str, float], what: str, example: str) -> float:
    match = _QUANTITY.fullmatch(str(text))
    if not match:
        raise UnitError(
            _said("no_quantity", given=repr(text), what=_what(what)), _said("write_quantity", example=example)
        )
    number, unit = match.groups()
    scale = units.get(unit)
    if scale is None:
        folded = {name.casefold(): size for name, size in units.items()}
        scale = folded.get(unit.casefold())
    if scale is None:
        near = closest(unit, units) or list(units)
        problem = _said("no_unit" if unit else "without_unit", given=repr(text), unit=repr(unit), what=_what(what))
        names = ", ".join(name for name in near if name)
        raise UnitError(problem, _said("units", names=names), _said("write_like", example=example))
    value = _plain(number) * scale
    if not math.isfinite(value):
        raise UnitError(_said("not_finite", given=repr(text)), _said("write_like", example=example))
    return value


def _plain(number: str) -> float:
    return float(number.replace(",", "").replace("_", ""))


def parse_number(text: str) -> float | None:
    """Read a number without a unit, as tables have it.

    Parameters
    ----------
    text : str
        Like "2048", "2,048" or "28.5".

    Returns
    -------
    float or None
        The number; None where it is none, or where a comma may be a decimal point.

    Examples
    --------
    >>> parse_number("2,048.5"), parse_number("12,5"), parse_number("nan")
    (2048.5, None, None)
    """
    return _plain(text.strip()) if re.fullmatch(_NUMBER, text.strip()) else None


def _positive(value: float, text: str, what: str) -> float:
    if value <= 0:
        raise InputError(_said("not_positive", what=_what(what), given=repr(text)))
    return value


def parse_bytes(text: str) -> float:
    """Read an amount of memory.

    Parameters
    ----------
    text : str
        Like "80GB" or "141GiB".

    Returns
    -------
    float
        Bytes [B].

    Raises
    ------
    UnitError
        The number or the unit cannot be read.
    InputError
        It is not more than 0.

    Examples
    --------
    >>> parse_bytes("80GB"), parse_bytes("1 GiB")
    (80000000000.0, 1073741824.0)
    """
    return _positive(_quantity(text, _BYTES, "size", "80GB or 141GiB"), text, "size")


def parse_bandwidth(text: str) -> float:
    """Read a bandwidth.

    Parameters
    ----------
    text : str
        Like "3.35TB/s" or "900GB/s".

    Returns
    -------
    float
        Bytes per second [B/s].

    Raises
    ------
    UnitError
        The number or the unit cannot be read.
    InputError
        It is not more than 0.

    Examples
    --------
    >>> parse_bandwidth("3.35TB/s")
    3350000000000.0
    """
    units = {f"{name}/s": scale for name, scale in _BYTES.items()}
    return _positive(_quantity(text, units, "bandwidth", "3.35TB/s"), text, "bandwidth")


def parse_flops(text: str) -> float:
    """Read a rate of arithmetic: the dense rate, never the sparse one.

    Parameters
    ----------
    text : str
        Like "989TFLOPS" or "1979 TOPS".

    Returns
    -------
    float
        Operations per second [FLOP/s].

    Raises
    ------
    UnitError
        The number or the unit cannot be read.
    InputError
        It is not more than 0.

    Examples
    --------
    >>> parse_flops("989TFLOPS")
    989000000000000.0
    """
    return _positive(_quantity(text, _FLOPS, "rate", "989TFLOPS"), text, "rate")


def parse_duration(text: str) -> float:
    """Read a duration.

    Parameters
    ----------
    text : str
        Like "40ms" or "2s".

    Returns
    -------
    float
        Seconds [s].

    Raises
    ------
    UnitError
        The number or the unit cannot be read.
    InputError
        It is not more than 0.

    Examples
    --------
    >>> parse_duration("40ms"), parse_duration("1h")
    (0.04, 3600.0)
    """
    return _positive(_quantity(text, _TIME, "duration", "40ms"), text, "duration")


def parse_tokens(text: str | int) -> int:
    """Read a number of tokens; 8k is 8,192.

    Parameters
    ----------
    text : str or int
        Like "8k", "8192" or 8192.

    Returns
    -------
    int
        Tokens [token].

    Raises
    ------
    UnitError
        The number or the unit cannot be read.
    InputError
        It is negative or not a whole number of tokens.

    Examples
    --------
    >>> parse_tokens("8k"), parse_tokens("2,335"), parse_tokens(0)
    (8192, 2335, 0)
    """
    value = _quantity(str(text), _TOKENS, "tokens", "8k (8,192)")
    if value < 0 or value != int(value):
        raise InputError(_said("whole_tokens", given=repr(text)))
    return int(value)


def parse_price(text: str | float) -> float:
    """Read a price per hour.

    Parameters
    ----------
    text : str or float
        Like "$2.5/h", "2.5" or 2.5; without a unit it is dollars per hour.

    Returns
    -------
    float
        Dollars per hour [USD/h].

    Raises
    ------
    UnitError
        The number or the unit cannot be read.
    InputError
        It is not more than 0.

    Examples
    --------
    >>> parse_price("$2.5/h"), parse_price(2.5), parse_price("$60/d")
    (2.5, 2.5, 2.5)
    """
    bare = str(text).strip().removeprefix("$")
    units = {
        "": 1.0,
        "/h": 1.0,
        "/hr": 1.0,
        "/hour": 1.0,
        "/d": 1 / 24,
        "/day": 1 / 24,
        "/mo": 12 / 8760,
        "/month": 12 / 8760,
    }
    return _positive(_quantity(bare, units, "price", "$2.5/h"), str(text), "price")


def parse_rate(text: str | float) -> float:
    """Read a request rate.

    Parameters
    ----------
    text : str or float
        Like "20/s", "1200/min" or "20 req/s"; without a unit it is requests per second.

    Returns
    -------
    float
        Requests per second [request/s].

    Raises
    ------
    UnitError
        The number or the unit cannot be read.
    InputError
        It is not more than 0.

    Examples
    --------
    >>> parse_rate("20/s"), parse_rate("1200/min")
    (20.0, 20.0)
    """
    units = {"": 1.0, "rps": 1.0, "qps": 1.0}
    units |= {f"{name}/{per}": 1 / size for per, size in _PER.items() for name in ("", "req", "requests")}
    return _positive(_quantity(str(text), units, "rate", "20/s"), str(text), "A rate")


def parse_devices(text: str) -> tuple[int, str]:
    """Read a number of accelerators and their name.

    Parameters
    ----------
    text : str
        Like "4xh100", "8 x mi300x" or "h200" (one).

    Returns
    -------
    tuple of int and str
        How many [device], and the name as given.

    Raises
    ------
    InputError
        The number is 0 or the name is missing.

    Examples
    --------
    >>> parse_devices("4xh100"), parse_devices("4090"), parse_devices("2 x rtx 4090")
    ((4, 'h100'), (1, '4090'), (2, 'rtx 4090'))
    """
    match = re.fullmatch(r"\s*(?:(\d+)\s*[xX×*]\s*)?(\S.*?)\s*", text)
    if not match:
        raise InputError(_said("no_device_name"), _said("write_devices"))
    count = int(match[1]) if match[1] else 1
    if count < 1:
        raise InputError(_said("no_devices", given=repr(text)), _said("write_devices_from_1"))
    return count, match[2]


def parse_batches(text: str) -> list[int]:
    """Read batch sizes: a range, or a list.

    Parameters
    ----------
    text : str
        "1..512" is every batch from 1 to 512, "1,2,4..64" doubles from the last step, "8" is one batch.

    Returns
    -------
    list of int
        Batch sizes in rising order [sequence].

    Raises
    ------
    InputError
        A batch below 1, a range that falls, or text that is no number.

    Examples
    --------
    >>> parse_batches("1..5"), parse_batches("1,2,4..32"), parse_batches("8")
    ([1, 2, 3, 4, 5], [1, 2, 4, 8, 16, 32], [8])
    """
    found: list[int] = []
    for part in str(text).split(","):
        match = re.fullmatch(r"\s*(-?\d+)\s*(?:\.\.\s*(-?\d+)\s*)?", part)
        if not match:
            raise InputError(_said("no_batch", given=repr(part.strip())), _said("write_batches"))
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if first < 1:
            raise InputError(_said("batch_from_1", given=f"{first}"), _said("write_batches"))
        if last < first:
            raise InputError(_said("falling_batches", given=repr(part.strip())), _said("write_rising"))
        if last > 10_000_000:
            raise InputError(_said("batch_too_large", given=f"{last:,}"), _said("largest_batch"))
        doubles = len(found) >= 2 and found[-1] == 2 * found[-2] and first == 2 * found[-1]
        while first <= last:
            found.append(first)
            first = 2 * first if doubles else first + 1
    return sorted(set(found))


def _scaled(value: float, steps: list[tuple[float, str]]) -> tuple[float, str]:
    for scale, unit in steps:
        if abs(value) >= scale:
            return value / scale, unit
    scale, unit = steps[-1]
    return value / scale, unit


def _digits(value: float, digits: int = 3) -> str:
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def format_bytes(value: float, *, binary: bool = False) -> str:
    """Write an amount of memory with three digits.

    Parameters
    ----------
    value : float
        Bytes [B].
    binary : bool
        GiB instead of GB.

    Returns
    -------
    str
        Like "80.0 GB".

    Examples
    --------
    >>> format_bytes(80e9), format_bytes(80e9, binary=True), format_bytes(1667)
    ('80.0 GB', '74.5 GiB', '1.67 kB')
    """
    steps: list[tuple[float, str]]
    if binary:
        steps = [(TEBI, "TiB"), (GIBI, "GiB"), (MEBI, "MiB"), (KIBI, "KiB"), (1, "B")]
    else:
        steps = [(TERA, "TB"), (GIGA, "GB"), (MEGA, "MB"), (KILO, "kB"), (1, "B")]
    number, unit = _scaled(value, steps)
    return f"{_digits(number)} {unit}"


def format_time(seconds: float) -> str:
    """Write a duration with three digits.

    Parameters
    ----------
    seconds : float
        Duration [s].

    Returns
    -------
    str
        Like "19.8 ms".

    Examples
    --------
    >>> format_time(0.0198), format_time(2.5), format_time(4e-6)
    ('19.8 ms', '2.50 s', '4.00 us')
    """
    number, unit = _scaled(seconds, [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")])
    return f"{_digits(number)} {unit}"


def format_usd(value: float) -> str:
    """Write an amount of money: cents, or three digits when it is below a dollar.

    Parameters
    ----------
    value : float
        Dollars [USD].

    Returns
    -------
    str
        Like "$0.33".

    Examples
    --------
    >>> format_usd(25.414), format_usd(0.3333), format_usd(0.0123), format_usd(87072)
    ('$25.41', '$0.33', '$0.0123', '$87,072')
    """
    if abs(value) >= 1000:
        return f"${value:,.0f}"
    if abs(value) >= 0.1 or value == 0:
        return f"${value:,.2f}"
    return f"${_digits(value)}"


def format_tokens(value: float) -> str:
    """Write a number of tokens in full.

    Parameters
    ----------
    value : float
        Tokens [token].

    Returns
    -------
    str
        Like "4,096".

    Examples
    --------
    >>> format_tokens(4096)
    '4,096'
    """
    return f"{value:,.0f}"


def format_count(value: float) -> str:
    """Write a large count (parameters) with three digits.

    Parameters
    ----------
    value : float
        A count [-].

    Returns
    -------
    str
        Like "70.6B".

    Examples
    --------
    >>> format_count(70553706496), format_count(671e9), format_count(124439808)
    ('70.6B', '671B', '124M')
    """
    number, unit = _scaled(value, [(TERA, "T"), (GIGA, "B"), (MEGA, "M"), (KILO, "k"), (1, "")])
    return f"{_digits(number)}{unit}"


def format_rate(value: float, unit: str = "tok/s") -> str:
    """Write a rate with at most three digits.

    Parameters
    ----------
    value : float
        How many a second [1/s].
    unit : str
        What is counted.

    Returns
    -------
    str
        Like "7.17k tok/s".

    Examples
    --------
    >>> format_rate(92.3), format_rate(7171)
    ('92.3 tok/s', '7.17k tok/s')
    """
    number, scale = _scaled(value, [(GIGA, "G"), (MEGA, "M"), (KILO, "k"), (1, "")])
    return f"{_digits(number)}{scale} {unit}"
