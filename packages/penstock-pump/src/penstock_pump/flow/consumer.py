"""The loop of every component that hears posts: bounded, in order where it matters, at least once.

A letter is read, worked on, reported and then acknowledged. What fails in passing is tried a few
times at once and then written down to be tried again later; what cannot succeed is reported and
done with. When it is told to stop, what is in hand is finished and nothing new is begun.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol, Self

from penstock.client import FabricClosed
from penstock.core.logs import get_logger
from penstock_pump.errors import BadPost, PumpError, unusable_name
from penstock_pump.flow.message import PumpMessage, message_from_json, message_to_json
from penstock_pump.flow.subscription import PumpDelivery, PumpSubscription
from penstock_pump.posts.formats import read_post
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import NOT_COPIED, REJECTED, PostOutcome
from penstock_pump.posts.v02 import V02Dialect

# Order where it matters: what is about the same file happens one after the other.
#
# Many files are worked on at a time, but a removal must not overtake the file it removes. Whoever
# enters waits for all who entered with one of the same names before, in the order they came.


class FileOrder:
    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    def enter(self, names: Iterable[str]) -> FileOrderSlot:
        """To be called in the order that is to be kept; then wait by `async with`."""
        names = tuple(dict.fromkeys(names))
        before = [self._last[name] for name in names if name in self._last]
        done = asyncio.get_running_loop().create_future()
        for name in names:
            self._last[name] = done
        return FileOrderSlot(self, names, before, done)

    def leave(self, names: Iterable[str], done: asyncio.Future[None]) -> None:
        for name in names:
            if self._last.get(name) is done:
                del self._last[name]
        if not done.done():
            done.set_result(None)


class FileOrderSlot:
    __slots__ = ("_before", "_done", "_file_order", "_names")

    def __init__(
        self,
        file_order: FileOrder,
        names: tuple[str, ...],
        before: list[asyncio.Future[None]],
        done: asyncio.Future[None],
    ) -> None:
        self._file_order = file_order
        self._names = names
        self._before = before
        self._done = done

    async def __aenter__(self) -> Self:
        try:
            for each in self._before:
                await asyncio.shield(each)
        except BaseException:
            self._file_order.leave(self._names, self._done)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._file_order.leave(self._names, self._done)


# What could not be done yet, kept on disk until it can.
#
# A letter that failed is written here before it is acknowledged, and tried again with longer and
# longer pauses until it is done or too old. Restarts change nothing about it.

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


@dataclass(frozen=True, slots=True)
class RetryEntry:
    id: int
    pump_message: PumpMessage
    born: float
    attempts: int


@dataclass(frozen=True, slots=True)
class PumpRetryPolicy:
    """Pauses that double, from the first to the longest; and an age at which it is given up."""

    first: float = 1.0
    longest: float = 600.0
    lifetime: float = 2 * 86400.0

    def pause(self, attempts: int) -> float:
        return min(self.longest, self.first * 2.0 ** min(attempts, 32))


class RetryStore:
    """Blocking, and safe to call from any thread."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.executescript(_SCHEMA)

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("select count(*) from waiting").fetchone()[0])

    def add(self, pump_message: PumpMessage, now: float, due: float) -> None:
        with self._lock:
            self._db.execute(
                "insert into waiting (born, due, attempts, letter) values (?, ?, 1, ?)",
                (now, due, message_to_json(pump_message)),
            )

    def due(self, now: float, limit: int) -> list[RetryEntry]:
        with self._lock:
            rows = self._db.execute(
                "select id, letter, born, attempts from waiting"
                " where due <= ? order by due limit ?",
                (now, limit),
            ).fetchall()
        return [RetryEntry(row[0], message_from_json(row[1]), row[2], row[3]) for row in rows]

    def next_due(self) -> float | None:
        with self._lock:
            found = self._db.execute("select min(due) from waiting").fetchone()[0]
        return None if found is None else float(found)

    def postpone(self, waiting: RetryEntry, due: float) -> None:
        with self._lock:
            self._db.execute(
                "update waiting set due = ?, attempts = attempts + 1 where id = ?",
                (due, waiting.id),
            )

    def done(self, waiting: RetryEntry) -> None:
        with self._lock:
            self._db.execute("delete from waiting where id = ?", (waiting.id,))

    def close(self) -> None:
        with self._lock:
            self._db.close()


