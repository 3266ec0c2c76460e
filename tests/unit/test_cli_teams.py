"""``fairlane teams``: a way in for each team, that can be changed while its clients run, and taken away."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, ConnectionError, NoPermissionError

from fairlane.core.errors import ConfigurationError
from fairlane.store.keys import Keys
from fairlane.store.write.acl import Users, url_of
from fairlane.store.write.audit import AuditLog
from fairlane.store.write.registry import Registry
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.servers

KEYS = Keys("test")


@pytest.fixture
def fairlane(real_redis: Redis) -> Iterator[CommandLine]:
    yield CommandLine(real_redis)
    for user in ("search", "search.dashboard", "ads"):
        Users(real_redis).remove(f"fairlane.test.{user}")


def opened(url: str) -> Any:
    return Redis.from_url(url.strip())


def rights(redis: Redis, team: str) -> dict[Any, Any]:
    """What the server lets a team's user do, whatever its password is."""
    user = dict(redis.acl_getuser(f"fairlane.test.{team}"))
    return {field: value for field, value in user.items() if field != "passwords"}


def _weights(redis: Redis) -> dict[str, float]:
    return {team: record.weight for team, record in Registry(redis, KEYS).all().items()}


def test_an_added_team_gets_a_url_that_opens_its_own_keys(fairlane: CommandLine, real_redis: Redis) -> None:
    result = fairlane("teams", "add", "search", "--weight", "3")
    assert result.exit_code == 0
    assert "team search has the weight 3" in result.stderr
    assert "default user needs no password" in result.stderr
    with opened(result.stdout) as client:
        client.rpush(KEYS.inbox("search"), "x")
        with pytest.raises(NoPermissionError):
            client.rpush(KEYS.inbox("ads"), "x")
    assert _weights(real_redis) == {"search": 3.0}


def test_adding_again_changes_the_weight_and_no_password(fairlane: CommandLine, real_redis: Redis) -> None:
    url = fairlane.out("teams", "add", "search")
    again = fairlane("teams", "add", "search", "--weight", "2")
    assert again.stdout == ""
    assert fairlane("teams", "add", "search").exit_code == 0
    assert _weights(real_redis) == {"search": 2.0}
    with opened(url) as client:
        assert client.ping()


def test_both_passwords_work_until_the_rotation_is_finished(fairlane: CommandLine) -> None:
    old = opened(fairlane.out("teams", "add", "search"))
    old.ping()
    fresh = fairlane.out("teams", "rotate", "search")
    assert fairlane.json("teams", "list")[0]["passwords"] == 2
    assert old.ping()
    assert opened(fresh).ping()
    assert "has two passwords already" in fairlane.refused("teams", "rotate", "search", code=2)

    assert "1 older password is removed" in fairlane("teams", "rotate", "search", "--finish").stderr

    with pytest.raises((AuthenticationError, ConnectionError)):
        old.ping()
    assert opened(fresh).ping()


def test_a_removed_teams_clients_are_out(fairlane: CommandLine, real_redis: Redis) -> None:
    client = opened(fairlane.out("teams", "add", "search"))
    client.ping()
    fairlane.out("teams", "dashboard", "search")
    fairlane.out("teams", "remove", "search")
    with pytest.raises((AuthenticationError, ConnectionError)):
        client.ping()
    assert Registry(real_redis, KEYS).all() == {}
    assert "was not added as a team" in fairlane.refused("teams", "remove", "search", code=2)


def test_a_dashboard_reads_a_teams_runs_and_changes_nothing(fairlane: CommandLine) -> None:
    run = fairlane.completed()
    with opened(fairlane.out("teams", "dashboard", "search")) as client:
        stage = fairlane.stage
        reading = stage.client_through(client, "search")
        assert reading.run(run).status().state == "completed"
        assert len(list(reading.run(run).results())) == 5
        with pytest.raises(NoPermissionError):
            client.rpush(KEYS.inbox("search"), "x")
    assert "has a dashboard user already" in fairlane.refused("teams", "dashboard", "search", code=2)


def test_the_printed_rules_make_the_same_user(fairlane: CommandLine, real_redis: Redis) -> None:
    printed = fairlane.out("teams", "add", "ads", "--print")
    assert not Users(real_redis).exists("fairlane.test.ads")
    real_redis.execute_command(*shlex.split(printed))
    by_print = rights(real_redis, "ads")
    Users(real_redis).remove("fairlane.test.ads")
    fairlane.out("teams", "add", "ads")
    assert by_print == rights(real_redis, "ads")
    assert Registry(real_redis, KEYS).get("ads") is not None


