"""The same passages give the same tables, however they are cut into batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.hives.occupancy.gold.ledger import Bookkeeper, Passage

#: Sensors by hive; the last is silent for days.
HIVES = {1: (1, 2), 2: (3,), 3: (4, 5), 4: (6,), 5: (7,)}
ZONES = ("Europe/Madrid", "America/New_York", "Pacific/Auckland", "Asia/Kolkata", "UTC")
#: Clocks change in New York, and three weeks later in Madrid.
SEASONS = (datetime(2026, 3, 6, tzinfo=UTC), datetime(2026, 3, 27, tzinfo=UTC))
FACTS = ("entries", "exits")
TABLES = {
    "occupancy_5min": "*",
    "occupancy_hour": "*",
    "occupancy_day": "*",
    "hive_offset": "*",
    "nightly_reset": "*",
    "kpi_day": "*",
    "hive_status": "hive_id, occupancy, raw_occupancy, percent, level, trend, quality, as_of",
}


def passages(start: datetime, dice: random.Random) -> list[Passage]:
    """In the order they were received; some tell of moments long gone, or still to come."""
    found: list[Passage] = []
    for sensor in (sensor for doors in HIVES.values() for sensor in doors):
        received = start
        while received < start + timedelta(days=5):
            pause = dice.choice((3, 17, 30, 50, 200)) * (40 if sensor == 7 else 1)
            received += timedelta(minutes=pause, seconds=dice.randrange(60))
            late = dice.choice((0, 0, 0, 0, 0, 0, 7, 40, -20, 600))
            at = received - timedelta(minutes=late)
            found.append((sensor, at, dice.randrange(6), dice.randrange(6), received))
    return sorted(found, key=lambda each: each[4])  # type: ignore[misc]


def cut(rows: list[Passage], dice: random.Random, most: int) -> Iterator[list[Passage]]:
    while rows:
        count = dice.randint(1, most)
        yield rows[:count]
        rows = rows[count:]


def tables(books: Bookkeeper) -> dict[str, Any]:
    return {
        name: books.database.rows(f"SELECT {columns} FROM {name} ORDER BY 1, 2")
        for name, columns in TABLES.items()
    }


@pytest.mark.parametrize("start", SEASONS)
def test_the_tables_do_not_depend_on_the_cut(books: Bookkeeper, start: datetime) -> None:
    dice = random.Random(start.toordinal())
    for (hive, doors), zone in zip(HIVES.items(), ZONES, strict=True):
        books.hive(hive, zone, doors=doors)
    for hive in (1, 3):
        books.count_heads(hive, start + timedelta(hours=30.21), 12)
    rows = passages(start, dice)
    found = []
    for most in (40, len(rows), 150):
        for batch in cut(rows, dice, most) if most < len(rows) else [rows]:
            books.enter(*batch)
        found.append(tables(books))
        for table in (*TABLES, "sensor_state"):
            books.database.execute(f"DELETE FROM {table}")
        books.forget()
    assert found[0]["hive_status"]
    assert found[0]["occupancy_5min"]
    for other in found[1:]:
        assert other == found[0]
