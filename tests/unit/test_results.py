"""What is stored of a job that is over is read back as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.evaluators import Judge
from fairlane.model.job import JobState
from fairlane.model.results import (
    JudgeResult,
    Portion,
    TaskResult,
    assemble,
    long_form,
    packed,
    stored_state,
)
from fairlane.model.tokens import Usage
from tests.support.records import UNKEPT, drawn, spec_of

COUNTS = st.none() | st.integers(0, 1 << 40)
USAGES = st.builds(
    lambda counts, cached: Usage(*counts, cached if any(count is not None for count in counts) else None),
    st.tuples(COUNTS, COUNTS),
    COUNTS,
)
TEXTS = st.none() | st.text(st.characters(), max_size=12)
NAMES = st.text("abc", min_size=1, max_size=3)
TASKS = drawn(
    TaskResult,
    state=st.sampled_from(JobState),
    output=TEXTS,
    error=TEXTS,
    usage=USAGES,
    attempts=st.integers(0, 9),
    latency_ms=COUNTS,
    model=st.none() | NAMES,
    scores=st.dictionaries(NAMES, st.none() | st.floats(0, 1), max_size=2),
    score_errors=st.dictionaries(NAMES, NAMES, max_size=2),
    cached=st.booleans(),
    finish_reason=TEXTS,
    left_out=st.lists(NAMES, max_size=2).map(tuple),
    unkept=UNKEPT,
    notes=st.lists(NAMES, max_size=2).map(tuple),
)
JUDGED = drawn(
    JudgeResult,
    state=st.sampled_from(JobState),
    score=st.none() | st.floats(0, 1),
    answer=TEXTS,
    error=TEXTS,
    usage=USAGES,
    attempts=st.integers(0, 9),
    cached=st.booleans(),
    left_out=st.lists(NAMES, max_size=2).map(tuple),
    unkept=UNKEPT,
)
JUDGE = Judge(name="judge", model="sim:judge", template="{{ output }}", choices={"yes": 1, "no": 0})


@pytest.mark.parametrize("usage", [Usage(), Usage(10, 5), Usage(None, 5), Usage(10, 5, 7), Usage(10, 5, 0)])
def test_usage_is_stored_as_far_as_it_is_known(usage: Usage) -> None:
    task = TaskResult(JobState.SUCCEEDED, "yes", usage=usage)
    assert TaskResult.from_json(task.to_json()) == task
    judge = JudgeResult(JobState.SUCCEEDED, 1.0, "yes", usage=usage)
    assert JudgeResult.from_json(judge.to_json()) == judge
    assert TaskResult.from_json(task.to_json(short=True)) == task
    assert JudgeResult.from_json(judge.to_json(short=True)) == judge


@given(TASKS, JUDGED, st.booleans())
def test_results_are_read_back_as_they_were_in_either_form(task: Any, judged: Any, short: bool) -> None:
    stored = [packed(each.to_json(short=short)) for each in (task, judged)]
    assert TaskResult.from_json(stored[0]) == task
    assert JudgeResult.from_json(stored[1]) == judged
    assert [stored_state(each) for each in stored] == [task.state, judged.state]
    assert JudgeResult.from_json(json.dumps(long_form(stored[1]))) == judged


@given(st.lists(st.tuples(TASKS, JUDGED), max_size=4), st.booleans())
def test_records_are_the_same_from_either_form_alone_and_together(found: Any, short: bool) -> None:
    spec = spec_of([JUDGE], rows=9)
    plain = [[each.to_json().encode(errors="surrogatepass") for each in pair] for pair in found]
    stored = [[as_bytes(packed(each.to_json(short=short))) for each in pair] for pair in found]
    texts = [text for pair in stored for text in pair]
    together = Portion(spec, range(len(found)), [{}] * len(found), texts, JobState.CANCELLED)
    for item, (pair, made) in enumerate(zip(found, together, strict=True)):
        expected = assemble(spec, item, {}, plain[item])
        assert made == assemble(spec, item, {}, stored[item]) == expected
        assert (made.output, made.state, made.usage) == (pair[0].output, pair[0].state, pair[0].usage)
        assert hash(made.usage) == hash(pair[0].usage)


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def test_a_record_cannot_be_changed() -> None:
    record = assemble(spec_of(rows=1), 0, {}, [TaskResult(JobState.SUCCEEDED, "yes").to_json()])
    with pytest.raises(AttributeError):
        record.output = "no"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        record.usage.input_tokens = 1  # type: ignore[misc]
    assert replace(record, output="no").output == "no"


def test_a_success_is_stored_short_where_its_reader_reads_that() -> None:
    task = TaskResult(JobState.SUCCEEDED, "Größe", usage=Usage(12, 4), attempts=1, latency_ms=523)
    assert task.to_json(short=True) == '["Größe",12,4,1,523]'
    full = replace(task, finish_reason="stop", scores={"exact": 1.0}, cached=True, usage=Usage(12, 4, 8))
    assert full.to_json(short=True) == ('["Größe",12,4,1,523,"stop",{"sc":{"exact":1.0},"c":1,"u":[12,4,8]}]')
    assert json.loads(replace(task, state=JobState.FAILED, error="500").to_json(short=True))["e"] == "500"
    assert JudgeResult(JobState.SUCCEEDED, 1.0, "yes", usage=Usage(7, 1), attempts=1).to_json(short=True) == (
        '[1.0,"yes",7,1,1]'
    )


def test_what_earlier_and_later_versions_store_is_read() -> None:
    earlier = b'{"s":"succeeded","o":"G\\u00f6","u":[12,4],"a":1,"l":523,"m":"sim:b","f":"stop"}'
    later = b'["G\xc3\xb6",12,4,1,523,"stop",{"m":"sim:b","tomorrow":1},"tomorrow"]'
    assert TaskResult.from_json(earlier) == TaskResult.from_json(later)
    assert TaskResult.from_json(later).output == "Gö"
    spec = spec_of(rows=2)
    portion = Portion(spec, range(3), [{}] * 3, [earlier, None, later], JobState.TIMED_OUT)
    first, none, second = portion
    assert replace(first, item=2) == second
    assert none.state is JobState.TIMED_OUT
