"""What workers and the scheduler do and tell about an agent's evaluations, call by call."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from redis import Redis
from structlog.testing import capture_logs

from fairlane import agent, criterion
from fairlane.core.clock import timestamp
from fairlane.model.decision import Defer, RetryPolicy, decide
from fairlane.model.evaluators import EvaluatorSpec
from fairlane.model.job import Attempt, Claim, Feedback, JobState
from fairlane.model.outcome import FlawedAnswer, Outcome, PermanentFailure, ServerError, Success, TimedOut
from fairlane.model.results import JudgeResult
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from fairlane.store.keys import Keys
from fairlane.store.write.attempts import Attempts
from fairlane.store.write.permits import Offer
from fairlane_scheduler.upkeep.recoverer import KILLED
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.reporter import RAW_CHARS, Reporter
from fairlane_workers.providers.contract import Request
from tests.support.classified import refusal
from tests.support.scheduler_parts import Parts
from tests.support.worker_parts import WorkerParts, lines, on_loop

REF = RunRef("search", "r1")
DIMENSIONS = ("clarity", "depth", "tone")
SWIFT = RetryPolicy(max_attempts=3, initial_delay=0, max_delay=0)
EVENTS = ("queueing", "acquired", "released", "retry", "timeout", "evaluation_malformed", "evaluation_failed")

Answers = Callable[[Request], Outcome]


def reviewer(batching: bool = False, dimensions: tuple[str, ...] = DIMENSIONS) -> EvaluatorSpec:
    criteria = [criterion(each, f"Mind the {each}.") for each in dimensions]
    return agent("reviewer", "sim:judge", "{{ output }}", criteria, batching)


def is_batch(request: Request) -> bool:
    form: Mapping[str, Any] = request.params.get("response_format", {})
    return "evaluations" in form.get("json_schema", {}).get("schema", {}).get("properties", {})


def opinion(score: object = 3, argument: str = "fine") -> Success:
    return Success(json.dumps({"score": score, "argument": argument}), Usage(12, 3))


def batch(**scores: object) -> Success:
    entries = [{"criterion_id": name, "score": score, "argument": "all"} for name, score in scores.items()]
    return Success(json.dumps({"evaluations": entries}), Usage(40, 30))


async def evaluate(
    parts: WorkerParts, evaluator: EvaluatorSpec, answer: Answers, **spec: Any
) -> list[Attempt]:
    """Play an item's task and then whatever waits on the judge's lane, until nothing does."""
    (task,) = parts.grant([{"q": 1}], evaluators=(evaluator,), retry=SWIFT, **spec)
    await parts.executor.execute(task)
    parts.provider.answer = answer
    made: list[Attempt] = []
    while count := parts.scheduler.redis.llen(parts.keys.hot(REF, "sim:judge")):
        parts.scheduler.redis.delete(parts.keys.lane("sim:judge"))  # what failures taught the lane
        for attempt in parts.permits(REF, count, "sim:judge"):
            await parts.executor.execute(attempt)
            made.append(attempt)
    return made


def results(parts: WorkerParts) -> dict[str, JudgeResult]:
    """The stored results of the item's evaluations, by score; the batch's under the agent's own name."""
    plan = parts.scheduler.runs.plan(REF)
    assert plan is not None
    stored = parts.scheduler.redis.hgetall(parts.keys.results(REF))
    return {
        step.name: JudgeResult.from_json(stored[str(job).encode()])
        for job, step in enumerate(plan.spec.evals, start=1)
        if str(job).encode() in stored
    }


def scores(parts: WorkerParts) -> dict[str, float | None]:
    return {name.partition(".")[2]: result.score for name, result in results(parts).items() if "." in name}


def test_fr_005_a_batch_that_fails_for_good_leaves_its_dimensions_to_be_asked_alone() -> None:
    async def scene(parts: WorkerParts) -> None:
        refused = PermanentFailure("response_format is not supported", 400)
        with capture_logs() as logs:
            made = await evaluate(
                parts, reviewer(batching=True), lambda r: refused if is_batch(r) else opinion()
            )

        assert len(made) == 1 + 3
        assert scores(parts) == dict.fromkeys(DIMENSIONS, 3.0)
        assert results(parts)["reviewer"].state is JobState.FAILED
        (line,) = lines(logs, "evaluation_failed")
        assert (line["log_level"], line["dimension"], line["status_code"]) == ("warning", "*", 400)

    on_loop(scene)


