"""What is said of a curve, in English and Korean: the page and the report say it in the same words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from batchline.strings import text
from batchline.units import format_bytes, format_count, format_rate, format_time, format_tokens, format_usd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from batchline.sweep import Curve

__all__ = ["Told", "terms"]


def terms(curve: Curve) -> Mapping[str, NDArray[np.float64]]:
    """Parts that add up to the step; in the floors what overlaps is counted once.

    Parameters
    ----------
    curve : Curve
        What was computed.

    Returns
    -------
    mapping of str to array
        Part by name [s].
    """
    if curve.prediction is not None:
        return curve.prediction.terms
    hidden = curve.t_weights if curve.reading == "serial" else curve.t_memory
    return {
        "weights": curve.t_weights,
        "kv": curve.t_kv,
        "compute_beyond": np.maximum(0.0, curve.t_compute - hidden),
    }


class Told:
    """Sentences of one curve in one language.

    Parameters
    ----------
    curve : Curve
        What was computed; the batch to run is among its batches.
    language : str
        "en" or "ko".
    """

    def __init__(self, curve: Curve, language: str) -> None:
        self.curve = curve
        self.language = language
        self.at = int(np.flatnonzero(curve.batch == curve.optimum.batch)[0])

    def say(self, key: str, **fields: str) -> str:
        """Text of the page's group, or of another one that the key names."""
        return text(key if "." in key else f"page.{key}", self.language, **fields)

    def interval(self) -> tuple[float, float] | None:
        """Cost at both ends of the interval at the batch to run [USD/Mtoken]; without a price the step [s]."""
        found, best = self.curve.prediction, self.curve.optimum
        if found is None:
            return None
        unit = 1.0 if best.usd_per_mtok is None else best.usd_per_mtok / best.t_step
        return float(found.low[self.at]) * unit, float(found.high[self.at]) * unit

    def headline(self) -> str:
        """The answer in one sentence."""
        best = self.curve.optimum
        fields = {"batch": f"{best.batch:,}", "time": format_time(best.t_step)}
        if best.usd_per_mtok is None:
            return self.say("headline_time", **fields)
        return self.say("headline_cost", **fields, cost=format_usd(best.usd_per_mtok))

    def split(self) -> str:
        """Where the time of the step goes."""
        taken = terms(self.curve)
        total = sum(float(part[self.at]) for part in taken.values())
        shares = sorted(((float(part[self.at]) / total, name) for name, part in taken.items()), reverse=True)
        parts = [
            self.say("share", name=self.say(f"chart.name_{name}"), percent=f"{share:.0%}")
            for share, name in shares
            if share >= 0.005
        ]
        return self.say("split", parts=", ".join(parts))

    def why(self) -> str:
        """What stops a larger batch."""
        curve, best = self.curve, self.curve.optimum
        limit = "" if curve.step_limit is None else format_time(curve.step_limit)
        sentence = self.say(f"chart.binds_{best.binds}", limit=limit)
        if best.binds != "kv" and math.isfinite(curve.capacity_batch):
            sentence += " " + self.say("chart.room", batch=f"{curve.capacity_batch:,.0f}")
        return sentence

    def facts(self) -> list[dict[str, str]]:
        """Floors, knee and capacity: name, value and what it means."""
        curve = self.curve
        rows = [("latency_floor", format_time(curve.latency_floor))]
        if curve.cost_floor_usd_per_mtok is not None:
            rows.append(("cost_floor", format_usd(curve.cost_floor_usd_per_mtok)))
        knee = self.say("none") if curve.knee_batch is None else f"{math.ceil(curve.knee_batch - 1e-9):,}"
        rows.append(("knee", knee))
        if curve.balance_context is not None:
            rows.append(("balance", format_tokens(curve.balance_context)))
        capacity = f"{curve.capacity_batch:,.0f}" if math.isfinite(curve.capacity_batch) else self.say("none")
        rows.append(("capacity", capacity))
        means = {key: self.say(f"means_{key}") for key, _ in rows}
        if curve.knee_batch is None:
            means["knee"] = self.say("means_no_knee")
        return [
            {"key": key, "name": self.say(f"fact_{key}"), "value": value, "means": means[key]} for key, value in rows
        ]

    def tiles(self) -> list[dict[str, str]]:
        """The five numbers: name, value, and what stands below it."""
        curve, best = self.curve, self.curve.optimum
        capacity = curve.capacity_batch
        count = curve.deployment.count
        total = best.batch / best.t_step
        fits = self.say("of_fit", capacity=f"{capacity:,.0f}") if math.isfinite(capacity) else ""
        ends = self.interval()
        low, high = ("", "") if ends is None else (format_usd(ends[0]), format_usd(ends[1]))
        if best.usd_per_mtok is None:
            cost, below = "–", self.say("no_price")
        else:
            cost = format_usd(best.usd_per_mtok)
            below = self.say("floor_is", floor=format_usd(curve.cost_floor_usd_per_mtok or 0.0))
            if ends is not None:
                below = self.say("interval", low=low, high=high)
        rows = [
            ("batch", f"{best.batch:,}", fits),
            ("cost", cost, below),
            ("time", format_time(best.t_step), self.say("per_user", rate=format_rate(1 / best.t_step))),
            ("rate", format_rate(total / count), self.say("in_all", rate=format_rate(total))),
            ("binds", self.say(f"binds_{best.binds}"), self.say("bound_by", name=self._longest())),
        ]
        return [{"key": key, "name": self.say(f"tile_{key}"), "value": v, "below": b} for key, v, b in rows]

    def _longest(self) -> str:
        return self.say(f"chart.name_{self.curve.bound_by[self.at]}")

    def basis(self) -> str:
        """What kind of number this is, and what of it is new."""
        curve = self.curve
        if curve.prediction is None:
            return self.say(f"basis_{curve.reading}")
        known = curve.prediction.provenance
        d = curve.deployment
        return self.say(
            "basis_predict",
            engine=d.engine,
            generation=d.accelerator.generation or d.accelerator.name,
            weights=d.weights_name,
            source=known.told(self.language),
            points=f"{known.points:,}",
            novelty=self.say(f"new_{known.novelty}"),
        )

    def sources(self) -> list[dict[str, str]]:
        """Where each input is from."""
        d = self.curve.deployment
        arch, device = d.architecture, d.accelerator
        rate = f"{device.flops_for(d.math) / 1e12:,.0f} TFLOPS ({d.math})"
        size = f"{format_count(arch.total_params)} ({format_count(arch.active_params)})"
        rows = [
            {"what": arch.name, "figures": size, "source": arch.source, "date": arch.date},
            {
                "what": device.label or device.name,
                "figures": f"{format_bytes(device.usable_memory())}, {format_bytes(device.bandwidth)}/s, {rate}",
                "source": device.source,
                "date": device.date,
            },
        ]
        account = d.account
        rows.append(
            {
                "what": f"{account.engine.title} {account.engine.version}",
                "figures": f"gpu_memory_utilization {account.gpu_memory_utilization:.3g}",
                "source": account.provenance.get("gpu_memory_utilization", ""),
                "date": "",
            }
        )
        if self.curve.prediction is not None:
            known = self.curve.prediction.provenance
            points = self.say("points", count=f"{known.points:,}")
            rows.append(
                {"what": self.say("coefficients"), "figures": points, "source": known.told(self.language), "date": ""}
            )
        if d.price is not None:
            shown = f"${d.price.median:,.2f}/h, {d.price.describe(self.language)}"
            newest = "" if d.price.newest is None else str(d.price.newest)
            rows.append(
                {"what": self.say("price"), "figures": shown, "source": "; ".join(d.price.sources), "date": newest}
            )
        return rows

    def warnings(self) -> list[str]:
        """What to be careful with."""
        d = self.curve.deployment
        found = []
        longest = d.architecture.max_context
        if longest and self.curve.context > longest:
            found.append(self.say("beyond_context", context=f"{self.curve.context:,.0f}", longest=f"{longest:,}"))
        if d.price is None:
            found.append(self.say("warn_no_price", accelerator=d.accelerator.name))
        elif (age := d.price.age_days()) and d.price.stale_warning():
            found.append(self.say("warn_stale", accelerator=d.accelerator.name, days=f"{age:,}"))
        return found
