// What is asked, and its place in the address: a link carries everything.

const DEFAULTS = { model: "llama-3.1-70b", count: "4", accelerator: "h100-sxm", context: "8192" };
const PARALLEL = ["tp", "pp", "dp", "ep"];
const OWN = ["bandwidth", "flops", "memory", "link"];
const LOAD = ["rate", "concurrency", "arrivals", "prefix_hit_rate", "max_num_batched_tokens", "speculation"];
const OF_REQUESTS = ["isl", "osl", ...LOAD];  // wait until both lengths are there
const FIELDS = [
  "weights", "kv", ...PARALLEL, "engine", "engine_version", "price", ...OWN, "context", "isl", "osl", "max_batch", "step_limit",
  "tokens_per_user", "within", "reading", ...LOAD,
];
// What of a question names the deployment: the price sheet and the simulation take it over.
export const OF_DEPLOYMENT = ["model", "config", "profile", "on", "weights", "kv", ...PARALLEL, "engine", "engine_version", "price", ...OWN];

export const letters = ["A", "B", "C", "D"];

export const state = {
  view: "curve",
  questions: [{ ...DEFAULTS }],
  edited: 0,
  language: null,
  theme: "auto",
  axis: "log",
  at: null,
  measured: [],
  trace: null,  // { name, text }; of a link that could not carry it only the name
  plan: { isl: "4k", osl: "1k", rate: "5", ttft: "p95:2s", tpot: "p95:40ms" },
  simulate: { rate: "4", isl: "2k", osl: "500", spread: "0.6", replicas: "1", ttft: "p95:2s", tpot: "p95:40ms" },
  prices: { isl: "4k", osl: "1k", utilisation: "0.6", margin: "0.3", prefix_hit_rate: "0.9", fast: "2.5" },
};

export const VIEWS = ["curve", "plan", "prices", "simulate"];
const OTHERS = { plan: "p.", prices: "s.", simulate: "t." };

export const current = () => state.questions[state.edited];

export const withLengths = (question) => Boolean(question.isl && question.osl);

// Whether it says how requests come, so that the plots look at the batch that this load keeps running.
export const loaded = (question) => withLengths(question) && Boolean(question.rate || question.concurrency);

// The question as the API takes it: what was not given stays away.
export function asked(question) {
  const body = { on: `${question.count}x${question.accelerator}` };
  if (question.config) body.config = question.config;
  else body.model = question.model;
  if (question.profile) body.profile = question.profile;
  for (const field of FIELDS) {
    const value = question[field];
    if (value === undefined || value === "") continue;
    if (field === "context" ? withLengths(question) : OF_REQUESTS.includes(field) && !withLengths(question)) continue;
    const numeric = PARALLEL.includes(field) || field === "max_batch";
    body[field] = numeric && /^\d+$/.test(value) ? Number(value) : value;
  }
  return body;
}

async function packed(content) {
  const stream = new Blob([content]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

// Longest trace that a link carries, packed: longer ones are cut by what people send links with.
const LONGEST_TRACE = 32 * 1024;

export async function linked(trace) {
  trace.packed ??= trace.text === undefined ? "" : await packed(trace.text);
  return trace.packed !== "" && trace.packed.length <= LONGEST_TRACE;
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}

async function unpackedConfig(text) {
  const config = JSON.parse(await unpacked(text));
  if (typeof config !== "object" || config === null || Array.isArray(config)) throw new Error("no config");
  return config;
}

async function written(question) {
  const parts = new URLSearchParams();
  if (question.config) parts.set("config", await packed(JSON.stringify(question.config)));
  else parts.set("model", question.model);
  if (question.profile) parts.set("profile", await packed(question.profile));
  parts.set("on", `${question.count}x${question.accelerator}`);
  for (const field of FIELDS) if (question[field] !== undefined && question[field] !== "") parts.set(field, question[field]);
  return parts;
}

async function read(parts) {
  const question = {};
  const [, count, accelerator] = /^(?:(\d+)\s*x)?(.+)$/i.exec(parts.get("on") ?? "") ?? [];
  question.count = count ?? (accelerator ? "1" : DEFAULTS.count);
  question.accelerator = accelerator ?? DEFAULTS.accelerator;
  if (parts.has("config")) question.config = await unpackedConfig(parts.get("config")).catch(() => undefined);
  if (parts.has("profile")) question.profile = await unpacked(parts.get("profile")).catch(() => undefined);
  if (!question.config) question.model = parts.get("model") ?? DEFAULTS.model;
  for (const field of FIELDS) if (parts.has(field)) question[field] = parts.get(field);
  return question;
}

export async function address() {
  const parts = await written(state.questions[0]);
  for (const other of state.questions.slice(1)) parts.append("vs", (await written(other)).toString());
  if (OTHERS[state.view]) for (const [name, value] of Object.entries(state[state.view])) parts.set(OTHERS[state.view] + name, value);
  if (state.view === "simulate" && state.trace) {
    parts.set("trace", state.trace.name);
    if (await linked(state.trace)) parts.set("requests", state.trace.packed);
  }
  if (state.edited) parts.set("edit", state.edited);
  if (state.at !== null) parts.set("at", state.at);
  if (state.axis !== "log") parts.set("axis", state.axis);
  if (state.theme !== "auto") parts.set("theme", state.theme);
  if (state.language) parts.set("lang", state.language);
  if (state.measured.length) parts.set("points", state.measured.flatMap((p) => [p.batch, +p.t_step_s.toPrecision(4)]).join(","));
  return `#${state.view}?${parts}`;
}

export async function follow(hash) {
  const [view, query = ""] = hash.replace(/^#/, "").split("?");
  const parts = new URLSearchParams(query);
  state.view = VIEWS.includes(view) ? view : "curve";
  const given = (prefix) => [...parts].filter(([name]) => name.startsWith(prefix)).map(([name, value]) => [name.slice(prefix.length), value]);
  for (const [name, prefix] of Object.entries(OTHERS)) if (given(prefix).length) state[name] = Object.fromEntries(given(prefix));
  if (query) {
    state.questions = [await read(parts)];
    for (const other of parts.getAll("vs").slice(0, 3)) state.questions.push(await read(new URLSearchParams(other)));
    state.edited = Math.min(Number(parts.get("edit")) || 0, state.questions.length - 1);
    state.at = Number(parts.get("at")) || null;
    state.axis = parts.get("axis") === "linear" ? "linear" : "log";
    state.trace = null;
    if (parts.get("trace")) {
      state.trace = { name: parts.get("trace").slice(0, 150) };
      if (parts.get("requests")) state.trace.text = await unpacked(parts.get("requests")).catch(() => undefined);
    }
    const numbers = (parts.get("points") ?? "").split(",").map(Number);
    state.measured = [];
    for (let i = 0; i + 1 < numbers.length && i < 4000; i += 2)
      if (numbers[i] > 0 && numbers[i + 1] > 0) state.measured.push({ batch: numbers[i], t_step_s: numbers[i + 1] });
  }
  if (["light", "dark", "auto"].includes(parts.get("theme"))) state.theme = parts.get("theme");
  if (["en", "ko"].includes(parts.get("lang"))) state.language = parts.get("lang");
}

let timer = 0;
export function remember() {
  clearTimeout(timer);
  timer = setTimeout(async () => history.replaceState(null, "", await address()), 250);
}
