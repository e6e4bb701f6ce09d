// The view of jobs: iteration times against alone, the list of all, and one job in detail.

import { get } from "./api.js";
import { propose } from "./changes.js";
import { Chart, axis, colour, legend, tooltip } from "./charts.js";
import { announce, h, setText, show } from "./dom.js";
import { compare, counted, duration, time, times } from "./format.js";
import { submitDialog } from "./submit.js";
import { table } from "./table.js";

const DRAWN = 20;
const NAMED = 3;
// Parts of an iteration alone by which a job may be later than alone before its tardiness is marked.
/** @type {[number, string][]} */
const LATE = [[0.2, "bad"], [0.05, "warn"]];

export function slowdown(job) {
  return job.last_iteration_s && job.alone_iteration_s ? job.last_iteration_s / job.alone_iteration_s : null;
}

// How much later than alone a job is, as a part of an iteration alone: at most so much longer is the iteration.
export function lateness(job) {
  const known = [job.last_tardiness_s, job.alone_tardiness_s].every((one) => one !== null) && job.alone_iteration_s;
  return known ? (job.last_tardiness_s - job.alone_tardiness_s) / job.alone_iteration_s : null;
}

// The tone of a job's tardiness.
export const late = (job) => LATE.find(([least]) => (lateness(job) ?? 0) >= least)?.[1] ?? "";

// Why a job is in its state: what is wrong, or which switches do not hold its plan yet, and how these are.
export function why(job, store) {
  const waits = job.waiting_for.map((name) => `${name} (${store.get("switches", name)?.state ?? "unknown"})`);
  const more = waits.length > NAMED ? [`${waits.length - NAMED} more`] : [];
  const waiting = waits.length > 0 ? `waits for ${[...waits.slice(0, NAMED), ...more].join(", ")}` : "";
  return job.problem ?? waiting;
}

export function jobsView({ store }) {
  let chosen = null;
  const chart = new Chart("Latest iteration time of jobs and their time alone. The table below has the same figures.", "low");
  const filter = h("input", { type: "search", id: "job-filter", oninput: update });
  const submit = h("button", { type: "button", class: "main", onclick: () => submitDialog(store, choose) }, "Submit a job");
  const count = h("span", { class: "soft", role: "status" });
  const note = h("p", { class: "note" }, "Tardiness is marked where it exceeds that of the job alone by 5 % (amber) or 20 % (red) of an iteration alone.");
  const detail = h("section", { class: "part", "aria-label": "Details of a job" });
  const pictured = h("section", { class: "part", hidden: true },
    h("h2", {}, "Slowest jobs: latest iteration and alone"), chart.element);

  const jobs = table({
    caption: "All jobs",
    empty: "No jobs are registered.",
    key: (one) => one.name,
    sortable: true,
    columns: [
      { title: "job", head: true, node: (name) => h("button", { type: "button", class: "name", onclick: () => choose(name) }, name) },
      { title: "state", text: (one) => [one.state, why(one, store)].filter(Boolean).join(": "), reason: true, tone: (one) => ({ installed: "good", unplanned: "bad" })[one.state] ?? "warn" },
      { title: "parallelism", text: (one) => one.parallelism },
      { title: "hosts", text: (one) => `${one.workers.length}`, value: (one) => one.workers.length, num: true },
      { title: "flows", text: (one) => one.flow_count.toLocaleString("en"), value: (one) => one.flow_count, num: true },
      { title: "iteration", text: (one) => time(one.last_iteration_s), value: (one) => one.last_iteration_s, num: true },
      { title: "alone", text: (one) => time(one.alone_iteration_s), value: (one) => one.alone_iteration_s, num: true },
      { title: "slowdown", text: (one) => times(slowdown(one)), value: slowdown, num: true },
      { title: "tardiness", text: (one) => time(one.last_tardiness_s), value: (one) => one.last_tardiness_s, num: true, tone: late },
      { title: "", node: removeButton, refresh: (button) => { button.disabled = !store.mayWrite; } },
    ],
    onRow: (row, one) => row.classList.toggle("chosen", one.name === chosen),
  });

  function removeButton(name) {
    return h("button", {
      type: "button", class: "small", "aria-label": `Remove the job ${name}`,
      onclick: () => propose(store, {
        title: `Remove the job ${name}`, method: "DELETE", path: `jobs/${encodeURIComponent(name)}`,
        verb: "Remove", done: `The job ${name} is removed.`,
      }),
    }, "Remove");
  }

  const shown = detailOf();
  detail.append(shown.element);

  function choose(name) {
    chosen = name;
    update();
    announce(`Details of ${name}`);
  }

  let columns;
  const element = h("div", {},
    h("div", { class: "bar" }, h("span", { class: "field" }, h("label", { for: "job-filter" }, "Filter"), filter), count,
      h("span", { class: "end" }, submit)),
    columns = h("div", { class: "columns aside" }, h("div", {}, pictured, h("section", { class: "part" }, jobs.element, note)), detail));

  function update() {
    const all = store.all("jobs").sort((a, b) => compare(a.name, b.name));
    const wanted = filter.value.trim().toLowerCase();
    const found = wanted ? all.filter((one) => `${one.name} ${one.state} ${one.parallelism} ${one.workers.join(" ")}`.toLowerCase().includes(wanted)) : all;
    setText(count, wanted ? `${found.length} of ${counted(all.length, "job")}` : counted(all.length, "job"));
    submit.disabled = !store.mayWrite;
    jobs.update(found);
    draw(found);
    if (chosen !== null && store.get("jobs", chosen) === null) chosen = null;
    // Without a job in detail, the table has the whole width.
    columns.classList.toggle("columns", chosen !== null);
    shown.update(chosen === null ? null : store.get("jobs", chosen));
  }

  function draw(found) {
    const timed = found.filter((one) => slowdown(one) !== null).sort((a, b) => slowdown(b) - slowdown(a)).slice(0, DRAWN);
    show(pictured, timed.length > 0);
    if (timed.length === 0) return;
    chart.height(Math.max(9, 4 + 1.9 * timed.length));
    chart.draw(() => ({
      legend: legend(),
      grid: { left: 8, right: 24, top: 30, bottom: 4, containLabel: true },
      tooltip: tooltip({ trigger: "axis", axisPointer: { type: "shadow" }, valueFormatter: duration }),
      xAxis: { type: "value", ...axis({ axisLabel: { formatter: duration } }) },
      yAxis: { type: "category", inverse: true, data: timed.map((one) => one.name), ...axis() },
      series: [
        { name: "latest iteration", type: "bar", barMaxWidth: 9, itemStyle: { color: colour("accent") }, data: timed.map((one) => one.last_iteration_s) },
        { name: "alone", type: "bar", barMaxWidth: 9, itemStyle: { color: colour("idle") }, data: timed.map((one) => one.alone_iteration_s) },
      ],
    }));
  }

  return {
    element,
    parts: ["hello", "jobs", "switches"],
    update,
    dispose: () => {
      chart.dispose();
      shown.dispose();
    },
  };
}

