"""Serves the data of the pages as JSON, and the actions of their buttons."""

import re
from collections.abc import Mapping
from typing import Any

from tornado.web import HTTPError

from fairlane.flower.readings.lane_board import SPANS
from fairlane.flower.tasks.task_rows import attempts_seen
from fairlane.flower.web.guarded import Data
from fairlane.model.run import RunRef

_PAGE = re.compile(r"[1-9]\d{0,2}", re.ASCII)


class LanesData(Data):
    """All lanes."""

    async def get(self) -> None:
        """Send all lanes."""
        self.finish(await self.read(self.readers.lanes.all))


class LaneData(Data):
    """One lane; ``span`` is one of `SPANS`."""

    async def get(self, lane: str) -> None:
        """Send one lane with its chart. 400 for a span that is not one of `SPANS`."""
        span = self.get_argument("span", "fine")
        if span not in SPANS:
            raise HTTPError(400, f"span is one of {', '.join(SPANS)}")
        self.finish(await self.read(self.readers.lanes.one, lane, span))


class RunsData(Data):
    """The latest runs."""

    async def get(self) -> None:
        """Send a page of runs, the newest first. 400 for a ``page`` that is no number from 1 to 999."""
        page = str(self.get_argument("page", "1"))
        if _PAGE.fullmatch(page) is None:
            raise HTTPError(400, "page is a number from 1 to 999")
        self.finish(await self.read(self.readers.runs.all, int(page)))


class RunData(Data):
    """One run."""

    async def get(self, team: str, run: str) -> None:
        """Send one run."""
        self.finish(await self.read(self.readers.run.of, team, run))


class ItemData(Data):
    """One item, with the attempts whose events this Flower has received."""

    async def get(self, team: str, run: str, item: str) -> None:
        """Send one item and its attempts."""
        found = await self.read(self.readers.item.of, team, run, int(item))
        tasks: Mapping[str, Any] = getattr(self.flower.events.state, "tasks", {})
        steps = [
            step | {"seen": attempts_seen(tasks, RunRef(team, run), step["job"])} for step in found["steps"]
        ]
        self.finish(found | {"steps": steps})


class TeamsData(Data):
    """All teams."""

    async def get(self) -> None:
        """Send all teams."""
        self.finish(await self.read(self.readers.teams.all))


class RunAction(Data):
    """Asks the scheduler to cancel, pause or resume a run, as its team's client would."""

    async def post(self, team: str, run: str, verb: str) -> None:
        """Send the request for the run to the scheduler. 403 in a read-only Flower."""
        if self.flower.options.read_only:
            raise HTTPError(403, "Flower was started with --read_only")
        await self.do(self._ask, RunRef(team, run), verb, self.who())
        self.finish({"asked": verb})

    def _ask(self, ref: RunRef, verb: str, who: str) -> None:
        deployment = self.readers.deployment
        deployment.runs.overview(ref)  # raises for an unknown run, so that no request names one
        match verb:
            case "pause":
                deployment.outbox.pause(ref, who)
            case "resume":
                deployment.outbox.resume(ref, who)
            case _:
                deployment.outbox.cancel(ref)
