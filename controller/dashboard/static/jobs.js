// The latest job of each cluster.

import { h, problem, replace } from "./dom.js";
import { figure, number, span } from "./words.js";

const HEADS = ["Cluster", "Job", "State", "Epoch", "Step", "Done", "Left", "Workers", "Samples/s", "Generation", "Metrics"];

export function jobs(root, context) {
  document.title = "Jobs – dyntrain";
  const body = h("tbody", {});
  const said = h("div", {});
  const head = h("thead", {}, h("tr", {}, ...HEADS.map((name) => h("th", { scope: "col" }, name))));
  replace(root, h("h1", {}, "Jobs"), said, h("div", { class: "wide" }, h("table", {}, head, body)));
  context.stream("api/live", (state) => {
    replace(said, problem(state.problem));
    const rows = state.clusters.filter((one) => one.job).map(row);
    replace(body, ...rows, rows.length ? null : h("tr", {}, h("td", { colspan: HEADS.length }, "No job has been heard of.")));
  });
}

function row({ cluster, job }) {
  const link = h("a", { href: `#/cluster/${encodeURIComponent(cluster)}` }, cluster);
  const state = job.alive || ["finished", "failed"].includes(job.state) ? job.state : `${job.state}, silent`;
  const { fraction = null, eta_seconds = null, metrics = {} } = job.progress ?? {};
  const done = fraction === null ? "–" : `${(100 * fraction).toFixed(1)} %`;
  const left = job.alive && eta_seconds !== null ? `about ${span(eta_seconds)}` : "–";
  const cells = [job.job, state, `${job.epoch}/${job.epochs || "?"}`, number(job.step), done, left, number(job.workers)];
  const last = Object.entries(metrics).map(([name, value]) => `${name} ${figure(value)}`).join(", ");
  const more = [figure(job.samples_per_second), number(job.generation), last];
  return h("tr", {}, h("td", {}, link), ...[...cells, ...more].map((text) => h("td", {}, text)));
}