def test_fr_005_a_whole_answer_that_is_no_json_is_reported_raw_and_every_dimension_retried() -> None:
    async def scene(parts: WorkerParts) -> None:
        with capture_logs() as logs:
            await evaluate(
                parts, reviewer(batching=True), lambda r: Success("Splendid!") if is_batch(r) else opinion(2)
            )

        assert scores(parts) == dict.fromkeys(DIMENSIONS, 2.0)
        (line,) = lines(logs, "evaluation_malformed")
        assert (line["log_level"], line["raw"], line["agent"]) == ("warning", "Splendid!", "reviewer")

    on_loop(scene)


def test_fr_005_valid_entries_count_and_only_the_others_are_asked_for_again() -> None:
    async def scene(parts: WorkerParts) -> None:
        partial = batch(clarity=5, depth="deep", width=4)
        with capture_logs() as logs:
            made = await evaluate(
                parts, reviewer(batching=True), lambda r: partial if is_batch(r) else opinion(1)
            )

        assert len(made) == 1 + 2
        assert scores(parts) == {"clarity": 5.0, "depth": 1.0, "tone": 1.0}
        found = results(parts)
        assert (found["reviewer.clarity"].answer, found["reviewer.depth"].answer) == ("all", "fine")
        raws = [json.loads(line["raw"])["criterion_id"] for line in lines(logs, "evaluation_malformed")]
        assert raws == ["depth", "width"]

    on_loop(scene)


def test_what_a_log_line_shows_of_a_malformed_answer_is_bounded() -> None:
    async def scene(parts: WorkerParts) -> None:
        endless = Success("a" * 100_000)
        with capture_logs() as logs:
            await evaluate(parts, reviewer(batching=True), lambda r: endless if is_batch(r) else opinion())
        (line,) = lines(logs, "evaluation_malformed")
        assert line["raw"] == "a" * RAW_CHARS + "…"

    on_loop(scene)


def test_a_single_answer_off_its_scale_is_reported_raw_and_tried_again() -> None:
    async def scene(parts: WorkerParts) -> None:
        answers = iter([opinion(9), Success("good"), opinion(4, "at last")])
        with capture_logs() as logs:
            made = await evaluate(parts, reviewer(dimensions=("clarity",)), lambda _: next(answers))

        assert [attempt.number for attempt in made] == [1, 2, 3]
        result = results(parts)["reviewer.clarity"]
        assert (result.score, result.answer, result.attempts) == (4.0, "at last", 3)
        assert [line["dimension"] for line in lines(logs, "evaluation_malformed")] == ["clarity"] * 2
        assert "score 9 is not within 1 and 5" in lines(logs, "retry")[0]["reason"]

    on_loop(scene)


def test_a_dimension_that_fails_for_good_has_no_score_and_an_error_line_and_the_rest_goes_on() -> None:
    async def scene(parts: WorkerParts) -> None:
        down = FlawedAnswer("over capacity", 503)
        with capture_logs() as logs:
            await evaluate(
                parts,
                reviewer(),
                lambda r: down if "Mind the depth." in r.messages[0]["content"] else opinion(),
            )

        assert scores(parts) == {"clarity": 3.0, "depth": None, "tone": 3.0}
        failed = results(parts)["reviewer.depth"]
        assert (failed.answer, failed.error) == ("Evaluation failed after 3 retries", "over capacity")
        assert parts.scheduler.state(REF)["state"] == "completed"
        (line,) = lines(logs, "evaluation_failed")
        shown = {"agent": "reviewer", "dimension": "depth", "status_code": 503, "attempts": 3}
        assert line.items() >= shown.items()
        assert line["log_level"] == "error"
        assert line["elapsed_s"] >= 0

    on_loop(scene)


