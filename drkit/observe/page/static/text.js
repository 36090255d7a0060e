// Words and numbers. What isn't known is said so, never shown as 0.

export const UNKNOWN = "not known";

export function count(value) {
  return value === null || value === undefined ? UNKNOWN : Math.round(value).toLocaleString("en");
}

export function counted(value, noun) {
  return value === null || value === undefined ? `${noun}s ${UNKNOWN}` : `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value < 0.1 && value > 0) return `${Math.round(value * 1000)}\u00a0ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)}\u00a0s`;
  if (value < 7200) return `${Math.round(value / 60)}\u00a0min`;
  if (value < 172800) return `${Math.round(value / 3600)}\u00a0h`;
  return `${Math.round(value / 86400)} days`;
}

export function ago(value) {
  return value === null || value === undefined ? "when is not known" : `${seconds(value)} ago`;
}

export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  let rest = value;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (rest < 1000) return `${rest.toFixed(unit === "B" ? 0 : 1)}\u00a0${unit}`;
    rest /= 1000;
  }
  return `${rest.toFixed(1)}\u00a0TB`;
}

export function instant(value) {
  return value === null || value === undefined ? UNKNOWN : value.slice(0, 19).replace("T", " ") + " UTC";
}

// Elements. Text only ever goes in as text: names of topics and records can't become markup.
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// A message that another sentence follows.
export function sentence(text) {
  return prose(`${String(text ?? "").replace(/\.$/, "")}. `);
}

// A message's parts: commands and flags are code, which never breaks within a flag, and commands lose their backticks.
export function prose(text) {
  return String(text ?? "").split(/(`[^`]+`|--[a-z][a-z-]*)/).filter(Boolean).map((part) => {
    if (part.startsWith("`")) return element("code", {}, part.slice(1, -1));
    return part.startsWith("--") ? element("code", { class: "flag" }, part) : part;
  });
}

export async function fetched(address) {
  const answer = await fetch(address, { headers: { Accept: "application/json" } });
  if (answer.status === 401) location.assign("login");
  const body = await answer.json();
  if (body.error) throw new Error([body.error.what, body.error.meaning, body.error.remedy].filter(Boolean).join(". "));
  return body;
}
