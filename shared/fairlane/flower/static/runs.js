import { Table, ago, badge, bar, count, follow, link, make, money, percent, score, until } from "./shared.js";
import { buttons } from "./actions.js";

let now = 0;
const target = document.getElementById("runs");
const readOnly = "readOnly" in target.dataset;

const table = new Table(target, [
  { title: "Run", sort: (run) => run.run, of: (run) => [make("a", { href: link("run", run.team, run.run) }, run.run), " ",
    make("small", {}, run.name === run.run ? "" : run.name)] },
  { title: "Team", sort: (run) => run.team, of: (run) => run.team },
  { title: "State", sort: (run) => run.state, of: (run) => badge(run.state) },
  { title: "Progress", sort: (run) => run.progress, of: (run) => [bar(run.progress), make("small", {}, `${percent(run.progress)} of ${count(run.jobs)}`)] },
  { title: "Left", number: true, sort: (run) => run.eta_ms, of: (run) => (run.over ? "" : run.eta_ms ? until(run.eta_ms, now).replace("in ", "") : "–") },
  { title: "Failed", number: true, sort: (run) => run.failed, of: (run) => count(run.failed) },
  { title: "Scores", of: (run) => run.scores.map((each) => make("div", {}, make("small", {}, `${each.name} `), score(each))) },
  { title: "Cost", number: true, sort: (run) => run.cost_usd, 
    of: (run) => [money(run.cost_usd), make("small", {}, run.summed < run.items_done ? `of ${count(run.summed)} items so far` : "")] },
  { title: "Submitted", number: true, sort: (run) => run.submitted_at, of: (run) => ago(Date.parse(run.submitted_at), now) },
  ...(readOnly ? [] : [{ title: "", of: (run) => make("div", { class: "btn-group" }, buttons(run, () => again())) }]),
], { filter: true, empty: "No run has been submitted yet." });

const again = follow(link("fairlane", "data", "runs"), (data) => {
  now = data.now_ms;
  table.show(data.runs);
});
