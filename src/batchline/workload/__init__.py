"""What is asked of a deployment: how long requests are, when they come, and traces of both.

    _lengths   Fixed, Uniform, Geometric, LogNormal, Histogram, Empirical          tokens of a prompt or an answer
    _arrivals  Metronome, Poisson, GammaGaps, Bursts, Diurnal                      when requests are sent
    _traffic   synthetic, closed_loop, of_requests                                 both together, in chunks, repeatable
    _trace     trace                                                               of real traffic, from a file
    _prefix    PrefixTree                                                          prompts that begin alike

Traffic is read in chunks, so that ten million requests need no more memory than a few thousand, and every time alike:
the same seed, or the same file, gives the same requests.
"""

from batchline.workload._arrivals import Arrivals, Bursts, Diurnal, GammaGaps, Metronome, Poisson
from batchline.workload._lengths import (
    Empirical,
    Fixed,
    Geometric,
    Histogram,
    Lengths,
    LogNormal,
    Uniform,
    fit_histogram,
    fit_log_normal,
)
from batchline.workload._prefix import PrefixTree
from batchline.workload._trace import read_lengths, schemas, trace
from batchline.workload._traffic import (
    Requests,
    Traffic,
    closed_loop,
    limited,
    of_requests,
    repeated,
    rescaled,
    synthetic,
    whole,
)

__all__ = [
    "Arrivals",
    "Bursts",
    "Diurnal",
    "Empirical",
    "Fixed",
    "GammaGaps",
    "Geometric",
    "Histogram",
    "Lengths",
    "LogNormal",
    "Metronome",
    "Poisson",
    "PrefixTree",
    "Requests",
    "Traffic",
    "Uniform",
    "closed_loop",
    "fit_histogram",
    "fit_log_normal",
    "limited",
    "of_requests",
    "read_lengths",
    "repeated",
    "rescaled",
    "schemas",
    "synthetic",
    "trace",
    "whole",
]
