"""Decides which evaluations of an item's output are called, recorded at once, or skipped. Pure functions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from fairlane.core.errors import TemplateError
from fairlane.evaluators.agents import read_batch, read_opinion
from fairlane.evaluators.embeddings import BrokenEmbeddings, cosine, read_embeddings
from fairlane.evaluators.judge import read_verdict
from fairlane.evaluators.scorers import Score
from fairlane.model.ending import SKIPPED_JUDGE, NextJob, ReadyJob, RecordedJob
from fairlane.model.evaluators import Agent, Judge, Similarity, read_score
from fairlane.model.job import JobState
from fairlane.model.outcome import Success
from fairlane.model.results import JudgeResult
from fairlane.model.steps import Step
from fairlane.model.tokens import NO_UNKEPT, Entry, Unkept, Usage
from fairlane.pipeline.rendering import Call, RunItem, is_judged

UNSTRUCTURED = "the provider cannot be held to a schema: each criterion is asked for alone"
NOT_JUDGED = "the row is not to be judged by it"


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job that is not tried again: it has an answer, or the ``error`` of its last attempt.

    ``unkept``: its paid answers that were not kept.
    """

    answer: Success | None = None
    error: str | None = None
    attempts: int = 0
    latency_ms: int | None = None
    cached: bool = False
    unkept: Unkept = NO_UNKEPT


KnownResult: TypeAlias = FinishedJob | JudgeResult
"""An evaluation that needs no call: a cached answer, if this run can read it, or its result."""


class EvaluationEnd(NamedTuple):
    """A finished evaluation. ``malformed``: discarded parts of its answer, as the provider wrote them."""

    result: JudgeResult
    follow: tuple[NextJob, ...] = ()
    malformed: tuple[str, ...] = ()

    @property
    def readable(self) -> bool:
        """Whether the answer could be read."""
        return self.result.state is JobState.SUCCEEDED


@dataclass(frozen=True, slots=True)
class RenderedEvaluations:
    """The evaluations that an output leads to, by step: calls, or the reason why one cannot be rendered.

    ``skipped`` has the reason why an evaluation is not called.
    """

    calls: Mapping[int, Call | str] = field(default_factory=dict)
    skipped: Mapping[int, str] = field(default_factory=dict)

    def digests(self, item: RunItem, servers: Mapping[str, str]) -> dict[int, str]:
        """The cache key of each call of ``item`` that has one, by step: see `Call.digest`."""
        calls = ((number, call) for number, call in self.calls.items() if isinstance(call, Call))
        keys = ((number, call.digest(item.sample(number), servers)) for number, call in calls)
        return {number: key for number, key in keys if key is not None}


def render_evaluations(item: RunItem, output: str) -> RenderedEvaluations:
    """Render the evaluations of an item that has an output."""
    calls: dict[int, Call | str] = {}
    skipped: dict[int, str] = {}
    unstructured: set[int] = set()
    for number, step in enumerate(item.spec.evals, start=1):
        if step.after and step.after not in unstructured:
            continue
        if step.batch and step.model.partition(":")[0] in item.rendering.plan.unstructured:
            unstructured.add(number)
            skipped[number] = UNSTRUCTURED
        elif not is_judged(step, item.row):
            skipped[number] = NOT_JUDGED
        else:
            calls[number] = _rendered(item, step, output)
    return RenderedEvaluations(calls, skipped)


def next_jobs(
    item: RunItem, rendered: RenderedEvaluations, output: str, known: Mapping[int, KnownResult]
) -> tuple[NextJob, ...]:
    """Each rendered evaluation: recorded if it is ``known``, skipped or invalid; ready otherwise."""
    return tuple(_each(item, rendered, output, known))


def skipped_evaluations(item: int, eval_lanes: tuple[str, ...]) -> tuple[RecordedJob, ...]:
    """All evaluations of an item that has no output."""
    first = item * (1 + len(eval_lanes))
    return tuple(
        RecordedJob(first + step, JobState.SKIPPED, SKIPPED_JUDGE, lane)
        for step, lane in enumerate(eval_lanes, start=1)
    )


def end_evaluation(
    item: RunItem,
    number: int,
    finished: FinishedJob,
    output: str,
    known: Mapping[int, KnownResult],
) -> EvaluationEnd:
    """End evaluation ``number`` (from 1) of an output; after a batch call, its criteria follow."""
    step = item.spec.evals[number - 1]
    if step.batch:
        return _end_batch(item, number, finished, output, known)
    return EvaluationEnd(evaluation_result(step, finished))


