// Tables of any length: the server searches, sorts and pages; here one page is shown.
import { ago, bytes, count, element, fetched, instant, prose, seconds, UNKNOWN } from "./text.js";

const REFRESH = 10_000;
const SHORT = 26; // characters of a name that stays on one line
const MEDIUM = 48; // of one that does where the window is wide
const LONG = 80; // characters of a reason that isn't repeated row by row
const number = (key, title, show = count) => ({ key, title, number: true, text: (row) => show(row[key]) });
const word = (key, title) => ({ key, title, text: (row) => row[key] ?? UNKNOWN });
const reason = { key: null, once: true, title: "Reason", wide: true, text: (row) => row.reason ?? "" };
const certainty = { key: "translation", title: "Translation", text: (row) => row.translation,
  tone: (row) => ({ exact: "good", conservative: "careful", unavailable: "bad" })[row.translation] };
// Of a group. Beside its name, as all tables have what they are sorted by at first: a phone shows no third column.
const worst = { key: "worst", title: "Worst", text: certainty.text, tone: certainty.tone };
// Exactly so many, at most so many, or at least what is known: as the terminal says it.
const again = { key: "reread_at_most", title: "Read again", number: true, text: ({ reread, reread_at_most: most }) => {
  if (most !== null) return most === reread ? count(most) : `≤ ${count(most)}`;
  return reread ? `≥ ${count(reread)}` : UNKNOWN;
} };
const linked = (view, ...keys) => (row) => {
  const parameters = new URLSearchParams();
  for (const key of keys) parameters.set(key, row[key]);
  return `#${view}?${parameters}`;
};

export const TABLES = {
  topics: { title: "Topics", columns: [
    { ...word("topic", "Topic"), href: linked("partitions", "link", "topic") },
    { ...number("lag_records", "Lag"), tone: (row) => (row.lag_records === null ? "bad" : row.lag_records ? "careful" : "") },
    number("lag_seconds", "Behind", seconds), number("partitions", "Partitions"), number("unknown", "Lag not known"), number("problems", "Problems"),
    word("link", "Link"), word("target_topic", "On the target"), reason] },
  partitions: { title: "Partitions", under: "topics", columns: [
    { key: "topic", title: "Partition", text: (row) => `${row.topic}:${row.partition}` },
    { ...number("lag_records", "Lag"), tone: (row) => (row.lag_records === null ? "bad" : row.lag_records ? "careful" : "") },
    number("lag_seconds", "Behind", seconds), number("source_end", "Source end"), number("mirrored_through", "Mirrored through"),
    number("target_end", "Target end"), number("delta", "Delta"), word("link", "Link"), reason] },
  groups: { title: "Groups", columns: [
    { ...word("group", "Group"), href: linked("positions", "link", "group") }, worst, number("topics", "Topics"), number("positions", "Positions"),
    number("exact", "Exact"), number("conservative", "Conservative"),
    { ...number("unavailable", "Unavailable"), tone: (row) => (row.unavailable ? "bad" : "") }, number("age_seconds", "Captured", ago),
    word("link", "Link"), reason] },
  positions: { title: "Positions", under: "groups", columns: [
    word("group", "Group"), { key: "topic", title: "Partition", text: (row) => `${row.topic}:${row.partition}` },
    number("source_offset", "On the source"), number("target_offset", "On the target"), certainty, number("age_seconds", "Captured", ago), word("link", "Link"), reason] },
  plan: { title: "Plan of a failover, by group", columns: [
    { ...word("group", "Group"), href: linked("planned", "to", "link", "group") }, worst, number("positions", "Positions"),
    { ...number("unplaced", "Without an offset"), tone: (row) => (row.unplaced ? "bad" : "") }, again,
    { ...number("lost", "Lost"), tone: (row) => (row.lost === null ? "bad" : row.lost ? "careful" : "") }, number("skipped", "Skipped"),
    word("link", "Link"), reason] },
  planned: { title: "Planned positions", under: "plan", columns: [
    word("group", "Group"), { key: "topic", title: "Partition", text: (row) => `${row.topic}:${row.partition}` },
    number("source_offset", "From"), { key: "target_offset", title: "To", number: true, text: (row) => (row.target_offset === null ? "none" : count(row.target_offset)),
      tone: (row) => (row.target_offset === null ? "bad" : "") }, word("strategy", "By"), certainty, again, number("lost", "Lost"),
    number("skipped", "Skipped"), word("link", "Link"), reason] },
  workers: { title: "Workers", columns: [
    word("worker", "Worker"), word("link", "Link"), { ...word("state", "State"), tone: (row) => (row.state === "mirroring" ? "good" : "careful") },
    number("partitions", "Partitions"), number("records_per_second", "Records/s"), number("bytes_per_second", "Bytes/s", bytes),
    { key: null, title: "In flight", text: (row) => row.in_flight }, { key: "latency_p99", title: "End to end", text: (row) => row.latency },
    { key: null, title: "Batches", wide: true, text: (row) => row.batches },
    { key: null, title: "Catching up", wide: true, text: (row) => row.catching_up ?? "" }, { key: "at", title: "As of", text: (row) => instant(row.at).slice(11) }, reason] },
  runs: { title: "Runs", columns: [
    { ...word("run", "Run"), href: (row) => `#run?name=${encodeURIComponent(row.run)}` }, word("kind", "Kind"),
    { ...word("state", "State"), tone: (row) => (["closed", "done", "clean"].includes(row.state) ? "good" : "careful") },
    { key: "started_at", title: "Began", text: (row) => instant(row.started_at) }, { key: "detail", title: "What", wide: true, text: (row) => row.detail }] },
  drills: { title: "Drills", columns: [
    { key: "run", title: "Drill", text: (row) => row.title ?? row.run, href: (row) => `#drill?name=${encodeURIComponent(row.run)}` },
    { key: "verdict", title: "Verdict", text: (row) => row.verdict ?? "no result", tone: (row) => (row.verdict === "passed" ? "good" : "bad") },
    { key: "started_at", title: "Began", text: (row) => instant(row.started_at) }, number("seconds", "Took", seconds),
    number("rpo_records", "Records lost"), number("rto_seconds", "Recovery time", seconds), reason] },
};

