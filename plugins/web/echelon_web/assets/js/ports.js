// Ports of switches with what each of their eight queues sends, the busiest first.

import { useColour } from "./charts.js";
import { compare, percent, rate } from "./format.js";
import { table } from "./table.js";

const QUEUES = 8;

export function portsTable() {
  const queues = Array.from({ length: QUEUES }, (_, queue) => ({
    title: `q${queue}`,
    num: true,
    text: (one) => percent(one.queues_bps[queue] / one.rate_bps),
    value: (one) => one.queues_bps[queue] / one.rate_bps,
    gauge: (one) => {
      const part = one.queues_bps[queue] / one.rate_bps;
      return { part, colour: useColour(part) };
    },
  }));
  const made = table({
    caption: "Ports and their queues, by share of the link's rate; q7 goes first, q0 last",
    empty: "No port has been read yet. Switches of some targets do not count what they send.",
    key: (one) => `${one.switch}/${one.port}`,
    sortable: true,
    columns: [
      { title: "port", text: (one) => `${one.switch} ${one.port}`, head: true },
      { title: "to", text: (one) => one.to },
      { title: "rate", text: (one) => rate(one.rate_bps), value: (one) => one.rate_bps, num: true },
      {
        title: "use",
        text: (one) => percent(use(one)),
        value: use,
        num: true,
        gauge: (one) => ({ part: use(one), colour: useColour(use(one)) }),
      },
      ...queues,
      {
        title: "drops/s",
        text: (one) => (one.drops_per_s ? one.drops_per_s.toPrecision(3) : "-"),
        value: (one) => one.drops_per_s,
        num: true,
        tone: (one) => (one.drops_per_s ? "bad" : ""),
      },
    ],
  });
  return {
    element: made.element,
    update: (ports) => made.update([...ports].sort((a, b) => use(b) - use(a) || compare(`${a.switch} ${a.port}`, `${b.switch} ${b.port}`))),
  };
}

export function use(port) {
  return port.queues_bps.reduce((sum, one) => sum + one, 0) / port.rate_bps;
}
