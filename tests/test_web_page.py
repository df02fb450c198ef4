"""The page in a real browser: Debian's chromium, driven by playwright; the server is started here on a free port."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path

import pytest

from batchline.web import planning

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed (apt-get install chromium)"),
]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 300
"""Seconds until what never comes is given up; whoever waits for less is refused by a busy machine."""
playwright.expect.set_options(timeout=1000 * PATIENCE)
PLOTS = ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3"]


@pytest.fixture(scope="module")
def server():
    process = subprocess.Popen(
        [sys.executable, "-m", "batchline", "serve", "--port", "0", "--no-log"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "BATCHLINE_SECONDS": str(PATIENCE)},
    )
    assert select.select([process.stderr], [], [], PATIENCE)[0]
    line = process.stderr.readline()
    address = re.search(r"http://\S+", line)
    assert address, line
    base = address[0]
    for _ in range(10 * PATIENCE):
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=PATIENCE) as answer:
                assert json.load(answer)["status"] == "ok"
                break
        except OSError:
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
    yield base
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE) in (0, -signal.SIGTERM, 143)
    process.stderr.close()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Visit:
    """A page of its own, that remembers what went wrong on it."""

    def __init__(self, browser, base, **options):
        self.base = base
        self.context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, "locale": "en-US", **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.trouble = []
        self.asked = []
        self.page.on("console", lambda m: self.trouble.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, hash_=""):
        self.page.goto(f"{self.base}/{hash_}")
        self.page.locator("body[data-ready]").wait_for()
        return self

    def settle(self):
        """Until the answer on the page is to the question in the form."""
        self.page.locator("#answer[aria-busy=false]").wait_for()

    def plots(self):
        """The six plots at rest, with each name in its place."""
        self.settle()
        return {name: self.page.locator(f"[data-plot='{name}'] svg").evaluate("svg => svg.outerHTML") for name in PLOTS}

    def text(self, selector):
        return self.page.locator(selector).inner_text()

    def hash(self):
        """What the address becomes a quarter of a second later, and a shared link is."""
        return self.page.evaluate("async () => (await import('/js/state.js')).address()")


@pytest.fixture
def visit(browser, server):
    made = []

    def start(hash_="", **options):
        made.append(Visit(browser, server, **options))
        return made[-1].open(hash_)

    yield start
    for one in made:
        foreign = [url for url in one.asked if not url.startswith((server, "blob:", "data:"))]
        one.context.close()
        assert not foreign, foreign
        assert not one.trouble, one.trouble


def test_it_loads_with_an_answer_and_six_plots(visit):
    page = visit()
    assert re.match(
        r"Run a batch of \d+: [\d.]+ ms a step, \$[\d.]+ per million output tokens\.", page.text("#headline")
    )
    assert page.page.locator("#tiles > div").count() == 5
    for name, drawing in page.plots().items():
        assert name in drawing
        assert "batch size" in drawing
        assert drawing.count("<path") > 5


def test_a_load_is_asked_as_on_the_command_line_and_the_plots_look_at_its_batch(visit):
    page = visit("#curve?model=llama-3.1-8b&on=1xh100-sxm&isl=1k&osl=256&price=3")
    assert page.page.locator("#rate").is_enabled()
    assert "requests in flight" in page.text("#served")
    before, at = page.text("#served"), page.text("#at-batch")
    page.page.fill("#rate", "5/s")
    page.page.fill("#arrivals", "cv:2")
    page.page.wait_for_function("before => document.querySelector('#served').textContent !== before", arg=before)
    page.settle()
    told = json.loads(
        subprocess.run(
            [sys.executable, "-m", "batchline", "curve", "llama-3.1-8b", "--on", "h100-sxm", "--price", "3", "--json",
             "--isl", "1k", "--osl", "256", "--rate", "5/s", "--arrivals", "cv:2"],
            capture_output=True, text=True, check=True,
        ).stdout
    )["serving"]  # fmt: skip
    assert "at 5.00 req/s" in page.text("#served")
    assert f"TTFT {told['ttft_s'] * 1e3:.3g} ms" in page.text("#served")
    assert page.text("#at-batch") != at
    assert abs(int(page.text("#at-batch")) - told["running_batch"]) <= 0.1 * told["running_batch"] + 1
    assert page.page.locator("#at-load").is_visible()
    link = page.hash()
    assert "rate=5" in link
    assert "arrivals=cv%3A2" in link
    again = visit(link)
    assert again.text("#served") == page.text("#served")
    # Without lengths there is no load: its fields wait.
    again.page.fill("#isl", "")
    again.page.wait_for_function("() => document.querySelector('#served').textContent === ''")
    assert not again.page.locator("#rate").is_enabled()


ASKED_TRACE = "#simulate?model=llama-3.1-8b&on=1xh100-sxm&price=3&t.rate=3&t.isl=1k&t.osl=40&t.ttft=p95%3A2s"


def trace_of(requests):
    rows = "\n".join(f"{i / 7:.3f},{700 + i * 7919 % 800},{20 + i * 104729 % 60}" for i in range(requests))
    return {"name": "mine.csv", "mimeType": "text/csv", "buffer": f"arrival_s,isl,osl\n{rows}\n".encode()}


def test_a_link_carries_a_dropped_trace_or_says_that_it_is_too_long(visit):
    page = visit(ASKED_TRACE)
    page.page.locator("#simulate-times svg").wait_for()
    page.page.set_input_files("#trace-file", trace_of(300))
    page.page.locator("#simulate-title", has_text="trace.csv").wait_for()
    assert "mine.csv" in page.text("#trace-name")
    assert "carries it" in page.text("#trace-link")
    headline = page.text("#simulate-headline")
    again = visit(page.hash())
    again.page.locator("#simulate-title", has_text="trace.csv").wait_for()
    assert "mine.csv" in again.text("#trace-name")
    assert again.text("#simulate-headline") == headline
    again.page.set_input_files("#trace-file", trace_of(20_000))
    again.page.locator("#trace-link", has_text="Too long for a link").wait_for()
    link = again.hash()
    assert len(link) < 1000
    other = visit(link)
    other.page.locator("#simulate-problem", has_text="mine.csv").wait_for()
    other.page.click("#trace-remove")
    other.page.locator("#simulate-times svg").wait_for()
    assert not other.page.locator("#simulate-problem").is_visible()


@pytest.mark.parametrize(
    ("view", "ready", "kinds"),
    [
        ("plan", "#plan-chart svg", {"plan.png", "plan.svg", "plan.csv", "plan.toml"}),
        ("prices", "#prices-chart svg", {"prices.png", "prices.svg", "prices.csv", "prices.toml"}),
        (
            "simulate",
            "#simulate-times svg",
            {f"simulation-{part}.{kind}" for part in ("times", "over-time") for kind in ("png", "svg")}
            | {"simulation.csv", "simulation.toml"},
        ),
    ],
)
def test_every_view_can_be_taken_home(visit, view, ready, kinds):
    page = visit(f"#{view}?model=llama-3.1-8b&on=1xh100-sxm&price=3&t.rate=3&t.isl=1k&t.osl=40&t.requests=200").page
    page.locator(ready).first.wait_for()
    page.locator(f"#{view}-reply [aria-busy=false], #{view}-reply[aria-busy=false]").first.wait_for()
    found = {}

    def all_of_them(download):
        found[download.suggested_filename] = download
        return set(found) == kinds

    with page.expect_download(all_of_them):
        for button in page.locator(f"#{view}-downloads button").all():
            button.click()
    for name, download in found.items():
        content = Path(download.path()).read_bytes()
        if name.endswith("toml"):
            assert tomllib.loads(content.decode())["model"] == "llama-3.1-8b"
        elif name.endswith("csv"):
            assert len(content.splitlines()) > 3
        else:
            assert content.startswith(b"<svg" if name.endswith("svg") else b"\x89PNG")


@pytest.mark.parametrize(
    ("view", "plot"), [("plan", "#plan-chart"), ("prices", "#prices-chart"), ("simulate", "#simulate-over-time")]
)
@pytest.mark.parametrize("language", ["en", "ko"])
def test_on_a_phone_a_whole_picture_is_seen_and_its_words_are_large_enough_to_read(visit, view, plot, language):
    """The cheapest plan stands at the right end: of a picture that is scrolled nobody would see it."""
    asked = (
        f"#{view}?model=llama-3.1-8b&on=1xh100-sxm&price=3&t.rate=3&t.isl=1k&t.osl=40&t.requests=200&lang={language}"
    )
    page = visit(asked, viewport={"width": 380, "height": 800}).page
    page.locator(f"{plot} svg").wait_for()
    figure = page.locator(plot)
    assert figure.evaluate("one => one.scrollWidth <= one.clientWidth")
    seen = figure.locator("svg text").evaluate_all(
        """texts => texts.filter((one) => one.textContent && one.checkVisibility()).map((one) => {
            const box = one.getBoundingClientRect();
            return [one.textContent, box.left, box.right, box.height];
        })"""
    )
    assert len(seen) > 8
    assert not [row for row in seen if row[1] < 0 or row[2] > 380 or (row[3] and row[3] < 10)]


def test_a_promise_is_a_slider_that_keeps_its_percentile(visit):
    page = visit("#plan?model=llama-3.1-8b&on=1xh100-sxm&p.isl=1k&p.osl=256&p.rate=5&p.tpot=p99%3A40ms")
    page.page.locator("#plan-chart svg").wait_for()
    slider = page.page.locator("#plan-tpot-range")
    assert slider.get_attribute("aria-valuetext") == "p99:40ms"
    slider.focus()
    page.page.keyboard.press("ArrowLeft")
    assert page.page.input_value("#plan-tpot") == "p99:30ms"
    first = page.page.locator("#plan-ttft-range")
    assert first.get_attribute("aria-valuetext") == "no promise"
    first.focus()
    page.page.keyboard.press("ArrowLeft")
    assert page.page.input_value("#plan-ttft") == "p95:20s"
    page.page.wait_for_function("() => location.hash.includes('p.tpot=p99%3A30ms')")


def test_what_is_not_written_stands_at_what_counts(visit):
    """A slider that was left alone shows the library's default, not its left end."""
    page = visit("#plan?model=llama-3.1-8b&on=1xh100-sxm&p.isl=1k&p.osl=256&p.rate=5").page
    page.locator("#plan-chart svg").wait_for()
    for name, value in {"headroom": 0.1, "prefix_hit_rate": 0, "max_devices": 64}.items():
        assert float(page.locator(f"#plan-{name}").get_attribute("placeholder")) == value
        assert float(page.locator(f"#plan-{name}-range").get_attribute("aria-valuetext")) == value
        assert planning.PlanQuestion.model_fields[name].default == value
    assert int(page.locator("#plan-headroom-range").input_value()) == 2
    curve = visit("#curve?model=llama-3.1-8b&on=1xh100-sxm&price=3")
    assert "context 4,096" in curve.text("#title")
    assert curve.page.input_value("#context-text") == "4,096"


