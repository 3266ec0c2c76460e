"""Completes jobs, and reports each attempt: to Redis in one script, to the log, and to observers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from redis.exceptions import RedisError, ResponseError

from fairlane.core.clock import timestamp
from fairlane.core.events import Event
from fairlane.core.lru import Lru
from fairlane.evaluators.agents import flaw
from fairlane.model.decision import Defer, Finish
from fairlane.model.ending import Completion, ReadyJob
from fairlane.model.evaluators import Criterion
from fairlane.model.job import Attempt, JobState, Reported
from fairlane.model.outcome import Outcome, Success
from fairlane.model.run import RunRef
from fairlane.model.tokens import NO_UNKEPT, Unkept
from fairlane.pipeline.completion import (
    complete_evaluation,
    complete_session_evaluation,
    complete_task,
)
from fairlane.pipeline.evaluations import FinishedJob, RenderedEvaluations, render_evaluations
from fairlane.pipeline.linear import LINEAR_CHARS, completes_linearly, ends_linearly, reads_linearly
from fairlane.store.connection.server_states import RETYPED, refusing_state
from fairlane.store.keys import Keys
from fairlane.store.run_queries import ROLE_TIME_FIELDS, role_times
from fairlane.store.script import Call
from fairlane.store.write.attempts import Attempts
from fairlane.telemetry.logs import get_logger, logs_calls
from fairlane_workers.execution.answer_cache import AnswerCache
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.child_work import ChildWork
from fairlane_workers.execution.inputs import JobInputs
from fairlane_workers.execution.served_models import ServedModels
from fairlane_workers.transport.pause import sleep

log = get_logger("executor")

RAW_CHARS = 2000
"""Characters of a malformed answer that a log line shows."""

PATIENCE_S = 0.05
"""Seconds for which an unawaited report waits for others: calls take more than ten times as long."""

AGAIN_S, MENDED_WITHIN_S = 1.0, 60.0
"""Seconds between tries of a report whose run has a key of another type, and for how long it is tried. Its
call keeps its place in the lane's window meanwhile."""

PATIENT_RUNS = 1024
"""Most pairs of run and lane whose last report was unawaited that are kept."""

