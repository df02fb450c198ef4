"""What is told of the deployments that lead: times, costs, the chance to keep the promises, and what comes nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from batchline import cost, goodput
from batchline.planner.answer import Candidate, Nearest
from batchline.readings import case_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from batchline.goodput import Server
    from batchline.planner.search import Search
    from batchline.roofline import Floats

__all__ = ["candidates", "nearest", "warnings"]

_IN_WORDS = {
    "weights": "reading the weights",
    "experts": "reading the experts",
    "kv": "reading the KV cache",
    "compute": "computing",
    "tp_latency": "latency between the devices",
    "tp_volume": "traffic between the devices",
    "ep_alltoall": "traffic to the experts",
    "per_step": "the engine's work on a step",
    "per_sequence": "the engine's work on a sequence",
    "per_layer": "starting kernels",
}


def candidates(search: Search, pairs: list[tuple[int, int]]) -> dict[tuple[int, int], Candidate]:
    """Everything that is told of rows, each with one of its numbers of replicas."""
    rows, columns = (np.array(part, dtype=np.intp) for part in zip(*pairs, strict=True))
    q, space = search.question, search.rows
    server = search.server(rows, sure=False)
    batch, slots, copies = search.batch[rows, columns], search.slots[rows], search.copies[rows, columns]
    shown = goodput.point(server, batch, slots, search.promises)
    rate = np.asarray(shown.requests_per_s, dtype=float)
    second = 1.0 / rate  # of a replica's time for each request
    prefill = np.minimum(shown.prefill_s, second)
    costs = cost.token_costs(
        space.usd_per_hour[rows],
        prefill,
        second - prefill,
        q.isl,
        q.osl,
        prefix_hit_rate=q.prefix_hit_rate,
        cached_s=np.minimum(shown.cached_s, prefill),
    )
    gap, sure = np.asarray(server.longest_gap_s(slots)), _sure(search, rows, server, rate, slots, shown)
    found = {}
    for i, (row, column) in enumerate(pairs):
        device, price = (sequence[space.accelerator[row]] for sequence in (space.accelerators, space.prices))
        layout, weights = space.layouts[space.layout[row]], space.weights[space.weight[row]]
        usd = float(copies[i] * space.usd_per_hour[row])
        month = float(cost.usd_per_month(usd))
        spread = cost.usd_range(month, price)
        joules = (
            None
            if device.tdp is None
            else float(cost.joules_per_token(device.tdp * layout.count, rate[i] * q.osl, q.pue))
        )
        found[row, column] = Candidate(
            accelerator=device.name,
            count=layout.count,
            tp=layout.tp,
            pp=layout.pp,
            ep=layout.ep,
            dp=layout.dp,
            replicas=int(copies[i]),
            weights=weights or search.architecture.weight_format,
            kv=space.kvs[space.kv[row]],
            engine=space.engines[space.engine[row]],
            batch=float(batch[i]),
            max_num_seqs=int(slots[i]),
            max_num_batched_tokens=int(search.budget[row]),
            requests_per_s=float(rate[i] * copies[i]),
            most_requests_per_s=float(search.most[row] * copies[i]),
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
            novelty=_novelty(search, row),
            saturated_by=str(search.why[row]),
            changes_weights=weights is not None,
        )
    return found


def _sure(
    search: Search, rows: NDArray[np.intp], server: Server, rate: Floats, slots: Floats, shown: goodput.Point
) -> NDArray[np.float64]:
    """Chance that all promises hold when the engine is slower than predicted by a random factor.

    All times scale with the factor f, so at a batch B the load is that of the predicted engine over f: B is what is
    searched, and f = X(B) / X follows.
    """
    slow_kinds = {name: promise for name, promise in search.promises.items() if name in ("tpot", "itl", "e2e")}

    def holds(batch: Floats) -> NDArray[np.bool_]:
        there = goodput.point(server, batch, slots, slow_kinds)
        slower, kept = there.requests_per_s / rate, np.asarray(batch < slots)
        for name, promise in slow_kinds.items():
            kept = kept & (np.asarray(there.kept[name]) * slower <= promise.seconds * (1 + 1e-9))
        return kept

    batch = goodput.largest(holds, slots)
    times = goodput.point(server, batch, slots, {}).requests_per_s / rate
    factors = search.rows.take(rows).factors
    sure = np.asarray(goodput.chance(times, factors["tpot"]))
    first = next((name for name in ("ttft", "e2e") if name in search.promises), None)
    if first is not None:
        sure = sure * goodput.chance(search.promises[first].seconds / np.asarray(shown.kept[first]), factors["ttft"])
    return np.asarray(sure)


def _novelty(search: Search, row: int) -> str:
    return search.priors.novelty(case_of(search.rows.deployment(row)))


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
        parts = {"the prompt": single.load.prompt_s(0.0), "the network": single.coefficients.ttft_constant} | (
            {"decoding": search.question.osl * single.tpot_s(single.ideal.dp)} if name == "e2e" else {}
        )
    binds = max(parts, key=lambda part: float(np.max(parts[part])))
    layout = search.rows.layouts[search.rows.layout[one[0]]]
    title = (
        f"{layout.count} x {search.rows.accelerators[search.rows.accelerator[one[0]]].name}, "
        f"{search.rows.weights[search.rows.weight[one[0]]] or search.architecture.weight_format} weights"
    )
    return Nearest(
        title=title,
        promise=name,
        promised_s=search.promises[name].seconds,
        attainable_s=float(np.asarray(alone.kept[name])[row]),
        binds=_IN_WORDS.get(binds, binds),
    )


def warnings(search: Search, candidates: list[Candidate]) -> list[str]:
    """What a reader should know: lengths beyond the model's, old prices."""
    found = []
    longest = search.architecture.max_context
    if longest and search.question.longest > longest:
        found.append(f"requests of {search.question.longest:,} tokens are beyond the model's {longest:,}.")
    used = {one.accelerator for one in candidates}
    for device, price in zip(search.space.accelerators, search.space.prices, strict=True):
        if device.name in used and (warning := price.stale_warning()):
            found.append(warning)
    return found


def _at(values: Floats, index: int) -> float:
    """One entry of an array, or the number that stands for all."""
    return float(np.asarray(values).reshape(-1)[index if np.ndim(values) else 0])
