"""Requests through continuous-batching schedulers, event by event: a day of traffic in seconds.

    clock      times of steps, tabulated from batchline.step: one clock for everything
    pool       engines that are alike
    scheduler  Vllm, Sglang, Static, Train: knobs of the schedulers
    replay     simulate(pool, traffic): the event loop, fed chunk by chunk
    result     times, rates, what was full, in one sentence and in detail
    load, question   what is asked, in the words of the command line and the page
    sweep, search, refine   many simulations: side by side, to find the best, for the candidates of a plan
    fit        coefficients of the clock from a logged run

The loop itself is `_loop`: plain Python that numba compiles (`_compile`) when the extra `fast` is installed, on
`_records` that `_state` makes and grows. See docs/simulate.md.
"""

from batchline.simulate.clock import Clock, tabulate
from batchline.simulate.pool import Pool, pool_of, transfer_of
from batchline.simulate.replay import ROUTERS, fitting, simulate
from batchline.simulate.result import METRICS, Result, Series, Summary, Table, save_table
from batchline.simulate.scheduler import Scheduler, Sglang, Static, Train, Vllm

__all__ = [
    "METRICS",
    "ROUTERS",
    "Clock",
    "Pool",
    "Result",
    "Scheduler",
    "Series",
    "Sglang",
    "Static",
    "Summary",
    "Table",
    "Train",
    "Vllm",
    "fitting",
    "pool_of",
    "save_table",
    "simulate",
    "tabulate",
    "transfer_of",
]
