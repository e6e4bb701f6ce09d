// Small pictures of an hour, as SVG: lines of values over time, or what queues sent, one upon the other.

import { svg } from "./dom.js";

const WIDTH = 360;
const HEIGHT = 44;
const EDGE = 2;
// The most steps without a value over which a line goes on.
const GAP = 3;
const MINUTE = 60;

export const hourPicture = () =>
  svg("svg", { class: "hour", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });

// `axis`: {first, steps, from, step}: the first step that is shown, and when step 0 began. `low` and `high`: the values at the edges.
// `lines`: {name, values}; `levels`: {name, value}; `stack`: values of queues, of which the last is at the bottom.
export function drawHour(element, label, axis, { low = 0, high, lines = [], levels = [], stack = [] }) {
  const x = (step) => ((step - axis.first) / Math.max(1, axis.steps - 1 - axis.first)) * WIDTH;
  const y = (value) => HEIGHT - EDGE - ((value - low) / (high - low || 1)) * (HEIGHT - 2 * EDGE);
  const point = (step, value) => `${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
  const path = (name, d) => svg("path", { class: name, d });
  const across = (name, value) => path(name, `M${point(axis.first, value)}H${WIDTH}`);
  const drawn = ticks(axis).map((step) => path("tick", `M${x(step).toFixed(1)} 0V${HEIGHT}`));
  drawn.push(across("zero", 0));
  const below = stack[0]?.map(() => 0) ?? [];
  for (let queue = stack.length - 1; queue >= 0; queue -= 1) {
    const lower = [...below];
    stack[queue].forEach((value, step) => { below[step] += value ?? 0; });
    if (!stack[queue].some((value) => value > 0)) continue;
    const shapes = runs(stack[queue]).map((run) =>
      `M${[...run.map((step) => point(step, below[step])), ...run.reverse().map((step) => point(step, lower[step]))].join("L")}Z`);
    drawn.push(path(`q q${queue}`, shapes.join("")));
  }
  for (const { name, value } of levels) drawn.push(across(name, value));
  for (const { name, values } of lines) {
    // A run of one value is a dot, by the ends of the line.
    const shapes = runs(values).map((run) => `M${run.map((step) => point(step, values[step])).join("L")}${run.length > 1 ? "" : "h0"}`);
    drawn.push(path(name, shapes.join("")));
  }
  element.setAttribute("aria-label", label);
  element.replaceChildren(...drawn);
}

// The steps that have a value, in runs that no longer gap divides.
function runs(values) {
  const found = [];
  let last = -Infinity;
  values.forEach((value, step) => {
    if (value === null) return;
    if (step - last > GAP) found.push([]);
    found.at(-1).push(step);
    last = step;
  });
  return found;
}

// The places of full minutes, or of every ten of them.
function ticks({ first, steps, from, step }) {
  const apart = (steps - first) * step > 20 * MINUTE ? 10 * MINUTE : MINUTE;
  const begin = from + first * step;
  const end = from + (steps - 1) * step;
  const found = [];
  for (let at = Math.ceil(begin / apart) * apart; at < end; at += apart) found.push((at - from) / step);
  return found;
}
