// A text field that searches a list: the ARIA combobox pattern.

export class Combobox {
  constructor(holder, { id, search, choose, count, nothing }) {
    this.search = search;
    this.choose = choose;
    this.nothing = nothing;
    this.input = document.createElement("input");
    Object.assign(this.input, { id, type: "text", autocomplete: "off", spellcheck: false });
    this.list = document.createElement("ul");
    this.list.id = `${id}-list`;
    this.list.hidden = true;
    for (const [name, value] of Object.entries({
      role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": this.list.id,
    })) this.input.setAttribute(name, value);
    this.list.setAttribute("role", "listbox");
    holder.append(this.input, this.list);
    this.found = [];
    this.active = -1;
    this.value = "";
    this.input.addEventListener("focus", () => this.input.select());
    this.input.addEventListener("click", () => this.open(""));
    this.input.addEventListener("input", () => this.open(this.input.value));
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("blur", () => { this.close(); this.input.value = this.value; });
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.list.addEventListener("click", (event) => {
      const item = event.target.closest("[data-index]");
      if (item) this.take(Number(item.dataset.index));
    });
  }

  label(text) {
    this.list.setAttribute("aria-label", text);
  }

  set(value) {
    this.value = value;
    if (document.activeElement !== this.input || this.list.hidden) this.input.value = value;
  }

  open(text) {
    this.found = this.search(text.trim().toLowerCase());
    this.active = text ? (this.found.length ? 0 : -1) : this.found.findIndex((item) => item.value === this.value);
    this.list.replaceChildren(...this.found.map((item, index) => {
      const row = document.createElement("li");
      row.id = `${this.list.id}-${index}`;
      row.dataset.index = index;
      row.setAttribute("role", "option");
      const name = document.createElement("span");
      const detail = document.createElement("span");
      name.textContent = item.name;
      detail.textContent = item.detail;
      row.append(name, detail);
      return row;
    }));
    if (!this.found.length) {
      const row = document.createElement("li");
      row.className = "none";
      row.setAttribute("role", "option");
      row.setAttribute("aria-disabled", "true");
      row.textContent = this.nothing();
      this.list.append(row);
    }
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.mark();
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  mark() {
    [...this.list.children].forEach((row, index) => row.setAttribute("aria-selected", String(index === this.active)));
    const row = this.list.children[this.active];
    if (row && this.found.length) {
      this.input.setAttribute("aria-activedescendant", row.id);
      row.scrollIntoView({ block: "nearest" });
    } else this.input.removeAttribute("aria-activedescendant");
  }

  take(index) {
    const item = this.found[index];
    if (!item) return;
    this.value = item.value;
    this.input.value = item.value;
    this.close();
    this.choose(item.value);
  }

  key(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 };
    if (event.key in moves) {
      event.preventDefault();
      if (this.list.hidden) this.open("");
      else {
        const last = this.found.length - 1;
        this.active = Math.min(last, Math.max(0, this.active + moves[event.key]));
        this.mark();
      }
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (!this.list.hidden) this.take(this.active);
    } else if (event.key === "Escape" && !this.list.hidden) {
      event.preventDefault();
      this.input.value = this.value;
      this.close();
    }
  }
}
