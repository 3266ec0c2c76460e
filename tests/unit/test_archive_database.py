"""The archive's database: both dialects' upserts, versions, and errors that do not tell its URL."""

from __future__ import annotations

import builtins
import sqlite3
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import OperationalError

from fairlane.apps.archive.database import MOST_ERROR_CHARS, Database
from fairlane.apps.archive.opening import Archive
from fairlane.apps.archive.schema import (
    SCHEMA_VERSION,
    metadata,
    records,
    runs,
    upsert,
    upsert_run,
)
from fairlane.client.archive import open_archive, require_archive
from fairlane.config.sections import ArchiveSettings
from fairlane.config.settings import Settings
from fairlane.core.errors import ArchiveTooNew, ArchiveUnavailable, ConfigurationError, RunNotFound
from fairlane.model.run import RunRef
from tests.support.archives import sqlite_url

PASSWORD = "pass/word-of@the=archive"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(sqlite_url(tmp_path))
    yield made
    made.close()


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()], ids=lambda each: each.name)
@pytest.mark.parametrize("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_an_upsert_names_the_key_and_replaces_the_rest(dialect: Any, table: Any) -> None:
    said = " ".join(str(upsert(dialect.name, table).compile(dialect=dialect)).split()).replace('"', "")
    keys = ", ".join(column.name for column in table.primary_key)
    rest = [column.name for column in table.c if not column.primary_key]
    assert f"ON CONFLICT ({keys}) DO UPDATE SET " in said
    assert said.endswith(", ".join(f"{name} = excluded.{name}" for name in rest))


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()], ids=lambda each: each.name)
def test_a_run_whose_copy_begins_again_stays_whole_if_it_ended_at_the_same_time(dialect: Any) -> None:
    said = " ".join(str(upsert_run(dialect.name).compile(dialect=dialect)).split())
    assert said.count("ON CONFLICT") == 1
    kept = "CASE WHEN (runs.finished_ms = excluded.finished_ms) THEN runs.archived_ms END"
    assert f"archived_ms = {kept}" in said


def test_rows_written_twice_are_there_once_and_as_written_last(database: Database) -> None:
    row = {"deployment": "d", "team": "t", "run": "r", "item": 0, "place": 0}
    row |= {"record": "{}", "evaluations": "[]"}
    for state in ("failed", "succeeded"):
        with database.writing() as connection:
            connection.execute(
                upsert(database.dialect, records),
                [row | {"state": state}],
            )
    with database.reading() as connection:
        assert connection is not None
        assert connection.execute(records.select()).scalars("state").all() == ["succeeded"]


def test_tables_are_made_by_the_first_writer_and_not_by_a_reader(database: Database) -> None:
    with database.reading() as connection:
        assert connection is None
    with database.writing():
        pass
    with database.reading() as connection:
        assert connection is not None
        assert list(connection.execute(text("select name, version from schema_version"))) == [
            ("fairlane", SCHEMA_VERSION)
        ]


def test_two_writers_may_make_the_tables(tmp_path: Path) -> None:
    both = [Database(sqlite_url(tmp_path)) for _ in range(2)]
    for each in both:
        with each.writing() as connection:
            assert connection.scalar(text("select count(*) from schema_version")) == 1
        each.close()


def test_a_newer_schema_is_refused(tmp_path: Path, database: Database) -> None:
    with database.writing() as connection:
        connection.execute(text("update schema_version set version = 99"))
    later = Database(sqlite_url(tmp_path))
    for use in (later.writing, later.reading):
        with pytest.raises(ArchiveTooNew, match=r"version 99.*knows 1: upgrade"), use():
            pass
    later.close()


def test_an_archive_that_nobody_wrote_to_holds_no_run(tmp_path: Path) -> None:
    archive = Archive(sqlite_url(tmp_path), "test")
    with pytest.raises(RunNotFound):
        archive.stored.overview(RunRef("search", "r1"))
    archive.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"{PASSWORD}", "is not a database URL"),
        (f"mysql://u:{PASSWORD}@h/d", "neither SQLite nor PostgreSQL"),
        (f"postgresql+nosuch://u:{PASSWORD}@h/d", "is not what SQLAlchemy can open"),
        (f"sqlite+aiosqlite:///{PASSWORD}", "asyncio|not installed"),
        (f"postgresql://u:{PASSWORD}@h:port/d", "is not a database URL"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_telling_it(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        Database(SecretStr(url))
    assert "word-of" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.field == "archive.url"


def test_a_database_that_cannot_be_opened_is_reported_without_its_url(tmp_path: Path) -> None:
    hidden = tmp_path / "secret-folder" / "runs.db"
    database = Database(SecretStr(f"sqlite:///{hidden}"))
    with pytest.raises(ArchiveUnavailable, match="unable to open") as caught, database.writing():
        pass
    assert "secret-folder" not in "".join(traceback.format_exception(caught.value))


def test_what_a_driver_says_loses_the_password_and_the_url(database: Database) -> None:
    url = SecretStr("sqlite:////nowhere/of/note.db")
    database = Database(url)
    database._secrets = ["hunter2", url.get_secret_value()]
    cause = sqlite3.OperationalError(f"no password hunter2 for {url.get_secret_value()} of pg://u:x@h")
    error = OperationalError("select 'people''s data'", {"row": "data"}, cause)
    with pytest.raises(ArchiveUnavailable) as caught, database._without_secrets():
        raise error
    shown = "".join(traceback.format_exception(caught.value))
    assert "OperationalError: no password *** for *** of pg://u:***@h" in shown
    for hidden in ("hunter2", "nowhere", "people", "data"):
        assert hidden not in str(caught.value)


def test_a_password_that_the_end_of_a_long_error_cuts_is_masked(database: Database) -> None:
    database._secrets = ["hunter2hunter2"]
    for words in range(MOST_ERROR_CHARS - 20, MOST_ERROR_CHARS + 1):
        cause = sqlite3.OperationalError("x" * words + "hunter2hunter2 is wrong")
        with pytest.raises(ArchiveUnavailable) as caught, database._without_secrets():
            raise OperationalError("select 1", {}, cause)
        assert "hunt" not in str(caught.value)


def test_without_sqlalchemy_the_remedy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "fairlane.apps.archive.database":
            raise ModuleNotFoundError("No module named 'sqlalchemy'", name="sqlalchemy")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigurationError, match=r"fairlane\[archive\]"):
        _ = Archive(SecretStr("sqlite://"), "test").stored


def test_settings_name_the_archive_and_never_show_it() -> None:
    assert open_archive(Settings()) is None
    with pytest.raises(ConfigurationError, match=r"archive\.url: no archive is configured"):
        require_archive(open_archive(Settings()))
    settings = Settings(archive=ArchiveSettings(url=SecretStr(f"postgresql://u:{PASSWORD}@h/d")))
    assert open_archive(settings) is not None
    assert "word-of" not in repr(settings) + str(settings) + settings.model_dump_json()


def test_the_tables_are_named_as_documented() -> None:
    assert sorted(metadata.tables) == ["records", "runs", "schema_version", "sessions"]
    assert runs.c.archived_ms.nullable
