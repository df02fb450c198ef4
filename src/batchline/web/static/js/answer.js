// The answer in words and numbers. Text is only ever set as text.

import { byId, element, fill, problemInto, put, tilesInto } from "./dom.js";
import { bytes, percent, rate, say, time, usd, whole } from "./words.js";

// While a slider moves, most lines stay: only what differs is written.
function lines(list, texts) {
  if (list.children.length !== texts.length) list.replaceChildren(...texts.map(() => element("li")));
  texts.forEach((text, i) => put(list.children[i], text));
}

function factsInto(list, facts) {
  const names = facts.map((fact) => fact.name).join();
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    list.replaceChildren(...facts.map((fact) => {
      const row = element("div");
      row.append(element("dt", fact.name), element("dd"), element("dd", fact.means, "means"));
      return row;
    }));
  }
  facts.forEach((fact, i) => put(list.children[i].children[1], fact.value));
}

// The equations behind one of the five numbers, as `batchline curve --explain` prints them.
let equations = {};
let unfolded = "";

function unfold(number) {
  unfolded = unfolded === number ? "" : number;
  showEquations();
}

function showEquations() {
  for (const name of byId("tiles").querySelectorAll(".unfold")) {
    name.setAttribute("aria-expanded", String(name.dataset.number === unfolded));
    name.disabled = !equations[name.dataset.number]?.length;  // a cost without a price has none
  }
  const shown = equations[unfolded] ?? [];
  byId("equations").hidden = shown.length === 0;
  lines(byId("equations"), shown);
}

let spokenTimer = 0;

export function showAnswer(reply) {
  const { answer } = reply;
  byId("curve-reply").classList.remove("stale");
  byId("problem").hidden = true;
  put(byId("title"), answer.title);
  put(byId("headline"), answer.headline);
  put(byId("why"), answer.sentences.join(" "));
  tilesInto(byId("tiles"), answer.tiles, unfold);
  if (reply.equations) equations = reply.equations;
  showEquations();
  lines(byId("warnings"), answer.warnings);
  factsInto(byId("facts"), answer.facts);
  put(byId("basis"), answer.basis);
  if (reply.profile) put(byId("profile-name"), say("ui_profile_given", reply.profile));
  put(byId("served"), answer.served);
  clearTimeout(spokenTimer);
  spokenTimer = setTimeout(() => put(byId("spoken"), answer.headline), 700);
}

export function showProblem(body, actions) {
  byId("curve-reply").classList.add("stale");
  problemInto(byId("problem"), body, actions);
}

export function fitProblem(body, question) {
  if (body.kind !== "DoesNotFitError") return body;
  const fields = { model: question.model ?? "config.json", count: question.count, accelerator: question.accelerator };
  return { ...body, problem: say("ui_doesnt_fit", { ...fields, bytes: bytes(body.missing_bytes) }) };
}

export function showSources(reply) {
  const columns = [["ui_what", "text"], ["ui_figures", "text"], ["ui_source", "text wrap"], ["ui_date", "text"]];
  fill(byId("sources"), columns.map(([key, kind]) => [say(key), kind]), reply.answer.sources.map((row) => [row.what, row.figures, row.source, row.date]));
}

// One thing changed at a time, the largest effect first.
export function showChanges(reply) {
  const columns = [["ui_if", "text"], ["ui_batch", ""], ["ui_step", ""], ["ui_cost", ""], ["ui_changes_times", ""], ["tile_binds", "text"]];
  fill(byId("changes"), columns.map(([key, kind]) => [say(key), kind]), reply.changes.map((row) => [
    row.name, row.batch === null ? "–" : whole(row.batch), row.t_step_s === null ? "–" : time(row.t_step_s),
    row.usd_per_mtok === null ? "–" : usd(row.usd_per_mtok), row.times === null ? "–" : `${row.times.toFixed(2)}x`, row.binds || row.refused,
  ]), reply.changes.map((row) => (row.flips ? "run" : "")));
}

// Powers of two, the batch to run and the capacity: the rows that the command line prints.
export function showTable(reply) {
  const { points, curve } = reply;
  const best = curve.optimum.batch;
  const columns = [["ui_batch", ""], ["ui_step", ""], ...(points.low_s ? [["90%", ""]] : []), ["ui_user", ""], ["ui_total", ""], ["ui_cost", ""], ["MFU", ""], ["MBU", ""], ["ui_bound_by", "text"]];
  const shown = points.batch.map((batch, i) => [batch, i]).filter(([batch]) => Number.isInteger(Math.log2(batch)) || batch === best || batch === curve.capacity_batch);
  const beyond = (batch) => curve.capacity_batch !== null && batch > curve.capacity_batch;
  fill(byId("table"), columns.map(([key, kind]) => [say(key), kind]), shown.map(([batch, i]) => [
    whole(batch), time(points.t_step_s[i]),
    ...(points.low_s ? [`${time(points.low_s[i])} – ${time(points.high_s[i])}`] : []),
    rate(1 / points.t_step_s[i]), rate(points.output_tokens_per_s[i]),
    points.usd_per_mtok ? usd(points.usd_per_mtok[i]) : "–", percent(points.mfu[i]), percent(points.mbu[i]),
    beyond(batch) ? say("ui_does_not_fit") : say(`name_${points.bound_by[i]}`),
  ]), shown.map(([batch]) => (batch === best ? "run" : beyond(batch) ? "beyond" : "")));
}
