"""The writer of occupancy: one process's connections to the database, the cache and the broker.

Batches and the clock come from different threads; a lock serialises them. Changes are published
after commit. If publishing fails, all statuses are published before anything else: at-least-once
delivery.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from penstock_hives.occupancy.gold import BatchFacts, OccupancyLedger, generations
from penstock_hives.occupancy.gold.catalogue import SensorCatalogue, read_profiles, read_states
from penstock_hives.occupancy.gold.ledger import LedgerCache
from penstock_hives.occupancy.gold.status import HiveStatus
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.publisher import OccupancyPublisher, cache_statuses
from penstock_store import Connection, Database
from penstock_store.cache import BlockingCache

#: The generation people look at.
CURRENT_GENERATION = 0


@dataclass(frozen=True, slots=True)
class BatchStart:
    """What a batch begins with."""

    profiles: SensorProfiles
    states: pa.Table | None  #: where sensors stand; none, if the batch is entered already


class OccupancyWriter:
    """The books of a flow. Generations other than the current one are told to nobody."""

    def __init__(
        self,
        flow: str,
        database: Database,
        cache: BlockingCache,
        publications: OccupancyPublisher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database = database
        self._flow = flow
        self._cache = cache
        self._publications = publications
        self._clock = clock
        self._known: SensorCatalogue | None = None
        self._memories: dict[int, LedgerCache] = {}
        self._turn = threading.Lock()
        self._since = clock()
        self._owing = False

    def before(self, generation: int, batch: int) -> BatchStart:
        with self._transaction(generation) as connection:
            entered = OccupancyLedger(connection, self._flow, generation).entered(batch)
            self._known = read_profiles(connection, self._known)
            return BatchStart(self._known.profiles, None if entered else read_states(connection))

    def enter(self, generation: int, batch: int, facts: BatchFacts) -> None:
        with self._turn:
            memory = self._memories.get(generation, LedgerCache())
            with self._transaction(generation) as connection:
                books = OccupancyLedger(connection, self._flow, generation)
                entered = books.enter(batch, facts, memory)
            self._memories[generation] = entered.memory
            self._since = self._clock()
        if generation == CURRENT_GENERATION:
            self._tell(entered.changed)

    def advance_clock(self) -> None:
        """What time does to hives with nobody sending, since the last batch that was entered here.

        Where none was, another process has the batches, and the time.
        """
        with self._turn:
            memory = self._memories.get(CURRENT_GENERATION)
            if memory is None:
                return
            now = self._clock()
            passed = int((now - self._since) * 1_000_000)
            with self._transaction(CURRENT_GENERATION) as connection:
                books = OccupancyLedger(connection, self._flow)
                entered = books.advance_clock(memory.clock + passed, memory)
                standings = books.standings()
            self._memories[CURRENT_GENERATION] = entered.memory
            self._since = now
        self._tell(entered.changed)
        cache_statuses(self._cache, standings)  # before they are too old to be served

    def publish_all(self) -> None:
        """How every hive stands, once more."""
        with self._transaction(CURRENT_GENERATION) as connection:
            standings = OccupancyLedger(connection, self._flow).standings()
        self._owing = False
        self._tell(standings)

    def check(self) -> None:
        """Raises unless changes can be told."""
        self._publications.connect()

    def adopt(self, generation: int) -> None:
        with self._turn:
            with self._transaction(CURRENT_GENERATION) as connection:
                OccupancyLedger(connection, self._flow)  # nobody else writes meanwhile
                if not generations.generation_exists(connection, self._flow, generation):
                    return
                generations.adopt_generation(connection, self._flow, generation)
            self._memories.clear()
        self.publish_all()

    def close(self) -> None:
        self._publications.close()
        self._cache.close()
        self.database.close()

    @contextmanager
    def _transaction(self, generation: int) -> Iterator[Connection]:
        with self.database.transaction() as connection:
            if generation != CURRENT_GENERATION:
                generations.use_generation(connection, self._flow, generation)
            yield connection

    def _tell(self, standings: Sequence[HiveStatus]) -> None:
        if self._owing:
            self.publish_all()
            return
        cache_statuses(self._cache, standings)
        self._owing = True
        self._publications.publish(standings)
        self._owing = False
