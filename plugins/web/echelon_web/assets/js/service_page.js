// The page of a running service: its views, the head of the page, the stream that feeds them.

import { alerts } from "./alerts.js";
import { token, whenUnauthenticated, get } from "./api.js";
import { writable } from "./changes.js";
import { h, setText, show } from "./dom.js";
import { eventsView } from "./events.js";
import { fabricView } from "./fabric.js";
import { flowFeed } from "./flow_feed.js";
import { age } from "./format.js";
import { hourView } from "./hour.js";
import { jobsView } from "./jobs.js";
import { planView } from "./plan.js";
import { policiesView } from "./policies.js";
import { Store } from "./store.js";
import { follow } from "./stream.js";
import { timelineView } from "./timeline.js";
import { tokenDialog } from "./token.js";
import { waitsView } from "./waits.js";

const FIRST = 5;

export async function servicePage(onNews) {
  const store = new Store();
  const source = {
    policies: null,
    load: flowFeed(),
    waits: () => get("waits"),
  };
  const hint = h("p", { class: "soft end", hidden: true });
  let following = new AbortController();

  function begin() {
    following.abort();
    following = new AbortController();
    follow("stream", (name, data) => store.take(name, data), state, following.signal);
  }

  const ask = tokenDialog(begin);
  whenUnauthenticated(ask);
  show(document.getElementById("token-button"), token.get() !== null);

  store.subscribe((news) => {
    if (news.has("status") || news.has("hello")) head(store);
    if (["hello", "status", "jobs", "switches", "ports"].some((part) => news.has(part))) notices(store);
    setText(hint, store.who === null ? "" : writable(store));
    show(hint, hint.textContent !== "");
    onNews(news);
  });
  setInterval(() => head(store), 10000);
  begin();

  const context = { store, source };
  return {
    views: [
      { name: "fabric", title: "Fabric", make: () => fabricView(context) },
      { name: "jobs", title: "Jobs", make: () => jobsView(context) },
      { name: "hour", title: "Last hour", make: () => hourView(context) },
      { name: "timeline", title: "Timeline", make: () => timelineView(context) },
      { name: "waits", title: "Waits", make: () => waitsView(context) },
      { name: "plan", title: "Plan", make: () => planView(context) },
      { name: "policies", title: "Policies", make: () => policiesView(context) },
      { name: "events", title: "Events", make: () => eventsView(context) },
    ],
    hint: () => hint,
    store,
  };
}

function state(text, why) {
  const element = document.getElementById("link-state");
  element.className = `link-state ${text === "live" ? "live" : "lost"}`;
  setText(element, { live: "live", lost: `${why} Trying again.`, refused: "not signed in" }[text]);
}

function head(store) {
  const status = store.get("status");
  const facts = status === null ? [] : [
    ["fabric", status.fabric],
    ["policy", status.policy],
    ["plan", `${status.plan || "none yet"}${status.settled || status.role === "standby" ? "" : ", being written"}${status.searching ? ", a better one is searched for" : ""}`],
    ["switches", states(status.switches)],
    ["jobs", states(status.jobs_by_state)],
    ["up", age(Date.now() / 1e3 - status.started_at)],
  ].concat(store.who?.token ? [["token", `${store.who.token}, ${store.who.role}`]] : []);
  const list = document.getElementById("facts");
  list.replaceChildren(...facts.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, text))));
}

function states(counts) {
  const found = Object.entries(counts).filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]);
  return found.map(([name, count]) => `${count.toLocaleString("en")} ${name}`).join(", ") || "none";
}

function notices(store) {
  const status = store.get("status");
  const box = document.getElementById("notices");
  const lines = alerts(store);
  const leader = status?.role === "standby" ? status.leader : null;
  if (status?.role === "standby") {
    lines.unshift({ text: `This controller stands by. ${leader === null ? "No controller leads." : "The leader is "}`, view: null });
  }
  const key = [leader, ...lines.map((one) => one.text)].join("\n");
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  const items = lines.map(({ text, view }) =>
    h("li", {}, text, ...(view === null ? [] : [" See ", h("a", { href: `#${view.toLowerCase()}` }, view), "."])));
  if (leader !== null) items[0].append(/^https?:/.test(leader) ? h("a", { href: leader }, leader) : leader);
  const rest = items.splice(FIRST);
  const isOpen = box.querySelector("details")?.open ?? false;
  box.replaceChildren(h("ul", {}, items),
    rest.length > 0 ? h("details", { open: isOpen }, h("summary", {}, `and ${rest.length} more`), h("ul", {}, rest)) : "");
  show(box, lines.length > 0);
}
