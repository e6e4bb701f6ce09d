// Pictures by ECharts, on a canvas, in the colours of the page. Beside each picture is a table with the same figures.

import { h } from "./dom.js";

const VENDOR = "web/vendor/echarts.min.js";

let loading = null;

export function script(path) {
  return new Promise((done, failed) => {
    document.head.append(h("script", { src: path, onload: done, onerror: failed }));
  });
}

// Loads the library once, beside everything else that the page loads.
export async function library() {
  loading ??= script(VENDOR);
  await loading;
  return window.echarts;
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const still = window.matchMedia("(prefers-reduced-motion: reduce)");

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function jobColour(place) {
  return colour(`job-${(place % 8) + 1}`);
}

// The colour of a link or queue that is used to this part of its rate.
export function useColour(part) {
  if (!part) return colour("idle");
  return colour(part < 0.25 ? "use-1" : part < 0.6 ? "use-2" : part < 0.9 ? "use-3" : "use-4");
}

export function axis(more = {}) {
  return {
    axisLine: { lineStyle: { color: colour("line") } },
    axisTick: { show: false },
    axisLabel: { color: colour("soft"), fontSize: 12, hideOverlap: true, ...more.axisLabel },
    splitLine: { lineStyle: { color: colour("line"), opacity: 0.6 } },
    nameTextStyle: { color: colour("soft") },
    ...Object.fromEntries(Object.entries(more).filter(([name]) => name !== "axisLabel")),
  };
}

export function tooltip(more = {}) {
  return {
    // Text on the canvas: markup would need styles that the content security policy forbids.
    renderMode: "richText",
    backgroundColor: colour("panel"),
    borderColor: colour("line"),
    textStyle: { color: colour("text"), fontSize: 12 },
    confine: true,
    ...more,
  };
}

export function legend(more = {}) {
  return { textStyle: { color: colour("text") }, top: 0, left: 0, itemWidth: 14, itemHeight: 9, icon: "rect", ...more };
}

// A picture. `draw()` returns the option; it is called again when the colours of the page change.
export class Chart {
  constructor(label, size = "") {
    this.element = h("div", { class: `picture ${size}`, role: "img", "aria-label": label });
    this.instance = null;
    this.make = null;
    /** @type {(instance: any) => void} */
    this.onMade = () => {};
    this.size = new ResizeObserver(() => this.fit());
    this.repaint = () => this.draw(this.make, true);
    dark.addEventListener("change", this.repaint);
  }

  async draw(make, anew = false) {
    this.make = make;
    if (make === null) return;
    if (this.instance === null) {
      const echarts = await library();
      if (this.instance === null) {
        if (!this.element.isConnected) return;
        this.instance = echarts.init(this.element, null, { renderer: "canvas" });
        this.size.observe(this.element);
        this.onMade(this.instance);
      }
    }
    const option = this.make();
    this.instance.setOption(
      { animation: !still.matches && (option.animation ?? false), backgroundColor: "transparent", ...option },
      { notMerge: anew, lazyUpdate: true },
    );
  }

  // Takes the size of the element, also for what is placed by it.
  fit() {
    if (this.instance === null || this.instance.getWidth() === this.element.clientWidth) return;
    this.instance.resize();
    this.draw(this.make);
  }

  height(rem) {
    if (this.element.style.height === `${rem}rem`) return;
    this.element.style.height = `${rem}rem`;
    this.instance?.resize();
  }

  dispose() {
    dark.removeEventListener("change", this.repaint);
    this.size.disconnect();
    this.instance?.dispose();
    this.instance = null;
    this.make = null;
  }
}
