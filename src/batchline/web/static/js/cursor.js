// One batch, looked at in all plots together: a line over each, the figures beside the slider.

import { state } from "./state.js";
import { percent, rate, say, time, usd, whole } from "./words.js";

const slider = document.getElementById("at");
const shown = document.getElementById("at-batch");
const numbers = document.getElementById("at-numbers");
const bars = document.getElementById("breakdown");
const back = document.getElementById("at-run");
const ofLoad = document.getElementById("at-load");
const barsAt = document.getElementById("breakdown-at");

export class Cursor {
  constructor(changed) {
    this.points = null;
    this.hover = null;
    this.figures = [];
    this.lines = [];
    this.rows = new Map();
    this.parts = new Map();
    this.changed = changed;
    slider.addEventListener("input", () => this.look(Number(slider.value)));
    back.addEventListener("click", () => { state.at = null; this.update(); this.changed(); });
  }

  over(figures) {
    this.figures = figures;
    this.lines = figures.map((figure) => {
      const line = figure.holder.querySelector(".cursor") ?? document.createElement("div");
      line.className = "cursor";
      figure.holder.append(line);
      figure.holder.onpointermove = (event) => this.point(figure, event, false);
      figure.holder.onpointerdown = (event) => this.point(figure, event, true);
      figure.holder.onpointerleave = () => { this.hover = null; this.update(); };
      const [top, height] = figure.frame();
      line.style.top = `${top * 100}%`;
      line.style.height = `${height * 100}%`;
      return line;
    });
  }

  // Moving over a plot looks, pressing stays.
  point(figure, event, stay) {
    if (!this.points) return;
    const share = figure.share(event.clientX);
    if (share < -0.02 || share > 1.02) return;
    const { low, high, log } = this.axis;
    const batch = log ? low * (high / low) ** share : low + share * (high - low);
    const list = this.points.batch;
    let best = 0;
    for (let i = 1; i < list.length; i++)
      if (Math.abs(this.shareOf(list[i]) - this.shareOf(batch)) < Math.abs(this.shareOf(list[best]) - this.shareOf(batch))) best = i;
    if (stay) this.look(best);
    else { this.hover = best; this.update(); }
  }

  look(index) {
    state.at = this.points.batch[index];
    this.hover = null;
    this.update();
    this.changed();
  }

  shareOf(batch) {
    const { low, high, log } = this.axis;
    return log ? Math.log(batch / low) / Math.log(high / low) : (batch - low) / (high - low);
  }

  // `axis` are the ends of the plots' batch axis, `load` the batch that the load asked for keeps running, or null.
  show(points, curve, axis, load) {
    Object.assign(this, { points, curve, axis, load });
    slider.max = String(points.batch.length - 1);
    this.update();
  }

  get index() {
    if (this.hover !== null && this.hover < this.points.batch.length) return this.hover;
    const wanted = state.at ?? this.load ?? this.curve.optimum.batch;
    const list = this.points.batch;
    let best = 0;
    for (let i = 1; i < list.length; i++) if (Math.abs(list[i] - wanted) < Math.abs(list[best] - wanted)) best = i;
    return best;
  }

  update() {
    if (!this.points) return;
    const i = this.index;
    const { points, curve } = this;
    const batch = points.batch[i];
    slider.value = String(i);
    back.hidden = state.at === null;
    ofLoad.hidden = this.load === null || state.at !== null || this.hover !== null;
    slider.setAttribute("aria-valuetext", `${whole(batch)}, ${time(points.t_step_s[i])}`);
    shown.textContent = whole(batch);
    const share = this.shareOf(batch);
    this.figures.forEach((figure, k) => {
      this.lines[k].style.left = `${figure.across(share) * 100}%`;
      // At the batch to run the plots have a rule of their own.
      this.lines[k].hidden = batch === curve.optimum.batch || share < -0.001 || share > 1.001;
    });
    const beyond = curve.capacity_batch !== null && batch > curve.capacity_batch;
    const rows = [
      ["ui_step", time(points.t_step_s[i])],
      ["ui_user", rate(1 / points.t_step_s[i])],
      ["ui_total", rate(points.output_tokens_per_s[i])],
      ["ui_cost", points.usd_per_mtok ? usd(points.usd_per_mtok[i]) : "–"],
      ["MFU", percent(points.mfu[i])],
      ["MBU", percent(points.mbu[i])],
      ["ui_bound_by", beyond ? say("ui_does_not_fit") : say(`name_${points.bound_by[i]}`)],
    ];
    for (const [key, value] of rows) this.row(key, value);
    this.breakdown(i, batch);
  }

  row(key, value) {
    let cell = this.rows.get(key);
    if (!cell) {
      const line = document.createElement("div");
      const name = document.createElement("dt");
      cell = document.createElement("dd");
      line.append(name, cell);
      numbers.append(line);
      this.rows.set(key, cell);
      name.dataset.text = key;
      name.textContent = say(key);
    }
    if (cell.textContent !== value) cell.textContent = value;
  }

  breakdown(i, batch) {
    const { points } = this;
    barsAt.textContent = say("ui_at_batch", { batch: whole(batch) });
    const terms = Object.entries(points.terms);
    const total = terms.reduce((sum, [, values]) => sum + values[i], 0);
    for (const name of [...this.parts.keys()]) if (!(name in points.terms)) { this.parts.get(name).row.remove(); this.parts.delete(name); }
    for (const [name, values] of terms) {
      const part = this.parts.get(name) ?? this.part(name);
      const share = values[i] / total;
      part.label.textContent = say(`name_${name}`);
      part.fill.style.width = `${share * 100}%`;
      part.value.textContent = `${time(values[i])}  ${percent(share)}`;
    }
  }

  part(name) {
    const row = document.createElement("li");
    const label = document.createElement("span");
    const track = document.createElement("div");
    const fill = document.createElement("div");
    const value = document.createElement("span");
    track.className = "track";
    fill.className = "bar-fill";
    value.className = "value";
    fill.style.background = `var(--${name === "compute_beyond" ? "compute" : name})`;
    track.append(fill);
    row.append(label, track, value);
    bars.append(row);
    const part = { row, label, fill, value };
    this.parts.set(name, part);
    return part;
  }
}
