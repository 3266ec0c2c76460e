"""A run by reference has each row of its dataset once, wherever a leader was interrupted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisConnectionError

from fairlane.datasets.references import Reference, digest_of
from fairlane.datasets.rows import decode_page, encode_page
from fairlane.model.ending import CANCELLED
from fairlane.model.run import RunRef, RunState
from fairlane.store.keys import digest_field
from fairlane.store.write.leader import NotLeader
from fairlane_scheduler.intake.sources import Sources
from fairlane_scheduler.state.backlog import ActiveRun
from tests.support.scheduler_parts import Parts

Event: TypeAlias = Literal["read", "takeover", "lost request", "lost reply", "deposed", "grow"]

EVENTS: tuple[Event, ...] = ("read", "read", "takeover", "lost request", "lost reply", "deposed", "grow")
RUN_IDS = (f"r{number}" for number in count(1))


class Leaders:
    """One scheduler after another reads a run's dataset."""

    def __init__(self, parts: Parts, path: Path, page_rows: int) -> None:
        self.parts = parts
        source = Reference(path).source
        self.ref = parts.admit([], run=next(RUN_IDS), source=source, open=True, page_rows=page_rows).ref
        self.sources = Sources(parts.runs, parts.backlog)

    @property
    def run(self) -> ActiveRun | None:
        return self.parts.backlog.get(self.ref)

    def take_over(self) -> None:
        """What a term begins with: everything is read again."""
        self.sources.forget_all()
        self.parts.loader.forget_all()
        self.parts.loader.refresh()

    def read(self) -> None:
        """One tick, and the page that it began to read."""
        self.parts.leader.tick(self.parts.clock.monotonic_ms(), self.parts.now_ms)
        self.parts.feeder.tick(self.parts.moment())
        self.tick_until_read()

    def tick_until_read(self) -> None:
        self.sources.tick(self.parts.moment(), lambda: ["sim:fast"])
        reading = self.sources.readings.get(self.ref)
        if reading is not None and reading.next is not None:
            wait([reading.next])

    def read_to_the_end(self) -> None:
        for _ in range(200):
            if self.run is None or not self.run.open:
                return
            self.read()
        raise AssertionError("the dataset has no end")

    def interrupted(self, *, after: bool) -> None:
        """Read until Redis is away as a page is stored, before or after it has run the script."""
        runs = self.parts.runs
        extend: Callable[..., int] = runs.extend

        def away(*arguments: Any, **more: Any) -> int:
            if after:
                extend(*arguments, **more)
            raise RedisConnectionError("away")

        runs.extend = away  # type: ignore[method-assign]
        try:
            for _ in range(3):
                self.read()
        except RedisConnectionError:
            self.take_over()
        finally:
            runs.extend = extend  # type: ignore[method-assign]

    def deposed(self) -> None:
        """Read on while another leads, without the knowledge of it, and lead again."""
        self.parts.depose()
        try:
            for _ in range(3):
                self.tick_until_read()
        except NotLeader:
            pass
        self.parts.redis.hset(self.parts.keys.leader, "until_ms", "0")
        self.parts.leader.deposed()
        self.parts.leader.tick(self.parts.clock.monotonic_ms(), self.parts.now_ms)
        assert self.parts.leader.leads
        self.take_over()

    def act(self, event: Event, grow: Callable[[], None]) -> None:
        match event:
            case "read":
                self.read()
            case "takeover":
                self.take_over()
            case "deposed":
                self.deposed()
            case "grow":
                grow()
            case _:
                self.interrupted(after=event == "lost reply")

    def stored(self) -> list[list[dict[str, Any]]]:
        """The pages of the run's rows, in order."""
        found: dict[bytes, bytes] = dict(self.parts.redis.hgetall(self.parts.keys.rows(self.ref)))  # type: ignore[arg-type]
        numbers = sorted(int(field) for field in found if field.isdigit())
        assert numbers == list(range(len(numbers)))
        pages = [decode_page(found[str(number).encode()]) for number in numbers]
        digests = [found[digest_field(number).encode()].decode() for number in numbers]
        assert digests == [digest_of(page) for page in pages]
        return pages


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def numbered(total: int) -> list[dict[str, Any]]:
    return [{"q": number} for number in range(total)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    total=st.integers(0, 13),
    page_rows=st.integers(1, 4),
    events=st.lists(st.sampled_from(EVENTS), max_size=12),
)
def test_each_row_is_read_once_whatever_happens_to_leaders(
    parts: Parts, tmp_path: Path, total: int, page_rows: int, events: list[Event]
) -> None:
    path = write(tmp_path / "rows.jsonl", dataset := numbered(total))
    leaders = Leaders(parts, path, page_rows)

    def grow() -> None:
        dataset.append({"q": "new"})
        write(path, dataset)

    for event in events:
        leaders.act(event, grow)
    leaders.read_to_the_end()
    state = parts.state(leaders.ref)
    rows = [row for page in leaders.stored() for row in page]
    assert state["state"] == (RunState.RUNNING if rows else RunState.COMPLETED)
    assert rows == dataset[: len(rows)]
    assert len(rows) >= total
    assert int(state.get("rows", 0)) == int(state.get("items", 0)) == len(rows)
    assert "open" not in state
    parts.runs.end(leaders.ref, ["sim:fast"], CANCELLED, parts.leader.epoch, parts.now_ms)
    parts.loader.refresh()


