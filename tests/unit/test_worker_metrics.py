"""What a worker counts of its calls and jobs, and when it is well and ready."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest

from fairlane.config.settings import Settings
from fairlane.core.clock import ManualClock
from fairlane.model.decision import RetryPolicy
from fairlane.model.job import JobState
from fairlane.model.outcome import AccessDenied, FlawedAnswer, Outcome, RateLimited
from fairlane.telemetry.metrics_server import OTHER
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.telemetry.metrics import OUTCOMES, WorkerMetrics
from fairlane_workers.upkeep.health import STUCK_S, WorkerHealth
from tests.support.registries import samples
from tests.support.worker_parts import WorkerParts, metrics_of, on_loop


def metrics(parts: WorkerParts | None = None, **limits: int) -> WorkerMetrics:
    """A worker's metrics, from ``parts`` if they are given."""
    settings = Settings.model_validate({"metrics": limits, "worker": {"slots": 7}})
    made = metrics_of(settings, busy=lambda: 3, consumed=lambda: 2)
    if parts is not None:
        parts.executor._reporter.observers = (made,)
    return made


def test_every_kind_of_outcome_has_a_label_of_its_own() -> None:
    assert set(OUTCOMES) == set(get_args(Outcome))
    assert len(set(OUTCOMES.values())) == len(OUTCOMES)
    assert OUTCOMES[AccessDenied] == "access_denied"


def test_a_call_is_counted_with_its_outcome_tokens_and_times() -> None:
    async def scene(parts: WorkerParts) -> None:
        shown = metrics(parts)
        (attempt,) = parts.grant()
        parts.clock.advance(0.75)
        task = await parts.calling(attempt)
        parts.clock.advance(2)
        parts.provider.gate.set()
        await task
        assert samples(shown.registry, "fairlane_calls") == {("sim:fast", "success"): 1}
        assert samples(shown.registry, "fairlane_call_seconds") == {("sim:fast",): 2}
        assert samples(shown.registry, "fairlane_tokens") == {
            ("input", "sim:fast"): 12,
            ("output", "sim:fast"): 3,
        }
        assert samples(shown.registry, "fairlane_jobs_ended")["succeeded",] == 1

    on_loop(scene)


def test_a_job_that_goes_back_has_not_ended() -> None:
    async def scene(parts: WorkerParts) -> None:
        shown = metrics(parts)
        parts.provider.answer = RateLimited("slow down")
        (attempt,) = parts.grant()
        await parts.executor.execute(attempt)
        assert samples(shown.registry, "fairlane_calls") == {("sim:fast", "rate_limited"): 1}
        assert sum(samples(shown.registry, "fairlane_jobs_ended").values()) == 0

    on_loop(scene)


def test_a_job_whose_attempts_are_spent_has_failed() -> None:
    async def scene(parts: WorkerParts) -> None:
        shown = metrics(parts)
        parts.provider.answer = FlawedAnswer("not of this form")
        (attempt,) = parts.grant(retry=RetryPolicy(max_attempts=1))
        await parts.executor.execute(attempt)
        assert samples(shown.registry, "fairlane_jobs_ended")["failed",] == 1

    on_loop(scene)


def test_a_call_that_was_broken_off_is_counted_as_aborted() -> None:
    async def scene(parts: WorkerParts) -> None:
        shown = metrics(parts)
        (attempt,) = parts.grant()
        task = await parts.calling(attempt)
        parts.executor.abort_all("the worker stops")
        await task
        assert samples(shown.registry, "fairlane_calls") == {("sim:fast", "aborted"): 1}

    on_loop(scene)


def test_lanes_beyond_those_reported_by_name_are_counted_together() -> None:
    async def scene(parts: WorkerParts) -> None:
        shown = metrics(parts, lanes=1)
        for run, lane in enumerate(("sim:fast", "sim:slow", "sim:judge")):
            (attempt,) = parts.grant(run=f"r{run}", lane=lane, model=lane)
            await parts.executor.execute(attempt)
        assert samples(shown.registry, "fairlane_calls") == {
            ("sim:fast", "success"): 1,
            (OTHER, "success"): 2,
        }

    on_loop(scene)


