// What all pages of Fairlane share. Whatever comes from the server becomes text, never markup.

import { fill, make } from "./elements.js";
import { clock } from "./words.js";

export const EVERY_MS = 2000;

const prefix = (() => {
  const entered = document.getElementById("url_prefix").value.replace(/^\/+|\/+$/g, "");
  return entered ? `/${entered}` : "";
})();

export const link = (...parts) => `${prefix}/${parts.map((part) => encodeURIComponent(part)).join("/")}`;

function cookie(name) {
  const found = document.cookie.match(`(?:^|;)\\s*${name}=([^;]+)`);
  return found ? decodeURIComponent(found[1]) : "";
}

async function answer(url, how) {
  const reply = await fetch(url, { credentials: "same-origin", ...how }).catch(() => {
    throw new Error("Flower does not answer");
  });
  const data = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Error(data.error || `Flower answered ${reply.status}`);
  return data;
}

export const read = (url) => answer(url, { cache: "no-store" });
export const ask = (url) => answer(url, { method: "POST", headers: { "X-XSRFToken": cookie("_xsrf") } });

// Says above the page, and to a screen reader once, what is wrong; nothing for an empty text.
export function warn(text) {
  const banner = document.getElementById("fairlane-banner");
  if (banner.textContent !== text) fill(banner, text && make("p", {}, text));
}

// Reads a url again and again while the page is seen, and draws what came. Returns what reads at once.
export function follow(url, draw) {
  const dot = document.getElementById("fairlane-dot");
  const status = document.getElementById("fairlane-status");
  let turn = 0;
  let seen = 0;
  async function look(mine) {
    if (mine !== turn) return;
    if (!document.hidden) {
      try {
        const data = await read(typeof url === "function" ? url() : url);
        if (mine !== turn) return;
        draw(data);
        seen = data.now_ms;
        dot.classList.add("status-dot-live");
        status.textContent = `Updated ${clock(seen)}`;
        warn("");
      } catch (error) {
        dot.classList.remove("status-dot-live");
        status.textContent = "Not updated";
        warn(`${error.message}. ${seen ? `What you see is of ${clock(seen)}.` : "Nothing can be shown now."}`);
        document.querySelectorAll("[data-verb]").forEach((button) => { button.disabled = true; });
      }
    }
    if (mine === turn) setTimeout(look, EVERY_MS, mine);
  }
  const now = () => look((turn += 1));
  document.addEventListener("visibilitychange", () => document.hidden || now());
  now();
  return now;
}
