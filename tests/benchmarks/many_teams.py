"""What it costs to decide who is next, with few teams and with many: the dispatcher, on a real server."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from redis import Redis

from fairlane.config.sections import LogSettings
from fairlane.embedded.server import EmbeddedRedis
from fairlane.model.choices import Message
from fairlane.model.ending import Completion
from fairlane.model.job import Attempt, Feedback, JobState
from fairlane.model.lane import LaneLimits
from fairlane.model.run import Plan, RunRef, RunSpec
from fairlane.model.tokens import Entry, Estimate, Usage
from fairlane.store.verbs import load_all
from fairlane.store.write.workers import Beat, WorkerInfo
from fairlane.telemetry.logs import configure_logging
from fairlane_scheduler.state.backlog import ActiveRun
from tests.benchmarks.report import Finding
from tests.support.scheduler_parts import Parts

LANES, JOBS, TICKS, WARM_TICKS = 10, 1_000_000, 220, 20
ROUNDS = 3  # of few teams and many in turn; the median is reported
PER_SECOND, TICK_S = 1000, 0.05  # 50 permits a lane and tick
FLOODED_SLOTS = 300
NAME = "who is next"


def many_teams() -> Iterator[Finding]:
    """1,000,000 jobs that wait on 10 lanes, of 10 teams and of 1,000: permits a second, a decision's p99."""
    configure_logging(LogSettings(level="warning"), "bench")
    for scarce in ("rates", "slots"):
        rounds = [[_decide(teams, scarce == "slots") for teams in (10, 1000)] for _ in range(ROUNDS)]
        few, many = (
            [median(each) for each in zip(*found, strict=True)] for found in zip(*rounds, strict=True)
        )
        for teams, (per_second, p99_ms) in ((10, few), (1000, many)):
            yield Finding(NAME, f"{scarce} scarce: permits decided, {teams:,} teams", per_second, "/s")
            yield Finding(
                NAME, f"{scarce} scarce: a decision over all lanes, p99, {teams:,} teams", p99_ms, "ms"
            )
        yield Finding(NAME, f"{scarce} scarce: permits/s, 10 teams ÷ 1,000 teams", few[0] / many[0], bar=2)
        yield Finding(NAME, f"{scarce} scarce: p99, 1,000 teams ÷ 10 teams", many[1] / few[1], bar=2)


def _decide(teams: int, slots_scarce: bool) -> tuple[float, float]:
    """Permits a second, the median over decisions, and the 99th percentile of a decision in ms."""
    gc.collect()
    gc.freeze()  # as the scheduler's process does
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedRedis(Path(folder), unix_socket=True) as server,
        Redis.from_url(server.url) as redis,
    ):
        redis.config_set("appendonly", "no")
        load_all(redis)
        parts = _loaded(
            redis, teams, FLOODED_SLOTS if slots_scarce else JOBS, rate=0 if slots_scarce else PER_SECOND
        )
        took, paces = list[float](), list[float]()
        for number in range(TICKS):
            parts.dispatcher.wake_all()
            moment = parts.moment()
            begun = time.perf_counter()
            parts.dispatcher.tick(moment)
            took.append(time.perf_counter() - begun)
            attempts = parts.mailbox.collect()
            if number >= WARM_TICKS:
                paces.append(len(attempts) / took[-1])
            if slots_scarce:
                _end(parts, attempts[: FLOODED_SLOTS // 2])
            parts.clock.advance(TICK_S)
            parts.leader.tick(parts.clock.monotonic_ms(), parts.now_ms)
        timed = sorted(took[WARM_TICKS:])
        return median(paces), timed[int(0.99 * len(timed))] * 1000


def _loaded(redis: Redis, teams: int, slots: int, rate: int) -> Parts:
    """One run a team, with its jobs over all lanes, queued as the feeder would."""
    parts = Parts(redis, max_in_flight=JOBS)
    lanes = [f"sim:m{number}" for number in range(LANES)]
    for lane in lanes:
        limits = {"requests_per_minute": 60 * rate, "burst_seconds": 1.0, "exact": True}
        parts.lanes.configure(lane, LaneLimits.model_validate(limits))
    parts.capacity.update([Beat("w", 0, WorkerInfo("w", slots, tuple(lanes), "0", 1, "h", 0))])
    each = JOBS // LANES // teams
    for number in range(teams):
        run = _run(parts, f"team{number}", each * LANES)
        pipeline = redis.pipeline(transaction=False)
        for at, lane in enumerate(lanes):
            entries = [str(Entry(job, Estimate(5, 5), 0)) for job in range(at * each, (at + 1) * each)]
            pipeline.rpush(parts.keys.fresh(run.ref, lane), *entries)
            parts.backlog.add(lane, run.ref, each)
        pipeline.execute()
    return parts


def _end(parts: Parts, attempts: Sequence[Attempt]) -> None:
    pipeline = parts.redis.pipeline(transaction=False)
    for attempt in attempts:
        parts.attempts.claim(attempt, "w", 60_000, parts.now_ms).queue(pipeline)
        parts.attempts.finish(
            attempt, "w", Feedback("ok", Usage(5, 5)), Completion(JobState.SUCCEEDED, "{}"), parts.now_ms
        ).queue(pipeline)
    pipeline.execute()


def _run(parts: Parts, team: str, rows: int) -> ActiveRun:
    spec = RunSpec(
        run="r1",
        team=team,
        name="r1",
        prompts=((Message(role="user", content="{{ q }}"),),),
        models=("sim:m0",),
        rows=rows,
        page_rows=1000,
        submitted_ms=parts.now_ms,
    )
    ref = RunRef(team, "r1")
    parts.redis.set(parts.keys.spec(ref), spec.model_dump_json())
    parts.redis.hset(parts.keys.rows(ref), "0", b"rows")
    plan = Plan(spec=spec, eval_lanes=())
    parts.runs.admit(plan, parts.leader.epoch, parts.now_ms)
    run = ActiveRun(ref, plan)
    parts.backlog.add_run(run)
    return run
