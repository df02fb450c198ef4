"""The report: complete, self-contained, in two languages, and with the figures of the library."""

import dataclasses
import datetime as dt
import html.parser
import json
import math
import re
import shlex
import shutil

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from batchline import chart, planner, sweep
from batchline.accelerator import Accelerator
from batchline.architecture import Architecture
from batchline.cli import curve as curve_command
from batchline.cli import report as report_command
from batchline.deployment import Deployment
from batchline.errors import InputError, UnknownNameError
from batchline.report import Told, blocks, on_whole_batches, report, terms, what_if
from batchline.units import format_time, format_usd

DAY = dt.date(2026, 11, 30)


@pytest.fixture(scope="module")
def curve():
    deployment = Deployment.of("llama-3.1-70b", "4xh100", weights="fp8")
    return sweep.curve(deployment, 8192, reading="predict", step_limit=0.03)


@pytest.fixture(scope="module")
def made(curve):
    measured = [{"name": "run 1", "batch": 16, "t_step_s": 0.02}]
    return report(curve, command="batchline report llama-3.1-70b --on 4xh100", measured=measured, today=DAY)


@pytest.fixture
def undrawn(monkeypatch):
    """Charts cost seconds; where the words are tested they stay away."""
    for part in ("_of_curve", "_of_plan", "_picture"):
        monkeypatch.setattr(f"batchline.report.{part}.svg", lambda *_: "<svg/>")


