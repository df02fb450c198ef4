"""What can be asked: the command line's options as a model, with the same names, units and errors."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from batchline import accelerator, architecture, curve_question, precision, units
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.calibrate.profile import MOST_BYTES, Profile
from batchline.deployment import Deployment
from batchline.errors import BatchlineError, InputError, UnknownNameError
from batchline.strings import Sentence
from batchline.web.problem import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchline.calibrate.profile import CalibratedPrior
    from batchline.sweep import Curve

__all__ = [
    "Bandwidth",
    "Brought",
    "CurveQuery",
    "CurveQuestion",
    "DeploymentQuestion",
    "Duration",
    "Length",
    "Load",
    "Name",
    "RefusedFieldError",
    "architecture_of",
    "curve_of",
    "deployment_of",
    "model_of",
    "priors_of",
    "question_of",
]

_LONGEST_TEXT = 200
_MOST_BATCHES = 4096
_MOST_DEVICES = 16_384
_LARGEST = 1e18


class RefusedFieldError(BatchlineError):
    """A field that cannot be read, and its name."""

    def __init__(self, field: str, error: BatchlineError) -> None:
        self.field = field
        self.cause = error
        self.kind = type(error).__name__
        super().__init__(error.problem, error.allowed, error.hint)


def reader(read: Callable[[str], Any]) -> BeforeValidator:
    """Read a text with a unit, as the command line does; a number is already in the base unit."""

    def convert(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            value = ",".join(value)  # an address gives its values as a list of texts
        if not isinstance(value, str):
            return value
        if len(value) > _LONGEST_TEXT:
            raise RefusedFieldError(
                str(info.field_name), InputError(Sentence("serve.long_text", length=f"{len(value):,}"))
            )
        try:
            return read(value)
        except BatchlineError as error:
            raise RefusedFieldError(str(info.field_name), error) from None

    return BeforeValidator(convert)


def quantity(unit: str, low: float = 0.0, high: float = _LARGEST) -> WithJsonSchema:
    """Describe a quantity: a number in the base unit, or a text with a unit."""
    number = {"type": "number", "minimum": low, "maximum": high, "description": f"[{unit}]"}
    return WithJsonSchema({"anyOf": [number, {"type": "string", "maxLength": _LONGEST_TEXT}]})


def _batches(text: str) -> list[int]:
    """Read batches, but never make millions of them."""
    for part in re.finditer(r"(\d+)\s*\.\.\s*(\d+)", text):
        first, last = int(part[1]), int(part[2])
        doubling = re.search(r"(\d+)\s*,\s*(\d+)\s*,\s*$", text[: part.start()])
        doubles = doubling is not None and int(doubling[2]) == 2 * int(doubling[1]) and first == 2 * int(doubling[2])
        if not doubles and last - first >= _MOST_BATCHES:
            raise InputError(
                Sentence("serve.many_batches", given=repr(part[0]), count=f"{last - first + 1:,}"),
                Sentence("serve.most_batches", most=f"{_MOST_BATCHES:,}"),
                Sentence("serve.write_shorter_range"),
            )
    return units.parse_batches(text)


Tokens = Annotated[
    float, reader(units.parse_tokens), Field(ge=0, le=1e9, allow_inf_nan=False), quantity("token", 0, 1e9)
]
Length = Annotated[
    float, reader(units.parse_tokens), Field(ge=1, le=1e9, allow_inf_nan=False), quantity("token", 1, 1e9)
]
Duration = Annotated[
    float, reader(units.parse_duration), Field(ge=1e-9, le=1e6, allow_inf_nan=False), quantity("s", 1e-9, 1e6)
]
Price = Annotated[float, reader(units.parse_price), Field(ge=0, le=1e9, allow_inf_nan=False), quantity("USD/h", 0, 1e9)]
Bandwidth = Annotated[
    float, reader(units.parse_bandwidth), Field(ge=1, le=_LARGEST, allow_inf_nan=False), quantity("B/s", 1, _LARGEST)
]
Rate = Annotated[
    float, reader(units.parse_flops), Field(ge=1, le=_LARGEST, allow_inf_nan=False), quantity("FLOP/s", 1, _LARGEST)
]
Load = Annotated[float, reader(units.parse_rate), Field(gt=0, le=1e9), quantity("1/s", 0, 1e9)]
Size = Annotated[
    float, reader(units.parse_bytes), Field(ge=1, le=_LARGEST, allow_inf_nan=False), quantity("B", 1, _LARGEST)
]
Batches = Annotated[
    list[Annotated[int, Field(ge=1, le=10_000_000)]],
    reader(_batches),
    Field(min_length=1, max_length=_MOST_BATCHES),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 10_000_000}, "maxItems": 4096},
                {"type": "string", "maxLength": _LONGEST_TEXT, "examples": ["1,2,4..512"]},
            ]
        }
    ),
]
Degree = Annotated[int, Field(ge=1, le=_MOST_DEVICES)]
Name = Annotated[str, Field(max_length=_LONGEST_TEXT)]


class DeploymentQuestion(BaseModel):
    """A model on accelerators: the names of `batchline curve`'s options, with underscores."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: Name | None = Field(
        default=None, description="Catalogue name, alias or Hugging Face id.", examples=["llama-3.1-70b"]
    )
    on: Name = Field(description="Accelerators, or 4xcustom with its three figures.", examples=["4xh100"])
    weights: Name | None = Field(
        default=None, description="Number format of the weights; the checkpoint's own if absent."
    )
    kv: Name = Field(default="bf16", description="Number format of the KV cache.")
    tp: Annotated[int, Field(ge=0, le=_MOST_DEVICES)] = Field(default=0, description="Tensor-parallel degree; 0: all.")
    pp: Degree = Field(default=1, description="Pipeline-parallel degree.")
    dp: Degree = Field(default=1, description="Attention-data-parallel degree.")
    ep: Degree = Field(default=1, description="Expert-parallel degree.")
    engine: Name = Field(default="vllm", description="Serving engine.")
    engine_version: Name = Field(default="", description="Its version, if it matters.")
    price: Price | None = Field(default=None, description="Price of one accelerator; the catalogue's median if absent.")
    bandwidth: Bandwidth | None = Field(default=None, description="Memory bandwidth of one accelerator.")
    flops: Rate | None = Field(default=None, description="Dense rate of one accelerator in the format used.")
    memory: Size | None = Field(default=None, description="Memory of one accelerator.")
    link: Bandwidth | None = Field(default=None, description="Link between accelerators, one direction.")


