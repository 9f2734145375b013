"""Where one process keeps the books: its database, its cache, whom it tells, what it remembers.

Batches and the passing of time come from different threads and take turns. What they change is
told after it is committed. Should telling fail, everything is told again before anything new: who
listens gets each version at least once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from penstock.hives.gold import Books, Facts, generations
from penstock.hives.gold.books import Memory
from penstock.hives.gold.sensors import Known, read_profiles, read_states
from penstock.hives.gold.standing import Standing
from penstock.hives.publications import Publications, keep
from penstock.hives.steps.profiles import Profiles
from penstock.store import Connection, Database
from penstock.store.cache import BlockingCache

#: The generation people look at.
CURRENT = 0


@dataclass(frozen=True, slots=True)
class Before:
    """What a batch begins with."""

    profiles: Profiles
    states: pa.Table | None  #: where sensors stand; none, if the batch is entered already


class Desk:
    """The books of a flow. Generations other than the current one are told to nobody."""

    def __init__(
        self,
        flow: str,
        database: Database,
        cache: BlockingCache,
        publications: Publications,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database = database
        self._flow = flow
        self._cache = cache
        self._publications = publications
        self._clock = clock
        self._known: Known | None = None
        self._memories: dict[int, Memory] = {}
        self._turn = threading.Lock()
        self._since = clock()
        self._owing = False

    def before(self, generation: int, batch: int) -> Before:
        with self._transaction(generation) as connection:
            entered = Books(connection, self._flow, generation).entered(batch)
            self._known = read_profiles(connection, self._known)
            return Before(self._known.profiles, None if entered else read_states(connection))

    def enter(self, generation: int, batch: int, facts: Facts) -> None:
        with self._turn:
            memory = self._memories.get(generation, Memory())
            with self._transaction(generation) as connection:
                books = Books(connection, self._flow, generation)
                entered = books.enter(batch, facts, memory)
            self._memories[generation] = entered.memory
            self._since = self._clock()
        if generation == CURRENT:
            self._tell(entered.changed)

    def pass_time(self) -> None:
        """What time does to hives with nobody sending, since the last batch that was entered here.

        Where none was, another process has the batches, and the time.
        """
        with self._turn:
            memory = self._memories.get(CURRENT)
            if memory is None:
                return
            now = self._clock()
            passed = int((now - self._since) * 1_000_000)
            with self._transaction(CURRENT) as connection:
                books = Books(connection, self._flow)
                entered = books.pass_time(memory.clock + passed, memory)
                standings = books.standings()
            self._memories[CURRENT] = entered.memory
            self._since = now
        self._tell(entered.changed)
        keep(self._cache, standings)  # before they are too old to be served

    def tell_all(self) -> None:
        """How every hive stands, once more."""
        with self._transaction(CURRENT) as connection:
            standings = Books(connection, self._flow).standings()
        self._owing = False
        self._tell(standings)

    def check(self) -> None:
        """Raises unless changes can be told."""
        self._publications.connect()

    def adopt(self, generation: int) -> None:
        with self._turn:
            with self._transaction(CURRENT) as connection:
                Books(connection, self._flow)  # nobody else writes meanwhile
                if not generations.exists(connection, self._flow, generation):
                    return
                generations.adopt(connection, self._flow, generation)
            self._memories.clear()
        self.tell_all()

    def close(self) -> None:
        self._publications.close()
        self._cache.close()
        self.database.close()

    @contextmanager
    def _transaction(self, generation: int) -> Iterator[Connection]:
        with self.database.transaction() as connection:
            if generation != CURRENT:
                generations.enter(connection, self._flow, generation)
            yield connection

    def _tell(self, standings: Sequence[Standing]) -> None:
        if self._owing:
            self.tell_all()
            return
        keep(self._cache, standings)
        self._owing = True
        self._publications.publish(standings)
        self._owing = False