def test_an_error_speaks_the_language_and_the_labels_of_the_page(visit):
    page = visit("#curve?model=llama-3.1-8b&on=1xh100-sxm&isl=1k&osl=256&rate=2/s&lang=ko")
    page.page.fill("#concurrency", "3")
    page.page.locator("#problem:visible").wait_for()
    problem = page.text("#problem")
    assert "동시 요청 수" in problem
    assert "--" not in problem
    assert "`" not in problem
    assert page.page.locator("#concurrency[aria-invalid=true]").count() == 1
    page.trouble.clear()  # the browser notes that an answer was 422


def test_a_link_that_is_refused_is_ready_with_the_reason_and_can_be_mended(visit):
    page = visit("#curve?model=llama-9&on=1xh100-sxm&price=3")  # waits until the page is ready
    assert "llama-9" in page.text("#problem")
    assert page.page.locator("#answer").get_attribute("aria-busy") == "false"
    page.page.evaluate("location.hash = 'curve?model=llama-3.1-8b&on=1xh100-sxm&price=3'")
    page.page.locator("[data-plot='1.1'] svg").wait_for()
    page.settle()
    assert page.text("#headline").startswith("Run a batch of")
    assert not page.page.locator("#problem").is_visible()
    page.trouble.clear()  # the browser notes that an answer was 422


