"""Accelerators: what a device reads, multiplies and holds, from a dated catalogue, a TOML file or numbers by hand.

The catalogue is `data/accelerators.csv`: a row per accelerator, the unit in the name of each column, a source, a date
and the dispute, if there is one. A figure that nobody trustworthy states is blank; to ask for it is an error.

Five traps, each kept out by a rule of the file and a test:

    sparsity       rates are dense; the doubled rates of data sheets are never stored
    accumulation   rates of GeForce cards are those with fp32 accumulation, which inference engines use
    GB and GiB     `memory` is as marketed, in 1e9 bytes; `memory_visible` is what a process sees, in bytes
    direction      links are counted one way: NVLink's "900 GB/s" is 450
    peers          `peer_bandwidth` is what reaches any one other device: 64 of an MI300X's 448 GB/s
"""

from __future__ import annotations

import csv
import functools
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batchline.errors import ConfigError, InputError, MissingFactError, UnitError, UnknownNameError
from batchline.strings import Sentence, together
from batchline.units import GIBI, GIGA, MEBI, TERA, parse_bandwidth, parse_bytes, parse_flops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FORMATS", "Accelerator", "catalogue", "names", "resolve"]

FORMATS: Final = ("bf16", "fp8", "int8", "fp4")
"""Number formats that have a rate of their own; fp16 multiplies at the rate of bf16."""

