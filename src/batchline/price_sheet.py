"""What to charge: a price sheet that follows from cost, by the same physics as the curve.

    input             the prompt's share of the machine's time, per token
    output            step / batch, per token
    cached input      attention over the cached tokens + fetching them from a tier; holding them is the price of a write
    long context      the same two at longer requests: fewer sequences fit, each reads more
    fast mode         a smaller batch, so that a step is so many times shorter: price grows by batch ratio over speed
    batch mode        as many sequences as fit, no promise, in hours that would be idle

A cache tier costs what its capacity is held for and what its bandwidth is used for [1]:

    $ per token = kv $/s (reads / BW + hold / C)           equal halves at hold = C / BW, the time to read it all once

Price = cost / (1 - margin). Lecture [1]: a fast mode at 6 times the price and 2.5 times the speed has a batch 15 times
smaller, and the slow mode that would undo it can save at the most 1 / (1 + k B / w) = 36%.

References
----------
[1] R. Pope and D. Patel, lecture on the economics of inference (transcript, dwarkeshsp/flashcards, 2026).
[2] Anthropic, API pricing (2026): cache writes 1.25 and 2 times the input price, hits 0.1 times.
"""

from __future__ import annotations

import csv
import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import cost, market, prior, readings, roofline, step, sweep
from batchline.errors import InputError, MissingFactError
from batchline.notebook import Shown
from batchline.strings import Sentence
from batchline.units import GIGA, format_time, format_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.deployment import Deployment
    from batchline.prior import Prior
    from batchline.roofline import Floats

__all__ = [
    "CacheTier",
    "PriceSheet",
    "Row",
    "cache_tiers",
    "cache_usd_per_mtok",
    "cheapest_tier",
    "fast_mode_batch_ratio",
    "fast_mode_slope",
    "price_sheet",
    "slow_mode_saving",
]

HOLDS = (300.0, 3600.0)
"""How long a cache entry is promised to stay: five minutes and an hour [s], as APIs sell it [2]."""

_HALVINGS = 60


def fast_mode_batch_ratio(price_ratio: Floats, speed: Floats) -> Floats:
    """How much smaller the batch of a fast mode is, when price follows cost on the same machine.

    Parameters
    ----------
    price_ratio : float or array
        Fast price over normal price [-].
    speed : float or array
        Fast tokens per second and user over normal ones [-].

    Returns
    -------
    float or array
        Normal batch over fast batch [-]: cost per token is t / B, so price ratio = (B1 / B2) / speed.

    Examples
    --------
    >>> fast_mode_batch_ratio(6.0, 2.5), fast_mode_batch_ratio(2.0, 2.5)
    (15.0, 5.0)
    """
    return price_ratio * speed


def fast_mode_slope(batch_ratio: Floats, speed: Floats) -> Floats:
    r"""What part of a step grows with the batch, k B / w, from a fast mode: :math:`(w + k B)/(w + k B / r) = s`.

    Parameters
    ----------
    batch_ratio : float or array
        Normal batch over fast batch r [-].
    speed : float or array
        Normal step over fast step s [-].

    Returns
    -------
    float or array
        k B / w at the normal batch [-]; infinite or negative where no such step exists.

    Examples
    --------
    >>> round(fast_mode_slope(15.0, 2.5), 6), round(fast_mode_slope(5.0, 2.5), 6)
    (1.8, 3.0)
    """
    return (speed - 1.0) / (1.0 - speed / batch_ratio)


def slow_mode_saving(slope: Floats) -> Floats:
    """Most that waiting longer can save: the part of the step that a larger batch shares.

    Parameters
    ----------
    slope : float or array
        k B / w at the present batch [-].

    Returns
    -------
    float or array
        Share of the cost [-].

    Examples
    --------
    >>> round(slow_mode_saving(1.8), 3), slow_mode_saving(3.0)
    (0.357, 0.25)
    """
    return 1.0 / (1.0 + slope)


