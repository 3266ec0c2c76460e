"""A scheduler or a worker that is too old for a run is named: by `why`, and by `doctor`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from fairlane.model.choices import SPEC_VERSION, UNSTATED_SPEC_VERSION
from fairlane.model.run import Order
from fairlane.store.read.overview import DeploymentReader, LeaderView
from fairlane.store.write.leader import LeaderLease
from fairlane.why.waiting import Waiting
from tests.support.deployment import Deployment
from tests.unit.test_cli_checks import NOW, troubles, worker
from tests.unit.test_why_bounds import TASKS, Asked

TURNS = Order(turns=True, conversation=True)


@pytest.fixture
def asked(real_redis: Redis) -> Asked:
    return Asked(real_redis)


def says(d: Deployment, name: str, **info: Any) -> None:
    """A worker's heartbeat as a version writes it that says nothing of specs, unless ``info`` does."""
    beat = {
        "name": name,
        "slots": 9,
        "lanes": [TASKS],
        "version": "1",
        "pid": 1,
        "host": "h",
        "started_ms": 0,
    }
    d.redis.hset(d.keys.workers, name, f"{d.now_ms} {json.dumps(beat | info)}")


def run_of(asked: Asked, version: int = SPEC_VERSION, **given: Any) -> Any:
    ref = asked.run(rows=5, order=TURNS, **given)
    plan = asked.d.runs.plan(ref)
    assert plan is not None
    newer = plan.model_copy(update={"spec": plan.spec.model_copy(update={"version": version})})
    asked.d.redis.set(asked.d.keys.plan(ref), newer.model_dump_json())
    return ref


def old_leader(d: Deployment, name: str = "old") -> None:
    """What a scheduler of an earlier version writes when it takes over: all but the version of specs."""
    fields = {"id": name, "holder": f"{name}#ab", "epoch": d.epoch + 1, "until_ms": d.now_ms + 60_000}
    d.redis.hset(d.keys.leader, mapping=fields)


def test_the_leader_says_which_specs_it_reads(asked: Asked) -> None:
    reader = DeploymentReader(asked.d.redis, asked.d.keys)
    assert (found := reader.leader()) is not None
    assert found.specs == SPEC_VERSION
    old_leader(asked.d)
    assert (found := reader.leader()) is not None
    assert (found.identity, found.specs) == ("old", UNSTATED_SPEC_VERSION)
    asked.d.redis.hset(asked.d.keys.leader, "until_ms", "0")
    LeaderLease(asked.d.redis, asked.d.keys, "new", 1000, "cd").acquire(asked.d.now_ms)
    assert (found := reader.leader()) is not None
    assert (found.identity, found.specs) == ("new", SPEC_VERSION)


def test_a_leader_that_skips_the_run_is_why_it_waits(asked: Asked) -> None:
    run_of(asked)
    assert "too old" not in asked.why().sentence
    old_leader(asked.d)
    found: Waiting = asked.why()
    assert found.constraint == "scheduler"
    assert found.sentence.startswith("old, which leads, is too old for this run and ignores it")
    assert found.sentence.endswith(f"and the run's has {SPEC_VERSION}. Upgrade the schedulers")
    assert (found.eta.at_ms, found.lanes[0].constraint) == (None, "scheduler")
    assert asked.why("r1/3").sentence == found.sentence


@pytest.mark.parametrize("version", [1, UNSTATED_SPEC_VERSION])
def test_a_run_that_old_processes_can_read_names_none(asked: Asked, version: int) -> None:
    run_of(asked, version)
    old_leader(asked.d)
    says(asked.d, "w1")
    assert "too old" not in asked.why().sentence


def test_workers_that_put_jobs_back_are_named_alone_and_beside_others(asked: Asked) -> None:
    run_of(asked)
    says(asked.d, "w1")
    found = asked.why()
    assert found.lanes[0].constraint == "slots"
    words = f"all workers of {TASKS} are too old for this run and requeue its jobs: w1; the run's spec"
    assert asked.why("r1/3").sentence.startswith(words)
    assert found.lanes[0].sentence.startswith(words)
    says(asked.d, "w2", specs=SPEC_VERSION)
    assert "all workers" not in asked.why().lanes[0].sentence


def test_jobs_to_be_tried_again_beside_an_old_worker_name_it(asked: Asked) -> None:
    ref = run_of(asked)
    says(asked.d, "w1", specs=SPEC_VERSION)
    says(asked.d, "w0")
    for attempt in asked.d.start(ref, 5):
        asked.d.defer(attempt, delay_ms=60_000)
    (part,) = (part for part in asked.why().lanes if part.lane == TASKS)
    assert part.constraint == "delayed"
    assert "to be tried again" in part.sentence
    words = f"some workers of {TASKS} are too old for this run and requeue its jobs: w0;"
    assert words in part.sentence
    job = asked.why("r1/3").sentence
    assert job.startswith("it was requeued: it is tried again")
    assert words in job


def test_the_doctor_names_processes_that_are_too_old() -> None:
    old, current = worker("w0", specs=UNSTATED_SPEC_VERSION), worker("w1")
    leader = LeaderView("scheduler-1", 3, NOW + 1000, UNSTATED_SPEC_VERSION)
    (first, second) = troubles(leader=leader, beats=(old, current))
    assert (first.check, first.detail) == (
        "versions",
        f"scheduler-1, which leads, reads specs up to version {UNSTATED_SPEC_VERSION} of {SPEC_VERSION}",
    )
    assert second.detail == f"worker w0 reads specs up to version {UNSTATED_SPEC_VERSION} of {SPEC_VERSION}"
    assert "Upgrade the workers" in second.remedy


def test_a_later_version_is_no_trouble() -> None:
    leader = LeaderView("scheduler-1", 3, NOW + 1000, SPEC_VERSION + 1)
    assert troubles(leader=leader, beats=(worker(specs=SPEC_VERSION + 1),)) == []
