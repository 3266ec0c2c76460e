"""What is recorded of a finished job, and which judges it makes ready."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.decision import Finish
from fairlane.errors import TemplateError
from fairlane.evaluators.judge import parse_choice
from fairlane.evaluators.scorers import score
from fairlane.evaluators.spec import Judge
from fairlane.job import JobState, Outcome, Success, Usage
from fairlane.results import SKIPPED_JUDGE, JudgeResult, TaskResult
from fairlane.store.attempts import Over, Ready
from fairlane.store.entry import Entry
from fairlane.tokens import estimate_call
from fairlane_workers.material import Work


@dataclass(frozen=True, slots=True)
class Verdict:
    """A job's terminal state, its stored result, and what follows for the item's judges."""

    state: JobState
    payload: str
    follow: tuple[Ready | Over, ...] = ()


def task_verdict(work: Work, outcome: Outcome, decision: Finish, latency_ms: int) -> Verdict:
    """A task's record with its pure scores; each judge is made ready, or recorded where it cannot run."""
    model = _model(work)
    if decision.error is not None or not isinstance(outcome, Success):
        failed = TaskResult(
            JobState.FAILED,
            error=decision.error,
            attempts=decision.attempts,
            latency_ms=latency_ms,
            model=model,
        )
        return Verdict(JobState.FAILED, failed.to_json(), _skipped(work))
    scores: dict[str, float | None] = {}
    errors: dict[str, str] = {}
    for evaluator in work.run.spec.evaluators:
        if not isinstance(evaluator, Judge):
            result = score(evaluator, outcome.output, work.row)
            scores[evaluator.name] = result.value
            if result.error:
                errors[evaluator.name] = result.error
    done = TaskResult(
        JobState.SUCCEEDED,
        output=outcome.output,
        usage=outcome.usage,
        attempts=decision.attempts,
        latency_ms=latency_ms,
        model=model,
        scores=scores,
        score_errors=errors,
    )
    return Verdict(JobState.SUCCEEDED, done.to_json(), tuple(_follow(work, outcome.output)))


def judge_verdict(work: Work, outcome: Outcome, decision: Finish, latency_ms: int) -> Verdict:
    """A judge's record: the score of its answer, or why there is none."""
    usage = outcome.usage if isinstance(outcome, Success) else Usage()
    error, value, answer = decision.error, None, None
    if isinstance(outcome, Success) and work.judge is not None:
        answer = outcome.output
        parsed = parse_choice(answer, work.judge.choices)
        value, error = parsed.value, parsed.error
    state = JobState.FAILED if error else JobState.SUCCEEDED
    result = JudgeResult(state, value, answer, error, usage, decision.attempts)
    return Verdict(state, result.to_json())


def _model(work: Work) -> str | None:
    """The model that the row names; ``None`` where it names none, which is why the job has failed."""
    try:
        return work.run.models[work.cell.model].render(work.row).strip()
    except TemplateError:
        return None


def _follow(work: Work, output: str) -> list[Ready | Over]:
    follow: list[Ready | Over] = []
    spec = work.run.spec
    for step, judge in enumerate(spec.judges, start=1):
        job, lane = work.item * spec.steps + step, work.run.plan.judge_lanes[step - 1]
        try:
            text = work.run.judges[step - 1].render(work.row, output=output)
        except TemplateError as error:
            invalid = JudgeResult(JobState.INVALID, error=str(error))
            follow.append(Over(job, JobState.INVALID, invalid.to_json(), lane))
        else:
            tokens = estimate_call([{"role": "user", "content": text}], judge.params)
            follow.append(Ready(Entry(job, tokens, len(spec.models) + step - 1), lane))
    return follow


def _skipped(work: Work) -> tuple[Over, ...]:
    first = work.item * work.run.spec.steps
    return tuple(
        Over(first + step, JobState.SKIPPED, SKIPPED_JUDGE, lane)
        for step, lane in enumerate(work.run.plan.judge_lanes, start=1)
    )
