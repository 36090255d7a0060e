// The first view: may I fail over now, what would be lost, how long would it take, the last drill, the last audit.
import { ago, count, counted, element, prose, seconds, sentence, UNKNOWN } from "./text.js";

const SIGNS = { yes: "✓", unfenced: "!", no: "✕", moved: "⇥", unknown: "?" };
const NARROW = matchMedia("(max-width: 48rem)");

// The facts come before the obstacles: whatever is told of these, the figures stay in the first view. On a phone with several
// clusters the rest is folded, and of each note one line is shown, so that two of them do.
export function decisionSection(decision, summary) {
  const several = summary.decisions.length > 1;
  const folded = several && NARROW.matches;
  const from = element("p", { class: "from" }, `${decision.links.join(", ")} · `,
    decision.answer === "unknown" ? "ask the command: " : `the plan of ${ago(decision.age_seconds)}, by `, element("code", {}, decision.command));
  const total = decision.obstructions.length + decision.more_obstructions;
  const shown = folded ? Infinity : several || NARROW.matches ? 1 : 3;
  return element("article", { class: `decision ${decision.answer}${folded ? " folded" : ""}`, "aria-label": `Failover to ${decision.to}` },
    element("h2", {}, element("span", { class: "sign", "aria-hidden": "true" }, SIGNS[decision.answer] ?? "?"),
      element("span", {}, prose(decision.headline))),
    folded ? null : from,
    element("dl", { class: "facts" }, lost(decision, summary), duration(decision, summary), drill(summary),
      audit(decision, summary)),
    folded ? element("details", { "data-keep": `more-${decision.to}` },
      element("summary", {}, total ? `${counted(total, "obstacle")}, and each fact in full` : "Each fact in full"), from, obstructions(decision, shown))
      : obstructions(decision, shown));
}

function obstructions(decision, shown) {
  const items = decision.obstructions.map((each) => element("li", {},
    each.link ? element("b", {}, `${each.link}: `) : null, each.meaning || each.remedy ? sentence(each.what) : prose(each.what),
    each.meaning ? element("span", { class: "means" }, each.remedy ? sentence(each.meaning) : prose(each.meaning)) : null,
    each.remedy ? element("span", {}, element("b", {}, "Do: "), prose(each.remedy)) : null,
    each.waived_by ? element("span", { class: "dim" }, " (accepted with ", element("code", { class: "flag" }, each.waived_by), ")") : null));
  if (!items.length) return null;
  const rest = items.slice(shown);
  const more = decision.more_obstructions ? element("li", {}, `and ${count(decision.more_obstructions)} more: the command lists them`) : null;
  return element("div", {}, element("ul", { class: "obstructions" }, items.slice(0, shown), rest.length ? null : more),
    rest.length ? element("details", { "data-keep": `more-${decision.to}` },
      element("summary", {}, `${count(rest.length + decision.more_obstructions)} more`),
      element("ul", { class: "obstructions" }, rest, more)) : null);
}

function fact(term, value, note, missed = false) {
  return element("div", {}, element("dt", {}, term),
    element("dd", {}, element("div", { class: `value${missed ? " missed" : ""}` }, value),
      note ? element("div", { class: "note" }, note) : null));
}

const MOVED = new Set(["sealed", "reversed"]);

function lost({ loss, links: names }, { objectives, links }) {
  const states = links.filter((each) => names.includes(each.link)).map((each) => each.state);
  if (states.length && states.every((state) => MOVED.has(state)))
    return fact("Would be lost", "failed over already", "what stayed behind then is in the link's card");
  const known = loss.records !== null && loss.records !== undefined;
  const more = loss.lower_bound ? " or more" : "";
  const bound = loss.upper_bound ? (loss.lower_bound ? ", more or fewer" : " or fewer") : more;
  const value = known ? `${counted(loss.records, "record")}${bound} · ${loss.seconds === null ? `seconds ${UNKNOWN}` : seconds(loss.seconds) + more}` : UNKNOWN;
  const pairs = [[loss.records, objectives.rpo_records], [loss.seconds, objectives.rpo_seconds]].filter(([, limit]) => limit !== null);
  const missed = pairs.some(([found, limit]) => found !== null && found > limit && !loss.upper_bound);
  const unshown = pairs.some(([found, limit]) => found === null || loss.lower_bound || found > limit); // met by what is known only
  const limits = [objectives.rpo_records === null ? null : counted(objectives.rpo_records, "record"),
    objectives.rpo_seconds === null ? null : seconds(objectives.rpo_seconds)].filter(Boolean).join(", ");
  const verdict = missed ? "misses the objective" : unshown ? "not shown to meet the objective" : "objective";
  const objective = limits ? `${verdict}: ${limits}` : "no objective is set";
  return fact("Would be lost", value, loss.reason ? `${short(loss.reason)} (${objective})` : objective, missed || unshown);
}

function duration({ duration: took }, { objectives }) {
  const limit = objectives.rto_seconds;
  if (took.seconds === null)
    return fact("Would take", UNKNOWN, limit === null ? took.reason : `${took.reason} (not shown to meet the objective: ${seconds(limit)})`, limit !== null);
  const missed = limit !== null && took.seconds > limit;
  const objective = limit === null ? "" : `; ${missed ? "misses the objective" : "objective"}: ${seconds(limit)}`;
  return fact("Would take", seconds(took.seconds), `as ${took.of}, ${ago(took.age_seconds)}${objective}`, missed);
}

function drill({ drill: last, no_drill: none }) {
  if (!last) return fact("Last drill", "none", none);
  const measured = last.rto_seconds === null ? "" : ` · ${seconds(last.rto_seconds)}`;
  return fact("Last drill", `${last.verdict ?? "no result"}${measured}`,
    `${ago(last.age_seconds)}: ${last.title ?? last.run}${last.verdict === "passed" || !last.reason ? "" : ` (${short(last.reason)})`}`,
    last.verdict !== "passed");
}

function audit(decision, { audits, no_audit: none }) {
  const mine = audits.filter((each) => decision.links.includes(each.link));
  const missing = decision.links.length - mine.length;
  if (!mine.length) return fact("Last audit", "none", none);
  const oldest = mine.reduce((a, b) => ((a.age_seconds ?? Infinity) > (b.age_seconds ?? Infinity) ? a : b));
  const worst = mine.find((each) => each.verdict !== "clean") ?? oldest;
  const found = worst.totals ? ["lost", "duplicated", "corrupted", "reordered", "foreign"]
    .filter((kind) => worst.totals[kind]).map((kind) => `${count(worst.totals[kind])} ${kind}`).join(", ") : worst.detail;
  const rest = missing > 0 ? `; ${counted(missing, "link")} never audited` : "";
  const whose = missing > 0 ? ` · ${mine.length} of ${counted(decision.links.length, "link")}` : "";
  return fact("Last audit", worst.verdict + whose, `${ago(oldest.age_seconds)}${found ? `: ${short(found)}` : ""}${rest}`,
    worst.verdict !== "clean" || missing > 0);
}

function short(text) {
  return text.length > 140 ? `${text.slice(0, 139)}…` : text;
}
