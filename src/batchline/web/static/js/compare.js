// Up to four deployments side by side: a table, and their curves in one picture each.

import { Figure } from "./figures.js";
import { letters, state } from "./state.js";
import { rate, say, time, usd, whole } from "./words.js";

const byId = (id) => document.getElementById(id);

export class Comparison {
  constructor({ edit, remove, add }) {
    this.edit = edit;
    this.remove = remove;
    this.figures = new Map();
    this.key = "";
    byId("compare-add").addEventListener("click", add);
  }

  async show(replies, specs) {
    const several = state.questions.length > 1;
    byId("comparison").hidden = !several;
    byId("compare-add").disabled = state.questions.length >= letters.length;
    byId("compare-note").textContent = say(state.questions.length >= letters.length ? "ui_compare_full" : "ui_compare_means");
    if (!several) return;
    this.table(replies);
    const key = JSON.stringify([state.language, state.axis, document.documentElement.dataset.theme]);
    if (this.key !== key) {
      this.key = key;
      const made = await specs();
      for (const [name, spec] of Object.entries(made)) {
        if (!this.figures.has(name)) {
          const holder = document.createElement("figure");
          holder.className = "plot";
          byId("compare-plots").append(holder);
          this.figures.set(name, new Figure(holder));
        }
        await this.figures.get(name).draw(spec, { padding: { left: 52, right: 20, top: 56, bottom: 44 }, label: say(`ui_${name}_of`) });
      }
    }
    const rows = dataset(replies);
    await Promise.all([...this.figures.values()].map((figure) => figure.put({ datasets: rows, signals: {} })));
  }

  table(replies) {
    const head = document.createElement("tr");
    for (const [key, kind] of [["", "text"], ["ui_deployment", "text"], ["tile_batch", ""], ["tile_cost", ""], ["tile_time", ""], ["ui_user", ""], ["tile_rate", ""], ["tile_binds", "text"], ["", "text"]]) {
      const cell = document.createElement(key ? "th" : "td");
      if (key) cell.scope = "col";
      cell.className = kind;
      cell.textContent = key ? say(key) : "";
      head.append(cell);
    }
    byId("compared").replaceChildren(head, ...state.questions.map((question, i) => this.line(question, replies[i], i)));
  }

  line(question, reply, i) {
    const line = document.createElement("tr");
    if (i === state.edited) line.className = "edited";
    const chip = document.createElement("span");
    chip.className = `chip ${letters[i]}`;
    chip.textContent = letters[i];
    const texts = reply?.curve
      ? [reply.answer.title, whole(reply.curve.optimum.batch), reply.curve.optimum.usd_per_mtok === null ? "–" : usd(reply.curve.optimum.usd_per_mtok),
        time(reply.curve.optimum.t_step_s), rate(1 / reply.curve.optimum.t_step_s),
        rate(reply.curve.optimum.batch / reply.curve.optimum.t_step_s / reply.curve.count), reply.answer.tiles.at(-1).value]
      : [reply?.problem ?? say("ui_working"), "–", "–", "–", "–", "–", ""];
    const first = document.createElement("td");
    first.className = "text";
    first.append(chip);
    line.append(first);
    texts.forEach((text, k) => {
      const cell = document.createElement("td");
      cell.textContent = text;
      if (k === 0 || k === 6) cell.className = "text";
      line.append(cell);
    });
    const last = document.createElement("td");
    last.className = "text";
    if (i === state.edited) last.append(say("ui_edited"));
    else {
      last.append(this.button("ui_edit", letters[i], () => this.edit(i)), " ", this.button("ui_remove", letters[i], () => this.remove(i)));
    }
    line.append(last);
    return line;
  }

  button(key, letter, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain";
    button.textContent = say(key);
    button.setAttribute("aria-label", `${say(key)} ${letter}`);
    button.addEventListener("click", act);
    return button;
  }
}

function dataset(replies) {
  const lines = [];
  const marks = [];
  replies.forEach((reply, i) => {
    if (!reply?.curve) return;
    const { points, curve } = reply;
    const who = letters[i];
    const limit = curve.capacity_batch ?? Infinity;
    points.batch.forEach((batch, k) => {
      if (batch > limit) return;
      const cost = points.usd_per_mtok ? points.usd_per_mtok[k] : null;
      lines.push({ who, batch, ms: points.t_step_s[k] * 1e3, cost, user: 1 / points.t_step_s[k] });
    });
    const best = curve.optimum;
    marks.push({ who, batch: best.batch, ms: best.t_step_s * 1e3, cost: best.usd_per_mtok, user: 1 / best.t_step_s });
  });
  return { lines, marks };
}
