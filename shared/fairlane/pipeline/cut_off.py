"""Completes jobs whose evaluators went past a limit: outputs are kept, and each missing score has the reason.

Linear in the run's evaluators, since nothing that a team wrote is run here. Pure.
"""

from __future__ import annotations

from typing import Any

from fairlane.model.ending import ReadyJob, RecordedJob, SessionCompletion
from fairlane.model.evaluators import CallSpec
from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.sessions import SessionMembership
from fairlane.model.tokens import Usage
from fairlane.pipeline.completion import Completion, session_completion_without_row
from fairlane.pipeline.evaluations import FinishedJob, skipped_evaluations
from fairlane.pipeline.rendering import RunItem


def invalid_without_row(
    item: RunItem, error: str, model: str | None, membership: SessionMembership | None
) -> Completion:
    """Complete an item that can never run: its task is invalid, its evaluations are skipped."""
    result = TaskResult(JobState.INVALID, error=error, model=model)
    follow = skipped_evaluations(item.number, item.rendering.plan.eval_lanes)
    session = _session(item, membership, answered=False)
    return Completion(result.state, result.to_json(), follow, session=session)


def task_cut_off(
    item: RunItem,
    finished: FinishedJob,
    membership: SessionMembership | None,
    reason: str,
    model: str | None,
) -> Completion:
    """Complete an item's task: its evaluations are invalid, and it has no scores."""
    common: dict[str, Any] = {
        "attempts": finished.attempts,
        "latency_ms": finished.latency_ms,
        "model": model,
        "unkept": finished.unkept,
    }
    lanes = item.rendering.plan.eval_lanes
    session = _session(item, membership, answered=finished.answer is not None)
    if finished.answer is None:
        failed = TaskResult(JobState.FAILED, error=finished.error, cached=finished.cached, **common)
        follow = skipped_evaluations(item.number, lanes)
        return Completion(failed.state, failed.to_json(), follow, session=session)
    answer = finished.answer
    names = [each.name for each in item.spec.evaluators if not isinstance(each, CallSpec)]
    result = TaskResult(
        JobState.SUCCEEDED,
        output=answer.output,
        usage=answer.usage,
        finish_reason=answer.finish_reason,
        left_out=answer.left_out,
        notes=answer.notes,
        scores=dict.fromkeys(names),
        score_errors=dict.fromkeys(names, reason),
        cached=finished.cached,
        **common,
    )
    steps = range(1, len(lanes) + 1)
    payload = result.to_json(short=item.spec.short_results)
    return Completion(result.state, payload, _invalid(item, steps, reason), session=session)


def evaluation_cut_off(
    item: RunItem, step: int, finished: FinishedJob, membership: SessionMembership | None, reason: str
) -> Completion:
    """Complete evaluation ``step`` (from 1): it has no score, and what would follow it is invalid."""
    after = [n for n, each in enumerate(item.spec.evals, start=1) if each.after == step]
    result = _failed(finished, reason)
    session = _session(item, membership, answered=True)
    return Completion(result.state, result.to_json(), _invalid(item, after, reason), session=session)


def session_cut_off(finished: FinishedJob, reason: str) -> Completion:
    """Complete an evaluation of a session: it has no score."""
    result = _failed(finished, reason)
    return Completion(result.state, result.to_json())


def _failed(finished: FinishedJob, reason: str) -> JudgeResult:
    usage = finished.answer.usage if finished.answer else Usage()
    return JudgeResult(
        JobState.FAILED,
        None,
        None,
        reason,
        usage,
        finished.attempts,
        finished.cached,
        unkept=finished.unkept,
    )


def _invalid(item: RunItem, steps: range | list[int], reason: str) -> tuple[ReadyJob | RecordedJob, ...]:
    text, lanes = JudgeResult(JobState.INVALID, error=reason).to_json(), item.rendering.plan.eval_lanes
    return tuple(RecordedJob(item.job(step), JobState.INVALID, text, lanes[step - 1]) for step in steps)


def _session(
    item: RunItem, membership: SessionMembership | None, *, answered: bool
) -> SessionCompletion | None:
    return session_completion_without_row(item.rendering.plan, item.number, membership, answered=answered)
