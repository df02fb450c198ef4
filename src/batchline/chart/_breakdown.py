"""Where the time of a step goes: the share of each part over the batch, stacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from batchline import strings
from batchline.chart._text import text_width, wrapped
from batchline.chart.scene import batch_text, rounded
from batchline.chart.story import headline, milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from batchline.chart.story import Story

__all__ = ["HEIGHT", "NARROW", "WIDTH", "Breakdown", "breakdown"]

WIDTH, HEIGHT = 560.0, 280.0
NARROW = 210.0
"""On a phone, beside which names of thin bands have room [px]."""

_SIZE: Final = 13.0
_THICK = _SIZE + 6  # px that a band needs for its name
_PHONE: Final = 320.0  # px that a line above the narrow plot may take
_SAME = {"compute_beyond": "compute"}


@dataclass(frozen=True)
class Breakdown:
    """The plot in numbers.

    Parameters
    ----------
    title : str
        Above the plot.
    subtitle : str or list of str
        Below it; a list has its lines.
    height : float
        Of the plot [px].
    datasets, signals : dict
        As of `batchline.chart.scene.Scene`.
    """

    title: str
    subtitle: str | list[str]
    height: float
    datasets: dict[str, list[dict[str, Any]]]
    signals: dict[str, Any]


def _terms(story: Story) -> dict[str, NDArray[np.float64]]:
    """Parts that add up to the step: a prediction's own, or those that the reading lays end to end."""
    taken = story.sample
    if taken.terms:
        return dict(taken.terms)
    if story.curve.reading == "serial":
        rest = np.maximum(taken.compute - taken.weights, 0)
    else:
        rest = np.maximum(taken.compute - taken.memory, 0)
    return {"weights": taken.weights, "kv": taken.kv, "compute_beyond": rest}


def _name(story: Story, term: str) -> str:
    known = f"chart.name_{term}" in set(strings.keys())
    return story.say(f"name_{term}") if known else term.replace("_", " ")


def _fills(terms: Iterable[str], palette: Mapping[str, str]) -> dict[str, str]:
    """Colour of each part: its own, or one that no other part here has."""
    own = {name: palette[_SAME.get(name, name)] for name in terms if _SAME.get(name, name) in palette}
    spare = [palette[role] for role in ("prefill", "experts", "communication", "memory", "overhead", "bound")]
    spare = [colour for colour in spare if colour not in own.values()]
    others = [name for name in terms if name not in own]
    return own | {name: spare[i % len(spare)] for i, name in enumerate(others)}


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _ink(fill: str) -> str:
    """Black or white, whichever reads better on a colour (WCAG's contrast)."""
    level = _luminance(fill)
    return "#ffffff" if 1.05 / (level + 0.05) >= (level + 0.05) / 0.05 else "#000000"


def breakdown(story: Story, palette: Mapping[str, str]) -> Breakdown:
    """Stack the parts of a step.

    Parameters
    ----------
    story : Story
        The curve and how it is told, on an axis of `WIDTH` or `NARROW`.
    palette : mapping
        Colours.

    Returns
    -------
    Breakdown
        Shares in percent over the batch.
    """
    terms = {name: values for name, values in _terms(story).items() if np.any(values > 1e-4 * story.sample.step)}
    total = np.sum(list(terms.values()), axis=0)
    share = {name: 100 * values / total for name, values in terms.items()}
    at_run = {name: story.sample.at(values, story.batch) for name, values in share.items()}
    longest = sorted(at_run, key=lambda name: -at_run[name])
    listed = ", ".join(f"{_name(story, name)} {at_run[name]:.0f}%" for name in longest if at_run[name] >= 0.5)
    title = story.say("breakdown", batch=batch_text(story.batch), parts=listed)
    time, named = milliseconds(story.curve.optimum.t_step), headline(story.curve, story.language)
    subtitle = story.say("breakdown_subtitle", time=time, title=named)
    phone = story.x.length < WIDTH
    fills = _fills(share, palette)
    rows = [
        {"role": name, "fill": fills[name], "order": i, "batch": rounded(b), "share": rounded(v)}
        for i, name in enumerate(share)
        for b, v in zip(story.sample.batch, share[name], strict=True)
    ]
    names = _names(story, share, fills)
    leaders = [
        {"fill": row["fill"], "x": story.x.length + 1, "y": row["band"], "x2": row["x"] - 3, "y2": row["y"]}
        for row in names
        if "band" in row
    ]
    datasets = {
        "parts": rows,
        "names": names,
        "leaders": leaders,
        "edges": _edges(story),
        "edge_names": _edge_names(story, palette),
    }
    signals = {
        "x_low": rounded(story.x.low),
        "x_high": rounded(story.x.high),
        "x_ticks": story.x.ticks,
        "title": wrapped(title, 15, _PHONE, bold=True) if phone else title,
    }
    return Breakdown(
        title=title,
        subtitle=wrapped(subtitle, 13, _PHONE) if phone else subtitle,
        height=HEIGHT,
        datasets={f"breakdown_{name}": values for name, values in datasets.items()},
        signals={f"breakdown_{name}": value for name, value in signals.items()},
    )