def test_teams_are_listed_with_their_users(fairlane: CommandLine) -> None:
    assert fairlane.json("teams", "list") == []
    fairlane.out("teams", "add", "search", "--weight", "3")
    listed = fairlane.json("teams", "list")
    assert [(t["team"], t["weight"], t["passwords"], t["dashboard"]) for t in listed] == [
        ("search", 3.0, 1, False)
    ]
    assert "search" in fairlane.out("teams", "list")


@pytest.mark.parametrize("name", ["a/b", "a b", "x" * 65, "a*", "ä"])
def test_a_name_that_no_team_has_is_refused(fairlane: CommandLine, name: str) -> None:
    assert "is no team's name" in fairlane.refused("teams", "add", name, code=2)


def test_a_password_is_neither_stored_nor_logged(fairlane: CommandLine, real_redis: Redis) -> None:
    url = fairlane.out("teams", "add", "search")
    password = url.split(":")[2].split("@")[0]
    assert all(password not in str(entry) for entry in AuditLog(real_redis, KEYS).since())
    assert password not in str(real_redis.hvals(KEYS.registry))
    assert len(password) >= 40


def test_what_operators_do_to_teams_is_in_the_log(fairlane: CommandLine, real_redis: Redis) -> None:
    fairlane.out("teams", "add", "search")
    fairlane.out("teams", "rotate", "search")
    fairlane.out("teams", "remove", "search")
    acts = [entry.act for entry in AuditLog(real_redis, KEYS).since() if entry.team == "search"]
    assert acts[-3:] == ["team_added", "team_rotated", "team_removed"]


class Old:
    """A server that is older than selectors."""

    def info(self, _section: str) -> dict[str, str]:
        return {"redis_version": "6.2.14"}


def test_a_server_without_selectors_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"7\.0 or later.*Upgrade the server"):
        Users(Old()).require_selectors()


def test_a_user_without_the_right_to_add_users_is_pointed_to_print(
    fairlane: CommandLine, real_redis: Redis
) -> None:
    url = fairlane.out("teams", "add", "search")
    with opened(url) as client, pytest.raises(ConfigurationError, match="--print"):
        Users(client).passwords("default")


@pytest.mark.parametrize(
    ("url", "made"),
    [
        ("redis://h:1/2", "redis://u:p@h:1/2"),
        ("rediss://admin:old@h/0?ssl_ca_certs=/ca", "rediss://u:p@h/0?ssl_ca_certs=/ca"),
        ("unix:///run/redis.sock?db=1", "unix://u:p@/run/redis.sock?db=1"),
    ],
)
def test_a_teams_url_leads_to_the_same_place(url: str, made: str) -> None:
    assert url_of(url, "u", "p") == made


def test_bounds_of_a_share_are_set_and_taken_back(fairlane: CommandLine, real_redis: Redis) -> None:
    fairlane("teams", "add", "search", "--weight", "3", "--lendable", "50", "--max", "40%")
    again = fairlane("teams", "add", "search", "--borrowing-limit", "20", "--max", "none")
    assert "weight 3, lends 50 %, borrows at most 20 %" in again.stderr
    (team,) = fairlane.json("teams", "list", "--json")
    assert (team["lendable_percent"], team["borrowing_limit_percent"], team["max_percent"]) == (50, 20, None)
    *_, second = AuditLog(real_redis, KEYS).since()
    assert second.detail["borrowing_limit_percent"] == 20


@pytest.mark.parametrize(
    ("option", "value", "shown"),
    [
        ("--lendable", "101", "Give 0 to 100"),
        ("--borrowing-limit", "-1", "Give 0 or more"),
        ("--max", "0", "is out of range (got 0.0). Give more than 0"),
        ("--max", "much", "is no percentage (got 'much'). Give more"),
        ("--max", "nan", "is out of range"),
    ],
)
def test_a_bound_of_a_share_that_makes_no_sense_is_refused(
    fairlane: CommandLine, real_redis: Redis, option: str, value: str, shown: str
) -> None:
    result = fairlane("teams", "add", "search", option, value)
    assert result.exit_code != 0
    assert option in result.stderr
    assert shown in " ".join(result.stderr.split())
    assert not real_redis.exists(KEYS.registry)
