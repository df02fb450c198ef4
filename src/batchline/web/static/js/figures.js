// The charts of the library, drawn once; afterwards only their data and signals change. The six plots come as Vega, into
// which their data are put; other views give Vega-Lite, whose translator is loaded when one of them is opened.

import { expressions } from "./expressions.js";

export class Figure {
  // `key` begins the names of the plot's datasets and signals, as p11 of plot 1.1.
  constructor(holder, key = "") {
    this.holder = holder;
    this.key = key;
    this.placed = null;
    this.seen = true;
    new IntersectionObserver(([entry]) => { this.seen = entry.isIntersecting; }, { rootMargin: "100px" }).observe(holder);
    this.view = null;
    this.signals = new Set();
    this.datasets = new Set();
  }

  async draw(chart, { given = null, padding = null, label = "" } = {}) {
    let { datasets, params, width, height } = chart;
    let signals = Object.fromEntries((params ?? []).map(({ name, value }) => [name, value]));
    if (given) {
      datasets = { ...given.datasets, ...this.rows(given.columns[this.key]) };
      ({ signals } = given);
    }
    const compiled = given ? filled(chart, datasets, signals) : await translated(chart);
    if (padding) Object.assign(compiled, { autosize: { type: "none" }, padding });
    this.view?.finalize();
    const canvas = document.createElement("div");
    this.view = new globalThis.vega.View(globalThis.vega.parse(compiled, null, { ast: true }), {
      renderer: "svg", container: canvas, expr: expressions, logger: quiet(),
    });
    // A plot with two vertical axes calls the left one layer_0_y.
    this.kinds = Object.fromEntries(["x", "y"].map((which) => [which, compiled.scales?.find(({ name }) => name === which || name.endsWith(`_0_${which}`))?.type]));
    this.padding = padding;
    Object.assign(this, { width, height });
    this.datasets = new Set(compiled.data.map(({ name }) => name));
    this.signals = new Set((compiled.signals ?? []).map(({ name }) => name));
    await this.view.runAsync();
    this.rest(datasets, signals);
    this.canvas?.remove();
    this.canvas = canvas;
    this.holder.prepend(canvas);
    this.describe(label);
  }

  svg() {
    return this.view.toSVG();
  }

  async png() {
    const canvas = await this.view.toCanvas(2);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }

  describe(label) {
    const svg = this.canvas.querySelector("svg");
    svg.setAttribute("role", "img");
    if (label) svg.setAttribute("aria-label", label);
    for (const part of svg.querySelectorAll("[role], [aria-label], [aria-roledescription]")) {
      part.removeAttribute("role");
      part.removeAttribute("aria-label");
      part.removeAttribute("aria-roledescription");
      part.setAttribute("aria-hidden", "true");
    }
  }

  put({ datasets, signals, columns }) {
    // What is out of sight is drawn when it all rests.
    if (columns && !this.seen && !(`${this.key}_labels` in datasets)) return null;
    if (columns?.[this.key]) datasets = { ...datasets, ...this.rows(columns[this.key]) };
    if (`${this.key}_labels` in datasets) this.rest(datasets, signals);
    else if (columns) datasets = { ...datasets, ...this.ridden(columns[this.key], signals) };
    for (const name of this.datasets) if (name in datasets) this.change(name, datasets[name]);
    for (const name of this.signals) if (name in signals && !alike(this.view.signal(name), signals[name])) this.view.signal(name, signals[name]);
    return this.view.runAsync();
  }

  // What stays is left alone, and what moves is changed in place: Vega then moves its drawing instead of making it anew.
  change(name, rows) {
    const held = new Map();
    for (const row of this.view.data(name)) {
      if (!held.has(kind(row))) held.set(kind(row), []);
      held.get(kind(row)).push(row);
    }
    const changes = globalThis.vega.changeset();
    let count = 0;
    for (const row of rows) {
      const old = held.get(kind(row))?.shift();
      if (!old) count += changes.insert(row) && 1;
      else for (const field in row) if (old[field] !== row[field]) count += changes.modify(old, field, row[field]) && 1;
    }
    for (const gone of held.values()) if (gone.length) count += changes.remove(gone) && 1;
    if (count) this.view.change(name, changes);
  }

  // Remember where the names were put, and by which lines.
  rest(datasets, signals) {
    const labels = datasets[`${this.key}_labels`];
    if (!labels) return;
    const lines = new Map();
    for (const { role, batch, value } of datasets[`${this.key}_lines`]) {
      if (!lines.has(role)) lines.set(role, { batch: [], value: [] });
      lines.get(role).batch.push(batch);
      lines.get(role).value.push(value);
    }
    this.placed = { labels, lines, run: datasets[`${this.key}_marks`].find((mark) => mark.look === "run"), signals };
  }

