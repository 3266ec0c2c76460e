"""Connections with one credential and one scope share lanes, through restarts, rotations and rollouts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from redis import Redis
from structlog.testing import capture_logs

from fairlane.config.settings import Settings
from fairlane.core.clock import ManualClock
from fairlane.core.events import Event
from fairlane.store.keys import Keys
from fairlane.store.read.reading import LaneDirectory
from fairlane.store.write.audit import AuditLog
from fairlane.store.write.budgets import Budgets
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leader import NotLeader
from fairlane.store.write.scopes import Scopes
from fairlane.store.write.workers import WorkerInfo, Workers
from fairlane_scheduler.lanes.sharing import LaneSharing
from fairlane_scheduler.service import Scheduler
from fairlane_scheduler.state.server_time import Moment
from tests.support.deployment import Deployment
from tests.support.stand_ins import CollectingPublisher

X, Y, Z = "0" * 12, "1" * 12, "2" * 12
KEYS = Keys("test")


def named(*variables: str, protocol: str = "openai", **more: Any) -> dict[str, Any]:
    """Connections a, b, … whose keys are in these variables."""
    plain = {"protocol": protocol, "base_url": "http://x.invalid/v1", **more}
    return {name: {**plain, "api_key_env": each} for name, each in zip("abcdef", variables, strict=False)}


class Rollout:
    """A scheduler beside workers of which a test says what they hold."""

    def __init__(self, redis: Redis, connections: Mapping[str, Any], **more: Any) -> None:
        self.redis, self.clock = redis, ManualClock()
        self.settings = Settings.model_validate(
            {"redis": {"deployment": "test"}, "connections": connections, **more}
        )
        self.lanes = Lanes(redis, KEYS)
        self.restart()

    def restart(self, connections: Mapping[str, Any] | None = None) -> None:
        """Another scheduler leads, perhaps with other connections."""
        if connections is not None:
            self.settings = Settings.model_validate(
                {"redis": {"deployment": "test"}, "connections": connections}
            )
        self.redis.hset(KEYS.leader, "until_ms", "0")
        self.scheduler = Scheduler(
            self.redis, self.settings, self.clock, os.urandom(4).hex(), CollectingPublisher()
        )
        self.scheduler.tick()

    def holding(
        self, renewals: Mapping[str, Mapping[str, int]] | None = None, **workers: Mapping[str, str]
    ) -> None:
        """These workers live, with fingerprints by connection; the others are gone.

        ``renewals``: by worker, how many keys have replaced a denied one.
        """
        self.redis.delete(KEYS.workers)
        for name, held in workers.items():
            counts = (renewals or {}).get(name, {})
            info = WorkerInfo(name, 5, (), "1", 1, "box", 0, credentials=held, renewals=counts)
            Workers(KEYS).beat(name, info, [], 1000, changed=True).run(self.redis)
        self.clock.advance(1.0)  # who is gone without a word is missed by the next look
        self.scheduler.tick()

    def lane(self, model: str) -> str:
        """The lane of a model's calls, as the directory has it."""
        found = LaneDirectory.read(self.redis, KEYS).lane_of(model)
        assert found is not None
        return found

    def use(self, lane: str, **learned: float | str) -> None:
        """A lane has been used, and these fields of it are set."""
        self.lanes.configure(lane, None)
        self.redis.hset(KEYS.lane(lane), mapping={"known_ms": 1, **learned})


def test_two_connections_share_their_lanes_once_workers_report_one_key(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    assert (there.lane("a:m"), there.lane("b:m")) == ("a:m", "b:m")
    there.holding(w1={"a": X, "b": X})
    assert (there.lane("a:m"), there.lane("b:m"), there.lane("b:n")) == ("a:m", "a:m", "a:n")


def test_other_keys_are_other_lanes(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    there.holding(w1={"a": X, "b": Y})
    assert there.lane("b:m") == "b:m"


def test_one_variable_is_one_key_before_any_worker_has_reported_it(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "ONE", "TWO"))
    assert [there.lane(f"{name}:m") for name in "abc"] == ["a:m", "a:m", "c:m"]


def test_where_all_models_share_a_limit_so_do_connections(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "ONE", protocol="replicate"))
    assert (there.lane("a:x"), there.lane("b:y")) == ("a", "a")


def test_without_keys_a_base_url_is_shared(real_redis: Redis) -> None:
    plain = {"protocol": "openai", "base_url": "http://x.invalid/v1"}
    there = Rollout(real_redis, {"a": plain, "b": plain, "c": {**plain, "base_url": "http://x.invalid/v2"}})
    assert [there.lane(f"{name}:m") for name in "abc"] == ["a:m", "a:m", "c:m"]


