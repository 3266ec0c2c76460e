"""Executes an attempt: read inputs → claim → call → decide → report.

An attempt uses a slot only for its call. While a provider works on a call by itself, its attempt uses no
slot: it only polls for the answer.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from fairlane.core.clock import Clock
from fairlane.core.errors import NewerVersion, NoChild, RunGone, TemplateError
from fairlane.core.events import Event
from fairlane.core.lru import Lru
from fairlane.export.finish_reasons import REFUSAL
from fairlane.model.decision import (
    ABORTED_DELAY_MS,
    PAUSED,
    Defer,
    Finish,
    decide,
    decide_control,
    finish,
    requeue,
    unsent,
    withdrawn,
)
from fairlane.model.job import Attempt, Claim
from fairlane.model.outcome import (
    Aborted,
    AccessDenied,
    FlawedAnswer,
    NetworkFailure,
    Outcome,
    PermanentFailure,
    Success,
    TimedOut,
)
from fairlane.model.run import RunRef
from fairlane.store.connection.tls_errors import in_words
from fairlane.store.keys import Keys
from fairlane.store.write.attempts import Attempts
from fairlane.telemetry.logs import get_logger
from fairlane_workers.execution.answer_cache import AnswerCache
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.calls import Calls
from fairlane_workers.execution.child_work import ChildWork
from fairlane_workers.execution.denied_lanes import DeniedLanes
from fairlane_workers.execution.held import Abort, HeldAttempt, Phase
from fairlane_workers.execution.inputs import InputReader, JobInputs
from fairlane_workers.execution.reporter import Completions, FinishedCall, Observer, Reporter
from fairlane_workers.transport import Departure, Departures, PermitExpiredError
from fairlane_workers.transport.pause import sleep

STALE, UNREPORTED, LATE, CONTROL = "Stale", "Unreported", "Late", "Control"

MOST_PENDING = 1000
"""Pending attempts that a worker holds besides its slots. Further ones keep their slots while they wait."""

LANES_KEPT = 1024
"""Lanes whose state is kept: more than a deployment has at once, so that only forgotten lanes are dropped."""

log = get_logger("executor")


class Executor:
    """Runs attempts concurrently on one event loop; every method is called on that loop.

    Any thread may read `busy` and `pending`.
    """

    def __init__(
        self,
        *,
        worker: str,
        attempts: Attempts,
        batcher: Batcher,
        reports: Batcher,
        keys: Keys,
        inputs: InputReader,
        calls: Calls,
        lease_ms: int,
        clock: Clock,
        rng: random.Random,
        observers: Sequence[Observer] = (),
        children: ChildWork | None = None,
        servers: Mapping[str, str] | None = None,
        denied: DeniedLanes | None = None,
    ) -> None:
        """``batcher`` sends claims, ``reports`` what follows a call: no claim waits for it.

        ``servers``: by connection, the server that it calls; answers of other connections are not cached.
        """
        self._worker, self._attempts, self._lease_ms = worker, attempts, lease_ms
        self._batcher, self._inputs, self._calls = batcher, inputs, calls
        self._clock, self._rng = clock, rng
        self._reporter = Reporter(worker, attempts, reports, keys, observers)
        self._completions = Completions(AnswerCache(reports, keys, servers or {}), children)
        self._departures = Lru[str, Departures](LANES_KEPT)
        self._held: dict[str, HeldAttempt] = {}
        self._denied = denied or DeniedLanes(clock)
        self._stopping: Abort | None = None

    @property
    def held(self) -> list[str]:
        """Ids of the attempts that have a lease and are not reported yet."""
        return [attempt_id for attempt_id, held in self._held.items() if held.phase is not Phase.CLAIMING]

    @property
    def busy(self) -> int:
        """Attempts that use a slot."""
        return len(self._held) - self.pending

    @property
    def pending(self) -> int:
        """Attempts that use no slot, since their providers work on the calls by themselves."""
        return sum(held.phase is Phase.PENDING for held in list(self._held.values()))

    async def execute(self, attempt: Attempt, free_slot: Callable[[], None] = lambda: None) -> str:
        """Run one attempt from claim to report. A second copy of a message does nothing.

        ``free_slot`` is called at most once: if the attempt needs its slot no longer, although it continues.
        If Redis rejects a report, or on a defect, the lease lapses and the scheduler requeues the job.
        Returns what to show in lists of tasks: ``Stale``, ``Late``, ``Unreported``, ``Control``, or the name
        of the outcome.
        """
        if attempt.id in self._held:
            log.warning(Event.STALE_CLAIM, **attempt.labels)
            return STALE
        held = HeldAttempt(attempt, free_slot, abort=self._stopping)
        self._held[attempt.id] = held
        try:
            await self._run(held)
        except RunGone as gone:
            log.warning(Event.STALE_CLAIM, **attempt.labels, error=str(gone))
        except RedisError as error:
            log.warning(Event.ATTEMPT_UNREPORTED, **attempt.labels, error=in_words(error))
        except Exception:
            log.exception(Event.ATTEMPT_FAILED, **attempt.labels)
        else:
            return held.result
        finally:
            del self._held[attempt.id]
            if self._denied.lanes:
                self._denied.ended(attempt)
        return UNREPORTED

    def abort(self, attempt_id: str, abort: Abort) -> None:
        """Abort a call; a call that has already ended is still reported.

        An asynchronous call of the provider continues, for the job's next attempt, unless it is withdrawn.
        """
        held = self._held.get(attempt_id)
        if held is not None and held.abort is None:
            held.abort = abort
            if held.call is not None:
                held.call.cancel()

    def abort_run(self, ref: RunRef, reason: str) -> None:
        """Abort every call of a run that was cancelled."""
        for attempt_id, held in list(self._held.items()):
            if (held.attempt.team, held.attempt.run) == (ref.team, ref.run):
                self.abort(attempt_id, Abort(reason, withdrawn=True))
        self._inputs.forget(ref)

    def abort_all(self, reason: str) -> None:
        """Requeue every attempt, also new ones: the worker stops."""
        self._stopping = Abort(reason, requeues=True)
        self._reporter.gives_up = True
        for attempt_id in list(self._held):
            self.abort(attempt_id, self._stopping)

    async def _run(self, held: HeldAttempt) -> None:
        # Everything that takes time comes before the claim, since a call must leave soon after it.
        unable = await self._gather(held)
        lane, now_ms = held.attempt.lane, self._clock.monotonic_ms
        departures = self._departures.get_or_make(lane, lambda: Departures(now_ms))
        held.departure = departure = await departures.begin()
        try:
            await self._claim_and_call(held, departure, unable)
        finally:
            departure.end()

    async def _claim_and_call(
        self, held: HeldAttempt, departure: Departure, unable: NewerVersion | NoChild | None
    ) -> None:
        claim = await self._claim(held)
        if claim is None:
            held.result = STALE
            return
        departure.good_ms = claim.good_ms
        if not claim.sendable:
            departure.end()
            await self._return_permit(held, unsent(PAUSED) if claim.paused else unsent())
            return
        if self._denied.lanes and (why := self._denied.turns_away(held.attempt)):
            departure.end()
            await self._return_permit(held, unsent(why, ABORTED_DELAY_MS))
            return
        claimed_ms = self._clock.monotonic_ms()
        inputs = held.inputs
        if inputs is None:
            await self._put_back(held, requeue(str(unable), ABORTED_DELAY_MS))
            return
        if claim.hold_ms:
            await sleep(claim.hold_ms / 1000)
            departure.claimed_ms += claim.hold_ms
        started_ms = self._clock.monotonic_ms()
        control = await self._control_of(held, inputs) if claim.control else None
        call = self._calls.make(held, control or inputs, partial(self._free_slot_of_pending, held))
        try:
            outcome = await self._unless_aborted(held, call)
        except PermitExpiredError as expired:
            await self._return_permit(held, unsent(str(expired)))
            return
        left_ms = started_ms if departure.left_ms is None else departure.left_ms
        held.wire_ms = claim.waited_ms + left_ms - claimed_ms
        took_ms = self._clock.monotonic_ms() - left_ms
        self._reporter.called(FinishedCall(held.attempt, inputs, outcome, held.wire_ms, took_ms))
        if outcome is not None and _was_sent(held, outcome):
            self._calls.note(held, control or inputs, outcome, took_ms)
        if isinstance(outcome, Success):
            self._denied.answered.add(held.attempt.lane)
            if self._denied.lanes:
                self._denied.accepted(held.attempt.lane, left_ms)
        if outcome is None:
            await self._requeue(held)
        elif control is not None:
            held.result = CONTROL
            decision = decide_control(outcome, claim, inputs.spec.retry, self._rng)
            await self._reporter.defer(held.attempt, decision, outcome, held.wire_ms, inputs=inputs)
        else:
            held.result = type(outcome).__name__
            await self._conclude(held, claim, inputs, outcome, took_ms)

    async def _leaves(self, attempt: Attempt, inputs: JobInputs, denied: AccessDenied) -> bool:
        """Whether this worker has left the lane, since its key alone is denied there."""
        connection = inputs.call.model.partition(":")[0]
        with suppress(RedisError):
            return denied.reason == "auth" and await self._denied.leaves(attempt, connection, denied)
        return False

    async def _control_of(self, held: HeldAttempt, inputs: JobInputs) -> JobInputs | None:
        """A call that was answered before, to make in place of the attempt's own; ``None`` if none is found.

        A worker that has started since reads one that its run has finished.
        """
        control = self._calls.control_of(held)
        if control is None and held.handle is None:
            with suppress(RedisError, RunGone, TemplateError, ValueError, NoChild):
                found = await self._inputs.answered(held.attempt, inputs)
                if found is not None:
                    self._calls.keep_control(held, *found)
                    control = self._calls.control_of(held)
        return control

    async def _gather(self, held: HeldAttempt) -> NewerVersion | NoChild | None:
        """Read the inputs and render the call. Returns why this worker cannot, though another one may."""
        try:
            held.inputs = await self._inputs.rendered(await self._inputs.of(held.attempt))
        except (NewerVersion, NoChild) as unable:
            return unable
        return None

    async def _claim(self, held: HeldAttempt) -> Claim | None:
        call = self._attempts.claim(held.attempt, self._worker, self._lease_ms)
        claim = Claim.of(await self._batcher.send(call))
        if claim is None:
            log.warning(Event.STALE_CLAIM, **held.attempt.labels)
        else:
            held.phase, held.handle = Phase.CLAIMED, claim.handle
        return claim

    async def _unless_aborted(self, held: HeldAttempt, call: Coroutine[Any, Any, Outcome]) -> Outcome | None:
        """The outcome of the call; ``None`` if it was broken off, or never began."""
        if held.abort is not None:
            call.close()
            return None
        held.call = asyncio.ensure_future(call)
        try:
            return await held.call
        except asyncio.CancelledError:
            if held.abort is None or not held.call.cancelled():
                raise
            return None

    async def _return_permit(self, held: HeldAttempt, decision: Defer) -> None:
        """Requeue a job that was not sent, as its permit has expired. It costs no attempt."""
        held.result = LATE
        await self._put_back(held, decision)

    async def _requeue(self, held: HeldAttempt) -> None:
        """Return the job of an aborted attempt to its queue, if the attempt still has its lease."""
        if held.abort is not None and held.abort.requeues:
            await self._put_back(held, requeue(held.abort.reason, sent=_was_sent(held, None)))

    async def _put_back(self, held: HeldAttempt, decision: Defer) -> None:
        """Report a job without an outcome; its next attempt resumes an asynchronous call."""
        await self._reporter.defer(held.attempt, decision, None, inputs=held.inputs, handle=held.handle)

    async def _conclude(
        self, held: HeldAttempt, claim: Claim, inputs: JobInputs, outcome: Outcome, latency_ms: int
    ) -> None:
        attempt, step = held.attempt, inputs.evaluation
        if isinstance(outcome, TimedOut):
            fields = {"timeout_s": inputs.spec.timeout, "status_code": outcome.status}
            log.warning(Event.TIMEOUT, **attempt.labels, **(step.labels if step else {}), **fields)
            if outcome.status is not None:
                outcome = replace(outcome, after_ms=latency_ms)
        if isinstance(outcome, Success) and step is not None and outcome.finish_reason == REFUSAL:
            outcome = PermanentFailure(  # "No, I cannot judge this" is no verdict
                outcome.output, outcome.status, outcome.retry_after_ms, outcome.hints, usage=outcome.usage
            )
        if isinstance(outcome, Success) and step is not None and step.criterion is not None:
            problem = await self._completions.flaw(inputs, outcome.output, step.criterion)
            if problem is not None:
                self._reporter.malformed(attempt, inputs, outcome.output)
                outcome = FlawedAnswer(
                    problem, outcome.status, outcome.retry_after_ms, outcome.hints, outcome.usage
                )
        policy = inputs.spec.retry
        claim, sent = claim.with_one_left(policy.max_attempts), _was_sent(held, outcome)
        decision = decide(outcome, claim, policy, self._rng, sent=sent)
        if isinstance(outcome, AccessDenied) and await self._leaves(attempt, inputs, outcome):
            decision = withdrawn(outcome)
        if not isinstance(decision, Finish):
            handle = held.handle if _call_may_continue(outcome) else None
            reply = await self._reporter.defer(
                attempt, decision, outcome, held.wire_ms, inputs=inputs, handle=handle
            )
            if reply is None or not reply.exhausted:
                return
            decision = finish(decision, reply.exhausted)
        completed = await self._completions.of(inputs, outcome, decision, latency_ms, claim.unkept)
        reported = await self._reporter.finish(
            attempt, decision, completed, outcome, held.wire_ms, inputs=inputs, elapsed_ms=latency_ms
        )
        if reported is not None and reported.finished:
            self._inputs.forget(RunRef(attempt.team, attempt.run))

    async def _free_slot_of_pending(self, held: HeldAttempt, handle: str) -> None:
        """The provider works on the call by itself: store its handle with the job, and free the slot."""
        held.handle = handle
        frees = held.phase is not Phase.PENDING and self.pending < MOST_PENDING
        call = self._attempts.wait_for(held.attempt, self._worker, handle, frees_slot=frees)
        try:
            noted = await self._batcher.send(call)
        except RedisError as error:  # the call continues; if this worker dies, the next attempt calls again
            log.warning(Event.HANDLE_UNSAVED, **held.attempt.labels, error=str(error))
            return
        if noted and frees:
            held.phase = Phase.PENDING
            held.free_slot()


def _was_sent(held: HeldAttempt, outcome: Outcome | None) -> bool:
    """Whether the call's request left this worker, now or before the attempt resumed it."""
    if isinstance(outcome, NetworkFailure) and not outcome.sent:
        return False
    left = held.departure is not None and held.departure.left_ms is not None
    return left or held.handle is not None


def _call_may_continue(outcome: Outcome) -> bool:
    """Whether an asynchronous call may still run at its provider, so that the next attempt resumes it.

    It may after an abort, and after a poll with rejected credentials. Any other answer has ended the call.
    """
    return isinstance(outcome, Aborted) or (isinstance(outcome, AccessDenied) and outcome.status == 401)
