// A change: first what it would do, by a dry run, then a button that carries it out.

import { send } from "./api.js";
import { announce, h, show } from "./dom.js";
import { compare, times } from "./format.js";
import { table } from "./table.js";

const dialog = () => /** @type {HTMLDialogElement} */ (document.getElementById("change-dialog"));

// `change`: {title, about, method, path, body, verb, done, force, after}. `force` is the text of the choice to go on
// although jobs lose their paths; null: there is none.
export function propose(store, change) {
  const found = h("div", { "aria-live": "polite" });
  const apply = h("button", { type: "button", class: "main", disabled: true, onclick: carryOut }, change.verb);
  const cancel = h("button", { type: "button", onclick: () => dialog().close() }, "Cancel");
  const force = h("input", { type: "checkbox", id: "change-force", onchange: rehearse });
  const forced = h("p", { class: "field", hidden: true }, force, h("label", { for: "change-force" }, change.force ?? ""));
  const problem = h("p", { class: "problem", role: "alert" });
  dialog().replaceChildren(
    h("h2", { id: "change-title" }, change.title),
    change.about ? h("p", {}, change.about) : "",
    found, problem, forced,
    h("div", { class: "buttons" }, apply, cancel));
  dialog().showModal();
  cancel.focus();
  rehearse();

  function body() {
    return force.checked ? { ...change.body, force: true } : change.body;
  }

  async function rehearse() {
    problem.textContent = "";
    apply.disabled = true;
    found.replaceChildren(h("p", { class: "soft" }, "Asking what this would do."));
    try {
      const outcome = await send(change.method, change.path, body(), { dryRun: true });
      found.replaceChildren(...described(outcome));
      apply.disabled = false;
    } catch (error) {
      found.replaceChildren();
      refused(error);
    }
  }

  async function carryOut() {
    apply.disabled = true;
    problem.textContent = "";
    try {
      const answer = await send(change.method, change.path, body());
      dialog().close();
      announce(change.done);
      change.after?.(answer);
    } catch (error) {
      refused(error);
    }
  }

  function refused(error) {
    problem.textContent = error.message;
    if (change.force !== null && change.force !== undefined && error.status === 422) show(forced, true);
  }
}

// Returns what a dry run found, as elements.
export function described({ switches, jobs, unpredicted }) {
  const counts = new Map();
  for (const one of switches) {
    for (const [kind, entries] of [["added", one.inserts], ["changed", one.modifies], ["removed", one.deletes]]) {
      for (const { table: name } of entries) count(counts, one.switch, name)[kind] += 1;
    }
    if (one.queues.length > 0) count(counts, one.switch, "queues").changed += one.queues.length;
  }
  const writes = table({
    caption: "What would be written",
    empty: "Nothing would be written to switches.",
    key: (row) => `${row.switch} ${row.table}`,
    columns: [
      { title: "switch", text: (row) => row.switch, head: true },
      { title: "table", text: (row) => row.table },
      ...["added", "changed", "removed"].map((kind) => ({ title: kind, num: true, text: (row) => (row[kind] ? `${row[kind]}` : "-") })),
    ],
  });
  writes.update([...counts.values()]);
  const forecasts = table({
    caption: "Slowdown of jobs, as forecast",
    empty: "No job would be faster or slower.",
    key: (row) => row.job,
    columns: [
      { title: "job", text: (row) => row.job, head: true },
      { title: "now", num: true, text: (row) => times(row.before) },
      { title: "then", num: true, text: (row) => times(row.after), tone: tone },
      { title: "", node: () => h("span", { class: "bad" }), refresh: (node, row) => { node.textContent = row.problem ?? ""; } },
    ],
  });
  forecasts.update([...jobs].sort((a, b) => compare(a.job, b.job)));
  return [
    h("section", { class: "part" }, writes.element),
    h("section", { class: "part" }, forecasts.element,
      unpredicted ? h("p", { class: "note" }, `No slowdowns: ${unpredicted}`) : ""),
  ];
}

function count(counts, switchName, name) {
  const key = `${switchName} ${name}`;
  if (!counts.has(key)) counts.set(key, { switch: switchName, table: name, added: 0, changed: 0, removed: 0 });
  return counts.get(key);
}

function tone({ before, after }) {
  if (after === null) return before === null ? "" : "bad";
  if (before === null) return "";
  return after > before * 1.005 ? "warn" : after < before * 0.995 ? "good" : "";
}

export function writable(store) {
  if (store.mayWrite || store.get("status") === null) return "";
  return store.leads ? "Your token may only read. Changes need one with the role operator." : "Only the leader takes changes.";
}

