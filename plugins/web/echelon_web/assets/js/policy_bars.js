// Slowdowns of jobs under several policies: mean and worst as bars, each job in a table.

import { Chart, axis, colour, legend, tooltip } from "./charts.js";
import { h } from "./dom.js";
import { compare, times } from "./format.js";
import { table } from "./table.js";

export class PolicyBars {
  constructor(origin) {
    this.origin = origin;
    this.chart = new Chart("Mean and worst slowdown of jobs under each policy. The table has each job.", "low");
    this.box = h("div");
    this.element = h("div", {}, this.chart.element, h("p", { class: "note" }, `Slowdown: time of an iteration over that of the job alone (${origin}). Less is better, 1 is best.`), this.box);
  }

  // `found`: by policy the slowdown of each job by name, null where it has none. `inForce`: the policy that is marked.
  draw(found, inForce) {
    const policies = [...found.keys()];
    const jobs = [...new Set(policies.flatMap((policy) => [...found.get(policy).keys()]))].sort(compare);
    const known = (policy) => [...found.get(policy).values()].filter((one) => one !== null && one !== undefined);
    const mean = (values) => (values.length ? values.reduce((sum, one) => sum + one, 0) / values.length : null);
    const rows = [
      { name: "mean of all jobs", of: (policy) => mean(known(policy)) },
      { name: "worst job", of: (policy) => (known(policy).length ? Math.max(...known(policy)) : null) },
      ...jobs.map((job) => ({ name: job, of: (policy) => found.get(policy).get(job) ?? null })),
    ];
    const best = (row) => Math.min(...policies.map(row.of).filter((one) => one !== null));
    const made = table({
      caption: "Slowdown of each job; the best of each row is green",
      empty: "No job has a slowdown.",
      key: (row) => row.name,
      columns: [
        { title: "job", text: (row) => row.name, head: true },
        ...policies.map((policy) => ({
          title: policy === inForce ? `${policy} (in force)` : policy,
          num: true,
          text: (row) => times(row.of(policy)),
          tone: (row) => (row.of(policy) !== null && row.of(policy) <= best(row) + 1e-9 ? "good" : ""),
        })),
      ],
    });
    made.update(jobs.length ? rows : []);
    this.box.replaceChildren(made.element);
    const [means, worst] = rows.map((row) => policies.map(row.of));
    const least = Math.min(1, ...means.filter((one) => one !== null));
    this.chart.draw(() => ({
      legend: legend(),
      grid: { left: 8, right: 12, top: 32, bottom: 4, containLabel: true },
      tooltip: tooltip({ trigger: "axis", axisPointer: { type: "shadow" }, valueFormatter: times }),
      xAxis: { type: "category", data: policies, ...axis({ axisLabel: { interval: 0, rotate: policies.length > 6 ? 35 : 0 }, splitLine: { show: false } }) },
      yAxis: { type: "value", min: least < 1 ? 0 : 1, ...axis() },
      series: [
        { name: "mean", type: "bar", barMaxWidth: 26, data: means, itemStyle: { color: colour("accent") } },
        { name: "worst job", type: "bar", barMaxWidth: 26, data: worst, itemStyle: { color: colour("idle") } },
      ],
    }), true);
  }

  dispose() {
    this.chart.dispose();
  }
}
