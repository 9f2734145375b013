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

from penstock_hives.occupancy.gold import generations
from penstock_hives.occupancy.gold.catalogue import SensorCatalogue, read_profiles, read_states
from penstock_hives.occupancy.gold.ledger import BatchFacts, LedgerCache, OccupancyLedger
from penstock_hives.occupancy.gold.status import HiveStatus
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.publisher import OccupancyPublisher, cache_statuses
from penstock_store import Connection, Database
from penstock_store.cache import BlockingCache

#: The generation that is published and read by the applications.
CURRENT_GENERATION = 0


@dataclass(frozen=True, slots=True)
class BatchStart:
    profiles: SensorProfiles
    states: pa.Table | None  #: sensor states before the batch; None if it is already applied


class OccupancyWriter:
    """Applies the batches of a flow. Only the current generation is published."""

    def __init__(
        self,
        flow: str,
        database: Database,
        cache: BlockingCache,
        publisher: OccupancyPublisher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database = database
        self._flow = flow
        self._cache = cache
        self._publisher = publisher
        self._clock = clock
        self._sensors: SensorCatalogue | None = None
        self._ledger_caches: dict[int, LedgerCache] = {}
        self._lock = threading.Lock()
        self._last_clock = clock()
        self._unpublished = False

    def start_batch(self, generation: int, batch: int) -> BatchStart:
        with self._transaction(generation) as connection:
            applied = OccupancyLedger(connection, self._flow, generation).is_applied(batch)
            self._sensors = read_profiles(connection, self._sensors)
            return BatchStart(self._sensors.profiles, None if applied else read_states(connection))

    def apply_batch(self, generation: int, batch: int, facts: BatchFacts) -> None:
        with self._lock:
            cache = self._ledger_caches.get(generation, LedgerCache())
            with self._transaction(generation) as connection:
                ledger = OccupancyLedger(connection, self._flow, generation)
                update = ledger.apply(batch, facts, cache)
            self._ledger_caches[generation] = update.cache
            self._last_clock = self._clock()
        if generation == CURRENT_GENERATION:
            self._publish(update.changed)

    def advance_clock(self) -> None:
        """Apply what time changes without messages since the last batch of this process.

        Without such a batch, another process applies the batches and advances the clock.
        """
        with self._lock:
            cache = self._ledger_caches.get(CURRENT_GENERATION)
            if cache is None:
                return
            now = self._clock()
            elapsed = int((now - self._last_clock) * 1_000_000)
            with self._transaction(CURRENT_GENERATION) as connection:
                ledger = OccupancyLedger(connection, self._flow)
                update = ledger.advance_clock(cache.clock + elapsed, cache)
                statuses = ledger.read_statuses()
            self._ledger_caches[CURRENT_GENERATION] = update.cache
            self._last_clock = now
        self._publish(update.changed)
        cache_statuses(self._cache, statuses)  # before cached statuses expire

    def publish_all(self) -> None:
        with self._transaction(CURRENT_GENERATION) as connection:
            statuses = OccupancyLedger(connection, self._flow).read_statuses()
        self._unpublished = False
        self._publish(statuses)

    def check(self) -> None:
        """Raises if changes cannot be published."""
        self._publisher.connect()

    def adopt(self, generation: int) -> None:
        with self._lock:
            with self._transaction(CURRENT_GENERATION) as connection:
                OccupancyLedger(connection, self._flow)  # takes the lock of writers
                if not generations.generation_exists(connection, self._flow, generation):
                    return
                generations.adopt_generation(connection, self._flow, generation)
            self._ledger_caches.clear()
        self.publish_all()

    def close(self) -> None:
        self._publisher.close()
        self._cache.close()
        self.database.close()

    @contextmanager
    def _transaction(self, generation: int) -> Iterator[Connection]:
        with self.database.transaction() as connection:
            if generation != CURRENT_GENERATION:
                generations.use_generation(connection, self._flow, generation)
            yield connection

    def _publish(self, statuses: Sequence[HiveStatus]) -> None:
        if self._unpublished:
            self.publish_all()
            return
        cache_statuses(self._cache, statuses)
        self._unpublished = True
        self._publisher.publish(statuses)
        self._unpublished = False
