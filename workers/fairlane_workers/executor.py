"""Executes an attempt: claim → gather → call → decide → report. A slot is busy for a call, no longer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlane.clock import Clock
from fairlane.errors import TemplateError
from fairlane.events import Event
from fairlane.job import Aborted, Attempt, Outcome, PermanentFailure, TimedOut
from fairlane.lane import split_model
from fairlane.logs import attempt_fields, get_logger
from fairlane.settings import Settings
from fairlane.store.attempts import Attempts, Claim, Reported
from fairlane.store.keys import RunRef
from fairlane_workers.batcher import Batcher
from fairlane_workers.chunks import Chunks
from fairlane_workers.decision import Defer, Finish, decide, given_back
from fairlane_workers.material import MaterialGone, Materials, Work
from fairlane_workers.providers.contract import Provider, Request
from fairlane_workers.verdict import Verdict, judge_verdict, task_verdict

log = get_logger("executor")


@dataclass(slots=True)
class Held:
    """An attempt in hand. ``aborted`` says why its call is being broken off."""

    attempt: Attempt
    task: asyncio.Task[Any] | None
    claimed: bool = False
    aborted: str | None = None
    give_back: bool = False


class Executor:
    """Runs attempts concurrently on one event loop; every method is called on that loop."""

    def __init__(
        self,
        *,
        worker: str,
        settings: Settings,
        attempts: Attempts,
        batcher: Batcher,
        materials: Materials,
        chunks: Chunks,
        providers: Mapping[str, Provider],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._worker, self._settings, self._attempts = worker, settings, attempts
        self._batcher, self._materials, self._chunks = batcher, materials, chunks
        self._providers, self._clock, self._rng = providers, clock, rng
        self._held: dict[str, Held] = {}
        self._lease_ms = round(settings.scheduler.lease_seconds * 1000)

    @property
    def held(self) -> list[str]:
        """Ids of the attempts that were claimed and are not reported."""
        return [attempt_id for attempt_id, held in self._held.items() if held.claimed]

    @property
    def busy(self) -> int:
        return len(self._held)

    async def execute(self, attempt: Attempt) -> None:
        """One attempt from claim to report. A copy of a message that was seen already does nothing."""
        if attempt.id in self._held:
            log.warning(Event.STALE_CLAIM, **attempt_fields(attempt))
            return
        held = self._held[attempt.id] = Held(attempt, asyncio.current_task())
        try:
            claim = Claim.of(
                await self._batcher.send(self._attempts.claim(attempt, self._worker, self._lease_ms))
            )
            if claim is None:
                log.warning(Event.STALE_CLAIM, **attempt_fields(attempt))
                return
            held.claimed = True
            await self._run(held, claim)
        except asyncio.CancelledError:
            if held.aborted is None:
                raise
            if held.give_back and held.claimed:
                await self._report_defer(attempt, given_back(held.aborted), None)
        except MaterialGone as gone:
            log.warning(Event.STALE_CLAIM, **attempt_fields(attempt), error=str(gone))
        finally:
            del self._held[attempt.id]

    def abort(self, attempt_id: str, why: str, *, give_back: bool = False) -> None:
        """Break a call off. ``give_back`` returns its job at no cost; otherwise its lease is already gone."""
        held = self._held.get(attempt_id)
        if held is not None and held.aborted is None and held.task is not None:
            held.aborted, held.give_back = why, give_back
            held.task.cancel()

    def abort_run(self, ref: RunRef, why: str) -> None:
        """Break off every call of a run."""
        for attempt_id, held in list(self._held.items()):
            if (held.attempt.team, held.attempt.run) == (ref.team, ref.run):
                self.abort(attempt_id, why)
        self._materials.forget(ref)

    def abort_all(self, why: str) -> None:
        """Give everything back: the worker stops."""
        for attempt_id in list(self._held):
            self.abort(attempt_id, why, give_back=True)

    async def _run(self, held: Held, claim: Claim) -> None:
        attempt = held.attempt
        work = await self._materials.of(attempt)
        started_ms = self._clock.monotonic_ms()
        outcome = await self._call(attempt, work)
        latency_ms = self._clock.monotonic_ms() - started_ms
        if isinstance(outcome, TimedOut):
            log.warning(Event.TIMEOUT, **attempt_fields(attempt), timeout_s=work.run.spec.timeout)
        decision = decide(outcome, claim, work.run.spec.retry, self._rng)
        match decision:
            case Finish():
                make = task_verdict if work.judge is None else judge_verdict
                await self._report_finish(
                    attempt, decision, make(work, outcome, decision, latency_ms), outcome
                )
            case Defer():
                await self._report_defer(attempt, decision, outcome)

    async def _call(self, attempt: Attempt, work: Work) -> Outcome:
        spec = work.run.spec
        try:
            if work.judge is None:
                model = work.run.models[work.cell.model].render(work.row).strip()
                messages, params = work.run.prompts[work.cell.prompt].render(work.row), spec.params
            else:
                model, params = work.judge.model, work.judge.params
                text = work.template.render(work.row, output=work.judged) if work.template else ""
                messages = [{"role": "user", "content": text}]
            connection, name = split_model(model)
        except (TemplateError, ValueError) as error:
            return PermanentFailure(str(error))
        provider, configured = self._providers.get(connection), self._settings.connections.get(connection)
        if provider is None or configured is None:
            return Aborted(f"this worker has no connection {connection!r}")
        stream = configured.stream and work.judge is None
        request = Request(
            model=name,
            messages=messages,
            params=dict(params),
            stream=stream,
            timeout_s=spec.timeout,
            max_response_bytes=self._settings.worker.max_response_bytes,
        )
        return await provider.call(request, await self._chunks.listener(attempt) if stream else None)

    async def _report_finish(
        self, attempt: Attempt, decision: Finish, verdict: Verdict, outcome: Outcome
    ) -> None:
        reply = await self._batcher.send(
            self._attempts.finish(
                attempt, self._worker, decision.lesson, verdict.state, verdict.payload, verdict.follow
            )
        )
        reported = self._released(attempt, Reported.of(reply), outcome)
        if reported is not None and reported.finished:
            log.info(Event.RUN_FINISHED, run=attempt.run, team=attempt.team)
            self._materials.forget(RunRef(attempt.team, attempt.run))

    async def _report_defer(self, attempt: Attempt, decision: Defer, outcome: Outcome | None) -> None:
        reply = await self._batcher.send(
            self._attempts.defer(
                attempt,
                self._worker,
                decision.lesson,
                delay_ms=decision.delay_ms,
                costs_attempt=decision.costs_attempt,
                rate_limited=decision.rate_limited,
            )
        )
        if self._released(attempt, Reported.of(reply), outcome) is not None:
            status = getattr(outcome, "status", None)
            delay_s = max(decision.delay_ms, decision.lesson.retry_after_ms or 0) / 1000
            told = {"status_code": status, "delay_s": delay_s, "reason": decision.lesson.reason}
            log.info(Event.RETRY, **attempt_fields(attempt), **told)

    def _released(
        self, attempt: Attempt, reported: Reported | None, outcome: Outcome | None
    ) -> Reported | None:
        fields, status = attempt_fields(attempt), getattr(outcome, "status", None)
        if reported is None:
            log.warning(Event.LATE_REPORT, **fields, status_code=status)
            return None
        log.info(Event.RELEASED, **fields, active_slots=reported.in_flight, status_code=status)
        news = _NEWS.get(reported.news)
        if news is not None:
            log.warning(news, **fields, reason=getattr(outcome, "message", None))
        return reported


_NEWS = {
    "cut": Event.LANE_RATE_CUT,
    "parked": Event.LANE_PARKED,
    "open": Event.CIRCUIT_OPENED,
    "closed": Event.CIRCUIT_CLOSED,
}
