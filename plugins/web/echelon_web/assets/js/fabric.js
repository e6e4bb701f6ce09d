// The view of the fabric: the graph, switches and links beside it, ports with their queues below.

import { useColour } from "./charts.js";
import { propose } from "./changes.js";
import { h, setText } from "./dom.js";
import { FabricPicture } from "./fabric_picture.js";
import { age, compare, percent, rate } from "./format.js";
import { portsTable } from "./ports.js";
import { table } from "./table.js";

export const USE_KEY = () =>
  h("ul", { class: "key", "aria-label": "Colours of links and queues, by use" },
    h("li", {}, h("i", {}), "idle"),
    h("li", {}, h("i", { class: "u1" }), "below 25 %"),
    h("li", {}, h("i", { class: "u2" }), "below 60 %"),
    h("li", {}, h("i", { class: "u3" }), "below 90 %"),
    h("li", {}, h("i", { class: "u4" }), "90 % and more"),
    h("li", {}, h("i", { class: "dashed" }), "drained, moving, or (red) down"));

// Adds to each link how much of it each direction uses, by what ports send. Hosts have no ports that count.
export function withUse(links, ports) {
  const uses = new Map();
  for (const port of ports) {
    uses.set(`${port.switch}/${port.to}`, port.queues_bps.reduce((sum, one) => sum + one, 0) / port.rate_bps);
  }
  return links.map((link) => {
    const carried = [[link.a, link.b], [link.b, link.a]]
      .map(([from, to]) => ({ from, to, use: uses.get(`${from}/${to}`) }))
      .filter(({ use }) => use !== undefined);
    return { ...link, carried, use: Math.max(0, ...carried.map(({ use }) => use)) };
  });
}

// What is wrong with a switch, without its name, which stands beside it.
const about = ({ name, problem }) => (problem ?? "").replace(`switch ${name}: `, "");

export function fabricView({ store }) {
  let chosen = null;
  const picture = new FabricPicture((what) => {
    chosen = what.switch ?? `${what.a}/${what.b}`;
    update();
  });

  const chosenRow = (row, key) => row.classList.toggle("chosen", chosen === key);
  const switches = table({
    caption: "Switches",
    empty: "No switches are known yet.",
    key: (one) => one.name,
    columns: [
      { title: "switch", text: (one) => one.name, head: true },
      { title: "state", text: (one) => [one.state, one.state === "ready" ? "" : about(one)].filter(Boolean).join(": "), reason: true, tone: (one) => (one.state === "ready" ? "good" : one.state === "writing" ? "" : "bad") },
      { title: "for", text: (one) => age(Date.now() / 1e3 - one.since), num: true },
      { title: "entries", text: (one) => (one.entries === one.wanted_entries ? `${one.entries}` : `${one.entries ?? "?"} of ${one.wanted_entries}`), num: true },
      { title: "foreign", text: (one) => `${one.foreign_entries}`, num: true },
      { title: "drift", text: (one) => `${one.drift_found}`, num: true },
    ],
    onRow: (row, one) => chosenRow(row, one.name),
  });

  const links = table({
    caption: "Links",
    empty: "No links are known yet.",
    key: (one) => `${one.a}/${one.b}`,
    columns: [
      { title: "link", text: (one) => `${one.a} - ${one.b}`, head: true },
      { title: "rate", text: (one) => rate(one.rate_bps), num: true },
      { title: "use", text: (one) => percent(one.use), num: true, gauge: (one) => ({ part: one.use, colour: useColour(one.use) }) },
      { title: "state", text: (one) => [one.state, one.problem].filter(Boolean).join(": "), reason: true, tone: (one) => (one.problem ? "bad" : one.state === "up" ? "" : "warn") },
      { title: "", node: (key) => changeButton(key), refresh: refreshButton },
    ],
    onRow: (row, one) => chosenRow(row, `${one.a}/${one.b}`),
  });

  function changeButton(key) {
    return h("button", { type: "button", class: "small", onclick: () => changeLink(store.get("links", key)) });
  }

  function refreshButton(button, link) {
    const betweenSwitches = store.get("switches", link.a) !== null && store.get("switches", link.b) !== null;
    const verb = link.state === "drained" ? "Restore" : "Drain";
    button.hidden = !betweenSwitches && verb === "Drain";
    setText(button, verb);
    button.setAttribute("aria-label", `${verb} the link ${link.a} - ${link.b}`);
    button.disabled = !store.mayWrite;
  }

  function changeLink(link) {
    const path = `links/${encodeURIComponent(link.a)}/${encodeURIComponent(link.b)}`;
    const drains = link.state !== "drained";
    propose(store, {
      title: drains ? `Drain the link ${link.a} - ${link.b}` : `Restore the link ${link.a} - ${link.b}`,
      about: drains ? "Flows take other paths." : "Flows may take this link again.",
      method: "PUT",
      path,
      body: { state: drains ? "drained" : "up" },
      force: drains ? "Drain it all the same. Jobs without another path leave the plan until there is one." : null,
      verb: drains ? "Drain" : "Restore",
      done: `The link ${link.a} - ${link.b} is ${drains ? "drained" : "up"}.`,
    });
  }

  const ports = portsTable();
  const element = h("div", {},
    h("div", { class: "columns" },
      h("section", { class: "part", "aria-label": "Picture of the fabric" }, picture.element, USE_KEY(),
        h("p", { class: "note" }, "Drag to move, scroll to zoom. Click a link or switch to find it in the tables.")),
      h("div", {}, h("section", { class: "part" }, switches.element), h("section", { class: "part" }, links.element))),
    h("section", { class: "part" }, ports.element));

  function update() {
    const used = withUse(store.all("links"), store.all("ports"));
    const isSwitch = (name) => store.get("switches", name) !== null;
    const betweenSwitches = (one) => Number(isSwitch(one.a) && isSwitch(one.b));
    const ready = (one) => Number(one.state === "ready");
    const known = store.all("switches").sort((a, b) => ready(a) - ready(b) || compare(a.name, b.name));
    switches.update(known);
    links.update([...used].sort((a, b) => betweenSwitches(b) - betweenSwitches(a) || compare(`${a.a}/${a.b}`, `${b.a}/${b.b}`)));
    ports.update(store.all("ports"));
    if (used.length > 0) picture.draw(used, new Map(known.map((one) => [one.name, one.state])), chosen);
  }

  return {
    element,
    parts: ["hello", "switches", "links", "ports"],
    update,
    dispose: () => picture.chart.dispose(),
  };
}
