// The page of `drkit serve`: the answer on top, views below, all of it kept up by server-sent events.
import { Charts } from "./charts.js";
import { decisionSection } from "./decision.js";
import { DrillReport, RunReport } from "./reports.js";
import { Table, TABLES } from "./tables.js";
import { ago, bytes, count, counted, element, instant, prose, seconds, sentence, UNKNOWN } from "./text.js";

const SILENCE = 20_000; // ms without an event: whatever is shown may be over
const VIEWS = [["overview", "Overview"], ["topics", "Topics"], ["groups", "Groups"], ["plan", "Plan"], ["workers", "Workers"], ["runs", "Runs"], ["drills", "Drills"]];
const TONES = { mirroring: ["good", "✓"], degraded: ["bad", "✕"], stopped: ["careful", "■"], paused: ["careful", "❚❚"], sealed: ["careful", "⇥"], reversed: ["careful", "⇄"] };
const at = (id) => document.getElementById(id);

let summary = null;
let heardAt = Date.now();
let view = null;
let shownView = "";
let announced = null;

class Overview {
  constructor() {
    this.links = element("div", { class: "links" });
    this.charts = new Charts();
    this.root = element("div", {}, element("section", { "aria-labelledby": "links-title" }, element("h2", { id: "links-title" }, "Links"), this.links), this.charts.root);
  }

  parts() {
    return [...this.root.children];
  }

  update(found) {
    if (found.status.error) this.links.replaceChildren(element("p", { class: "failed" }, prose(`No status: ${found.status.error.what}. ${found.status.error.remedy ?? ""}`)));
    else keepOpen(this.links, found.links.map(linkCard));
    this.charts.update(found);
  }

  leave() {
    this.charts.leave();
  }
}

class Plan extends Table {
  constructor(parameters, go) {
    super("plan", parameters, go);
    this.about = element("div");
    this.root.firstChild.after(this.about);
  }

  update(found) {
    super.update(found);
    keepOpen(this.about, found.decisions.map((each) => element("div", {},
      element("p", {}, element("b", {}, prose(each.headline)), `. ${counted(each.groups, "group")}, ${counted(each.positions, "position")}; `,
        element("code", {}, each.command), each.digest ? ` · digest ${each.digest.slice(0, 12)}…` : ""),
      each.stages.length ? element("details", { "data-keep": `stages-${each.to}` }, element("summary", {}, counted(each.stages.length, "stage")),
        element("ol", { class: "stages" }, each.stages.map((stage) => element("li", {}, element("b", {}, stage.name), ": ", prose(stage.does))))) : null,
      each.warnings.length ? element("details", { "data-keep": `warnings-${each.to}` }, element("summary", {}, counted(each.warnings.length + each.more_warnings, "warning")),
        element("ul", {}, each.warnings.map((text) => element("li", {}, prose(text))), each.more_warnings ? element("li", {}, `and ${count(each.more_warnings)} more`) : null)) : null)));
  }
}

function linkCard(link) {
  const [tone, sign] = TONES[link.state] ?? ["careful", "!"];
  const point = link.recovery_point;
  const silent = [[link.source, link.source_reachable], [link.target, link.target_reachable]].filter(([, there]) => !there).map(([alias]) => alias);
  const pair = (term, value, bad = false) => [element("dt", {}, term), element("dd", { class: bad ? "bad" : null }, value)];
  return element("article", { class: "link", "aria-label": link.link },
    element("h3", {}, link.link, element("span", { class: `badge ${tone}` }, `${sign} ${link.state}`)),
    link.reason ? element("p", { class: tone === "good" ? null : "careful" }, prose(link.reason)) : null,
    silent.length ? element("p", { class: "bad" }, `${silent.join(" and ")}: no answer; offsets are as last seen`) : null,
    element("dl", { class: "pairs" },
      pair(link.failed_over ? "left behind" : "recovery point", point.records === null ? `${UNKNOWN}${point.reason ? `: ${point.reason}` : ""}`
        : `${counted(point.records, "record")}${point.lower_bound ? " or more" : ""} · ${seconds(point.seconds)}`, point.records === null),
      ...(link.failed_over ? [pair("lag", "none: nothing is mirrored since the failover")] : [pair("lag", link.lag_records === null ? UNKNOWN : `${counted(link.lag_records, "record")} · ${seconds(link.lag_seconds)}`, link.lag_records === null),
        pair("throughput", link.records_per_second === null ? UNKNOWN : `${count(link.records_per_second)}/s · ${bytes(link.bytes_per_second)}/s`),
        pair("end to end", link.latency_p99 === null ? (link.canary ? UNKNOWN : prose("not measured: `canary = true` of this link measures it")) : `median ${seconds(link.latency_p50)} · p99 ${seconds(link.latency_p99)}`)]),
      pair("groups", `${counted(link.positions, "position")}${link.group_age_seconds === null ? "" : `, oldest captured ${ago(link.group_age_seconds)}`}`),
      pair("size", `${counted(link.partitions, "partition")}, ${counted(link.workers, "worker")}`)),
    link.problems.length ? element("details", { "data-keep": `problems-${link.link}`, open: link.problems.length < 4 },
      element("summary", {}, counted(link.problems.length + link.more_problems, "problem")),
      element("ul", { class: "obstructions" }, link.problems.map((each) => element("li", {},
        each.place ? element("b", {}, `${each.place} `) : null, each.halted ? element("span", { class: "bad" }, "halted: ") : null,
        sentence(each.reason), each.remedy ? element("span", {}, element("b", {}, "Do: "), prose(each.remedy)) : null)))) : null);
}

