"""From a sensor's bytes to live occupancy: the flow `hives`.

A batch becomes silver in the lake, then gold in one transaction with its mark, then live figures in
the cache and at the broker. Where sensors stand is read from the database, where the batch before
has left it, so a batch that is tried again gives the same; one that is marked is not applied again,
but what it changed is told again, for nobody knows whether it was.

`HivesFlow` is small and picklable: it opens what it needs in the process it works in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from penstock import store
from penstock.core.logs import get_logger
from penstock.hives.gold import Books, generations
from penstock.hives.gold.books import Memory
from penstock.hives.gold.facts import Facts
from penstock.hives.gold.gathering import Gathered, gather
from penstock.hives.gold.sensors import Known, read_profiles, read_states
from penstock.hives.gold.standing import Standing
from penstock.hives.publications import BrokerPublications, Publications, keep
from penstock.hives.sensors.sending import RECEIVED_AT
from penstock.hives.steps import silver
from penstock.hives.steps.decoded import Part
from penstock.pipeline.flow import Batch, Surroundings
from penstock.store import Connection, Database
from penstock.store.cache import BlockingCache

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = get_logger(__name__)

NAME: Final = "hives"
STREAMS: Final = "sensors*"
#: How often time passes with nobody sending, and cached figures are written again.
PASS_SECONDS: Final = 30.0


class HivesFlow:
    """`penstock.pipeline.flow.Flow` for hives."""

    def __init__(self, database: str, broker: str | None = None, cache: str | None = None) -> None:
        """By URL; without a broker nothing is published."""
        self._urls = (database, broker, cache)
        self._here = _Here(*self._urls)

    @property
    def name(self) -> str:
        return NAME

    @property
    def streams(self) -> str:
        return STREAMS

    def apply(self, batch: Batch) -> None:
        generation = batch.generation if batch.aside else 0
        with self._here.transaction(generation) as connection:
            if Books(connection, NAME, generation).entered(batch.id):
                log.info("batch was applied before", flow=NAME, batch=batch.id)
                told = None
            else:
                self._here.known = read_profiles(connection, self._here.known)
                told = read_states(connection)
        if told is None:
            self._here.announce_all(aside=batch.aside)
            return
        gathered = _make_silver(batch, self._here.known, told)
        self._here.enter(generation, batch.id, gathered.facts)

    def pass_time(self) -> None:
        """What time does to hives with nobody sending, since the last batch this process had."""
        self._here.pass_time()

    def begin_rebuild(self, generation: int, since: int) -> int:
        """From the first batch: where sensors stood before a later one is written nowhere."""
        with self._here.database.transaction() as connection:
            generations.create(connection, NAME, generation)
        return 0

    def adopt(self, generation: int) -> None:
        with self._here.database.transaction() as connection:
            Books(connection, NAME)  # nobody else writes meanwhile
            if not generations.exists(connection, NAME, generation):
                return
            generations.adopt(connection, NAME, generation)
        self._here.forget()
        self._here.announce_all(aside=False)

    def discard(self, generation: int) -> None:
        with self._here.database.transaction() as connection:
            generations.drop(connection, NAME, generation)

    def close(self) -> None:
        self._here.close()

    def __getstate__(self) -> tuple[str, str | None, str | None]:
        return self._urls

    def __setstate__(self, urls: tuple[str, str | None, str | None]) -> None:
        self._urls = urls
        self._here = _Here(*urls)


class _Here:
    """What a flow has open in this process, and remembers between batches."""

    def __init__(self, database: str, broker: str | None, cache: str | None) -> None:
        self.database = Database(database)
        self.known: Known | None = None
        self._publications: Publications | None = BrokerPublications(broker) if broker else None
        self._cache = BlockingCache(cache)
        self._memories: dict[int, Memory] = {}
        #: Batches and the passing of time come from two threads.
        self._turn = threading.Lock()
        self._since = time.monotonic()
        #: Something was changed, and telling it failed.
        self._owing = False

    @contextmanager
    def transaction(self, generation: int) -> Iterator[Connection]:
        with self.database.transaction() as connection:
            if generation:
                generations.enter(connection, NAME, generation)
            yield connection

    def enter(self, generation: int, batch: int, facts: Facts) -> None:
        with self._turn:
            memory = self._memories.get(generation, Memory())
            with self.transaction(generation) as connection:
                entered = Books(connection, NAME, generation).enter(batch, facts, memory)
            self._memories[generation] = entered.memory
            self._since = time.monotonic()
        if not generation:
            self._announce(entered.changed)

    def pass_time(self) -> None:
        with self._turn:
            memory = self._memories.get(0)
            if memory is None:
                return  # this process has applied nothing: another does
            passed = int((time.monotonic() - self._since) * 1_000_000)
            with self.database.transaction() as connection:
                books = Books(connection, NAME)
                entered = books.pass_time(memory.clock + passed, memory)
                standings = books.standings()
            self._memories[0] = entered.memory
            self._since = time.monotonic()
        self._announce(entered.changed)
        keep(self._cache, standings)

    def announce_all(self, *, aside: bool) -> None:
        if aside:
            return
        with self.database.transaction() as connection:
            standings = Books(connection, NAME).standings()
        self._owing = False
        self._announce(standings)

    def forget(self) -> None:
        with self._turn:
            self._memories.clear()

    def close(self) -> None:
        if self._publications is not None:
            self._publications.close()
        self._cache.close()
        self.database.close()

    def _announce(self, standings: Sequence[Standing]) -> None:
        if self._owing:
            self.announce_all(aside=False)
            return
        keep(self._cache, standings)
        if self._publications is not None:
            self._owing = True
            self._publications.publish(standings)
        self._owing = False


def received(messages: DataFrame) -> DataFrame:
    """Messages sent at another time than their own say when they were received."""
    from pyspark.sql import functions as F

    told = F.timestamp_millis(F.col("headers")[RECEIVED_AT].try_cast("bigint"))
    return messages.withColumn("timestamp", F.coalesce(told, "timestamp"))


def _make_silver(batch: Batch, known: Known | None, states: Any) -> Gathered:
    """Computed once, written to the lake by table; its facts."""
    assert known is not None
    rows = silver.silver(received(batch.messages), known.profiles, states).persist()
    try:
        gathered = gather(rows, known.profiles, batch.rows)
        tables = {
            "silver.reports": (Part.REPORT, silver.reports),
            "silver.events": ("event", silver.events),
            "silver.statuses": (Part.STATUS, silver.statuses),
            "silver.dead_letters": (Part.DEAD_LETTER, silver.dead_letters),
        }
        due = [(table, make) for table, (part, make) in tables.items() if gathered.sizes.get(part)]
        with ThreadPoolExecutor(max(len(due), 1)) as pool:
            for done in [pool.submit(_write, batch, rows, *each) for each in due]:
                done.result()
    finally:
        rows.unpersist()
    for notice in gathered.notices:
        log.warning("sensor notice", **notice)
    return gathered


def _write(
    batch: Batch, rows: DataFrame, table: str, make: Callable[[DataFrame], DataFrame]
) -> None:
    from pyspark.sql import functions as F

    batch.lake.write(table, batch.id, make(rows).withColumn("batch", F.lit(batch.id).cast("long")))


@contextmanager
def open_flow(surroundings: Surroundings) -> Iterator[HivesFlow]:
    """The flow with its database, which is started if it is the embedded one."""
    with store.open(surroundings.database, surroundings.data) as database:
        flow = HivesFlow(database.url, surroundings.broker, surroundings.cache)
        ended = threading.Event()
        pacer = threading.Thread(target=_pace, args=(flow, ended), name="hives time", daemon=True)
        pacer.start()
        try:
            yield flow
        finally:
            ended.set()
            pacer.join()
            with suppress(OSError):
                flow.close()


def _pace(flow: HivesFlow, ended: threading.Event) -> None:
    while not ended.wait(PASS_SECONDS):
        try:
            flow.pass_time()
        except Exception as error:  # the next batch meets it, too, and is the one to wait
            log.warning("time has not passed", flow=NAME, reason=str(error))
