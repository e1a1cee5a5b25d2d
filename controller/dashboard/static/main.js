// Which view the address names, and how the connection is.

import { h, replace, say } from "./dom.js";
import { Stream } from "./stream.js";
import { clock } from "./words.js";
import { clusters } from "./clusters.js";
import { cluster } from "./cluster.js";
import { jobs } from "./jobs.js";
import { node } from "./node.js";
import { pools } from "./pools.js";

const VIEWS = [
  [/^$/, clusters],
  [/^jobs$/, jobs],
  [/^pools$/, pools],
  [/^cluster\/([^/]+)$/, cluster],
  [/^cluster\/([^/]+)\/node\/([^/]+)(?:\/log\/([^/]+))?$/, node],
];
const main = document.getElementById("main");
const status = document.getElementById("connection");
let open = [];

// What a view may use: what the server says of itself, streams that end with it, and clocks that stop with it.
const context = {
  about: ask("api/about"),
  stream(path, changed) {
    const stream = new Stream(path, { changed, connection });
    open.push(() => stream.close());
  },
  every(milliseconds, what) {
    const timer = setInterval(() => document.hidden || what(), milliseconds);
    open.push(() => clearInterval(timer));
  },
  closing(what) {
    open.push(what);
  },
};

// Until there is an answer: a page may be opened again before its server is.
async function ask(path) {
  for (;;) {
    try {
      const answer = await fetch(path);
      if (answer.ok) return await answer.json();
    } catch {
      // the connection line says so
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

function connection({ state, since }) {
  status.dataset.state = state;
  const words = {
    live: "● live",
    paused: "‖ paused while hidden",
    lost: `✕ no answer from the server since ${clock(since)}; trying again – what you see is old`,
    stranger: "✕ this address is of an earlier dashboard: open the one that the command printed",
  };
  say(status, words[state]);
  document.body.classList.toggle("stale", state === "lost" || state === "stranger");
}

function route() {
  for (const close of open.splice(0)) close();
  const path = decodeURI(location.hash.replace(/^#\/?/, ""));
  const [pattern, view] = VIEWS.find(([candidate]) => candidate.test(path)) ?? [/^/, clusters];
  for (const link of document.querySelectorAll("nav a"))
    if (link.getAttribute("href") === `#/${path}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  const root = h("div", { class: "view" });
  replace(main, root);
  view(root, context, ...path.match(pattern).slice(1).map((part) => part && decodeURIComponent(part)));
}

addEventListener("hashchange", () => {
  route();
  main.focus();
});
route();
