"""A value means the same in a row, in a call's arguments and in a model's parameters."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from collections import deque
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, ClassVar
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from django.utils.translation import gettext_lazy
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fairlane import SubmissionError
from fairlane.client.calls import _row as row_of_call
from fairlane.client.submitting.arguments import take_params
from fairlane.client.submitting.submission import build_spec
from fairlane.datasets.rows import read_rows
from fairlane.datasets.values import plain
from tests.support.stage import Stage


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.datetimes(),
    st.dates(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.uuids(),
    st.just(Colour.RED),
    st.just(PurePosixPath("a/b")),
    st.builds(Point, st.integers(0, 9)),
    st.integers(0, 9).map(np.int16),
    st.floats(0, 1, width=32).map(np.float32),
    st.floats(0, 1).map(np.longdouble),
    st.lists(st.integers(0, 9), max_size=3).map(np.array),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_rows_arguments_and_parameters_take_the_same_json(value: Any) -> None:
    (row,) = read_rows([{"v": value}])
    taken = json.loads(json.dumps(row["v"]))
    assert row_of_call(0, ([value], {"k": value})) == {"args": [taken], "kwargs": {"k": taken}}
    assert take_params("params", {"v": value}) == {"v": taken}
    assert json.loads(json.dumps(plain(value))) == taken


@pytest.mark.parametrize("gap", [float("nan"), np.float32("nan"), pd.NA, pd.NaT, Decimal("nan")], ids=repr)
def test_a_gap_is_no_argument_and_no_parameter(gap: Any) -> None:
    for refused in (lambda: row_of_call(0, ([gap], {})), lambda: row_of_call(0, ([], {"k": [gap]}))):
        with pytest.raises(SubmissionError, match="is not JSON"):
            refused()
    with pytest.raises(SubmissionError, match="is not JSON"):
        take_params("params", {"temperature": gap})


@pytest.mark.parametrize("value", [b"abc", {1}, dt.timedelta(1), Fraction(1, 2)], ids=repr)
def test_an_argument_that_is_no_json_says_what_to_give(value: Any) -> None:
    with pytest.raises(SubmissionError, match=r"value|sorted"):
        row_of_call(0, ([value], {}))


def test_a_value_that_holds_itself_is_refused_at_once() -> None:
    value: list[Any] = []
    value += [value, value, dt.date(2026, 1, 1)]
    with pytest.raises(SubmissionError):
        row_of_call(0, ([value], {}))
    with pytest.raises(SubmissionError, match="nested deeper"):
        list(read_rows([{"v": value}]))


def test_numpys_numbers_are_options_of_a_run(stage: Stage) -> None:
    given: dict[str, Any] = {"prompt": "x", "model": "sim:fast"}
    spec = build_spec("r1", "search", 0, **given, repetitions=np.int64(3), timeout=np.float32(2.5))
    assert (spec.repetitions, spec.timeout) == (3, 2.5)


def refusal(rows: Any) -> SubmissionError:
    with pytest.raises(SubmissionError) as caught:
        list(read_rows(rows))
    return caught.value


class Picture(BaseModel):
    data: bytes


class PilImage:
    pass


PilImage.__name__ = "Image"


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (dt.timedelta(1), "total_seconds"),
        (pd.Timedelta(1), "total_seconds"),
        (np.timedelta64(1, "s"), "timedelta64"),
        (pd.Period("2026-01"), "str(value)"),
        (pd.Interval(0, 1), "str(value)"),
        (Fraction(1, 2), "float(value)"),
        (deque([1]), "list(value)"),
        (range(3), "list(value)"),
        (np.bytes_(b"x"), "decode"),
        (pd.DataFrame({"a": [1]}), "to_dict"),
        (PilImage(), "data:image/png;base64"),
        (gettext_lazy("lazy"), "str(value)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_no_row_can_hold_have_their_own_remedy(value: Any, remedy: str) -> None:
    error = refusal([{"a": 1}, {"a": value}])
    assert error.row == 2
    assert remedy in error.remedy


def test_numbers_of_numpy_that_python_lacks_are_floats() -> None:
    rows = [{"a": np.longdouble("0.5"), "b": np.array([0.25], dtype=np.longdouble)}]
    assert list(read_rows(rows)) == [{"a": 0.5, "b": [0.25]}]


def test_a_masked_array_has_null_where_it_is_masked() -> None:
    masked = np.ma.array([1, 2], mask=[False, True])
    assert list(read_rows([{"a": masked}])) == [{"a": [1, None]}]


def test_a_record_whose_own_code_fails_is_refused_by_its_row() -> None:
    for row in (Picture(data=b"\xff"), {"deep": [Picture(data=b"\xff")]}):
        error = refusal([{"a": 1}, row])
        assert error.row == 2
        assert "UnicodeDecodeError" in str(error)


class OfAttrs:
    """A stand-in for a class of attrs, which is not installed here."""

    class _Attribute:
        name = "q"

    __attrs_attrs__: ClassVar = (_Attribute,)
    q = 1


class Torchlike:
    """A sequence with no ``__iter__``, as data sets of torch are."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: int) -> dict[str, int]:
        if at >= 2:
            raise IndexError
        return {"q": at}


