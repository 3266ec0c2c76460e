"""Reads the data of ``fairlane top``: the whole deployment at one moment, in a few round trips."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlane.cli.lanes.lane_views import LaneReport
from fairlane.cli.lanes.workers import worker_state
from fairlane.client.deployment import Deployment
from fairlane.client.following.progress import Rate
from fairlane.model.run import RunRef
from fairlane.model.run_status import RunStatus
from fairlane.store.connection.connect import if_allowed
from fairlane.store.read.overview import LeaderView
from fairlane.store.write.budgets import Allowance
from fairlane.store.write.lanes.lane_history import FINE, Sample, refused_share, used_per_minute
from fairlane.store.write.workers import Beat

MOST_RUNS = 500
"""Most active runs that are read, the newest; any others are only counted."""

LINGER_MS = 60_000
"""Milliseconds for which a run that ended during the view stays visible."""


class LaneLine(NamedTuple):
    """A lane, its calls started in the last minute, and its share of 429s; ``None``: unknown."""

    report: LaneReport
    used_per_minute: int | None
    refused: float | None


class RunLine(NamedTuple):
    """A run, and how many of its jobs end per second; ``None`` before the second snapshot."""

    status: RunStatus
    per_second: float | None

    @property
    def left_s(self) -> float | None:
        """Seconds until its end at that rate."""
        left = self.status.jobs - self.status.jobs_done
        return left / self.per_second if self.per_second and left > 0 else None


class TeamLine(NamedTuple):
    """A team: its weight, its active runs, and its most used budget."""

    team: str
    weight: float
    runs: int
    in_flight: int
    queued: int
    budget: Allowance | None


class WorkerLine(NamedTuple):
    """A worker, and whether it is alive."""

    beat: Beat
    state: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A deployment at ``now_ms`` (server time). ``active`` counts all active runs; ``runs`` may be fewer.
    ``leader`` is ``None`` without a leader; ``hidden`` names what this user may not read.
    """

    deployment: str
    now_ms: int
    leader: LeaderView | None
    lanes: tuple[LaneLine, ...]
    runs: tuple[RunLine, ...]
    teams: tuple[TeamLine, ...]
    workers: tuple[WorkerLine, ...]
    active: int
    hidden: tuple[str, ...] = ()


