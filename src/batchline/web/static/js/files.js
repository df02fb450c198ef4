// Files that are dropped or chosen: a config.json, a profile, or a result file.

import { Refused, upload } from "./api.js";
import { byId, button, element } from "./dom.js";
import { state } from "./state.js";
import { say } from "./words.js";

const LARGEST = 8 * 2 ** 20;
const PROFILE = /^schema\s*=\s*"batchline\.profile\//m;

export class Files {
  constructor({ config, profile, measured, trace, refused }) {
    Object.assign(this, { config, profile, measured, trace, refused });
    this.told = [];
    for (const [zone, input] of [["config-drop", "config-file"], ["profile-drop", "profile-file"], ["results-drop", "results-file"], ["trace-drop", "trace-file"]]) {
      byId(input).addEventListener("change", async (event) => {
        for (const file of event.target.files) await this.take(file);
        event.target.value = "";
      });
      const box = byId(zone);
      box.addEventListener("dragover", () => box.classList.add("over"));
      for (const name of ["dragleave", "drop"]) box.addEventListener(name, () => box.classList.remove("over"));
    }
    // A file may be dropped anywhere: what it is, its content says; beside a simulation what is left is a trace.
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", async (event) => {
      event.preventDefault();
      for (const file of event.dataTransfer?.files ?? []) await this.take(file);
    });
  }

  async take(file) {
    try {
      if (file.size > LARGEST) throw new Refused(413, { problem: `${file.name}: ${(file.size / 2 ** 20).toFixed(1)} MiB`, allowed: "8 MiB", hint: "" });
      const text = await file.text();
      if (PROFILE.test(text)) return this.profile(text);
      const parsed = parse(text);
      const known = parsed && (parsed.model_type || parsed.text_config || parsed.architectures || file.name === "config.json");
      if (known) this.config(parsed, file.name);
      else if (state.view === "simulate") this.trace({ name: file.name.slice(-150), text });
      else await this.results(text, file.name);
    } catch (error) {
      this.refused(error instanceof Refused ? error.body : { problem: `${file.name}: ${error.message}` });
    }
  }

  async results(text, name) {
    const reply = await upload(`api/v1/measured?name=${encodeURIComponent(name.slice(-150))}`, text);
    const usable = reply.points.filter((point) => point.batch > 0 && point.t_step_s > 0);
    const excluded = usable.filter((point) => point.hazards.some((hazard) => hazard.excludes));
    const names = [...new Set(excluded.flatMap((point) => point.hazards.filter((h) => h.excludes).map((h) => h.name)))];
    const shown = usable.filter((point) => !excluded.includes(point)).map(({ batch, t_step_s }) => ({ batch, t_step_s }));
    this.told.push({ file: reply.file, count: reply.points.length, off: reply.points.length - usable.length, out: excluded.length, names });
    state.measured.push(...shown);
    this.show();
    this.measured();
  }

  show() {
    if (!this.told.length && state.measured.length)
      this.told.push({ file: "link", count: state.measured.length, off: 0, out: 0, names: [] });
    byId("results").replaceChildren(...this.told.map((row) => {
      const notes = [say("ui_results_given", { count: row.count, file: row.file })];
      if (row.off) notes.push(say("ui_results_off", { count: row.off }));
      if (row.out) notes.push(say("ui_excluded", { count: row.out, names: row.names.join(", ") }));
      return element("li", `${notes.join("; ")} `);
    }));
    if (this.told.length) {
      const remove = button(say("ui_remove"), () => { this.told = []; state.measured = []; this.show(); this.measured(); });
      byId("results").lastElementChild.append(remove);
    }
  }
}

function parse(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