@dataclass(frozen=True)
class CacheTier:
    """Memory that can hold prefixes.

    Parameters
    ----------
    name : str
        "hbm", "dram", "flash", "disk".
    capacity : float
        Bytes that a unit holds [B].
    bandwidth : float
        Bytes that a unit reads [B/s].
    usd_per_hour : float
        What the unit costs [USD/h].
    source, date : str
        Where the figures are from.
    """

    name: str
    capacity: float
    bandwidth: float
    usd_per_hour: float
    source: str = ""
    date: str = ""

    @property
    def drain_s(self) -> float:
        """Time to read all of it: held for so long, capacity and bandwidth cost the same [s]."""
        return float(roofline.drain_time(self.capacity, self.bandwidth))


@functools.cache
def cache_tiers() -> tuple[CacheTier, ...]:
    """Tiers outside the accelerator, fastest first.

    Returns
    -------
    tuple of CacheTier
        With dated prices.

    Examples
    --------
    >>> [(tier.name, round(tier.drain_s)) for tier in cache_tiers()]
    [('dram', 10), ('flash', 2194), ('disk', 70175)]
    """
    with (Path(__file__).parent / "data" / "cache_tiers.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            CacheTier(
                name=row["tier"],
                capacity=float(row["capacity_gb"]) * GIGA,
                bandwidth=float(row["bandwidth_gbs"]) * GIGA,
                usd_per_hour=float(
                    cost.owner_usd_per_hour(float(row["capex_usd"]), float(row["years"]), 0.0, 0.0, 1.0)
                ),
                source=row["source"],
                date=row["date"],
            )
            for row in csv.DictReader(file)
        )


def cache_usd_per_mtok(kv_bytes: Floats, hold_s: Floats, tier: CacheTier, reads: Floats = 1.0) -> Floats:
    """Cost of a million cached tokens in a tier [1].

    Parameters
    ----------
    kv_bytes : float or array
        Cache of one token [B/token].
    hold_s : float or array
        How long it is held [s].
    tier : CacheTier
        Where.
    reads : float or array
        How often it is read in that time [-].

    Returns
    -------
    float or array
        Dollars per million tokens [USD/Mtoken].

    Examples
    --------
    A token of Llama-3-70B, five minutes in DRAM, read once:

    >>> round(cache_usd_per_mtok(327680, 300.0, cache_tiers()[0]), 4)
    0.0151
    """
    return 1e6 * kv_bytes * tier.usd_per_hour / 3600.0 * (reads / tier.bandwidth + hold_s / tier.capacity)


