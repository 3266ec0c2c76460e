"""The answers of `why`: constraints, estimates and sentences."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Constraint: TypeAlias = Literal[
    # States of a lane that grants nothing or little, and its limits (docs/constraints.md has each).
    "paused",
    "parked",
    "circuit",
    "held",
    "probing",
    "blocked",
    "doubt",
    "refused",
    "requests",
    "tokens",
    "input",
    "output",
    "day",
    "window",
    "slots",
    "gap",
    # The lane is fully used, and other teams wait for it, too.
    "fairness",
    # The rest of the lane is reserved for other teams, or this team has its maximum share
    # (lib/team/reserved_shares.lua).
    "reserved",
    "team_share",
    # The run's own bounds (lib/run/bounds.lua).
    "cap",
    "max_concurrent",
    "ahead",
    "task_rate",
    "eval_rate",
    "delay",
    "budget",
    # Its next job waits for its model's turn on the server (lib/models/models.lua).
    "model",
    # Somebody has paused the run.
    "run_paused",
    # Its model rejected the run's first calls alike (lib/run/model_refusals.lua).
    "request_refused",
    # Its model has answered none of the run's calls yet (lib/run/first_calls.lua).
    "first_calls",
    # What its team may use in a day or a month is used up (lib/team/budget.lua).
    "team_budget",
    # Before the lane, in this order: no scheduler leads, the run is not admitted, the item is not fed, it
    # waits for another since items run one at a time, its row is not written yet, an evaluation has no output
    # yet, a retry is not due.
    "scheduler",
    "admission",
    "feeding",
    "serial",
    "rows",
    "task",
    "delayed",
    # Nothing limits it: its call runs, it starts in a moment, or it is over.
    "running",
    "nothing",
    "done",
    "cancelled",
    "timed_out",
    "stopped",
    "run_refused",
]


class Eta(NamedTuple):
    """About when a job starts; ``None`` where it is unknown. ``at_least``: it may be much later."""

    at_ms: int | None = None
    at_least: bool = False


UNKNOWN = Eta()


def no_earlier(eta: Eta, at_ms: int, *, at_least: bool = False) -> Eta:
    """The estimate, not before ``at_ms``, if it is known. ``at_least``: no clock ends what delays it."""
    if eta.at_ms is None:
        return eta
    return Eta(max(eta.at_ms, at_ms), eta.at_least or at_least)


@dataclass(frozen=True, slots=True)
class LaneWait:
    """What waits on one lane: jobs of one run if the target is a run or a job, of all runs if it is a lane.

    ``not_ready`` counts evaluations without an output yet, ``unfed`` about how many items are not fed.
    ``share`` is the team's part of a lane that several teams want, 1 if none does. About ``ahead`` jobs start
    before the last of these, or before the target job, and that one starts at ``eta``. Times are server
    milliseconds.
    """

    lane: str
    constraint: Constraint
    sentence: str
    until_ms: int | None
    queued: int
    in_flight: int
    delayed: int = 0
    next_due_ms: int | None = None
    not_ready: int = 0
    unfed: int = 0
    share: float = 1.0
    ahead: int | None = None
    eta: Eta = UNKNOWN

    @property
    def waits(self) -> int:
        """Jobs that have not started."""
        return self.queued + self.delayed + self.not_ready + self.unfed


class HeldTeam(NamedTuple):
    """A team with ``queued`` jobs on a lane, the budget that delays them, and until when."""

    team: str
    queued: int
    sentence: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """The answer to "why is this waiting?" at ``now_ms``. Times are server milliseconds.

    ``constraint`` is what limits it now, ``sentence`` says so in words, ``until_ms`` is when that ends if
    time alone ends it. ``position`` is a job's place in its run's queue (1 is next). About ``ahead`` jobs
    start before it, those of other runs and teams included. ``eta`` is when the job starts, or the
    last job of the run or of the lane's queue. ``state`` is the lane's, the run's or the job's.
    ``unknown`` is what the answer leaves out, since this team's user may not read it. ``held_teams`` are
    those whose jobs wait on a lane for the end of a budget. ``job`` is the number of a job in its run, by
    which log lines and traces name it.
    """

    target: str
    kind: Literal["lane", "run", "job"]
    state: str
    constraint: Constraint
    sentence: str
    until_ms: int | None
    position: int | None
    ahead: int | None
    eta: Eta
    lanes: tuple[LaneWait, ...]
    now_ms: int
    unknown: tuple[str, ...] = ()
    held_teams: tuple[HeldTeam, ...] = ()
    job: int | None = None
