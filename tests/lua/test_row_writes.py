"""A lane's hash is written as little as its changes are, with the numbers that scripts mean."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.model.ending import Completion
from fairlane.model.job import Feedback, JobState
from fairlane.model.tokens import Usage
from fairlane.store.preludes import LuaFile, Preludes
from fairlane.store.script import merged
from fairlane.store.verb_text import of_one
from tests.lua.test_headers import FOLDER
from tests.support.deployment import LEASE_MS, Deployment
from tests.support.redis import emptied

VERB = LuaFile.parse(
    "written",
    """-- Sets fields of a lane.
-- KEYS: lane
-- ARGV: fields
-- USES: lane/state
-- RETURNS: 1
local row = edited(read_hash(KEY.lane))
for name, value in pairs(cjson.decode(ARG.fields)) do row[name] = tonumber(value) or value end
write_hash(KEY.lane, row)
return 1
""",
)
READ = LuaFile.parse(
    "read",
    """-- Reads fields of a lane.
-- KEYS: lane
-- ARGV:
-- USES: lane/state
-- RETURNS: the fields that are neither texts by name nor what `tonumber` makes of them
local texts = { stop = true, circuit = true, last_error = true }
local row, flat, wrong = read_hash(KEY.lane), redis.call('HGETALL', KEY.lane), {}
for i = 1, #flat, 2 do
  local wanted, found = not texts[flat[i]] and tonumber(flat[i + 1]) or flat[i + 1], row[flat[i]]
  if found ~= wanted and wanted == wanted then wrong[#wrong + 1] = flat[i] end
end
return wrong
""",
)
SCRIPT, READING = (of_one(verb, Preludes(FOLDER / "lib")).script for verb in (VERB, READ))
NUMBER = st.one_of(
    st.integers(-(10**18), 10**18).map(float), st.floats(-1e12, 1e12), st.sampled_from([1e15, 2.0**53, 0.1])
)
TEXT = st.sampled_from(
    ["", "closed", "429", "/team", "0x1f", " 7 ", "1e5x", "-", "nan", "-inf", "1e999", "٣"]
)
FIELDS = st.dictionaries(st.sampled_from("abcd"), st.one_of(NUMBER, st.sampled_from(["", "text"])))


def as_text(value: float | str) -> str:
    """The text that a lane's hash has for a number."""
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if value % 1 == 0 else f"{value:.14g}"


def write(redis: Redis, fields: dict[str, float | str]) -> None:
    texts = {name: value if isinstance(value, str) else repr(value) for name, value in fields.items()}
    redis.eval(SCRIPT, 1, "lane", json.dumps(texts))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FIELDS, FIELDS)
def test_a_lane_keeps_every_number_as_the_text_it_always_had(
    real_redis: Redis, first: dict[str, float | str], then: dict[str, float | str]
) -> None:
    emptied(real_redis)
    write(real_redis, first)
    write(real_redis, then)
    found = {name.decode(): value.decode() for name, value in real_redis.hgetall("lane").items()}
    for name, value in (first | then).items():
        if value == 0:
            assert float(found[name]) == 0  # whichever sign it has
        elif name in then and name in first and not isinstance(value, str):
            assert math.isclose(float(found[name]), value, rel_tol=1e-13)
        else:
            assert found[name] == as_text(value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["stop", "circuit", "last_error", "a", "b"]), NUMBER.map(repr) | TEXT))
def test_a_lane_with_any_of_its_fields_is_read_as_numbers(real_redis: Redis, fields: dict[str, str]) -> None:
    emptied(real_redis)
    if fields:
        real_redis.hset("lane", mapping=fields)
    assert real_redis.eval(READING, 1, "lane") == []


def test_unchanged_fields_are_not_written(real_redis: Redis) -> None:
    emptied(real_redis)
    write(real_redis, {"a": 1.0, "b": 0.5, "c": "text"})
    real_redis.config_resetstat()
    write(real_redis, {"a": 1.0, "b": 0.5, "c": "text"})
    assert "cmdstat_hset" not in real_redis.info("commandstats")


@pytest.mark.parametrize("count", [1, 3], ids=["alone", "together"])
@pytest.mark.parametrize("words", ["0x10", "1e5", " 7", "7.0", "nan", "inf"])
def test_a_lane_keeps_an_error_as_its_provider_wrote_it(real_redis: Redis, words: str, count: int) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=count)
    attempts = d.take(ref, count)
    for attempt in attempts:
        d.attempts.claim(attempt, "w1", LEASE_MS, d.now_ms).run(real_redis)
    done = Completion(JobState.FAILED, '{"s":"failed"}')
    told = [Feedback("server_error", Usage(), None, words), *[Feedback("ok")] * (count - 1)]
    calls = [
        d.attempts.finish(attempt, "w1", each, done, d.now_ms)
        for attempt, each in zip(attempts, told, strict=True)
    ]
    merged(calls).run(real_redis)
    assert real_redis.hget(d.keys.lane("sim:fast"), "last_error") == words.encode()
    assert d.lanes.view("sim:fast", d.now_ms).last_error == words