class CurveQuery(DeploymentQuestion):
    """What `batchline curve` is asked, in an address: models of the catalogue."""

    context: Tokens | None = Field(
        default=None, description="Mean context of a sequence; isl + osl / 2 if these are given, else 4,096."
    )
    isl: Length | None = Field(default=None, description="Input length: adds prefill, TTFT and throughput.")
    osl: Length | None = Field(default=None, description="Output length; goes with isl.")
    batch: Batches | None = Field(default=None, description="Batches to show.")
    max_batch: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        default=None, description="Largest batch allowed, like an engine's max_num_seqs."
    )
    step_limit: Duration | None = Field(default=None, description="Longest time per token allowed.")
    tokens_per_user: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        default=None, description="Least speed of a user allowed [token/s]."
    )
    within: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        default=None, description="Take the smallest batch whose cost is this near to its floor [-]."
    )
    reading: Literal["predict", "bound", "serial"] = Field(
        default="predict",
        description="predict: what a real engine shows; bound: the article's floor; serial: attention and FFN in turn.",
    )

    concurrency: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        default=None, description="Requests that clients keep in flight; the batch to run if absent. Goes with lengths."
    )
    rate: Load | None = Field(default=None, description="Requests that arrive [1/s], instead of clients.")
    arrivals: Annotated[str, Field(max_length=40, examples=["cv:2"])] | None = Field(
        default=None, description="poisson, even or cv:2 for a rate; one-by-one, together or batch for clients."
    )
    prefix_hit_rate: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="Share of a prompt in the cache [-]."
    )
    max_num_batched_tokens: Length | None = Field(default=None, description="Chunked-prefill budget of a step.")
    speculation: Annotated[str, Field(max_length=80, examples=["0.7,3,1ms"])] | None = Field(
        default=None, description="Acceptance [-], drafted tokens, time to draft one."
    )


