"""Feeding: items find their lanes, invalid ones are recorded, nothing is read further ahead than needed."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from fairlane.core.errors import BrokenPage, UnreadableRow
from fairlane.datasets.rows import encode_page
from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import RunState
from fairlane_scheduler.feed import feeder as feeding
from fairlane_scheduler.feed import placement
from fairlane_scheduler.feed.feeder import (
    BATCH_ITEMS,
    ENOUGH_QUEUED,
    READ_AHEAD_EVERY_MS,
    READ_AHEAD_JOBS,
    TICK_ITEMS,
)
from fairlane_scheduler.feed.placement import PAGES_KEPT, RowPages
from tests.support.scheduler_parts import Parts


def test_one_stretch_is_handed_out_and_queued_in_order(parts: Parts) -> None:
    run = parts.admit(300)

    parts.feeder.tick(parts.moment())

    assert run.cursor == BATCH_ITEMS
    assert parts.backlog.count("sim:fast", run.ref) == BATCH_ITEMS
    jobs = [int(entry.partition(":")[0]) for entry in parts.queued(run.ref, "sim:fast")]
    assert jobs == list(range(BATCH_ITEMS))
    assert parts.lanes.names() == ["sim:fast"]


def test_a_lane_that_is_supplied_is_not_read_ahead_of(parts: Parts) -> None:
    run = parts.admit(1000)
    parts.feeder.tick(parts.moment())

    assert parts.feeder.wait_ms(parts.clock.monotonic_ms()) is None
    parts.feeder.tick(parts.moment())
    assert run.cursor == BATCH_ITEMS

    parts.backlog.set_queued("sim:fast", run.ref, BATCH_ITEMS - 1)
    assert parts.feeder.wait_ms(parts.clock.monotonic_ms()) == 0


def test_a_template_sends_items_to_several_lanes(parts: Parts) -> None:
    rows = [{"q": n, "lane": ["fast", "slow", "shared"][n % 3]} for n in range(30)]
    run = parts.admit(rows, model="{{ 'shared:any' if lane == 'shared' else 'sim:' + lane }}")

    parts.feed_all()

    counts = Counter({lane: parts.backlog.count(lane, run.ref) for lane in parts.lanes.names()})
    assert counts == {"sim:fast": 10, "sim:slow": 10, "shared": 10}
    assert run.task_lanes == {"sim:fast", "sim:slow", "shared"}


def test_job_numbers_leave_room_for_the_judges(parts: Parts) -> None:
    run = parts.admit(3, judges=["sim:judge", "sim:judge2"])

    parts.feed_all()

    assert [entry.partition(":")[0] for entry in parts.queued(run.ref, "sim:fast")] == ["0", "3", "6"]


def test_an_item_that_misses_a_variable_is_recorded_with_its_judges_skipped(parts: Parts) -> None:
    run = parts.admit([{"q": 1}, {"other": 1}], judges=["sim:judge"])

    parts.feed_all()

    stored = parts.redis.hgetall(parts.keys.results(run.ref))
    task, judge = TaskResult.from_json(stored[b"2"]), JudgeResult.from_json(stored[b"3"])
    assert (task.state, judge.state, len(stored)) == (JobState.INVALID, JobState.SKIPPED, 2)
    assert "'q'" in str(task.error)
    assert task.model == "sim:fast"
    assert len(parts.queued(run.ref, "sim:fast")) == 1


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("nowhere:x", "no connection 'nowhere'"),
        ("simm:x", "did you mean 'sim'"),
        ("bare", "<connection>:<model>"),
        ("", "<connection>:<model>"),
        ("sim:a\nb", "printable"),
        ("sim:" + "x" * 300, "characters"),
        ("sim:\x00", "printable"),
    ],
)
def test_a_model_that_leads_nowhere_makes_its_item_invalid(parts: Parts, model: str, problem: str) -> None:
    run = parts.admit([{"q": 1, "m": model}], model="{{ m }}")

    parts.feed_all()

    task = TaskResult.from_json(parts.redis.hgetall(parts.keys.results(run.ref))[b"0"])
    assert task.state is JobState.INVALID
    assert problem in str(task.error)
    assert parts.state(run.ref)["state"] == RunState.COMPLETED


def test_a_model_that_no_text_encodes_makes_its_item_invalid(parts: Parts) -> None:
    run = parts.admit(1, model="{{ m }}")
    page = json.dumps([{"q": 1, "m": "sim:\ud800"}])
    parts.redis.hset(parts.keys.rows(run.ref), "0", zlib.compress(page.encode()))

    parts.feed_all()

    task = TaskResult.from_json(parts.redis.hgetall(parts.keys.results(run.ref))[b"0"])
    assert task.state is JobState.INVALID


def test_rows_cannot_open_lanes_without_end(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane_scheduler.lanes.registry.MOST_LANES", 5)
    run = parts.admit([{"q": 1, "m": n} for n in range(300)], model="sim:model{{ m }}")

    parts.feed_all()

    assert len(parts.lanes.names()) == 5
    assert parts.state(run.ref)["n:invalid"] == str(300 - 5)


def test_a_run_without_a_single_valid_item_is_finished_by_feeding(parts: Parts) -> None:
    run = parts.admit([{"x": 1}] * 5, judges=["sim:judge"])

    with capture_logs() as logs:
        parts.feed_all()

    assert parts.state(run.ref)["state"] == RunState.COMPLETED
    assert parts.backlog.get(run.ref) is None
    assert [line["event"] for line in logs if line["event"] == "run_finished"] == ["run_finished"]


def test_the_feeder_reads_past_a_slow_lane_so_that_a_fast_one_is_supplied(parts: Parts) -> None:
    rows = [{"q": n, "lane": "slow" if n % 3 == 2 else "fast"} for n in range(900)]
    run = parts.admit(rows + [{"q": n, "lane": "fast"} for n in range(900)], model="sim:{{ lane }}")
    parts.feeder.tick(parts.moment())

    for _ in range(40):
        parts.clock.advance(READ_AHEAD_EVERY_MS / 1000)
        parts.backlog.set_queued("sim:fast", run.ref, max(0, parts.backlog.count("sim:fast", run.ref) - 20))
        parts.feeder.tick(parts.moment())
        assert parts.backlog.count("sim:fast", run.ref) >= BATCH_ITEMS // 2
    assert parts.backlog.count("sim:slow", run.ref) > BATCH_ITEMS


def test_a_lane_that_no_row_has_named_yet_is_looked_for_at_leisure(parts: Parts) -> None:
    rows = [{"q": n, "lane": "slow"} for n in range(3 * BATCH_ITEMS)] + [{"q": 1, "lane": "fast"}]
    run = parts.admit(rows, model="sim:{{ lane }}")
    parts.feeder.tick(parts.moment())
    assert 0 < (parts.feeder.wait_ms(parts.clock.monotonic_ms()) or 0) <= READ_AHEAD_EVERY_MS

    for _ in range(3):
        parts.clock.advance(READ_AHEAD_EVERY_MS / 1000)
        parts.feeder.tick(parts.moment())

    assert parts.backlog.count("sim:fast", run.ref) == 1


def test_the_look_for_unseen_lanes_has_an_end(parts: Parts) -> None:
    run = parts.admit(10, model="sim:{{ 'slow' }}")
    run.cursor = 1
    run.task_lanes.add("sim:slow")
    parts.backlog.set_queued("sim:slow", run.ref, READ_AHEAD_JOBS)

    assert parts.feeder.wait_ms(parts.clock.monotonic_ms()) is None


def test_a_deep_run_is_read_ahead_of_at_leisure(parts: Parts) -> None:
    run = parts.admit(1000)
    run.task_lanes |= {"sim:fast", "sim:slow"}
    parts.backlog.set_queued("sim:slow", run.ref, ENOUGH_QUEUED)

    parts.feeder.tick(parts.moment())
    parts.backlog.set_queued("sim:fast", run.ref, 0)

    assert parts.feeder.wait_ms(parts.clock.monotonic_ms()) == READ_AHEAD_EVERY_MS
    parts.feeder.tick(parts.moment())
    assert run.cursor == BATCH_ITEMS
    parts.clock.advance(READ_AHEAD_EVERY_MS / 1000)
    parts.feeder.tick(parts.moment())
    assert run.cursor == 2 * BATCH_ITEMS


def test_a_tick_feeds_a_bounded_number_of_items_and_then_goes_on(parts: Parts) -> None:
    runs = [parts.admit(BATCH_ITEMS, run=f"r{n}") for n in range(20)]

    parts.feeder.tick(parts.moment())
    assert sum(run.cursor for run in runs) == TICK_ITEMS
    assert parts.feeder.wait_ms(parts.clock.monotonic_ms()) == 0

    parts.feeder.tick(parts.moment())
    parts.feeder.tick(parts.moment())
    assert all(run.fully_fed for run in runs)


def test_a_batch_of_costly_items_ends_early(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    run = parts.admit(100)
    draft = placement.Placement._place_one

    def slowly(self: placement.Placement, *args: Any) -> placement.PlacedItem | None:
        drafted = draft(self, *args)
        parts.clock.advance(0.004)
        return drafted

    monkeypatch.setattr(placement.Placement, "_place_one", slowly)

    parts.feeder.tick(parts.moment())

    assert run.cursor == 3


def test_a_run_that_breaks_the_feeder_is_set_aside_and_the_others_go_on(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, whole = parts.admit(10, run="broken"), parts.admit(10, run="whole")
    place = placement.Placement.place

    def poisoned(self: placement.Placement, run: Any, *args: Any) -> tuple[placement.FeedBatch, int]:
        if run is broken:
            raise MemoryError
        return place(self, run, *args)

    monkeypatch.setattr(placement.Placement, "place", poisoned)
    with capture_logs() as logs:
        parts.feeder.tick(parts.moment())

    assert (broken.cursor, whole.cursor) == (0, 10)
    assert [(line["event"], line["log_level"]) for line in logs if "failed" in line["event"]] == [
        ("feeding_failed", "error")
    ]
    assert parts.feeder.wait_ms(parts.clock.monotonic_ms()) == feeding.BROKEN_RUN_PAUSE_MS


def test_the_feeder_waits_for_the_first_of_its_paused_runs(parts: Parts) -> None:
    until_ms = parts.clock.monotonic_ms() + 1000
    for n, later_ms in enumerate((900, 0, 400)):
        parts.feeder._paused_until_ms[parts.admit(10, run=f"r{n}").ref] = until_ms + later_ms
    assert parts.feeder.wait_ms(parts.clock.monotonic_ms()) == 1000


def test_a_team_that_opens_many_lanes_opens_a_few_at_a_time(parts: Parts) -> None:
    run = parts.admit([{"q": n, "m": f"new{n}"} for n in range(30)], model="sim:{{ m }}")
    opened = []
    for _ in range(80):
        parts.feeder.tick(parts.moment())
        opened.append(len(parts.lanes.names()))
        parts.clock.advance(0.01)
    steps = {later - earlier for earlier, later in pairwise(opened)}
    assert max(steps) == feeding.OPENED_AT_ONCE, "others are served in between"
    assert run.fully_fed


def test_an_item_that_raises_what_nobody_expected_is_invalid_and_its_run_ends(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = parts.admit(3)
    rendered = placement.Rendering.task

    def raising(self: placement.Rendering, cell: Any, row: Any, *more: Any) -> Any:
        if row["q"] != 1:
            raise RecursionError("maximum recursion depth exceeded")
        return rendered(self, cell, row, *more)

    monkeypatch.setattr(placement.Rendering, "task", raising)
    with capture_logs() as logs:
        parts.feed_all()

    assert run.fully_fed
    assert parts.queued(run.ref, "sim:fast") != []
    results = parts.redis.hgetall(parts.keys.results(run.ref))
    assert {TaskResult.from_json(text).state for text in results.values()} == {JobState.INVALID}
    assert TaskResult.from_json(results[b"0"]).error == "RecursionError: maximum recursion depth exceeded"
    assert [line["item"] for line in logs if line["event"] == "item_raised"] == [0]


def test_a_redis_that_is_away_is_nobodys_fault(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts.admit(10)

    def away(*_: object, **__: object) -> None:
        raise RedisConnectionError("gone")

    monkeypatch.setattr(parts.runs, "feed", away)

    with pytest.raises(RedisConnectionError):
        parts.feeder.tick(parts.moment())


def test_a_feeder_whose_cursor_is_old_reads_it_again_and_feeds_nothing_twice(parts: Parts) -> None:
    run = parts.admit(300)
    parts.feeder.tick(parts.moment())
    run.cursor = 0
    parts.backlog.set_queued("sim:fast", run.ref, 0)

    parts.feeder.tick(parts.moment())

    assert run.cursor == BATCH_ITEMS
    assert len(parts.queued(run.ref, "sim:fast")) == BATCH_ITEMS


def test_a_deposed_leader_feeds_nothing(parts: Parts) -> None:
    run = parts.admit(300)
    moment = parts.moment()
    parts.depose()

    parts.feeder.tick(moment)

    assert run.cursor == 0
    assert parts.queued(run.ref, "sim:fast") == []


def test_each_queued_job_is_reported_to_the_log_with_the_depth_of_its_lane(parts: Parts) -> None:
    run = parts.admit(3)

    with capture_logs() as logs:
        parts.feed_all()

    lines = [line for line in logs if line["event"] == "queueing"]
    assert [line["job"] for line in lines] == [0, 1, 2]
    assert {line["queue_depth"] for line in lines} == {3}
    fields = {"run": run.ref.run, "team": "search", "lane": "sim:fast", "attempt": 1}
    assert all(line.items() >= fields.items() for line in lines)


def test_forgetting_a_run_forgets_its_rows_and_its_templates(parts: Parts) -> None:
    run = parts.admit(10)
    parts.feed_all()
    kept = parts.feeder._placement

    parts.feeder.forget(run.ref)

    assert not kept._renderings
    assert not kept._pages._pages


class TestRowPages:
    """Pages are read once, bounded in number, and hostile until they have been read."""

    def test_a_page_is_read_once(self, parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
        run = parts.admit(250)
        pages, reads = RowPages(parts.runs), []
        read = parts.runs.page
        monkeypatch.setattr(parts.runs, "page", lambda ref, number: reads.append(number) or read(ref, number))

        rows = [pages.row(run.ref, run.plan.spec, n) for n in range(250)]

        assert rows == [{"q": n} for n in range(250)]
        assert reads == [0, 1, 2]

    def test_the_number_of_pages_kept_is_bounded(self, parts: Parts) -> None:
        run = parts.admit(2 * PAGES_KEPT, page_rows=1)
        pages = RowPages(parts.runs)

        for n in range(2 * PAGES_KEPT):
            pages.row(run.ref, run.plan.spec, n)

        assert len(pages._pages) == PAGES_KEPT

    @pytest.mark.parametrize(
        "blob",
        [
            None,
            b"",
            b"garbage",
            encode_page([{"q": 1}])[:-4],
            encode_page([1, "x", None]),  # type: ignore[list-item]
            encode_page({"q": 1}),  # type: ignore[arg-type]
            encode_page([]),
        ],
    )
    def test_what_is_no_page_of_rows_makes_its_rows_unreadable(
        self, parts: Parts, blob: bytes | None
    ) -> None:
        run = parts.admit(3, page_rows=3)
        key = parts.keys.rows(run.ref)
        parts.redis.hdel(key, "0")
        if blob is not None:
            parts.redis.hset(key, "0", blob)
        pages = RowPages(parts.runs)

        for n in range(3):
            with pytest.raises(UnreadableRow):
                pages.row(run.ref, run.plan.spec, n)

    def test_a_page_that_cannot_be_read_is_tried_once(
        self, parts: Parts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run, decoded = parts.admit(3, page_rows=3), []

        def broken(blob: bytes, _most: int) -> None:
            decoded.append(blob)
            raise BrokenPage("a bomb")

        monkeypatch.setattr(placement, "bounded_rows", broken)
        pages = RowPages(parts.runs)

        for n in range(3):
            with pytest.raises(UnreadableRow, match="a bomb"):
                pages.row(run.ref, run.plan.spec, n)
        assert len(decoded) == 1
