"""A sheet derived from what tokens cost on a deployment."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from batchline import cost, prior, readings, roofline, step, sweep
from batchline.errors import InputError, MissingFactError
from batchline.price_sheet.cache_tier import CacheTier, cache_tiers, cache_usd_per_mtok, cheapest_tier
from batchline.price_sheet.sheet import PriceSheet, Row
from batchline.strings import Sentence
from batchline.units import format_time, format_tokens, format_usd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.deployment import Deployment
    from batchline.prior import Prior

__all__ = ["HOLDS", "price_sheet"]

HOLDS = (300.0, 3600.0)
"""How long a cache entry is promised to stay: five minutes and an hour [s], as APIs sell it (Anthropic, 2026)."""

_HALVINGS = 60


def price_sheet(
    one: Deployment,
    isl: float,
    osl: float,
    *,
    batch: float | None = None,
    tpot_s: float | None = None,
    utilisation: float = 1.0,
    margin: float = 0.0,
    fast: float = 2.5,
    contexts: Sequence[float] = (32768, 131072, 262144),
    holds_s: Sequence[float] = HOLDS,
    prefix_hit_rate: float = 0.9,
    reading: str = "predict",
    tiers: Sequence[CacheTier] | None = None,
    priors: Prior | None = None,
) -> PriceSheet:
    """Derive a price sheet from what tokens cost on a deployment.

    Parameters
    ----------
    one : Deployment
        One replica, with a price.
    isl, osl : float
        Input and output length of the plain request [token].
    batch : float, optional
        Sequences decoded together at the plain price; by default as many as keep `tpot_s`, or as fit [sequence].
    tpot_s : float, optional
        Longest step at the plain price [s].
    utilisation : float
        Share of the time that the machine is busy: its whole price is spread over that [-].
    margin : float
        Share of the price that is profit [-].
    fast : float
        How many times faster the fast mode is [-].
    contexts : sequence of float
        Longer requests, input and output together [token].
    holds_s : sequence of float
        How long cache entries are promised to stay [s].
    prefix_hit_rate : float
        Share of a prompt that a cache hit finds [-].
    reading : str
        "predict", "bound" or "serial", as of the curve.
    tiers : sequence of CacheTier, optional
        Where prefixes can be held, besides the accelerators themselves.
    priors : Prior, optional
        Coefficients for "predict".

    Returns
    -------
    PriceSheet
        Lines with cost, price and the reason.

    Raises
    ------
    MissingFactError
        The deployment has no price.
    InputError
        A share outside 0 to 1, or a deployment that holds no request.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> sheet = price_sheet(Deployment.of("llama-3.1-70b", "4xh100", weights="fp8"), 4096, 1024, margin=0.5)
    >>> round(sheet.row("output").usd_per_mtok_price / sheet.row("output").usd_per_mtok_cost, 3)
    2.0
    >>> sheet.row("output, fast").times_base > 2
    True
    """
    _check(one, isl, osl, utilisation, margin, fast)
    made = _Sheet(one, isl, osl, utilisation, margin, reading, prefix_hit_rate, priors or prior.load())
    made.settle(batch, tpot_s)
    made.plain()
    made.cached(holds_s, [made.hbm(), *(cache_tiers() if tiers is None else tiers)])
    made.long(contexts)
    made.modes(fast)
    return PriceSheet(
        title=one.title,
        usd_per_hour=made.usd,
        isl=isl,
        osl=osl,
        rows=tuple(made.rows),
        batch=made.batch,
        tpot_s=made.step_s(made.batch, made.context),
        utilisation=utilisation,
        margin=margin,
        balance_context=sweep.balance_context(one),
        notes=tuple(made.notes),
    )


def _check(one: Deployment, isl: float, osl: float, utilisation: float, margin: float, fast: float) -> None:
    if one.usd_per_hour is None:
        raise MissingFactError(
            Sentence("error.no_price_of", accelerator=one.accelerator.name), "", Sentence("error.give_price")
        )
    if isl < 1 or osl < 1:
        raise InputError(Sentence("error.both_from_1"))
    if not 0 < utilisation <= 1:
        raise InputError(Sentence("error.utilisation_range", given=f"{utilisation:g}"))
    if not 0 <= margin < 1:
        raise InputError(Sentence("error.margin_range", given=f"{margin:g}"))
    if not fast > 1:
        raise InputError(Sentence("error.fast_above_1", given=f"{fast:g}"))


class _Sheet:
    """Lines as they are found."""

    def __init__(
        self,
        one: Deployment,
        isl: float,
        osl: float,
        utilisation: float,
        margin: float,
        reading: str,
        hit: float,
        priors: Prior,
    ) -> None:
        self.one, self.isl, self.osl, self.hit = one, isl, osl, hit
        self.utilisation, self.margin, self.reading, self.priors = utilisation, margin, reading, priors
        self.usd = float(one.usd_per_hour or 0.0)
        self.context = isl + osl / 2
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.batch = 1.0
        self.base_in = self.base_out = 0.0

    # The one formula of a step: that of the curve.
    def steps(self, batch: float, context: float) -> readings.Steps:
        return readings.steps(self.one, context, batch, self.reading, self.priors)

    def step_s(self, batch: float, context: float) -> float:
        return float(self.steps(batch, context).t_step[0])

    def prompt_s(self, isl: float, hit: float = 0.0) -> tuple[float, float]:
        """Time of the whole deployment that a prompt takes, and the part that its cached tokens cause."""
        ideal = readings.ideal_of(self.one, isl, isl)
        engine = step.Coefficients()
        if self.reading == "predict":
            engine = self.priors.coefficients(readings.case_of(self.one))
        fresh = isl * (1.0 - hit)
        cached = engine.prefill_attention * cost.cached_prompt_s(ideal.prompt_attention_s, hit)
        attention = ideal.prompt_attention_s * (1.0 - hit) * (1.0 + hit)
        whole = step.prefill(ideal, engine, fresh, attention_s=attention).total
        spread = {"dp": self.one.dp, "pp": self.one.pp}
        return float(cost.prefill_s(whole, **spread)), float(cost.prefill_s(cached, **spread))

    def input_usd(self, isl: float) -> float:
        return float(
            cost.token_costs(
                self.usd, self.prompt_s(isl)[0], 0.0, isl, 1, utilisation=self.utilisation
            ).usd_per_mtok_input
        )

    def add(
        self, name: str, usd: float, base: float, why: str, low: float | None = None, high: float | None = None
    ) -> None:
        self.rows.append(
            Row(
                name=name,
                usd_per_mtok_cost=usd,
                usd_per_mtok_price=usd / (1.0 - self.margin),
                times_base=usd / base,
                why=why,
                usd_per_mtok_cost_low=low,
                usd_per_mtok_cost_high=high,
            )
        )

    def add_output(self, name: str, why: str, batch: float, context: float, utilisation: float | None = None) -> None:
        """Add a line of output tokens, with the interval of its step; the first is the plain one."""
        found = self.steps(batch, context)
        usd_per_hour = self.usd / (self.utilisation if utilisation is None else utilisation)
        ends = () if found.prediction is None else (found.prediction.low, found.prediction.high)
        usd, *interval = (float(roofline.usd_per_mtok(time[0], batch, usd_per_hour)) for time in (found.t_step, *ends))
        self.base_out = self.base_out or usd
        self.add(name, usd, self.base_out, why, *interval)

    def settle(self, batch: float | None, tpot_s: float | None) -> None:
        """Batch of the plain price: the one given, else the largest that keeps the step, else what fits."""
        capacity = float(self.one.capacity_batch(self.context))
        if capacity < 1:
            self.one.check_fits(self.context)
        if batch is not None:
            if not 1 <= batch <= capacity:
                raise InputError(
                    Sentence("error.batch_does_not_fit", given=f"{batch:g}"),
                    Sentence("error.sequences_fit", capacity=f"{capacity:,.0f}"),
                )
            self.batch = batch
            return
        self.batch = capacity if math.isfinite(capacity) else 4096.0
        if tpot_s is not None:
            if self.step_s(1.0, self.context) > tpot_s:
                shortest = format_time(self.step_s(1.0, self.context))
                raise InputError(
                    Sentence("error.no_step_so_short", given=format_time(tpot_s)),
                    Sentence("error.at_batch_1", shortest=shortest),
                    Sentence("error.more_devices"),
                )
            self.batch = self.largest(tpot_s, self.batch)

    def largest(self, tpot_s: float, most: float) -> float:
        """Largest whole batch whose step is at most so long."""
        if self.step_s(most, self.context) <= tpot_s:
            return most
        low, high = 1.0, most
        while high - low > 1:
            middle = math.floor((low + high) / 2)
            low, high = (middle, high) if self.step_s(middle, self.context) <= tpot_s else (low, middle)
        return low

    def plain(self) -> None:
        self.base_in = self.input_usd(self.isl)
        why = Sentence("price_sheet.why_input", isl=f"{self.isl:,.0f}")
        self.add(Sentence("price_sheet.input"), self.base_in, self.base_in, why)
        why = self.why("batch", self.batch, self.context)
        self.add_output(Sentence("price_sheet.output"), why, self.batch, self.context)

    def why(self, kind: str, batch: float, context: float) -> Sentence:
        """What a batch makes of a token, in words."""
        time = format_time(self.step_s(batch, context))
        return Sentence(f"price_sheet.why_{kind}", batch=f"{batch:,.0f}", time=time)

    def hbm(self) -> CacheTier:
        """The accelerators' own memory as a tier: what is held there pushes sequences out."""
        device = self.one.accelerator
        return CacheTier("hbm", self.one.count * device.memory, self.one.count * device.bandwidth, self.usd)

    def cached(self, holds_s: Sequence[float], tiers: Sequence[CacheTier]) -> None:
        """A hit, and for each time to hold a write, in the tier that is cheapest for it."""
        _, attention = self.prompt_s(self.isl, self.hit)
        over = float(
            cost.token_costs(
                self.usd,
                attention,
                0.0,
                self.isl,
                1,
                prefix_hit_rate=self.hit,
                cached_s=attention,
                utilisation=self.utilisation,
            ).usd_per_mtok_cached
        )
        kv = float(self.one.architecture.stored_bytes(self.isl, self.one.kv)) / self.isl
        for hold in holds_s:
            tier = cheapest_tier(kv, hold, tiers)
            fetch = float(cache_usd_per_mtok(kv, 0.0, tier))
            keep = float(cache_usd_per_mtok(kv, hold, tier, reads=0.0))
            label = _held_for(hold)
            self.add(
                Sentence("price_sheet.cached", hold=label),
                over + fetch,
                self.base_in,
                Sentence("price_sheet.why_cached", over=format_usd(over), tier=tier.name, fetch=format_usd(fetch)),
            )
            self.add(
                Sentence("price_sheet.write", hold=label),
                self.base_in + keep,
                self.base_in,
                Sentence("price_sheet.why_write", tier=tier.name, keep=format_usd(keep)),
            )

    def long(self, contexts: Sequence[float]) -> None:
        """Longer requests: fewer fit, each reads more."""
        longest = self.one.architecture.max_context or math.inf
        for context in contexts:
            if context - self.osl <= self.isl:
                continue
            label = format_tokens(int(context))
            if context > longest:
                self.notes.append(
                    Sentence("price_sheet.note_beyond", context=label, longest=format_tokens(int(longest)))
                )
            elif self.one.capacity_batch(context - self.osl / 2) < 1:
                self.notes.append(Sentence("price_sheet.note_fits", label=label))
            else:
                self.longer(label, context - self.osl)

    def longer(self, label: str, isl: float) -> None:
        mean = isl + self.osl / 2
        limit = self.step_s(self.batch, self.context)
        batch = min(self.batch, float(self.one.capacity_batch(mean)))
        while batch > 1 and self.step_s(batch, mean) > limit:
            batch = math.floor(batch / 1.02)
        name, why = Sentence("price_sheet.input_long", label=label), Sentence("price_sheet.why_long")
        self.add(name, self.input_usd(isl), self.base_in, why)
        name, why = Sentence("price_sheet.output_long", label=label), self.why("batch", batch, mean)
        self.add_output(name, why, batch, mean)

    def modes(self, fast: float) -> None:
        plain_s = self.step_s(self.batch, self.context)
        shortest = self.step_s(1.0, self.context)
        if plain_s / shortest < fast:
            most = f"{plain_s / shortest:.2g}"
            self.notes.append(Sentence("price_sheet.note_fast", fast=f"{fast:g}", most=most))
        else:
            batch = self.solved(plain_s / fast)
            told = {"fast": f"{fast:g}", "batch": f"{batch:,.1f}", "times": f"{self.batch / batch:,.3g}"}
            name, why = Sentence("price_sheet.output_fast"), Sentence("price_sheet.why_fast", **told)
            self.add_output(name, why, batch, self.context)
        capacity = float(self.one.capacity_batch(self.context))
        capacity = capacity if math.isfinite(capacity) else self.batch
        why = self.why("idle", capacity, self.context)
        self.add_output(Sentence("price_sheet.output_batch"), why, capacity, self.context, utilisation=1.0)
        self.add(
            Sentence("price_sheet.input_batch"),
            self.input_usd(self.isl) * self.utilisation,
            self.base_in,
            Sentence("price_sheet.why_never_idle"),
        )

    def solved(self, step_s: float) -> float:
        """Batch whose step is just so long."""
        low, high = 1.0, self.batch
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.step_s(middle, self.context) <= step_s else (low, middle)
        return low


def _held_for(seconds: float) -> str:
    """How long a cache is held, in the unit that people use for it."""
    if seconds < 60:
        return format_time(seconds)
    if seconds < 3600:
        return Sentence("price_sheet.minutes", count=f"{seconds / 60:,.0f}")
    return Sentence("price_sheet.hours", count=f"{seconds / 3600:,.3g}")
