"""``fairlane drain``: who is meant, what each is asked, and when waiting is over."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from fairlane.cli.operate.drain import (
    Drained,
    choose,
)
from fairlane.core.errors import ConfigurationError, WorkerNotFound
from fairlane.store.write.workers import Beat, WorkerInfo
from tests.support.command_line import CommandLine

SILENT_MS = 5000


def info(name: str = "w1@a", **changes: Any) -> WorkerInfo:
    known: dict[str, Any] = {"slots": 5, "lanes": ("sim:fast",), "version": "1", "pid": 1, "started_ms": 0}
    return WorkerInfo(name=name, **{"host": name.partition("@")[2]} | known | changes)


def beats() -> list[Beat]:
    return [Beat(f"id{number}", 0, info(name)) for number, name in enumerate(("w1@a", "w2@a", "w3@b"))]


@pytest.fixture
def cli(real_redis: Redis) -> CommandLine:
    cli = CommandLine(real_redis)
    for beat in beats():
        cli.stage.deployment.workers.beat(beat.worker, beat.info, [], 1000, changed=True).run(real_redis)
    return cli


def chosen(*names: str, host: str | None = None, everyone: bool = False) -> list[str]:
    return [beat.info.name for beat in choose(beats(), names, host, everyone=everyone)]


def test_workers_are_meant_by_name_pattern_id_host_or_all() -> None:
    assert chosen("w2@a") == ["w2@a"]
    assert chosen("w*@a") == ["w1@a", "w2@a"]
    assert chosen("id2") == ["w3@b"]
    assert chosen(host="a") == ["w1@a", "w2@a"]
    assert chosen("w3@b", host="a") == chosen(everyone=True) == ["w1@a", "w2@a", "w3@b"]


def test_workers_of_two_machines_with_one_name_differ_by_their_host() -> None:
    """As those of ``fairlane up`` and of ``fairlane up --join`` on another machine are."""
    both = [Beat(f"id{host}", 0, info("worker-1", host=host)) for host in "ab"]
    assert [beat.info.host for beat in choose(both, ["worker-1@b"], None, everyone=False)] == ["b"]
    assert [beat.info.host for beat in choose(both, ["*@a"], None, everyone=False)] == ["a"]
    assert len(choose(both, ["worker-1"], None, everyone=False)) == 2


def test_a_name_is_meant_as_it_is_listed_also_where_it_is_no_pattern_of_itself() -> None:
    odd = [Beat("id", 0, info("w[1]", host="h"))]
    assert choose(odd, ["w[1]"], None, everyone=False) == choose(odd, ["w[1]@h"], None, everyone=False) == odd


@pytest.mark.parametrize(("names", "host"), [(["w9"], None), (["w1@a", "w9"], None), ([], "c")])
def test_an_unknown_worker_is_an_error_and_no_worker_is_asked(names: list[str], host: str | None) -> None:
    with pytest.raises(WorkerNotFound, match="w1@a, w2@a, w3@b"):
        choose(beats(), names, host, everyone=False)


def test_without_a_selection_no_worker_is_asked(cli: CommandLine) -> None:
    with pytest.raises(ConfigurationError, match="--host or --all"):
        choose(beats(), [], None, everyone=False)
    assert "--all" in cli.refused("drain", code=2)


@pytest.mark.parametrize(("options", "wish"), [((), b"idle"), (("--stop",), b"stop"), (("--undo",), b"work")])
def test_exactly_the_selected_workers_are_asked(
    cli: CommandLine, options: tuple[str, ...], wish: bytes
) -> None:
    result = cli("drain", "--host", "a", *options)
    assert result.exit_code == 0
    assert "w1@a" in result.stderr
    assert "w3@b" not in result.stderr
    asked = cli.stage.redis.hgetall(cli.stage.keys.drains)
    assert asked == {b"id0": wish, b"id1": wish}


def test_what_operators_ask_is_in_the_audit_log(cli: CommandLine) -> None:
    cli("drain", "w1@a")
    (entry,) = [line for line in cli.out("audit").splitlines() if "worker_asked" in line]
    assert "id0" in entry
    assert "request=idle" in entry


def test_undoing_goes_with_neither_stopping_nor_waiting(cli: CommandLine) -> None:
    assert "--undo" in cli.refused("drain", "--all", "--undo", "--stop", code=2)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"stopping": True, "draining": True, "busy": 1}, "draining"),
        ({"stopping": True, "draining": True, "drained": True}, "drained"),
        ({"stopping": True}, "stopping"),
    ],
)
def test_workers_shows_how_far_it_is(cli: CommandLine, changes: dict[str, Any], state: str) -> None:
    call = cli.stage.deployment.workers.beat("id0", info(**changes), [], 1000, changed=True)
    call.run(cli.stage.redis)
    assert [document["state"] for document in cli.json("workers")] == [state, "alive", "alive"]


class Watched:
    """Three workers that were asked to drain, and the lines about them."""

    def __init__(self) -> None:
        self.announced: list[str] = []
        self.progress = Drained(beats(), SILENT_MS, self.announced.append)

    def look(self, now_ms: int = 0, **states: dict[str, Any] | None) -> bool:
        """One look at the workers in this state; one that is ``None`` has left."""
        seen = []
        for beat in beats():
            changes = states.get(beat.worker, {})
            if changes is not None:
                beat_ms = changes.pop("beat_ms", now_ms)
                seen.append(Beat(beat.worker, beat_ms, info(beat.info.name, **changes)))
        return self.progress.look(seen, now_ms)


def test_waiting_ends_when_all_are_idle_gone_or_silent() -> None:
    watched, idle = Watched(), {"stopping": True, "draining": True, "drained": True}
    assert not watched.look(0)
    assert not watched.look(100, id0=dict(idle))
    assert not watched.look(200, id0=dict(idle), id1=None)
    assert watched.look(9000, id0=dict(idle), id1=None, id2={"beat_ms": 100})
    assert watched.announced == ["w1@a is drained", "w2@a is gone", "w3@b is silent"]


def test_one_that_does_not_listen_is_reported_once() -> None:
    watched = Watched()
    for now_ms in (0, 4000, 6000, 9000):
        assert not watched.look(now_ms, id0=None, id1=None)
    assert watched.announced[2:] == [
        "w3@b does not respond: it may be of an earlier version, which SIGTERM stops"
    ]
