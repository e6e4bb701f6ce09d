// The timeline: a band for each job, a bar for each flow, with a red edge from its ideal finish time on.
//
// One shape draws all flows of a job that are in sight. An element for each flow would be too slow from some thousand on.

import { Chart, axis, colour, jobColour, library } from "./charts.js";
import { duration, time } from "./format.js";

const SHAPE = "flows";
const BAND = 0.84;
const EDGE = 0.22;
const JOBS_IN_SIGHT = 14;
const LEAST_MARKED = 6;
const SHOWN_FIRST = 300;

export class TimelinePicture {
  // `onWindow(from, to)` hears which time is in sight; `describe(text)` gets what is below the pointer.
  // `fromEnd`: at first, it shows the latest flows rather than the earliest.
  constructor(onWindow, describe, fromEnd) {
    this.fromEnd = fromEnd;
    this.chart = new Chart("Flows by time and job. The table below has those that are in sight.", "high");
    this.onWindow = onWindow;
    this.describe = describe;
    this.flows = null;
    this.unit = (seconds) => duration(seconds);
    this.chart.onMade = (instance) => {
      instance.on("dataZoom", () => this.tellWindow());
      instance.getZr().on("mousemove", (event) => this.point(event));
    };
  }

  get element() {
    return this.chart.element;
  }

  async draw(flows) {
    const before = this.flows;
    const [from, to] = before === null || this.chart.instance === null ? [0, 0] : this.sight();
    const zoomed = before !== null && to - from < 0.999 * before.end;
    this.flows = flows;
    registerShape(await library());
    await this.chart.draw(() => this.option(), before !== null && before.jobs.length !== flows.jobs.length);
    // What somebody looks at stays where it is while new flows come.
    if (before === null) this.look(...this.firstSight());
    else if (zoomed) this.look(from + before.origin - flows.origin, to + before.origin - flows.origin);
    this.tellWindow();
  }

  // What is shown at first: of many flows only as much time as some hundred of them take.
  firstSight() {
    const { flows } = this;
    const part = Math.min(1, SHOWN_FIRST / flows.size) * flows.end;
    return this.fromEnd ? [flows.end - part, flows.end] : [0, part];
  }

  option() {
    const { flows } = this;
    const most = Math.max(1, flows.jobs.length);
    const crowded = flows.jobs.length > JOBS_IN_SIGHT;
    return {
      animation: false,
      grid: { left: 8, right: crowded ? 40 : 16, top: 8, bottom: 62, containLabel: true },
      xAxis: {
        type: "value", min: 0, max: Math.max(flows.end, 1e-6),
        ...axis({ axisLabel: { formatter: (value) => this.unit(value), hideOverlap: true, showMinLabel: false, showMaxLabel: false } }),
      },
      yAxis: { type: "category", inverse: true, data: flows.jobs, ...axis({ axisLabel: { width: 130, overflow: "truncate" }, splitLine: { show: true, lineStyle: { color: colour("line"), opacity: 0.6 } } }) },
      dataZoom: [
        { type: "inside", xAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: true, moveOnMouseMove: true, minSpan: 0.001, throttle: 16 },
        {
          type: "slider", xAxisIndex: 0, filterMode: "none", height: 26, bottom: 10, showDataShadow: false, throttle: 16,
          brushSelect: false, labelFormatter: (value) => this.unit(value),
          borderColor: colour("line"), fillerColor: "rgba(127,150,170,0.2)", handleStyle: { color: colour("soft"), borderColor: colour("soft") },
          moveHandleStyle: { color: colour("idle") }, textStyle: { color: colour("soft") }, backgroundColor: "transparent",
        },
        ...(crowded ? [{ type: "slider", yAxisIndex: 0, filterMode: "none", width: 14, right: 6, startValue: 0, endValue: JOBS_IN_SIGHT - 1, showDetail: false, brushSelect: false, showDataShadow: false, borderColor: colour("line"), fillerColor: "rgba(127,150,170,0.2)", backgroundColor: "transparent" }] : []),
      ],
      series: [{
        type: "custom", clip: true, silent: true, animation: false,
        encode: { x: 0, y: 1 },
        data: Array.from({ length: flows.jobs.length && most }, (_, job) => [0, job]),
        renderItem: (params, api) => this.band(params.dataIndex, params.coordSys, api),
      }],
    };
  }

  band(job, area, api) {
    const [, middle] = api.coord([0, job]);
    const height = api.size([0, 1])[1];
    if (middle + height < area.y || middle - height > area.y + area.height) return null;
    const [from, to] = this.sight();
    const scale = area.width / (to - from);
    const view = { from, to, scale, x: area.x, top: middle - (height * BAND) / 2, lane: (height * BAND) / this.flows.lanes[job] };
    const shape = (part) => ({
      type: SHAPE,
      // ECharts copies shapes deeply, but hands on the objects of classes that it does not know.
      shape: { of: new Drawn(this.flows, job, view, part) },
      style: { fill: part === "late" ? colour("bad") : part === "ideal" ? colour("text") : jobColour(job) },
      silent: true,
    });
    return { type: "group", children: [shape("whole"), shape("late"), shape("ideal")] };
  }

