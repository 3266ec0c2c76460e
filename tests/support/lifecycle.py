"""A Hypothesis state machine that plays arbitrary histories of a deployment, on any Redis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from redis import Redis

from fairlane.model.job import Attempt, JobState, Signal
from fairlane.model.run import RunRef
from fairlane.model.tokens import Estimate, Usage
from fairlane.store.write.permits import Offer
from tests.support.lifecycle_model import Model
from tests.support.redis import emptied

TASK_LANES = ["sim:fast", "odd lane:{x}/y"]
JUDGE_LANES = ["sim:judge", "sim:fast"]
LANES = ["sim:fast", "odd lane:{x}/y", "sim:judge"]
REFS = [RunRef(team, f"r{n}") for team in ("search", "ads") for n in range(3)]
SIGNALS: list[Signal] = ["ok", "ok", "answered", "limited", "overloaded", "broken", "refused", "none"]

workers = st.sampled_from(["w1", "w2", "w3"])
reporters = st.sampled_from([None, None, None, "w1", "w2"])
handles = st.sampled_from(["h-1", "a:b:c", "\u00e9 %"])
"""A provider's handle of an asynchronous call; it may contain colons."""

judges = st.lists(st.sampled_from(JUDGE_LANES), max_size=2)
named = st.sampled_from([None, None, None, *LANES])
"""The lane that a message names: ``None`` is its permit's, as the scheduler writes it."""
where = st.lists(st.none() | st.sampled_from(TASK_LANES), min_size=1, max_size=9)
counts = st.none() | st.integers(0, 60)
feedback = st.just({"signal": "ok"}) | st.fixed_dictionaries(
    {"signal": st.sampled_from(SIGNALS)},
    optional={
        "used": st.none() | st.builds(Usage, counts, counts, counts),
        "retry_after_ms": st.integers(1, 5000),
    },
)
delays = st.fixed_dictionaries(
    {},
    optional={
        "delay_ms": st.sampled_from([0, 100, 5000]),
        "cost": st.sampled_from(["nothing", "unproven", "denied", "attempt"]),
        "rate_limited": st.booleans(),
    },
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "requests_per_minute": st.none() | st.sampled_from([0, 0.5, 60, 60_000]),
        "tokens_per_minute": st.none() | st.sampled_from([0, 600, 600_000]),
        "input_tokens_per_minute": st.none() | st.sampled_from([0, 600, 600_000]),
        "output_tokens_per_minute": st.none() | st.sampled_from([0, 600, 600_000]),
        "requests_per_day": st.none() | st.sampled_from([0, 1, 20]),
        "exact": st.none() | st.booleans(),
        "charge": st.sampled_from([None, "used", "reserved"]),
        "output_factor": st.none() | st.sampled_from([1, 1.5, 5]),
        "cache_reads": st.sampled_from([None, "free", "counted"]),
        "burst_seconds": st.none() | st.sampled_from([0.05, 1.0, 10.0]),
        "max_concurrency": st.none() | st.integers(1, 4),
        "min_gap_ms": st.none() | st.sampled_from([0, 50]),
    },
)


