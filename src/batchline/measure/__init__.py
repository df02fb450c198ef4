"""Measured points: readers of the files people already have, a prober of live endpoints, a reader of metrics.

`read(path)` recognises a result file by its content and gives points in one set of names; `hazards.inspect` says which
of them cannot be trusted, and why. `probe` measures a live endpoint, `scrape` reads an engine's own metrics.

    point                                                    MeasuredPoint, by one set of names
    recognise, document                                      which tool wrote a file; a file opened
    aiperf, guidellm, inferencex, llama_bench, trtllm_bench  readers of the tools' files
    sglang_bench, vllm_bench, bench_serving                  two more, and what they share
    own_csv                                                  our own table
    streams, gaps                                            steps rebuilt from when tokens arrived
    hazards                                                  what speaks against a point
    probe, endpoint, prompts                                 a live endpoint measured
    scrape, prometheus, window                               a server's own metrics
    beside                                                   points beside a curve
"""

from batchline.measure.point import REGIMES, MeasuredPoint
from batchline.measure.recognise import formats, read, read_all

__all__ = ["REGIMES", "MeasuredPoint", "formats", "read", "read_all"]
