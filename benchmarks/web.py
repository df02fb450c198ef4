"""The page and the API: slider to plot, page weight and time to ready, requests a second, memory over time.

    python benchmarks/web.py page            # needs Debian's chromium and playwright
    python benchmarks/web.py api             # needs wrk
    python benchmarks/web.py memory --minutes 10

Slider to plot: a key press on the context slider until the frame in which the last of the six plots has changed. First
20 single presses, then 40 at the rate of a held key (30 a second); an update is dropped when the plots never showed
that step. The server runs here with one worker, so page and server share the machine's cores. The yardsticks of
the same run: how long asking the server took, and how long drawing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]

# Watches the plots: each change of the data of all six becomes one entry, at the frame that shows it.
WATCH = """() => {
  window.pressed = []; window.changed = [];
  document.getElementById("context").addEventListener("keydown", () => pressed.push(performance.now()), true);
  const dirty = new Set(); let asked = false;
  const plots = [...document.querySelectorAll(".plots.six .plot")];
  plots.forEach((plot, i) => new MutationObserver(() => {
    dirty.add(i);
    if (dirty.size === plots.length && !asked) {
      asked = true;
      requestAnimationFrame(() => {
        changed.push([performance.now(), document.getElementById("title").textContent]); dirty.clear(); asked = false;
      });
    }
  }).observe(plot.querySelector("svg"), { subtree: true, childList: true, attributes: true, characterData: true }));
}"""


@contextmanager
def served(*options: str) -> Iterator[tuple[str, int]]:
    """Start the server on a free port; give its address and process."""
    command = [sys.executable, "-m", "batchline", "serve", "--port", "0", "--no-log", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        if process.stderr is None or not select.select([process.stderr], [], [], 60)[0]:
            raise SystemExit("the server says nothing")
        line = process.stderr.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            raise SystemExit(line)
        base = found[0].replace("localhost", "127.0.0.1")
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{base}/health", timeout=1).read()  # noqa: S310
                break
            except OSError:
                time.sleep(0.1)
        yield base, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)


def quantile(values: list[float], share: float) -> float:
    """Value below which a share of the values lies."""
    return sorted(values)[min(len(values) - 1, round(share * (len(values) - 1)))]


def shown(name: str, values: list[float]) -> None:
    middle, p90 = statistics.median(values), quantile(values, 0.9)
    print(f"{name:<44}{middle:>8.1f}{p90:>8.1f}{max(values):>8.1f}   ms, n {len(values)}")


def load() -> str:
    return ", ".join(f"{value:.1f}" for value in os.getloadavg())


def page(rounds: int) -> None:
    """Slider to plot, in rounds that show the noise of the machine."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (only this part needs it)

    with served() as (base, _), sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for number in range(rounds):
            print(f"\nround {number + 1}, load {load()}")
            print(f"{'':<44}{'median':>8}{'p90':>8}{'max':>8}")
            # A price of its own, so that nothing is remembered from the round before.
            once(browser, f"{base}/#curve?model=llama-3.1-70b&on=4xh100-sxm&context=8192&price=3.{number + 50}")
        browser.close()


