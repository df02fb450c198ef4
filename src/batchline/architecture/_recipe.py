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

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from batchline.architecture._records import Weight

__all__ = ["Recipe", "plain_format", "read_recipe"]

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
        Modules with a format of their own.
    experts_only : bool
        Whether only routed experts are converted.
    """

    default: str = "bf16"
    plain: str = "bf16"
    excluded: tuple[str, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    experts_only: bool = False

    def format_of(self, weight: Weight, layer: int) -> str:
        """Format in which the checkpoint keeps a weight of a layer."""
        if not weight.linear:
            return self.plain
        module = weight.module.format(layer)
        if self.named:
            return self.named.get(module) or self._named_globs(module) or self.plain
        if weight.role in {"embedding", "head", "position"} or (self.experts_only and weight.role != "expert"):
            return self.plain
        return self.plain if self.default != self.plain and self._matcher.excludes(module) else self.default

    def _named_globs(self, module: str) -> str | None:
        parts = module.split(".")
        for length in range(len(parts) - 1, 0, -1):
            if found := self.named.get(".".join(parts[:length])):
                return found
        return None

    @functools.cached_property
    def _matcher(self) -> _Matcher:
        return _Matcher(self.excluded)


class _Matcher:
    """Decides whether a module is on an exclude list of names, globs and regular expressions."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.names: set[tuple[str, ...]] = set()
        globs: list[str] = []
        self.regexes: list[re.Pattern[str]] = []
        for pattern in patterns:
            if pattern.startswith("re:"):
                self.regexes.append(_compiled(pattern[3:]))
            elif any(sign in pattern for sign in "*?["):
                globs.append(fnmatch.translate(_bare(pattern)))
            else:
                self.names.add(tuple(_bare(pattern).split(".")))
        self.lengths = sorted({len(name) for name in self.names})
        self.globs = [re.compile("|".join(globs[start : start + 200])) for start in range(0, len(globs), 200)]

    def excludes(self, module: str) -> bool:
        parts = tuple(module.split("."))
        for length in self.lengths:
            if any(parts[start : start + length] in self.names for start in range(len(parts) - length + 1)):
                return True
        with_end = (module, f"{module}.weight")
        if any(glob.match(name) for glob in self.globs for name in with_end):
            return True
        wrapped = (module, f"model.{module}", f"language_model.model.{module}", f"model.language_model.{module}")
        return any(regex.match(name) for regex in self.regexes for name in wrapped)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"The exclude pattern {pattern!r} is no regular expression: {error}.") from None


def _bare(name: str) -> str:
    return _WRAPPERS.sub("", name)


def plain_format(config: Mapping[str, Any]) -> str:
    """Format of an unquantised checkpoint, from `dtype` or `torch_dtype`; bf16 where neither is given."""
    given = config.get("dtype") or config.get("torch_dtype")
    if given is None:
        return "bf16"
    name = str(given).removeprefix("torch.")
    if name not in _PLAIN:
        raise ConfigError(f"torch_dtype is {given!r}.", f"Known: {', '.join(_PLAIN)}.")
    return _PLAIN[name]