class Brought(BaseModel):
    """What a question brings along, where the command line names a file."""

    config: dict[str, Any] | None = Field(default=None, description="A parsed config.json, in place of `model`.")
    profile: Annotated[str, Field(max_length=MOST_BYTES)] | None = Field(
        default=None, description="The text of a profile that `batchline calibrate --out` wrote: predict with it."
    )


class CurveQuestion(CurveQuery, Brought):
    """What `batchline curve` is asked: a model of the catalogue, or the content of a config.json."""


@lru_cache(maxsize=1)
def _model_names() -> dict[str, str]:
    names: dict[str, str] = {}
    for row in architecture.catalogue():
        for name in (row["name"], row["hf_id"], *row["aliases"]):
            names.setdefault(name.casefold(), row["name"])
    return names


@lru_cache(maxsize=256)
def _known_model(name: str) -> Architecture:
    return Architecture.load(name)


def model_of(name: str) -> Architecture:
    """Find a model of the catalogue; a path is no name here, so that nobody reads the server's files."""
    known = _model_names().get(name.strip().casefold())
    if known is None:
        raise RefusedFieldError(
            "model",
            UnknownNameError("model", name, _model_names(), Sentence("serve.drop_config")),
        )
    return _known_model(known)


def architecture_of(question: Any) -> Architecture:
    """Find the model that a question names, or read the config that it brings.

    Parameters
    ----------
    question : model with `model` and perhaps `config`
        What was asked.

    Returns
    -------
    Architecture
        The model.

    Raises
    ------
    RefusedFieldError
        Neither or both were given, the name is not known, or the config cannot be read.
    """
    config = _brought(question, "config")
    if (question.model is None) == (config is None):
        raise RefusedFieldError(
            "model",
            InputError(
                Sentence("serve.no_model" if config is None else "serve.two_models"),
                Sentence("serve.one_of_two"),
                Sentence("serve.drop_config"),
            ),
        )
    if config is None:
        return model_of(str(question.model))
    try:
        name = config.get("_name_or_path") or config.get("name")
        plain = re.sub(r"[^\w.+ -]", "", name.rsplit("/", 1)[-1])[:60] if isinstance(name, str) else ""
        return Architecture.from_config(config, name=plain.strip() or "config.json", source="uploaded")
    except BatchlineError as error:
        raise RefusedFieldError("config", error) from None
    except RecursionError:
        raise RefusedFieldError("config", InputError(Sentence("serve.nested", what="config.json"))) from None


def _brought(question: Any, what: str) -> Any:
    """Give what was brought along; a question in an address brings nothing."""
    return getattr(question, what, None)


@lru_cache(maxsize=64)
def _priors(profile: str) -> CalibratedPrior:
    return Profile.parse(profile).prior()


@lru_cache(maxsize=1)
def _own_priors(path: str) -> CalibratedPrior:
    return Profile.load(path).prior()


def priors_of(question: Any) -> CalibratedPrior | None:
    """Give the priors with the profile that a question brings, else that of `batchline serve --profile`; else None.

    Parameters
    ----------
    question : model, perhaps with `profile`
        What was asked.

    Returns
    -------
    CalibratedPrior or None
        For everything that takes priors.

    Raises
    ------
    RefusedFieldError
        The profile cannot be read.
    """
    profile = _brought(question, "profile")
    if profile is None:
        path = os.environ.get("BATCHLINE_PROFILE")
        return _own_priors(path) if path else None
    try:
        return _priors(profile)
    except BatchlineError as error:
        raise RefusedFieldError("profile", error) from None


