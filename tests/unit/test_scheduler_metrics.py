"""What a scheduler counts, what it tells of the whole deployment, and that standbys leave that alone."""

from __future__ import annotations

import json

import fakeredis
import pytest
from prometheus_client import generate_latest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from fairlane.config.settings import Settings
from fairlane.core.clock import ManualClock
from fairlane.model.run import RunRef, RunState
from fairlane.model.tokens import Entry, Estimate
from fairlane.store.keys import Keys
from fairlane.store.write.budgets import Allowance, Period
from fairlane.store.write.permits import Grant, Offer, Permit
from fairlane.telemetry.metrics_server import OTHER
from fairlane_scheduler.monitoring.deployment_sampler import LOOKED_AT_ONCE
from fairlane_scheduler.monitoring.metrics import LeaderSample
from fairlane_scheduler.monitoring.serving import SPARE_S, STUCK_S, SchedulerHealth
from fairlane_scheduler.service import Scheduler
from tests.support.registries import ScheduledMetrics
from tests.support.scheduler_parts import Parts
from tests.support.scheduling import Cluster
from tests.support.stand_ins import CollectingPublisher, VirtualTime


def permits(*teams: str) -> tuple[list[Offer], Grant]:
    offers = [Offer(RunRef(team, "r"), 1) for team in teams]
    given = [Permit(i, 1, Entry(i, Estimate(1, 1), 0), 0.25) for i in range(len(teams))]
    return offers, Grant(given, 0, "requests", len(teams), [0] * len(teams), 0)


def test_permits_and_shares_are_counted_by_lane_and_team() -> None:
    shown = ScheduledMetrics()
    shown.metrics.asked("a", *permits("x", "y", "x"), 0.002)
    assert shown.samples("fairlane_permits") == {("a", "x"): 2, ("a", "y"): 1}
    assert shown.samples("fairlane_team_share") == {("a", "x"): 0.5, ("a", "y"): 0.25}
    assert shown.samples("fairlane_lane_asked") == {("requests", "a"): 1}
    assert shown.samples("fairlane_grant_seconds") == {(): 0.002}


def test_any_number_of_teams_and_lanes_makes_a_bounded_number_of_series() -> None:
    settings = Settings.model_validate(
        {"metrics": {"lanes": 3, "teams": 4}, "teams": {"known": {}}, "lanes": {"sim:known": {}}}
    )
    shown = ScheduledMetrics(settings=settings)
    for number in range(200):
        shown.metrics.asked(f"lane-{number}", *permits(f"team-{number}"), 0.001)
    pairs = shown.samples("fairlane_permits")
    assert len(pairs) <= 4 * 5
    assert sum(pairs.values()) == 200
    assert pairs[OTHER, OTHER] > 190
    shown.metrics.asked("sim:known", *permits("known"), 0.001)
    assert shown.samples("fairlane_permits")["sim:known", "known"] == 1


@pytest.fixture
def cluster(real_redis: Redis) -> Cluster:
    return Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": 600}, "sim:judge": {}})


def watch(cluster: Cluster, clock: ManualClock | None = None) -> ScheduledMetrics:
    return ScheduledMetrics(cluster.redis, cluster.settings, clock)


def test_the_leader_reports_lanes_runs_jobs_and_workers(cluster: Cluster) -> None:
    shown = watch(cluster)
    cluster.submit(30, judges=["sim:judge"])
    cluster.run_for(1)
    shown.sampler.tick()
    jobs = shown.samples("fairlane_jobs")
    assert sum(jobs.values()) == 60
    assert jobs["succeeded",] > 0
    assert shown.samples("fairlane_runs")["running",] == 1
    assert shown.samples("fairlane_runs_progress_ratio")[()] == jobs["succeeded",] / 60
    allowed = shown.samples("fairlane_lane_allowed_per_minute")
    assert allowed["requests", "sim:fast", "configured"] == 600
    assert shown.samples("fairlane_lane_calls")["sim:fast", "succeeded"] > 0
    assert shown.samples("fairlane_lane_circuit_state")["sim:fast", "closed"] == 1


