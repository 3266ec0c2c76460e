"""Reports how attempts ended, in one script each, and tells the log what came of it."""

from __future__ import annotations

from typing import Any

from fairlane.decision import Defer, Finish
from fairlane.events import Event
from fairlane.job import Attempt, Outcome
from fairlane.logs import attempt_fields, get_logger
from fairlane.store.attempts import Attempts, Ready, Reported
from fairlane_workers.batcher import Batcher
from fairlane_workers.verdict import Verdict

log = get_logger("executor")

_NEWS = {
    "cut": Event.LANE_RATE_CUT,
    "parked": Event.LANE_PARKED,
    "blocked": Event.LANE_BLOCKED,
    "open": Event.CIRCUIT_OPENED,
    "closed": Event.CIRCUIT_CLOSED,
}


class Reporter:
    """One worker's reports. A report that comes too late changes nothing and is told so."""

    def __init__(self, worker: str, attempts: Attempts, batcher: Batcher) -> None:
        self._worker, self._attempts, self._batcher = worker, attempts, batcher
        self._shared: set[str] = set()  # lanes that were told to be

    async def finish(
        self,
        attempt: Attempt,
        decision: Finish,
        verdict: Verdict,
        outcome: Outcome,
        wire_ms: int | None = None,
    ) -> Reported | None:
        """The job is over. ``None`` where the report was late. ``wire_ms``: from its permit to its call."""
        call = self._attempts.finish(
            attempt, self._worker, decision.lesson, verdict.state, verdict.payload, verdict.follow
        )
        reported = self._released(attempt, Reported.of(await self._batcher.send(call)), outcome, wire_ms)
        if reported is None:
            return None
        for step in verdict.follow:
            if isinstance(step, Ready):
                fields = attempt_fields(attempt) | {"job": step.job, "lane": step.lane, "attempt": 1}
                log.info(Event.QUEUEING, **fields)
        if reported.finished:
            log.info(Event.RUN_FINISHED, run=attempt.run, team=attempt.team)
        return reported

    async def defer(
        self, attempt: Attempt, decision: Defer, outcome: Outcome | None, wire_ms: int | None = None
    ) -> Reported | None:
        """The job goes back. ``None`` where the report was late."""
        call = self._attempts.defer(
            attempt,
            self._worker,
            decision.lesson,
            delay_ms=decision.delay_ms,
            costs_attempt=decision.costs_attempt,
            rate_limited=decision.rate_limited,
        )
        reported = self._released(attempt, Reported.of(await self._batcher.send(call)), outcome, wire_ms)
        if reported is not None:
            delay_s = max(decision.delay_ms, decision.lesson.retry_after_ms or 0) / 1000
            told = {"status_code": _status(outcome), "delay_s": delay_s, "reason": decision.lesson.reason}
            log.info(Event.RETRY, **attempt_fields(attempt), **told)
        return reported

    def _released(
        self, attempt: Attempt, reported: Reported | None, outcome: Outcome | None, wire_ms: int | None
    ) -> Reported | None:
        fields: dict[str, Any] = {**attempt_fields(attempt), "status_code": _status(outcome)}
        if reported is None:
            log.warning(Event.LATE_REPORT, **fields)
            return None
        log.info(Event.RELEASED, **fields, active_slots=reported.in_flight, wire_ms=wire_ms)
        if reported.news == "shared":
            self._tell_shared(attempt)
        news = _NEWS.get(reported.news)
        if news is not None:
            told = {"reason": getattr(outcome, "message", None), "delay_s": _seconds(outcome)}
            log.warning(news, **attempt_fields(attempt), **told)
        return reported

    def _tell_shared(self, attempt: Attempt) -> None:
        """Others come and go: that there are some is said once."""
        if attempt.lane not in self._shared:
            self._shared.add(attempt.lane)
            log.warning(Event.LANE_SHARED, **attempt_fields(attempt))


def _seconds(outcome: Outcome | None) -> float:
    return 0.0 if outcome is None else (outcome.retry_after_ms or 0) / 1000


def _status(outcome: Outcome | None) -> int | None:
    return None if outcome is None else outcome.status