log = get_logger(__name__)

#: How many letters from the disk are looked at together.
RETRY_BATCH: Final = 100
#: How long a quiet disk is left alone.
RETRY_POLL_SECONDS: Final = 30.0


class PostHandler(Protocol):
    """What a component does with a post."""

    async def __call__(self, post: Post, pump_message: PumpMessage) -> PostOutcome: ...


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    in_hand: int = 1024  #: posts at a time; how many of them move bytes is for their work to say
    attempts: int = 3
    pause: float = 0.2  #: between the attempts made at once; it doubles
    backoff: PumpRetryPolicy = field(default_factory=PumpRetryPolicy)


@dataclass(slots=True)
class ConsumerCounters:
    """What has happened so far: counts by code, and when something last did."""

    codes: Counter[int] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)  #: by reason
    heard: int = 0
    postponed: int = 0
    last: float = 0.0
    lag: float = 0.0  #: seconds from the announcement to the outcome, the last time
    bytes: int = 0  #: of files that were fetched, sent or announced
    queued: int | None = None  #: messages that wait at the broker, where it tells


OutcomeCallback = Callable[[Post, PostOutcome, float], Awaitable[None]]
#: Called for a post that failed and will not be tried again.
AbandonCallback = Callable[[Post], Awaitable[None]]