def test_round_trips_to_redis_are_timed_a_batch_at_a_time() -> None:
    async def scene(parts: WorkerParts) -> None:
        shown = metrics()
        batcher = Batcher(parts.redis, observe=shown.redis_seconds.observe)
        await asyncio.gather(*(batcher.send(("PING",)) for _ in range(5)))
        (count,) = (
            each.value
            for family in shown.registry.collect()
            for each in family.samples
            if each.name == "fairlane_redis_seconds_count"
        )
        assert count == 1

    on_loop(scene)


def test_slots_and_what_is_in_hand_are_as_they_are_at_the_scrape() -> None:
    shown = metrics()
    assert samples(shown.registry, "fairlane_worker_slots") == {(): 7}
    assert samples(shown.registry, "fairlane_worker_busy") == {(): 3}
    assert samples(shown.registry, "fairlane_worker_lanes") == {(): 2}


class Vitals:
    """A worker's health under a manual clock; each pause takes as long as a test says."""

    def __init__(self) -> None:
        self.clock, self.listening, self.delays = ManualClock(), True, list[float]()
        self.turns = 0
        self.trouble: str | None = None
        self.health = WorkerHealth(
            self.clock,
            5.0,
            lambda: self.listening,
            self.delays.append,
            pause=self._pause,
            trouble=lambda: self.trouble,
        )

    async def _pause(self, seconds: float) -> None:
        self.turns += 1
        self.clock.advance(seconds)
        if self.turns == 3:
            raise asyncio.CancelledError


def test_a_loop_that_turns_is_well_and_one_that_does_not_is_sick() -> None:
    vitals = Vitals()
    assert vitals.health.sick() is None
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(vitals.health.turn())
    assert (vitals.turns, len(vitals.delays)) == (3, 2)
    assert vitals.health.sick() is None
    vitals.clock.advance(STUCK_S)
    assert "has not turned" in (vitals.health.sick() or "")


def test_a_worker_whose_broker_refuses_says_what_the_broker_is() -> None:
    health = WorkerHealth(
        ManualClock(), 5.0, lambda: False, lambda _: None, trouble=lambda: "Redis is full: it uses all memory"
    )
    health.beaten()
    assert health.unready() == "it does not consume: Redis is full: it uses all memory"


def test_a_drained_worker_says_so_and_blames_no_broker() -> None:
    drained = True
    health = WorkerHealth(ManualClock(), 5.0, lambda: not drained, lambda _: None, drained=lambda: drained)
    health.beaten()
    assert "fairlane drain --undo" in (health.unready() or "")
    assert "broker" not in (health.unready() or "")
    drained = False
    assert health.unready() is None


def test_a_worker_is_ready_while_it_beats_and_listens_and_does_not_stop() -> None:
    vitals = Vitals()
    health = vitals.health
    assert health.unready() == "no heartbeat has reached Redis yet"
    health.beaten()
    assert health.unready() is None
    vitals.listening = False
    assert "does not consume" in (health.unready() or "")
    vitals.listening = True
    vitals.clock.advance(6)
    assert "for 6 s" in (health.unready() or "")
    health.beaten()
    health.stopping = True
    assert health.unready() == "it stops"


def test_a_worker_that_is_not_ready_says_in_which_state_redis_is() -> None:
    vitals = Vitals()
    vitals.trouble = "Redis is full"
    assert "Redis is full" in (vitals.health.unready() or "")
    vitals.health.beaten()
    assert vitals.health.unready() is None
    vitals.clock.advance(6)
    assert "Redis is full" in (vitals.health.unready() or "")


def test_only_jobs_with_a_record_have_a_state_to_be_counted_by() -> None:
    shown = metrics()
    assert {state for (state,) in samples(shown.registry, "fairlane_jobs_ended")} == {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.INVALID,
        JobState.SKIPPED,
        JobState.CANCELLED,
        JobState.TIMED_OUT,
    }
