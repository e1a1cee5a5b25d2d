// Numbers and times as people read them.

export const SIGNS = {
  WAITING: "◌",
  PREPARE_FAILED: "✕",
  ADD_QUEUED: "▷",
  ADDED: "●",
  REMOVAL_QUEUED: "◁",
  REMOVED: "○",
  GONE: "·",
};

export function status(name) {
  return `${SIGNS[name] ?? "?"} ${name}`;
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en", { maximumFractionDigits: 0 });
}

export function figure(value) {
  if (value === null || value === undefined) return "–";
  return Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${Math.max(seconds, 0).toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// For what is short: of a time of milliseconds `span` would say that it took none.
export function brief(seconds) {
  return seconds >= 0 && seconds < 10 ? `${seconds.toFixed(2)} s` : span(seconds);
}

export function ago(at, now = Date.now() / 1000) {
  return at === null || at === undefined ? "–" : `${span(now - at)} ago`;
}

export function moment(at) {
  if (at === null || at === undefined) return "–";
  return new Date(at * 1000).toISOString().replace("T", " ").replace(/\.\d+Z$/, "Z");
}

export function clock(at) {
  return moment(at).slice(11, 19);
}

export function role(node, target) {
  const name = node.base ? (node.master ? "master" : "base") : "elastic";
  return target?.coordinator === node.instance ? `${name}, coordinator` : name;
}

export function why(node) {
  const detail = node.detail.trim().split("\n").at(-1);
  return detail ? `${node.sentence}: ${detail}` : node.sentence;
}

// The address of a node's view, with the end of one of its logs if that is wanted. Its facts and its logs outlive it.
export function nodeOf(cluster, instance, log = "") {
  if (!instance) return null;
  const path = `#/cluster/${encodeURIComponent(cluster)}/node/${encodeURIComponent(instance)}`;
  return log ? `${path}/log/${encodeURIComponent(log)}` : path;
}
