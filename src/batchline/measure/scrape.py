"""Where a running server sits on its curve, read from its own metrics without sending it anything.

The batch comes from counters and is exact: output tokens over engine steps. The mean gap between tokens is not the
time of a step: when prompts are prefilled in bursts it is up to 2.7 times as long. With several scrapes the gap is
regressed on the batch and on the prefilled tokens of a step, and the step is what is left without prefill; with two,
the long gaps are cut off at the histogram's buckets, and the range says how well that can be known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from batchline.errors import MeasurementError
from batchline.measure.gaps import Batches, Step, batches_of, step_of
from batchline.measure.point import MeasuredPoint
from batchline.measure.prometheus import Snapshot
from batchline.measure.window import Window, engine_of, engines, metric_names, model_of
from batchline.strings import Sentence
from batchline.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ServerState", "describe", "engines", "metric_names", "read"]

_FULL_KV: Final = 0.95


@dataclass(frozen=True, kw_only=True)
class ServerState:
    """Where a server sits, over a stretch of time. What its metrics do not say is None.

    Parameters
    ----------
    engine, model : str
        Which.
    duration_s : float or None
        Length of the stretch [s].
    running_batch : float
        Sequences decoded together, mean over steps [sequence].
    waiting : float or None
        Requests waiting, mean [request].
    kv_use : float or None
        Share of the KV cache in use, mean [-].
    context : float or None
        Mean tokens of context of a running sequence [token].
    t_step_s : float or None
        Decode step without prefill [s].
    t_step_low_s, t_step_high_s : float or None
        Range in which it lies [s].
    method : str
        How it was found.
    itl_mean_s : float or None
        Mean gap between tokens, prefill included [s].
    slope_s : float or None
        What one more sequence adds to a step [s/sequence].
    prefill_s_per_token : float or None
        What one more prefilled token adds to a step [s/token].
    prefill_tokens_per_step : float or None
        Prompt tokens computed, over steps [token].
    prefill_share : float or None
        Share of a token's time that goes to the prompts of others [-].
    cached_share : float or None
        Share of the prompt tokens that came from a cache [-].
    ttft_mean_s : float or None
        Mean time to first token [s].
    isl, osl : float or None
        Mean lengths of the requests that ended [token].
    output_tokens_per_s : float or None
        Output of the whole server [token/s].
    steps : float or None
        Engine steps in the stretch [-].
    preempted : float
        Requests evicted for lack of KV blocks [request].
    engines : int
        Engines whose counters were added (data parallel) [-].
    saturated_by : str
        `kv`, `max_num_seqs`, `prefill` or `none`.
    reason : str
        Why, in words.
    """

    engine: str
    model: str
    duration_s: float | None
    running_batch: float
    waiting: float | None
    kv_use: float | None
    context: float | None
    t_step_s: float | None
    t_step_low_s: float | None
    t_step_high_s: float | None
    method: str
    itl_mean_s: float | None
    slope_s: float | None
    prefill_s_per_token: float | None
    prefill_tokens_per_step: float | None
    prefill_share: float | None
    cached_share: float | None
    ttft_mean_s: float | None
    isl: float | None
    osl: float | None
    output_tokens_per_s: float | None
    steps: float | None
    preempted: float
    engines: int
    saturated_by: str
    reason: str

    def point(self, file: str = "") -> MeasuredPoint:
        """Write the stretch as a measured point.

        Parameters
        ----------
        file : str
            Where the metrics came from.

        Returns
        -------
        MeasuredPoint
            A decode step when it could be told from prefill; otherwise the mean gap, as served.

        Raises
        ------
        MeasurementError
            There is no time of a token in the metrics.
        """
        if self.t_step_s is None and self.itl_mean_s is None:
            raise MeasurementError(Sentence("error.no_times_in_metrics", engine=self.engine))
        spread = None
        if self.t_step_s and self.t_step_low_s is not None and self.t_step_high_s is not None:
            spread = (self.t_step_high_s - self.t_step_low_s) / 2 / self.t_step_s
        return MeasuredPoint(
            regime="decode" if self.t_step_s else "serving",
            batch=self.running_batch,
            context=self.context,
            t_step_s=self.t_step_s,
            tpot_s=self.itl_mean_s,
            tpot_mean_s=self.itl_mean_s,
            ttft_s=self.ttft_mean_s,
            ttft_mean_s=self.ttft_mean_s,
            isl=self.isl,
            osl=self.osl,
            duration_s=self.duration_s,
            samples=None if self.steps is None else round(self.steps),
            spread=spread,
            cached_share=self.cached_share,
            statistic="mean",
            arrival="rate",
            engine=self.engine,
            model=self.model,
            dp=self.engines if self.engines > 1 else None,
            tool="metrics",
            file=file,
            label=f"batch {self.running_batch:.3g}",
            converted=(self.method,) if self.method else (),
        )

    def advice(self) -> list[str]:
        """Say what the next knob would buy, from the measured slopes alone.

        Returns
        -------
        list of str
            Sentences; empty when nothing was measured that would say so.
        """
        lines: list[str] = []
        if self.kv_use and self.kv_use > 0:
            full = self.running_batch / self.kv_use / self.engines
            lines.append(Sentence("measure.full_at", count=f"{full:,.0f}"))
        if self.slope_s is not None and self.t_step_s:
            longer = (self.t_step_s + self.slope_s * self.running_batch) / self.t_step_s
            lines.append(Sentence("measure.twice", longer=f"{longer:.2f}", more=f"{2 / longer:.2f}"))
        if self.prefill_share is not None and self.prefill_share > 0.1:
            lines.append(Sentence("measure.prompts_take", share=f"{self.prefill_share:.0%}"))
        return lines


def read(snapshots: Sequence[Snapshot], model: str | None = None) -> ServerState:
    """Say where a server sits, from two or more snapshots; one is taken since the server's start.

    Parameters
    ----------
    snapshots : sequence of Snapshot
        By time.
    model : str, optional
        Which model, where the server has several.

    Returns
    -------
    ServerState
        Batch, step and what bounds it.

    Raises
    ------
    MeasurementError
        No engine that is known, several models, a restart in between, or nothing was generated.
    """
    if not snapshots:
        raise MeasurementError(Sentence("error.no_metrics"))
    alone = len(snapshots) == 1
    if alone:
        zero = {name: tuple((labels, 0.0) for labels, _ in series) for name, series in snapshots[0].series.items()}
        snapshots = [Snapshot(snapshots[0].at_s, zero), snapshots[0]]
    engine = engine_of(snapshots)
    model = model_of(snapshots, engine, model)
    window = Window(snapshots, engine, model)
    batches = batches_of(window, engine)
    step = step_of(window, batches)
    return _state(window, engine, model or "", batches, step, alone=alone)


def _state(window: Window, engine: str, model: str, batches: Batches, step: Step, *, alone: bool) -> ServerState:
    duration = None if alone else window.snapshots[-1].at_s - window.snapshots[0].at_s or None
    steps = None if batches.steps is None else float(batches.steps.sum())
    prompts, cached = window.rise("prompt_tokens"), window.rise("cached_tokens")
    share = cached / (cached + prompts) if cached is not None and prompts is not None and cached + prompts > 0 else None
    kv_use = _kv_use(window)
    waiting = None if alone else window.level("waiting")
    preempted = window.rise("preempted") or 0.0
    saturated, reason = _saturation(kv_use, waiting, preempted, step.prefill_share)
    return ServerState(
        engine=engine,
        model=model,
        duration_s=duration,
        running_batch=batches.mean,
        waiting=waiting,
        kv_use=None if alone else kv_use,
        context=None if alone else _context(window, kv_use),
        t_step_s=step.t,
        t_step_low_s=step.low,
        t_step_high_s=step.high,
        method=step.method,
        itl_mean_s=step.mean,
        slope_s=step.slope,
        prefill_s_per_token=step.per_token,
        prefill_tokens_per_step=prompts / steps if prompts is not None and steps else None,
        prefill_share=step.prefill_share,
        cached_share=share,
        ttft_mean_s=window.ratio("ttft"),
        isl=window.ratio("prompt_length"),
        osl=window.ratio("output_length"),
        output_tokens_per_s=batches.tokens / duration if duration and batches.tokens else None,
        steps=steps,
        preempted=preempted,
        engines=batches.engines,
        saturated_by="none" if alone else saturated,
        reason=Sentence("measure.since_start") if alone else reason,
    )


def _kv_use(window: Window) -> float | None:
    used = window.level("kv_use", total=False)
    if used is not None:
        return used
    blocks, most = window.level("kv_blocks"), window.level("kv_max_blocks")
    return blocks / most if blocks is not None and most else None


def _kv_tokens(window: Window, kv_use: float | None) -> float | None:
    tokens = window.level("kv_tokens")
    if tokens is not None:
        return tokens
    blocks, size = window.level("kv_blocks"), window.level("kv_block_size", total=False)
    if blocks is not None and size is not None:
        return blocks * size
    capacity = window.level("kv_capacity") or _vllm_capacity(window)
    return kv_use * capacity if kv_use is not None and capacity else None


def _vllm_capacity(window: Window) -> float | None:
    name = window.chosen("cache_config")
    if name is None:
        return None
    total = 0.0
    for labels, _ in window.snapshots[-1].series[name.metric]:
        found: dict[str, Any] = dict(labels)
        blocks, size = found.get("num_gpu_blocks", ""), found.get("block_size", "")
        if not blocks.isdigit() or not size.isdigit():
            return None
        total += float(blocks) * float(size)
    return total


def _context(window: Window, kv_use: float | None) -> float | None:
    tokens, running = _kv_tokens(window, kv_use), window.level("running")
    return tokens / running if tokens and running else None


def _saturation(
    kv_use: float | None, waiting: float | None, preempted: float, prefill: float | None
) -> tuple[str, str]:
    queued = waiting is not None and waiting >= 0.5
    if preempted > 0:
        return "kv", Sentence("measure.evicted", count=f"{preempted:,.0f}")
    if queued and kv_use is not None and kv_use >= _FULL_KV:
        return "kv", Sentence("measure.wait_kv", count=f"{waiting:.3g}", share=f"{kv_use:.0%}")
    if prefill is not None and prefill > 0.5:
        return "prefill", Sentence("measure.prefill_binds", share=f"{prefill:.0%}")
    if queued and kv_use is None:
        return "max_num_seqs", Sentence("measure.wait_limit", count=f"{waiting:.3g}")
    if queued:
        return "max_num_seqs", Sentence("measure.wait_limit_kv", count=f"{waiting:.3g}", share=f"{kv_use:.0%}")
    return "none", Sentence("measure.nothing_waits")


def describe(state: ServerState) -> str:
    """Say in one sentence where a server sits.

    Parameters
    ----------
    state : ServerState
        What was read.

    Returns
    -------
    str
        Batch, step and context.
    """
    step = Sentence("measure.unknown_time") if state.t_step_s is None else format_time(state.t_step_s)
    fields = {"engine": state.engine, "batch": f"{state.running_batch:.3g}", "step": step}
    if state.context is None:
        return Sentence("measure.sits", **fields)
    return Sentence("measure.sits_context", **fields, context=f"{state.context:,.0f}")