def cheapest_tier(kv_bytes: float, hold_s: float, tiers: Sequence[CacheTier], reads: float = 1.0) -> CacheTier:
    """Tier in which a token is held and read for the least money.

    Parameters
    ----------
    kv_bytes : float
        Cache of one token [B/token].
    hold_s : float
        How long [s].
    tiers : sequence of CacheTier
        To choose from.
    reads : float
        How often it is read in that time [-].

    Returns
    -------
    CacheTier
        The cheapest.

    Examples
    --------
    >>> [cheapest_tier(327680, hold, cache_tiers()).name for hold in (1.0, 300.0, 86400.0)]
    ['dram', 'flash', 'disk']
    """
    return min(tiers, key=lambda tier: float(cache_usd_per_mtok(kv_bytes, hold_s, tier, reads)))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a price sheet.

    Parameters
    ----------
    name : str
        "input", "output", "cached input", "cache write 5 min", "output, 131k context", "output, fast", ...
    usd_per_mtok_cost, usd_per_mtok_price : float
        Cost, and price at the margin [USD/Mtoken].
    times_base : float
        Over the plain input or output [-].
    why : str
        Where it comes from.
    usd_per_mtok_cost_low, usd_per_mtok_cost_high : float or None
        Cost at the ends of the step's 90% interval; None where no step is predicted: input, and the bound [USD/Mtoken].
    """

    name: str
    usd_per_mtok_cost: float
    usd_per_mtok_price: float
    times_base: float
    why: str
    usd_per_mtok_cost_low: float | None = None
    usd_per_mtok_cost_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class PriceSheet(Shown):
    """What each kind of token costs on a deployment, and what to charge.

    Parameters
    ----------
    title : str
        The deployment.
    usd_per_hour : float
        Price of the deployment [USD/h].
    isl, osl : float
        Input and output length of the plain request [token].
    rows : tuple of Row
        Lines.
    batch : float
        Sequences decoded together at the plain price [sequence].
    tpot_s : float
        Time per output token there [s].
    utilisation, margin : float
        Share of the time that the machine is busy, and of the price that is profit [-].
    balance_context : float or None
        Context from which on reading the KV cache takes longer than computing: from here on context decides cost
        [token].
    notes : tuple of str
        What could not be had.
    """

    title: str
    usd_per_hour: float
    isl: float
    osl: float
    rows: tuple[Row, ...]
    batch: float
    tpot_s: float
    utilisation: float
    margin: float
    balance_context: float | None
    notes: tuple[str, ...]

    def row(self, name: str) -> Row:
        """One line by its name.

        Parameters
        ----------
        name : str
            Of the line.

        Returns
        -------
        Row
            The line.

        Raises
        ------
        InputError
            There is no such line.
        """
        for one in self.rows:
            if one.name == name:
                return one
        raise InputError(
            Sentence("error.no_line", name=repr(name)),
            Sentence("error.it_has", names=", ".join(one.name for one in self.rows)),
        )

    def at_full_use(self) -> cost.TokenCosts:
        """What the plain request costs on a machine that is never idle, as `batchline.market.compare` takes it.

        Returns
        -------
        TokenCosts
            Cost of its input and output.
        """
        second = self.usd_per_hour / 3600.0
        prompt_s, decode_s = (
            self.row(name).usd_per_mtok_cost * self.utilisation * tokens / 1e6 / second
            for name, tokens in (("input", self.isl), ("output", self.osl))
        )
        return cost.token_costs(self.usd_per_hour, prompt_s, decode_s, self.isl, self.osl)

    def beside(self, offers: Sequence[market.Offer]) -> list[market.Comparison]:
        """Compare the plain request, on a machine that is never idle, with what APIs ask for it.

        Parameters
        ----------
        offers : sequence of Offer
            What `batchline.market.offers` gave.

        Returns
        -------
        list of Comparison
            Cheapest API first.
        """
        return market.compare(self.at_full_use(), self.usd_per_hour, offers, self.isl, self.osl)

    def to_dict(self) -> dict[str, Any]:
        """Give everything, with the names of the JSON output.

        Returns
        -------
        dict
            `rows` and the scalars.
        """
        return {**vars(self), "rows": [vars(one) for one in self.rows], "notes": list(self.notes)}


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
            label = (
                format_time(hold) if hold < 60 else f"{hold / 60:,.0f} min" if hold < 3600 else f"{hold / 3600:,.3g} h"
            )
            self.add(
                Sentence("price_sheet.cached", hold=label),
                over + fetch,
                self.base_in,
                Sentence("price_sheet.why_cached", over=f"{over:.3g}", tier=tier.name, fetch=f"{fetch:.3g}"),
            )
            self.add(
                Sentence("price_sheet.write", hold=label),
                self.base_in + keep,
                self.base_in,
                Sentence("price_sheet.why_write", tier=tier.name, keep=f"{keep:.3g}"),
            )

    def long(self, contexts: Sequence[float]) -> None:
        """Longer requests: fewer fit, each reads more."""
        longest = self.one.architecture.max_context
        for context in contexts:
            isl = context - self.osl
            if isl <= self.isl:
                continue
            if longest and context > longest:
                lengths = {"context": format_tokens(int(context)), "longest": format_tokens(longest)}
                self.notes.append(Sentence("price_sheet.note_beyond", **lengths))
                continue
            mean = isl + self.osl / 2
            fits = float(self.one.capacity_batch(mean))
            label = format_tokens(int(context))
            if fits < 1:
                self.notes.append(Sentence("price_sheet.note_fits", label=label))
                continue
            limit = self.step_s(self.batch, self.context)
            batch = min(self.batch, fits)
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
        return float(np.float64(low))
