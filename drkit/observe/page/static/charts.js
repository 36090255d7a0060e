// Charts over time by uPlot. Each has its newest and worst value in words: the drawing itself says nothing to a reader.
import { bytes, count, element, fetched, prose, seconds, UNKNOWN } from "./text.js";

const LEAST = { records: 10, "records/s": 10, "bytes/s": 1000, seconds: 1 }; // an axis that ends lower only shows noise
// Steps of an axis of seconds that are whole numbers in the unit that they are shown in.
const STEPS = [0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800];
const rate = (value) => (value === null || value === undefined ? UNKNOWN : `${count(value)}/s`);
const byteRate = (value) => (value === null || value === undefined ? UNKNOWN : `${bytes(value)}/s`);
const LATENCY = "End-to-end latency";
const CHARTS = [
  { title: "Recovery point: records", unit: "records", lines: [["rpo_records", "records"]], show: count, objective: "rpo_records" },
  { title: "Recovery point: seconds", unit: "seconds", lines: [["rpo_seconds", "seconds"]], show: seconds, objective: "rpo_seconds" },
  { title: "Lag: records", unit: "records", lines: [["lag_records", "records"]], show: count },
  { title: "Lag: seconds", unit: "seconds", lines: [["lag_seconds", "seconds"]], show: seconds },
  { title: "Throughput: records", unit: "records/s", lines: [["records_per_second", "records"]], show: rate },
  { title: "Throughput: bytes", unit: "bytes/s", lines: [["bytes_per_second", "bytes"]], show: byteRate },
  { title: LATENCY, unit: "seconds", lines: [["latency_p50", "median"], ["latency_p99", "99th percentile"]], show: seconds },
  { title: "Groups: age of the oldest captured position", unit: "seconds", lines: [["group_age_seconds", "age"]], show: seconds },
];
const SPANS = [["1h", "1 hour"], ["24h", "24 hours"], ["31d", "31 days"]];
const REFRESH = { "1h": 10_000, "24h": 60_000, "31d": 300_000 };

// A time of the axis: the day where steps are days, else hours and minutes, with seconds where steps are shorter.
function clock(time, step) {
  const text = new Date(time * 1000).toISOString();
  return step >= 86400 ? text.slice(5, 10) : text.slice(11, step < 60 ? 19 : 16);
}

// A label that says the same as the one before it is left out: it would tell two values by one number.
export function axisLabels(texts) {
  return texts.map((text, index) => (index && text === texts[index - 1] ? "" : text));
}

// The room beside the drawing for its labels, in pixels: nothing of the longest is cut off.
export function labelRoom(texts) {
  return 22 + 7 * Math.max(4, ...(texts ?? []).map((text) => text.length));
}

// From where to where the axis of times goes; of a single point uPlot would make years.
export function timeRange(times) {
  return times.length > 1 ? [times[0], times.at(-1)] : [times[0] - 30, times[0] + 30];
}

// What the lines have where the cursor is; "" where it is on none.
function pointText(drawn, chart) {
  const index = drawn.cursor.idx;
  if (index === null || index === undefined) return "";
  return `${new Date(drawn.data[0][index] * 1000).toISOString().slice(0, 16).replace("T", " ")}: ${chart.lines.map(([, name], line) =>
    `${name} ${chart.show(drawn.data[line + 1][index])}`).join(", ")}`;
}

// A place for a chart, which stays while it is drawn anew: so does the focus. Keys move the cursor from point to point, and what is
// there is read out; with the pointer it is only shown.
class Figure {
  constructor(chart, spoken) {
    this.chart = chart;
    this.spoken = spoken;
    this.drawn = null;
    this.time = null; // of the point that keys moved to
    this.words = element("span", { class: "now" });
    this.under = element("span", { class: "now", "aria-hidden": "true" }, "\u00a0");
    this.place = element("div", { class: "chart", onkeydown: (event) => this.key(event), onblur: () => this.release() });
    this.root = element("figure", {}, element("figcaption", {}, element("b", {}, chart.title), this.words), this.place, this.under);
  }

