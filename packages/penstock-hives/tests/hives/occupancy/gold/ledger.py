"""Hives and sensors for tests of gold, and batches of facts by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from penstock_hives.dates import SLOT_SECONDS
from penstock_hives.occupancy.gold.catalogue import HiveShard
from penstock_hives.occupancy.gold.ledger import HiveFacts, OccupancyLedger
from penstock_hives.occupancy.gold.staging import GoldRows
from penstock_hives.occupancy.gold.status import DoorReceipts, HiveStatus
from penstock_hives.occupancy.repository import INSERT_MANUAL_COUNT
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.occupancy.slots import SLOT_MICROS, SlotCounts, merge_counts
from penstock_hives.occupancy.writer import apply_facts, merge_staged
from penstock_store import AppliedBatches, Connection, Database

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
#: A sensor, when something was counted, in and out; received then, unless it is said.
Passage = tuple[int, datetime, int, int] | tuple[int, datetime, int, int, datetime]


class Bookkeeper:
    """Enters what sensors have counted; hive and sensor ids are given by the test."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = 0
        self.checked_slot = -1
        self.sums: dict[int, list[int]] = {}
        self.batch = -1
        database.execute("INSERT INTO account (id, name) VALUES (1, 'Comb')")
        database.execute("INSERT INTO hive_type (id, code, name) VALUES (1, 'cafe', 'Café')")

    def hive(
        self,
        hive: int,
        zone: str = "UTC",
        capacity: int | None = 100,
        doors: Sequence[int] = (),
        **more: Any,
    ) -> None:
        columns = {"capacity": capacity, "time_zone": zone, **more}
        names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
        self.database.execute(
            f"INSERT INTO hive (id, account_id, hive_type_id, name, {names}) "
            f"VALUES ({hive}, 1, 1, 'Hive {hive}', {marks})",
            tuple(columns.values()),
        )
        for sensor in doors or (hive,):
            self.database.execute(
                "INSERT INTO sensor (id, serial, hive_id) VALUES (%s, %s, %s)",
                (sensor, f"s{sensor}", hive),
            )

    def enter(self, *passages: Passage, batch: int | None = None) -> list[HiveStatus]:
        """A batch of its own, or one tried again; what changed of how hives stand."""
        self.batch = self.batch + 1 if batch is None else batch
        facts, rows = self.facts(*passages)
        with self.database.transaction() as connection:
            marks = AppliedBatches(connection)
            if marks.applied("hives", self.batch):
                return []
            changed = apply_facts(connection, facts, rows)
            marks.mark("hives", self.batch, len(passages))
            self.clock = facts.clock
            if self.clock // SLOT_MICROS > self.checked_slot:
                changed += self._pass_time(connection)
        return changed

    def advance_clock(self, until: datetime) -> list[HiveStatus]:
        self.clock = max(self.clock, micros(until))
        with self.database.transaction() as connection:
            return self._pass_time(connection)

    def forget(self) -> None:
        """What a process that was started again does not know."""
        self.clock, self.checked_slot = 0, -1

    def _pass_time(self, connection: Connection) -> list[HiveStatus]:
        every = HiveShard()
        hives = every.read_ids(connection, -1, 1000)
        self.checked_slot = self.clock // SLOT_MICROS
        return merge_staged(
            connection, OccupancyLedger(connection).pass_time(hives, self.clock, every)
        )

    def count_heads(self, hive: int, at: datetime, counted: int, by: str = "ana") -> None:
        given = {"hive": hive, "at": at, "counted": counted, "by": by}
        self.database.execute(INSERT_MANUAL_COUNT, given)

    def facts(self, *passages: Passage) -> tuple[HiveFacts, GoldRows]:
        hive_of = {row["id"]: row["hive_id"] for row in self.database.rows("TABLE sensor")}
        counts, states = [], {}
        for sensor, at, entries, exits, *received in passages:
            slot = int(at.timestamp()) // SLOT_SECONDS
            counts.append((hive_of[sensor], slot, entries, exits))
            total = self.sums.setdefault(sensor, [0, 0])
            total[0] += entries
            total[1] += exits
            states[sensor] = {
                "sensor": f"s{sensor}",
                "sensor_id": sensor,
                "received_at": received[0] if received else at,
                "at": at,
                "rate_p99": 0.0,
                "sum_in": total[0],
                "sum_out": total[1],
                "flags": 0,
            }
        columns = np.array(counts, np.int64).reshape(-1, 4).T
        table = pa.Table.from_pylist(list(states.values()), SENSOR_STATE_SCHEMA)
        sensors = np.array(list(states), np.int64)
        receipt = np.asarray(table["received_at"].cast(pa.int64()))
        hives = np.array([hive_of[sensor] for sensor in states], np.int64)
        receipts = DoorReceipts(sensors, hives, receipt, np.zeros_like(receipt))
        facts = HiveFacts(
            merge_counts([SlotCounts(*columns)]), receipts, max(self.clock, receipts.last)
        )
        batch = pa.array(np.full(len(table), self.batch))
        return facts, {"sensor_state": table.append_column("batch", batch)}

    def status(self, hive: int = 1) -> dict[str, Any]:
        (row,) = self.database.rows("SELECT * FROM hive_status WHERE hive_id = %s", (hive,))
        return row

    def slots(self, hive: int = 1) -> list[tuple[Any, ...]]:
        return self.table("occupancy_5min", hive)

    def table(self, name: str, hive: int | None = None) -> list[tuple[Any, ...]]:
        chosen = "" if hive is None else f"WHERE hive_id = {hive}"
        rows = self.database.rows(f"SELECT * FROM {name} {chosen} ORDER BY 1, 2")
        return [tuple(row.values()) for row in rows]


def micros(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


def clock(hour: int, minute: int = 0, day: datetime = MONDAY) -> datetime:
    return day + timedelta(hours=hour, minutes=minute)
