"""The loop of every component that consumes posts: bounded, ordered by file, at least once.

A message is decoded, handled, reported and then acknowledged. A transient failure is retried a few
times at once, then written to the retry store and acknowledged. A permanent failure is reported and
dropped. On stop, posts in progress are finished and no new ones are started.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, Self

from penstock.client import FabricClosed
from penstock.core.logs import get_logger
from penstock.core.retry import RetryPolicy
from penstock.core.telemetry import message_spans
from penstock_pump.errors import BadPost, PumpError, unusable_name
from penstock_pump.flow.message import PumpMessage, message_from_json, message_to_json
from penstock_pump.flow.subscription import PumpDelivery, PumpSubscription
from penstock_pump.posts.formats import read_post
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import NOT_COPIED, REJECTED, PostOutcome
from penstock_pump.posts.v02 import V02Dialect
from penstock_pump.sqlite_store import SqliteStore
from penstock_pump.transfer import BandwidthLimit

log = get_logger(__name__)

#: Retries that are read from the disk together.
RETRY_BATCH: Final = 100
#: Seconds between two checks of the retry store when nothing is due.
RETRY_POLL_SECONDS: Final = 30.0
#: A post that has waited less between its attempts does not expire by its age: the clock may have
#: been set forward.
DOUBTED_SECONDS: Final = 500.0

_SCHEMA: Final = """
create table if not exists waiting (
    id integer primary key,
    born real not null,
    due real not null,
    attempts integer not null,
    letter text not null
);
create index if not exists waiting_due on waiting (due);
"""


class FileOrder:
    """Posts about one file are handled one after the other, in the order of `acquire`; other posts
    at the same time. So a removal never overtakes the file it removes."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    def acquire(self, keys: Iterable[str]) -> FileOrderSlot:
        """A place in the order; `async with` waits until it is the first."""
        keys = tuple(dict.fromkeys(keys))
        before = [self._last[key] for key in keys if key in self._last]
        done = asyncio.get_running_loop().create_future()
        for key in keys:
            self._last[key] = done
        return FileOrderSlot(self, keys, before, done)

    def release(self, keys: Iterable[str], done: asyncio.Future[None]) -> None:
        for key in keys:
            if self._last.get(key) is done:
                del self._last[key]
        if not done.done():
            done.set_result(None)


class FileOrderSlot:
    __slots__ = ("_before", "_done", "_file_order", "_keys")

    def __init__(
        self,
        file_order: FileOrder,
        keys: tuple[str, ...],
        before: list[asyncio.Future[None]],
        done: asyncio.Future[None],
    ) -> None:
        self._file_order = file_order
        self._keys = keys
        self._before = before
        self._done = done

    async def __aenter__(self) -> Self:
        try:
            for earlier in self._before:
                await asyncio.shield(earlier)
        except BaseException:
            self._file_order.release(self._keys, self._done)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._file_order.release(self._keys, self._done)


@dataclass(frozen=True, slots=True)
class RetryEntry:
    id: int
    pump_message: PumpMessage
    created: float
    attempts: int


class RetryStore:
    """Messages to be retried later, on disk. Blocking; any thread may call it."""

    def __init__(self, path: Path) -> None:
        self._store = SqliteStore(path, _SCHEMA, sync_commits=True)

    def __len__(self) -> int:
        with self._store.transaction() as db:
            return int(db.execute("select count(*) from waiting").fetchone()[0])

    def add(self, pump_message: PumpMessage, now: float, due: float) -> None:
        with self._store.transaction() as db:
            db.execute(
                "insert into waiting (born, due, attempts, letter) values (?, ?, 1, ?)",
                (now, due, message_to_json(pump_message)),
            )

    def due(self, now: float, limit: int, longest: float) -> list[RetryEntry]:
        """What is due in more than the longest delay was stored before the clock was set back."""
        with self._store.transaction() as db:
            rows = db.execute(
                "select id, letter, born, attempts from waiting"
                " where due <= ? or due > ? order by due limit ?",
                (now, now + longest, limit),
            ).fetchall()
        return [RetryEntry(row[0], message_from_json(row[1]), row[2], row[3]) for row in rows]

    def next_due(self) -> float | None:
        with self._store.transaction() as db:
            due: float | None = db.execute("select min(due) from waiting").fetchone()[0]
        return due

    def postpone(self, entry: RetryEntry, due: float) -> None:
        with self._store.transaction() as db:
            db.execute(
                "update waiting set due = ?, attempts = attempts + 1 where id = ?", (due, entry.id)
            )

    def remove(self, entry: RetryEntry) -> None:
        with self._store.transaction() as db:
            db.execute("delete from waiting where id = ?", (entry.id,))

    def close(self) -> None:
        self._store.close()


