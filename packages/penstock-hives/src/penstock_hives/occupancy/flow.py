"""The Spark flow `hives`: sensor messages to silver, gold, and live occupancy.

A batch is written to silver in the lake, then to gold in one transaction together with its batch
id, then to the cache and the broker. Sensor states are read from the database, so a retried batch
gives the same result. A batch whose id is recorded is not applied again, but its changes are
published again.

`HivesFlow` is small and picklable: it opens connections in the process that uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock_store
from penstock.core.logs import get_logger
from penstock_hives.analytics.nightly import AnalyticsTask
from penstock_hives.forecast.schedule import ForecastTask
from penstock_hives.occupancy import silver
from penstock_hives.occupancy.gold import generations
from penstock_hives.occupancy.gold.ledger import (
    DEAD_LETTER_COUNT_SCHEMA,
    SENSOR_STATUS_SCHEMA,
    BatchFacts,
)
from penstock_hives.occupancy.gold.typical_week import TypicalWeekTask
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.publisher import make_publisher
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.occupancy.silver import SilverSummary, flatten_struct
from penstock_hives.occupancy.writer import CURRENT_GENERATION, OccupancyWriter
from penstock_spark.flow import FlowBatch, FlowContext, PeriodicTask
from penstock_spark.stream_declaration import StreamDeclaration
from penstock_store import Database
from penstock_store.cache import BlockingCache

log = get_logger(__name__)

NAME: Final = "hives"
STREAMS: Final = "sensors*"
#: What sensors send, over MQTT or AMQP, in one stream unless somebody has declared several.
SOURCES: Final = (StreamDeclaration("sensors", "amq.topic", ("sensors.#",)),)
#: How often time passes with nobody sending, and cached figures are written again.
CLOCK_SECONDS: Final = 30.0
#: How often it is looked whether it is night somewhere; how soon one that failed is tried again.
NIGHT_SECONDS: Final = 600.0
NIGHT_RETRY_SECONDS: Final = 3600.0


class HivesFlow:
    """`penstock_spark.flow.PipelineFlow` for hives."""

    def __init__(
        self,
        database: str,
        broker: str | None = None,
        cache: str | None = None,
        lake: Path | None = None,
    ) -> None:
        """By URL; without a broker nothing is published, without a lake gold is not kept there."""
        self._urls = (database, broker, cache)
        self._lake = lake
        self._desk: OccupancyWriter | None = None

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
    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        database, *_ = self._urls
        often = (NIGHT_SECONDS, NIGHT_RETRY_SECONDS)
        return (
            PeriodicTask("forecast", ForecastTask(database), *often),
            PeriodicTask("usual weeks", TypicalWeekTask(database), *often),
            PeriodicTask("analytics", AnalyticsTask(database, self._lake), *often),
        )

    @property
    def writer(self) -> OccupancyWriter:
        """This process's; opened when it is first needed."""
        if self._desk is None:
            database, broker, cache = self._urls
            told = make_publisher(broker)
            self._desk = OccupancyWriter(NAME, Database(database), BlockingCache(cache), told)
        return self._desk

    def apply(self, batch: FlowBatch) -> None:
        generation = batch.generation if batch.aside else CURRENT_GENERATION
        before = self.writer.before(generation, batch.id)
        if before.states is None:
            log.info("batch already applied", flow=NAME, batch=batch.id)
            if not batch.aside:
                self.writer.publish_all()
            return
        carried = silver.write_silver(batch, before.profiles, before.states)
        for notice in carried.notices.to_pylist():
            log.warning("sensor notice", **notice)
        facts = make_facts(carried, before.profiles, batch.rows)
        self.writer.enter(generation, batch.id, facts)

    def begin_rebuild(self, generation: int, since: int) -> int:
        """From the first batch: where sensors stood before a later one is written nowhere."""
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
        desk, self._desk = self._desk, None
        if desk is not None:
            desk.close()

    def __getstate__(self) -> tuple[tuple[str, str | None, str | None], Path | None]:
        return self._urls, self._lake

    def __setstate__(self, state: tuple[tuple[str, str | None, str | None], Path | None]) -> None:
        self._urls, self._lake = state
        self._desk = None


@contextmanager
def open_flow(surroundings: FlowContext) -> Iterator[HivesFlow]:
    """The flow with its database, which is started if it is the embedded one."""
    with penstock_store.open(surroundings.database, surroundings.data) as database:
        lake = surroundings.data / "lake"
        flow = HivesFlow(database.url, surroundings.broker, surroundings.cache, lake)
        ended = threading.Event()
        pacer = threading.Thread(
            target=_advance_clock, args=(flow, ended), name="hives time", daemon=True
        )
        pacer.start()
        try:
            yield flow
        finally:
            ended.set()
            pacer.join()
            flow.close()


def _advance_clock(flow: HivesFlow, ended: threading.Event) -> None:
    while not ended.wait(CLOCK_SECONDS):
        try:
            flow.writer.advance_clock()
        except Exception as error:  # the next batch meets it, too, and is the one to wait
            log.warning("clock advance failed", flow=NAME, reason=str(error))


#: Of silver's statuses, the names the table has for them.
_STATUS_COLUMNS: Final = {"battery": "battery_mv", "signal": "signal_dbm"}


def make_facts(carried: SilverSummary, profiles: SensorProfiles, messages: int) -> BatchFacts:
    """Of so many messages."""
    return BatchFacts(
        counts=carried.counts,
        states=carried.states.cast(SENSOR_STATE_SCHEMA),
        statuses=_last_statuses(carried.statuses, profiles),
        dead_letters=_count_dead_letters(carried.letters),
        rows=messages,
    )


def _count_dead_letters(letters: pa.Table) -> pa.Table:
    """Dead letters by day, stream and reason."""
    table = pa.table(
        {
            "day": letters["received_at"].cast(pa.timestamp("us", "UTC")).cast(pa.date32()),
            "stream": letters["stream"],
            "reason": pc.struct_field(letters["letter"], "reason"),
            "at": letters["received_at"],
        }
    )
    found = table.group_by(["day", "stream", "reason"]).aggregate([("at", "max"), ("at", "count")])
    return (
        found.rename_columns({"at_max": "last_at", "at_count": "count"})
        .select(DEAD_LETTER_COUNT_SCHEMA.names)
        .cast(DEAD_LETTER_COUNT_SCHEMA)
    )


def _last_statuses(statuses: pa.Table, profiles: SensorProfiles) -> pa.Table:
    """The last of each sensor."""
    told = flatten_struct(statuses, "status")
    columns: dict[str, Any] = {
        _STATUS_COLUMNS.get(name, name): told[name] for name in told.schema.names
    }
    places = profiles.places(statuses["sensor"].combine_chunks())
    columns["sensor_id"] = pa.array(profiles.sensor_ids[places])
    columns["received_at"] = statuses["received_at"]
    columns["raw"] = statuses["raw"]
    chosen = pa.table(columns).select(SENSOR_STATUS_SCHEMA.names).cast(SENSOR_STATUS_SCHEMA)
    sensor = np.asarray(chosen["sensor_id"])
    received = np.asarray(chosen["received_at"].cast(pa.int64()))
    order = np.lexsort((received, sensor))
    last = np.append(sensor[order][1:] != sensor[order][:-1], True)[: len(order)]
    return chosen.take(pa.array(order[last]))
