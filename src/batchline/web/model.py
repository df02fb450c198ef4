"""What is answered, as models: they describe the API; the answers themselves are written without them, for speed.

tests/test_web_api.py holds the two equal.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel

from batchline.web.question import Name, Tokens  # noqa: TC001  (pydantic reads them)

__all__ = [
    "AcceleratorRow",
    "Choices",
    "CurveReply",
    "Health",
    "Measured",
    "MeasuredReply",
    "ModelQuery",
    "ModelRow",
    "PriceRow",
    "Problem",
    "Record",
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


class Record(RootModel[dict[str, Any]]):
    """Keys and values as the command line's --json prints them."""


class Health(BaseModel):
    """The server answers."""

    status: str
    version: str


class Problem(_Model):
    """An error: what was given, what is allowed, what to do next."""

    problem: str
    allowed: str
    hint: str
    kind: str | None = Field(default=None, description="Name of the error, as in batchline.errors.")
    field: str | None = Field(default=None, description="The field at fault.")
    missing_bytes: float | None = Field(default=None, description="Bytes missing on each device [B].")
    smallest_count: int | None = Field(default=None, description="Devices that would hold the model [device].")
    layout: dict[str, int] | None = Field(default=None, description="Parallel degrees of these devices.")


class ModelQuery(BaseModel):
    """How a model is sized."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    context: Tokens = Field(default=32768, description="Context at which a sequence is sized [token].")
    weights: Name | None = Field(default=None, description="Number format of the weights.")
    kv: Name = Field(default="bf16", description="Number format of the KV cache.")


class ModelRow(_Model):
    """A model of the catalogue."""

    name: str
    hf_id: str
    aliases: list[str]
    family: str
    source: str
    date: str
    total_params: int
    active_params: float
    max_context: int | None
    weights: str


class AcceleratorRow(_Model):
    """An accelerator of the catalogue."""

    name: str
    vendor: str
    memory_bytes: float
    bandwidth: float
    bf16_flops: float | None
    fp8_flops: float | None
    int8_flops: float | None
    fp4_flops: float | None
    usd_per_device_hour: float | None
    source: str
    date: str


class PriceRow(_Model):
    """A price that somebody quotes."""

    accelerator: str
    provider: str
    usd_per_hour: float
    date: str
    source: str


class Choices(BaseModel):
    """Names that a question may use."""

    weights: list[str]
    kv: list[str]
    engine: list[str]
    reading: list[str]


class Point(_Model):
    """One batch."""

    batch: float
    t_compute_s: float
    t_weights_s: float
    t_kv_s: float
    t_memory_s: float
    t_step_s: float
    tokens_per_s_per_user: float
    output_tokens_per_s: float
    usd_per_mtok: float | None
    mfu: float
    mbu: float
    bound_by: str


class Optimum(BaseModel):
    """The batch to run."""

    batch: int
    t_step_s: float
    usd_per_mtok: float | None
    binds: str
    reason: str


class CurveReply(_Model):
    """What `batchline curve --json` prints; docs/nomenclature.md has every name."""

    model: str
    accelerator: str
    count: int
    tp: int
    pp: int
    dp: int
    ep: int
    weights: str
    kv: str
    context: float
    usd_per_hour: float | None
    reading: str
    latency_floor_s: float
    cost_floor_usd_per_mtok: float | None
    knee_batch: float | None
    balance_context: float | None
    capacity_batch: float | None
    step_limit_s: float | None
    optimum: Optimum
    points: list[Point]


class Measured(BaseModel):
    """A measured point to show."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch: Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]
    t_step_s: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]


class MeasuredReply(BaseModel):
    """Points of a result file."""

    file: str
    points: list[dict[str, Any]]
