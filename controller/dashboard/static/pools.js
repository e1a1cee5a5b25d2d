// What the reserved pools would do now, line by line.

import { h, problem, replace } from "./dom.js";
import { number } from "./words.js";

const SECONDS = 30;

export function pools(root, context) {
  document.title = "Pools – dyntrain";
  const shown = h("div", {}, h("p", {}, "Reading the reservations …"));
  const button = h("button", { type: "button", onclick: () => read() }, "Read again");
  replace(root, h("h1", {}, "Pools"), h("p", {}, `Read every ${SECONDS} s. `, button), shown);
  async function read() {
    try {
      replace(shown, ...parts(await (await fetch("api/pools")).json()));
    } catch {
      replace(shown, problem("the server gave no answer"));
    }
  }
  read();
  context.every(SECONDS * 1000, read);
}

function parts({ problem: said, sum, pools: all }) {
  const lines = sum.map((entry) => line(signed(entry.amount), entry.unit === "units" ? "units" : "", entry.text));
  return [
    problem(said),
    h("h2", {}, "Reserved, less what uses it"),
    lines.length ? table(lines) : h("p", {}, "Nothing is reserved."),
    ...all.flatMap((pool) => [h("h2", {}, pool.cluster + (pool.dry_run ? " (dry run)" : "")), table(own(pool))]),
    all.length || said ? null : h("p", {}, "No cluster has a pool."),
  ];
}

function own(pool) {
  const rows = pool.lines.map(({ amount, text }) => line(amount, "", text));
  rows.at(-1).className = "sum"; // the target
  return rows;
}

function line(amount, unit, text) {
  return h("tr", {}, h("td", {}, amount), h("td", {}, unit), h("td", {}, text));
}

function table(rows) {
  return h("table", { class: "ledger" }, h("tbody", {}, ...rows));
}

function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}
