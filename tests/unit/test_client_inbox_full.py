"""A client whose team has many requests waiting submits nothing, and may try again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from redis import Redis

from fairlane import Client, InboxFull
from fairlane.config.settings import Settings
from fairlane.model.run import RunState
from tests.support.stage import Stage

MOST = 3


@pytest.fixture
def stage(fake_redis: Redis) -> Stage:
    made = Stage(fake_redis)
    limits = {"scheduler": {"limits": {"waiting_requests": MOST}}}
    settings = Settings.model_validate({"redis": {"deployment": "test"}, "team": "search"} | limits)
    made.client = Client(settings=settings, redis=fake_redis, clock=made.clock, waiter=made)
    return made


def submit(stage: Stage) -> Any:
    return stage.client.submit([{"q": "1"}], prompt="{{ q }}", model="sim:fast")


def test_a_submission_beyond_those_that_may_wait_is_an_error_and_writes_nothing(stage: Stage) -> None:
    runs = [submit(stage) for _ in range(MOST)]
    before = sorted(stage.redis.scan_iter())
    for attempt in (submit, lambda stage: stage.client.open(prompt="{{ q }}", model="sim:fast")):
        with pytest.raises(InboxFull, match=r"3 requests of team search wait .*waiting_requests") as raised:
            attempt(stage)
        assert (raised.value.team, raised.value.waiting) == ("search", MOST)
    assert sorted(stage.redis.scan_iter()) == before
    stage.admit()
    assert {run.status().state for run in [*runs, submit(stage)]} == {RunState.RUNNING, RunState.SUBMITTED}


def test_what_steers_a_run_is_always_sent(stage: Stage) -> None:
    runs = [submit(stage) for _ in range(MOST)]
    for run in runs:
        run.pause()
        run.cancel()
    assert stage.redis.llen(stage.keys.inbox("search")) == 3 * MOST


def test_the_error_can_be_copied_between_processes() -> None:
    error = copy.copy(InboxFull("search", 5, 3))
    assert (error.team, error.waiting, str(error)) == ("search", 5, str(InboxFull("search", 5, 3)))
