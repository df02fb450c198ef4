// Small pieces of a page. Text is only ever set as text.

import { say } from "./words.js";

// A phone: charts for it are narrow.
export const narrow = matchMedia("(max-width: 640px)");

export const byId = (id) => document.getElementById(id);

export function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

export function put(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// A table of columns [heading, "text" or "" or "wrap"] and rows of texts or elements.
export function fill(table, columns, rows, classes = []) {
  const head = element("tr");
  for (const [name, kind] of columns) {
    const cell = element(name ? "th" : "td", name, kind.includes("text") ? "text" : "");
    if (name) cell.scope = "col";
    head.append(cell);
  }
  table.replaceChildren(head, ...rows.map((row, i) => {
    const line = element("tr", undefined, classes[i] ?? "");
    row.forEach((content, k) => {
      const cell = element("td", undefined, columns[k][1]);
      cell.append(...(Array.isArray(content) ? content : [content]));
      line.append(cell);
    });
    return line;
  }));
}

export function button(text, act, className = "plain", label) {
  const made = element("button", text, className);
  made.type = "button";
  if (label) made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

// Numbers with a name above and a line below; where something stands behind each, its name is a button that unfolds it.
const tiles = new WeakMap();
export function tilesInto(holder, rows, unfold) {
  const known = tiles.get(holder) ?? new Map();
  tiles.set(holder, known);
  for (const { key, name, value, below } of rows) {
    let cells = known.get(key);
    if (!cells) {
      const box = element("div");
      cells = [element("dt"), element("dd", "", "value"), element("dd", "", "below")];
      box.append(...cells);
      if (unfold) {
        const name = button("", () => unfold(key), "unfold");
        name.dataset.number = key;
        name.setAttribute("aria-expanded", "false");
        cells[0].append(name);
        cells[0] = name;
      }
      holder.append(box);
      known.set(key, cells);
    }
    [name, value, below].forEach((text, i) => put(cells[i], text));
  }
}

// The server names fields between backticks; the page has labels for those that are on it.
export function labelled(text, box) {
  return text.replace(/`(\w+)`/g, (_, field) => {
    const at = box.closest(".view")?.querySelector(`[data-field^="${field}"] :is(label, legend, .label)`);
    return at ? at.textContent.replace(/ \[.*/, "") : field;
  });
}

export function problemInto(box, body, actions = []) {
  box.replaceChildren(element("strong", labelled(body.problem, box)));
  for (const text of [body.allowed, body.hint]) if (text) box.append(element("span", labelled(text, box)));
  for (const [text, act] of actions) box.append(button(text, act, ""));
  box.hidden = false;
}

export async function copy(text, from, key) {
  try {
    await navigator.clipboard.writeText(text);
    from.textContent = say("ui_copied");
  } catch {
    prompt(say(key), text);
  }
  setTimeout(() => { from.textContent = say(key); }, 1500);
}

export function saveAs(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Buttons that save a file: by its kind a text or picture, or several of them by name; nothing before there is an answer.
export function downloads(holder, name, made) {
  for (const chosen of holder.querySelectorAll("button")) {
    const { kind } = chosen.dataset;
    chosen.addEventListener("click", async () => {
      const found = await made[kind]();
      if (!found) return;
      const files = Object.getPrototypeOf(found) === Object.prototype ? Object.entries(found) : [["", found]];
      for (const [part, content] of files) saveAs(new Blob([await content]), `${[name, part].filter(Boolean).join("-")}.${kind}`);
    });
  }
}

// A question as a file, as the server writes the curve's: strings, numbers and lists of TOML are written as in JSON.
export function toml(question) {
  const table = (value) => `{ ${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)} = ${written(one)}`).join(", ")} }`;
  const written = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? table(value) : JSON.stringify(value));
  const lines = Object.entries(question).map(([name, value]) => (name === "config" ? `config_json = ${JSON.stringify(JSON.stringify(value))}` : `${name} = ${written(value)}`));
  return `# A question to Batchline; quantities without a unit are in base units: tokens, seconds, USD/h.\n${lines.join("\n")}\n`;
}

export function csv(rows) {
  const quoted = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? ""));
  return rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n";
}