class Reader:
    """Reads snapshots, and remembers the counts that rates need."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._runs = deployment.runs
        self._names: dict[RunRef, str] = {}
        self._rates: dict[RunRef, Rate] = {}

    def read(self) -> Snapshot:
        """Read a snapshot."""
        d, hidden = self._deployment, list[str]()
        now_ms = d.now_ms()
        active = self._active(hidden)
        refs = sorted(active, key=lambda ref: ref.run, reverse=True)[:MOST_RUNS]
        self._learn_names(refs, set(active))
        statuses, queued = self._statuses(list(self._names), now_ms)
        beats = if_allowed(d.beats, None)
        if beats is None:
            hidden.append("workers")
        silent_ms = d.settings.scheduler.worker_timeout_seconds * 1000
        return Snapshot(
            deployment=d.settings.redis.deployment,
            now_ms=now_ms,
            leader=self._leader(now_ms),
            lanes=self._lanes(queued, now_ms),
            runs=tuple(self._line(ref, status, now_ms) for ref, status in statuses.items()),
            teams=self._teams(statuses, queued, now_ms, alone=bool(hidden)),
            workers=tuple(WorkerLine(beat, worker_state(beat, now_ms, silent_ms)) for beat in beats or ()),
            active=len(active),
            hidden=tuple(hidden),
        )

    def _active(self, hidden: list[str]) -> list[RunRef]:
        """All active runs; only those of this user's team if others are not readable."""
        d = self._deployment
        found = if_allowed(d.run_states.active, None)
        if found is not None:
            return found
        hidden.append("runs of other teams")
        recent = self._runs.recent(d.settings.team, MOST_RUNS)
        return [RunRef(status.team, status.run) for status in recent if not status.state.finished]

    def _statuses(
        self, refs: Sequence[RunRef], now_ms: int
    ) -> tuple[dict[RunRef, RunStatus], Counter[tuple[str, str]]]:
        """The statuses of these runs, except long finished ones, and their queued jobs by team and lane."""
        ordered = sorted(refs, key=lambda ref: (ref.run, ref.team))
        found: dict[RunRef, RunStatus] = {}
        for ref, run in zip(ordered, self._deployment.run_states.read(ordered), strict=True):
            if not run:
                continue
            status = run.status(ref, self._names[ref])
            if status.finished_ms is not None and now_ms - status.finished_ms > LINGER_MS:
                del self._names[ref]
                continue
            found[ref] = status
        running = [ref for ref, status in found.items() if not status.state.finished]
        queued = Counter[tuple[str, str]]()
        for (ref, lane), length in self._deployment.run_states.queued(running).items():
            queued[ref.team, lane] += length
        return found, queued

    def _learn_names(self, refs: Sequence[RunRef], active: set[RunRef]) -> None:
        """Keep the names of visible runs: ``refs``, and earlier ones that have ended."""
        self._names = {ref: name for ref, name in self._names.items() if ref in refs or ref not in active}
        self._rates = {ref: rate for ref, rate in self._rates.items() if ref in self._names}
        unknown = [ref for ref in refs if ref not in self._names]
        self._names.update(zip(unknown, self._deployment.run_states.names(unknown), strict=True))

    def _line(self, ref: RunRef, status: RunStatus, now_ms: int) -> RunLine:
        rate = self._rates.setdefault(ref, Rate())
        rate.count(now_ms, status.jobs_done)
        return RunLine(status, None if status.state.finished else rate.per_second)

    def _lanes(self, queued: Mapping[tuple[str, str], int], now_ms: int) -> tuple[LaneLine, ...]:
        d = self._deployment
        names = d.lanes.names()
        by_lane = Counter[str]()
        for (_, lane), count in queued.items():
            by_lane[lane] += count
        none: dict[str, list[Sample]] = {}
        since_ms = now_ms - FINE.span_ms
        history = d.history
        samples = if_allowed(lambda: history.of_all(names, since_ms), none) if names else none
        return tuple(
            LaneLine(
                LaneReport(view, by_lane[view.lane]),
                *_activity(samples.get(view.lane), now_ms),
            )
            for view in d.lanes.views(names)
        )

    def _teams(
        self,
        statuses: Mapping[RunRef, RunStatus],
        queued: Mapping[tuple[str, str], int],
        now_ms: int,
        *,
        alone: bool,
    ) -> tuple[TeamLine, ...]:
        """All known teams; ``alone``: only this user's team, which may not read others' budgets."""
        d = self._deployment
        stated = dict(d.weights)
        registry = d.registry
        made = if_allowed(lambda: {name: each.weight for name, each in registry.all().items()}, stated)
        weights = stated | made
        going = [status for status in statuses.values() if not status.state.finished]
        known = {*weights, *(status.team for status in going)}
        names = [d.settings.team] if alone else sorted(known)
        budgets = _worst(if_allowed(lambda: d.budgets.of(names, now_ms), []))
        return tuple(
            TeamLine(
                team=name,
                weight=weights.get(name, 1.0),
                runs=sum(status.team == name for status in going),
                in_flight=sum(status.in_flight for status in going if status.team == name),
                queued=sum(count for (team, _), count in queued.items() if team == name),
                budget=budgets.get(name),
            )
            for name in names
        )

    def _leader(self, now_ms: int) -> LeaderView | None:
        """The leader; ``None`` also if this user may not read it."""
        read: Callable[[], LeaderView | None] = self._deployment.reader.leader
        leader = if_allowed(read, None)
        return leader if leader is not None and leader.until_ms > now_ms else None


def _activity(samples: Sequence[Sample] | None, now_ms: int) -> tuple[int | None, float | None]:
    if samples is None:
        return None, None
    return used_per_minute(samples, now_ms), refused_share(samples)


def _worst(allowances: Sequence[Allowance]) -> dict[str, Allowance]:
    """Each team's most used budget."""
    found: dict[str, Allowance] = {}
    for each in allowances:
        if each.team not in found or each.share > found[each.team].share:
            found[each.team] = each
    return found