def test_dragging_the_context_changes_the_answer_and_every_plot(visit):
    page = visit()
    before, answer, tiles = page.plots(), page.text("#headline"), page.text("#tiles")
    box = page.page.locator("#context").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.page.mouse.down()
    for share in (0.55, 0.6, 0.65, 0.7, 0.75):
        page.page.mouse.move(box["x"] + box["width"] * share, middle)
    page.page.mouse.up()
    page.settle()
    after = page.plots()
    assert page.text("#headline") != answer
    assert page.text("#tiles") != tiles
    assert all(after[name] != before[name] for name in PLOTS)
    context = int(page.page.locator("#context-text").input_value().replace(",", ""))
    assert 30_000 < context < 200_000
    assert f"context {context:,}" in page.text("#title")


# What is seen of a plot: each shape and text, where it is and how it is painted.
SEEN = """svg => [...svg.querySelectorAll("text, path, line")].filter(part => part.getBoundingClientRect().width
  || part.getBoundingClientRect().height).map(part => { const { x, y } = part.getBoundingClientRect();
  return [part.tagName, part.textContent, part.getAttribute("d"), Math.round(2 * x), Math.round(2 * y),
    ...["stroke", "fill", "stroke-dasharray", "opacity"].map(name => part.getAttribute(name))].join(" "); }).sort()"""


