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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Composable, Identifier

from penstock.store.address import place
from penstock.store.database import Connection, connect
from penstock.store.errors import explain
from penstock.store.staging import PART, Staging

#: Rows made into bytes at a time: large enough for NumPy, small enough for the cache.
_ROWS: Final = 16_384


def copy_batches(url: str, staging: Staging, batches: Iterable[Any], *, part: int) -> int:
    """Copy Arrow record batches into a staging table, over a connection of its own.

    `part` is the task's partition: what an earlier run of the same one left is replaced. The
    number of rows copied.
    """
    with connect(url) as connection:
        try:
            with connection.transaction():
                return fill(connection, staging, batches, part=part)
        except psycopg.Error as error:
            raise explain(error, place(url)) from error


def fill(connection: Connection, staging: Staging, batches: Iterable[Any], *, part: int) -> int:
    """The same in a transaction there is already: for rows the driver has at hand."""
    from penstock.store.copy import HEADER, TRAILER, encode

    # One run of a part at a time; the next sees what the one before committed.
    connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", (staging.name, part)
    )
    connection.execute(
        SQL("DELETE FROM {} WHERE {} = %s").format(staging.identifier, Identifier(PART)), (part,)
    )
    kinds = ["int4", *_kinds(connection, staging)]
    copied = 0
    columns = SQL(", ").join(map(Identifier, (PART, *staging.columns)))
    statement = SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(staging.identifier, columns)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(HEADER)
        for rows in _slices(batches, staging, part):
            copy.write(encode(rows, kinds))
            copied += rows.num_rows
        copy.write(TRAILER)
    return copied


def merge(
    connection: Connection,
    staging: Staging,
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


def _slices(batches: Iterable[Any], staging: Staging, part: int) -> Iterator[Any]:
    """The staged columns in their order, the part before them, a bounded number of rows each."""
    import pyarrow as pa

    from penstock.store.copy import Unsendable

    for batch in batches:
        absent = [name for name in staging.columns if name not in batch.schema.names]
        if absent:
            raise Unsendable(f"no column {', '.join(absent)} in what is to go to {staging.target}")
        chosen = batch.select(list(staging.columns))
        for start in range(0, chosen.num_rows, _ROWS):
            rows = chosen.slice(start, _ROWS)
            parts = pa.repeat(pa.scalar(part, pa.int32()), rows.num_rows)
            yield pa.RecordBatch.from_arrays([parts, *rows.columns], names=[PART, *staging.columns])


def _kinds(connection: Connection, staging: Staging) -> list[str]:
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