def once(browser: Any, address: str) -> None:
    """One visit: ready, single presses, a burst."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    visit = context.new_page()
    weight = []
    visit.on("response", lambda answer: weight.append(answer))  # noqa: PLW0108  (playwright marks its handlers)
    started = time.perf_counter()
    visit.goto(address)
    visit.locator("body[data-ready]").wait_for()
    ready = time.perf_counter() - started
    ready_in_page = visit.evaluate("performance.getEntriesByName('ready')[0]?.startTime ?? NaN")
    sent = sum(answer.request.sizes()["responseBodySize"] for answer in weight)
    visit.evaluate(WATCH)
    slider = visit.locator("#context")
    slider.focus()
    single, asking = [], []
    for _ in range(20):
        visit.evaluate("pressed.length = changed.length = 0; performance.clearResourceTimings()")
        visit.keyboard.press("ArrowRight")
        visit.locator("#answer[aria-busy=false]").wait_for()
        visit.wait_for_timeout(60)
        seen = visit.evaluate("[pressed[0], changed.map((entry) => entry[0])]")
        single.append(next(at for at in seen[1] if at > seen[0]) - seen[0])
        asking += visit.evaluate("performance.getEntriesByType('resource').slice(0, 1).map((entry) => entry.duration)")
    visit.evaluate("pressed.length = changed.length = 0")
    visit.evaluate(BURST)
    visit.locator("#answer[aria-busy=false]").wait_for()
    visit.wait_for_timeout(100)
    pressed, changed = visit.evaluate("[pressed, changed]")
    # The last update is the rest with the names in place: it shows the same step as the one before.
    steps = list({title: at for at, title in reversed(changed)}.values())
    settle = min(at for at in steps if at >= max(steps)) - pressed[-1]
    rate = 1e3 * (len(pressed) - 1) / (pressed[-1] - pressed[0])
    drawing = visit.evaluate(DRAW)
    shown("single press to six plots changed", single)
    shown("  of this, asking the server", asking)
    shown("  of this, drawing the six plots", drawing)
    name = f"40 presses in a burst, {rate:.0f} a second"
    print(f"{name:<44}{len(steps):>8} shown, {40 - len(steps)} dropped; last press to last change {settle:.0f} ms")
    times = f"{ready_in_page:>8.0f} ms in the page, {ready * 1e3:.0f} ms by the driver"
    print(f"{'page ready':<44}{times}; {sent / 1e6:.2f} MB sent")
    context.close()


# A held key, without the driver between the presses.
BURST = """() => new Promise((done) => {
  const slider = document.getElementById("context");
  const timer = setInterval(() => {
    pressed.push(performance.now());
    slider.stepDown();
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    if (pressed.length === 40) { clearInterval(timer); done(); }
  }, 33);
})"""

# What the browser does between the answer and the frame: the page marks both.
DRAW = "performance.getEntriesByName('drawing').map((entry) => entry.duration).slice(-60)"


NEW = """request = function()
  local context = 1000 + math.random(100000)
  return wrk.format("GET", "/api/v1/curve?model=llama-3.1-70b&on=4xh100&context=" .. context)
end
"""


def api(seconds: int) -> None:
    """Requests a second with wrk: the same question, and questions that nobody asked before."""
    for workers in (1, 2):
        with served("--workers", str(workers)) as (base, pid):
            time.sleep(25)  # every worker draws charts before it is ready
            print(f"\n{workers} worker(s), load {load()}")
            same = f"{base}/api/v1/curve?model=llama-3.1-70b&on=4xh100&context=8192"
            print(wrk("one question, remembered", [same], seconds, pid))
            script = NEW
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "new.lua"
                file.write_text(script)
                print(wrk("new questions, each worked out", ["-s", str(file), base], seconds, pid))


def processor_s(pid: int) -> float:
    """Processor time of a process and its children so far [s]: what a request costs, however busy the machine is."""
    total = 0.0
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            _, _, rest = place.read_text().rpartition(")")
            fields = rest.split()
            if int(place.parent.name) == pid or int(fields[1]) == pid:
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def wrk(name: str, words: list[str], seconds: int, pid: int) -> str:
    """Run wrk with 16 connections and read what it prints."""
    command = ["wrk", "-t1", "-c16", f"-d{seconds}s", "--latency", *words]
    before = processor_s(pid)
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    spent = processor_s(pid) - before
    count = re.search(r"(\d+) requests in", text)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    p99 = re.search(r"^\s+99%\s+(\S+)", text, re.MULTILINE)
    p50 = re.search(r"^\s+50%\s+(\S+)", text, re.MULTILINE)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    if rate is None or p99 is None or p50 is None or count is None:
        raise SystemExit(text)
    each = f"{1e3 * spent / int(count[1]):.2f} ms of processor each"
    told = f"median {p50[1]}, p99 {p99[1]}, {bad[1] if bad else 0} refused; {each}"
    return f"{name:<44}{float(rate[1]):>8.0f} req/s   {told}"


def memory(minutes: float) -> None:
    """Resident memory of the server while new questions keep coming."""
    with served() as (base, pid):
        asked, started, last = 0, time.monotonic(), -1.0
        while time.monotonic() - started < minutes * 60:
            body = {"question": {"model": "llama-3.1-70b", "on": "4xh100", "context": 1000 + asked}, "charts": "moving"}
            request = urllib.request.Request(  # noqa: S310
                f"{base}/api/v1/explore", json.dumps(body).encode(), {"content-type": "application/json"}
            )
            urllib.request.urlopen(request).read()  # noqa: S310
            asked += 1
            minute = (time.monotonic() - started) / 60
            if minute - last >= max(0.5, minutes / 12):
                last = minute
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                print(
                    f"{minute:6.1f} min {asked:>8} questions {pages * os.sysconf('SC_PAGE_SIZE') / 1e6:8.1f} MB",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["page", "api", "memory"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=10)
    given = parser.parse_args()
    {"page": lambda: page(given.rounds), "api": lambda: api(given.seconds), "memory": lambda: memory(given.minutes)}[
        given.what
    ]()


if __name__ == "__main__":
    main()
