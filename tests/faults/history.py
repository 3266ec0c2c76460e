"""What provider, records, logs and Redis say about one schedule, as plain data for the checker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.faults.kinds import ANY, BEAT_S, KINDS, NOTICED_S, WORKERS
from tests.faults.schedule import Schedule

COMPLETED, LOST = "completed", "lost"
PAID = frozenset({COMPLETED, "reset_after_work", "malformed", "cut_stream"})
"""How a request ends that the provider charges."""

HANGS = "provider_hangs"
"""The fault in which the provider works, and its answers wait."""

QUIET_S = 2 * BEAT_S
"""A pause between two silences may be too short for a heartbeat and a report if it is shorter than this."""

ON_ITS_WAY_S = 0.2
"""An answer may take so long to its worker, and a provider that hangs meanwhile keeps it."""

FORGOTTEN_S = 2.0
"""Redis forgets what it confirmed in so long before it loses writes: two turns of its sync."""

RESUMED_S = 0.3
"""So long after its end, a fault may still cut a call: what was held up in the fault arrives only now."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that reached the provider, in seconds. It arrived between ``since`` and ``arrived``.

    ``worker`` sent it, and ``ending`` is ``completed``, ``abandoned``, ``rejected``, ``outage`` or a fault
    of the simulated provider; empty while it is under way. ``tokens``: what the provider charged.
    """

    model: str
    question: str
    worker: str
    arrived: float
    since: float
    ended: float = float("inf")
    ending: str = ""
    tokens: int = 0

    def ended_as(self, ending: str, at: float, tokens: int = 0) -> Call:
        """The same call, ended."""
        return replace(self, ending=ending, ended=at, tokens=tokens)

    def after(self, start: float) -> Call:
        """The same call, in seconds since ``start``."""
        return replace(self, arrived=self.arrived - start, since=self.since - start, ended=self.ended - start)

    @property
    def paid(self) -> bool:
        """Whether the provider charged it."""
        return self.ending in PAID


@dataclass(frozen=True, slots=True)
class Span:
    """A fault as it was played, in seconds since the start. ``hit``: the processes that it hit."""

    name: str
    hit: tuple[str, ...]
    begin: float
    end: float

    @property
    def cuts(self) -> bool:
        """Whether calls of these processes may be made again although they were paid."""
        return self.end - self.begin >= KINDS[self.name].cuts_after

    @property
    def silences(self) -> bool:
        """Whether the workers that it hit sent no heartbeat and no report."""
        return KINDS[self.name].silences

    @property
    def forgets(self) -> bool:
        """Whether Redis lost writes that it had confirmed."""
        return KINDS[self.name].forgets

    @property
    def costs(self) -> bool:
        """Whether jobs may use attempts because of it."""
        return self.cuts or KINDS[self.name].costs

    def concerns(self, worker: str) -> bool:
        """Whether it hit this worker, or everything."""
        return worker in self.hit or ANY in self.hit


@dataclass(frozen=True, slots=True)
class Entry:
    """A record: the item's state, output, scores and attempts."""

    item: int
    state: str
    output: str | None
    scores: tuple[float | None, ...]
    attempts: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RunSeen:
    """A run as it was submitted, and as its team sees it in the end.

    ``questions`` are the prompts of its items; ``judges`` evaluations follow each. ``ending`` is the state
    that it must reach. ``most``: the most calls at once; ``serial``: one item after the other; ``ahead``: the
    most items that have begun and are not judged. ``may_be_lost``: it was submitted within a second before
    a power loss. ``done_s``: when its end was seen; ``ended_early_s`` is the same of a run that did not
    complete. ``budget``: the most tokens. ``talks``: the questions of each session; ``sessions``: the number
    and scores of each as they were read. ``continued``: another run repeats what this one did not complete.
    """

    name: str
    id: str
    team: str
    questions: tuple[str, ...]
    state: str = ""
    ending: str = "completed"
    judges: int = 0
    most: int | None = None
    serial: bool = False
    ahead: int | None = None
    max_attempts: int = 1
    may_be_lost: bool = False
    records: tuple[Entry, ...] = ()
    by_state: Mapping[str, int] = field(default_factory=dict)
    jobs: int = 0
    jobs_done: int = 0
    done_s: float | None = None
    paused: tuple[tuple[float, float], ...] = ()
    ended_early_s: float | None = None
    budget: int | None = None
    talks: tuple[tuple[str, ...], ...] = ()
    sessions: tuple[tuple[int, tuple[float | None, ...]], ...] = ()
    continued: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A stated limit of a model from a moment on: calls per second, and the burst in calls."""

    since: float
    per_second: float
    burst: float


@dataclass(frozen=True, slots=True)
class History:
    """One schedule from its submission until nothing moved any more.

    ``limits``: by model. ``logs``: log lines of all processes. ``left``: what Redis still holds that should
    have gone, by its kind. ``died``: processes that ended unasked. ``stalled_s``: the longest time for which
    the harness itself did not run. ``unplayed``: faults that could not be played, and why.
    """

    schedule: Schedule
    calls: tuple[Call, ...] = ()
    runs: tuple[RunSeen, ...] = ()
    faults: tuple[Span, ...] = ()
    limits: Mapping[str, tuple[Limit, ...]] = field(default_factory=dict)
    logs: tuple[Mapping[str, Any], ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    died: tuple[str, ...] = ()
    stalled_s: float = 0.0
    unplayed: tuple[str, ...] = ()
    took_s: float = 0.0

    @property
    def last_fault_s(self) -> float:
        """When the last fault ended."""
        return max((span.end for span in self.faults), default=0.0)

    @property
    def forgets(self) -> bool:
        """Whether Redis lost confirmed writes in this schedule."""
        return any(span.forgets for span in self.faults)

    @property
    def costs(self) -> bool:
        """Whether jobs may use attempts because of these faults, each alone or all together."""
        return any(span.costs for span in self.faults) or any(
            silence.noticed for worker in WORKERS for silence in self._silences(worker)
        )

    def cut_at(self, call: Call, margin: float = 0.0) -> float | None:
        """When faults first cut the call from the deployment, at most ``margin`` seconds after its end."""
        cuts = [
            begin
            for begin, end in self._cuts(call.worker)
            if begin <= self._answered_s(call) + margin and call.arrived <= end + RESUMED_S
        ]
        return min(cuts, default=None)

    def _answered_s(self, call: Call) -> float:
        """When its answer reached its worker: a provider that hangs keeps answers until it goes on."""
        hangs = [span for span in self.faults if span.name == HANGS]
        kept = (span.end for span in hangs if span.begin - ON_ITS_WAY_S <= call.ended <= span.end)
        return max(kept, default=call.ended)

    def _cuts(self, worker: str) -> Iterator[tuple[float, float]]:
        """When faults cut a worker off: each that does so alone, and silences that do so together.

        A report that waits in a silence is lost with what follows at once, so a cut begins with that silence.
        It is confirmed only after it, and so may be among what Redis then forgets.
        """
        silences = self._silences(worker)
        yield from ((silence.begin, silence.end) for silence in silences if silence.noticed)
        for span in self._hitting(worker):
            if span.cuts:
                quiet_s = QUIET_S + (FORGOTTEN_S if span.forgets else 0.0)
                before = [one.begin for one in silences if one.begin <= span.begin <= one.end + quiet_s]
                yield min([span.begin, *before]), span.end

    def _hitting(self, worker: str) -> list[Span]:
        return [span for span in self.faults if span.concerns(worker) or worker not in WORKERS]

    def _silences(self, worker: str) -> list[_Silence]:
        return _merged([span for span in self._hitting(worker) if span.silences])


@dataclass(slots=True)
class _Silence:
    """Faults that follow each other so closely that a worker may have said nothing in between."""

    begin: float
    end: float
    by_redis_alone: bool

    @property
    def noticed(self) -> bool:
        """Whether the worker may count as lost. Nobody counts the time for which Redis itself is away."""
        return not self.by_redis_alone and self.end - self.begin >= NOTICED_S


def _merged(spans: Sequence[Span]) -> list[_Silence]:
    merged = list[_Silence]()
    for span in sorted(spans, key=lambda span: span.begin):
        redis = KINDS[span.name].uses == "redis"
        if merged and span.begin <= merged[-1].end + QUIET_S:
            last = merged[-1]
            last.end, last.by_redis_alone = max(last.end, span.end), last.by_redis_alone and redis
        else:
            merged.append(_Silence(span.begin, span.end, redis))
    return merged
