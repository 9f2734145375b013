"""Announcing many files: described a batch at a time in a thread, announced as the broker goes.

What could not be described is tried again at the end, and named if it still cannot. Memory is
bounded by the batch and by the client's window, however large the tree is.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.core.logs import get_logger
from penstock_pump.duplicates import DuplicateFilter
from penstock_pump.errors import BadPost, PumpError
from penstock_pump.flow.consumer import ConsumerCounters
from penstock_pump.flow.publisher import BulkPostPublisher, PostPublisher
from penstock_pump.plugins import Plugins
from penstock_pump.poster.description import FileDescriber
from penstock_pump.posts.post import FileEvent, Post
from penstock_pump.posts.reports import DONE
from penstock_pump.selection import PostSelection
from penstock_pump.thread_pool import run_to_completion

log = get_logger(__name__)

BATCH: Final = 128
#: So many files are announced in one go in a thread, where nobody waits for each.
MAX_CONCURRENT_POSTS: Final = 1024
#: Files that change while they are read are left alone for a moment, so many times.
BULK_TIMEOUT_SECONDS: Final = (0.1, 0.5, 2.0)


@dataclass(slots=True)
class PostCounts:
    """What came of it."""

    announced: int = 0
    rejected: int = 0
    failed: dict[str, str] = field(default_factory=dict)  #: the reason, by path


class FilePoster:
    def __init__(
        self,
        description: FileDescriber,
        post_publisher: PostPublisher,
        *,
        selection: PostSelection | None = None,
        events: frozenset[FileEvent] = frozenset(FileEvent),
        duplicate_filter: DuplicateFilter | None = None,
        plugins: Plugins | None = None,
        bulk: BulkPostPublisher | None = None,
        counters: ConsumerCounters | None = None,
    ) -> None:
        """With a bulk, whole trees go over that, and suppression does not apply."""
        self.description = description
        self._post_publisher = post_publisher
        self._selection = selection or PostSelection()
        self._events = events
        self._duplicate_filter = duplicate_filter
        self._plugins = plugins or Plugins()
        self._bulk = bulk
        self._counters = counters or ConsumerCounters()
        self.posted = PostCounts()
        self._under_way: deque[Awaitable[None]] = deque()

    async def announce_all(self, paths: Iterable[Path]) -> PostCounts:
        """Returns when all of it is safe with the broker."""
        again = await self._announce_batches(iter(paths))
        for pause in BULK_TIMEOUT_SECONDS:
            if not again:
                break
            await asyncio.sleep(pause)
            again = await self._announce_batches(iter(again))
        for path in again:
            log.warning("not announced", path=str(path), reason=again[path])
            self.posted.failed[str(path)] = again[path]
        return self.posted

    async def _announce_batches(self, paths: Iterator[Path]) -> dict[Path, str]:
        """Those that could not be described, and why."""
        failed: dict[Path, str] = {}
        if self._bulk is not None:
            while await run_to_completion(self._announce_bulk, self._bulk, paths, failed):
                continue
            return failed
        while batch := await asyncio.to_thread(self._described, paths, failed):
            for post in itertools.chain.from_iterable(batch):
                await self.announce(post)
        await self.flush()
        return failed

    def _described(self, paths: Iterator[Path], failed: dict[Path, str]) -> list[list[Post]]:
        batch = []
        for path in itertools.islice(paths, BATCH):
            try:
                batch.append(self.description.of(path))
            except PumpError as error:
                failed[path] = str(error)
                batch.append([])
        return batch

    def _announce_bulk(
        self, bulk: BulkPostPublisher, paths: Iterator[Path], failed: dict[Path, str]
    ) -> bool:
        """Some files, described and sent; whether there were any. Blocking."""
        some = False
        for path in itertools.islice(paths, MAX_CONCURRENT_POSTS):
            some = True
            try:
                posts = self.description.of(path)
            except PumpError as error:
                failed[path] = str(error)
                continue
            for post in posts:
                if (told := self._chosen(post)) is None:
                    continue
                try:
                    message = self._post_publisher.addressed(told)
                except BadPost as error:
                    self._refused(told, error)
                    continue
                bulk.send(message)
                self._count(told)
        if not some:
            bulk.flush()
        return some

    async def announce(self, post: Post) -> bool:
        """Whether it was announced; `flush` tells when it is safe."""
        told = self._chosen(post)
        if told is None:
            return False
        try:
            return await self._tell(told)
        except BadPost as error:  # a link too long for v02, for one
            self._refused(told, error)
            return False

    def _chosen(self, post: Post) -> Post | None:
        """The post as it is to be announced, if it is."""
        chosen = self._selection.choose(post.url)
        why = chosen if isinstance(chosen, str) else "a plugin"
        told: Post | None = None
        if post.event not in self._events:
            why = f"event {post.event.value}"
        elif not isinstance(chosen, str):
            told = self._plugins.message(post)
            told = None if told is None else self._plugins.post(told)
        if told is None:
            self.posted.rejected += 1
            self._counters.rejected[why] += 1
        return told

    def _count(self, told: Post) -> None:
        self.posted.announced += 1
        counters = self._counters
        counters.heard += 1
        counters.codes[DONE] += 1
        counters.bytes += told.parts.length if told.parts is not None else 0
        counters.last = time.time()

    def _refused(self, told: Post, error: BadPost) -> None:
        log.warning("not announced", path=told.relpath, reason=str(error))
        self.posted.failed[told.relpath] = str(error)

    async def _tell(self, told: Post) -> bool:
        if self._duplicate_filter is not None:
            async with self._duplicate_filter.first(told) as first:
                if first:
                    await self._post_publisher.announce(told)
                    self._count(told)
                return first
        self._under_way.append(asyncio.create_task(self._post_publisher.announce(told)))
        self._count(told)
        while len(self._under_way) > 10 * BATCH:
            await self._under_way.popleft()
        return True

    async def flush(self) -> None:
        while self._under_way:
            await self._under_way.popleft()
