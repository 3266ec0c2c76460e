"""Notices that a run, or one of its lanes, makes no progress, and asks why."""

from collections.abc import Callable

from fairlane.core.clock import Clock
from fairlane.model.run_status import RunStatus
from fairlane.why.waiting import Waiting

STILL_AFTER_MS = 2000
"""A pause that people notice; most models answer faster."""

LONGEST_UNASKED_MS = 10_000
"""Most milliseconds between two questions. An answer costs a pass over all leases and delays, so the interval
doubles from `STILL_AFTER_MS`."""

_UNREMARKABLE = frozenset({"nothing", "running", "task", "feeding", "delayed"})
"""Constraints that are not reported while other lanes of the run make progress."""


class Standstill:
    """Remembers when a run and its lanes last made progress. ``ask`` returns the answer of `Run.why`, or
    ``None`` if there is none now.
    """

    def __init__(self, clock: Clock, ask: Callable[[], Waiting | None]) -> None:
        self._clock, self._ask = clock, ask
        self._moved: dict[str, tuple[int, int]] = {}
        self._pause_ms, self._due_ms = STILL_AFTER_MS, 0
        self._words: tuple[str, ...] = ()

    def words(self, status: RunStatus) -> tuple[str, ...]:
        """Sentences on why nothing happens; none while the run and all unfinished lanes make progress."""
        now_ms = self._clock.monotonic_ms()
        still = {""} if self._stands("", status.jobs_done, now_ms) else set[str]()
        for lane in status.lanes:
            if self._stands(lane.lane, lane.done, now_ms) and lane.done < lane.known:
                still.add(lane.lane)
        if status.state.finished or not still:
            self._pause_ms, self._due_ms, self._words = STILL_AFTER_MS, 0, ()
        elif now_ms >= self._due_ms:
            self._due_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, LONGEST_UNASKED_MS)
            answer = self._ask()
            self._words = _of(answer, still) if answer is not None else ()
        return self._words

    def _stands(self, what: str, done: int, now_ms: int) -> bool:
        before, since_ms = self._moved.get(what, (-1, now_ms))
        if done != before:
            since_ms = now_ms
        self._moved[what] = (done, since_ms)
        return now_ms - since_ms >= STILL_AFTER_MS


def _of(answer: Waiting, still: set[str]) -> tuple[str, ...]:
    """The run's sentence if the whole run stands still, then those of the lanes that wait."""
    found = [answer.sentence] if "" in still else []
    held = (part for part in answer.lanes if part.lane in still and part.constraint not in _UNREMARKABLE)
    found += [part.sentence for part in held if part.waits]
    return tuple(dict.fromkeys(found))


class HeldDetector:
    """Detects that a run waits for `resume`: refusals hold all its jobs, and no call is in flight.

    ``is_held`` asks what `Run.is_held` answers.
    """

    def __init__(self, is_held: Callable[[], bool]) -> None:
        self._is_held, self._seen = is_held, -1

    def check(self, status: RunStatus) -> bool:
        """Whether ``status`` is that of a held run; asks Redis only after two equal statuses in a row."""
        still = bool(status.rejections) and status.paused is None and not status.in_flight
        before, self._seen = self._seen, status.jobs_done if still else -1
        return still and before == status.jobs_done and self._is_held()