@pytest.mark.parametrize(
    "asked",
    [
        "model=llama-3.1-70b&on=4xh100-sxm&context=8192",
        "model=gpt-oss-120b&on=2xh100-sxm&context=8192&reading=serial&axis=linear",
        "model=llama-3.1-8b&on=1xh100-sxm&context=8192&reading=bound&points=8,0.02,16,0.03",
    ],
)
def test_plots_that_were_moved_are_those_of_a_page_opened_there(visit, asked):
    moved = visit(f"#curve?{asked}")
    moved.page.locator("#context").focus()
    for key in (*["ArrowLeft"] * 10, *["ArrowRight"] * 14):
        moved.page.keyboard.press(key)
    moved.settle()
    opened = visit(moved.hash())
    opened.settle()
    for name in PLOTS:
        one, other = (page.page.locator(f"[data-plot='{name}'] svg").evaluate(SEEN) for page in (moved, opened))
        assert one == other, name
    assert moved.page.locator(".plots.six svg [aria-label]").count() == 0


def test_expressions_are_what_vegas_interpreter_makes_of_them(visit):
    page = visit()
    ours, theirs = page.page.evaluate(
        """async () => {
  const { expressions } = await import("/js/expressions.js");
  const { expressionInterpreter } = await import("/vendor/vega-interpreter.js");
  await import("/vendor/vega-lite.min.js");
  const post = async (address, body) => (await fetch(address, { method: "POST", body: JSON.stringify(body),
    headers: { "content-type": "application/json" } })).json();
  const question = { model: "gpt-oss-120b", on: "2xh100", context: 8192, isl: 2000, osl: 400 };
  const curve = await post("/api/v1/explore", { question, charts: "specs" });
  const plan = await post("/api/v1/plan", { question: { model: "llama-3.1-8b", isl: 1000, osl: 200, rate: 2 } });
  const specs = [...Object.values(curve.charts), plan.chart];
  const logger = vega.logger(vega.Error);
  const svg = async (spec, expr) => {
    const runtime = vega.parse(vegaLite.compile(spec, { logger }).spec, null, { ast: true });
    const view = new vega.View(runtime, { renderer: "none", expr, logger });
    return (await view.toSVG()).replace(/clip[0-9]+/g, "clip");
  };
  const drawn = (expr) => Promise.all(specs.map((spec) => svg(spec, expr)));
  return [await drawn(expressions), await drawn(expressionInterpreter)];
}"""
    )
    assert len(ours) == 7
    assert all("<path" in one for one in ours)
    assert ours == theirs


def test_the_page_says_what_the_api_says(visit, server):
    page = visit("#curve?model=qwen3-32b&on=2xh200&context=4k&step_limit=25ms")
    with urllib.request.urlopen(f"{server}/api/v1/curve?model=qwen3-32b&on=2xh200&context=4k&step_limit=25ms") as reply:
        best = json.load(reply)["optimum"]
    assert page.text("#tiles > div:first-child .value") == f"{best['batch']:,}"
    assert page.text("#tiles > div:nth-child(2) .value") == f"${best['usd_per_mtok']:.2f}"
    assert page.text("#at-batch") == f"{best['batch']:,}"


def test_one_cursor_moves_over_all_plots(visit):
    page = visit()
    at_best = page.text("#at-numbers")
    page.page.locator("#at").focus()
    for _ in range(10):
        page.page.keyboard.press("ArrowLeft")
    assert page.text("#at-numbers") != at_best
    lines = page.page.locator(".plots.six .cursor")
    assert lines.count() == 6
    lefts = {lines.nth(i).evaluate("line => line.style.left") for i in range(6)}
    assert len(lefts) == 1
    plot = page.page.locator("[data-plot='2.3']")
    plot.hover(position={"x": 120, "y": 150})
    hovered = page.text("#at-batch")
    page.page.mouse.move(5, 5)
    assert page.text("#at-batch") != hovered  # moving only looks
    plot.click(position={"x": 120, "y": 150})
    page.page.mouse.move(5, 5)
    assert page.text("#at-batch") == hovered  # pressing stays
    assert f"at={hovered}" in page.hash()
    page.page.wait_for_function("link => location.hash === link", arg=page.hash())
    page.page.locator("#at-run").click()
    assert page.text("#at-numbers") == at_best