def test_sc_003_a_worker_names_agent_and_dimension_in_all_it_reports_of_an_evaluation() -> None:
    async def scene(parts: WorkerParts) -> None:
        answers = iter([ServerError("busy", 502), TimedOut("no answer within 7 s"), opinion()])
        with capture_logs() as logs:
            await evaluate(parts, reviewer(dimensions=("clarity",)), lambda _: next(answers), timeout=7.0)

        shown = [line for event in EVENTS for line in lines(logs, event) if line["job"] == 1]
        assert {line["event"] for line in shown} == {"queueing", "released", "retry", "timeout"}
        assert {(line["agent"], line["dimension"]) for line in shown} == {("reviewer", "clarity")}
        assert lines(logs, "queueing")[0]["queue_depth"] == 1
        assert lines(logs, "timeout")[0]["timeout_s"] == 7.0
        retries = lines(logs, "retry")
        assert [(line["attempt"], line["status_code"]) for line in retries] == [(1, 502), (2, None)]
        assert all(isinstance(line["delay_s"], float) for line in retries)

    on_loop(scene)


def test_other_jobs_have_neither_agent_nor_dimension_in_their_lines() -> None:
    async def scene(parts: WorkerParts) -> None:
        with capture_logs() as logs:
            await evaluate(parts, reviewer(dimensions=("clarity",)), lambda _: opinion())
        (task,) = [line for line in lines(logs, "released") if line["job"] == 0]
        assert not {"agent", "dimension"} & task.keys()

    on_loop(scene)


class _Slow:
    """A batcher that notes when it was given a report."""

    def __init__(self) -> None:
        self.given: list[str] = []

    async def send(self, _: Any, *, urgent: bool = True, patience_s: float = 0.0) -> bytes:
        self.given.append(timestamp())
        return b'{"in_flight": 0, "news": "", "finished": false}'


def test_sc_002_a_permit_counts_as_released_from_the_moment_its_report_is_sent() -> None:
    batcher, keys = _Slow(), Keys("test")
    reporter = Reporter("w1", Attempts(keys), cast(Batcher, batcher), keys)
    before = timestamp()
    with capture_logs() as logs:
        asyncio.run(reporter.defer(Attempt("r1", "search", 1, 1, "sim:judge"), Defer(Feedback("none")), None))
    (line,) = lines(logs, "released")
    assert before <= line["timestamp"] <= batcher.given[0]


def test_an_agent_whose_worker_died_too_often_is_reported_as_failed(fake_redis: Redis) -> None:
    parts = Parts(fake_redis)
    once = RetryPolicy(max_attempts=1)
    run = parts.admit(
        1, evaluators=(reviewer(dimensions=("clarity",)),), retry=once, model=(), prompts=(), output_field="q"
    )
    parts.feed_all()
    labels = run.plan.spec.labels(1)
    assert labels == {"agent": "reviewer", "dimension": "clarity"}
    epoch, bounds = parts.leader.epoch, {"room": 1, "max_in_flight": 1, "lease_ms": 1000}
    grant = parts.lanes.grant("sim:judge", epoch, [Offer(run.ref, 1)], **bounds, now_ms=parts.now_ms)
    assert grant is not None
    attempt = Attempt("r1", "search", 1, grant.permits[0].number, "sim:judge")
    parts.attempts.claim(attempt, "w1", 1000, parts.now_ms).run(parts.redis)
    parts.clock.advance(2.0)
    parts.leader.tick(parts.clock.monotonic_ms(), parts.now_ms)
    with capture_logs() as logs:
        parts.recoverer.tick(parts.moment())
    for event in ("lease_recovered", "evaluation_failed"):
        (line,) = lines(logs, event)
        assert line.items() >= labels.items()
    assert lines(logs, "evaluation_failed")[0]["reason"] == KILLED


@pytest.mark.parametrize(
    ("status", "cost"), [(429, "nothing"), (502, "unproven"), (503, "nothing"), (408, "unproven")]
)
def test_fr_002_transient_statuses_are_tried_again(status: int, cost: str) -> None:
    outcome = refusal("openai", status, {}, b"", now_ms=0)
    decided = decide(outcome, Claim(0, 0, 0), RetryPolicy(), random.Random(1))
    assert isinstance(decided, Defer)
    # Rate limits and overloads are waited out; the others may use up attempts.
    assert (decided.cost, decided.max_attempts) == (cost, 3 if cost == "unproven" else 0)
