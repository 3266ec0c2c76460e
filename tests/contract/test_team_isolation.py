"""A team's user tries every command on every family of keys: its own are open to it, nothing else is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from fairlane import scorer
from fairlane.core.errors import SubmissionError, TargetNotFound
from fairlane.model.run import RunRef
from fairlane.store.verbs import all_scripts, script
from fairlane.store.write.acl import CONNECTING, READING, WRITING, Users, team_access
from fairlane.why.waiting import Waiting
from tests.support.fences import KEYS, Recording, member_of, onlooker_of
from tests.support.stage import JUDGES, TASKS, Stage

OTHER, OWN = RunRef("ads", "r1"), RunRef("search", "r1")
# Teams whose names begin alike are strangers, too.
STRANGERS = [OTHER, RunRef("search-2", "r1"), RunRef("searc", "r1")]

pytestmark = pytest.mark.servers

VERBS = ("lane_view", "queue_view")  # those that a client runs
CALLED = re.compile(r"redis\.call\('(\w+)'")
READABLE = ("catalog", "clock", "lanes", "lane", "limits", "headroom", "history")
FOREIGN = (
    "celery",
    "_kombu.binding.fairlane.lane.sim_fast",
    "fairlane.lane.sim_fast",
    "unacked",
    "other:app",
)

READS: list[tuple[Any, ...]] = [
    ("GET",),
    ("STRLEN",),
    ("GETRANGE", 0, 9),
    ("HGETALL",),
    ("HGET", "f"),
    ("HLEN",),
    ("HSCAN", 0),
    ("LRANGE", 0, 9),
    ("LLEN",),
    ("LINDEX", 0),
    ("SMEMBERS",),
    ("SISMEMBER", "m"),
    ("SRANDMEMBER",),
    ("SSCAN", 0),
    ("ZRANGE", 0, -1),
    ("ZCARD",),
    ("ZSCAN", 0),
    ("ZRANGEBYSCORE", 0, 1),
    ("XRANGE", "-", "+"),
    ("XLEN",),
    ("GETBIT", 0),
    ("BITCOUNT",),
    ("EXISTS",),
    ("TYPE",),
    ("TTL",),
    ("DUMP",),
    ("SORT_RO",),
    ("OBJECT ENCODING",),
    ("MEMORY USAGE",),
]
WRITES: list[tuple[Any, ...]] = [
    ("SET", "v"),
    ("SETNX", "v"),
    ("GETSET", "v"),
    ("GETDEL",),
    ("APPEND", "v"),
    ("INCR",),
    ("SETBIT", 0, 1),
    ("SETRANGE", 0, "v"),
    ("HSET", "f", "v"),
    ("HDEL", "f"),
    ("HINCRBY", "f", 1),
    ("LPUSH", "v"),
    ("RPUSH", "v"),
    ("LPOP",),
    ("RPOP",),
    ("LTRIM", 0, 0),
    ("LREM", 0, "v"),
    ("SADD", "m"),
    ("SREM", "m"),
    ("SPOP",),
    ("ZADD", 1, "m"),
    ("ZREM", "m"),
    ("XADD", "*", "f", "v"),
    ("XTRIM", "MAXLEN", 0),
    ("DEL",),
    ("UNLINK",),
    ("EXPIRE", 1),
    ("PEXPIREAT", 1),
    ("PERSIST",),
    ("RENAME", "x"),
    ("COPY", "x"),
    ("MOVE", 1),
    ("RESTORE", 0, "x"),
    ("PFADD", "x"),
    ("GEOADD", 1, 1, "m"),
    ("SORT",),
]
ADMINISTRATION: list[tuple[Any, ...]] = [
    ("KEYS", "*"),
    ("SCAN", 0),
    ("RANDOMKEY",),
    ("DBSIZE",),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("SELECT", 1),
    ("SWAPDB", 0, 1),
    ("CONFIG", "GET", "*"),
    ("CONFIG", "SET", "maxmemory", "1"),
    ("CONFIG", "REWRITE"),
    ("INFO",),
    ("MONITOR",),
    ("ACL", "LIST"),
    ("ACL", "GETUSER", "default"),
    ("ACL", "SETUSER", "fairlane.test.search", "+@all", "~*"),
    ("ACL", "DELUSER", "default"),
    ("ACL", "SAVE"),
    ("ACL", "LOG"),
    ("ACL", "WHOAMI"),
    ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("CLIENT", "PAUSE", 1),
    ("CLIENT", "NO-EVICT", "on"),
    ("COMMAND",),
    ("DEBUG", "SLEEP", 0),
    ("SAVE",),
    ("BGSAVE",),
    ("BGREWRITEAOF",),
    ("SHUTDOWN", "NOSAVE"),
    ("REPLICAOF", "h", 1),
    ("FAILOVER",),
    ("SYNC",),
    ("PSYNC", "?", -1),
    ("REPLCONF", "x", "y"),
    ("MODULE", "LIST"),
    ("SLOWLOG", "GET"),
    ("LATENCY", "LATEST"),
    ("MEMORY", "STATS"),
    ("CLUSTER", "INFO"),
    ("WAIT", 0, 0),
    ("PUBSUB", "CHANNELS"),
    ("SCRIPT", "LOAD", "return 1"),
    ("SCRIPT", "FLUSH"),
    ("SCRIPT", "KILL"),
    ("FUNCTION", "LIST"),
    ("FUNCTION", "LOAD", "x"),
    ("EVAL", "return 1", 0),
    ("EVAL_RO", "while true do end", 0),
    ("FCALL", "f", 0),
    ("MIGRATE", "h", 1, "k", 0, 1),
]


def families(ref: RunRef) -> dict[str, str]:
    """A key or channel of every family, those of a run or a team being ``ref``'s, by the name in `Keys`."""
    values = {"ref": ref, "team": ref.team, "lane": "sim:fast", "digest": "d1"}
    values |= {"axis": "tokens", "step": "fine"}
    found = {}
    for name in (name for name in dir(KEYS) if not name.startswith("_") and name != "prefix"):
        made = getattr(KEYS, name)
        if callable(made):
            made = made(**{each: values[each] for each in inspect.signature(made).parameters})
        found[name] = made
    return found


