"""Eight weeks of history for the demonstration, created when its fleet starts for the first time.

    create_demo_history(database, fleet, seed=0)

Visitors are simulated as those of the fleet are, and their counts go through the occupancy ledger
of the pipeline. So five-minute slots, hours, days, KPIs, nightly resets and typical weeks are what
the pipeline would have computed. Forecasts, comparisons and insights follow when the pipeline runs
its nightly tasks, which are due at its start.

The counts are in no stream: the lake begins with the fleet's first report, and a rebuild of the
gold tables from the lake (`penstock pipeline rebuild`) removes this history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np

from penstock_hives.arrays import Numbers
from penstock_hives.dates import SLOT_SECONDS
from penstock_hives.demo_usage import create_demo_usage
from penstock_hives.occupancy.gold.ledger import HiveFacts
from penstock_hives.occupancy.gold.status import DoorReceipts
from penstock_hives.occupancy.slots import SlotCounts
from penstock_hives.occupancy.typical_weeks import update_typical_weeks
from penstock_hives.occupancy.writer import apply_facts
from penstock_hives.sensors.fleet import Fleet, SimulatedHive
from penstock_hives.sensors.fleet.visitors import Visitors
from penstock_store import Database

HISTORY_SPAN: Final = timedelta(weeks=8)
_SLOT: Final = timedelta(seconds=SLOT_SECONDS)
_HAS_HISTORY: Final = "SELECT FROM occupancy_day WHERE hive_id = ANY (%s::bigint[]) LIMIT 1"
_SENSORS: Final = "SELECT id, hive_id FROM sensor WHERE hive_id = ANY (%s::bigint[])"


@dataclass(frozen=True, slots=True)
class DemoHistory:
    counts: SlotCounts
    inside: Numbers  #: people in each hive at the end
    until: datetime


def simulate_history(
    hives: Sequence[SimulatedHive], seed: int, until: datetime, span: timedelta = HISTORY_SPAN
) -> DemoHistory:
    """Entries and exits of slots in which somebody passed; the same arguments, the same people."""
    visitors = Visitors(hives, seed)
    rng = np.random.default_rng([seed, 3])
    end = int(until.timestamp()) // SLOT_SECONDS
    doors = np.cumsum([hive.doors for hive in hives]) - [hive.doors for hive in hives]
    slots = np.arange(end - span // _SLOT, end)
    entries = np.zeros((len(slots), len(hives)), np.int64)
    exits = np.zeros_like(entries)
    offsets = visitors.utc_offsets(int(slots[0]) * SLOT_SECONDS)
    for row, slot in enumerate((slots * SLOT_SECONDS).tolist()):
        if slot % 3600 == 0:
            offsets = visitors.utc_offsets(slot)
        entered, left = visitors.step(slot, offsets, rng)
        entries[row] = np.add.reduceat(entered, doors)
        exits[row] = np.add.reduceat(left, doors)
    hive, at = np.nonzero((entries + exits).T)
    ids = np.array([hive.id for hive in hives], np.int64)
    counts = SlotCounts(ids[hive], slots[at], entries[at, hive], exits[at, hive])
    return DemoHistory(counts, visitors.occupancy, datetime.fromtimestamp(end * SLOT_SECONDS, UTC))


def create_demo_history(
    database: Database, fleet: Fleet, seed: int, span: timedelta = HISTORY_SPAN
) -> list[int] | None:
    """Load the history of a fleet that starts now, and what people did meanwhile.

    Returns the people inside at its end; None, and nothing is written, if the hives have data.
    """
    ids = [hive.id for hive in fleet.hives]
    with database.transaction() as connection:
        if connection.execute(_HAS_HISTORY, (ids,)).fetchone() is not None:
            return None
    history = simulate_history(fleet.hives, seed, fleet.now, span)
    load_history(database, history)
    return [int(people) for people in history.inside]


def load_history(database: Database, history: DemoHistory) -> None:
    """In one transaction."""
    hives = np.unique(history.counts.hive)
    clock = int(history.until.timestamp() * 1_000_000)
    with database.transaction() as connection:
        rows = connection.execute(_SENSORS, (hives.tolist(),)).fetchall()
        sensors = np.array([(row["id"], row["hive_id"]) for row in rows], np.int64).reshape(-1, 2)
        heard = np.full(len(sensors), clock, np.int64)
        receipts = DoorReceipts(sensors[:, 0], sensors[:, 1], heard, heard)
        apply_facts(connection, HiveFacts(history.counts, receipts, clock), {})
        update_typical_weeks(connection, history.until, hives)
        create_demo_usage(connection, history.until)
