// Makes elements, and draws them anew without replacing what stays: whoever reads or types there is not disturbed.

import { percent } from "./words.js";

// Elements: make("a", {href: "…", class: "…"}, "text", another)
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

const element = (node) => node?.nodeType === Node.ELEMENT_NODE;
const key = (node) => (element(node) ? node.dataset.key : undefined);
const alike = (old, made) => old && old.nodeName === made.nodeName && key(old) === key(made);

function become(old, made) {
  if (!element(old)) {
    if (old.nodeValue !== made.nodeValue) old.nodeValue = made.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of made.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = value; // the page's policy refuses the attribute
    else old.setAttribute(name, value);
  }
  reconcile(old, [...made.childNodes]);
}

function reconcile(target, nodes) {
  const keys = new Set(nodes.map(key));
  for (const old of [...target.childNodes]) if (key(old) !== undefined && !keys.has(key(old))) old.remove();
  const known = new Map([...target.children].filter((old) => key(old) !== undefined).map((old) => [key(old), old]));
  nodes.forEach((made, number) => {
    const here = target.childNodes[number];
    const same = known.get(key(made)) ?? (alike(here, made) ? here : undefined);
    if (same === undefined) {
      target.insertBefore(made, here ?? null);
      return;
    }
    if (same !== here) target.insertBefore(same, here);
    become(same, made);
  });
  while (target.childNodes.length > nodes.length) target.lastChild.remove();
}

// Has the target hold these children. An element with data-key is the same as the one that had this key before; its
// listeners stay, so what they do must follow from the key alone.
export function fill(target, ...children) {
  const focused = document.activeElement;
  reconcile(target, children.flat().filter(Boolean).map((child) => (child instanceof Node ? child : document.createTextNode(child))));
  if (focused !== document.activeElement && target.contains(focused)) focused.focus({ preventScroll: true });
}

export function card(label, value, note = "", kind = "") {
  return make("article", { class: `metric-card ${kind}` }, make("p", { class: "metric-label" }, label),
    make("p", { class: "metric-value" }, value), note ? make("small", {}, note) : null);
}

export function bar(share, kind = "") {
  const inside = make("div", { class: `progress-bar ${kind}` });
  inside.style.width = `${Math.min(100, 100 * share)}%`;
  return make("div", { class: "progress fairlane-bar", role: "progressbar", "aria-valuenow": Math.round(100 * share),
    "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": percent(share) }, inside);
}

const BADGES = { running: "text-bg-primary", open: "text-bg-success", active: "text-bg-success", completed: "text-bg-success", succeeded: "text-bg-success",
  failed: "text-bg-danger", parked: "text-bg-danger", paused: "text-bg-warning", blocked: "text-bg-warning", probing: "text-bg-info", refused: "text-bg-danger",
  invalid: "text-bg-danger", timed_out: "text-bg-danger", used_up: "text-bg-danger", nearly_used: "text-bg-warning" };
export const badge = (state) => make("span", { class: `badge ${BADGES[state] || "text-bg-secondary"}` }, state.replaceAll("_", " "));
