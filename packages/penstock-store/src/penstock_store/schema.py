"""Database schemas: each installed package owns one and upgrades it step by step with Alembic.

A package announces its schema by the entry point group `penstock.schemas`: a package of Alembic
scripts with `HEAD`, its newest revision. `migrate` may be called by any number of processes at
once, and loads Alembic only when there is something to do. A schema that a newer version has
changed is left alone.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final

import psycopg
from psycopg import errors
from psycopg.sql import SQL, Identifier

from penstock.core.logs import get_logger
from penstock_store.database import Connection, connect, describe_url
from penstock_store.errors import StoreNotReady, translate_error

log = get_logger(__name__)

GROUP: Final = "penstock.schemas"
#: The schema other schemas may rely on; it is upgraded first and removed last.
_FIRST: Final = "store"
EMPTY: Final = "base"
#: Before the first release all packages shared this version table.
_UNRELEASED: Final = "alembic_version"
#: Alembic keeps its configuration in globals.
_ALEMBIC: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Schema:
    name: str
    scripts: str  #: the package with `env.py` and `versions/`
    head: str  #: the newest revision

    @property
    def version_table(self) -> str:
        return f"alembic_version_{self.name}"


def installed_schemas() -> list[Schema]:
    """The schemas of all installed packages, in the order of upgrades."""
    found = [
        Schema(entry.name, entry.value, import_module(entry.value).HEAD)
        for entry in entry_points(group=GROUP)
    ]
    return sorted(found, key=lambda schema: (schema.name != _FIRST, schema.name))


def migrate(url: str, to: str | None = None) -> None:
    """Upgrade every schema to its head, or remove them all (`EMPTY`)."""
    schemas = installed_schemas()
    for schema in reversed(schemas) if to == EMPTY else schemas:
        migrate_schema(url, schema, to or schema.head)


def migrate_schema(url: str, schema: Schema, to: str) -> None:
    now = revision(url, schema)
    if now == (None if to == EMPTY else to):
        return
    _alembic(url, schema, now, to)
    log.info(
        "schema migrated",
        schema=schema.name,
        database=describe_url(url),
        before=now or EMPTY,
        after=to,
    )


def revisions(url: str) -> dict[str, str]:
    """The revision of each installed schema that is in the database."""
    found = {schema.name: revision(url, schema) for schema in installed_schemas()}
    return {name: at for name, at in found.items() if at is not None}


def revision(url: str, schema: Schema) -> str | None:
    with connect(url) as connection:
        try:
            found = _recorded(connection, schema.version_table)
            if found is None and _recorded(connection, _UNRELEASED):
                raise StoreNotReady(
                    f"the database at {describe_url(url)} is from before the first release: "
                    "create it anew"
                )
            return found
        except psycopg.Error as error:
            raise translate_error(error, describe_url(url)) from error


def _recorded(connection: Connection, table: str) -> str | None:
    query = SQL("SELECT version_num FROM {}").format(Identifier(table))
    try:
        row = connection.execute(query).fetchone()
    except errors.UndefinedTable:
        connection.rollback()
        return None
    return row["version_num"] if row else None


def _alembic(url: str, schema: Schema, now: str | None, to: str) -> None:
    # Loading Alembic takes half a second and 30 MB.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from sqlalchemy.exc import DBAPIError

    config = Config()
    package, _, folder = schema.scripts.rpartition(".")
    config.set_main_option("script_location", f"{package}:{folder}")
    config.attributes["url"] = url
    config.attributes["version_table"] = schema.version_table
    known = [step.revision for step in ScriptDirectory.from_config(config).walk_revisions()]
    if now is not None and now not in known:
        raise StoreNotReady(
            f"schema {schema.name} at {describe_url(url)} has revision {now}, which this "
            "version does not know. If a newer Penstock migrated it, upgrade this installation; "
            "if the database is from before the first release, create it anew"
        )
    down = now is not None and (to == EMPTY or known.index(to) > known.index(now))
    try:
        with _ALEMBIC:
            (command.downgrade if down else command.upgrade)(config, to)
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise translate_error(error.orig, describe_url(url)) from error
        raise