def evaluation_result(step: Step, finished: FinishedJob) -> JudgeResult:
    """The result of one evaluation that has a score; its ``answer`` is the reason of an agent or a judge."""
    if finished.answer is None:
        tries = "retry" if finished.attempts == 1 else "retries"
        argument = f"Evaluation failed after {finished.attempts} {tries}" if step.criterion else None
        return _result(finished, JobState.FAILED, None, argument, finished.error)
    answer: str | None = finished.answer.output
    read = _read(step, finished.answer.output)
    if step.criterion is not None and read.error is None:
        answer = read_opinion(finished.answer.output, step.criterion).argument
    if isinstance(step.evaluator, Judge) and read.error is None:
        answer = read_verdict(finished.answer.output, step.evaluator.choices).said
    if isinstance(step.evaluator, Similarity):
        answer = None  # kilobytes of numbers that nobody reads once they are compared
    state = JobState.FAILED if read.error else JobState.SUCCEEDED
    return _result(finished, state, read.value, answer, read.error)


def _each(
    item: RunItem, rendered: RenderedEvaluations, output: str, known: Mapping[int, KnownResult]
) -> Iterator[NextJob]:
    for number, why in rendered.skipped.items():
        yield recorded(item, number, JudgeResult(JobState.SKIPPED, error=why))
    for number, call in rendered.calls.items():
        found = known.get(number)
        if isinstance(found, JudgeResult):
            yield recorded(item, number, found)
        elif found is not None and (end := end_evaluation(item, number, found, output, known)).readable:
            yield recorded(item, number, end.result)
            yield from end.follow
        else:
            yield _ready_or_invalid(item, number, call)
            if isinstance(call, str) and item.spec.evals[number - 1].batch:
                for criterion in criteria_of(item, number):
                    yield _ready_or_invalid(item, criterion, call)


def _end_batch(
    item: RunItem, number: int, finished: FinishedJob, output: str, known: Mapping[int, KnownResult]
) -> EvaluationEnd:
    """Record the criteria that the answer scores; the others get a call each."""
    evaluator = item.spec.evals[number - 1].evaluator
    text = finished.answer.output if finished.answer else None
    read = read_batch(text, evaluator.criteria) if text is not None and isinstance(evaluator, Agent) else None
    follow: list[NextJob] = []
    for other in criteria_of(item, number):
        each = item.spec.evals[other - 1]
        opinion = read.opinions.get(each.criterion.id) if read and each.criterion else None
        result = known.get(other)
        if opinion is not None:
            result = JudgeResult(JobState.SUCCEEDED, opinion.score, opinion.argument)
        if isinstance(result, JudgeResult):
            follow.append(recorded(item, other, result))
        else:
            follow.append(_ready_or_invalid(item, other, _rendered(item, each, output)))
    state = JobState.SUCCEEDED if read else JobState.FAILED
    whole = _result(finished, state, None, text, finished.error)
    return EvaluationEnd(whole, tuple(follow), read.malformed if read else ())


def _result(
    finished: FinishedJob, state: JobState, score: float | None, answer: str | None, error: str | None
) -> JudgeResult:
    """A result with the usage of its calls."""
    usage, left_out = Usage(), tuple[str, ...]()
    if finished.answer is not None:
        usage, left_out = finished.answer.usage, finished.answer.left_out
    attempts, cached, unkept = finished.attempts, finished.cached, finished.unkept
    return JudgeResult(state, score, answer, error, usage, attempts, cached, left_out, unkept)


def criteria_of(item: RunItem, batch: int) -> list[int]:
    """The evaluations that follow a batch call, one for each of its criteria."""
    return [n for n, each in enumerate(item.spec.evals, start=1) if each.after == batch]


def _rendered(item: RunItem, step: Step, output: str) -> Call | str:
    try:
        return item.rendering.evaluation(step, item.row, output)
    except TemplateError as error:
        return str(error)


def recorded(item: RunItem, number: int, result: JudgeResult) -> RecordedJob:
    """Evaluation ``number`` (from 1) as a job that is recorded without a call."""
    lane = item.rendering.plan.eval_lanes[number - 1]
    payload = result.to_json(short=item.spec.short_results)
    return RecordedJob(item.job(number), result.state, payload, lane)


def _ready_or_invalid(item: RunItem, number: int, call: Call | str) -> NextJob:
    """The job of a rendered call; a text says why there is no call."""
    if isinstance(call, str):
        return recorded(item, number, JudgeResult(JobState.INVALID, error=call))
    kind = max(1, len(item.spec.models)) + number - 1
    return ReadyJob(Entry(item.job(number), call.tokens, kind), item.rendering.plan.eval_lanes[number - 1])


def _read(step: Step, answer: str) -> Score:
    if isinstance(step.evaluator, Judge):
        return read_verdict(answer, step.evaluator.choices).score
    if isinstance(step.evaluator, Similarity):
        return _similarity_score(step.evaluator, answer)
    try:
        if step.criterion is not None:
            return Score(read_opinion(answer, step.criterion).score)
        return Score(read_score(answer))
    except ValueError as error:
        return Score(None, str(error))


def _similarity_score(evaluator: Similarity, answer: str) -> Score:
    try:
        output, reference = read_embeddings(answer)
        value = cosine(output, reference)
    except BrokenEmbeddings as error:
        return Score(None, str(error))
    except ValueError:
        return Score(None, "not two embeddings")
    return Score(value if evaluator.threshold is None else float(value >= evaluator.threshold))
