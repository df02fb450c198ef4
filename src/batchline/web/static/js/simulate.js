// Traffic through the curve's deployment, event by event: series, percentiles, what saturates.

import { Newest, Refused, ask } from "./api.js";
import { byId, csv, downloads, element, fill, narrow, problemInto, put, tilesInto, toml } from "./dom.js";
import { Fields, promise } from "./fields.js";
import { Figure } from "./figures.js";
import { OF_DEPLOYMENT, asked, current, linked, remember, state } from "./state.js";
import { say, time } from "./words.js";

const RATES = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100];
const METRICS = ["ttft", "tpot", "itl", "e2e", "wait"];
const POINTS = ["p50", "p90", "p95", "p99", "mean", "max"];
const OF_PATTERN = ["rate", "users", "think_s", "isl", "osl", "spread", "arrivals", "shared_prefix"];
const OF_TRACE = ["columns", "time_unit"];
const TEXTS = ["arrivals", "ttft", "tpot", "itl", "e2e", "shared_prefix", ...OF_TRACE];

export class SimulateView {
  constructor({ theme }) {
    this.theme = theme;
    this.overTime = new Figure(byId("simulate-over-time"));
    this.times = new Figure(byId("simulate-times"));
    this.newest = new Newest((question, signal) => ask("api/v1/simulate", question, signal), (reply) => this.show(reply), (error) => this.fail(error));
    const values = () => state.simulate;
    const changed = () => this.later();
    this.fields = new Fields(byId("simulate-fields"), "simulate", [
      { name: "rate", label: "ui_plan_rate", kind: "slider", steps: RATES, text: String },
      { name: "isl", label: "ui_plan_isl", kind: "text" },
      { name: "osl", label: "ui_plan_osl", kind: "text" },
      { name: "spread", label: "ui_sim_spread", kind: "slider", steps: [0, 0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.5, 2], text: String, usual: "0" },
      { name: "replicas", label: "ui_sim_replicas", kind: "slider", steps: [1, 2, 3, 4, 5, 6, 8, 10, 12, 16], text: String, usual: "1" },
      promise("ttft", "ui_plan_ttft", 100, 20_000),
      promise("tpot", "ui_plan_tpot", 10, 500),
      { name: "arrivals", label: "ui_sim_arrivals", kind: "text", hint: "poisson" },
    ], values, changed);
    this.more = new Fields(byId("simulate-more"), "simulate", [
      { name: "requests", label: "ui_sim_requests", kind: "slider", steps: [500, 1000, 2000, 3000, 5000, 10000, 20000], text: String, usual: "2000" },
      { name: "users", label: "ui_plan_users", kind: "text" },
      { name: "think_s", label: "ui_plan_think", kind: "text" },
      { name: "shared_prefix", label: "ui_sim_prefix", kind: "text" },
      { name: "max_num_seqs", label: "ui_max_batch", kind: "text" },
      { name: "max_num_batched_tokens", label: "ui_sim_budget", kind: "text" },
      { name: "columns", label: "ui_sim_columns", kind: "text", hint: "arrival=when,isl=in,osl=out" },
      { name: "time_unit", label: "ui_sim_unit", kind: "text", hint: "s, ms, us, ns, datetime" },
    ], values, changed);
    byId("simulate-form").addEventListener("submit", (event) => event.preventDefault());
    downloads(byId("simulate-downloads"), "simulation", {
      png: () => this.reply && { "over-time": this.overTime.png(), times: this.times.png() },
      svg: () => this.reply && { "over-time": this.overTime.svg(), times: this.times.svg() },
      csv: () => this.reply && this.table(),
      toml: () => this.asked && toml(this.asked),
    });
    this.timer = 0;
    byId("trace-remove").addEventListener("click", () => this.take(null));
  }

  enter() {
    this.fields.show();
    this.more.show();
    this.ask();
  }

  // Requests of a file in place of the pattern.
  take(trace) {
    state.trace = trace;
    this.later();
  }

  async showTrace() {
    const { trace } = state;
    for (const id of ["trace-name", "trace-remove", "trace-link"]) byId(id).hidden = !trace;
    if (!trace) return;
    byId("trace-name").textContent = say("ui_sim_trace_given", { file: trace.name });
    byId("trace-link").textContent = say((await linked(trace)) ? "ui_sim_trace_linked" : "ui_sim_trace_unlinked");
  }

  later() {
    byId("simulate-reply").setAttribute("aria-busy", "true");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 250);
  }

  ask() {
    clearTimeout(this.timer);
    this.timer = 0;
    const deployment = asked(current());
    const question = Object.fromEntries(Object.entries(deployment).filter(([name]) => OF_DEPLOYMENT.includes(name)));
    for (const [name, value] of Object.entries(state.simulate)) {
      if (name === "rate" && state.simulate.users) continue;
      question[name] = !TEXTS.includes(name) && /^[\d.]+$/.test(value) ? Number(value) : value;
    }
    this.showTrace();
    remember();
    if (state.trace && state.trace.text === undefined) {
      this.refuse({ problem: say("ui_sim_trace_missing", { file: state.trace.name }), hint: say("ui_sim_trace_bring") });
      return;
    }
    if (state.trace) question.trace = state.trace.text;
    for (const name of state.trace ? OF_PATTERN : OF_TRACE) delete question[name];
    this.asked = question;
    byId("simulate-reply").setAttribute("aria-busy", "true");
    this.newest.put({ question, language: state.language, theme: this.theme(), narrow: narrow.matches });
  }

  async show(reply) {
    this.reply = reply;
    const { answer, simulation, charts } = reply;
    byId("simulate-reply").classList.remove("stale");
    byId("simulate-problem").hidden = true;
    this.fields.refuse(null);
    this.more.refuse(null);
    put(byId("simulate-of"), answer.deployment);
    put(byId("simulate-title"), answer.title);
    put(byId("simulate-headline"), answer.headline);
    byId("simulate-promises").replaceChildren(...answer.promises.map(({ name, promise, kept }) => element("li", say(kept ? "ui_sim_kept" : "ui_sim_broken", { name, promise }))));
    byId("simulate-warnings").replaceChildren(...answer.warnings.map((text) => element("li", text)));
    tilesInto(byId("simulate-tiles"), answer.tiles);
    const rows = METRICS.filter((name) => simulation[`${name}_s`].max > 0);
    fill(byId("simulate-table"), [[say("ui_sim_metric"), "text"], ...POINTS.map((name) => [name.startsWith("p") ? name : say(`ui_sim_${name}`), ""])],
      rows.map((name) => [say(`ui_sim_${name}`), ...POINTS.map((point) => time(simulation[`${name}_s`][point]))]));
    await this.overTime.draw(charts.over_time, { label: answer.headline });
    await this.times.draw(charts.times, { label: say("ui_sim_times") });
    byId("simulate-reply").setAttribute("aria-busy", String(this.newest.pending || this.timer > 0));
  }

  fail(error) {
    this.refuse(error instanceof Refused ? error.body : { problem: say("ui_offline"), hint: say("ui_offline_hint") });
  }

  refuse(body) {
    byId("simulate-reply").setAttribute("aria-busy", String(this.newest.pending || this.timer > 0));
    byId("simulate-reply").classList.add("stale");
    problemInto(byId("simulate-problem"), body);
    const field = String(body.field ?? "").split(".")[0];
    this.fields.refuse(field);
    this.more.refuse(field);
  }

  table() {
    const rows = METRICS.map((name) => [name, ...POINTS.map((point) => this.reply.simulation[`${name}_s`][point])]);
    return csv([["time_s", ...POINTS], ...rows]);
  }
}
