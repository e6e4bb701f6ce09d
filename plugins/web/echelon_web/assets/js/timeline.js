// The view of the timeline, with what moves it and a table of the flows in sight.

import { h, setText, show } from "./dom.js";
import { FlowSet } from "./flow_set.js";
import { counted, duration, time } from "./format.js";
import { table } from "./table.js";
import { TimelinePicture } from "./timeline_picture.js";

const TABLED = 200;
const TABLE_PAUSE_MS = 300;

// `source`: {load(policy) -> FlowTable, policies: names or null, stale(news) -> whether to load again}.
export function timelineView({ source }) {
  let flows = null;
  let timer = null;
  let loading = false;
  const tip = h("p", { class: "tip" }, "Point at a flow to see its times.");
  const status = h("span", { class: "soft", role: "status" });
  const nothing = h("p", { class: "note", hidden: true }, "No flow has finished yet.");
  const picture = new TimelinePicture(inSight, (found) => {
    if (found === null) tip.replaceChildren("Point at a flow to see its times.");
    else tip.replaceChildren(h("strong", {}, found.name), ` ${found.text}`);
  }, source.policies === null);
  const policy = source.policies && h("select", { id: "timeline-policy", onchange: load }, source.policies.map((name) => h("option", {}, name)));
  const held = h("input", { type: "checkbox", id: "timeline-hold" });
  const button = (text, label, action) => h("button", { type: "button", class: "small", "aria-label": label, onclick: action }, text);
  const rows = table({
    caption: "Flows in sight, the latest of all first",
    empty: "No flow is in sight.",
    key: (one) => one.at,
    columns: [
      { title: "flow", text: (one) => flows.names[flows.name[one.at]], head: true },
      { title: "job", text: (one) => flows.jobs[flows.job[one.at]] },
      { title: "iteration", text: (one) => `${flows.iteration[one.at]}`, num: true },
      { title: "start", text: (one) => time(flows.start[one.at]), num: true },
      { title: "finish", text: (one) => time(flows.finish[one.at]), num: true },
      { title: "ideal finish", text: (one) => (Number.isNaN(flows.late[one.at]) ? "-" : time(flows.ideal(one.at))), num: true },
      { title: "tardiness", text: (one) => (Number.isNaN(flows.late[one.at]) ? "-" : time(flows.late[one.at])), num: true, tone: (one) => (flows.late[one.at] > 0 ? "bad" : "") },
    ],
  });

  const element = h("div", {},
    h("div", { class: "bar" },
      policy ? h("span", { class: "field" }, h("label", { for: "timeline-policy" }, "Policy"), policy) : "",
      h("span", { class: "field", role: "group", "aria-label": "Move the timeline" },
        button("\u2190", "Earlier", () => picture.move(-0.5)), button("\u2192", "Later", () => picture.move(0.5)),
        button("+", "Zoom in", () => picture.zoom(0.5)), button("\u2212", "Zoom out", () => picture.zoom(2)),
        button("All", "Show all of it", () => picture.zoom(1e6))),
      policy ? "" : h("span", { class: "field" }, held, h("label", { for: "timeline-hold" }, "Hold still")),
      status),
    nothing,
    h("section", { class: "part", "aria-label": "Timeline" }, picture.element, tip,
      h("ul", { class: "key", "aria-label": "What the bars mean" },
        h("li", {}, h("i", { class: "u2" }), "a flow, in the colour of its job"),
        h("li", {}, h("i", { class: "late" }), "an edge: beyond its ideal finish time"),
        h("li", {}, h("i", { class: "tick" }), "ideal finish time"))),
    h("section", { class: "part" }, rows.element));

  function inSight(from, to) {
    const shown = flows.jobs.reduce((sum, _, job) => {
      const [first, last] = flows.window(job, from, to);
      return sum + last - first;
    }, 0);
    setText(status, `${counted(shown, "flow")} of ${flows.size.toLocaleString("en")} in ${duration(to - from)}`);
    clearTimeout(timer);
    timer = setTimeout(() => fillTable(from, to), TABLE_PAUSE_MS);
  }

  function fillTable(from, to) {
    const found = [];
    flows.jobs.forEach((_, job) => {
      const [first, last] = flows.window(job, from, to);
      for (let place = first; place < last; place += 1) found.push(flows.byJob[job][place]);
    });
    const late = (at) => (Number.isNaN(flows.late[at]) ? -Infinity : flows.late[at]);
    found.sort((a, b) => late(b) - late(a));
    rows.update(found.slice(0, TABLED).map((at) => ({ at })));
  }

  async function load() {
    if (loading) return;
    loading = true;
    try {
      const found = await source.load(policy?.value ?? null);
      flows = new FlowSet(found);
      show(nothing, flows.size === 0);
      show(picture.element, flows.size > 0);
      if (flows.size > 0) await picture.draw(flows);
      else rows.update([]);
    } catch (error) {
      setText(status, error.message);
    } finally {
      loading = false;
    }
  }

  return {
    element,
    parts: ["flows"],
    begin: load,
    update: (news) => {
      if (news.has("flows") && !held.checked && !policy) load();
    },
    dispose: () => {
      clearTimeout(timer);
      picture.chart.dispose();
    },
    picture,
  };
}
