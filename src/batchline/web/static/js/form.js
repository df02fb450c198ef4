// The question's form: lists that search, sliders that are live, and the same values as text.

import { Combobox } from "./combobox.js";
import { byId } from "./dom.js";
import { current, withLengths } from "./state.js";
import { bytes, count, say, usd, whole } from "./words.js";

const LAYOUT = ["max_batch", "tokens_per_user", "within", "tp", "pp", "dp", "ep", "engine_version"];
const LENGTHS = ["isl", "osl"];
const LOAD = ["rate", "concurrency", "arrivals", "prefix_hit_rate", "max_num_batched_tokens", "speculation"];
const OWN = ["bandwidth", "flops", "memory", "link"];
// Fields that wait in a box to be opened; it opens by itself when one of them is given.
const BOXES = { more: LAYOUT, requests: [...LENGTHS, ...LOAD], own: OWN };
const TYPED = Object.values(BOXES).flat();
const PLAIN = ["weights", "kv", "engine", ...TYPED];
const DEFAULT = { kv: "bf16", engine: "vllm", tp: "0", pp: "1", dp: "1", ep: "1" };
const NO_CONTEXT = 4096;  // what counts where a link names neither context nor lengths
const OWN_ACCELERATOR = "custom";
const READINGS = ["predict", "bound", "serial"];

// Slider positions, and the value of each. The last of a limit means none.
const SLIDERS = {
  count: { steps: [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 72, 96, 128], label: "ui_count" },
  context: { steps: geometric(128, 1048576, 181), label: "ui_context" },
  step_limit: { steps: [...geometric(2, 500, 120), null], label: "ui_step_limit", unit: "ms", off: "ui_no_limit" },
  price: { steps: [null, ...geometric(0.1, 20, 120)], label: "ui_price" },
};

function geometric(low, high, steps) {
  const values = Array.from({ length: steps }, (_, i) => low * (high / low) ** (i / (steps - 1)));
  return [...new Set(values.map((value) => Number(value.toPrecision(value < 1000 ? 2 : 3))).map((value) => (high > 1000 ? Math.round(value) : value)))];
}

export class Form {
  constructor(catalogue, changed) {
    this.catalogue = catalogue;
    this.changed = changed;
    this.sliders = {};
    this.model = new Combobox(byId("model-combo"), {
      id: "model",
      search: (text) => searchModels(catalogue.models, text),
      choose: (name) => this.set({ model: name, config: undefined }),
      nothing: () => say("ui_nothing"),
    });
    this.accelerator = new Combobox(byId("accelerator-combo"), {
      id: "accelerator",
      search: (text) => [
        ...search(catalogue.accelerators, text, (row) => `${row.name} ${row.label} ${row.vendor} ${row.generation} ${row.aliases.join(" ")}`)
          .map((row) => ({ value: row.name, name: row.name, detail: acceleratorDetail(row) })),
        ...(OWN_ACCELERATOR.startsWith(text) ? [{ value: OWN_ACCELERATOR, name: OWN_ACCELERATOR, detail: say("ui_own") }] : []),
      ],
      choose: (name) => this.set({ accelerator: name, price: undefined }),
      nothing: () => say("ui_nothing"),
    });
    for (const name of Object.keys(SLIDERS)) this.slider(name);
    this.readings();
    for (const field of PLAIN) byId(field).addEventListener("input", () => this.typed(field, byId(field).value));
    byId("question").addEventListener("submit", (event) => event.preventDefault());
    byId("profile-remove").addEventListener("click", () => this.set({ profile: undefined }));
    byId("config-remove").addEventListener("click", () => this.set({ config: undefined, model: "llama-3.1-70b" }));
  }

  set(values) {
    Object.assign(current(), values);
    for (const [name, value] of Object.entries(values)) if (value === undefined) delete current()[name];
    this.show();
    this.changed();
  }

  typed(field, value) {
    const text = value.trim();
    if (text === "" || text === DEFAULT[field]) delete current()[field];
    else current()[field] = text;
    if (field === "isl" || field === "osl") this.show();
    this.changed();
  }