class PostHandler(Protocol):
    """What a component does with a post."""

    async def __call__(self, post: Post, pump_message: PumpMessage) -> PostOutcome: ...


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    concurrency: int = 1024  #: posts at a time; the handler limits how many of them move bytes
    attempts: int = 3  #: before a post goes to the retry store
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(first=0.2))
    #: Of the retry store; `total` is the age at which a post expires.
    backoff: RetryPolicy = field(default_factory=lambda: RetryPolicy(1.0, 600.0, 2 * 86400.0))
    max_retries: int = 0  #: of a post in the retry store; 0: until it expires
    rate: float = 0.0  #: posts per second; 0: unlimited
    count: int = 0  #: posts after which the consumer ends; 0: never


@dataclass(slots=True)
class ConsumerCounters:
    codes: Counter[int] = field(default_factory=Counter)  #: outcomes by report code
    rejected: Counter[str] = field(default_factory=Counter)  #: by reason
    received: int = 0
    postponed: int = 0
    last: float = 0.0  #: time of the last outcome
    lag: float = 0.0  #: seconds from the announcement to the outcome of the last post
    bytes: int = 0  #: of files that were fetched, sent or announced
    queued: int | None = None  #: messages that wait at the broker, where it can be asked


OutcomeCallback = Callable[[Post, PostOutcome, float], Awaitable[None]]
#: Called for a post that failed and will not be retried, or one that is about to be acknowledged.
AbandonCallback = Callable[[Post], Awaitable[None]]
RecordCallback = Callable[[Post, PostOutcome], Awaitable[None]]


