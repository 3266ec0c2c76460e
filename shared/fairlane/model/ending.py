"""How runs end early; and what follows a job that ended: jobs to call, jobs to record, session reports."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from fairlane.core.figures import dollars
from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult
from fairlane.model.run import RunState
from fairlane.model.tokens import Entry

SKIPPED_JUDGE = JudgeResult(JobState.SKIPPED, error="the task has no output to judge").to_json()

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


NextJob: TypeAlias = ReadyJob | RecordedJob
"""An evaluation that may be called now, or that is recorded without a call."""


class SessionCompletion(NamedTuple):
    """Reports an item's end to its session; the last of ``size`` reports makes ``evaluations`` ready.

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
        """`to_list` as JSON."""
        return json.dumps(self.to_list(), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Completion:
    """All that one script writes of a completed job.

    ``payload`` is its stored result; ``follow`` are evaluations of the same item; ``malformed`` are discarded
    parts of the answer, for the log. ``memory`` are fields that later items of a serial run read. ``session``
    is set once no evaluation of the item is left.
    """

    state: JobState
    payload: str
    follow: tuple[NextJob, ...] = ()
    malformed: tuple[str, ...] = ()
    memory: Mapping[str, str] = field(default_factory=dict)
    session: SessionCompletion | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends early: its state, and that of its unfinished jobs."""

    state: RunState
    unfinished: JobState
    reason: str = ""


CANCELLED = Ending(RunState.CANCELLED, JobState.CANCELLED)
TIMED_OUT = Ending(RunState.TIMED_OUT, JobState.TIMED_OUT, "its max_duration is over")
OUT_OF_BUDGET = Ending(RunState.STOPPED, JobState.SKIPPED, "the next call would exceed its budget")


def beyond_budget(budget: str, wanted: float, left: float) -> str:
    """That a call may use more than is ``left``: tokens, or millionths of a dollar of ``budget_cost``."""
    if budget == "budget_tokens":
        return f"it may use {wanted:,.0f} tokens, and {max(0, left):,.0f} are left"
    return f"it may cost {dollars(wanted / 1e6)}, and {dollars(max(0, left) / 1e6)} is left"


def out_of_budget(budget: str, wanted: float, left: float) -> Ending:
    """`OUT_OF_BUDGET` with the numbers of `beyond_budget` and a remedy."""
    argument = "budget_tokens" if budget == "budget_tokens" else "budget_usd"
    reason = f"{OUT_OF_BUDGET.reason}: {beyond_budget(budget, wanted, left)}"
    return replace(
        OUT_OF_BUDGET, reason=f"{reason}; continue it with a larger {argument} or a smaller max_tokens"
    )
