import { badge, card, fill } from "./elements.js";
import { follow, link } from "./shared.js";
import { Table } from "./table.js";
import { ago, clock, count, percent, rate, span, until } from "./words.js";

const page = document.getElementById("lane");
const lane = page.dataset.lane;
let reach = "fine";
let charts = null;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const axes = new Table(document.getElementById("axes"), [
  { title: "Limit of", sort: (axis) => axis.unit, of: (axis) => axis.unit },
  { title: "Limit in use", of: (axis) => axis.words },
  { title: "Configured", number: true, sort: (axis) => axis.configured, of: (axis) => rate(axis.configured) },
  { title: "Reported by headers", number: true, sort: (axis) => axis.reported, of: (axis) => rate(axis.reported) },
  { title: "Learned from 429s", number: true, sort: (axis) => axis.probed, of: (axis) => (axis.probed === null ? "–" : rate(axis.probed) + (axis.uncertainty ? ` ± ${rate(axis.uncertainty)}` : "")) },
  { title: "Left now", number: true, sort: (axis) => axis.left, of: (axis) => rate(axis.left) },
  { title: "Shape", of: (axis) => axis.shape },
], { empty: "", title: "Limits" });
const waiting = new Table(document.getElementById("waiting"), [
  { title: "Team", sort: ([team]) => team, of: ([team]) => team },
  { title: "Waiting", number: true, sort: ([, jobs]) => jobs, of: ([, jobs]) => count(jobs) },
], { empty: "Nothing waits here.", title: "Waiting by team" });

function plot(target, height, series, top) {
  const text = color("--bs-body-color");
  const grid = { stroke: color("--bs-border-color"), width: 1 };
  return new uPlot({
    width: target.clientWidth || 600, height, series: [{}, ...series],
    legend: { live: false },
    axes: [{ stroke: text, grid, ticks: grid, values: (_, moments) => moments.map((at) => clock(1000 * at).slice(0, 5)) }, { stroke: text, grid, ticks: grid, size: 60 }],
    scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(top, high * 1.1)] } },
    cursor: { drag: { x: false, y: false } },
  }, series.map(() => []).concat([[]]), target);
}

function begin() {
  const places = ["rates", "counts"].map((name) => document.getElementById(name));
  places.forEach((place) => place.replaceChildren());
  const line = (label, name, more = {}) => ({ label, stroke: color(name), width: 2, points: { show: false }, ...more });
  charts = {
    rates: plot(places[0], 260, [
      line("limit", "--flower-text-muted", { dash: [6, 4] }),
      line("admitted", "--flower-active", { fill: `${color("--flower-active")}22` }),
      line("rejected (429)", "--flower-danger"),
    ], 1),
    counts: plot(places[1], 140, [line("in flight", "--flower-success"), line("waiting", "--flower-warning")], 4),
  };
  window.fairlaneCharts = charts;
}

function draw(data) {
  const chart = data.chart;
  const from = data.now_ms / 1000 - (reach === "fine" ? 900 : 86400);
  charts.rates.setData([chart.at, chart.limit, chart.admitted, chart.refused], false);
  charts.counts.setData([chart.at, chart.in_flight, chart.waiting], false);
  for (const each of Object.values(charts)) each.batch(() => each.setScale("x", { min: from, max: data.now_ms / 1000 }));
  const jobs = Object.values(data.waiting).reduce((sum, some) => sum + some, 0);
  fill(document.getElementById("cards"),
    card("State", badge(data.state), data.blocked_until_ms ? `blocked: it ends ${until(data.blocked_until_ms, data.now_ms)}` : data.circuit === "closed" ? "" : `circuit ${data.circuit}`),
    card("Allowed a minute", data.allowed_per_minute === null ? "no limit" : rate(data.allowed_per_minute), data.source),
    card("Used in the last minute", count(data.used_per_minute), "calls admitted", "metric-card-active"),
    card("In flight", count(data.in_flight) + (data.window === null ? "" : ` / ${count(data.window)}`), data.window_source || `${count(data.slots)} workers' slots`),
    card("Waiting", count(jobs), "jobs ready to start"),
    card("429s in 15 min", percent(data.rejected_share), `${count(data.rate_limits)} of ${count(data.granted)} in all`, data.rejected_share ? "metric-card-danger" : ""),
    card("Errors", percent(data.failed_share), `${count(data.failed)} of ${count(data.succeeded + data.failed + data.rate_limits)} ended calls; 429s do not count`, data.failed ? "metric-card-danger" : ""),
    card("A call takes", data.latency_ms === null ? "–" : span(data.latency_ms), data.ramp < 1 ? `ramp: ${percent(data.ramp)} of its rate` : ""));
  const last = document.getElementById("last-error");
  last.hidden = !data.last_error;
  last.textContent = data.last_error ? `Last error, ${ago(data.last_error_ms, data.now_ms)}: ${data.last_error}` : "";
  const why = document.getElementById("why");
  why.hidden = !data.constraint_sentence;
  why.textContent = data.constraint_sentence || "";
  axes.show(data.axes.filter((axis) => axis.axis === "requests" || axis.allowed !== null || axis.configured !== null));
  waiting.show(Object.entries(data.waiting));
}

begin();
const again = follow(() => `${link("fairlane", "data", "lane", lane)}?span=${reach}`, draw);
page.querySelectorAll("[data-span]").forEach((button) => button.addEventListener("click", () => {
  page.querySelectorAll("[data-span]").forEach((other) => {
    other.classList.toggle("active", other === button);
    other.setAttribute("aria-pressed", String(other === button));
  });
  reach = button.dataset.span;
  again();
}));
new MutationObserver(() => { begin(); again(); }).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
window.addEventListener("resize", () => {
  for (const each of Object.values(charts)) each.setSize({ width: each.root.parentElement.clientWidth || 600, height: each.height });
});
