"""Another set of the tables of gold, built aside and then made the one people look at.

A generation is a schema of PostgreSQL with empty copies of the tables that batches write. On a
transaction's `search_path` it stands before the schema of everybody, so the same statements write
to it; the catalogue, nights and counts of heads are found behind it, and are the same for all.
Adopting one brings over what differs, in one transaction: who reads sees the old tables until it
is done, and of a rebuild that changes little, little is written.
"""

from __future__ import annotations

from typing import Final

from psycopg.sql import SQL, Composable, Composed, Identifier

from penstock_store import Connection

PUBLIC_SCHEMA: Final = "public"
#: What batches write, with the keys.
GOLD_TABLES: Final = {
    "sensor_state": ("sensor_id",),
    "sensor_status": ("sensor_id",),
    "hive_status": ("hive_id",),
    "hive_offset": ("hive_id", "at"),
    "occupancy_5min": ("hive_id", "slot"),
    "occupancy_hour": ("hive_id", "slot"),
    "occupancy_day": ("hive_id", "day"),
    "kpi_day": ("hive_id", "day"),
    "dead_letter_count": ("day", "stream", "reason"),
    "pipeline_batch": ("flow", "batch_id"),
}
#: The tables of other flows' rows, too: only ours are brought over.
_SHARED: Final = "pipeline_batch"
#: A hive that stands otherwise than before says so with a new version, as it would in a batch.
_VERSIONED: Final = "hive_status"


def create_generation(connection: Connection, flow: str, generation: int) -> None:
    """An empty one; what a rebuild that came to no end left of it goes."""
    drop_generation(connection, flow, generation)
    schema = _schema(flow, generation)
    connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
    for table in GOLD_TABLES:
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
    """For the rest of the transaction, statements write to this generation."""
    connection.execute(
        SQL("SET LOCAL search_path TO {}, {}").format(
            Identifier(_schema(flow, generation)), Identifier(PUBLIC_SCHEMA)
        )
    )


def adopt_generation(connection: Connection, flow: str, generation: int) -> None:
    """Make everybody's tables the same as this generation's, and drop it."""
    schema = _schema(flow, generation)
    for table, keys in GOLD_TABLES.items():
        ours = SQL("held.flow = {}").format(flow) if table == _SHARED else SQL("true")
        same = SQL(" AND ").join(SQL("new.{0} = held.{0}").format(Identifier(key)) for key in keys)
        gone = SQL("NOT EXISTS (SELECT FROM {} AS new WHERE {})").format(
            Identifier(schema, table), same
        )
        held = Identifier(PUBLIC_SCHEMA, table)
        connection.execute(SQL("DELETE FROM {} AS held WHERE {} AND {}").format(held, ours, gone))
        connection.execute(_brought_over(connection, schema, table, keys))
    drop_generation(connection, flow, generation)


def _brought_over(
    connection: Connection, schema: str, table: str, keys: tuple[str, ...]
) -> Composed:
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
        changes.append(SQL("version = held.version + 1"))
    return SQL(
        "INSERT INTO {} AS held ({}) SELECT {} FROM {} ON CONFLICT ({}) DO UPDATE SET {} "
        "WHERE ({}) IS DISTINCT FROM ({})"
    ).format(
        Identifier(PUBLIC_SCHEMA, table),
        SQL(", ").join(map(Identifier, names)),
        SQL(", ").join(map(Identifier, names)),
        Identifier(schema, table),
        SQL(", ").join(map(Identifier, keys)),
        SQL(", ").join(changes),
        SQL(", ").join(SQL("held.{}").format(Identifier(name)) for name in values),
        SQL(", ").join(SQL("excluded.{}").format(Identifier(name)) for name in values),
    )


def _schema(flow: str, generation: int) -> str:
    return f"{flow}_{generation}"