def test_more_kinds_of_rows_and_datasets_are_read() -> None:
    assert list(read_rows([OfAttrs()])) == [{"q": 1}]
    assert list(read_rows([row for _, row in pd.DataFrame({"q": [1]}).iterrows()])) == [{"q": 1}]
    with closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        assert list(read_rows(database.execute("select 1 as q"))) == [{"q": 1}]
    assert list(read_rows(Torchlike())) == [{"q": 0}, {"q": 1}]


class ArrowDataset:
    def to_table(self) -> None: ...


class RayDataset:
    """Its ``__iter__`` raises, as that of `ray.data.Dataset` does."""

    def __iter__(self) -> Any:
        raise TypeError

    def iter_rows(self) -> None: ...


class SparkFrame:
    def toPandas(self) -> None: ...  # noqa: N802 - Spark's name


@pytest.mark.parametrize(
    ("dataset", "remedy"),
    [
        (pd.DataFrame({"a": [1]}).iterrows(), "iterrows"),
        (iter(['{"a": 1}\n']), "path"),
        ([pd.DataFrame({"a": [1]})], "with_format(None)"),
        ({"q": ["a", "b"], "n": [1, 2]}, "pandas.DataFrame"),
        ({"q": np.array([1, 2])}, "dataset.select"),
        ({"q": ["a", "b"], "n": [1]}, "Put it into a list"),
        ({"q": "ab"}, "Put it into a list"),
        ({}, "Put it into a list"),
        (ArrowDataset(), "to_table()"),
        (RayDataset(), "dataset.iter_rows()"),
        (SparkFrame(), "dataset.toPandas()"),
    ],
    ids=[
        "iterrows",
        "lines",
        "frames",
        "columns",
        "arrays",
        "ragged",
        "text",
        "empty",
        "arrow",
        "ray",
        "spark",
    ],
)
def test_what_is_no_dataset_says_what_to_give(dataset: Any, remedy: str) -> None:
    assert remedy in refusal(dataset).remedy


GAPS = {
    "Int64": pd.array([1, None], dtype="Int64"),
    "float": [1.0, None],
    "boolean": pd.array([True, None], dtype="boolean"),
    "string": pd.array(["x", None], dtype="string"),
    "arrow": pd.array(["x", None], dtype="string[pyarrow]"),
    "datetime": pd.to_datetime(["2026-01-01", None]),
    "category": pd.Categorical(["x", None]),
}


@pytest.mark.parametrize("kind", GAPS)
def test_a_gap_of_a_frame_is_no_field_whatever_its_columns_type(kind: str) -> None:
    first, second = read_rows(pd.DataFrame({"a": GAPS[kind], "b": [1, 2]}))
    assert set(first) == {"a", "b"}
    assert second == {"b": 2}


def test_what_stands_in_a_column_of_objects_stays() -> None:
    column = pd.Series(["x", None, float("nan"), pd.NA], dtype=object)
    assert list(read_rows(pd.DataFrame({"a": column}))) == [{"a": "x"}, {"a": None}, {}, {}]


@pytest.mark.parametrize("once", [lambda: iter([{"q": 1}]), lambda: (row for row in [{"q": 1}])])
def test_an_estimate_reads_nothing_that_a_submit_would_lack(stage: Stage, once: Any) -> None:
    rows = once()
    with pytest.raises(SubmissionError, match=r"list\("):
        stage.client.estimate(rows, "{{ q }}", model="sim:fast")
    assert list(rows) == [{"q": 1}]


def test_a_uuid_and_a_date_are_arguments() -> None:
    row = row_of_call(0, ([UUID(int=1)], {"at": dt.date(2026, 1, 2)}))
    assert row == {"args": ["00000000-0000-0000-0000-000000000001"], "kwargs": {"at": "2026-01-02"}}
