"""Published errors: how far predictions miss on points that the fit had not seen, and the page that says so.

`data/validation.json` is written by `python -m validation.fit --held-out`. docs/validation.md, `batchline validate` and
`batchline validate --report` all come from here.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from batchline import validate
from batchline.served_point import NEEDED, USED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["load", "own_page", "page", "table", "three"]

_HEAD = """\
# Validation

Predicted against measured, on public measurements of served models: TPOT (median time per output token after the
first) and TTFT (time to the first token) at a client's concurrency. Written on {date} by
`python -m validation.fit --held-out`; nothing here is typed by hand.

`batchline validate FILE.csv` does the same for a table of yours, and `batchline validate` alone shows these tables. Its
columns: `{needed}`; used when they are there: `{used}`. `decode_step_ms` is TPOT; in the regime `static_e2e` it is a
whole run over its output length, in `decode_static` a step. Names are read as people and tools write them.

What a row of InferenceX leaves out is taken from the script that started its server (`data/served_launches.csv`, with
repository, path and commit): the format of the KV cache, the token budget, how often the engine looks for new
requests, whether attention was data-parallel. Rows whose script had speculation on are refused, for its acceptance is
not known. InferenceMAX's own runs tell the median TTFT, NVIDIA's collection of them the mean: each has levels of its
own. Rows that cannot be what they say, and rows whose server was sent prompts again that its prefix cache kept, are
not *plausible*: no fit takes them, and the columns *all rows* count them.

A row of a held-out group never touches the fit that predicts it, and each fit chooses which levels it has and what a
row counts by leaving clusters out of its own rows. The spreads of the levels are those that were published before; what
there is to choose from, how much TTFT may scatter and the rule of plausibility were settled in some hundred and twenty
trials on the same splits, so the tables are slightly optimistic.
"""


@functools.cache
def load() -> dict[str, Any]:
    """Read the published errors.

    Returns
    -------
    dict
        `date`, `rows`, `splits` and what else docs/validation.md shows; every error is a share [-].

    Examples
    --------
    >>> [line["left_out"] for line in load()["splits"]][:2]
    ['nothing', 'series']
    """
    text = resources.files("batchline").joinpath("data/validation.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown.

    Parameters
    ----------
    columns : sequence of str
        Headings.
    rows : iterable of sequence of str
        Cells.

    Returns
    -------
    list of str
        A line each.

    Examples
    --------
    >>> table(["a", "b"], [["1", "2"]])
    ['| a | b |', '|---|---|', '| 1 | 2 |']
    """
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def three(errors: Mapping[str, float] | None) -> str:
    """Mean, median and 90th percentile of an error, in percent.

    Parameters
    ----------
    errors : mapping or None
        With `mape`, `median` and `p90` [-].

    Returns
    -------
    str
        Three numbers; "-" for None.

    Examples
    --------
    >>> three({"mape": 0.1234, "median": 0.05, "p90": 0.3})
    '12.3 / 5.0 / 30'
    """
    if errors is None:
        return "-"
    return f"{100 * errors['mape']:.1f} / {100 * errors['median']:.1f} / {100 * errors['p90']:.0f}"


def _splits(data: Mapping[str, Any]) -> list[str]:
    rows = [
        (line["left_out"], *(three(line[of]) for of in ("tpot", "ttft", "tpot_all", "ttft_all")))
        for line in data["splits"]
    ]
    return table(["left out", "TPOT", "TTFT", "TPOT, all rows", "TTFT, all rows"], rows)


def _coverage(data: Mapping[str, Any]) -> list[str]:
    rows = []
    for line in data["coverage"]:
        cells = []
        for of in ("tpot", "ttft"):
            factor, held = line[of]["factor"], line[of]["held"]
            cells += [f"{factor[0]:.2f} / {factor[1]:.2f}", f"{100 * held[0]:.0f} / {100 * held[1]:.0f}"]
        rows.append((line["new"], *cells))
    columns = ["new", "TPOT: factor 80 / 90%", "holds 80 / 90%", "TTFT: factor 80 / 90%", "holds 80 / 90%"]
    return table(columns, rows)


