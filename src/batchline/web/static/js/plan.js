// The cheapest deployments that keep a promise: table, Pareto front, launch command, thresholds.

import { Newest, Refused, ask } from "./api.js";
import { Combobox } from "./combobox.js";
import { button, byId, copy, csv, downloads, element, fill, labelled, narrow, problemInto, put, tilesInto, toml } from "./dom.js";
import { Fields, promise } from "./fields.js";
import { Figure } from "./figures.js";
import { current, remember, state } from "./state.js";
import { percent, say, time, usd, whole } from "./words.js";

const RATES = [0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000];
const LENGTHS = ["isl", "osl"];
const NUMBERS = ["users", "confidence", "headroom", "prefix_hit_rate", "max_devices"];
const PREFILL = ["replicas", "count", "tp", "pp", "dp", "ep", "busy", "prompt_s", "transfer_s"];
const PAIRS = ["prices", "available"];
const LISTS = ["accelerators", "weights", "kv", "engines"];

export class PlanView {
  constructor({ models, accelerators, choices, searchModels, theme, toCurve }) {
    this.theme = theme;
    this.toCurve = toCurve;
    this.chart = new Figure(byId("plan-chart"));
    this.tornado = new Figure(byId("plan-tornado"));
    this.newest = new Newest((question, signal) => ask("api/v1/plan", question, signal), (reply) => this.show(reply), (error) => this.fail(error));
    const values = () => state.plan;
    const changed = () => this.later();
    this.model = new Combobox(byId("plan-model-combo"), {
      id: "plan-model",
      search: (text) => searchModels(models, text),
      choose: (name) => { Object.assign(current(), { model: name, config: undefined }); delete current().config; this.ask(); },
      nothing: () => say("ui_nothing"),
    });
    const priced = accelerators.filter((row) => row.usd_per_device_hour !== null).map((row) => row.name);
    this.fields = new Fields(byId("plan-fields"), "plan", [
      { name: "isl", label: "ui_plan_isl", kind: "text" },
      { name: "osl", label: "ui_plan_osl", kind: "text" },
      { name: "rate", label: "ui_plan_rate", kind: "slider", steps: RATES, text: String },
      promise("ttft", "ui_plan_ttft", 100, 20_000),
      promise("tpot", "ui_plan_tpot", 10, 500),
      { name: "confidence", label: "ui_plan_confidence", kind: "slider", steps: [null, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99], text: String, none: "ui_plan_as_predicted" },
    ], values, changed);
    this.more = new Fields(byId("plan-more"), "plan", [
      promise("itl", "ui_plan_itl", 10, 5000),
      promise("e2e", "ui_plan_e2e", 500, 70_000),
      { name: "users", label: "ui_plan_users", kind: "text" },
      { name: "think_s", label: "ui_plan_think", kind: "text" },
      { name: "headroom", label: "ui_plan_headroom", kind: "slider", steps: [0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5], text: String, usual: "0.1" },
      { name: "prefix_hit_rate", label: "ui_plan_hits", kind: "slider", steps: [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], text: String, usual: "0" },
      { name: "max_devices", label: "ui_plan_most", kind: "slider", steps: [1, 2, 4, 8, 16, 32, 64, 128], text: String, usual: "64" },
      { name: "disaggregation", label: "ui_plan_apart", kind: "select", options: [["", "ui_plan_apart_allowed"], ["false", "ui_plan_apart_never"]] },
      { name: "transfer", label: "ui_plan_transfer", kind: "text", hint: "50GB/s" },
      { name: "prices", label: "ui_plan_prices", kind: "text", hint: "h100-sxm=2.50, b200=4" },
      { name: "available", label: "ui_plan_available", kind: "text", hint: "h100-sxm=16" },
      { name: "accelerators", label: "ui_plan_on", kind: "choices", options: priced, none: "ui_plan_all" },
      { name: "weights", label: "ui_plan_weights", kind: "choices", options: ["checkpoint", "bf16", "fp8", "int8", "int4", "nvfp4"].filter((name) => name === "checkpoint" || choices.weights.includes(name)), none: "ui_plan_any" },
      { name: "kv", label: "ui_plan_kv", kind: "choices", options: ["bf16", "fp8"], none: "ui_plan_any" },
      { name: "engines", label: "ui_plan_engines", kind: "choices", options: choices.engine, none: "ui_plan_any" },
    ], values, changed);
    byId("plan-form").addEventListener("submit", (event) => event.preventDefault());
    byId("plan-flips-ask").addEventListener("click", () => this.flips());
    byId("launch-copy").addEventListener("click", () => copy(byId("launch-script").textContent, byId("launch-copy"), "ui_copy"));
    byId("launch-kubernetes").addEventListener("click", () => { this.kubernetes = !this.kubernetes; this.launch(); });
    downloads(byId("plan-downloads"), "plan", {
      png: () => this.reply && this.chart.png(),
      svg: () => this.reply && this.chart.svg(),
      csv: () => this.reply && this.table(),
      toml: () => this.reply && (this.reply.toml || toml(this.asked().question)),
    });
    byId("plan-front-box").addEventListener("toggle", () => this.front());
    this.timer = 0;
    this.pick = 0;
    this.kubernetes = false;
    this.drawn = "";
  }

