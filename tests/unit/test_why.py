"""Why something waits: lanes, runs and jobs in every state, under a manual clock."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from redis import Redis

from fairlane.core.errors import TargetNotFound
from fairlane.model.ending import ReadyJob
from fairlane.model.hints import Hints
from fairlane.model.job import Feedback, JobState
from fairlane.model.tokens import Estimate
from fairlane.store.read.job_waits import RunTraces
from fairlane.store.write.leases import UNTAKEN_MS
from fairlane.store.write.scopes import Scopes
from fairlane.store.write.workers import WorkerInfo
from fairlane.why.targets import Explainer
from fairlane.why.waiting import Eta, Waiting
from tests.support.deployment import Deployment, entry

LANE = "sim:fast"
MINUTE_MS = 60_000


class Asked:
    """A deployment with a worker of a hundred slots, and somebody who asks."""

    def __init__(self, redis: Redis) -> None:
        self.d = Deployment(redis)
        self.weights: dict[str, float] = {}
        self.worker()

    def worker(
        self,
        slots: int = 100,
        lanes: tuple[str, ...] = (LANE, "sim:judge"),
        name: str = "w1",
        **said: Any,
    ) -> None:
        info = WorkerInfo(name, slots, lanes, "1", 1, "box", 0, **said)
        self.d.workers.beat(name, info, [], 1000, changed=True, now_ms=self.d.now_ms).run(self.d.redis)

    def why(self, target: str, team: str = "search") -> Waiting:
        return Explainer(self.d.redis, self.d.keys, team, self.weights, self.d.now_ms).why(target)

    def eta_s(self, target: str, **options: Any) -> float | None:
        found = self.why(target, **options)
        return None if found.eta.at_ms is None else (found.eta.at_ms - found.now_ms) / 1000


@pytest.fixture
def asked(real_redis: Redis) -> Asked:
    return Asked(real_redis)


def test_a_lane_on_which_nothing_waits_says_so(asked: Asked) -> None:
    asked.d.lane(requests_per_minute=60)
    found = asked.why(LANE)
    assert (found.kind, found.state, found.constraint) == ("lane", "active", "nothing")
    assert found.sentence == "nothing waits"
    assert found.eta == Eta(asked.d.now_ms)


def test_a_lane_at_its_rate_starts_its_last_job_when_the_rate_allows(asked: Asked) -> None:
    ref = asked.d.queued_lane(jobs=61, requests_per_minute=60)
    assert len(asked.d.take(ref)) == 1
    found = asked.why(LANE)
    assert (found.constraint, found.lanes[0].queued, found.lanes[0].in_flight) == ("requests", 60, 1)
    assert found.sentence == "sim:fast is used to the full: 60 requests/min, configured"
    assert asked.eta_s(LANE) == pytest.approx(60, abs=1)


def test_tokens_that_are_slower_than_requests_decide(asked: Asked) -> None:
    ref = asked.d.queued_lane(
        jobs=50, tokens=Estimate(60, 40), requests_per_minute=6000, tokens_per_minute=1000
    )
    asked.d.take(ref)
    found = asked.why(LANE)
    assert found.constraint == "tokens"
    left = found.lanes[0].queued * 100 / 1000 * 60
    assert asked.eta_s(LANE) == pytest.approx(left, rel=0.05)


def _set(d: Deployment, field: str, value: str) -> None:
    d.redis.hset(d.keys.lane(LANE), field, value)


@pytest.mark.parametrize(
    ("act", "state", "constraint", "words"),
    [
        (lambda d: d.lanes.pause(LANE), "paused", "paused", "`fairlane lanes resume sim:fast` resumes it"),
        (lambda d: _set(d, "parked", "no quota"), "parked", "parked", "parked: no quota;"),
        (lambda d: _set(d, "circuit", "half-open"), "blocked", "probing", "one call tests whether"),
    ],
)
def test_a_lane_that_no_time_opens_has_no_eta(
    asked: Asked, act: Any, state: str, constraint: str, words: str
) -> None:
    asked.d.queued_lane(jobs=3)
    act(asked.d)
    found = asked.why(LANE)
    assert (found.state, found.constraint, found.until_ms) == (state, constraint, None)
    assert words in found.sentence
    assert found.eta == Eta(None, True)


def test_an_open_circuit_starts_nothing_before_its_probe(asked: Asked) -> None:
    asked.d.queued_lane(jobs=3)
    asked.d.redis.hset(
        asked.d.keys.lane(LANE), mapping={"circuit": "open", "open_ms": asked.d.now_ms + 30_000}
    )
    found = asked.why(LANE)
    assert (found.constraint, found.until_ms) == ("circuit", asked.d.now_ms + 30_000)
    assert found.eta == Eta(asked.d.now_ms + 30_000, at_least=True)


def test_a_retry_after_is_reported_with_its_end(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=61, requests_per_minute=60)
    (attempt,) = d.start(ref)
    d.defer(attempt, signal="limited", retry_after_ms=59 * MINUTE_MS)
    found = asked.why(LANE)
    assert (found.constraint, found.until_ms) == ("blocked", d.now_ms + 59 * MINUTE_MS)
    assert found.sentence == "sim:fast is blocked: the provider asked to come back, in 59 min"
    eta_s = asked.eta_s(LANE)
    assert eta_s is not None
    assert eta_s >= 60 * 60


def test_a_held_lane_shows_the_providers_words(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=61, requests_per_minute=60)
    (attempt,) = d.start(ref)
    d.report(attempt, Feedback("limited", reason="crossed budget", hints=Hints(exhausted="day")), done=False)
    found = asked.why(LANE)
    assert (found.constraint, found.until_ms) == ("held", d.now_ms + MINUTE_MS)
    assert found.sentence.startswith("sim:fast is held (crossed budget): its quota is used up; one call asks")


def test_a_worker_that_cannot_use_the_connection_says_why_nobody_serves_its_lane(asked: Asked) -> None:
    asked.worker(lanes=(), unusable={"sim": "ca_file: cannot be read"})
    asked.d.queued_lane(jobs=3)
    sentence = asked.why(LANE).sentence
    assert sentence.startswith("no worker serves sim:fast: ")
    assert sentence.endswith("cannot use sim: ca_file: cannot be read")


def test_a_lane_that_no_worker_serves_waits_for_one(asked: Asked) -> None:
    asked.worker(lanes=("sim:other",))
    asked.d.queued_lane(jobs=3)
    found = asked.why(LANE)
    assert (found.constraint, found.eta.at_ms) == ("slots", None)
    assert "no worker serves sim:fast" in found.sentence


@pytest.mark.parametrize(
    ("connections", "says"),
    [
        ((("other",), ("other", "more")), "none has a connection 'sim'"),
        ((("other",), ()), "start one, or let one serve it"),
        ((("other",), ("sim",)), "start one, or let one serve it"),
    ],
)
def test_a_lane_whose_connection_no_worker_has_names_it(
    asked: Asked, connections: tuple[tuple[str, ...], ...], says: str
) -> None:
    for number, each in enumerate(connections, 1):
        asked.worker(lanes=("other:m",), name=f"w{number}", connections=each)
    asked.d.queued_lane(jobs=3)
    found = asked.why(LANE)
    assert found.sentence.startswith("no worker serves sim:fast: ")
    assert says in found.sentence


@pytest.mark.parametrize("others", [(), ("sim:other",)])
def test_a_lane_whose_workers_are_drained_says_how_they_take_work_again(
    asked: Asked, others: tuple[str, ...]
) -> None:
    says = "1 drained or draining; `fairlane drain --all --undo` has them take work again"
    asked.worker(stopping=True, draining=True)
    if others:
        asked.worker(lanes=others, name="w2")
    ref = asked.d.queued_lane(jobs=3)
    for target in (LANE, ref.run, f"{ref.run}/0"):
        found = asked.why(target)
        assert (found.constraint, found.sentence) == ("slots", f"no worker serves {LANE}: {says}")


def test_a_lane_on_which_retries_alone_wait_says_so(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=2)
    for attempt, delay_ms in zip(d.start(ref, 2), (9000, 4000), strict=True):
        d.defer(attempt, delay_ms=delay_ms)
    found, (part,) = asked.why(LANE), asked.why(LANE).lanes
    assert (found.constraint, found.sentence) == ("delayed", "2 to be tried again, the first in 4 s")
    assert (part.delayed, part.next_due_ms, found.eta.at_ms) == (2, d.now_ms + 4000, d.now_ms + 9000)
    asked.worker(lanes=("sim:other",))
    assert asked.why(LANE).sentence.startswith("no worker serves sim:fast")


def test_a_run_without_items_has_none_to_ask_for(asked: Asked) -> None:
    asked.d.submit(rows=0)
    with pytest.raises(TargetNotFound, match="run r1 has no items"):
        asked.why("r1/0")


def test_a_new_lane_has_the_drained_workers_too_if_no_others_work(asked: Asked) -> None:
    """They keep the lanes that they served last."""
    asked.worker(lanes=("sim:other",), stopping=True, draining=True)
    asked.d.queued_lane(jobs=3)
    assert "drain --all --undo" in asked.why(LANE).sentence
    asked.worker(lanes=("sim:more",), name="w2")
    assert "start one, or let one serve it" in asked.why(LANE).sentence


@pytest.mark.parametrize("act", ["pause", "park"])
def test_a_shell_passes_a_remedy_on_as_it_was_meant(asked: Asked, act: str) -> None:
    d, lane = asked.d, "sim:$(rm -r ~) 'it'"
    d.lane(lane)
    if act == "pause":
        d.lanes.pause(lane)
    else:
        d.redis.hset(d.keys.lane(lane), "parked", "no quota")
    command = asked.why(lane).sentence.split("`")[1]
    assert shlex.split(command) == ["fairlane", "lanes", "resume", lane]


def test_without_a_leader_nothing_starts(asked: Asked) -> None:
    ref = asked.d.queued_lane(jobs=3)
    asked.d.redis.hset(asked.d.keys.leader, "until_ms", asked.d.now_ms)
    for target in (LANE, ref.run, f"{ref.run}/0"):
        found = asked.why(target)
        assert (found.constraint, found.eta.at_ms) == ("scheduler", None), target


def test_where_redis_is_full_nothing_starts_and_the_words_are_its_own(asked: Asked) -> None:
    ref = asked.d.queued_lane(jobs=3)
    asked.d.redis.config_set("maxmemory", "1")
    try:
        for target in (LANE, ref.run, f"{ref.run}/0"):
            found = asked.why(target)
            assert (found.constraint, found.eta.at_ms) == ("scheduler", None), target
            assert found.sentence.startswith("Redis is full"), target
            assert "cannot reach" not in found.sentence
    finally:
        asked.d.redis.config_set("maxmemory", "0")


def test_a_full_window_grants_again_as_calls_end(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=30, max_concurrency=5)
    for attempt in d.start(ref, 5):
        d.advance(400)
        d.finish(attempt)
    assert len(d.take(ref)) == 5
    found = asked.why(LANE)
    assert found.constraint == "window"
    assert "5 calls in flight of 5, configured" in found.sentence
    latency_ms = d.lanes.view(LANE, d.now_ms).latency_ms
    assert latency_ms is not None
    assert found.eta.at_ms == pytest.approx(d.now_ms + 20 * latency_ms / 5, abs=1)


def test_a_full_window_of_unknown_latency_has_no_eta(asked: Asked) -> None:
    ref = asked.d.queued_lane(jobs=30, max_concurrency=5)
    asked.d.take(ref)
    assert asked.why(LANE).eta == Eta(None, True)


def test_a_days_limit_reaches_over_the_days_that_it_takes(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=10, requests_per_day=3)
    d.take(ref)
    found, midnight = asked.why(LANE), (d.now_ms // (1440 * MINUTE_MS) + 1) * 1440 * MINUTE_MS
    assert (found.constraint, found.until_ms) == ("day", midnight)
    assert found.eta.at_ms == midnight + 2 * 1440 * MINUTE_MS


def test_a_run_is_explained_lane_by_lane(asked: Asked) -> None:
    d = asked.d
    d.lane(requests_per_minute=60)
    d.lane("sim:judge")
    ref = d.submit(rows=10, judges=["sim:judge"])
    d.feed(ref, 6)
    (attempt,) = d.start(ref)
    found = asked.why(ref.run)
    task, judge = found.lanes
    assert (task.queued, task.in_flight, task.unfed, task.not_ready) == (5, 1, 4, 0)
    assert (judge.queued, judge.not_ready, judge.constraint) == (0, 10, "task")
    assert (found.kind, found.state) == ("run", "running")
    assert judge.eta == Eta(task.eta.at_ms, at_least=True)
    assert task.ahead == 8
    d.ask(ref)
    assert asked.why(ref.run).lanes[0].constraint == "requests"
    follow = [ReadyJob(entry(attempt.job + 1, 10, 1), "sim:judge")]
    d.finish(attempt, follow=follow)
    assert asked.why(ref.run).lanes[1].queued == 1


def test_retries_of_a_run_are_reported_with_the_next_one(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=2)
    for attempt, delay_ms in zip(d.start(ref, 2), (9000, 4000), strict=True):
        d.defer(attempt, delay_ms=delay_ms)
    found = asked.why(ref.run)
    (part,) = found.lanes
    assert (part.delayed, part.next_due_ms, found.constraint) == (2, d.now_ms + 4000, "delayed")
    assert found.sentence == "2 to be tried again, the first in 4 s"
    assert found.eta.at_ms == d.now_ms + 9000


def test_a_run_whose_items_are_all_in_flight_waits_for_nothing(asked: Asked) -> None:
    ref = asked.d.queued_lane(jobs=2)
    asked.d.start(ref, 2)
    found = asked.why(ref.run)
    assert (found.constraint, found.sentence) == ("running", "nothing waits: 2 calls are in flight")


def test_calls_that_no_worker_takes_are_named(asked: Asked) -> None:
    ref = asked.d.queued_lane(jobs=2)
    asked.d.take(ref, 2)
    assert asked.why(ref.run).sentence == "nothing waits: 2 calls are in flight"
    asked.d.clock.advance(UNTAKEN_MS / 1000)
    asked.worker()
    assert asked.why(ref.run).sentence.startswith(
        "2 calls were sent to workers 5 s ago, and none has taken them"
    )


def test_a_run_that_is_not_admitted_waits_for_that(asked: Asked) -> None:
    from tests.support.deployment import make_spec

    d = asked.d
    ref = d.upload(make_spec("search", "r1", 3, 0, d.now_ms))
    assert asked.why(ref.run).constraint == "admission"
    assert asked.why(f"{ref.run}/2").constraint == "admission"


def test_why_announces_a_run_again_that_no_scheduler_admits(asked: Asked) -> None:
    from tests.support.deployment import make_spec

    d = asked.d
    ref = d.upload(make_spec("search", "r1", 3, 0, d.now_ms))
    d.redis.rpush(d.keys.inbox("search"), '{"op": "submit", "run": "r1"}')
    with d.redis.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(d.keys.wake)
        heard.get_message(timeout=1)
        assert asked.why(ref.run).sentence.endswith("as a rule for less than a second")
        assert heard.get_message(timeout=0.05) is None
        d.clock.advance(12)

        found = asked.why(ref.run)

        message = heard.get_message(timeout=1)
    assert found.sentence.endswith("no scheduler has acted on its request for 12 s")
    assert message is not None
    assert message["data"] == b"inbox:search"


def test_a_run_that_is_over_says_how(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=2)
    first, second = d.start(ref, 2)
    d.finish(first)
    d.finish(second, state=JobState.FAILED, signal="answered")
    assert (asked.why(ref.run).constraint, asked.why(ref.run).sentence) == ("done", "the run is completed")
    assert (asked.why("r1/0").state, asked.why("r1/1").state) == ("succeeded", "failed")
    other = d.queued_lane(jobs=2, run="r2")
    d.cancel(other)
    assert asked.why("r2").constraint == "cancelled"
    assert asked.why("r2/1").constraint == "cancelled"


def test_a_job_has_a_position_among_its_runs_jobs(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=61, requests_per_minute=60)
    d.take(ref)
    for item, place in ((1, 1), (2, 2), (31, 31), (60, 60)):
        found = asked.why(f"r1/{item}")
        assert (found.position, found.ahead, found.constraint) == (place, place - 1, "requests"), item
    assert asked.eta_s("r1/30") == pytest.approx(30, abs=1)


def test_a_retry_that_is_due_goes_before_fresh_items(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=5)
    first, second = d.start(ref, 2)
    d.defer(second)
    d.defer(first)
    assert [asked.why(f"r1/{item}").position for item in range(5)] == [1, 2, 3, 4, 5]


def test_a_job_of_another_team_is_beside_by_weight(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=100, requests_per_minute=60)
    other = d.submit(team="other", run="r9", rows=100)
    d.feed(other, 100)
    d.take(ref)
    found = asked.why("r1/10")
    assert (found.constraint, found.position, found.ahead) == ("fairness", 10, 18)
    assert found.lanes[0].share == 0.5
    assert "this team has 50% of it beside others" in found.sentence
    asked.weights = {"search": 1, "other": 3}
    assert asked.why("r1/10").ahead == 36
    assert asked.why("r9/9", team="other").ahead == 9 + 3


def test_equal_runs_of_a_team_take_turns(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=100, requests_per_minute=60)
    second = d.submit(run="r2", rows=100)
    d.feed(second, 100)
    d.take(ref)
    found = asked.why("r1/10")
    assert (found.constraint, found.ahead, found.lanes[0].share) == ("requests", 18, 1.0)


def test_a_job_that_waits_out_a_failure_is_due_then(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=1)
    (attempt,) = d.start(ref)
    d.defer(attempt, delay_ms=4000)
    found = asked.why("r1/0/task")
    assert (found.constraint, found.until_ms) == ("delayed", d.now_ms + 4000)
    assert found.sentence == "its last call failed: it is tried again in 4 s"
    assert found.eta == Eta(d.now_ms + 4000, at_least=True)


def test_a_retry_on_a_lane_that_answers_nobody_says_until_when_it_fails(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=1)
    (attempt,) = d.start(ref)
    d.defer(attempt, signal="server_error", reason="busy", cost="unproven", delay_ms=4000)
    d.advance(1000)
    end = f"; it fails in 59 min, if {LANE} answers nobody until then (max_outage)"
    assert asked.why("r1/0/task").sentence == f"its last call failed: it is tried again in 3 s{end}"
    of_run = end.replace("it fails", "its jobs fail")
    assert asked.why("r1").lanes[0].sentence == f"1 to be tried again, the first in 3 s{of_run}"
    d.advance(3000)
    assert d.promote() == 1
    assert asked.why("r1/0/task").sentence.endswith(end)
    other = d.submit(run="r2", rows=1)
    d.feed(other, 1)
    (answered,) = d.start(other)
    d.finish(answered)
    assert "max_outage" not in asked.why("r1/0/task").sentence
    assert "max_outage" not in asked.why("r1").lanes[0].sentence


def test_a_run_says_until_when_the_retry_waits_that_failed_first(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=2)
    for wait_ms in (60_000, 120_000):
        (attempt,) = d.start(ref)
        d.defer(attempt, signal="server_error", reason="busy", cost="unproven", delay_ms=600_000)
        d.advance(wait_ms)
    assert f"; its jobs fail in 57 min, if {LANE} answers" in asked.why("r1").lanes[0].sentence


def test_jobs_of_a_lane_that_is_down_say_until_when_they_fail_without_their_runs_pauses(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=2)
    down = {"circuit": "open", "down_ms": d.now_ms, "open_ms": d.now_ms + 4_000_000}
    d.redis.hset(d.keys.lane(LANE), mapping=down)
    pauses = f"{d.now_ms - 9000}-{d.now_ms - 1},{d.now_ms + 1000}-{d.now_ms + 3_600_000},"
    d.redis.hset(d.keys.state(ref), "pauses", pauses)
    d.advance(3_700_000)
    assert "; its jobs fail in 58 min, if" in asked.why("r1").lanes[0].sentence
    assert "; it fails in 58 min, if" in asked.why("r1/1").sentence
    d.redis.hset(d.keys.lane(LANE), "paused", "1")
    assert "max_outage" not in asked.why("r1/1").sentence


def test_a_job_in_flight_is_reported_with_its_worker(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=2)
    d.start(ref)
    d.take(ref, 1)
    d.advance(3000)
    assert asked.why("r1/0").sentence == "it is being called by worker w1, for 3 s (dispatch 1)"
    assert "none has taken it yet" in asked.why("r1/1").sentence
    assert {asked.why(f"r1/{item}").state for item in (0, 1)} == {"leased"}


def test_a_call_that_nobody_makes_any_more_says_so(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=2)
    d.start(ref)
    d.take(ref, 1)
    d.advance(UNTAKEN_MS)
    again = "it is soon sent again; see `fairlane doctor`"
    assert (
        asked.why("r1/0").sentence == f"worker w1 took it 5 s ago, and has sent no heartbeat for 5 s: {again}"
    )
    assert asked.why("r1/1").sentence.endswith(f"none has taken it yet: {again}")
    d.redis.hset(d.keys.leader, "until_ms", d.now_ms)
    for target in ("r1/0", "r1/1"):
        found = asked.why(target)
        assert (found.constraint, "no scheduler leads" in found.sentence) == ("scheduler", True), target


def test_a_call_whose_answer_redis_cannot_record_says_so(asked: Asked) -> None:
    asked.d.start(asked.d.queued_lane(jobs=1))
    asked.d.redis.config_set("maxmemory", "1")
    try:
        assert asked.why("r1/0").constraint == "scheduler"
    finally:
        asked.d.redis.config_set("maxmemory", "0")


def test_an_unfed_item_is_explained_with_the_jobs_before_it(asked: Asked) -> None:
    d = asked.d
    d.lane(requests_per_minute=60)
    ref = d.submit(rows=100)
    assert asked.why("r1/7").constraint == "feeding"
    d.feed(ref, 10)
    d.take(ref)
    found = asked.why("r1/59")
    assert (found.constraint, found.position, found.ahead) == ("feeding", None, 9 + 49)
    assert found.sentence.startswith("item 59 is not fed yet: 49 items are fed before it; ")
    assert asked.eta_s("r1/59") == pytest.approx(59, abs=1)


def test_an_evaluation_waits_for_its_output(asked: Asked) -> None:
    d = asked.d
    d.lane()
    d.lane("sim:judge")
    ref = d.submit(rows=2, judges=["sim:judge"])
    d.feed(ref, 2)
    assert asked.why("r1/0/1").constraint == "task"
    assert asked.why("r1/0/judge0").constraint == "task"
    (attempt,) = d.start(ref)
    d.finish(attempt, follow=[ReadyJob(entry(attempt.job + 1, 10, 1), "sim:judge")])
    found = asked.why("r1/0")
    assert (found.target, found.position, found.lanes[0].lane) == ("r1/0/1", 1, "sim:judge")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("sim:fats", "did you mean sim:fast?"),
        ("r11", "did you mean r1?"),
        ("", "list what is there"),
        ("a b*", "list what is there"),
        ("r1/9", "run r1 has the items 0 to 1"),
        ("r1/x", "run r1 has the items 0 to 1"),
        ("r1/-1", "run r1 has the items 0 to 1"),
        (f"r1/{'9' * 5000}", "run r1 has the items 0 to 1"),
        ("r1/²", "run r1 has the items 0 to 1"),
        ("r1/0/1", "the run's steps are 0 (task)"),
        ("r1/0/0/0", "RUN/ITEM/STEP"),
    ],
)
def test_an_unknown_target_is_reported_with_similar_ones(asked: Asked, target: str, words: str) -> None:
    asked.d.queued_lane(jobs=2)
    with pytest.raises(TargetNotFound) as caught:
        asked.why(target)
    assert words in str(caught.value)


def test_a_run_of_another_team_is_not_found(asked: Asked) -> None:
    ref = asked.d.queued_lane(jobs=2)
    with pytest.raises(TargetNotFound):
        asked.why(ref.run, team="other")


def test_asking_changes_nothing(asked: Asked, real_redis: Redis) -> None:
    from tests.support.contents import read_contents

    d = asked.d
    ref = d.queued_lane(jobs=5, requests_per_minute=None, tokens_per_minute=1000)
    d.defer(d.start(ref)[0], signal="limited")
    before = read_contents(real_redis)
    for target in (LANE, ref.run, f"{ref.run}/0", f"{ref.run}/4"):
        asked.why(target)
    assert read_contents(real_redis) == before


def test_why_works_without_a_leader_and_workers(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    d.queued_lane(jobs=1)
    d.redis.delete(d.keys.leader, d.keys.workers)
    assert Explainer(d.redis, d.keys, "search", {}, d.now_ms).why("r1").constraint == "scheduler"


def test_a_rejected_lane_tests_whether_it_opens(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=9)
    d.redis.hset(d.keys.lane(LANE), "stop", "refused")
    found = asked.why(ref.run)
    assert (found.constraint, found.eta.at_least) == ("refused", True)
    assert "one call tests whether" in found.sentence


def test_a_learned_rate_is_shown_as_approximate(asked: Asked) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=100, requests_per_minute=None)
    d.take(ref)
    assert asked.why(LANE).sentence.endswith("about 600 requests/min, still probing")
    for fields, words in (
        ({"requests_est": "300", "requests_age_ms": "0", "requests_var": "9"}, "learned from 429s"),
        ({"requests_reported": "120"}, "about 120 requests/min, from its headers"),
    ):
        d.redis.hset(d.keys.lane(LANE), mapping=fields)
        assert asked.why(LANE).sentence.endswith(words)
    assert d.lanes.view(LANE, d.now_ms).axes["requests"].uncertainty == 3


def test_a_lane_whose_name_looks_like_a_job_is_a_lane(asked: Asked) -> None:
    asked.d.lane("router:meta/llama")
    assert asked.why("router:meta/llama").kind == "lane"


@pytest.mark.parametrize(
    "limits",
    [
        {"requests_per_minute": 60, "burst_seconds": 2},
        {"requests_per_minute": 600, "tokens_per_minute": 700},
        {"input_tokens_per_minute": 60, "output_tokens_per_minute": 90},
        {"requests_per_day": 3},
        {"min_gap_ms": 250},
        {"requests_per_minute": None},
    ],
)
def test_the_next_job_starts_when_the_lane_would_grant_it(
    asked: Asked, limits: dict[str, float | None]
) -> None:
    d = asked.d
    ref = d.queued_lane(jobs=50, tokens=Estimate(3, 4), **limits)  # type: ignore[arg-type]
    grant = d.ask(ref)
    eta = asked.why(f"r1/{len(grant.permits)}").eta
    assert grant.at_ms
    assert eta.at_ms == pytest.approx(grant.at_ms, abs=2), grant.reason


@pytest.mark.parametrize("holders", [(), ("w9",)])
def test_a_run_whose_connection_the_scheduler_lacks_says_so(
    asked: Asked, holders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    d = asked.d
    Scopes(d.redis, d.keys).publish({"other": {"protocol": "openai"}})
    for name in holders:
        asked.worker(name=name, connections=("gone",))
    ref = d.submit(rows=3)
    plan = RunTraces(d.redis, d.keys, ref).plan()
    assert plan is not None
    spec = plan.spec.model_copy(update={"models": ("gone:fast",)})
    monkeypatch.setattr(RunTraces, "plan", lambda _: plan.model_copy(update={"spec": spec}))
    found = asked.why(ref.run)
    have = ", which w9 have" if holders else ""
    assert found.constraint == "feeding"
    assert f"the scheduler that leads has no connection 'gone'{have}: its items wait" in found.sentence
    Scopes(d.redis, d.keys).publish({"gone": {"protocol": "openai"}})
    assert "about to be fed" in asked.why(ref.run).sentence


def test_an_estimate_offers_its_documented_fields_alone() -> None:
    names = {name for name in dir(Eta) if not name.startswith("_")}
    assert names - set(dir(tuple)) == {"at_ms", "at_least"}