@pytest.mark.slow
def test_the_breakdown_adds_up_at_the_cursor(visit):
    page = visit()
    shares = [int(text.rstrip("%").split()[-1]) for text in page.page.locator("#breakdown .value").all_inner_texts()]
    assert len(shares) == 5
    assert 97 <= sum(shares) <= 103


@pytest.mark.parametrize("language", ["en", "ko"])
def test_each_of_the_five_numbers_unfolds_into_its_equation(visit, language):
    page = visit(f"#curve?model=llama-3.1-8b&on=1xh100-sxm&context=4096&step_limit=20ms&price=3&lang={language}")
    page.settle()
    command = ["curve", "llama-3.1-8b", "--on", "h100-sxm", "--context", "4096", "--step-limit", "20ms", "--price", "3"]
    printed = subprocess.run(
        [sys.executable, "-m", "batchline", *command, "--explain", "--language", language],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    known = {" ".join(line.split()) for line in printed.splitlines()}
    equations = page.page.locator("#equations")
    unfolded = set()
    for number in page.page.locator("#tiles .unfold").all():
        assert number.get_attribute("aria-expanded") == "false"
        number.press("Enter")
        assert number.get_attribute("aria-expanded") == "true"
        lines = [" ".join(line.split()) for line in equations.locator("li").all_text_contents()]
        assert lines
        assert set(lines) <= known
        unfolded.update(lines)
    assert {line for line in known if " = " in line} <= unfolded
    # It follows the question, and folds up again.
    before = equations.inner_text()
    page.page.locator("#context").press("ArrowLeft")
    page.settle()
    assert equations.inner_text() != before
    page.page.locator("#tiles .unfold").last.press("Enter")
    assert not equations.is_visible()


def test_answers_that_come_within_one_frame_are_each_shown_in_a_frame_of_its_own(visit):
    shown = visit().page.evaluate(
        """async () => {
            const { Newest } = await import("/js/api.js");
            let frame = 0;
            const count = () => { frame += 1; requestAnimationFrame(count); };
            count();
            const shown = [], answers = [];
            await new Promise((done) => {
                const answer = () => new Promise((come) => answers.push(come));
                const show = (reply) => { shown.push([reply, frame]); if (shown.length === 3) done(); };
                const newest = new Newest(answer, show, done, 3);
                for (const question of "abc") newest.put(question);
                answers.forEach((come, i) => come("abc"[i]));
            });
            return shown;
        }"""
    )
    assert [reply for reply, _ in shown] == ["a", "b", "c"]
    assert len({frame for _, frame in shown}) == 3


def test_a_model_is_found_with_the_keyboard_alone(visit):
    page = visit()
    keys = page.page.keyboard
    page.page.locator("body").press("Tab")
    assert page.page.evaluate("document.activeElement.className") == "skip"
    for _ in range(30):
        keys.press("Tab")
        if page.page.evaluate("document.activeElement.id") == "model":
            break
    keys.type("deepseek v3")
    assert page.page.locator("#model").get_attribute("aria-expanded") == "true"
    keys.press("ArrowDown")
    keys.press("ArrowUp")
    keys.press("Enter")
    page.settle()
    assert page.page.locator("#model").input_value().startswith("deepseek-v3")
    assert "does not fit on 4 x h100-sxm" in page.text("#problem")
    page.page.get_by_role("button", name=re.compile(r"^Use \d+$")).focus()
    keys.press("Enter")
    page.page.locator("#problem").wait_for(state="hidden")
    page.settle()
    page.trouble.clear()  # the browser itself notes that an answer was 422
    assert page.text("#title").startswith("deepseek-v3")


@pytest.mark.slow
def test_a_wrong_value_is_named_at_its_field(visit):
    page = visit()
    page.page.locator("#context-text").fill("many")
    page.page.locator("#context-text").press("Enter")
    page.page.locator("#problem").wait_for()
    assert "'many'" in page.text("#problem")
    assert page.page.locator("#context-text").get_attribute("aria-invalid") == "true"
    page.page.locator("#context-text").fill("8k")
    page.page.locator("#context-text").press("Enter")
    page.page.locator("#problem").wait_for(state="hidden")
    page.trouble.clear()  # the browser itself notes that an answer was 422
    assert page.page.locator("[aria-invalid]").count() == 0


@pytest.mark.slow
def test_readings_and_formats_change_the_answer(visit):
    page = visit()
    said = {page.text("#headline")}
    for change in (
        lambda: page.page.locator("input[name=reading][value=bound]").check(),
        lambda: page.page.locator("#weights").select_option("fp8"),
        lambda: page.page.locator("#kv").select_option("fp8"),
        lambda: page.page.locator("input[name=reading][value=serial]").check(),
    ):
        change()
        page.settle()
        said.add(page.text("#headline"))
    assert len(said) == 4  # a step bound by memory is the same in both floors
    assert "attention" in page.text("#basis")


def test_four_deployments_are_compared(visit):
    page = visit()
    for device in ("h200", "b200", "mi300x"):
        page.page.locator("#compare-add").click()
        page.page.locator("#accelerator").fill(device)
        page.page.locator("#accelerator").press("Enter")
        page.settle()
    rows = page.page.locator("#compared tr")
    page.page.locator("#compare-plots svg").nth(2).wait_for()
    assert rows.count() == 5
    assert page.page.locator("#compare-add").is_disabled()
    assert len(set(rows.all_inner_texts())) == 5
    svg = page.page.locator("#compare-plots svg").first.evaluate("svg => svg.outerHTML")
    assert all(f">{letter}<" in svg for letter in "ABCD")
    address = page.hash()
    assert address.count("vs=") == 3
    # The link shows the same to somebody else.
    other = visit(address)
    other.page.locator("#compare-plots svg").nth(2).wait_for()
    playwright.expect(other.page.locator("#compared tr")).to_have_text(rows.all_text_contents())
    page.page.get_by_role("button", name="Change A").click()
    page.settle()
    assert "h100-sxm" in page.text("#title")
    page.page.get_by_role("button", name="Remove D").click()
    playwright.expect(rows).to_have_count(4)


CONFIG = {
    "_name_or_path": "mine/tiny",
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def drop(page, selector, name, text):
    page.page.evaluate(
        """([selector, name, text]) => {
            const data = new DataTransfer();
            data.items.add(new File([text], name));
            const dropped = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
            document.querySelector(selector).dispatchEvent(dropped);
        }""",
        [selector, name, text],
    )


def test_a_config_is_dropped_and_travels_in_the_link(visit):
    page = visit()
    drop(page, "#config-drop", "config.json", json.dumps(CONFIG))
    page.page.locator("#config-name").wait_for()
    page.settle()
    assert page.text("#title").startswith("tiny bf16")
    headline = page.text("#headline")
    other = visit(page.hash())
    assert other.text("#headline") == headline
    assert other.text("#title").startswith("tiny bf16")


def test_a_profile_is_dropped_and_travels_in_the_link(visit, calibrated):
    page = visit("#curve?model=llama-3.1-8b&on=1xh100-sxm&context=2048")
    before = page.text("#tiles")
    drop(page, "body", "mine.toml", calibrated)
    page.page.locator("#profile-name").wait_for()
    page.settle()
    assert "3 points of 2026-11-30" in page.text("#profile-name")
    after = page.text("#tiles")
    assert after != before
    assert visit(page.hash()).text("#tiles") == after
    page.page.locator("#profile-remove").click()
    page.settle()
    assert page.text("#tiles") == before


def test_a_result_file_is_dropped_and_drawn(visit):
    page = visit()
    table = "batch,context,t_step_s\n" + "".join(f"{b},8192,{0.02 + b * 0.0004}\n" for b in (1, 8, 32, 48))
    before = page.plots()["1.3"]
    drop(page, "body", "mine.csv", table)
    page.page.locator("#results li").wait_for()
    page.settle()
    assert "4 points of mine.csv" in page.text("#results")
    after = page.plots()["1.3"]
    assert after.count("<path") >= before.count("<path") + 4
    other = visit(page.hash())
    assert other.plots()["1.3"].count("<path") == after.count("<path")
    drop(page, "body", "broken.csv", "a,b\n1,2\n")
    page.page.locator("#problem").wait_for()
    assert "broken.csv" in page.text("#problem")
    page.trouble.clear()


def test_a_shared_link_opens_what_was_shared(visit):
    first = visit(
        "#curve?model=gpt-oss-120b&on=1xh200&context=16384&reading=bound&axis=linear&theme=dark&lang=ko&at=32"
    )
    assert "gpt-oss-120b" in first.text("#title")
    assert first.text("#at-batch") == "32"
    assert first.page.locator("#axis").input_value() == "linear"
    assert first.page.locator("html").get_attribute("lang") == "ko"
    assert first.page.locator("html").get_attribute("data-theme") == "dark"
    second = visit(first.hash())
    assert second.text("#headline") == first.text("#headline")
    assert second.plots() == first.plots()


def test_korean(visit):
    page = visit(locale="ko-KR")
    assert re.search(r"[가-힣]", page.text("#headline"))
    seen = page.text("body")
    assert not re.search(r"\bui_|undefined|NaN|\[object", seen)
    assert "배치 크기" in page.plots()["1.1"]
    page.page.get_by_role("button", name="English").click()
    page.settle()
    assert page.text("#headline").startswith("Run a batch")


@pytest.mark.slow
def test_the_theme_follows_the_system(visit):
    page = visit(color_scheme="light")
    for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 28)")):
        page.page.emulate_media(color_scheme=scheme)
        page.page.locator(f"html[data-theme={scheme}]").wait_for()
        page.settle()
        assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
        assert f'fill="{paper}"' in page.plots()["1.1"] or paper in page.plots()["1.1"]


@pytest.mark.parametrize("view", ["curve", pytest.param("plan", marks=pytest.mark.slow)])
def test_nothing_is_wider_than_the_screen(visit, view):
    page = visit(f"#{view}?model=llama-3.1-70b&on=4xh100-sxm")
    page.page.locator({"curve": "#plots svg", "plan": "#plan-chart svg"}[view]).first.wait_for()
    for language in ("English", "한국어"):
        page.page.get_by_role("button", name=language).click()
        for width, height in ((380, 800), (768, 1024), (1440, 900), (3840, 2160)):
            page.page.set_viewport_size({"width": width, "height": height})
            page.page.evaluate("document.querySelectorAll('details').forEach((box) => { box.open = true; })")
            assert page.page.evaluate("document.documentElement.scrollWidth") <= width
            overflowing = page.page.evaluate(
                """() => [...document.querySelectorAll("h1, h2, p, dt, dd, button, label, .plot")].filter((e) => {
                    const box = e.getBoundingClientRect();
                    const out = box.right > innerWidth + 1 || box.left < -1;
                    return e.checkVisibility() && out && !e.closest(".scroll, .spoken, .skip");
                }).map((e) => e.outerHTML.slice(0, 120))"""
            )
            assert not overflowing, (language, width)


@pytest.mark.slow
def test_the_table_has_the_same_figures(visit):
    page = visit()
    page.page.locator("#table-box summary").click()
    row = page.page.locator("#table tr.run").inner_text().split("\t")
    assert row[0] == page.text("#tiles > div:first-child .value")
    assert row[1] == page.text("#tiles > div:nth-child(3) .value")
    page.page.locator("#sources-box summary").click()
    page.page.locator("#sources tr").nth(3).wait_for()


@pytest.mark.slow
def test_downloads(visit, tmp_path):
    page = visit()
    for kind, said in (("csv", "batch,"), ("toml", 'model = "llama-3.1-70b"'), ("svg", "<svg")):
        with page.page.expect_download() as waiting:
            page.page.locator(f"#downloads [data-kind={kind}]").click()
        target = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(target)
        assert target.name == f"batchline.{kind}"
        assert said in target.read_text(encoding="utf-8")


def test_a_name_is_shown_and_never_run(visit):
    page = visit()
    drop(page, "body", "config.json", json.dumps({**CONFIG, "_name_or_path": "<img src=x onerror=alert(1)>"}))
    page.page.locator("#config-name").wait_for()
    page.settle()
    assert page.page.locator("img").count() == 0


@pytest.mark.slow
def test_the_server_comes_back_and_the_page_goes_on(visit):
    page = visit()
    page.page.route("**/api/v1/explore", lambda route: route.abort())
    page.page.locator("#context").press("ArrowRight")
    page.page.locator("#problem").wait_for()
    assert "does not answer" in page.text("#problem")
    page.page.unroute("**/api/v1/explore")
    page.page.locator("#problem").wait_for(state="hidden")
    page.trouble.clear()


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (1440, "light"),
        (1440, "dark"),
        (380, "light"),
    ],
)
@pytest.mark.slow
def test_axe_finds_nothing(visit, theme, width):
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    source = Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
    page = visit(f"#curve?theme={theme}", viewport={"width": width, "height": 900})
    page.page.locator("#compare-add").click()
    page.page.locator("#compare-plots svg").nth(2).wait_for()
    page.page.locator("#question-box").evaluate("box => box.open = true")
    page.page.locator("#more").evaluate("box => box.open = true")
    page.page.locator("#table-box summary").click()
    page.page.locator("#sources-box summary").click()
    page.page.evaluate(source)
    shown = {"Curve": "#compared", "Plan": "#plan-chart svg", "Price sheet": "#prices-table td"}
    shown |= {"Simulation": "#simulate-times svg"}
    for view, ready in shown.items():
        page.page.get_by_role("link", name=view).click()
        page.page.locator(ready).first.wait_for()
        found = page.page.evaluate(AXE)["violations"]
        assert not [(one["id"], one["impact"], [node["html"][:160] for node in one["nodes"]][:4]) for one in found]


