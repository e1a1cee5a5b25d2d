// One cluster, live: the job, its curves, the nodes and the events.

import { h, problem, replace, say } from "./dom.js";
import { sizes } from "./change.js";
import { Charts } from "./charts.js";
import { Events } from "./events.js";
import { Rows } from "./rows.js";
import { changesOf } from "./marks.js";
import { ago, nodeOf, number, role, status, why } from "./words.js";

export function cluster(root, context, name) {
  document.title = `${name} – dyntrain`;
  const view = new Cluster(name);
  replace(root, ...view.parts(sizes(context, name)));
  context.stream(`api/live/${encodeURIComponent(name)}`, (state, changes) => view.show(state, changes));
  context.every(1000, () => view.tick());
  context.closing(() => view.close());
}

class Cluster {
  constructor(name) {
    Object.assign(this, { name, state: null, wanted: new Set() });
    this.said = h("div", {});
    this.job = h("div", { class: "job" }, "Reading …");
    this.target = h("p", {});
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Show only nodes with the status" });
    this.filter = h("input", { type: "search", placeholder: "instance, status, reason …", "aria-label": "Filter nodes", oninput: () => this.list() });
    this.count = h("span", { class: "count", role: "status" });
    this.nodes = new Rows({
      label: "Nodes",
      key: (row) => row.instance,
      open: (row) => (location.hash = nodeOf(name, row.instance)),
      columns: [
        { name: "Instance", class: "instance", text: (row) => row.instance, href: (row) => nodeOf(name, row.instance) },
        { name: "Role", class: "role", text: (row) => role(row, this.state.target) },
        { name: "Status", class: "status", text: (row) => status(row.status), mark: (row) => row.status },
        { name: "Reason", class: "what", text: why },
        {
          name: "Rank",
          class: "rank",
          text: (row) => (row.rank === null ? "–" : `${row.rank}, log`),
          href: (row) => row.rank !== null && nodeOf(name, row.instance, "worker"),
        },
        { name: "Since", class: "since", text: (row) => ago(row.since) },
      ],
    });
    this.charts = new Charts();
    this.past = h("section", { class: "past" });
    this.events = new Events(name);
  }

  parts(changes) {
    const tools = h("p", { class: "tools" }, this.filter, " ", this.count);
    return [
      h("p", { class: "path" }, h("a", { href: "#/" }, "Clusters"), ` › ${this.name}`),
      h("h1", {}, this.name),
      this.said,
      this.job,
      this.target,
      changes,
      this.charts.element,
      this.past,
      h("section", { class: "nodes" }, h("h2", {}, "Nodes"), this.chips, tools, this.nodes.element),
      this.events.element,
    ];
  }

  show(state, changes) {
    this.state = state;
    if ("told" in changes || "failure" in changes) replace(this.job, ...told(state));
    if ("problem" in changes) replace(this.said, problem(state.problem));
    if (changes.nodes || changes.target || changes.whole) this.list();
    if ("marks" in changes) replace(this.past, ...changesOf(state.marks));
    if ("curves" in changes || "marks" in changes) this.charts.show(state.curves, state.marks ?? []);
    if (changes.trail) this.events.heard(state.trail);
    this.tick();
  }

  tick() {
    if (!this.state) return;
    const target = this.state.target;
    const coordinator = target?.coordinator ? `, ${target.coordinator} runs the coordinator` : "";
    say(this.target, target ? `Target revision ${target.revision}: ${number(target.members.length)} members${coordinator}.` : "");
    this.nodes.soon();
  }

  list() {
    const rows = [...this.state.nodes.values()];
    const counts = new Map();
    for (const row of rows) counts.set(row.status, (counts.get(row.status) ?? 0) + 1);
    this.chip(counts);
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => {
      if (this.wanted.size && !this.wanted.has(row.status)) return false;
      const text = words.length ? `${row.instance} ${row.status} ${row.reason} ${why(row)} ${role(row, this.state.target)}`.toLowerCase() : "";
      return words.every((word) => text.includes(word));
    };
    const shown = rows.filter(fits).sort(order);
    say(this.count, shown.length === rows.length ? `${number(rows.length)} nodes` : `${number(shown.length)} of ${number(rows.length)} nodes`);
    this.nodes.set(shown);
  }

  chip(counts) {
    for (const name of this.wanted) if (!counts.has(name)) counts.set(name, 0);
    const names = [...counts.keys()].sort();
    const had = new Map([...this.chips.children].map((chip) => [chip.dataset.status, chip]));
    const chips = names.map((name) => {
      const chip = had.get(name) ?? h("button", { type: "button", "data-status": name, onclick: () => this.toggle(name) });
      say(chip, `${status(name)} ${number(counts.get(name))}`);
      chip.setAttribute("aria-pressed", this.wanted.has(name));
      return chip;
    });
    if (chips.length !== had.size || chips.some((chip, index) => chip !== this.chips.children[index])) replace(this.chips, ...chips);
  }

  toggle(name) {
    if (!this.wanted.delete(name)) this.wanted.add(name);
    this.list();
  }

  close() {
    this.nodes.close();
    this.events.close();
    this.charts.close();
  }
}

function told({ told: lines, failure }) {
  const wrong = failure.length ? h("pre", { class: "failure", tabindex: 0 }, failure.join("\n")) : null;
  return [...lines.map((line) => h("p", { class: "told" }, line)), wrong];
}

function order(a, b) {
  return b.base - a.base || (a.rank ?? Infinity) - (b.rank ?? Infinity) || (a.instance < b.instance ? -1 : 1);
}
