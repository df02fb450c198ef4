"""Which number format a checkpoint keeps each matrix in: `quantization_config` and `hf_quant_config.json`.

Producers write the same thing in many ways. Here each becomes a `Recipe`: the format of the linear layers, the modules
left out, and the modules named with a format of their own. Module names are compared without the wrappers in front of
"layers" ("model.", "language_model.", "backbone."), because producers and engines disagree on them.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from batchline import precision
from batchline.errors import BatchlineError, ConfigError
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from batchline.architecture._records import Weight

__all__ = ["Recipe", "plain_format", "read_recipe"]

_FRONTS = ("model.", "language_model.", "text_model.", "backbone.", "transformer.")
_LAYER = re.compile(r"((?:.*\.)?(?:layers|h)\.)(\d+)((?:\..*|\*.*)?)")
_TELLS_LAYERS = re.compile(r"\d|\\d|\\w|\[|(?<!\\)\.(?![*+])")
"""A regular expression without a digit, a class, a set or a single sign treats all layers alike."""

_WRAPPERS = re.compile(r"^(?:(?:model|language_model|text_model|backbone|transformer)\.)+(?=.)")
_PLAIN = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
_MODELOPT = {
    "FP8": "fp8-static",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8-channel",
    "FP8_PB_WO": "fp8-block",
    "MXFP8": "mxfp8",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4-w4a16",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4-fp8",
    "W4A16_AWQ": "int4",
    "W4A8_AWQ": "int4",
    "INT8_SQ": "int8",
    "W8A8_SQ_PER_CHANNEL": "int8",
    "W8A16": "w8a16",
    "W4A16": "int4",
}


@dataclass(frozen=True)
class Recipe:
    """Number formats of a checkpoint.

    Parameters
    ----------
    default : str
        Format of the linear layers.
    plain : str
        Format of everything else.
    excluded : tuple of str
        Modules left in the plain format: names, globs, or regular expressions after "re:".
    named : mapping
        Modules with a format of their own, written alike.
    experts_only : bool
        Whether only routed experts are converted.
    kv : str or None
        Format of the KV cache that the checkpoint asks for.
    """

    default: str = "bf16"
    plain: str = "bf16"
    excluded: tuple[str, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    experts_only: bool = False
    kv: str | None = None

    def formats(self, weight: Weight, layers: Iterable[int]) -> dict[str, int]:
        """Formats in which the checkpoint keeps a weight, each with the number of these layers that use it."""
        layers = list(layers)
        if not weight.linear or not (self.named or self.default != self.plain):
            return {self.plain: len(layers)}
        counts: dict[str, int] = {}
        rest = set(layers)
        for number_format, matcher in self._named:
            hit = matcher.layers(weight.module, rest)
            if hit:
                counts[number_format] = counts.get(number_format, 0) + len(hit)
                rest -= hit
        if rest and self.default != self.plain:
            outside = weight.role in {"embedding", "layer_embedding", "head", "position"}
            if not outside and not (self.experts_only and weight.role != "expert"):
                rest_excluded = self._excluded.layers(weight.module, rest)
                if converted := len(rest) - len(rest_excluded):
                    counts[self.default] = counts.get(self.default, 0) + converted
                rest = rest_excluded
        if rest:
            counts[self.plain] = counts.get(self.plain, 0) + len(rest)
        return counts

    @functools.cached_property
    def _excluded(self) -> _Modules:
        return _Modules(self.excluded)

    @functools.cached_property
    def _named(self) -> list[tuple[str, _Modules]]:
        by_format: dict[str, list[str]] = {}
        for module, number_format in self.named.items():
            by_format.setdefault(number_format, []).append(module)
        return [(number_format, _Modules(modules)) for number_format, modules in by_format.items()]


class _Modules:
    """A list of modules: names, globs and regular expressions, most of them once for each layer.

    Names that differ only in the layer become one pattern with a set of layers, so that a list of thousands is
    compared with a kind of weight in a few steps. A name stands for the modules below it too, and may leave out the
    beginning: "gate" is any module of that name, "layers.3.self_attn" all of that attention.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self.names: dict[tuple[str, ...], set[int]] = {}
        self.globs: dict[str, set[int]] = {}
        self.fronts: dict[str, set[str]] = {}
        self.everywhere: set[tuple[str, ...]] = set()
        self.regexes: list[tuple[re.Pattern[str], bool]] = []
        for pattern in patterns:
            if pattern.startswith("re:"):
                self.regexes.append((_compiled(pattern[3:]), bool(_TELLS_LAYERS.search(pattern))))
            else:
                self._add(_bare(pattern))
        self._globs = [(_glob(pattern), layers) for pattern, layers in self.globs.items()]
        self._fronts = [(_glob(pattern), fronts) for pattern, fronts in self.fronts.items()]

    def _add(self, pattern: str) -> None:
        match = _LAYER.fullmatch(pattern)
        is_glob = any(sign in pattern for sign in "*?[")
        if match is None:
            if is_glob:
                tells = bool(re.search(r"[\d\[?]", pattern))
                self.regexes.append((_glob(pattern.replace("{}", "*")), tells))
            else:
                self.everywhere.add(tuple(pattern.split(".")))
            return
        front, number, rest = match.groups()
        starred = f"{front}{{}}{rest}"
        if is_glob and rest.startswith("*"):  # "layers.1*" is also layers 10 to 19
            self.fronts.setdefault(starred, set()).add(number)
        elif is_glob:
            self.globs.setdefault(starred, set()).add(int(number))
        else:
            self.names.setdefault(tuple(starred.split(".")), set()).add(int(number))

    def layers(self, module: str, layers: set[int]) -> set[int]:
        """Of these layers, those whose module (with `{}` for the layer) is on the list."""
        if not layers:
            return set()
        parts = module.split(".")
        if any(_inside(name, parts) for name in self.everywhere):
            return set(layers)
        found: set[int] = set()
        for name, listed in self.names.items():
            if _inside(name, parts):
                found |= layers & listed
        for glob, listed in self._globs:
            if glob.match(module) or glob.match(f"{module}.weight"):
                found |= layers & listed
        for glob, fronts in self._fronts:
            if glob.match(module) or glob.match(f"{module}.weight"):
                found |= {layer for layer in layers if str(layer).startswith(tuple(fronts))}
        for regex, tells in self.regexes:
            found |= _matching(regex, module, layers - found, tells=tells)
        return found


