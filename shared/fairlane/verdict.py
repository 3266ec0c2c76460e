"""What is recorded of a job that is over, and which evaluations follow it. Pure, for whoever ends a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fairlane.errors import TemplateError
from fairlane.evaluators.agents import read_batch, read_opinion
from fairlane.evaluators.embeddings import BrokenEmbeddings, cosine, unpack
from fairlane.evaluators.judge import parse_choice
from fairlane.evaluators.scorers import Score, score
from fairlane.evaluators.spec import Agent, CallSpec, Judge, Similarity
from fairlane.evaluators.steps import Step
from fairlane.job import JobState, Success, Usage
from fairlane.rendering import Call, Rendering, is_judged
from fairlane.results import SKIPPED_JUDGE, JudgeResult, TaskResult, read_score
from fairlane.run import Cell, cell_of
from fairlane.store.attempts import Over, Ready
from fairlane.store.entry import Entry

UNSTRUCTURED = "the provider cannot be held to a schema: each criterion is asked for alone"
NOT_JUDGED = "the row is not to be judged by it"


@dataclass(frozen=True, slots=True)
class Place:
    """An item of a run, with its row."""

    rendering: Rendering
    item: int
    cell: Cell
    row: Mapping[str, Any]

    @classmethod
    def of(cls, rendering: Rendering, item: int, row: Mapping[str, Any]) -> Place:
        return cls(rendering, item, cell_of(rendering.spec, item), row)

    def job(self, step: int) -> int:
        return self.item * self.rendering.spec.steps + step

    def model(self) -> str | None:
        """Who does the task; ``None`` where the row names nobody, which is why the job has failed."""
        try:
            return self.rendering.model(self.cell, self.row) if self.rendering.spec.models else None
        except TemplateError:
            return None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended for good: with an answer, or with the ``error`` that nothing more is done about."""

    answer: Success | None = None
    error: str | None = None
    attempts: int = 0
    latency_ms: int | None = None
    cached: bool = False


Known: TypeAlias = Ended | JudgeResult
"""How an evaluation ended without being asked for now: an answer that is read anew, or the result itself."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A job's terminal state, its stored result, and what follows for the item's evaluations.

    ``malformed`` are parts of the answer that were discarded, as they were written.
    """

    state: JobState
    payload: str
    follow: tuple[Ready | Over, ...] = ()
    malformed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Following:
    """The evaluations that a job's end makes ready, rendered; a text says why one cannot be asked for."""

    calls: Mapping[int, Call | str] = field(default_factory=dict)
    skipped: Mapping[int, str] = field(default_factory=dict)

    def digests(self, repetition: int) -> dict[int, str]:
        """What each call is cached under, by step."""
        return {n: call.digest(repetition) for n, call in self.calls.items() if isinstance(call, Call)}


def following(place: Place, output: str) -> Following:
    """The evaluations of an item whose output exists."""
    calls: dict[int, Call | str] = {}
    skipped: dict[int, str] = {}
    unstructured: set[int] = set()
    for number, step in enumerate(place.rendering.spec.evals, start=1):
        if step.after and step.after not in unstructured:
            continue
        if step.batch and step.model.partition(":")[0] in place.rendering.plan.unstructured:
            unstructured.add(number)
            skipped[number] = UNSTRUCTURED
        elif not is_judged(step, place.row):
            skipped[number] = NOT_JUDGED
        else:
            calls[number] = _rendered(place, step, output)
    return Following(calls, skipped)


def follow(
    place: Place, after: Following, output: str, known: Mapping[int, Known]
) -> tuple[Ready | Over, ...]:
    """Each evaluation of ``after``: over where it cannot be asked for, or how it ended is ``known``; else
    ready.
    """
    return tuple(_each(place, after, output, known))


def task_over(place: Place, ended: Ended, after: tuple[Ready | Over, ...] = ()) -> Verdict:
    """A task's record with its pure scores; ``after`` is what `follow` said of its output."""
    common: dict[str, Any] = {
        "attempts": ended.attempts,
        "latency_ms": ended.latency_ms,
        "model": place.model(),
        "cached": ended.cached,
    }
    if ended.answer is None:
        failed = TaskResult(JobState.FAILED, error=ended.error, **common)
        return Verdict(JobState.FAILED, failed.to_json(), skipped(place))
    output = ended.answer.output
    scored = {
        each.name: score(each, output, place.row)
        for each in place.rendering.spec.evaluators
        if not isinstance(each, CallSpec)
    }
    done = TaskResult(
        JobState.SUCCEEDED,
        output=output,
        usage=ended.answer.usage,
        finish_reason=ended.answer.finish_reason,
        scores={name: each.value for name, each in scored.items()},
        score_errors={name: each.error for name, each in scored.items() if each.error},
        **common,
    )
    return Verdict(JobState.SUCCEEDED, done.to_json(), after)


def evaluation_over(
    place: Place, number: int, ended: Ended, output: str, known: Mapping[int, Known] | None = None
) -> Verdict:
    """An evaluation's record: its score, or why there is none. After a batch, what follows for its
    criteria.
    """
    step = place.rendering.spec.evals[number - 1]
    if step.batch:
        return _batch_over(place, number, ended, output, known or {})
    result = judged(step, ended)
    return Verdict(result.state, result.to_json())


