"""The flow `pump`: what is announced and reported, kept in the lake.

Stream `announcements` takes what the exchanges carry that it was told to keep (`penstock pump
keep`); silver has a row for each message, the summary a row for each day and exchange. There is no
database behind it: a batch that is tried again replaces its own rows, and that is all there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.core.errors import NotFound
from penstock_pump.lake.announcements import ANNOUNCEMENTS, SUMMARY, announcements, summary
from penstock_spark.flow import FlowBatch, FlowContext, PeriodicTask
from penstock_spark.lake import Lake
from penstock_spark.stream_declaration import StreamDeclaration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "pump"
STREAM: Final = "announcements"
#: What comes by MQTT, where the exchange is the first word of the topic; other exchanges are bound
#: by whoever wants them kept.
SOURCES: Final = (StreamDeclaration(STREAM, "amq.topic", ("*.v02.#", "*.v03.#")),)
#: How often the day's summary is made anew.
SUMMARY_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class PumpFlow:
    """`penstock_spark.flow.PipelineFlow` for the pump."""

    lake: Path
    name: str = NAME
    streams: str = f"{STREAM}*"
    sources: Sequence[StreamDeclaration] = SOURCES

    @property
    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        return (
            PeriodicTask("daily summary", _SummaryChore(self.lake), SUMMARY_SECONDS, RETRY_SECONDS),
        )

    def apply(self, batch: FlowBatch) -> None:
        batch.lake.write(ANNOUNCEMENTS, batch.id, announcements(batch.messages))

    def begin_rebuild(self, generation: int, since: int) -> int:
        return since

    def check_adoption(self) -> None:
        """It needs nothing."""

    def adopt(self, generation: int) -> None:
        """The lake is all there is, and the engine has seen to that."""

    def discard(self, generation: int) -> None:
        """As above."""


@contextmanager
def open_flow(surroundings: FlowContext) -> Iterator[PumpFlow]:
    yield PumpFlow(surroundings.data / "lake")


def summarise(spark: SparkSession, lake: Lake, day: date) -> DataFrame:
    """The day's summary, from silver; it is put into the lake as well, in place of an older one."""
    found = summary(lake.read(spark, ANNOUNCEMENTS, (day, day))).cache()
    lake.write(SUMMARY, day.toordinal(), found)
    return found


@dataclass(frozen=True, slots=True)
class _SummaryChore:
    """Of the last day there is something of."""

    lake: Path

    def __call__(self, spark: SparkSession) -> None:
        lake = Lake.open(self.lake, NAME)
        try:
            files = lake.table(ANNOUNCEMENTS).log.files()
        except NotFound:
            return
        if files:
            summarise(spark, lake, date.fromisoformat(max(file.day for file in files)))