_SYNONYMS = {"fp16": "bf16", "f16": "bf16"}
_DATA = Path(__file__).parent / "data" / "accelerators.csv"
_VENDORS = {"nvidia", "amd", "apple", "google", "intel", "aws", "huawei", "geforce", "instinct"}
_MAX_RATIO = {"fp8": 4.4, "int8": 4.4, "fp4": 8.8}
"""No chip is faster than this many times its own bf16 rate (Rubin comes closest: 4.375 and 8.75); a larger ratio mixes
a sparse rate with a dense one."""
_SMALLEST = 1e6
"""Below a megabyte, MB/s or MFLOP/s a number was meant in another unit."""


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One device: memory, bandwidth, dense rates and links.

    Parameters
    ----------
    name : str
        Name in the catalogue, like "h100-sxm".
    memory : float
        Memory as marketed, GB of 1e9 bytes [B].
    bandwidth : float
        Memory bandwidth by data sheet [B/s].
    flops : mapping of str to float
        Dense rates by number format (bf16, fp8, int8, fp4); only those that are known [FLOP/s].
    label : str
        Name in full, for people; the name if not given.
    vendor : str
        Who makes it.
    generation : str
        Architecture, like "hopper" or "cdna3": coefficients are fitted by it.
    memory_visible : float or None
        Memory that a process sees, if known [B].
    link_bandwidth : float or None
        Scale-up links of one device together, one direction [B/s].
    peer_bandwidth : float or None
        Link bandwidth to any one other device, one direction [B/s].
    scale_up_domain : int or None
        Devices that the scale-up links join [device].
    tdp : float or None
        Thermal design power [W].
    aliases : tuple of str
        Other names that people type.
    source : str
        Where the figures come from.
    date : str
        Day on which the source was read, ISO.
    note : str
        What is disputed or special.

    Examples
    --------
    >>> h100 = Accelerator.load("h100")
    >>> h100.label, h100.generation, h100.bandwidth, h100.flops["bf16"]
    ('H100 SXM 80 GB', 'hopper', 3350000000000.0, 989000000000000.0)
    """

    name: str
    memory: float
    bandwidth: float
    flops: Mapping[str, float] = field(default_factory=dict, hash=False)
    label: str = ""
    vendor: str = ""
    generation: str = ""
    memory_visible: float | None = None
    link_bandwidth: float | None = None
    peer_bandwidth: float | None = None
    scale_up_domain: int | None = None
    tdp: float | None = None
    aliases: tuple[str, ...] = ()
    source: str = ""
    date: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        """Refuse numbers that no device has."""
        if not self.label:
            object.__setattr__(self, "label", self.name)
        unknown = [key for key in self.flops if key not in FORMATS]
        if unknown:
            raise UnknownNameError("number format", unknown[0], FORMATS, Sentence("error.rates_of_formats"))
        for what, value, unit in self._quantities():
            if not math.isfinite(value) or value < _SMALLEST:
                key = "rate" if what in self.flops else what
                raise InputError(
                    Sentence(
                        "error.too_small",
                        what=Sentence(f"error.the_{key}", format=what),
                        label=self.label,
                        given=f"{value:g}",
                        unit=unit,
                    ),
                    Sentence("error.counted_in", unit=unit, smallest=f"{_SMALLEST:,.0f}"),
                    Sentence("error.write_the_unit"),
                )
        for what, small in (("scale_up_domain", self.scale_up_domain), ("tdp", self.tdp)):
            if small is not None and not (math.isfinite(small) and small > 0):
                raise InputError(
                    Sentence("error.what_is", what=what, label=self.label, given=f"{small:g}"),
                    Sentence("error.must_be_above_0"),
                )
        self._refuse_mixed_sparsity()

    def _quantities(self) -> list[tuple[str, float, str]]:
        """Name, value and unit of each, a rate by its format: what is said of one is read only when it is refused."""
        found = [("memory", self.memory, "B"), ("bandwidth", self.bandwidth, "B/s")]
        optional = [
            ("visible_memory", self.memory_visible, "B"),
            ("link_bandwidth", self.link_bandwidth, "B/s"),
            ("peer_bandwidth", self.peer_bandwidth, "B/s"),
        ]
        found += [(what, value, unit) for what, value, unit in optional if value is not None]
        return found + [(key, value, "FLOP/s") for key, value in self.flops.items()]

    def _refuse_mixed_sparsity(self) -> None:
        bf16 = self.flops.get("bf16")
        for key, most in _MAX_RATIO.items():
            rate = self.flops.get(key)
            if bf16 and rate and rate > most * bf16:
                raise InputError(
                    Sentence("error.mixed_sparsity", label=self.label, format=key, times=f"{rate / bf16:.1f}"),
                    Sentence("error.sparse_datasheets", most=f"{most:g}"),
                    Sentence("error.give_dense_rates"),
                )

    def flops_for(self, number_format: str) -> float:
        """Dense rate of a number format.

        Parameters
        ----------
        number_format : str
            The format that is multiplied: bf16 (or fp16), fp8, int8 or fp4.

        Returns
        -------
        float
            Operations per second of one device [FLOP/s].

        Raises
        ------
        UnknownNameError
            There is no such format.
        MissingFactError
            This device does not multiply the format, or nobody states how fast.

        Examples
        --------
        >>> Accelerator.load("h100").flops_for("fp8")
        1979000000000000.0
        """
        key = _SYNONYMS.get(number_format, number_format)
        if key not in FORMATS:
            raise UnknownNameError(
                "number format", number_format, [*FORMATS, *_SYNONYMS], Sentence("error.these_have_rates")
            )
        rate = self.flops.get(key)
        if rate is None:
            known = ", ".join(self.flops) or "none"
            raise MissingFactError(
                Sentence("error.no_flops", format=key, accelerator=self.label),
                Sentence("error.known_rates", names=known),
                Sentence("error.give_flops"),
            )
        return rate

    def usable_memory(self) -> float:
        """Memory to plan with: what a process sees if that is known, else what is marketed.

        NVIDIA's "80 GB" is nearer to 80 GiB: an H100 shows 85.0e9 bytes to CUDA. Where the visible bytes are not known,
        counting GB as 1e9 bytes is too low by up to 7%, never too high, so a plan made with it still fits.

        Returns
        -------
        float
            Bytes of one device [B].

        Examples
        --------
        >>> Accelerator.load("l40s").usable_memory() == 46068 * 2**20
        True
        >>> Accelerator.load("h100-pcie").usable_memory()
        80000000000.0
        """
        return self.memory if self.memory_visible is None else self.memory_visible

    def override(
        self,
        *,
        bandwidth: float | None = None,
        flops: float | Mapping[str, float] | None = None,
        memory: float | None = None,
    ) -> Accelerator:
        """Same device with figures of your own.

        Parameters
        ----------
        bandwidth : float or None
            Memory bandwidth [B/s].
        flops : float or mapping or None
            Dense rate: one number for whichever format is multiplied, or rates by format [FLOP/s].
        memory : float or None
            Memory to plan with [B].

        Returns
        -------
        Accelerator
            What is None stays; the source says what was given.

        Raises
        ------
        InputError
            A number that no device has, or a rate that is this device's sparse one.

        Examples
        --------
        >>> Accelerator.load("h100-nvl").override(flops=835e12).flops_for("bf16")
        835000000000000.0
        """
        given: dict[str, Any] = {}
        if bandwidth is not None:
            given["bandwidth"] = bandwidth
        if flops is not None:
            given["flops"] = self._rates(flops)
        if memory is not None:
            given["memory"] = memory
        if not given:
            return self
        _refuse_sparse(self, flops)
        what = " and ".join(given)
        if memory is not None:
            given["memory_visible"] = None
        return replace(self, **given, source=f"{self.source}; {what} given by hand" if self.source else "given by hand")

    def _rates(self, flops: float | Mapping[str, float]) -> dict[str, float]:
        if isinstance(flops, (int, float)):
            return dict.fromkeys(FORMATS, float(flops))
        return dict(self.flops) | dict(flops)

    @classmethod
    def custom(
        cls,
        *,
        bandwidth: float,
        memory: float,
        flops: float | Mapping[str, float] | None = None,
        name: str = "custom",
    ) -> Accelerator:
        """Make a device from numbers.

        Parameters
        ----------
        bandwidth : float
            Memory bandwidth [B/s].
        memory : float
            Memory [B].
        flops : float or mapping or None
            Dense rate: one number for whichever format is multiplied, or rates by format; None if unknown [FLOP/s].
        name : str
            What to call it.

        Returns
        -------
        Accelerator
            With what was given and nothing else.

        Raises
        ------
        InputError
            A number that no device has, or rates of which one is sparse.

        Examples
        --------
        >>> Accelerator.custom(bandwidth=460.8e9, memory=768e9, flops=20e12).flops_for("bf16")
        20000000000000.0
        """
        rates = {} if flops is None else _plain_rates(flops)
        made = cls(name=name, memory=memory, bandwidth=bandwidth, flops=rates, source="given by hand")
        for twin in _twins(made):
            _refuse_sparse(twin, flops)
        return made

    @classmethod
    def load(cls, name: str | Path) -> Accelerator:
        """Find a device in the catalogue, or read a TOML file.

        Parameters
        ----------
        name : str or Path
            A name or alias, whatever its case, spaces and dashes ("h100", "RTX 4090", "tpu-v5e"), or the path of a TOML
            file (it ends with .toml).

        Returns
        -------
        Accelerator
            Entries of the catalogue are read once and shared.

        Raises
        ------
        UnknownNameError
            No entry has that name; the closest ones are shown.
        ConfigError
            The file cannot be read, is not TOML, or holds a key or a value that does not belong there.

        Examples
        --------
        >>> Accelerator.load("RTX 4090").name, Accelerator.load("v5e").name
        ('rtx-4090', 'tpu-v5e')
        """
        if isinstance(name, Path) or str(name).casefold().endswith(".toml"):
            return _read_toml(Path(name))
        return _by_name()[resolve(name)]


def names() -> list[str]:
    """Names of all entries, in the order of the catalogue.

    Returns
    -------
    list of str
        Names that `Accelerator.load` takes; aliases are in the entries.

    Examples
    --------
    >>> len(names()) > 50, "mi300x" in names()
    (True, True)
    """
    return list(_by_name())


def catalogue() -> tuple[Accelerator, ...]:
    """All entries, in the order of the file.

    Returns
    -------
    tuple of Accelerator
        Read once and shared.

    Examples
    --------
    >>> sorted({entry.generation for entry in catalogue() if entry.vendor == "AMD"})
    ['cdna2', 'cdna3', 'cdna4', 'cdna5']
    """
    return tuple(_by_name().values())


def resolve(name: str) -> str:
    """Name in the catalogue of what was typed.

    Parameters
    ----------
    name : str
        A name, alias or label; case, spaces, dashes and the vendor's name in front do not matter.

    Returns
    -------
    str
        The entry's name.

    Raises
    ------
    UnknownNameError
        No entry has that name.

    Examples
    --------
    >>> resolve("H100-SXM5-80GB"), resolve("NVIDIA GeForce RTX 4090"), resolve("a100")
    ('h100-sxm', 'rtx-4090', 'a100-80gb')
    """
    try:
        return _index()[_key(name)]
    except KeyError:
        entries = catalogue()
        known = [entry.name for entry in entries] + [alias for entry in entries for alias in entry.aliases]
        raise UnknownNameError("accelerator", name, known, Sentence("error.see_accelerators")) from None


def _key(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", name.casefold())
    while len(words) > 1 and words[0] in _VENDORS:
        words.pop(0)
    return "".join(words)


@functools.cache
def _by_name() -> dict[str, Accelerator]:
    with _DATA.open(encoding="utf-8", newline="") as file:
        return {row["name"]: _from_row(row) for row in csv.DictReader(file)}


@functools.cache
def _index() -> dict[str, str]:
    index: dict[str, str] = {}
    for entry in catalogue():
        for name in (entry.name, entry.label, *entry.aliases):
            index.setdefault(_key(name), entry.name)
    return index


def _from_row(row: dict[str, str]) -> Accelerator:
    def value(column: str, scale: float) -> float | None:
        return float(row[column]) * scale if row[column] else None

    rates = {key: value(f"{key}_{'tops' if key == 'int8' else 'tflops'}", TERA) for key in FORMATS}
    return Accelerator(
        name=row["name"],
        label=row["label"],
        vendor=row["vendor"],
        generation=row["generation"],
        memory=float(row["memory_gb"]) * GIGA,
        memory_visible=value("memory_visible_mib", MEBI),
        bandwidth=float(row["bandwidth_tbs"]) * TERA,
        flops={key: rate for key, rate in rates.items() if rate is not None},
        link_bandwidth=value("link_gbs", GIGA),
        peer_bandwidth=value("peer_gbs", GIGA),
        scale_up_domain=int(row["scale_up_domain"]) if row["scale_up_domain"] else None,
        tdp=value("tdp_w", 1.0),
        aliases=tuple(row["aliases"].split(";")) if row["aliases"] else (),
        source=row["source"],
        date=row["date"],
        note=row["note"],
    )


def _plain_rates(flops: float | Mapping[str, float]) -> dict[str, float]:
    return dict.fromkeys(FORMATS, float(flops)) if isinstance(flops, (int, float)) else dict(flops)


def _twins(made: Accelerator) -> list[Accelerator]:
    """Entries of the catalogue that a device made by hand may be, by its bandwidth and memory."""

    def alike(entry: Accelerator) -> bool:
        sizes = (entry.memory, entry.memory / GIGA * GIBI, entry.usable_memory())
        same_memory = any(math.isclose(made.memory, size, rel_tol=0.005) for size in sizes)
        return same_memory and math.isclose(made.bandwidth, entry.bandwidth, rel_tol=0.005)

    return [entry for entry in catalogue() if alike(entry)]


def _refuse_sparse(entry: Accelerator, flops: float | Mapping[str, float] | None) -> None:
    """Refuse a rate that is twice the dense one of the same device: the data sheet's figure with sparsity."""
    if flops is None or not entry.flops:
        return
    if isinstance(flops, (int, float)):
        fastest = max(entry.flops, key=lambda key: entry.flops[key])
        pairs = [(fastest, float(flops))]
    else:
        pairs = [(key, rate) for key, rate in flops.items() if key in entry.flops]
    for key, rate in pairs:
        dense = entry.flops[key]
        if math.isclose(rate, 2 * dense, rel_tol=0.01):
            raise InputError(
                Sentence("error.sparse_rate", given=f"{rate / TERA:,.0f}", format=key, accelerator=entry.label),
                Sentence("error.dense_rate", dense=f"{dense / TERA:,.0f}"),
                Sentence("error.give_dense", dense=f"{dense / TERA:g}"),
            )


