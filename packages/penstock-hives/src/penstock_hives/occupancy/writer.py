"""The writer of occupancy: applies batches, lets time pass, publishes what changed.

A batch up to `SMALL_BATCH` messages is applied by this process in one transaction. A larger one is
a Spark job of two stages: tasks by message shard decode and count, tasks by hive shard compute gold
from the counts. They stage their rows in the database, and one transaction here merges them with
the mark of the batch. So the work of this process does not grow with messages, sensors or hives:
each is either below a constant bound or divided among tasks.

Changes are published after commit. If publishing fails, all statuses are published before anything
else: at-least-once delivery.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from psycopg.sql import SQL, Composable

from penstock.core.logs import get_logger
from penstock_hives.occupancy.batch_job import BatchJob
from penstock_hives.occupancy.gold import generations, status
from penstock_hives.occupancy.gold.catalogue import HiveShard, hives_version
from penstock_hives.occupancy.gold.ledger import HiveFacts, OccupancyLedger
from penstock_hives.occupancy.gold.staging import GoldRows, GoldStaging
from penstock_hives.occupancy.gold.status import HiveStatus
from penstock_hives.occupancy.publisher import OccupancyPublisher, cache_statuses
from penstock_hives.occupancy.silver import MessageShards, SilverFiles, write_silver
from penstock_hives.occupancy.slots import SLOT_MICROS
from penstock_spark.flow import FlowBatch
from penstock_store import AppliedBatches, Connection, Database
from penstock_store.cache import BlockingCache

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger(__name__)

#: The generation that is published and read by the applications.
CURRENT_GENERATION: Final = 0
#: A batch up to this many messages is applied without a Spark job of its own.
SMALL_BATCH: Final = 5_000
#: Up to this many hives are checked, or published, without a Spark job.
SMALL_HIVES: Final = 5_000
#: Fewer messages than this are not worth another task, …
_TASK_ROWS: Final = 50_000
#: … and more are too many for one: a task holds its messages in memory, about 1 kB each.
_MAX_TASK_ROWS: Final = 250_000
#: Hives that one transaction checks; batches wait for it.
_HIVES_PER_TRANSACTION: Final = 250
_LOCK: Final = "SELECT {}(hashtextextended('penstock_hives.occupancy.gold', %s))"


@dataclass(frozen=True, slots=True)
class ServiceUrls:
    database: str
    broker: str | None = None  #: None: nothing is published
    cache: str | None = None  #: None: in process, for tests


@dataclass(slots=True)
class FlowClock:
    """The time of a generation: that of its last message, or what has passed since."""

    now: int = 0  #: microseconds
    checked_slot: int = -1  #: up to which all hives were checked
    version: tuple[object, ...] = ()  #: of the catalogue of hives at that check
    set_at: float = 0.0  #: by the process's clock

    @property
    def slot(self) -> int:
        return self.now // SLOT_MICROS


class OccupancyWriter:
    """The connections of one process, and the clocks of generations. Only the current generation
    is published."""

    def __init__(
        self,
        flow: str,
        urls: ServiceUrls,
        publisher: OccupancyPublisher | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database = Database(urls.database)
        self._flow = flow
        self._urls = urls
        self.cache = BlockingCache(urls.cache)
        self._publisher = publisher or OccupancyPublisher(urls.broker)
        self._clock = clock
        self._clocks: dict[int, FlowClock] = {}
        #: Held while a batch or the passing of time is applied.
        self._lock = threading.Lock()
        self._unpublished = False

    def apply(self, batch: FlowBatch) -> None:
        generation = batch.generation if batch.is_rebuild else CURRENT_GENERATION
        apply = self._apply_small if batch.rows <= SMALL_BATCH else self._apply_large
        if not apply(batch, generation, SilverFiles.stage(batch.lake, batch.id)):
            log.info("batch already applied", flow=self._flow, batch=batch.id)
            if generation == CURRENT_GENERATION:
                self.publish_all(batch.spark)
            return
        known = self._clocks[generation]
        if known.slot > known.checked_slot:
            self._check_hives(batch.spark, generation)

    def _apply_small(self, batch: FlowBatch, generation: int, silver: SilverFiles) -> bool:
        """False if the batch is marked."""
        with self._transaction(generation) as connection:
            if AppliedBatches(connection).applied(self._flow, batch.id):
                return False
            done = write_silver(connection, MessageShards(batch.bronze_files), silver)
        silver.commit(batch.lake, [done.files])
        _log_notices(done.notices)
        self.record(generation, batch.id, batch.rows, done.hives, done.rows)
        return True

    def record(
        self, generation: int, batch: int, messages: int, facts: HiveFacts, rows: GoldRows
    ) -> None:
        """Write gold of a batch in one transaction, and publish what has changed."""
        with self._lock, self._transaction(generation) as connection:
            clock = max(facts.clock, self._now(generation, connection))
            changed = apply_facts(connection, replace(facts, clock=clock), rows)
            AppliedBatches(connection).mark(self._flow, batch, messages)
        self._set_clock(generation, clock)
        self._publish(generation, changed)

    def _apply_large(self, batch: FlowBatch, generation: int, silver: SilverFiles) -> bool:
        """The same in tasks of Spark."""
        staging = GoldStaging.of_batch(self._flow, generation, batch.id)
        with self._lock:
            with self._transaction(generation) as connection:
                if AppliedBatches(connection).applied(self._flow, batch.id):
                    return False
                staging.create(connection)
                now = self._now(generation, connection)
            available = available_tasks(batch.spark)
            tasks = silver_tasks(batch, available)
            job = BatchJob(
                *(self._flow, self._urls.database, generation, staging, silver),
                tasks=tasks,
                hive_tasks=min(tasks, available),
            )
            done = job.run(batch.spark, batch.bronze_files, now)
            silver.commit(batch.lake, done.files)
            _log_notices(done.notices)
            with self._transaction(generation) as connection:
                staging.merge(connection)
                AppliedBatches(connection).mark(self._flow, batch.id, batch.rows)
        self._set_clock(generation, done.clock)
        if generation == CURRENT_GENERATION:
            self._publish_staged(batch.spark, staging)
        with self._transaction(generation) as connection:
            staging.drop(connection)
        return True

    def _set_clock(self, generation: int, now: int) -> None:
        known = self._clocks.setdefault(generation, FlowClock())
        known.now, known.set_at = max(known.now, now), self._clock()

    def advance_clock(self, spark: SparkSession | None) -> None:
        """Apply what time changes without messages since the last batch of this process.

        Without such a batch, another process applies the batches and advances the clock.
        """
        known = self._clocks.get(CURRENT_GENERATION)
        if known is None:
            return
        now = self._clock()
        known.now += int((now - known.set_at) * 1_000_000)
        known.set_at = now
        with self.database.transaction() as connection:
            version = hives_version(connection)
        if known.slot > known.checked_slot or known.version != version:
            self._check_hives(spark, CURRENT_GENERATION)
        self._by_shard(spark, "cache_shard")  # before cached statuses expire

    def publish_all(self, spark: SparkSession | None = None) -> None:
        self._by_shard(spark, "publish_shard")
        self._unpublished = False

    def check(self) -> None:
        """Raises if changes cannot be published."""
        self._publisher.connect()

    def adopt(self, generation: int) -> None:
        with self._lock:
            with self._transaction(CURRENT_GENERATION) as connection:
                if not generations.generation_exists(connection, self._flow, generation):
                    return
                generations.adopt_generation(connection, self._flow, generation)
            self._clocks.clear()
        self.publish_all()

    def close(self) -> None:
        self._publisher.close()
        self.cache.close()
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # By shard of hives: here, or in a task.

    def pass_time(self, shard: HiveShard, generation: int, clock: int) -> None:
        """Apply what time changes, to some hives at a time."""
        last = -1
        while True:
            with (
                self._lock,
                self._transaction(generation, shared=shard.shards > 1) as connection,
            ):
                hives = shard.read_ids(connection, last, _HIVES_PER_TRANSACTION)
                if not len(hives):
                    return
                rows = OccupancyLedger(connection).pass_time(hives, clock, shard)
                changed = merge_staged(connection, rows)
            self._publish(generation, changed)
            last = int(hives[-1])

    def publish_shard(self, shard: HiveShard, staging: GoldStaging | None = None) -> None:
        """Publish the statuses of all hives, or of those that a batch has changed."""
        for statuses in self._statuses(shard, staging):
            self._send(statuses)

    def cache_shard(self, shard: HiveShard) -> None:
        for statuses in self._statuses(shard):
            cache_statuses(self.cache, statuses)

    def _statuses(
        self, shard: HiveShard, staging: GoldStaging | None = None
    ) -> Iterator[list[HiveStatus]]:
        mine: Composable = SQL("hive_id % {} = {}").format(shard.shards, shard.number)
        if staging is not None:
            mine = SQL("{} AND {}").format(mine, staging.changed_hives())
        last = -1
        while True:
            with self.database.transaction() as connection:
                page = SQL("{} AND hive_id > {}").format(mine, last)
                found = status.read_statuses(connection, page, SMALL_HIVES)
            if not found:
                return
            yield found
            last = found[-1].hive_id

    def _by_shard(self, spark: SparkSession | None, method: str, *arguments: Any) -> None:
        """Call a method for all hives: once, or for each shard in a task of Spark."""
        with self.database.transaction() as connection:
            hives = int(str(hives_version(connection)[0]))
        if spark is None or hives <= SMALL_HIVES:
            getattr(self, method)(HiveShard(), *arguments)
            return
        shards = max(available_tasks(spark), hives // _TASK_ROWS)
        task = _ShardTask(self._flow, self._urls, method, arguments, shards)
        spark.range(0, shards, 1, shards).mapInArrow(task, "shard LONG").collect()

    def _check_hives(self, spark: SparkSession | None, generation: int) -> None:
        known = self._clocks[generation]
        slot = known.slot
        with self.database.transaction() as connection:
            version = hives_version(connection)
        self._by_shard(spark, "pass_time", generation, known.now)
        known.checked_slot, known.version = slot, version

    def _now(self, generation: int, connection: Connection) -> int:
        known = self._clocks.get(generation)
        return status.last_received(connection) if known is None else known.now

    @contextmanager
    def _transaction(self, generation: int, *, shared: bool = False) -> Iterator[Connection]:
        """One writer of a generation at a time, or several of different hives."""
        lock = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        with self.database.transaction() as connection:
            if generation != CURRENT_GENERATION:
                generations.use_generation(connection, self._flow, generation)
            connection.execute(SQL(_LOCK).format(SQL(lock)), (generation,))
            yield connection

    def _publish(self, generation: int, statuses: Sequence[HiveStatus]) -> None:
        if generation != CURRENT_GENERATION:
            return
        if self._unpublished:
            self.publish_all()
        else:
            self._send(statuses)

    def _publish_staged(self, spark: SparkSession, staging: GoldStaging) -> None:
        with self.database.transaction() as connection:
            changed = staging.count_changed_hives(connection)
        if self._unpublished or changed > SMALL_HIVES:
            self._unpublished = True
            self._by_shard(spark, "publish_shard", staging if changed else None)
            self._unpublished = False
        else:
            self.publish_shard(HiveShard(), staging)

    def _send(self, statuses: Sequence[HiveStatus]) -> None:
        cache_statuses(self.cache, statuses)
        self._unpublished = True
        self._publisher.publish(statuses)
        self._unpublished = False


def apply_facts(connection: Connection, facts: HiveFacts, rows: GoldRows) -> list[HiveStatus]:
    """Write gold of a batch, with these rows about sensors; returns the changed statuses."""
    return merge_staged(
        connection, {**rows, **OccupancyLedger(connection).apply(facts, HiveShard())}
    )


def merge_staged(connection: Connection, rows: GoldRows) -> list[HiveStatus]:
    """Stage and merge rows at once; returns the changed statuses."""
    staging = GoldStaging()
    staging.copy(connection, rows)
    staging.merge(connection, [name for name in rows if len(rows[name])])
    if not len(rows["hive_status"]):
        return []
    return status.read_statuses(connection, staging.changed_hives())


def _log_notices(notices: Sequence[dict[str, Any]]) -> None:
    for notice in notices:
        log.warning("sensor notice", **notice)


def silver_tasks(batch: FlowBatch, available: int) -> int:
    """As many as can run at a time, as far as it is worth it; more for a batch that is too large
    for these; at most one for each shard."""
    wanted = min(available, batch.rows // _TASK_ROWS)
    needed = -(-batch.rows // _MAX_TASK_ROWS)
    return max(1, min(max(wanted, needed), batch.bronze_files.shards))


def available_tasks(spark: SparkSession) -> int:
    """Tasks that can run at a time; Spark Connect does not report it."""
    from pyspark.errors import PySparkAttributeError

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:
        return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


@dataclass(frozen=True, slots=True)
class _ShardTask:
    """Calls a method of a writer for the shards in a Spark partition."""

    flow: str
    urls: ServiceUrls
    method: str
    arguments: tuple[Any, ...]
    shards: int

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with OccupancyWriter(self.flow, self.urls) as writer:
            for rows in numbers:
                for number in rows["id"].to_pylist():
                    shard = HiveShard(number, self.shards)
                    getattr(writer, self.method)(shard, *self.arguments)
                yield pa.RecordBatch.from_pydict({"shard": rows["id"]})