AXE = "axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })"


PLAN = "#plan?model=llama-3.1-8b&on=1xh100-sxm&p.isl=1k&p.osl=256&p.rate=5&p.tpot=p95:40ms&p.accelerators=h100-sxm,l40s"


def test_a_launch_command_is_copied(visit, tmp_path):
    page = visit(PLAN, permissions=["clipboard-read", "clipboard-write"])
    page.page.locator("#plan-chart svg").wait_for()
    first = page.text("#launch-script")
    page.page.get_by_role("button", name="Its command 2").click()
    second = page.text("#launch-script")
    assert second != first
    page.page.locator("#launch-copy").click()
    page.page.get_by_role("button", name="Copied").wait_for()
    assert page.page.evaluate("navigator.clipboard.readText()").strip() == second.strip()
    for kind, said in (("toml", 'model = "llama-3.1-8b"'), ("csv", "accelerator,")):
        with page.page.expect_download() as waiting:
            page.page.locator(f"#plan-downloads [data-kind={kind}]").click()
        waiting.value.save_as(tmp_path / kind)
        assert said in (tmp_path / kind).read_text(encoding="utf-8")


def test_a_plan_takes_prices_and_stocks_and_travels_in_the_link(visit):
    page = visit(PLAN)
    page.page.locator("#plan-chart svg").wait_for()
    before = page.text("#plan-tiles")
    page.page.locator("#plan .more summary").click()
    page.page.locator("#plan-prices").fill("l40s=0.10, h100-sxm=99")
    page.page.locator("#plan-disaggregation").select_option("false")
    page.page.locator("#plan-answer[aria-busy=false]").wait_for()
    assert "l40s" in page.text("#plan-headline")
    assert page.text("#plan-tiles") != before
    other = visit(page.hash())
    other.page.locator("#plan-chart svg").wait_for()
    assert other.text("#plan-tiles") == page.text("#plan-tiles")
    page.page.locator("#plan-prices").fill("l40s=cheap")
    page.page.locator("#plan-problem").wait_for()
    assert page.page.locator("#plan-prices").get_attribute("aria-invalid") == "true"
    page.trouble.clear()


