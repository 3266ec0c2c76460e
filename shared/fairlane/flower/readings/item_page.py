"""Reads one item's history: its steps, their lanes, what they wait for and their results."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from fairlane.client.deployment import Deployment
from fairlane.core.errors import RunNotFound, TargetNotFound
from fairlane.flower.readings.error_words import errors_of
from fairlane.flower.readings.run_list import RunList
from fairlane.model.record import Record
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import Plan, RunRef, RunSpec, cell_of
from fairlane.model.run_status import RunStatus
from fairlane.model.tokens import Usage
from fairlane.store.read.job_waits import RunTraces
from fairlane.store.run_queries import RunQueries
from fairlane.why.targets import existing_item

Shown: TypeAlias = Callable[[str], str]
"""Formats an error for a page."""


class ItemPage:
    """Reads one item. What it returns is ready for JSON; texts are in it only with ``show_text``."""

    def __init__(self, deployment: Deployment, runs: RunList, *, show_text: bool) -> None:
        self._deployment, self._runs, self._show_text = deployment, runs, show_text

    def of(self, team: str, run: str, item: int) -> dict[str, Any]:
        """The page of an item. Raises `RunNotFound` and `TargetNotFound`."""
        ref, here = RunRef(team, run), self._deployment
        status, spec = self._runs.look(ref)
        if spec is None:
            raise RunNotFound(run)
        existing_item(f"{run}/{item}", item, status)
        cell = cell_of(spec, item)
        jobs = range(item * spec.steps, (item + 1) * spec.steps)
        stored = RunQueries(here.redis, here.keys).results(ref, jobs)
        record = self._record(spec, item) if all(stored) or status.state.finished else None
        plan = RunTraces(here.redis, here.keys, ref).plan()
        steps = [
            self._step(status, spec, plan, jobs[number], text, record) for number, text in enumerate(stored)
        ]
        return {
            "team": team,
            "run": run,
            "name": status.name,
            "item": item,
            "items": status.items,
            "row_number": cell.row,
            "prompt_number": cell.prompt,
            "repetition": cell.repetition,
            "model": record.model if record else spec.models[cell.model] if spec.models else "",
            "state": str(record.state) if record else "open",
            "steps": steps,
            "show_text": self._show_text,
            "row": dict(record.row) if record and self._show_text else None,
            "now_ms": self._deployment.now_ms(),
        }

    def _record(self, spec: RunSpec, item: int) -> Record | None:
        try:
            return self._deployment.records(spec).records([item])[0]
        except RunNotFound:
            return None

    def _step(
        self,
        status: RunStatus,
        spec: RunSpec,
        plan: Plan | None,
        job: int,
        stored: bytes | None,
        record: Record | None,
    ) -> dict[str, Any]:
        number = job % spec.steps
        name = "task" if number == 0 else spec.evals[number - 1].name
        found: dict[str, Any] = {
            "step": number,
            "job": job,
            "name": name,
            "lane": plan.eval_lanes[number - 1] if plan and number else self._lane_of(spec, job),
            "state": "open",
            "why": None,
        }
        if stored:
            shown = errors_of((part.lane for part in status.lanes), show_text=self._show_text)
            return found | (self._task(stored, shown) if number == 0 else self._evaluation(stored, shown))
        if record is not None:
            return found | _of_record(record, number, name)
        return found | (self._waiting(status, job, spec.steps) if not status.state.finished else {})

    def _lane_of(self, spec: RunSpec, job: int) -> str | None:
        """The lane of a task, if its model is known before rendering."""
        cell = cell_of(spec, job // spec.steps)
        model = spec.models[cell.model] if cell.model < len(spec.models) else ""
        if "{" in model:
            return None
        return self._deployment.directory().lane_of(model, spec.lane)

    def _task(self, stored: bytes, shown: Shown) -> dict[str, Any]:
        task = TaskResult.from_json(stored)
        return self._ended(task.state, task.error, task.usage, task.attempts, task.output, shown) | {
            "cached": task.cached,
            "latency_ms": task.latency_ms,
            "finish_reason": task.finish_reason,
            "scores": dict(task.scores),
            "score_errors": {name: shown(error) for name, error in task.score_errors.items()},
        }

    def _evaluation(self, stored: bytes, shown: Shown) -> dict[str, Any]:
        result = JudgeResult.from_json(stored)
        ended = self._ended(result.state, result.error, result.usage, result.attempts, result.answer, shown)
        return ended | {"cached": result.cached, "score": result.score}

    def _ended(
        self, state: str, error: str | None, usage: Usage, attempts: int, text: str | None, shown: Shown
    ) -> dict[str, Any]:
        return {
            "state": str(state),
            "error": shown(error) if error else None,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "attempts": attempts,
            "characters": None if text is None else len(text),
            "text": text if self._show_text else None,
        }

    def _waiting(self, status: RunStatus, job: int, steps: int) -> dict[str, Any]:
        here, team = self._deployment, status.team
        flight = RunTraces(here.redis, here.keys, RunRef(team, status.run)).job(job).flight
        try:
            waiting = here.explainer(team, here.shares([team])).why(
                f"{status.run}/{job // steps}/{job % steps}"
            )
        except TargetNotFound:
            return {}
        lanes: Sequence[str] = [part.lane for part in waiting.lanes]
        return {
            "state": waiting.state,
            "why": waiting.sentence,
            "until_ms": waiting.until_ms,
            "eta_ms": waiting.eta.at_ms,
            "lane": flight.lane if flight else lanes[0] if len(lanes) == 1 else None,
            "number": flight.number if flight else None,
            "worker": flight.worker if flight else None,
        }


def _of_record(record: Record, number: int, name: str) -> dict[str, Any]:
    """A step of an archived item, or of one that the run's end left unfinished."""
    if number == 0:
        return {"state": str(record.state), "attempts": record.attempts, "latency_ms": record.latency_ms}
    known = name in record.scores or name in record.score_errors
    score = record.scores.get(name)
    state = "unknown" if not known else "succeeded" if score is not None else "without a score"
    return {"state": state, "score": score}
