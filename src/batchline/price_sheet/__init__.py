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

    fast_mode   the lecture's argument, as formulas
    cache_tier  where a prefix can be held, and what that costs
    sheet       PriceSheet and its rows
    from_cost   how a sheet is derived

References
----------
[1] R. Pope and D. Patel, lecture on the economics of inference (transcript, dwarkeshsp/flashcards, 2026).
[2] Anthropic, API pricing (2026): cache writes 1.25 and 2 times the input price, hits 0.1 times.
"""

from batchline.price_sheet.cache_tier import CacheTier, cache_tiers, cache_usd_per_mtok, cheapest_tier
from batchline.price_sheet.fast_mode import fast_mode_batch_ratio, fast_mode_slope, slow_mode_saving
from batchline.price_sheet.from_cost import HOLDS, price_sheet
from batchline.price_sheet.sheet import PriceSheet, Row

__all__ = [
    "HOLDS",
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
