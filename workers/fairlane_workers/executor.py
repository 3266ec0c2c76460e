"""Executes an attempt: claim → gather → call → decide → report. A slot is busy for a call, no longer.

A call that its provider goes on with by itself, and is only asked for, keeps no slot busy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from fairlane.clock import Clock
from fairlane.decision import ABORTED_DELAY_MS, Finish, decide, given_back
from fairlane.errors import TemplateError
from fairlane.evaluators.agents import flaw
from fairlane.events import Event
from fairlane.job import (
    Aborted,
    AccessRefused,
    Attempt,
    InvalidResponse,
    Outcome,
    PermanentFailure,
    Success,
    TimedOut,
)
from fairlane.lane import split_model
from fairlane.logs import attempt_fields, get_logger
from fairlane.settings import Settings
from fairlane.store.attempts import Attempts, Claim
from fairlane.store.keys import Keys, RunRef
from fairlane_workers.batcher import Batcher
from fairlane_workers.chunks import Chunks
from fairlane_workers.endings import Endings
from fairlane_workers.material import MaterialGone, Materials, Work
from fairlane_workers.providers.contract import Provider, Request
from fairlane_workers.reporter import Reporter
from fairlane_workers.versions import LaterVersion, check_version
from fairlane_workers.watch import Called, Watch, Watches

STALE, UNREPORTED = "Stale", "Unreported"

MOST_PENDING = 1000
"""Calls that a worker has in hand beside its slots; further ones keep theirs while they wait."""

log = get_logger("executor")


@dataclass(slots=True)
class Held:
    """An attempt in hand. ``aborted`` says why its call is not made, or is being broken off.

    Only the call can be broken off: a claim or a report that is on its way is waited for, since Redis may
    have acted on it already. ``handle`` names a call that the provider goes on with; ``pending``: it needs no
    slot. ``withdrawn``: nobody will ask for its answer again.
    """

    attempt: Attempt
    free: Callable[[], None]
    claimed: bool = False
    call: asyncio.Task[Outcome] | None = None
    aborted: str | None = None
    give_back: bool = False
    withdrawn: bool = False
    handle: str | None = None
    pending: bool = False
    wire_ms: int | None = None
    work: Work | None = None
    came_to: str = Aborted.__name__


class Executor:
    """Runs attempts concurrently on one event loop; every method is called on that loop."""

    def __init__(
        self,
        *,
        worker: str,
        settings: Settings,
        attempts: Attempts,
        batcher: Batcher,
        keys: Keys,
        materials: Materials,
        chunks: Chunks,
        providers: Mapping[str, Provider],
        clock: Clock,
        rng: random.Random,
        watch: Watch | None = None,
    ) -> None:
        self._worker, self._settings, self._attempts = worker, settings, attempts
        self._batcher, self._materials, self._chunks = batcher, materials, chunks
        self._providers, self._clock, self._rng = providers, clock, rng
        self._reporter = Reporter(worker, attempts, batcher, keys)
        self._endings = Endings(batcher, keys)
        self._watch: Watch = watch or Watches()
        self._held: dict[str, Held] = {}
        self._stopping: str | None = None
        self._lease_ms = round(settings.scheduler.lease_seconds * 1000)

    @property
    def held(self) -> list[str]:
        """Ids of the attempts that were claimed and are not reported."""
        return [attempt_id for attempt_id, held in self._held.items() if held.claimed]

    @property
    def busy(self) -> int:
        """Attempts that use a slot."""
        return len(self._held) - self.pending

    @property
    def pending(self) -> int:
        """Attempts that use none: providers go on with their calls."""
        return sum(held.pending for held in self._held.values())

    async def execute(self, attempt: Attempt, free: Callable[[], None] = lambda: None) -> str:
        """One attempt from claim to report. A copy of a message that was seen already does nothing.

        ``free`` is called once if the attempt needs its slot no longer, although it goes on.
        Where Redis refuses a report, or on a defect, the lease is left to lapse: its job is put back then.
        Returns what it came to, for whoever lists tasks: the outcome's name, ``Stale`` or ``Unreported``.
        """
        if attempt.id in self._held:
            log.warning(Event.STALE_CLAIM, **attempt_fields(attempt))
            return STALE
        held = Held(attempt, free, aborted=self._stopping, give_back=self._stopping is not None)
        self._held[attempt.id] = held
        came_to = UNREPORTED
        try:
            await self._attend(held)
            came_to = held.came_to
        except MaterialGone as gone:
            log.warning(Event.STALE_CLAIM, **attempt_fields(attempt), error=str(gone))
        except RedisError as error:
            log.warning("attempt_unreported", **attempt_fields(attempt), error=str(error))
        except Exception:
            log.exception("attempt_broken", **attempt_fields(attempt))
        finally:
            del self._held[attempt.id]
        return came_to

    def abort(self, attempt_id: str, why: str, *, give_back: bool = False, withdrawn: bool = False) -> None:
        """Break a call off. ``give_back`` returns its job at no cost; otherwise its lease is already gone.

        A call that has ended is reported all the same. What a provider goes on with is left to it, for the
        job's next attempt, unless the job is ``withdrawn``.
        """
        held = self._held.get(attempt_id)
        if held is not None and held.aborted is None:
            held.aborted, held.give_back, held.withdrawn = why, give_back, withdrawn
            if held.call is not None:
                held.call.cancel()

    def abort_run(self, ref: RunRef, why: str) -> None:
        """Break off every call of a run."""
        for attempt_id, held in list(self._held.items()):
            if (held.attempt.team, held.attempt.run) == (ref.team, ref.run):
                self.abort(attempt_id, why, withdrawn=True)
        self._materials.forget(ref)

    def abort_all(self, why: str) -> None:
        """Give everything back, and what still arrives: the worker stops."""
        self._stopping = why
        for attempt_id in list(self._held):
            self.abort(attempt_id, why, give_back=True)

    async def _attend(self, held: Held) -> None:
        claim = await self._claim(held)
        if claim is None:
            held.came_to = STALE
            return
        claimed_ms = self._clock.monotonic_ms()
        try:
            check_version(held.attempt)
            work = held.work = await self._materials.of(held.attempt)
        except LaterVersion as later:
            decision = given_back(str(later), ABORTED_DELAY_MS)
            await self._reporter.defer(held.attempt, decision, None, handle=held.handle)
            return
        started_ms = self._clock.monotonic_ms()
        held.wire_ms = claim.waited_ms + started_ms - claimed_ms
        outcome = await self._unless_aborted(held, self._call(held, work))
        took_ms = self._clock.monotonic_ms() - started_ms
        held.came_to = held.came_to if outcome is None else type(outcome).__name__
        self._watch.called(Called(held.attempt, work, outcome, held.wire_ms, took_ms))
        if outcome is None:
            await self._let_go(held)
        else:
            await self._conclude(held, claim, work, outcome, took_ms)

    async def _claim(self, held: Held) -> Claim | None:
        call = self._attempts.claim(held.attempt, self._worker, self._lease_ms)
        claim = Claim.of(await self._batcher.send(call))
        if claim is None:
            log.warning(Event.STALE_CLAIM, **attempt_fields(held.attempt))
        else:
            held.claimed, held.handle = True, claim.handle
        return claim

    async def _unless_aborted(self, held: Held, call: Coroutine[Any, Any, Outcome]) -> Outcome | None:
        """How the call ended; ``None`` where it was broken off, or never began."""
        if held.aborted is not None:
            call.close()
            return None
        held.call = asyncio.ensure_future(call)
        try:
            return await held.call
        except asyncio.CancelledError:
            if held.aborted is None or not held.call.cancelled():
                raise
            return None

    async def _let_go(self, held: Held) -> None:
        if held.give_back and held.aborted is not None:
            decision = given_back(held.aborted)
            await self._reporter.defer(held.attempt, decision, None, work=held.work, handle=held.handle)

    async def _conclude(
        self, held: Held, claim: Claim, work: Work, outcome: Outcome, latency_ms: int
    ) -> None:
        attempt, step = held.attempt, work.evaluation
        if isinstance(outcome, TimedOut):
            told = {"timeout_s": work.spec.timeout, "status_code": outcome.status}
            log.warning(Event.TIMEOUT, **attempt_fields(attempt), **(step.labels if step else {}), **told)
        if isinstance(outcome, Success) and step is not None and step.criterion is not None:
            problem = flaw(outcome.output, step.criterion)
            if problem is not None:
                self._reporter.malformed(attempt, work, outcome.output)
                outcome = InvalidResponse(problem, outcome.status, outcome.retry_after_ms, outcome.hints)
        decision = decide(outcome, claim, work.spec.retry, self._rng)
        if not isinstance(decision, Finish):
            handle = held.handle if _says_nothing_of_the_call(outcome) else None
            await self._reporter.defer(attempt, decision, outcome, held.wire_ms, work=work, handle=handle)
            return
        ending = await self._endings.of(work, outcome, decision, latency_ms)
        reported = await self._reporter.finish(
            attempt, decision, ending, outcome, held.wire_ms, work=work, elapsed_ms=latency_ms
        )
        if reported is not None:
            self._watch.recorded(ending.verdict.state)
        if reported is not None and reported.finished:
            self._materials.forget(RunRef(attempt.team, attempt.run))

    async def _pend(self, held: Held, handle: str) -> None:
        """The provider goes on by itself: note its call with the job, and give the slot back."""
        held.handle = handle
        frees = not held.pending and self.pending < MOST_PENDING
        call = self._attempts.wait_for(held.attempt, self._worker, handle, frees_slot=frees)
        try:
            noted = await self._batcher.send(call)
        except RedisError as error:  # the call goes on; should this worker die, it is made again
            log.warning("handle_unnoted", **attempt_fields(held.attempt), error=str(error))
            return
        if noted and frees:
            held.pending = True
            held.free()

    async def _call(self, held: Held, work: Work) -> Outcome:
        attempt = held.attempt
        if work.problem is not None:
            return PermanentFailure(work.problem)
        try:
            call = work.call()
            connection, name = split_model(call.model)
        except (TemplateError, ValueError) as error:
            return PermanentFailure(str(error))
        provider, configured = self._providers.get(connection), self._settings.connections.get(connection)
        if provider is None:
            return Aborted(f"this worker has no connection {connection!r}")
        stream = configured is not None and configured.stream and work.evaluation is None
        request = Request(
            model=name,
            messages=call.messages,
            params=dict(call.params),
            stream=stream,
            timeout_s=work.spec.timeout,
            max_response_bytes=self._settings.worker.max_response_bytes,
            arguments=call.arguments,
            inputs=call.inputs,
            lane=attempt.lane,
            handle=held.handle,
            on_pending=partial(self._pend, held),
            withdrawn=lambda: held.withdrawn,
        )
        return await provider.call(request, await self._chunks.listener(attempt) if stream else None)


def _says_nothing_of_the_call(outcome: Outcome) -> bool:
    """Whether a call that its provider goes on with may still go on: nobody asked for it, or with credentials
    that were not accepted. What a provider has answered otherwise is over.
    """
    return isinstance(outcome, Aborted) or (isinstance(outcome, AccessRefused) and outcome.status == 401)