def _groups(kind: str, groups: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            group["name"],
            f"{group['rows']:,}",
            f"{group['plausible']:.0%}",
            f"{group['tpot']:.1%}",
            f"{group['ratio']:.2f}",
            f"{group['ttft']:.0%}",
        )
        for group in groups
    ]
    return table([kind, "rows", "plausible", "TPOT error", "predicted / measured, median", "TTFT error"], rows)


def _first(data: Mapping[str, Any]) -> list[str]:
    """Levels that this work began with beside those of today."""
    by: dict[str, list[str]] = {}
    for line in data["first"]:
        by.setdefault(line["left_out"], []).extend(three(line[of]) for of in ("tpot", "ttft"))
    return table(
        ["left out", "TPOT, first levels", "TTFT, first levels", "TPOT, levels of today", "TTFT, levels of today"],
        [(name, *cells) for name, cells in by.items()],
    )


def _batches(data: Mapping[str, Any]) -> list[str]:
    return [
        "## llama.cpp: batches alone",
        "",
        "Decode steps of llama-batched-bench on GB10 and M2 Ultra, batch 1 to 32 at three contexts (MIT): mean / "
        "median / 90th percentile, %. Nothing of it is in the tables above. What is learned of llama.cpp on one device "
        "makes the other worse, so each device has a level of its own, and a device that it was not measured on starts "
        "from the centre: the column *accelerator left out*. NVIDIA states no 16-bit rate of GB10, so its steps are "
        "bound by memory alone. Where the bound lies above what was measured (gpt-oss on GB10), tokens met fewer "
        "experts than even routing would have them meet, which the bound takes for granted.",
        "",
        *table(data["batches"]["columns"], data["batches"]["rows"]),
        "",
    ]


def _sets(data: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Sets apart",
        "",
        "Engines, devices and loads that the fit never saw: older engines, static batches, disaggregated pools, "
        "published figures. *Predicted* is the package's prediction, *bound* the article's floor; both over what was "
        "published.",
        "",
    ]
    for one in data["sets"]:
        lines += [f"### {one['name']}", "", one["what"], "", *table(one["columns"], one["rows"]), ""]
    return lines


