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
from tests.faults.expiry import after_expiry
from tests.faults.history import History, RunSeen
from tests.faults.play import play
from tests.faults.schedule import Schedule
from tests.support.rabbitmq import RabbitMQ

SCHEDULES_EACH = 12
"""Schedules of one deployment. Each adds four lanes, and a worker serves a hundred at most."""


class Session:
    """As a context manager, it keeps a deployment as long as nothing is wrong with it.

    ``watched``: Sentinels decide which Redis it uses. ``expires``: it ends only when all runs have expired.
    """

    def __init__(
        self, broker: RabbitMQ | None = None, *, watched: bool = False, expires: bool = False
    ) -> None:
        self._expires, self._runs = expires, list[RunSeen]()
        self._broker, self._watched, self._open = broker, watched, ExitStack()
        self._deployment: Deployment | None = None

    def play(self, schedule: Schedule) -> tuple[History, list[Violation]]:
        """Play a schedule and check its history."""
        if self._deployment is None:
            folder = Path(tempfile.mkdtemp(prefix="fairlane-faults-"))
            self._open.callback(shutil.rmtree, folder, ignore_errors=True)
            self._deployment = self._open.enter_context(deployed(folder, self._broker, watched=self._watched))
        history = play(self._deployment, schedule)
        violations = check(history)
        self._runs += history.runs
        if violations or self._deployment.schedules >= SCHEDULES_EACH:
            violations += self.end(broken=bool(violations))
        return history, violations

    def end(self, *, broken: bool = False) -> list[Violation]:
        """Stop the deployment; what did not end as it should. One that is broken is not waited for."""
        found = list[Violation]()
        if self._deployment is not None:
            if self._expires and not broken:
                found += [Violation("expiry", text) for text in after_expiry(self._deployment, self._runs)]
            found += [Violation("processes", text) for text in self._deployment.stop_all()]
        self._deployment = None
        self._runs.clear()
        self._open.close()
        return found

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(broken=True)


def play_all(schedules: list[Schedule]) -> Iterator[tuple[History, list[Violation]]]:
    """Play these one after the other, each result as soon as it is there."""
    with Session() as session:
        for schedule in schedules:
            yield session.play(schedule)
