"""Inboxes: what is admitted, what is refused and why, and that no request is lost or acted on twice."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from fairlane.core.clock import ManualClock
from fairlane.model.choices import START_TIME_VERSION
from fairlane.model.run import RunRef, RunState
from fairlane.store.write.leader import NotLeader
from fairlane_scheduler.intake import admission as admitting
from tests.support.scheduler_parts import Parts

REF = RunRef("search", "r1")


def write(parts: Parts, spec: bytes | str, ref: RunRef = REF) -> None:
    """Put a spec and a request for it where a client of ``ref.team`` can put them."""
    parts.redis.set(parts.keys.spec(ref), spec)
    parts.redis.sadd(parts.keys.teams, ref.team)
    parts.redis.rpush(parts.keys.inbox(ref.team), json.dumps({"op": "submit", "run": ref.run}))


def reason(parts: Parts, ref: RunRef = REF) -> str:
    state = parts.state(ref)
    assert state["state"] == RunState.REFUSED
    return state["reason"]


def changed(parts: Parts, **fields: Any) -> str:
    """A good spec with some fields replaced."""
    return json.dumps(json.loads(parts.spec(3).model_dump_json()) | fields)


def test_what_a_later_version_adds_to_a_spec_is_passed_over(parts: Parts) -> None:
    parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    retry = json.loads(parts.spec(3).model_dump_json())["retry"]
    write(parts, changed(parts, surprise={"a": 1}, retry=retry | {"tomorrow": 1}))

    parts.receiver.tick(None, parts.moment())

    assert parts.state(REF)["state"] == RunState.RUNNING


def test_a_good_run_is_admitted_and_known_to_the_backlog(parts: Parts) -> None:
    ref = parts.upload(parts.spec(3, judges=["sim:judge"]), [{"q": n} for n in range(3)])

    with capture_logs() as logs:
        wait = parts.receiver.tick(None, parts.moment())

    assert wait is None
    assert parts.state(ref)["state"] == RunState.RUNNING
    run = parts.backlog.get(ref)
    assert run is not None
    assert run.plan.eval_lanes == ("sim:judge",)
    assert parts.lanes.names() == ["sim:judge"]
    assert parts.redis.llen(parts.keys.inbox("search")) == 0
    admitted = [line for line in logs if line["event"] == "run_admitted"]
    assert [(line["items"], line["jobs"]) for line in admitted] == [(3, 6)]


def test_a_run_that_starts_later_has_a_plan_that_earlier_workers_can_read(parts: Parts) -> None:
    later = parts.spec(1, version=START_TIME_VERSION, bounds={"start_ms": parts.now_ms + 5000})
    ref = parts.upload(later, [{"q": 1}])

    parts.receiver.tick(None, parts.moment())

    run = parts.backlog.get(ref)
    assert run is not None
    assert (run.plan.spec.version, run.plan.spec.bounds.start_ms) == (1, parts.now_ms + 5000)
    assert float(parts.state(ref)["task_next_ms"]) >= parts.now_ms + 5000


def test_an_empty_run_completes_at_once(parts: Parts) -> None:
    ref = parts.upload(parts.spec(0), [])

    parts.receiver.tick(None, parts.moment())

    assert parts.state(ref)["state"] == RunState.COMPLETED
    assert parts.backlog.get(ref) is None


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"version": 6}, "version: the spec has 6, this scheduler reads 5: upgrade the schedulers"),
        ({"version": "x"}, "version"),
        ({"team": "ads"}, "names run ads/r1"),
        ({"run": "r2"}, "names run search/r2"),
        ({"run": "../../x"}, "run"),
        ({"prompts": []}, "prompts"),
        ({"prompts": [[{"role": "user", "content": "{{ q "}]]}, "prompts[0], message 1"),
        ({"prompts": [[{"role": "user", "content": "{% for %}"}]]}, "prompts[0]"),
        ({"models": ["bare"]}, "<connection>:<model>"),
        ({"models": ["simm:x"]}, "did you mean 'sim'"),
        ({"models": ["sim:{{ x"]}, "models[0]"),
        ({"rows": -1}, "rows"),
        ({"rows": 10**9}, "at most 100,000,000"),
        ({"rows": 10**30}, "rows"),
        ({"repetitions": 10**6}, "repetitions"),
        ({"page_rows": 0}, "page_rows"),
        ({"priority": 10**6}, "priority"),
        ({"timeout": -1}, "timeout"),
        ({"evaluators": [{"kind": "nonsense", "name": "x"}]}, "evaluators"),
        (
            {
                "evaluators": [
                    {"kind": "llm_judge", "name": "j", "model": "x:y", "template": "", "choices": {"a": 1}}
                ]
            },
            "no connection 'x'",
        ),
        (
            {
                "evaluators": [
                    {
                        "kind": "llm_judge",
                        "name": "j",
                        "model": "sim:y",
                        "template": "{{",
                        "choices": {"a": 1},
                    }
                ]
            },
            "evaluators[j].template",
        ),
    ],
)
def test_a_spec_that_is_wrong_is_refused_with_its_reason(
    parts: Parts, fields: dict[str, Any], shown: str
) -> None:
    write(parts, changed(parts, **fields))

    with capture_logs() as logs:
        parts.receiver.tick(None, parts.moment())

    assert shown in reason(parts)
    assert [line["reason"] for line in logs if line["event"] == "run_refused"] == [reason(parts)]
    assert parts.redis.llen(parts.keys.inbox("search")) == 0
    assert parts.redis.pttl(parts.keys.state(REF)) > 0


@pytest.mark.parametrize(
    "text", [b"", b"garbage", b"\xff\xfe", b"[]", b"null", b"1", b'"x"', b"{" * 50_000, b"[" * 50_000]
)
def test_what_is_no_spec_is_refused(parts: Parts, text: bytes) -> None:
    write(parts, text)

    parts.receiver.tick(None, parts.moment())

    assert reason(parts)


def test_a_reason_is_short_even_where_the_spec_is_huge(parts: Parts) -> None:
    write(parts, changed(parts, models=["nowhere:" + "x" * 1_000_000]))

    parts.receiver.tick(None, parts.moment())

    assert len(reason(parts)) <= admitting.REASON_CHARS


def test_a_defect_while_reading_a_spec_refuses_that_run_alone(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts.upload(parts.spec(1, run="poison"), [{"q": 1}])
    good = parts.upload(parts.spec(1, run="good"), [{"q": 1}])
    plan = parts.admission._plan

    def broken(ref: RunRef, text: bytes) -> Any:
        if ref.run == "poison":
            raise ZeroDivisionError
        return plan(ref, text)

    monkeypatch.setattr(parts.admission, "_plan", broken)
    with capture_logs() as logs:
        parts.receiver.tick(None, parts.moment())

    assert reason(parts, RunRef("search", "poison")) == "ZeroDivisionError"
    assert parts.backlog.get(good) is not None
    assert "spec_unreadable" in [line["event"] for line in logs if line["log_level"] == "error"]


def _later(parts: Parts) -> None:
    parts.clock.advance(admitting.SHORT_MS / 1000)
    parts.leader.tick(parts.clock.monotonic_ms(), parts.now_ms)


def test_a_scheduler_without_memory_tries_a_run_again_and_serves_other_teams_meanwhile(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = parts.upload(parts.spec(1, run="large"), [{"q": 1}])
    other = parts.upload(parts.spec(1, team="ads", run="other"), [{"q": 1}])
    plan, failures = parts.admission._plan, iter([True, True, False])

    def short(ref: RunRef, text: bytes) -> Any:
        if ref == run and next(failures):
            raise MemoryError
        return plan(ref, text)

    monkeypatch.setattr(parts.admission, "_plan", short)
    parts.receiver.tick(None, parts.moment())
    assert parts.backlog.get(other) is not None
    for _ in range(2):
        assert parts.backlog.get(run) is None
        _later(parts)
        parts.receiver.tick(None, parts.moment())
    assert parts.backlog.get(run) is not None


def test_a_run_that_never_finds_memory_is_refused(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts.upload(parts.spec(1), [{"q": 1}])
    monkeypatch.setattr(parts.admission, "_plan", Mock(side_effect=MemoryError))
    for _ in range(admitting.SHORT_TRIES):
        parts.receiver.tick(None, parts.moment())
        _later(parts)
    assert reason(parts) == "MemoryError"


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"garbage",
        b"[]",
        b"{}",
        b'{"op":"drop"}',
        b'{"op":"submit"}',
        b'{"op":"submit","run":"a/b"}',
        b"\xff",
    ],
)
def test_an_entry_that_is_no_request_is_passed_over(parts: Parts, entry: bytes) -> None:
    parts.redis.sadd(parts.keys.teams, "search")
    parts.redis.rpush(parts.keys.inbox("search"), entry)
    ref = parts.upload(parts.spec(1), [{"q": 1}])

    parts.receiver.tick(None, parts.moment())

    assert parts.backlog.get(ref) is not None
    assert parts.redis.llen(parts.keys.inbox("search")) == 0


@pytest.mark.parametrize("team", ["", "a/b", "search:run:x", "ä", "x" * 65, "a b"])
def test_a_name_that_no_team_has_is_not_looked_at(parts: Parts, team: str) -> None:
    write(parts, parts.spec(1).model_dump_json(), RunRef(team, "r1"))
    before = sorted(parts.redis.keys())

    parts.receiver.tick(None, parts.moment())
    parts.receiver.tick({team}, parts.moment())

    assert sorted(parts.redis.keys()) == before


def test_a_request_without_a_spec_is_dropped(parts: Parts) -> None:
    parts.redis.sadd(parts.keys.teams, "search")
    parts.redis.rpush(parts.keys.inbox("search"), json.dumps({"op": "submit", "run": "r1"}))

    parts.receiver.tick(None, parts.moment())

    assert parts.redis.llen(parts.keys.inbox("search")) == 0
    assert parts.state(REF) == {}


def test_reading_a_request_again_changes_nothing(parts: Parts) -> None:
    ref = parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    parts.receiver.tick(None, parts.moment())
    parts.feed_all()
    before, queued = parts.state(ref), parts.queued(ref, "sim:fast")

    parts.redis.rpush(parts.keys.inbox("search"), json.dumps({"op": "submit", "run": ref.run}))
    with capture_logs() as logs:
        parts.receiver.tick(None, parts.moment())

    assert (parts.state(ref), parts.queued(ref, "sim:fast")) == (before, queued)
    assert [line["event"] for line in logs] == []


def test_a_cancelled_run_is_forgotten_at_once(parts: Parts) -> None:
    ref = parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    parts.receiver.tick(None, parts.moment())
    parts.feed_all()
    parts.outbox.cancel(ref)

    with capture_logs() as logs:
        parts.receiver.tick({"search"}, parts.moment())

    assert parts.state(ref)["state"] == RunState.CANCELLED
    assert parts.backlog.get(ref) is None
    assert [(line["event"], line["jobs"]) for line in logs] == [("run_cancelled", 3)]


def test_a_paused_run_feeds_nothing_until_it_is_resumed(parts: Parts) -> None:
    ref = parts.upload(parts.spec(500), [{"q": n} for n in range(500)])
    parts.outbox.pause(ref, "ann@host")
    with capture_logs() as logs:
        parts.receiver.tick(None, parts.moment())
        parts.feed_all()
    assert parts.queued(ref, "sim:fast") == []
    assert parts.feeder.wait_ms(parts.moment().monotonic_ms) is None

    parts.outbox.resume(ref, "bob@host")
    with capture_logs() as more:
        parts.receiver.tick({"search"}, parts.moment())
        parts.feed_all()
    assert parts.queued(ref, "sim:fast")
    shown = [
        (line["event"], line["by"])
        for line in (*logs, *more)
        if line["event"] in ("run_paused", "run_resumed")
    ]
    assert shown == [("run_paused", "ann@host"), ("run_resumed", "bob@host")]


def test_a_new_leader_knows_that_a_run_is_paused(parts: Parts) -> None:
    ref = parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    parts.outbox.pause(ref, "")
    parts.receiver.tick(None, parts.moment())
    parts.loader.forget_all()
    parts.loader.refresh()
    run = parts.backlog.get(ref)
    assert run is not None
    assert run.paused


def test_a_team_cannot_pause_the_run_of_another(parts: Parts) -> None:
    ref = parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    parts.outbox.pause(RunRef("ads", ref.run), "ann@host")
    parts.receiver.tick(None, parts.moment())
    assert "paused_ms" not in parts.state(ref)


@pytest.mark.parametrize("by", ["x" * 101, "a\nb", "\u001b[31m", 7, None])
def test_a_name_that_could_not_be_shown_makes_a_request_none(parts: Parts, by: object) -> None:
    ref = parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    parts.redis.rpush(parts.keys.inbox("search"), json.dumps({"op": "pause", "run": ref.run, "by": by}))
    parts.receiver.tick(None, parts.moment())
    assert parts.state(ref)["state"] == RunState.RUNNING
    assert "paused_ms" not in parts.state(ref)


def test_a_client_s_name_is_made_fit_to_be_shown(parts: Parts) -> None:
    ref = parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    parts.outbox.pause(ref, "\x1b[31m" + "é" * 200)
    parts.receiver.tick(None, parts.moment())
    assert parts.state(ref)["paused_by"] == "[31m" + "é" * 96


def test_a_run_that_is_cancelled_before_it_was_read_is_admitted_and_cancelled(parts: Parts) -> None:
    ref = parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    parts.outbox.cancel(ref)

    parts.receiver.tick(None, parts.moment())

    assert parts.state(ref)["state"] == RunState.CANCELLED


def test_a_team_cannot_cancel_the_run_of_another(parts: Parts) -> None:
    ref = parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    parts.receiver.tick(None, parts.moment())
    parts.outbox.cancel(RunRef("ads", ref.run))

    parts.receiver.tick(None, parts.moment())

    assert parts.state(ref)["state"] == RunState.RUNNING


def test_only_the_announced_inboxes_are_read(parts: Parts) -> None:
    search = parts.upload(parts.spec(1), [{"q": 1}])
    ads = parts.upload(parts.spec(1, team="ads"), [{"q": 1}])

    parts.receiver.tick({"ads"}, parts.moment())

    assert parts.backlog.get(ads) is not None
    assert parts.backlog.get(search) is None


def test_the_next_call_is_due_when_the_first_of_the_waiting_teams_may_be_served(parts: Parts) -> None:
    for team, wait_ms in (("ads", 400), ("search", 90), ("shop", 700)):
        parts.upload(parts.spec(1, team=team), [{"q": 1}])
        parts.receiver._awaited_ms[team] = parts.clock.monotonic_ms() + wait_ms

    assert parts.receiver.tick(None, parts.moment()) == 90


def test_a_long_inbox_is_read_to_its_end(parts: Parts) -> None:
    for n in range(130):
        parts.upload(parts.spec(1, run=f"r{n}"), [{"q": 1}])

    assert parts.receiver.tick({"search"}, parts.moment()) is None

    assert len(list(parts.backlog.runs())) == 130


def test_a_tick_ends_in_time_and_goes_on_where_it_was(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5):
        parts.upload(parts.spec(1, run=f"r{n}"), [{"q": 1}])
    admit = parts.runs.admit

    def slowly(*args: Any, **bounds: Any) -> int:
        parts.clock.advance(0.06)
        return admit(*args, **bounds)

    monkeypatch.setattr(parts.runs, "admit", slowly)

    assert parts.receiver.tick({"search"}, parts.moment()) == 0
    assert len(list(parts.backlog.runs())) == 2

    assert parts.receiver.tick(set(), parts.moment()) == 0
    assert parts.receiver.tick(set(), parts.moment()) is None
    assert len(list(parts.backlog.runs())) == 5


def test_an_announced_inbox_is_read_before_those_that_wait_their_turn(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(500):
        parts.redis.rpush(parts.keys.inbox(f"other{n}"), b"nothing")
    peek = parts.inbox.peek

    def slowly(team: str) -> Any:
        parts.clock.advance(0.001)
        return peek(team)

    monkeypatch.setattr(parts.inbox, "peek", slowly)
    assert parts.receiver.tick(None, parts.moment()) == 0
    ref = parts.upload(parts.spec(1), [{"q": 1}])

    assert parts.receiver.tick({"search"}, parts.moment()) == 0

    assert parts.backlog.get(ref) is not None


@pytest.mark.parametrize("op", ["submit", "cancel"])
def test_a_deposed_leader_leaves_requests_to_the_one_that_leads(parts: Parts, op: str) -> None:
    ref = parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    if op == "cancel":
        parts.receiver.tick(None, parts.moment())
        parts.outbox.cancel(ref)
    moment = parts.moment()
    parts.depose()
    before = parts.state(ref)

    with pytest.raises(NotLeader):
        parts.receiver.tick(None, moment)

    assert parts.state(ref) == before
    assert parts.redis.llen(parts.keys.inbox("search")) == 1


def test_a_redis_that_goes_away_in_between_loses_no_request(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = parts.upload(parts.spec(3), [{"q": n} for n in range(3)])
    with monkeypatch.context() as patch:
        patch.setattr(parts.inbox, "drop", _away)
        with pytest.raises(RedisConnectionError):
            parts.receiver.tick(None, parts.moment())
    assert parts.redis.llen(parts.keys.inbox("search")) == 1

    parts.receiver.tick(None, parts.moment())

    assert parts.state(ref)["state"] == RunState.RUNNING
    assert parts.redis.llen(parts.keys.inbox("search")) == 0


def _away(*_: object) -> None:
    raise RedisConnectionError("gone")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), garbage=json_values)
def test_whatever_a_client_writes_ends_as_running_completed_or_refused(
    fake_redis: Redis, data: st.DataObject, garbage: object
) -> None:
    fake_redis.flushall()
    parts = Parts(fake_redis)
    good = json.loads(parts.spec(2).model_dump_json())
    field = data.draw(st.sampled_from([*sorted(good), "surprise"]), label="field")
    write(parts, json.dumps(good | {field: garbage}))

    parts.receiver.tick(None, parts.moment())
    parts.feed_all()

    assert parts.redis.llen(parts.keys.inbox("search")) == 0
    assert parts.state(REF)["state"] in {RunState.RUNNING, RunState.COMPLETED, RunState.REFUSED}


@pytest.mark.parametrize("op", ["cancel", "pause", "resume"])
def test_a_flood_of_controls_takes_a_tenth_of_the_schedulers_time(
    fake_redis: Redis, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    monkeypatch.setattr(ManualClock, "cpu_ms", lambda self: float(self.monotonic_ms()))
    parts, acted = Parts(fake_redis), list[str]()

    def act(ref: RunRef, *_: object) -> None:
        parts.clock.advance(0.001)
        acted.append(ref.team)

    monkeypatch.setattr(parts.requests, "act", act)
    for team, count in (("flood", 5000), ("search", 20)):
        parts.redis.sadd(parts.keys.teams, team)
        entries = [json.dumps({"op": op, "run": f"r{n}"}) for n in range(count)]
        parts.redis.rpush(parts.keys.inbox(team), *entries)
    started_ms, wait_ms = parts.clock.monotonic_ms(), 0
    while parts.clock.monotonic_ms() - started_ms < 4000:
        parts.redis.hset(parts.keys.leader, "until_ms", parts.now_ms + 60_000)
        wait_ms = parts.receiver.tick({"flood", "search"}, parts.moment()) or 0
        parts.clock.advance(max(1, wait_ms) / 1000)
    assert acted.count("search") == 20
    assert 400 <= acted.count("flood") <= 500


def test_controls_of_a_person_are_not_throttled(parts: Parts) -> None:
    ref = parts.admit(3).ref
    for _ in range(20):
        parts.outbox.pause(ref, "ann")
        parts.outbox.resume(ref, "ann")
    assert parts.receiver.tick(None, parts.moment()) is None
    assert parts.redis.llen(parts.keys.inbox(ref.team)) == 0
