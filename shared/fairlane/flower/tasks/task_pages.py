"""Flower's pages of tasks, which first learn of which runs the tasks are."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from flower.views.tasks import TasksDataTable, TaskView
from redis.exceptions import RedisError

from fairlane.core.errors import FairlaneError
from fairlane.flower.readings.readers import Readers
from fairlane.flower.readings.run_list import LISTED
from fairlane.flower.tasks.task_rows import TaskRows


class Learning:
    """Before a page of tasks is made, the shapes of the latest runs are read, off the loop."""

    readers: Readers
    rows: TaskRows

    def initialize(self, readers: Readers, rows: TaskRows) -> None:
        """Keep the shared readers and the formatter of tasks."""
        self.readers, self.rows = readers, rows

    async def prepare(self) -> None:
        """Without Redis the page comes all the same, with fewer words."""
        with suppress(RedisError, FairlaneError, OSError):
            await asyncio.shield(asyncio.wrap_future(self.readers.readings.read(self._learn)))

    def _learn(self) -> None:
        reader = self.readers.deployment.reader
        self.rows.learn(reader.newest_runs(reader.teams(), LISTED))


class LearningTasks(Learning, TasksDataTable):
    """The rows of Flower's table of tasks."""


class LearningTask(Learning, TaskView):
    """Flower's page of one task."""
