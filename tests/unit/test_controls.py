"""A control: a request that was answered before, sent again while a lane rejects rows alike."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from fairlane.model.decision import Defer, Finish, RetryPolicy, decide_control
from fairlane.model.job import Attempt, Claim
from fairlane.model.outcome import (
    AccessDenied,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    UnsupportedParameter,
)
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from fairlane_workers.execution import calls
from fairlane_workers.providers.contract import Request
from tests.support.worker_parts import ANSWER, WorkerParts, on_loop

EMPTY = PermanentFailure("messages: text content blocks must be non-empty", 400)
CLAIM = Claim(2, 199, 0, unproven=1, rejected=199, own="last", control=True)
SHORT, LONG = "a", "b" * 50


def prompts(requests: list[Request]) -> list[str]:
    return [request.messages[0]["content"] for request in requests]


def unless_empty(request: Request) -> Outcome:
    text = request.messages[0]["content"]
    return Success("yes", Usage(len(text), 3 * len(text)), status=200) if text else EMPTY


async def probe_of(parts: WorkerParts, *answered: str) -> Attempt:
    """A probe by a job with an empty row, of a lane that has answered others and then rejected rows alike."""
    parts.provider.answer = unless_empty
    *good, probe = parts.grant([{"q": text} for text in (*answered, "")])
    for attempt in good:
        await parts.executor.execute(attempt)
    parts.provider.requests.clear()
    shut(parts, probe)
    return probe


def shut(parts: WorkerParts, probe: Attempt) -> None:
    """Rejections alike have opened the circuit of a probe's lane."""
    redis: Any = parts.scheduler.redis
    lease = json.loads(redis.hget(parts.keys.leased, probe.id))
    state = {"circuit": "half-open", "alike": "400 empty", "alike_opened": lease["n"] - 1, "answered_n": 0}
    redis.hset(parts.keys.lane(probe.lane), mapping=state)
    redis.hset(parts.keys.leased, probe.id, json.dumps(lease | {"probe": True}))


def lane(parts: WorkerParts) -> dict[str, str]:
    stored: Any = parts.scheduler.redis.hgetall(parts.keys.lane("sim:fast"))
    return {name.decode(): value.decode() for name, value in stored.items()}


def entries(parts: WorkerParts, attempt: Attempt) -> list[int]:
    """The jobs that wait on the attempt's lane."""
    return [int(entry.partition(b":")[0]) for entry in parts.hot(attempt)]


def test_a_probe_repeats_the_cheapest_answered_request_of_its_run() -> None:
    async def scene(parts: WorkerParts) -> None:
        probe = await probe_of(parts, LONG, SHORT, LONG)

        assert await parts.executor.execute(probe) == "Control"

        assert prompts(parts.provider.requests) == [SHORT]
        shown = lane(parts)
        assert (shown["circuit"], shown["rows_own"], shown["own_controls"]) == ("closed", "400 empty", "1")
        assert int(shown["answered_n"]) > int(shown["alike_opened"])
        assert entries(parts, probe) == [3], "its own call follows"
        assert parts.leased() == 0

    on_loop(scene)


def test_the_tokens_of_a_control_are_its_jobs() -> None:
    async def scene(parts: WorkerParts) -> None:
        probe = await probe_of(parts, SHORT)
        ref = RunRef(probe.team, probe.run)
        await parts.executor.execute(probe)
        spent: Any = parts.scheduler.redis.hget(parts.keys.jobs(ref), str(probe.job))
        assert spent.endswith(b":1:1:3:0"), "an answer that was not kept: 1 token in, 3 out"

    on_loop(scene)


def test_a_control_that_is_rejected_leaves_the_circuit_open() -> None:
    async def scene(parts: WorkerParts) -> None:
        probe = await probe_of(parts, SHORT)
        parts.provider.answer = EMPTY
        assert await parts.executor.execute(probe) == "Control"
        assert prompts(parts.provider.requests) == [SHORT]
        assert (lane(parts)["circuit"], lane(parts)["own_controls"]) == ("open", "0")
        assert entries(parts, probe) == [1]

    on_loop(scene)


