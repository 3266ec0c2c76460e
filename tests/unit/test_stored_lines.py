"""JSON lines of stored results: the same, byte for byte, as those of the records that the results become."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from fairlane.client.outputs import stored_records
from fairlane.evaluators.builders import contains, exact_match, llm_judge
from fairlane.export import stored_lines
from fairlane.export.formats import write_records
from fairlane.export.lines import record_line
from fairlane.export.stored_lines import LINES_AT_ONCE, StoredRecords
from fairlane.model.choices import Message
from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult, Portion, TaskResult, packed
from fairlane.model.run import RunSpec
from fairlane.model.tokens import Usage
from tests.support.records import UNKEPT, drawn, spec_of
from tests.support.stage import Stage

ODD_TEXTS = ["", "a\tb\n", '"', "\\", "\x00", "\x1f\x7f", "\u2028", "half \ud83d", "\U0001f600", "100 %b%d%%"]
TEXT = st.text(st.characters(), max_size=12) | st.sampled_from([*ODD_TEXTS, "x" * 500])
COUNT = st.none() | st.integers(0, 1 << 70)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCORE = st.none() | st.sampled_from([0.0, 1.0, 0.5, 1 / 3, 1e-5, 1e-4, 0.00012, 1e16]) | FINITE
NAMES = ("exact", "x.y-z")
NO_SCORES: st.SearchStrategy[dict[str, float | None]] = st.just({})
SCORES = NO_SCORES | st.fixed_dictionaries(dict.fromkeys(NAMES, SCORE))
USAGE = st.builds(Usage, COUNT, COUNT)
PURE = [exact_match("expected", name=NAMES[0]), contains(text="x", name=NAMES[1])]
JUDGE = llm_judge("sim:judge", "{{ output }}", {"yes": 1, "no": 0}, name="judge")

TASKS = drawn(
    TaskResult,
    state=st.sampled_from(list(JobState)),
    output=st.none() | TEXT,
    error=st.none() | TEXT,
    usage=st.builds(Usage, COUNT, COUNT, COUNT),
    attempts=st.integers(0, 9),
    latency_ms=COUNT,
    model=st.none() | TEXT,
    scores=SCORES | st.dictionaries(TEXT, SCORE, max_size=2),
    score_errors=st.just({}) | st.dictionaries(TEXT, TEXT, max_size=1),
    cached=st.booleans(),
    finish_reason=st.none() | TEXT,
    left_out=st.sampled_from([(), ("seed",)]),
    unkept=UNKEPT,
    notes=st.just(()) | st.tuples(TEXT),
)
PLAIN = st.builds(
    TaskResult,
    state=st.just(JobState.SUCCEEDED),
    output=st.none() | TEXT,
    usage=USAGE,
    attempts=st.integers(0, 9),
    latency_ms=COUNT,
    scores=SCORES,
    finish_reason=st.none() | TEXT,
)
JUDGED = st.builds(JudgeResult, st.sampled_from(list(JobState)), SCORE, st.none() | TEXT, usage=USAGE)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
ROWS = st.dictionaries(TEXT, JSON, max_size=3)
CELLS: list[dict[str, Any]] = [
    {},
    {"models": ("sim:a", "sim:100 %b%d"), "repetitions": 2},
    {"prompts": tuple((Message(role="user", content=f"{n}"),) for n in range(3)), "models": ("sim:ä",)},
    {"prompts": (), "models": (), "output_field": "output"},
]


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def stored(result: TaskResult | JudgeResult, *, short: bool) -> bytes:
    return as_bytes(packed(result.to_json(short=short)))


def portion_of(
    spec: RunSpec, rows: Sequence[Any], results: Sequence[bytes | None], first: int = 0
) -> Portion:
    return Portion(spec, range(first, first + len(rows)), rows, results, JobState.CANCELLED)


def lines(records: StoredRecords) -> bytes:
    out = BytesIO()
    write_records(records, out, "jsonl")
    return out.getvalue()


def outcome(make: Callable[[], bytes]) -> bytes | type[Exception]:
    try:
        return make()
    except (ValueError, TypeError, AttributeError, zlib.error) as error:
        return type(error)


def same_as_by_records(portion: Portion) -> bytes:
    """The lines, which are those of the records; or both fail alike."""
    expected = outcome(lambda: "".join(map(record_line, portion)).encode())
    found = outcome(lambda: lines(StoredRecords([portion])))
    assert found == expected
    return found if isinstance(found, bytes) else b""


@given(
    st.sampled_from(CELLS),
    st.sampled_from([[], PURE]),
    st.integers(0, 40),
    st.lists(st.tuples(ROWS, st.none() | PLAIN | TASKS, st.booleans()), max_size=8),
)
def test_lines_are_those_of_the_records(
    cells: dict[str, Any], evaluators: list[Any], first: int, found: list[tuple[Any, TaskResult | None, bool]]
) -> None:
    spec = spec_of(evaluators, rows=99, **cells)
    results = [None if task is None else stored(task, short=short) for _, task, short in found]
    text = same_as_by_records(portion_of(spec, [row for row, *_ in found], results, first))
    assert text.count(b"\n") == len(found)


@given(st.lists(st.tuples(ROWS, TASKS, JUDGED), min_size=1, max_size=4))
def test_lines_of_a_run_with_a_judge_are_those_of_the_records(found: list[tuple[Any, Any, Any]]) -> None:
    results = [stored(each, short=True) for _, *pair in found for each in pair]
    same_as_by_records(portion_of(spec_of([JUDGE], rows=9), [row for row, *_ in found], results))


@given(st.lists(PLAIN, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_damaged_results_also_make_the_line_of_their_record(found: list[TaskResult], rng: Any) -> None:
    """Some bytes of each stored result are others."""
    results = []
    for task in found:
        text = bytearray(task.to_json(short=True).encode())
        for _ in range(rng.randrange(3)):
            text[rng.randrange(len(text))] = rng.choice(b'\n"\\/u0-9.{}[],\xff\x00 eE+')
        results.append(bytes(text))
    same_as_by_records(portion_of(spec_of(PURE, rows=9), [{}] * len(results), results))


@pytest.mark.parametrize(
    "result",
    [
        b'["a\\/b",1,2,1,5]',
        b'["\\u0041\\u00e9",1,2,1,5]',
        b'["\\ud83d",1,2,1,5]',
        b'[ "a" , 1, 2, 1, 5 ]',
        b'["a",1,2,1,5,"stop"]\n',
        b'["a\nb",1,2,1,5]',
        b'["a",01,2,1,5]',
        b'["a",-0,2,1,5]',
        b'["a",1.50,2,1,1e3]',
        b'["a",12345678901234567890123,2,1,5]',
        b'["\xff",1,2,1,5]',
        b'["\xed\xa0\x80",1,2,1,5]',
        b'["a",1,2,null,5]',
        b'["a",1,2,1]',
        b'["a",1,2,1,5,"stop",{"sc":{"exact":1.00}}]',
        b'["a",1,2,1,5,"stop",{"sc":{"exact":0.5,"exact":1.0}}]',
        b'["a",1,2,1,5,"stop",{"sc":{"exact":0.12345678901234567890}}]',
        b'["a",1,2,1,5,"stop",{"sc":{"exact":1e-05}},"tomorrow"]',
        b'["a",1,2,1,5,"",{}]',
        b"[]",
        b"1",
        b"z",
        b"zno zlib",
        b"",
    ],
)
def test_unusual_forms_have_the_lines_of_their_records_or_fail_like_these(result: bytes) -> None:
    same_as_by_records(portion_of(spec_of([PURE[0]], rows=9), [{"a": 1}], [result]))


def test_a_short_success_is_written_without_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_record(*_: object) -> None:
        raise AssertionError("a record is made")

    task = TaskResult(JobState.SUCCEEDED, 'Größe\n"%b"', usage=Usage(12, None), attempts=1, latency_ms=5)
    scores: dict[str, float | None] = {NAMES[0]: 1.0, NAMES[1]: 0.25}
    full = replace(task, finish_reason="stop", scores=scores)
    results = [stored(each, short=True) for each in (task, full, replace(full, output="long " * 100))]
    portion = portion_of(spec_of(PURE, rows=9), [{"a": "ä"}] * 3, results)
    expected = "".join(map(record_line, portion)).encode()
    monkeypatch.setattr(stored_lines, "record_line", no_record)
    monkeypatch.setattr(stored_lines, "lines_of", no_record)
    assert lines(StoredRecords([portion])) == expected


def test_lines_before_an_error_are_written() -> None:
    good = stored(TaskResult(JobState.SUCCEEDED, "yes"), short=True)
    portion = portion_of(spec_of(rows=99), [{}] * 90, [good] * 80 + [b"["] + [good] * 9)
    out = BytesIO()
    with pytest.raises(ValueError, match="Expecting value"):
        write_records(StoredRecords([portion]), out, "jsonl")
    assert out.getvalue().count(b"\n") == 80 > LINES_AT_ONCE


def test_records_that_are_made_already_are_written_as_well(fake_redis: Redis, tmp_path: Path) -> None:
    stage = Stage(fake_redis)
    run = stage.client.submit([{"question": f"q{n}"} for n in range(9)], "{{ question }}", model="sim:fast")
    stage.admit()
    stage.answer(run.id, 9)
    assert run.export(tmp_path / "all.jsonl") == 9
    records = list(run.results())
    text = "".join(map(record_line, records))
    assert (tmp_path / "all.jsonl").read_text(encoding="utf-8") == text
    assert list(stored_records(run)) == records
    assert lines(StoredRecords([records[:4], iter(records[4:])])).decode() == text
    assert json.loads(text.splitlines()[0])["state"] == "succeeded"