def partly_read(leaders: Leaders, rows: int) -> None:
    """As an earlier version leaves a run whose last page it has stored, and whose end it has not noted."""
    parts, run = leaders.parts, leaders.run
    assert run is not None
    size = run.plan.spec.page_rows
    for first in range(0, rows, size):
        page = numbered(rows)[first : first + size]
        fields: dict[Any, Any] = {
            str(first // size): encode_page(page),
            digest_field(first // size): digest_of(page),
        }
        parts.redis.hset(parts.keys.rows(leaders.ref), mapping=fields)
    parts.runs.extend(run.ref, run.plan, rows, parts.leader.epoch, parts.now_ms, last=False)
    leaders.take_over()


@pytest.mark.parametrize("more", [0, 1, 5])
def test_a_last_page_whose_end_was_not_noted_is_not_read_twice(
    parts: Parts, tmp_path: Path, more: int
) -> None:
    leaders = Leaders(parts, write(tmp_path / "rows.jsonl", numbered(7 + more)), 4)
    partly_read(leaders, 7)
    leaders.read_to_the_end()
    assert [len(page) for page in leaders.stored()] == [4, 3]
    assert (parts.state(leaders.ref)["rows"], parts.state(leaders.ref)["items"]) == ("7", "7")


def test_a_last_page_that_has_changed_ends_the_run(parts: Parts, tmp_path: Path) -> None:
    leaders = Leaders(parts, write(tmp_path / "rows.jsonl", [*numbered(6), {"q": "another"}]), 4)
    partly_read(leaders, 7)
    leaders.read_to_the_end()
    status = parts.state(leaders.ref)
    assert (status["state"], status["rows"]) == (RunState.STOPPED, "7")
    assert "rows 5 to 7 are other rows now" in status["reason"]


def test_a_page_of_a_scheduler_that_was_deposed_is_not_stored(parts: Parts, tmp_path: Path) -> None:
    leaders = Leaders(parts, write(tmp_path / "rows.jsonl", numbered(7)), 4)
    parts.depose()
    leaders.tick_until_read()
    leaders.tick_until_read()
    assert leaders.stored() == []
    assert leaders.run is not None
    assert (leaders.run.rows, leaders.run.open) == (0, True)


def test_a_scheduler_that_lost_the_reply_to_its_last_page_knows_that_the_run_is_whole(
    parts: Parts, tmp_path: Path
) -> None:
    leaders = Leaders(parts, write(tmp_path / "rows.jsonl", numbered(3)), 4)
    extend: Callable[..., int] = parts.runs.extend

    def sent_twice(ref: RunRef, *arguments: Any, **more: Any) -> int:
        extend(ref, *arguments, **more)
        return extend(ref, *arguments, **more)

    parts.runs.extend = sent_twice  # type: ignore[method-assign]
    leaders.read_to_the_end()
    assert [len(page) for page in leaders.stored()] == [3]
    assert leaders.run is not None
    assert (leaders.run.rows, leaders.run.open) == (3, False)


def test_a_new_leaders_tick_waits_for_no_digest_of_a_page(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaders = Leaders(parts, write(tmp_path / "rows.jsonl", numbered(30)), 1)
    partly_read(leaders, 20)
    digest, ticking = parts.runs.digest, threading.current_thread()

    def asked(ref: RunRef, number: int) -> str | None:
        assert threading.current_thread() is not ticking, "those of a long dataset outlast a lease"
        return digest(ref, number)

    monkeypatch.setattr(parts.runs, "digest", asked)
    leaders.read_to_the_end()
    assert parts.state(leaders.ref)["rows"] == "30"


def test_a_redis_that_is_away_while_a_page_is_read_ends_no_dataset(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaders = Leaders(parts, write(tmp_path / "rows.jsonl", numbered(30)), 4)
    partly_read(leaders, 20)

    def away(ref: RunRef, number: int) -> str | None:
        raise RedisConnectionError("away")

    with monkeypatch.context() as patch:
        patch.setattr(parts.runs, "digest", away)
        with pytest.raises(RedisConnectionError):
            leaders.read_to_the_end()
    leaders.read_to_the_end()
    assert parts.state(leaders.ref)["rows"] == "30"


def test_a_dataset_of_more_pages_than_a_run_may_have_stops_its_run(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane_scheduler.intake.admission.MOST_PAGES", 3)
    leaders = Leaders(parts, write(tmp_path / "rows.jsonl", numbered(5)), 1)
    leaders.read_to_the_end()
    assert parts.state(leaders.ref)["state"] == RunState.STOPPED
    assert "at most 3 are allowed" in parts.state(leaders.ref)["reason"]
