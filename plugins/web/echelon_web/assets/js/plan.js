// Why the plan is as it is: what was simulated for each group of jobs that share links, and what was chosen.

import { get } from "./api.js";
import { h, setText } from "./dom.js";
import { age, counted, duration, times } from "./format.js";
import { table } from "./table.js";

export function planView({ store }) {
  let shown = "";
  const status = h("p", { class: "note", role: "status" });
  const groups = table({
    caption: "Groups of jobs that share links",
    empty: "The policy simulates nothing, or there are no jobs.",
    key: (one) => one.jobs.join(" "),
    sortable: true,
    columns: [
      { title: "jobs", text: (one) => one.jobs.join(", "), head: true, wide: true },
      { title: "planned by", text: (one) => one.plan },
      { title: "searched", text: (one) => (one.searched_at === null ? "-" : `${age(Date.now() / 1e3 - one.searched_at)} ago`) },
      { title: "took", text: (one) => duration(one.search_s), value: (one) => one.search_s, num: true },
      { title: "instead of", text: (one) => one.before ?? "-" },
      { title: "problem", text: (one) => one.problem ?? "", wide: true },
    ],
  });
  const tried = table({
    caption: "What was simulated",
    empty: "Nothing was simulated since the service started.",
    key: (one) => `${one.jobs} ${one.plan}`,
    sortable: true,
    columns: [
      { title: "jobs", text: (one) => one.jobs, head: true, wide: true },
      { title: "plan", text: (one) => one.plan },
      { title: "", text: (one) => (one.chosen ? "in force" : "") },
      ...["mean", "worst", "score"].map((title) => ({ title, text: (one) => times(one[title]), value: (one) => one[title], num: true })),
      { title: "draws", text: (one) => `${one.draws}`, value: (one) => one.draws, num: true },
      { title: "problem", text: (one) => one.problem ?? "", wide: true },
    ],
  });
  const element = h("div", {}, status,
    h("section", { class: "part" }, groups.element), h("section", { class: "part" }, tried.element));

  async function load() {
    try {
      const { number, why } = await get("plan?why=true");
      setText(status, `Plan ${number}, ${counted(why.length, "group")} of jobs. Mean and worst are slowdowns: the time of an iteration over that alone. `
        + "The score is the mean and a tenth of the worst; lower is better. Plans that look bad in the first draws get no more.");
      groups.update(why);
      tried.update(why.flatMap(({ jobs, plan, tried: candidates }) => candidates.map((one) => ({ ...one, jobs: jobs.join(", "), chosen: one.plan === plan }))));
    } catch (error) {
      setText(status, error.message);
    }
  }

  return {
    element,
    parts: ["status"],
    begin: load,
    update: () => {
      const now = store.get("status");
      const key = `${now?.plan} ${now?.searching}`;
      if (key === shown) return;
      shown = key;
      load();
    },
    dispose: () => {},
  };
}
