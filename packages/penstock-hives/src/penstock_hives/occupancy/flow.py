"""The Spark flow `hives`: sensor messages to silver, gold, and live occupancy.

A batch is written to silver in the lake, then to gold in one transaction together with its batch
id, then to the cache and the broker. Sensor states are read from the database, so a retried batch
gives the same result. A batch whose id is recorded is not applied again, but its changes are
published again. Nightly tasks compute forecasts, analytics and the table `typical_week`.

`HivesFlow` is small and picklable: it opens connections in the process that uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import penstock_store
from penstock_hives.analytics.nightly import AnalyticsTask
from penstock_hives.forecast.schedule import ForecastTask
from penstock_hives.occupancy.gold import generations
from penstock_hives.occupancy.typical_weeks import TypicalWeekTask
from penstock_hives.occupancy.writer import OccupancyWriter, ServiceUrls
from penstock_spark.flow import FlowBatch, FlowContext, PeriodicTask
from penstock_spark.lake import StorageLocation
from penstock_spark.stream_declaration import StreamDeclaration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "hives"
STREAMS: Final = "sensors*"
#: One stream for all sensors, over MQTT or AMQP, unless the operator declares several.
SOURCES: Final = (StreamDeclaration("sensors", "amq.topic", ("sensors.#",)),)
#: How often the clock advances without messages; cached figures are rewritten as often.
CLOCK_SECONDS: Final = 30.0
#: How often nightly tasks check for hives after midnight, and the pause after a failure.
NIGHT_SECONDS: Final = 600.0
NIGHT_RETRY_SECONDS: Final = 3600.0
#: The first check: soon, because a night may have passed while the pipeline was stopped.
NIGHT_FIRST_SECONDS: Final = 15.0


class HivesFlow:
    """`penstock_spark.flow.PipelineFlow` for hives."""

    def __init__(
        self,
        database: str,
        broker: str | None = None,
        cache: str | None = None,
        lake: StorageLocation | None = None,
    ) -> None:
        """URLs; without a broker nothing is published, without a lake analytics are not copied."""
        self._urls = ServiceUrls(database, broker, cache)
        self._lake = lake
        self._writer: OccupancyWriter | None = None

    @property
    def name(self) -> str:
        return NAME

    @property
    def streams(self) -> str:
        return STREAMS

    @property
    def sources(self) -> Sequence[StreamDeclaration]:
        return SOURCES

    @property
    def key_words(self) -> int:
        """All topics of a sensor, such as sensors.s1.report, begin with the same two words."""
        return 2

    @property
    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        database = self._urls.database
        interval = (NIGHT_SECONDS, NIGHT_RETRY_SECONDS, NIGHT_FIRST_SECONDS)
        return (
            PeriodicTask("clock", self._advance_clock, CLOCK_SECONDS, CLOCK_SECONDS),
            PeriodicTask("forecast", ForecastTask(database), *interval),
            PeriodicTask("usual weeks", TypicalWeekTask(database), *interval),
            PeriodicTask("analytics", AnalyticsTask(database, self._lake), *interval),
        )

    @property
    def writer(self) -> OccupancyWriter:
        """The writer of this process, opened on first use."""
        if self._writer is None:
            self._writer = OccupancyWriter(NAME, self._urls)
        return self._writer

    def apply(self, batch: FlowBatch) -> None:
        self.writer.apply(batch)

    def begin_rebuild(self, generation: int, since: int) -> int:
        """Rebuild from the first batch: earlier sensor states are not stored."""
        with self.writer.database.transaction() as connection:
            generations.create_generation(connection, NAME, generation)
        return 0

    def check_adoption(self) -> None:
        self.writer.check()

    def adopt(self, generation: int) -> None:
        self.writer.adopt(generation)

    def discard(self, generation: int) -> None:
        with self.writer.database.transaction() as connection:
            generations.drop_generation(connection, NAME, generation)

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _advance_clock(self, spark: SparkSession) -> None:
        self.writer.advance_clock(spark)

    def __getstate__(self) -> tuple[ServiceUrls, StorageLocation | None]:
        return self._urls, self._lake

    def __setstate__(self, state: tuple[ServiceUrls, StorageLocation | None]) -> None:
        self._urls, self._lake = state
        self._writer = None


@contextmanager
def open_flow(context: FlowContext) -> Iterator[HivesFlow]:
    """The flow with its database, which is started if it is the embedded one."""
    with penstock_store.open(context.database, context.data) as database:
        flow = HivesFlow(database.url, context.broker, context.cache, context.lake)
        try:
            yield flow
        finally:
            flow.close()
