"""Access to the archive's database. It loads SQLAlchemy when it is first used, not before."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import SecretStr

from fairlane.client.archive import FIELD
from fairlane.core.errors import ConfigurationError
from fairlane.core.redaction import MASK

if TYPE_CHECKING:
    from fairlane.apps.archive.archived_runs import ArchivedRuns
    from fairlane.apps.archive.database import Database


class Access:
    """Reads and writes finished runs of one deployment in a database. May be shared by threads.

    ``stored`` raises `ConfigurationError` where SQLAlchemy or a driver is missing, or where the URL is none.
    No error shows the URL.
    """

    def __init__(self, url: SecretStr, deployment: str) -> None:
        self._url, self._deployment = url, deployment

    @cached_property
    def _database(self) -> Database:
        try:
            from fairlane.apps.archive.database import Database
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "sqlalchemy":
                raise
            problem = "needs SQLAlchemy, which is not installed"
            remedy = "pip install 'fairlane[archive]'; for an image, name it in PACKAGES of its build."
            raise ConfigurationError(FIELD, MASK, problem, remedy) from None
        return Database(self._url)

    @cached_property
    def stored(self) -> ArchivedRuns:
        """The runs in the archive."""
        database = self._database
        from fairlane.apps.archive.archived_runs import ArchivedRuns

        return ArchivedRuns(database, self._deployment)

    def require_writable(self) -> None:
        """Raise `ConfigurationError` where the URL or its driver is wrong."""
        _ = self.stored

    def close(self) -> None:
        """Close connections to the database, if any were opened."""
        if "_database" in self.__dict__:
            self._database.close()
