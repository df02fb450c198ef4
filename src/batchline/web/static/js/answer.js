// The answer in words and numbers. Text is only ever set as text.

import { say, time, usd, rate, percent, whole, bytes } from "./words.js";

const byId = (id) => document.getElementById(id);

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function put(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

const tiles = new Map();
function tile({ key, name, value, below }) {
  let cells = tiles.get(key);
  if (!cells) {
    const box = element("div");
    cells = [element("dt"), element("dd", "", "value"), element("dd", "", "below")];
    box.append(...cells);
    byId("tiles").append(box);
    tiles.set(key, cells);
  }
  [name, value, below].forEach((text, i) => put(cells[i], text));
}

let spokenTimer = 0;

export function showAnswer(reply) {
  const { answer, curve } = reply;
  document.querySelector(".reply").classList.remove("stale");
  byId("problem").hidden = true;
  put(byId("title"), answer.title);
  put(byId("headline"), answer.headline);
  put(byId("why"), answer.sentences.join(" "));
  answer.tiles.forEach(tile);
  byId("warnings").replaceChildren(...answer.warnings.map((text) => element("li", text)));
  byId("facts").replaceChildren(...answer.facts.map((fact) => {
    const row = element("div");
    row.append(element("dt", fact.name), element("dd", fact.value), element("dd", fact.means, "means"));
    return row;
  }));
  put(byId("basis"), answer.basis);
  const served = curve.serving;
  byId("served").hidden = !served;
  if (served) {
    put(byId("served"), say("ui_served", {
      isl: whole(served.isl), osl: whole(served.osl), tpot: time(served.tpot_s), ttft: time(served.ttft_s),
      rate: rate(served.output_tokens_per_s),
    }));
  }
  clearTimeout(spokenTimer);
  spokenTimer = setTimeout(() => put(byId("spoken"), answer.headline), 700);
}

export function showProblem(body, actions) {
  document.querySelector(".reply").classList.add("stale");
  const box = byId("problem");
  box.replaceChildren(element("strong", body.problem));
  for (const text of [body.allowed, body.hint]) if (text) box.append(element("span", text));
  for (const [text, act] of actions) {
    const button = element("button", text);
    button.type = "button";
    button.addEventListener("click", act);
    box.append(button);
  }
  box.hidden = false;
}

export function fitProblem(body, question) {
  if (body.kind !== "DoesNotFitError") return body;
  const fields = { model: question.model ?? "config.json", count: question.count, accelerator: question.accelerator };
  return { ...body, problem: say("ui_doesnt_fit", { ...fields, bytes: bytes(body.missing_bytes) }) };
}

export function showSources(reply) {
  const head = element("tr");
  for (const key of ["ui_what", "ui_figures", "ui_source", "ui_date"]) head.append(cell("th", say(key), "text"));
  byId("sources").replaceChildren(head, ...reply.answer.sources.map((row) => {
    const line = element("tr");
    line.append(cell("td", row.what, "text"), cell("td", row.figures, "text"), cell("td", row.source, "text wrap"), cell("td", row.date, "text"));
    return line;
  }));
}

function cell(tag, text, className) {
  const made = element(tag, text, className);
  if (tag === "th") made.scope = "col";
  return made;
}

// Powers of two, the batch to run and the capacity: the rows that the command line prints.
export function showTable(reply) {
  const { points, curve } = reply;
  const best = curve.optimum.batch;
  const keys = ["ui_batch", "ui_step", ...(points.low_s ? ["interval"] : []), "ui_user", "ui_total", "ui_cost", "MFU", "MBU", "ui_bound_by"];
  const head = element("tr");
  for (const key of keys) head.append(cell("th", key === "interval" ? "90%" : say(key), key === "ui_bound_by" ? "text" : ""));
  const rows = [];
  points.batch.forEach((batch, i) => {
    if (!(Number.isInteger(Math.log2(batch)) || batch === best || batch === curve.capacity_batch)) return;
    const beyond = curve.capacity_batch !== null && batch > curve.capacity_batch;
    const line = element("tr", undefined, batch === best ? "run" : beyond ? "beyond" : "");
    const texts = [whole(batch), time(points.t_step_s[i])];
    if (points.low_s) texts.push(`${time(points.low_s[i])} – ${time(points.high_s[i])}`);
    texts.push(rate(1 / points.t_step_s[i]), rate(points.output_tokens_per_s[i]));
    texts.push(points.usd_per_mtok ? usd(points.usd_per_mtok[i]) : "–", percent(points.mfu[i]), percent(points.mbu[i]));
    line.append(...texts.map((text) => cell("td", text)));
    line.append(cell("td", beyond ? say("ui_does_not_fit") : say(`name_${points.bound_by[i]}`), "text"));
    rows.push(line);
  });
  byId("table").replaceChildren(head, ...rows);
}
