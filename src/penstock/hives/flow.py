"""From a sensor's bytes to live occupancy: the flow `hives`.

A batch becomes silver in the lake, then gold in one transaction with its mark, then live figures in
the cache and at the broker. Where sensors stand is read from the database, where the batch before
has left it, so a batch that is tried again gives the same; one that is marked is not applied again,
but what it changed is told again, for nobody knows whether it was.

`HivesFlow` is small and picklable: it opens what it needs in the process it works in.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock import store
from penstock.core.logs import get_logger
from penstock.hives import readings
from penstock.hives.analytics.nightly import Analyses
from penstock.hives.desk import CURRENT, Desk
from penstock.hives.forecasting import Nights
from penstock.hives.gold import generations
from penstock.hives.gold.gathering import facts_of
from penstock.hives.gold.usual import UsualWeeks
from penstock.hives.publications import publications_to
from penstock.pipeline.chores import Chore
from penstock.pipeline.flow import Batch, Surroundings
from penstock.pipeline.sources import Wanted
from penstock.store import Database
from penstock.store.cache import BlockingCache

log = get_logger(__name__)

NAME: Final = "hives"
STREAMS: Final = "sensors*"
#: What sensors send, over MQTT or AMQP, in one stream unless somebody has declared several.
SOURCES: Final = (Wanted("sensors", "amq.topic", ("sensors.#",)),)
#: How often time passes with nobody sending, and cached figures are written again.
PASS_SECONDS: Final = 30.0
#: How often it is looked whether it is night somewhere; how soon one that failed is tried again.
NIGHT_SECONDS: Final = 600.0
NIGHT_AGAIN_SECONDS: Final = 3600.0


class HivesFlow:
    """`penstock.pipeline.flow.Flow` for hives."""

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
        self._desk: Desk | None = None

    @property
    def name(self) -> str:
        return NAME

    @property
    def streams(self) -> str:
        return STREAMS

    @property
    def sources(self) -> Sequence[Wanted]:
        return SOURCES

    @property
    def chores(self) -> Sequence[Chore]:
        database, *_ = self._urls
        often = (NIGHT_SECONDS, NIGHT_AGAIN_SECONDS)
        return (
            Chore("forecast", Nights(database), *often),
            Chore("usual weeks", UsualWeeks(database), *often),
            Chore("analytics", Analyses(database, self._lake), *often),
        )

    @property
    def desk(self) -> Desk:
        """This process's; opened when it is first needed."""
        if self._desk is None:
            database, broker, cache = self._urls
            told = publications_to(broker)
            self._desk = Desk(NAME, Database(database), BlockingCache(cache), told)
        return self._desk

    def apply(self, batch: Batch) -> None:
        generation = batch.generation if batch.aside else CURRENT
        before = self.desk.before(generation, batch.id)
        if before.states is None:
            log.info("batch was applied before", flow=NAME, batch=batch.id)
            if not batch.aside:
                self.desk.tell_all()
            return
        carried = readings.write(batch, before.profiles, before.states)
        for notice in carried.notices.to_pylist():
            log.warning("sensor notice", **notice)
        facts = facts_of(carried, before.profiles, batch.rows)
        self.desk.enter(generation, batch.id, facts)

    def begin_rebuild(self, generation: int, since: int) -> int:
        """From the first batch: where sensors stood before a later one is written nowhere."""
        with self.desk.database.transaction() as connection:
            generations.create(connection, NAME, generation)
        return 0

    def check_adoption(self) -> None:
        self.desk.check()

    def adopt(self, generation: int) -> None:
        self.desk.adopt(generation)

    def discard(self, generation: int) -> None:
        with self.desk.database.transaction() as connection:
            generations.drop(connection, NAME, generation)

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
def open_flow(surroundings: Surroundings) -> Iterator[HivesFlow]:
    """The flow with its database, which is started if it is the embedded one."""
    with store.open(surroundings.database, surroundings.data) as database:
        lake = surroundings.data / "lake"
        flow = HivesFlow(database.url, surroundings.broker, surroundings.cache, lake)
        ended = threading.Event()
        pacer = threading.Thread(target=_pace, args=(flow, ended), name="hives time", daemon=True)
        pacer.start()
        try:
            yield flow
        finally:
            ended.set()
            pacer.join()
            flow.close()


def _pace(flow: HivesFlow, ended: threading.Event) -> None:
    while not ended.wait(PASS_SECONDS):
        try:
            flow.desk.pass_time()
        except Exception as error:  # the next batch meets it, too, and is the one to wait
            log.warning("time has not passed", flow=NAME, reason=str(error))
