"""All that the plots of one curve share: its sample, the axes, what money and the batch to run are, the words."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from batchline.chart.axis import Axis, linear_ticks, log_ticks
from batchline.chart.scene import Line, Mark, Rule, batch_text
from batchline.strings import text
from batchline.units import format_time, format_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from batchline.chart._sample import CurveLike, Sample

__all__ = ["HEIGHT", "PARTS", "Story", "answer", "headline", "milliseconds", "round_time"]

HEIGHT: Final = 240.0
"""Of a plot [px]."""

PARTS: Final = ("weights", "kv", "compute", "overhead", "communication")
"""What a step is made of, in the order of their lines."""


def milliseconds(seconds: float) -> str:
    """A time in the unit of the axes, three digits."""
    if seconds == 0:
        return "0 ms"
    places = 2 - int(np.floor(np.log10(seconds * 1e3)))
    return f"{seconds * 1e3:,.{min(max(places, 0), 9)}f} ms"


def round_time(seconds: float) -> str:
    """A time that somebody chose: "20 ms", not "20.0 ms"."""
    number, unit = format_time(seconds).split(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


@dataclass(frozen=True)
class Story:
    """A curve and how it is told.

    Parameters
    ----------
    curve : CurveLike
        What was computed.
    sample : Sample
        The same on the grid of the plots.
    x : Axis
        The batch axis.
    linear : bool
        The batch axis is linear.
    language : str
        "en" or "ko".
    measured : tuple of tuple
        Batch and seconds of a step, each measured.
    """

    curve: CurveLike
    sample: Sample
    x: Axis
    linear: bool
    language: str
    measured: tuple[tuple[float, float], ...] = ()

    def say(self, key: str, **fields: str) -> str:
        """Text of the catalogue in the language."""
        return text(f"chart.{key}", self.language, **fields)

    @property
    def batch(self) -> float:
        """The batch to run [sequence]."""
        return float(self.curve.optimum.batch)

    @property
    def per_token(self) -> float:
        """Time of a step for each of its tokens, at the batch to run [s]."""
        return self.curve.optimum.t_step / self.batch

    @property
    def price(self) -> float | None:
        """Dollars per million tokens for each second per token."""
        hourly = self.curve.usd_per_hour
        return None if hourly is None else hourly / 3600 * 1e6

    @property
    def unit(self) -> float:
        """Units of the plots of cost for each second per token: dollars per million tokens, or milliseconds."""
        return 1e3 if self.price is None else self.price

    @property
    def cost_floor(self) -> float:
        """Seconds per token that no batch gets below [s]."""
        cost, price = self.curve.cost_floor_usd_per_mtok, self.price
        if cost is not None and price:
            return cost / price
        parts = [self.sample.compute[-1], self.sample.kv[-1]]
        each = sum(parts) if self.curve.reading == "serial" else max(parts)
        return float(each / self.sample.batch[-1])

    @property
    def kv_is_floor(self) -> bool:
        """A sequence adds more KV fetch than compute."""
        return bool(self.sample.kv[-1] >= self.sample.compute[-1])

    @property
    def capacity(self) -> float | None:
        """Batch at which the KV cache is full, if the axis reaches it [sequence]."""
        capacity = self.curve.capacity_batch
        return capacity if np.isfinite(capacity) and capacity <= self.x.high else None

    @property
    def knee(self) -> float | None:
        """The knee, if the axis reaches it [sequence]."""
        knee = self.curve.knee_batch
        return knee if knee is not None and np.isfinite(knee) and self.x.inside(knee) else None

    @cached_property
    def latency_axis(self) -> Axis:
        """From 0 to somewhat above the step that matters most: that at the capacity, the optimum, or a near limit."""
        taken, curve = self.sample, self.curve
        edge = min(curve.capacity_batch, taken.batch[-1])
        top = max(taken.at(taken.step, edge), curve.optimum.t_step, curve.latency_floor)
        top = max(1.3 * top, 1.05 * min(float(taken.step[-1]), 1.6 * top))
        top = min(top, 3.2 * max(curve.optimum.t_step, curve.latency_floor))
        if taken.high is not None:
            top = max(top, 1.1 * taken.at(taken.high, self.batch))
        if curve.step_limit is not None and curve.step_limit <= 2 * top:
            top = max(top, 1.25 * curve.step_limit)
        tallest = max((seconds for _, seconds in self.measured), default=0.0)
        if tallest <= 3 * top:
            top = max(top, 1.1 * tallest)
        return Axis(log=False, low=0.0, high=top * 1e3, length=HEIGHT, ticks=linear_ticks(0, top * 1e3), down=True)

    @cached_property
    def cost_axis(self) -> Axis:
        """From below the lowest floor to above one sequence; on a linear batch axis from 0 to a few floors."""
        taken, unit = self.sample, self.unit
        parts = [taken.part(name) for name in PARTS]
        each = [values / taken.batch * unit for values in parts if values is not None and np.any(values > 0)]
        floor, at_run = self.cost_floor * unit, self.per_token * unit
        if self.linear:
            tallest = float(np.max(np.maximum(taken.step, taken.memory) / taken.batch)) * unit
            top = min(4.5 * max(floor, at_run), 1.3 * tallest)
            return Axis(log=False, low=0.0, high=top, length=HEIGHT, ticks=linear_ticks(0, top), down=True)
        high = taken.step if taken.high is None else np.maximum(taken.step, taken.high)
        top = 1.4 * max([float(high[0] / taken.batch[0] * unit), *(float(np.max(values)) for values in each)])
        sequences = [values / taken.batch * unit for values in (taken.kv, taken.compute) if np.any(values > 0)]
        flat = min([floor, *(float(np.min(values)) for values in sequences)])
        weights = taken.at(taken.weights, self.batch) / self.batch * unit
        low = max(0.45 * min(flat, max(weights, 0.1 * flat)), top / 1e7)
        return Axis(log=True, low=low, high=top, length=HEIGHT, ticks=log_ticks(low, top), down=True)

    @cached_property
    def time_axis(self) -> Axis | None:
        """The axis of dollars in milliseconds; None without a price."""
        if self.price is None:
            return None
        left = self.cost_axis
        low, high = left.low / self.price * 1e3, left.high / self.price * 1e3
        ticks = log_ticks(low, high) if left.log else linear_ticks(low, high)
        return Axis(left.log, low, high, left.length, ticks, down=True)

    def apart(self, batch: float, other: float) -> float:
        """Distance of two batches on the axis [px]."""
        return abs(float(self.x.pixel(batch) - self.x.pixel(other)))

    @property
    def runs_at_knee(self) -> bool:
        """The batch to run lies on the knee, as far as the eye can tell."""
        at_knee = self.knee is not None and self.apart(self.knee, self.batch) < 8
        return at_knee and self.curve.reading == "bound"

    def cost(self, seconds: float) -> str:
        """What so many seconds per token cost; without a price the time itself."""
        return milliseconds(seconds) if self.price is None else format_usd(seconds * self.price)

    def scale_at(self, scale: NDArray[np.float64], batch: float) -> float:
        """Units of a plot for each second of a step, at a batch that the sample may not reach."""
        return float(np.interp(batch, self.sample.batch, scale * self.sample.batch)) / batch

    def parts(self, names: Sequence[str], scale: NDArray[np.float64]) -> list[Line]:
        """Lines of the parts that take any time, in the units of a plot."""
        prefer = {"weights": 0.12, "kv": 0.75, "compute": 0.85, "memory": 0.3, "overhead": 0.15, "communication": 0.5}
        shorter = {"memory": (self.say("name_memory_short"),)}
        shown = {name: self.sample.part(name) for name in names}
        return [
            Line(name, self.sample.batch, values * scale, self.say(f"name_{name}"), prefer[name], shorter.get(name, ()))
            for name, values in shown.items()
            if values is not None and np.any(values > 0)
        ]

    def listed(self, names: Sequence[str], most: int = 3) -> str:
        """The longest parts of a step at the batch to run: "KV 12.6 ms, weights 7.35 ms"."""
        shown = {name: self.sample.part(name) for name in names}
        times = {name: self.sample.at(values, self.batch) for name, values in shown.items() if values is not None}
        longest = sorted(times, key=lambda name: -times[name])[:most]
        words = ", ".join(f"{self.say(f'name_{name}')} {milliseconds(times[name])}" for name in longest if times[name])
        return words[0].upper() + words[1:]

    def edges(self, lines: Sequence[Line]) -> list[Rule]:
        """The capacity, and a rule from the axis up to the highest line at the batch to run."""
        rules = []
        if self.capacity is not None:
            full = batch_text(self.capacity)
            words, short = self.say("full_at", batch=full), self.say("full_short", batch=full)
            rules.append(Rule("capacity", words, batch=self.capacity, short=(short,)))
        if self.capacity is None or self.apart(self.batch, self.capacity) > 3:
            top = max(self.sample.at(line.value, self.batch) for line in lines)
            rules.append(Rule("run", "", batch=self.batch, top=top))
        return rules

    def dots(self, lines: Sequence[Line]) -> list[Mark]:
        """A dot on each line at the batch to run."""
        return [Mark("at", "", self.batch, self.sample.at(line.value, self.batch), role=line.series) for line in lines]

    def run_mark(self, key: str, value: float, words: str) -> Mark:
        """The batch to run, named with what it gives."""
        run = batch_text(self.batch)
        batch = self.say("run_knee", batch=run) if self.runs_at_knee else run
        short = (self.say("run_short", batch=run, value=words), self.say("run", batch=run))
        return Mark("run", self.say(key, batch=batch, value=words), self.batch, value, short)

    def knee_on(self, line: NDArray[np.float64]) -> list[Mark]:
        """The knee on the line of the step, where only the bound bends; the mark of the batch to run may cover it."""
        if self.knee is None or self.runs_at_knee or self.curve.reading != "bound":
            return []
        return [self._knee_mark(self.sample.at(line, self.knee))]

    def crossing(self, memory: NDArray[np.float64], compute: NDArray[np.float64]) -> list[Mark]:
        """The knee where compute crosses memory; only the article's own reading has it there."""
        if self.knee is None:
            return []
        value, other = self.sample.at(memory, self.knee), self.sample.at(compute, self.knee)
        return [self._knee_mark(value)] if abs(other - value) <= 0.03 * value else []

    def _knee_mark(self, value: float) -> Mark:
        words = batch_text(self.knee or 0.0)
        return Mark("knee", self.say("knee", batch=words), self.knee or 0.0, value)


