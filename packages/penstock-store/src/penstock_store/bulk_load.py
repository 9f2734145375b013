"""Many rows at once: copied from Arrow into staging tables, then merged by key.

In a task of Spark's:

    copy_batches(url, staging, batches, part=partition_id)

and in the batch's one transaction:

    merge(connection, staging, "occupancy_5min", ["hive_id", "slot"],
          {"entries": "target.entries + excluded.entries"})

A task that is run again, or twice at a time, leaves its rows once. Nothing of a batch is to be
seen before the transaction that merges it commits. Arrow is loaded with the first rows: who only
asks a database, as a worker of the API does, is spared its forty megabytes.
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

#: Rows made into bytes at a time: large enough for NumPy, small enough for the cache.
_ROWS_PER_WRITE: Final = 16_384


def copy_batches(url: str, staging: StagingTable, batches: Iterable[Any], *, part: int) -> int:
    """Copy Arrow record batches into a staging table, over a connection of its own.

    `part` is the task's partition: what an earlier run of the same one left is replaced. The
    number of rows copied.
    """
    with connect(url) as connection:
        try:
            with connection.transaction():
                return copy_rows(connection, staging, batches, part=part)
        except psycopg.Error as error:
            raise translate_error(error, describe_url(url)) from error


def copy_rows(
    connection: Connection, staging: StagingTable, batches: Iterable[Any], *, part: int
) -> int:
    """The same in a transaction there is already: for rows the driver has at hand."""
    from penstock_store.binary_copy import HEADER, TRAILER, encode_rows

    # One run of a part at a time; the next sees what the one before committed.
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
    """Insert staged rows, or update those that are there. How many were inserted or changed.

    `update` gives for a column the expression it becomes: `target.x` is what is there,
    `excluded.x` what was staged. Without any, rows that are there stay as they are. `where` is a
    condition for updating. All of them are written in a step's code, never made from what came
    in. A key may be staged once only.
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
    """The staged columns in their order, the part before them, a bounded number of rows each."""
    import pyarrow as pa

    from penstock_store.binary_copy import ColumnTypeMismatch

    for batch in batches:
        absent = [name for name in staging.columns if name not in batch.schema.names]
        if absent:
            raise ColumnTypeMismatch(
                f"no column {', '.join(absent)} in what is to go to {staging.target}"
            )
        chosen = batch.select(list(staging.columns))
        for start in range(0, chosen.num_rows, _ROWS_PER_WRITE):
            rows = chosen.slice(start, _ROWS_PER_WRITE)
            parts = pa.repeat(pa.scalar(part, pa.int32()), rows.num_rows)
            yield pa.RecordBatch.from_arrays(
                [parts, *rows.columns], names=[PART_COLUMN, *staging.columns]
            )


def _column_types(connection: Connection, staging: StagingTable) -> list[str]:
    """The types of the staged columns; a domain's is the one beneath it."""
    found = connection.execute(
        """
        SELECT attname, kind.typname
        FROM pg_attribute
        JOIN pg_type AS said ON said.oid = atttypid
        JOIN pg_type AS kind ON kind.oid = coalesce(nullif(said.typbasetype, 0), said.oid)
        WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
        """,
        (staging.identifier.as_string(connection),),
    )
    kinds = {row["attname"]: row["typname"] for row in found}
    return [kinds[name] for name in staging.columns]


# Room for the rows of a batch that is on its way: a table per batch and target, unlogged.
#
# The driver makes it (`create_staging_table`), tasks fill it (`copy_batches`), the batch's
# transaction merges it (`merge`) and throws it away (`drop_staging_table`). A process that died
# leaves its tables behind; the next of the same flow sweeps them (`drop_stale_staging_tables`) when
# it starts.

STAGING_SCHEMA: Final = "staging"
#: Says which task a row came from, so that a task that is run again replaces its rows.
PART_COLUMN: Final = "_part"
_FLOW_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,19}")


@dataclass(frozen=True, slots=True)
class StagingTable:
    """A staging table: small, and at home in any process."""

    name: str
    target: str
    columns: tuple[str, ...]

    @property
    def identifier(self) -> Identifier:
        return Identifier(STAGING_SCHEMA, self.name)


def create_staging_table(
    connection: Connection, flow: str, batch_id: int, target: str, columns: Sequence[str]
) -> StagingTable:
    """An empty staging table with some columns of the target, of the same types."""
    if not _FLOW_NAME.fullmatch(flow):
        raise ValueError(f"{flow!r} is no name of a flow: up to 20 of a-z, 0-9, - and _")
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
    """Drop what a process of this flow left behind. How many tables."""
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


# Which batches are in the tables already.
#
# A batch's mark is made in the transaction that applies it, so either both are there or neither: a
# process killed between the database's commit and Spark's finds the mark and skips the batch.

#: Spark asks again for the last batch only; the rest are kept for people to look at.
MAX_MARKS: Final = 1000


class AppliedBatches:
    """The marks, as one transaction sees and makes them."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def applied(self, flow: str, batch_id: int) -> bool:
        found = self._connection.execute(
            "SELECT FROM pipeline_batch WHERE flow = %s AND batch_id = %s", (flow, batch_id)
        )
        return found.rowcount > 0

    def mark(self, flow: str, batch_id: int, rows: int) -> None:
        """Say that this transaction applies the batch. Another that does so fails, or waits."""
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