def outside() -> dict[str, str]:
    """Every key that is none of the own team's business."""
    own = families(OWN)
    found = {name: key for name, key in own.items() if key == families(OTHER)[name] and name not in READABLE}
    for stranger in STRANGERS:
        theirs = families(stranger)
        found |= {f"{name} of {stranger.team}": key for name, key in theirs.items() if key != own[name]}
    for name, key in families(OWN).items():
        found[f"{name} of another deployment"] = key.replace("{test}", "{other}")
    return found | {key: key for key in FOREIGN}


def on(key: str, command: tuple[Any, ...]) -> list[Any]:
    """The command on a key: a name of two words takes it after both."""
    name, *rest = command
    return [*name.split(), key, *rest]


def allowed(client: Redis, words: list[Any]) -> bool:
    """Whether a user may send this; a complaint about anything else than its rights says that it may."""
    try:
        reply = client.execute_command(*words)
    except RedisError as error:
        reply = error
    return is_allowed(reply)


def allowed_on(client: Redis, key: str, commands: Iterable[tuple[Any, ...]]) -> list[str]:
    """Which of these commands a user may send for a key, by one round trip."""
    commands, pipeline = list(commands), client.pipeline(transaction=False)
    for command in commands:
        pipeline.pipeline_execute_command(*on(key, command))
    replies = pipeline.execute(raise_on_error=False)
    return [command[0] for command, reply in zip(commands, replies, strict=True) if is_allowed(reply)]


def is_allowed(reply: object) -> bool:
    if isinstance(reply, NoPermissionError):
        return False
    return not (isinstance(reply, RedisError) and "not allowed" in str(reply))  # DEBUG is nobody's


@pytest.fixture
def member(real_redis: Redis) -> Iterator[Redis]:
    with member_of(real_redis, "search") as client:
        yield client