def test_where_no_answered_request_is_short_the_row_itself_is_the_probe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "CONTROL_CHARS", 0)

    async def scene(parts: WorkerParts) -> None:
        probe = await probe_of(parts, SHORT)
        assert await parts.executor.execute(probe) == "PermanentFailure"
        assert prompts(parts.provider.requests) == [""]

    on_loop(scene)


def test_no_listener_receives_a_control() -> None:
    async def scene(parts: WorkerParts) -> None:
        probe = await probe_of(parts, SHORT)
        redis: Any = parts.scheduler.redis
        pubsub = redis.pubsub()
        pubsub.subscribe(parts.keys.chunks(RunRef(probe.team, probe.run)))
        parts.clock.advance(10.0)
        parts.provider.heard.clear()
        await parts.executor.execute(probe)
        assert parts.provider.heard == [None]

    on_loop(scene)


def test_a_worker_that_has_just_started_repeats_what_its_run_has_finished() -> None:
    async def scene(parts: WorkerParts) -> None:
        probe = await probe_of(parts, "", LONG, SHORT)
        parts.executor._calls._controls = calls.Controls()

        assert await parts.executor.execute(probe) == "Control"
        assert prompts(parts.provider.requests) == [LONG], "the first that was answered"
        assert lane(parts)["circuit"] == "closed"

    on_loop(scene)


def test_where_nothing_was_answered_the_row_itself_is_the_probe() -> None:
    async def scene(parts: WorkerParts) -> None:
        probe = await probe_of(parts, "")
        assert await parts.executor.execute(probe) == "PermanentFailure"
        assert prompts(parts.provider.requests) == [""]

    on_loop(scene)


def test_another_run_of_the_team_vouches_for_a_run_that_was_never_answered() -> None:
    async def scene(parts: WorkerParts) -> None:
        (good,) = parts.grant([{"q": SHORT}], run="before")
        parts.provider.answer = unless_empty
        await parts.executor.execute(good)
        probe = await probe_of(parts)
        assert await parts.executor.execute(probe) == "Control"
        assert prompts(parts.provider.requests) == [SHORT]

    on_loop(scene)


def test_a_judges_control_is_a_judges_call() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = Success("yes", Usage(5, 1), status=200)
        tasks = parts.grant(2, judges=("sim:judge",))
        ref = RunRef(tasks[0].team, tasks[0].run)
        for task in tasks:
            await parts.executor.execute(task)
        first, second = parts.permits(ref, 2, "sim:judge")
        await parts.executor.execute(first)
        shut(parts, second)
        parts.provider.requests.clear()
        parts.executor._calls._controls = calls.Controls()
        assert await parts.executor.execute(second) == "Control"
        assert [request.model for request in parts.provider.requests] == ["judge"]

    on_loop(scene)


def test_a_function_is_never_called_again_for_a_control() -> None:
    kept = calls.Controls()

    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant([{"q": "x"}])
        inputs = await parts.inputs.rendered(await parts.inputs.of(attempt))
        function = replace(inputs, rendered=replace(inputs.call, arguments={"a": 1}))
        kept.keep(attempt, function, ANSWER.usage)
        assert kept.of(attempt, inputs) is None
        embedding = replace(inputs, rendered=replace(inputs.call, inputs=("x",)))
        kept.keep(attempt, embedding, ANSWER.usage)
        found = kept.of(attempt, inputs)
        assert found is not None
        assert found.call == embedding.call

    on_loop(scene)


@pytest.mark.parametrize(
    "outcome",
    [
        ANSWER,
        EMPTY,
        PermanentFailure("not found", 404, doubtful=True),
        UnsupportedParameter("no such parameter", 400, parameter="seed"),
        AccessDenied("no", 403),
        RateLimited("slow down", 429),
        Overloaded("busy", 529),
        ServerError("oops", 500),
        NetworkFailure("reset"),
    ],
)
def test_whatever_becomes_of_a_control_costs_its_job_nothing(outcome: Outcome) -> None:
    made = decide_control(outcome, CLAIM, RetryPolicy(), random.Random(1))
    assert isinstance(made, Defer)
    assert not isinstance(made, Finish)
    assert (made.cost in ("nothing", "control"), made.max_attempts, made.rate_limited) == (True, 0, False)
    assert made.feedback.refusal == ""
    assert (made.feedback.signal == "ok") == isinstance(outcome, Success)
    assert made.feedback.signal != "answered"