_NEWS = {
    "cut": Event.LANE_RATE_CUT,
    "parked": Event.LANE_PARKED,
    "reopened": Event.LANE_REOPENED,
    "blocked": Event.LANE_BLOCKED,
    "open": Event.CIRCUIT_OPENED,
    "closed": Event.CIRCUIT_CLOSED,
}


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A call that has ended. ``outcome`` is ``None`` if it was broken off.

    ``wire_ms``: from its permit to its start; ``took_ms``: from its start to its end, which is now.
    """

    attempt: Attempt
    inputs: JobInputs
    outcome: Outcome | None
    wire_ms: int
    took_ms: int


class Observer(Protocol):
    """The metrics or the traces of a worker.

    Called on the event loop, once per call and once per job: must be quick, and must not raise.
    """

    def called(self, call: FinishedCall) -> None:
        """Note that a call has ended."""
        ...

    def recorded(self, state: JobState) -> None:
        """Note that a job has its terminal record: the report was in time."""
        ...


class Completions:
    """Completes jobs: at once where that is linear in short texts, else in child processes.

    Without ``children`` it does everything at once, for tests and simulations.
    """

    def __init__(self, cache: AnswerCache, children: ChildWork | None) -> None:
        self._cache, self._children = cache, children

    async def of(
        self,
        inputs: JobInputs,
        outcome: Outcome,
        decision: Finish,
        latency_ms: int,
        unkept: Unkept = NO_UNKEPT,
    ) -> Completion:
        """Complete a job after its last outcome; caches its answer if other jobs can use it.

        ``unkept``: paid answers of earlier attempts. Raises `RedisError` if the cache cannot be read.
        """
        answer = outcome if decision.error is None and isinstance(outcome, Success) else None
        if answer is None:
            unkept += Unkept.of(outcome.usage)
        finished = FinishedJob(answer, decision.error, decision.attempts, latency_ms, unkept=unkept)
        completion = await self._completion(inputs, finished)
        if answer is not None and inputs.spec.cache.writes and completion.state is JobState.SUCCEEDED:
            self._cache.write(inputs, answer)
        return completion

    async def _completion(self, inputs: JobInputs, finished: FinishedJob) -> Completion:
        if self._children is not None and not _is_linear(inputs, finished):
            return await self._children.completed(inputs, finished, self._cache)
        if inputs.session is not None:
            return complete_session_evaluation(inputs.spec.session_evals[inputs.session.step], finished)
        if inputs.step:
            return complete_evaluation(inputs.item, inputs.step, finished, inputs.output, inputs.membership)
        return await self._task(inputs, finished)

    async def flaw(self, inputs: JobInputs, answer: str, criterion: Criterion) -> str | None:
        """The flaw of an answer for one criterion; ``None`` if it is valid."""
        if self._children is None or len(answer) <= LINEAR_CHARS:
            return flaw(answer, criterion)
        return await self._children.flaw(inputs.spec, answer, criterion)

    async def _task(self, inputs: JobInputs, finished: FinishedJob) -> Completion:
        item, spec = inputs.item, inputs.spec
        rendered: RenderedEvaluations | None = None
        known: dict[int, FinishedJob] = {}
        if finished.answer is not None and spec.evals:
            rendered = render_evaluations(item, finished.answer.output)
            if spec.cache.reads:
                digests = rendered.digests(item, self._cache.servers)
                known = await self._cache.known(spec.team, digests)
        remembers = finished.answer is not None and inputs.memory is not None
        return complete_task(
            item,
            finished,
            inputs.membership,
            rendered=rendered,
            known=known,
            call=inputs.call if remembers else None,
            memory=inputs.memory,
        )


def _is_linear(inputs: JobInputs, finished: FinishedJob) -> bool:
    """Whether a job is completed in time linear in short texts."""
    output = None if finished.answer is None else finished.answer.output
    if inputs.session is not None:
        return reads_linearly(inputs.spec.session_evals[inputs.session.step], output)
    if inputs.step:
        return ends_linearly(inputs.item, inputs.step, output, inputs.output or "")
    return completes_linearly(inputs.item, output, inputs.memory)


class Reporter:
    """One worker's reports. A report that arrives after its lease has lapsed changes nothing.

    ``gives_up``: set where the worker stops; no report is tried again.

    The ``timestamp`` of "released" is when the report was sent. The call has ended by then, and no other call
    has its permit yet. So lines "acquired" minus lines "released" never exceed the calls that the limits
    allow.
    """

    def __init__(
        self,
        worker: str,
        attempts: Attempts,
        batcher: Batcher,
        keys: Keys,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._worker, self._attempts, self._batcher, self._keys = worker, attempts, batcher, keys
        self.observers = observers
        self.gives_up = False
        self._served = ServedModels()
        self._shared: set[str] = set()  # lanes already logged as shared
        self._unawaited: Lru[tuple[RunRef, str], bool] = Lru(PATIENT_RUNS)
        self._logs_jobs, self._logs_calls = logs_calls(Event.QUEUEING), logs_calls(Event.RELEASED)

    def called(self, call: FinishedCall) -> None:
        """Report a call that has ended to the observers."""
        for each in self.observers:
            each.called(call)

    async def finish(
        self,
        attempt: Attempt,
        decision: Finish,
        completion: Completion,
        outcome: Outcome,
        wire_ms: int | None = None,
        *,
        inputs: JobInputs | None = None,
        elapsed_ms: int = 0,
    ) -> Reported | None:
        """Report a job that has ended. Returns ``None`` if the report was late.

        ``wire_ms``: from its permit to its call; ``elapsed_ms``: the duration of the call.
        """
        fields = _fields(attempt, inputs)
        served = ""
        if inputs is not None and isinstance(outcome, Success) and outcome.model:
            served = self._served.news(attempt, inputs.call.model, outcome.model)
        call = self._attempts.finish(
            attempt,
            self._worker,
            decision.feedback,
            completion,
            took_ms=elapsed_ms or None,
            served=served,
        )
        sent, ready = timestamp(), [each for each in completion.follow if isinstance(each, ReadyJob)]
        answered = decision.error is None and isinstance(outcome, Success)
        reply, depths = await self._send(call, attempt, ready, self._patience(attempt) if answered else 0.0)
        reported = self._released(attempt, fields, Reported.of(reply), outcome, sent, wire_ms)
        if reported is None:
            return None
        if served:
            self._served.added(attempt, served)
        for raw in completion.malformed:
            self._log_malformed(fields, raw)
        step = inputs.evaluation if inputs else None
        if completion.state is JobState.FAILED and step is not None and step.labels:
            # After a failed batch, a call per criterion follows, so nothing is lost yet.
            log_failure = log.warning if step.batch else log.error
            details = {"status_code": _status(outcome), "elapsed_s": ((wire_ms or 0) + elapsed_ms) / 1000}
            log_failure(
                Event.EVALUATION_FAILED,
                **fields,
                **details,
                attempts=decision.attempts,
                reason=decision.error,
            )
        for each in ready if self._logs_jobs else ():
            queued = attempt.labels | {"job": each.job, "lane": each.lane, "attempt": 1}
            labels = inputs.spec.labels(each.job) if inputs else {}
            log.info(Event.QUEUEING, **queued, **labels, queue_depth=depths[each.lane], timestamp=sent)
        if reported.finished:
            times = await self._times(RunRef(attempt.team, attempt.run))
            log.info(Event.RUN_FINISHED, run=attempt.run, team=attempt.team, **times)
        for observer in self.observers:
            observer.recorded(completion.state)
        return reported

    async def defer(
        self,
        attempt: Attempt,
        decision: Defer,
        outcome: Outcome | None,
        wire_ms: int | None = None,
        *,
        inputs: JobInputs | None = None,
        handle: str | None = None,
    ) -> Reported | None:
        """Report a job that is requeued, unless its attempts are used up: then nothing has been reported.

        Returns ``None`` if the report was late. ``handle``: id of an asynchronous provider call that the next
        attempt resumes.
        """
        call = self._attempts.defer(attempt, self._worker, decision, handle=handle)
        sent, fields = timestamp(), _fields(attempt, inputs)
        reply = Reported.of(await self._ask(call))
        if reply is not None and reply.exhausted:
            return reply
        reported = self._released(attempt, fields, reply, outcome, sent, wire_ms)
        if reported is not None:
            delay_s = max(decision.delay_ms, decision.feedback.retry_after_ms or 0) / 1000
            details = {
                "status_code": _status(outcome),
                "delay_s": delay_s,
                "reason": decision.feedback.reason,
            }
            log.info(Event.RETRY, **fields, **details)
        return reported

    def malformed(self, attempt: Attempt, inputs: JobInputs, raw: str) -> None:
        """Log an answer that was discarded, since it does not have the requested form."""
        self._log_malformed(_fields(attempt, inputs), raw)

    def _patience(self, attempt: Attempt) -> float:
        """For how many seconds a report may wait for others, after the last one of its run and lane."""
        key = (RunRef(attempt.team, attempt.run), attempt.lane)
        return PATIENCE_S if self._unawaited.get(key) else 0.0

    def _note_awaited(self, attempt: Attempt, reported: Reported) -> None:
        key = (RunRef(attempt.team, attempt.run), attempt.lane)
        if reported.unawaited:
            self._unawaited.put(key, True)
        else:
            self._unawaited.drop(key)

    async def _send(
        self, call: Call, attempt: Attempt, ready: Sequence[ReadyJob], patience_s: float
    ) -> tuple[Any, Mapping[str, int | None]]:
        """The reply to a report, and the run's queue depth on each lane of ``ready`` if it is logged."""
        ref = RunRef(attempt.team, attempt.run)
        if not ready or not self._logs_jobs:
            return await self._ask(call, patience_s), {}
        lanes = sorted({each.lane for each in ready})
        looks = [self._batcher.send(("LLEN", self._keys.hot(ref, lane))) for lane in lanes]
        report = self._ask(call, patience_s)
        reply, *found = await asyncio.gather(report, *looks, return_exceptions=True)
        if isinstance(reply, BaseException):
            raise reply
        depths = {lane: n if isinstance(n, int) else None for lane, n in zip(lanes, found, strict=True)}
        return reply, depths

    async def _ask(self, call: Call, patience_s: float = 0.0) -> Any:
        """The reply to a report. One that meets a key of another type has changed nothing: it is repeated."""
        left_s = MENDED_WITHIN_S
        while True:
            try:
                return await self._batcher.send(call, urgent=False, patience_s=patience_s)
            except ResponseError as error:
                if self.gives_up or left_s <= 0 or refusing_state(error) is not RETYPED:
                    raise
            left_s -= AGAIN_S
            await sleep(AGAIN_S)

    async def _times(self, ref: RunRef) -> dict[str, float]:
        """A finished run's seconds of waiting and calling, by role."""
        try:
            return role_times(await self._batcher.send(("HMGET", self._keys.state(ref), *ROLE_TIME_FIELDS)))
        except RedisError:
            return {}

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
        self._note_awaited(attempt, reported)
        if self._logs_calls:
            details = {"status_code": _status(outcome), "active_slots": reported.in_flight}
            log.info(Event.RELEASED, **fields, **details, wire_ms=wire_ms, timestamp=sent)
        if reported.news == "shared":
            self._log_shared(attempt)
        news = _NEWS.get(reported.news)
        if news is not None:
            why = {"reason": getattr(outcome, "message", None), "delay_s": _seconds(outcome)}
            log.warning(news, **attempt.labels, **why)
        return reported

    def _log_malformed(self, fields: dict[str, Any], raw: str) -> None:
        shown = raw if len(raw) <= RAW_CHARS else f"{raw[:RAW_CHARS]}…"
        log.warning(Event.EVALUATION_MALFORMED, **fields, raw=shown)

    def _log_shared(self, attempt: Attempt) -> None:
        """Log once per lane that other clients use its limit, too; they may come and go."""
        if attempt.lane not in self._shared:
            self._shared.add(attempt.lane)
            log.warning(Event.LANE_SHARED, **attempt.labels)


def _fields(attempt: Attempt, inputs: JobInputs | None) -> dict[str, Any]:
    step = inputs.evaluation if inputs else None
    return attempt.labels | (step.labels if step else {})


def _seconds(outcome: Outcome | None) -> float:
    return 0.0 if outcome is None else (outcome.retry_after_ms or 0) / 1000


def _status(outcome: Outcome | None) -> int | None:
    return None if outcome is None else outcome.status
