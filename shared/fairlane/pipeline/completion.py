"""Completes jobs that are not tried again: their records, and the jobs that follow. Pure functions.

Workers complete calls, the feeder completes items that need no call, the recoverer completes jobs whose
workers died, the laboratory completes simulated calls. Each writes a `Completion` in one script.

If an evaluator exceeded a limit, the output is kept, and each missing score has the reason. That takes time
linear in the run's evaluators, since no code of a team runs then.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairlane.core.errors import TemplateError
from fairlane.evaluators.scorers import Score, score
from fairlane.model.ending import Completion, NextJob, ReadyJob, SessionCompletion
from fairlane.model.evaluators import CallSpec, FunctionScorer, PureSpec, Similarity
from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import Plan
from fairlane.model.sessions import SessionMembership, session_job, session_of_job
from fairlane.model.steps import Step
from fairlane.model.tokens import Entry, Estimate, Usage, estimate_call
from fairlane.pipeline.conversation import remembered
from fairlane.pipeline.evaluations import (
    FinishedJob,
    KnownResult,
    RenderedEvaluations,
    criteria_of,
    end_evaluation,
    evaluation_result,
    next_jobs,
    recorded,
    render_evaluations,
    skipped_evaluations,
)
from fairlane.pipeline.rendering import Call, RunItem


def complete_task(
    item: RunItem,
    finished: FinishedJob,
    membership: SessionMembership | None = None,
    *,
    rendered: RenderedEvaluations | None = None,
    known: Mapping[int, KnownResult] | None = None,
    call: Call | None = None,
    memory: Mapping[bytes, bytes] | None = None,
) -> Completion:
    """Complete an item's task: score its output, and decide its evaluations.

    ``rendered`` are its evaluations, if the caller rendered them to look up which are ``known``. ``call`` and
    ``memory``, the run's stored memory, are needed only if later items read this one.
    """
    if finished.answer is None:
        result = _task_result(finished, item.stored_model(), {})
        return _of_item(item, result, _skipped(item), membership, None)
    output = finished.answer.output
    result = _task_result(
        finished, item.stored_model(), {e.name: score(e, output, item.row) for e in _pure(item)}
    )
    follow: tuple[NextJob, ...] = ()
    if item.spec.evals:
        follow = next_jobs(item, rendered or render_evaluations(item, output), output, known or {})
    stored: dict[str, str] = {}
    if memory is not None and call is not None:
        stored = remembered(item, call, output, memory)
    return _of_item(item, result, follow, membership, output, memory=stored)


def complete_evaluation(
    item: RunItem,
    step: int,
    finished: FinishedJob,
    output: str | None,
    membership: SessionMembership | None = None,
) -> Completion:
    """Complete evaluation ``step`` (from 1) of an item's ``output``."""
    end = end_evaluation(item, step, finished, output or "", {})
    return _of_item(item, end.result, end.follow, membership, output, malformed=end.malformed)


def complete_session_evaluation(step: Step, finished: FinishedJob) -> Completion:
    """Complete an evaluation of a session: nothing follows it."""
    result = evaluation_result(step, finished)
    return Completion(result.state, result.to_json())


def task_cut_off(
    item: RunItem, finished: FinishedJob, membership: SessionMembership | None, reason: str, model: str | None
) -> Completion:
    """Complete a task whose scoring was cut off: its evaluations are invalid, and it has no scores."""
    result = _task_result(finished, model, {each.name: Score(None, reason) for each in _pure(item)})
    follow: tuple[NextJob, ...] = _skipped(item)
    if finished.answer is not None:
        follow = _invalid(item, range(1, item.spec.steps), reason)
    return _rowless_completion(item, result, follow, membership, answered=finished.answer is not None)


def evaluation_cut_off(
    item: RunItem, step: int, finished: FinishedJob, membership: SessionMembership | None, reason: str
) -> Completion:
    """Complete evaluation ``step`` (from 1) without a score; evaluations that depend on it are invalid."""
    follow = _invalid(item, criteria_of(item, step), reason)
    return _rowless_completion(item, _unscored(finished, reason), follow, membership, answered=True)


def session_cut_off(finished: FinishedJob, reason: str) -> Completion:
    """Complete an evaluation of a session: it has no score."""
    result = _unscored(finished, reason)
    return Completion(result.state, result.to_json())


def complete_invalid(
    item: RunItem, error: str, model: str | None, membership: SessionMembership | None
) -> Completion:
    """Complete an item that can never run: its task is invalid, its evaluations are skipped."""
    result = TaskResult(JobState.INVALID, error=error, model=model)
    return _rowless_completion(item, result, _skipped(item), membership, answered=False)


def complete_without_row(
    plan: Plan,
    job: int,
    finished: FinishedJob,
    tokens: Estimate,
    membership: SessionMembership | None = None,
) -> Completion:
    """Complete a job without reading its row, and without scores: a failed or a simulated one.

    Each evaluation that becomes ready reserves ``tokens``.
    """
    spec, lanes = plan.spec, plan.eval_lanes
    state = JobState.FAILED if finished.answer is None else JobState.SUCCEEDED
    rest: dict[str, Any] = {"error": finished.error, "attempts": finished.attempts, "unkept": finished.unkept}
    judged = JudgeResult(state, **rest).to_json()
    if session_of_job(spec, job) is not None:
        return Completion(state, judged)
    item, step = divmod(job, spec.steps)
    if step == 0 and finished.answer is None:
        follow: tuple[NextJob, ...] = skipped_evaluations(item, lanes)
    else:
        kinds = max(1, len(spec.models)) - 1
        follow = tuple(
            ReadyJob(Entry(job - step + number, tokens, kinds + number), lanes[number - 1])
            for number, each in enumerate(spec.evals, start=1)
            if each.after == step
        )
    task = TaskResult(state, **rest).to_json()
    answered = step > 0 or finished.answer is not None
    session = session_completion_without_row(plan, item, membership, answered=answered)
    return Completion(state, judged if step else task, follow, session=session)


