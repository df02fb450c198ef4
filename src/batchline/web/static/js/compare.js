// Up to four deployments side by side: a table, and their curves in one picture each.

import { button, byId, element, fill } from "./dom.js";
import { Figure } from "./figures.js";
import { letters, state } from "./state.js";
import { rate, say, time, usd, whole } from "./words.js";

export class Comparison {
  constructor({ edit, remove, add }) {
    this.edit = edit;
    this.remove = remove;
    this.figures = new Map();
    this.key = "";
    this.drawn = null;
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
      this.drawn = this.draw(specs);
    }
    await this.drawn;
    const rows = dataset(replies);
    await Promise.all([...this.figures.values()].map((figure) => figure.put({ datasets: rows, signals: {} })));
  }

  async draw(specs) {
    for (const [name, spec] of Object.entries(await specs())) {
      if (!this.figures.has(name)) {
        const holder = document.createElement("figure");
        holder.className = "plot";
        byId("compare-plots").append(holder);
        this.figures.set(name, new Figure(holder));
      }
      await this.figures.get(name).draw(spec, { padding: { left: 46, right: 24, top: 66, bottom: 40 }, label: say(`ui_${name}_of`) });
    }
  }

  table(replies) {
    const columns = [["", "text"], ["ui_deployment", "text"], ["ui_batch", ""], ["ui_cost", ""], ["ui_step", ""], ["ui_user", ""], ["tile_rate", ""], ["tile_binds", "text"], ["", "text"]];
    const rows = state.questions.map((_, i) => [element("span", letters[i], `chip ${letters[i]}`), ...figures(replies[i]), this.actions(i)]);
    fill(byId("compared"), columns.map(([key, kind]) => [key ? say(key) : "", kind]), rows, state.questions.map((_, i) => (i === state.edited ? "edited" : "")));
  }

  actions(i) {
    if (i === state.edited) return say("ui_edited");
    const made = (key, act) => button(say(key), () => act(i), "plain", `${say(key)} ${letters[i]}`);
    return [made("ui_edit", this.edit), " ", made("ui_remove", this.remove)];
  }
}

function figures(reply) {
  if (!reply?.curve) return [reply?.problem ?? say("ui_working"), "–", "–", "–", "–", "–", ""];
  const { curve, answer } = reply;
  const best = curve.optimum;
  return [
    answer.title, whole(best.batch), best.usd_per_mtok === null ? "–" : usd(best.usd_per_mtok), time(best.t_step_s),
    rate(1 / best.t_step_s), rate(best.batch / best.t_step_s / curve.count), answer.tiles.at(-1).value,
  ];
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
    const [dx, dy] = [[-13, -12], [13, -12], [-13, 13], [13, 13]][i];
    marks.push({ who, dx, dy, batch: best.batch, ms: best.t_step_s * 1e3, cost: best.usd_per_mtok, user: 1 / best.t_step_s });
  });
  return { lines, marks };
}
