"""What a worker tells the log of its lanes."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from structlog.testing import capture_logs

from fairlane.model.decision import Defer
from fairlane.model.job import Attempt, Lesson
from fairlane.store.keys import Keys
from fairlane.store.write.attempts import Attempts
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.reporter import Reporter
from tests.support.worker_parts import lines


class _Shared:
    """A batcher whose every report says that others use the key, too."""

    async def send(self, _: Any, *, urgent: bool = True) -> bytes:
        return json.dumps({"in_flight": 1, "news": "shared", "finished": False}).encode()


def test_a_shared_key_is_logged_once_a_lane() -> None:
    reporter = Reporter("w1", Attempts(Keys("test")), cast(Batcher, _Shared()), Keys("test"))

    async def scene() -> None:
        for job, lane in enumerate(("sim:fast", "sim:fast", "sim:slow")):
            attempt = Attempt(run="r1", team="search", job=job, number=1, lane=lane)
            await reporter.defer(attempt, Defer(Lesson("none")), None)

    with capture_logs() as logs:
        asyncio.run(scene())

    logged = lines(logs, "lane_shared")
    assert [line["lane"] for line in logged] == ["sim:fast", "sim:slow"]
    assert {line["log_level"] for line in logged} == {"warning"}
