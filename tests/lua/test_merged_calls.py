"""Calls that share one script call change what each would change alone, and reach Redis once a hash."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.exceptions import OutOfMemoryError, ResponseError

from fairlane.model.ending import Completion, ReadyJob, RecordedJob
from fairlane.model.job import Feedback, JobState, Signal
from fairlane.model.tokens import Usage
from fairlane.store.preludes import LuaFile
from fairlane.store.script import Call, merged
from fairlane.store.verbs import script
from tests.support.contents import read_contents
from tests.support.deployment import LEASE_MS, Deployment, entry
from tests.support.redis import emptied

RECORD = '{"s":"succeeded","o":"answer"}'
CORE = files("fairlane.store") / "lua/lib/core"
ROWS, HASHES = (
    LuaFile.parse(name, (CORE / f"{name}.lua").read_text(encoding="utf-8"))
    for name in ("held_rows", "held_hashes")
)
NAMES = ", ".join(ROWS.words("GIVES"))
RUN = """
local replies = {}
for _, command in ipairs(cjson.decode(ARGV[1])) do
  local good, reply
  if command[1] ~= 'ROW' then good, reply = pcall(redis.call, unpack(command)) end
  if command[1] == 'ROW' and redis.row then redis.row(command[2]) end
  replies[#replies + 1] = good and { 'reply', reply } or { 'error' }
end
"""
DIRECT = f"{RUN} return cjson.encode(replies)"
HELD = f"""
local CALL = {{}}
local server = redis
local redis, {NAMES}
do
{ROWS.text}
{HASHES.text}
end
{RUN} write_hashes() return cjson.encode(replies)
"""

KEY = st.sampled_from(["a", "b"])
FIELD = st.sampled_from(["x", "y", "7"])
ODD_TEXTS = ["0x10", "1e5", " 7", "7 ", "+7", "007", "-0", "5.0", "nan", "inf", "1e999"]
ODD = st.sampled_from(ODD_TEXTS)
VALUE = st.one_of(
    ODD,
    st.sampled_from(["", "text", "0.5", "9007199254740993", "-9200000000000000000"]),
    st.integers(-(10**16), 10**16).map(str),
)
AMOUNT = st.one_of(st.integers(-3, 3), st.sampled_from([10**15, -(10**15)])).map(str)
COMMAND = st.one_of(
    st.tuples(st.just("HGET"), KEY, FIELD),
    st.tuples(st.just("HEXISTS"), KEY, FIELD),
    st.tuples(st.just("HMGET"), KEY, FIELD, FIELD),
    st.tuples(st.just("HSET"), KEY, FIELD, VALUE),
    st.tuples(st.just("HSET"), KEY, FIELD, VALUE, FIELD, VALUE),
    st.tuples(st.just("HINCRBY"), KEY, FIELD, AMOUNT),
    st.tuples(st.just("HINCRBYFLOAT"), KEY, FIELD, st.sampled_from(["0.5", "-2"])),
    st.tuples(st.just("HDEL"), KEY, FIELD),
    st.tuples(st.just("HDEL"), KEY, FIELD, FIELD),
    st.tuples(st.just("HLEN"), KEY),
    st.tuples(st.just("EXISTS"), KEY),
    st.tuples(st.just("DEL"), KEY),
    st.tuples(st.just("PEXPIRE"), KEY, st.just("100000")),
)
SILENT = ("HSET", "HDEL", "ROW")  # what these reply is nobody's business
ROW_VALUE = st.one_of(
    ODD,
    st.sampled_from(["", "text", "paused by Ana", "1 2 3"]),
    st.integers(-(2**53) + 1, 2**53 - 1).map(str),
    st.floats(-1e9, 1e9).map(lambda number: f"{number:.14g}").filter(lambda text: text != "-0"),
)
ROW_COMMAND = st.one_of(
    st.tuples(st.just("ROW"), KEY),
    st.tuples(st.just("HGET"), KEY, FIELD),
    st.tuples(st.just("HMGET"), KEY, FIELD, FIELD),
    st.tuples(st.just("HSET"), KEY, FIELD, ROW_VALUE),
    st.tuples(st.just("HINCRBY"), KEY, FIELD, AMOUNT),
    st.tuples(st.just("HDEL"), KEY, FIELD),
    st.tuples(st.just("HLEN"), KEY),
)


def play(redis: Redis, source: str, commands: Sequence[Sequence[str]]) -> tuple[list[Any], dict[str, Any]]:
    emptied(redis)
    replies = json.loads(redis.eval(source, 0, json.dumps(commands)))
    return replies, {key: redis.hgetall(key) for key in ("a", "b")}


def assert_alike(redis: Redis, commands: Sequence[Sequence[str]]) -> None:
    """Held hashes reply and end as they would in Redis."""
    direct, expected = play(redis, DIRECT, commands)
    held, found = play(redis, HELD, commands)
    assert found == expected
    for command, there, here in zip(commands, direct, held, strict=True):
        if command[0] not in SILENT:
            assert here == there, command


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(COMMAND, max_size=12))
def test_a_held_hash_reads_and_ends_as_one_in_redis(
    real_redis: Redis, commands: list[tuple[str, ...]]
) -> None:
    assert_alike(real_redis, commands)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROW_COMMAND, max_size=12))
def test_a_hash_that_was_read_whole_reads_and_ends_as_one_in_redis(
    real_redis: Redis, commands: list[tuple[str, ...]]
) -> None:
    assert_alike(real_redis, commands)


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_a_text_like_a_number_comes_back_as_it_was_written(real_redis: Redis, text: str) -> None:
    first, reads = ("HSET", "a", "x", text), [("HGET", "a", "x"), ("HMGET", "a", "x", "y")]
    for change in (("HINCRBY", "a", "x", "1"), ("HSET", "a", "x", text), ("HSET", "a", "y", text)):
        assert_alike(
            real_redis, [first, ("ROW", "a"), *reads, change, *reads, ("HSET", "a", "y", "1"), *reads]
        )


def test_a_hash_that_is_changed_often_is_written_once(real_redis: Redis) -> None:
    changes = [("HINCRBY", "a", "x", "1")] * 20 + [("HSET", "a", "y", "1"), ("HDEL", "a", "y")] * 20
    commands = [("ROW", "a"), *changes]
    emptied(real_redis)
    before = int(real_redis.info("commandstats").get("cmdstat_hset", {}).get("calls", 0))
    real_redis.eval(HELD, 0, json.dumps(commands))
    assert int(real_redis.info("commandstats")["cmdstat_hset"]["calls"]) == before + 2
    assert real_redis.hgetall("a") == {b"x": b"20"}


SIGNALS: tuple[Signal, ...] = (
    "ok",
    "ok",
    "ok",
    "answered",
    "limited",
    "overloaded",
    "server_error",
    "broken",
)
REPORT = st.tuples(st.sampled_from(SIGNALS), st.integers(0, 300), st.booleans())


def reports(
    d: Deployment, feedback: Sequence[tuple[Signal, int, bool]], waited_ms: int = 0
) -> tuple[list[Call], list[Call]]:
    """Claims of as many jobs ``waited_ms`` after their permits, and their reports: some lost their leases."""
    ref = d.queued_lane(jobs=len(feedback), requests_per_minute=600, tokens_per_minute=100_000)
    attempts = d.take(ref, len(feedback))
    d.advance(waited_ms)
    claims = [d.attempts.claim(attempt, "w1", LEASE_MS, d.now_ms) for attempt in attempts]
    ends = []
    for attempt, (signal, tokens, late) in zip(attempts, feedback, strict=True):
        feedback = Feedback(signal, Usage(tokens, tokens) if signal == "ok" else Usage())
        worker = "w2" if late else "w1"
        ends.append(
            d.attempts.finish(
                attempt, worker, feedback, Completion(JobState.SUCCEEDED, RECORD), d.now_ms, took_ms=300
            )
        )
    return claims, ends


def alone(redis: Redis, calls: Sequence[Call]) -> list[Any]:
    return [call.run(redis) for call in calls]


def together(redis: Redis, calls: Sequence[Call]) -> list[Any]:
    call = merged(calls)
    replies = call.replies(call.run(redis))
    assert len(replies) == len(calls)
    return replies


def outcome(
    redis: Redis,
    feedback: Sequence[tuple[Signal, int, bool]],
    send: Callable[[Redis, Sequence[Call]], list[Any]],
    waited_ms: int = 0,
) -> tuple[list[Any], Any]:
    emptied(redis)
    d = Deployment(redis)
    claims, ends = reports(d, feedback, waited_ms)
    replies = [send(redis, claims)]
    d.advance(300)
    replies.append(send(redis, ends))
    contents = read_contents(redis)
    del contents[d.keys.audit]  # dated by the server's clock
    return [[each and json.loads(each) for each in some] for some in replies], contents


def near(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of numbers: alone, each call reads what the last one wrote as text."""
    if isinstance(one, bytes) and isinstance(other, bytes) and one.startswith(b"{"):
        with suppress(ValueError):  # a packed number may begin so, too
            return near(json.loads(one) | {"claim": ""}, json.loads(other) | {"claim": ""})  # a random name
    if isinstance(one, bytes) and isinstance(other, bytes) and b" " in one:
        return near(one.split(b" "), other.split(b" "))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(near, one, other))
    try:
        return one == other or float(one) == pytest.approx(float(other), rel=1e-7)
    except (TypeError, ValueError):
        return False


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(REPORT, min_size=2, max_size=8), st.sampled_from([0, 50, 400, 1000, 20_000]))
def test_merged_calls_change_what_each_would_change_alone(
    real_redis: Redis, feedback: list[tuple[Signal, int, bool]], waited_ms: int
) -> None:
    expected, contents = outcome(real_redis, feedback, alone, waited_ms)
    found, merged_contents = outcome(real_redis, feedback, together, waited_ms)
    assert near(found, expected)
    assert near(merged_contents, contents)


