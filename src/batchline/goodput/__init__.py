r"""Goodput: the most load that a deployment carries while it keeps its promises, and what it shows at a load.

Requests arrive one by one, whatever the engine does: the open loop of `batchline.serving`, whose load X grows with the
batch b of a rank, so b answers all. What is promised at a percentile p:

    TPOT + z_p sqrt(d1^2 + d2^2)    d1: the batch swings by sqrt(g b / (1 - e)) about its mean (Poisson arrivals)
                                    d2 = f t_pf sqrt(b + n + n^2) / o: so do the prompts
    TTFT, each of its two waits at percentile p (`batchline.queueing`)

    e = 1 - TPOT(alone) / TPOT(b)   share of TPOT that grows with the batch: a slower token keeps more requests present,
                                    so their number is negative binomial with variance b / (1 - e), as in processor
                                    sharing; g = 2 (x - 1 + exp(-x)) / x^2, x = 1 - e: what averages out in a stay

A tail is the sum of the tails of its two waits, which is on the safe side. Every argument is one number or an array;
arrays broadcast.

    promise     what is promised, and at which percentile
    replica     a server under a kind of request, and what it shows at a load
    search      the most load that keeps the promises; the batch that a load leads to
    confidence  how sure a promise is, from the interval of the prediction

References
----------
[1] DistServe, arXiv 2401.09670: goodput, the rate at which the promises hold.
[2] L. Kleinrock, Queueing Systems, 1975 and 1976: processor sharing, state-dependent service.
[3] T. Chandrupatla, Advances in Engineering Software 28, 1997: a root between two points.
"""

from batchline.goodput.confidence import chance, factor_at
from batchline.goodput.promise import PROMISES, Promise
from batchline.goodput.replica import Point, Server, point
from batchline.goodput.search import Limit, at_load, batch_for, ceiling, goodput, keeps_alone, largest

__all__ = [
    "PROMISES",
    "Limit",
    "Point",
    "Promise",
    "Server",
    "at_load",
    "batch_for",
    "ceiling",
    "chance",
    "factor_at",
    "goodput",
    "keeps_alone",
    "largest",
    "point",
]
