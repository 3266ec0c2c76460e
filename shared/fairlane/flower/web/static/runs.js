import { buttons } from "./actions.js";
import { badge, bar, fill, make } from "./elements.js";
import { follow, link } from "./shared.js";
import { Table } from "./table.js";
import { ago, count, money, percent, score, until } from "./words.js";

let now = 0;
const page = Math.max(1, Number.parseInt(new URLSearchParams(window.location.search).get("page"), 10) || 1);
const target = document.getElementById("runs");
const readOnly = "readOnly" in target.dataset;

const table = new Table(target, [
  { title: "Run", sort: (run) => run.run, of: (run) => [make("a", { href: link("run", run.team, run.run) }, run.run), " ",
    make("small", {}, run.name === run.run ? "" : run.name)] },
  { title: "Team", sort: (run) => run.team, of: (run) => run.team },
  { title: "State", sort: (run) => run.state, of: (run) => badge(run.state) },
  { title: "Progress", sort: (run) => run.progress, of: (run) => [bar(run.progress), make("small", {}, `${percent(run.progress)} of ${count(run.jobs)}`)] },
  { title: "Left", number: true, sort: (run) => run.eta_ms, of: (run) => (run.over ? "" : run.eta_ms ? until(run.eta_ms, now).replace("in ", "") : "–") },
  { title: "Failed", number: true, sort: (run) => run.failed, of: (run) => make("span", { class: run.failed ? "text-danger-emphasis fw-semibold" : null }, count(run.failed)) },
  { title: "Scores", sort: (run) => run.scores[0]?.mean, of: (run) => run.scores.map((each) => make("div", {}, make("small", {}, `${each.name} `), score(each))) },
  { title: "Cost", number: true, sort: (run) => run.cost_usd, 
    of: (run) => [money(run.cost_usd), make("small", {}, run.summed < run.items_done ? `of ${count(run.summed)} items so far` : "")] },
  { title: "Submitted", number: true, sort: (run) => run.submitted_at, of: (run) => ago(Date.parse(run.submitted_at), now) },
  ...(readOnly ? [] : [{ title: "Actions", quiet: true, of: (run) => make("div", { class: "btn-group" }, buttons(run, () => again())) }]),
], { filter: true, key: (run) => `${run.team}/${run.run}`, empty: page === 1 ? "No run has been submitted yet." : "There is no run on this page." });

const way = (to, words) => make("a", { class: "btn btn-sm btn-outline-secondary", href: `${link("runs")}?page=${to}`, "data-key": words }, words);

function turn(pages) {
  const places = document.getElementById("pages");
  places.hidden = pages === 1 && page === 1;
  fill(places, page > 1 && way(Math.min(page - 1, pages), "Newer"), make("span", {}, `Page ${count(page)} of ${count(pages)}`), page < pages && way(page + 1, "Older"));
}

const again = follow(`${link("fairlane", "data", "runs")}?page=${page}`, (data) => {
  now = data.now_ms;
  table.show(data.runs);
  turn(data.pages);
});