// Replaces what a place holds; what was folded open stays so, and the focus stays where it was.
function keepOpen(place, parts) {
  const known = new Map([...place.querySelectorAll("details[data-keep]")].map((each) => [each.dataset.keep, each.open]));
  const focused = document.activeElement?.closest?.("details[data-keep]");
  const key = focused && place.contains(focused) && document.activeElement.tagName === "SUMMARY" ? focused.dataset.keep : null;
  place.replaceChildren(...parts);
  for (const each of place.querySelectorAll("details[data-keep]")) {
    if (known.has(each.dataset.keep)) each.open = known.get(each.dataset.keep);
    if (each.dataset.keep === key) each.querySelector("summary").focus({ preventScroll: true });
  }
}

function showDecisions(found) {
  const place = at("decisions");
  place.removeAttribute("aria-busy");
  keepOpen(place, found.decisions.length ? found.decisions.map((each) => decisionSection(each, found))
    : [element("p", { class: "notice" }, "No link is configured.")]);
  const said = found.decisions.map((each) => each.headline).join(". ");
  if (said !== announced) at("announcement").textContent = (announced = said).replaceAll("`", "");
  const signs = { yes: "✓", unfenced: "!", no: "✕", moved: "⇥", unknown: "?" };
  document.title = `${found.decisions.map((each) => `${signs[each.answer] ?? "?"} ${each.to}`).join(" ")} · drkit`;
}

function hear(event) {
  summary = JSON.parse(event.data);
  heardAt = Date.now();
  showDecisions(summary);
  at("connection").className = "";
  document.body.classList.remove("outdated");
  at("connection").textContent = `Live · ${instant(summary.at)}${summary.history.reason ? " · history isn't kept" : ""}`;
  at("version").textContent = `drkit ${summary.drkit}`;
  view?.update(summary);
}

// What was true some time ago isn't an answer: without events the answer is "unknown".
function listen() {
  if (Date.now() - heardAt < SILENCE) return;
  const place = at("connection");
  place.className = "lost";
  document.body.classList.add("outdated");
  place.textContent = summary ? `No word from drkit serve since ${instant(summary.at)}` : "drkit serve doesn't answer";
  if (!summary) return;
  showDecisions({ ...summary, decisions: summary.decisions.map((each) => ({ ...each, answer: "unknown", more_obstructions: 0,
    headline: `Unknown: drkit serve doesn't answer; what it said of ${each.to} is outdated`, age_seconds: null,
    obstructions: [{ what: "This page gets no events", meaning: "All that is below is as it was then", remedy: "See whether `drkit serve` runs, or run the command" }],
    loss: { records: null, seconds: null, lower_bound: false, reason: null } })) });
}

function go(name, parameters) {
  const text = parameters.toString();
  shownView = `#${name}${text ? `?${text}` : ""}`;
  history.replaceState(null, "", shownView);
}

function show() {
  if (view && location.hash === shownView) return;
  shownView = location.hash;
  const [name, query = ""] = location.hash.slice(1).split("?");
  const parameters = new URLSearchParams(query);
  const first = view === null;
  view?.leave();
  if (name === "plan") view = new Plan(parameters, go);
  else if (name in TABLES) view = new Table(name, parameters, go);
  else if (name === "run") view = new RunReport(parameters.get("name") ?? "");
  else if (name === "drill") view = new DrillReport(parameters.get("name") ?? "");
  else view = new Overview();
  at("main-content").replaceChildren(...(view instanceof Overview ? view.parts() : [view.root]));
  const current = { partitions: "topics", positions: "groups", planned: "plan", run: "runs", drill: "drills" }[name] ?? (name in TABLES ? name : "overview");
  for (const link of at("views").querySelectorAll("a")) {
    if (link.hash === `#${current}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (summary) view.update(summary);
  if (!first) at("main-content").focus({ preventScroll: true });
}

at("views").append(...VIEWS.map(([name, title]) => element("li", {}, element("a", { href: `#${name}` }, title))));
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); at("main-content").focus(); });
addEventListener("hashchange", show);
show();
const events = new EventSource("events");
events.addEventListener("summary", hear);
events.addEventListener("error", () => {
  if (events.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 10_000);
});
setInterval(listen, 2000);
