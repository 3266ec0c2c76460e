"""A dataset by reference may change after its run has read it: no result is joined to a row of another."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import BadZipFile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlane.client.views.comparison import compare_runs
from fairlane.core.errors import DatasetChanged, SubmissionError
from fairlane.datasets import references
from fairlane.datasets.references import Reference, SourcePages, digest_of
from fairlane.model.choices import Source
from fairlane.model.record import Record
from fairlane.model.run import RunSpec, RunState
from fairlane.store.keys import digest_field
from fairlane.store.read.reading import RecordReader
from fairlane_scheduler.intake.sources import Sources
from fairlane_scheduler.state.backlog import ActiveRun
from tests.support.records import make_record, spec_of
from tests.support.scheduler_parts import Parts
from tests.support.wait import wait_until

PAGE = 2
ROWS = [{"q": number} for number in range(7)]
CHANGED = "has changed since the run read it: rows 1 to 2 are other rows now, or gone"


@dataclass(frozen=True)
class ScoredRecords:
    """A run that is over, with these rows."""

    id: str
    spec: RunSpec
    rows: list[dict[str, Any]]
    name: str = "n"

    def results(self) -> Iterator[Record]:
        yield from (make_record(number, row=row) for number, row in enumerate(self.rows))


rows = st.lists(st.fixed_dictionaries({"q": st.integers(0, 3)}), max_size=9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.jsonl", ROWS)


def write(path: Path, content: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in content))
    return path


def begun(parts: Parts, path: Path, run: str = "r1") -> ActiveRun:
    return parts.admit([], run=run, source=Reference(path).source, open=True, page_rows=PAGE)


def read_on(parts: Parts, run: ActiveRun, sources: Sources, rows: int = 99) -> None:
    """Read a run's dataset as ticks of a scheduler do, until it has so many rows or its end."""
    for _ in range(100):
        parts.feed_all()
        sources.tick(parts.moment(), lambda: ["sim:fast"])
        reading = sources.readings.get(run.ref)
        if run.ended or not run.open or run.rows >= rows:
            return
        if reading is not None and reading.next is not None:
            wait([reading.next])
    raise AssertionError("the dataset has no end")


def finish(parts: Parts, run: ActiveRun, items: set[int]) -> None:
    for item in items:
        parts.redis.setbit(parts.keys.done(run.ref), item, 1)


@pytest.mark.parametrize("page_rows", [1, 3, 8, 500])
def test_a_page_leaves_redis_once_its_items_have_finished_and_not_before(
    parts: Parts, tmp_path: Path, page_rows: int
) -> None:
    path = write(tmp_path / "rows.jsonl", [{"q": number} for number in range(4 * page_rows)])
    run = parts.admit([], source=Reference(path).source, open=True, page_rows=page_rows)
    sources = Sources(parts.runs, parts.backlog)
    read_on(parts, run, sources, 4 * page_rows)

    def pages() -> set[bytes]:
        sources.tick(parts.moment(), lambda: ["sim:fast"])
        return {name for name in parts.redis.hkeys(parts.keys.rows(run.ref)) if name.isdigit()}

    finish(parts, run, {*range(4 * page_rows)} - {page_rows - 1})
    assert pages() == {b"0", b"1", b"2", b"3"}
    finish(parts, run, {page_rows - 1})
    assert pages() == {b"3"}