  slider(name) {
    const { steps, label } = SLIDERS[name];
    const field = document.querySelector(`.slider[data-field=${name}]`);
    const line = document.createElement("div");
    line.className = "line";
    const title = document.createElement("label");
    title.htmlFor = `${name}-text`;
    title.dataset.text = label;
    const text = document.createElement("input");
    Object.assign(text, { id: `${name}-text`, type: "text", inputMode: "decimal", autocomplete: "off" });
    const range = document.createElement("input");
    Object.assign(range, { id: name, type: "range", min: "0", max: String(steps.length - 1), step: "1" });
    range.dataset.label = label;
    line.append(title, text);
    field.append(line, range);
    this.sliders[name] = { text, range };
    range.addEventListener("input", () => {
      this.give(name, steps[Number(range.value)]);
      this.showSlider(name, false);
      this.changed();
    });
    text.addEventListener("change", () => {
      this.read(name, text.value.trim());
      this.showSlider(name, true);
      this.changed();
    });
    text.addEventListener("keydown", (event) => { if (event.key === "Enter") text.dispatchEvent(new Event("change")); });
  }

  give(name, value) {
    const question = current();
    if (value === null) delete question[name];
    else question[name] = SLIDERS[name].unit ? `${value}${SLIDERS[name].unit}` : String(value);
    if (name === "context") { delete question.isl; delete question.osl; byId("isl").value = byId("osl").value = ""; byId("load").disabled = true; }
  }

  read(name, text) {
    if (text === "" || text === say("ui_no_limit")) this.give(name, name === "context" ? 8192 : name === "count" ? 1 : null);
    else {
      const bare = text.replaceAll(",", "").replace(/^\$/, "");
      this.give(name, bare);
      if (SLIDERS[name].unit && !/^[\d.]+$/.test(bare)) current()[name] = bare;
    }
  }

  value(name) {
    const given = current()[name];
    if (name === "context" && current().isl && current().osl) return tokens(current().isl) + tokens(current().osl) / 2;
    if (given === undefined) return name === "context" ? NO_CONTEXT : null;
    return name === "context" ? tokens(given) : Number.parseFloat(given);
  }

  showSlider(name, always) {
    const { text, range } = this.sliders[name];
    const { steps, off } = SLIDERS[name];
    const value = this.value(name);
    let position = steps.indexOf(null);
    if (value !== null) {
      position = 0;
      steps.forEach((step, i) => {
        if (step !== null && (steps[position] === null || Math.abs(Math.log(step / value)) < Math.abs(Math.log(steps[position] / value)))) position = i;
      });
    }
    range.value = String(position);
    const shown = value === null ? "" : name === "price" ? String(value) : whole2(value);
    if (always || document.activeElement !== text) text.value = shown;
    const median = this.median();
    text.placeholder = off ? say(off) : name === "price" ? (median === null ? say("ui_price_unknown") : median.toFixed(2)) : "";
    const nothing = name === "price" ? (median === null ? say("ui_price_unknown") : say("ui_price_catalogue", { median: median.toFixed(2) })) : off ? say(off) : "";
    range.setAttribute("aria-valuetext", value === null ? nothing : name === "price" ? usd(value) : whole2(value));
  }

  median() {
    return this.catalogue.accelerators.find((row) => row.name === current().accelerator)?.usd_per_device_hour ?? null;
  }

