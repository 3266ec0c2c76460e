"""What a team may ask for: more is refused with a message, and nobody else waits for it."""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from redis import Redis

from fairlane.datasets.rows import encode_page
from fairlane.model.ending import TIMED_OUT
from fairlane.model.run import RunRef, RunState
from tests.support.scheduler_parts import Parts

REF = RunRef("flood", "r1")


def limited(redis: Redis, **limits: int) -> Parts:
    return Parts(redis, limits=limits)  # type: ignore[arg-type]


def hostile(parts: Parts, spec: bytes | str, ref: RunRef = REF) -> None:
    parts.redis.set(parts.keys.spec(ref), spec)
    parts.redis.rpush(parts.keys.inbox(ref.team), json.dumps({"op": "submit", "run": ref.run}))


def good(parts: Parts, run: str = "r1") -> RunRef:
    return parts.upload(parts.spec(1, run=run), [{"q": 1}])


def reason(parts: Parts, ref: RunRef = REF) -> str:
    assert parts.state(ref)["state"] == RunState.REFUSED
    return parts.state(ref)["reason"]


def spec_of(parts: Parts, **fields: Any) -> str:
    return json.dumps(json.loads(parts.spec(3, team="flood").model_dump_json()) | fields)


def prompt(text: str) -> dict[str, Any]:
    return {"prompts": [[{"role": "user", "content": text}]]}


def submissions(parts: Parts) -> dict[str, bytes | str]:
    return {
        "huge": b"x" * (17 * 1024 * 1024),
        "deep": "[" * 100_000 + "]" * 100_000,
        "deep parameters": spec_of(parts)[:-1] + ',"params":' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}",
        "wrong types": spec_of(parts, rows="many", models={"a": 1}, prompts=7),
        "bad UTF-8": b'{"run": "\xff\xfe"}',
        "nothing": b"",
        "a template that nests": spec_of(parts, **prompt("{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}")),
        "a template that loops": spec_of(parts, **prompt("{% for a in %}" * 1000)),
        "a template that counts": spec_of(parts, models=["sim:{{ 10 ** 10 ** 10 }}"], **prompt("{{")),
        "a page a row": spec_of(parts, rows=10_000_000, page_rows=1),
        "a number too long": spec_of(parts)[:-1] + ',"rows":' + "9" * 5000 + "}",
    }


@pytest.mark.parametrize("kind", range(11))
def test_a_hostile_submission_is_refused_and_anothers_run_admitted(fake_redis: Redis, kind: int) -> None:
    parts = Parts(fake_redis)
    hostile(parts, list(submissions(parts).values())[kind])
    ref = good(parts)

    parts.receiver.tick(None, parts.moment())

    assert reason(parts)
    assert parts.state(ref)["state"] == RunState.RUNNING
    assert parts.redis.llen(parts.keys.inbox("flood")) == 0


def test_a_flood_of_requests_lets_another_teams_run_be_admitted_in_the_first_tick(fake_redis: Redis) -> None:
    parts = Parts(fake_redis)
    requests = [json.dumps({"op": "submit", "run": f"r{n}"}) for n in range(20_000)]
    parts.redis.rpush(parts.keys.inbox("flood"), *requests)
    ref = good(parts)
    handled = parts.inbox.peek

    def slowly(team: str) -> Any:
        parts.clock.advance(0.03 if team == "flood" else 0)
        return handled(team)

    parts.inbox.peek = slowly  # type: ignore[method-assign]
    assert parts.receiver.tick(None, parts.moment()) == 0

    assert parts.state(ref)["state"] == RunState.RUNNING
    assert parts.redis.llen(parts.keys.inbox("flood")) >= 19_000, "those behind wait, and none is dropped"


def test_an_entry_that_is_too_long_is_passed_over_unread(fake_redis: Redis) -> None:
    parts = Parts(fake_redis)
    parts.redis.rpush(parts.keys.inbox("search"), b"x" * 1_000_000)
    ref = good(parts)
    parts.receiver.tick(None, parts.moment())
    assert parts.state(ref)["state"] == RunState.RUNNING


@pytest.mark.parametrize("name", ["spec_bytes", "run_bytes"])
def test_a_run_that_is_too_large_is_refused_by_the_name_of_its_setting(fake_redis: Redis, name: str) -> None:
    parts = limited(fake_redis, **{name: 10})
    ref = good(parts)
    parts.receiver.tick(None, parts.moment())
    assert f"at most 10 are allowed (scheduler.limits.{name})" in reason(parts, ref)


