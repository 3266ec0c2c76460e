import { make } from "./elements.js";
import { ask, link, warn } from "./shared.js";

const VERBS = [
  ["pause", "Pause", "btn-outline-secondary", (run) => run.state === "running"],
  ["resume", "Resume", "btn-outline-secondary", (run) => run.state === "paused"],
  ["cancel", "Cancel", "btn-outline-danger", () => true],
];

// Buttons for what may be asked of a run now; `done` is called once the scheduler was asked.
export function buttons(run, done) {
  if (run.over) return [];
  return VERBS.filter(([, , , fits]) => fits(run)).map(([verb, title, kind]) => make("button", {
    type: "button", class: `btn btn-sm ${kind}`, "data-verb": verb, "data-key": verb,
    click: async (event) => {
      if (verb === "cancel" && !window.confirm(`Cancel run ${run.run} of team ${run.team}? What is done stays.`)) return;
      event.target.disabled = true;
      try {
        await ask(link("fairlane", "run", run.team, run.run, verb));
      } catch (error) {
        warn(`${error.message}. Nothing was changed.`);
        event.target.disabled = false;
        return;
      }
      done();
    },
  }, title));
}
