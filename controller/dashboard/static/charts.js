// Small curves that share one cursor; each says its latest value in words, too.

import { h, replace, say } from "./dom.js";
import { sign, tellingFirst } from "./marks.js";
import { clock, figure, moment } from "./words.js";

const HEIGHT = 130;
const HALF_LABEL = 28; // of a time below the curve's end
const APART = 12; // between two signs on a curve
const MINUTE = 60;
const DAY = 86400;

export class Charts {
  constructor() {
    this.all = new Map();
    this.element = h("section", { class: "charts", "aria-label": "Curves" });
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.again = () => this.redraw();
    this.dark.addEventListener("change", this.again);
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.element);
  }

  show(curves, marks) {
    this.curves = curves;
    this.marks = marks;
    const wanted = new Map([["workers", curves.workers], ["samples/s", curves.samples_per_second], ...Object.entries(curves.metrics)]);
    for (const [name, chart] of this.all)
      if (!wanted.has(name)) {
        chart.plot.destroy();
        chart.figure.remove();
        this.all.delete(name);
      }
    if (curves.at.length < 2) return;
    for (const [name, values] of wanted) {
      const chart = this.all.get(name) ?? this.make(name);
      chart.plot.setData([curves.at, values]);
      this.tell(chart, name);
    }
  }

  make(name) {
    const words = h("figcaption", {});
    const frame = h("figure", { "data-curve": name }, words);
    this.element.append(frame);
    const chart = { figure: frame, caption: words, plot: new uPlot(this.options(name), [[], []], frame) };
    this.all.set(name, chart);
    return chart;
  }

  // The latest value, or that under the pointer, on whichever of the curves it is.
  tell({ caption: words, plot }, name) {
    const [at, values] = plot.data;
    const index = plot.cursor.idx;
    const there = index !== null && index !== undefined && index < at.length;
    say(words, there ? `${name}: ${figure(values[index])} at ${moment(at[index])}` : caption(name, values));
  }

  options(name) {
    const style = getComputedStyle(document.documentElement);
    const color = (variable) => style.getPropertyValue(variable).trim();
    const axis = { stroke: color("--faint"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    const whole = name === "workers";
    return {
      width: this.width(),
      height: HEIGHT,
      padding: [null, HALF_LABEL, null, null],
      legend: { show: false },
      cursor: { sync: { key: "curves" }, y: false },
      scales: { y: { range: whole ? (_plot, _low, high) => [0, Math.max(high, 1) * 1.1] : undefined } },
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "UTC"), // as in all tables
      axes: [{ ...axis, values: times, space: 75 }, { ...axis, size: 56, incrs: whole ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] : undefined }],
      series: [
        {},
        { stroke: color("--curve"), width: 2, points: { show: false }, paths: whole ? uPlot.paths.stepped({ align: 1 }) : undefined },
      ],
      hooks: {
        draw: [(plot) => this.mark(plot, color("--mark"))],
        setCursor: [() => this.all.has(name) && this.tell(this.all.get(name), name)],
      },
    };
  }

  mark(plot, color) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color;
    ctx.setLineDash([4, 4]);
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    const signs = [];
    for (const mark of tellingFirst(this.marks)) {
      const x = Math.round(plot.valToPos(mark.at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (signs.some((other) => Math.abs(other - x) < APART * devicePixelRatio)) continue;
      signs.push(x);
      ctx.fillText(sign(mark), x, bbox.top - 3 * devicePixelRatio);
    }
    ctx.restore();
  }

  width() {
    const columns = Math.max(Math.floor(this.element.clientWidth / 340), 1);
    return Math.max(Math.floor(this.element.clientWidth / columns) - 16, 200);
  }

  fit() {
    for (const chart of this.all.values()) chart.plot.setSize({ width: this.width(), height: HEIGHT });
  }

  redraw() {
    for (const chart of this.all.values()) chart.plot.destroy();
    this.all.clear();
    replace(this.element);
    if (this.curves) this.show(this.curves, this.marks);
  }

  close() {
    this.dark.removeEventListener("change", this.again);
    this.observer.disconnect();
    for (const chart of this.all.values()) chart.plot.destroy();
  }
}

function times(_plot, splits, _axis, _space, step) {
  return splits.map((at) => (step < MINUTE ? clock(at) : step < DAY ? clock(at).slice(0, 5) : moment(at).slice(0, 10)));
}

function caption(name, values) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return `${name}: not a number`;
  const low = known.reduce((a, b) => Math.min(a, b));
  const high = known.reduce((a, b) => Math.max(a, b));
  return `${name}: ${figure(known.at(-1))} (from ${figure(low)} to ${figure(high)})`;
}