def judged(step: Step, ended: Ended) -> JudgeResult:
    """The result of one evaluation that has a score of its own; an agent's has its argument as the answer."""
    if ended.answer is None:
        told = f"Evaluation failed after {ended.attempts} retries" if step.criterion else None
        return JudgeResult(JobState.FAILED, None, told, ended.error, Usage(), ended.attempts)
    answer: str | None = ended.answer.output
    read, usage = _read(step, ended.answer.output), ended.answer.usage
    if step.criterion is not None and read.error is None:
        answer = read_opinion(ended.answer.output, step.criterion).argument
    if isinstance(step.evaluator, Similarity):
        answer = None  # the embeddings are worth nothing once they are compared
    state = JobState.FAILED if read.error else JobState.SUCCEEDED
    return JudgeResult(state, read.value, answer, read.error, usage, ended.attempts, ended.cached)


def invalid(place: Place, error: str, model: str | None) -> tuple[Over, ...]:
    """An item that can never run: its task and all that would have followed."""
    task = TaskResult(JobState.INVALID, error=error, model=model)
    job, payload = place.job(0), task.to_json()
    given = not place.rendering.spec.calls_tasks
    over = Over(job, "given", payload, "") if given else Over(job, JobState.INVALID, payload, "")
    return (over, *skipped(place))


def skipped(place: Place) -> tuple[Over, ...]:
    """The evaluations of an item that has no output."""
    return skipped_evals(place.item, place.rendering.plan.eval_lanes)


def skipped_evals(item: int, eval_lanes: tuple[str, ...]) -> tuple[Over, ...]:
    first = item * (1 + len(eval_lanes))
    return tuple(
        Over(first + step, JobState.SKIPPED, SKIPPED_JUDGE, lane)
        for step, lane in enumerate(eval_lanes, start=1)
    )


def _each(place: Place, after: Following, output: str, known: Mapping[int, Known]) -> Iterator[Ready | Over]:
    lanes = place.rendering.plan.eval_lanes
    for number, why in after.skipped.items():
        result = JudgeResult(JobState.SKIPPED, error=why)
        yield Over(place.job(number), JobState.SKIPPED, result.to_json(), lanes[number - 1])
    for number, call in after.calls.items():
        ended = known.get(number)
        if isinstance(ended, JudgeResult):
            yield Over(place.job(number), ended.state, ended.to_json(), lanes[number - 1])
        elif ended is not None:
            verdict = evaluation_over(place, number, ended, output, known)
            yield Over(place.job(number), verdict.state, verdict.payload, lanes[number - 1])
            yield from verdict.follow
        elif isinstance(call, str):
            yield _invalid_step(place, number, call)
            if place.rendering.spec.evals[number - 1].batch:
                for criterion in _criteria_of(place, number):
                    yield _invalid_step(place, criterion, call)
        else:
            yield _ready(place, number, call)


def _batch_over(place: Place, number: int, ended: Ended, output: str, known: Mapping[int, Known]) -> Verdict:
    """Criteria that the answer has are over with it; the others are asked for one by one."""
    evaluator = place.rendering.spec.evals[number - 1].evaluator
    text = ended.answer.output if ended.answer else None
    read = read_batch(text, evaluator.criteria) if text is not None and isinstance(evaluator, Agent) else None
    lanes = place.rendering.plan.eval_lanes
    after: list[Ready | Over] = []
    for other in _criteria_of(place, number):
        each = place.rendering.spec.evals[other - 1]
        opinion = read.opinions.get(each.criterion.id) if read and each.criterion else None
        result = known.get(other)
        if opinion is not None:
            result = JudgeResult(JobState.SUCCEEDED, opinion.score, opinion.argument)
        if isinstance(result, JudgeResult):
            after.append(Over(place.job(other), result.state, result.to_json(), lanes[other - 1]))
            continue
        call = _rendered(place, each, output)
        after.append(
            _invalid_step(place, other, call) if isinstance(call, str) else _ready(place, other, call)
        )
    usage = ended.answer.usage if ended.answer else Usage()
    state = JobState.SUCCEEDED if read else JobState.FAILED
    whole = JudgeResult(state, None, text, ended.error, usage, ended.attempts, ended.cached)
    return Verdict(state, whole.to_json(), tuple(after), read.malformed if read else ())


def _criteria_of(place: Place, batch: int) -> list[int]:
    return [n for n, each in enumerate(place.rendering.spec.evals, start=1) if each.after == batch]


def _rendered(place: Place, step: Step, output: str) -> Call | str:
    try:
        return place.rendering.evaluation(step, place.row, output)
    except TemplateError as error:
        return str(error)


def _invalid_step(place: Place, number: int, error: str) -> Over:
    result = JudgeResult(JobState.INVALID, error=error)
    lane = place.rendering.plan.eval_lanes[number - 1]
    return Over(place.job(number), JobState.INVALID, result.to_json(), lane)


def _ready(place: Place, number: int, call: Call) -> Ready:
    kind = max(1, len(place.rendering.spec.models)) + number - 1
    return Ready(Entry(place.job(number), call.tokens, kind), place.rendering.plan.eval_lanes[number - 1])


def _read(step: Step, answer: str) -> Score:
    if isinstance(step.evaluator, Judge):
        return parse_choice(answer, step.evaluator.choices)
    if isinstance(step.evaluator, Similarity):
        return _likeness(step.evaluator, answer)
    try:
        if step.criterion is not None:
            return Score(read_opinion(answer, step.criterion).score)
        return Score(read_score(answer))
    except ValueError as error:
        return Score(None, str(error))


def _likeness(evaluator: Similarity, answer: str) -> Score:
    try:
        output, reference = unpack(answer)
        value = cosine(output, reference)
    except BrokenEmbeddings as error:
        return Score(None, str(error))
    except ValueError:
        return Score(None, "not two embeddings")
    return Score(value if evaluator.threshold is None else float(value >= evaluator.threshold))
