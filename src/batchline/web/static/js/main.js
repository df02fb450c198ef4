// The page: reads the address, fills the form, asks, and shows what comes back.

import { fitProblem, showAnswer, showChanges, showProblem, showSources, showTable } from "./answer.js";
import { Newest, Refused, ask, fetchBlob } from "./api.js";
import { Comparison } from "./compare.js";
import { Cursor } from "./cursor.js";
import { byId, copy, narrow, problemInto, saveAs } from "./dom.js";
import { Figure } from "./figures.js";
import { Files } from "./files.js";
import { begun, dark, explore, themeNow } from "./first.js";
import { Form, searchModels } from "./form.js";
import { PlanView } from "./plan.js";
import { PriceView } from "./prices.js";
import { SimulateView } from "./simulate.js";
import { VIEWS, address, current, follow, loaded, remember, state } from "./state.js";
import { label, say, speak } from "./words.js";

const PLOTS = ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3"];
const PADDING = { left: 42, right: 42, top: 72, bottom: 40 };

const replies = [];
const figures = PLOTS.map((name) => {
  const holder = document.createElement("figure");
  holder.className = "plot";
  holder.dataset.plot = name;
  byId("plots").append(holder);
  return new Figure(holder, `p${name.replace(".", "")}`);
});
const cursor = new Cursor(remember);
let drawn = "";
let form;
let files;
let comparison;
let planView;
let priceView;
let simulateView;

function dress() {
  document.documentElement.dataset.theme = themeNow();
  byId("theme").value = state.theme;
}

// What a drawn chart depends on besides its data.
const look = (question, priced) => JSON.stringify([state.language, themeNow(), state.axis, question.reading ?? "predict", priced]);
const looked = () => JSON.parse(drawn || "[]");

async function answer({ question, charts, edited }, signal) {
  return { reply: await ask("api/v1/explore", explore(question, charts), signal), charts, edited };
}

const newest = new Newest(answer, show, fail, 3);  // one more than is worked on and drawn rides out a delay of either

function change() {
  const question = current();
  // Before an answer comes, it is not known whether it has a price; one that differs is asked for again, drawn anew.
  const same = drawn !== "" && look(question, looked()[4]) === drawn;
  byId("answer").setAttribute("aria-busy", "true");
  newest.put({ question: structuredClone(question), charts: same ? "moving" : "vega", edited: state.edited });
  remember();
  clearTimeout(resting);
}

// When nothing moves any more, the names take their best places.
let resting = 0;
function rest(question, edited, delay) {
  clearTimeout(resting);
  resting = setTimeout(() => { if (newest.idle) newest.put({ question, charts: "data", edited }); }, delay);
}

async function show({ reply, charts, edited }, { question }) {
  const priced = reply.curve.usd_per_hour !== null;
  const wanted = look(question, priced);
  if (charts !== "vega" && wanted !== drawn) {
    newest.put({ question, charts: "vega", edited });
    return;
  }
  replies[edited] = reply;
  if (edited !== state.edited) return;
  form.refuse(null);
  showAnswer(reply);
  const load = loaded(question) ? reply.curve.serving.running_batch : null;
  if (charts === "vega") {
    await Promise.all(figures.map((figure, i) => {
      const label = `${PLOTS[i]} ${reply.answer.headline}`;
      return figure.draw(reply.charts.vega[PLOTS[i]], { given: reply.charts, padding: PADDING, label });
    }));
    drawn = wanted;
    cursor.over(figures);
    cursor.show(reply.points, reply.curve, axisOf(reply.charts.signals), load);
  } else {
    performance.mark("arrived");
    cursor.show(reply.points, reply.curve, axisOf(reply.charts.signals), load);
    await Promise.all(figures.map((figure) => figure.put(reply.charts)));
    performance.measure("drawing", "arrived");
  }
  if (reply.changes) showChanges(reply);
  if (byId("table-box").open) showTable(reply);
  if (byId("sources-box").open) showSources(reply);
  comparison.show(replies, compareSpecs);
  if (charts !== "data") rest(question, edited, charts === "moving" ? 150 : 0);
  else byId("answer").setAttribute("aria-busy", String(newest.pending));
  ready();
}

// Counts what was answered, with plots or with why there are none: who waits for the page waits for the first.
function ready() {
  if (!document.body.dataset.ready) performance.mark("ready");
  document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
}

const axisOf = (signals) => ({ low: signals.p11_x_low, high: signals.p11_x_high, log: state.axis === "log" });

let again = 0;
function fail(error, { question, edited }) {
  byId("answer").setAttribute("aria-busy", String(newest.pending));
  clearTimeout(again);
  if (error instanceof Refused) {
    const body = fitProblem(error.body, question);
    replies[edited] = { problem: body.problem };
    const actions = [];
    if (body.smallest_count) {
      const { tp, pp } = body.layout;
      const layout = { count: String(body.smallest_count), tp: pp > 1 ? String(tp) : undefined, pp: pp > 1 ? String(pp) : undefined, dp: undefined, ep: undefined };
      actions.push([say("ui_use_count", { count: body.smallest_count }), () => form.set(layout)]);
    }
    showProblem(body, actions);
    form.refuse(body.field);
  } else {
    console.warn(error);
    showProblem({ problem: say("ui_offline"), hint: say("ui_offline_hint") }, []);
    again = setTimeout(change, 2000);
  }
  comparison.show(replies, compareSpecs);
  ready();
}

