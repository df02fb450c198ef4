"""Parallel degrees of a row, and its pools of prefill and decode."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from batchline import serving
from batchline.errors import MeasurementError
from batchline.served_point.point import Pools
from batchline.strings import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchline.deployment import Deployment
    from batchline.served_point.cells import Cells

__all__ = ["layout_of", "pools_of"]

_POOLS = (
    re.compile(
        r"prefill (?P<pg>\d+) gpu x(?P<pw>\d+) workers tp\d+ / decode (?P<dg>\d+) gpu x(?P<dw>\d+) workers tp\d+"
    ),
    re.compile(r"p(?P<pw>\d+):d(?P<dw>\d+) workers, each tp(?P<tp>\d+)"),
)
"""How notes of public collections tell the devices and instances of the two pools (InferenceMAX, dstack)."""

_NETWORK = 50e9  # B/s of a device between machines: 400 Gbit/s, one ConnectX-7 for each GPU of a DGX H100 (datasheet)


def layout_of(cell: Cells, named: int | None) -> tuple[int, int, int, int]:
    """Tensor, pipeline, data and expert parallel degrees; data-parallel attention spans all devices of a stage."""
    tp, pp, dp = cell.count("tp") or 1, cell.count("pp") or 1, cell.count("dp") or 1
    count = cell.count("n_gpus") or named or tp * pp * dp
    if cell.count("tp") and not cell.yes("dp_attention") and tp * pp * dp != count:
        raise MeasurementError(
            Sentence("error.not_layout", layout=f"tp {tp} x pp {pp} x dp {dp}", count=f"{count}"),
            "",
            Sentence("error.mend_layout"),
        )
    ep = min(cell.count("ep") or 1, count)
    if count % pp:
        raise MeasurementError(
            Sentence("error.not_stages", count=f"{count}", pp=f"{pp}"), "", Sentence("error.mend_stages")
        )
    if cell.yes("dp_attention"):
        return 1, pp, count // pp, ep
    if dp > 1 and tp * pp * dp == count:
        return tp, pp, dp, ep
    return count // pp, pp, 1, ep


def pools_of(
    cell: Cells, deployed: Callable[[tuple[int, int, int, int]], Deployment], isl: float
) -> tuple[tuple[int, int, int, int], Pools]:
    """Layout of a decode instance, and the prefill pool before it."""
    told = _told(cell)
    if told is None:
        raise MeasurementError(
            Sentence("error.apart_unknown"),
            "",
            Sentence("error.give_apart"),
        )
    prefill_gpus, prefill_workers, decode_gpus, decode_workers = told

    def one(devices: int, instances: int) -> tuple[int, int, int, int]:
        if not devices or not instances or devices % instances:
            raise MeasurementError(
                Sentence("error.not_instances", devices=f"{devices}", instances=f"{instances}"),
                "",
                Sentence("error.mend_the_row"),
            )
        each = devices // instances
        return (1, 1, each, each) if cell.yes("dp_attention") else (each, 1, 1, min(cell.count("ep") or 1, each))

    source = deployed(one(prefill_gpus, prefill_workers))
    layout = one(decode_gpus, decode_workers)
    device = source.accelerator
    near = (device.scale_up_domain or 1) >= prefill_gpus + decode_gpus
    link = (device.link_bandwidth or _NETWORK) if near else _NETWORK
    transfer = serving.kv_transfer_s(float(source.architecture.stored_bytes(isl, source.kv)), link * source.tp)
    return layout, Pools(
        prefill=source,
        prefill_instances=prefill_workers,
        decode_instances=decode_workers,
        transfer_s=float(transfer),
    )


def _told(cell: Cells) -> tuple[int, int, int, int] | None:
    """Devices and instances of prefill and decode, from columns or from the notes."""
    columns = [cell.count(name) for name in ("prefill_gpus", "prefill_workers", "decode_gpus", "decode_workers")]
    if columns[0] and columns[2]:
        return columns[0], columns[1] or 1, columns[2], columns[3] or 1
    for pattern in _POOLS:
        if match := pattern.search(cell.text("notes").casefold()):
            part = {name: int(value) for name, value in match.groupdict().items()}
            each = part.get("tp", 1)
            return part.get("pg", part["pw"] * each), part["pw"], part.get("dg", part["dw"] * each), part["dw"]
    return None
