// A form of plain fields over an object of texts: inputs, sliders with a number beside them, and lists to choose from.

import { byId, element } from "./dom.js";
import { say } from "./words.js";

const TIMES = [1, 1.5, 2, 3, 4, 5, 7].flatMap((part) => [10, 100, 1000, 10000].map((decade) => part * decade)).sort((a, b) => a - b);
const PROMISE = /^\s*(p[\d.]+\s*:)?\s*([\d.]+)\s*(s|ms)\s*$/i;

// A promise as a slider over milliseconds; the text keeps its percentile, p95 unless another was written.
export function promise(name, label, low, high) {
  const read = (text) => { const [, , time, unit] = PROMISE.exec(text) ?? []; return time ? Number(time) * (unit.toLowerCase() === "s" ? 1000 : 1) : NaN; };
  const text = (value, before) => {
    const [, share] = PROMISE.exec(before) ?? [];
    return `${before && PROMISE.test(before) ? share ?? "" : "p95:"}${value >= 1000 ? `${value / 1000}s` : `${value}ms`}`;
  };
  return { name, label, kind: "slider", steps: [...TIMES.filter((value) => value >= low && value <= high), null], text, read, none: "ui_no_promise" };
}

// `fields` are { name, label, kind: "text" | "slider" | "choices" | "select", steps, text, read, options, none, usual, hint };
// `usual` is what counts where nothing is written. `values()` is the object.
export class Fields {
  constructor(holder, prefix, fields, values, changed) {
    Object.assign(this, { holder, prefix, fields, values, changed });
    for (const field of fields) holder.append(this[field.kind](field));
  }

  id(name) {
    return `${this.prefix}-${name}`;
  }

  box(field) {
    const box = element("div", undefined, `field ${field.kind}`);
    box.dataset.field = field.name;
    return box;
  }

  give(name, value) {
    if (value === "" || value === null) delete this.values()[name];
    else this.values()[name] = value;
    this.changed();
  }

  text(field) {
    const box = this.box(field);
    const label = element("label");
    label.htmlFor = this.id(field.name);
    label.dataset.text = field.label;
    const input = element("input");
    Object.assign(input, { id: this.id(field.name), type: "text", autocomplete: "off", spellcheck: false });
    if (field.hint) input.placeholder = field.hint;
    input.addEventListener("input", () => this.give(field.name, input.value.trim()));
    box.append(label, input);
    return box;
  }

  select(field) {
    const box = this.box(field);
    const label = element("label");
    label.htmlFor = this.id(field.name);
    label.dataset.text = field.label;
    const input = element("select");
    input.id = this.id(field.name);
    for (const [value, text] of field.options) {
      const option = element("option");
      option.value = value;
      option.dataset.text = text;
      input.append(option);
    }
    input.addEventListener("change", () => this.give(field.name, input.value));
    box.append(label, input);
    return box;
  }

  slider(field) {
    const box = this.box(field);
    const line = element("div", undefined, "line");
    const label = element("label");
    label.htmlFor = this.id(field.name);
    label.dataset.text = field.label;
    const input = element("input");
    Object.assign(input, { id: this.id(field.name), type: "text", inputMode: field.read ? "text" : "decimal", autocomplete: "off" });
    const range = element("input");
    Object.assign(range, { id: `${this.id(field.name)}-range`, type: "range", min: "0", max: String(field.steps.length - 1), step: "1" });
    range.dataset.label = field.label;
    range.addEventListener("input", () => {
      const value = field.steps[Number(range.value)];
      input.value = value === null ? "" : field.text(value, input.value);
      range.setAttribute("aria-valuetext", input.value || (field.none ? say(field.none) : ""));
      this.give(field.name, input.value);
    });
    input.addEventListener("change", () => { this.give(field.name, input.value.trim()); this.show(); });
    line.append(label, input);
    box.append(line, range);
    return box;
  }

  choices(field) {
    const box = this.box(field);
    const label = element("span", undefined, "label");
    label.id = `${this.id(field.name)}-label`;
    label.dataset.text = field.label;
    const list = element("div", undefined, "choices");
    list.setAttribute("role", "group");
    list.setAttribute("aria-labelledby", label.id);
    list.id = this.id(field.name);
    for (const name of field.options) {
      const one = element("label");
      const input = element("input");
      Object.assign(input, { type: "checkbox", value: name });
      input.addEventListener("change", () => {
        const chosen = [...list.querySelectorAll(":checked")].map((item) => item.value);
        this.give(field.name, chosen.join(","));
      });
      one.append(input, element("span", name));
      list.append(one);
    }
    const note = element("p", undefined, "note");
    note.dataset.text = field.none;
    box.append(label, list, note);
    return box;
  }

  show() {
    for (const { name, kind, steps, none, usual = "", read = Number.parseFloat } of this.fields) {
      const value = this.values()[name] ?? "";
      if (kind === "choices") {
        const chosen = value.split(",");
        for (const input of byId(this.id(name)).querySelectorAll("input")) input.checked = chosen.includes(input.value);
        continue;
      }
      const input = byId(this.id(name));
      if (document.activeElement !== input) input.value = value;
      if (kind === "text" || kind === "select") continue;
      input.placeholder = none ? say(none) : usual;
      const number = read(value || usual);
      let at = Math.max(0, steps.indexOf(null));
      if (!Number.isNaN(number)) steps.forEach((step, i) => { if (step !== null && (steps[at] === null || Math.abs(step - number) < Math.abs(steps[at] - number))) at = i; });
      const range = byId(`${this.id(name)}-range`);
      range.value = String(at);
      range.setAttribute("aria-valuetext", value || (none ? say(none) : usual));
    }
  }

  refuse(field) {
    for (const input of this.holder.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
    if (field && byId(this.id(field))) byId(this.id(field)).setAttribute("aria-invalid", "true");
  }
}
