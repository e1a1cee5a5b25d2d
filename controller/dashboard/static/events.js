// The audit trail: newest first, filtered by the server, more when its end is scrolled to.

import { h, problem, replace, say } from "./dom.js";
import { Rows } from "./rows.js";
import { moment, nodeOf, number } from "./words.js";

const PAGE = 200;
const TYPING = 250;

export class Events {
  constructor(cluster) {
    Object.assign(this, { path: `api/events/${encodeURIComponent(cluster)}`, rows: [], more: false, latest: -1, asked: 0 });
    this.filter = h("input", { type: "search", placeholder: "words, an instance, REFUSED …", "aria-label": "Filter events", oninput: () => this.typed() });
    this.count = h("span", { class: "count", role: "status" });
    this.said = h("div", {});
    this.table = new Rows({
      label: "Events",
      key: (row) => row.number,
      columns: [
        { name: "When", class: "when", text: (row) => moment(row.at) },
        { name: "Kind", class: "kind", text: (row) => row.kind },
        { name: "Instance", class: "instance", text: (row) => row.instance, href: (row) => nodeOf(cluster, row.instance) },
        { name: "What", class: "what", text: (row) => (row.detail ? `${row.what} (${row.detail})` : row.what) },
      ],
      end: () => this.older(),
    });
    this.element = h("section", { class: "events" }, h("h2", {}, "Events"), h("p", { class: "tools" }, this.filter, " ", this.count), this.said, this.table.element);
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.read(), TYPING);
  }

  // The stream says which event is the latest; only then is there anything to read.
  heard(trail) {
    replace(this.said, problem(trail.problem));
    if (trail.latest !== this.latest) this.read();
    this.latest = trail.latest;
  }

  async read() {
    const found = await this.ask();
    if (!found) return;
    const oldest = found.rows.at(-1)?.number ?? Infinity;
    const kept = this.text === this.filter.value && found.more ? this.rows.filter((row) => row.number < oldest) : [];
    if (!kept.length) this.more = found.more;
    this.text = this.filter.value;
    this.show([...found.rows, ...kept], found);
  }

  async older() {
    if (!this.more || this.asking) return;
    this.asking = true;
    const found = await this.ask(this.rows.at(-1)?.number);
    this.asking = false;
    if (!found) return;
    this.more = found.more;
    this.show([...this.rows, ...found.rows], found);
  }

  async ask(before) {
    const mine = ++this.asked;
    const query = new URLSearchParams({ text: this.filter.value, limit: PAGE, ...(before ? { before } : {}) });
    try {
      const found = await (await fetch(`${this.path}?${query}`)).json();
      return mine === this.asked ? found : null;
    } catch {
      return null;
    }
  }

  show(rows, found) {
    this.rows = rows;
    this.table.set(rows);
    say(this.count, `${number(rows.length)}${this.more ? "+" : ""} shown of ${number(found.known)} known`);
  }

  close() {
    clearTimeout(this.timer);
    this.table.close();
  }
}