  readings() {
    byId("reading").replaceChildren(...READINGS.map((name) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      Object.assign(input, { type: "radio", name: "reading", value: name });
      const text = document.createElement("span");
      text.dataset.text = `ui_reading_${name}`;
      label.append(input, text);
      input.addEventListener("change", () => {
        this.typed("reading", name === "predict" ? "" : name);
        this.show();
      });
      return label;
    }));
  }

  // Fill the form from the state.
  show() {
    const question = current();
    this.model.set(question.config ? "" : question.model);
    this.model.input.placeholder = question.config ? "" : say("ui_model_search");
    byId("config-name").hidden = byId("config-remove").hidden = !question.config;
    if (question.config) byId("config-name").textContent = say("ui_config_given", { name: configName(question.config) });
    byId("profile-name").hidden = byId("profile-remove").hidden = !question.profile;
    this.accelerator.set(question.accelerator);
    options("weights", [["", say("ui_own_format")], ...this.catalogue.choices.weights.map((name) => [name, name])], question.weights ?? "");
    options("kv", this.catalogue.choices.kv.map((name) => [name, name]), question.kv ?? DEFAULT.kv);
    const engines = [...new Set([...this.catalogue.choices.engine, "vllm", question.engine ?? "vllm"])].sort();
    options("engine", engines.map((name) => [name, name]), question.engine ?? DEFAULT.engine);
    for (const field of TYPED)
      if (document.activeElement !== byId(field)) byId(field).value = question[field] ?? DEFAULT[field] ?? "";
    for (const [box, fields] of Object.entries(BOXES)) if (fields.some((field) => question[field])) byId(box).open = true;
    if (question.accelerator === OWN_ACCELERATOR) byId("own").open = true;
    byId("load").disabled = !withLengths(question);
    const reading = question.reading ?? "predict";
    for (const input of document.querySelectorAll("input[name=reading]")) input.checked = input.value === reading;
    byId("reading-means").textContent = say(`ui_reading_${reading}_means`);
    for (const name of Object.keys(SLIDERS)) this.showSlider(name, true);
    this.model.label(say("ui_model"));
    this.accelerator.label(say("ui_accelerator"));
  }

  // Mark the field that the server refused; none clears all.
  refuse(field) {
    for (const input of document.querySelectorAll("#question [aria-invalid]")) input.removeAttribute("aria-invalid");
    const at = { on: "accelerator", config: "model", profile: "profile-file" }[field] ?? field;
    const input = at ? (this.sliders[at]?.text ?? document.getElementById(at)) : null;
    if (!input) return;
    input.setAttribute("aria-invalid", "true");
    const box = input.closest("details.more");
    if (box) box.open = true;
  }
}

export const configName = (config) => String(config._name_or_path || config.model_type || config.text_config?.model_type || "config.json").split("/").at(-1).slice(0, 60);

export function tokens(text) {
  const match = /^([\d.,]+)\s*([kKmM]?)$/.exec(String(text).trim());
  if (!match) return 8192;
  return Number(match[1].replaceAll(",", "")) * { "": 1, k: 1024, m: 1048576 }[match[2].toLowerCase()];
}

const whole2 = (value) => (Number.isInteger(value) ? whole(value) : String(value));

function options(id, rows, chosen) {
  const select = byId(id);
  const key = JSON.stringify(rows);
  if (select.dataset.key !== key) {
    select.dataset.key = key;
    select.replaceChildren(...rows.map(([value, text]) => new Option(text, value)));
  }
  if (![...select.options].some((option) => option.value === chosen)) select.append(new Option(chosen, chosen));
  select.value = chosen;
}

export function searchModels(models, text) {
  return search(models, text, (row) => `${row.name} ${row.hf_id} ${row.family} ${row.aliases.join(" ")}`)
    .map((row) => ({ value: row.name, name: row.name, detail: modelDetail(row) }));
}

// Names that begin as typed come first, then names that contain it, then what is found in aliases or family.
function search(rows, text, all) {
  const parts = text.split(/[\s_-]+/).filter(Boolean);
  const joined = parts.join("-");
  const rank = (row) => (row.name.startsWith(joined) ? 0 : parts.every((part) => row.name.includes(part)) ? 1 : 2);
  return rows.filter((row) => { const whole = all(row).toLowerCase(); return parts.every((part) => whole.includes(part)); })
    .sort((a, b) => rank(a) - rank(b));
}

function modelDetail(row) {
  const total = count(row.total_params);
  const active = count(row.active_params);
  return row.active_params < 0.8 * row.total_params ? `${total}, ${active}` : total;
}

function acceleratorDetail(row) {
  const price = row.usd_per_device_hour === null ? "" : `, $${row.usd_per_device_hour.toFixed(2)}/h`;
  return `${row.memory_bytes ? bytes(row.memory_bytes) : ""}${price}`;
}