  say(words) {
    this.words.textContent = words;
    this.place.setAttribute("aria-label", `${this.chart.title}: ${words}`);
  }

  // The place as one that has points, or that only says why it has none.
  clear(points) {
    this.drawn?.destroy();
    this.drawn = null;
    this.under.textContent = "\u00a0";
    this.place.setAttribute("role", points ? "application" : "img"); // a screen reader hands the keys of an application through
    if (points) this.place.setAttribute("aria-roledescription", "chart: left and right read its points");
    else this.place.removeAttribute("aria-roledescription");
    if (points) this.place.tabIndex = 0;
    else this.place.removeAttribute("tabindex");
    this.place.replaceChildren();
  }

  moved(drawn) {
    this.under.textContent = pointText(drawn, this.chart) || "\u00a0";
  }

  // Puts the cursor where keys had put it before it was drawn anew: the newest point's time grows meanwhile.
  restore() {
    if (this.time !== null) this.point(this.drawn.valToIdx(this.time));
  }

  point(index) {
    this.time = this.drawn.data[0][index];
    this.drawn.setCursor({ left: this.drawn.valToPos(this.time, "x"), top: this.drawn.bbox.height / devicePixelRatio / 2 });
  }

  key(event) {
    if (!this.drawn || event.altKey || event.ctrlKey || event.metaKey) return;
    const last = this.drawn.data[0].length - 1;
    const from = this.time === null ? null : this.drawn.valToIdx(this.time);
    const to = { ArrowLeft: from === null ? last : Math.max(0, from - 1), ArrowRight: from === null ? last : Math.min(last, from + 1), Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.point(to);
    this.spoken.textContent = `${this.chart.title}, ${pointText(this.drawn, this.chart)}`;
  }

  release() {
    if (this.time === null) return;
    this.time = null;
    this.drawn?.setCursor({ left: -10, top: -10 });
  }
}

export class Charts {
  constructor() {
    this.span = "1h";
    this.link = null;
    this.drawnAt = 0;
    this.select = element("select", { id: "chart-link", onchange: () => this.load((this.link = this.select.value)) });
    this.label = element("label", { for: "chart-link" }, "Link ");
    this.chooser = element("div", { hidden: true }, this.label, this.select);
    this.buttons = SPANS.map(([span, name]) => element("button", { type: "button", "aria-pressed": String(span === this.span),
      onclick: () => this.choose(span) }, name));
    this.failed = element("p", { class: "failed", hidden: true });
    this.spoken = element("p", { class: "only-read", role: "status", "aria-live": "polite" });
    this.figures = CHARTS.map((chart) => new Figure(chart, this.spoken));
    this.grid = element("div", { class: "charts" });
    this.root = element("section", { "aria-labelledby": "charts-title" },
      element("h2", { id: "charts-title" }, "Over time (UTC)"),
      element("div", { class: "controls" }, this.chooser,
        element("fieldset", { "aria-label": "How far back" }, this.buttons)), this.failed, this.grid, this.spoken);
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.grid);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.load();
    this.scheme.addEventListener("change", this.redraw);
  }

  update(summary) {
    if (summary.status.error) return;
    const links = summary.links.filter((each) => !each.inverse).map((each) => each.link);
    const shown = [...this.select.options].map((each) => each.value);
    if (links.join("\n") !== shown.join("\n")) {
      this.select.replaceChildren(...links.map((link) => element("option", { value: link }, link)));
      this.chooser.hidden = links.length < 2;
      if (!links.includes(this.link)) this.link = links[0] ?? null;
      this.select.value = this.link;
      this.drawnAt = 0;
    }
    this.objectives = summary.objectives;
    const link = summary.links.find((each) => each.link === this.link);
    this.canary = Boolean(link?.canary);
    const moved = Boolean(link?.failed_over);
    if (moved !== this.moved) this.drawnAt = 0;
    this.moved = moved;
    if (this.link && Date.now() - this.drawnAt > REFRESH[this.span]) this.load();
  }

