"""Where a prefix can be held, and what that costs for each token.

References
----------
[1] R. Pope and D. Patel, lecture on the economics of inference (transcript, dwarkeshsp/flashcards, 2026).
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchline import cost, roofline
from batchline.units import GIGA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchline.roofline import Floats

__all__ = ["CacheTier", "cache_tiers", "cache_usd_per_mtok", "cheapest_tier"]


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
    with (Path(__file__).parents[1] / "data" / "cache_tiers.csv").open(encoding="utf-8", newline="") as file:
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
