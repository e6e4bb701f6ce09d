// Who waits for whom: a matrix of jobs, and the same as a table.

import { Chart, axis, colour, tooltip } from "./charts.js";
import { h, setText, show } from "./dom.js";
import { compare, counted, duration, percent, time } from "./format.js";
import { table } from "./table.js";

const DRAWN = 24;

// `source`: {waits(policy) -> WaitsResource, policies: names or null}.
export function waitsView({ source }) {
  let loading = false;
  const chart = new Chart("How long each job waited for each other. The table has the same figures.");
  const status = h("p", { class: "note", role: "status" });
  const policy = source.policies && h("select", { id: "waits-policy", onchange: load }, source.policies.map((name) => h("option", {}, name)));
  const rows = table({
    caption: "Who waited for whom",
    empty: "No flow had to wait.",
    key: (one) => `${one.job} ${one.other}`,
    sortable: true,
    columns: [
      { title: "job", text: (one) => one.job, head: true },
      { title: "waited for", text: (one) => (one.job === one.other ? "its own flows" : one.other) },
      { title: "waited", text: (one) => time(one.wait_s), value: (one) => one.wait_s, num: true },
      { title: "of its waiting", text: (one) => percent(one.part), value: (one) => one.part, num: true, gauge: (one) => ({ part: one.part, colour: colour("use-2") }) },
      { title: "where they met", text: where, wide: true },
    ],
  });
  const pictured = h("section", { class: "part" }, chart.element);
  const element = h("div", {},
    policy ? h("div", { class: "bar" }, h("span", { class: "field" }, h("label", { for: "waits-policy" }, "Policy"), policy)) : "",
    status,
    h("div", { class: "columns even" }, pictured, h("section", { class: "part" }, rows.element)));

  function where({ links }) {
    const [first, ...more] = links;
    return first === undefined ? "-" : `${first[0]} > ${first[1]}${more.length ? ` and ${counted(more.length, "more link")}` : ""}`;
  }

  function draw(found) {
    const totals = new Map();
    for (const { job, other, wait_s } of found) {
      for (const name of [job, other]) totals.set(name, (totals.get(name) ?? 0) + wait_s);
    }
    const names = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a)).slice(0, DRAWN).sort(compare);
    const place = new Map(names.map((name, at) => [name, at]));
    const cells = found.filter(({ job, other }) => place.has(job) && place.has(other))
      .map(({ job, other, wait_s }) => [place.get(other), place.get(job), wait_s]);
    const most = Math.max(...cells.map(([, , wait]) => wait), 1e-9);
    const labelled = () => cells.map((value) => ({ value, label: { color: value[2] > most / 2 ? colour("accent-text") : colour("text") } }));
    chart.height(Math.min(40, Math.max(12, 6 + 2 * names.length)));
    chart.draw(() => ({
      grid: { left: 8, right: 12, top: 52, bottom: 8, containLabel: true },
      tooltip: tooltip({ formatter: ({ value }) => `${names[value[1]]} waited ${duration(value[2])}\nfor ${names[value[0]]}` }),
      xAxis: { type: "category", position: "top", data: names, ...axis({ axisLabel: { rotate: names.length > 6 ? 45 : 0, interval: 0 }, splitLine: { show: false } }), name: "waited for", nameLocation: "middle", nameGap: names.length > 6 ? 60 : 30 },
      yAxis: { type: "category", inverse: true, data: names, ...axis({ axisLabel: { interval: 0 }, splitLine: { show: false } }) },
      visualMap: { show: false, min: 0, max: most, inRange: { color: [colour("panel"), colour("accent")] } },
      series: [{
        type: "heatmap", data: labelled(), itemStyle: { borderColor: colour("paper"), borderWidth: 2 },
        label: { show: names.length <= 8, formatter: ({ value }) => duration(value[2]) },
      }],
    }));
  }

  async function load() {
    if (loading) return;
    loading = true;
    try {
      const { flows, from_s: from, to_s: to, waits } = await source.waits(policy?.value ?? null);
      const sums = new Map();
      for (const { job, wait_s } of waits) sums.set(job, (sums.get(job) ?? 0) + wait_s);
      const found = waits.map((one) => ({ ...one, part: one.wait_s / sums.get(one.job) }));
      setText(status, flows === 0
        ? "No flow of a known path has finished yet."
        : `From ${counted(flows, "flow")} in ${duration(to - from)}. A flow waits for the time that it takes beyond its time alone; this time is `
          + "divided over the flows that were on its links meanwhile. That is an estimate: it says who was there, not whose packets went first.");
      rows.update(found);
      show(pictured, found.length > 0);
      if (found.length > 0) draw(found);
    } catch (error) {
      setText(status, error.message);
    } finally {
      loading = false;
    }
  }

  let last = 0;
  return {
    element,
    parts: ["flows"],
    begin: load,
    update: (news) => {
      // It costs the service a second for ten thousand flows.
      if (!policy && news.has("flows") && Date.now() - last > 5000) {
        last = Date.now();
        load();
      }
    },
    dispose: () => chart.dispose(),
  };
}
