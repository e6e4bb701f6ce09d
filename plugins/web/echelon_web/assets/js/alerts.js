// What an operator has to look at now, without an alert manager: what the service tells, and what the page sees in jobs,
// switches and ports. Each alert names a few, and the view that has all of them.

import { compare, counted } from "./format.js";
import { late, lateness } from "./jobs.js";

const NAMED = 3;

// Returns {text, view} of each alert; `view` is null where the text says all.
export function alerts(store) {
  const found = (store.get("status")?.problems ?? []).map((text) => ({ text, view: null }));
  const tell = (items, view, noun, what, name) => {
    if (items.length === 0) return;
    const more = items.length > NAMED ? ` and ${items.length - NAMED} more` : "";
    const named = items.slice(0, NAMED).map(name).join(", ") + more;
    found.push({ text: `${counted(items.length, noun)} ${what}: ${named}.`, view });
  };
  const jobs = store.all("jobs").sort((a, b) => compare(a.name, b.name));
  tell(jobs.filter((one) => one.state === "unplanned"), "Jobs", "job", "cannot be planned", (one) => one.name);
  tell(jobs.filter((one) => late(one) === "bad").sort((a, b) => lateness(b) - lateness(a)), "Jobs", "job", "late by 20 % of an iteration or more",
    (one) => `${one.name} (${Math.round(lateness(one) * 100)} %)`);
  tell(store.all("switches").filter((one) => one.foreign_entries > 0), "Fabric", "switch", "with entries of others",
    (one) => `${one.name} (${one.foreign_entries})`);
  tell(store.all("ports").filter((one) => one.drops_per_s > 0).sort((a, b) => b.drops_per_s - a.drops_per_s), "Fabric", "port", "dropping packets",
    (one) => `${one.switch} to ${one.to} (${one.drops_per_s.toPrecision(3)} a second)`);
  return found;
}
