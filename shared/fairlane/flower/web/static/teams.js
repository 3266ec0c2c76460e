import { badge, bar, fill, make } from "./elements.js";
import { follow, link } from "./shared.js";
import { Table } from "./table.js";
import { count, money, percent } from "./words.js";

const amount = (budget, number) => (budget.unit === "usd" ? money(number) : `${count(number)} ${budget.unit}`);
const drawn = new Map();

function begin(team) {
  const [head, lanes, budgets] = [make("div", { class: "fairlane-team-head" }), make("div"), make("div")];
  const section = make("section", { class: "detail-card fairlane-team", "aria-label": `Team ${team}` }, head, lanes, budgets);
  return {
    section, head, budgets,
    lanes: new Table(lanes, [
      { title: "Lane", sort: (lane) => lane.lane, of: (lane) => make("a", { href: link("lane", lane.lane) }, lane.lane) },
      { title: "Share", number: true, sort: (lane) => lane.share, of: (lane) => percent(lane.share) },
      { title: "Use", number: true, sort: (lane) => lane.use, of: (lane) => percent(lane.use) },
      { title: "Use as a bar", quiet: true, of: (lane) => (lane.use === null ? "" : bar(lane.use, lane.use > lane.share + 0.02 ? "bg-warning" : "bg-success")) },
      { title: "Calls ended", number: true, sort: (lane) => lane.ended, of: (lane) => count(lane.ended) },
      { title: "In flight", number: true, sort: (lane) => lane.in_flight, of: (lane) => count(lane.in_flight) },
      { title: "Waiting", number: true, sort: (lane) => lane.waiting, of: (lane) => count(lane.waiting) },
    ], { empty: "This team has used no lane in the last minute.", key: (lane) => lane.lane }),
    budget: new Table(budgets, [
      { title: "Budget", sort: (budget) => budget.lane, of: (budget) => `${amount(budget, budget.most)} a ${budget.per}${budget.lane === "*" ? "" : ` on ${budget.lane}`}` },
      { title: "Used", number: true, sort: (budget) => budget.share, of: (budget) => amount(budget, budget.used) },
      { title: "Used, as a bar", quiet: true, of: (budget) => [bar(budget.share, budget.state === "used_up" ? "bg-danger" : budget.state === "nearly_used" ? "bg-warning" : "bg-success"),
        make("small", {}, percent(budget.share))] },
      { title: "State", sort: (budget) => budget.state, of: (budget) => badge(budget.state) },
      { title: "Renews", sort: (budget) => budget.end, of: (budget) => budget.end },
    ], { empty: "" }),
  };
}

follow(link("fairlane", "data", "teams"), (data) => {
  for (const team of data.teams) {
    if (!drawn.has(team.team)) drawn.set(team.team, begin(team.team));
    const here = drawn.get(team.team);
    const bounds = [team.kept_percent ? `${team.kept_percent} % of its share kept for it` : "", team.max_percent ? `at most ${team.max_percent} % of a lane` : ""];
    fill(here.head, make("h2", {}, team.team), make("span", {}, `weight ${team.weight}`),
      make("span", {}, `${count(team.active_runs)} active run${team.active_runs === 1 ? "" : "s"}`, team.paused_runs ? `, ${count(team.paused_runs)} paused` : ""),
      make("span", {}, `${count(team.in_flight)} in flight, ${count(team.waiting)} waiting`), ...bounds.filter(Boolean).map((words) => make("span", {}, words)));
    here.lanes.show(team.lanes);
    here.budget.show(team.budgets);
    here.budgets.hidden = !team.budgets.length;
  }
  const none = make("p", { class: "fairlane-empty" }, "No team has submitted anything yet.");
  const sections = data.teams.map((team) => drawn.get(team.team).section);
  const target = document.getElementById("teams");
  if (!sections.length) target.replaceChildren(none);
  else if (target.childElementCount !== sections.length || sections.some((section, n) => target.children[n] !== section)) target.replaceChildren(...sections);
});
