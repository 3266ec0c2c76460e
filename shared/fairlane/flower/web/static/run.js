import { buttons } from "./actions.js";
import { badge, card, fill, make } from "./elements.js";
import { follow, link } from "./shared.js";
import { Table } from "./table.js";
import { count, money, percent, score, span, until } from "./words.js";

const page = document.getElementById("run");
const { team, run } = page.dataset;
const at = (name) => document.getElementById(name);
const item = (number) => make("a", { href: link("run", team, run, number) }, String(number));

const lanes = new Table(at("by-lane"), [
  { title: "Lane", sort: (lane) => lane.lane, of: (lane) => make("a", { href: link("lane", lane.lane) }, lane.lane) },
  { title: "Done", number: true, sort: (lane) => lane.done / lane.known, of: (lane) => `${count(lane.done)} of ${count(lane.known)}` },
  { title: "In flight", number: true, sort: (lane) => lane.in_flight, of: (lane) => count(lane.in_flight) },
  { title: "Queued", number: true, sort: (lane) => lane.queued, of: (lane) => count(lane.queued) },
  { title: "Retry later", number: true, sort: (lane) => lane.delayed, of: (lane) => count(lane.delayed) },
  { title: "Why it waits", sort: (lane) => lane.why, of: (lane) => lane.why || "" },
], { empty: "This run has no job on a lane yet.", key: (lane) => lane.lane, title: "Jobs by lane" });
const scores = new Table(at("scores"), [
  { title: "Evaluator", sort: (each) => each.name, of: (each) => each.name },
  { title: "Mean ± standard error", number: true, sort: (each) => each.mean, of: score },
  { title: "Lowest", number: true, sort: (each) => each.minimum, of: (each) => each.minimum ?? "–" },
  { title: "Highest", number: true, sort: (each) => each.maximum, of: (each) => each.maximum ?? "–" },
  { title: "Items scored", number: true, sort: (each) => each.count, of: (each) => count(each.count) },
  { title: "Without a score", number: true, sort: (each) => each.missing, of: (each) => count(each.missing) },
], { empty: "This run has no scores.", key: (each) => each.name, title: "Scores so far" });
const failures = new Table(at("failures"), [
  { title: "Step", sort: (each) => each.step, of: (each) => each.step },
  { title: "Error", sort: (each) => each.error, of: (each) => each.error },
  { title: "Items", number: true, sort: (each) => each.count, of: (each) => count(each.count) },
  { title: "First item", number: true, sort: (each) => each.item, of: (each) => item(each.item) },
], { empty: "Nothing has failed.", title: "Failures by error" });
const slowest = new Table(at("slowest"), [
  { title: "Item", number: true, sort: (call) => call.item, of: (call) => item(call.item) },
  { title: "Took", number: true, sort: (call) => call.latency_ms, of: (call) => `${count(call.latency_ms)} ms` },
  { title: "Model", sort: (call) => call.model, of: (call) => call.model },
  { title: "Attempts", number: true, sort: (call) => call.attempts, of: (call) => count(call.attempts) },
], { empty: "No call has ended yet.", title: "Slowest calls" });
const spending = new Table(at("spending"), [
  { title: "Model", sort: (each) => each.model, of: (each) => each.model },
  { title: "For", sort: (each) => each.role, of: (each) => each.role },
  { title: "Calls", number: true, sort: (each) => each.calls, of: (each) => count(each.calls) },
  { title: "Input tokens", number: true, sort: (each) => each.input_tokens, of: (each) => count(each.input_tokens) },
  { title: "Output tokens", number: true, sort: (each) => each.output_tokens, of: (each) => count(each.output_tokens) },
  { title: "Cost", number: true, sort: (each) => each.cost_usd, of: (each) => money(each.cost_usd) },
], { empty: "No tokens have been counted yet.", title: "Tokens and cost" });

function left(data) {
  if (data.over) return data.finished_at && data.started_at ? `took ${span(Date.parse(data.finished_at) - Date.parse(data.started_at))}` : "";
  if (!data.eta_ms) return "";
  return `${data.eta_at_least ? "at least " : ""}${until(data.eta_ms, data.now_ms).replace("in ", "")} left`;
}

const again = follow(link("fairlane", "data", "run", team, run), (data) => {
  at("name").textContent = data.name === run ? run : `${data.name} (${run})`;
  fill(at("actions"), "readOnly" in page.dataset ? [] : buttons(data, () => again()));
  const by = data.by_state;
  fill(at("cards"),
    card("State", badge(data.state), data.paused_by ? `by ${data.paused_by}` : data.reason || (data.held ? "held by refusals" : "")),
    card("Progress", percent(data.progress), left(data)),
    card("Jobs", `${count(data.jobs_done)} / ${count(data.jobs)}`, `${count(data.items_done)} of ${count(data.items)} items`),
    card("In flight", count(data.in_flight), "", "metric-card-active"),
    card("Succeeded", count(by.succeeded || 0), "", "metric-card-success"),
    card("Failed", count((by.failed || 0) + (by.invalid || 0)), ["invalid", "skipped", "cancelled", "timed_out"].filter((state) => by[state]).map((state) => `${count(by[state])} ${state.replace("_", " ")}`).join(", "), data.failed ? "metric-card-danger" : ""),
    card("Retries", count(data.retries), `${count(data.rate_limits)} × 429`),
    card("Cost", money(data.cost_usd), data.summed < data.items_done ? `of ${count(data.summed)} items` : ""));
  const progress = at("progress");
  progress.setAttribute("aria-valuenow", Math.floor(100 * data.progress));
  progress.firstElementChild.style.width = `${100 * data.progress}%`;
  at("why").hidden = !data.why;
  at("why").textContent = data.why || "";
  at("rejected").hidden = !data.rejected_by.length;
  fill(at("rejected"), ...data.rejected_by.map((each) =>
    make("p", { class: "fairlane-why" }, `${each.lane} rejected the run's first calls alike: ${each.words}`)));
  lanes.show(data.lanes);
  scores.show(data.scores);
  failures.show(data.failures);
  slowest.show(data.slowest);
  spending.show(data.spending);
});

at("find").addEventListener("submit", (event) => {
  event.preventDefault();
  if (at("item").value) window.location.assign(link("run", team, run, at("item").value));
});
