"""Sessions are numbered by first appearance, and what is written of them is read with suspicion."""

from __future__ import annotations

import json
import time
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.client.submitting.submission import build_spec
from fairlane.core.errors import BrokenSessions, SubmissionError
from fairlane.datasets import sessions as numbering_module
from fairlane.datasets.sessions import Numbering
from fairlane.evaluators.builders import llm_judge
from fairlane.model.run import RunSpec
from fairlane.model.sessions import (
    BLOCK,
    SessionMembership,
    decode_members,
    decode_memberships,
    encode_members,
    encode_memberships,
    members_field,
    memberships_field,
    session_job,
    session_of_job,
)

JUDGE = llm_judge("sim:judge", "{{ session }}", {"yes": 1, "no": 0}, level="session")


def numbered(values: list[Any], page_rows: int = 3) -> tuple[Numbering, dict[str, bytes]]:
    """What is written beside rows that have these values."""
    numbering = Numbering("s")
    rows = [{"s": value} for value in values]
    pages = [rows[at : at + page_rows] for at in range(0, len(rows), page_rows)]
    assert list(numbering.watch(pages)) == pages
    return numbering, dict(numbering.fields(page_rows))


def flood(*lists: int) -> bytes:
    """Lists of so many zeros, compressed."""
    return zlib.compress(b"[" + b",".join(b"[" + b",".join([b"0"] * n) + b"]" for n in lists) + b"]", 9)


@pytest.mark.parametrize("count", [11_000, 7_000_000])
@pytest.mark.slow
def test_a_page_of_sessions_holds_no_more_numbers_than_its_rows_need(count: int) -> None:
    page = flood(count, count)
    began_s = time.thread_time()
    with pytest.raises(BrokenSessions, match=r"more than 20,000 numbers|larger than"):
        decode_memberships(page, 1)
    assert time.thread_time() - began_s < 0.5


def test_a_block_of_sessions_is_bounded_before_it_is_read() -> None:
    block = flood(*[10_000] * 1500)
    began_s = time.thread_time()
    with pytest.raises(BrokenSessions, match=r"more than 1,280,000 numbers|larger than"):
        decode_members(block, 10**9)
    assert time.thread_time() - began_s < 0.5


def test_the_largest_page_and_block_can_be_read() -> None:
    page = [SessionMembership(99_999_999, 10_000)] * 10_000
    assert decode_memberships(encode_memberships(page), 10**8) == page
    block = [list(range(999_990_000, 1_000_000_000))] * BLOCK
    assert decode_members(encode_members(block), 10**9) == block


def spec_of(**arguments: Any) -> RunSpec:
    given: dict[str, Any] = {"prompt": "{{ q }}", "model": "sim:fast", "evaluators": [JUDGE]}
    return build_spec("r1", "search", 1, **given | arguments)


def test_sessions_are_numbered_by_first_appearance() -> None:
    numbering, fields = numbered(["b", "a", "b", "c", "a"], page_rows=3)
    assert numbering.sessions == 3
    assert decode_memberships(fields[memberships_field(0)], 3) == [
        SessionMembership(0, 2),
        SessionMembership(1, 2),
        SessionMembership(0, 2),
    ]
    assert decode_memberships(fields[memberships_field(1)], 3) == [
        SessionMembership(2, 1),
        SessionMembership(1, 2),
    ]
    assert decode_members(fields[members_field(0)], 5) == [[0, 2], [1, 4], [3]]


