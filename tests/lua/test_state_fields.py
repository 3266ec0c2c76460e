"""What a script holds of runs' states ends in Redis as commands one by one would leave it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.run import RunRef
from fairlane.store.preludes import LuaFile, Preludes
from fairlane.store.verb_text import of_many, of_one
from tests.support.deployment import LEASE_MS, Deployment
from tests.support.redis import emptied

LIB = files("fairlane.store") / "lua/lib"
PRELUDES = Preludes(LIB)
HELD = "run/state_fields"
VERB = LuaFile.parse(
    "played",
    """-- Plays what a test names.
-- KEYS: clock
-- ARGV: played
-- USES: core/time run/state_fields
-- RETURNS: what was read
local replies = {}
if ARG.played == '' then return clock('', KEY.clock) end
for _, each in ipairs(cjson.decode(ARG.played)) do
  local act, key, name, value = unpack(each)
  if act == 'read' then read_fields(key, name, value) end
  if act == 'set' then set_field(key, name, value) end
  if act == 'drop' then set_field(key, name, false) end
  if act == 'add' then add_to_field(key, name, value) end
  if act == 'write' then write_states() end
  if act == 'get' then
    local found = field_of(key, name)
    replies[#replies + 1] = type(found) == 'number' and string.format('%.0f', found) or found
  end
end
return cjson.encode(replies)
""",
)

KEY = st.sampled_from(["a", "b"])
NUMBER, TEXT = st.sampled_from(["x", "y"]), st.sampled_from(["t", "u"])
WHOLE = st.one_of(st.integers(-3, 3), st.integers(-(10**14), 10**14))
ACT = st.one_of(
    st.tuples(st.just("read"), KEY, NUMBER, TEXT),
    st.tuples(st.just("get"), KEY, st.one_of(NUMBER, TEXT)),
    st.tuples(st.just("set"), KEY, TEXT, st.sampled_from(["", "1 2 3", "0.5"])),
    st.tuples(st.just("set"), KEY, NUMBER, WHOLE),
    st.tuples(st.just("drop"), KEY, st.one_of(NUMBER, TEXT)),
    st.tuples(st.just("add"), KEY, NUMBER, st.integers(-5, 5)),
    st.tuples(st.just("write"), KEY, NUMBER),
)


def directly(redis: Redis, acts: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Each act as a command of its own."""
    replies: list[Any] = []
    for act, key, name, *value in acts:
        if act == "set":
            redis.hset(key, name, value[0])
        elif act == "drop":
            redis.hdel(key, name)
        elif act == "add":
            redis.hincrby(key, name, value[0])
        elif act == "get":
            found = cast("bytes | None", redis.hget(key, name))
            replies.append(False if found is None else found.decode())
    return replies


def contents(redis: Redis) -> dict[str, Any]:
    return {key: redis.hgetall(key) for key in ("a", "b")}


@pytest.mark.parametrize("form", [of_one, of_many])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.lists(ACT, max_size=6), acts=st.lists(ACT, max_size=14))
def test_fields_have_the_values_that_single_commands_would_leave(
    real_redis: Redis, form: Any, before: list[tuple[Any, ...]], acts: list[tuple[Any, ...]]
) -> None:
    emptied(real_redis)
    directly(real_redis, before)
    replies = directly(real_redis, acts)
    expected = contents(real_redis)
    emptied(real_redis)
    directly(real_redis, before)
    reply = real_redis.eval(form(VERB, PRELUDES).script, 1, "clock", json.dumps(acts))
    assert json.loads(reply[0] if isinstance(reply, list) else reply) == (replies or {})
    assert contents(real_redis) == expected


def test_a_report_counts_in_its_runs_state_in_one_write(real_redis: Redis) -> None:
    d = Deployment(emptied(real_redis))
    ref = d.queued_lane(jobs=3, requests_per_minute=600)
    first, second = d.take(ref, 2)
    for attempt in (first, second):
        d.claim(attempt)
    d.advance(300)
    d.finish(first, used=50)
    real_redis.config_resetstat()
    d.finish(second, used=50)
    stats = real_redis.info("commandstats")
    added = {"the team's calls in flight", "the sum of times, which Lua does not hold exactly"}
    assert stats["cmdstat_hincrby"]["calls"] == len(added)
    written = {"the lane", "the run's state", "the record"}
    assert stats["cmdstat_hset"]["calls"] == len(written)


def test_a_lease_that_lapses_after_its_run_was_deleted_leaves_nothing_of_the_run(real_redis: Redis) -> None:
    d = Deployment(emptied(real_redis))
    [attempt] = d.take(d.queued_lane(jobs=1, requests_per_minute=600), 1)
    d.claim(attempt)
    real_redis.unlink(d.keys.state(RunRef(attempt.team, attempt.run)))
    d.advance(LEASE_MS + 1)
    d.recover(attempt)
    assert not real_redis.exists(d.keys.state(RunRef(attempt.team, attempt.run)))


def test_no_prelude_writes_a_held_hash_by_a_command() -> None:
    """Else a script would write what it had read before that command."""
    held: set[str] = set()
    for file in PRELUDES.files.values():
        held |= set(re.findall(r"(?:set|add_to)_field\(\w+(?:\.\w+)?, '([^']+)'", file.code))
    assert {"in_flight", "held_lanes", "open:", "n:", "jobs_done", "tokens:"} <= held
    for name, file in PRELUDES.files.items():
        for line in file.code.splitlines():
            if "redis.call('H" in line and "KEY.state" in line and name != "run/close":
                assert not held & set(re.findall(r"'([^']+)'", line)), (name, line)
