"""The archive's tables, their version, and the upsert that both databases know."""

from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    case,
    func,
    select,
)
from sqlalchemy import inspect as look_into
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from fairlane.core.errors import ArchiveTooNew

SCHEMA_VERSION = 1
SCHEMA_NAME = "fairlane"
CREATING = 0x6661_6972  # a lock's name, until the end of the transaction

Insert: TypeAlias = sqlite.Insert | postgresql.Insert

DIALECTS = frozenset({"sqlite", "postgresql"})
"""Databases that the archive can be, as SQLAlchemy names them."""

metadata = MetaData()

schema_version = Table(
    "schema_version",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("version", Integer, nullable=False),
)


def _of_run() -> list[Column[str]]:
    """The columns that name a run."""
    return [Column(name, String(64), primary_key=True) for name in ("deployment", "team", "run")]


runs = Table(
    "runs",
    metadata,
    *_of_run(),
    Column("name", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("items", BigInteger, nullable=False),
    Column("submitted_ms", BigInteger, nullable=False),
    Column("finished_ms", BigInteger, nullable=False),
    Column("archived_ms", BigInteger, comment="when the copy was whole; null until then"),
    Column("plan", Text, nullable=False, comment="JSON: the run as it was admitted"),
    Column("counts", Text, nullable=False, comment="JSON: the fields of its state in Redis"),
)

records = Table(
    "records",
    metadata,
    *_of_run(),
    Column("item", BigInteger, primary_key=True, autoincrement=False),
    Column("place", BigInteger, nullable=False, comment="how many items ended before it"),
    Column("state", String(16), nullable=False),
    Column("record", Text, nullable=False, comment="JSON: as `fairlane results` writes it, with its row"),
    Column("evaluations", Text, nullable=False, comment="JSON: what each evaluation answered"),
)

sessions = Table(
    "sessions",
    metadata,
    *_of_run(),
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("cell", BigInteger, primary_key=True, autoincrement=False),
    Column("record", Text, nullable=False, comment="JSON: how it was scored in that cell"),
    Column("evaluations", Text, nullable=False, comment="JSON: what each evaluation answered"),
)

by_place = Index("records_by_place", records.c.deployment, records.c.team, records.c.run, records.c.place)


def insert_into(dialect: str, table: Table) -> Insert:
    """The insert of that database, which knows ``ON CONFLICT``."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def upsert(dialect: str, table: Table) -> Insert:
    """Insert, or overwrite the row with that key, so that rows can be written twice."""
    insert = insert_into(dialect, table)
    return insert.on_conflict_do_update(index_elements=_keys(table), set_=_renewed(insert, table))


def upsert_run(dialect: str) -> Insert:
    """`upsert` of a run whose copy begins; a copy that another process has completed stays complete."""
    insert = insert_into(dialect, runs)
    same = case((runs.c.finished_ms == insert.excluded.finished_ms, runs.c.archived_ms), else_=None)
    renewed = _renewed(insert, runs) | {"archived_ms": same}
    return insert.on_conflict_do_update(index_elements=_keys(runs), set_=renewed)


def _keys(table: Table) -> list[str]:
    return [column.name for column in table.primary_key]


def _renewed(insert: Insert, table: Table) -> dict[str, ColumnElement[Any]]:
    return {column.name: insert.excluded[column.name] for column in table.c if not column.primary_key}


def exists(connection: Connection) -> bool:
    """Whether anything was ever archived here. Raises `ArchiveTooNew`."""
    if not look_into(connection).has_table(schema_version.name):
        return False
    version = connection.scalar(select(schema_version.c.version).where(schema_version.c.name == SCHEMA_NAME))
    if version is not None and version > SCHEMA_VERSION:
        raise ArchiveTooNew(version, SCHEMA_VERSION)
    return version is not None


def create(connection: Connection) -> None:
    """Create missing tables; another process may create them at the same moment. Raises `ArchiveTooNew`."""
    if exists(connection):
        return
    if connection.dialect.name == "postgresql":
        # In PostgreSQL two concurrent CREATE TABLE IF NOT EXISTS may both find no table, and one fails.
        connection.execute(select(func.pg_advisory_xact_lock(CREATING)))
    for table in metadata.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
    connection.execute(CreateIndex(by_place, if_not_exists=True))
    noted = insert_into(connection.dialect.name, schema_version).on_conflict_do_nothing()
    connection.execute(noted, {"name": SCHEMA_NAME, "version": SCHEMA_VERSION})
