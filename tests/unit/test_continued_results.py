"""A continued run takes over whole results, and only those that belong to the item as it is now."""

from __future__ import annotations

from dataclasses import fields

from fairlane.model.evaluators import FunctionScorer
from fairlane.model.job import JobState
from fairlane.model.outcome import Success
from fairlane.model.results import TaskResult
from fairlane.model.tokens import Usage
from tests.support.played_runs import continued, played
from tests.support.worker_parts import WorkerParts, on_loop

OF_THE_CALL = {"status", "retry_after_ms", "hints", "model"}
"""Fields of a success that its lane needs, and no record."""

CUT = Success("The answer, after", Usage(10, 1024), "length", left_out=("temperature",))


def test_a_stored_success_keeps_every_field_that_a_record_shows() -> None:
    kept = {each.name for each in fields(Success)} - OF_THE_CALL
    assert kept <= {each.name for each in fields(TaskResult)}
    result = TaskResult(JobState.SUCCEEDED, **{name: f"its {name}" for name in kept})  # type: ignore[arg-type]
    assert {name: getattr(result.as_success(), name) for name in kept} == {n: f"its {n}" for n in kept}


def test_a_record_is_the_same_after_its_run_was_continued() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = CUT
        first = parts.scheduler.admit([{"q": "x"}])
        before = await played(parts, first)
        assert before[0].finish_reason == "length" and before[0].notes
        second = continued(parts, first)
        assert await played(parts, second) == before
        assert await played(parts, continued(parts, second, run="r3")) == before

    on_loop(scene)


def test_a_function_that_scores_is_called_again_and_one_that_answers_is_not() -> None:
    async def scene(parts: WorkerParts) -> None:
        told = iter(["the output", "1", "0"])
        parts.providers["python"].answer = lambda request: Success(next(told))
        scorer = FunctionScorer(name="s", function="m.f")
        first = parts.scheduler.admit([{"q": 1}], model="python:m.f", prompts=(), evaluators=(scorer,))
        (before,) = await played(parts, first)
        (after,) = await played(parts, continued(parts, first))
        assert [(each.output, each.scores["s"]) for each in (before, after)] == [
            ("the output", 1.0),
            ("the output", 0.0),
        ]

    on_loop(scene)
