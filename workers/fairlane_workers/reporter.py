"""Reports how attempts ended, in one script each, and tells the log what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from fairlane.decision import Defer, Finish
from fairlane.events import Event
from fairlane.job import Attempt, JobState, Outcome
from fairlane.logs import attempt_fields, get_logger, moment
from fairlane.store.attempts import Attempts, Ready, Reported
from fairlane.store.keys import Keys, RunRef
from fairlane.store.script import Call
from fairlane_workers.batcher import Batcher
from fairlane_workers.endings import Ending
from fairlane_workers.material import Work

log = get_logger("executor")

RAW_CHARS = 2000
"""How much of a malformed answer a log line shows."""

_NEWS = {
    "cut": Event.LANE_RATE_CUT,
    "parked": Event.LANE_PARKED,
    "blocked": Event.LANE_BLOCKED,
    "open": Event.CIRCUIT_OPENED,
    "closed": Event.CIRCUIT_CLOSED,
}


class Reporter:
    """One worker's reports. A report that comes too late changes nothing and is told so.

    The ``timestamp`` of "released" is when the report was sent: the call is over then, and its place is not
    yet another's. So "acquired" less "released" is at no moment more than what was in flight by the limits.
    """

    def __init__(self, worker: str, attempts: Attempts, batcher: Batcher, keys: Keys) -> None:
        self._worker, self._attempts, self._batcher, self._keys = worker, attempts, batcher, keys
        self._shared: set[str] = set()  # lanes that were told to be

    async def finish(
        self,
        attempt: Attempt,
        decision: Finish,
        ending: Ending,
        outcome: Outcome,
        wire_ms: int | None = None,
        *,
        work: Work | None = None,
        elapsed_ms: int = 0,
    ) -> Reported | None:
        """The job is over. ``None`` where the report was late.

        ``wire_ms``: from its permit to its call; ``elapsed_ms``: what the call took.
        """
        verdict, fields = ending.verdict, _fields(attempt, work)
        call = self._attempts.finish(
            attempt,
            self._worker,
            decision.lesson,
            verdict.state,
            verdict.payload,
            verdict.follow,
            memory=ending.memory,
            joined=ending.joined,
        )
        sent, ready = moment(), [each for each in verdict.follow if isinstance(each, Ready)]
        reply, depths = await self._send(call, attempt, ready)
        reported = self._released(attempt, fields, Reported.of(reply), outcome, sent, wire_ms)
        if reported is None:
            return None
        for raw in verdict.malformed:
            self._tell_malformed(fields, raw)
        step = work.evaluation if work else None
        if verdict.state is JobState.FAILED and step is not None and step.labels:
            # After a batch its criteria are asked alone, so nothing is lost yet.
            tell = log.warning if step.batch else log.error
            told = {"status_code": _status(outcome), "elapsed_s": ((wire_ms or 0) + elapsed_ms) / 1000}
            tell(Event.EVALUATION_FAILED, **fields, **told, attempts=decision.attempts, reason=decision.error)
        for each in ready:
            queued = attempt_fields(attempt) | {"job": each.job, "lane": each.lane, "attempt": 1}
            labels = work.spec.labels(each.job) if work else {}
            log.info(Event.QUEUEING, **queued, **labels, queue_depth=depths[each.lane], timestamp=sent)
        if reported.finished:
            log.info(Event.RUN_FINISHED, run=attempt.run, team=attempt.team)
        return reported

    async def defer(
        self,
        attempt: Attempt,
        decision: Defer,
        outcome: Outcome | None,
        wire_ms: int | None = None,
        *,
        work: Work | None = None,
        handle: str | None = None,
    ) -> Reported | None:
        """The job goes back. ``None`` where the report was late.

        ``handle`` names the call that its next attempt goes on with.
        """
        call = self._attempts.defer(
            attempt,
            self._worker,
            decision.lesson,
            delay_ms=decision.delay_ms,
            costs_attempt=decision.costs_attempt,
            rate_limited=decision.rate_limited,
            handle=handle,
        )
        sent, fields = moment(), _fields(attempt, work)
        reply = Reported.of(await self._batcher.send(call))
        reported = self._released(attempt, fields, reply, outcome, sent, wire_ms)
        if reported is not None:
            delay_s = max(decision.delay_ms, decision.lesson.retry_after_ms or 0) / 1000
            told = {"status_code": _status(outcome), "delay_s": delay_s, "reason": decision.lesson.reason}
            log.info(Event.RETRY, **fields, **told)
        return reported

    def malformed(self, attempt: Attempt, work: Work, raw: str) -> None:
        """An answer was discarded: it is not what was asked for."""
        self._tell_malformed(_fields(attempt, work), raw)

    async def _send(
        self, call: Call, attempt: Attempt, ready: Sequence[Ready]
    ) -> tuple[Sequence[Any], Mapping[str, int | None]]:
        """The reply to a report, and how many jobs of the run wait then on each lane of ``ready``."""
        ref, lanes = RunRef(attempt.team, attempt.run), sorted({each.lane for each in ready})
        looks = [self._batcher.send(("LLEN", self._keys.hot(ref, lane))) for lane in lanes]
        reply, *found = await asyncio.gather(self._batcher.send(call), *looks, return_exceptions=True)
        if isinstance(reply, BaseException):
            raise reply
        depths = {lane: n if isinstance(n, int) else None for lane, n in zip(lanes, found, strict=True)}
        return reply, depths

    def _released(
        self,
        attempt: Attempt,
        fields: dict[str, Any],
        reported: Reported | None,
        outcome: Outcome | None,
        sent: str,
        wire_ms: int | None,
    ) -> Reported | None:
        if reported is None:
            log.warning(Event.LATE_REPORT, **fields, status_code=_status(outcome))
            return None
        told: dict[str, Any] = {"status_code": _status(outcome), "active_slots": reported.in_flight}
        log.info(Event.RELEASED, **fields, **told, wire_ms=wire_ms, timestamp=sent)
        if reported.news == "shared":
            self._tell_shared(attempt)
        news = _NEWS.get(reported.news)
        if news is not None:
            why = {"reason": getattr(outcome, "message", None), "delay_s": _seconds(outcome)}
            log.warning(news, **attempt_fields(attempt), **why)
        return reported

    def _tell_malformed(self, fields: dict[str, Any], raw: str) -> None:
        shown = raw if len(raw) <= RAW_CHARS else f"{raw[:RAW_CHARS]}…"
        log.warning(Event.EVALUATION_MALFORMED, **fields, raw=shown)

    def _tell_shared(self, attempt: Attempt) -> None:
        """Others come and go: that there are some is said once."""
        if attempt.lane not in self._shared:
            self._shared.add(attempt.lane)
            log.warning(Event.LANE_SHARED, **attempt_fields(attempt))


def _fields(attempt: Attempt, work: Work | None) -> dict[str, Any]:
    step = work.evaluation if work else None
    return attempt_fields(attempt) | (step.labels if step else {})


def _seconds(outcome: Outcome | None) -> float:
    return 0.0 if outcome is None else (outcome.retry_after_ms or 0) / 1000


def _status(outcome: Outcome | None) -> int | None:
    return None if outcome is None else outcome.status
