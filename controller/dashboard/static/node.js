// One node: its status, why, and every fact with where it came from.

import { leaving } from "./change.js";
import { facts, h, problem, replace } from "./dom.js";
import { ago, moment, role, status } from "./words.js";

// `chosen` is the log that is wanted at once, if any.
export function node(root, context, cluster, instance, chosen) {
  document.title = `${instance} – dyntrain`;
  const shown = h("div", {}, h("p", {}, "Reading …"));
  const back = h("a", { href: `#/cluster/${encodeURIComponent(cluster)}` }, cluster);
  const changes = h("div", {});
  replace(root, h("p", { class: "path" }, back, ` › ${instance}`), h("h1", {}, instance), changes, shown, log(context, cluster, instance, chosen));
  let target = null;
  const others = h("datalist", { id: "others" });
  let base = null;
  async function read() {
    const path = `api/explain/${encodeURIComponent(cluster)}/${encodeURIComponent(instance)}`;
    try {
      const found = await (await fetch(path)).json();
      if (found.base !== undefined && found.base !== base) replace(changes, leaving(context, instance, found.base, others));
      base = found.base ?? base;
      replace(shown, ...(found.problem ? [problem(found.problem)] : parts(found, target)));
    } catch {
      // the connection line says so; what was read stays
    }
  }
  context.stream(`api/live/${encodeURIComponent(cluster)}`, (state, changes) => {
    target = state.target;
    const elastic = [...state.nodes.values()].filter((row) => !row.base);
    replace(others, ...elastic.map((row) => h("option", { value: row.instance })));
    if (changes.whole || changes.target || changes.nodes?.set[instance] || changes.nodes?.gone.includes(instance)) read();
  });
}

const LOG_SECONDS = 3;

// The end of one of its logs, read only once somebody has chosen which.
function log(context, cluster, instance, chosen) {
  const choice = h("select", { id: "log", onchange: () => read() }, h("option", { value: "" }, "choose …"));
  const lines = h("pre", { class: "log", tabindex: 0 });
  const said = h("div", {});
  lines.hidden = true;
  async function read() {
    if (!choice.value) return;
    const path = ["api/logs", cluster, instance, choice.value].map((part, index) => (index ? encodeURIComponent(part) : part));
    try {
      const found = await (await fetch(path.join("/"))).json();
      const below = lines.scrollTop + lines.clientHeight > lines.scrollHeight - 20;
      replace(said, problem(found.problem));
      lines.hidden = false;
      lines.textContent = found.lines.join("\n") || "nothing was written in the last hour";
      if (below) lines.scrollTop = lines.scrollHeight;
    } catch {
      // the connection line says so
    }
  }
  context.about.then((about) => {
    choice.append(...about.logs.map((kind) => h("option", { value: kind }, kind)));
    if (about.logs.includes(chosen)) choice.value = chosen;
    read();
  });
  context.every(LOG_SECONDS * 1000, read);
  return h("section", {}, h("h2", {}, h("label", { for: "log" }, "Log"), " ", choice), said, lines);
}

function parts(found, target) {
  const pairs = [
    ["Status", h("strong", { "data-status": found.status }, status(found.status))],
    ["Reason", `${found.reason}: ${found.sentence}`],
    ["Role", role(found, target)],
    ["Since", `${moment(found.since)} (${ago(found.since)})`],
    ["Rank", found.rank === null ? "none" : `${found.rank} of generation ${found.generation}`],
    ["What would change it", found.would_change],
  ];
  if (found.next_change !== null) pairs.push(["May change by itself at", moment(found.next_change)]);
  if (found.pending_actions.length) pairs.push(["To be done", found.pending_actions.join(", ")]);
  const origins = found.origins.map((one) =>
    h("tr", {}, h("td", {}, moment(one.at)), h("td", {}, one.fact), h("td", { class: "says" }, one.says), h("td", {}, one.where)),
  );
  const heads = ["When", "Fact", "Says", "Told by"].map((name) => h("th", { scope: "col" }, name));
  return [
    facts(pairs),
    found.detail ? h("h2", {}, "Detail") : null,
    found.detail ? h("pre", { class: "detail", tabindex: 0 }, found.detail) : null,
    h("h2", {}, "As it stands"),
    facts(Object.entries(found.effective).map(([name, value]) => [name, plain(value)])),
    h("h2", {}, "What is known, and from where"),
    h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...origins))),
    found.passed_over.length ? h("h2", {}, "Passed over") : null,
    found.passed_over.length ? h("ul", {}, ...found.passed_over.map((line) => h("li", {}, line))) : null,
  ];
}

function plain(value) {
  if (value === null) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}