def _glob(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(fnmatch.translate(pattern))
    except re.error as error:
        raise ConfigError(Sentence("config.no_glob", pattern=repr(pattern), reason=str(error))) from None


def _inside(name: tuple[str, ...], parts: list[str]) -> bool:
    size = len(name)
    return any(tuple(parts[start : start + size]) == name for start in range(len(parts) - size + 1))


def _matching(regex: re.Pattern[str], module: str, layers: set[int], *, tells: bool) -> set[int]:
    """Layers whose module matches; a pattern that does not tell layers apart is tried once."""

    def hit(layer: int) -> bool:
        bare = module.format(layer)
        wrapped = (
            bare,
            f"{bare}.weight",
            f"model.{bare}",
            f"language_model.model.{bare}",
            f"model.language_model.{bare}",
        )
        return any(regex.match(name) for name in wrapped)

    if not layers:
        return set()
    if "{}" not in module or not tells:
        return set(layers) if hit(min(layers)) else set()
    return {layer for layer in layers if hit(layer)}


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(Sentence("config.no_regex", pattern=repr(pattern), reason=str(error))) from None


def _bare(name: str) -> str:
    """Name without wrappers in front; "layers.*." is written "layers.{}." and stands for every layer."""
    if name.startswith(_FRONTS):
        name = _WRAPPERS.sub("", name)
    return name.replace("layers.*.", "layers.{}.", 1) if name.startswith(("layers.*.", "h.*.")) else name


def plain_format(config: Mapping[str, Any]) -> str:
    """Format of an unquantised checkpoint, from `dtype` or `torch_dtype`; bf16 where neither is given."""
    given = config.get("dtype") or config.get("torch_dtype")
    if given is None:
        return "bf16"
    name = str(given).removeprefix("torch.")
    if name not in _PLAIN:
        raise _unknown("torch_dtype", given, _PLAIN)
    return _PLAIN[name]


def read_recipe(config: Mapping[str, Any] | None, hf_quant_config: Mapping[str, Any] | None, plain: str) -> Recipe:
    """Number formats of a checkpoint, from the two files in which producers write them.

    Parameters
    ----------
    config : mapping or None
        `quantization_config` of the config.json.
    hf_quant_config : mapping or None
        The file hf_quant_config.json of ModelOpt, read where the first says nothing.
    plain : str
        Format of what is not converted.

    Returns
    -------
    Recipe
        The formats.

    Raises
    ------
    ConfigError
        If the method or a format is not known.
    """
    try:
        if config:
            config = _object(config, "quantization_config")
            method = str(config.get("quant_method") or ("modelopt" if "quant_algo" in config else "")).casefold()
            reader = _METHODS.get(method)
            if reader is None:
                given = config.get("quant_method")
                raise _unknown("quantization_config.quant_method", given, _METHODS)
            return reader(config, plain)
        if hf_quant_config:
            inner = _object(hf_quant_config, "hf_quant_config.json").get("quantization", hf_quant_config)
            return _modelopt(_object(inner, "quantization"), plain)
        return Recipe(plain, plain)
    except BatchlineError:
        raise
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ConfigError(Sentence("config.quantization_unreadable", reason=str(error))) from error


def _value(key: str, given: object) -> Sentence:
    return Sentence("config.value", name=key, given=repr(given))


def _unknown(key: str, given: object, known: Iterable[str]) -> ConfigError:
    return ConfigError(_value(key, given), Sentence("error.known", names=", ".join(known)))


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(Sentence("config.wrong", name=name, given=repr(value), wanted=Sentence("config.object")))
    return value


def _strings(config: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    found: list[str] = []
    for key in keys:
        values = config.get(key) or []
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise ConfigError(Sentence("config.no_module_names", name=f"quantization_config.{key}"))
        found += values
    return tuple(dict.fromkeys(found))


def _fp8(config: Mapping[str, Any], plain: str) -> Recipe:
    block = config.get("weight_block_size")
    if block is None:
        name = "fp8-static" if config.get("activation_scheme") == "static" else "fp8"
    elif isinstance(block, list) and len(block) == 2 and all(isinstance(size, int) for size in block):
        name = f"fp8-block-{block[0]}x{block[1]}" if block != [128, 128] else "fp8-block"
    else:
        raise ConfigError(_value("quantization_config.weight_block_size", block), Sentence("config.two_whole_numbers"))
    precision.load(name)
    if layers := config.get("quantized_layers"):  # experts converted once more; the exclude list is of that step
        return Recipe(name, plain, (), _named(_object(layers, "quantized_layers")), kv=_kv_format(config))
    return Recipe(name, plain, _strings(config, "modules_to_not_convert", "ignored_layers"))


def _mxfp4(config: Mapping[str, Any], plain: str) -> Recipe:
    return Recipe("mxfp4", plain, _strings(config, "modules_to_not_convert"), experts_only=True)


def _modelopt_name(algorithm: object, group: object) -> str:
    name = _MODELOPT.get(str(algorithm).upper())
    if name is None:
        raise _unknown("quant_algo", algorithm, _MODELOPT)
    base = precision.load(name)
    if isinstance(group, int) and group and base.block_rows == 1 and base.block_columns > 1:
        name = name if group == base.block_columns else f"{name}-g{group}"
    return precision.load(name).name


def _modelopt(config: Mapping[str, Any], plain: str) -> Recipe:
    algorithm = config.get("quant_algo")
    excluded = _strings(config, "exclude_modules", "ignore")
    kv = _kv_format(config)
    if algorithm is None:
        return Recipe(plain, plain, kv=kv)
    if str(algorithm).upper() == "MIXED_PRECISION":
        layers = _object(config.get("quantized_layers") or {}, "quantized_layers")
        return Recipe(plain, plain, excluded, _named(layers), kv=kv)
    return Recipe(_modelopt_name(algorithm, config.get("group_size")), plain, excluded, kv=kv)


def _named(layers: Mapping[str, Any]) -> dict[str, str]:
    """Formats of `quantized_layers`; the experts of a layer, listed one by one, become one entry."""
    entries: dict[str, Any] = {}
    for module, entry in layers.items():
        front, experts, number = module.partition(".experts.")
        name = f"{front}.experts.0.{number.partition('.')[2]}" if experts and "." in number else module
        if entries.setdefault(name, entry) != entry:
            raise ConfigError(Sentence("config.several_formats", front=front))
    if not entries:
        raise ConfigError(Sentence("config.no_layer_named"))
    return {
        name: _modelopt_name(_object(entry, name).get("quant_algo"), entry.get("group_size"))
        for name, entry in entries.items()
    }


def _kv_format(config: Mapping[str, Any]) -> str | None:
    """KV-cache format that a checkpoint asks for: ModelOpt by name, compressed-tensors by bits and type."""
    given = config.get("kv_cache_quant_algo") or config.get("kv_cache_scheme")
    if given is None:
        return None
    if isinstance(given, dict):
        kinds = {"8 float": "fp8", "4 float": "nvfp4", "8 int": "int8"}
        given = kinds.get(f"{given.get('num_bits')} {given.get('type')}", given)
    name = str(given).casefold()
    if name not in precision.kv_names():
        raise ConfigError(
            Sentence("config.kv_format", given=repr(given)), Sentence("error.known", names="FP8, NVFP4, INT8")
        )
    return name


def _awq(config: Mapping[str, Any], plain: str) -> Recipe:
    bits, group = config.get("bits", config.get("w_bit")), config.get("group_size", config.get("q_group_size"))
    return Recipe(_grouped("awq", bits, group), plain, _strings(config, "modules_to_not_convert"))


def _gptq(config: Mapping[str, Any], plain: str) -> Recipe:
    return Recipe(_grouped("gptq", config.get("bits"), config.get("group_size")), plain)


def _grouped(base: str, bits: object, group: object) -> str:
    if bits not in {4, 8}:
        raise ConfigError(_value("quantization_config.bits", bits), Sentence("config.bits_4_8", base=base))
    if not isinstance(group, int):
        raise ConfigError(_value("quantization_config.group_size", group), Sentence("config.whole_or_less"))
    base = base if bits == 4 else "gptq8"
    return "int4-tensor" if group == -1 else precision.load(f"{base}-g{group}").name


def _compressed_tensors(config: Mapping[str, Any], plain: str) -> Recipe:
    groups = _object(config.get("config_groups") or {}, "config_groups")
    excluded = _strings(config, "ignore")
    formats: dict[str, str] = {}
    for group in groups.values():
        weights = _object(_object(group, "config_groups").get("weights") or {}, "weights")
        name = _compressed_name(weights, group.get("input_activations"))
        targets: Sequence[object] = group.get("targets") or ["Linear"]
        formats.update({str(target): name for target in targets})
    if not formats:
        raise ConfigError(Sentence("config.no_group"))
    kv = _kv_format(config)
    if "Linear" in formats:
        return Recipe(formats["Linear"], plain, excluded, kv=kv)
    return Recipe(plain, plain, excluded, formats, kv=kv)


def _compressed_name(weights: Mapping[str, Any], activations: object) -> str:
    bits, kind, strategy, group = (weights.get(key) for key in ("num_bits", "type", "strategy", "group_size"))
    if kind == "float" and bits == 8:
        by = {"tensor": "fp8-static", "channel": "fp8-channel", "block": "fp8-block", None: "fp8-static"}
        if group == 32:
            return "mxfp8"
        if strategy in by:
            return by[strategy]
    if kind == "float" and bits == 4 and group in {16, 32}:
        if group == 32:
            return "mxfp4"
        return "nvfp4" if activations else "nvfp4-w4a16"
    if kind == "int" and bits == 8:
        return "int8" if activations else "w8a16"
    if kind == "int" and bits == 4:
        base = "int4" if weights.get("symmetric", True) else "awq"
        return "int4-tensor" if group in {None, -1} else precision.load(f"{base}-g{group}").name
    raise ConfigError(
        Sentence("config.odd_group", bits=repr(bits), kind=repr(kind), strategy=repr(strategy)),
        Sentence("config.known_groups"),
    )


def _bitsandbytes(config: Mapping[str, Any], plain: str) -> Recipe:
    name = "nf4" if config.get("load_in_4bit") else "w8a16"
    return Recipe(name, plain, _strings(config, "llm_int8_skip_modules"))


_METHODS = {
    "fp8": _fp8,
    "fbgemm_fp8": lambda config, plain: Recipe("fp8-channel", plain, _strings(config, "modules_to_not_convert")),
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "compressed-tensors": _compressed_tensors,
    "awq": _awq,
    "gptq": _gptq,
    "bitsandbytes": _bitsandbytes,
}
