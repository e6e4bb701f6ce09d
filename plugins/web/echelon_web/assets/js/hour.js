// The view of the last hour: iteration times and tardiness of the slowest jobs, and what the busiest ports sent.

import { get } from "./api.js";
import { h, setText } from "./dom.js";
import { clock, counted, percent, time } from "./format.js";
import { drawHour, hourPicture } from "./hour_picture.js";
import { table } from "./table.js";

const AGAIN_MS = 10000;
// The fewest steps that are shown.
const LEAST = 6;

const known = (values) => values.filter((one) => one !== null);
const most = (values) => (known(values).length ? Math.max(...known(values)) : null);
const sent = (port) => port.queues[0].map((one, step) => (one === null ? null : port.queues.reduce((sum, queue) => sum + queue[step], 0)));
const mean = (values) => (values.length ? values.reduce((sum, one) => sum + one, 0) / values.length : null);

export function hourView({ store }) {
  let found = null;
  let axis = null;
  let timer = null;
  const status = h("span", { class: "soft", role: "status" }, "Asking for the last hour.");
  const alone = (one) => store.get("jobs", one.job)?.alone_iteration_s ?? null;

  const jobs = table({
    caption: "Slowest jobs",
    empty: "No iteration was timed in the last hour.",
    key: (one) => one.job,
    columns: [
      { title: "job", text: (one) => one.job, head: true },
      { title: "iteration, and alone (dashed)", node: hourPicture, refresh: drawIteration },
      { title: "latest", text: (one) => time(known(one.iteration_s).at(-1)), num: true },
      { title: "longest", text: (one) => time(most(one.iteration_s)), num: true },
      { title: "alone", text: (one) => time(alone(one)), num: true },
      { title: "tardiness, and none (thin)", node: hourPicture, refresh: drawTardiness },
      { title: "latest", text: (one) => time(known(one.tardiness_s).at(-1)), num: true },
      { title: "largest", text: (one) => time(most(one.tardiness_s)), num: true },
    ],
  });
  const ports = table({
    caption: "Busiest ports",
    empty: "No port was read in the last hour. Switches of some targets do not count what they send.",
    key: (one) => `${one.switch} ${one.port}`,
    columns: [
      { title: "port", text: (one) => `${one.switch} ${one.port}`, head: true },
      { title: "to", text: (one) => one.to },
      { title: "queues, and the link's rate (dashed)", node: hourPicture, refresh: drawQueues },
      { title: "mean use", text: (one) => percent(mean(known(sent(one)))), num: true },
      { title: "most", text: (one) => percent(most(sent(one))), num: true },
      { title: "mean of each queue, from 0.1 %", text: (one) => queues(one).join(", ") || "-", wide: true },
    ],
  });

  function drawIteration(element, one) {
    const label = `Iterations of ${one.job}: ${time(known(one.iteration_s).at(-1))} now, ${time(most(one.iteration_s))} at most`;
    const level = alone(one);
    drawHour(element, label, axis, {
      high: 1.05 * Math.max(most(one.iteration_s) ?? 0, level ?? 0),
      lines: [{ name: "value", values: one.iteration_s }],
      levels: level === null ? [] : [{ name: "level", value: level }],
    });
  }

  function drawTardiness(element, one) {
    const values = known(one.tardiness_s);
    drawHour(element, `Tardiness of ${one.job}: ${time(values.at(-1))} now, ${time(most(values))} at most`, axis, {
      low: Math.min(0, ...values), high: 1.05 * Math.max(0, ...values), lines: [{ name: "value", values: one.tardiness_s }],
    });
  }

  function drawQueues(element, one) {
    drawHour(element, `Use of ${one.switch} to ${one.to}: ${percent(most(sent(one)))} at most`, axis, {
      high: Math.max(1, most(sent(one)) ?? 0), stack: one.queues, levels: [{ name: "level", value: 1 }],
    });
  }

  const queues = (one) => one.queues
    .map((values, queue) => [mean(known(values)), queue])
    .filter(([part]) => part >= 0.001)
    .map(([part, queue]) => `q${queue} ${percent(part)}`);

  const element = h("div", {},
    h("div", { class: "bar" }, status),
    h("section", { class: "part" }, jobs.element),
    h("section", { class: "part" }, ports.element,
      h("ul", { class: "key", "aria-label": "Queues, from the one that goes first" },
        [7, 6, 5, 4, 3, 2, 1, 0].map((queue) => h("li", {}, h("i", { class: `q${queue}` }), `q${queue}`)))));

  async function load() {
    clearTimeout(timer);
    try {
      found = await get("history");
      draw();
    } catch (error) {
      setText(status, error.message);
    }
    if (element.isConnected) timer = setTimeout(load, AGAIN_MS);
  }

  function draw() {
    if (found === null) return;
    const all = [...found.jobs.flatMap((one) => [one.iteration_s, one.tardiness_s]), ...found.ports.map((one) => one.queues[0])];
    const steps = all[0]?.length ?? LEAST;
    const begun = Math.min(steps, ...all.map((values) => values.findIndex((one) => one !== null)).filter((at) => at >= 0));
    axis = { first: Math.max(0, Math.min(begun, steps - LEAST)), steps, from: found.from_s, step: found.step_s };
    setText(status, `${clock(found.from_s + axis.first * found.step_s)} to now; ${counted(found.step_s, "second")} a step, of which the largest value is shown`);
    jobs.update(found.jobs);
    ports.update(found.ports);
  }

  return {
    element,
    parts: ["hello", "jobs"],
    begin: load,
    update: (news) => (news.has("hello") && found !== null ? load() : draw()),
    dispose: () => clearTimeout(timer),
  };
}