def test_the_other_views_speak_korean(visit):
    page = visit(f"{PLAN}&lang=ko")
    page.page.locator("#plan-chart svg").wait_for()
    told = [*page.page.locator("#plan-candidates small").all_inner_texts(), page.text("#plan-why")]
    page.page.get_by_role("link", name="가격표").click()
    page.page.locator("#prices-table tr + tr").first.wait_for()
    page.page.locator("#prices-chart svg").wait_for()
    told += page.page.locator("#prices-chart svg .role-title text").all_text_contents()
    told += [page.text("#prices-title"), *page.page.locator("#prices-table tr + tr td:first-child").all_inner_texts()]
    page.page.get_by_role("link", name="시뮬레이션").click()
    page.page.locator("#simulate-times svg").wait_for()
    told += [page.text("#simulate-headline"), page.text("#simulate-title")]
    told += page.page.locator("#simulate-over-time .role-axis-title text").all_text_contents()
    assert len(told) > 6
    assert not [one for one in told if not re.search("[가-힣]", one)]


def test_a_simulation_of_the_curves_deployment(visit):
    page = visit("#simulate?model=llama-3.1-8b&on=1xh100-sxm&t.rate=4&t.isl=1k&t.osl=200&t.requests=500&t.ttft=p95:2s")
    page.page.locator("#simulate-times svg").wait_for()
    before = page.text("#simulate-table")
    assert "first token" in before
    assert "ttft p95:2s: kept" in page.text("#simulate-promises")
    page.page.locator("#simulate-rate-range").press("End")
    page.page.locator("#simulate-reply[aria-busy=false]").wait_for()
    assert page.text("#simulate-table") != before
    assert "t.rate=100" in page.hash()


@pytest.mark.slow
def test_the_api_has_a_page(visit, server):
    page = visit()
    page.page.goto(f"{server}/api")
    page.page.locator("#reference table").first.wait_for()
    assert "POST /api/v1/curve" in page.page.locator("#reference").inner_text()
