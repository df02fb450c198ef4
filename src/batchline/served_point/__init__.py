"""Measured points: a row of a table becomes what was served, how it was loaded, and what came out.

The columns are those of docs/validation.md. Names are read generously (`batchline.served_names`); a row that does not
say enough is refused with what it lacks, and never ends the others.

    table       rows of a file, and columns of which nothing is made
    row         a row becomes a point
    cells       a row by our names of its columns
    collection  what is known of public collections where their rows say less
    layout      parallel degrees, pools of prefill and decode
    point       what was served and measured
"""

from batchline.served_point.cells import NEEDED, USED
from batchline.served_point.point import STATIC, Point, Pools
from batchline.served_point.row import point_of
from batchline.served_point.table import read, unread_columns

__all__ = ["NEEDED", "STATIC", "USED", "Point", "Pools", "point_of", "read", "unread_columns"]
