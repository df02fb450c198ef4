"""Options that make a planner's question, shared by `plan` and `launch`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchline.cli import _options
from batchline.errors import InputError
from batchline.strings import Sentence, text
from batchline.units import parse_price

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchline.planner import Question

_F = TypeVar("_F", bound="Callable[..., Any]")


class _Names(click.ParamType[Any]):
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


class _Named(click.ParamType[Any]):
    """NAME=VALUE, or a value alone for the only accelerator."""

    name = "name=value"

    def __init__(self, read: Callable[[str], Any]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        name, equals, text = value.rpartition("=")
        return (name.strip() if equals else "", self._read(text))


def _count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(
            Sentence("error.no_device_count", given=repr(text)), "", Sentence("error.write_device_count")
        ) from None


def _times(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(Sentence("error.no_number", given=repr(text)), "", Sentence("error.write_ratio")) from None


NAMES = _Names()


def question_options(command: _F) -> _F:
    """Add the options of a question."""
    options = [
        click.option("--isl", type=_options.TOKENS, metavar="TOKENS", help=text("help.plan_isl")),
        click.option("--osl", type=_options.TOKENS, metavar="TOKENS", help=text("help.plan_osl")),
        click.option("--trace", type=click.Path(dir_okay=False), metavar="FILE", help=text("help.plan_trace")),
        click.option("--rate", type=_options.RATE, metavar="20/s", help=text("help.plan_rate")),
        click.option("--users", type=float, help=text("help.users")),
        click.option("--think", "think_s", type=_options.DURATION, metavar="30s", help=text("help.plan_think_s")),
        click.option("--ttft", metavar="p95:2s", help=text("help.ttft")),
        click.option("--tpot", metavar="p95:40ms", help=text("help.tpot")),
        click.option("--itl", metavar="100ms", help=text("help.plan_itl")),
        click.option("--e2e", metavar="p95:30s", help=text("help.e2e")),
        click.option("--headroom", type=float, metavar="0.1", help=text("help.headroom")),
        click.option("--confidence", type=float, metavar="0.9", help=text("help.confidence")),
        click.option("--prefix-hit-rate", type=float, metavar="0.5", help=text("help.plan_prefix_hit_rate")),
        click.option("--max-model-len", type=_options.TOKENS, metavar="TOKENS", help=text("help.plan_max_model_len")),
        click.option("--on", "accelerators", type=NAMES, metavar="NAMES", help=text("help.accelerators")),
        click.option("--available", type=_Named(_count), multiple=True, metavar="NAME=N", help=text("help.available")),
        click.option(
            "--price",
            "prices",
            type=_Named(parse_price),
            multiple=True,
            metavar="NAME=$/h",
            help=text("help.prices"),
        ),
        click.option("--slower", type=_Named(_times), multiple=True, metavar="NAME=TIMES", help=text("help.slower")),
        click.option(
            "--basis",
            type=click.Choice(["rental", "contract", "neocloud", "hyperscaler"]),
            help=text("help.basis"),
        ),
        click.option("--weights", type=NAMES, metavar="FORMATS", help=text("help.plan_weights")),
        click.option("--kv", type=NAMES, metavar="FORMATS", help=text("help.plan_kv")),
        click.option("--engine", "engines", type=NAMES, metavar="NAMES", help=text("help.engines")),
        click.option("--max-devices", type=click.IntRange(min=1), help=text("help.max_devices")),
        click.option("--max-batch", type=click.IntRange(min=1), help=text("help.plan_max_batch")),
        click.option("--disaggregation/--no-disaggregation", default=None, help=text("help.disaggregation")),
        click.option("--transfer", type=_options.BANDWIDTH, metavar="GB/s", help=text("help.plan_transfer")),
        click.option("--pue", type=float, metavar="1.2", help=text("help.pue")),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def question_of(model: str, options: dict[str, Any]) -> Question:
    """Make the question of a model and options; a .toml file gives what the options leave open."""
    from batchline.planner import Question, load_question

    names = [field.name for field in dataclasses.fields(Question) if field.name in options]
    given = {name: options.pop(name) for name in names}
    given = {name: value for name, value in given.items() if value is not None and value != ()}
    for name in ("available", "prices", "slower"):
        if name in given:
            given[name] = _named(name, given[name], given.get("accelerators", ()))
    if Path(model).suffix.casefold() == ".toml":
        saved = load_question(model)
        for one, other in (("rate", "users"), ("users", "rate")):
            if one in given and other not in given:
                given[other] = None
        return dataclasses.replace(saved, **given)
    trace = options.pop("trace", None)
    if trace:
        from batchline import workload

        return Question.of_traffic(model, workload.trace(trace), **given)
    for name in ("isl", "osl"):
        if name not in given:
            raise InputError(Sentence("error.length_missing", name=name), "", Sentence("error.give_lengths_or_trace"))
    return Question(model=model, **given)


def _named(option: str, pairs: tuple[tuple[str, Any], ...], accelerators: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for name, value in pairs:
        if name:
            found[name] = value
        elif len(accelerators) == 1:
            found[accelerators[0]] = value
        else:
            flag = {"prices": "price"}.get(option, option)
            raise InputError(
                Sentence("error.of_which", flag=flag, given=f"{value}"),
                "",
                Sentence("error.write_of_which", flag=flag, given=f"{value}"),
            )
    return found