def test_a_standby_reports_only_itself(cluster: Cluster) -> None:
    shown = watch(cluster)
    cluster.submit(3)
    cluster.run_for(1)
    shown.sampler.tick()
    assert shown.samples("fairlane_lane_granted")
    shown.leader.epoch = 0
    assert shown.samples("fairlane_lane_granted") == {}, "what it saw while it led is another's to tell"
    shown.sampler.tick()
    served = generate_latest(shown.metrics.registry).decode()
    lines = {line.partition("{")[0].split()[0] for line in served.splitlines() if line[0] != "#"}
    assert not {
        line for line in lines if line.startswith(("fairlane_lane", "fairlane_jobs", "fairlane_workers_s"))
    }
    assert shown.samples("fairlane_scheduler_is_leader") == {(): 0}
    assert shown.samples("fairlane_redis_reachable") == {(): 1}


def test_runs_that_end_are_counted_once_by_how_they_ended(cluster: Cluster) -> None:
    shown = watch(cluster)
    shown.sampler.tick()
    done, cancelled = cluster.submit(3), cluster.submit(300)
    shown.metrics.admitted.extend([done, cancelled])
    cluster.run_until_finished(done)
    shown.sampler.tick()
    cluster.cancel(cancelled)
    cluster.run_for(1)
    shown.sampler.tick()
    shown.sampler.tick()
    ended = {state: count for state, count in shown.samples("fairlane_runs_ended").items() if count}
    assert ended == {("completed",): 1, ("cancelled",): 1}
    assert set(shown.samples("fairlane_runs_ended")) == {(s.value,) for s in RunState if s.finished}


def test_a_run_stands_still_from_the_end_of_its_last_job(cluster: Cluster) -> None:
    clock = ManualClock()
    shown = watch(cluster, clock)
    cluster.submit(50)
    cluster.run_for(1)
    shown.sampler.tick()
    clock.advance(100)
    shown.sampler.tick()
    assert shown.samples("fairlane_runs_standstill_seconds") == {(): 100}
    cluster.run_for(1)
    shown.sampler.tick()
    assert shown.samples("fairlane_runs_standstill_seconds") == {(): 0}


def test_more_runs_than_a_look_reads_are_all_counted_in_their_turn(cluster: Cluster) -> None:
    shown, keys = watch(cluster), Keys(cluster.settings.redis.deployment)
    refs = [RunRef("t", f"r{number}") for number in range(LOOKED_AT_ONCE + 20)]
    for ref in refs:
        cluster.redis.sadd(keys.active, str(ref))
        cluster.redis.hset(keys.state(ref), mapping={"state": "running", "jobs": 2, "jobs_done": 1})
    shown.sampler.tick()
    assert sum(shown.samples("fairlane_jobs").values()) < 2 * len(refs)
    shown.sampler.tick()
    assert shown.samples("fairlane_runs")["running",] == len(refs)
    assert shown.samples("fairlane_jobs")["waiting",] == len(refs)