  choose(span) {
    this.span = span;
    this.buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(SPANS[index][0] === span)));
    this.load();
  }

  async load() {
    this.drawnAt = Date.now();
    const asked = `${this.link} ${this.span}`;
    if (!this.link) return;
    try {
      const found = await fetched(`api/history?${new URLSearchParams({ link: this.link, span: this.span })}`);
      if (asked !== `${this.link} ${this.span}`) return;
      this.failed.hidden = true;
      this.draw(found);
    } catch (error) {
      this.failed.textContent = `The history can't be read: ${error.message}`;
      this.failed.hidden = false;
    }
  }

  draw(found) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    if (!this.grid.children.length) this.grid.append(...this.figures.map((each) => each.root)); // with something to show, not before
    for (const figure of this.figures) {
      const { chart, place } = figure;
      const columns = chart.lines.map(([name]) => found.series[name]);
      const words = chart.lines.map(([, name], index) => {
        const known = columns[index].filter((value) => value !== null);
        const last = columns[index].at(-1);
        const present = this.moved && (last ?? null) === null ? "none since the failover" : `now ${chart.show(last)}`;
        const text = known.length ? `${present} · highest ${chart.show(Math.max(...known))}` : this.moved ? present : UNKNOWN;
        return chart.lines.length > 1 ? `${name}: ${text}` : text;
      }).join("; ");
      const limit = chart.objective && this.objectives ? this.objectives[chart.objective] : null;
      const known = columns.some((column) => column.some((value) => value !== null));
      figure.say(limit === null || limit === undefined ? words : `${words} · objective ${chart.show(limit)}`);
      figure.clear(known);
      if (!known) {
        place.append(element("p", { class: "empty" }, this.moved ? "Nothing is mirrored since the failover." : chart.title === LATENCY && !this.canary
          ? prose("Not measured: `canary = true` in this link's table of drkit.toml has the mirror measure it.") : "Nothing is known of this time."));
        continue;
      }
      const axis = { stroke: colour("dim"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 } };
      const lines = chart.lines.map(([, name], index) => ({ label: name, stroke: colour(index ? "two" : "one"), width: 2,
        dash: index ? [6, 4] : undefined, value: (_, value) => chart.show(value), points: { size: 4 } }));
      const data = [found.at, ...columns];
      if (limit !== null && limit !== undefined) {
        lines.push({ label: "objective", stroke: colour("two"), width: 1, dash: [3, 3], points: { show: false }, value: () => chart.show(limit) });
        data.push(found.at.map(() => limit));
      }
      figure.drawn = new window.uPlot({
        width: this.width(place), height: 190, series: [{ label: "time" }, ...lines], legend: { live: false, show: chart.lines.length > 1 },
        tzDate: (time) => window.uPlot.tzDate(new Date(time * 1000), "Etc/UTC"),
        hooks: { setCursor: [(drawn) => figure.moved(drawn)], ready: [(drawn) => { figure.drawn = drawn; figure.restore(); }] },
        padding: [8, 28, 0, 0], // half of the last time's label
        axes: [{ ...axis, space: 70, size: 34, values: (_, times, __, ___, step) => axisLabels(times.map((time) => clock(time, step))) },
          { ...axis, size: (_, texts) => labelRoom(texts), incrs: chart.unit === "seconds" ? STEPS : undefined, values: (_, values) => axisLabels(values.map((value) => chart.show(value))) }],
        scales: { x: { range: () => timeRange(found.at) }, y: { range: (_, low, high) => [0, Math.max(high ?? 0, limit ?? 0, LEAST[chart.unit]) * 1.1] } }, cursor: { drag: { x: false, y: false } },
      }, data, place);
    }
  }

  width(place) {
    return Math.max(200, Math.floor(place.getBoundingClientRect().width || this.grid.getBoundingClientRect().width));
  }

  resize() {
    for (const { drawn, place } of this.figures) drawn?.setSize({ width: this.width(place), height: 190 });
  }

  leave() {
    this.watcher.disconnect();
    this.scheme.removeEventListener("change", this.redraw);
    this.figures.forEach((each) => each.drawn?.destroy());
  }
}