def _accelerator(question: DeploymentQuestion) -> tuple[int, Accelerator]:
    try:
        count, name = units.parse_devices(question.on)
    except BatchlineError as error:
        raise RefusedFieldError("on", error) from None
    if count > _MOST_DEVICES:
        too_many = InputError(
            Sentence("serve.many_devices", count=f"{count:,}"), Sentence("serve.to_limit", limit=f"{_MOST_DEVICES:,}")
        )
        raise RefusedFieldError("on", too_many)
    bandwidth, flops, memory = question.bandwidth, question.flops, question.memory
    if name.casefold() == "custom":
        priors = priors_of(question)
        known = {} if priors is None else priors.profile.figures
        bandwidth, flops, memory = (
            known.get(figure) if given is None else given
            for figure, given in (("bandwidth", bandwidth), ("flops", flops), ("memory", memory))
        )
        if bandwidth is None or flops is None or memory is None:
            missing = "bandwidth" if bandwidth is None else "flops" if flops is None else "memory"
            raise RefusedFieldError(
                missing,
                InputError(
                    Sentence("error.three_figures"),
                    "",
                    Sentence("error.give_figures"),
                ),
            )
        device = Accelerator.custom(bandwidth=bandwidth, flops=flops, memory=memory)
    else:
        try:
            device = Accelerator.load(accelerator.resolve(name)).override(
                bandwidth=bandwidth, flops=flops, memory=memory
            )
        except UnknownNameError as error:
            unknown = UnknownNameError(error.kind, error.given, error.closest, Sentence("serve.own_accelerator"))
            raise RefusedFieldError("on", unknown) from None
        except BatchlineError as error:
            raise RefusedFieldError("on", error) from None
    if question.link is None:
        return count, device
    return count, replace(device, link_bandwidth=question.link)


def deployment_of(question: DeploymentQuestion) -> Deployment:
    """Make the deployment that a question names.

    Parameters
    ----------
    question : DeploymentQuestion
        What was asked.

    Returns
    -------
    Deployment
        Ready for `batchline.sweep.curve`.

    Raises
    ------
    RefusedFieldError
        With the name of the field, if one is at fault.
    BatchlineError
        As of `Deployment`.
    """
    if _brought(question, "config") is None and _brought(question, "profile") is None:
        return _named_deployment(
            DeploymentQuestion.model_construct(
                **{name: getattr(question, name) for name in DeploymentQuestion.model_fields}
            )
        )
    return _deployment(question)


@lru_cache(maxsize=256)
def _named_deployment(question: DeploymentQuestion) -> Deployment:
    """While a slider moves only the context changes: the deployment accounts for its memory once."""
    return _deployment(question)


def _deployment(question: DeploymentQuestion) -> Deployment:
    model = architecture_of(question)
    count, device = _accelerator(question)
    for field, read in (("weights", precision.load), ("kv", precision.load_kv)):
        given = getattr(question, field)
        if given is not None:
            try:
                read(given)
            except BatchlineError as error:
                raise RefusedFieldError(field, error) from None
    return Deployment.of(
        model,
        device,
        count=count,
        usd_per_device_hour=question.price,
        weights=question.weights,
        kv=question.kv,
        tp=question.tp,
        pp=question.pp,
        dp=question.dp,
        ep=question.ep,
        engine=question.engine,
        engine_version=question.engine_version,
    )


def question_of(question: CurveQuery) -> curve_question.Question:
    """Put a question as the command line puts it.

    Parameters
    ----------
    question : CurveQuery
        What was asked.

    Returns
    -------
    batchline.curve_question.Question
        The same, with its deployment.

    Raises
    ------
    RefusedFieldError
        With the name of the field, if one is at fault.
    BatchlineError
        As of `Deployment`.
    """
    given: dict[str, Any] = {name: getattr(question, name) for name in _ASKED}
    for name, read in _READ:
        if (text := getattr(question, name)) is not None:
            try:
                given[name] = read(text)
            except BatchlineError as error:
                raise RefusedFieldError(name, error) from None
    deployment = deployment_of(question)
    try:
        return curve_question.Question(deployment=deployment, priors=priors_of(question), **given)
    except InputError as error:
        raise RefusedFieldError(fields_of(error.problem)[0], error) from None


_ASKED = (
    "context", "isl", "osl", "reading", "step_limit", "tokens_per_user", "within", "max_batch", "concurrency", "rate",
    "prefix_hit_rate", "max_num_batched_tokens",
)  # fmt: skip
_READ: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("arrivals", curve_question.parse_arrivals),
    ("speculation", curve_question.parse_draft),
)


def curve_of(question: CurveQuery, batch: Any = None) -> Curve:
    """Answer a question with the library's own function.

    Parameters
    ----------
    question : CurveQuery
        What was asked.
    batch : array-like, optional
        Batches to evaluate in place of the question's [sequence].

    Returns
    -------
    Curve
        As of `batchline.sweep.curve`.
    """
    return question_of(question).curve(question.batch if batch is None else batch)
