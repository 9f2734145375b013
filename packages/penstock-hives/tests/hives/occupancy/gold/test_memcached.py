"""Live figures in a real memcached, where any process finds them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock_hives.occupancy.flow import HivesFlow
from penstock_hives.sensors.fleet import Quirks
from penstock_store import Database
from penstock_store.cache import BlockingCache
from tests.fixtures import needed
from tests.hives.occupancy.gold.fleets import Line
from tests.store.servers import Memcached


@pytest.fixture
def memcached(tmp_path: Path) -> Iterator[Memcached]:
    server = needed(Memcached, tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.mark.peer
def test_the_figures_of_a_batch_are_there_for_others(
    spark: SparkSession, database: Database, tmp_path: Path, memcached: Memcached
) -> None:
    line = Line.laid(spark, database, tmp_path, Quirks.none(), days=0.5, hives=3)
    line.flow = HivesFlow(database.url, None, memcached.url)

    line.apply([len(line.frames) // 2])
    line.flow.close()

    with BlockingCache(memcached.url) as others:
        found = [others.get(f"h1:hive:{hive.id}") for hive in line.fleet.hives]
    figures = {row["hive"]: row["occupancy"] for row in map(json.loads, filter(None, found))}
    stored = line.table("hive_status", "hive_id, occupancy")
    assert figures == {row["hive_id"]: row["occupancy"] for row in stored}
    assert len(figures) == 3
