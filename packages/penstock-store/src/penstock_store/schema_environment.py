"""What Alembic runs to migrate one schema: one process at a time, all steps or none.

`schema.py` passes the URL and the version table in the attributes of Alembic's configuration.
"""

from __future__ import annotations

from typing import Final

from alembic import context
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from penstock_store.database import sqlalchemy_url

#: The key of the advisory lock: the bytes of "penstock" as a number.
_LOCK: Final = int.from_bytes(b"penstock")


def run() -> None:
    attributes = context.config.attributes
    engine = create_engine(sqlalchemy_url(attributes["url"]), poolclass=NullPool)
    with engine.connect() as connection, connection.begin():
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        # Alembic runs inside this transaction and begins none of its own, so a step that fails
        # rolls back all of them.
        context.configure(
            connection=connection,
            transactional_ddl=True,
            version_table=attributes["version_table"],
        )
        context.run_migrations()
