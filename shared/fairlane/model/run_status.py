"""A run at one moment: its progress by lane, its pause, its rejections and its times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlane.model.job import JobState
from fairlane.model.run import RunSpec, RunState


def failed_of(by_state: Mapping[JobState, int]) -> int:
    """How many jobs failed: FAILED (the call went wrong) and INVALID (there was no call to make) alike."""
    return by_state.get(JobState.FAILED, 0) + by_state.get(JobState.INVALID, 0)


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """A lane's part of a run: how many jobs are known to use it, and how many of those ended."""

    lane: str
    known: int
    done: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when a run is paused (server time), and by whom, as the client states it; may be empty."""

    since_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """A model that rejected the run's first calls alike, by lane, and the provider's ``words``.

    ``kind`` is the call kind: a run may call a lane in several ways, and is held only where it was rejected.
    """

    lane: str
    kind: int
    words: str


@dataclass(frozen=True, slots=True)
class RoleTime:
    """Time of a run's tasks, or of its evaluations, in seconds summed over all of them.

    ``waiting_s``: from being queued to their ends, outside of calls: for a permit, a worker or a retry.
    ``calling_s``: in ``calls``, from a worker's claim to its report, also of calls that failed. A permit that
    came too late to be used is no call.
    """

    calls: int = 0
    waiting_s: float = 0.0
    calling_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Scores:
    """One evaluator's scores over the ``count`` items that have one; ``missing`` have none, for any reason.

    ``standard_error`` is that of the mean over ``rows``, which count as independent: repetitions, prompts and
    models of one row do not. It is cluster-robust (`fairlane.export.moments`), which with one item a
    row is ``s / √count`` with ``s² = Σ(x − mean)² / (count − 1)``. There is none for fewer than two rows.
    ``rows`` is 0 in what an earlier version stored.
    """

    count: int
    missing: int
    mean: float | None = None
    standard_error: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    rows: int = 0

    @property
    def of_rows(self) -> str:
        """The count, with the rows where there are fewer: ``"200 of 10 rows"``."""
        fewer = 0 < self.rows < self.count
        return f"{self.count:,}" + (f" of {self.rows:,} row{'' if self.rows == 1 else 's'}" if fewer else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A run at one moment. ``jobs_done / jobs`` reaches exactly 1 when the run is finished.

    ``paused`` is set while somebody has paused the run. ``predict`` is the time of tasks, ``score`` that of
    evaluations, of a finished run; ``None`` where nothing was called. ``client_scores`` are by scorer what
    clients have computed over all records of a finished run; lists of runs leave them out.
    """

    run: str
    team: str
    name: str
    state: RunState
    items: int
    items_done: int = 0
    jobs: int
    jobs_done: int = 0
    by_state: Mapping[JobState, int] = field(default_factory=dict)
    in_flight: int = 0
    retries: int = 0
    rate_limits: int = 0
    late_reports: int = 0
    lanes: tuple[LaneProgress, ...] = ()
    submitted_ms: int
    started_ms: int | None = None
    finished_ms: int | None = None
    reason: str | None = None
    paused: Pause | None = None
    predict: RoleTime | None = None
    score: RoleTime | None = None
    rejections: tuple[Rejection, ...] = ()
    client_scores: Mapping[str, Scores] = field(default_factory=dict)

    @classmethod
    def submitted(cls, spec: RunSpec) -> RunStatus:
        """The status of a run that waits for admission."""
        return cls(
            run=spec.run,
            team=spec.team,
            name=spec.name,
            state=RunState.SUBMITTED,
            items=spec.items,
            jobs=spec.jobs,
            submitted_ms=spec.submitted_ms,
        )

    @property
    def progress(self) -> float:
        """Share of jobs that ended, 0 to 1; an empty run is complete."""
        return self.jobs_done / self.jobs if self.jobs else float(self.state.finished)

    @property
    def failed(self) -> int:
        """Jobs that failed, as `failed_of` counts them."""
        return failed_of(self.by_state)
