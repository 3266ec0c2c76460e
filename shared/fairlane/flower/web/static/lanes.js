import { badge, make } from "./elements.js";
import { follow, link } from "./shared.js";
import { Table } from "./table.js";
import { count, percent, rate, until } from "./words.js";

let now = 0;
const teams = (waiting) => Object.entries(waiting).map(([team, jobs]) => `${team} ${count(jobs)}`).join(", ");
const total = (lane) => Object.values(lane.waiting).reduce((sum, jobs) => sum + jobs, 0);

const table = new Table(document.getElementById("lanes"), [
  { title: "Lane", sort: (lane) => lane.lane, of: (lane) => make("a", { href: link("lane", lane.lane) }, lane.lane) },
  { title: "State", sort: (lane) => lane.state, of: (lane) => badge(lane.state) },
  { title: "Allowed/min", number: true, sort: (lane) => lane.allowed_per_minute,
    of: (lane) => [lane.allowed_per_minute === null ? "" : rate(lane.allowed_per_minute), " ", make("small", {}, lane.source)] },
  { title: "Used/min", number: true, sort: (lane) => lane.used_per_minute, of: (lane) => count(lane.used_per_minute) },
  { title: "In flight", number: true, sort: (lane) => lane.in_flight,
    of: (lane) => count(lane.in_flight) + (lane.window === null ? "" : ` / ${count(lane.window)}`) },
  { title: "Waiting", number: true, sort: total, of: (lane) => [count(total(lane)), " ", make("small", {}, teams(lane.waiting))] },
  { title: "429s", number: true, sort: (lane) => lane.rejected_share, of: (lane) => percent(lane.rejected_share) },
  { title: "Errors", number: true, sort: (lane) => lane.failed_share,
    of: (lane) => [percent(lane.failed_share), " ", lane.failed_share ? make("small", {}, lane.last_error ?? "") : ""] },
  { title: "Circuit", sort: (lane) => lane.circuit, of: (lane) => lane.circuit },
  { title: "Limited by", sort: (lane) => lane.constraint_until_ms,
    of: (lane) => (lane.constraint_sentence ? [lane.constraint_sentence, make("small", {}, lane.constraint_until_ms ? `it ends ${until(lane.constraint_until_ms, now)}` : "")] : "") },
], { filter: true, key: (lane) => lane.lane, empty: "No lane has been used yet: lanes come with the first run." });

follow(link("fairlane", "data", "lanes"), (data) => {
  now = data.now_ms;
  table.show(data.lanes);
});
