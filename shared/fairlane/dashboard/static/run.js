import { Table, badge, card, count, fill, follow, link, make, money, percent, score, span, until } from "./shared.js";
import { buttons } from "./actions.js";

const page = document.getElementById("run");
const { team, run } = page.dataset;
const at = (name) => document.getElementById(name);
const item = (number) => make("a", { href: link("run", team, run, number) }, String(number));

const lanes = new Table(at("by-lane"), [
  { title: "Lane", of: (lane) => make("a", { href: link("lane", lane.lane) }, lane.lane) },
  { title: "Done", number: true, of: (lane) => `${count(lane.done)} of ${count(lane.known)}` },
  { title: "In flight", number: true, of: (lane) => count(lane.in_flight) },
  { title: "Queued", number: true, of: (lane) => count(lane.queued) },
  { title: "Retry later", number: true, of: (lane) => count(lane.delayed) },
  { title: "Why it waits", of: (lane) => lane.why || "" },
], { empty: "It has no job on any lane yet.", title: "Jobs by lane" });
const scores = new Table(at("scores"), [
  { title: "Evaluator", of: (each) => each.name },
  { title: "Mean ± standard error", number: true, of: score },
  { title: "Least", number: true, of: (each) => each.minimum ?? "–" },
  { title: "Most", number: true, of: (each) => each.maximum ?? "–" },
  { title: "Items scored", number: true, of: (each) => count(each.count) },
  { title: "Without", number: true, of: (each) => count(each.missing) },
], { empty: "It has no scores.", title: "Scores so far" });
const failures = new Table(at("failures"), [
  { title: "Step", sort: (each) => each.step, of: (each) => each.step },
  { title: "Error", sort: (each) => each.error, of: (each) => each.error },
  { title: "Items", number: true, sort: (each) => each.count, of: (each) => count(each.count) },
  { title: "First", number: true, of: (each) => item(each.item) },
], { empty: "Nothing has failed.", title: "Failures by error" });
const slowest = new Table(at("slowest"), [
  { title: "Item", number: true, of: (call) => item(call.item) },
  { title: "Took", number: true, of: (call) => `${count(call.latency_ms)} ms` },
  { title: "Model", of: (call) => call.model },
  { title: "Attempts", number: true, of: (call) => count(call.attempts) },
], { empty: "No call has ended yet.", title: "Slowest calls" });
const spending = new Table(at("spending"), [
  { title: "Model", of: (each) => each.model },
  { title: "For", of: (each) => each.role },
  { title: "Calls", number: true, of: (each) => count(each.calls) },
  { title: "Input tokens", number: true, of: (each) => count(each.input_tokens) },
  { title: "Output tokens", number: true, of: (each) => count(each.output_tokens) },
  { title: "Cost", number: true, of: (each) => money(each.cost_usd) },
], { empty: "No tokens have been counted yet.", title: "Tokens and cost" });

function left(told) {
  if (told.over) return told.finished_ms && told.started_ms ? `took ${span(told.finished_ms - told.started_ms)}` : "";
  if (!told.eta_ms) return "";
  return `${told.eta_at_least ? "at least " : ""}${until(told.eta_ms, told.now_ms).replace("in ", "")} left`;
}

const again = follow(link("fairlane", "data", "run", team, run), (told) => {
  at("name").textContent = told.name === run ? run : `${told.name} (${run})`;
  fill(at("actions"), "readOnly" in page.dataset ? [] : buttons(told, () => again()));
  const by = told.by_state;
  fill(at("cards"),
    card("State", badge(told.state), told.paused_by ? `by ${told.paused_by}` : told.reason || ""),
    card("Progress", percent(told.progress), left(told)),
    card("Jobs", `${count(told.jobs_done)} / ${count(told.jobs)}`, `${count(told.items_done)} of ${count(told.items)} items`),
    card("In flight", count(told.in_flight), "", "metric-card-active"),
    card("Succeeded", count(by.succeeded || 0), "", "metric-card-success"),
    card("Failed", count((by.failed || 0) + (by.invalid || 0)), ["invalid", "skipped", "cancelled", "timed_out"].filter((state) => by[state]).map((state) => `${count(by[state])} ${state.replace("_", " ")}`).join(", "), told.failed ? "metric-card-danger" : ""),
    card("Retries", count(told.retries), `${count(told.rate_limits)} × 429`),
    card("Cost", money(told.cost_usd), told.summed < told.items_done ? `of ${count(told.summed)} items` : ""));
  const progress = at("progress");
  progress.setAttribute("aria-valuenow", Math.floor(100 * told.progress));
  progress.firstElementChild.style.width = `${100 * told.progress}%`;
  at("why").hidden = !told.why;
  at("why").textContent = told.why || "";
  lanes.show(told.lanes);
  scores.show(told.scores);
  failures.show(told.failures);
  slowest.show(told.slowest);
  spending.show(told.spending);
});

at("find").addEventListener("submit", (event) => {
  event.preventDefault();
  if (at("item").value) window.location.assign(link("run", team, run, at("item").value));
});
