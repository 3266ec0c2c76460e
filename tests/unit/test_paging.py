"""A run's pages can be read whatever its rows are: long ones make pages of fewer rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane import RunLost, SubmissionError
from fairlane.client.submitting import submission
from fairlane.client.submitting.continuation import Origins
from fairlane.datasets import rows as paging
from fairlane.datasets.references import Reference, SourcePages
from fairlane.datasets.rows import MAX_PAGE_BYTES, MAX_PAGE_VALUES, Paging, decode_page
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.sessions import decode_memberships, memberships_field
from tests.support.stage import Stage

MOST = 300
FULL = 40


def bound(patch: pytest.MonkeyPatch, page_bytes: int = MOST, values: int = MAX_PAGE_VALUES) -> None:
    patch.setattr(paging, "MAX_PAGE_BYTES", page_bytes)
    patch.setattr(paging, "MAX_PAGE_VALUES", values)
    patch.setattr(submission, "PAGE_ROWS", FULL)


def uploaded(redis: Redis, stage: Stage, run: Any) -> tuple[RunSpec, dict[bytes, bytes]]:
    ref = RunRef(run.team, run.id)
    text = redis.get(stage.keys.spec(ref))
    assert text is not None
    return RunSpec.model_validate_json(text), redis.hgetall(stage.keys.rows(ref))  # type: ignore[arg-type, return-value]


LENGTHS = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 200)), min_size=1, max_size=150)


@given(lengths=LENGTHS, sessions=st.booleans())
@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_page_has_its_rows_and_no_more_than_a_reader_takes(
    fake_redis: Redis, lengths: list[int], sessions: bool
) -> None:
    fake_redis.flushdb()
    stage = Stage(fake_redis)
    rows = [{"n": n, "s": n % 7, "t": "x" * length} for n, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        bound(patch)
        run = stage.client.submit(
            iter(rows), "{{ t }}", model="sim:fast", check=False, **({"session": "s"} if sessions else {})
        )
    spec, fields = uploaded(fake_redis, stage, run)
    assert FULL % spec.page_rows == 0
    assert spec.rows == len(rows)
    count = -(-len(rows) // spec.page_rows)
    assert {name for name in fields if name.isdigit()} == {str(number).encode() for number in range(count)}
    for number in range(count):
        page = decode_page(fields[str(number).encode()])
        assert page == rows[number * spec.page_rows : (number + 1) * spec.page_rows]
        assert len(json.dumps(page, separators=(",", ":"))) <= MOST
        if sessions:
            found = decode_memberships(fields[memberships_field(number).encode()], spec.sessions)
            assert [each.session for each in found] == [min(row["n"], row["s"]) for row in page]


@given(LENGTHS)
@settings(deadline=None)
def test_short_rows_make_full_pages(lengths: list[int]) -> None:
    rows = [{"t": "x" * (length % 4)} for length in lengths]
    made = Paging(iter(rows), FULL)
    pages = list(made)
    assert made.page_rows == FULL
    assert [row for page in pages for row in page] == rows
    assert all(len(page) == FULL for page in pages[:-1])


def test_many_values_make_smaller_pages_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch, MAX_PAGE_BYTES, 3000)
    made = Paging([{"v": list(range(600))} for _ in range(12)], FULL)
    assert [len(page) for page in made] == [1] * 12
    made = Paging([{"v": list(range(600))} for _ in range(4)], FULL)
    assert [len(page) for page in made] == [4]


def test_rows_as_large_as_a_row_may_be_can_be_submitted(stage: Stage) -> None:
    rows = ({"n": n, "t": "x" * 900_000} for n in range(160))
    run = stage.client.submit(rows, "{{ t }}", model="sim:fast", check=False)
    spec, fields = uploaded(stage.redis, stage, run)
    assert spec.page_rows == 50
    assert [row["n"] for n in range(4) for row in decode_page(fields[str(n).encode()])] == list(range(160))


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_page_that_was_lost_before_it_was_cut_is_noticed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    bound(monkeypatch)

    def rows() -> Any:
        for n in range(4 * FULL):
            yield {"t": ""} if n < 3 * FULL else {"t": "x" * 250}
            if n == 3 * FULL - 1:
                (key,) = stage.redis.scan_iter("*:rows")
                stage.redis.hdel(key, str(lost))

    with pytest.raises(RunLost, match="pages of rows"):
        stage.client.submit(rows(), "{{ t }}", model="sim:fast", check=False)
    assert list(stage.redis.scan_iter("*:rows")) == []


def test_a_row_that_no_page_can_hold_is_refused_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    bound(monkeypatch)
    with pytest.raises(SubmissionError, match="Shorten it") as caught:
        list(Paging([{"t": ""}, {"t": "x" * 400}], FULL))
    assert caught.value.row == 2


def test_a_page_of_a_reference_that_no_reader_would_take_is_refused_by_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound(monkeypatch, MAX_PAGE_BYTES, 3000)
    path = tmp_path / "rows.jsonl"
    path.write_text((json.dumps({"v": list(range(600))}) + "\n") * 12)
    with pytest.raises(SubmissionError, match="3,000 values as JSON") as caught:
        SourcePages(Reference(path).source, FULL, lambda _: None).page(0)
    assert caught.value.row == 5


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 5), max_size=30), st.integers(1, 9))
def test_old_numbers_of_rows_are_the_same_for_pages_of_any_size(
    before: list[int], rows: list[int], page_rows: int
) -> None:
    def numbers(cut: int, size: int) -> list[int]:
        origins = Origins([{"n": n} for n in before])
        given = [{"n": n} for n in rows]
        list(origins.watch([given[at : at + cut] for at in range(0, len(given), cut)]))
        return [old for _, text in origins.fields(size) for old in json.loads(text)]

    assert numbers(4, page_rows) == numbers(7, 7)