class PostConsumer:
    def __init__(
        self,
        handler: PostHandler,
        *,
        retries: RetryStore | None,
        limits: ConsumerLimits | None = None,
        on_outcome: OutcomeCallback | None = None,
        dialect: V02Dialect | None = None,
        on_abandon: AbandonCallback | None = None,
        log_reject: bool = False,
        on_done: AbandonCallback | None = None,
        on_record: RecordCallback | None = None,
    ) -> None:
        """`on_done` is called before a post is acknowledged, whatever became of it; `on_record`
        with each outcome, also that of a rejection."""
        self._log_rejected = log.info if log_reject else log.debug
        self._handler = handler
        self._spans = message_spans()
        self._retries = retries
        self._limits = limits or ConsumerLimits()
        self._on_outcome = on_outcome
        self._dialect = dialect
        self._on_abandon = on_abandon
        self._on_done = on_done
        self._on_record = on_record
        self._file_order = FileOrder()
        self._pace = BandwidthLimit(self._limits.rate)
        self._capacity = asyncio.Semaphore(self._limits.concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        self._postponed = asyncio.Event()
        self._stop = asyncio.Event()
        self.counters = ConsumerCounters()

    async def run(self, subscription: PumpSubscription, stop: asyncio.Event) -> None:
        """Until `stop` is set or the broker refuses the subscription."""
        self._stop = stop
        loops = [asyncio.create_task(self._consume(subscription))]
        if self._retries is not None:
            loops.append(asyncio.create_task(self._retry_due(self._retries)))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([*loops, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*loops, stopped):
                task.cancel()
            results = await asyncio.gather(*loops, return_exceptions=True)
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception) and not isinstance(error, FabricClosed):
                raise error

    async def _consume(self, subscription: PumpSubscription) -> None:
        limits = self._limits
        while True:
            for delivery in await subscription.receive():
                if limits.count and self.counters.received >= limits.count:
                    return  # the rest stays at the broker
                if limits.rate:
                    await asyncio.sleep(self._pace.seconds(1))
                self.counters.received += 1
                post = self._read(delivery.pump_message)
                if post is None:
                    await delivery.ack()
                    continue
                await self._capacity.acquire()
                slot = self._file_order.acquire(ordering_keys(post))
                self._start(self._handle(post, delivery, slot))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._capacity.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("post not acknowledged, will be redelivered", error=repr(error))

    async def _handle(self, post: Post, delivery: PumpDelivery, slot: FileOrderSlot) -> None:
        async with slot:
            pump_message, failures = delivery.pump_message, 0
            outcome = await self._attempt(post, pump_message, self._limits.attempts)
            while outcome is None and self._retries is not None:
                failures += 1
                if await self._postpone(self._retries, pump_message, failures):
                    break
                outcome = await self._attempt(post, pump_message, 1)
            if self._on_done is not None:
                await self._on_done(post)
            await delivery.ack()

    async def _postpone(
        self, retries: RetryStore, pump_message: PumpMessage, failures: int
    ) -> bool:
        """Store the post for later. A disk that is full may have no room for that: then wait, and
        let the caller try the post again; meanwhile the broker has it."""
        now = time.time()
        try:
            due = now + self._limits.backoff.delay(1)
            await asyncio.to_thread(retries.add, pump_message, now, due)
        except (OSError, sqlite3.Error) as error:
            log.warning("retry store failed", reason=str(error), failures=failures)
            if await self._stops_within(self._limits.backoff.delay(failures)):
                raise
            return False
        self.counters.postponed += 1
        self._postponed.set()
        return True

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(min(seconds, RETRY_POLL_SECONDS)):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    async def _attempt(
        self, post: Post, pump_message: PumpMessage, attempts: int
    ) -> PostOutcome | None:
        """The outcome; None where the post belongs in the retry store."""
        if self._spans is None:
            return await self._try(post, pump_message, attempts)
        source = f"posts:{pump_message.topic}"
        attributes = {"penstock.file.path": post.relpath}
        with self._spans.processing(source, pump_message.headers, attributes=attributes) as span:
            outcome = await self._try(post, pump_message, attempts)
            if outcome is None:
                span.set_attribute("penstock.postponed", True)
            else:
                span.set_attribute("penstock.outcome.code", outcome.code)
                span.set_attribute("penstock.outcome.message", outcome.message)
            return outcome

    async def _try(
        self, post: Post, pump_message: PumpMessage, attempts: int
    ) -> PostOutcome | None:
        started = time.monotonic()
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(self._limits.retry.delay(attempt))
                pump_message = replace(pump_message, redelivered=True)
            try:
                outcome = await self._handler(post, pump_message)
            except PumpError as error:
                outcome = PostOutcome(error.code, str(error))
                if error.transient:
                    log.info(
                        "attempt failed, retrying",
                        path=post.relpath,
                        reason=str(error),
                        attempt=attempt + 1,
                    )
                    continue
                await self._refuse(post, outcome)
            except Exception as error:
                if (reason := unusable_name(error)) is None:
                    # A full disk, a broker that refuses, a bug in a plugin: not the file's fault.
                    reason = repr(error)
                    log.warning(
                        "post failed", path=post.relpath, reason=reason, attempt=attempt + 1
                    )
                    outcome = PostOutcome(NOT_COPIED, reason)
                    continue
                outcome = PostOutcome(BadPost.code, reason)
                await self._refuse(post, outcome)
            await self._record(post, outcome, started)
            return outcome
        await self._record(post, outcome, started)
        if self._retries is not None:
            return None
        await self._abandon(post)
        return outcome

    async def _refuse(self, post: Post, outcome: PostOutcome) -> None:
        log.warning("post refused", path=post.relpath, code=outcome.code, reason=outcome.message)
        await self._abandon(post)

    async def _abandon(self, post: Post) -> None:
        if self._on_abandon is not None:
            await self._on_abandon(post)

    async def _record(self, post: Post, outcome: PostOutcome, started: float) -> None:
        counters = self.counters
        counters.last = time.time()
        counters.lag = counters.last - post.moment / 1e9
        if self._on_record is not None:
            await self._on_record(post, outcome)
        if outcome.code == REJECTED:
            counters.rejected[outcome.message] += 1
            self._log_rejected("post rejected", path=post.relpath, reason=outcome.message)
            return
        counters.codes[outcome.code] += 1
        if outcome.post is not None and outcome.post.parts is not None:
            counters.bytes += outcome.post.parts.length
        log.info("post done", path=post.relpath, code=outcome.code, result=outcome.message)
        if self._on_outcome is not None:
            await self._on_outcome(post, outcome, time.monotonic() - started)

    async def _retry_due(self, retries: RetryStore) -> None:
        failures = 0
        while True:
            try:
                await self._retry_batch(retries)
                failures = 0
            except (OSError, sqlite3.Error) as error:
                failures += 1
                log.warning("retry store failed", reason=str(error), failures=failures)
                await self._stops_within(self._limits.backoff.delay(failures))

    async def _retry_batch(self, retries: RetryStore) -> None:
        """Retry what is due, or wait; raises the errors of the store."""
        tasks = []
        longest = self._limits.backoff.longest
        for entry in await asyncio.to_thread(retries.due, time.time(), RETRY_BATCH, longest):
            post = self._read(entry.pump_message)
            if post is None:
                await asyncio.to_thread(retries.remove, entry)
                continue
            await self._capacity.acquire()
            slot = self._file_order.acquire(ordering_keys(post))
            tasks.append(self._start(self._retry(retries, entry, post, slot)))
        if tasks:
            await asyncio.wait(tasks)
            for task in tasks:
                error = None if task.cancelled() else task.exception()
                if isinstance(error, OSError | sqlite3.Error):
                    raise error
        else:
            await self._wait_for_due(retries)

    async def _wait_for_due(self, retries: RetryStore) -> None:
        self._postponed.clear()
        due = await asyncio.to_thread(retries.next_due)
        seconds = RETRY_POLL_SECONDS if due is None else min(RETRY_POLL_SECONDS, due - time.time())
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._postponed.wait()
        except TimeoutError:
            return

    async def _retry(
        self, retries: RetryStore, entry: RetryEntry, post: Post, slot: FileOrderSlot
    ) -> None:
        async with slot:
            outcome = await self._attempt(post, entry.pump_message, 1)
            backoff, now = self._limits.backoff, time.time()
            if outcome is None and not self._is_expired(entry, now):
                due = now + backoff.delay(entry.attempts + 1)
                await asyncio.to_thread(retries.postpone, entry, due)
                return
            if outcome is None:
                log.warning("retry expired", path=post.relpath, hours=backoff.total / 3600)
                await self._abandon(post)
            await asyncio.to_thread(retries.remove, entry)

    def _is_expired(self, entry: RetryEntry, now: float) -> bool:
        backoff, most = self._limits.backoff, self._limits.max_retries
        if most and entry.attempts >= most:
            return True
        if now - entry.created < backoff.total:
            return False
        waited = sum(backoff.delay(number + 1) for number in range(min(entry.attempts, 100)))
        return waited >= min(DOUBTED_SECONDS, backoff.total / 2)

    def _read(self, pump_message: PumpMessage) -> Post | None:
        try:
            return read_post(pump_message.body, pump_message.headers, self._dialect)
        except BadPost as error:
            self.counters.codes[error.code] += 1
            log.warning("invalid post", topic=pump_message.topic, reason=str(error))
            return None


def ordering_keys(post: Post) -> list[str]:
    """The files that a post is about. Blocks of one file have keys of their own."""
    path = post.relpath.lstrip("/")
    if post.parts is not None and not post.parts.single:
        return [f"{path} {post.parts.number}"]
    return [path, *(each.lstrip("/") for each in (post.oldname, post.newname) if each)]