def page(data: Mapping[str, Any] | None = None) -> str:
    """Write the page of published errors.

    Parameters
    ----------
    data : mapping, optional
        As `load` gives it; default that.

    Returns
    -------
    str
        docs/validation.md.

    Examples
    --------
    >>> page().startswith("# Validation")
    True
    """
    data = load() if data is None else data
    beside, others = data["beside"], data["other_layouts"]
    out = [
        _HEAD.format(date=data["date"], needed=", ".join(NEEDED), used=", ".join(USED)),
        "## Errors by what the fit had not seen",
        "",
        f"{data['rows']:,} distinct points of {data['clusters']} clusters (a model on an accelerator under an engine "
        "in a format); mean / median / 90th percentile of |predicted / measured - 1|, %. "
        f"{data['plausible']:,} are plausible: not faster than the bound, not over 60% of the peak sustained, ... "
        "(`validation/rows.py`). The others are never fitted; the last two columns count them too.",
        "",
        *_splits(data),
        "",
        f"A deployment is a layout of a cluster. {others['rows']:,} of the plausible points belong to clusters of "
        "several: with their own left out, the model on this accelerator under this engine in this format still known, "
        f"TPOT misses by {three(others['tpot'])} and TTFT by {three(others['ttft'])}.",
        "",
        f"How near can one come? {data['again']['rows']} of the plausible points answer a question that was measured "
        "more than once, on another day or with another version of the engine. Taking the other measurements as the "
        f"prediction misses TPOT by {three(data['again']['tpot'])} and TTFT by {three(data['again']['ttft'])}.",
        "",
        "The levels that this work began with, fitted to the same rows, and those of today:",
        "",
        *_first(data),
        "",
        "## Beside others, on the same rows",
        "",
        f"On the {beside['rows']:,} rows that {beside['name']} predicts too (mean / median / 90th percentile, %):",
        "",
        *table(
            ["", "TPOT", "TTFT"], [(line["who"], three(line["tpot"]), three(line["ttft"])) for line in beside["lines"]]
        ),
        "",
        "## Do the intervals hold?",
        "",
        "Factors come from held-out errors of one half of the clusters and are tested on the other half, both ways; "
        "all rows count, implausible ones too. The package ships the factors of both halves together.",
        "",
        *_coverage(data),
        "",
        "## By group, each predicted by a fit that had not seen its cluster",
        "",
    ]
    for kind in ("engine", "accelerator", "model"):
        out += [*_groups(kind, data["groups"][kind]), ""]
    out += ["Clusters, the worst first (five rows or more):", "", *_groups("cluster", data["groups"]["cluster"]), ""]
    out += [*_batches(data), *_sets(data)]
    out += ["## Rows that are not predicted", ""]
    out += table(["rows", "reason"], [(f"{count:,}", reason) for reason, count in data["refused"].items()])
    out += [
        "",
        "## What it does not know",
        "",
        "No row of the fit is from a TPU, Gaudi, Trainium, CPU or a consumer card under a current engine, and none "
        "from Ampere: there the centre stands, with the interval of a new accelerator. Speculative decoding is not in "
        "the fit. TTFT depends on how clients send: lengths of one size keep clients of a closed loop in step, random "
        "ones do not.",
        "",
    ]
    return "\n".join(out)


def own_page(names: str, summary: Mapping[str, Any]) -> str:
    """Write a page like the published one for a table of one's own.

    Parameters
    ----------
    names : str
        What the table is called.
    summary : mapping
        As `batchline.validate.summary` gives it.

    Returns
    -------
    str
        Markdown.
    """
    data = load()
    out = [
        f"# Validation of {names}",
        "",
        f"{summary['predicted']:,} of {summary['n']:,} rows are predicted by the priors that the package ships; mean / "
        "median / 90th percentile of |predicted / measured - 1|, %.",
        "",
        *table(
            ["", "TPOT", "TTFT"],
            [
                ("these rows", three(summary["tpot"]), three(summary["ttft"])),
                *(
                    (f"published, {line['left_out']} left out", three(line["tpot_all"]), three(line["ttft_all"]))
                    for line in data["splits"]
                ),
            ],
        ),
        "",
        "## Beside others, on the same rows",
        "",
        *table(
            ["", "rows", "TPOT", "TTFT"],
            [
                (line["who"], f"{line['rows']:,}", three(line["tpot"]), three(line["ttft"]))
                for line in summary["beside"]
            ],
        ),
        "",
    ]
    for kind, groups in summary["by"].items():
        rows = [
            (
                name,
                f"{int((found['tpot'] or found['ttft'] or {'n': 0})['n']):,}",
                three(found["tpot"]),
                *_bias(found["tpot"]),
                three(found["ttft"]),
                *_bias(found["ttft"]),
            )
            for name, found in sorted(groups.items(), key=lambda item: -((item[1]["tpot"] or {}).get("mape", 0.0)))
        ]
        columns = [kind, "rows", "TPOT", "bias", "in 90% interval", "TTFT", "bias", "in 90% interval"]
        out += [f"## By {kind}, the worst first", "", *table(columns, rows), ""]
    out += ["## Rows that are not predicted", ""]
    reasons = validate.kinds_of_reasons(summary["refused"])
    out += table(["rows", "reason"], [(f"{count:,}", reason) for reason, count in reasons.items()])
    return "\n".join([*out, ""])


def _bias(errors: Mapping[str, float] | None) -> tuple[str, str]:
    return ("-", "-") if errors is None else (f"{errors['bias']:+.1%}", f"{errors['coverage']:.0%}")
