"""Measured points: readers of the files people already have, a prober of live endpoints, a reader of metrics.

`read(path)` recognises a result file by its content and gives points in one set of names; `hazards.inspect` says which
of them cannot be trusted, and why. `probe` measures a live endpoint, `scrape` reads an engine's own metrics.
"""

from batchline.measure.point import REGIMES, MeasuredPoint
from batchline.measure.recognise import formats, read, read_all

__all__ = ["REGIMES", "MeasuredPoint", "formats", "read", "read_all"]
