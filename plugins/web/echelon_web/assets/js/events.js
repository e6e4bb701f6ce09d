// Who changed what.

import { h } from "./dom.js";
import { moment } from "./format.js";
import { table } from "./table.js";

export function eventsView({ store }) {
  const made = table({
    caption: "Changes that clients asked for, the latest first",
    empty: "Nobody has changed anything yet.",
    key: (one) => one.request,
    columns: [
      { title: "when", text: (one) => moment(one.at) },
      { title: "change", text: (one) => one.action },
      { title: "of", text: (one) => one.object, head: true },
      { title: "by", text: (one) => one.client ?? "anyone on this machine" },
      { title: "from", text: (one) => one.address ?? "a Unix socket" },
      { title: "request", text: (one) => one.request },
    ],
  });
  return {
    element: h("section", { class: "part" }, made.element,
      h("p", { class: "note" }, "The request's id finds the change in the log of the service.")),
    parts: ["events"],
    update: () => made.update(store.all("events").sort((a, b) => b.at - a.at)),
    dispose: () => {},
  };
}
