"""Outputs read as values of a user's type, and as polars frames."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest
from pydantic import BaseModel
from pydantic.errors import PydanticSchemaGenerationError

from fairlane.core.errors import MissingExtra
from fairlane.export.parsed import parse_outputs
from fairlane.export.tables import to_frame, to_polars_frame
from fairlane.model.job import JobState
from tests.support.records import make_record


class Invoice(BaseModel):
    number: str
    total: float


@dataclass
class Point:
    x: int


WHOLE = '{"number": "a", "total": 1.5}'


@pytest.mark.parametrize("output", [WHOLE, f"```json\n{WHOLE}\n```", f"\n```\n{WHOLE}```\n"])
def test_an_output_is_a_value_of_the_wanted_type(output: str) -> None:
    (parsed,) = parse_outputs([made := make_record(output=output)], Invoice)
    assert (parsed.value, parsed.problem) == (Invoice(number="a", total=1.5), None)
    assert parsed.record is made


def test_other_types_than_models_are_validated_too() -> None:
    (parsed,) = parse_outputs([make_record(output='[{"x": 1}]')], list[Point])
    assert parsed.value == [Point(1)]


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ('{"total": "much"}', "number: Field required; total: Input should be a valid number"),
        ("secret prose", "Invalid JSON"),
        ("[]", "Input should be an object"),
    ],
)
def test_an_output_of_another_form_has_a_problem_instead(output: str, problem: str) -> None:
    (parsed,) = parse_outputs([make_record(output=output)], Invoice)
    assert parsed.value is None
    assert problem in (parsed.problem or "")
    assert "much" not in (parsed.problem or "")


def test_a_failed_item_has_its_own_error() -> None:
    failed = make_record(output=None, state=JobState.FAILED, error="400: refused")
    skipped = make_record(output=None, state=JobState.SKIPPED)
    problems = [each.problem for each in parse_outputs([failed, skipped], Invoice)]
    assert problems == ["400: refused", "the task is skipped and has no output"]


def test_a_type_that_cannot_be_validated_is_refused_before_a_record_is_read() -> None:
    class Odd:
        pass

    with pytest.raises(PydanticSchemaGenerationError):
        parse_outputs(iter([]), Odd)


RECORDS = [
    make_record(0, row={"q": "Größe?", "n": 1, "ok": True}, scores={"judge": 0.5}),
    make_record(1, row={"q": "x", "n": 2}, scores={"judge": None}),
]


def test_a_polars_frame_has_the_columns_and_values_of_the_pandas_frame() -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("pandas")
    frame, other = to_polars_frame(RECORDS), to_frame(RECORDS)
    assert frame.columns == list(other.columns)
    assert frame["row.q"].to_list() == ["Größe?", "x"]
    assert frame.schema["row.n"] == polars.Int64
    assert frame.schema["row.ok"] == polars.Boolean
    assert frame["scores.judge"].to_list() == [0.5, None]


def test_without_polars_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtra, match=r"fairlane\[polars\]"):
        to_polars_frame(iter([]))