@given(
    values=st.lists(st.integers(0, 400), max_size=500),
    page_rows=st.integers(1, 60),
)
def test_what_is_written_reports_each_row_its_session_and_each_session_its_rows(
    values: list[int], page_rows: int
) -> None:
    numbering, fields = numbered(values, page_rows)
    pages = range(-(-len(values) // page_rows))
    memberships = [
        each
        for page in pages
        for each in decode_memberships(fields[memberships_field(page)], numbering.sessions)
    ]
    distinct = list(dict.fromkeys(values))
    assert memberships == [SessionMembership(distinct.index(value), values.count(value)) for value in values]
    blocks = range(0, numbering.sessions, BLOCK)
    members = [rows for first in blocks for rows in decode_members(fields[members_field(first)], len(values))]
    assert members == [[row for row, value in enumerate(values) if value == each] for each in distinct]


def test_a_run_without_a_session_field_has_no_sessions() -> None:
    numbering = Numbering(None)
    assert list(numbering.watch([[{"q": 1}]])) == [[{"q": 1}]]
    assert (numbering.sessions, dict(numbering.fields(3))) == (0, {})


def test_values_are_one_session_only_where_they_are_equal_as_json() -> None:
    numbering, _ = numbered([1, "1", True, 1, {"a": 1, "b": 2}, {"b": 2, "a": 1}, "x" * 10_000])
    assert numbering.sessions == 5


@pytest.mark.parametrize("row", [{}, {"s": None}])
def test_a_row_without_its_session_is_refused_by_number_and_field(row: dict[str, Any]) -> None:
    numbering = Numbering("s")
    with pytest.raises(SubmissionError, match=r"row 3: .* no 's'") as refused:
        list(numbering.watch([[{"s": 1}, {"s": 1}], [row]]))
    assert refused.value.row == 3


def test_a_session_with_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering_module, "MOST_ROWS", 2)
    with pytest.raises(SubmissionError, match="a session has more than 2 rows") as refused:
        numbered([1, 2, 1, 2, 1])
    assert refused.value.row == 5


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no zlib",
        zlib.compress(b"[[0],[1]"),
        zlib.compress(b"[[0],[1]]")[:-3],
        zlib.compress(b"{}"),
        zlib.compress(b"[1, 2]"),
        zlib.compress(b"[[0]]"),
        zlib.compress(b"[[0],[1,1]]"),
        zlib.compress(b"[[3],[1]]"),
        zlib.compress(b"[[-1],[1]]"),
        zlib.compress(b"[[0],[0]]"),
        zlib.compress(b"[[0],[10001]]"),
        zlib.compress(b"[[0.0],[1]]"),
        zlib.compress(b"[[true],[1]]"),
        zlib.compress(b"[" * 200_000),
        zlib.compress(b" " * (33 * 1024 * 1024)),
    ],
)
def test_hostile_session_memberships_are_rejected(content: bytes) -> None:
    with pytest.raises(BrokenSessions):
        decode_memberships(content, 3)


@pytest.mark.parametrize("block", [[[]], [[5]], [[-1]], [["0"]], [0], {}, [[0], list(range(10_001))]])
def test_hostile_members_are_not_believed(block: Any) -> None:
    with pytest.raises(BrokenSessions):
        decode_members(zlib.compress(json.dumps(block).encode()), 5)


def test_jobs_of_sessions_follow_those_of_items() -> None:
    other = llm_judge("sim:judge", "{{ session }}", {"yes": 1}, level="session", name="other")
    spec = spec_of(repetitions=3, session="s", evaluators=[JUDGE, other]).model_copy(
        update={"rows": 5, "sessions": 2}
    )
    assert [session_of_job(spec, job) for job in (0, spec.items * spec.steps - 1)] == [None, None]
    jobs = [
        session_job(spec, session, cell, step)
        for session in range(2)
        for cell in range(3)
        for step in range(2)
    ]
    assert jobs == list(range(15, 15 + spec.session_jobs))
    assert [session_of_job(spec, job) for job in jobs[:3]] == [(0, 0, 0), (0, 0, 1), (0, 1, 0)]


def test_progress_counts_items_only_where_something_is_done_with_them_and_sessions() -> None:
    made = {"rows": 6, "sessions": 2}
    both = spec_of(session="s").model_copy(update=made)
    given = build_spec("r1", "search", 1, output="o", session="s", evaluators=[JUDGE]).model_copy(update=made)
    assert (both.jobs, given.jobs) == (6 + 2, 2)


def test_an_evaluator_of_sessions_without_a_session_field_is_refused_with_the_remedy() -> None:
    with pytest.raises(SubmissionError, match=r"session: .*llm_judge.* sessions.*Give session=") as refused:
        spec_of()
    assert refused.value.field == "session"
