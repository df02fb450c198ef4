"""A price sheet as a picture: what a million tokens of each kind cost, what to charge, and what APIs ask.

Vega-Lite through Altair, in the look of `batchline.chart`, whose `save` writes it as PNG, SVG or an offline page.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from batchline.chart.axis import linear_ticks
from batchline.strings import text, told
from batchline.units import format_time, format_tokens, format_usd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from batchline.market import Comparison
    from batchline.price_sheet import PriceSheet, Row

__all__ = ["bars"]

_WIDTH = 680.0
_NAME_SIZE, _DETAIL_SIZE = 14.0, 12.0
_PRICE_COLUMN = 86.0
"""Room for the prices at the right end of their lines [px]."""
_PALE = 0.35


@dataclass(frozen=True)
class _Kind:
    """A kind of token: its line of the sheet, what is said beside it, and what APIs ask, the cheapest first."""

    row: Row
    detail: str
    offers: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class _Look:
    """Pixels of one kind of token from above: its name, its bar, the offers below it and what is said of them."""

    name: float = 9.0
    bar: tuple[float, float] = (20.0, 40.0)
    offers: float = 50.0
    asked: float = 66.0
    height: float = 60.0
    height_with_offers: float = 88.0


_PLAIN, _OTHERS = _Look(), _Look(bar=(18.0, 28.0), height=44.0)


def bars(
    sheet: PriceSheet,
    market: Sequence[Comparison] = (),
    *,
    theme: str = "light",
    language: str = "en",
    narrow: bool = False,
) -> dict[str, Any]:
    """Draw cost and price of input, cached input and output beside the market, and below those of other requests.

    Parameters
    ----------
    sheet : PriceSheet
        What `batchline.price_sheet.price_sheet` gave.
    market : sequence of Comparison
        What `batchline.market.compare` gave for it.
    theme : str
        "light" or "dark".
    language : str
        "en" or "ko".
    narrow : bool
        For a phone.

    Returns
    -------
    dict
        Vega-Lite specification.

    Examples
    --------
    >>> from batchline.deployment import Deployment
    >>> from batchline.price_sheet import price_sheet
    >>> spec = bars(price_sheet(Deployment.of("llama-3.1-8b", "h100", usd_per_device_hour=3.0), 1024, 256))
    >>> [row["name"] for row in spec["datasets"]["plain_names"]]
    ['input', 'cached input, 5 min', 'output']
    """
    from batchline.chart import vega  # noqa: PLC0415  (Altair takes a third of a second)

    say = partial(text, language=language)
    lengths = {"isl": format_tokens(sheet.isl), "osl": format_tokens(sheet.osl)}
    plain, others = _kinds(sheet, market, say, narrow=narrow)
    width = vega.NARROW if narrow else _WIDTH
    panels = [
        ("plain", say("price_sheet.picture_plain", **lengths), plain, _PLAIN),
        ("others", say("price_sheet.picture_others"), others, _OTHERS),
    ]
    datasets: dict[str, list[dict[str, Any]]] = {}
    plots = []
    for name, title, kinds, look in panels:
        datasets |= {f"{name}_{part}": rows for part, rows in _rows(kinds, look, width, say, language).items()}
        plots.append(_panel(name, title, kinds, look, width, theme, say))
    prices = {name: format_usd(sheet.row(name).usd_per_mtok_price) for name in ("input", "output")}
    title = say("price_sheet.picture_charge" if sheet.margin else "price_sheet.picture_costs", **prices)
    return vega.finished(
        vega.figure(plots, 1, _about(sheet, market, lengths, say, language), narrow=narrow),
        datasets=datasets,
        signals={"figure_title": vega.fitted(title, narrow=narrow)},
        theme=theme,
        language=language,
    )


def _kinds(
    sheet: PriceSheet, market: Sequence[Comparison], say: Callable[..., str], *, narrow: bool
) -> tuple[list[_Kind], list[_Kind]]:
    """Input, cached input and output of the plain request, and every other line."""
    cached = next(row for row in sheet.rows if row.name.startswith("cached input"))
    rows = {"input": sheet.row("input"), "cached": cached, "output": sheet.row("output")}
    plain = []
    for name, row in rows.items():
        said = [say("price_sheet.picture_cost", cost=format_usd(row.usd_per_mtok_cost))] if sheet.margin else []
        if row.usd_per_mtok_cost_low is not None and row.usd_per_mtok_cost_high is not None and not narrow:
            ends = {"low": format_usd(row.usd_per_mtok_cost_low), "high": format_usd(row.usd_per_mtok_cost_high)}
            said.append(say("price_sheet.picture_between", **ends))
        offers = [(getattr(one.offer, f"usd_per_mtok_{name}"), one.offer) for one in market]
        asked = sorted((usd, f"{offer.provider}: {offer.model}") for usd, offer in offers if usd is not None)
        plain.append(_Kind(row, " ".join(said), asked))
    others = [row for row in sheet.rows if row not in rows.values()]
    return plain, [_Kind(row, _times(row.times_base, say, narrow=narrow)) for row in others]


def _times(times: float, say: Callable[..., str], *, narrow: bool) -> str:
    """How often the plain price, or which share of it; nothing where it is the same."""
    if 0.995 <= times < 1.005:
        return ""
    written = f"{times:.0%}" if times < 1 else f"{times:,.3g}"
    if narrow:
        return written if times < 1 else f"{written}×"
    return say("price_sheet.picture_share" if times < 1 else "price_sheet.picture_times", times=written)


def _about(
    sheet: PriceSheet, market: Sequence[Comparison], lengths: dict[str, str], say: Callable[..., str], language: str
) -> list[str]:
    """What stands below the title: a request beside the market, the deployment, and what is solid and pale."""
    lines = []
    if market:
        sold = sheet.isl * sheet.row("input").usd_per_mtok_price + sheet.osl * sheet.row("output").usd_per_mtok_price
        asked = [one.api_usd_per_request for one in market]
        numbers = {"cheaper": f"{sum(usd < sold / 1e6 for usd in asked):,}", "apis": f"{len(asked):,}"}
        money = {"own": format_usd(sold / 1e6), "low": format_usd(min(asked)), "high": format_usd(max(asked))}
        lines.append(say("price_sheet.picture_market", **lengths, **money, **numbers))
    served = {"batch": f"{sheet.batch:,.0f}", "time": format_time(sheet.tpot_s), "busy": f"{sheet.utilisation:.0%}"}
    lines.append(say("price_sheet.picture_about", title=told(sheet.title, language), **served))
    if sheet.margin:
        lines.append(say("price_sheet.picture_parts", margin=f"{sheet.margin:.0%}"))
    if sheet.row("output").usd_per_mtok_cost_low is not None:
        lines.append(say("price_sheet.picture_interval"))
    return lines


def _rows(
    kinds: Sequence[_Kind], look: _Look, width: float, say: Callable[..., str], language: str
) -> dict[str, list[dict[str, Any]]]:
    """Names, parts of the bars, intervals and their ends, offers and what is said of them, each at its pixel."""
    found: dict[str, list[dict[str, Any]]] = {
        part: [] for part in ("names", "parts", "intervals", "ends", "offers", "asked")
    }
    for kind, top in zip(kinds, _tops(kinds, look), strict=False):
        row, (above, below) = kind.row, (top + look.bar[0], top + look.bar[1])
        shown = {
            "name": told(row.name, language),
            "cost": format_usd(row.usd_per_mtok_cost),
            "price": format_usd(row.usd_per_mtok_price),
            "why": told(row.why, language),
        }
        at = {"y": top + look.name, "left": 0.0, "right": width, "beside": width - _PRICE_COLUMN}
        found["names"].append({**shown, **at, "detail": kind.detail})
        ends = (0.0, row.usd_per_mtok_cost, row.usd_per_mtok_price)
        for low, high, opacity in zip(ends, ends[1:], (1.0, _PALE), strict=False):
            if high > low:
                part = {"usd": low, "to": high, "y": above, "below": below, "opacity": opacity}
                found["parts"].append({**shown, **part})
        interval = [usd for usd in (row.usd_per_mtok_cost_low, row.usd_per_mtok_cost_high) if usd is not None]
        if interval:
            y = (above + below) / 2
            found["intervals"].append({"usd": interval[0], "to": interval[1], "y": y})
            found["ends"] += [{"usd": usd, "y": y - 4, "below": y + 4} for usd in interval]
        for usd, api in kind.offers:
            found["offers"].append({"usd": usd, "y": top + look.offers, "api": api, "price": format_usd(usd)})
        if kind.offers:
            words = _asked([usd for usd, _ in kind.offers], say)
            found["asked"].append({"words": words, "left": 0.0, "y": top + look.asked})
    return found


def _asked(usd: Sequence[float], say: Callable[..., str]) -> str:
    ends = {"low": format_usd(min(usd)), "high": format_usd(max(usd)), "median": format_usd(float(np.median(usd)))}
    return say("price_sheet.picture_apis" if len(usd) > 1 else "price_sheet.picture_api", apis=f"{len(usd):,}", **ends)


def _tops(kinds: Sequence[_Kind], look: _Look) -> list[float]:
    """Where each kind begins, and where the last ends [px]."""
    heights = [look.height_with_offers if kind.offers else look.height for kind in kinds]
    return [0.0, *np.cumsum(heights).tolist()]


def _panel(
    name: str, title: str, kinds: Sequence[_Kind], look: _Look, width: float, theme: str, say: Callable[..., str]
) -> dict[str, Any]:
    import altair as alt  # noqa: PLC0415

    from batchline.chart import theme as looks  # noqa: PLC0415

    palette = looks.palette(theme)
    most = max(
        max(kind.row.usd_per_mtok_price, kind.row.usd_per_mtok_cost_high or 0.0, *(usd for usd, _ in kind.offers))
        for kind in kinds
    )
    x = alt.X(
        "usd:Q",
        scale=alt.Scale(domain=[0.0, most], nice=False),
        axis=alt.Axis(
            title=say("price_sheet.picture_axis"),
            values=linear_ticks(0.0, most, 4),
            labelExpr="'$' + format(datum.value, ',.3~r')",
            domain=False,
            grid=False,
        ),
    )
    y, left, right, beside = (
        alt.Y("y:Q", scale=None),
        *(alt.X(f"{at}:Q", scale=None) for at in ("left", "right", "beside")),
    )
    tips = [
        alt.Tooltip("name:N", title=say("price_sheet.picture_tip")),
        alt.Tooltip("cost:N", title=say("price_sheet.col_cost")),
        alt.Tooltip("price:N", title=say("price_sheet.col_price")),
        alt.Tooltip("why:N", title=say("price_sheet.col_from")),
    ]
    tips_of_offers = [
        alt.Tooltip("api:N", title=say("price_sheet.col_api")),
        alt.Tooltip("price:N", title=say("price_sheet.picture_axis")),
    ]

    def of(part: str) -> alt.Chart:
        return alt.Chart(alt.NamedData(name=f"{name}_{part}"))

    thin: dict[str, Any] = {"color": palette["text"], "strokeWidth": 1.5}
    words: dict[str, Any] = {"baseline": "middle", "fontSize": _DETAIL_SIZE}
    bold: dict[str, Any] = {**words, "fontSize": _NAME_SIZE, "fontWeight": "bold", "color": palette["text"]}
    layers = [
        of("parts")
        .mark_rect(color=palette["compute"])
        .encode(x, y, x2="to", y2="below", opacity=alt.Opacity("opacity:Q", scale=None), tooltip=tips),
        of("intervals").mark_rule(**thin).encode(x, y, x2="to"),
        of("ends").mark_rule(**thin).encode(x, y, y2="below"),
        of("offers")
        .mark_point(
            shape="diamond",
            filled=True,
            size=70,
            opacity=1,
            color=palette["weights"],
            stroke=palette["background"],
            strokeWidth=1,
        )
        .encode(x, y, tooltip=tips_of_offers),
        of("asked").mark_text(align="left", color=palette["weights"], **words).encode(left, y, text="words:N"),
        of("names").mark_text(align="left", **bold).encode(left, y, text="name:N"),
        of("names").mark_text(align="right", color=palette["muted"], **words).encode(beside, y, text="detail:N"),
        of("names").mark_text(align="right", **bold).encode(right, y, text="price:N"),
    ]
    heading = alt.TitleParams(text=title, anchor="start", frame="group", offset=10)
    found = alt.layer(*layers).properties(width=width, height=_tops(kinds, look)[-1], title=heading).to_dict()
    return {key: value for key, value in found.items() if key not in ("$schema", "config", "datasets")}