def headline(curve: CurveLike, language: str) -> str:
    """What the curve is called; in English where it does not know its Korean name."""
    titled = getattr(curve, "titled", None)
    return curve.title if titled is None else str(titled(language))


def answer(curve: CurveLike, language: str) -> tuple[str, list[str]]:
    """Title and lines below it: which batch to run, and why."""
    best = curve.optimum

    def say(key: str, **fields: str) -> str:
        return text(f"chart.{key}", language, **fields)

    title = say("answer", title=headline(curve, language), batch=batch_text(best.batch))
    if best.usd_per_mtok is not None and curve.cost_floor_usd_per_mtok:
        ratio = best.usd_per_mtok / curve.cost_floor_usd_per_mtok
        fields = {"time": milliseconds(best.t_step), "cost": format_usd(best.usd_per_mtok), "ratio": f"{ratio:.2f}"}
        parts = [say("at_cost_floor" if ratio < 1.005 else "at_cost", **fields)]
    else:
        parts = [say("at_time", time=milliseconds(best.t_step), token=milliseconds(best.t_step / best.batch))]
    limit = "" if curve.step_limit is None else round_time(curve.step_limit)
    parts.append(say(f"binds_{best.binds}", limit=limit))
    if best.binds != "kv" and np.isfinite(curve.capacity_batch):
        parts.append(say("room", batch=batch_text(curve.capacity_batch)))
    return title, [" ".join(parts), say(f"reading_{curve.reading}")]
