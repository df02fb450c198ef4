"""Options that several commands share, and what they become."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from batchline import units
from batchline.cli import _output
from batchline.cli._language import say
from batchline.errors import BatchlineError, InputError
from batchline.strings import Sentence, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchline.accelerator import Accelerator
    from batchline.deployment import Deployment
    from batchline.prior import Prior
    from batchline.serving import Speculation

_F = TypeVar("_F", bound="Callable[..., Any]")


class Quantity(click.ParamType[Any]):
    """An option that a function of `batchline.units` reads."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text; name the option in the error."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except BatchlineError as error:
            named = Sentence("error.of_option", option=param.opts[0], problem=error.problem) if param else error.problem
            raise type(error)(named, error.allowed, error.hint) from None


TOKENS = Quantity("tokens", units.parse_tokens)
DURATION = Quantity("duration", units.parse_duration)
PRICE = Quantity("$/h", units.parse_price)
BYTES = Quantity("size", units.parse_bytes)
BANDWIDTH = Quantity("bandwidth", units.parse_bandwidth)
FLOPS = Quantity("rate", units.parse_flops)
BATCHES = Quantity("batches", units.parse_batches)
RATE = Quantity("rate", units.parse_rate)


def _draft(text: str) -> Speculation:
    from batchline.curve_question import parse_draft

    return parse_draft(text)


DRAFT = Quantity("draft", _draft)
FILE = click.Path(dir_okay=False, writable=True)
"""A file that is written."""


def deployment_options(command: _F) -> _F:
    """Add the options that name a deployment."""
    options = [
        click.option("--on", required=True, metavar="N x NAME", help=text("help.on")),
        click.option("--weights", metavar="FORMAT", help=text("help.weights")),
        click.option("--kv", default="bf16", show_default=True, metavar="FORMAT", help=text("help.kv")),
        click.option("--tp", type=int, default=0, help=text("help.tp")),
        click.option("--pp", type=int, default=1, help=text("help.pp")),
        click.option("--dp", type=int, default=1, help=text("help.dp")),
        click.option("--ep", type=int, default=1, help=text("help.ep")),
        click.option("--engine", default="vllm", show_default=True, help=text("help.engine")),
        click.option("--engine-version", default="", help=text("help.engine_version")),
        click.option("--price", type=PRICE, metavar="$/h", help=text("help.price")),
        click.option("--bandwidth", type=BANDWIDTH, metavar="TB/s", help=text("help.bandwidth")),
        click.option("--flops", type=FLOPS, metavar="TFLOPS", help=text("help.flops")),
        click.option("--memory", type=BYTES, metavar="GB", help=text("help.memory")),
        click.option("--link", type=BANDWIDTH, metavar="GB/s", help=text("help.link")),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def profile_option(command: _F) -> _F:
    """Add --profile."""
    option = click.option(
        "--profile",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help=text("help.profile"),
    )
    return option(command)


def priors_of(path: str | None, deployment: Deployment | None = None) -> Prior | None:
    """Priors with a profile put in; None without one. Warns if the profile does not speak for the deployment."""
    if path is None:
        return None
    from batchline import readings
    from batchline.calibrate import Profile

    priors = Profile.load(path).prior()
    if deployment is not None and not priors.knows(case := readings.case_of(deployment)):
        _output.warn(say("cli.other_profile", file=path, measured=priors.profile.case.cluster, asked=case.cluster))
    return priors


def theme_option(command: _F) -> _F:
    """Add --theme of the pictures."""
    themes = click.Choice(["light", "dark"])
    return click.option("--theme", type=themes, default="light", show_default=True, help=text("help.theme"))(command)


def output_options(command: _F) -> _F:
    """Add --json and --csv."""
    command = click.option("--csv", "as_csv", is_flag=True, help=text("help.as_csv"))(command)
    return click.option("--json", "as_json", is_flag=True, help=text("help.as_json"))(command)


def accelerator_of(
    name: str, bandwidth: float | None, flops: float | None, memory: float | None, link: float | None = None
) -> Accelerator:
    """Take an accelerator from the catalogue or a file, with single figures replaced."""
    from batchline.accelerator import Accelerator

    if name.casefold() == "custom":
        if bandwidth is None or flops is None or memory is None:
            raise InputError(
                Sentence("error.three_figures"),
                "",
                Sentence("error.give_figures"),
            )
        device = Accelerator.custom(bandwidth=bandwidth, flops=flops, memory=memory)
    else:
        device = Accelerator.load(name).override(bandwidth=bandwidth, flops=flops, memory=memory)
    return device if link is None else replace(device, link_bandwidth=link)


def deployment_of(model: str, options: dict[str, Any]) -> Deployment:
    """Take the options of `deployment_options` out and make the deployment."""
    from batchline.deployment import Deployment

    count, name = units.parse_devices(options.pop("on"))
    if options.get("profile") and name.casefold() == "custom":
        from batchline.calibrate import Profile

        for figure, value in Profile.load(options["profile"]).figures.items():
            options[figure] = value if options[figure] is None else options[figure]
    accelerator = accelerator_of(name, *(options.pop(key) for key in ("bandwidth", "flops", "memory", "link")))
    usd_per_device_hour = options.pop("price")
    named = {key: options.pop(key) for key in ("weights", "kv", "tp", "pp", "dp", "ep", "engine", "engine_version")}
    return Deployment.of(model, accelerator, count=count, usd_per_device_hour=usd_per_device_hour, **named)