  asked() {
    const question = {};
    if (current().config) question.config = current().config;
    else question.model = current().model;
    if (current().profile) question.profile = current().profile;
    for (const [name, value] of Object.entries(state.plan)) {
      if (LISTS.includes(name)) question[name] = value.split(",");
      else if (PAIRS.includes(name)) question[name] = pairs(value);
      else if (name === "rate" && state.plan.users) continue;
      else if (name === "disaggregation") question[name] = value !== "false";
      else question[name] = (NUMBERS.includes(name) || LENGTHS.includes(name) || name === "rate") && /^[\d.]+$/.test(value) ? Number(value) : value;
    }
    return { question, language: state.language, theme: this.theme(), narrow: narrow.matches };
  }

  enter() {
    this.model.set(current().config ? "" : current().model);
    this.model.input.placeholder = current().config ? say("ui_config_given", { name: "config.json" }) : say("ui_model_search");
    this.model.label(say("ui_model"));
    this.fields.show();
    this.more.show();
    this.ask();
  }

  later() {
    byId("plan-answer").setAttribute("aria-busy", "true");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 350);
  }

  ask() {
    clearTimeout(this.timer);
    this.timer = 0;
    byId("plan-answer").setAttribute("aria-busy", "true");
    remember();
    this.newest.put(this.asked());
  }

  async show(reply) {
    this.reply = reply;
    this.pick = 0;
    const { answer, plan } = reply;
    byId("plan-reply").classList.remove("stale");
    byId("plan-problem").hidden = true;
    this.fields.refuse(null);
    this.more.refuse(null);
    put(byId("plan-headline"), answer.headline);
    put(byId("plan-why"), answer.sentences.join(" "));
    tilesInto(byId("plan-tiles"), answer.tiles);
    byId("plan-warnings").replaceChildren(...answer.warnings.map((text) => element("li", labelled(text, byId("plan-warnings")))));
    const refused = answer.refused.map(({ why, deployments }) => `${whole(deployments)} ${why}`).join("; ");
    put(byId("plan-searched"), `${answer.searched} ${refused ? say("ui_refused", { reasons: refused }) : ""}`);
    byId("plan-flips").replaceChildren();
    byId("plan-tornado").hidden = true;
    this.candidates();
    this.launch();
    this.front();
    await this.chart.draw(reply.chart, { label: answer.headline });
    byId("plan-answer").setAttribute("aria-busy", String(this.newest.pending || this.timer > 0));
  }

  fail(error) {
    byId("plan-answer").setAttribute("aria-busy", String(this.newest.pending || this.timer > 0));
    byId("plan-reply").classList.add("stale");
    const body = error instanceof Refused ? error.body : { problem: say("ui_offline"), hint: say("ui_offline_hint") };
    problemInto(byId("plan-problem"), body);
    const field = String(body.field ?? "").split(".")[0];
    this.fields.refuse(field);
    this.more.refuse(field);
  }

  row(one) {
    return [whole(one.devices), usd(one.usd_per_month), usd(one.usd_per_mtok_input), usd(one.usd_per_mtok_output), time(one.tpot_s), time(one.ttft_s), percent(one.p_slo)];
  }

  columns() {
    return [["ui_plan_devices", ""], ["ui_plan_month", ""], ["ui_plan_in", ""], ["ui_plan_out", ""], ["plan_tile_token", ""], ["ui_plan_first", ""], ["ui_plan_sure", ""]].map(([key, kind]) => [say(key), kind]);
  }

  candidates() {
    const { plan, titles, answer } = this.reply;
    const columns = [["", "text"], [say("ui_deployment"), "text wrap"], ...this.columns(), ["", "text"]];
    fill(byId("plan-candidates"), columns, plan.candidates.map((one, i) => [
      String(i + 1), [titles[i], ...(i ? [element("br"), element("small", answer.gives_up[i - 1])] : [])], ...this.row(one),
      [button(say("ui_plan_command"), () => { this.pick = i; this.candidates(); this.launch(); }, "plain", `${say("ui_plan_command")} ${i + 1}`), " ",
        button(say("ui_plan_curve"), () => this.curve(one), "plain", `${say("ui_plan_curve")} ${i + 1}`)],
    ]), plan.candidates.map((_, i) => (i === this.pick ? "chosen" : "")));
  }

  front() {
    if (!this.reply || !byId("plan-front-box").open) return;
    const rows = [...this.reply.plan.front].sort((a, b) => a.usd_per_month - b.usd_per_month);
    fill(byId("plan-front"), [[say("ui_deployment"), "text"], ...this.columns()], rows.map((one) => [title(one), ...this.row(one)]));
  }

  launch() {
    const made = this.reply.launch[this.pick];
    const manifest = this.kubernetes && made.kubernetes;
    put(byId("plan-launch-of"), this.reply.titles[this.pick]);
    put(byId("launch-script"), made.problem || (manifest ? made.kubernetes : made.script));
    byId("launch-kubernetes").hidden = !made.kubernetes;
    byId("launch-kubernetes").setAttribute("aria-pressed", String(Boolean(manifest)));
  }

  // The candidate as a question of the curve.
  curve(one) {
    const question = {
      accelerator: one.accelerator, count: String(one.count), weights: one.weights, kv: one.kv, engine: one.engine,
      isl: String(this.reply.plan.question.isl), osl: String(this.reply.plan.question.osl), max_batch: String(one.max_num_seqs),
    };
    for (const degree of ["tp", "pp", "dp", "ep"]) if (one[degree] > 1 || degree === "tp") question[degree] = String(one[degree]);
    this.toCurve(question);
  }

  async flips() {
    const ask_ = byId("plan-flips-ask");
    ask_.disabled = true;
    ask_.textContent = say("ui_working");
    try {
      const found = await ask("api/v1/plan/flips", this.asked());
      byId("plan-flips").replaceChildren(...found.sentences.map((sentence) => element("li", sentence)));
      byId("plan-tornado").hidden = !found.chart;
      if (found.chart) await this.tornado.draw(found.chart, { label: say("ui_flips") });
    } catch (error) {
      byId("plan-flips").replaceChildren(element("li", error.message));
    }
    ask_.disabled = false;
    ask_.textContent = say("ui_flips_ask");
  }

  table() {
    const names = Object.keys(this.reply.plan.candidates[0]).filter((name) => !["promised", "usd_per_month_range", "prefill"].includes(name));
    const rows = [...this.reply.plan.candidates, ...this.reply.plan.front];
    return csv([
      [...names, ...PREFILL.map((name) => `prefill_${name}`)],
      ...rows.map((one) => [...names.map((name) => one[name]), ...PREFILL.map((name) => one.prefill?.[name] ?? "")]),
    ]);
  }
}

// "h100-sxm=2.50, b200=4" by name; what is no number is left for the server to refuse.
function pairs(text) {
  const found = text.split(",").map((part) => part.split("=").map((word) => word.trim())).filter(([name]) => name);
  return Object.fromEntries(found.map(([name, value]) => [name, Number.isNaN(Number(value || NaN)) ? value ?? "" : Number(value)]));
}

function layout(one) {
  const degrees = ["tp", "pp", "dp", "ep"].filter((name) => one[name] > 1).map((name) => `${name.toUpperCase()}${one[name]}`).join(" ") || "TP1";
  return `${one.replicas > 1 ? `${one.replicas} x ` : ""}${one.count} x ${one.accelerator ?? ""}, ${degrees}`.replace(" x ,", ",");
}

function title(one) {
  const prompts = one.prefill ? ` + ${say("ui_plan_apart")} ${layout(one.prefill)}` : "";
  return `${layout(one)}${prompts}, ${one.weights}, ${one.kv} KV, ${one.engine}`;
}