def _power(text: str) -> float:
    """Read watts: "700W", "1.4kW" or a number."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(k?)\s*w?\s*", text, flags=re.IGNORECASE)
    if not match:
        raise UnitError(Sentence("error.no_power", given=repr(text)), Sentence("error.write_power"))
    return float(match[1]) * (1000.0 if match[2] else 1.0)


def _read_toml(path: Path) -> Accelerator:
    import tomllib  # noqa: PLC0415 - only a file of one's own needs it

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(Sentence("error.unreadable", path=f"{path}", reason=f"{error.strerror or error}")) from error
    except UnicodeDecodeError as error:
        raise ConfigError(Sentence("error.no_utf8", path=f"{path}")) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            Sentence("error.no_toml", path=f"{path}", reason=f"{error}"),
            Sentence("error.toml_text"),
            Sentence("error.toml_line"),
        ) from error
    return _from_file(content, path)


def _from_file(content: dict[str, Any], path: Path) -> Accelerator:
    from pydantic import ValidationError  # noqa: PLC0415 - slow to import, only a file of one's own needs it

    try:
        checked = _schema().model_validate(content)
    except ValidationError as error:
        raise ConfigError(
            Sentence("error.of_option", option=f"{path}", problem=together(map(_complaint, error.errors()))),
            Sentence("error.keys", names=", ".join(_schema().model_fields)),
            Sentence("error.see_accelerator_example"),
        ) from error
    values = checked.model_dump()
    values["flops"] = {key: rate for key, rate in values["flops"].items() if rate is not None}
    values["name"] = values["name"] or path.stem
    values["source"] = values["source"] or path.name
    made = Accelerator(**values)
    for twin in _twins(made):
        _refuse_sparse(twin, made.flops)
    return made


def _complaint(problem: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return Sentence("error.key_missing", name=key)
    if problem["type"] == "extra_forbidden":
        return Sentence("error.no_key", name=key)
    cause = problem.get("ctx", {}).get("error")
    words = f"{problem['msg']}." if cause is None else cause.args[0]
    return Sentence("error.of_option", option=key, problem=words)


@functools.cache
def _schema() -> Any:
    """Build the pydantic model of an accelerator file; every quantity is text with a unit, or a number in SI."""
    from typing import Annotated  # noqa: PLC0415

    from pydantic import BaseModel, BeforeValidator, ConfigDict, create_model  # noqa: PLC0415

    def quantity(read: Callable[[str], float]) -> Any:
        def convert(value: Any) -> float:
            if isinstance(value, bool) or not isinstance(value, (str, int, float)):
                raise ValueError(Sentence("error.no_quantity_here", given=repr(value)))  # noqa: TRY004 - pydantic collects ValueError
            try:
                return read(value) if isinstance(value, str) else float(value)
            except (UnitError, InputError) as error:
                raise ValueError(together(filter(None, (error.problem, error.allowed, error.hint)))) from error

        return Annotated[float, BeforeValidator(convert)]

    strict = ConfigDict(extra="forbid")
    rate, size, speed, power = map(quantity, (parse_flops, parse_bytes, parse_bandwidth, _power))
    rates: dict[str, Any] = dict.fromkeys(FORMATS, (rate | None, None))
    flops = create_model("flops", __config__=strict, **rates)
    fields: dict[str, Any] = {
        "name": (str, ""),
        "label": (str, ""),
        "vendor": (str, ""),
        "generation": (str, ""),
        "memory": (size, ...),
        "memory_visible": (size | None, None),
        "bandwidth": (speed, ...),
        "flops": (flops, flops()),
        "link_bandwidth": (speed | None, None),
        "peer_bandwidth": (speed | None, None),
        "scale_up_domain": (int | None, None),
        "tdp": (power | None, None),
        "source": (str, ""),
        "date": (str, ""),
        "note": (str, ""),
    }
    made: type[BaseModel] = create_model("accelerator", __config__=strict, **fields)
    return made
