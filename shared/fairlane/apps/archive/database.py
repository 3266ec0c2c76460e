"""Opens the archive's database, and reports its failures without its URL."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr
from sqlalchemy import URL, Connection, Engine, NullPool, StaticPool, create_engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from fairlane.apps.archive import schema
from fairlane.core.errors import ArchiveUnavailable, ConfigurationError
from fairlane.core.redaction import MASK, mask_text

FIELD = "archive.url"
BUSY_S = 30.0
"""Seconds for which a writer of a SQLite file waits for another one."""
MOST_ERROR_CHARS = 300

_REMEDY = "Give one as sqlite:///runs.db or postgresql+psycopg://user:password@host/name"


class Database:
    """An engine whose transactions raise `ArchiveUnavailable`. May be shared by threads."""

    def __init__(self, url: SecretStr) -> None:
        """Connects to nothing yet. Raises `ConfigurationError`."""
        self._url = _parsed(url)
        self._secrets = _secrets_of(url, self._url)
        self.engine = self._engine()
        self._created = False

    @property
    def dialect(self) -> str:
        """SQLAlchemy's name of the database's kind, like ``postgresql``."""
        return self.engine.dialect.name

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction; creates missing tables first. Raises `ArchiveUnavailable` and `ArchiveTooNew`."""
        if not self._created:
            with self._without_secrets(), self.engine.begin() as connection:
                schema.create(connection)
            self._created = True
        with self._without_secrets(), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection | None]:
        """A connection, or ``None`` where nothing was ever archived. Raises as `writing` does."""
        with self._without_secrets(), self.engine.connect() as connection:
            self._created = self._created or schema.exists(connection)
            yield connection if self._created else None

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _engine(self) -> Engine:
        try:
            # Parameters are users' data, and must not show in errors.
            engine = create_engine(self._url, hide_parameters=True, **_options(self._url))
        except ImportError as missing:
            name = missing.name or "its driver"
            problem = f"needs the package {name}, which is not installed"
            raise ConfigurationError(FIELD, MASK, problem, "Install it beside Fairlane") from None
        except SQLAlchemyError:
            raise _refused("is not what SQLAlchemy can open") from None
        if engine.dialect.is_async:
            raise _refused("names a driver for asyncio")
        return engine

    @contextmanager
    def _without_secrets(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            # Chained causes would show statements and parts of the URL.
            raise ArchiveUnavailable(self._message_of(error)) from None

    def _message_of(self, error: SQLAlchemyError) -> str:
        cause = getattr(error, "orig", None) or error
        text = str(cause).strip().partition("\n")[0]
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return f"{type(cause).__name__}: {mask_text(text)[:MOST_ERROR_CHARS]}"


def _options(url: URL) -> dict[str, Any]:
    """Pool sizes: one connection for a database in memory, none for a file of SQLite, else two."""
    if url.get_backend_name() != "sqlite":
        return {"pool_size": 2, "pool_pre_ping": True}
    if url.database in (None, "", ":memory:"):
        return {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    return {"poolclass": NullPool, "connect_args": {"timeout": BUSY_S}}


def _parsed(url: SecretStr) -> URL:
    try:
        parsed = make_url(url.get_secret_value())
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        raise _refused("is not a database URL") from None
    if backend not in schema.DIALECTS:
        raise _refused("is neither SQLite nor PostgreSQL")
    return parsed


def _refused(problem: str) -> ConfigurationError:
    return ConfigurationError(FIELD, MASK, problem, _REMEDY)


def _secrets_of(url: SecretStr, parsed: URL) -> list[str]:
    """Secrets that an error must not show, the longest first."""
    found = {url.get_secret_value()}
    if parsed.password:
        password = str(parsed.password)
        found |= {password, quote(password, safe="")}
    return sorted(found, key=len, reverse=True)
