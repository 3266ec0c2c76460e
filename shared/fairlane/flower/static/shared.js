// What all pages of Fairlane share. Whatever comes from the server becomes text, never markup.

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

async function answered(reply) {
  const data = await reply.json().catch(() => ({ error: `the server answered ${reply.status}` }));
  if (!reply.ok) throw new Error(data.error || `the server answered ${reply.status}`);
  return data;
}

export const read = async (url) => answered(await fetch(url, { credentials: "same-origin", cache: "no-store" }));

export const ask = async (url) =>
  answered(await fetch(url, { method: "POST", credentials: "same-origin", headers: { "X-XSRFToken": cookie("_xsrf") } }));

// Reads a url again and again while the page is seen, and draws what came. Returns what reads at once.
export function follow(url, draw) {
  const dot = document.getElementById("fairlane-dot");
  const status = document.getElementById("fairlane-status");
  let turn = 0;
  async function look(mine) {
    if (mine !== turn) return;
    if (!document.hidden) {
      try {
        const data = await read(typeof url === "function" ? url() : url);
        if (mine !== turn) return;
        draw(data);
        dot.classList.add("status-dot-live");
        status.textContent = `Updated ${clock(data.now_ms)}`;
      } catch (error) {
        dot.classList.remove("status-dot-live");
        status.textContent = error.message;
      }
    }
    if (mine === turn) setTimeout(look, EVERY_MS, mine);
  }
  const now = () => look((turn += 1));
  document.addEventListener("visibilitychange", () => document.hidden || now());
  now();
  return now;
}

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

export const fill = (target, ...children) => target.replaceChildren(...children.flat().filter(Boolean));

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

// Words
export const count = (number) => (number === null || number === undefined ? "–" : Math.round(number).toLocaleString("en-US"));
export const rate = (number) => {
  if (number === null || number === undefined) return "–";
  return Math.abs(number) >= 100 ? count(number) : String(Number(number.toPrecision(3)));
};
export const percent = (share) => {
  if (share === null || share === undefined) return "–";
  const hundredths = 100 * share;
  return `${hundredths > 0 && hundredths < 10 ? hundredths.toFixed(1) : Math.floor(hundredths)} %`;
};
export const money = (dollars) => (dollars === null || dollars === undefined ? "–" : `$${dollars >= 1 ? dollars.toFixed(2) : Number(dollars.toPrecision(3))}`);
export function span(milliseconds) {
  for (const [size, unit] of [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]]) {
    if (milliseconds >= size) return `${Math.floor(milliseconds / size)} ${unit}`;
  }
  return `${Math.max(0, Math.round(milliseconds))} ms`;
}
export const ago = (at, now) => (at ? `${span(now - at)} ago` : "–");
export const until = (at, now) => (at ? (at - now < 1000 ? "now" : `in ${span(at - now)}`) : "");
export const clock = (at) => (at ? new Date(at).toLocaleTimeString("en-GB") : "–");
export const score = (each) => {
  if (each.mean === null) return "–";
  const error = each.standard_error === null ? "" : ` ± ${Number(each.standard_error.toPrecision(2))}`;
  return `${Number(each.mean.toPrecision(4))}${error}`;
};

// A table that keeps its order and its filter while its rows come anew. Columns: {title, of, sort?, number?}
export class Table {
  constructor(target, columns, { empty, filter = false, title = "" }) {
    Object.assign(this, { columns, empty, rows: [], wanted: "", sorted: null });
    this.body = make("tbody");
    this.heads = columns.map((column, number) => make("th", { scope: "col", class: column.number ? "number" : null,
      "data-sortable": Boolean(column.sort), click: () => column.sort && this.sort(number) }, column.title));
    this.table = make("table", { class: "workers-table fairlane-table table table-hover align-middle w-100" },
      make("thead", {}, make("tr", {}, this.heads)), this.body);
    this.none = make("p", { class: "fairlane-empty" }, empty);
    const search = filter && make("div", { class: "fairlane-filter" }, make("input", { type: "search", placeholder: "Filter",
      "aria-label": "Filter", class: "form-control form-control-sm", input: (event) => this.filter(event.target.value) }));
    fill(target, title && make("h2", {}, title), search, make("figure", { class: "table-responsive mb-0" }, this.table), this.none);
  }

  show(rows) {
    this.rows = rows;
    this.draw();
  }

  sort(number) {
    const down = this.sorted?.number === number ? !this.sorted.down : Boolean(this.columns[number].number);
    this.sorted = { number, down };
    this.heads.forEach((head, other) => head.removeAttribute("aria-sort") || (other === number && head.setAttribute("aria-sort", down ? "descending" : "ascending")));
    this.draw();
  }

  filter(text) {
    this.wanted = text.toLowerCase();
    this.draw();
  }

  draw() {
    let shown = [...this.rows];
    if (this.sorted) {
      const { number, down } = this.sorted;
      const key = this.columns[number].sort;
      shown.sort((one, other) => {
        const [a, b] = [key(one) ?? -Infinity, key(other) ?? -Infinity];
        return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
      });
    }
    const lines = shown.map((row) => make("tr", {}, this.columns.map((column) => make("td", { class: column.number ? "number" : null }, column.of(row)))));
    const fitting = this.wanted ? lines.filter((line) => line.textContent.toLowerCase().includes(this.wanted)) : lines;
    this.body.replaceChildren(...fitting);
    this.table.hidden = !this.rows.length;
    this.none.hidden = Boolean(this.rows.length);
  }
}
