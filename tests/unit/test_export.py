"""Records as JSON lines, in a file that is there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.export.files import whole_file
from fairlane.export.lines import record_line, write_lines
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Usage

RECORD = Record(
    item=3,
    row={"question": "Größe?"},
    model="sim:fast",
    prompt=0,
    repetition=1,
    state=JobState.SUCCEEDED,
    output="two\nlines",
    scores=MappingProxyType({"exact_match": 1.0, "judge": None}),
    score_errors={"judge": "no verdict"},
    usage=Usage(10, None),
    attempts=2,
    error=None,
)


def test_a_record_is_one_line_with_every_field() -> None:
    line = record_line(RECORD)
    assert line.count("\n") == 1
    assert "Größe" in line
    found = json.loads(line)
    assert found["scores"] == {"exact_match": 1.0, "judge": None}
    assert found["state"] == "succeeded"
    unknown = {"output_tokens": None, "cached_tokens": None, "written_tokens": None}
    assert found["usage"] == {"input_tokens": 10} | unknown
    assert set(found) == set(Record.__dataclass_fields__)


ANY_TEXT = st.text(st.characters(), max_size=8)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(
    st.builds(
        lambda row, output, usage: replace(RECORD, row=row, output=output, eval_usage={"judge": usage}),
        st.dictionaries(ANY_TEXT, ANY_JSON, max_size=3),
        st.none() | ANY_TEXT,
        st.builds(Usage, st.none() | st.integers(0)),
    ),
    max_size=4,
)


@given(RECORDS)
def test_lines_have_what_the_records_have(records: list[Record]) -> None:
    out = BytesIO()
    assert write_lines(records, out) == len(records)
    lines = out.getvalue()
    assert lines.count(b"\n") == len(records)
    for line, record in zip(lines.splitlines(), records, strict=True):
        found = json.loads(line)
        assert (found["row"], found["output"]) == (record.row, record.output)
        assert found["eval_usage"]["judge"]["input_tokens"] == record.eval_usage["judge"].input_tokens


def test_records_before_an_error_are_written() -> None:
    def broken() -> Iterator[Record]:
        yield from [RECORD] * 53
        raise ValueError("gone")

    out = BytesIO()
    with pytest.raises(ValueError, match="gone"):
        write_lines(broken(), out)
    assert out.getvalue().decode() == record_line(RECORD) * 53


def test_a_file_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with whole_file(path) as out:
        out.write("half")
        out.flush()
        assert not path.exists()
    assert path.read_text() == "half"
    assert list(tmp_path.iterdir()) == [path]


def break_off(path: Path, interruption: type[BaseException]) -> None:
    with whole_file(path) as out:
        out.write("half")
        raise interruption


@pytest.mark.parametrize("interruption", [ValueError, KeyboardInterrupt])
def test_what_is_broken_off_leaves_the_file_of_before(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("of before")
    with pytest.raises(interruption):
        break_off(path, interruption)
    assert path.read_text() == "of before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing, whole_file(tmp_path / "no" / "out.jsonl"):
        pytest.fail("must not begin")
    assert missing.value.filename == str(tmp_path / "no" / "out.jsonl")
    with pytest.raises(IsADirectoryError), whole_file(tmp_path):
        pytest.fail("must not begin")
