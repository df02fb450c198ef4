// Asking the server. While a slider moves, only the newest question matters.

import { state } from "./state.js";

// Errors come in the language of the page.
const headers = (type) => ({ "accept-language": state.language ?? "en", ...(type && { "content-type": type }) });

export class Refused extends Error {
  constructor(status, body) {
    super(body.problem ?? "");
    this.status = status;
    this.body = body;
  }
}

export async function ask(address, question, signal) {
  const options = question === undefined
    ? { signal, headers: headers() }
    : { signal, method: "POST", headers: headers("application/json"), body: JSON.stringify(question) };
  const reply = await fetch(address, options);
  if (!reply.ok) {
    const body = await reply.json().catch(() => ({ problem: `${reply.status} ${reply.statusText}` }));
    throw new Refused(reply.status, body);
  }
  return reply.json();
}

export async function fetchBlob(address, question) {
  const reply = await fetch(address, {
    method: "POST", headers: headers("application/json"), body: JSON.stringify(question),
  });
  if (!reply.ok) throw new Refused(reply.status, await reply.json().catch(() => ({})));
  return reply.blob();
}

export async function upload(address, text) {
  const reply = await fetch(address, { method: "POST", headers: headers("text/plain"), body: text });
  const body = await reply.json().catch(() => ({ problem: `${reply.status} ${reply.statusText}` }));
  if (!reply.ok) throw new Refused(reply.status, body);
  return body;
}

// A few questions at a time: the server works on one while the page draws another. A question that waits is replaced by
// a newer one, an answer that comes after a newer one's is dropped, and what is older than it is called off. Answers are
// shown one a frame, so that each is seen; of those that wait for theirs, as many as are asked at a time.
export class Newest {
  constructor(answer, show, fail, most = 2) {
    this.answer = answer;
    this.show = show;
    this.fail = fail;
    this.most = most;
    this.waiting = null;
    this.running = new Map();
    this.arrivals = [];
    this.showing = false;
    this.last = 0;
    this.newest = 0;
  }

  put(question) {
    this.waiting = { number: ++this.last, question };
    this.pump();
  }

  // Whether a question is newer than what was answered last.
  get pending() {
    return this.last > this.newest;
  }

  get idle() {
    return this.waiting === null && this.running.size === 0 && this.arrivals.length === 0;
  }

  pump() {
    if (this.waiting === null || this.running.size >= this.most) return;
    const { number, question } = this.waiting;
    this.waiting = null;
    const control = new AbortController();
    this.running.set(number, control);
    this.answer(question, control.signal)
      .then((reply) => this.arrived(number, () => this.show(reply, question)))
      .catch((error) => { if (error.name !== "AbortError") this.arrived(number, () => this.fail(error, question)); })
      .finally(() => { this.running.delete(number); this.pump(); });
  }

  arrived(number, use) {
    if (number <= this.newest) return;
    this.newest = number;
    for (const [older, control] of this.running) if (older < number) control.abort();
    this.arrivals = [...this.arrivals.slice(1 - this.most), use];
    if (!this.showing) this.showAll();
  }

  async showAll() {
    this.showing = true;
    try {
      while (this.arrivals.length) {
        await this.arrivals.shift()();
        await painted();
      }
    } finally {
      this.showing = false;
    }
  }
}

// Until what was changed is on the screen; what nobody looks at has no frames.
const painted = () => new Promise((done) => { if (document.hidden) done(); else requestAnimationFrame(() => setTimeout(done)); });