export class Table {
  // parameters: of the address after the view's name; go: shows a view with other parameters.
  constructor(name, parameters, go) {
    Object.assign(this, { name, parameters, go, spec: TABLES[name], loadedAt: 0, typing: 0 });
    const filters = [...parameters].filter(([key]) => !["q", "sort", "order", "page", "size"].includes(key));
    this.search = element("input", { id: "search", type: "search", value: parameters.get("q"), maxlength: 200, autocomplete: "off", spellcheck: "false",
      oninput: () => this.soon() });
    this.status = element("p", { role: "status" });
    this.failed = element("p", { class: "failed", hidden: true });
    this.heads = element("tr");
    this.body = element("tbody");
    this.first = this.pageButton("« First", () => 1);
    this.before = this.pageButton("‹ Previous", () => this.page.page - 1);
    this.after = this.pageButton("Next ›", () => this.page.page + 1);
    this.last = this.pageButton("Last »", () => this.page.pages);
    const title = `${this.spec.title}${filters.length ? `: ${filters.map(([, value]) => value).join(", ")}` : ""}`;
    this.root = element("section", { "aria-labelledby": "table-title" }, element("h2", { id: "table-title" }, title),
      this.spec.under ? element("p", {}, element("a", { href: `#${this.spec.under}` }, `‹ ${TABLES[this.spec.under].title}`)) : null,
      element("form", { class: "controls", role: "search", onsubmit: (event) => { event.preventDefault(); this.soon(0); } },
        element("div", {}, element("label", { for: "search" }, "Search "), this.search)),
      this.failed,
      element("div", { class: "scroll", role: "region", "aria-label": `Rows of ${title}`, tabindex: "0" },
        element("table", {}, element("caption", { class: "only-read" }, `${title}; columns with buttons can be sorted`), element("thead", {}, this.heads), this.body)),
      element("div", { class: "pager" }, this.first, this.before, this.after, this.last, this.status));
    this.load();
  }

  pageButton(text, page) {
    return element("button", { type: "button", disabled: true, onclick: () => this.change({ page: page() }) }, text);
  }

  update() {
    if (Date.now() - this.loadedAt > REFRESH) this.load();
  }

  soon(delay = 300) {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.change({ q: this.search.value.trim(), page: 1 }), delay);
  }

  change(changes) {
    for (const [key, value] of Object.entries(changes)) {
      if (value === "" || (key === "page" && value === 1)) this.parameters.delete(key);
      else this.parameters.set(key, value);
    }
    this.go(this.name, this.parameters);
    this.load();
  }

  async load() {
    this.loadedAt = Date.now();
    const asked = this.parameters.toString();
    try {
      const page = await fetched(`api/${this.name}?${asked}`);
      if (asked === this.parameters.toString()) this.show(page);
    } catch (error) {
      this.failed.textContent = error.message;
      this.failed.hidden = false;
      this.body.replaceChildren();
      this.status.textContent = "Nothing is shown.";
    }
  }

  show(page) {
    this.page = page;
    this.failed.hidden = true;
    this.showHeads(page);
    const focused = this.body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.body.replaceChildren(...page.rows.map((row, line) => element("tr", {}, this.spec.columns.map((column, index) => {
      const repeated = column.once && line && column.text(row).length > LONG && column.text(row) === column.text(page.rows[line - 1]);
      const text = repeated ? "as above" : column.text(row);
      const tone = column.tone ? column.tone(row) : "";
      const style = [column.number ? "number" : "", column.wide && text ? "text" : "", repeated ? "dim" : "", text === UNKNOWN ? "bad" : tone, text.length <= SHORT ? "short" : text.length <= MEDIUM && !index ? "medium" : ""].filter(Boolean).join(" ");
      const shown = column.href ? element("a", { href: column.href(row) }, text) : prose(text);
      return element(index ? "td" : "th", { class: style || null, scope: index ? null : "row" }, shown);
    }))));
    if (focused) this.body.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    const begin = (page.page - 1) * page.size;
    const of = page.matched === page.total ? count(page.total) : `${count(page.matched)} found of ${count(page.total)}`;
    const said = page.rows.length ? `${count(begin + 1)}–${count(begin + page.rows.length)} of ${of}` : page.total ? `None of ${count(page.total)} is found` : "There is none";
    if (this.status.textContent !== said) this.status.textContent = said;
    this.first.disabled = this.before.disabled = page.page <= 1;
    this.last.disabled = this.after.disabled = page.page >= page.pages;
  }

  showHeads(page) {
    const focused = this.heads.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.heads.replaceChildren(...this.spec.columns.map((column) => {
      if (!column.key) return element("th", { scope: "col" }, column.title);
      const sorted = page.sort === column.key;
      const next = sorted ? (page.order === "asc" ? "desc" : "asc") : column.number || column.key === "worst" ? "desc" : "asc";
      return element("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": sorted ? (page.order === "asc" ? "ascending" : "descending") : null },
        element("button", { type: "button", "data-key": column.key, onclick: () => this.change({ sort: column.key, order: next, page: 1 }) },
          column.title, element("span", { "aria-hidden": "true" }, sorted ? (page.order === "asc" ? " ▲" : " ▼") : "")));
    }));
    if (focused) this.heads.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  leave() {
    clearTimeout(this.typing);
  }
}
