"""What is wrong with a row, a field's name or a file is said with what to write in its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import SubmissionError, exact_match
from fairlane.client.submitting.parameters import check_names_of_fields
from fairlane.core.errors import TemplateError
from fairlane.datasets.rows import read_rows
from fairlane.evaluators.builders import similarity
from fairlane.model.evaluators import Similarity
from fairlane.pipeline.rendering import _reference
from fairlane.templates.template import Template
from tests.support.stage import Stage


def refused(stage: Stage, rows: Any, prompt: str, **options: Any) -> SubmissionError:
    with pytest.raises(SubmissionError) as caught:
        stage.client.submit(rows, prompt, **{"model": "sim:fast"} | options)
    return caught.value


def test_a_null_is_no_missing_field(stage: Stage) -> None:
    error = refused(stage, [{"q": None, "qq": 1}] * 3, "{{ q }}")
    assert "none of the 3 rows has a value in this field (got 'q'). The rows have q, qq." in str(error)
    assert "Did you mean" not in str(error)
    for text in ("{{ q }}", "{{ q | trim }}"):
        with pytest.raises(TemplateError, match="the row's field 'q' is null"):
            Template("prompt", text).render({"q": None})
    spec = similarity("sim:e", "q")
    assert isinstance(spec, Similarity)
    with pytest.raises(TemplateError, match="field 'q' is null"):
        _reference(spec, {"q": None})


@pytest.mark.parametrize("name", ["a-b", "self", "x.y", "a b", "2nd"])
def test_a_field_that_no_template_names_is_written_by_its_key(stage: Stage, name: str) -> None:
    row = {name: "text", "q": 1}
    error = refused(stage, [row] * 2, f"Q: {{{{ {name} }}}}")
    assert f'{{{{ row["{name}"] }}}}' in str(error)
    stage.client.submit([row] * 2, f'Q: {{{{ row["{name}"] }}}}', model="sim:fast")


def test_a_difference_of_two_fields_is_one(stage: Stage) -> None:
    stage.client.submit([{"a-b": "x", "a": 3, "b": 1}], "{{ a-b }}", model="sim:fast")


@given(name=st.text(min_size=1), rest=st.text())
def test_any_name_of_a_field_is_quoted_so_that_a_template_reads_it(name: str, rest: str) -> None:
    try:
        check_names_of_fields("prompt", f"{{{{ {name} }}}}{rest}", [name])
    except SubmissionError as error:
        written = error.remedy.removeprefix("Write ").removesuffix(".")
        assert Template("prompt", written).render({name: "its value"}) == "its value"


def test_a_name_of_an_evaluator_is_explained_in_words() -> None:
    with pytest.raises(SubmissionError, match="must be 1 to 64 letters, digits") as caught:
        exact_match("a", name="my name!")
    assert "my name!" in str(caught.value)
    assert "pattern" not in str(caught.value)


@pytest.mark.parametrize("content", ['{"q": 1}\n{"q": 2}\n', '{"data": [{"q": 1}]}'])
def test_an_object_in_place_of_an_array_says_what_to_do(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(SubmissionError, match=r"name it \.jsonl") as caught:
        list(read_rows(path))
    assert "save that list alone" in str(caught.value)
    path.write_text('"a text"')
    with pytest.raises(SubmissionError, match="Write an array of objects"):
        list(read_rows(path))


@pytest.mark.parametrize(("suffix", "command"), [(".gz", "gunzip"), (".ZST", "unzstd"), (".zip", "unzip")])
def test_a_packed_file_is_to_be_unpacked(tmp_path: Path, suffix: str, command: str) -> None:
    path = tmp_path / f"rows.jsonl{suffix}"
    with pytest.raises(SubmissionError, match=f"Unpack it first: {command} "):
        read_rows(path)


def test_whole_numbers_with_gaps_are_whole_in_a_frame() -> None:
    frame = pandas.DataFrame(
        {"id": [1, 2, None], "f": [1.0, 2.5, None], "w": [1.0, 2.0, 3.0], "o": ["a"] * 3}
    )
    rows = list(read_rows(frame))
    assert rows == [
        {"id": 1, "f": 1.0, "w": 1.0, "o": "a"},
        {"id": 2, "f": 2.5, "w": 2.0, "o": "a"},
        {"w": 3.0, "o": "a"},
    ]
    assert [type(rows[0][name]) for name in ("id", "f", "w")] == [int, float, float]
    assert Template("prompt", "{{ id }}").render(rows[1]) == "2"


@given(
    values=st.lists(
        st.none() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False),
        max_size=9,
    )
)
def test_a_number_of_a_frame_stays_the_number_that_it_is(values: list[Any]) -> None:
    frame = pandas.DataFrame({"n": pandas.Series(values, dtype="float64"), "o": ["a"] * len(values)})
    found = [row.get("n") for row in read_rows(frame)]
    assert found == [None if value is None else float(value) for value in values]


def test_a_column_of_gaps_alone_and_long_frames_are_read() -> None:
    assert list(read_rows(pandas.DataFrame({"n": [float("nan")] * 2, "q": [1, 2]}))) == [{"q": 1}, {"q": 2}]
    frame = pandas.DataFrame({"n": [float(n) if n % 7 else None for n in range(2500)]})
    assert [row.get("n") for row in read_rows(frame)] == [n if n % 7 else None for n in range(2500)]
    late = pandas.DataFrame({"n": [*map(float, range(1500)), None, 0.5]})
    assert {type(row["n"]) for row in read_rows(late) if "n" in row} == {float}
