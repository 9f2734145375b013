"""Silver tables of a batch, and what gold needs of it.

Messages of some sensors are decoded and counted in stream order, with the states of these sensors
from the database. A large batch is divided by shards of the message key: each task of a Spark job
reads the messages and the sensors of its shards only, writes its files of the silver tables and
stages the new sensor states. Counts by hive and slot go to the tasks of gold, by hive. A small
batch takes the same way in one process. The state after a batch is a function of the state before
it and of its messages, so a repeated batch gives the same result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock_hives.arrays import Numbers
from penstock_hives.occupancy.anomalies import NOTICE_SCHEMA
from penstock_hives.occupancy.counts import ReportCounts, count_reports
from penstock_hives.occupancy.decoder import DOUBTFUL, decode_messages, resolve_receipt_times
from penstock_hives.occupancy.gold.catalogue import read_sensors
from penstock_hives.occupancy.gold.ledger import HiveFacts
from penstock_hives.occupancy.gold.staging import GoldRows
from penstock_hives.occupancy.gold.status import DoorReceipts
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.schemas import (
    DECODED_SCHEMA,
    MESSAGE_SCHEMA,
    SILVER_DEAD_LETTER_SCHEMA,
    SILVER_REPORT_SCHEMA,
    SILVER_STATUS_SCHEMA,
    SILVER_TABLES,
    UNCOUNTED,
    Quality,
    SilverPart,
)
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.occupancy.slots import SLOT_MICROS, SlotCounts, merge_counts
from penstock_hives.sensors.columnar import parse_topics
from penstock_spark.bronze import BronzeFiles
from penstock_spark.lake import DataFile, Lake, StagedBatch
from penstock_store import Connection

_COLUMNS: Final = (*MESSAGE_SCHEMA.names, "headers")
#: Notices of a task that are logged; a defect of a whole fleet would be a line for each sensor.
_MAX_NOTICES: Final = 100


@dataclass(frozen=True, slots=True)
class MessageShards:
    """A share of the messages: all of some sensors. Picklable."""

    files: BronzeFiles
    number: int = 0
    tasks: int = 1

    def read(self) -> list[pa.RecordBatch]:
        shards = None if self.tasks == 1 else self.files.share(self.number, self.tasks)
        found = []
        for rows in self.files.read(_COLUMNS, shards):
            if len(rows):
                found += as_decoded(resolve_receipt_times(rows.unify_dictionaries()))
        return found


def as_decoded(rows: pa.Table) -> list[pa.RecordBatch]:
    """Decoders expect names of streams as text; routing keys may be dictionaries."""
    index = rows.schema.get_field_index("stream")
    rows = rows.set_column(index, "stream", rows["stream"].cast(pa.string()))
    names = [*MESSAGE_SCHEMA.names, *([DOUBTFUL] if DOUBTFUL in rows.schema.names else [])]
    batches: list[pa.RecordBatch] = rows.select(names).combine_chunks().to_batches()
    return batches


@dataclass(frozen=True, slots=True)
class SilverFiles:
    """The files of a batch in the silver tables, as tasks write them. Picklable."""

    drafts: Mapping[str, StagedBatch]
    batch: int

    @classmethod
    def stage(cls, lake: Lake, batch: int) -> SilverFiles:
        return cls({name: lake.stage(name, batch) for name in SILVER_TABLES}, batch)

    def write(self, tables: Mapping[str, pa.Table]) -> str:
        """Write rows; returns the description of the files, for `commit`."""
        files = {}
        for name, rows in tables.items():
            writing = self.drafts[name].open_writer(SILVER_TABLES[name])
            if len(rows):
                writing.add(_dated(rows, SILVER_TABLES[name], self.batch))
            files[name] = [asdict(file) for file in writing.close()]
        return json.dumps(files)

    def commit(self, lake: Lake, written: Iterable[str]) -> None:
        files: dict[str, list[DataFile]] = {name: [] for name in SILVER_TABLES}
        for text in written:
            for name, found in json.loads(text).items():
                files[name] += (DataFile(**file) for file in found)
        for name, schema in SILVER_TABLES.items():
            lake.commit(name, self.batch, files[name], schema)


def _dated(rows: pa.Table, schema: pa.Schema, batch: int) -> pa.Table:
    day = rows["received_at"].cast(pa.date32())
    number = pa.array(np.full(len(rows), batch, np.int64))
    return rows.append_column("day", day).append_column("batch", number).select(schema.names)


@dataclass(frozen=True, slots=True)
class SilverResult:
    """What gold needs of the messages of some sensors."""

    files: str  #: of the silver tables
    hives: HiveFacts
    rows: GoldRows  #: of the tables of sensors and dead letters
    notices: list[dict[str, Any]]


def write_silver(
    connection: Connection, messages: MessageShards, silver: SilverFiles
) -> SilverResult:
    """Decode and count messages and write their files, which are not part of the tables yet."""
    batches = messages.read()
    sensors = read_sensors(connection, _serials(batches))
    tables, summary = make_silver(batches, sensors.profiles, sensors.states)
    files = silver.write(tables)
    statuses = _last_statuses(summary.statuses, sensors.profiles)
    states = summary.states.drop_columns(["sensor"])
    states = states.append_column("batch", pa.array(np.full(len(states), silver.batch)))
    rows = {
        "sensor_state": states,
        "sensor_status": statuses,
        "dead_letter_count": _count_dead_letters(summary.dead_letters),
    }
    facts = _hive_facts(summary.counts, states, statuses, sensors.profiles)
    return SilverResult(files, facts, rows, summary.notices.slice(0, _MAX_NOTICES).to_pylist())


def _serials(batches: Iterable[pa.RecordBatch]) -> pa.Array:
    """Of the sensors that sent these messages."""
    keys = [pc.unique(batch["routing_key"]).cast(pa.string()) for batch in batches]
    serials = parse_topics(pc.unique(pa.chunked_array(keys, pa.string())))["serial"]
    return pc.unique(serials.drop_null())


def _hive_facts(
    counts: SlotCounts, states: pa.Table, statuses: pa.Table, profiles: SensorProfiles
) -> HiveFacts:
    received = [np.asarray(each["received_at"].cast(pa.int64())) for each in (states, statuses)]
    of_states, of_statuses = (np.asarray(each["sensor_id"]) for each in (states, statuses))
    sensor = np.concatenate([of_states, of_statuses])
    none = [np.zeros(len(each), np.int64) for each in received]
    receipts = DoorReceipts(
        sensor,
        _hives_of(sensor, profiles),
        np.concatenate([received[0], none[1]]),
        np.concatenate([none[0], received[1]]),
    )
    return HiveFacts(counts, receipts, receipts.last)


def _hives_of(sensor: Numbers, profiles: SensorProfiles) -> Numbers:
    order = np.argsort(profiles.sensor_ids)
    hives: Numbers = profiles.hive_ids[
        order[np.searchsorted(profiles.sensor_ids, sensor, sorter=order)]
    ]
    return hives


_UTC: Final = pa.timestamp("us", "UTC")
#: Columns of `sensor_status` whose names differ from the fields of silver's statuses.
_STATUS_COLUMNS: Final = {"battery": "battery_mv", "signal": "signal_dbm"}


def _last_statuses(statuses: pa.Table, profiles: SensorProfiles) -> pa.Table:
    """The last status of each sensor: rows of `sensor_status`."""
    fields = flatten_struct(statuses, "status")
    columns: dict[str, Any] = {
        _STATUS_COLUMNS.get(name, name): fields[name] for name in fields.schema.names
    }
    rows = profiles.rows(statuses["sensor"].combine_chunks())
    columns["sensor_id"] = pa.array(profiles.sensor_ids[rows])
    columns["received_at"] = statuses["received_at"]
    columns["raw"] = statuses["raw"]
    sensor = np.asarray(columns["sensor_id"])
    received = np.asarray(columns["received_at"].cast(pa.int64()))
    order = np.lexsort((received, sensor))
    last = np.append(sensor[order][1:] != sensor[order][:-1], True)[: len(order)]
    return pa.table(columns).take(pa.array(order[last]))


def _count_dead_letters(dead_letters: pa.Table) -> pa.Table:
    """By day, stream and reason: rows of `dead_letter_count`."""
    received = dead_letters["received_at"]
    table = pa.table(
        {
            "day": received.cast(_UTC).cast(pa.date32()),
            "stream": dead_letters["stream"],
            "reason": pc.struct_field(dead_letters["dead_letter"], "reason"),
            "at": received,
        }
    )
    groups = table.group_by(["day", "stream", "reason"]).aggregate([("at", "max"), ("at", "count")])
    return groups.rename_columns({"at_max": "last_at", "at_count": "count"})


_NUMBERS: Final = ("total_in", "total_out", "delta_in", "delta_out", "missed", "quality")


@dataclass(frozen=True, slots=True)
class SilverSummary:
    """`statuses` and `dead_letters` are rows of `DECODED_SCHEMA`."""

    counts: SlotCounts
    states: pa.Table
    statuses: pa.Table
    dead_letters: pa.Table
    notices: pa.Table


def make_silver(
    messages: Iterable[pa.RecordBatch], profiles: SensorProfiles, states: pa.Table
) -> tuple[Mapping[str, pa.Table], SilverSummary]:
    """Rows by table, without the columns `day` and `batch`, and the summary.

    All messages of the sensors are decoded first, because they count in stream order.
    """
    parts: dict[SilverPart, list[pa.RecordBatch]] = {part: [] for part in SilverPart}
    for batch in messages:
        for rows in decode_messages(batch, profiles):
            if len(rows):
                # Every batch has rows of one part.
                parts[SilverPart(rows["part"][0].as_py())].append(rows)
    decoded, statuses, dead_letters = (
        pa.Table.from_batches(parts[part], DECODED_SCHEMA).combine_chunks()
        for part in (SilverPart.REPORT, SilverPart.STATUS, SilverPart.DEAD_LETTER)
    )
    counted = count_reports(decoded, statuses, profiles, states)
    summary = SilverSummary(
        counts=_slot_counts(decoded, counted),
        states=pa.Table.from_batches([counted.states], SENSOR_STATE_SCHEMA),
        statuses=statuses,
        dead_letters=dead_letters,
        notices=pa.Table.from_batches([counted.notices], NOTICE_SCHEMA),
    )
    tables = {
        "silver.reports": count_rows(decoded, counted),
        "silver.statuses": _flattened(statuses, "status", SILVER_STATUS_SCHEMA),
        "silver.dead_letters": _flattened(dead_letters, "dead_letter", SILVER_DEAD_LETTER_SCHEMA),
    }
    return tables, summary


def count_rows(decoded: pa.Table, counted: ReportCounts) -> pa.Table:
    """Reports and events, and what each adds; duplicates are dropped."""
    schema = _undated(SILVER_REPORT_SCHEMA)
    if not len(decoded):
        return schema.empty_table()
    columns = {name: decoded[name] for name in schema.names if name in DECODED_SCHEMA.names}
    for name in _NUMBERS:
        columns[name] = pa.array(getattr(counted, name)).cast(schema.field(name).type)
    for name in ("total_in", "total_out"):
        if decoded[name].null_count:  # an event has none
            columns[name] = pc.if_else(decoded[name].is_valid(), columns[name], None)
    restarts = counted.quality & int(Quality.RESTART) != 0
    if restarts.any():
        columns["kind"] = pc.if_else(pa.array(restarts), "restart", decoded["kind"])
    table = pa.table(columns).select(schema.names).cast(schema)
    copies = counted.quality & int(Quality.DUPLICATE) != 0
    return table.filter(pa.array(~copies)) if copies.any() else table


def _flattened(rows: pa.Table, column: str, schema: pa.Schema) -> pa.Table:
    """Rows in which the fields of a struct column are columns."""
    fields = flatten_struct(rows, column)
    columns = {name: fields[name] for name in fields.schema.names}
    columns |= {name: rows[name] for name in schema.names if name in rows.schema.names}
    undated = _undated(schema)
    return pa.table(columns).select(undated.names).cast(undated)


def _undated(schema: pa.Schema) -> pa.Schema:
    """Without the columns that `_dated` adds."""
    return pa.schema([field for field in schema if field.name not in ("day", "batch")])


def _slot_counts(decoded: pa.Table, counted: ReportCounts) -> SlotCounts:
    """Entries and exits by hive and slot of `at`.

    A report that counted nobody has a slot, too: it shows that the hive had data.
    """
    counts = counted.quality & int(UNCOUNTED) == 0
    hive = np.asarray(decoded["hive_id"])[counts]
    slot = np.asarray(decoded["at"].cast(pa.int64()))[counts] // SLOT_MICROS
    return merge_counts(
        [SlotCounts(hive, slot, counted.delta_in[counts], counted.delta_out[counts])]
    )


def flatten_struct(rows: pa.Table, column: str) -> pa.Table:
    whole = rows[column].combine_chunks()
    array = whole if isinstance(whole, pa.StructArray) else pa.concat_arrays(whole.chunks)
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(array)])
