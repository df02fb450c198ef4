// What the page asks before anything else: the server works on the answer while the other scripts are on their way.

import { ask } from "./api.js";
import { asked, current, follow, state } from "./state.js";

export const dark = matchMedia("(prefers-color-scheme: dark)");
export const themeNow = () => (state.theme === "auto" ? (dark.matches ? "dark" : "light") : state.theme);

export function explore(question, charts) {
  return {
    question: asked(question), language: state.language, theme: themeNow(), batch_axis: state.axis, charts, measured: state.measured,
  };
}

async function begin() {
  state.theme = localStorage.getItem("theme") ?? "auto";
  state.language = localStorage.getItem("language") ?? (navigator.language.startsWith("ko") ? "ko" : "en");
  await follow(location.hash);
  const answer = ask("api/v1/explore", explore(current(), "vega"));
  const lists = Promise.all([`words?language=${state.language}`, "models", "accelerators", "choices"].map((name) => ask(`api/v1/${name}`)));
  for (const promise of [answer, lists]) promise.catch(() => {});  // who waits for them is told
  return { answer, lists };
}

export const begun = begin();