const compareSpecs = () => ask(`api/v1/compare?language=${state.language}&theme=${themeNow()}&batch_axis=${state.axis}`);

// The deployments that are not being changed are asked once.
async function others() {
  await Promise.all(state.questions.map(async (question, i) => {
    if (i === state.edited) return;
    replies[i] = await ask("api/v1/explore", explore(question, "moving")).catch((error) => ({ problem: error.message }));
  }));
  replies.length = state.questions.length;
  comparison.show(replies, compareSpecs);
}

function switchTo(index) {
  state.edited = index;
  state.at = null;
  form.show();
  change();
}

async function restart() {
  byId("answer").setAttribute("aria-busy", "true");
  dress();
  speak(state.language, await ask(`api/v1/words?language=${state.language}`));
  view();
  form.show();
  files.show();
  byId("axis").value = state.axis;
  if (state.view === "curve") change();
  else go(state.view);
  others();
}

async function download(kind) {
  try {
    const blob = await fetchBlob(`api/v1/download/${kind}`, explore(current(), "data"));
    saveAs(blob, `batchline.${kind}`);
  } catch (error) {
    showProblem(error.body ?? { problem: error.message }, []);
  }
}

// One view is seen at a time; the address says which.
function view() {
  for (const name of VIEWS) byId(name).hidden = name !== state.view;
  byId("views").replaceChildren(...VIEWS.map((name) => {
    const link = document.createElement("a");
    link.href = `#${name}`;
    link.textContent = say(`ui_view_${name}`);
    if (name === state.view) link.setAttribute("aria-current", "page");
    link.addEventListener("click", (event) => { event.preventDefault(); go(name); });
    return link;
  }));
  document.querySelector(".skip").href = `#${name(state.view)}`;
}

const name = (which) => ({ curve: "answer", plan: "plan-answer", prices: "prices-reply", simulate: "simulate-reply" })[which];

function go(which) {
  state.view = which;
  view();
  if (which === "plan") planView.enter();
  else if (which === "prices") priceView.enter();
  else if (which === "simulate") simulateView.enter();
  else { form.show(); change(); }
  remember();
}

function listen() {
  for (const button of document.querySelectorAll("button[data-language]"))
    button.addEventListener("click", () => { state.language = button.dataset.language; localStorage.setItem("language", state.language); restart(); });
  byId("theme").addEventListener("change", () => { state.theme = byId("theme").value; localStorage.setItem("theme", state.theme); dress(); go(state.view); });
  dark.addEventListener("change", () => { dress(); go(state.view); });
  narrow.addEventListener("change", () => go(state.view));
  byId("axis").addEventListener("change", () => { state.axis = byId("axis").value; change(); });
  byId("share").addEventListener("click", async () => {
    history.replaceState(null, "", await address());
    copy(location.href, byId("share"), "ui_share");
  });
  byId("table-box").addEventListener("toggle", () => { if (byId("table-box").open && replies[state.edited]?.curve) showTable(replies[state.edited]); });
  byId("sources-box").addEventListener("toggle", () => { if (byId("sources-box").open && replies[state.edited]?.curve) showSources(replies[state.edited]); });
  for (const button of document.querySelectorAll("#downloads button")) button.addEventListener("click", () => download(button.dataset.kind));
  addEventListener("hashchange", async () => { if (location.hash !== await address()) { await follow(location.hash); restart(); } });
}

async function begin() {
  const { answer: first, lists } = await begun;
  dress();
  if (matchMedia("(max-width: 860px)").matches) for (const box of document.querySelectorAll(".question")) box.open = false;
  const [words, models, accelerators, choices] = await lists;
  speak(state.language, words);
  form = new Form({ models, accelerators, choices }, change);
  comparison = new Comparison({
    edit: switchTo,
    remove: (index) => {
      state.questions.splice(index, 1);
      replies.splice(index, 1);
      if (state.edited >= index) state.edited = Math.max(0, state.edited - 1);
      switchTo(state.edited);
    },
    add: () => {
      state.questions.push(structuredClone(current()));
      replies.push(replies[state.edited]);
      switchTo(state.questions.length - 1);
    },
  });
  planView = new PlanView({
    models, accelerators, choices, searchModels, theme: themeNow,
    toCurve: (values) => {
      const { model, config, profile } = current();
      state.questions[state.edited] = { ...(config ? { config } : { model }), ...(profile && { profile }), ...values };
      go("curve");
    },
  });
  priceView = new PriceView({ theme: themeNow });
  simulateView = new SimulateView({ theme: themeNow });
  files = new Files({
    config: (config) => { form.set({ config, model: undefined }); if (state.view !== "curve") go(state.view); },
    profile: (profile) => { form.set({ profile, reading: undefined }); if (state.view !== "curve") go(state.view); },
    measured: () => go("curve"),
    trace: (trace) => simulateView.take(trace),
    refused: (body) => problemInto(byId(state.view === "curve" ? "problem" : `${state.view}-problem`), body),
  });
  label();  // what the form made has words too
  form.show();
  files.show();
  byId("axis").value = state.axis;
  view();
  listen();
  if (state.view !== "curve") go(state.view);
  try {
    await show({ reply: await first, charts: "vega", edited: state.edited }, { question: current() });
  } catch (error) {
    fail(error, { question: current(), edited: state.edited });
  }
  if (state.questions.length > 1) others();
}

begin();
