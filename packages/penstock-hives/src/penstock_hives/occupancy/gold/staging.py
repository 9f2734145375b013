"""Gold tables, and the staging tables in which the rows of a batch wait to be published.

Rows are copied to staging tables, by the driver or by the tasks of a Spark job, and one transaction
merges them into the gold tables together with the mark of the batch. Tasks share unlogged tables
that are named after the batch; a task that is repeated replaces its rows. A single process uses
temporary tables of its connection, which are created once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import pyarrow as pa
from psycopg.sql import SQL, Composable, Composed, Identifier

from penstock_store import Connection
from penstock_store.binary_copy import HEADER, TRAILER, encode_rows
from penstock_store.bulk_load import PART_COLUMN, STAGING_SCHEMA

#: Rows that are encoded at a time.
_ROWS: Final = 16_384
NEW_COLUMN: Final = "is_new"


@dataclass(frozen=True, slots=True)
class GoldTable:
    """How staged rows are merged into a table."""

    keys: tuple[str, ...]
    columns: Mapping[str, str]  #: with their types
    owner: str = ""  #: rows of owners that were deleted are left out
    #: Changes of an existing row besides taking over the staged values.
    update: Mapping[str, str] = field(default_factory=dict)
    where: str = "true"  #: when an existing row is changed, if it differs
    insert_only: bool = False
    is_versioned: bool = False  #: the column `version` counts changes
    sums: Mapping[str, str] = field(default_factory=dict)  #: if a key is staged more than once
    #: Staged rows tell in `is_new` whether the key exists. A new row costs a third less than one
    #: that may exist; if another process has inserted it meanwhile, the batch is attempted again.
    tells_new: bool = False

    @property
    def staged_columns(self) -> dict[str, str]:
        """With their types."""
        new = {NEW_COLUMN: "bool"} if self.tells_new else {}
        return {PART_COLUMN: "int4", **self.columns, **new}


def _numbers(*names: str, kind: str = "int4") -> dict[str, str]:
    return dict.fromkeys(names, kind)


_ROLLUP: Final = {
    **_numbers("entries", "exits", "occupancy_end", "peak"),
    "mean": "float8",
}
#: In the order of the merges.
GOLD_TABLES: Final = {
    "sensor_state": GoldTable(
        ("sensor_id",),
        {
            **_numbers("sensor_id", "total_in", "total_out", kind="int8"),
            "device_time": "timestamp",
            **_numbers("received_at", "at", kind="timestamptz"),
            "rate_p99": "float8",
            **_numbers("sum_in", "sum_out", kind="int8"),
            **_numbers("counter", "flags"),
            "memory": "bytea",
            "batch": "int8",
        },
        owner="sensor",
    ),
    "sensor_status": GoldTable(
        ("sensor_id",),
        {
            "sensor_id": "int8",
            **_numbers("received_at", "started_at", kind="timestamptz"),
            **_numbers("battery_mv", "sensor_state", "discarded_events", "signal_dbm"),
            "firmware": "text",
            "configuration_id": "int8",
            "raw": "bytea",
        },
        owner="sensor",
        where="excluded.received_at >= target.received_at",
    ),
    "dead_letter_count": GoldTable(
        ("day", "stream", "reason"),
        {
            "day": "date",
            **_numbers("stream", "reason", kind="text"),
            "count": "int8",
            "last_at": "timestamptz",
        },
        update={
            "count": "target.count + excluded.count",
            "last_at": "greatest(target.last_at, excluded.last_at)",
        },
        sums={"count": "sum", "last_at": "max"},
    ),
    "nightly_reset": GoldTable(
        ("hive_id", "day"),
        {"hive_id": "int8", "day": "date", "at": "timestamptz"},
        owner="hive",
        insert_only=True,
    ),
    "hive_offset": GoldTable(
        ("hive_id", "at"),
        {"hive_id": "int8", "at": "timestamptz", "correction": "int8", "cause": "text"},
        owner="hive",
    ),
    "occupancy_5min": GoldTable(
        ("hive_id", "slot"),
        {
            "hive_id": "int8",
            "slot": "timestamptz",
            **_numbers("entries", "exits", "occupancy_end", "peak"),
        },
        owner="hive",
        tells_new=True,
    ),
    "occupancy_hour": GoldTable(
        ("hive_id", "slot"), {"hive_id": "int8", "slot": "timestamptz", **_ROLLUP}, owner="hive"
    ),
    "occupancy_day": GoldTable(
        ("hive_id", "day"),
        {"hive_id": "int8", "day": "date", **_ROLLUP, "peak_at": "timestamptz"},
        owner="hive",
    ),
    "kpi_day": GoldTable(
        ("hive_id", "day"),
        {
            "hive_id": "int8",
            "day": "date",
            "visits": "int4",
            "mean_occupancy": "float8",
            "mean_percent": "float4",
            "peak": "int4",
            "peak_hour": "int2",
            "coverage": "float4",
        },
        owner="hive",
    ),
    "hive_status": GoldTable(
        ("hive_id",),
        {
            "hive_id": "int8",
            **_numbers("occupancy", "raw_occupancy"),
            "percent": "float4",
            **_numbers("level", "trend", "quality", kind="text"),
            "as_of": "timestamptz",
        },
        owner="hive",
        is_versioned=True,
    ),
}
GoldRows = Mapping[str, pa.Table]  #: by table
_PARTS: Final = "parts"


@dataclass(frozen=True, slots=True)
class GoldStaging:
    """The staging tables of a batch; without a name those of one connection. Picklable."""

    name: str = ""

    @classmethod
    def of_batch(cls, flow: str, generation: int, batch: int) -> GoldStaging:
        return cls(f"{flow}-{generation}.{batch}" if generation else f"{flow}.{batch}")

    def create(self, connection: Connection) -> None:
        """Empty tables for the tasks of a batch; those of other batches, which a process that was
        killed has left, are dropped."""
        flow = self.name.rpartition(".")[0]
        rows = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename ~ %s",
            (STAGING_SCHEMA, rf"^{flow}\.\d+\."),
        )
        for row in rows.fetchall():
            stale = Identifier(STAGING_SCHEMA, row["tablename"])
            connection.execute(SQL("DROP TABLE IF EXISTS {}").format(stale))
        for name, table in GOLD_TABLES.items():
            self._create(connection, name, table)
        connection.execute(
            SQL(
                "CREATE UNLOGGED TABLE {} (tasks text, part int, PRIMARY KEY (tasks, part))"
            ).format(self.table(_PARTS))
        )

    def drop(self, connection: Connection) -> None:
        names = SQL(", ").join(map(self.table, (*GOLD_TABLES, _PARTS)))
        connection.execute(SQL("DROP TABLE IF EXISTS {}").format(names))

    def table(self, target: str) -> Identifier:
        if self.name:
            return Identifier(STAGING_SCHEMA, f"{self.name}.{target}")
        return Identifier("pg_temp", f"staged_{target}")

    def copy(self, connection: Connection, rows: GoldRows, tasks: str = "", part: int = 0) -> None:
        """Stage rows, of a part of the tasks of a stage; an earlier run of it is replaced."""
        targets = [target for target in GOLD_TABLES if target in rows and len(rows[target])]
        if self.name:
            self._begin_part(connection, targets, tasks, part)
        elif targets:
            self._create_temporary(connection)
        for target in targets:
            self._copy(connection, target, rows[target], part)

    def merge(self, connection: Connection, targets: Sequence[str] = tuple(GOLD_TABLES)) -> None:
        """Publish what is staged. Staged statuses that differ from the stored ones remain."""
        for target in GOLD_TABLES:
            if target in targets:
                connection.execute(_merge_statement(self, target))

    def changed_hives(self) -> Composed:
        """After `merge`, the condition for hives whose status has changed."""
        return SQL("hive_id IN (SELECT hive_id FROM {})").format(self.table("hive_status"))

    def count_changed_hives(self, connection: Connection) -> int:
        statement = SQL("SELECT count(*) AS count FROM {}").format(self.table("hive_status"))
        row = connection.execute(statement).fetchone()
        return int(row["count"]) if row else 0

    def _begin_part(
        self, connection: Connection, targets: Sequence[str], tasks: str, part: int
    ) -> None:
        """Waits for a concurrent run of the same part."""
        statement = SQL("INSERT INTO {} VALUES (%s, %s) ON CONFLICT DO NOTHING")
        if connection.execute(statement.format(self.table(_PARTS)), (tasks, part)).rowcount:
            return
        part_column = Identifier(PART_COLUMN)
        for target in targets:
            delete = SQL("DELETE FROM {} WHERE {} = %s").format(self.table(target), part_column)
            connection.execute(delete, (part,))

    def _create_temporary(self, connection: Connection) -> None:
        any_table = f"pg_temp.staged_{next(iter(GOLD_TABLES))}"
        row = connection.execute("SELECT to_regclass(%s) AS name", (any_table,)).fetchone()
        if row is None or row["name"] is None:
            for name, table in GOLD_TABLES.items():
                self._create(connection, name, table)

    def _create(self, connection: Connection, name: str, table: GoldTable) -> None:
        columns = [
            SQL("{} {}").format(Identifier(each), SQL(kind))
            for each, kind in table.staged_columns.items()
        ]
        statement = SQL("CREATE {} TABLE {} ({}) {}").format(
            SQL("UNLOGGED" if self.name else "TEMPORARY"),
            self.table(name) if self.name else Identifier(f"staged_{name}"),
            SQL(", ").join(columns),
            SQL("" if self.name else "ON COMMIT DELETE ROWS"),
        )
        connection.execute(statement)

    def _copy(self, connection: Connection, target: str, rows: pa.Table, part: int) -> None:
        columns = GOLD_TABLES[target].staged_columns
        parts = pa.repeat(pa.scalar(part, pa.int32()), len(rows))
        rows = rows.append_column(PART_COLUMN, parts).select(list(columns))
        statement = SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(self.table(target))
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(HEADER)
            for batch in rows.combine_chunks().to_batches(max_chunksize=_ROWS):
                copy.write(encode_rows(batch, list(columns.values())))
            copy.write(TRAILER)


@lru_cache(maxsize=64)
def _merge_statement(staging: GoldStaging, target: str) -> str:
    table, staged = GOLD_TABLES[target], staging.table(target)
    insert = _insertion(staged, target, table)
    if table.tells_new:
        new = _insertion(staged, target, table, only_new=True)
        insert = SQL("WITH added AS ({}) {}").format(new, insert)
    if table.is_versioned:
        insert = SQL(
            "WITH changed AS ({} RETURNING hive_id) "
            "DELETE FROM {} WHERE hive_id NOT IN (SELECT hive_id FROM changed)"
        ).format(insert, staged)
    return insert.as_string()


def _insertion(
    staged: Identifier, target: str, table: GoldTable, *, only_new: bool = False
) -> Composed:
    names = list(table.columns)
    columns: list[Composable] = [Identifier(name) for name in names]
    values: list[Composable] = [
        SQL("{}({})").format(SQL(table.sums[name]), Identifier(name))
        if name in table.sums
        else Identifier(name)
        for name in names
    ]
    changes = {name: f"excluded.{name}" for name in names if name not in table.keys}
    changes |= table.update
    differs: Composable = SQL("({}) IS DISTINCT FROM ({}) AND {}").format(
        SQL(", ".join(f"target.{name}" for name in changes)),
        SQL(", ".join(changes.values())),
        SQL(table.where),
    )
    if table.is_versioned:
        changes["version"] = "target.version + 1"
        columns.append(SQL("version"))
        values.append(SQL("1"))
    keys = SQL(", ").join(map(Identifier, table.keys))
    action = SQL("NOTHING")
    if not table.insert_only:
        assigned = SQL(", ".join(f"{name} = {value}" for name, value in changes.items()))
        action = SQL("UPDATE SET {} WHERE {}").format(assigned, differs)  # type: ignore[assignment]
    exists = SQL("true")
    if table.owner:
        exists = SQL("EXISTS (SELECT FROM {} WHERE id = staged.{})").format(  # type: ignore[assignment]
            Identifier(table.owner), Identifier(f"{table.owner}_id")
        )
    if table.tells_new:
        exists = SQL("{} {} AND {}").format(  # type: ignore[assignment]
            SQL("" if only_new else "NOT"), Identifier(NEW_COLUMN), exists
        )
    groups = SQL(" GROUP BY {}").format(keys) if table.sums else SQL("")
    conflict = SQL("") if only_new else SQL("ON CONFLICT ({}) DO {}").format(keys, action)
    return SQL("INSERT INTO {} AS target ({}) SELECT {} FROM {} AS staged WHERE {}{} {}").format(
        Identifier(target),
        SQL(", ").join(columns),
        SQL(", ").join(values),
        staged,
        exists,
        groups,
        conflict,
    )
