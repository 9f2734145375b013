"""Run by Alembic: connects, and lets one process at a time change the schema, all or nothing.

`migrating.py` passes the URL in the configuration's attributes: in the file it would be taken for
a template.
"""

from __future__ import annotations

from typing import Final

from alembic import context
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from penstock.store.address import for_sqlalchemy

#: Any number will do, as long as nobody else locks it: "penstock" as bytes, the first eight.
_LOCK: Final = int.from_bytes(b"penstock")


def run() -> None:
    engine = create_engine(for_sqlalchemy(context.config.attributes["url"]), poolclass=NullPool)
    with engine.connect() as connection, connection.begin():
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        # Alembic runs inside our transaction and begins none of its own: a step that fails
        # undoes all of them.
        context.configure(connection=connection, transactional_ddl=True)
        context.run_migrations()


run()