@pytest.fixture
def onlooker(real_redis: Redis) -> Iterator[Redis]:
    with onlooker_of(real_redis, "search") as client:
        yield client


def test_every_family_of_keys_is_tried() -> None:
    assert {name.partition(" of ")[0] for name in outside()} >= families(OWN).keys() - {*READABLE, *FOREIGN}


@pytest.mark.parametrize("role", ["member", "onlooker"])
def test_no_key_outside_can_be_read_or_written(
    role: str, request: pytest.FixtureRequest, real_redis: Redis
) -> None:
    client = request.getfixturevalue(role)
    open_ = [
        (name, command)
        for name, key in outside().items()
        for command in allowed_on(client, key, (*READS, *WRITES))
    ]
    assert open_ == []
    assert real_redis.dbsize() == 0


def test_what_the_system_wrote_can_be_read_and_not_written(member: Redis, real_redis: Redis) -> None:
    own = families(OWN)
    kept = [own[name] for name in READABLE] + [key for key in own.values() if ":run:search:" in key]
    kept = [key for key in kept if ":team:" not in key]
    assert len(kept) > 15
    assert [(key, name) for key in kept for name in allowed_on(member, key, WRITES)] == []
    assert [key for key in kept if not allowed(member, on(key, ("HGETALL",)))] == []
    assert real_redis.dbsize() == 0


def test_what_the_team_wrote_can_be_read_by_its_dashboard_and_not_written(
    onlooker: Redis, real_redis: Redis
) -> None:
    for key in (KEYS.inbox("search"), KEYS.spec(OWN), KEYS.rows(OWN)):
        assert allowed_on(onlooker, key, WRITES) == []
        assert allowed(onlooker, on(key, ("GET",)))
    assert real_redis.dbsize() == 0


def test_a_team_writes_its_own_keys_with_few_commands(member: Redis) -> None:
    key = KEYS.rows(OWN)
    assert {name.lower() for name in allowed_on(member, key, WRITES)} == set(WRITING)


@pytest.mark.parametrize("role", ["member", "onlooker"])
def test_nobody_administers_the_server(role: str, request: pytest.FixtureRequest) -> None:
    client = request.getfixturevalue(role)
    assert [command for command in ADMINISTRATION if allowed(client, list(command))] == []


def test_no_verb_changes_anything_for_a_team(member: Redis, real_redis: Redis) -> None:
    real_redis.set(KEYS.spec(OWN), "x")
    for verb in all_scripts():
        for keys in (KEYS.spec(OWN), KEYS.leader, KEYS.lane("sim:fast")):
            words = [len(verb.keys), *[keys] * len(verb.keys), *["1"] * len(verb.args)]
            assert not allowed(member, ["EVALSHA", verb.sha, *words]), verb.name
            allowed(member, ["EVALSHA_RO", verb.sha, *words])
    assert [real_redis.get(key) for key in real_redis.scan_iter()] == [b"x"]


def test_a_verb_reads_for_a_team_only_what_the_team_may_read(member: Redis, real_redis: Redis) -> None:
    real_redis.hset(KEYS.lane("sim:fast"), "inflight", 1)
    real_redis.hset(KEYS.leader, "epoch", 1)
    view = next(verb for verb in all_scripts() if verb.name == "lane_view")
    mine = [2, KEYS.lane("sim:fast"), KEYS.limits("sim:fast"), ""]
    assert allowed(member, ["EVALSHA_RO", view.sha, *mine])
    assert not allowed(member, ["EVALSHA_RO", view.sha, 2, KEYS.leader, KEYS.limits("sim:fast"), ""])


