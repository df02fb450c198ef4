// What to charge: the price sheet of the curve's deployment.

import { Newest, Refused, ask } from "./api.js";
import { byId, csv, downloads, element, fill, narrow, problemInto, put, toml } from "./dom.js";
import { Fields } from "./fields.js";
import { Figure } from "./figures.js";
import { OF_DEPLOYMENT, asked, current, remember, state } from "./state.js";
import { percent, say, usd, whole } from "./words.js";

const SHARES = Array.from({ length: 20 }, (_, i) => Number(((i + 1) * 0.05).toFixed(2)));

export class PriceView {
  constructor({ theme }) {
    this.chart = new Figure(byId("prices-chart"));
    const address = () => `api/v1/price?language=${state.language}&theme=${theme()}&narrow=${narrow.matches}`;
    this.newest = new Newest((question, signal) => ask(address(), question, signal), (reply) => this.show(reply), (error) => this.fail(error));
    this.fields = new Fields(byId("prices-fields"), "prices", [
      { name: "isl", label: "ui_plan_isl", kind: "text" },
      { name: "osl", label: "ui_plan_osl", kind: "text" },
      { name: "tpot", label: "ui_plan_tpot", kind: "text" },
      { name: "utilisation", label: "ui_prices_use", kind: "slider", steps: SHARES, text: String, usual: "1" },
      { name: "margin", label: "ui_prices_margin", kind: "slider", steps: [0, ...SHARES.slice(0, -1)], text: String, usual: "0" },
      { name: "prefix_hit_rate", label: "ui_prices_hits", kind: "slider", steps: [0, ...SHARES.slice(0, -1)], text: String, usual: "0.9" },
      { name: "fast", label: "ui_prices_fast", kind: "slider", steps: [1.5, 2, 2.5, 3, 4, 5, 6], text: String, usual: "2.5" },
      { name: "market", label: "ui_prices_market", kind: "select", options: [["", "ui_prices_market_none"], ["own", "ui_prices_market_own"]] },
    ], () => state.prices, () => this.ask());
    byId("prices-form").addEventListener("submit", (event) => event.preventDefault());
    downloads(byId("prices-downloads"), "prices", {
      png: () => this.reply && this.chart.png(),
      svg: () => this.reply && this.chart.svg(),
      csv: () => this.reply && this.table(),
      toml: () => this.asked && toml(this.asked),
    });
  }

  enter() {
    this.fields.show();
    this.ask();
  }

  ask() {
    const deployment = asked(current());
    const question = Object.fromEntries(Object.entries(deployment).filter(([name]) => name === "reading" || OF_DEPLOYMENT.includes(name)));
    for (const [name, value] of Object.entries(state.prices)) question[name] = /^[\d.]+$/.test(value) ? Number(value) : value;
    if (typeof question.tpot === "number") question.tpot /= 1000;
    if (question.market) question.market = "";  // under the model's own name
    remember();
    this.asked = question;
    byId("prices-reply").setAttribute("aria-busy", "true");
    this.newest.put(question);
  }

  async show(reply) {
    this.reply = reply;
    byId("prices-reply").classList.remove("stale");
    byId("prices-problem").hidden = true;
    this.fields.refuse(null);
    put(byId("prices-of"), reply.shown.title);
    put(byId("prices-title"), `${reply.shown.title}, ${usd(reply.usd_per_hour)}/h (${reply.price})`);
    const price = (name) => usd(reply.rows.find((row) => row.name === name).usd_per_mtok_price);
    const headline = say("ui_prices_headline", { input: price("input"), output: price("output") });
    put(byId("prices-headline"), headline);
    put(byId("prices-basis"), say("ui_prices_basis", {
      batch: whole(reply.batch), tpot: reply.shown.tpot, use: percent(reply.utilisation), margin: percent(reply.margin),
    }));
    fill(byId("prices-table"), [["", "text"], [say("ui_prices_cost"), ""], [say("ui_prices_price"), ""], [say("ui_prices_times"), ""], [say("ui_prices_why"), "text wrap"]],
      reply.rows.map((row, i) => [reply.shown.rows[i].name, usd(row.usd_per_mtok_cost), usd(row.usd_per_mtok_price), row.times_base.toPrecision(3), reply.shown.rows[i].why]),
      reply.rows.map((row) => (["input", "output"].includes(row.name) ? "run" : "")));
    byId("prices-notes").replaceChildren(...reply.shown.notes.map((note) => element("li", note)));
    await this.chart.draw(reply.chart, { label: headline });
    byId("prices-reply").setAttribute("aria-busy", String(this.newest.pending));
  }

  fail(error) {
    byId("prices-reply").setAttribute("aria-busy", String(this.newest.pending));
    byId("prices-reply").classList.add("stale");
    const body = error instanceof Refused ? error.body : { problem: say("ui_offline"), hint: say("ui_offline_hint") };
    problemInto(byId("prices-problem"), body);
    this.fields.refuse(body.field);
  }

  table() {
    const names = Object.keys(this.reply.rows[0]);
    return csv([names, ...this.reply.rows.map((row) => names.map((name) => row[name]))]);
  }
}
