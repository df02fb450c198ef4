"""What is told of the deployments that lead: times, costs, the chance to keep the promises, and what comes nearest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline import cost, goodput
from batchline.planner.answer import Candidate, Nearest, Prefill
from batchline.strings import Sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline.goodput import Server
    from batchline.planner.search import Search
    from batchline.roofline import Floats

__all__ = ["candidates", "nearest"]


@dataclass(frozen=True)
class _Replicas:
    """Replicas of some pairs at their load: what is shown, what one costs, and how its cost divides.

    server, batch, slots, copies: as of the search; usd_per_hour, devices: of one replica, with its part of the prefill
    pool; prefill, cached: shares of that cost for prompts, and for attention over their cached part [-]; most, why:
    load of one that keeps the promises, and what stops more.
    """

    server: Server
    batch: NDArray[np.float64]
    slots: NDArray[np.float64]
    copies: NDArray[np.float64]
    usd_per_hour: NDArray[np.float64]
    devices: NDArray[np.float64]
    prefill: NDArray[np.float64]
    cached: NDArray[np.float64]
    most: NDArray[np.float64]
    why: Any


def candidates(search: Search, pairs: list[tuple[int, int]]) -> dict[tuple[int, int], Candidate]:
    """Everything that is told of pairs."""
    found: dict[tuple[int, int], Candidate] = {}
    for kind, apart in ((_together, False), (_apart, True)):
        chosen = [pair for pair in pairs if search.is_apart(pair[1]) == apart]
        if chosen:
            found |= _told(search, chosen, kind(search, chosen))
    return found


def _together(search: Search, pairs: list[tuple[int, int]]) -> _Replicas:
    rows, columns = (np.array(part, dtype=np.intp) for part in zip(*pairs, strict=True))
    server, batch, slots = search.server(rows, sure=False), search.batch[rows, columns], search.slots[rows]
    shown = goodput.point(server, batch, slots, {})
    prefill = np.minimum(shown.requests_per_s * np.asarray(shown.prefill_s), 1.0)
    return _Replicas(
        server=server,
        batch=batch,
        slots=slots,
        copies=search.copies[rows, columns],
        usd_per_hour=search.rows.usd_per_hour[rows],
        devices=search.rows.count[rows].astype(float),
        prefill=prefill,
        cached=np.minimum(shown.requests_per_s * np.asarray(shown.cached_s), prefill),
        most=search.most[rows],
        why=search.why[rows],
    )


def _apart(search: Search, pairs: list[tuple[int, int]]) -> _Replicas:
    pools = search.pools
    assert pools is not None  # noqa: S101  (there is no such pair without them)
    rows, columns = (np.array(part, dtype=np.intp) for part in zip(*pairs, strict=True))
    at, column = search.apart(pairs)
    source, sources, copies = pools.prefill[at, column], pools.prefill_copies[at, column], pools.copies[at, column]
    limit = goodput.goodput(pools.whole(at, column, sure=True), search.promises)
    alone = goodput.point(search.server(pools.rows[source], sure=False), np.zeros(len(at)) + 1e-9, 1.0, {})
    prompts, total = sources * pools.usd[source], pools.cost[at, column]
    return _Replicas(
        server=pools.whole(at, column),
        batch=search.batch[rows, columns],
        slots=pools.slots[at, column],
        copies=copies,
        usd_per_hour=total / copies,
        devices=search.devices[rows, columns] / copies,
        prefill=prompts / total,
        cached=prompts / total * np.asarray(alone.cached_s / alone.prefill_s),
        most=np.asarray(limit.point.requests_per_s),
        why=limit.saturated_by,
    )


def _told(search: Search, pairs: list[tuple[int, int]], replicas: _Replicas) -> dict[tuple[int, int], Candidate]:
    rows = np.array([row for row, _ in pairs], dtype=np.intp)
    q, space, server = search.question, search.rows, replicas.server
    shown = goodput.point(server, replicas.batch, replicas.slots, search.promises)
    rate = np.asarray(shown.requests_per_s, dtype=float)
    costs = cost.token_costs(
        replicas.usd_per_hour,
        replicas.prefill / rate,
        (1.0 - replicas.prefill) / rate,
        q.isl,
        q.osl,
        prefix_hit_rate=q.prefix_hit_rate,
        cached_s=replicas.cached / rate,
    )
    gap = np.asarray(server.longest_gap_s(replicas.slots))
    sure = _sure(search, rows, replicas, rate, shown)
    found = {}
    for i, (row, column) in enumerate(pairs):
        device, price = (sequence[space.accelerator[row]] for sequence in (space.accelerators, space.prices))
        layout, weights = space.layouts[space.layout[row]], space.weights[space.weight[row]]
        copies = float(replicas.copies[i])
        usd = float(copies * replicas.usd_per_hour[i])
        month = float(cost.usd_per_month(usd))
        spread = cost.usd_range(month, price)
        joules = (
            None
            if device.tdp is None
            else float(cost.joules_per_token(device.tdp * replicas.devices[i], rate[i] * q.osl, q.pue))
        )
        found[row, column] = Candidate(
            accelerator=device.name,
            count=layout.count,
            tp=layout.tp,
            pp=layout.pp,
            ep=layout.ep,
            dp=layout.dp,
            replicas=int(copies),
            weights=weights or search.architecture.weight_format,
            kv=space.kvs[space.kv[row]],
            engine=space.engines[space.engine[row]],
            batch=float(replicas.batch[i]),
            max_num_seqs=int(replicas.slots[i]),
            max_num_batched_tokens=int(search.budget[row]),
            requests_per_s=float(rate[i] * copies),
            most_requests_per_s=float(replicas.most[i] * copies),
            usd_per_hour=usd,
            usd_per_month=month,
            usd_per_month_range=(float(spread["low"]), float(spread["high"])),
            usd_per_mtok_input=_at(costs.usd_per_mtok_input, i),
            usd_per_mtok_cached=_at(costs.usd_per_mtok_cached, i),
            usd_per_mtok_output=_at(costs.usd_per_mtok_output, i),
            usd_per_mtok=_at(costs.usd_per_mtok, i),
            joules_per_token=joules,
            tpot_s=_at(shown.tpot_s, i),
            ttft_s=_at(shown.ttft_s, i),
            e2e_s=_at(shown.e2e_s, i),
            promised={name: _at(value, i) for name, value in shown.kept.items()},
            itl_peak_s=_at(gap, i),
            p_slo=_at(sure, i),
            novelty=str(space.novelties[row]),
            saturated_by=str(replicas.why[i]),
            changes_weights=weights is not None,
            prefill=_prefill_pool(search, (row, column)) if search.is_apart(column) else None,
        )
    return found


def _prefill_pool(search: Search, pair: tuple[int, int]) -> Prefill:
    pools = search.pools
    assert pools is not None  # noqa: S101  (there is no such pair without them)
    (place,), (column,) = search.apart([pair])
    source, replicas = int(pools.prefill[place, column]), int(pools.prefill_copies[place, column])
    row = pools.rows[[source]]
    layout = search.rows.layouts[search.rows.layout[row[0]]]
    server = search.server(row, sure=False)
    prompt = _at(server.load.prompt_s(0.0), 0)
    return Prefill(
        count=layout.count,
        tp=layout.tp,
        pp=layout.pp,
        ep=layout.ep,
        dp=layout.dp,
        replicas=replicas,
        max_num_batched_tokens=pools.budget,
        busy=pools.load / replicas / layout.dp * float(pools.busy[source]),
        prompt_s=prompt,
        transfer_s=float(pools.transfer[source]),
    )


def _sure(
    search: Search, rows: NDArray[np.intp], replicas: _Replicas, rate: Floats, shown: goodput.Point
) -> NDArray[np.float64]:
    """Chance that all promises hold when the engine is slower than predicted by a random factor.

    All times scale with the factor f, so at a batch B the load is that of the predicted engine over f: B is what is
    searched, and f = X(B) / X follows.
    """
    server, slots = replicas.server, replicas.slots
    slow_kinds = {name: promise for name, promise in search.promises.items() if name in ("tpot", "itl", "e2e")}

    def holds(batch: Floats) -> NDArray[np.bool_]:
        there = goodput.point(server, batch, slots, slow_kinds)
        slower, kept = there.requests_per_s / rate, np.asarray(batch < slots)
        for name, promise in slow_kinds.items():
            kept = kept & (np.asarray(there.kept[name]) * slower <= promise.seconds * (1 + 1e-9))
        return kept

    batch = goodput.largest(holds, slots)
    times = goodput.point(server, batch, slots, {}).requests_per_s / rate
    space = search.rows.take(rows)
    ttft = space.factors["ttft"] if replicas.server.elsewhere is None else space.widest["ttft"]
    sure = np.asarray(goodput.chance(times, space.factors["tpot"]))
    first = next((name for name in ("ttft", "e2e") if name in search.promises), None)
    if first is not None:
        sure = sure * goodput.chance(search.promises[first].seconds / np.asarray(shown.kept[first]), ttft)
    return np.asarray(sure)


def nearest(search: Search, rows: NDArray[np.intp]) -> Nearest | None:
    """Deployment that a single request finds closest to the promises."""
    if not search.promises or len(rows) == 0:
        return None
    server = search.server(rows)
    alone = goodput.point(
        server, np.full(len(rows), 1e-6), np.maximum(search.slots[rows], server.ideal.dp), search.promises
    )
    over = np.stack([np.asarray(alone.kept[name]) / promise.seconds for name, promise in search.promises.items()])
    worst = over.max(axis=0)
    row = int(np.argmin(np.where(np.isfinite(worst), worst, np.inf)))
    name = list(search.promises)[int(np.argmax(over[:, row]))]
    one = np.array([rows[row]])
    single = search.server(one)
    parts = single.load.terms(single.ideal.dp).as_dict()
    if name in ("ttft", "e2e"):
        parts = {"prompt": single.load.prompt_s(0.0), "network": single.coefficients.ttft_constant} | (
            {"decoding": search.question.osl * single.tpot_s(single.ideal.dp)} if name == "e2e" else {}
        )
    binds = max(parts, key=lambda part: float(np.max(parts[part])))
    layout = search.rows.layouts[search.rows.layout[one[0]]]
    title = Sentence(
        "planner.nearest_title",
        count=f"{layout.count}",
        accelerator=search.rows.accelerators[search.rows.accelerator[one[0]]].name,
        weights=search.rows.weights[search.rows.weight[one[0]]] or search.architecture.weight_format,
    )
    return Nearest(
        title=title,
        promise=name,
        promised_s=search.promises[name].seconds,
        attainable_s=float(np.asarray(alone.kept[name])[row]),
        binds=Sentence(f"planner.binds_{binds}"),
    )


def _at(values: Floats, index: int) -> float:
    """One entry of an array, or the number that stands for all."""
    return float(np.asarray(values).reshape(-1)[index if np.ndim(values) else 0])
