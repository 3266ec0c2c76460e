"""The doctor's checks: each thing that can be wrong with a deployment has its finding and its remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairlane.cli.lanes.lane_views import LaneReport
from fairlane.cli.operate.checks import check_keys, check_leader, check_workers, counts, examine
from fairlane.cli.operate.findings import BrokerView, Clocks, Finding, Grade, Seen, Unmoved
from fairlane.cli.operate.server_checks import check_archive, check_clocks, check_server
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.model.lane import LaneLimits
from fairlane.store.connection.server_states import Refusal
from fairlane.store.read.overview import LeaderView, ServerView
from fairlane.store.write.lanes.lane_view import Hold
from fairlane.store.write.leases import Untaken
from fairlane.store.write.workers import Beat, WorkerInfo
from tests.support.idle_lane import IDLE

NOW = 1_700_000_000_000
MIB = 2**20
SOUND = ServerView(
    program="Redis",
    version="7.2.4",
    append_only=True,
    append_failed=False,
    replica=False,
    eviction="noeviction",
    memory_used=MIB,
    memory_limit=0,
)
REFUSES = Refusal("Redis has fewer replicas than its min-replicas-to-write", "Start its replicas")
SETTINGS = Settings.model_validate(
    {
        "connections": {
            "sim": {"protocol": "openai", "base_url": "http://x/v1"},
            "openai": {"protocol": "openai", "base_url": "https://x/v1", "api_key_env": "OPENAI_API_KEY"},
        }
    }
)


def worker(name: str = "w1", beat_ms: int = NOW, **changes: Any) -> Beat:
    known: dict[str, Any] = {"slots": 20, "lanes": ("sim:fast",), "version": "1.0", "pid": 1, "busy": 0}
    return Beat(name, beat_ms, WorkerInfo(**{"name": name, "host": "box", "started_ms": 0} | known | changes))


def lane(queued: int = 0, **changes: Any) -> LaneReport:
    return LaneReport(replace(IDLE, **changes), queued)


WELL = Seen(
    settings=SETTINGS,
    secrets=WorkerSecrets.model_validate({"keys": {"openai": "k"}}),
    version="1.0",
    server=SOUND,
    clocks=Clocks(NOW, NOW, 1),
    leader=LeaderView("scheduler-1", 3, NOW + 1000),
    beats=(worker(),),
    catalog=frozenset({"sim", "openai"}),
    lanes=(lane(),),
)


def troubles(**changes: Any) -> list[Finding]:
    """What is not ok with a deployment that is well but for ``changes``."""
    return [finding for finding in examine(replace(WELL, **changes)) if finding.grade is not Grade.OK]


def trouble(**changes: Any) -> Finding:
    (finding,) = troubles(**changes)
    assert finding.remedy, "a finding says what to do"
    return finding


def test_messages_that_live_workers_do_not_take_are_a_failure() -> None:
    untaken = (Untaken("sim:fast", 30, NOW - 7000),)
    found = trouble(untaken=untaken)
    assert (found.check, found.grade) == ("messages", Grade.FAIL)
    assert "30 calls, the first sent 7 s ago" in found.detail
    assert "celery.broker_url" in found.remedy
    checks = {each.check for each in troubles(untaken=untaken, beats=())}
    assert "messages" not in checks, "where no worker lives, that is the finding"


def test_a_healthy_deployment_has_no_failed_check() -> None:
    assert troubles() == []
    assert {finding.check for finding in examine(WELL)} >= {"scheduler", "workers", "connections", "lanes"}


@pytest.mark.parametrize(
    ("server", "check", "grade"),
    [
        (None, "redis version", Grade.WARN),
        (replace(SOUND, version="6.0.20"), "redis version", Grade.FAIL),
        (replace(SOUND, replica=True), "redis role", Grade.FAIL),
        (replace(SOUND, refused=REFUSES), "redis writes", Grade.FAIL),
        (replace(SOUND, append_only=False), "redis persistence", Grade.WARN),
        (replace(SOUND, append_failed=True), "redis persistence", Grade.FAIL),
        (replace(SOUND, eviction="allkeys-lru", memory_limit=9 * MIB), "redis memory", Grade.FAIL),
        (replace(SOUND, eviction="allkeys-lru"), "redis memory", Grade.WARN),
        (replace(SOUND, memory_used=9 * MIB, memory_limit=10 * MIB), "redis memory", Grade.WARN),
        (replace(SOUND, memory_used=11 * MIB, memory_limit=10 * MIB), "redis memory", Grade.FAIL),
    ],
)
def test_problems_of_the_server_are_found(server: ServerView | None, check: str, grade: Grade) -> None:
    found = trouble(server=server)
    assert (found.check, found.grade) == (check, grade)


@pytest.mark.parametrize("version", ["6.2.0", "7.0", "8.2.1", "6.2.14-rc1"])
def test_redis_is_recent_enough_from_6_2_on(version: str) -> None:
    assert next(iter(check_server(replace(SOUND, version=version)))).grade is Grade.OK


@pytest.mark.parametrize(
    ("frees_in_background", "grades"), [(True, [Grade.OK]), (False, [Grade.WARN]), (None, [])]
)
def test_a_server_that_frees_expired_runs_itself_is_to_be_set(
    frees_in_background: bool | None, grades: list[Grade]
) -> None:
    found = [
        each
        for each in examine(replace(WELL, frees_in_background=frees_in_background))
        if each.check == "redis expiry"
    ]
    assert [each.grade for each in found] == grades
    assert all("lazyfree-lazy-expire yes" in each.remedy for each in found if each.grade is Grade.WARN)


def test_valkey_counts_by_its_own_numbers() -> None:
    found = next(iter(check_server(replace(SOUND, program="Valkey", version="8.0"))))
    assert (found.grade, found.detail) == (Grade.OK, "Valkey 8.0")


@pytest.mark.parametrize(
    ("here_ms", "detail"),
    [
        (NOW + 90_000, "this machine is 1 min ahead of Redis"),
        (NOW - 5000, "this machine is 4 s behind Redis"),
    ],
)
def test_clocks_apart_are_reported_with_their_direction(here_ms: int, detail: str) -> None:
    found = trouble(clocks=Clocks(here_ms, NOW, 10))
    assert (found.check, found.grade, found.detail) == ("clock", Grade.WARN, detail)


def test_what_a_slow_answer_took_is_no_difference_of_clocks() -> None:
    assert check_clocks(Clocks(NOW + 3000, NOW, 3000)).grade is Grade.OK


def test_without_a_leader_nothing_starts() -> None:
    assert trouble(leader=None).grade is Grade.FAIL
    lapsed = check_leader(LeaderView("scheduler-1", 3, NOW - 65_000), NOW)
    assert (lapsed.grade, lapsed.detail) == (
        Grade.FAIL,
        "none has led for 1 min; the last was scheduler-1",
    )
    resigned = check_leader(LeaderView("scheduler-1", 3, 0), NOW)
    assert resigned.detail == "none has led; the last was scheduler-1"


def test_where_redis_is_full_the_remedy_of_silent_roles_is_redis() -> None:
    full = replace(SOUND, memory_used=11 * MIB, memory_limit=10 * MIB)
    found = troubles(server=full, leader=None, beats=())
    by_check = {each.check: each for each in found}
    assert "Redis is full" in by_check["redis memory"].detail
    assert "Redis is full" in by_check["scheduler"].remedy
    assert "Redis is full" in by_check["workers"].remedy
    assert not any("Start one" in each.remedy for each in found)


def test_without_workers_nothing_is_called() -> None:
    assert (trouble(beats=()).check, trouble(beats=()).grade) == ("workers", Grade.FAIL)


def test_a_silent_worker_is_reported_beside_those_that_live() -> None:
    found = trouble(beats=(worker(), worker("w2", NOW - 30_000)))
    assert (found.grade, found.detail) == (Grade.WARN, "w2 on box has been silent for 30 s")


def test_workers_that_were_all_drained_are_reported_as_such() -> None:
    found = trouble(beats=(worker(stopping=True, draining=True), worker("w2", stopping=True, draining=True)))
    assert (found.check, found.grade) == ("workers", Grade.FAIL)
    assert "2 drained or draining" in found.detail
    assert "--undo" in found.remedy


def test_workers_without_a_free_slot_are_reported() -> None:
    assert trouble(beats=(worker(busy=20),)).detail == "1 alive, 0 of 20 slots free"


@pytest.mark.parametrize(("queued", "grade"), [(0, Grade.WARN), (7, Grade.FAIL)])
def test_a_lane_without_a_worker_fails_if_jobs_wait(queued: int, grade: Grade) -> None:
    found = trouble(lanes=(lane(), lane(queued, lane="sim:slow")))
    assert found.grade is grade
    assert "none serves sim:slow" in found.detail


@pytest.mark.parametrize(
    ("more", "problem", "remedy"),
    [
        ({"connections": ("sim",)}, "none has a connection 'hand'", "Add it to the workers' settings"),
        ({"unusable": {"hand": "no CA"}}, "cannot use hand: no CA", "Correct that where the worker runs"),
        ({}, "where 7 jobs wait", "--lanes"),
        ({"connections": ("sim", "hand")}, "where 7 jobs wait", "--lanes"),
    ],
)
def test_a_lane_without_a_worker_is_reported_with_what_workers_lack(
    more: dict[str, Any], problem: str, remedy: str
) -> None:
    seen = replace(WELL, beats=(worker(**more),), lanes=(lane(), lane(7, lane="hand:a")))
    found = [each for each in check_workers(seen) if "none serves" in each.detail]
    assert [(each.grade, problem in each.detail, remedy in each.remedy) for each in found] == [
        (Grade.FAIL, True, True)
    ]


def test_workers_of_another_version_are_reported() -> None:
    assert trouble(beats=(worker(), worker("w2", version="0.9"))).detail == "some run 0.9, this is 1.0"


def test_without_connections_nothing_can_be_called() -> None:
    found = trouble(settings=Settings(), secrets=WorkerSecrets(), catalog=frozenset())
    assert (found.check, found.grade) == ("connections", Grade.FAIL)


def test_connections_of_the_scheduler_are_enough() -> None:
    assert troubles(settings=Settings(), secrets=WorkerSecrets()) == []


def test_a_connection_that_the_scheduler_does_not_know_is_reported() -> None:
    assert trouble(catalog=frozenset({"sim"})).detail == "the scheduler does not know openai"


def test_a_key_that_is_not_here_is_a_warning_since_only_workers_need_it() -> None:
    missing = WorkerSecrets.model_validate({"missing": {"openai": "OPENAI_API_KEY"}})
    found = trouble(secrets=missing)
    assert (found.grade, found.detail) == (Grade.WARN, "openai: OPENAI_API_KEY is not set here")
    assert "Only workers" in found.remedy


@pytest.mark.parametrize(
    ("changes", "grade"),
    [
        ({"shut": Hold("parked"), "parked": "no quota"}, Grade.FAIL),
        ({"shut": Hold("paused")}, Grade.WARN),
        ({"shut": Hold("probing")}, Grade.WARN),
        ({"shut": Hold("circuit", NOW + 1000)}, Grade.WARN),
    ],
)
def test_a_parked_or_paused_lane_or_an_open_circuit_is_reported(
    changes: dict[str, Any], grade: Grade
) -> None:
    found = trouble(lanes=(lane(**changes),))
    assert (found.check, found.grade) == ("lanes", grade)
    assert "sim:fast" in found.detail


def test_a_lane_that_merely_waits_for_its_rate_is_well() -> None:
    assert troubles(lanes=(lane(5, reason="requests"), lane(blocked_until_ms=NOW + 1000))) == []


def test_a_broker_of_its_own_has_to_answer() -> None:
    assert troubles(broker=BrokerView(summary="RabbitMQ 4.1.0, quorum queues")) == []
    found = trouble(broker=BrokerView(problem="it does not answer: refused"))
    assert (found.check, found.grade) == ("broker", Grade.FAIL)
    assert "celery.broker_url" in found.remedy


def test_findings_are_counted_by_grade() -> None:
    findings = [Finding("a", Grade.OK, ""), Finding("b", Grade.OK, ""), Finding("c", Grade.FAIL, "")]
    assert counts(findings) == {Grade.OK: 2, Grade.WARN: 0, Grade.FAIL: 1}


def test_workers_that_hold_other_keys_for_a_connection_are_reported_by_fingerprint() -> None:
    old, new = ({"openai": digit * 12} for digit in "01")
    found = trouble(beats=(worker(credentials=old), worker("w2", credentials=new)))
    assert (found.check, found.grade) == ("keys", Grade.WARN)
    assert found.detail.endswith(f"key of openai, by fingerprint: {'0' * 12} (w1); {'1' * 12} (w2)")
    assert troubles(beats=(worker(credentials=old), worker("w2", credentials=old))) == []


@pytest.mark.parametrize(
    ("place", "remedy"),
    [
        ({"api_key_env": "K"}, "Set the variable K where workers start, and restart them."),
        (
            {"api_key_file": "/k"},
            "Put the key into the file /k where workers run, and let their user read it.",
        ),
        ({"api_key_command": ["az", "x"]}, "Run the program az by hand where workers run"),
    ],
)
def test_a_key_that_no_worker_has_is_reported_with_the_remedy_of_its_place(
    place: dict[str, Any], remedy: str
) -> None:
    settings = Settings.model_validate(
        {"connections": {"openai": {"protocol": "openai", "base_url": "http://x/v1", **place}}}
    )
    seen = {"settings": settings, "secrets": WorkerSecrets()}
    both = ("sim", "openai")
    found = trouble(**seen, beats=(worker(connections=both), worker("w2", connections=both)))
    assert (found.check, found.grade) == ("keys", Grade.WARN)
    assert "no worker has the key of openai" in found.detail
    assert found.remedy.startswith(remedy)
    held = worker("w2", connections=both, credentials={"openai": "0" * 12})
    assert troubles(**seen, beats=(held,)) == []
    for silent in (worker(version="0.9", connections=both), worker()):
        assert not [each for each in troubles(**seen, beats=(silent,)) if each.check == "keys"]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"api_key_env": "K"}, "Give workers a new key"),
        ({"api_key_file": "/k"}, "the file /k"),
        ({"api_key_command": ["az", "x"]}, "the program az"),
    ],
)
def test_the_remedy_of_a_parked_lane_names_the_place_of_its_key(place: dict[str, Any], said: str) -> None:
    known = {"protocol": "openai", "base_url": "http://x/v1", **place}
    settings = Settings.model_validate({"connections": {"sim": known}})
    shut = lane(shut=Hold("parked"), parked="no key")
    (found,) = [each for each in troubles(settings=settings, lanes=(shut,)) if each.check == "lanes"]
    assert found.remedy.startswith(said) or said in found.remedy
    assert "`fairlane lanes resume sim:fast`" in found.remedy


def test_a_worker_that_lacks_a_key_is_reported() -> None:
    found = trouble(beats=(worker(credentials={"openai": "0" * 12}), worker("w2")))
    assert "none (w2)" in found.detail


@pytest.mark.parametrize(
    ("tables", "counts", "overruled"),
    [
        (("openai:m", "sim:m"), "sim:m", ["openai:m"]),
        (("openai:m",), "openai:m", []),
    ],
)
def test_the_table_that_applies_to_a_shared_lane_is_reported(
    tables: tuple[str, ...], counts: str, overruled: list[str]
) -> None:
    settings = SETTINGS.model_copy(update={"lanes": dict.fromkeys(tables, LaneLimits())})
    found = [
        each
        for each in examine(replace(WELL, settings=settings, carriers={"openai:m": "sim:m"}))
        if each.check == "limits"
    ]
    assert [each.grade for each in found] == [Grade.WARN if overruled else Grade.OK]
    assert f"[lanes.{counts!r}] applies" in found[0].detail


def test_a_worker_with_too_few_files_for_its_slots_is_reported() -> None:
    beat = worker(shortage="64 open files are allowed, enough for 8 of 100 slots")

    (finding,) = [each for each in examine(replace(WELL, beats=(beat,))) if "open files" in each.detail]

    assert (finding.check, finding.grade) == ("workers", Grade.WARN)
    assert "ulimit -n" in finding.remedy


def test_a_connection_that_a_worker_cannot_use_is_a_failure_with_its_reason() -> None:
    beat = worker(unusable={"sim": "ca_file: cannot be read"})

    (finding,) = [each for each in examine(replace(WELL, beats=(beat,))) if "cannot use" in each.detail]

    assert (finding.grade, finding.detail) == (Grade.FAIL, "w1 cannot use sim: ca_file: cannot be read")


@pytest.mark.parametrize(
    ("clients", "most", "warned"), [(81, 100, True), (80, 100, False), (5, 0, False), (0, 0, False)]
)
def test_connections_are_compared_with_the_most_that_the_server_takes(
    clients: int, most: int, warned: bool
) -> None:
    found = list(check_server(replace(SOUND, clients=clients, most_clients=most)))
    crowded = [each for each in found if each.check == "redis connections"]
    assert len(crowded) == warned
    if warned:
        assert crowded[0].grade is Grade.WARN
        assert "81 of the 100 connections" in crowded[0].detail


@pytest.mark.parametrize(
    ("unmoved", "grade", "words"),
    [
        (None, None, ""),
        (Unmoved(0, 0), Grade.OK, "it answers; no finished run"),
        (Unmoved(0, 0, due=3), Grade.OK, "it answers; 3 finished runs are about to be moved"),
        (Unmoved(0, 0, due=1), Grade.OK, "1 finished run is about to be moved"),
        (Unmoved(0, 0, due=3, problem="no route"), Grade.WARN, "cannot be read from here: no route"),
        (
            Unmoved(12, NOW - 3 * 3_600_000),
            Grade.FAIL,
            "12 finished runs wait to be moved; the first ended 3 h",
        ),
    ],
)
def test_runs_that_do_not_get_into_the_archive_are_a_failure(
    unmoved: Unmoved | None, grade: Grade | None, words: str
) -> None:
    found = list(check_archive(unmoved, NOW))
    assert [each.grade for each in found] == ([] if grade is None else [grade])
    assert all(words in each.detail for each in found)


def test_connections_that_only_workers_or_only_the_scheduler_have_are_named() -> None:
    held = {"openai": "0" * 12}
    for connections, known, words in (
        (
            ("sim", "openai", "new"),
            {"sim", "openai"},
            "workers have new, and the scheduler that leads does not",
        ),
        (("sim",), {"sim", "openai"}, "no live worker has openai"),
    ):
        found = trouble(beats=(worker(connections=connections, credentials=held),), catalog=frozenset(known))
        assert (found.check, found.grade) == ("connections", Grade.WARN)
        assert words in found.detail


def test_a_worker_that_does_not_report_its_connections_says_nothing_about_them() -> None:
    beats = (worker(connections=("sim",)), worker("w2"))
    assert troubles(beats=beats, catalog=frozenset({"sim", "openai"})) == []


@pytest.mark.parametrize("there", [True, False])
def test_a_key_in_a_file_is_here_or_not(there: bool) -> None:
    given = {"protocol": "openai", "base_url": "http://x/v1", "api_key_file": "/run/secrets/k"}
    settings = Settings.model_validate({"connections": {"sim": given}})
    secrets = WorkerSecrets.model_validate({"missing": {} if there else {"sim": "/run/secrets/k"}})
    (found,) = check_keys(settings, secrets)
    assert found.grade is (Grade.OK if there else Grade.WARN)
    assert found.detail == f"sim: /run/secrets/k {'is here' if there else 'cannot be read here'}"
