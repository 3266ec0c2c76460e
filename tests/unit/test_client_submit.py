from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from fairlane.client.client import Client
from fairlane.config.sections import PayloadLimits, RedisSettings, SchedulerSettings
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError, StoreUnavailable, SubmissionError
from fairlane.datasets.rows import decode_page
from fairlane.model.run import RunRef, RunState
from fairlane.store.write.runs.inbox import Inbox, Outbox, Request
from tests.support.contents import read_contents
from tests.support.stage import Stage

ROWS = [{"question": f"q{n}", "answer": n} for n in range(3)]


def submit(stage: Stage, dataset: Any = ROWS, **arguments: Any) -> Any:
    return stage.client.submit(dataset, **{"prompt": "{{ question }}", "model": "sim:fast"} | arguments)


def requests(stage: Stage) -> list[Request | None]:
    return list(Inbox(stage.redis, stage.keys).peek("search"))


def test_a_submitted_run_waits_for_the_scheduler(stage: Stage) -> None:
    run = submit(stage, repetitions=2, name="gsm8k")
    status = run.status()
    assert (status.state, status.items, status.jobs, status.jobs_done) == (RunState.SUBMITTED, 6, 6, 0)
    assert (run.team, run.name, status.name) == ("search", "gsm8k", "gsm8k")
    assert requests(stage) == [Request(op="submit", run=run.id)]


def test_the_rows_are_written_as_they_are_given(stage: Stage) -> None:
    run = submit(stage, iter(ROWS))
    page = stage.redis.hget(stage.keys.rows(RunRef("search", run.id)), "0")
    assert decode_page(page) == ROWS


@pytest.mark.parametrize("opened", [False, True])
def test_a_row_may_be_as_large_as_the_settings_say(stage: Stage, opened: bool) -> None:
    def send(client: Client) -> None:
        rows = [{"question": "what is this?", "image": "x" * 1_500_000}]
        if not opened:
            client.submit(rows, "{{ question }}", model="sim:fast")
            return
        with client.open("{{ question }}", model="sim:fast") as writer:
            writer.extend(rows)

    with pytest.raises(SubmissionError, match=r"raise scheduler\.limits\.row_bytes"):
        send(stage.client)
    limits = SchedulerSettings(limits=PayloadLimits(row_bytes=2_000_000))
    raised = Settings(redis=RedisSettings(deployment="test"), team="search", scheduler=limits)
    send(Client(settings=raised, redis=stage.redis, clock=stage.clock, waiter=stage))


def test_an_empty_dataset_completes_as_soon_as_it_is_admitted(stage: Stage) -> None:
    run = submit(stage, [], check=False)
    stage.then(stage.admit)
    assert run.wait().state is RunState.COMPLETED
    assert list(run.results()) == []
    assert list(run.stream()) == []


def test_ids_sort_by_time_and_are_valid(stage: Stage) -> None:
    ids = [submit(stage).id for _ in range(20)]
    assert len(set(ids)) == 20
    assert all(re.fullmatch(r"[a-z0-9]{14}", each) for each in ids)
    assert sorted(each[:9] for each in ids) == [each[:9] for each in ids]


def test_a_dataset_is_uploaded_while_it_is_read(stage: Stage) -> None:
    pages_before_the_end: list[int] = []

    def rows() -> Iterator[dict[str, int]]:
        yield from ({"question": n} for n in range(1200))
        (key,) = stage.redis.keys("*:rows")
        pages_before_the_end.append(stage.redis.hlen(key))

    submit(stage, rows())
    assert pages_before_the_end == [2]


@pytest.mark.parametrize(
    "arguments",
    [
        {"repetitions": 0},
        {"model": "fast"},
        {"prompt": "{{"},
        {"params": {"seed": object()}},
        {"timeout": -1.0},
    ],
)
def test_a_wrong_argument_writes_nothing(stage: Stage, arguments: dict[str, Any]) -> None:
    before = read_contents(stage.redis)
    with pytest.raises(SubmissionError):
        submit(stage, **arguments)
    assert read_contents(stage.redis) == before


@pytest.mark.parametrize("error", [ValueError("line 601 is no row"), KeyboardInterrupt()])
def test_rows_already_uploaded_are_taken_back(stage: Stage, error: BaseException) -> None:
    def rows() -> Iterator[dict[str, int]]:
        yield from ({"question": n} for n in range(600))
        raise error

    before = read_contents(stage.redis)
    with pytest.raises(type(error)):
        submit(stage, rows())
    assert read_contents(stage.redis) == before


def test_a_hand_over_that_is_interrupted_leaves_no_run(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    really_submit = Outbox.submit

    def interrupted(self: Outbox, spec: Any) -> None:
        really_submit(self, spec)
        raise KeyboardInterrupt

    monkeypatch.setattr(Outbox, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        submit(stage)
    assert not stage.redis.keys("*:spec")
    assert not stage.redis.keys("*:rows")
    stage.admit()
    assert stage.client.runs() == []


def test_a_run_that_was_admitted_despite_a_lost_answer_is_cancelled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_submit = Outbox.submit

    def lost(self: Outbox, spec: Any) -> None:
        really_submit(self, spec)
        stage.admit()
        raise RedisConnectionError("the answer was lost")

    monkeypatch.setattr(Outbox, "submit", lost)
    with pytest.raises(StoreUnavailable):
        submit(stage)
    stage.admit()
    assert [status.state for status in stage.client.runs()] == [RunState.CANCELLED]


def test_a_connection_that_is_not_in_the_catalog_is_refused(stage: Stage) -> None:
    stage.redis.set(stage.keys.catalog, json.dumps({"connections": {"openai": {"protocol": "openai"}}}))
    with pytest.raises(SubmissionError, match="Did you mean 'openai'"):
        submit(stage, model="opnai:gpt-4o")
    assert submit(stage, model="openai:gpt-4o").status().state is RunState.SUBMITTED


@pytest.mark.parametrize("catalog", [b"{", b"[]", b"{}", b'{"connections": 3}'])
def test_a_catalog_that_cannot_be_read_refuses_nothing(stage: Stage, catalog: bytes) -> None:
    stage.redis.set(stage.keys.catalog, catalog)
    assert submit(stage).status().state is RunState.SUBMITTED


def test_an_unreachable_redis_is_reported_without_its_password() -> None:
    with pytest.raises(StoreUnavailable) as raised:
        Client("redis://user:hunter2@127.0.0.1:1/0", settings=Settings())
    assert "127.0.0.1:1" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_redis_that_goes_away_is_reported_in_our_words(stage: Stage) -> None:
    run = submit(stage)
    server_of(stage).connected = False
    for act in (
        run.status,
        run.cancel,
        stage.client.runs,
        lambda: stage.client.run(run.id),
        lambda: submit(stage),
    ):
        with pytest.raises(StoreUnavailable):
            act()


def test_url_and_team_win_over_settings(fake_redis: Redis) -> None:
    client = Client("redis://elsewhere:1/0", team="ads", settings=Settings(team="search"), redis=fake_redis)
    assert client.team == "ads"


def test_a_team_that_cannot_be_a_key_is_refused(fake_redis: Redis) -> None:
    for settings in (None, Settings()):
        with pytest.raises(ConfigurationError) as raised:
            Client(team="a/b", settings=settings, redis=fake_redis)
        assert raised.value.field == "team"


def test_a_client_closes_only_what_it_opened(stage: Stage) -> None:
    with stage.client:
        pass
    assert stage.redis.ping()


def server_of(stage: Stage) -> fakeredis.FakeServer:
    return stage.redis.connection_pool.connection_kwargs["server"]
