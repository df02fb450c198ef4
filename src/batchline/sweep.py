"""The article's curves for a deployment: every quantity of a step over the batch (or over the context), as arrays.

`steps` gives the times of one step, `curve` the whole answer: arrays, floors, knee, capacity and the optimum.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from batchline import choice, roofline
from batchline.errors import InputError
from batchline.notebook import Shown
from batchline.readings import Steps, steps
from batchline.strings import Sentence, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from batchline.deployment import Deployment
    from batchline.prior import Prior
    from batchline.roofline import Floats

__all__ = [
    "Curve",
    "as_batches",
    "balance_context",
    "context_sweep",
    "cost_floor_usd_per_mtok",
    "curve",
    "default_batches",
    "knee_batch",
    "plot_batches",
    "records",
]


def knee_batch(deployment: Deployment, context: float) -> float | None:
    """Batch at which compute overtakes memory: `roofline.knee_batch`, followed down as fewer experts are touched.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    context : float
        Mean tokens of context of a sequence [token].

    Returns
    -------
    float or None
        Sequences [sequence]; None when memory decides at every batch.
    """
    kv = deployment.kv_read_bytes(context)
    active = deployment.architecture.active_params

    def crossing(weight_bytes: float) -> float:
        return float(roofline.knee_batch(weight_bytes, active, deployment.flops, 1.0, kv, deployment.bandwidth))

    knee = crossing(float(deployment.step_weight_bytes(np.inf)))
    if not np.isfinite(knee):
        return None
    # A mixture reads fewer experts at a smaller batch. The crossing is unique (bytes per sequence fall with the batch)
    # and the steps approach it from above, each by at least the share of bytes that the last one saved.
    for _ in range(10_000):
        following = crossing(float(deployment.step_weight_bytes(knee)))
        if abs(following - knee) <= 1e-13 * knee:
            break
        knee = following
    return knee


def balance_context(deployment: Deployment) -> float | None:
    """Context at which the KV fetch and the compute of a sequence take equally long; the batch does not matter.

    Parameters
    ----------
    deployment : Deployment
        What serves.

    Returns
    -------
    float or None
        Tokens [token]; 0 when a constant state alone outweighs compute, None when the bytes read never do (windows).
    """
    active = deployment.architecture.active_params
    context = 1e4
    # For plain attention the second step is exact; windows, top-k and states need a few more.
    for _ in range(10_000):
        per_token = float(deployment.kv_read_bytes(context)) / context
        following = float(roofline.balance_context(active, deployment.flops, per_token, deployment.bandwidth))
        if following > 1e12:
            return None
        if following < 1e-6:
            return 0.0
        if abs(following - context) <= 1e-12 * context:
            return following
        context = following
    return context


def cost_floor_usd_per_mtok(deployment: Deployment, context: float, reading: str) -> float | None:
    """Cost of a million tokens that no batch gets below.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    context : float
        Mean tokens of context of a sequence [token].
    reading : str
        "bound" or "serial".

    Returns
    -------
    float or None
        Dollars per million tokens [USD/Mtoken]; None without a price.
    """
    if deployment.usd_per_hour is None:
        return None
    floor = roofline.cost_floor(
        deployment.architecture.active_params,
        deployment.flops,
        1.0,
        deployment.kv_read_bytes(context),
        deployment.bandwidth,
        serial=reading == "serial",
    )
    return float(roofline.usd_per_mtok(floor, 1.0, deployment.usd_per_hour))


@dataclass(frozen=True, kw_only=True)
class Curve(Steps, Shown):
    """Steps over the batch, with floors, knee, capacity and the optimum.

    The arrays (see `Steps`) have one entry per batch; `priors` made them in "predict" (None: those that the package
    ships).
    """

    deployment: Deployment
    context: float
    latency_floor: float
    cost_floor_usd_per_mtok: float | None
    knee_batch: float | None
    balance_context: float | None
    capacity_batch: float
    step_limit: float | None
    optimum: choice.Optimum
    priors: Prior | None = None

    @property
    def usd_per_hour(self) -> float | None:
        """Price of the whole deployment [USD/h]."""
        return self.deployment.usd_per_hour

    @property
    def title(self) -> str:
        """Model, format, devices, context and price in a line."""
        return self.titled()

    def titled(self, language: str = "en") -> str:
        """Name it in a line.

        Parameters
        ----------
        language : str
            "en" or "ko".

        Returns
        -------
        str
            Model, format, devices, context and, if known, price.
        """
        fields = {"deployment": self.deployment.titled(language), "context": f"{self.context:,.0f}"}
        if self.usd_per_hour is None:
            return text("deployment.at_context", language, **fields)
        return text("deployment.at_price", language, **fields, price=f"${self.usd_per_hour:,.2f}")

    def over(self, batch: Any) -> Curve:
        """Give the same answer over other batches.

        Parameters
        ----------
        batch : array-like
            As of `curve` [sequence].

        Returns
        -------
        Curve
            Other arrays; floors, knee, capacity and optimum stay.
        """
        found = steps(self.deployment, self.context, as_batches(batch), self.reading, self.priors)
        return dataclasses.replace(self, **vars(found))

    def to_records(self) -> list[dict[str, Any]]:
        """One record per batch, with the names of the JSON output.

        Returns
        -------
        list of dict
            Times in [s], cost in [USD/Mtoken] or None.
        """
        return records(self)

    def to_frame(self, backend: Literal["polars", "pandas", "pyarrow"] = "polars") -> Any:
        """Give the records as a data frame of a library that is installed.

        Parameters
        ----------
        backend : str
            "polars", "pandas" or "pyarrow".

        Returns
        -------
        frame
            A native frame of that library, a row per batch.
        """
        import narwhals as nw  # noqa: PLC0415  (only frames need it)

        rows = self.to_records()
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return nw.from_dict(columns, backend=backend).to_native()

    def to_dict(self) -> dict[str, Any]:
        """Give everything, with the names of the JSON output.

        Returns
        -------
        dict
            `points` and the scalars; see docs/nomenclature.md.
        """
        return {
            "model": self.deployment.architecture.name,
            "accelerator": self.deployment.accelerator.name,
            "count": self.deployment.count,
            "tp": self.deployment.tp,
            "pp": self.deployment.pp,
            "dp": self.deployment.dp,
            "ep": self.deployment.ep,
            "weights": self.deployment.weights_name,
            "kv": self.deployment.kv,
            "context": self.context,
            "usd_per_hour": self.usd_per_hour,
            "reading": self.reading,
            "latency_floor_s": self.latency_floor,
            "cost_floor_usd_per_mtok": self.cost_floor_usd_per_mtok,
            "knee_batch": self.knee_batch,
            "balance_context": self.balance_context,
            "capacity_batch": self.capacity_batch if np.isfinite(self.capacity_batch) else None,
            "step_limit_s": self.step_limit,
            "optimum": self.optimum.to_dict(),
            "points": self.to_records(),
        } | ({} if self.prediction is None else {"provenance": self.prediction.provenance.to_dict()})


def records(steps_: Steps) -> list[dict[str, Any]]:
    """One record per step, with the names of the JSON output.

    Parameters
    ----------
    steps_ : Steps
        Arrays over the batch.

    Returns
    -------
    list of dict
        Times in [s], cost in [USD/Mtoken] or None; `predict` with interval and terms in that reading.
    """
    cost = steps_.usd_per_mtok
    rows: list[dict[str, Any]] = [
        {
            "batch": int(batch) if float(batch).is_integer() else float(batch),
            "t_compute_s": float(steps_.t_compute[i]),
            "t_weights_s": float(steps_.t_weights[i]),
            "t_kv_s": float(steps_.t_kv[i]),
            "t_memory_s": float(steps_.t_memory[i]),
            "t_step_s": float(steps_.t_step[i]),
            "tokens_per_s_per_user": float(1.0 / steps_.t_step[i]),
            "output_tokens_per_s": float(batch / steps_.t_step[i]),
            "usd_per_mtok": None if cost is None else float(cost[i]),
            "mfu": float(steps_.mfu[i]),
            "mbu": float(steps_.mbu[i]),
            "bound_by": steps_.bound_by[i],
        }
        for i, batch in enumerate(steps_.batch)
    ]
    if steps_.prediction is not None:
        for i, row in enumerate(rows):
            row["predict"] = _predicted(steps_, i)
    return rows


def _predicted(steps_: Steps, i: int) -> dict[str, Any]:
    found = steps_.prediction
    if found is None:
        return {}
    return {
        "t_step_s": float(steps_.t_step[i]),
        "low_s": float(found.low[i]),
        "high_s": float(found.high[i]),
        "bound_s": float(found.bound[i]),
        "terms": {name: float(part[i]) for name, part in found.terms.items()},
    }


def default_batches(*marks: float | None) -> NDArray[np.float64]:
    """Powers of two up to 1,024 and past the marks, together with the marks.

    Parameters
    ----------
    *marks : float or None
        Batches that must be there: the optimum, the capacity; None is passed over [sequence].

    Returns
    -------
    array
        Whole batches in rising order [sequence].

    Examples
    --------
    >>> [int(b) for b in default_batches(142, 300)]
    [1, 2, 4, 8, 16, 32, 64, 128, 142, 256, 300, 512, 1024]
    """
    known = [int(mark) for mark in marks if mark is not None and 1 <= mark < 2**40]
    last = max([1024, *known])
    powers = [2**power for power in range(last.bit_length() + 1) if 2**power <= last]
    return np.array(sorted({*powers, *known}), dtype=float)


def plot_batches(curve_: Curve) -> NDArray[np.float64]:
    """Batches for a smooth plot: past the capacity and the knee, so that both are seen in their place.

    Parameters
    ----------
    curve_ : Curve
        The answer to be drawn.

    Returns
    -------
    array
        About 240 batches, evenly spaced on a logarithmic axis, with the optimum among them [sequence].
    """
    marks = [curve_.capacity_batch, curve_.knee_batch or 1.0, 64.0]
    last = 4 * max(mark for mark in marks if np.isfinite(mark))
    spread = np.geomspace(1, 2.0 ** np.ceil(np.log2(last)), 240)
    return np.unique(np.concatenate([spread, [curve_.optimum.batch]]))


def as_batches(batch: Any) -> NDArray[np.float64]:
    """Read batches from a number, a list, an array, or a column of any data frame.

    Parameters
    ----------
    batch : number, sequence, array or column
        What was given [sequence].

    Returns
    -------
    array
        One dimension [sequence].

    Raises
    ------
    InputError
        A batch below 1 or not a number.
    """
    if not isinstance(batch, (int, float, list, tuple, range, np.ndarray)):
        import narwhals as nw  # noqa: PLC0415  (only frames need it)

        batch = nw.from_native(batch, series_only=True).to_numpy()
    values = np.atleast_1d(np.asarray(batch, dtype=float)).ravel()
    if values.size == 0 or not np.all(np.isfinite(values)) or np.any(values < 1):
        raise InputError(Sentence("error.batch_from_1", given=f"{batch}"), "", Sentence("error.write_batch_list"))
    return values


def curve(
    deployment: Deployment,
    context: float = 4096,
    batch: Any = None,
    *,
    reading: str = "bound",
    step_limit: float | None = None,
    within: float | None = None,
    max_batch: float | None = None,
    priors: Prior | None = None,
) -> Curve:
    """Answer for a deployment at a context: the curves over the batch and the batch to run.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    context : float
        Mean tokens of context of a sequence [token].
    batch : array-like, optional
        Batches to evaluate [sequence]: a number, list, array or column of a data frame. By default powers of two, with
        the optimum and the capacity among them.
    reading : str
        "bound", "serial" or "predict".
    step_limit : float, optional
        Longest step allowed [s].
    within : float, optional
        Take the smallest batch whose cost is within this share of its floor [-].
    max_batch : float, optional
        Largest batch allowed, like an engine's max_num_seqs [sequence].
    priors : Prior, optional
        Coefficients for "predict", such as `Profile.prior()`; by default those that the package ships.

    Returns
    -------
    Curve
        Arrays over the batch, and scalars.

    Raises
    ------
    InputError
        A batch below 1 or a negative context.
    DoesNotFitError
        The weights and one sequence do not fit.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> c = curve(Deployment.of("llama-3.1-8b", "h100"), context=2048, batch=[1, 128])
    >>> [f"{t * 1e3:.2f} ms" for t in c.t_step]
    ['4.56 ms', '14.74 ms']
    """
    if not context >= 0:
        raise InputError(Sentence("error.context_from_0", given=f"{context}"))
    deployment.check_fits(context)
    best = choice.optimum(
        deployment,
        context,
        reading=reading,
        step_limit=step_limit,
        within=within,
        max_batch=max_batch,
        priors=priors,
    )
    capacity = float(deployment.capacity_batch(context))
    batches = default_batches(best.batch, capacity) if batch is None else as_batches(batch)
    found = steps(deployment, context, batches, reading, priors)
    return Curve(
        **vars(found),
        deployment=deployment,
        context=context,
        latency_floor=float(roofline.t_weights(deployment.step_weight_bytes(1.0), deployment.bandwidth)),
        cost_floor_usd_per_mtok=cost_floor_usd_per_mtok(deployment, context, reading),
        knee_batch=knee_batch(deployment, context),
        balance_context=balance_context(deployment),
        capacity_batch=capacity,
        step_limit=step_limit,
        optimum=best,
        priors=priors,
    )


def context_sweep(
    deployment: Deployment,
    batch: float,
    contexts: Sequence[float] | Floats,
    *,
    reading: str = "bound",
    priors: Prior | None = None,
) -> Steps:
    """Step at one batch over the context.

    Parameters
    ----------
    deployment : Deployment
        What serves.
    batch : float
        Sequences decoded together [sequence].
    contexts : array-like
        Mean tokens of context of a sequence [token].
    reading : str
        "bound", "serial" or "predict".
    priors : Prior, optional
        As in `curve`.

    Returns
    -------
    Steps
        One entry per context.

    Raises
    ------
    InputError
        A context below 0, or a batch below 1.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> found = context_sweep(Deployment.of("llama-3.1-8b", "h100"), 8, [0, 4096])
    >>> bool(found.t_kv[0] == 0 < found.t_kv[1]), bool(found.t_weights[0] == found.t_weights[1])
    (True, True)
    """
    lengths = np.atleast_1d(np.asarray(contexts, dtype=float))
    if np.any(lengths < 0):
        raise InputError(Sentence("error.context_from_0", given=f"{lengths.min():g}"))
    (one,) = as_batches(batch)
    return steps(deployment, lengths, np.full(lengths.shape, one), reading, priors)
