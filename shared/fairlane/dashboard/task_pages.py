"""Flower's pages of tasks, which first learn of which runs the tasks are."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from flower.views.tasks import TasksDataTable, TaskView
from redis.exceptions import RedisError

from fairlane.dashboard.desk import Desk
from fairlane.dashboard.run_list import LISTED
from fairlane.dashboard.task_rows import TaskRows
from fairlane.errors import FairlaneError


class Learning:
    """Before a page of tasks is made, the shapes of the latest runs are read, off the loop."""

    desk: Desk
    rows: TaskRows

    def initialize(self, desk: Desk, rows: TaskRows) -> None:
        self.desk, self.rows = desk, rows

    async def prepare(self) -> None:
        """Without Redis the page comes all the same, with fewer words."""
        with suppress(RedisError, FairlaneError, OSError):
            await asyncio.shield(asyncio.wrap_future(self.desk.readings.read(self._learn)))

    def _learn(self) -> None:
        reader = self.desk.deployment.reader
        self.rows.learn(reader.newest_runs(reader.teams(), LISTED))


class LearningTasks(Learning, TasksDataTable):
    """The rows of Flower's table of tasks."""


class LearningTask(Learning, TaskView):
    """Flower's page of one task."""
