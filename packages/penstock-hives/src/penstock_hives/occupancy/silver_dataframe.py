"""Silver: messages, the sensors' profiles and their states in; everything there is to know out.

One pass of Spark over a batch: the messages of a sensor come to one worker, which decodes them,
counts in the order of the stream and tells the new states. All of it is one DataFrame of rows of
several parts, so that it is computed and written once; `reports`, `events`, `statuses`,
`dead_letters`, `states` and `notices` are the tables in it.

`decode` and `with_deltas` are the same in two steps, for whoever wants to look in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from penstock_hives.occupancy.anomalies import NOTICE_SCHEMA
from penstock_hives.occupancy.counts import ReportCounts, count_reports
from penstock_hives.occupancy.decoder import decode_messages
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.schemas import (
    DECODED_SCHEMA,
    MESSAGE_SCHEMA,
    Quality,
    SilverPart,
    fill_with_nulls,
    repeated_text,
)
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Only of use between the two steps.
_BETWEEN: Final = ("device_utc", "version", "proven_order")
_KEPT: Final = [field for field in DECODED_SCHEMA if field.name not in _BETWEEN]
SILVER: Final = pa.schema(
    [
        *_KEPT,
        # What counting adds to reports and events.
        ("delta_in", pa.int32()),
        ("delta_out", pa.int32()),
        ("missed", pa.int32()),
        # And rows of its own.
        ("state", pa.struct(SENSOR_STATE_SCHEMA)),
        ("notice", pa.struct(NOTICE_SCHEMA)),
    ]
)
_COUNTS: Final = ("kind", "report_type", "device_time", "at", "quality", "counter")
_TOTALS: Final = ("total_in", "total_out")
_DELTAS: Final = ("delta_in", "delta_out", "missed")
#: Rows a batch that goes to Spark has at most.
_CHUNK: Final = 1 << 16
_SPARK_TYPES: Final = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
}


def silver(messages: DataFrame, profiles: SensorProfiles, state: pa.Table) -> DataFrame:
    """Rows of `SILVER`, of messages as the connector has them and states as `states` gave them."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoded = (part for each in batches for part in decode_messages(each, profiles))
        return _counted(decoded, profiles, state)

    apart = messages.select(*MESSAGE_SCHEMA.names).repartition(_sensor())
    return apart.mapInArrow(work, ddl(SILVER))


def _sensor() -> Column:
    """The part of a topic that all messages of a sensor have in common, read as fast as it goes."""
    key = F.col("routing_key")
    dotted = F.when(F.contains(key, F.lit("/")), F.translate(key, "/", ".")).otherwise(key)
    return F.substring_index(dotted, ".", 2)


def decode(messages: DataFrame, profiles: SensorProfiles) -> DataFrame:
    """Rows of `DECODED_SCHEMA`, as `decode_messages` makes them."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in batches:
            yield from decode_messages(each, profiles)

    return messages.select(*MESSAGE_SCHEMA.names).mapInArrow(work, ddl(DECODED_SCHEMA))


def with_deltas(decoded: DataFrame, profiles: SensorProfiles, state: pa.Table) -> DataFrame:
    """Rows of `SILVER`, of rows of `DECODED_SCHEMA`."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _counted(batches, profiles, state)

    return decoded.repartition("sensor").mapInArrow(work, ddl(SILVER))


def reports(rows: DataFrame) -> DataFrame:
    """Everything that counts people, and what it adds; copies are dropped."""
    copies = F.col("quality").bitwiseAND(int(Quality.DUPLICATE)) != 0
    counted = _part(rows, SilverPart.REPORT).where(~copies)
    return counted.select(*_where(), "hive_id", *_COUNTS, *_TOTALS, *_DELTAS, "raw")


def events(rows: DataFrame) -> DataFrame:
    """Those of the reports that are of one person each, with what only they tell."""
    chosen = _part(rows, SilverPart.REPORT).where(F.col("kind") == "event")
    return chosen.select(*_where(), "hive_id", *_COUNTS, "distance", *_DELTAS, "raw")


def statuses(rows: DataFrame) -> DataFrame:
    return _part(rows, SilverPart.STATUS).select(*_where(), "hive_id", "status.*", "raw")


def dead_letters(rows: DataFrame) -> DataFrame:
    return _part(rows, SilverPart.DEAD_LETTER).select(*_where(), "letter.*", "raw")


def states(rows: DataFrame) -> DataFrame:
    """What the next batch is to be given of the sensors that this one had: columns of
    `SENSOR_STATE_SCHEMA`.
    """
    return _part(rows, SilverPart.STATE).select("state.*")


def notices(rows: DataFrame) -> DataFrame:
    return _part(rows, SilverPart.NOTICE).select("notice.*")


def _part(rows: DataFrame, part: SilverPart) -> DataFrame:
    return rows.where(F.col("part") == part.value)


def _where() -> list[Column]:
    day = F.to_date("received_at").alias("day")
    return [F.col("stream"), F.col("offset"), F.col("received_at"), day, F.col("sensor")]


def _counted(
    decoded: Iterator[pa.RecordBatch], profiles: SensorProfiles, state: pa.Table
) -> Iterator[pa.RecordBatch]:
    """What counts waits until all of it is here, for it counts in the order of the stream."""
    waiting: dict[SilverPart, list[pa.RecordBatch]] = {SilverPart.REPORT: [], SilverPart.STATUS: []}
    for batch in decoded:
        for part, batches in waiting.items():
            batches.append(batch.filter(pc.equal(batch["part"], part.value)))
        others = batch.filter(pc.not_equal(batch["part"], SilverPart.REPORT.value))
        if len(others):
            yield _others(others)
    rows, statuses = (
        pa.Table.from_batches(batches, DECODED_SCHEMA).combine_chunks()
        for batches in waiting.values()
    )
    found = count_reports(rows, statuses, profiles, state)
    if len(rows):
        counted = pa.Table.from_batches([_with_counts(rows, found)])
        yield from counted.to_batches(max_chunksize=_CHUNK)
    if len(found.states):
        yield _of_part(SilverPart.STATE, found.states)
    if len(found.notices):
        yield _of_part(SilverPart.NOTICE, found.notices)


def _others(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = {field.name: batch[field.name] for field in _KEPT}
    return fill_with_nulls(SILVER, columns, len(batch))


def _with_counts(rows: pa.Table, found: ReportCounts) -> pa.RecordBatch:
    batch = rows.to_batches()[0]
    columns = {field.name: batch[field.name] for field in _KEPT}
    for name in (*_TOTALS, *_DELTAS, "quality"):
        columns[name] = pa.array(getattr(found, name)).cast(SILVER.field(name).type)
    for name in _TOTALS:
        if batch[name].null_count:  # an event has none
            columns[name] = pc.if_else(batch[name].is_valid(), columns[name], None)
    restarts = found.quality & int(Quality.RESTART) != 0
    if restarts.any():
        columns["kind"] = pc.if_else(pa.array(restarts), "restart", batch["kind"])
    return fill_with_nulls(SILVER, columns, len(batch))


def _of_part(part: SilverPart, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = {
        "part": repeated_text(part.value, len(batch)),
        part.value: batch.to_struct_array(),
        "sensor": batch["sensor"],
    }
    return fill_with_nulls(SILVER, columns, len(batch))


def ddl(schema: pa.Schema) -> str:
    """The schema as Spark writes it."""
    return ", ".join(f"`{field.name}` {_spark_type(field.type)}" for field in schema)


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{each.name}: {_spark_type(each.type)}' for each in kind)}>"
    return _SPARK_TYPES[kind]
