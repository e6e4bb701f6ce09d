// The flows that the service has seen, of which only the new ones are asked for each time.

import { get } from "./api.js";

const KEPT = 10000;
const COLUMNS = ["number", "job", "flow", "iteration", "start_s", "finish_s", "tardiness_s"];

// Returns what loads them, as one table of the form that the API gives.
export function flowFeed() {
  let known = null;

  return async () => {
    const news = await get(known === null ? "flows" : `flows?after=${known.number.at(-1) ?? 0}`);
    // A leader that began anew counts from 1 again.
    if (known !== null && news.count < known.count) {
      known = null;
      return (known = await get("flows"));
    }
    known = known === null ? news : joined(known, news);
    return known;
  };
}

function joined(known, news) {
  const table = { count: news.count, jobs: [...known.jobs], flows: [...known.flows] };
  const places = { job: renumbered(table.jobs, news.jobs), flow: renumbered(table.flows, news.flows) };
  for (const name of COLUMNS) {
    const added = places[name] === undefined ? news[name] : news[name].map((one) => places[name][one]);
    table[name] = known[name].concat(added).slice(-KEPT);
  }
  return table;
}

// Adds the names that are missing, and returns the place of each.
function renumbered(names, more) {
  return more.map((name) => {
    const at = names.indexOf(name);
    return at === -1 ? names.push(name) - 1 : at;
  });
}