  // Lines and band come as columns; Vega takes rows.
  rows({ lines, band }) {
    const rows = [];
    for (const { role, batch, value } of lines) for (let i = 0; i < batch.length; i++) rows.push({ role, batch: batch[i], value: value[i] });
    const strips = (band?.batch ?? []).map((batch, i) => ({ batch, low: band.low[i], high: band.high[i] }));
    return { [`${this.key}_lines`]: rows, [`${this.key}_band`]: strips };
  }

  // While something moves, each name rides on its line and the optimum's on its mark; the rest stands back.
  ridden({ lines, run }, signals) {
    const moved = new Map(lines.map((line) => [line.role, line]));
    const labels = [];
    for (const label of this.placed?.labels ?? []) {
      const before = this.placed.lines.get(label.role);
      const after = moved.get(label.role);
      if (label.role !== "step" && before && after) {
        const x = label.x + ({ left: 20, right: -20 }[label.align] ?? 0);
        const dy = this.heightAt(after, x, signals) - this.heightAt(before, x, this.placed.signals);
        const y = label.y + dy;
        if (y > 6 && y < this.height - 6) labels.push({ ...label, y });
      }
    }
    const name = this.placed?.labels.find((label) => label.role === "step");
    if (name && run && this.placed.run) {
      const mark = { x: this.width * share(run.batch, this.axis("x", signals)), y: this.height * (1 - share(run.value, this.axis("y", signals))) };
      const was = { x: this.width * share(this.placed.run.batch, this.axis("x", this.placed.signals)), y: this.height * (1 - share(this.placed.run.value, this.axis("y", this.placed.signals))) };
      const x = name.x + mark.x - was.x;
      const y = Math.min(this.height - 8, Math.max(8, name.y + mark.y - was.y));
      const room = { left: this.width - x, right: x, center: 2 * Math.min(x, this.width - x) }[name.align];
      const text = run.texts.find((words) => words && words.length * 7.6 < room);
      if (text) labels.push({ ...name, text, x, y });
    }
    return { [`${this.key}_labels`]: labels, [`${this.key}_leaders`]: [] };
  }

  axis(which, signals) {
    const [low, high] = [`${this.key}_${which}_low`, `${this.key}_${which}_high`].map((name) => signals[name]);
    return { low, high, log: this.kinds[which] === "log" };
  }

  // Pixels from the top at which a line passes a pixel of the horizontal axis.
  heightAt({ batch, value }, x, signals) {
    const across = this.axis("x", signals);
    const up = this.axis("y", signals);
    const at = unshare(x / this.width, across);
    let i = batch.findIndex((b) => b >= at);
    if (i < 0) return this.height * (1 - share(value.at(-1), up));
    if (i === 0) i = 1;
    const part = Math.min(1, Math.max(0, (share(at, across) - share(batch[i - 1], across)) / (share(batch[i], across) - share(batch[i - 1], across))));
    return this.height * (1 - (share(value[i - 1], up) * (1 - part) + share(value[i], up) * part));
  }

  // Where a share of the horizontal axis lies, as a share of the picture's width.
  across(share) {
    const total = this.padding.left + this.width + this.padding.right;
    return (this.padding.left + share * this.width) / total;
  }

  // And back, from a pointer.
  share(clientX) {
    const box = this.canvas.getBoundingClientRect();
    const total = this.padding.left + this.width + this.padding.right;
    return (((clientX - box.left) / box.width) * total - this.padding.left) / this.width;
  }

  // Top and height of the plot itself within the picture, as shares.
  frame() {
    const total = this.padding.top + this.height + this.padding.bottom;
    return [this.padding.top / total, this.height / total];
  }
}

const share = (value, { low, high, log }) => (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
const unshare = (part, { low, high, log }) => (log ? low * (high / low) ** part : low + part * (high - low));

// Rows of one kind follow each other: points of a line, a mark of its look.
const kind = (row) => row.role ?? row.look ?? "";
const alike = (a, b) => a === b || (Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((value, i) => value === b[i]));

// Vega with its data and signals in it.
function filled(chart, datasets, signals) {
  const data = chart.data.map((one) => (one.name in datasets ? { ...one, values: datasets[one.name] } : one));
  return { ...chart, data, signals: chart.signals.map((one) => (one.name in signals ? { ...one, value: signals[one.name] } : one)) };
}

async function translated(chart) {
  await import("../vendor/vega-lite.min.js");
  // The picture is described as one; to describe each point of each line would take a third of every step.
  const spec = { ...chart, config: { ...chart.config, aria: false } };
  return globalThis.vegaLite.compile(spec, { logger: quiet() }).spec;
}

const quiet = () => globalThis.vega.logger(globalThis.vega.Error);
