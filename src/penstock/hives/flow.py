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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa

from penstock import store
from penstock.core.logs import get_logger
from penstock.hives import readings
from penstock.hives.gold import Books, Facts, generations
from penstock.hives.gold.books import Memory
from penstock.hives.gold.gathering import COLUMNS, gather
from penstock.hives.gold.sensors import Known, read_profiles, read_states
from penstock.hives.gold.standing import Standing
from penstock.hives.publications import BrokerPublications, Publications, keep
from penstock.hives.steps.profiles import Profiles
from penstock.pipeline.flow import Batch, Surroundings
from penstock.store import Connection, Database
from penstock.store.cache import BlockingCache

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
        before = self._here.before(generation, batch.id)
        if before is None:
            log.info("batch was applied before", flow=NAME, batch=batch.id)
            self._here.announce_all(aside=batch.aside)
            return
        self._here.enter(generation, batch.id, _make_silver(batch, *before))

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
        self._known: Known | None = None
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

    def before(self, generation: int, batch: int) -> tuple[Profiles, pa.Table] | None:
        """Who the sensors are and where they stand before a batch; none if it is applied."""
        with self.transaction(generation) as connection:
            if Books(connection, NAME, generation).entered(batch):
                return None
            self._known = read_profiles(connection, self._known)
            return self._known.profiles, read_states(connection)

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


def _make_silver(batch: Batch, profiles: Profiles, states: pa.Table) -> Facts:
    entry = readings.write(batch, profiles, states)
    gathered = gather(readings.load(batch.lake, entry, COLUMNS), profiles, batch.rows)
    readings.write_apart(batch, entry, gathered.parts)
    for notice in gathered.notices:
        log.warning("sensor notice", **notice)
    return gathered.facts


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
