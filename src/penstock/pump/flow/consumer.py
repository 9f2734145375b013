"""The loop of every component that hears posts: bounded, in order where it matters, at least once.

A letter is read, worked on, reported and then acknowledged. What fails in passing is tried a few
times at once and then written down to be tried again later; what cannot succeed is reported and
done with. When it is told to stop, what is in hand is finished and nothing new is begun.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from penstock.client import FabricClosed
from penstock.core.logs import get_logger
from penstock.pump.errors import BadPost, PumpError, unusable_name
from penstock.pump.flow.hearing import Heard, Hearing
from penstock.pump.flow.lanes import Lanes, Turn
from penstock.pump.flow.letter import Letter
from penstock.pump.flow.retries import Backoff, Retries, Waiting
from penstock.pump.outcome import REJECTED, Outcome
from penstock.pump.posts.post import Post
from penstock.pump.posts.reading import read_post
from penstock.pump.posts.reports import NOT_COPIED
from penstock.pump.posts.v02 import Dialect

log = get_logger(__name__)

#: How many letters from the disk are looked at together.
RETRIED: Final = 100
#: How long a quiet disk is left alone.
RETRY_LOOK_SECONDS: Final = 30.0


class Work(Protocol):
    """What a component does with a post."""

    async def __call__(self, post: Post, letter: Letter) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Limits:
    in_hand: int = 1024  #: posts at a time; how many of them move bytes is for their work to say
    attempts: int = 3
    pause: float = 0.2  #: between the attempts made at once; it doubles
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(slots=True)
class Tally:
    """What has happened so far: counts by code, and when something last did."""

    codes: Counter[int] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)  #: by reason
    heard: int = 0
    postponed: int = 0
    last: float = 0.0
    lag: float = 0.0  #: seconds from the announcement to the outcome, the last time
    bytes: int = 0  #: of files that were fetched, sent or announced
    queued: int | None = None  #: messages that wait at the broker, where it tells


Told = Callable[[Post, Outcome, float], Awaitable[None]]
#: Called for a post that failed and will not be tried again.
Abandon = Callable[[Post], Awaitable[None]]


class Consumer:
    def __init__(
        self,
        work: Work,
        *,
        retries: Retries | None,
        limits: Limits | None = None,
        tell: Told | None = None,
        dialect: Dialect | None = None,
        abandon: Abandon | None = None,
    ) -> None:
        self._work = work
        self._retries = retries
        self._limits = limits or Limits()
        self._tell = tell
        self._dialect = dialect
        self._abandon = abandon
        self._lanes = Lanes()
        self._room = asyncio.Semaphore(self._limits.in_hand)
        self._under_way: set[asyncio.Task[None]] = set()
        self._postponed = asyncio.Event()
        self.tally = Tally()

    async def run(self, hearing: Hearing, stop: asyncio.Event) -> None:
        """Until told to stop, or until the broker will not have us."""
        loops = [asyncio.create_task(self._hear(hearing))]
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

    async def _hear(self, hearing: Hearing) -> None:
        while True:
            for heard in await hearing.receive():
                self.tally.heard += 1
                post = self._read(heard.letter)
                if post is None:
                    await heard.ack()
                    continue
                await self._room.acquire()
                self._begin(self._deliver(post, heard, self._lanes.enter(names(post))))

    def _begin(self, doing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(doing)
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a post was left as it is, it will come again", error=repr(error))

    async def _deliver(self, post: Post, heard: Heard, turn: Turn) -> None:
        async with turn:
            outcome = await self._attempt(post, heard.letter, self._limits.attempts)
            if outcome is None and self._retries is not None:
                now = time.time()
                due = now + self._limits.backoff.pause(0)
                await asyncio.to_thread(self._retries.add, heard.letter, now, due)
                self.tally.postponed += 1
                self._postponed.set()
            await heard.ack()

    async def _attempt(self, post: Post, letter: Letter, attempts: int) -> Outcome | None:
        """What became of it, told; None where it is worth another day."""
        began = time.monotonic()
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(self._limits.pause * 2 ** (attempt - 1))
                letter = replace(letter, again=True)
            try:
                outcome = await self._work(post, letter)
            except PumpError as error:
                outcome = Outcome(error.code, str(error))
                if error.passing:
                    log.info("not yet", path=post.relpath, reason=str(error), attempt=attempt + 1)
                    continue
                await self._refused(post, outcome)
            except Exception as error:
                if (why := unusable_name(error)) is not None:
                    outcome = Outcome(BadPost.code, why)
                    await self._refused(post, outcome)
                else:
                    # A full disk, a broker that refuses, a plugin's mistake: not the file's fault.
                    reason = repr(error)
                    log.warning("failed", path=post.relpath, reason=reason, attempt=attempt + 1)
                    outcome = Outcome(NOT_COPIED, reason)
                    continue
            await self._told(post, outcome, began)
            return outcome
        await self._told(post, outcome, began)
        if self._retries is not None:
            return None
        await self._give_up(post)
        return outcome

    async def _refused(self, post: Post, outcome: Outcome) -> None:
        log.warning("refused", path=post.relpath, code=outcome.code, reason=outcome.message)
        await self._give_up(post)

    async def _give_up(self, post: Post) -> None:
        if self._abandon is not None:
            await self._abandon(post)

    async def _told(self, post: Post, outcome: Outcome, began: float) -> None:
        self.tally.last = time.time()
        self.tally.lag = self.tally.last - post.moment / 1e9
        if outcome.code == REJECTED:
            self.tally.rejected[outcome.message] += 1
            log.debug("rejected", path=post.relpath, why=outcome.message)
            return
        self.tally.codes[outcome.code] += 1
        if outcome.post is not None and outcome.post.parts is not None:
            self.tally.bytes += outcome.post.parts.length
        log.info("done", path=post.relpath, code=outcome.code, what=outcome.message)
        if self._tell is not None:
            await self._tell(post, outcome, time.monotonic() - began)

    async def _try_again(self, retries: Retries) -> None:
        while True:
            due = await asyncio.to_thread(retries.due, time.time(), RETRIED)
            batch = []
            for waiting in due:
                post = self._read(waiting.letter)
                if post is None:
                    await asyncio.to_thread(retries.done, waiting)
                    continue
                await self._room.acquire()
                turn = self._lanes.enter(names(post))
                self._begin(
                    doing := asyncio.ensure_future(self._retry(retries, waiting, post, turn))
                )
                batch.append(doing)
            if batch:
                await asyncio.wait(batch)
                continue
            await self._wait_for_due(retries)

    async def _wait_for_due(self, retries: Retries) -> None:
        self._postponed.clear()
        at = await asyncio.to_thread(retries.next_due)
        seconds = RETRY_LOOK_SECONDS if at is None else min(RETRY_LOOK_SECONDS, at - time.time())
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._postponed.wait()
        except TimeoutError:
            return

    async def _retry(self, retries: Retries, waiting: Waiting, post: Post, turn: Turn) -> None:
        async with turn:
            outcome = await self._attempt(post, waiting.letter, 1)
            backoff, now = self._limits.backoff, time.time()
            if outcome is None and now - waiting.born < backoff.lifetime:
                due = now + backoff.pause(waiting.attempts)
                await asyncio.to_thread(retries.postpone, waiting, due)
                return
            if outcome is None:
                log.warning("given up", path=post.relpath, hours=backoff.lifetime / 3600)
                await self._give_up(post)
            await asyncio.to_thread(retries.done, waiting)

    def _read(self, letter: Letter) -> Post | None:
        try:
            return read_post(letter.body, letter.headers, self._dialect)
        except BadPost as error:
            self.tally.codes[error.code] += 1
            log.warning("not a post", topic=letter.topic, reason=str(error))
            return None


def names(post: Post) -> list[str]:
    """The files a post is about: what is about the same one keeps its order. Blocks of a file may
    come at the same time."""
    path = post.relpath.lstrip("/")
    if post.parts is not None and not post.parts.single:
        return [f"{path} {post.parts.number}"]
    return [path, *(each.lstrip("/") for each in (post.oldname, post.newname) if each)]
