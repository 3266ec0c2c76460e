"""Records as JSON lines, in a file that is there whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType

import pytest

from fairlane.export.files import whole_file
from fairlane.export.lines import record_line
from fairlane.model.job import JobState, Usage
from fairlane.model.results import Record

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
    assert found["usage"] == {"input_tokens": 10, "output_tokens": None, "cached_tokens": None}
    assert set(found) == set(Record.__dataclass_fields__)


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
