// One run, or one drill: the outcome of each part of it.
import { count, counted, element, fetched, instant, prose, seconds, UNKNOWN } from "./text.js";

const pair = (term, value) => [element("dt", {}, term), element("dd", {}, value)];
const OUTCOMES = { ok: ["good", "✓"], passed: ["good", "✓"], met: ["good", "✓"], clean: ["good", "✓"], failed: ["bad", "✕"], missed: ["bad", "✕"], deviated: ["bad", "✕"], skipped: ["dim", "–"] };

function outcome(text) {
  const [tone, sign] = OUTCOMES[text] ?? ["careful", "?"];
  return element("span", { class: `${tone} short` }, `${sign} ${text ?? UNKNOWN}`);
}

function table(caption, heads, rows) {
  if (!rows.length) return null;
  return element("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, element("table", {},
    element("caption", { class: "only-read" }, caption), element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, rows.map(([first, ...rest]) => element("tr", {}, element("th", { scope: "row" }, first), rest.map((each) => element("td", {}, each)))))));
}

class Report {
  constructor(kind, name, back) {
    this.root = element("section", { "aria-labelledby": "report-title" }, element("h2", { id: "report-title" }, name),
      element("p", {}, element("a", { href: `#${back}` }, `All ${back}`)));
    this.place = element("div", {}, element("p", { class: "loading" }, "Reading …"));
    this.root.append(this.place);
    this.load(`api/${kind}/${encodeURIComponent(name)}`);
  }

  async load(address) {
    try {
      this.place.replaceChildren(...this.parts(await fetched(address)).filter(Boolean));
    } catch (error) {
      this.place.replaceChildren(element("p", { class: "failed" }, error.message));
    }
  }

  update() {}

  leave() {}
}

export class RunReport extends Report {
  constructor(name) {
    super("runs", name, "runs");
  }

  parts(run) {
    const found = run.evidence;
    return [
      element("dl", { class: "pairs" }, pair("what", `${run.kind ?? UNKNOWN} ${run.detail ?? ""}`), pair("state", run.state ?? UNKNOWN), pair("began", instant(run.started_at)),
        pair("last entry", instant(run.updated_at)), pair("hash chain", element("span", { class: run.intact ? "good" : "bad" }, `${run.intact ? "✓" : "✕"} ${run.chain}`)),
        found ? pair("lost", found.rpo_records === null ? `${UNKNOWN}${found.rpo_reason ? `: ${found.rpo_reason}` : ""}`
          : `${counted(found.rpo_records, "record")}${found.rpo_upper_bound ? (found.rpo_lower_bound ? ", more or fewer" : " or fewer") : found.rpo_lower_bound ? " or more" : ""} (${found.rpo_basis}) · ${seconds(found.rpo_seconds)}`) : null,
        found ? pair("took", seconds(found.rto_seconds)) : null, found ? pair("fenced", found.fenced === null ? UNKNOWN : found.fenced ? "yes" : "no (UNFENCED)") : null),
      run.unreadable ? element("p", { class: "failed" }, run.unreadable) : null,
      run.stages.length ? element("h3", {}, "Stages") : null,
      table("Stages", ["Stage", "Outcome", "Took", "Why"], run.stages.map((each) => [each.link ? `${each.link}: ${each.name}` : each.name, outcome(each.outcome), seconds(each.seconds), element("span", {}, prose(each.reason))])),
      run.audits.length ? element("h3", {}, "Audits") : null,
      table("Audits", ["Link", "Verdict", "Found"], run.audits.map((each) => [each.link, outcome(each.verdict),
        each.totals ? Object.entries(each.totals).map(([kind, value]) => `${kind} ${count(value)}`).join(", ") : each.detail])),
      element("h3", {}, "Journal"),
      element("p", { class: "dim" }, `${run.entries === 1 ? "1 entry" : `${count(run.entries)} entries`}; `, element("code", {}, `drkit runs ${run.run}`), " shows them whole and compares them with their anchors."),
      table("Journal", ["Entry", "At", "Stage", "Event"], run.newest_entries.map((each) => [count(each.seq), instant(each.at), each.stage, each.event])),
    ];
  }
}

export class DrillReport extends Report {
  constructor(name) {
    super("drills", name, "drills");
  }

  parts(drill) {
    const measured = drill.measured;
    return [
      element("p", {}, element("b", {}, drill.title), `: ${drill.hypothesis}`),
      element("dl", { class: "pairs" }, pair("verdict", outcome(drill.verdict)), pair("began", instant(drill.started_at)), pair("took", seconds(drill.seconds)),
        pair("records lost", count(measured.rpo_records)), pair("oldest of them", seconds(measured.rpo_seconds)), pair("recovery time", seconds(measured.rto_seconds)),
        pair("acknowledged", count(measured.acknowledged)), pair("landed", count(measured.landed)), pair("read again", count(measured.reread)),
        pair("steady state", drill.steady_state.reason ?? (drill.steady_state.reached ? "reached" : UNKNOWN))),
      drill.reasons.length ? element("ul", { class: "obstructions" }, drill.reasons.map((each) => element("li", {}, each))) : null,
      drill.objectives.length ? element("h3", {}, "Objectives") : null,
      table("Objectives", ["Objective", "Limit", "Measured", "Outcome"], drill.objectives.map((each) => [each.name, each.objective, each.measured ?? UNKNOWN, outcome(each.outcome)])),
      element("h3", {}, "Checks"),
      table("Checks", ["Check", "Outcome", "Anomalies", "Why"], drill.checks.map((each) => [each.check, outcome(each.outcome), count(each.anomalies),
        [each.reason, ...each.witnesses.map((witness) => witness.text), each.more_witnesses ? `and ${count(each.more_witnesses)} more` : null].filter(Boolean).join("; ")])),
      element("h3", {}, "Steps"),
      table("Steps", ["Step", "Part", "Outcome", "After", "Took", "Why"], drill.steps.map((each) => [each.step, each.section, outcome(each.outcome), seconds(each.started_after_seconds), seconds(each.seconds), each.reason ?? ""])),
    ];
  }
}
