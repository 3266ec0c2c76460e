"""What a run's budget counts for a call: what it used, all that it reserved, or nothing if it never left."""

from __future__ import annotations

import pytest

from fairlane.model.job import Attempt
from fairlane.model.outcome import (
    AccessDenied,
    FlawedAnswer,
    NetworkFailure,
    Outcome,
    PermanentFailure,
    Success,
    TimedOut,
)
from fairlane.model.run import Bounds
from fairlane.model.tokens import Usage
from fairlane_workers.execution.held import Abort
from tests.support.worker_parts import WorkerParts, on_loop

NOTHING, REPORTED, RESERVED = "nothing", "reported", "reserved"
BUDGET = Bounds(budget_tokens=100_000)


def counted(parts: WorkerParts, attempt: Attempt) -> int:
    return round(float(parts.state(attempt).get("tokens", "0")))


@pytest.mark.parametrize(
    ("outcome", "leaves", "counts"),
    [
        (Success("yes", Usage(12, 3)), True, REPORTED),
        (Success("yes"), True, RESERVED),
        (FlawedAnswer("not JSON", 200, usage=Usage(12, 3)), True, REPORTED),
        (NetworkFailure("reset"), True, RESERVED),
        (NetworkFailure("no such host"), False, NOTHING),
        (NetworkFailure("refused", sent=False), True, NOTHING),
        (TimedOut("no answer"), True, RESERVED),
        (TimedOut("no connection in time"), False, NOTHING),
        (PermanentFailure("it cannot be written"), False, NOTHING),
        (PermanentFailure("no such model", 404), True, NOTHING),
        (AccessDenied("no token was issued", 401), False, NOTHING),
    ],
    ids=repr,
)
def test_a_call_counts_by_what_became_of_it(outcome: Outcome, leaves: bool, counts: str) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1, bounds=BUDGET)
        reserved = counted(parts, attempt)
        assert reserved > 15
        parts.provider.answer, parts.provider.leaves = outcome, leaves
        await parts.executor.execute(attempt)
        assert counted(parts, attempt) == {NOTHING: 0, REPORTED: 15, RESERVED: reserved}[counts]

    on_loop(scene)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_call_that_a_stopping_worker_breaks_off_counts_if_it_had_left(leaves: bool) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1, bounds=BUDGET)
        reserved = counted(parts, attempt)
        parts.provider.leaves = leaves
        task = await parts.calling(attempt)
        parts.executor.abort(attempt.id, Abort("the worker stops", requeues=True))
        await task
        assert counted(parts, attempt) == (reserved if leaves else 0)
        assert len(parts.hot(attempt)) == 1

    on_loop(scene)
