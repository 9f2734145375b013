"""Bulk loads: Arrow batches are copied into staging tables, then merged by key.

In a task of Spark:

    copy_batches(url, staging, batches, part=partition_id)

and in the transaction of the batch:

    merge_rows(connection, staging, "occupancy_5min", ["hive_id", "slot"],
               {"entries": "target.entries + excluded.entries"})

A repeated task replaces its rows. A batch becomes visible when its transaction commits, together
with its mark in `AppliedBatches`, so a batch that Spark repeats after a crash is skipped. A staging
table is unlogged, for one batch and target; stale ones are dropped when the flow starts again.
Arrow (40 MB) is loaded on first use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Composable, Identifier, Literal

from penstock_store.database import Connection, connect, describe_url
from penstock_store.errors import translate_error

#: Large enough for NumPy, small enough for the CPU cache.
_ROWS_PER_WRITE: Final = 16_384


def copy_batches(url: str, staging: StagingTable, batches: Iterable[Any], *, part: int) -> int:
    """Over a new connection; rows of an earlier run of the same part are replaced."""
    with connect(url) as connection:
        try:
            with connection.transaction():
                return copy_rows(connection, staging, batches, part=part)
        except psycopg.Error as error:
            raise translate_error(error, describe_url(url)) from error


def copy_rows(
    connection: Connection, staging: StagingTable, batches: Iterable[Any], *, part: int
) -> int:
    """In an existing transaction; returns the number of rows."""
    from penstock_store.binary_copy import HEADER, TRAILER, encode_rows

    # One run of a part at a time.
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", (staging.name, part)
    )
    connection.execute(
        SQL("DELETE FROM {} WHERE {} = %s").format(staging.identifier, Identifier(PART_COLUMN)),
        (part,),
    )
    kinds = ["int4", *_column_types(connection, staging)]
    copied = 0
    columns = SQL(", ").join(map(Identifier, (PART_COLUMN, *staging.columns)))
    statement = SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(staging.identifier, columns)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(HEADER)
        for rows in _slices(batches, staging, part):
            copy.write(encode_rows(rows, kinds))
            copied += rows.num_rows
        copy.write(TRAILER)
    return copied


def merge_rows(
    connection: Connection,
    staging: StagingTable,
    target: str,
    keys: Sequence[str],
    update: Mapping[str, str],
    where: str = "",
) -> int:
    """Insert or update the staged rows; returns the number of changed rows.

    `update` maps columns to expressions of `target.x` (existing) and `excluded.x` (staged); without
    it existing rows stay. `where` is a condition of the update. Expressions must be constants of
    the code. A key may be staged once only.
    """
    columns = SQL(", ").join(map(Identifier, staging.columns))
    changes = [SQL("{} = {}").format(Identifier(name), SQL(to)) for name, to in update.items()]
    action: Composable = SQL("NOTHING")
    if changes:
        action = SQL("UPDATE SET {}").format(SQL(", ").join(changes))
        if where:
            action = SQL("{} WHERE {}").format(action, SQL(where))
    return connection.execute(
        SQL("INSERT INTO {} AS target ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
            Identifier(target),
            columns,
            columns,
            staging.identifier,
            SQL(", ").join(map(Identifier, keys)),
            action,
        )
    ).rowcount


def _slices(batches: Iterable[Any], staging: StagingTable, part: int) -> Iterator[Any]:
    """Batches of at most `_ROWS_PER_WRITE` rows with the part and the staged columns."""
    import pyarrow as pa

    from penstock_store.binary_copy import ColumnTypeMismatch

    for batch in batches:
        missing = [name for name in staging.columns if name not in batch.schema.names]
        if missing:
            raise ColumnTypeMismatch(
                f"the rows for {staging.target} lack the columns {', '.join(missing)}"
            )
        selected = batch.select(list(staging.columns))
        for start in range(0, selected.num_rows, _ROWS_PER_WRITE):
            rows = selected.slice(start, _ROWS_PER_WRITE)
            parts = pa.repeat(pa.scalar(part, pa.int32()), rows.num_rows)
            yield pa.RecordBatch.from_arrays(
                [parts, *rows.columns], names=[PART_COLUMN, *staging.columns]
            )


def _column_types(connection: Connection, staging: StagingTable) -> list[str]:
    """Types of the staged columns; the base type of a domain."""
    found = connection.execute(
        """
        SELECT attname, kind.typname
        FROM pg_attribute
        JOIN pg_type AS declared ON declared.oid = atttypid
        JOIN pg_type AS kind ON kind.oid = coalesce(nullif(declared.typbasetype, 0), declared.oid)
        WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
        """,
        (staging.identifier.as_string(connection),),
    )
    kinds = {row["attname"]: row["typname"] for row in found}
    return [kinds[name] for name in staging.columns]


STAGING_SCHEMA: Final = "staging"
#: The part that a row belongs to.
PART_COLUMN: Final = "_part"
_FLOW_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,19}")


@dataclass(frozen=True, slots=True)
class StagingTable:
    """Picklable."""

    name: str
    target: str
    columns: tuple[str, ...]

    @property
    def identifier(self) -> Identifier:
        return Identifier(STAGING_SCHEMA, self.name)


def create_staging_table(
    connection: Connection, flow: str, batch_id: int, target: str, columns: Sequence[str]
) -> StagingTable:
    """An empty staging table with columns of the target."""
    if not _FLOW_NAME.fullmatch(flow):
        raise ValueError(f"a flow name must have up to 20 of a-z, 0-9, - and _, got {flow!r}")
    staging = StagingTable(f"{_prefix(flow)}{batch_id}.{target}", target, tuple(columns))
    drop_staging_table(connection, staging)
    connection.execute(
        SQL("CREATE UNLOGGED TABLE {} AS SELECT 0 AS {}, {} FROM {} WITH NO DATA").format(
            staging.identifier,
            Identifier(PART_COLUMN),
            SQL(", ").join(map(Identifier, staging.columns)),
            Identifier(target),
        )
    )
    return staging


def drop_staging_table(connection: Connection, staging: StagingTable) -> None:
    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(staging.identifier))


def drop_stale_staging_tables(connection: Connection, flow: str) -> int:
    """Drop tables that a crashed process of the flow has left; returns their number."""
    left = connection.execute(
        SQL(
            "SELECT tablename FROM pg_tables WHERE schemaname = {} AND starts_with(tablename, {})"
        ).format(Literal(STAGING_SCHEMA), Literal(_prefix(flow)))
    ).fetchall()
    for row in left:
        table = Identifier(STAGING_SCHEMA, row["tablename"])
        connection.execute(SQL("DROP TABLE IF EXISTS {}").format(table))
    return len(left)


def _prefix(flow: str) -> str:
    return f"{flow}."


#: Spark repeats the last batch only; older marks are for inspection.
MAX_MARKS: Final = 1000


class AppliedBatches:
    """Marks of applied batches, in one transaction."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def applied(self, flow: str, batch_id: int) -> bool:
        found = self._connection.execute(
            "SELECT FROM pipeline_batch WHERE flow = %s AND batch_id = %s", (flow, batch_id)
        )
        return found.rowcount > 0

    def mark(self, flow: str, batch_id: int, rows: int) -> None:
        """This transaction applies the batch; a concurrent one waits or fails."""
        self._connection.execute(
            "INSERT INTO pipeline_batch (flow, batch_id, rows) VALUES (%s, %s, %s)",
            (flow, batch_id, rows),
        )
        self._connection.execute(
            "DELETE FROM pipeline_batch WHERE flow = %s AND batch_id <= %s",
            (flow, batch_id - MAX_MARKS),
        )

    def last(self, flow: str) -> int | None:
        row = self._connection.execute(
            "SELECT max(batch_id) AS batch_id FROM pipeline_batch WHERE flow = %s", (flow,)
        ).fetchone()
        return row["batch_id"] if row else None
