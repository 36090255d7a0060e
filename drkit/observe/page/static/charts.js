// Charts over time by uPlot. Each has its newest and worst value in words: the drawing itself says nothing to a reader.
import { bytes, count, element, fetched, seconds, UNKNOWN } from "./text.js";

const LEAST = { records: 10, "records/s": 10, "bytes/s": 1000, seconds: 1 }; // an axis that ends lower only shows noise
// Steps of an axis of seconds that are whole numbers in the unit that they are shown in.
const STEPS = [0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800];
const rate = (value) => (value === null || value === undefined ? UNKNOWN : `${count(value)}/s`);
const byteRate = (value) => (value === null || value === undefined ? UNKNOWN : `${bytes(value)}/s`);
const CHARTS = [
  { title: "Recovery point: records", unit: "records", lines: [["rpo_records", "records"]], show: count, objective: "rpo_records" },
  { title: "Recovery point: seconds", unit: "seconds", lines: [["rpo_seconds", "seconds"]], show: seconds, objective: "rpo_seconds" },
  { title: "Lag: records", unit: "records", lines: [["lag_records", "records"]], show: count },
  { title: "Lag: seconds", unit: "seconds", lines: [["lag_seconds", "seconds"]], show: seconds },
  { title: "Throughput: records", unit: "records/s", lines: [["records_per_second", "records"]], show: rate },
  { title: "Throughput: bytes", unit: "bytes/s", lines: [["bytes_per_second", "bytes"]], show: byteRate },
  { title: "End-to-end latency", unit: "seconds", lines: [["latency_p50", "median"], ["latency_p99", "99th percentile"]], show: seconds },
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

// What the lines have where the pointer is.
function point(drawn, chart, under) {
  const index = drawn.cursor.idx;
  const there = index !== null && index !== undefined;
  under.textContent = there ? `${new Date(drawn.data[0][index] * 1000).toISOString().slice(0, 16).replace("T", " ")}: ${chart.lines.map(([, name], line) =>
    `${name} ${chart.show(drawn.data[line + 1][index])}`).join(", ")}` : "\u00a0";
}

export class Charts {
  constructor() {
    this.span = "1h";
    this.link = null;
    this.drawn = [];
    this.drawnAt = 0;
    this.select = element("select", { id: "chart-link", onchange: () => this.load((this.link = this.select.value)) });
    this.label = element("label", { for: "chart-link" }, "Link ");
    this.chooser = element("div", { hidden: true }, this.label, this.select);
    this.buttons = SPANS.map(([span, name]) => element("button", { type: "button", "aria-pressed": String(span === this.span),
      onclick: () => this.choose(span) }, name));
    this.failed = element("p", { class: "failed", hidden: true });
    this.grid = element("div", { class: "charts" });
    this.root = element("section", { "aria-labelledby": "charts-title" },
      element("h2", { id: "charts-title" }, "Over time (UTC)"),
      element("div", { class: "controls" }, this.chooser,
        element("fieldset", { "aria-label": "How far back" }, this.buttons)), this.failed, this.grid);
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
    const moved = Boolean(summary.links.find((each) => each.link === this.link)?.failed_over);
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
    this.drawn.forEach((each) => each.destroy());
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.drawn = [];
    const figures = CHARTS.map((chart) => {
      const columns = chart.lines.map(([name]) => found.series[name]);
      const words = chart.lines.map(([, name], index) => {
        const known = columns[index].filter((value) => value !== null);
        const last = columns[index].at(-1);
        const present = this.moved && (last ?? null) === null ? "none since the failover" : `now ${chart.show(last)}`;
        const text = known.length ? `${present} · highest ${chart.show(Math.max(...known))}` : this.moved ? present : UNKNOWN;
        return chart.lines.length > 1 ? `${name}: ${text}` : text;
      }).join("; ");
      const limit = chart.objective && this.objectives ? this.objectives[chart.objective] : null;
      const said = limit === null || limit === undefined ? words : `${words} · objective ${chart.show(limit)}`;
      const place = element("div", { class: "chart", role: "img", "aria-label": `${chart.title}: ${said}` });
      const under = element("span", { class: "now", "aria-hidden": "true" }, "\u00a0");
      return { chart, columns, limit, place, under,
        figure: element("figure", {}, element("figcaption", {}, element("b", {}, chart.title), element("span", { class: "now" }, said)), place, under) };
    });
    this.grid.replaceChildren(...figures.map((each) => each.figure));
    for (const { chart, columns, limit, place, under } of figures) {
      if (!columns.some((column) => column.some((value) => value !== null))) {
        place.append(element("p", { class: "empty" }, this.moved ? "Nothing is mirrored since the failover." : chart.title.startsWith("End") ? "Not measured: it needs the link's canary." : "Nothing is known of this time."));
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
      this.drawn.push(new window.uPlot({
        width: this.width(place), height: 190, series: [{ label: "time" }, ...lines], legend: { live: false, show: chart.lines.length > 1 },
        tzDate: (time) => window.uPlot.tzDate(new Date(time * 1000), "Etc/UTC"),
        hooks: { setCursor: [(drawn) => point(drawn, chart, under)] },
        padding: [8, 28, 0, 0], // half of the last time's label
        axes: [{ ...axis, space: 70, size: 34, values: (_, times, __, ___, step) => axisLabels(times.map((time) => clock(time, step))) },
          { ...axis, size: (_, texts) => labelRoom(texts), incrs: chart.unit === "seconds" ? STEPS : undefined, values: (_, values) => axisLabels(values.map((value) => chart.show(value))) }],
        scales: { x: { range: (_, low, high) => (low === high ? [low - 30, high + 30] : [low, high]) }, y: { range: (_, low, high) => [0, Math.max(high ?? 0, limit ?? 0, LEAST[chart.unit]) * 1.1] } }, cursor: { drag: { x: false, y: false } },
      }, data, place));
    }
  }

  width(place) {
    return Math.max(200, Math.floor(place.getBoundingClientRect().width || this.grid.getBoundingClientRect().width));
  }

  resize() {
    for (const each of this.drawn) each.setSize({ width: this.width(each.root.parentElement), height: 190 });
  }

  leave() {
    this.watcher.disconnect();
    this.scheme.removeEventListener("change", this.redraw);
    this.drawn.forEach((each) => each.destroy());
  }
}
