"""The archive that the settings name. SQLAlchemy is loaded when it is first used, not before."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import SecretStr

from fairlane.errors import ConfigurationError
from fairlane.settings import Settings

if TYPE_CHECKING:
    from fairlane.archive.database import Database
    from fairlane.archive.reading import ArchiveReader
    from fairlane.archive.writing import ArchiveWriter

FIELD = "archive.url"


class Archive:
    """Finished runs of one deployment in a database. May be shared by threads.

    ``reader`` and ``writer`` raise `ConfigurationError` where SQLAlchemy or a driver is missing, or where the
    URL is none. No error and no text of it tells the URL.
    """

    def __init__(self, url: SecretStr, deployment: str) -> None:
        self._url, self._deployment = url, deployment

    @cached_property
    def _database(self) -> Database:
        try:
            from fairlane.archive.database import Database
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "sqlalchemy":
                raise
            problem, remedy = "needs SQLAlchemy, which is not installed", "pip install 'fairlane[archive]'"
            raise ConfigurationError(FIELD, self._url, problem, remedy) from None
        return Database(self._url)

    @cached_property
    def reader(self) -> ArchiveReader:
        database = self._database
        from fairlane.archive.reading import ArchiveReader

        return ArchiveReader(database, self._deployment)

    @cached_property
    def writer(self) -> ArchiveWriter:
        database = self._database
        from fairlane.archive.writing import ArchiveWriter

        return ArchiveWriter(database, self._deployment)

    def close(self) -> None:
        """Close connections to the database, if any were opened."""
        if "_database" in self.__dict__:
            self._database.close()


def open_archive(settings: Settings) -> Archive | None:
    """The archive of these settings; ``None`` where they name none."""
    url = settings.archive.url
    return None if url is None else Archive(url, settings.redis.deployment)


def require_archive(settings: Settings) -> Archive:
    """The archive of these settings. Raises `ConfigurationError` where they name none."""
    archive = open_archive(settings)
    if archive is None:
        remedy = "Set archive.url, such as sqlite:///runs.db or postgresql+psycopg://user@host/name"
        raise ConfigurationError(FIELD, None, "no archive is configured", remedy)
    return archive
