"""A new leader finds requests that nobody heard of, in a second or two, however many keys Redis has."""

from __future__ import annotations

import json

import fakeredis
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.model.run import RunRef, RunState
from fairlane.store.write.runs.inbox import OVERDUE_MS, Inbox
from fairlane_scheduler.intake.receiver import SEARCH_MS, TICK_MS
from tests.support.scheduler_parts import Parts
from tests.support.stage import Stage

REF = RunRef("newteam", "r1")


class ManyKeys(Inbox):
    """An inbox beside so many pages of foreign keys; a page takes ``page_ms`` of the clock."""

    def __init__(self, parts: Parts, pages: int, page_ms: int, place: int) -> None:
        super().__init__(parts.redis, parts.keys)
        self._clock, self._pages, self._page_s, self._place = parts.clock, pages, page_ms / 1000, place

    def search(self, cursor: int) -> tuple[int, list[str]]:
        """The page at the cursor, which has the team's inbox at its place alone."""
        self._clock.advance(self._page_s)
        found = [REF.team] if cursor == self._place else []
        return (cursor + 1) % self._pages, found


def submitted(parts: Parts) -> None:
    """A run of a team that no scheduler knows; nobody hears of it."""
    spec = parts.spec(1, team=REF.team, run=REF.run)
    parts.outbox.upload(REF, [[{"q": 1}]])
    parts.redis.set(parts.keys.spec(REF), spec.model_dump_json())
    parts.redis.rpush(parts.keys.inbox(REF.team), json.dumps({"op": "submit", "run": REF.run}))


@settings(max_examples=30)
@given(pages=st.integers(1, 5000), page_ms=st.integers(1, 5), part=st.floats(0, 1, exclude_max=True))
def test_a_lost_announcement_costs_no_longer_than_a_scan(pages: int, page_ms: int, part: float) -> None:
    parts = Parts(fakeredis.FakeRedis())
    submitted(parts)
    parts.receiver._inbox = ManyKeys(parts, pages, page_ms, int(part * pages))
    parts.receiver.forget_all()
    began, longest = parts.clock.monotonic_ms(), 0
    teams: set[str] | None = None
    while True:
        tick = parts.clock.monotonic_ms()
        parts.leader.tick(tick, parts.now_ms)
        wait_ms = parts.receiver.tick(teams, parts.moment())
        longest = max(longest, parts.clock.monotonic_ms() - tick)
        if wait_ms != 0:
            break
        teams = set()

    assert parts.state(REF)["state"] == RunState.RUNNING
    assert parts.clock.monotonic_ms() - began <= pages * page_ms + 1000
    assert longest <= SEARCH_MS + TICK_MS + page_ms + 1


def test_later_scans_take_a_page_of_a_housekeeping_tick(parts: Parts) -> None:
    parts.receiver.tick(None, parts.moment())
    many = ManyKeys(parts, 100, 10, 99)
    parts.receiver._inbox = many
    before = parts.clock.monotonic_ms()

    assert parts.receiver.tick(None, parts.moment()) is None
    assert parts.receiver.tick(set(), parts.moment()) is None

    assert parts.clock.monotonic_ms() - before == 10


def test_a_client_that_waits_announces_its_submission_again(stage: Stage) -> None:
    run = stage.client.submit([{"q": 1}], prompt="{{ q }}", model="sim:fast")
    with stage.redis.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(stage.keys.wake)
        heard.get_message(timeout=1)
        waited: list[float] = []

        def look() -> None:
            while message := heard.get_message(timeout=0.01):
                assert message["data"] == b"inbox:search"
                waited.append(sum(stage.waits))

        stage.then(*[look] * 20, stage.admit, lambda: stage.answer(run.id))
        assert run.wait().state is RunState.COMPLETED

    assert OVERDUE_MS <= waited[0] * 1000 <= OVERDUE_MS + 1000
    assert waited[1] - waited[0] >= 4
