"""A night's findings into PostgreSQL, in one transaction with the mark of the day, and the lake.

The same day again changes nothing that has not changed. What is found of people and deals replaces
what was found before; what is found of days stays, a day beside another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa

from penstock.pipeline.lake import Lake
from penstock.store import Batches, Connection, Database, discard, fill, merge, stage

#: Names the marks and the staging tables, and in the lake the folder of these tables.
FLOW: Final = "analytics"


@dataclass(frozen=True, slots=True)
class Gold:
    """A table, what its rows are known by, and whether yesterday's rows go."""

    keys: tuple[str, ...]
    replaced: bool = False


TABLES: Final[Mapping[str, Gold]] = {
    "hive_popularity": Gold(("day", "window_days", "hive_id")),
    "preference_shift": Gold(("day", "window_days", "hive_type")),
    "hive_comparison": Gold(("hive_id", "day", "window_days")),
    "deal_effect": Gold(("deal_id",)),
    "custom_metric_value": Gold(("metric_id", "hive_id", "day")),
    "deal_recommendation": Gold(("user_id", "deal_id"), replaced=True),
    "insight": Gold(("account_id", "hive_id", "kind", "day")),
}


def done(database: Database, day: date) -> bool:
    with database.transaction() as connection:
        return Batches(connection).applied(FLOW, day.toordinal())


def publish(
    database: Database, found: Mapping[str, pa.Table], day: date, now: datetime
) -> dict[str, int]:
    """How many rows of each table there are; a day that was done is done again, and marked once."""
    written = {}
    with database.transaction() as connection:
        for name, rows in found.items():
            written[name] = _put(connection, name, _made(rows, now), day)
        batches = Batches(connection)
        if not batches.applied(FLOW, day.toordinal()):
            batches.mark(FLOW, day.toordinal(), sum(written.values()))
    return written


def keep(lake: Lake, found: Mapping[str, pa.Table], day: date, now: datetime) -> None:
    """The same in the lake, as `gold.<table>`: a batch is a day."""
    for name, rows in found.items():
        whole = _dated(_made(rows, now), day)
        table = f"gold.{name}"
        writing = lake.draft(table, day.toordinal()).begin(whole.schema)
        if len(whole):
            writing.add(whole)
        lake.enter(table, day.toordinal(), writing.close(), whole.schema)


def _put(connection: Connection, name: str, rows: pa.Table, day: date) -> int:
    gold = TABLES[name]
    if gold.replaced:
        connection.execute(f"DELETE FROM {name}")
    staging = stage(connection, FLOW, day.toordinal(), name, rows.schema.names)
    count = fill(connection, staging, rows.to_batches(), part=0)
    update = {
        column: f"excluded.{column}" for column in rows.schema.names if column not in gold.keys
    }
    merge(connection, staging, name, gold.keys, update)
    discard(connection, staging)
    return count


def _made(rows: pa.Table, now: datetime) -> pa.Table:
    if "made_at" in rows.schema.names:
        return rows
    return rows.append_column("made_at", _repeated(now, pa.timestamp("us", tz="UTC"), len(rows)))


def _dated(rows: pa.Table, day: date) -> pa.Table:
    if "day" not in rows.schema.names:
        rows = rows.append_column("day", _repeated(day, pa.date32(), len(rows)))
    return rows.append_column("batch", _repeated(day.toordinal(), pa.int64(), len(rows)))


def _repeated(value: Any, kind: Any, count: int) -> Any:
    return pa.repeat(pa.scalar(value, kind), count)
