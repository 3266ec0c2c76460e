"""Adds Fairlane's pages to Flower before it starts: handlers, template loader, task formatter, options."""

import asyncio
from contextlib import suppress
from typing import Any

from flower import urls
from flower.app import Flower
from flower.options import options
from flower.views.tasks import TASK_COLUMNS, TasksDataTable, TaskView
from redis.exceptions import RedisError
from tornado.routing import URLSpec
from tornado.web import url

from fairlane.client.deployment import Deployment
from fairlane.core.errors import FairlaneError
from fairlane.flower.readings.readers import Readers
from fairlane.flower.readings.run_list import LISTED
from fairlane.flower.tasks.task_rows import COLUMNS, DEFAULT_COLUMNS, TaskRows
from fairlane.flower.web import data, pages
from fairlane.flower.web.guarded import find_handler
from fairlane.flower.web.pages import StackedLoader

RUN = r"([^/]+)/([A-Za-z0-9_-]{1,64})"
ITEM = r"(\d{1,15})"


def install(deployment: Deployment, *, show_text: bool) -> Readers:
    """Call it once in a process. Only with ``show_text`` do pages of items show prompts and outputs."""
    readers = Readers(deployment, show_text=show_text)
    rows = TaskRows(lambda ref: readers.runs.look(ref)[1])
    # The first matching handler answers; the last one matches everything.
    urls.handlers[:] = [*task_routes(readers, rows), *urls.handlers[:-1], *routes(readers), urls.handlers[-1]]
    application: Any = Flower
    application.find_handler = find_handler
    urls.settings["template_loader"] = StackedLoader(urls.settings["template_path"])
    options.format_task = lambda task: rows.format(task)  # Flower takes a plain function alone
    options.tasks_columns = DEFAULT_COLUMNS
    TASK_COLUMNS.update(COLUMNS)
    return readers


def task_routes(readers: Readers, rows: TaskRows) -> list[URLSpec]:
    """Handlers that replace Flower's pages of tasks."""
    shared: dict[str, Any] = {"readers": readers, "rows": rows}
    return [url(r"/task/(.+)", TaskPage, shared), url(r"/tasks/datatable", TaskTable, shared)]


def routes(readers: Readers) -> list[URLSpec]:
    """Fairlane's pages, their data and actions; all except static files require Flower's login."""
    shared: dict[str, Any] = {"readers": readers}
    return [
        url(r"/lanes", pages.LanesPage, shared, name="fairlane-lanes"),
        url(r"/lane/(.+)", pages.LanePage, shared, name="fairlane-lane"),
        url(r"/runs", pages.RunsPage, shared, name="fairlane-runs"),
        url(rf"/run/{RUN}", pages.RunPage, shared, name="fairlane-run"),
        url(rf"/run/{RUN}/{ITEM}", pages.ItemPage, shared, name="fairlane-item"),
        url(r"/teams", pages.TeamsPage, shared, name="fairlane-teams"),
        url(r"/fairlane/data/lanes", data.LanesData, shared),
        url(r"/fairlane/data/lane/(.+)", data.LaneData, shared),
        url(r"/fairlane/data/runs", data.RunsData, shared),
        url(rf"/fairlane/data/run/{RUN}", data.RunData, shared),
        url(rf"/fairlane/data/run/{RUN}/{ITEM}", data.ItemData, shared),
        url(r"/fairlane/data/teams", data.TeamsData, shared),
        url(rf"/fairlane/run/{RUN}/(cancel|pause|resume)", data.RunAction, shared),
        url(r"/fairlane/static/(.*)", pages.Assets, {"path": str(pages.STATIC)}, name="fairlane-static"),
    ]


class ReadsSpecs:
    """Reads the specs of the latest runs, off the event loop, before Flower makes a page of tasks."""

    readers: Readers
    rows: TaskRows

    def initialize(self, readers: Readers, rows: TaskRows) -> None:
        """Keep the shared readers and the formatter of tasks."""
        self.readers, self.rows = readers, rows

    async def prepare(self) -> None:
        """Read the specs. Without Redis the page still comes, with fewer details."""
        with suppress(RedisError, FairlaneError, OSError):
            await asyncio.shield(asyncio.wrap_future(self.readers.readings.read(self._learn)))

    def _learn(self) -> None:
        reader = self.readers.deployment.reader
        self.rows.learn(reader.newest_runs(reader.teams(), LISTED))


class TaskTable(ReadsSpecs, TasksDataTable):
    """The rows of Flower's table of tasks."""


class TaskPage(ReadsSpecs, TaskView):
    """Flower's page of one task."""
