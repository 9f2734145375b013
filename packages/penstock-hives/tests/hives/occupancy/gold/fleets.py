"""A simulated fleet through the flow: its frames as bronze has them, in batches of any cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock_hives.occupancy.flow import HivesFlow
from penstock_hives.sensors import catalogue_writer
from penstock_hives.sensors.fleet import Fleet, Quirks
from penstock_spark.bronze import MESSAGES_SCHEMA, SHARD_COLUMN, BronzeFiles, open_table
from penstock_spark.flow import FlowBatch
from penstock_spark.lake import Lake, StagedBatch
from penstock_spark.sharding import ShardKey
from penstock_store import Database

START = datetime(2026, 3, 27, tzinfo=UTC)  # clocks change in Europe on the 29th


@dataclass
class Line:
    """All frames of a fleet, in order, and the flow they go through."""

    spark: SparkSession
    database: Database
    flow: HivesFlow
    lake: Lake
    fleet: Fleet
    frames: pa.Table

    @classmethod
    def laid(
        cls,
        spark: SparkSession,
        database: Database,
        folder: Path,
        quirks: Quirks,
        days: float = 1.0,
        hives: int = 6,
    ) -> Line:
        fleet = Fleet(start=START, seed=3, hives=hives, quirks=quirks)
        windows = list(fleet.windows(START + timedelta(days=days)))
        catalogue_writer.write_catalogue(database, fleet.hives, fleet.sensors)
        frames = pa.concat_tables(
            pa.Table.from_batches([window.frames]).cast(FRAMES) for window in windows
        )
        lake = Lake(folder / "lake", "hives")
        return cls(spark, database, HivesFlow(database.url), lake, fleet, frames)

    def batch(self, number: int, begin: int, end: int, generation: int = 0) -> FlowBatch:
        table, shards = open_table(self.lake)
        writing = StagedBatch(table.location, SHARD_COLUMN).open_writer(MESSAGES_SCHEMA)
        writing.add(self._messages(begin, end, number, shards))
        files = writing.close()
        table.commit("hives", number, files, replace_by="batch")
        bronze_files = BronzeFiles(table.location, tuple(files), shards=shards)
        lake = self.lake.at(generation)
        return FlowBatch(
            number, self.spark, bronze_files, end - begin, lake, is_rebuild=generation > 0
        )

    def _messages(self, begin: int, end: int, batch: int, shards: int) -> pa.Table:
        """As bronze has them."""
        rows = self.frames.slice(begin, end - begin)
        columns = {
            name: pa.nulls(len(rows), MESSAGES_SCHEMA.field(name).type)
            for name in MESSAGES_SCHEMA.names
        }
        columns |= {name: rows[name] for name in FRAMES.names}
        columns |= {
            "stream": pa.repeat("sensors", len(rows)),
            "offset": pa.array(range(begin, begin + len(rows)), pa.int64()),
            "day": rows["timestamp"].cast(pa.date32()),
            "batch": pa.repeat(pa.scalar(batch, pa.int32()), len(rows)),
            "shard": pa.array(
                ShardKey(shards, self.flow.key_words).shards_of(
                    rows["routing_key"].combine_chunks().cast(pa.string())
                )
            ),
        }
        return pa.table(columns, MESSAGES_SCHEMA)

    def apply(self, cuts: Sequence[int], generation: int = 0) -> None:
        """Batches that end at these frames; the last takes the rest."""
        for number, (begin, end) in enumerate(self._cut(cuts)):
            self.flow.apply(self.batch(number, begin, end, generation))

    def _cut(self, cuts: Sequence[int]) -> Iterator[tuple[int, int]]:
        ends = [*cuts, len(self.frames)]
        return zip([0, *ends], ends, strict=False)

    def table(self, name: str, columns: str = "*") -> list[dict[str, Any]]:
        return self.database.rows(f"SELECT {columns} FROM {name} ORDER BY 1, 2")


FRAMES = pa.schema(
    [
        ("timestamp", pa.timestamp("us", "UTC")),
        ("routing_key", pa.string()),
        ("body", pa.binary()),
    ]
)
#: What does not depend on how often a hive's figures were told.
STATUS = "hive_id, occupancy, raw_occupancy, percent, level, trend, quality, as_of"
STATE = (
    "sensor_id, total_in, total_out, device_time, received_at, at, rate_p99, sum_in, sum_out, "
    "counter, flags, memory"
)
GOLD = {
    "occupancy_5min": "*",
    "occupancy_hour": "*",
    "occupancy_day": "*",
    "kpi_day": "*",
    "hive_offset": "*",
    "dead_letter_count": "*",
    "sensor_status": "*",
    "sensor_state": STATE,
    "hive_status": STATUS,
}


def gold(line: Line) -> dict[str, Any]:
    return tables_of(line.database)


def tables_of(database: Database) -> dict[str, Any]:
    """All of gold, in an order that does not depend on how it came about."""
    return {
        name: sorted(database.rows(f"SELECT {columns} FROM {name}"), key=str)
        for name, columns in GOLD.items()
    }
