"""Follow-ups of a job that ended: jobs that become ready, jobs recorded without a call, session reports."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult
from fairlane.model.tokens import Entry

NO_OUTPUT = JudgeResult(JobState.SKIPPED, error="no item of the session has an output").to_json()


class ReadyJob(NamedTuple):
    """An evaluation that may be called now: ``entry`` is queued on its lane."""

    entry: Entry
    lane: str

    @property
    def job(self) -> int:
        """The number of its job."""
        return self.entry.job


class RecordedJob(NamedTuple):
    """A job that is recorded without an attempt. "given": the row had the output, so progress skips it."""

    job: int
    state: JobState | Literal["given"]
    payload: str
    lane: str


class SessionCompletion(NamedTuple):
    """The report of an item that ended to its session; the last of ``size`` makes ``evaluations`` ready.

    ``answered``: the item has an output. ``evaluations`` are pairs of queue entry and lane.
    """

    session: int
    cell: int
    size: int
    answered: bool
    evaluations: tuple[tuple[Entry, str], ...]

    @property
    def lanes(self) -> list[str]:
        """The lane of each evaluation."""
        return [lane for _, lane in self.evaluations]

    def to_list(self) -> list[object]:
        """The form that ``lib/run/sessions.lua`` reads."""
        jobs = [[entry.job, str(entry), lane] for entry, lane in self.evaluations]
        return [self.session, self.cell, self.size, "" if self.answered else NO_OUTPUT, jobs]

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_list(), separators=(",", ":"))
