// What may be asked of a cluster: first it is said what that will do, then it is done or not.

import { h, problem, replace } from "./dom.js";

const SIZES = 30000;
const LAG = 3000; // a group that was resized may be described as it was for a moment

// Nothing unless the command was started with --allow-changes: make() gives the forms.
function changing(context, make) {
  const section = h("section", { class: "changing", "aria-label": "Changes" });
  context.about.then((about) => about.changes && replace(section, ...make()));
  return section;
}

// How many workers a cluster has: by its group, or by machines that run already.
export function sizes(context, cluster) {
  return changing(context, () => {
    const group = h("select", { id: "group", onchange: () => known() });
    const which = h("p", { hidden: "" }, h("label", { for: "group" }, "Group "), group);
    const size = h("span", { class: "count" });
    const field = (least) => h("input", { type: "number", min: least, max: 10000, value: 1, required: "" });
    const wanted = field(0);
    const of = (more) => ({ cluster, ...(group.value ? { group: group.value } : {}), ...more });
    let groups = [];
    let typed = false; // what somebody wrote stays until it is done
    wanted.oninput = () => (typed = true);
    function known() {
      const { desired, minimum, maximum } = groups.find((one) => one.group === group.value) ?? {};
      size.textContent = desired === undefined ? "" : ` ${desired} now, ${minimum} to ${maximum} allowed `;
      if (desired !== undefined && !typed) wanted.value = desired;
    }
    async function read() {
      const found = await groupsOf(cluster);
      if (!found) return;
      const chosen = group.value;
      groups = found;
      replace(group, ...groups.map((one) => h("option", { value: one.group }, one.group)));
      if (groups.some((one) => one.group === chosen)) group.value = chosen;
      which.hidden = groups.length < 2;
      known();
    }
    function changed() {
      typed = false;
      read();
      setTimeout(read, LAG);
    }
    read();
    context.every(SIZES, read);
    const machine = h("input", { required: "", placeholder: "i-…", pattern: "\\s*i-[0-9a-f]+\\s*" });
    return [
      which,
      form("Scale", [["Elastic workers", wanted], size], () => ({ change: "scale", ...of({ n: Number(wanted.value) }) }), changed),
      counted("Add", "More workers", field(1), (count) => ({ change: "add", ...of({ count }) }), changed),
      form("Take", [["Machine that runs", machine]], () => ({ change: "take", cluster, instance: machine.value.trim() })),
    ];
  });
}

// A node's way out: an elastic one leaves, a base node is replaced by one of the `others`, a list that stays up to date.
export function leaving(context, instance, base, others) {
  return changing(context, () => {
    if (!base) {
      const now = h("input", { type: "checkbox", id: "now" });
      return [form("Remove", [["At once, whatever the windows say", now]], () => ({ change: "remove", instance, now: now.checked }))];
    }
    const other = h("input", { required: "", placeholder: "i-…", list: others.id });
    const asked = () => ({ change: "replace", old: instance, new: other.value.trim() });
    return [form("Replace", [["Node in its place", other], others], asked)];
  });
}

function counted(words, label, field, asked, done) {
  return form(words, [[label, field]], () => asked(Number(field.value)), done);
}

// A button, and before it what it wants to know: labelled fields, or elements as they are. asked() is what is sent.
function form(words, parts, asked, done = () => {}) {
  const said = h("div", { class: "said", role: "status" });
  const submit = (event) => {
    event.preventDefault();
    propose(said, asked(), done);
  };
  const shown = parts.flatMap((part) => (Array.isArray(part) ? [h("label", {}, `${part[0]} `, part[1]), " "] : [part]));
  return h("form", { onsubmit: submit }, ...shown, h("button", { type: "submit" }, `${words} …`), said);
}

async function propose(said, asked, done) {
  replace(said, "Looking …");
  const found = await send(asked, "");
  if (!found.sentence) return replace(said, problem(found.problem));
  const yes = h("button", { type: "button", onclick: () => agree(said, asked, found.sentence, done) }, "Do it");
  const no = h("button", { type: "button", onclick: () => replace(said) }, "Leave it");
  replace(said, problem(found.problem), h("p", {}, found.sentence), h("p", {}, "as by: ", h("code", {}, found.aws)), yes, " ", no);
  yes.focus();
}

async function agree(said, asked, sentence, done) {
  replace(said, "Asking …");
  const found = await send(asked, sentence);
  replace(said, problem(found.problem), found.done ? h("p", {}, `Asked for: ${found.sentence}`) : null);
  if (found.done) done();
}

async function groupsOf(cluster) {
  try {
    return (await (await fetch(`api/groups/${encodeURIComponent(cluster)}`)).json()).groups;
  } catch {
    return null; // the connection line says so
  }
}

async function send(asked, agreed) {
  try {
    const answer = await fetch("api/change", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ asked, agreed }),
    });
    return await answer.json();
  } catch {
    return { problem: "the server gave no answer; what was asked may have been done" };
  }
}
