"""The store keeps its promises on a real server and on the imitation that users test with."""

from __future__ import annotations

import json
from functools import partial
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis
from redis.client import Pipeline

from fairlane.core.errors import LaneNotFound
from fairlane.model.ending import CANCELLED, ReadyJob, RecordedJob
from fairlane.model.job import Claim, JobState
from fairlane.model.lane import LaneLimits
from fairlane.model.tokens import Estimate, Usage
from fairlane.store.verbs import all_scripts, load_all
from fairlane.store.write.permits import Offer
from fairlane.store.write.workers import WorkerInfo
from tests.support.conservation import Books
from tests.support.contents import Content, read_contents
from tests.support.deployment import BURST_S, LEASE_MS, TTL_MS, Deployment, entry, make_spec, payload
from tests.support.lifecycle import Lifecycle

pytestmark = pytest.mark.servers


def test_every_script_is_known_after_loading(redis: Redis) -> None:
    load_all(redis)
    assert redis.script_exists(*(each.sha for each in all_scripts())) == [True] * len(all_scripts())


def test_loading_sends_no_script_that_the_server_knows(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    redis.script_flush()
    load_all(redis)
    monkeypatch.setattr(Pipeline, "script_load", lambda *_: pytest.fail("a script was sent again"))
    load_all(redis)


def test_a_script_that_was_not_loaded_runs_all_the_same(redis: Redis) -> None:
    redis.script_flush()
    assert Deployment(redis).epoch == 1


def test_one_leader_at_a_time(redis: Redis) -> None:
    d = Deployment(redis)
    first, second = d.leader("a", lease_ms=3000), d.leader("b", lease_ms=3000)
    redis.delete(d.keys.leader)
    assert [first.acquire(d.now_ms).epoch, second.acquire(d.now_ms).epoch] == [1, 0]
    d.advance(3000)
    assert [second.acquire(d.now_ms).epoch, first.acquire(d.now_ms).epoch] == [2, 0]
    assert second.resign()
    assert first.acquire(d.now_ms).epoch == 3


def test_the_servers_clock_decides_where_no_time_is_given(redis: Redis) -> None:
    d = Deployment(redis)
    seconds, _ = redis.time()
    redis.delete(d.keys.leader)
    until_ms = d.leader("a", lease_ms=0).acquire().until_ms
    assert 0 <= until_ms - seconds * 1000 < 60_000


def test_a_run_goes_from_submission_to_its_last_evaluation(redis: Redis) -> None:
    d = Deployment(redis)
    d.lane("sim:judge")
    d.lane(requests_per_minute=600)
    ref = d.submit(rows=3, judges=["sim:judge"])
    over = [
        RecordedJob(4, JobState.INVALID, payload(JobState.INVALID), ""),
        RecordedJob(5, JobState.SKIPPED, payload(JobState.SKIPPED), "sim:judge"),
    ]
    assert d.runs.feed(ref, d.epoch, 0, 3, {"sim:fast": [entry(0, 10), entry(2, 20)]}, over, d.now_ms) == 1
    assert d.runs.queued(ref, ["sim:fast", "sim:judge"]) == {"sim:fast": 2, "sim:judge": 0}
    first, second = d.take(ref)
    assert [(attempt.job, attempt.number) for attempt in (first, second)] == [(0, 1), (2, 1)]
    assert d.claim(first) == Claim(attempts=0, rate_limits=0, waited_ms=0, good_ms=316)
    assert d.claim(second, "w2") is not None
    reported = d.finish(first, follow=[ReadyJob(entry(1, 7, 1), "sim:judge")])
    assert reported is not None
    assert (reported.in_flight, reported.news, reported.finished) == (1, "", False)
    skipped = [RecordedJob(3, JobState.SKIPPED, payload(JobState.SKIPPED), "sim:judge")]
    assert d.finish(second, "w2", state=JobState.FAILED, follow=skipped) is not None
    Books(redis, d.keys).check()
    last = d.finish(d.start(ref, lane="sim:judge")[0])
    assert last is not None
    assert last.finished
    Books(redis, d.keys).check()
    assert d.list(d.keys.finished(ref)) == ["2", "1", "0"]
    assert json.loads(redis.hget(d.keys.results(ref), "2") or b"") == {"s": "failed"}
    assert 0 < redis.pttl(d.keys.rows(ref)) <= TTL_MS


def test_duplicate_unknown_and_late_reports_change_nothing(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane(jobs=2)
    attempt = d.start(ref)[0]
    assert d.claim(attempt, "w2") is None
    assert d.finish(attempt, "w2") is None
    assert d.finish(attempt) is not None
    assert d.finish(attempt) is None
    assert d.defer(attempt) is None
    assert (d.count(ref, "late"), d.count(ref, "jobs_done")) == (3, 1)


def test_a_job_waits_its_delay_and_comes_back(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane(jobs=2)
    d.defer(d.start(ref)[0], delay_ms=1000, cost="attempt", rate_limited=True)
    assert (d.promote(), d.next_due_ms()) == (0, d.now_ms + 1000)
    d.advance(1000)
    assert (d.promote(), d.next_due_ms()) == (1, None)
    assert d.claim(d.take(ref, 1)[0]) == Claim(attempts=1, rate_limits=1, waited_ms=0)


def test_lapsed_leases_and_those_of_dead_workers_are_recovered(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane(jobs=3)
    lapsing, held, kept = (d.start(ref, worker=worker)[0] for worker in ("w1", "w2", "w3"))
    assert [d.recover(attempt, "w2") for attempt in (lapsing, held, kept)] == [0, 1, 0]
    d.advance(LEASE_MS)
    info = WorkerInfo("w3", slots=1, lanes=(), version="1", pid=1, host="h", started_ms=0)
    beat = d.workers.beat("w3", info, [kept.id, held.id], LEASE_MS, changed=True, now_ms=d.now_ms)
    assert beat.run(redis) == [held.id.encode()]
    assert [lease.attempt for lease in d.leases.lapsed(d.now_ms)] == [lapsing]
    assert [d.recover(attempt, max_attempts=1) for attempt in (lapsing, kept)] == [2, 0]
    assert [beat.worker for beat in d.workers.beats(redis)] == ["w3"]
    assert d.workers.leave("w3").run(redis) == 1
    Books(redis, d.keys).check()


def test_cancelling_ends_everything(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane(jobs=5)
    flying = d.start(ref, 2)
    assert d.cancel(ref) == 5
    assert d.finish(flying[0]) is None
    assert (d.leases.count(), d.lanes.on_slots(["sim:fast"])) == (0, {"sim:fast": 0})
    Books(redis, d.keys).check()


def test_a_run_may_be_rejected(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.upload(make_spec("search", "r1", 1, 0, d.now_ms))
    assert d.runs.refuse(ref, "no such model", d.now_ms, d.epoch, d.now_ms)
    assert d.state(ref)["reason"] == "no such model"


def test_an_old_leader_changes_nothing(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane()
    old = d.epoch
    d.elect("scheduler-2")
    before = read_contents(redis)
    assert d.runs.end(ref, ["sim:fast"], CANCELLED, old, d.now_ms) == -1
    offers = [Offer(ref, 1)]
    assert (
        d.lanes.grant("sim:fast", old, offers, room=1, max_in_flight=1, lease_ms=1, now_ms=d.now_ms) is None
    )
    assert read_contents(redis) == before


def test_a_lane_keeps_to_its_limits(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.queued_lane(jobs=50, tokens=100, requests_per_minute=600, tokens_per_minute=30_000)
    grant = d.ask(ref)
    assert (len(grant.permits), grant.reason, grant.wait_ms, list(grant.queued)) == (4, "tokens", 100, [46])
    d.advance(100)
    assert len(d.take(ref)) == 1
    d.lanes.limit("sim:fast", {"tokens_per_minute": None, "max_concurrency": 5, "min_gap_ms": 7})
    stated = LaneLimits(requests_per_minute=600, max_concurrency=5, min_gap_ms=7, burst_seconds=BURST_S)
    assert d.lanes.view("sim:fast").limits == stated
    assert d.ask(ref).reason == "window"
    d.lanes.limit("sim:fast", {"max_concurrency": None})
    assert (d.ask(ref).reason, d.ask(ref).wait_ms) == ("gap", 7)
    d.advance(7)
    d.lanes.drain("sim:fast", d.now_ms)
    assert (d.ask(ref).reason, d.ask(ref).wait_ms) == ("requests", 1000)
    with pytest.raises(LaneNotFound):
        d.lanes.view("sim:none")


def test_a_lane_learns_blocks_parks_and_probes(redis: Redis) -> None:
    d = Deployment(redis)
    ref = d.unknown_lane(jobs=50)
    limited, refused = d.start(ref, 2)
    d.advance(100)
    reported = d.defer(limited, signal="limited", retry_after_ms=2500)
    assert reported is not None
    assert reported.news == "cut"
    assert (d.ask(ref).reason, d.ask(ref).wait_ms) == ("blocked", 2500)
    assert float(d.lane_state()["requests_est"]) == 300
    d.defer(refused, signal="refused", reason="quota")
    assert d.lanes.view("sim:fast").parked == "quota"
    d.advance(5000)
    d.lanes.resume("sim:fast", d.now_ms)
    probe = d.start(ref)[0]
    assert d.ask(ref).reason == "probing"
    closed = d.finish(probe)
    assert closed is not None
    assert closed.news == "closed"
    d.lanes.pause("sim:fast")
    assert d.ask(ref).reason == "paused"


def test_both_hold_the_same_after_the_same_history(real_redis: Redis, fake_redis: Redis) -> None:
    real, fake = (_after_a_history(redis) for redis in (real_redis, fake_redis))
    assert real.keys() == fake.keys()
    for key in real:
        assert real[key] == fake[key], key


def test_the_imitation_survives_arbitrary_histories(fake_redis: Redis) -> None:
    run_state_machine_as_test(
        cast("type[Lifecycle]", partial(Lifecycle, fake_redis)),
        settings=settings(
            max_examples=6,
            stateful_step_count=12,
            phases=set(Phase) - {Phase.explain},
            suppress_health_check=list(HealthCheck),
        ),
    )


def _after_a_history(redis: Redis) -> dict[str, Content]:
    d = Deployment(redis)
    d.lane("sim:judge", max_concurrency=2)
    d.lane(tokens_per_minute=60_000.5, input_tokens_per_minute=9000, requests_per_day=100, burst_seconds=3)
    ref = d.submit(rows=20, judges=["sim:judge"])
    d.feed(ref, 15, tokens=Estimate(20, 17))
    attempts = d.start(ref, 8)
    d.advance(123)
    d.finish(attempts[0], used=Usage(25, 5, 3), follow=[ReadyJob(entry(1, 9, 1), "sim:judge")])
    d.finish(attempts[1], used=50, follow=[RecordedJob(3, JobState.SKIPPED, "{}", "sim:judge")])
    d.defer(attempts[2], signal="limited", retry_after_ms=700)
    d.defer(attempts[3], signal="limited")
    d.defer(attempts[4], signal="broken", delay_ms=333, cost="attempt")
    d.start(ref, lane="sim:judge")
    d.advance(5000)
    d.ask(ref)
    d.advance(LEASE_MS)
    for lease in d.leases.lapsed(d.now_ms):
        d.recover(lease.attempt)
    d.promote()
    d.start(ref, 2)
    d.cancel(d.queued_lane(run="r2", jobs=3))
    return {key: _readable(key, content) for key, content in read_contents(redis).items()}


def _readable(key: str, content: Content) -> Content:
    """JSON as what it says, without the names of claims, which are random, and without what time it was."""
    if key.endswith(":audit") and isinstance(content.value, list):
        shown = [{**fields, b"detail": json.loads(fields[b"detail"])} for _, fields in content.value]
        return Content(shown, content.expires)
    if not key.endswith(":leased") or not isinstance(content.value, dict):
        return content
    records = {name: json.loads(record) for name, record in content.value.items()}
    for record in records.values():
        record.pop("claim", None)
    return Content(records, content.expires)