def _of_item(
    item: RunItem,
    result: TaskResult | JudgeResult,
    follow: tuple[NextJob, ...],
    membership: SessionMembership | None,
    output: str | None,
    *,
    malformed: tuple[str, ...] = (),
    memory: Mapping[str, str] | None = None,
) -> Completion:
    """A completion with its item's part of the session, unless an evaluation of it is yet to be called."""
    pending = any(isinstance(each, ReadyJob) for each in follow)
    session = None if pending or membership is None else _session_completion(item, membership, output)
    payload = result.to_json(short=item.spec.short_results)
    return Completion(result.state, payload, follow, malformed, memory or {}, session)


def _rowless_completion(
    item: RunItem,
    result: TaskResult | JudgeResult,
    follow: tuple[NextJob, ...],
    membership: SessionMembership | None,
    *,
    answered: bool,
) -> Completion:
    """A completion without an evaluation to call, made without a template of the run."""
    session = session_completion_without_row(item.rendering.plan, item.number, membership, answered=answered)
    return Completion(result.state, result.to_json(short=item.spec.short_results), follow, session=session)


def _task_result(finished: FinishedJob, model: str | None, scored: Mapping[str, Score]) -> TaskResult:
    """A task's result; ``scored``: the scores that need no call."""
    common: dict[str, Any] = {
        "attempts": finished.attempts,
        "latency_ms": finished.latency_ms,
        "model": model,
        "cached": finished.cached,
        "unkept": finished.unkept,
    }
    if finished.answer is None:
        return TaskResult(JobState.FAILED, error=finished.error, **common)
    return TaskResult(
        JobState.SUCCEEDED,
        output=finished.answer.output,
        usage=finished.answer.usage,
        finish_reason=finished.answer.finish_reason,
        left_out=finished.answer.left_out,
        notes=finished.answer.notes,
        scores={name: each.value for name, each in scored.items()},
        score_errors={name: each.error for name, each in scored.items() if each.error},
        **common,
    )


def _unscored(finished: FinishedJob, reason: str) -> JudgeResult:
    usage = finished.answer.usage if finished.answer else Usage()
    return JudgeResult(
        JobState.FAILED,
        error=reason,
        usage=usage,
        attempts=finished.attempts,
        cached=finished.cached,
        unkept=finished.unkept,
    )


def _pure(item: RunItem) -> list[PureSpec]:
    """The evaluators that need no call."""
    return [each for each in item.spec.evaluators if not isinstance(each, CallSpec)]


def _skipped(item: RunItem) -> tuple[NextJob, ...]:
    return skipped_evaluations(item.number, item.rendering.plan.eval_lanes)


def _invalid(item: RunItem, steps: Iterable[int], reason: str) -> tuple[NextJob, ...]:
    result = JudgeResult(JobState.INVALID, error=reason)
    return tuple(recorded(item, step, result) for step in steps)


def _session_completion(
    item: RunItem, membership: SessionMembership, output: str | None
) -> SessionCompletion:
    """An ended item's part of its session's completion; ``output`` is ``None`` if it has none."""
    tokens = [_session_tokens(item, step, membership.size, output) for step in item.spec.session_evals]
    return _of_session(item.rendering.plan, item.number, membership, output is not None, tokens)


def session_completion_without_row(
    plan: Plan, item: int, membership: SessionMembership | None, *, answered: bool
) -> SessionCompletion | None:
    """The same for item ``item``, without reading its row; ``answered``: it has an output.

    The session's last item makes its evaluations ready.
    """
    if membership is None:
        return None
    tokens = [_template_tokens(step) for step in plan.spec.session_evals]
    return _of_session(plan, item, membership, answered, tokens)


def _of_session(
    plan: Plan, item: int, membership: SessionMembership, answered: bool, tokens: Sequence[Estimate]
) -> SessionCompletion:
    spec, cell = plan.spec, item % plan.spec.cells_per_row
    first_kind = max(1, len(spec.models)) + len(spec.evals)
    entries = [
        Entry(session_job(spec, membership.session, cell, step), each, first_kind + step)
        for step, each in enumerate(tokens)
    ]
    evaluations = tuple(zip(entries, plan.session_lanes, strict=True))
    return SessionCompletion(membership.session, cell, membership.size, answered, evaluations)


def _session_tokens(item: RunItem, step: Step, size: int, output: str | None) -> Estimate:
    """The estimated tokens of a session, as if all its turns were like this item."""
    try:
        empty = item.rendering.session(step, []).tokens
        one = item.rendering.session(step, [{"row": dict(item.row), "output": output}]).tokens
    except TemplateError:
        return _template_tokens(step)
    return Estimate(empty.input + size * max(0, one.input - empty.input), empty.output)


def _template_tokens(step: Step) -> Estimate:
    """The estimated tokens of a session's template, without turns."""
    if isinstance(step.evaluator, FunctionScorer | Similarity):  # no tokens; similarity scores no session
        return Estimate(0, 0)
    return estimate_call([{"content": step.evaluator.template}], step.evaluator.params)
