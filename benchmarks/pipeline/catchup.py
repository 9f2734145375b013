"""A backlog caught up with: from a stream through connector, bronze, silver and gold."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.errors import WrongDelivery
from benchmarks.pipeline.ground import ground
from benchmarks.pipeline.parts import Spent
from penstock_hives.occupancy.flow import HivesFlow
from penstock_hives.sensors.fleet import Fleet
from penstock_spark.directory import FlowDirectory
from penstock_spark.flow import LARGEST_BATCH
from penstock_spark.progress import FlowProgress
from penstock_spark.runner import FlowRunner, SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENSORS: Final = 2000
START: Final = datetime(2026, 3, 2, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CaughtUp:
    reports: int
    seconds: float
    spent: Spent
    batches: int
    load: float  #: how many processes wanted the processor on average, others' included
    master: str = ""

    @property
    def rate(self) -> float:
        return self.reports / self.seconds

    @property
    def micros(self) -> float:
        """Processor time a report."""
        return self.spent.total / self.reports * 1e6


def catch_up(
    spark: SparkSession, reports: int, sensors: int = SENSORS, most: int = LARGEST_BATCH
) -> CaughtUp:
    """In batches of at most so many; what is in the tables at the end is checked."""
    fleet = Fleet(start=START, seed=1, sensors=sensors)
    with (
        tempfile.TemporaryDirectory() as folder,
        ground(Path(folder), fleet.hives, fleet.sensors, fleet, reports) as found,
    ):
        flow = HivesFlow(found.database.url)
        place = FlowDirectory(found.data, flow.name)
        engine = FlowRunner(spark, flow, place, SourceOptions(found.url, max_offsets=most))
        before, began = found.spent(), time.perf_counter()
        engine.run_available_now()
        seconds, used = time.perf_counter() - began, found.spent().since(before)
        flow.close()
        done = FlowProgress(place.progress, flow.name).last_batch()
        marked = found.database.rows("SELECT sum(rows)::bigint AS rows FROM pipeline_batch")
        if done is None or marked[0]["rows"] != reports:
            raise WrongDelivery(f"of {reports} reports {marked[0]['rows']} were entered")
        master = spark.sparkContext.master or ""
        return CaughtUp(reports, seconds, used, done.batch + 1, os.getloadavg()[0], master)
