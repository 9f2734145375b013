"""What Alembic runs to migrate one schema: one process at a time, all steps or none.

`schema.py` passes the URL, the version table and the known revisions in the attributes of Alembic's
configuration.
"""

from __future__ import annotations

from typing import Final

from alembic import context
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from penstock_store.database import sqlalchemy_url

#: The key of the advisory lock: the bytes of "penstock" as a number.
_LOCK: Final = int.from_bytes(b"penstock")
#: Version 0.1 recorded one revision for all packages in this table. Revisions keep their numbers.
_LEGACY_TABLE: Final = "alembic_version"


def run() -> None:
    attributes = context.config.attributes
    engine = create_engine(sqlalchemy_url(attributes["url"]), poolclass=NullPool)
    with engine.connect() as connection, connection.begin():
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        _adopt_legacy(connection, attributes["version_table"], attributes["revisions"])
        # Alembic runs inside this transaction and begins none of its own, so a step that fails
        # rolls back all of them.
        context.configure(
            connection=connection,
            transactional_ddl=True,
            version_table=attributes["version_table"],
        )
        context.run_migrations()


def _adopt_legacy(connection: Connection, version_table: str, revisions: list[str]) -> None:
    """Record what version 0.1 has applied of this schema in the schema's own table."""
    exists = text("SELECT to_regclass(:name) IS NOT NULL")
    if connection.scalar(exists, {"name": version_table}):
        return
    if not connection.scalar(exists, {"name": _LEGACY_TABLE}):
        return
    applied = connection.scalar(text(f"SELECT version_num FROM {_LEGACY_TABLE}"))
    newest = max((step for step in revisions if applied and step <= applied), default=None)
    if newest is not None:
        connection.execute(
            text(f"CREATE TABLE {version_table} (version_num varchar(32) PRIMARY KEY)")
        )
        connection.execute(
            text(f"INSERT INTO {version_table} VALUES (:newest)"), {"newest": newest}
        )