class Lifecycle(RuleBasedStateMachine):
    """All roles act in any order. `Model` checks each step's effect and the invariants after it."""

    def __init__(self, redis: Redis) -> None:
        super().__init__()
        self.model = Model(emptied(redis), LANES)

    @initialize(
        runs=st.lists(st.tuples(st.integers(4, 12), judges, where), min_size=1, max_size=3),
        windows=st.lists(st.sampled_from([None, 1, 2]), min_size=3, max_size=3),
    )
    def submit_and_feed(
        self, runs: list[tuple[int, list[str], list[str | None]]], windows: list[int | None]
    ) -> None:
        for lane, window in zip(LANES, windows, strict=True):
            self.model.d.lanes.limit(lane, {"max_concurrency": window})
        for ref, (rows, judge_lanes, lanes) in zip(REFS[1:], runs, strict=False):
            self.model.submit(ref, rows, judge_lanes)
            self.model.feed(ref, lanes, tokens=10)

    @rule(ref=st.sampled_from(REFS), rows=st.integers(0, 6), judge_lanes=judges, lanes=where)
    def submit(self, ref: RunRef, rows: int, judge_lanes: list[str], lanes: list[str | None]) -> None:
        if len(judge_lanes) == rows:
            self.model.refuse(ref)
        else:
            self.model.submit(ref, rows, judge_lanes)
        if self.model.is_running(ref):
            self.model.feed(ref, lanes, tokens=20)

    @rule(
        data=st.data(),
        lanes=where,
        tokens=st.builds(
            Estimate, st.integers(0, 50), st.integers(0, 50), st.integers(0, 300), st.booleans()
        ),
        stale=st.sampled_from([0, 0, 0, 1]),
    )
    def feed(self, data: st.DataObject, lanes: list[str | None], tokens: Estimate, stale: int) -> None:
        if running := self.model.running():
            self.model.feed(data.draw(st.sampled_from(running), label="run"), lanes, tokens, stale)

    @rule(
        data=st.data(),
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        room=st.sampled_from([9, 9, 2, 1, 0]),
        most=st.sampled_from([12, 12, 3, 1]),
        claimants=st.lists(st.tuples(workers, named), min_size=1, max_size=8),
    )
    def grant(
        self,
        data: st.DataObject,
        counts: list[int],
        room: int,
        most: int,
        claimants: list[tuple[str, str | None]],
    ) -> None:
        anything = [(lane, ref) for lane in LANES for ref in self.model.plans]
        lane, ref = data.draw(st.sampled_from(self.model.waiting() or anything), label="waiting")
        runs = [ref, *(data.draw(st.sampled_from(REFS), label="run") for _ in counts[1:])]
        offers = [Offer(ref, count) for ref, count in zip(runs, counts, strict=True)]
        granted = self.model.grant(lane, offers, room, most)
        for attempt, (worker, other) in zip(granted, claimants, strict=False):
            self.model.claim(replace(attempt, lane=other or attempt.lane), worker)

    @rule(data=st.data(), worker=workers, lane=named)
    def deliver(self, data: st.DataObject, worker: str, lane: str | None) -> None:
        """A message arrives, for the first time or as a duplicate."""
        if attempt := self.draw_attempt(data):
            self.model.claim(replace(attempt, lane=lane or attempt.lane), worker)

    @rule(data=st.data(), worker=reporters, handle=handles, frees_slot=st.booleans())
    def wait_for(self, data: st.DataObject, worker: str | None, handle: str, frees_slot: bool) -> None:
        if attempt := self.draw_attempt(data):
            self.model.wait_for(attempt, worker, handle, frees_slot=frees_slot)

    @rule(
        data=st.data(),
        worker=reporters,
        state=st.sampled_from([JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.FAILED]),
        ready=st.integers(0, 3),
        feedback=feedback,
    )
    def finish(
        self, data: st.DataObject, worker: str | None, state: JobState, ready: int, feedback: dict[str, Any]
    ) -> None:
        if attempt := self.draw_attempt(data):
            self.model.finish(attempt, worker, state, ready, **feedback)

    @rule(data=st.data(), worker=reporters, feedback=feedback, delay=delays, handle=st.none() | handles)
    def defer(
        self,
        data: st.DataObject,
        worker: str | None,
        feedback: dict[str, Any],
        delay: dict[str, Any],
        handle: str | None,
    ) -> None:
        if attempt := self.draw_attempt(data):
            self.model.defer(attempt, worker, **feedback, **delay, handle=handle)

    @rule(
        milliseconds=st.sampled_from([0, 1, 10, 200, 1000, 15_000, 40_000]),
        beating=st.lists(workers, max_size=2),
        dead=st.none() | st.just("") | workers,
    )
    def pass_time(self, milliseconds: int, beating: list[str], dead: str | None) -> None:
        for worker in beating:
            self.model.beat(worker, changed=milliseconds == 10)
        self.model.d.advance(milliseconds)
        self.model.d.bid()
        self.model.promote()
        if dead is not None:
            self.model.recover(dead)

    @rule(
        milliseconds=st.sampled_from([-4_000_000, -120_000, -1500, -1, 1500, 40_000]),
        noticed=st.booleans(),
    )
    def step_clock(self, milliseconds: int, noticed: bool) -> None:
        """Redis's clock steps. The leader bids at once; where it steps back perhaps later."""
        before_ms = self.model.d.now_ms
        self.model.d.step(milliseconds)
        if noticed or milliseconds > 0:
            self.model.d.bid()
        assert self.model.d.now_ms >= before_ms

    @rule(data=st.data(), dead=workers)
    def recover_too_early(self, data: st.DataObject, dead: str) -> None:
        if attempt := self.draw_attempt(data):
            self.model.recover_too_early(attempt, dead)

    @rule(
        data=st.data(),
        lane=st.sampled_from(LANES),
        act=st.sampled_from(["limit", "limit", "pause", "resume", "resume", "drain"]),
    )
    def operate(self, data: st.DataObject, lane: str, act: str) -> None:
        lanes, now_ms = self.model.d.lanes, self.model.d.redis_ms
        if act == "limit":
            lanes.limit(lane, data.draw(limits, label="limits"))
        elif act == "pause":
            lanes.pause(lane)
        elif act == "resume":
            lanes.resume(lane, now_ms)
        else:
            lanes.drain(lane, now_ms)

    @rule(data=st.data(), act=st.sampled_from(["cancel", "elect", "ask"]))
    def upset(self, data: st.DataObject, act: str) -> None:
        """A run is cancelled, a leader loses its lease, or an old leader returns."""
        if act == "elect":
            self.model.change_leader()
        elif act == "ask":
            self.model.ask_as_old_leader()
        elif running := self.model.running():
            self.model.cancel(data.draw(st.sampled_from(running), label="run"))

    @invariant()
    def the_books_agree(self) -> None:
        self.model.check()

    @invariant()
    def nobody_sleeps_through(self) -> None:
        self.model.check_sleep()

    def teardown(self) -> None:
        self.model.bring_to_an_end()

    def draw_attempt(self, data: st.DataObject) -> Attempt | None:
        """An attempt in flight, if necessary a new one; sometimes one that ended long ago."""
        model = self.model
        if not model.in_flight() and (waiting := model.waiting()):
            lane, ref = data.draw(st.sampled_from(waiting), label="waiting")
            for attempt in model.grant(lane, [Offer(ref, 3)], room=3, most=12)[1:]:
                model.claim(attempt, "w1")
        live = model.in_flight()
        stale = not live or data.draw(st.integers(0, 4), label="stale") == 4
        among = model.issued if stale else live
        return data.draw(st.sampled_from(among), label="attempt") if among else None
