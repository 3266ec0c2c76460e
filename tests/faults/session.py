"""Plays many schedules: on one deployment for a while, and on a new one after a violation."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tests.faults.checker import Violation, check
from tests.faults.deployment import Deployment, deployed
from tests.faults.history import History
from tests.faults.play import play
from tests.faults.schedule import Schedule
from tests.support.rabbitmq import RabbitMQ

SCHEDULES_EACH = 12
"""Schedules of one deployment. Each adds four lanes, and a worker serves a hundred at most."""


class Session:
    """As a context manager, it keeps a deployment as long as nothing is wrong with it."""

    def __init__(self, broker: RabbitMQ | None = None) -> None:
        self._broker, self._open = broker, ExitStack()
        self._deployment: Deployment | None = None

    def play(self, schedule: Schedule) -> tuple[History, list[Violation]]:
        """Play a schedule and check its history."""
        if self._deployment is None:
            folder = Path(tempfile.mkdtemp(prefix="fairlane-faults-"))
            self._open.callback(shutil.rmtree, folder, ignore_errors=True)
            self._deployment = self._open.enter_context(deployed(folder, self._broker))
        history = play(self._deployment, schedule)
        violations = check(history)
        if violations or self._deployment.schedules >= SCHEDULES_EACH:
            violations += self.end()
        return history, violations

    def end(self) -> list[Violation]:
        """Stop the deployment; what did not end as it should."""
        found = self._deployment.stop_all() if self._deployment is not None else []
        self._deployment = None
        self._open.close()
        return [Violation("processes", text) for text in found]

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def play_all(schedules: list[Schedule]) -> Iterator[tuple[History, list[Violation]]]:
    """Play these one after the other, each result as soon as it is there."""
    with Session() as session:
        for schedule in schedules:
            yield session.play(schedule)
