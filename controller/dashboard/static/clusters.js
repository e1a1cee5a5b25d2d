// All clusters, a line each.

import { h, problem, replace } from "./dom.js";
import { status } from "./words.js";

export function clusters(root, context) {
  document.title = "dyntrain";
  const list = h("div", { class: "cards" });
  replace(root, h("h1", {}, "Clusters"), list);
  context.stream("api/live", (state) => {
    const cards = state.clusters.map(card);
    const invalid = Object.entries(state.invalid).map(([name, wrong]) =>
      h("article", { class: "card" }, h("h2", {}, name), problem(`its policy is not valid: ${wrong}`)),
    );
    const none = h("p", {}, "No cluster is registered.");
    replace(list, problem(state.problem), ...cards, ...invalid, cards.length || invalid.length || state.problem ? null : none);
  });
}

function card(cluster) {
  const counts = Object.entries(cluster.counts).map(([name, count]) =>
    h("li", { "data-status": name }, `${status(name)} ${count}`),
  );
  const link = h("a", { href: `#/cluster/${encodeURIComponent(cluster.cluster)}` }, cluster.cluster);
  return h(
    "article",
    { class: "card", "data-cluster": cluster.cluster },
    h("h2", {}, link),
    problem(cluster.problem),
    ...cluster.told.map((line) => h("p", { class: "told" }, line)),
    h("ul", { class: "chips" }, ...counts),
  );
}
