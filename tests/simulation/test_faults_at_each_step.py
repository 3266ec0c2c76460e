"""A fault at any command to Redis: nothing is lost, leaked or doubled, and the process goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from redis import exceptions as errors

from fairlane import RunState, llm_judge
from fairlane.model.job import JobState
from fairlane.model.outcome import Outcome, RateLimited, Success
from fairlane.model.tokens import Usage
from fairlane_scheduler.service import Scheduler
from fairlane_workers.providers.contract import Request
from tests.support import whole as wholes
from tests.support.conservation import Books
from tests.support.direct import DirectRedis
from tests.support.whole import Whole, WorkerProcess, deployed

JUDGE = llm_judge("sim:judge", "J {{ output }}", {"yes": 1.0, "no": 0.0}, name="j")

AWAY = errors.ConnectionError("reset")
REPLICA = errors.ReadOnlyError("You can't write against a read only replica.")
REFUSED = errors.ResponseError("ERR something else")
DEFECT = MemoryError()


class Fault:
    """Raises an error at the n-th round trip from `arm` on: before Redis has the commands, or after."""

    def __init__(self, error: Exception, *, after: bool = False, reply: bool = False) -> None:
        """``reply``: the error is the reply to each command, and none has an effect."""
        self.error, self.after, self.reply, self.left = error, after, reply, -1

    def arm(self, step: int) -> None:
        self.left = step

    @property
    def fired(self) -> bool:
        return self.left <= 0

    def strike(self, execute: Callable[[], Any], commands: int, *, raises: bool) -> Any:
        self.left -= 1
        if self.left != 0:
            return execute()
        if self.after:
            execute()
        if self.reply and not raises:
            return [self.error] * commands
        raise self.error


@contextmanager
def of_workers(fault: Fault) -> Iterator[None]:
    """The fault hits the workers' pipelines."""

    async def execute(pipeline: Any, raise_on_error: bool = True) -> Any:
        inner, asked = pipeline._pipeline, len(pipeline._pipeline.command_stack)
        await wholes.sleep(0)
        if pipeline._process.dead:
            await asyncio.Future[None]()
        replies = fault.strike(lambda: inner.execute(raise_on_error), asked, raises=raise_on_error)
        pipeline._process.whole.hear()
        return replies

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wholes._Pipeline, "execute", execute)
        yield


def answer(worker: WorkerProcess, request: Request) -> tuple[float, Outcome]:
    text = str(request.messages[-1]["content"])
    if text.endswith("limited") and not any(each[1] == text for each in worker.whole.calls):
        return 0.2, RateLimited("slow down", retry_after_ms=500)
    return 0.5, Success("yes", Usage(3, 1), status=200)


def play(whole: Whole, name: str) -> Counter[str]:
    """One run to its end; how often each of its prompts was sent."""
    before = len(whole.calls)
    rows = [{"q": f"{name} well"}, {"q": f"{name} limited"}]
    run = whole.client("search").submit(rows, prompt="{{ q }}", models=["sim:fast"], evaluators=[JUDGE])
    run.wait(120)
    assert run.status().state is RunState.COMPLETED, name
    assert [each.state for each in run.results()] == [JobState.SUCCEEDED] * 2, name
    assert [each.scores for each in run.results()] == [{"j": 1.0}] * 2, name
    whole.run_for(1)
    Books(whole.redis, whole.keys).check()
    assert not whole.redis.zcard(whole.keys.leases), name
    for worker in whole.workers:
        settled(worker, name)
    assert whole.defects == [], name
    return Counter(text for _, text, _ in whole.calls[before:])


def settled(worker: WorkerProcess, name: str) -> None:
    executor = worker.executor
    assert (executor.held, executor.busy, executor.pending) == ([], 0, 0), name
    assert all(each.under_way == 0 for each in executor._departures._values.values()), name
    for batcher in {executor._batcher, executor._reporter._batcher}:
        assert not batcher._pending, name
        assert batcher.trouble is None, name


EXPECTED = Counter({"well": 1, "limited": 2, "J yes": 2})


class Struck:
    """A blocking client that a fault may hit at each of its commands and pipelines."""

    def __init__(self, redis: Any, fault: Fault) -> None:
        self._redis, self._fault = redis, fault
        self.connection_pool = redis.connection_pool

    def pipeline(self, transaction: bool = True) -> Any:
        pipeline = self._redis.pipeline(transaction=transaction)
        execute = pipeline.execute

        def struck(raise_on_error: bool = True) -> Any:
            asked = len(pipeline.command_stack)
            return self._fault.strike(lambda: execute(raise_on_error), asked, raises=raise_on_error)

        pipeline.execute = struck
        return pipeline

    def __getattr__(self, name: str) -> Any:
        command = getattr(self._redis, name)

        def struck(*given: Any, **named: Any) -> Any:
            return self._fault.strike(lambda: command(*given, **named), 1, raises=True)

        return struck


@contextmanager
def of_the_leader(fault: Fault) -> Iterator[None]:
    """The fault hits the scheduler's client; like the runner, the process survives what a tick raises."""

    def scheduler(redis: Any, *more: Any) -> Scheduler:
        made = Scheduler(Struck(redis, fault), *more)  # type: ignore[arg-type]
        tick = made.tick

        def survived(teams: Any) -> int:
            try:
                return tick(teams)
            except Exception as error:
                raise errors.ConnectionError("the pass has failed") from error

        made.tick = survived  # type: ignore[method-assign]
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wholes, "Scheduler", scheduler)
        yield


def tried_at_each_step(whole: Whole, fault: Fault) -> Iterator[Counter[str]]:
    """A run with the fault at its first step, the next one with the fault at its second, and so on."""
    for step in count(1):
        fault.arm(step)
        made = play(whole, f"{step}")
        yield Counter({text.removeprefix(f"{step} "): calls for text, calls in made.items()})
        if not fault.fired:
            return


@pytest.mark.parametrize(
    ("fault", "again"),
    [
        (Fault(AWAY), 0),
        (Fault(AWAY, after=True), 0),
        (Fault(REPLICA, reply=True), 0),
        (Fault(REFUSED, reply=True), 2),
        (Fault(DEFECT, after=True), 2),
    ],
    ids=["away", "reply lost", "replica", "refused", "defect"],
)
def test_a_worker_survives_a_fault_at_any_round_trip(
    real_redis: DirectRedis, fault: Fault, again: int
) -> None:
    """``again``: calls that may be made again, if a batch with two reports has failed."""
    with of_workers(fault), deployed(real_redis, answer) as whole:
        for made in tried_at_each_step(whole, fault):
            assert made.keys() == EXPECTED.keys()
            assert made.total() <= EXPECTED.total() + again


@pytest.mark.slow
def test_a_leader_survives_the_loss_of_any_reply(real_redis: DirectRedis) -> None:
    fault = Fault(AWAY, after=True)
    with of_the_leader(fault), deployed(real_redis, answer) as whole:
        for made in tried_at_each_step(whole, fault):
            assert made == EXPECTED