def test_a_team_with_too_many_runs_is_reported_so_and_another_is_not(fake_redis: Redis) -> None:
    parts = limited(fake_redis, active_runs=2)
    refs = [good(parts, f"r{n}") for n in range(3)]
    other = parts.upload(parts.spec(1, team="ads"), [{"q": 1}])
    parts.receiver.tick(None, parts.moment())
    assert [parts.state(ref)["state"] for ref in (*refs[:2], other)] == [RunState.RUNNING] * 3
    assert "team search has 2 that are not finished, at most 2 are allowed" in reason(parts, refs[2])


def test_an_open_run_that_outgrows_its_bytes_is_stopped(fake_redis: Redis) -> None:
    parts = limited(fake_redis, run_bytes=100)
    spec = parts.spec(0, open=True, page_rows=1)
    ref = parts.upload(spec, [])
    parts.receiver.tick(None, parts.moment())
    for page in range(2):
        parts.outbox.append(ref, page, encode_page([{"q": f"{page}" * 10}]))
        parts.outbox.extend(ref, page + 1, last=False)
    parts.receiver.tick({"search"}, parts.moment())
    assert parts.state(ref)["state"] == RunState.RUNNING
    parts.outbox.append(ref, 2, encode_page([{"q": "".join(str(n) for n in range(200))}]))
    parts.outbox.extend(ref, 3, last=True)
    parts.receiver.tick({"search"}, parts.moment())
    assert parts.state(ref)["state"] == RunState.STOPPED
    assert "scheduler.limits.run_bytes" in parts.state(ref)["reason"]
    assert parts.backlog.get(ref) is None


def kept_of_runs(kept: Any, runs: set[str], depth: int = 6) -> set[str]:
    """Those of ``runs`` that an object of the scheduler still names, however deep."""
    if depth == 0 or kept is None:
        return set()
    if isinstance(kept, RunRef):
        return {kept.run} & runs
    parts: Iterable[Any] = ()
    if isinstance(kept, Mapping):
        parts = (*kept.keys(), *kept.values())
    elif isinstance(kept, list | tuple | set | deque):
        parts = kept
    elif dataclasses.is_dataclass(kept):
        parts = [getattr(kept, field.name) for field in dataclasses.fields(kept)]
    return {name for part in parts for name in kept_of_runs(part, runs, depth - 1)}


@pytest.mark.parametrize("end", ["closed", "cancelled", "overdue", "gone"])
def test_an_open_run_that_has_ended_leaves_nothing_in_the_limits(fake_redis: Redis, end: str) -> None:
    parts, refs = Parts(fake_redis), list[RunRef]()
    for number in range(20):
        spec = parts.spec(0, run=f"r{number}", open=True, page_rows=1)
        ref = parts.upload(spec, [])
        parts.receiver.tick(None, parts.moment())
        parts.outbox.append(ref, 0, encode_page([{"q": 1}]))
        parts.outbox.extend(ref, 1, last=end == "closed")
        parts.receiver.tick({"search"}, parts.moment())
        if end == "cancelled":
            parts.outbox.cancel(ref)
            parts.receiver.tick({"search"}, parts.moment())
        elif end == "overdue":
            now = parts.moment()
            parts.runs.end(ref, parts.registry.names(), TIMED_OUT, now.epoch, now.argument)
            parts.loader.refresh()
        elif end == "gone":
            parts.redis.delete(parts.keys.state(ref), parts.keys.plan(ref))
            parts.redis.srem(parts.keys.active, str(ref))
            parts.loader.refresh()
        refs.append(ref)
    limits = parts.admission._limits
    left = kept_of_runs(vars(limits) | {"_runs": None, "_backlog": None}, {ref.run for ref in refs})
    assert len(left) <= 1


def test_an_inbox_that_nobody_announced_is_found_when_a_term_begins(fake_redis: Redis) -> None:
    parts = Parts(fake_redis)
    assert parts.inbox.teams() == []
    ref = good(parts)
    parts.receiver.tick(None, parts.moment())
    assert parts.state(ref)["state"] == RunState.RUNNING
    assert parts.inbox.teams() == ["search"]


def test_a_client_writes_nothing_outside_its_own_keys(fake_redis: Redis) -> None:
    parts = Parts(fake_redis)
    before = set(fake_redis.scan_iter())
    good(parts)
    written = {key.decode().removeprefix(parts.keys.prefix) for key in set(fake_redis.scan_iter()) - before}
    assert {key.split(":")[0] for key in written} == {"team"}


@pytest.mark.slow
def test_announcements_beyond_a_bound_are_not_kept(fake_redis: Redis) -> None:
    parts = Parts(fake_redis)
    names = (f"no-{n}" for n in range(30_000))
    parts.receiver.tick(names, parts.moment())
    assert next(names) == "no-10000"
    assert parts.inbox.teams() == []
