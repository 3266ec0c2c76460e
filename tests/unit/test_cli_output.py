"""News go to standard error, results to standard output."""

from __future__ import annotations

import json
from datetime import timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.cli.output import (
    at_local_time,
    complain,
    iso,
    print_fields,
    print_json,
    print_rows,
    print_table,
    say,
)


def test_news_and_complaints_leave_standard_output_alone(capsys: pytest.CaptureFixture[str]) -> None:
    say("[bold]as it is[/bold]")
    complain("wrong")
    seen = capsys.readouterr()
    assert (seen.out, seen.err) == ("", "[bold]as it is[/bold]\nerror: wrong\n")


def test_a_message_shows_no_url_s_password(capsys: pytest.CaptureFixture[str]) -> None:
    say("redis://:secret@host is away")
    complain("https://host/v1?code=secret answers 401")
    assert "secret" not in capsys.readouterr().err


def test_json_is_one_document_in_any_language(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "Größe", "n": 1})
    out = capsys.readouterr().out
    assert json.loads(out) == {"name": "Größe", "n": 1}
    assert "Größe" in out


def test_a_table_shows_cells_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", ">jobs"], [["[red]x", 7], ["yy", 1000]])
    assert capsys.readouterr().out.splitlines() == ["name    jobs", "[red]x     7", "yy      1000"]


@given(st.integers(0, 10**30), st.integers(-23, 23))
def test_a_time_that_no_calendar_has_is_shown_as_the_last(at_ms: int, hours: int) -> None:
    assert "1970-01-01T00:00:00.000Z" <= str(iso(at_ms)) <= "9999-12-31T00:00:00.000Z"
    assert at_local_time(at_ms, 0, timezone(timedelta(hours=hours)))


def test_a_row_in_a_pipe_is_one_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", ">count"), [("x" * 5_000, 1)])
    print_fields([("name", "y " * 5_000 + "z")])
    print_rows([("name", "v" * 5_000)])
    lines = capsys.readouterr().out.splitlines()
    assert [len(line) for line in lines] == [5_007, 5_007, 10_007, 5_006]
