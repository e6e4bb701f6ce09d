// The page of a finished run: policies side by side, timeline, waits, and how much of each link was used.

import { get } from "./api.js";
import { Chart, axis, jobColour, legend, tooltip, useColour } from "./charts.js";
import { h, setText } from "./dom.js";
import { USE_KEY } from "./fabric.js";
import { FabricPicture } from "./fabric_picture.js";
import { compare, duration, percent, rate, time, times } from "./format.js";
import { PolicyBars } from "./policy_bars.js";
import { table } from "./table.js";
import { timelineView } from "./timeline.js";
import { waitsView } from "./waits.js";

export async function resultsPage() {
  const results = await get("results");
  const policies = results.policies.map((one) => one.name);
  const of = (policy) => `policy=${encodeURIComponent(policy)}`;
  const source = {
    policies,
    load: (policy) => get(`results/flows?${of(policy)}`),
    waits: (policy) => get(`results/waits?${of(policy)}`),
  };
  const facts = [["scenario", results.scenario], ["target", results.target], ["policies", `${policies.length}`], ["jobs", `${results.policies[0]?.jobs.length ?? 0}`]];
  document.getElementById("facts").replaceChildren(...facts.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text))));
  const state = document.getElementById("link-state");
  state.className = "link-state";
  setText(state, "a finished run");
  const views = [
    { name: "policies", title: "Policies", make: () => comparedView(results) },
    { name: "timeline", title: "Timeline", make: () => timelineView({ source }) },
  ];
  if (results.links.length > 0) {
    views.push({ name: "waits", title: "Waits", make: () => waitsView({ source }) });
    views.push({ name: "fabric", title: "Fabric", make: () => usedView(results) });
  }
  return { views };
}

function comparedView(results) {
  const bars = new PolicyBars(`measured on ${results.target}`);
  const chart = new Chart("Times of each iteration of a job under each policy. The table has their mean.", "low");
  const names = [...new Set(results.policies.flatMap((one) => one.jobs.map((job) => job.name)))].sort(compare);
  const choice = h("select", { id: "result-job", onchange: draw }, names.map((name) => h("option", {}, name)));
  const rows = table({
    caption: "The job under each policy",
    empty: "No job was measured.",
    key: (one) => one.policy,
    columns: [
      { title: "policy", text: (one) => one.policy, head: true },
      { title: "iterations", text: (one) => `${one.job.iteration_times_s.length}`, num: true },
      { title: "mean", text: (one) => time(mean(one.job.iteration_times_s)), num: true },
      { title: "alone", text: (one) => time(one.job.alone_iteration_s), num: true },
      { title: "slowdown", text: (one) => times(one.job.mean_slowdown), num: true },
      { title: "largest tardiness", text: (one) => time(one.job.largest_tardiness_s), num: true },
      { title: "reordered", text: (one) => `${one.job.reordered_packets}`, num: true },
    ],
  });
  const element = h("div", {},
    h("section", { class: "part" }, bars.element),
    h("section", { class: "part" }, h("h2", {}, "Iterations"),
      h("div", { class: "bar" }, h("span", { class: "field" }, h("label", { for: "result-job" }, "Job"), choice)),
      chart.element, rows.element));

  function draw() {
    const found = results.policies.map((one) => ({ policy: one.name, job: one.jobs.find((job) => job.name === choice.value) })).filter(({ job }) => job);
    rows.update(found);
    const longest = Math.max(...found.map(({ job }) => job.iteration_times_s.length));
    chart.draw(() => ({
      legend: legend(),
      grid: { left: 8, right: 16, top: 36, bottom: 8, containLabel: true },
      tooltip: tooltip({ trigger: "axis", valueFormatter: duration }),
      xAxis: { type: "category", data: Array.from({ length: longest }, (_, at) => at + 1), ...axis({ splitLine: { show: false } }) },
      yAxis: { type: "value", scale: true, ...axis({ axisLabel: { formatter: duration } }) },
      series: found.map(({ policy, job }, at) => ({ name: policy, type: "line", symbolSize: 4, color: jobColour(at), data: job.iteration_times_s })),
    }), true);
  }

  return {
    element,
    parts: [],
    begin: () => {
      bars.draw(new Map(results.policies.map((one) => [one.name, new Map(one.jobs.map((job) => [job.name, job.mean_slowdown]))])), null);
      draw();
    },
    update: () => {},
    dispose: () => {
      bars.dispose();
      chart.dispose();
    },
  };
}

const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;

function usedView(results) {
  let chosen = null;
  const picture = new FabricPicture((what) => {
    chosen = what.switch ?? `${what.a}/${what.b}`;
    draw();
  });
  const policy = h("select", { id: "fabric-policy", onchange: draw }, results.policies.map((one) => h("option", {}, one.name)));
  const rows = table({
    caption: "Links, by their mean use during the run",
    empty: "The fabric is not known.",
    key: (one) => `${one.a}/${one.b}`,
    sortable: true,
    columns: [
      { title: "link", text: (one) => `${one.a} - ${one.b}`, head: true },
      { title: "rate", text: (one) => rate(one.rate_bps), value: (one) => one.rate_bps, num: true },
      ...[0, 1].map((way) => ({
        title: way ? "< use" : "use >",
        num: true,
        text: (one) => percent(one.carried[way].use),
        value: (one) => one.carried[way].use,
        gauge: (one) => ({ part: one.carried[way].use, colour: useColour(one.carried[way].use) }),
      })),
    ],
    onRow: (row, one) => row.classList.toggle("chosen", chosen === `${one.a}/${one.b}`),
  });
  const element = h("div", {},
    h("div", { class: "bar" }, h("span", { class: "field" }, h("label", { for: "fabric-policy" }, "Policy"), policy)),
    h("div", { class: "columns" },
      h("section", { class: "part", "aria-label": "Picture of the fabric" }, picture.element, USE_KEY(),
        h("p", { class: "note" }, "Bytes of finished flows over what the link could carry during the run. Drag to move, scroll to zoom.")),
      h("section", { class: "part" }, rows.element)));

  function draw() {
    const place = results.policies.findIndex((one) => one.name === policy.value);
    const links = results.links.map((one) => ({
      ...one,
      state: "up",
      carried: [{ from: one.a, to: one.b, use: one.uses[place][0] }, { from: one.b, to: one.a, use: one.uses[place][1] }],
      use: Math.max(...one.uses[place]),
    }));
    rows.update([...links].sort((a, b) => b.use - a.use));
    picture.draw(links, new Map(results.switches.map((name) => [name, "run"])), chosen);
  }

  return { element, parts: [], begin: draw, update: () => {}, dispose: () => picture.chart.dispose() };
}
