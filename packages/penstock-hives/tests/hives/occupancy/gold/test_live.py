"""From a broker to the tables and back to the broker: the flow on the engine."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import client
from penstock.client import blocking_client
from penstock_hives.occupancy.flow import HivesFlow
from penstock_hives.sensors import catalogue_writer
from penstock_hives.sensors.fleet import Fleet, Quirks
from penstock_hives.sensors.publisher import FramePublisher
from penstock_spark.directory import FlowDirectory
from penstock_spark.replay import FlowReplay
from penstock_spark.runner import FlowRunner, SourceOptions
from penstock_store import Database
from tests.fixtures import NewPenstock
from tests.hives.occupancy.gold.fleets import START, tables_of
from tests.hives.occupancy.gold.test_flow import counted_by_hive
from tests.pipeline.given import channel, declare


async def send(url: str, fleet: Fleet, hours: float) -> None:
    """A past the fleet has had, said to be one."""
    declare(url, "sensors")
    with channel(url) as opened:
        opened.queue_bind("sensors", "amq.topic", "sensors.#")
    async with client.connect(url) as fabric:
        sender = FramePublisher(fabric, url, stamped=True)
        for frame in fleet.frames(START + timedelta(hours=hours)):
            await sender.send(frame)
        await sender.flush()


@pytest.mark.slow
def test_frames_at_a_broker_become_figures_at_the_broker(
    spark: SparkSession, database: Database, new_penstock: NewPenstock, tmp_path: Path
) -> None:
    broker = new_penstock()
    fleet = Fleet(start=START, seed=5, hives=4, quirks=Quirks.none())
    catalogue_writer.write_catalogue(database, fleet.hives, fleet.sensors)
    flow = HivesFlow(database.url, broker.url)
    place = FlowDirectory(tmp_path, flow.name)
    engine = FlowRunner(spark, flow, place, SourceOptions(broker.url, max_offsets=700))
    with blocking_client.connect(broker.url) as fabric:
        with fabric.subscribe("#", exchange="occupancy") as figures:
            asyncio.run(send(broker.url, fleet, 14))
            engine.run_available_now()
            told: dict[int, dict[str, Any]] = {}
            while len(told) < len(fleet.hives):
                message = figures.receive(timeout=30)
                told[message.json()["hive"]] = message.json()
    known = counted_by_hive(fleet)
    sums = database.rows(
        "SELECT hive_id, sum(entries) AS entries, sum(exits) AS exits "
        "FROM occupancy_day GROUP BY hive_id"
    )
    assert {row["hive_id"]: (row["entries"], row["exits"]) for row in sums} == known
    live = tables_of(database)
    FlowReplay(spark, flow, place).run()
    assert tables_of(database) == live
    flow.close()
