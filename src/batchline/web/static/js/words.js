// What the page says, in the language chosen, and how it writes numbers: as the library's units do, three digits.

let words = {};
let language = "en";

export function speak(wanted, told) {
  words = told;
  language = wanted;
  label();
}

// Write the words where the page asks for them.
export function label() {
  document.documentElement.lang = language;
  document.title = say("ui_title");
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = say(element.dataset.text);
  for (const element of document.querySelectorAll("[data-label]")) element.setAttribute("aria-label", say(element.dataset.label));
  for (const button of document.querySelectorAll("button[data-language]"))
    button.setAttribute("aria-pressed", String(button.dataset.language === language));
}

export const spoken = () => language;

export function say(key, fields = {}) {
  const text = words[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => fields[name] ?? whole);
}

export const has = (key) => key in words;

function digits(value, count = 3) {
  if (value === 0 || !Number.isFinite(value)) return "0";
  const places = Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(value))));
  return grouped(value.toFixed(places));
}

// Commas between thousands, as Python's format has them; the browser's own Intl is slow to start.
function grouped(text) {
  const [whole, part] = text.split(".");
  const told = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return part === undefined ? told : `${told}.${part}`;
}

function scaled(value, steps) {
  const [scale, unit] = steps.find(([scale]) => Math.abs(value) >= scale) ?? steps.at(-1);
  return [digits(value / scale), unit];
}

export const whole = (value) => grouped(String(Math.round(value)));

export function time(seconds) {
  const [number, unit] = scaled(seconds, [[1, "s"], [1e-3, "ms"], [1e-6, "us"]]);
  return `${number} ${unit}`;
}

export function usd(value) {
  if (Math.abs(value) >= 1000) return `$${whole(value)}`;
  if (Math.abs(value) >= 0.1 || value === 0) return `$${value.toFixed(2)}`;
  return `$${digits(value)}`;
}

export function rate(value) {
  const [number, unit] = scaled(value, [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);
  return `${number}${unit} tok/s`;
}

export function count(value) {
  const [number, unit] = scaled(value, [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"], [1, ""]]);
  return `${number}${unit}`;
}

export function bytes(value) {
  const [number, unit] = scaled(value, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
  return `${number} ${unit}`;
}

export const percent = (share) => `${Math.round(share * 100)}%`;
