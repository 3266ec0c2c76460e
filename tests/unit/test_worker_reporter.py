"""What a worker tells the log of its lanes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from structlog.testing import capture_logs

from fairlane.decision import Defer
from fairlane.job import Attempt
from fairlane.store.attempts import Attempts, Lesson
from fairlane.store.keys import Keys
from fairlane_workers.batcher import Batcher
from fairlane_workers.reporter import Reporter
from tests.support.worker_parts import lines


class _Shared:
    """A batcher whose every report brings the news that others use the key, too."""

    async def send(self, _: Any) -> list[Any]:
        return [1, 0, b"shared"]


def test_that_a_key_is_shared_is_told_once_a_lane() -> None:
    reporter = Reporter("w1", Attempts(Keys("test")), cast(Batcher, _Shared()), Keys("test"))

    async def scene() -> None:
        for job, lane in enumerate(("sim:fast", "sim:fast", "sim:slow")):
            attempt = Attempt(run="r1", team="search", job=job, number=1, lane=lane)
            await reporter.defer(attempt, Defer(Lesson("none")), None)

    with capture_logs() as logs:
        asyncio.run(scene())

    told = lines(logs, "lane_shared")
    assert [line["lane"] for line in told] == ["sim:fast", "sim:slow"]
    assert {line["log_level"] for line in told} == {"warning"}