def read_recipe(config: Mapping[str, Any] | None, hf_quant_config: Mapping[str, Any] | None, plain: str) -> Recipe:
    """Number formats of a checkpoint, from the two files in which producers write them.

    Parameters
    ----------
    config : mapping or None
        `quantization_config` of the config.json.
    hf_quant_config : mapping or None
        The file hf_quant_config.json of ModelOpt, which wins where both are there.
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
        if hf_quant_config:
            inner = _object(hf_quant_config, "hf_quant_config.json").get("quantization", hf_quant_config)
            return _modelopt(_object(inner, "quantization"), plain)
        if not config:
            return Recipe(plain, plain)
        config = _object(config, "quantization_config")
        method = str(config.get("quant_method") or ("modelopt" if "quant_algo" in config else "")).casefold()
        reader = _METHODS.get(method)
        if reader is None:
            raise ConfigError(
                f"quantization_config.quant_method is {config.get('quant_method')!r}.", f"Known: {', '.join(_METHODS)}."
            )
        return reader(config, plain)
    except BatchlineError:
        raise
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ConfigError(f"quantization_config cannot be read: {error}.") from error


def _object(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is {value!r}, which is not an object.")
    return value


def _strings(config: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    found: list[str] = []
    for key in keys:
        values = config.get(key) or []
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise ConfigError(f"quantization_config.{key} is not a list of module names.")
        found += values
    return tuple(dict.fromkeys(found))


def _fp8(config: Mapping[str, Any], plain: str) -> Recipe:
    block = config.get("weight_block_size")
    if block is None:
        name = "fp8-static" if config.get("activation_scheme") == "static" else "fp8"
    elif isinstance(block, list) and len(block) == 2 and all(isinstance(size, int) for size in block):
        name = f"fp8-block-{block[0]}x{block[1]}" if block != [128, 128] else "fp8-block"
    else:
        raise ConfigError(f"quantization_config.weight_block_size is {block!r}.", "It is two whole numbers.")
    precision.load(name)
    return Recipe(name, plain, _strings(config, "modules_to_not_convert", "ignored_layers"))


def _mxfp4(config: Mapping[str, Any], plain: str) -> Recipe:
    return Recipe("mxfp4", plain, _strings(config, "modules_to_not_convert"), experts_only=True)


def _modelopt_name(algorithm: object, group: object) -> str:
    name = _MODELOPT.get(str(algorithm).upper())
    if name is None:
        raise ConfigError(f"quant_algo is {algorithm!r}.", f"Known: {', '.join(_MODELOPT)}.")
    base = precision.load(name)
    if isinstance(group, int) and group and base.block_rows == 1 and base.block_columns > 1:
        name = name if group == base.block_columns else f"{name}-g{group}"
    return precision.load(name).name


def _modelopt(config: Mapping[str, Any], plain: str) -> Recipe:
    algorithm = config.get("quant_algo")
    excluded = _strings(config, "exclude_modules", "ignore")
    if algorithm is None:
        return Recipe(plain, plain)
    if str(algorithm).upper() == "MIXED_PRECISION":
        layers = _object(config.get("quantized_layers") or {}, "quantized_layers")
        named = {
            _bare(module): _modelopt_name(_object(entry, module).get("quant_algo"), entry.get("group_size"))
            for module, entry in layers.items()
        }
        if not named:
            raise ConfigError("quant_algo is MIXED_PRECISION, but quantized_layers names no layer.")
        return Recipe(plain, plain, excluded, named)
    return Recipe(_modelopt_name(algorithm, config.get("group_size")), plain, excluded)


def _awq(config: Mapping[str, Any], plain: str) -> Recipe:
    bits, group = config.get("bits", config.get("w_bit")), config.get("group_size", config.get("q_group_size"))
    return Recipe(_grouped("awq", bits, group), plain, _strings(config, "modules_to_not_convert"))


def _gptq(config: Mapping[str, Any], plain: str) -> Recipe:
    return Recipe(_grouped("gptq", config.get("bits"), config.get("group_size")), plain)


def _grouped(base: str, bits: object, group: object) -> str:
    if bits not in {4, 8}:
        raise ConfigError(f"quantization_config.bits is {bits!r}.", f"{base} is known with 4 or 8 bits.")
    if not isinstance(group, int):
        raise ConfigError(f"quantization_config.group_size is {group!r}.", "It is a whole number, or -1.")
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
        formats.update({_bare(str(target)): name for target in targets})
    if not formats:
        raise ConfigError("quantization_config.config_groups names no group.")
    if "Linear" in formats:
        return Recipe(formats["Linear"], plain, excluded)
    return Recipe(plain, plain, excluded, formats)


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
        f"A compressed-tensors group has {bits!r} bits of type {kind!r} with strategy {strategy!r}.",
        "Known: float of 8 or 4 bits, int of 8 or 4 bits.",
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