def test_what_was_chosen_outlasts_schedulers_and_the_order_of_the_configuration(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    there.holding(w1={"a": X, "b": X})
    turned = dict(reversed(named("ONE", "TWO").items()))
    there.restart({"first": turned["a"], **turned})
    there.holding(w1={"a": X, "b": X, "first": X})
    assert [there.lane(f"{name}:m") for name in ("a", "b", "first")] == ["a:m"] * 3


def test_a_renewed_key_of_the_same_fingerprint_opens_what_the_old_one_parked(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    there.holding(w1={"a": X, "b": Y}, w2={"a": X, "b": Y})
    for lane in ("a:m", "b:m"):
        there.use(lane, parked="Incorrect API key provided.")
    there.holding({"w1": {"a": 1}}, w1={"a": X, "b": Y}, w2={"a": X, "b": Y})
    assert (there.lanes.view("a:m").parked, there.lanes.view("b:m").parked is None) == (None, False)
    there.use("a:m", parked="Incorrect API key provided.")
    there.holding({"w1": {"a": 1}}, w1={"a": X, "b": Y}, w2={"a": X, "b": Y})
    assert there.lanes.view("a:m").parked is not None
    there.holding({"w1": {"a": 1}, "w2": {"a": 1, "gone": 1}}, w1={"a": X, "b": Y}, w2={"a": X, "b": Y})
    assert there.lanes.view("a:m").parked is None
    assert (there.lane("a:m"), there.lane("b:m")) == ("a:m", "b:m")


def test_one_rotation_is_one_line_of_the_audit_whatever_the_number_of_workers(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE"))
    there.holding(w1={"a": X}, w2={"a": X}, w3={"a": X})
    there.use("a:m")
    log = AuditLog(real_redis, KEYS)
    before = len(list(log.since()))
    for held in ((Y, X, X), (Y, Y, X), (Y, Y, Y)):
        there.holding(**{f"w{number}": {"a": key} for number, key in enumerate(held, 1)})
    (entry,) = list(log.since())[before:]
    assert entry.detail["fingerprints"] == {"a": Y}


def test_a_lane_that_the_last_old_key_had_parked_opens_and_that_is_audited(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE"))
    there.holding(w1={"a": X}, w2={"a": X})
    there.holding(w1={"a": Y}, w2={"a": X})
    there.use("a:m", parked="Incorrect API key provided.")
    there.holding(w1={"a": Y}, w2={"a": Y})
    assert there.lanes.view("a:m").parked is None
    assert list(AuditLog(real_redis, KEYS).since())[-1].detail["opened"] == ["a:m"]


def test_a_new_key_changes_no_lane_of_its_connection_and_opens_what_the_old_one_parked(
    real_redis: Redis,
) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    there.holding(w1={"a": X, "b": Y})
    for lane in ("a:m", "b:m"):
        there.use(lane, parked="Incorrect API key provided.", requests_est=120)
    with capture_logs() as logs:
        there.holding(w2={"a": Z, "b": Y})
    assert there.lane("a:m") == "a:m"
    assert there.lanes.view("a:m").parked is None
    assert there.lanes.view("a:m").circuit == "open"
    assert there.redis.hget(KEYS.lane("a:m"), "requests_est") == b"120"
    assert there.lanes.view("b:m").parked is not None
    shown = {line["event"]: line for line in logs}
    assert (
        shown[Event.CREDENTIAL_CHANGED] | {"connection": "a", "fingerprint": Z, "before": X}
        == shown[Event.CREDENTIAL_CHANGED]
    )
    assert shown[Event.LANE_REOPENED]["lane"] == "a:m"


def test_a_key_that_was_missing_opens_the_lane_once_it_is_there(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE"))
    there.holding(w1={})
    there.use("a:m", parked="no key")
    there.holding(w1={"a": X})
    assert there.lanes.view("a:m").parked is None


def test_workers_that_come_with_the_same_key_leave_a_parked_lane_alone(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE"))
    there.holding(w1={"a": X})
    there.use("a:m", parked="quota")
    there.holding()
    there.holding(w2={"a": X})
    there.restart()
    there.holding(w2={"a": X}, w3={"a": X})
    assert there.lanes.view("a:m").parked == "quota"


def test_a_paused_lane_stays_paused_whatever_key_comes(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE"))
    there.holding(w1={"a": X})
    there.use("a:m", parked="quota", paused=1)
    there.holding(w1={"a": Y})
    view = there.lanes.view("a:m")
    assert (view.paused, view.parked) == (True, None)


def test_while_workers_are_replaced_the_newest_key_counts_and_the_last_old_one_to_go_opens_lanes_again(
    real_redis: Redis,
) -> None:
    there = Rollout(real_redis, named("ONE"))
    there.holding(w1={"a": Y}, w2={"a": Y})
    with capture_logs() as logs:
        there.holding(w1={"a": Y}, w3={"a": X})
    assert Scopes(real_redis, KEYS).read()["a"].credential == X
    assert [line["held"] for line in logs if line["event"] == Event.CREDENTIALS_DIFFER] == [[X, Y]]
    there.use("a:m", parked="refused to the worker with the old key")
    there.holding(w1={"a": Y}, w3={"a": X}, w4={"a": X})
    assert there.lanes.view("a:m").parked is not None
    there.restart()
    there.holding(w3={"a": X}, w4={"a": X})
    assert there.lanes.view("a:m").parked is None


def test_a_key_that_was_taken_back_counts_no_more(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    there.holding(w1={"a": X, "b": X})
    there.holding(w1={"a": X, "b": X}, w2={"a": Y, "b": X})
    assert there.lane("b:m") == "b:m"
    there.holding(w1={"a": X, "b": X})
    assert there.lane("b:m") == "a:m"


def test_who_leaves_starts_from_what_the_shared_lane_had_learned(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    there.holding(w1={"a": X, "b": X})
    there.use("a:m", requests_est=120, requests_var=4, requests_age_ms=0, inflight=3, parked="quota")
    with capture_logs() as logs:
        there.holding(w1={"a": X, "b": Y})
    assert there.lane("b:m") == "b:m"
    there.scheduler._registry.ensure("b:m")
    learned = there.redis.hmget(KEYS.lane("b:m"), "requests_est", "inflight", "parked")
    assert learned == [b"120", None, None]
    assert there.lanes.view("a:m").parked == "quota"
    assert [line["connection"] for line in logs if line["event"] == Event.LANES_PARTED] == ["b"]


def test_who_leaves_again_forgets_what_it_had_learned_before_it_joined(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    there.holding(w1={"a": X, "b": Y})
    there.use("b:m", requests_est=7, inflight=2)
    there.holding(w1={"a": X, "b": X})
    there.use("a:m", requests_est=120)
    there.holding(w1={"a": X, "b": Y})
    assert there.redis.hmget(KEYS.lane("b:m"), "requests_est", "inflight") == [b"120", b"2"]


def test_who_joins_brings_what_it_has_learned_to_a_lane_that_nobody_knows(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    there.holding(w1={"a": X, "b": Y})
    there.use("b:m", requests_est=120)
    there.holding(w1={"a": X, "b": X})
    with capture_logs() as logs:
        there.scheduler._registry.ensure("a:m")
    assert there.redis.hget(KEYS.lane("a:m"), "requests_est") == b"120"
    assert [line["learned_from"] for line in logs if line["event"] == Event.LANE_CREATED] == ["b:m"]


def test_connections_whose_keys_lie_with_other_workers_stay_apart(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    there.holding(w1={"a": X}, w2={"b": X})
    assert there.lane("b:m") == "b:m"
    there.holding(w2={"b": X})
    there.holding()
    assert there.lane("b:m") == "b:m"
    there.holding(w3={"a": X, "b": X})
    assert there.lane("b:m") == "a:m"
    there.holding(w3={"a": X, "b": X}, w4={"a": X})
    assert there.lane("b:m") == "a:m"


def test_a_connection_that_is_gone_leaves_its_lanes_to_itself(real_redis: Redis) -> None:
    there = Rollout(real_redis, named("ONE", "TWO"))
    there.holding(w1={"a": X, "b": X})
    there.restart({"b": named("ONE", "TWO")["b"]})
    assert there.lane("b:m") == "b:m"
    assert set(Scopes(real_redis, KEYS).read()) == {"b"}


def test_of_two_tables_for_one_lane_that_of_its_own_name_counts(real_redis: Redis) -> None:
    tables = {"a:m": {"requests_per_minute": 10}, "b:m": {"requests_per_minute": 20}}
    with capture_logs() as logs:
        there = Rollout(real_redis, named("ONE", "ONE"), lanes=tables)
    assert there.lanes.names() == ["a:m"]
    assert there.lanes.view("a:m").limits.requests_per_minute == 10
    shown = [(line["lane"], line["by"]) for line in logs if line["event"] == Event.LIMITS_OVERRULED]
    assert shown == [("b:m", "a:m")]


def test_a_table_of_one_that_shares_a_lane_counts_where_there_is_no_other(real_redis: Redis) -> None:
    with capture_logs() as logs:
        there = Rollout(real_redis, named("ONE", "ONE"), lanes={"b:m": {"requests_per_minute": 20}})
    assert there.lanes.names() == ["a:m"]
    assert there.lanes.view("a:m").limits.requests_per_minute == 20
    assert Event.LIMITS_OVERRULED not in {line["event"] for line in logs}


def test_a_lane_that_is_known_gets_what_its_provider_charges_with_the_next_scheduler(
    real_redis: Redis,
) -> None:
    azure = {"provider": "azure_openai", "base_url": "https://x.invalid"}
    there = Rollout(real_redis, {"a": azure})
    there.use("a:m")
    there.lanes.limit("a:m", {"max_concurrency": 7})
    there.restart()
    limits = there.lanes.view("a:m").limits
    assert (limits.charge, limits.max_concurrency) == ("reserved", 7)


def test_a_budget_on_a_lane_holds_where_its_calls_go(real_redis: Redis) -> None:
    budget = {"lane": "b:m", "per": "day", "requests": 9}
    there = Rollout(real_redis, named("ONE", "TWO"), teams={"t": {"budgets": [budget]}})
    for key, lane in ((Y, "b:m"), (X, "a:m"), (Y, "b:m")):
        there.holding(w1={"a": X, "b": key})
        assert [each.lane for each in Budgets(real_redis, KEYS).of(["t"], 1)] == [lane]


def test_one_that_does_not_lead_any_more_saves_nothing(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    sharing = LaneSharing(
        Scopes(real_redis, d.keys), Settings.model_validate({"connections": named("ONE")}).connections
    )
    with pytest.raises(NotLeader):
        sharing.look([], list, Moment(d.epoch + 1, 0, d.now_ms, d.now_ms))
    assert Scopes(real_redis, d.keys).read() == {}


WORKER = """
import asyncio, json, sys
from redis.asyncio import Redis
from fairlane.config.loader import load_secrets
from fairlane.config.settings import Settings
from fairlane.store.keys import Keys
from fairlane.store.write.workers import WorkerInfo, Workers
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.upkeep.credentials import CredentialReports
async def main():
    keys, settings = Keys("test"), Settings.model_validate(json.loads(sys.argv[3]))
    async with Redis.from_url(sys.argv[1]) as redis:
        batcher = Batcher(redis)
        held = {}
        await CredentialReports(batcher, keys, load_secrets(settings), {}, held.update).look()
        info = WorkerInfo(sys.argv[2], 5, (), "1", 1, "box", 0, credentials=held)
        await batcher.send(Workers(keys).beat(sys.argv[2], info, [], 1000, changed=True))
asyncio.run(main())
"""
SCHEDULER = """
import json, sys
from unittest.mock import Mock
from redis import Redis
from fairlane.core.clock import SystemClock
from fairlane.config.settings import Settings
from fairlane_scheduler.service import Scheduler
settings = Settings.model_validate(json.loads(sys.argv[3]))
with Redis.from_url(sys.argv[1]) as redis:
    Scheduler(redis, settings, SystemClock(), sys.argv[2], Mock()).tick()
"""


@pytest.mark.slow
def test_workers_and_schedulers_in_other_processes_agree(real_redis: Redis) -> None:
    settings = {
        "redis": {"deployment": "test"},
        "connections": named("ONE", "TWO", "THREE"),
        "scheduler": {"worker_timeout_seconds": 600},  # each process takes seconds to start
    }
    where = real_redis.connection_pool.connection_kwargs
    url = f"unix://{where['path']}?db={where.get('db') or 0}"
    environment = {"PYTHONPATH": "shared:scheduler:workers", "ONE": "sk-1", "TWO": "sk-1", "THREE": "sk-3"}

    def run(program: str, name: str, seed: str) -> None:
        subprocess.run(
            [sys.executable, "-c", program, url, name, json.dumps(settings)],
            env=environment | {"PYTHONHASHSEED": seed},
            check=True,
            timeout=60,
        )

    run(WORKER, "w1", "0")
    run(WORKER, "w2", "random")
    beats = [beat.info.credentials for beat in Workers(KEYS).beats(real_redis)]
    assert beats[0] == beats[1]
    assert len(set(beats[0].values())) == 2
    assert all(len(shown) == 12 for shown in beats[0].values())
    seen = set()
    for name, seed in (("s1", "1"), ("s2", "random")):
        real_redis.hset(KEYS.leader, "until_ms", "0")
        real_redis.delete(*([KEYS.scopes] if name == "s1" else []), KEYS.catalog)
        run(SCHEDULER, name, seed)
        directory = LaneDirectory.read(real_redis, KEYS)
        seen.add(tuple(directory.lane_of(f"{connection}:m") for connection in "abc"))
    assert seen == {("a:m", "a:m", "c:m")}
    assert not any(b"sk-1" in real_redis.dump(key) for key in real_redis.scan_iter())