def _names(story: Story, share: Mapping[str, NDArray[np.float64]], fills: Mapping[str, str]) -> list[dict[str, Any]]:
    """Names of the bands: where a band is thickest, or beside the plot where it is thin everywhere."""
    x = story.x.pixel(story.sample.batch)
    below = np.zeros_like(story.sample.batch)
    edges = [float(story.x.pixel(row["batch"])) for row in _edges(story)]
    inside, outside = [], []
    for name, values in share.items():
        top, bottom = HEIGHT * (1 - (below + values) / 100), HEIGHT * (1 - below / 100)
        words = _name(story, name)
        half = text_width(words, _SIZE, bold=True) / 2 + 6
        spot = _roomiest(x, top, bottom, half, [0.0, *edges, story.x.length])
        row = {"text": words, "size": _SIZE, "weight": "bold"}
        if spot is not None:
            at = {"x": round(spot[0], 1), "y": round(spot[1], 1)}
            inside.append({**row, **at, "align": "center", "fill": _ink(fills[name])})
        else:
            end = float(top[-1] + bottom[-1]) / 2
            outside.append(
                {**row, "x": story.x.length + 18, "y": end, "band": end, "align": "left", "fill": fills[name]}
            )
        below = below + values
    return inside + _spread(outside)


def _roomiest(
    x: NDArray[np.float64], top: NDArray[np.float64], bottom: NDArray[np.float64], half: float, edges: list[float]
) -> tuple[float, float] | None:
    """Middle of the place with most room for a name in a band, clear of the upright rules; None when it has no room."""
    best, found = _THICK, None
    for at in x:
        if not edges[0] <= at - half <= at + half <= edges[-1] or min(abs(at - edge) for edge in edges) < half:
            continue
        along = (x >= at - half) & (x <= at + half)
        high, low = float(np.max(top[along])), float(np.min(bottom[along]))
        if low - high > best + 0.5:
            best, found = low - high, (float(at), (low + high) / 2)
    return found


def _spread(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Names beside the plot, a line apart at least; the lowest band's name lowest."""
    y = HEIGHT
    for row in rows:
        row["y"] = round(min(row["y"], y), 1)
        row["band"] = round(row["band"], 1)
        y = row["y"] - _SIZE - 4
    return rows


def _edges(story: Story) -> list[dict[str, Any]]:
    return [{"batch": rounded(batch)} for batch in (story.batch, story.capacity) if batch is not None]


def _edge_names(story: Story, palette: Mapping[str, str]) -> list[dict[str, Any]]:
    """Names above the plot: the batch to run ends at its rule, the capacity, never smaller, begins at its own."""
    run = story.say("run_short", batch=batch_text(story.batch), value=milliseconds(story.curve.optimum.t_step))
    width = text_width(run, _SIZE, bold=True)
    right = max(float(story.x.pixel(story.batch)) + 4, width)
    rows = [_above(run, right, "right", palette["step"], "bold")]
    if story.capacity is not None:
        words = story.say("full_at", batch=batch_text(story.capacity))
        left = max(float(story.x.pixel(story.capacity)) - 4, right + 12)
        rows.append(_above(words, left, "left", palette["muted"], "normal"))
    return rows


def _above(words: str, x: float, align: str, fill: str, weight: str) -> dict[str, Any]:
    return {"text": words, "x": round(x, 1), "align": align, "fill": fill, "size": _SIZE, "weight": weight}