@pytest.mark.parametrize(
    ("command", "channel", "may"),
    [
        ("PUBLISH", KEYS.wake, True),
        ("PUBLISH", KEYS.control, False),
        ("PUBLISH", KEYS.chunks(OWN), False),
        ("PUBLISH", KEYS.chunks(OTHER), False),
        ("PUBLISH", "/0.celeryev/worker.heartbeat", False),
        ("SUBSCRIBE", KEYS.chunks(OWN), True),
        ("SUBSCRIBE", KEYS.chunks(OTHER), False),
        ("SUBSCRIBE", KEYS.wake, False),
        ("SUBSCRIBE", KEYS.control, False),
        ("PSUBSCRIBE", "*", False),
        ("PSUBSCRIBE", KEYS.chunks(OWN), False),
        ("SPUBLISH", KEYS.wake, False),
        ("SSUBSCRIBE", KEYS.chunks(OWN), False),
    ],
)
def test_channels_are_as_apart_as_keys(member: Redis, command: str, channel: str, may: bool) -> None:
    if "PUBLISH" in command:
        assert allowed(member, [command, channel, "x"]) is may
        return
    with member.pubsub() as listener:  # a subscription is answered by a message
        listener.execute_command(command, channel)
        try:
            reply: object = listener.parse_response(timeout=1)
        except RedisError as error:
            reply = error
    assert reply is not None
    assert is_allowed(reply) is may


def test_a_dashboard_announces_nothing(onlooker: Redis) -> None:
    assert not allowed(onlooker, ["PUBLISH", KEYS.wake, "inbox:search"])


def everything(stage: Stage) -> list[Waiting]:
    """All that a client can do, in one life; the answers to why."""
    client = stage.client
    run = client.submit([{"n": n} for n in range(4)], "{{ n }}", model=TASKS, session="n")
    assert run.status().state == "submitted"
    assert [each.run for each in client.runs()] == [run.id]
    assert client._deployment.is_led(), "what a team may not read is no lack of a scheduler"
    stage.admit()
    pieces = run.chunks()
    whys = [run.why(), run.why(1), client.why(TASKS), client.why(JUDGES)]
    stage.answer(run.id, 4)
    assert run.wait().state == "completed"
    assert list(pieces) == []
    assert len(list(run.results())) == len(list(run.stream())) == len(list(run.sessions())) == 4
    length = scorer(len, name="length", where="client")
    assert client.run(run.id).with_scorers(length).summary().scores["length"].count == 4
    assert list(run.status().client_scores) == ["length"]
    assert run.why(0).constraint == "done"
    assert client.continue_run(run.id).id != run.id
    for ask in (run.pause, run.resume, client.run(run.id).cancel):
        ask()
    assert client.estimate([{"n": 1}], "{{ n }}", model=TASKS).items == 1
    with client.open("{{ n }}", model=TASKS) as rows:
        rows.write({"n": 1})
    with pytest.raises(TargetNotFound):
        client.why("nothing")
    broken = [*({"n": n} for n in range(5000)), {"n": object()}]  # only a later page shows it
    with pytest.raises(SubmissionError):
        client.submit(broken, "{{ n }}", model=TASKS)
    return whys


def test_a_teams_client_does_everything_and_needs_every_command_it_has(real_redis: Redis) -> None:
    stage = Stage(real_redis)
    real_redis.set(KEYS.catalog, '{"connections": {"sim": {}}}')
    with member_of(real_redis, "search") as redis:
        stage.client = stage.client_through(redis, "search")
        whys = everything(stage)
    assert all("what other teams have queued" in why.unknown for why in whys)
    inside = {name.lower() for verb in VERBS for name in CALLED.findall(script(verb).source)}
    assert {*READING, *WRITING, *CONNECTING} - Recording.sent - inside == set()


def test_renewed_rules_are_these_and_the_password_stays(real_redis: Redis) -> None:
    access = team_access(KEYS, "test", "search")
    with member_of(real_redis, "search") as client:
        real_redis.execute_command("ACL", "SETUSER", access.user, "+@all", "~*", "&*")
        assert allowed(client, ["GET", KEYS.leader])
        Users(real_redis).renew(access)
        assert not allowed(client, ["GET", KEYS.leader])
        assert client.rpush(KEYS.inbox("search"), "x")


def test_a_user_who_may_read_everything_gets_the_whole_answer(real_redis: Redis) -> None:
    real_redis.set(KEYS.catalog, '{"connections": {"sim": {}}}')
    assert {why.unknown for why in everything(Stage(real_redis))} == {()}
