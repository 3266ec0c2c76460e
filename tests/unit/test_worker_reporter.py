"""What a worker tells the log of its lanes."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from structlog.testing import capture_logs

from fairlane.model.decision import Defer, Finish
from fairlane.model.ending import Completion
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.outcome import Success
from fairlane.store.keys import Keys
from fairlane.store.write.attempts import Attempts
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.reporter import PATIENCE_S, Reporter
from tests.support.worker_parts import lines


class _Shared:
    """A batcher whose every report says that others use the key, too."""

    async def send(self, _: Any, *, urgent: bool = True, patience_s: float = 0.0) -> bytes:
        return json.dumps({"in_flight": 1, "news": "shared", "finished": False}).encode()


def test_a_shared_key_is_logged_once_a_lane() -> None:
    reporter = Reporter("w1", Attempts(Keys("test")), cast(Batcher, _Shared()), Keys("test"))

    async def scene() -> None:
        for job, lane in enumerate(("sim:fast", "sim:fast", "sim:slow")):
            attempt = Attempt(run="r1", team="search", job=job, number=1, lane=lane)
            await reporter.defer(attempt, Defer(Feedback("none")), None)

    with capture_logs() as logs:
        asyncio.run(scene())

    logged = lines(logs, "lane_shared")
    assert [line["lane"] for line in logged] == ["sim:fast", "sim:slow"]
    assert {line["log_level"] for line in logged} == {"warning"}


class _Patience:
    """A batcher that notes how long reports may wait; ``unawaited`` is what it answers."""

    def __init__(self) -> None:
        self.unawaited, self.patience = True, list[float]()

    async def send(self, _: Any, *, urgent: bool = True, patience_s: float = 0.0) -> bytes:
        self.patience.append(patience_s)
        return json.dumps(
            {"in_flight": 1, "news": "", "finished": False, "unawaited": self.unawaited}
        ).encode()


def test_only_an_answer_after_an_unawaited_report_of_its_run_and_lane_waits() -> None:
    batcher = _Patience()
    reporter = Reporter("w1", Attempts(Keys("test")), cast(Batcher, batcher), Keys("test"))
    done = Completion(JobState.SUCCEEDED, "{}")
    answered, failed = Finish(Feedback("ok"), 1), Finish(Feedback("error"), 1, error="bad request")

    async def report(run: str = "r1", lane: str = "sim:fast", decision: Finish = answered) -> float:
        attempt = Attempt(run=run, team="search", job=1, number=1, lane=lane)
        await reporter.finish(attempt, decision, done, Success("4"))
        return batcher.patience[-1]

    async def scene() -> None:
        assert await report() == 0
        assert await report() == PATIENCE_S
        assert await report(run="r2") == 0
        assert await report(lane="sim:slow") == 0
        assert await report(decision=failed) == 0
        batcher.unawaited = False
        assert await report() == PATIENCE_S
        assert await report() == 0

    asyncio.run(scene())
