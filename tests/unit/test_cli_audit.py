"""``fairlane audit`` tells who changed what, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from fairlane.store.keys import Keys
from fairlane.store.write.audit import PAGE, Act, AuditLog, Auditor, operator
from tests.support.command_line import CommandLine
from tests.support.documents import ROOT, coded, table

KEYS = Keys("test")


@pytest.fixture
def fairlane(real_redis: Redis) -> CommandLine:
    made = CommandLine(real_redis)
    real_redis.delete(KEYS.audit)  # what has set the stage
    return made


def lines(fairlane: CommandLine, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in fairlane.out("audit", *arguments, "--json").splitlines()]


def brief(fairlane: CommandLine, *arguments: str) -> list[tuple[str, ...]]:
    return [(each["role"], each["who"], each["act"], each["what"]) for each in lines(fairlane, *arguments)]


def test_an_operator_is_recorded_by_user_and_host_and_a_limit_with_its_old_value(
    fairlane: CommandLine,
) -> None:
    fairlane.out("lanes", "set", "sim:fast", "--requests-per-minute", "60")
    fairlane.out("lanes", "set", "sim:fast", "--requests-per-minute", "none", "--max-concurrency", "3")
    fairlane.out("lanes", "pause", "sim:fast")
    fairlane.out("lanes", "resume", "sim:fast")

    acts = [Act.LIMITED, Act.LIMITED, Act.PAUSED, Act.OPENED]
    assert brief(fairlane) == [("operator", operator(), act, "sim:fast") for act in acts]
    shown = fairlane.out("audit").splitlines()
    assert shown[0].endswith("requests_per_minute 0.0 → 60.0")
    assert shown[1].endswith("max_concurrency none → 3, requests_per_minute 60.0 → none")


def test_a_limit_is_reported_as_it_is_set(fairlane: CommandLine) -> None:
    fairlane.out("lanes", "set", "sim:fast", "--burst-seconds", "0.25", "--exact", "true")
    fairlane.out("lanes", "set", "sim:fast", "--burst-seconds", "none", "--exact", "false")
    shown = fairlane.out("audit").splitlines()
    assert shown[0].endswith("burst_seconds none → 0.25, exact none → true")
    assert shown[1].endswith("burst_seconds 0.25 → none, exact true → false")


def test_a_teams_requests_are_recorded_under_its_name(fairlane: CommandLine) -> None:
    run = fairlane.submitted()
    fairlane.out("cancel", run)
    fairlane.stage.admit()
    refused = fairlane.stage.client.submit([{}], "hello", model="sim:fast").id
    fairlane.stage.refuse(refused, "no such connection")

    assert brief(fairlane) == [
        ("team", "search", Act.SUBMITTED, run),
        ("team", "search", Act.CANCELLED, run),
        ("team", "search", Act.REFUSED, refused),
    ]
    assert lines(fairlane)[1]["detail"] == {"unfinished": 5}
    assert lines(fairlane)[2]["detail"] == {"reason": "no such connection"}


def test_only_a_team_is_reported_where_it_is_named(fairlane: CommandLine) -> None:
    run = fairlane.submitted()
    fairlane.out("lanes", "pause", "sim:fast")
    assert len(lines(fairlane)) == 2
    assert [each["what"] for each in lines(fairlane, "--team", "search")] == [run]
    assert lines(fairlane, "--team", "ads") == []


def test_an_age_leaves_out_older_entries(fairlane: CommandLine) -> None:
    now_ms = int(fairlane.stage.redis.time()[0]) * 1000
    for age_ms in (7_200_000, 1_800_000):
        shown = {"role": "team", "who": "a", "act": "run_submitted", "team": "a", "what": str(age_ms)}
        fairlane.stage.redis.xadd(KEYS.audit, {**shown, "detail": "{}"}, id=f"{now_ms - age_ms}-0")
    assert [each["what"] for each in lines(fairlane, "--since", "1h")] == ["1800000"]
    assert [each["what"] for each in lines(fairlane, "--since", "1d")] == ["7200000", "1800000"]
    assert "is no age" in fairlane.refused("audit", "--since", "yesterday", code=2)


def test_follow_prints_new_entries(fairlane: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fairlane.submitted()
    waited = AuditLog.following
    later: list[str] = []

    def happen(log: AuditLog, last: str, wait_ms: int, team: str | None = None) -> Any:
        if later:
            raise KeyboardInterrupt
        later.append(fairlane.submitted())
        return waited(log, last, wait_ms, team)

    monkeypatch.setattr(AuditLog, "following", happen)
    result = fairlane("audit", "--follow", "--json")
    assert [json.loads(line)["what"] for line in result.stdout.splitlines()] == [first, *later]


def test_what_a_team_wrote_does_not_steer_the_terminal(fairlane: CommandLine) -> None:
    Auditor("operator", "ann@host").append(
        fairlane.stage.redis, KEYS, Act.TEAM_ADDED, "a", reason="\x1b[2J\x9b2Jgone\nline"
    )
    shown = fairlane.out("audit")
    assert not {"\x1b", "\x9b"} & set(shown)
    assert len(shown.splitlines()) == 1


def test_a_log_of_many_pages_is_read_to_its_end(real_redis: Redis) -> None:
    auditor, log = Auditor("operator", "ann@host"), AuditLog(real_redis, KEYS)
    for number in range(2 * PAGE + 1):
        auditor.append(real_redis, KEYS, Act.TEAM_ADDED, str(number))
    assert [entry.what for entry in log.since()] == [str(number) for number in range(2 * PAGE + 1)]


def test_the_log_is_trimmed_to_about_its_limit(real_redis: Redis) -> None:
    auditor = Auditor("operator", "ann@host", keep=100)
    for number in range(1000):
        auditor.append(real_redis, KEYS, Act.TEAM_ADDED, str(number))
    assert 100 <= real_redis.xlen(KEYS.audit) < 300
    assert [entry.what for entry in AuditLog(real_redis, KEYS).since()][-1] == "999"


def test_an_empty_log_says_so(fairlane: CommandLine) -> None:
    result = fairlane("audit")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "the audit log has no such entry" in result.stderr


def test_every_act_is_described() -> None:
    rows = table(ROOT / "docs" / "audit.md", "act", "who")
    assert sorted(code for row in rows for code in coded(row["act"])) == sorted(Act)
