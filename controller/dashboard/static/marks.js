// What happened on the curves: who came and went, and what each change cost those who stayed.

import { h } from "./dom.js";
import { ago, brief, moment } from "./words.js";

const SHOWN = 40;
const SHOWN_SECONDS = 0.005; // of a phase: a shorter one would read as none
const NAMES = ["", "", "generation", "took"]; // of what nobody would know without the table's head, on narrow screens
const SIGNS = {
  joined: "→",
  left: "←",
  worker_lost: "✕",
  restart: "↻",
  takeover: "⇄",
  failed: "✕",
  script_failed: "✕",
  finished: "■",
  pause: "‖",
};

export function sign(mark) {
  return SIGNS[mark.event] ?? "•";
}

// Those that tell more first: where several would be drawn over each other, the first one is.
export function tellingFirst(marks) {
  const ranks = Object.keys(SIGNS);
  const rank = (mark) => (mark.event in SIGNS ? ranks.indexOf(mark.event) : ranks.length);
  return [...marks].sort((a, b) => rank(a) - rank(b));
}

export function changesOf(marks) {
  if (!marks.length) return [];
  const newest = marks.slice(-SHOWN).reverse();
  const heads = ["When", "What", "Instance", "Generation", "Took", "Why, and where the time went"];
  const head = h("tr", {}, ...heads.map((name) => h("th", { scope: "col" }, name)));
  const table = h("table", {}, h("thead", {}, head), h("tbody", {}, ...newest.map(row)));
  return [h("h2", {}, "Changes and pauses"), h("div", { class: "wide tall", tabindex: 0 }, table)];
}

function row(mark) {
  const shown = Object.entries(mark.phases).filter(([, seconds]) => seconds >= SHOWN_SECONDS);
  const phases = shown.sort((a, b) => b[1] - a[1]);
  const parts = phases.map(([name, seconds]) => `${name} ${brief(seconds)}`).join(", ");
  const cells = [
    `${sign(mark)} ${mark.event.replaceAll("_", " ")}`,
    mark.instance || "–",
    mark.generation === null ? "–" : `${mark.generation}`,
    mark.seconds === null ? "–" : brief(mark.seconds),
    [mark.reason, parts].filter(Boolean).join("; "),
  ];
  const when = h("td", { title: ago(mark.at) }, moment(mark.at));
  const why = h("td", { class: "why" }, cells.pop());
  const others = cells.map((text, column) =>
    h("td", { class: text === "–" ? "none" : "", "data-name": NAMES[column] }, text),
  );
  return h("tr", { "data-event": mark.event }, when, ...others, why);
}
