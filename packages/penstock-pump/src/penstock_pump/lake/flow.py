"""The flow `pump`: posts and reports in the lake.

The stream `announcements` records the exchanges that `penstock pump archive` bound to it. Silver
has a row for each message, the summary a row for each day and exchange. There is no database: a
repeated batch replaces its own rows in the lake.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.core.errors import NotFound
from penstock_pump.lake.announcements import ANNOUNCEMENTS, SUMMARY, announcements, summary
from penstock_pump.names import ANNOUNCEMENT_STREAM
from penstock_spark.flow import FlowBatch, FlowContext, PeriodicTask
from penstock_spark.lake import Lake, StorageLocation
from penstock_spark.stream_declaration import StreamDeclaration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "pump"
#: Posts over MQTT, where the exchange is the first word of the topic.
SOURCES: Final = (StreamDeclaration(ANNOUNCEMENT_STREAM, "amq.topic", ("*.v02.#", "*.v03.#")),)
SUMMARY_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class PumpFlow:
    """Implements `penstock_spark.flow.PipelineFlow`."""

    lake: StorageLocation
    name: str = NAME
    key_words: int | None = None
    streams: str = f"{ANNOUNCEMENT_STREAM}*"
    sources: Sequence[StreamDeclaration] = SOURCES

    @property
    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        summarise_latest = partial(_summarise_latest, self.lake)
        return (PeriodicTask("daily summary", summarise_latest, SUMMARY_SECONDS, RETRY_SECONDS),)

    def apply(self, batch: FlowBatch) -> None:
        batch.lake.write(ANNOUNCEMENTS, batch.id, announcements(batch.messages))

    def begin_rebuild(self, generation: int, since: int) -> int:
        return since

    def check_adoption(self) -> None:
        """There is nothing to check."""

    def adopt(self, generation: int) -> None:
        """The runner switches the lake; there is nothing else."""

    def discard(self, generation: int) -> None:
        """See `adopt`."""


@contextmanager
def open_flow(context: FlowContext) -> Iterator[PumpFlow]:
    yield PumpFlow(context.lake)


def summarise(spark: SparkSession, lake: Lake, day: date) -> DataFrame:
    """The summary of a day, which also replaces the one in the lake."""
    rows = summary(lake.read(spark, ANNOUNCEMENTS, (day, day))).cache()
    lake.write(SUMMARY, day.toordinal(), rows)
    return rows


def _summarise_latest(location: StorageLocation, spark: SparkSession) -> None:
    """Of the last day with data."""
    lake = Lake.open(location, NAME)
    try:
        files = lake.table(ANNOUNCEMENTS).files()
    except NotFound:
        return
    if files:
        summarise(
            spark, lake, date.fromisoformat(max(file.partition["day"] or "" for file in files))
        )
