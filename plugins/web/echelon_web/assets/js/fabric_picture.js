// The fabric as a graph: links coloured by use, drained links and those that are down dashed, switches that are not ready marked.

import { Chart, colour, tooltip, useColour } from "./charts.js";
import { place } from "./fabric_layout.js";
import { percent, rate } from "./format.js";

const LABELLED = 40;
const LARGEST = 26;
const MARGIN = 34;

// `onChoose({switch} or {a, b})` hears what is clicked.
export class FabricPicture {
  constructor(onChoose) {
    this.chart = new Chart("The fabric. The tables beside it have the same figures.");
    this.chart.onMade = (instance) => {
      instance.on("click", ({ dataType, data }) => {
        if (dataType === "edge") onChoose({ a: data.source, b: data.target });
        else if (!data.isHost && !data.corner) onChoose({ switch: data.name });
      });
    };
    this.key = "";
    this.places = [];
  }

  get element() {
    return this.chart.element;
  }

  // `links`: {a, b, rate_bps, state, use, carried}; `states`: of switches by name; `chosen`: key of a link or switch.
  draw(links, states, chosen) {
    const key = links.map((one) => `${one.a}/${one.b}`).join();
    if (key !== this.key) {
      this.key = key;
      this.places = place(links, new Set(states.keys()));
    }
    this.chart.draw(() => this.option(links, states, chosen));
  }

  option(links, states, chosen) {
    const counts = new Map();
    for (const { tier } of this.places) counts.set(tier, (counts.get(tier) ?? 0) + 1);
    const highest = Math.max(...counts.keys(), 1);
    const most = Math.max(...counts.values());
    const { clientWidth, clientHeight } = this.element;
    const area = { width: clientWidth - 2 * MARGIN, height: clientHeight - 2 * MARGIN };
    const size = Math.max(8, Math.min(LARGEST, area.width / most));
    const fastest = Math.max(...links.map((one) => one.rate_bps));
    return {
      tooltip: tooltip({ formatter: ({ dataType, data }) => (dataType === "edge" ? aboutLink(data) : aboutNode(data)) }),
      series: [{
        type: "graph",
        layout: "none",
        roam: true,
        scaleLimit: { min: 0.5, max: 12 },
        left: MARGIN, top: MARGIN, width: area.width, height: area.height,
        data: [
          ...this.places.map((one) => this.node(one, states, { area, highest, size, counts, chosen })),
          // Nodes without a size in the corners, so that all others stand where they are placed.
          ...[0, 1].map((at) => ({ name: `corner ${at}`, corner: true, x: at * area.width, y: at * area.height, symbolSize: 0, label: { show: false } })),
        ],
        links: links.map((one) => edge(one, fastest, chosen)),
        emphasis: { scale: false, lineStyle: { opacity: 1 } },
        lineStyle: { opacity: 1 },
      }],
    };
  }

  node({ name, tier, x, isHost }, states, { area, highest, size, counts, chosen }) {
    const state = states.get(name);
    const troubled = !isHost && state !== "ready" && state !== "writing" && state !== "run";
    return {
      name, isHost, state,
      x: x * area.width,
      y: (1 - tier / highest) * area.height,
      symbol: isHost ? "circle" : troubled ? "diamond" : "roundRect",
      symbolSize: isHost ? size * 0.55 : troubled ? size * 1.25 : [size * 1.3, size],
      itemStyle: {
        color: isHost ? colour("paper") : troubled ? colour("bad") : colour("accent"),
        borderColor: chosen === name ? colour("text") : isHost ? colour("soft") : "transparent",
        borderWidth: chosen === name ? 3 : isHost ? 1.5 : 0,
      },
      label: {
        show: counts.get(tier) <= LABELLED || troubled,
        // The two lines of a switch in trouble would leave the picture at its upper edge and at its sides.
        position: isHost ? "bottom" : !troubled || tier < highest ? "top" : x < 0.15 ? "right" : x > 0.85 ? "left" : "bottom",
        color: troubled ? colour("bad") : colour("text"),
        fontWeight: troubled ? 600 : 400,
        formatter: troubled ? `${name}\n${state ?? "unknown"}` : name,
        fontSize: 12,
        lineHeight: 14,
        backgroundColor: colour("paper"),
        padding: [1, 3],
      },
    };
  }
}

function edge(link, fastest, chosen) {
  const out = link.state !== "up";
  const isChosen = chosen === `${link.a}/${link.b}`;
  return {
    source: link.a,
    target: link.b,
    link,
    lineStyle: {
      color: link.problem ? colour("bad") : out ? colour("soft") : useColour(link.use),
      type: out ? [4, 5] : "solid",
      width: (isChosen ? 3 : 0) + (out ? 1.5 : 1.5 + 3 * Math.sqrt(link.rate_bps / fastest)),
    },
  };
}

function aboutLink({ link }) {
  const lines = [`${link.a} - ${link.b}, ${rate(link.rate_bps)}`];
  if (link.state === "drained" || link.state === "moving") lines.push(link.state);
  if (link.problem) lines.push(`down: ${link.problem}`);
  for (const { from, to, use } of link.carried) lines.push(`${from} > ${to}: ${percent(use)}`);
  return lines.join("\n");
}

function aboutNode({ name, isHost, state }) {
  return isHost ? `host ${name}` : state === "run" ? `switch ${name}` : `switch ${name}: ${state}`;
}
