"""What a script is told of the session that an item belongs to, wherever that item may be over."""

from __future__ import annotations

import json
from typing import NamedTuple

from fairlane.job import JobState
from fairlane.results import JudgeResult
from fairlane.store.entry import Entry

NO_OUTPUT = JudgeResult(JobState.SKIPPED, error="no item of the session has an output").to_json()


class Joined(NamedTuple):
    """An item joins its session in its cell, if it is over; the last of ``size`` makes ``evaluations`` ready.

    ``answered``: it has an output. An evaluation is its queue's entry and its lane.
    """

    session: int
    cell: int
    size: int
    answered: bool
    evaluations: tuple[tuple[Entry, str], ...]

    @property
    def lanes(self) -> list[str]:
        """On which lane each evaluation is queued."""
        return [lane for _, lane in self.evaluations]

    def told(self) -> list[object]:
        """As ``lib/session.lua`` reads it."""
        jobs = [[entry.job, str(entry), lane] for entry, lane in self.evaluations]
        return [self.session, self.cell, self.size, "" if self.answered else NO_OUTPUT, jobs]

    def to_json(self) -> str:
        return json.dumps(self.told(), separators=(",", ":"))