class PostConsumer:
    def __init__(
        self,
        work: PostHandler,
        *,
        retries: RetryStore | None,
        limits: ConsumerLimits | None = None,
        tell: OutcomeCallback | None = None,
        dialect: V02Dialect | None = None,
        abandon: AbandonCallback | None = None,
    ) -> None:
        self._work = work
        self._retries = retries
        self._limits = limits or ConsumerLimits()
        self._tell = tell
        self._dialect = dialect
        self._abandon = abandon
        self._file_order = FileOrder()
        self._room = asyncio.Semaphore(self._limits.in_hand)
        self._under_way: set[asyncio.Task[None]] = set()
        self._postponed = asyncio.Event()
        self.counters = ConsumerCounters()

    async def run(self, subscription: PumpSubscription, stop: asyncio.Event) -> None:
        """Until told to stop, or until the broker will not have us."""
        loops = [asyncio.create_task(self._hear(subscription))]
        if self._retries is not None:
            loops.append(asyncio.create_task(self._try_again(self._retries)))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([*loops, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*loops, stopped):
                task.cancel()
            ended = await asyncio.gather(*loops, return_exceptions=True)
            await self._finish()
        for error in ended:
            if isinstance(error, Exception) and not isinstance(error, FabricClosed):
                raise error

    async def _finish(self) -> None:
        if self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _hear(self, subscription: PumpSubscription) -> None:
        while True:
            for heard in await subscription.receive():
                self.counters.heard += 1
                post = self._read(heard.pump_message)
                if post is None:
                    await heard.ack()
                    continue
                await self._room.acquire()
                self._begin(self._deliver(post, heard, self._file_order.enter(ordering_keys(post))))

    def _begin(self, doing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(doing)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a post was left as it is, it will come again", error=repr(error))

    async def _deliver(self, post: Post, heard: PumpDelivery, turn: FileOrderSlot) -> None:
        async with turn:
            outcome = await self._attempt(post, heard.pump_message, self._limits.attempts)
            if outcome is None and self._retries is not None:
                now = time.time()
                due = now + self._limits.backoff.pause(0)
                await asyncio.to_thread(self._retries.add, heard.pump_message, now, due)
                self.counters.postponed += 1
                self._postponed.set()
            await heard.ack()

    async def _attempt(
        self, post: Post, pump_message: PumpMessage, attempts: int
    ) -> PostOutcome | None:
        """What became of it, told; None where it is worth another day."""
        began = time.monotonic()
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(self._limits.pause * 2 ** (attempt - 1))
                pump_message = replace(pump_message, again=True)
            try:
                outcome = await self._work(post, pump_message)
            except PumpError as error:
                outcome = PostOutcome(error.code, str(error))
                if error.passing:
                    log.info("not yet", path=post.relpath, reason=str(error), attempt=attempt + 1)
                    continue
                await self._refused(post, outcome)
            except Exception as error:
                if (why := unusable_name(error)) is not None:
                    outcome = PostOutcome(BadPost.code, why)
                    await self._refused(post, outcome)
                else:
                    # A full disk, a broker that refuses, a plugin's mistake: not the file's fault.
                    reason = repr(error)
                    log.warning("failed", path=post.relpath, reason=reason, attempt=attempt + 1)
                    outcome = PostOutcome(NOT_COPIED, reason)
                    continue
            await self._told(post, outcome, began)
            return outcome
        await self._told(post, outcome, began)
        if self._retries is not None:
            return None
        await self._give_up(post)
        return outcome

    async def _refused(self, post: Post, outcome: PostOutcome) -> None:
        log.warning("refused", path=post.relpath, code=outcome.code, reason=outcome.message)
        await self._give_up(post)

    async def _give_up(self, post: Post) -> None:
        if self._abandon is not None:
            await self._abandon(post)

    async def _told(self, post: Post, outcome: PostOutcome, began: float) -> None:
        self.counters.last = time.time()
        self.counters.lag = self.counters.last - post.moment / 1e9
        if outcome.code == REJECTED:
            self.counters.rejected[outcome.message] += 1
            log.debug("rejected", path=post.relpath, why=outcome.message)
            return
        self.counters.codes[outcome.code] += 1
        if outcome.post is not None and outcome.post.parts is not None:
            self.counters.bytes += outcome.post.parts.length
        log.info("done", path=post.relpath, code=outcome.code, what=outcome.message)
        if self._tell is not None:
            await self._tell(post, outcome, time.monotonic() - began)

    async def _try_again(self, retries: RetryStore) -> None:
        while True:
            due = await asyncio.to_thread(retries.due, time.time(), RETRY_BATCH)
            batch = []
            for waiting in due:
                post = self._read(waiting.pump_message)
                if post is None:
                    await asyncio.to_thread(retries.done, waiting)
                    continue
                await self._room.acquire()
                turn = self._file_order.enter(ordering_keys(post))
                self._begin(
                    doing := asyncio.ensure_future(self._retry(retries, waiting, post, turn))
                )
                batch.append(doing)
            if batch:
                await asyncio.wait(batch)
                continue
            await self._wait_for_due(retries)

    async def _wait_for_due(self, retries: RetryStore) -> None:
        self._postponed.clear()
        at = await asyncio.to_thread(retries.next_due)
        seconds = RETRY_POLL_SECONDS if at is None else min(RETRY_POLL_SECONDS, at - time.time())
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._postponed.wait()
        except TimeoutError:
            return

    async def _retry(
        self, retries: RetryStore, waiting: RetryEntry, post: Post, turn: FileOrderSlot
    ) -> None:
        async with turn:
            outcome = await self._attempt(post, waiting.pump_message, 1)
            backoff, now = self._limits.backoff, time.time()
            if outcome is None and now - waiting.born < backoff.lifetime:
                due = now + backoff.pause(waiting.attempts)
                await asyncio.to_thread(retries.postpone, waiting, due)
                return
            if outcome is None:
                log.warning("given up", path=post.relpath, hours=backoff.lifetime / 3600)
                await self._give_up(post)
            await asyncio.to_thread(retries.done, waiting)

    def _read(self, pump_message: PumpMessage) -> Post | None:
        try:
            return read_post(pump_message.body, pump_message.headers, self._dialect)
        except BadPost as error:
            self.counters.codes[error.code] += 1
            log.warning("not a post", topic=pump_message.topic, reason=str(error))
            return None


def ordering_keys(post: Post) -> list[str]:
    """The files a post is about: what is about the same one keeps its order. Blocks of a file may
    come at the same time."""
    path = post.relpath.lstrip("/")
    if post.parts is not None and not post.parts.single:
        return [f"{path} {post.parts.number}"]
    return [path, *(each.lstrip("/") for each in (post.oldname, post.newname) if each)]