  // The times at the left and right edge.
  sight() {
    const { flows } = this;
    const zoom = this.chart.instance.getOption().dataZoom[0];
    const span = Math.max(flows.end, 1e-6);
    return [(span * zoom.start) / 100, (span * zoom.end) / 100];
  }

  tellWindow() {
    if (this.chart.instance !== null && this.flows !== null) this.onWindow(...this.sight());
  }

  // Moves by a part of what is in sight, or makes it larger or smaller.
  move(by) {
    const { start, end } = this.chart.instance.getOption().dataZoom[0];
    const step = Math.max(-start, Math.min(100 - end, by * (end - start)));
    this.chart.instance.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start: start + step, end: end + step });
  }

  zoom(by) {
    const { start, end } = this.chart.instance.getOption().dataZoom[0];
    const half = Math.min(50, ((end - start) * by) / 2);
    const middle = Math.max(half, Math.min(100 - half, (start + end) / 2));
    this.chart.instance.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start: middle - half, end: middle + half });
  }

  // Shows the flows between two times.
  look(from, to) {
    const span = this.flows.end;
    const part = (moment) => (100 * moment) / span;
    this.chart.instance.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start: Math.max(0, Math.min(99, part(from))), end: Math.max(1, Math.min(100, part(to))) });
  }

  point({ offsetX, offsetY }) {
    const { instance } = this.chart;
    if (this.flows === null || !instance.containPixel({ gridIndex: 0 }, [offsetX, offsetY])) return;
    const [moment, job] = instance.convertFromPixel({ gridIndex: 0 }, [offsetX, offsetY]);
    if (job < 0 || job >= this.flows.jobs.length) return;
    const middle = instance.convertToPixel({ gridIndex: 0 }, [moment, job])[1];
    const next = instance.convertToPixel({ gridIndex: 0 }, [moment, job + 1])[1];
    const height = (Number.isFinite(next) ? Math.abs(next - middle) : 60) * BAND;
    const lane = Math.floor(((offsetY - middle + height / 2) / height) * this.flows.lanes[job]);
    const [from, to] = this.sight();
    const at = this.flows.at(job, lane, moment, ((to - from) / instance.getWidth()) * 2);
    this.describe(at === null ? null : about(this.flows, at));
  }
}

export function about(flows, at) {
  const late = flows.late[at];
  return {
    name: `${flows.jobs[flows.job[at]]} ${flows.names[flows.name[at]]}`,
    text: `iteration ${flows.iteration[at]}, from ${time(flows.start[at])} to ${time(flows.finish[at])}`
      + (Number.isNaN(late) ? "" : `, ideally ${time(flows.ideal(at))}: ${late > 0 ? `${time(late)} late` : "in time"}`),
  };
}

// What a shape draws: the flows of a job, where, and which part of them.
class Drawn {
  constructor(flows, job, view, part) {
    Object.assign(this, { flows, job, view, part });
  }
}

function registerShape(echarts) {
  if (echarts.graphic.getShapeClass(SHAPE)) return;
  echarts.graphic.registerShape(SHAPE, echarts.graphic.extendShape({
    shape: { of: null },
    buildPath: (path, { of }) => of !== null && drawFlows(path, of.flows, of.job, of.view, of.part),
  }));
}

// Adds the rectangles of a job's flows that are in sight. Flows narrower than a pixel that fall on one are drawn once.
function drawFlows(path, flows, job, view, part) {
  const mine = flows.byJob[job];
  const [first, last] = flows.window(job, view.from, view.to);
  const drawn = new Float64Array(flows.lanes[job]).fill(-1);
  const gap = view.lane > 5 ? 1 : 0;
  for (let place = first; place < last; place += 1) {
    const at = mine[place];
    let from = flows.start[at];
    const to = flows.finish[at];
    const ideal = flows.ideal(at);
    const top = view.top + flows.lane[at] * view.lane;
    if (part === "ideal") {
      if (!(ideal >= view.from && ideal <= view.to) || (to - from) * view.scale < LEAST_MARKED) continue;
      path.rect(view.x + (ideal - view.from) * view.scale - 0.75, top, 1.5, view.lane - gap);
      continue;
    }
    if (part === "late") {
      if (!(ideal < to)) continue;
      from = Math.max(from, ideal);
    }
    const left = view.x + (Math.max(from, view.from) - view.from) * view.scale;
    const right = view.x + (Math.min(to, view.to) - view.from) * view.scale;
    if (right < view.x || right <= drawn[flows.lane[at]]) continue;
    const begin = Math.max(left, drawn[flows.lane[at]]);
    const end = Math.max(right, begin + 1);
    drawn[flows.lane[at]] = end;
    const edge = part === "late" ? Math.max(1, view.lane * EDGE) : view.lane - gap;
    path.rect(begin, top + view.lane - gap - edge, end - begin, edge);
  }
}

