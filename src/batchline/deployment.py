"""A model on accelerators: what each device holds and reads, how many sequences fit.

The article's formulas speak of one machine with one bandwidth. A deployment of G = TP x PP x DP devices becomes that
machine by counting the bytes that all its devices really read, copies included: `bandwidth` and `flops` are G times
those of a device, and what is replicated (weights under attention DP, KV heads when TP exceeds them, MLA latents) is
counted as often as it is read. A batch of B runs as PP micro-batches that pass the stages one after the other.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from batchline import engine as engines
from batchline import memory, precision, price, roofline
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.errors import DoesNotFitError, InputError, MissingFactError, UnknownNameError
from batchline.strings import Sentence
from batchline.units import format_bytes, parse_devices

if TYPE_CHECKING:
    from batchline.price import Price
    from batchline.roofline import Floats

__all__ = ["Deployment", "capacity_batch"]

_LONGEST = 32_768  # a request's limit where a model states none; only workspace depends on it [token]


def capacity_batch(memory: Floats, utilization: Floats, weight_bytes: Floats, stored_bytes: Floats) -> Floats:
    r"""Sequences whose KV cache fits, :math:`\lfloor (u\,C - W) / kv_{seq} \rfloor`.

    Parameters
    ----------
    memory : float or array
        Memory [B].
    utilization : float or array
        Share of it that the server uses [-].
    weight_bytes : float or array
        Weights resident in that memory [B].
    stored_bytes : float or array
        KV cache and state that one sequence keeps in that memory [B].

    Returns
    -------
    float or array
        Whole sequences [sequence]; 0 when not even one fits; infinite when a sequence stores nothing.

    Examples
    --------
    Llama-3-70B in bf16 on four 80 GB devices at 2,335 tokens a sequence:

    >>> int(capacity_batch(4 * 80e9, 0.9, 141.1e9, 2335 * 327680))
    191
    """
    free = np.maximum(0.0, np.asarray(memory * utilization - weight_bytes, dtype=float))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        room = np.where(np.asarray(stored_bytes) > 0, np.floor(free / stored_bytes), np.inf)
    return float(room) if room.ndim == 0 else room


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A model on `count` accelerators, with the formats and the layout it is served in.

    Parameters
    ----------
    architecture : Architecture
        The model.
    accelerator : Accelerator
        One device.
    count : int
        Devices [device]; tp x pp x dp.
    weights : str or None
        Number format of the weights; None keeps the checkpoint's own.
    kv : str
        Number format of the KV cache.
    tp, pp, dp : int or None
        Tensor, pipeline and attention-data parallel degrees; tp None takes what the others leave of `count`.
    ep : int
        Expert-parallel degree: over how many devices whole experts are spread.
    engine, engine_version : str
        Serving engine, for the reading "predict": "vllm", "sglang", "trtllm", "llama.cpp", ...; version if it matters.
    price : Price or None
        What one device costs; None when it is not known.
    request : engine.Request
        Knobs of the engine that decide its memory; None in them is the engine's default.

    Raises
    ------
    InputError
        The layout does not multiply to `count`, or does not divide the model.
    """

    architecture: Architecture
    accelerator: Accelerator
    count: int = 1
    weights: str | None = None
    kv: str = "bf16"
    tp: int = 0
    pp: int = 1
    dp: int = 1
    ep: int = 1
    engine: str = "vllm"
    engine_version: str = ""
    price: Price | None = None
    request: engines.Request = field(default_factory=engines.Request)

    def __post_init__(self) -> None:
        for name in ("count", "pp", "dp", "ep"):
            if getattr(self, name) < 1:
                raise InputError(
                    Sentence("error.from_1", name=name, given=f"{getattr(self, name)}"),
                    "",
                    Sentence("error.write_from_1"),
                )
        if self.tp == 0:
            object.__setattr__(self, "tp", max(1, self.count // (self.pp * self.dp)))
        if self.tp * self.pp * self.dp != self.count:
            raise InputError(
                Sentence("error.degrees", tp=f"{self.tp}", pp=f"{self.pp}", dp=f"{self.dp}", count=f"{self.count}"),
                "",
                Sentence("error.choose_degrees", count=f"{self.count}"),
            )
        heads = self.architecture.q_heads
        if heads and heads % self.tp:
            fitting = [n for n in range(1, heads + 1) if heads % n == 0]
            raise InputError(
                Sentence("error.heads", tp=f"{self.tp}", heads=f"{heads}", model=self.architecture.name),
                Sentence("error.can_be", values=", ".join(map(str, fitting))),
                Sentence("error.other_devices"),
            )
        if self.pp > self.architecture.layers:
            layers, model = f"{self.architecture.layers}", self.architecture.name
            raise InputError(Sentence("error.stages", pp=f"{self.pp}", layers=layers, model=model))
        precision.kv_bytes_per_element(self.kv)

    @property
    def weights_name(self) -> str:
        """Number format of the weights, also when it is the checkpoint's own."""
        return self.weights or self.architecture.weight_format

    @property
    def title(self) -> Sentence:
        """Model, format and devices in a line."""
        return Sentence(
            "deployment.title",
            model=self.architecture.name,
            weights=self.weights_name,
            count=f"{self.count:,}",
            device=self.accelerator.name,
        )

    def titled(self, language: str = "en") -> str:
        """Name it in a line.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            Model, format and devices.

        Examples
        --------
        >>> Deployment.of("llama-3.1-8b", "h100").titled("ko")
        'llama-3.1-8b bf16, h100-sxm 1대'
        """
        return self.title.told(language)

    # -- what the article's formulas take, for the whole deployment -------------------------------------------------

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth of all devices [B/s]."""
        return self.count * self.accelerator.bandwidth

    @cached_property
    def math(self) -> str:
        """Number format in which the weights are multiplied: weight-only formats compute in bf16."""
        return self.architecture.math_format(self.weights)

    @cached_property
    def flops(self) -> float:
        """Dense rate of all devices in the format that the weights are multiplied in [FLOP/s].

        Raises
        ------
        MissingFactError
            The accelerator's rate in that format is not known.
        """
        return self.count * self.accelerator.flops_for(self.math)

    @property
    def usd_per_hour(self) -> float | None:
        """Median price of all devices [USD/h], or None."""
        return None if self.price is None else self.count * self.price.median

    @cached_property
    def step_bytes(self) -> tuple[float, float]:
        """Bytes of weights that a step reads, one copy of each: those that every token needs, routed experts [B]."""
        return self.architecture.step_weight_bytes(self.weights)

    def step_weight_bytes(self, batch: Floats) -> Floats:
        """Bytes of weights that all devices read in one step.

        Parameters
        ----------
        batch : float or array
            Sequences decoded together in the whole deployment [sequence].

        Returns
        -------
        float or array
            Bytes [B]. Attention DP reads what is not a routed expert once per rank; pipeline stages read their part
            once per micro-batch; of the routed experts only those that the batch touches are read.
        """
        shared, routed = self.step_bytes
        read = shared * self.dp * self.pp
        if routed == 0:
            return read if np.ndim(batch) == 0 else np.full(np.shape(batch), read)
        arch = self.architecture
        coverage = roofline.expert_coverage(batch / self.pp, arch.experts, arch.experts_per_token)
        return read + routed * self.pp * coverage

    def kv_read_bytes(self, context: Floats) -> Floats:
        """Bytes of KV cache and state that all devices read in one step for one sequence.

        Parameters
        ----------
        context : float or array
            Tokens of context [token].

        Returns
        -------
        float or array
            Bytes [B]; for plain attention L kv, times the copies where tensor parallelism replicates heads.
        """
        return self.tp * memory.kv_read_bytes_per_device(self.architecture, context, self.kv, tp=self.tp)

    # -- what fits --------------------------------------------------------------------------------------------------

    @cached_property
    def account(self) -> engines.Account:
        """What the engine says about memory when it starts: weights, workspace and room for KV cache on one device."""
        longest = self.request.max_model_len or self.architecture.max_context or _LONGEST
        return engines.account(
            self.architecture,
            self.accelerator,
            engines.Engine.load(self.engine, self.engine_version or None),
            weights=self.weights,
            kv=self.kv,
            tp=self.tp,
            pp=self.pp,
            dp=self.dp,
            ep=self.ep,
            request=replace(self.request, max_model_len=longest),
        )

    @property
    def weight_bytes_per_device(self) -> float:
        """Weights resident on the fullest device, copies counted [B]."""
        return self.account.weight_bytes

    def stored_bytes_per_device(self, context: Floats) -> Floats:
        """KV cache and state that one sequence keeps on one device of its DP rank.

        Parameters
        ----------
        context : float or array
            Tokens of context [token].

        Returns
        -------
        float or array
            Bytes [B].
        """
        return memory.kv_bytes_per_device(self.architecture, context, self.kv, tp=self.tp, pp=self.pp)

    def capacity_batch(self, context: Floats) -> Floats:
        """Sequences whose KV cache fits in the whole deployment.

        Parameters
        ----------
        context : float or array
            Mean tokens of context of a sequence [token].

        Returns
        -------
        float or array
            Whole sequences [sequence]; infinite when a sequence stores nothing.
        """
        if np.ndim(context):
            return np.array([float(self.capacity_batch(float(one))) for one in np.ravel(context)]).reshape(
                np.shape(context)
            )
        if float(self.stored_bytes_per_device(context)) == 0:
            return np.inf if self.account.kv_bytes > 0 else 0.0
        return float(self.account.capacity_batch(float(context)))

    def check_fits(self, context: float) -> None:
        """Refuse a deployment that cannot hold the weights and one sequence.

        Parameters
        ----------
        context : float
            Tokens of context of that sequence [token].

        Raises
        ------
        DoesNotFitError
            With the bytes that are missing on each device and the smallest count that fits.
        """
        if self.capacity_batch(context) >= 1:
            return
        stored = float(self.stored_bytes_per_device(context))
        missing = stored - self.account.kv_bytes
        account = self.account
        workspace = account.activation_bytes + account.non_torch_bytes + account.graph_bytes
        fits, name = self.smallest_layout(context), self.accelerator.name
        if fits is None:
            hint = Sentence("error.none_holds", device=name)
        else:
            degrees = {degree: f"{size}" for degree, size in fits.items()}
            key = "would_hold" if fits["pp"] == 1 else "would_hold_staged"
            hint = Sentence(f"error.{key}", count=f"{fits['tp'] * fits['pp']}", device=name, **degrees)
        raise DoesNotFitError(
            Sentence(
                "error.does_not_fit",
                model=self.architecture.name,
                count=f"{self.count}",
                device=name,
                missing=format_bytes(missing),
                budget=format_bytes(account.budget_bytes),
                engine=account.engine.title,
                weights=format_bytes(account.weight_bytes),
                workspace=format_bytes(workspace),
                context=f"{context:,.0f}",
                stored=format_bytes(stored),
            ),
            "",
            Sentence("error.smaller", fits=hint),
            missing_bytes=missing,
            layout=fits,
        )

    def smallest_layout(self, context: float) -> dict[str, int] | None:
        """Find the fewest devices that hold the weights and one sequence, by tensor and then pipeline parallelism.

        Parameters
        ----------
        context : float
            Tokens of context of that sequence [token].

        Returns
        -------
        dict or None
            Degrees `tp` and `pp` [-]; None when 1,024 devices are not enough.
        """
        heads = self.architecture.q_heads or 1
        for count in range(1, 1025):
            limit = min(count, self.accelerator.scale_up_domain or count)
            degrees = [tp for tp in range(1, limit + 1) if count % tp == 0 and heads % tp == 0]
            for tp in reversed(degrees):
                if count // tp > self.architecture.layers:
                    continue
                trial = replace(self, count=count, tp=tp, pp=count // tp, dp=1, ep=1)
                if trial.capacity_batch(context) >= 1:
                    return {"tp": tp, "pp": count // tp}
        return None

    @classmethod
    def of(
        cls,
        model: str | Architecture,
        on: str | Accelerator,
        *,
        usd_per_device_hour: float | None = None,
        **options: Any,
    ) -> Self:
        """Name a deployment as on the command line.

        Parameters
        ----------
        model : str or Architecture
            Catalogue name, path, or an architecture.
        on : str or Accelerator
            Like "4xh100", or an accelerator.
        usd_per_device_hour : float, optional
            Price of one device [USD/h]; by default the catalogue's, if it has one.
        **options
            As of `Deployment`.

        Returns
        -------
        Deployment
            Ready for `batchline.sweep.curve`.

        Examples
        --------
        >>> d = Deployment.of("llama-3.1-70b", "4xh100", weights="fp8")
        >>> d.count, d.tp, d.architecture.name
        (4, 4, 'llama-3.1-70b')
        """
        architecture = model if isinstance(model, Architecture) else Architecture.load(model)
        if isinstance(on, str):
            count, name = parse_devices(on)
            options.setdefault("count", count)
            on = Accelerator.load(name)
        if usd_per_device_hour is not None:
            options["price"] = price.given(usd_per_device_hour)
        elif "price" not in options:
            # What nobody quotes has no cost: the answer then speaks of time alone.
            with contextlib.suppress(MissingFactError, UnknownNameError):
                options["price"] = price.load(on.name)
        return cls(architecture=architecture, accelerator=on, **options)