// One job: its iterations, its EchelonFlows, where it runs.
function detailOf() {
  const chart = new Chart("Times of the latest iterations", "low");
  const title = h("h2");
  const problem = h("p", { class: "problem" });
  const about = h("p", { class: "note" });
  const pictured = h("div", { hidden: true }, chart.element);
  const flows = table({
    caption: "EchelonFlows",
    empty: "Switches have not reported any yet.",
    key: (one) => one.name,
    columns: [
      { title: "name", text: (one) => one.name, head: true },
      { title: "flows", text: (one) => `${one.flows}`, num: true },
      { title: "last offset", text: (one) => time(one.offsets_s.at(-1)), num: true },
      { title: "tardiness", text: (one) => time(one.tardiness_s.at(-1) ?? null), num: true },
    ],
  });
  const box = h("div", { hidden: true }, title, problem, about, pictured, flows.element);
  const hint = h("p", { class: "note" }, "Choose a job in the table to see its iterations and its EchelonFlows.");
  let key = "";

  async function update(summary) {
    show(box, summary !== null);
    show(hint, summary === null);
    const now = summary === null ? "" : JSON.stringify(summary);
    if (now === key) return;
    key = now;
    if (summary === null) return;
    try {
      const job = await get(`jobs/${encodeURIComponent(summary.name)}`);
      if (key === now) fill(job);
    } catch {
      key = "";
    }
  }

  function fill(job) {
    setText(title, job.name);
    setText(problem, job.problem ?? "");
    setText(about, `${job.spec.parallelism} on ${job.workers.join(", ")}; ${counted(job.flow_count, "flow")}; ${job.state}`
      + (job.timings ? `; installed in ${duration(job.timings.total_s)}` : ""));
    flows.update(job.echelonflows);
    show(pictured, job.iteration_times_s.length > 1);
    if (job.iteration_times_s.length > 1) draw(job);
  }

  function draw(job) {
    chart.draw(() => ({
      grid: { left: 8, right: 20, top: 26, bottom: 8, containLabel: true },
      tooltip: tooltip({ trigger: "axis", valueFormatter: duration }),
      xAxis: { type: "category", data: job.iteration_times_s.map((_, at) => at + 1 - job.iteration_times_s.length), ...axis({ name: "", splitLine: { show: false } }) },
      yAxis: { type: "value", min: 0, ...axis({ axisLabel: { formatter: duration } }), name: "iteration" },
      series: [{
        type: "line", name: "iteration", data: job.iteration_times_s, symbolSize: 4, color: colour("accent"),
        markLine: job.alone_iteration_s === null ? undefined : {
          silent: true, symbol: "none", lineStyle: { color: colour("soft"), type: "dashed" },
          label: { formatter: "alone", color: colour("soft"), position: "insideEndTop" },
          data: [{ yAxis: job.alone_iteration_s }],
        },
      }],
    }));
  }

  return { element: h("div", {}, hint, box), update, dispose: () => chart.dispose() };
}