def test_a_full_server_takes_none_of_the_merged_reports_and_all_of_them_later(real_server: Redis) -> None:
    redis = emptied(real_server)
    d = Deployment(redis)
    claims, ends = reports(d, [("ok", 10, False)] * 3)
    together(redis, claims)
    before = read_contents(redis)
    redis.config_set("maxmemory", "1")
    try:
        replies = together(redis, ends)
        assert [type(reply) for reply in replies] == [OutOfMemoryError] * 3
        assert read_contents(redis) == before
    finally:
        redis.config_set("maxmemory", "0")
    assert all(json.loads(reply)["news"] == "" for reply in together(redis, ends))


@pytest.mark.parametrize("send", [alone, together])
@pytest.mark.parametrize("name", ["jobs", "results", "done", "finished", "run_lanes", "memory", "hot"])
def test_a_report_that_meets_a_key_of_another_type_records_no_part_of_its_job(
    real_redis: Redis, name: str, send: Callable[[Redis, Sequence[Call]], list[Any]]
) -> None:
    d = Deployment(emptied(real_redis))
    d.lane(requests_per_minute=600)
    ref = d.submit(rows=3, judges=["sim:judge", "sim:judge"])
    d.feed(ref, 3)
    ends = [
        d.attempts.finish(
            attempt,
            "w1",
            Feedback("ok", Usage(1, 1)),
            Completion(
                JobState.SUCCEEDED,
                RECORD,
                (
                    ReadyJob(entry(attempt.job + 1, 5, 1), "sim:judge"),
                    RecordedJob(attempt.job + 2, JobState.SUCCEEDED, RECORD, "sim:judge"),
                ),
                memory={"output": "answer"},
            ),
            d.now_ms,
        )
        for attempt in d.start(ref, 3)
    ]
    key = d.keys.hot(ref, "sim:judge") if name == "hot" else getattr(d.keys, name)(ref)
    real_redis.delete(key)
    parts = ("results", "done", "finished", "run_lanes")
    recorded = [getattr(d.keys, part)(ref) for part in parts] + [d.keys.hot(ref, "sim:judge")]
    before = [real_redis.dump(each) for each in recorded]
    if name in {"jobs", "results", "memory"}:
        real_redis.set(key, "x")
    else:
        real_redis.hset(key, "x", "x")
    with suppress(ResponseError):
        assert {type(reply) for reply in send(real_redis, ends)} == {ResponseError}
    real_redis.delete(key)
    assert [real_redis.dump(each) for each in recorded] == before
    assert real_redis.hget(d.keys.state(ref), "jobs_done") == b"0"


def test_only_verbs_that_say_so_are_merged() -> None:
    beat = script("leader_resign").bind({"leader": "leader"}, {"id": "me"})
    assert merged([beat]) is beat
    with pytest.raises(Exception, match="MERGES"):
        merged([beat, beat])
