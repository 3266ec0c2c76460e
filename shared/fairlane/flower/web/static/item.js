import { badge, card, fill, make } from "./elements.js";
import { follow, link } from "./shared.js";
import { Table } from "./table.js";
import { clock, count, span } from "./words.js";

const page = document.getElementById("item");
const { team, run, item } = page.dataset;
const at = (name) => document.getElementById(name);

function attempts(step) {
  const target = make("div");
  const table = new Table(target, [
    { title: "Attempt", number: true, of: (seen) => make("a", { href: link("task", seen.task) }, String(seen.number)) },
    { title: "Lane", of: (seen) => (seen.lane ? make("a", { href: link("lane", seen.lane) }, seen.lane) : "–") },
    { title: "Worker", of: (seen) => seen.worker || "–" },
    { title: "Waited", number: true, of: (seen) => (seen.waited_s === null ? "" : span(1000 * seen.waited_s)) },
    { title: "Began", number: true, of: (seen) => clock(1000 * (seen.started || seen.received)) },
    { title: "Took", number: true, of: (seen) => (seen.runtime_s === null ? "–" : span(1000 * seen.runtime_s)) },
    { title: "Outcome", of: (seen) => seen.outcome || seen.state.toLowerCase() },
  ], { empty: "Flower has seen no attempt since it started.", title: "", key: (seen) => seen.task });
  table.show(step.seen);
  return target;
}

function facts(step) {
  const known = [
    step.lane && ["lane", make("a", { href: link("lane", step.lane) }, step.lane)],
    step.attempts !== undefined && ["attempts used", count(step.attempts)],
    step.worker && ["at worker", step.worker],
    step.latency_ms && ["last call took", `${count(step.latency_ms)} ms`],
    step.input_tokens !== undefined && step.input_tokens !== null && ["tokens", `${count(step.input_tokens)} in, ${count(step.output_tokens)} out`],
    step.characters && ["answer", `${count(step.characters)} characters${step.finish_reason ? `, ${step.finish_reason}` : ""}`],
    step.cached && ["cached", "yes"],
    step.score !== undefined && ["score", step.score === null ? "none" : String(step.score)],
    ...Object.entries(step.scores || {}).map(([name, value]) => [name, value === null ? `none: ${step.score_errors[name] || ""}` : String(value)]),
    step.error && ["error", step.error],
    step.why && ["waits because", step.why],
  ].filter(Boolean);
  return make("dl", { class: "detail-list" }, known.map(([name, value]) => make("div", { class: "detail-row" }, make("dt", {}, name), make("dd", {}, value))));
}

function drawn(step) {
  const text = step.text ? make("pre", { class: "fairlane-text" }, step.text) : null;
  return make("section", { class: "detail-card", "aria-label": step.name, "data-key": step.name },
    make("h2", {}, `${step.name} `, badge(step.state)), facts(step), text, attempts(step));
}

follow(link("fairlane", "data", "run", team, run, item), (data) => {
  fill(at("cards"),
    card("State", badge(data.state), `item ${count(data.item)} of ${count(data.items)}`),
    card("Model", data.model || "–"),
    card("Row", count(data.row_number), `prompt ${data.prompt_number}, repetition ${data.repetition}`));
  fill(at("steps"), data.steps.map(drawn));
  fill(at("texts"), data.row ? make("section", { class: "detail-card", "aria-label": "Row" }, make("h2", {}, "Row"),
    make("pre", { class: "fairlane-text" }, JSON.stringify(data.row, null, 2))) : null);
});
