"""An attempt from claim to report: what is called, what is recorded, what breaking it off may not lose."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from fairlane.model.choices import SPEC_VERSION
from fairlane.model.decision import Decision, RetryPolicy, decide
from fairlane.model.ending import Completion
from fairlane.model.evaluators import Judge
from fairlane.model.job import MESSAGE_VERSION, Attempt, JobState
from fairlane.model.outcome import (
    AccessDenied,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    TimedOut,
)
from fairlane.model.run import CacheChoice, Order, RunRef
from fairlane.model.tokens import Usage
from fairlane.pipeline.rendering import Prompt
from fairlane.testing import ManualClock
from fairlane_workers.execution import executor
from fairlane_workers.execution.executor import LANES_KEPT
from fairlane_workers.execution.held import Phase
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.unsupported.adapting import AdaptingProvider
from tests.support.worker_parts import ANSWER, WorkerParts, lines, on_loop

ONCE = RetryPolicy(max_attempts=1)


def test_a_success_is_recorded_with_what_the_provider_was_asked() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant([{"q": "six times seven?"}], params={"max_tokens": 5}, timeout=33.0)

        await parts.executor.execute(attempt)

        (request,) = parts.provider.requests
        assert (request.model, request.params, request.timeout_s) == ("fast", {"max_tokens": 5}, 33.0)
        assert request.messages == [{"role": "user", "content": "six times seven?"}]
        assert request.stream
        result = parts.task(attempt)
        assert (result.state, result.output, result.usage) == (JobState.SUCCEEDED, "yes", Usage(12, 3))
        assert (result.attempts, result.model) == (1, None)  # the spec names the only model
        assert parts.state(attempt)["state"] == "completed"
        assert (parts.leased(), parts.executor.held, parts.executor.busy) == (0, [], 0)

    on_loop(scene)


def test_a_message_of_a_later_version_is_requeued_uncalled_and_at_no_cost() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        message = attempt.to_message() | {"v": MESSAGE_VERSION + 1, "tomorrow": {"a": 1}}

        with capture_logs() as logs:
            await parts.executor.execute(Attempt.from_message(message))

        assert parts.provider.requests == []
        (line,) = lines(logs, "retry")
        assert "version 2" in line["reason"]
        assert (parts.leased(), parts.scheduler.redis.zcard(parts.keys.delayed)) == (0, 1)
        spent = parts.scheduler.redis.hget(parts.keys.jobs(RunRef(attempt.team, attempt.run)), "0")
        assert spent == b"1:0:0", "one dispatch, and nothing that counts"

    on_loop(scene)


@pytest.mark.parametrize(
    "change", [{"version": SPEC_VERSION + 1}, {"evaluators": [{"kind": "tomorrow's", "name": "x"}]}]
)
def test_a_run_that_only_a_later_version_can_read_is_left_to_it(change: dict[str, Any]) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        key = parts.keys.plan(RunRef(attempt.team, attempt.run))
        plan = json.loads(parts.scheduler.redis.get(key))
        parts.scheduler.redis.set(key, json.dumps(plan | {"spec": plan["spec"] | change}))

        await parts.executor.execute(attempt)

        assert parts.provider.requests == []
        assert (parts.leased(), parts.scheduler.redis.zcard(parts.keys.delayed)) == (0, 1)

    on_loop(scene)


def test_what_a_later_version_has_added_to_a_run_is_passed_over() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        key = parts.keys.plan(RunRef(attempt.team, attempt.run))
        plan = json.loads(parts.scheduler.redis.get(key))
        more = {"tomorrow": 1, "retry": plan["spec"]["retry"] | {"tomorrow": 1}}
        parts.scheduler.redis.set(key, json.dumps(plan | {"tomorrow": 1, "spec": plan["spec"] | more}))

        await parts.executor.execute(attempt)

        assert parts.task(attempt).output == "yes"

    on_loop(scene)


def test_release_and_end_are_reported_to_the_log() -> None:
    async def scene(parts: WorkerParts) -> None:
        attempt, _ = parts.grant(2)

        with capture_logs() as logs:
            await parts.executor.execute(attempt)

        (line,) = lines(logs, "released")
        fields = {"run": "r1", "job": 0, "lane": "sim:fast", "team": "search", "attempt": 1}
        assert line.items() >= fields.items()
        assert (line["active_slots"], line["status_code"]) == (1, 200)

    on_loop(scene)


def test_after_a_connection_was_cut_in_silence_the_next_attempt_streams() -> None:
    def cut(request: Request) -> Outcome:
        parts_clock.advance(5.0)
        return NetworkFailure("ServerDisconnectedError")

    async def scene(parts: WorkerParts) -> None:
        nonlocal parts_clock
        parts_clock = parts.clock
        attempts = parts.grant([{"q": 1}] * 3)
        for attempt, parts.provider.answer in zip(attempts, (ANSWER, cut, ANSWER), strict=True):
            await parts.executor.execute(attempt)
        assert [asked.stream for asked in parts.provider.requests] == [True, False, True]
        assert all("stream" in asked.optional for asked in parts.provider.requests)

    parts_clock = ManualClock()
    on_loop(scene)


def test_a_judge_is_made_ready_by_its_task_and_called_with_the_output() -> None:
    async def scene(parts: WorkerParts) -> None:
        (task,) = parts.grant([{"q": 1}], judges=["sim:judge"])
        with capture_logs() as logs:
            await parts.executor.execute(task)
        assert [(line["job"], line["lane"], line["attempt"]) for line in lines(logs, "queueing")] == [
            (1, "sim:judge", 1)
        ]
        (judge,) = parts.permits(RunRef("search", "r1"), 1, "sim:judge")
        assert judge.job == task.job + 1

        await parts.executor.execute(judge)

        asked = parts.provider.requests[-1]
        assert (asked.model, asked.stream, parts.provider.heard[-1]) == ("judge", True, None)
        assert asked.messages == [{"role": "user", "content": "yes"}]
        result = parts.judged(judge)
        assert (result.state, result.score, result.answer) == (JobState.SUCCEEDED, 1.0, "yes")
        assert parts.state(judge)["state"] == "completed"

    on_loop(scene)


@pytest.mark.parametrize(
    ("outcome", "status", "waits"),
    [
        (Overloaded("busy", 503), 503, False),
        (ServerError("broken", 500), 500, True),
        (NetworkFailure("reset"), None, True),
        (RateLimited("slow down", retry_after_ms=2500), 429, True),
        (RateLimited("slow down"), 429, False),
        (AccessDenied("no quota", 403, "quota"), 403, True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_job_that_goes_back_is_reported_with_its_delay(
    outcome: Outcome, status: int | None, waits: bool
) -> None:
    async def scene(parts: WorkerParts) -> None:
        policy = RetryPolicy(max_attempts=3, initial_delay=5.0)
        (attempt,) = parts.grant(1, retry=policy)
        parts.provider.answer = outcome

        with capture_logs() as logs:
            await parts.executor.execute(attempt)

        (line,) = lines(logs, "retry")
        assert line.items() >= {"job": 0, "attempt": 1, "status_code": status, "lane": "sim:fast"}.items()
        assert line["delay_s"] == 2.5 if outcome.retry_after_ms else line["delay_s"] <= 5.0
        delayed = parts.scheduler.redis.zcard(parts.keys.delayed)
        assert (delayed, len(parts.hot(attempt))) == ((1, 0) if waits else (0, 1))
        assert parts.leased() == 0

    on_loop(scene)


def test_a_job_whose_parameter_is_unsupported_is_called_without_it_and_keeps_its_attempt() -> None:
    def fussy(request: Request) -> Outcome:
        refused = "Unsupported parameter: 'temperature' is not supported with this model."
        return PermanentFailure(refused, 400) if "temperature" in request.params else ANSWER

    async def scene(parts: WorkerParts) -> None:
        parts.providers["sim"] = AdaptingProvider("sim", parts.provider, parts.clock)
        parts.provider.answer = fussy
        (attempt,) = parts.grant(1, retry=ONCE, params={"temperature": 0, "max_tokens": 9})

        await parts.executor.execute(attempt)

        assert len(parts.hot(attempt)) == 1
        (again,) = parts.permits(RunRef("search", "r1"), 1)
        await parts.executor.execute(again)
        task = parts.task(again)
        assert (task.state, task.attempts, task.left_out) == (JobState.SUCCEEDED, 1, ("temperature",))
        assert parts.provider.requests[-1].params == {"max_tokens": 9}
        assert parts.state(again)["state"] == "completed"

    on_loop(scene)


@pytest.mark.parametrize("failure", [PermanentFailure("Grammar error", 404), ServerError("", 500)])
def test_a_judge_whose_form_fails_is_called_without_it_and_keeps_its_attempt(failure: Outcome) -> None:
    def formless(request: Request) -> Outcome:
        return failure if "response_format" in request.params else ANSWER

    async def scene(parts: WorkerParts) -> None:
        parts.providers["sim"] = AdaptingProvider("sim", parts.provider, parts.clock)
        parts.provider.answer = formless
        form = Judge(name="j", model="sim:judge", template="{{ output }}", choices={"yes": 1.0}, reasons=True)
        (task,) = parts.grant([{"q": 1}], evaluators=(form,), retry=ONCE)
        ref = RunRef("search", "r1")

        await parts.executor.execute(task)
        (judge,) = parts.permits(ref, 1, "sim:judge")
        await parts.executor.execute(judge)

        waits = isinstance(failure, ServerError)
        assert (parts.scheduler.redis.zcard(parts.keys.delayed), len(parts.hot(judge))) == (waits, not waits)
        if not waits:
            (again,) = parts.permits(ref, 1, "sim:judge")
            await parts.executor.execute(again)
            result = parts.judged(again)
            assert (result.state, result.score, result.attempts) == (JobState.SUCCEEDED, 1.0, 1)
            assert result.left_out == ("response_format",)

    on_loop(scene)


def test_a_call_past_its_deadline_is_reported_as_a_timeout() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1, timeout=7.0, retry=ONCE)
        parts.provider.answer = TimedOut("no answer within 7 s", deadline_ms=7000)

        with capture_logs() as logs:
            await parts.executor.execute(attempt)

        (line,) = lines(logs, "timeout")
        assert line.items() >= {"job": 0, "attempt": 1, "timeout_s": 7.0, "status_code": None}.items()
        assert parts.task(attempt).state is JobState.FAILED

    on_loop(scene)


@pytest.mark.parametrize(
    ("answer", "known"), [(TimedOut("m", 504), True), (TimedOut("m", deadline_ms=7000), False)]
)
def test_the_lane_learns_after_how_long_a_proxy_gave_up(
    monkeypatch: pytest.MonkeyPatch, answer: TimedOut, known: bool
) -> None:
    decided = list[Outcome]()

    def noted(outcome: Outcome, *rest: Any, **more: Any) -> Decision:
        decided.append(outcome)
        return decide(outcome, *rest, **more)

    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1, timeout=7.0, retry=ONCE)
        parts.provider.answer = answer
        await parts.executor.execute(attempt)

    monkeypatch.setattr("fairlane_workers.execution.executor.decide", noted)
    on_loop(scene)
    (outcome,) = decided
    assert isinstance(outcome, TimedOut)
    assert (outcome.after_ms is not None) == known


def test_news_of_the_lane_are_reported() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        parts.provider.answer = AccessDenied("no quota", 403, "quota")

        with capture_logs() as logs:
            await parts.executor.execute(attempt)

        (line,) = lines(logs, "lane_parked")
        assert (line["lane"], line["reason"]) == ("sim:fast", "no quota")

    on_loop(scene)


def test_a_message_that_comes_twice_causes_one_call() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        first = await parts.calling(attempt)

        with capture_logs() as logs:
            await parts.executor.execute(attempt)
        parts.provider.gate.set()
        await first
        await parts.executor.execute(attempt)

        assert len(parts.provider.requests) == 1
        assert len(lines(logs, "stale_claim")) == 1
        assert parts.task(attempt).state is JobState.SUCCEEDED

    on_loop(scene)


def test_what_another_worker_claimed_is_not_called() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        parts.scheduler.attempts.claim(attempt, "another", 15_000).run(parts.scheduler.redis)

        with capture_logs() as logs:
            await parts.executor.execute(attempt)

        assert parts.provider.requests == []
        assert [line["event"] for line in logs] == ["stale_claim"]
        assert parts.leased() == 1

    on_loop(scene)


def test_a_report_that_comes_too_late_changes_nothing_and_is_counted() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)
        parts.scheduler.redis.zadd(parts.scheduler.keys.leases, {attempt.id: 0})  # it lapses
        parts.scheduler.attempts.recover(
            attempt, parts.scheduler.leader.epoch, worker="", worker_timeout_ms=0, max_attempts=3,
            completion=Completion(JobState.FAILED, "{}"), now_ms=parts.scheduler.now_ms,
        ).run(parts.scheduler.redis)  # fmt: skip

        with capture_logs() as logs:
            parts.provider.gate.set()
            await task

        assert [line["event"] for line in logs] == ["late_report"]
        assert parts.state(attempt)["late"] == "1"
        assert parts.state(attempt)["jobs_done"] == "0"
        assert len(parts.hot(attempt)) == 1

    on_loop(scene)


def test_a_row_that_changed_after_it_was_read_fails_its_job() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant([{"q": 1, "m": "fast"}], model="sim:{{ m }}", judges=["sim:judge"])
        ref = RunRef("search", "r1")
        parts.scheduler.outbox.upload(ref, [[{"something": "else"}]])

        await parts.executor.execute(attempt)

        assert parts.provider.requests == []
        result = parts.task(attempt)
        assert (result.state, result.model) == (JobState.FAILED, None)
        assert "'m'" in str(result.error)
        assert parts.state(attempt)["state"] == "completed"

    on_loop(scene)


@pytest.mark.parametrize("blob", [None, b"garbage"])
def test_rows_that_are_gone_fail_their_jobs_and_free_the_lease(blob: bytes | None) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        key = parts.keys.rows(RunRef("search", "r1"))
        parts.scheduler.redis.hdel(key, "0")
        if blob is not None:
            parts.scheduler.redis.hset(key, "0", blob)

        await parts.executor.execute(attempt)

        assert parts.provider.requests == []
        assert (parts.task(attempt).state, parts.leased()) == (JobState.FAILED, 0)

    on_loop(scene)


def test_a_run_that_is_gone_is_dropped_quietly() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        parts.scheduler.redis.delete(parts.keys.plan(RunRef("search", "r1")))

        with capture_logs() as logs:
            await parts.executor.execute(attempt)

        assert parts.provider.requests == []
        assert [line["event"] for line in logs] == ["stale_claim"]

    on_loop(scene)


def test_a_connection_that_this_worker_lacks_sends_the_job_back_after_a_while() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        del parts.providers["sim"]

        await parts.executor.execute(attempt)

        assert parts.leased() == 0
        assert parts.scheduler.redis.zcard(parts.keys.delayed) == 1
        assert parts.state(attempt)["retries"] == "0"

    on_loop(scene)


def test_a_defect_is_reported_loudly_and_the_lease_is_left_to_lapse(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)

        def broken(_: Any) -> Outcome:
            raise ZeroDivisionError

        parts.provider.answer = broken
        with capture_logs() as logs:
            await parts.executor.execute(attempt)

        assert [(line["event"], line["log_level"], line["job"]) for line in logs] == [
            ("attempt_failed", "error", 0)
        ]
        assert (parts.leased(), parts.executor.held, parts.executor.busy) == (1, [], 0)

    on_loop(scene)


def test_a_report_that_redis_refuses_leaves_the_lease_to_lapse(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)

        async def refuse(_: Any, *, urgent: bool, patience_s: float) -> Any:
            raise ResponseError("NOPERM this user has no permissions")

        with capture_logs() as logs, monkeypatch.context() as patch:
            patch.setattr(parts.batcher, "send", refuse)
            parts.provider.gate.set()
            await task

        assert [line["event"] for line in logs] == ["attempt_unreported"]
        assert parts.leased() == 1

    on_loop(scene)


def test_a_redis_that_is_away_during_the_call_does_not_lose_the_report() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)
        parts.server.connected = False
        pause = parts.batcher._pause

        async def come_back(seconds: float) -> None:
            await pause(seconds)
            parts.server.connected = len(parts.pauses) >= 3

        parts.batcher._pause = come_back
        parts.provider.gate.set()
        await task

        assert len(parts.pauses) == 3
        assert parts.task(attempt).state is JobState.SUCCEEDED

    on_loop(scene)


def test_a_reason_that_no_encoding_takes_stops_nobody() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1, retry=ONCE)
        parts.provider.answer = PermanentFailure("half a pair: \ud800", 400)

        await parts.executor.execute(attempt)

        assert parts.task(attempt).state is JobState.FAILED

    on_loop(scene)


def test_many_attempts_share_their_round_trips() -> None:
    async def scene(parts: WorkerParts) -> None:
        attempts = parts.grant(60)

        await asyncio.gather(*(parts.executor.execute(attempt) for attempt in attempts))

        assert parts.state(attempts[0])["state"] == "completed"
        # TeamShares, the plan, its page's length and then the page, who listens, and the reports.
        assert len(parts.batcher.batches) <= 7
        assert max(parts.batcher.batches) == 60

    on_loop(scene)


def test_material_of_a_run_is_forgotten_with_its_last_job() -> None:
    async def scene(parts: WorkerParts) -> None:
        first, last = parts.grant(2)
        await parts.executor.execute(first)
        assert len(parts.inputs._runs) == 1

        await parts.executor.execute(last)

        assert (len(parts.inputs._runs), len(parts.inputs._pages)) == (0, 0)

    on_loop(scene)


def test_the_task_result_names_the_outcome_of_an_attempt() -> None:
    async def scene(parts: WorkerParts) -> None:
        first, second, third = parts.grant(3)
        parts.provider.answer = RateLimited("slow down", retry_after_ms=2500)

        assert await parts.executor.execute(first) == "RateLimited"
        assert await parts.executor.execute(first) == "Stale"
        parts.provider.answer = PermanentFailure("no such model", 404)
        assert await parts.executor.execute(second) == "PermanentFailure"
        parts.executor.abort_all("the worker stops")
        assert await parts.executor.execute(third) == "Aborted"

    on_loop(scene)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"cache": CacheChoice(mode="read_write")},
        {"order": Order(serial=True, conversation=True)},
        {"cache": CacheChoice(mode="read_write"), "order": Order(serial=True, store_output_as="answer")},
    ],
    ids=["plain", "cached", "conversation", "cached and stored"],
)
def test_an_attempt_renders_its_prompt_once(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[Any] = []
    render = Prompt.render

    def counted(prompt: Prompt, *given: Any, **names: Any) -> Any:
        rendered.append(given)
        return render(prompt, *given, **names)

    async def scene(parts: WorkerParts) -> None:
        prompts = (({"role": "user", "content": "Say {{ q }}."},),)
        (attempt,) = parts.grant([{"q": "yes"}], prompts=prompts, request_field=None, **spec)
        monkeypatch.setattr(Prompt, "render", counted)

        await parts.executor.execute(attempt)

        assert parts.task(attempt).output == "yes"
        assert len(rendered) == 1

    on_loop(scene)


def test_a_worker_forgets_how_late_calls_left_on_the_lanes_of_long_ago() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant()
        for number in range(LANES_KEPT + 5):
            await parts.executor.execute(replace(attempt, number=100 + number, lane=f"sim:{number}"))
        assert len(parts.executor._departures) == LANES_KEPT

    on_loop(scene)


def test_a_call_that_is_claimed_too_early_is_held_until_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    held = list[float]()

    async def scene(parts: WorkerParts) -> None:
        async def hold(seconds: float) -> None:
            assert not parts.provider.requests
            held.append(seconds)
            parts.clock.advance(seconds)

        monkeypatch.setattr(executor, "sleep", hold)
        (attempt,) = parts.grant()
        pace, call, now_s = 60_000, 60_000_000, parts.scheduler.redis.time()
        bucket = {
            "requests_pace": pace,
            "requests_depth": call + 50 * pace,
            "requests_sent": call - 40_000 * pace // 1000,
            "requests_sent_ms": now_s[0] * 1000 + now_s[1] // 1000 + 1000,
        }
        lane = parts.keys.lane(attempt.lane)
        parts.scheduler.redis.hset(lane, mapping=bucket | {"claim_early_ms": 50, "good_ms": 250})
        await parts.start(attempt)
        assert parts.task(attempt).state is JobState.SUCCEEDED

    on_loop(scene)
    assert held == [0.04]


def test_attempts_are_counted_while_others_begin() -> None:
    """As a scrape and a signal handler do, on threads of their own."""

    class Beginning:
        def __init__(self, held: dict[str, Any]) -> None:
            self._held = held

        @property
        def phase(self) -> Phase:
            self._held["another"] = self._held["one"]
            return Phase.PENDING

    async def scene(parts: WorkerParts) -> None:
        held: dict[str, Any] = parts.executor._held
        held["one"] = Beginning(held)
        assert parts.executor.pending == 1
        held.clear()

    on_loop(scene)