def test_a_redis_that_is_away_is_reported(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = watch(cluster)
    shown.sampler.tick()

    def gone(**_: object) -> None:
        raise RedisConnectionError("gone")

    monkeypatch.setattr(cluster.redis, "pipeline", gone)
    shown.sampler.tick()
    assert shown.samples("fairlane_redis_reachable") == {(): 0}
    assert shown.samples("fairlane_redis_errors") == {(): 1}
    assert shown.samples("fairlane_lane_granted") == {}


def test_health_is_the_loop_and_readiness_its_success() -> None:
    clock, seen = ManualClock(), list[float]()
    health = SchedulerHealth(clock, 3.0, seen.append)
    assert health.sick() is None
    assert health.unready() == "no pass has succeeded yet"
    health.pass_began()
    health.pass_succeeded(0.25)
    assert (health.sick(), health.unready(), seen) == (None, None, [0.25])
    clock.advance(3.0 + SPARE_S + 1)
    assert "no pass has succeeded for 9 s" in (health.unready() or "")
    clock.advance(STUCK_S)
    assert "has not turned" in (health.sick() or "")
    health.pass_began()  # Redis is away: the loop turns, and waits
    assert health.sick() is None
    assert health.unready() is not None


def test_a_scheduler_that_is_not_ready_says_in_which_state_redis_is() -> None:
    clock = ManualClock()
    health = SchedulerHealth(clock, 3.0, lambda _: None)
    health.pass_failed("Redis is full")
    assert "Redis is full" in (health.unready() or "")
    health.pass_succeeded(0.25)
    assert health.unready() is None
    clock.advance(3.0 + SPARE_S + 1)
    assert "is Redis there?" in (health.unready() or "")
    health.pass_failed("Redis is full")
    assert "Redis is full" in (health.unready() or "")


def test_what_waits_is_reported_by_lane_and_team_with_the_teams_weights() -> None:
    parts = Parts(fakeredis.FakeRedis(), teams={"search": 3})
    shown = ScheduledMetrics(settings=parts.settings)
    parts.admit(4, team="search", run="r1")
    parts.admit(2, team="ads", run="r2")
    parts.feed_all()
    weights = {"search": 3.0, "ads": 1.0}
    shown.metrics.note(parts.backlog, parts.registry.names(), weights.__getitem__, ())
    assert shown.samples("fairlane_lane_queue_depth")["sim:fast",] == 6
    assert shown.samples("fairlane_lane_ready")["sim:fast",] == 6
    assert shown.samples("fairlane_team_waiting") == {("search",): 4, ("ads",): 2}
    assert shown.samples("fairlane_team_weight") == {("search",): 3, ("ads",): 1}


def test_a_run_that_its_own_bounds_hold_back_is_queued_and_not_ready() -> None:
    parts = Parts(fakeredis.FakeRedis())
    shown = ScheduledMetrics(settings=parts.settings)
    run = parts.admit(4)
    parts.feed_all()
    parts.backlog.throttle("sim:fast", run.ref, None)
    shown.metrics.note(parts.backlog, parts.registry.names(), lambda _: 1.0, ())
    assert shown.samples("fairlane_lane_queue_depth")["sim:fast",] == 4
    assert shown.samples("fairlane_lane_ready")["sim:fast",] == 0
    assert shown.samples("fairlane_team_waiting") == {}


def test_a_budget_is_reported_with_what_is_used_of_it() -> None:
    shown = ScheduledMetrics()
    period = Period("2026-11-22", 0)
    used = Allowance("search", "*", "day", "tokens", 100.0, 75.0, False, period)
    shown.metrics.leader_sample = LeaderSample(budgets=[used])
    assert shown.samples("fairlane_budget_used") == {("*", "day", "search", "tokens"): 75}
    assert shown.samples("fairlane_budget_limit") == {("*", "day", "search", "tokens"): 100}


def test_a_worker_that_falls_silent_is_counted(fake_redis: Redis) -> None:
    settings, clock = Settings(), ManualClock()
    shown = ScheduledMetrics(settings=settings)
    scheduler = Scheduler(fake_redis, settings, clock, "me", CollectingPublisher(), metrics=shown.metrics)
    info = {"name": "w", "slots": 1, "lanes": [], "version": "0", "pid": 1, "host": "h", "started_ms": 0}
    fake_redis.hset(Keys(settings.redis.deployment).workers, "w1", f"1000 {json.dumps(info)}")
    scheduler.tick()
    assert shown.samples("fairlane_workers_lost") == {(): 0}
    clock.advance(settings.scheduler.worker_timeout_seconds + 1)
    scheduler.tick()
    assert shown.samples("fairlane_workers_lost") == {(): 1}


def test_a_refused_run_is_counted(cluster: Cluster) -> None:
    metrics, time = watch(cluster).metrics, VirtualTime(cluster.clock)
    scheduler = Scheduler(
        cluster.redis, cluster.settings, cluster.clock, "me", CollectingPublisher(), time, metrics
    )
    cluster.submit(3, model="nowhere:fast")
    scheduler.tick()
    assert metrics.runs_ended.labels(RunState.REFUSED)._value.get() == 1
