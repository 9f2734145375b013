"""Announces many files: described in batches in a thread, published as fast as the broker confirms.

Files that could not be described are retried at the end, and reported if they still fail. Memory is
bounded by the batch and by the number of unconfirmed posts, however large the tree is.
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
from penstock.core.retry import RetryPolicy
from penstock_pump.duplicates import DuplicateFilter
from penstock_pump.errors import BadPost, PumpError
from penstock_pump.flow.consumer import ConsumerCounters
from penstock_pump.flow.publisher import BulkPostPublisher, PostPublisher
from penstock_pump.plugins import Plugins
from penstock_pump.post_filter import PostFilter
from penstock_pump.poster.description import FileDescriber
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import DONE
from penstock_pump.selection import PostSelection
from penstock_pump.thread_pool import run_to_completion
from penstock_pump.transfer import BandwidthLimit

log = get_logger(__name__)

BATCH: Final = 128
#: Files per call of the bulk publisher's thread.
BULK_BATCH: Final = 1024
#: For files that change while they are read.
RETRY: Final = RetryPolicy(first=0.25, longest=2.0, jitter=0.0, attempts=4)


@dataclass(slots=True)
class PostCounts:
    announced: int = 0
    rejected: int = 0
    failed: dict[str, str] = field(default_factory=dict)  #: the reason, by path


class FilePoster:
    def __init__(
        self,
        describer: FileDescriber,
        post_publisher: PostPublisher,
        *,
        selection: PostSelection | None = None,
        post_filter: PostFilter | None = None,
        duplicate_filter: DuplicateFilter | None = None,
        plugins: Plugins | None = None,
        bulk: BulkPostPublisher | None = None,
        counters: ConsumerCounters | None = None,
        rate: float = 0.0,
        dry_run: bool = False,
    ) -> None:
        """With `bulk`, trees are published through it, and duplicates are not suppressed. `rate`
        is a limit of posts per second."""
        self.describer = describer
        self._post_publisher = post_publisher
        self._selection = selection or PostSelection()
        self._post_filter = post_filter or PostFilter()
        self._pace = BandwidthLimit(rate)
        self._duplicate_filter = duplicate_filter
        self._plugins = plugins or Plugins()
        self._bulk = bulk
        self._dry_run = dry_run
        self._counters = counters or ConsumerCounters()
        self.posted = PostCounts()
        self._unconfirmed: deque[Awaitable[None]] = deque()

    async def announce_all(self, paths: Iterable[Path]) -> PostCounts:
        """Returns when the broker has confirmed all posts."""
        failed = await self._announce_batches(iter(paths))
        attempt = 1
        while failed and attempt < (RETRY.attempts or 1):
            await asyncio.sleep(RETRY.delay(attempt))
            failed = await self._announce_batches(iter(failed))
            attempt += 1
        for path, reason in failed.items():
            log.warning("file not posted", path=str(path), reason=reason)
            self.posted.failed[str(path)] = reason
        return self.posted

    async def _announce_batches(self, paths: Iterator[Path]) -> dict[Path, str]:
        """The files that could not be described, with reasons."""
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
                batch.append(self.describer.describe(path))
            except PumpError as error:
                failed[path] = str(error)
                batch.append([])
        return batch

    def _announce_bulk(
        self, bulk: BulkPostPublisher, paths: Iterator[Path], failed: dict[Path, str]
    ) -> bool:
        """Describes and sends a batch; False at the end of the paths. Blocking."""
        more = False
        for path in itertools.islice(paths, BULK_BATCH):
            more = True
            try:
                posts = self.describer.describe(path)
            except PumpError as error:
                failed[path] = str(error)
                continue
            for selected in itertools.chain.from_iterable(map(self._select, posts)):
                try:
                    message = self._post_publisher.encode(selected)
                except BadPost as error:
                    self._refuse(selected, error)
                    continue
                if (pause := self._pace.pace) is not None:
                    pause(1)
                bulk.send(message)
                self._count(selected)
        if not more:
            bulk.flush()
        return more

    async def announce(self, post: Post) -> bool:
        """Whether it was published; `flush` waits for the confirmations."""
        published = False
        for selected in self._select(post):
            try:
                await self._pace.wait_for(1)
                published |= await self._publish(selected)
            except BadPost as error:  # for example a link too long for v02
                self._refuse(selected, error)
        return published

    def _select(self, post: Post) -> list[Post]:
        """The post as the plugins return it; none if it is rejected."""
        return list(itertools.chain.from_iterable(map(self._selected, self._plugins.read(post))))

    def _selected(self, post: Post) -> list[Post]:
        match = self._selection.choose(post.url)
        reason = match if isinstance(match, str) else "a plugin"
        selected: list[Post] = []
        if (rejection := self._post_filter.rejection(post)) is not None:
            reason = rejection
        elif self._dry_run:
            log.info("dry run", path=post.relpath, kind=post.event.value)
            reason = "dry run"
        elif not isinstance(match, str):
            announced = map(self._plugins.post, self._plugins.message(post))
            selected = [each for each in announced if each is not None]
        if not selected:
            self.posted.rejected += 1
            self._counters.rejected[reason] += 1
        return selected

    def _count(self, post: Post) -> None:
        self.posted.announced += 1
        counters = self._counters
        counters.received += 1
        counters.codes[DONE] += 1
        counters.bytes += post.parts.length if post.parts is not None else 0
        counters.last = time.time()

    def _refuse(self, post: Post, error: BadPost) -> None:
        log.warning("file not posted", path=post.relpath, reason=str(error))
        self.posted.failed[post.relpath] = str(error)

    async def _publish(self, post: Post) -> bool:
        if self._duplicate_filter is not None:
            async with self._duplicate_filter.first(post) as first:
                if first:
                    await self._post_publisher.announce(post)
                    self._count(post)
                return first
        self._unconfirmed.append(asyncio.create_task(self._post_publisher.announce(post)))
        self._count(post)
        while len(self._unconfirmed) > 10 * BATCH:
            await self._unconfirmed.popleft()
        return True

    async def flush(self) -> None:
        while self._unconfirmed:
            await self._unconfirmed.popleft()
