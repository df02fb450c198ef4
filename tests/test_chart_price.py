"""The price sheet as a picture: every line on it, at the length of its price, beside what APIs ask."""

import json
import re

import altair as alt
import pytest

from batchline import chart_price
from batchline.chart import save
from batchline.deployment import Deployment
from batchline.market import Offer, compare
from batchline.price_sheet import price_sheet

OFFERS = [Offer("a", "cheap", 0.1, 0.4), Offer("b", "dear", 1.0, 9.0, 0.25), Offer("c", "between", 0.5, 2.0)]


@pytest.fixture(scope="module")
def one():
    return Deployment.of("llama-3.1-70b", "4xh100", weights="fp8", usd_per_device_hour=4.0)


@pytest.fixture(scope="module")
def sheet(one):
    return price_sheet(one, 4096, 1024, tpot_s=0.04, margin=0.3, utilisation=0.6)


def beside(sheet, offers):
    return compare(sheet.at_full_use(), sheet.usd_per_hour, offers, sheet.isl, sheet.osl)


def signal(spec, name="figure_title"):
    found = next(param["value"] for param in spec["params"] if param["name"] == name)
    return " ".join(found) if isinstance(found, list) else found


def subtitles(spec):
    return " ".join(spec["title"]["subtitle"])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("narrow", [False, True])
def test_every_line_of_the_sheet_is_drawn_once_and_as_long_as_its_price(sheet, theme, language, narrow):
    spec = chart_price.bars(sheet, beside(sheet, OFFERS), theme=theme, language=language, narrow=narrow)
    alt.Chart.from_dict(spec, validate=True)
    data = spec["datasets"]
    lengths = {}
    for panel in ("plain", "others"):
        parts = data[f"{panel}_parts"]
        for name in {row["name"] for row in parts}:
            cost, margin = (row for row in parts if row["name"] == name)
            assert (cost["usd"], cost["to"]) == (0.0, margin["usd"])  # one part goes on where the other ends
            assert cost["opacity"] > margin["opacity"]
            lengths[name] = cost["to"], margin["to"]
    assert len(data["plain_names"]) == 3
    assert sorted(lengths.values()) == sorted((row.usd_per_mtok_cost, row.usd_per_mtok_price) for row in sheet.rows)
    words = {row["name"] for panel in ("plain", "others") for row in data[f"{panel}_names"]}
    assert words == set(lengths)
    assert all(re.search("[가-힣]", name) for name in words) == (language == "ko")


def test_the_interval_of_the_cost_lies_over_the_bar(sheet):
    (row,) = chart_price.bars(sheet)["datasets"]["plain_intervals"]
    output = sheet.row("output")
    assert (row["usd"], row["to"]) == (output.usd_per_mtok_cost_low, output.usd_per_mtok_cost_high)


def test_the_title_says_what_to_charge_and_without_a_margin_what_it_costs(one, sheet):
    assert signal(chart_price.bars(sheet)).startswith("Charge $")
    assert "margin" in subtitles(chart_price.bars(sheet))
    plain = chart_price.bars(price_sheet(one, 4096, 1024))
    assert "cost $" in signal(plain)
    assert "margin" not in subtitles(plain)
    assert "thin line" in subtitles(plain)
    bound = price_sheet(one, 4096, 1024, reading="bound")
    assert "thin line" not in subtitles(chart_price.bars(bound))
    assert not chart_price.bars(bound)["datasets"]["plain_intervals"]


def test_what_apis_ask_lies_below_the_kind_of_token_that_they_ask_it_for(sheet):
    spec = chart_price.bars(sheet, beside(sheet, OFFERS))
    offers = spec["datasets"]["plain_offers"]
    tops = sorted({row["y"] for row in offers})
    assert [[row["usd"] for row in offers if row["y"] == y] for y in tops] == [[0.1, 0.5, 1.0], [0.25], [0.4, 2.0, 9.0]]
    assert [row["words"] for row in spec["datasets"]["plain_asked"]] == [
        "3 APIs ask $0.10 to $1.00, median $0.50",
        "One API asks $0.25",
        "3 APIs ask $0.40 to $9.00, median $2.00",
    ]
    # All of it is inside the axis.
    domain = re.search(r'"field": "usd", "scale": {"domain": \[0.0, ([\d.]+)\]', json.dumps(spec, sort_keys=True))
    assert float(domain[1]) == 9.0
    sold = (4096 * sheet.row("input").usd_per_mtok_price + 1024 * sheet.row("output").usd_per_mtok_price) / 1e6
    asked = [(4096 * offer.usd_per_mtok_input + 1024 * offer.usd_per_mtok_output) / 1e6 for offer in OFFERS]
    assert f"{sum(usd < sold for usd in asked)} of 3" in subtitles(spec)
    assert "APIs" not in subtitles(chart_price.bars(sheet))
    assert not chart_price.bars(sheet)["datasets"]["plain_offers"]


def test_nothing_is_dashed_and_every_word_of_a_phone_is_in_its_width(sheet, tmp_path):
    spec = chart_price.bars(sheet, beside(sheet, OFFERS), narrow=True)
    assert "strokeDash" not in json.dumps(spec)
    drawn = save(spec, tmp_path / "prices.svg").read_text()
    assert float(re.search(r'width="([\d.]+)"', drawn)[1]) <= 380
    assert "cached input, 5 min" in drawn