class Reader(html.parser.HTMLParser):
    """Every tag, link and word of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.links, self.words, self.open = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in {"meta", "img", "br", "link", "source"}:
            self.open.append(tag)
        self.links += [value for name, value in attrs if name in {"src", "srcset", "href"}]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_needs_nothing_else(made):
    page = Reader(made.html)
    assert not page.open
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert all(link.startswith("data:image/svg+xml;base64,") for link in page.links)
    assert len(page.links) == 8
    assert "default-src 'none'" in made.html
    assert len(made.html) < 500_000


def test_it_holds_all_that_is_promised(made):
    said = [word.strip() for word in Reader(made.html).words]
    for heading in (
        "The answer",
        "The six plots",
        "Where the step goes",
        "By batch",
        "Floors and limits",
        "What would change it",
        "Measured points",
        "Inputs and where they are from",
        "What we are unsure of",
        "Ask again",
    ):
        assert heading in said
    text = " ".join(said)
    assert "Batchline 0.1.0, 2026-11-30" in text
    assert "batchline report llama-3.1-70b --on 4xh100" in text
    assert Architecture.load("llama-3.1-70b").source in text
    assert Accelerator.load("h100").source in text
    assert re.search(r"Quoted prices .* from \$[\d.]+ to \$[\d.]+", text)


def test_its_figures_are_the_librarys(made, curve):
    text = " ".join(Reader(made.html).words)
    best = curve.optimum
    assert f"Run a batch of {best.batch}: {format_time(best.t_step)} a step, {format_usd(best.usd_per_mtok)}" in text
    alone = sweep.curve(curve.deployment, 8192, [1.0, 64.0], reading="predict")
    for i in (0, 1):
        assert format_time(float(alone.t_step[i])) in text
        assert format_usd(float(alone.usd_per_mtok[i])) in text


@pytest.mark.parametrize("reading", ["predict", "bound", "serial"])
@pytest.mark.parametrize("language", ["en", "ko"])
def test_no_sentence_has_a_hole(language, reading):
    without_price = Deployment.of("llama-3.1-8b", Accelerator.custom(bandwidth=3e12, flops=1e15, memory=90e9))
    for deployment in (Deployment.of("deepseek-v3", "8xh200"), without_price):
        told = Told(on_whole_batches(sweep.curve(deployment, 200_000, reading=reading)), language)
        said = [told.headline(), told.split(), told.why(), told.basis(), *told.warnings()]
        said += [value for row in (*told.tiles(), *told.facts(), *told.sources()) for value in row.values()]
        assert not [text for text in said if re.search(r"[{}]|nan|inf\b|page\.|chart\.", str(text))]
        assert bool(re.search(r"[가-힣]", told.headline())) == (language == "ko")
        assert len(told.tiles()) == 5


@pytest.mark.usefixtures("undrawn")
def test_korean_and_dark(curve):
    page = report(curve, language="ko", theme="dark", today=DAY).html
    assert '<html lang="ko">' in page
    assert "확실하지 않은 것" in page
    assert "#14171c" in page
    assert "prefers-color-scheme" not in page.partition("<main>")[2]


def test_by_itself_it_is_as_dark_as_the_system_of_its_reader(made, curve):
    light, dark = (chart.theme.palette(theme) for theme in chart.THEMES)
    assert 'content="light dark"' in made.html
    for drawn in made.figures.values():
        turned = re.match(r"<svg [^>]*><style>@media\(prefers-color-scheme:dark\){(.*)}</style>", drawn)[1]
        colours = dict(re.findall(r'\[fill="(#\w+)"\]{fill:(#\w+)}', turned))
        used = set(re.findall(r'(?:fill|stroke)="(#\w+)"', drawn))
        assert used <= set(light.values())  # none stays as it was on the other background
        assert set(colours.values()) <= set(dark.values())
        assert colours[light["background"]] == dark["background"]
    assert 'content="only light"' in report(curve, theme="light", today=DAY).html


CHROMIUM = shutil.which("chromium")


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed (apt-get install chromium)")
def test_its_plots_flow_into_as_many_columns_as_there_is_room_for(made, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    file = tmp_path / "report.html"
    file.write_text(made.html, encoding="utf-8")
    where = "images => images.map((one) => { const box = one.getBoundingClientRect(); return [box.left, box.right]; })"
    paper = "getComputedStyle(document.body).backgroundColor"
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for width, columns in ((380, 1), (800, 2), (1440, 3), (3840, 3)):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.goto(file.as_uri())
            plots = page.locator(".gallery img").evaluate_all(where)
            assert len({left for left, _ in plots}) == columns, width
            assert all(0 <= left < right <= width for left, right in plots)
            assert page.evaluate("document.documentElement.scrollWidth") == width
            # Letters of 12 px in a picture of 414: on a phone they are 10 px at least.
            assert all((right - left) / 414 * 12 > 10 for left, right in plots)
            breakdown = page.locator("picture img").evaluate("one => one.currentSrc.length")
            assert (breakdown != page.locator("picture img").evaluate("one => one.src.length")) == (width == 380)
            for scheme, colour in (("dark", "rgb(20, 23, 28)"), ("light", "rgb(255, 255, 255)")):
                page.emulate_media(color_scheme=scheme)
                assert page.evaluate(paper) == colour
            page.close()
        browser.close()


def test_unknown_languages_and_themes_are_refused(curve):
    with pytest.raises(UnknownNameError, match="language"):
        report(curve, language="de")
    with pytest.raises(UnknownNameError, match="theme"):
        report(curve, theme="blue")


# -- what would change it --------------------------------------------------------------------------------------------


def changed(curve, **options):
    return {one.what: one for one in what_if(curve, **options)}


def test_each_change_is_the_curve_of_the_changed_question(curve):
    found = changed(curve)
    d = curve.deployment
    again = sweep.curve(dataclasses.replace(d, kv="fp8"), 8192, reading="predict", step_limit=0.03).optimum
    assert (found["kv_format"].batch, found["kv_format"].usd_per_mtok) == (again.batch, again.usd_per_mtok)
    again = sweep.curve(d, 16384, reading="predict", step_limit=0.03).optimum
    assert found["context_twice"].times == pytest.approx(again.usd_per_mtok / curve.optimum.usd_per_mtok)


def test_the_largest_effect_comes_first(curve):
    effects = [abs(math.log(one.times)) for one in what_if(curve)]
    assert effects == sorted(effects, reverse=True)


def test_laws_of_the_article_hold_for_changes():
    """In the bound, faster memory helps what memory bounds and faster arithmetic does not; prices scale the cost."""
    bound = sweep.curve(Deployment.of("llama-3.1-70b", "4xh100", weights="fp8"), 16384, reading="bound")
    found = changed(bound)
    assert found["bandwidth_more"].times == pytest.approx(1 / 1.25)
    assert found["flops_more"].times == pytest.approx(1.0)
    price = bound.deployment.price
    assert found["price_high"].times == pytest.approx(price.high / price.median)
    assert found["context_half"].times < 1 < found["context_twice"].times


@pytest.mark.usefixtures("undrawn")
def test_a_change_without_an_answer_says_why():
    tight = sweep.curve(Deployment.of("llama-3.1-8b", "h100"), 8192, reading="predict", step_limit=0.009)
    found = changed(tight)
    refused = [one for one in found.values() if one.refused]
    assert refused
    assert all(one.times is None and "step limit" in one.refused for one in refused)
    assert "No batch keeps" in report(tight, today=DAY).html


def test_the_limits_of_the_question_stay(curve):
    found = changed(curve, max_batch=8)
    assert all(one.batch <= 8 for one in found.values() if one.batch)


def test_the_parts_add_up(curve):
    for reading in ("predict", "bound", "serial"):
        one = sweep.curve(curve.deployment, 8192, reading=reading)
        total = sum(part for part in terms(one).values())
        assert total == pytest.approx(one.t_step)


# -- the two ways to write -------------------------------------------------------------------------------------------


def document(*some):
    colours = dict.fromkeys(("background", "text", "muted", "grid", "shade", "step"), "#000")
    return blocks.Document("T", "by", "en", colours, "Arial", (blocks.Section("S", some),))


@given(st.text(max_size=60))
def test_no_text_becomes_markup(text):
    table = blocks.Table((text,), ((text,),))
    figure = blocks.Figure("x", "<svg/>", text)
    page = Reader(blocks.to_html(document(blocks.Text(text), blocks.Items((text,)), table, figure)))
    assert page.tags.count("section") == 1
    assert page.tags.count("td") == 1
    assert "script" not in page.tags


@given(st.text(alphabet="ab<>|`*_[]\\\n#", max_size=30))
def test_no_text_breaks_a_markdown_table(text):
    made = blocks.to_markdown(document(blocks.Table(("a", "b"), ((text, "x"),))), "r")
    row = made.rstrip().splitlines()[-1]
    assert len(re.findall(r"(?<!\\)\|", row.replace("\\\\", ""))) == 3
    assert row.endswith("| x |")


def test_markdown_has_its_pictures_beside_it(made, tmp_path):
    files = made.save(tmp_path / "answer.md")
    plots = [f"answer-plot-{name.replace('.', '-')}.svg" for name in chart.PLOTS]
    assert [file.name for file in files] == ["answer.md", *plots, "answer-breakdown.svg"]
    text = files[0].read_text(encoding="utf-8")
    for file in files[1:]:
        assert f"]({file.name})" in text
        assert file.read_text(encoding="utf-8").startswith("<svg")
    assert text.count("\n## ") == 10


def test_another_kind_of_file_is_refused(made, tmp_path):
    with pytest.raises(InputError, match=r"\.html or \.md"):
        made.save(tmp_path / "answer.pdf")
    with pytest.raises(InputError, match="cannot be written"):
        made.save(tmp_path / "nowhere" / "answer.html")


@pytest.mark.usefixtures("undrawn")
def test_a_plan_is_part_of_it(curve):
    answer = planner.plan("llama-3.1-8b", isl=1024, osl=256, rate=2.0, tpot="50ms", accelerators=("h100", "l40s"))
    text = " ".join(Reader(report(curve, plan=answer, today=DAY).html).words)
    assert answer.best.title in text
    assert f"{answer.best.p_slo:.0%}" in text


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("undrawn")
def test_the_command_says_what_curve_says(tmp_path):
    words = ["llama-3.1-8b", "--on", "h100", "--isl", "2k", "--osl", "512", "--step-limit", "20ms"]
    target = tmp_path / "r.md"
    measured = tmp_path / "mine.csv"
    measured.write_text("batch,context,t_step_s\n8,2304,0.009\n")
    result = CliRunner().invoke(report_command.command, [*words, "--measured", str(measured), "--out", str(target)])
    assert result.exit_code == 0, result.output
    text = target.read_text(encoding="utf-8")
    answer = json.loads(CliRunner().invoke(curve_command.command, [*words, "--json"]).stdout)
    best = answer["optimum"]
    assert f"Run a batch of {best['batch']}: {format_time(best['t_step_s'])} a step" in text
    assert f"TPOT {format_time(answer['serving']['tpot_s'])}" in text
    assert "mine.csv" in text
    # The command in it makes the same report.
    again = re.search(r"^    batchline report (.*)$", text, re.MULTILINE)[1]
    second = CliRunner().invoke(report_command.command, shlex.split(again))
    assert second.exit_code == 0, second.output
    assert target.read_text(encoding="utf-8") == text