def dropped(parts: Parts, run: ActiveRun) -> RecordReader:
    """A reader of the run, all pages of which have left Redis."""
    for number in range(-(-run.rows // PAGE)):
        parts.runs.drop_page(run.ref, number)
    return RecordReader(parts.redis, parts.keys, run.plan.spec)


def test_the_rows_of_an_unchanged_dataset_and_of_one_that_grew_are_read(parts: Parts, path: Path) -> None:
    run = begun(parts, path)
    read_on(parts, run, Sources(parts.runs, parts.backlog))
    reader = dropped(parts, run)
    assert (run.rows, list(reader.rows(7))) == (7, ROWS)
    write(path, [*ROWS, {"q": "new"}, {"q": "new"}])
    again = dropped(parts, run)
    assert [again.row(number) for number in (6, 7, 0, 3)] == [ROWS[6], {}, ROWS[0], ROWS[3]]


def test_results_of_a_changed_page_have_empty_rows_and_a_warning_says_why(parts: Parts, path: Path) -> None:
    run = begun(parts, path)
    read_on(parts, run, Sources(parts.runs, parts.backlog))
    reader = dropped(parts, run)
    write(path, [{"q": "another"}, *ROWS[1:]])
    with pytest.warns(UserWarning, match=CHANGED) as warned:
        assert [reader.row(number) for number in range(7)] == [{}, {}, *ROWS[2:]]
    assert len(warned) == 1
    assert str(path) in str(warned[0].message)
    assert "Restore it as it was" in str(warned[0].message)
    with pytest.raises(DatasetChanged, match=CHANGED):
        list(dropped(parts, run).rows(7))


def test_a_dataset_that_is_gone_or_cannot_be_read_has_empty_rows(parts: Parts, path: Path) -> None:
    run = begun(parts, path)
    read_on(parts, run, Sources(parts.runs, parts.backlog))
    reader = dropped(parts, run)
    path.unlink()
    assert [reader.row(number) for number in range(7)] == [{}] * 7
    with pytest.raises(SubmissionError, match="there is no such file"):
        list(reader.rows(7))


def test_what_an_earlier_version_has_read_is_not_compared(parts: Parts, path: Path) -> None:
    run = begun(parts, path)
    read_on(parts, run, Sources(parts.runs, parts.backlog))
    parts.redis.hdel(parts.keys.rows(run.ref), *(digest_field(number) for number in range(4)))
    write(path, changed := [{"q": "another"}, *ROWS[1:]])
    assert list(dropped(parts, run).rows(7)) == changed


@pytest.mark.parametrize("stored", [b"x", b"", b"2:", b"99:00", b"\xff:\xff", b"-1:00", "²:1".encode()])
def test_a_digest_that_is_none_counts_as_a_change(parts: Parts, path: Path, stored: bytes) -> None:
    run = begun(parts, path)
    read_on(parts, run, Sources(parts.runs, parts.backlog))
    parts.redis.hset(parts.keys.rows(run.ref), digest_field(0), stored)
    with pytest.raises(DatasetChanged):
        list(dropped(parts, run).rows(7))


def test_a_scheduler_that_takes_over_reads_on_in_the_same_dataset(parts: Parts, path: Path) -> None:
    run = begun(parts, path)
    read_on(parts, run, Sources(parts.runs, parts.backlog), rows=2 * PAGE)
    assert (run.open, run.rows) == (True, 2 * PAGE)
    read_on(parts, run, Sources(parts.runs, parts.backlog))
    assert (run.open, run.rows, list(dropped(parts, run).rows(7))) == (False, 7, ROWS)


def test_a_scheduler_that_takes_over_ends_the_run_of_a_changed_dataset(parts: Parts, path: Path) -> None:
    run = begun(parts, path)
    read_on(parts, run, Sources(parts.runs, parts.backlog), rows=2 * PAGE)
    write(path, [{"q": "before"}, *ROWS])
    read_on(parts, run, Sources(parts.runs, parts.backlog))
    status = parts.state(run.ref)
    assert (run.ended, run.rows, status["state"]) == (True, 2 * PAGE, RunState.STOPPED)
    assert CHANGED in status["reason"]
    assert str(path) in status["reason"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=rows, after=rows, size=st.integers(1, 4), asked=st.lists(st.integers(0, 5), max_size=6))
def test_a_page_is_what_the_run_read_or_none(
    path: Path, before: list[Any], after: list[Any], size: int, asked: list[int]
) -> None:
    read = [before[first : first + size] for first in range(0, len(before), size)]
    digests = [digest_of(page) for page in read]
    write(path, after)
    source = Source(url=str(path), format="jsonl")
    found = SourcePages(source, size, lambda number: digests[number] if number < len(digests) else None)
    for number in asked:
        if number >= len(read):
            continue
        here = after[number * size : number * size + len(read[number])]
        if here == read[number]:
            assert found.page(number) == read[number]
        else:
            with pytest.raises(DatasetChanged):
                found.page(number)


def test_items_whose_rows_are_not_known_are_compared_with_none(path: Path) -> None:
    spec = spec_of(source=Reference(path).source, open=True)
    first, second = (
        ScoredRecords(name, spec.model_copy(update={"run": name}), rows)
        for name, rows in (("r1", [{}, {}, {"q": 1}]), ("r2", [{}, {}, {"q": 1}]))
    )
    found = compare_runs(first, second)
    assert (found.matched, found.only_first, found.only_second) == (1, 2, 2)


class Raising(io.BytesIO):
    def readline(self, size: int | None = -1, /) -> bytes:
        raise BadZipFile("File is not a zip file")


def refusing(*_: object) -> Raising:
    raise BadZipFile("File is not a zip file")


@pytest.mark.parametrize("opened", [refusing, lambda *_: SimpleNamespace(open=Raising)])
def test_a_file_system_that_fails_in_its_own_way_stops_its_run_alone(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, opened: Any
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", SimpleNamespace(open=opened))
    run = begun(parts, Path("zip://rows.jsonl"))
    read_on(parts, run, Sources(parts.runs, parts.backlog))
    status = parts.state(run.ref)
    assert (run.ended, status["state"]) == (True, RunState.STOPPED)
    assert "BadZipFile: File is not a zip file" in status["reason"]


def test_a_dataset_that_is_never_read_to_its_end_does_not_hold_up_the_end_of_the_process(
    parts: Parts, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, readers = threading.Event(), list[threading.Thread]()

    def hang(url: str) -> io.BytesIO:
        readers.append(threading.current_thread())
        gate.wait(10)
        return io.BytesIO()

    monkeypatch.setattr(references, "_open", hang)
    begun(parts, path)
    Sources(parts.runs, parts.backlog).tick(parts.moment(), lambda: ["sim:fast"])
    wait_until(lambda: readers)
    assert readers[0].daemon
    gate.set()
