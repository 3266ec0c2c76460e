"""Children compile the templates of submitted runs: a tick only asks, and no team waits for another's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from fairlane.core.errors import CutOff, NoChild
from fairlane.model.choices import Message
from fairlane.model.run import RunRef, RunState
from fairlane.templates import template
from fairlane_scheduler.intake.template_check import LOOK_MS, NO_CHILD_MS
from tests.support.scheduler_parts import Parts
from tests.support.slow_pool import SlowPool

HARD = "{{ q | upper }}"
BROKEN = "{% if q %}no end"


@pytest.fixture
def pool() -> SlowPool:
    return SlowPool()


@pytest.fixture
def parts(fake_redis: Redis, pool: SlowPool, monkeypatch: pytest.MonkeyPatch) -> Parts:
    """A scheduler with children. A template that is compiled outside of them fails the test."""
    compiled = template._compiled

    def only_in_children(text: str) -> Any:
        assert pool.works, "a template was compiled in the scheduler's tick"
        return compiled(text)

    monkeypatch.setattr(template, "_compiled", only_in_children)
    return Parts(fake_redis, pool=pool)


def submit(parts: Parts, run: str, text: str, team: str = "search") -> RunRef:
    prompts = ((Message(role="user", content=text),),)
    return parts.upload(parts.spec(2, run=run, team=team, prompts=prompts), [{"q": n} for n in range(2)])


def tick(parts: Parts) -> int | None:
    return parts.receiver.tick(None, parts.moment())


def state(parts: Parts, ref: RunRef) -> str:
    return parts.state(ref).get("state", "")


def test_a_run_is_admitted_once_a_child_has_compiled_its_templates(parts: Parts, pool: SlowPool) -> None:
    ref = submit(parts, "r1", HARD)
    for _ in range(3):
        assert tick(parts) == LOOK_MS
        assert state(parts, ref) == ""
        parts.clock.advance(LOOK_MS / 1000)
    assert [piece.what for _, piece, *_ in pool.waiting] == ["templates"], "it is asked for once"
    assert pool.do_all() == 1
    assert tick(parts) is None
    assert state(parts, ref) == RunState.RUNNING
    assert parts.redis.llen(parts.keys.inbox("search")) == 0


def test_plain_templates_need_no_child(parts: Parts, pool: SlowPool) -> None:
    ref = submit(parts, "r1", "What is {{ q }}?")
    tick(parts)
    assert state(parts, ref) == RunState.RUNNING
    assert pool.waiting == []


def test_others_are_admitted_meanwhile_and_the_teams_own_requests_keep_their_order(
    parts: Parts, pool: SlowPool
) -> None:
    hard, behind = submit(parts, "r1", HARD), submit(parts, "r2", "plain")
    other = submit(parts, "r3", "plain", team="maps")
    assert tick(parts) == LOOK_MS
    assert (state(parts, hard), state(parts, behind)) == ("", "")
    assert state(parts, other) == RunState.RUNNING
    pool.do_all()
    parts.clock.advance(LOOK_MS / 1000)
    tick(parts)
    assert (state(parts, hard), state(parts, behind)) == (RunState.RUNNING, RunState.RUNNING)


def test_a_template_that_does_not_compile_refuses_its_run_with_its_field_and_line(
    parts: Parts, pool: SlowPool
) -> None:
    ref = submit(parts, "r1", BROKEN)
    tick(parts)
    pool.do_all()
    parts.clock.advance(LOOK_MS / 1000)
    assert tick(parts) is None
    assert state(parts, ref) == RunState.REFUSED
    assert parts.state(ref)["reason"].startswith("prompts[0], message 1: line 1: ")


def test_templates_that_take_too_long_to_compile_refuse_their_run(parts: Parts, pool: SlowPool) -> None:
    ref = submit(parts, "r1", HARD)
    tick(parts)
    pool.do_all(CutOff("templates", "took more than 2 s of CPU", "sandbox.cpu_seconds"))
    parts.clock.advance(LOOK_MS / 1000)
    tick(parts)
    assert state(parts, ref) == RunState.REFUSED
    assert "sandbox.cpu_seconds" in parts.state(ref)["reason"]


def test_a_run_waits_where_no_child_starts_and_is_asked_for_again(parts: Parts, pool: SlowPool) -> None:
    ref = submit(parts, "r1", HARD)
    tick(parts)
    pool.do_all(NoChild("no child process for what teams wrote can be started: no memory"))
    parts.clock.advance(LOOK_MS / 1000)
    assert tick(parts) == NO_CHILD_MS
    assert state(parts, ref) == ""
    assert pool.do_all() == 1
    parts.clock.advance(NO_CHILD_MS / 1000)
    tick(parts)
    assert state(parts, ref) == RunState.RUNNING


def test_a_request_that_is_gone_while_a_child_compiles_is_forgotten(parts: Parts, pool: SlowPool) -> None:
    submit(parts, "r1", HARD)
    tick(parts)
    parts.redis.delete(parts.keys.inbox("search"))
    other = submit(parts, "r2", HARD)
    parts.clock.advance(LOOK_MS / 1000)
    tick(parts)
    pool.do_all()
    parts.clock.advance(LOOK_MS / 1000)
    tick(parts)
    assert state(parts, other) == RunState.RUNNING
    assert state(parts, RunRef("search", "r1")) == ""


def test_a_new_term_asks_again(parts: Parts, pool: SlowPool) -> None:
    ref = submit(parts, "r1", HARD)
    tick(parts)
    parts.receiver.forget_all()
    pool.waiting.clear()
    assert tick(parts) == LOOK_MS
    pool.do_all()
    parts.clock.advance(LOOK_MS / 1000)
    tick(parts)
    assert state(parts, ref) == RunState.RUNNING


def test_requests_behind_a_run_that_is_awaited_are_kept(parts: Parts, pool: SlowPool) -> None:
    ref = submit(parts, "r1", HARD)
    parts.redis.rpush(parts.keys.inbox("search"), json.dumps({"op": "cancel", "run": "r1", "by": "ann"}))
    tick(parts)
    assert parts.redis.llen(parts.keys.inbox("search")) == 2
    pool.do_all()
    parts.clock.advance(LOOK_MS / 1000)
    tick(parts)
    assert state(parts, ref) == RunState.CANCELLED
