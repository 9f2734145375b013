"""Generations: another set of gold tables, rebuilt beside the current one and then adopted.

A generation is a PostgreSQL schema with empty copies of the tables that batches write. It precedes
the public schema on a transaction's `search_path`, so the same statements write to it; the
catalogue, nightly resets and manual counts are shared. Adoption copies the differences in one
transaction: readers see the old tables until it commits, and few rows are written if few differ.
"""

from __future__ import annotations

from typing import Final

from psycopg.sql import SQL, Composable, Composed, Identifier

from penstock_hives.occupancy.gold.staging import GOLD_TABLES
from penstock_store import Connection

PUBLIC_SCHEMA: Final = "public"
_INPUT: Final = "nightly_reset"  #: shared: a rebuild does not change it
#: The tables that batches write, with their keys.
_KEYS: Final = {
    **{name: table.keys for name, table in GOLD_TABLES.items() if name != _INPUT},
    "pipeline_batch": ("flow", "batch_id"),
}
#: This table has rows of other flows; only the flow's own are replaced.
_SHARED: Final = "pipeline_batch"
#: A changed row gets a new version, as in a batch.
_VERSIONED: Final = "hive_status"


def create_generation(connection: Connection, flow: str, generation: int) -> None:
    """An empty generation; what an unfinished rebuild left is dropped."""
    drop_generation(connection, flow, generation)
    schema = _schema(flow, generation)
    connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
    for table in _KEYS:
        connection.execute(
            SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(
                Identifier(schema, table), Identifier(PUBLIC_SCHEMA, table)
            )
        )


def drop_generation(connection: Connection, flow: str, generation: int) -> None:
    schema = Identifier(_schema(flow, generation))
    connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))


def generation_exists(connection: Connection, flow: str, generation: int) -> bool:
    found = connection.execute(
        "SELECT FROM pg_namespace WHERE nspname = %s", (_schema(flow, generation),)
    )
    return found.rowcount > 0


def use_generation(connection: Connection, flow: str, generation: int) -> None:
    """The rest of the transaction writes to this generation."""
    connection.execute(
        SQL("SET LOCAL search_path TO {}, {}").format(
            Identifier(_schema(flow, generation)), Identifier(PUBLIC_SCHEMA)
        )
    )


def adopt_generation(connection: Connection, flow: str, generation: int) -> None:
    """Make the public tables equal to this generation's, and drop it."""
    schema = _schema(flow, generation)
    for table, keys in _KEYS.items():
        ours = SQL("stored.flow = {}").format(flow) if table == _SHARED else SQL("true")
        same = SQL(" AND ").join(
            SQL("new.{0} = stored.{0}").format(Identifier(key)) for key in keys
        )
        gone = SQL("NOT EXISTS (SELECT FROM {} AS new WHERE {})").format(
            Identifier(schema, table), same
        )
        public = Identifier(PUBLIC_SCHEMA, table)
        connection.execute(
            SQL("DELETE FROM {} AS stored WHERE {} AND {}").format(public, ours, gone)
        )
        connection.execute(_upsert(connection, schema, table, keys))
    drop_generation(connection, flow, generation)


def _upsert(connection: Connection, schema: str, table: str, keys: tuple[str, ...]) -> Composed:
    rows = connection.execute(
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (schema, table),
    )
    names = [row["column_name"] for row in rows]
    values = [name for name in names if name not in keys and name != "version"]
    changes: list[Composable] = [
        SQL("{0} = excluded.{0}").format(Identifier(name)) for name in values
    ]
    if table == _VERSIONED:
        changes.append(SQL("version = stored.version + 1"))
    return SQL(
        "INSERT INTO {} AS stored ({}) SELECT {} FROM {} ON CONFLICT ({}) DO UPDATE SET {} "
        "WHERE ({}) IS DISTINCT FROM ({})"
    ).format(
        Identifier(PUBLIC_SCHEMA, table),
        SQL(", ").join(map(Identifier, names)),
        SQL(", ").join(map(Identifier, names)),
        Identifier(schema, table),
        SQL(", ").join(map(Identifier, keys)),
        SQL(", ").join(changes),
        SQL(", ").join(SQL("stored.{}").format(Identifier(name)) for name in values),
        SQL(", ").join(SQL("excluded.{}").format(Identifier(name)) for name in values),
    )


def _schema(flow: str, generation: int) -> str:
    return f"{flow}_{generation}"
