"""Reads one run in full: its jobs by lane, what they wait for, failures, and the slowest calls."""

from dataclasses import asdict
from typing import Any

from fairlane.cli.output import fields_of
from fairlane.client.deployment import Deployment
from fairlane.flower.readings.error_words import errors_of
from fairlane.flower.readings.run_list import RunList, scores_shown
from fairlane.flower.readings.tallies import Tallies
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.run_status import RunStatus
from fairlane.why.waiting import LaneWait

SUMMED_AT_ONCE = 2_000
"""Items that one request for a run adds to its sums."""

FAILURES_SHOWN = 100


class RunPage:
    """Reads one run. What it returns is ready for JSON; times are server milliseconds."""

    def __init__(self, deployment: Deployment, runs: RunList, tallies: Tallies, *, show_text: bool) -> None:
        self._deployment, self._runs, self._tallies = deployment, runs, tallies
        self._show_text = show_text

    def of(self, team: str, run: str) -> dict[str, Any]:
        """The page of a run. Raises `RunNotFound`."""
        ref = RunRef(team, run)
        status, spec = self._runs.look(ref)
        now_ms = self._deployment.now_ms()
        sums = self._tallies.advance(ref, spec, status.state, SUMMED_AT_ONCE) if spec is not None else None
        found = self._runs.row(status, sums, now_ms) | {
            "now_ms": now_ms,
            "why": None,
            "held": _holds(status, spec),
            "consists_of": _composition(spec) if spec else None,
            "failures": [],
            "slowest": [],
            "spending": [],
        }
        if not status.state.finished:
            found |= self._waits(status)
        else:
            found["scores"] += self._client_scores(ref, {each["name"] for each in found["scores"]})
        if sums is not None:
            shown = errors_of((part.lane for part in status.lanes), show_text=self._show_text)
            failures = sums.summary.failures[:FAILURES_SHOWN]
            found["failures"] = [asdict(each) | {"error": shown(each.error)} for each in failures]
            found["slowest"] = [call._asdict() for call in sums.slowest]
            spent = (("task", sums.summary.tasks), ("evaluation", sums.summary.evaluations))
            found["spending"] = [asdict(each) | {"role": role} for role, some in spent for each in some]
            found["scores_by_model"] = {
                model: {name: score.mean for name, score in scores.items()}
                for model, scores in sums.summary.scores_by_model.items()
            }
        return found

    def _client_scores(self, ref: RunRef, known: set[str]) -> list[dict[str, Any]]:
        """Scores that clients have reported, except under names of stored scores."""
        reported = self._deployment.runs.client_scores(ref)
        return scores_shown({name: each for name, each in reported.items() if name not in known})

    def _waits(self, status: RunStatus) -> dict[str, Any]:
        """What the run and each of its lanes wait for, as in `fairlane why`."""
        here, team = self._deployment, status.team
        waiting = here.explainer(team, here.shares([team])).why(status.run)
        parts = {part.lane: part for part in waiting.lanes}
        return {
            "why": waiting.sentence,
            "why_until_ms": waiting.until_ms,
            "eta_ms": waiting.eta.at_ms,
            "eta_at_least": waiting.eta.at_least,
            "lanes": [
                {"lane": part.lane, "known": part.known, "done": part.done}
                | (_wait(parts[part.lane]) if part.lane in parts else {})
                for part in status.lanes
            ],
        }


def _holds(status: RunStatus, spec: RunSpec | None) -> bool:
    """Whether refusals hold jobs of the run until it is resumed."""
    holds = spec is not None and spec.bounds.on_refusal == "hold"
    return holds and bool(status.rejections) and not status.state.finished


def _wait(part: LaneWait) -> dict[str, Any]:
    own = fields_of(part, "queued", "in_flight", "delayed", "unfed", "until_ms")
    return own | {"why": part.sentence}


def _composition(spec: RunSpec) -> dict[str, Any]:
    """The composition of its items, without any of their texts."""
    return {
        "rows": spec.rows,
        "prompts": len(spec.prompts),
        "models": list(spec.models),
        "repetitions": spec.repetitions,
        "evaluators": [each.name for each in spec.evaluators],
        "priority": spec.priority,
    }
